/* asp: asynchronous parallel.  Every worker has rounds of its own, applied at once; no
 * worker waits for others (schemes.md, asp). */
#include "sched/scheme.h"

static void
asp_round_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_MERGE, .weight = 1 };
	fal_round_apply_alone(s, r, end, now);
}

const struct fal_scheme fal_scheme_asp = { .round_complete = asp_round_complete };
