/* The coordinator: a job's beginning, its clocks and its end; what the scheduler decides
 * becomes messages and orders. */
#include "server/coord_priv.h"

#include "base/build.h"
#include "base/mem.h"
#include "base/sorted.h"
#include "crypto/secret.h"
#include "sched/bound.h"
#include "sched/policy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what is sent ---------------------------------------------------------------- */

void
coord_trace(struct fal_coord *c)
{
	if (c->line.err != 0)
		return;
	c->ops.trace(coord_call(c), (const char *)c->line.p, c->line.n);
	coord_called(c);
}

void
coord_put(struct fal_coord *c, double t, enum fal_event ev, const void *line)
{
	fal_trace_put(&c->line, t, ev, line);
	coord_trace(c);
}

uint32_t
coord_place(const struct fal_coord *c, uint32_t id)
{
	return (uint32_t)fal_sorted_place(c->peer, c->peers, sizeof(*c->peer), id);
}

struct fal_peer *
coord_find(const struct fal_coord *c, uint32_t id)
{
	uint32_t at = coord_place(c, id);
	return at < c->peers && c->peer[at].id == id ? &c->peer[at] : NULL;
}

uint32_t
coord_session_of(const struct fal_coord *c, uint32_t id)
{
	return id > 0 && id <= c->workers ? c->known[id - 1].session : 0;
}

void
coord_send(struct fal_coord *c, uint32_t peer, struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	if (peer == 0)
		return;
	m->incarnation = c->conf.tickets.incarnation;
	fal_msg_put(&out, m);
	c->ops.send(coord_call(c), peer, &out);
	coord_called(c);
	fal_buf_free(&out);
}

void
coord_expect(struct fal_coord *c, int err)
{
	c->err = c->err == 0 && err < 0 ? err : c->err;
}

void
coord_order(struct fal_coord *c, const struct fal_shard_order *o)
{
	if (c->err < 0)
		return;
	coord_call(c);
	const int err = c->ops.shards.order(c->ops.shards.arg, o);
	coord_called(c);
	coord_expect(c, err);
}

static void
send_away(struct fal_coord *c, double now, uint32_t peer, enum fal_msg_type type,
	  const char *why)
{
	struct fal_msg m = { .type = (uint16_t)type };
	snprintf(m.refuse.why, sizeof(m.refuse.why), "%s", why);
	if (peer == 0)
		return;
	struct fal_peer *p = coord_find(c, peer);
	if (p != NULL)
		p->parted = true;
	coord_send(c, peer, &m);
	(void)fal_coord_gone(c, now, peer, why);
	c->ops.close(coord_call(c), peer, why);
	coord_called(c);
}

void
coord_refuse(struct fal_coord *c, double now, uint32_t peer, const char *why)
{
	send_away(c, now, peer, FAL_MSG_REFUSE, why);
}

void
coord_later(struct fal_coord *c, double now, uint32_t peer, const char *why)
{
	send_away(c, now, peer, FAL_MSG_LATER, why);
}

void
coord_ping(struct fal_coord *c, double now, uint32_t peer)
{
	struct fal_msg m = { .type = FAL_MSG_PING };
	m.ping.stamp = (uint64_t)((now - c->start) * 1e9);
	coord_send(c, peer, &m);
}

/* ---- the job --------------------------------------------------------------------- */

/* An evaluation must be over so many clocks after its version (design.md, I17). */
enum { EVAL_CLOCKS = 5 };

static void
trace_job(struct fal_coord *c, const struct fal_coord_conf *conf)
{
	static const char *const numerics[] = { "fast", "portable", "require" };
	const struct fal_grid *g = &conf->grid;
	const struct fal_optim *o = &conf->optim;
	const struct fal_line_above *above = conf->above;
	const bool fast = o->kind == FAL_MOMENTUM || o->kind == FAL_NESTEROV;
	struct fal_buf rule = { 0 };
	char seed[24]; /* a string: JSON readers lose integers above 2^53 */
	snprintf(seed, sizeof(seed), "%" PRIu64, conf->seed);
	fal_rule_put(&conf->policy->rule, &rule);
	fal_put_u8(&rule, '\0');
	const struct fal_ev_job line = {
		.name = conf->name,
		.hash = conf->hash,
		.model = conf->model_hash,
		.data = conf->data_hash,
		.from = conf->from,
		.seed = seed,
		.epochs = g->epochs,
		.batch = g->batch,
		.task = g->task,
		.tail = g->tail,
		.tail_task = g->tail > 0 ? g->tail_task : 0,
		.parts = g->parts > 1 ? g->parts : 0,
		.samples = g->samples,
		.test = conf->test_samples,
		.params = conf->params,
		.blocks = fal_blocks(conf->params),
		.shards = c->conf.shards,
		.clocks_per_epoch = fal_grid_epoch_clocks(g),
		.clocks = fal_grid_clocks(g),
		.scheme = rule.err == 0 ? (const char *)rule.p : "",
		.audit = conf->audit_sums ? FAL_AUDIT_SUMS : FAL_AUDIT_CLAIMS,
		.hashes = c->conf.hashes,
		.numerics = numerics[conf->numerics],
		.nonfinite = c->conf.skips,
		.optimizer = fal_optim_name(o->kind),
		.momentum = fast ? (double)o->momentum : 0,
		.momentum_per = fast && o->one_momentum,
		.beta1 = o->kind == FAL_ADAMW ? o->beta1 : (double)NAN,
		.incarnation = conf->tickets.incarnation,
		.above = above != NULL ? above->address : NULL,
		.key = above != NULL ? above->key : NULL,
		.key_fingerprint = above != NULL ? above->key_fingerprint : NULL,
		.version = fal_build(),
	};
	fal_trace_put(&c->line, 0, FAL_EV_JOB, &line);
	c->line.err = rule.err < 0 ? rule.err : c->line.err;
	coord_trace(c);
	fal_buf_free(&rule);
}

int
fal_coord_new(const struct fal_coord_conf *conf, const struct fal_coord_ops *ops,
	      double now, struct fal_coord **out)
{
	struct fal_coord *c = fal_xcalloc(1, sizeof(*c));
	c->conf = *conf;
	c->conf.above = NULL;
	c->brought = conf->above != NULL;
	c->conf.skips |= c->brought; /* what that means, the level above says */
	c->conf.shards += conf->shards == 0;
	c->conf.hashes += conf->hashes == 0;
	if (conf->map != NULL)
		c->map = *conf->map;
	else
		fal_map_even(&c->map, fal_blocks(conf->params), c->conf.shards);
	c->conf.map = NULL;
	c->loose = !fal_rule_traits(&conf->policy->rule).shared;
	c->ops = *ops;
	c->rng = fal_rng_init(conf->entropy, FAL_RNG_DRAW, 1);
	c->start = now - conf->before.t;
	c->traced = conf->before.t;
	c->status.accuracy = -1;
	c->status.loss = (double)NAN;
	c->clocks = fal_grid_clocks(&conf->grid);
	c->next_eval = conf->eval_every > 0 && conf->eval_every < c->clocks
			       ? conf->eval_every
			       : c->clocks;
	const struct fal_coord_past *past = conf->past;
	struct fal_sched_conf sched = { .policy = conf->policy,
					.grid = conf->grid,
					.entropy = conf->entropy,
					.ahead = conf->above == NULL,
					.brought = conf->above != NULL,
					.lanes_start = conf->lanes_start,
					.skips = c->conf.skips,
					/* forward only: about a third of a step */
					.eval_cost = 1.0 / 3,
					.preclaims = conf->preclaims };
	if (past != NULL)
		sched.from = (struct fal_sched_from){ past->clock, past->version,
						      past->first, past->round };
	c->sched = fal_sched_new(&sched);
	int err = past != NULL ? coord_become(c, past) : FAL_OK;
	if (err == FAL_OK)
		coord_keep_versions(c, fal_sched_versions(c->sched));
	if (err < 0 || c->err < 0) {
		err = err < 0 ? err : c->err;
		fal_coord_free(c);
		return err;
	}
	if (past != NULL)
		c->waits.told = c->waits.over = c->balance.over = past->clock;
	c->balance.on = conf->psld;
	c->balance.at = (double)NAN;
	trace_job(c, conf);
	if (conf->before.lines > 0)
		coord_trace_restart(c, past);
	if (conf->place != NULL) {
		fal_line_place(&c->line, c->traced, conf->place);
		coord_trace(c);
	}
	coord_trace_policy(c, now, fal_coord_front(c), conf->policy_by);
	c->conf.past = NULL;
	c->conf.place = NULL;
	*out = c;
	return FAL_OK;
}

void
fal_coord_trainer_wait(struct fal_coord *c, double seconds, uint32_t keys)
{
	coord_enter(c);
	c->work_keys = keys;
	c->trainer.wait_s = seconds;
}

void
fal_coord_free(struct fal_coord *c)
{
	if (c == NULL)
		return;
	coord_enter(c);
	fal_secret_wipe(&c->conf.tickets, sizeof(c->conf.tickets));
	coord_control_free(c);
	coord_health_free(c);
	fal_sched_free(c->sched);
	coord_commit_free(c);
	coord_waits_free(c);
	free(c->peer);
	free(c->known);
	free(c->leaver);
	free(c->key);
	free(c->eval.count);
	for (uint32_t i = 0; i < c->newses; i++) {
		free(c->news[i].leaves);
		free(c->news[i].push);
		free(c->news[i].sum);
	}
	free(c->news);
	free(c->merged);
	free(c->push);
	fal_coord_past_free(&c->past);
	free(c->speed);
	fal_buf_free(&c->line);
	free(c->named);
	free(c->given);
	free(c);
}

void
coord_begin_eval(struct fal_coord *c, double now, uint64_t version, uint64_t over)
{
	coord_keep(c, version, over);
	c->evaluating = c->judged = true;
	uint64_t every = c->conf.eval_every > 0 ? c->conf.eval_every : c->clocks;
	c->next_eval = over / every * every + every;
	c->next_eval = c->next_eval < c->clocks ? c->next_eval : c->clocks;
	coord_eval_begin(c, now);
}

/* Everybody gets the version under evaluation who did not get it as the newest one. */
static void
send_kept(struct fal_coord *c)
{
	for (uint32_t i = 0; i < c->peers && c->evaluating; i++) {
		struct fal_peer *p = &c->peer[i];
		if (!p->ready || p->kept == c->kept_version)
			continue;
		p->kept = c->kept_version;
		if (!p->on_line && p->next_version <= c->kept_version)
			p->next_version = c->kept_version + 1;
		coord_send_version(c, p, c->kept_version, true);
	}
}

/* The clocks that may begin: none before enough workers are here; then all, but for the
 * next evaluation, which must be over EVAL_CLOCKS after its version, and before the
 * version of the one after it. */
static uint64_t
allowed(const struct fal_coord *c)
{
	uint64_t from = c->evaluating ? c->kept_clock : c->next_eval;
	uint64_t every = c->conf.eval_every > 0 ? c->conf.eval_every : c->clocks;
	const uint64_t until = coord_control_until(c);
	if (!c->began)
		return 0;
	if (c->conf.test_samples == 0)
		return c->clocks < until ? c->clocks : until;
	from += every - 1 < EVAL_CLOCKS ? every - 1 : EVAL_CLOCKS;
	return from < until ? from : until;
}

int
coord_advance(struct fal_coord *c, double now)
{
	coord_drain(c, now);
	if (c->err < 0)
		return c->err;
	coord_control_advance(c, now);
	if (c->move.begun) { /* shards may have answered at once */
		coord_drain(c, now);
		coord_control_advance(c, now);
	}
	if (now >= coord_trainer_until(c))
		c->why = c->trainer.why;
	if (c->err < 0 || c->finished || c->why != NULL || c->move.begun)
		return c->err;
	if (c->brought) {
		send_kept(c);
		return c->err;
	}
	bool done = fal_sched_done(c->sched) && c->newses == 0;
	/* The last version; or clocks that were over in another order than theirs. */
	bool due = done || fal_sched_over(c->sched) >= c->next_eval;
	if (due && c->conf.test_samples > 0 && !c->evaluating && !c->untold &&
	    !(c->judged && c->kept_version == c->version)) {
		coord_begin_eval(c, now, c->version, fal_sched_over(c->sched));
		coord_drain(c, now);
	}
	fal_sched_allow(c->sched, now, allowed(c));
	coord_drain(c, now);
	send_kept(c);
	c->finished = done && !c->evaluating;
	return c->err;
}

double
fal_coord_seconds(struct fal_coord *c, double now)
{
	coord_enter(c);
	c->traced = fmax(c->traced, now - c->start);
	return c->traced;
}

int
fal_coord_heard(struct fal_coord *c, double now)
{
	coord_enter(c);
	return coord_advance(c, now);
}

int
fal_coord_tick(struct fal_coord *c, double now)
{
	coord_enter(c);
	fal_sched_tick(c->sched, now);
	return coord_advance(c, now);
}

double
fal_coord_wake(const struct fal_coord *c)
{
	coord_enter(c);
	return fmin(fal_sched_wake(c->sched), coord_trainer_until(c));
}

struct fal_coord_status
fal_coord_status(const struct fal_coord *c)
{
	coord_enter(c);
	struct fal_coord_status s = c->status;
	s.clock = fal_sched_over(c->sched);
	s.clocks = c->clocks;
	s.version = c->published;
	s.workers = c->ready;
	s.done = c->finished;
	s.failed = c->why != NULL;
	s.why = c->why;
	s.held = c->control.held;
	s.stopping = c->control.stopping;
	s.stopped = c->control.stopped;
	s.agains = c->control.agains;
	return s;
}

struct fal_bound_lanes
coord_lanes(const struct fal_coord *c, const struct fal_peer *p)
{
	const struct fal_grid *g = &c->conf.grid;
	const double task_s = (double)p->task_ns * 1e-9;
	const double fixed =
		fal_bound_fixed(g->task, task_s, p->large, (double)p->large_ns * 1e-9);
	/* The probe tried as many samples as a task may have; a clock may have fewer. */
	const double part = fal_bound_longer(fixed, (double)fal_grid_full(g) / g->task);
	return (struct fal_bound_lanes){
		.task_s = task_s * part,
		.lanes = p->lanes_max < p->cores ? p->lanes_max : p->cores,
		.fixed = fixed / part,
	};
}

void
fal_coord_sizes(const struct fal_coord *c, struct fal_coord_sizes *out)
{
	coord_enter(c);
	struct fal_coord_sizes sizes = { 0 };
	struct fal_bound_lanes *v = fal_xcalloc(c->peers, sizeof(*v));
	size_t n = 0;
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *p = &c->peer[i];
		if (!p->ready || p->task_ns == 0)
			continue;
		v[n] = coord_lanes(c, p);
		sizes.lanes += v[n++].lanes;
		sizes.workers++;
	}
	const double tasks = fal_grid_size(&c->conf.grid, 0);
	const struct fal_bound_tail tail = fal_bound_tail_of(&c->conf.grid, 0);
	fal_bound_sizes(v, n, tasks, &tail, &sizes.whole, &sizes.small);
	free(v);
	*out = sizes;
}

void
fal_coord_finish(struct fal_coord *c, double now, const struct fal_coord_result *result,
		 const char *why)
{
	const double t = fal_coord_seconds(c, now);
	coord_enter(c);
	c->why = why != NULL ? why : c->why;
	if (c->brought && c->why == NULL)
		coord_let_go(c, now);
	for (uint32_t i = 0; i < c->peers; i++)
		if (coord_is_here(&c->peer[i]))
			coord_owed(c, now, &c->peer[i], 0);
	coord_tell_shards(c, now, true);
	const bool judged = !c->brought && c->status.accuracy >= 0;
	if (c->why != NULL)
		fal_trace_put(&c->line, t, FAL_EV_FAILED,
			      &(struct fal_ev_failed){ c->published, result->seconds,
						       c->why });
	else
		fal_trace_put(
			&c->line, t, FAL_EV_DONE,
			&(struct fal_ev_done){
				.version = c->published,
				.sha256 = result->sha256,
				.hash = result->sha256 != NULL ? result->hash : NULL,
				.journal = result->journal[0] != '\0' ? result->journal
								      : NULL,
				.seconds = t,
				.trained = result->seconds,
				.accuracy = judged ? c->status.accuracy : (double)NAN });
	/* The trace has the end before any session hears of the end. */
	coord_trace(c);
	for (uint32_t i = 0; i < c->peers; i++) {
		struct fal_peer *p = &c->peer[i];
		if (!coord_is_here(p))
			continue;
		coord_send_done(c, p->id);
		p->ready = false;
		p->left = true;
	}
}
