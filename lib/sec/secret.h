/* Memory for secrets, and random bytes: the few things of libsodium that the rest of
 * Falcon needs as they are.
 */
#ifndef FAL_SEC_SECRET_H
#define FAL_SEC_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n bytes, n > 0, between guard pages, kept out of swap and core dumps as far as the
 * system allows; contents undefined.  Never NULL: a lack of memory ends the program
 * (fal_out_of_memory).  Free with fal_secret_free. */
void *fal_secret_alloc(size_t n);

/* Whether the n bytes at `p`, of fal_secret_alloc, are kept out of swap: RLIMIT_MEMLOCK
 * may forbid that. */
bool fal_secret_locked(void *p, size_t n);

/* Wipes and frees what fal_secret_alloc gave; `p` may be NULL. */
void fal_secret_free(void *p);

/* Overwrites n bytes; the compiler does not leave it out. */
void fal_secret_wipe(void *p, size_t n);

/* Whether n bytes are the same, in a time that does not tell where they differ. */
bool fal_secret_equal(const void *a, const void *b, size_t n);

/* n bytes from the kernel's generator, fit for keys. */
void fal_random_bytes(void *p, size_t n);

/* Room for a key of FAL_KEY_BYTES in such memory, contents undefined, and its end, which
 * wipes it (may be NULL).  Each fal_secret_alloc takes mappings of its own, of which the
 * system has some 65,000; these share a page, for what peers bring about: sessions.  Any
 * thread. */
uint8_t *fal_secret_key(void);
void fal_secret_key_free(uint8_t *key);

/* A stock of fresh keys, for whoever needs one many times a second: locked memory and the
 * kernel's random bytes are had a batch at a time, as each costs system calls.  One
 * thread at a time. */
struct fal_stock; /* opaque */

/* Memory for keys is taken with the first one. */
struct fal_stock *fal_stock_new(void);
/* All keys were given back; may be NULL. */
void fal_stock_free(struct fal_stock *s);

/* A key of FAL_KEY_BYTES random bytes that nobody had before, in locked memory. */
const uint8_t *fal_stock_take(struct fal_stock *s);
/* Wipes it; may be NULL. */
void fal_stock_give(struct fal_stock *s, const uint8_t *key);

#endif
