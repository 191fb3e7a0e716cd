/* The worker's lanes and time, and what the coordinator says. */
#include "agent/priv.h"

#include "base/mem.h"
#include "base/rng.h"
#include "sched/traits.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fal_agent_most
fal_agent_most(const struct fal_rule *rule, bool evaluates)
{
	const struct fal_traits is = fal_rule_traits(rule);
	/* The version that is computed on, which the next one takes the place of; those
	 * that a slack needs; where rounds are of each worker, the one that comes; one
	 * that is evaluated. */
	return (struct fal_agent_most){ .versions = 1 + (is.shared ? is.delay : 1) +
						    evaluates,
					.delay = is.delay,
					.own = !is.shared,
					.moves = is.moves,
					.delta = is.delta };
}

size_t
fal_agent_sums(const struct fal_agent_conf *conf, const struct fal_agent_most *most)
{
	const size_t all = conf->lanes_max, tasks = conf->tasks, few = all / 2 + 1;
	const size_t small = 2 * WAITING / fal_sum_bytes(conf->n);
	if (tasks <= 1)
		return 1 + most->delay + most->own;
	/* A task of each lane.  Results that wait for their verdicts, of some lanes,
	 * where tasks move; where they do not, claims wait for nobody (design.md, D25).
	 */
	const size_t waits = most->moves ? (small > few ? small : few) : 0;
	/* Each open round has a contribution of two tasks at least.  Where tasks move, a
	 * round has one sum, beside the one where two results meet; with a delay, a
	 * result of the last open round may wait for either.  Rounds of this worker's
	 * own: one more is on its way. */
	const size_t shared =
		most->moves ? 2 + most->delay - (most->delay > 0) : 2 * (1 + most->delay);
	const size_t contribs = most->own ? 2 * (2 + most->delay) : shared;
	return (all + waits < tasks ? all + waits : tasks) + contribs;
}

uint64_t
fal_agent_bytes(const struct fal_agent_conf *conf, const struct fal_agent_most *most)
{
	const uint64_t vector = conf->n * sizeof(float);
	/* With local steps: own weights, as they were, two changes, the optimiser's
	 * state. */
	const uint64_t local = most->delta ? 4 + fal_optim_slots(&conf->optim) : 0;
	const uint64_t half = fal_sum_bytes(conf->n) / 2;
	return (most->versions + local) * vector + fal_agent_sums(conf, most) * half;
}

bool
agent_grow(struct fal_agent *a, const struct fal_agent_most *to)
{
	if (a->ops.grow != NULL && !a->ops.grow(a->ops.arg, to))
		return false;
	const size_t sums = fal_agent_sums(&a->conf, to);
	a->conf.most = *to;
	if (a->conf.sums != 0 && a->conf.sums < sums)
		a->conf.sums = sums;
	return true;
}

/* Tasks move now: lanes stand still while results wait for their verdicts, where there
 * are no sums for that. */
static void
ask_for_sums(struct fal_agent *a)
{
	struct fal_agent_most to = a->conf.most;
	to.moves = true;
	if (a->conf.most.versions == 0 || a->conf.most.moves || a->refused)
		return;
	a->refused = !agent_grow(a, &to);
}

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
	/* Lanes go on beside so many results without a verdict: one of each, or what is
	 * small. */
	a->waiting = 2 * WAITING / fal_sum_bytes(conf->n);
	a->waiting = a->waiting > a->conf.lanes_max ? a->waiting : a->conf.lanes_max;
	a->serial = conf->serial;
	a->lane = fal_calloc(a->conf.lanes_max, sizeof(*a->lane));
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
	for (size_t i = 0; i < a->contribs.n; i++) {
		fal_sum_free(a->contribs.v[i].sum);
		agent_drop(a, a->contribs.v[i].on);
	}
	for (size_t i = 0; i < a->pool.n; i++)
		fal_sum_free(a->pool.v[i]);
	for (size_t i = 0; i < a->versions.n; i++)
		agent_drop(a, a->versions.v[i]);
	agent_push_free(a);
	agent_local_free(a);
	agent_drop(a, a->kept);
	agent_free_snapshot(a->spare);
	free(a->lane);
	free(a->versions.v);
	free(a->queue.v);
	free(a->evals.v);
	free(a->pending.v);
	free(a->contribs.v);
	free(a->pool.v);
	free(a);
}

/* Where time goes: the first that applies (design.md, I19). */
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

/* Are all lanes that are busy so with versions that still come? */
static bool
is_behind(const struct fal_agent *a)
{
	bool any = false;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++) {
		if (a->lane[i].busy && a->lane[i].on->left == 0)
			return false;
		any |= a->lane[i].busy;
	}
	return any;
}

void
agent_charge(struct fal_agent *a, uint64_t now)
{
	uint64_t dt = a->since != 0 && now > a->since ? now - a->since : 0;
	const enum activity is = activity(a);
	a->spent[is] += dt;
	if (is != COMPUTE && dt > 0)
		agent_wait_for(a, dt);
	a->push_all += a->pushing ? dt : 0;
	a->pull_all += agent_pulling(a) ? dt : 0;
	a->behind += is_behind(a) ? dt : 0;
	a->since = now;
}

static uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Of the time in which lanes had begun with what was coming, the first of them that is
 * over says how much it waited, for all of them: that is pull, and no compute; the rest
 * is no pull that anything waited for. */
static void
settle_behind(struct fal_agent *a, uint64_t waited)
{
	const uint64_t pull = least(waited, a->behind);
	const uint64_t moved = least(pull, a->spent[COMPUTE]);
	a->spent[COMPUTE] -= moved;
	a->spent[PULL] += moved;
	a->pull_all -= least(a->behind - pull, a->pull_all);
	a->behind = 0;
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

bool
agent_trains(const struct lane *l)
{
	return l->busy && !l->eval && !l->cancelled;
}

void
agent_cancel(struct fal_agent *a, uint32_t lane)
{
	a->lane[lane].cancelled = true;
	a->ops.cancel(a->ops.arg, lane);
}

/* May another task begin?  Results without a verdict are bounded, and a task that was
 * cancelled counts as one: what it runs on is kept for it alone.  One may always. */
static bool
may_begin(const struct fal_agent *a)
{
	size_t held = a->pending.n;
	bool trains = held > 0;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++) {
		held += a->lane[i].busy && a->lane[i].cancelled;
		trains |= agent_trains(&a->lane[i]);
	}
	return held <= a->waiting || !trains;
}

/* What an idle lane is to do; false: there is nothing. */
static bool
choose(struct fal_agent *a, struct lane *l)
{
	if (may_begin(a) && agent_next(a, &l->item, &l->on))
		return true;
	if (a->pending.n > 0 && a->queue.n > 0 && a->queue.v[0].seq == 0)
		ask_for_sums(a);
	if (a->evals.n == 0 || a->kept == NULL || a->kept->version != a->eval_version)
		return false;
	l->eval = true;
	l->item.task = a->evals.v[--a->evals.n];
	l->on = a->kept;
	return true;
}

/* Starts a lane for which something was chosen. */
static int
start(struct fal_agent *a, uint32_t lane)
{
	struct lane *l = &a->lane[lane];
	l->busy = true;
	l->on->refs++;
	const bool sums = !l->eval && !a->conf.outer;
	l->sum = sums ? agent_take_sum(a) : NULL;
	if (sums && l->sum == NULL) {
		agent_drop(a, l->on);
		*l = (struct lane){ 0 };
		return FAL_ENOMEM;
	}
	const struct fal_run run = {
		.eval = l->eval,
		.round = l->item.round,
		.clock = l->item.clock,
		.task = l->item.task,
		.version = l->eval ? l->on->version : l->item.version,
		.serial = l->on->serial,
		.params = l->on->params,
		.exps = l->on->exps,
		.coming = l->on->left > 0,
		.came = l->on->came,
		.sum = l->sum,
		.room = fal_bfp_room(a->conf.tasks),
		.bits = agent_local(a, l->item.round) != NULL ? 0 : a->conf.push_bits,
		.seed = fal_rng_task(a->conf.seed, l->item.clock, l->item.task)
	};
	a->overlap.tasks += !l->eval;
	a->overlap.begun += l->begun = run.coming;
	a->ops.run(a->ops.arg, lane, &run);
	return FAL_OK;
}

int
agent_dispatch(struct fal_agent *a)
{
	int err = a->leaving ? FAL_OK : agent_local_begin(a);
	for (uint32_t i = 0; i < a->lanes && !a->leaving && err == FAL_OK; i++) {
		struct lane *l = &a->lane[i];
		if (l->busy)
			continue;
		*l = (struct lane){ 0 };
		if (!choose(a, l))
			break;
		err = start(a, i);
	}
	return err;
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
	agent_charge(a, now);
	if (l->begun && !l->cancelled && !ran->cancelled)
		settle_behind(a, ran->waited_ns);
	struct lane was = *l;
	*l = (struct lane){ 0 };
	if (ran->sum != NULL) {
		assert(was.sum == NULL);
		was.sum = ran->sum;
		a->halves += 1 + fal_sum_grown(was.sum);
	}
	if (was.cancelled || ran->cancelled)
		err = agent_give_sum(a, was.sum);
	else if (was.eval)
		err = send_evaluated(a, was.on->version, was.item.task, ran);
	else if (was.item.check)
		err = agent_checked(a, &was, ran);
	else
		err = agent_claim(a, &was, ran);
	agent_drop(a, was.on);
	if (err == FAL_OK)
		err = agent_dispatch(a);
	return err == FAL_OK ? agent_close(a) : err;
}

static int
on_lanes(struct fal_agent *a, const struct fal_msg *m)
{
	if (m->lanes.lanes < 1 || m->lanes.lanes > a->conf.lanes_max)
		return FAL_EINVAL;
	if (!a->conf.outer)
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

/* Where the time went since the last one. */
static int
on_account(struct fal_agent *a, const struct fal_msg *m)
{
	struct fal_msg w = { .type = FAL_MSG_WORKED };
	struct fal_buf waits = { 0 };
	w.worked.mark = m->account.mark;
	w.worked.compute = a->spent[COMPUTE];
	w.worked.push = a->spent[PUSH];
	w.worked.pull = a->spent[PULL];
	w.worked.wait = a->spent[WAIT];
	w.worked.push_all = a->push_all;
	w.worked.pull_all = a->pull_all;
	w.worked.late = a->late > 0 ? (uint64_t)a->late : 0;
	memset(a->spent, 0, sizeof(a->spent));
	a->push_all = a->pull_all = 0;
	a->late -= (int64_t)w.worked.late;
	int err = agent_put_waits(a, &waits);
	w.worked.waits = (struct fal_tail){ waits.p, waits.n };
	if (err == FAL_OK)
		err = agent_send(a, &w, false);
	fal_buf_free(&waits);
	return err;
}

static int
on_ping(struct fal_agent *a, const struct fal_msg *m)
{
	struct fal_msg pong = { .type = FAL_MSG_PONG };
	pong.pong.stamp = m->ping.stamp;
	pong.pong.steps = a->pulled + a->ops.steps(a->ops.arg);
	return agent_send(a, &pong, false);
}

/* A sum may be free now, for which a task waits. */
static int
freed(struct fal_agent *a, int err)
{
	return err == FAL_OK ? agent_dispatch(a) : err;
}

int
fal_agent_msg(struct fal_agent *a, uint64_t now, const struct fal_msg *m)
{
	agent_charge(a, now);
	switch (m->type) {
	case FAL_MSG_VERSION:
		return agent_on_version(a, m);
	case FAL_MSG_PUBLISHED:
		return agent_on_published(a, m);
	case FAL_MSG_MODEL:
		a->pulled++;
		return agent_on_model(a, m);
	case FAL_MSG_BLOCKS:
		return freed(a, agent_on_blocks(a, m));
	case FAL_MSG_GRANT:
		return agent_on_grant(a, m);
	case FAL_MSG_REVOKE:
		return agent_on_revoke(a, m);
	case FAL_MSG_VERDICT:
		return agent_on_verdict(a, m);
	case FAL_MSG_LANES:
		return on_lanes(a, m);
	case FAL_MSG_TICKET:
		return freed(a, agent_on_ticket(a, m));
	case FAL_MSG_FENCE:
		return freed(a, agent_on_fence(a, m));
	case FAL_MSG_EVAL:
		return on_eval(a, m);
	case FAL_MSG_PING:
		return on_ping(a, m);
	case FAL_MSG_ACCOUNT:
		return on_account(a, m);
	case FAL_MSG_DRAIN:
		return fal_agent_leave(a, now, m->drain.why);
	default:
		return FAL_ESTATE;
	}
}

void
fal_agent_flushed(struct fal_agent *a, uint64_t now)
{
	agent_charge(a, now);
	a->pushing = agent_push_waits(a);
}

int
fal_agent_leave(struct fal_agent *a, uint64_t now, const char *why)
{
	agent_charge(a, now);
	if (a->leaving)
		return FAL_OK;
	a->leaving = true;
	snprintf(a->why, sizeof(a->why), "%s", why);
	a->queue.n = 0;
	a->evals.n = 0;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		if (a->lane[i].busy && !a->lane[i].cancelled)
			agent_cancel(a, i);
	int err = agent_local_leave(a);
	if (err == FAL_OK)
		err = agent_leave_preclaimed(a);
	return err == FAL_OK ? agent_close(a) : err;
}

bool
fal_agent_left(const struct fal_agent *a)
{
	return a->left;
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
fal_agent_late(struct fal_agent *a, int64_t ns)
{
	a->late += ns;
}
