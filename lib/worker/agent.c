/* The worker's lanes and time, the tasks that wait, and what the coordinator says. */
#include "worker/agent_priv.h"

#include "base/mem.h"
#include "base/rng.h"
#include "sched/policy.h"

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

struct fal_agent *
fal_agent_new(const struct fal_agent_conf *conf, const struct fal_agent_ops *ops)
{
	struct fal_agent *a = fal_xcalloc(1, sizeof(*a));
	a->conf = *conf;
	a->ops = *ops;
	a->blocks = fal_blocks(conf->n);
	a->lanes = conf->lanes_max;
	/* Lanes go on beside so many results without a verdict: one of each, or what is
	 * small. */
	a->waiting = 2 * WAITING / fal_sum_bytes(conf->n);
	a->waiting = a->waiting > a->conf.lanes_max ? a->waiting : a->conf.lanes_max;
	a->serial = conf->serial;
	a->lane = fal_xcalloc(a->conf.lanes_max, sizeof(*a->lane));
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
		agent_drop(a, a->lane[i].by);
	}
	for (size_t i = 0; i < a->pending.n; i++)
		fal_sum_free(a->pending.v[i].sum);
	for (size_t i = 0; i < a->contribs.n; i++) {
		fal_sum_free(a->contribs.v[i].sum);
		agent_drop(a, a->contribs.v[i].by);
	}
	for (size_t i = 0; i < a->pool.n; i++)
		fal_sum_free(a->pool.v[i]);
	for (size_t i = 0; i < a->versions.n; i++)
		agent_drop(a, a->versions.v[i]);
	for (size_t i = 0; i < a->pushes.n; i++) {
		fal_sum_free(a->pushes.v[i].sum);
		free(a->pushes.v[i].exps);
	}
	agent_local_free(a);
	agent_drop(a, a->kept);
	agent_free_snapshot(a->spare);
	free(a->lane);
	free(a->versions.v);
	free(a->queue.v);
	free(a->evals.v);
	free(a->pending.v);
	free(a->contribs.v);
	free(a->pushes.v);
	free(a->pool.v);
	fal_buf_free(&a->records);
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

/* Charges the time since the last event to what was going on. */
static void
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

void
agent_send(struct fal_agent *a, struct fal_msg *m, bool bulk)
{
	struct fal_buf out = { 0 };
	m->incarnation = a->conf.incarnation;
	fal_msg_put(&out, m);
	a->ops.send(a->ops.arg, &out, bulk);
	fal_buf_free(&out);
}

bool
agent_trains(const struct lane *l)
{
	return l->busy && !l->eval && !l->cancelled;
}

/* The result of this lane is not wanted any more. */
static void
agent_cancel(struct fal_agent *a, uint32_t lane)
{
	a->lane[lane].cancelled = true;
	a->ops.cancel(a->ops.arg, lane);
}

/* ---- the queue ---- */

/* The index of the first item of a later round. */
static size_t
end_of(const struct fal_agent *a, uint64_t round)
{
	size_t low = 0, high = a->queue.n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (a->queue.v[mid].round <= round)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Would the item go into the contribution? */
static bool
goes_into(const struct item *item, const struct contrib *c)
{
	return !item->check && !item->alone && item->seq == 0 &&
	       item->round == c->round && item->exponents == c->by->version &&
	       fal_cid_eq(item->fills, c->fills);
}

bool
agent_at_work(const struct fal_agent *a, const struct contrib *c)
{
	for (size_t i = end_of(a, c->round); i > 0 && a->queue.v[i - 1].round == c->round;
	     i--)
		if (goes_into(&a->queue.v[i - 1], c))
			return true;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		if (agent_trains(&a->lane[i]) && goes_into(&a->lane[i].item, c))
			return true;
	return false;
}

bool
agent_named(const struct fal_agent *a, uint64_t version)
{
	for (size_t i = 0; i < a->queue.n; i++)
		if (a->queue.v[i].version == version ||
		    a->queue.v[i].exponents == version)
			return true;
	return false;
}

/* Is it one of `count` tasks of the round from `first` on, of kind check or not? */
static bool
is_of(const struct item *at, uint64_t round, uint32_t first, uint32_t count, bool check)
{
	return at->round == round && at->check == check && at->task - first < count;
}

/* Marks, by task, which of `count` tasks from that of `item` on are queued or running. */
static void
mark_held(const struct fal_agent *a, const struct item *item, uint32_t count, bool *held)
{
	const uint64_t round = item->round;
	const uint32_t first = item->task;
	for (size_t i = end_of(a, round); i > 0 && a->queue.v[i - 1].round == round; i--)
		if (is_of(&a->queue.v[i - 1], round, first, count, item->check))
			held[a->queue.v[i - 1].task - first] = true;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		if (agent_trains(&a->lane[i]) &&
		    is_of(&a->lane[i].item, round, first, count, item->check))
			held[a->lane[i].item.task - first] = true;
}

/* Queues the tasks from `item`'s on that are not held, behind those of their round, but
 * before those that need a later version, as in the coordinator's queue.  Checks come
 * before the round, since nobody waits for a check when the round is over. */
static void
enqueue(struct fal_agent *a, struct item item, const bool *held, uint32_t count)
{
	uint32_t fresh = 0;
	for (uint32_t i = 0; i < count; i++)
		fresh += !held[i];
	FAL_XGROW(a->queue.v, a->queue.cap, a->queue.n + fresh);
	const size_t before = item.round > 0 ? end_of(a, item.round - 1) : 0;
	struct item *at = a->queue.v + (item.check ? before : end_of(a, item.round));
	while (at > a->queue.v + before && at[-1].version > item.version)
		at--;
	memmove(at + fresh, at, (size_t)(a->queue.v + a->queue.n - at) * sizeof(item));
	a->queue.n += fresh;
	for (uint32_t i = 0; i < count; i++, item.task++)
		if (!held[i])
			*at++ = item;
}

/* May there be local steps? */
static bool
may_step(struct fal_agent *a)
{
	struct fal_agent_most to = a->conf.most;
	to.own = to.delta = true;
	return to.versions == 0 || a->conf.most.delta || agent_grow(a, &to);
}

static int
on_grant(struct fal_agent *a, const struct fal_msg *m)
{
	const bool delta = m->grant.kind == FAL_KIND_DELTA;
	const bool check = m->grant.kind == FAL_KIND_CHECK;
	if (a->leaving)
		return FAL_OK;
	if (m->grant.count > MOST_TASKS - a->queue.n)
		return FAL_ELIMIT;
	if (m->grant.seq != 0 &&
	    (m->grant.seq < FAL_PRECLAIMED || m->grant.kind != FAL_KIND_GRAD))
		return FAL_EFORMAT;
	if (!delta && !check && m->grant.kind != FAL_KIND_GRAD)
		return FAL_EFORMAT;
	/* Nobody here has weights to step, and members claim for themselves. */
	if ((delta || m->grant.seq != 0) && a->conf.outer)
		return FAL_EINVAL;
	if (delta && !may_step(a))
		return FAL_OK;
	int err = delta ? agent_local_grant(a, m) : FAL_OK;
	if (err < 0 || m->grant.count == 0)
		return err;
	const struct item item = {
		.round = m->grant.round,
		.clock = m->grant.clock,
		.version = m->grant.version,
		.exponents = m->grant.exponents,
		.task = m->grant.first,
		.delta = delta,
		.check = check,
		.seq = m->grant.seq,
		.fills = { m->grant.fills_worker, m->grant.fills_seq },
	};
	bool *held = fal_xcalloc(m->grant.count, sizeof(*held));
	mark_held(a, &item, m->grant.count, held);
	if (item.seq != 0)
		err = memchr(held, 1, m->grant.count * sizeof(*held)) != NULL
			      ? FAL_ESTATE
			      : agent_preclaimed(a, m);
	if (err == FAL_OK)
		enqueue(a, item, held, m->grant.count);
	free(held);
	if (err == FAL_OK)
		agent_dispatch(a);
	return err;
}

/* The first task that can run, taken from the queue for the lane, with the versions that
 * it runs on; false: there is none. */
static bool
next_task(struct fal_agent *a, struct lane *l)
{
	for (size_t i = 0; i < a->queue.n; i++) {
		const struct item *q = &a->queue.v[i];
		struct snapshot *s = q->delta   ? agent_local_on(a, q)
				     : q->check ? agent_version(a, q->version)
						: agent_to_begin(a, q->version);
		struct snapshot *by =
			q->exponents == q->version ? s : agent_version(a, q->exponents);
		bool alone;
		if (s == NULL || by == NULL || !agent_affords(a, q, &alone))
			continue;
		l->on = s;
		l->by = by;
		l->item = *q;
		l->item.alone = alone;
		memmove(a->queue.v + i, a->queue.v + i + 1,
			(--a->queue.n - i) * sizeof(*q));
		return true;
	}
	return false;
}

void
agent_take_back(struct fal_agent *a, uint64_t round, uint32_t first, uint32_t count,
		bool check)
{
	size_t kept = 0;
	for (size_t i = 0; i < a->queue.n; i++)
		if (!is_of(&a->queue.v[i], round, first, count, check))
			a->queue.v[kept++] = a->queue.v[i];
	a->queue.n = kept;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++) {
		const struct lane *l = &a->lane[i];
		if (agent_trains(l) && is_of(&l->item, round, first, count, check))
			agent_cancel(a, i);
	}
}

static void
on_revoke(struct fal_agent *a, const struct fal_msg *m)
{
	const bool check = m->revoke.check != 0;
	if (!check && agent_local(a, m->revoke.round) != NULL)
		agent_local_kill(a, m->revoke.round);
	else
		agent_take_back(a, m->revoke.round, m->revoke.first, m->revoke.count,
				check);
	if (!check)
		agent_drop_preclaimed(a, m->revoke.round, m->revoke.first,
				      m->revoke.count);
}

/* ---- lanes ---------------------------------------------------------------------- */

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
	if (may_begin(a) && next_task(a, l))
		return true;
	const struct fal_agent_most *most = &a->conf.most;
	if (a->pending.n > 0 && a->queue.n > 0 && a->queue.v[0].seq == 0 &&
	    most->versions > 0 && !most->moves && !a->refused) {
		/* Tasks move now: lanes stand still while results wait for their
		 * verdicts, where there are no sums for that. */
		struct fal_agent_most to = *most;
		to.moves = true;
		a->refused = !agent_grow(a, &to);
	}
	if (a->evals.n == 0 || a->kept == NULL || a->kept->version != a->eval_version)
		return false;
	l->eval = true;
	l->item.task = a->evals.v[--a->evals.n];
	l->on = l->by = a->kept;
	return true;
}

/* Starts a lane for which something was chosen. */
static void
start(struct fal_agent *a, uint32_t lane)
{
	struct lane *l = &a->lane[lane];
	l->busy = true;
	l->on->refs++;
	l->by->refs++;
	l->sum = l->eval || a->conf.outer ? NULL : agent_take_sum(a);
	const struct fal_run run = {
		.eval = l->eval,
		.round = l->item.round,
		.clock = l->item.clock,
		.task = l->item.task,
		.version = l->eval ? l->on->version : l->item.version,
		.exponents = l->item.exponents,
		.serial = l->on->serial,
		.params = l->on->params,
		.exps = l->by->exps,
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
}

void
agent_dispatch(struct fal_agent *a)
{
	if (!a->leaving)
		agent_local_begin(a);
	for (uint32_t i = 0; i < a->lanes && !a->leaving; i++) {
		struct lane *l = &a->lane[i];
		if (l->busy)
			continue;
		*l = (struct lane){ 0 };
		if (!choose(a, l))
			break;
		start(a, i);
	}
}

static void
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
	agent_send(a, &m, false);
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
		agent_give_sum(a, was.sum);
	else if (was.eval)
		send_evaluated(a, was.on->version, was.item.task, ran);
	else if (was.item.check)
		agent_checked(a, &was, ran);
	else
		err = agent_claim(a, &was, ran);
	agent_drop(a, was.on);
	agent_drop(a, was.by);
	if (err < 0)
		return err;
	agent_dispatch(a);
	agent_close(a);
	return FAL_OK;
}

static int
on_lanes(struct fal_agent *a, const struct fal_msg *m)
{
	if (m->lanes.lanes < 1 || m->lanes.lanes > a->conf.lanes_max)
		return FAL_EINVAL;
	if (!a->conf.outer)
		a->lanes = m->lanes.lanes;
	agent_dispatch(a);
	return FAL_OK;
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
	FAL_XGROW(a->evals.v, a->evals.cap, a->evals.n + m->eval.count);
	for (uint32_t i = 0; i < m->eval.count; i++)
		a->evals.v[a->evals.n++] = m->eval.first + i;
	agent_dispatch(a);
	return FAL_OK;
}

/* Where the time went since the last one. */
static void
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
	agent_put_waits(a, &waits);
	w.worked.waits = (struct fal_tail){ waits.p, waits.n };
	agent_send(a, &w, false);
	fal_buf_free(&waits);
}

static void
on_ping(struct fal_agent *a, const struct fal_msg *m)
{
	struct fal_msg pong = { .type = FAL_MSG_PONG };
	pong.pong.stamp = m->ping.stamp;
	pong.pong.steps = a->pulled + a->ops.steps(a->ops.arg);
	agent_send(a, &pong, false);
}

int
fal_agent_msg(struct fal_agent *a, uint64_t now, const struct fal_msg *m)
{
	int err = FAL_OK;
	agent_charge(a, now);
	switch (m->type) {
	case FAL_MSG_VERSION:
		agent_on_version(a, m);
		return FAL_OK;
	case FAL_MSG_PUBLISHED:
		return agent_on_published(a, m);
	case FAL_MSG_MODEL:
		a->pulled++;
		return agent_on_model(a, m);
	case FAL_MSG_BLOCKS:
		err = agent_on_blocks(a, m);
		break;
	case FAL_MSG_GRANT:
		return on_grant(a, m);
	case FAL_MSG_REVOKE:
		on_revoke(a, m);
		agent_dispatch(a);
		agent_close(a);
		return FAL_OK;
	case FAL_MSG_VERDICT:
		return agent_on_verdict(a, m);
	case FAL_MSG_LANES:
		return on_lanes(a, m);
	case FAL_MSG_TICKET:
		err = agent_on_ticket(a, m);
		break;
	case FAL_MSG_FENCE:
		agent_on_fence(a, m);
		break;
	case FAL_MSG_EVAL:
		return on_eval(a, m);
	case FAL_MSG_PING:
		on_ping(a, m);
		return FAL_OK;
	case FAL_MSG_ACCOUNT:
		on_account(a, m);
		return FAL_OK;
	case FAL_MSG_DRAIN:
		fal_agent_leave(a, now, m->drain.why);
		return FAL_OK;
	default:
		return FAL_ESTATE;
	}
	if (err == FAL_OK) /* a sum may be free, for which a task waits */
		agent_dispatch(a);
	return err;
}

void
fal_agent_flushed(struct fal_agent *a, uint64_t now)
{
	agent_charge(a, now);
	a->pushing = agent_push_waits(a);
}

void
fal_agent_leave(struct fal_agent *a, uint64_t now, const char *why)
{
	agent_charge(a, now);
	if (a->leaving)
		return;
	a->leaving = true;
	snprintf(a->why, sizeof(a->why), "%s", why);
	a->queue.n = 0;
	a->evals.n = 0;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		if (a->lane[i].busy && !a->lane[i].cancelled)
			agent_cancel(a, i);
	agent_local_leave(a);
	agent_leave_preclaimed(a);
	agent_close(a);
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
