/* Channels: an authenticated, sealed, perhaps compressed stream of messages between two
 * programs, over a libuv stream.  fal_dial and fal_listen_start make them.
 *
 * A channel lives in one loop, and only that loop's thread uses the channel.  The program
 * ignores SIGPIPE: libuv writes without MSG_NOSIGNAL.
 *
 * Sending, closing and killing never call back.  on_close is called once, as the last
 * call, unless fal_chan_kill came first: after a kill there is no call.  The pointer is
 * valid until on_close returns or fal_chan_kill is called.
 */
#ifndef FAL_NET_CONN_H
#define FAL_NET_CONN_H

#include "base/buf.h"
#include "crypto/keyring.h"
#include "net/addr.h"
#include "net/link.h"   /* IWYU pragma: export */
#include "net/record.h" /* IWYU pragma: export */
#include "net/sendq.h"  /* IWYU pragma: export */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* Milliseconds for connecting and the handshake, up to a client's first record; and as
 * many for closing. */
#define FAL_CHAN_DEADLINE_MS 10000
/* Keepalive on every kind of stream: an end that has sent nothing for
 * FAL_CHAN_KEEPALIVE_MS sends an empty message, which the peer's owner does not see.
 * After FAL_CHAN_KEEPALIVES such periods without a received byte the channel ends with
 * FAL_EIO.  A time in which this process was suspended counts as one period at most. */
#define FAL_CHAN_KEEPALIVE_MS 10000
#define FAL_CHAN_KEEPALIVES 6
/* TCP keepalive, on both sides: after FAL_CHAN_IDLE_S of silence the kernel probes the
 * peer, and again every FAL_CHAN_PROBE_S.  The channel ends with FAL_EIO after
 * FAL_CHAN_PROBES probes without an answer, and when the peer does not acknowledge, or
 * not take, sent bytes for FAL_CHAN_UNACKED_MS.  So the loss of a peer's power is noticed
 * within a minute. */
#define FAL_CHAN_IDLE_S 30
#define FAL_CHAN_PROBE_S 10
#define FAL_CHAN_PROBES 3
#define FAL_CHAN_UNACKED_MS 60000
#define FAL_CHAN_SEND_CAP ((size_t)64 << 20) /* bytes that may wait in a send queue */
#define FAL_CHAN_TURN_NS 2000000u            /* longest reading in one turn */

struct fal_chan; /* opaque */

struct fal_chan_ops {
	void *arg;
	/* Dialled channels: the handshake has succeeded.  May be NULL. */
	void (*on_open)(void *arg, struct fal_chan *c);
	/* A message has come; borrowed for the call and read-only. */
	void (*on_msg)(void *arg, struct fal_chan *c, const uint8_t *p, size_t n);
	/* on_place returns the owner's memory for the bytes after the head of a
	 * publication's message, as fal_place_fn.  on_placed reports that the bytes are
	 * in that memory: `p` and `n` are then the head alone.  Compressed messages
	 * always come by on_msg.  Both may be NULL. */
	fal_place_fn *on_place;
	void (*on_placed)(void *arg, struct fal_chan *c, const uint8_t *p, size_t n);
	/* Called when there is room again after fal_chan_has_room has returned false.
	 * May be NULL. */
	void (*on_room)(void *arg, struct fal_chan *c);
	/* The socket has taken all bytes sent.  May be NULL. */
	void (*on_drain)(void *arg, struct fal_chan *c);
	/* The channel has ended.  `err` is 0 when either side closed the channel without
	 * an error, else enum fal_err; `reason` is one line for a person, borrowed for
	 * the call. */
	void (*on_close)(void *arg, struct fal_chan *c, int err, const char *reason);
};

struct fal_chan_opt {
	size_t send_cap;             /* bytes; 0: FAL_CHAN_SEND_CAP */
	unsigned deadline_ms;        /* 0: FAL_CHAN_DEADLINE_MS */
	unsigned life_ms;            /* 0: FAL_CHAN_KEEPALIVE_MS */
	const struct fal_link *link; /* a link to emulate; NULL: none */
	/* Records go unsealed if both ends set `unseals`, and if the kernel names each
	 * end's process to the other end as the peer of a Unix socket: so there is no
	 * relay between the two. */
	bool unseals;
};

/* Bytes that an open channel reads ahead without an emulated link. */
#define FAL_CHAN_READ_AHEAD ((size_t)256 << 10)

/* ---- dialling --------------------------------------------------------------------- */

#define FAL_LOOKUPS_MAX 8 /* lookups at once in a process, hung ones too */

/* Begins to connect; on_open follows, or on_close with a reason that begins with the
 * address.  All arguments are borrowed for the call.  FAL_EINVAL (port 0),
 * FAL_EIO (of opt->link), FAL_EAUTH (as fal_handshake_begin).
 *
 * Every address of a name is tried in turn.  An exec command gets one socket as stdin and
 * stdout.  If the channel ends before the command, the command gets SIGKILL.  The loop
 * lives until the command has exited.
 *
 * Before on_open, `err` is
 *     FAL_EAUTH     surely not permitted: the answer does not authenticate
 *     FAL_EPERM     perhaps not permitted: the server, or a tunnel to the server,
 *                   took our message and ended the stream without an error and
 *                   without an answer
 *     FAL_EVERSION  an authentic refusal
 *     FAL_EFORMAT   the answer is not of our protocol, or claims an older version
 *     FAL_ETRUNC    the stream ended within the answer
 *     FAL_ENOENT    the host's name is not known
 *     FAL_EIO       no connection; a reset (the server is full); an end before we
 *                   sent a byte; a deadline; a command that failed, with the
 *                   command's status (128 plus the signal), or that ended without
 *                   reading our message
 *     FAL_ENOMEM    no memory for the peer's records */
int fal_dial(uv_loop_t *loop, const struct fal_addr *addr,
	     const struct fal_client_key *key, const struct fal_chan_opt *opt,
	     const struct fal_chan_ops *ops, struct fal_chan **out);

/* Dials the local door beside a TCP address of this machine (net/door.h).  FAL_ENOENT:
 * there is no door.  The server has FAL_DOOR_MS for the answer.  opt->link is NULL.  An
 * end before on_open proves nothing about the key, as any process may have answered at
 * the door: only at the port the server is certain. */
int fal_dial_door(uv_loop_t *loop, const struct fal_addr *addr,
		  const struct fal_client_key *key, const struct fal_chan_opt *opt,
		  const struct fal_chan_ops *ops, struct fal_chan **out);
/* Was the channel dialled by fal_dial_door? */
bool fal_chan_is_by_door(const struct fal_chan *c);

/* ---- a channel -------------------------------------------------------------------- */

/* Queues a copy of one message (`msg` is borrowed).  Control messages leave before bulk
 * messages; each kind keeps its order.  Messages queued before the end of the handshake
 * wait for that end.  Later, queued bulk leaves while the owner makes more bulk
 * (fal_chan_write_now).  FAL_ELIMIT: longer than FAL_RECORD_MAX, or beyond the queue's
 * cap (the owner then closes); FAL_ESTATE: the channel is closing; FAL_ENOMEM. */
int fal_chan_send(struct fal_chan *c, const struct fal_buf *msg, enum fal_send how);

/* Is less queued than one batch for the socket, and was less than one batch of bulk sent
 * in this turn of the loop?  An owner with much to send asks before each message, and
 * after false waits for on_room.  So the queue stays short on any link, the socket stays
 * busy, and other channels have their turn. */
bool fal_chan_has_room(struct fal_chan *c);

/* Queues a publication, by reference, after the bulk.  The peer gets its id and key in an
 * earlier message.  A record that is not made yet leaves once the record is made, by
 * fal_chan_write_now or with the next send.  Errors as above; the cap is FAL_VERSIONS_MAX
 * versions. */
int fal_chan_send_shared(struct fal_chan *c, struct fal_shared *s);

/* Offers the socket, or the emulated link, the rest of the last batch, and then the next
 * batch, at once and without calling back.  The maker of a publication calls
 * fal_chan_write_now so that finished records leave while the next records are made.  An
 * owner calls fal_chan_write_now if a message must leave before the next messages of all
 * other channels; without the call, the loop first serves the channel that got its
 * message last. */
void fal_chan_write_now(struct fal_chan *c);

/* Do all messages from now on leave unsealed?  Then publications may leave unsealed,
 * too. */
bool fal_chan_is_unsealed(const struct fal_chan *c);

/* Drops the unsent rest of outdated publications: the peer gets a newer version
 * instead. */
void fal_chan_drop_outdated(struct fal_chan *c, fal_is_outdated_fn *is_old,
			    const void *arg);

/* Prepares for `pub`, whose id and key the peer has sent; all is copied.  Errors as
 * fal_reader_expect. */
int fal_chan_expect_publication(struct fal_chan *c, const struct fal_publication *pub);

/* Sets how the channel decides whether to compress bulk.  FAL_COMPRESS_AUTO begins a
 * measurement.  During the measurement, FAL_WRITER_TRIAL bytes or FAL_WRITER_TRIES
 * messages long, bulk is compressed; afterwards bulk is compressed if the measurement
 * has shown a gain.  Another call measures again.  To a peer on this machine (a loopback
 * address or a Unix socket, without an emulated link) AUTO means NEVER.  A new channel
 * does not compress. */
void fal_chan_compress(struct fal_chan *c, enum fal_compress mode);

/* Is bulk compressed now?  Then compressed publications should be sent, too. */
bool fal_chan_compressing(const struct fal_chan *c);

/* Sends the queue, then ends the stream and waits for the peer's end; on_close follows
 * within the deadline.  Messages that still arrive are dropped. */
void fal_chan_close(struct fal_chan *c);

/* Ends the stream at once; no callback follows. */
void fal_chan_kill(struct fal_chan *c);

/* Ends the channel; on_close follows from the loop.  For a dialled channel the address
 * stands before the reason.  Of several reasons the first one counts. */
void fal_chan_fail(struct fal_chan *c, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Replaces the callbacks, when the owner of an accepted channel takes the channel over.
 */
void fal_chan_set_ops(struct fal_chan *c, const struct fal_chan_ops *ops);

/* Name and role of the client's key (for a dialled channel: our own name, role none);
 * borrowed from the channel. */
const char *fal_chan_name(const struct fal_chan *c);
enum fal_role fal_chan_role(const struct fal_chan *c);

/* The suite of an open session. */
uint8_t fal_chan_suite(const struct fal_chan *c);

/* The fingerprint of an accepted channel's key (fal_key_fingerprint), and its source: the
 * peer's address without its port, or "unix"; borrowed from the channel. */
const char *fal_chan_fingerprint(const struct fal_chan *c);
const char *fal_chan_source(const struct fal_chan *c);

/* Is the peer on this machine, in the sense of fal_chan_compress? */
bool fal_chan_is_local(const struct fal_chan *c);

/* An accepted channel's round trip: the seconds from the answer to the client's handshake
 * to the client's first record. */
double fal_chan_rtt(const struct fal_chan *c);

/* Does the channel use TCP, from an address that this machine no longer has?  Then
 * nothing arrives by the channel. */
bool fal_chan_is_stranded(const struct fal_chan *c);

/* Returns a text that names the peer's build if it differs from this program's build
 * (fal_session_skew); else "".  Borrowed from the channel. */
const char *fal_chan_skew(const struct fal_chan *c);

struct fal_chan_stat {
	uint64_t rx, tx; /* bytes */
	uint64_t saved;  /* bytes that compression has saved in both directions, without
			  * publications, which have a `stat` of their own */
	size_t queued;   /* bytes of queued messages */
	/* the bytes in `queued`, and bytes that the socket has not taken yet */
	size_t held;
	double rate; /* bytes a second that a busy socket took; 0: unknown */
};

struct fal_chan_stat fal_chan_stat(const struct fal_chan *c);

#endif
