/* The ciphers of records: one border, behind which are suites and libraries.  Libsodium's
 * ChaCha20-Poly1305 is the reference and always there; libcrypto, where this was built
 * with it (share/make/libcrypto), makes the same bytes faster, and has AES-256-GCM.
 * Nothing else knows which library it is.
 */
#ifndef FAL_CRYPTO_AEAD_H
#define FAL_CRYPTO_AEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_KEY_BYTES 32 /* of every key: PSK, static, session, shared */
#define FAL_SEAL_TAG 16  /* bytes that sealing adds, for every suite */

/* The cipher of the records, one byte of the preamble in falcon-protocol(7). */
enum fal_suite {
	FAL_SUITE_CHACHA20_POLY1305 = 1, /* RFC 8439 */
	FAL_SUITE_AES256_GCM = 2         /* NIST SP 800-38D */
};
enum { FAL_SUITES = 2 };

/* The suites that this process offers and takes, its first choice first: ChaCha alone,
 * and before it AES-256-GCM once fal_suites_measure has found that to be faster.  Returns
 * how many. */
size_t fal_suites(uint8_t out[static FAL_SUITES]);

/* Finds what is fastest on this machine, by a clock of ns: of each suite the library, and
 * which suites are offered.  Takes some milliseconds; before threads and sessions. */
void fal_suites_measure(uint64_t (*now)(void));

enum fal_library { FAL_LIBRARY_ANY = 0, FAL_LIBRARY_SODIUM, FAL_LIBRARY_CRYPTO };

/* What seals and opens the records of a suite, one at a time; between two it holds no
 * key. NULL is the reference. */
struct fal_aead;

/* Makes one; *out may be NULL.  FAL_EVERSION: the suite, or that library of it, is not
 * here. */
int fal_aead_new(uint8_t suite, enum fal_library library, struct fal_aead **out);
void fal_aead_free(struct fal_aead *a); /* may be NULL */

uint8_t fal_aead_suite(const struct fal_aead *a); /* of NULL, too */
const char *fal_suite_name(uint8_t suite);        /* static */

/* One record: its key of FAL_KEY_BYTES, its number, and what is authenticated with it
 * (ad_n bytes; NULL when 0); all borrowed.  The number is the nonce, as Noise has it for
 * the suite (revision 34, sections 12.3 and 12.4): no key may have one twice. */
struct fal_aead_record {
	const uint8_t *key;
	uint64_t number;
	const void *ad;
	size_t ad_n;
};

/* Seals n bytes (less than 2^30) at `in` to n + FAL_SEAL_TAG at `out`, which may be `in`,
 * but may not overlap it otherwise.  FAL_ENOMEM: then nothing of it may be sent. */
int fal_aead_seal(struct fal_aead *a, const struct fal_aead_record *r, const void *in,
		  size_t n, uint8_t *out);

/* The same of a text that lies in two places: n bytes at `p`, and behind them those at
 * `rest`. */
struct fal_aead_text {
	const void *p;
	size_t n;
	const void *rest; /* NULL where rest_n is 0 */
	size_t rest_n;
};
int fal_aead_seal_text(struct fal_aead *a, const struct fal_aead_record *r,
		       const struct fal_aead_text *in, uint8_t *out);

/* Opens n bytes at `in`, tag included, to n - FAL_SEAL_TAG at `out` (as above).
 * FAL_ETRUNC: shorter than a tag; FAL_EAUTH: `out` is worthless; FAL_ENOMEM. */
int fal_aead_open(struct fal_aead *a, const struct fal_aead_record *r, const void *in,
		  size_t n, uint8_t *out);

/* Opens n bytes at `p`, tag included, but what is behind the first `head` of them goes to
 * `rest`, elsewhere, and then its place at `p` is worthless.  Errors as above: both are
 * worthless, and something may have been written to `rest` before the tag was judged.
 * FAL_ETRUNC: shorter than head and tag, too. */
int fal_aead_open_apart(struct fal_aead *a, const struct fal_aead_record *r, uint8_t *p,
			size_t n, size_t head, uint8_t *rest);

#endif
