/* Exact sums: block floating point.
 *
 * A block's representation follows from its bound.  0: all values are zero, whatever
 * memory holds, so clearing costs nothing.  Up to INT32_MAX: the values are int32.
 * Above: int64. The values of one task's gradient stay floats, which stand for the same
 * integers, until something is added to them.  So setting a sum to a gradient costs one
 * pass, which copies the floats into the sum's memory; or no pass, if the floats were
 * made in that memory (fal_sum_memory).  The pass that adds them to another sum
 * quantises them.
 *
 * The int32 places of all blocks lie side by side, so sums of int32 are read and written
 * without gaps, which costs a third less.  Behind the places of all blocks, each block
 * has a second place, for the later half of its int64.  A place that a block never needed
 * is never written, and takes no memory. */
#include "wire/bfp.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/vector.h"
#include "wire/bfp_kern.h"

#include <assert.h>
#include <endian.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct block {
	uint64_t bound; /* |value| <= bound */
	float scale;    /* not 0: the values are floats, with this scale */
	int8_t needed;
};

struct fal_sum {
	size_t n;
	bool grown;   /* some block has escaped */
	void *values; /* n places */
	struct block *block;
};

/* ---- sums ---------------------------------------------------------------------- */

static bool
is_wide(const struct block *k)
{
	return k->bound > INT32_MAX;
}

static int32_t *
narrow_at(const struct fal_sum *s, uint32_t b)
{
	return (int32_t *)s->values + (size_t)b * FAL_BLOCK;
}

static const float *
floats_at(const struct fal_sum *s, uint32_t b)
{
	return (const float *)narrow_at(s, b);
}

/* Half of a wide block's values: a wide block is in two parts. */
enum { PART = FAL_BLOCK / 2 };

static int64_t *
part_at(const struct fal_sum *s, uint32_t b, unsigned part)
{
	const uint32_t place = part == 0 ? b : fal_blocks(s->n) + b;
	return (int64_t *)s->values + (size_t)place * PART;
}

static uint32_t
part_len(uint32_t len, unsigned part)
{
	const uint32_t first = len < PART ? len : PART;
	return part == 0 ? first : len - first;
}

/* Returns the values of a narrow block; if they are floats, quantised into `room`. */
static const int32_t *
narrow_values(const struct fal_sum *s, uint32_t b, int32_t room[static FAL_BLOCK])
{
	const uint32_t len = fal_block_len(s->n, b);
	if (s->block[b].scale == 0)
		return narrow_at(s, b);
	fal_bfp_quantise_narrow(room, floats_at(s, b), s->block[b].scale, len);
	return room;
}

/* Copies the values of a wide block, or the quantised values of floats, to `room`. */
static const int64_t *
wide_values(const struct fal_sum *s, uint32_t b, int64_t room[static FAL_BLOCK])
{
	const uint32_t len = fal_block_len(s->n, b);
	if (s->block[b].scale != 0)
		fal_bfp_quantise_wide(room, floats_at(s, b), s->block[b].scale, len);
	for (unsigned p = 0; p < 2 && s->block[b].scale == 0; p++)
		memcpy(room + p * PART, part_at(s, b, p),
		       part_len(len, p) * sizeof(*room));
	return room;
}

struct fal_sum *
fal_sum_new(size_t n)
{
	struct fal_sum *s = fal_calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->n = n;
	s->values = fal_alloc_pages((size_t)fal_blocks(n) * FAL_BLOCK, sizeof(int64_t));
	s->block = fal_calloc(fal_blocks(n), sizeof(*s->block));
	if (s->values == NULL || s->block == NULL) {
		free(s->values);
		free(s->block);
		free(s);
		return NULL;
	}
	fal_large_pages(s->values, (size_t)fal_blocks(n) * FAL_BLOCK * sizeof(int32_t));
	fal_sum_clear(s);
	return s;
}

void
fal_sum_free(struct fal_sum *s)
{
	if (s == NULL)
		return;
	free(s->block);
	free(s->values);
	free(s);
}

size_t
fal_sum_len(const struct fal_sum *s)
{
	return s->n;
}

float *
fal_sum_memory(struct fal_sum *s, uint32_t block)
{
	return (float *)narrow_at(s, block);
}

void
fal_sum_clear(struct fal_sum *s)
{
	for (uint32_t b = 0; b < fal_blocks(s->n); b++)
		s->block[b] = (struct block){ .needed = FAL_EXP_NONE };
}

const void *
fal_sum_values(const struct fal_sum *s, uint32_t block, uint32_t *width,
	       union fal_sum_room *room)
{
	const struct block *k = &s->block[block];
	*width = k->bound == 0 ? 0 : is_wide(k) ? sizeof(int64_t) : sizeof(int32_t);
	if (k->bound == 0)
		return NULL;
	return is_wide(k) ? (const void *)wide_values(s, block, room->wide)
			  : narrow_values(s, block, room->narrow);
}

int8_t
fal_sum_needed(const struct fal_sum *s, uint32_t block)
{
	return s->block[block].needed;
}

uint64_t
fal_sum_bound(const struct fal_sum *s, uint32_t block)
{
	return s->block[block].bound;
}

/* Makes the values, narrow or floats, wide. */
static void
make_wide(struct fal_sum *s, uint32_t b)
{
	const uint32_t len = fal_block_len(s->n, b);
	struct block *k = &s->block[b];
	union {
		int32_t narrow[FAL_BLOCK];
		float floats[FAL_BLOCK];
	} was;
	memcpy(&was, k->scale != 0 ? (const void *)floats_at(s, b) : narrow_at(s, b),
	       len * sizeof(int32_t));
	for (unsigned p = 0; p < 2; p++) {
		int64_t *to = part_at(s, b, p);
		const uint32_t n = part_len(len, p);
		if (k->scale != 0)
			fal_bfp_quantise_wide(to, was.floats + p * PART, k->scale, n);
		else
			fal_bfp_widen(to, was.narrow + p * PART, n);
	}
	k->scale = 0;
}

/* Makes the values, floats, narrow. */
static void
make_narrow(struct fal_sum *s, uint32_t b)
{
	const uint32_t len = fal_block_len(s->n, b);
	struct block *k = &s->block[b];
	float was[FAL_BLOCK];
	memcpy(was, floats_at(s, b), len * sizeof(*was));
	fal_bfp_quantise_narrow(narrow_at(s, b), was, k->scale, len);
	k->scale = 0;
}

bool
fal_sum_grown(const struct fal_sum *s)
{
	return s->grown;
}

/* Raises block b's bound by `more`, and converts the values to the representation for
 * that bound.  Returns 0; FAL_ELIMIT; 1: the block is narrow and was all zero, but its
 * memory may hold other values, so the caller must set the values instead of adding. */
static int
raise_bound(struct fal_sum *s, uint32_t b, uint64_t more)
{
	struct block *k = &s->block[b];
	uint32_t len = fal_block_len(s->n, b);
	uint64_t bound = k->bound + more;
	if (bound > (uint64_t)FAL_BFP_LIMIT)
		return FAL_ELIMIT;
	const bool escapes = bound > INT32_MAX && (!is_wide(k) || k->scale != 0);
	const bool first = k->bound == 0 && more != 0;
	s->grown |= escapes;
	if (first && escapes)
		memset(narrow_at(s, b), 0, len * sizeof(int32_t));
	if (escapes)
		make_wide(s, b);
	else if (k->scale != 0)
		make_narrow(s, b);
	k->bound = bound;
	return first && !escapes;
}

static void
raise_needed(struct block *k, int8_t needed)
{
	k->needed = needed > k->needed ? needed : k->needed;
}

/* Adds a narrow block of `src` to `to`, or, with `first`, copies the block. */
static void
add_narrow_block(int32_t *to, const struct fal_sum *src, uint32_t b, bool first)
{
	const uint32_t len = fal_block_len(src->n, b);
	const float scale = src->block[b].scale;
	if (first && scale != 0)
		fal_bfp_quantise_narrow(to, floats_at(src, b), scale, len);
	else if (first)
		memcpy(to, narrow_at(src, b), len * sizeof(*to));
	else if (scale != 0)
		fal_bfp_add_floats(to, floats_at(src, b), scale, len);
	else
		fal_bfp_add_narrow(to, narrow_at(src, b), len);
}

/* As fal_sum_add, for one block. */
static int
sum_add_block(struct fal_sum *dst, const struct fal_sum *src, uint32_t b)
{
	struct block *to = &dst->block[b];
	const struct block *from = &src->block[b];
	uint32_t len = fal_block_len(dst->n, b);
	int r = raise_bound(dst, b, from->bound);
	if (r < 0)
		return r;
	raise_needed(to, from->needed);
	if (from->bound == 0)
		return FAL_OK;
	if (!is_wide(to)) {
		add_narrow_block(narrow_at(dst, b), src, b, r == 1);
		return FAL_OK;
	}
	int64_t room[FAL_BLOCK];
	const bool floats = from->scale != 0;
	const int64_t *wide = is_wide(from) || floats ? wide_values(src, b, room) : NULL;
	for (unsigned p = 0; p < 2; p++) {
		int64_t *at = part_at(dst, b, p);
		const uint32_t n = part_len(len, p);
		if (wide != NULL)
			fal_bfp_add_wide(at, wide + p * PART, n);
		else
			fal_bfp_add_wide_narrow(at, narrow_at(src, b) + p * PART, n);
	}
	return FAL_OK;
}

int
fal_sum_add(struct fal_sum *dst, const struct fal_sum *src)
{
	assert(dst != src && dst->n == src->n);
	for (uint32_t b = 0; b < fal_blocks(dst->n); b++) {
		int r = sum_add_block(dst, src, b);
		if (r < 0)
			return r;
	}
	return FAL_OK;
}

void
fal_sum_load(const struct fal_sum *s, uint32_t block, int64_t *v)
{
	const struct block *k = &s->block[block];
	uint32_t len = fal_block_len(s->n, block);
	if (k->bound == 0)
		memset(v, 0, len * sizeof(*v));
	else if (is_wide(k) || k->scale != 0)
		wide_values(s, block, v);
	else
		fal_bfp_widen(v, narrow_at(s, block), len);
}

int
fal_sum_store(struct fal_sum *s, uint32_t block, const int64_t *v, uint64_t bound,
	      int8_t needed)
{
	struct block *k = &s->block[block];
	uint32_t len = fal_block_len(s->n, block);
	assert(bound <= (uint64_t)FAL_BFP_LIMIT);
	*k = (struct block){ .bound = bound, .needed = needed };
	s->grown |= is_wide(k);
	for (unsigned p = 0; p < 2 && is_wide(k); p++)
		memcpy(part_at(s, block, p), v + p * PART, part_len(len, p) * sizeof(*v));
	for (uint32_t i = 0; i < len && !is_wide(k); i++)
		narrow_at(s, block)[i] = (int32_t)v[i];
	return FAL_OK;
}

static uint64_t
values_checksum(const int64_t *v, uint32_t len, uint32_t as, uint64_t seed)
{
	struct fal_rng rng = fal_rng_init(seed, FAL_RNG_CHECKSUM, as);
	uint64_t sum = 0;
	for (uint32_t i = 0; i < len; i++)
		sum += (fal_rng_u64(&rng) | 1) * (uint64_t)v[i];
	return sum;
}

uint64_t
fal_sum_checksum(const struct fal_sum *s, uint32_t block, uint32_t as, uint64_t seed)
{
	int64_t v[FAL_BLOCK];
	fal_sum_load(s, block, v);
	return values_checksum(v, fal_block_len(s->n, block), as, seed);
}

void
fal_sum_mean(const struct fal_sum *s, uint32_t block, int8_t exponent, double divisor,
	     float *out)
{
	const struct block *k = &s->block[block];
	uint32_t len = fal_block_len(s->n, block);
	double scale = ldexp(1, exponent - FAL_BFP_P + 1);
	union fal_sum_room room;
	int log;
	/* For a power of two the product equals the quotient. */
	if (frexp(divisor, &log) == 0.5) {
		scale = ldexp(scale, 1 - log);
		divisor = 1;
	}
	if (k->bound == 0)
		memset(out, 0, len * sizeof(*out));
	else if (is_wide(k))
		fal_bfp_mean_wide(wide_values(s, block, room.wide), scale, divisor, len,
				  out);
	else
		fal_bfp_mean_narrow(narrow_values(s, block, room.narrow), scale, divisor,
				    len, out);
}

/* ---- quantising ---------------------------------------------------------------- */

static int8_t
clamp_exp(int e)
{
	e = e < FAL_EXP_MIN ? FAL_EXP_MIN : e;
	return (int8_t)(e > FAL_EXP_MAX ? FAL_EXP_MAX : e);
}

int8_t
fal_exp_next(int8_t e, int8_t needed)
{
	const int least = e - FAL_EXP_FALL, most = e + FAL_EXP_RISE;
	if (needed == FAL_EXP_NONE)
		return e;
	return clamp_exp(needed < least ? least : needed > most ? most : needed);
}

int8_t
fal_exp_needed_at(int8_t needed, unsigned bits)
{
	if (needed == FAL_EXP_NONE || bits == 0)
		return needed;
	return clamp_exp(needed + FAL_BFP_P - (int)bits);
}

/* The exponent field rounds down, so any fraction adds one; subnormals clamp. */
static int8_t
needed_of_bits(uint32_t bits)
{
	int needed = (int)(bits >> 23) - 127 + ((bits & 0x7fffff) != 0);
	return bits != 0 ? clamp_exp(needed) : FAL_EXP_NONE;
}

int8_t
fal_exp_needed(const float *g, uint32_t len)
{
	return needed_of_bits(fal_bfp_max_magnitude(g, len));
}

float
fal_max_abs(const float *v, uint32_t len)
{
	uint32_t bits = fal_bfp_max_magnitude(v, len);
	float max;
	memcpy(&max, &bits, sizeof(max));
	return isnan(max) ? INFINITY : max;
}

float
fal_bfp_most(int8_t e, unsigned room)
{
	return ldexpf(1, e + (int)room - (FAL_BFP_P - 1));
}

int
fal_sum_quantise_block(struct fal_sum *s, uint32_t b, const float *g, int8_t e,
		       unsigned room)
{
	struct block *k = &s->block[b];
	const uint32_t len = fal_block_len(s->n, b);
	float *own = fal_sum_memory(s, b);
	const uint32_t bits =
		g == own ? fal_bfp_max_magnitude(g, len) : fal_bfp_copy(own, g, len);
	assert(e >= FAL_EXP_MIN && e <= FAL_EXP_MAX);
	float max;
	memcpy(&max, &bits, sizeof(max));
	if (!isfinite(max))
		return FAL_ENONFINITE;
	const float scale = ldexpf(1, FAL_BFP_P - 1 - e);
	k->needed = needed_of_bits(bits);
	if (max >= fal_bfp_most(e, room)) {
		max = nextafterf(fal_bfp_most(e, room), 0);
		for (uint32_t i = 0; i < len; i++)
			own[i] = fmaxf(fminf(own[i], max), -max);
	}
	k->bound = (uint64_t)rintf(max * scale);
	k->scale = k->bound != 0 ? scale : 0;
	return FAL_OK;
}

int
fal_sum_quantise(struct fal_sum *s, const float *g, const int8_t *exps, unsigned room,
		 uint32_t *bad_block)
{
	for (uint32_t b = 0; b < fal_blocks(s->n); b++) {
		int r = fal_sum_quantise_block(s, b, g + (size_t)b * FAL_BLOCK, exps[b],
					       room);
		if (r == FAL_ENONFINITE && bad_block != NULL)
			*bad_block = b;
		if (r < 0)
			return r;
	}
	return FAL_OK;
}

/* ---- records ------------------------------------------------------------------- */

static size_t
plane_words(uint32_t len, unsigned width)
{
	size_t rows = (len + FAL_BFP_COLS - 1) / FAL_BFP_COLS;
	return (rows * width + 31) / 32 * FAL_BFP_COLS;
}

static unsigned
low_width(unsigned width)
{
	return width < 32 ? width : 32;
}

size_t
fal_bfp_packed_size(uint32_t len, unsigned width)
{
	unsigned low = low_width(width);
	return (plane_words(len, low) + plane_words(len, width - low)) * sizeof(uint32_t);
}

/* Packs the values `narrow` or `wide`; the other one is NULL. */
static void
pack_values(const int32_t *narrow, const int64_t *wide, uint32_t len, int64_t base,
	    unsigned width, uint8_t *to)
{
	unsigned low = low_width(width);
	fal_u32_any *out = (fal_u32_any *)to;
	if (len % FAL_BFP_COLS != 0)
		memset(to, 0, fal_bfp_packed_size(len, width));
	if (wide == NULL) {
		fal_bfp_pack_plane(out, (const uint32_t *)narrow, (uint32_t)base, len,
				   low);
		return;
	}
	uint32_t planes[2][FAL_BLOCK];
	fal_bfp_split(wide, base, len, planes[0], planes[1]);
	fal_bfp_pack_plane(out, planes[0], 0, len, low);
	fal_bfp_pack_plane(out + plane_words(len, low), planes[1], 0, len, width - low);
}

int
fal_sum_pack(const struct fal_sum *s, uint32_t block, int8_t exponent,
	     struct fal_buf *out)
{
	const struct block *k = &s->block[block];
	uint32_t len = fal_block_len(s->n, block);
	int64_t min = 0, max = 0;
	union fal_sum_room room;
	const int64_t *wide = is_wide(k) ? wide_values(s, block, room.wide) : NULL;
	const int32_t *narrow = k->bound != 0 && wide == NULL
					? narrow_values(s, block, room.narrow)
					: NULL;
	if (wide != NULL)
		fal_bfp_range_wide(wide, len, &min, &max);
	else if (narrow != NULL)
		fal_bfp_range_narrow(narrow, len, &min, &max);
	uint64_t range = (uint64_t)max - (uint64_t)min;
	unsigned width = range != 0 ? 64 - (unsigned)__builtin_clzll(range) : 0;

	fal_put_u32(out, block);
	fal_put_u8(out, (uint8_t)exponent);
	fal_put_u8(out, (uint8_t)k->needed);
	fal_put_u8(out, (uint8_t)width);
	fal_put_u8(out, 0);
	fal_put_u64(out, (uint64_t)min);
	uint8_t *packed = fal_buf_room(out, fal_bfp_packed_size(len, width));
	if (packed != NULL && width != 0)
		pack_values(narrow, wide, len, min, width, packed);
	return out->err;
}

/* Number i of a plane of `width` bits. */
static uint32_t
plane_get(const fal_u32_any *in, uint32_t i, unsigned width)
{
	uint32_t bit = i / FAL_BFP_COLS * width, shift = bit % 32;
	const fal_u32_any *at = in + bit / 32 * FAL_BFP_COLS + i % FAL_BFP_COLS;
	uint64_t d = width != 0 ? le32toh(*at) : 0;
	if (shift + width > 32)
		d |= (uint64_t)le32toh(at[FAL_BFP_COLS]) << 32;
	return (uint32_t)(d >> shift & (((uint64_t)1 << width) - 1));
}

static uint64_t
offset_get(const struct fal_bfp_rec *rec, uint32_t i)
{
	unsigned low = low_width(rec->width);
	const fal_u32_any *in = (const fal_u32_any *)rec->packed;
	uint64_t d = plane_get(in, i, low);
	if (rec->width > 32)
		d |= (uint64_t)plane_get(in + plane_words(rec->len, low), i,
					 rec->width - low)
		     << 32;
	return d;
}

/* Returns the largest number of `width` bits. */
static uint64_t
max_of_width(unsigned width)
{
	return width != 0 ? UINT64_MAX >> (64 - width) : 0;
}

/* Is every value within ±FAL_BFP_LIMIT? Mostly the width alone proves that. */
static bool
within_limit(const struct fal_bfp_rec *rec)
{
	if (rec->base < -FAL_BFP_LIMIT || rec->base > FAL_BFP_LIMIT)
		return false;
	uint64_t room = (uint64_t)FAL_BFP_LIMIT - (uint64_t)rec->base;
	if (max_of_width(rec->width) <= room)
		return true;
	for (uint32_t i = 0; i < rec->len; i++)
		if (offset_get(rec, i) > room)
			return false;
	return true;
}

static bool
is_exponent(int8_t e)
{
	return e >= FAL_EXP_MIN && e <= FAL_EXP_MAX;
}

int
fal_bfp_parse(struct fal_rd *r, size_t n, struct fal_bfp_rec *rec)
{
	struct fal_bfp_rec got = { .block = fal_get_u32(r) };
	got.exponent = (int8_t)fal_get_u8(r);
	got.needed = (int8_t)fal_get_u8(r);
	got.width = fal_get_u8(r);
	const uint8_t zero = fal_get_u8(r);
	got.base = (int64_t)fal_get_u64(r);
	if (r->err != 0)
		return r->err;
	if (got.block >= fal_blocks(n) || !is_exponent(got.exponent) ||
	    (!is_exponent(got.needed) && got.needed != FAL_EXP_NONE) || got.width > 64 ||
	    zero != 0)
		return r->err = FAL_EFORMAT;
	got.len = fal_block_len(n, got.block);
	got.packed_n = fal_bfp_packed_size(got.len, got.width);
	got.packed = fal_get_bytes(r, got.packed_n);
	if (r->err == 0 && !within_limit(&got))
		r->err = FAL_EFORMAT;
	if (r->err == 0)
		*rec = got;
	return r->err;
}

uint64_t
fal_bfp_rec_bound(const struct fal_bfp_rec *rec)
{
	uint64_t room = (uint64_t)FAL_BFP_LIMIT - (uint64_t)rec->base;
	uint64_t top = max_of_width(rec->width) < room ? max_of_width(rec->width) : room;
	int64_t max = (int64_t)((uint64_t)rec->base + top);
	return (uint64_t)(max > -rec->base ? max : -rec->base);
}

/* Adds the record to both parts of a wide block. */
static void
add_rec_wide(int64_t *const part[static 2], const struct fal_bfp_rec *rec)
{
	uint32_t planes[2][FAL_BLOCK];
	unsigned low = low_width(rec->width);
	const fal_u32_any *in = (const fal_u32_any *)rec->packed;
	fal_bfp_unpack(planes[0], in, 0, rec->len, low);
	fal_bfp_unpack(planes[1], in + plane_words(rec->len, low), 0, rec->len,
		       rec->width - low);
	for (unsigned p = 0; p < 2; p++)
		fal_bfp_add_planes(part[p], planes[0] + p * PART, planes[1] + p * PART,
				   rec->base, part_len(rec->len, p));
}

void
fal_bfp_rec_load(const struct fal_bfp_rec *rec, int64_t *v)
{
	memset(v, 0, rec->len * sizeof(*v));
	add_rec_wide((int64_t *[]){ v, v + part_len(rec->len, 0) }, rec);
}

uint64_t
fal_bfp_rec_checksum(const struct fal_bfp_rec *rec, uint32_t as, uint64_t seed)
{
	int64_t v[FAL_BLOCK];
	fal_bfp_rec_load(rec, v);
	return values_checksum(v, rec->len, as, seed);
}

int
fal_sum_add_rec(struct fal_sum *dst, const struct fal_bfp_rec *rec)
{
	struct block *to = &dst->block[rec->block];
	assert(rec->len == fal_block_len(dst->n, rec->block));
	int r = raise_bound(dst, rec->block, fal_bfp_rec_bound(rec));
	if (r < 0)
		return r;
	raise_needed(to, rec->needed);
	if (fal_bfp_rec_bound(rec) == 0)
		return FAL_OK;
	uint32_t *narrow = (uint32_t *)narrow_at(dst, rec->block);
	const fal_u32_any *in = (const fal_u32_any *)rec->packed;
	if (is_wide(to))
		add_rec_wide((int64_t *[]){ part_at(dst, rec->block, 0),
					    part_at(dst, rec->block, 1) },
			     rec);
	else if (r == 1)
		fal_bfp_unpack(narrow, in, (uint32_t)rec->base, rec->len, rec->width);
	else
		fal_bfp_unpack_add(narrow, in, (uint32_t)rec->base, rec->len, rec->width);
	return FAL_OK;
}

/* ---- sums whose exponents differ ----------------------------------------------
 *
 * The coarser side (the larger exponent) is shifted to the finer quantum, which is exact,
 * as long as the sum stays within 2^FAL_BFP_ROOM_ALL. Otherwise the finer side is rounded
 * to the coarser quantum, half to even: an error of at most half a quantum, as each task
 * of the coarser side has made already.  So shifting never uses up the room of later
 * tasks, and only a sum that is too large by itself is refused. */

/* The values of a block: `len` of them, of magnitude up to `bound`, in quanta of 2^(e -
 * FAL_BFP_P + 1). */
struct values {
	int64_t v[FAL_BLOCK];
	uint32_t len;
	uint64_t bound;
	int e;
};

/* Does the sum of the coarser bound, shifted by k, and the finer bound fit? */
static bool
shifted_sum_fits(uint64_t coarse, int k, uint64_t fine)
{
	const uint64_t most = (uint64_t)1 << FAL_BFP_ROOM_ALL;
	return coarse == 0 || (k < 63 && fine <= most && coarse <= (most - fine) >> k);
}

/* v / 2^k, rounded half to even; |v| <= 2^62. */
static int64_t
round_half_even(int64_t v, int k)
{
	if (k > 62)
		return 0;
	const int64_t unit = (int64_t)1 << k, low = v & (unit - 1);
	const int64_t q = (v - low) / unit;
	return q + (low > unit / 2 || (low == unit / 2 && (q & 1) != 0));
}

/* to += from, both in one common quantum.  Returns 0, or 1 if something was rounded;
 * FAL_ELIMIT. */
static int
align_add(struct values *to, struct values *from)
{
	struct values *fine = to->e < from->e ? to : from;
	struct values *coarse = fine == to ? from : to;
	const int k = coarse->e - fine->e;
	const bool exact = shifted_sum_fits(coarse->bound, k, fine->bound);
	if (exact && coarse->bound != 0) {
		coarse->bound <<= k;
		for (uint32_t i = 0; i < coarse->len; i++)
			coarse->v[i] *= (int64_t)1 << k;
	} else if (!exact) {
		fine->bound =
			k > 62 ? 0 : (uint64_t)round_half_even((int64_t)fine->bound, k);
		for (uint32_t i = 0; i < fine->len; i++)
			fine->v[i] = round_half_even(fine->v[i], k);
	}
	coarse->e = fine->e = exact ? fine->e : coarse->e;
	if (to->bound + from->bound > (uint64_t)FAL_BFP_LIMIT)
		return FAL_ELIMIT;
	to->bound += from->bound;
	for (uint32_t i = 0; i < to->len; i++)
		to->v[i] += from->v[i];
	return !exact;
}

/* Adds `from` to the block, whose exponent is *e. */
static int
add_values(struct fal_sum *dst, uint32_t block, int8_t *e, struct values *from,
	   int8_t needed)
{
	struct values to = { .len = from->len,
			     .bound = fal_sum_bound(dst, block),
			     .e = *e };
	const int8_t had = fal_sum_needed(dst, block);
	fal_sum_load(dst, block, to.v);
	const int rounding = align_add(&to, from);
	if (rounding < 0)
		return rounding;
	(void)fal_sum_store(dst, block, to.v, to.bound, needed > had ? needed : had);
	*e = (int8_t)to.e;
	return rounding;
}

int
fal_sum_add_aligned(struct fal_sum *dst, int8_t *dst_exps, const struct fal_sum *src,
		    const int8_t *src_exps)
{
	const size_t n = fal_sum_len(dst);
	for (uint32_t b = 0; b < fal_blocks(n); b++) {
		int err;
		if (fal_sum_bound(dst, b) == 0)
			dst_exps[b] = src_exps[b];
		if (dst_exps[b] == src_exps[b] || fal_sum_bound(src, b) == 0) {
			err = sum_add_block(dst, src, b);
		} else {
			struct values from = { .len = fal_block_len(n, b),
					       .bound = fal_sum_bound(src, b),
					       .e = src_exps[b] };
			fal_sum_load(src, b, from.v);
			err = add_values(dst, b, &dst_exps[b], &from,
					 fal_sum_needed(src, b));
		}
		if (err < 0)
			return err;
	}
	return FAL_OK;
}

int
fal_sum_add_rec_aligned(struct fal_sum *dst, int8_t *e, const struct fal_bfp_rec *rec)
{
	if (fal_bfp_rec_bound(rec) == 0 || *e == rec->exponent)
		return fal_sum_add_rec(dst, rec);
	if (fal_sum_bound(dst, rec->block) == 0) {
		int err = fal_sum_add_rec(dst, rec);
		*e = err == FAL_OK ? rec->exponent : *e;
		return err;
	}
	struct values from = { .len = rec->len,
			       .bound = fal_bfp_rec_bound(rec),
			       .e = rec->exponent };
	fal_bfp_rec_load(rec, from.v);
	return add_values(dst, rec->block, e, &from, rec->needed);
}

/* ---- which records honest tasks can have made ---------------------------------
 *
 * A value g of a task is below 2^room quanta, and `needed` is the least k with max|g| <=
 * 2^k.  Let d be needed - e, in powers of two of a quantum.  Then the task's largest
 * integer M has 2^(d-1) <= M <= 2^d, where half a quantum rounds to 0; if d is above
 * room, M is the largest integer that has room.  A sum of T tasks has no such lower end,
 * because tasks may cancel out; its upper end is T times as large.  A record's bound, by
 * base and width, is less than thrice its largest value: near enough for sums, and free.
 * Clamped exponents prove nothing at their end. */

/* A record's bound is less than this many times its largest value. */
enum { SLACK = 3 };

/* `needed` in quanta, as a power of two. */
static int
rec_power(const struct fal_bfp_rec *rec)
{
	return rec->needed - rec->exponent + FAL_BFP_P - 1;
}

/* The largest and the smallest value that the largest integer of a task can have. */
static uint64_t
rec_most(const struct fal_bfp_rec *rec, unsigned room)
{
	const int d = rec_power(rec);
	if (rec->needed == FAL_EXP_NONE || d < 0)
		return 0;
	return (uint64_t)1 << (rec->needed < FAL_EXP_MAX && d < (int)room ? (unsigned)d
									  : room);
}

static uint64_t
rec_least(const struct fal_bfp_rec *rec, unsigned room)
{
	const int d = rec_power(rec);
	if (rec->needed == FAL_EXP_NONE || rec->needed == FAL_EXP_MIN || d < 0)
		return 0;
	if (d > (int)room)
		return (uint64_t)fal_bfp_largest(room);
	return d > 0 ? (uint64_t)1 << (d - 1) : 1;
}

/* The largest magnitude in the record. */
static uint64_t
rec_largest(const struct fal_bfp_rec *rec)
{
	int64_t min, max;
	if (fal_bfp_rec_bound(rec) <= INT32_MAX) {
		int32_t v[FAL_BLOCK];
		fal_bfp_unpack((uint32_t *)v, (const fal_u32_any *)rec->packed,
			       (uint32_t)rec->base, rec->len, rec->width);
		fal_bfp_range_narrow(v, rec->len, &min, &max);
	} else {
		int64_t v[FAL_BLOCK];
		fal_bfp_rec_load(rec, v);
		fal_bfp_range_wide(v, rec->len, &min, &max);
	}
	return (uint64_t)(max > -min ? max : -min);
}

int
fal_bfp_rec_check(const struct fal_bfp_rec *rec, uint32_t tasks, unsigned room)
{
	const uint64_t bound = fal_bfp_rec_bound(rec);
	if (bound > SLACK * ((uint64_t)tasks << room))
		return FAL_ELIMIT;
	if (bound == 0 && rec->needed != FAL_EXP_NONE && rec_power(rec) > (int)room)
		return FAL_EINVAL;
	if (tasks > 1)
		return bound > SLACK * tasks * rec_most(rec, room) ? FAL_EINVAL : FAL_OK;
	const uint64_t largest = bound > 0 ? rec_largest(rec) : 0;
	return largest > rec_most(rec, room) || largest < rec_least(rec, room)
		       ? FAL_EINVAL
		       : FAL_OK;
}

int
fal_bfp_rec_check_delta(const struct fal_bfp_rec *rec)
{
	const int8_t e = rec->needed != FAL_EXP_NONE ? rec->needed : FAL_EXP_MIN;
	if (rec->exponent != e)
		return FAL_EINVAL;
	return fal_bfp_rec_check(rec, 1, FAL_BFP_ROOM_DELTA);
}

/* ---- fewer bits ---------------------------------------------------------------
 *
 * Fewer bits than a sum has: random rounding, with the same random numbers on every
 * machine that computes the task.  Loops as in bfp_kern.c: all widths of vectors give the
 * same bits. */

enum { WORDS = 4, COLS = FAL_BLOCK / WORDS / 2 }; /* a word gives two numbers */

/* fal_philox of the counters (0 … COLS-1, block, 0, FAL_RNG_ROUND), side by side. */
FAL_VECTOR static void
draw_philox(uint32_t w[static WORDS][COLS], uint64_t seed, uint32_t block)
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
	for (uint32_t i = 0; i < COLS; i++) {
		w[0][i] = i;
		w[1][i] = block;
		w[2][i] = 0;
		w[3][i] = FAL_RNG_ROUND;
	}
	for (int round = 0; round < 10; round++) {
		for (uint32_t i = 0; i < COLS; i++) {
			const uint64_t p0 = (uint64_t)0xD2511F53u * w[0][i];
			const uint64_t p1 = (uint64_t)0xCD9E8D57u * w[2][i];
			w[0][i] = (uint32_t)(p1 >> 32) ^ w[1][i] ^ k0;
			w[2][i] = (uint32_t)(p0 >> 32) ^ w[3][i] ^ k1;
			w[1][i] = (uint32_t)p1;
			w[3][i] = (uint32_t)p0;
		}
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
}

/* Every float from 2^23 on is a whole number, and a NaN compares as not less. */
FAL_VECTOR static void
round_by(const uint32_t *restrict w, unsigned shift, float scale, float quantum,
	 float *restrict v, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++) {
		const float t = v[i] * scale, low = floorf(t);
		const float r = (float)(int32_t)(w[i] >> shift & 0xffff);
		const float up = t - low > (r + 0.5f) * 0x1p-16f ? 1.0f : 0.0f;
		v[i] = fabsf(t) < 0x1p23f ? (low + up) * quantum : v[i];
	}
}

void
fal_bfp_dither(float *v, uint32_t len, int8_t e, uint64_t seed, uint32_t block)
{
	const float scale = ldexpf(1, FAL_BFP_P - 1 - e);
	const float quantum = ldexpf(1, e - FAL_BFP_P + 1);
	uint32_t w[WORDS][COLS];
	draw_philox(w, seed, block);
	for (uint32_t at = 0, row = 0; at < len; at += COLS, row++)
		round_by(w[row / 2], row % 2 * 16, scale, quantum, v + at,
			 len - at < COLS ? len - at : COLS);
}
