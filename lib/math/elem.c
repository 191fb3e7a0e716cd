/* Elementwise kernels and sums of rows and columns: plain loops that the compiler
 * vectorises. */
#include "math/layers.h"

#include "base/vector.h"
#include "math/scalar.h"

#include <string.h>

FAL_VECTOR void
fal_bias_rows(float *y, size_t rows, size_t cols, const float *bias, float floor)
{
	for (size_t r = 0; r < rows; r++, y += cols) {
		float b = bias[r];
		for (size_t c = 0; c < cols; c++) {
			float v = y[c] + b;
			y[c] = v < floor ? floor : v;
		}
	}
}

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
