/* Exact sums: block floating point (falcon-protocol(7), "EXACT SUMS").
 *
 * The flat parameter vector is cut into blocks of FAL_BLOCK float32 (the last one may be
 * shorter).  Every block has an exponent e; a task's gradient g, a sum over its samples,
 * becomes the integers q = rint(g · 2^(FAL_BFP_P - 1 - e)).  Sums of integers do not
 * depend on the order of adding, so a model does not depend on who computed what.
 *
 * Owns: quantising, adding, packing, checksums.  No I/O, no clock, no threads.
 */
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
	FAL_EXP_FALL = 2,      /* a block's exponent falls by no more in a step, */
	FAL_EXP_RISE = 8,      /* … and rises by no more */
	FAL_BFP_HEADROOM = 32, /* |g| < 2^(e + 32), else it has no room */
	FAL_BFP_ROOM = FAL_BFP_P - 1 + FAL_BFP_HEADROOM, /* bits of one task's value */
	FAL_BFP_ROOM_DELTA = FAL_BFP_P,                  /* of a change of weights */
	FAL_BFP_ROOM_ALL = 60 /* and of all tasks' of a clock */
};

/* No value of a sum or a record is beyond ±FAL_BFP_LIMIT, so adding two never
 * overflows.  Nor is it ever reached by tasks that keep to their room: a record's bound
 * is at most thrice its values, and 3 · 2^FAL_BFP_ROOM_ALL is less. */
#define FAL_BFP_LIMIT ((int64_t)1 << (FAL_BFP_P + FAL_BFP_HEADROOM + 6))

/* The room of a job whose clocks have up to `tasks` tasks: each value of a task is less
 * than 2^room in magnitude, so that all tasks of a clock stay within
 * 2^FAL_BFP_ROOM_ALL. */
static inline unsigned
fal_bfp_room(uint32_t tasks)
{
	unsigned room = FAL_BFP_ROOM;
	while (tasks > (uint64_t)1 << (FAL_BFP_ROOM_ALL - room))
		room--;
	return room;
}

/* The largest integer of a float that has room; a larger value counts as this one. */
static inline int64_t
fal_bfp_largest(unsigned room)
{
	return ((int64_t)1 << room) - ((int64_t)1 << (room - FAL_BFP_P));
}

/* How many blocks hold n values, and how many values the block b of n values holds. */
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

/* A vector of exact integer sums with, per block, the largest exponent any addend
 * needed.  One task's quantised gradient, a contribution and a shard's accumulator are
 * all such sums.  Values are int32 until a block's bound could leave int32; that block
 * then continues in int64 ("escape"), with the second addend.  Opaque. */
struct fal_sum;

/* A zero sum of n float32 places (n >= 1), or NULL when out of memory.  It takes
 * fal_sum_bytes at most; half of that as long as no block escapes, and so always when it
 * has only ever been quantised. */
struct fal_sum *fal_sum_new(size_t n);
void fal_sum_free(struct fal_sum *s);
bool fal_sum_grown(const struct fal_sum *s); /* it may take more than half */
static inline size_t
fal_sum_bytes(size_t n)
{
	return n * sizeof(int64_t);
}
size_t fal_sum_len(const struct fal_sum *s);

/* All zero again; needed = FAL_EXP_NONE. */
void fal_sum_clear(struct fal_sum *s);

/* s = the quantised gradient `g` (n floats, borrowed) under `exps` (one per block,
 * borrowed, each within [FAL_EXP_MIN, FAL_EXP_MAX]).  Sets needed per block: the smallest
 * e with max|g| <= 2^e, clamped to [FAL_EXP_MIN, FAL_EXP_MAX]; FAL_EXP_NONE for a block
 * of zeros.  `room`: of the job, see fal_bfp_room; what has none counts as
 * fal_bfp_largest, but for `needed`.  Returns 0; FAL_ENONFINITE when a value is NaN or
 * infinite (then *bad_block, if not NULL, is the first such block and `s` is
 * unspecified). */
int fal_sum_quantise(struct fal_sum *s, const float *g, const int8_t *exps, unsigned room,
		     uint32_t *bad_block);

/* The same for one block: of its values alone, `g`, each of which is read once, so that
 * somebody else may write there meanwhile; or which are where fal_sum_memory says. */
int fal_sum_quantise_block(struct fal_sum *s, uint32_t block, const float *g,
			   int8_t exponent, unsigned room);

/* dst += src (two sums of equal lengths); needed = max of both.  0, or
 * FAL_ELIMIT when a bound would pass 2^(FAL_BFP_P + FAL_BFP_HEADROOM + 6), so that no
 * int64 overflows.  On error the blocks before the one that failed are added, that one
 * and those after it are unchanged. */
int fal_sum_add(struct fal_sum *dst, const struct fal_sum *src);

/* The memory of a block whose values nobody needs any more, for as many floats, behind
 * which the next one's begins: until it is cleared, or these are quantised, nothing is
 * asked of it but what was needed, and how large it was. */
float *fal_sum_memory(struct fal_sum *s, uint32_t block);

/* The same as fal_sum_add for one block. */
int fal_sum_add_block(struct fal_sum *dst, const struct fal_sum *src, uint32_t block);

/* The block's values, of *width bytes each: 0 (NULL: they are all zero), 4, or, where the
 * bound says that one may be too large for that, 8; in memory of the sum or in `room`. */
union fal_sum_room {
	int64_t wide[FAL_BLOCK];
	int32_t narrow[FAL_BLOCK];
};
const void *fal_sum_values(const struct fal_sum *s, uint32_t block, uint32_t *width,
			   union fal_sum_room *room);

/* Value i of the sum, for tests and naive twins. */
int64_t fal_sum_get(const struct fal_sum *s, size_t i);
int8_t fal_sum_needed(const struct fal_sum *s, uint32_t block);

/* Largest |value| in a block that the sum can hold by its own book-keeping (an upper
 * bound, not the exact maximum). */
uint64_t fal_sum_bound(const struct fal_sum *s, uint32_t block);

/* A checksum that is linear: the checksum of a sum is the sum (mod 2^64) of the
 * checksums.  Σ_i r(as, i)·value_i mod 2^64 with r odd 64-bit numbers of the stream
 * (seed, FAL_RNG_CHECKSUM, as); `as` is the block's number in the whole model, of which
 * the sum may be a part.  Used by audit = sums. */
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

/* The fixed part of a record, as parsed; `packed` is borrowed from the input. */
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

/* Parses one record of a vector of n values from `r`, checking block < fal_blocks(n),
 * width, the 0, exponent ranges and that every value stays within
 * ±2^(FAL_BFP_P + FAL_BFP_HEADROOM + 6).  The bits of missing places are not looked at.
 * Sticky errors in `r`, FAL_ETRUNC or FAL_EFORMAT; returns fal_rd's error. */
int fal_bfp_parse(struct fal_rd *r, size_t n, struct fal_bfp_rec *rec);

/* dst's block += the record's values; needed = max.  0 or FAL_ELIMIT.  The
 * caller has checked that rec->exponent is the exponent of dst's version. */
int fal_sum_add_rec(struct fal_sum *dst, const struct fal_bfp_rec *rec);

/* dst += src, two sums of equal lengths whose blocks have the exponents `dst_exps` and
 * `src_exps` (one per block), which may differ: see bfp.c.  For equal exponents this is
 * fal_sum_add; `dst_exps` becomes the exponents of the new sums.  0 or FAL_ELIMIT; on
 * error the blocks before the one that failed are added. */
int fal_sum_add_aligned(struct fal_sum *dst, int8_t *dst_exps, const struct fal_sum *src,
			const int8_t *src_exps);

/* The same for a record, whose block in `dst` has the exponent *e.  Returns 0, or 1 when
 * something had to be rounded; FAL_ELIMIT (then nothing has changed). */
int fal_sum_add_rec_aligned(struct fal_sum *dst, int8_t *e,
			    const struct fal_bfp_rec *rec);

/* A block's values, all of them, to `v`; and as they are to be, each within ±`bound`,
 * which is at most FAL_BFP_LIMIT.  0. */
void fal_sum_load(const struct fal_sum *s, uint32_t block, int64_t *v);
int fal_sum_store(struct fal_sum *s, uint32_t block, const int64_t *v, uint64_t bound,
		  int8_t needed);

/* The values of a record, all of them, to `v`; and what none of them exceeds in
 * magnitude, by base and width. */
void fal_bfp_rec_load(const struct fal_bfp_rec *rec, int64_t *v);
uint64_t fal_bfp_rec_bound(const struct fal_bfp_rec *rec);

/* Can honest tasks, `tasks` of them in a job of this room, have made the record?  0;
 * FAL_ELIMIT: its values exceed thrice their room.  FAL_EINVAL: its `needed` is not what
 * the values show: those of one task show it but for rounding and what has no room, those
 * of several show what it is at least.  See bfp.c. */
int fal_bfp_rec_check(const struct fal_bfp_rec *rec, uint32_t tasks, unsigned room);

/* The same of a record's values, as fal_sum_checksum has it. */
uint64_t fal_bfp_rec_checksum(const struct fal_bfp_rec *rec, uint32_t as, uint64_t seed);

/* Can it be a change of weights, whose exponent is the least that holds it?  The same. */
int fal_bfp_rec_check_delta(const struct fal_bfp_rec *rec);

/* The naive twin of the unpacking in fal_sum_add_rec: value i of the record. */
int64_t fal_bfp_rec_get(const struct fal_bfp_rec *rec, uint32_t i);

/* out[i] = (float)((double)sum_i · 2^(e - FAL_BFP_P + 1) / divisor) for the values of
 * `block`: the mean gradient when divisor is the clock's sample count. */
void fal_sum_mean(const struct fal_sum *s, uint32_t block, int8_t exponent,
		  double divisor, float *out);

/* The smallest exponent with max|g| <= 2^e over the `len` values (at most FAL_BLOCK) of
 * a block, clamped as above; FAL_EXP_NONE for zeros.  A value that is not finite counts
 * as the largest. */
int8_t fal_exp_needed(const float *g, uint32_t len);

/* The largest magnitude; infinity where a value is not finite. */
float fal_max_abs(const float *v, uint32_t len);

/* What every value of a block is less than in magnitude that can be quantised; infinity:
 * each that is finite can. */
float fal_bfp_most(int8_t exponent, unsigned room);

/* The next exponent of a block: `needed`, but at least e - FAL_EXP_FALL and at most
 * e + FAL_EXP_RISE, within [FAL_EXP_MIN, FAL_EXP_MAX]; e itself for FAL_EXP_NONE. */
int8_t fal_exp_next(int8_t e, int8_t needed);

/* ---- fewer bits ------------------------------------------------------------------ */

/* Of a job whose tasks' values are to have `bits` bits (8 to FAL_BFP_P; 0: FAL_BFP_P)
 * where |g| <= 2^needed: what counts as needed, so that the exponent is so much higher
 * and the quantum so much larger.  FAL_EXP_NONE stays. */
int8_t fal_exp_needed_at(int8_t needed, unsigned bits);

/* Each of `len` values is rounded to a whole number of quanta 2^(e -
 * (FAL_BFP_P - 1)), up or down by chance, so that its mean is the value: up if what is
 * above the quantum below is more than (r + 1/2) / 2^16 of one.  What is not finite, and
 * what has no digits below the quantum, stays.  `e`: as for fal_sum_quantise.
 *
 * The 16 bits r of value i are, of the block of Philox4x32-10 with the key `seed` (of the
 * task: fal_rng_task) and the counter (i mod 512, block, 0, FAL_RNG_ROUND), those of word
 * i / 1024, the low half if i / 512 is even; `block` is its number in the whole model. */
void fal_bfp_dither(float *v, uint32_t len, int8_t e, uint64_t seed, uint32_t block);

#endif
