/* The receiving half of a session: records in, messages out.  Bytes in, bytes out.
 *
 * Authenticates, then decompresses; nothing is allocated from a number of the peer's
 * beyond FAL_RECORD_MAX.
 */
#ifndef FAL_NET_READER_H
#define FAL_NET_READER_H

#include "base/buf.h"
#include "net/record.h"
#include "wire/zip.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Publications that may arrive interleaved with their keys, of all shards. */
#define FAL_EXPECT_MAX ((size_t)FAL_SHARDS_MAX * FAL_VERSIONS_MAX)

struct fal_reader; /* opaque */

/* NULL: out of memory.  Freed, it is wiped; NULL is let be. */
struct fal_reader *fal_reader_new(void);
void fal_reader_free(struct fal_reader *r);

/* What session records are opened with; taken. */
void fal_reader_key(struct fal_reader *r, const struct fal_seal *rx);

/* All that was decompressed here.  bytes_in: as sent; bytes_out: as read. */
struct fal_zip_stat fal_reader_unzipped(const struct fal_reader *r);

/* Shared records of `pub` may come from now on; copied, key included.  Ids come in any
 * order; when FAL_EXPECT_MAX are expected the one told longest ago is given up.
 * FAL_EEXIST: this one is expected; FAL_EINVAL (id or count 0), FAL_ELIMIT (ad_n),
 * FAL_ENOMEM. */
int fal_reader_expect(struct fal_reader *r, const struct fal_publication *pub);

/* From now on records of the session come unsealed, and those of publications may; until
 * then such records are refused. */
void fal_reader_unseal(struct fal_reader *r);
bool fal_reader_is_unsealed(const struct fal_reader *r);

/* What a record held. */
enum fal_read {
	FAL_READ_NOTHING, /* it is of a publication that nobody waits for any more */
	FAL_READ_MESSAGE, /* a message */
	FAL_READ_PLACED,  /* the same; the rest of it is where fal_place_fn wanted it */
	FAL_READ_UNSEAL   /* the text of an unseal record */
};

/* Where what is behind the first *head of the n bytes of the message in record `index` of
 * `pub` is wanted, elsewhere than in the reader; NULL: nowhere.  It may be written to
 * before the record has been authenticated, so nobody may believe what is there before
 * fal_reader_next has returned FAL_READ_PLACED, which it does next or fails. */
typedef uint8_t *fal_place_fn(void *arg, const struct fal_publication *pub,
			      uint32_t index, size_t n, size_t *head);
/* Asks from now on, for each record but compressed ones; NULL: nobody. */
void fal_reader_place(struct fal_reader *r, fal_place_fn *place, void *arg);

/* Takes the record that begins the n bytes at `p`, which it decrypts in place: enum
 * fal_read, and a message, `*msg` of `*msg_n` bytes, borrowed from `p` or `r` until the
 * next call.  Then `*used` bytes are done with.  FAL_ETRUNC: all of it is not there yet.
 * All else ends the session: FAL_EFORMAT, FAL_ELIMIT, FAL_EAUTH, FAL_ENOMEM; FAL_ESTATE
 * for a publication above all that were announced or a record of one that came before. */
int fal_reader_next(struct fal_reader *r, uint8_t *p, size_t n, size_t *used,
		    const uint8_t **msg, size_t *msg_n);

#endif
