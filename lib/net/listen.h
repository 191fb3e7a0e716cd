/* Listening, at one address or several: channels from clients whose keys are in a
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

/* Handshakes that may be under way of those who have proved nothing, and as many of those
 * whose first message was right.  With one more, the oldest one of the source, or of the
 * name and source, that has most of them ends: so strangers take places of strangers.
 * What else they may do is net/gate.h's.  Whoever must go for these reasons gets a reset.
 */
#define FAL_LISTEN_HALF_OPEN 128
#define FAL_LISTEN_REVIEW_MS 500 /* between looks for keys that have expired */
#define FAL_LISTEN_TURN 32 /* connections that are accepted before others have a turn */

struct fal_listen; /* opaque */

struct fal_listen_ops {
	void *arg;
	/* A client's first record has opened, its message comes next: the owner calls
	 * fal_chan_adopt or fal_chan_kill now.  `name` is borrowed from the channel. */
	void (*on_accept)(void *arg, struct fal_chan *c, const char *name,
			  enum fal_role role);
	/* Someone came no further than the handshake.  May be called often: the owner
	 * keeps its log small.  `source` is the address without its port; both are
	 * borrowed for the call. */
	void (*on_refused)(void *arg, const char *source, const char *reason);
	/* The key of an accepted channel is not good any more: its owner ends it now,
	 * and may say why, and may close the listener.  Called once for a channel.  NULL:
	 * it fails with FAL_EPERM. */
	void (*on_unwelcome)(void *arg, struct fal_chan *c, const char *reason);
};

struct fal_listen_opt {
	const struct fal_addr *addr;       /* borrowed for the call; TCP or Unix, */
	size_t addrs;                      /* so many, FAL_ADDRS_MAX at most; 0: one */
	const struct fal_keyring *keyring; /* kept until replaced, or closed */
	/* Of the channels.  Where they may go unsealed, each TCP address has a door for
	 * our own user beside it (net/near.h), if it can be had: a client of another user
	 * is closed there without a word, and counts for nothing; on_refused hears at the
	 * port alone of clients that come no further than the handshake. */
	struct fal_chan_opt chan;
	unsigned half_open; /* 0: FAL_LISTEN_HALF_OPEN */
	/* Goes on with this one, and all of these options but the addresses; NULL: a new
	 * one. */
	struct fal_listen *paused;
};

/* Listens, at all addresses or none; whatever is limited is so for all together.  A name
 * is resolved at once (it blocks); its first address is taken.  A Unix socket gets mode
 * 0600; one that nobody listens on any more is replaced.  The loop does not live for it.
 * `ops` is copied.  FAL_EINVAL (exec), FAL_EEXIST (in use), FAL_EIO;
 * `diag` (may be NULL) begins with the address. */
int fal_listen_start(uv_loop_t *loop, const struct fal_listen_opt *opt,
		     const struct fal_listen_ops *ops, struct fal_listen **out,
		     struct fal_diag *diag);

/* The addresses that were bound, as a list for fal_addrs_parse; borrowed. */
const char *fal_listen_text(const struct fal_listen *l);
/* The same; how many. */
size_t fal_listen_addrs(const struct fal_listen *l,
			struct fal_addr out[static FAL_ADDRS_MAX]);

/* Replaces the keyring.  Whoever's key is not in it, or has another role there, is
 * unwelcome; so is, within FAL_LISTEN_REVIEW_MS, whoever's key expires. */
void fal_listen_keyring(struct fal_listen *l, const struct fal_keyring *keyring);

/* Whoever comes from now on waits, until fal_listen_start goes on; the handshakes under
 * way end; no callback any more.  Accepted channels live on. */
void fal_listen_pause(struct fal_listen *l);

/* Stops listening and ends the handshakes under way; no callback any more.  Accepted
 * channels live on.  `l` is freed by the loop; may be NULL. */
void fal_listen_close(struct fal_listen *l);

#endif
