/* Whether the job learns: the mean loss of its epochs, and the last version of which that
 * could be said.  falcon-job(5) has the rule of divergence. */
#include "peer/coord_priv.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A job has diverged whose epoch has so many times the mean loss of guessing. */
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

static int
compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The median, by key, of the mean losses that workers had so far in the epoch, so that
 * one that lies neither ends a job nor keeps it from ending; of two keys the lower. */
static double
median(struct fal_coord *c)
{
	size_t n = 0;
	double *v = c->health.scratch;
	for (size_t i = 0; i < c->health.keys; i++) {
		const struct fal_health_key *k = &c->health.key[i];
		if (k->samples > 0)
			v[n++] = k->loss / (double)k->samples;
	}
	if (n == 0)
		return 0;
	qsort(v, n, sizeof(*v), compare);
	return v[(n - 1) / 2];
}

/* The end of an epoch, or of several at once. */
static void
judge_epoch(struct fal_coord *c, uint64_t over)
{
	struct fal_health *h = &c->health;
	c->status.epoch = over / fal_grid_epoch_clocks(&c->conf.grid);
	c->status.epoch_loss = h->loss / (double)h->samples;
	if (c->conf.guess > 0 && median(c) > FAR * h->start)
		c->why = "diverged: the mean loss of an epoch is far above that of "
			 "guessing";
	else if (!c->evaluating)
		coord_keep(c, over);
	h->loss = 0;
	h->samples = 0;
	if (h->keys > 0)
		memset(h->key, 0, h->keys * sizeof(*h->key));
}

void
coord_health(struct fal_coord *c, double loss, uint64_t samples, uint64_t over)
{
	struct fal_health *h = &c->health;
	if (h->start == 0)
		h->start = fmax(median(c), c->conf.guess);
	h->loss += loss * (double)samples;
	h->samples += samples;
	if (c->why == NULL &&
	    over / fal_grid_epoch_clocks(&c->conf.grid) > c->status.epoch)
		judge_epoch(c, over);
}

int
coord_health_claim(struct fal_coord *c, uint32_t key, double loss, uint32_t samples)
{
	struct fal_health *h = &c->health;
	const size_t had = h->keys;
	assert(key > 0);
	if (FAL_GROW(h->key, h->key_cap, (size_t)key) < 0 ||
	    FAL_GROW(h->scratch, h->scratch_cap, (size_t)key) < 0)
		return FAL_ENOMEM;
	if (key > had) {
		memset(h->key + had, 0, (key - had) * sizeof(*h->key));
		h->keys = key;
	}
	h->key[key - 1].loss += loss;
	h->key[key - 1].samples += samples;
	return FAL_OK;
}

void
coord_health_free(struct fal_coord *c)
{
	free(c->health.key);
	free(c->health.scratch);
}

const float *
fal_coord_kept(const struct fal_coord *c, uint64_t *clock)
{
	if (c->kept_clock == 0)
		return NULL;
	*clock = c->kept_clock;
	return c->kept;
}

const float *
fal_coord_newest(const struct fal_coord *c, uint64_t *clock)
{
	if (fal_store_version(c->store) == 0)
		return NULL;
	*clock = c->stepped;
	return fal_store_params(c->store);
}
