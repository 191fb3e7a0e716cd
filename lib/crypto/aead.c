/* Suites of records, and the libraries behind them. */
#include "crypto/aead.h"

#include "base/err.h"
#include "base/mem.h"

#ifdef FAL_LIBCRYPTO
#include <openssl/evp.h>
#endif
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { AEAD_NONCE = 12 };

struct fal_aead {
	uint8_t suite;
	void *evp; /* NULL: libsodium */
};

/* libcrypto needs some 0.7 µs more for a record of any length: libsodium seals short
 * records faster, and makes the same bytes. */
enum { SMALL = 1024 };

/* ---- libcrypto, version 3: only these functions know it ------------------------------
 *
 * A context gets a record's key and, after the record, a key of zeros in its place:
 * libcrypto's memory is not locked.  Without libcrypto no suite has a context. */

/* A part of a record's text: n bytes from `in` to `out`, which may be the same. */
struct piece {
	const void *in;
	size_t n;
	uint8_t *out;
};

#ifdef FAL_LIBCRYPTO

/* Makes a context of the suite without a key, an EVP_CIPHER_CTX.  NULL: no such suite, or
 * no memory. */
static void *
evp_new(uint8_t suite)
{
	EVP_CIPHER *cipher =
		EVP_CIPHER_fetch(NULL,
				 suite == FAL_SUITE_AES256_GCM ? "AES-256-GCM"
							       : "ChaCha20-Poly1305",
				 NULL);
	EVP_CIPHER_CTX *ctx = cipher != NULL ? EVP_CIPHER_CTX_new() : NULL;
	if (ctx != NULL && EVP_CipherInit_ex2(ctx, cipher, NULL, NULL, 1, NULL) != 1) {
		EVP_CIPHER_CTX_free(ctx);
		ctx = NULL;
	}
	EVP_CIPHER_free(cipher); /* the context keeps it */
	return ctx;
}

static int
evp_wipe(EVP_CIPHER_CTX *ctx)
{
	static const uint8_t zeros[FAL_KEY_BYTES];
	return EVP_CipherInit_ex2(ctx, NULL, zeros, zeros, 1, NULL);
}

/* Runs the record without its tag.  False: no memory; or the tag set before is wrong. */
static bool
evp_run(EVP_CIPHER_CTX *ctx, const struct fal_aead_record *r,
	const struct piece text[static 2])
{
	uint8_t none[1];
	int len;
	bool good = r->ad_n == 0 ||
		    EVP_CipherUpdate(ctx, NULL, &len, r->ad, (int)r->ad_n) == 1;
	for (int i = 0; i < 2 && good; i++)
		good = text[i].n == 0 ||
		       EVP_CipherUpdate(ctx, text[i].out, &len, text[i].in,
					(int)text[i].n) == 1;
	return good && EVP_CipherFinal_ex(ctx, none, &len) == 1;
}

static int
evp_seal(void *ctx, const struct fal_aead_record *r,
	 const uint8_t nonce[static AEAD_NONCE], const struct piece text[static 2],
	 uint8_t *tag)
{
	const bool sealed =
		EVP_CipherInit_ex2(ctx, NULL, r->key, nonce, 1, NULL) == 1 &&
		evp_run(ctx, r, text) &&
		EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, FAL_SEAL_TAG, tag) == 1;
	return evp_wipe(ctx) == 1 && sealed ? FAL_OK : FAL_ENOMEM;
}

static int
evp_open(void *ctx, const struct fal_aead_record *r,
	 const uint8_t nonce[static AEAD_NONCE], const struct piece text[static 2],
	 const uint8_t *tag)
{
	uint8_t want[FAL_SEAL_TAG]; /* libcrypto's pointer is not const */
	memcpy(want, tag, sizeof(want));
	const bool set =
		EVP_CipherInit_ex2(ctx, NULL, r->key, nonce, 0, NULL) == 1 &&
		EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, FAL_SEAL_TAG, want) == 1;
	const bool opened = set && evp_run(ctx, r, text);
	for (int i = 0; i < 2 && !opened; i++)
		if (text[i].n != 0)
			memset(text[i].out, 0, text[i].n);
	if (evp_wipe(ctx) != 1 || !set)
		return FAL_ENOMEM;
	return opened ? FAL_OK : FAL_EAUTH;
}

#else

#define evp_new(suite) NULL
#define evp_seal(ctx, r, nonce, text, tag) ((void)(nonce), (void)(text), FAL_EVERSION)
#define evp_open(ctx, r, nonce, text, tag) ((void)(nonce), (void)(text), FAL_EVERSION)
#define EVP_CIPHER_CTX_free(ctx) ((void)(ctx))

#endif

/* The choices of this process, set once by fal_suites_measure. */
static uint8_t first_suite = FAL_SUITE_CHACHA20_POLY1305;
static bool chacha_uses_crypto;

size_t
fal_suites(uint8_t out[static FAL_SUITES])
{
	size_t n = 0;
	if (first_suite != FAL_SUITE_CHACHA20_POLY1305)
		out[n++] = first_suite;
	out[n++] = FAL_SUITE_CHACHA20_POLY1305;
	return n;
}

/* The least time to seal and open one of a few records of full length; UINT64_MAX: there
 * is no such context, or it fails. */
static uint64_t
least_ns(uint8_t suite, enum fal_library library, uint64_t (*now)(void))
{
	enum { BYTES = 65536, TIMES = 8 };
	const uint8_t key[FAL_KEY_BYTES] = { 0 };
	struct fal_aead *a = NULL;
	uint64_t least = UINT64_MAX;
	uint8_t *p = fal_xcalloc(1, BYTES + FAL_SEAL_TAG);
	if (fal_aead_new(suite, library, &a) == FAL_OK)
		for (uint64_t i = 0; i < TIMES; i++) {
			const struct fal_aead_record r = { key, i, NULL, 0 };
			const uint64_t from = now();
			int err = fal_aead_seal(a, &r, p, BYTES, p);
			if (err == FAL_OK)
				err = fal_aead_open(a, &r, p, BYTES + FAL_SEAL_TAG, p);
			const uint64_t ns = now() - from;
			if (err < 0) {
				least = UINT64_MAX;
				break;
			}
			least = ns < least ? ns : least;
		}
	fal_aead_free(a);
	free(p);
	return least;
}

void
fal_suites_measure(uint64_t (*now)(void))
{
	const uint8_t chacha = FAL_SUITE_CHACHA20_POLY1305, aes = FAL_SUITE_AES256_GCM;
	const uint64_t ours = least_ns(chacha, FAL_LIBRARY_SODIUM, now);
	const uint64_t theirs = least_ns(chacha, FAL_LIBRARY_CRYPTO, now);
	chacha_uses_crypto = theirs < ours;
	first_suite =
		least_ns(aes, FAL_LIBRARY_CRYPTO, now) < (theirs < ours ? theirs : ours)
			? aes
			: chacha;
}

/* ---- contexts --------------------------------------------------------------------- */

int
fal_aead_new(uint8_t suite, enum fal_library library, struct fal_aead **out)
{
	const bool chacha = suite == FAL_SUITE_CHACHA20_POLY1305;
	void *evp = NULL;
	if (!chacha && suite != FAL_SUITE_AES256_GCM)
		return FAL_EVERSION;
	if (sodium_init() < 0) /* idempotent; it finds the CPU's instructions */
		return FAL_EVERSION;
	if (library == FAL_LIBRARY_ANY && chacha && !chacha_uses_crypto)
		library = FAL_LIBRARY_SODIUM;
	if (library != FAL_LIBRARY_SODIUM && (evp = evp_new(suite)) == NULL)
		return FAL_EVERSION;
	if (!chacha && evp == NULL && !crypto_aead_aes256gcm_is_available())
		return FAL_EVERSION;
	*out = NULL;
	if (chacha && evp == NULL)
		return FAL_OK;
	*out = fal_xcalloc(1, sizeof(**out));
	**out = (struct fal_aead){ suite, evp };
	return FAL_OK;
}

void
fal_aead_free(struct fal_aead *a)
{
	if (a == NULL)
		return;
	EVP_CIPHER_CTX_free(a->evp);
	free(a);
}

uint8_t
fal_aead_suite(const struct fal_aead *a)
{
	return a != NULL ? a->suite : FAL_SUITE_CHACHA20_POLY1305;
}

const char *
fal_suite_name(uint8_t suite)
{
	return suite == FAL_SUITE_AES256_GCM ? "AES-256-GCM" : "ChaCha20-Poly1305";
}

/* Sets the nonce: 32 zero bits, then the number, little-endian for ChaCha, big-endian for
 * AES. */
static void
nonce_of(uint8_t suite, uint64_t number, uint8_t nonce[static AEAD_NONCE])
{
	const bool chacha = suite == FAL_SUITE_CHACHA20_POLY1305;
	memset(nonce, 0, AEAD_NONCE);
	for (unsigned i = 0; i < 8; i++)
		nonce[4 + (chacha ? i : 7 - i)] = (uint8_t)(number >> 8 * i);
}

/* The libcrypto context for a record of n bytes; NULL: libsodium does the record. */
static void *
evp_for(const struct fal_aead *a, size_t n)
{
	const bool both = fal_aead_suite(a) == FAL_SUITE_CHACHA20_POLY1305 ||
			  crypto_aead_aes256gcm_is_available();
	return a != NULL && (n >= SMALL || !both) ? a->evp : NULL;
}

int
fal_aead_seal_text(struct fal_aead *a, const struct fal_aead_record *r,
		   const struct fal_aead_text *in, uint8_t *out)
{
	uint8_t nonce[AEAD_NONCE];
	const size_t n = in->n + in->rest_n;
	void *evp = evp_for(a, n);
	const void *text = in->p;
	nonce_of(fal_aead_suite(a), r->number, nonce);
	if (evp != NULL) {
		const struct piece pieces[2] = { { in->p, in->n, out },
						 { in->rest, in->rest_n, out + in->n } };
		return evp_seal(evp, r, nonce, pieces, out + n);
	}
	if (in->rest_n != 0) { /* libsodium takes a text in one place */
		memmove(out, in->p, in->n);
		memcpy(out + in->n, in->rest, in->rest_n);
		text = out;
	}
	if (fal_aead_suite(a) == FAL_SUITE_AES256_GCM)
		(void)crypto_aead_aes256gcm_encrypt(out, NULL, text, n, r->ad, r->ad_n,
						    NULL, nonce, r->key);
	else
		(void)crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, text, n, r->ad,
								r->ad_n, NULL, nonce,
								r->key);
	return FAL_OK;
}

int
fal_aead_seal(struct fal_aead *a, const struct fal_aead_record *r, const void *in,
	      size_t n, uint8_t *out)
{
	const struct fal_aead_text text = { .p = in, .n = n };
	return fal_aead_seal_text(a, r, &text, out);
}

/* Opens by libsodium, which writes nothing before it has checked the tag. */
static int
open_sodium(const struct fal_aead *a, const struct fal_aead_record *r,
	    const uint8_t nonce[static AEAD_NONCE], const void *in, size_t n,
	    uint8_t *out)
{
	int bad;
	if (fal_aead_suite(a) == FAL_SUITE_AES256_GCM)
		bad = crypto_aead_aes256gcm_decrypt(out, NULL, NULL, in, n, r->ad,
						    r->ad_n, nonce, r->key);
	else
		bad = crypto_aead_chacha20poly1305_ietf_decrypt(out, NULL, NULL, in, n,
								r->ad, r->ad_n, nonce,
								r->key);
	return bad != 0 ? FAL_EAUTH : FAL_OK;
}

int
fal_aead_open(struct fal_aead *a, const struct fal_aead_record *r, const void *in,
	      size_t n, uint8_t *out)
{
	uint8_t nonce[AEAD_NONCE];
	void *evp = evp_for(a, n);
	if (n < FAL_SEAL_TAG)
		return FAL_ETRUNC;
	nonce_of(fal_aead_suite(a), r->number, nonce);
	if (evp == NULL)
		return open_sodium(a, r, nonce, in, n, out);
	const struct piece pieces[2] = { { in, n - FAL_SEAL_TAG, out } };
	return evp_open(evp, r, nonce, pieces, (const uint8_t *)in + pieces[0].n);
}

int
fal_aead_open_apart(struct fal_aead *a, const struct fal_aead_record *r, uint8_t *p,
		    size_t n, size_t head, uint8_t *rest)
{
	uint8_t nonce[AEAD_NONCE];
	void *evp = evp_for(a, n);
	if (n < FAL_SEAL_TAG || n - FAL_SEAL_TAG < head)
		return FAL_ETRUNC;
	const size_t rest_n = n - FAL_SEAL_TAG - head;
	nonce_of(fal_aead_suite(a), r->number, nonce);
	if (evp != NULL) {
		const struct piece pieces[2] = { { p, head, p },
						 { p + head, rest_n, rest } };
		return evp_open(evp, r, nonce, pieces, p + head + rest_n);
	}
	const int err = open_sodium(a, r, nonce, p, n, p);
	if (err == FAL_OK && rest_n != 0)
		memcpy(rest, p + head, rest_n);
	return err;
}
