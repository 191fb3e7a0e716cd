/* Whether the job learns: the mean loss of its epochs, and the last version of which that
 * could be said.  falcon-job(5) has the rule of divergence. */
#include "peer/coord_priv.h"

#include <math.h>
#include <string.h>

/* A job has diverged whose epoch has so many times the mean loss of its first update.
 * One that learns nothing stays at 1; a class more or less likely by e is a loss of 1. */
enum { FAR = 3 };

static bool
finite_all(const float *v, size_t n)
{
	/* 0 · x is 0, or NaN where x is not finite; sums of these keep that. */
	float sum[8] = { 0 };
	size_t i = 0;
	for (; i + 8 <= n; i += 8)
		for (size_t k = 0; k < 8; k++)
			sum[k] += 0 * v[i + k];
	for (; i < n; i++)
		sum[0] += 0 * v[i];
	for (size_t k = 1; k < 8; k++)
		sum[0] += sum[k];
	return sum[0] == 0;
}

bool
coord_keep(struct fal_coord *c, uint64_t over)
{
	const float *params = fal_store_params(c->store);
	if (c->kept_clock == over && c->kept_version == fal_store_version(c->store))
		return true;
	if (!finite_all(params, c->conf.params)) {
		c->why = "diverged: the parameters are not finite";
		return false;
	}
	memcpy(c->kept, params, c->conf.params * sizeof(float));
	memcpy(c->kept_exps, fal_store_exps(c->store), fal_blocks(c->conf.params));
	c->kept_version = fal_store_version(c->store);
	c->kept_clock = over;
	c->judged = false;
	return true;
}

/* The end of an epoch, or of several at once. */
static void
judge_epoch(struct fal_coord *c, uint64_t over)
{
	c->status.epoch = over / fal_grid_epoch_clocks(&c->conf.grid);
	c->status.epoch_loss = c->health.loss / (double)c->health.samples;
	c->health.loss = 0;
	c->health.samples = 0;
	if (c->health.start > 0 && c->status.epoch_loss > FAR * c->health.start)
		c->why = "diverged: an epoch's mean loss is more than 3 times the first "
			 "update's";
	else if (!c->evaluating)
		coord_keep(c, over);
}

void
coord_health(struct fal_coord *c, double loss, uint64_t samples, uint64_t over)
{
	if (c->health.start == 0)
		c->health.start = loss;
	c->health.loss += loss * (double)samples;
	c->health.samples += samples;
	if (over / fal_grid_epoch_clocks(&c->conf.grid) > c->status.epoch)
		judge_epoch(c, over);
}

const float *
fal_coord_kept(const struct fal_coord *c, uint64_t *version, uint64_t *clock)
{
	if (c->kept_clock == 0)
		return NULL;
	*version = c->kept_version;
	*clock = c->kept_clock;
	return c->kept;
}
