/* Little-endian byte strings with sticky errors. */
#include "base/buf.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
fal_buf_free(struct fal_buf *b)
{
	free(b->p);
	*b = (struct fal_buf){ 0 };
}

void
fal_buf_clear(struct fal_buf *b)
{
	b->n = 0;
	b->err = 0;
}

uint8_t *
fal_buf_room(struct fal_buf *b, size_t n)
{
	if (b->err != 0)
		return NULL;
	/* At least 1, so that an empty room has an address, too. */
	if (n > SIZE_MAX - b->n ||
	    FAL_GROW(b->p, b->cap, b->n + n != 0 ? b->n + n : 1) < 0) {
		b->err = FAL_ENOMEM;
		return NULL;
	}
	uint8_t *p = b->p + b->n;
	b->n += n;
	return p;
}

void
fal_put_bytes(struct fal_buf *b, const void *p, size_t n)
{
	uint8_t *room = fal_buf_room(b, n);
	if (room != NULL && n != 0)
		memcpy(room, p, n);
}

static void
put_le(struct fal_buf *b, uint64_t v, size_t n)
{
	uint8_t *room = fal_buf_room(b, n);
	for (size_t i = 0; room != NULL && i < n; i++)
		room[i] = (uint8_t)(v >> (8 * i));
}

void
fal_put_u8(struct fal_buf *b, uint8_t v)
{
	put_le(b, v, 1);
}

void
fal_put_u16(struct fal_buf *b, uint16_t v)
{
	put_le(b, v, 2);
}

void
fal_put_u32(struct fal_buf *b, uint32_t v)
{
	put_le(b, v, 4);
}

void
fal_put_u64(struct fal_buf *b, uint64_t v)
{
	put_le(b, v, 8);
}

void
fal_put_str(struct fal_buf *b, const char *s)
{
	size_t n = strlen(s);
	if (n > UINT16_MAX) {
		b->err = b->err != 0 ? b->err : FAL_ELIMIT;
		return;
	}
	fal_put_u16(b, (uint16_t)n);
	fal_put_bytes(b, s, n);
}

void
fal_put_fmt(struct fal_buf *b, const char *fmt, ...)
{
	/* Mostly the room at hand is enough. */
	const size_t had = b->err == 0 ? b->cap - b->n : 0;
	va_list ap, copy;
	va_start(ap, fmt);
	va_copy(copy, ap);
	int n = vsnprintf(had > 0 ? (char *)b->p + b->n : NULL, had, fmt, ap);
	va_end(ap);
	uint8_t *room = n < 0 ? NULL : fal_buf_room(b, (size_t)n + 1);
	if (room != NULL) {
		if ((size_t)n >= had)
			vsnprintf((char *)room, (size_t)n + 1, fmt, copy);
		b->n--;
	}
	va_end(copy);
}

const uint8_t *
fal_get_bytes(struct fal_rd *r, size_t n)
{
	if (r->err == 0 && n > r->n)
		r->err = FAL_ETRUNC;
	if (r->err != 0)
		return NULL;
	const uint8_t *p = r->p;
	r->p += n;
	r->n -= n;
	return p;
}

static uint64_t
get_le(struct fal_rd *r, size_t n)
{
	const uint8_t *p = fal_get_bytes(r, n);
	uint64_t v = 0;
	for (size_t i = 0; p != NULL && i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

uint8_t
fal_get_u8(struct fal_rd *r)
{
	return (uint8_t)get_le(r, 1);
}

uint16_t
fal_get_u16(struct fal_rd *r)
{
	return (uint16_t)get_le(r, 2);
}

uint32_t
fal_get_u32(struct fal_rd *r)
{
	return (uint32_t)get_le(r, 4);
}

uint64_t
fal_get_u64(struct fal_rd *r)
{
	return get_le(r, 8);
}

void
fal_get_str(struct fal_rd *r, char *out, size_t cap)
{
	size_t n = fal_get_u16(r);
	out[0] = '\0';
	if (r->err == 0 && n >= cap)
		r->err = FAL_EFORMAT;
	const uint8_t *p = fal_get_bytes(r, n);
	for (size_t i = 0; p != NULL && i < n; i++)
		if (p[i] < 0x20 || p[i] == 0x7f) {
			r->err = FAL_EFORMAT;
			p = NULL;
		}
	if (p == NULL)
		return;
	memcpy(out, p, n);
	out[n] = '\0';
}

int
fal_rd_end(const struct fal_rd *r)
{
	if (r->err != 0)
		return r->err;
	return r->n == 0 ? FAL_OK : FAL_EFORMAT;
}
