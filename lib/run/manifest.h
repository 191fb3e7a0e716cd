/* What a snapshot's manifest says (falcon-ps(1), FILES): the numbers of the image beside
 * it, its hash, what the coordinator was, the policy that held, and how much of trace and
 * journal belongs to it; last a link of its own (trace/chain.h), so that none that was
 * damaged is believed.  Bytes in, bytes out: no I/O. */
#ifndef FAL_RUN_MANIFEST_H
#define FAL_RUN_MANIFEST_H

#include "base/buf.h"
#include "base/err.h"
#include "coord/past.h"
#include "run/files.h"
#include "sched/policy.h"
#include "sec/hash.h"
#include "store/image.h"
#include "trace/chain.h"

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

#endif
