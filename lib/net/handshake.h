/* The handshake of two ends of a stream, by crypto/noise.h: with a shared key NKpsk0,
 * pattern 1, with a static key of the client's IK, pattern 2.  Bytes in, bytes out.
 *
 *     client   "FALC", u16 major, u16 minor, u16 bytes that follow,
 *              u8 k, k bytes of key name, u8 b, b bytes of build,
 *              u8 pattern, u32 shard, u8 s, s suites, Noise message 1 without payload,
 *              32 bytes of MAC over all of it
 *     server   "FALC", u16 major, u16 minor, u8 verdict, u8 suite,
 *              verdict 0: Noise message 2, of which all before it is the payload;
 *              others: u8 b, b bytes of build, 32 bytes of MAC over both sides' words
 *
 * The versions must be equal.  What the client says before message 1 is the prologue. All
 * but the client's third line and the Noise messages is the same in every major version
 * from 4 on (the builds from 6 on, where both ends are), so that versions that do not
 * understand one another can say so, and be believed.  The MAC proves the key before the
 * server computes anything that costs; only then it says a word.  With a static key it is
 * made with what the two have in common (fal_noise_common), which the server knows of
 * each before anybody comes: so who knows public keys alone can make none.
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
#define FAL_HANDSHAKE_ANSWER 68 /* bytes of a server's answer that welcomes */
#define FAL_HANDSHAKE_MAC FAL_HASH_BYTES

/* What the ends have in common afterwards. */
struct fal_session {
	struct fal_seal tx, rx; /* the receiver's to wipe */
	char name[FAL_NAME_MAX + 1];
	enum fal_role role;
	char fingerprint[FAL_KEY_FINGERPRINT + 1]; /* of the key */
	size_t used;                               /* bytes of input that were read */
	/* Of the peer: */
	char build[FAL_BUILD_MAX + 1]; /* "" in a client, where nobody has told it */
};

/* The client's half between its two steps. */
struct fal_handshake;

/* Appends what the client says first.  `key` is borrowed for the call.  FAL_EAUTH: the
 * coordinator's key is of small order. */
int fal_handshake_begin(const struct fal_client_key *key, struct fal_buf *out,
			struct fal_handshake **h);

/* Reads the server's answer at the start of the n bytes at `p`; on success sets all of
 * `s` but role.  FAL_ETRUNC: more bytes are needed, call again with all of them; else
 * `h` is of no use any more: FAL_EFORMAT (not our protocol, or one from before versions
 * were authenticated), FAL_EVERSION (a refusal, authenticated: `diag` says which, and
 * names both versions), FAL_EAUTH. */
int fal_handshake_finish(struct fal_handshake *h, const uint8_t *p, size_t n,
			 struct fal_session *s, struct fal_diag *diag);

/* Wipes and frees; may be NULL. */
void fal_handshake_free(struct fal_handshake *h);

/* What a client said whose MAC is right.  It may be a replay. */
struct fal_greeting {
	char name[FAL_NAME_MAX + 1];
	const struct fal_key *key; /* borrowed from the keyring */
	const uint8_t *p;          /* borrowed from the input: all that was said, ... */
	size_t n;
	const uint8_t *mac; /* ... its last FAL_HANDSHAKE_MAC bytes, ... */
	size_t body;        /* ... and where that begins which versions differ in */
	uint16_t major, minor;
	char build[FAL_BUILD_MAX + 1]; /* "": of a version that does not tell */
};

/* The server's first step: judges the MAC of what the client says at the start of the n
 * bytes at `p`, and on success sets `g`.  `now` in seconds since 1970 judges expiry.
 * Both keys of a name are always tried, known or not, so that neither time nor bytes tell
 * which names exist; nothing is computed on curves.  FAL_ETRUNC as above; FAL_EFORMAT
 * (already for the first wrong byte) and FAL_EAUTH: say nothing, close.  `diag` is for
 * the log. */
int fal_handshake_check(const struct fal_keyring *kr, int64_t now, const uint8_t *p,
			size_t n, struct fal_greeting *g, struct fal_diag *diag);

/* The second: on success sets `s` and appends the answer to `out`.  FAL_EFORMAT,
 * FAL_EAUTH (say nothing, close); FAL_EVERSION (`out` holds a refusal). */
int fal_handshake_answer(const struct fal_keyring *kr, const struct fal_greeting *g,
			 struct fal_session *s, struct fal_buf *out,
			 struct fal_diag *diag);

/* What is to be added to a complaint about what the peer has said, where it is another
 * build than this one: both, in brackets, with a space before; else "".  Returns
 * out->text. */
const char *fal_session_skew(const struct fal_session *s, struct fal_diag *out);

#endif
