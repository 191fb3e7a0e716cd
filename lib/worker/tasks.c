/* The worker's queued and running tasks. */
#include "worker/agent_priv.h"

#include "base/mem.h"
#include "base/sorted.h"

#include <string.h>

void
agent_send(struct fal_agent *a, struct fal_msg *m, bool bulk)
{
	struct fal_buf out = { 0 };
	m->incarnation = a->conf.incarnation;
	fal_msg_put(&out, m);
	a->ops.send(a->ops.arg, &out, bulk);
	fal_buf_free(&out);
}

void
tasks_cancel_lane(struct fal_agent *a, uint32_t lane)
{
	a->lane[lane].state = LANE_CANCELLED;
	a->ops.cancel(a->ops.arg, lane);
}

/* The index of the first queued task of the round, or of a later one. */
static size_t
queue_find(const struct fal_agent *a, uint64_t round)
{
	return fal_sorted_place64(a->queue.v, a->queue.n, sizeof(*a->queue.v), round);
}

/* Returns true if the task would go into the contribution. */
static bool
task_feeds(const struct task *t, const struct contribution *c)
{
	return t->kind != FAL_KIND_CHECK && !t->is_alone && t->seq == 0 &&
	       t->round == c->round && t->exponents == c->exp_base->version &&
	       fal_contrib_id_equal(t->fills, c->fills);
}

bool
tasks_has_for_contribution(const struct fal_agent *a, const struct contribution *c)
{
	for (size_t i = queue_find(a, c->round);
	     i < a->queue.n && a->queue.v[i].round == c->round; i++)
		if (task_feeds(&a->queue.v[i], c))
			return true;
	for (uint32_t i = 0; i < a->slots; i++)
		if (a->lane[i].state == LANE_TRAINS && task_feeds(&a->lane[i].task, c))
			return true;
	return false;
}

bool
tasks_need_version(const struct fal_agent *a, uint64_t version)
{
	for (size_t i = 0; i < a->queue.n; i++)
		if (a->queue.v[i].version == version ||
		    a->queue.v[i].exponents == version)
			return true;
	return false;
}

/* Returns true if the task is one of `count` tasks of the round from `first` on, and
 * is a check as `checks` says. */
static bool
task_is_among(const struct task *t, uint64_t round, uint32_t first, uint32_t count,
	      bool checks)
{
	return t->round == round && (t->kind == FAL_KIND_CHECK) == checks &&
	       t->task - first < count;
}

void
tasks_mark_held(const struct fal_agent *a, const struct task *task, uint32_t count,
		bool *held)
{
	const uint64_t round = task->round;
	const uint32_t first = task->task;
	const bool checks = task->kind == FAL_KIND_CHECK;
	for (size_t i = queue_find(a, round);
	     i < a->queue.n && a->queue.v[i].round == round; i++)
		if (task_is_among(&a->queue.v[i], round, first, count, checks))
			held[a->queue.v[i].task - first] = true;
	for (uint32_t i = 0; i < a->slots; i++)
		if (a->lane[i].state == LANE_TRAINS &&
		    task_is_among(&a->lane[i].task, round, first, count, checks))
			held[a->lane[i].task.task - first] = true;
}

void
tasks_enqueue(struct fal_agent *a, struct task task, uint32_t count, const bool *held)
{
	uint32_t fresh = 0;
	for (uint32_t k = 0; k < count; k++)
		fresh += !held[k];
	FAL_XGROW(a->queue.v, a->queue.cap, a->queue.n + fresh);
	size_t i = queue_find(a, task.round);
	/* As in the coordinator's queue, tasks that need a later version come last. */
	while (task.kind != FAL_KIND_CHECK && i < a->queue.n &&
	       a->queue.v[i].round == task.round && a->queue.v[i].version <= task.version)
		i++;
	struct task *at = a->queue.v + i;
	memmove(at + fresh, at, (a->queue.n - i) * sizeof(task));
	a->queue.n += fresh;
	for (uint32_t k = 0; k < count; k++, task.task++)
		if (!held[k])
			*at++ = task;
}

void
tasks_drop(struct fal_agent *a, uint64_t round, uint32_t first, uint32_t count,
	   bool checks)
{
	size_t kept = 0;
	for (size_t i = 0; i < a->queue.n; i++)
		if (!task_is_among(&a->queue.v[i], round, first, count, checks))
			a->queue.v[kept++] = a->queue.v[i];
	a->queue.n = kept;
	for (uint32_t i = 0; i < a->slots; i++) {
		const struct lane *l = &a->lane[i];
		if (l->state == LANE_TRAINS &&
		    task_is_among(&l->task, round, first, count, checks))
			tasks_cancel_lane(a, i);
	}
}
