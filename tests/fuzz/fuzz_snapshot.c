/* A snapshot's manifest as it may lie on a disk: what is read says what is possible, and
 * is written and read again as itself. */
#include "run/snapshot.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_snap_manifest m, again;
	struct fal_diag diag = { "" };
	struct fal_buf one = { 0 }, two = { 0 };
	if (fal_snap_manifest_get("fuzz", p, n, &m, &diag) < 0) {
		assert(diag.text[0] != '\0' && strchr(diag.text, '\n') == NULL);
		return 0;
	}
	assert(m.image.olds <= m.image.version && m.past.oldest <= m.past.version);
	assert(m.past.pin.version <= m.past.version);
	for (uint32_t i = 0; i < m.past.here; i++)
		assert(m.past.worker[i].id >= 1 && m.past.worker[i].id <= m.past.workers);
	fal_snap_manifest_put(&m, &one);
	assert(one.err == 0 &&
	       fal_snap_manifest_get("own", one.p, one.n, &again, &diag) == 0);
	fal_snap_manifest_put(&again, &two);
	assert(one.n == two.n && memcmp(one.p, two.p, one.n) == 0);
	fal_snap_manifest_free(&m);
	fal_snap_manifest_free(&again);
	fal_buf_free(&one);
	fal_buf_free(&two);
	return 0;
}
