/* The types of a store that code outside its shard uses: the image, the list of
 * contributions, and the limits from which memory follows.
 *
 * An image is the whole state of a run of blocks at one version: everything that later
 * versions depend on, as named arrays and a few numbers.  Images can be copied, kept and
 * restored.
 *
 * Each array consists of its blocks, in the model's order.  So the arrays of all shards,
 * one after the other, are the arrays of the model, whatever the block map. */
#ifndef FAL_SERVER_IMAGE_H
#define FAL_SERVER_IMAGE_H

#include "base/cid.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FAL_IMAGE_NAME = 24,
	FAL_IMAGE_OTHERS = 1024, /* the most branches, and the most slots */
	/* The most versions that a store keeps, whatever an order says: as many as the
	 * largest slack needs, and versions under way. */
	FAL_KEPT_MAX = 72
};

/* The numbers of an image.  They are equal in all shards. */
struct fal_image_head {
	uint64_t version;
	uint64_t steps;        /* steps that the optimiser's state has had */
	uint32_t olds;         /* number of kept versions before this version */
	uint32_t lines, slots; /* numbers of branches and of slots; 0 in a snapshot */
	bool holds;            /* there is a pinned version, `held` */
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
	bool owned; /* the image owns the bytes of the arrays; else borrows them */
};

/* Appends an array.  The image borrows `p`. */
void fal_image_add(struct fal_image *m, const char *name, bool floats, void *p,
		   size_t bytes);
/* Makes `m` a copy of `from`, arrays included.  `m` is empty or an earlier copy, whose
 * memory is used again: new memory costs several times as much as the copying.
 * FAL_ENOMEM: `m` is then empty. */
int fal_image_copy(struct fal_image *m, const struct fal_image *from);
void fal_image_free(struct fal_image *m);

/* A run of blocks.  The last block may have fewer values than the others. */
struct fal_image_run {
	uint32_t first, count;
	size_t values;
};
/* `from` is an image of the blocks `run`.  Sets `out` to the part for the blocks `of`,
 * which are a part of `run`. `out` borrows the arrays. */
void fal_image_cut(const struct fal_image *from, const struct fal_image_run *run,
		   const struct fal_image_run *of, struct fal_image *out);
/* Returns true if both heads have equal numbers. */
bool fal_image_head_equal(const struct fal_image_head *a, const struct fal_image_head *b);
/* Copies `part`, which fal_image_cut has made with the same `run` and `of`, into the
 * arrays of `to`.  FAL_EFORMAT: the numbers or the arrays differ. */
int fal_image_graft(struct fal_image *to, const struct fal_image_run *run,
		    const struct fal_image *part, const struct fal_image_run *of);

/* Returns true if the pinned version is one of the kept versions. */
static inline bool
fal_image_keeps(const struct fal_image_head *is)
{
	return is->holds && is->held >= is->version - is->olds;
}
/* Marks `version` as pinned, in an image that was made before.  Returns false if the
 * image does not have that version. */
bool fal_image_hold(struct fal_image *m, uint64_t version);

/* A contribution to a round: the number of blocks that the contribution has brought, and,
 * with checksums, their checksum. */
struct fal_contribution_blocks {
	struct fal_contrib_id id;
	uint32_t blocks;
	uint64_t sum;
};

/* The most that a store holds at a time, to compute its bytes from. */
struct fal_store_limits {
	uint32_t versions; /* kept versions, the newest included */
	/* versions that are kept besides, until every shard has the next version: a copy
	 * of the newest version during an early step, and a version for which another
	 * shard still lacks tasks */
	uint32_t beyond;
	uint32_t rounds; /* sums of rounds, open or collected */
	uint32_t lines;
	/* pushers with a momentum of their own, if the optimiser has such momenta */
	uint32_t pushers;
	bool deltas; /* rounds bring changes of weights */
	bool outer;  /* an outer optimiser applies what branches push */
};

#endif
