/* What is said of a run: one line of JSON about the files of its folder. */
#ifndef FALCON_KEY_STATEMENT_H
#define FALCON_KEY_STATEMENT_H

#include "base/buf.h"
#include "base/err.h"

/* Reads the state folder `dir` of a job that is done and appends its statement.  The same
 * folder makes the same bytes.  Errors with a diagnosis: FAL_EIO, FAL_ENOENT, FAL_EPERM,
 * FAL_ENOMEM; FAL_ESTATE where the job is not done; FAL_EFORMAT where trace, job and
 * model do not belong together, or the trace does not chain. */
int statement_make(const char *dir, struct fal_buf *out, struct fal_diag *diag);

#endif
