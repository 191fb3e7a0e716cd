/* Opening of records. */
#include "net/reader.h"

#include "base/err.h"

#include <string.h>
#include <uv.h>

void
fal_reader_wipe(struct fal_reader *r)
{
	fal_seal_wipe(&r->rx);
	fal_secret_free(r->keys);
	fal_zip_free(r->zip);
	fal_buf_free(&r->plain);
	*r = (struct fal_reader){ 0 };
}

int
fal_reader_expect(struct fal_reader *r, const struct fal_publication *pub)
{
	if (pub->id == 0 || pub->count == 0)
		return FAL_EINVAL;
	if (pub->ad_n > FAL_SHARED_AD_MAX)
		return FAL_ELIMIT;
	if (pub->id <= r->newest)
		return FAL_EEXIST;
	if (r->keys == NULL &&
	    (r->keys = fal_secret_alloc((size_t)FAL_EXPECT_MAX * FAL_KEY_BYTES)) == NULL)
		return FAL_ENOMEM;
	size_t at = 0;
	for (size_t i = 1; i < FAL_EXPECT_MAX; i++)
		if (r->expect[i].pub.id < r->expect[at].pub.id)
			at = i;
	uint8_t *key = r->keys + at * FAL_KEY_BYTES;
	memcpy(key, pub->key, FAL_KEY_BYTES);
	r->expect[at] = (struct fal_expect){ .pub = *pub };
	r->expect[at].pub.key = key;
	r->newest = pub->id;
	return FAL_OK;
}

/* 1, 0 or an error, as fal_reader_next. */
static int
open_shared(struct fal_reader *r, const struct fal_record *rec, uint8_t *p)
{
	struct fal_expect *e = NULL;
	if (rec->publication == 0 || rec->publication > r->newest)
		return FAL_ESTATE;
	for (size_t i = 0; i < FAL_EXPECT_MAX; i++)
		if (r->expect[i].pub.id == rec->publication)
			e = &r->expect[i];
	if (e == NULL)
		return 0;
	if (rec->index != e->next)
		return FAL_ESTATE;
	const int err = fal_record_shared_open(&e->pub, rec, p);
	if (err < 0)
		return err;
	if (++e->next == e->pub.count)
		e->pub.id = 0;
	return 1;
}

static int
unzip(struct fal_reader *r, const uint8_t **msg, size_t *n)
{
	const uint64_t begun = uv_hrtime();
	if (r->zip == NULL && (r->zip = fal_zip_new(FAL_ZIP_LEVEL)) == NULL)
		return FAL_ENOMEM;
	fal_buf_clear(&r->plain);
	const int err = fal_zip_decompress(r->zip, *msg, *n, FAL_RECORD_MAX, &r->plain);
	if (err == FAL_ETRUNC)
		return FAL_EFORMAT; /* the frame, not the stream */
	if (err < 0)
		return err;
	r->unzipped.bytes_in += *n;
	r->unzipped.bytes_out += r->plain.n;
	r->unzipped.ns += uv_hrtime() - begun;
	*msg = r->plain.p;
	*n = r->plain.n;
	return FAL_OK;
}

int
fal_reader_next(struct fal_reader *r, uint8_t *p, size_t n, size_t *used,
		const uint8_t **msg, size_t *msg_n)
{
	struct fal_record rec;
	int err = fal_record_peek(p, n, &rec);
	if (err < 0)
		return err;
	int got = 1;
	if (rec.type == FAL_RECORD_SHARED)
		got = open_shared(r, &rec, p);
	else if ((err = fal_record_open(&r->rx, &rec, p)) < 0)
		got = err;
	if (got < 0)
		return got;
	const uint8_t *plain = p + rec.head;
	size_t plain_n = rec.body - FAL_SEAL_TAG;
	if (got == 1 && (rec.flags & FAL_RECORD_ZSTD) != 0 &&
	    (err = unzip(r, &plain, &plain_n)) < 0)
		return err;
	*used = rec.head + rec.body;
	*msg = plain;
	*msg_n = plain_n;
	return got;
}
