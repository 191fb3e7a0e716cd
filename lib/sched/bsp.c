/* bsp: bulk synchronous parallel.  The machinery of epsp with equal static shares:
 * nothing moves, nothing is cloned, lanes stay. */
#include "sched/state.h"

static double
cost(const struct fal_sched *s, const struct fal_worker *w, uint32_t n, double now)
{
	(void)s;
	(void)now;
	return (double)w->work.done + n;
}

const struct fal_scheme fal_scheme_bsp = { .name = "bsp", .cost = cost };
