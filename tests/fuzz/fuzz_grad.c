/* A trainer's lines: what is accepted is within its ranges. */
#include "run/trainer_line.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fal_grad_message w;
	struct fal_diag diag = { "" };
	if (fal_grad_parse((const char *)data, size, &w, &diag) < 0) {
		assert(diag.text[0] != '\0');
		return 0;
	}
	assert(memchr(w.why, '\0', sizeof(w.why)) != NULL);
	assert(memchr(w.hello.about, '\0', sizeof(w.hello.about)) != NULL);
	assert(w.hello.train <= UINT32_C(1) << 31 && w.hello.test <= UINT32_C(1) << 31);
	return 0;
}
