/* Shards of other processes, as the coordinator's process knows them: who has joined,
 * which blocks are whose, and the streams to them (falcon-protocol(7), SHARDS).
 */
#ifndef FALCON_PS_SHARD_POOL_H
#define FALCON_PS_SHARD_POOL_H

#include "broadcast.h"
#include "coord/coord.h"
#include "image_queue.h"
#include "sched/recent.h"
#include "shard/post.h"
#include "shard/rack.h"

#include <uv.h>

struct ps_server;
struct ps_session;

/* A process. */
struct ps_member {
	struct ps_session *session;
	bool standby;
	uint32_t shards; /* that it is good for */
	char address[FAL_MSG_WHY];
	uint8_t public[FAL_KEY_BYTES];
	uint32_t first, count;     /* its shards; 0: it has no numbers yet */
	bool placed;               /* it has what it was given with them */
	bool late;                 /* that was nothing: the job was under way */
	bool idle;                 /* there is no block to spare for it */
	bool full;                 /* it cannot have more blocks than it has */
	bool drained;              /* it is to have no block any more */
	struct image_queue images; /* what it is to be, and has not got yet */
	struct ps_served served;   /* as it says */
	struct ps_asked {          /* whether it lives */
		double at;         /* since when it owes something; 0: nothing */
		bool is;           /* an answer, to this: */
		uint64_t stamp;
		uint64_t taken; /* of what was sent to it, in bytes */
		struct fal_recent took;
	} asked;
	struct fal_post post; /* a SAY that is on its way */
	char odd[FAL_MSG_WHY];
	struct image_intake coming;
};

struct ps_fleet {
	struct ps_member **v; /* in the order in which they joined */
	size_t n, cap;
	uint32_t wanted;        /* processes that the placement waits for; */
	uv_timer_t grace;       /* after it, for no more than the least */
	uv_timer_t ask;         /* whether they live; */
	double asked;           /* when it was last */
	bool cut;               /* each block has its shard: */
	struct fal_map map, to; /* that holds; that shards were told of, else none */
	bool tight;             /* it was said that there is no memory for a move */
	uint32_t own;           /* shards of this process: the first numbers */
	uint32_t places;        /* that its rule knew: some may have got none */
	struct ps_drain {
		bool own;      /* this process is to have no block any more */
		bool any;      /* somebody is to have none, who has some */
		bool refused;  /* who should have more instead cannot */
		uint32_t asks; /* session that waits for that; 0: none */
		char by[FAL_MSG_NAME];
	} drain;
	/* What a shard of another process has said last, and whether the coordinator is
	 * still to fetch that. */
	struct fal_shard_say said;
	uint32_t said_by;
	bool unheard;
};

/* What the coordinator's shards are, whoever has them: of fal_coord_ops; `arg` is the
 * server. */
extern const struct fal_coord_shards ps_fleet_ops;

/* Makes the timer, before anything else; closes it. */
void ps_fleet_init(struct ps_server *s);
void ps_fleet_close(struct ps_server *s);
void ps_fleet_free(struct ps_fleet *f);

/* Cuts the model, now, or when enough processes are here; ps_begin follows when all know
 * their part.  0, or an error with s->diag. */
int ps_fleet_place(struct ps_server *s);
/* For how many more; how many do not know yet what they have from the job's begin on. */
uint32_t ps_fleet_waits(const struct ps_server *s);
uint32_t ps_fleet_unplaced(const struct ps_server *s);

/* A message of a session that may be one of shards.  0, or why it must end, in `why`. */
int ps_fleet_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m,
		 struct fal_diag *why);
/* There is room in the session. */
void ps_fleet_more(struct ps_session *session);
/* Have processes of its key ended so many incarnations that it is to come back later? */
bool ps_fleet_spent(const struct ps_server *s, const struct ps_session *session);
void ps_fleet_gone(struct ps_server *s, struct ps_session *session, const char *why);

/* After an event: whoever has joined a job that is under way gets blocks, and whoever is
 * to be drained loses them, as soon as that can be. */
void ps_fleet_moves(struct ps_server *s);
/* Aborts a move that is under way: in the midst of a move no version can be marked. */
void ps_fleet_move_abort(struct ps_server *s);
/* Are blocks on their way?  To whom, with commas between. */
bool ps_fleet_moving(const struct ps_server *s, struct fal_diag *to);
/* Of fal_coord_ops; `arg` is the server. */
void ps_fleet_moved(void *arg, const struct fal_map *map, int err);
/* The process that has this shard ("shard:2"), or listens there, is to have no block any
 * more, and ends then; this one goes on.  The session gets its answer when it is done.
 * FAL_ENOENT, FAL_ESTATE with `why`: there is no such process, or nobody beside it. */
int ps_fleet_drain(struct ps_server *s, const struct ps_session *session,
		   const char *which, struct fal_diag *why);
/* The job is over, or the server ends: whoever waits for a drain is told so. */
void ps_fleet_drain_over(struct ps_server *s);

/* A worker is to have the job's texts: when all processes know it, and it knows where
 * they are. */
void ps_fleet_admit(struct ps_server *s, struct ps_session *session);
/* What was said to them leaves before what others are sent from now on. */
void ps_fleet_offer(struct ps_server *s);
/* As fal_coord_ops.model, to them. */
void ps_fleet_publish(struct ps_server *s, uint32_t peer,
		      const struct fal_coord_model *m);

/* All parameters of a version; NULL, and *coming says whether they are on their way: then
 * ps_after_event follows. */
const float *ps_fleet_params(struct ps_server *s, uint64_t version, bool *coming);
/* The images of a marked version are wanted: ps_keep_image gets them. */
void ps_fleet_fetch_marked(struct ps_server *s, uint64_t version);

/* Tells them all that the job is over. */
void ps_fleet_end(struct ps_server *s, enum fal_msg_type type, const char *why);

#endif
