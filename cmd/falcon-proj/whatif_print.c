/* What --what-if has found, as text and as JSON. */
#include "base/json.h"
#include "base/text.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "whatif.h"

#include <inttypes.h>
#include <math.h>

static double
per_cent(double part, double all)
{
	return all > 0 ? 100 * part / all : 0;
}

static void
put_rows(const struct whatif *w, struct fal_buf *out)
{
	static const char *const head[] = { "scheme",   "model",   "s/epoch", "speed",
					    "ms/clock", "compute", "stale",   "dropped",
					    "moved",    "load",    "MB/s" };
	const double rate = w->job->cost.grid.samples / w->predicted;
	struct fal_table t = {
		.columns = sizeof(head) / sizeof(head[0]),
		.width = fal_cli_width(stdout),
		.drops = "MB/s load moved ms/clock dropped stale compute speed"
	};
	for (size_t i = 0; i < t.columns; i++)
		fal_table_add(&t, "%s", head[i]);
	for (size_t i = 0; i < w->rows; i++) {
		const struct whatif_row *r = &w->row[i];
		const struct fal_play *p = &r->play;
		fal_table_add(&t, "%s%s", (const char *)r->name.p, r->ran ? " *" : "");
		fal_table_add(&t, "%s", r->other ? "another" : "same");
		if (!r->ok) {
			for (size_t c = 2; c < t.columns; c++)
				fal_table_add(&t, "-");
			continue;
		}
		double work = p->samples + p->dropped + p->twice;
		fal_table_add(&t, "%.1f", r->epoch_s);
		fal_table_add(&t, "%.2f", p->samples / p->seconds / rate);
		fal_table_add(&t, "%.1f", 1e3 * p->seconds / p->clocks);
		fal_table_add(&t, "%.1f %%", 100 * p->compute);
		fal_table_add(&t, "%.1f", p->stale_updates);
		fal_table_add(&t, "%.1f %%", per_cent(p->dropped + p->twice, work));
		fal_table_add(&t, "%.1f", p->moved / p->clocks);
		fal_table_add(&t, "%.1f %%", 100 * p->load);
		fal_table_add(&t, "%.1f", p->bytes / p->seconds / 1e6);
	}
	if (fal_table_text(&t, out) < 0)
		out->err = FAL_ENOMEM;
	fal_table_free(&t);
}

static void
put_head(const struct proj_opt *o, const struct whatif *w, struct fal_buf *out)
{
	const struct fal_fit_run *run = &w->job->run;
	const struct fal_cost *cost = &w->cost;
	const uint32_t full = fal_grid_full(&cost->grid);
	fal_put_fmt(out, "%s: %zu worker%s, %" PRIu64 " clock%s of %s\n", w->job->name,
		    w->job->cost.machines, fal_text_s(w->job->cost.machines), run->clocks,
		    fal_text_s(run->clocks), run->scheme);
	if (run->epoch_s > 0)
		fal_put_fmt(out,
			    "backtest: %.1f s per epoch predicted, %.1f measured (%+.1f "
			    "%%)\n",
			    w->predicted, run->epoch_s,
			    per_cent(w->predicted - run->epoch_s, run->epoch_s));
	else
		fal_put_fmt(out, "backtest: too few clocks to measure an epoch\n");
	fal_put_fmt(out,
		    "coordinator: %.1f ms an update; assumed %.1f us a message, %.2f ns "
		    "a byte; %.3f MB pushed, %.3f MB pulled\n",
		    1e3 * cost->step_s, 1e6 * cost->message_s, 1e9 * cost->byte_s,
		    cost->push_bytes / 1e6, cost->pull_bytes / 1e6);
	fal_put_fmt(out, "speeds: %.1f samples/s in all\n", fal_cost_speed(cost));
	fal_put_fmt(
		out,
		"tasks a clock: %u of %u sample%s; of computing %.1f %% is lost as they "
		"are whole",
		fal_grid_tasks(&cost->grid, 0), full, fal_text_s(full), 100 * w->whole);
	if (!isnan(w->small))
		fal_put_fmt(out, ", %.1f %% as they are small", 100 * w->small);
	fal_put_u8(out, '\n');
	if (o->workers != NULL)
		fal_put_fmt(out,
			    "%zu worker%s drawn from these (seed %" PRIu64
			    "), batch %u\n",
			    cost->machines, fal_text_s(cost->machines), o->seed,
			    cost->grid.batch);
	fal_put_fmt(out, "\n");
}

/* What seconds do not say. */
static void
put_cautions(const struct whatif *w, struct fal_buf *out)
{
	bool other = false;
	for (size_t i = 0; i < w->rows; i++)
		other |= w->row[i].other;
	if (other)
		fal_put_fmt(out, "another model: what it is worth only training shows; "
				 "seconds are not accuracy\n");
	for (size_t i = 0; i < w->rows; i++)
		if (w->row[i].warning[0] != '\0')
			fal_put_fmt(out, "warning: %s\n", w->row[i].warning);
}

static void
put_change(const struct whatif_change *c, struct fal_buf *out)
{
	const char *sign = c->by_s < 0 ? "-" : "+";
	const double by = fabs(c->by_s);
	const bool worth = c->kind == WHATIF_ADD ? c->by_s < 0 : c->by_s > 0;
	const char *verdict = by < 0.05 ? "hardly " : worth ? "" : "not ";
	if (c->kind == WHATIF_SIZE)
		fal_put_fmt(out, "%s: %s%.1f s per epoch%s\n", c->what, sign, by,
			    c->other ? ", another model" : "");
	else if (c->kind == WHATIF_ADD)
		fal_put_fmt(out, "%s is %sworth adding: %s%.1f s per epoch\n", c->what,
			    verdict, sign, by);
	else
		fal_put_fmt(out, "%s is %sworth keeping: without it %s%.1f s per epoch\n",
			    c->what, verdict, sign, by);
}

void
whatif_text(const struct proj_opt *o, const struct whatif *w, struct fal_buf *out)
{
	put_head(o, w, out);
	put_rows(w, out);
	put_cautions(w, out);
	for (size_t i = 0; i < w->changes; i++)
		put_change(&w->change[i], out);
}

/* A number of an object. */
struct field {
	const char *key;
	double value;
	int decimals;
};

static void
put_fields(struct fal_buf *out, const struct field *f, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fal_json_member_fixed(out, f[i].key, f[i].value, f[i].decimals);
}

static void
put_json_row(struct fal_buf *out, const struct whatif_row *r)
{
	const struct fal_play *p = &r->play;
	const struct field field[] = {
		{ "epoch_s", r->epoch_s, 6 },
		{ "clock_s", p->seconds / p->clocks, 6 },
		{ "compute", p->compute, 4 },
		{ "stale", p->stale_updates, 3 },
		{ "samples", p->samples, 0 },
		{ "dropped", p->dropped, 0 },
		{ "twice", p->twice, 0 },
		{ "moved", p->moved, 0 },
		{ "cloned", p->cloned, 0 },
		{ "load", p->load, 4 },
		{ "bytes_s", p->bytes / p->seconds, 0 },
	};
	fal_json_open(out, '{');
	fal_json_member_str(out, "scheme", (const char *)r->name.p);
	fal_json_member_bool(out, "another_model", r->other);
	if (r->warning[0] != '\0')
		fal_json_member_str(out, "warning", r->warning);
	put_fields(out, field, r->ok ? sizeof(field) / sizeof(field[0]) : 0);
	fal_json_close(out, '}');
}

static void
put_json_change(struct fal_buf *out, const struct whatif_change *c)
{
	static const char *const kind[] = { "add", "remove", "size" };
	fal_json_open(out, '{');
	fal_json_member_str(out, "kind", kind[c->kind]);
	fal_json_member_str(out, "what", c->what);
	fal_json_member_fixed(out, "by_s", c->by_s, 6);
	if (c->kind == WHATIF_SIZE)
		fal_json_member_bool(out, "another_model", c->other);
	fal_json_close(out, '}');
}

void
whatif_json(const struct whatif *w, struct fal_buf *out)
{
	const struct fal_cost *cost = &w->cost;
	const struct fal_fit_run *run = &w->job->run;
	const struct field field[] = {
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
	put_fields(out, field, sizeof(field) / sizeof(field[0]));
	fal_json_key(out, "schemes");
	fal_json_open(out, '[');
	for (size_t i = 0; i < w->rows; i++)
		put_json_row(out, &w->row[i]);
	fal_json_close(out, ']');
	fal_json_key(out, "changes");
	fal_json_open(out, '[');
	for (size_t i = 0; i < w->changes; i++)
		put_json_change(out, &w->change[i]);
	fal_json_close(out, ']');
	fal_json_close(out, '}');
	fal_put_fmt(out, "\n");
}
