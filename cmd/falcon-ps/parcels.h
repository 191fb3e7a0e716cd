/* Images of shards on their way to another process, one behind the other. */
#ifndef FALCON_PS_PARCELS_H
#define FALCON_PS_PARCELS_H

#include "net/chan.h"
#include "shard/post.h"

/* Blocks of a piece, at most: about a mebibyte of a version, so that whoever passes it
 * on, or grafts it, does so while the next one comes. */
enum { PS_PARCEL_BLOCKS = 64 };

struct ps_parcel {
	struct fal_post_of of;
	struct fal_image image;
	bool begun;
	struct fal_post_at at;
};

/* {0} is empty. */
struct ps_parcels {
	struct ps_parcel *v;
	size_t n, cap;
};

/* Takes the parcel's image, with FAL_ENOMEM, too. */
int ps_parcels_add(struct ps_parcels *p, const struct ps_parcel *parcel);

/* Sends what there is room for; a channel that does not take it is closed.  `left` (NULL:
 * nobody) may take the image of one that has left. */
void ps_parcels_leave(struct ps_parcels *p, uint32_t incarnation, struct fal_chan *chan,
		      void (*left)(void *arg, struct ps_parcel *parcel), void *arg);

void ps_parcels_clear(struct ps_parcels *p);
void ps_parcels_free(struct ps_parcels *p);

#endif
