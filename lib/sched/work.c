/* What a worker did since it last told where its time went. */
#include "base/least.h"
#include "sched/speed.h"

#include <string.h>

/* Seconds of a full task. */
static double
mean(const struct fal_work_pace *p)
{
	return p->seconds / p->size;
}

/* What the squared distances from the means grow by when the two become one. */
static double
apart(const struct fal_work_pace *a, const struct fal_work_pace *b)
{
	const double d = mean(a) - mean(b), n = a->size, m = b->size;
	return d * d * n * m / (n + m);
}

static void
add(struct fal_work_pace *to, const struct fal_work_pace *p)
{
	to->tasks += p->tasks;
	to->samples += p->samples;
	to->seconds += p->seconds;
	to->size += p->size;
}

/* The two neighbours of n > 1 that are least apart: the first of them. */
static uint32_t
nearest(const struct fal_work_pace *p, uint32_t n)
{
	uint32_t least = 0;
	for (uint32_t i = 1; i + 1 < n; i++)
		if (apart(&p[i], &p[i + 1]) < apart(&p[least], &p[least + 1]))
			least = i;
	return least;
}

void
fal_work_ran(struct fal_work *work, double task_s, uint32_t samples, double size)
{
	const struct fal_work_pace ran = { 1, samples, task_s, size };
	const double full_s = task_s / size;
	struct fal_work_pace all[FAL_WORK_PACES + 1], *last = NULL;
	const uint32_t n = work->paces;
	if (n > 0)
		last = &work->pace[n - 1];
	if (last != NULL &&
	    fal_max(full_s, mean(last)) <= FAL_JUMP * fal_min(full_s, mean(last))) {
		add(last, &ran);
	} else if (n < FAL_WORK_PACES) {
		work->pace[work->paces++] = ran;
	} else {
		memcpy(all, work->pace, sizeof(work->pace));
		all[n] = ran;
		const uint32_t at = nearest(all, n + 1);
		add(&all[at], &all[at + 1]);
		memmove(&all[at + 1], &all[at + 2], (n - at - 1) * sizeof(*all));
		memcpy(work->pace, all, sizeof(work->pace));
	}
}
