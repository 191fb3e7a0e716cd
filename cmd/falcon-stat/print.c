/* The output of falcon-stat, for people and as JSON: the table of a job, its history, the
 * verdict of the audit, the outcome of computing anew. */
#include "stat.h"

#include "base/err.h"
#include "base/json.h"
#include "base/json_load.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "crypto/keyring.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
	NAME_LEAST = 40 /* characters of a name on a narrow terminal */
};

/* A large number in groups of digits; the text lives to the end of the block. */
#define GROUPED(n) fal_text_thousands((n), (char[32]){ 0 })

/* ---- tables ---- */

void
stat_table_head(struct fal_table *t, const char *heads)
{
	for (size_t n; *heads != '\0'; heads += n + (heads[n] == ' ')) {
		n = strcspn(heads, " ");
		fal_table_add(t, "%.*s", (int)n, heads);
		t->columns++;
	}
}

static void
table_put(struct fal_buf *out, struct fal_table *t)
{
	t->width = fal_cli_width(stdout);
	fal_table_text(t, out);
}

/* Puts the number of samples used at each staleness in updates, as "0: 1234, 1: 567";
 * "-": none. */
static void
put_stale(struct fal_buf *out, const struct fal_stale *s)
{
	const char *comma = "";
	for (size_t i = 0; i <= FAL_STALE_MAX; i++) {
		const uint64_t n = s->samples[FAL_STALE_UPDATES][i];
		if (n == 0)
			continue;
		fal_put_fmt(out, "%s%zu%s: %ju", comma, i, i == FAL_STALE_MAX ? "+" : "",
			    n);
		comma = ", ";
	}
	if (*comma == '\0')
		fal_put_u8(out, '-');
}

static void
json_stale(struct fal_buf *out, const struct fal_stale *s)
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

/* ---- workers and totals ---- */

struct stat_rates
stat_worker_rates(const struct fal_summary_worker *w)
{
	const struct fal_summary_spent *at = &w->spent;
	double wall = at->compute + at->push + at->pull + at->wait;
	if (!(wall > 0))
		return (struct stat_rates){ 0 };
	return (struct stat_rates){
		.compute = at->compute / wall,
		.push = at->push / wall,
		.pull = at->pull / wall,
		.wait = at->wait / wall,
		.samples_s = w->samples / wall,
	};
}

static double
mean_stale(const struct fal_summary_worker *w)
{
	return w->load.clocks > 0 ? (double)w->stale.sum / (double)w->load.clocks : 0;
}

const char *
stat_worker_cause(const struct fal_summary_worker *w)
{
	const bool off = w->left || w->suspicion.holds || w->silent;
	return fal_cause_name(off ? FAL_CAUSE_NONE : w->verdict.cause);
}

static void
put_workers(struct fal_buf *out, const struct fal_summary *s)
{
	/* Columns that not every job has. */
	bool stale = false, dropped = false, kernels = false;
	for (size_t i = 0; i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i], *first = s->worker;
		stale |= w->stale.max > 0;
		dropped |= w->dropped > 0;
		kernels |=
			w->kernels != NULL && (!s->identical || first->kernels == NULL ||
					       strcmp(w->kernels, first->kernels) != 0);
	}
	struct fal_table t = {
		.shorten = NAME_LEAST,
		.drops = "CLOCK PUSH% PULL% LANES SHARE OUT IN MAX COMPUTE% TASKS "
			 "DROPPED STALE WAIT% KERNELS CAUSE SAMPLES/S"
	};
	stat_table_head(
		&t, "WORKER CLASS CAUSE CLOCK LANES SHARE TASKS IN OUT COMPUTE% PUSH% "
		    "PULL% WAIT%");
	stat_table_head(&t, stale ? "STALE MAX" : "");
	stat_table_head(&t, dropped ? "DROPPED SAMPLES/S" : "SAMPLES/S");
	stat_table_head(&t, kernels ? "KERNELS" : "");
	for (size_t i = 0; i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i];
		const struct stat_rates r = stat_worker_rates(w);
		fal_table_row(&t, "%s\t%s\t%s\t%ju\t%ju\t%ju\t%ju\t%ju\t%ju",
			      PLAIN(w->name), fal_summary_class(w), stat_worker_cause(w),
			      w->own_rounds ? w->last_round : w->last_clock, w->lanes,
			      w->share, w->tasks.done, w->tasks.in, w->tasks.out);
		fal_table_row(&t, "%.1f\t%.1f\t%.1f\t%.1f", 100 * r.compute, 100 * r.push,
			      100 * r.pull, 100 * r.wait);
		if (stale)
			fal_table_row(&t, "%.2f\t%ju", mean_stale(w), w->stale.max);
		if (dropped)
			fal_table_add(&t, "%ju", w->dropped);
		fal_table_add(&t, "%.1f", r.samples_s);
		if (kernels)
			fal_table_add(&t, "%s",
				      PLAIN(w->kernels != NULL ? w->kernels : ""));
	}
	table_put(out, &t);
}

/* Puts a row for each group. */
static void
put_groups(struct fal_buf *out, const struct fal_summary *s)
{
	struct fal_table t = { .shorten = NAME_LEAST,
			       .drops = "CAUSE CLASS MB_DOWN LANES" };
	bool any = false;
	stat_table_head(&t, "GROUP CLASS CAUSE MEMBERS LANES SAMPLES/S MB_UP MB_DOWN");
	for (size_t i = 0; i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i];
		if (w->members == 0)
			continue;
		any = true;
		fal_table_row(&t, "%s\t%s\t%s\t%ju\t%ju\t%.1f\t%.2f\t%.2f",
			      PLAIN(w->name), fal_summary_class(w), stat_worker_cause(w),
			      w->members, w->lanes_max, stat_worker_rates(w).samples_s,
			      (double)w->bytes.up * 1e-6, (double)w->bytes.down * 1e-6);
	}
	if (any)
		table_put(out, &t);
	else
		fal_table_free(&t);
}

static void
put_numerics(struct fal_buf *out, const struct fal_summary *s)
{
	if (s->n_worker == 0)
		return;
	fal_put_fmt(out, "numerics: %s", s->identical ? "identical\n" : "differ:");
	for (size_t i = 0; !s->identical && i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i];
		if (!w->numerics.differs)
			continue;
		fal_put_fmt(out, " %s%s", PLAIN(w->name),
			    w->numerics.nondeterministic ? " (impure)" : "");
		if (w->numerics.skewed)
			fal_put_fmt(out, " (Falcon %s)", PLAIN(w->build));
	}
	if (!s->identical)
		fal_put_u8(out, '\n');
}

static bool
workers_share_key(const struct fal_summary_worker *a, const struct fal_summary_worker *b)
{
	return a->key != NULL && b->key != NULL &&
	       strcmp(a->key_fingerprint, b->key_fingerprint) == 0 &&
	       strcmp(a->key, b->key) == 0;
}

/* Puts a line for each key, with the names of its workers. */
static void
put_keys(struct fal_buf *out, const struct fal_summary *s)
{
	for (size_t i = 0; i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i];
		size_t first = 0;
		while (w->key != NULL && first < i &&
		       !workers_share_key(&s->worker[first], w))
			first++;
		if (w->key == NULL || first < i)
			continue;
		fal_put_fmt(out, "key %s", PLAIN(w->key));
		fal_put_fmt(out, " %s:", PLAIN(w->key_fingerprint));
		for (size_t k = i; k < s->n_worker; k++)
			if (workers_share_key(w, &s->worker[k]))
				fal_put_fmt(out, " %s", PLAIN(s->worker[k].name));
		fal_put_u8(out, '\n');
	}
}

static uint64_t
verify_unanswered(const struct fal_summary_verify *v)
{
	return v->asked - v->equal - v->unlike;
}

static void
json_verify(struct fal_buf *out, const struct fal_summary_verify *v)
{
	if (v->asked == 0 && v->who == NULL)
		return;
	fal_json_member_open(out, "verify", '{');
	fal_json_member_u64(out, "asked", v->asked);
	fal_json_member_u64(out, "equal", v->equal);
	fal_json_member_u64(out, "unlike", v->unlike);
	fal_json_member_u64(out, "unanswered", verify_unanswered(v));
	if (v->who != NULL) {
		fal_json_member_str(out, "workers", v->who);
		fal_json_member_u64(out, "clock", v->clock);
		fal_json_member_u64(out, "task", v->task);
	}
	fal_json_close(out, '}');
}

/* Puts the fate of the samples, if the trace has ledger lines. */
static void
put_samples(struct fal_buf *out, const struct fal_summary *s)
{
	if (s->above != NULL) {
		fal_put_fmt(out,
			    "version: %ju\nsamples: %ju given, %ju dropped, %ju computed "
			    "twice\n",
			    s->version, s->samples, s->dropped, s->duplicates);
		return;
	}
	if (s->ended_tasks == 0)
		return;
	fal_put_fmt(out, "updates: %ju", s->version);
	if (s->rate.updates > 0)
		fal_put_fmt(out, ", %.2f/s", s->rate.updates);
	fal_put_fmt(out, "\nsamples: %ju used, %ju dropped, %ju computed twice\n",
		    s->samples, s->dropped, s->duplicates);
	if (s->skipped > 0)
		fal_put_fmt(out, "skipped: %ju task%s without a finite gradient\n",
			    s->skipped, fal_text_plural(s->skipped));
	fal_put_fmt(out, "staleness: ");
	put_stale(out, &s->stale);
	fal_put_u8(out, '\n');
}

/* Puts the used part of the capacity, and the lateness of emulated machines; warns if the
 * measured speeds cannot be right. */
static void
put_capacity(struct fal_buf *out, const struct fal_summary *s)
{
	static const double most_late = 0.02; /* falcon-emulate(5) catches up with less */
	const double used = s->rate.capacity > 0 ? s->rate.samples / s->rate.capacity : 0;
	const double compute = s->spent.compute;
	const char *warning = ": more than there is, so do not believe the speeds";
	if (used > 0)
		fal_put_fmt(out, "capacity: %.1f samples/s, used %.1f %%%s\n",
			    s->rate.capacity, 100 * used,
			    used > 1 + most_late ? warning : "");
	if (compute > 0 && s->spent.late > most_late * compute)
		fal_put_fmt(out,
			    "emulation: %.1f %% late, so do not believe the speeds: "
			    "emulate fewer or slower machines, or give a lower rate\n",
			    100 * s->spent.late / compute);
}

/* Returns the clocks that a restart made the workers repeat. */
static uint64_t
repeated_clocks(const struct fal_summary_resumed *r)
{
	return r->until > r->clock ? r->until - r->clock : 0;
}

static void
put_loss(struct fal_buf *out, const char *kind, double loss)
{
	fal_put_fmt(out, isnan(loss) ? "%s loss: -\n" : "%s loss: %.5f\n", kind, loss);
}

void
stat_metrics(struct fal_buf *out, const struct fal_summary *s)
{
	for (uint32_t i = 0; i < s->metric_names.n; i++) {
		fal_put_fmt(out, "%s: training ", s->metric_names.v[i]);
		fal_metric_put_text(out, &s->metrics, i);
		if (s->eval.exists)
			fal_put_fmt(out, ", test ");
		if (s->eval.exists)
			fal_metric_put_text(out, &s->eval.metrics, i);
		fal_put_u8(out, '\n');
	}
}

static void
put_totals(struct fal_buf *out, const struct fal_summary *s)
{
	const struct fal_summary_resumed *r = &s->resumed;
	const struct fal_summary_verify *v = &s->verify;
	char why[512];
	fal_put_fmt(out, "clocks: %ju of %ju", s->clocks, s->job.clocks);
	if (s->rate.clocks > 0)
		fal_put_fmt(out, ", %.2f/s, %.1f samples/s", s->rate.clocks,
			    s->rate.samples);
	if (s->stalled > 0)
		fal_put_fmt(out, ", stalled for %.1f s", s->stalled);
	fal_put_u8(out, '\n');
	if (r->incarnation > 0)
		fal_put_fmt(out,
			    "incarnation: %ju, since %.1f s, resumed at clock %ju, %ju "
			    "clock%s done again\n",
			    r->incarnation, r->t, r->clock, repeated_clocks(r),
			    fal_text_plural(repeated_clocks(r)));
	if (s->n_epoch > 0)
		put_loss(out, "training", s->loss);
	if (s->eval.exists) {
		put_loss(out, "test", s->eval.loss);
		fal_put_fmt(out, "accuracy: %.4f after epoch %ju\n", s->eval.accuracy,
			    s->eval.epoch);
	}
	stat_metrics(out, s);
	for (size_t i = 0; i < s->n_worker; i++)
		if (s->worker[i].suspicion.holds)
			fal_put_fmt(out, "suspect %s: for %.1f s, %s\n",
				    PLAIN(s->worker[i].name),
				    s->seconds - s->worker[i].suspicion.since,
				    PLAIN(s->worker[i].suspicion.why));
	for (size_t i = 0; i < s->n_worker; i++)
		if (s->worker[i].falls.n > 1)
			fal_put_fmt(out, "%s fell %ju times, %.0f s of work lost\n",
				    PLAIN(s->worker[i].name), s->worker[i].falls.n,
				    s->worker[i].falls.seconds);
	if (v->asked > 0)
		fal_put_fmt(out,
			    "verify: %ju asked, %ju equal, %ju unlike, %ju unanswered\n",
			    v->asked, v->equal, v->unlike, verify_unanswered(v));
	if (v->who != NULL)
		fal_put_fmt(out, "unlike: %s: task %ju of clock %ju\n",
			    fal_text_plain(why, sizeof(why), v->who), v->task, v->clock);
	if (s->trainer != NULL)
		fal_put_fmt(out, "%s\n", fal_text_plain(why, sizeof(why), s->trainer));
	put_numerics(out, s);
	put_keys(out, s);
	put_capacity(out, s);
	put_samples(out, s);
}

/* ---- shards ---- */

static void
put_shards(struct fal_buf *out, const struct fal_shard_rows *r)
{
	struct fal_table t = { .drops =
				       "CAUSE MB_IN SERVICE QUEUE BY MB_OUT AT TOOK_MS" };
	if (r->n == 0)
		return;
	stat_table_head(&t, "SHARD CLASS CAUSE BY AT BLOCKS MB_IN MB_OUT SERVICE QUEUE "
			    "TOOK_MS BLAME");
	for (uint32_t i = 0; i < r->n; i++) {
		const struct fal_shard_row *w = &r->v[i];
		fal_table_row(&t, "%u\t%s\t%s\t%s\t%s\t%ju", i + 1,
			      fal_class_name(w->class), w->cause,
			      w->name[0] != '\0' ? PLAIN(w->name) : "coordinator",
			      w->address[0] != '\0' ? PLAIN(w->address) : "-", w->blocks);
		fal_table_row(&t, "%.2f\t%.2f\t%.2f\t%.2f", (double)w->rx * 1e-6,
			      (double)w->tx * 1e-6, w->service, w->queue);
		fal_table_number(&t, 1e3 * w->took, 1);
		fal_table_add(&t, "%.2f", w->blame);
	}
	table_put(out, &t);
}

static void
json_moves(struct fal_buf *out, const struct fal_trace_moves *m)
{
	fal_json_member_u64(out, "moves", m->moves);
	if (m->moves == 0)
		return;
	fal_json_member_open(out, "last_move", '{');
	fal_json_member_str(out, "by", m->by);
	fal_json_member_fixed(out, "at", m->t, 6);
	fal_json_member_fixed(out, "took", m->took, 6);
	fal_json_member_u64(out, "blocks", m->blocks);
	fal_json_close(out, '}');
}

static void
json_shards(struct fal_buf *out, const struct fal_shard_rows *r)
{
	fal_json_member_open(out, "shards", '[');
	for (uint32_t i = 0; i < r->n; i++) {
		const struct fal_shard_row *w = &r->v[i];
		fal_json_open(out, '{');
		fal_json_member_u64(out, "shard", (uint64_t)i + 1);
		if (w->name[0] != '\0') {
			fal_json_member_str(out, "by", w->name);
			fal_json_member_str(out, "address", w->address);
		}
		fal_json_member_str(out, "class", fal_class_name(w->class));
		fal_json_member_str(out, "cause", w->cause);
		fal_json_member_u64(out, "blocks", w->blocks);
		fal_json_member_u64(out, "rx", w->rx);
		fal_json_member_u64(out, "tx", w->tx);
		fal_json_member_fixed(out, "service", w->service, 6);
		fal_json_member_fixed(out, "queue", w->queue, 6);
		fal_json_member_fixed(out, "took", w->took, 6);
		fal_json_member_fixed(out, "blame", w->blame, 6);
		fal_json_close(out, '}');
	}
	fal_json_close(out, ']');
}

/* ---- the job ---- */

void
stat_table(struct fal_buf *out, const struct fal_summary *s)
{
	fal_put_fmt(out, "job: %s, %s%s", PLAIN(s->name), PLAIN(s->scheme),
		    s->done             ? ", done"
		    : s->failed != NULL ? ", failed"
					: "");
	if (s->above != NULL)
		fal_put_fmt(out, ", a group of %s", PLAIN(s->above));
	fal_put_u8(out, '\n');
	put_workers(out, s);
	put_groups(out, s);
	put_shards(out, &s->shards);
	/* "last move: by psld:place at 81.2 s: 12 blocks in 0.30 s: shard 1 -4, …; 3 in
	 * all" */
	const struct fal_trace_moves *m = &s->moves;
	if (m->moves > 0) {
		const char *sign = ":";
		fal_put_fmt(out, "last move: by %s at %.1f s: %ju block%s", PLAIN(m->by),
			    m->t, m->blocks, fal_text_plural(m->blocks));
		if (!isnan(m->took))
			fal_put_fmt(out, " in %.2f s", m->took);
		for (uint32_t i = 0; i < FAL_TRACE_SHARDS_MAX; i++) {
			if (m->more[i] == 0)
				continue;
			fal_put_fmt(out, "%s shard %u %+lld", sign, i + 1,
				    (long long)m->more[i]);
			sign = ",";
		}
		fal_put_fmt(out, "; %ju in all\n", m->moves);
	}
	put_totals(out, s);
}

static void
json_spent(struct fal_buf *out, const struct fal_summary_spent *at)
{
	fal_json_member_open(out, "spent", '{');
	fal_json_member_fixed(out, "compute", at->compute, 6);
	fal_json_member_fixed(out, "push", at->push, 6);
	fal_json_member_fixed(out, "pull", at->pull, 6);
	fal_json_member_fixed(out, "wait", at->wait, 6);
	fal_json_member_fixed(out, "late", at->late, 6);
	fal_json_close(out, '}');
}

static void
json_worker(struct fal_buf *out, const struct fal_summary_worker *w)
{
	const struct stat_rates r = stat_worker_rates(w);
	fal_json_open(out, '{');
	fal_json_member_str(out, "worker", w->name);
	if (w->key != NULL) {
		fal_json_member_str(out, "key", w->key);
		fal_json_member_str(out, "key_fingerprint", w->key_fingerprint);
	}
	fal_json_member_str(out, "version", w->build);
	fal_json_member_str(out, "kernels", w->kernels);
	fal_json_member_str(out, "class", fal_summary_class(w));
	fal_json_member_str(out, "cause", stat_worker_cause(w));
	fal_json_member_u64(out, "clock", w->last_clock);
	if (w->own_rounds)
		fal_json_member_u64(out, "round", w->last_round);
	fal_json_member_u64(out, "lanes", w->lanes);
	fal_json_member_u64(out, "share", w->share);
	fal_json_member_u64(out, "tasks", w->tasks.done);
	fal_json_member_u64(out, "in", w->tasks.in);
	fal_json_member_u64(out, "out", w->tasks.out);
	fal_json_member_u64(out, "cloned", w->tasks.cloned);
	fal_json_member_u64(out, "lost", w->tasks.lost);
	fal_json_member_u64(out, "dropped", w->dropped);
	fal_json_member_fixed(out, "compute", r.compute, 4);
	fal_json_member_fixed(out, "push", r.push, 4);
	fal_json_member_fixed(out, "pull", r.pull, 4);
	fal_json_member_fixed(out, "wait", r.wait, 4);
	json_spent(out, &w->spent);
	if (w->members > 0)
		fal_json_member_u64(out, "members", w->members);
	fal_json_member_u64(out, "bytes_up", w->bytes.up);
	fal_json_member_u64(out, "bytes_down", w->bytes.down);
	fal_json_member_fixed(out, "stale", mean_stale(w), 3);
	fal_json_member_u64(out, "stale_max", w->stale.max);
	fal_json_member_fixed(out, "samples", w->samples, 0);
	fal_json_member_fixed(out, "samples_s", r.samples_s, 1);
	fal_json_member_fixed(out, "projected", w->verdict.projected, 6);
	fal_json_member_bool(out, "left", w->left);
	fal_json_member_u64(out, "falls", w->falls.n);
	fal_json_member_fixed(out, "fell_seconds", w->falls.seconds, 3);
	fal_json_member_bool(out, "suspect", w->suspicion.holds);
	fal_json_member_bool(out, "silent", w->silent);
	fal_json_close(out, '}');
}

/* Lists the nondeterministic workers, or all workers whose numerics differ. */
static void
json_names(struct fal_buf *out, const char *key, const struct fal_summary *s,
	   bool nondeterministic)
{
	fal_json_member_open(out, key, '[');
	for (size_t i = 0; i < s->n_worker; i++)
		if (nondeterministic ? s->worker[i].numerics.nondeterministic
				     : s->worker[i].numerics.differs)
			fal_json_str(out, s->worker[i].name);
	fal_json_close(out, ']');
}

void
stat_table_json(struct fal_buf *out, const struct fal_summary *s)
{
	const struct fal_summary_resumed *r = &s->resumed;
	fal_json_open(out, '{');
	fal_json_member_str(out, "job", s->name);
	fal_json_member_str(out, "scheme", s->scheme);
	fal_json_member_str(out, "above", s->above);
	fal_json_member_bool(out, "done", s->done);
	fal_json_member_str(out, "failed", s->failed);
	fal_json_member_open(out, "workers", '[');
	for (size_t i = 0; i < s->n_worker; i++)
		json_worker(out, &s->worker[i]);
	fal_json_close(out, ']');
	if (s->shards.n > 0) {
		json_shards(out, &s->shards);
		json_moves(out, &s->moves);
	}
	fal_json_member_u64(out, "clocks", s->clocks);
	fal_json_member_u64(out, "of_clocks", s->job.clocks);
	fal_json_member_fixed(out, "clocks_s", s->rate.clocks, 3);
	fal_json_member_fixed(out, "samples_s", s->rate.samples, 1);
	fal_json_member_fixed(out, "stalled", s->stalled, 1);
	fal_json_member_u64(out, "incarnation", r->incarnation);
	if (r->incarnation > 0) {
		fal_json_member_open(out, "resumed", '{');
		fal_json_member_fixed(out, "t", r->t, 6);
		fal_json_member_u64(out, "clock", r->clock);
		fal_json_member_u64(out, "again", repeated_clocks(r));
		fal_json_close(out, '}');
	}
	json_verify(out, &s->verify);
	fal_json_member_str(out, "trainer", s->trainer);
	fal_json_member_fixed(out, "seconds", s->seconds, 6);
	fal_json_member_u64(out, "updates", s->version);
	fal_json_member_fixed(out, "updates_s", s->rate.updates, 3);
	fal_json_member_u64(out, "samples", s->samples);
	fal_json_member_u64(out, "dropped", s->dropped);
	fal_json_member_u64(out, "duplicated", s->duplicates);
	fal_json_member_u64(out, "moved", s->moved);
	fal_json_member_u64(out, "cloned", s->cloned);
	fal_json_member_u64(out, "skipped", s->skipped);
	json_spent(out, &s->spent);
	fal_json_key(out, "staleness");
	json_stale(out, &s->stale);
	if (s->n_epoch > 0)
		fal_json_member_num(out, "training_loss", s->loss);
	fal_metrics_put_json(out, &s->metric_names, &s->metrics,
			     s->eval.exists ? &s->eval.metrics : NULL);
	if (s->eval.exists) {
		fal_json_member_num(out, "test_loss", s->eval.loss);
		fal_json_member_num(out, "accuracy", s->eval.accuracy);
		fal_json_member_u64(out, "epoch", s->eval.epoch);
	}
	fal_json_member_str(out, "numerics", s->identical ? "identical" : "differ");
	json_names(out, "differ", s, false);
	json_names(out, "impure", s, true);
	if (s->rate.capacity > 0 && s->rate.samples > 0) {
		fal_json_member_fixed(out, "capacity", s->rate.capacity, 1);
		fal_json_member_fixed(out, "used", s->rate.samples / s->rate.capacity, 4);
	}
	fal_json_close(out, '}');
	fal_put_u8(out, '\n');
}

/* ---- metrics ---- */

/* Puts a name as the value of a label. */
static void
put_label(struct fal_buf *out, const char *label, const char *name)
{
	fal_put_fmt(out, "%s=\"", label);
	for (const char *c = PLAIN(name); *c != '\0'; c++)
		fal_put_fmt(out, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
	fal_put_u8(out, '"');
}

/* Puts the gauge of a JSON member that has one: numbers, booleans, and class, as a label
 * of the value 1.  The member is of the job `o`, or of `workers`, whose rows are those of
 * `s`; NULL: none. */
static void
put_gauge(struct fal_buf *out, const char *key, const struct fal_summary *s,
	  const json_t *o, const json_t *workers)
{
	const char *of = workers != NULL ? "_worker" : "";
	const size_t n = strlen(key),
		     rate = n > 2 && strcmp(key + n - 2, "_s") == 0 ? 2 : 0;
	char name[64];
	snprintf(name, sizeof(name), "falcon%s_%.*s%s", of, (int)(n - rate), key,
		 rate > 0 ? "_per_second" : "");
	fal_put_fmt(out, "# TYPE %s gauge\n# HELP %s %s of falcon-stat --json.\n", name,
		    name, key);
	for (size_t i = 0; i < (workers != NULL ? json_array_size(workers) : 1); i++) {
		const json_t *w = json_array_get(workers, i);
		const json_t *v = json_object_get(w != NULL ? w : o, key);
		size_t row = i; /* a name has one series: its newest row's */
		if (w != NULL)
			(void)fal_names_get(&s->names, s->worker[i].name, &row);
		if (json_is_null(v) || v == NULL || row != i)
			continue;
		fal_put_fmt(out, "%s{", name);
		put_label(out, "run", s->name);
		if (w != NULL)
			fal_put_u8(out, ',');
		if (w != NULL)
			put_label(out, "worker", s->worker[i].name);
		if (json_is_string(v))
			fal_put_fmt(out, ",class=\"%s\"", json_string_value(v));
		fal_put_fmt(out, "} %.15g\n",
			    json_is_number(v) ? json_number_value(v) : !json_is_false(v));
	}
}

void
stat_openmetrics(struct fal_buf *out, const struct fal_summary *s)
{
	struct fal_buf text = { 0 };
	json_error_t why;
	const char *key, *metric;
	json_t *v, *of;
	stat_table_json(&text, s);
	json_t *o = fal_json_load(text.p, text.n, 0, &why);
	json_t *workers = json_object_get(o, "workers");
	/* The job's own metrics: the gauge falcon_metric. */
	json_t *metrics = json_object_get(o, "metrics");
	if (metrics != NULL)
		fal_put_fmt(out, "# TYPE falcon_metric gauge\n"
				 "# HELP falcon_metric metrics of falcon-stat --json.\n");
	json_object_foreach(metrics, metric, of)
	{
		json_object_foreach(of, key, v)
		{
			if (!json_is_number(v))
				continue;
			fal_put_fmt(out, "falcon_metric{");
			put_label(out, "run", s->name);
			fal_put_fmt(out, ",metric=\"%s\",of=\"%s\"} %.15g\n", metric, key,
				    json_number_value(v));
		}
	}
	json_object_foreach(o, key, v) if (json_is_number(v) || json_is_boolean(v))
		put_gauge(out, key, s, o, NULL);
	json_object_foreach(json_array_get(workers, 0), key,
			    v) if (json_is_number(v) || json_is_boolean(v) ||
				   strcmp(key, "class") == 0)
		put_gauge(out, key, s, o, workers);
	fal_put_fmt(out, "# EOF\n");
	out->err = o == NULL ? FAL_ENOMEM : out->err;
	json_decref(o);
	fal_buf_free(&text);
}

/* ---- history ---- */

/* Returns the clocks of the epoch's samples. */
static uint64_t
epoch_clocks(const struct fal_summary *s, const struct fal_summary_epoch *e)
{
	return (e->samples + s->job.grid.batch - 1) / s->job.grid.batch;
}

/* Returns the epoch's clocks a second; 0: it has no duration. */
static double
epoch_rate(const struct fal_summary *s, const struct fal_summary_epoch *e)
{
	double seconds = e->end - e->begin;
	return seconds > 0 ? (double)epoch_clocks(s, e) / seconds : 0;
}

/* Returns whether the trace has the beginning of epoch i.  The trace of a live job may
 * begin in mid-job: then its first row is incomplete. */
static bool
epoch_has_begin(const struct fal_summary *s, size_t i)
{
	uint64_t updates = 0;
	for (size_t k = 0; i == 0 && k < s->n_epoch; k++)
		updates += s->epoch[k].updates;
	return i > 0 || updates == s->version;
}

static double
epoch_loss(const struct fal_summary_epoch *e)
{
	return e->samples > 0 ? e->loss_sum / (double)e->samples : 0;
}

void
stat_history(struct fal_buf *out, const struct fal_summary *s)
{
	struct fal_table t = { 0 };
	stat_table_head(&t, "EPOCH TRAINING_LOSS TEST_LOSS ACCURACY SECONDS CLOCKS/S");
	for (uint32_t k = 0; k < s->metric_names.n; k++) {
		fal_table_add(&t, "%s", s->metric_names.v[k]);
		fal_table_add(&t, "test_%s", s->metric_names.v[k]);
		t.columns += 2;
	}
	for (size_t i = 0; i < s->n_epoch; i++) {
		const struct fal_summary_epoch *e = &s->epoch[i];
		const bool begins = epoch_has_begin(s, i);
		fal_table_add(&t, "%ju", e->epoch);
		fal_table_number(&t, epoch_loss(e), 5);
		fal_table_number(&t, e->evaluated ? e->test_loss : (double)NAN, 5);
		fal_table_number(&t, e->evaluated ? e->accuracy : (double)NAN, 4);
		fal_table_number(&t, begins ? e->end - e->begin : (double)NAN, 2);
		fal_table_number(&t, begins ? epoch_rate(s, e) : (double)NAN, 2);
		for (uint32_t k = 0; k < s->metric_names.n; k++) {
			fal_table_number(&t, e->training.sum[k] / e->training.samples, 5);
			fal_table_number(&t, e->test.sum[k] / e->test.samples, 5);
		}
	}
	table_put(out, &t);
}

void
stat_history_json(struct fal_buf *out, const struct fal_summary *s)
{
	for (size_t i = 0; i < s->n_epoch; i++) {
		const struct fal_summary_epoch *e = &s->epoch[i];
		fal_json_open(out, '{');
		fal_json_member_u64(out, "epoch", e->epoch);
		fal_json_member_u64(out, "clocks", epoch_clocks(s, e));
		fal_json_member_u64(out, "updates", e->updates);
		fal_json_member_u64(out, "samples", e->samples);
		fal_json_member_num(out, "training_loss", epoch_loss(e));
		if (e->evaluated) {
			fal_json_member_num(out, "test_loss", e->test_loss);
			fal_json_member_num(out, "accuracy", e->accuracy);
		}
		fal_metrics_put_json(out, &s->metric_names, &e->training,
				     e->evaluated ? &e->test : NULL);
		if (epoch_has_begin(s, i)) {
			fal_json_member_fixed(out, "seconds", e->end - e->begin, 6);
			fal_json_member_fixed(out, "clocks_s", epoch_rate(s, e), 3);
		}
		fal_json_close(out, '}');
		fal_put_u8(out, '\n');
	}
}

/* ---- computed anew ---- */

static size_t
kept_mismatches(const struct stat_recomputed *r)
{
	return r->mismatches < STAT_MISMATCHES ? r->mismatches : STAT_MISMATCHES;
}

static void
put_recomputed(struct fal_buf *out, const struct stat_recomputed *r)
{
	for (size_t i = 0; i < kept_mismatches(r); i++) {
		const struct stat_mismatch *m = &r->mismatch[i];
		fal_put_fmt(out, "recompute: clock %ju: ", m->clock);
		if (m->id == 0)
			fal_put_fmt(out, "%s\n", m->what);
		else
			fal_put_fmt(out,
				    "contribution %u.%u of %s, key %s (%s): %s is not "
				    "what job and data make\n",
				    m->id, m->seq, m->worker, m->key, m->fingerprint,
				    m->what);
	}
	if (r->mismatches > kept_mismatches(r))
		fal_put_fmt(out, "recompute: and %s more\n",
			    GROUPED(r->mismatches - kept_mismatches(r)));
	if (r->cannot[0] != '\0') {
		fal_put_fmt(out, "recompute: cannot judge: %s\n", r->cannot);
		return;
	}
	fal_put_fmt(out, "recomputed %s of %s clock%s: ", GROUPED(r->clocks),
		    GROUPED(r->of), fal_text_plural(r->of));
	if (r->mismatches == 0)
		fal_put_fmt(out, "equal\n");
	else if (r->differs && r->from < r->to)
		fal_put_fmt(out, "not equal, from one of clocks %ju to %ju on\n", r->from,
			    r->to);
	else if (r->differs)
		fal_put_fmt(out, "not equal, from clock %ju on\n", r->to);
	else
		fal_put_fmt(out, "not what the run says\n");
	fal_put_fmt(
		out,
		"%s of %s clock%s (%.1f %%) can be judged so, from %u kept version%s\n",
		GROUPED(r->reach), GROUPED(r->of), fal_text_plural(r->of),
		100 * (double)r->reach / (double)r->of, r->kept,
		fal_text_plural(r->kept));
}

static void
json_recomputed(struct fal_buf *out, const struct stat_recomputed *r)
{
	fal_json_open(out, '{');
	fal_json_member_u64(out, "clocks", r->clocks);
	fal_json_member_u64(out, "of_clocks", r->of);
	fal_json_member_u64(out, "reach", r->reach);
	fal_json_member_u64(out, "kept", r->kept);
	fal_json_member_bool(out, "equal", r->mismatches == 0 && r->cannot[0] == '\0');
	if (r->cannot[0] != '\0')
		fal_json_member_str(out, "cannot_judge", r->cannot);
	if (r->differs) {
		fal_json_member_u64(out, "from", r->from);
		fal_json_member_u64(out, "to", r->to);
	}
	fal_json_member_u64(out, "findings", r->mismatches);
	fal_json_member_open(out, "wrong", '[');
	for (size_t i = 0; i < kept_mismatches(r); i++) {
		const struct stat_mismatch *m = &r->mismatch[i];
		fal_json_open(out, '{');
		fal_json_member_u64(out, "clock", m->clock);
		fal_json_member_str(out, "what", m->what);
		if (m->id != 0) {
			fal_json_member_open(out, "c", '[');
			fal_json_u64(out, m->id);
			fal_json_u64(out, m->seq);
			fal_json_close(out, ']');
			fal_json_member_str(out, "worker", m->worker);
			fal_json_member_str(out, "key", m->key);
			fal_json_member_str(out, "key_fingerprint", m->fingerprint);
		}
		fal_json_close(out, '}');
	}
	fal_json_close(out, ']');
	fal_json_close(out, '}');
}

/* ---- audit ---- */

/* Puts the reach of the proof: a number of clocks, or, for a group, the address of the
 * coordinator above, to which the group's clocks belong.  Then puts the counts of tasks
 * by fate.
 */
static void
put_proven(struct fal_buf *out, const struct fal_audit_verdict *v)
{
	char above[128];
	fal_put_fmt(out, "audit: ok: ");
	if (v->above[0] != '\0')
		fal_put_fmt(out, "group of %s, ",
			    fal_text_plain(above, sizeof(above), v->above));
	else if (v->finished)
		fal_put_fmt(out, "%s clock%s, ", GROUPED(v->clocks),
			    fal_text_plural(v->clocks));
	else
		fal_put_fmt(out, "%s of %s clock%s, ", GROUPED(v->clocks),
			    GROUPED(v->of_clocks), fal_text_plural(v->of_clocks));
	fal_put_fmt(out,
		    "%s task%s, moved %s, cloned %s, filled %s, dropped %s, %s sample%s "
		    "dropped (stale), %s computed twice",
		    GROUPED(v->sums.tasks), fal_text_plural(v->sums.tasks),
		    GROUPED(v->sums.moved), GROUPED(v->sums.cloned),
		    GROUPED(v->sums.filled), GROUPED(v->sums.dropped),
		    GROUPED(v->samples_dropped), fal_text_plural(v->samples_dropped),
		    GROUPED(v->duplicate_samples));
	if (v->sums.skipped > 0)
		fal_put_fmt(out, ", skipped %s", GROUPED(v->sums.skipped));
	if (v->evals.tasks > 0)
		fal_put_fmt(out,
			    ", evaluated %s test task%s, confirmed %s, unconfirmed %s",
			    GROUPED(v->evals.tasks), fal_text_plural(v->evals.tasks),
			    GROUPED(v->evals.repeated), GROUPED(v->evals.unanswered));
	fal_put_fmt(out, ", used at staleness: ");
	put_stale(out, &v->stale);
	if (v->parts > 0)
		fal_put_fmt(
			out,
			"\naudit: %s parts, each with other files: the last from clock "
			"%s, other %s",
			GROUPED(v->parts + 1), GROUPED(v->part_clock), PLAIN(v->part));
	fal_put_u8(out, '\n');
}

/* The coordinator's statements that no other line supports. */
enum { CLAIMS = 6 };
struct claim_count {
	const char *what;
	uint64_t n;
};

static void
get_claims(const struct fal_audit_verdict *v, struct claim_count out[static CLAIMS])
{
	out[0] = (struct claim_count){ "charged", v->charges };
	out[1] = (struct claim_count){ "refused", v->refused };
	out[2] = (struct claim_count){ "unlike", v->unlike };
	out[3] = (struct claim_count){ "suspected", v->suspects };
	out[4] = (struct claim_count){ "nonfinite", v->nonfinite };
	out[5] = (struct claim_count){ "accepted", v->parts };
}

void
stat_audit(struct fal_buf *out, const struct fal_audit_verdict *v,
	   const struct stat_recomputed *r)
{
	const char *before = "audit: not proven, only said by the coordinator: ";
	struct claim_count claim[CLAIMS];
	for (size_t i = 0; i < v->n_text; i++)
		fal_put_fmt(out, "audit: %s\n", v->text[i]);
	if (v->findings > 0)
		fal_put_fmt(out, "audit: failed: %s finding%s\n", GROUPED(v->findings),
			    fal_text_plural(v->findings));
	else if (!v->ok && v->missing_lines == 0)
		fal_put_fmt(out,
			    "audit: cannot tell: the trace has no end: %s of %s clock%s "
			    "(--partial judges these)\n",
			    GROUPED(v->clocks), GROUPED(v->of_clocks),
			    fal_text_plural(v->of_clocks));
	else if (!v->ok)
		fal_put_fmt(out,
			    "audit: cannot tell: %s line%s (%s byte%s) %s missing, from "
			    "clock %s on\n",
			    GROUPED(v->missing_lines), fal_text_plural(v->missing_lines),
			    GROUPED(v->missing_bytes), fal_text_plural(v->missing_bytes),
			    v->missing_lines == 1 ? "is" : "are", GROUPED(v->clocks));
	if (!v->ok)
		return;
	put_proven(out, v);
	get_claims(v, claim);
	for (size_t i = 0; i < CLAIMS; i++) {
		if (claim[i].n == 0)
			continue;
		fal_put_fmt(out, "%s%s %s", before, claim[i].what, GROUPED(claim[i].n));
		before = ", ";
	}
	fal_put_fmt(out, before[0] == ',' ? "\n" : "");
	if (r != NULL)
		put_recomputed(out, r);
}

void
stat_audit_json(struct fal_buf *out, const struct fal_audit_verdict *v,
		const struct stat_recomputed *r)
{
	const bool ok = r == NULL || stat_recomputed_code(r) == FAL_EXIT_DONE;
	struct claim_count claim[CLAIMS];
	get_claims(v, claim);
	fal_json_open(out, '{');
	if (v->above[0] != '\0')
		fal_json_member_str(out, "above", v->above);
	fal_json_member_bool(out, "ok", v->ok && ok);
	fal_json_member_bool(out, "finished", v->finished);
	fal_json_member_bool(out, "cut", v->cut);
	fal_json_member_u64(out, "clocks", v->clocks);
	fal_json_member_u64(out, "of_clocks", v->of_clocks);
	fal_json_member_u64(out, "tasks", v->sums.tasks);
	fal_json_member_u64(out, "moved", v->sums.moved);
	fal_json_member_u64(out, "cloned", v->sums.cloned);
	fal_json_member_u64(out, "filled", v->sums.filled);
	fal_json_member_u64(out, "dropped", v->sums.dropped);
	fal_json_member_u64(out, "skipped", v->sums.skipped);
	fal_json_member_u64(out, "samples_dropped", v->samples_dropped);
	fal_json_member_u64(out, "samples_duplicated", v->duplicate_samples);
	fal_json_member_u64(out, "evaluated", v->evals.tasks);
	fal_json_member_u64(out, "evaluated_twice", v->evals.repeated);
	fal_json_member_u64(out, "evaluated_alone", v->evals.unanswered);
	for (size_t i = 0; i < CLAIMS; i++)
		fal_json_member_u64(out, claim[i].what, claim[i].n);
	fal_json_key(out, "staleness");
	json_stale(out, &v->stale);
	fal_json_member_u64(out, "parts", v->parts + 1);
	fal_json_member_u64(out, "missing_lines", v->missing_lines);
	fal_json_member_u64(out, "missing_bytes", v->missing_bytes);
	fal_json_member_str(out, "chain", v->link);
	fal_json_member_u64(out, "findings", v->findings);
	fal_json_member_open(out, "text", '[');
	for (size_t i = 0; i < v->n_text; i++)
		fal_json_str(out, v->text[i]);
	fal_json_close(out, ']');
	if (r != NULL) {
		fal_json_key(out, "recompute");
		json_recomputed(out, r);
	}
	fal_json_close(out, '}');
	fal_put_u8(out, '\n');
}
