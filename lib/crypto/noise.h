/* The handshake, by the Noise Protocol Framework, revision 34 (noiseprotocol.org), in one
 * of two patterns, each with 25519, ChaChaPoly and BLAKE2b:
 *
 *     NKpsk0                          IK
 *     <- s                            <- s
 *     ...                             ...
 *     -> psk, e, es                   -> e, es, s, ss       message 1
 *     <- e, ee                        <- e, ee, se          message 2
 *
 * The initiator is the client, the responder the coordinator or a shard.  The initiator
 * knows the responder's static public key; and both know a PSK, or the responder knows
 * the initiator's static public key, too.  A side that opens message 1 knows that the
 * peer holds the PSK, or one of the two static secret keys, but not that the message is
 * fresh: it may be a replay until the first record of the session opens (section 7.7 of
 * the framework).  With IK, the responder's key alone does not suffice to seal that
 * record. Bytes in, bytes out.
 */
#ifndef FAL_CRYPTO_NOISE_H
#define FAL_CRYPTO_NOISE_H

#include "crypto/seal.h"

#include <stddef.h>
#include <stdint.h>

#define FAL_NOISE_OVERHEAD 48 /* bytes of a message beyond its payload: e and a tag */
#define FAL_NOISE_STATIC 48   /* further bytes of message 1 of IK: s and a tag */
#define FAL_NOISE_MAX 65535   /* bytes of the longest message (section 3) */
#define FAL_NOISE_HASH 64     /* bytes of the handshake hash */

enum fal_noise_side { FAL_NOISE_INITIATOR = 0, FAL_NOISE_RESPONDER = 1 };
enum fal_noise_pattern { FAL_NOISE_NKPSK0 = 0, FAL_NOISE_IK };

struct fal_noise_opt {
	enum fal_noise_side side;
	enum fal_noise_pattern pattern;
	const void *prologue; /* must be equal on both sides; NULL: none */
	size_t prologue_n;
	const uint8_t *psk; /* FAL_KEY_BYTES; not for IK */
	/* FAL_KEY_BYTES: the initiator gives the responder's static public key, the
	 * responder its own static secret key. */
	const uint8_t *static_key;
	/* FAL_KEY_BYTES, for IK: the initiator gives its own static secret key, the
	 * responder the only static public key that it takes. */
	const uint8_t *client_key;
	/* NULL: a fresh ephemeral secret key.  FAL_KEY_BYTES fix it, for known-answer
	 * tests; two handshakes with one ephemeral key are not secure. */
	const uint8_t *ephemeral;
};

/* Bytes of message 1 or 2 beyond its payload. */
size_t fal_noise_overhead(enum fal_noise_pattern pattern, int message);

/* A handshake, in locked memory. */
struct fal_noise;

/* Begins a handshake; everything in `opt` is borrowed for the call. */
struct fal_noise *fal_noise_new(const struct fal_noise_opt *opt);

/* Wipes and frees; `ns` may be NULL. */
void fal_noise_free(struct fal_noise *ns);

/* Writes this side's message, n + fal_noise_overhead bytes, to `out`, with n bytes of
 * payload (borrowed, may be NULL when n is 0; must not overlap `out`).
 * FAL_ESTATE: it is not this side's turn, or the handshake has failed; FAL_ELIMIT: the
 * message would be longer than FAL_NOISE_MAX; FAL_EAUTH: the peer's key gives an all-zero
 * secret (RFC 7748, section 6.1), which ends the handshake. */
int fal_noise_write(struct fal_noise *ns, const void *payload, size_t n, uint8_t *out);

/* Reads the peer's message of n bytes; its payload, n - fal_noise_overhead bytes, goes to
 * `payload` (may be NULL when that is 0).
 * FAL_ESTATE as above; FAL_ETRUNC, FAL_ELIMIT by length; FAL_EAUTH: PSK, a static key,
 * prologue or any byte differ.  Each error but FAL_ESTATE ends the handshake. */
int fal_noise_read(struct fal_noise *ns, const uint8_t *msg, size_t n, uint8_t *payload);

/* After both messages: sets the seals of the two directions, as seen from this side (the
 * caller wipes them), and the handshake hash, which identifies the session and holds no
 * secret.  Once only.  FAL_ESTATE before and after; FAL_EVERSION as fal_seal_init. */
int fal_noise_split(struct fal_noise *ns, uint8_t suite, struct fal_seal *tx,
		    struct fal_seal *rx, uint8_t hash[static FAL_NOISE_HASH]);

/* A new static key pair; `secret` should lie in locked memory. */
void fal_noise_keypair(uint8_t secret[static FAL_KEY_BYTES],
		       uint8_t public[static FAL_KEY_BYTES]);

/* The secret that the holders of two static keys share without a message, for MACs
 * (net/handshake.h): BLAKE2b-256 of their X25519, with the label "falcon static" and the
 * keys of responder and initiator, in this order, as its key.  Each side gives its own
 * secret key and the public key of the other.  FAL_EAUTH: the peer's key is of small
 * order. */
int fal_noise_shared_secret(enum fal_noise_side side,
			    const uint8_t secret[static FAL_KEY_BYTES],
			    const uint8_t peer[static FAL_KEY_BYTES],
			    uint8_t out[static FAL_KEY_BYTES]);

/* The public key of `secret`. */
void fal_noise_derive_public(const uint8_t secret[static FAL_KEY_BYTES],
			     uint8_t public[static FAL_KEY_BYTES]);

#endif
