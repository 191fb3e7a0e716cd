/* The scheduler in virtual time: grants → claims after the tasks' times → arrivals →
 * complete rounds.  The coordinator does one thing after the other, and what comes
 * meanwhile waits. */
#include "proj/simulate.h"

#include "base/mem.h"
#include "sched/bound.h"
#include "sched/heap.h"
#include "sched/policy.h"
#include "sched/sched.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Versions that it is known to have; more than slack asks for. */
enum { PLAYER_VERSIONS = 128 };

/* A task in a worker's queue; the first `lanes` of it run. */
struct player_item {
	uint64_t round;
	uint32_t task;
	struct fal_cid fills;
	uint32_t seq;     /* of the contribution for which it is claimed ahead; 0: none */
	uint64_t version; /* that it is computed on */
	double from;      /* not before: the worker has the version; INFINITY: it is not
			     made yet */
	double ends;      /* negative: no lane began with it */
	double task_s;
};

/* A worker's part of a round, under way or done. */
struct player_part {
	uint64_t round;
	struct fal_cid fills;
	uint32_t seq;   /* 0: nothing won yet */
	double arrives; /* infinite: not pushed yet */
};

struct player {
	const struct fal_cost_machine *machine;
	struct player_item *q;
	size_t n, q_cap;
	struct player_part *part;
	size_t parts, part_cap;
	uint32_t lanes, seq;
	double way;         /* seconds that what it says, or is told, is on its way */
	double ticket;      /* that it waits for leave to push, once all is claimed */
	double asked, pong; /* when it was last, and its answer comes; INFINITY */
	double begun;       /* tasks that a lane began with, in full ones */
	double ready;       /* has what it was sent last */
	struct {
		uint64_t version;
		double at;
	} has[PLAYER_VERSIONS]; /* by version, modulo; UINT64_MAX: none */
	uint32_t running;
	double since;   /* running is not 0 since */
	double compute; /* seconds before that */
};

/* The next news of a worker: the end of an item, or a part's arrival.  The other index is
 * SIZE_MAX, and both are for an answer, or for no news. */
struct player_event {
	double at;
	size_t item, part;
};

/* --- a worker: its queue, its lanes, its parts -------------------------------------- */

/* A lane begins (+1) or ends (-1) with a task. */
static void
runs(struct player *w, int change, double at)
{
	if (w->running == 0)
		w->since = at;
	w->running = (uint32_t)((int)w->running + change);
	if (w->running == 0)
		w->compute += fmax(at - w->since, 0);
}

/* Lanes that are free at `at` begin with what stands first. */
static void
player_begin(struct player *w, const struct fal_sched *s, const struct fal_grid *grid,
	     double at)
{
	struct fal_round_info r;
	const uint32_t busy = w->n < w->lanes ? (uint32_t)w->n : w->lanes;
	for (size_t i = 0; i < busy; i++) {
		struct player_item *it = &w->q[i];
		if (it->ends >= 0 || isinf(it->from) ||
		    !fal_sched_round(s, it->round, &r))
			continue;
		double samples = fal_grid_range_samples(grid, r.clock, it->task, 1);
		double part = samples / fal_grid_full(grid);
		double from = fmax(at, it->from);
		it->task_s = fal_cost_task_s(w->machine, w->begun, from, part, busy);
		it->ends = from + it->task_s + w->machine->turn_s;
		w->begun += fal_bound_longer(w->machine->fixed, part);
		runs(w, 1, from);
	}
}

/* Item i is over; the others move up. */
static struct player_item
player_take(struct player *w, size_t i, double at)
{
	struct player_item it = w->q[i];
	memmove(&w->q[i], &w->q[i + 1], (--w->n - i) * sizeof(*w->q));
	if (it.ends >= 0)
		runs(w, -1, at);
	return it;
}

/* Does the task go into the part? */
static bool
is_of(const struct player_item *it, const struct player_part *p)
{
	return p->round == it->round && fal_cid_eq(p->fills, it->fills) &&
	       (it->seq != 0 ? p->seq == it->seq : p->seq < FAL_PRECLAIMED);
}

static bool
holds_of(const struct player *w, const struct player_part *p)
{
	for (size_t i = 0; i < w->n; i++)
		if (is_of(&w->q[i], p))
			return true;
	return false;
}

/* Pushes the parts for which the worker holds no more tasks; forgets those in which it
 * won none. */
static void
player_push(struct player *w, double at)
{
	for (size_t i = 0; i < w->parts; i++) {
		struct player_part *p = &w->part[i];
		if (!isinf(p->arrives) || holds_of(w, p))
			continue;
		const double ticket = p->seq < FAL_PRECLAIMED ? w->ticket : 0;
		if (p->seq == 0)
			w->part[i--] = w->part[--w->parts];
		else
			p->arrives = at + ticket + w->machine->push_s + w->way;
	}
}

static struct player_event
player_next(const struct player *w)
{
	struct player_event e = { w->pong, SIZE_MAX, SIZE_MAX };
	for (size_t i = 0; i < w->n && i < w->lanes; i++)
		if (w->q[i].ends >= 0 && w->q[i].ends + w->way < e.at)
			e = (struct player_event){ w->q[i].ends + w->way, i, SIZE_MAX };
	for (size_t i = 0; i < w->parts; i++)
		if (w->part[i].arrives < e.at)
			e = (struct player_event){ w->part[i].arrives, SIZE_MAX, i };
	return e;
}

/* The worker's part of the item's round, made if there is none. */
static struct player_part *
player_part(struct player *w, const struct player_item *it)
{
	for (size_t i = 0; i < w->parts; i++) {
		struct player_part *p = &w->part[i];
		if (is_of(it, p) && isinf(p->arrives))
			return p;
	}
	FAL_XGROW(w->part, w->part_cap, w->parts + 1);
	w->part[w->parts] =
		(struct player_part){ it->round, it->fills, it->seq, INFINITY };
	return &w->part[w->parts++];
}

/* The worker is granted tasks of the round `r` at `now`. */
static void
player_grant(struct player *w, const struct fal_act *a, const struct fal_round_info *r,
	     double now)
{
	const uint64_t version = a->late ? r->after : r->version;
	double from = a->late ? INFINITY : w->ready;
	if (r->delta && r->base == FAL_START_LOCAL)
		from = now;
	else if (w->has[version % PLAYER_VERSIONS].version == version)
		from = w->has[version % PLAYER_VERSIONS].at;
	FAL_XGROW(w->q, w->q_cap, w->n + a->count);
	for (uint32_t i = 0; i < a->count; i++) {
		size_t at = w->n++;
		for (; at > 0 && w->q[at - 1].round > a->round && w->q[at - 1].ends < 0;
		     at--)
			w->q[at] = w->q[at - 1];
		w->q[at] = (struct player_item){ .round = a->round,
						 .task = a->first + i,
						 .fills = a->fills,
						 .seq = a->cid.seq,
						 .version = version,
						 .from = fmax(from, now + w->way),
						 .ends = -1 };
	}
}

/* --- the coordinator --------------------------------------------------------------- */

/* Sums from the beginning; the warm part is taken off at the end. */
struct totals {
	double now, samples, dropped, twice, updates, moved, cloned, stale;
	double won; /* samples of claims that won, but for those of lost rounds */
	double bytes, load, compute;
};

struct game {
	const struct fal_play_conf *conf;
	struct fal_grid grid;
	struct fal_sched *s;
	struct player *worker; /* worker i has the id i + 1 */
	struct fal_heap next;  /* by the time of the worker's next event */
	double now;
	uint64_t version;
	/* State of shared rounds: the contributions before `open` have all arrived. */
	struct {
		uint64_t round;
		uint32_t open;
	} shared[FAL_SLACK_MAX + 1];
	struct totals t, warm;
	bool stopped; /* the scheduler gave up, or refused a claim */
};

/* The coordinator is busy with a message of so many bytes. */
static void
spend(struct game *g, double bytes)
{
	const struct fal_cost *c = g->conf->cost;
	double s = c->message_s + bytes * c->byte_s;
	g->now += s;
	g->t.load += s;
	g->t.bytes += bytes;
}

/* Something may happen with the worker at another time than before. */
static void
schedule(struct game *g, struct player *w)
{
	double next = player_next(w).at;
	uint32_t slot = (uint32_t)(w - g->worker);
	if (isinf(next))
		fal_heap_remove(&g->next, slot);
	else
		fal_heap_set(&g->next, slot, next);
}

static double
samples_of(const struct game *g, const struct player_item *it)
{
	struct fal_round_info r;
	if (!fal_sched_round(g->s, it->round, &r)) /* over, and forgotten */
		return fal_grid_full(&g->grid);
	return fal_grid_range_samples(&g->grid, r.clock, it->task, 1);
}

/* --- actions ---------------------------------------------------------------------- */

/* A version reaches the worker. */
static void
send_model(struct game *g, struct player *w, uint64_t version)
{
	spend(g, g->conf->cost->pull_bytes);
	w->ready = g->now + w->machine->pull_s + w->way;
	w->has[version % PLAYER_VERSIONS].version = version;
	w->has[version % PLAYER_VERSIONS].at = w->ready;
	bool begins = false;
	for (size_t i = 0; i < w->n; i++)
		if (w->q[i].version == version && isinf(w->q[i].from)) {
			w->q[i].from = w->ready;
			begins = true;
		}
	if (begins) {
		player_begin(w, g->s, &g->grid, g->now);
		schedule(g, w);
	}
}

/* Samples of the round's tasks that are claimed, and done. */
static double
claimed(const struct game *g, const struct fal_round_info *r)
{
	double sum = 0;
	for (uint32_t i = r->first; i - r->first < r->tasks; i++) {
		const struct fal_ltask *t = fal_ledger_task(r->ledger, i);
		if (t->contrib != FAL_NONE && !t->due)
			sum += fal_grid_range_samples(&g->grid, r->clock, i, 1);
	}
	return sum;
}

static void
end_round(struct game *g, const struct fal_act *a)
{
	struct fal_round_info r;
	if (!fal_sched_round(g->s, a->round, &r))
		return;
	double samples = fal_grid_range_samples(&g->grid, r.clock, r.first, r.tasks);
	if (a->fate >= FAL_FATE_DROP)
		g->t.won -= claimed(g, &r);
	if (a->fate == FAL_FATE_ABANDON) {
		g->t.twice += claimed(g, &r);
		return;
	}
	g->t.moved += (double)r.ledger->log[FAL_ENTRY_MOVE].n;
	g->t.cloned += (double)r.ledger->log[FAL_ENTRY_CLONE].n;
	*(a->fate == FAL_FATE_DROP ? &g->t.dropped : &g->t.samples) += samples;
	if (a->fate != FAL_FATE_DROP)
		g->t.stale += samples * (double)r.stale_updates;
}

/* A sign of life costs no time; everything else a message. */
static void
follow(struct game *g, const struct fal_act *a)
{
	struct player *w = a->worker > 0 ? &g->worker[a->worker - 1] : NULL;
	struct fal_round_info r;
	switch (a->kind) {
	case FAL_ACT_GRANT:
		spend(g, 0);
		if (fal_sched_round(g->s, a->round, &r))
			player_grant(w, a, &r, g->now);
		break;
	case FAL_ACT_REVOKE:
		spend(g, 0);
		for (size_t i = 0; i < w->n; i++)
			if (w->q[i].round == a->round &&
			    w->q[i].task - a->first < a->count)
				(void)player_take(w, i--, g->now);
		break;
	case FAL_ACT_END:
		end_round(g, a);
		break;
	case FAL_ACT_STEP:
		g->now += g->conf->cost->step_s;
		g->t.load += g->conf->cost->step_s;
		g->t.updates++;
		g->version++;
		fal_sched_published(g->s, g->now, a->version);
		break;
	case FAL_ACT_MODEL:
		for (size_t i = 0; w == NULL && i < g->conf->cost->machines; i++)
			send_model(g, &g->worker[i], g->version);
		if (w != NULL)
			send_model(g, w, a->version != 0 ? a->version : g->version);
		break;
	case FAL_ACT_LANES:
		spend(g, 0);
		w->lanes = a->count;
		break;
	case FAL_ACT_PING:
		w->asked = g->now;
		w->pong = g->now + w->machine->rtt_s +
			  fal_cost_hangs(w->machine, g->now + w->way);
		break;
	case FAL_ACT_NONFINITE:
	case FAL_ACT_SKIP:
	case FAL_ACT_STOP:
	case FAL_ACT_CHARGE:
	case FAL_ACT_EVICT:
		g->stopped = true;
		break;
	case FAL_ACT_ACCOUNT:
		spend(g, 0);
		break;
	case FAL_ACT_FENCE:
		fal_sched_fenced(g->s, g->now, a->round, a->cid);
		break;
	default: /* nobody lies here, and nothing is written or judged */
		break;
	}
}

static void
follow_all(struct game *g)
{
	struct fal_act a;
	while (fal_sched_next(g->s, &a)) {
		follow(g, &a);
		if (a.worker == 0)
			continue;
		struct player *w = &g->worker[a.worker - 1];
		if (a.kind == FAL_ACT_REVOKE)
			player_push(w, g->now);
		player_begin(w, g->s, &g->grid, g->now);
		schedule(g, w);
	}
	fal_sched_forget(g->s);
}

/* --- events ----------------------------------------------------------------------- */

/* The task of item i is done: its claim, and what follows at the worker, which does not
 * wait for the coordinator. */
static void
claim(struct game *g, struct player *w, size_t i)
{
	double ended = w->q[i].ends;
	struct player_item it = player_take(w, i, ended);
	struct player_part *p = player_part(w, &it);
	struct fal_claim_in c = { .worker = (uint32_t)(w - g->worker) + 1,
				  .round = it.round,
				  .task = it.task,
				  .seq = p->seq != 0 ? p->seq : w->seq + 1,
				  .fills = it.fills,
				  .task_s = it.task_s };
	const double samples = samples_of(g, &it);
	player_begin(w, g->s, &g->grid, ended);
	spend(g, 0);
	fal_sched_heard(g->s, g->now, c.worker);
	const int won = fal_sched_claim(g->s, g->now, &c);
	g->stopped |= won < 0;
	*(won > 0 ? &g->t.won : &g->t.twice) += samples;
	if (won > 0 && p->seq == 0)
		p->seq = ++w->seq;
	player_push(w, ended);
}

/* Has all of the round come that was claimed? */
static bool
all_in(struct game *g, const struct fal_round_info *r)
{
	const struct fal_ledger *l = r->ledger;
	uint32_t own = 0, *open = &own;
	if (r->owner == 0 && r->group == 0) {
		size_t at = r->round % (FAL_SLACK_MAX + 1);
		if (g->shared[at].round != r->round)
			g->shared[at].open = 0;
		g->shared[at].round = r->round;
		open = &g->shared[at].open;
	}
	while (*open < l->contribs && l->contrib[*open].state != FAL_CONTRIB_OPEN)
		(*open)++;
	return *open == l->contribs;
}

static void
arrive(struct game *g, struct player *w, size_t i)
{
	struct player_part p = w->part[i];
	struct fal_cid cid = { (uint32_t)(w - g->worker) + 1, p.seq };
	struct fal_round_info r;
	w->part[i] = w->part[--w->parts];
	spend(g, g->conf->cost->push_bytes);
	fal_sched_arrived(g->s, g->now, p.round, cid, 1, true);
	if (fal_sched_round(g->s, p.round, &r) && r.ledger->claimed == r.tasks &&
	    all_in(g, &r))
		fal_sched_complete(g->s, g->now, p.round);
}

/* The worker's next event. */
static void
step_worker(struct game *g, struct player *w)
{
	const uint32_t id = (uint32_t)(w - g->worker) + 1;
	struct player_event e = player_next(w);
	g->now = fmax(g->now, e.at);
	if (e.part == SIZE_MAX && e.item == SIZE_MAX) { /* its lanes go on, then */
		w->pong = INFINITY;
		fal_sched_heard(g->s, g->now, id);
		fal_sched_pong(g->s, g->now, id, g->now - w->asked,
			       (uint64_t)(g->now * 1e9));
	} else if (e.part == SIZE_MAX) {
		claim(g, w, e.item);
	} else {
		arrive(g, w, e.part);
	}
}

/* The next event of all.  FAL_ESTATE: there is none. */
static int
step(struct game *g)
{
	double next = fal_heap_least(&g->next), wake = fal_sched_wake(g->s);
	if (isinf(next) && isinf(wake))
		return FAL_ESTATE;
	if (wake < next) {
		g->now = fmax(g->now, wake);
		fal_sched_tick(g->s, g->now);
	} else {
		struct player *w = &g->worker[fal_heap_top(&g->next)];
		step_worker(g, w);
		schedule(g, w);
	}
	follow_all(g);
	return g->stopped ? FAL_ESTATE : FAL_OK;
}

/* --- beginning and end ------------------------------------------------------------ */

static int
join(struct game *g, uint32_t i)
{
	const struct fal_cost_machine *m = &g->conf->cost->machine[i];
	struct fal_join j = { .id = i + 1,
			      .name = m->name,
			      .lanes_min = m->lanes_min,
			      .lanes_max = m->lanes_max,
			      .cores = m->cores,
			      .task_s = fal_cost_task_s(m, 0, 0, 1, 1),
			      .fixed = m->fixed,
			      .rtt = m->rtt_s };
	/* If tasks move, a worker may push only tasks whose claims have been answered, or
	 * which are claimed ahead. */
	const bool asks = fal_rule_traits(&g->conf->policy->rule).moves;
	g->worker[i] = (struct player){ .machine = m,
					.way = m->rtt_s / 2,
					.ticket = asks ? m->rtt_s : 0,
					.pong = INFINITY };
	for (size_t v = 0; v < PLAYER_VERSIONS; v++)
		g->worker[i].has[v].version = UINT64_MAX;
	return fal_sched_join(g->s, g->now, &j);
}

static int
begin_game(struct game *g)
{
	const struct fal_cost *c = g->conf->cost;
	g->grid = c->grid;
	/* The grid has as many epochs as the play takes. */
	g->grid.epochs = (uint32_t)((g->conf->warm + g->conf->clocks + g->conf->most) /
					    fal_grid_epoch_clocks(&c->grid) +
				    1000);
	struct fal_sched_conf conf = { .policy = g->conf->policy,
				       .grid = g->grid,
				       .preclaims = true };
	g->worker = fal_xcalloc(c->machines, sizeof(*g->worker));
	fal_heap_reserve(&g->next, c->machines);
	g->s = fal_sched_new(&conf);
	int err = FAL_OK;
	for (uint32_t i = 0; i < c->machines && err == FAL_OK; i++)
		err = join(g, i);
	if (err < 0)
		return err;
	fal_sched_allow(g->s, g->now, fal_grid_clocks(&g->grid));
	follow_all(g);
	return FAL_OK;
}

/* The totals at this moment.  Work under way counts by its parts, at the beginning as at
 * the end.  So the work between the two is no more than lanes can compute. */
static struct totals
totals(const struct game *g)
{
	struct totals t = g->t;
	t.now = g->now;
	for (size_t i = 0; i < g->conf->cost->machines; i++) {
		const struct player *w = &g->worker[i];
		t.compute += w->compute;
		if (w->running > 0)
			t.compute += fmax(g->now - w->since, 0);
		for (size_t k = 0; k < w->n && k < w->lanes; k++) {
			const struct player_item *it = &w->q[k];
			const double left = it->ends - w->machine->turn_s - g->now;
			if (it->ends >= 0 && left < it->task_s)
				t.won += samples_of(g, it) *
					 (1 - fmax(left, 0) / it->task_s);
		}
	}
	return t;
}

static void
sum_up(const struct game *g, struct fal_play *out)
{
	const struct totals now = totals(g), *t = &now, *b = &g->warm;
	const double over = t->samples - b->samples;
	*out = (struct fal_play){ .seconds = t->now - b->now,
				  .samples = t->won - b->won,
				  .dropped = t->dropped - b->dropped,
				  .twice = t->twice - b->twice,
				  .updates = t->updates - b->updates,
				  .moved = t->moved - b->moved,
				  .cloned = t->cloned - b->cloned,
				  .bytes = t->bytes - b->bytes };
	double spent = (double)g->conf->cost->machines * out->seconds;
	out->clocks = (out->samples + out->dropped) / fal_grid_samples(&g->grid, 0);
	out->stale_updates = over > 0 ? (t->stale - b->stale) / over : 0;
	out->load = (t->load - b->load) / out->seconds;
	out->compute = (t->compute - b->compute) / spent;
}

/* `clocks` are over in all. */
static bool
is_over(const struct game *g, double clocks)
{
	const struct fal_play_conf *c = g->conf;
	const double counted = clocks - (double)c->warm;
	return counted >= (double)c->clocks &&
	       (g->now - g->warm.now >= c->seconds || counted >= (double)c->most);
}

int
fal_play(const struct fal_play_conf *conf, struct fal_play *out)
{
	struct game g = { .conf = conf };
	const double clock = fal_grid_samples(&conf->cost->grid, 0);
	bool warm = false;
	int err = begin_game(&g);
	while (err == FAL_OK && !is_over(&g, (g.t.samples + g.t.dropped) / clock)) {
		err = step(&g);
		if (!warm && g.t.samples + g.t.dropped >= (double)conf->warm * clock) {
			g.warm = totals(&g);
			warm = true;
		}
	}
	if (err == FAL_OK)
		sum_up(&g, out);
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
fal_play_epoch_s(const struct fal_play *p, const struct fal_grid *grid)
{
	return p->samples > 0 ? p->seconds * grid->samples / p->samples : INFINITY;
}
