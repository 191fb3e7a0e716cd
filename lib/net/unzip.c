#include "net/unzip.h"

#include "net/record.h"

#include <uv.h>

uint64_t
fal_unzip_ns(struct fal_zip *z, const void *p, size_t n, struct fal_buf *scratch)
{
	const uint64_t begun = uv_hrtime();
	fal_buf_clear(scratch);
	(void)fal_zip_decompress(z, p, n, FAL_RECORD_MAX, scratch);
	return uv_hrtime() - begun;
}
