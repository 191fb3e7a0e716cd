/* Gradients of the job's model by the net of this process: a desk for each lane. */
#include "backend.h"

#include "base/mem.h"
#include "run/task_runner.h"

#include <stdlib.h>

struct maker_net {
	struct maker maker;
	const struct fal_setup *setup;
	struct fal_net *net;   /* for tasks of up to job.task samples */
	struct fal_net *large; /* for the probe, or NULL */
	uint32_t lanes;
	struct fal_task_runner **desk; /* by lane, or NULL */
};

/* The net of as large a batch as may tell what small tasks cost, up to eight of them,
 * for which `room` bytes are enough; NULL: there is none. */
static struct fal_net *
large_net(const struct fal_setup *s, uint64_t room)
{
	enum { TASKS = 8 };
	const struct fal_job *job = &s->job;
	for (uint64_t tasks = TASKS; tasks > 1; tasks /= 2) {
		const uint64_t n = tasks * job->task;
		struct fal_net *net;
		if (n > job->batch || fal_net_new(s->model, (uint32_t)n, &net) < 0)
			continue;
		if (fal_task_runner_trial_bytes(net) <= room)
			return net;
		fal_net_free(net);
	}
	return NULL;
}

static struct maker_need
need(struct maker *maker, uint64_t room)
{
	struct maker_net *m = (struct maker_net *)maker;
	fal_net_free(m->large);
	m->large = large_net(m->setup, room);
	const uint64_t small = fal_task_runner_trial_bytes(m->net);
	const uint64_t large =
		m->large != NULL ? fal_task_runner_trial_bytes(m->large) : 0;
	return (struct maker_need){ .kernels = m->lanes * fal_net_kernel_bytes(m->net),
				    .lanes = m->lanes * fal_task_runner_bytes(m->net),
				    .probe = large > small ? large : small,
				    .space = m->lanes * FAL_KERN_SPACE };
}

static int
start(struct maker *maker)
{
	struct maker_net *m = (struct maker_net *)maker;
	int err = FAL_OK;
	m->desk = fal_xcalloc(m->lanes, sizeof(struct fal_task_runner *));
	fal_kern_reserve(m->lanes);
	for (uint32_t i = 0; i < m->lanes && err == FAL_OK; i++)
		err = fal_task_runner_new(m->net, &m->desk[i]);
	return err;
}

/* On a desk of its own; the fingerprint if it is wanted. */
static int
try(const struct fal_net *net, uint64_t seed, uint8_t *fingerprint,
    struct fal_task_runner_time *out)
{
	struct fal_task_runner *desk;
	int err = fal_task_runner_new(net, &desk);
	if (err < 0)
		return err;
	if (fingerprint != NULL)
		err = fal_task_runner_fingerprint(desk, seed, fingerprint);
	if (err == FAL_OK)
		err = fal_task_runner_time(desk, seed, out);
	fal_task_runner_free(desk);
	return err;
}

static int
probe(struct maker *maker, struct maker_probed *out)
{
	const struct maker_net *m = (struct maker_net *)maker;
	const uint64_t seed = m->setup->job.seed;
	static const uint64_t most =
		200000000; /* ns of a task; many would take too long */
	struct fal_task_runner_time task, large;
	int err = try(m->net, seed, out->fingerprint, &task);
	if (err < 0)
		return err;
	fal_kern_name(out->kernels, sizeof(out->kernels));
	out->task_ns = task.wall;
	if (m->large == NULL || task.cpu == 0 || task.wall > most ||
	    try(m->large, seed, NULL, &large) < 0)
		return FAL_OK;
	const double ns = (double)task.wall * (double)large.cpu / (double)task.cpu;
	if (ns < 1) /* the thread's clock has stood still: it tells nothing */
		return FAL_OK;
	out->large = fal_net_batch(m->large);
	out->large_ns = (uint64_t)ns;
	return FAL_OK;
}

static int
run(struct maker *maker, uint32_t lane, const struct fal_run_job *job,
    struct fal_ran *ran)
{
	struct maker_net *m = (struct maker_net *)maker;
	return fal_task_runner_run(m->desk[lane], job, ran);
}

static uint64_t
steps(const struct maker *maker)
{
	const struct maker_net *m = (const struct maker_net *)maker;
	uint64_t n = 0;
	for (uint32_t i = 0; i < m->lanes; i++)
		n += fal_task_runner_steps(m->desk[i]);
	return n;
}

static void
net_free(struct maker *maker)
{
	struct maker_net *m = (struct maker_net *)maker;
	for (uint32_t i = 0; m->desk != NULL && i < m->lanes; i++)
		fal_task_runner_free(m->desk[i]);
	free(m->desk);
	fal_net_free(m->large);
	fal_net_free(m->net);
	free(m);
}

int
maker_net_new(const struct fal_setup *s, uint32_t lanes, struct maker **out,
	      struct fal_diag *diag)
{
	static const struct maker_ops ops = {
		.need = need,
		.start = start,
		.probe = probe,
		.run = run,
		.steps = steps,
		.free = net_free,
	};
	struct maker_net *m = fal_xcalloc(1, sizeof(*m));
	int err = fal_task_runner_net(s, &m->net, diag);
	if (err < 0) {
		free(m);
		return err;
	}
	m->maker = (struct maker){ &ops, .samples = true, .quick = true };
	m->setup = s;
	m->lanes = lanes;
	*out = &m->maker;
	return FAL_OK;
}
