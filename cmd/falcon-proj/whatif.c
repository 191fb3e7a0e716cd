/* --what-if: the backtest, then a row for each scheme, then what each change is worth. */
#include "whatif.h"
#include "base/mem.h"
#include "base/text.h"
#include "plot.h"
#include "proj/what_if.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char all_rules[] = "bsp;asp;ssp:3;syncopt:1;flexrr:1;consgd:3;dynsgd:3;wbsp;"
				"groups:2;epsp;epsp:2";

int
proj_rules(const char *text, struct fal_rule **out, size_t *n)
{
	bool all = strcmp(text, "all") == 0;
	char *copy = fal_xstrdup(all ? all_rules : text), *rest = copy, *one;
	size_t cap = 0;
	int code = -1;
	*out = NULL;
	*n = 0;
	while (code < 0 && (one = strsep(&rest, ";")) != NULL) {
		struct fal_diag diag;
		one += strspn(one, " ");
		FAL_XGROW(*out, cap, *n + 1);
		if (fal_rule_parse(one, &(*out)[*n], &diag) < 0) {
			fal_cli_err(PROG, "--what-if: %s", diag.text);
			code = FAL_EXIT_USAGE;
		} else {
			(*n)++;
		}
	}
	free(copy);
	if (code >= 0) {
		free(*out);
		*out = NULL;
		*n = 0;
	}
	return code;
}

/* Plays the policy on these machines: seconds per epoch of the trace's job; infinite: the
 * policy cannot go on. */
static double
predict(const struct proj_job *job, const struct fal_cost *cost,
	const struct fal_policy *policy, struct fal_play *play)
{
	return fal_predict(cost, policy, play) < 0
		       ? INFINITY
		       : fal_play_epoch_s(play, &job->cost.grid);
}

bool
proj_changes(const struct proj_opt *o)
{
	return o->with.n + o->without.n > 0 || o->lanes + o->task + o->batch > 0 ||
	       o->workers != NULL;
}

/* --- changes of machines and sizes -------------------------------------------------- */

static int
bad(const char *option, const char *value, const char *why)
{
	fal_cli_err(PROG, "%s: '%s': %s", option, value, why);
	return FAL_EXIT_USAGE;
}

/* The grid with the sizes that are asked for. */
static struct fal_grid
sizes_of(const struct proj_opt *o, struct fal_grid g)
{
	g.task = o->task > 0 ? (uint32_t)o->task : g.task;
	g.batch = o->batch > 0 ? (uint32_t)o->batch : g.batch;
	return g;
}

/* Would falcon-ps take them?  -1, or an exit code, having said what is wrong. */
static int
check_sizes(const struct proj_opt *o, const struct fal_cost *c)
{
	const struct fal_grid g = sizes_of(o, c->grid);
	if (o->task + o->batch == 0 || g.task <= g.batch)
		return -1;
	fal_cli_err(PROG, "--%s: a task of %u sample%s is more than a batch of %u",
		    o->task > 0 ? "task" : "batch", g.task, fal_text_s(g.task), g.batch);
	return FAL_EXIT_USAGE;
}

static void
set_lanes(struct fal_cost *c, uint32_t lanes)
{
	for (size_t i = 0; i < c->machines; i++) {
		c->machine[i].lanes_max = lanes;
		if (c->machine[i].lanes_min > lanes)
			c->machine[i].lanes_min = lanes;
	}
}

static int
without(struct fal_cost *c, const char *name)
{
	const struct fal_cost_machine *m = fal_cost_find(c, name);
	if (m == NULL)
		return bad("--without", name, "no such worker in the trace");
	if (c->machines == 1)
		return bad("--without", name, "it is the last one");
	fal_cost_remove(c, (size_t)(m - c->machine));
	return -1;
}

/* -1 to go on; else an exit code, having said what is wrong with the option. */
static int
judge(const char *option, int err, const struct fal_diag *diag)
{
	if (err < 0)
		fal_cli_err(PROG, "%s: %s", option, diag->text);
	return err < 0 ? (int)fal_cli_exit(err) : -1;
}

/* Makes the changes that are asked for.  -1 to go on, else an exit code. */
static int
change(const struct proj_opt *o, struct fal_cost *c)
{
	struct fal_diag diag = { "" };
	int code = -1;
	/* What is added may be like what is taken away. */
	for (size_t i = 0; i < o->with.n && code < 0; i++)
		code = judge("--with", fal_machines_add(c, o->with.v[i], &diag), &diag);
	for (size_t i = 0; i < o->without.n && code < 0; i++)
		code = without(c, o->without.v[i]);
	if (code >= 0)
		return code;
	if (o->lanes > 0)
		set_lanes(c, (uint32_t)o->lanes);
	if (o->task > 0)
		fal_machines_task(c, (uint32_t)o->task);
	if (o->batch > 0)
		fal_machines_batch(c, (uint32_t)o->batch);
	if (o->workers == NULL)
		return -1;
	return judge("--workers", fal_machines_draw(c, o->workers, o->seed, &diag),
		     &diag);
}

/* Adds what one change is worth; `what` NULL: it is a worker more.  -1 to go on, else an
 * exit code. */
static int
add_change(struct whatif *w, const struct proj_opt *only, enum whatif_kind kind,
	   const char *what)
{
	struct whatif_change *c = &w->change[w->changes];
	struct fal_cost cost = fal_cost_copy(&w->job->cost);
	int code = change(only, &cost);
	if (code < 0) {
		struct fal_play play;
		const double epoch_s =
			predict(w->job, &cost, &w->job->run.policy, &play);
		if (what == NULL) /* the newest machine */
			what = cost.machine[cost.machines - 1].name;
		fal_text_plain(c->what, sizeof(c->what), what);
		c->kind = kind;
		c->other = !fal_grid_alike(&cost.grid, &w->job->cost.grid);
		c->by_s = epoch_s - w->predicted;
		w->changes++;
	}
	fal_cost_free(&cost);
	return code;
}

/* Each change alone. */
static int
make_changes(const struct proj_opt *o, struct whatif *w)
{
	enum { SIZES = 3 };
	const struct {
		const char *name;
		uint64_t value;
		struct proj_opt only;
	} size[SIZES] = { { "lanes", o->lanes, { .lanes = o->lanes } },
			  { "task", o->task, { .task = o->task } },
			  { "batch", o->batch, { .batch = o->batch } } };
	int code = -1;
	w->change = fal_xcalloc(o->with.n + o->without.n + SIZES, sizeof(*w->change));
	for (size_t i = 0; i < o->with.n && code < 0; i++) {
		const struct proj_opt only = { .with = { &o->with.v[i], 1 } };
		code = add_change(w, &only, WHATIF_ADD, NULL);
	}
	for (size_t i = 0; i < o->without.n && code < 0; i++) {
		const struct proj_opt only = { .without = { &o->without.v[i], 1 } };
		code = add_change(w, &only, WHATIF_REMOVE, o->without.v[i]);
	}
	for (size_t i = 0; i < SIZES && code < 0; i++) {
		char what[40];
		/* A task that only fits the other batch, too, is worth nothing alone. */
		const struct fal_grid g = sizes_of(&size[i].only, w->job->cost.grid);
		snprintf(what, sizeof(what), "%s = %" PRIu64, size[i].name,
			 size[i].value);
		if (size[i].value > 0 && g.task <= g.batch)
			code = add_change(w, &size[i].only, WHATIF_SIZE, what);
	}
	return code;
}

/* --- all of it -------------------------------------------------------------------- */

/* A row for each rule on the changed machines; without --what-if for the one that ran. */
static int
make_rows(const struct proj_opt *o, struct whatif *w)
{
	const struct proj_job *job = w->job;
	const bool resized = !fal_grid_alike(&w->cost.grid, &job->cost.grid);
	struct fal_rule *rule = NULL;
	size_t rules = 0;
	int code = o->what_if != NULL ? proj_rules(o->what_if, &rule, &rules) : -1;
	bool ran = false;
	w->row = fal_xcalloc(rules + 1, sizeof(*w->row));
	for (size_t i = 0; i < rules; i++)
		ran |= fal_rule_eq(&rule[i], &job->run.policy.rule);
	for (size_t i = 0; i < rules + !ran && code < 0; i++) {
		struct fal_policy p = job->run.policy; /* borrowed but for the rule */
		struct whatif_row *r = &w->row[w->rows++];
		if (i >= (size_t)!ran)
			p.rule = rule[i - !ran];
		r->ran = fal_rule_eq(&p.rule, &job->run.policy.rule);
		r->other =
			resized || !fal_rule_same_model(&p.rule, &job->run.policy.rule);
		fal_stale_warning(&p.rule, &job->run.optim, (uint32_t)w->cost.machines,
				  r->warning);
		fal_rule_put(&p.rule, &r->name);
		fal_put_u8(&r->name, 0);
		if (r->ran && !proj_changes(o)) { /* that is the backtest */
			r->epoch_s = w->predicted;
			r->play = w->backtest;
		} else {
			r->epoch_s = predict(job, &w->cost, &p, &r->play);
		}
		r->ok = !isinf(r->epoch_s);
	}
	free(rule);
	return code;
}

bool
proj_is_off(const struct proj_job *job, double predicted)
{
	static const double most = 0.10;
	double measured = job->run.epoch_s;
	if (measured <= 0 || fabs(predicted - measured) <= most * measured)
		return false;
	fal_cli_err(PROG,
		    "%s: the backtest is off by %+.1f %%: do not trust what follows",
		    job->name, 100 * (predicted - measured) / measured);
	return true;
}

static int
draw_bars(const struct proj_opt *o, const struct whatif *w, struct fal_buf *out)
{
	struct plot_bar *bar = fal_xcalloc(w->rows, sizeof(*bar));
	struct fal_buf numbers = { 0 };
	struct fal_diag diag;
	size_t bars = 0;
	int err = FAL_OK;
	for (size_t i = 0; i < w->rows; i++) {
		const struct whatif_row *r = &w->row[i];
		if (r->ok)
			bar[bars++] = (struct plot_bar){ (const char *)r->name.p,
							 r->epoch_s,
							 r->ran ? w->job->run.epoch_s : 0,
							 r->play.compute,
							 r->ran,
							 r->other };
	}
	plot_put_bars(o->tsv ? out : &numbers, bar, bars);
	if (!o->tsv)
		err = plot_draw(o->plot, "bars", &numbers, &diag);
	fal_buf_free(&numbers);
	free(bar);
	if (err < 0)
		fal_cli_err(PROG, "%s", diag.text);
	return err < 0 ? (int)fal_cli_exit(err) : FAL_EXIT_DONE;
}

/* Finds all that is asked for, and says or draws it.  An exit code. */
static int
answer(const struct proj_opt *o, struct whatif *w, struct fal_buf *out)
{
	int code = change(o, &w->cost);
	if (code < 0)
		code = make_rows(o, w);
	if (code < 0 && (o->plot != NULL || o->tsv))
		return draw_bars(o, w, out);
	if (code < 0)
		code = make_changes(o, w);
	if (code >= 0)
		return code;
	fal_cost_sizes(&w->cost, &w->whole, &w->small);
	if (o->json)
		whatif_json(w, out);
	else
		whatif_text(o, w, out);
	return FAL_EXIT_DONE;
}

int
proj_what_if(const struct proj_opt *o, struct proj_job *job, struct fal_buf *out)
{
	struct whatif w = { .job = job };
	int code = check_sizes(o, &job->cost);
	if (code >= 0)
		return code;
	w.predicted = predict(job, &job->cost, &job->run.policy, &w.backtest);
	if (isinf(w.predicted)) {
		fal_cli_err(PROG, "%s: under the policy that ran nothing goes on",
			    job->name);
		return FAL_EXIT_USAGE;
	}
	w.cost = fal_cost_copy(&job->cost);
	bool off = proj_is_off(job, w.predicted);
	code = answer(o, &w, out);
	for (size_t i = 0; i < w.rows; i++)
		fal_buf_free(&w.row[i].name);
	free(w.row);
	free(w.change);
	fal_cost_free(&w.cost);
	if (code > FAL_EXIT_DONE)
		return code;
	return off && o->strict ? FAL_EXIT_NO : FAL_EXIT_DONE;
}
