/* A model made ready to compute: forward, loss and the gradient of a task.
 *
 * A net is immutable and shared by all lanes; each lane has an arena, one allocation with
 * the activations of a task.  A result depends on the arguments' values alone: not on
 * addresses, other lanes, or what the arena was used for before.  Equal machines (see
 * math/fingerprint.h) give equal bits.
 */
#ifndef FAL_MATH_NET_H
#define FAL_MATH_NET_H

#include "math/layers.h"

struct fal_net;
struct fal_arena;

/* Plans for tasks of 1 … `batch` samples.  `m` is kept, unchanged, until fal_net_free.
 * FAL_EINVAL: batch is 0; FAL_ELIMIT: an activation of the whole batch has 2^31 values
 * or more. */
int fal_net_new(const struct fal_model *m, uint32_t batch, struct fal_net **out);
void fal_net_free(struct fal_net *net);

/* The model and the largest task of a net. */
const struct fal_model *fal_net_model(const struct fal_net *net);
uint32_t fal_net_batch(const struct fal_net *net);

/* Bytes of one arena. */
size_t fal_arena_size(const struct fal_net *net);

/* The most bytes that the kernel library keeps for each thread that computes. */
uint64_t fal_net_kernel_bytes(const struct fal_net *net);

/* An arena for one lane at a time of this net alone.  FAL_ENOMEM. */
int fal_arena_new(const struct fal_net *net, struct fal_arena **out);

/* Layers that were passed in it, forward and backward, ever.  For any thread. */
uint64_t fal_arena_steps(const struct fal_arena *a);
void fal_arena_free(struct fal_arena *a);

/* A task: n samples, 1 ≤ n ≤ batch; all borrowed. */
struct fal_task {
	const float *x;        /* [n][inputs], each sample [C][H][W] */
	const uint32_t *label; /* [n], below classes */
	uint32_t n;
};

/* Forward only; returns the logits [n][classes], in the arena until its next use.
 * t->label is not read. */
const float *fal_net_forward(const struct fal_net *net, struct fal_arena *a,
			     const float *params, const struct fal_task *t);

/* Forward and loss. */
void fal_net_eval(const struct fal_net *net, struct fal_arena *a, const float *params,
		  const struct fal_task *t, struct fal_loss *res);

/* Forward, loss and backward: `grad` (m->params floats, fully overwritten) is the
 * gradient of the sum, not the mean, of the samples' losses.  Non-finite values go
 * through. */
void fal_net_grad(const struct fal_net *net, struct fal_arena *a, const float *params,
		  const struct fal_task *t, float *grad, struct fal_loss *res);

/* For parameters that still come.  `need` is called by the thread that computes before
 * any of the first `floats` parameters are read that were not so far, more each time, for
 * a layer or a part of a wide one: returns when they are there.  False: no more is
 * wanted. */
struct fal_net_wait {
	void *arg;
	bool (*need)(void *arg, uint64_t floats);
};

/* As fal_net_grad, and waits for parameters (`wait`; NULL: all are there).  False:
 * wait->need said so, and nothing was computed. */
bool fal_net_grad_waiting(const struct fal_net *net, struct fal_arena *a,
			  const float *params, const struct fal_task *t, float *grad,
			  struct fal_loss *res, const struct fal_net_wait *wait);

#endif
