/* Chunks and the manifest: the transport of a data set (falcon-data(7) defines the
 * bytes).
 *
 * A set is cut into chunks of whole samples, at most 1 MiB each; the manifest lists the
 * chunks' hashes, so that a chunk from any source can be trusted.
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
	FAL_CHUNK_BYTES = FAL_SAMPLE_MAX + 1 /* largest content of a chunk, in bytes */
};

/* A part of a job's data (training or test): the geometry and the chunks' hashes.  All
 * zero: no such part.  A part of type ABSENT has no chunks. */
struct fal_part {
	enum fal_dtype dtype;
	uint32_t n;            /* samples, ≤ FAL_SAMPLES_MAX */
	uint32_t shape[3];     /* channels, height, width */
	bool targets;          /* labels are values, as in a set */
	uint32_t classes;      /* 1 … FAL_CLASSES_MAX */
	uint32_t per_chunk;    /* samples of a chunk; the last chunk has the rest */
	uint32_t values;       /* derived: product of shape */
	uint32_t sample_bytes; /* derived: bytes of the values */
	uint32_t chunks;       /* derived: ceil(n / per_chunk); ABSENT: 0 */
	uint8_t (*hash)[FAL_HASH_BYTES]; /* of each chunk, BLAKE2b-256 */
	uint32_t *labels;                /* n, as in a set; NULL: not in the manifest */
};

struct fal_manifest {
	struct fal_part train;
	struct fal_part test; /* n = 0 when the job has no test set */
};

/* Returns the samples of chunk i (< part->chunks). */
static inline uint32_t
fal_chunk_samples(const struct fal_part *part, uint32_t i)
{
	uint32_t rest = part->n - i * part->per_chunk;
	return rest < part->per_chunk ? rest : part->per_chunk;
}

/* Returns the bytes of a label in a chunk. */
static inline uint32_t
fal_part_label_bytes(const struct fal_part *part)
{
	return part->targets || part->classes > FAL_CLASSES_BYTE ? 4 : 1;
}

/* Returns the content bytes of chunk i (< part->chunks): the pixels of all samples, then
 * the labels. */
static inline size_t
fal_chunk_bytes(const struct fal_part *part, uint32_t i)
{
	return (size_t)fal_chunk_samples(part, i) *
	       ((size_t)part->sample_bytes + fal_part_label_bytes(part));
}

/* Returns the bytes of all chunks. */
static inline uint64_t
fal_part_bytes(const struct fal_part *part)
{
	return part->chunks == 0 ? 0
				 : (uint64_t)part->n * (part->sample_bytes +
							fal_part_label_bytes(part));
}

/* Returns the number of channels with a mean and a standard deviation: the channels of an
 * image, the values of a vector. */
static inline uint32_t
fal_part_channels(const struct fal_part *part)
{
	return part->shape[0] == 1 && part->shape[1] == 1 ? part->values : part->shape[0];
}

/* Makes the manifest of a job's sets (borrowed; `test` may be NULL) and hashes all
 * chunks. Free with fal_manifest_free.  FAL_EINVAL (type, shape or classes of the two
 * differ), FAL_ENOMEM. */
int fal_manifest_build(const struct fal_set *train, const struct fal_set *test,
		       struct fal_manifest *out);

/* Adds all labels of `train` to the manifest just built from `train`, for orders that
 * need the labels before the first chunk arrives.  FAL_ENOMEM. */
int fal_manifest_add_labels(struct fal_manifest *m, const struct fal_set *train);

/* Appends the manifest's bytes to `out` (errors are sticky there). */
void fal_manifest_encode(const struct fal_manifest *m, struct fal_buf *out);

/* Parses the n bytes of a manifest (hostile); allocates at most n bytes and a constant.
 * Free with fal_manifest_free.  FAL_EVERSION, FAL_ETRUNC, FAL_EFORMAT (magic, trailing
 * bytes, parts that differ, a label ≥ classes), FAL_ELIMIT (numbers above the limits of
 * set.h, or chunks above FAL_CHUNK_BYTES), FAL_ENOMEM. */
int fal_manifest_parse(const uint8_t *p, size_t n, struct fal_manifest *out);

void fal_manifest_free(struct fal_manifest *m); /* `m` is {0} again */

/* Appends the content of chunk i of `set`; `part` is the set's part of the manifest.
 * FAL_ENOENT (no chunk i), FAL_EINVAL (`set` has another size or sample size than
 * `part`), FAL_ENOMEM. */
int fal_chunk_get(const struct fal_part *part, const struct fal_set *set, uint32_t i,
		  struct fal_buf *out);

/* The chunks of a part that a worker has so far.
 *
 * fal_samples_put_chunk verifies each chunk, which then stays unchanged until the end. So
 * lanes may read rows while the main loop puts further chunks, if a lock or a queue has
 * told each lane that the chunks of its task are there.
 */

struct fal_samples;

/* Makes an empty object for `part` (borrowed and kept until fal_samples_free); each chunk
 * takes memory when it comes.  FAL_EINVAL (part->n is 0), FAL_ENOMEM. */
int fal_samples_new(const struct fal_part *part, struct fal_samples **out);
void fal_samples_free(struct fal_samples *s);

/* Returns the part. */
const struct fal_part *fal_samples_part(const struct fal_samples *s);

/* Verifies and copies the content of chunk i.  FAL_ENOENT (no chunk i), FAL_EEXIST (the
 * chunk is here), FAL_EFORMAT (wrong length, or a label ≥ classes), FAL_EAUTH (another
 * hash than in the manifest), FAL_ENOMEM. */
int fal_samples_put_chunk(struct fal_samples *s, uint32_t i, const uint8_t *p, size_t n);

/* Puts all missing chunks from a local copy of the set; FAL_EINVAL or FAL_EAUTH: not the
 * set of the manifest. */
int fal_samples_put_set(struct fal_samples *s, const struct fal_set *set);

/* Is chunk i (< chunks) here? */
bool fal_samples_has_chunk(const struct fal_samples *s, uint32_t i);

/* Returns the sample_bytes bytes of sample `id`, borrowed until fal_samples_free, and its
 * label; NULL: no such sample, or its chunk is missing. */
const uint8_t *fal_samples_row(const struct fal_samples *s, uint32_t id, uint32_t *label);

/* A directory of chunks, kept between runs and shared by the workers of one machine.
 *
 * The directory is a cache: after any fault the chunk can be fetched again.  The files
 * are DIR/ab/cd/abcd…, named by the lower-case hex BLAKE2b-256 of their content.
 */

/* Returns the directory of the cache: `option`, or if `option` is NULL
 * $XDG_CACHE_HOME/falcon or ~/.cache/falcon.  The caller frees the result.  NULL: no such
 * directory is defined, or `option` is "none". */
char *fal_cache_directory(const char *option);

/* Appends the chunk named `hash`.  FAL_ENOENT (no such file, or a file with other bytes,
 * which is removed), FAL_EIO, FAL_ENOMEM. */
int fal_cache_get(const char *dir, const uint8_t hash[static FAL_HASH_BYTES],
		  struct fal_buf *out);

/* Writes the n (≤ FAL_CHUNK_BYTES) bytes of the chunk named `hash`, which the caller has
 * verified, and makes missing directories.  A temporary file is renamed, so that another
 * process sees the whole file or none.  FAL_EIO (errno says why: a full disk, no
 * permission; no file stays behind), FAL_ELIMIT. */
int fal_cache_put(const char *dir, const uint8_t hash[static FAL_HASH_BYTES],
		  const uint8_t *p, size_t n);

#endif
