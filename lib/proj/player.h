/* A worker of a play (play.h): its queue, its lanes, what it pushes.  It is told what to
 * do, and knows when something happens with it next; play.c is the coordinator and the
 * time.  For lib/proj's own files.
 *
 * Seconds of the play everywhere.
 */
#ifndef FAL_PROJ_PLAYER_H
#define FAL_PROJ_PLAYER_H

#include "proj/cost.h"
#include "sched/sched.h"

/* Versions that it is known to have; more than slack asks for. */
enum { FAL_PLAYER_VERSIONS = 128 };

/* A task in a worker's queue; the first `lanes` of it run. */
struct fal_player_item {
	uint64_t round;
	uint32_t task;
	struct fal_cid fills;
	double from; /* not before: the worker has the round's version */
	double ends; /* negative: no lane began with it */
	double task_s;
};

/* What a worker does, or did, of a round. */
struct fal_player_part {
	uint64_t round;
	struct fal_cid fills;
	uint32_t seq;   /* 0: nothing won yet */
	double arrives; /* infinite: not pushed yet */
};

struct fal_player {
	const struct fal_cost_machine *machine;
	struct fal_player_item *q;
	size_t n, q_cap;
	struct fal_player_part *part;
	size_t parts, part_cap;
	uint32_t lanes, seq;
	double way;         /* seconds that what it says, or is told, is on its way */
	double ticket;      /* that it waits for leave to push, once all is claimed */
	double asked, pong; /* when it was last, and its answer comes; INFINITY */
	double begun;       /* tasks that a lane began with, in full ones */
	double ready;       /* has what it was sent last */
	struct {
		uint64_t version;
		double at;
	} has[FAL_PLAYER_VERSIONS]; /* by version, modulo; UINT64_MAX: none */
	uint32_t running;
	double since;   /* running is not 0 since */
	double compute; /* seconds before that */
};

/* What is heard of it next: the end of an item, or a part's arrival; the other is
 * SIZE_MAX, both if it is an answer, or nothing. */
struct fal_player_event {
	double at;
	size_t item, part;
};

/* A worker on machine `m` (borrowed), which has no version yet; `asks`: it may push what
 * its claims have been answered for. */
void fal_player_init(struct fal_player *w, const struct fal_cost_machine *m, bool asks);
void fal_player_free(struct fal_player *w);
/* It is sent a version, which leaves at `at`. */
void fal_player_pull(struct fal_player *w, uint64_t version, double at);
/* A grant at `now`, of the round `r`.  0 or FAL_ENOMEM. */
int fal_player_grant(struct fal_player *w, const struct fal_act *a,
		     const struct fal_round_info *r, double now);
void fal_player_revoke(struct fal_player *w, const struct fal_act *a, double now);
/* Lanes that are free at `at` begin with what stands first; `s`, `grid`: borrowed. */
void fal_player_begin(struct fal_player *w, const struct fal_sched *s,
		      const struct fal_grid *grid, double at);
/* Item i is over; the others move up. */
struct fal_player_item fal_player_take(struct fal_player *w, size_t i, double at);
/* Its part of the item's round, made if there is none; NULL: out of memory. */
struct fal_player_part *fal_player_part(struct fal_player *w,
					const struct fal_player_item *it);
/* What it holds no more of is pushed; what it won nothing of is forgotten. */
void fal_player_push(struct fal_player *w, double at);
struct fal_player_event fal_player_next(const struct fal_player *w);
/* Seconds in which it computed, up to `now`. */
double fal_player_computed(const struct fal_player *w, double now);

#endif
