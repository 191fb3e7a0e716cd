/* Sealed records: authenticated encryption of what goes over the wire.
 *
 * Session records: one struct fal_seal per direction of a connection, with the key from
 * the handshake (crypto/noise.h) and a counter as nonce that both sides keep; order, loss
 * and replay show as FAL_EAUTH.  Shared records: sealed once for many readers, under a
 * key that was made for just this publication.
 *
 * Digests and random bytes come along by inclusion.
 */
#ifndef FAL_CRYPTO_SEAL_H
#define FAL_CRYPTO_SEAL_H

#include "crypto/aead.h"   /* IWYU pragma: export */
#include "crypto/hash.h"   /* IWYU pragma: export */
#include "crypto/secret.h" /* IWYU pragma: export */

#include <stddef.h>
#include <stdint.h>

/* Records that one key seals: at most 4 GiB.  Then comes the next key, made of it, and
 * it is wiped: who steals a key cannot read what was said before (Noise, revision 34,
 * section 11.3, with the REKEY of section 4.2). */
#define FAL_SEAL_REKEY 65536

/* One direction of a session.  A value type, but not to be copied: a copy would use
 * the same nonces. */
struct fal_seal {
	uint8_t *key;  /* in locked memory, owned */
	uint64_t next; /* nonce of the next record */
	uint8_t suite;
	struct fal_aead *aead; /* owned */
};

/* Sets up `s` with a copy of `key`, counter 0.  FAL_EVERSION when `suite` is not known
 * here.  Undo with fal_seal_wipe. */
int fal_seal_init(struct fal_seal *s, uint8_t suite,
		  const uint8_t key[static FAL_KEY_BYTES]);

/* Wipes and frees the key; `s` may be {0}, or wiped already. */
void fal_seal_wipe(struct fal_seal *s);

/* Seals the n bytes at `p` in place; `p` has room for n + FAL_SEAL_TAG and is filled
 * to there.  `ad` (borrowed, ad_n bytes; NULL when 0) is authenticated, not sent.
 * FAL_ELIMIT when the counter is used up: 2^64 - 1 is never a nonce (Noise, revision
 * 34, section 5.1); FAL_ENOMEM: no more can be sealed. */
int fal_seal_seal(struct fal_seal *s, const void *ad, size_t ad_n, uint8_t *p, size_t n);

/* Opens a record of n bytes, tag included, in place: n - FAL_SEAL_TAG bytes at `p` are
 * plain.  FAL_ETRUNC when shorter than a tag; FAL_EAUTH when it is not the next record
 * of this key with this `ad`: then the counter stands still, the bytes at `p` are
 * worthless and the session should end; FAL_ELIMIT as above. */
int fal_seal_open(struct fal_seal *s, const void *ad, size_t ad_n, uint8_t *p, size_t n);

#endif
