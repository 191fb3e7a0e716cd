/* --policy: what falcon-sync is to apply. */
#include "job/policy.h"
#include "base/mem.h"
#include "proj.h"
#include "proj/what_if.h"

#include <stdlib.h>
#include <string.h>

/* The JSON of a policy as a string. */
static char *
text_of(const struct fal_policy *p)
{
	struct fal_buf b = { 0 };
	fal_policy_json_put(p, &b);
	fal_put_u8(&b, 0);
	if (b.err < 0)
		fal_out_of_memory();
	return (char *)b.p;
}

/* Says what a scheme that makes another model would save; it is not proposed, as seconds
 * are not accuracy. */
static void
say_other(const struct proj_opt *o, const struct proj_job *job, double then_s)
{
	struct fal_rule *rule;
	size_t rules;
	struct fal_advice a;
	char warning[FAL_STALE_TEXT];
	const char *list = o->what_if != NULL ? o->what_if : "all";
	if (proj_rules(list, &rule, &rules) >= 0)
		return;
	int err = fal_advise(&job->cost, &job->run.policy, rule, rules, true, &a);
	free(rule);
	if (err < 0)
		return;
	if (a.model && a.then_s < then_s) {
		char name[FAL_RULE_TEXT];
		const bool late =
			fal_stale_warning(&a.policy.rule, &job->run.optim,
					  (uint32_t)job->cost.machines, warning);
		fal_cli_err(PROG,
			    "%s: %.1f s per epoch predicted, but another model: not "
			    "proposed, as seconds are not accuracy%s%s",
			    fal_rule_text(&a.policy.rule, name), a.then_s,
			    late ? "; " : "", warning);
	}
	fal_policy_free(&a.policy);
}

int
proj_policy(const struct proj_opt *o, const struct proj_job *job,
	    struct proj_proposal *last, struct fal_buf *out)
{
	struct fal_rule *rule;
	size_t rules;
	struct fal_advice a;
	/* Without --what-if, what gives the same model and may be faster. */
	const char *list = o->what_if != NULL ? o->what_if : "epsp";
	int code = proj_rules(list, &rule, &rules);
	if (code >= 0)
		return code;
	int err = fal_advise(&job->cost, &job->run.policy, rule, rules, false, &a);
	free(rule);
	if (err < 0) {
		fal_cli_err(PROG, "the policy that runs cannot go on");
		return FAL_EXIT_NO;
	}
	bool off = proj_is_off(job, a.now_s);
	if (off && o->strict) {
		fal_policy_free(&a.policy);
		return FAL_EXIT_NO;
	}
	const double gain = 100 * (1 - a.then_s / a.now_s);
	const bool gains = a.then_s < a.now_s && gain >= o->min_gain &&
			   job->run.clocks >= FAL_FIT_ENOUGH;
	char *text = gains ? text_of(&a.policy) : NULL;
	const bool again =
		text != NULL && last->text != NULL && strcmp(last->text, text) == 0;
	const bool told = text != NULL && (again ? !last->told : !o->follow);
	if (told) {
		fal_put_fmt(out, "%s\n", text);
		fal_cli_err(PROG, "%.1f s per epoch now, %.1f predicted (%.0f %% less)",
			    a.now_s, a.then_s, gain);
	}
	free(last->text);
	*last = (struct proj_proposal){ text, told || (again && last->told) };
	if (o->allow_model && (told || !o->follow))
		say_other(o, job, told ? a.then_s : a.now_s);
	fal_policy_free(&a.policy);
	return FAL_EXIT_DONE;
}
