/* The coordinator of a job as a pure state machine: messages of workers come in;
 * messages, commands for the shards and trace lines go out.
 *
 * The coordinator connects lib/sched (which worker does what), the shards (sums and
 * parameters) and lib/wire (messages).  No I/O, no clock: falcon-ps drives the
 * coordinator with sockets, the simulator with a fake network.
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

/* The arguments of ops.model: which version the shards send to a session. */
struct fal_coord_publication {
	uint64_t version;
	uint64_t newest; /* of the job */
	/* the version was announced by this VERSION message of the session, counted from
	 * 1 */
	uint32_t order;
	/* from now on the worker computes on no version older than this one */
	uint64_t oldest;
	bool keep; /* the worker keeps the version for evaluation */
	/* The worker may get tasks on `version`, on any version from `from` on, and on
	 * the `names` versions in `named` (borrowed for the call).  If the worker falls
	 * behind, the shards need not send other versions to the worker. */
	uint64_t from;
	const uint64_t *named;
	uint32_t names;
};

/* Why a worker becomes a suspect, or stops being one. */
struct fal_coord_suspect {
	const char *why;  /* a few words */
	const char *owes; /* "task", "push" or "eval"; NULL: the worker is back */
	double seconds;   /* how late the worker is; or how long it was a suspect */
	/* not NULL: workers of this key get no work for `seconds`, because the key has
	 * cost other workers too much time */
	const char *key;
};

/* Workers of two keys should compute the same bits, but have unlike results of a task.
 * [0] is the worker that claimed the task, [1] the worker that computed the task once
 * more. */
struct fal_coord_mismatch {
	uint64_t clock;
	uint32_t task;
	const char *name[2], *key[2];
};

/* Blocks that an update, or a worker's change of weights, has not changed, because the
 * values were too large. */
struct fal_coord_skipped_blocks {
	uint64_t clock;
	uint32_t blocks;
	const char *name, *key; /* of the contribution with the largest value */
	/* the contribution was a change of weights; false: gradients */
	bool change;
};

/* What a shard has done since this incarnation began. */
struct fal_coord_shard_stats {
	/* Name and address of the shard's process, borrowed for the call; NULL: the
	 * coordinator's. */
	const char *name, *address;
	uint32_t blocks;
	/* rx: bytes of received contributions; tx: bytes of sent versions */
	uint64_t rx, tx;
	/* seconds that the shard's process has spent on contributions and versions */
	double service;
	/* seconds that versions have waited for workers' links, summed over the links */
	double queue;
};

/* How many tasks so far were moved, cloned, filled, and so on. */
struct fal_coord_tasks {
	uint64_t moved, cloned, filled, lost, dropped, skipped;
};

/* The pinned version: under evaluation, and later the version that a failed job leaves.
 */
struct fal_coord_pin {
	/* `clocks`: clocks that were over at `version`; 0: no version is pinned */
	uint64_t version, clocks;
	bool is_under_way; /* the evaluation of the version is under way */
	bool is_evaluated;
	uint64_t next_clock; /* the next evaluation is due when this clock is reached */
};

/* What the job has done so far. */
struct fal_coord_figures {
	double loss;          /* mean loss of the last clock; 0 before the first, NAN: not
				 known, or of no samples */
	double accuracy;      /* of the last evaluation; -1: none yet */
	double accuracy_loss; /* mean loss of the last evaluation; NAN: not known */
	/* clocks that were over at the version of the last evaluation */
	uint64_t judged;
	uint64_t epoch;    /* epochs whose clocks are all over */
	double epoch_loss; /* mean loss of the tasks of the last epoch, or NAN */
	/* The job's metrics in the last clock, the last evaluation, the last epoch, and
	 * the epoch under way. */
	struct fal_coord_metrics {
		struct fal_metrics clock, test, epoch, begun;
	} metrics;
	struct fal_coord_tasks tasks;
};

/* The state of a coordinator at a snapshot's version.  With this state and the shards'
 * image of that version, a new incarnation continues the job as if nothing had
 * happened. */
struct fal_coord_checkpoint {
	uint64_t version, clock; /* clock: clocks that were over at the version */
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
	uint32_t workers; /* how many worker numbers were given out */
	struct fal_coord_pin pin;
	struct fal_coord_figures figures;
	/* Health (eval.c). */
	/* mean loss at the start; Σ of losses in the epoch under way */
	double start_loss, sum_loss;
	uint64_t samples;                 /* in the epoch under way */
	uint64_t epoch_skipped;           /* skipped tasks in the epoch under way */
	char data[2 * FAL_DATA_HASH + 1]; /* hash of the trainers' data; "": none */
	/* `key`: all keys, by number - 1.  `worker`: the workers that are here. */
	struct fal_checkpoint_key {
		char name[FAL_NAME_MAX + 1], fingerprint[FAL_KEY_FINGERPRINT + 1];
		/* charges against the key, for messages of its sessions, since the job
		 * began */
		uint32_t charges;
	} *key;
	struct fal_checkpoint_worker {
		char name[FAL_MSG_NAME];
		uint32_t id;
	} *worker;
	/* Speeds that the scheduler has measured: of workers that are here, and of
	 * workers that were here before a restart and have not come back. */
	struct fal_checkpoint_speed {
		char name[FAL_MSG_NAME];
		uint32_t key; /* number of the key, from 1 */
		struct fal_history is;
	} *speed;
	uint32_t keys, here, speeds; /* lengths of the three lists */
	size_t key_cap, worker_cap, speed_cap;
};

/* Copies `from` to *out, whose old content is not freed; the copy owns its memory.
 * out->policy is NULL. */
void fal_coord_checkpoint_copy(const struct fal_coord_checkpoint *from,
			       struct fal_coord_checkpoint *out);
void fal_coord_checkpoint_free(struct fal_coord_checkpoint *p);

/* A claim that counts. */
struct fal_coord_counted_claim {
	uint64_t round, task_ns;
	uint32_t task;
	int64_t loss;
	const uint8_t *hash;     /* FAL_TASK_HASH bytes, borrowed for the call */
	struct fal_tail metrics; /* as in CLAIM, borrowed as well */
	/* No claim counts, because no worker here has a finite result; `hash` is NULL. */
	bool nonfinite;
};

/* ---- callbacks -------------------------------------------------------------------- */

/* The shards of the job.  When the coordinator is made, the shards must be at version 0
 * and have the initial parameters. lib/server/shard_set.h has functions that fit. */
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
	/* Fills `*out` with what the shard has done.  NULL: the trace has no `shard`
	 * lines. */
	void (*served)(void *arg, uint32_t shard, struct fal_coord_shard_stats *out);
};

/* Callbacks.  No callback may call a function of the coordinator, not even to ask; the
 * coordinator asserts this.  A callback runs while an event is being handled, so the
 * coordinator's state may be incomplete; the arguments contain all that the callback
 * needs.  `peer` is the number that the caller has given to a session: from 1, and never
 * used for another session.  Names are borrowed for the call.  Callbacks marked + may be
 * NULL. */
struct fal_coord_ops {
	void *arg;
	struct fal_coord_shards shards;
	/* Sends the bytes of a message, borrowed for the call. */
	void (*send)(void *arg, uint32_t peer, const struct fal_buf *msg);
	/* Makes each shard publish a version to the session, whose VERSION message was
	 * just sent.  A shard publishes the version at once, or as soon as the shard
	 * has made the version; a shard that has dropped the version by then publishes
	 * nothing. */
	void (*model)(void *arg, uint32_t peer, const struct fal_coord_publication *m);
	/* Closes the session once all its messages are sent; the last message is a
	 * REFUSE or LATER with the reason `why`. */
	void (*close)(void *arg, uint32_t peer, const char *why);
	/* + came: a worker is ready.  went: a worker that was ready has gone. */
	void (*came)(void *arg, uint32_t peer, const char *name, const char *key);
	void (*went)(void *arg, uint32_t peer, const char *name, const char *why);
	/* + The worker becomes a suspect: the worker has missed its deadline, and others
	 * do its tasks.  Or the worker stops being a suspect. */
	void (*late)(void *arg, uint32_t peer, const char *name,
		     const struct fal_coord_suspect *late);
	/* + Worker [0] computes other bits than worker [1], whose numerics lead;
	 * `kernels` as in READY. */
	void (*odd)(void *arg, const char *const name[2], const char *const kernels[2]);
	/* + Verification has found unlike results. */
	void (*unlike)(void *arg, const struct fal_coord_mismatch *is);
	/* + An update or a change of weights has left blocks unchanged. */
	void (*unstepped)(void *arg, const struct fal_coord_skipped_blocks *is);
	/* Writes one line of the trace, without its newline; borrowed for the call. */
	void (*trace)(void *arg, const char *line, size_t n);
	/* + Writes the policy to disk (fsync) before the callback returns: `p` is about
	 * to hold from `clock` on; the key named `by` wants `p`; `version` is the newest
	 * version.  If the callback returns an error, the coordinator gives up the
	 * change. */
	int (*journal)(void *arg, const struct fal_policy *p, uint64_t clock,
		       uint64_t version, const char *by);
	/* + A snapshot, as fal_coord_request_snapshot asks for, is complete.  The shards
	 * have the image of the version, the trace has all lines of the version, and
	 * `past` (borrowed for the call) is the rest of the snapshot. */
	void (*marked)(void *arg, const struct fal_coord_checkpoint *past);
	/* + A move is over, and `map` is in force.  err 0: the shards were told to use
	 * `map`; an error: the blocks did not move. */
	void (*moved)(void *arg, const struct fal_map *map, int err);
	/* `claimed`, `given` and `evaluated` are called only with conf.above.  claimed:
	 * a claim of a task counts.  given: a round is over, and its sum was forwarded
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

/* The coordinator above: this coordinator is one worker of the job of the coordinator
 * above. */
struct fal_coord_upstream {
	const char *address;
	const char *key, *key_fingerprint; /* the key of this worker */
};

/* The best evaluation.  `clock`: clocks that were over, 0: there is none; `loss`: mean
 * loss, NAN: not known. */
struct fal_coord_best {
	uint64_t clock;
	double accuracy, loss;
};
/* Returns true if the evaluation `is` is better than the evaluation `than`. */
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
	/* an evaluation follows after so many clocks; 0: only at the end of the job */
	uint32_t eval_every;
	size_t params;
	uint32_t shards; /* 0: one; at most FAL_SHARDS_MAX */
	/* the map of the shards; borrowed for the call; NULL: an even map */
	const struct fal_map *map;
	bool psld; /* fal_coord_balance proposes moves */
	/* The `place` line, which says which shard has which block; borrowed for the
	 * call; NULL: the trace gets no such line. */
	const struct fal_line_place *place;
	struct fal_optim optim; /* for the trace */
	struct fal_schedule schedule;
	/* The job stops when the best evaluation is this number of clocks old; 0: never.
	 */
	uint64_t patience;
	struct fal_coord_best best; /* so far; {0}: none */
	struct fal_metric_names metrics;
	/* Mean loss of a model that guesses: much larger losses mean that the job has
	 * diverged.  0: no loss is too large. */
	double guess;
	bool audit_sums;
	/* The trace has the hash of each version whose number is a multiple of this
	 * number, and of some other versions; 0 counts as 1. */
	uint32_t hashes;
	bool task_hashes; /* claims carry the hash of their task's result */
	/* With task_hashes.  `verify`: the share of claims, 0 to 1, whose tasks a worker
	 * of another key computes once more; `verify_stop`: unlike results end the
	 * job. */
	double verify;
	bool verify_stop;
	bool skips; /* fal_sched_conf.skips */
	/* Unless NULL, the work comes from another coordinator (external_rounds.c).
	 * Then only fal_coord_add_external_round begins a round, this coordinator makes
	 * no version, and tasks are skipped even if `skips` is false.  Borrowed for the
	 * call of fal_coord_new. */
	const struct fal_coord_upstream *above;
	/* the hash of their own data that trainers must send; 0: any hash, but the same
	 * hash from all trainers */
	uint8_t data[FAL_DATA_HASH];
	uint32_t lanes_start;
	bool preclaims; /* fal_sched_conf.preclaims */
	/* the first clock begins when this many workers are ready */
	uint32_t min_workers;
	/* Sizes of the texts that follow WELCOME. */
	uint32_t text_n[FAL_TEXTS];
	/* The state of an earlier coordinator at the version that the shards have;
	 * borrowed for the call.  NULL: the job begins. */
	const struct fal_coord_checkpoint *past;
	/* The earlier trace, for the `restart` line; lines 0: there is none. */
	struct fal_coord_trace {
		double t;       /* time of the last line */
		uint64_t lines; /* number of lines up to the snapshot */
		/* the number of clocks that had ended when the trace ended */
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

/* Sets when failed trainers end the job while no worker is here: at once if trainers of
 * `keys` keys have failed, else `seconds` after the last failure. */
void fal_coord_set_trainer_wait(struct fal_coord *c, double seconds, uint32_t keys);
/* Returns the failure of the last trainer that failed since a task counted; "": none. */
const char *fal_coord_trainer_failure(const struct fal_coord *c);

/* ---- sessions --------------------------------------------------------------------- */

/* The key of a session.  All borrowed for the call. */
struct fal_coord_session {
	const char *key;         /* name of the key that opened the session */
	const char *fingerprint; /* fal_key_fingerprint of the key */
	/* index in the keyring; in a draw the first key decides */
	uint32_t place;
	double rtt; /* seconds of a round trip, by the handshake; 0: unknown */
};

/* Opens a session whose key may send a worker's messages.  The caller must open a session
 * before passing on its first message.  Sessions whose keys have the same name or
 * fingerprint belong to one key, and count as one witness. */
void fal_coord_session_open(struct fal_coord *c, uint32_t peer,
			    const struct fal_coord_session *who);

/* Handles a message of a session.  After an error, described in `diag`, the caller must
 * close the session and call fal_coord_session_end. */
int fal_coord_msg(struct fal_coord *c, double now, uint32_t peer, const struct fal_msg *m,
		  struct fal_diag *diag);

/* Returns true if the session has sent HELLO, but not LEAVE. */
bool fal_coord_session_is_present(const struct fal_coord *c, uint32_t peer);

/* Ends a session that is closed; ignores unknown sessions. */
int fal_coord_session_end(struct fal_coord *c, double now, uint32_t peer,
			  const char *why);

/* Writes to the trace that sessions of the key were ended because of their messages:
 * `count` sessions since the last call, the last of them for the reason `why`. */
void fal_coord_trace_refusals(struct fal_coord *c, double now, const char *key,
			      const char *why, uint64_t count);

/* Tells the coordinator, for the trace, how many bytes the session has received and sent
 * so far. */
void fal_coord_set_traffic(struct fal_coord *c, uint32_t peer, uint64_t rx, uint64_t tx);

/* ---- time and shards -------------------------------------------------------------- */

/* Returns the trace's time of a line that is written now, in seconds: the time of `now`,
 * but never before the time of the last line. */
double fal_coord_trace_time(struct fal_coord *c, double now);

/* Handles reports, borrowed for the call, of shards that do not answer commands at
 * once. */
int fal_coord_take_result(struct fal_coord *c, double now,
			  const struct fal_shard_result *r);

/* Does the work that is due.  The caller must call this at fal_coord_next_deadline;
 * sooner is allowed. */
int fal_coord_tick(struct fal_coord *c, double now);
/* Returns the time at which fal_coord_tick must be called; infinity: there is no such
 * time. */
double fal_coord_next_deadline(const struct fal_coord *c);

/* ---- snapshots (checkpoint.c) ----------------------------------------------------- */

/* Requests a snapshot, of the next version that can have one, unless a snapshot is under
 * way; ops.marked follows. */
void fal_coord_request_snapshot(struct fal_coord *c);
/* Makes a snapshot of the newest version at once, if possible; ops.marked is then called
 * before this returns. */
int fal_coord_snapshot_now(struct fal_coord *c, double now);

/* ---- requests of controllers ------------------------------------------------------ */

/* Requests policy `p` (copied); `by` is the name of the key that requests the policy,
 * for the trace and the journal (copied).  If the policy has the rule in force, the
 * policy holds at once; else no round begins until the rounds under way are over, and
 * then the policy holds.  ops.journal and then ops.changed are called, perhaps before
 * this returns.  FAL_ESTATE with `diag`: another change is under way, or the job is
 * over; nothing is called then. */
int fal_coord_set_policy(struct fal_coord *c, double now, const struct fal_policy *p,
			 const char *by, uint64_t ticket, struct fal_diag *diag);

/* Returns the policy that waits for its boundary, and the name of the key that wants it,
 * both borrowed until the next call; NULL: none waits. */
const struct fal_policy *fal_coord_pending_policy(const struct fal_coord *c,
						  const char **by);
/* While a policy with another rule waits, replaces the policy in force by `p`, at once,
 * and the waiting policy by `next` (both copied).  Neither rule may change.  FAL_ESTATE:
 * a rule differs, no policy with another rule waits, blocks move, or the job is over. */
struct fal_coord_adjustment {
	const struct fal_policy *p, *next;
	const char *by;
	uint64_t clock; /* out: `p` holds from this clock on */
	int kept;       /* out: the result of ops.journal; an error: nothing changed */
};
int fal_coord_adjust_policy(struct fal_coord *c, double now,
			    struct fal_coord_adjustment *b);

/* Cancels the change of policy with this ticket, if the change still waits for its
 * boundary; ops.changed is not called. */
int fal_coord_cancel_policy(struct fal_coord *c, double now, uint64_t ticket);

/* Schedules policy `p` (copied) of a job that continues.  Before the restart, key `by`
 * had set `p` from `clock` on; `p` will hold from the same clock again.  The caller must
 * schedule policies in the order of their clocks, before a worker is here. */
void fal_coord_schedule_policy(struct fal_coord *c, const struct fal_policy *p,
			       uint64_t clock, const char *by);

/* Returns the policy in force, borrowed until the next call. */
const struct fal_policy *fal_coord_policy_in_force(const struct fal_coord *c);
/* Returns the next clock to begin. */
uint64_t fal_coord_next_clock(const struct fal_coord *c);

/* Pauses the job (`hold`) or resumes it; `by` is the name of the key, for the trace.
 * Rounds under way end as usual; no round begins during the pause. */
int fal_coord_pause(struct fal_coord *c, double now, bool hold, const char *by);

/* Tells the ready workers of this name to finish or hand back their tasks, and then to
 * leave.  FAL_ENOENT with `diag`: there is none. */
int fal_coord_drain_worker(struct fal_coord *c, double now, const char *name,
			   struct fal_diag *diag);

/* Stops the job: no further round begins.  The status says `stopping` from now on, and
 * `stopped` once the rounds under way are over.  `by` is the name of the key, for the
 * trace. */
int fal_coord_stop(struct fal_coord *c, double now, const char *by);

/* Moves the blocks (placement.c; design.md, D38) to the map `to`, which must include all
 * shards of the present map; the new map gets an epoch of its own.  No round begins until
 * those under way are over; then the shards are told.  The new map holds when each shard
 * has all its new blocks.  ops.moved is called, perhaps before this returns.  FAL_ESTATE
 * with `diag`: another move is under way, or the job is over; FAL_EINVAL: there is no
 * such map; nothing is called then. */
int fal_coord_move_blocks(struct fal_coord *c, double now, const struct fal_map *to,
			  const char *by, struct fal_diag *diag);
/* Cancels the move that is under way, if there is one.  The caller must call this when a
 * shard that had no blocks yet is gone. */
int fal_coord_abort_move(struct fal_coord *c, double now);
/* Returns the map of the move that is under way, or waits for its boundary, borrowed
 * until the next call; NULL: there is none. */
const struct fal_map *fal_coord_pending_map(const struct fal_coord *c);

/* With conf.psld, proposes a move; the caller asks after each event (server/psld.h).
 * `may` is the set of shards that may get blocks, as bits; other shards keep what they
 * have.  NULL: nothing should move.  Else *to and the result are the arguments `to` and
 * `by` for fal_coord_move_blocks.  A proposal that the caller does not carry out has no
 * effect. */
#define FAL_PSLD_BY "psld"
const char *fal_coord_balance(struct fal_coord *c, uint64_t may, struct fal_map *to);

/* ---- with conf.above (external_rounds.c; design.md, D50) -------------------------- */

/* As fal_sched_open_external: begins a round of the coordinator above.  FAL_EINVAL, and
 * the job continues: the shards do not retain its version. */
int fal_coord_add_external_round(struct fal_coord *c, double now,
				 const struct fal_external_task *b, uint64_t *round);
/* As fal_sched_cancel_external: the coordinator above no longer needs the round.
 */
int fal_coord_cancel_external_round(struct fal_coord *c, double now, uint64_t round);
/* As fal_sched_set_version: installs a version of the coordinator above; the caller adds
 * the parameters to the command (FAL_ORDER_INSTALL).  Versions may be missing between two
 * calls.  Versions below `oldest` are no longer needed.  FAL_EINVAL, and the job
 * continues: the version is older than the newest, or than its `oldest`. */
int fal_coord_install_version(struct fal_coord *c, double now, uint64_t version,
			      uint64_t oldest);
/* Pins the version, which the shards must retain, for evaluation.  FAL_EINVAL: the shards
 * do not retain the version. */
int fal_coord_evaluate_external(struct fal_coord *c, double now, uint64_t version);
/* Evaluates a test task of that version.  FAL_EINVAL: another version is pinned, or there
 * is no such task. */
int fal_coord_evaluate_task(struct fal_coord *c, double now, uint64_t version,
			    uint32_t task);

/* All workers that are ready, described as one worker of the same speed. */
struct fal_coord_aggregate {
	uint32_t workers, lanes; /* lanes: 1 to FAL_LANES_MAX */
	/* nanoseconds of a task on one of the lanes; 0: unknown */
	uint64_t task_ns;
	/* The workers' fingerprint or, if they have several, fal_coord_mixed_fingerprint.
	 */
	uint8_t fingerprint[FAL_FINGERPRINT];
};
/* Fills `out` with the fingerprint that stands for workers of unlike numerics: the
 * fingerprint of a nondeterministic worker. */
void fal_coord_mixed_fingerprint(uint8_t out[static FAL_FINGERPRINT]);
void fal_coord_aggregate(const struct fal_coord *c, struct fal_coord_aggregate *out);
/* Ends the trace, as the coordinator above is gone.  The caller may tell the workers to
 * wait. */
void fal_coord_lose_upstream(struct fal_coord *c, double now, const char *why);

/* ---- status and end --------------------------------------------------------------- */

/* A version that the job leaves as its result; the shards still have the version. */
struct fal_coord_outcome {
	uint64_t version, clock; /* clock: clocks that were over at the version */
	/* the job failed because the trainers of all workers failed */
	bool trainers;
};
/* Fills `*out` with the version that a failed job leaves: the version at the last end of
 * an epoch, or at the last evaluation, before anything went wrong.  Returns false if
 * there is none. */
bool fal_coord_last_good_version(const struct fal_coord *c,
				 struct fal_coord_outcome *out);
/* Fills `*out` with the newest version.  The newest version is always complete and
 * finite, even after an error, because a step that has begun always ends.  Returns false
 * if nothing was trained. */
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
	/* conf.patience has stopped the job, or will stop it */
	bool patience_is_over;
	size_t agains; /* policies of fal_coord_schedule_policy that wait for their clocks
			*/
};
struct fal_coord_status fal_coord_status(const struct fal_coord *c);
/* Returns the mean loss of the tasks of an epoch that is over, from 1; the last 8 epochs
 * since this start are known.  NAN: not known.  Sets *metrics to the epoch's metrics. */
double fal_coord_epoch_loss(const struct fal_coord *c, uint64_t epoch,
			    struct fal_metrics *metrics);

/* The results of fal_bound_sizes, by the probes of the workers that are ready. */
struct fal_coord_task_sizes {
	/* `workers`: workers that have probed; `lanes`: the lanes of these workers, but
	 * at most one for each core */
	uint32_t workers, lanes;
	double whole, small;
};
void fal_coord_task_sizes(const struct fal_coord *c, struct fal_coord_task_sizes *out);

/* The result of the job, borrowed for the call. */
struct fal_coord_result {
	/* 64 hex digits each: the SHA-256 of the model's file, and the hash of the
	 * version (trace/chain.h).  NULL: the coordinator above has these */
	const char *sha256, *hash;
	const char *journal; /* the last link of what ops.journal wrote, or "" */
	double seconds;      /* seconds of training, as in the result file */
};
/* Ends the job: writes the `done` line and tells all workers; or, if the job has failed
 * or `why` is not NULL, writes the `failed` line and refuses all workers.  `why` names
 * what the caller failed to do; the caller must keep the text until fal_coord_free. */
void fal_coord_finish(struct fal_coord *c, double now,
		      const struct fal_coord_result *result, const char *why);

#endif
