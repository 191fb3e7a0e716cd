/* Listening at one address or several, for channels from clients whose keys are in a
 * keyring.
 */
#ifndef FAL_NET_LISTEN_H
#define FAL_NET_LISTEN_H

#include "base/err.h"
#include "crypto/keyring.h"
#include "net/addr.h"
#include "net/conn.h"

#include <stdbool.h>
#include <uv.h>

/* The most handshakes under way of clients that have proved no key; and, counted apart,
 * the most of clients whose first message had a right MAC.  Beyond this number the oldest
 * handshake of the largest group ends.  A group is a source, or a name at a source; so
 * strangers take only the places of strangers.  net/gate.h has the other limits.  A
 * client whose handshake ends for such a limit gets a reset.
 */
#define FAL_LISTEN_HALF_OPEN 128
#define FAL_LISTEN_REVIEW_MS 500 /* between checks for keys that have expired */
#define FAL_LISTEN_TURN 32       /* connections accepted before other work has its turn */

struct fal_listen; /* opaque */

struct fal_listen_ops {
	void *arg;
	/* A client's first record has opened, and the record's message comes next: the
	 * owner calls fal_chan_set_ops or fal_chan_kill now.  `name` is borrowed from the
	 * channel. */
	void (*on_accept)(void *arg, struct fal_chan *c, const char *name,
			  enum fal_role role);
	/* A client's handshake failed.  The listener may call on_refused often, so the
	 * owner limits its log lines.  `source` is the address without its port; both
	 * texts are borrowed for the call. */
	void (*on_refused)(void *arg, const char *source, const char *reason);
	/* The key of an accepted channel is no longer valid: the owner ends the channel
	 * now.  The owner may send a message with the reason first, and may close the
	 * listener.  Called once for a channel.  NULL: the channel fails with
	 * FAL_EPERM. */
	void (*on_key_end)(void *arg, struct fal_chan *c, const char *reason);
};

struct fal_listen_opt {
	const struct fal_addr *addr;       /* borrowed for the call; TCP or Unix */
	size_t addrs;                      /* FAL_ADDRS_MAX at most; 0: one */
	const struct fal_keyring *keyring; /* kept until replaced, or closed */
	/* The options of the channels.  With `unseals`, each TCP address has a local door
	 * beside it (net/door.h), for our own user, if the system allows a door.  The
	 * door closes a client of another user without an answer, and counts the client
	 * towards no limit.  on_refused is called for the port alone. */
	struct fal_chan_opt chan;
	unsigned half_open; /* 0: FAL_LISTEN_HALF_OPEN */
	/* A paused listener that goes on, under all of these options except the
	 * addresses; NULL: makes a new listener. */
	struct fal_listen *paused;
};

/* Listens at all addresses or none; limits hold for all addresses together.  A name is
 * resolved at once (the call blocks), and the name's first address counts.  A Unix socket
 * gets mode 0600; a stale socket file is replaced.  The listener does not keep the loop
 * alive.  `ops` is copied.  FAL_EINVAL (exec), FAL_EEXIST (in use), FAL_EIO; `diag` (may
 * be NULL) begins with the address. */
int fal_listen_start(uv_loop_t *loop, const struct fal_listen_opt *opt,
		     const struct fal_listen_ops *ops, struct fal_listen **out,
		     struct fal_diag *diag);

/* The bound addresses as a list for fal_addrs_parse; borrowed. */
const char *fal_listen_addr_text(const struct fal_listen *l);
/* The bound addresses; returns their number. */
size_t fal_listen_addrs(const struct fal_listen *l,
			struct fal_addr out[static FAL_ADDRS_MAX]);

/* Replaces the keyring.  on_key_end follows for channels whose
 * key is not in the keyring, or has another role there, and,
 * within FAL_LISTEN_REVIEW_MS, for channels whose key expires. */
void fal_listen_keyring(struct fal_listen *l, const struct fal_keyring *keyring);

/* Lets new connections wait until fal_listen_start resumes the listener, and ends the
 * handshakes under way; no callback follows.  Accepted channels live on. */
void fal_listen_pause(struct fal_listen *l);

/* Stops listening and ends the handshakes under way; no callback
 * follows.  Accepted channels live on.  The loop frees `l`, which
 * may be NULL. */
void fal_listen_close(struct fal_listen *l);

#endif
