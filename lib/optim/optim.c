/* SGD, momentum and Nesterov: a loop for each kind, limited by memory. */
#include "optim/optim.h"

#include "base/vector.h"

uint32_t
fal_optim_slots(const struct fal_optim *o)
{
	return o->kind == FAL_SGD ? 0 : 1;
}

FAL_VECTOR static void
sgd(float decay, float lr, float *restrict w, const float *restrict g, size_t n)
{
	for (size_t i = 0; i < n; i++)
		w[i] -= lr * (g[i] + decay * w[i]);
}

FAL_VECTOR static void
momentum(const struct fal_optim *o, float lr, float *restrict w, float *restrict m,
	 const float *restrict g, size_t n)
{
	const float decay = o->weight_decay, mu = o->momentum;
	for (size_t i = 0; i < n; i++) {
		m[i] = mu * m[i] + (g[i] + decay * w[i]);
		w[i] -= lr * m[i];
	}
}

FAL_VECTOR static void
nesterov(const struct fal_optim *o, float lr, float *restrict w, float *restrict m,
	 const float *restrict g, size_t n)
{
	const float decay = o->weight_decay, mu = o->momentum;
	for (size_t i = 0; i < n; i++) {
		float d = g[i] + decay * w[i];
		m[i] = mu * m[i] + d;
		w[i] -= lr * (d + mu * m[i]);
	}
}

void
fal_optim_apply(const struct fal_optim *o, float lr, float *w, float *state,
		const float *mean_grad, size_t n)
{
	switch (o->kind) {
	case FAL_SGD:
		sgd(o->weight_decay, lr, w, mean_grad, n);
		break;
	case FAL_MOMENTUM:
		momentum(o, lr, w, state, mean_grad, n);
		break;
	case FAL_NESTEROV:
		nesterov(o, lr, w, state, mean_grad, n);
		break;
	}
}

void
fal_optim_apply_naive(const struct fal_optim *o, float lr, float *w, float *state,
		      const float *mean_grad, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float decayed = o->weight_decay * w[i];
		float step = mean_grad[i] + decayed;
		if (o->kind != FAL_SGD) {
			float kept = o->momentum * state[i];
			state[i] = kept + step;
			float ahead = o->momentum * state[i];
			step = o->kind == FAL_NESTEROV ? step + ahead : state[i];
		}
		float moved = lr * step;
		w[i] = w[i] - moved;
	}
}
