/* Memory for secrets, and random bytes, by libsodium. */
#include "sec/secret.h"

#include "base/fault.h"
#include "base/mem.h"

#include <sodium.h>

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
