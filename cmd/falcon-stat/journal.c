/* Changes of policy, as the trace has them and as the journal has them. */
#include "journal.h"

#include "base/mem.h"
#include "base/text.h"
#include "job/policy.h"
#include "run/snapshot.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void
stat_policies_free(struct stat_policies *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].by);
		free(s->v[i].text);
	}
	free(s->v);
	*s = (struct stat_policies){ 0 };
}

static int
add(struct stat_policies *s, uint64_t clock, const char *by,
    const struct fal_policy *policy)
{
	struct fal_buf whole = { 0 };
	if (FAL_GROW(s->v, s->cap, s->n + 1) < 0)
		return FAL_ENOMEM;
	fal_policy_json_put(policy, &whole);
	fal_put_u8(&whole, '\0');
	char *who = fal_strdup(by);
	if (whole.err < 0 || who == NULL) {
		fal_buf_free(&whole);
		free(who);
		return FAL_ENOMEM;
	}
	s->v[s->n++] = (struct stat_policy){ clock, who, (char *)whole.p };
	return FAL_OK;
}

/* One more, of which `o` is all or nothing but the scheme; FAL_EFORMAT, FAL_EINVAL,
 * FAL_ELIMIT: it is none. */
static int
add_json(struct stat_policies *s, uint64_t clock, const char *by, const json_t *o)
{
	const struct fal_policy none = { 0 };
	struct fal_policy policy;
	char *text = json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY);
	if (text == NULL)
		return FAL_ENOMEM;
	struct fal_policy_text in = { "policy", 1, text, strlen(text) };
	int err = fal_policy_json_get(&in, &none, &policy, NULL);
	free(text);
	if (err < 0)
		return err;
	err = add(s, clock, by, &policy);
	fal_policy_free(&policy);
	return err;
}

static bool
same(const struct stat_policy *a, const struct stat_policy *b)
{
	return strcmp(a->by, b->by) == 0 && strcmp(a->text, b->text) == 0;
}

/* Takes the last one away where it says again what the one before it said. */
static void
forget_again(struct stat_policies *s)
{
	if (s->n < 2 || !same(&s->v[s->n - 2], &s->v[s->n - 1]))
		return;
	s->n--;
	free(s->v[s->n].by);
	free(s->v[s->n].text);
}

int
stat_policies_line(struct stat_policies *s, struct fal_trace_line *l)
{
	const struct fal_ev_policy *e = &l->is.policy;
	if (l->event == FAL_EV_RESTART)
		s->resumed = true;
	if (l->event != FAL_EV_POLICY)
		return FAL_OK;
	const json_t *all = json_object_get(l->o, "policy");
	json_t *o = all == NULL ? json_pack("{s:s}", "scheme", e->scheme) : NULL;
	if (all == NULL && o == NULL)
		return FAL_ENOMEM;
	int err = add_json(s, e->clock, e->by, all != NULL ? all : o);
	json_decref(o);
	if (err == FAL_EFORMAT || err == FAL_EINVAL || err == FAL_ELIMIT)
		return fal_trace_fail(l, err, "is none");
	if (err == FAL_OK && s->resumed)
		forget_again(s);
	s->resumed = false;
	return err;
}

static int
on_line(void *arg, const struct fal_journal_line *l)
{
	return add(arg, l->clock, l->by, l->policy);
}

/* All whole lines; a last one without its newline is none, as falcon-policy(5) says.
 * FAL_EINVAL: something else is wrong, and was found. */
static int
read_journal(struct stat_policies *s, const struct fal_buf *text, struct fal_chain *chain,
	     struct fal_audit *a)
{
	struct fal_journal_reading r = {
		.name = "policy.jsonl", .on_line = on_line, .arg = s, .chain = chain
	};
	const int err = fal_journal_read(&r, text, NULL);
	if (err == FAL_OK || err == FAL_ENOMEM)
		return err;
	if (r.unchained)
		fal_audit_found(
			a,
			"policy.jsonl: line %u does not chain the line before, or "
			"was changed",
			r.line);
	else
		fal_audit_found(a, "policy.jsonl: line %u is none", r.line);
	return FAL_EINVAL;
}

/* What the trace begins with is the job's policy, or the one that a job which was begun
 * again found last: what stands before that is of the runs before. */
static void
compare(const struct stat_policies *trace, const struct stat_policies *journal, bool done,
	struct fal_audit *a)
{
	const struct stat_policy *first = &trace->v[0];
	const bool fresh = trace->n == 0 || strcmp(first->by, "job") == 0;
	const size_t changes = trace->n > 0 ? trace->n - 1 : 0;
	size_t from = 0;
	if (!fresh) {
		/* The last one by which all that follows is what the trace has. */
		from = journal->n > changes ? journal->n - changes : 0;
		while (!done && from > 1 && !same(&journal->v[from - 1], first))
			from--;
		if (from == 0 || !same(&journal->v[from - 1], first)) {
			fal_audit_found(a,
					"policy.jsonl: has not the policy that the trace "
					"begins with, and then %zu change%s",
					changes, fal_text_s(changes));
			return;
		}
	}
	for (size_t i = 0; i < changes; i++) {
		const struct stat_policy *is = &trace->v[i + 1];
		if (from + i < journal->n && journal->v[from + i].clock == is->clock &&
		    same(&journal->v[from + i], is))
			continue;
		fal_audit_found(a,
				"policy.jsonl: line %zu is not the trace's change by "
				"'%.64s' from clock %" PRIu64 " on",
				from + i + 1, is->by, is->clock);
		return;
	}
	if (done && journal->n > from + changes)
		fal_audit_found(a,
				"policy.jsonl: line %zu is a change that the trace has "
				"not",
				from + changes + 1);
}

int
stat_journal_audit(const struct stat_policies *trace, const struct fal_buf *text,
		   const char *end, struct fal_audit *a)
{
	struct stat_policies journal = { 0 };
	struct fal_chain chain = { 0 };
	int err = read_journal(&journal, text, &chain, a);
	if (err == FAL_OK)
		compare(trace, &journal, end != NULL, a);
	/* What the trace does not repeat, as the time of a change, stands in that, too.
	 */
	if (err == FAL_OK && end != NULL && strcmp(chain.link, end) != 0)
		fal_audit_found(a,
				"policy.jsonl: its last link is %s, but the trace says "
				"%.64s",
				chain.link[0] != '\0' ? chain.link : "none",
				end[0] != '\0' ? end : "none");
	stat_policies_free(&journal);
	return err == FAL_ENOMEM ? err : FAL_OK;
}
