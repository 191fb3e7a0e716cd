/* Work in parts, several of which an owner of threads may do at a time.
 *
 * A pure room with such work is given a struct fal_parallel; it owns no threads itself.
 * The result must not depend on the order of the parts.
 */
#ifndef FAL_BASE_PARALLEL_H
#define FAL_BASE_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

/* Does part `part` of `work` on thread `thread`, which does one part at a time: so memory
 * kept by thread is this part's meanwhile. */
typedef void fal_part_fn(void *work, uint32_t part, uint32_t thread);

struct fal_parallel {
	uint32_t threads; /* numbered from 0, the caller's */
	/* Does all parts, and returns when they are done. */
	void (*each)(void *arg, uint32_t parts, fal_part_fn *part, void *work);
	void *arg;
};

/* Does all parts; with NULL one after the other.  A part may not call this again. */
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
