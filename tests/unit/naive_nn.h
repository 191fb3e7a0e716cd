/* The naive twin of lib/math: one sample at a time, [C][H][W], double, no cleverness. For
 * tests; it aborts when out of memory. */
#ifndef FAL_TESTS_NAIVE_NN_H
#define FAL_TESTS_NAIVE_NN_H

#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline double *
naive_array(uint64_t n)
{
	double *p = calloc((size_t)n, sizeof(*p));
	if (p == NULL)
		abort();
	return p;
}

/* y = w * x + b; where dy is not NULL instead dw, db, dx from it. */
static inline void
naive_conv(const struct fal_layer *l, const double *w, const double *b, const double *x,
	   double *y, const double *dy, double *dw, double *db, double *dx)
{
	long k = l->kernel, pad = l->pad, s = l->stride, h = l->in.h, wd = l->in.w;
	for (long o = 0; o < (long)l->out.c; o++)
		for (long oy = 0; oy < (long)l->out.h; oy++)
			for (long ox = 0; ox < (long)l->out.w; ox++) {
				long i = (o * l->out.h + oy) * l->out.w + ox;
				if (dy == NULL)
					y[i] = b[o];
				else
					db[o] += dy[i];
				for (long c = 0; c < (long)l->in.c; c++)
					for (long t = 0; t < k * k; t++) {
						long iy = oy * s + t / k - pad;
						long ix = ox * s + t % k - pad;
						long j = (c * h + iy) * wd + ix;
						long v = (o * l->in.c + c) * k * k + t;
						if (iy < 0 || iy >= h || ix < 0 ||
						    ix >= wd)
							continue;
						if (dy == NULL) {
							y[i] += w[v] * x[j];
						} else {
							dw[v] += dy[i] * x[j];
							dx[j] += dy[i] * w[v];
						}
					}
			}
}

static inline void
naive_dense(const struct fal_layer *l, const double *w, const double *b, const double *x,
	    double *y, const double *dy, double *dw, double *db, double *dx)
{
	for (size_t o = 0; o < l->out.c; o++) {
		if (dy == NULL)
			y[o] = b[o];
		else
			db[o] += dy[o];
		for (size_t c = 0; c < l->in.c; c++)
			if (dy == NULL) {
				y[o] += w[o * l->in.c + c] * x[c];
			} else {
				dw[o * l->in.c + c] += dy[o] * x[c];
				dx[c] += dy[o] * w[o * l->in.c + c];
			}
	}
}

static inline void
naive_pool(const struct fal_layer *l, const double *x, double *y, const double *dy,
	   double *dx)
{
	size_t k = l->kernel, w = l->in.w, i = 0;
	for (size_t c = 0; c < l->in.c; c++)
		for (size_t oy = 0; oy < l->out.h; oy++)
			for (size_t ox = 0; ox < l->out.w; ox++, i++) {
				size_t at = (c * l->in.h + oy * l->stride) * w +
					    ox * l->stride;
				size_t best = at;
				double sum = 0.0;
				for (size_t t = 0; t < k * k; t++) {
					size_t j = at + t / k * w + t % k;
					best = x[j] > x[best] ? j : best;
					sum += x[j];
					if (dy != NULL && l->kind == FAL_LAYER_AVGPOOL)
						dx[j] += dy[i] / (double)(k * k);
				}
				if (dy == NULL && l->kind == FAL_LAYER_AVGPOOL)
					y[i] = sum / (double)(k * k);
				else if (dy == NULL)
					y[i] = x[best];
				else if (l->kind == FAL_LAYER_MAXPOOL)
					dx[best] += dy[i];
			}
}

/* One layer forward (dy NULL), or back. */
static inline void
naive_layer(const struct fal_model *m, uint32_t i, const double *params, const double *x,
	    double *y, const double *dy, double *grad, double *dx)
{
	const struct fal_layer *l = &m->layer[i];
	uint64_t n = fal_shape_floats(l->out);
	uint64_t w = m->tensor[l->weight].offset, b = m->tensor[l->bias].offset;
	if (l->kind == FAL_LAYER_CONV)
		naive_conv(l, params + w, params + b, x, y, dy, grad + w, grad + b, dx);
	else if (l->kind == FAL_LAYER_DENSE)
		naive_dense(l, params + w, params + b, x, y, dy, grad + w, grad + b, dx);
	else if (l->kind == FAL_LAYER_MAXPOOL || l->kind == FAL_LAYER_AVGPOOL)
		naive_pool(l, x, y, dy, dx);
	else
		for (uint64_t j = 0; j < n; j++) {
			double v = l->kind == FAL_LAYER_RELU   ? fmax(x[j], 0.0)
				   : l->kind == FAL_LAYER_TANH ? tanh(x[j])
							       : x[j];
			double slope = l->kind == FAL_LAYER_RELU
					       ? (x[j] > 0.0 ? 1.0 : 0.0)
				       : l->kind == FAL_LAYER_TANH ? 1.0 - v * v
								   : 1.0;
			if (dy == NULL)
				y[j] = v;
			else
				dx[j] = dy[j] * slope;
		}
}

/* -ln softmax(z)[label]; z becomes its gradient. */
static inline double
naive_cross_entropy(double *z, size_t classes, uint32_t label)
{
	double top = z[0], sum = 0.0, loss;
	for (size_t i = 1; i < classes; i++)
		top = fmax(top, z[i]);
	for (size_t i = 0; i < classes; i++)
		sum += exp(z[i] - top);
	loss = log(sum) - (z[label] - top);
	for (size_t i = 0; i < classes; i++)
		z[i] = exp(z[i] - top) / sum - (i == label ? 1.0 : 0.0);
	return loss;
}

/* The loss of one sample; adds its gradient to `grad` (m->params doubles) unless NULL. */
static inline double
naive_loss(const struct fal_model *m, const double *params, const float *x,
	   uint32_t label, double *grad)
{
	double **y = calloc(m->layers + 1, sizeof(*y));
	if (y == NULL)
		abort();
	y[0] = naive_array(m->inputs);
	for (uint32_t i = 0; i < m->inputs; i++)
		y[0][i] = (double)x[i];
	for (uint32_t i = 0; i < m->layers; i++) {
		y[i + 1] = naive_array(fal_shape_floats(m->layer[i].out));
		naive_layer(m, i, params, y[i], y[i + 1], NULL, grad, NULL);
	}
	double loss = naive_cross_entropy(y[m->layers], m->classes, label);
	double *dy = y[m->layers];
	for (uint32_t i = m->layers; grad != NULL && i-- > 0;) {
		double *dx = naive_array(fal_shape_floats(m->layer[i].in));
		naive_layer(m, i, params, y[i], NULL, dy, grad, dx);
		free(dy);
		dy = dx;
	}
	free(dy);
	for (uint32_t i = 0; i < m->layers; i++)
		free(y[i]);
	free(y);
	return loss;
}

#endif
