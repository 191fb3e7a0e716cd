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
coord_write_line(struct fal_coord *c)
{
	if (c->trace_line.err != 0)
		return;
	c->ops.trace(coord_begin_callback(c), (const char *)c->trace_line.p,
		     c->trace_line.n);
	coord_end_callback(c);
}

void
coord_trace_event(struct fal_coord *c, double t, enum fal_event ev, const void *line)
{
	fal_trace_put(&c->trace_line, t, ev, line);
	coord_write_line(c);
}

uint32_t
coord_peer_index(const struct fal_coord *c, uint32_t id)
{
	return (uint32_t)fal_sorted_place(c->sessions.peer, c->sessions.peers,
					  sizeof(*c->sessions.peer), id);
}

struct coord_peer *
coord_find_peer(const struct fal_coord *c, uint32_t id)
{
	uint32_t at = coord_peer_index(c, id);
	return at < c->sessions.peers && c->sessions.peer[at].id == id
		       ? &c->sessions.peer[at]
		       : NULL;
}

uint32_t
coord_session_of_worker(const struct fal_coord *c, uint32_t id)
{
	return id > 0 && id <= c->sessions.workers ? c->sessions.worker[id - 1].session
						   : 0;
}

void
coord_send(struct fal_coord *c, uint32_t peer, struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	if (peer == 0)
		return;
	m->incarnation = c->conf.tickets.incarnation;
	fal_msg_put(&out, m);
	c->ops.send(coord_begin_callback(c), peer, &out);
	coord_end_callback(c);
	fal_buf_free(&out);
}

void
coord_record_error(struct fal_coord *c, int err)
{
	c->err = c->err == 0 && err < 0 ? err : c->err;
}

void
coord_command_shards(struct fal_coord *c, const struct fal_shard_order *o)
{
	if (c->err < 0)
		return;
	coord_begin_callback(c);
	const int err = c->ops.shards.order(c->ops.shards.arg, o);
	coord_end_callback(c);
	coord_record_error(c, err);
}

static void
send_away(struct fal_coord *c, double now, uint32_t peer, enum fal_msg_type type,
	  const char *why)
{
	struct fal_msg m = { .type = (uint16_t)type };
	snprintf(m.refuse.why, sizeof(m.refuse.why), "%s", why);
	if (peer == 0)
		return;
	struct coord_peer *p = coord_find_peer(c, peer);
	if (p != NULL)
		p->leaves_in_order = true;
	coord_send(c, peer, &m);
	(void)fal_coord_gone(c, now, peer, why);
	c->ops.close(coord_begin_callback(c), peer, why);
	coord_end_callback(c);
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
coord_send_ping(struct fal_coord *c, double now, uint32_t peer)
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
	fal_trace_put(&c->trace_line, 0, FAL_EV_JOB, &line);
	c->trace_line.err = rule.err < 0 ? rule.err : c->trace_line.err;
	coord_write_line(c);
	fal_buf_free(&rule);
}

int
fal_coord_new(const struct fal_coord_conf *conf, const struct fal_coord_ops *ops,
	      double now, struct fal_coord **out)
{
	struct fal_coord *c = fal_xcalloc(1, sizeof(*c));
	c->conf = *conf;
	c->conf.above = NULL;
	c->is_external = conf->above != NULL;
	c->conf.skips |= c->is_external; /* what that means, the level above says */
	c->conf.shards += conf->shards == 0;
	c->conf.hashes += conf->hashes == 0;
	if (conf->map != NULL)
		c->placement.map = *conf->map;
	else
		fal_map_even(&c->placement.map, fal_blocks(conf->params), c->conf.shards);
	c->conf.map = NULL;
	c->control.clocks_end_out_of_order = !fal_rule_traits(&conf->policy->rule).shared;
	c->ops = *ops;
	c->rng = fal_rng_init(conf->entropy, FAL_RNG_DRAW, 1);
	c->start = now - conf->before.t;
	c->newest_line_s = conf->before.t;
	c->status.accuracy = -1;
	c->status.loss = (double)NAN;
	c->clocks = fal_grid_clocks(&conf->grid);
	c->evaluation.next_clock = conf->eval_every > 0 && conf->eval_every < c->clocks
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
	int err = past != NULL ? coord_restore(c, past) : FAL_OK;
	if (err == FAL_OK)
		coord_retain_versions(c, fal_sched_versions(c->sched));
	if (err < 0 || c->err < 0) {
		err = err < 0 ? err : c->err;
		fal_coord_free(c);
		return err;
	}
	if (past != NULL)
		c->placement.lines.first_clock = c->placement.lines.over =
			c->placement.balance.over = past->clock;
	c->placement.balance.on = conf->psld;
	c->placement.balance.at = (double)NAN;
	trace_job(c, conf);
	if (conf->before.lines > 0)
		coord_trace_restart(c, past);
	if (conf->place != NULL) {
		fal_line_place(&c->trace_line, c->newest_line_s, conf->place);
		coord_write_line(c);
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
	c->sessions.trainer.keys = keys;
	c->sessions.trainer.wait_s = seconds;
}

void
fal_coord_free(struct fal_coord *c)
{
	if (c == NULL)
		return;
	coord_enter(c);
	fal_secret_wipe(&c->conf.tickets, sizeof(c->conf.tickets));
	coord_policy_free(c);
	coord_health_free(c);
	fal_sched_free(c->sched);
	coord_rounds_free(c);
	coord_placement_free(c);
	free(c->sessions.peer);
	free(c->sessions.worker);
	free(c->sessions.leaver);
	free(c->sessions.key);
	free(c->evaluation.task);
	for (uint32_t i = 0; i < c->rounds.n_pending; i++) {
		free(c->rounds.pending[i].leaves);
		free(c->rounds.pending[i].push);
		free(c->rounds.pending[i].sum);
	}
	free(c->rounds.pending);
	free(c->rounds.collected);
	free(c->rounds.branch);
	fal_coord_past_free(&c->snapshot.state);
	free(c->sessions.former_speed);
	fal_buf_free(&c->trace_line);
	free(c->versions.needed);
	free(c->external.installed);
	free(c);
}

void
coord_evaluate_version(struct fal_coord *c, double now, uint64_t version, uint64_t over)
{
	coord_pin_version(c, version, over);
	c->evaluation.is_under_way = c->evaluation.pinned_is_evaluated = true;
	uint64_t every = c->conf.eval_every > 0 ? c->conf.eval_every : c->clocks;
	c->evaluation.next_clock = over / every * every + every;
	c->evaluation.next_clock = c->evaluation.next_clock < c->clocks
					   ? c->evaluation.next_clock
					   : c->clocks;
	coord_start_evaluation(c, now);
}

/* Everybody gets the version under evaluation who did not get it as the newest one. */
static void
announce_pinned_version(struct fal_coord *c)
{
	for (uint32_t i = 0; i < c->sessions.peers && c->evaluation.is_under_way; i++) {
		struct coord_peer *p = &c->sessions.peer[i];
		if (!p->ready ||
		    p->announced.pinned_version == c->evaluation.pinned_version)
			continue;
		p->announced.pinned_version = c->evaluation.pinned_version;
		if (!p->announced.is_on_branch &&
		    p->announced.next <= c->evaluation.pinned_version)
			p->announced.next = c->evaluation.pinned_version + 1;
		coord_announce_version(c, p, c->evaluation.pinned_version, true);
	}
}

/* The clocks that may begin: none before enough workers are here; then all, but for the
 * next evaluation, which must be over EVAL_CLOCKS after its version, and before the
 * version of the one after it. */
static uint64_t
allowed_clocks(const struct fal_coord *c)
{
	uint64_t from = c->evaluation.is_under_way ? c->evaluation.pinned_clocks
						   : c->evaluation.next_clock;
	uint64_t every = c->conf.eval_every > 0 ? c->conf.eval_every : c->clocks;
	const uint64_t until = coord_scheduled_policy_clock(c);
	if (!c->has_begun)
		return 0;
	if (c->conf.test_samples == 0)
		return c->clocks < until ? c->clocks : until;
	from += every - 1 < EVAL_CLOCKS ? every - 1 : EVAL_CLOCKS;
	return from < until ? from : until;
}

int
coord_advance(struct fal_coord *c, double now)
{
	coord_run_actions(c, now);
	if (c->err < 0)
		return c->err;
	coord_policy_advance(c, now);
	if (c->placement.move.begun) { /* shards may have answered at once */
		coord_run_actions(c, now);
		coord_policy_advance(c, now);
	}
	if (now >= coord_trainer_deadline(c))
		c->failure = c->sessions.trainer.why;
	if (c->err < 0 || c->is_finished || c->failure != NULL || c->placement.move.begun)
		return c->err;
	if (c->is_external) {
		announce_pinned_version(c);
		return c->err;
	}
	bool done = fal_sched_done(c->sched) && c->rounds.n_pending == 0;
	/* The last version; or clocks that were over in another order than theirs. */
	bool due = done || fal_sched_over(c->sched) >= c->evaluation.next_clock;
	if (due && c->conf.test_samples > 0 && !c->evaluation.is_under_way &&
	    !c->versions.newest_is_withheld &&
	    !(c->evaluation.pinned_is_evaluated &&
	      c->evaluation.pinned_version == c->versions.newest)) {
		coord_evaluate_version(c, now, c->versions.newest,
				       fal_sched_over(c->sched));
		coord_run_actions(c, now);
	}
	fal_sched_allow(c->sched, now, allowed_clocks(c));
	coord_run_actions(c, now);
	announce_pinned_version(c);
	c->is_finished = done && !c->evaluation.is_under_way;
	return c->err;
}

double
fal_coord_seconds(struct fal_coord *c, double now)
{
	coord_enter(c);
	c->newest_line_s = fmax(c->newest_line_s, now - c->start);
	return c->newest_line_s;
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
	return fmin(fal_sched_wake(c->sched), coord_trainer_deadline(c));
}

struct fal_coord_status
fal_coord_status(const struct fal_coord *c)
{
	coord_enter(c);
	struct fal_coord_status s = c->status;
	s.clock = fal_sched_over(c->sched);
	s.clocks = c->clocks;
	s.version = c->versions.published;
	s.workers = c->sessions.n_ready;
	s.done = c->is_finished;
	s.failed = c->failure != NULL;
	s.why = c->failure;
	s.held = c->control.is_paused;
	s.stopping = c->control.stopping;
	s.stopped = c->control.stopped;
	s.agains = c->control.n_scheduled;
	return s;
}

struct fal_bound_lanes
coord_probed_lanes(const struct fal_coord *c, const struct coord_peer *p)
{
	const struct fal_grid *g = &c->conf.grid;
	const double task_s = (double)p->probe.task_ns * 1e-9;
	const double fixed = fal_bound_fixed(g->task, task_s, p->probe.large,
					     (double)p->probe.large_ns * 1e-9);
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
	struct fal_bound_lanes *v = fal_xcalloc(c->sessions.peers, sizeof(*v));
	size_t n = 0;
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		const struct coord_peer *p = &c->sessions.peer[i];
		if (!p->ready || p->probe.task_ns == 0)
			continue;
		v[n] = coord_probed_lanes(c, p);
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
	c->failure = why != NULL ? why : c->failure;
	if (c->is_external && c->failure == NULL)
		coord_let_go(c, now);
	for (uint32_t i = 0; i < c->sessions.peers; i++)
		if (coord_is_present(&c->sessions.peer[i]))
			coord_write_clock_lines(c, now, &c->sessions.peer[i], 0);
	coord_trace_shards(c, now, true);
	const bool judged = !c->is_external && c->status.accuracy >= 0;
	if (c->failure != NULL)
		fal_trace_put(&c->trace_line, t, FAL_EV_FAILED,
			      &(struct fal_ev_failed){ c->versions.published,
						       result->seconds, c->failure });
	else
		fal_trace_put(
			&c->trace_line, t, FAL_EV_DONE,
			&(struct fal_ev_done){
				.version = c->versions.published,
				.sha256 = result->sha256,
				.hash = result->sha256 != NULL ? result->hash : NULL,
				.journal = result->journal[0] != '\0' ? result->journal
								      : NULL,
				.seconds = t,
				.trained = result->seconds,
				.accuracy = judged ? c->status.accuracy : (double)NAN });
	/* The trace has the end before any session hears of the end. */
	coord_write_line(c);
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		struct coord_peer *p = &c->sessions.peer[i];
		if (!coord_is_present(p))
			continue;
		coord_send_end(c, p->id);
		p->ready = false;
		p->left = true;
	}
}
