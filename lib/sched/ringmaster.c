/* ringmaster: asynchronous SGD with a threshold of delay (Maranjyan, Tyurin, Richtárik
 * 2025; schemes.md, ringmaster).  A round is applied at once if its version is less than
 * R updates old.  A round whose version becomes R updates old is abandoned, with its
 * running tasks, and its worker begins anew on the newest version. */
#include "sched/scheme.h"

static void
ringmaster_round_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_MERGE, .weight = 1 };
	const uint32_t set = s->policy.rule.threshold;
	const uint64_t threshold = set > 0 ? set : s->active;
	fal_round_apply_alone(s, r, end, now);
	if (s->version >= threshold)
		fal_rounds_abandon_before(s, s->version - threshold + 1, now);
}

const struct fal_scheme fal_scheme_ringmaster = { .round_complete =
							  ringmaster_round_complete };
