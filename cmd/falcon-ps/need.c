/* The coordinator's memory, part by part. */
#include "need.h"

#include "cache.h"
#include "model/safetensors.h"
#include "publish.h"
#include "sched/traits.h"

/* A vector of parameters. */
static uint64_t
vector(const struct fal_files *j)
{
	return j->model->params * sizeof(float);
}

/* Models that are stepped by themselves. */
static uint32_t
lines(const struct fal_rule *rule)
{
	const uint32_t groups = rule->groups > 0 ? rule->groups : rule->most;
	return rule->delta ? groups : 0;
}

/* What the shards have open at a time: a clock's round for each version that is kept;
 * elsewhere one of each worker, and what is collected of them. */
static struct fal_store_most
most(const struct fal_rule *rule, uint64_t workers)
{
	const struct fal_traits is = fal_rule_traits(rule);
	return (struct fal_store_most){ .versions = is.delay + 1,
					.rounds = is.shared ? is.delay + 1
							    : (uint32_t)workers + 1,
					.deltas = is.delta,
					.lines = lines(rule),
					.outer = rule->outer > 0 };
}

static bool
takes_snapshots(const struct ps_need_of *of)
{
	const struct fal_job *job = &of->job->job;
	return (job->state_clocks > 0 || job->state_seconds > 0) &&
	       fal_rule_traits(of->rule).shared;
}

/* Versions as they were sealed, those on their way with them. */
static uint64_t
published(const struct ps_need_of *of)
{
	return ps_published_most(of->rule) * vector(of->job);
}

void
ps_need(const struct ps_need_of *of, struct fal_need *out)
{
	const struct fal_files *j = of->job;
	const struct fal_rack_conf rack = fal_files_rack_conf(j, of->shards);
	const struct fal_store_most at_most = most(of->rule, of->workers);
	const uint64_t data = fal_files_data(j);
	/* Of the best model two files may wait, the one for the other. */
	const uint64_t best = j->job.state_best == FAL_JOB_BEST_YES ? 2 : 0;
	*out = (struct fal_need){ 0 };
	fal_need_add(out, "program", of->program);
	fal_need_add(out, "data", data);
	fal_need_add(out, "chunks that travel",
		     data < PS_CACHE_MAX ? data : PS_CACHE_MAX);
	fal_need_add(out, "first weights", j->init != NULL ? vector(j) : 0);
	fal_need_add(out, "parameters and sums", fal_rack_bytes(&rack, &at_most));
	fal_need_add(out, "published versions", published(of));
	fal_need_add(out, "snapshot",
		     takes_snapshots(of) ? fal_rack_image_bytes(&rack, &at_most) : 0);
	fal_need_add(out, "best models", best * ps_need_export(j));
}

uint64_t
ps_need_part(uint64_t program, const struct fal_rack_conf *part,
	     const struct fal_rule *rule, uint32_t versions)
{
	struct fal_store_most at_most = most(rule, 1);
	at_most.versions++; /* until all shards have made the next */
	if (at_most.versions < versions)
		at_most.versions = versions;
	return program + fal_rack_bytes(part, &at_most) +
	       fal_rack_image_bytes(part, &at_most) +
	       ps_published_most(rule) * part->each.n * sizeof(float);
}

int
ps_afford(const struct ps_need_of *of, uint64_t more, uint64_t most, struct fal_diag *why)
{
	struct fal_need need;
	ps_need(of, &need);
	return fal_need_allowed(more + fal_need_sum(&need), most, why);
}

uint64_t
ps_need_state(const struct fal_files *j, const struct fal_rule *rule)
{
	const struct fal_rack_conf rack = fal_files_rack_conf(j, 1);
	return fal_rack_state_bytes(&rack, lines(rule));
}

uint64_t
ps_need_export(const struct fal_files *j)
{
	return fal_safetensors_bound(j->model, 0);
}
