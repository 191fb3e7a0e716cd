/* The handshake of the two ends of a stream, by crypto/noise.h: NKpsk0 with a shared key,
 * pattern 1; IK with a static key of the client's, pattern 2.  Bytes in, bytes out.
 *
 *     client   "FALC", u16 major, u16 minor, u16 bytes that follow,
 *              u8 k, k bytes of key name, u8 b, b bytes of build,
 *              u8 pattern, u32 shard, u8 s, s suites, Noise message 1 without payload,
 *              32 bytes of MAC over all of these
 *     server   "FALC", u16 major, u16 minor, u8 verdict, u8 suite,
 *              verdict 0: Noise message 2, whose payload is all before it;
 *              others: u8 b, b bytes of build, 32 bytes of MAC over both sides' bytes
 *
 * The versions must be equal.  The client's bytes before message 1 are the prologue.
 * From major version 4 on, all fields are the same in every version, except the client's
 * third line, the Noise messages and the builds.  A client sends its build from version
 * 6 on.  A server of version 6 or later sends its build in a refusal, if the client has
 * at least version 6.  So two versions that do not understand one another can say so,
 * and each can authenticate the other's answer.  The MAC proves the key before the
 * server computes anything expensive; before a right MAC the server does not answer.
 * With a static key the MAC's key is the shared secret of client and server
 * (fal_noise_shared_secret); the server has computed the secret of each client
 * beforehand.  So public keys alone do not suffice to make a MAC.
 */
#ifndef FAL_NET_HANDSHAKE_H
#define FAL_NET_HANDSHAKE_H

#include "base/buf.h"
#include "base/build.h"
#include "base/err.h"
#include "crypto/keyring.h"
#include "crypto/seal.h"

#include <stddef.h>
#include <stdint.h>

#define FAL_HANDSHAKE_MAX 512   /* bytes from either side, at most */
#define FAL_HANDSHAKE_ANSWER 68 /* bytes of a server's answer with verdict 0 */
#define FAL_HANDSHAKE_MAC FAL_HASH_BYTES

/* The result of a handshake. */
struct fal_session {
	struct fal_seal tx, rx; /* the receiver's to wipe */
	char name[FAL_NAME_MAX + 1];
	enum fal_role role;
	char fingerprint[FAL_KEY_FINGERPRINT + 1]; /* the key's */
	size_t used;                               /* bytes of input that were read */
	char build[FAL_BUILD_MAX + 1]; /* the peer's; "" in a client: the server sends
					* none */
};

/* The client's state between its two steps. */
struct fal_handshake;

/* Appends the client's first bytes.  `key` is borrowed for the call.  FAL_EAUTH: the
 * coordinator's key is of small order. */
int fal_handshake_begin(const struct fal_client_key *key, struct fal_buf *out,
			struct fal_handshake **h);

/* Reads the server's answer at the start of the n bytes at `p`; on success sets all of
 * `s` except role.  FAL_ETRUNC: more bytes are needed; the next call gets all bytes from
 * the start.  All other errors end the use of `h`: FAL_EFORMAT (not our protocol, or a
 * version from before authenticated versions), FAL_EVERSION (an authentic refusal, which
 * `diag` names, with both versions), FAL_EAUTH. */
int fal_handshake_finish(struct fal_handshake *h, const uint8_t *p, size_t n,
			 struct fal_session *s, struct fal_diag *diag);

/* Wipes and frees; may be NULL. */
void fal_handshake_free(struct fal_handshake *h);

/* A client's first bytes, with a right MAC.  The bytes may be a replay. */
struct fal_greeting {
	char name[FAL_NAME_MAX + 1];
	const struct fal_key *key; /* borrowed from the keyring */
	const uint8_t *p;          /* borrowed from the input: all bytes, */
	size_t n;
	const uint8_t *mac; /* ... the last FAL_HANDSHAKE_MAC of them, */
	size_t body;        /* ... and the offset of the part that versions differ in */
	uint16_t major, minor;
	char build[FAL_BUILD_MAX + 1]; /* "": the version does not send it */
};

/* The server's first step: checks the MAC of the client's first bytes, at the start of
 * the n bytes at `p`, and on success sets `g`.  `now`, in seconds since 1970, decides
 * expiry. Both keys of a name are always tried, whether the name is known or not, so that
 * neither time nor bytes tell which names exist.  The check does no curve operation.
 * FAL_ETRUNC as above; FAL_EFORMAT (as early as the first wrong byte) and FAL_EAUTH: the
 * caller closes without an answer.  `diag` is for the log. */
int fal_handshake_check(const struct fal_keyring *kr, int64_t now, const uint8_t *p,
			size_t n, struct fal_greeting *g, struct fal_diag *diag);

/* The server's second step: on success sets `s` and appends the answer to `out`.
 * FAL_EFORMAT, FAL_EAUTH (the caller closes without an answer); FAL_EVERSION (`out` is a
 * refusal). */
int fal_handshake_answer(const struct fal_keyring *kr, const struct fal_greeting *g,
			 struct fal_session *s, struct fal_buf *out,
			 struct fal_diag *diag);

/* If the peer is another build than this program, writes a text to append to complaints
 * about the peer's messages: a space, and both builds in brackets; else writes "".
 * Returns out->text. */
const char *fal_session_skew(const struct fal_session *s, struct fal_diag *out);

#endif
