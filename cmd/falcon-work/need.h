/* Saying what is needed of memory. */
#ifndef WORK_NEED_H
#define WORK_NEED_H

#include "base/err.h"
#include "work.h"

/* What a job takes: bytes that are resident at its peak, and address space besides that
 * is hardly used. */
struct need {
	uint64_t bytes, space;
};

/* Says it, and no word where `said` bytes are as many MiB: the job "needs", or "now
 * needs". FAL_ENOMEM, with `diag`, where it is beyond --max-memory. */
int need_judge(const struct work_opt *opt, const char *job, const char *needs,
	       struct need need, uint64_t said, struct fal_diag *diag);

#endif
