/* Softmax and cross-entropy. */
#ifndef FAL_NN_LOSS_H
#define FAL_NN_LOSS_H

#include <stddef.h>
#include <stdint.h>

struct fal_loss {
	double loss;    /* Σ over samples of -ln p(label) */
	uint32_t right; /* samples whose first largest logit is the label's */
};

/* Judges `n` samples: logits z [n][classes], labels below `classes`.  Where `dz` is not
 * NULL, writes the gradient of the sum: dz [n][classes] = softmax(z) - onehot(label).
 * dz may be z.  A non-finite logit gives NaN. */
void fal_softmax_loss(const float *z, const uint32_t *label, size_t n, size_t classes,
		      float *dz, struct fal_loss *res);

#endif
