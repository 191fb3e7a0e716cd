/* A task's computation, in one thread. */
#include "desk.h"

#include "base/mem.h"
#include "nn/fingerprint.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uv.h>

struct desk {
	const struct fal_net *net;
	struct fal_arena *arena;
	float *x;        /* [batch][inputs] */
	uint32_t *label; /* [batch] */
	float *grad;     /* [params] */
};

int
desk_new(const struct fal_net *net, struct desk **out)
{
	const struct fal_model *m = fal_net_model(net);
	const uint32_t batch = fal_net_batch(net);
	struct desk *d = fal_calloc(1, sizeof(*d));
	if (d == NULL)
		return FAL_ENOMEM;
	d->net = net;
	d->x = fal_calloc_aligned((size_t)batch * m->inputs, sizeof(float));
	d->label = fal_calloc(batch, sizeof(*d->label));
	d->grad = fal_calloc_aligned(m->params, sizeof(float));
	if (d->x == NULL || d->label == NULL || d->grad == NULL ||
	    fal_arena_new(net, &d->arena) < 0) {
		desk_free(d);
		return FAL_ENOMEM;
	}
	*out = d;
	return FAL_OK;
}

void
desk_free(struct desk *d)
{
	if (d == NULL)
		return;
	fal_arena_free(d->arena);
	free(d->x);
	free(d->label);
	free(d->grad);
	free(d);
}

int
desk_run(struct desk *d, const struct maker_job *job, struct fal_ran *ran)
{
	struct fal_loss res;
	int err = fal_batch_fill(&job->batch, job->first, job->count, d->x, d->label);
	if (err < 0)
		return err;
	const struct fal_task t = { d->x, d->label, job->count };
	if (job->run.eval)
		fal_net_eval(d->net, d->arena, job->run.params, &t, &res);
	else
		fal_net_grad(d->net, d->arena, job->run.params, &t, d->grad, &res);
	const struct maker_made made = { .grad = job->run.eval ? NULL : d->grad,
					 .loss = res.loss,
					 .right = res.right };
	return maker_finish(job, &made, ran);
}

uint64_t
desk_steps(const struct desk *d)
{
	return fal_arena_steps(d->arena);
}

int
desk_fingerprint(struct desk *d, uint64_t seed,
		 uint8_t fingerprint[static FAL_FINGERPRINT])
{
	return fal_net_fingerprint(d->net, d->arena, seed, fingerprint);
}

static uint64_t
cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Of a few runs the quickest: the first may find cold caches and new pages. */
static int
quickest(struct desk *d, const struct fal_task *t, const float *params,
	 const int8_t *exps, struct fal_sum *sum, struct desk_time *out)
{
	enum { MOST_RUNS = 5 };
	static const uint64_t enough = 20000000, most = 500000000; /* ns */
	struct fal_loss res;
	const uint64_t start = uv_hrtime();
	uint64_t now = start;
	*out = (struct desk_time){ UINT64_MAX, UINT64_MAX };
	for (int i = 0; i < MOST_RUNS && now - start < (i < 2 ? most : enough); i++) {
		const uint64_t wall = uv_hrtime(), cpu = cpu_ns();
		fal_net_grad(d->net, d->arena, params, t, d->grad, &res);
		int err = fal_sum_quantise(sum, d->grad, exps, FAL_BFP_ROOM, NULL);
		if (err < 0 && err != FAL_ENONFINITE)
			return err;
		now = uv_hrtime();
		out->wall = least(out->wall, now - wall);
		out->cpu = least(out->cpu, cpu_ns() - cpu);
	}
	return FAL_OK;
}

int
desk_time(struct desk *d, uint64_t seed, struct desk_time *out)
{
	const struct fal_model *m = fal_net_model(d->net);
	const struct fal_task t = { d->x, d->label, fal_net_batch(d->net) };
	float *params = fal_calloc_aligned(m->params, sizeof(float));
	int8_t *exps = fal_calloc(fal_blocks(m->params), 1);
	struct fal_sum *sum = fal_sum_new(m->params);
	int err = FAL_ENOMEM;
	if (params != NULL && exps != NULL && sum != NULL) {
		fal_model_init(m, seed, params);
		memset(d->x, 0, (size_t)t.n * m->inputs * sizeof(float));
		memset(d->label, 0, t.n * sizeof(*d->label));
		err = quickest(d, &t, params, exps, sum, out);
	}
	free(params);
	free(exps);
	fal_sum_free(sum);
	return err;
}
