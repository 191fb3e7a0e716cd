/* What every array holds that was read: the length that it says, and finite floats. */
#ifndef FUZZ_ARRAYS_H
#define FUZZ_ARRAYS_H

#include "job/set.h"

#include <assert.h>
#include <math.h>

static inline void
check_array(struct fal_array *a, uint64_t max_bytes)
{
	const size_t size = fal_dtype_size(a->dtype);
	uint64_t values = a->rows;
	for (unsigned i = 1; i < FAL_ARRAY_DIMS; i++)
		values *= a->dim[i];
	assert(a->ndim >= 1 && a->ndim <= FAL_ARRAY_DIMS && a->rows <= a->dim[0]);
	assert(a->dtype < FAL_DTYPES && size > 0);
	assert(values == a->rows * a->row_values && a->row_bytes == a->row_values * size);
	assert(values * size <= max_bytes);
	for (uint64_t i = 0; i < values; i++) {
		const float v = fal_dtype_float(a->dtype, a->data + i * size);
		assert(isfinite(v));
	}
	fal_array_free(a);
}

#endif
