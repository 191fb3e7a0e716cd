/* Encodes each version once for all workers (design.md, D10), sends the version to each
 * worker that wants it, and counts the traffic of the shards. */
#ifndef FALCON_PS_BROADCAST_H
#define FALCON_PS_BROADCAST_H

#include "crypto/hash.h"
#include "net/broadcast.h"
#include "net/conn.h"
#include "sched/policy.h"
#include "server/coord.h"
#include "server/shard_set.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sends a message, and wipes its bytes from memory.  Errors of fal_chan_send. */
int ps_send_msg(struct fal_chan *c, const struct fal_msg *m, enum fal_send how);
/* As ps_send_msg, but closes the channel if sending fails. */
void ps_send_or_close(struct fal_chan *c, const struct fal_msg *m, enum fal_send how);

/* ---- publications: versions, encoded and sealed --- */

enum ps_encoding {
	PS_PLAIN,
	PS_PACKED,   /* compressed */
	PS_UNSEALED, /* for unsealed sessions */
	PS_ENCODINGS
};

/* A version in the encodings that some reader has asked for, by shard. */
struct ps_encoded_version {
	bool exists;
	bool needs_chacha; /* some reader opens only ChaCha20-Poly1305 */
	uint64_t version;
	struct fal_shared *shared[PS_ENCODINGS][FAL_SHARDS_MAX]; /* NULL: not wanted */
};

struct ps_publisher {
	uint8_t job_hash[FAL_HASH_BYTES];
	uint32_t incarnation;
	const struct fal_shard_set *shard_set;
	const struct fal_parallel *parallel; /* seals; NULL: this thread does */
	struct fal_shared_pool *pool;        /* made with the first publication */
	uint64_t publications;               /* so far */
	bool needs_chacha;                   /* the version before had such a reader */
	struct fal_rule rule;                /* the rule under which versions are made */
	bool is_mixed;    /* versions may be wanted in several encodings */
	bool sends_whole; /* the placement measures waits, so no version leaves early */
	struct ps_encoder {
		struct fal_shared *shared;
		uint64_t version;
		uint32_t shard;
		uint8_t *is_encoded; /* by message of the part */
		uint32_t recheck_at; /* number of made blocks that may complete a piece */
	} *encoders; /* encoders of the publications that are not whole yet */
	size_t encoders_n, encoders_cap;
	/* For each shard: the next search for early messages of `version` waits for this
	 * number of its made blocks. */
	struct ps_recheck {
		uint64_t version;
		uint32_t blocks;
	} recheck[FAL_SHARDS_MAX];
	struct ps_encoded_version next, newest, kept; /* next: is being made */
	/* Further versions: the version sent last, and versions on their way. */
	struct ps_encoded_version *older;
	size_t older_n, older_cap;
};

/* The publication to make: the part of a version that shard `shard` has. */
struct ps_publish_opt {
	uint64_t version;
	uint32_t shard;
	bool is_unfinished; /* the shard is still making the version */
	/* at the time of the request no newer version was published */
	bool is_newest;
	bool is_kept;       /* the reader keeps the version for an evaluation */
	bool encodes_again; /* makes a second publication if one exists */
	uint8_t suite;      /* of the receiver's session */
	enum ps_encoding encoding;
};

/* Returns the publication, borrowed; makes the publication if there is none, with a
 * number above all earlier numbers.  The suite of the receiver's session seals the
 * publication if all readers of this version and of the version before open that suite;
 * else ChaCha20-Poly1305, which every reader opens, seals the publication.  NULL: out of
 * memory, or no such version. */
struct fal_shared *ps_publish(struct ps_publisher *p, const struct ps_publish_opt *from);
/* Encodes one more piece of each publication that is not whole.  (ps_publish only begins
 * a long plain publication, so that pieces leave while further pieces are made.) Whenever
 * a shard has changed or a link has taken all bytes, the caller repeats the call until it
 * returns 0; unfinished publications then wait for a link, or for their shard.  Returns
 * the number of publications that grew; FAL_ENOMEM: no unfinished publication will ever
 * be whole. */
int ps_publish_continue(struct ps_publisher *p);
/* Can the publication of the shard's part begin before the version is made?  True once
 * the shard has made whole pieces. */
bool ps_publisher_can_begin_early(struct ps_publisher *p, uint32_t shard,
				  uint64_t version);
/* Drops all publications; publications on their way to a reader still arrive. */
void ps_publisher_drop(struct ps_publisher *p);
/* As ps_publisher_drop, and ends unfinished publications, because their shard now has
 * other blocks or serves another job. */
void ps_publisher_reset(struct ps_publisher *p);
void ps_publisher_free(struct ps_publisher *p);

/* Returns how many encoded versions are held at a time under this rule: the newest
 * version, the versions of a slack, and one more if some sessions are sealed and others
 * are not (`is_mixed`).  ps_publish drops older versions before it encodes another
 * version, but never drops a version on its way.  A version on its way is encoded twice
 * if a worker needs a second announcement before the version has arrived
 * (ps_publish_opt.encodes_again). */
uint32_t ps_max_encodings(const struct fal_rule *rule, bool is_mixed);

/* ---- statistics of shards --- */

/* {0}: nothing. */
struct ps_shard_stats {
	uint64_t rx[FAL_SHARDS_MAX], tx[FAL_SHARDS_MAX]; /* bytes, by shard of the job */
	uint64_t service; /* ns in which this process served the shards */
	uint64_t queue;   /* ns in which links had bytes to send, summed over links */
};

/* Counts the bytes of received records for the shard that has the first block of the
 * records. */
void ps_shard_stats_add_push(struct ps_shard_stats *s,
			     const struct fal_shard_set *shard_set,
			     const struct fal_tail *records);

/* Makes a SERVED message for `count` shards from `first` on; the message's tail is in
 * `rows`. */
void ps_shard_stats_put(const struct ps_shard_stats *s, uint32_t first, uint32_t count,
			struct fal_msg *m, struct fal_buf *rows);
/* Reads such a message.  FAL_EFORMAT. */
int ps_shard_stats_get(struct ps_shard_stats *s, uint32_t first, uint32_t count,
		       const struct fal_msg *m);

/* ---- deliveries: a version, a shard, and the session that wants it --- */

/* A session that reads publications. */
struct ps_reader {
	struct fal_chan *chan; /* NULL: not connected yet */
	/* time in ns since which the reader's link has had bytes to send; 0: no bytes */
	uint64_t busy_since;
	uint64_t *announced;  /* the last publications, PS_ANNOUNCED_MAX at most, */
	uint64_t n_announced; /* … of so many */
	size_t announced_cap;
	/* the largest number of all announced publications */
	uint64_t newest_publication;
	/* The largest publication number that was overwritten in `announced`.  Every
	 * publication up to this number counts as announced. */
	uint64_t oldest_publication;
};

/* Publications remembered for each reader; in most runs more than exist at a time. */
#define PS_ANNOUNCED_MAX 1024

struct ps_broadcast {
	struct ps_publisher publisher;
	struct ps_delivery {
		struct ps_reader *reader;
		uint32_t shard;
		struct fal_coord_publication model;
		struct fal_shared *shared; /* not whole yet; NULL: not begun yet */
		/* the delivery began before its version was made */
		bool is_early;
	} *v;
	size_t n, cap;
	struct ps_shard_stats stats;
};

/* Connects the reader to a new channel (NULL: the reader will connect later).  Nothing
 * counts as announced by the new channel, and versions that the reader wants stay
 * wanted. */
void ps_reader_attach(struct ps_reader *reader, struct fal_chan *c);
/* Ends the reader's deliveries, before its memory goes. */
void ps_reader_detach(struct ps_broadcast *b, struct ps_reader *reader);

/* Adds a version that the reader wants (fal_coord_ops.model), from each shard of this
 * process; ps_broadcast_send sends it.  `reader` is kept until ps_reader_detach. */
void ps_broadcast_add(struct ps_broadcast *b, struct ps_reader *reader,
		      const struct fal_coord_publication *model);
/* Sends the wanted versions that are made by now; versions that their shard has dropped
 * are not sent.  Closes a channel that does not take its messages.  FAL_ENOMEM. */
int ps_broadcast_send(struct ps_broadcast *b);
/* Notes that the reader's link has taken all bytes, or is gone. */
void ps_broadcast_note_drained(struct ps_broadcast *b, struct ps_reader *reader);
/* The shards have other blocks: drops all publications, and the deliveries that have not
 * begun; deliveries that have begun still arrive. */
void ps_broadcast_reset(struct ps_broadcast *b);
/* ps_broadcast_clear drops all publications and deliveries; closing channels may still
 * hold publications.  ps_broadcast_free also frees `b`'s memory, when no channel is
 * left. */
void ps_broadcast_clear(struct ps_broadcast *b);
void ps_broadcast_free(struct ps_broadcast *b);

#endif
