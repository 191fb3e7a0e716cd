/* The lines between falcon-work and a trainer, a program of any language that computes
 * gradients: falcon-gradient(7) defines them.  Texts in, values out; no I/O.
 */
#ifndef FAL_RUN_TRAINER_LINE_H
#define FAL_RUN_TRAINER_LINE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FAL_GRAD_PROTOCOL = 1,
	FAL_GRAD_LINE_MAX = 1 << 16, /* bytes of a trainer's line */
	FAL_GRAD_DATA = 32,          /* bytes of a hash of its data */
	FAL_GRAD_ABOUT_MAX = 80      /* characters of what it says of itself */
};

/* --- to the trainer; each appends one line, errors are sticky in `b` -----------------
 */

/* `lane`: the number of this trainer, from 0. */
void fal_grad_put_hello(struct fal_buf *b, const char *worker, uint32_t lane);

/* A memfd that is a safetensors file of `bytes` bytes, whose tensors' data begin at
 * `data`.  All 0: there is none. */
struct fal_grad_area {
	uint64_t bytes, data;
};

struct fal_grad_job {
	const char *name; /* borrowed */
	uint64_t seed;
	uint32_t task, batch; /* most samples of a task; of a clock */
	uint32_t train, test; /* samples there are */
	/* Tensors that are running statistics, borrowed. */
	const char *const *buffer;
	uint32_t buffers;
	bool decay; /* weights decay without a gradient */
	struct fal_grad_area params, grads, samples;
};
void fal_grad_put_job(struct fal_buf *b, const struct fal_grad_job *j);

/* Params follow on the pipe: those of this version, for the tasks that come. */
void fal_grad_put_params(struct fal_buf *b, uint64_t version);

struct fal_grad_task {
	uint64_t id, clock, version, seed;
	uint64_t edition; /* of the parameters: another number for others */
	uint32_t task, count;
	/* Where their data begin in the memory of each, in bytes; samples: 0: none. */
	uint64_t params, grads, samples;
	const uint32_t *index; /* of each sample, borrowed */
	bool eval;
};
void fal_grad_put_task(struct fal_buf *b, const struct fal_grad_task *t);

void fal_grad_put_cancel(struct fal_buf *b, uint64_t id);

/* --- from it ------------------------------------------------------------------------ */

enum fal_grad_op {
	FAL_GRAD_HELLO,
	FAL_GRAD_REFUSE,
	FAL_GRAD_DONE,
	FAL_GRAD_FAIL,
	FAL_GRAD_CANCELLED
};

struct fal_grad_hello {
	bool samples, pipes, impure;
	/* Of data of its own: how many samples, and a hash; 0: it does not say. */
	uint32_t train, test;
	uint8_t data[FAL_GRAD_DATA];
	char about[4 * FAL_GRAD_ABOUT_MAX + 1]; /* plain */
};

struct fal_grad_word {
	enum fal_grad_op op;
	struct fal_grad_hello hello;
	uint64_t id;    /* of DONE, FAIL and CANCELLED */
	double loss;    /* of DONE: the sum; NAN: it was null, or not said */
	uint32_t right; /* of DONE */
	char why[256];  /* of FAIL and REFUSE; plain */
};

/* Reads a line without its newline (hostile, `n` ≤ FAL_GRAD_LINE_MAX).  Members that are
 * not known are ignored.  FAL_EFORMAT; FAL_ELIMIT: a number out of its range;
 * FAL_EVERSION: a hello of which one of this is so, or of another protocol; FAL_ENOMEM;
 * with `diag`. */
int fal_grad_get(const char *line, size_t n, struct fal_grad_word *out,
		 struct fal_diag *diag);

/* Whether two hellos say the same; `about` may differ. */
bool fal_grad_alike(const struct fal_grad_hello *a, const struct fal_grad_hello *b);

#endif
