/* The lines between falcon-work and a trainer, a program of any language that computes
 * gradients: falcon-gradient(7) defines them.  Texts in, values out; no I/O.
 */
#ifndef FAL_RUN_TRAINER_LINE_H
#define FAL_RUN_TRAINER_LINE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/metrics.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FAL_GRAD_PROTOCOL = 1,
	FAL_GRAD_LINE_MAX = 1 << 16, /* bytes of a trainer's line */
	FAL_GRAD_DATA = 32,          /* bytes of the hash of a trainer's own data */
	FAL_GRAD_ABOUT_MAX = 80      /* characters of a trainer's description */
};

/* --- to the trainer: each function appends one line; errors are sticky in `b` --------
 */

/* `lane` is the trainer's number, from 0. */
void fal_grad_put_hello(struct fal_buf *b, const char *worker, uint32_t lane);

/* A memfd with a safetensors file of `bytes` bytes; the tensors' data begin at offset
 * `data`.  Both 0: no memfd. */
struct fal_grad_area {
	uint64_t bytes, data;
};

struct fal_grad_job {
	const char *name; /* borrowed */
	uint64_t seed;
	uint32_t task, batch; /* largest task; samples of a clock */
	uint32_t train, test; /* samples of the two sets */
	/* Names of the tensors that are running statistics, borrowed. */
	const char *const *buffer;
	uint32_t buffers;
	bool decay; /* weights decay without a gradient */
	struct fal_metric_names metrics;
	struct fal_grad_area params, grads, samples;
};
void fal_grad_put_job(struct fal_buf *b, const struct fal_grad_job *j);

/* Announces the parameters of `version`, which follow on the pipe, for the next tasks. */
void fal_grad_put_params(struct fal_buf *b, uint64_t version);

struct fal_grad_task {
	uint64_t id, clock, version, seed;
	uint64_t edition; /* changes with the bytes of the parameters */
	uint32_t task, count;
	/* Offsets of the data in the three memfds, in bytes; samples 0: none. */
	uint64_t params, grads, samples;
	const uint32_t *index; /* of each sample, borrowed */
	bool eval;
};
void fal_grad_put_task(struct fal_buf *b, const struct fal_grad_task *t);

void fal_grad_put_cancel(struct fal_buf *b, uint64_t id);

/* --- from the trainer --------------------------------------------------------------- */

enum fal_grad_op {
	FAL_GRAD_HELLO,
	FAL_GRAD_REFUSE,
	FAL_GRAD_DONE,
	FAL_GRAD_FAIL,
	FAL_GRAD_CANCELLED
};

struct fal_grad_hello {
	bool samples, pipes, impure;
	/* The trainer's own data: samples, and their hash; 0: not given. */
	uint32_t train, test;
	uint8_t data[FAL_GRAD_DATA];
	char about[4 * FAL_GRAD_ABOUT_MAX + 1]; /* plain */
};

struct fal_grad_message {
	enum fal_grad_op op;
	struct fal_grad_hello hello;
	uint64_t id;    /* of DONE, FAIL and CANCELLED */
	double loss;    /* of DONE: the sum; NAN: null or missing */
	uint32_t right; /* of DONE */
	/* DONE has this number of metrics, and these sums; NAN: null, missing or out of
	 * bounds. */
	uint32_t n_metrics;
	struct fal_metrics metrics;
	char why[256]; /* of FAIL and REFUSE; plain */
};

/* Parses a line without its newline (hostile, `n` ≤ FAL_GRAD_LINE_MAX) and ignores
 * unknown members.  FAL_EFORMAT; FAL_ELIMIT (a number outside its range); FAL_EVERSION (a
 * hello of another protocol or with any other fault); FAL_ENOMEM; with `diag`. */
int fal_grad_parse(const char *line, size_t n, struct fal_grad_message *out,
		   struct fal_diag *diag);

/* Are two hellos equal, except for `about`? */
bool fal_grad_hello_equal(const struct fal_grad_hello *a, const struct fal_grad_hello *b);

#endif
