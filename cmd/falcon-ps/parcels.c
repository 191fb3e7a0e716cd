/* Images on their way out. */
#include "parcels.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int
ps_parcels_add(struct ps_parcels *p, const struct ps_parcel *parcel)
{
	struct ps_parcel is = *parcel;
	if (FAL_GROW(p->v, p->cap, p->n + 1) < 0) {
		fal_image_free(&is.image);
		return FAL_ENOMEM;
	}
	p->v[p->n++] = is;
	return FAL_OK;
}

/* The next message of it; false: that was all. */
static bool
next(struct ps_parcel *p, uint32_t incarnation, struct fal_buf *out)
{
	if (p->begun)
		return fal_post_bytes(incarnation, p->of.shard, &p->image, &p->at, out);
	(void)fal_post_image(incarnation, &p->of, &p->image, out);
	p->begun = true;
	return true;
}

void
ps_parcels_leave(struct ps_parcels *p, uint32_t incarnation, struct fal_chan *chan,
		 void (*left)(void *arg, struct ps_parcel *parcel), void *arg)
{
	struct fal_buf out = { 0 };
	while (p->n > 0 && fal_chan_room(chan)) {
		fal_buf_clear(&out);
		if (!next(&p->v[0], incarnation, &out)) {
			if (left != NULL)
				left(arg, &p->v[0]);
			fal_image_free(&p->v[0].image);
			memmove(p->v, p->v + 1, --p->n * sizeof(*p->v));
			continue;
		}
		if (out.err < 0 || fal_chan_send(chan, &out, FAL_SEND_BULK) < 0) {
			fal_chan_close(chan);
			break;
		}
	}
	fal_buf_free(&out);
}

void
ps_parcels_clear(struct ps_parcels *p)
{
	while (p->n > 0)
		fal_image_free(&p->v[--p->n].image);
}

void
ps_parcels_free(struct ps_parcels *p)
{
	ps_parcels_clear(p);
	free(p->v);
	*p = (struct ps_parcels){ 0 };
}
