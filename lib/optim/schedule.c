/* Learning-rate schedules. */
#include "optim/schedule.h"

#include <assert.h>
#include <math.h>

static double
cosine(const struct fal_schedule *s, uint64_t t)
{
	assert(s->total >= s->warmup);
	uint64_t whole = s->total - s->warmup;
	if (t >= whole)
		return s->min_lr;
	double wave = 1 + cos(M_PI * (double)t / (double)whole);
	return s->min_lr + (s->lr - s->min_lr) * wave / 2;
}

double
fal_schedule_lr(const struct fal_schedule *s, uint64_t update)
{
	if (update < s->warmup)
		return s->lr * ((double)(update + 1) / (double)s->warmup);
	uint64_t t = update - s->warmup;
	switch (s->kind) {
	case FAL_CONSTANT:
		return s->lr;
	case FAL_STEP:
		assert(s->every > 0);
		return s->lr * pow(s->gamma, (double)(t / s->every));
	case FAL_COSINE:
		return cosine(s, t);
	}
	assert(0 && "a kind of schedule");
	return 0;
}
