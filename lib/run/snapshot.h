/* Snapshots: folders in the state folder, each with an image of all shards and a
 * manifest.  The manifest exists only once the whole snapshot is on disk (falcon-ps(1),
 * FILES).  Also reads and writes policy journals, falcon-policy(5).
 *
 * A thread writes one snapshot at a time and owns the snapshot meanwhile.
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

/* Appends the line with its newline and its chain link; `time` is in seconds since 1970.
 * The chain does not change if `out` has no memory. */
void fal_journal_put(const struct fal_journal_line *l, int64_t time,
		     struct fal_chain *chain, struct fal_buf *out);

/* A reader of a journal; the caller sets the first four members, the others are 0. */
struct fal_journal_reading {
	const char *name; /* of the file, for `diag` */
	/* Takes a line, borrowed for the call, while *chain still ends before that line;
	 * a negative return ends the reading. */
	int (*on_line)(void *arg, const struct fal_journal_line *l);
	void *arg;
	struct fal_chain *chain; /* of all lines read; kept */
	unsigned line;           /* number of the last line examined, from 1 */
	bool unchained;          /* the last line is valid, but its link is wrong */
	size_t whole;            /* bytes of the valid lines with their newlines */
};

/* Passes each line that has a newline to on_line.  FAL_EFORMAT, FAL_EINVAL, FAL_ELIMIT (a
 * line is invalid or its link is wrong; `diag`, which may be NULL, names the line),
 * FAL_ENOMEM, errors of on_line. */
int fal_journal_read(struct fal_journal_reading *r, const struct fal_buf *text,
		     struct fal_diag *diag);

/* Refuses line r->line for a wrong link: sets r->unchained and `diag`, returns
 * FAL_EINVAL. */
int fal_journal_refuse(struct fal_journal_reading *r, struct fal_diag *diag);

/* ---- manifests --- */

/* A snapshot's manifest: numbers and hash of the image beside the manifest, the
 * coordinator's checkpoint, the policy in force, and the lengths of trace and journal.  A
 * chain link (trace/chain.h) at the end of the manifest's file shows damage.  No I/O. */
struct fal_snap_manifest {
	char job[2 * FAL_HASH_BYTES + 1]; /* fal_files.lasting_hex */
	/* net and data: fal_files.model_hex and data_hex.  init: fal_files.from, or, if
	 * that is "", init_hex. */
	char net[2 * FAL_HASH_BYTES + 1], data[2 * FAL_HASH_BYTES + 1],
		init[2 * FAL_HASH_BYTES + 1];
	char sizes[FAL_FILES_SIZES]; /* fal_files.sizes */
	uint32_t incarnation;
	/* Lines of trace and journal before the snapshot, and the links of their ends. */
	uint64_t lines, journal;
	char chain[FAL_CHAIN_DIGITS + 1], journal_chain[FAL_CHAIN_DIGITS + 1];
	struct fal_image_head image;
	/* Size and BLAKE2b hash of state.safetensors; 0 and "" at version 0. */
	uint64_t bytes;
	char blake2b[2 * FAL_HASH_BYTES + 1];
	struct fal_policy policy;
	struct fal_coord_checkpoint past;
};

/* Appends the manifest as a JSON line. */
void fal_snap_manifest_put(const struct fal_snap_manifest *m, struct fal_buf *out);
/* Parses exactly the bytes that fal_snap_manifest_put makes.  `name` stands first in the
 * diagnosis.  FAL_EFORMAT, FAL_EINVAL, FAL_ENOMEM. */
int fal_snap_manifest_get(const char *name, const void *p, size_t n,
			  struct fal_snap_manifest *out, struct fal_diag *diag);
void fal_snap_manifest_free(struct fal_snap_manifest *m);

/* ---- snapshots --- */

/* A snapshot to be written; owns all its members except `folder`. */
struct fal_snapshot {
	int folder;    /* the state folder, borrowed */
	int synced[2]; /* files of trace and journal, synced before the commit; -1: none
			*/
	uint32_t keep; /* number of newest snapshots to keep */
	struct fal_snap_manifest is; /* without bytes and blake2b */
	struct fal_image *image;     /* array by shard; NULL at version 0 */
	uint32_t shards;
	int err; /* of writing */
	struct fal_diag diag;
};

extern const struct fal_snapshot fal_snapshot_none;

/* Writes the snapshot, in any thread; sets `err` and `diag`. */
void fal_snapshot_write(struct fal_snapshot *s);
void fal_snapshot_free(struct fal_snapshot *s);

/* A snapshot on disk. */
struct fal_snapshot_found {
	bool there;
	uint64_t clock;
	struct fal_snap_manifest is; /* the caller frees the manifest */
	struct fal_diag
		damaged; /* why a newer snapshot was passed over; "": no newer one */
};
/* Lists the clocks of all snapshots, the newest first; the caller frees *clock, after an
 * error as well.  FAL_EIO. */
int fal_snapshot_list(int folder, uint64_t **clock, size_t *n, struct fal_diag *diag);
/* Reads the manifest of the snapshot of clock `out->clock` and checks that the snapshot
 * is complete and of this job.  FAL_EFORMAT, FAL_EINVAL, FAL_ESTATE (other sizes of data
 * or model), FAL_EIO, FAL_ENOMEM, with `diag`. */
int fal_snapshot_read(int folder, const struct fal_files *job,
		      struct fal_snapshot_found *out, struct fal_diag *diag);

/* Finds the newest complete snapshot of this job.  FAL_ESTATE, FAL_ENOMEM, FAL_EIO. */
int fal_snapshot_find(int folder, const struct fal_files *job,
		      struct fal_snapshot_found *out, struct fal_diag *diag);
/* Loads the snapshot into new shards, which are at version 0.  FAL_EFORMAT, FAL_EIO,
 * FAL_ENOMEM. */
int fal_snapshot_load(int folder, const struct fal_snapshot_found *f,
		      struct fal_shard_set *r, struct fal_diag *diag);
/* Removes the snapshots of clock `from` and later clocks.  FAL_EIO. */
int fal_snapshot_clear(int folder, uint64_t from, struct fal_diag *diag);

#endif
