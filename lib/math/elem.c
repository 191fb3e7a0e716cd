/* Elementwise kernels, and sums of rows and columns: plain loops that the compiler
 * vectorises; and the loss. */
#include "math/layers.h"

#include "base/vector.h"
#include "math/scalar.h"

#include <assert.h>
#include <string.h>

FAL_VECTOR void
fal_bias_cols(float *y, size_t rows, size_t cols, const float *bias, float floor)
{
	for (size_t r = 0; r < rows; r++, y += cols)
		for (size_t c = 0; c < cols; c++) {
			float v = y[c] + bias[c];
			y[c] = v < floor ? floor : v;
		}
}

FAL_VECTOR void
fal_sum_rows(const float *y, size_t rows, size_t cols, float *out)
{
	for (size_t r = 0; r < rows; r++, y += cols) {
		float lane[FAL_LANES] = { 0 };
		size_t c = 0;
		for (; c + FAL_LANES <= cols; c += FAL_LANES)
			for (size_t i = 0; i < FAL_LANES; i++)
				lane[i] += y[c + i];
		for (size_t i = 0; c + i < cols; i++)
			lane[i] += y[c + i];
		for (size_t half = FAL_LANES / 2; half > 0; half /= 2)
			for (size_t i = 0; i < half; i++)
				lane[i] += lane[half + i];
		out[r] = lane[0];
	}
}

FAL_VECTOR void
fal_sum_cols(const float *y, size_t rows, size_t cols, float *out)
{
	memcpy(out, y, cols * sizeof(*out));
	for (size_t r = 1; r < rows; r++) {
		y += cols;
		for (size_t c = 0; c < cols; c++)
			out[c] += y[c];
	}
}

void
fal_transpose(const float *y, size_t rows, size_t cols, float *to)
{
	for (size_t c = 0; c < cols; c++)
		for (size_t r = 0; r < rows; r++)
			*to++ = y[r * cols + c];
}

FAL_VECTOR void
fal_relu(float *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] = y[i] < 0.0f ? 0.0f : y[i];
}

FAL_VECTOR void
fal_relu_back(float *d, const float *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		d[i] = y[i] <= 0.0f ? 0.0f : d[i];
}

FAL_VECTOR void
fal_tanh_all(float *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] = fal_tanh(y[i]);
}

FAL_VECTOR void
fal_tanh_back(float *d, const float *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		d[i] *= 1.0f - y[i] * y[i];
}

/* ---- softmax and cross-entropy: float exponentials, a double sum ---- */

void
fal_softmax_loss(const float *z, const uint32_t *label, size_t n, size_t classes,
		 float *dz, struct fal_loss *res)
{
	*res = (struct fal_loss){ 0 };
	for (size_t s = 0; s < n; s++, z += classes) {
		assert(label[s] < classes);
		size_t best = 0; /* the first of the largest */
		for (size_t i = 1; i < classes; i++)
			best = z[i] > z[best] ? i : best;
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
