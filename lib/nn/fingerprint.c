/* A made-up task, its gradient, and two 64-bit hashes of that. */
#include "nn/fingerprint.h"

#include "base/mem.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

/* Two FNV-1a-like hashes over 32-bit words, each with its own odd multiplier, finished as
 * splitmix64 does. */
static void
hash_floats(const float *p, uint64_t n, uint8_t out[static FAL_FINGERPRINT_BYTES])
{
	static const uint64_t factor[2] = { 0x00000100000001b3u, 0x9e3779b97f4a7c15u };
	uint64_t h[2] = { 0xcbf29ce484222325u, n };
	for (uint64_t i = 0; i < n; i++) {
		uint32_t word;
		memcpy(&word, p + i, sizeof(word));
		h[0] = (h[0] ^ word) * factor[0];
		h[1] = (h[1] ^ word) * factor[1];
		h[1] ^= h[1] >> 29;
	}
	for (unsigned i = 0; i < FAL_FINGERPRINT_BYTES; i++) {
		if (i % 8 == 0) {
			uint64_t *x = &h[i / 8];
			*x = (*x ^ *x >> 30) * 0xbf58476d1ce4e5b9u;
			*x = (*x ^ *x >> 27) * 0x94d049bb133111ebu;
			*x ^= *x >> 31;
		}
		out[i] = (uint8_t)(h[i / 8] >> i % 8 * 8);
	}
}

int
fal_net_fingerprint(const struct fal_net *net, struct fal_arena *a, uint64_t seed,
		    uint8_t out[static FAL_FINGERPRINT_BYTES])
{
	const struct fal_model *m = fal_net_model(net);
	uint32_t n = fal_net_batch(net);
	size_t inputs = (size_t)n * m->inputs;
	float *params = fal_calloc_aligned(m->params, sizeof(*params));
	float *grad = fal_calloc_aligned(m->params, sizeof(*grad));
	float *x = fal_calloc_aligned(inputs, sizeof(*x));
	uint32_t *label = fal_calloc(n, sizeof(*label));
	int err = FAL_ENOMEM;
	if (params == NULL || grad == NULL || x == NULL || label == NULL)
		goto free_all;
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
	struct fal_loss res;
	fal_model_init(m, seed, params);
	for (size_t i = 0; i < inputs; i++)
		x[i] = fal_rng_unit(&r);
	for (uint32_t i = 0; i < n; i++)
		label[i] = fal_rng_below(&r, m->classes);
	fal_net_grad(net, a, params, &(struct fal_task){ x, label, n }, grad, &res);
	hash_floats(grad, m->params, out);
	err = FAL_OK;
free_all:
	free(label);
	free(x);
	free(grad);
	free(params);
	return err;
}
