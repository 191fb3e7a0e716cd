/* Whether the job learns: the mean loss of its epochs, and the last version of which that
 * could be said.  falcon-job(5) has the rule of divergence. */
#include "coord/priv.h"

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
static int
judge_epoch(struct fal_coord *c, uint64_t version, uint64_t over)
{
	struct fal_health *h = &c->health;
	int err = FAL_OK;
	c->status.epoch = over / fal_grid_epoch_clocks(&c->conf.grid);
	if (h->samples > 0)
		c->status.epoch_loss = h->loss / (double)h->samples;
	/* Where rounds run ahead, those of the next epoch may be a part of the model
	 * already. */
	if (h->samples == 0 && h->finite < c->status.epoch)
		c->why = "diverged: no task of an epoch has a finite gradient";
	else if (c->conf.guess > 0 && median(c) > FAR * h->start)
		c->why = "diverged: the mean loss of an epoch is far above that of "
			 "guessing";
	else if (!c->evaluating)
		err = coord_keep(c, version, over);
	h->loss = 0;
	h->samples = 0;
	if (h->keys > 0)
		memset(h->key, 0, h->keys * sizeof(*h->key));
	return err;
}

int
coord_health(struct fal_coord *c, const struct fal_news *n)
{
	struct fal_health *h = &c->health;
	if (h->start == 0)
		h->start = fmax(median(c), c->conf.guess);
	if (n->samples > 0)
		h->loss += n->loss * (double)n->samples;
	h->samples += n->samples;
	if (c->why == NULL &&
	    n->over / fal_grid_epoch_clocks(&c->conf.grid) > c->status.epoch)
		return judge_epoch(c, n->version, n->over);
	return FAL_OK;
}

int
coord_health_claim(struct fal_coord *c, uint64_t clock, uint32_t key, double loss,
		   uint32_t samples)
{
	struct fal_health *h = &c->health;
	const uint64_t epoch = clock / fal_grid_epoch_clocks(&c->conf.grid) + 1;
	const size_t had = h->keys;
	assert(key > 0);
	if (FAL_GROW(h->key, h->key_cap, (size_t)key) < 0 ||
	    FAL_GROW(h->scratch, h->scratch_cap, (size_t)key) < 0)
		return FAL_ENOMEM;
	if (key > had) {
		memset(h->key + had, 0, (key - had) * sizeof(*h->key));
		h->keys = key;
	}
	if (epoch > h->finite)
		h->finite = epoch;
	h->key[key - 1].loss += loss;
	h->key[key - 1].samples += samples;
	return FAL_OK;
}

/* Could anybody else say whether it is so? */
static bool
others_here(const struct fal_coord *c)
{
	struct fal_worker_info is;
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *p = &c->peer[i];
		if (p->ready && p->worker != c->diverged.worker &&
		    fal_sched_info(c->sched, p->worker, &is) && is.able)
			return true;
	}
	return false;
}

/* What one worker computes by itself may fail by its own fault, and its word is no more
 * than its key's.  When that of another key does soon after it is the job's: a learning
 * rate too large.  So it is when nobody else is here to say so, and no other key has come
 * and worked for some time (fal_coord_alone) since that was first said. */
void
coord_diverged(struct fal_coord *c, double now, const struct fal_peer *p, const char *why)
{
	enum { SOON = 100 }; /* clocks */
	const uint64_t clock = fal_sched_over(c->sched);
	const bool soon = c->diverged.key != 0 && clock - c->diverged.clock <= SOON;
	const bool again = soon && c->diverged.key == p->key && !c->diverged.denied;
	if (soon && c->diverged.key != p->key)
		c->why = why;
	if (!again)
		c->diverged.since = now;
	c->diverged.key = p->key;
	c->diverged.worker = p->worker;
	c->diverged.why = why;
	c->diverged.clock = clock;
	c->diverged.denied = c->diverged.worked = false;
	coord_diverged_review(c, now);
}

void
coord_diverged_since(struct fal_coord *c, const struct fal_peer *p)
{
	c->diverged.worked = true;
	c->diverged.denied |= p->key != c->diverged.key;
}

double
coord_diverged_until(const struct fal_coord *c)
{
	if (c->diverged.key == 0 || c->diverged.denied || c->diverged.worked ||
	    c->finished || c->why != NULL || others_here(c))
		return INFINITY;
	return c->diverged.since + c->alone_s;
}

void
coord_diverged_review(struct fal_coord *c, double now)
{
	if (now >= coord_diverged_until(c))
		c->why = c->diverged.why;
}

void
coord_health_free(struct fal_coord *c)
{
	free(c->health.key);
	free(c->health.scratch);
}

bool
fal_coord_kept(const struct fal_coord *c, struct fal_coord_left *out)
{
	coord_enter(c);
	*out = (struct fal_coord_left){ c->kept_version, c->kept_clock };
	return c->kept_clock != 0;
}

bool
fal_coord_newest(const struct fal_coord *c, struct fal_coord_left *out)
{
	coord_enter(c);
	*out = (struct fal_coord_left){ c->published, c->stepped };
	return c->published != 0;
}
