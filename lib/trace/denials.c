/* Tasks without a finite result. */
#include "trace/denials.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Most that wait for the ends of their tasks. */
enum { WAITING_MAX = 1 << 16 };

void
fal_denials_free(struct fal_denials *d)
{
	free(d->v);
	*d = (struct fal_denials){ 0 };
}

static bool
was_said(const struct fal_denials *d, const struct fal_denial *is)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].clock == is->clock && d->v[i].task == is->task &&
		    d->v[i].id == is->id)
			return true;
	return false;
}

int
fal_denials_line(struct fal_denials *d, struct fal_trace_line *l,
		 const struct fal_trace_job *job, const struct fal_people *people,
		 struct fal_findings *f)
{
	const bool alone = strcmp(l->ev, "alone") == 0;
	const struct fal_denial is = {
		.clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX),
		.task = fal_trace_get_u64(l, l->o, FAL_F_TASK, FAL_TRACE_NUM_MAX),
		.id = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX),
	};
	const char *what = NULL;
	if (alone)
		fal_trace_get_seconds(l, l->o, FAL_F_SECONDS);
	if (l->err != 0)
		return l->err;
	if (is.clock >= job->clocks || is.task >= fal_trace_job_tasks(job, is.clock))
		what = "the job has no such task";
	else if (!fal_people_here(people, is.id))
		what = "it is not here";
	else if (alone && !was_said(d, &is))
		what = "it has not said so";
	if (what != NULL)
		fal_finding_line(f, l, "%s: worker %u of task %llu of clock %llu: %s",
				 l->ev, is.id, (unsigned long long)is.task,
				 (unsigned long long)is.clock, what);
	d->said += !alone;
	if (alone || was_said(d, &is))
		return 0;
	if (d->n == WAITING_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "more than %d wait for their tasks",
				      WAITING_MAX);
	if (FAL_GROW(d->v, d->cap, d->n + 1) < 0)
		return FAL_ENOMEM;
	d->v[d->n++] = is;
	return 0;
}

int
fal_denials_diverged(struct fal_denials *d, struct fal_trace_line *l,
		     const struct fal_trace_job *job, const struct fal_people *people,
		     struct fal_findings *f)
{
	const uint64_t clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
	const uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	const bool waits = fal_trace_get_seconds(l, l->o, FAL_F_SECONDS) > 0;
	const char *what = NULL;
	fal_trace_get_str(l, l->o, FAL_F_WHY);
	if (l->err != 0)
		return l->err;
	if (!fal_people_joined(people, id))
		what = "never joined";
	else if (clock > job->clocks)
		what = "of a clock that the job has not";
	else if (!waits && !(d->diverged && d->lone == id))
		what = "was not waited for";
	if (what != NULL)
		fal_finding_line(f, l, "diverged: worker %u %s", id, what);
	d->diverged = waits;
	d->lone = id;
	return 0;
}

static int
by_task(const void *a, const void *b)
{
	const struct fal_denial *x = a, *y = b;
	return x->clock != y->clock ? (x->clock > y->clock) - (x->clock < y->clock)
				    : (x->task > y->task) - (x->task < y->task);
}

void
fal_denials_skipped(struct fal_denials *d, struct fal_trace_line *l,
		    const struct fal_trace_round *r, struct fal_findings *f)
{
	if (!fal_trace_has(l->o, FAL_F_SKIPPED))
		return;
	if (d->n > 0)
		qsort(d->v, d->n, sizeof(*d->v), by_task);
	const size_t rows = fal_trace_get_len(l, l->o, FAL_F_SKIPPED);
	for (size_t i = 0; i < rows && l->err == 0; i++) {
		uint64_t row[2] = { 0 };
		fal_trace_get_row(l, l->o, FAL_F_SKIPPED, i, 2, row);
		struct fal_denial is = { .clock = r->clock, .task = row[0] };
		const uint64_t end = row[0] + (row[1] < r->tasks ? row[1] : r->tasks);
		while (is.task < end && d->n > 0 &&
		       bsearch(&is, d->v, d->n, sizeof(is), by_task) != NULL)
			is.task++;
		if (is.task < end)
			fal_finding(f, r, is.task, 1,
				    "skipped, but nobody has said that it is not finite");
	}
}

void
fal_denials_round(struct fal_denials *d, const struct fal_trace_round *r)
{
	size_t kept = 0;
	for (size_t i = 0; i < d->n; i++) {
		const struct fal_denial is = d->v[i];
		if (is.clock != r->clock || is.task < r->first ||
		    is.task - r->first >= r->tasks || r->end == FAL_TRACE_ABANDONED)
			d->v[kept++] = is;
	}
	d->n = kept;
}
