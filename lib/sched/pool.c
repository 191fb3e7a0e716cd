/* The pool: positions in the parts of the data, runs that came back, clocks that are
 * over. */
#include "sched/pool.h"

#include "base/mem.h"
#include "base/sorted.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Does part i have tasks in the clock? */
static bool
part_has_tasks(const struct fal_task_pool *p, uint64_t clock, uint32_t i)
{
	return fal_grid_part_first_task(&p->grid, clock, i) <
	       fal_grid_part_first_task(&p->grid, clock, i + 1);
}

/* Updates the hindmost part after part i has moved on from `clock`.  If part i was the
 * hindmost, no part with a smaller number was at that clock. */
static void
hindmost_update(struct fal_task_pool *p, uint32_t i, uint64_t clock)
{
	if (i != p->hindmost || p->part[i].clock == clock)
		return;
	while (++i < p->grid.parts)
		if (p->part[i].clock == clock) {
			p->hindmost = i;
			return;
		}
	p->hindmost = 0;
	for (i = 1; i < p->grid.parts; i++)
		if (p->part[i].clock < p->part[p->hindmost].clock)
			p->hindmost = i;
}

/* Moves a part that has no tasks left in its clock to its next clock with tasks.  The
 * last clock of an epoch may be shorter, so a part may have tasks in all clocks, only in
 * the last clocks of epochs, only in the others, or in none. */
static void
part_advance(struct fal_task_pool *p, uint32_t i)
{
	struct fal_part *a = &p->part[i];
	const uint64_t last = fal_grid_epoch_clocks(&p->grid) - 1, was = a->clock;
	if (a->clock == p->clocks ||
	    a->task < fal_grid_part_first_task(&p->grid, a->clock, i + 1))
		return;
	const bool in_full = part_has_tasks(p, 0, i),
		   in_last = part_has_tasks(p, last, i);
	a->clock++;
	if (!in_full && !in_last)
		a->clock = p->clocks;
	else if (a->clock < p->clocks && !in_full)
		a->clock += last - a->clock % (last + 1);
	else if (a->clock < p->clocks && !in_last && a->clock % (last + 1) == last)
		a->clock++;
	if (a->clock < p->clocks)
		a->task = fal_grid_part_first_task(&p->grid, a->clock, i);
	hindmost_update(p, i, was);
}

void
fal_task_pool_init(struct fal_task_pool *p, const struct fal_grid *g)
{
	*p = (struct fal_task_pool){ .grid = *g, .clocks = fal_grid_clocks(g) };
	p->grid.parts = g->parts > 0 ? g->parts : 1;
	p->part = fal_xcalloc(p->grid.parts, sizeof(*p->part));
	for (uint32_t i = 0; i < p->grid.parts; i++) {
		p->part[i].task = fal_grid_part_first_task(g, 0, i);
		part_advance(p, i);
	}
}

void
fal_task_pool_free(struct fal_task_pool *p)
{
	free(p->part);
	free(p->back);
	free(p->unended);
}

void
fal_task_pool_skip_clocks(struct fal_task_pool *p, uint64_t clock)
{
	p->over = clock;
	for (uint32_t i = 0; i < p->grid.parts; i++)
		while (p->part[i].clock < clock) {
			p->part[i].task =
				fal_grid_part_first_task(&p->grid, p->part[i].clock,
							 i + 1);
			part_advance(p, i);
		}
}

uint64_t
fal_task_pool_first(const struct fal_task_pool *p)
{
	return p->backs > 0 ? p->back[0].clock : p->part[p->hindmost].clock;
}

uint64_t
fal_task_pool_untouched(const struct fal_task_pool *p)
{
	return p->unendeds > 0 ? p->unended[p->unendeds - 1].clock + 1 : p->over;
}

uint64_t
fal_task_pool_next(const struct fal_task_pool *p, uint32_t part)
{
	if (p->backs > 0)
		return p->back[0].clock;
	uint64_t own = p->part[part].clock;
	return own < p->clocks ? own : fal_task_pool_first(p);
}

struct fal_task_range
fal_task_pool_left(const struct fal_task_pool *p, uint32_t part)
{
	if (p->backs > 0)
		return p->back[0];
	if (p->part[part].clock == p->clocks)
		part = p->hindmost;
	const struct fal_part *a = &p->part[part];
	struct fal_task_range left = { a->clock, a->task, 0 };
	if (a->clock < p->clocks)
		left.count =
			fal_grid_part_first_task(&p->grid, a->clock, part + 1) - a->task;
	return left;
}

/* The index of the clock in `unended`, or the index at which to insert the clock. */
static size_t
unended_place(const struct fal_task_pool *p, uint64_t clock)
{
	return fal_sorted_place64(p->unended, p->unendeds, sizeof(*p->unended), clock);
}

void
fal_task_pool_take(struct fal_task_pool *p, uint32_t part, bool whole, uint32_t most,
		   struct fal_task_range *out)
{
	assert(most > 0);
	*out = (struct fal_task_range){ .count = 0 };
	if (p->backs > 0) {
		struct fal_task_range *r = &p->back[0];
		*out = *r;
		out->count = r->count < most ? r->count : most;
		r->first += out->count;
		r->count -= out->count;
		if (r->count == 0)
			memmove(p->back, p->back + 1, --p->backs * sizeof(*p->back));
		return;
	}
	if (whole || p->part[part].clock == p->clocks)
		part = p->hindmost;
	uint64_t clock = p->part[part].clock;
	if (clock == p->clocks)
		return;
	const size_t at = unended_place(p, clock);
	if (at == p->unendeds || p->unended[at].clock != clock) { /* the clock begins */
		FAL_XGROW(p->unended, p->unended_cap, p->unendeds + 1);
		memmove(p->unended + at + 1, p->unended + at,
			(p->unendeds++ - at) * sizeof(*p->unended));
		p->unended[at] =
			(struct fal_unended){ clock, fal_grid_tasks(&p->grid, clock) };
	}
	*out = (struct fal_task_range){ clock, p->part[part].task, 0 };
	for (uint32_t i = part; i < p->grid.parts && out->count < most; i++) {
		struct fal_part *a = &p->part[i];
		uint32_t end = fal_grid_part_first_task(&p->grid, clock, i + 1);
		if (a->clock != clock || a->task != out->first + out->count) {
			if (fal_grid_part_first_task(&p->grid, clock, i) == end)
				continue; /* this part has no task in this clock */
			break;
		}
		uint32_t n = end - a->task, room = most - out->count;
		n = n < room ? n : room;
		a->task += n;
		out->count += n;
		part_advance(p, i);
		if (!whole)
			break;
	}
}

/* Joins run `i` in `back` with the next run, if the two touch. */
static void
back_join(struct fal_task_pool *p, size_t i)
{
	struct fal_task_range *a = &p->back[i], *b = a + 1;
	if (i + 1 == p->backs || a->clock != b->clock || a->first + a->count != b->first)
		return;
	a->count += b->count;
	memmove(b, b + 1, (--p->backs - (i + 1)) * sizeof(*b));
}

void
fal_task_pool_back(struct fal_task_pool *p, const struct fal_task_range *r)
{
	size_t i = 0;
	FAL_XGROW(p->back, p->back_cap, p->backs + 1);
	while (i < p->backs &&
	       (p->back[i].clock < r->clock ||
		(p->back[i].clock == r->clock && p->back[i].first < r->first)))
		i++;
	memmove(p->back + i + 1, p->back + i, (p->backs++ - i) * sizeof(*p->back));
	p->back[i] = *r;
	back_join(p, i);
	if (i > 0)
		back_join(p, i - 1);
}

double
fal_task_pool_ended_part(const struct fal_task_pool *p, uint64_t clock)
{
	const size_t i = unended_place(p, clock);
	const uint32_t tasks = fal_grid_tasks(&p->grid, clock);
	if (i == p->unendeds || p->unended[i].clock != clock)
		return clock < p->over;
	return (double)(tasks - p->unended[i].left) / tasks;
}

void
fal_task_pool_ended(struct fal_task_pool *p, const struct fal_task_range *r)
{
	size_t i = unended_place(p, r->clock), gone = 0;
	assert(i < p->unendeds && p->unended[i].clock == r->clock &&
	       p->unended[i].left >= r->count);
	p->unended[i].left -= r->count;
	while (gone < p->unendeds && p->unended[gone].clock == p->over &&
	       p->unended[gone].left == 0) {
		gone++;
		p->over++;
	}
	p->unendeds -= gone;
	if (gone > 0)
		memmove(p->unended, p->unended + gone, p->unendeds * sizeof(*p->unended));
}
