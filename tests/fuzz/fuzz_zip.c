/* Compressed bytes from a stranger: never more than the limit, nothing on refusal; and
 * whatever the bytes are, compressing them and back gives them again. */
#include "wire/zip.h"

#include <stdlib.h>
#include <string.h>

enum { LIMIT = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void
must(bool fact)
{
	if (!fact)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_zip *z = fal_zip_new(FAL_ZIP_LEVEL);
	struct fal_buf out = { 0 }, frame = { 0 }, back = { 0 };
	must(z != NULL);
	int r = fal_zip_decompress(z, p, n, LIMIT, &out);
	must(r == 0 ? out.n <= LIMIT : out.n == 0);
	must(fal_zip_compress(z, p, n, &frame) == 0);
	must(fal_zip_decompress(z, frame.p, frame.n, n, &back) == 0);
	must(back.n == n && (n == 0 || memcmp(back.p, p, n) == 0));
	fal_buf_free(&out);
	fal_buf_free(&frame);
	fal_buf_free(&back);
	fal_zip_free(z);
	return 0;
}
