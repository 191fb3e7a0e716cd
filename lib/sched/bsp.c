/* bsp: bulk synchronous parallel.  All workers share one round per clock, with equal
 * shares; with shares=speed, the shares are in proportion to measured speed (LB-BSP, Chen
 * et al. 2018).  No task moves, no task is cloned, and lanes stay (schemes.md, bsp). */
#include "sched/scheme.h"

const struct fal_scheme fal_scheme_bsp = { .round_complete = fal_clock_complete };
