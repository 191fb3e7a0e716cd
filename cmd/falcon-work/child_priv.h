/* The state of a child, shared by child.c, the lanes' side, child_life.c, which owns
 * starts, ends and deadlines, and child_io.c, which owns the bytes in and out. */
#ifndef WORK_CHILD_PRIV_H
#define WORK_CHILD_PRIV_H

#include "bulk.h"
#include "child.h"
#include "spawn.h"

#include <pthread.h>

enum { CHILD_HISTORY = 16 };

/* Where one version of the parameters is; a task that names it keeps it as it is. */
struct place {
	uint64_t serial; /* 0: none */
	uint64_t edition;
	uint32_t users;
	bool ready;
};

struct start {
	struct bulk_area area[SPAWN_SHARED];
	struct place *place;
	uint64_t editions; /* how often a place was filled */
	uint32_t places;
	_Atomic uint32_t refs;
};

enum slot_state { SLOT_IDLE, SLOT_SENT, SLOT_ANSWERED, SLOT_LOST };

struct slot {
	enum slot_state state;
	uint64_t id, cancel; /* cancel: the id of a task that is not wanted */
	struct start *at;    /* with a reference, unless it is idle, */
	uint32_t place;      /* and its place there */
	uint64_t order;      /* in which tasks were sent */
	uint64_t begun;      /* uv_hrtime() when it could begin; 0: not yet */
	uint64_t took;
	bool told, train; /* told: of the cancel */
	unsigned kind;
	uint32_t alias; /* as the trainer knows it */
	bool said;      /* by pipes: done was said, its gradient is coming */
	struct fal_grad_word word;
};

/* Bytes on their way to a descriptor that does not block. */
struct outgoing {
	struct fal_buf b;
	size_t sent;
};

struct child {
	struct child_conf conf;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t change; /* of anything; its clock is the monotonic one */
	int wake;              /* eventfd, of the thread */
	int nudge;             /* another one, of the lane that hears */

	/* All below under the mutex. */
	bool quit, greeted, failed;
	struct fal_diag why; /* it has failed: it is not started any more */
	struct fal_grad_hello hello;
	const struct child_job *job; /* NULL: none */
	uint64_t jobs, told; /* how often that changed; then, when it was told; 0: not */

	struct spawned proc;
	int pidfd;
	uint64_t starts, started; /* how often, when last */
	unsigned mute;            /* how often in a row without a hello */
	unsigned fails;           /* tasks in a row at which this start failed */
	struct fal_diag trouble;  /* what went wrong last */
	struct fal_diag last; /* words of this start: of stderr, or why a task failed */
	uint64_t restart, pause; /* when to start again; ns */
	bool heard, late;        /* its hello; that it has not been said was said */
	bool up, useful;         /* has the job; has done a task */
	bool blamed, hopeless;   /* it is to be ended, by the thread; for good */
	struct fal_diag blame;
	struct start *start;
	struct slot *slot; /* lanes · depth, since the first hello */
	uint32_t slots;
	uint64_t order, answers;
	uint64_t seen, ticks; /* answers, and CPU time, when child_steps looked last */
	bool hearing;         /* a lane hears what it says */
	bool heard_by_lanes;  /* so the thread does not hear it */
	bool hung_up;         /* it says nothing more */
	const char *closed;   /* which stream it has closed, if it lives on */
	uint64_t history[CHILD_KINDS][CHILD_HISTORY], known[CHILD_KINDS];

	struct outgoing lines, params;
	struct fal_buf in, err; /* lines that are not whole */
	uint8_t head[8];        /* of the frame on the gradients' pipe */
	uint64_t frame;         /* bytes of it so far, with the head */
};

/* --- child_life.c ------------------------------------------------------------------- */

void *child_main(void *arg); /* the thread */
/* It did something wrong: the thread is to end it, and all that it has is lost. */
void child_blame(struct child *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* It cannot be used: likewise, for good. */
void child_give_up(struct child *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Tells it of the job that is there, its hello having come. */
void child_tell_job(struct child *c);
/* As many tasks as it does at once have begun. */
void child_let_begin(struct child *c);
void child_answered(struct child *c, struct slot *s);
void child_poke(struct child *c);

/* --- child_io.c --------------------------------------------------------------------- */

/* Waits for bytes, its end, or the moment `until` (uv_hrtime), and deals with the bytes;
 * the mutex is given up meanwhile.  True: it has ended. */
bool child_turn(struct child *c, uint64_t until);
/* In a lane's time: waits for what it says, until child_rouse, and deals with it; the
 * mutex is given up meanwhile.  No other lane is hearing, and no gradients come by
 * pipes.
 */
void child_hear(struct child *c);
/* Whoever waits, or hears, looks up. */
void child_rouse(struct child *c);
/* Writes what goes in; false: there is more, for the thread. */
bool child_push(struct child *c);
/* The rest of what it said on stderr. */
void child_drain(struct child *c);

#endif
