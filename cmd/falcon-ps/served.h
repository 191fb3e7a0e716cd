/* What the shards of a process have done, since they were placed.
 */
#ifndef FALCON_PS_SERVED_H
#define FALCON_PS_SERVED_H

#include "shard/rack.h"
#include "wire/msg.h"

#include <stdint.h>

/* {0}: nothing. */
struct ps_served {
	uint64_t rx[FAL_SHARDS_MAX], tx[FAL_SHARDS_MAX]; /* bytes, by shard of the job */
	uint64_t service; /* ns in which it was at work on them */
	uint64_t queue; /* ns in which links had not taken what they were sent, summed */
};

/* Records have come: for the shard that has the first of their blocks. */
void ps_served_push(struct ps_served *s, const struct fal_rack *rack,
		    const struct fal_tail *records);

/* As SERVED of `count` shards from `first` on, whose tail is in `rows`; and back, into
 * the same.  FAL_EFORMAT, FAL_ENOMEM. */
int ps_served_put(const struct ps_served *s, uint32_t first, uint32_t count,
		  struct fal_msg *m, struct fal_buf *rows);
int ps_served_get(struct ps_served *s, uint32_t first, uint32_t count,
		  const struct fal_msg *m);

#endif
