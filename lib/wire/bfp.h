/* Exact sums: block floating point (falcon-protocol(7), "EXACT SUMS").
 *
 * The flat parameter vector is cut into blocks of FAL_BLOCK float32 (the last block may
 * be shorter). Every block has an exponent e.  A task's gradient g, a sum over its
 * samples, becomes the integers q = rint(g · 2^(FAL_BFP_P - 1 - e)). Sums of integers do
 * not depend on the order of additions, so a model does not depend on which worker
 * computed which task.
 *
 * Owns quantising, adding, packing, checksums.  No I/O, no clock, no threads. */
#ifndef FAL_WIRE_BFP_H
#define FAL_WIRE_BFP_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FAL_BLOCK = 4096, /* float32 per block */
	FAL_BFP_P = 24,   /* bits of a quantised value with |g| <= 2^e, sign included */
	FAL_EXP_FIRST = -12, /* every block's exponent before the first clock */
	FAL_EXP_MIN = -100,  /* exponents are kept within [FAL_EXP_MIN, FAL_EXP_MAX] */
	FAL_EXP_MAX = 100,
	FAL_EXP_NONE = -128,   /* "needed" of a block that was all zero */
	FAL_EXP_FALL = 2,      /* most that a block's exponent falls in a step, */
	FAL_EXP_RISE = 8,      /* … and rises */
	FAL_BFP_HEADROOM = 32, /* |g| < 2^(e + 32), else it has no room */
	FAL_BFP_ROOM = FAL_BFP_P - 1 + FAL_BFP_HEADROOM, /* bits of one task's value */
	FAL_BFP_ROOM_DELTA = FAL_BFP_P,                  /* bits of a change of weights */
	FAL_BFP_ROOM_ALL = 60 /* bits of the sum of all tasks of a clock */
};

/* No value of a sum or a record is outside ±FAL_BFP_LIMIT, so adding two values never
 * overflows.  Tasks that keep to their room never reach the limit: a record's bound is at
 * most thrice its values, and 3 · 2^FAL_BFP_ROOM_ALL is less. */
#define FAL_BFP_LIMIT ((int64_t)1 << (FAL_BFP_P + FAL_BFP_HEADROOM + 6))

/* Returns the room of a job whose clocks have up to `tasks` tasks: each value of a task
 * is less than 2^room in magnitude, so all tasks of a clock stay within
 * 2^FAL_BFP_ROOM_ALL. */
static inline unsigned
fal_bfp_room(uint32_t tasks)
{
	unsigned room = FAL_BFP_ROOM;
	while (tasks > (uint64_t)1 << (FAL_BFP_ROOM_ALL - room))
		room--;
	return room;
}

/* Returns the largest integer of a float that has room; larger values count as this one.
 */
static inline int64_t
fal_bfp_largest(unsigned room)
{
	return ((int64_t)1 << room) - ((int64_t)1 << (room - FAL_BFP_P));
}

/* Return the number of blocks for n values, and the number of values in block b of n
 * values. */
static inline uint32_t
fal_blocks(size_t n)
{
	return (uint32_t)((n + FAL_BLOCK - 1) / FAL_BLOCK);
}

static inline uint32_t
fal_block_len(size_t n, uint32_t b)
{
	size_t first = (size_t)b * FAL_BLOCK;
	return n - first < FAL_BLOCK ? (uint32_t)(n - first) : FAL_BLOCK;
}

/* A vector of exact integer sums with, for each block, the largest exponent that an
 * addend needed.  One task's quantised gradient, a contribution and a shard's accumulator
 * are such sums.  Values are int32 until a block's bound could leave int32; from that
 * addition on the block is int64 (it "escapes"). Opaque. */
struct fal_sum;

/* Makes a zero sum of n float32 places (n >= 1); NULL when out of memory.  The sum takes
 * fal_sum_bytes at most, and half of that until some block escapes; a sum that was only
 * ever quantised has no such block. */
struct fal_sum *fal_sum_new(size_t n);
void fal_sum_free(struct fal_sum *s);
bool fal_sum_grown(
	const struct fal_sum *s); /* may the sum take more than half of fal_sum_bytes? */
static inline size_t
fal_sum_bytes(size_t n)
{
	return n * sizeof(int64_t);
}
size_t fal_sum_len(const struct fal_sum *s);

/* Sets all values to zero, and needed to FAL_EXP_NONE. */
void fal_sum_clear(struct fal_sum *s);

/* Sets s to the quantised gradient `g` (n floats, borrowed) under `exps` (one for each
 * block, borrowed, within [FAL_EXP_MIN, FAL_EXP_MAX]). Sets needed for each block: the
 * smallest e with max|g| <= 2^e, clamped to [FAL_EXP_MIN, FAL_EXP_MAX]; FAL_EXP_NONE for
 * zeros.  `room`: of the job, see fal_bfp_room; a value without room counts as
 * fal_bfp_largest, except for `needed`. Returns 0; FAL_ENONFINITE: a value is NaN or
 * infinite (then *bad_block, if not NULL, is the first such block, and `s` is
 * unspecified). */
int fal_sum_quantise(struct fal_sum *s, const float *g, const int8_t *exps, unsigned room,
		     uint32_t *bad_block);

/* The same for one block; `g` has the values of this block only.  Each value is read
 * once, so another process may write to `g` meanwhile.  `g` may be fal_sum_memory of the
 * block. */
int fal_sum_quantise_block(struct fal_sum *s, uint32_t block, const float *g,
			   int8_t exponent, unsigned room);

/* dst += src (two sums of equal lengths); needed = the larger one.  Returns 0, or
 * FAL_ELIMIT: a bound would exceed FAL_BFP_LIMIT, which no int64 may.  On error the
 * blocks before the failed one are added, the others are unchanged. */
int fal_sum_add(struct fal_sum *dst, const struct fal_sum *src);

/* Gives up the values of a block, and returns its memory, which has room for as many
 * floats; the next block's memory follows.  Until the block is cleared, or these floats
 * are quantised, the caller may only ask for its `needed` and its bound. */
float *fal_sum_memory(struct fal_sum *s, uint32_t block);

/* Returns the block's values, of *width bytes each: 0 (NULL: all are zero), 4, or 8 if
 * the bound allows a value that is too large for 4. The values are in memory of the sum
 * or in `room`. */
union fal_sum_room {
	int64_t wide[FAL_BLOCK];
	int32_t narrow[FAL_BLOCK];
};
const void *fal_sum_values(const struct fal_sum *s, uint32_t block, uint32_t *width,
			   union fal_sum_room *room);

int8_t fal_sum_needed(const struct fal_sum *s, uint32_t block);

/* Returns an upper bound of the |values| in a block, not the exact maximum. */
uint64_t fal_sum_bound(const struct fal_sum *s, uint32_t block);

/* A linear checksum: the checksum of a sum is the sum (mod 2^64) of the checksums.  Σ_i
 * r(as, i)·value_i mod 2^64, with r odd 64-bit numbers of the stream (seed,
 * FAL_RNG_CHECKSUM, as). `as` is the block's number in the whole model, of which the sum
 * may be a part.  For audit = sums. */
uint64_t fal_sum_checksum(const struct fal_sum *s, uint32_t block, uint32_t as,
			  uint64_t seed);

/* Appends the block's record to `out`:
 *   u32 block, i8 exponent, i8 needed, u8 width (0..64), u8 0, i64 base, packed values
 *   (fal_bfp_packed_size bytes).
 * Values are packed as value - base in `width` bits: frame of reference, fewest bits.
 * 0 or FAL_ENOMEM. */
int fal_sum_pack(const struct fal_sum *s, uint32_t block, int8_t exponent,
		 struct fal_buf *out);

/* Bytes of packed values for a block of `len` values at `width` bits.  Layout: values
 * are rows of 128 columns (value i: row i / 128, column i % 128; rows = ceil(len / 128),
 * missing places 0); each column packs its rows' width-bit numbers, low bits first, into
 * ceil(rows·width / 32) u32 words; word j of all columns stands before word j+1.  Widths
 * above 32: first the low 32 bits of all values, then a second such plane with the
 * remaining width - 32 bits. */
size_t fal_bfp_packed_size(uint32_t len, unsigned width);

/* The parsed fields of a record; `packed` is borrowed from the input. */
struct fal_bfp_rec {
	uint32_t block;
	uint32_t len; /* values in the block, from n */
	int8_t exponent;
	int8_t needed;
	uint8_t width;
	int64_t base;
	const uint8_t *packed;
	size_t packed_n;
};

/* Parses one record of a vector of n values from `r`. Checks block < fal_blocks(n),
 * width, the 0, the exponents, and that every value is within ±FAL_BFP_LIMIT. Ignores the
 * bits of missing places.  Returns r's sticky error: FAL_ETRUNC or FAL_EFORMAT. */
int fal_bfp_parse(struct fal_rd *r, size_t n, struct fal_bfp_rec *rec);

/* dst's block += the record's values; needed = the larger one.  Returns 0 or FAL_ELIMIT.
 * The caller has checked that rec->exponent is the exponent of dst's version. */
int fal_sum_add_rec(struct fal_sum *dst, const struct fal_bfp_rec *rec);

/* dst += src, two sums of equal lengths whose blocks have the exponents `dst_exps` and
 * `src_exps`, which may differ (see bfp.c). For equal exponents this is fal_sum_add.
 * `dst_exps` becomes the exponents of the new sums.  Returns 0 or FAL_ELIMIT; on error
 * the blocks before the failed one are added. */
int fal_sum_add_aligned(struct fal_sum *dst, int8_t *dst_exps, const struct fal_sum *src,
			const int8_t *src_exps);

/* The same for a record, whose block in `dst` has the exponent *e.  Returns 0; 1:
 * something was rounded; FAL_ELIMIT, without a change. */
int fal_sum_add_rec_aligned(struct fal_sum *dst, int8_t *e,
			    const struct fal_bfp_rec *rec);

/* fal_sum_load copies all values of a block to `v`; fal_sum_store sets them from `v`.
 * Each value is within ±`bound`, which is at most FAL_BFP_LIMIT.  Returns 0. */
void fal_sum_load(const struct fal_sum *s, uint32_t block, int64_t *v);
int fal_sum_store(struct fal_sum *s, uint32_t block, const int64_t *v, uint64_t bound,
		  int8_t needed);

/* fal_bfp_rec_load copies all values of a record to `v`; fal_bfp_rec_bound returns an
 * upper bound of their magnitude, which follows from base and width. */
void fal_bfp_rec_load(const struct fal_bfp_rec *rec, int64_t *v);
uint64_t fal_bfp_rec_bound(const struct fal_bfp_rec *rec);

/* Checks that `tasks` honest tasks, in a job of this room, can have made the record.
 * Returns 0; FAL_ELIMIT: its values exceed thrice their room; FAL_EINVAL: its `needed`
 * contradicts the values.  The values of one task determine `needed`, except for rounding
 * and values without room; the values of several tasks give a lower limit.  See bfp.c. */
int fal_bfp_rec_check(const struct fal_bfp_rec *rec, uint32_t tasks, unsigned room);

/* Returns the checksum of a record's values, as fal_sum_checksum does. */
uint64_t fal_bfp_rec_checksum(const struct fal_bfp_rec *rec, uint32_t as, uint64_t seed);

/* Checks that the record can be a change of weights, whose exponent is the least that
 * holds it.  Returns as fal_bfp_rec_check. */
int fal_bfp_rec_check_delta(const struct fal_bfp_rec *rec);

/* Sets out[i] = (float)((double)sum_i · 2^(e - FAL_BFP_P + 1) / divisor) for the values
 * of `block`: the mean gradient if divisor is the clock's number of samples. */
void fal_sum_mean(const struct fal_sum *s, uint32_t block, int8_t exponent,
		  double divisor, float *out);

/* Returns the smallest exponent with max|g| <= 2^e over the `len` values (at most
 * FAL_BLOCK) of a block, clamped as above; FAL_EXP_NONE for zeros.  A value that is not
 * finite counts as the largest. */
int8_t fal_exp_needed(const float *g, uint32_t len);

/* Returns the largest magnitude; infinity if a value is not finite. */
float fal_max_abs(const float *v, uint32_t len);

/* Returns the magnitude below which every value of a block can be quantised; infinity:
 * every finite value can. */
float fal_bfp_most(int8_t exponent, unsigned room);

/* Returns the next exponent of a block: `needed`, but at least e - FAL_EXP_FALL and at
 * most e + FAL_EXP_RISE, within [FAL_EXP_MIN, FAL_EXP_MAX]; e itself for FAL_EXP_NONE. */
int8_t fal_exp_next(int8_t e, int8_t needed);

/* ---- fewer bits ------------------------------------------------------------------ */

/* A block needs the exponent `needed` for values of FAL_BFP_P bits.  Returns the larger
 * exponent, with a larger quantum, that the block needs for values of `bits` bits, 8 to
 * FAL_BFP_P; 0 bits: `needed`.  FAL_EXP_NONE stays. */
int8_t fal_exp_needed_at(int8_t needed, unsigned bits);

/* Rounds each of `len` values to a whole number of quanta 2^(e - (FAL_BFP_P - 1)), up or
 * down at random, so that the mean is the value: up if the part above the lower quantum
 * is more than (r + 1/2) / 2^16 of a quantum.  Values that are not finite, or have no
 * digits below the quantum, stay.  `e`: as for fal_sum_quantise.
 *
 * The 16 bits r of value i come from the block of Philox4x32-10 with the key `seed` (of
 * the task: fal_rng_task) and the counter (i mod 512, block, 0, FAL_RNG_ROUND): word i /
 * 1024, the low half if i / 512 is even.  `block` is the block's number in the whole
 * model. */
void fal_bfp_dither(float *v, uint32_t len, int8_t e, uint64_t seed, uint32_t block);

#endif
