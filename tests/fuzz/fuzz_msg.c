/* Any bytes as a message: what is accepted is written back as the same bytes. */
#include "base/err.h"
#include "wire/msg.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_msg m;
	struct fal_buf out = { 0 };
	if (fal_msg_get(p, n, &m) != FAL_OK)
		return 0;
	fal_msg_put(&out, &m);
	if (out.n != n || memcmp(out.p, p, n) != 0 ||
	    strcmp(fal_msg_name(m.type), "?") == 0)
		abort();
	fal_buf_free(&out);
	return 0;
}
