/* Chunks and the manifest: how a data set travels (bytes defined in falcon-data(7)).
 *
 * A set is cut into chunks of whole samples, at most 1 MiB each; the manifest lists
 * their hashes, so that a chunk can come from anywhere and still be trusted.
 */
#ifndef FAL_JOB_CHUNK_H
#define FAL_JOB_CHUNK_H

#include "base/buf.h"
#include "crypto/hash.h"
#include "job/set.h"

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

/* A partially present data set: what a worker has of a part of the manifest so far.
 *
 * Chunks are verified as they are put, and never change or go away until the end; so
 * lanes may read rows while the main loop puts other chunks, as long as each lane
 * learnt (through a lock or a queue) that the chunks of its task were put before.
 */

struct fal_samples;

/* An empty one for `part` (borrowed and kept until fal_samples_free); memory comes
 * with the chunks.  FAL_EINVAL when part->n is 0, FAL_ENOMEM. */
int fal_samples_new(const struct fal_part *part, struct fal_samples **out);
void fal_samples_free(struct fal_samples *s);

const struct fal_part *fal_samples_part(const struct fal_samples *s);

/* Copies the content of chunk i in.  FAL_ENOENT (no chunk i), FAL_EEXIST (is here
 * already), FAL_EFORMAT (wrong length, or a label ≥ classes), FAL_EAUTH (not the bytes
 * of the manifest), FAL_ENOMEM. */
int fal_samples_put_chunk(struct fal_samples *s, uint32_t i, const uint8_t *p, size_t n);

/* Puts every chunk that is missing from a local copy of the whole set; FAL_EINVAL or
 * FAL_EAUTH when it is not the set of the manifest. */
int fal_samples_put_set(struct fal_samples *s, const struct fal_set *set);

/* Is chunk i (< chunks) here? */
bool fal_samples_have(const struct fal_samples *s, uint32_t i);

/* The sample_bytes bytes of sample `id`, borrowed until fal_samples_free, and its
 * label; NULL when there is no such sample or its chunk is not here. */
const uint8_t *fal_samples_row(const struct fal_samples *s, uint32_t id, uint32_t *label);

/* A directory of chunks, kept between runs and shared by the workers of one machine.
 *
 * Only a cache: whatever goes wrong here, the chunk can be fetched again.  The files
 * are DIR/ab/cd/abcd…, named by the lower-case hex of their content's BLAKE2b-256.
 */

/* Returns the folder of the cache: `option` or, if that is NULL, $XDG_CACHE_HOME/falcon
 * or ~/.cache/falcon.  The caller frees the result.  NULL: there is no such place, or
 * `option` is "none". */
char *fal_cache_where(const char *option);

/* Appends the chunk named `hash` to `out`.  FAL_ENOENT when it is not there, or was
 * there with other bytes: such a file is removed.  FAL_EIO, FAL_ENOMEM. */
int fal_cache_get(const char *dir, const uint8_t hash[static FAL_HASH_BYTES],
		  struct fal_buf *out);

/* Keeps the n (≤ FAL_CHUNK_BYTES) bytes of the chunk named `hash`, which the caller has
 * verified; makes `dir` and its parents where they are missing.  Written beside and
 * renamed: another process sees the whole file or none.  FAL_EIO (errno says why: a
 * full disk, no permission) leaves nothing behind, FAL_ELIMIT. */
int fal_cache_put(const char *dir, const uint8_t hash[static FAL_HASH_BYTES],
		  const uint8_t *p, size_t n);

#endif
