/* An array from a file: IDX, the format of MNIST; .npy, that of NumPy; or a tensor of a
 * safetensors file.  Plain or gzipped, which is told by the content.
 *
 * Owns reading one array into memory, strictly.  What its values mean is set.h's.
 */
#ifndef FAL_DATA_ARRAY_H
#define FAL_DATA_ARRAY_H

#include "base/err.h"
#include "base/filetype.h"
#include "data/dtype.h"

#include <stddef.h>
#include <stdint.h>

enum { FAL_ARRAY_DIMS = 4 };

/* Row-major. */
struct fal_array {
	enum fal_dtype dtype;         /* neither ABSENT nor F64 */
	unsigned ndim;                /* 1 … FAL_ARRAY_DIMS */
	uint32_t dim[FAL_ARRAY_DIMS]; /* as in the file, each 1 … 2^31; unused ones are 1
				       */
	uint32_t rows;                /* rows kept: the first of dim[0] */
	size_t row_values;            /* dim[1] · dim[2] · dim[3] */
	size_t row_bytes;
	uint8_t *data; /* rows · row_bytes; floats are finite */
};

/* How much to keep.  {0} is everything, without a limit. */
struct fal_array_opts {
	uint32_t max_rows;  /* keep the first so many rows; 0: all */
	uint64_t max_bytes; /* refuse to keep more bytes than this; 0: no limit */
	const char *tensor; /* its name, for safetensors alone; borrowed */
};

/* Reads a file of one kind, NPY, IDX or SAFETENSORS, or, NONE, of the first two as its
 * first byte has it; `diag` (may be NULL) names the file and what is wrong
 * with it.  IDX is of unsigned bytes, .npy of version 1 to 3, little-endian and in C
 * order; F64 is rounded to F32.  The whole file is read and judged, also behind the rows
 * that are kept; of safetensors the values of other tensors are not.
 *
 * FAL_ENOENT or FAL_EIO (cannot be read), FAL_EFORMAT (not the format, another type or
 * order, a dimension of 0, trailing or broken compressed bytes), FAL_EVERSION (of .npy),
 * FAL_ETRUNC, FAL_ELIMIT (above max_bytes), FAL_EINVAL (max_rows is more than the file
 * has; there is no such tensor), FAL_ENONFINITE, FAL_ENOMEM.  A gzip file is
 * members, zero bytes between and behind them, and nothing else. */
int fal_array_read(enum fal_filetype_is kind, const char *path,
		   const struct fal_array_opts *opts, struct fal_array *out,
		   struct fal_diag *diag);

void fal_array_free(struct fal_array *a); /* `a` is {0} again */

#endif
