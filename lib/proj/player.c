/* A played worker: its queue, its lanes, its parts. */
#include "proj/player.h"

#include "base/err.h"
#include "base/mem.h"
#include "sched/bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void
fal_player_init(struct fal_player *w, const struct fal_cost_machine *m, bool asks)
{
	*w = (struct fal_player){ .machine = m,
				  .way = m->rtt_s / 2,
				  .ticket = asks ? m->rtt_s : 0,
				  .pong = INFINITY };
	for (size_t v = 0; v < FAL_PLAYER_VERSIONS; v++)
		w->has[v].version = UINT64_MAX;
}

void
fal_player_free(struct fal_player *w)
{
	free(w->q);
	free(w->part);
}

void
fal_player_pull(struct fal_player *w, uint64_t version, double at)
{
	w->ready = at + w->machine->pull_s + w->way;
	w->has[version % FAL_PLAYER_VERSIONS].version = version;
	w->has[version % FAL_PLAYER_VERSIONS].at = w->ready;
}

/* A lane begins (+1) or ends (-1) with a task. */
static void
runs(struct fal_player *w, int change, double at)
{
	if (w->running == 0)
		w->since = at;
	w->running = (uint32_t)((int)w->running + change);
	if (w->running == 0)
		w->compute += fmax(at - w->since, 0);
}

double
fal_player_computed(const struct fal_player *w, double now)
{
	return w->compute + (w->running > 0 ? fmax(now - w->since, 0) : 0);
}

void
fal_player_begin(struct fal_player *w, const struct fal_sched *s,
		 const struct fal_grid *grid, double at)
{
	struct fal_round_info r;
	const uint32_t busy = w->n < w->lanes ? (uint32_t)w->n : w->lanes;
	for (size_t i = 0; i < busy; i++) {
		struct fal_player_item *it = &w->q[i];
		if (it->ends >= 0 || !fal_sched_round(s, it->round, &r))
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

struct fal_player_item
fal_player_take(struct fal_player *w, size_t i, double at)
{
	struct fal_player_item it = w->q[i];
	memmove(&w->q[i], &w->q[i + 1], (--w->n - i) * sizeof(*w->q));
	if (it.ends >= 0)
		runs(w, -1, at);
	return it;
}

static bool
holds_of(const struct fal_player *w, uint64_t round)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->q[i].round == round)
			return true;
	return false;
}

void
fal_player_push(struct fal_player *w, double at)
{
	for (size_t i = 0; i < w->parts; i++) {
		struct fal_player_part *p = &w->part[i];
		if (!isinf(p->arrives) || holds_of(w, p->round))
			continue;
		if (p->seq == 0)
			w->part[i--] = w->part[--w->parts];
		else
			p->arrives = at + w->ticket + w->machine->push_s + w->way;
	}
}

struct fal_player_event
fal_player_next(const struct fal_player *w)
{
	struct fal_player_event e = { w->pong, SIZE_MAX, SIZE_MAX };
	for (size_t i = 0; i < w->n && i < w->lanes; i++)
		if (w->q[i].ends >= 0 && w->q[i].ends + w->way < e.at)
			e = (struct fal_player_event){ w->q[i].ends + w->way, i,
						       SIZE_MAX };
	for (size_t i = 0; i < w->parts; i++)
		if (w->part[i].arrives < e.at)
			e = (struct fal_player_event){ w->part[i].arrives, SIZE_MAX, i };
	return e;
}

struct fal_player_part *
fal_player_part(struct fal_player *w, const struct fal_player_item *it)
{
	for (size_t i = 0; i < w->parts; i++) {
		struct fal_player_part *p = &w->part[i];
		if (p->round == it->round && fal_cid_eq(p->fills, it->fills) &&
		    isinf(p->arrives))
			return p;
	}
	if (FAL_GROW(w->part, w->part_cap, w->parts + 1) < 0)
		return NULL;
	w->part[w->parts] = (struct fal_player_part){ it->round, it->fills, 0, INFINITY };
	return &w->part[w->parts++];
}

int
fal_player_grant(struct fal_player *w, const struct fal_act *a,
		 const struct fal_round_info *r, double now)
{
	double from = w->ready;
	if (r->delta && r->base == FAL_START_LOCAL)
		from = now;
	else if (w->has[r->version % FAL_PLAYER_VERSIONS].version == r->version)
		from = w->has[r->version % FAL_PLAYER_VERSIONS].at;
	if (FAL_GROW(w->q, w->q_cap, w->n + a->count) < 0)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < a->count; i++) {
		size_t at = w->n++;
		for (; at > 0 && w->q[at - 1].round > a->round && w->q[at - 1].ends < 0;
		     at--)
			w->q[at] = w->q[at - 1];
		w->q[at] = (struct fal_player_item){ .round = a->round,
						     .task = a->first + i,
						     .fills = a->fills,
						     .from = fmax(from, now + w->way),
						     .ends = -1 };
	}
	return FAL_OK;
}

void
fal_player_revoke(struct fal_player *w, const struct fal_act *a, double now)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->q[i].round == a->round && w->q[i].task - a->first < a->count)
			(void)fal_player_take(w, i--, now);
}
