/* Local steps that lead out of the numbers, and trainers that fail. */
#include "coord/priv.h"

#include <math.h>
#include <stdio.h>

/* ---- local steps ---------------------------------------------------------------- */

/* Is anybody of another key able to work? */
static bool
coord_others(const struct fal_coord *c, uint32_t key)
{
	struct fal_worker_info is;
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *p = &c->peer[i];
		if (p->ready && p->key != key &&
		    fal_sched_info(c->sched, p->worker, &is) && is.able)
			return true;
	}
	return false;
}

void
coord_diverged(struct fal_coord *c, const struct fal_peer *p, const char *why)
{
	enum { SOON = 100 }; /* clocks */
	const uint64_t clock = fal_sched_over(c->sched);
	const bool soon = c->diverged.key != 0 && clock - c->diverged.clock <= SOON;
	const bool alone = c->ready == (p->ready ? 1 : 0);
	if (alone || (soon && (c->diverged.key != p->key || !coord_others(c, p->key))))
		c->why = why;
	c->diverged.key = p->key;
	c->diverged.clock = clock;
}

/* ---- trainers ------------------------------------------------------------------- */

void
coord_trainer_failed(struct fal_coord *c, double now, const struct fal_peer *p,
		     const char *why)
{
	struct fal_known_key *key = &c->key[p->key - 1];
	key->failed = true;
	c->trainer.since = now;
	snprintf(c->trainer.why, sizeof(c->trainer.why), "trainer of %s failed: %s",
		 p->name, why);
	fal_trace_put(&c->line, fal_coord_seconds(c, now), FAL_EV_TRAINER,
		      &(struct fal_ev_trainer){ key->name, c->trainer.why });
	coord_trace(c);
}

void
coord_trainer_works(struct fal_coord *c)
{
	for (uint32_t i = 0; c->trainer.why[0] != '\0' && i < c->keys; i++)
		c->key[i].failed = false;
	c->trainer.why[0] = '\0';
}

const char *
fal_coord_trainer(const struct fal_coord *c)
{
	coord_enter(c);
	return c->trainer.why;
}

double
coord_trainer_until(const struct fal_coord *c)
{
	uint32_t failed = 0;
	if (c->trainer.why[0] == '\0' || c->finished || c->why != NULL)
		return INFINITY;
	for (uint32_t i = 0; i < c->peers; i++)
		if (c->peer[i].greeted && !c->peer[i].left)
			return INFINITY;
	for (uint32_t i = 0; i < c->keys; i++)
		failed += c->key[i].failed;
	return c->trainer.since + (failed >= c->work_keys ? 0 : c->trainer.wait_s);
}
