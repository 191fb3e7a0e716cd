/* The worker's side of a job: messages, lanes, and where time goes. */
#include "worker/agent_priv.h"

#include "base/mem.h"
#include "base/rng.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fal_agent *
fal_agent_new(const struct fal_agent_conf *conf, const struct fal_agent_ops *ops)
{
	struct fal_agent *a = fal_xcalloc(1, sizeof(*a));
	a->conf = *conf;
	a->ops = *ops;
	a->blocks = fal_blocks(conf->n);
	a->lanes = conf->lanes_max;
	a->slots = conf->lanes_max * (1 + conf->ahead);
	/* One open claim for each lane, or more if results are small. */
	a->claims_max = 2 * CLAIM_BYTES / fal_sum_bytes(conf->n);
	if (a->claims_max < a->slots)
		a->claims_max = a->slots;
	a->serial = conf->serial;
	a->lane = fal_xcalloc(a->slots, sizeof(*a->lane));
	return a;
}

void
fal_agent_free(struct fal_agent *a)
{
	if (a == NULL)
		return;
	for (uint32_t i = 0; i < a->slots; i++) {
		fal_sum_free(a->lane[i].sum);
		snapshot_unref(a, a->lane[i].base);
		snapshot_unref(a, a->lane[i].exp_base);
	}
	for (size_t i = 0; i < a->claims.n; i++)
		fal_sum_free(a->claims.v[i].sum);
	for (size_t i = 0; i < a->contributions.n; i++) {
		fal_sum_free(a->contributions.v[i].sum);
		snapshot_unref(a, a->contributions.v[i].exp_base);
	}
	for (size_t i = 0; i < a->memory.pool.n; i++)
		fal_sum_free(a->memory.pool.v[i]);
	for (size_t i = 0; i < a->versions.n; i++)
		snapshot_unref(a, a->versions.v[i]);
	for (size_t i = 0; i < a->pushes.n; i++) {
		fal_sum_free(a->pushes.v[i].sum);
		free(a->pushes.v[i].exps);
	}
	local_free(a);
	snapshot_unref(a, a->eval_base);
	snapshot_free(a->memory.spare);
	free(a->lane);
	free(a->versions.v);
	free(a->queue.v);
	free(a->evals.v);
	free(a->claims.v);
	free(a->contributions.v);
	free(a->pushes.v);
	free(a->memory.pool.v);
	fal_buf_free(&a->records);
	free(a);
}

/* ---- the hash of a task ------------------------------------------------------------ */

void
fal_task_hash_block(struct fal_hash_state *h, const struct fal_sum *s, uint32_t block,
		    int8_t exponent)
{
	uint32_t width;
	union fal_sum_room room;
	const void *v = fal_sum_values(s, block, &width, &room);
	const uint8_t head[4] = { (uint8_t)exponent, (uint8_t)fal_sum_needed(s, block),
				  (uint8_t)width, 0 };
	fal_hash_update(h, head, sizeof(head));
	if (width > 0)
		fal_hash_update(h, v,
				(size_t)width * fal_block_len(fal_sum_len(s), block));
}

void
fal_task_hash_end(struct fal_hash_state *h, uint8_t out[static FAL_TASK_HASH])
{
	uint8_t all[FAL_HASH_BYTES];
	fal_hash_final(h, all);
	memcpy(out, all, FAL_TASK_HASH);
}

/* ---- time -------------------------------------------------------------------------- */

/* Charges the time since the last event to the present activity: the first one of enum
 * activity that applies (design.md, I19). */
static void
charge_time(struct fal_agent *a, uint64_t now)
{
	const uint64_t dt = a->time.now != 0 && now > a->time.now ? now - a->time.now : 0;
	const bool coming = versions_are_coming(a);
	uint32_t busy = 0, early = 0; /* lanes; early: with versions that still come */
	for (uint32_t i = 0; i < a->slots; i++) {
		const bool is_busy = a->lane[i].state != LANE_IDLE;
		busy += is_busy;
		early += is_busy && a->lane[i].base->blocks_left > 0;
	}
	const enum activity activity = busy > 0        ? COMPUTE
				       : a->is_pushing ? PUSH
				       : coming        ? PULL
						       : WAIT;
	/* Waiting before the first task does not count: the worker waits for other
	 * workers to join, and training has not begun. */
	if (activity != WAIT || a->time.has_begun) {
		a->time.spent[activity] += dt;
		if (activity != COMPUTE && dt > 0)
			agent_wait_for(a, dt);
	}
	a->time.push_all += a->is_pushing ? dt : 0;
	a->time.pull_all += coming ? dt : 0;
	a->time.early += busy > 0 && early == busy ? dt : 0;
	a->time.now = now;
}

static uint64_t
min_ns(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- lanes ------------------------------------------------------------------------- */

/* Takes the first task that can run from the queue, for the lane, with the versions for
 * it.  Returns false if there is none. */
static bool
take_task(struct fal_agent *a, struct lane *l)
{
	for (size_t i = 0; i < a->queue.n; i++) {
		const struct task *t = &a->queue.v[i];
		struct snapshot *base = t->kind == FAL_KIND_DELTA ? local_base(a, t)
					: t->kind == FAL_KIND_CHECK
						? agent_version(a, t->version)
						: versions_find_beginnable(a, t->version);
		struct snapshot *exp_base = t->exponents == t->version
						    ? base
						    : agent_version(a, t->exponents);
		bool alone;
		if (base == NULL || exp_base == NULL || !memory_allows_task(a, t, &alone))
			continue;
		l->state = LANE_TRAINS;
		l->base = base;
		l->exp_base = exp_base;
		l->task = *t;
		l->task.is_alone = alone;
		memmove(a->queue.v + i, a->queue.v + i + 1,
			(--a->queue.n - i) * sizeof(*t));
		return true;
	}
	return false;
}

/* May another task begin?  Open claims are limited.  A cancelled task counts as an open
 * claim, because the agent keeps a version only for that task.  One task may always
 * begin. */
static bool
claims_allow_task(const struct fal_agent *a)
{
	size_t held = a->claims.n;
	bool trains = held > 0;
	for (uint32_t i = 0; i < a->slots; i++) {
		held += a->lane[i].state == LANE_CANCELLED;
		trains |= a->lane[i].state == LANE_TRAINS;
	}
	return held <= a->claims_max || !trains;
}

/* Chooses a task for an idle lane: training first, then evaluation.  Returns false if
 * there is none. */
static bool
choose_task(struct fal_agent *a, struct lane *l)
{
	if (claims_allow_task(a) && take_task(a, l))
		return true;
	const struct fal_agent_limits *most = &a->conf.most;
	if (a->claims.n > 0 && a->queue.n > 0 && a->queue.v[0].seq == 0 &&
	    most->versions > 0 && !most->moves && !a->memory.sums_denied) {
		/* Tasks have begun to move: lanes stand still while results wait for
		 * their verdicts, unless there are sums for that. */
		struct fal_agent_limits to = *most;
		to.moves = true;
		a->memory.sums_denied = !memory_grow(a, &to);
	}
	if (a->evals.n == 0 || a->eval_base == NULL ||
	    a->eval_base->version != a->eval_version)
		return false;
	l->state = LANE_EVALUATES;
	l->task.task = a->evals.v[--a->evals.n];
	l->base = l->exp_base = a->eval_base;
	return true;
}

/* Starts a queued task in an idle slot of the lane.  Returns false if there is none. */
static bool
dispatch_to(struct fal_agent *a, uint32_t slot)
{
	while (a->lane[slot].state != LANE_IDLE)
		slot += a->conf.lanes_max;
	struct lane *l = &a->lane[slot];
	*l = (struct lane){ 0 };
	if (!choose_task(a, l))
		return false;
	const bool eval = l->state == LANE_EVALUATES;
	l->base->refs++;
	l->exp_base->refs++;
	l->sum = eval || a->conf.outer ? NULL : memory_take_sum(a);
	const struct fal_task_run run = {
		.eval = eval,
		.round = l->task.round,
		.clock = l->task.clock,
		.task = l->task.task,
		.version = eval ? l->base->version : l->task.version,
		.exponents = l->task.exponents,
		.serial = l->base->serial,
		.params = l->base->params,
		.exps = l->exp_base->exps,
		.coming = l->base->blocks_left > 0,
		.came = l->base->prefix,
		.sum = l->sum,
		.room = fal_bfp_room(a->conf.tasks),
		.bits = local_find(a, l->task.round) != NULL ? 0 : a->conf.push_bits,
		.seed = fal_rng_task(a->conf.seed, l->task.clock, l->task.task)
	};
	a->overlap.tasks += !eval;
	a->overlap.begun += l->is_early = run.coming;
	a->ops.run(a->ops.arg, slot, &run);
	return true;
}

/* Starts queued tasks. */
static void
agent_dispatch(struct fal_agent *a)
{
	if (a->is_leaving)
		return;
	local_begin(a);
	/* Lanes without any task first. */
	for (uint32_t busy = 0; busy <= a->conf.ahead; busy++)
		for (uint32_t i = 0; i < a->lanes; i++) {
			uint32_t tasks = 0;
			for (uint32_t k = i; k < a->slots; k += a->conf.lanes_max)
				tasks += a->lane[k].state != LANE_IDLE;
			if (tasks == busy && !dispatch_to(a, i))
				return;
		}
}

static struct fal_tail
metrics_tail(const struct fal_agent *a, const struct fal_task_result *ran)
{
	return (struct fal_tail){ (const uint8_t *)ran->metrics.sum,
				  a->conf.metrics * sizeof(*ran->metrics.sum) };
}

/* Claims a finished task, whose sum is taken.  Fails as fal_sum_add does. */
static int
lane_claim(struct fal_agent *a, const struct lane *was, const struct fal_task_result *ran)
{
	const struct task *task = &was->task;
	struct fal_msg m = { .type = FAL_MSG_CLAIM };
	struct local_round *local = local_find(a, task->round);
	if (task->kind == FAL_KIND_DELTA && (local == NULL || local->is_closed)) {
		memory_return_sum(a, was->sum); /* the round ended without this task */
		return FAL_OK;
	}
	m.claim.round = task->round;
	m.claim.task = task->task;
	m.claim.fills_worker = task->fills.worker;
	m.claim.fills_seq = task->fills.seq;
	m.claim.version = task->version;
	m.claim.task_ns = ran->task_ns;
	m.claim.loss = ran->loss;
	m.claim.nonfinite = ran->nonfinite;
	m.claim.metrics = metrics_tail(a, ran);
	memcpy(m.claim.hash, ran->hash, sizeof(m.claim.hash));
	if (ran->nonfinite) {
		memory_return_sum(a, was->sum);
		agent_send(a, &m, false);
		return FAL_OK;
	}
	if (task->seq != 0)
		return preclaim_report(a, was, &m);
	if (task->kind == FAL_KIND_DELTA)
		local_claim(a, local, &m);
	else
		contribution_claim(a, was, &m);
	FAL_XGROW(a->claims.v, a->claims.cap, a->claims.n + 1);
	a->claims.v[a->claims.n++] = (struct claim){ task->round, task->task, m.claim.seq,
						     ran->samples, was->sum };
	agent_send(a, &m, false);
	return FAL_OK;
}

int
fal_agent_finished(struct fal_agent *a, uint64_t now, uint32_t lane,
		   const struct fal_task_result *ran)
{
	struct lane *l = &a->lane[lane];
	struct fal_msg m = { 0 };
	int err = FAL_OK;
	assert(l->state != LANE_IDLE);
	charge_time(a, now);
	if (l->is_early && l->state != LANE_CANCELLED && !ran->cancelled) {
		/* The first early task that ends says how long the task waited for
		 * blocks.  This wait counts for all lanes that were busy only with coming
		 * versions: as pull, not compute.  No lane waited for the rest of the
		 * pull. */
		const uint64_t pull = min_ns(ran->waited_ns, a->time.early);
		const uint64_t moved = min_ns(pull, a->time.spent[COMPUTE]);
		a->time.spent[COMPUTE] -= moved;
		a->time.spent[PULL] += moved;
		a->time.pull_all -= min_ns(a->time.early - pull, a->time.pull_all);
		a->time.early = 0;
	}
	struct lane was = *l;
	*l = (struct lane){ 0 };
	if (ran->sum != NULL) {
		assert(was.sum == NULL);
		was.sum = ran->sum;
		a->memory.halves += 1 + fal_sum_grown(was.sum);
	}
	if (was.state == LANE_CANCELLED || ran->cancelled) {
		memory_return_sum(a, was.sum);
	} else if (was.state == LANE_EVALUATES) {
		m.type = FAL_MSG_EVALUATED;
		m.evaluated.version = was.base->version;
		m.evaluated.task = was.task.task;
		m.evaluated.right = ran->right;
		m.evaluated.samples = ran->samples;
		m.evaluated.loss = ran->loss;
		m.evaluated.task_ns = ran->task_ns;
		m.evaluated.metrics = metrics_tail(a, ran);
		agent_send(a, &m, false);
	} else if (was.task.kind == FAL_KIND_CHECK) {
		m.type = FAL_MSG_CHECKED;
		m.checked.round = was.task.round;
		m.checked.task = was.task.task;
		m.checked.nonfinite = ran->nonfinite;
		memcpy(m.checked.hash, ran->hash, sizeof(m.checked.hash));
		agent_send(a, &m, false);
		memory_return_sum(a, was.sum);
	} else {
		err = lane_claim(a, &was, ran);
	}
	snapshot_unref(a, was.base);
	snapshot_unref(a, was.exp_base);
	if (err < 0)
		return err;
	agent_dispatch(a);
	contribution_close_idle(a);
	return FAL_OK;
}

bool
fal_agent_send_next(struct fal_agent *a)
{
	const size_t pushes = a->pushes.n;
	if (a->has_left)
		return false;
	if (push_send_next(a)) {
		if (a->pushes.n < pushes)
			agent_dispatch(a); /* a task may wait for the sum */
		return true;
	}
	if (!a->is_leaving || a->claims.n + a->contributions.n + a->pushes.n > 0)
		return false;
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	snprintf(m.leave.why, sizeof(m.leave.why), "%s", a->why);
	a->has_left = true;
	agent_send(a, &m, true); /* bulk, so behind the contributions */
	return true;
}

/* ---- messages ---------------------------------------------------------------------- */

/* Handlers return 1 if queued tasks may be able to begin now, 0, or an error. */

static int
on_blocks(struct fal_agent *a, const struct fal_msg *m)
{
	struct fal_map map;
	const bool is_new = m->blocks.epoch != a->conf.map_epoch;
	int err = fal_map_get(&m->blocks.of, m->blocks.epoch, a->blocks, &map);
	if (err < 0 || map.epoch < a->conf.map_epoch)
		return FAL_EFORMAT;
	a->map = map;
	a->conf.map_epoch = map.epoch;
	if (is_new) /* no round stays open from one map to the next */
		push_end_ticketed(a);
	return 1;
}

static int
on_grant(struct fal_agent *a, const struct fal_msg *m)
{
	const bool delta = m->grant.kind == FAL_KIND_DELTA;
	const bool check = m->grant.kind == FAL_KIND_CHECK;
	struct fal_agent_limits to = a->conf.most;
	if (a->is_leaving)
		return FAL_OK;
	if (m->grant.count > TASKS_MAX - a->queue.n)
		return FAL_ELIMIT;
	if (m->grant.seq != 0 &&
	    (m->grant.seq < FAL_PRECLAIMED || m->grant.kind != FAL_KIND_GRAD))
		return FAL_EFORMAT;
	if (!delta && !check && m->grant.kind != FAL_KIND_GRAD)
		return FAL_EFORMAT;
	/* A group server has no weights to step, and its members claim for themselves. */
	if ((delta || m->grant.seq != 0) && a->conf.outer)
		return FAL_EINVAL;
	to.own = to.delta = true;
	if (delta && to.versions != 0 && !a->conf.most.delta && !memory_grow(a, &to))
		return FAL_OK; /* no memory for local steps */
	int err = delta ? local_grant(a, m) : FAL_OK;
	if (err < 0 || m->grant.count == 0)
		return err;
	a->time.has_begun = true;
	const struct task task = {
		.round = m->grant.round,
		.clock = m->grant.clock,
		.version = m->grant.version,
		.exponents = m->grant.exponents,
		.task = m->grant.first,
		.kind = (enum fal_kind)m->grant.kind,
		.seq = m->grant.seq,
		.fills = { m->grant.fills_worker, m->grant.fills_seq },
	};
	bool *held = fal_xcalloc(m->grant.count, sizeof(*held));
	tasks_mark_held(a, &task, m->grant.count, held);
	if (task.seq != 0)
		err = memchr(held, 1, m->grant.count * sizeof(*held)) != NULL
			      ? FAL_ESTATE
			      : preclaim_add(a, m);
	if (err == FAL_OK)
		tasks_enqueue(a, task, m->grant.count, held);
	free(held);
	return err < 0 ? err : 1;
}

static int
on_revoke(struct fal_agent *a, const struct fal_msg *m)
{
	const bool check = m->revoke.check != 0;
	if (!check && local_find(a, m->revoke.round) != NULL)
		local_kill(a, m->revoke.round);
	else
		tasks_drop(a, m->revoke.round, m->revoke.first, m->revoke.count, check);
	if (!check)
		preclaim_drop(a, m->revoke.round, m->revoke.first, m->revoke.count);
	return 1;
}

static int
on_verdict(struct fal_agent *a, const struct fal_msg *m)
{
	size_t i = 0;
	while (i < a->claims.n && (a->claims.v[i].round != m->verdict.round ||
				   a->claims.v[i].task != m->verdict.task ||
				   a->claims.v[i].seq != m->verdict.seq))
		i++;
	if (i == a->claims.n)
		return FAL_OK;
	const struct claim claim = a->claims.v[i];
	struct local_round *local = local_find(a, claim.round);
	int err = FAL_OK;
	a->claims.v[i] = a->claims.v[--a->claims.n];
	if (m->verdict.won == 0)
		memory_return_sum(a, claim.sum);
	else if (local != NULL && local->seq == claim.seq)
		err = local_add(a, local, &claim);
	else
		err = contribution_add(a, &claim);
	return err < 0 ? err : 1;
}

static int
on_fence(struct fal_agent *a, const struct fal_msg *m)
{
	const struct local_round *local = local_find(a, m->fence.round);
	if (local != NULL && local->seq == m->fence.seq)
		local_kill(a, m->fence.round);
	else
		contribution_fence(a, m->fence.round, m->fence.seq);
	return 1;
}

static int
on_lanes(struct fal_agent *a, const struct fal_msg *m)
{
	if (m->lanes.lanes < 1 || m->lanes.lanes > a->conf.lanes_max)
		return FAL_EINVAL;
	if (!a->conf.outer)
		a->lanes = m->lanes.lanes;
	return 1;
}

static int
on_eval(struct fal_agent *a, const struct fal_msg *m)
{
	if (a->is_leaving || m->eval.version < a->eval_version)
		return FAL_OK;
	if (m->eval.version > a->eval_version)
		a->evals.n = 0;
	if (m->eval.count > TASKS_MAX - a->evals.n)
		return FAL_ELIMIT;
	a->eval_version = m->eval.version;
	FAL_XGROW(a->evals.v, a->evals.cap, a->evals.n + m->eval.count);
	for (uint32_t i = 0; i < m->eval.count; i++)
		a->evals.v[a->evals.n++] = m->eval.first + i;
	return 1;
}

/* Reports where time went since the last ACCOUNT. */
static void
on_account(struct fal_agent *a, const struct fal_msg *m)
{
	struct fal_msg w = { .type = FAL_MSG_WORKED };
	struct fal_buf waits = { 0 };
	w.worked.mark = m->account.mark;
	w.worked.compute = a->time.spent[COMPUTE];
	w.worked.push = a->time.spent[PUSH];
	w.worked.pull = a->time.spent[PULL];
	w.worked.wait = a->time.spent[WAIT];
	w.worked.push_all = a->time.push_all;
	w.worked.pull_all = a->time.pull_all;
	w.worked.late = a->time.late > 0 ? (uint64_t)a->time.late : 0;
	memset(a->time.spent, 0, sizeof(a->time.spent));
	a->time.push_all = a->time.pull_all = 0;
	a->time.late -= (int64_t)w.worked.late;
	agent_put_waits(a, &waits);
	w.worked.waits = (struct fal_tail){ waits.p, waits.n };
	agent_send(a, &w, false);
	fal_buf_free(&waits);
}

int
fal_agent_msg(struct fal_agent *a, uint64_t now, const struct fal_msg *m)
{
	int got = 0;
	charge_time(a, now);
	switch (m->type) {
	case FAL_MSG_VERSION:
		got = agent_on_version(a, m);
		break;
	case FAL_MSG_PUBLISHED:
		got = agent_on_published(a, m);
		break;
	case FAL_MSG_MODEL:
		a->model_msgs++;
		got = agent_on_model(a, m);
		break;
	case FAL_MSG_BLOCKS:
		got = on_blocks(a, m);
		break;
	case FAL_MSG_GRANT:
		got = on_grant(a, m);
		break;
	case FAL_MSG_REVOKE:
		got = on_revoke(a, m);
		break;
	case FAL_MSG_VERDICT:
		got = on_verdict(a, m);
		break;
	case FAL_MSG_LANES:
		got = on_lanes(a, m);
		break;
	case FAL_MSG_TICKET:
		got = contribution_on_ticket(a, &m->ticket);
		got = got < 0 ? got : 1;
		break;
	case FAL_MSG_FENCE:
		got = on_fence(a, m);
		break;
	case FAL_MSG_EVAL:
		got = on_eval(a, m);
		break;
	case FAL_MSG_PING: {
		struct fal_msg pong = { .type = FAL_MSG_PONG };
		pong.pong.stamp = m->ping.stamp;
		pong.pong.steps = a->model_msgs + a->ops.steps(a->ops.arg);
		agent_send(a, &pong, false);
		break;
	}
	case FAL_MSG_ACCOUNT:
		on_account(a, m);
		break;
	case FAL_MSG_DRAIN:
		fal_agent_leave(a, now, m->drain.why);
		break;
	default:
		return FAL_ESTATE;
	}
	if (got > 0)
		agent_dispatch(a);
	if (got > 0 && (m->type == FAL_MSG_REVOKE || m->type == FAL_MSG_VERDICT))
		contribution_close_idle(a);
	return got < 0 ? got : FAL_OK;
}

void
fal_agent_flushed(struct fal_agent *a, uint64_t now)
{
	charge_time(a, now);
	a->is_pushing = push_is_due(a);
}

void
fal_agent_leave(struct fal_agent *a, uint64_t now, const char *why)
{
	charge_time(a, now);
	if (a->is_leaving)
		return;
	a->is_leaving = true;
	snprintf(a->why, sizeof(a->why), "%s", why);
	a->queue.n = 0;
	a->evals.n = 0;
	for (uint32_t i = 0; i < a->slots; i++)
		if (a->lane[i].state != LANE_IDLE && a->lane[i].state != LANE_CANCELLED)
			tasks_cancel_lane(a, i);
	local_leave(a);
	preclaim_drop_unfinished(a);
	contribution_close_idle(a);
}

bool
fal_agent_has_left(const struct fal_agent *a)
{
	return a->has_left;
}

uint32_t
fal_agent_lanes(const struct fal_agent *a)
{
	return a->lanes;
}

struct fal_agent_overlap
fal_agent_overlap(const struct fal_agent *a)
{
	return a->overlap;
}

void
fal_agent_add_lateness(struct fal_agent *a, int64_t ns)
{
	a->time.late += ns;
}
