/* How a job's samples are cut: epochs into clocks of a batch, clocks into tasks.
 *
 * Clocks count over the whole job, tasks within their clock.  The last clock of an epoch
 * may have fewer samples, the last task of a clock, too: a short task.
 */
#ifndef FAL_SCHED_GRID_H
#define FAL_SCHED_GRID_H

#include <stdbool.h>
#include <stdint.h>

struct fal_grid {
	uint32_t samples; /* of an epoch */
	uint32_t batch, task, epochs;
	uint32_t parts; /* that own equal runs of each clock's tasks; 0 is 1 */
};

static inline uint64_t
fal_grid_epoch_clocks(const struct fal_grid *g)
{
	return g->samples / g->batch + (g->samples % g->batch != 0);
}

static inline uint64_t
fal_grid_clocks(const struct fal_grid *g)
{
	return g->epochs * fal_grid_epoch_clocks(g);
}

static inline uint32_t
fal_grid_samples(const struct fal_grid *g, uint64_t clock)
{
	uint64_t left = g->samples - clock % fal_grid_epoch_clocks(g) * g->batch;
	return left < g->batch ? (uint32_t)left : g->batch;
}

/* Samples of a full task: no task of the job has more. */
static inline uint32_t
fal_grid_full(const struct fal_grid *g)
{
	uint32_t most = fal_grid_samples(g, 0);
	return g->task < most ? g->task : most;
}

/* Tasks of a clock: K. */
static inline uint32_t
fal_grid_tasks(const struct fal_grid *g, uint64_t clock)
{
	uint32_t samples = fal_grid_samples(g, clock);
	return samples / g->task + (samples % g->task != 0);
}

/* Samples of the tasks first … first+count-1 of a clock. */
static inline uint32_t
fal_grid_range_samples(const struct fal_grid *g, uint64_t clock, uint32_t first,
		       uint32_t count)
{
	uint64_t all = fal_grid_samples(g, clock), from = (uint64_t)first * g->task;
	uint64_t to = from + (uint64_t)count * g->task;
	return (uint32_t)((to < all ? to : all) - from);
}

/* Tasks of a clock that lie wholly within its first `samples` ones. */
static inline uint32_t
fal_grid_within(const struct fal_grid *g, uint64_t clock, uint64_t samples)
{
	const uint64_t all = fal_grid_samples(g, clock);
	return samples >= all ? fal_grid_tasks(g, clock) : (uint32_t)(samples / g->task);
}

/* A clock's samples, in full tasks. */
static inline double
fal_grid_size(const struct fal_grid *g, uint64_t clock)
{
	return (double)fal_grid_samples(g, clock) / fal_grid_full(g);
}

/* Whether clocks have the same samples in both, in the same tasks: sums are then the
 * same, bit by bit. */
static inline bool
fal_grid_alike(const struct fal_grid *a, const struct fal_grid *b)
{
	return fal_grid_samples(a, 0) == fal_grid_samples(b, 0) &&
	       fal_grid_full(a) == fal_grid_full(b);
}

/* The first task of part i; part parts begins where the clock ends. */
static inline uint32_t
fal_grid_part(const struct fal_grid *g, uint64_t clock, uint32_t i)
{
	uint32_t parts = g->parts > 0 ? g->parts : 1;
	return (uint32_t)((uint64_t)i * fal_grid_tasks(g, clock) / parts);
}

#endif
