/* Records: the sealed form in which messages travel.  Bytes in, bytes out.
 *
 *     session record   u32 length, u8 type = 1, u8 flags, u16 0, sealed message
 *     shared record    u32 length, u8 type = 2, u8 flags, u16 0,
 *                      u64 publication, u32 index, sealed message
 *     unseal record    u32 length, u8 type = 3, u8 0, u16 0, sealed: a process
 *                      (net/door.h), or nothing
 *
 * `length` counts the bytes after the first 8; the whole clear head is authenticated.  A
 * record holds one message, or, with FAL_RECORD_ZSTD, one zstd frame of the message; a
 * tag of FAL_SEAL_TAG bytes follows.  The session's suite seals session and unseal
 * records, under one sequence of nonces.  ChaCha20-Poly1305 seals shared records, or,
 * with FAL_RECORD_AES, AES-256-GCM.
 *
 * A session or shared record with FAL_RECORD_UNSEALED holds its message in clear, without
 * a tag.  An empty unseal record is the last sealed record of its direction.
 */
#ifndef FAL_NET_RECORD_H
#define FAL_NET_RECORD_H

#include "base/buf.h"
#include "crypto/seal.h"
#include "sched/policy.h"
#include "wire/msg.h"
#include "wire/zip.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_RECORD_MAX 65536      /* bytes of a message */
#define FAL_RECORD_HEAD 8         /* bytes of a session record's clear head */
#define FAL_RECORD_SHARED_HEAD 20 /* head of a shared record */
#define FAL_RECORD_WIRE_MAX (FAL_RECORD_SHARED_HEAD + FAL_RECORD_MAX + FAL_SEAL_TAG)
#define FAL_SHARED_AD_MAX 128 /* associated data of a publication's owner, bytes */
/* The most versions on their way: the versions that the largest slack lets a worker
 * compute on, and the versions around an evaluation. */
#define FAL_VERSIONS_MAX (FAL_SLACK_MAX + 8)

enum fal_record_type {
	FAL_RECORD_SESSION = 1,
	FAL_RECORD_SHARED = 2,
	FAL_RECORD_UNSEAL = 3
};
enum { FAL_RECORD_ZSTD = 1, FAL_RECORD_AES = 2, FAL_RECORD_UNSEALED = 4 }; /* flags */

struct fal_record {
	uint8_t type;
	uint8_t flags;
	uint64_t publication; /* in a shared record */
	uint32_t index;       /* in a shared record */
	size_t head;          /* clear bytes */
	size_t body;          /* bytes after the head, tag included */
	size_t tag;           /* bytes of the tag: FAL_SEAL_TAG, or 0 */
};

/* The properties that all records of a publication share. */
struct fal_publication {
	uint64_t id;        /* from 1; larger than all before */
	uint32_t count;     /* records */
	const uint8_t *key; /* FAL_KEY_BYTES, of this publication alone; borrowed */
	uint8_t ad[FAL_SHARED_AD_MAX]; /* associated data of its owner */
	size_t ad_n;
	struct fal_aead *aead; /* by its suite; borrowed */
	/* The contents, for the reader's owner; not authenticated. */
	uint64_t version;
	uint32_t first, blocks;
};

/* Parses the head of the record at `p`, of n bytes so far.  FAL_ETRUNC: the record is not
 * complete.  FAL_EFORMAT (type, flags, too short) and FAL_ELIMIT as soon as 8 bytes are
 * there.
 */
int fal_record_parse_head(const uint8_t *p, size_t n, struct fal_record *out);

/* Makes a session or unseal record in place: the message's n ≤ FAL_RECORD_MAX bytes stand
 * at p + FAL_RECORD_HEAD, with room for FAL_SEAL_TAG after them.  FAL_ELIMIT as
 * fal_seal_seal. */
int fal_record_seal(struct fal_seal *tx, uint8_t type, uint8_t flags, uint8_t *p,
		    size_t n);

/* Makes an unsealed session record: writes its head at p; the message's n bytes stand at
 * p + FAL_RECORD_HEAD. */
void fal_record_put_unsealed(uint8_t flags, uint8_t *p, size_t n);

/* Makes a shared record at `p` of a message that lies elsewhere, in two places.  The
 * record authenticates the head, and the count and ad of `pub`, so that a reader knows
 * the last record.  Sealing adds the flag of the suite.  Errors as fal_aead_seal. */
int fal_record_seal_shared(const struct fal_publication *pub, uint32_t index,
			   uint8_t flags, const struct fal_aead_text *msg, uint8_t *p);

/* Makes an unsealed shared record of the same message. */
void fal_record_put_shared_unsealed(const struct fal_publication *pub, uint32_t index,
				    const struct fal_aead_text *msg, uint8_t *p);

/* ---- the receiving half of a session: records in, messages out -----------------------
 *
 * The reader authenticates, then decompresses.  No number that the peer sends makes the
 * reader allocate more than FAL_RECORD_MAX. */

/* Publications of all shards that may arrive interleaved. */
#define FAL_EXPECT_MAX ((size_t)FAL_SHARDS_MAX * FAL_VERSIONS_MAX)

/* Sets *head, and returns the memory for the bytes after the first *head of the n bytes
 * of the message in record `index` of `pub`; NULL: the reader's memory.  The reader may
 * write there before authenticating the record.  So the bytes are valid only once
 * fal_reader_next has returned FAL_READ_PLACED; the same call returns FAL_READ_PLACED or
 * fails. */
typedef uint8_t *fal_place_fn(void *arg, const struct fal_publication *pub,
			      uint32_t index, size_t n, size_t *head);

struct fal_reader {
	struct fal_seal rx; /* opens session records; the caller sets rx, the reader owns
			     * it */
	/* True, and never false again: all records of the session come unsealed, and
	 * records of publications may.  While false, the reader refuses unsealed
	 * records. */
	bool unsealed;
	/* The caller sets `place`.  The reader calls `place` for each record of a
	 * publication that is not compressed; NULL: never. */
	fal_place_fn *place;
	void *place_arg;
	/* For readers: sums over all decompressed messages; bytes_in as sent, bytes_out
	 * as read. */
	struct fal_zip_stat unzipped;
	/* private */
	struct fal_aead *shared[FAL_SUITES + 1]; /* by suite, made when needed */
	struct fal_expect *expect;               /* `cap` of them */
	uint8_t *keys;     /* their content keys, in locked memory */
	size_t cap, last;  /* last: index of the last record's publication */
	uint64_t expected; /* publications expected, ever */
	uint64_t max_id;   /* the largest of their ids */
	struct fal_zip *zip;
	struct fal_buf plain;
};

/* Makes a reader; wipes and frees a reader.  fal_reader_free does nothing with NULL. */
struct fal_reader *fal_reader_new(void);
void fal_reader_free(struct fal_reader *r);

/* Expects shared records of `pub`, which is copied, key included.  Ids come in any order.
 * Beyond FAL_EXPECT_MAX publications the reader gives up the publication expected
 * longest. FAL_EEXIST: this publication is expected; FAL_EINVAL (id or count 0),
 * FAL_ELIMIT (ad_n). */
int fal_reader_expect(struct fal_reader *r, const struct fal_publication *pub);

/* The content of a record. */
enum fal_read {
	FAL_READ_NOTHING, /* a record of a publication no longer expected */
	FAL_READ_MESSAGE, /* a message */
	FAL_READ_PLACED,  /* a message, with its rest in fal_place_fn's memory */
	FAL_READ_UNSEAL   /* the text of an unseal record */
};

/* Reads the record at `p`, of n bytes so far, and decrypts the record in place.  Returns
 * enum fal_read and a message, `*msg` of `*msg_n` bytes, borrowed from `p` or `r` until
 * the next call; sets `*used` to the bytes of the record.  FAL_ETRUNC: the record is not
 * complete.  All other errors end the session: FAL_EFORMAT, FAL_ELIMIT, FAL_EAUTH,
 * FAL_ENOMEM; FAL_ESTATE for a publication beyond all announced ones, or for a record
 * that has come before. */
int fal_reader_next(struct fal_reader *r, uint8_t *p, size_t n, size_t *used,
		    const uint8_t **msg, size_t *msg_n);

/* Returns the nanoseconds that decompressing the n bytes at `p` takes.  `z` has made
 * these bytes; `scratch` is memory for the result. */
uint64_t fal_unzip_ns(struct fal_zip *z, const void *p, size_t n,
		      struct fal_buf *scratch);

#endif
