/* consgd: constant learning rate for updates (Jiang, Cui, Zhang, Yu, SIGMOD 2017;
 * schemes.md, consgd).  As ssp, but workers push the change of weights of their local
 * steps.  The server adds λ times the change; λ is 1/M, for M workers, unless the rule
 * sets λ. */
#include "sched/scheme.h"

static void
consgd_round_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	double lambda = s->policy.rule.lambda;
	const struct fal_act end = { .fate = FAL_FATE_ADD,
				     .weight = lambda > 0 ? lambda : 1.0 / s->active,
				     .among = lambda > 0 ? 0 : s->active };
	fal_round_apply_alone(s, r, end, now);
}

const struct fal_scheme fal_scheme_consgd = {
	.team_state_bytes = sizeof(struct fal_ssp_local),
	.may_begin = fal_ssp_may_begin_local,
	.begin_round = fal_ssp_begin_local,
	.round_complete = consgd_round_complete,
	.round_lost = fal_ssp_lost_local,
};
