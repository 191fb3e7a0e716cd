/* Chunks and the manifest: how a data set travels (bytes defined in falcon-data(7)).
 *
 * A set is cut into chunks of whole samples, at most 1 MiB each; the manifest lists
 * their hashes, so that a chunk can come from anywhere and still be trusted.
 */
#ifndef FAL_DATA_CHUNK_H
#define FAL_DATA_CHUNK_H

#include "base/buf.h"
#include "data/set.h"
#include "sec/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FAL_CHUNK_BYTES = FAL_SAMPLE_MAX + 1 /* most content bytes of a chunk */
};

/* One part of a job's data (training or test): its geometry and its chunks' hashes.
 * All zero: there is no such part.  Of type ABSENT it has no chunks. */
struct fal_part {
	enum fal_dtype dtype;
	uint32_t n;         /* samples, ≤ FAL_SAMPLES_MAX */
	uint32_t shape[3];  /* channels, height, width */
	bool targets;       /* labels are values, as of a set */
	uint32_t classes;   /* 1 … FAL_CLASSES_MAX */
	uint32_t per_chunk; /* samples of each chunk but the last, which has the rest */
	uint32_t values;    /* derived: product of shape */
	uint32_t sample_bytes;           /* derived: those of the values */
	uint32_t chunks;                 /* derived: ceil(n / per_chunk); ABSENT: 0 */
	uint8_t (*hash)[FAL_HASH_BYTES]; /* of each chunk, BLAKE2b-256 */
	uint32_t *labels;                /* n, as of a set; NULL: not told */
};

struct fal_manifest {
	struct fal_part train;
	struct fal_part test; /* n = 0 when the job has no test set */
};

/* Samples of chunk i (< part->chunks). */
static inline uint32_t
fal_chunk_samples(const struct fal_part *part, uint32_t i)
{
	uint32_t rest = part->n - i * part->per_chunk;
	return rest < part->per_chunk ? rest : part->per_chunk;
}

/* Bytes of a label in a chunk. */
static inline uint32_t
fal_part_label(const struct fal_part *part)
{
	return part->targets || part->classes > FAL_CLASSES_BYTE ? 4 : 1;
}

/* Content bytes of chunk i (< part->chunks): pixels of all its samples, then labels. */
static inline size_t
fal_chunk_bytes(const struct fal_part *part, uint32_t i)
{
	return (size_t)fal_chunk_samples(part, i) *
	       ((size_t)part->sample_bytes + fal_part_label(part));
}

/* Bytes of all chunks. */
static inline uint64_t
fal_part_bytes(const struct fal_part *part)
{
	return part->chunks == 0
		       ? 0
		       : (uint64_t)part->n * (part->sample_bytes + fal_part_label(part));
}

/* What a mean or a standard deviation may be given for each: channels of an image, and
 * of a vector each value. */
static inline uint32_t
fal_part_channels(const struct fal_part *part)
{
	return part->shape[0] == 1 && part->shape[1] == 1 ? part->values : part->shape[0];
}

/* Whether a sample may have this label. */
bool fal_part_takes(const struct fal_part *part, uint32_t label);

/* Makes the manifest of a job's sets (borrowed; `test` may be NULL), hashing every
 * chunk.  Free with fal_manifest_free.  FAL_EINVAL when type, shape or classes of the two
 * differ, FAL_ENOMEM. */
int fal_manifest_build(const struct fal_set *train, const struct fal_set *test,
		       struct fal_manifest *out);

/* Lets the manifest, just built of `train`, tell all labels of it: for orders that need
 * them before any chunk is there.  FAL_ENOMEM. */
int fal_manifest_tell_labels(struct fal_manifest *m, const struct fal_set *train);

/* Appends the manifest's bytes to `out` (errors are sticky there). */
void fal_manifest_encode(const struct fal_manifest *m, struct fal_buf *out);

/* Reads the n bytes of a manifest from a stranger.  Allocates no more than n bytes and
 * a constant.  Free with fal_manifest_free.  FAL_EVERSION, FAL_ETRUNC, FAL_EFORMAT
 * (magic, trailing bytes, parts that differ, a label ≥ classes), FAL_ELIMIT (numbers
 * above the limits of set.h, or chunks above FAL_CHUNK_BYTES), FAL_ENOMEM. */
int fal_manifest_parse(const uint8_t *p, size_t n, struct fal_manifest *out);

void fal_manifest_free(struct fal_manifest *m); /* `m` is {0} again */

/* Appends the content of chunk i of `set` to `out`, where `part` is the set's part of
 * its manifest.  FAL_ENOENT when there is no chunk i, FAL_EINVAL when `set` has another
 * size or sample size than `part`, FAL_ENOMEM. */
int fal_chunk_get(const struct fal_part *part, const struct fal_set *set, uint32_t i,
		  struct fal_buf *out);

#endif
