/* Events in virtual time. */
#include "bound.h"
#include "cluster_priv.h"
#include "flips.h"
#include "lies.h"
#include "worker_halves.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
cluster_ok(struct cluster *c, int err, const char *what)
{
	if (err < 0 && c->failure == NULL)
		c->failure = what;
}

static bool
earlier(const struct event *a, const struct event *b)
{
	return a->t < b->t || (a->t == b->t && a->order < b->order);
}

void
cluster_push(struct cluster *whose, struct event e)
{
	struct cluster *c = whose->root;
	e.of = whose;
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

struct fal_buf
cluster_copy(const struct fal_buf *msg)
{
	struct fal_buf b = { 0 };
	fal_put_bytes(&b, msg->p, msg->n);
	assert(b.err == 0);
	return b;
}

uint64_t
cluster_ns(const struct cluster *c)
{
	return (uint64_t)(c->now * 1e9) + 1;
}

/* When a message that leaves now arrives: in order within its queue, a bulk one never
 * before the control sent ahead of it, after the link's delay, after a cut is over. */
double
cluster_arrival(struct cluster *c, const struct machine *m, size_t n, double *last,
		double other)
{
	double t = c->now + m->latency * (0.5 + (double)fal_rng_unit(&c->rng)) +
		   (double)n * m->per_byte;
	if (t >= m->cut_at && t < m->cut_at + m->cut_s)
		t = m->cut_at + m->cut_s + m->latency;
	t = fmax(t, fmax(*last, other));
	*last = t;
	return t;
}

void
cluster_key(const struct cluster *c, uint32_t owner, char out[static 24])
{
	if (c->up == NULL)
		snprintf(out, 24, "k%u", owner);
	else
		snprintf(out, 24, "k%u.%u", c->up->index, owner);
}

void
cluster_kill(struct worker *w)
{
	w->dead = true;
	w->here = false;
	levels_kill(w);
	fal_agent_free(w->agent);
	w->agent = NULL;
}

/* --- events ----------------------------------------------------------------------- */

static void
deliver_to_coord(struct cluster *c, uint32_t index, const struct fal_buf *b)
{
	struct fal_msg m;
	struct fal_diag diag = { "" };
	int err = fal_msg_get(b->p, b->n, &m);
	const bool push = err == FAL_OK && m.type == FAL_MSG_PUSH;
	if (err == FAL_OK)
		ops_heard(c, index + 1, &m);
	if (push)
		intime_push(c, index, &m, 0, fal_blocks(c->p->toy.n));
	if (err == FAL_OK)
		err = fal_coord_msg(c->coord, c->now, index + 1, &m, &diag);
	if (push)
		intime_pushed(c);
	c->worker[index].ready |= err == FAL_OK && m.type == FAL_MSG_READY;
	/* Of a key that was charged nobody comes in. */
	const bool charged = err == FAL_EPERM && plan_flips(c->p, index);
	const bool forged = c->worker[index].m->lie != HONEST ||
			    (machine_lies(c->worker[index].m) && err != FAL_ESTATE);
	if (err < 0 && (charged || forged)) {
		c->root->refused++;
		c->worker[index].over = true;
		cluster_kill(&c->worker[index]);
		err = fal_coord_session_end(c->coord, c->now, index + 1, diag.text);
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
	w->c->root->lies++;
	m.claim.round = grant->grant.round;
	m.claim.task = grant->grant.first + grant->grant.count;
	m.claim.seq = UINT32_MAX;
	fal_msg_put(&out, &m);
	worker_send(w, &out, false);
	fal_buf_free(&out);
}

/* A message of a version has arrived, from the coordinator or a shard, in any order: when
 * all have, and no newer one was told, the version is there. */
static void
note_version(struct cluster *c, struct worker *w, uint64_t order, const struct fal_msg *m)
{
	c->seen[SEEN_EARLY_PUBLISHED] +=
		m->type == FAL_MSG_PUBLISHED && m->published.order > w->heard;
	if (m->type == FAL_MSG_MODEL)
		w->told.v[order - 1].left -= m->model.blocks;
	w->heard += m->type == FAL_MSG_VERSION;
	const struct told *last = w->heard > 0 ? &w->told.v[w->heard - 1] : NULL;
	if (last != NULL && last->left == 0 &&
	    !fal_agent_has_version(w->agent, last->version) && c->failure == NULL)
		c->failure = "a version that has come is not there";
}

static void
deliver_to_worker(struct cluster *c, struct worker *w, const struct event *e)
{
	struct fal_msg m;
	int err = fal_msg_get(e->msg.p, e->msg.n, &m);
	if (err == FAL_OK && m.type == FAL_MSG_GRANT && w->m->lie == LIE_CLAIM)
		claim_more(w, &m);
	if (err == FAL_OK && (m.type == FAL_MSG_DONE || m.type == FAL_MSG_REFUSE))
		return;
	if (err == FAL_OK && m.type == FAL_MSG_VERSION) {
		c->seen[SEEN_FETCHED] += m.version.version < w->oldest;
		w->oldest = m.version.oldest;
	}
	c->seen[SEEN_FENCE_IN_PUSH] +=
		err == FAL_OK && m.type == FAL_MSG_FENCE && w->under_way > 0;
	if (err == FAL_OK && m.type != FAL_MSG_WELCOME)
		err = fal_agent_msg(w->agent, cluster_ns(c), &m);
	if (err == FAL_OK && c->p->apart)
		note_version(c, w, e->seq, &m);
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
	if ((e->kind == TO_COORD || e->kind == RESET) && levels_thaw(c) > c->now) {
		e->t = levels_thaw(c);
		cluster_push(c, *e);
		return true;
	}
	bool own = e->kind == TO_WORKER || e->kind == LANE || e->kind == LEAVE ||
		   e->kind == TAKEN;
	if (!own || c->now < w->m->stall_at || c->now >= thaw)
		return false;
	e->t = thaw;
	cluster_push(c, *e);
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
		cluster_push(c, e);
		cluster_ok(c, fal_coord_pause(c->coord, c->now, true, "control"),
			   "pause");
		return;
	}
	cluster_ok(c, fal_rule_parse(o->scheme, &p.rule, &diag), "scheme");
	int err = fal_coord_set_policy(c->coord, c->now, &p, "control", 1, &diag);
	cluster_ok(c, err == FAL_ESTATE ? FAL_OK : err, "policy");
}

/* What `w` has to push, as far as its link takes it. */
static void
push_more(struct cluster *c, struct worker *w)
{
	while (w->here && w->under_way < w->m->window && fal_agent_send_next(w->agent))
		;
	const uint32_t most = w->m->sums + w->m->versions;
	if (w->here && w->m->sums > 0 && !w->grown && worker_halves(w->agent) > most)
		cluster_ok(c, FAL_ELIMIT, "agent: more memory than it may have");
	c->seen[SEEN_SUMS] += w->here && worker_halves(w->agent) == most;
	c->seen[SEEN_GROWN] += w->here && w->grown;
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
	if (frozen(c, w, e) || fleet_stalls(c, e))
		return;
	switch (e->kind) {
	case TO_SHARDS:
		if (e->session == c->incarnation)
			fleet_push(c, e->worker, e->lane, &e->msg);
		else
			restart_refuse(c, e);
		break;
	case AT_SHARD:
	case AT_COORD:
	case PUSHED:
	case LINK_LOST:
	case LINK_BACK:
	case SHARD_DIES:
		if (e->kind != PUSHED || e->session == c->incarnation)
			fleet_handle(c, e);
		else
			restart_refuse(c, e);
		fleet_unpush(e);
		break;
	case MARKED:
	case RESTART:
		restart_handle(c, e);
		break;
	case MOVE:
		moves_begin(c, e);
		break;
	case TO_COORD:
		if (e->session != c->incarnation)
			restart_refuse(c, e);
		else if (!w->over)
			deliver_to_coord(c, e->worker, &e->msg);
		break;
	case TO_WORKER:
		if (w->here && e->session == w->session)
			deliver_to_worker(c, w, e);
		break;
	case LANE:
		if (w->here)
			worker_lane_over(c, w, e);
		break;
	case JOIN:
		if (e->session == 0)
			worker_join(c, w);
		else
			restart_back(c, w);
		break;
	case CRASH:
		if (!w->here)
			break;
		c->seen[SEEN_CRASH_IN_PUSH] += w->under_way > 0;
		c->seen[SEEN_CRASH_APART] += fleet_apart(c);
		c->seen[SEEN_HALF_CRASH] += made_half(c);
		c->seen[SEEN_EARLY_CRASH] += early_any(c);
		cluster_kill(w);
		reset.t = fmax(fmax(w->up_ctl, w->up_bulk), c->now);
		if (!w->m->silent)
			cluster_push(c, reset);
		break;
	case ORDER:
		order(c, &c->p->order[e->lane]);
		break;
	case RESUME:
		cluster_ok(c, fal_coord_pause(c->coord, c->now, false, "control"),
			   "resume");
		break;
	case RESET:
		w->over = true;
		cluster_ok(c,
			   fal_coord_session_end(c->coord, c->now, e->worker + 1,
						 "reset"),
			   "gone");
		break;
	case LEAVE:
		if (!w->here)
			break;
		c->seen[SEEN_DRAIN_IN_CLONE] += runs_clone(c, w);
		if (w->below != NULL && !w->below->ready) { /* nobody knows it yet */
			levels_close(w);
			break;
		}
		w->leaving = true;
		fal_agent_leave(w->agent, cluster_ns(c), "SIGTERM");
		break;
	case TAKEN:
		if (w->here && e->session == w->session && --w->under_way == 0)
			fal_agent_flushed(w->agent, cluster_ns(c));
		break;
	}
	if (w->m->group == NULL)
		push_more(c, w);
	ops_publish(c);
	fal_buf_free(&e->msg);
}

static void
drop_event(struct event *e)
{
	fal_buf_free(&e->msg);
	fleet_unpush(e);
}

/* A crash cuts what is still on its way from the worker, at any message. */
static bool
lost_in_crash(const struct cluster *c, const struct event *e)
{
	const struct worker *w = &c->worker[e->worker];
	const bool its = e->kind == TO_COORD || e->kind == TO_SHARDS || e->kind == PUSHED;
	return its && w->dead && w->m->silent;
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

/* The coordinator wakes up: in a second as often as it may be, no more. */
static void
wake_up(struct cluster *c)
{
	if (c->now >= c->second + 1) {
		c->second = floor(c->now);
		c->woke = c->came = 0;
	}
	if (c->up == NULL)
		c->busiest = fmax(c->busiest, ++c->woke / bound_wakes(c->p, c->came));
	if (c->p->hung && c->busiest > 1)
		c->failure = "the coordinator wakes up without need";
	cluster_ok(c, fal_coord_tick(c->coord, c->now), "tick");
	ops_publish(c);
}

static void
loop(struct cluster *c)
{
	const double too_long = 3600; /* virtual seconds */
	const uint64_t too_many = 4000000;
	while (c->failure == NULL) {
		struct fal_coord_status s = fal_coord_status(c->coord);
		watch(c, &s);
		told_watch(c, &s);
		restart_watch(c, &s);
		moves_watch(c, &s);
		moves_balance(c);
		if (s.done || s.failed)
			return;
		struct cluster *of;
		double wake = levels_wake(c, &of);
		double next = c->n > 0 ? c->heap[0].t : INFINITY;
		if (wake == INFINITY && next == INFINITY) {
			c->failure = "no progress: nothing is going to happen";
			return;
		}
		c->events++;
		levels_time(c, fmax(c->now, fmin(wake, next)));
		if (wake <= next) {
			wake_up(of);
		} else {
			struct event e = pop_event(c);
			c->came += e.of == c;
			if (e.of->gone || lost_in_crash(e.of, &e))
				drop_event(&e);
			else
				handle(e.of, &e);
		}
		made_watch(c);
		levels_work(c);
		if (c->now > too_long || c->events > too_many)
			c->failure = "no progress: the job takes for ever";
	}
}

/* When everybody has heard what was said nobody is at a task any more, but for
 * checks, which nobody calls off, those of a group server above, too, and for who
 * said that it had left, or claimed what it had yet to be given. */
static void
judge_idle(struct cluster *c)
{
	for (uint32_t i = 0; i < c->p->machines * 8 && c->root->failure == NULL; i++) {
		const struct worker *w = &c->worker[i / 8];
		const struct lane *l = &w->lane[i % 8];
		const bool said = w->m->lie == LIE_LEAVE || w->m->lie == LIE_CLAIM;
		if (w->here && w->session == c->incarnation && !said && l->busy &&
		    !l->cancelled && !l->what.eval && !flips_is_asked(w, &l->what))
			c->root->failure = "a worker is at a task that is over";
	}
}

/* All is over. */
static void
settle(struct cluster *c)
{
	while (c->n > 0 && c->failure == NULL) {
		struct event e = pop_event(c);
		struct worker *w = &e.of->worker[e.worker];
		levels_time(c, fmax(c->now, e.t));
		if (!e.of->gone && frozen(e.of, w, &e))
			continue;
		if (!e.of->gone && e.kind == TO_WORKER && w->here &&
		    e.session == w->session)
			deliver_to_worker(e.of, w, &e);
		drop_event(&e);
		levels_work(c);
	}
	judge_idle(c);
	for (size_t i = 0; i < c->group_of.n; i++)
		if (!c->group_of.v[i]->gone && !levels_stale(c->group_of.v[i]))
			judge_idle(c->group_of.v[i]);
}

/* A machine begins, and what is to happen to it will, unless that is over. */
static void
begin(struct cluster *c, uint32_t i)
{
	const struct machine *m = &c->p->machine[i];
	c->worker[i].c = c;
	c->worker[i].m = m;
	c->worker[i].index = i;
	c->worker[i].shown = fal_calloc((size_t)toy_clocks(&c->p->toy) * c->p->toy.batch,
					sizeof(bool));
	assert(c->worker[i].shown != NULL && m->lanes_max <= 8);
	if (fmin(m->crash_at, m->leave_at) < c->now)
		return;
	cluster_push(c, (struct event){ .kind = JOIN,
					.worker = i,
					.t = c->up == NULL ? m->join_at
							   : fmax(m->join_at,
								  c->now + m->latency) });
	if (m->crash_at < INFINITY)
		cluster_push(c, (struct event){
					.kind = CRASH, .worker = i, .t = m->crash_at });
	if (m->leave_at < INFINITY)
		cluster_push(c, (struct event){
					.kind = LEAVE, .worker = i, .t = m->leave_at });
}

void
cluster_begin(struct cluster *c)
{
	const struct plan *p = c->p;
	c->grad = fal_calloc_aligned(p->toy.n, sizeof(*c->grad));
	assert(c->grad != NULL);
	early_begin(c);
	ops_begin(c, &(struct disk_found){ 0 }, NULL);
	if (c->up == NULL)
		restart_begin(c);
	if (p->apart)
		fleet_begin(c);
	for (uint32_t i = 0; i < p->orders; i++)
		cluster_push(c, (struct event){
					.kind = ORDER, .lane = i, .t = p->order[i].at });
	for (uint32_t i = 0; i < p->machines; i++)
		begin(c, i);
}

void
cluster_free(struct cluster *c)
{
	for (uint32_t i = 0; i < c->p->machines; i++) {
		fal_agent_free(c->worker[i].agent);
		free(c->worker[i].shown);
		free(c->worker[i].told.v);
		free(c->worker[i].has.v);
	}
	racked_free(&c->shards);
	made_end(c);
	early_end(c);
	free(c->fences.v);
	free(c->shut.v);
	free(c->called_off.v);
	free(c->asks.v);
	free(c->waits.v);
	free(c->grad);
	free(c->heap);
}

struct outcome
cluster_run(const struct plan *p, uint64_t salt)
{
	struct cluster c = { .p = p, .rng = fal_rng_init(salt, FAL_RNG_TEST, 2) };
	struct outcome out = { 0 };
	c.root = &c;
	cluster_begin(&c);
	loop(&c);
	out.status = fal_coord_status(c.coord);
	out.seconds = c.now;
	if (p->apart)
		fleet_take(&c);
	racked_finish(&c.shards, c.now, NULL);
	if (out.status.failed && c.failure == NULL &&
	    !lies_end(p, (char *)c.trace.p, c.trace.n))
		c.failure = "the job stopped";
	if (out.status.done)
		restart_judge(&c);
	if (out.status.done)
		settle(&c);
	levels_finish(&c, &out);
	while (c.n > 0) {
		struct event e = pop_event(&c);
		drop_event(&e);
	}
	levels_end(&c);
	out.failure = c.failure;
	out.events = c.events;
	out.lies = c.lies;
	out.beyond = c.beyond;
	out.refused = c.refused;
	out.flips = c.flips;
	memcpy(out.seen, c.seen, sizeof(out.seen));
	out.longest = c.longest;
	out.busiest = p->hung ? c.busiest : 0;
	out.params = fal_calloc_aligned(p->toy.n, sizeof(float));
	assert(out.params != NULL);
	const float *params =
		fal_shard_set_params(c.shards.shard_set, out.status.version);
	if (params != NULL)
		memcpy(out.params, params, p->toy.n * sizeof(float));
	else if (c.failure == NULL)
		out.failure = "the last version is not there";
	out.trace = (char *)c.trace.p;
	out.trace_n = c.trace.n;
	fleet_end(&c);
	restart_end(&c);
	cluster_free(&c);
	return out;
}
