/* Snapshots: folders of the state folder, each with an image of all shards and a
 * manifest, which is there when all of it is on disk (falcon-ps(1), FILES).
 *
 * Written by a thread, one at a time; the loop hands over what is its own by then.
 */
#ifndef FAL_RUN_SNAPSHOT_H
#define FAL_RUN_SNAPSHOT_H

#include "run/files.h"
#include "run/manifest.h"
#include "shard/rack.h"

#include <stdbool.h>

/* One to be written, of which everything is owned. */
struct fal_snapshot {
	int folder;    /* of the state, borrowed */
	int synced[2]; /* what is to be on disk before: trace, journal; or -1;
			* closed with it */
	uint32_t keep; /* the newest so many are kept */
	struct fal_snap_manifest is; /* all but bytes and blake2b */
	struct fal_image *image;     /* of each shard; of version 0 there is none */
	uint32_t shards;
	int err; /* of writing */
	struct fal_diag diag;
};

extern const struct fal_snapshot fal_snapshot_none;

/* Writes it, in any thread; what it says is in `err` and `diag`. */
void fal_snapshot_write(struct fal_snapshot *s);
void fal_snapshot_free(struct fal_snapshot *s);

/* One that was found. */
struct fal_found {
	bool there;
	uint64_t clock;
	struct fal_snap_manifest is; /* to be freed */
	struct fal_diag damaged;     /* why a newer one was passed over; "": none was */
};
/* The clocks of all that there are, the newest first; free *clock with free().  FAL_EIO,
 * FAL_ENOMEM. */
int fal_snapshot_list(int folder, uint64_t **clock, size_t *n, struct fal_diag *diag);
/* That of clock `out->clock`, if it is one of this job and whole; else FAL_EFORMAT,
 * FAL_EINVAL, FAL_EIO, FAL_ENOMEM, and `diag` says why not. */
int fal_snapshot_read(int folder, const struct fal_files *job, struct fal_found *out,
		      struct fal_diag *diag);

/* The newest one of this job that is whole.  FAL_ENOMEM, FAL_EIO. */
int fal_snapshot_find(int folder, const struct fal_files *job, struct fal_found *out,
		      struct fal_diag *diag);
/* Makes new shards what it was; version 0 they are.  FAL_EFORMAT, FAL_EIO, FAL_ENOMEM. */
int fal_snapshot_load(int folder, const struct fal_found *f, struct fal_rack *r,
		      struct fal_diag *diag);
/* Removes those of this clock and later ones.  FAL_EIO, FAL_ENOMEM. */
int fal_snapshot_clear(int folder, uint64_t from, struct fal_diag *diag);

#endif
