/* The verdict of the audit, and the history. */
#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "stat.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* How far it goes: in clocks, or that these are another's. */
static void
put_extent(struct fal_buf *out, const struct fal_audit_verdict *v)
{
	char a[32];
	char text[128];
	if (v->above[0] != '\0') {
		fal_put_fmt(out, "group of %s, ",
			    fal_text_plain(text, sizeof(text), v->above));
		return;
	}
	fal_put_fmt(out, "%s", fal_text_group(v->clocks, a));
	if (!v->finished)
		fal_put_fmt(out, " of %s", fal_text_group(v->of_clocks, a));
	fal_put_fmt(out, " clock%s, ",
		    fal_text_s(v->finished ? v->clocks : v->of_clocks));
}

/* Why nothing can be said. */
static void
put_cannot(struct fal_buf *out, const struct fal_audit_verdict *v)
{
	char a[32], b[32];
	if (v->missing_lines == 0) {
		fal_put_fmt(out,
			    "audit: cannot tell: the trace has no end: %s of %s clock%s "
			    "(--partial judges these)\n",
			    fal_text_group(v->clocks, a), fal_text_group(v->of_clocks, b),
			    fal_text_s(v->of_clocks));
		return;
	}
	fal_put_fmt(out, "audit: cannot tell: %s line%s (%s byte%s) %s missing, ",
		    fal_text_group(v->missing_lines, a), fal_text_s(v->missing_lines),
		    fal_text_group(v->missing_bytes, b), fal_text_s(v->missing_bytes),
		    v->missing_lines == 1 ? "is" : "are");
	fal_put_fmt(out, "from clock %s on\n", fal_text_group(v->clocks, a));
}

/* What was done with tasks. */
static void
put_tasks(struct fal_buf *out, const struct fal_audit_verdict *v)
{
	char a[32], b[32];
	fal_put_fmt(out, "%s task%s, moved %s", fal_text_group(v->sums.tasks, a),
		    fal_text_s(v->sums.tasks), fal_text_group(v->sums.moved, b));
	fal_put_fmt(out, ", cloned %s", fal_text_group(v->sums.cloned, a));
	fal_put_fmt(out, ", filled %s, dropped %s", fal_text_group(v->sums.filled, a),
		    fal_text_group(v->sums.dropped, b));
	fal_put_fmt(out, ", %s sample%s dropped (stale), %s computed twice",
		    fal_text_group(v->samples_dropped, a), fal_text_s(v->samples_dropped),
		    fal_text_group(v->samples_twice, b));
	if (v->sums.skipped > 0)
		fal_put_fmt(out, ", skipped %s", fal_text_group(v->sums.skipped, a));
}

/* Of the test set, as other keys have said, too. */
static void
put_evals(struct fal_buf *out, const struct fal_evals *e)
{
	char a[32], b[32];
	if (e->tasks == 0)
		return;
	fal_put_fmt(out, ", evaluated %s test task%s", fal_text_group(e->tasks, a),
		    fal_text_s(e->tasks));
	fal_put_fmt(out, ", confirmed %s, unconfirmed %s", fal_text_group(e->twice, a),
		    fal_text_group(e->alone, b));
}

/* What nothing else in the trace bears out: no proof. */
enum { SAID = 6 };
struct said {
	const char *what;
	uint64_t n;
};

static void
get_said(const struct fal_audit_verdict *v, struct said out[static SAID])
{
	memcpy(out,
	       (struct said[SAID]){ { "charged", v->charges },
				    { "refused", v->refused },
				    { "unlike", v->unlike },
				    { "suspected", v->suspects },
				    { "nonfinite", v->nonfinite },
				    { "accepted", v->parts } },
	       SAID * sizeof(*out));
}

static void
put_said(struct fal_buf *out, const struct fal_audit_verdict *v)
{
	const char *before = "audit: not proven, only said by the coordinator: ";
	struct said said[SAID];
	char a[32];
	get_said(v, said);
	for (size_t i = 0; i < SAID; i++) {
		if (said[i].n == 0)
			continue;
		fal_put_fmt(out, "%s%s %s", before, said[i].what,
			    fal_text_group(said[i].n, a));
		before = ", ";
	}
	fal_put_fmt(out, before[0] == ',' ? "\n" : "");
}

void
stat_audit(struct fal_buf *out, const struct fal_audit_verdict *v)
{
	char a[32];
	if (v->findings > 0) {
		for (size_t i = 0; i < v->n_text; i++)
			fal_put_fmt(out, "audit: %s\n", v->text[i]);
		fal_put_fmt(out, "audit: failed: %s finding%s\n",
			    fal_text_group(v->findings, a), fal_text_s(v->findings));
		return;
	}
	if (!v->ok) {
		put_cannot(out, v);
		return;
	}
	fal_put_fmt(out, "audit: ok: ");
	put_extent(out, v);
	put_tasks(out, v);
	put_evals(out, &v->evals);
	fal_put_fmt(out, ", used at staleness: ");
	stat_stale(out, &v->stale);
	if (v->parts > 0) {
		char b[32], text[sizeof(v->part)];
		fal_put_fmt(out,
			    "\naudit: %s parts, each of other files: the last from "
			    "clock %s, other %s",
			    fal_text_group(v->parts + 1, a),
			    fal_text_group(v->part_clock, b),
			    fal_text_plain(text, sizeof(text), v->part));
	}
	fal_put_u8(out, '\n');
	put_said(out, v);
}

void
stat_stale(struct fal_buf *out, const struct fal_stale *s)
{
	const char *comma = "";
	for (size_t i = 0; i <= FAL_STALE_MAX; i++) {
		const uint64_t n = s->samples[FAL_STALE_UPDATES][i];
		if (n == 0)
			continue;
		fal_put_fmt(out, "%s%zu%s: %" PRIu64, comma, i,
			    i == FAL_STALE_MAX ? "+" : "", n);
		comma = ", ";
	}
	if (*comma == '\0')
		fal_put_u8(out, '-');
}

void
stat_stale_json(struct fal_buf *out, const struct fal_stale *s)
{
	fal_json_open(out, '{');
	for (size_t k = 0; k < FAL_STALE_KINDS; k++) {
		fal_json_member_open(out, fal_stale_name((enum fal_stale_kind)k), '{');
		for (size_t i = 0; i <= FAL_STALE_MAX; i++) {
			char value[24];
			if (s->samples[k][i] == 0)
				continue;
			snprintf(value, sizeof(value), "%zu", i);
			fal_json_member_u64(out, value, s->samples[k][i]);
		}
		fal_json_close(out, '}');
	}
	fal_json_close(out, '}');
}

static void
put_u64(struct fal_buf *out, const char *key, uint64_t v)
{
	fal_json_member_u64(out, key, v);
}

void
stat_audit_json(struct fal_buf *out, const struct fal_audit_verdict *v,
		const struct stat_recomputed *r)
{
	const bool ok = r == NULL || stat_recomputed_code(r) == FAL_EXIT_DONE;
	struct said said[SAID];
	get_said(v, said);
	fal_json_open(out, '{');
	if (v->above[0] != '\0')
		fal_json_member_str(out, "above", v->above);
	fal_json_member_bool(out, "ok", v->ok && ok);
	fal_json_member_bool(out, "finished", v->finished);
	fal_json_member_bool(out, "cut", v->cut);
	put_u64(out, "clocks", v->clocks);
	put_u64(out, "of_clocks", v->of_clocks);
	put_u64(out, "tasks", v->sums.tasks);
	put_u64(out, "moved", v->sums.moved);
	put_u64(out, "cloned", v->sums.cloned);
	put_u64(out, "filled", v->sums.filled);
	put_u64(out, "dropped", v->sums.dropped);
	put_u64(out, "skipped", v->sums.skipped);
	put_u64(out, "samples_dropped", v->samples_dropped);
	put_u64(out, "samples_duplicated", v->samples_twice);
	put_u64(out, "evaluated", v->evals.tasks);
	put_u64(out, "evaluated_twice", v->evals.twice);
	put_u64(out, "evaluated_alone", v->evals.alone);
	for (size_t i = 0; i < SAID; i++)
		put_u64(out, said[i].what, said[i].n);
	fal_json_key(out, "staleness");
	stat_stale_json(out, &v->stale);
	put_u64(out, "parts", v->parts + 1);
	put_u64(out, "missing_lines", v->missing_lines);
	put_u64(out, "missing_bytes", v->missing_bytes);
	fal_json_member_str(out, "chain", v->link);
	put_u64(out, "findings", v->findings);
	fal_json_member_open(out, "text", '[');
	for (size_t i = 0; i < v->n_text; i++)
		fal_json_str(out, v->text[i]);
	fal_json_close(out, ']');
	if (r != NULL) {
		fal_json_key(out, "recompute");
		stat_recomputed_json(out, r);
	}
	fal_json_close(out, '}');
	fal_put_u8(out, '\n');
}

/* Clocks that its samples make. */
static uint64_t
clocks_of(const struct fal_summary *s, const struct fal_summary_epoch *e)
{
	return (e->samples + s->job.batch - 1) / s->job.batch;
}

/* Clocks a second of the epoch; 0: too short to tell. */
static double
rate(const struct fal_summary *s, const struct fal_summary_epoch *e)
{
	double seconds = e->end - e->begin;
	return seconds > 0 ? (double)clocks_of(s, e) / seconds : 0;
}

/* The trace of a live job begins in mid-job: then the first row, which has only what
 * there is, cannot tell when its epoch began. */
static bool
has_begin(const struct fal_summary *s, size_t i)
{
	uint64_t updates = 0;
	for (size_t k = 0; i == 0 && k < s->n_epoch; k++)
		updates += s->epoch[k].updates;
	return i > 0 || updates == s->version;
}

static double
mean_loss(const struct fal_summary_epoch *e)
{
	return e->samples > 0 ? e->loss_sum / (double)e->samples : 0;
}

void
stat_put_table(struct fal_buf *out, struct fal_table *t)
{
	t->width = fal_cli_width(stdout);
	fal_table_text(t, out);
	fal_table_free(t);
}

void
stat_history(struct fal_buf *out, const struct fal_summary *s)
{
	static const char *const head[] = { "EPOCH", "LOSS", "ACCURACY", "SECONDS",
					    "CLOCKS/S" };
	struct fal_table t = { .columns = sizeof(head) / sizeof(head[0]) };
	for (size_t i = 0; i < t.columns; i++)
		fal_table_add(&t, "%s", head[i]);
	for (size_t i = 0; i < s->n_epoch; i++) {
		const struct fal_summary_epoch *e = &s->epoch[i];
		fal_table_add(&t, "%" PRIu64, e->epoch);
		if (isnan(mean_loss(e)))
			fal_table_add(&t, "-");
		else
			fal_table_add(&t, "%.5f", mean_loss(e));
		if (e->judged)
			fal_table_add(&t, "%.4f", e->accuracy);
		else
			fal_table_add(&t, "-");
		if (has_begin(s, i)) {
			fal_table_add(&t, "%.2f", e->end - e->begin);
			fal_table_add(&t, "%.2f", rate(s, e));
		} else {
			fal_table_add(&t, "-");
			fal_table_add(&t, "-");
		}
	}
	stat_put_table(out, &t);
}

void
stat_history_json(struct fal_buf *out, const struct fal_summary *s)
{
	for (size_t i = 0; i < s->n_epoch; i++) {
		const struct fal_summary_epoch *e = &s->epoch[i];
		fal_json_open(out, '{');
		put_u64(out, "epoch", e->epoch);
		put_u64(out, "clocks", clocks_of(s, e));
		put_u64(out, "updates", e->updates);
		put_u64(out, "samples", e->samples);
		fal_json_member_num(out, "loss", mean_loss(e));
		if (e->judged) {
			fal_json_member_num(out, "accuracy", e->accuracy);
		}
		if (has_begin(s, i)) {
			fal_json_member_fixed(out, "seconds", e->end - e->begin, 6);
			fal_json_member_fixed(out, "clocks_s", rate(s, e), 3);
		}
		fal_json_close(out, '}');
		fal_put_u8(out, '\n');
	}
}
