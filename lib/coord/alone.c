/* What leads out of the numbers, and what one key alone says of that: it waits for the
 * word of another key, for some time. */
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

/* ---- sums ----------------------------------------------------------------------- */

static struct fal_redo *
redo_of(const struct fal_coord *c, uint64_t round)
{
	for (size_t i = 0; i < c->redos; i++)
		if (c->redo[i].round == round)
			return &c->redo[i];
	return NULL;
}

/* The round of one worker, and whoever helped it: `by` may be ill, or the job. */
static int
own_beyond(struct fal_coord *c, double now, const struct fal_round_info *r,
	   struct fal_cid by)
{
	static const char why[] = "its gradients led out of the numbers";
	const struct fal_peer *p = coord_at_work(c, by.worker);
	if (p != NULL)
		coord_diverged(c, now, p, "gradients led out of the numbers");
	if (c->why != NULL)
		return FAL_OK;
	int err = fal_sched_abandon(c->sched, now, r->round, why);
	return err < 0 ? err : fal_sched_charge(c->sched, now, by.worker, why);
}

/* The blocks of the round that lead out of the numbers are made once more. */
static int
make_again(struct fal_coord *c, struct fal_gather *g)
{
	static const struct fal_cid blocks = { 0, 0 };
	const struct fal_again why = { .by = g->by, .why = "beyond the numbers" };
	return coord_again(c, g, blocks, &why);
}

static const char twice[] = "gradients led out of the numbers on two runs";

int
coord_beyond(struct fal_coord *c, double now, const struct fal_round_info *r,
	     struct fal_gather *g)
{
	struct fal_redo *of = redo_of(c, r->round);
	if (r->owner != 0)
		return own_beyond(c, now, r, g->by);
	if (of == NULL) {
		if (FAL_GROW(c->redo, c->redo_cap, c->redos + 1) < 0)
			return FAL_ENOMEM;
		c->redo[c->redos++] = (struct fal_redo){ .round = r->round,
							 .worker = g->by.worker,
							 .since = INFINITY };
		return make_again(c, g);
	}
	if (coord_known(c, of->worker)->key != coord_known(c, g->by.worker)->key) {
		c->why = twice;
		return FAL_OK;
	}
	of->since = fmin(of->since, now);
	of->waits = true;
	return FAL_OK;
}

const struct fal_redo *
coord_lone_redo(const struct fal_coord *c)
{
	const struct fal_redo *first = NULL;
	for (size_t i = 0; i < c->redos && c->why == NULL; i++)
		if (c->redo[i].waits &&
		    (first == NULL || c->redo[i].since < first->since))
			first = &c->redo[i];
	return first;
}

double
coord_redo_until(const struct fal_coord *c)
{
	const struct fal_redo *of = coord_lone_redo(c);
	return of != NULL ? of->since + c->alone_s : INFINITY;
}

int
coord_redo_review(struct fal_coord *c, double now)
{
	int err = FAL_OK;
	for (size_t i = 0; i < c->redos && err == FAL_OK && c->why == NULL; i++) {
		struct fal_redo *of = &c->redo[i];
		struct fal_gather *g = coord_gather(c, of->round);
		if (!of->waits || g == NULL)
			continue;
		if (coord_others(c, coord_known(c, of->worker)->key)) {
			of->waits = false;
			err = make_again(c, g);
		} else if (now >= of->since + c->alone_s) {
			c->why = twice;
		}
	}
	return err;
}

int
coord_mended(struct fal_coord *c, double now, const struct fal_round_info *r)
{
	struct fal_redo *of = redo_of(c, r->round);
	if (of == NULL)
		return FAL_OK;
	const uint32_t worker = of->worker;
	*of = c->redo[--c->redos];
	for (uint32_t i = 0; i < r->ledger->contribs; i++)
		if (!coord_same_bits(c, r->ledger->contrib[i].id.worker, worker))
			return FAL_OK;
	return fal_sched_charge(c->sched, now, worker, "values that others did not find");
}

void
coord_redo_forget(struct fal_coord *c, uint64_t round)
{
	struct fal_redo *of = redo_of(c, round);
	if (of != NULL)
		*of = c->redo[--c->redos];
}

/* ---- what is said of it ---------------------------------------------------------- */

bool
coord_lone(const struct fal_coord *c, struct fal_lone *out, const char **why)
{
	const double steps = coord_diverged_until(c), rounds = coord_redo_until(c);
	if (fmin(steps, rounds) == INFINITY)
		return false;
	*out = (struct fal_lone){ c->diverged.worker, 0, c->diverged.clock, steps };
	*why = c->diverged.why;
	if (rounds < steps) {
		*out = (struct fal_lone){ coord_lone_redo(c)->worker, 0,
					  fal_sched_over(c->sched), rounds };
		*why = twice;
	}
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
