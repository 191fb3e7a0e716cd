/* Gradients of the job's model by the net of this process: a task runner for each
 * lane. */
#include "backend.h"

#include "base/mem.h"
#include "run/task_runner.h"

#include <stdlib.h>

struct native {
	struct backend backend;
	const struct fal_setup *setup;
	struct fal_net *net;   /* for tasks of up to job.task samples */
	struct fal_net *large; /* for the probe, or NULL */
	uint32_t lanes;
	struct fal_task_runner **runner; /* by lane, or NULL */
};

/* A lane's thread takes so much for its stack and for its own heap. */
enum { THREAD_BYTES = 256 << 10 };

static struct backend_memory
native_memory(struct backend *b, uint64_t room)
{
	enum { TASKS = 8 };
	struct native *m = (struct native *)b;
	const struct fal_job *job = &m->setup->job;
	fal_net_free(m->large);
	m->large = NULL;
	/* Makes the net for the largest batch, of up to eight tasks, whose trial fits
	 * into `room` bytes.  The time of this batch shows the fixed cost of a small
	 * task. */
	for (uint64_t tasks = TASKS; tasks > 1 && m->large == NULL; tasks /= 2) {
		const uint64_t n = tasks * job->task;
		struct fal_net *net;
		if (n > job->batch || fal_net_new(m->setup->model, (uint32_t)n, &net) < 0)
			continue;
		if (fal_task_runner_trial_bytes(net) <= room)
			m->large = net;
		else
			fal_net_free(net);
	}
	const uint64_t small = fal_task_runner_trial_bytes(m->net);
	const uint64_t large =
		m->large != NULL ? fal_task_runner_trial_bytes(m->large) : 0;
	return (struct backend_memory){
		.kernels = m->lanes * fal_net_kernel_bytes(m->net),
		.lanes = m->lanes * (fal_task_runner_bytes(m->net) + THREAD_BYTES),
		.probe = large > small ? large : small,
		.address_space = m->lanes * fal_kern_space(),
	};
}

static int
native_start(struct backend *b)
{
	struct native *m = (struct native *)b;
	int err = FAL_OK;
	m->runner = fal_xcalloc(m->lanes, sizeof(struct fal_task_runner *));
	fal_kern_reserve(m->lanes);
	for (uint32_t i = 0; i < m->lanes && err == FAL_OK; i++)
		err = fal_task_runner_new(m->net, &m->runner[i]);
	return err;
}

/* Times a task of the net on a runner of its own, after the fingerprint unless that is
 * NULL. */
static int
native_time(const struct fal_net *net, uint64_t seed, uint8_t *fingerprint,
	    struct fal_task_runner_time *out)
{
	struct fal_task_runner *runner;
	int err = fal_task_runner_new(net, &runner);
	if (err < 0)
		return err;
	if (fingerprint != NULL)
		err = fal_task_runner_fingerprint(runner, seed, fingerprint);
	if (err == FAL_OK)
		err = fal_task_runner_time(runner, seed, out);
	fal_task_runner_free(runner);
	return err;
}

static int
native_probe(struct backend *b, struct backend_profile *out)
{
	const struct native *m = (struct native *)b;
	const uint64_t seed = m->setup->job.seed;
	/* ns of a task: a large batch of longer tasks would take too long. */
	static const uint64_t most = 200000000;
	struct fal_task_runner_time task, large;
	int err = native_time(m->net, seed, out->fingerprint, &task);
	if (err < 0)
		return err;
	fal_kern_name(out->kernels, sizeof(out->kernels));
	out->task_ns = task.wall;
	if (m->large == NULL || task.cpu == 0 || task.wall > most ||
	    native_time(m->large, seed, NULL, &large) < 0)
		return FAL_OK;
	const double ns = (double)task.wall * (double)large.cpu / (double)task.cpu;
	if (ns < 1) /* the thread's clock stood still: no measurement */
		return FAL_OK;
	out->large_batch = fal_net_batch(m->large);
	out->large_ns = (uint64_t)ns;
	return FAL_OK;
}

static int
native_run(struct backend *b, uint32_t lane, const struct fal_lane_task *job,
	   struct fal_task_result *result)
{
	return fal_task_runner_run(((struct native *)b)->runner[lane], job, result);
}

static uint64_t
native_progress(const struct backend *b)
{
	const struct native *m = (const struct native *)b;
	uint64_t n = 0;
	for (uint32_t i = 0; i < m->lanes; i++)
		n += fal_task_runner_steps(m->runner[i]);
	return n;
}

static void
native_free(struct backend *b)
{
	struct native *m = (struct native *)b;
	for (uint32_t i = 0; m->runner != NULL && i < m->lanes; i++)
		fal_task_runner_free(m->runner[i]);
	free(m->runner);
	fal_net_free(m->large);
	fal_net_free(m->net);
	free(m);
}

int
backend_native_new(const struct fal_setup *s, uint32_t lanes, struct backend **out,
		   struct fal_diag *diag)
{
	static const struct backend_ops ops = {
		.memory = native_memory,
		.start = native_start,
		.probe = native_probe,
		.run = native_run,
		.progress = native_progress,
		.free = native_free,
	};
	struct native *m = fal_xcalloc(1, sizeof(*m));
	int err = fal_task_runner_net(s, &m->net, diag);
	if (err < 0) {
		free(m);
		return err;
	}
	m->backend =
		(struct backend){ &ops, .needs_samples = true, .only_computes = true };
	m->setup = s;
	m->lanes = lanes;
	*out = &m->backend;
	return FAL_OK;
}
