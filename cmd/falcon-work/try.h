/* --try: the doctor of a trainer, without a coordinator and without a key. */
#ifndef WORK_TRY_H
#define WORK_TRY_H

#include "work.h"

/* Has `command` compute a few tasks of the job file `job` and says on stdout what it
 * does well, and what is to be changed.  Returns an exit code: FAL_EXIT_NO where there is
 * something. */
int try_run(const struct work_opt *opt, const char *job, const char *command);

#endif
