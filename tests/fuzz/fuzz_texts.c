/* The three texts of a job from a hostile coordinator: the input is their sizes, then
 * pieces.  No text outgrows its size, and what is whole is so once. */
#include "net/client.h"

#include "base/err.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_rd r = fal_rd_init(p, n);
	struct fal_msg m;
	struct fal_texts t = { 0 };
	/* Small ones can be filled. */
	const uint32_t most = fal_get_u8(&r) % 2 == 0 ? 64 : UINT32_MAX;
	uint32_t size[FAL_TEXTS];
	for (unsigned i = 0; i < FAL_TEXTS; i++)
		size[i] = fal_get_u32(&r) % most;
	if (r.err < 0 || fal_texts_begin(&t, size) < 0)
		return 0;
	int got = 0;
	while (got == 0 && r.n > 0) {
		m = (struct fal_msg){ .type = FAL_MSG_TEXT };
		m.text.which = fal_get_u8(&r) % 4;
		m.text.offset = fal_get_u8(&r);
		const size_t len = fal_get_u8(&r) % 16;
		/* Mostly the next piece. */
		if (m.text.offset < 0xf0 && m.text.which < FAL_TEXTS)
			m.text.offset = (uint32_t)t.text[m.text.which].n;
		m.text.bytes.n = len < r.n ? len : r.n;
		m.text.bytes.p = fal_get_bytes(&r, m.text.bytes.n);
		got = fal_texts_add(&t, &m);
		for (unsigned i = 0; i < FAL_TEXTS; i++)
			assert(t.text[i].n <= t.size[i]);
	}
	for (unsigned i = 0; i < FAL_TEXTS; i++)
		assert(got != 1 || t.text[i].n == t.size[i]);
	assert(got >= 0 || got == FAL_ESTATE);
	assert(got != 1 || fal_texts_equal(&t, &t));
	fal_texts_free(&t);
	return 0;
}
