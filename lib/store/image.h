/* What a run of blocks is at a version: all that the versions to come depend on, as named
 * arrays and a few numbers, to be copied, kept and brought back.
 *
 * Each array is made of its blocks, one after the other, in the model's order: those of
 * all shards, one behind the other, are those of the model, however it is cut.
 */
#ifndef FAL_STORE_IMAGE_H
#define FAL_STORE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FAL_IMAGE_NAME = 24,
	FAL_IMAGE_OTHERS = 1024 /* lines, and slots, at most */
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

/* Appends an array that is borrowed.  FAL_ENOMEM. */
int fal_image_add(struct fal_image *m, const char *name, bool floats, void *p,
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
/* What `from`, of the blocks `run`, has of `of`, which are some of them: in `out`, which
 * borrows it.  FAL_ENOMEM. */
int fal_image_cut(const struct fal_image *from, const struct fal_image_run *run,
		  const struct fal_image_run *of, struct fal_image *out);
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

#endif
