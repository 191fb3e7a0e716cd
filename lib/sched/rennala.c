/* rennala: batches that are collected asynchronously (Tyurin, Richtárik 2023; schemes.md,
 * rennala).  Every worker computes on the newest version, round after round.  A round has
 * one task for each lane of its worker, and the next round begins while the worker pushes
 * the last one.  As soon as B tasks have come, the tasks make an update, and all open
 * rounds are abandoned, with their running tasks. */
#include "sched/scheme.h"

struct rennala {
	uint32_t tasks; /* collected for the next update */
};

static uint32_t
rennala_round_tasks(const struct fal_sched *s, const struct fal_team *t)
{
	return fal_team_worker(s, t)->lanes;
}

static void
rennala_update(struct fal_sched *s, double now)
{
	struct rennala *state = s->scheme_state;
	state->tasks = 0;
	fal_pending_order_step(s, (double)s->pending.samples);
	fal_rounds_abandon_before(s, s->version, now);
}

static void
rennala_round_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_MERGE, .weight = 1 };
	const uint32_t all = fal_grid_tasks_max(&s->grid), set = s->policy.rule.batch;
	const uint32_t batch = set > 0 && set < all ? set : all;
	struct rennala *state = s->scheme_state;
	/* A sum has room for as many tasks as a clock has, and no more. */
	if (state->tasks + r->ledger.tasks > all) {
		rennala_update(s, now);
		return;
	}
	state->tasks += r->ledger.tasks;
	fal_round_end_own(s, r, end, now);
	if (state->tasks >= batch)
		rennala_update(s, now);
}

/* Called when no round is open: the job ends, or another scheme begins. */
static void
rennala_flush(struct fal_sched *s, double now)
{
	if (s->rounds == 0)
		rennala_update(s, now);
}

const struct fal_scheme fal_scheme_rennala = {
	.state_bytes = sizeof(struct rennala),
	.round_tasks = rennala_round_tasks,
	.round_complete = rennala_round_complete,
	.flush = rennala_flush,
};
