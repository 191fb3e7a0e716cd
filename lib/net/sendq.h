/* The sending half of a session.  Input: messages.  Output: records in the order of the
 * wire, and batches of records for the socket.  Also measures the rate at which the
 * socket takes batches.
 *
 * Two queues, control before bulk.  A message is compressed and sealed only when it
 * leaves, as the nonces follow the order of the wire.  Nothing here uses a descriptor.
 */
#ifndef FAL_NET_SENDQ_H
#define FAL_NET_SENDQ_H

#include "base/buf.h"
#include "net/broadcast.h"
#include "wire/zip.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#define FAL_WRITER_ZIP_MIN 512 /* bytes; smaller messages are not compressed */
#define FAL_WRITER_TRIAL ((size_t)1 << 20) /* bytes of bulk in a measurement, */
#define FAL_WRITER_TRIES 64                /* and messages and publications at most */

enum fal_send {
	FAL_SEND_CONTROL,      /* before all bulk; never compressed */
	FAL_SEND_BULK,         /* compressed if the connection compresses */
	FAL_SEND_COMPRESSED,   /* bulk that is always compressed: texts, traces, snapshots
				*/
	FAL_SEND_PRECOMPRESSED /* made by fal_zip_compress: sent as it is */
};

enum fal_compress { FAL_COMPRESS_NEVER, FAL_COMPRESS_ALWAYS, FAL_COMPRESS_AUTO };

struct fal_node; /* a queued message */

/* Bytes for the wire. */
struct fal_piece {
	const uint8_t *p;
	size_t n;
	struct fal_node *node;     /* owns p, or NULL */
	struct fal_shared *shared; /* lends p, its record `at`; or NULL */
	uint32_t at;
};

TAILQ_HEAD(fal_fifo, fal_node);

struct fal_writer {
	/* Seals messages; the caller sets `tx`, the writer owns it.  Without a key only
	 * raw bytes leave. */
	struct fal_seal tx;
	/* For readers: */
	size_t queued;              /* bytes of queued messages, without publications */
	struct fal_zip_stat zipped; /* all that was compressed here */
	bool trial;                 /* a measurement of FAL_COMPRESS_AUTO runs; */
	bool pays;                  /* the last trial has found that compression pays */
	/* private */
	struct fal_fifo control, bulk;
	size_t cap;
	unsigned shared;
	enum fal_compress mode;
	unsigned tries;
	struct fal_zip_stat measured;
	struct fal_zip *zip;
	struct fal_buf packed;
	struct fal_fifo spare; /* nodes with room for FAL_RECORD_MAX */
	unsigned spares;
	bool unsealed;
};

/* Makes a writer for at most `cap` queued bytes.  fal_writer_free drops the queue, and
 * wipes and frees the writer; does nothing with NULL. */
struct fal_writer *fal_writer_new(size_t cap);
void fal_writer_free(struct fal_writer *w);

/* Queues a copy of n ≤ FAL_RECORD_MAX bytes.  FAL_ELIMIT: too long, or more than `cap`
 * would be queued; FAL_ENOMEM. */
int fal_writer_put(struct fal_writer *w, const void *msg, size_t n, enum fal_send how);

/* Queues an unseal record of n bytes as control.  After an empty unseal record all
 * records of messages are unsealed. */
void fal_writer_put_unseal(struct fal_writer *w, const void *p, size_t n);

/* Queues bytes that leave as they are, before all else in the queue: handshakes. */
void fal_writer_put_raw(struct fal_writer *w, const void *p, size_t n);

/* Queues a publication by reference.  While its next record is not made, later bulk
 * leaves before that record.  FAL_ELIMIT beyond FAL_VERSIONS_MAX versions. */
int fal_writer_put_shared(struct fal_writer *w, struct fal_shared *s);

/* Drops the unsent rest of outdated publications in the queue. */
typedef bool fal_is_outdated_fn(const void *arg, const struct fal_shared *s);
void fal_writer_drop_outdated(struct fal_writer *w, fal_is_outdated_fn *is_old,
			      const void *arg);

/* Is the queue without records that could leave?  Records not made yet do not count. */
bool fal_writer_is_idle(const struct fal_writer *w);

/* See fal_chan_compress.  During a measurement fal_writer_next needs `rate`, the link's
 * bytes a second (0: not known yet); if the rate is not known at the end of the
 * measurement, the link is too fast for compression. */
void fal_writer_compress(struct fal_writer *w, enum fal_compress mode);
bool fal_writer_is_compressing(const struct fal_writer *w);

/* Gets the next bytes for the wire.  Returns 1 with `out`, which the caller frees with
 * fal_piece_free; 0: nothing to send yet; FAL_ELIMIT: the nonces are used up;
 * FAL_ENOMEM. */
int fal_writer_next(struct fal_writer *w, double rate, struct fal_piece *out);

/* Frees a piece, before its writer is freed. */
void fal_piece_free(struct fal_piece *piece);

/* The batch that the socket takes at once: sealed records. */
#define FAL_OUTBOX_PIECES 256               /* records at most */
#define FAL_OUTBOX_MAX ((size_t)1 << 20)    /* bytes at most */
#define FAL_OUTBOX_SMALL ((size_t)64 << 10) /* the least limit in bytes */
#define FAL_OUTBOX_S 0.002                  /* seconds of a batch, between these limits */

/* {0} is empty and valid.  Callers only read, and set `offered`. */
struct fal_outbox {
	size_t bytes;     /* 0: empty */
	size_t own;       /* bytes of all records except publications */
	size_t taken;     /* by the socket */
	uint64_t offered; /* uv_hrtime when the socket was offered the whole batch */
	uint64_t tx;      /* bytes that were taken, ever */
	double rate;      /* bytes a second; 0: not known */
	/* private */
	struct fal_piece piece[FAL_OUTBOX_PIECES];
	unsigned n;
	uint64_t rate_bytes, rate_ns; /* the running measurement */
};

/* Seals the next records, up to `limit` bytes; `rate` as fal_writer_next.  After an error
 * the sealed records are left to fal_outbox_drop. */
int fal_outbox_fill(struct fal_outbox *b, struct fal_writer *w, size_t limit,
		    double rate);

/* Give the bytes that the socket has not taken.  The first function sets `out` to buffers
 * and returns their number; the second copies the bytes to `out`. */
unsigned fal_outbox_bufs(const struct fal_outbox *b, uv_buf_t out[FAL_OUTBOX_PIECES]);
void fal_outbox_copy(const struct fal_outbox *b, char *out);

/* fal_outbox_advance: the socket has taken n more bytes.  fal_outbox_complete: the socket
 * has taken all bytes; drops the batch.  fal_outbox_drop drops the batch. */
void fal_outbox_advance(struct fal_outbox *b, size_t n);
void fal_outbox_complete(struct fal_outbox *b);
void fal_outbox_drop(struct fal_outbox *b);

/* Returns the bytes that the socket takes in FAL_OUTBOX_S, as the limit of a batch. */
size_t fal_outbox_limit(const struct fal_outbox *b);

#endif
