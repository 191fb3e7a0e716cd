/* Convolution as im2col and gemm, some samples of a task at a time.
 *
 * Activations are [C][N][H][W]: then one gemm covers all samples and gives the same
 * layout.  Alphabet: C, H, W channels, rows, columns in; O, Y, X the same out; K kernel;
 * N samples of the task; R = C·K·K rows of the column matrix.
 */
#ifndef FAL_NN_CONV_H
#define FAL_NN_CONV_H

#include "model/model.h"

/* One task's arrays, all borrowed.  Reads of x and col may begin FAL_CONV_SLACK(layer)
 * floats before, and reads and writes end as many behind, what they hold. */
struct fal_conv {
	uint32_t n;      /* samples of the task */
	uint32_t chunk;  /* samples that `col` has room for */
	bool keeps_col;  /* chunk ≥ n, and col is untouched from forward to back */
	const float *w;  /* [O][R] */
	const float *x;  /* [C][N][H][W] */
	float *y;        /* [O][N][Y][X]: written by forward */
	const float *dy; /* [O][N][Y][X] */
	float *dw;       /* [O][R]: overwritten by backward */
	float *dx;       /* [C][N][H][W]: overwritten by backward; NULL: not wanted */
	float *col;      /* [R][chunk·Y·X]: scratch */
};

#define FAL_CONV_SLACK(l) ((size_t)(l)->kernel + 16)

/* y = w * x, without bias. */
void fal_conv_forward(const struct fal_layer *l, const struct fal_conv *t);

/* dw, and dx unless NULL, from dy.  Where chunk ≥ n, col must be as forward left it; it
 * is overwritten. */
void fal_conv_back(const struct fal_layer *l, const struct fal_conv *t);

#endif
