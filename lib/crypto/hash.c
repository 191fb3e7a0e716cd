/* BLAKE2b-256 and SHA-256, by libsodium.  With these lengths libsodium cannot fail, so
 * its results are ignored. */
#include "crypto/hash.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

/* libsodium's state lies inside ours, so that only lib/crypto includes sodium.h. */
_Static_assert(sizeof(struct fal_hash_state) == sizeof(crypto_generichash_state) &&
		       _Alignof(struct fal_hash_state) >=
			       _Alignof(crypto_generichash_state),
	       "fal_hash_state holds libsodium's");

/* Has libsodium choose the fastest code.  Before its init, and if init fails, libsodium
 * uses portable code. */
static void
pick_fastest(void)
{
	if (sodium_init() < 0)
		return;
}

void
fal_hash(const void *p, size_t n, uint8_t out[static FAL_HASH_BYTES])
{
	pick_fastest();
	(void)crypto_generichash(out, FAL_HASH_BYTES, p, n, NULL, 0);
}

void
fal_hash_init(struct fal_hash_state *s)
{
	pick_fastest();
	(void)crypto_generichash_init((void *)s->opaque, NULL, 0, FAL_HASH_BYTES);
}

void
fal_hash_update(struct fal_hash_state *s, const void *p, size_t n)
{
	(void)crypto_generichash_update((void *)s->opaque, p, n);
}

void
fal_hash_final(struct fal_hash_state *s, uint8_t out[static FAL_HASH_BYTES])
{
	(void)crypto_generichash_final((void *)s->opaque, out, FAL_HASH_BYTES);
}

_Static_assert(FAL_MAC_KEY == crypto_generichash_blake2b_KEYBYTES_MAX &&
		       FAL_MAC_LABEL == crypto_generichash_blake2b_PERSONALBYTES,
	       "as BLAKE2b has them");

static void
personalise(const char *label, uint8_t out[static FAL_MAC_LABEL])
{
	const size_t n = strlen(label);
	assert(n <= FAL_MAC_LABEL);
	memset(out, 0, FAL_MAC_LABEL);
	memcpy(out, label, n);
	pick_fastest();
}

void
fal_mac(const char *label, const uint8_t key[static FAL_MAC_KEY], const void *p, size_t n,
	uint8_t out[static FAL_HASH_BYTES])
{
	uint8_t person[FAL_MAC_LABEL];
	personalise(label, person);
	(void)crypto_generichash_blake2b_salt_personal(out, FAL_HASH_BYTES, p, n, key,
						       FAL_MAC_KEY, NULL, person);
}

void
fal_hash_label(struct fal_hash_state *s, const char *label)
{
	uint8_t person[FAL_MAC_LABEL];
	personalise(label, person);
	(void)crypto_generichash_blake2b_init_salt_personal((void *)s->opaque, NULL, 0,
							    FAL_HASH_BYTES, NULL, person);
}

void
fal_sha256(const void *p, size_t n, uint8_t out[static FAL_HASH_BYTES])
{
	(void)crypto_hash_sha256(out, p, n);
}

_Static_assert(sizeof(struct fal_sha256_state) == sizeof(crypto_hash_sha256_state) &&
		       _Alignof(struct fal_sha256_state) >=
			       _Alignof(crypto_hash_sha256_state),
	       "fal_sha256_state holds libsodium's");

void
fal_sha256_init(struct fal_sha256_state *s)
{
	(void)crypto_hash_sha256_init((void *)s->opaque);
}

void
fal_sha256_update(struct fal_sha256_state *s, const void *p, size_t n)
{
	(void)crypto_hash_sha256_update((void *)s->opaque, p, n);
}

void
fal_sha256_final(struct fal_sha256_state *s, uint8_t out[static FAL_HASH_BYTES])
{
	(void)crypto_hash_sha256_final((void *)s->opaque, out);
}
