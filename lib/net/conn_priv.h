/* The inside of a channel, for conn.c, dial.c and listen.c alone.
 *
 * conn.c owns state, deadline, handles and the stream; dial.c brings up a client's
 * stream. These parts have structs of their own: from records to messages (record.h),
 * from messages to records and batches (sendq.h), an emulated link (link_emul.h). */
#ifndef FAL_NET_CONN_PRIV_H
#define FAL_NET_CONN_PRIV_H

#include "net/acked.h"
#include "net/addr.h"
#include "net/conn.h"
#include "net/handshake.h"
#include "net/link_emul.h"

#include <uv.h>

#define FAL_CHAN_IN_GREETING 512 /* bytes of input kept before the session opens */

enum fal_chan_state {
	FAL_CHAN_CONNECTING,
	FAL_CHAN_GREETING, /* the peer's half of the handshake is awaited */
	FAL_CHAN_UNPROVEN, /* server: until the first record opens */
	FAL_CHAN_OPEN,
	FAL_CHAN_FLUSHING,  /* closing: the queue is sent */
	FAL_CHAN_LINGERING, /* closing: the peer's end is awaited */
	FAL_CHAN_DEAD       /* handles are closing */
};

/* The maker of a channel: the listener or the dial. */
struct fal_chan_host {
	void *arg;
	/* For a listener: checks and answers the client's first message, as
	 * fal_handshake_check and fal_handshake_answer do, within the limits of
	 * fal_gate. */
	int (*greet)(void *arg, const uint8_t *p, size_t n, struct fal_session *s,
		     struct fal_buf *out, struct fal_diag *diag);
	/* The channel's handles are closing.  Returns true if the host has a further
	 * handle, for which the host calls fal_chan_release.  NULL: the host has no
	 * handle. */
	bool (*shut)(void *arg);
	/* The channel has ended, killed or not; called after on_close. */
	void (*gone)(void *arg);
};

/* How a client's stream comes up: every address of a name is tried in turn. */
struct fal_dial {
	struct fal_addr addr;
	struct fal_lookup *lookup; /* runs for the name */
	uv_connect_t connect;
	struct addrinfo *all, *next;      /* results, and the next to try */
	struct fal_dial_command *command; /* runs for an exec address */
	int exit_status;                  /* the command's; 128 plus a signal */
	bool is_closing;                  /* the stream of the last attempt is closing */
};

struct fal_chan {
	uv_loop_t *loop;
	struct fal_chan_ops ops;
	enum fal_chan_state state;
	unsigned pending; /* handles and requests whose last callback is awaited */
	bool is_killed;
	bool is_server;
	bool is_local;       /* the peer is on this machine, without an emulated link */
	bool is_by_door;     /* dialled by fal_dial_door */
	bool has_stream;     /* io's handle is to be closed */
	bool reading_paused; /* until the next turn */
	bool read_ended;     /* the stream will bring no more bytes */
	bool is_writing;     /* libuv, or the emulated link, has a batch */
	bool drain_due;      /* on_drain is due once all is sent */
	bool room_due;       /* on_room is due once there is room */
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} io;
	uv_timer_t deadline; /* in an open channel: the keepalive period */
	uv_idle_t next_turn; /* reading goes on in the next turn */
	uv_idle_t flush;     /* bytes are to be written */
	uv_write_t write;
	uv_shutdown_t shutdown;
	struct fal_link_emul *link; /* the emulated link before the socket; NULL: none */
	unsigned deadline_ms;
	struct {
		unsigned ms;      /* a period */
		bool heard;       /* bytes, in this period */
		unsigned silent;  /* periods in a row without bytes */
		uint64_t sent_tx; /* bytes sent before this period */
	} keepalive;

	struct fal_chan_host host;
	/* client */
	struct fal_handshake *handshake;
	struct fal_dial *dial;
	int stream_status; /* libuv's error that ended the stream of a live command */
	/* server */
	uint64_t answered_ns; /* uv_hrtime of our answer, */
	uint64_t proved_ns;   /* and of the first record */

	char source[FAL_ADDR_MAX + 16]; /* the peer's address, as fal_chan_source */
	struct {                        /* the result of the handshake */
		char name[FAL_NAME_MAX + 1];
		enum fal_role role;
		uint8_t suite;
		char fingerprint[FAL_KEY_FINGERPRINT + 1];
		struct fal_diag skew;
	} session;

	struct {
		uint8_t *p;
		size_t cap, from, to; /* from … to: bytes read and not opened yet */
	} in;
	struct fal_reader *reader;
	struct fal_writer *writer;
	struct fal_outbox out;
	struct fal_acked acked; /* at the start of the compression measurement */
	int fill_err;           /* error when fal_chan_write_now filled a batch */
	size_t turn_bulk;       /* bytes of bulk that were queued in this turn */
	uint64_t rx;
	uint64_t turn_begun, turn_now;

	struct {
		bool allowed;       /* fal_chan_opt.unseals */
		bool sent_process;  /* we named our process to the peer */
		bool knows_process; /* the peer named its process to us */
		bool tx;            /* all that is sent from now on goes unsealed */
	} unseal;

	int err;             /* of the end, as for on_close */
	struct fal_diag why; /* its reason; "": not ended yet */
};

/* Makes a channel without a stream; its deadline runs.  `ops` may be replaced until the
 * first callback.  FAL_EIO (of opt->link). */
int fal_chan_new(uv_loop_t *loop, const struct fal_chan_opt *opt,
		 const struct fal_chan_ops *ops, struct fal_chan **out);
/* Makes the stream's handle, of TCP or a pipe.  libuv's errors: there is no handle. */
int fal_chan_make_stream(struct fal_chan *c, bool tcp);
/* The channel's descriptor; -1: none. */
int fal_chan_fd(const struct fal_chan *c);
/* Sets the deadline of the peer's answer to `ms` milliseconds from now. */
void fal_chan_set_deadline(struct fal_chan *c, unsigned ms);
/* Writes the queue at the end of this turn. */
void fal_chan_flush(struct fal_chan *c);
/* The command of a client's address has ended. */
void fal_chan_command_ended(struct fal_chan *c);
/* A handle or request that c->pending counts has ended; the last ends the channel. */
void fal_chan_release(struct fal_chan *c);

/* Accepts a connection that waits at `at`; `opt`, `ops` and `host` are copied.  After an
 * error there is no channel, and no callback.  FAL_ELIMIT: there is no memory for the
 * connection, or no timer for opt->link, so the connection waits on.  FAL_EIO: the
 * connection is gone. */
int fal_chan_accept(uv_stream_t *at, const struct fal_chan_opt *opt,
		    const struct fal_chan_ops *ops, const struct fal_chan_host *host,
		    struct fal_chan **out);

/* The channel's stream is up: starts the handshake. */
void fal_chan_connected(struct fal_chan *c);

/* The peer's address; libuv's errors, UV_ENOTSUP for a stream without
 * a network. */
int fal_chan_peer(const struct fal_chan *c, struct sockaddr_storage *out);
/* Is the peer a process of the same user, over a Unix socket? */
bool fal_chan_is_same_user(const struct fal_chan *c);

#endif
