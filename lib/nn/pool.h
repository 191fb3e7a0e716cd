/* Maximum and average over square windows.  A plane is one channel of one sample; x and y
 * hold `planes` of them one after another.  Shapes and window come from the layer
 * (borrowed).  Behind what they hold, up to FAL_POOL_SLACK elements of x, y, at, dy and
 * dx may be read and written.
 */
#ifndef FAL_NN_POOL_H
#define FAL_NN_POOL_H

#include "model/model.h"

#define FAL_POOL_SLACK ((size_t)32)

/* y = the maxima, at[i] = ky·kernel + kx of the first one; a NaN counts as the largest.
 */
void fal_maxpool(const struct fal_layer *l, size_t planes, const float *x, float *y,
		 uint8_t *at);

/* dx (overwritten) from dy and fal_maxpool's `at`. */
void fal_maxpool_back(const struct fal_layer *l, size_t planes, const float *dy,
		      const uint8_t *at, float *dx);

void fal_avgpool(const struct fal_layer *l, size_t planes, const float *x, float *y);

/* dx is overwritten. */
void fal_avgpool_back(const struct fal_layer *l, size_t planes, const float *dy,
		      float *dx);

#endif
