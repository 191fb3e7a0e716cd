/* The sending half of a session: messages in, records in the order of the wire out.
 *
 * Two queues, control before bulk.  A message is compressed and sealed when its turn has
 * come, as the nonces follow the order of the wire.  It touches no descriptor.
 */
#ifndef FAL_NET_WRITER_H
#define FAL_NET_WRITER_H

#include "base/buf.h"
#include "net/shared.h"
#include "wire/zip.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_WRITER_ZIP_MIN 512             /* bytes; smaller messages stay plain */
#define FAL_WRITER_TRIAL ((size_t)1 << 20) /* bytes of bulk that a measurement takes, */
#define FAL_WRITER_TRIES 64                /* and messages and publications at most */

enum fal_send {
	FAL_SEND_CONTROL, /* before all bulk; never compressed */
	FAL_SEND_BULK,    /* compressed if the connection is */
	FAL_SEND_PACKED,  /* bulk that is always compressed: texts, traces, snapshots */
	FAL_SEND_ZIPPED   /* bulk that fal_zip_compress made: it leaves as it is */
};

enum fal_compress { FAL_COMPRESS_NEVER, FAL_COMPRESS_ALWAYS, FAL_COMPRESS_AUTO };

struct fal_node;   /* a queued message */
struct fal_writer; /* opaque */

/* Bytes for the wire. */
struct fal_piece {
	const uint8_t *p;
	size_t n;
	struct fal_node *node;     /* owns p, or NULL */
	struct fal_shared *shared; /* lends p, its record `at`; or NULL */
	uint32_t at;
};

/* For at most `cap` bytes that wait; NULL: out of memory.  Freed, with what waits, it is
 * wiped; NULL is let be. */
struct fal_writer *fal_writer_new(size_t cap);
void fal_writer_free(struct fal_writer *w);

/* What messages are sealed with; taken.  Without it only raw bytes leave. */
void fal_writer_key(struct fal_writer *w, const struct fal_seal *tx);

/* Bytes of messages that wait; shared ones are not copied.  All that was compressed
 * here. */
size_t fal_writer_queued(const struct fal_writer *w);
struct fal_zip_stat fal_writer_zipped(const struct fal_writer *w);

/* Queues a copy of n ≤ FAL_RECORD_MAX bytes.  FAL_ELIMIT when that is too long or more
 * than `cap` would wait; FAL_ENOMEM. */
int fal_writer_put(struct fal_writer *w, const void *msg, size_t n, enum fal_send how);

/* Queues an unseal record of n bytes, with control; behind an empty one all records of
 * messages are unsealed.  FAL_ENOMEM. */
int fal_writer_put_unseal(struct fal_writer *w, const void *p, size_t n);

/* Queues bytes that leave as they are, before anything else that waits: handshakes. */
int fal_writer_put_raw(struct fal_writer *w, const void *p, size_t n);

/* Queues a publication by reference; while more of it is to be made, what is behind it
 * leaves before that.  FAL_ELIMIT beyond FAL_VERSIONS_MAX versions;
 * FAL_ENOMEM. */
int fal_writer_put_shared(struct fal_writer *w, struct fal_shared *s);

/* Forgets what was not sent yet of the publications in the queue that are old. */
typedef bool fal_old_fn(const void *arg, const struct fal_shared *s);
void fal_writer_skip_shared(struct fal_writer *w, fal_old_fn *is_old, const void *arg);

/* Does nothing wait that could leave?  Publications may, of which more is to be made. */
bool fal_writer_idle(const struct fal_writer *w);

/* See fal_chan_compress.  While a measurement goes on, fal_writer_next needs `rate`, the
 * link's bytes a second (0: not known yet); a link that shows none to the end of it is
 * too quick for that. */
void fal_writer_compress(struct fal_writer *w, enum fal_compress mode);
bool fal_writer_compressing(const struct fal_writer *w);
bool fal_writer_measuring(const struct fal_writer *w);

/* The next bytes for the wire: 1 and `out`, to be ended with fal_piece_free; 0: nothing
 * is to be sent yet; FAL_ELIMIT when the nonces are used up; FAL_ENOMEM. */
int fal_writer_next(struct fal_writer *w, double rate, struct fal_piece *out);

/* Before its writer. */
void fal_piece_free(struct fal_piece *piece);

#endif
