/* The coordinator's events: a job's beginning and end, messages of sessions, requests of
 * controllers, and time.  After each event, coord_advance does what the event has made
 * possible. */
#include "server/coord_priv.h"

#include "base/build.h"
#include "base/loss.h"
#include "base/mem.h"
#include "crypto/secret.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- beginning -------------------------------------------------------------------- */

static void
trace_job(struct fal_coord *c, const struct fal_coord_conf *conf)
{
	static const char *const numerics[] = { "portable", "fast" };
	const struct fal_grid *g = &conf->grid;
	const struct fal_optim *o = &conf->optim;
	const struct fal_coord_upstream *above = conf->above;
	const bool has_momentum = o->kind == FAL_MOMENTUM || o->kind == FAL_NESTEROV;
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
		.momentum = has_momentum ? (double)o->momentum : 0,
		.momentum_per = has_momentum && o->one_momentum,
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
	const struct fal_coord_checkpoint *past = conf->past;
	struct fal_coord *c = fal_xcalloc(1, sizeof(*c));
	c->conf = *conf;
	c->is_external = conf->above != NULL;
	c->conf.skips |=
		c->is_external; /* the coordinator above decides what a skip means */
	c->conf.shards += conf->shards == 0;
	c->conf.hashes += conf->hashes == 0;
	if (conf->map != NULL)
		c->placement.map = *conf->map;
	else
		fal_map_even(&c->placement.map, fal_blocks(conf->params), c->conf.shards);
	c->control.clocks_end_out_of_order = !fal_rule_traits(&conf->policy->rule).shared;
	c->ops = *ops;
	c->rng = fal_rng_init(conf->entropy, FAL_RNG_DRAW, 1);
	c->start = now - conf->before.t;
	c->newest_line_s = conf->before.t;
	c->figures.accuracy = -1;
	c->figures.loss = (double)NAN;
	c->clocks = fal_grid_clocks(&conf->grid);
	c->evaluation.pin.next_clock =
		conf->eval_every > 0 && conf->eval_every < c->clocks ? conf->eval_every
								     : c->clocks;
	struct fal_sched_conf sched = { .policy = conf->policy,
					.grid = conf->grid,
					.entropy = conf->entropy,
					.ahead = !c->is_external,
					.is_external = c->is_external,
					.lanes_start = conf->lanes_start,
					.skips = c->conf.skips,
					/* an evaluation runs forward only, which is about
					 * a third of a step */
					.eval_cost = 1.0 / 3,
					.preclaims = conf->preclaims };
	if (past != NULL)
		sched.from = (struct fal_sched_from){ past->clock, past->version,
						      past->first, past->round };
	c->sched = fal_sched_new(&sched);
	int err = past != NULL ? coord_restore(c, past) : FAL_OK;
	coord_check_patience(c);
	if (err == FAL_OK) {
		coord_retain_versions(c, fal_sched_count_versions(c->sched));
		err = c->err;
	}
	if (err < 0) {
		fal_coord_free(c);
		return err;
	}
	c->placement.balance.is_on = conf->psld;
	c->placement.balance.measured_at = (double)NAN;
	trace_job(c, conf);
	if (conf->before.lines > 0)
		coord_trace_restart(c, past);
	if (conf->place != NULL) {
		fal_line_place(&c->trace_line, c->newest_line_s, conf->place);
		coord_write_line(c);
	}
	coord_trace_policy(c, now, fal_coord_next_clock(c), conf->policy_by);
	/* Borrowed for this call only. */
	c->conf.above = NULL;
	c->conf.map = NULL;
	c->conf.past = NULL;
	c->conf.place = NULL;
	*out = c;
	return FAL_OK;
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
	fal_shard_result_free(&c->result);
	coord_placement_free(c);
	free(c->sessions.peer);
	free(c->sessions.worker);
	free(c->sessions.leaver);
	free(c->sessions.key);
	free(c->sessions.former_speed);
	free(c->evaluation.task);
	fal_coord_checkpoint_free(&c->snapshot.state);
	fal_buf_free(&c->trace_line);
	free(c->versions.needed);
	free(c->external.installed);
	free(c);
}

/* ---- what follows from an event --------------------------------------------------- */

/* Announces the version under evaluation to each worker that did not get this version
 * when the version was the newest one. */
static void
announce_pinned_version(struct fal_coord *c)
{
	const uint64_t pinned = c->evaluation.pin.version;
	struct coord_peer *p = NULL;
	while (c->evaluation.pin.is_under_way &&
	       (p = coord_next_peer(c, p, PEER_READY)) != NULL) {
		if (p->announced.pinned_version == pinned)
			continue;
		p->announced.pinned_version = pinned;
		if (!p->announced.is_on_branch && p->announced.next <= pinned)
			p->announced.next = pinned + 1;
		coord_announce_version(c, p, pinned, true);
	}
}

/* The first clock that may not begin.  No clock may begin before enough workers are here.
 * After that there are four limits: an evaluation must be over coord_evaluation_clocks
 * after its version, and before the version of the next evaluation; a scheduled policy
 * must be in force before its clock begins; and job.patience may end the job. */
static uint64_t
clock_limit(const struct fal_coord *c)
{
	const struct coord_evaluation *e = &c->evaluation;
	const struct coord_policy_control *k = &c->control;
	uint64_t limit = c->clocks;
	if (!c->has_begun)
		return 0;
	if (c->conf.test_samples > 0)
		limit = (e->pin.is_under_way ? e->pin.clocks : e->pin.next_clock) +
			coord_evaluation_clocks(c);
	if (k->n_scheduled > 0 && k->scheduled[0].clock < limit)
		limit = k->scheduled[0].clock;
	if (k->stop_clock > 0 && k->stop_clock < limit)
		limit = k->stop_clock;
	return limit;
}

/* Runs all steps of coord_advance once. */
static void
advance_once(struct fal_coord *c, double now)
{
	const struct coord_evaluation *e = &c->evaluation;
	coord_run_actions(c, now);
	if (c->err < 0)
		return;
	coord_policy_advance(c, now);
	if (now >= coord_trainer_deadline(c))
		c->failure = c->sessions.trainer.why;
	if (c->err < 0 || c->is_finished || c->failure != NULL ||
	    c->placement.move.state == MOVE_RUNNING)
		return;
	if (c->is_external) {
		announce_pinned_version(c);
		return;
	}
	const bool is_done = fal_sched_is_done(c->sched) && c->rounds.n_pending == 0;
	/* The last version is always evaluated.  Clocks may also have ended out of order,
	 * so that no update has reached next_clock itself. */
	const bool is_due =
		is_done || fal_sched_first_open_clock(c->sched) >= e->pin.next_clock;
	if (is_due && c->conf.test_samples > 0 && !e->pin.is_under_way &&
	    !c->versions.newest_is_withheld &&
	    !(e->pin.is_evaluated && e->pin.version == c->versions.newest)) {
		coord_evaluate_version(c, now, c->versions.newest,
				       fal_sched_first_open_clock(c->sched));
		coord_run_actions(c, now);
	}
	fal_sched_set_clock_limit(c->sched, now, clock_limit(c));
	coord_run_actions(c, now);
	announce_pinned_version(c);
	c->is_finished = is_done && !e->pin.is_under_way;
}

int
coord_advance(struct fal_coord *c, double now)
{
	do {
		c->sessions.has_ended = false;
		advance_once(c, now);
	} while ((c->sessions.has_ended || c->result.n > 0) && c->err == 0);
	return c->err;
}

int
fal_coord_take_result(struct fal_coord *c, double now, const struct fal_shard_result *r)
{
	coord_enter(c);
	coord_handle_result(c, now, r);
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
fal_coord_next_deadline(const struct fal_coord *c)
{
	coord_enter(c);
	return fmin(fal_sched_next_tick(c->sched), coord_trainer_deadline(c));
}

/* ---- messages --------------------------------------------------------------------- */

/* Clocks between measurements of a worker's round trip. */
enum { PING_EVERY = 16 };

/* The worker has closed a contribution, and gets the ticket; or a FENCE if nothing of the
 * contribution counts any more. */
static int
on_seal(struct fal_coord *c, const struct coord_peer *p, uint64_t round, uint32_t seq,
	struct fal_diag *diag)
{
	const struct fal_contrib_id id = { p->worker, seq };
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	struct fal_ticket t;
	int sealed = fal_sched_close_contrib(c->sched, round, id);
	if (sealed < 0)
		return fal_diag_set(diag, sealed,
				    "closes contribution %u of round %" PRIu64 " twice",
				    seq, round);
	m.fence.round = round;
	m.fence.seq = seq;
	if (sealed == 1 && coord_make_ticket(c, round, id, &t)) {
		m.type = FAL_MSG_TICKET;
		fal_ticket_put(&c->conf.tickets, p->id, &t, &m.ticket);
	}
	coord_send(c, p->id, &m);
	return FAL_OK;
}

/* Returns true if the worker was granted the task, but never on the version of the
 * claim. */
static bool
claims_other_version(const struct fal_coord *c, const struct fal_round_info *r,
		     const struct fal_claim_report *in)
{
	const uint64_t version = in->task < r->first_late ? r->version : r->late_version;
	bool is_other = !r->mixed && in->version != version;
	for (size_t i = 0; i < c->rounds.n_granted && r->mixed; i++) {
		const struct fal_granted_on *g = &c->rounds.granted[i];
		if (g->round != r->round || g->worker != in->worker ||
		    in->task - g->first >= g->count)
			continue;
		if (g->version == in->version)
			return false;
		is_other = true;
	}
	return is_other;
}

/* Counts the first claim of a task: adds the claim's loss, and forgets failures of
 * trainers, as a trainer works. */
static void
count_claim(struct fal_coord *c, const struct coord_peer *p, const struct fal_msg *m)
{
	const struct fal_coord_counted_claim claimed = { .round = m->claim.round,
							 .task_ns = m->claim.task_ns,
							 .task = m->claim.task,
							 .loss = m->claim.loss,
							 .metrics = m->claim.metrics,
							 .hash = m->claim.hash };
	struct fal_round_info r;
	if (c->sessions.trainer.why[0] != '\0') {
		c->sessions.trainer.why[0] = '\0';
		for (uint32_t i = 0; i < c->sessions.keys; i++)
			c->sessions.key[i].failed = false;
	}
	if (c->is_external) {
		COORD_CALL(c, claimed, &claimed);
	} else if (fal_sched_round(c->sched, m->claim.round, &r)) {
		coord_health_add_claim(c, r.clock, p->key, m->claim.loss,
				       fal_grid_range_samples(&c->conf.grid, r.clock,
							      m->claim.task, 1));
	}
}

static int
on_claim(struct fal_coord *c, double now, struct coord_peer *p, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	struct fal_claim_report in = { .worker = p->worker,
				       .round = m->claim.round,
				       .task = m->claim.task,
				       .seq = m->claim.seq,
				       .fills = { m->claim.fills_worker,
						  m->claim.fills_seq },
				       .task_s = (double)m->claim.task_ns * 1e-9,
				       .loss = m->claim.loss,
				       .version = m->claim.version,
				       .nonfinite = m->claim.nonfinite != 0 };
	struct fal_metrics metrics;
	if (c->conf.task_hashes)
		memcpy(in.hash, m->claim.hash, sizeof(in.hash));
	if (coord_read_metrics(c, &m->claim.metrics, 0, &metrics, diag) < 0)
		return FAL_EINVAL;
	in.metrics = c->conf.metrics.n > 0 ? &metrics : NULL;
	if (!fal_loss_fits(in.loss, c->conf.grid.task))
		return fal_diag_set(diag, FAL_EINVAL, "claims a loss of %.6g",
				    fal_loss_decode(in.loss));
	struct fal_round_info r;
	if (fal_sched_round(c->sched, in.round, &r) && claims_other_version(c, &r, &in))
		return fal_diag_set(diag, FAL_EINVAL,
				    "computes round %" PRIu64 " on version %" PRIu64,
				    in.round, in.version);
	in.verify = !in.nonfinite && coord_verify_is_drawn(c, p, in.round);
	int won = fal_sched_claim(c->sched, now, &in);
	if (won < 0)
		return fal_diag_set(diag, won, "claims task %u of round %" PRIu64 ": %s",
				    in.task, in.round, fal_strerror(won));
	if (won == 1 && !in.nonfinite)
		count_claim(c, p, m);
	int err = FAL_OK;
	/* The worker waits for no verdict on a task that was claimed ahead. */
	if (!in.nonfinite && in.seq < FAL_PRECLAIMED) {
		struct fal_msg v = { .type = FAL_MSG_VERDICT };
		v.verdict.round = in.round;
		v.verdict.task = in.task;
		v.verdict.seq = in.seq;
		v.verdict.won = won == 1;
		/* The verdict goes out first: when a FENCE arrives, the worker must have
		 * all verdicts. */
		coord_send(c, p->id, &v);
		if (m->claim.last != 0)
			err = on_seal(c, p, in.round, in.seq, diag);
	}
	const uint64_t clock = fal_sched_first_open_clock(c->sched);
	if (err == FAL_OK && clock >= p->ping_clock) {
		/* Pings often until the round trip is known well, and then seldom. */
		p->ping_clock = clock + (clock < PING_EVERY ? 1 : PING_EVERY);
		coord_send_ping(c, now, p->id);
	}
	return err;
}

int
fal_coord_msg(struct fal_coord *c, double now, uint32_t peer, const struct fal_msg *m,
	      struct fal_diag *diag)
{
	coord_enter(c);
	if (m->incarnation != c->conf.tickets.incarnation && m->type != FAL_MSG_HELLO)
		return fal_diag_set(diag, FAL_ESTATE, "a message of incarnation %u",
				    m->incarnation);
	struct coord_peer *p = coord_find_peer(c, peer);
	int err = FAL_OK;
	if (m->type == FAL_MSG_HELLO) {
		c->sessions.has_ended = false;
		err = coord_on_hello(c, now, p, m, diag);
		/* An older session of the same process may have ended. */
		if (c->sessions.has_ended)
			(void)coord_advance(c, now);
		return err;
	}
	if (p != NULL && p->state == PEER_LEFT)
		return FAL_OK;
	const bool is_early = m->type == FAL_MSG_READY || m->type == FAL_MSG_LEAVE;
	if (p == NULL || p->state == PEER_OPENED)
		return fal_diag_set(diag, FAL_ESTATE, "%s before HELLO",
				    fal_msg_name(m->type));
	if (p->state == PEER_GREETED && !is_early)
		return fal_diag_set(diag, FAL_ESTATE, "%s before READY",
				    fal_msg_name(m->type));
	if (p->worker != 0)
		fal_sched_note_message(c->sched, now, p->worker);
	switch (m->type) {
	case FAL_MSG_READY:
		err = coord_on_ready(c, now, p, m, diag);
		break;
	case FAL_MSG_CLAIM:
		err = on_claim(c, now, p, m, diag);
		break;
	case FAL_MSG_PUSH:
		coord_begin_callback(c);
		err = c->ops.shards.push(c->ops.shards.arg, p->id, m, &c->result, diag);
		coord_end_callback(c);
		if (err == FAL_ELIMIT || err == FAL_EINVAL)
			coord_key(c, p->key)->record.charges++;
		if (err < 0)
			(void)coord_advance(c, now);
		break;
	case FAL_MSG_SEAL:
		err = on_seal(c, p, m->seal.round, m->seal.seq, diag);
		break;
	case FAL_MSG_WORKED:
		err = coord_on_worked(c, now, p, m, diag);
		break;
	case FAL_MSG_EVALUATED:
		err = coord_on_evaluated(c, now, p, m, diag);
		break;
	case FAL_MSG_CHECKED:
		coord_verify_compare(c, now, p, m);
		break;
	case FAL_MSG_LEAVE:
		err = coord_on_leave(c, now, p, m, diag);
		break;
	case FAL_MSG_PONG:
		fal_sched_note_pong(c->sched, now, p->worker,
				    fmax(now - c->start - (double)m->pong.stamp * 1e-9,
					 0),
				    m->pong.steps);
		break;
	case FAL_MSG_CAPACITY:
		err = coord_on_capacity(c, now, p, m, diag);
		break;
	default:
		return fal_diag_set(diag, FAL_ESTATE, "%s is not for a worker to send",
				    fal_msg_name(m->type));
	}
	return err < 0 ? err : coord_advance(c, now);
}

int
fal_coord_session_end(struct fal_coord *c, double now, uint32_t peer, const char *why)
{
	coord_enter(c);
	struct coord_peer *p = coord_find_peer(c, peer);
	const bool was_ready = p != NULL && p->state == PEER_READY;
	if (p != NULL)
		coord_remove_peer(c, now, p, why);
	return was_ready ? coord_advance(c, now) : c->err;
}

/* ---- requests of controllers ------------------------------------------------------ */

/* After a request: carries the request out, if that is possible now. */
static int
advance_request(struct fal_coord *c, double now)
{
	coord_policy_advance(c, now);
	return coord_advance(c, now);
}

/* Traces a request after which rounds may begin, or may not, and tells the scheduler. */
static void
hold_rounds(struct fal_coord *c, double now, const char *why, const char *by)
{
	coord_trace_event(c, now, FAL_EV_HOLD, &(struct fal_ev_hold){ why, by });
	coord_hold_rounds(c, now);
}

int
fal_coord_set_policy(struct fal_coord *c, double now, const struct fal_policy *p,
		     const char *by, uint64_t ticket, struct fal_diag *diag)
{
	coord_enter(c);
	struct coord_policy_control *k = &c->control;
	if (coord_is_over(c))
		return fal_diag_set(diag, FAL_ESTATE, "the job is over");
	if (c->is_external)
		return fal_diag_set(diag, FAL_ESTATE,
				    "the policy of a group server is its --scheme");
	if (k->n_scheduled > 0)
		return fal_diag_set(diag, FAL_ESTATE,
				    "the policy of before, by '%s', is to hold again "
				    "first, from clock %" PRIu64 " on",
				    k->scheduled[0].set_by, k->scheduled[0].clock);
	if (k->has_pending)
		return fal_diag_set(diag, FAL_ESTATE,
				    "a change by '%s' waits for its boundary",
				    k->pending_by);
	k->pending = fal_policy_copy(p);
	k->has_pending = true;
	k->ticket = ticket;
	snprintf(k->pending_by, sizeof(k->pending_by), "%s", by);
	if (coord_changes_rule(c, p))
		hold_rounds(c, now, "policy", k->pending_by);
	return advance_request(c, now);
}

const struct fal_policy *
fal_coord_pending_policy(const struct fal_coord *c, const char **by)
{
	coord_enter(c);
	*by = c->control.pending_by;
	return c->control.has_pending ? &c->control.pending : NULL;
}

int
fal_coord_adjust_policy(struct fal_coord *c, double now, struct fal_coord_adjustment *b)
{
	coord_enter(c);
	struct coord_policy_control *k = &c->control;
	if (coord_is_over(c) || c->placement.move.state == MOVE_RUNNING ||
	    !k->has_pending || !coord_changes_rule(c, &k->pending) ||
	    coord_changes_rule(c, b->p) ||
	    !fal_rule_equal(&k->pending.rule, &b->next->rule))
		return FAL_ESTATE;
	b->clock = fal_coord_next_clock(c);
	b->kept = coord_journal_policy(c, b->p, b->clock, b->by);
	if (b->kept < 0)
		return FAL_OK;
	fal_policy_free(&k->pending);
	k->pending = fal_policy_copy(b->next);
	coord_apply_policy(c, now, b->p, b->by);
	return advance_request(c, now);
}

int
fal_coord_cancel_policy(struct fal_coord *c, double now, uint64_t ticket)
{
	coord_enter(c);
	struct coord_policy_control *k = &c->control;
	if (!k->has_pending || k->ticket != ticket)
		return FAL_OK;
	k->has_pending = false;
	fal_policy_free(&k->pending);
	coord_hold_rounds(c, now);
	return advance_request(c, now);
}

int
fal_coord_pause(struct fal_coord *c, double now, bool hold, const char *by)
{
	coord_enter(c);
	if (hold == c->control.is_paused)
		return FAL_OK;
	c->control.is_paused = hold;
	hold_rounds(c, now, hold ? "paused" : "resumed", by);
	return advance_request(c, now);
}

int
fal_coord_drain_worker(struct fal_coord *c, double now, const char *name,
		       struct fal_diag *diag)
{
	coord_enter(c);
	struct fal_msg m = { .type = FAL_MSG_DRAIN, .drain.why = "drained" };
	const struct coord_peer *p = NULL;
	bool is_known = false;
	while ((p = coord_next_peer(c, p, PEER_READY)) != NULL)
		if (strcmp(p->name, name) == 0) {
			coord_send(c, p->id, &m);
			is_known = true;
		}
	if (!is_known)
		return fal_diag_set(diag, FAL_ENOENT, "'%s' is no worker of this job",
				    name);
	return advance_request(c, now);
}

int
fal_coord_stop(struct fal_coord *c, double now, const char *by)
{
	coord_enter(c);
	if (coord_is_over(c))
		return FAL_OK;
	c->control.stop = STOP_ASKED;
	hold_rounds(c, now, "stopped", by);
	return advance_request(c, now);
}

int
fal_coord_move_blocks(struct fal_coord *c, double now, const struct fal_map *to,
		      const char *by, struct fal_diag *diag)
{
	coord_enter(c);
	struct coord_move *m = &c->placement.move;
	const struct fal_map *map = &c->placement.map;
	if (coord_is_over(c))
		return fal_diag_set(diag, FAL_ESTATE, "the job is over");
	if (m->state != MOVE_NONE)
		return fal_diag_set(diag, FAL_ESTATE, "a move by '%s' is under way",
				    m->wanted_by);
	if (!fal_map_covers(to, fal_blocks(c->conf.params)) || to->shards < map->shards)
		return fal_diag_set(diag, FAL_EINVAL, "no map after the one that holds");
	m->state = MOVE_PENDING;
	m->next_map = *to;
	m->epoch = (m->epoch > map->epoch ? m->epoch : map->epoch) + 1;
	m->next_map.epoch = m->epoch;
	snprintf(m->wanted_by, sizeof(m->wanted_by), "%s", by);
	coord_hold_rounds(c, now);
	return advance_request(c, now);
}

int
fal_coord_abort_move(struct fal_coord *c, double now)
{
	coord_enter(c);
	if (c->placement.move.state == MOVE_NONE)
		return c->err;
	coord_move_end(c, now, FAL_ESTATE);
	return coord_advance(c, now);
}

/* ---- status and end --------------------------------------------------------------- */

const struct fal_policy *
fal_coord_policy_in_force(const struct fal_coord *c)
{
	coord_enter(c);
	return fal_sched_policy(c->sched);
}

uint64_t
fal_coord_next_clock(const struct fal_coord *c)
{
	coord_enter(c);
	return fal_sched_next_clock(c->sched);
}

struct fal_coord_status
fal_coord_status(const struct fal_coord *c)
{
	coord_enter(c);
	struct fal_coord_status s = { .figures = c->figures };
	s.clock = fal_sched_first_open_clock(c->sched);
	s.clocks = c->clocks;
	s.version = c->versions.published;
	s.workers = c->sessions.n_ready;
	s.done = c->is_finished;
	s.failed = c->failure != NULL;
	s.why = c->failure;
	s.held = c->control.is_paused;
	s.stopping = c->control.stop != STOP_NONE;
	s.stopped = c->control.stop == STOP_REACHED;
	s.patience_is_over = c->control.stop_clock > 0;
	s.agains = c->control.n_scheduled;
	return s;
}

bool
fal_coord_newest_version(const struct fal_coord *c, struct fal_coord_outcome *out)
{
	coord_enter(c);
	*out = (struct fal_coord_outcome){ c->versions.published,
					   c->versions.published_clocks, false };
	return c->versions.published != 0;
}

bool
fal_coord_last_good_version(const struct fal_coord *c, struct fal_coord_outcome *out)
{
	coord_enter(c);
	*out = (struct fal_coord_outcome){ c->evaluation.pin.version,
					   c->evaluation.pin.clocks,
					   c->failure == c->sessions.trainer.why };
	return c->evaluation.pin.clocks != 0;
}

void
fal_coord_task_sizes(const struct fal_coord *c, struct fal_coord_task_sizes *out)
{
	coord_enter(c);
	struct fal_coord_task_sizes sizes = { 0 };
	const struct coord_peer *p = NULL;
	struct fal_bound_lanes *v = fal_xcalloc(c->sessions.peers, sizeof(*v));
	while ((p = coord_next_peer(c, p, PEER_READY)) != NULL) {
		if (p->probe.task_ns == 0)
			continue;
		v[sizes.workers] = coord_probed_lanes(c, p);
		sizes.lanes += v[sizes.workers++].lanes;
	}
	const double tasks = fal_grid_size(&c->conf.grid, 0);
	const struct fal_bound_tail tail = fal_bound_tail_of(&c->conf.grid, 0);
	fal_bound_sizes(v, sizes.workers, tasks, &tail, &sizes.whole, &sizes.small);
	free(v);
	*out = sizes;
}

void
fal_coord_finish(struct fal_coord *c, double now, const struct fal_coord_result *result,
		 const char *why)
{
	const double t = fal_coord_trace_time(c, now);
	uint64_t round;
	coord_enter(c);
	c->failure = why != NULL ? why : c->failure;
	if (c->is_external && c->failure == NULL) {
		/* The coordinator above no longer needs the open rounds, and errors of
		 * these rounds do not matter. */
		while (fal_sched_oldest_external(c->sched, &round))
			fal_sched_cancel_external(c->sched, now, round);
		coord_run_actions(c, now);
	}
	struct coord_peer *p = NULL;
	while ((p = coord_next_peer(c, p, PEER_GREETED)) != NULL)
		coord_write_clock_lines(c, now, p, 0);
	coord_trace_shards(c, now, true);
	const bool is_evaluated = !c->is_external && c->figures.accuracy >= 0;
	if (c->failure != NULL)
		coord_trace_event(c, now, FAL_EV_FAILED,
				  &(struct fal_ev_failed){ c->versions.published,
							   result->seconds, c->failure });
	else
		coord_trace_event(c, now, FAL_EV_DONE,
				  &(struct fal_ev_done){
					  .version = c->versions.published,
					  .sha256 = result->sha256,
					  .hash = result->sha256 != NULL ? result->hash
									 : NULL,
					  .journal = result->journal[0] != '\0'
							     ? result->journal
							     : NULL,
					  .seconds = t,
					  .trained = result->seconds,
					  .clocks = c->control.stop_clock,
					  .accuracy = is_evaluated ? c->figures.accuracy
								   : (double)NAN });
	/* The trace has the end before any session hears of the end. */
	while ((p = coord_next_peer(c, p, PEER_GREETED)) != NULL) {
		coord_send_end(c, p->id);
		p->state = PEER_LEFT;
	}
}
