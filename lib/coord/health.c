/* Whether the job learns: the mean loss of its epochs, and the last version of which that
 * could be said.  falcon-job(5) has the rule of divergence. */
#include "coord/priv.h"

#include "base/loss.h"
#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A job has diverged whose epoch has so many times the mean loss of guessing. */
enum { FAR = 3 };

int
coord_keep(struct fal_coord *c, uint64_t version, uint64_t over)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_HOLD, .version = version };
	if (c->kept_clock == over && c->kept_version == version)
		return FAL_OK;
	c->kept_version = version;
	c->kept_clock = over;
	c->judged = false;
	return coord_order(c, &o);
}

static int
compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Clocks belong to epochs, from 1. */
static uint64_t
epoch_of(const struct fal_coord *c, uint64_t clock)
{
	return clock / fal_grid_epoch_clocks(&c->conf.grid) + 1;
}

/* What is known of the epoch, which has begun with that; NULL: no memory. */
static struct fal_health_epoch *
epoch_at(struct fal_coord *c, uint64_t epoch)
{
	struct fal_health *h = &c->health;
	size_t i = h->epochs;
	while (i > 0 && h->epoch[i - 1].epoch > epoch)
		i--;
	if (i > 0 && h->epoch[i - 1].epoch == epoch)
		return &h->epoch[i - 1];
	if (FAL_GROW(h->epoch, h->epoch_cap, h->epochs + 1) < 0)
		return NULL;
	memmove(h->epoch + i + 1, h->epoch + i, (h->epochs++ - i) * sizeof(*h->epoch));
	h->epoch[i] = (struct fal_health_epoch){ .epoch = epoch };
	return &h->epoch[i];
}

int
coord_health_count(struct fal_coord *c, uint64_t clock, double loss, uint64_t samples)
{
	if (epoch_of(c, clock) <= c->status.epoch)
		return FAL_OK;
	struct fal_health_epoch *e = epoch_at(c, epoch_of(c, clock));
	if (e == NULL)
		return FAL_ENOMEM;
	e->loss += loss;
	e->samples += samples;
	return FAL_OK;
}

int
coord_health_skip(struct fal_coord *c, uint64_t clock, uint64_t tasks)
{
	if (tasks == 0 || epoch_of(c, clock) <= c->status.epoch)
		return FAL_OK;
	struct fal_health_epoch *e = epoch_at(c, epoch_of(c, clock));
	if (e == NULL)
		return FAL_ENOMEM;
	e->skipped += tasks;
	return FAL_OK;
}

int
coord_health_claim(struct fal_coord *c, uint64_t clock, uint32_t key, int64_t loss,
		   uint32_t samples)
{
	struct fal_health *h = &c->health;
	assert(key > 0);
	if (epoch_of(c, clock) <= c->status.epoch)
		return FAL_OK;
	struct fal_health_epoch *e = epoch_at(c, epoch_of(c, clock));
	if (e == NULL || FAL_GROW(e->key, e->key_cap, (size_t)key) < 0 ||
	    FAL_GROW(h->scratch, h->scratch_cap, (size_t)key) < 0)
		return FAL_ENOMEM;
	if (key > e->keys) {
		memset(e->key + e->keys, 0, (key - e->keys) * sizeof(*e->key));
		e->keys = key;
	}
	const bool known = fal_loss_known(loss, samples);
	e->key[key - 1].loss[known] += fal_loss_is(loss);
	e->key[key - 1].samples[known] += samples;
	return FAL_OK;
}

struct fal_health_epoch
coord_health_under_way(const struct fal_coord *c)
{
	static const struct fal_health_epoch none;
	const struct fal_health *h = &c->health;
	const bool any = h->epochs > 0 && h->epoch[0].epoch == c->status.epoch + 1;
	return any ? h->epoch[0] : none;
}

/* The median, by key, of the mean losses that workers have had in the epoch so far, so
 * that one that lies neither ends a job nor keeps it from ending; of two keys the lower.
 * A loss that is not known, as a trainer may not say one, tells of nothing; but where a
 * key has no other they are all too large, or were none at first either. */
static double
median(struct fal_coord *c, const struct fal_health_epoch *e)
{
	size_t n = 0;
	double *v = c->health.scratch;
	for (size_t i = 0; i < e->keys; i++) {
		const bool known = e->key[i].samples[true] > 0;
		if (e->key[i].samples[known] > 0)
			v[n++] = e->key[i].loss[known] / (double)e->key[i].samples[known];
	}
	if (n == 0)
		return 0;
	qsort(v, n, sizeof(*v), compare);
	return v[(n - 1) / 2];
}

/* Is there none of its tasks that was not skipped?  What was dropped before it was done
 * may have had a result. */
static bool
all_skipped(const struct fal_coord *c, const struct fal_health_epoch *e)
{
	const uint64_t clocks = fal_grid_epoch_clocks(&c->conf.grid);
	uint64_t tasks = 0;
	if (e->samples > 0 || e->keys > 0 || e->skipped == 0)
		return false;
	for (uint64_t i = 0; i < clocks; i++)
		tasks += fal_grid_tasks(&c->conf.grid, c->status.epoch * clocks + i);
	return e->skipped >= tasks;
}

/* The next epoch is over. */
static void
judge_epoch(struct fal_coord *c)
{
	const struct fal_health_epoch e = coord_health_under_way(c);
	struct fal_health *h = &c->health;
	const bool none = all_skipped(c, &e);
	c->status.epoch++;
	if (e.samples > 0)
		c->status.epoch_loss = e.loss / (double)e.samples;
	h->loss[c->status.epoch % HEALTH_LOSSES] = c->status.epoch_loss;
	if (none)
		c->why = "diverged: no task of an epoch has a finite gradient";
	else if (c->conf.guess > 0 && median(c, &e) > FAR * h->start)
		c->why = "diverged: the mean loss of an epoch is far above that of "
			 "guessing";
	if (e.epoch == 0)
		return;
	free(e.key);
	memmove(h->epoch, h->epoch + 1, --h->epochs * sizeof(*h->epoch));
}

/* Epochs of which all is counted.  Of what another policy has left clocks may be over in
 * another order than theirs, and in several updates. */
static uint64_t
ended(const struct fal_coord *c, uint32_t later)
{
	uint64_t over = fal_sched_over(c->sched);
	if (over > c->health.over)
		over = c->health.over;
	for (uint32_t i = later; i < c->mergeds; i++)
		if (!c->merged[i].own && c->merged[i].clock < over)
			over = c->merged[i].clock;
	return over / fal_grid_epoch_clocks(&c->conf.grid);
}

int
coord_health(struct fal_coord *c, uint64_t version, uint64_t over, uint32_t later)
{
	struct fal_health *h = &c->health;
	const uint64_t was = c->status.epoch;
	h->over = over > h->over ? over : h->over;
	if (h->start == 0)
		h->start =
			fmax(h->epochs > 0 ? median(c, &h->epoch[0]) : 0, c->conf.guess);
	while (c->why == NULL && c->status.epoch < ended(c, later))
		judge_epoch(c);
	return c->why == NULL && c->status.epoch > was && !c->evaluating
		       ? coord_keep(c, version, over)
		       : FAL_OK;
}

void
coord_health_become(struct fal_coord *c, double start)
{
	c->health.start = start;
	c->health.first = c->status.epoch;
	c->health.loss[c->status.epoch % HEALTH_LOSSES] = c->status.epoch_loss;
}

double
fal_coord_epoch_loss(const struct fal_coord *c, uint64_t epoch)
{
	coord_enter(c);
	const uint64_t last = c->status.epoch;
	const bool known = epoch > 0 && epoch >= c->health.first && epoch <= last &&
			   last - epoch < HEALTH_LOSSES;
	return known ? c->health.loss[epoch % HEALTH_LOSSES] : NAN;
}

void
coord_health_free(struct fal_coord *c)
{
	for (size_t i = 0; i < c->health.epochs; i++)
		free(c->health.epoch[i].key);
	free(c->health.epoch);
	free(c->health.scratch);
}

bool
fal_coord_kept(const struct fal_coord *c, struct fal_coord_left *out)
{
	coord_enter(c);
	*out = (struct fal_coord_left){ c->kept_version, c->kept_clock,
					c->why == c->trainer.why };
	return c->kept_clock != 0;
}

bool
fal_coord_newest(const struct fal_coord *c, struct fal_coord_left *out)
{
	coord_enter(c);
	*out = (struct fal_coord_left){ c->published, c->stepped, false };
	return c->published != 0;
}
