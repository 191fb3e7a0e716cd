/* A trainer: a child process that computes gradients in shared memory
 * (falcon-gradient(7)).  After an error the process is ended, and started again after
 * pauses that grow.  An error costs the current task alone, which the caller repeats.
 *
 * One thread at a time, the owner, calls these functions and blocks in them.  A function
 * for any thread says so.
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
	unsigned mute; /* starts in a row without a hello, after which it is given up; 0:
			after any error */
};

/* Starts the process, and does not wait for it.  FAL_EIO. */
int trainer_new(const struct trainer_conf *conf, struct trainer **out);

/* For any thread: ends a task that is under way, as cancelled, and refuses all later
 * ones. The trainer's standard input stays open. */
void trainer_quit(struct trainer *t);

/* Closes the trainer's standard input: the process has two seconds to end.  Before
 * trainer_free, so that several trainers end at the same time. */
void trainer_close_input(struct trainer *t);

/* Closes the standard input, and kills the process once its two seconds are over.  NULL:
 * nothing. */
void trainer_free(struct trainer *t);

/* Waits for the first hello.  FAL_EPERM: the trainer was given up, with `diag`. */
int trainer_greet(struct trainer *t, struct fal_grad_hello *out, struct fal_diag *diag);

/* A job, kept until trainer_forget; its headers lay out the shared memory. */
struct trainer_job {
	struct fal_grad_job job;
	struct fal_buf params, samples; /* headers, of safetensors, without lengths */
	const struct fal_model *model;  /* where tensors lie in a flat vector */
	uint64_t params_bytes, samples_bytes;
	const char **buffer; /* of `job` */
};

/* Sets the job.  The trainer was told of none since trainer_new or trainer_forget. */
void trainer_begin(struct trainer *t, const struct trainer_job *job);

/* Clears the job.  A process that was told of the job is ended; the next task starts
 * another one. */
void trainer_forget(struct trainer *t);

/* TRAINER_FAILED: the trainer said so; TRAINER_LOST: the process was ended, or ended by
 * itself. */
enum trainer_end { TRAINER_MADE, TRAINER_CANCELLED, TRAINER_FAILED, TRAINER_LOST };

struct trainer_made {
	enum trainer_end end;
	double loss; /* of TRAINER_MADE, as the two below */
	uint32_t right;
	uint64_t ns; /* since it could begin */
};

enum { TRAINER_KINDS = 4 };

struct trainer_task {
	struct fal_grad_task line; /* all but edition and where data begin */
	const float *params;
	uint64_t serial; /* another one for other parameters; not 0 */
	unsigned kind;   /* below TRAINER_KINDS: those of a kind take about as long */
};

/* Waits until the process has started and knows the job.  Returns the number of starts so
 * far, or 0: the task of this id was cancelled, or the trainer was given up. */
uint64_t trainer_start(struct trainer *t, uint64_t id);

/* The memory for the samples of the next task, between trainer_start and trainer_do;
 * NULL: the trainer wants none. */
void *trainer_samples(const struct trainer *t);

/* Has a task done by the process that trainer_start waited for. */
void trainer_do(struct trainer *t, const struct trainer_task *task,
		struct trainer_made *out);

/* The tensors of the gradient that was made last, until the next of these calls.  A
 * trainer that breaks the rules may write there meanwhile. */
const float *trainer_grads(const struct trainer *t);

/* For any thread: cancels the task of this id, under way or still to come. */
void trainer_cancel(struct trainer *t, uint64_t id);

/* Waits for a while, as before another try of the task; false: the task was cancelled. */
bool trainer_pause(struct trainer *t, uint64_t id, uint64_t ns);

/* The trainer did something wrong: ends the process, which is to start again. */
void trainer_fault(struct trainer *t, const char *why);

/* For any thread: was the trainer given up?  The reason was logged, if the trainer has
 * ever said hello. */
bool trainer_failed(const struct trainer *t);

/* For any thread: the last error, and the trainer's last words about it. */
void trainer_trouble(struct trainer *t, struct fal_diag *out);

/* A number that grows while the trainer works; for one thread, whichever that is. */
uint64_t trainer_steps(struct trainer *t);

#endif
