/* Sealed records with a counter as nonce. */
#include "crypto/seal.h"

#include "base/err.h"

#include <assert.h>
#include <string.h>

int
fal_seal_init(struct fal_seal *s, uint8_t suite, const uint8_t key[static FAL_KEY_BYTES])
{
	struct fal_aead *aead;
	int err = fal_aead_new(suite, FAL_LIBRARY_ANY, &aead);
	if (err < 0)
		return err;
	uint8_t *copy = fal_secret_key();
	memcpy(copy, key, FAL_KEY_BYTES);
	*s = (struct fal_seal){ .key = copy, .suite = suite, .aead = aead };
	return FAL_OK;
}

void
fal_seal_wipe(struct fal_seal *s)
{
	fal_secret_key_free(s->key);
	fal_aead_free(s->aead);
	*s = (struct fal_seal){ 0 };
}

/* Counts a record; the key changes after each FAL_SEAL_REKEY records. */
static int
seal_count(struct fal_seal *s)
{
	const struct fal_aead_record r = { s->key, UINT64_MAX, NULL, 0 };
	uint8_t next[FAL_KEY_BYTES + FAL_SEAL_TAG] = { 0 };
	if (++s->next % FAL_SEAL_REKEY != 0)
		return FAL_OK;
	int err = fal_aead_seal(s->aead, &r, next, FAL_KEY_BYTES, next);
	if (err < 0)
		s->next = UINT64_MAX; /* no further record */
	memcpy(s->key, next, FAL_KEY_BYTES);
	fal_secret_wipe(next, sizeof(next));
	return err;
}

int
fal_seal_seal(struct fal_seal *s, const void *ad, size_t ad_n, uint8_t *p, size_t n)
{
	assert(s->key != NULL);
	if (s->next == UINT64_MAX)
		return FAL_ELIMIT;
	const struct fal_aead_record r = { s->key, s->next, ad, ad_n };
	int err = fal_aead_seal(s->aead, &r, p, n, p);
	return err == FAL_OK ? seal_count(s) : err;
}

int
fal_seal_open(struct fal_seal *s, const void *ad, size_t ad_n, uint8_t *p, size_t n)
{
	assert(s->key != NULL);
	if (s->next == UINT64_MAX)
		return FAL_ELIMIT;
	const struct fal_aead_record r = { s->key, s->next, ad, ad_n };
	int err = fal_aead_open(s->aead, &r, p, n, p);
	return err == FAL_OK ? seal_count(s) : err;
}
