/* Heads of records, and what is authenticated with them. */
#include "net/record.h"

#include "base/buf.h"
#include "base/err.h"
#include "wire/msg.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

_Static_assert((int)FAL_RECORD_MAX == (int)FAL_MSG_MAX, "a record holds any message");

static void
put_le(uint8_t *p, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static void
put_head(uint8_t *p, uint32_t length, uint8_t type, uint8_t flags)
{
	put_le(p, length, 4);
	p[4] = type;
	p[5] = flags;
	put_le(p + 6, 0, 2);
}

/* Is it of a type, and are its flags those that may be? */
static bool
flags_fit(const struct fal_record *r)
{
	static const uint8_t known[] = {
		[FAL_RECORD_SESSION] = FAL_RECORD_ZSTD | FAL_RECORD_UNSEALED,
		[FAL_RECORD_SHARED] = FAL_RECORD_ZSTD | FAL_RECORD_AES,
		[FAL_RECORD_UNSEAL] = 0,
	};
	if (r->type == FAL_RECORD_SHARED && r->flags == FAL_RECORD_UNSEALED)
		return true; /* neither compressed, nor of a suite */
	return r->type >= FAL_RECORD_SESSION && r->type <= FAL_RECORD_UNSEAL &&
	       (r->flags & ~known[r->type]) == 0;
}

int
fal_record_peek(const uint8_t *p, size_t n, struct fal_record *out)
{
	if (n < FAL_RECORD_HEAD)
		return FAL_ETRUNC;
	struct fal_rd r = fal_rd_init(p, n);
	const size_t length = fal_get_u32(&r);
	struct fal_record rec = { .head = FAL_RECORD_HEAD };
	rec.type = fal_get_u8(&r);
	rec.flags = fal_get_u8(&r);
	if (!flags_fit(&rec) || fal_get_u16(&r) != 0)
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
	put_head(p, (uint32_t)(n + FAL_SEAL_TAG), type, flags);
	return fal_seal_seal(tx, p, FAL_RECORD_HEAD, p + FAL_RECORD_HEAD, n);
}

void
fal_record_unsealed(uint8_t flags, uint8_t *p, size_t n)
{
	assert(n <= FAL_RECORD_MAX);
	put_head(p, (uint32_t)n, FAL_RECORD_SESSION, flags | FAL_RECORD_UNSEALED);
}

int
fal_record_open(struct fal_seal *rx, const struct fal_record *r, uint8_t *p)
{
	return fal_seal_open(rx, p, r->head, p + r->head, r->body);
}

#define AD_MAX (FAL_RECORD_SHARED_HEAD + 4 + FAL_SHARED_AD_MAX)

/* head, u32 count, the owner's bytes. */
static size_t
shared_ad(const struct fal_publication *pub, const uint8_t *head,
	  uint8_t ad[static AD_MAX])
{
	assert(pub->ad_n <= FAL_SHARED_AD_MAX);
	memcpy(ad, head, FAL_RECORD_SHARED_HEAD);
	put_le(ad + FAL_RECORD_SHARED_HEAD, pub->count, 4);
	memcpy(ad + FAL_RECORD_SHARED_HEAD + 4, pub->ad, pub->ad_n);
	return FAL_RECORD_SHARED_HEAD + 4 + pub->ad_n;
}

uint8_t
fal_record_suite(const struct fal_record *r)
{
	return (r->flags & FAL_RECORD_AES) != 0 ? FAL_SUITE_AES256_GCM
						: FAL_SUITE_CHACHA20_POLY1305;
}

/* A shared record's head, before n bytes and perhaps a tag. */
static void
put_shared_head(const struct fal_publication *pub, uint32_t index, uint8_t flags,
		size_t n, uint8_t *p)
{
	const size_t length = FAL_RECORD_SHARED_HEAD - FAL_RECORD_HEAD + n;
	put_head(p, (uint32_t)length, FAL_RECORD_SHARED, flags);
	put_le(p + FAL_RECORD_HEAD, pub->id, 8);
	put_le(p + FAL_RECORD_HEAD + 8, index, 4);
}

void
fal_record_shared_unsealed(const struct fal_publication *pub, uint32_t index,
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
fal_record_shared_seal(const struct fal_publication *pub, uint32_t index, uint8_t flags,
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

int
fal_record_shared_open_apart(const struct fal_publication *pub,
			     const struct fal_record *r, uint8_t *p, size_t head,
			     uint8_t *rest)
{
	uint8_t ad[AD_MAX], *body = p + r->head;
	const struct fal_aead_record of = { pub->key, r->index, ad,
					    shared_ad(pub, p, ad) };
	if (fal_record_suite(r) != fal_aead_suite(pub->aead))
		return FAL_EFORMAT;
	return fal_aead_open_apart(pub->aead, &of, body, r->body, head, rest);
}

int
fal_record_shared_open(const struct fal_publication *pub, const struct fal_record *r,
		       uint8_t *p)
{
	return fal_record_shared_open_apart(pub, r, p, r->body - FAL_SEAL_TAG, NULL);
}
