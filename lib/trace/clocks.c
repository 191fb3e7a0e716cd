/* The geometry of clocks. */
#include "trace/clocks.h"

#include "sched/bound.h"

#include <math.h>
#include <string.h>

static uint64_t
ceil_div(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

int
fal_trace_job_read(struct fal_trace_line *l, struct fal_trace_job *out)
{
	struct fal_trace_job j = {
		.epochs = fal_trace_get_u64(l, l->o, "epochs", UINT32_MAX),
		.batch = fal_trace_get_u64(l, l->o, "batch", FAL_TRACE_SAMPLES_MAX),
		.task = fal_trace_get_u64(l, l->o, "task", FAL_TRACE_SAMPLES_MAX),
		.samples = fal_trace_get_u64(l, l->o, "samples", FAL_TRACE_SAMPLES_MAX),
		.blocks = fal_trace_get_u64(l, l->o, "blocks", FAL_TRACE_BLOCKS_MAX),
		.clocks_per_epoch = fal_trace_get_u64(l, l->o, "clocks_per_epoch",
						      FAL_TRACE_SAMPLES_MAX),
		.clocks = fal_trace_get_u64(l, l->o, "clocks", FAL_TRACE_NUM_MAX),
		.parts = json_object_get(l->o, "parts") == NULL
				 ? 1
				 : fal_trace_get_u64(l, l->o, "parts",
						     FAL_TRACE_PARTS_MAX),
	};
	const char *audit = fal_trace_get_str(l, l->o, "audit");
	if (l->err != 0)
		return l->err;
	j.sums = strcmp(audit, "sums") == 0;
	if (!j.sums && strcmp(audit, "claims") != 0)
		return fal_trace_fail(l, FAL_EFORMAT, "audit: neither claims nor sums");
	if (j.epochs == 0 || j.batch == 0 || j.task == 0 || j.samples == 0 ||
	    j.blocks == 0 || j.parts == 0)
		return fal_trace_fail(
			l, FAL_EINVAL,
			"epochs, batch, task, samples, blocks, parts: one of them is 0");
	if (ceil_div(j.batch, j.task) > FAL_TRACE_TASKS_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "batch: more than %llu tasks",
				      (unsigned long long)FAL_TRACE_TASKS_MAX);
	uint64_t per_epoch = ceil_div(j.samples, j.batch);
	if (j.clocks_per_epoch != per_epoch)
		return fal_trace_fail(
			l, FAL_EINVAL,
			"clocks_per_epoch: %llu, but samples / batch make %llu",
			(unsigned long long)j.clocks_per_epoch,
			(unsigned long long)per_epoch);
	if (j.clocks % per_epoch != 0 || j.clocks / per_epoch != j.epochs)
		return fal_trace_fail(l, FAL_EINVAL,
				      "clocks: %llu, but it is not epochs × %llu",
				      (unsigned long long)j.clocks,
				      (unsigned long long)per_epoch);
	*out = j;
	return 0;
}

uint64_t
fal_trace_job_samples(const struct fal_trace_job *job, uint64_t c)
{
	uint64_t left = job->samples - c % job->clocks_per_epoch * job->batch;
	return left < job->batch ? left : job->batch;
}

uint64_t
fal_trace_job_tasks(const struct fal_trace_job *job, uint64_t c)
{
	return ceil_div(fal_trace_job_samples(job, c), job->task);
}

uint64_t
fal_trace_range_samples(const struct fal_trace_job *job, uint64_t c, uint64_t first,
			uint64_t count)
{
	uint64_t samples = fal_trace_job_samples(job, c);
	uint64_t tasks = fal_trace_job_tasks(job, c);
	if (first >= tasks)
		return 0;
	uint64_t end = count < tasks - first ? (first + count) * job->task : samples;
	return end - first * job->task;
}

uint64_t
fal_trace_job_epoch(const struct fal_trace_job *job, uint64_t c)
{
	return c / job->clocks_per_epoch + 1;
}

double
fal_trace_join_fixed(struct fal_trace_line *l, uint64_t task)
{
	if (!fal_trace_has(l->o, "task_s") || !fal_trace_has(l->o, "large") ||
	    !fal_trace_has(l->o, "large_s"))
		return (double)NAN;
	const uint64_t large = fal_trace_get_u64(l, l->o, "large", FAL_TRACE_SAMPLES_MAX);
	const double task_s = fal_trace_get_seconds(l, l->o, "task_s");
	const double large_s = fal_trace_get_seconds(l, l->o, "large_s");
	return fal_bound_fixed((double)task, task_s, (double)large, large_s);
}

size_t
fal_trace_clock_paces(struct fal_trace_line *l,
		      struct fal_trace_pace out[static FAL_WORK_PACES])
{
	const uint64_t all = fal_trace_get_u64(l, l->o, "done", FAL_TRACE_NUM_MAX) +
			     fal_trace_get_u64(l, l->o, "lost", FAL_TRACE_NUM_MAX);
	uint64_t row[2], tasks = 0;
	double sum = 0;
	const struct fal_trace_pace whole = { all,
					      fal_trace_get_seconds(l, l->o, "task_s") };
	out[0] = whole;
	if (l->err != 0 || !fal_trace_has(l->o, "paces"))
		return 1;
	const size_t n = fal_trace_get_len(l, l->o, "paces");
	if (l->err == 0 && (n < 2 || n > FAL_WORK_PACES))
		fal_trace_fail(l, FAL_ELIMIT, "paces: not from 2 to %d", FAL_WORK_PACES);
	for (size_t i = 0; i < n && l->err == 0; i++) {
		fal_trace_get_row(l, l->o, "paces", i, 2, row);
		out[i] = (struct fal_trace_pace){ row[0], 1e-6 * (double)row[1] };
		tasks += row[0];
		sum += (double)row[0] * out[i].task_s;
		if (l->err == 0 && row[0] == 0)
			fal_trace_fail(l, FAL_EINVAL, "paces: one of no task");
	}
	if (l->err == 0 && tasks != all)
		fal_trace_fail(l, FAL_EINVAL, "paces: of %llu tasks, not %llu",
			       (unsigned long long)tasks, (unsigned long long)all);
	/* All of them are rounded to a microsecond. */
	const double mean = sum / (double)all;
	if (l->err == 0 && fabs(mean - whole.task_s) > 2e-6 + 1e-5 * mean)
		fal_trace_fail(l, FAL_EINVAL, "paces: their mean is %.6f, task_s %.6f",
			       mean, whole.task_s);
	return n;
}
