/* Runs the scheduler in virtual time: grants → claims after the tasks' times → arrivals →
 * complete rounds.  The coordinator handles one message after the other; a message that
 * comes meanwhile waits. */
#include "proj/simulate.h"

#include "base/mem.h"
#include "sched/bound.h"
#include "sched/heap.h"
#include "sched/policy.h"
#include "sched/sched.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Versions whose arrival a worker remembers; more than slack needs. */
enum { SIM_VERSIONS = 128 };

/* A task in a worker's queue.  The first `lanes` tasks of the queue run. */
struct sim_task {
	uint64_t round;
	uint32_t task;
	struct fal_contrib_id fills;
	uint32_t seq; /* of the contribution that it is claimed for in advance; 0: none */
	uint64_t version; /* the base of its computation */
	double from;      /* when the worker has the version; INFINITY: it does not exist
			     yet */
	double ends;      /* negative: no lane runs it yet */
	double task_s;
};

/* A worker's part of a round, under way or done. */
struct sim_part {
	uint64_t round;
	struct fal_contrib_id fills;
	uint32_t seq;   /* 0: nothing won yet */
	double arrives; /* infinite: not pushed yet */
};

struct sim_worker {
	const struct fal_cost_machine *machine;
	struct sim_task *q;
	size_t n, q_cap;
	struct sim_part *part;
	size_t parts, part_cap;
	uint32_t lanes, seq;
	double way;    /* seconds of a message in either direction */
	double ticket; /* seconds between its last claim and the leave to push */
	double pinged_at,
		pong_at; /* when it was pinged, when its answer comes; INFINITY: none */
	double started;  /* tasks that ran or run, in full ones */
	double model_at; /* when it has the version that was sent last */
	struct {
		uint64_t version;
		double at;
	} received[SIM_VERSIONS]; /* by version, modulo; UINT64_MAX: none */
	uint32_t running;         /* tasks */
	double running_since;     /* when `running` became more than 0 */
	double compute;           /* seconds of earlier stretches with running tasks */
};

/* The next event of a worker: the end of task `item`, or the arrival of part `part`; the
 * other index is SIZE_MAX.  For the answer to a ping, or no event, both are SIZE_MAX. */
struct sim_event {
	double at;
	size_t item, part;
};

/* --- a worker: its queue, its lanes, its parts -------------------------------------- */

/* Lanes that are free at `at` begin the first tasks of the queue. */
static void
worker_start_tasks(struct sim_worker *w, const struct fal_sched *s,
		   const struct fal_grid *grid, double at)
{
	struct fal_round_info r;
	const uint32_t busy = w->n < w->lanes ? (uint32_t)w->n : w->lanes;
	for (size_t i = 0; i < busy; i++) {
		struct sim_task *it = &w->q[i];
		if (it->ends >= 0 || isinf(it->from) ||
		    !fal_sched_round(s, it->round, &r))
			continue;
		double samples = fal_grid_range_samples(grid, r.clock, it->task, 1);
		double part = samples / fal_grid_full_samples(grid);
		double from = fmax(at, it->from);
		it->task_s = fal_cost_task_s(w->machine, w->started, from, part, busy);
		it->ends = from + it->task_s + w->machine->turn_s;
		w->started += fal_bound_task_size(w->machine->fixed, part);
		if (w->running++ == 0)
			w->running_since = from;
	}
}

/* Removes task i from the queue. */
static struct sim_task
worker_remove_task(struct sim_worker *w, size_t i, double at)
{
	struct sim_task it = w->q[i];
	memmove(&w->q[i], &w->q[i + 1], (--w->n - i) * sizeof(*w->q));
	if (it.ends >= 0) { /* a lane ran it */
		assert(w->running > 0);
		if (--w->running == 0)
			w->compute += fmax(at - w->running_since, 0);
	}
	return it;
}

/* Returns whether the task belongs to the part. */
static bool
part_has_task(const struct sim_task *it, const struct sim_part *p)
{
	return p->round == it->round && fal_contrib_id_equal(p->fills, it->fills) &&
	       (it->seq != 0 ? p->seq == it->seq : p->seq < FAL_PRECLAIMED);
}

/* Pushes the parts without queued tasks; forgets those in which the worker won no task.
 */
static void
worker_push_parts(struct sim_worker *w, double at)
{
	for (size_t i = 0; i < w->parts; i++) {
		struct sim_part *p = &w->part[i];
		size_t k = 0;
		while (k < w->n && !part_has_task(&w->q[k], p))
			k++;
		if (!isinf(p->arrives) || k < w->n)
			continue;
		const double ticket = p->seq < FAL_PRECLAIMED ? w->ticket : 0;
		if (p->seq == 0)
			w->part[i--] = w->part[--w->parts];
		else
			p->arrives = at + ticket + w->machine->push_s + w->way;
	}
}

static struct sim_event
worker_next_event(const struct sim_worker *w)
{
	struct sim_event e = { w->pong_at, SIZE_MAX, SIZE_MAX };
	for (size_t i = 0; i < w->n && i < w->lanes; i++)
		if (w->q[i].ends >= 0 && w->q[i].ends + w->way < e.at)
			e = (struct sim_event){ w->q[i].ends + w->way, i, SIZE_MAX };
	for (size_t i = 0; i < w->parts; i++)
		if (w->part[i].arrives < e.at)
			e = (struct sim_event){ w->part[i].arrives, SIZE_MAX, i };
	return e;
}

/* The worker is granted tasks of the round `r` at `now`. */
static void
worker_take_grant(struct sim_worker *w, const struct fal_act *a,
		  const struct fal_round_info *r, double now)
{
	const uint64_t version = a->late ? r->late_version : r->version;
	double from = a->late ? INFINITY : w->model_at;
	if (r->delta && r->base == FAL_START_LOCAL)
		from = now;
	else if (w->received[version % SIM_VERSIONS].version == version)
		from = w->received[version % SIM_VERSIONS].at;
	FAL_XGROW(w->q, w->q_cap, w->n + a->count);
	for (uint32_t i = 0; i < a->count; i++) {
		size_t at = w->n++;
		for (; at > 0 && w->q[at - 1].round > a->round && w->q[at - 1].ends < 0;
		     at--)
			w->q[at] = w->q[at - 1];
		w->q[at] = (struct sim_task){ .round = a->round,
					      .task = a->first + i,
					      .fills = a->fills,
					      .seq = a->cid.seq,
					      .version = version,
					      .from = fmax(from, now + w->way),
					      .ends = -1 };
	}
}

/* --- the coordinator --------------------------------------------------------------- */

/* Sums from the beginning; the results leave out the warm part. */
struct sim_totals {
	double now, samples, dropped, duplicates, updates, moved, cloned, stale;
	double won; /* samples of claims that won, except in lost rounds */
	double bytes, load, compute;
};

struct sim {
	const struct fal_simulation_conf *conf;
	struct fal_grid grid;
	struct fal_sched *s;
	struct sim_worker *worker; /* worker i has the id i + 1 */
	struct fal_heap next;      /* workers by the time of their next event */
	double now;
	uint64_t version;
	/* State of shared rounds: the contributions before `open` have all arrived. */
	struct {
		uint64_t round;
		uint32_t open;
	} shared[FAL_SLACK_MAX + 1];
	struct sim_totals t, warm;
	bool stopped; /* the scheduler gave up, or refused a claim */
};

/* The coordinator handles a message of so many bytes. */
static void
sim_charge(struct sim *g, double bytes)
{
	const struct fal_cost *c = g->conf->cost;
	double s = c->message_s + bytes * c->byte_s;
	g->now += s;
	g->t.load += s;
	g->t.bytes += bytes;
}

/* The time of the worker's next event may have changed. */
static void
sim_reschedule(struct sim *g, struct sim_worker *w)
{
	double next = worker_next_event(w).at;
	uint32_t slot = (uint32_t)(w - g->worker);
	if (isinf(next))
		fal_heap_remove(&g->next, slot);
	else
		fal_heap_set(&g->next, slot, next);
}

static double
sim_task_samples(const struct sim *g, const struct sim_task *it)
{
	struct fal_round_info r;
	if (!fal_sched_round(g->s, it->round, &r)) /* the round has ended */
		return fal_grid_full_samples(&g->grid);
	return fal_grid_range_samples(&g->grid, r.clock, it->task, 1);
}

/* --- actions ---------------------------------------------------------------------- */

/* Sends a version to the worker. */
static void
sim_send_model(struct sim *g, struct sim_worker *w, uint64_t version)
{
	sim_charge(g, g->conf->cost->pull_bytes);
	w->model_at = g->now + w->machine->pull_s + w->way;
	w->received[version % SIM_VERSIONS].version = version;
	w->received[version % SIM_VERSIONS].at = w->model_at;
	bool begins = false;
	for (size_t i = 0; i < w->n; i++)
		if (w->q[i].version == version && isinf(w->q[i].from)) {
			w->q[i].from = w->model_at;
			begins = true;
		}
	if (begins) {
		worker_start_tasks(w, g->s, &g->grid, g->now);
		sim_reschedule(g, w);
	}
}

static void
sim_end_round(struct sim *g, const struct fal_act *a)
{
	struct fal_round_info r;
	if (!fal_sched_round(g->s, a->round, &r))
		return;
	double samples = fal_grid_range_samples(&g->grid, r.clock, r.first, r.tasks);
	double claimed = 0; /* of the tasks that are claimed and computed */
	if (a->fate >= FAL_FATE_DROP) {
		for (uint32_t i = r.first; i - r.first < r.tasks; i++) {
			const struct fal_ltask *t = fal_ledger_task(r.ledger, i);
			if (t->contrib != FAL_NONE && !t->due)
				claimed +=
					fal_grid_range_samples(&g->grid, r.clock, i, 1);
		}
		g->t.won -= claimed;
	}
	if (a->fate == FAL_FATE_RETRY) {
		g->t.duplicates += claimed;
		return;
	}
	g->t.moved += (double)r.ledger->log[FAL_ENTRY_MOVE].n;
	g->t.cloned += (double)r.ledger->log[FAL_ENTRY_CLONE].n;
	*(a->fate == FAL_FATE_DROP ? &g->t.dropped : &g->t.samples) += samples;
	if (a->fate != FAL_FATE_DROP)
		g->t.stale += samples * (double)r.stale_updates;
}

/* Carries out an action of the scheduler.  A ping costs no time; any other action costs a
 * message. */
static void
sim_act(struct sim *g, const struct fal_act *a)
{
	struct sim_worker *w = a->worker > 0 ? &g->worker[a->worker - 1] : NULL;
	struct fal_round_info r;
	switch (a->kind) {
	case FAL_ACT_GRANT:
		sim_charge(g, 0);
		if (fal_sched_round(g->s, a->round, &r))
			worker_take_grant(w, a, &r, g->now);
		break;
	case FAL_ACT_REVOKE:
		sim_charge(g, 0);
		for (size_t i = 0; i < w->n; i++)
			if (w->q[i].round == a->round &&
			    w->q[i].task - a->first < a->count)
				(void)worker_remove_task(w, i--, g->now);
		break;
	case FAL_ACT_END:
		sim_end_round(g, a);
		break;
	case FAL_ACT_STEP:
		g->now += g->conf->cost->step_s;
		g->t.load += g->conf->cost->step_s;
		g->t.updates++;
		g->version++;
		fal_sched_note_published(g->s, g->now, a->version);
		break;
	case FAL_ACT_MODEL:
		for (size_t i = 0; w == NULL && i < g->conf->cost->machines; i++)
			sim_send_model(g, &g->worker[i], g->version);
		if (w != NULL)
			sim_send_model(g, w, a->version != 0 ? a->version : g->version);
		break;
	case FAL_ACT_LANES:
		sim_charge(g, 0);
		w->lanes = a->count;
		break;
	case FAL_ACT_PING:
		w->pinged_at = g->now;
		w->pong_at = g->now + w->machine->rtt_s +
			     fal_cost_hang_s(w->machine, g->now + w->way);
		break;
	case FAL_ACT_NONFINITE:
	case FAL_ACT_SKIP:
	case FAL_ACT_STOP:
	case FAL_ACT_CHARGE:
	case FAL_ACT_EVICT:
		g->stopped = true;
		break;
	case FAL_ACT_ACCOUNT:
		sim_charge(g, 0);
		break;
	case FAL_ACT_FENCE:
		fal_sched_note_fenced(g->s, g->now, a->round, a->cid);
		break;
	default: /* workers are honest, and nothing is written or evaluated */
		break;
	}
}

static void
sim_act_all(struct sim *g)
{
	struct fal_act a;
	while (fal_sched_next_action(g->s, &a)) {
		sim_act(g, &a);
		if (a.worker == 0)
			continue;
		struct sim_worker *w = &g->worker[a.worker - 1];
		if (a.kind == FAL_ACT_REVOKE)
			worker_push_parts(w, g->now);
		worker_start_tasks(w, g->s, &g->grid, g->now);
		sim_reschedule(g, w);
	}
	fal_sched_forget(g->s);
}

/* --- events ----------------------------------------------------------------------- */

/* Task i is done: the worker claims it, and goes on without waiting for the coordinator.
 */
static void
sim_claim(struct sim *g, struct sim_worker *w, size_t i)
{
	double ended = w->q[i].ends;
	struct sim_task it = worker_remove_task(w, i, ended);
	size_t at = 0; /* the worker's open part for the task, perhaps a new one */
	while (at < w->parts &&
	       !(part_has_task(&it, &w->part[at]) && isinf(w->part[at].arrives)))
		at++;
	if (at == w->parts) {
		FAL_XGROW(w->part, w->part_cap, w->parts + 1);
		w->part[w->parts++] =
			(struct sim_part){ it.round, it.fills, it.seq, INFINITY };
	}
	struct sim_part *p = &w->part[at];
	struct fal_claim_report c = { .worker = (uint32_t)(w - g->worker) + 1,
				      .round = it.round,
				      .task = it.task,
				      .seq = p->seq != 0 ? p->seq : w->seq + 1,
				      .fills = it.fills,
				      .task_s = it.task_s };
	const double samples = sim_task_samples(g, &it);
	worker_start_tasks(w, g->s, &g->grid, ended);
	sim_charge(g, 0);
	fal_sched_note_message(g->s, g->now, c.worker);
	const int won = fal_sched_claim(g->s, g->now, &c);
	g->stopped |= won < 0;
	*(won > 0 ? &g->t.won : &g->t.duplicates) += samples;
	if (won > 0 && p->seq == 0)
		p->seq = ++w->seq;
	worker_push_parts(w, ended);
}

static void
sim_arrive(struct sim *g, struct sim_worker *w, size_t i)
{
	struct sim_part p = w->part[i];
	struct fal_contrib_id cid = { (uint32_t)(w - g->worker) + 1, p.seq };
	struct fal_round_info r;
	w->part[i] = w->part[--w->parts];
	sim_charge(g, g->conf->cost->push_bytes);
	fal_sched_note_blocks(g->s, g->now, p.round, cid, 1, true);
	if (!fal_sched_round(g->s, p.round, &r) || r.ledger->claimed != r.tasks)
		return;
	/* The round is complete when all its contributions have arrived.  For shared
	 * rounds the search goes on where the last one ended. */
	uint32_t own = 0, *open = &own;
	if (r.owner == 0 && r.group == 0) {
		const size_t at = r.round % (FAL_SLACK_MAX + 1);
		if (g->shared[at].round != r.round)
			g->shared[at].open = 0;
		g->shared[at].round = r.round;
		open = &g->shared[at].open;
	}
	const struct fal_ledger *l = r.ledger;
	while (*open < l->contribs && l->contrib[*open].state != FAL_CONTRIB_OPEN)
		(*open)++;
	if (*open == l->contribs)
		fal_sched_note_complete(g->s, g->now, p.round);
}

/* Handles the next event.  FAL_ESTATE: there is none. */
static int
sim_step(struct sim *g)
{
	double next = fal_heap_min_key(&g->next), wake = fal_sched_next_tick(g->s);
	if (isinf(next) && isinf(wake))
		return FAL_ESTATE;
	if (wake < next) {
		g->now = fmax(g->now, wake);
		fal_sched_tick(g->s, g->now);
	} else {
		struct sim_worker *w = &g->worker[fal_heap_top(&g->next)];
		const uint32_t id = (uint32_t)(w - g->worker) + 1;
		const struct sim_event e = worker_next_event(w);
		g->now = fmax(g->now, e.at);
		if (e.item != SIZE_MAX) {
			sim_claim(g, w, e.item);
		} else if (e.part != SIZE_MAX) {
			sim_arrive(g, w, e.part);
		} else { /* an answer to a ping */
			w->pong_at = INFINITY;
			fal_sched_note_message(g->s, g->now, id);
			fal_sched_note_pong(g->s, g->now, id, g->now - w->pinged_at,
					    (uint64_t)(g->now * 1e9));
		}
		sim_reschedule(g, w);
	}
	sim_act_all(g);
	return g->stopped ? FAL_ESTATE : FAL_OK;
}

/* --- beginning and end ------------------------------------------------------------ */

static int
sim_begin(struct sim *g)
{
	const struct fal_cost *c = g->conf->cost;
	g->grid = c->grid;
	/* The epochs are so many that the simulation never reaches the job's end. */
	g->grid.epochs = (uint32_t)((g->conf->warm + g->conf->clocks + g->conf->most) /
					    fal_grid_epoch_clocks(&c->grid) +
				    1000);
	struct fal_sched_conf conf = { .policy = g->conf->policy,
				       .grid = g->grid,
				       .preclaims = true };
	g->worker = fal_xcalloc(c->machines, sizeof(*g->worker));
	fal_heap_reserve(&g->next, c->machines);
	g->s = fal_sched_new(&conf);
	/* If tasks move, a worker may push only tasks whose claims were answered, or
	 * which were claimed in advance. */
	const bool asks = fal_rule_traits(&g->conf->policy->rule).moves;
	for (uint32_t i = 0; i < c->machines; i++) {
		const struct fal_cost_machine *m = &c->machine[i];
		const struct fal_join j = { .id = i + 1,
					    .name = m->name,
					    .lanes_min = m->lanes_min,
					    .lanes_max = m->lanes_max,
					    .cores = m->cores,
					    .task_s = fal_cost_task_s(m, 0, 0, 1, 1),
					    .fixed = m->fixed,
					    .rtt = m->rtt_s };
		g->worker[i] = (struct sim_worker){ .machine = m,
						    .way = m->rtt_s / 2,
						    .ticket = asks ? m->rtt_s : 0,
						    .pong_at = INFINITY };
		for (size_t v = 0; v < SIM_VERSIONS; v++)
			g->worker[i].received[v].version = UINT64_MAX;
		const int err = fal_sched_join(g->s, g->now, &j);
		if (err < 0)
			return err;
	}
	fal_sched_set_clock_limit(g->s, g->now, fal_grid_clocks(&g->grid));
	sim_act_all(g);
	return FAL_OK;
}

/* Returns the totals at this moment.  Tasks under way count by their computed parts, so
 * the work between two moments is at most what the lanes can compute. */
static struct sim_totals
sim_totals(const struct sim *g)
{
	struct sim_totals t = g->t;
	t.now = g->now;
	for (size_t i = 0; i < g->conf->cost->machines; i++) {
		const struct sim_worker *w = &g->worker[i];
		t.compute += w->compute;
		if (w->running > 0)
			t.compute += fmax(g->now - w->running_since, 0);
		for (size_t k = 0; k < w->n && k < w->lanes; k++) {
			const struct sim_task *it = &w->q[k];
			const double left = it->ends - w->machine->turn_s - g->now;
			if (it->ends >= 0 && left < it->task_s)
				t.won += sim_task_samples(g, it) *
					 (1 - fmax(left, 0) / it->task_s);
		}
	}
	return t;
}

int
fal_simulate(const struct fal_simulation_conf *conf, struct fal_simulation *out)
{
	struct sim g = { .conf = conf };
	const double clock = fal_grid_samples(&conf->cost->grid, 0);
	bool warm = false;
	int err = sim_begin(&g);
	while (err == FAL_OK) {
		const double counted =
			(g.t.samples + g.t.dropped) / clock - (double)conf->warm;
		if (counted >= (double)conf->clocks &&
		    (g.now - g.warm.now >= conf->seconds ||
		     counted >= (double)conf->most))
			break;
		err = sim_step(&g);
		if (!warm && g.t.samples + g.t.dropped >= (double)conf->warm * clock) {
			g.warm = sim_totals(&g);
			warm = true;
		}
	}
	if (err == FAL_OK) {
		const struct sim_totals t = sim_totals(&g), *b = &g.warm;
		const double over = t.samples - b->samples;
		*out = (struct fal_simulation){ .seconds = t.now - b->now,
						.samples = t.won - b->won,
						.dropped = t.dropped - b->dropped,
						.duplicates =
							t.duplicates - b->duplicates,
						.updates = t.updates - b->updates,
						.moved = t.moved - b->moved,
						.cloned = t.cloned - b->cloned,
						.bytes = t.bytes - b->bytes };
		const double spent = (double)conf->cost->machines * out->seconds;
		out->clocks = (out->samples + out->dropped) / clock;
		out->stale_updates = over > 0 ? (t.stale - b->stale) / over : 0;
		out->load = (t.load - b->load) / out->seconds;
		out->compute = (t.compute - b->compute) / spent;
	}
	for (size_t i = 0; i < conf->cost->machines; i++) {
		free(g.worker[i].q);
		free(g.worker[i].part);
	}
	free(g.worker);
	fal_heap_free(&g.next);
	fal_sched_free(g.s);
	return err;
}

double
fal_simulation_epoch_s(const struct fal_simulation *p, const struct fal_grid *grid)
{
	return p->samples > 0 ? p->seconds * grid->samples / p->samples : INFINITY;
}
