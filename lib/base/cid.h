/* The name of a contribution. */
#ifndef FAL_BASE_CID_H
#define FAL_BASE_CID_H

#include <stdbool.h>
#include <stdint.h>

/* A worker's id (from 1) and a number (from 1): the worker's own count, or, with the bit
 * FAL_PRECLAIMED, the coordinator's for a task that was claimed when it was granted.  {0,
 * 0} names no contribution. */
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
