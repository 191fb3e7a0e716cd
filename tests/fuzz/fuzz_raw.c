/* Any bytes as text in windows, and as records of CIFAR. */
#include "job/set.h"
#include "spill.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	const struct fal_set_opts opts = { .max_bytes = 1 << 20,
					   .max_samples = (uint32_t)(n % 7 / 5) };
	const uint32_t window = n > 0 ? p[0] % 64 : 0;
	struct fal_diag diag;
	struct fal_set set;
	if (fal_set_load_text(spill(p, n), window, &opts, &set, &diag) == FAL_OK) {
		assert(set.n >= 1 && set.values == window + 1);
		assert((size_t)set.n * window < n || p[0] == 0x1f /* gzipped */);
		volatile uint8_t last = set.pixels[(size_t)set.n * set.values - 1];
		(void)last;
		fal_set_free(&set);
	}
	if (fal_set_load_cifar(spill(p, n), n % 3, &opts, &set, &diag) == FAL_OK) {
		for (uint32_t i = 0; i < set.n; i++)
			assert(set.labels[i] < set.classes);
		fal_set_free(&set);
	}
	return 0;
}
