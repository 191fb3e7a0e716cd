/* The fingerprint hashes the gradient of a random task and products with subnormal
 * numbers. */
#include "math/fingerprint.h"

#include "base/mem.h"
#include "base/rng.h"
#include "crypto/hash.h"
#include "math/kern.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* Half of the least normal number is subnormal, and so is a factor of the other products:
 * a machine that does not flush subnormals to zero gets other bits. */
enum { SUBNORMAL = 4 };

static void
multiply_subnormal(float out[static SUBNORMAL])
{
	static const float small[2] = { FLT_MIN, FLT_MIN / 4 },
			   factor[2] = { .5f, 1 << 20 };
	const struct fal_gemm g = { 2, 2, 1, small, factor, out,
				    1, 2, 2, false, false,  false };
	const unsigned before = fal_kern_flush();
	fal_gemm(&g);
	fal_kern_unflush(before);
}

int
fal_net_fingerprint(const struct fal_net *net, struct fal_arena *a, uint64_t seed,
		    uint8_t out[static FAL_FINGERPRINT_BYTES])
{
	const struct fal_model *m = fal_net_model(net);
	uint32_t n = fal_net_batch(net);
	size_t inputs = (size_t)n * m->inputs;
	float *params = fal_calloc_aligned(m->params, sizeof(*params));
	float *grad = fal_calloc_aligned(m->params + SUBNORMAL, sizeof(*grad));
	float *x = fal_calloc_aligned(inputs, sizeof(*x));
	uint32_t *label = fal_calloc(n, sizeof(*label));
	uint8_t hash[FAL_HASH_BYTES];
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
	multiply_subnormal(grad + m->params);
	fal_hash(grad, (m->params + SUBNORMAL) * sizeof(*grad), hash);
	memcpy(out, hash, FAL_FINGERPRINT_BYTES);
	err = FAL_OK;
free_all:
	free(label);
	free(x);
	free(grad);
	free(params);
	return err;
}
