/* What goes out at once: sealed records in the hands of the socket, and the rate at which
 * it takes them.  It touches no descriptor. */
#ifndef FAL_NET_OUTBOX_H
#define FAL_NET_OUTBOX_H

#include "net/writer.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define FAL_OUTBOX_PIECES 256               /* records in one */
#define FAL_OUTBOX_MAX ((size_t)1 << 20)    /* most bytes in one */
#define FAL_OUTBOX_SMALL ((size_t)64 << 10) /* the least that is the limit */
#define FAL_OUTBOX_S 0.002 /* what one takes at the link's rate, between the two */

struct fal_outbox; /* opaque */

struct fal_outbox *fal_outbox_new(void);    /* NULL: out of memory */
void fal_outbox_free(struct fal_outbox *b); /* may be NULL */

/* Seals what goes next, up to `limit` bytes; `rate` as fal_writer_next.  0, or an error,
 * which leaves what was sealed to fal_outbox_drop. */
int fal_outbox_fill(struct fal_outbox *b, struct fal_writer *w, size_t limit,
		    double rate);

size_t fal_outbox_bytes(const struct fal_outbox *b); /* 0: nothing went in */
/* These that no other one has: all but publications. */
size_t fal_outbox_own(const struct fal_outbox *b);
/* What the socket has not taken, as buffers, of which it returns how many; all of it
 * copied, one behind the other. */
unsigned fal_outbox_bufs(const struct fal_outbox *b, uv_buf_t out[FAL_OUTBOX_PIECES]);
void fal_outbox_copy(const struct fal_outbox *b, char *out);

/* The socket is offered all of it; has taken so many bytes more; has taken all, and it is
 * dropped; it is dropped. */
void fal_outbox_offered(struct fal_outbox *b);
void fal_outbox_took(struct fal_outbox *b, size_t n);
void fal_outbox_taken(struct fal_outbox *b);
void fal_outbox_drop(struct fal_outbox *b);

/* Bytes that were taken, ever; bytes a second, 0: not known; bytes for FAL_OUTBOX_S. */
uint64_t fal_outbox_tx(const struct fal_outbox *b);
double fal_outbox_rate(const struct fal_outbox *b);
size_t fal_outbox_limit(const struct fal_outbox *b);

#endif
