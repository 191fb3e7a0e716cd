/* Hostile IDX files, plain or gzipped: what is read has the length that it says. */
#include "data/array.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	const struct fal_array_opts opts = { .max_bytes = 1 << 20 };
	static int fd = -1;
	static char path[64];
	struct fal_array idx;
	struct fal_diag diag;
	if (fd < 0) {
		fd = memfd_create("idx", MFD_CLOEXEC);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	if (ftruncate(fd, 0) < 0 || pwrite(fd, p, n, 0) != (ssize_t)n)
		abort();
	if (fal_idx_read(path, &opts, &idx, &diag) < 0)
		return 0;
	uint64_t bytes = idx.rows;
	for (unsigned i = 1; i < FAL_ARRAY_DIMS; i++)
		bytes *= idx.dim[i];
	assert(bytes == idx.rows * idx.row_bytes && bytes <= opts.max_bytes);
	volatile uint8_t last = idx.data[bytes - 1];
	(void)last;
	fal_array_free(&idx);
	return 0;
}
