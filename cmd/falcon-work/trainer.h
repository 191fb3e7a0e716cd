/* A trainer: a child process that computes gradients in shared memory
 * (falcon-gradient(7)).  After an error Falcon ends the process, and starts the process
 * again after growing pauses.  An error costs only the current task, which the caller
 * repeats.
 *
 * Only one thread at a time, the owner, calls these functions, which may block.  The
 * exceptions have the words "For any thread", and trainer_release_grads.
 */
#ifndef WORK_TRAINER_H
#define WORK_TRAINER_H

#include "model/model.h"
#include "run/trainer_line.h"

struct trainer; /* opaque */

struct trainer_conf {
	const char *command, *worker; /* kept */
	const char *key;              /* file of the key, or NULL; kept */
	uint32_t number;
	/* Falcon gives the trainer up after this many starts in a row without a hello;
	 * 0: after any error. */
	unsigned max_silent_starts;
};

/* Starts the process without waiting for it.  FAL_EIO. */
int trainer_new(const struct trainer_conf *conf, struct trainer **out);

/* For any thread: cancels the task under way, and refuses all later tasks.  The trainer's
 * standard input stays open. */
void trainer_quit(struct trainer *t);

/* Closes the trainer's standard input: the process has two seconds to end.  Called before
 * trainer_free, so that several trainers end at the same time. */
void trainer_close_input(struct trainer *t);

/* Closes the standard input, and kills the process once its two seconds are over.  Does
 * nothing with NULL. */
void trainer_free(struct trainer *t);

/* Waits for the first hello.  FAL_EPERM, with `diag`: the trainer was given up. */
int trainer_wait_hello(struct trainer *t, struct fal_grad_hello *out,
		       struct fal_diag *diag);

/* A job.  Its headers lay out the shared memory. */
struct trainer_job {
	struct fal_grad_job job;
	struct fal_buf params, samples; /* safetensors headers without their lengths */
	const struct fal_model *model;  /* the layout of tensors in a flat vector */
	uint64_t params_bytes, samples_bytes;
	const char **buffer; /* array of `job` */
};

/* Sets the job, kept until trainer_clear_job.  No job may be set. */
void trainer_set_job(struct trainer *t, const struct trainer_job *job);

/* Clears the job.  A process that was sent the job is ended; the next task starts another
 * process. */
void trainer_clear_job(struct trainer *t);

/* TRAINER_FAILED: the trainer answered with an error; TRAINER_LOST: the process was
 * ended, or ended by itself. */
enum trainer_end { TRAINER_DONE, TRAINER_CANCELLED, TRAINER_FAILED, TRAINER_LOST };

struct trainer_result {
	enum trainer_end end;
	/* For TRAINER_DONE: */
	double loss;
	uint32_t right;
	struct fal_metrics metrics;
	uint64_t ns; /* from sending the task to its end */
};

enum { TRAINER_KINDS = 4, TRAINER_RESULTS = 2 };

struct trainer_task {
	unsigned area;             /* below TRAINER_RESULTS: for its gradient */
	struct fal_grad_task line; /* all but edition and data offsets */
	const float *params;
	uint64_t serial; /* identifies the parameters; not 0 */
	unsigned kind;   /* below TRAINER_KINDS: tasks of a kind take about as long */
};

/* Waits until the process has started and knows the job.  Returns the number of starts so
 * far, or 0: the task of this id was cancelled, or the trainer was given up. */
uint64_t trainer_prepare(struct trainer *t, uint64_t id);

/* The memory for the samples of the next task, between trainer_prepare and
 * trainer_compute; NULL: the trainer wants no samples. */
void *trainer_samples(const struct trainer *t);

/* Makes the process that trainer_prepare waited for compute a task. */
void trainer_compute(struct trainer *t, const struct trainer_task *task,
		     struct trainer_result *out);

/* Returns the tensors of the gradient of the last task with this area.  The memory stays
 * until trainer_release_grads; meanwhile the trainer may get another owner, and may
 * compute a task with another area.  A trainer that breaks the rules may write there. */
const float *trainer_hold_grads(struct trainer *t, unsigned area);
/* For the thread that called trainer_hold_grads. */
void trainer_release_grads(struct trainer *t);

/* For any thread: cancels the task of this id, under way or still to come, until the next
 * call with this area. */
void trainer_cancel(struct trainer *t, unsigned area, uint64_t id);

/* Waits until uv_hrtime() is `until`, as before a retry of the task.  False: the task was
 * cancelled, or the trainer was given up. */
bool trainer_pause(struct trainer *t, uint64_t id, uint64_t until);

/* Reports the trainer's error `why`: ends the process, which starts again later. */
void trainer_restart(struct trainer *t, const char *why);

/* For any thread: was the trainer given up?  The reason was logged, if the trainer has
 * ever said hello. */
bool trainer_is_given_up(const struct trainer *t);

/* For any thread: the last error, and the trainer's last line about it. */
void trainer_last_error(struct trainer *t, struct fal_diag *out);

/* A number that grows while the trainer works.  For any thread, but one at a time. */
uint64_t trainer_progress(struct trainer *t);

#endif
