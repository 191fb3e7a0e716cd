/* What a clock made, computed anew, held against what the trace says of who made it. */
#ifndef FALCON_STAT_COMPARE_H
#define FALCON_STAT_COMPARE_H

#include "course.h"
#include "model/model.h"
#include "recompute.h"
#include "run/replay.h"

/* Of a clock whose lines are there; by task, as many as a clock has. */
struct compare {
	const struct course *course;
	uint64_t clock;
	uint8_t *skips;
	uint64_t *seed;
	struct fal_anew_task *task; /* once it was computed */
	/* What it was computed with is known to be what the run had: where it is not, a
	 * contribution is only to blame if more keys made what is right than did not. */
	bool sure;
};

/* Reads what was skipped, and the seeds of checksums; *sums: there are any. */
int compare_begin(const struct compare *c, bool *sums);

/* Adds each contribution that is not what its tasks make, with its key, to what is wrong;
 * so are tasks that were skipped and make something. */
int compare_tasks(const struct compare *c, struct stat_recomputed *out);

/* Have these n parameters this hash of a version; and the exponents of so many blocks;
 * is a file of parameters this SHA-256? */
bool compare_hash(const uint8_t hash[static FAL_HASH_BYTES], const float *params,
		  size_t n);
bool compare_exponents(const uint8_t hash[static FAL_HASH_BYTES], const int8_t *exps,
		       uint32_t blocks);
bool compare_model(const char *sha256, const float *params, const struct fal_model *m);

#endif
