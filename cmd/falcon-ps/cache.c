/* The cache of chunks: makes them, and drops the least recently used. */
#include "server.h"

#include "base/mem.h"
#include "wire/msg.h"

#include <stdlib.h>

struct ps_cached_chunk {
	bool is_test; /* a chunk of the test set */
	uint32_t chunk;
	struct fal_buf bytes; /* for each message: u32 its length, then its bytes */
	uint64_t used_at;     /* value of ps_cache.uses at the last request */
};

static int
cache_make_chunk(struct ps_cache *c, const struct fal_part *part,
		 const struct fal_set *set, struct ps_cached_chunk *p)
{
	struct fal_msg m = { .type = FAL_MSG_CHUNK,
			     .chunk = { .test = p->is_test, .chunk = p->chunk } };
	struct fal_buf chunk = { 0 };
	if (c->zip == NULL)
		c->zip = fal_zip_new(FAL_ZIP_LEVEL);
	int err = fal_chunk_get(part, set, p->chunk, &chunk);
	m.chunk.total = (uint32_t)chunk.n;
	for (size_t at = 0; err == FAL_OK && at < chunk.n; at += PS_PIECE) {
		const size_t left = chunk.n - at;
		m.chunk.offset = (uint32_t)at;
		m.chunk.bytes = (struct fal_tail){ chunk.p + at,
						   left < PS_PIECE ? left : PS_PIECE };
		/* The length is known when the message is compressed. */
		struct fal_buf msg = { 0 };
		const size_t start = p->bytes.n;
		fal_put_u32(&p->bytes, 0);
		fal_msg_put(&msg, &m);
		err = fal_zip_compress(c->zip, msg.p, msg.n, &p->bytes);
		fal_buf_free(&msg);
		if (err == FAL_OK)
			err = p->bytes.err;
		const size_t n = p->bytes.n - start - sizeof(uint32_t);
		for (unsigned i = 0; i < sizeof(uint32_t) && err == FAL_OK; i++)
			p->bytes.p[start + i] = (uint8_t)(n >> 8 * i);
	}
	fal_buf_free(&chunk);
	c->made++;
	return err;
}

int
ps_cache_get(struct ps_cache *c, const struct fal_part *part, const struct fal_set *set,
	     bool is_test, uint32_t i, const struct fal_buf **out)
{
	size_t at = 0;
	while (at < c->n && (c->v[at].is_test != is_test || c->v[at].chunk != i))
		at++;
	if (at == c->n) {
		struct ps_cached_chunk p = { .is_test = is_test, .chunk = i };
		int err = cache_make_chunk(c, part, set, &p);
		if (err < 0) {
			fal_buf_free(&p.bytes);
			return err;
		}
		FAL_XGROW(c->v, c->cap, c->n + 1);
		c->v[c->n++] = p;
		c->bytes += p.bytes.cap;
	}
	c->v[at].used_at = ++c->uses;
	/* Drops the least recently used chunks, but not this one. */
	while (c->bytes > c->limit && c->n > 1) {
		size_t old = 0;
		for (size_t k = 1; k < c->n; k++)
			old = c->v[k].used_at < c->v[old].used_at ? k : old;
		c->bytes -= c->v[old].bytes.cap;
		fal_buf_free(&c->v[old].bytes);
		c->v[old] = c->v[--c->n];
		at = at == c->n ? old : at;
	}
	*out = &c->v[at].bytes;
	return FAL_OK;
}

void
ps_cache_free(struct ps_cache *c)
{
	while (c->n > 0)
		fal_buf_free(&c->v[--c->n].bytes);
	free(c->v);
	fal_zip_free(c->zip);
	*c = (struct ps_cache){ .limit = c->limit };
}
