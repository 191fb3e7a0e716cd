/* Images of shards on their way to another process, one behind the other; and one that
 * comes. */
#ifndef FALCON_PS_IMAGE_QUEUE_H
#define FALCON_PS_IMAGE_QUEUE_H

#include "net/conn.h"
#include "shard/post.h"
#include "shard/rack.h"

struct queued_image {
	struct fal_post_of of;
	struct fal_image image;
	bool begun;
	struct fal_post_at at;
};

/* {0} is empty. */
struct image_queue {
	struct queued_image *v;
	size_t n, cap;
};

/* Adds an image, and takes it. */
void image_queue_add(struct image_queue *q, const struct queued_image *image);
/* Adds a piece for shard `to` of the job, and takes its image. */
void image_queue_add_piece(struct image_queue *q, uint32_t to,
			   struct fal_rack_piece *piece);

/* Sends as much as the channel has room for, and closes a channel that fails.  `left`
 * (may be NULL) may take an image that was sent. */
void image_queue_send(struct image_queue *q, uint32_t incarnation, struct fal_chan *chan,
		      void (*left)(void *arg, struct queued_image *image), void *arg);

/* Drops the pieces of an aborted move.  A piece that is partly sent stays, as a copy, as
 * what it borrows may change from now on.  FAL_ENOMEM: it was not copied. */
int image_queue_abort(struct image_queue *q);

void image_queue_clear(struct image_queue *q);
void image_queue_free(struct image_queue *q);

/* An image on its way in.  {0}: none is. */
struct image_intake {
	bool any;
	struct fal_post_of of;
	struct fal_image image;
	struct fal_post_at at;
};

/* An IMAGE begins one, where none is on its way, of at most so many blocks.  1: it has no
 * arrays, and is whole, as image_intake_add has it; 0; errors as of fal_post_image_get.
 */
int image_intake_begin(struct image_intake *in, const struct fal_msg *m, uint32_t blocks);
/* BYTES of it.  1: it is whole: `image` is the caller's to free; 0; FAL_ESTATE: none is
 * on its way; FAL_EFORMAT. */
int image_intake_add(struct image_intake *in, const struct fal_msg *m);

#endif
