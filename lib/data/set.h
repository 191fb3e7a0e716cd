/* A data set in memory: n samples of bytes, each with a class.
 *
 * This is what the coordinator (or a worker with a local copy) loads from files;
 * chunk.h cuts it up, samples.h is the worker's side.
 */
#ifndef FAL_DATA_SET_H
#define FAL_DATA_SET_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum {
	/* bytes a sample: one less than a chunk, which holds its label too */
	FAL_SAMPLE_MAX = (1 << 20) - 1,
	FAL_CLASSES_MAX = 256 /* a label is one byte */
};

#define FAL_SAMPLES_MAX (UINT32_C(1) << 31)

struct fal_set {
	uint32_t n;            /* samples, 1 … FAL_SAMPLES_MAX */
	uint32_t shape[3];     /* channels, height, width; absent leading ones are 1 */
	uint32_t classes;      /* 1 … FAL_CLASSES_MAX */
	uint32_t sample_bytes; /* shape[0] · shape[1] · shape[2], 1 … FAL_SAMPLE_MAX */
	uint8_t *pixels;       /* n × shape */
	uint8_t *labels;       /* n, each < classes */
};

/* How to load.  {0} takes every sample and counts the classes itself. */
struct fal_set_opts {
	uint32_t max_samples; /* use only the first so many; 0: all */
	uint32_t classes;     /* refuse labels from here on; 0: highest label + 1 */
	uint64_t max_bytes;   /* refuse a set of more pixel bytes; 0: no limit */
};

/* Loads the IDX file `images` (n × up to three dimensions) with the IDX file `labels`
 * (n); both may be gzipped.  `diag` (may be NULL) names the file at fault.  Errors:
 * those of fal_idx_read; FAL_EFORMAT for dimensions or counts that do not fit, and for
 * a label ≥ classes; FAL_ELIMIT for a sample above FAL_SAMPLE_MAX; FAL_EINVAL for
 * options outside their range.  Free with fal_set_free. */
int fal_set_load_idx(const char *images, const char *labels,
		     const struct fal_set_opts *opts, struct fal_set *out,
		     struct fal_diag *diag);

void fal_set_free(struct fal_set *set); /* `set` is {0} again */

#endif
