/* Shared records: messages that are packed and sealed once for many channels.
 *
 * A publication is made by one thread, and what is made of it may go out meanwhile; its
 * count of references is not atomic, so all its channels live in one loop.
 */
#ifndef FAL_NET_BROADCAST_H
#define FAL_NET_BROADCAST_H

#include "base/parallel.h"
#include "net/record.h"
#include "wire/zip.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Counted by reference.  To be read; the functions below alone change it. */
struct fal_shared {
	struct fal_publication pub; /* id and key are told each receiver in its session */
	uint64_t version;           /* this and the next five as struct fal_shared_opt */
	uint32_t parts;
	uint8_t suite;
	bool zstd, lasting, unsealed;
	bool broken;              /* by fal_shared_break */
	uint32_t made;            /* records that are in, of pub.count */
	uint32_t taken;           /* … and that are on their way to whoever is quickest */
	size_t bytes;             /* of records */
	struct fal_zip_stat stat; /* what compressing gave, and what it costs on both
				   * sides, as that is here; zeros for a plain one */
	unsigned refs;
	/* private */
	uint8_t *key;
	unsigned lent; /* records, each as often as it is */
	struct fal_shared_pool *pool;
	struct fal_shared_record {
		uint8_t *p;
		size_t n, cap;
		unsigned lent;
	} *records;
	size_t cap; /* of records: grows with them, not by pub.count */
};

static inline bool
fal_shared_whole(const struct fal_shared *s)
{
	return s->made == s->pub.count;
}

/* The resources that publications need while they are made, kept for the next one:
 * contexts to seal with, memory to compress with, and the memory of their records, as new
 * pages cost as much as the sealing.  The pool outlives the publications.  `parallel`
 * (borrowed; NULL: none) seals and compresses. */
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

/* Adds a reference; returns `s`. */
struct fal_shared *fal_shared_ref(struct fal_shared *s);

/* Drops a reference; the last drop wipes the key and frees, but for records that are
 * lent.  `s` may be NULL. */
void fal_shared_drop(struct fal_shared *s);

/* The record that came in as number `i`, as it goes over the wire; borrowed. */
const uint8_t *fal_shared_record(const struct fal_shared *s, uint32_t i, size_t *n);
/* Lends record `i`, which alone stays in its place until it is returned as often, whoever
 * drops `s`: a slow reader keeps no more of a version than is on its way. */
void fal_shared_lend(struct fal_shared *s, uint32_t i);
void fal_shared_return(struct fal_shared *s, uint32_t i);

#endif
