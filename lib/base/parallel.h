/* Work that falls into parts, which several threads may do at the same time.
 *
 * The pure rooms own no threads: their callers pass a struct fal_parallel.  The result
 * must not depend on the order of the parts.
 */
#ifndef FAL_BASE_PARALLEL_H
#define FAL_BASE_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

/* Does part `part` of `work` on thread `thread`.  A thread does one part at a time, so
 * the part may use memory that belongs to the thread. */
typedef void fal_part_fn(void *work, uint32_t part, uint32_t thread);

struct fal_parallel {
	uint32_t threads; /* numbered from 0; 0 is the caller */
	/* Does all parts, and returns when they are done. */
	void (*each)(void *arg, uint32_t parts, fal_part_fn *part, void *work);
	void *arg;
};

/* Does all parts; without `p`, one after the other.  A part must not call this. */
static inline void
fal_parallel_each(const struct fal_parallel *p, uint32_t parts, fal_part_fn *part,
		  void *work)
{
	if (p != NULL && p->threads > 1 && parts > 1) {
		p->each(p->arg, parts, part, work);
		return;
	}
	for (uint32_t i = 0; i < parts; i++)
		part(work, i, 0);
}

static inline uint32_t
fal_parallel_threads(const struct fal_parallel *p)
{
	return p != NULL ? p->threads : 1;
}

#endif
