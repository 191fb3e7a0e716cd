/* The ciphers of records: one interface to suites and libraries.  Libsodium's
 * ChaCha20-Poly1305 is the reference and always there; libcrypto, in builds with it
 * (share/make/libcrypto), makes the same bytes faster, and has AES-256-GCM.  No other
 * file knows which library works.
 */
#ifndef FAL_CRYPTO_AEAD_H
#define FAL_CRYPTO_AEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_KEY_BYTES 32 /* all keys: PSK, static, session, shared */
#define FAL_SEAL_TAG 16  /* bytes that sealing adds, for every suite */

/* The cipher of the records, one byte of the preamble in falcon-protocol(7). */
enum fal_suite {
	FAL_SUITE_CHACHA20_POLY1305 = 1, /* RFC 8439 */
	FAL_SUITE_AES256_GCM = 2         /* NIST SP 800-38D */
};
enum { FAL_SUITES = 2 };

/* Sets `out` to the suites that this process offers and takes, the first choice first:
 * AES-256-GCM, if fal_suites_measure has found it faster, then ChaCha.  Returns their
 * number.
 */
size_t fal_suites(uint8_t out[static FAL_SUITES]);

/* Finds the fastest library of each suite, and the suites to offer; `now` tells ns.
 * Takes some milliseconds; to be called before threads and sessions. */
void fal_suites_measure(uint64_t (*now)(void));

enum fal_library { FAL_LIBRARY_ANY = 0, FAL_LIBRARY_SODIUM, FAL_LIBRARY_CRYPTO };

/* A context that seals and opens the records of a suite, one at a time; it holds no key
 * between two records.  NULL is the reference. */
struct fal_aead;

/* Makes a context; sets *out to NULL for the reference.  FAL_EVERSION: this build, or
 * this library, has no such suite. */
int fal_aead_new(uint8_t suite, enum fal_library library, struct fal_aead **out);
void fal_aead_free(struct fal_aead *a); /* may be NULL */

uint8_t fal_aead_suite(const struct fal_aead *a); /* also for NULL */
const char *fal_suite_name(uint8_t suite);        /* static */

/* A record: its key of FAL_KEY_BYTES, its number, and the data authenticated with it
 * (ad_n bytes; NULL when 0); all borrowed.  The number is the nonce, as in Noise for the
 * suite (revision 34, sections 12.3 and 12.4): a key must never use a number twice. */
struct fal_aead_record {
	const uint8_t *key;
	uint64_t number;
	const void *ad;
	size_t ad_n;
};

/* Seals n bytes (less than 2^30) at `in` to n + FAL_SEAL_TAG at `out`, which may be `in`,
 * but may not overlap it otherwise.  FAL_ENOMEM: `out` must not be sent. */
int fal_aead_seal(struct fal_aead *a, const struct fal_aead_record *r, const void *in,
		  size_t n, uint8_t *out);

/* Seals a text that lies in two places: n bytes at `p`, then those at `rest`. */
struct fal_aead_text {
	const void *p;
	size_t n;
	const void *rest; /* NULL if rest_n is 0 */
	size_t rest_n;
};
int fal_aead_seal_text(struct fal_aead *a, const struct fal_aead_record *r,
		       const struct fal_aead_text *in, uint8_t *out);

/* Opens n bytes at `in`, tag included, to n - FAL_SEAL_TAG at `out` (as above).
 * FAL_ETRUNC: shorter than a tag; FAL_EAUTH: `out` is invalid; FAL_ENOMEM. */
int fal_aead_open(struct fal_aead *a, const struct fal_aead_record *r, const void *in,
		  size_t n, uint8_t *out);

/* Opens n bytes at `p`, tag included.  The first `head` bytes of the text stay at `p`;
 * the rest goes to `rest`, elsewhere, and what follows the head at `p` is invalid. Errors
 * as above: both places are invalid, and `rest` may be written before the tag is checked.
 * FAL_ETRUNC also if n is less than head and tag. */
int fal_aead_open_apart(struct fal_aead *a, const struct fal_aead_record *r, uint8_t *p,
			size_t n, size_t head, uint8_t *rest);

#endif
