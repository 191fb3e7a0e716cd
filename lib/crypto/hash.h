/* Digests: BLAKE2b-256 for Falcon's own chunks and fingerprints, with a key for its MACs;
 * SHA-256 for published files that come with such a sum.
 */
#ifndef FAL_CRYPTO_HASH_H
#define FAL_CRYPTO_HASH_H

#include <stddef.h>
#include <stdint.h>

#define FAL_HASH_BYTES 32 /* either digest */

/* The state of a running digest: a value type, used only by its functions.  An unfinished
 * state needs no free. */
struct fal_hash_state {
	_Alignas(64) uint8_t opaque[384];
};

/* BLAKE2b (RFC 7693) with a 32-byte digest and no key, of the n bytes at `p` (borrowed;
 * may be NULL when n is 0); in one call, or init, update …, final. */
void fal_hash(const void *p, size_t n, uint8_t out[static FAL_HASH_BYTES]);
void fal_hash_init(struct fal_hash_state *s);
void fal_hash_update(struct fal_hash_state *s, const void *p, size_t n);
void fal_hash_final(struct fal_hash_state *s, uint8_t out[static FAL_HASH_BYTES]);

#define FAL_MAC_KEY 64   /* bytes of the key of a MAC */
#define FAL_MAC_LABEL 16 /* characters of its label at most */

/* BLAKE2b with a 32-byte digest of the n bytes at `p`, with `key` as its key and `label`,
 * padded with zero bytes, as its personalisation (RFC 7693 and section 2.8 of the BLAKE2
 * paper).  All is borrowed. */
void fal_mac(const char *label, const uint8_t key[static FAL_MAC_KEY], const void *p,
	     size_t n, uint8_t out[static FAL_HASH_BYTES]);

/* As fal_hash_init, with a label and no key.  Digests with different labels never
 * agree. */
void fal_hash_label(struct fal_hash_state *s, const char *label);

/* Writes the labelled digests of n messages to `out`, FAL_HASH_BYTES each.  The messages
 * have `bytes` bytes each and follow one another at `messages` (borrowed).  Eight
 * messages are hashed at a time, three to six times as fast as single ones on current
 * x86. */
void fal_hash_many(const char *label, const void *messages, size_t bytes, size_t n,
		   uint8_t *out);

/* SHA-256 (FIPS 180-4), in one call or of pieces. */
struct fal_sha256_state {
	_Alignas(8) uint8_t opaque[104];
};
void fal_sha256(const void *p, size_t n, uint8_t out[static FAL_HASH_BYTES]);
void fal_sha256_init(struct fal_sha256_state *s);
void fal_sha256_update(struct fal_sha256_state *s, const void *p, size_t n);
void fal_sha256_final(struct fal_sha256_state *s, uint8_t out[static FAL_HASH_BYTES]);

#endif
