/* The table of a job: a row for each worker, and what they make together. */
#include "base/json.h"
#include "base/text.h"
#include "sec/keyring.h"
#include "stat.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The rates of a worker, each once for both outputs. */
struct row {
	double compute, push, pull, wait; /* parts of its wall time, 0 to 1 */
	double samples_s;                 /* samples a second of its wall time */
};

static struct row
row_of(const struct fal_summary_worker *w)
{
	const struct fal_summary_spent *at = &w->spent;
	double wall = at->compute + at->push + at->pull + at->wait;
	if (!(wall > 0))
		return (struct row){ 0 };
	return (struct row){
		.compute = at->compute / wall,
		.push = at->push / wall,
		.pull = at->pull / wall,
		.wait = at->wait / wall,
		.samples_s = w->samples / wall,
	};
}

enum {
	SHOWN = FAL_NAME_MAX, /* bytes of a name: all that one may have */
	NAME_LEAST = 40       /* characters that stay on a narrow terminal */
};

/* Columns that stand there only if they have something to say. */
struct columns {
	bool stale, dropped, kernels;
};

static struct columns
columns_of(const struct fal_summary *s)
{
	struct columns c = { 0 };
	for (size_t i = 0; i < s->n_worker; i++) {
		c.stale = c.stale || s->worker[i].stale_max > 0;
		c.dropped = c.dropped || s->worker[i].dropped > 0;
		c.kernels = c.kernels || (!s->identical && s->worker[i].kernels != NULL);
	}
	return c;
}

static double
mean_stale(const struct fal_summary_worker *w)
{
	return w->load.clocks > 0 ? (double)w->stale_sum / (double)w->load.clocks : 0;
}

/* Of its class, if that is one of speed. */
static const char *
cause_of(const struct fal_summary_worker *w)
{
	const bool off = w->left || w->suspect || w->silent;
	if (w->standby)
		return "numerics";
	return fal_cause_name(off ? FAL_CAUSE_NONE : w->verdict.cause);
}

static void
add_worker(struct fal_table *t, const struct fal_summary_worker *w, struct columns c)
{
	char name[SHOWN + 1];
	struct row r = row_of(w);
	const double part[] = { r.compute, r.push, r.pull, r.wait };
	const uint64_t at = w->own_rounds ? w->last_round : w->last_clock;
	const uint64_t count[] = { at, w->lanes, w->share, w->done, w->in, w->out };
	fal_table_add(t, "%s", fal_text_plain(name, sizeof(name), w->name));
	fal_table_add(t, "%s", fal_summary_class(w));
	fal_table_add(t, "%s", cause_of(w));
	for (size_t i = 0; i < sizeof(count) / sizeof(count[0]); i++)
		fal_table_add(t, "%" PRIu64, count[i]);
	for (size_t i = 0; i < 4; i++)
		fal_table_add(t, "%.1f", 100 * part[i]);
	if (c.stale) {
		fal_table_add(t, "%.2f", mean_stale(w));
		fal_table_add(t, "%" PRIu64, w->stale_max);
	}
	if (c.dropped)
		fal_table_add(t, "%" PRIu64, w->dropped);
	fal_table_add(t, "%.1f", r.samples_s);
	if (c.kernels)
		fal_table_add(t, "%s",
			      fal_text_plain(name, sizeof(name),
					     w->kernels != NULL ? w->kernels : ""));
}

static void
put_workers(struct fal_buf *out, const struct fal_summary *s)
{
	static const char *const head[] = { "WORKER", "CLASS",    "CAUSE", "CLOCK",
					    "LANES",  "SHARE",    "TASKS", "IN",
					    "OUT",    "COMPUTE%", "PUSH%", "PULL%",
					    "WAIT%" };
	const size_t n = sizeof(head) / sizeof(head[0]);
	const struct columns c = columns_of(s);
	struct fal_table t = {
		.columns = n + 1 + (c.stale ? 2 : 0) + c.dropped + c.kernels,
		.shorten = NAME_LEAST,
		.drops = "CLOCK PUSH% PULL% LANES SHARE OUT IN MAX "
			 "COMPUTE% TASKS DROPPED STALE WAIT% KERNELS CAUSE SAMPLES/S"
	};
	for (size_t i = 0; i < n; i++)
		fal_table_add(&t, "%s", head[i]);
	if (c.stale) {
		fal_table_add(&t, "STALE");
		fal_table_add(&t, "MAX");
	}
	if (c.dropped)
		fal_table_add(&t, "DROPPED");
	fal_table_add(&t, "SAMPLES/S");
	if (c.kernels)
		fal_table_add(&t, "KERNELS");
	for (size_t i = 0; i < s->n_worker; i++)
		add_worker(&t, &s->worker[i], c);
	stat_put_table(out, &t);
}

/* A row for each group. */
static void
put_groups(struct fal_buf *out, const struct fal_summary *s)
{
	static const char *const head[] = { "GROUP", "CLASS",     "CAUSE", "MEMBERS",
					    "LANES", "SAMPLES/S", "MB_UP", "MB_DOWN" };
	struct fal_table t = { .columns = sizeof(head) / sizeof(head[0]),
			       .shorten = NAME_LEAST,
			       .drops = "CAUSE CLASS MB_DOWN LANES" };
	char name[SHOWN + 1];
	bool any = false;
	for (size_t i = 0; i < t.columns; i++)
		fal_table_add(&t, "%s", head[i]);
	for (size_t i = 0; i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i];
		if (w->members == 0)
			continue;
		any = true;
		fal_table_add(&t, "%s", fal_text_plain(name, sizeof(name), w->name));
		fal_table_add(&t, "%s", fal_summary_class(w));
		fal_table_add(&t, "%s", cause_of(w));
		fal_table_add(&t, "%" PRIu64, w->members);
		fal_table_add(&t, "%" PRIu64, w->lanes_max);
		fal_table_add(&t, "%.1f", row_of(w).samples_s);
		fal_table_add(&t, "%.2f", (double)w->up * 1e-6);
		fal_table_add(&t, "%.2f", (double)w->down * 1e-6);
	}
	if (any)
		stat_put_table(out, &t);
	else
		fal_table_free(&t);
}

static void
put_numerics(struct fal_buf *out, const struct fal_summary *s)
{
	char name[SHOWN + 1];
	if (s->n_worker == 0)
		return;
	fal_put_fmt(out, "numerics: %s", s->identical ? "identical\n" : "differ:");
	for (size_t i = 0; !s->identical && i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i];
		if (!w->differs)
			continue;
		fal_put_fmt(out, " %s%s%s", fal_text_plain(name, sizeof(name), w->name),
			    w->impure ? " (impure)" : "",
			    w->standby ? " (standby: numerics)" : "");
		if (w->skewed)
			fal_put_fmt(out, " (Falcon %s)",
				    fal_text_plain(name, sizeof(name), w->build));
	}
	if (!s->identical)
		fal_put_u8(out, '\n');
}

static bool
same_key(const struct fal_summary_worker *a, const struct fal_summary_worker *b)
{
	return a->key != NULL && b->key != NULL &&
	       strcmp(a->key_fingerprint, b->key_fingerprint) == 0 &&
	       strcmp(a->key, b->key) == 0;
}

/* A line for each key: whose workers are whose. */
static void
put_keys(struct fal_buf *out, const struct fal_summary *s)
{
	char text[SHOWN + 1];
	for (size_t i = 0; i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i];
		size_t first = 0;
		while (first < i && !same_key(&s->worker[first], w))
			first++;
		if (w->key == NULL || first < i)
			continue;
		fal_put_fmt(out, "key %s", fal_text_plain(text, sizeof(text), w->key));
		fal_put_fmt(out, " %s:",
			    fal_text_plain(text, sizeof(text), w->key_fingerprint));
		for (size_t k = i; k < s->n_worker; k++)
			if (same_key(w, &s->worker[k]))
				fal_put_fmt(out, " %s",
					    fal_text_plain(text, sizeof(text),
							   s->worker[k].name));
		fal_put_u8(out, '\n');
	}
}

/* A line for each suspect: since when, and why. */
static void
put_suspects(struct fal_buf *out, const struct fal_summary *s)
{
	char name[SHOWN + 1], why[SHOWN + 1];
	for (size_t i = 0; i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i];
		if (!w->suspect)
			continue;
		fal_put_fmt(out, "suspect %s: for %.1f s, %s\n",
			    fal_text_plain(name, sizeof(name), w->name),
			    s->seconds - w->since,
			    fal_text_plain(why, sizeof(why), w->why));
	}
}

/* A line for each that was lost again and again. */
static void
put_falls(struct fal_buf *out, const struct fal_summary *s)
{
	char name[SHOWN + 1];
	for (size_t i = 0; i < s->n_worker; i++)
		if (s->worker[i].falls > 1)
			fal_put_fmt(out,
				    "%s fell %" PRIu64 " times, %.0f s of work lost\n",
				    fal_text_plain(name, sizeof(name), s->worker[i].name),
				    s->worker[i].falls, s->worker[i].fell_s);
}

static uint64_t
unanswered(const struct fal_summary_verify *v)
{
	return v->asked - v->equal - v->unlike;
}

static void
put_verify(struct fal_buf *out, const struct fal_summary_verify *v)
{
	char who[4 * SHOWN];
	if (v->asked > 0)
		fal_put_fmt(out,
			    "verify: %" PRIu64 " asked, %" PRIu64 " equal, %" PRIu64
			    " unlike, %" PRIu64 " "
			    "unanswered\n",
			    v->asked, v->equal, v->unlike, unanswered(v));
	if (v->who != NULL)
		fal_put_fmt(out, "unlike: %s: task %" PRIu64 " of clock %" PRIu64 "\n",
			    fal_text_plain(who, sizeof(who), v->who), v->task, v->clock);
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
	fal_json_member_u64(out, "unanswered", unanswered(v));
	if (v->who != NULL) {
		fal_json_member_str(out, "workers", v->who);
		fal_json_member_u64(out, "clock", v->clock);
		fal_json_member_u64(out, "task", v->task);
	}
	fal_json_close(out, '}');
}

/* What became of the samples, if there are ledgers to tell. */
static void
put_samples(struct fal_buf *out, const struct fal_summary *s)
{
	if (s->above != NULL) {
		fal_put_fmt(out,
			    "version: %" PRIu64 "\nsamples: %" PRIu64 " given, %" PRIu64
			    " dropped, "
			    "%" PRIu64 " computed twice\n",
			    s->version, s->samples, s->dropped, s->twice);
		return;
	}
	if (s->ended == 0)
		return;
	fal_put_fmt(out, "updates: %" PRIu64, s->version);
	if (s->updates_s > 0)
		fal_put_fmt(out, ", %.2f/s", s->updates_s);
	fal_put_fmt(out,
		    "\nsamples: %" PRIu64 " used, %" PRIu64 " dropped, %" PRIu64
		    " computed twice\n",
		    s->samples, s->dropped, s->twice);
	if (s->skipped > 0)
		fal_put_fmt(out,
			    "skipped: %" PRIu64 " task%s without a finite gradient\n",
			    s->skipped, fal_text_s(s->skipped));
	fal_put_fmt(out, "staleness: ");
	stat_stale(out, &s->stale);
	fal_put_u8(out, '\n');
}

/* Whether the machines were as fast, or as slow, as they were to be. */
static void
put_capacity(struct fal_buf *out, const struct fal_summary *s)
{
	static const double most_late = 0.02; /* falcon-emulate(5), which catches up */
	const double used = s->capacity > 0 ? s->samples_s / s->capacity : 0;
	const double compute = s->spent.compute;
	const char *beyond = ": more than there is, so do not believe the speeds";
	if (used > 0)
		fal_put_fmt(out, "capacity: %.1f samples/s, used %.1f %%%s\n",
			    s->capacity, 100 * used, used > 1 + most_late ? beyond : "");
	if (compute > 0 && s->spent.late > most_late * compute)
		fal_put_fmt(out,
			    "emulation: %.1f %% late, so do not believe the speeds: "
			    "emulate fewer or slower machines, or give a lower rate\n",
			    100 * s->spent.late / compute);
}

static uint64_t
done_again(const struct fal_summary_resumed *r)
{
	return r->until > r->clock ? r->until - r->clock : 0;
}

static void
put_resumed(struct fal_buf *out, const struct fal_summary_resumed *r)
{
	const uint64_t again = done_again(r);
	if (r->incarnation > 0)
		fal_put_fmt(out,
			    "incarnation: %" PRIu64
			    ", since %.1f s, resumed at clock %" PRIu64 ", "
			    "%" PRIu64 " clock%s done again\n",
			    r->incarnation, r->t, r->clock, again, fal_text_s(again));
}

static void
put_totals(struct fal_buf *out, const struct fal_summary *s)
{
	char why[512];
	fal_put_fmt(out, "clocks: %" PRIu64 " of %" PRIu64, s->clocks, s->job.clocks);
	if (s->clocks_s > 0)
		fal_put_fmt(out, ", %.2f/s, %.1f samples/s", s->clocks_s, s->samples_s);
	if (s->stalled > 0)
		fal_put_fmt(out, ", stalled for %.1f s", s->stalled);
	fal_put_u8(out, '\n');
	put_resumed(out, &s->resumed);
	if (s->n_epoch > 0)
		fal_put_fmt(out, isnan(s->loss) ? "loss: -\n" : "loss: %.5f\n", s->loss);
	if (s->judged)
		fal_put_fmt(out, "accuracy: %.4f after epoch %" PRIu64 "\n", s->accuracy,
			    s->judged_epoch);
	put_suspects(out, s);
	put_falls(out, s);
	put_verify(out, &s->verify);
	if (s->trainer != NULL)
		fal_put_fmt(out, "%s\n", fal_text_plain(why, sizeof(why), s->trainer));
	put_numerics(out, s);
	put_keys(out, s);
	put_capacity(out, s);
	put_samples(out, s);
}

void
stat_table(struct fal_buf *out, const struct fal_summary *s)
{
	char name[SHOWN + 1], scheme[SHOWN + 1];
	fal_put_fmt(out, "job: %s, %s%s", fal_text_plain(name, sizeof(name), s->name),
		    fal_text_plain(scheme, sizeof(scheme), s->scheme),
		    s->done             ? ", done"
		    : s->failed != NULL ? ", failed"
					: "");
	if (s->above != NULL)
		fal_put_fmt(out, ", a group of %s",
			    fal_text_plain(name, sizeof(name), s->above));
	fal_put_u8(out, '\n');
	put_workers(out, s);
	put_groups(out, s);
	stat_shards(out, &s->shards);
	stat_moves(out, &s->moves);
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
	struct row r = row_of(w);
	fal_json_open(out, '{');
	fal_json_member_str(out, "worker", w->name);
	if (w->key != NULL) {
		fal_json_member_str(out, "key", w->key);
		fal_json_member_str(out, "key_fingerprint", w->key_fingerprint);
	}
	fal_json_member_str(out, "version", w->build);
	fal_json_member_str(out, "kernels", w->kernels);
	fal_json_member_str(out, "class", fal_summary_class(w));
	fal_json_member_str(out, "cause", cause_of(w));
	fal_json_member_u64(out, "clock", w->last_clock);
	if (w->own_rounds)
		fal_json_member_u64(out, "round", w->last_round);
	fal_json_member_u64(out, "lanes", w->lanes);
	fal_json_member_u64(out, "share", w->share);
	fal_json_member_u64(out, "tasks", w->done);
	fal_json_member_u64(out, "in", w->in);
	fal_json_member_u64(out, "out", w->out);
	fal_json_member_u64(out, "cloned", w->cloned);
	fal_json_member_u64(out, "lost", w->lost);
	fal_json_member_u64(out, "dropped", w->dropped);
	fal_json_member_fixed(out, "compute", r.compute, 4);
	fal_json_member_fixed(out, "push", r.push, 4);
	fal_json_member_fixed(out, "pull", r.pull, 4);
	fal_json_member_fixed(out, "wait", r.wait, 4);
	json_spent(out, &w->spent);
	if (w->members > 0)
		fal_json_member_u64(out, "members", w->members);
	fal_json_member_u64(out, "bytes_up", w->up);
	fal_json_member_u64(out, "bytes_down", w->down);
	fal_json_member_fixed(out, "stale", mean_stale(w), 3);
	fal_json_member_u64(out, "stale_max", w->stale_max);
	fal_json_member_fixed(out, "samples", w->samples, 0);
	fal_json_member_fixed(out, "samples_s", r.samples_s, 1);
	fal_json_member_fixed(out, "projected", w->verdict.projected, 6);
	fal_json_member_bool(out, "left", w->left);
	fal_json_member_u64(out, "falls", w->falls);
	fal_json_member_fixed(out, "fell_s", w->fell_s, 3);
	fal_json_member_bool(out, "suspect", w->suspect);
	fal_json_member_bool(out, "silent", w->silent);
	fal_json_close(out, '}');
}

/* Who is impure, or differs. */
static void
json_names(struct fal_buf *out, const char *key, const struct fal_summary *s, bool impure)
{
	fal_json_member_open(out, key, '[');
	for (size_t i = 0; i < s->n_worker; i++)
		if (impure ? s->worker[i].impure : s->worker[i].differs)
			fal_json_str(out, s->worker[i].name);
	fal_json_close(out, ']');
}

/* What the samples and the seconds were spent on. */
static void
json_sums(struct fal_buf *out, const struct fal_summary *s)
{
	fal_json_member_fixed(out, "seconds", s->seconds, 6);
	fal_json_member_u64(out, "updates", s->version);
	fal_json_member_fixed(out, "updates_s", s->updates_s, 3);
	fal_json_member_u64(out, "samples", s->samples);
	fal_json_member_u64(out, "dropped", s->dropped);
	fal_json_member_u64(out, "duplicated", s->twice);
	fal_json_member_u64(out, "moved", s->moved);
	fal_json_member_u64(out, "cloned", s->cloned);
	fal_json_member_u64(out, "skipped", s->skipped);
	json_spent(out, &s->spent);
	fal_json_key(out, "staleness");
	stat_stale_json(out, &s->stale);
}

static void
json_resumed(struct fal_buf *out, const struct fal_summary_resumed *r)
{
	fal_json_member_u64(out, "incarnation", r->incarnation);
	if (r->incarnation == 0)
		return;
	fal_json_member_open(out, "resumed", '{');
	fal_json_member_fixed(out, "t", r->t, 6);
	fal_json_member_u64(out, "clock", r->clock);
	fal_json_member_u64(out, "again", done_again(r));
	fal_json_close(out, '}');
}

void
stat_table_json(struct fal_buf *out, const struct fal_summary *s)
{
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
		stat_shards_json(out, &s->shards);
		stat_moves_json(out, &s->moves);
	}
	fal_json_member_u64(out, "clocks", s->clocks);
	fal_json_member_u64(out, "of_clocks", s->job.clocks);
	fal_json_member_fixed(out, "clocks_s", s->clocks_s, 3);
	fal_json_member_fixed(out, "samples_s", s->samples_s, 1);
	fal_json_member_fixed(out, "stalled", s->stalled, 1);
	json_resumed(out, &s->resumed);
	json_verify(out, &s->verify);
	fal_json_member_str(out, "trainer", s->trainer);
	json_sums(out, s);
	if (s->n_epoch > 0) {
		fal_json_member_num(out, "loss", s->loss);
	}
	if (s->judged) {
		fal_json_member_num(out, "accuracy", s->accuracy);
		fal_json_member_u64(out, "epoch", s->judged_epoch);
	}
	fal_json_member_str(out, "numerics", s->identical ? "identical" : "differ");
	json_names(out, "differ", s, false);
	json_names(out, "impure", s, true);
	if (s->capacity > 0 && s->samples_s > 0) {
		fal_json_member_fixed(out, "capacity", s->capacity, 1);
		fal_json_member_fixed(out, "used", s->samples_s / s->capacity, 4);
	}
	fal_json_close(out, '}');
	fal_put_u8(out, '\n');
}
