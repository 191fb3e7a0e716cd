/* The most that a store has at a time, for whoever counts its bytes. */
#ifndef FAL_STORE_MOST_H
#define FAL_STORE_MOST_H

#include <stdbool.h>
#include <stdint.h>

struct fal_store_most {
	uint32_t versions; /* that are kept, the newest with them, */
	/* … and so many more, until the next one is whole everywhere: what a shard has of
	 * the newest while it makes that, and what other shards may lack tasks of. */
	uint32_t beyond;
	uint32_t rounds; /* sums: of open ones, and what is collected of others */
	uint32_t lines;
	bool deltas; /* they bring changes of weights */
	bool outer;  /* lines are pushed by an outer step */
};

#endif
