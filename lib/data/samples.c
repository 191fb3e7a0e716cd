/* A partially present data set. */
#include "data/samples.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct fal_samples {
	const struct fal_part *part;
	uint8_t *chunk[]; /* part->chunks contents, NULL where missing */
};

int
fal_samples_new(const struct fal_part *part, struct fal_samples **out)
{
	if (part->n == 0)
		return FAL_EINVAL;
	size_t bytes = sizeof(struct fal_samples) + part->chunks * sizeof(uint8_t *);
	struct fal_samples *s = fal_calloc(bytes, 1);
	if (s == NULL)
		return FAL_ENOMEM;
	s->part = part;
	*out = s;
	return FAL_OK;
}

void
fal_samples_free(struct fal_samples *s)
{
	if (s == NULL)
		return;
	for (uint32_t i = 0; i < s->part->chunks; i++)
		free(s->chunk[i]);
	free(s);
}

const struct fal_part *
fal_samples_part(const struct fal_samples *s)
{
	return s->part;
}

static uint32_t
label_at(const struct fal_part *part, const uint8_t *labels, uint32_t k)
{
	struct fal_rd r = fal_rd_init(labels + (size_t)k * 4, 4);
	return fal_part_label(part) == 1 ? labels[k] : fal_get_u32(&r);
}

int
fal_samples_put_chunk(struct fal_samples *s, uint32_t i, const uint8_t *p, size_t n)
{
	const struct fal_part *part = s->part;
	uint8_t hash[FAL_HASH_BYTES];
	if (i >= part->chunks)
		return FAL_ENOENT;
	if (s->chunk[i] != NULL)
		return FAL_EEXIST;
	if (n != fal_chunk_bytes(part, i))
		return FAL_EFORMAT;
	fal_hash(p, n, hash);
	if (memcmp(hash, part->hash[i], sizeof(hash)) != 0)
		return FAL_EAUTH;
	/* The manifest may be wrong too, and a label becomes an index. */
	const uint8_t *labels =
		p + (size_t)fal_chunk_samples(part, i) * part->sample_bytes;
	for (uint32_t k = 0; k < fal_chunk_samples(part, i); k++)
		if (!fal_part_takes(part, label_at(part, labels, k)))
			return FAL_EFORMAT;
	uint8_t *copy = fal_calloc(n, 1);
	if (copy == NULL)
		return FAL_ENOMEM;
	memcpy(copy, p, n);
	s->chunk[i] = copy;
	return FAL_OK;
}

int
fal_samples_put_set(struct fal_samples *s, const struct fal_set *set)
{
	struct fal_buf content = { 0 };
	int err = FAL_OK;
	for (uint32_t i = 0; err == FAL_OK && i < s->part->chunks; i++) {
		if (s->chunk[i] != NULL)
			continue;
		fal_buf_clear(&content);
		err = fal_chunk_get(s->part, set, i, &content);
		if (err == FAL_OK)
			err = fal_samples_put_chunk(s, i, content.p, content.n);
	}
	fal_buf_free(&content);
	return err;
}

bool
fal_samples_have(const struct fal_samples *s, uint32_t i)
{
	return s->chunk[i] != NULL;
}

const uint8_t *
fal_samples_row(const struct fal_samples *s, uint32_t id, uint32_t *label)
{
	const struct fal_part *part = s->part;
	if (id >= part->n)
		return NULL;
	uint32_t i = id / part->per_chunk, k = id % part->per_chunk;
	const uint8_t *p = s->chunk[i];
	if (p == NULL)
		return NULL;
	*label = label_at(part,
			  p + (size_t)fal_chunk_samples(part, i) * part->sample_bytes, k);
	return p + (size_t)k * part->sample_bytes;
}
