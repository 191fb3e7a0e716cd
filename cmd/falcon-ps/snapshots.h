/* When snapshots are taken, and what is in them: the loop's part of it. */
#ifndef FALCON_PS_SNAPSHOTS_H
#define FALCON_PS_SNAPSHOTS_H

#include "base/seldom.h"
#include "run/snapshot.h"

#include <uv.h>

struct ps_server;
struct ps_session;

struct ps_keep {
	uv_work_t work;
	struct fal_snapshot now; /* that is being written, */
	struct ps_slot {         /* whose its images are, in the order of blocks */
		uint32_t shard, count;
		size_t values;
	} slot[FAL_SHARDS_MAX];
	bool busy;              /* if any is; */
	uint32_t missing;       /* images of it that are on their way */
	bool again;             /* then another one, at once */
	bool soon;              /* one is wanted as soon as there can be one */
	uint32_t asks;          /* session that waits for the next one; 0: none */
	bool any;               /* this start has made one */
	bool good;              /* the last one is there, */
	uint64_t clock;         /* of so many clocks, */
	uint64_t last;          /* (those of the last one that is there, if any) */
	double at;              /* since then */
	struct fal_seldom none; /* that one was not made */
};

/* Of fal_coord_ops; `arg` is the server. */
void ps_keep_marked(void *arg, const struct fal_coord_past *past);
/* The image of a shard that is elsewhere, taken; without arrays: it has none. */
void ps_keep_image(struct ps_server *s, uint32_t shard, struct fal_image *image);
/* After an event: is one due, or wanted? */
void ps_keep_event(struct ps_server *s, uint64_t clock);
/* One at once, for a session, which is answered when it is there. */
void ps_keep_ask(struct ps_server *s, struct ps_session *session);
/* The job is done, after so many clocks: what more epochs would go on from.  False: not
 * before what is being written is; ps_after_event follows. */
bool ps_keep_end(struct ps_server *s, uint64_t clock);
/* The server ends: one more, of what there is.  False: there can be none, or it was
 * taken; true: as soon as what is on its way to the next version, or of it, is there, and
 * then ps_keep_soon is false. */
bool ps_keep_last(struct ps_server *s);
bool ps_keep_soon(const struct ps_server *s);
/* Is there one, of this start or that which it went on from? */
bool ps_keep_any(const struct ps_server *s);

#endif
