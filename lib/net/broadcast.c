/* Publications: records that are made once. */
#include "net/broadcast.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "crypto/secret.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* A thread's contexts for sealing and compressing. */
struct pool_thread {
	struct fal_aead *aead[FAL_SUITES + 1]; /* by suite, made when needed */
	struct fal_zip *zip;                   /* NULL: nothing was compressed yet */
	struct fal_buf joined;
};

/* A message that becomes a record. */
struct item {
	struct fal_aead_text text; /* to be sealed */
	struct fal_buf packed;
	struct fal_shared_record wire;
	int err;
};

struct fal_shared_pool {
	const struct fal_parallel *parallel;
	struct pool_thread *thread; /* by thread */
	struct item *item;          /* messages that are added together */
	size_t item_cap;
	uint8_t **spare; /* memory of records, `each` bytes: the recent largest */
	size_t spare_n, spare_cap, each;
};

struct fal_shared_pool *
fal_shared_pool_new(const struct fal_parallel *parallel)
{
	struct fal_shared_pool *p = fal_xcalloc(1, sizeof(*p));
	p->parallel = parallel;
	p->thread = fal_xcalloc(fal_parallel_threads(parallel), sizeof(*p->thread));
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
	for (uint32_t i = 0; i < fal_parallel_threads(p->parallel); i++) {
		struct pool_thread *h = &p->thread[i];
		for (unsigned k = 0; k <= FAL_SUITES; k++)
			fal_aead_free(h->aead[k]);
		fal_zip_free(h->zip);
		fal_buf_free(&h->joined);
	}
	free(p->thread);
	free(p->item);
	free(p);
}

int
fal_shared_new(const struct fal_shared_opt *opt, struct fal_shared **out)
{
	if (opt->publication == 0 || opt->count == 0)
		return FAL_EINVAL;
	if (opt->ad_n > FAL_SHARED_AD_MAX)
		return FAL_ELIMIT;
	struct fal_shared *s = fal_xcalloc(1, sizeof(*s));
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
	s->unsealed = opt->unsealed;
	s->suite = opt->suite != 0 ? opt->suite : FAL_SUITE_CHACHA20_POLY1305;
	s->key = fal_secret_key();
	fal_random_bytes(s->key, FAL_KEY_BYTES);
	s->pub.key = s->key;
	int err = FAL_OK;
	const uint32_t threads =
		s->unsealed ? 0 : fal_parallel_threads(s->pool->parallel);
	for (uint32_t i = 0; i < threads && err == FAL_OK; i++) {
		struct pool_thread *h = &s->pool->thread[i];
		struct fal_aead **a = &h->aead[s->suite <= FAL_SUITES ? s->suite : 0];
		if (s->zstd && h->zip == NULL)
			h->zip = fal_zip_new(FAL_ZIP_LEVEL);
		if (*a == NULL)
			err = fal_aead_new(s->suite, FAL_LIBRARY_ANY, a);
	}
	if (err < 0) {
		fal_shared_drop(s);
		return err;
	}
	*out = s;
	return FAL_OK;
}

/* Messages that are added together. */
struct message_batch {
	struct fal_shared *s;
	const struct fal_shared_text *text;
};

/* Joins and compresses message `i`, if that makes it smaller. */
static void
pack_message(void *work, uint32_t i, uint32_t thread)
{
	const struct message_batch *a = work;
	struct fal_shared_pool *pool = a->s->pool;
	struct item *item = &pool->item[i];
	struct fal_buf *joined = &pool->thread[thread].joined;
	const struct fal_aead_text *msg = &a->text[i].msg;
	const size_t n = msg->n + msg->rest_n;
	fal_buf_clear(joined);
	fal_buf_clear(&item->packed);
	fal_put_bytes(joined, msg->p, msg->n);
	fal_put_bytes(joined, msg->rest, msg->rest_n);
	if (joined->err == FAL_OK &&
	    fal_zip_compress(pool->thread[thread].zip, joined->p, n, &item->packed) ==
		    FAL_OK &&
	    item->packed.n < n)
		item->text =
			(struct fal_aead_text){ item->packed.p, item->packed.n, NULL, 0 };
}

static void
pack_messages(struct message_batch *a, uint32_t n)
{
	struct fal_shared *s = a->s;
	const uint64_t begun = uv_hrtime();
	fal_parallel_each(s->pool->parallel, n, pack_message, a);
	s->stat.ns += uv_hrtime() - begun;
	const struct fal_buf *first = &s->pool->item[0].packed;
	if (s->pool->item[0].text.p == first->p)
		s->stat.ns += n * fal_unzip_ns(s->pool->thread[0].zip, first->p, first->n,
					       &s->pool->thread[0].joined);
	for (uint32_t i = 0; i < n; i++) {
		const struct fal_aead_text *text = &s->pool->item[i].text;
		s->stat.bytes_in += a->text[i].msg.n + a->text[i].msg.rest_n;
		s->stat.bytes_out += text->n + text->rest_n;
	}
}

/* Returns memory for a record of n bytes, from the pool or new; p is NULL: out of memory.
 * A record much shorter than the largest gets memory of the record's own size. */
static struct fal_shared_record
pool_take_memory(struct fal_shared_pool *p, size_t n)
{
	struct fal_shared_record w = { .n = n, .cap = n };
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
pool_give_memory(struct fal_shared_pool *p, const struct fal_shared_record *w)
{
	if (w->cap != p->each) {
		free(w->p);
		return;
	}
	FAL_XGROW(p->spare, p->spare_cap, p->spare_n + 1);
	p->spare[p->spare_n++] = w->p;
}

/* Makes the record of message `i`. */
static void
seal_message(void *work, uint32_t i, uint32_t thread)
{
	const struct message_batch *a = work;
	const struct fal_shared *s = a->s;
	struct item *item = &s->pool->item[i];
	struct fal_publication pub = s->pub;
	uint8_t flags = 0;
	if (s->unsealed) {
		fal_record_put_shared_unsealed(&pub, a->text[i].index, &item->text,
					       item->wire.p);
		return;
	}
	pub.aead = s->pool->thread[thread].aead[s->suite];
	if (item->text.p != a->text[i].msg.p)
		flags = FAL_RECORD_ZSTD;
	item->err = fal_record_seal_shared(&pub, a->text[i].index, flags, &item->text,
					   item->wire.p);
}

int
fal_shared_add_texts(struct fal_shared *s, const struct fal_shared_text *text, uint32_t n)
{
	struct message_batch a = { s, text };
	if (n > s->pub.count - s->made)
		return FAL_ESTATE;
	for (uint32_t i = 0; i < n; i++) {
		assert(text[i].index < s->pub.count);
		if (text[i].msg.n + text[i].msg.rest_n > FAL_RECORD_MAX)
			return FAL_ELIMIT;
	}
	FAL_XGROW(s->records, s->cap, (size_t)s->made + n);
	FAL_XGROW(s->pool->item, s->pool->item_cap, n);
	struct item *item = s->pool->item;
	for (uint32_t i = 0; i < n; i++)
		item[i] = (struct item){ .text = text[i].msg };
	if (s->zstd)
		pack_messages(&a, n);
	int err = FAL_OK;
	for (uint32_t i = 0; i < n; i++) {
		/* The record's size is known before it is made. */
		item[i].wire = pool_take_memory(s->pool,
						FAL_RECORD_SHARED_HEAD + item[i].text.n +
							item[i].text.rest_n +
							(s->unsealed ? 0 : FAL_SEAL_TAG));
		err = item[i].wire.p == NULL ? FAL_ENOMEM : err;
	}
	if (err == FAL_OK)
		fal_parallel_each(s->pool->parallel, n, seal_message, &a);
	for (uint32_t i = 0; i < n && err == FAL_OK; i++)
		err = item[i].err;
	/* Adds all sealed messages or, after an error, none. */
	for (uint32_t i = 0; i < n; i++) {
		if (err == FAL_OK) {
			s->records[s->made++] = item[i].wire;
			s->bytes += item[i].wire.n;
		} else if (item[i].wire.p != NULL) {
			pool_give_memory(s->pool, &item[i].wire);
		}
		fal_buf_free(&item[i].packed);
	}
	return err;
}

void
fal_shared_abandon(struct fal_shared *s)
{
	s->broken = true;
}

struct fal_shared *
fal_shared_ref(struct fal_shared *s)
{
	s->refs++;
	return s;
}

static void
shared_free(struct fal_shared *s)
{
	free(s->records);
	free(s);
}

void
fal_shared_drop(struct fal_shared *s)
{
	if (s == NULL || --s->refs != 0)
		return;
	for (uint32_t i = 0; i < s->made; i++)
		if (s->records[i].lent == 0)
			pool_give_memory(s->pool, &s->records[i]);
	fal_secret_key_free(s->key);
	if (s->lent == 0)
		shared_free(s);
}

const uint8_t *
fal_shared_record(const struct fal_shared *s, uint32_t i, size_t *n)
{
	*n = s->records[i].n;
	return s->records[i].p;
}

void
fal_shared_lend(struct fal_shared *s, uint32_t i)
{
	s->lent++;
	s->records[i].lent++;
	s->taken = i < s->taken ? s->taken : i + 1;
}

void
fal_shared_return(struct fal_shared *s, uint32_t i)
{
	s->lent--;
	if (--s->records[i].lent == 0 && s->refs == 0)
		pool_give_memory(s->pool, &s->records[i]);
	if (s->lent == 0 && s->refs == 0)
		shared_free(s);
}
