/* Images of shards on their way to another process, one behind the other. */
#ifndef FALCON_PS_IMAGE_QUEUE_H
#define FALCON_PS_IMAGE_QUEUE_H

#include "net/conn.h"
#include "shard/post.h"

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

/* Adds an image; takes it, also with FAL_ENOMEM. */
int image_queue_add(struct image_queue *q, const struct queued_image *image);

/* Sends as much as the channel has room for, and closes a channel that fails.  `left`
 * (may be NULL) may take an image that was sent. */
void image_queue_send(struct image_queue *q, uint32_t incarnation, struct fal_chan *chan,
		      void (*left)(void *arg, struct queued_image *image), void *arg);

/* Drops the pieces of an aborted move.  A piece that is partly sent stays, as a copy, as
 * what it borrows may change from now on.  FAL_ENOMEM: it was not copied. */
int image_queue_abort(struct image_queue *q);

void image_queue_clear(struct image_queue *q);
void image_queue_free(struct image_queue *q);

#endif
