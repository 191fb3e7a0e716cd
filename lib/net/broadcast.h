/* Publications: messages that are compressed and sealed once for many channels.
 *
 * One thread makes a publication.  Finished records leave while the thread makes further
 * records.  The count of references is not atomic, so all channels of a publication live
 * in one loop.
 */
#ifndef FAL_NET_BROADCAST_H
#define FAL_NET_BROADCAST_H

#include "base/parallel.h"
#include "net/record.h"
#include "wire/zip.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A publication, counted by reference.  Callers read the members; only the functions
 * below change them. */
struct fal_shared {
	struct fal_publication pub; /* each receiver gets id and key in the receiver's
				     * session */
	/* this member and the next five: as in struct fal_shared_opt */
	uint64_t version;
	uint32_t parts;
	uint8_t suite;
	bool zstd, lasting, unsealed;
	bool broken;   /* fal_shared_abandon was called */
	uint32_t made; /* number of records made so far, of pub.count */
	/* number of records that the fastest channel has taken */
	uint32_t taken;
	size_t bytes;             /* bytes of all records */
	struct fal_zip_stat stat; /* the gain of compression, and its time at both ends,
				   * as measured here; 0 without compression */
	unsigned refs;
	/* private */
	uint8_t *key;
	unsigned lent; /* sum over the records */
	struct fal_shared_pool *pool;
	struct fal_shared_record {
		uint8_t *p;
		size_t n, cap;
		unsigned lent;
	} *records;
	/* capacity of `records`, which grows with the records made, not with
	 * pub.count */
	size_t cap;
};

static inline bool
fal_shared_is_complete(const struct fal_shared *s)
{
	return s->made == s->pub.count;
}

/* Resources for making publications, kept from one publication to the next: contexts for
 * sealing, memory for compression, and the memory of records, since new pages cost as
 * much time as sealing.  The pool outlives the publications.  `parallel` (borrowed; NULL:
 * none) seals and compresses. */
struct fal_shared_pool *fal_shared_pool_new(const struct fal_parallel *parallel);
/* Frees the memory of records that is kept. */
void fal_shared_pool_trim(struct fal_shared_pool *p);
void fal_shared_pool_free(struct fal_shared_pool *p); /* may be NULL */

struct fal_shared_opt {
	struct fal_shared_pool *pool;
	/* number of the publication, from 1, larger than all earlier numbers; each
	 * encoding of a version is a publication of its own */
	uint64_t publication;
	uint32_t count;   /* number of messages, at least 1 */
	const void *ad;   /* associated data that all readers know: job, */
	size_t ad_n;      /* incarnation, version, …; ≤ FAL_SHARED_AD_MAX; borrowed */
	uint64_t version; /* for fal_chan_drop_outdated */
	uint32_t parts;   /* publications of a version; 0: one */
	uint8_t suite;    /* 0: ChaCha20-Poly1305, which all readers open */
	bool zstd;        /* compresses each message that becomes smaller */
	bool lasting;     /* for the owner's fal_is_outdated_fn */
	bool unsealed; /* for channels of fal_chan_is_unsealed alone; not with `zstd` */
};

/* Makes a publication without records, under a fresh random key; the caller holds the
 * only reference.  FAL_ELIMIT (ad_n), FAL_EINVAL (publication or count 0), FAL_EVERSION
 * (the suite is not available). */
int fal_shared_new(const struct fal_shared_opt *opt, struct fal_shared **out);

/* Makes the next n records from n messages (borrowed).  Each message lies in two places.
 * `index` is the message's number in the publication, below `count` and used once.  An
 * error adds no record: FAL_ELIMIT beyond FAL_RECORD_MAX, FAL_ESTATE beyond `count`,
 * FAL_ENOMEM. */
struct fal_shared_text {
	struct fal_aead_text msg;
	uint32_t index;
};
int fal_shared_add_texts(struct fal_shared *s, const struct fal_shared_text *of,
			 uint32_t n);

/* Breaks the publication off.  Channels send the records made so far, and drop the rest;
 * the readers learn of the gap from the next publication. */
void fal_shared_abandon(struct fal_shared *s);

/* Adds a reference; returns `s`. */
struct fal_shared *fal_shared_ref(struct fal_shared *s);

/* Drops a reference; the last drop wipes the key, and frees all but lent records.  `s`
 * may be NULL. */
void fal_shared_drop(struct fal_shared *s);

/* Returns the record that was made as number `i`, as the wire carries it; borrowed. */
const uint8_t *fal_shared_record(const struct fal_shared *s, uint32_t i, size_t *n);
/* Lends record `i`.  A lent record outlives the publication until the record is returned
 * as often as lent.  So a slow reader keeps no more of a version than the records under
 * way. */
void fal_shared_lend(struct fal_shared *s, uint32_t i);
void fal_shared_return(struct fal_shared *s, uint32_t i);

#endif
