/* A task's place along its part, and back. */
#include "trace/cover.h"

#include "base/mem.h"

#include <stdlib.h>

int
fal_cover_grown(const struct fal_cover *c)
{
	return c->job->clocks > INT64_MAX / fal_trace_job_tasks(c->job, 0) ? FAL_ELIMIT
									   : 0;
}

int
fal_cover_init(struct fal_cover *c, const struct fal_trace_job *job)
{
	c->job = job;
	if (fal_cover_grown(c) < 0)
		return FAL_ELIMIT;
	c->part = fal_calloc(job->parts, sizeof(*c->part));
	return c->part != NULL ? 0 : FAL_ENOMEM;
}

void
fal_cover_free(struct fal_cover *c)
{
	for (uint64_t p = 0; c->part != NULL && p < c->job->parts; p++)
		fal_spans_free(&c->part[p]);
	free(c->part);
	*c = (struct fal_cover){ 0 };
}

/* The first task of part p in a clock of `tasks`; of the part behind the last: `tasks`.
 */
static uint64_t
first_of(const struct fal_cover *c, uint64_t p, uint64_t tasks)
{
	return p * tasks / c->job->parts;
}

/* The tasks that part p has in a clock. */
static uint64_t
width(const struct fal_cover *c, uint64_t p, uint64_t clock)
{
	uint64_t tasks = fal_trace_job_tasks(c->job, clock);
	return first_of(c, p + 1, tasks) - first_of(c, p, tasks);
}

/* The tasks that part p has in all clocks before `clock`: only the last of an epoch
 * differs from the others. */
static uint64_t
before(const struct fal_cover *c, uint64_t p, uint64_t clock)
{
	const uint64_t n = c->job->clocks_per_epoch;
	uint64_t each = width(c, p, 0);
	return clock / n * ((n - 1) * each + width(c, p, n - 1)) + clock % n * each;
}

int
fal_cover_add(struct fal_cover *c, uint64_t clock, uint64_t first, uint64_t count,
	      uint64_t *twice)
{
	const uint64_t tasks = fal_trace_job_tasks(c->job, clock);
	uint64_t p = first * c->job->parts / tasks;
	int overlap = 0;
	for (; p < c->job->parts && first_of(c, p, tasks) < first + count; p++) {
		uint64_t from = first_of(c, p, tasks), to = first_of(c, p + 1, tasks), at;
		uint64_t base = before(c, p, clock), begin = first > from ? first : from;
		uint64_t end = first + count < to ? first + count : to;
		if (begin >= end)
			continue;
		int r = fal_spans_add(&c->part[p], base + begin - from, base + end - from,
				      &at);
		if (r < 0)
			return r;
		if (r == 1 && overlap == 0)
			*twice = at - base + from;
		overlap |= r;
	}
	return overlap;
}

/* The clock that has place `at` of part p. */
static uint64_t
clock_of(const struct fal_cover *c, uint64_t p, uint64_t at)
{
	uint64_t low = 0, high = c->job->clocks; /* before(low) ≤ at < before(high) */
	while (high - low > 1) {
		uint64_t mid = low + (high - low) / 2;
		if (before(c, p, mid) <= at)
			low = mid;
		else
			high = mid;
	}
	return low;
}

bool
fal_cover_gap(const struct fal_cover *c, uint64_t *clock, uint64_t *task)
{
	bool found = false;
	for (uint64_t p = 0; p < c->job->parts; p++) {
		uint64_t at = fal_spans_gap(&c->part[p]);
		if (at >= before(c, p, c->job->clocks))
			continue;
		uint64_t k = clock_of(c, p, at);
		if (found && k >= *clock)
			continue;
		*clock = k;
		*task = first_of(c, p, fal_trace_job_tasks(c->job, k)) + at -
			before(c, p, k);
		found = true;
	}
	return found;
}
