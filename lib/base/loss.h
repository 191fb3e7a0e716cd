/* The form of a loss in messages.  falcon-protocol(7) describes the form, under the
 * types of fields. */
#ifndef FAL_BASE_LOSS_H
#define FAL_BASE_LOSS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	FAL_LOSS_MAX = 65536, /* bound of a sample's loss, either way */
	FAL_LOSS_BITS = 20    /* losses travel as llrint(loss · 2^20) */
};

/* Encodes the sum of the losses of so many samples.  NAN, an unknown loss, becomes the
 * upper bound, so an unknown loss never looks good. */
int64_t fal_loss_encode(double loss, uint32_t samples);

/* Is the encoded sum possible for so many samples? */
bool fal_loss_fits(int64_t loss, uint32_t samples);

/* Is the encoded sum inside its bounds?  At a bound the loss is not known. */
bool fal_loss_is_known(int64_t loss, uint32_t samples);

/* Decodes a loss, or a sum of losses. */
double fal_loss_decode(int64_t loss);

#endif
