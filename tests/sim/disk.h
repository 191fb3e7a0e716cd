/* The disk of a coordinator: what it has written there, what a crash leaves of that, and
 * what a start reads.  As falcon-ps keeps a state folder, with its own manifests and
 * journal, and without any I/O.
 *
 * The fault model is TigerBeetle's (docs/concepts/safety.md): blocks are torn, lost,
 * misdirected and flipped; what was written last is hit most. */
#ifndef DISK_H
#define DISK_H

#include "base/buf.h"
#include "base/rng.h"
#include "run/snapshot.h"
#include "server/shard_set.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A snapshot's folder. */
struct disk_snapshot {
	uint64_t clock; /* its name */
	struct fal_buf manifest, state;
	bool damaged;
};

/* A change that was journalled. */
struct disk_change {
	uint64_t clock;
	char by[FAL_MSG_NAME];
	struct fal_policy policy;
	struct fal_chain before; /* of the lines before it */
	size_t at;               /* bytes before it */
};

/* {0} is empty and valid. */
struct disk {
	uint32_t keep;                  /* the newest so many snapshots */
	struct disk_snapshot *snapshot; /* the oldest first */
	size_t snapshots, snapshot_cap;
	struct fal_buf journal;
	struct fal_chain chain; /* of the journal */
	/* What it said, to be held against what is read. */
	struct disk_change *change;
	size_t changes, change_cap;
};

/* What a start has found. */
struct disk_found {
	bool there; /* a snapshot: */
	struct fal_snap_manifest is;
	struct fal_buf state;       /* borrowed */
	struct disk_change *change; /* the journal; its policies are owned */
	size_t changes, change_cap;
	size_t again; /* the first of these that is to hold again */
	size_t older; /* newer snapshots that are not whole */
	size_t torn;  /* bytes of the journal */
	bool refused; /* the journal lacks lines that the snapshot was taken behind */
};

/* The snapshot that `is` and the images make, of no shards for version 0.  What of the
 * journal is in force while `agains` of its last lines wait.  FAL_ENOMEM. */
void disk_reach(const struct disk *d, size_t agains, struct fal_snap_manifest *is);
int disk_keep(struct disk *d, struct fal_snap_manifest *is, const struct fal_image *image,
	      uint32_t shards);
int disk_journal(struct disk *d, const struct fal_journal_line *l);

/* The crash.  Returns how many changes are gone. */
size_t disk_crash(struct disk *d, struct fal_rng *r);

/* The newest snapshot that is whole, and the journal, of which a torn end is cut off;
 * where it is refused: without a snapshot, as whoever starts it then says.  NULL, or what
 * is wrong with it; free it in each case. */
const char *disk_read(struct disk *d, struct disk_found *out);
void disk_found_free(struct disk_found *f);
/* Of what was found: the shards, which are new, become that. */
int disk_load(const struct disk_found *f, struct fal_shard_set *r);
/* What is newer than what was found, or all, goes. */
void disk_go_on(struct disk *d, const struct disk_found *f);

void disk_free(struct disk *d);

#endif
