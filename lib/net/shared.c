/* Publications: records made once. */
#include "net/shared.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "sec/stock.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

struct wire {
	uint8_t *p;
	size_t n, cap;
	size_t beside; /* on the shelf */
};

struct fal_shared_pool {
	struct fal_stock *keys;
	struct fal_aead *aead[FAL_SUITES + 1]; /* by suite, as they come */
	struct fal_zip *zip;                   /* NULL: nothing was compressed so far */
	struct fal_buf joined, packed;
	uint8_t **spare; /* memory of records, `each` bytes: of the largest one of late */
	size_t spare_n, spare_cap, each;
};

struct fal_shared {
	unsigned refs;
	struct fal_shared_pool *pool;
	const uint8_t *key;
	struct fal_publication pub;
	struct wire *records;
	size_t cap; /* of records: grows with them, not by `count` */
	uint32_t n;
	size_t bytes;
	struct fal_zip_stat stat;
	uint64_t version;
	uint32_t parts;
	bool zstd, lasting, broken;
	struct fal_shelf *shelf;
	uint32_t slot; /* of that */
};

struct fal_shared_pool *
fal_shared_pool_new(void)
{
	struct fal_shared_pool *p = fal_calloc(1, sizeof(*p));
	if (p == NULL || (p->keys = fal_stock_new()) == NULL) {
		free(p);
		return NULL;
	}
	return p;
}

void
fal_shared_pool_trim(struct fal_shared_pool *p)
{
	while (p->spare_n > 0)
		free(p->spare[--p->spare_n]);
	p->each = 0;
}

void
fal_shared_pool_free(struct fal_shared_pool *p)
{
	if (p == NULL)
		return;
	fal_shared_pool_trim(p);
	free(p->spare);
	fal_stock_free(p->keys);
	for (unsigned i = 0; i <= FAL_SUITES; i++)
		fal_aead_free(p->aead[i]);
	fal_zip_free(p->zip);
	fal_buf_free(&p->joined);
	fal_buf_free(&p->packed);
	free(p);
}

static int
take_aead(struct fal_shared_pool *p, uint8_t suite, struct fal_aead **out)
{
	struct fal_aead **a = &p->aead[suite <= FAL_SUITES ? suite : 0];
	int err = *a == NULL ? fal_aead_new(suite, FAL_LIBRARY_ANY, a) : FAL_OK;
	*out = *a;
	return err;
}

int
fal_shared_new(const struct fal_shared_opt *opt, struct fal_shared **out)
{
	if (opt->publication == 0 || opt->count == 0)
		return FAL_EINVAL;
	if (opt->ad_n > FAL_SHARED_AD_MAX)
		return FAL_ELIMIT;
	struct fal_shared *s = fal_calloc(1, sizeof(*s));
	if (s == NULL)
		return FAL_ENOMEM;
	s->refs = 1;
	s->pub = (struct fal_publication){ .id = opt->publication, .count = opt->count };
	if (opt->ad_n != 0)
		memcpy(s->pub.ad, opt->ad, opt->ad_n);
	s->pub.ad_n = opt->ad_n;
	s->pool = opt->pool;
	s->version = opt->version;
	s->parts = opt->parts > 0 ? opt->parts : 1;
	s->lasting = opt->lasting;
	s->zstd = opt->zstd;
	s->shelf = opt->shelf;
	if (s->shelf != NULL)
		s->slot = fal_shelf_take(s->shelf, s->version);
	if (s->zstd && s->pool->zip == NULL)
		s->pool->zip = fal_zip_new(FAL_ZIP_LEVEL);
	s->key = s->pub.key = fal_stock_take(s->pool->keys);
	int err =
		s->key == NULL || (s->zstd && s->pool->zip == NULL) ? FAL_ENOMEM : FAL_OK;
	if (err == FAL_OK)
		err = take_aead(s->pool,
				opt->suite != 0 ? opt->suite
						: FAL_SUITE_CHACHA20_POLY1305,
				&s->pub.aead);
	if (err < 0) {
		fal_shared_drop(s);
		return err;
	}
	*out = s;
	return FAL_OK;
}

/* Compresses into the pool's memory, from one place; true when that is the smaller one.
 */
static bool
pack(struct fal_shared *s, const struct fal_aead_text *msg)
{
	const uint64_t begun = uv_hrtime();
	struct fal_buf *joined = &s->pool->joined, *packed = &s->pool->packed;
	const size_t n = msg->n + msg->rest_n;
	fal_buf_clear(joined);
	fal_buf_clear(packed);
	fal_put_bytes(joined, msg->p, msg->n);
	fal_put_bytes(joined, msg->rest, msg->rest_n);
	const bool smaller =
		joined->err == FAL_OK &&
		fal_zip_compress(s->pool->zip, joined->p, n, packed) == FAL_OK &&
		packed->n < n;
	s->stat.bytes_in += n;
	s->stat.bytes_out += smaller ? packed->n : n;
	s->stat.ns += uv_hrtime() - begun;
	return smaller;
}

/* Memory for a record of n bytes, kept or new; p is NULL: there is none.  What is much
 * shorter than others has its own. */
static struct wire
take_wire(struct fal_shared_pool *p, size_t n)
{
	struct wire w = { .n = n, .cap = n };
	if (n > p->each) {
		fal_shared_pool_trim(p);
		p->each = n;
	}
	if (n > p->each / 2)
		w.cap = p->each;
	if (w.cap == p->each && p->spare_n > 0)
		w.p = p->spare[--p->spare_n];
	else
		w.p = FAL_TRY(MALLOC, NULL, malloc(w.cap));
	return w;
}

static void
give_wire(struct fal_shared_pool *p, const struct wire *w)
{
	if (w->cap == p->each && FAL_GROW(p->spare, p->spare_cap, p->spare_n + 1) == 0)
		p->spare[p->spare_n++] = w->p;
	else
		free(w->p);
}

/* What lies in the second place goes on the shelf; where that is comes instead. */
static int
put_on_shelf(struct fal_shared *s, struct fal_aead_text *text, size_t at,
	     uint8_t where[static FAL_WHERE_BYTES])
{
	struct fal_where w;
	if (!fal_shelf_has(s->shelf, s->slot, s->version))
		return FAL_ESTATE;
	int err = fal_shelf_put(s->shelf, s->slot, at, text->rest, text->rest_n, &w);
	if (err < 0)
		return err;
	fal_where_put(&w, where);
	text->rest = where;
	text->rest_n = FAL_WHERE_BYTES;
	return FAL_OK;
}

/* Seals the text as the next record. */
static int
add(struct fal_shared *s, const struct fal_aead_text *text, uint8_t flags, size_t beside)
{
	const size_t n = text->n + text->rest_n;
	struct wire w = take_wire(s->pool, FAL_RECORD_SHARED_HEAD + n + FAL_SEAL_TAG);
	if (w.p == NULL)
		return FAL_ENOMEM;
	w.beside = beside;
	int err = fal_record_shared_seal(&s->pub, s->n, flags, text, w.p);
	if (err < 0) {
		give_wire(s->pool, &w);
		return err;
	}
	s->records[s->n++] = w;
	s->bytes += w.n + beside;
	return FAL_OK;
}

int
fal_shared_add_text(struct fal_shared *s, const struct fal_aead_text *msg, size_t at)
{
	struct fal_aead_text text = *msg;
	uint8_t where[FAL_WHERE_BYTES], flags = 0;
	if (msg->n + msg->rest_n > FAL_RECORD_MAX)
		return FAL_ELIMIT;
	if (s->n == s->pub.count)
		return FAL_ESTATE;
	if (FAL_GROW(s->records, s->cap, s->n + (size_t)1) < 0)
		return FAL_ENOMEM;
	const bool shelf = s->shelf != NULL && msg->rest_n > 0;
	if (shelf) {
		flags = FAL_RECORD_SHELF;
		int err = put_on_shelf(s, &text, at, where);
		if (err < 0)
			return err;
	} else if (s->zstd && pack(s, msg)) {
		flags = FAL_RECORD_ZSTD;
		text = (struct fal_aead_text){ .p = s->pool->packed.p,
					       .n = s->pool->packed.n };
	}
	return add(s, &text, flags, shelf ? msg->rest_n : 0);
}

int
fal_shared_add(struct fal_shared *s, const void *msg, size_t n)
{
	const struct fal_aead_text text = { .p = msg, .n = n };
	return fal_shared_add_text(s, &text, 0);
}

void
fal_shared_break(struct fal_shared *s)
{
	s->broken = true;
}

struct fal_shared *
fal_shared_ref(struct fal_shared *s)
{
	s->refs++;
	return s;
}

void
fal_shared_drop(struct fal_shared *s)
{
	if (s == NULL || --s->refs != 0)
		return;
	for (uint32_t i = 0; i < s->n; i++)
		give_wire(s->pool, &s->records[i]);
	free(s->records);
	fal_stock_give(s->pool->keys, s->key);
	free(s);
}

uint64_t
fal_shared_publication(const struct fal_shared *s)
{
	return s->pub.id;
}

const uint8_t *
fal_shared_key(const struct fal_shared *s)
{
	return s->key;
}

uint8_t
fal_shared_suite(const struct fal_shared *s)
{
	return fal_aead_suite(s->pub.aead);
}

uint32_t
fal_shared_count(const struct fal_shared *s)
{
	return s->pub.count;
}

uint64_t
fal_shared_version(const struct fal_shared *s)
{
	return s->version;
}

uint32_t
fal_shared_parts(const struct fal_shared *s)
{
	return s->parts;
}

bool
fal_shared_lasting(const struct fal_shared *s)
{
	return s->lasting;
}

bool
fal_shared_whole(const struct fal_shared *s)
{
	return s->n == s->pub.count;
}

bool
fal_shared_broken(const struct fal_shared *s)
{
	return s->broken;
}

uint32_t
fal_shared_made(const struct fal_shared *s)
{
	return s->n;
}

size_t
fal_shared_bytes(const struct fal_shared *s)
{
	return s->bytes;
}

size_t
fal_shared_beside(const struct fal_shared *s, uint32_t i)
{
	return s->records[i].beside;
}

const uint8_t *
fal_shared_record(const struct fal_shared *s, uint32_t i, size_t *n)
{
	*n = s->records[i].n;
	return s->records[i].p;
}

struct fal_zip_stat
fal_shared_stat(const struct fal_shared *s)
{
	return s->stat;
}
