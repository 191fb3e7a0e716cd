/* What a cluster is like, drawn from a seed. */
#ifndef DRAW_H
#define DRAW_H

#include "base/rng.h"
#include "cluster.h"

/* What is looked at alone. */
struct focus {
	const char *scheme; /* of all; NULL: any */
	bool equal, liars;  /* equal workers only; a liar wherever there may be one */
	bool near;          /* shards that answer at once */
	bool restarts;      /* the coordinator dies wherever it may */
	bool flips;         /* a machine gets bits wrong, and all tasks run twice */
	bool moves;         /* blocks move wherever they may */
	bool exact;         /* no machine does, as before there were any */
	bool groups;        /* group servers wherever there may be some, */
	bool mute;          /* … with members that push and do not report */
	bool flat;          /* none, as before there were any */
};

struct plan draw_plan(struct fal_rng *r, uint64_t seed, const struct focus *only);
void draw_free(struct plan *p);

#endif
