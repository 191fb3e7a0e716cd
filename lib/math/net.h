/* Computes with a model: forward, loss and the gradient of a task.
 *
 * A net is immutable and shared by all lanes; each lane has an arena, one allocation with
 * the activations of a task.  A result depends on the values of the arguments alone: not
 * on addresses, other lanes, or former contents of the arena.  Equal machines (see
 * fal_net_fingerprint) give equal bits.
 */
#ifndef FAL_MATH_NET_H
#define FAL_MATH_NET_H

#include "math/layers.h"

struct fal_net;
struct fal_arena;

/* Checks that the CPU has an instruction set for the layers: without one no other
 * function here may be called.  FAL_EINVAL, with `diag`. */
int fal_net_check_cpu(struct fal_diag *diag);

/* Plans the arena for tasks of 1 … `batch` samples.  The net keeps `m`, which must not
 * change, until fal_net_free.  FAL_EINVAL (batch is 0), FAL_ELIMIT (an activation of the
 * batch has 2^31 values or more). */
int fal_net_new(const struct fal_model *m, uint32_t batch, struct fal_net **out);
void fal_net_free(struct fal_net *net);

/* Return the model and the samples of the largest task. */
const struct fal_model *fal_net_model(const struct fal_net *net);
uint32_t fal_net_batch(const struct fal_net *net);

/* Returns the bytes of one arena. */
size_t fal_arena_size(const struct fal_net *net);

/* Returns the most bytes that the kernel library keeps for each computing thread. */
uint64_t fal_net_kernel_bytes(const struct fal_net *net);

/* Makes an arena for this net, for one lane at a time.  FAL_ENOMEM. */
int fal_arena_new(const struct fal_net *net, struct fal_arena **out);

/* Returns the number of layers passed so far, forward and backward.  For any thread. */
uint64_t fal_arena_steps(const struct fal_arena *a);
void fal_arena_free(struct fal_arena *a);

/* A task: n samples, 1 ≤ n ≤ batch; all borrowed. */
struct fal_task {
	const float *x;        /* [n][inputs], each sample [C][H][W] */
	const uint32_t *label; /* [n], below classes */
	uint32_t n;
};

/* Returns the logits [n][classes], valid until the next use of the arena; does not read
 * t->label. */
const float *fal_net_forward(const struct fal_net *net, struct fal_arena *a,
			     const float *params, const struct fal_task *t);

/* Computes forward and loss. */
void fal_net_eval(const struct fal_net *net, struct fal_arena *a, const float *params,
		  const struct fal_task *t, struct fal_loss *res);

/* Computes forward, loss and backward: `grad` (m->params floats, fully overwritten except
 * gaps between tensors) becomes the gradient of the sum, not the mean, of the samples'
 * losses.  Non-finite values propagate. */
void fal_net_grad(const struct fal_net *net, struct fal_arena *a, const float *params,
		  const struct fal_task *t, float *grad, struct fal_loss *res);

/* A wait for parameters that have not arrived.  The computing thread calls `need` before
 * it reads further parameters, for a layer or a part of a wide layer, with a larger
 * number each time; `need` returns true when the first `floats` parameters are there,
 * false to cancel the task. */
struct fal_net_wait {
	void *arg;
	bool (*need)(void *arg, uint64_t floats);
};

/* As fal_net_grad, but waits for parameters (`wait`; NULL: all are there).  Returns
 * false, without a result, if wait->need returned false. */
bool fal_net_grad_waiting(const struct fal_net *net, struct fal_arena *a,
			  const float *params, const struct fal_task *t, float *grad,
			  struct fal_loss *res, const struct fal_net_wait *wait);

/* The numerics fingerprint: machines with equal fingerprints compute equal bits. */

#define FAL_FINGERPRINT_BYTES 16

/* Hashes two things: the gradient of a random task of the largest size that the net
 * allows, and the results of calculations with subnormal numbers.  Parameters come from
 * fal_model_init(seed), inputs in [0, 1) and labels from the stream (seed, FAL_RNG_TEST,
 * 0).  The fingerprint distinguishes machines but does not expose liars.  FAL_ENOMEM. */
int fal_net_fingerprint(const struct fal_net *net, struct fal_arena *a, uint64_t seed,
			uint8_t out[static FAL_FINGERPRINT_BYTES]);

#endif
