/* Events in virtual time. */
#include "cluster.h"

#include "bound.h"
#include "lies.h"

#include "base/mem.h"
#include "base/rng.h"
#include "peer/agent.h"
#include "sched/bound.h"
#include "store/store.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
	TO_COORD,  /* a message arrives at the coordinator */
	TO_WORKER, /* a message arrives at a worker */
	LANE,      /* a lane's task is over */
	JOIN,
	CRASH,
	LEAVE,
	ORDER, /* a controller asks for something */
	RESUME,
	RESET, /* the coordinator learns that a connection is gone */
	TAKEN  /* a worker's link has a bulk message */
};

struct event {
	double t;
	uint64_t order; /* ties: first in, first out */
	enum kind kind;
	uint32_t worker;
	uint32_t lane, run; /* LANE: which run of the lane */
	struct fal_buf msg;
};

struct lane {
	bool busy, cancelled;
	uint32_t run;
	double began, ends;
	struct fal_run what;
};

/* A contribution that was fenced. */
struct fenced {
	uint64_t round;
	uint32_t peer, seq;
};

/* A growing array. */
#define VEC(type)              \
	struct {               \
		type *v;       \
		size_t n, cap; \
	}

struct cluster;

struct worker {
	struct cluster *c;
	const struct machine *m;
	uint32_t index;
	bool here, dead;
	bool over; /* its session has ended: nothing of it arrives any more */
	struct fal_agent *agent;
	struct lane lane[8];
	double up_ctl, up_bulk, down_ctl, down_bulk; /* last arrival, by direction */
	uint32_t under_way;                          /* bulk messages */
	uint64_t steps;                              /* of tasks that are over */
	bool lied;                                   /* once is enough */
	bool *shown; /* flaky: by task of the job, already non-finite once */
};

struct cluster {
	const struct plan *p;
	struct fal_rng rng;
	double now;
	uint64_t order, events;
	struct event *heap;
	size_t n, cap;
	struct fal_coord *coord;
	struct worker worker[MAX_WORKERS];
	struct fal_buf trace;
	float *grad;
	uint64_t publication;
	uint64_t clock;  /* that is not over, */
	double clock_at; /* since when */
	double longest;
	const char *failure;
	uint64_t lies, refused;
	bool asked; /* somebody was asked to witness */
	uint64_t seen[SEEN];
	VEC(struct fenced) fences; /* that workers were told of */
};

static void
ok(struct cluster *c, int err, const char *what)
{
	if (err < 0 && c->failure == NULL)
		c->failure = what;
}

static bool
earlier(const struct event *a, const struct event *b)
{
	return a->t < b->t || (a->t == b->t && a->order < b->order);
}

static void
push_event(struct cluster *c, struct event e)
{
	int err = FAL_GROW(c->heap, c->cap, c->n + 1);
	assert(err == 0);
	e.order = c->order++;
	size_t i = c->n++;
	for (; i > 0 && earlier(&e, &c->heap[(i - 1) / 2]); i = (i - 1) / 2)
		c->heap[i] = c->heap[(i - 1) / 2];
	c->heap[i] = e;
}

static struct event
pop_event(struct cluster *c)
{
	struct event top = c->heap[0], e = c->heap[--c->n];
	size_t i = 0;
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= c->n)
			break;
		if (child + 1 < c->n && earlier(&c->heap[child + 1], &c->heap[child]))
			child++;
		if (!earlier(&c->heap[child], &e))
			break;
		c->heap[i] = c->heap[child];
		i = child;
	}
	if (c->n > 0)
		c->heap[i] = e;
	return top;
}

static struct fal_buf
copy(const struct fal_buf *msg)
{
	struct fal_buf b = { 0 };
	fal_put_bytes(&b, msg->p, msg->n);
	assert(b.err == 0);
	return b;
}

/* When a message that leaves now arrives: in order within its queue, a bulk one never
 * before the control sent ahead of it, after the link's delay, after a cut is over. */
static double
arrival(struct cluster *c, const struct machine *m, size_t n, double *last, double other)
{
	double t = c->now + m->latency * (0.5 + (double)fal_rng_unit(&c->rng)) +
		   (double)n * m->per_byte;
	if (t >= m->cut_at && t < m->cut_at + m->cut_s)
		t = m->cut_at + m->cut_s + m->latency;
	t = fmax(t, fmax(*last, other));
	*last = t;
	return t;
}

/* --- what the coordinator does ------------------------------------------------- */

static void
to_worker(struct cluster *c, uint32_t peer, const struct fal_buf *msg, bool bulk)
{
	struct worker *w = &c->worker[peer - 1];
	if (w->dead)
		return;
	struct event e = { .kind = TO_WORKER, .worker = peer - 1, .msg = copy(msg) };
	e.t = arrival(c, w->m, msg->n, bulk ? &w->down_bulk : &w->down_ctl,
		      bulk ? w->down_ctl : 0);
	push_event(c, e);
}

/* What the coordinator says is worth remembering. */
static void
note_said(struct cluster *c, uint32_t peer, const struct fal_buf *msg)
{
	struct fal_msg m;
	int err = fal_msg_get(msg->p, msg->n, &m);
	assert(err == FAL_OK);
	c->asked |= m.type == FAL_MSG_GRANT && m.grant.kind == FAL_KIND_CHECK;
	if (m.type != FAL_MSG_FENCE)
		return;
	err = FAL_GROW(c->fences.v, c->fences.cap, c->fences.n + 1);
	assert(err == FAL_OK);
	c->fences.v[c->fences.n++] = (struct fenced){ m.fence.round, peer, m.fence.seq };
	c->seen[SEEN_FENCE]++;
}

/* What is heard of a contribution that is fenced, while its round is open. */
static void
note_heard(struct cluster *c, uint32_t peer, const struct fal_msg *m)
{
	if (m->type != FAL_MSG_PUSH ||
	    !fal_store_is_open(fal_coord_store(c->coord), m->push.round))
		return;
	for (size_t i = 0; i < c->fences.n; i++)
		c->seen[SEEN_LATE_PUSH] += c->fences.v[i].peer == peer &&
					   c->fences.v[i].round == m->push.round &&
					   c->fences.v[i].seq == m->push.seq;
}

static void
coord_send(void *arg, uint32_t peer, const struct fal_buf *msg)
{
	note_said(arg, peer, msg);
	to_worker(arg, peer, msg, false);
}

static void
coord_model(void *arg, uint32_t peer, const struct fal_coord_model *model)
{
	struct cluster *c = arg;
	struct fal_coord_version v;
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	struct fal_buf out = { 0 };
	if (!fal_coord_version(c->coord, model->version, &v)) {
		c->failure = "a version that is not kept";
		return;
	}
	m.version.version = model->version;
	m.version.oldest = model->oldest;
	m.version.publication = ++c->publication;
	m.version.keep = model->keep;
	ok(c, fal_msg_put(&out, &m), "VERSION");
	to_worker(c, peer, &out, false);
	uint32_t blocks = fal_blocks(c->p->toy.n);
	for (uint32_t b = 0; b < blocks; b += FAL_MODEL_BLOCKS) {
		uint32_t count =
			blocks - b < FAL_MODEL_BLOCKS ? blocks - b : FAL_MODEL_BLOCKS;
		fal_buf_clear(&out);
		ok(c,
		   fal_msg_put_model(&out, 0, model->version, b, count, v.params,
				     c->p->toy.n, v.exps),
		   "MODEL");
		to_worker(c, peer, &out, true);
	}
	fal_buf_free(&out);
}

static void
kill_worker(struct cluster *c, struct worker *w)
{
	(void)c;
	w->dead = true;
	w->here = false;
	fal_agent_free(w->agent);
	w->agent = NULL;
}

static void
coord_close(void *arg, uint32_t peer, const char *why)
{
	struct cluster *c = arg;
	struct worker *w = &c->worker[peer - 1];
	if (w->m->lie == HONEST && !w->m->flaky && !w->dead && c->failure == NULL) {
		fprintf(stderr, "sim: w%u is evicted: %s\n", w->index, why);
		c->failure = "an honest worker is evicted";
	}
	c->refused += w->m->lie != HONEST;
	w->over = true;
	kill_worker(c, w);
}

static void
coord_trace(void *arg, const char *line, size_t n)
{
	struct cluster *c = arg;
	fal_put_bytes(&c->trace, line, n);
	fal_put_u8(&c->trace, '\n');
}

/* --- what a worker does --------------------------------------------------------- */

/* What a liar makes of a message. */
static struct fal_buf
lie(struct worker *w, const struct fal_buf *msg)
{
	struct fal_buf out = { 0 };
	if (!lie_of(w->c->p, w->m->lie, &w->lied, msg, &out))
		return copy(msg);
	w->c->lies++;
	return out;
}

enum { STEPS = 10 }; /* of a task */

static bool
hangs(const struct worker *w)
{
	return w->c->now >= w->m->hang_at;
}

/* What is sent by a machine that does not send all, or half of it; false: nothing. */
static bool
withhold(const struct worker *w, struct fal_buf *msg)
{
	bool half = w->m->hang == HANG_HALF;
	struct fal_msg m;
	struct fal_bfp_rec rec;
	if (w->m->hang == HANG_NOT || !hangs(w))
		return true;
	int err = fal_msg_get(msg->p, msg->n, &m);
	assert(err == FAL_OK);
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
	err = fal_msg_put(&out, &m);
	assert(err == FAL_OK);
	fal_buf_free(msg);
	*msg = out;
	return true;
}

static void
agent_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct worker *w = arg;
	struct event e = { .kind = TO_COORD,
			   .worker = w->index,
			   .msg = w->m->lie != HONEST ? lie(w, msg) : copy(msg) };
	e.t = arrival(w->c, w->m, msg->n, bulk ? &w->up_bulk : &w->up_ctl,
		      bulk ? w->up_ctl : 0);
	if (withhold(w, &e.msg))
		push_event(w->c, e);
	else
		fal_buf_free(&e.msg);
	if (bulk) {
		struct event f = { .kind = TAKEN, .worker = w->index, .t = e.t };
		push_event(w->c, f);
		w->under_way++;
	}
}

/* How far a lane is with its task, in steps. */
static uint64_t
steps_of(const struct worker *w, const struct lane *l)
{
	bool stopped = w->m->hang == HANG_STOP && hangs(w);
	double now = stopped ? w->m->hang_at : w->c->now;
	if (w->m->hang == HANG_PRETEND)
		return l->busy ? (uint64_t)(1e9 * (now - l->began)) : 0;
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

/* When work of `seconds` that begins now is done. */
static double
when_done(const struct worker *w, double seconds)
{
	double end = w->c->now + seconds, at = fmax(w->m->hang_at, w->c->now);
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
size_of(const struct worker *w, const struct fal_run *run)
{
	const struct plan *p = w->c->p;
	uint32_t samples = run->eval ? eval_samples(p, run->task)
				     : toy_task_samples(&p->toy, run->clock, run->task);
	return fal_bound_longer(w->m->fixed, (double)samples / p->toy.task) *
	       (run->eval ? 0.33 : 1);
}

static void
agent_run(void *arg, uint32_t lane, const struct fal_run *run)
{
	struct worker *w = arg;
	struct lane *l = &w->lane[lane];
	uint32_t busy = 1;
	for (uint32_t i = 0; i < 8; i++)
		busy += w->lane[i].busy;
	assert(!l->busy);
	double crowd = busy > w->m->cores ? (double)busy / w->m->cores : 1;
	double noise = 1 + w->m->jitter * (2 * (double)fal_rng_unit(&w->c->rng) - 1);
	*l = (struct lane){
		.busy = true, .run = l->run + 1, .began = w->c->now, .what = *run
	};
	l->ends = when_done(w, w->m->task_s * crowd * noise * size_of(w, run));
	struct event e = { .kind = LANE,
			   .worker = w->index,
			   .lane = lane,
			   .run = l->run,
			   .t = l->ends };
	push_event(w->c, e);
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
	push_event(w->c, e);
}

/* Seconds until a connection is known to be dead, as lib/net/chan.h has it, or so. */
static const double found_out_s = 60;

static uint64_t
ns(const struct cluster *c)
{
	return (uint64_t)(c->now * 1e9) + 1;
}

static void
join(struct cluster *c, struct worker *w)
{
	struct fal_agent_conf conf = { .n = c->p->toy.n,
				       .map_epoch = 1,
				       .tasks = toy_clock_tasks(&c->p->toy, 0),
				       .optim = c->p->toy.optim,
				       .lanes_max = w->m->lanes_max,
				       .push_blocks = w->m->push_blocks,
				       .checksums = c->p->audit_sums,
				       .checksum_seed = c->p->toy.seed };
	struct fal_agent_ops ops = { w, agent_send, agent_run, agent_cancel,
				     agent_steps };
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	struct fal_buf out = { 0 };
	char key[16];
	const uint32_t process = w->m->again > 0 ? w->m->again - 1 : w->index;
	const uint32_t owner = w->m->key > 0 ? w->m->key - 1 : process;
	struct fal_coord_who who = { .key = key, .fingerprint = key, .place = owner };
	c->seen[SEEN_REJOIN] += process != w->index;
	snprintf(key, sizeof(key), "k%u", owner);
	ok(c, fal_coord_open(c->coord, w->index + 1, &who), "open");
	w->agent = fal_agent_new(&conf, &ops);
	assert(w->agent != NULL);
	w->here = true;
	m.hello.major = FAL_PROTO_MAJOR;
	snprintf(m.hello.name, sizeof(m.hello.name), "w%u", process);
	m.hello.lanes_min = w->m->lanes_min;
	m.hello.lanes_max = w->m->lanes_max;
	m.hello.cores = w->m->cores;
	memcpy(m.hello.instance, &process, sizeof(process));
	ok(c, fal_msg_put(&out, &m), "HELLO");
	agent_send(w, &out, false);
	fal_buf_clear(&out);
	m = (struct fal_msg){ .type = FAL_MSG_READY };
	if (c->p->probes && w->m->hang == HANG_PRETEND)
		m.ready.task_ns = UINT64_C(86400000000000); /* a day */
	else if (c->p->probes) {
		m.ready.task_ns = (uint64_t)(w->m->task_s * 1e9);
		m.ready.large = 8 * c->p->toy.task;
		m.ready.large_ns =
			(uint64_t)(w->m->task_s * 1e9 * fal_bound_longer(w->m->fixed, 8));
	}
	ok(c, fal_msg_put(&out, &m), "READY");
	agent_send(w, &out, false);
	fal_buf_free(&out);
}

/* A flaky machine gets every 7th task wrong the first time it sees it. */
static bool
goes_wrong(struct worker *w, const struct fal_run *run)
{
	if (!w->m->flaky || run->eval || run->task % 7 != 3)
		return false;
	bool *shown = &w->shown[run->clock * w->c->p->toy.batch + run->task];
	bool first = !*shown;
	*shown = true;
	return first;
}

static void
lane_over(struct cluster *c, struct worker *w, const struct event *e)
{
	struct lane *l = &w->lane[e->lane];
	bool stuck = w->m->hang == HANG_STOP || w->m->hang == HANG_PRETEND;
	c->seen[SEEN_HANG] += stuck && hangs(w);
	if (!l->busy || l->run != e->run || (stuck && hangs(w)))
		return;
	struct fal_ran ran = { .cancelled = l->cancelled };
	const struct fal_run *run = &l->what;
	ran.task_ns = (uint64_t)((c->now - l->began) * 1e9);
	ran.loss = toy_loss(&c->p->toy, run->clock, run->task);
	ran.samples = run->eval ? eval_samples(c->p, run->task)
				: toy_task_samples(&c->p->toy, run->clock, run->task);
	ran.nonfinite = goes_wrong(w, run);
	c->seen[SEEN_NONFINITE] += ran.nonfinite;
	if (!run->eval && !l->cancelled) {
		toy_grad(&c->p->toy, run->params, run->clock, run->task, c->grad);
		if (ran.nonfinite)
			c->grad[0] = NAN;
		int err = fal_sum_quantise(run->sum, c->grad, run->exps, run->room, NULL);
		assert((err == FAL_ENONFINITE) == ran.nonfinite);
	}
	l->busy = false;
	w->steps += STEPS;
	ok(c, fal_agent_finished(w->agent, ns(c), e->lane, &ran), "agent: finished");
}

/* --- events ----------------------------------------------------------------------- */

static void
deliver_to_coord(struct cluster *c, uint32_t index, const struct fal_buf *b)
{
	struct fal_msg m;
	struct fal_diag diag = { "" };
	int err = fal_msg_get(b->p, b->n, &m);
	if (err == FAL_OK)
		note_heard(c, index + 1, &m);
	if (err == FAL_OK)
		err = fal_coord_msg(c->coord, c->now, index + 1, &m, &diag);
	if (err < 0 && c->worker[index].m->lie != HONEST) {
		c->refused++;
		c->worker[index].over = true;
		kill_worker(c, &c->worker[index]);
		err = fal_coord_gone(c->coord, c->now, index + 1, diag.text);
	}
	if (err < 0 && c->failure == NULL) {
		fprintf(stderr, "sim: the coordinator refuses w%u's %s: %s (%s)\n", index,
			fal_msg_name(m.type), diag.text, fal_strerror(err));
		c->failure = "the coordinator refuses an honest worker";
	}
}

/* Claims a task that its first grant has not. */
static void
claim_more(struct worker *w, const struct fal_msg *grant)
{
	struct fal_msg m = { .type = FAL_MSG_CLAIM };
	struct fal_buf out = { 0 };
	if (w->lied || grant->grant.first + grant->grant.count >=
			       grant->grant.from + grant->grant.of)
		return;
	w->lied = true;
	w->c->lies++;
	m.claim.round = grant->grant.round;
	m.claim.task = grant->grant.first + grant->grant.count;
	m.claim.seq = UINT32_MAX;
	ok(w->c, fal_msg_put(&out, &m), "CLAIM");
	agent_send(w, &out, false);
	fal_buf_free(&out);
}

static void
deliver_to_worker(struct cluster *c, struct worker *w, const struct fal_buf *b)
{
	struct fal_msg m;
	int err = fal_msg_get(b->p, b->n, &m);
	if (err == FAL_OK && m.type == FAL_MSG_GRANT && w->m->lie == LIE_CLAIM)
		claim_more(w, &m);
	if (err == FAL_OK && (m.type == FAL_MSG_DONE || m.type == FAL_MSG_REFUSE))
		return;
	c->seen[SEEN_FENCE_IN_PUSH] +=
		err == FAL_OK && m.type == FAL_MSG_FENCE && w->under_way > 0;
	if (err == FAL_OK && m.type != FAL_MSG_WELCOME)
		err = fal_agent_msg(w->agent, ns(c), &m);
	if (err < 0 && c->failure == NULL) {
		fprintf(stderr, "sim: w%u refuses %s: %s\n", w->index,
			fal_msg_name(m.type), fal_strerror(err));
		c->failure = "a worker refuses the coordinator";
	}
}

/* A frozen machine does nothing until it thaws; then everything happens in order. */
static bool
frozen(struct cluster *c, const struct worker *w, struct event *e)
{
	double thaw = w->m->stall_at + w->m->stall_s;
	bool own = e->kind == TO_WORKER || e->kind == LANE || e->kind == LEAVE ||
		   e->kind == TAKEN;
	if (!own || c->now < w->m->stall_at || c->now >= thaw)
		return false;
	e->t = thaw;
	push_event(c, *e);
	return true;
}

/* An order that comes too late, or while another one waits, is refused. */
static void
order(struct cluster *c, const struct order *o)
{
	struct fal_policy p = { 0 };
	struct fal_diag diag;
	if (o->scheme == NULL) {
		struct event e = { .kind = RESUME, .t = c->now + o->pause_s };
		push_event(c, e);
		ok(c, fal_coord_hold(c->coord, c->now, true, "control"), "pause");
		return;
	}
	ok(c, fal_rule_parse(o->scheme, &p.rule, &diag), "scheme");
	int err = fal_coord_policy(c->coord, c->now, &p, "control", 1, &diag);
	ok(c, err == FAL_ESTATE ? FAL_OK : err, "policy");
}

/* What `w` has to push, as far as its link takes it. */
static void
push_more(struct cluster *c, struct worker *w)
{
	int got = 1;
	while (got > 0 && w->here && w->under_way < w->m->window)
		got = fal_agent_more(w->agent);
	ok(c, got, "agent: more");
}

/* Does another worker run a task that `w` runs, too? */
static bool
runs_clone(const struct cluster *c, const struct worker *w)
{
	for (uint32_t i = 0; i < c->p->machines * 8; i++) {
		const struct worker *o = &c->worker[i / 8];
		const struct lane *l = &o->lane[i % 8];
		if (o == w || !o->here || !l->busy || l->cancelled || l->what.eval)
			continue;
		for (uint32_t k = 0; k < 8; k++)
			if (w->lane[k].busy && !w->lane[k].cancelled &&
			    !w->lane[k].what.eval &&
			    w->lane[k].what.round == l->what.round &&
			    w->lane[k].what.task == l->what.task)
				return true;
	}
	return false;
}

static void
handle(struct cluster *c, struct event *e)
{
	struct worker *w = &c->worker[e->worker];
	struct event reset = { .kind = RESET, .worker = e->worker };
	if (frozen(c, w, e))
		return;
	switch (e->kind) {
	case TO_COORD:
		if (!w->over)
			deliver_to_coord(c, e->worker, &e->msg);
		break;
	case TO_WORKER:
		if (w->here)
			deliver_to_worker(c, w, &e->msg);
		break;
	case LANE:
		if (w->here)
			lane_over(c, w, e);
		break;
	case JOIN:
		join(c, w);
		break;
	case CRASH:
		if (!w->here)
			break;
		c->seen[SEEN_CRASH_IN_PUSH] += w->under_way > 0;
		kill_worker(c, w);
		reset.t = fmax(fmax(w->up_ctl, w->up_bulk), c->now);
		/* Under `require` there may be nobody else to do its work: the job waits
		 * for the network to find out. */
		if (w->m->silent)
			reset.t += found_out_s;
		if (!w->m->silent || c->p->require)
			push_event(c, reset);
		break;
	case ORDER:
		order(c, &c->p->order[e->lane]);
		break;
	case RESUME:
		ok(c, fal_coord_hold(c->coord, c->now, false, "control"), "resume");
		break;
	case RESET:
		w->over = true;
		ok(c, fal_coord_gone(c->coord, c->now, e->worker + 1, "reset"), "gone");
		break;
	case LEAVE:
		if (!w->here)
			break;
		c->seen[SEEN_DRAIN_IN_CLONE] += runs_clone(c, w);
		ok(c, fal_agent_leave(w->agent, ns(c), "SIGTERM"), "leave");
		break;
	case TAKEN:
		if (w->here && --w->under_way == 0)
			fal_agent_flushed(w->agent, ns(c));
		break;
	}
	push_more(c, w);
	fal_buf_free(&e->msg);
}

/* A crash cuts what is still on its way from the worker, at any message. */
static bool
lost_in_crash(const struct cluster *c, const struct event *e)
{
	const struct worker *w = &c->worker[e->worker];
	return e->kind == TO_COORD && w->dead && w->m->silent;
}

/* In a plan of nothing but machines that hang every clock keeps its bound. */
static void
watch(struct cluster *c, const struct fal_coord_status *s)
{
	double honest = c->p->machine[c->p->machines - 1].join_at;
	if (!c->p->hung)
		return;
	if (s->clock != c->clock) {
		c->clock = s->clock;
		c->clock_at = c->now;
	}
	double took = c->now - fmax(c->clock_at, honest);
	c->longest = fmax(c->longest, took / bound_s(c->p));
	if (c->longest > 1)
		c->failure = "no progress: a clock is beyond its bound";
}

static void
loop(struct cluster *c)
{
	const double too_long = 3600; /* virtual seconds */
	const uint64_t too_many = 4000000;
	while (c->failure == NULL) {
		struct fal_coord_status s = fal_coord_status(c->coord);
		watch(c, &s);
		if (s.done || s.failed)
			return;
		double wake = fal_coord_wake(c->coord);
		double next = c->n > 0 ? c->heap[0].t : INFINITY;
		if (wake == INFINITY && next == INFINITY) {
			c->failure = "no progress: nothing is going to happen";
			return;
		}
		c->events++;
		if (wake <= next) {
			c->now = fmax(c->now, wake);
			ok(c, fal_coord_tick(c->coord, c->now), "tick");
		} else {
			struct event e = pop_event(c);
			c->now = fmax(c->now, e.t);
			if (lost_in_crash(c, &e))
				fal_buf_free(&e.msg);
			else
				handle(c, &e);
		}
		if (c->now > too_long || c->events > too_many)
			c->failure = "no progress: the job takes for ever";
	}
}

/* All is over: when everybody has heard what was said, nobody is at a task any more, but
 * for witnesses, whom nobody calls off, and for who said that it had left. */
static void
settle(struct cluster *c)
{
	while (c->n > 0 && c->failure == NULL) {
		struct event e = pop_event(c);
		struct worker *w = &c->worker[e.worker];
		c->now = fmax(c->now, e.t);
		if (frozen(c, w, &e))
			continue;
		if (e.kind == TO_WORKER && w->here)
			deliver_to_worker(c, w, &e.msg);
		fal_buf_free(&e.msg);
	}
	for (uint32_t i = 0; i < c->p->machines * 8 && c->failure == NULL; i++) {
		const struct worker *w = &c->worker[i / 8];
		const struct lane *l = &w->lane[i % 8];
		if (!c->asked && w->here && w->m->lie != LIE_LEAVE && l->busy &&
		    !l->cancelled && !l->what.eval)
			c->failure = "a worker is at a task that is over";
	}
}

static void
start(struct cluster *c)
{
	const struct plan *p = c->p;
	struct fal_policy policy = { 0 };
	struct fal_coord_ops ops = { .arg = c,
				     .send = coord_send,
				     .model = coord_model,
				     .close = coord_close,
				     .trace = coord_trace };
	struct fal_coord_conf conf = { .name = "sim",
				       .hash = "00",
				       .policy = &policy,
				       .policy_by = "job",
				       .seed = p->toy.seed,
				       .grid = { .samples = p->toy.samples,
						 .batch = p->toy.batch,
						 .task = p->toy.task,
						 .epochs = p->toy.epochs,
						 .parts = p->parts },
				       .test_samples = p->test_samples,
				       .eval_every = p->eval_every,
				       .params = p->toy.n,
				       .optim = p->toy.optim,
				       .audit_sums = p->audit_sums,
				       .numerics = p->require ? FAL_NUMERICS_REQUIRE
							      : FAL_NUMERICS_FAST,
				       .lanes_start = p->lanes_start,
				       .min_workers = p->min_workers };
	ok(c, fal_rule_parse(p->scheme, &policy.rule, NULL), "scheme");
	conf.schedule.lr = (double)p->toy.lr;
	float *init = fal_calloc_aligned(p->toy.n, sizeof(*init));
	c->grad = fal_calloc_aligned(p->toy.n, sizeof(*c->grad));
	assert(init != NULL && c->grad != NULL);
	toy_init(&p->toy, init);
	ok(c, fal_coord_new(&conf, &ops, init, 0, &c->coord), "coordinator");
	free(init);
	for (uint32_t i = 0; i < p->orders; i++)
		push_event(c, (struct event){
				      .kind = ORDER, .lane = i, .t = p->order[i].at });
	for (uint32_t i = 0; i < p->machines; i++) {
		const struct machine *m = &p->machine[i];
		c->worker[i].c = c;
		c->worker[i].m = m;
		c->worker[i].index = i;
		c->worker[i].shown =
			fal_calloc((size_t)toy_clocks(&p->toy) * p->toy.batch,
				   sizeof(bool));
		assert(c->worker[i].shown != NULL && m->lanes_max <= 8);
		push_event(c,
			   (struct event){ .kind = JOIN, .worker = i, .t = m->join_at });
		if (m->crash_at < INFINITY)
			push_event(c, (struct event){ .kind = CRASH,
						      .worker = i,
						      .t = m->crash_at });
		if (m->leave_at < INFINITY)
			push_event(c, (struct event){ .kind = LEAVE,
						      .worker = i,
						      .t = m->leave_at });
	}
}

struct outcome
cluster_run(const struct plan *p, uint64_t salt)
{
	struct cluster c = { .p = p, .rng = fal_rng_init(salt, FAL_RNG_TEST, 2) };
	struct outcome out = { 0 };
	start(&c);
	loop(&c);
	out.status = fal_coord_status(c.coord);
	out.seconds = c.now;
	if (out.status.failed && c.failure == NULL)
		c.failure = "the job stopped";
	fal_coord_finish(c.coord, c.now, "00", NULL);
	if (out.status.done)
		settle(&c);
	out.failure = c.failure;
	out.events = c.events;
	out.lies = c.lies;
	out.refused = c.refused;
	memcpy(out.seen, c.seen, sizeof(out.seen));
	out.longest = c.longest;
	out.params = fal_calloc_aligned(p->toy.n, sizeof(float));
	assert(out.params != NULL);
	memcpy(out.params, fal_store_params(fal_coord_store(c.coord)),
	       p->toy.n * sizeof(float));
	out.trace = (char *)c.trace.p;
	out.trace_n = c.trace.n;
	while (c.n > 0) {
		struct event e = pop_event(&c);
		fal_buf_free(&e.msg);
	}
	for (uint32_t i = 0; i < p->machines; i++) {
		fal_agent_free(c.worker[i].agent);
		free(c.worker[i].shown);
	}
	fal_coord_free(c.coord);
	free(c.fences.v);
	free(c.grad);
	free(c.heap);
	return out;
}
