/* Hostile safetensors files as data: as they are; and as a header and data behind it,
 * where the first '\n' divides the two. */
#include "arrays.h"
#include "spill.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void
read_one(const uint8_t *p, size_t n)
{
	const struct fal_array_opts opts = { .max_bytes = 1 << 20,
					     .max_rows = (uint32_t)(n % 3),
					     .tensor = "x" };
	struct fal_array a;
	struct fal_diag diag;
	if (fal_array_read(FAL_FILETYPE_SAFETENSORS, spill(p, n), &opts, &a, &diag) ==
	    FAL_OK)
		check_array(&a, opts.max_bytes);
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static uint8_t file[1 << 14];
	read_one(p, n);
	const uint8_t *end = memchr(p, '\n', n);
	if (end == NULL || n + 8 > sizeof(file))
		return 0;
	for (unsigned i = 0; i < 8; i++)
		file[i] = (uint8_t)((uint64_t)(end - p) >> 8 * i);
	memcpy(file + 8, p, (size_t)(end - p));
	memcpy(file + 8 + (end - p), end + 1, n - 1 - (size_t)(end - p));
	read_one(file, 8 + n - 1);
	return 0;
}
