/* Who was ever given what: of each of n things, every worker that was given it.  A claim
 * must be of what was given, be it that it was taken back while the claim was under way.
 */
#ifndef FAL_SCHED_HOLDS_H
#define FAL_SCHED_HOLDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* {0} is empty and valid. */
struct fal_holds {
	uint32_t *newest; /* by thing: index of its newest entry + 1; 0: none */
	size_t newest_cap;
	struct fal_hold {
		uint32_t worker, older;
	} *v;
	uint32_t n;
	size_t cap;
};

/* Empty again, for n things. */
void fal_holds_open(struct fal_holds *h, uint32_t n);
void fal_holds_free(struct fal_holds *h);

/* Once more counts once. */
void fal_holds_give(struct fal_holds *h, uint32_t thing, uint32_t worker);

bool fal_holds_has(const struct fal_holds *h, uint32_t thing, uint32_t worker);

#endif
