/* What was read of a stream and is to be opened: bytes in, bytes out. */
#ifndef FAL_NET_INBOX_H
#define FAL_NET_INBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fal_inbox; /* opaque */

/* With room for `cap` bytes; NULL: out of memory. */
struct fal_inbox *fal_inbox_new(size_t cap);
void fal_inbox_free(struct fal_inbox *in); /* may be NULL */
/* Room for so many from now on, no fewer than there are.  FAL_ENOMEM. */
int fal_inbox_grow(struct fal_inbox *in, size_t cap);

/* Where *n more bytes may be put; what fal_inbox_bytes returned is not good any more. */
uint8_t *fal_inbox_room(struct fal_inbox *in, size_t *n);
/* n bytes were put there. */
void fal_inbox_put(struct fal_inbox *in, size_t n);

/* The *n bytes that are there, to be changed in place. */
uint8_t *fal_inbox_bytes(const struct fal_inbox *in, size_t *n);
/* The first n of them are done with. */
void fal_inbox_used(struct fal_inbox *in, size_t n);

size_t fal_inbox_left(const struct fal_inbox *in);
bool fal_inbox_full(const struct fal_inbox *in);

#endif
