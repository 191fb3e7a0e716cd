/* A partially present data set: what a worker has of a part of the manifest so far.
 *
 * Chunks are verified as they are put, and never change or go away until the end; so
 * lanes may read rows while the main loop puts other chunks, as long as each lane
 * learnt (through a lock or a queue) that the chunks of its task were put before.
 */
#ifndef FAL_DATA_SAMPLES_H
#define FAL_DATA_SAMPLES_H

#include "data/chunk.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
