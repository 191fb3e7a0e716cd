/* Memory for secrets, and random bytes, by libsodium. */
#include "sec/secret.h"

#include "base/fault.h"
#include "base/mem.h"
#include "sec/aead.h"

#include <assert.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

void *
fal_secret_alloc(size_t n)
{
	/* Idempotent and thread-safe; sodium_malloc needs it. */
	void *p = sodium_init() < 0 ? NULL : FAL_TRY(MALLOC, NULL, sodium_malloc(n));
	if (p == NULL)
		fal_out_of_memory();
	return p;
}

bool
fal_secret_locked(void *p, size_t n)
{
	return sodium_mlock(p, n) == 0; /* once more: sodium_malloc does not tell */
}

void
fal_secret_free(void *p)
{
	sodium_free(p);
}

void
fal_secret_wipe(void *p, size_t n)
{
	sodium_memzero(p, n);
}

void
fal_random_bytes(void *p, size_t n)
{
	randombytes_buf(p, n);
}

bool
fal_secret_equal(const void *a, const void *b, size_t n)
{
	return sodium_memcmp(a, b, n) == 0;
}

enum { KEYS = 128 }; /* that share 4 KiB, a page */

/* ---- keys that come and go one by one: free places, each with the address of the next
 * one, which last as long as the program ---- */

static struct {
	pthread_mutex_t lock;
	uint8_t *first; /* NULL: there is none */
} places = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The lock is held. */
static void
put_place(uint8_t *key)
{
	memcpy(key, &places.first, sizeof(places.first));
	places.first = key;
}

uint8_t *
fal_secret_key(void)
{
	pthread_mutex_lock(&places.lock);
	if (places.first == NULL) {
		uint8_t *page = fal_secret_alloc((size_t)KEYS * FAL_KEY_BYTES);
		for (size_t i = 0; i < KEYS; i++)
			put_place(page + i * FAL_KEY_BYTES);
	}
	uint8_t *key = places.first;
	memcpy(&places.first, key, sizeof(places.first));
	pthread_mutex_unlock(&places.lock);
	return key;
}

void
fal_secret_key_free(uint8_t *key)
{
	if (key == NULL)
		return;
	fal_secret_wipe(key, FAL_KEY_BYTES);
	pthread_mutex_lock(&places.lock);
	put_place(key);
	pthread_mutex_unlock(&places.lock);
}

/* ---- batches of keys: one is used from its beginning to its end, and filled anew when
 * all of it came back ---- */

struct batch {
	uint8_t *keys; /* in locked memory */
	unsigned taken, given;
};

struct fal_stock {
	struct batch *v;
	size_t n, cap;
	size_t at; /* of the batch in use */
};

struct fal_stock *
fal_stock_new(void)
{
	return fal_xcalloc(1, sizeof(struct fal_stock));
}

void
fal_stock_free(struct fal_stock *s)
{
	if (s == NULL)
		return;
	for (size_t i = 0; i < s->n; i++) {
		assert(s->v[i].taken == s->v[i].given);
		fal_secret_free(s->v[i].keys);
	}
	free(s->v);
	free(s);
}

/* s->at becomes a batch of KEYS fresh keys. */
static void
refill(struct fal_stock *s)
{
	size_t i = 0;
	while (i < s->n && s->v[i].given < KEYS)
		i++;
	if (i == s->n) {
		FAL_XGROW(s->v, s->cap, s->n + 1);
		s->v[i].keys = fal_secret_alloc((size_t)KEYS * FAL_KEY_BYTES);
		s->n++;
	}
	struct batch *b = &s->v[s->at = i];
	fal_random_bytes(b->keys, (size_t)KEYS * FAL_KEY_BYTES);
	b->taken = b->given = 0;
}

const uint8_t *
fal_stock_take(struct fal_stock *s)
{
	if (s->n == 0 || s->v[s->at].taken == KEYS)
		refill(s);
	struct batch *b = &s->v[s->at];
	return b->keys + (size_t)b->taken++ * FAL_KEY_BYTES;
}

void
fal_stock_give(struct fal_stock *s, const uint8_t *key)
{
	for (size_t i = 0; key != NULL && i < s->n; i++) {
		struct batch *b = &s->v[i];
		if (key < b->keys || key >= b->keys + (size_t)KEYS * FAL_KEY_BYTES)
			continue;
		fal_secret_wipe(b->keys + (key - b->keys), FAL_KEY_BYTES);
		b->given++;
		return;
	}
	assert(key == NULL);
}
