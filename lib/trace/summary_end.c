/* What all lines of a trace together say: classes, rates, capacity. */
#include "trace/summary.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Nothing for so many seconds is a silence, or for so many times the longest before. */
static const double QUIET_S = 10, QUIET_TIMES = 4;

static bool
is_quiet(double seconds, double longest)
{
	return seconds > fmax(QUIET_S, QUIET_TIMES * longest);
}

/* What does not move, by the time of the last line. */
static void
quiet(struct fal_summary *s)
{
	const uint64_t ring = FAL_SUMMARY_RATE_UPDATES + 1;
	const uint64_t n = s->n_tick < ring ? s->n_tick : ring;
	double longest = 0, last = 0;
	if (s->done || s->failed != NULL || s->clocks >= s->job.clocks)
		return;
	for (uint64_t i = s->n_tick - n; i < s->n_tick; i++) {
		const double t = s->tick[i % ring].t;
		if (i > s->n_tick - n)
			longest = fmax(longest, t - last);
		last = t;
	}
	last = fmax(last, s->resumed.t); /* nothing moved while nobody served it */
	if (is_quiet(s->seconds - last, longest))
		s->stalled = s->seconds - last;
	for (size_t i = 0; i < s->n_worker; i++) {
		struct fal_summary_worker *w = &s->worker[i];
		w->silent = !w->left && is_quiet(s->seconds - w->worked,
						 s->stalled > 0 ? 0 : w->longest);
	}
}

/* The oldest and the newest update of the ring; false: there are no two. */
static bool
window(const struct fal_summary *s, double *from, double *to)
{
	const uint64_t ring = FAL_SUMMARY_RATE_UPDATES + 1;
	const uint64_t n = s->n_tick < ring ? s->n_tick : ring;
	if (n < 2)
		return false;
	*from = s->tick[(s->n_tick - n) % ring].t;
	*to = s->tick[(s->n_tick - 1) % ring].t;
	return *to > *from;
}

/* The rates over that time. */
static void
rates(struct fal_summary *s)
{
	const uint64_t ring = FAL_SUMMARY_RATE_UPDATES + 1;
	const uint64_t n = s->n_tick < ring ? s->n_tick : ring, oldest = s->n_tick - n;
	double from, to;
	if (!window(s, &from, &to) || s->stalled > 0)
		return;
	double samples = 0, clocks = 0;
	for (uint64_t i = oldest + 1; i < s->n_tick; i++) {
		samples += (double)s->tick[i % ring].samples;
		clocks += s->tick[i % ring].clocks;
	}
	s->updates_s = (double)(n - 1) / (to - from);
	s->clocks_s = clocks / (to - from);
	s->samples_s = samples / (to - from);
}

/* Clocks by the tasks that have ended; where the first of these are not in the trace, up
 * to the newest that an update has. */
static void
progress(struct fal_summary *s)
{
	const struct fal_trace_job *j = &s->job;
	const uint64_t most = fal_trace_job_tasks(j, 0), n = j->clocks_per_epoch;
	const uint64_t epoch = (n - 1) * most + fal_trace_job_tasks(j, n - 1);
	if (s->part || s->ended == 0 || s->above != NULL) {
		s->clocks = s->next_clock;
		return;
	}
	s->clocks = s->ended / epoch * n + s->ended % epoch / most;
	if (s->clocks > j->clocks)
		s->clocks = j->clocks;
}

static void
spent(struct fal_summary *s)
{
	for (size_t i = 0; i < s->n_worker; i++) {
		const struct fal_summary_spent *w = &s->worker[i].spent;
		s->spent.compute += w->compute;
		s->spent.push += w->push;
		s->spent.pull += w->pull;
		s->spent.wait += w->wait;
		s->spent.late += w->late;
	}
}

/* The part of the time between `from` and `to` in which it was there to be given work. */
static double
presence(const struct fal_summary *s, const struct fal_summary_worker *w, double from,
	 double to)
{
	const bool told = w->own_rounds || w->last_clock + 1 >= s->last_clock;
	double sum = 0;
	for (size_t i = 0; i < w->stays; i++) {
		const double last = told ? w->stay[i].to : fmin(w->stay[i].to, w->told);
		sum += fmax(fmin(last, to) - fmax(w->stay[i].from, from), 0);
	}
	return sum / (to - from);
}

static void
capacity(struct fal_summary *s)
{
	double from, to;
	if (!window(s, &from, &to))
		return;
	for (size_t i = 0; i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i];
		const uint64_t cores = w->lanes_max < w->cores ? w->lanes_max : w->cores;
		if (w->core_s > 0)
			s->capacity += presence(s, w, from, to) * (double)cores * w->ran /
				       w->core_s;
	}
}

static bool
is_impure(const struct fal_summary_worker *w)
{
	static const char impure[] = "0000000000000000"; /* READY, falcon-protocol(7) */
	return strncmp(w->fingerprint, impure, strlen(impure)) == 0;
}

/* Marks who is impure, or has not the fingerprint that most of the others have; of
 * equals, the earliest: to be as an impure one is says nothing of anybody. */
static int
numerics(struct fal_summary *s)
{
	size_t best = 0, most = 0, same;
	const char *build;
	json_t *have = NULL; /* how many have each */
	int err = FAL_OK;
	for (size_t i = 0; i < s->n_worker && err == FAL_OK; i++) {
		(void)fal_names_get(&have, s->worker[i].fingerprint, &same);
		err = fal_names_put(&have, s->worker[i].fingerprint, same + 1);
	}
	for (size_t i = 0; i < s->n_worker; i++) {
		(void)fal_names_get(&have, s->worker[i].fingerprint, &same);
		if (same > most && !is_impure(&s->worker[i])) {
			most = same;
			best = i;
		}
	}
	s->identical = most == s->n_worker;
	build = s->n_worker > 0 ? s->worker[best].build : NULL;
	for (size_t i = 0; i < s->n_worker; i++) {
		struct fal_summary_worker *w = &s->worker[i];
		w->impure = is_impure(w);
		w->differs = w->impure ||
			     strcmp(w->fingerprint, s->worker[best].fingerprint) != 0;
		w->standby =
			s->strict && s->counts > 0 && !w->left &&
			strcmp(w->fingerprint, s->worker[s->counts - 1].fingerprint) != 0;
		w->skewed = w->differs && w->build != NULL && build != NULL &&
			    strcmp(w->build, build) != 0;
	}
	json_decref(have);
	return err;
}

static int
classes(struct fal_summary *s)
{
	struct fal_trace_load *load = fal_calloc(s->n_worker, sizeof(*load));
	struct fal_trace_class *out = fal_calloc(s->n_worker, sizeof(*out));
	int err = FAL_ENOMEM;
	if (load != NULL && out != NULL) {
		for (size_t i = 0; i < s->n_worker; i++)
			load[i] = s->worker[i].load;
		err = fal_trace_classify(load, s->n_worker, out);
	}
	for (size_t i = 0; err == 0 && i < s->n_worker; i++)
		s->worker[i].verdict = out[i];
	free(load);
	free(out);
	return err;
}

const char *
fal_summary_class(const struct fal_summary_worker *w)
{
	return w->left      ? "left"
	       : w->standby ? "standby"
	       : w->suspect ? "suspect"
	       : w->silent  ? "silent"
			    : fal_class_name(w->verdict.class);
}

int
fal_summary_end(struct fal_summary *s, struct fal_diag *diag)
{
	if (!s->have_job)
		return fal_diag_set(diag, FAL_ETRUNC, "no job line");
	progress(s);
	quiet(s);
	rates(s);
	spent(s);
	fal_shard_rows_end(&s->shards);
	capacity(s);
	int err = numerics(s);
	if (err == FAL_OK)
		err = classes(s);
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : 0;
}
