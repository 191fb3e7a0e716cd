/* Compression: zstd frames (RFC 8878) and the byte shuffle for float32 data.
 *
 * Owns: the only use of zstd, and when compressing pays.  No I/O, no clock.
 */
#ifndef FAL_WIRE_ZIP_H
#define FAL_WIRE_ZIP_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FAL_ZIP_LEVEL = 1,      /* the default: about 1 GB/s */
	FAL_ZIP_LEVEL_MAX = 19, /* above it zstd needs much memory at both ends */
	FAL_UNZIP_WINDOW = 27   /* 2^27 bytes: what zstd -d takes without being told */
};

/* Working memory of one connection or one thread.  Opaque. */
struct fal_zip;

/* `level` is 1 to FAL_ZIP_LEVEL_MAX. */
struct fal_zip *fal_zip_new(int level);
void fal_zip_free(struct fal_zip *z);

/* Appends to `out` one zstd frame of the n bytes at `src` (borrowed), with their number
 * in its header.  Returns 0 or FAL_ENOMEM (`out` keeps its length). */
int fal_zip_compress(struct fal_zip *z, const void *src, size_t n, struct fal_buf *out);

/* Appends to `out` what the one frame in the n bytes at `src` (borrowed) holds.  The size
 * that the frame claims is judged before anything is allocated.  Returns 0; FAL_ELIMIT
 * when it is more than `limit` bytes; FAL_EFORMAT when the bytes are not a zstd frame,
 * the frame does not tell its size or holds something else, or bytes follow it;
 * FAL_ETRUNC when it ends too early; FAL_ENOMEM.  On error `out` keeps its length. */
int fal_zip_decompress(struct fal_zip *z, const void *src, size_t n, size_t limit,
		       struct fal_buf *out);

/* A stream of zstd frames, one after the other, zero bytes between and behind them: a
 * compressed file.  Opaque. */
struct fal_unzip;

struct fal_unzip *fal_unzip_new(void);
void fal_unzip_free(struct fal_unzip *u);

/* Takes bytes from `in`, and sets *piece to the *n bytes that they hold, a part of the
 * stream: borrowed until the next call.  To be called until *n is 0; then all of `in` is
 * taken.  Memory: the window of a frame, at most 2^FAL_UNZIP_WINDOW bytes, and a piece,
 * whatever a frame claims or holds.  Returns 0; FAL_EFORMAT when the bytes are no zstd
 * frames, FAL_ELIMIT when a frame wants a larger window, FAL_ENOMEM.  After an error it
 * is only to be freed. */
int fal_unzip_next(struct fal_unzip *u, struct fal_rd *in, const uint8_t **piece,
		   size_t *n);

/* Where the frame began, in bytes from the first, that was read last or refused. */
uint64_t fal_unzip_frame(const struct fal_unzip *u);

/* The bytes have ended: 0, or FAL_ETRUNC if in the middle of a frame. */
int fal_unzip_end(const struct fal_unzip *u);

/* What compressing some bytes of a connection gave and cost. */
struct fal_zip_stat {
	uint64_t bytes_in;
	uint64_t bytes_out;
	uint64_t ns; /* spent on compressing and on decompressing */
};

/* Whether sending the saved bytes over the link (bytes a second, > 0) would have taken
 * longer than that. */
bool fal_zip_pays(const struct fal_zip_stat *s, double link_bytes_per_s);

#endif
