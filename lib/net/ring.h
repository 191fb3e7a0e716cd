/* A ring of bytes from one program to another on this machine: messages are laid into it,
 * and where they are is said over the stream, in their order.
 *
 * The receiver makes it, copies each message out before it looks at it, and believes no
 * number that lies there.  Where there is no room the sender does not wait: the message
 * goes over the stream.
 */
#ifndef FAL_NET_RING_H
#define FAL_NET_RING_H

#include "net/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a ring: as a contribution has them that is not compressed, between these. */
#define FAL_RING_LEAST ((size_t)256 << 10)
#define FAL_RING_MOST ((size_t)4 << 20)

struct fal_ring;     /* opaque: the receiver's */
struct fal_ring_end; /* opaque: the sender's */

/* What a ring should have for versions of so many bytes. */
size_t fal_ring_bytes(size_t version);

/* Of so many bytes, a multiple of 64.  FAL_EIO: not on this system; FAL_ENOMEM. */
int fal_ring_new(size_t bytes, struct fal_ring **out);
void fal_ring_free(struct fal_ring *r); /* may be NULL */
int fal_ring_hand(struct fal_ring *r);  /* its descriptor, the caller's from now on */
/* Copies a message of w->n ≤ FAL_RECORD_MAX bytes out, and makes room of all up to its
 * end.  FAL_EFORMAT: it lies nowhere, or before what was taken. */
int fal_ring_take(struct fal_ring *r, const struct fal_where *w, void *to);

/* Maps a ring of so many bytes, a multiple of 64; the descriptor stays the caller's.
 * Errors as fal_area_map. */
int fal_ring_join(int fd, size_t bytes, struct fal_ring_end **out);
void fal_ring_end_free(struct fal_ring_end *e); /* may be NULL */
/* Lays a message into it, and says where; false: there is no room. */
bool fal_ring_put(struct fal_ring_end *e, const void *p, size_t n, struct fal_where *out);

#endif
