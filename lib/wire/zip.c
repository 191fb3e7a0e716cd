/* zstd with the receiver's limits. */
#include "wire/zip.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

struct fal_zip {
	ZSTD_CCtx *c;
	ZSTD_DCtx *d;
};

struct fal_zip *
fal_zip_new(int level)
{
	struct fal_zip *z = fal_xcalloc(1, sizeof(*z));
	z->c = FAL_TRY(MALLOC, NULL, ZSTD_createCCtx());
	z->d = FAL_TRY(MALLOC, NULL, ZSTD_createDCtx());
	if (z->c == NULL || z->d == NULL ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(z->c, ZSTD_c_compressionLevel, level)))
		fal_out_of_memory();
	return z;
}

void
fal_zip_free(struct fal_zip *z)
{
	if (z == NULL)
		return;
	ZSTD_freeCCtx(z->c);
	ZSTD_freeDCtx(z->d);
	free(z);
}

int
fal_zip_compress(struct fal_zip *z, const void *src, size_t n, struct fal_buf *out)
{
	size_t cap = ZSTD_compressBound(n), start = out->n;
	uint8_t *to = fal_buf_room(out, cap);
	if (to == NULL)
		return out->err;
	size_t got = ZSTD_compress2(z->c, to, cap, src, n);
	if (ZSTD_isError(got)) {
		out->n = start;
		return FAL_ENOMEM; /* no other error is possible: the bound is kept */
	}
	out->n = start + got;
	return FAL_OK;
}

int
fal_zip_decompress(struct fal_zip *z, const void *src, size_t n, size_t limit,
		   struct fal_buf *out)
{
	const size_t start = out->n;
	uint32_t magic;
	if (n < sizeof(magic))
		return FAL_ETRUNC;
	memcpy(&magic, src, sizeof(magic));
	if (le32toh(magic) != ZSTD_MAGICNUMBER) /* we write no skippable frames */
		return FAL_EFORMAT;
	/* The content's size, from the header alone. */
	unsigned long long claim = ZSTD_getFrameContentSize(src, n);
	if (claim == ZSTD_CONTENTSIZE_UNKNOWN || claim == ZSTD_CONTENTSIZE_ERROR)
		return FAL_EFORMAT;
	if (claim > limit)
		return FAL_ELIMIT;
	size_t frame = ZSTD_findFrameCompressedSize(src, n);
	if (ZSTD_isError(frame))
		return ZSTD_getErrorCode(frame) == ZSTD_error_srcSize_wrong ? FAL_ETRUNC
									    : FAL_EFORMAT;
	if (frame != n)
		return FAL_EFORMAT;
	const size_t size = (size_t)claim;
	/* Never 0 bytes of room: an empty frame is checked as the others are. */
	uint8_t *to = fal_buf_room(out, size != 0 ? size : 1);
	if (to == NULL)
		return out->err;
	size_t got = ZSTD_decompressDCtx(z->d, to, size, src, n);
	out->n = start;
	if (got == size) {
		out->n += size;
		return FAL_OK;
	}
	return ZSTD_isError(got) && ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation
		       ? FAL_ENOMEM
		       : FAL_EFORMAT;
}

struct fal_unzip {
	ZSTD_DCtx *d;
	bool inside;        /* in the middle of a frame */
	bool more;          /* zstd holds more content of the frame */
	uint64_t at, frame; /* bytes taken; offset of the last frame */
	size_t size;        /* of `piece` */
	uint8_t piece[];
};

struct fal_unzip *
fal_unzip_new(void)
{
	const size_t size = ZSTD_DStreamOutSize();
	struct fal_unzip *u = fal_xcalloc(1, sizeof(*u) + size);
	u->size = size;
	u->d = FAL_TRY(MALLOC, NULL, ZSTD_createDCtx());
	if (u->d == NULL || ZSTD_isError(ZSTD_DCtx_setParameter(u->d, ZSTD_d_windowLogMax,
								FAL_UNZIP_WINDOW)))
		fal_out_of_memory();
	return u;
}

void
fal_unzip_free(struct fal_unzip *u)
{
	if (u == NULL)
		return;
	ZSTD_freeDCtx(u->d);
	free(u);
}

int
fal_unzip_next(struct fal_unzip *u, struct fal_rd *in, const uint8_t **piece, size_t *n)
{
	ZSTD_outBuffer out = { u->piece, u->size, 0 };
	while (out.pos == 0 && (in->n > 0 || u->more)) {
		if (!u->inside) {
			u->frame = u->at;
			if (*in->p == 0) { /* padding */
				in->p++;
				in->n--;
				u->at++;
				continue;
			}
		}
		ZSTD_inBuffer from = { in->p, in->n, 0 };
		size_t left = ZSTD_decompressStream(u->d, &out, &from);
		switch (ZSTD_getErrorCode(left)) {
		case ZSTD_error_no_error:
			break;
		case ZSTD_error_memory_allocation:
			return FAL_ENOMEM;
		case ZSTD_error_frameParameter_windowTooLarge:
			return FAL_ELIMIT;
		default:
			return FAL_EFORMAT;
		}
		in->p += from.pos;
		in->n -= from.pos;
		u->at += from.pos;
		u->inside = left > 0;
		u->more = u->inside && out.pos == out.size;
	}
	*piece = u->piece;
	*n = out.pos;
	return FAL_OK;
}

uint64_t
fal_unzip_frame(const struct fal_unzip *u)
{
	return u->frame;
}

int
fal_unzip_end(const struct fal_unzip *u)
{
	return u->inside ? FAL_ETRUNC : FAL_OK;
}

bool
fal_zip_pays(const struct fal_zip_stat *s, double link_bytes_per_s)
{
	if (s->bytes_out >= s->bytes_in)
		return false;
	double saved = (double)(s->bytes_in - s->bytes_out);
	return saved / link_bytes_per_s > 1e-9 * (double)s->ns;
}
