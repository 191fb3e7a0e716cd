/* What people are told of the job: the mean loss of each epoch is that of its tasks, and
 * of no other's. */
#include "base/loss.h"
#include "cluster_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Is nothing skipped, dropped, which syncopt does, or made up?  That is not counted. */
static bool
counts_all(const struct cluster *c)
{
	bool all = c->p->toy.odd == 0 && strncmp(c->p->scheme, "syncopt", 7) != 0;
	for (uint32_t i = 0; i < c->p->orders; i++)
		all = all && (c->p->order[i].scheme == NULL ||
			      strncmp(c->p->order[i].scheme, "syncopt", 7) != 0);
	for (uint32_t i = 0; i < c->p->machines; i++)
		all = all && !machine_lies(&c->p->machine[i]);
	return all;
}

/* The mean loss of a sample of the epoch, from 1. */
static double
mean_loss(const struct toy *t, uint64_t epoch)
{
	const uint64_t clocks = toy_clocks(t) / t->epochs;
	double loss = 0, samples = 0;
	for (uint64_t clock = (epoch - 1) * clocks; clock < epoch * clocks; clock++)
		for (uint32_t i = 0; i < toy_clock_tasks(t, clock); i++) {
			loss += ldexp((double)toy_loss(t, clock, i), -FAL_LOSS_BITS);
			samples += toy_task_samples(t, clock, i);
		}
	return loss / samples;
}

void
told_watch(struct cluster *c, const struct fal_coord_status *s)
{
	const uint64_t was = c->epoch;
	c->epoch = s->figures.epoch;
	if (s->figures.epoch == was || s->figures.epoch == 0 || !counts_all(c))
		return;
	const double want = mean_loss(&c->p->toy, s->figures.epoch);
	c->seen[SEEN_EPOCH]++;
	if (fabs(s->figures.epoch_loss - want) <= 1e-9 * fabs(want) || c->failure != NULL)
		return;
	fprintf(stderr, "sim: the loss of epoch %llu is %.9g, not %.9g\n",
		(unsigned long long)s->figures.epoch, s->figures.epoch_loss, want);
	c->failure = "an epoch's loss is not that of its tasks";
}
