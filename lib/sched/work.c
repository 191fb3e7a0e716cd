/* What a worker did since it last told where its time went. */
#include "sched/state.h"

#include <math.h>
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

void
fal_work_ran(struct fal_work *work, double task_s, uint32_t samples, double size)
{
	const double full_s = task_s / size;
	struct fal_work_pace all[FAL_WORK_PACES + 1];
	uint32_t n = work->paces, least = 0;
	memcpy(all, work->pace, n * sizeof(*all));
	all[n] = (struct fal_work_pace){ 1, samples, task_s, size };
	work->paces = n + 1;
	if (n > 0 &&
	    fmax(full_s, mean(&all[n - 1])) <= FAL_JUMP * fmin(full_s, mean(&all[n - 1])))
		least = n - 1;
	else if (n < FAL_WORK_PACES)
		least = n;
	else
		for (uint32_t i = 1; i < n; i++)
			if (apart(&all[i], &all[i + 1]) <
			    apart(&all[least], &all[least + 1]))
				least = i;
	if (least < n) {
		all[least].tasks += all[least + 1].tasks;
		all[least].samples += all[least + 1].samples;
		all[least].size += all[least + 1].size;
		all[least].seconds += all[least + 1].seconds;
		memmove(&all[least + 1], &all[least + 2], (n - least - 1) * sizeof(*all));
		work->paces = n;
	}
	memcpy(work->pace, all, work->paces * sizeof(*all));
}
