/* What a scheme is, as far as anybody but its own file must know.
 *
 * The one table of it: whoever wants to know whether rounds are shared, gradients late or
 * weights changed asks here by rule, and names no scheme.
 */
#ifndef FAL_SCHED_TRAITS_H
#define FAL_SCHED_TRAITS_H

#include "sched/rule.h"

#include <stdbool.h>
#include <stdint.h>

/* What holds under a rule. */
struct fal_traits {
	/* Whose rounds are: one of these. */
	bool shared; /* of all workers: a clock is a round */
	bool groups; /* of a group of workers */
	bool own;    /* of one worker */

	bool delta;   /* they bring changes of weights by local steps, not gradients */
	bool local;   /* weights are stepped between updates: so, or on a group's line */
	bool mixed;   /* one may be computed on several versions */
	bool moves;   /* tasks go to others as speeds turn out */
	bool waits;   /* somebody may have to wait for others */
	bool bounded; /* nobody is more than `slack` clocks before the slowest */
	bool waves;   /* own rounds, but those of a clock are collected and applied as one
		       */

	bool law;       /* the model is the same whoever computes what */
	bool ahead;     /* an update may be ordered before its tasks are in */
	bool alone;     /* each round is an update of its own, or one of a quorum's: those
			   of others come in between */
	bool collects;  /* a version may be made of several rounds */
	bool fresh;     /* it is made of rounds on the version before it, and no others */
	bool counted;   /* a mean gradient is over the samples that came, not a clock's */
	bool ranked;    /* rounds count by the order in which they come to their slot */
	bool slacks;    /* its slack is of versions: */
	uint32_t delay; /* versions by which each update is late, on purpose */
};

struct fal_traits fal_rule_traits(const struct fal_rule *r);

/* "bsp"; static. */
const char *fal_scheme_name(enum fal_scheme_id id);

#endif
