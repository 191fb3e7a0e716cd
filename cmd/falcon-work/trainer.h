/* A trainer: a program that computes gradients, as a child process with memory that it
 * shares (falcon-gradient(7)).  It is started, ended and started again after pauses that
 * grow; what it does wrong costs the task that it has, which is to be done again.
 *
 * One thread at a time calls these functions, and blocks in them; those that are for any
 * thread say so.
 */
#ifndef WORK_TRAINER_H
#define WORK_TRAINER_H

#include "base/buf.h"
#include "base/err.h"
#include "grad/line.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct trainer; /* opaque */

struct trainer_conf {
	const char *command, *worker; /* kept */
	const char *key;              /* file of the key, or NULL; kept */
	uint32_t number;
	unsigned mute; /* after so many starts in a row without a hello it is given up */
	bool once;     /* it is not started again, whatever it was blamed for */
};

/* Starts the process, and does not wait for it.  FAL_ENOMEM, FAL_EIO. */
int trainer_new(const struct trainer_conf *conf, struct trainer **out);

/* For any thread: what is under way ends at once, as cancelled, and nothing begins any
 * more; the trainer's standard input ends with trainer_free. */
void trainer_quit(struct trainer *t);

/* Closes its standard input; it has two seconds from then on.  After trainer_quit, where
 * several are to end at the same time. */
void trainer_bid_farewell(struct trainer *t);

/* Ends it, once its time is over.  NULL: nothing. */
void trainer_free(struct trainer *t);

/* Waits for its first hello.  FAL_EPERM: it was given up, with `diag`. */
int trainer_greet(struct trainer *t, struct fal_grad_hello *out, struct fal_diag *diag);

/* A job, kept until trainer_forget; memory is laid out by it when it is told. */
struct trainer_job {
	struct fal_grad_job job;
	struct fal_buf params, samples; /* headers, of safetensors, without lengths */
	const struct fal_model *model;  /* where tensors lie in a flat vector */
	uint64_t params_bytes, samples_bytes;
	const char **buffer; /* of `job` */
};

/* It is to be told of this job; it has none, or was told of none since trainer_new or
 * trainer_forget. */
void trainer_begin(struct trainer *t, const struct trainer_job *job);

/* Its job is over.  It is ended if it was told of that, and starts again when it is
 * needed. */
void trainer_forget(struct trainer *t);

/* TRAINER_FAILED: as it said; TRAINER_LOST: it was ended, or ended itself. */
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
	/* Fills the memory of samples, if they are wanted. */
	int (*fill)(void *arg, void *data);
	void *arg; /* of both */
	/* Takes what was made, and the gradient's tensors, NULL for a task that has none;
	 * the trainer, which must not, may write to them meanwhile. */
	int (*take)(void *arg, const struct trainer_made *made, const float *grads);
};

/* Waits until it has started and knows the job; how often it has started until then, or
 * 0: the task of this id was cancelled, or it was given up. */
uint64_t trainer_start(struct trainer *t, uint64_t id);

/* Has a task done, after trainer_start, by the start that this was.  Errors are those of
 * `fill` and `take`. */
int trainer_do(struct trainer *t, const struct trainer_task *task,
	       struct trainer_made *out);

/* For any thread: the task of this id, which it has, or will have, is not wanted. */
void trainer_cancel(struct trainer *t, uint64_t id);

/* Waits for a while, as before a task is tried again; false: it was cancelled. */
bool trainer_pause(struct trainer *t, uint64_t id, uint64_t ns);

/* It did something wrong: it is ended, and is to start again. */
void trainer_fault(struct trainer *t, const char *why);

/* For any thread: whether it was given up; nothing more comes of it, which was said if it
 * has ever said hello. */
bool trainer_failed(const struct trainer *t);

/* For any thread: what went wrong with it last, and what it said of that. */
void trainer_trouble(struct trainer *t, struct fal_diag *out);

/* A number that grows while it works; for one thread, whichever that is. */
uint64_t trainer_steps(struct trainer *t);

#endif
