/* Sums over the lines of a trace; derives classes, rates and capacity from the sums. */
#include "trace/summary.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/quantile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RING = FAL_SUMMARY_RATE_UPDATES + 1 };

/* Returns the number of updates in the ring. */
static uint64_t
summary_ring_length(const struct fal_summary *s)
{
	return s->ticks < RING ? s->ticks : RING;
}

/* Replaces *p by a copy of the text, if there is one. */
static void
summary_set_text(char **p, const char *text)
{
	if (text == NULL)
		return;
	free(*p);
	*p = fal_xstrdup(text);
}

/* Notes whether the worker can be given work from `t` on.  Forgets stays that ended
 * before the oldest update of the ring. */
static void
worker_set_available(struct fal_summary *s, struct fal_summary_worker *w, double t,
		     bool available)
{
	const double oldest = s->tick[(s->ticks - summary_ring_length(s)) % RING].t;
	size_t kept = 0;
	if (w->stays.is_open == available)
		return;
	w->stays.is_open = available;
	if (!available) {
		w->stays.v[w->stays.n - 1].to = t;
		return;
	}
	for (size_t i = 0; i < w->stays.n; i++)
		if (w->stays.v[i].to >= oldest)
			w->stays.v[kept++] = w->stays.v[i];
	w->stays.n = kept;
	FAL_XGROW(w->stays.v, w->stays.cap, w->stays.n + 1);
	w->stays.v[w->stays.n++] = (struct fal_summary_stay){ t, INFINITY };
}

static void
summary_take_join(struct fal_summary *s, struct fal_trace_line *l)
{
	const struct fal_ev_join *e = &l->is.join;
	if (fal_ids_get(&s->ids, e->id) != NULL) {
		fal_trace_fail(l, FAL_EINVAL, "id: %u joined before", e->id);
		return;
	}
	/* A new session continues the row of its name if the row's session has left. */
	size_t row;
	if (!fal_names_get(&s->names, e->worker, &row) || !s->worker[row].left) {
		row = s->n_worker++;
		FAL_XGROW(s->worker, s->cap_worker, s->n_worker);
		fal_names_put(&s->names, e->worker, row);
		s->worker[row] = (struct fal_summary_worker){ 0 };
	}
	struct fal_summary_worker *w = &s->worker[row];
	fal_ids_put(&s->ids, e->id, row);
	summary_set_text(&w->name, e->worker);
	summary_set_text(&w->fingerprint, e->fingerprint);
	summary_set_text(&w->key, e->key);
	summary_set_text(&w->key_fingerprint, e->key_fingerprint);
	summary_set_text(&w->build, e->version);
	summary_set_text(&w->kernels, e->kernels);
	w->left = w->suspicion.holds = false;
	w->last_work = l->t;
	w->lanes = w->lanes_max = e->lanes.v[1];
	w->cores = e->cores;
	w->fixed = fal_trace_join_fixed(e, &s->job);
	w->members = 0;
	worker_set_available(s, w, l->t, true);
}

/* Returns the row of the line's worker; NULL: the worker never joined, an error unless
 * lines are missing. */
static struct fal_summary_worker *
summary_row(struct fal_summary *s, struct fal_trace_line *l)
{
	const size_t *row = fal_ids_get(&s->ids, l->id);
	if (row == NULL && !s->has_gap)
		fal_trace_fail(l, FAL_EINVAL, "id: %u never joined", l->id);
	return row != NULL ? &s->worker[*row] : NULL;
}

static void
summary_take_leave(struct fal_summary *s, struct fal_trace_line *l)
{
	struct fal_summary_worker *w = summary_row(s, l);
	if (w == NULL)
		return;
	if (l->is.leave.fell) {
		w->falls.n++;
		w->falls.seconds += l->t - w->last_work;
	}
	w->left = true;
	w->suspicion.holds = false;
	worker_set_available(s, w, l->t, false);
}

/* The worker became a suspect, or is back. */
static void
summary_take_suspicion(struct fal_summary *s, struct fal_trace_line *l)
{
	struct fal_summary_worker *w = summary_row(s, l);
	if (w == NULL || w->left)
		return;
	w->suspicion.holds = l->event == FAL_EV_SUSPECT;
	w->suspicion.since = l->t;
	summary_set_text(&w->suspicion.why,
			 w->suspicion.holds ? l->is.suspect.why : l->is.back.why);
	worker_set_available(s, w, l->t, !w->suspicion.holds);
}

/* Two workers have different results of a task. */
static void
summary_take_verify(struct fal_summary *s, struct fal_trace_line *l)
{
	const struct fal_ev_verify *e = &l->is.verify;
	struct fal_summary_verify *v = &s->verify;
	struct fal_buf names = { 0 };
	v->clock = e->clock;
	v->task = e->task;
	for (size_t i = 0; i < e->words.n; i++)
		fal_put_fmt(&names, "%s%s", i > 0 ? " and " : "", e->words.v[i].worker);
	fal_put_u8(&names, 0);
	if (names.err < 0)
		fal_out_of_memory();
	free(v->who);
	v->who = (char *)names.p;
}

/* Adds the line's times to `keep` times the sums before. */
static void
spent_add(struct fal_summary_spent *to, double keep, const struct fal_ev_clock *e)
{
	to->compute = keep * to->compute + e->compute;
	to->push = keep * to->push + e->push;
	to->pull = keep * to->pull + e->pull;
	to->wait = keep * to->wait + e->wait;
	to->late = keep * to->late + e->late;
}

static void
summary_take_clock(struct fal_summary *s, struct fal_trace_line *l)
{
	const struct fal_ev_clock *e = &l->is.clock;
	const bool own_round = e->round != FAL_TRACE_ABSENT;
	struct fal_summary_worker *w = summary_row(s, l);
	struct fal_trace_paces ran;
	if (w == NULL || fal_trace_clock_paces(l, &s->job, &ran) < 0 ||
	    (!own_round &&
	     fal_trace_check_max(l, "clock", e->clock, s->job.clocks - 1) < 0))
		return;
	s->last_clock = e->clock > s->last_clock ? e->clock : s->last_clock;
	w->last_clock = e->clock > w->last_clock ? e->clock : w->last_clock;
	w->own_rounds = own_round;
	w->last_round = own_round ? e->round : 0;
	w->stale.sum += e->staleness;
	w->stale.max = e->staleness > w->stale.max ? e->staleness : w->stale.max;
	/* A worker's time counts from its first task on (falcon-trace(5)). */
	if (w->load.clocks == 0 && !s->is_partial) {
		const double first = l->t - e->compute - e->push - e->pull - e->wait;
		s->began = s->began > 0 ? fmin(s->began, first) : fmax(first, 0);
	}
	spent_add(&w->spent, 1, e);
	spent_add(&w->recent, 0.9, e);
	spent_add(&s->spent, 1, e);
	w->load.clocks++;
	w->load.push += e->push;
	w->load.pull += e->pull;
	w->load.latency += fal_trace_clock_latency(e, false);
	if (ran.all.tasks > 0) {
		w->longest = fmax(w->longest, l->t - w->last_work);
		w->last_work = l->t;
	}
	/* When the number of lanes changes, the tasks of this line ran on the old ones.
	 */
	const bool same_lanes =
		w->lanes == e->lanes || w->lanes == 0 || w->last_report <= 0;
	w->last_report = l->t;
	w->bytes.up += e->tx;
	w->bytes.down += e->rx;
	w->lanes = e->lanes;
	w->share = e->share;
	w->tasks.done += e->done;
	w->tasks.in += e->in;
	w->tasks.out += e->out;
	w->tasks.cloned += e->cloned;
	w->tasks.lost += e->lost;
	if (ran.all.tasks > 0)
		w->samples += ran.all.samples * (double)e->done / (double)ran.all.tasks;
	if (e->lanes == 0 || w->cores == 0)
		return;
	const double lane_s = (double)ran.all.tasks * ran.all.task_s / (double)e->lanes;
	w->load.tasks += ran.all.tasks;
	w->load.size += fal_trace_full_tasks(&s->job, w->fixed, &ran.all);
	w->load.lane_s += lane_s;
	if (!same_lanes)
		return;
	w->ran += ran.all.samples;
	w->core_s += lane_s * (double)(e->lanes < w->cores ? e->lanes : w->cores);
}

/* Samples became a part of a version, or of a group's contribution to one. */
static void
summary_tick(struct fal_summary *s, double t, uint64_t clock, uint64_t samples)
{
	s->samples += samples;
	s->tick[s->ticks++ % RING] = (struct fal_summary_tick){
		.t = t,
		.clocks = (double)samples / fal_grid_samples(&s->job.grid, clock),
		.samples = samples,
	};
}

static void
summary_take_ledger(struct fal_summary *s, struct fal_trace_line *l)
{
	const struct fal_ev_ledger *e = &l->is.ledger;
	const struct fal_trace_round r = fal_trace_round_of(e);
	if (fal_trace_check_max(l, "clock", r.clock, s->job.clocks - 1) < 0)
		return;
	const size_t *owner = r.owner != 0 ? fal_ids_get(&s->ids, r.owner) : NULL;
	const bool has_ended = r.end != FAL_END_ABANDONED;
	s->moved += fal_trace_rows_tasks(e->move, 4);
	s->cloned += fal_trace_rows_tasks(e->clone, 3);
	s->duplicates += fal_trace_round_duplicates(e, &s->job);
	if (r.end == FAL_END_FORWARDED) {
		summary_tick(s, l->t, r.clock,
			     fal_trace_round_samples(&r, e->skipped, &s->job));
		s->next_clock = r.clock > s->next_clock ? r.clock : s->next_clock;
	}
	s->skipped += has_ended ? fal_trace_rows_tasks(e->skipped, 2) : 0;
	s->ended_tasks += has_ended ? r.tasks : 0;
	if (r.end == FAL_END_DROPPED) {
		s->dropped += r.samples;
		if (owner != NULL)
			s->worker[*owner].dropped++;
	}
	/* The round changes the version after the newest one, or a later version. */
	if (r.end == FAL_END_APPLIED)
		fal_stale_add(&s->stale, &r, r.version + 1 + r.stale.updates);
	if (e->verified.n > 0) {
		s->verify.asked += e->verified.v[0];
		s->verify.equal += e->verified.v[1];
		s->verify.unlike += e->verified.v[2];
	}
	fal_trace_check_verified(l);
}

static void
summary_take_update(struct fal_summary *s, struct fal_trace_line *l)
{
	const struct fal_ev_update *line = &l->is.update;
	if (fal_trace_check_max(l, "clock", line->clock, s->job.clocks - 1) < 0)
		return;
	/* The row of the epoch, perhaps a new one.  Updates of two epochs may mix. */
	const uint64_t epoch = line->clock / s->job.clocks_per_epoch + 1;
	size_t at = s->n_epoch;
	while (at > 0 && s->epoch[at - 1].epoch > epoch)
		at--;
	if (at == 0 || s->epoch[at - 1].epoch != epoch) {
		const double begin = at > 0 ? s->epoch[at - 1].end : 0;
		FAL_XGROW(s->epoch, s->cap_epoch, s->n_epoch + 1);
		memmove(&s->epoch[at + 1], &s->epoch[at],
			(s->n_epoch++ - at) * sizeof(*s->epoch));
		s->epoch[at++] =
			(struct fal_summary_epoch){ .epoch = epoch, .begin = begin };
	}
	struct fal_summary_epoch *e = &s->epoch[at - 1];
	e->updates++;
	e->samples += line->samples;
	e->loss_sum += line->samples > 0 ? line->loss * (double)line->samples : 0;
	e->end = l->t;
	s->is_partial = s->is_partial || (s->ticks == 0 && line->version != 1);
	s->version = line->version;
	if (line->samples > 0) {
		s->loss = line->loss;
		fal_trace_read_metrics(l, line->metrics.v, line->metrics.n,
				       (double)line->samples, &s->metric_names,
				       &s->metrics);
		fal_metrics_add(&e->training, &s->metrics);
	}
	s->next_clock = line->clock + 1 > s->next_clock ? line->clock + 1 : s->next_clock;
	summary_tick(s, l->t, line->clock, line->samples);
}

static void
summary_take_eval(struct fal_summary *s, struct fal_trace_line *l)
{
	const struct fal_ev_eval *e = &l->is.eval;
	s->eval.exists = true;
	s->eval.epoch = e->epoch;
	s->eval.accuracy = e->accuracy;
	s->eval.loss = e->loss;
	fal_trace_read_metrics(l, e->metrics.v, e->metrics.n, (double)e->total,
			       &s->metric_names, &s->eval.metrics);
	for (size_t i = s->n_epoch; i-- > 0;) {
		if (s->epoch[i].epoch != e->epoch)
			continue;
		s->epoch[i].evaluated = true;
		s->epoch[i].accuracy = e->accuracy;
		s->epoch[i].test_loss = e->loss;
		s->epoch[i].test = s->eval.metrics;
		break;
	}
}

static void
summary_take_restart(struct fal_summary *s, struct fal_trace_line *l)
{
	const struct fal_ev_restart *e = &l->is.restart;
	s->resumed =
		(struct fal_summary_resumed){ e->incarnation, l->t, e->clock, e->until };
	s->shards = (struct fal_shard_rows){ .from = l->t, .to = l->t };
	/* A live coordinator sends its lines since the restart, not those before it in
	 * the file. */
	if (l->number <= e->lines)
		s->has_gap = s->is_partial = true;
	if (s->is_partial && s->next_clock < s->resumed.clock)
		s->next_clock = s->resumed.clock;
	fal_trace_job_restart(l, &s->job);
}

/* ---- shards ------------------------------------------------------------------------ */

static void
summary_take_shard(struct fal_summary *s, struct fal_trace_line *l)
{
	const struct fal_ev_shard *e = &l->is.shard;
	struct fal_shard_rows *r = &s->shards;
	if (fal_trace_shard_check(l, &s->job) < 0)
		return;
	struct fal_shard_row *w = &r->v[e->shard - 1];
	r->n = e->shard > r->n ? (uint32_t)e->shard : r->n;
	r->to = l->t;
	snprintf(w->name, sizeof(w->name), "%s", e->by != NULL ? e->by : "");
	snprintf(w->address, sizeof(w->address), "%s",
		 e->address != NULL ? e->address : "");
	if (e->blocks != w->blocks) /* the mean is of other blocks */
		w->lines = 0;
	w->blocks = e->blocks;
	w->rx += e->rx;
	w->tx += e->tx;
	w->service += e->service;
	w->queue += e->queue;
	w->blame += e->blame;
	if (!isnan(e->took)) {
		const double sum = w->lines > 0 ? w->took * w->lines : 0;
		w->took = (sum + e->took) / ++w->lines;
	}
}

/* Returns the seconds of the shard's part of a version, at least the resolution of a
 * trace. */
static double
shard_seconds(const struct fal_shard_row *w)
{
	return fmax(w->took, 1e-6);
}

/* Returns the median over the shards with known seconds: of a part, or, with `each`, of a
 * block. */
static double
shard_median(const struct fal_shard_rows *r, bool each)
{
	double v[FAL_TRACE_SHARDS_MAX];
	size_t n = 0;
	for (uint32_t i = 0; i < r->n; i++) {
		const struct fal_shard_row *w = &r->v[i];
		if (w->lines > 0 && w->blocks > 0)
			v[n++] = shard_seconds(w) / (each ? (double)w->blocks : 1);
	}
	return fal_quantile(v, n, 0.5);
}

void
fal_shard_rows_end(struct fal_shard_rows *r)
{
	const double all = shard_median(r, false), each = shard_median(r, true);
	for (uint32_t i = 0; i < r->n; i++) {
		struct fal_shard_row *w = &r->v[i];
		const bool known = w->lines > 0 && w->blocks > 0;
		w->class = FAL_CLASS_NONE;
		w->cause = "-";
		w->slower = known ? shard_seconds(w) / all : (double)NAN;
		if (w->lines == 0)
			w->took = (double)NAN;
		if (!known)
			continue;
		w->class = FAL_CLASS_STEADY;
		if (w->slower < 1 - FAL_CLASS_TOLERANCE)
			w->class = FAL_CLASS_PIONEER;
		if (w->slower < 1 + FAL_CLASS_TOLERANCE ||
		    w->blame < FAL_SHARD_BLAME * (r->to - r->from))
			continue;
		/* `slower` is the product of its pace and its number of blocks, each
		 * relative to the median: the cause is the larger factor. */
		const double pace = shard_seconds(w) / (double)w->blocks / each;
		w->class = FAL_CLASS_STRAGGLER;
		w->cause = pace * pace >= w->slower ? "pace" : "blocks";
	}
}

/* Blocks have moved, or an incarnation begins.  Ignores maps with more blocks than the
 * reader takes. */
static void
summary_take_place(struct fal_summary *s, struct fal_trace_line *l)
{
	const struct fal_ev_place *e = &l->is.place;
	struct fal_trace_moves *m = &s->moves;
	struct fal_trace_place old = m->map;
	if (s->job.blocks > FAL_TRACE_PLACED_MAX)
		return;
	m->map = (struct fal_trace_place){ 0 };
	m->moves = strcmp(e->rule, FAL_TRACE_MOVED) == 0 ? m->moves + 1 : 0;
	if (fal_trace_place_read(l, &s->job, &m->map) == 0 && m->moves > 0) {
		snprintf(m->by, sizeof(m->by), "%s", e->by != NULL ? e->by : "");
		m->t = l->t;
		m->took = e->took;
		m->blocks = 0;
		memset(m->more, 0, sizeof(m->more));
		for (uint32_t b = 0; b < m->map.blocks && b < old.blocks; b++) {
			m->blocks += m->map.shard[b] != old.shard[b];
			m->more[m->map.shard[b]]++;
			m->more[old.shard[b]]--;
		}
	}
	fal_trace_place_free(&old);
}

/* ---- lines ------------------------------------------------------------------------- */

int
fal_summary_line(void *summary, struct fal_trace_line *l)
{
	static void (*const take[FAL_EVENTS])(struct fal_summary *s,
					      struct fal_trace_line *l) = {
		[FAL_EV_JOIN] = summary_take_join,
		[FAL_EV_LEAVE] = summary_take_leave,
		[FAL_EV_CLOCK] = summary_take_clock,
		[FAL_EV_UPDATE] = summary_take_update,
		[FAL_EV_EVAL] = summary_take_eval,
		[FAL_EV_LEDGER] = summary_take_ledger,
		[FAL_EV_SUSPECT] = summary_take_suspicion,
		[FAL_EV_BACK] = summary_take_suspicion,
		[FAL_EV_VERIFY] = summary_take_verify,
		[FAL_EV_SHARD] = summary_take_shard,
		[FAL_EV_PLACE] = summary_take_place,

		[FAL_EV_RESTART] = summary_take_restart,
	};
	struct fal_summary *s = summary;
	s->seconds = l->t;
	if (!s->has_job && l->event != FAL_EV_JOB)
		return fal_trace_fail(l, FAL_EINVAL, "the first line is not job");
	if (l->event == FAL_EV_JOB) {
		summary_set_text(&s->name, l->is.job.name);
		summary_set_text(&s->scheme, l->is.job.scheme);
		summary_set_text(&s->above, l->is.job.above);
		s->has_job = fal_trace_job_read(l, &s->job) == 0;
	}
	struct fal_summary_worker *group =
		l->event == FAL_EV_GROUP ? summary_row(s, l) : NULL;
	if (group != NULL) { /* members joined or left */
		group->members = l->is.group.members;
		group->lanes_max = group->cores = l->is.group.lanes;
	}
	if (l->event == FAL_EV_VERSION) /* from the coordinator above */
		s->version = l->is.version.version;
	if (l->event == FAL_EV_POLICY)
		summary_set_text(&s->scheme, l->is.policy.scheme);
	if (l->event == FAL_EV_TRAINER)
		summary_set_text(&s->trainer, l->is.trainer.why);
	if (l->event == FAL_EV_FAILED)
		summary_set_text(&s->failed, l->is.failed.reason);
	s->done |= l->event == FAL_EV_DONE;
	if (l->event == FAL_EV_GAP)
		s->has_gap = s->is_partial = true;
	if (take[l->event] != NULL)
		take[l->event](s, l);
	return l->err;
}

void
fal_summary_free(struct fal_summary *s)
{
	for (size_t i = 0; i < s->n_worker; i++) {
		free(s->worker[i].name);
		free(s->worker[i].fingerprint);
		free(s->worker[i].kernels);
		free(s->worker[i].key);
		free(s->worker[i].key_fingerprint);
		free(s->worker[i].build);
		free(s->worker[i].suspicion.why);
		free(s->worker[i].stays.v);
	}
	free(s->worker);
	free(s->epoch);
	free(s->name);
	free(s->scheme);
	free(s->above);
	free(s->failed);
	free(s->verify.who);
	free(s->trainer);
	fal_ids_free(&s->ids);
	json_decref(s->names);
	fal_trace_place_free(&s->moves.map);
	*s = (struct fal_summary){ 0 };
}

/* ---- the end ----------------------------------------------------------------------- */

/* A pause is silence if it lasts longer than 10 s and than 4 times the longest earlier
 * pause. */
static bool
is_silence(double seconds, double longest)
{
	return seconds > fmax(10, 4 * longest);
}

/* Finds whether the job is stalled and which workers are silent, at the last line. */
static void
summary_find_silent(struct fal_summary *s)
{
	const uint64_t n = summary_ring_length(s);
	double longest = 0, last = 0;
	if (s->done || s->failed != NULL || s->clocks >= s->job.clocks)
		return;
	for (uint64_t i = s->ticks - n; i < s->ticks; i++) {
		const double t = s->tick[i % RING].t;
		if (i > s->ticks - n)
			longest = fmax(longest, t - last);
		last = t;
	}
	last = fmax(last,
		    s->resumed.t); /* no update came while the coordinator was away */
	if (is_silence(s->seconds - last, longest))
		s->stalled = s->seconds - last;
	for (size_t i = 0; i < s->n_worker; i++) {
		struct fal_summary_worker *w = &s->worker[i];
		w->silent = !w->left && is_silence(s->seconds - w->last_work,
						   s->stalled > 0 ? 0 : w->longest);
	}
}

/* Computes the rates and the capacity over the time of the ring. */
static void
summary_set_rates(struct fal_summary *s)
{
	const uint64_t n = summary_ring_length(s);
	if (n < 2)
		return;
	const double from = s->tick[(s->ticks - n) % RING].t;
	const double to = s->tick[(s->ticks - 1) % RING].t;
	if (!(to > from))
		return;
	for (size_t i = 0; i < s->n_worker; i++) {
		const struct fal_summary_worker *w = &s->worker[i];
		const uint64_t cores = w->lanes_max < w->cores ? w->lanes_max : w->cores;
		const bool is_current =
			w->own_rounds || w->last_clock + 1 >= s->last_clock;
		double here = 0; /* seconds in which the worker could be given work */
		for (size_t k = 0; k < w->stays.n; k++) {
			const struct fal_summary_stay *stay = &w->stays.v[k];
			const double last =
				is_current ? stay->to : fmin(stay->to, w->last_report);
			here += fmax(fmin(last, to) - fmax(stay->from, from), 0);
		}
		if (w->core_s > 0)
			s->rate.capacity +=
				here / (to - from) * (double)cores * w->ran / w->core_s;
	}
	if (s->stalled > 0)
		return;
	double samples = 0, clocks = 0;
	for (uint64_t i = s->ticks - n + 1; i < s->ticks; i++) {
		samples += (double)s->tick[i % RING].samples;
		clocks += s->tick[i % RING].clocks;
	}
	s->rate.updates = (double)(n - 1) / (to - from);
	s->rate.clocks = clocks / (to - from);
	s->rate.samples = samples / (to - from);
}

static bool
worker_is_nondeterministic(const struct fal_summary_worker *w)
{
	static const char mark[] = "0000000000000000"; /* READY, falcon-protocol(7) */
	return strncmp(w->fingerprint, mark, strlen(mark)) == 0;
}

/* Marks the workers that are nondeterministic or do not have the most frequent
 * fingerprint.  Of equally frequent fingerprints the earliest one counts.  The
 * fingerprint of a nondeterministic worker never counts: it says nothing about equality.
 */
static void
summary_compare_numerics(struct fal_summary *s)
{
	size_t best = 0, most = 0, same;
	json_t *have = NULL; /* the number of workers with each fingerprint */
	for (size_t i = 0; i < s->n_worker; i++) {
		(void)fal_names_get(&have, s->worker[i].fingerprint, &same);
		fal_names_put(&have, s->worker[i].fingerprint, same + 1);
	}
	for (size_t i = 0; i < s->n_worker; i++) {
		(void)fal_names_get(&have, s->worker[i].fingerprint, &same);
		if (same > most && !worker_is_nondeterministic(&s->worker[i])) {
			most = same;
			best = i;
		}
	}
	s->identical = most == s->n_worker;
	const char *build = s->n_worker > 0 ? s->worker[best].build : NULL;
	for (size_t i = 0; i < s->n_worker; i++) {
		struct fal_summary_worker *w = &s->worker[i];
		w->numerics.nondeterministic = worker_is_nondeterministic(w);
		w->numerics.differs =
			w->numerics.nondeterministic ||
			strcmp(w->fingerprint, s->worker[best].fingerprint) != 0;
		w->numerics.skewed = w->numerics.differs && w->build != NULL &&
				     build != NULL && strcmp(w->build, build) != 0;
	}
	json_decref(have);
}

const char *
fal_summary_class(const struct fal_summary_worker *w)
{
	return w->left              ? "left"
	       : w->suspicion.holds ? "suspect"
	       : w->silent          ? "silent"
				    : fal_class_name(w->verdict.class);
}

int
fal_summary_end(struct fal_summary *s, struct fal_diag *diag)
{
	if (!s->has_job)
		return fal_diag_set(diag, FAL_ETRUNC, "no job line");
	s->stalled = 0;
	memset(&s->rate, 0, sizeof(s->rate));
	if (s->n_epoch > 0 && s->epoch[0].epoch == 1)
		s->epoch[0].begin = fmin(s->began, s->epoch[0].end);
	/* The clocks: from the tasks that have ended or, if the first ones are missing,
	 * from the newest clock of an update. */
	const struct fal_trace_job *j = &s->job;
	const uint64_t most = fal_grid_tasks(&j->grid, 0), n = j->clocks_per_epoch;
	const uint64_t per_epoch = (n - 1) * most + fal_grid_tasks(&j->grid, n - 1);
	const uint64_t ended =
		s->ended_tasks / per_epoch * n + s->ended_tasks % per_epoch / most;
	s->clocks = ended < j->clocks ? ended : j->clocks;
	if (s->is_partial || s->ended_tasks == 0 || s->above != NULL)
		s->clocks = s->next_clock;
	summary_find_silent(s);
	summary_set_rates(s);
	fal_shard_rows_end(&s->shards);
	summary_compare_numerics(s);
	struct fal_trace_load *load = fal_xcalloc(s->n_worker, sizeof(*load));
	struct fal_trace_class *verdict = fal_xcalloc(s->n_worker, sizeof(*verdict));
	for (size_t i = 0; i < s->n_worker; i++)
		load[i] = s->worker[i].load;
	fal_trace_classify(load, s->n_worker, verdict);
	for (size_t i = 0; i < s->n_worker; i++)
		s->worker[i].verdict = verdict[i];
	free(load);
	free(verdict);
	return FAL_OK;
}

/* ---- classes ----------------------------------------------------------------------- */

/* The parts of a projected time, in the order of enum fal_cause, and their sum. */
enum { COMPUTE, PUSH, PULL, LATENCY, SUM, PARTS };

/* `idle`: compute of a worker that ran no task. */
static void
load_parts(const struct fal_trace_load *w, double share, double idle,
	   double parts[static PARTS])
{
	parts[COMPUTE] = w->size > 0 ? share * w->lane_s / w->size : idle;
	parts[PUSH] = w->push / (double)w->clocks;
	parts[PULL] = w->pull / (double)w->clocks;
	parts[LATENCY] = w->latency / (double)w->clocks;
	parts[SUM] = parts[COMPUTE] + parts[PUSH] + parts[PULL] + parts[LATENCY];
}

static bool
load_has_run(const struct fal_trace_load *w)
{
	return w->size > 0 && w->clocks > 0;
}

void
fal_trace_classify(const struct fal_trace_load *loads, size_t n,
		   struct fal_trace_class *out)
{
	double *v = fal_xcalloc(n, sizeof(*v)), med[PARTS] = { 0 }, parts[PARTS];
	double size = 0, clocks = 0;
	for (size_t i = 0; i < n; i++) {
		size += load_has_run(&loads[i]) ? loads[i].size : 0;
		clocks += load_has_run(&loads[i]) ? (double)loads[i].clocks : 0;
	}
	double share = clocks > 0 ? size / clocks : 0;
	for (int p = 0; p < PARTS; p++) {
		size_t k = 0;
		for (size_t i = 0; i < n; i++) {
			if (!load_has_run(&loads[i]))
				continue;
			load_parts(&loads[i], share, 0, parts);
			v[k++] = parts[p];
		}
		med[p] = k > 0 ? fal_quantile(v, k, 0.5) : 0;
	}
	for (size_t i = 0; i < n; i++) {
		out[i] = (struct fal_trace_class){ 0 };
		if (loads[i].clocks == 0 || !(med[SUM] > 0))
			continue;
		load_parts(&loads[i], share, med[COMPUTE], parts);
		struct fal_trace_class c = { .class = FAL_CLASS_STEADY,
					     .projected = parts[SUM] };
		if (parts[SUM] > med[SUM] * (1 + FAL_CLASS_TOLERANCE))
			c.class = FAL_CLASS_STRAGGLER;
		else if (parts[SUM] < med[SUM] * (1 - FAL_CLASS_TOLERANCE))
			c.class = FAL_CLASS_PIONEER;
		/* The cause is the part that differs most. */
		const double sign = c.class == FAL_CLASS_PIONEER ? -1 : 1;
		int worst = COMPUTE;
		for (int p = PUSH; p <= LATENCY; p++)
			if (sign * (parts[p] - med[p]) >
			    sign * (parts[worst] - med[worst]))
				worst = p;
		if (c.class != FAL_CLASS_STEADY)
			c.cause = (enum fal_cause)(FAL_CAUSE_COMPUTE + worst);
		if (load_has_run(&loads[i]) || c.class == FAL_CLASS_STRAGGLER)
			out[i] = c;
	}
	free(v);
}

const char *
fal_class_name(enum fal_class c)
{
	static const char *const name[] = { "-", "steady", "straggler", "pioneer",
					    "stalls" };
	return name[c];
}

const char *
fal_cause_name(enum fal_cause c)
{
	static const char *const name[] = { "-", "compute", "push", "pull", "latency" };
	return name[c];
}
