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
		.epochs = fal_trace_get_u64(l, l->o, FAL_F_EPOCHS, UINT32_MAX),
		.batch = fal_trace_get_u64(l, l->o, FAL_F_BATCH, FAL_TRACE_SAMPLES_MAX),
		.task = fal_trace_get_u64(l, l->o, FAL_F_TASK, FAL_TRACE_SAMPLES_MAX),
		.samples =
			fal_trace_get_u64(l, l->o, FAL_F_SAMPLES, FAL_TRACE_SAMPLES_MAX),
		.blocks = fal_trace_get_u64(l, l->o, FAL_F_BLOCKS, FAL_TRACE_BLOCKS_MAX),
		.clocks_per_epoch = fal_trace_get_u64(l, l->o, FAL_F_CLOCKS_PER_EPOCH,
						      FAL_TRACE_SAMPLES_MAX),
		.clocks = fal_trace_get_u64(l, l->o, FAL_F_CLOCKS, FAL_TRACE_NUM_MAX),
		.parts = !fal_trace_has(l->o, FAL_F_PARTS)
				 ? 1
				 : fal_trace_get_u64(l, l->o, FAL_F_PARTS,
						     FAL_TRACE_PARTS_MAX),
		.test = fal_trace_has(l->o, FAL_F_TEST)
				? fal_trace_get_u64(l, l->o, FAL_F_TEST,
						    FAL_TRACE_SAMPLES_MAX)
				: 0,
		.shards = fal_trace_has(l->o, FAL_F_SHARDS)
				  ? fal_trace_get_u64(l, l->o, FAL_F_SHARDS,
						      FAL_TRACE_SHARDS_MAX)
				  : 1,
		.params = fal_trace_has(l->o, FAL_F_PARAMS)
				  ? fal_trace_get_u64(l, l->o, FAL_F_PARAMS,
						      FAL_TRACE_NUM_MAX)
				  : 0,
		.hashes = fal_trace_has(l->o, FAL_F_HASH_EVERY)
				  ? fal_trace_get_u64(l, l->o, FAL_F_HASH_EVERY,
						      FAL_TRACE_NUM_MAX)
				  : 0,
	};
	const char *audit = fal_trace_get_str(l, l->o, FAL_F_AUDIT);
	const char *nonfinite = !fal_trace_has(l->o, FAL_F_NONFINITE)
					? "stop"
					: fal_trace_get_str(l, l->o, FAL_F_NONFINITE);
	if (l->err != 0)
		return l->err;
	j.sums = strcmp(audit, "sums") == 0;
	if (!j.sums && strcmp(audit, "claims") != 0)
		return fal_trace_fail(l, FAL_EFORMAT, "audit: neither claims nor sums");
	j.skips = strcmp(nonfinite, "skip") == 0;
	if (!j.skips && strcmp(nonfinite, "stop") != 0)
		return fal_trace_fail(l, FAL_EFORMAT, "nonfinite: neither stop nor skip");
	if (j.epochs == 0 || j.batch == 0 || j.task == 0 || j.samples == 0 ||
	    j.blocks == 0 || j.parts == 0 || j.shards == 0)
		return fal_trace_fail(l, FAL_EINVAL,
				      "epochs, batch, task, samples, blocks, parts, "
				      "shards: one of them is 0");
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

int
fal_trace_job_restart(struct fal_trace_line *l, struct fal_trace_job *job)
{
	if (!fal_trace_has(l->o, FAL_F_EPOCHS))
		return 0;
	const uint64_t epochs = fal_trace_get_u64(l, l->o, FAL_F_EPOCHS, UINT32_MAX);
	if (l->err == 0 && epochs < job->epochs)
		fal_trace_fail(l, FAL_EINVAL, "epochs: %llu, but there were %llu",
			       (unsigned long long)epochs,
			       (unsigned long long)job->epochs);
	if (l->err == 0 && epochs > FAL_TRACE_NUM_MAX / job->clocks_per_epoch)
		fal_trace_fail(l, FAL_ELIMIT, "epochs: too many");
	if (l->err != 0)
		return l->err;
	job->epochs = epochs;
	job->clocks = epochs * job->clocks_per_epoch;
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

uint64_t
fal_trace_job_full(const struct fal_trace_job *job)
{
	const uint64_t most = fal_trace_job_samples(job, 0);
	return job->task < most ? job->task : most;
}

double
fal_trace_join_fixed(struct fal_trace_line *l, const struct fal_trace_job *job)
{
	if (!fal_trace_has(l->o, FAL_F_TASK_S) || !fal_trace_has(l->o, FAL_F_LARGE) ||
	    !fal_trace_has(l->o, FAL_F_LARGE_S))
		return (double)NAN;
	const uint64_t large =
		fal_trace_get_u64(l, l->o, FAL_F_LARGE, FAL_TRACE_SAMPLES_MAX);
	const double task = (double)job->task, full = (double)fal_trace_job_full(job);
	const double task_s = fal_trace_get_seconds(l, l->o, FAL_F_TASK_S);
	const double large_s = fal_trace_get_seconds(l, l->o, FAL_F_LARGE_S);
	const double fixed = fal_bound_fixed(task, task_s, (double)large, large_s);
	return fixed / fal_bound_longer(fixed, full / task);
}

double
fal_trace_size(const struct fal_trace_job *job, double fixed,
	       const struct fal_trace_pace *p)
{
	const double tasks = (double)p->tasks, full = (double)fal_trace_job_full(job);
	return p->tasks > 0 ? tasks * fal_bound_longer(fixed, p->samples / (tasks * full))
			    : 0;
}

/* Can so many tasks have these samples? */
static bool
can_have(const struct fal_trace_job *job, uint64_t tasks, uint64_t samples)
{
	return samples >= tasks && samples <= tasks * fal_trace_job_full(job);
}

/* What the line says of all its tasks; `*said`: their samples. */
static struct fal_trace_pace
get_all(struct fal_trace_line *l, const struct fal_trace_job *job, uint64_t most,
	bool *said)
{
	const uint64_t clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
	struct fal_trace_pace all = {
		.tasks = fal_trace_get_u64(l, l->o, FAL_F_DONE, most) +
			 fal_trace_get_u64(l, l->o, FAL_F_LOST, most),
		.task_s = fal_trace_get_seconds(l, l->o, FAL_F_TASK_S),
	};
	*said = fal_trace_has(l->o, FAL_F_SAMPLES);
	if (*said) {
		const uint64_t n =
			fal_trace_get_u64(l, l->o, FAL_F_SAMPLES, FAL_TRACE_NUM_MAX);
		if (l->err == 0 && !can_have(job, all.tasks, n))
			fal_trace_fail(l, FAL_EINVAL, "samples: %llu of %llu tasks",
				       (unsigned long long)n,
				       (unsigned long long)all.tasks);
		all.samples = (double)n;
	} else if (l->err == 0) { /* a round of one's own may be of no clock yet */
		const uint64_t c = clock < job->clocks ? clock : 0;
		all.samples = (double)all.tasks * (double)fal_trace_job_samples(job, c) /
			      (double)fal_trace_job_tasks(job, c);
	}
	return all;
}

/* Row i of the paces. */
static struct fal_trace_pace
get_pace(struct fal_trace_line *l, const struct fal_trace_job *job, size_t i,
	 const struct fal_trace_pace *all, bool said)
{
	uint64_t row[3] = { 0 };
	fal_trace_get_row(l, l->o, FAL_F_PACES, i, said ? 3 : 2, row);
	if (l->err == 0 && row[0] == 0)
		fal_trace_fail(l, FAL_EINVAL, "paces: one of no task");
	if (l->err == 0 && said &&
	    (row[0] > all->tasks || !can_have(job, row[0], row[2])))
		fal_trace_fail(l, FAL_EINVAL, "paces: %llu samples of %llu tasks",
			       (unsigned long long)row[2], (unsigned long long)row[0]);
	const double mean = all->samples / (double)all->tasks;
	return (struct fal_trace_pace){
		.tasks = row[0],
		.samples = said ? (double)row[2] : (double)row[0] * mean,
		.task_s = 1e-6 * (double)row[1],
	};
}

int
fal_trace_clock_ran(struct fal_trace_line *l, const struct fal_trace_job *job,
		    uint64_t most, struct fal_trace_ran *out)
{
	uint64_t tasks = 0;
	double sum = 0, samples = 0;
	bool said;
	const struct fal_trace_pace all = get_all(l, job, most, &said);
	*out = (struct fal_trace_ran){ .all = all, .pace = { all }, .paces = 1 };
	if (l->err != 0 || !fal_trace_has(l->o, FAL_F_PACES))
		return l->err;
	out->paces = fal_trace_get_len(l, l->o, FAL_F_PACES);
	if (l->err == 0 && (out->paces < 2 || out->paces > FAL_WORK_PACES))
		fal_trace_fail(l, FAL_ELIMIT, "paces: not from 2 to %d", FAL_WORK_PACES);
	for (size_t i = 0; i < out->paces && l->err == 0; i++) {
		out->pace[i] = get_pace(l, job, i, &all, said);
		tasks += out->pace[i].tasks;
		samples += out->pace[i].samples;
		sum += (double)out->pace[i].tasks * out->pace[i].task_s;
	}
	if (l->err == 0 && tasks != all.tasks)
		fal_trace_fail(l, FAL_EINVAL, "paces: of %llu tasks, not %llu",
			       (unsigned long long)tasks, (unsigned long long)all.tasks);
	if (l->err == 0 && fabs(samples - all.samples) > 0.5)
		fal_trace_fail(l, FAL_EINVAL, "paces: of %.0f samples, not %.0f", samples,
			       all.samples);
	/* All of them are rounded to a microsecond. */
	const double mean = sum / (double)all.tasks;
	if (l->err == 0 && fabs(mean - all.task_s) > 2e-6 + 1e-5 * mean)
		fal_trace_fail(l, FAL_EINVAL, "paces: their mean is %.6f, task_s %.6f",
			       mean, all.task_s);
	return l->err;
}

double
fal_trace_clock_latency(struct fal_trace_line *l, bool moves)
{
	if (!fal_trace_has(l->o, FAL_F_RTT))
		return 0;
	return fmin(fal_trace_get_seconds(l, l->o, FAL_F_WAIT),
		    (moves ? 2 : 1) * fal_trace_get_seconds(l, l->o, FAL_F_RTT));
}
