/* How long a clock may take, at most, in a plan where all machines but the last hang, and
 * how much work that may be. */
#ifndef BOUND_H
#define BOUND_H

#include "cluster.h"

/* What a clock may take: twice what the honest machine, the last one, needs alone, and a
 * deadline for each of the others that hang. */
double bound_s(const struct plan *p);

/* How often the coordinator may wake up in a second in which so many things happen. */
double bound_wakes(const struct plan *p, uint32_t came);

#endif
