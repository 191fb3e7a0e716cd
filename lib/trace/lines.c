/* Facts that follow from the members of one line, and checks that they agree. */
#include "trace/lines.h"

#include "base/mem.h"
#include "sched/bound.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
fal_trace_most(struct fal_trace_line *l, const char *name, uint64_t n, uint64_t max)
{
	if (n > max)
		fal_trace_fail(l, FAL_ELIMIT, "%s: %llu is above %llu", name,
			       (unsigned long long)n, (unsigned long long)max);
	return l->err;
}

/* ---- job --------------------------------------------------------------------------- */

static uint64_t
ceil_div(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

int
fal_trace_job_read(struct fal_trace_line *l, struct fal_trace_job *out)
{
	const struct fal_ev_job *e = &l->is.job;
	const struct fal_trace_job j = {
		.epochs = e->epochs,
		.batch = e->batch,
		.task = e->task,
		.samples = e->samples,
		.blocks = e->blocks,
		.clocks_per_epoch = e->clocks_per_epoch,
		.clocks = e->clocks,
		.parts = e->parts > 0 ? e->parts : 1,
		.sums = e->audit == FAL_AUDIT_SUMS,
		.skips = e->nonfinite > 0,
		.hashes = e->hashes,
		.test = e->test,
		.shards = e->shards,
		.params = e->params,
	};
	if (j.epochs == 0 || j.batch == 0 || j.task == 0 || j.samples == 0 ||
	    j.blocks == 0 || j.shards == 0)
		return fal_trace_fail(l, FAL_EINVAL,
				      "epochs, batch, task, samples, blocks, shards: "
				      "one of them is 0");
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
	const uint64_t epochs = l->is.restart.epochs;
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

int
fal_trace_scheme_read(struct fal_trace_line *l, const char *text, struct fal_rule *out)
{
	struct fal_diag why;
	struct fal_rule r;
	int err = fal_rule_parse(text, &r, &why);
	if (err < 0)
		return fal_trace_fail(l, err, "scheme: %s", why.text);
	*out = r;
	return 0;
}

/* ---- join, clock ------------------------------------------------------------------- */

double
fal_trace_join_fixed(const struct fal_ev_join *j, const struct fal_trace_job *job)
{
	const double task = (double)job->task, full = (double)fal_trace_job_full(job);
	if (!(j->task_s > 0) || j->large == 0 || isnan(j->large_s))
		return (double)NAN;
	const double fixed =
		fal_bound_fixed(task, j->task_s, (double)j->large, j->large_s);
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

int
fal_trace_clock_ran(struct fal_trace_line *l, const struct fal_trace_job *job,
		    struct fal_trace_ran *out)
{
	const struct fal_ev_clock *c = &l->is.clock;
	const struct fal_trace_pace all = { c->done + c->lost, (double)c->samples,
					    c->task_s };
	uint64_t tasks = 0, samples = 0;
	double sum = 0;
	if (!can_have(job, all.tasks, c->samples))
		fal_trace_fail(l, FAL_EINVAL, "samples: %llu of %llu tasks",
			       (unsigned long long)c->samples,
			       (unsigned long long)all.tasks);
	*out = (struct fal_trace_ran){ .all = all, .pace = { all }, .paces = 1 };
	if (l->err != 0 || c->paces.n == 0)
		return l->err;
	if (c->paces.n < 2 || c->paces.n > FAL_WORK_PACES)
		return fal_trace_fail(l, FAL_ELIMIT, "paces: not from 2 to %d",
				      FAL_WORK_PACES);
	out->paces = c->paces.n;
	for (size_t i = 0; i < out->paces; i++) {
		const uint64_t *row = c->paces.v + 3 * i;
		if (row[0] == 0)
			return fal_trace_fail(l, FAL_EINVAL, "paces: one of no task");
		if (row[0] > all.tasks || !can_have(job, row[0], row[2]))
			return fal_trace_fail(l, FAL_EINVAL,
					      "paces: %llu samples of %llu tasks",
					      (unsigned long long)row[2],
					      (unsigned long long)row[0]);
		out->pace[i] = (struct fal_trace_pace){ row[0], (double)row[2],
							1e-6 * (double)row[1] };
		tasks += row[0];
		samples += row[2];
		sum += (double)row[0] * out->pace[i].task_s;
	}
	if (tasks != all.tasks)
		fal_trace_fail(l, FAL_EINVAL, "paces: of %llu tasks, not %llu",
			       (unsigned long long)tasks, (unsigned long long)all.tasks);
	if (samples != c->samples)
		fal_trace_fail(l, FAL_EINVAL, "paces: of %llu samples, not %llu",
			       (unsigned long long)samples,
			       (unsigned long long)c->samples);
	/* Each number is rounded to a microsecond. */
	const double mean = sum / (double)all.tasks;
	if (fabs(mean - all.task_s) > 2e-6 + 1e-5 * mean)
		fal_trace_fail(l, FAL_EINVAL, "paces: their mean is %.6f, task_s %.6f",
			       mean, all.task_s);
	return l->err;
}

double
fal_trace_clock_latency(const struct fal_ev_clock *c, bool moves)
{
	return fmin(c->wait, (moves ? 2 : 1) * c->rtt);
}

/* ---- ledger ------------------------------------------------------------------------ */

struct fal_trace_round
fal_trace_round_of(const struct fal_ev_ledger *e)
{
	struct fal_trace_round r = {
		.round = e->round,
		.clock = e->clock,
		.first = e->first,
		.tasks = e->tasks,
		.samples = e->samples,
		.version = e->version,
		.blocks = e->blocks,
		.end = (enum fal_trace_end)e->end,
		.delta = e->kind == FAL_TRACE_DELTA,
		.has_stale = e->stale != NULL,
		.moved = e->move.n > 0,
		.owner = (uint32_t)e->owner,
		.group = e->group,
		.local = e->local,
		.weight = isnan(e->weight) ? 1 : e->weight,
		.among = e->among,
		.steps = e->steps,
		.divisor = e->divisor,
		.slot = e->slot,
	};
	if (e->stale != NULL) {
		r.clocks = e->stale->clocks;
		r.updates = e->stale->updates;
		r.rank = e->stale->rank;
	}
	return r;
}

bool
fal_trace_round_whole(const struct fal_trace_round *r)
{
	return r->end == FAL_END_APPLIED || r->end == FAL_END_GIVEN;
}

int
fal_trace_verified(struct fal_trace_line *l)
{
	const uint64_t *v = l->is.ledger.verified.v;
	if (v != NULL && v[1] + v[2] > v[0])
		fal_trace_fail(l, FAL_EFORMAT, "verified: more answers than questions");
	return l->err;
}

uint64_t
fal_trace_rows_tasks(struct fal_numbers rows, size_t width)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < rows.n; i++)
		sum += rows.v[width * (i + 1) - 1];
	return sum;
}

uint64_t
fal_trace_rows_samples(const struct fal_trace_job *job, uint64_t clock,
		       struct fal_numbers rows, size_t width)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < rows.n; i++) {
		const uint64_t *end = rows.v + width * (i + 1);
		sum += fal_trace_range_samples(job, clock, end[-2], end[-1]);
	}
	return sum;
}

uint64_t
fal_trace_round_twice(const struct fal_ev_ledger *e, const struct fal_trace_job *job)
{
	uint64_t sum = fal_trace_rows_samples(job, e->clock, e->lost, 3);
	for (size_t i = 0; i < e->contrib.n; i++) {
		const struct fal_ev_contrib *c = &e->contrib.v[i];
		if (c->fills.n > 0 || e->end == FAL_END_ABANDONED)
			sum += fal_trace_rows_samples(job, e->clock, c->tasks, 2);
	}
	return sum;
}

uint64_t
fal_trace_round_counted(const struct fal_trace_round *r, struct fal_numbers skipped,
			const struct fal_trace_job *job)
{
	const uint64_t all = fal_trace_range_samples(job, r->clock, r->first, r->tasks);
	const uint64_t none = fal_trace_rows_samples(job, r->clock, skipped, 2);
	return all > none ? all - none : 0;
}

const char *
fal_trace_round_name(const struct fal_trace_round *r,
		     char out[static FAL_TRACE_ROUND_NAME])
{
	if (r->round == r->clock && r->owner == 0 && r->group == 0)
		snprintf(out, FAL_TRACE_ROUND_NAME, "clock %llu",
			 (unsigned long long)r->clock);
	else
		snprintf(out, FAL_TRACE_ROUND_NAME, "round %llu of clock %llu",
			 (unsigned long long)r->round, (unsigned long long)r->clock);
	return out;
}

/* ---- place, shard ------------------------------------------------------------------ */

void
fal_trace_place_free(struct fal_trace_place *p)
{
	free(p->shard);
	*p = (struct fal_trace_place){ 0 };
}

/* [shard, first, count]: in the order of blocks, each block once. */
static int
read_runs(struct fal_trace_line *l, struct fal_trace_place *p)
{
	const struct fal_numbers runs = l->is.place.runs;
	uint64_t next = 0;
	for (size_t i = 0; i < runs.n; i++) {
		const uint64_t *row = runs.v + 3 * i;
		if (row[0] == 0 || row[0] > p->shards)
			return fal_trace_fail(l, FAL_EINVAL,
					      "runs: there is no shard %llu",
					      (unsigned long long)row[0]);
		if (row[1] != next || row[2] == 0 || row[2] > p->blocks - next)
			return fal_trace_fail(l, FAL_EINVAL,
					      "runs: not each block once, in order");
		for (; next < row[1] + row[2]; next++)
			p->shard[next] = (uint32_t)row[0] - 1;
	}
	if (next != p->blocks)
		fal_trace_fail(l, FAL_EINVAL, "runs: not each block once, in order");
	return l->err;
}

int
fal_trace_place_read(struct fal_trace_line *l, const struct fal_trace_job *job,
		     struct fal_trace_place *p)
{
	const struct fal_ev_place *e = &l->is.place;
	struct fal_trace_place is = {
		.map = e->map,
		.shards = (uint32_t)e->shards,
		.places = (uint32_t)(e->places > 0 ? e->places : e->shards),
		.blocks = (uint32_t)job->blocks,
	};
	if (job->blocks > FAL_TRACE_PLACED_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "more than %llu blocks",
				      (unsigned long long)FAL_TRACE_PLACED_MAX);
	if (e->rule[0] == '\0' || strlen(e->rule) >= sizeof(is.rule))
		return fal_trace_fail(l, FAL_EFORMAT, "rule: not the name of one");
	snprintf(is.rule, sizeof(is.rule), "%s", e->rule);
	is.shard = fal_calloc(is.blocks, sizeof(*is.shard));
	int err = is.shard != NULL ? read_runs(l, &is)
				   : fal_trace_fail(l, FAL_ENOMEM, "out of memory");
	if (err < 0) {
		fal_trace_place_free(&is);
		return err;
	}
	fal_trace_place_free(p);
	*p = is;
	return FAL_OK;
}

int
fal_trace_shard_check(struct fal_trace_line *l, const struct fal_trace_job *job)
{
	const struct fal_ev_shard *e = &l->is.shard;
	if (e->shard == 0)
		return fal_trace_fail(l, FAL_EINVAL, "shard: 0");
	fal_trace_most(l, "clock", e->clock, job->clocks - 1);
	return fal_trace_most(l, "blocks", e->blocks, job->blocks);
}
