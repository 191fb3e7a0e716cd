/* Bytes out (struct fal_buf) and bytes in (struct fal_rd), little-endian.
 *
 * Both keep the first error: the caller makes many calls without checks, and checks the
 * error once after the last call (b->err, fal_rd_end).
 */
#ifndef FAL_BASE_BUF_H
#define FAL_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing byte string.  {0} is empty and valid. */
struct fal_buf {
	uint8_t *p;
	size_t n;   /* bytes in use */
	size_t cap; /* bytes allocated */
	int err;    /* 0, or FAL_ENOMEM from the first put that failed */
};

void fal_buf_free(struct fal_buf *b);  /* frees; `b` is empty again */
void fal_buf_clear(struct fal_buf *b); /* n = 0, err = 0; keeps the memory */
/* Appends n bytes, which the caller sets; returns their address.  NULL: an error, now or
 * before (b->err); n = 0 gives an address, too. */
uint8_t *fal_buf_room(struct fal_buf *b, size_t n);
void fal_put_bytes(struct fal_buf *b, const void *p, size_t n);
void fal_put_u8(struct fal_buf *b, uint8_t v);
void fal_put_u16(struct fal_buf *b, uint16_t v);
void fal_put_u32(struct fal_buf *b, uint32_t v);
void fal_put_u64(struct fal_buf *b, uint64_t v);
/* A string as u16 length and bytes, without NUL; longer than 65535: FAL_ELIMIT. */
void fal_put_str(struct fal_buf *b, const char *s);
/* Formats as printf, without the NUL. */
void fal_put_fmt(struct fal_buf *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* A cursor over borrowed bytes. */
struct fal_rd {
	const uint8_t *p;
	size_t n; /* bytes left */
	int err;  /* 0, or FAL_ETRUNC / FAL_EFORMAT of the first get that failed */
};

static inline struct fal_rd
fal_rd_init(const void *p, size_t n)
{
	return (struct fal_rd){ .p = p, .n = n };
}

/* After an error the getters return 0 or NULL and do not advance. */
uint8_t fal_get_u8(struct fal_rd *r);
uint16_t fal_get_u16(struct fal_rd *r);
uint32_t fal_get_u32(struct fal_rd *r);
uint64_t fal_get_u64(struct fal_rd *r);
/* The next n bytes, borrowed from the input; NULL: the input is shorter. */
const uint8_t *fal_get_bytes(struct fal_rd *r, size_t n);
/* Reads a string of at most cap-1 bytes to `out`, with a NUL; FAL_EFORMAT for a longer
 * string or one with a control character. */
void fal_get_str(struct fal_rd *r, char *out, size_t cap);
/* Returns 0 if every get succeeded and no byte is left, else the error (FAL_EFORMAT for
 * bytes left). */
int fal_rd_end(const struct fal_rd *r);

#endif
