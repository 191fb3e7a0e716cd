/* The modes of falcon-work that take a job file, and need no coordinator and no key.
 * Each returns an exit code. */
#ifndef WORK_TOOLS_H
#define WORK_TOOLS_H

#include "work.h"

/* --eval and --predict: judges the parameters of `model` on the test set of the job file
 * `job` and prints right, total, accuracy and loss, as far as opt->max_memory goes.  Or,
 * with a file of `samples`, prints for each of them which class the parameters find most
 * probable, and that probability. */
int eval_run(const struct work_opt *opt, const char *job, const char *model,
	     const char *samples, bool json);

/* --try, the doctor of a trainer: has `command` compute a few tasks of the job file `job`
 * and says on stdout what it does well, and what is to be changed.  FAL_EXIT_NO where
 * there is something. */
int try_run(const struct work_opt *opt, const char *job, const char *command);

#endif
