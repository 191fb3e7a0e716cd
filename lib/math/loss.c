/* Softmax and cross-entropy: float for the exponentials, double for their sum. */
#include "math/layers.h"

#include "math/scalar.h"

#include <assert.h>

static size_t
first_largest(const float *z, size_t classes)
{
	size_t best = 0;
	for (size_t i = 1; i < classes; i++)
		if (z[i] > z[best])
			best = i;
	return best;
}

void
fal_softmax_loss(const float *z, const uint32_t *label, size_t n, size_t classes,
		 float *dz, struct fal_loss *res)
{
	*res = (struct fal_loss){ 0 };
	for (size_t s = 0; s < n; s++, z += classes) {
		assert(label[s] < classes);
		size_t best = first_largest(z, classes);
		float top = z[best], mine = z[label[s]];
		double sum = 0.0;
		for (size_t i = 0; i < classes; i++)
			sum += (double)fal_exp(z[i] - top);
		res->loss += fal_log(sum) - (double)(mine - top);
		res->right += best == label[s] && sum == sum;
		if (dz == NULL)
			continue;
		for (size_t i = 0; i < classes; i++)
			dz[i] = (float)((double)fal_exp(z[i] - top) / sum);
		dz[label[s]] -= 1.0f;
		dz += classes;
	}
}
