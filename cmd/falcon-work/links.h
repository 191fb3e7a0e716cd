/* The streams to shards of other processes (falcon-protocol(7), SHARDS): one for each,
 * which lives and dies with the session. */
#ifndef WORK_LINKS_H
#define WORK_LINKS_H

#include "base/buf.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session;

struct links {
	struct link **v; /* in the order of their shards */
	size_t n, cap;
};

/* A MAP: in place of whoever had the same shards.  FAL_EFORMAT, FAL_ELIMIT, FAL_ENOMEM.
 */
int links_add(struct session *s, const struct fal_msg *m);
/* Dials those that were not dialled yet. */
int links_dial(struct session *s);
/* The blocks have moved: a stream that has ended and is not needed any more is forgotten.
 */
void links_moved(struct session *s);
/* Has one ended whose shards have blocks? */
bool links_adrift(const struct session *s);
/* Are all open; has each that is needed room for bulk; is all that was sent on its way;
 * are all gone? */
bool links_open(const struct session *s);
bool links_room(const struct session *s);
bool links_sent(const struct session *s);
bool links_gone(const struct session *s);
/* Sends a PUSH to the shard, if it is elsewhere; else 0.  1, or an error. */
int links_push(struct session *s, uint32_t shard, const struct fal_buf *msg);
/* Ends them when what was sent has left; at once. */
void links_close(struct session *s);
void links_kill(struct session *s);

#endif
