/* The numerics fingerprint: machines with equal fingerprints compute equal bits. */
#ifndef FAL_MATH_FINGERPRINT_H
#define FAL_MATH_FINGERPRINT_H

#include "math/net.h"

#define FAL_FINGERPRINT_BYTES 16

/* Hashes the gradient of a random task of the net's largest size and products with
 * subnormal numbers.  Parameters come from fal_model_init(seed), inputs in [0, 1) and
 * labels from the stream (seed, FAL_RNG_TEST, 0).  The fingerprint distinguishes machines
 * but does not expose liars.  FAL_ENOMEM. */
int fal_net_fingerprint(const struct fal_net *net, struct fal_arena *a, uint64_t seed,
			uint8_t out[static FAL_FINGERPRINT_BYTES]);

#endif
