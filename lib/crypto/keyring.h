/* Key files: the coordinator's keyring and a client's key.  falcon-key(1) defines both
 * texts.  Text in, keys out; the caller reads the file and the clock.  Keys lie in locked
 * memory and never appear in a diagnosis, which quotes only short fields that cannot be a
 * part of a key.
 */
#ifndef FAL_CRYPTO_KEYRING_H
#define FAL_CRYPTO_KEYRING_H

#include "base/err.h"
#include "crypto/seal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_NAME_MAX 63                   /* bytes of a name */
#define FAL_KEY_TEXT 44                   /* characters of a key in base64 */
#define FAL_KEY_SECRET "secret:"          /* before a client's own static key */
#define FAL_KEY_PUBLIC "public:"          /* before its public half, in the keyring */
#define FAL_KEY_FINGERPRINT 32            /* characters of a fingerprint */
#define FAL_KEYRING_MAX ((size_t)4 << 20) /* bytes of a key file */
#define FAL_KEYRING_LINES 10000

/* The rights of a key.  The zero value is the role of a stand-in key. */
enum fal_role {
	FAL_ROLE_NONE = 0,
	FAL_ROLE_OBSERVE, /* falcon-stat */
	FAL_ROLE_WORK,    /* falcon-work */
	FAL_ROLE_SHARD,   /* falcon-ps --join */
	FAL_ROLE_CONTROL, /* falcon-sync; may observe */
	FAL_ROLE_ALL
};

/* The word for `role`, "none" for FAL_ROLE_NONE; static. */
const char *fal_role_name(enum fal_role role);

/* FAL_EFORMAT: `s` is no role; "none" is no role. */
int fal_role_parse(const char *s, enum fal_role *out);

/* May a key of `role` do what needs the role `needed` (never FAL_ROLE_NONE)? */
bool fal_role_permits(enum fal_role role, enum fal_role needed);

/* Is `s` a name: 1 … FAL_NAME_MAX of A-Z a-z 0-9 . _ -? */
bool fal_name_valid(const char *s);

/* Parses the end of validity, in seconds since 1970: "YYYY-MM-DD" means the end of that
 * day, UTC; "YYYY-MM-DDThh:mm:ssZ" itself.  FAL_EFORMAT. */
int fal_expiry_parse(const char *s, int64_t *out);

#define FAL_EXPIRY_TEXT 24
/* Formats such an end; "-" for INT64_MAX, the last day for an end at midnight. */
const char *fal_expiry_text(int64_t end, char out[static FAL_EXPIRY_TEXT]);

/* Base64 (RFC 4648, section 4) of a key, with a NUL.  For a secret key `out` should lie
 * in locked memory. */
void fal_key_encode(const uint8_t key[static FAL_KEY_BYTES],
		    char out[static FAL_KEY_TEXT + 1]);

/* Decodes strictly: `s` has exactly FAL_KEY_TEXT characters, padding and zero spare bits
 * included, and needs no NUL.  FAL_EFORMAT. */
int fal_key_decode(const char *s, size_t n, uint8_t key[static FAL_KEY_BYTES]);

/* Writes a fingerprint, which is no secret: the first 16 bytes of the key's BLAKE2b-256,
 * in hex, with a NUL.  A shared key has the label "falcon shared" (fal_hash_label). */
void fal_key_fingerprint(const uint8_t key[static FAL_KEY_BYTES], bool shared,
			 char out[static FAL_KEY_FINGERPRINT + 1]);

/* Derives the key for the use `label` from the secret `psk`, which a client shares with
 * the coordinator, and from `server`, the coordinator's public key.  So no secret has two
 * uses. */
void fal_key_derive(const char *label, const uint8_t server[static FAL_KEY_BYTES],
		    const uint8_t psk[static FAL_KEY_BYTES],
		    uint8_t out[static FAL_KEY_BYTES]);

/* A key of a keyring. */
struct fal_key {
	char name[FAL_NAME_MAX + 1];
	enum fal_role role;
	unsigned line;   /* line of the file, from 1; 0: a stand-in */
	int64_t expires; /* first second in which it is invalid; INT64_MAX: never */
	/* FAL_KEY_BYTES each, borrowed from the keyring. */
	const uint8_t *public; /* the client's static key; NULL: a shared key */
	const uint8_t *psk; /* the shared key, or the result of fal_noise_shared_secret */
};

/* The fingerprint of a keyring's key, of its public half if it has one. */
void fal_key_print_fingerprint(const struct fal_key *key,
			       char out[static FAL_KEY_FINGERPRINT + 1]);

struct fal_keyring;

/* Reads a keyring of n bytes (borrowed, no NUL needed).  `file` is its name in
 * diagnoses: "FILE:LINE: what 'value'" in `diag` (may be NULL).
 * FAL_EFORMAT; FAL_ELIMIT beyond FAL_KEYRING_MAX or FAL_KEYRING_LINES. */
int fal_keyring_parse(const char *text, size_t n, const char *file,
		      struct fal_keyring **out, struct fal_diag *diag);

/* Wipes and frees; may be NULL. */
void fal_keyring_free(struct fal_keyring *kr);

/* The coordinator's static secret key, its public half, and the coordinator's name; keys
 * have FAL_KEY_BYTES; all is borrowed from the keyring. */
const uint8_t *fal_keyring_secret(const struct fal_keyring *kr);
const uint8_t *fal_keyring_public(const struct fal_keyring *kr);
const char *fal_keyring_own_name(const struct fal_keyring *kr);

/* The clients' keys, sorted by name, then line; borrowed.  `*n` is their number. */
const struct fal_key *fal_keyring_keys(const struct fal_keyring *kr, size_t *n);

/* Sets `out` to the two keys to try for `name`, in this order; borrowed from the keyring.
 * If fewer than two keys are valid at `now` (seconds since 1970), a stand-in of role none
 * with a random PSK, which no client has, takes the place of each missing key.  So the
 * caller takes the same path for unknown names and for known ones.  Returns 0; or, for
 * the log only, FAL_ENOENT: the name is unknown; FAL_EPERM: all its keys have expired. */
int fal_keyring_find(const struct fal_keyring *kr, const char *name, int64_t now,
		     const struct fal_key *out[static 2]);

#define FAL_EXPIRED_TEXT 80
/* Writes "has expired, DATE; it is NOW here" for the keys of `name`; returns `out`. */
const char *fal_keyring_expired(const struct fal_keyring *kr, const char *name,
				int64_t now, char out[static FAL_EXPIRED_TEXT]);

/* A client's key, in locked memory. */
struct fal_client_key {
	char name[FAL_NAME_MAX + 1];
	enum fal_role role;
	bool is_static; /* has the keys `secret` and `public` of its own */
	uint8_t secret[FAL_KEY_BYTES], public[FAL_KEY_BYTES];
	uint8_t psk[FAL_KEY_BYTES];    /* as in struct fal_key */
	uint8_t server[FAL_KEY_BYTES]; /* the coordinator's static public key */
};

/* Sets the static secret key of `key`; key->server must be set.  FAL_EAUTH: the two keys
 * have no common secret, because the coordinator's key is of small order. */
int fal_client_key_static(struct fal_client_key *key,
			  const uint8_t secret[static FAL_KEY_BYTES]);

/* The key's fingerprint, equal to that of its line in the keyring. */
void fal_client_key_print_fingerprint(const struct fal_client_key *key,
				      char out[static FAL_KEY_FINGERPRINT + 1]);

/* Parses a client's key file: one line besides comments; otherwise as fal_keyring_parse.
 * Free with fal_secret_free. */
int fal_client_key_parse(const char *text, size_t n, const char *file,
			 struct fal_client_key **out, struct fal_diag *diag);

#endif
