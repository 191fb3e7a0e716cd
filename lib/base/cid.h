/* The name of a contribution. */
#ifndef FAL_BASE_CID_H
#define FAL_BASE_CID_H

#include <stdbool.h>
#include <stdint.h>

/* The worker's id and the number of the contribution, both from 1.  The worker numbers
 * its contributions; with the bit FAL_PRECLAIMED, the coordinator has chosen the number,
 * and claimed the tasks as they were granted.  {0, 0} names no contribution. */
struct fal_contrib_id {
	uint32_t worker;
	uint32_t seq;
};
#define FAL_PRECLAIMED UINT32_C(0x80000000)

static inline bool
fal_contrib_id_equal(struct fal_contrib_id a, struct fal_contrib_id b)
{
	return a.worker == b.worker && a.seq == b.seq;
}

#endif
