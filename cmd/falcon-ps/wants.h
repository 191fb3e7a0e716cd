/* Who is to be sent which version, and has not got it yet, of the shards of this process.
 */
#ifndef FALCON_PS_WANTS_H
#define FALCON_PS_WANTS_H

#include "coord/coord.h"
#include "net/chan.h"
#include "publish.h"
#include "served.h"

/* Who reads: a session. */
struct ps_reader {
	struct fal_chan *chan; /* NULL: it is still to come */
	uint64_t since;        /* ns: its link has not taken all since then; 0: it has */
	uint64_t *told;        /* the last PS_TOLD publications, */
	uint64_t tolds;        /* … of so many */
	size_t told_cap;
	uint64_t most; /* largest number of them all, */
	uint64_t gone; /* and of those that are not there any more */
};

/* Publications that are remembered of each reader: mostly more than still exist.  A
 * reader counts as told of every one before these. */
#define PS_TOLD 1024

struct ps_wants {
	struct ps_publisher publisher;
	struct ps_want {
		uint32_t peer, shard;
		struct fal_coord_model model;
	} *v;
	size_t n, cap;
	struct ps_leaving {
		uint32_t peer, shard;
		bool early; /* its version was not made yet */
		struct fal_shared *shared;
	} *leaving; /* until they are whole */
	size_t leaving_n, leaving_cap;
	struct ps_served served;
};

/* The reader of this session; NULL: it is gone. */
typedef struct ps_reader *ps_reader_of(void *arg, uint32_t peer);

/* A version is wanted (fal_coord_ops.model), of all shards that are here; what there is
 * of it leaves with the next ps_wants_leave.  FAL_ENOMEM. */
int ps_wants_add(struct ps_wants *w, uint32_t peer, struct ps_reader *reader,
		 const struct fal_coord_model *model);
/* What is wanted, and made by now, leaves; what was forgotten by then nobody gets.  A
 * channel that does not take it is closed.  FAL_ENOMEM. */
int ps_wants_leave(struct ps_wants *w, ps_reader_of *of, void *arg);
/* It is gone. */
void ps_reader_free(struct ps_reader *reader);
/* The reader's link has taken all, or is gone. */
void ps_wants_taken(struct ps_wants *w, struct ps_reader *reader);
/* The shards have other blocks: what was published, and what was wanted and could not
 * leave, is over; what is on its way arrives. */
void ps_wants_moved(struct ps_wants *w);
/* Nothing is wanted any more, nor what was published; channels that are closing may still
 * have some of that.  With the second there is no channel. */
void ps_wants_forget(struct ps_wants *w);
void ps_wants_free(struct ps_wants *w);

#endif
