/* Heads of records, the data authenticated with a record, and the opening of records. */
#include "net/record.h"

#include "base/err.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

_Static_assert((int)FAL_RECORD_MAX == (int)FAL_MSG_MAX, "a record holds any message");

static void
record_put_le(uint8_t *p, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static void
record_put_head(uint8_t *p, uint32_t length, uint8_t type, uint8_t flags)
{
	record_put_le(p, length, 4);
	p[4] = type;
	p[5] = flags;
	record_put_le(p + 6, 0, 2);
}

int
fal_record_parse_head(const uint8_t *p, size_t n, struct fal_record *out)
{
	static const uint8_t known_flags[] = {
		[FAL_RECORD_SESSION] = FAL_RECORD_ZSTD | FAL_RECORD_UNSEALED,
		[FAL_RECORD_SHARED] = FAL_RECORD_ZSTD | FAL_RECORD_AES,
		[FAL_RECORD_UNSEAL] = 0,
	};
	if (n < FAL_RECORD_HEAD)
		return FAL_ETRUNC;
	struct fal_rd r = fal_rd_init(p, n);
	const size_t length = fal_get_u32(&r);
	struct fal_record rec = { .head = FAL_RECORD_HEAD };
	rec.type = fal_get_u8(&r);
	rec.flags = fal_get_u8(&r);
	if (rec.type < FAL_RECORD_SESSION || rec.type > FAL_RECORD_UNSEAL ||
	    fal_get_u16(&r) != 0)
		return FAL_EFORMAT;
	/* An unsealed publication is neither compressed, nor of a suite. */
	if ((rec.flags & ~known_flags[rec.type]) != 0 &&
	    (rec.type != FAL_RECORD_SHARED || rec.flags != FAL_RECORD_UNSEALED))
		return FAL_EFORMAT;
	if (rec.type == FAL_RECORD_SHARED)
		rec.head = FAL_RECORD_SHARED_HEAD;
	rec.tag = (rec.flags & FAL_RECORD_UNSEALED) != 0 ? 0 : FAL_SEAL_TAG;
	const size_t least = rec.head - FAL_RECORD_HEAD + rec.tag;
	if (length < least)
		return FAL_EFORMAT;
	if (length > least + FAL_RECORD_MAX)
		return FAL_ELIMIT;
	if (n < FAL_RECORD_HEAD + length)
		return FAL_ETRUNC;
	if (rec.type == FAL_RECORD_SHARED) {
		rec.publication = fal_get_u64(&r);
		rec.index = fal_get_u32(&r);
	}
	rec.body = FAL_RECORD_HEAD + length - rec.head;
	*out = rec;
	return FAL_OK;
}

int
fal_record_seal(struct fal_seal *tx, uint8_t type, uint8_t flags, uint8_t *p, size_t n)
{
	assert(n <= FAL_RECORD_MAX);
	record_put_head(p, (uint32_t)(n + FAL_SEAL_TAG), type, flags);
	return fal_seal_seal(tx, p, FAL_RECORD_HEAD, p + FAL_RECORD_HEAD, n);
}

void
fal_record_put_unsealed(uint8_t flags, uint8_t *p, size_t n)
{
	assert(n <= FAL_RECORD_MAX);
	record_put_head(p, (uint32_t)n, FAL_RECORD_SESSION, flags | FAL_RECORD_UNSEALED);
}

#define AD_MAX (FAL_RECORD_SHARED_HEAD + 4 + FAL_SHARED_AD_MAX)

/* Sets the associated data: head, u32 count, the owner's bytes; returns its length. */
static size_t
shared_ad(const struct fal_publication *pub, const uint8_t *head,
	  uint8_t ad[static AD_MAX])
{
	assert(pub->ad_n <= FAL_SHARED_AD_MAX);
	memcpy(ad, head, FAL_RECORD_SHARED_HEAD);
	record_put_le(ad + FAL_RECORD_SHARED_HEAD, pub->count, 4);
	memcpy(ad + FAL_RECORD_SHARED_HEAD + 4, pub->ad, pub->ad_n);
	return FAL_RECORD_SHARED_HEAD + 4 + pub->ad_n;
}

/* Writes a shared record's head, for a body of n bytes with its tag. */
static void
put_shared_head(const struct fal_publication *pub, uint32_t index, uint8_t flags,
		size_t n, uint8_t *p)
{
	const size_t length = FAL_RECORD_SHARED_HEAD - FAL_RECORD_HEAD + n;
	record_put_head(p, (uint32_t)length, FAL_RECORD_SHARED, flags);
	record_put_le(p + FAL_RECORD_HEAD, pub->id, 8);
	record_put_le(p + FAL_RECORD_HEAD + 8, index, 4);
}

void
fal_record_put_shared_unsealed(const struct fal_publication *pub, uint32_t index,
			       const struct fal_aead_text *msg, uint8_t *p)
{
	const size_t n = msg->n + msg->rest_n;
	assert(n <= FAL_RECORD_MAX);
	put_shared_head(pub, index, FAL_RECORD_UNSEALED, n, p);
	memcpy(p + FAL_RECORD_SHARED_HEAD, msg->p, msg->n);
	if (msg->rest_n > 0)
		memcpy(p + FAL_RECORD_SHARED_HEAD + msg->n, msg->rest, msg->rest_n);
}

int
fal_record_seal_shared(const struct fal_publication *pub, uint32_t index, uint8_t flags,
		       const struct fal_aead_text *msg, uint8_t *p)
{
	const size_t n = msg->n + msg->rest_n;
	assert(n <= FAL_RECORD_MAX);
	uint8_t ad[AD_MAX], *body = p + FAL_RECORD_SHARED_HEAD;
	if (fal_aead_suite(pub->aead) == FAL_SUITE_AES256_GCM)
		flags |= FAL_RECORD_AES;
	put_shared_head(pub, index, flags, n + FAL_SEAL_TAG, p);
	const struct fal_aead_record r = { pub->key, index, ad, shared_ad(pub, p, ad) };
	return fal_aead_seal_text(pub->aead, &r, msg, body);
}

/* --- the receiving half of a session --- */

struct fal_expect {
	struct fal_publication pub; /* id 0: none */
	uint64_t number;            /* its number among all expected, from 1; 0: none */
	uint32_t came;              /* records */
	uint8_t *seen;              /* by index, bits: it came; NULL: no record came */
};

struct fal_reader *
fal_reader_new(void)
{
	return fal_xcalloc(1, sizeof(struct fal_reader));
}

void
fal_reader_free(struct fal_reader *r)
{
	if (r == NULL)
		return;
	fal_seal_wipe(&r->rx);
	for (unsigned i = 0; i <= FAL_SUITES; i++)
		fal_aead_free(r->shared[i]);
	fal_secret_free(r->keys);
	for (size_t i = 0; i < r->cap; i++)
		free(r->expect[i].seen);
	free(r->expect);
	fal_zip_free(r->zip);
	fal_buf_free(&r->plain);
	free(r);
}

/* NULL: the publication is not expected. */
static struct fal_expect *
reader_find(struct fal_reader *r, uint64_t id)
{
	for (size_t i = 0; i < r->cap; i++) {
		const size_t at = (r->last + i) % r->cap;
		if (r->expect[at].pub.id == id)
			return &r->expect[r->last = at];
	}
	return NULL;
}

int
fal_reader_expect(struct fal_reader *r, const struct fal_publication *pub)
{
	if (pub->id == 0 || pub->count == 0)
		return FAL_EINVAL;
	if (pub->ad_n > FAL_SHARED_AD_MAX)
		return FAL_ELIMIT;
	if (reader_find(r, pub->id) != NULL)
		return FAL_EEXIST;
	/* The publication gets a free index, or a new one; at the limit it replaces the
	 * publication expected longest. */
	size_t at = 0;
	for (size_t i = 1; i < r->cap; i++)
		if (r->expect[i].number < r->expect[at].number)
			at = i;
	const bool is_full = r->cap == 0 || r->expect[at].number != 0;
	if (is_full && r->cap < FAL_EXPECT_MAX) {
		at = r->cap;
		const size_t cap = at > 0 ? 2 * at : FAL_EXPECT_MAX / FAL_SHARDS_MAX;
		uint8_t *keys = fal_secret_alloc(cap * FAL_KEY_BYTES);
		struct fal_expect *expect = fal_xcalloc(cap, sizeof(*expect));
		for (size_t i = 0; i < r->cap; i++) {
			expect[i] = r->expect[i];
			expect[i].pub.key = keys + i * FAL_KEY_BYTES;
			memcpy(keys + i * FAL_KEY_BYTES, r->keys + i * FAL_KEY_BYTES,
			       FAL_KEY_BYTES);
		}
		fal_secret_free(r->keys);
		free(r->expect);
		r->keys = keys;
		r->expect = expect;
		r->cap = cap;
	}
	uint8_t *key = r->keys + at * FAL_KEY_BYTES;
	memcpy(key, pub->key, FAL_KEY_BYTES);
	free(r->expect[at].seen);
	r->expect[at] = (struct fal_expect){ .pub = *pub, .number = ++r->expected };
	r->expect[at].pub.key = key;
	if (pub->id > r->max_id)
		r->max_id = pub->id;
	return FAL_OK;
}

/* The content of an opened publication's record. */
struct opened {
	const uint8_t *msg;
	size_t n;
};

/* Opens a record: the message's first bytes in place; the others in the owner's memory,
 * if the owner offers some. */
static int
open_placed(struct fal_reader *r, const struct fal_publication *pub,
	    const struct fal_record *rec, uint8_t *p, struct opened *out)
{
	const bool whole = r->place == NULL || (rec->flags & FAL_RECORD_ZSTD) != 0;
	size_t head = out->n;
	uint8_t *rest =
		whole ? NULL : r->place(r->place_arg, pub, rec->index, out->n, &head);
	assert(head <= out->n);
	int err = FAL_OK;
	if (rec->tag != 0) {
		uint8_t ad[AD_MAX];
		const struct fal_aead_record sealed = { pub->key, rec->index, ad,
							shared_ad(pub, p, ad) };
		err = fal_aead_open_apart(pub->aead, &sealed, p + rec->head, rec->body,
					  rest != NULL ? head : out->n, rest);
	} else if (rest != NULL) {
		memcpy(rest, out->msg + head, out->n - head);
	}
	if (err < 0 || rest == NULL)
		return err < 0 ? err : FAL_READ_MESSAGE;
	out->n = head;
	return FAL_READ_PLACED;
}

/* Opens a publication's record.  FAL_ESTATE: the publication has no such record, or the
 * record has come before. */
static int
open_shared(struct fal_reader *r, const struct fal_record *rec, uint8_t *p,
	    struct opened *out)
{
	if (rec->publication == 0 || rec->publication > r->max_id)
		return FAL_ESTATE;
	struct fal_expect *e = reader_find(r, rec->publication);
	if (e == NULL)
		return FAL_READ_NOTHING;
	if (rec->index >= e->pub.count)
		return FAL_ESTATE;
	if (e->seen == NULL)
		e->seen = fal_calloc(((size_t)e->pub.count + 7) / 8, 1);
	if (e->seen == NULL)
		return FAL_ENOMEM;
	const unsigned bit = 1u << rec->index % 8;
	if ((e->seen[rec->index / 8] & bit) != 0)
		return FAL_ESTATE;
	if (rec->tag != 0) {
		const uint8_t suite = (rec->flags & FAL_RECORD_AES) != 0
					      ? FAL_SUITE_AES256_GCM
					      : FAL_SUITE_CHACHA20_POLY1305;
		/* A publisher has no other suites than ChaCha and the session's. */
		if (suite != FAL_SUITE_CHACHA20_POLY1305 && suite != r->rx.suite)
			return FAL_EFORMAT;
		struct fal_aead **a = &r->shared[suite];
		int err = *a == NULL ? fal_aead_new(suite, FAL_LIBRARY_ANY, a) : FAL_OK;
		if (err < 0)
			return err;
		e->pub.aead = *a;
	}
	const int got = open_placed(r, &e->pub, rec, p, out);
	if (got < 0)
		return got;
	e->seen[rec->index / 8] |= (uint8_t)bit;
	if (++e->came == e->pub.count) { /* all records have come */
		free(e->seen);
		e->seen = NULL;
		e->pub.id = e->number = 0;
	}
	return got;
}

int
fal_reader_next(struct fal_reader *r, uint8_t *p, size_t n, size_t *used,
		const uint8_t **msg, size_t *msg_n)
{
	struct fal_record rec;
	int err = fal_record_parse_head(p, n, &rec);
	if (err < 0)
		return err;
	const bool is_shared = rec.type == FAL_RECORD_SHARED;
	/* A session record must be sealed while r->unsealed is false, and must not be
	 * sealed afterwards; a publication's record may always be sealed. */
	if (rec.tag == 0 ? !r->unsealed : r->unsealed && !is_shared)
		return FAL_EFORMAT;
	struct opened opened = { p + rec.head, rec.body - rec.tag };
	int got = rec.type == FAL_RECORD_UNSEAL ? FAL_READ_UNSEAL : FAL_READ_MESSAGE;
	if (is_shared)
		got = open_shared(r, &rec, p, &opened);
	else if (rec.tag != 0)
		err = fal_seal_open(&r->rx, p, rec.head, p + rec.head, rec.body);
	if (err < 0 || got < 0)
		return err < 0 ? err : got;
	if (got == FAL_READ_MESSAGE && (rec.flags & FAL_RECORD_ZSTD) != 0) {
		if (r->zip == NULL)
			r->zip = fal_zip_new(FAL_ZIP_LEVEL);
		fal_buf_clear(&r->plain);
		err = fal_zip_decompress(r->zip, opened.msg, opened.n, FAL_RECORD_MAX,
					 &r->plain);
		if (err == FAL_ETRUNC)
			return FAL_EFORMAT; /* the frame, not the stream */
		if (err < 0)
			return err;
		r->unzipped.bytes_in += opened.n;
		r->unzipped.bytes_out += r->plain.n;
		opened = (struct opened){ r->plain.p, r->plain.n };
	}
	*used = rec.head + rec.body;
	*msg = opened.msg;
	*msg_n = opened.n;
	return got;
}

uint64_t
fal_unzip_ns(struct fal_zip *z, const void *p, size_t n, struct fal_buf *scratch)
{
	const uint64_t begun = uv_hrtime();
	fal_buf_clear(scratch);
	(void)fal_zip_decompress(z, p, n, FAL_RECORD_MAX, scratch);
	return uv_hrtime() - begun;
}
