/* The worker's state machine. */
#include "peer/agent.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One version of the parameters; lanes keep it alive while they compute on it. */
struct snapshot {
	uint64_t version;
	float *params;
	int8_t *exps;
	uint8_t *seen; /* by block */
	uint32_t left; /* blocks still to come */
	uint32_t refs;
};

struct item {
	uint32_t task;
	struct fal_cid fills;
};

struct lane {
	bool busy, cancelled, eval;
	struct item item;
	struct snapshot *on;
	struct fal_sum *sum;
};

/* A claimed task whose verdict is not in yet. */
struct pending {
	uint32_t task, seq;
	struct fal_sum *sum;
};

struct contrib {
	uint32_t seq, tasks;
	struct fal_cid fills;
	struct fal_sum *sum;
};

/* In a queue; falcon-job(5) allows no more samples in a clock. */
enum { MOST_TASKS = 1 << 20 };

/* A growing array used as a stack or a queue. */
#define VEC(type)              \
	struct {               \
		type *v;       \
		size_t n, cap; \
	}

enum activity { COMPUTE, PUSH, PULL, WAIT, ACTIVITIES };

struct fal_agent {
	struct fal_agent_conf conf;
	struct fal_agent_ops ops;
	uint32_t blocks;

	/* Versions being received, or NULL: the next one, and one to be kept. */
	struct snapshot *coming[2];
	struct snapshot *current; /* newest complete version */
	struct snapshot *spare;   /* memory for the next one, or NULL */
	struct snapshot *kept;    /* version under evaluation */

	uint64_t clock; /* of the queue, the pending claims and the contributions */
	uint32_t lanes; /* in use */
	struct lane *lane;
	VEC(struct item) queue;
	VEC(uint32_t) evals;
	uint64_t eval_version; /* of `evals` */
	VEC(struct pending) pending;
	VEC(struct contrib) contribs;
	VEC(struct fal_sum *) pool;
	uint32_t seq;

	bool pushing; /* something is not sent yet */
	uint64_t since, spent[ACTIVITIES], push_all, pull_all, late;

	bool leaving, left;
	char why[FAL_MSG_WHY];
};

static void
snapshot_free(struct snapshot *s)
{
	if (s == NULL)
		return;
	free(s->params);
	free(s->exps);
	free(s->seen);
	free(s);
}

/* One reference less; the last one leaves it to the next version. */
static void
snapshot_drop(struct fal_agent *a, struct snapshot *s)
{
	if (s == NULL || --s->refs > 0)
		return;
	snapshot_free(a->spare);
	a->spare = s;
}

static struct snapshot *
snapshot_alloc(const struct fal_agent *a)
{
	struct snapshot *s = fal_calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->params = fal_calloc_aligned(a->conf.n, sizeof(float));
	s->exps = fal_calloc(a->blocks, 1);
	s->seen = fal_calloc(a->blocks, 1);
	if (s->params == NULL || s->exps == NULL || s->seen == NULL) {
		snapshot_free(s);
		return NULL;
	}
	return s;
}

static struct snapshot *
snapshot_new(struct fal_agent *a, uint64_t version)
{
	struct snapshot *s = a->spare != NULL ? a->spare : snapshot_alloc(a);
	if (s == NULL)
		return NULL;
	a->spare = NULL;
	memset(s->seen, 0, a->blocks);
	s->refs = 1;
	s->version = version;
	s->left = a->blocks;
	return s;
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
		snapshot_drop(a, a->lane[i].on);
	}
	for (size_t i = 0; i < a->pending.n; i++)
		fal_sum_free(a->pending.v[i].sum);
	for (size_t i = 0; i < a->contribs.n; i++)
		fal_sum_free(a->contribs.v[i].sum);
	for (size_t i = 0; i < a->pool.n; i++)
		fal_sum_free(a->pool.v[i]);
	snapshot_drop(a, a->coming[0]);
	snapshot_drop(a, a->coming[1]);
	snapshot_drop(a, a->current);
	snapshot_drop(a, a->kept);
	snapshot_free(a->spare);
	free(a->lane);
	free(a->queue.v);
	free(a->evals.v);
	free(a->pending.v);
	free(a->contribs.v);
	free(a->pool.v);
	free(a);
}

static bool
pulling(const struct fal_agent *a)
{
	return a->coming[0] != NULL || a->coming[1] != NULL;
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
	return pulling(a) ? PULL : WAIT;
}

/* Charges the time since the last event to what was going on. */
static void
charge(struct fal_agent *a, uint64_t now)
{
	uint64_t dt = a->since != 0 && now > a->since ? now - a->since : 0;
	a->spent[activity(a)] += dt;
	a->push_all += a->pushing ? dt : 0;
	a->pull_all += pulling(a) ? dt : 0;
	a->since = now;
}

static int
send_msg(struct fal_agent *a, struct fal_msg *m, bool bulk)
{
	struct fal_buf out = { 0 };
	m->incarnation = a->conf.incarnation;
	int err = fal_msg_put(&out, m);
	if (err == FAL_OK)
		a->ops.send(a->ops.arg, &out, bulk);
	fal_buf_free(&out);
	return err;
}

static struct fal_sum *
take_sum(struct fal_agent *a)
{
	if (a->pool.n > 0)
		return a->pool.v[--a->pool.n];
	return fal_sum_new(a->conf.n);
}

static int
give_sum(struct fal_agent *a, struct fal_sum *sum)
{
	if (sum == NULL)
		return FAL_OK;
	if (FAL_GROW(a->pool.v, a->pool.cap, a->pool.n + 1) < 0) {
		fal_sum_free(sum);
		return FAL_ENOMEM;
	}
	a->pool.v[a->pool.n++] = sum;
	return FAL_OK;
}

/* Hands queued tasks to idle lanes: training first, then evaluation. */
static int
dispatch(struct fal_agent *a)
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
			l->sum = take_sum(a);
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

/* The records of one contribution, as many in a message as fit. */
static int
push_contrib(struct fal_agent *a, const struct contrib *c)
{
	struct fal_msg m = { .type = FAL_MSG_PUSH };
	struct fal_buf records = { 0 }, one = { 0 };
	int err = FAL_OK;
	/* Room for the fields before the tail. */
	const size_t most = FAL_MSG_MAX - 64;
	m.push.clock = a->clock;
	m.push.seq = c->seq;
	m.push.tasks = c->tasks;
	m.push.kind = FAL_KIND_GRAD;
	m.push.epoch = a->conf.map_epoch;
	for (uint32_t b = 0; b < a->blocks && err == FAL_OK; b++) {
		uint64_t checksum = 0;
		if (a->conf.checksums)
			checksum = fal_sum_checksum(c->sum, b, a->conf.checksum_seed);
		fal_buf_clear(&one);
		err = fal_sum_pack(c->sum, b, a->current->exps[b],
				   a->conf.checksums ? &checksum : NULL, &one);
		if (err == FAL_OK && records.n > 0 && records.n + one.n > most) {
			m.push.records = (struct fal_tail){ records.p, records.n };
			err = send_msg(a, &m, true);
			fal_buf_clear(&records);
		}
		fal_put_bytes(&records, one.p, one.n);
	}
	if (err == FAL_OK)
		err = records.err;
	m.push.records = (struct fal_tail){ records.p, records.n };
	if (err == FAL_OK)
		err = send_msg(a, &m, true);
	fal_buf_free(&records);
	fal_buf_free(&one);
	return err;
}

static bool
training(const struct fal_agent *a)
{
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		if (a->lane[i].busy && !a->lane[i].cancelled && !a->lane[i].eval)
			return true;
	return false;
}

/* Pushes the contributions when nothing can be added to them any more. */
static int
push_if_idle(struct fal_agent *a)
{
	int err = FAL_OK;
	if (a->queue.n > 0 || a->pending.n > 0 || training(a))
		return FAL_OK;
	while (a->contribs.n > 0 && err == FAL_OK) {
		struct contrib *c = &a->contribs.v[a->contribs.n - 1];
		if (c->tasks > 0) {
			a->pushing = true;
			err = push_contrib(a, c);
		}
		int gave = give_sum(a, c->sum);
		err = err == FAL_OK ? gave : err;
		a->contribs.n--;
	}
	if (err == FAL_OK && a->leaving && !a->left) {
		struct fal_msg m = { .type = FAL_MSG_LEAVE };
		snprintf(m.leave.why, sizeof(m.leave.why), "%s", a->why);
		a->left = true;
		/* Behind the contributions, so in the bulk queue. */
		err = send_msg(a, &m, true);
	}
	return err;
}

/* The open contribution for tasks that fill `fills`; made if there is none. */
static int
contrib_for(struct fal_agent *a, struct fal_cid fills, uint32_t *seq)
{
	for (size_t i = 0; i < a->contribs.n; i++)
		if (fal_cid_eq(a->contribs.v[i].fills, fills)) {
			*seq = a->contribs.v[i].seq;
			return FAL_OK;
		}
	if (FAL_GROW(a->contribs.v, a->contribs.cap, a->contribs.n + 1) < 0)
		return FAL_ENOMEM;
	struct fal_sum *sum = take_sum(a);
	if (sum == NULL)
		return FAL_ENOMEM;
	fal_sum_clear(sum);
	*seq = ++a->seq;
	a->contribs.v[a->contribs.n++] =
		(struct contrib){ .seq = *seq, .fills = fills, .sum = sum };
	return FAL_OK;
}

static struct contrib *
contrib_by_seq(struct fal_agent *a, uint32_t seq)
{
	for (size_t i = 0; i < a->contribs.n; i++)
		if (a->contribs.v[i].seq == seq)
			return &a->contribs.v[i];
	return NULL;
}

/* Claims a finished task; `sum` is taken. */
static int
claim(struct fal_agent *a, const struct item *item, struct fal_sum *sum,
      const struct fal_ran *ran)
{
	struct fal_msg m = { .type = FAL_MSG_CLAIM };
	int err = FAL_OK;
	m.claim.clock = a->clock;
	m.claim.task = item->task;
	m.claim.fills_worker = item->fills.worker;
	m.claim.fills_seq = item->fills.seq;
	m.claim.task_ns = ran->task_ns;
	m.claim.loss = ran->loss;
	m.claim.nonfinite = ran->nonfinite;
	if (ran->nonfinite) {
		err = give_sum(a, sum);
		return err == FAL_OK ? send_msg(a, &m, false) : err;
	}
	if (FAL_GROW(a->pending.v, a->pending.cap, a->pending.n + 1) < 0 ||
	    contrib_for(a, item->fills, &m.claim.seq) < 0) {
		fal_sum_free(sum);
		return FAL_ENOMEM;
	}
	a->pending.v[a->pending.n++] = (struct pending){ item->task, m.claim.seq, sum };
	return send_msg(a, &m, false);
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
	return send_msg(a, &m, false);
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
		err = give_sum(a, was.sum);
	else if (was.eval)
		err = send_evaluated(a, was.on->version, was.item.task, ran);
	else
		err = claim(a, &was.item, was.sum, ran);
	snapshot_drop(a, was.on);
	if (err == FAL_OK)
		err = dispatch(a);
	return err == FAL_OK ? push_if_idle(a) : err;
}

/* Whatever belongs to an older clock is of no use to anybody. */
static int
enter_clock(struct fal_agent *a, uint64_t clock)
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
		err = give_sum(a, a->pending.v[--a->pending.n].sum);
	while (a->contribs.n > 0 && err == FAL_OK)
		err = give_sum(a, a->contribs.v[--a->contribs.n].sum);
	return err;
}

static int
on_version(struct fal_agent *a, const struct fal_msg *m)
{
	/* One to be kept is not given up for a newer one. */
	struct snapshot **coming = &a->coming[m->version.keep != 0];
	struct snapshot *s = snapshot_new(a, m->version.version);
	if (s == NULL)
		return FAL_ENOMEM;
	snapshot_drop(a, *coming);
	*coming = s;
	return FAL_OK;
}

/* The clock that ends with the version now complete: where its time went. */
static int
report(struct fal_agent *a, uint64_t version)
{
	struct fal_msg m = { .type = FAL_MSG_WORKED };
	m.worked.clock = version - 1;
	m.worked.compute = a->spent[COMPUTE];
	m.worked.push = a->spent[PUSH];
	m.worked.pull = a->spent[PULL];
	m.worked.wait = a->spent[WAIT];
	m.worked.push_all = a->push_all;
	m.worked.pull_all = a->pull_all;
	m.worked.late = a->late;
	memset(a->spent, 0, sizeof(a->spent));
	a->push_all = a->pull_all = a->late = 0;
	return send_msg(a, &m, false);
}

/* All of `a->coming[keep]` is here. */
static int
model_complete(struct fal_agent *a, bool keep)
{
	struct snapshot *s = a->coming[keep];
	int err = FAL_OK;
	bool newer = a->current == NULL || s->version > a->current->version;
	a->coming[keep] = NULL;
	if (newer && a->current != NULL)
		err = report(a, s->version);
	if (keep) {
		snapshot_drop(a, a->kept);
		a->kept = s;
		s->refs++;
	}
	if (newer) {
		snapshot_drop(a, a->current);
		a->current = s;
	} else {
		snapshot_drop(a, s);
	}
	if (err == FAL_OK && newer && s->version > a->clock)
		err = enter_clock(a, s->version);
	return err == FAL_OK ? dispatch(a) : err;
}

static int
on_model(struct fal_agent *a, const struct fal_msg *m)
{
	bool keep = a->coming[1] != NULL && a->coming[1]->version == m->model.version;
	struct snapshot *s = a->coming[keep];
	if (s == NULL || s->version != m->model.version)
		return FAL_OK; /* of a version that was skipped */
	uint32_t first = m->model.first, blocks = m->model.blocks;
	if (blocks == 0 || first >= a->blocks || blocks > a->blocks - first)
		return FAL_EFORMAT;
	size_t from = (size_t)first * FAL_BLOCK, to = from + (size_t)blocks * FAL_BLOCK;
	size_t values = (to < a->conf.n ? to : a->conf.n) - from;
	if (m->model.data.n != blocks + values * sizeof(float))
		return FAL_EFORMAT;
	for (uint32_t b = first; b < first + blocks; b++) {
		int8_t e = (int8_t)m->model.data.p[b - first];
		if (e < FAL_EXP_MIN || e > FAL_EXP_MAX || s->seen[b])
			return FAL_EFORMAT;
		s->seen[b] = 1;
		s->left--;
	}
	memcpy(s->exps + first, m->model.data.p, blocks);
	memcpy(s->params + from, m->model.data.p + blocks, values * sizeof(float));
	return s->left == 0 ? model_complete(a, keep) : FAL_OK;
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
		int err = enter_clock(a, m->grant.clock);
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
	return dispatch(a);
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
	return push_if_idle(a);
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
	struct contrib *c = contrib_by_seq(a, p.seq);
	if (m->verdict.won != 0 && c != NULL) {
		err = fal_sum_add(c->sum, p.sum);
		c->tasks++;
	}
	int gave = give_sum(a, p.sum);
	err = err == FAL_OK ? gave : err;
	return err == FAL_OK ? push_if_idle(a) : err;
}

static int
on_fence(struct fal_agent *a, const struct fal_msg *m)
{
	struct contrib *c = contrib_by_seq(a, m->fence.seq);
	if (m->fence.clock != a->clock || c == NULL)
		return FAL_OK;
	int err = give_sum(a, c->sum);
	*c = a->contribs.v[--a->contribs.n];
	return err;
}

static int
on_lanes(struct fal_agent *a, const struct fal_msg *m)
{
	if (m->lanes.lanes < 1 || m->lanes.lanes > a->conf.lanes_max)
		return FAL_EINVAL;
	a->lanes = m->lanes.lanes;
	return dispatch(a);
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
	return dispatch(a);
}

int
fal_agent_msg(struct fal_agent *a, uint64_t now, const struct fal_msg *m)
{
	struct fal_msg pong = { .type = FAL_MSG_PONG };
	charge(a, now);
	switch (m->type) {
	case FAL_MSG_VERSION:
		return on_version(a, m);
	case FAL_MSG_MODEL:
		return on_model(a, m);
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
		return send_msg(a, &pong, false);
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
	return push_if_idle(a);
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
