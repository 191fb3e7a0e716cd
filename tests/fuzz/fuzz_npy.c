/* Hostile .npy files: as they are; and, so that lengths need not be found, as the header
 * alone behind a first byte that says the version. */
#include "arrays.h"
#include "spill.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void
read_one(const uint8_t *p, size_t n)
{
	const struct fal_array_opts opts = { .max_bytes = 1 << 20,
					     .max_rows = (uint32_t)(n % 3) };
	struct fal_array a;
	struct fal_diag diag;
	if (fal_array_read(FAL_FILETYPE_NPY, spill(p, n), &opts, &a, &diag) == FAL_OK)
		check_array(&a, 2 * opts.max_bytes); /* of doubles, half is kept */
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static uint8_t file[1 << 14];
	read_one(p, n);
	const uint8_t *end = n > 1 ? memchr(p + 1, '}', n - 1) : NULL;
	if (end == NULL || n + 10 > sizeof(file))
		return 0;
	const size_t header = (size_t)(end - p);
	const unsigned version = 1 + p[0] % 3, len = version == 1 ? 2 : 4;
	memcpy(file, "\x93NUMPY", 6);
	file[6] = (uint8_t)version;
	file[7] = 0;
	for (unsigned i = 0; i < len; i++)
		file[8 + i] = (uint8_t)(header >> 8 * i);
	memcpy(file + 8 + len, p + 1, n - 1);
	read_one(file, 8 + len + n - 1);
	return 0;
}
