/* Snapshots: folders of the state folder, each with an image of all shards and a
 * manifest, which is there when all of it is on disk (falcon-ps(1), FILES); and the lines
 * of a policy journal, falcon-policy(5).
 *
 * Written by a thread, one at a time; the loop hands over what is its own by then.
 */
#ifndef FAL_RUN_SNAPSHOT_H
#define FAL_RUN_SNAPSHOT_H

#include "run/job_files.h"
#include "sched/policy.h"
#include "server/coord.h"
#include "server/image.h"
#include "server/shard_set.h"
#include "trace/chain.h"

/* ---- policy journals --- */

struct fal_journal_line {
	uint64_t clock, version;
	const char *by;
	const struct fal_policy *policy;
};

/* Appends the line, with its newline and its link; `time` is in seconds of the epoch.
 * The chain stays where it was if `out` has no memory. */
void fal_journal_put(const struct fal_journal_line *l, int64_t time,
		     struct fal_chain *chain, struct fal_buf *out);

/* A reading of a journal, and the taker of its lines; 0 but for the first four. */
struct fal_journal_reading {
	const char *name; /* of the file, for `diag` */
	/* Borrowed for the call, with *chain as it was before the line; a negative return
	 * ends the reading. */
	int (*on_line)(void *arg, const struct fal_journal_line *l);
	void *arg;
	struct fal_chain *chain; /* of all that was read; kept */
	unsigned line;           /* the last one that was looked at, from 1 */
	bool unchained;          /* it is a line, but not the one that follows */
	size_t whole;            /* bytes of the lines that are some, with their ends */
};

/* Hands each line that has an end to on_line.  FAL_EFORMAT, FAL_EINVAL, FAL_ELIMIT: one
 * is no line of a journal, or does not follow, which `diag` (may be NULL) names;
 * FAL_ENOMEM; what on_line returned. */
int fal_journal_read(struct fal_journal_reading *r, const struct fal_buf *text,
		     struct fal_diag *diag);

/* The line at r->line does not chain the one before.  FAL_EINVAL. */
int fal_journal_refuse(struct fal_journal_reading *r, struct fal_diag *diag);

/* ---- manifests --- */

/* The contents of a snapshot's manifest: the numbers of the image beside it, the image's
 * hash, the coordinator's past, the policy that held, and how much of trace and journal
 * belongs to it; last a link of its own (trace/chain.h), so that no damaged manifest is
 * believed.  Bytes in, bytes out: no I/O. */
struct fal_snap_manifest {
	char job[2 * FAL_HASH_BYTES + 1]; /* fal_files.lasting_hex */
	/* model_hex and data_hex of the same; its `from`, or else init_hex. */
	char net[2 * FAL_HASH_BYTES + 1], data[2 * FAL_HASH_BYTES + 1],
		init[2 * FAL_HASH_BYTES + 1];
	char sizes[FAL_FILES_SIZES]; /* of the same */
	uint32_t incarnation;
	uint64_t lines, journal; /* of trace and journal that are before it, and the */
	char chain[FAL_CHAIN_DIGITS + 1], journal_chain[FAL_CHAIN_DIGITS + 1]; /* links */
	struct fal_image_head image;
	uint64_t bytes; /* of state.safetensors, and its BLAKE2b; version 0 has none: 0,
			   "" */
	char blake2b[2 * FAL_HASH_BYTES + 1];
	struct fal_policy policy;
	struct fal_coord_past past;
};

void fal_snap_manifest_put(const struct fal_snap_manifest *m, struct fal_buf *out);
/* Reads what fal_snap_manifest_put made, and nothing else.  `name` stands first in the
 * diagnosis.  FAL_EFORMAT, FAL_EINVAL, FAL_ENOMEM. */
int fal_snap_manifest_get(const char *name, const void *p, size_t n,
			  struct fal_snap_manifest *out, struct fal_diag *diag);
void fal_snap_manifest_free(struct fal_snap_manifest *m);

/* ---- snapshots --- */

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
/* The clocks of all that there are, the newest first; free *clock with free(), after
 * an error, too.  FAL_EIO. */
int fal_snapshot_list(int folder, uint64_t **clock, size_t *n, struct fal_diag *diag);
/* That of clock `out->clock`, if it is one of this job and whole; else FAL_EFORMAT,
 * FAL_EINVAL, FAL_EIO, FAL_ENOMEM, and `diag` says why not. */
int fal_snapshot_read(int folder, const struct fal_files *job, struct fal_found *out,
		      struct fal_diag *diag);

/* The newest one of this job that is whole.  FAL_ENOMEM, FAL_EIO. */
int fal_snapshot_find(int folder, const struct fal_files *job, struct fal_found *out,
		      struct fal_diag *diag);
/* Makes new shards what it was; version 0 they are.  FAL_EFORMAT, FAL_EIO, FAL_ENOMEM. */
int fal_snapshot_load(int folder, const struct fal_found *f, struct fal_shard_set *r,
		      struct fal_diag *diag);
/* Removes those of this clock and later ones.  FAL_EIO. */
int fal_snapshot_clear(int folder, uint64_t from, struct fal_diag *diag);

#endif
