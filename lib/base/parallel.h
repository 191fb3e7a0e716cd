/* Work in parts, which whoever has threads may do several of at a time.
 *
 * A pure room that has such work is given one of these; it owns no threads itself.  What
 * comes of the work must be the same in whatever order its parts are done.
 */
#ifndef FAL_BASE_PARALLEL_H
#define FAL_BASE_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

/* Does part `part` of `of`, on thread `thread`, which does one at a time: memory that is
 * kept by thread is this part's meanwhile. */
typedef void fal_part_fn(void *of, uint32_t part, uint32_t thread);

struct fal_parallel {
	uint32_t threads; /* they have the numbers below this, the caller's has 0 */
	/* Does all parts, and returns when they are done. */
	void (*each)(void *arg, uint32_t parts, fal_part_fn *part, void *of);
	void *arg;
};

/* NULL: one part after the other.  No part may come to this again. */
static inline void
fal_parallel_each(const struct fal_parallel *p, uint32_t parts, fal_part_fn *part,
		  void *of)
{
	if (p != NULL && p->threads > 1 && parts > 1) {
		p->each(p->arg, parts, part, of);
		return;
	}
	for (uint32_t i = 0; i < parts; i++)
		part(of, i, 0);
}

static inline uint32_t
fal_parallel_threads(const struct fal_parallel *p)
{
	return p != NULL ? p->threads : 1;
}

#endif
