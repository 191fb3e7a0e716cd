/* The state of a session, shared by session.c, which owns the connection, the timer and
 * the ends, and talk.c, which owns what is said on it. */
#ifndef WORK_SESSION_PRIV_H
#define WORK_SESSION_PRIV_H

#include "agent/agent.h"
#include "kit.h"
#include "links.h"
#include "net/conn.h"
#include "net/retry.h"
#include "session.h"
#include "spare.h"

struct session {
	const struct work_opt *opt;
	uv_loop_t loop;
	uv_timer_t timer; /* retry, deadline of WELCOME or of leaving, or the end */
	uv_timer_t soon;  /* `trouble` is looked at */
	uv_timer_t look;  /* whether this machine was carried elsewhere */
	uv_signal_t on_term, on_int;
	size_t at; /* of opt->addr, where the coordinator is, or is looked for: */
	char addr[FAL_ADDR_MAX + 16];
	bool far; /* a door led nowhere: all go to the ports, until one is reached */
	uint8_t instance[FAL_INSTANCE]; /* of this process */
	unsigned looks;                 /* so far */
	uint64_t addresses;             /* of this machine, as they were looked at last */
	int64_t slept;                  /* the seconds that it slept so far */

	/* of the connection */
	struct fal_chan *chan;
	struct links links; /* to shards of other processes */
	struct fal_agent *agent;
	struct fal_texts coming;
	uint32_t incarnation, map_epoch;
	uint32_t agents; /* so far */
	uint64_t clock;
	bool open, welcome, ready, admitted;
	uint64_t
		pushed; /* messages that the channel had room for, since somebody asked */
	int trouble;    /* of something in a callback of the agent */

	struct kit kit;
	struct spare spare;
	struct fal_retry retry;
	struct fal_diag later;  /* why the coordinator goes, as it said; "": it did not */
	struct fal_diag denied; /* the memory that it came to need; "": none */
	bool leaving, ending, over;
	bool renews; /* it leaves, to come back by another session at once */
	int code;
	uint64_t due_ns;                  /* of all emulated tasks */
	int64_t late_ns;                  /* of all emulated tasks, lane.h */
	uint64_t said_ns;                 /* due_ns when that was last said */
	struct fal_agent_overlap overlap; /* of the agents that are gone */
};

/* --- session.c --- */

/* Where the coordinator is, or is looked for; s->addr is its text. */
const struct fal_addr *session_at(const struct session *s);

/* Where the connection is gone: once lanes and pool are through with what they do for it,
 * the agent goes, and the next attempt or the end is due. */
void session_settle(struct session *s);

/* Ends the session at once, with this exit code and the reason on stderr; before READY
 * the coordinator is told of it, too. */
void session_fail(struct session *s, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Ends the session with this exit code when what was sent has left. */
void session_end(struct session *s, int code);

/* Dials the coordinator or a shard: by the door beside the port where there is one.  As
 * fal_dial. */
int session_dial(struct session *s, const struct fal_addr *at,
		 const struct fal_client_key *key, const struct fal_chan_ops *ops,
		 struct fal_chan **out);
/* Did it end at such a door, of which nothing is to be believed?  Then the port is to be
 * dialled: so it will be now. */
bool session_goes_far(struct session *s, const struct fal_chan *c, bool opened);

/* After each call of the agent, which returned `err`. */
void session_after(struct session *s, int err);

/* Something went wrong in a callback, which goes on: the session ends when it has
 * returned. */
void session_trouble(struct session *s, int err);

/* The agent is about to leave: with its last claims answered, and in time. */
void session_leave(struct session *s);

/* The stream to a shard has ended, so the session does; the coordinator has the first
 * word. */
void session_adrift(struct session *s);

/* --- talk.c --- */

/* Of fal_chan_ops; `arg` is the session. */
void session_on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n);
uint8_t *session_on_place(void *arg, const struct fal_publication *pub, uint32_t index,
			  size_t n, size_t *head);
void session_on_placed(void *arg, struct fal_chan *c, const uint8_t *p, size_t n);
/* Is the door beside a port looked for? */
static inline bool
session_goes_near(const struct session *s)
{
	return !s->far && fal_emul_link(s->opt->emulate) == NULL;
}
void session_on_room(void *arg, struct fal_chan *c);
void session_on_drain(void *arg, struct fal_chan *c);

/* As session_on_msg, on the stream to a shard; one more of these is open. */
void session_on_shard(struct session *s, struct fal_chan *c, const uint8_t *p, size_t n);
void session_attached(struct session *s);

/* Sends what the agent has to push, as far as there is room. */
void session_push(struct session *s);

/* Sends `m` as control; what goes wrong is s->trouble. */
void session_send(struct session *s, struct fal_msg *m);

/* Says what went on side by side. */
void session_say_overlap(struct session *s);

/* Says by how much emulation falls behind. */
void session_say_late(struct session *s);

#endif
