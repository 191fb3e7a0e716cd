/* A local copy of the data, read beside the loop. */
#ifndef WORK_FILL_H
#define WORK_FILL_H

#include "base/err.h"
#include "data/chunk.h"
#include "job/job.h"

#include <stdbool.h>
#include <uv.h>

/* Where data come from and go to.  All but the structure itself is kept until on_end, and
 * the samples are touched by nobody else until then. */
struct fill_conf {
	struct fal_samples *samples[2]; /* train, test; NULL: no such set */
	const struct fal_job *job;
	const char *dir; /* its files have the last parts of the job's names */
	void (*on_end)(void *arg);
	void *arg;
};

/* Zero: none. */
struct fill {
	bool running;
	int err; /* once it is over, with diag */
	struct fal_diag diag;
	/* private */
	uv_work_t work;
	struct fill_conf conf;
};

/* Starts putting all of the job's data in; `f` is kept until on_end, when `err` is 0 or
 * an error of fal_load_set or fal_samples_put_set.  FAL_EIO. */
int fill_start(struct fill *f, uv_loop_t *loop, const struct fill_conf *conf);

#endif
