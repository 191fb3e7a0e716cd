/* The coordinator of a job as a pure state machine: messages of workers come in;
 * messages, commands for the shards and trace lines go out.
 *
 * The coordinator connects lib/sched (which worker does what), the shards (sums and
 * parameters) and lib/wire (messages). No I/O, no clock: falcon-ps drives the coordinator
 * with sockets, the simulator with a fake network.
 *
 * `now` is the time in seconds, of any origin, and never goes back.  A function that
 * returns int returns 0 or a negative enum fal_err; unless its contract says otherwise,
 * an error ends the job. */
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

/* ---- arguments of callbacks ------------------------------------------------------- */

/* A version that the shards are to publish to a session. */
struct fal_coord_publication {
	uint64_t version;
	uint64_t newest; /* of the job */
	/* number of the version's VERSION message in the session, from 1 */
	uint32_t order;
	uint64_t oldest; /* the worker computes on no older version any more */
	bool keep;       /* the worker keeps the version for evaluation */
	/* The worker may have to compute on `version`, on any version from `from` on, and
	 * on the versions `named` (borrowed for the call).  A worker that falls behind
	 * skips all other versions. */
	uint64_t from;
	const uint64_t *named;
	uint32_t names;
};

/* Why a worker becomes a suspect, or stops being one. */
struct fal_coord_suspect {
	const char *why;  /* a few words */
	const char *owes; /* "task", "push" or "eval"; NULL: the worker is back */
	double seconds;   /* how late the worker is; or how long it was a suspect */
	const char *key;  /* not NULL: workers of this key get no work for `seconds`, as
			     the key has cost others too much */
};

/* Workers of two keys should compute the same bits, but have unlike results of a task.
 * [0] is the worker that claimed the task, [1] the worker that computed the task once
 * more. */
struct fal_coord_mismatch {
	uint64_t clock;
	uint32_t task;
	const char *name[2], *key[2];
};

/* Blocks that an update, or a worker's change of weights, has left as they were, because
 * values are too large. */
struct fal_coord_skipped_blocks {
	uint64_t clock;
	uint32_t blocks;
	const char *name, *key; /* of the contribution with the largest value */
	bool change;            /* a change of weights; false: gradients */
};

/* The work of a shard in this incarnation. */
struct fal_coord_shard_stats {
	/* Name and address of the shard's process, borrowed for the call; NULL: the
	 * coordinator's. */
	const char *name, *address;
	uint32_t blocks;
	uint64_t rx, tx; /* bytes of contributions, bytes of versions */
	/* seconds in which its process worked on contributions and versions */
	double service;
	double queue; /* Σ of the seconds that versions waited for workers' links */
};

/* Counts of tasks so far, by what became of the tasks. */
struct fal_coord_tasks {
	uint64_t moved, cloned, filled, lost, dropped, skipped;
};

/* The pinned version: under evaluation, and later the version that a failed job leaves.
 */
struct fal_coord_pin {
	uint64_t version, clocks; /* so many clocks were over with it; 0: none */
	bool is_under_way;        /* its evaluation */
	bool is_evaluated;
	uint64_t next_clock; /* the next evaluation is due when this clock is reached */
};

/* What the job has done so far. */
struct fal_coord_figures {
	double loss;          /* mean loss of the last clock; 0 before the first, NAN: not
				 known, or of no samples */
	double accuracy;      /* of the last evaluation; -1: none yet */
	double accuracy_loss; /* mean loss of the last evaluation; NAN: not known */
	uint64_t judged;      /* clocks that were over with the evaluated version */
	uint64_t epoch;       /* epochs that are over, by their clocks */
	double epoch_loss;    /* mean loss of the tasks of the last epoch, or NAN */
	struct fal_coord_tasks tasks;
};

/* The state of a coordinator at a snapshot's version.  This state and the shards' image
 * of that version are all that a new incarnation needs to continue as if nothing had
 * happened. */
struct fal_coord_checkpoint {
	uint64_t version, clock; /* so many clocks are over with the version */
	/* the shards retain the versions from this version on */
	uint64_t oldest;
	uint64_t first; /* the policy holds since this version */
	uint64_t round; /* number of the next round */
	double t;       /* time of the trace */
	/* the policy in force; borrowed from the coordinator */
	const struct fal_policy *policy;
	char by[FAL_MSG_NAME]; /* name of the key that set the policy */
	size_t agains; /* policies of fal_coord_schedule_policy that wait for their clocks
			*/
	uint32_t workers; /* count of the numbers that workers have been given */
	struct fal_coord_pin pin;
	struct fal_coord_figures figures;
	/* Health (eval.c). */
	/* mean loss at the start; Σ of losses in the epoch under way */
	double start_loss, sum_loss;
	uint64_t samples;                 /* in the epoch under way */
	uint64_t epoch_skipped;           /* skipped tasks in the epoch under way */
	char data[2 * FAL_DATA_HASH + 1]; /* hash of the trainers' data; "": none */
	/* Keys, by number - 1; and workers that are here. */
	struct fal_checkpoint_key {
		char name[FAL_NAME_MAX + 1], fingerprint[FAL_KEY_FINGERPRINT + 1];
		uint32_t charges; /* for what the key's sessions have sent, ever */
	} *key;
	struct fal_checkpoint_worker {
		char name[FAL_MSG_NAME];
		uint32_t id;
	} *worker;
	/* The scheduler's history of speeds: of workers that are here, and of workers
	 * that were here before a restart and are not back. */
	struct fal_checkpoint_speed {
		char name[FAL_MSG_NAME];
		uint32_t key; /* number of the key, from 1 */
		struct fal_history is;
	} *speed;
	uint32_t keys, here, speeds; /* lengths of the three lists */
	size_t key_cap, worker_cap, speed_cap;
};

/* Makes *out a copy that owns its memory, and does not free what *out held.  out->policy
 * is NULL. */
void fal_coord_checkpoint_copy(const struct fal_coord_checkpoint *from,
			       struct fal_coord_checkpoint *out);
void fal_coord_checkpoint_free(struct fal_coord_checkpoint *p);

/* A claim that counts. */
struct fal_coord_counted_claim {
	uint64_t round, task_ns;
	uint32_t task;
	int64_t loss;
	const uint8_t *hash; /* FAL_TASK_HASH bytes, borrowed for the call */
	/* No claim counts, because no worker here has a finite result; `hash` is NULL. */
	bool nonfinite;
};

/* ---- callbacks -------------------------------------------------------------------- */

/* The shards of the job, which must be at version 0 with the parameters to begin with.
 * lib/server/shard_set.h has functions that fit. */
struct fal_coord_shards {
	void *arg;
	/* Sends a command to all shards, which carry commands out in order; `o` is
	 * borrowed for the call.  `r` gets the reports of shards that answer at once;
	 * fal_coord_take_result takes those of other shards later. */
	int (*order)(void *arg, const struct fal_shard_order *o,
		     struct fal_shard_result *r);
	/* Hands the PUSH of a session to all shards, as fal_shard_set_push_msg does. */
	int (*push)(void *arg, uint32_t session, const struct fal_msg *m,
		    struct fal_shard_result *r, struct fal_diag *diag);
	/* Says what the shard has done.  NULL: the trace has no `shard` lines. */
	void (*served)(void *arg, uint32_t shard, struct fal_coord_shard_stats *out);
};

/* Callbacks.  No callback may call a function of the coordinator, not even to ask; the
 * coordinator asserts this.  A callback runs in the midst of an event, and its arguments
 * are all it needs.  `peer` is the caller's number of a session, from 1, never used
 * again.  Names are borrowed for the call.  Callbacks marked + may be NULL. */
struct fal_coord_ops {
	void *arg;
	struct fal_coord_shards shards;
	/* Sends the bytes of a message, borrowed for the call. */
	void (*send)(void *arg, uint32_t peer, const struct fal_buf *msg);
	/* Has each shard publish a version to the session, which was just told of the
	 * version.  A shard publishes the version at once, or as soon as the shard has
	 * made the version; a shard that has dropped the version by then publishes
	 * nothing. */
	void (*model)(void *arg, uint32_t peer, const struct fal_coord_publication *m);
	/* Closes the session when all messages are out; the last message was REFUSE or
	 * LATER, with `why`. */
	void (*close)(void *arg, uint32_t peer, const char *why);
	/* + came: a worker is ready.  went: a worker that was ready has gone. */
	void (*came)(void *arg, uint32_t peer, const char *name, const char *key);
	void (*went)(void *arg, uint32_t peer, const char *name, const char *why);
	/* + The worker becomes a suspect: the worker has missed its deadline, and others
	 * do its tasks.  Or the worker stops being a suspect. */
	void (*late)(void *arg, uint32_t peer, const char *name,
		     const struct fal_coord_suspect *late);
	/* + Worker [0] from now on rounds otherwise than worker [1], whose numerics lead;
	 * `kernels` as in READY. */
	void (*odd)(void *arg, const char *const name[2], const char *const kernels[2]);
	/* + Verification has found unlike results. */
	void (*unlike)(void *arg, const struct fal_coord_mismatch *is);
	/* + Blocks were left as they were. */
	void (*unstepped)(void *arg, const struct fal_coord_skipped_blocks *is);
	/* Writes one line of the trace, without its newline; borrowed for the call. */
	void (*trace)(void *arg, const char *line, size_t n);
	/* + Writes the policy to disk (fsync) before the callback returns: `p` is about
	 * to hold from `clock` on; the key named `by` wants `p`; `version` is the newest
	 * version.  With an error the change is given up. */
	int (*journal)(void *arg, const struct fal_policy *p, uint64_t clock,
		       uint64_t version, const char *by);
	/* + A snapshot, as fal_coord_request_snapshot asks for, is complete.  The shards
	 * have the image of the version, the trace has all lines of the version, and
	 * `past` (borrowed for the call) is the rest of the snapshot. */
	void (*marked)(void *arg, const struct fal_coord_checkpoint *past);
	/* + A move is over, and `map` is in force.  err 0: the shards were told to use
	 * `map`; an error: the blocks did not move. */
	void (*moved)(void *arg, const struct fal_map *map, int err);
	/* These three are called only with conf.above.  claimed: a claim of a task
	 * counts.  given: a round is over, and its sum was forwarded
	 * (FAL_END_FORWARD). */
	void (*claimed)(void *arg, const struct fal_coord_counted_claim *is);
	void (*given)(void *arg, uint64_t round);
	/* A test task of fal_coord_evaluate_task is evaluated; `m` is the EVALUATED. */
	void (*evaluated)(void *arg, const struct fal_msg *m);
	/* + The policy of this ticket (fal_coord_set_policy) holds from `clock` on (err
	 * 0), or was given up (an error). */
	void (*changed)(void *arg, uint64_t ticket, uint64_t clock, int err);
};

/* ---- a coordinator ---------------------------------------------------------------- */

enum fal_numerics { FAL_NUMERICS_PORTABLE, FAL_NUMERICS_FAST };

/* The coordinator above; this coordinator is one worker of its job. */
struct fal_coord_upstream {
	const char *address;
	const char *key, *key_fingerprint; /* the key of this worker */
};

/* The best evaluation: clocks that were over, 0: none; the mean loss, NAN: not known. */
struct fal_coord_best {
	uint64_t clock;
	double accuracy, loss;
};
/* Is the first evaluation the better one? */
bool fal_coord_best_is_better(const struct fal_coord_best *is,
			      const struct fal_coord_best *than);

struct fal_coord_conf {
	/* For the trace; borrowed until fal_coord_free. */
	const char *name, *hash, *model_hash, *data_hash;
	/* SHA-256 of the weights that training starts from; NULL: the job has no such
	 * weights */
	const char *from;
	const struct fal_policy *policy; /* borrowed for the call */
	const char *policy_by; /* "job", or the name of a key; borrowed for the call */
	uint64_t seed;
	uint64_t entropy;                /* random bits that workers must not know */
	struct fal_ticket_scope tickets; /* the shards have the same scope */
	enum fal_numerics numerics;
	/* Data and model. */
	struct fal_grid grid;
	uint32_t test_samples; /* 0: no evaluation */
	uint32_t eval_every;   /* clocks between evaluations; 0: at the end only */
	size_t params;
	uint32_t shards; /* 0: one; at most FAL_SHARDS_MAX */
	/* the map of the shards; borrowed for the call; NULL: an even map */
	const struct fal_map *map;
	bool psld; /* fal_coord_balance proposes moves */
	/* Which shard has which block, for the trace; borrowed for the call; NULL: the
	 * trace does not say. */
	const struct fal_line_place *place;
	struct fal_optim optim; /* for the trace */
	struct fal_schedule schedule;
	/* The job stops when the best evaluation is this number of clocks old; 0: never.
	 */
	uint64_t patience;
	struct fal_coord_best best; /* so far; {0}: none */
	/* Mean loss of guessing; 0: no loss is too large. */
	double guess;
	bool audit_sums;
	/* The trace has the hash of each version whose number is a multiple of this
	 * number, and of some other versions; 0 counts as 1. */
	uint32_t hashes;
	bool task_hashes; /* claims carry the hash of their task's result */
	/* With task_hashes: the part of claims that another key computes once more, 0 to
	 * 1; and whether unlike results end the job. */
	double verify;
	bool verify_stop;
	bool skips; /* fal_sched_conf.skips */
	/* Unless NULL, the work comes from another coordinator (external_rounds.c).  Then
	 * only fal_coord_add_external_round begins a round, no version is made here, and
	 * tasks are skipped whatever `skips` is.  Borrowed for the call of
	 * fal_coord_new. */
	const struct fal_coord_upstream *above;
	/* the hash that trainers must send for data of their own; 0: any hash, but all
	 * trainers the same one */
	uint8_t data[FAL_DATA_HASH];
	uint32_t lanes_start;
	bool preclaims;       /* fal_sched_conf.preclaims */
	uint32_t min_workers; /* the first clock waits for so many workers */
	/* Sizes of the texts that follow WELCOME. */
	uint32_t text_n[FAL_TEXTS];
	/* The state of an earlier coordinator at the version that the shards have;
	 * borrowed for the call.  NULL: the job begins. */
	const struct fal_coord_checkpoint *past;
	/* The earlier trace, for the `restart` line; lines 0: there is none. */
	struct fal_coord_trace {
		double t;       /* time of the last line */
		uint64_t lines; /* number of lines up to the snapshot */
		/* number of clocks that are over according to the trace */
		uint64_t until;
		uint64_t torn; /* bytes that were cut off at the end of the trace */
		/* kinds of files that differ from the job's, but are accepted; NULL or
		 * "": none */
		const char *accepted;
	} before;
};

/* Makes a coordinator; `conf` and `ops` are copied.  Writes the `job` and `policy` lines
 * and, of a job that continues, `restart` and the `leave` lines of workers that the
 * restart has cut off.  FAL_EFORMAT: the data hash in conf.past is no hash. */
int fal_coord_new(const struct fal_coord_conf *conf, const struct fal_coord_ops *ops,
		  double now, struct fal_coord **out);
void fal_coord_free(struct fal_coord *c);

/* While no worker is here, failed trainers end the job: at once if trainers of `keys`
 * keys have failed, else after `seconds`. */
void fal_coord_set_trainer_wait(struct fal_coord *c, double seconds, uint32_t keys);
/* Returns the failure of the last trainer that failed since a task counted; "": none. */
const char *fal_coord_trainer_failure(const struct fal_coord *c);

/* ---- sessions --------------------------------------------------------------------- */

/* The key of a session.  All borrowed for the call. */
struct fal_coord_session {
	const char *key;         /* name of the key that opened the session */
	const char *fingerprint; /* fal_key_fingerprint of the key */
	/* index in the keyring: between two equal choices the first key counts */
	uint32_t place;
	double rtt; /* seconds of a round trip, by the handshake; 0: unknown */
};

/* Opens a session whose key may send what workers send: call it before the session's
 * first message.  Sessions whose keys have the same name or fingerprint belong to one
 * key, and count as one witness. */
void fal_coord_session_open(struct fal_coord *c, uint32_t peer,
			    const struct fal_coord_session *who);

/* Takes a message of a session.  An error, with `diag`: the session must be closed; the
 * caller then calls fal_coord_session_end. */
int fal_coord_msg(struct fal_coord *c, double now, uint32_t peer, const struct fal_msg *m,
		  struct fal_diag *diag);

/* Has the session sent HELLO, but not LEAVE? */
bool fal_coord_session_is_present(const struct fal_coord *c, uint32_t peer);

/* Ends a session that is closed; ignores unknown sessions. */
int fal_coord_session_end(struct fal_coord *c, double now, uint32_t peer,
			  const char *why);

/* Writes to the trace that sessions of the key were ended for what they sent: `count`
 * sessions since the last call, the last one for the reason `why`. */
void fal_coord_trace_refusals(struct fal_coord *c, double now, const char *key,
			      const char *why, uint64_t count);

/* Sets the total bytes of a session so far, for the trace. */
void fal_coord_set_traffic(struct fal_coord *c, uint32_t peer, uint64_t rx, uint64_t tx);

/* ---- time and shards -------------------------------------------------------------- */

/* Returns the trace's time of a line that is written now, in seconds: never before the
 * time of the last line, whose event may have begun later and ended sooner. */
double fal_coord_trace_time(struct fal_coord *c, double now);

/* Takes the reports, borrowed for the call, of shards that do not answer at once. */
int fal_coord_take_result(struct fal_coord *c, double now,
			  const struct fal_shard_result *r);

/* Does what is due; to be called at fal_coord_next_deadline, or sooner. */
int fal_coord_tick(struct fal_coord *c, double now);
/* Returns when something is due; infinity: nothing is. */
double fal_coord_next_deadline(const struct fal_coord *c);

/* ---- snapshots (checkpoint.c) ----------------------------------------------------- */

/* Asks for a snapshot of the next version that allows a snapshot, unless a snapshot is
 * under way; ops.marked follows. */
void fal_coord_request_snapshot(struct fal_coord *c);
/* Makes a snapshot of the newest version at once, if possible; ops.marked is then called
 * before this returns. */
int fal_coord_snapshot_now(struct fal_coord *c, double now);

/* ---- requests of controllers ------------------------------------------------------ */

/* Asks for policy `p` (copied); `by` is the name of the key that wants it, for the trace
 * and the journal (copied).  If the rule stays as it is, the policy holds at once; else
 * no round begins until those under way are over, and then the policy holds.  ops.journal
 * and then ops.changed are called, perhaps before this returns.  FAL_ESTATE with `diag`:
 * another change is under way, or the job is over; nothing is called then. */
int fal_coord_set_policy(struct fal_coord *c, double now, const struct fal_policy *p,
			 const char *by, uint64_t ticket, struct fal_diag *diag);

/* Returns the policy that waits for its boundary, and the name of the key that wants it,
 * both borrowed until the next call; NULL: none waits. */
const struct fal_policy *fal_coord_pending_policy(const struct fal_coord *c,
						  const char **by);
/* Adjusts both policies while a policy with another rule waits (both copied).  `p` has
 * the rule in force, and holds at once; `next` has the waiting rule, and waits instead of
 * the old one.  FAL_ESTATE: a rule is another one, blocks move, or the job is over. */
struct fal_coord_adjustment {
	const struct fal_policy *p, *next;
	const char *by;
	uint64_t clock; /* out: `p` holds from this clock on */
	int kept;       /* out: the result of ops.journal; an error: nothing changed */
};
int fal_coord_adjust_policy(struct fal_coord *c, double now,
			    struct fal_coord_adjustment *b);

/* Gives up the change of this ticket, if it still waits for its boundary; ops.changed is
 * not called. */
int fal_coord_cancel_policy(struct fal_coord *c, double now, uint64_t ticket);

/* Schedules policy `p` (copied) of a job that continues.  Before the restart `p` held
 * from `clock` on, wanted by `by`; `p` holds from there again.  Call it in the order of
 * clocks, before a worker is here. */
void fal_coord_schedule_policy(struct fal_coord *c, const struct fal_policy *p,
			       uint64_t clock, const char *by);

/* Returns the policy in force, borrowed until the next call. */
const struct fal_policy *fal_coord_policy_in_force(const struct fal_coord *c);
/* Returns the next clock to begin. */
uint64_t fal_coord_next_clock(const struct fal_coord *c);

/* Pauses the job (`hold`) or resumes it; `by` is the name of the key, for the trace.
 * Rounds under way end as usual; no round begins during the pause. */
int fal_coord_pause(struct fal_coord *c, double now, bool hold, const char *by);

/* Asks the ready workers of this name to finish or hand back their tasks and to leave.
 * FAL_ENOENT with `diag`: there is none. */
int fal_coord_drain_worker(struct fal_coord *c, double now, const char *name,
			   struct fal_diag *diag);

/* Stops the job: no round begins any more.  Its status is `stopping` from now on, and
 * `stopped` when the rounds under way are over.  `by` as above. */
int fal_coord_stop(struct fal_coord *c, double now, const char *by);

/* Moves the blocks (placement.c; design.md, D38) to the map `to`, which must include all
 * shards of the present map; the new map gets an epoch of its own.  No round begins until
 * those under way are over; then the shards are told.  The new map holds when each shard
 * has all its new blocks.  ops.moved is called, perhaps before this returns.  FAL_ESTATE
 * with `diag`: another move is under way, or the job is over; FAL_EINVAL: there is no
 * such map; nothing is called then. */
int fal_coord_move_blocks(struct fal_coord *c, double now, const struct fal_map *to,
			  const char *by, struct fal_diag *diag);
/* Gives up the move that is under way, if any.  To be called when a shard is gone that
 * had no blocks yet. */
int fal_coord_abort_move(struct fal_coord *c, double now);
/* Returns the map of the move that is under way, or waits for its boundary, borrowed
 * until the next call; NULL: there is none. */
const struct fal_map *fal_coord_pending_map(const struct fal_coord *c);

/* Proposes a move, with conf.psld; to be asked after each event (server/psld.h).  `may`
 * is the set of shards that may get blocks, as bits; other shards keep what they have.
 * NULL: nothing should move.  Else *to and the result are the arguments `to` and `by` for
 * fal_coord_move_blocks.  A proposal that the caller does not carry out has no effect. */
#define FAL_PSLD_BY "psld"
const char *fal_coord_balance(struct fal_coord *c, uint64_t may, struct fal_map *to);

/* ---- with conf.above (external_rounds.c; design.md, D50) -------------------------- */

/* As fal_sched_open_external: begins a round of the coordinator above.  FAL_EINVAL, and
 * the job continues: the shards do not retain its version. */
int fal_coord_add_external_round(struct fal_coord *c, double now,
				 const struct fal_external_task *b, uint64_t *round);
/* As fal_sched_cancel_external: the coordinator above does not want the round any more.
 */
int fal_coord_cancel_external_round(struct fal_coord *c, double now, uint64_t round);
/* As fal_sched_set_version: installs a version of the coordinator above; the caller adds
 * the parameters to the command (FAL_ORDER_PUT).  Versions may be missing between two
 * calls.  No version below `oldest` is needed any more.  FAL_EINVAL, and the job
 * continues: the version is older than the newest, or than its `oldest`. */
int fal_coord_install_version(struct fal_coord *c, double now, uint64_t version,
			      uint64_t oldest);
/* Pins the version, which the shards must retain, for evaluation.  FAL_EINVAL: the shards
 * do not retain the version. */
int fal_coord_evaluate_external(struct fal_coord *c, double now, uint64_t version);
/* Evaluates a test task of that version.  FAL_EINVAL: the version is another one. */
int fal_coord_evaluate_task(struct fal_coord *c, double now, uint64_t version,
			    uint32_t task);

/* All workers that are ready, described as one worker of the same speed. */
struct fal_coord_aggregate {
	uint32_t workers, lanes; /* lanes: 1 to FAL_LANES_MAX */
	uint64_t task_ns;        /* of a lane; 0: unknown */
	/* The workers' fingerprint or, if they have several, fal_coord_mixed_fingerprint.
	 */
	uint8_t fingerprint[FAL_FINGERPRINT];
};
/* Sets `out` to the fingerprint of workers that do not all compute the same bits, which
 * is that of a nondeterministic worker. */
void fal_coord_mixed_fingerprint(uint8_t out[static FAL_FINGERPRINT]);
void fal_coord_aggregate(const struct fal_coord *c, struct fal_coord_aggregate *out);
/* Ends the trace, as the coordinator above is gone.  The caller may tell the workers to
 * wait. */
void fal_coord_lose_upstream(struct fal_coord *c, double now, const char *why);

/* ---- status and end --------------------------------------------------------------- */

/* A version that the job leaves; the shards have the version. */
struct fal_coord_outcome {
	uint64_t version, clock; /* so many clocks were over with the version */
	/* the job failed because the trainers of all workers failed */
	bool trainers;
};
/* Returns the version that a failed job leaves: the last end of an epoch, or the last
 * evaluation, at which nothing was wrong yet.  False: there was none. */
bool fal_coord_last_good_version(const struct fal_coord *c,
				 struct fal_coord_outcome *out);
/* Returns the newest version.  The newest version is always complete and finite, even
 * after an error, because a step always comes to its end.  False: nothing was trained. */
bool fal_coord_newest_version(const struct fal_coord *c, struct fal_coord_outcome *out);

/* Where the job stands. */
struct fal_coord_status {
	uint64_t clock, clocks; /* the first clock that is not over; all clocks */
	uint64_t version;
	struct fal_coord_figures figures;
	uint32_t workers;
	bool done;   /* every clock and evaluation is over */
	bool failed; /* the job stopped: `why` */
	const char *why;
	bool held, stopping, stopped; /* fal_coord_pause, fal_coord_stop */
	bool patience_is_over;        /* conf.patience stops the job, or will */
	size_t agains; /* policies of fal_coord_schedule_policy that wait for their clocks
			*/
};
struct fal_coord_status fal_coord_status(const struct fal_coord *c);
/* Returns the mean loss of the tasks of an epoch that is over, from 1; the last 8 epochs
 * since this start are known.  NAN: not known. */
double fal_coord_epoch_loss(const struct fal_coord *c, uint64_t epoch);

/* The results of fal_bound_sizes, by the probes of the workers that are ready. */
struct fal_coord_task_sizes {
	/* workers with probes, and their lanes; no more lanes than cores */
	uint32_t workers, lanes;
	double whole, small;
};
void fal_coord_task_sizes(const struct fal_coord *c, struct fal_coord_task_sizes *out);

/* What the job leaves, borrowed for the call. */
struct fal_coord_result {
	/* 64 hex digits each: the SHA-256 of the model's file, and the hash of the
	 * version (trace/chain.h).  NULL: the coordinator above has these */
	const char *sha256, *hash;
	const char *journal; /* the last link of what ops.journal wrote, or "" */
	double seconds;      /* seconds of training, as in the result file */
};
/* Ends the job: writes the `done` line and tells all workers; or, if the job has failed
 * or `why` is not NULL, writes the `failed` line and refuses all workers.  `why` says
 * what the caller could not do; the text must live until fal_coord_free. */
void fal_coord_finish(struct fal_coord *c, double now,
		      const struct fal_coord_result *result, const char *why);

#endif
