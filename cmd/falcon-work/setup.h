/* What a job's three texts are made into: everything that lanes compute with and that
 * does not change while the job runs.
 *
 * Owns parsing and checking them against each other, and the orders of epochs.
 */
#ifndef WORK_SETUP_H
#define WORK_SETUP_H

#include "base/err.h"
#include "data/batch.h"
#include "data/chunk.h"
#include "data/order.h"
#include "job/job.h"
#include "model/model.h"

#include <stdint.h>

/* The order of one epoch; lanes keep it alive while they use it. */
struct epoch {
	struct fal_order order;
	uint32_t number;
	unsigned refs;
};

struct setup {
	struct fal_job job;
	struct fal_model *model;
	struct fal_manifest manifest;
	struct fal_norm norm;
	struct fal_order test_order;
	struct epoch *epoch; /* the last one asked for, or NULL */
};

/* Bytes, borrowed, and how to call them in a diagnosis. */
struct setup_text {
	const char *name;
	const void *p;
	size_t n;
};

/* Makes `s`, whose manifest the caller has set already and loses in either case; free
 * with setup_free.  Errors are those of the parsers, and FAL_EINVAL for data that do not
 * fit data.mean; each with `diag`. */
int setup_make(struct setup *s, const struct setup_text *job,
	       const struct setup_text *model, struct fal_diag *diag);
void setup_free(struct setup *s); /* `s` is {0} again */

/* The order of epoch `number`, with a reference that epoch_drop gives back; NULL when
 * out of memory. */
struct epoch *setup_epoch(struct setup *s, uint32_t number);
void epoch_drop(struct epoch *e);

/* The most bytes that the versions of the parameters, the sums of `lanes` lanes, and the
 * data take. */
uint64_t setup_bytes(const struct setup *s, uint32_t lanes);

/* The places of a task: its first one in `clock`'s epoch (or in the test set), and how
 * many samples, 0 when there is no such task. */
struct places {
	uint32_t epoch, first, count;
};
struct places setup_places(const struct setup *s, uint64_t clock, uint32_t task);
struct places setup_test_places(const struct setup *s, uint32_t task);

#endif
