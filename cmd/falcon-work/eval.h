/* --eval: the accuracy of a model on the test set of a job, without a coordinator. */
#ifndef WORK_EVAL_H
#define WORK_EVAL_H

#include <stdbool.h>

/* Judges the parameters of `model` on the test set of the job file `job` and prints
 * right, total, accuracy and loss.  Returns an exit code. */
int eval_run(const char *job, const char *model, bool json);

#endif
