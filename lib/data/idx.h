/* IDX files, the format of MNIST (defined in falcon-data(7)): arrays of unsigned bytes,
 * plain or gzipped.
 *
 * Owns reading one file into memory, strictly.  What the bytes mean is set.h's.
 */
#ifndef FAL_DATA_IDX_H
#define FAL_DATA_IDX_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { FAL_IDX_DIMS = 4 };

/* An array of bytes, row-major. */
struct fal_idx {
	unsigned ndim;              /* 1 … FAL_IDX_DIMS */
	uint32_t dim[FAL_IDX_DIMS]; /* as in the file, each 1 … 2^31; unused ones are 1 */
	uint32_t rows;              /* rows kept: the first of dim[0] */
	size_t row_bytes;           /* dim[1] · dim[2] · dim[3] */
	uint8_t *data;              /* rows · row_bytes */
};

/* How much to keep.  {0} is everything, without a limit. */
struct fal_idx_opts {
	uint32_t max_rows;  /* keep the first so many rows; 0: all */
	uint64_t max_bytes; /* refuse to keep more bytes than this; 0: no limit */
};

/* Reads the IDX file `path`; gzip is known by its magic bytes, not by the name.  The
 * whole file is read and judged, also behind the rows that are kept.  `diag` (may be
 * NULL) names the file and what is wrong with it.
 *
 * FAL_ENOENT or FAL_EIO (cannot be read), FAL_EFORMAT (not IDX of unsigned bytes, a
 * dimension of 0, trailing or broken compressed bytes), FAL_ETRUNC, FAL_ELIMIT (above
 * max_bytes), FAL_EINVAL (max_rows is more than the file has), FAL_ENOMEM.  Bytes
 * behind the end of the gzip stream are ignored, as zlib's gzread does. */
int fal_idx_read(const char *path, const struct fal_idx_opts *opts, struct fal_idx *out,
		 struct fal_diag *diag);

void fal_idx_free(struct fal_idx *idx); /* `idx` is {0} again */

#endif
