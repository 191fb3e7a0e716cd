/* Snapshots: folders of the state folder, each with an image of all shards and a
 * manifest, which is there when all of it is on disk (falcon-ps(1), FILES).
 *
 * Written by a thread, one at a time; the loop hands over what is its own by then.
 */
#ifndef FALCON_PS_SNAPSHOT_H
#define FALCON_PS_SNAPSHOT_H

#include "manifest.h"
#include "shard/rack.h"

#include <stdbool.h>

/* One to be written, of which everything is owned. */
struct ps_snapshot {
	int folder;              /* of the state, borrowed */
	int synced[2];           /* what is to be on disk before: trace, journal; or -1;
				  * closed with it */
	uint32_t keep;           /* the newest so many are kept */
	struct ps_manifest is;   /* all but bytes and blake2b */
	struct fal_image *image; /* of each shard; of version 0 there is none */
	uint32_t shards;
	int err; /* of writing */
	struct fal_diag diag;
};

extern const struct ps_snapshot ps_snapshot_none;

/* Writes it, in any thread; what it says is in `err` and `diag`. */
void ps_snapshot_write(struct ps_snapshot *s);
void ps_snapshot_free(struct ps_snapshot *s);

/* The newest one of this job that is whole.  FAL_ENOMEM, FAL_EIO. */
struct ps_found {
	bool there;
	uint64_t clock;
	struct ps_manifest is;   /* to be freed */
	struct fal_diag damaged; /* why a newer one was passed over; "": none was */
};
int ps_snapshot_find(int folder, const char *job, struct ps_found *out,
		     struct fal_diag *diag);
/* Makes new shards what it was; version 0 they are.  FAL_EFORMAT, FAL_EIO, FAL_ENOMEM. */
int ps_snapshot_load(int folder, const struct ps_found *f, struct fal_rack *r,
		     struct fal_diag *diag);
/* Removes those of this clock and later ones.  FAL_EIO, FAL_ENOMEM. */
int ps_snapshot_clear(int folder, uint64_t from, struct fal_diag *diag);

#endif
