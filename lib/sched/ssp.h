/* What the schemes on SSP's base share (ssp.c). */
#ifndef FAL_SCHED_SSP_H
#define FAL_SCHED_SSP_H

#include "sched/scheme.h"

/* SSP's bound: at most s clocks ahead of the slowest. */
bool fal_ssp_may_begin(const struct fal_sched *s, const struct fal_team *t);
/* s = 0: of the clock whose rounds are being collected. */
bool fal_ssp_under_way(const struct fal_sched *s, const struct fal_team *t);
/* Ends the round as `end` says, and steps. */
void fal_apply_alone(struct fal_sched *s, struct fal_round *r, struct fal_act end,
		     double now);
void fal_ssp_complete(struct fal_sched *s, struct fal_round *r, double now);

/* With local steps a team pulls only when what it pulled last is too old, else it goes on
 * by itself.  What is kept of it then, at t->own; for ssp.c alone. */
struct fal_ssp_local {
	uint64_t pulled; /* slowest clock when it pulled last */
	bool based;      /* has weights of its own to go on from */
};
void fal_ssp_begin_local(struct fal_sched *s, struct fal_team *t, struct fal_round *r);
bool fal_ssp_may_begin_local(const struct fal_sched *s, const struct fal_team *t);
void fal_ssp_lost_local(struct fal_team *t);

#endif
