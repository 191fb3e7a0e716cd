/* Making chunks ready, and forgetting those that nobody asks for. */
#include "server.h"

#include "base/mem.h"
#include "wire/msg.h"

#include <stdlib.h>

enum { CACHE_PIECE = 60 << 10 }; /* bytes of a chunk in one message */

/* Appends the message, compressed, behind the number of its bytes. */
static int
put_piece(struct ps_cache *c, const struct fal_msg *m, struct fal_buf *out)
{
	struct fal_buf msg = { 0 };
	const size_t at = out->n;
	fal_put_u32(out, 0);
	int err = fal_msg_put(&msg, m);
	if (err == FAL_OK)
		err = fal_zip_compress(c->zip, msg.p, msg.n, out);
	fal_buf_free(&msg);
	if (err < 0 || out->err < 0)
		return err < 0 ? err : out->err;
	const size_t n = out->n - at - sizeof(uint32_t);
	for (unsigned i = 0; i < sizeof(uint32_t); i++)
		out->p[at + i] = (uint8_t)(n >> 8 * i);
	return FAL_OK;
}

static int
make(struct ps_cache *c, const struct fal_part *part, const struct fal_set *set,
     struct fal_msg *m, struct fal_buf *out)
{
	struct fal_buf chunk = { 0 };
	if (c->zip == NULL)
		c->zip = fal_zip_new(FAL_ZIP_LEVEL);
	const uint32_t i = m->chunk.chunk;
	int err = fal_chunk_get(part, set, i, &chunk);
	m->chunk.total = (uint32_t)chunk.n;
	for (size_t at = 0; err == FAL_OK && at < chunk.n; at += CACHE_PIECE) {
		const size_t left = chunk.n - at;
		m->chunk.offset = (uint32_t)at;
		m->chunk.bytes =
			(struct fal_tail){ chunk.p + at,
					   left < CACHE_PIECE ? left : CACHE_PIECE };
		err = put_piece(c, m, out);
	}
	fal_buf_free(&chunk);
	c->made++;
	return err;
}

/* Forgets the chunks that were not asked for longest, but not `newest`. */
static void
shrink(struct ps_cache *c, const struct ps_packed *newest)
{
	while (c->bytes > c->most) {
		struct ps_packed *oldest = NULL;
		for (unsigned t = 0; t < 2; t++)
			for (uint32_t i = 0; i < c->n[t]; i++) {
				struct ps_packed *p = &c->v[t][i];
				if (p->used != 0 && p != newest &&
				    (oldest == NULL || p->used < oldest->used))
					oldest = p;
			}
		if (oldest == NULL)
			return;
		c->bytes -= oldest->bytes.cap;
		fal_buf_free(&oldest->bytes);
		oldest->used = 0;
	}
}

int
ps_cache_get(struct ps_cache *c, const struct fal_part *part, const struct fal_set *set,
	     bool test, uint32_t i, const struct fal_buf **out)
{
	struct fal_msg m = { .type = FAL_MSG_CHUNK };
	if (c->v[test] == NULL) {
		c->v[test] = fal_calloc(part->chunks, sizeof(*c->v[test]));
		if (c->v[test] == NULL)
			return FAL_ENOMEM;
		c->n[test] = part->chunks;
	}
	struct ps_packed *p = &c->v[test][i];
	if (p->used == 0) {
		m.chunk.test = test;
		m.chunk.chunk = i;
		int err = make(c, part, set, &m, &p->bytes);
		if (err < 0) {
			fal_buf_free(&p->bytes);
			return err;
		}
		c->bytes += p->bytes.cap;
	}
	p->used = ++c->uses;
	shrink(c, p);
	*out = &p->bytes;
	return FAL_OK;
}

void
ps_cache_free(struct ps_cache *c)
{
	for (unsigned t = 0; t < 2; t++) {
		for (uint32_t i = 0; i < c->n[t]; i++)
			fal_buf_free(&c->v[t][i].bytes);
		free(c->v[t]);
	}
	fal_zip_free(c->zip);
	*c = (struct ps_cache){ .most = c->most };
}
