/* Puts the report as text and as JSON. */
#include "proj.h"

#include "base/err.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/progress.h"
#include "cli/table.h"

#include <math.h>

static const char *const wait_names[FAL_REPORT_WAITS] = {
	[FAL_REPORT_OTHERS] = "others",
	[FAL_REPORT_COORDINATOR] = "coordinator",
	[FAL_REPORT_IDLE] = "work",
	[FAL_REPORT_LATENCY] = "latency",
};

/* The table gives the reason of a worker's waiting from this share of the worker's time
 * on. */
#define WAITS 0.01
/* The table leaves out smaller shares of the clock. */
#define SHOWN 0.0005

enum { NAME_LEAST = 24 }; /* characters of a name on a narrow terminal */

static void
report_put_table(struct fal_buf *out, struct fal_table *t)
{
	t->width = fal_cli_width(stdout);
	t->shorten = NAME_LEAST;
	fal_table_text(t, out);
}

static void
table_add_ms(struct fal_table *t, double seconds)
{
	fal_table_number(t, 1e3 * seconds, 1);
}

static void
report_put_times(struct fal_buf *out, const struct fal_report *r)
{
	struct fal_table t = { .columns = 13,
			       .drops = "LOST CLONED FINISH OUT IN TASKS PUSH PULL LAG" };
	fal_table_row(&t, "WORKER\tCOMPUTE\tPUSH\tPULL\tWAIT\tFOR\tFINISH\tLAG\tTASKS\t"
			  "IN\tOUT\tCLONED\tLOST");
	for (size_t i = 0; i < r->workers; i++) {
		const struct fal_report_worker *w = &r->worker[i];
		fal_table_add(&t, "%s", w->shown);
		table_add_ms(&t, w->compute);
		table_add_ms(&t, w->push);
		table_add_ms(&t, w->pull);
		table_add_ms(&t, w->wait);
		/* The reason for most of the waiting, if the worker waits for long. */
		int most = 0;
		for (int k = 1; k < FAL_REPORT_WAITS; k++)
			if (w->waits[k] > w->waits[most])
				most = k;
		const double all = w->compute + w->push + w->pull + w->wait;
		fal_table_add(&t, "%s",
			      w->wait < WAITS * all || !(w->wait > 0) ? "-"
			      : r->above != NULL && most == FAL_REPORT_COORDINATOR
				      ? "above"
				      : wait_names[most]);
		table_add_ms(&t, w->finish);
		table_add_ms(&t, w->lag);
		fal_table_row(&t, "%ju\t%ju\t%ju\t%ju\t%ju", w->counts.tasks,
			      w->counts.in, w->counts.out, w->counts.cloned,
			      w->counts.lost);
	}
	fal_put_fmt(out, "\nms of a %s:\n",
		    r->shared || r->above != NULL ? "clock" : "round of its own");
	report_put_table(out, &t);
}

static void
report_put_parts(struct fal_buf *out, const struct fal_report *r)
{
	struct fal_table t = { .columns = 3 };
	fal_table_row(&t, "PART\tMS\t%%");
	for (int i = 0; i < FAL_REPORT_PARTS; i++) {
		const bool is_always_shown = i == FAL_REPORT_IDEAL ||
					     i == FAL_REPORT_GRANULARITY ||
					     i == FAL_REPORT_SMALL_TASKS;
		if (isnan(r->part[i]) ||
		    (!is_always_shown && r->part[i] < SHOWN * r->clock))
			continue;
		fal_table_add(&t, "%s", fal_report_part_name((enum fal_report_part)i));
		table_add_ms(&t, r->part[i]);
		fal_table_add(&t, "%.1f", 100 * r->part[i] / r->clock);
	}
	fal_put_fmt(out, "\nclock: %.1f ms", 1e3 * r->clock);
	if (!isnan(r->clock_median))
		fal_put_fmt(out, ", median %.1f, 95 %% within %.1f",
			    1e3 * r->clock_median, 1e3 * r->clock_p95);
	fal_put_u8(out, '\n');
	report_put_table(out, &t);
}

void
report_text(struct fal_buf *out, const struct fal_report *r)
{
	struct fal_diag head;
	fal_diag_set(&head, 0, "job: %.*s, %.40s%s: %.0f clock%s in %.1f s",
		     (int)fal_text_cut(r->name, 40), r->name, r->scheme,
		     r->done ? ", done" : "", r->clocks,
		     fal_text_plural((uint64_t)llround(r->clocks)), r->seconds);
	fal_put_fmt(out, "%s", head.text);
	if (r->above != NULL)
		fal_put_fmt(out, ", a group of %.*s", (int)fal_text_cut(r->above, 40),
			    r->above);
	fal_put_u8(out, '\n');
	struct fal_table t = { .columns = 10,
			       .drops = "P10 P90 LANES CLOCKS% HOLDS SAMPLES/S CAUSE" };
	fal_table_row(&t, "WORKER\tCLASS\tHOLDS\tCLOCKS%%\tCAUSE\tSLOWER\tLANES\t"
			  "SAMPLES/S\tP10\tP90");
	for (size_t i = 0; i < r->workers; i++) {
		const struct fal_report_worker *w = &r->worker[i];
		fal_table_row(&t, "%s\t%s\t%s", w->shown,
			      w->row->suspicion.holds ? "suspect"
						      : fal_class_name(w->class),
			      !(w->in_class > 0) ? "-" : /* the class held in no clock */
				      w->persistent ? "persistent"
						    : "transient");
		fal_table_number(&t, w->in_class > 0 ? 100 * w->in_class : (double)NAN,
				 0);
		fal_table_add(&t, "%s", fal_cause_name(w->cause));
		fal_table_number(&t, w->slower, 2);
		if (w->speeds == 0)
			fal_table_row(&t, "%u\t-\t-\t-", w->lanes);
		/* A row for each number of lanes that the worker ran: */
		for (size_t k = 0; k < w->speeds; k++) {
			const struct fal_report_speed *s = &w->speed[k];
			if (k > 0)
				fal_table_row(&t, "\t\t\t\t\t");
			fal_table_row(&t, "%u\t%.1f\t%.1f\t%.1f", s->lanes, s->median,
				      s->p10, s->p90);
		}
	}
	report_put_table(out, &t);
	report_put_times(out, r);
	if (r->clock > 0 && r->above == NULL)
		report_put_parts(out, r);
	fal_put_u8(out, '\n');
	if (!(r->clocks > 0))
		fal_put_fmt(out, "no clock counts yet: a session's first clock includes "
				 "other waiting, as do the clocks around a hold or a "
				 "change of policy\n");
	for (size_t i = 0; i < r->findings; i++)
		fal_put_fmt(out, "%s\n", r->finding[i].text);
	for (size_t i = 0; i < r->workers; i++)
		if (r->worker[i].row->falls.n > 1)
			fal_put_fmt(out, "%s fell %ju times, %.0f s of work lost\n",
				    r->worker[i].shown, r->worker[i].row->falls.n,
				    r->worker[i].row->falls.seconds);
}

static void
report_json_worker(struct fal_buf *out, const struct fal_report_worker *w)
{
	fal_json_open(out, '{');
	fal_json_member_str(out, "worker", w->row->name);
	if (w->row->members > 0)
		fal_json_member_u64(out, "members", w->row->members);
	fal_json_member_bool(out, "left", w->row->left);
	fal_json_member_bool(out, "suspect", w->row->suspicion.holds);
	fal_json_member_u64(out, "falls", w->row->falls.n);
	fal_json_member_fixed(out, "fell_s", w->row->falls.seconds, 3);
	fal_json_member_str(out, "class", fal_class_name(w->class));
	fal_json_member_str(out, "cause", fal_cause_name(w->cause));
	fal_json_member_bool(out, "persistent", w->persistent);
	fal_json_member_fixed(out, "in_class", w->in_class, 4);
	fal_json_member_str(out, "now", fal_class_name(w->now));
	fal_json_member_u64(out, "run", w->run);
	fal_json_member_fixed(out, "slower", w->slower, 4);
	fal_json_member_u64(out, "clocks", w->clocks);
	fal_json_member_u64(out, "lanes", w->lanes);
	fal_json_member_u64(out, "lanes_max", w->row->lanes_max);
	fal_json_member_u64(out, "cores", w->row->cores);
	fal_json_member_open(out, "speed", '[');
	for (size_t i = 0; i < w->speeds; i++) {
		const struct fal_report_speed *s = &w->speed[i];
		fal_json_open(out, '{');
		fal_json_member_u64(out, "lanes", s->lanes);
		fal_json_member_u64(out, "clocks", s->clocks);
		fal_json_member_fixed(out, "median", s->median, 3);
		fal_json_member_fixed(out, "p10", s->p10, 3);
		fal_json_member_fixed(out, "p90", s->p90, 3);
		fal_json_close(out, '}');
	}
	fal_json_close(out, ']');
	fal_json_member_fixed(out, "compute", w->compute, 6);
	fal_json_member_fixed(out, "push", w->push, 6);
	fal_json_member_fixed(out, "pull", w->pull, 6);
	fal_json_member_fixed(out, "wait", w->wait, 6);
	fal_json_member_open(out, "waits", '{');
	for (int i = 0; i < FAL_REPORT_WAITS; i++)
		fal_json_member_fixed(out, wait_names[i], w->waits[i], 6);
	fal_json_close(out, '}');
	fal_json_member_fixed(out, "projected", w->projected, 6);
	fal_json_member_fixed(out, "finish", w->finish, 6);
	fal_json_member_fixed(out, "lag", w->lag, 6);
	fal_json_member_u64(out, "tasks", w->counts.tasks);
	fal_json_member_u64(out, "in", w->counts.in);
	fal_json_member_u64(out, "out", w->counts.out);
	fal_json_member_u64(out, "cloned", w->counts.cloned);
	fal_json_member_u64(out, "lost", w->counts.lost);
	fal_json_member_u64(out, "dropped", w->dropped);
	fal_json_member_fixed(out, "stale", w->stale, 3);
	fal_json_member_fixed(out, "idle", w->idle, 4);
	fal_json_member_fixed(out, "fixed", w->row->fixed, 4);
	fal_json_member_fixed(out, "rate", w->rate, 0);
	fal_json_member_fixed(out, "fewer_bits", w->fewer_bits, 0);
	fal_json_close(out, '}');
}

void
report_json(struct fal_buf *out, const struct fal_report *r)
{
	fal_json_open(out, '{');
	fal_json_member_str(out, "job", r->name);
	fal_json_member_str(out, "scheme", r->scheme);
	fal_json_member_bool(out, "done", r->done);
	fal_json_member_fixed(out, "seconds", r->seconds, 6);
	if (r->above != NULL)
		fal_json_member_str(out, "above", r->above);
	fal_json_member_fixed(out, "clocks", r->clocks, 2);
	fal_json_member_open(out, "clock", '{');
	fal_json_member_fixed(out, "mean", r->clocks > 0 ? r->clock : (double)NAN, 6);
	fal_json_member_fixed(out, "median", r->clock_median, 6);
	fal_json_member_fixed(out, "p95", r->clock_p95, 6);
	for (int i = 0; i < FAL_REPORT_PARTS; i++)
		fal_json_member_fixed(out, fal_report_part_name((enum fal_report_part)i),
				      r->clocks > 0 ? r->part[i] : (double)NAN, 6);
	fal_json_close(out, '}');
	fal_json_member_open(out, "workers", '[');
	for (size_t i = 0; i < r->workers; i++)
		report_json_worker(out, &r->worker[i]);
	fal_json_close(out, ']');
	fal_json_member_open(out, "findings", '[');
	for (size_t i = 0; i < r->findings; i++) {
		const struct fal_report_finding *f = &r->finding[i];
		fal_json_open(out, '{');
		fal_json_member_str(out, "kind", f->kind);
		if (f->worker != NULL) {
			fal_json_member_str(out, "worker", f->worker->row->name);
			fal_json_member_u64(out, "workers", f->workers);
		}
		fal_json_member_fixed(out, "share", f->share, 4);
		fal_json_member_str(out, "text", f->text);
		fal_json_close(out, '}');
	}
	fal_json_close(out, ']');
	fal_json_close(out, '}');
	fal_put_u8(out, '\n');
}
