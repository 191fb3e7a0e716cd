/* What a job's three texts are made into: everything that lanes compute with and that
 * does not change while the job runs.
 *
 * Owns parsing and checking them against each other, and the orders of epochs.
 */
#ifndef FAL_RUN_SETUP_H
#define FAL_RUN_SETUP_H

#include "base/err.h"
#include "data/order.h"
#include "data/chunk.h"
#include "job/job.h"
#include "model/model.h"

#include <stdint.h>

/* The order of one epoch; lanes keep it alive while they use it. */
struct fal_epoch {
	struct fal_order order;
	uint32_t number;
	unsigned refs;
};

struct fal_setup {
	struct fal_job job;
	struct fal_model *model;
	struct fal_manifest manifest;
	struct fal_norm norm;
	struct fal_order test_order;
	struct fal_epoch *epoch; /* the last one asked for, or NULL */
};

/* Bytes, borrowed, and how to call them in a diagnosis. */
struct fal_setup_text {
	const char *name;
	const void *p;
	size_t n;
};

/* The job and its model, laid out as the job has it, with the job's names of tensors
 * found in it.  Errors are those of the parsers, with `diag`; what was made is the
 * caller's in either case. */
int fal_setup_parse(const struct fal_setup_text *job, const struct fal_setup_text *model,
		    struct fal_job *out, struct fal_model **m, struct fal_diag *diag);

/* Makes `s`, whose manifest the caller has set already and loses in either case; free
 * with fal_setup_free.  Errors are those of the parsers, and FAL_EINVAL for data that do
 * not fit data.mean; each with `diag`. */
int fal_setup_make(struct fal_setup *s, const struct fal_setup_text *job,
		   const struct fal_setup_text *model, struct fal_diag *diag);
void fal_setup_free(struct fal_setup *s); /* `s` is {0} again */

/* The order of epoch `number`, with a reference that fal_epoch_drop gives back; NULL when
 * out of memory. */
struct fal_epoch *fal_setup_epoch(struct fal_setup *s, uint32_t number);
void fal_epoch_drop(struct fal_epoch *e);

/* The bytes of all samples with their labels, and of two orders of epochs. */
uint64_t fal_setup_bytes(const struct fal_setup *s);

/* The places of a task: its first one in `clock`'s epoch (or in the test set), and how
 * many samples, 0 when there is no such task. */
struct fal_places {
	uint32_t epoch, first, count;
};
struct fal_places fal_setup_places(const struct fal_setup *s, uint64_t clock,
				   uint32_t task);
struct fal_places fal_setup_test_places(const struct fal_setup *s, uint32_t task);

#endif
