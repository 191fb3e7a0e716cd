/* Hostile IDX files, plain or gzipped. */
#include "arrays.h"
#include "spill.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	const struct fal_array_opts opts = { .max_bytes = 1 << 20 };
	struct fal_array a;
	struct fal_diag diag;
	if (fal_array_read(FAL_FILETYPE_IDX, spill(p, n), &opts, &a, &diag) == FAL_OK)
		check_array(&a, opts.max_bytes);
	return 0;
}
