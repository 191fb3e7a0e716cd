/* A process of shards for another coordinator's job, shared by
 *
 *	join.c    its connection to the coordinator, its listener, its end
 *	place.c   what it is given: job, blocks, values; and what becomes of these
 *	guest.c   the workers' sessions
 */
#ifndef FALCON_PS_JOIN_H
#define FALCON_PS_JOIN_H

#include "image_queue.h"
#include "job/job.h"
#include "model/model.h"
#include "net/listen.h"
#include "net/retry.h"
#include "run.h"
#include "shard/post.h"
#include "wants.h"

#include <uv.h>

/* A worker's session with the coordinator. */
struct ps_guest {
	struct ps_join *join;
	uint32_t id;
	uint8_t *psk; /* in locked memory */
	bool attached;
	struct ps_reader reader; /* its channel, once it has come */
};

struct ps_join {
	const struct ps_run *run;
	uv_loop_t loop;
	uv_timer_t timer; /* to try again, or the end */
	uv_signal_t on_int, on_term;
	struct fal_listen *listen;
	struct fal_link link; /* of all that it sends, with --rate-limit */
	uint64_t busy;        /* of that */
	struct fal_keyring *keys;
	uint8_t *secret; /* its own static key, in locked memory */
	uint8_t instance[FAL_INSTANCE];
	struct fal_chan *chan; /* to the coordinator */
	bool open;
	struct fal_retry retry;
	struct fal_diag later; /* why the coordinator goes, as it said; "": it did not */
	struct fal_diag bye;   /* it was drained: what it says when workers have all */
	bool parting;          /* so it is */
	bool ending;
	int code;

	/* What it was given, from PLACE on; `of` 0: nothing. */
	uint32_t incarnation, of, first, count, tasks;
	struct fal_ticket_in tickets;
	struct fal_buf cut;     /* which shard has which blocks */
	struct fal_buf text[2]; /* job, model */
	uint32_t size[2];
	struct fal_job job;
	struct fal_model *model;
	struct fal_rack *rack;  /* NULL: the texts are not here yet */
	uint32_t became;        /* shards that are what they should be */
	uint32_t versions;      /* that were to be kept, at most */
	uint64_t program;       /* bytes of itself, before it had shards */
	uint64_t need;          /* as it was said last, in bytes */
	bool near;              /* all workers so far were on this machine */
	struct fal_map map, to; /* that holds; that will, in a move: else no shards */
	struct fal_image coming;
	struct fal_post_of of_coming;
	bool comes;
	struct fal_post_at at;
	struct ps_wants wants;
	struct ps_guest **guest; /* by id */
	size_t guests, guest_cap;
	struct image_queue images;
};

/* join.c */

/* How its channels are to be. */
struct fal_chan_opt join_chan_opt(const struct ps_join *j);
/* Sends `m` to the coordinator. */
void join_say(struct ps_join *j, struct fal_msg *m);
/* A fal_post_each: a piece of a SAY goes to the coordinator. */
int join_piece(void *join, const struct fal_buf *msg);
/* It has no blocks any more: ends it when workers have what was sent to them. */
void join_parted(struct ps_join *j);
/* Ends the process with this exit code, and why; NULL: it was said. */
void join_end(struct ps_join *j, int code, const char *why);

/* place.c */

/* A message of the coordinator that is about what it was given.  0 or an error. */
int place_msg(struct ps_join *j, const struct fal_msg *m);
/* What the shards have to say leaves, and what was wanted and is made. */
int place_speak(struct ps_join *j);
/* There is room for what is long. */
void place_more(struct ps_join *j);
/* The coordinator is gone: nothing of it is any use. */
void place_forget(struct ps_join *j);

/* guest.c */

int guest_admit(struct ps_join *j, const struct fal_msg *m);
/* No more is sent to them; have all of them taken what was? */
void guest_part(struct ps_join *j);
bool guest_parted(const struct ps_join *j);
int guest_dismiss(struct ps_join *j, uint32_t id);
struct ps_guest *guest_find(const struct ps_join *j, uint32_t id);
/* Of ps_wants; `arg` is the join. */
struct ps_reader *guest_reader(void *arg, uint32_t id);
/* Of fal_listen_ops; `arg` is the join. */
void guest_accept(void *arg, struct fal_chan *c, const char *name, enum fal_role role);
/* A keyring of the guests that there are. */
int guest_keys(struct ps_join *j);
void guest_forget(struct ps_join *j);

#endif
