/* The worker's lanes, queue and time. */
#include "peer/agent_priv.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fal_agent *
fal_agent_new(const struct fal_agent_conf *conf, const struct fal_agent_ops *ops)
{
	struct fal_agent *a = fal_calloc(1, sizeof(*a));
	if (a == NULL)
		return NULL;
	a->conf = *conf;
	a->ops = *ops;
	a->blocks = fal_blocks(conf->n);
	a->lanes = conf->lanes_max;
	a->lane = fal_calloc(conf->lanes_max, sizeof(*a->lane));
	if (a->lane == NULL) {
		free(a);
		return NULL;
	}
	return a;
}

void
fal_agent_free(struct fal_agent *a)
{
	if (a == NULL)
		return;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++) {
		fal_sum_free(a->lane[i].sum);
		agent_drop(a, a->lane[i].on);
	}
	for (size_t i = 0; i < a->pending.n; i++)
		fal_sum_free(a->pending.v[i].sum);
	for (size_t i = 0; i < a->contribs.n; i++)
		fal_sum_free(a->contribs.v[i].sum);
	for (size_t i = 0; i < a->pool.n; i++)
		fal_sum_free(a->pool.v[i]);
	agent_drop(a, a->coming[0]);
	agent_drop(a, a->coming[1]);
	agent_drop(a, a->current);
	agent_drop(a, a->kept);
	agent_free_snapshot(a->spare);
	free(a->lane);
	free(a->queue.v);
	free(a->evals.v);
	free(a->pending.v);
	free(a->contribs.v);
	free(a->pool.v);
	free(a);
}

/* Where time goes: the first that applies (DESIGN section 10). */
static enum activity
activity(const struct fal_agent *a)
{
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		if (a->lane[i].busy)
			return COMPUTE;
	if (a->pushing)
		return PUSH;
	return agent_pulling(a) ? PULL : WAIT;
}

/* Charges the time since the last event to what was going on. */
static void
charge(struct fal_agent *a, uint64_t now)
{
	uint64_t dt = a->since != 0 && now > a->since ? now - a->since : 0;
	a->spent[activity(a)] += dt;
	a->push_all += a->pushing ? dt : 0;
	a->pull_all += agent_pulling(a) ? dt : 0;
	a->since = now;
}

int
agent_send(struct fal_agent *a, struct fal_msg *m, bool bulk)
{
	struct fal_buf out = { 0 };
	m->incarnation = a->conf.incarnation;
	int err = fal_msg_put(&out, m);
	if (err == FAL_OK)
		a->ops.send(a->ops.arg, &out, bulk);
	fal_buf_free(&out);
	return err;
}

int
agent_dispatch(struct fal_agent *a)
{
	for (uint32_t i = 0; i < a->lanes && !a->leaving; i++) {
		struct lane *l = &a->lane[i];
		if (l->busy)
			continue;
		bool train = a->queue.n > 0 && a->current != NULL &&
			     a->current->version == a->clock;
		if (!train && (a->evals.n == 0 || a->kept == NULL ||
			       a->kept->version != a->eval_version))
			break;
		*l = (struct lane){ .busy = true, .eval = !train };
		if (train) {
			l->sum = agent_take_sum(a);
			if (l->sum == NULL) {
				l->busy = false;
				return FAL_ENOMEM;
			}
			l->item = a->queue.v[0];
			memmove(a->queue.v, a->queue.v + 1,
				--a->queue.n * sizeof(*a->queue.v));
		} else {
			l->item.task = a->evals.v[--a->evals.n];
		}
		l->on = train ? a->current : a->kept;
		l->on->refs++;
		struct fal_run run = { .eval = l->eval,
				       .clock = a->clock,
				       .task = l->item.task,
				       .params = l->on->params,
				       .exps = l->on->exps,
				       .sum = l->sum };
		a->ops.run(a->ops.arg, i, &run);
	}
	return FAL_OK;
}

static int
send_evaluated(struct fal_agent *a, uint64_t version, uint32_t task,
	       const struct fal_ran *ran)
{
	struct fal_msg m = { .type = FAL_MSG_EVALUATED };
	m.evaluated.version = version;
	m.evaluated.task = task;
	m.evaluated.right = ran->right;
	m.evaluated.samples = ran->samples;
	m.evaluated.loss = ran->loss;
	m.evaluated.task_ns = ran->task_ns;
	return agent_send(a, &m, false);
}

int
fal_agent_finished(struct fal_agent *a, uint64_t now, uint32_t lane,
		   const struct fal_ran *ran)
{
	struct lane *l = &a->lane[lane];
	int err = FAL_OK;
	assert(l->busy);
	charge(a, now);
	struct lane was = *l;
	*l = (struct lane){ 0 };
	if (was.cancelled || ran->cancelled)
		err = agent_give_sum(a, was.sum);
	else if (was.eval)
		err = send_evaluated(a, was.on->version, was.item.task, ran);
	else
		err = agent_claim(a, &was.item, was.sum, ran);
	agent_drop(a, was.on);
	if (err == FAL_OK)
		err = agent_dispatch(a);
	return err == FAL_OK ? agent_push_if_idle(a) : err;
}

int
agent_enter_clock(struct fal_agent *a, uint64_t clock)
{
	int err = FAL_OK;
	a->clock = clock;
	a->queue.n = 0;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++) {
		struct lane *l = &a->lane[i];
		if (l->busy && !l->eval && !l->cancelled) {
			l->cancelled = true;
			a->ops.cancel(a->ops.arg, i);
		}
	}
	while (a->pending.n > 0 && err == FAL_OK)
		err = agent_give_sum(a, a->pending.v[--a->pending.n].sum);
	while (a->contribs.n > 0 && err == FAL_OK)
		err = agent_give_sum(a, a->contribs.v[--a->contribs.n].sum);
	return err;
}

/* Is this task queued or being run already? */
static bool
holds(const struct fal_agent *a, uint32_t task)
{
	for (size_t i = 0; i < a->queue.n; i++)
		if (a->queue.v[i].task == task)
			return true;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		if (a->lane[i].busy && !a->lane[i].eval && !a->lane[i].cancelled &&
		    a->lane[i].item.task == task)
			return true;
	return false;
}

static int
on_grant(struct fal_agent *a, const struct fal_msg *m)
{
	if (m->grant.clock < a->clock || a->leaving)
		return FAL_OK;
	if (m->grant.clock > a->clock) {
		int err = agent_enter_clock(a, m->grant.clock);
		if (err < 0)
			return err;
	}
	if (m->grant.count > MOST_TASKS - a->queue.n)
		return FAL_ELIMIT;
	for (uint32_t i = 0; i < m->grant.count; i++) {
		struct item item = { m->grant.first + i,
				     { m->grant.fills_worker, m->grant.fills_seq } };
		if (holds(a, item.task))
			continue;
		if (FAL_GROW(a->queue.v, a->queue.cap, a->queue.n + 1) < 0)
			return FAL_ENOMEM;
		a->queue.v[a->queue.n++] = item;
	}
	return agent_dispatch(a);
}

static int
on_revoke(struct fal_agent *a, const struct fal_msg *m)
{
	uint32_t first = m->revoke.first, end = first + m->revoke.count;
	if (m->revoke.clock != a->clock)
		return FAL_OK;
	size_t kept = 0;
	for (size_t i = 0; i < a->queue.n; i++)
		if (a->queue.v[i].task < first || a->queue.v[i].task >= end)
			a->queue.v[kept++] = a->queue.v[i];
	a->queue.n = kept;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++) {
		struct lane *l = &a->lane[i];
		if (l->busy && !l->eval && !l->cancelled && l->item.task >= first &&
		    l->item.task < end) {
			l->cancelled = true;
			a->ops.cancel(a->ops.arg, i);
		}
	}
	return agent_push_if_idle(a);
}

static int
on_verdict(struct fal_agent *a, const struct fal_msg *m)
{
	size_t i = 0;
	while (i < a->pending.n && (a->pending.v[i].task != m->verdict.task ||
				    a->pending.v[i].seq != m->verdict.seq))
		i++;
	if (m->verdict.clock != a->clock || i == a->pending.n)
		return FAL_OK;
	struct pending p = a->pending.v[i];
	a->pending.v[i] = a->pending.v[--a->pending.n];
	int err = FAL_OK;
	struct contrib *c = agent_contrib(a, p.seq);
	if (m->verdict.won != 0 && c != NULL) {
		err = fal_sum_add(c->sum, p.sum);
		c->tasks++;
	}
	int gave = agent_give_sum(a, p.sum);
	err = err == FAL_OK ? gave : err;
	return err == FAL_OK ? agent_push_if_idle(a) : err;
}

static int
on_fence(struct fal_agent *a, const struct fal_msg *m)
{
	struct contrib *c = agent_contrib(a, m->fence.seq);
	if (m->fence.clock != a->clock || c == NULL)
		return FAL_OK;
	int err = agent_give_sum(a, c->sum);
	*c = a->contribs.v[--a->contribs.n];
	return err;
}

static int
on_lanes(struct fal_agent *a, const struct fal_msg *m)
{
	if (m->lanes.lanes < 1 || m->lanes.lanes > a->conf.lanes_max)
		return FAL_EINVAL;
	a->lanes = m->lanes.lanes;
	return agent_dispatch(a);
}

static int
on_eval(struct fal_agent *a, const struct fal_msg *m)
{
	if (a->leaving || m->eval.version < a->eval_version)
		return FAL_OK;
	if (m->eval.version > a->eval_version)
		a->evals.n = 0;
	if (m->eval.count > MOST_TASKS - a->evals.n)
		return FAL_ELIMIT;
	a->eval_version = m->eval.version;
	for (uint32_t i = 0; i < m->eval.count; i++) {
		if (FAL_GROW(a->evals.v, a->evals.cap, a->evals.n + 1) < 0)
			return FAL_ENOMEM;
		a->evals.v[a->evals.n++] = m->eval.first + i;
	}
	return agent_dispatch(a);
}

int
fal_agent_msg(struct fal_agent *a, uint64_t now, const struct fal_msg *m)
{
	struct fal_msg pong = { .type = FAL_MSG_PONG };
	charge(a, now);
	switch (m->type) {
	case FAL_MSG_VERSION:
		return agent_on_version(a, m);
	case FAL_MSG_MODEL:
		return agent_on_model(a, m);
	case FAL_MSG_GRANT:
		return on_grant(a, m);
	case FAL_MSG_REVOKE:
		return on_revoke(a, m);
	case FAL_MSG_VERDICT:
		return on_verdict(a, m);
	case FAL_MSG_LANES:
		return on_lanes(a, m);
	case FAL_MSG_FENCE:
		return on_fence(a, m);
	case FAL_MSG_EVAL:
		return on_eval(a, m);
	case FAL_MSG_PING:
		pong.pong.stamp = m->ping.stamp;
		return agent_send(a, &pong, false);
	default:
		return FAL_ESTATE;
	}
}

void
fal_agent_flushed(struct fal_agent *a, uint64_t now)
{
	charge(a, now);
	a->pushing = false;
}

int
fal_agent_leave(struct fal_agent *a, uint64_t now, const char *why)
{
	charge(a, now);
	if (a->leaving)
		return FAL_OK;
	a->leaving = true;
	snprintf(a->why, sizeof(a->why), "%s", why);
	a->queue.n = 0;
	a->evals.n = 0;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		if (a->lane[i].busy && !a->lane[i].cancelled) {
			a->lane[i].cancelled = true;
			a->ops.cancel(a->ops.arg, i);
		}
	return agent_push_if_idle(a);
}

bool
fal_agent_left(const struct fal_agent *a)
{
	return a->left;
}

void
fal_agent_late(struct fal_agent *a, uint64_t ns)
{
	a->late += ns;
}
