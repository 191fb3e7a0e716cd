/* The grid of a job's samples: each epoch is cut into clocks of one batch each, and each
 * clock into tasks.
 *
 * Clocks are numbered through the whole job, tasks within their clock.  The first tasks
 * of a clock, its head, have `task` samples each; those of its tail have `tail_task`
 * samples, so that the workers of a clock can end together.  The last task may have fewer
 * samples.  The last clock of an epoch may have fewer samples.
 *
 * A task of a given clock and number has the same samples under every scheme.
 */
#ifndef FAL_SCHED_GRID_H
#define FAL_SCHED_GRID_H

#include <stdbool.h>
#include <stdint.h>

struct fal_grid {
	uint32_t samples; /* of an epoch */
	uint32_t batch, task, epochs;
	/* of the data; each part has an equal run of a clock's tasks; 0 counts as 1 */
	uint32_t parts;
	uint32_t tail_task; /* 0: as `task` */
	double tail;        /* the tail's part of a clock's samples: 0 to 1 */
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

/* The most runs of tasks in a worker's share of a clock: early large, early small, late
 * large and late small tasks. */
enum { FAL_SPANS = 4 };

/* Samples of a task in the tail. */
static inline uint32_t
fal_grid_tail_task(const struct fal_grid *g)
{
	return g->tail_task > 0 ? g->tail_task : g->task;
}

/* Tasks of the clock's head. */
static inline uint32_t
fal_grid_head_tasks(const struct fal_grid *g, uint64_t clock)
{
	return (uint32_t)((1 - g->tail) * fal_grid_samples(g, clock) / g->task);
}

/* Samples of a full task, which is the largest task of the job. */
static inline uint32_t
fal_grid_full_samples(const struct fal_grid *g)
{
	const uint32_t most = fal_grid_samples(g, 0);
	const uint32_t full =
		fal_grid_head_tasks(g, 0) > 0 ? g->task : fal_grid_tail_task(g);
	return full < most ? full : most;
}

/* The tasks of a clock that lie wholly within its first `samples` samples. */
static inline uint32_t
fal_grid_tasks_within(const struct fal_grid *g, uint64_t clock, uint64_t samples)
{
	const uint32_t head = fal_grid_head_tasks(g, clock), each = fal_grid_tail_task(g);
	const uint32_t all = fal_grid_samples(g, clock), tail = head * g->task;
	if (samples >= all)
		return head + (all - tail) / each + ((all - tail) % each != 0);
	return samples < tail ? (uint32_t)samples / g->task
			      : head + (uint32_t)(samples - tail) / each;
}

/* Tasks of a clock: K. */
static inline uint32_t
fal_grid_tasks(const struct fal_grid *g, uint64_t clock)
{
	return fal_grid_tasks_within(g, clock, UINT32_MAX);
}

/* The most tasks that any clock has.  A short last clock may have more tasks than the
 * others, because more of its samples may lie in the tail. */
static inline uint32_t
fal_grid_tasks_max(const struct fal_grid *g)
{
	const uint32_t full = fal_grid_tasks(g, 0);
	const uint32_t last = fal_grid_tasks(g, fal_grid_epoch_clocks(g) - 1);
	return last > full ? last : full;
}

/* Tasks of a clock outside of its tail; all tasks, if the clock has no tail. */
static inline uint32_t
fal_grid_large_tasks(const struct fal_grid *g, uint64_t clock)
{
	return g->tail > 0 ? fal_grid_head_tasks(g, clock) : fal_grid_tasks(g, clock);
}

/* The samples of a clock that come before task `task`, from 0 to K. */
static inline uint32_t
fal_grid_samples_before(const struct fal_grid *g, uint64_t clock, uint32_t task)
{
	const uint32_t head = fal_grid_head_tasks(g, clock),
		       all = fal_grid_samples(g, clock);
	const uint64_t before =
		task <= head ? (uint64_t)task * g->task
			     : (uint64_t)head * g->task +
				       (uint64_t)(task - head) * fal_grid_tail_task(g);
	return before < all ? (uint32_t)before : all;
}

/* Samples of the tasks first … first+count-1 of a clock. */
static inline uint32_t
fal_grid_range_samples(const struct fal_grid *g, uint64_t clock, uint32_t first,
		       uint32_t count)
{
	return fal_grid_samples_before(g, clock, first + count) -
	       fal_grid_samples_before(g, clock, first);
}

/* A clock's samples, in full tasks. */
static inline double
fal_grid_size(const struct fal_grid *g, uint64_t clock)
{
	return (double)fal_grid_samples(g, clock) / fal_grid_full_samples(g);
}

/* Do clocks of both grids have the same samples, in the same tasks?  Then sums are equal,
 * bit by bit. */
static inline bool
fal_grid_equal(const struct fal_grid *a, const struct fal_grid *b)
{
	return fal_grid_samples(a, 0) == fal_grid_samples(b, 0) &&
	       fal_grid_full_samples(a) == fal_grid_full_samples(b) &&
	       fal_grid_head_tasks(a, 0) == fal_grid_head_tasks(b, 0) &&
	       fal_grid_tail_task(a) == fal_grid_tail_task(b);
}

/* The first task of part i; for i = parts the end of the clock. */
static inline uint32_t
fal_grid_part_first_task(const struct fal_grid *g, uint64_t clock, uint32_t i)
{
	const uint32_t parts = g->parts > 0 ? g->parts : 1;
	const uint64_t samples = (uint64_t)i * fal_grid_samples(g, clock) / parts;
	return fal_grid_tasks_within(g, clock, samples);
}

/* The part of the data that has the task: the first part that does not end before the end
 * of the task. */
static inline uint32_t
fal_grid_task_part(const struct fal_grid *g, uint64_t clock, uint32_t task)
{
	const uint64_t parts = g->parts > 0 ? g->parts : 1;
	const uint64_t end = fal_grid_samples_before(g, clock, task + 1);
	return (uint32_t)((end * parts - 1) / fal_grid_samples(g, clock));
}

#endif
