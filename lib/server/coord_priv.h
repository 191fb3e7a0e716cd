/* The coordinator's state, private to the coordinator's files.  Each file calls only
 * files below it in this list:
 *
 *	external_rounds.c  work and versions of another coordinator
 *	coordinator.c      all other events: the job's beginning and end, messages
 *	                   of sessions, requests of controllers, time
 *	policy.c           policies, and the boundaries at which they change
 *	commit.c           the scheduler's actions and the shards' reports: rounds,
 *	                   updates, versions, and their trace lines
 *	checkpoint.c       the state that a snapshot keeps, and the restart from it
 *	eval.c             evaluations; whether the model learns; verified claims
 *	sessions.c         keys, workers, their numerics and data; trainers that fail
 *	placement.c        the map from blocks to shards: waits, balance, moves
 *	coord_base.c       tables, trace lines, messages, commands to shards
 *
 * Some calls fail only if a shard is broken or this program has a mistake.  Their
 * callers do not handle the error: coord_record_error keeps the first such error in
 * c->err, which ends the job.
 *
 * Calls that can fail return 0 or a negative enum fal_err. */
#ifndef FAL_SERVER_COORD_PRIV_H
#define FAL_SERVER_COORD_PRIV_H

#include "base/rng.h"
#include "crypto/hash.h"
#include "sched/bound.h"
#include "server/coord.h"
#include "server/psld.h"
#include "wire/bfp.h"
#include "wire/shard_wait.h"

#include <assert.h>

enum { CLOCK_LINES_MAX = 4, HEALTH_LOSSES = 8, TEST_RESULTS_MAX = 3 };

/* ---- sessions --------------------------------------------------------------------- */

/* A key that has opened a session. */
struct coord_known_key {
	struct fal_checkpoint_key record;
	uint32_t place; /* index of the key in the keyring */
	/* the last data hash that a session of the key has sent (sessions.c) */
	uint8_t data[FAL_DATA_HASH];
	bool failed; /* a trainer of the key's workers has failed since a task counted */
};

/* A worker, present or not. */
struct coord_known_worker {
	uint32_t key;
	uint32_t session; /* 0: the session is over */
	uint8_t fingerprint[FAL_FINGERPRINT];
	char name[FAL_MSG_NAME];
	bool momentum; /* the shards have a momentum for this worker alone */
};

/* A `clock` line that waits until its worker reports how the worker spent the time. */
struct coord_clock_line {
	uint64_t round, clock;
	bool own; /* the round is the worker's own */
	uint64_t rx, tx;
	struct fal_worker_info info;
	struct fal_work work;
};

/* A session of a worker. */
struct coord_peer {
	uint32_t id; /* of the session */
	/* number of the key: keys are numbered from 1 in the order of their first
	 * sessions */
	uint32_t key;
	/* number of the worker in ledger and trace, from 1; 0: READY has not come */
	uint32_t worker;
	char name[FAL_MSG_NAME];
	/* version of the worker's program, from its HELLO */
	char build[FAL_MSG_NAME];
	uint8_t instance[FAL_INSTANCE]; /* identifies the worker's process */
	enum coord_peer_state {
		PEER_OPENED,
		PEER_GREETED, /* has sent HELLO */
		PEER_READY,   /* has sent READY */
		PEER_LEFT     /* has sent LEAVE, or the job is over */
	} state;
	bool is_group_server;
	/* the coordinator has told the worker to leave, or ends its session */
	bool leaves_in_order;
	/* the worker's numerics differ from the leading numerics */
	bool has_other_numerics;
	uint32_t lanes_min, lanes_max, cores;
	char kernels[FAL_MSG_NAME];
	uint8_t fingerprint[FAL_FINGERPRINT];
	uint8_t data[FAL_DATA_HASH]; /* hash of the worker's own data, from its READY */
	/* seconds of a round trip in the handshake; 0: unknown */
	double rtt;
	uint64_t ping_clock; /* the first claim from this clock on causes a PING */
	/* bytes that the worker has received and sent in the session */
	uint64_t rx, tx;
	struct {
		uint64_t task_ns;  /* ns of a task with one lane in use; 0: not probed */
		uint64_t large_ns; /* ns of one task of `large` samples; 0: not probed */
		uint32_t large;
	} probe;
	struct {                                                  /* `clock` lines */
		struct coord_clock_line pending[CLOCK_LINES_MAX]; /* oldest first */
		uint32_t n_pending;
		/* the worker has reported its time for all rounds before this one */
		uint64_t next_round;
		/* the bytes that the lines so far have counted */
		uint64_t rx, tx;
		double greeted_at, joined_at; /* times of HELLO and READY */
		/* seconds that the lines after the first one cover, summed */
		double reported_s;
		bool has_first; /* the first line is written */
	} lines;
	struct {               /* versions announced to the worker */
		uint32_t n;    /* number of VERSION messages sent */
		uint64_t next; /* the first version that was not announced */
		/* the worker may have forgotten the versions before this one, except
		 * those in `repeated` */
		uint64_t oldest;
		uint64_t repeated; /* bit i is version oldest - 1 - i */
		/* the last version was of a branch; the worker may have forgotten all
		 * other versions */
		bool is_on_branch;
		/* the version that the worker was told to keep for evaluation;
		 * UINT64_MAX: none */
		uint64_t pinned_version;
	} announced;
};

struct coord_sessions {
	struct coord_peer *peer; /* sorted by id */
	uint32_t peers;
	size_t peer_cap;
	struct coord_known_key *key; /* by number - 1 */
	uint32_t keys;
	size_t key_cap;
	/* all workers that have ever joined, by number - 1 */
	struct coord_known_worker *worker;
	uint32_t workers;
	size_t worker_cap;
	uint32_t n_ready;
	/* Workers that have left, but whose momentum the shards still hold. */
	uint32_t *leaver;
	uint32_t leavers;
	size_t leaver_cap;
	/* a session of a ready worker has ended since coord_advance began */
	bool has_ended;
	/* Speeds of workers that were here before a restart and are not back. */
	struct fal_checkpoint_speed *former_speed;
	uint32_t n_former_speeds;
	size_t former_speed_cap;
	struct { /* the last worker whose local steps diverged; key 0: none */
		uint32_t key;
		uint64_t clock;
	} diverged;
	struct {
		uint32_t keys; /* fal_coord_set_trainer_wait */
		double wait_s;
		/* The last trainer that failed since a task counted; "": none. */
		char why[FAL_MSG_WHY + FAL_MSG_NAME + 24];
		double failed_at;
	} trainer;
};

/* ---- versions, rounds and updates ------------------------------------------------- */

struct coord_versions {
	/* the newest version that the shards were told to make */
	uint64_t newest;
	uint64_t published;        /* the newest version that all shards have made */
	uint64_t published_clocks; /* clocks that were over at `published` */
	uint64_t oldest;           /* the oldest of the `retained` newest versions */
	/* the number of newest versions on which workers may compute */
	uint32_t retained;
	/* The newest version was ordered early, while tasks of its rounds were under way,
	 * and is not announced yet.  Until then workers have versions from
	 * `oldest_announced` on. */
	bool newest_is_withheld;
	uint64_t oldest_announced;
	uint64_t *needed; /* scratch: the versions of a worker's open rounds */
	size_t needed_cap;
};

/* The shards' reports on an open round.  A set of shards is a mask of bits. */
struct coord_round_acks {
	uint64_t round; /* the first member, because the list is sorted by round */
	/* shards of which every block has counted all tasks of the round */
	uint64_t complete;
	uint64_t ended; /* shards that have ended the round, after an early order */
	/* By the contribution's index in the ledger: the shards that have the whole
	 * contribution, and the shards that have fenced the contribution. */
	struct coord_contribution_acks {
		uint64_t whole, fenced;
	} *contribution;
	size_t contribution_cap;
	uint32_t n_contributions;
};

/* A round that was collected for an update. */
struct coord_collected {
	uint64_t round;
	/* the group whose branch was stepped by the round; 0: none */
	uint32_t branch;
	uint64_t loss, samples; /* sums over the round's tasks; `loss` modulo 2^64 */
	bool loss_is_unknown;   /* the loss of some task is not known */
	struct fal_metrics metrics;
	uint64_t clock;
	/* all tasks of the round belong to one worker or one group, and its loss was
	 * counted when it ended */
	bool is_own;
};

/* A `ledger` or `update` line that waits until all shards have reported. */
struct coord_pending_line {
	struct fal_act act; /* END or STEP */
	uint64_t acks;      /* shards that have reported */
	/* `unstepped`: the number of blocks that were not stepped, or that do not get a
	 * change of weights.  `unstepped_by`: the worker with the largest value, which
	 * is about 2^unstepped_exponent. */
	uint32_t unstepped, unstepped_by;
	int8_t unstepped_exponent;
	/* END: `sum_added` is the checksum of the whole sum, `sum` the checksums of the
	 * contributions, by index in the ledger. */
	uint64_t sum_added, *sum;
	size_t sums, sum_cap;
	/* STEP: */
	uint64_t version;       /* the version that the step makes */
	uint32_t first, rounds; /* the update's rounds, in rounds.collected */
	uint64_t samples;
	double loss; /* mean */
	struct fal_metrics metrics;
	float lr;
	struct fal_branch_push *branch; /* branches that are merged */
	uint32_t n_branches;
	/* the norm of the mean gradient; 0: gradients are not clipped */
	double norm;
	uint64_t clocks_over; /* at the version */
	bool has_gradients;
	bool has_snapshot;
	/* For the hash of the version: the leaves of the blocks of shards that have
	 * reported, then the exponents of these blocks.  NULL: the version gets no hash,
	 * or the hash is made. */
	uint8_t *leaves;
	bool has_hash;
	uint8_t hash[FAL_HASH_BYTES], exponents[FAL_HASH_BYTES];
};

struct coord_rounds {
	struct coord_round_acks *acks; /* of open rounds, sorted */
	size_t n_acks, acks_cap;
	struct coord_pending_line *pending; /* in the order of the trace */
	uint32_t n_pending;
	size_t pending_cap;
	/* The first n_in_updates rounds belong to updates whose lines are pending; the
	 * other rounds are for the next update. */
	struct coord_collected *collected;
	uint32_t n_collected, n_in_updates;
	size_t collected_cap;
	bool has_gradients; /* the next update has collected gradients */
	/* Branches that the next update merges; their rounds come first among the rounds
	 * for the next update. */
	struct fal_branch_push *branch;
	uint32_t n_branches, n_branch_rounds;
	size_t branch_cap;
	/* The versions on which tasks of open mixed rounds were granted. */
	struct fal_granted_on *granted;
	size_t n_granted, granted_cap;
	/* the squares of the mean gradient, by block; used if gradients may be
	 * clipped */
	double *squares;
	uint64_t squares_from; /* the shards that have reported their squares */
};

/* ---- evaluation and health -------------------------------------------------------- */

struct coord_evaluation {
	struct fal_coord_pin pin;
	/* the version to evaluate next; 0: its update was not ordered yet */
	uint64_t next_version;
	uint32_t tasks;
	bool has_drawn; /* the coordinator has chosen the tasks that are run twice */
	struct coord_test_task {
		struct coord_test_result {
			uint32_t worker, key, right;
			int64_t loss;
			struct fal_metrics metrics;
			uint8_t fingerprint[FAL_FINGERPRINT];
		} result[TEST_RESULTS_MAX]; /* the first one counts */
		uint32_t results;
		/* a repetition of the task by another key was wanted; perhaps no other
		 * key was here */
		bool repeat_was_wanted;
	} *task;
	size_t task_cap;
};

struct coord_health {
	/* mean loss of a model that guesses, or mean loss at the first update */
	double start;
	uint64_t clocks_over; /* clocks that are over by the newest update */
	/* mean losses of the last epochs, by epoch modulo HEALTH_LOSSES */
	double loss[HEALTH_LOSSES];
	struct fal_metrics metrics[HEALTH_LOSSES]; /* likewise */
	uint64_t first; /* the first epoch whose loss is in `loss` */
	/* Epochs that have begun and are not over, ascending: only epochs of clocks that
	 * are open in the scheduler. */
	struct coord_health_epoch {
		uint64_t epoch; /* from 1 */
		/* sums over the tasks that are in the model, or will be */
		double loss;
		struct fal_metrics metrics;
		/* `samples`: samples of these tasks; `skipped`: number of skipped
		 * tasks */
		uint64_t samples, skipped;
		struct coord_health_key { /* claims, by number of the key - 1 */
			double loss[2]; /* [0]: losses that are not known, counted at the
					   bound; [1]: known losses */
			uint64_t samples[2];
		} *key;
		size_t keys, key_cap;
	} *epoch;
	double *scratch;
	size_t epochs, epoch_cap, scratch_cap;
};

/* ---- placement, policy, other parts ----------------------------------------------- */

/* The workers' waits for shards. */
struct coord_wait_rows {
	struct coord_wait_row {
		uint32_t worker;
		struct fal_shard_wait waits[FAL_SHARDS_MAX]; /* by shard */
	} *row;
	size_t n, cap;
};

struct coord_placement {
	struct fal_map map; /* the map in force */
	struct coord_move {
		enum coord_move_state {
			MOVE_NONE,
			MOVE_PENDING, /* waits for a boundary */
			MOVE_RUNNING  /* the shards have the order */
		} state;
		double started_at; /* when the shards got the order */
		/* the shards that have reported to be ready for next_map */
		uint64_t ready;
		struct fal_map next_map;
		/* epoch of the last move, even if that move was aborted */
		uint32_t epoch;
		char wanted_by[FAL_MSG_NAME]; /* name of the key */
	} move;
	struct coord_balance {
		bool is_on;
		struct coord_wait_rows rows; /* since the last measurement */
		uint64_t clocks_over;        /* at the last measurement */
		/* time of the last measurement; NAN: there was none */
		double measured_at;
		/* a move has just ended, so the next rows still describe the map before
		 * the move */
		bool is_stale;
		/* a clock was measured; the next two members describe it */
		bool is_due;
		double seconds;
		struct fal_psld_measurement seen[FAL_SHARDS_MAX]; /* by shard */
		struct fal_psld *psld;
		uint64_t set;                   /* shards of `psld` */
		uint32_t order[FAL_SHARDS_MAX]; /* shard by psld's number */
		uint32_t shards;
	} balance;
	struct coord_shard_lines {
		struct coord_wait_rows rows; /* since the last `shard` lines */
		/* the first clock that the last `shard` lines do not cover */
		uint64_t first_clock;
		uint64_t clocks_over;                 /* by the newest update */
		uint64_t version;                     /* of that update */
		struct fal_coord_shard_stats *served; /* by shard, at the last lines */
		double *scratch;
		size_t scratch_cap;
	} lines;
};

/* Requests of controllers, and what is left to do for them. */
struct coord_policy_control {
	bool has_pending; /* `pending` waits for its boundary */
	struct fal_policy pending;
	uint64_t ticket;
	char pending_by[FAL_MSG_NAME];  /* name of the key that wants `pending` */
	char set_by[FAL_MSG_NAME];      /* name of the key that set the policy in force */
	struct coord_scheduled_policy { /* fal_coord_schedule_policy, in order */
		struct fal_policy policy;
		uint64_t clock;
		char set_by[FAL_MSG_NAME]; /* name of the key */
	} *scheduled;
	size_t n_scheduled, scheduled_cap;
	bool is_paused; /* fal_coord_pause */
	enum coord_stop_state {
		STOP_NONE,
		STOP_ASKED,  /* fal_coord_stop */
		STOP_REACHED /* the rounds under way are over */
	} stop;
	/* With job.patience: the job stops when this many clocks are over; 0: no such
	 * stop is planned. */
	uint64_t stop_clock;
	/* rounds are not shared under some policy of the job, so clocks may end in any
	 * order */
	bool clocks_end_out_of_order;
};

struct coord_snapshot {
	/* the next version that can have a snapshot is to have one */
	bool is_wanted;
	bool is_being_made;
	/* the content of the snapshot that is being made */
	struct fal_coord_checkpoint state;
};

/* Versions of another coordinator (external_rounds.c). */
struct coord_external {
	bool has_version;
	uint64_t *installed; /* versions that the shards retain, ascending */
	size_t n_installed, installed_cap;
};

struct fal_coord {
	struct fal_coord_conf conf;
	struct fal_coord_ops ops;
	bool is_in_callback;  /* a callback is running */
	int err;              /* the first error that ends the job; 0: none */
	double start;         /* time 0 of the trace */
	double newest_line_s; /* time of the newest trace line, from start */
	struct fal_sched *sched;
	struct fal_rng rng;
	uint64_t clocks; /* number of clocks of the whole job */
	/* min_workers workers were ready at some time, so training may begin */
	bool has_begun;
	bool is_external; /* conf.above was not NULL */
	bool is_finished;
	const char *failure; /* why the job stopped, or NULL */
	/* memory of `failure`, if a shard reported the failure */
	char shard_failure[FAL_MSG_WHY];
	struct coord_sessions sessions;
	struct coord_versions versions;
	struct coord_rounds rounds;
	/* reports of shards on commands and pushes that are not handled yet; empty
	 * between two events */
	struct fal_shard_result result;
	struct coord_evaluation evaluation;
	struct coord_health health;
	struct coord_placement placement;
	struct coord_policy_control control;
	struct coord_snapshot snapshot;
	struct coord_external external;
	struct fal_coord_figures figures;
	struct fal_buf trace_line; /* scratch */
};

/* Each public function calls this first: asserts that the function is not called by a
 * callback. */
static inline void
coord_enter(const struct fal_coord *c)
{
	assert(!c->is_in_callback);
}

/* Marks the start of a callback; returns the callback's argument. */
static inline void *
coord_begin_callback(struct fal_coord *c)
{
	assert(!c->is_in_callback);
	c->is_in_callback = true;
	return c->ops.arg;
}

static inline void
coord_end_callback(struct fal_coord *c)
{
	c->is_in_callback = false;
}

/* Calls c->ops.op with these arguments, unless that member is NULL. */
#define COORD_CALL(c, op, ...)                                             \
	do {                                                               \
		if ((c)->ops.op != NULL) {                                 \
			(c)->ops.op(coord_begin_callback(c), __VA_ARGS__); \
			coord_end_callback(c);                             \
		}                                                          \
	} while (0)

/* Returns the next session after `p` (NULL: the first session) whose state is from
 * `state` to PEER_READY; NULL: there is none. */
static inline struct coord_peer *
coord_next_peer(const struct fal_coord *c, const struct coord_peer *p,
		enum coord_peer_state state)
{
	uint32_t i = p == NULL ? 0 : (uint32_t)(p - c->sessions.peer) + 1;
	for (; i < c->sessions.peers; i++)
		if (c->sessions.peer[i].state >= state &&
		    c->sessions.peer[i].state <= PEER_READY)
			return &c->sessions.peer[i];
	return NULL;
}

/* The key of this number. */
static inline struct coord_known_key *
coord_key(const struct fal_coord *c, uint32_t number)
{
	assert(number > 0 && number <= c->sessions.keys);
	return &c->sessions.key[number - 1];
}

/* The worker of this number, present or not. */
static inline struct coord_known_worker *
coord_worker(const struct fal_coord *c, uint32_t number)
{
	assert(number > 0 && number <= c->sessions.workers);
	return &c->sessions.worker[number - 1];
}

/* Returns true if no further round begins. */
static inline bool
coord_is_over(const struct fal_coord *c)
{
	return c->is_finished || c->failure != NULL || c->control.stop != STOP_NONE;
}

/* ---- coord_base.c ---- */

/* Returns the index of session `id` in sessions.peer, or the index at which to insert
 * that session. */
uint32_t coord_peer_index(const struct fal_coord *c, uint32_t id);
/* The session, or NULL. */
struct coord_peer *coord_find_peer(const struct fal_coord *c, uint32_t id);
/* Returns the session of the worker; NULL: the session is over. */
struct coord_peer *coord_peer_of_worker(const struct fal_coord *c, uint32_t worker);
/* Returns true if another coordinator made this version and the shards still retain
 * the version. */
bool coord_is_installed(const struct fal_coord *c, uint64_t version);
/* Returns the speed of the worker's lanes at full tasks, as the worker has probed. */
struct fal_bound_lanes coord_probed_lanes(const struct fal_coord *c,
					  const struct coord_peer *p);

/* Writes c->trace_line to the trace. */
void coord_write_line(struct fal_coord *c);
/* Writes the event, a struct fal_ev_*, to the trace. */
void coord_trace_event(struct fal_coord *c, double now, enum fal_event ev,
		       const void *event);
/* Lists the metrics for the trace in `out`; returns their number. */
uint32_t coord_list_metrics(const struct fal_coord *c, const struct fal_metrics *m,
			    struct fal_ev_metric out[static FAL_METRICS_MAX]);
/* Reads the metrics of a CLAIM or EVALUATED of so many samples. */
int coord_read_metrics(const struct fal_coord *c, const struct fal_tail *from,
		       double samples, struct fal_metrics *out, struct fal_diag *diag);
/* Sends a message to a session.  Session 0 stands for a session that is over: nothing is
 * sent. */
void coord_send(struct fal_coord *c, uint32_t peer, struct fal_msg *m);
/* Sends a PING: the answer shows that the session lives, and gives the round trip
 * time. */
void coord_send_ping(struct fal_coord *c, double now, uint32_t peer);
/* Notes `err`, the result of a call that can fail only by a mistake in this program.  An
 * error ends the job, and the shards get no more commands. */
void coord_record_error(struct fal_coord *c, int err);
/* Sends a command to all shards; shards carry commands out in order.  Adds their reports
 * to c->result, which coord_run_actions handles. */
void coord_command_shards(struct fal_coord *c, const struct fal_shard_order *o);
/* The count of versions that shards retain when this one is the newest: a version that is
 * not published yet may have to be pinned, and a shard may still lack tasks of a round
 * that another shard has stepped. */
uint32_t coord_versions_to_retain(const struct fal_coord *c, uint64_t version);
/* Tells the shards to retain the `versions` newest versions from now on. */
void coord_retain_versions(struct fal_coord *c, uint32_t versions);
/* Returns true if the policy changes the rule in force. */
bool coord_changes_rule(const struct fal_coord *c, const struct fal_policy *p);
/* Tells the scheduler whether rounds may begin. */
void coord_hold_rounds(struct fal_coord *c, double now);

/* ---- placement.c ---- */

void coord_placement_free(struct fal_coord *c);
/* Adds up the times that a worker waited for shards, as its WORKED reports them.
 * FAL_EFORMAT, FAL_ELIMIT: the times are impossible. */
int coord_take_waits(struct fal_coord *c, uint32_t worker, const struct fal_msg *m);
/* Writes `shard` lines if they are due: called after each `ledger` or `update` line, and
 * at the end of the job (`at_end`). */
void coord_trace_shards(struct fal_coord *c, double now, bool at_end);
/* If the newest line has ended a clock, measures that clock for fal_coord_balance. */
void coord_measure_clock(struct fal_coord *c, double now);
/* Begins a pending move if nothing is under way (`is_quiet`); drops the move if the job
 * is over. */
void coord_move_advance(struct fal_coord *c, double now, bool is_quiet);
/* Ends a move that was not carried out, because of the error `err`. */
void coord_move_end(struct fal_coord *c, double now, int err);
/* Handles a shard's report that the shard is ready for the next map, or cannot get
 * ready. */
void coord_on_migrated(struct fal_coord *c, double now,
		       const struct fal_shard_report *report);
/* Sends the map in force to the session. */
void coord_send_block_map(struct fal_coord *c, uint32_t peer);

/* ---- sessions.c ---- */

/* Take a message of a session: HELLO, READY, CAPACITY, WORKED, LEAVE.  An error, with
 * `diag`: the session must be closed. */
int coord_on_hello(struct fal_coord *c, double now, struct coord_peer *p,
		   const struct fal_msg *m, struct fal_diag *diag);
/* READY may end this session, and other sessions. */
int coord_on_ready(struct fal_coord *c, double now, struct coord_peer *p,
		   const struct fal_msg *m, struct fal_diag *diag);
int coord_on_capacity(struct fal_coord *c, double now, struct coord_peer *p,
		      const struct fal_msg *m, struct fal_diag *diag);
int coord_on_worked(struct fal_coord *c, double now, struct coord_peer *p,
		    const struct fal_msg *m, struct fal_diag *diag);
int coord_on_leave(struct fal_coord *c, double now, struct coord_peer *p,
		   const struct fal_msg *m, struct fal_diag *diag);
/* Writes the pending `clock` lines of the worker, except the last `left` lines.  The
 * lines have no figures from the worker. */
void coord_write_clock_lines(struct fal_coord *c, double now, struct coord_peer *p,
			     uint32_t left);
/* Sends DONE or, of a failed job, REFUSE. */
void coord_send_end(struct fal_coord *c, uint32_t peer);
/* Sends `last`, which is FAL_MSG_REFUSE or, where the worker may try again,
 * FAL_MSG_LATER, and ends the session.  Does nothing for a session that is over. */
void coord_end_session(struct fal_coord *c, double now, uint32_t peer,
		       enum fal_msg_type last, const char *why);
/* Removes a session that is over; its worker, if ready, leaves. */
void coord_remove_peer(struct fal_coord *c, double now, struct coord_peer *p,
		       const char *why);
/* Charges the worker's key; the worker's session may be over already.  The second charge
 * ends all sessions of the key, if another key has a worker. */
void coord_charge_worker(struct fal_coord *c, double now, uint32_t worker,
			 const char *why);
/* Returns true if the worker computes the same bits each time. */
bool coord_is_deterministic(const uint8_t fingerprint[static FAL_FINGERPRINT]);
/* Writes to `out` the hash of the leading data of trainers, as hex digits; "": no
 * trainer has sent a hash. */
void coord_leading_data_hex(const struct fal_coord *c,
			    char out[static 2 * FAL_DATA_HASH + 1]);
/* Returns the time at which failed trainers end the job if no worker comes until then;
 * infinity: never. */
double coord_trainer_deadline(const struct fal_coord *c);

/* ---- eval.c ---- */

/* Pins and evaluates the version, at which `clocks_over` clocks are over. */
void coord_evaluate_version(struct fal_coord *c, double now, uint64_t version,
			    uint64_t clocks_over);
/* Begins the evaluation of the pinned version anew, at the first task. */
void coord_start_evaluation(struct fal_coord *c, double now);
/* Handles an EVALUATED.  After an error, described in `diag`, the session must be
 * closed. */
int coord_on_evaluated(struct fal_coord *c, double now, struct coord_peer *p,
		       const struct fal_msg *m, struct fal_diag *diag);
/* Returns the number of clocks after its version before which an evaluation must be
 * over. */
uint64_t coord_evaluation_clocks(const struct fal_coord *c);

/* If the best evaluation is as old as conf.patience, sets the clock at which the job
 * stops: the clock before which the last evaluation had to be over, so that the clock
 * does not depend on the evaluation's speed (design.md, I17). */
void coord_check_patience(struct fal_coord *c);

/* Tells the shards to keep the version until the next call; `clocks_over` clocks are over
 * at the version. */
void coord_pin_version(struct fal_coord *c, uint64_t version, uint64_t clocks_over);
/* Adds tasks of the clock that are in the model or will be: `loss` is the sum of the
 * losses of their `samples` samples, `metrics` are the sums of their metrics. */
void coord_health_add_loss(struct fal_coord *c, uint64_t clock, double loss,
			   uint64_t samples, const struct fal_metrics *metrics);
/* Adds the number of skipped tasks of the clock. */
void coord_health_add_skipped(struct fal_coord *c, uint64_t clock, uint64_t tasks);
/* Adds a claim that counts, of a worker of key `key`: `loss` is the sum of the losses of
 * `samples` samples of the clock, in the form of CLAIM. */
void coord_health_add_claim(struct fal_coord *c, uint64_t clock, uint32_t key,
			    int64_t loss, uint32_t samples);
/* Takes an update, after which `clocks_over` clocks are over.  rounds.collected from
 * `first_later` on belongs to later updates.  Ends the job if the job has diverged. */
void coord_health_update(struct fal_coord *c, uint64_t version, uint64_t clocks_over,
			 uint32_t first_later);
/* Returns the counts of the epoch under way; all 0 if no task of the epoch was
 * counted. */
struct coord_health_epoch coord_health_current_epoch(const struct fal_coord *c);
/* Continues with the epochs of c->figures; `start` is the mean loss at first. */
void coord_health_restore(struct fal_coord *c, double start);
void coord_health_free(struct fal_coord *c);
/* Draws whether a worker of another key is to compute a claim of this round once
 * more. */
bool coord_verify_is_drawn(struct fal_coord *c, const struct coord_peer *p,
			   uint64_t round);
/* Handles a CHECKED: compares its result with the claim's result. */
void coord_verify_compare(struct fal_coord *c, double now, const struct coord_peer *p,
			  const struct fal_msg *m);

/* ---- checkpoint.c ---- */

/* Returns true if the next version may have a snapshot. */
bool coord_can_snapshot(const struct fal_coord *c);
/* Notes the state of the job at this version, at which `clocks_over` clocks are over.
 * The shards keep an image of the version. */
void coord_snapshot_begin(struct fal_coord *c, uint64_t version, uint64_t clocks_over);
/* Completes the state when the trace has all lines of the version, and hands the state to
 * ops.marked. */
void coord_snapshot_end(struct fal_coord *c, double now);
/* Sets the state of a new coordinator to the snapshot's state.  FAL_EFORMAT: the data
 * hash in the snapshot is no hash. */
int coord_restore(struct fal_coord *c, const struct fal_coord_checkpoint *p);
/* Writes the `restart` line, and `leave` lines of the workers that were here; if `past`
 * is NULL, the job begins again at version 0. */
void coord_trace_restart(struct fal_coord *c, const struct fal_coord_checkpoint *past);

/* ---- commit.c ---- */

/* Handles the reports of shards in `r`. */
void coord_handle_result(struct fal_coord *c, double now,
			 const struct fal_shard_result *r);
/* Handles the reports in c->result, carries out the scheduler's actions, handles the
 * reports that follow from each action, and writes the trace lines that are complete. */
void coord_run_actions(struct fal_coord *c, double now);
/* Fills `*out` with the ticket of a contribution to an open round, as the contribution
 * is now.  Returns false if there is no such contribution. */
bool coord_make_ticket(const struct fal_coord *c, uint64_t round,
		       struct fal_contrib_id id, struct fal_ticket *out);
/* Announces the version to the worker, which pins the version if `pin` is true. */
void coord_announce_version(struct fal_coord *c, struct coord_peer *p, uint64_t version,
			    bool pin);
void coord_rounds_free(struct fal_coord *c);

/* ---- policy.c ---- */

/* Called after each event: carries out the changes of policy, the move and the stop that
 * wait for a boundary, if their boundary has come. */
void coord_policy_advance(struct fal_coord *c, double now);
void coord_policy_free(struct fal_coord *c);
/* Writes the policy to the journal, if there is a journal (design.md, I16). */
int coord_journal_policy(struct fal_coord *c, const struct fal_policy *p, uint64_t clock,
			 const char *by);
/* Puts the policy in force.  The journal must have the policy already. */
void coord_apply_policy(struct fal_coord *c, double now, const struct fal_policy *p,
			const char *by);
/* Writes the `policy` line of the policy in force, from this clock on, set by `by`. */
void coord_trace_policy(struct fal_coord *c, double now, uint64_t clock, const char *by);

/* ---- coordinator.c ---- */

/* Called after each event: begins clocks and evaluations, changes policies, and ends the
 * job, as far as the event has made that possible.  Returns c->err. */
int coord_advance(struct fal_coord *c, double now);

#endif
