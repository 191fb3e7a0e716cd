/* A run's folder: what its trace says, held against the job, the result, the
 * model and the journal that lie beside it. */
#ifndef FALCON_STAT_FOLDER_H
#define FALCON_STAT_FOLDER_H

#include "journal.h"
#include "trace/audit.h"

#include <stdbool.h>

bool stat_is_folder(const char *path);

/* Adds to the findings of an audit that has taken all lines of DIR/trace.jsonl, which
 * has these policies.  Returns
 * an exit code, after one line on stderr if it is not FAL_EXIT_DONE: a file that is there
 * cannot be read. */
int stat_folder_audit(const char *dir, const struct stat_policies *policies,
		      struct fal_audit *a);

#endif
