/* The parts of a store that others than its shard know: its image, what contributions
 * have brought, and what it has at most.
 *
 * An image is what a run of blocks is at a version: all that the versions to come depend
 * on, as named arrays and a few numbers, to be copied, kept and brought back.
 *
 * Each array is made of its blocks, one after the other, in the model's order: those of
 * all shards, one behind the other, are those of the model, however it is cut.
 */
#ifndef FAL_SERVER_IMAGE_H
#define FAL_SERVER_IMAGE_H

#include "base/cid.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FAL_IMAGE_NAME = 24,
	FAL_IMAGE_OTHERS = 1024, /* lines, and slots, at most */
	/* Versions that are kept at most, whatever an order says: those of the largest
	 * slack, and those that are on their way. */
	FAL_KEPT_MAX = 72
};

/* The numbers; the same in all shards. */
struct fal_image_head {
	uint64_t version;
	uint64_t steps;        /* that the optimiser's state has had */
	uint32_t olds;         /* versions before it that are kept, too */
	uint32_t lines, slots; /* that there are; a snapshot has none */
	bool holds;            /* there is a held version: */
	uint64_t held;
};

struct fal_image_array {
	char name[FAL_IMAGE_NAME];
	bool floats; /* else bytes */
	void *p;
	size_t bytes;
};

/* {0} is empty and valid. */
struct fal_image {
	struct fal_image_head is;
	struct fal_image_array *array;
	uint32_t arrays;
	size_t cap;
	bool owned; /* the arrays' bytes are its own */
};

/* Appends an array that is borrowed. */
void fal_image_add(struct fal_image *m, const char *name, bool floats, void *p,
		   size_t bytes);
/* Makes `m` a copy of `from`, of its arrays, too.  What it was before, empty or a copy,
 * is memory for that: new memory costs several times as much as the copying.  FAL_ENOMEM,
 * and it is empty. */
int fal_image_copy(struct fal_image *m, const struct fal_image *from);
void fal_image_free(struct fal_image *m);

/* A run of blocks, the last of which may have fewer values than the others. */
struct fal_image_run {
	uint32_t first, count;
	size_t values;
};
/* Cuts the part of the blocks `of`, which are some of the blocks `run`, from the image
 * `from` of `run`: in `out`, which borrows the part. */
void fal_image_cut(const struct fal_image *from, const struct fal_image_run *run,
		   const struct fal_image_run *of, struct fal_image *out);
/* Are these the same numbers? */
bool fal_image_is_same(const struct fal_image_head *a, const struct fal_image_head *b);
/* What is so cut becomes a part of `to`, whose arrays are written.  FAL_EFORMAT: it has
 * other numbers or arrays. */
int fal_image_graft(struct fal_image *to, const struct fal_image_run *run,
		    const struct fal_image *part, const struct fal_image_run *of);

/* Does the image have the held version as one of those that are kept? */
static inline bool
fal_image_keeps(const struct fal_image_head *is)
{
	return is->holds && is->held >= is->version - is->olds;
}
/* `version` was held when the image had been made: now it says so.  False: it has no such
 * version. */
bool fal_image_hold(struct fal_image *m, uint64_t version);

/* A contribution, the blocks that it has brought to a round, and, with checksums, their
 * checksum. */
struct fal_brought {
	struct fal_cid id;
	uint32_t blocks;
	uint64_t sum;
};

/* The most that a store has at a time, for whoever counts its bytes. */
struct fal_store_most {
	uint32_t versions; /* versions kept, the newest with them, */
	/* … and so many more, until the next one is whole everywhere: what a shard has of
	 * the newest while it makes that, and what other shards may lack tasks of. */
	uint32_t beyond;
	uint32_t rounds; /* sums: of open ones, and what is collected of others */
	uint32_t lines;
	uint32_t pushers; /* that have a momentum of their own, if the optimiser has */
	bool deltas;      /* the rounds bring changes of weights */
	bool outer;       /* lines are pushed by an outer step */
};

#endif
