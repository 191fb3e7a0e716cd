/* A trainer as a child process: started, ended and started again after pauses that grow,
 * by a thread of its own.  Lanes hand it tasks, each in a slot of its own, and wait.
 *
 * What it may do wrong costs the tasks that it has, which are to be done again.
 */
#ifndef WORK_CHILD_H
#define WORK_CHILD_H

#include "base/buf.h"
#include "base/err.h"
#include "grad/line.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct child; /* opaque */

struct child_conf {
	const char *command, *worker; /* kept */
	const char *key;              /* file of the key, or NULL; kept */
	uint32_t number, lanes;       /* tasks at once that are wanted of it */
	unsigned mute; /* after so many starts in a row without a hello it is given up */
	bool once;     /* it is not started again, whatever it was blamed for */
};

/* Starts thread and process.  FAL_ENOMEM, FAL_EIO. */
int child_new(const struct child_conf *conf, struct child **out);

/* Waits for its first hello.  FAL_EPERM: it was given up, with `diag`. */
int child_greet(struct child *c, struct fal_grad_hello *out, struct fal_diag *diag);

/* A job, kept until child_forget; counts of the areas come from the hello. */
struct child_job {
	struct fal_grad_job job;
	struct fal_buf params, samples; /* headers, of safetensors, without lengths */
	const struct fal_model *model;  /* where tensors lie in a flat vector */
	uint64_t params_bytes, samples_bytes;
	const char **buffer; /* of `job` */
};

/* Tells it of a job, once it has said hello; if it has heard of another one, it is
 * started anew. */
void child_begin(struct child *c, const struct child_job *job);

/* Its job is over: it is ended, and starts again without one. */
void child_forget(struct child *c);

/* The memory of one start, for whoever still reads it. */
struct start;

/* CHILD_UNSENT: it was lost before the trainer could begin with it. */
enum child_end { CHILD_MADE, CHILD_CANCELLED, CHILD_FAILED, CHILD_LOST, CHILD_UNSENT };
struct child_made {
	enum child_end end;
	double loss; /* of CHILD_MADE, as the two below */
	uint32_t right;
	uint64_t ns;        /* since it could begin */
	struct start *kept; /* `take` keeps the gradient: for child_drop; else NULL */
};

struct child_task {
	struct fal_grad_task line; /* all but place and where data begin; its slot is
				      that of the child */
	/* Below CHILD_TURNS: which of the trainer's slots for this one.  One that is
	 * never used takes a page or so. */
	unsigned turn;
	const float *params;
	uint64_t serial; /* another one for other parameters; not 0 */
	unsigned kind;   /* below CHILD_KINDS: those of a kind take about as long */
	/* Fills a slot of the samples' area, if it is wanted. */
	int (*fill)(void *arg, void *data);
	void *arg; /* of both */
	/* Takes what was made, and the gradient's tensors, which may be written to
	 * meanwhile; NULL for a task that has none.  CHILD_KEEPS: it still reads them
	 * when it has returned, so that this turn is for no other task until then. */
	int (*take)(void *arg, const struct child_made *made, const float *grads);
	/* The start that it is for, as of child_start; it is lost in another one. */
	uint64_t start;
};
enum { CHILD_KINDS = 4, CHILD_TURNS = 3, CHILD_KEEPS = 1 };

/* Waits until it has started and knows the job; how often it has started until then, or
 * 0: cancelled, or given up.  `slot` and `id` are those of the task that comes. */
uint64_t child_start(struct child *c, uint32_t slot, uint64_t id);

/* Has a task done, in the calling thread's time.  Errors are those of `fill` and `take`.
 */
int child_do(struct child *c, const struct child_task *task, struct child_made *out);

/* What was kept is not read any more.  For any thread; NULL: nothing. */
void child_drop(struct start *kept);

/* Whether it was given up: nothing more comes of it, which was said if it has ever said
 * hello. */
bool child_failed(struct child *c);

/* What went wrong with it last, and what it said of that. */
void child_trouble(struct child *c, struct fal_diag *out);

/* The slot's task of this id is not wanted. */
void child_cancel(struct child *c, uint32_t slot, uint64_t id);

/* Waits for a while, as before a task is tried again; false: it was cancelled. */
bool child_pause(struct child *c, uint32_t slot, uint64_t id, uint64_t ns);

/* It did something wrong, in this start of it: ended, and started again. */
void child_fault(struct child *c, uint64_t start, const char *why);

/* A number that grows while it works. */
uint64_t child_steps(struct child *c);

/* What is under way ends at once, as cancelled, and nothing begins any more. */
void child_quit(struct child *c);

/* Ends it: it has two seconds after its standard input has ended.  NULL: nothing. */
void child_free(struct child *c);

#endif
