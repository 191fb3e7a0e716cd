/* What decompressing costs whoever gets it: as much here. */
#ifndef FAL_NET_UNZIP_H
#define FAL_NET_UNZIP_H

#include "base/buf.h"
#include "wire/zip.h"

#include <stddef.h>
#include <stdint.h>

/* Nanoseconds that decompressing p[n], which `z` made, takes; `scratch` is memory for
 * it. */
uint64_t fal_unzip_ns(struct fal_zip *z, const void *p, size_t n,
		      struct fal_buf *scratch);

#endif
