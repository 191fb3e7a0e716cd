/* The coordinator's state, shared by its own files only:
 *
 *	coordinator.c      the job's beginning, clocks and end; what is sent
 *	sessions.c         workers: whose they are, what they say, whose numerics
 *	                   and data count; trainers that fail
 *	commit.c           rounds, updates and versions, as the scheduler decides
 *	                   and shards say; the trace's lines on them
 *	eval.c             what workers say of the test set and of each other's
 *	                   claims; does the model learn
 *	placement.c        what workers waited for of each shard; blocks that move
 *	policy.c           what controllers ask for
 *	checkpoint.c       what is left of it, and how it goes on from that
 *	external_rounds.c  work and versions of another coordinator's
 *
 * What cannot fail but by a shard that is of no use, or by a mistake of ours, is judged
 * in one place: c->err, the first such error, ends the job (coord_expect).
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

enum { FAL_OWED_MAX = 4, HEALTH_LOSSES = 8 };

/* What workers said of the shards. */
struct fal_rows {
	struct fal_row {
		uint32_t worker;
		struct fal_shard_wait of[FAL_SHARDS_MAX];
	} *row;
	size_t n, cap;
};

/* A `clock` line that waits for the worker to say where its time went. */
struct fal_owed {
	uint64_t round, clock;
	bool own; /* the round is its own */
	uint64_t rx, tx;
	struct fal_worker_info info;
	struct fal_work work;
};

/* A key that has opened a session. */
struct fal_known_key {
	struct fal_past_key is;      /* charges: for what its sessions have sent, ever */
	uint32_t place;              /* in the keyring */
	uint8_t data[FAL_DATA_HASH]; /* the hash said last, see sessions.c */
	bool failed; /* a trainer of its workers has, since a task counted */
};

/* A session of a worker, as the coordinator knows it. */
struct fal_peer {
	uint32_t id;     /* of the session */
	uint32_t key;    /* from 1: what keys are known, in the order of their coming */
	uint32_t worker; /* its id in ledger and trace, from 1; 0 before READY */
	char name[FAL_MSG_NAME];
	char build[FAL_MSG_NAME];       /* of its program, as it says */
	uint8_t instance[FAL_INSTANCE]; /* of its process */
	bool greeted, ready, left;      /* it said HELLO, READY, LEAVE */
	bool group;                     /* it is a group server */
	bool parted; /* in order: it was asked to leave, or is sent away */
	uint32_t lanes_min, lanes_max, cores;
	bool odd; /* its fingerprint is another one than counts */
	char kernels[FAL_MSG_NAME];
	uint8_t fingerprint[FAL_FINGERPRINT];
	uint8_t data[FAL_DATA_HASH]; /* that it has said in READY */
	/* Its probe: of a task, and of `large` samples as one; 0: none. */
	uint64_t task_ns, large_ns;
	uint32_t large;
	double rtt;          /* of its handshake */
	uint64_t ping_clock; /* from here on a claim is answered with a PING, too */
	uint64_t rx, tx;     /* bytes of the session so far, as the worker sees them */
	struct fal_owed owed[FAL_OWED_MAX]; /* oldest first */
	uint32_t oweds;
	uint64_t answered;         /* rounds before this one, or skipped */
	uint64_t told_rx, told_tx; /* in `clock` lines so far */
	double since, joined;      /* when it said HELLO, and READY */
	double spent;          /* seconds of its `clock` lines since the first one, … */
	bool accounted;        /* … which there was */
	uint32_t versions;     /* VERSION messages to it */
	uint64_t next_version; /* the first one that it was not sent */
	uint64_t oldest;       /* told to forget those before, … */
	uint64_t again;        /* … but for these: oldest - 1 is bit 0, and so on */
	bool on_line;  /* was sent a version of a line since: it may have none of these */
	uint64_t kept; /* version that it was told to keep for evaluation; UINT64_MAX:
			  none */
};

/* What controllers have asked for, and is not there yet. */
struct fal_control {
	bool waits; /* `next` waits for its boundary */
	struct fal_policy next;
	uint64_t ticket;
	char by[FAL_MSG_NAME];       /* who wants it */
	char holds_by[FAL_MSG_NAME]; /* who wanted what holds */
	struct fal_policy_again {    /* fal_coord_again, in order */
		struct fal_policy policy;
		uint64_t clock;
		char by[FAL_MSG_NAME];
	} *again;
	size_t agains, again_cap;
	bool held; /* by fal_coord_hold */
	bool stopping, stopped;
};

/* A worker, and what is remembered of it when its session is over. */
struct fal_known_worker {
	uint32_t key;
	uint32_t session; /* or 0: it is over */
	uint8_t fingerprint[FAL_FINGERPRINT];
	char name[FAL_MSG_NAME];
	bool momentum; /* the shards have one of its own */
};

/* A round that was collected for an update. */
struct fal_collected {
	uint64_t round;
	uint32_t line;          /* the line that the round stepped; 0: none */
	uint64_t loss, samples; /* of its tasks; loss modulo 2^64 */
	bool unknown;           /* the loss of one */
	uint64_t clock;
	bool own; /* of one worker or group, counted when it ended (eval.c) */
};

struct fal_coord {
	struct fal_coord_conf conf;
	struct fal_coord_ops ops;
	bool calling; /* one of these */
	int err;      /* the error that ends the job, or 0 */
	double start;
	double traced; /* the time of the newest trace line, from start */
	struct fal_sched *sched;
	/* The newest; the newest that all shards have made; the oldest of the `keeps`
	 * newest, which workers may have to compute on. */
	uint64_t version, published, oldest;
	/* The newest was ordered while its tasks were at work, and nobody is told of it
	 * yet; the oldest one before that. */
	bool untold;
	uint64_t oldest_told;
	uint32_t keeps;
	uint64_t clocks; /* of the whole job */
	bool began;      /* enough workers were here once */
	bool brought;    /* conf.above was there, */
	bool newer;      /* and a version has come: */
	uint64_t *given; /* those that are kept, in order */
	size_t givens, given_cap;
	bool finished;
	const char *why;       /* why the job stopped, or NULL */
	char odd[FAL_MSG_WHY]; /* the same, as a shard said it */

	struct fal_peer *peer; /* in order of their numbers */
	uint32_t peers;
	size_t peer_cap;
	struct fal_known_key *key; /* by number from 1, at number - 1 */
	uint32_t keys;
	size_t key_cap;
	struct fal_known_worker *known; /* all that ever joined, by id - 1 */
	size_t known_cap;
	uint32_t workers; /* ids given so far */
	/* Workers that left, whose momentum the shards still have. */
	uint32_t *leaver;
	uint32_t leavers;
	size_t leaver_cap;
	uint32_t ready; /* workers ready now */

	bool evaluating;
	uint64_t stepped; /* clocks that were over with `published` */
	/* The version under evaluation, and later what a failed job leaves; clocks that
	 * were over by then, 0: none. */
	uint64_t kept_version, kept_clock;
	struct fal_health {    /* eval.c */
		double start;  /* mean loss of guessing, or at the first update */
		uint64_t over; /* the most clocks that an update was told to end */
		double loss[HEALTH_LOSSES]; /* of the last ones, by epoch, round and round
					     */
		uint64_t first;             /* epoch that is known, and those since */
		/* Those that have begun and are not over, ascending: as many as clocks
		 * that the scheduler has open reach into. */
		struct fal_health_epoch {
			uint64_t epoch; /* from 1 */
			double loss;    /* Σ of what is in the model, or will be */
			uint64_t samples, skipped; /* … of tasks */
			struct fal_health_key {    /* claims, by number of the key - 1 */
				double loss[2];    /* not known: at the bound; known */
				uint64_t samples[2];
			} *key;
			size_t keys, key_cap;
		} *epoch;
		double *scratch;
		size_t epochs, epoch_cap, scratch_cap;
	} health;
	bool judged;        /* kept_version is one that was evaluated */
	bool loose;         /* rounds have not been shared: clocks end in any order */
	uint64_t next_eval; /* clock at which the next one is due, */
	uint64_t due;       /* and with which version, once that is ordered; 0: not yet */
	struct fal_evaluation {
		uint32_t tasks;
		bool drawn; /* which of them are run twice */
		struct fal_count {
			struct fal_word {
				uint32_t worker, key, right;
				int64_t loss;
				uint8_t fingerprint[FAL_FINGERPRINT];
			} word[3]; /* the first one counts */
			uint32_t words;
			bool asked; /* was to be run once more */
		} *count;           /* by test task */
		size_t cap;
	} eval;
	struct fal_rng rng;

	/* What is to be written to the trace when the actions are carried out. */
	struct fal_news {
		struct fal_act act; /* END or STEP */
		/* END: checksums of the sum, and by place in the ledger of what each
		 * contribution has added */
		uint64_t added, *sum;
		size_t sums, sum_cap;
		/* STEP: the new version; its rounds, in c->merged; mean loss */
		uint64_t version, samples;
		uint32_t first, rounds;
		double loss;
		float lr;
		struct fal_line_push *push; /* STEP: of lines */
		uint32_t pushes;
		double norm;   /* STEP: of the mean gradient; 0: it may not be clipped */
		uint64_t over; /* STEP: clocks that are over with it */
		bool graded;   /* STEP: gradients were collected */
		bool marked;   /* STEP: the version is */
		/* blocks that were not stepped, or that a change of weights is left out
		 * of; the worker with the largest value, about 2^most */
		uint32_t unstepped, by;
		int8_t most;
		uint64_t said; /* shards that have done it, as bits */
		/* STEP: of all blocks, as far as shards have said; NULL: the version is
		 * not hashed, or it was: */
		uint8_t *leaves; /* and behind them, exponents */
		bool hashed;
		uint8_t hash[FAL_HASH_BYTES], exponents[FAL_HASH_BYTES];
	} *news;
	uint32_t newses;
	size_t news_cap;
	/* Rounds of updates not told yet, and of the next ones. */
	struct fal_collected *merged;
	uint32_t mergeds, told; /* the first `told` are of updates that are news */
	size_t merged_cap;
	bool graded; /* some of these are gradients */
	/* Of the lines that are pushed for the next update, and their rounds, which
	 * stand first among what is not told. */
	struct fal_line_push *push;
	uint32_t pushes, pushed;
	size_t push_cap;

	struct { /* whose own steps failed last; key 0: nobody's */
		uint32_t key;
		uint64_t clock;
	} diverged;
	uint32_t work_keys;
	struct { /* the last trainer that failed since a task counted; why "": none */
		char why[FAL_MSG_WHY + FAL_MSG_NAME + 24];
		double since, wait_s;
	} trainer;

	/* The shards' reports on open rounds (commit.c), by round. */
	struct fal_gather {
		uint64_t round; /* first: they stand in its order */
		/* Shards, as bits, that have all of their part; that have ended it, as
		 * was ordered ahead. */
		uint64_t complete, over;
		/* By place in the ledger: shards, as bits, that have called it whole, or
		 * fenced, until all have. */
		struct fal_partly {
			uint64_t whole, fenced;
		} *partly;
		size_t partly_cap;
		uint32_t places;
	} *gather;
	size_t gathers, gather_cap;
	struct fal_waits {
		struct fal_rows rows; /* since the last `shard` lines */
		uint64_t told;        /* the first clock behind those; */
		uint64_t over;        /* behind the newest of updates by now, */
		uint64_t version;     /* that the last of them made */
		struct fal_coord_served *served; /* by shard, as it was told */
		double *scratch;
		size_t scratch_cap;
	} waits;
	struct fal_balance { /* placement.c */
		bool on;
		struct fal_rows rows; /* since the last clock */
		uint64_t over;        /* clocks, when that was; */
		double at;            /* when; NAN: none was seen yet */
		bool stale;           /* what comes next is of the map of before a move */
		bool due;             /* a clock was measured: */
		double seconds;
		struct fal_psld_seen seen[FAL_SHARDS_MAX]; /* by shard */
		struct fal_psld *psld;
		uint64_t who;                   /* as bits: it knows of these, */
		uint32_t order[FAL_SHARDS_MAX]; /* which are these of its own */
		uint32_t shards;
	} balance;
	double *squares;  /* by block, of a gradient that may be clipped */
	uint64_t squared; /* as bits: shards that have said theirs */
	/* On which versions the tasks of open rounds that may have several were granted.
	 */
	struct fal_granted_on *on;
	size_t ons, on_cap;
	struct fal_control control;
	struct fal_map map; /* that holds */
	struct fal_move {
		bool waits;    /* for a boundary; */
		bool begun;    /* the shards were told, */
		double since;  /* since when: */
		uint64_t said; /* those that have all of what they will have, as bits */
		struct fal_map to;
		uint32_t epoch;        /* of the last one, be it that it never was */
		char by[FAL_MSG_NAME]; /* who wants it */
	} move;
	/* The next version is to be marked; `past` is being made, of this one. */
	bool mark, marking;
	struct fal_coord_past past;
	/* Of workers that were there before a restart, and are not back. */
	struct fal_past_speed *speed;
	uint32_t speeds;
	size_t speed_cap;
	struct fal_coord_status status;
	struct fal_buf line; /* scratch */
	uint64_t *named;     /* scratch: versions that a session has to compute on */
	size_t named_cap;
};

/* Its owner calls: not out of one of the ops. */
static inline void
coord_enter(const struct fal_coord *c)
{
	assert(!c->calling);
}

/* The coordinator calls one of its ops with this argument; the op has returned. */
static inline void *
coord_call(struct fal_coord *c)
{
	assert(!c->calling);
	c->calling = true;
	return c->ops.arg;
}

static inline void
coord_called(struct fal_coord *c)
{
	c->calling = false;
}

/* ---- coordinator.c ---- */

/* A call that cannot fail has failed: the job ends, and the shards get no more orders. */
void coord_expect(struct fal_coord *c, int err);
/* To all shards, in order. */
void coord_order(struct fal_coord *c, const struct fal_shard_order *o);
/* Ends a session for cause; 0 stands for one that is gone. */
void coord_refuse(struct fal_coord *c, double now, uint32_t peer, const char *why);
/* Ends a session that is to try again. */
void coord_later(struct fal_coord *c, double now, uint32_t peer, const char *why);
/* Hands the line in c->line to the trace. */
void coord_trace(struct fal_coord *c);
/* The line of this event and time, of its struct, goes to the trace. */
void coord_put(struct fal_coord *c, double t, enum fal_event ev, const void *line);
/* Where session `id` is, or belongs, in the sorted peers; the peer itself, or NULL. */
uint32_t coord_place(const struct fal_coord *c, uint32_t id);
struct fal_peer *coord_find(const struct fal_coord *c, uint32_t id);
/* The session of worker `id`, or 0: it is gone, and so is what was to be said to it. */
uint32_t coord_session_of(const struct fal_coord *c, uint32_t id);
/* To a session; 0 stands for one that is gone. */
void coord_send(struct fal_coord *c, uint32_t peer, struct fal_msg *m);
/* Asks for a sign of life; the answer gives the round trip time, too. */
void coord_ping(struct fal_coord *c, double now, uint32_t peer);
/* Evaluates, lets clocks begin, sees the end, whatever has happened.  Returns c->err. */
int coord_advance(struct fal_coord *c, double now);
/* The version is to be evaluated, `over` clocks being over with it. */
void coord_begin_eval(struct fal_coord *c, double now, uint64_t version, uint64_t over);
/* The lanes of a worker, as its probe found them with full tasks. */
struct fal_bound_lanes coord_lanes(const struct fal_coord *c, const struct fal_peer *p);

/* ---- commit.c ---- */

/* Carries out what the scheduler decided. */
void coord_drain(struct fal_coord *c, double now);
/* The ticket of an open round's contribution as it stands; false: there is none. */
bool coord_ticket(const struct fal_coord *c, uint64_t round, struct fal_cid id,
		  struct fal_ticket *out);
/* So many of the newest versions are kept from now on. */
void coord_keep_versions(struct fal_coord *c, uint32_t versions);
void coord_send_version(struct fal_coord *c, struct fal_peer *p, uint64_t version,
			bool keep);
void coord_commit_free(struct fal_coord *c);

/* ---- sessions.c ---- */

/* The worker that has this id, or had this id. */
const struct fal_known_worker *coord_known(const struct fal_coord *c, uint32_t worker);
/* The session's key is charged for what it has sent. */
void coord_charge_key(struct fal_coord *c, const struct fal_peer *p);
/* The worker did what counts against its key, though its session may be over; twice, and
 * all sessions of the key end. */
void coord_charged(struct fal_coord *c, double now, uint32_t worker, const char *why);
/* The session has said HELLO, and not yet LEAVE. */
bool coord_is_here(const struct fal_peer *p);
/* Not that of a worker whose bits are never the same twice. */
bool coord_is_pure(const uint8_t fingerprint[static FAL_FINGERPRINT]);
/* Whether the peer does not stand by for its numerics, among those who are ready now. */
bool coord_numerics_counts(const struct fal_coord *c, const struct fal_peer *p);
/* The data that count, in digits; "": nobody has said any. */
void coord_data_remember(const struct fal_coord *c,
			 char out[static 2 * FAL_DATA_HASH + 1]);
/* When trainers end the job, as no worker is here and each key's have failed; infinity:
 * not so. */
double coord_trainer_until(const struct fal_coord *c);
/* Tells a session that there is nothing to do any more. */
void coord_send_done(struct fal_coord *c, uint32_t peer);
/* Writes the `clock` lines that the peer owes, but for the last `left` of them, without
 * its own figures: it says nothing of these any more. */
void coord_owed(struct fal_coord *c, double now, struct fal_peer *p, uint32_t left);

/* ---- eval.c ---- */

void coord_eval_begin(struct fal_coord *c, double now);
int coord_evaluated(struct fal_coord *c, double now, struct fal_peer *p,
		    const struct fal_msg *m, struct fal_diag *diag);
/* Keeps the version, `over` clocks being over with it. */
void coord_keep(struct fal_coord *c, uint64_t version, uint64_t over);
/* Counts so many samples of the clock, which are in the model, or will be, and their Σ
 * loss. */
void coord_health_count(struct fal_coord *c, uint64_t clock, double loss,
			uint64_t samples);
/* An update was made, by which so many clocks are over, and what was collected from
 * `later` on is for others.  Ends the job where it has diverged. */
void coord_health(struct fal_coord *c, uint64_t version, uint64_t over, uint32_t later);
/* What is counted of the epoch under way: 0, where that is nothing. */
struct fal_health_epoch coord_health_under_way(const struct fal_coord *c);
/* A claim of a worker of this key counts: Σ loss of so many samples of the clock, as it
 * travels. */
void coord_health_claim(struct fal_coord *c, uint64_t clock, uint32_t key, int64_t loss,
			uint32_t samples);
/* Counts so many tasks of the clock as skipped. */
void coord_health_skip(struct fal_coord *c, uint64_t clock, uint64_t tasks);
/* Goes on with the epochs of c->status, and what the loss was at first. */
void coord_health_become(struct fal_coord *c, double start);
void coord_health_free(struct fal_coord *c);
/* Workers of one number compute the same bits; 0: those of no other. */
uint32_t coord_numerics_of(const struct fal_coord *c,
			   const uint8_t fp[static FAL_FINGERPRINT]);
/* A claim of the round has come: is another key to compute it once more? */
bool coord_verify_draw(struct fal_coord *c, const struct fal_peer *p, uint64_t round);
/* A CHECKED: the result is compared with the claim's. */
void coord_verify_checked(struct fal_coord *c, double now, const struct fal_peer *p,
			  const struct fal_msg *m);

/* ---- placement.c ---- */

/* Takes in a worker's word on the shards.  FAL_EFORMAT, FAL_ELIMIT: the word cannot be
 * true. */
int coord_waited(struct fal_coord *c, uint32_t worker, const struct fal_msg *m);
/* An update was told; the job is at its end: `shard` lines, if they are due. */
void coord_tell_shards(struct fal_coord *c, double now, bool last);
void coord_waits_free(struct fal_coord *c);
/* An update was told: is a clock over, and what of it? */
void coord_measure(struct fal_coord *c, double now);
/* Begins what waits for a boundary, if there is one now. */
void coord_move_advance(struct fal_coord *c, double now, bool quiet);
/* A shard has all of what it will have. */
void coord_migrated(struct fal_coord *c, double now, uint32_t shard,
		    const struct fal_shard_say *say);
/* The session learns which shard has which blocks. */
void coord_send_blocks(struct fal_coord *c, uint32_t peer);

/* ---- policy.c ---- */

/* Carries out what waits for a boundary, if there is one now; after each event. */
void coord_control_advance(struct fal_coord *c, double now);
void coord_control_free(struct fal_coord *c);
/* Is there a reason that no round may begin? */
bool coord_holds(const struct fal_coord *c);
/* No clock from this one on may begin yet. */
uint64_t coord_control_until(const struct fal_coord *c);
/* Writes the `policy` line of what holds from this clock on, set by `by`. */
void coord_trace_policy(struct fal_coord *c, double now, uint64_t clock, const char *by);

/* ---- checkpoint.c ---- */

/* May a version be marked?  Rounds are shared. */
bool coord_markable(const struct fal_coord *c);
/* The version was made, which is to be marked: what it was is kept; it is told. */
void coord_remember(struct fal_coord *c, uint64_t version, uint64_t over);
void coord_marked(struct fal_coord *c, double now);
/* Goes on from what was.  FAL_EFORMAT: its data have no such hash. */
int coord_become(struct fal_coord *c, const struct fal_coord_past *p);
/* What is known of a worker that comes from before a restart; the next of its name and
 * key is another one. */
struct fal_history coord_speed_of(struct fal_coord *c, const struct fal_peer *p);
/* Writes that it does; past NULL: from version 0. */
void coord_trace_restart(struct fal_coord *c, const struct fal_coord_past *past);

/* ---- external_rounds.c ---- */

/* The job is over: nobody wants any more the rounds that were brought and are not over.
 * Errors of these rounds are of no interest any more. */
void coord_let_go(struct fal_coord *c, double now);
/* Was the version given, and is kept? */
bool coord_given(const struct fal_coord *c, uint64_t version);
void coord_tell_claimed(struct fal_coord *c, const struct fal_coord_claimed *is);

#endif
