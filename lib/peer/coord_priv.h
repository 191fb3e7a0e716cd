/* The coordinator's state, shared by its own files only:
 *
 *	coord.c      clocks: opened, completed, published, evaluated
 *	coord_msg.c  what workers say
 *	coord_act.c  what the scheduler decides becomes messages
 *	coord_control.c  what controllers ask for
 *
 * Calls that can fail return 0 or a negative enum fal_err. */
#ifndef FAL_PEER_COORD_PRIV_H
#define FAL_PEER_COORD_PRIV_H

#include "peer/coord.h"
#include "peer/trace_lines.h"
#include "sched/sched.h"
#include "store/store.h"

/* What controllers have asked for, and is not there yet. */
struct fal_control {
	bool waits; /* `next` waits for its boundary */
	struct fal_policy next;
	uint64_t ticket;
	char by[FAL_MSG_NAME]; /* who wants it */
	bool held;             /* by fal_coord_hold */
	bool stopping, stopped;
};

struct fal_coord {
	struct fal_coord_conf conf;
	struct fal_coord_ops ops;
	double start;
	struct fal_sched *sched;
	struct fal_store *store;
	uint64_t clocks; /* of the whole job */
	bool published;  /* the newest version has been sent out */
	bool began;      /* enough workers were here once */
	bool finished;
	const char *why; /* why the job stopped, or NULL */

	struct fal_peer *peer; /* in order of their numbers */
	uint32_t peers;
	size_t peer_cap;
	/* The workers of the live sessions, in order of their ids. */
	struct fal_live {
		uint32_t worker, session;
	} * live;
	uint32_t lives;
	size_t live_cap;
	uint32_t workers;                     /* ids given so far */
	uint32_t ready;                       /* workers ready now */
	uint8_t fingerprint[FAL_FINGERPRINT]; /* of the first worker */
	bool have_fingerprint;

	bool evaluating;
	float *kept;
	uint64_t kept_version;
	uint64_t eval_right, eval_samples;
	uint64_t eval_loss; /* modulo 2^64: a lying worker must not overflow it */

	struct fal_control control;
	struct fal_coord_status status;
	struct fal_buf line; /* scratch */
};

/* coord_act.c */
/* Hands the line in c->line to the trace. */
void coord_trace(struct fal_coord *c);
/* Where session `id` is, or belongs, in the sorted peers; the peer itself, or NULL. */
uint32_t coord_place(const struct fal_coord *c, uint32_t id);
struct fal_peer *coord_find(const struct fal_coord *c, uint32_t id);
/* Where worker `id` is, or belongs, among the live ones. */
uint32_t coord_live_place(const struct fal_coord *c, uint32_t id);
/* To a session; 0 stands for one that is gone. */
int coord_send(struct fal_coord *c, uint32_t peer, struct fal_msg *m);
/* Asks for a sign of life; the answer gives the round trip time, too. */
int coord_ping(struct fal_coord *c, double now, uint32_t peer);
/* Carries out what the scheduler decided. */
int coord_drain(struct fal_coord *c, double now);

/* coord.c */
/* Clocks of an epoch. */
uint64_t coord_epoch_clocks(const struct fal_coord *c);
/* Every block has counted its tasks: the parameters move on. */
int coord_complete_clock(struct fal_coord *c, double now);
/* At a clock boundary: publishes, evaluates, opens the next clock, as far as allowed. */
int coord_advance(struct fal_coord *c, double now);

/* coord_control.c */
/* Carries out what waits for a boundary, if there is one now; after each event. */
int coord_control_advance(struct fal_coord *c, double now);
void coord_control_free(struct fal_coord *c);

/* coord_msg.c */
/* Tells a session that there is nothing to do any more. */
int coord_send_done(struct fal_coord *c, uint32_t peer);
/* Writes the `clock` line that the peer owes, if it is of this clock. */
int coord_worked(struct fal_coord *c, double now, struct fal_peer *p,
		 const struct fal_msg *m);

#endif
