/* How stale the samples were that were used, under the three names of staleness. */
#ifndef FAL_TRACE_STALE_H
#define FAL_TRACE_STALE_H

#include "trace/lines.h"

enum fal_stale_kind {
	FAL_STALE_CLOCKS,  /* clocks before the slowest worker */
	FAL_STALE_UPDATES, /* updates between the version it ran on and the one it changed
			    */
	FAL_STALE_RANK,    /* rank of arrival in its version, from 1 */
	FAL_STALE_KINDS
};

/* Farther than this is counted here. */
#define FAL_STALE_MAX 256

/* {0} is empty and valid. */
struct fal_stale {
	uint64_t samples[FAL_STALE_KINDS][FAL_STALE_MAX + 1];
};

/* Counts the samples of a round that became a part of `version`. */
void fal_stale_add(struct fal_stale *s, const struct fal_trace_round *r,
		   uint64_t version);

const char *fal_stale_name(enum fal_stale_kind kind); /* "clocks", … */

#endif
