/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers:
 * as easy as 1, 2, 3", SC 2011), keyed by (seed, purpose, epoch).  falcon-protocol(7)
 * defines the streams; the same key gives the same numbers on every machine.
 */
#ifndef FAL_BASE_RNG_H
#define FAL_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* The purposes of streams.  falcon-protocol(7) has these numbers: never renumber. */
enum fal_purpose {
	FAL_RNG_INIT = 1,     /* initial weights; epoch = tensor number */
	FAL_RNG_ORDER = 2,    /* order of samples; epoch = epoch */
	FAL_RNG_CHECKSUM = 3, /* audit = sums; epoch = block */
	FAL_RNG_EMULATE = 4,  /* falcon-work --emulate; see falcon-emulate(5) */
	FAL_RNG_TEST = 5,     /* tests and the simulator */
	FAL_RNG_DEAL = 6,     /* dealing samples to partitions; epoch = 0 */
	FAL_RNG_PROJ = 7,     /* machines that falcon-proj draws; epoch = 0 */
	FAL_RNG_DRAW = 8,     /* falcon-ps's own random choices; epoch = 0 */
	FAL_RNG_TASK = 9,     /* a task's own seed: block = clock, epoch = task */
	FAL_RNG_ROUND = 10    /* rounding to few bits; see wire/bfp.h */
};

struct fal_rng {
	uint32_t key[2];
	uint32_t ctr[4];
	uint32_t out[4];
	unsigned left; /* unused numbers of `out` */
};

/* One Philox4x32-10 block. */
void fal_philox(const uint32_t ctr[static 4], const uint32_t key[static 2],
		uint32_t out[static 4]);

/* Begins the stream (seed, purpose, epoch): key = seed (low word first), counter =
 * (i low, i high, epoch, purpose) for block i = 0, 1, … */
struct fal_rng fal_rng_init(uint64_t seed, enum fal_purpose purpose, uint32_t epoch);

/* The seed of a task: the same on all workers. */
uint64_t fal_rng_task(uint64_t job_seed, uint64_t clock, uint32_t task);

uint32_t fal_rng_u32(struct fal_rng *r);
uint64_t fal_rng_u64(struct fal_rng *r); /* low word first */

/* Uniform in [0, n), n > 0, without bias: Lemire's multiply-and-reject. */
uint32_t fal_rng_below(struct fal_rng *r, uint32_t n);

/* Uniform in [0, 1): the upper 24 bits of one number, exact in float. */
float fal_rng_unit(struct fal_rng *r);

/* Fisher–Yates: for i = n-1 … 1 swap a[i] with a[fal_rng_below(i + 1)]. */
void fal_rng_shuffle(struct fal_rng *r, uint32_t *a, uint32_t n);

#endif
