/* The job's policy, and changes of the policy.
 *
 * A new rule holds from a boundary on.  No round begins until the open rounds are over;
 * then the journal writes the rule to disk; then the scheduler gets the rule. */
#include "server/coord_priv.h"

#include "base/mem.h"
#include "job/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
coord_policy_free(struct fal_coord *c)
{
	struct coord_policy_control *k = &c->control;
	fal_policy_free(&k->pending);
	for (size_t i = 0; i < k->n_scheduled; i++)
		fal_policy_free(&k->scheduled[i].policy);
	free(k->scheduled);
}

void
coord_trace_policy(struct fal_coord *c, double now, uint64_t clock, const char *by)
{
	const struct fal_policy *p = fal_sched_policy(c->sched);
	struct fal_buf rule = { 0 }, policy = { 0 };
	if (by != c->control.set_by)
		snprintf(c->control.set_by, sizeof(c->control.set_by), "%s", by);
	const bool has_more = p->no_clones || p->workers > 0;
	fal_rule_put(&p->rule, &rule);
	fal_put_u8(&rule, '\0');
	fal_policy_json_put(p, &policy);
	if (rule.err < 0 || policy.err < 0)
		fal_out_of_memory();
	coord_trace_event(c, now, FAL_EV_POLICY,
			  &(struct fal_ev_policy){
				  .clock = clock,
				  .version = c->versions.published,
				  .scheme = (const char *)rule.p,
				  .by = by,
				  .policy = { has_more ? (const char *)policy.p : NULL,
					      policy.n } });
	fal_buf_free(&rule);
	fal_buf_free(&policy);
}

int
coord_journal_policy(struct fal_coord *c, const struct fal_policy *p, uint64_t clock,
		     const char *by)
{
	if (c->ops.journal == NULL)
		return FAL_OK;
	int err = c->ops.journal(coord_begin_callback(c), p, clock, c->versions.published,
				 by);
	coord_end_callback(c);
	return err;
}

void
coord_apply_policy(struct fal_coord *c, double now, const struct fal_policy *p,
		   const char *by)
{
	const bool new_rule = coord_changes_rule(c, p);
	/* The same clock as in the journal: the policy holds for clocks that begin
	 * now. */
	const uint64_t clock = fal_sched_next_clock(c->sched);
	coord_record_error(c, fal_sched_set_policy(c->sched, now, p));
	coord_retain_versions(c, fal_sched_count_versions(c->sched));
	c->control.clocks_end_out_of_order |= !fal_rule_traits(&p->rule).shared;
	if (new_rule)
		coord_command_shards(c, &(struct fal_shard_order){
						.kind = FAL_ORDER_FORGET });
	for (uint32_t i = 0; i < c->sessions.workers && new_rule; i++)
		c->sessions.worker[i].momentum = false;
	if (c->err == 0)
		coord_trace_policy(c, now, clock, by);
}

void
fal_coord_schedule_policy(struct fal_coord *c, const struct fal_policy *p, uint64_t clock,
			  const char *by)
{
	coord_enter(c);
	struct coord_policy_control *k = &c->control;
	FAL_XGROW(k->scheduled, k->scheduled_cap, k->n_scheduled + 1);
	struct coord_scheduled_policy *s = &k->scheduled[k->n_scheduled++];
	*s = (struct coord_scheduled_policy){ .clock = clock };
	snprintf(s->set_by, sizeof(s->set_by), "%s", by);
	s->policy = fal_policy_copy(p);
}

/* Ends the pending change with this result. */
static void
end_change(struct fal_coord *c, uint64_t clock, int err)
{
	c->control.has_pending = false;
	fal_policy_free(&c->control.pending);
	COORD_CALL(c, changed, c->control.ticket, clock, err);
}

void
coord_policy_advance(struct fal_coord *c, double now)
{
	struct coord_policy_control *k = &c->control;
	/* All work under the old rule must be in the trace before that rule ends. */
	const bool is_quiet = fal_sched_is_quiet(c->sched) && c->rounds.n_pending == 0;
	if (c->placement.move.state == MOVE_RUNNING)
		return;
	if (k->stop_clock > 0 && k->stop == STOP_NONE && is_quiet &&
	    fal_sched_first_open_clock(c->sched) >= k->stop_clock) {
		const struct fal_ev_hold hold = { "stopped", "job.patience" };
		k->stop = STOP_ASKED;
		coord_trace_event(c, now, FAL_EV_HOLD, &hold);
		coord_hold_rounds(c, now);
	}
	if (k->stop == STOP_ASKED && (is_quiet || !fal_sched_has_workers(c->sched)))
		k->stop = STOP_REACHED;
	/* Policies of an earlier incarnation whose clock is reached. */
	while (c->err == 0 && k->n_scheduled > 0 &&
	       fal_sched_next_clock(c->sched) >= k->scheduled[0].clock &&
	       (is_quiet || !coord_changes_rule(c, &k->scheduled[0].policy))) {
		coord_apply_policy(c, now, &k->scheduled[0].policy,
				   k->scheduled[0].set_by);
		fal_policy_free(&k->scheduled[0].policy);
		memmove(k->scheduled, k->scheduled + 1,
			--k->n_scheduled * sizeof(*k->scheduled));
	}
	coord_move_advance(c, now, is_quiet);
	if (!k->has_pending || c->placement.move.state == MOVE_RUNNING || c->err < 0)
		return;
	const uint64_t clock = fal_sched_next_clock(c->sched);
	if (c->is_finished || c->failure != NULL) {
		end_change(c, clock, FAL_ESTATE);
		return;
	}
	if (!is_quiet && coord_changes_rule(c, &k->pending))
		return;
	const int err = coord_journal_policy(c, &k->pending, clock, k->pending_by);
	if (err == FAL_OK)
		coord_apply_policy(c, now, &k->pending, k->pending_by);
	if (c->err == 0)
		end_change(c, clock, err);
	coord_hold_rounds(c, now);
}
