/* Channels as whoever accepts them sees them: until one has opened it is the guest of its
 * host, who judges first messages, and it is told to the host when one is gone. */
#ifndef FAL_NET_CHAN_HOST_H
#define FAL_NET_CHAN_HOST_H

#include "net/conn.h"
#include "net/handshake.h"

#include <stdint.h>
#include <uv.h>

enum fal_chan_state {
	FAL_CHAN_CONNECTING,
	FAL_CHAN_GREETING, /* the peer's half of the handshake is to come */
	FAL_CHAN_UNPROVEN, /* server: until the first record opens */
	FAL_CHAN_OPEN,
	FAL_CHAN_FLUSHING,  /* closing: what waits is sent */
	FAL_CHAN_LINGERING, /* closing: until the peer's end */
	FAL_CHAN_DEAD       /* handles are closing */
};

struct fal_chan_host {
	void *arg;
	/* Judges and answers the client's first message, as fal_handshake_check and
	 * fal_handshake_answer do, within the limits of fal_gate. */
	int (*greet)(void *arg, const uint8_t *p, size_t n, struct fal_session *s,
		     struct fal_buf *out, struct fal_diag *diag);
	/* It ends, even if it was killed: after on_close. */
	void (*gone)(void *arg);
};

/* Accepts who waits at `at`, and does not begin yet; `opt`, `ops` and `host` are copied.
 * FAL_ELIMIT: it waits on, as there is nothing for a line of opt->link; FAL_EIO: it is
 * gone.  Then there is no channel, and no callback. */
int fal_chan_accept(uv_stream_t *at, const struct fal_chan_opt *opt,
		    const struct fal_chan_ops *ops, const struct fal_chan_host *host,
		    struct fal_chan **out);

/* Its stream is up: greet and read. */
void fal_chan_connected(struct fal_chan *c);

enum fal_chan_state fal_chan_state(const struct fal_chan *c);
/* The peer's address; libuv's errors, of what is no network. */
int fal_chan_peer(const struct fal_chan *c, struct sockaddr_storage *out);
/* Is it a process of the same user, over a unix socket? */
bool fal_chan_is_kin(const struct fal_chan *c);

#endif
