/* A loss as it travels: falcon-protocol(7), the types of its fields. */
#ifndef FAL_BASE_LOSS_H
#define FAL_BASE_LOSS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	FAL_LOSS_MAX =
		65536,     /* of a sample, either way; what is beyond is said as that */
	FAL_LOSS_BITS = 20 /* losses travel as llrint(loss · 2^20) */
};

/* Σ loss of so many samples, as it travels; NAN, which is not known, as the bound: not as
 * a good one. */
int64_t fal_loss_said(double loss, uint32_t samples);

/* May so many samples have it? */
bool fal_loss_fits(int64_t loss, uint32_t samples);

/* Does it stand off its bounds?  What was beyond, or none, is not known. */
bool fal_loss_known(int64_t loss, uint32_t samples);

/* What was said, or a sum of that. */
double fal_loss_is(int64_t loss);

#endif
