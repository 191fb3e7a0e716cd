/* A channel, for conn.c, dial.c and, behind the struct, listen.c alone.
 *
 * conn.c owns state, deadline, handles and the stream; dial.c begins a client's.  Parts
 * with fields of their own: messages out of records (record.h), messages into records and
 * what goes at once (sendq.h), a line that is slow on purpose (slow.h). */
#ifndef FAL_NET_CONN_PRIV_H
#define FAL_NET_CONN_PRIV_H

#include "net/acked.h"
#include "net/addr.h"
#include "net/conn.h"
#include "net/handshake.h"
#include "net/slow.h"

#include <uv.h>

#define FAL_CHAN_IN_GREETING 512 /* bytes of input kept before the session opens */

enum fal_chan_state {
	FAL_CHAN_CONNECTING,
	FAL_CHAN_GREETING, /* the peer's half of the handshake is to come */
	FAL_CHAN_UNPROVEN, /* server: until the first record opens */
	FAL_CHAN_OPEN,
	FAL_CHAN_FLUSHING,  /* closing: what waits is sent */
	FAL_CHAN_LINGERING, /* closing: until the peer's end */
	FAL_CHAN_DEAD       /* handles are closing */
};

/* Whoever accepts a channel is its host, whose guest it is until it has opened. */
struct fal_chan_host {
	void *arg;
	/* Judges and answers the client's first message, as fal_handshake_check and
	 * fal_handshake_answer do, within the limits of fal_gate. */
	int (*greet)(void *arg, const uint8_t *p, size_t n, struct fal_session *s,
		     struct fal_buf *out, struct fal_diag *diag);
	/* The channel ends, even if it was killed: called after on_close. */
	void (*gone)(void *arg);
};

/* How a client's stream comes up: every address that a name has is tried in turn. */
struct fal_dial {
	struct fal_addr addr;
	struct fal_lookup *lookup; /* of the name, while it runs */
	uv_connect_t connect;
	struct addrinfo *all, *next;      /* results, and the next one to be tried */
	struct fal_dial_command *command; /* of an exec address, while it runs */
	int exit_status;                  /* after that; 128 + a signal */
	bool busy;                        /* the last attempt's end is to come */
};

struct fal_chan {
	uv_loop_t *loop;
	struct fal_chan_ops ops;
	enum fal_chan_state state;
	unsigned pending; /* handles and requests whose last callback is to come */
	bool killed;
	bool local; /* the peer is on this machine, and nothing slow between us */
	bool near;  /* of fal_dial_near */
	bool paused, deaf, writing, undrained;
	bool crowded; /* its owner waits for room */
	bool up;      /* the stream: its handle is to be closed */
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} io;
	uv_timer_t deadline; /* of an open channel: when signs of life are looked for */
	uv_idle_t again;     /* reading goes on in the next turn */
	uv_idle_t flush;     /* something is to be written */
	uv_write_t write;
	uv_shutdown_t shutdown;
	struct fal_slow *slow; /* between us and the socket; NULL: nothing */
	unsigned deadline_ms, life_ms;
	bool heard;      /* since they were looked for */
	unsigned silent; /* how often in a row not */
	uint64_t said;   /* bytes sent by then */

	/* client */
	struct fal_handshake *handshake;
	struct fal_dial *dial;
	int ended; /* the stream did so, by libuv's error; the command is waited for */
	/* server */
	bool server;
	struct fal_chan_host host;
	uint64_t answered, proved; /* uv_hrtime of our answer, and of its first record */

	/* what the ends agreed upon */
	char name[FAL_NAME_MAX + 1];
	enum fal_role role;
	uint8_t suite;
	char fingerprint[FAL_KEY_FINGERPRINT + 1];
	char source[FAL_ADDR_MAX + 16];
	struct fal_diag skew;

	struct {
		uint8_t *p;
		size_t cap, from, to; /* from … to was read and is to be opened */
	} in;
	struct fal_reader *reader;
	struct fal_writer *writer;
	struct fal_outbox out;  /* of which libuv has the rest while `writing` */
	struct fal_acked acked; /* when compression was measured last */
	int fill_err;           /* why fal_chan_offer could not fill a batch */
	size_t bulk;            /* bytes of it that were sent in this turn */
	uint64_t rx;
	uint64_t turn_begun, turn_now;

	bool unseals;           /* as fal_chan_opt */
	bool named, knows_peer; /* processes were told: ours, the peer's */
	bool unsealed;          /* what is sent from now on */

	int err;             /* why it ends */
	struct fal_diag why; /* empty text: not decided */
};

/* A channel without a stream; its deadline runs.  `ops` may be replaced until the first
 * callback.  FAL_EIO (of opt->link). */
int fal_chan_new(uv_loop_t *loop, const struct fal_chan_opt *opt,
		 const struct fal_chan_ops *ops, struct fal_chan **out);
/* Makes the stream's handle, of TCP or a pipe.  libuv's errors: it is not up. */
int fal_chan_stream(struct fal_chan *c, bool tcp);
/* The channel's descriptor; -1: none. */
int fal_chan_fd(const struct fal_chan *c);
/* The channel's peer has so many milliseconds from now on to answer. */
void fal_chan_hurry(struct fal_chan *c, unsigned ms);
/* Writes the waiting messages at the end of this turn. */
void fal_chan_flush(struct fal_chan *c);
/* The command of a client's address has ended. */
void fal_chan_command_ended(struct fal_chan *c);
/* A handle or request of c->pending has come to its end. */
void fal_chan_ended(struct fal_chan *c);

/* Ends a lookup, and a command that runs.  True: something is still on its way, and
 * fal_chan_ended follows.  NULL: false. */
bool fal_dial_end(struct fal_dial *d);
/* After that, and when the stream is closed; may be NULL. */
void fal_dial_free(struct fal_dial *d);

/* Accepts who waits at `at`, and does not begin yet; `opt`, `ops` and `host` are copied.
 * FAL_ELIMIT: it waits on, as there is no memory for it, or nothing for a line of
 * opt->link; FAL_EIO: it is gone.  Then there is no channel, and no callback. */
int fal_chan_accept(uv_stream_t *at, const struct fal_chan_opt *opt,
		    const struct fal_chan_ops *ops, const struct fal_chan_host *host,
		    struct fal_chan **out);

/* The channel's stream is up: greet and read. */
void fal_chan_connected(struct fal_chan *c);

enum fal_chan_state fal_chan_state(const struct fal_chan *c);
/* The peer's address; libuv's errors, of what is no network. */
int fal_chan_peer(const struct fal_chan *c, struct sockaddr_storage *out);
/* Is it a process of the same user, over a unix socket? */
bool fal_chan_is_kin(const struct fal_chan *c);

#endif
