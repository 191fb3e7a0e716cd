/* A trainer's lines: what is accepted is within its ranges. */
#include "grad/line.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fal_grad_word w;
	struct fal_diag diag = { "" };
	if (fal_grad_get((const char *)data, size, &w, &diag) < 0) {
		assert(diag.text[0] != '\0');
		return 0;
	}
	assert(memchr(w.why, '\0', sizeof(w.why)) != NULL);
	assert(memchr(w.hello.about, '\0', sizeof(w.hello.about)) != NULL);
	if (w.op == FAL_GRAD_HELLO) {
		assert(w.hello.lanes >= 1 && w.hello.lanes <= FAL_GRAD_LANES_MAX);
		assert(w.hello.depth >= 1 && w.hello.depth <= FAL_GRAD_DEPTH_MAX);
	}
	return 0;
}
