/* Ed25519 by libsodium; PEM and envelopes by comparing with what would be written. */
#include "sec/sign.h"

#include "sec/keyring.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define BASE64 sodium_base64_VARIANT_ORIGINAL
enum { HEAD_MAX = 16 }; /* bytes of DER before a key */

/* RFC 8410, sections 7 and 4: what stands before the 32 bytes is always the same. */
static const struct pem {
	const char *begin, *end;
	uint8_t head[HEAD_MAX];
	size_t head_n;
	size_t text_n; /* characters in all, without the NUL */
} secret_pem = { .begin = "-----BEGIN PRIVATE KEY-----\n",
		 .end = "\n-----END PRIVATE KEY-----\n",
		 .head = { 0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b,
			   0x65, 0x70, 0x04, 0x22, 0x04, 0x20 },
		 .head_n = 16,
		 .text_n = FAL_PEM_SECRET },
  public_pem = { .begin = "-----BEGIN PUBLIC KEY-----\n",
		 .end = "\n-----END PUBLIC KEY-----\n",
		 .head = { 0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03,
			   0x21, 0x00 },
		 .head_n = 12,
		 .text_n = FAL_PEM_PUBLIC };

/* --- keys --- */

void
fal_sign_keypair(uint8_t secret[static FAL_KEY_BYTES],
		 uint8_t public[static FAL_KEY_BYTES])
{
	uint8_t both[crypto_sign_SECRETKEYBYTES];
	fal_random_bytes(secret, FAL_KEY_BYTES);
	(void)crypto_sign_seed_keypair(public, both, secret);
	sodium_memzero(both, sizeof(both));
}

/* `out` has room for is->text_n and a NUL. */
static void
put_pem(const struct pem *is, const uint8_t key[static FAL_KEY_BYTES], char *out)
{
	uint8_t der[HEAD_MAX + FAL_KEY_BYTES];
	const size_t at = strlen(is->begin), cap = is->text_n + 1;
	memcpy(der, is->head, is->head_n);
	memcpy(der + is->head_n, key, FAL_KEY_BYTES);
	memcpy(out, is->begin, at);
	sodium_bin2base64(out + at, cap - at, der, is->head_n + FAL_KEY_BYTES, BASE64);
	snprintf(out + strlen(out), cap - strlen(out), "%s", is->end);
	sodium_memzero(der, sizeof(der));
}

/* The key in what put_pem writes, and in nothing else. */
static int
get_pem(const struct pem *is, const char *text, size_t n,
	uint8_t key[static FAL_KEY_BYTES])
{
	uint8_t der[HEAD_MAX + FAL_KEY_BYTES];
	char again[(FAL_PEM_SECRET > FAL_PEM_PUBLIC ? FAL_PEM_SECRET : FAL_PEM_PUBLIC) +
		   1];
	const size_t begin_n = strlen(is->begin), ends_n = begin_n + strlen(is->end);
	size_t got = 0;
	int err = FAL_EFORMAT;
	if (n == is->text_n &&
	    sodium_base642bin(der, sizeof(der), text + begin_n, n - ends_n, NULL, &got,
			      NULL, BASE64) == 0 &&
	    got == is->head_n + FAL_KEY_BYTES) {
		memcpy(key, der + is->head_n, FAL_KEY_BYTES);
		put_pem(is, key, again);
		err = sodium_memcmp(again, text, n) == 0 ? FAL_OK : FAL_EFORMAT;
		sodium_memzero(again, sizeof(again));
	}
	sodium_memzero(der, sizeof(der));
	return err;
}

void
fal_sign_secret_text(const uint8_t secret[static FAL_KEY_BYTES],
		     char out[static FAL_PEM_SECRET + 1])
{
	put_pem(&secret_pem, secret, out);
}

void
fal_sign_public_text(const uint8_t public[static FAL_KEY_BYTES],
		     char out[static FAL_PEM_PUBLIC + 1])
{
	put_pem(&public_pem, public, out);
}

int
fal_sign_secret_parse(const char *text, size_t n, uint8_t secret[static FAL_KEY_BYTES])
{
	return get_pem(&secret_pem, text, n, secret);
}

int
fal_sign_public_parse(const char *text, size_t n, uint8_t public[static FAL_KEY_BYTES])
{
	return get_pem(&public_pem, text, n, public);
}

/* --- envelopes --- */

static const char before_payload[] = "{\"payloadType\":\"%s\",\"payload\":\"",
		  before_keyid[] = "\",\"signatures\":[{\"keyid\":\"",
		  before_sig[] = "\",\"sig\":\"", after_sig[] = "\"}]}\n";

enum {
	SIG_TEXT = 88, /* characters of a signature */
	/* what follows the payload */
	TAIL = sizeof(before_keyid) - 1 + FAL_KEY_FINGERPRINT + sizeof(before_sig) - 1 +
	       SIG_TEXT + sizeof(after_sig) - 1
};

static void
put_base64(struct fal_buf *out, const uint8_t *p, size_t n)
{
	const size_t text = sodium_base64_ENCODED_LEN(n, BASE64);
	char *to = (char *)fal_buf_room(out, text);
	if (to == NULL)
		return;
	sodium_bin2base64(to, text, p, n, BASE64);
	out->n--; /* the NUL */
}

/* What is signed: the pre-authentication encoding. */
static void
put_pae(struct fal_buf *out, const char *type, const void *payload, size_t n)
{
	fal_put_fmt(out, "DSSEv1 %zu %s %zu ", strlen(type), type, n);
	fal_put_bytes(out, payload, n);
}

static void
put_envelope(struct fal_buf *out, const char *type, const struct fal_buf *payload,
	     const uint8_t public[static FAL_KEY_BYTES],
	     const uint8_t sig[static crypto_sign_BYTES])
{
	char id[FAL_KEY_FINGERPRINT + 1];
	fal_key_fingerprint(public, id);
	fal_put_fmt(out, before_payload, type);
	put_base64(out, payload->p, payload->n);
	fal_put_fmt(out, "%s%s%s", before_keyid, id, before_sig);
	put_base64(out, sig, crypto_sign_BYTES);
	fal_put_fmt(out, "%s", after_sig);
}

int
fal_envelope_put(const uint8_t secret[static FAL_KEY_BYTES], const char *type,
		 const void *payload, size_t n, struct fal_buf *out)
{
	uint8_t public[FAL_KEY_BYTES], sig[crypto_sign_BYTES];
	struct fal_buf pae = { 0 }, body = { 0 };
	uint8_t *both = fal_secret_alloc(crypto_sign_SECRETKEYBYTES);
	fal_put_bytes(&body, payload, n);
	put_pae(&pae, type, payload, n);
	int err = both == NULL ? FAL_ENOMEM : body.err < 0 ? body.err : pae.err;
	if (err == FAL_OK) {
		(void)crypto_sign_seed_keypair(public, both, secret);
		(void)crypto_sign_detached(sig, NULL, pae.p, pae.n, both);
		put_envelope(out, type, &body, public, sig);
		err = out->err;
	}
	fal_secret_free(both);
	fal_buf_free(&pae);
	fal_buf_free(&body);
	return err;
}

/* Payload and signature, wherever they would stand. */
static int
take_apart(const char *type, const char *p, size_t n, struct fal_buf *payload,
	   uint8_t sig[static crypto_sign_BYTES])
{
	const size_t head = sizeof(before_payload) - 1 - 2 + strlen(type);
	size_t got = 0, sig_n = 0;
	if (n < head + TAIL)
		return FAL_EFORMAT;
	const size_t text = n - head - TAIL, most = text / 4 * 3;
	const char *sig_at = p + n - (sizeof(after_sig) - 1) - SIG_TEXT;
	uint8_t *to = fal_buf_room(payload, most);
	if (to == NULL)
		return FAL_ENOMEM;
	if (sodium_base642bin(to, most, p + head, text, NULL, &got, NULL, BASE64) != 0 ||
	    sodium_base642bin(sig, crypto_sign_BYTES, sig_at, SIG_TEXT, NULL, &sig_n,
			      NULL, BASE64) != 0 ||
	    sig_n != crypto_sign_BYTES)
		return FAL_EFORMAT;
	payload->n = got;
	return FAL_OK;
}

int
fal_envelope_get(const uint8_t public[static FAL_KEY_BYTES], const char *type,
		 const void *p, size_t n, struct fal_buf *out, struct fal_diag *diag)
{
	struct fal_buf payload = { 0 }, again = { 0 };
	uint8_t sig[crypto_sign_BYTES];
	char id[FAL_KEY_FINGERPRINT + 1];
	const size_t keyid = sizeof(before_sig) - 1 + SIG_TEXT + sizeof(after_sig) - 1 +
			     FAL_KEY_FINGERPRINT;
	int err = take_apart(type, p, n, &payload, sig);
	if (err < 0)
		goto over;
	fal_key_fingerprint(public, id);
	put_envelope(&again, type, &payload, public, sig);
	err = again.err;
	if (err < 0)
		goto over;
	if (memcmp((const char *)p + n - keyid, id, FAL_KEY_FINGERPRINT) != 0)
		err = fal_diag_set(diag, FAL_EAUTH, "is not signed by the key %s", id);
	else if (again.n != n || memcmp(again.p, p, n) != 0)
		err = FAL_EFORMAT;
	if (err < 0)
		goto over;
	fal_buf_clear(&again);
	put_pae(&again, type, payload.p, payload.n);
	err = again.err;
	if (err == FAL_OK &&
	    crypto_sign_verify_detached(sig, again.p, again.n, public) != 0)
		err = fal_diag_set(diag, FAL_EAUTH,
				   "is not what was signed by the key %s", id);
	if (err == FAL_OK) {
		fal_put_bytes(out, payload.p, payload.n);
		err = out->err;
	}
over:
	if (err == FAL_EFORMAT)
		fal_diag_set(diag, err, "is not a signed statement");
	fal_buf_free(&payload);
	fal_buf_free(&again);
	return err;
}
