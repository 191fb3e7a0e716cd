/* The audit across lines: the workers that joined, the tasks that have ended, the rounds
 * that make versions, the scheme in force. */
#include "trace/audit.h"

#include "base/mem.h"
#include "trace/audit_priv.h"
#include "wire/block_map.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	CHARGES_MAX = 2,        /* a worker with so many charges must leave */
	NONFINITE_MAX = 1 << 16 /* the most nonfinite results of tasks under way */
};

/* Adds a finding about line l, or about round r. */
#define finding_line(a, l, ...) fal_finding_of_line(&(a)->findings, l, __VA_ARGS__)
#define finding_round(a, r, ...) fal_finding(&(a)->findings, r, 0, 0, __VA_ARGS__)

/* ---- the audit -----------------------------------------------------------------------
 */

struct fal_audit *
fal_audit_new(void)
{
	struct fal_audit *a = fal_xcalloc(1, sizeof(*a));
	a->facts.job = &a->job;
	a->facts.link = a->verdict.link = a->chain.link;
	a->facts.evals = &a->verdict.evals;
	a->facts.sums = &a->verdict.sums;
	return a;
}

void
fal_audit_demand(struct fal_audit *a, unsigned demands)
{
	a->demands = demands;
	a->rules.wants_divisors = (demands & FAL_AUDIT_PARTS) != 0;
}

void
fal_audit_free(struct fal_audit *a)
{
	if (a == NULL)
		return;
	for (size_t i = 0; i < a->findings.n_text; i++)
		free(a->findings.text[i]);
	free(a->findings.text);
	free(a->findings.kind);
	for (size_t i = 0; i < a->workers.keys; i++) {
		free(a->workers.key[i].name);
		free(a->workers.key[i].fingerprint);
	}
	free(a->workers.key);
	for (size_t i = 0; i < a->workers.n; i++) {
		free(a->workers.v[i].name);
		fal_intervals_free(&a->workers.v[i].seqs);
	}
	free(a->workers.v);
	fal_ids_free(&a->workers.ids);
	json_decref(a->workers.names);
	fal_trace_place_free(&a->place);
	for (uint64_t p = 0; a->ended_tasks != NULL && p < a->job.grid.parts; p++)
		fal_intervals_free(&a->ended_tasks[p]);
	free(a->ended_tasks);
	fal_intervals_free(&a->round_numbers);
	free(a->rules.slot);
	free(a->rules.push);
	free(a->nonfinite);
	free(a->verdict.evals.all);
	free(a->waiting);
	free(a);
}

/* ---- workers and keys ----------------------------------------------------------------
 */

static bool
worker_is_here(const struct fal_audit *a, uint64_t id)
{
	const struct audit_worker *w = fal_audit_worker(a, id);
	return w != NULL && w->is_here;
}

/* Returns whether a worker of another key is here. */
static bool
has_other_key(const struct fal_audit *a, size_t key)
{
	for (size_t i = 0; i < a->workers.n; i++)
		if (a->workers.v[i].is_here && a->workers.v[i].key != key)
			return true;
	return false;
}

static void
take_join(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_join *e = &l->is.join;
	struct audit_worker w = { .is_here = true,
				  .joined_at = l->t,
				  .joined_version = a->version };
	size_t last;
	if (e->key != NULL && e->key_fingerprint != NULL) {
		/* Keys with the same name or fingerprint are one. */
		size_t k = 0;
		while (k < a->workers.keys &&
		       strcmp(a->workers.key[k].name, e->key) != 0 &&
		       strcmp(a->workers.key[k].fingerprint, e->key_fingerprint) != 0)
			k++;
		if (k == a->workers.keys) {
			FAL_XGROW(a->workers.key, a->workers.key_cap, k + 1);
			a->workers.key[a->workers.keys++] =
				(struct audit_key){ fal_xstrdup(e->key),
						    fal_xstrdup(e->key_fingerprint), 0 };
		}
		w.key = k + 1;
	}
	if (fal_ids_get(&a->workers.ids, e->id) != NULL) {
		finding_line(a, l, "worker %u joined before", e->id);
		return;
	}
	if (fal_names_get(&a->workers.names, e->worker, &last) &&
	    a->workers.v[last].is_here)
		finding_line(a, l, "worker %u joined as %.64s, who is here", e->id,
			     e->worker);
	if (w.key != 0 && a->workers.key[w.key - 1].charges >= CHARGES_MAX &&
	    has_other_key(a, w.key))
		finding_line(a, l, "worker %u joined by a key that was charged twice",
			     e->id);
	FAL_XGROW(a->workers.v, a->workers.cap, a->workers.n + 1);
	w.name = fal_xstrdup(e->worker);
	fal_names_put(&a->workers.names, e->worker, a->workers.n);
	fal_ids_put(&a->workers.ids, e->id, a->workers.n);
	a->workers.v[a->workers.n++] = w;
}

/* A worker with two charges must leave next: only clock lines may come before its
 * `leave`. */
static void
judge_charged(struct fal_audit *a, const struct fal_trace_line *l)
{
	if (a->workers.must_leave == 0)
		return;
	finding_line(a, l, "worker %u was charged twice, but did not leave",
		     a->workers.must_leave);
	a->workers.must_leave = 0;
}

static void
take_charge(struct fal_audit *a, struct fal_trace_line *l)
{
	struct audit_worker *w = fal_audit_worker(a, l->id);
	a->verdict.charges++;
	if (w == NULL) {
		finding_line(a, l, "worker %u was charged, but never joined", l->id);
		return;
	}
	if (w->key != 0)
		a->workers.key[w->key - 1].charges++;
	if (++w->charges >= CHARGES_MAX && w->is_here)
		a->workers.must_leave = l->id;
}

/* Lines `suspect` and `back` alternate, and their seconds agree with their times. */
static void
take_suspicion(struct fal_audit *a, struct fal_trace_line *l)
{
	static const double rounding = 1e-3; /* seconds */
	const bool back = l->event == FAL_EV_BACK;
	const double seconds = back ? l->is.back.seconds : l->is.suspect.seconds;
	struct audit_worker *w = fal_audit_worker(a, l->id);
	const char *fault = NULL;
	a->verdict.suspects += !back;
	if (w == NULL || !w->is_here)
		fault = "is not here";
	else if (w->is_suspect != back)
		fault = back ? "was no suspect" : "was a suspect already";
	else if (!back && seconds > l->t - w->joined_at + rounding)
		fault = "was to work before it joined";
	else if (back && fabs(seconds - (l->t - w->suspect_since)) > rounding)
		fault = "was a suspect for another time";
	if (fault != NULL)
		finding_line(a, l, "%s: worker %u %s", l->ev, l->id, fault);
	if (w != NULL) {
		w->is_suspect = !back;
		w->suspect_since = l->t;
	}
}

/* ---- a worker's two accounts of its work ---------------------------------------------
 */

/* A worker reports the figures of a round when the round has ended, and all outstanding
 * ones when the worker leaves or the job is done.  Then the sum of the reports lies
 * between the sum over the rounds that have ended, and that sum with the rounds that
 * were open or abandoned.  With shared rounds, the clock number rises by one from each
 * clock line of a worker to the worker's next one.  A worker that is here when the job
 * is done has a line of the last clock; without that line the worker had gone, and its
 * `leave` is missing. */
enum { ALL_FIGURES = (1 << FAL_FIGURES) - 1 };

static void
take_clock(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_clock *e = &l->is.clock;
	const uint64_t figure[FAL_FIGURES] = { e->share, e->done,   e->in,
					       e->out,   e->cloned, e->lost };
	const bool gappy = !a->rounds_are_clocks || a->accounts.was_restarted;
	struct audit_worker *w = fal_audit_worker(a, l->id);
	if (a->rounds_are_clocks && e->staleness > a->rules.rule.slack)
		finding_line(a, l, "clock: staleness is %ju with a slack of %u",
			     e->staleness, a->rules.rule.slack);
	if (w == NULL || !w->is_here)
		finding_line(a, l, "clock: worker %u is not here", l->id);
	if (w == NULL)
		return;
	for (size_t i = 0; i < FAL_FIGURES; i++)
		w->reported[i] += figure[i];
	/* The first line includes seconds before the join. */
	if (w->has_reported)
		w->spent += e->compute + e->push + e->pull + e->wait;
	w->has_reported = true;
	const double seconds = l->t - w->joined_at;
	/* Allows 1 s and 1 %: worker and coordinator have different clocks. */
	if (w->spent > seconds + 1 + seconds / 100)
		finding_line(a, l,
			     "clock: worker %u was here for %.3f s, but spent %.3f s",
			     l->id, seconds, w->spent);
	if (e->round != FAL_TRACE_ABSENT)
		return;
	if (!gappy && w->next_clock != 0 && e->clock != w->next_clock)
		finding_line(a, l,
			     "clock: worker %u tells of clock %ju, but clock %ju is next",
			     l->id, e->clock, w->next_clock);
	w->next_clock = e->clock + 1;
}

/* Returns the set of figures that must be reported in full when the job is done.  If a
 * step is ordered before its round is complete, claims may follow the step.  A whole
 * report may follow it, too, and a change of the scheme drops that report. */
static unsigned
due_figures(const struct fal_audit *a)
{
	if (a->accounts.has_late_joins)
		return 0;
	if (a->accounts.has_early_claims &&
	    (!a->rounds_are_clocks || a->accounts.was_restarted))
		return 1U << FAL_FIGURE_SHARE;
	return a->accounts.has_early_claims ? ALL_FIGURES & ~(1U << FAL_FIGURE_DONE)
					    : ALL_FIGURES;
}

/* The worker's clock lines must reach the ledger's sums of the figures in `least`.  With
 * `most`, they must not exceed the ledger's sum of any figure. */
static void
judge_reports(struct fal_audit *a, const struct fal_trace_line *l, uint32_t id,
	      unsigned least, bool most)
{
	static const char *const names[] = { "share", "done",   "in",
					     "out",   "cloned", "lost" };
	const struct audit_worker *w = fal_audit_worker(a, id);
	for (size_t i = 0; i < FAL_FIGURES; i++) {
		const uint64_t all = w->certain[i] + w->possible[i];
		const bool must = (least >> i & 1) != 0;
		if ((!must || w->reported[i] >= w->certain[i]) &&
		    (!most || w->reported[i] <= all))
			continue;
		finding_line(
			a, l,
			"%s: worker %u: %s is %ju in its clock lines, %ju in the ledger",
			l->ev, id, names[i], w->reported[i],
			w->reported[i] < all ? w->certain[i] : all);
	}
}

static void
take_leave(struct fal_audit *a, struct fal_trace_line *l)
{
	struct audit_worker *w = fal_audit_worker(a, l->id);
	if (l->id == a->workers.must_leave)
		a->workers.must_leave = 0;
	else
		judge_charged(a, l);
	if (w == NULL || !w->is_here)
		finding_line(a, l, "worker %u left, but is not here", l->id);
	if (w == NULL)
		return;
	w->is_here = false;
	w->left_version = a->version;
	const unsigned due = due_figures(a);
	if ((a->demands & FAL_AUDIT_CLOCKS) != 0)
		judge_reports(a, l, l->id,
			      a->accounts.has_early_claims ? due & 1U << FAL_FIGURE_SHARE
							   : due,
			      false);
}

/* The job is done: every worker must have written its last clock line. */
static void
judge_accounts(struct fal_audit *a, const struct fal_trace_line *l)
{
	for (size_t i = 0; i < a->workers.ids.n; i++) {
		const uint32_t id = a->workers.ids.v[i].id;
		const struct audit_worker *w = fal_audit_worker(a, id);
		judge_reports(a, l, id, w->is_here ? due_figures(a) : 0,
			      !a->accounts.was_restarted);
		/* When the last round is complete, the coordinator has announced the
		 * version of that round, and asks all workers for their last line.  A
		 * worker that joined after this version may have come too late. */
		const bool late =
			w->next_clock == 0 && w->joined_version >= a->accounts.last_base;
		if (w->is_here && a->rounds_are_clocks && !a->accounts.was_restarted &&
		    w->next_clock != a->job.clocks && !late)
			finding_line(a, l, "done: worker %u has no line of clock %ju", id,
				     w->next_clock > 0 ? w->next_clock
						       : a->job.clocks - 1);
	}
}

/* ---- which tasks have ended ----------------------------------------------------------
 */

/* Returns the tasks of part p in all clocks before `clock`.  Only the last clock of an
 * epoch differs from the others. */
static uint64_t
part_tasks_before(const struct fal_audit *a, uint32_t p, uint64_t clock)
{
	const uint64_t n = a->job.clocks_per_epoch;
	uint64_t width[2];
	for (uint64_t i = 0; i < 2; i++) {
		const uint64_t in_epoch = i * (n - 1);
		width[i] = fal_grid_part_first_task(&a->job.grid, in_epoch, p + 1) -
			   fal_grid_part_first_task(&a->job.grid, in_epoch, p);
	}
	return clock / n * ((n - 1) * width[0] + width[1]) + clock % n * width[0];
}

/* The number of tasks of the whole job must fit 63 bits. */
static void
coverage_check_limit(const struct fal_audit *a, struct fal_trace_line *l)
{
	if (a->job.clocks > INT64_MAX / fal_grid_tasks_max(&a->job.grid))
		fal_trace_fail(l, FAL_ELIMIT, "%s", fal_strerror(FAL_ELIMIT));
}

/* Adds the round's tasks to those that have ended.  Returns whether some had ended
 * before; *overlapping is the first of them. */
static bool
coverage_add(struct fal_audit *a, struct fal_trace_line *l,
	     const struct fal_trace_round *r, uint64_t *overlapping)
{
	const struct fal_grid *g = &a->job.grid;
	const uint64_t end_of = r->first + r->tasks;
	bool overlap = false;
	for (uint32_t p = fal_grid_task_part(g, r->clock, (uint32_t)r->first);
	     p < g->parts && fal_grid_part_first_task(g, r->clock, p) < end_of; p++) {
		const uint64_t from = fal_grid_part_first_task(g, r->clock, p);
		const uint64_t to = fal_grid_part_first_task(g, r->clock, p + 1);
		uint64_t base = part_tasks_before(a, p, r->clock), at;
		uint64_t begin = r->first > from ? r->first : from;
		uint64_t end = end_of < to ? end_of : to;
		if (begin >= end ||
		    !fal_audit_add_range(l, &a->ended_tasks[p], base + begin - from,
					 base + end - from, &at))
			continue;
		*overlapping = overlap ? *overlapping : at - base + from;
		overlap = true;
	}
	return overlap;
}

/* ---- the job and its scheme ----------------------------------------------------------
 */

/* Another scheme begins only when no round of the old scheme is under way. */
static void
audit_set_scheme(struct fal_audit *a, struct fal_trace_line *l, const char *text)
{
	struct fal_rule rule;
	if (fal_trace_scheme_read(l, text, &rule) < 0)
		return;
	if (strcmp(text, a->scheme) == 0)
		return;
	if (a->n_waiting > 0)
		finding_round(a, &a->waiting[0], "no update before the scheme changes");
	a->n_waiting = 0;
	const struct fal_traits traits = fal_rule_traits(&rule);
	a->rounds_are_clocks = a->rounds_are_clocks && traits.shared;
	a->has_delay = a->has_delay || traits.delay > 0;
	a->accounts.has_early_claims = a->accounts.has_early_claims || traits.shared;
	a->accounts.has_late_joins = a->accounts.has_late_joins ||
				     (!traits.shared && (traits.groups || traits.moves));
	snprintf(a->scheme, sizeof(a->scheme), "%s", text);
	a->rules.rule = rule;
	a->rules.traits = traits;
	a->rules.base_version = a->version;
	a->rules.applied = a->rules.newest_slot = 0;
	a->rules.slots = 0;
}

static void
take_policy(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_policy *e = &l->is.policy;
	if (e->version != a->version)
		finding_line(a, l, "policy: version is %ju, not %ju", e->version,
			     a->version);
	if (!a->has_policy && strcmp(e->scheme, a->scheme) != 0)
		finding_line(a, l, "policy: the job does not begin with %.64s",
			     e->scheme);
	a->has_policy = true;
	audit_set_scheme(a, l, e->scheme);
}

/* Copies a text into an array; NULL: "". */
#define SET_TEXT(to, text) snprintf((to), sizeof(to), "%s", (text) != NULL ? (text) : "")

static void
take_job(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_job *e = &l->is.job;
	a->rounds_are_clocks = true;
	a->facts.loss = a->facts.trained = (double)NAN;
	audit_set_scheme(a, l, e->scheme);
	if (l->err < 0 || fal_trace_job_read(l, &a->job) < 0)
		return;
	a->has_job = true;
	a->is_group = e->above != NULL && e->above[0] != '\0';
	if (a->is_group) { /* the coordinator above ends the clocks */
		a->rounds_are_clocks = false;
		a->accounts.has_late_joins = true;
	}
	SET_TEXT(a->facts.above, e->above);
	SET_TEXT(a->facts.hash, e->hash);
	SET_TEXT(a->facts.model, e->model);
	SET_TEXT(a->facts.data, e->data);
	SET_TEXT(a->facts.from, e->from);
	SET_TEXT(a->facts.name, e->name);
	SET_TEXT(a->facts.seed, e->seed);
	SET_TEXT(a->facts.optimizer, e->optimizer);
	coverage_check_limit(a, l);
	a->ended_tasks = fal_xcalloc(a->job.grid.parts, sizeof(*a->ended_tasks));
}

/* The same job goes on, perhaps with more epochs or with changed files. */
static void
take_restart(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_restart *e = &l->is.restart;
	const struct {
		const char *name, *is;
		char *told;
	} of[] = { { "hash", e->hash, a->facts.hash },
		   { "model", e->model, a->facts.model },
		   { "data", e->data, a->facts.data },
		   { "from", e->from, a->facts.from } };
	const uint32_t epochs = a->job.grid.epochs;
	/* The reports to the old coordinator are lost.  Shard lines and maps begin again
	 * with each incarnation. */
	a->accounts.has_late_joins = a->accounts.was_restarted = true;
	a->place.map = 0;
	memset(&a->shards, 0, sizeof(a->shards));
	if (!a->has_job || fal_trace_job_restart(l, &a->job) < 0)
		return;
	a->facts.resumed = true;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		char is[sizeof(a->facts.hash)];
		SET_TEXT(is, of[i].is);
		if (e->accepted == NULL && !(i == 0 && a->job.grid.epochs > epochs) &&
		    strcmp(is, of[i].told) != 0)
			finding_line(a, l, "restart: %s is of another job", of[i].name);
		memcpy(of[i].told, is, sizeof(is));
	}
	if (e->accepted != NULL) {
		a->verdict.parts++;
		a->verdict.part_clock = e->clock;
		SET_TEXT(a->verdict.part, e->accepted);
	}
	coverage_check_limit(a, l);
}

/* ---- shards --------------------------------------------------------------------------
 */

/* Each map has the next number.  A map after a move may have a later number, as abandoned
 * moves have numbers, too. */
static void
take_place(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_trace_place *p = &a->place;
	const uint64_t next = p->map + 1;
	if (fal_trace_place_read(l, &a->job, &a->place) < 0)
		return;
	const bool moved = strcmp(p->rule, FAL_TRACE_MOVED) == 0;
	if (moved ? p->map < next : p->map != next)
		finding_line(a, l, "place: map %ju, not %ju", p->map, next);
	if (strcmp(p->rule, FAL_TRACE_BLOCKS) != 0) {
		if (!moved && strcmp(p->rule, FAL_TRACE_FILE) != 0)
			finding_line(a, l, "place: no rule is called %s", p->rule);
		return;
	}
	/* A map by the rule `blocks` must be even. */
	uint32_t b = 0, shard = 0;
	for (uint32_t i = 0; i < p->places; i++) {
		const uint32_t first = b,
			       end = fal_map_first(p->blocks, p->places, i + 1);
		for (; b < end; b++) {
			if (p->shard[b] == shard)
				continue;
			finding_line(a, l,
				     "place: block %u is on shard %u; by the rule blocks "
				     "it is on %u",
				     b, p->shard[b] + 1, shard + 1);
			return;
		}
		shard += b > first;
	}
}

/* Shard lines come in sets: one line of each shard, in order.  Each set is of a later
 * clock than the set before.  The shards of a set have all blocks, each shard as many as
 * the last place line says. */
static void
take_shard(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_shard *e = &l->is.shard;
	const bool first = a->shards.next == 0, mapped = a->place.map > 0;
	uint64_t placed = 0;
	if (fal_trace_shard_check(l, &a->job) < 0)
		return;
	if (e->shard != a->shards.next + 1)
		finding_line(a, l,
			     "shard: the line is of shard %ju, but shard %ju is next",
			     e->shard, a->shards.next + 1);
	else if (first ? e->clock < a->shards.over : e->clock + 1 != a->shards.over)
		finding_line(a, l, "shard: a set of clock %ju follows a set of clock %ju",
			     e->clock, a->shards.over - 1);
	if (e->version > a->version)
		finding_line(a, l, "shard: version is %ju, but %ju is the newest",
			     e->version, a->version);
	for (uint32_t b = 0; mapped && b < a->place.blocks; b++)
		placed += a->place.shard[b] + 1 == e->shard;
	if (mapped && e->blocks != placed)
		finding_line(a, l, "shard: blocks is %ju, but the shard has %ju",
			     e->blocks, placed);
	if (e->blame > l->t || e->took > l->t)
		finding_line(a, l, "shard: workers waited longer than the job runs");
	a->shards.over = e->clock + 1;
	a->shards.blocks = first ? e->blocks : a->shards.blocks + e->blocks;
	const bool last =
		mapped ? e->shard >= a->place.shards : a->shards.blocks >= a->job.blocks;
	a->shards.next = last ? 0 : e->shard;
	if (last && a->shards.blocks != a->job.blocks)
		finding_line(a, l, "shard: all shards have %ju blocks, not %ju",
			     a->shards.blocks, a->job.blocks);
}

/* Two keys have different results of a task. */
static void
take_verify(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_word *w = l->is.verify.words.v;
	if (l->is.verify.words.n != 2) {
		fal_trace_fail(l, FAL_EFORMAT, "words: not two");
		return;
	}
	size_t key[2] = { 0 }; /* numbers of the two workers' keys, from 1; 0: unknown */
	for (size_t i = 0; i < 2; i++) {
		const struct audit_worker *worker = fal_audit_worker(a, w[i].id);
		if (worker == NULL)
			finding_line(a, l, "verify: worker %u never joined", w[i].id);
		else
			key[i] = worker->key;
	}
	if (w[0].id == w[1].id || (key[0] != 0 && key[0] == key[1]))
		finding_line(a, l, "verify: both results are of one key");
	if (strcmp(w[0].hash, w[1].hash) == 0)
		finding_line(a, l, "verify: the results are equal");
	a->verdict.unlike++;
}

/* ---- tasks without a finite result ---------------------------------------------------
 */

/* The worker must be here, and the job must have the task. */
static void
take_nonfinite(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct nonfinite new = { l->is.nonfinite.clock, l->is.nonfinite.task };
	const char *fault = NULL;
	if (new.clock >= a->job.clocks ||
	    new.task >= fal_grid_tasks(&a->job.grid, new.clock))
		fault = "the job has no such task";
	else if (!worker_is_here(a, l->id))
		fault = "it is not here";
	if (fault != NULL)
		finding_line(a, l, "%s: worker %u of task %ju of clock %ju: %s", l->ev,
			     l->id, new.task, new.clock, fault);
	a->verdict.nonfinite++;
	if (a->nonfinites == NONFINITE_MAX) {
		fal_trace_fail(l, FAL_ELIMIT, "more than %d wait for their tasks",
			       NONFINITE_MAX);
		return;
	}
	FAL_XGROW(a->nonfinite, a->nonfinite_cap, a->nonfinites + 1);
	a->nonfinite[a->nonfinites++] = new;
}

static int
nonfinite_order(const void *a, const void *b)
{
	const struct nonfinite *x = a, *y = b;
	return x->clock != y->clock ? (x->clock > y->clock) - (x->clock < y->clock)
				    : (x->task > y->task) - (x->task < y->task);
}

/* Returns whether two results of the task were not finite.  Needs a sorted list. */
static bool
was_nonfinite_twice(const struct fal_audit *a, const struct nonfinite *is)
{
	const struct nonfinite *first = a->nonfinite, *at = NULL;
	if (a->nonfinites > 0)
		at = bsearch(is, first, a->nonfinites, sizeof(*is), nonfinite_order);
	return at != NULL &&
	       ((at > first && nonfinite_order(at - 1, is) == 0) ||
		(at + 1 < first + a->nonfinites && nonfinite_order(at + 1, is) == 0));
}

/* A round that has ended may skip a task only if two results of the task were not finite.
 */
static void
judge_skipped(struct fal_audit *a, struct fal_numbers skipped,
	      const struct fal_trace_round *r)
{
	size_t kept = 0;
	if (skipped.n > 0 && a->nonfinites > 0)
		qsort(a->nonfinite, a->nonfinites, sizeof(*a->nonfinite),
		      nonfinite_order);
	for (size_t i = 0; i < skipped.n; i++) {
		const uint64_t *row = skipped.v + 2 * i;
		struct nonfinite at = { .clock = r->clock, .task = row[0] };
		const uint64_t end = row[0] + (row[1] < r->tasks ? row[1] : r->tasks);
		while (at.task < end && was_nonfinite_twice(a, &at))
			at.task++;
		if (at.task < end)
			fal_finding(&a->findings, r, at.task, 1,
				    "skipped without two results that were not finite");
	}
	for (size_t i = 0; i < a->nonfinites; i++) {
		const struct nonfinite at = a->nonfinite[i];
		if (at.clock != r->clock || at.task < r->first ||
		    at.task - r->first >= r->tasks || r->end == FAL_END_ABANDONED)
			a->nonfinite[kept++] = at;
	}
	a->nonfinites = kept;
}

/* ---- rounds --------------------------------------------------------------------------
 */

/* Returns whether the round may come now and its clock has its tasks.  If rounds are
 * clocks, the clocks that the round skips count as missing. */
static bool
judge_order(struct fal_audit *a, struct fal_trace_round *r)
{
	if (r->clock >= a->job.clocks) {
		finding_round(a, r, "ledger: the job has %ju clocks", a->job.clocks);
		return false;
	}
	if (fal_trace_round_is_complete(r) &&
	    (r->end == FAL_END_FORWARDED) != a->is_group) {
		finding_round(
			a, r,
			a->is_group
				? "applied, but the coordinator above makes the versions"
				: "given, but there is no coordinator above");
		return false;
	}
	const uint64_t tasks = fal_grid_tasks(&a->job.grid, r->clock);
	if (a->rounds_are_clocks && r->end != FAL_END_ABANDONED) {
		if (r->clock < a->next_clock || r->round != r->clock) {
			finding_round(a, r,
				      r->round != r->clock
					      ? "it is not the round of its clock"
					      : "ledger again, or out of order");
			return false;
		}
		if (r->clock > a->next_clock)
			fal_audit_add_finding(
				a, "clock %ju: no ledger before that of clock %ju",
				a->next_clock, r->clock);
		if (r->first != 0 || r->tasks != tasks)
			finding_round(a, r,
				      r->first == 0 ? "tasks is %ju, not %ju"
						    : "first is %ju, not 0",
				      r->first == 0 ? r->tasks : r->first, tasks);
		a->rules.applied += r->clock - a->next_clock;
		a->next_clock = r->clock + 1;
		r->first = 0;
		r->tasks = tasks;
		return true;
	}
	a->rounds_are_clocks = false;
	if (r->tasks == 0 || r->first >= tasks || r->tasks > tasks - r->first) {
		fal_finding(&a->findings, r, r->first, r->tasks,
			    "the clock has tasks 0-%ju", tasks - 1);
		return false;
	}
	if (a->rules.traits.shared && !a->is_group && r->round < a->last_round)
		finding_round(a, r, "it ended after round %ju", a->last_round);
	return true;
}

/* With a fractional slack, a part of the round's tasks ran on the next version: judges
 * where that part begins.  The first clock of a scheme has no such part. */
static void
judge_late(struct fal_audit *a, const struct fal_trace_round *r)
{
	const struct fal_rule *rule = &a->rules.rule;
	const struct fal_grid *g = &a->job.grid;
	uint64_t want = FAL_TRACE_ABSENT;
	if (rule->slack_q > 0 && a->rules.applied > 0)
		want = fal_grid_tasks_within(g, r->clock,
					     (uint64_t)fal_grid_samples(g, r->clock) *
						     rule->slack_p / rule->slack_q);
	if (r->late == want)
		return;
	if (want == FAL_TRACE_ABSENT)
		finding_round(a, r, "late is %ju, but no task runs on the next version",
			      r->late);
	else
		finding_round(a, r,
			      r->late == FAL_TRACE_ABSENT ? "late is missing: it is %ju"
							  : "late is not %ju",
			      want);
}

/* Judges the number of blocks that an update has left unchanged. */
static void
judge_unstepped(struct fal_audit *a, const struct fal_trace_line *l, uint64_t blocks)
{
	if (blocks > a->job.blocks)
		finding_line(a, l, "%ju of %ju blocks were not stepped", blocks,
			     a->job.blocks);
}

static void
take_ledger(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_ledger *e = &l->is.ledger;
	struct fal_trace_round r = fal_trace_round_of(e);
	uint64_t overlapping;
	if (!judge_order(a, &r))
		return;
	if (fal_audit_add_range(l, &a->round_numbers, r.round, r.round + 1, &overlapping))
		finding_round(a, &r, "ledger again, or out of order");
	/* The coordinator above may ask for tasks again; its ledger counts them. */
	if (r.end != FAL_END_ABANDONED && !a->is_group &&
	    coverage_add(a, l, &r, &overlapping))
		fal_finding(&a->findings, &r, overlapping, 1,
			    "it ended in an earlier round, too");
	if (l->err < 0)
		return;
	const uint64_t samples = fal_trace_round_samples(&r, e->skipped, &a->job);
	if (r.samples != samples)
		finding_round(a, &r, "samples is %ju, not %ju", r.samples, samples);
	r.samples = samples;
	if (r.blocks != a->job.blocks)
		finding_round(a, &r, "blocks is %ju, not %ju", r.blocks, a->job.blocks);
	if (r.owner != 0 && fal_audit_worker(a, r.owner) == NULL)
		finding_round(a, &r, "owner: worker %u never joined", r.owner);
	judge_unstepped(a, l, e->unstepped);
	a->last_round = r.round;
	if (r.version > a->version)
		finding_round(a, &r, "version is %ju, but the newest is %ju", r.version,
			      a->version);
	if (!a->is_group && r.end == FAL_END_APPLIED)
		judge_late(a, &r);
	if (!a->is_group)
		fal_rules_judge_round(&a->rules, &r, &a->findings);
	if (r.end == FAL_END_APPLIED) {
		if (a->n_waiting == FAL_AUDIT_WAITING_MAX) {
			fal_trace_fail(l, FAL_ELIMIT,
				       "round: %zu wait for an update before it",
				       a->n_waiting);
			return;
		}
		FAL_XGROW(a->waiting, a->cap_waiting, a->n_waiting + 1);
		a->waiting[a->n_waiting++] = r;
	}
	judge_skipped(a, e->skipped, &r);
	a->verdict.samples_dropped += r.end == FAL_END_DROPPED ? r.samples : 0;
	a->verdict.duplicate_samples += fal_trace_round_duplicates(e, &a->job);
	a->accounts.last_base = r.version;
	fal_judge_ledger(a, l, &r);
}

/* ---- versions ------------------------------------------------------------------------
 */

/* Round `number` becomes a part of the version.  The round must be the first that waits,
 * or the first of its group. */
static void
audit_pick_round(struct fal_audit *a, struct fal_rules_update *u, uint64_t number)
{
	const bool by_group = a->rules.rule.rounds > 0;
	size_t at = 0, kept = 0;
	while (at < a->n_waiting && a->waiting[at].round != number)
		at++;
	if (at == a->n_waiting) {
		fal_audit_add_finding(
			a, "version %ju: round %ju was not applied before, or twice",
			u->version, number);
		return;
	}
	const struct fal_trace_round r = a->waiting[at];
	char name[FAL_TRACE_ROUND_NAME];
	for (size_t i = 0; i < at; i++) {
		if (by_group && a->waiting[i].group != r.group)
			a->waiting[kept++] = a->waiting[i];
		else
			finding_round(a, &a->waiting[i], "no update before that of %s",
				      fal_trace_round_name(&r, name));
	}
	a->n_waiting -= at + 1;
	memmove(a->waiting + kept, a->waiting + at + 1, a->n_waiting * sizeof(r));
	a->n_waiting += kept;
	assert(by_group || kept == 0);
	u->clock = r.clock > u->clock ? r.clock : u->clock;
	u->tasks += u->last.tasks;
	u->last = r;
	u->samples += r.samples;
	u->local++;
	if (u->at == 0 || (u->line->groups > 0 && r.group != u->group)) {
		u->group = r.group;
		u->base_version = r.version;
		u->local = 1;
	}
	u->clock_samples = fal_grid_samples(&a->job.grid, r.clock) + r.samples -
			   fal_trace_range_samples(&a->job, r.clock, r.first, r.tasks);
	if (r.samples > 0)
		u->share += (double)r.samples / (double)u->clock_samples;
	fal_stale_add(&a->verdict.stale, &r, u->version);
	fal_rules_judge_update_round(&a->rules, u, &a->findings);
}

/* Copies the hash of a version into `out`, "" if the line has none; returns whether the
 * line has a hash. */
static bool
audit_get_hash(struct fal_audit *a, struct fal_trace_line *l, const char *hash,
	       char out[static 65])
{
	snprintf(out, 65, "%s", hash != NULL ? hash : "");
	if (hash != NULL && a->job.hashes == 0)
		finding_line(a, l, "a hash, but the job's versions have none");
	return hash != NULL;
}

static void
take_update(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_update *e = &l->is.update;
	struct fal_rules_update u = { .line = e, .version = a->version + 1 };
	fal_rules_begin_update(&a->rules, e);
	for (; u.at < e->rounds.n; u.at++)
		audit_pick_round(a, &u, e->rounds.v[u.at]);
	if (e->rounds.n == 0)
		fal_audit_add_finding(a, "version %ju is made of no round", u.version);
	fal_rules_end_update(&a->rules, &u, &a->findings);
	const struct {
		const char *name;
		uint64_t is, want;
	} of[] = { { "version", e->version, u.version },
		   { "clock", e->clock, u.clock },
		   { "samples", e->samples, u.samples },
		   { "epoch", e->epoch, u.clock / a->job.clocks_per_epoch + 1 } };
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		if (of[i].is != of[i].want)
			fal_audit_add_finding(a, "clock %ju: update: %s is %ju, not %ju",
					      e->clock, of[i].name, of[i].is, of[i].want);
	judge_unstepped(a, l, e->unstepped);
	/* At least one version in job.hashes versions has a hash. */
	if (!audit_get_hash(a, l, e->hash, a->version_hash) && a->job.hashes > 0 &&
	    e->version % a->job.hashes == 0)
		fal_audit_add_finding(a, "version %ju: it has no hash", e->version);
	a->facts.loss = e->loss;
	fal_trace_read_metrics(l, e->metrics.v, e->metrics.n, (double)e->samples,
			       &a->facts.metric_names, &a->facts.metrics);
	/* A later version counts as the newest one, so that one gap makes one finding. */
	a->version = e->version > u.version ? e->version : u.version;
}

/* A version came from the coordinator above. */
static void
take_version(struct fal_audit *a, struct fal_trace_line *l)
{
	const uint64_t version = l->is.version.version;
	if (!a->is_group || version < a->version)
		finding_line(a, l,
			     a->is_group ? "version is %ju, but %ju came before"
					 : "version %ju came from above, but there is no "
					   "coordinator above",
			     version, a->version);
	a->version = a->is_group && version > a->version ? version : a->version;
}

/* ---- evaluations ---------------------------------------------------------------------
 */

/* The trace has all digits of a double. */
static bool
reals_are_equal(double a, double b)
{
	return fabs(a - b) <= 1e-12;
}

/* Returns the fault of an evaluation's numbers or of its place; NULL: none. */
static const char *
eval_fault(const struct fal_audit *a, const struct fal_ev_eval *e)
{
	const struct fal_evals *last = &a->verdict.evals;
	const double right = (double)e->right, total = (double)e->total;
	if (a->job.test > 0 && e->total != a->job.test)
		return "total is not the test samples of the job";
	if (e->right > e->total)
		return "right is more than total";
	if (!reals_are_equal(e->accuracy, e->total > 0 ? right / total : 0))
		return "accuracy is not right / total";
	if (last->lines > 0 && e->version <= last->version)
		return "version is not after that of the last one";
	if (e->epoch > a->job.grid.epochs)
		return "the job has no such epoch";
	if (a->rounds_are_clocks &&
	    (e->version == 0 || e->epoch != e->version / a->job.clocks_per_epoch))
		return "version is not of that epoch";
	return NULL;
}

static void
take_eval(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_eval *e = &l->is.eval;
	struct fal_evals *all = &a->verdict.evals;
	const char *fault = eval_fault(a, e);
	all->plain = a->rounds_are_clocks;
	if (fault != NULL)
		finding_line(a, l, "eval: %s", fault);
	FAL_XGROW(all->all, a->evals_cap, (size_t)all->lines + 1);
	all->all[all->lines] = (struct fal_evaluation){ e->version, e->accuracy };
	/* Evaluations come at a fixed interval of clocks, and at the end. */
	if (all->lines++ == 0)
		a->first_eval = e->version;
	if (a->rounds_are_clocks && !a->has_delay && a->stray_eval == 0 &&
	    a->first_eval > 0 && e->version % a->first_eval != 0)
		a->stray_eval = e->version;
	all->version = e->version;
	all->accuracy = e->accuracy;
	all->loss = e->loss;
	fal_trace_read_metrics(l, e->metrics.v, e->metrics.n, (double)e->total,
			       &a->facts.metric_names, &all->metrics);
	/* Another key must have repeated some test tasks of each key, or have been asked
	 * to repeat them. */
	const uint64_t want = (a->job.test + a->job.grid.task - 1) / a->job.grid.task;
	uint64_t tasks = 0;
	for (size_t i = 0; i < e->keys.n; i++) {
		const struct fal_ev_eval_key *k = &e->keys.v[i];
		if (k->tasks == 0 || k->twice > k->tasks ||
		    k->alone > k->tasks - k->twice) {
			fal_trace_fail(l, FAL_EINVAL,
				       "keys: more repeated tasks than tasks");
			return;
		}
		if (k->twice + k->alone == 0)
			finding_line(
				a, l,
				"eval: no other key was to repeat tasks of key %.64s",
				k->key);
		tasks += k->tasks;
		all->repeated += k->twice;
		all->unanswered += k->alone;
	}
	all->tasks += tasks;
	if (e->keys.v != NULL && tasks != want)
		finding_line(a, l, "eval: %ju test tasks, not %ju", tasks, want);
}

/* ---- the end -------------------------------------------------------------------------
 */

/* The seconds of training are at most those of the job; t has 6 decimals. */
static void
judge_trained(struct fal_audit *a, const struct fal_trace_line *l, double trained)
{
	a->facts.trained = trained;
	if (trained > l->t + 2e-6)
		fal_audit_add_finding(a, "%s: trained is %.6f, but t is %.6f", l->ev,
				      trained, l->t);
}

static void
take_done(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_done *e = &l->is.done;
	if (a->done) {
		fal_trace_fail(l, FAL_EINVAL, "a second done line");
		return;
	}
	a->done = true;
	if (e->clocks > 0 && e->clocks < a->job.clocks)
		a->job.clocks = e->clocks;
	SET_TEXT(a->facts.sha256, e->sha256);
	SET_TEXT(a->facts.journal, e->journal);
	a->facts.failed[0] = '\0';
	/* The last version has a hash.  With shared rounds its update line has the hash,
	 * too. */
	if (!a->is_group) {
		char *hash = a->facts.model_hash;
		const bool has_hash = audit_get_hash(a, l, e->hash, hash);
		const bool must_agree = a->version_hash[0] != '\0' ||
					(a->rules.traits.shared && a->version > 0);
		if (a->job.hashes > 0 && !has_hash)
			fal_audit_add_finding(a, "done: it has no hash");
		else if (has_hash && must_agree && strcmp(hash, a->version_hash) != 0)
			fal_audit_add_finding(
				a, "done: hash is %.64s, but version %ju has %.64s", hash,
				a->version,
				a->version_hash[0] != '\0' ? a->version_hash : "none");
	}
	judge_trained(a, l, e->trained);
	if (!(fabs(e->seconds - l->t) <= 2e-6))
		fal_audit_add_finding(a, "done: seconds is %.6f, but t is %.6f",
				      e->seconds, l->t);
	/* The line must have the accuracy of the last evaluation. */
	const struct fal_evals *evals = &a->verdict.evals;
	const bool has_accuracy = !isnan(e->accuracy);
	if (has_accuracy != (evals->lines > 0) ||
	    (has_accuracy && !reals_are_equal(e->accuracy, evals->accuracy)))
		finding_line(a, l, "done: accuracy is not that of the last evaluation");
	if (a->stray_eval != 0 && a->stray_eval != e->version)
		finding_line(a, l,
			     "done: version %ju was evaluated, but %ju is the interval",
			     a->stray_eval, a->first_eval);
	if (evals->version > e->version)
		finding_line(a, l, "done: version %ju was evaluated", evals->version);
	if ((a->demands & FAL_AUDIT_CLOCKS) != 0)
		judge_accounts(a, l);
	if (e->version != a->version)
		fal_audit_add_finding(a, "done: version is %ju, not %ju", e->version,
				      a->version);
}

/* Lines are missing here: the audit cannot judge the lines after them. */
static void
take_gap(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_gap *e = &l->is.gap;
	if (e->lines == 0 || e->bytes < e->lines) {
		fal_trace_fail(l, FAL_EINVAL, "%ju lines of %ju bytes", e->lines,
			       e->bytes);
		return;
	}
	a->verdict.missing_lines += e->lines;
	a->verdict.missing_bytes += e->bytes;
}

/* The line's link must fit the line and the line before it.  A gap has the link of the
 * last missing line. */
static void
judge_chain(struct fal_audit *a, const struct fal_trace_line *l)
{
	const bool holds = fal_chain_take(&a->chain, l->text, l->n);
	if (holds || (a->demands & FAL_AUDIT_CHAIN) == 0 || l->event == FAL_EV_GAP)
		return;
	finding_line(a, l,
		     a->chain.link[0] == '\0'
			     ? "it has no link of the chain"
			     : "it does not chain the line before, or was changed");
}

int
fal_audit_line(void *audit, struct fal_trace_line *l)
{
	static void (*const take[FAL_EVENTS])(struct fal_audit *a,
					      struct fal_trace_line *l) = {
		[FAL_EV_JOB] = take_job,
		[FAL_EV_JOIN] = take_join,
		[FAL_EV_LEAVE] = take_leave,
		[FAL_EV_POLICY] = take_policy,
		[FAL_EV_LEDGER] = take_ledger,
		[FAL_EV_UPDATE] = take_update,
		[FAL_EV_DONE] = take_done,
		[FAL_EV_CHARGE] = take_charge,
		[FAL_EV_VERIFY] = take_verify,
		[FAL_EV_EVAL] = take_eval,
		[FAL_EV_SUSPECT] = take_suspicion,
		[FAL_EV_BACK] = take_suspicion,
		[FAL_EV_NONFINITE] = take_nonfinite,
		[FAL_EV_CLOCK] = take_clock,
		[FAL_EV_PLACE] = take_place,
		[FAL_EV_SHARD] = take_shard,
		[FAL_EV_VERSION] = take_version,
	};
	struct fal_audit *a = audit;
	judge_chain(a, l);
	if (l->cut) /* counts for the chain only */
		return FAL_OK;
	a->verdict.refused += l->event == FAL_EV_REFUSE;
	if (l->event == FAL_EV_GAP)
		take_gap(a, l);
	else if (l->event == FAL_EV_RESTART)
		take_restart(a, l);
	if (l->event == FAL_EV_GAP || l->err < 0)
		return l->err;
	if (a->verdict.missing_lines > 0) {
		a->done = a->done || l->event == FAL_EV_DONE;
		a->ended = a->ended || fal_trace_is_last(l);
		return FAL_OK;
	}
	if (l->event != FAL_EV_LEAVE && l->event != FAL_EV_CLOCK)
		judge_charged(a, l);
	if (a->ended)
		finding_line(a, l, "%.32s behind the end", l->ev);
	a->ended = fal_trace_is_last(l);
	/* A worker's line has the name that the worker joined with. */
	const struct audit_worker *w =
		l->worker != NULL ? fal_audit_worker(a, l->id) : NULL;
	if (l->event != FAL_EV_JOIN && w != NULL && strcmp(w->name, l->worker) != 0)
		finding_line(a, l, "%s: worker %u is %.64s, not %.64s", l->ev, l->id,
			     w->name, l->worker);
	if (l->event == FAL_EV_GROUP && !worker_is_here(a, l->id))
		finding_line(a, l, "group: worker %u is not here", l->id);
	if (l->event == FAL_EV_FAILED) {
		SET_TEXT(a->facts.failed, l->is.failed.reason);
		judge_trained(a, l, l->is.failed.trained);
	}
	if (take[l->event] != NULL)
		take[l->event](a, l);
	return l->err;
}

const struct fal_audit_facts *
fal_audit_facts(const struct fal_audit *a)
{
	return &a->facts;
}

int
fal_audit_end(struct fal_audit *a, struct fal_audit_verdict *out, struct fal_diag *diag)
{
	/* The first clock with a task that has not ended, and its first such task. */
	uint64_t clock = 0, task = 0;
	bool has_gap = false;
	const bool is_complete = a->verdict.missing_lines == 0;
	if (!a->has_job && is_complete)
		return fal_diag_set(diag, FAL_ETRUNC, "no job line");
	for (uint32_t p = 0; a->has_job && p < a->job.grid.parts; p++) {
		const uint64_t n = a->job.clocks_per_epoch;
		const uint64_t at = fal_intervals_first_gap(&a->ended_tasks[p]);
		if (at >= part_tasks_before(a, p, a->job.clocks))
			continue;
		/* The clock of task `at`: only the last clock of an epoch has another
		 * number of tasks. */
		const uint64_t of_epoch = part_tasks_before(a, p, n);
		const uint64_t of_clock = n > 1 ? part_tasks_before(a, p, 1) : 0;
		uint64_t k = at / of_epoch * n + n - 1;
		if (of_clock > 0 && at % of_epoch / of_clock < n - 1)
			k = at / of_epoch * n + at % of_epoch / of_clock;
		if (has_gap && k >= clock)
			continue;
		clock = k;
		task = fal_grid_part_first_task(&a->job.grid, k, p) + at -
		       part_tasks_before(a, p, k);
		has_gap = true;
	}
	if (a->done && is_complete && has_gap && !a->is_group)
		fal_audit_add_finding(a, "clock %ju: task %ju: never ended", clock, task);
	if (a->done && is_complete && a->n_waiting > 0)
		finding_round(a, &a->waiting[0], "no update");
	fal_findings_end(&a->findings);
	*out = a->verdict;
	out->cut = !a->ended && (a->demands & FAL_AUDIT_END) != 0;
	out->above = a->facts.above;
	out->ok = a->findings.n == 0 && is_complete && !out->cut;
	out->finished = a->done;
	out->clocks = has_gap ? clock : a->job.clocks;
	out->of_clocks = a->job.clocks;
	out->findings = a->findings.n;
	out->text = (const char *const *)a->findings.text;
	out->n_text = a->findings.n_text;
	return 0;
}
