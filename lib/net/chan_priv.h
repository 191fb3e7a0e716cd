/* A channel, for chan.c, chan_dial.c, chan_read.c and chan_write.c alone.
 *
 * chan.c owns state, deadline and handles, chan_dial.c begins a client's; chan_read.c and
 * chan_write.c say when parts with fields of their own have their turn: what was read
 * (inbox.h), messages out of it (reader.h), messages into records (writer.h), what goes
 * at once (outbox.h), a line that is slow on purpose (slow.h), the stream itself
 * (stream.h) and how it comes up (connect.h).  chan_unseal.c says when records need not
 * be sealed. */
#ifndef FAL_NET_CHAN_PRIV_H
#define FAL_NET_CHAN_PRIV_H

#include "net/acked.h"
#include "net/addr.h"
#include "net/chan_host.h"
#include "net/connect.h"
#include "net/handshake.h"
#include "net/inbox.h"
#include "net/outbox.h"
#include "net/reader.h"
#include "net/slow.h"
#include "net/stream.h"
#include "net/writer.h"

#include <uv.h>

#define FAL_CHAN_IN_GREETING 512 /* bytes of input kept before the session opens */

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
	struct fal_stream *io;
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
	struct fal_connect *connect;
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

	struct fal_inbox *in; /* what was read and is to be opened */
	struct fal_reader *reader;
	struct fal_writer *writer;
	struct fal_outbox *out; /* of which libuv has the rest while `writing` */
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
 * callback.  FAL_ENOMEM, FAL_EIO (of opt->link). */
int fal_chan_new(uv_loop_t *loop, const struct fal_chan_opt *opt,
		 const struct fal_chan_ops *ops, struct fal_chan **out);

/* Of chan.c: its peer has so many milliseconds from now on to answer. */
void fal_chan_hurry(struct fal_chan *c, unsigned ms);

/* The session is open: signs of life are given and looked for. */
void fal_chan_live(struct fal_chan *c);

/* Of chan.c: what waits, a refusal, is sent; then the channel ends for this reason. */
void fal_chan_turn_away(struct fal_chan *c, int err, const char *why);

/* Of chan_read.c: reads from the stream, until uv_read_stop.  libuv's errors. */
int fal_chan_read(struct fal_chan *c);

/* Of chan_write.c: what waits is written at the end of this turn. */
void fal_chan_flush(struct fal_chan *c);
/* What TCP sent and the peer acknowledged so far, and how long that took; false: nobody
 * knows. */
bool fal_chan_acked(const struct fal_chan *c, struct fal_acked *out);

/* chan_unseal.c: a client whose records may go unsealed says which process it is.
 * FAL_ENOMEM. */
int fal_chan_name_self(struct fal_chan *c);
/* An unseal record has come.  FAL_EFORMAT, FAL_ESTATE, FAL_ENOMEM: the session ends. */
int fal_chan_on_unseal(struct fal_chan *c, const uint8_t *p, size_t n);

/* The command has ended. */
void fal_chan_command_ended(struct fal_chan *c);

/* Of a slow line: bytes have arrived, or it can take more of them; it has taken the
 * batch; the socket has all; the stream has ended, by libuv's error. */
void fal_chan_arrived(struct fal_chan *c);
void fal_chan_taken(struct fal_chan *c);
void fal_chan_sent(struct fal_chan *c);
void fal_chan_stream_ended(struct fal_chan *c, int status);

/* One of c->pending has come to its end. */
void fal_chan_ended(struct fal_chan *c);

#endif
