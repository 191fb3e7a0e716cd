/* The kernels of the layers of a net. */
#ifndef FAL_MATH_LAYERS_H
#define FAL_MATH_LAYERS_H

#include "model/model.h"

#include <stddef.h>
#include <stdint.h>

/* Convolution.
 *
 * Activations are [C][N][H][W].  Dimensions: C, H, W input channels, rows, columns; O, Y,
 * X output channels, rows, columns; K kernel; N samples of the task.
 */

/* The arrays of one task, all borrowed.  x and dy hold no small values
 * (fal_clear_small). */
struct fal_conv {
	uint32_t n;        /* samples of the task */
	const float *w;    /* [O][C][K][K] */
	const float *bias; /* [O] */
	float floor;       /* of y: 0 is relu, -INFINITY is no relu */
	const float *x;    /* [C][N][H][W] */
	float *y;          /* [O][N][Y][X]: written by forward */
	const float *dy;   /* [O][N][Y][X] */
	float *dw;         /* [O][C][K][K]: overwritten by backward */
	float *dx;         /* [C][N][H][W]: overwritten by backward; NULL: not needed */
	float *scratch;    /* fal_conv_scratch floats */
};

/* Returns the floats of the scratch, for any number of samples; 0: too large. */
uint64_t fal_conv_scratch(const struct fal_layer *l);

/* y = max(w * x + bias, floor). */
void fal_conv_forward(const struct fal_layer *l, const struct fal_conv *t);

/* Computes dw, and dx unless NULL, from dy. */
void fal_conv_back(const struct fal_layer *l, const struct fal_conv *t);

/* Elementwise kernels, and sums of rows and columns.  All results are bit-equal on every
 * machine; NaN propagates.  Matrices are row-major, rows × cols, without gaps.
 */

/* y[r][c] = max(y[r][c] + bias[c], floor): floor 0 is relu, floor -INFINITY is no relu.
 */
void fal_bias_cols(float *y, size_t rows, size_t cols, const float *bias, float floor);

/* out[r] = Σ_c y[r][c]: 16 interleaved sums, then the upper half added to the lower. */
void fal_sum_rows(const float *y, size_t rows, size_t cols, float *out);

/* out[c] = Σ_r y[r][c], in the order of the rows. */
void fal_sum_cols(const float *y, size_t rows, size_t cols, float *out);

/* to [cols][rows] = y [rows][cols] transposed. */
void fal_transpose(const float *y, size_t rows, size_t cols, float *to);

/* y = max(y, 0) */
void fal_relu(float *y, size_t n);

/* d = 0 if y ≤ 0; y is relu's output. */
void fal_relu_back(float *d, const float *y, size_t n);

/* y = tanh y */
void fal_tanh_all(float *y, size_t n);

/* d *= 1 - y²; y is tanh's output. */
void fal_tanh_back(float *d, const float *y, size_t n);

/* Maximum and average over square windows.  A plane is one channel of one sample; x and y
 * hold `planes` planes one after another.  Shapes and window come from the layer
 * (borrowed).  The functions may read and write up to FAL_POOL_SLACK elements behind the
 * contents of x, y, at, dy and dx.
 */

#define FAL_POOL_SLACK ((size_t)32)

/* y = the maxima, at[i] = ky·kernel + kx of the first maximum; NaN counts as largest. */
void fal_maxpool(const struct fal_layer *l, size_t planes, const float *x, float *y,
		 uint8_t *at);

/* Computes dx (overwritten) from dy and fal_maxpool's `at`. */
void fal_maxpool_back(const struct fal_layer *l, size_t planes, const float *dy,
		      const uint8_t *at, float *dx);

/* y = the averages. */
void fal_avgpool(const struct fal_layer *l, size_t planes, const float *x, float *y);

/* Computes dx (overwritten) from dy. */
void fal_avgpool_back(const struct fal_layer *l, size_t planes, const float *dy,
		      float *dx);

/* Softmax and cross-entropy. */

struct fal_loss {
	double loss;    /* Σ over samples of -ln p(label) */
	uint32_t right; /* samples whose first largest logit is the label's */
};

/* Computes the loss of `n` samples: logits z [n][classes], labels below `classes`; and,
 * unless `dz` is NULL, the gradient of the sum: dz [n][classes] = softmax(z) -
 * onehot(label).  dz may be z.  A non-finite logit gives NaN. */
void fal_softmax_loss(const float *z, const uint32_t *label, size_t n, size_t classes,
		      float *dz, struct fal_loss *res);

#endif
