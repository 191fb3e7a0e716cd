/* The coordinator of a job as a pure state machine: messages of workers in; messages,
 * orders for the shards and trace lines out.
 *
 * Binds lib/sched (who does what), lib/server (what is summed up) and lib/wire.  No I/O,
 * no clock: falcon-ps drives it with sockets, the simulator with a fake network.
 */
#ifndef FAL_SERVER_COORD_H
#define FAL_SERVER_COORD_H

#include "base/err.h"
#include "crypto/keyring.h"
#include "math/optim.h"
#include "sched/grid.h"
#include "sched/policy.h"
#include "sched/sched.h"
#include "server/shard.h"
#include "trace/writer.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct fal_coord; /* opaque */

struct fal_coord_model {
	uint64_t version;
	uint64_t newest; /* of the job */
	uint32_t order;  /* of its VERSION in the session, from 1 */
	uint64_t oldest; /* the worker will not compute on anything older */
	bool keep;       /* it shall keep the version for evaluation */
	/* Beside `version` it may have to compute on any from `from` on, and on those
	 * that are named, borrowed for the call; whoever falls behind skips the others.
	 */
	uint64_t from;
	const uint64_t *named;
	uint32_t names;
};

/* Why a worker is a suspect, or none any more. */
struct fal_coord_late {
	const char *why;  /* a few words */
	const char *owes; /* "task", "push" or "eval"; NULL: it is back */
	double seconds;   /* for which it owes that; for which it was a suspect */
	const char *key;  /* or: workers of this key get no work for `seconds`, as it has
			     cost others too much; else NULL */
};

/* Two keys that compute the same bits have unlike results of a task: the worker that
 * claimed it, and the one that computed it once more. */
struct fal_coord_unlike {
	uint64_t clock;
	uint32_t task;
	const char *name[2], *key[2];
};

/* Blocks that an update, or a worker's change of weights, has left as they were, as
 * values are too large. */
struct fal_coord_unstepped {
	uint64_t clock;
	uint32_t blocks;
	const char *name, *key; /* whose contribution has the largest value */
	bool change;            /* of weights; else gradients */
};

/* What a shard has done in this incarnation. */
struct fal_coord_served {
	/* Who has it and where, borrowed for the call; NULL: the coordinator. */
	const char *name, *address;
	uint32_t blocks;
	uint64_t rx, tx; /* bytes of contributions and of versions */
	double service;  /* seconds in which its process was at work on them */
	double queue;    /* in which workers' links had not taken all, summed up */
};

/* Tasks so far, by what became of them. */
struct fal_coord_tasks {
	uint64_t moved, cloned, filled, lost, dropped, skipped;
};

/* The state of a coordinator when a version was marked: with the image of that version,
 * all that a new incarnation needs to go on from there as if nothing had happened. */
struct fal_coord_past {
	uint64_t version, clock; /* clocks over with this version */
	uint64_t oldest;         /* version that the shards have, too */
	uint64_t first;          /* the version at which the policy began to hold */
	uint64_t round;          /* number of the next round */
	double t;                /* of the trace */
	const struct fal_policy *policy; /* the coordinator's, as it held; borrowed */
	char by[FAL_MSG_NAME];           /* the setter of the policy */
	size_t agains;    /* fal_coord_again that still wait for their clocks */
	uint32_t workers; /* ids given */
	/* Evaluations. */
	bool evaluating, judged;
	uint64_t kept_version, kept_clock; /* of the version that is held; 0: none */
	uint64_t next_eval;
	double accuracy, accuracy_loss; /* of the last one; -1: none */
	uint64_t judged_clock;
	/* How it learns. */
	uint64_t epoch;
	double loss, epoch_loss;
	double start_loss, sum_loss; /* eval.c */
	uint64_t samples;
	struct fal_coord_tasks tasks;
	uint64_t epoch_skipped;
	char data[2 * FAL_DATA_HASH + 1]; /* of trainers; "": none said so (sessions.c) */
	/* The keys that are known, by number, and who is here. */
	struct fal_past_key {
		char name[FAL_NAME_MAX + 1], fingerprint[FAL_KEY_FINGERPRINT + 1];
		uint32_t charges;
	} *key;
	struct fal_past_worker {
		char name[FAL_MSG_NAME];
		uint32_t id;
	} *worker;
	/* The scheduler's history of speeds: of who is here, and of who was here before a
	 * restart and did not come back yet. */
	struct fal_past_speed {
		char name[FAL_MSG_NAME];
		uint32_t key; /* its number, from 1 */
		struct fal_history is;
	} *speed;
	uint32_t keys, here, speeds;
	size_t key_cap, worker_cap, speed_cap;
};

/* `out`, whatever it was, becomes a copy with a memory of its own, but for `policy`,
 * which is NULL. */
void fal_coord_past_copy(const struct fal_coord_past *from, struct fal_coord_past *out);
void fal_coord_past_free(struct fal_coord_past *p);

/* The shards of the job, which must be at version 0 with the parameters to begin with.
 * lib/server/shard_set.h has functions that fit. */
struct fal_coord_shards {
	void *arg;
	/* An order for all of them, borrowed for the call.  They get orders in order. */
	int (*order)(void *arg, const struct fal_shard_order *o);
	/* A session's PUSH, for all of them; as fal_shard_set_msg. */
	int (*push)(void *arg, uint32_t session, const struct fal_msg *m,
		    struct fal_diag *diag);
	/* The next thing that shard *shard has to say; false: there is none. */
	bool (*next)(void *arg, uint32_t *shard, struct fal_shard_say *out);
	/* What the shard, by its number, has done.  NULL: the trace has no lines on that.
	 */
	void (*served)(void *arg, uint32_t shard, struct fal_coord_served *out);
};

/* A claim that counts. */
struct fal_coord_claimed {
	uint64_t round, task_ns;
	uint32_t task;
	int64_t loss;
	const uint8_t *hash; /* FAL_TASK_HASH bytes, borrowed for the call */
	/* None does: nobody here has a finite result of it, and hash is NULL. */
	bool nonfinite;
};

/* Callbacks; none may call back into the coordinator, not even to ask, which it asserts:
 * it is in the midst of an event, and they are told what they need.  `peer` is the
 * caller's number of a session, from 1, never used again. */
struct fal_coord_ops {
	void *arg;
	struct fal_coord_shards shards;
	/* Message bytes, borrowed for the call. */
	void (*send)(void *arg, uint32_t peer, const struct fal_buf *msg);
	/* Each shard is to publish a version to the session, which was told of it just
	 * now: at once or, where it is still to be made, as soon as the shard has it; not
	 * at all where the shard has forgotten it by then. */
	void (*model)(void *arg, uint32_t peer, const struct fal_coord_model *m);
	/* Close the session after what was sent; REFUSE, or LATER, with `why` has been
	 * sent. */
	void (*close)(void *arg, uint32_t peer, const char *why);
	/* A worker is ready, and one that was is not any more; names are borrowed for the
	 * call.  May be NULL. */
	void (*came)(void *arg, uint32_t peer, const char *name, const char *key);
	void (*went)(void *arg, uint32_t peer, const char *name, const char *why);
	/* The worker becomes a suspect: it has not kept its deadline, and others do its
	 * tasks; or is none any more.  May be NULL. */
	void (*late)(void *arg, uint32_t peer, const char *name,
		     const struct fal_coord_late *late);
	/* A worker, the first of two, begins to round otherwise than the other, whose
	 * numerics count; in what kernels, as READY says.  With FAL_NUMERICS_REQUIRE it
	 * stands by.  May be NULL. */
	void (*odd)(void *arg, const char *const name[2], const char *const kernels[2]);
	/* May be NULL. */
	void (*unlike)(void *arg, const struct fal_coord_unlike *is);
	/* May be NULL. */
	void (*unstepped)(void *arg, const struct fal_coord_unstepped *is);
	/* One line of the trace without its newline, borrowed for the call. */
	void (*trace)(void *arg, const char *line, size_t n);
	/* Policy `p` is about to hold from `clock` on, wanted by the key `by`; `version`
	 * is the newest one.  Keeps it for good (fsync) before it returns.  Negative: the
	 * change is given up.  May be NULL. */
	int (*journal)(void *arg, const struct fal_policy *p, uint64_t clock,
		       uint64_t version, const char *by);
	/* A version is marked, as fal_coord_mark has asked for: the shards have its
	 * image, the trace all of it; `past`, borrowed for the call, is the rest.  May be
	 * NULL. */
	void (*marked)(void *arg, const struct fal_coord_past *past);
	/* A move is over: `map` holds, and the shards were told to take it; or (an
	 * error) it never was.  May be NULL. */
	void (*moved)(void *arg, const struct fal_map *map, int err);
	/* With conf.above, these three.  A task has its claim; a round is over, and
	 * its sum was given (FAL_END_GIVE). */
	void (*claimed)(void *arg, const struct fal_coord_claimed *is);
	void (*given)(void *arg, uint64_t round);
	/* A test task that fal_coord_eval has brought is evaluated: the EVALUATED. */
	void (*evaluated)(void *arg, const struct fal_msg *m);
	/* What fal_coord_policy was given under this ticket holds from `clock` on (err
	 * 0), or was given up (an error).  May be NULL. */
	void (*changed)(void *arg, uint64_t ticket, uint64_t clock, int err);
};

enum fal_numerics { FAL_NUMERICS_FAST, FAL_NUMERICS_PORTABLE, FAL_NUMERICS_REQUIRE };

/* The coordinator above, of whose job this one is a worker. */
struct fal_line_above {
	const char *address;
	const char *key, *key_fingerprint; /* by which it is one */
};

struct fal_coord_conf {
	/* for the trace; borrowed until fal_coord_free */
	const char *name, *hash, *model_hash, *data_hash;
	const char *from; /* SHA-256 of weights of elsewhere; NULL: there are none */
	const struct fal_policy *policy; /* borrowed for the call */
	const char *policy_by;           /* whose it is: "job", or a key; as above */
	uint64_t seed;
	uint64_t entropy; /* the coordinator's own: for what workers must not foresee */
	struct fal_ticket_in tickets; /* as the shards know it, too */
	enum fal_numerics numerics;
	/* what is trained on, and how */
	struct fal_grid grid;
	uint32_t test_samples; /* 0: no evaluation */
	uint32_t eval_every;   /* clocks between evaluations; 0: at the end only */
	size_t params;
	uint32_t shards;           /* 0: one; at most FAL_SHARDS_MAX */
	const struct fal_map *map; /* of these; borrowed for the call; NULL: evenly */
	bool psld;                 /* fal_coord_balance has something to say */
	/* Which of them has which block, for the trace; borrowed for the call; NULL: it
	 * does not say. */
	const struct fal_line_place *place;
	struct fal_optim optim; /* for the trace */
	struct fal_schedule schedule;
	/* Mean loss of a model that knows nothing; 0: no loss is too large. */
	double guess;
	bool audit_sums;
	/* The trace has the hash of each version whose number is a multiple of this, and
	 * of some others; 0: 1. */
	uint32_t hashes;
	bool task_hashes; /* claims carry the hash of what their task gave */
	/* With them: the part of claims that another key computes once more, 0 to 1; and
	 * the job ends where the results are unlike. */
	double verify;
	bool verify_stop;
	bool skips; /* fal_sched_conf's */
	/* The work is another coordinator's (external_rounds.c), unless NULL: no round
	 * begins but by fal_coord_bring, no version is made here; tasks are skipped
	 * whatever `skips` is.  Borrowed for fal_coord_new. */
	const struct fal_line_above *above;
	uint8_t data[FAL_DATA_HASH]; /* that trainers with data of their own are to have
				      * said; 0: any, but all the same */
	uint32_t lanes_start;
	bool preclaims;       /* fal_sched_conf.preclaims */
	uint32_t min_workers; /* the first clock waits for so many */
	/* sizes of the texts that follow WELCOME */
	uint32_t text_n[FAL_TEXTS];
	/* What a coordinator of before was, when it marked the version that the shards
	 * have; borrowed for the call.  NULL: the job begins. */
	const struct fal_coord_past *past;
	/* What its trace has, for the line `restart`; with lines 0 there is none. */
	struct fal_coord_trace {
		double t;             /* of its last line */
		uint64_t lines;       /* up to the mark */
		uint64_t until;       /* clocks that were over in it */
		uint64_t torn;        /* bytes at its end that were cut off */
		const char *accepted; /* kinds of files that are others; NULL, "": none */
	} before;
};

/* `conf` and `ops` are copied.  Writes the `job` and `policy` lines, and, of a job that
 * goes on, `restart` and who has left by that.  FAL_EFORMAT: its past has no data hash.
 */
int fal_coord_new(const struct fal_coord_conf *conf, const struct fal_coord_ops *ops,
		  double now, struct fal_coord **out);
void fal_coord_free(struct fal_coord *c);

/* While no worker is here, the job ends at once when the trainers of so many keys have
 * failed, and after these seconds when those of fewer keys have. */
void fal_coord_trainer_wait(struct fal_coord *c, double seconds, uint32_t keys);
/* Of the last trainer that failed since a task counted; "": of none. */
const char *fal_coord_trainer(const struct fal_coord *c);
/* Whose session it is.  All borrowed for the call. */
struct fal_coord_who {
	const char *key;         /* the name of the key that opened it */
	const char *fingerprint; /* fal_key_fingerprint of it */
	uint32_t place;          /* in the keyring: of two equals the first counts */
	double rtt; /* seconds of a round trip, as its handshake took; 0: unknown */
};

/* A session opens whose key may send what workers do: before its first message.  Sessions
 * whose keys have the same name or fingerprint are of one key, and one witness. */
void fal_coord_open(struct fal_coord *c, uint32_t peer, const struct fal_coord_who *who);

/* A message of such a session.  0, or the error for which the session must
 * be closed; `diag` then says why.  The caller then calls fal_coord_gone. */
int fal_coord_msg(struct fal_coord *c, double now, uint32_t peer, const struct fal_msg *m,
		  struct fal_diag *diag);

/* The session has said HELLO, and not yet LEAVE. */
bool fal_coord_greeted(const struct fal_coord *c, uint32_t peer);

/* The session is over.  Unknown peers are ignored. */
int fal_coord_gone(struct fal_coord *c, double now, uint32_t peer, const char *why);

/* Sessions of this key were ended for what they did, `count` of them since this was told
 * last, the last one for this reason: writes it to the trace. */
void fal_coord_refused(struct fal_coord *c, double now, const char *key, const char *why,
		       uint64_t count);

/* Bytes that travelled for a session so far, for the trace. */
void fal_coord_traffic(struct fal_coord *c, uint32_t peer, uint64_t rx, uint64_t tx);

/* The time of a line that is written now, seconds: never before that of the last one,
 * whose event may have begun later and ended sooner. */
double fal_coord_seconds(struct fal_coord *c, double now);

/* Shards that do not answer at once have something to say. */
int fal_coord_heard(struct fal_coord *c, double now);

/* ---- what is left when it is gone ---- */

/* The next version that may be is to be marked, unless one is already: ops.marked
 * follows. */
void fal_coord_mark(struct fal_coord *c);
/* The newest version is marked, at once: ops.marked was called if that could be. */
int fal_coord_mark_now(struct fal_coord *c, double now);

int fal_coord_tick(struct fal_coord *c, double now);
double fal_coord_wake(const struct fal_coord *c); /* when; infinity: no need */

/* ---- what a controller asks for (policy.c) ---- */

/* Policy `p` (copied) shall hold; `by` is the name of the key that wants it, for the
 * trace and the journal (copied).  Where the rule stays as it is, it does at once; else
 * no round is begun until those under way are over, and then it does.  ops.journal and
 * then ops.changed are called, perhaps before this returns.  FAL_ESTATE with `diag`:
 * another change is under way, or the job is over; nothing is called then.  Any other
 * error ends the job. */
int fal_coord_policy(struct fal_coord *c, double now, const struct fal_policy *p,
		     const char *by, uint64_t ticket, struct fal_diag *diag);

/* The policy that waits for its boundary, borrowed until the next call, and whose it is;
 * NULL: none does. */
const struct fal_policy *fal_coord_policy_next(const struct fal_coord *c,
					       const char **by);
/* While one of another rule waits: `p`, of the rule in force, holds at once, from `clock`
 * on, and what waits is `next` from now on, of its own rule (both copied).  `kept`: an
 * error of ops.journal, and nothing has changed.  FAL_ESTATE: it cannot be: these are no
 * such rules, blocks move, or the job is over.  Any other error ends the job. */
struct fal_coord_beside {
	const struct fal_policy *p, *next;
	const char *by;
	uint64_t clock; /* out */
	int kept;       /* out */
};
int fal_coord_policy_beside(struct fal_coord *c, double now, struct fal_coord_beside *b);

/* The change of this ticket, if it still waits for its boundary, is not wanted any more;
 * ops.changed is not called. */
int fal_coord_give_up(struct fal_coord *c, double now, uint64_t ticket);

/* The blocks move (placement.c; design.md, D38) to `to`, whose numbers of shards include
 * those that there are; it gets an epoch of its own.  No round is begun until those under
 * way are over; then the shards are told, and when each has all of what it will have,
 * they take it, and the job goes on by the new map.  ops.moved is called, perhaps before
 * this returns.  FAL_ESTATE with `diag`: another move is under way, or the job is over;
 * FAL_EINVAL: it is no such map; nothing is called then.  Any other error ends the job.
 */
int fal_coord_move(struct fal_coord *c, double now, const struct fal_map *to,
		   const char *by, struct fal_diag *diag);
/* The move that is under way, if any, never was: a shard is gone that had nothing yet. */
int fal_coord_move_abort(struct fal_coord *c, double now);
/* The map of the move that is under way, or waits for its boundary, borrowed until the
 * next call; NULL: there is none. */
const struct fal_map *fal_coord_next_map(const struct fal_coord *c);

/* With `conf.psld`, asked after each event: what a clock that is over says of the shards
 * (server/psld.h).  `may`: those that may have blocks, as bits; others keep what they
 * have. NULL: nothing is to move; else the map to give fal_coord_move, and its `by`. What
 * is not moved then is as if it had never been thought of. */
#define FAL_PSLD_BY "psld"
const char *fal_coord_balance(struct fal_coord *c, uint64_t may, struct fal_map *to);

/* ---- with conf.above (external_rounds.c; design.md, D50) ---- */

/* As fal_sched_bring, fal_sched_unwanted and fal_sched_newer; the version's parameters
 * are the caller's to add to the order (FAL_ORDER_PUT).  Not all versions need come; none
 * is needed any more that is below `oldest`.  FAL_EINVAL: its version is none that is
 * kept; it is older than the newest, or its oldest is newer; else errors that end the
 * job. */
int fal_coord_bring(struct fal_coord *c, double now, const struct fal_bring *b,
		    uint64_t *round);
int fal_coord_unwanted(struct fal_coord *c, double now, uint64_t round);
int fal_coord_newer(struct fal_coord *c, double now, uint64_t version, uint64_t oldest);
/* The version, which is kept, is held to be evaluated.  And a test task is evaluated, of
 * that version.  FAL_EINVAL: it is another one. */
int fal_coord_eval_of(struct fal_coord *c, double now, uint64_t version);
int fal_coord_eval(struct fal_coord *c, double now, uint64_t version, uint32_t task);

/* What those who are ready, and do not stand by for their numerics, are together, as one
 * worker that is as fast. */
struct fal_coord_together {
	uint32_t workers, lanes; /* 1 to FAL_LANES_MAX */
	uint64_t task_ns;        /* of a lane; 0: unknown */
	/* That counts among them, or, if they have several, fal_coord_several. */
	uint8_t fingerprint[FAL_FINGERPRINT];
};
/* The fingerprint of those who do not compute the same bits: that of an impure worker. */
void fal_coord_several(uint8_t out[static FAL_FINGERPRINT]);
void fal_coord_together(const struct fal_coord *c, struct fal_coord_together *out);
/* The coordinator above is gone: the trace ends with that.  Whoever is here may be told
 * to wait. */
void fal_coord_parted(struct fal_coord *c, double now, const char *why);

/* Begins no round until it is called with false; `by` is the name of the key, for the
 * trace.  Rounds under way are finished. */
int fal_coord_hold(struct fal_coord *c, double now, bool hold, const char *by);

/* Asks the workers of this name to finish or hand back their tasks and to leave.
 * FAL_ENOENT with `diag`: there is none. */
int fal_coord_drain(struct fal_coord *c, double now, const char *name,
		    struct fal_diag *diag);

/* Begins no round any more: its status is `stopped` when those under way are over, and
 * `stopping` from now on.  `by` as above. */
int fal_coord_stop(struct fal_coord *c, double now, const char *by);

/* Policy `p` (copied) of a job that goes on held from `clock` on, wanted by `by`, and
 * does again from there; clocks in order, before anybody is here. */
void fal_coord_again(struct fal_coord *c, const struct fal_policy *p, uint64_t clock,
		     const char *by);

/* The policy in force, borrowed until the next call; the next clock to be begun. */
const struct fal_policy *fal_coord_policy_now(const struct fal_coord *c);
uint64_t fal_coord_front(const struct fal_coord *c);

/* What a job leaves: a version, and how many clocks were over with it.  Shards have it.
 *
 * kept: what a failed job leaves: the last end of an epoch, or the last evaluation, at
 *   which nothing was wrong yet; false: there was none.
 * newest: whole and finite at any time, after an error, too: a step comes to its end;
 *   false: nothing was trained. */
struct fal_coord_left {
	uint64_t version, clock;
	bool trainers; /* the job failed, as those of all workers did */
};
bool fal_coord_kept(const struct fal_coord *c, struct fal_coord_left *out);
bool fal_coord_newest(const struct fal_coord *c, struct fal_coord_left *out);

/* Where the job stands. */
struct fal_coord_status {
	uint64_t clock, clocks; /* the first that is not over; all */
	uint64_t version;
	double loss;          /* mean loss of the last clock; 0 before the first, NAN: not
				 known, or of no samples */
	double accuracy;      /* of the last evaluation; -1: none yet */
	double accuracy_loss; /* its mean loss; NAN: not known */
	uint64_t judged;      /* clocks that were over when its version was made */
	uint64_t epoch;       /* epochs that are over, by their clocks */
	double epoch_loss;    /* mean loss of the tasks of the last one, or NAN */
	struct fal_coord_tasks tasks;
	uint32_t workers;
	bool done;   /* every clock and evaluation is over */
	bool failed; /* the job stopped: `why` */
	const char *why;
	bool held, stopping, stopped; /* fal_coord_hold, fal_coord_stop */
	size_t agains; /* of fal_coord_again, that still wait for their clocks */
};
struct fal_coord_status fal_coord_status(const struct fal_coord *c);
/* The mean loss of the tasks of an epoch that is over, from 1: of one of the last 8,
 * since this start.  NAN: not known. */
double fal_coord_epoch_loss(const struct fal_coord *c, uint64_t epoch);

/* fal_bound_sizes by the probes of the workers that are ready. */
struct fal_coord_sizes {
	uint32_t workers, lanes; /* with probes; no more lanes than cores */
	double whole, small;
};
void fal_coord_sizes(const struct fal_coord *c, struct fal_coord_sizes *out);

/* What the job leaves, borrowed for the call. */
struct fal_coord_result {
	/* 64 hex digits: its file; the version (trace/chain.h).  NULL: it is above */
	const char *sha256, *hash;
	const char *journal; /* the last link of what ops.journal wrote, or "" */
	double seconds;      /* of training, as the result has them */
};
/* The end: writes the `done` line and tells all workers; or, when the job has failed or
 * `why` is not NULL (kept until fal_coord_free: what the caller could not do), the
 * `failed` line, and refuses them. */
void fal_coord_finish(struct fal_coord *c, double now,
		      const struct fal_coord_result *result, const char *why);

#endif
