/* bsp: bulk synchronous parallel.  All workers have one round per clock, with equal
 * shares, or, shares=speed, in proportion to measured speed (LB-BSP, Chen et al. 2018;
 * schemes.md, bsp): no task moves, no task is cloned, lanes stay. */
#include "sched/scheme.h"

const struct fal_scheme fal_scheme_bsp = { .round_complete = fal_clock_complete };
