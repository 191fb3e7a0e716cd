/* Chunks, the manifest, and a worker's chunks. */
#include "job/chunk.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	VERSION_PLAIN = 1,
	VERSION_LABELS = 2,
	VERSION_TYPED = 3, /* samples that are not bytes */
	VERSION_WIDE = 4   /* labels that are not bytes */
};

enum label_kind { KIND_BYTES, KIND_CLASSES, KIND_TARGETS, KINDS };

static const uint8_t magic[4] = { 'F', 'A', 'L', 'D' };

/* May a sample have this label? */
static bool
label_is_valid(const struct fal_part *part, uint32_t label)
{
	float v;
	memcpy(&v, &label, sizeof(v));
	return part->targets ? isfinite(v) : label < part->classes;
}

static void
put_labels(const struct fal_part *part, const uint32_t *labels, size_t n,
	   struct fal_buf *out)
{
	for (size_t i = 0; i < n; i++)
		if (fal_part_label_bytes(part) == 1)
			fal_put_u8(out, (uint8_t)labels[i]);
		else
			fal_put_u32(out, labels[i]);
}

int
fal_chunk_get(const struct fal_part *part, const struct fal_set *set, uint32_t i,
	      struct fal_buf *out)
{
	if (set->n != part->n || set->sample_bytes != part->sample_bytes)
		return FAL_EINVAL;
	if (i >= part->chunks)
		return FAL_ENOENT;
	size_t first = (size_t)i * part->per_chunk, n = fal_chunk_samples(part, i);
	fal_put_bytes(out, set->pixels + first * set->sample_bytes,
		      n * set->sample_bytes);
	put_labels(part, set->labels + first, n, out);
	return out->err;
}

/* Makes the part of `set`; the caller frees part->hash, after an error as well. */
static int
build_part(const struct fal_set *set, struct fal_part *part)
{
	*part = (struct fal_part){
		.n = set->n,
		.dtype = set->dtype,
		.shape = { set->shape[0], set->shape[1], set->shape[2] },
		.targets = set->targets,
		.classes = set->classes,
		.values = set->shape[0] * set->shape[1] * set->shape[2],
		.sample_bytes = set->sample_bytes,
	};
	struct fal_buf content = { 0 };
	int err = FAL_OK;
	part->per_chunk =
		FAL_CHUNK_BYTES / (set->sample_bytes + fal_part_label_bytes(part));
	if (part->per_chunk == 0)
		return FAL_ELIMIT;
	if (part->dtype == FAL_ABSENT)
		return FAL_OK;
	part->chunks = (part->n - 1) / part->per_chunk + 1;
	part->hash = fal_calloc(part->chunks, sizeof(part->hash[0]));
	if (part->hash == NULL)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < part->chunks && err == FAL_OK; i++) {
		fal_buf_clear(&content);
		err = fal_chunk_get(part, set, i, &content);
		if (err == FAL_OK)
			fal_hash(content.p, content.n, part->hash[i]);
	}
	fal_buf_free(&content);
	return err;
}

/* Can these be the two parts of one job? */
static bool
parts_agree(const struct fal_part *a, const struct fal_part *b)
{
	return b->n == 0 || (a->dtype == b->dtype && a->targets == b->targets &&
			     a->classes == b->classes &&
			     memcmp(a->shape, b->shape, sizeof(a->shape)) == 0);
}

int
fal_manifest_build(const struct fal_set *train, const struct fal_set *test,
		   struct fal_manifest *out)
{
	struct fal_manifest m = { 0 };
	int err = build_part(train, &m.train);
	if (err == FAL_OK && test != NULL)
		err = build_part(test, &m.test);
	if (err == FAL_OK && !parts_agree(&m.train, &m.test))
		err = FAL_EINVAL;
	if (err < 0) {
		fal_manifest_free(&m);
		return err;
	}
	*out = m;
	return FAL_OK;
}

int
fal_manifest_add_labels(struct fal_manifest *m, const struct fal_set *train)
{
	uint32_t *labels = fal_calloc(train->n, sizeof(*labels));
	if (labels == NULL)
		return FAL_ENOMEM;
	memcpy(labels, train->labels, train->n * sizeof(*labels));
	m->train.labels = labels;
	return FAL_OK;
}

static void
encode_part(const struct fal_part *part, struct fal_buf *out)
{
	fal_put_u32(out, part->n);
	if (part->n == 0)
		return;
	for (unsigned i = 0; i < 3; i++)
		fal_put_u32(out, part->shape[i]);
	fal_put_u32(out, part->classes);
	fal_put_u32(out, part->per_chunk);
	fal_put_bytes(out, part->hash, (size_t)part->chunks * sizeof(part->hash[0]));
}

static enum label_kind
label_kind(const struct fal_part *part)
{
	return part->targets                     ? KIND_TARGETS
	       : fal_part_label_bytes(part) == 1 ? KIND_BYTES
						 : KIND_CLASSES;
}

void
fal_manifest_encode(const struct fal_manifest *m, struct fal_buf *out)
{
	fal_put_bytes(out, magic, sizeof(magic));
	const bool typed = m->train.dtype != FAL_U8, labels = m->train.labels != NULL;
	const enum label_kind kind = label_kind(&m->train);
	fal_put_u8(out, kind != KIND_BYTES ? VERSION_WIDE
			: typed            ? VERSION_TYPED
			: labels           ? VERSION_LABELS
					   : VERSION_PLAIN);
	if (typed || kind != KIND_BYTES) {
		fal_put_u8(out, (uint8_t)m->train.dtype);
		fal_put_u8(out, labels);
	}
	if (kind != KIND_BYTES)
		fal_put_u8(out, (uint8_t)kind);
	encode_part(&m->train, out);
	encode_part(&m->test, out);
	if (m->train.labels != NULL)
		put_labels(&m->train, m->train.labels, m->train.n, out);
}

/* Parses one part; the caller has set dtype and targets, and frees part->hash, after an
 * error as well. */
static int
parse_part(struct fal_rd *r, struct fal_part *part)
{
	part->n = fal_get_u32(r);
	if (r->err != 0 || part->n == 0)
		return r->err;
	for (unsigned i = 0; i < 3; i++)
		part->shape[i] = fal_get_u32(r);
	part->classes = fal_get_u32(r);
	part->per_chunk = fal_get_u32(r);
	if (r->err != 0)
		return r->err;
	uint64_t values = 1;
	for (unsigned i = 0; i < 3; i++) {
		if (part->shape[i] == 0 || part->shape[i] > FAL_SAMPLE_MAX)
			return FAL_ELIMIT;
		values *= part->shape[i]; /* no overflow: two factors below 2^20 */
		if (values > FAL_SAMPLE_MAX)
			return FAL_ELIMIT;
	}
	const uint64_t bytes = values * fal_dtype_size(part->dtype);
	if (part->n > FAL_SAMPLES_MAX || part->classes == 0 ||
	    part->classes > FAL_CLASSES_MAX || bytes > FAL_SAMPLE_MAX ||
	    part->per_chunk == 0 ||
	    part->per_chunk > FAL_CHUNK_BYTES / (bytes + fal_part_label_bytes(part)) ||
	    (part->targets && part->classes != 1))
		return FAL_ELIMIT;
	part->values = (uint32_t)values;
	part->sample_bytes = (uint32_t)bytes;
	if (part->dtype != FAL_ABSENT)
		part->chunks = (part->n - 1) / part->per_chunk + 1;
	size_t n = (size_t)part->chunks * sizeof(part->hash[0]);
	if (n == 0)
		return FAL_OK;
	const uint8_t *p = fal_get_bytes(r, n);
	if (p == NULL)
		return r->err;
	part->hash = fal_calloc(n, 1);
	if (part->hash == NULL)
		return FAL_ENOMEM;
	memcpy(part->hash, p, n);
	return FAL_OK;
}

static int
parse_labels(struct fal_rd *r, struct fal_part *part)
{
	if (r->n < (uint64_t)part->n * fal_part_label_bytes(part))
		return FAL_ETRUNC;
	part->labels = fal_calloc(part->n, sizeof(*part->labels));
	if (part->labels == NULL)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < part->n; i++) {
		part->labels[i] =
			fal_part_label_bytes(part) == 1 ? fal_get_u8(r) : fal_get_u32(r);
		if (!label_is_valid(part, part->labels[i]))
			return FAL_EFORMAT;
	}
	return r->err;
}

int
fal_manifest_parse(const uint8_t *p, size_t n, struct fal_manifest *out)
{
	struct fal_rd r = fal_rd_init(p, n);
	struct fal_manifest m = { 0 };
	const uint8_t *head = fal_get_bytes(&r, sizeof(magic));
	if (head == NULL)
		return r.err;
	if (memcmp(head, magic, sizeof(magic)) != 0)
		return FAL_EFORMAT;
	const uint8_t version = fal_get_u8(&r);
	if (version < VERSION_PLAIN || version > VERSION_WIDE)
		return r.err != 0 ? r.err : FAL_EVERSION;
	const uint8_t dtype = version >= VERSION_TYPED ? fal_get_u8(&r) : FAL_U8;
	const uint8_t labels =
		version >= VERSION_TYPED ? fal_get_u8(&r) : version == VERSION_LABELS;
	const uint8_t kind = version == VERSION_WIDE ? fal_get_u8(&r) : KIND_BYTES;
	m.train.dtype = m.test.dtype = dtype;
	m.train.targets = m.test.targets = kind == KIND_TARGETS;
	/* Each manifest has one form: bytes keep the older versions. */
	if (r.err == 0 && (dtype >= FAL_DTYPES || labels > 1 || kind >= KINDS ||
			   (version == VERSION_WIDE
				    ? kind == KIND_BYTES || dtype == FAL_ABSENT
				    : (dtype == FAL_U8) != (version != VERSION_TYPED)) ||
			   (dtype == FAL_ABSENT && labels != 0)))
		return FAL_EFORMAT;
	int err = r.err == 0 ? parse_part(&r, &m.train) : r.err;
	if (err == FAL_OK && (m.train.n == 0 || label_kind(&m.train) != kind))
		err = FAL_EFORMAT;
	if (err == FAL_OK)
		err = parse_part(&r, &m.test);
	if (err == FAL_OK && labels != 0)
		err = parse_labels(&r, &m.train);
	if (err == FAL_OK)
		err = fal_rd_end(&r);
	if (err == FAL_OK && !parts_agree(&m.train, &m.test))
		err = FAL_EFORMAT;
	if (err < 0) {
		fal_manifest_free(&m);
		return err;
	}
	*out = m;
	return FAL_OK;
}

void
fal_manifest_free(struct fal_manifest *m)
{
	free(m->train.hash);
	free(m->train.labels);
	free(m->test.hash);
	*m = (struct fal_manifest){ 0 };
}

/* ---- samples --------------------------------------------------------------------- */

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

/* Label k of a chunk's labels. */
static uint32_t
chunk_label(const struct fal_part *part, const uint8_t *labels, uint32_t k)
{
	struct fal_rd r = fal_rd_init(labels + (size_t)k * 4, 4);
	return fal_part_label_bytes(part) == 1 ? labels[k] : fal_get_u32(&r);
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
	/* The manifest may be wrong as well, and a label becomes an index. */
	const uint8_t *labels =
		p + (size_t)fal_chunk_samples(part, i) * part->sample_bytes;
	for (uint32_t k = 0; k < fal_chunk_samples(part, i); k++)
		if (!label_is_valid(part, chunk_label(part, labels, k)))
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
fal_samples_has_chunk(const struct fal_samples *s, uint32_t i)
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
	*label = chunk_label(part,
			     p + (size_t)fal_chunk_samples(part, i) * part->sample_bytes,
			     k);
	return p + (size_t)k * part->sample_bytes;
}
