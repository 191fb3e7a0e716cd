/* Memory for secrets, and random bytes: the functions of libsodium that the rest of
 * Falcon needs directly.
 */
#ifndef FAL_CRYPTO_SECRET_H
#define FAL_CRYPTO_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n bytes, n > 0, between guard pages, kept out of swap and core dumps as far as the
 * system allows; contents undefined.  Never NULL: a lack of memory ends the program
 * (fal_out_of_memory).  Free with fal_secret_free. */
void *fal_secret_alloc(size_t n);

/* Are the n bytes at `p`, of fal_secret_alloc, kept out of swap?  RLIMIT_MEMLOCK may
 * forbid that. */
bool fal_secret_locked(void *p, size_t n);

/* Wipes and frees memory of fal_secret_alloc; `p` may be NULL. */
void fal_secret_free(void *p);

/* Overwrites n bytes; the compiler does not remove the writes. */
void fal_secret_wipe(void *p, size_t n);

/* Are n bytes equal?  The time that the function takes does not depend on the bytes. */
bool fal_secret_equal(const void *a, const void *b, size_t n);

/* n bytes from the kernel's generator, fit for keys. */
void fal_random_bytes(void *p, size_t n);

/* A key of FAL_KEY_BYTES in locked memory, contents undefined.  Keys share pages, because
 * each fal_secret_alloc takes mappings, and the system has some 65,000 mappings, too few
 * for the keys of sessions and publications.  For any thread. */
uint8_t *fal_secret_key(void);
/* Wipes and frees the key; may be NULL. */
void fal_secret_key_free(uint8_t *key);

#endif
