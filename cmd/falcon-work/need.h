/* Saying what is needed of memory. */
#ifndef WORK_NEED_H
#define WORK_NEED_H

#include "base/err.h"
#include "work.h"

/* Memory of a job: resident bytes at the peak, and address space beside them that is
 * hardly used. */
struct need {
	uint64_t bytes, space;
};

/* Logs that the job "needs", or "now needs", so many MiB, unless `said` bytes are as
 * many.  FAL_ENOMEM, with `diag`: the need is beyond --max-memory. */
int need_judge(const struct work_opt *opt, const char *job, const char *needs,
	       struct need need, uint64_t said, struct fal_diag *diag);

#endif
