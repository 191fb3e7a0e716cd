/* Images on their way out. */
#include "image_queue.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int
image_queue_add(struct image_queue *q, const struct queued_image *image)
{
	struct queued_image is = *image;
	if (FAL_GROW(q->v, q->cap, q->n + 1) < 0) {
		fal_image_free(&is.image);
		return FAL_ENOMEM;
	}
	q->v[q->n++] = is;
	return FAL_OK;
}

/* Makes the next message of the image; false: there is none. */
static bool
next_message(struct queued_image *p, uint32_t incarnation, struct fal_buf *out)
{
	if (p->begun)
		return fal_post_bytes(incarnation, p->of.shard, &p->image, &p->at, out);
	(void)fal_post_image(incarnation, &p->of, &p->image, out);
	p->begun = true;
	return true;
}

void
image_queue_send(struct image_queue *q, uint32_t incarnation, struct fal_chan *chan,
		 void (*left)(void *arg, struct queued_image *image), void *arg)
{
	struct fal_buf out = { 0 };
	while (q->n > 0 && fal_chan_room(chan)) {
		fal_buf_clear(&out);
		if (!next_message(&q->v[0], incarnation, &out)) {
			if (left != NULL)
				left(arg, &q->v[0]);
			fal_image_free(&q->v[0].image);
			memmove(q->v, q->v + 1, --q->n * sizeof(*q->v));
			continue;
		}
		if (out.err < 0 || fal_chan_send(chan, &out, FAL_SEND_BULK) < 0) {
			fal_chan_close(chan);
			break;
		}
	}
	fal_buf_free(&out);
}

int
image_queue_abort(struct image_queue *q)
{
	size_t kept = 0;
	int err = FAL_OK;
	for (size_t i = 0; i < q->n; i++) {
		struct queued_image *is = &q->v[i];
		const bool piece = is->of.what == FAL_FETCH_PIECE;
		if (piece && !is->begun) {
			fal_image_free(&is->image);
			continue;
		}
		if (piece && !is->image.owned) {
			struct fal_image copy = { 0 };
			err = fal_image_copy(&copy, &is->image);
			fal_image_free(&is->image);
			is->image = copy;
		}
		q->v[kept++] = *is;
	}
	q->n = kept;
	return err;
}

void
image_queue_clear(struct image_queue *q)
{
	while (q->n > 0)
		fal_image_free(&q->v[--q->n].image);
}

void
image_queue_free(struct image_queue *q)
{
	image_queue_clear(q);
	free(q->v);
	*q = (struct image_queue){ 0 };
}
