/* Channels: an authenticated, sealed, perhaps compressed stream of messages between two
 * programs, over a libuv stream.  fal_dial and fal_listen_start make them.
 *
 * A channel lives in one loop and is touched by that loop's thread alone.  The program
 * ignores SIGPIPE: libuv writes without MSG_NOSIGNAL.
 *
 * Sending, closing and killing never call back.  on_close is called once, and is the last
 * call, unless fal_chan_kill came first: then nothing is called any more.  The pointer is
 * good until on_close returns or fal_chan_kill is called.
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

/* Milliseconds for connecting and the handshake, up to the first record of a client, and
 * again for closing. */
#define FAL_CHAN_DEADLINE_MS 10000
/* Signs of life, over whatever stream: who has sent nothing for FAL_CHAN_LIFE_MS sends an
 * empty message, of which its peer's owner hears nothing.  After FAL_CHAN_LIVES times as
 * long without a byte the channel ends with FAL_EIO.  Time in which this process was
 * stopped counts as one of them at most. */
#define FAL_CHAN_LIFE_MS 10000
#define FAL_CHAN_LIVES 6
/* TCP, both sides: when the peer has been silent for FAL_CHAN_IDLE_S it is asked, and
 * again every FAL_CHAN_PROBE_S; after FAL_CHAN_PROBES without an answer, and when what
 * was sent is not acknowledged, or not taken, for FAL_CHAN_UNHEARD_MS, the channel ends
 * with FAL_EIO.  So a peer that lost its power is missed after a minute, whoever waits.
 */
#define FAL_CHAN_IDLE_S 30
#define FAL_CHAN_PROBE_S 10
#define FAL_CHAN_PROBES 3
#define FAL_CHAN_UNHEARD_MS 60000
#define FAL_CHAN_SEND_CAP ((size_t)64 << 20) /* bytes that may wait in a send queue */
#define FAL_CHAN_TURN_NS 2000000u            /* of reading before others have a turn */

struct fal_chan; /* opaque */

struct fal_chan_ops {
	void *arg;
	/* Dialled channels: the handshake is through.  May be NULL. */
	void (*on_open)(void *arg, struct fal_chan *c);
	/* A message, borrowed for the call; the receiver may overwrite nothing. */
	void (*on_msg)(void *arg, struct fal_chan *c, const uint8_t *p, size_t n);
	/* on_place returns the owner's place for the bytes behind the head of a
	 * publication's message, as fal_place_fn.  on_placed says that the bytes are
	 * there: `p` and `n`, as of on_msg, are that head.  A compressed message comes by
	 * on_msg all the same.  Both may be NULL. */
	fal_place_fn *on_place;
	void (*on_placed)(void *arg, struct fal_chan *c, const uint8_t *p, size_t n);
	/* There is room again, after fal_chan_room said no.  May be NULL. */
	void (*on_room)(void *arg, struct fal_chan *c);
	/* All that was sent has been taken by the socket.  May be NULL. */
	void (*on_drain)(void *arg, struct fal_chan *c);
	/* The end.  `err` is 0 when either side closed in order, else enum fal_err;
	 * `reason` is one line for a person, borrowed for the call. */
	void (*on_close)(void *arg, struct fal_chan *c, int err, const char *reason);
};

struct fal_chan_opt {
	size_t send_cap;             /* bytes; 0: FAL_CHAN_SEND_CAP */
	unsigned deadline_ms;        /* 0: FAL_CHAN_DEADLINE_MS */
	unsigned life_ms;            /* 0: FAL_CHAN_LIFE_MS */
	const struct fal_link *link; /* to be emulated; NULL: none */
	/* Records go unsealed where both ends say so, and each is the process that the
	 * other one's kernel has at the end of a unix socket: nobody is in between. */
	bool unseals;
};

/* Bytes that an open channel reads ahead, but where a line is emulated. */
#define FAL_CHAN_AHEAD ((size_t)256 << 10)

/* ---- dialling ------------------------------------------------------------------------
 */

#define FAL_LOOKUPS_MAX 8 /* of names, of a process at once, those that hang included */

/* Begins to connect; on_open follows, or on_close with a reason that begins with the
 * address.  All arguments are borrowed for the call.  FAL_EINVAL (port 0),
 * FAL_EIO (of opt->link), FAL_EAUTH (as fal_handshake_begin).
 *
 * Every address that a name has is tried in turn.  An exec command gets one socket as its
 * stdin and stdout, and SIGKILL when the channel ends before it; the loop lives until it
 * has exited.
 *
 * Before on_open, `err` is
 *     FAL_EAUTH     surely not permitted: the answer does not authenticate
 *     FAL_EPERM     perhaps not: the server, or who was to lead there, took what we said
 *                   and left in order, without a word
 *     FAL_EVERSION  a refusal, which is authentic
 *     FAL_EFORMAT   the answer is not of our protocol, or says that it is of an older one
 *     FAL_ETRUNC    the stream ended within the answer
 *     FAL_ENOENT    the name of its host is not known
 *     FAL_EIO       no connection, a reset (a server that is full), an end before we had
 *                   said a word, a deadline; a command that failed, with its status (128
 *                   and the signal), or that ended without reading what we said
 *     FAL_ENOMEM    no room for the peer's records */
int fal_dial(uv_loop_t *loop, const struct fal_addr *addr,
	     const struct fal_client_key *key, const struct fal_chan_opt *opt,
	     const struct fal_chan_ops *ops, struct fal_chan **out);

/* The same by the door beside a TCP address of this machine (net/near.h).  FAL_ENOENT:
 * there is no door.  The door has FAL_NEAR_MS for its answer, and opt->link is NULL.  An
 * end before on_open says nothing of the key: whoever was behind that door, the server is
 * at the port. */
int fal_dial_near(uv_loop_t *loop, const struct fal_addr *addr,
		  const struct fal_client_key *key, const struct fal_chan_opt *opt,
		  const struct fal_chan_ops *ops, struct fal_chan **out);
/* Was it dialled so? */
bool fal_chan_is_near(const struct fal_chan *c);

/* ---- a channel -----------------------------------------------------------------------
 */

/* Queues a copy of one message (`msg` is borrowed).  Control goes before bulk, each in
 * its own order.  A message that is queued before the handshake is through waits for it;
 * else bulk is on its way while more of it is made (fal_chan_offer).
 * FAL_ELIMIT when it is longer than FAL_RECORD_MAX or the queue's cap is reached (the
 * owner then closes), FAL_ESTATE when the channel is closing, FAL_ENOMEM. */
int fal_chan_send(struct fal_chan *c, const struct fal_buf *msg, enum fal_send how);

/* Whether less waits than is handed to the socket at once, and not that much bulk was
 * sent in this turn.  Whoever has much to send asks before each message of it, and
 * after a no waits for on_room: so the queue stays small, whatever the link, the socket
 * is kept busy, and others have their turn. */
bool fal_chan_room(struct fal_chan *c);

/* Queues a publication, by reference, behind the bulk.  Its id and key go to the peer in
 * a message before it.  A message that is not in yet goes when it is, by fal_chan_offer
 * or with the next send.  Errors as above; the cap is FAL_VERSIONS_MAX versions. */
int fal_chan_send_shared(struct fal_chan *c, struct fal_shared *s);

/* Offers the socket, or the line, the rest of the last batch, and then the next one of
 * what waits, at once and without calling back: for who makes a publication, so that what
 * is made of it is on its way meanwhile; and for what is to leave before all that others
 * are sent from now on, as else the loop lets who was sent something last go first. */
void fal_chan_offer(struct fal_chan *c);

/* Whether all that is sent from now on goes unsealed; then publications may, too. */
bool fal_chan_is_unsealed(const struct fal_chan *c);

/* Forgets the publications, or rest of one, that were not sent yet and are old: the peer
 * gets a newer one instead. */
void fal_chan_skip_shared(struct fal_chan *c, fal_old_fn *is_old, const void *arg);

/* The peer will send `pub`, of which it has told id and key; all is copied.  Errors as
 * fal_reader_expect. */
int fal_chan_expect_shared(struct fal_chan *c, const struct fal_publication *pub);

/* Sets whether bulk is compressed.  FAL_COMPRESS_AUTO begins a measurement: bulk is
 * compressed until FAL_WRITER_TRIAL bytes or FAL_WRITER_TRIES messages are through, then
 * as long as it has paid; call it again to measure anew.  To this very machine (a
 * loopback address, a unix socket, no emulated link between) it means never.  A new
 * channel never compresses. */
void fal_chan_compress(struct fal_chan *c, enum fal_compress mode);

/* Whether bulk is compressed just now: then also send compressed publications. */
bool fal_chan_compressing(const struct fal_chan *c);

/* Sends what waits, then ends the stream and waits for the peer's end; on_close follows
 * within the deadline.  Messages that still come are dropped. */
void fal_chan_close(struct fal_chan *c);

/* Ends the stream at once; no callback any more. */
void fal_chan_kill(struct fal_chan *c);

/* Ends the channel; on_close follows from the loop, of a dialled one with the address
 * before the reason.  The first reason stays. */
void fal_chan_fail(struct fal_chan *c, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Replaces the callbacks: the owner of an accepted channel makes it its own. */
void fal_chan_adopt(struct fal_chan *c, const struct fal_chan_ops *ops);

/* Name and role of the client's key (of a dialled channel: our own name, role none);
 * borrowed from the channel. */
const char *fal_chan_name(const struct fal_chan *c);
enum fal_role fal_chan_role(const struct fal_chan *c);

/* The suite of an open session. */
uint8_t fal_chan_suite(const struct fal_chan *c);

/* An accepted channel's key, by fingerprint (fal_key_fingerprint), and its source: the
 * peer's address without its port, or "unix"; borrowed from the channel. */
const char *fal_chan_fingerprint(const struct fal_chan *c);
const char *fal_chan_source(const struct fal_chan *c);

/* Whether the peer is on this very machine, as of fal_chan_compress. */
bool fal_chan_is_local(const struct fal_chan *c);

/* An accepted channel's round trip: the seconds from the answer to the client's handshake
 * to the client's first record. */
double fal_chan_rtt(const struct fal_chan *c);

/* Whether it is by TCP, and from an address that this machine does not have any more:
 * nothing comes by it. */
bool fal_chan_is_stranded(const struct fal_chan *c);

/* A text that the peer is another build than this one (fal_session_skew), or ""; borrowed
 * from the channel. */
const char *fal_chan_skew(const struct fal_chan *c);

struct fal_chan_stat {
	uint64_t rx, tx; /* bytes */
	uint64_t saved;  /* bytes that compression has spared both directions; what was
			  * spared in publications is in its `stat` */
	size_t queued;   /* bytes of messages that wait */
	size_t held;     /* these, and those that the socket has not taken yet */
	double rate;     /* bytes a second that the socket took when busy; 0: unknown */
};

struct fal_chan_stat fal_chan_stat(const struct fal_chan *c);

#endif
