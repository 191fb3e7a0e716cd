/* Local steps that lead out of the numbers, and trainers that fail, as one key alone
 * says: the job waits for the word of another key, for some time. */
#include "coord/priv.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- local steps ---------------------------------------------------------------- */

bool
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

/* What one worker computes by itself may fail by its own fault, and its word is no more
 * than its key's.  When that of another key does soon after it is the job's: a learning
 * rate too large.  So it is when nobody of another key is here to say so, and none has
 * come and worked for some time (fal_coord_alone) since that was first said, nor has a
 * clock been over: of one key's workers one alone may be ill. */
void
coord_diverged(struct fal_coord *c, double now, const struct fal_peer *p, const char *why)
{
	enum { SOON = 100 }; /* clocks */
	const uint64_t clock = fal_sched_over(c->sched);
	const bool soon = c->diverged.key != 0 && clock - c->diverged.clock <= SOON;
	const bool again = clock == c->diverged.clock && c->diverged.key == p->key &&
			   !c->diverged.denied;
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
	    c->finished || c->why != NULL || coord_others(c, c->diverged.key))
		return INFINITY;
	return c->diverged.since + c->alone_s;
}

void
coord_diverged_review(struct fal_coord *c, double now)
{
	if (now >= coord_diverged_until(c))
		c->why = c->diverged.why;
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
	return c->trainer.since + (failed >= c->work_keys ? 0 : c->alone_s);
}

/* ---- what is said of it ---------------------------------------------------------- */

bool
coord_lone(const struct fal_coord *c, struct fal_lone *out, const char **why)
{
	const double until = coord_diverged_until(c);
	if (until == INFINITY)
		return false;
	*out = (struct fal_lone){ c->diverged.worker, 0, c->diverged.clock, until };
	*why = c->diverged.why;
	return true;
}

void
coord_lone_told(struct fal_coord *c, double now)
{
	struct fal_lone is = { .worker = c->lone.worker };
	const char *why = c->lone.why;
	if (c->finished || c->why != NULL)
		return;
	if (!coord_lone(c, &is, &why))
		is.until = 0;
	if (is.until == c->lone.until && is.worker == c->lone.worker)
		return;
	const struct fal_ev_diverged d = {
		.clock = fal_sched_over(c->sched),
		.worker = coord_known(c, is.worker)->name,
		.id = is.worker,
		.why = why,
		.seconds = is.until != 0 ? is.until - now : 0,
	};
	fal_trace_put(&c->line, fal_coord_seconds(c, now), FAL_EV_DIVERGED, &d);
	coord_trace(c);
	c->lone.until = is.until;
	c->lone.worker = is.worker;
	c->lone.why = why;
}
