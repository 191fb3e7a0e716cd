/* Versions are encoded once for all workers (design.md, D10), and leave for each one that
 * is to have them; the shards' traffic is counted. */
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

/* Sends a message, of which nothing stays in memory.  Errors as of fal_chan_send. */
int ps_chan_send(struct fal_chan *c, const struct fal_msg *m, enum fal_send how);
/* Sends it so; a channel that does not take it is closed. */
void ps_say(struct fal_chan *c, const struct fal_msg *m, enum fal_send how);

enum ps_encoding {
	PS_PLAIN,
	PS_PACKED,   /* compressed */
	PS_UNSEALED, /* for unsealed sessions */
	PS_ENCODINGS
};

/* A version in the encodings that some reader has asked for, by shard. */
struct ps_version {
	bool there, odd; /* odd: somebody who was sent it opens ChaCha20-Poly1305 alone */
	uint64_t version;
	struct fal_shared *as[PS_ENCODINGS][FAL_SHARDS_MAX]; /* NULL: nobody asked */
};

struct ps_publisher {
	uint8_t job_hash[FAL_HASH_BYTES];
	uint32_t incarnation;
	const struct fal_shard_set *shard_set;
	const struct fal_parallel *parallel; /* that seals; NULL: this thread */
	struct fal_shared_pool *pool;        /* made with the first one */
	uint64_t publications;               /* so far */
	bool odd;                            /* as the version before was */
	struct fal_rule rule;                /* that versions are made by */
	bool mixed;  /* a version may be wanted in several encodings, ps_encoded_most */
	bool placed; /* blocks are placed by what is waited for: versions leave as a whole
		      */
	struct ps_making {
		struct fal_shared *shared;
		uint64_t version;
		uint32_t shard;
		uint8_t *in;  /* by message of the part: it is in */
		uint32_t due; /* blocks that are made, when there may be more for it */
	} *making;            /* what is begun */
	size_t making_n, making_cap;
	/* By shard: when there may be enough of a version to begin. */
	struct ps_due {
		uint64_t version;
		uint32_t due;
	} due[FAL_SHARDS_MAX];
	struct ps_version next, newest, kept; /* next: is being made */
	/* Whichever else was sent last, and those that are still on their way. */
	struct ps_version *older;
	size_t older_n, older_cap;
};

/* The input of an encoding: shard `shard`'s part of a version that the shard has. */
struct ps_params {
	uint64_t version;
	uint32_t shard;
	bool making;   /* it is not made yet */
	bool newest;   /* nothing newer was published when it was wanted */
	bool keep;     /* to be kept for evaluation */
	bool anew;     /* sealed anew, though it may be there */
	uint8_t suite; /* of the receiver's session */
	enum ps_encoding as;
};

/* The publication of `from`, by the suite of the receiver's session if all who were sent
 * this version and the one before open that, else by ChaCha20-Poly1305, which everybody
 * opens.  Made if it is not there yet, with a number above all before; borrowed.  NULL:
 * out of memory, or no such version. */
struct fal_shared *ps_publish(struct ps_publisher *p, const struct ps_params *from);
/* Makes more of the publications that were begun, a piece of each; a long plain
 * publication is only begun by ps_publish, so that it can be on its way while it is made.
 * The caller repeats the call until it returns 0, after whatever happens to the shards,
 * and when a link has taken all: then the publications left only wait for a link, or for
 * a shard to make more of a version.  Returns how many publications grew, or FAL_ENOMEM:
 * then none will be whole. */
int ps_publish_more(struct ps_publisher *p);
/* May the shard's part of this version be published, as far as it is made, and is that
 * worth it? */
bool ps_publisher_early(struct ps_publisher *p, uint32_t shard, uint64_t version);
/* Forgets what nobody is being sent. */
void ps_publisher_forget(struct ps_publisher *p);
/* The same, and what is not whole never will be: its shard has other blocks by now, or is
 * of another job. */
void ps_publisher_reset(struct ps_publisher *p);
void ps_publisher_free(struct ps_publisher *p);

/* How many encoded versions are held at a time under this rule: the newest, those of a
 * slack, and, where some workers are sealed for and others are not (`mixed`), one more.
 * ps_publish forgets older versions before it encodes another one, but none that is on
 * its way.  A version on its way is encoded twice where a worker must be told of it again
 * before it has come (ps_params.anew). */
uint32_t ps_encoded_most(const struct fal_rule *rule, bool mixed);

/* ---- what was served --- */

/* {0}: nothing. */
struct ps_served {
	uint64_t rx[FAL_SHARDS_MAX], tx[FAL_SHARDS_MAX]; /* bytes, by shard of the job */
	uint64_t service; /* ns in which it was at work on them */
	uint64_t queue; /* ns in which links had not taken what they were sent, summed */
};

/* Records have come: for the shard that has the first of their blocks. */
void ps_served_push(struct ps_served *s, const struct fal_shard_set *shard_set,
		    const struct fal_tail *records);

/* Makes a SERVED of `count` shards from `first` on, whose tail is in `rows`; and takes
 * one back, into the same.  FAL_EFORMAT. */
void ps_served_put(const struct ps_served *s, uint32_t first, uint32_t count,
		   struct fal_msg *m, struct fal_buf *rows);
int ps_served_get(struct ps_served *s, uint32_t first, uint32_t count,
		  const struct fal_msg *m);

/* ---- wants: a version, a shard, and the session that is to have it --- */

/* A session that reads publications. */
struct ps_reader {
	struct fal_chan *chan; /* NULL: it is still to come */
	uint64_t since;        /* ns: its link has not taken all since then; 0: it has */
	uint64_t *told;        /* the last PS_TOLD publications, */
	uint64_t tolds;        /* … of so many */
	size_t told_cap;
	uint64_t most; /* largest number of them all, */
	uint64_t gone; /* and of those that are not there any more */
};

/* Publications that are remembered of each reader: mostly more than still exist.  A
 * reader counts as told of every one before these. */
#define PS_TOLD 1024

struct ps_wants {
	struct ps_publisher publisher;
	struct ps_want {
		struct ps_reader *reader;
		uint32_t shard;
		struct fal_coord_model model;
		struct fal_shared *shared; /* leaves until it is whole; NULL: not yet */
		bool early;                /* its version was not made yet then */
	} *v;
	size_t n, cap;
	struct ps_served served;
};

/* The reader has this channel (NULL: it is still to come), and was told of nothing by it;
 * the versions that the reader waits for stay. */
void ps_reader_begin(struct ps_reader *reader, struct fal_chan *c);
/* The reader is gone, before its memory is. */
void ps_reader_end(struct ps_wants *w, struct ps_reader *reader);

/* A version is wanted (fal_coord_ops.model), of all shards that are here; what there is
 * of it leaves with the next ps_wants_leave.  `reader` is kept until ps_reader_end. */
void ps_wants_add(struct ps_wants *w, struct ps_reader *reader,
		  const struct fal_coord_model *model);
/* Sends the wanted versions that are made by now; no reader gets a version that was
 * forgotten by then.  A channel that does not take its messages is closed.  FAL_ENOMEM:
 * for a version's records. */
int ps_wants_leave(struct ps_wants *w);
/* The reader's link has taken all, or is gone. */
void ps_wants_taken(struct ps_wants *w, struct ps_reader *reader);
/* The shards have other blocks: what was published, and what was wanted and could not
 * leave, is over; what is on its way arrives. */
void ps_wants_moved(struct ps_wants *w);
/* Nothing is wanted any more, nor what was published; channels that are closing may still
 * have some of that.  With the second there is no channel. */
void ps_wants_forget(struct ps_wants *w);
void ps_wants_free(struct ps_wants *w);

#endif
