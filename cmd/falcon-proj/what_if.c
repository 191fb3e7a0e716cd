/* --what-if: prints the backtest, a row for each scheme, and the gain of each change;
 * --policy: prints the policy that falcon-sync should apply. */
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "job/policy.h"
#include "plot.h"
#include "proj.h"
#include "proj/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The prediction for a scheme. */
struct whatif_row {
	char name[FAL_RULE_TEXT];     /* of the rule */
	bool ok;                      /* false: the policy comes to a halt */
	bool ran;                     /* the scheme is that of the trace */
	bool other;                   /* the model differs from the trace's */
	char warning[FAL_STALE_TEXT]; /* set if momentum meets late gradients; else "" */
	double epoch_s;
	struct fal_simulation play;
};

/* A change: a further worker, one worker less, or another size. */
enum whatif_kind { WHATIF_ADD, WHATIF_REMOVE, WHATIF_SIZE };

/* The effect of a single change under the policy of the trace. */
struct whatif_change {
	enum whatif_kind kind;
	char what[80]; /* the worker, or "task = 16" */
	bool other;    /* the model differs from the trace's */
	double by_s;   /* seconds per epoch that the change adds */
};

/* The whole answer. */
struct whatif {
	const struct proj_job *job;     /* borrowed */
	struct fal_simulation backtest; /* the trace's policy on its machines */
	double predicted;               /* seconds per epoch of the backtest */
	struct fal_cost cost;           /* with all changes */
	double whole, small;            /* its fal_cost_task_sizes */
	struct whatif_row *row;
	size_t rows;
	struct whatif_change *change;
	size_t changes;
};

static const char all_rules[] =
	"bsp;asp;ssp:3;syncopt:1;flexrr:1;consgd:3;dynsgd:3;wbsp;groups:2;epsp;epsp:2";

/* Parses the schemes of --what-if, or the default ones for "all".  The caller frees *out.
 * Returns -1 to go on, or an exit code after one line on stderr. */
static int
parse_rules(const char *text, struct fal_rule **out, size_t *n)
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

/* Simulates the policy on these machines; returns the seconds per epoch of the trace's
 * job; infinite: the policy comes to a halt. */
static double
predict_epoch_s(const struct proj_job *job, const struct fal_cost *cost,
		const struct fal_policy *policy, struct fal_simulation *play)
{
	return fal_predict(cost, policy, play) < 0
		       ? INFINITY
		       : fal_simulation_epoch_s(play, &job->cost.grid);
}

bool
proj_changes(const struct proj_opt *o)
{
	return o->with.n + o->without.n > 0 || o->lanes + o->task + o->batch > 0 ||
	       o->workers != NULL;
}

/* --- changes of machines and sizes -------------------------------------------------- */

/* Returns the grid with the sizes of the options. */
static struct fal_grid
options_grid(const struct proj_opt *o, struct fal_grid g)
{
	g.task = o->task > 0 ? (uint32_t)o->task : g.task;
	g.batch = o->batch > 0 ? (uint32_t)o->batch : g.batch;
	return g;
}

/* Returns -1 to go on, or an exit code after one line on stderr about the option. */
static int
check_option(const char *option, int err, const struct fal_diag *diag)
{
	if (err < 0)
		return fail(fal_cli_exit_code(err), "%s: %s", option, diag->text);
	return -1;
}

/* Applies the options' changes.  Returns -1 to go on, or an exit code. */
static int
apply_changes(const struct proj_opt *o, struct fal_cost *c)
{
	struct fal_diag diag = { "" };
	int code = -1;
	/* Adds first: an added machine may be like a removed one. */
	for (size_t i = 0; i < o->with.n && code < 0; i++)
		code = check_option("--with", fal_machines_add(c, o->with.v[i], &diag),
				    &diag);
	if (code >= 0)
		return code;
	for (size_t i = 0; i < o->without.n; i++) {
		const char *name = o->without.v[i];
		const struct fal_cost_machine *m = fal_cost_find(c, name);
		if (m == NULL)
			return fail(FAL_EXIT_USAGE,
				    "--without: '%s': no such worker in the trace", name);
		if (c->machines == 1)
			return fail(FAL_EXIT_USAGE, "--without: '%s': is the last worker",
				    name);
		fal_cost_remove(c, (size_t)(m - c->machine));
	}
	const uint32_t lanes = (uint32_t)o->lanes;
	for (size_t i = 0; lanes > 0 && i < c->machines; i++) {
		struct fal_cost_machine *m = &c->machine[i];
		m->lanes_max = lanes;
		m->lanes_min = m->lanes_min < lanes ? m->lanes_min : lanes;
	}
	if (o->task > 0)
		fal_machines_task(c, (uint32_t)o->task);
	if (o->batch > 0)
		fal_machines_batch(c, (uint32_t)o->batch);
	if (o->workers == NULL)
		return -1;
	return check_option("--workers", fal_machines_draw(c, o->workers, o->seed, &diag),
			    &diag);
}

/* Adds the effect of the single change in `only`.  `what` names the change; if `what` is
 * NULL, the name is that of the newest machine.  Returns -1 to go on, or an exit
 * code. */
static int
whatif_add_change(struct whatif *w, const struct proj_opt *only, enum whatif_kind kind,
		  const char *what)
{
	struct whatif_change *c = &w->change[w->changes];
	struct fal_cost cost = fal_cost_copy(&w->job->cost);
	int code = apply_changes(only, &cost);
	if (code < 0) {
		struct fal_simulation play;
		const double epoch_s =
			predict_epoch_s(w->job, &cost, &w->job->run.policy, &play);
		if (what == NULL) /* the newest machine */
			what = cost.machine[cost.machines - 1].name;
		fal_text_plain(c->what, sizeof(c->what), what);
		c->kind = kind;
		c->other = !fal_grid_equal(&cost.grid, &w->job->cost.grid);
		c->by_s = epoch_s - w->predicted;
		w->changes++;
	}
	fal_cost_free(&cost);
	return code;
}

/* Computes the effect of each change alone. */
static int
whatif_compute_changes(const struct proj_opt *o, struct whatif *w)
{
	const struct {
		const char *name;
		uint64_t value;
		struct proj_opt only;
	} size[] = { { "lanes", o->lanes, { .lanes = o->lanes } },
		     { "task", o->task, { .task = o->task } },
		     { "batch", o->batch, { .batch = o->batch } } };
	const size_t sizes = sizeof(size) / sizeof(size[0]);
	int code = -1;
	w->change = fal_xcalloc(o->with.n + o->without.n + sizes, sizeof(*w->change));
	for (size_t i = 0; i < o->with.n && code < 0; i++) {
		const struct proj_opt only = { .with = { &o->with.v[i], 1 } };
		code = whatif_add_change(w, &only, WHATIF_ADD, NULL);
	}
	for (size_t i = 0; i < o->without.n && code < 0; i++) {
		const struct proj_opt only = { .without = { &o->without.v[i], 1 } };
		code = whatif_add_change(w, &only, WHATIF_REMOVE, o->without.v[i]);
	}
	for (size_t i = 0; i < sizes && code < 0; i++) {
		char what[40];
		/* Leaves out a task size that fits only the new batch. */
		const struct fal_grid g = options_grid(&size[i].only, w->job->cost.grid);
		snprintf(what, sizeof(what), "%s = %ju", size[i].name, size[i].value);
		if (size[i].value > 0 && g.task <= g.batch)
			code = whatif_add_change(w, &size[i].only, WHATIF_SIZE, what);
	}
	return code;
}

/* --- as text and as JSON ----------------------------------------------------------- */

static double
percent_of(double part, double all)
{
	return all > 0 ? 100 * part / all : 0;
}

static void
whatif_put_rows(const struct whatif *w, struct fal_buf *out)
{
	const double rate = w->job->cost.grid.samples / w->predicted;
	struct fal_table t = {
		.columns = 11,
		.width = fal_cli_width(stdout),
		.drops = "MB/s load moved ms/clock dropped stale compute speed"
	};
	fal_table_row(&t, "scheme\tmodel\ts/epoch\tspeed\tms/clock\tcompute\tstale\t"
			  "dropped\tmoved\tload\tMB/s");
	for (size_t i = 0; i < w->rows; i++) {
		const struct whatif_row *r = &w->row[i];
		const struct fal_simulation *p = &r->play;
		const double work = p->samples + p->dropped + p->duplicates;
		fal_table_row(&t, "%s%s\t%s", r->name, r->ran ? " *" : "",
			      r->other ? "another" : "same");
		if (!r->ok) {
			fal_table_row(&t, "-\t-\t-\t-\t-\t-\t-\t-\t-");
			continue;
		}
		fal_table_row(&t, "%.1f\t%.2f\t%.1f\t%.1f %%\t%.1f", r->epoch_s,
			      p->samples / p->seconds / rate,
			      1e3 * p->seconds / p->clocks, 100 * p->compute,
			      p->stale_updates);
		fal_table_row(&t, "%.1f %%\t%.1f\t%.1f %%\t%.1f",
			      percent_of(p->dropped + p->duplicates, work),
			      p->moved / p->clocks, 100 * p->load,
			      p->bytes / p->seconds / 1e6);
	}
	fal_table_text(&t, out);
}

static void
whatif_put_head(const struct proj_opt *o, const struct whatif *w, struct fal_buf *out)
{
	const struct fal_fit_run *run = &w->job->run;
	const struct fal_cost *cost = &w->cost;
	const uint32_t full = fal_grid_full_samples(&cost->grid);
	fal_put_fmt(out, "%s: %zu worker%s, %ju clock%s of %s\n", w->job->name,
		    w->job->cost.machines, fal_text_plural(w->job->cost.machines),
		    run->clocks, fal_text_plural(run->clocks), run->scheme);
	if (run->epoch_s > 0)
		fal_put_fmt(out,
			    "backtest: %.1f s per epoch predicted, %.1f measured (%+.1f "
			    "%%)\n",
			    w->predicted, run->epoch_s,
			    percent_of(w->predicted - run->epoch_s, run->epoch_s));
	else
		fal_put_fmt(out, "backtest: too few clocks to measure an epoch\n");
	fal_put_fmt(out,
		    "coordinator: %.1f ms an update; assumed %.1f us a message, %.2f ns "
		    "a byte; %.3f MB pushed, %.3f MB pulled\n",
		    1e3 * cost->step_s, 1e6 * cost->message_s, 1e9 * cost->byte_s,
		    cost->push_bytes / 1e6, cost->pull_bytes / 1e6);
	fal_put_fmt(out, "speeds: %.1f samples/s in all\n", fal_cost_speed(cost));
	const uint32_t tasks = fal_grid_tasks(&cost->grid, 0);
	const uint32_t large = fal_grid_large_tasks(&cost->grid, 0);
	fal_put_fmt(out, "tasks a clock: %u of %u sample%s", large, full,
		    fal_text_plural(full));
	if (large < tasks)
		fal_put_fmt(out, " and %u of %u", tasks - large, cost->grid.tail_task);
	fal_put_fmt(out, "; whole tasks cost %.1f %% of computing", 100 * w->whole);
	if (!isnan(w->small))
		fal_put_fmt(out, ", small tasks %.1f %%", 100 * w->small);
	fal_put_u8(out, '\n');
	if (o->workers != NULL)
		fal_put_fmt(out, "%zu worker%s drawn from these (seed %ju), batch %u\n",
			    cost->machines, fal_text_plural(cost->machines), o->seed,
			    cost->grid.batch);
	fal_put_fmt(out, "\n");
}

/* A number of a JSON object. */
struct json_field {
	const char *key;
	double value;
	int decimals;
};

static void
json_put_fields(struct fal_buf *out, const struct json_field *f, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fal_json_member_fixed(out, f[i].key, f[i].value, f[i].decimals);
}

static void
whatif_json_row(struct fal_buf *out, const struct whatif_row *r)
{
	const struct fal_simulation *p = &r->play;
	const struct json_field field[] = {
		{ "epoch_s", r->epoch_s, 6 },
		{ "clock_s", p->seconds / p->clocks, 6 },
		{ "compute", p->compute, 4 },
		{ "stale", p->stale_updates, 3 },
		{ "samples", p->samples, 0 },
		{ "dropped", p->dropped, 0 },
		{ "twice", p->duplicates, 0 },
		{ "moved", p->moved, 0 },
		{ "cloned", p->cloned, 0 },
		{ "load", p->load, 4 },
		{ "bytes_s", p->bytes / p->seconds, 0 },
	};
	fal_json_open(out, '{');
	fal_json_member_str(out, "scheme", r->name);
	fal_json_member_bool(out, "another_model", r->other);
	if (r->warning[0] != '\0')
		fal_json_member_str(out, "warning", r->warning);
	json_put_fields(out, field, r->ok ? sizeof(field) / sizeof(field[0]) : 0);
	fal_json_close(out, '}');
}

/* Puts the answer as one JSON object. */
static void
whatif_json(const struct whatif *w, struct fal_buf *out)
{
	const struct fal_cost *cost = &w->cost;
	const struct fal_fit_run *run = &w->job->run;
	const struct json_field field[] = {
		{ "workers", (double)cost->machines, 0 },
		{ "batch", cost->grid.batch, 0 },
		{ "task", cost->grid.task, 0 },
		{ "capacity", fal_cost_speed(cost), 3 },
		{ "granularity", w->whole, 4 },
		{ "small_tasks", w->small, 4 },
		{ "clocks", (double)run->clocks, 0 },
		{ "measured_s", run->epoch_s > 0 ? run->epoch_s : (double)NAN, 6 },
		{ "backtest_s", w->predicted, 6 },
		{ "message_s", cost->message_s, 9 },
		{ "byte_s", cost->byte_s, 12 },
		{ "step_s", cost->step_s, 6 },
		{ "push_bytes", cost->push_bytes, 0 },
		{ "pull_bytes", cost->pull_bytes, 0 },
	};
	fal_json_open(out, '{');
	fal_json_member_str(out, "trace", w->job->name);
	fal_json_member_str(out, "scheme", run->scheme);
	json_put_fields(out, field, sizeof(field) / sizeof(field[0]));
	fal_json_member_open(out, "schemes", '[');
	for (size_t i = 0; i < w->rows; i++)
		whatif_json_row(out, &w->row[i]);
	fal_json_close(out, ']');
	fal_json_member_open(out, "changes", '[');
	for (size_t i = 0; i < w->changes; i++) {
		const struct whatif_change *c = &w->change[i];
		static const char *const kind[] = { "add", "remove", "size" };
		fal_json_open(out, '{');
		fal_json_member_str(out, "kind", kind[c->kind]);
		fal_json_member_str(out, "what", c->what);
		fal_json_member_fixed(out, "by_s", c->by_s, 6);
		if (c->kind == WHATIF_SIZE)
			fal_json_member_bool(out, "another_model", c->other);
		fal_json_close(out, '}');
	}
	fal_json_close(out, ']');
	fal_json_close(out, '}');
	fal_put_fmt(out, "\n");
}

/* --- the answer ------------------------------------------------------------------- */

/* Computes a row for each rule on the changed machines, and one for the trace's rule. */
static int
whatif_compute_rows(const struct proj_opt *o, struct whatif *w)
{
	const struct proj_job *job = w->job;
	const bool resized = !fal_grid_equal(&w->cost.grid, &job->cost.grid);
	struct fal_rule *rule = NULL;
	size_t rules = 0;
	int code = o->what_if != NULL ? parse_rules(o->what_if, &rule, &rules) : -1;
	bool ran = false;
	w->row = fal_xcalloc(rules + 1, sizeof(*w->row));
	for (size_t i = 0; i < rules; i++)
		ran |= fal_rule_equal(&rule[i], &job->run.policy.rule);
	for (size_t i = 0; i < rules + !ran && code < 0; i++) {
		struct fal_policy p = job->run.policy; /* borrowed except the rule */
		struct whatif_row *r = &w->row[w->rows++];
		if (i >= (size_t)!ran)
			p.rule = rule[i - !ran];
		r->ran = fal_rule_equal(&p.rule, &job->run.policy.rule);
		r->other =
			resized || !fal_rule_same_model(&p.rule, &job->run.policy.rule);
		fal_stale_warning(&p.rule, &job->run.optim, (uint32_t)w->cost.machines,
				  r->warning);
		fal_rule_text(&p.rule, r->name);
		if (r->ran && !proj_changes(o)) { /* the backtest */
			r->epoch_s = w->predicted;
			r->play = w->backtest;
		} else {
			r->epoch_s = predict_epoch_s(job, &w->cost, &p, &r->play);
		}
		r->ok = !isinf(r->epoch_s);
	}
	free(rule);
	return code;
}

/* Returns whether the backtest is too far off; then prints a warning. */
static bool
backtest_is_off(const struct proj_job *job, double predicted)
{
	static const double most = 0.10;
	double measured = job->run.epoch_s;
	if (measured <= 0 || fabs(predicted - measured) <= most * measured)
		return false;
	return fail(true,
		    "%s: the backtest is off by %+.1f %%: do not trust what follows",
		    job->name, 100 * (predicted - measured) / measured);
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
			bar[bars++] = (struct plot_bar){ r->name,
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
		return fail(fal_cli_exit_code(err), "%s", diag.text);
	return FAL_EXIT_DONE;
}

/* Computes the answer, and prints or draws it.  Returns an exit code. */
static int
whatif_answer(const struct proj_opt *o, struct whatif *w, struct fal_buf *out)
{
	int code = apply_changes(o, &w->cost);
	if (code < 0)
		code = whatif_compute_rows(o, w);
	if (code < 0 && (o->plot != NULL || o->tsv))
		return draw_bars(o, w, out);
	if (code < 0)
		code = whatif_compute_changes(o, w);
	if (code >= 0)
		return code;
	fal_cost_task_sizes(&w->cost, &w->whole, &w->small);
	if (o->json) {
		whatif_json(w, out);
		return FAL_EXIT_DONE;
	}
	whatif_put_head(o, w, out);
	whatif_put_rows(w, out);
	bool other = false;
	for (size_t i = 0; i < w->rows; i++)
		other |= w->row[i].other;
	if (other)
		fal_put_fmt(out, "another model: only training shows its accuracy\n");
	for (size_t i = 0; i < w->rows; i++)
		if (w->row[i].warning[0] != '\0')
			fal_put_fmt(out, "warning: %s\n", w->row[i].warning);
	for (size_t i = 0; i < w->changes; i++) {
		const struct whatif_change *c = &w->change[i];
		const char *sign = c->by_s < 0 ? "-" : "+";
		const double by = fabs(c->by_s);
		const bool worth = c->kind == WHATIF_ADD ? c->by_s < 0 : c->by_s > 0;
		const char *verdict = by < 0.05 ? "hardly " : worth ? "" : "not ";
		if (c->kind == WHATIF_SIZE)
			fal_put_fmt(out, "%s: %s%.1f s per epoch%s\n", c->what, sign, by,
				    c->other ? ", another model" : "");
		else if (c->kind == WHATIF_ADD)
			fal_put_fmt(out, "%s is %sworth adding: %s%.1f s per epoch\n",
				    c->what, verdict, sign, by);
		else
			fal_put_fmt(
				out,
				"%s is %sworth keeping: without it %s%.1f s per epoch\n",
				c->what, verdict, sign, by);
	}
	return FAL_EXIT_DONE;
}

int
proj_what_if(const struct proj_opt *o, struct proj_job *job, struct fal_buf *out)
{
	struct whatif w = { .job = job };
	/* The same check as falcon-ps. */
	const struct fal_grid g = options_grid(o, job->cost.grid);
	if (o->task + o->batch > 0 && g.task > g.batch)
		return fail(FAL_EXIT_USAGE,
			    "--%s: a task of %u sample%s is more than a batch of %u",
			    o->task > 0 ? "task" : "batch", g.task,
			    fal_text_plural(g.task), g.batch);
	w.predicted = predict_epoch_s(job, &job->cost, &job->run.policy, &w.backtest);
	if (isinf(w.predicted))
		return fail(FAL_EXIT_USAGE, "%s: the trace's policy comes to a halt",
			    job->name);
	w.cost = fal_cost_copy(&job->cost);
	const bool is_off = backtest_is_off(job, w.predicted);
	const int code = whatif_answer(o, &w, out);
	free(w.row);
	free(w.change);
	fal_cost_free(&w.cost);
	if (code > FAL_EXIT_DONE)
		return code;
	return is_off && o->strict ? FAL_EXIT_NO : FAL_EXIT_DONE;
}

/* --- --policy -----------------------------------------------------------------------
 */

/* Prints the gain of a scheme that makes another model.  falcon-proj does not propose
 * such a scheme, as seconds say nothing about accuracy. */
static void
print_other_model(const struct proj_opt *o, const struct proj_job *job, double then_s)
{
	struct fal_rule *rule;
	size_t rules;
	struct fal_advice a;
	char warning[FAL_STALE_TEXT];
	const char *list = o->what_if != NULL ? o->what_if : "all";
	if (parse_rules(list, &rule, &rules) >= 0)
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
	/* Without --what-if: the scheme with the same model that may be faster. */
	const char *list = o->what_if != NULL ? o->what_if : "epsp";
	int code = parse_rules(list, &rule, &rules);
	if (code >= 0)
		return code;
	int err = fal_advise(&job->cost, &job->run.policy, rule, rules, false, &a);
	free(rule);
	if (err < 0)
		return fail(FAL_EXIT_NO, "the policy in force comes to a halt");
	if (backtest_is_off(job, a.now_s) && o->strict) {
		fal_policy_free(&a.policy);
		return FAL_EXIT_NO;
	}
	const double gain = 100 * (1 - a.then_s / a.now_s);
	const bool gains = a.then_s < a.now_s && gain >= o->min_gain &&
			   job->run.clocks >= FAL_FIT_ENOUGH;
	struct fal_buf json = { 0 };
	if (gains) {
		fal_policy_json_put(&a.policy, &json);
		fal_put_u8(&json, 0);
	}
	if (json.err < 0)
		fal_out_of_memory();
	char *text = (char *)json.p;
	const bool is_same =
		text != NULL && last->text != NULL && strcmp(last->text, text) == 0;
	const bool prints = text != NULL && (is_same ? !last->printed : !o->follow);
	if (prints) {
		fal_put_fmt(out, "%s\n", text);
		fal_cli_err(PROG, "%.1f s per epoch now, %.1f predicted (%.0f %% less)",
			    a.now_s, a.then_s, gain);
	}
	free(last->text);
	*last = (struct proj_proposal){ text, prints || (is_same && last->printed) };
	if (o->allow_model && (prints || !o->follow))
		print_other_model(o, job, prints ? a.then_s : a.now_s);
	fal_policy_free(&a.policy);
	return FAL_EXIT_DONE;
}
