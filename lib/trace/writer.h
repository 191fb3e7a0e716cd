/* Writes the lines of falcon-trace(5) that are made from structs of other rooms; any
 * other line is a struct of schema.h and fal_trace_put.
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

/* Where the blocks are.  All borrowed. */
struct fal_line_place {
	uint64_t map;          /* its number */
	const char *rule;      /* that made it */
	const char *by;        /* who wanted blocks to move; NULL: nobody, as none has */
	double took;           /* seconds of the move */
	uint32_t shards;       /* of this incarnation, each with a block, */
	uint32_t places;       /* of so many that the rule knew; 0: all of them */
	const uint32_t *shard; /* of each block, from 0 */
	uint32_t blocks;
};

/* Tasks of a round that were granted on this version. */
struct fal_granted_on {
	uint64_t round, version;
	uint32_t worker, first, count;
};

/* Facts of a round that has ended, beside its head and its ledger. */
struct fal_line_ledger {
	bool hashed; /* it is known what each task gave */
	/* on which versions its tasks were granted, where it may have several; of all
	 * rounds */
	const struct fal_granted_on *on;
	size_t ons;
	bool sums; /* audit = sums */
	/* checksums under `seed`: of the sum, and of what each contribution has added, by
	 * its place in the ledger; of those behind, 0 */
	uint64_t seed, added;
	const uint64_t *sum;
	size_t n_sums;
};

/* The line of a group, pushed. */
struct fal_line_push {
	uint32_t group;
	double weight;  /* what it has changed counts by */
	uint32_t among; /* workers of whom that is a share; 0: of samples */
};

/* The pushes and hashes of a new version, beside the members of its line. */
struct fal_line_update {
	const struct fal_line_push *push;
	size_t pushes;
	double outer, momentum; /* of its outer step; 0: none */
	/* FAL_HASH_BYTES, of the version and of its exponents; NULL: not of this one */
	const uint8_t *hash, *exponents;
};

void fal_line_place(struct fal_buf *b, double t, const struct fal_line_place *d);
/* The caller sets the members of `e` that `w` does not have; the call sets the others. */
void fal_line_clock(struct fal_buf *b, double t, const struct fal_work *w,
		    struct fal_ev_clock *e);
/* The caller sets the head of the line in `e`; the call sets the rows of tasks. */
void fal_line_ledger(struct fal_buf *b, double t, const struct fal_line_ledger *d,
		     const struct fal_ledger *l, struct fal_ev_ledger *e);
/* The caller sets the members of `e` that `d` does not have; the call sets the others. */
void fal_line_update(struct fal_buf *b, double t, const struct fal_line_update *d,
		     struct fal_ev_update *e);

#endif
