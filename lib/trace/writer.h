/* Writes the lines of falcon-trace(5) that come from structs of other rooms of lib/.  For
 * all other lines fal_trace_put writes a struct of schema.h.
 *
 * Pure: no state, no descriptors.
 * Each call replaces the contents of `b` by one line without its newline.  `t` is in
 * seconds since the job began.
 */
#ifndef FAL_TRACE_WRITER_H
#define FAL_TRACE_WRITER_H

#include "base/buf.h"
#include "sched/ledger.h"
#include "sched/sched.h"
#include "trace/schema.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A map of blocks to shards.  All borrowed. */
struct fal_line_place {
	uint64_t map;          /* its number */
	const char *rule;      /* the rule that made the map */
	const char *by;        /* the key that ordered a move; NULL: no block has moved */
	double took;           /* seconds of the move */
	uint32_t shards;       /* of this incarnation, each with a block */
	uint32_t places;       /* shards that the rule knew; 0: as many as `shards` */
	const uint32_t *shard; /* of each block, from 0 */
	uint32_t blocks;
};

/* Tasks of a round that were granted to a worker, and the version that they run on. */
struct fal_granted_on {
	uint64_t round, version;
	uint32_t worker, first, count;
};

/* Facts of a round that has ended, besides the line's head and the ledger. */
struct fal_line_ledger {
	bool hashed; /* the hash of each task's result is known */
	/* The versions that tasks of any round were granted on, if a round may have
	 * several versions. */
	const struct fal_granted_on *on;
	size_t ons;
	bool sums; /* audit = sums */
	/* Checksums under `seed`: of the sum of the round, and of each contribution's
	 * part, by its place in the ledger; contributions from n_sums on have 0. */
	uint64_t seed, added;
	const uint64_t *sum;
	size_t n_sums;
};

/* The push of a group's branch. */
struct fal_branch_push {
	uint32_t group;
	double weight;  /* factor of the branch's changes */
	uint32_t among; /* so many workers share the weight; 0: a share of samples */
};

/* The pushes and hashes of a new version, besides the members in struct fal_ev_update. */
struct fal_line_update {
	const struct fal_branch_push *push;
	size_t pushes;
	double outer, momentum; /* rate and momentum of the outer step; 0: none */
	/* FAL_HASH_BYTES of the version and of its exponents; NULL: the version has no
	 * hash */
	const uint8_t *hash, *exponents;
};

/* Writes the map as runs of blocks. */
void fal_line_place(struct fal_buf *b, double t, const struct fal_line_place *d);
/* Writes a worker's clock.  The caller sets the members of `e` that `w` does not have;
 * the call sets the others. */
void fal_line_clock(struct fal_buf *b, double t, const struct fal_work *w,
		    struct fal_ev_clock *e);
/* Writes a round.  The caller sets the head of the line in `e`; the call sets the rows of
 * tasks. */
void fal_line_ledger(struct fal_buf *b, double t, const struct fal_line_ledger *d,
		     const struct fal_ledger *l, struct fal_ev_ledger *e);
/* Writes a version.  The caller sets the members of `e` that `d` does not have; the call
 * sets the others. */
void fal_line_update(struct fal_buf *b, double t, const struct fal_line_update *d,
		     struct fal_ev_update *e);

#endif
