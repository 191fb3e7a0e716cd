/* Shared records: messages that are packed and sealed once for many channels.
 *
 * A publication is made by one thread, and what is made of it may go out meanwhile; its
 * count of references is not atomic, so all its channels live in one loop.
 */
#ifndef FAL_NET_SHARED_H
#define FAL_NET_SHARED_H

#include "base/parallel.h"
#include "net/record.h"
#include "wire/zip.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fal_shared; /* opaque, reference-counted */

/* What publications need while they are made, kept for the next one: keys, contexts to
 * seal with, memory to compress with, and that of their records, as new pages cost as
 * much as the sealing.  It outlives them.  `parallel` (borrowed; NULL: none) seals and
 * compresses. */
struct fal_shared_pool *fal_shared_pool_new(const struct fal_parallel *parallel);
/* Memory of records is not kept, until more are made. */
void fal_shared_pool_trim(struct fal_shared_pool *p);
void fal_shared_pool_free(struct fal_shared_pool *p); /* may be NULL */

struct fal_shared_opt {
	struct fal_shared_pool *pool;
	uint64_t publication; /* from 1, larger than every one before; each encoding of
			       * a version is a publication */
	uint32_t count;       /* messages that will be added, at least 1 */
	const void *ad;       /* what all readers must agree on: job, incarnation, */
	size_t ad_n;          /* version, …; at most FAL_SHARED_AD_MAX bytes, borrowed */
	uint64_t version; /* for whoever is to tell old ones, see fal_chan_skip_shared */
	uint32_t parts;   /* publications that a version has; 0: one */
	uint8_t suite;    /* 0: ChaCha20-Poly1305, which all readers open */
	bool zstd;        /* compress each message that gets smaller by it */
	bool lasting;     /* the same */
	bool unsealed; /* for channels of fal_chan_is_unsealed alone; not with `zstd` */
};

/* A publication without records, under a fresh random key; the caller holds the one
 * reference.  FAL_ELIMIT (ad_n), FAL_EINVAL (publication or count 0), FAL_EVERSION (no
 * such suite here). */
int fal_shared_new(const struct fal_shared_opt *opt, struct fal_shared **out);

/* Makes records of n messages (borrowed), the next ones to leave, each of which lies in
 * two places.  `index` is its number in the publication, below `count` and of no other
 * one.  FAL_ELIMIT beyond FAL_RECORD_MAX, FAL_ESTATE when `count` are in already,
 * FAL_ENOMEM: then none is in. */
struct fal_shared_text {
	struct fal_aead_text msg;
	uint32_t index;
};
int fal_shared_add_texts(struct fal_shared *s, const struct fal_shared_text *of,
			 uint32_t n);

/* No more messages will be added, though not all are in: channels that have sent what
 * there is leave the rest out, which their readers find out from the next publication. */
void fal_shared_break(struct fal_shared *s);

/* One reference more; returns `s`. */
struct fal_shared *fal_shared_ref(struct fal_shared *s);

/* One reference less; the last one wipes the key and frees, but for records that are
 * lent. May be NULL. */
void fal_shared_drop(struct fal_shared *s);

/* Is this the one reference to it? */
bool fal_shared_alone(const struct fal_shared *s);

/* What each receiver must be told inside its session. */
uint64_t fal_shared_publication(const struct fal_shared *s);
const uint8_t *fal_shared_key(const struct fal_shared *s); /* FAL_KEY_BYTES, borrowed */

uint8_t fal_shared_suite(const struct fal_shared *s);
uint32_t fal_shared_count(const struct fal_shared *s);
uint64_t fal_shared_version(const struct fal_shared *s);
uint32_t fal_shared_parts(const struct fal_shared *s);
bool fal_shared_lasting(const struct fal_shared *s);
bool fal_shared_unsealed(const struct fal_shared *s);
bool fal_shared_whole(const struct fal_shared *s); /* all `count` are in */
bool fal_shared_broken(const struct fal_shared *s);
uint32_t fal_shared_made(const struct fal_shared *s); /* so many are in */
/* … and so many are on their way to whoever is quickest. */
uint32_t fal_shared_taken(const struct fal_shared *s);
size_t fal_shared_bytes(const struct fal_shared *s);

/* The record that came in as number `i`, as it goes over the wire; borrowed. */
const uint8_t *fal_shared_record(const struct fal_shared *s, uint32_t i, size_t *n);
/* It alone stays where it is until it was returned as often, whoever drops `s`: who is
 * slow keeps no more of a version than is on its way. */
void fal_shared_lend(struct fal_shared *s, uint32_t i);
void fal_shared_return(struct fal_shared *s, uint32_t i);

/* What compressing gave, and what it costs on both sides, as that is here; zeros for a
 * plain one. */
struct fal_zip_stat fal_shared_stat(const struct fal_shared *s);

#endif
