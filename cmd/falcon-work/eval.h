/* --eval and --predict: what a model makes of samples, without a coordinator. */
#ifndef WORK_EVAL_H
#define WORK_EVAL_H

#include "work.h"

#include <stdbool.h>

/* Judges the parameters of `model` on the test set of the job file `job` and prints
 * right, total, accuracy and loss, as far as opt->max_memory goes.  Returns an exit
 * code. */
int eval_run(const struct work_opt *opt, const char *job, const char *model, bool json);

/* Prints, for each sample of the file `samples`, which class its parameters find most
 * probable, and that probability.  Returns an exit code. */
int predict_run(const struct work_opt *opt, const char *job, const char *model,
		const char *samples);

#endif
