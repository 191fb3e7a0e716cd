/* Hostile manifests: whatever parses must encode to the very same bytes, and its
 * geometry must hold together. */
#include "job/chunk.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void
check_part(const struct fal_part *part)
{
	uint64_t samples = 0;
	for (uint32_t i = 0; i < part->chunks; i++) {
		assert(fal_chunk_samples(part, i) > 0);
		assert(fal_chunk_bytes(part, i) <= FAL_CHUNK_BYTES);
		samples += fal_chunk_samples(part, i);
	}
	assert(samples == part->n || (part->dtype == FAL_ABSENT && samples == 0));
	assert(part->sample_bytes == part->values * fal_dtype_size(part->dtype));
	assert(part->n == 0 || part->sample_bytes <= FAL_SAMPLE_MAX);
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_manifest m;
	struct fal_buf again = { 0 };
	if (fal_manifest_parse(p, n, &m) < 0)
		return 0;
	check_part(&m.train);
	check_part(&m.test);
	fal_manifest_encode(&m, &again);
	assert(again.n == n && memcmp(again.p, p, n) == 0);
	fal_buf_free(&again);
	fal_manifest_free(&m);
	return 0;
}
