/* dynsgd: a learning rate by the delay of each update (Jiang, Cui, Zhang, Yu, SIGMOD
 * 2017; schemes.md, dynsgd).  As ssp, but workers push the change of weights of their
 * local steps.
 *
 * staleness=version: the d-th change that arrives for a clock has weight 1/d, and the
 * weights of earlier changes of that clock fall from 1/(d-1) to 1/d.  When the changes of
 * all M workers have come, their effect is their mean.  staleness=updates: a change that
 * comes τ updates after its pull has weight 1/(τ+1).
 */
#include "sched/scheme.h"

static void
dynsgd_round_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	uint64_t own = r->team->clock + 1, others = fal_slowest_clock(s, r->team);
	struct fal_act end = { .fate = FAL_FATE_REWEIGHT,
			       .slot = r->team->clock,
			       .below = own < others ? own : others };
	if (s->policy.rule.by_updates) {
		end.fate = FAL_FATE_ADD;
		end.weight = 1.0 / (double)(s->version - r->info.version + 1);
	}
	fal_round_apply_alone(s, r, end, now);
}

const struct fal_scheme fal_scheme_dynsgd = {
	.team_state_bytes = sizeof(struct fal_ssp_local),
	.may_begin = fal_ssp_may_begin_local,
	.begin_round = fal_ssp_begin_local,
	.round_complete = dynsgd_round_complete,
	.round_lost = fal_ssp_lost_local,
};
