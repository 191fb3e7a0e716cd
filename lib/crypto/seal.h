/* Sealed records: authenticated encryption of messages.
 *
 * Session records: each direction of a connection has a struct fal_seal, with a key from
 * the handshake (crypto/noise.h).  The nonce is a counter that both sides keep, so
 * changed order, loss and replay give FAL_EAUTH.  Shared records: sealed once for many
 * readers, under a key of one publication.
 *
 * The header includes digests and random bytes, too.
 */
#ifndef FAL_CRYPTO_SEAL_H
#define FAL_CRYPTO_SEAL_H

#include "crypto/aead.h"   /* IWYU pragma: export */
#include "crypto/hash.h"   /* IWYU pragma: export */
#include "crypto/secret.h" /* IWYU pragma: export */

#include <stddef.h>
#include <stdint.h>

/* A key seals so many records, at most 4 GiB.  Then the next key is derived from the key,
 * and the key is wiped.  So a stolen key does not open earlier records (Noise, revision
 * 34, section 11.3, with the REKEY of section 4.2). */
#define FAL_SEAL_REKEY 65536

/* One direction of a session.  A value type, but not to be copied: a copy would use
 * the same nonces. */
struct fal_seal {
	uint8_t *key;  /* in locked memory, owned */
	uint64_t next; /* nonce of the next record */
	uint8_t suite;
	struct fal_aead *aead; /* owned */
};

/* Sets up `s` with a copy of `key`, counter 0.  FAL_EVERSION: this build has no such
 * suite. Undo with fal_seal_wipe. */
int fal_seal_init(struct fal_seal *s, uint8_t suite,
		  const uint8_t key[static FAL_KEY_BYTES]);

/* Wipes and frees the key; `s` may be {0}, or wiped already. */
void fal_seal_wipe(struct fal_seal *s);

/* Seals the n bytes at `p` in place, to n + FAL_SEAL_TAG bytes, for which `p` has room.
 * `ad` (borrowed, ad_n bytes; NULL when 0) is authenticated, not sent.  FAL_ELIMIT: the
 * counter is used up, because 2^64 - 1 is never a nonce (Noise, revision 34, section
 * 5.1); FAL_ENOMEM: this seal can seal no further record. */
int fal_seal_seal(struct fal_seal *s, const void *ad, size_t ad_n, uint8_t *p, size_t n);

/* Opens a record of n bytes, tag included, in place: n - FAL_SEAL_TAG bytes at `p` are
 * plain.  FAL_ETRUNC: the record is shorter than a tag.  FAL_EAUTH: the record is not
 * the next one of this key with this `ad`; then the counter keeps its value, the bytes
 * at `p` are invalid, and the session should end.  FAL_ELIMIT: as above. */
int fal_seal_open(struct fal_seal *s, const void *ad, size_t ad_n, uint8_t *p, size_t n);

#endif
