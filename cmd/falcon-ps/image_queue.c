/* Images of shards on their way to another process, and from that process. */
#include "server.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void
image_queue_add(struct image_queue *q, const struct queued_image *image)
{
	FAL_XGROW(q->v, q->cap, q->n + 1);
	q->v[q->n++] = *image;
}

void
image_queue_add_piece(struct image_queue *q, uint32_t to,
		      struct fal_shard_set_piece *piece)
{
	const struct queued_image p = { .of = { FAL_FETCH_PIECE, to, piece->epoch,
						piece->first, piece->count },
					.image = piece->image };
	piece->image = (struct fal_image){ 0 };
	image_queue_add(q, &p);
}

void
image_queue_send(struct image_queue *q, uint32_t incarnation, struct fal_chan *chan,
		 void (*on_sent)(void *arg, struct queued_image *image), void *arg)
{
	struct fal_buf out = { 0 };
	while (q->n > 0 && fal_chan_has_room(chan)) {
		struct queued_image *p = &q->v[0];
		fal_buf_clear(&out);
		if (!p->has_begun) {
			(void)fal_shard_codec_image(incarnation, &p->of, &p->image, &out);
			p->has_begun = true;
		} else if (!fal_shard_codec_bytes(incarnation, p->of.shard, &p->image,
						  &p->at, &out)) {
			if (on_sent != NULL)
				on_sent(arg, p);
			fal_image_free(&p->image);
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
		if (piece && !is->has_begun) {
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

int
image_intake_begin(struct image_intake *in, const struct fal_msg *m, uint32_t blocks)
{
	assert(!in->is_active);
	*in = (struct image_intake){ .of = { (enum fal_fetch)m->image.what,
					     m->image.shard, m->image.epoch,
					     m->image.first, m->image.blocks } };
	int err = fal_shard_codec_image_get(
		m, fal_shard_codec_image_most(blocks, FAL_SLACK_MAX), &in->image);
	in->is_active = err == FAL_OK && in->image.arrays > 0;
	return err < 0 ? err : !in->is_active;
}

int
image_intake_add(struct image_intake *in, const struct fal_msg *m)
{
	if (!in->is_active)
		return FAL_ESTATE;
	if (m->bytes.shard != in->of.shard)
		return FAL_EFORMAT;
	int got = fal_shard_codec_bytes_get(&m->bytes.bytes, &in->image, &in->at);
	in->is_active = got != 1;
	return got;
}
