/* Elementwise kernels and the sums beside them.  All are bit-equal on every machine; NaN
 * goes through.  Matrices are row-major, rows × cols, without gaps.
 */
#ifndef FAL_NN_ELEM_H
#define FAL_NN_ELEM_H

#include <stddef.h>

/* y[r][c] = max(y[r][c] + bias[r], floor): floor 0 is relu, -INFINITY none. */
void fal_bias_rows(float *y, size_t rows, size_t cols, const float *bias, float floor);

/* y[r][c] = max(y[r][c] + bias[c], floor) */
void fal_bias_cols(float *y, size_t rows, size_t cols, const float *bias, float floor);

/* out[r] = Σ_c y[r][c]: 16 interleaved sums, then halves onto halves. */
void fal_sum_rows(const float *y, size_t rows, size_t cols, float *out);

/* out[c] = Σ_r y[r][c], in the order of the rows. */
void fal_sum_cols(const float *y, size_t rows, size_t cols, float *out);

/* y = max(y, 0) */
void fal_relu(float *y, size_t n);

/* d = 0 where y ≤ 0; y: relu's output. */
void fal_relu_back(float *d, const float *y, size_t n);

/* y = tanh y */
void fal_tanh_all(float *y, size_t n);

/* d *= 1 - y²; y: tanh's output. */
void fal_tanh_back(float *d, const float *y, size_t n);

#endif
