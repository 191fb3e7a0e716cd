/* Compression: zstd frames (RFC 8878).
 *
 * Owns the only use of zstd, and the rule when compression pays.  No I/O, no clock. */
#ifndef FAL_WIRE_ZIP_H
#define FAL_WIRE_ZIP_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FAL_ZIP_LEVEL = 1,      /* the default: about 1 GB/s */
	FAL_ZIP_LEVEL_MAX = 19, /* higher levels need much memory at both ends */
	FAL_UNZIP_WINDOW = 27   /* 2^27 bytes: the limit of zstd -d without options */
};

/* Working memory of one connection or one thread.  Opaque. */
struct fal_zip;

/* `level` is 1 to FAL_ZIP_LEVEL_MAX. */
struct fal_zip *fal_zip_new(int level);
void fal_zip_free(struct fal_zip *z);

/* Appends to `out` one zstd frame of the n bytes at `src` (borrowed), with their number
 * in the frame's header.  Returns 0 or FAL_ENOMEM (`out` keeps its length). */
int fal_zip_compress(struct fal_zip *z, const void *src, size_t n, struct fal_buf *out);

/* Appends to `out` the content of the one frame in the n bytes at `src` (borrowed). The
 * size in the frame's header is checked before anything is allocated.  Returns 0;
 * FAL_ELIMIT: the size is more than `limit` bytes; FAL_EFORMAT: no zstd frame, a frame
 * without a size or with other content, or bytes behind the frame; FAL_ETRUNC: the frame
 * ends too early; FAL_ENOMEM. On error `out` keeps its length. */
int fal_zip_decompress(struct fal_zip *z, const void *src, size_t n, size_t limit,
		       struct fal_buf *out);

/* A stream of zstd frames, one after the other, with zero bytes between and behind them:
 * a compressed file.  Opaque. */
struct fal_unzip;

struct fal_unzip *fal_unzip_new(void);
void fal_unzip_free(struct fal_unzip *u);

/* Takes bytes from `in`, and sets *piece and *n to the next part of their content,
 * borrowed until the next call.  To be called until *n is 0; then all of `in` is taken.
 * Takes memory for the window of a frame, at most 2^FAL_UNZIP_WINDOW bytes, and for one
 * piece, whatever a frame claims or contains.  Returns 0; FAL_EFORMAT: no zstd frames;
 * FAL_ELIMIT: a frame needs a larger window; FAL_ENOMEM. After an error only
 * fal_unzip_free may follow. */
int fal_unzip_next(struct fal_unzip *u, struct fal_rd *in, const uint8_t **piece,
		   size_t *n);

/* Returns the offset, in bytes of the stream, of the frame that was read last or refused.
 */
uint64_t fal_unzip_frame(const struct fal_unzip *u);

/* To be called when the bytes have ended.  Returns 0, or FAL_ETRUNC in the middle of a
 * frame. */
int fal_unzip_end(const struct fal_unzip *u);

/* The gain and the cost of compressing some bytes of a connection. */
struct fal_zip_stat {
	uint64_t bytes_in;
	uint64_t bytes_out;
	uint64_t ns; /* to compress and to decompress */
};

/* Returns true if the saved bytes would have taken longer on the link (bytes a second, >
 * 0) than the compression. */
bool fal_zip_pays(const struct fal_zip_stat *s, double link_bytes_per_s);

#endif
