/* Estimates of the memory that a coordinator or a shard process needs. */
#include "server.h"

#include "model/safetensors.h"
#include "sched/policy.h"
#include "wire/bfp.h"

static uint64_t
vector_bytes(const struct fal_files *j)
{
	return j->model->params * sizeof(float);
}

/* Returns the number of models with steps of their own: one for each branch. */
static uint32_t
count_branches(const struct fal_rule *rule)
{
	if (!rule->delta)
		return 0;
	return rule->groups > 0 ? rule->groups : rule->max_groups;
}

/* Returns the most versions and rounds that the shards have open at a time.  With shared
 * rounds: one clock's round for each kept version.  Else: one or two rounds of each
 * worker, and the round that collects them. */
static struct fal_store_limits
store_limits(const struct fal_rule *rule, uint64_t workers)
{
	const struct fal_traits is = fal_rule_traits(rule);
	/* Workers or groups whose rounds are updates by themselves. */
	uint32_t pushers = 0;
	if (is.alone && !is.delta && rule->quorum == 0)
		pushers = !is.groups         ? (uint32_t)workers
			  : rule->groups > 0 ? rule->groups
					     : rule->max_groups;
	return (struct fal_store_limits){
		.versions = is.delay + 1,
		.beyond = is.ahead ? 1 : 0,
		.rounds = is.shared ? is.delay + 1
				    : (uint32_t)workers * (is.overlaps ? 2 : 1) + 1,
		.deltas = is.delta,
		.lines = count_branches(rule),
		.pushers = pushers,
		.outer = rule->outer_rate > 0
	};
}

/* The bytes that wait on a stream while `bytes` pass: at most 2 MiB, as measured. */
static uint64_t
stream_bytes(uint64_t bytes)
{
	enum { MOST = 2 << 20 };
	return bytes < MOST ? bytes : MOST;
}

uint64_t
ps_estimate_memory(const struct ps_memory_inputs *in, uint32_t far)
{
	const struct fal_files *j = in->job;
	const struct fal_job *job = &j->job;
	const uint32_t averages = job->optim.ema > 0;
	const uint32_t all =
		in->shards + far < FAL_SHARDS_MAX ? in->shards + far : FAL_SHARDS_MAX;
	const struct fal_shard_set_conf shard_set =
		fal_files_shard_set_conf(j, in->shards);
	struct fal_shard_set_conf part = fal_files_shard_set_conf(j, 1);
	struct fal_store_limits at_most = store_limits(in->rule, in->workers);
	const uint32_t encodings = ps_max_encodings(in->rule, in->is_mixed);
	const bool snapshots = (job->state_clocks > 0 || job->state_seconds > 0) &&
			       fal_rule_traits(in->rule).shared;
	/* Two files of the best model may be in memory: one is written, one waits. */
	const uint64_t best = job->state_best == FAL_JOB_BEST_YES ? 2 : 0;
	const uint64_t data = fal_files_data_bytes(j);
	/* This process needs `own` and `kept` wherever the shards are. */
	const uint64_t own = in->program + data +
			     (data < PS_CACHE_MAX ? data : PS_CACHE_MAX) +
			     (j->init != NULL ? vector_bytes(j) : 0);
	const uint64_t kept =
		own + best * fal_safetensors_bound(j->model, 0) +
		(snapshots ? fal_shard_set_image_bytes(&shard_set, &at_most) : 0);
	const uint64_t here = kept + fal_shard_set_bytes(&shard_set, &at_most) +
			      encodings * vector_bytes(j);
	if (far == 0)
		return here;
	/* At the begin this process makes all shards and sends them away.  Each shard
	 * then needs, at the same time, its parameters, their source and their image. */
	const uint64_t state =
		(count_branches(in->rule) + 1) * fal_optim_slots(&job->optim);
	const uint64_t begin = own + (3 + state + averages) * vector_bytes(j);
	/* This process keeps the blocks of the first in->shards shards. */
	uint32_t before[FAL_SHARDS_MAX + 1], blocks = 0;
	struct fal_map map;
	fal_files_make_map(j, all, &map, before);
	for (uint32_t i = 0; i < before[in->shards]; i++)
		blocks += map.of[i].count;
	const uint64_t values = (uint64_t)blocks * FAL_BLOCK;
	part.each.n = values < j->model->params ? values : j->model->params;
	at_most.beyond++; /* until all shards have made the next version */
	/* Later the parameters of the other shards come in one piece. */
	uint64_t away = kept + fal_shard_set_bytes(&part, &at_most) +
			encodings * part.each.n * sizeof(float) +
			(2 + 2 * averages) * vector_bytes(j) +
			far * stream_bytes(vector_bytes(j));
	away = away > begin ? away : begin;
	return away < here ? away : here;
}

uint64_t
ps_estimate_shard_memory(const struct ps_shard_memory_inputs *in)
{
	struct fal_store_limits at_most = store_limits(in->rule, in->workers);
	at_most.beyond++; /* until all shards have made the next version */
	if (at_most.versions + 1 < in->versions)
		at_most.versions = in->versions - 1;
	const uint64_t bytes = in->shard_set->each.n * sizeof(float);
	return in->program + fal_shard_set_bytes(in->shard_set, &at_most) +
	       fal_shard_set_image_bytes(in->shard_set, &at_most) +
	       ps_max_encodings(in->rule, in->is_mixed) * bytes +
	       2 * stream_bytes(bytes); /* in and out */
}
