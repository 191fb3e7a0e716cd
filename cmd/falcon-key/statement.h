/* What is said of a run: an in-toto Statement (v1) about the files of its folder. */
#ifndef FALCON_KEY_STATEMENT_H
#define FALCON_KEY_STATEMENT_H

#include "base/buf.h"
#include "base/err.h"

#define STATEMENT_TYPE "application/vnd.in-toto+json"

/* Reads the state folder `dir` of a job that is done and appends its statement.  The same
 * folder makes the same bytes.  Errors with a diagnosis: FAL_EIO, FAL_ENOENT, FAL_EPERM,
 * FAL_ENOMEM; FAL_ESTATE where the job is not done; FAL_EFORMAT where trace, journal,
 * job, result and model do not belong together. */
int statement_make(const char *dir, struct fal_buf *out, struct fal_diag *diag);

#endif
