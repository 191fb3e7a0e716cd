/* Saying what is needed of memory. */
#ifndef WORK_NEED_H
#define WORK_NEED_H

#include "base/err.h"
#include "cli/need.h"
#include "work.h"

/* Says it, with its parts where more is to be said, and no word where `said` bytes are as
 * many MiB: the job "needs", or "now needs".  FAL_ENOMEM, with `diag`, where it is beyond
 * --max-memory. */
int need_judge(const struct work_opt *opt, const char *job, const char *needs,
	       const struct fal_need *need, uint64_t said, struct fal_diag *diag);

#endif
