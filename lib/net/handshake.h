/* The handshake of two ends of a stream, by sec/noise.h.  Bytes in, bytes out.
 *
 *     client   "FALC", u16 major, u16 minor, u8 suite, u8 n, n bytes of key name,
 *              Noise message 1 with empty payload
 *     server   "FALC", u16 major, u16 minor, u8 verdict,
 *              with verdict 0: Noise message 2 with empty payload
 *
 * What the client says before message 1 is the prologue.  The first 8 bytes of either
 * side are the same in every major version.  A stranger, an unknown name and a wrong key
 * get no answer at all.  Nothing stands behind a refusal, which anyone on the path could
 * forge: it explains an end, no more.
 */
#ifndef FAL_NET_HANDSHAKE_H
#define FAL_NET_HANDSHAKE_H

#include "base/buf.h"
#include "base/err.h"
#include "sec/keyring.h"
#include "sec/seal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_HANDSHAKE_MAX 128 /* bytes from either side, at most */

/* What the ends have in common afterwards. */
struct fal_session {
	struct fal_seal tx, rx; /* the receiver's to wipe */
	char name[FAL_NAME_MAX + 1];
	enum fal_role role;
	char fingerprint[FAL_KEY_FINGERPRINT + 1]; /* of the PSK */
	size_t used;                               /* bytes of input that were read */
};

/* The client's half between its two steps. */
struct fal_handshake;

/* Appends what the client says first.  `key` is borrowed for the call.  FAL_ENOMEM. */
int fal_handshake_begin(const struct fal_client_key *key, struct fal_buf *out,
			struct fal_handshake **h);

/* Reads the server's answer at the start of the n bytes at `p`; on success sets all of
 * `s` but role.  FAL_ETRUNC: more bytes are needed, call again with all of them; else
 * `h` is of no use any more: FAL_EFORMAT (not our protocol), FAL_EVERSION (`diag` names
 * both versions), FAL_EAUTH, FAL_ENOMEM. */
int fal_handshake_finish(struct fal_handshake *h, const uint8_t *p, size_t n,
			 struct fal_session *s, struct fal_diag *diag);

/* Wipes and frees; may be NULL. */
void fal_handshake_free(struct fal_handshake *h);

/* Whether what the client says is all there: then the answer costs cryptography. */
bool fal_handshake_whole(const uint8_t *p, size_t n);

/* The server's whole part: reads what the client says at the start of the n bytes at
 * `p`, and on success sets `s` and appends the answer to `out`.  `now` in seconds since
 * 1970 judges expiry.  Both keys of a name are always tried, known or not, so that
 * neither time nor bytes tell which names exist.  FAL_ETRUNC as above; FAL_EFORMAT
 * (already for the first wrong byte), FAL_EAUTH and FAL_ENOMEM (say nothing, close);
 * FAL_EVERSION (`out` holds a refusal).  `diag` is for the log. */
int fal_handshake_answer(const struct fal_keyring *kr, int64_t now, const uint8_t *p,
			 size_t n, struct fal_session *s, struct fal_buf *out,
			 struct fal_diag *diag);

#endif
