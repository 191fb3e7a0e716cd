/* Philox4x32-10 and its uses. */
#include "base/rng.h"

void
fal_philox(const uint32_t ctr[static 4], const uint32_t key[static 2],
	   uint32_t out[static 4])
{
	uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3];
	uint32_t k0 = key[0], k1 = key[1];
	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xD2511F53u * c0;
		uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
		uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c1 = (uint32_t)p1;
		c3 = (uint32_t)p0;
		c0 = n0;
		c2 = n2;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

struct fal_rng
fal_rng_init(uint64_t seed, enum fal_purpose purpose, uint32_t epoch)
{
	return (struct fal_rng){
		.key = { (uint32_t)seed, (uint32_t)(seed >> 32) },
		.ctr = { 0, 0, epoch, (uint32_t)purpose },
	};
}

uint64_t
fal_rng_task(uint64_t job_seed, uint64_t clock, uint32_t task)
{
	const uint32_t key[2] = { (uint32_t)job_seed, (uint32_t)(job_seed >> 32) };
	const uint32_t ctr[4] = { (uint32_t)clock, (uint32_t)(clock >> 32), task,
				  FAL_RNG_TASK };
	uint32_t word[4];
	fal_philox(ctr, key, word);
	return word[0] | (uint64_t)word[1] << 32;
}

uint32_t
fal_rng_u32(struct fal_rng *r)
{
	if (r->left == 0) {
		fal_philox(r->ctr, r->key, r->out);
		if (++r->ctr[0] == 0)
			r->ctr[1]++;
		r->left = 4;
	}
	return r->out[4 - r->left--];
}

uint64_t
fal_rng_u64(struct fal_rng *r)
{
	uint64_t low = fal_rng_u32(r);
	return low | (uint64_t)fal_rng_u32(r) << 32;
}

uint32_t
fal_rng_below(struct fal_rng *r, uint32_t n)
{
	uint64_t m = (uint64_t)fal_rng_u32(r) * n;
	if ((uint32_t)m < n) {
		uint32_t reject = (0u - n) % n;
		while ((uint32_t)m < reject)
			m = (uint64_t)fal_rng_u32(r) * n;
	}
	return (uint32_t)(m >> 32);
}

float
fal_rng_unit(struct fal_rng *r)
{
	return (float)(fal_rng_u32(r) >> 8) * 0x1p-24f;
}

void
fal_rng_shuffle(struct fal_rng *r, uint32_t *a, uint32_t n)
{
	for (uint32_t i = n; i > 1; i--) {
		uint32_t j = fal_rng_below(r, i);
		uint32_t tmp = a[i - 1];
		a[i - 1] = a[j];
		a[j] = tmp;
	}
}
