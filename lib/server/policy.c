/* Requests of controllers to the coordinator: to set another policy, to pause, to drain a
 * worker, to stop.
 *
 * A new rule holds from a drained boundary on: no round begins, open rounds come to
 * their end, the journal has the rule on disk, and then the scheduler gets the rule. */
#include "server/coord_priv.h"

#include "base/mem.h"
#include "job/policy.h"
#include "sched/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct fal_policy *
fal_coord_policy_now(const struct fal_coord *c)
{
	coord_enter(c);
	return fal_sched_policy(c->sched);
}

uint64_t
fal_coord_front(const struct fal_coord *c)
{
	coord_enter(c);
	return fal_sched_front(c->sched);
}

void
coord_policy_free(struct fal_coord *c)
{
	struct coord_policy_control *k = &c->control;
	fal_policy_free(&k->pending);
	for (size_t i = 0; i < k->n_scheduled; i++)
		fal_policy_free(&k->scheduled[i].policy);
	free(k->scheduled);
}

static bool
job_is_over(const struct fal_coord *c)
{
	return c->is_finished || c->failure != NULL || c->control.stopping;
}

void
coord_trace_policy(struct fal_coord *c, double now, uint64_t clock, const char *by)
{
	const struct fal_policy *p = fal_coord_policy_now(c);
	struct fal_buf rule = { 0 }, policy = { 0 };
	if (by != c->control.set_by)
		snprintf(c->control.set_by, sizeof(c->control.set_by), "%s", by);
	bool more = p->no_clones || p->workers > 0;
	fal_rule_put(&p->rule, &rule);
	fal_put_u8(&rule, '\0');
	fal_policy_json_put(p, &policy);
	if (rule.err < 0 || policy.err < 0)
		fal_out_of_memory();
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_POLICY,
			  &(struct fal_ev_policy){
				  .clock = clock,
				  .version = c->versions.published,
				  .scheme = (const char *)rule.p,
				  .by = by,
				  .policy = { more ? (const char *)policy.p : NULL,
					      policy.n } });
	fal_buf_free(&rule);
	fal_buf_free(&policy);
}

static void
trace_hold(struct fal_coord *c, double now, const char *why, const char *by)
{
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_HOLD,
			  &(struct fal_ev_hold){ why, by });
}

/* The change that waits is over, with this result. */
static void
finish_change(struct fal_coord *c, uint64_t clock, int err)
{
	c->control.has_pending = false;
	fal_policy_free(&c->control.pending);
	if (c->ops.changed == NULL)
		return;
	c->ops.changed(coord_begin_callback(c), c->control.ticket, clock, err);
	coord_end_callback(c);
}

bool
coord_holds(const struct fal_coord *c)
{
	const struct coord_policy_control *k = &c->control;
	const bool other =
		k->has_pending &&
		!fal_rule_eq(&fal_sched_policy(c->sched)->rule, &k->pending.rule);
	return k->is_paused || k->stopping || other || c->placement.move.waits ||
	       c->placement.move.begun;
}

/* The policy stands in the journal (design.md, I16); or why not. */
static int
journal_policy(struct fal_coord *c, const struct fal_policy *p, uint64_t clock,
	       const char *by)
{
	if (c->ops.journal == NULL)
		return FAL_OK;
	int err = c->ops.journal(coord_begin_callback(c), p, clock, c->versions.published,
				 by);
	coord_end_callback(c);
	return err;
}

/* The policy holds from now on. */
static void
apply_policy(struct fal_coord *c, double now, const struct fal_policy *p, const char *by)
{
	const bool other = !fal_rule_eq(&fal_coord_policy_now(c)->rule, &p->rule);
	/* As the journal has it: what is begun under it is not behind it. */
	const uint64_t clock = fal_coord_front(c);
	coord_record_error(c, fal_sched_set_policy(c->sched, now, p));
	coord_retain_versions(c, fal_sched_versions(c->sched));
	c->control.clocks_end_out_of_order |= !fal_rule_traits(&p->rule).shared;
	if (other)
		coord_command_shards(c, &(struct fal_shard_order){
						.kind = FAL_ORDER_FORGET });
	for (uint32_t i = 0; i < c->sessions.workers && other; i++)
		c->sessions.worker[i].momentum = false;
	if (c->err == 0)
		coord_trace_policy(c, now, clock, by);
}

void
fal_coord_again(struct fal_coord *c, const struct fal_policy *p, uint64_t clock,
		const char *by)
{
	coord_enter(c);
	struct coord_policy_control *k = &c->control;
	FAL_XGROW(k->scheduled, k->scheduled_cap, k->n_scheduled + 1);
	struct coord_scheduled_policy *a = &k->scheduled[k->n_scheduled];
	*a = (struct coord_scheduled_policy){ .clock = clock };
	snprintf(a->by, sizeof(a->by), "%s", by);
	a->policy = fal_policy_copy(p);
	k->n_scheduled++;
}

uint64_t
coord_scheduled_policy_clock(const struct fal_coord *c)
{
	return c->control.n_scheduled > 0 ? c->control.scheduled[0].clock : UINT64_MAX;
}

/* A policy that held from here on in an earlier incarnation holds again. */
static void
apply_scheduled(struct fal_coord *c, double now, bool quiet)
{
	struct coord_policy_control *k = &c->control;
	while (c->err == 0 && k->n_scheduled > 0 &&
	       fal_coord_front(c) >= k->scheduled[0].clock &&
	       (quiet || fal_rule_eq(&fal_coord_policy_now(c)->rule,
				     &k->scheduled[0].policy.rule))) {
		apply_policy(c, now, &k->scheduled[0].policy, k->scheduled[0].by);
		fal_policy_free(&k->scheduled[0].policy);
		memmove(k->scheduled, k->scheduled + 1,
			--k->n_scheduled * sizeof(*k->scheduled));
	}
}

void
coord_policy_advance(struct fal_coord *c, double now)
{
	struct coord_policy_control *k = &c->control;
	/* The work under the old rule is told before that rule ends. */
	bool quiet = fal_sched_quiet(c->sched) && c->rounds.n_pending == 0;
	if (c->placement.move.begun)
		return;
	if (k->stopping && (quiet || !fal_sched_staffed(c->sched)))
		k->stopped = true;
	apply_scheduled(c, now, quiet);
	coord_move_advance(c, now, quiet);
	if (!k->has_pending || c->placement.move.begun || c->err < 0)
		return;
	const uint64_t clock = fal_coord_front(c);
	if (c->is_finished || c->failure != NULL) {
		finish_change(c, clock, FAL_ESTATE);
		return;
	}
	if (!quiet && !fal_rule_eq(&fal_coord_policy_now(c)->rule, &k->pending.rule))
		return;
	const int kept = journal_policy(c, &k->pending, clock, k->pending_by);
	if (kept == FAL_OK)
		apply_policy(c, now, &k->pending, k->pending_by);
	if (c->err == 0)
		finish_change(c, clock, kept);
	fal_sched_hold(c->sched, now, coord_holds(c));
}

/* After a call of a controller: what it has made possible happens. */
static int
go_on(struct fal_coord *c, double now)
{
	coord_policy_advance(c, now);
	return coord_advance(c, now);
}

int
fal_coord_policy(struct fal_coord *c, double now, const struct fal_policy *p,
		 const char *by, uint64_t ticket, struct fal_diag *diag)
{
	coord_enter(c);
	struct coord_policy_control *k = &c->control;
	if (job_is_over(c))
		return fal_diag_set(diag, FAL_ESTATE, "the job is over");
	if (c->is_external)
		return fal_diag_set(diag, FAL_ESTATE,
				    "the policy of a group server is its --scheme");
	if (k->n_scheduled > 0)
		return fal_diag_set(diag, FAL_ESTATE,
				    "the policy of before, by '%s', is to hold again "
				    "first, from clock %" PRIu64 " on",
				    k->scheduled[0].by, k->scheduled[0].clock);
	if (k->has_pending)
		return fal_diag_set(diag, FAL_ESTATE,
				    "a change by '%s' waits for its boundary",
				    k->pending_by);
	k->pending = fal_policy_copy(p);
	k->has_pending = true;
	k->ticket = ticket;
	snprintf(k->pending_by, sizeof(k->pending_by), "%s", by);
	if (!fal_rule_eq(&fal_coord_policy_now(c)->rule, &p->rule)) {
		fal_sched_hold(c->sched, now, true);
		trace_hold(c, now, "policy", k->pending_by);
	}
	return go_on(c, now);
}

const struct fal_policy *
fal_coord_policy_next(const struct fal_coord *c, const char **by)
{
	coord_enter(c);
	*by = c->control.pending_by;
	return c->control.has_pending ? &c->control.pending : NULL;
}

int
fal_coord_policy_beside(struct fal_coord *c, double now, struct fal_coord_beside *b)
{
	coord_enter(c);
	struct coord_policy_control *k = &c->control;
	const struct fal_rule *is = &fal_coord_policy_now(c)->rule;
	if (job_is_over(c) || c->placement.move.begun || !k->has_pending ||
	    fal_rule_eq(is, &k->pending.rule) || !fal_rule_eq(is, &b->p->rule) ||
	    !fal_rule_eq(&k->pending.rule, &b->next->rule))
		return FAL_ESTATE;
	b->clock = fal_coord_front(c);
	b->kept = journal_policy(c, b->p, b->clock, b->by);
	if (b->kept < 0)
		return FAL_OK;
	fal_policy_free(&k->pending);
	k->pending = fal_policy_copy(b->next);
	apply_policy(c, now, b->p, b->by);
	return go_on(c, now);
}

int
fal_coord_give_up(struct fal_coord *c, double now, uint64_t ticket)
{
	coord_enter(c);
	struct coord_policy_control *k = &c->control;
	if (!k->has_pending || k->ticket != ticket)
		return FAL_OK;
	k->has_pending = false;
	fal_policy_free(&k->pending);
	fal_sched_hold(c->sched, now, coord_holds(c));
	return go_on(c, now);
}

int
fal_coord_hold(struct fal_coord *c, double now, bool hold, const char *by)
{
	coord_enter(c);
	struct coord_policy_control *k = &c->control;
	if (hold == k->is_paused)
		return FAL_OK;
	k->is_paused = hold;
	trace_hold(c, now, hold ? "paused" : "resumed", by);
	fal_sched_hold(c->sched, now, coord_holds(c));
	return go_on(c, now);
}

int
fal_coord_drain(struct fal_coord *c, double now, const char *name, struct fal_diag *diag)
{
	coord_enter(c);
	struct fal_msg m = { .type = FAL_MSG_DRAIN, .drain.why = "drained" };
	bool found = false;
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		const struct coord_peer *p = &c->sessions.peer[i];
		if (!p->ready || p->left || strcmp(p->name, name) != 0)
			continue;
		coord_send(c, p->id, &m);
		found = true;
	}
	if (!found)
		return fal_diag_set(diag, FAL_ENOENT, "'%s' is no worker of this job",
				    name);
	return go_on(c, now);
}

int
fal_coord_stop(struct fal_coord *c, double now, const char *by)
{
	coord_enter(c);
	if (job_is_over(c))
		return FAL_OK;
	c->control.stopping = true;
	trace_hold(c, now, "stopped", by);
	fal_sched_hold(c->sched, now, true);
	return go_on(c, now);
}
