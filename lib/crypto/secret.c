/* Memory for secrets, and random bytes, by libsodium. */
#include "crypto/secret.h"

#include "base/fault.h"
#include "base/mem.h"
#include "crypto/aead.h"

#include <pthread.h>
#include <sodium.h>
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
	return sodium_mlock(p, n) == 0; /* once more: sodium_malloc hides the result */
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

/* ---- the list of free keys -------------------------------------------------------- */

enum { KEYS = 128 }; /* keys of a page, 4 KiB */

/* Pages are never freed.  A free key holds the address of the next free key. */
static struct {
	pthread_mutex_t lock;
	uint8_t *first; /* NULL: no key is free */
} places = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Puts a key on the list.  The lock is held. */
static void
put_free_key(uint8_t *key)
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
			put_free_key(page + i * FAL_KEY_BYTES);
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
	put_free_key(key);
	pthread_mutex_unlock(&places.lock);
}
