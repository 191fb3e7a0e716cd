/* Losses in messages. */
#include "base/loss.h"

#include <math.h>

static int64_t
loss_bound(uint32_t samples)
{
	return (int64_t)samples * FAL_LOSS_MAX << FAL_LOSS_BITS;
}

int64_t
fal_loss_encode(double loss, uint32_t samples)
{
	const double bound = (double)samples * FAL_LOSS_MAX;
	const double bounded = isnan(loss) ? bound : fmax(fmin(loss, bound), -bound);
	return llrint(ldexp(bounded, FAL_LOSS_BITS));
}

bool
fal_loss_fits(int64_t loss, uint32_t samples)
{
	return loss >= -loss_bound(samples) && loss <= loss_bound(samples);
}

bool
fal_loss_is_known(int64_t loss, uint32_t samples)
{
	return loss > -loss_bound(samples) && loss < loss_bound(samples);
}

double
fal_loss_decode(int64_t loss)
{
	return ldexp((double)loss, -FAL_LOSS_BITS);
}
