/* What a simulated worker does. */
#include "cluster_priv.h"
#include "flips.h"
#include "lies.h"

#include "../task_hash.h"
#include "base/vector.h"
#include "sched/bound.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a liar makes of a message. */
static struct fal_buf
lie(struct worker *w, const struct fal_buf *msg)
{
	struct fal_buf out = { 0 };
	if (!lie_of(w->c->p, w->m->lie, &w->lied, msg, &out))
		return cluster_copy(msg);
	w->c->root->lies++;
	return out;
}

enum { STEPS = 10 }; /* of a task */

bool
worker_hangs(const struct worker *w)
{
	return w->c->now >= w->m->hang_at;
}

static bool
is_unsaid(struct worker *w, const struct fal_msg *m)
{
	const bool is = w->m->lie == LIE_MUTE && m->type == FAL_MSG_CLAIM &&
			m->claim.seq >= FAL_PRECLAIMED;
	w->c->root->lies += is;
	return is;
}

/* What is sent by a machine that does not send all, or half of it; false: nothing. */
static bool
withhold(struct worker *w, struct fal_buf *msg)
{
	bool half = w->m->hang == HANG_HALF;
	struct fal_msg m;
	struct fal_bfp_rec rec;
	if (w->m->lie != LIE_MUTE && (w->m->hang == HANG_NOT || !worker_hangs(w)))
		return true;
	int err = fal_msg_get(msg->p, msg->n, &m);
	assert(err == FAL_OK);
	if (is_unsaid(w, &m))
		return false;
	if (m.type == FAL_MSG_CHECKED)
		return w->m->hang != HANG_MUTE;
	if (m.type != FAL_MSG_PUSH || (!half && w->m->hang != HANG_CLAIM))
		return true;
	const uint32_t most = half ? fal_blocks(w->c->p->toy.n) / 2 : 0;
	struct fal_rd r = fal_rd_init(m.push.records.p, m.push.records.n);
	size_t left = r.n;
	while (r.n > 0 && fal_bfp_parse(&r, w->c->p->toy.n, &rec) == FAL_OK &&
	       rec.block < most)
		left = r.n;
	if (left == m.push.records.n)
		return false;
	struct fal_buf out = { 0 };
	m.push.records.n -= left;
	fal_msg_put(&out, &m);
	fal_buf_free(msg);
	*msg = out;
	return true;
}

static bool
is_push(const struct fal_buf *msg)
{
	struct fal_msg m;
	int err = fal_msg_get(msg->p, msg->n, &m);
	assert(err == FAL_OK);
	return m.type == FAL_MSG_PUSH;
}

void
worker_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct worker *w = arg;
	struct event e = { .kind = TO_COORD,
			   .worker = w->index,
			   .session = w->session,
			   .msg = w->m->lie != HONEST ? lie(w, msg) : cluster_copy(msg) };
	if (w->c->p->apart && is_push(&e.msg)) {
		e.kind = TO_SHARDS;
		e.lane = w->to - 1;
	}
	e.t = cluster_arrival(w->c, w->m, msg->n, bulk ? &w->up_bulk : &w->up_ctl,
			      bulk ? w->up_ctl : 0);
	if (withhold(w, &e.msg))
		cluster_push(w->c, e);
	else
		fal_buf_free(&e.msg);
	if (bulk) {
		struct event f = {
			.kind = TAKEN, .worker = w->index, .session = w->session, .t = e.t
		};
		cluster_push(w->c, f);
		w->under_way++;
	}
}

void
worker_push(void *arg, uint32_t shard, const struct fal_buf *msg)
{
	struct worker *w = arg;
	w->to = shard;
	if (shard == 0 && w->c->failure == NULL)
		w->c->failure = "a push to nobody knows whom";
	else
		worker_send(w, msg, true);
}

/* How far a lane is with its task, in steps. */
static uint64_t
steps_of(const struct worker *w, const struct lane *l)
{
	bool stopped = w->m->hang == HANG_STOP && worker_hangs(w);
	double now = stopped ? w->m->hang_at : w->c->now;
	if (w->m->hang == HANG_PRETEND)
		return l->busy ? (uint64_t)(1e9 * fmax(now - l->began, 0)) : 0;
	double part = l->busy ? (now - l->began) / (l->ends - l->began) : 0;
	return (uint64_t)(STEPS * fmax(fmin(part, 1), 0));
}

static uint64_t
agent_steps(void *arg)
{
	const struct worker *w = arg;
	uint64_t n = w->steps;
	for (uint32_t i = 0; i < 8; i++)
		n += steps_of(w, &w->lane[i]);
	return n;
}

/* When the lane of the slot has done what is in its other slot. */
static double
when_lane_is_idle(const struct worker *w, uint32_t slot)
{
	double idle = w->c->now;
	for (uint32_t i = slot % w->m->lanes_max; i < 8; i += w->m->lanes_max)
		if (i != slot && w->lane[i].busy && !w->lane[i].cancelled)
			idle = fmax(idle, w->lane[i].ends);
	return idle;
}

/* When work of `seconds` that begins at `from` is done. */
static double
when_done(const struct worker *w, double from, double seconds)
{
	double end = from + seconds, at = fmax(w->m->hang_at, from);
	if (w->m->hang != HANG_SLOW || end <= at)
		return end;
	return at + 1e5 * (end - at);
}

static uint32_t
eval_samples(const struct plan *p, uint32_t task)
{
	uint32_t left = p->test_samples - task * p->toy.task;
	return left < p->toy.task ? left : p->toy.task;
}

/* What the task takes, in full ones. */
static double
size_of(const struct worker *w, const struct fal_task_run *run)
{
	const struct plan *p = w->c->p;
	uint32_t samples = run->eval ? eval_samples(p, run->task)
				     : toy_task_samples(&p->toy, run->clock, run->task);
	return fal_bound_task_size(w->m->fixed, (double)samples / p->toy.task) *
	       (run->eval ? 0.33 : 1);
}

static inline uint32_t
mixed(uint32_t x)
{
	x = (x + 1) * 2654435769u;
	return x ^ x >> 15;
}

static void
agent_run(void *arg, uint32_t lane, const struct fal_task_run *run)
{
	struct worker *w = arg;
	struct lane *l = &w->lane[lane];
	assert(!l->busy);
	/* A lane works on one task at a time: what waits in its other slot takes no core.
	 */
	uint32_t lanes = 1u << lane % w->m->lanes_max;
	for (uint32_t i = 0; i < 8; i++)
		lanes |= (uint32_t)w->lane[i].busy << i % w->m->lanes_max;
	const uint32_t busy = (uint32_t)__builtin_popcount(lanes);
	double crowd = busy > w->m->cores ? (double)busy / w->m->cores : 1;
	double noise = 1 + w->m->jitter * (2 * (double)fal_rng_unit(&w->c->rng) - 1);
	*l = (struct lane){ .busy = true,
			    .run = l->run + 1,
			    .began = when_lane_is_idle(w, lane),
			    .what = *run,
			    .came = run->coming ? run->came : UINT32_MAX };
	w->c->seen[SEEN_QUEUED] += l->began > w->c->now;
	w->c->seen[SEEN_BEGUN] += run->coming;
	w->c->seen[SEEN_EARLY_BEGUN] += run->coming && run->version == w->early;
	l->ends = when_done(w, l->began, w->m->task_s * crowd * noise * size_of(w, run));
	struct event e = { .kind = LANE,
			   .worker = w->index,
			   .lane = lane,
			   .run = l->run,
			   .t = l->ends };
	cluster_push(w->c, e);
}

static bool
agent_begins(void *arg)
{
	const struct worker *w = arg;
	return w->c->p->begins && !w->c->p->psld;
}

static bool
is_here(const struct worker *w, const struct lane *l)
{
	return l->came >= fal_blocks(w->c->p->toy.n);
}

/* What waited for this is over, and has lost that time. */
static void
agent_came(void *arg, uint32_t lane, uint32_t blocks)
{
	struct worker *w = arg;
	struct lane *l = &w->lane[lane];
	if (blocks <= l->came && w->c->failure == NULL)
		w->c->failure = "less of a version is here than was";
	l->came = blocks;
	if (!l->waits || !is_here(w, l))
		return;
	struct event e = { .kind = LANE,
			   .worker = w->index,
			   .lane = lane,
			   .run = l->run,
			   .t = w->c->now };
	l->waits = false;
	l->waited = w->c->now - l->ends;
	l->ends = w->c->now;
	cluster_push(w->c, e);
}

static void
agent_cancel(void *arg, uint32_t lane)
{
	struct worker *w = arg;
	struct lane *l = &w->lane[lane];
	struct event e = { .kind = LANE,
			   .worker = w->index,
			   .lane = lane,
			   .run = ++l->run,
			   .t = w->c->now + w->m->task_s / 100 };
	l->cancelled = true;
	cluster_push(w->c, e);
}

void
worker_forget(struct worker *w)
{
	for (uint32_t i = 0; i < 8; i++) {
		w->lane[i].busy = w->lane[i].cancelled = false;
		w->lane[i].run++;
	}
	levels_part(w);
	fal_agent_free(w->agent);
	w->agent = NULL;
	w->under_way = w->heard = 0;
	w->up_ctl = w->up_bulk = w->down_ctl = w->down_bulk = 0;
	w->told.n = 0;
	memset(w->model, 0, sizeof(w->model));
	memset(w->way, 0, sizeof(w->way));
	w->early = 0;
}

static bool
agent_grow(void *arg, const struct fal_agent_limits *to)
{
	struct worker *w = arg;
	(void)to;
	w->grown = true;
	return true;
}

void
worker_join(struct cluster *c, struct worker *w)
{
	struct fal_agent_conf conf = { .n = c->p->toy.n,
				       .incarnation = c->incarnation,
				       .map_epoch = 1,
				       .tasks = toy_clock_tasks(&c->p->toy, 0),
				       .grid = plan_grid(c->p),
				       .push_bits = c->p->toy.bits,
				       .seed = c->p->toy.seed,
				       .optim = c->p->toy.optim,
				       .lanes_max = w->m->lanes_max,
				       .ahead = !c->p->begins && c->p->toy.seed % 8 == 5,
				       .push_blocks = w->m->push_blocks,
				       .most.versions = w->m->versions,
				       .sums = w->m->sums };
	struct fal_agent_ops ops = { .arg = w,
				     .send = worker_send,
				     .run = agent_run,
				     .cancel = agent_cancel,
				     .steps = agent_steps,
				     .push = worker_push,
				     .begins = agent_begins,
				     .came = agent_came,
				     .grow = agent_grow };
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	struct fal_buf out = { 0 };
	char key[24];
	const uint32_t process = plan_process(c->p, w->index);
	const uint32_t owner = plan_owner(c->p, w->index);
	struct fal_coord_session who = {
		.key = key, .fingerprint = key, .place = owner, .rtt = 2 * w->m->latency
	};
	c->seen[SEEN_REJOIN] += process != w->index;
	cluster_key(c, owner, key);
	fal_coord_session_open(c->coord, w->index + 1, &who);
	if (w->m->group != NULL)
		levels_ops(&conf, &ops);
	w->agent = fal_agent_new(&conf, &ops);
	assert(w->agent != NULL);
	w->here = true;
	w->ready = w->grown = false;
	w->session = c->incarnation;
	m.hello.schema = fal_msg_schema();
	snprintf(m.hello.name, sizeof(m.hello.name), "w%u", process);
	m.hello.lanes_min = w->m->lanes_min;
	m.hello.lanes_max = w->m->lanes_max;
	m.hello.cores = w->m->cores;
	m.hello.group = w->m->group != NULL;
	memcpy(m.hello.instance, &process, sizeof(process));
	fal_msg_put(&out, &m);
	worker_send(w, &out, false);
	fal_buf_clear(&out);
	if (w->m->group != NULL) { /* it is ready when its members are */
		fal_buf_free(&out);
		levels_begin(w);
		return;
	}
	m = (struct fal_msg){ .type = FAL_MSG_READY, .incarnation = w->session };
	if (w->m->print != IMPURE)
		m.ready.fingerprint[0] = (uint8_t)(1 + w->m->print);
	m.ready.fingerprint[FAL_FINGERPRINT - 1] = 1;
	if (c->p->probes && w->m->hang == HANG_PRETEND)
		m.ready.task_ns = UINT64_C(86400000000000); /* a day */
	else if (c->p->probes) {
		m.ready.task_ns = (uint64_t)(w->m->task_s * 1e9);
		m.ready.large = 8 * c->p->toy.task;
		m.ready.large_ns = (uint64_t)(w->m->task_s * 1e9 *
					      fal_bound_task_size(w->m->fixed, 8));
	}
	fal_msg_put(&out, &m);
	worker_send(w, &out, false);
	fal_buf_free(&out);
}

/* Has the task no finite gradient, or is that what this machine makes of it?  A flaky one
 * gets every 7th task wrong the first time it sees it; who lies about values has some for
 * every task. */
static bool
goes_wrong(struct worker *w, const struct fal_task_run *run)
{
	const struct toy *t = &w->c->p->toy;
	if (!run->eval && toy_odd(t, run->clock, run->task))
		return w->m->lie == HONEST || w->m->lie >= LIE_PUSHES;
	if (!w->m->flaky || run->eval || run->task % 7 != 3)
		return false;
	bool *shown = &w->shown[run->clock * w->c->p->toy.batch + run->task];
	bool first = !*shown;
	*shown = true;
	return first;
}

static void
dither(float *g, size_t n, const struct fal_task_run *run)
{
	for (uint32_t b = 0; b < fal_blocks(n); b++)
		fal_bfp_dither(g + (size_t)b * FAL_BLOCK, fal_block_len(n, b),
			       run->exps[b], run->seed, b);
}

/* Words side by side; another value, whatever follows it, makes another one. */
FAL_VECTOR static void
mix(uint32_t side[static FAL_LANES], const uint32_t *v, size_t n)
{
	for (size_t i = 0; i + FAL_LANES <= n; i += FAL_LANES)
		for (size_t k = 0; k < FAL_LANES; k++)
			side[k] = mixed(side[k] ^ v[i + k]);
	for (size_t i = n - n % FAL_LANES; i < n; i++)
		side[i % FAL_LANES] = mixed(side[i % FAL_LANES] ^ v[i]);
}

/* The task hash that the worker says of a task with this result.  In three clusters of
 * four the hash is not that of agent.h, which costs as much as all else that a worker
 * does here: a comparison of two keys' words shows no more of the hash than that other
 * sums have another one. */
static void
say_what_came(const struct worker *w, const struct fal_task_run *run,
	      uint8_t out[static FAL_TASK_HASH])
{
	uint32_t side[FAL_LANES] = { 0 };
	uint8_t all[FAL_HASH_BYTES];
	if (w->c->p->toy.seed % 4 == 0) {
		fal_task_hash(run->sum, run->exps, out);
		return;
	}
	for (uint32_t b = 0; b < fal_blocks(w->c->p->toy.n); b++) {
		union fal_sum_room room;
		uint32_t width;
		const void *v = fal_sum_values(run->sum, b, &width, &room);
		const uint32_t head[3] = { (uint8_t)run->exps[b],
					   (uint8_t)fal_sum_needed(run->sum, b), width };
		mix(side, head, 3);
		mix(side, v, width / 4 * (size_t)fal_block_len(w->c->p->toy.n, b));
	}
	fal_hash(side, sizeof(side), all);
	memcpy(out, all, FAL_TASK_HASH);
}

/* The gradient of the lane's task is in c->grad, but for what goes wrong. */
static void
compute(struct cluster *c, const struct fal_task_run *run)
{
	toy_grad(&c->p->toy, run->params, run->clock, run->task, c->grad);
	if (run->bits != 0)
		dither(c->grad, c->p->toy.n, run);
}

/* FAL_ENONFINITE: not all of it is. */
static int
make(struct cluster *c, const struct fal_task_run *run)
{
	const uint32_t blocks = fal_blocks(c->p->toy.n);
	int err = FAL_OK;
	for (uint32_t b = 0; b < blocks && err == FAL_OK; b++)
		err = fal_sum_quantise_block(run->sum, b, c->grad + (size_t)b * FAL_BLOCK,
					     run->exps[b], run->room);
	return err;
}

/* Has a value no room? */
static bool
is_large(const struct fal_task_run *run)
{
	for (uint32_t b = 0; b < fal_blocks(fal_sum_len(run->sum)); b++)
		if (fal_sum_needed(run->sum, b) - run->exps[b] >
		    (int)run->room - FAL_BFP_P + 1)
			return true;
	return false;
}

static bool
is_stuck(struct cluster *c, const struct worker *w)
{
	const bool stuck = (w->m->hang == HANG_STOP || w->m->hang == HANG_PRETEND) &&
			   worker_hangs(w);
	c->seen[SEEN_HANG] += stuck;
	c->seen[SEEN_GROUP_HUNG] += c->up != NULL && stuck;
	return stuck;
}

void
worker_lane_over(struct cluster *c, struct worker *w, const struct event *e)
{
	struct lane *l = &w->lane[e->lane];
	if (is_stuck(c, w) || !l->busy || l->run != e->run)
		return;
	l->waits = !l->cancelled && !is_here(w, l);
	c->seen[SEEN_BEGUN_WAITS] += l->waits;
	if (l->waits)
		return;
	struct fal_task_result ran = { .cancelled = l->cancelled };
	const struct fal_task_run *run = &l->what;
	ran.task_ns = (uint64_t)((c->now - l->began - l->waited) * 1e9);
	ran.waited_ns = (uint64_t)(l->waited * 1e9);
	ran.loss = toy_loss(&c->p->toy, run->clock, run->task);
	ran.samples = run->eval ? eval_samples(c->p, run->task)
				: toy_task_samples(&c->p->toy, run->clock, run->task);
	const bool wrong = goes_wrong(w, run);
	c->seen[SEEN_NONFINITE] += wrong;
	if (!run->eval && !l->cancelled) {
		compute(c, run);
		if (wrong)
			c->grad[0] = NAN;
		const int err = make(c, run);
		ran.nonfinite = err == FAL_ENONFINITE;
		assert(err == FAL_OK || ran.nonfinite);
		c->root->beyond += err == FAL_OK && is_large(run);
		if (err == FAL_OK) {
			flips_strike(w, run);
			say_what_came(w, run, ran.hash);
		}
	}
	l->busy = false;
	w->steps += STEPS;
	cluster_ok(c, fal_agent_finished(w->agent, cluster_ns(c), e->lane, &ran),
		   "agent: finished");
}
