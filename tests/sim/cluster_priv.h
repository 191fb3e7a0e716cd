/* The cluster's state, shared by its own files only:
 *
 *	cluster.c  events, and the network
 *	ops.c      the coordinator, and what it and its shards say
 *	worker.c   what a worker does
 *	lies.c     what liars say
 *	flips.c    who gets bits wrong
 *	bound.c    how long a clock may take
 *	intime.c   what was pushed in time counts
 *	told.c     what people are told
 *	made.c     versions that are made block by block
 *	early.c    what leaves of them meanwhile
 *	fleet.c    the links to shards that are elsewhere
 *	moves.c    blocks that go from one to another
 *	restart.c  marks, and the death of the coordinator or a shard
 *	disk.c     what is written, and what is left of it
 *	levels.c   group servers */
#ifndef CLUSTER_PRIV_H
#define CLUSTER_PRIV_H

#include "../racked.h"
#include "cluster.h"
#include "disk.h"

#include "base/mem.h"
#include "base/rng.h"
#include "server/group.h"
#include "worker/agent.h"

/* A growing array. */
#define VEC(type)              \
	struct {               \
		type *v;       \
		size_t n, cap; \
	}

enum kind {
	TO_COORD,  /* a message arrives at the coordinator */
	TO_WORKER, /* a message arrives at a worker */
	LANE,      /* a lane's task is over */
	JOIN,
	CRASH,
	LEAVE,
	ORDER, /* a controller asks for something */
	RESUME,
	RESET,     /* the coordinator learns that a connection is gone */
	TAKEN,     /* a worker's link has a bulk message */
	TO_SHARDS, /* a worker's push leaves it */
	/* to a shard, number `lane`, and from it: */
	AT_SHARD,
	AT_COORD,
	PUSHED,
	LINK_LOST,
	LINK_BACK,
	SHARD_DIES,
	MARKED, /* a mark is on disk */
	RESTART,
	MOVE
};

/* A push on its way to several shards. */
struct pushed {
	uint32_t refs;
	struct fal_ticket ticket;
	struct fal_buf msg; /* the whole of it */
};

struct event {
	struct cluster *of; /* whose it is */
	double t;
	uint64_t order; /* ties: first in, first out */
	enum kind kind;
	uint32_t worker;
	uint32_t lane, run; /* LANE: which run of the lane; of a link: its life */
	uint32_t session;   /* the incarnation that it is for */
	uint64_t seq, ack;  /* of a link's packet */
	struct pushed *push;
	struct fal_buf msg;
};

struct lane {
	bool busy, cancelled;
	uint32_t run;
	double began, ends;
	struct fal_task_run what;
	uint32_t came; /* blocks of its version that are here */
	bool waits;    /* … for all to come, as it did for so many seconds: */
	double waited;
};

/* A contribution that was fenced. */
struct fenced {
	uint64_t round;
	uint32_t peer, seq;
};

/* A shard has said so of a contribution. */
struct shut {
	uint64_t round;
	struct fal_contrib_id id;
	uint32_t shard;
};

/* A worker is to be sent a version. */
struct wanted {
	uint32_t peer, order;
	uint64_t version;
};

/* A version that the coordinator has told a worker of: blocks that it still has to get.
 */
struct told {
	uint64_t version;
	uint32_t left;
};

/* A link carries an order, with its own `map`, or what is wanted; or a
 * say; or a piece of what shard `to` will have, which the coordinator passes on. */
struct packet {
	struct fal_shard_order order;
	struct fal_map *map;
	struct fal_shard_set_piece piece;
	uint32_t to;
	struct wanted wanted;
	struct fal_shard_report say;
};

/* One direction of a link: packets that may have to be sent again, from number `acked`
 * on, and how many have arrived. */
struct way {
	VEC(struct packet) packets;
	uint64_t acked, got;
	double last; /* arrival */
};

struct link {
	struct way to, from;
	bool down, gone;
	uint32_t epoch;
	VEC(struct wanted) waits; /* for their versions */
	uint64_t opened, version; /* rounds that orders were about; its newest */
	uint32_t map;             /* epoch of the one that it has taken; 0: the first */
	double free_at;           /* its line is, for what comes then */
	uint32_t told;            /* that of the next one that it was told of last */
};

/* A fence that was ordered, and which shards have it. */
struct ordered {
	uint64_t round;
	struct fal_contrib_id id;
	uint32_t shards;
};

/* A contribution that no shard is to count any more. */
struct called_off {
	uint64_t round;
	struct fal_contrib_id id; /* {0, 0}: all of the round */
};

/* A push that somebody is at: blocks that must count, and those that do. */
struct pushing {
	uint64_t round;
	struct fal_contrib_id id;
	uint32_t blocks, counted;
};

/* What a shard was when it was looked at last: its newest version; and of the next one,
 * which is made, so many blocks, and which. */
struct made {
	uint32_t incarnation, first, count; /* blocks that it has */
	uint64_t version;
	float *params, *next;
	uint8_t *made;
	uint32_t n;
};

/* A shard's part of a version that leaves while it is made: by message, has it left? */
struct early {
	struct wanted to;
	uint32_t shard;
	uint8_t *left;
};

/* A version that was marked, on its way to the disk. */
struct marked {
	struct fal_snap_manifest is;
	struct fal_image image[MAX_SHARDS];
	uint32_t shards; /* images; 0: the job says all of it */
};

/* A machine was to run a task that counts already. */
struct asked {
	uint32_t machine;
	uint64_t clock;
	uint32_t task;
};

struct cluster;

struct worker {
	struct cluster *c;
	const struct machine *m;
	uint32_t index;
	bool grown;             /* it has asked for more memory */
	bool here, dead, ready; /* … as the coordinator has heard */
	bool over; /* its session has ended: nothing of it arrives any more */
	bool leaving;
	uint32_t session; /* the incarnation that it opened one with */
	struct fal_agent *agent;
	struct lane lane[8];
	double up_ctl, up_bulk, down_ctl, down_bulk; /* last arrival, by direction */
	uint32_t under_way;                          /* bulk messages */
	uint64_t steps;                              /* of tasks that are over */
	uint64_t oldest; /* version: it has forgotten those before */
	bool lied;       /* once is enough */
	bool *shown;     /* flaky: by task of the job, already non-finite once */
	double model[MAX_SHARDS], way[MAX_SHARDS]; /* last arrival from, and at a shard */
	VEC(struct told) told;                     /* in order, */
	uint32_t heard;    /* so many VERSIONs of it have arrived */
	VEC(uint64_t) has; /* versions that it was told of, and not to forget; */
	bool lined;        /* … but for those before it was on a line */
	uint64_t early;    /* the version of which it was sent some before all was made */
	uint32_t to;       /* the shard that its push is for, from 1 */
	struct cluster *below; /* a group server's, as long as it has one */
};

struct cluster {
	const struct plan *p;
	/* levels.c: the one that has the time, all events and all groups; that of a group
	 * server hangs on a machine of another one. */
	struct cluster *root;
	struct worker *up; /* NULL: it is the root */
	bool gone;         /* with its group server */
	bool ready;        /* it has said READY, and */
	uint32_t members;  /* of so many last */
	struct fal_group *group;
	char key[24]; /* the group server's, above */
	VEC(struct cluster *) group_of;
	struct fal_rng rng;
	double now;
	uint64_t order, events;
	struct event *heap;
	size_t n, cap;
	struct racked shards; /* and whose they are: */
	struct fal_coord *coord;
	struct worker worker[MAX_WORKERS];
	struct fal_buf trace;
	float *grad;
	uint64_t publication;
	uint64_t clock;  /* that is not over, */
	double clock_at; /* since when */
	uint64_t epoch;  /* that was told last */
	double longest, busiest;
	double second;       /* the one that has begun: */
	uint32_t woke, came; /* wake-ups, other events */
	const char *failure;
	uint64_t lies, refused, flips, beyond;
	VEC(struct asked) asks; /* checks, of all workers */
	uint64_t seen[SEEN];
	VEC(struct fenced) fences; /* that workers were told of */
	VEC(struct called_off) called_off;
	struct pushing pushing;
	VEC(struct wanted) waits; /* for their versions, where shards are here */
	/* where shards are elsewhere: */
	struct fal_rng far;
	struct link link[MAX_SHARDS];
	VEC(struct ordered) ordered;
	VEC(struct shut) shut; /* what is fenced, of this incarnation */
	struct made made[MAX_SHARDS];
	VEC(struct early) early;
	struct fal_rng pieces; /* of what leaves early */
	uint64_t reads[64];    /* by round, modulo: the version that it is computed on */
	uint32_t moves;        /* so far */
	struct fal_map map;    /* that holds: it was begun with, or moved to */
	uint32_t placed;       /* its epoch, where it was moved to */
	/* restart.c: */
	uint32_t incarnation, marks, restarts; /* so far */
	struct fal_rng fate;
	uint64_t lines;     /* of the trace */
	bool goes_on;       /* its first line stands there already */
	uint64_t marked_at; /* with `marks_all`: so many clocks were over, and 1 */
	bool writing;       /* `next` is on its way to the disk */
	bool spares;        /* the next death: what is on disk stays as it is */
	struct marked next;
	struct disk disk;
	struct fal_rng ruin; /* what becomes of it */
	size_t begun;        /* changes that were journalled when the trace was begun */
};

/* cluster.c */

/* An error ends the run, with `what`. */
void cluster_ok(struct cluster *c, int err, const char *what);
/* It is going to happen; e.msg is taken. */
void cluster_push(struct cluster *c, struct event e);
struct fal_buf cluster_copy(const struct fal_buf *msg);
/* When a message of n bytes that leaves now arrives: in order within its queue, whose
 * last arrival is *last, and not before `other`. */
double cluster_arrival(struct cluster *c, const struct machine *m, size_t n, double *last,
		       double other);
/* The time, as agents have it. */
uint64_t cluster_ns(const struct cluster *c);

void cluster_kill(struct worker *w);
/* The name of the key of a machine that has one of its own: no other level's has it. */
void cluster_key(const struct cluster *c, uint32_t owner, char out[static 24]);
/* What is in the plan begins to happen; all that it holds, but for the trace, is freed.
 */
void cluster_begin(struct cluster *c);
void cluster_free(struct cluster *c);

/* ops.c */

/* A coordinator with shards, as what was found says; without a snapshot as the job does,
 * with its policy or that which the journal has last. */
void ops_begin(struct cluster *c, const struct disk_found *from,
	       const struct fal_coord_trace *before);
/* What is about to be heard of a contribution that is fenced, while its round is open. */
void ops_heard(struct cluster *c, uint32_t peer, const struct fal_msg *m);
/* Of shards that are here, what is asked for and there leaves. */
void ops_publish(struct cluster *c);
/* A shard's part of a version begins to leave for a worker; some blocks of it leave,
 * from its own number b on. */
void ops_published(struct cluster *c, const struct fal_shard_part *part,
		   const struct wanted *to);
void ops_model(struct cluster *c, const struct fal_shard_part *part,
	       const struct wanted *to, uint32_t b, uint32_t blocks);
/* Ends the run: an honest worker's push was refused. */
void ops_refused(struct cluster *c, uint32_t worker, const char *why);

/* intime.c */

void intime_order(struct cluster *c, const struct fal_shard_order *o);
/* A PUSH has come to shards with so many blocks from `first` on; what they say to it; and
 * then all is said: ends the run if they have thrown away what they may not. */
void intime_push(struct cluster *c, uint32_t worker, const struct fal_msg *m,
		 uint32_t first, uint32_t blocks);
void intime_say(struct cluster *c, const struct fal_shard_report *s);
void intime_pushed(struct cluster *c);

/* told.c */

void told_watch(struct cluster *c, const struct fal_coord_status *s);

/* made.c */

/* After each event: ends the run where a version is not what it was. */
void made_watch(struct cluster *c);
/* Has a shard made some blocks of its next version, and some not? */
bool made_half(const struct cluster *c);
/* What is ordered then; what a shard has of an older version leaves then. */
void made_order(struct cluster *c, const struct fal_shard_order *o);
void made_part(struct cluster *c, const struct fal_shard_part *part, uint64_t version);
void made_end(struct cluster *c);

/* early.c */

void early_begin(struct cluster *c);
/* What the shard has made of a version that is wanted leaves, or some of it, or not yet.
 */
void early_some(struct cluster *c, uint32_t shard, const struct wanted *to);
/* A shard's part of a version is there: all of it leaves that has not. */
void early_rest(struct cluster *c, const struct fal_shard_part *part,
		const struct wanted *to);
/* What has left of it never will be whole. */
void early_drop(struct cluster *c, const struct wanted *to);
/* Has somebody some of a version that is not made? */
bool early_any(const struct cluster *c);
/* Nothing more of it leaves. */
void early_forget(struct cluster *c);
void early_end(struct cluster *c);

/* restart.c */

void restart_begin(struct cluster *c);
/* The job is done: what held, and from when on, is what the journal has.  Else the run
 * has failed. */
void restart_judge(struct cluster *c);
void restart_end(struct cluster *c);
/* The next of the deaths that are planned comes; false: there is none. */
bool restart_now(struct cluster *c, double after);
/* The plan's marks and deaths, as the clocks go by. */
void restart_watch(struct cluster *c, const struct fal_coord_status *s);
/* A MARKED or RESTART.  One whose shard was not known to be dead is over, too. */
void restart_handle(struct cluster *c, const struct event *e);
/* What was sent to another incarnation arrives: it must be refused. */
void restart_refuse(struct cluster *c, const struct event *e);
/* A worker knows by now. */
void restart_back(struct cluster *c, struct worker *w);
/* The coordinator's ops; arg is the cluster. */
void restart_marked(void *arg, const struct fal_coord_checkpoint *past);
int restart_journal(void *arg, const struct fal_policy *p, uint64_t clock,
		    uint64_t version, const char *by);

/* fleet.c */

void fleet_begin(struct cluster *c);
/* The shards are gone, with all that was on its way to them and from them. */
void fleet_restart(struct cluster *c);
void fleet_end(struct cluster *c);
/* The coordinator's ops; arg is the cluster. */
int fleet_order(void *arg, const struct fal_shard_order *o);
/* A PUSH has left the worker: it is on its way to the shard. */
void fleet_push(struct cluster *c, uint32_t from, uint32_t shard,
		const struct fal_buf *msg);
/* All shards are asked for a version. */
void fleet_want(struct cluster *c, const struct wanted *w);
/* The job is over: what they were told to take, they take; who is gone has nothing more.
 */
void fleet_take(struct cluster *c);
/* An event from AT_SHARD on; what it holds of a push is let go of by the other one. */
void fleet_handle(struct cluster *c, struct event *e);
void fleet_unpush(struct event *e);
/* A shard that is frozen does nothing until it thaws: true, and the event comes then. */
bool fleet_stalls(struct cluster *c, struct event *e);
/* Are shards at different versions? */
bool fleet_apart(const struct cluster *c);

/* moves.c */

/* The plan's moves, as the clocks go by; a MOVE. */
void moves_watch(struct cluster *c, const struct fal_coord_status *s);
void moves_begin(struct cluster *c, const struct event *e);
/* A move that the coordinator finds right, if there is one. */
void moves_balance(struct cluster *c);
/* A shard is known to be dead.  False: it had no block, and those that are stay where
 * they are. */
bool moves_mourn(struct cluster *c, uint32_t shard);
/* The coordinator's op; arg is the cluster. */
void moves_moved(void *arg, const struct fal_map *map, int err);

/* levels.c */

/* The machine, which is a group server, begins: its coordinator, and those who will come
 * to it.  It is killed; or its session is over, which its trace has, too. */
void levels_begin(struct worker *w);
void levels_kill(struct worker *w);
void levels_part(struct worker *w);
/* It ends its session itself, and with it all that is below it. */
void levels_close(struct worker *w);
/* What is its own of its agent, and of its coordinator, which keeps `above`. */
void levels_ops(struct fal_agent_conf *conf, struct fal_agent_ops *ops);
void levels_conf(const struct cluster *c, struct fal_coord_upstream *above,
		 struct fal_coord_conf *conf, struct fal_coord_ops *ops);
/* After each event: what is to pass between levels passes. */
void levels_work(struct cluster *root);
/* It is `now`; the first of all coordinators that will want to look again, and when; when
 * a frozen one will go on, or now. */
void levels_time(struct cluster *root, double now);
double levels_wake(struct cluster *root, struct cluster **which);
double levels_thaw(const struct cluster *c);
/* Is the coordinator above it another one by now? */
bool levels_stale(const struct cluster *c);
/* The job is over: traces end, and are the outcome's; all is freed. */
void levels_finish(struct cluster *root, struct outcome *out);
void levels_end(struct cluster *root);

/* worker.c */

/* It opens its session. */
void worker_join(struct cluster *c, struct worker *w);
/* Its session is gone, and all that was in it. */
void worker_forget(struct worker *w);
/* A lane's task is over, if it is the run of the event still. */
void worker_lane_over(struct cluster *c, struct worker *w, const struct event *e);
/* Sends a PUSH that is for a shard; arg is the worker. */
void worker_push(void *arg, uint32_t shard, const struct fal_buf *msg);
/* Sends a message, as an agent does: arg is the worker. */
void worker_send(void *arg, const struct fal_buf *msg, bool bulk);
/* Does it hang by now? */
bool worker_hangs(const struct worker *w);

#endif
