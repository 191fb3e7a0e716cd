/* Computes a task in one thread, and quantises and hashes the gradient. */
#include "run/task_runner.h"

#include "base/loss.h"
#include "base/mem.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- results --- */

/* Flips the lowest bit of one value of the block that keeps the block's bounds.  False:
 * the block has no such value. */
static bool
flip_one_bit(struct fal_sum *s, uint32_t block)
{
	const uint64_t bound = fal_sum_bound(s, block);
	const uint32_t len = fal_block_len(fal_sum_len(s), block);
	int64_t v[FAL_BLOCK];
	uint32_t i = 0;
	fal_sum_load(s, block, v);
	while (i < len && (uint64_t)llabs(v[i]) >= bound / 2)
		i++;
	if (i == len || bound < 4)
		return false;
	v[i] ^= 1;
	return fal_sum_store(s, block, v, bound, fal_sum_needed(s, block)) == FAL_OK;
}

/* Quantises the gradient block by block and hashes the result. */
static int
quantise_gradient(const struct fal_lane_task *job, const struct fal_task_output *made,
		  uint8_t hash[static FAL_TASK_HASH])
{
	const struct fal_task_run *r = &job->run;
	const uint64_t n = fal_sum_len(r->sum);
	bool must_flip = job->flip;
	struct fal_hash_state h;
	float copy[FAL_BLOCK];
	fal_hash_init(&h);
	memset(hash, 0, FAL_TASK_HASH);
	for (uint32_t b = 0; b < fal_blocks(n); b++) {
		const uint64_t first = (uint64_t)b * FAL_BLOCK;
		const uint32_t len = fal_block_len(n, b);
		/* The block in its place, if the block is contiguous there. */
		const float *g = made->packed == NULL
					 ? made->grad + first
					 : fal_model_packed_place(made->packed,
								  made->grad, first, len);
		if (g == NULL) {
			fal_model_unpack(made->packed, made->grad, first, len, copy);
			g = copy;
		} else if (r->bits != 0) {
			memcpy(copy, g, len * sizeof(*copy));
			g = copy;
		}
		if (r->bits != 0)
			fal_bfp_dither(copy, len, r->exps[b], r->seed, b);
		int err = fal_sum_quantise_block(r->sum, b, g, r->exps[b], r->room);
		if (err < 0)
			return err;
		must_flip = must_flip && !flip_one_bit(r->sum, b);
		if (job->hashed)
			fal_task_hash_block(&h, r->sum, b, r->exps[b]);
	}
	if (job->hashed)
		fal_task_hash_end(&h, hash);
	return FAL_OK;
}

void
fal_explain_large_gradient(float most, float room, struct fal_diag *diag)
{
	fal_diag_set(diag, FAL_ENONFINITE,
		     "gradient is finite, but reaches %.7g, and there is room for less "
		     "than %.7g, as which it counts: scale the data or the loss",
		     (double)most, (double)room);
}

int
fal_lane_task_finish(const struct fal_lane_task *job, const struct fal_task_output *made,
		     struct fal_task_result *ran)
{
	const int err =
		made->grad != NULL ? quantise_gradient(job, made, ran->hash) : FAL_OK;
	if (err < 0 && err != FAL_ENONFINITE)
		return err;
	ran->nonfinite = err == FAL_ENONFINITE;
	ran->most = ran->room = 0;
	/* Sets most and room to those of the block that exceeds its room by the largest
	 * factor. */
	const struct fal_task_run *r = &job->run;
	const bool is_finite = made->grad != NULL && !ran->nonfinite;
	const uint32_t blocks = is_finite ? fal_blocks(fal_sum_len(r->sum)) : 0;
	double excess = 0;
	for (uint32_t b = 0; b < blocks; b++) {
		const float most = ldexpf(1, fal_sum_needed(r->sum, b));
		const float room = fal_bfp_most(r->exps[b], r->room);
		if (most >= room && (double)most / (double)room > excess &&
		    fal_sum_bound(r->sum, b) == (uint64_t)fal_bfp_largest(r->room)) {
			excess = (double)most / (double)room;
			ran->most = most;
			ran->room = room;
		}
	}
	ran->loss = fal_loss_encode(made->loss, job->count);
	ran->right = made->right;
	ran->samples = job->count;
	ran->metrics =
		made->metrics != NULL ? *made->metrics : fal_metrics_of(0, NULL, 0);
	return FAL_OK;
}

/* ---- runners --- */

struct fal_task_runner {
	const struct fal_net *net;
	struct fal_arena *arena;
	float *x;        /* [batch][inputs] */
	uint32_t *label; /* [batch] */
};

int
fal_task_runner_net(const struct fal_setup *s, struct fal_net **out,
		    struct fal_diag *diag)
{
	const struct fal_part *part = &s->manifest.train;
	if (s->model->layers == 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "%s: the job has no model.file, only names and "
				    "shapes: its gradients are another program's to make",
				    s->job.name);
	const uint32_t values = part->dtype == FAL_ABSENT ? 0 : part->values;
	if (values != s->model->inputs)
		return fal_diag_set(diag, FAL_EINVAL,
				    "a sample has %u value%s, the model takes %u", values,
				    fal_text_plural(values), s->model->inputs);
	if (part->targets)
		return fal_diag_set(
			diag, FAL_EINVAL,
			"the data have values to predict, the model has classes");
	if (part->classes > s->model->classes)
		return fal_diag_set(diag, FAL_EINVAL,
				    "the data have %u classes, the model %u",
				    part->classes, s->model->classes);
	int err = fal_net_check_cpu(diag);
	if (err < 0)
		return err;
	fal_kern_use_blas(s->job.numerics == FAL_JOB_NUMERICS_FAST);
	err = fal_net_new(s->model, s->job.task, out);
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : FAL_OK;
}

uint64_t
fal_task_runner_bytes(const struct fal_net *net)
{
	const struct fal_model *m = fal_net_model(net);
	return fal_arena_size(net) +
	       (uint64_t)fal_net_batch(net) * (m->inputs + 1) * sizeof(float);
}

uint64_t
fal_task_runner_trial_bytes(const struct fal_net *net)
{
	const struct fal_model *m = fal_net_model(net);
	/* A timing needs parameters and a sum; a fingerprint needs parameters, a gradient
	 * and samples. */
	const uint64_t timing = fal_sum_bytes(m->params) / 2;
	const uint64_t fingerprint =
		(m->params + (uint64_t)fal_net_batch(net) * m->inputs) * sizeof(float);
	return fal_task_runner_bytes(net) + m->params * sizeof(float) +
	       (timing > fingerprint ? timing : fingerprint);
}

int
fal_task_runner_new(const struct fal_net *net, struct fal_task_runner **out)
{
	const struct fal_model *m = fal_net_model(net);
	const uint32_t batch = fal_net_batch(net);
	struct fal_task_runner *d = fal_xcalloc(1, sizeof(*d));
	d->net = net;
	d->x = fal_calloc_aligned((size_t)batch * m->inputs, sizeof(float));
	d->label = fal_xcalloc(batch, sizeof(*d->label));
	if (d->x == NULL || fal_arena_new(net, &d->arena) < 0) {
		fal_task_runner_free(d);
		return FAL_ENOMEM;
	}
	*out = d;
	return FAL_OK;
}

void
fal_task_runner_free(struct fal_task_runner *d)
{
	if (d == NULL)
		return;
	fal_arena_free(d->arena);
	free(d->x);
	free(d->label);
	free(d);
}

/* Returns the memory of `sum` for a gradient, with zeros in the gaps between tensors,
 * which no layer writes. */
static float *
gradient_memory(const struct fal_model *m, struct fal_sum *sum)
{
	float *grad = fal_sum_memory(sum, 0);
	uint64_t at = 0;
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		memset(grad + at, 0, (t->offset - at) * sizeof(*grad));
		at = t->offset + t->count;
	}
	memset(grad + at, 0, (m->params - at) * sizeof(*grad));
	return grad;
}

int
fal_task_runner_run(struct fal_task_runner *d, const struct fal_lane_task *job,
		    struct fal_task_result *ran)
{
	struct fal_loss res;
	const struct fal_model *m = fal_net_model(d->net);
	int err = fal_batch_fill(&job->batch, job->first, job->count, d->x, d->label);
	if (err < 0)
		return err;
	float *grad = job->run.eval ? NULL : gradient_memory(m, job->run.sum);
	const struct fal_task t = { d->x, d->label, job->count };
	if (job->run.eval)
		fal_net_eval(d->net, d->arena, job->run.params, &t, &res);
	else
		ran->cancelled = !fal_net_grad_waiting(d->net, d->arena, job->run.params,
						       &t, grad, &res, job->wait);
	if (ran->cancelled)
		return FAL_OK;
	const struct fal_task_output made = { .grad = grad,
					      .loss = res.loss,
					      .right = res.right };
	return fal_lane_task_finish(job, &made, ran);
}

uint64_t
fal_task_runner_steps(const struct fal_task_runner *d)
{
	return fal_arena_steps(d->arena);
}

int
fal_task_runner_fingerprint(struct fal_task_runner *d, uint64_t seed,
			    uint8_t fingerprint[static FAL_FINGERPRINT])
{
	return fal_net_fingerprint(d->net, d->arena, seed, fingerprint);
}

static uint64_t
clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int
fal_task_runner_time(struct fal_task_runner *d, uint64_t seed,
		     struct fal_task_runner_time *out)
{
	enum { MOST_RUNS = 5 };
	static const uint64_t enough = 20000000, most = 500000000; /* ns */
	const struct fal_model *m = fal_net_model(d->net);
	const struct fal_task t = { d->x, d->label, fal_net_batch(d->net) };
	float *params = fal_calloc_aligned(m->params, sizeof(float));
	int8_t *exps = fal_xcalloc(fal_blocks(m->params), 1);
	struct fal_sum *sum = fal_sum_new(m->params);
	const bool fits = params != NULL && sum != NULL;
	if (fits) {
		fal_model_init(m, seed, params);
		memset(d->x, 0, (size_t)t.n * m->inputs * sizeof(float));
		memset(d->label, 0, t.n * sizeof(*d->label));
	}
	/* The least times of a few runs: the first run may meet cold caches and new
	 * pages. */
	const uint64_t start = clock_ns(CLOCK_MONOTONIC);
	uint64_t now = start;
	*out = (struct fal_task_runner_time){ UINT64_MAX, UINT64_MAX };
	for (int i = 0; fits && i < MOST_RUNS && now - start < (i < 2 ? most : enough);
	     i++) {
		struct fal_loss res;
		const uint64_t wall = clock_ns(CLOCK_MONOTONIC),
			       cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		float *grad = gradient_memory(m, sum);
		fal_net_grad(d->net, d->arena, params, &t, grad, &res);
		(void)fal_sum_quantise(sum, grad, exps, FAL_BFP_ROOM, NULL);
		now = clock_ns(CLOCK_MONOTONIC);
		const uint64_t used = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
		out->wall = now - wall < out->wall ? now - wall : out->wall;
		out->cpu = used < out->cpu ? used : out->cpu;
	}
	free(params);
	free(exps);
	fal_sum_free(sum);
	return fits ? FAL_OK : FAL_ENOMEM;
}
