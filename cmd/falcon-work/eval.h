/* --eval and --predict: what a model makes of samples, without a coordinator. */
#ifndef WORK_EVAL_H
#define WORK_EVAL_H

#include "work.h"

#include <stdbool.h>

/* Judges the parameters of `model` on the test set of the job file `job` and prints
 * right, total, accuracy and loss, as far as opt->max_memory goes.  Or, with a file of
 * `samples`, prints for each of them which class the parameters find most probable, and
 * that probability.  Returns an exit code. */
int eval_run(const struct work_opt *opt, const char *job, const char *model,
	     const char *samples, bool json);

#endif
