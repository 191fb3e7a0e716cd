/* rennala: batches that are collected asynchronously (Tyurin, Richtárik 2023; schemes.md,
 * rennala).  Every worker computes on the newest version, again and again: a round is a
 * task for each of its lanes, and the next one begins while that is pushed.  As soon as B
 * tasks have come they make an update, and the rounds that are open then are abandoned,
 * running tasks, too.
 */
#include "sched/scheme.h"

struct rennala {
	uint32_t tasks; /* collected for the next update */
};

static uint32_t
ahead(const struct fal_sched *s)
{
	(void)s;
	return 2;
}

static uint32_t
tasks(const struct fal_sched *s, const struct fal_team *t)
{
	return fal_team_worker(s, t)->lanes;
}

static void
update(struct fal_sched *s, double now)
{
	struct rennala *is = s->own;
	is->tasks = 0;
	fal_pending_apply(s, (double)s->merged_samples);
	fal_rounds_abandon_before(s, s->version, now);
}

static void
complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_MERGE, .weight = 1 };
	const uint32_t all = fal_grid_tasks(&s->grid, 0), set = s->policy.rule.batch;
	const uint32_t batch = set > 0 && set < all ? set : all;
	struct rennala *is = s->own;
	/* A sum has room for no more tasks than a clock has. */
	if (is->tasks + r->ledger.tasks > all) {
		update(s, now);
		return;
	}
	is->tasks += r->ledger.tasks;
	fal_round_end_own(s, r, end, now);
	if (is->tasks >= batch)
		update(s, now);
}

/* Nothing more comes: the job ends, or another scheme begins. */
static void
flush(struct fal_sched *s, double now)
{
	if (s->rounds == 0)
		update(s, now);
}

const struct fal_scheme fal_scheme_rennala = {
	.own = sizeof(struct rennala),
	.ahead = ahead,
	.tasks = tasks,
	.complete = complete,
	.flush = flush,
};
