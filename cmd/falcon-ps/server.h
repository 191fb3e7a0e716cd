/* The server's state, shared by serve.c, peers.c and watch.c. */
#ifndef FALCON_PS_SERVER_H
#define FALCON_PS_SERVER_H

#include "account.h"
#include "best_checkpoint.h"
#include "broadcast.h"
#include "cache.h"
#include "cli/progress.h"
#include "control.h"
#include "net/refusals.h"
#include "serve.h"
#include "session.h"
#include "shard_pool.h"
#include "snapshots.h"
#include "upstream.h"

#include <uv.h>

enum {
	PS_PIECE = 60 << 10, /* bytes of a text, chunk or trace in one message */
	PS_OFFENDERS = 64    /* keys that are told apart in what is said of them */
};

/* What sessions of one key were ended for, and when that was told. */
struct ps_offender {
	char key[FAL_NAME_MAX + 1];
	char why[256];
	uint64_t n; /* since it was told last */
	double told;
};

struct ps_server {
	const struct ps_serve_opt *opt;
	struct ps_outcome *out;
	struct fal_diag *diag;
	uv_loop_t *loop;
	uv_timer_t wake, flush, leave, end;
	struct fal_listen *listen; /* the host's; NULL: it takes nobody any more */
	struct fal_link link;      /* of all that it sends, with --rate-limit */
	uint64_t busy;             /* of that */
	struct ps_sessions sessions;
	uint32_t work_keys; /* that there are for all who work */
	uint32_t room; /* sessions that there are descriptors for; half for lookers-on */
	struct fal_coord *coord;
	struct fal_rack *rack; /* its shards */
	struct above *above;   /* the coordinator whose job it is; NULL: it is its own */
	struct ps_wants wants;
	struct ps_fleet fleet;
	struct fal_ticket_in tickets;
	struct ps_cache cache;
	struct ps_account accounts[PS_ACCOUNTS];
	bool crowded; /* somebody waits as much is queued for others of its key */
	const struct fal_policy *policy; /* that the job begins, or goes on with */
	const char *policy_by;
	struct ps_control control;
	struct ps_keep keep;
	struct ps_best best;
	struct fal_progress progress;
	struct ps_show { /* show.c */
		char loss[32], accuracy[32];
		uint64_t epoch; /* the last one that was told */
		double next;    /* when another one may be */
	} show;
	struct fal_refusals strangers;
	struct ps_offender offender[PS_OFFENDERS];
	struct ps_who {              /* who.c */
		double lines, at;    /* lines that may be said; since when */
		uint64_t came, went; /* not said */
		double worked;       /* when work came last, or the server began */
		double moved;        /* the same, or when somebody came */
		double longest;      /* between two pieces of it */
		double looked;       /* when it was looked whether there is any */
		double said, pause;  /* that it waits: when; how long till again */
		struct ps_seen {     /* those who were ready, the last of them */
			char name[64], key[64]; /* the worker's, that of its key */
		} *seen;
		size_t n_seen, cap_seen;
		struct fal_seldom unlike;    /* results of two keys */
		struct fal_seldom unstepped; /* blocks */
	} who;
	uint64_t measured; /* clock of the last measurement of compression */
	double began;      /* the first clock; 0: not yet */
	uint32_t sized;    /* workers, when the cost of sizes was said last */
	bool refused;      /* the coordinator did so: some session's `refused` is set */
	bool saved;        /* the job is over and its model saved */
	bool leaving;      /* by a signal, when the last snapshot is taken, */
	uint64_t reached;  /* of so many clocks at least */
	bool near;         /* all workers so far were on this machine */
	bool stopping;
	int broken; /* what out->why is about: the coordinator is not asked any more */
	int err;    /* first error that ends the server */
};

/* Seconds of the monotonic clock. */
static inline double
ps_now(void)
{
	return (double)uv_hrtime() * 1e-9;
}

/* An error of our own: the job has failed, and its newest version is the result; once it
 * was over, the server ends. */
void ps_fail(struct ps_server *s, int err, const char *what);
/* It cannot begin, as s->diag says. */
void ps_abandon(struct ps_server *s, int err);
/* Shards are lost, of so many processes that had some: the job goes on in a new
 * incarnation. */
void ps_again(struct ps_server *s, uint32_t had);
/* The coordinator above has ended it, or cannot be reached: the server ends with this
 * exit code.  Its connection is lost: it goes on in a new incarnation. */
void ps_above_end(struct ps_server *s, int code, const char *why);
void ps_above_lost(struct ps_server *s);
/* It was drained there, and has left: the server ends, and whoever is here looks for
 * another one. */
void ps_above_left(struct ps_server *s);
/* After whatever happened: is it over, and when must the scheduler be woken? */
void ps_after_event(struct ps_server *s);

/* Is there memory for this rule with so many workers, and `more` bytes?  Or what is too
 * much.  What nobody has come to share makes room, and is shared with nobody then. */
int ps_affords(struct ps_server *s, const struct fal_rule *rule, uint64_t workers,
	       uint64_t more, struct fal_diag *why);

/* begin.c; 0, or an error with its diagnosis. */

/* The policy that the job begins with: the journal's last one, or the job's own; or that
 * goes on. */
int ps_begin_policy(struct ps_server *s);
/* All blocks have their shards: the job begins, or goes on. */
int ps_begin(struct ps_server *s);

/* peers.c: sessions and messages. */

/* Of fal_coord_ops; `arg` is the server. */
void ps_send(void *arg, uint32_t peer, const struct fal_buf *msg);
void ps_send_model(void *arg, uint32_t peer, const struct fal_coord_model *model);
/* What was wanted and has been made since leaves. */
void ps_publish_wanted(struct ps_server *s);
void ps_close_peer(void *arg, uint32_t peer, const char *why);
/* Says of whom the coordinator ended the sessions: not before it is through. */
void ps_tell_refused(struct ps_server *s);
/* Sends the workers a message of this type, DONE, LATER or REFUSE, with the reason. */
void ps_tell_all(struct ps_server *s, enum fal_msg_type type, const char *why);
/* Of fal_listen_ops; `arg` is the server. */
void ps_accept(void *arg, struct fal_chan *c, const char *name, enum fal_role role);
void ps_unwelcome(void *arg, struct fal_chan *c, const char *why);
/* The session is over at once, for this reason: whoever it is does not hear of it. */
void ps_lose(struct ps_session *session, const char *why);
/* Who has waited for shards as long as a HELLO may wait is to come back later. */
void ps_put_off_held(struct ps_server *s);
/* The coordinator is there: it hears of the sessions that are, and what they said. */
void ps_accept_again(struct ps_server *s);

/* show.c: says how far the job is. */

/* The epochs before that are told already. */
void ps_show_from(struct ps_server *s, const struct fal_coord_past *past);
/* Seconds that it was worked on, in all its starts. */
double ps_worked(const struct ps_server *s, double now);
void ps_show(struct ps_server *s, const struct fal_coord_status *now);

/* who.c: who is here, and whom the job waits for; all of it on stderr. */

/* Of fal_coord_ops; `arg` is the server. */
void ps_came(void *arg, uint32_t peer, const char *name, const char *key);
void ps_went(void *arg, uint32_t peer, const char *name, const char *why);
void ps_odd(void *arg, const char *const name[2], const char *const kernels[2]);
void ps_unlike(void *arg, const struct fal_coord_unlike *is);
void ps_unstepped(void *arg, const struct fal_coord_unstepped *is);
void ps_late(void *arg, uint32_t peer, const char *name,
	     const struct fal_coord_late *late);
/* Whether a worker of this name was here, or may come: it is the name of a key to work
 * with, under which nobody of another name came.  If somebody did, false, and *instead is
 * his name; else that is NULL. */
bool ps_knows(const struct ps_server *s, const char *name, const char **instead);
/* The session brought work: the job moves. */
void ps_moved(struct ps_server *s, struct ps_session *session);
/* Says, now and again, whom the job waits for, since when, and what to type. */
void ps_tell_waiting(struct ps_server *s);

/* chunks.c: what is long. */

/* A CHUNK_GET.  NULL, or why the session must end. */
const char *ps_chunk_get(struct ps_server *s, struct ps_session *session,
			 const struct fal_msg *get);
/* All of a text. */
void ps_send_text(struct ps_session *session, enum fal_text which,
		  const struct fal_buf *text);
/* There may be room: more of what the session asked for; of what all did. */
void ps_more(struct ps_server *s, struct ps_session *session);
void ps_more_all(struct ps_server *s);
/* Whether more may be queued for the session now; if not, it is tried again. */
bool ps_has_room(struct ps_server *s, const struct ps_session *session);
/* Are more bytes queued for this session, with all others of its key, than may be? */
bool ps_too_much(const struct ps_session *session);
struct ps_account *ps_account_of(struct ps_server *s, const struct fal_chan *c);

/* The keyring was read: sets work_keys, and whose sessions are whose. */
void ps_count_keys(struct ps_server *s);

/* watch.c: those who look on, and what they get. */

/* A line of the trace: kept, and sent to all who follow.  `arg`: the server. */
void ps_trace(void *arg, const char *line, size_t n);
/* A session of this key is ended for what it did: stderr and trace say so, of each key
 * once in FAL_REFUSALS_S. */
void ps_log_refused(struct ps_server *s, const char *key, const char *why);
/* Somebody came no further than the handshake: stderr alone says so, and how many. */
void ps_log_stranger(struct ps_server *s, const char *source, const char *why);
/* Says what is due by now of all these; `over`: all that was not said yet. */
void ps_tell_refusals(struct ps_server *s, bool over);
/* Says what sizes cost, at first and when there are twice as many workers. */
void ps_tell_sizes(struct ps_server *s, uint32_t workers);
/* What a follower gets first, and what time it is. */
void ps_history(struct ps_server *s, struct fal_buf *out);
/* Sends that and, to who wants it live, what follows. */
void ps_follow(struct ps_server *s, struct ps_session *session);
/* Nothing more comes in it: a follower is told so, and the channel closes behind what was
 * sent. */
void ps_bid_farewell(struct ps_session *session);

#endif
