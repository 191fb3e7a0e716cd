/* The coordinator's memory. */
#include "server.h"

#include "model/safetensors.h"
#include "sched/policy.h"
#include "wire/bfp.h"

/* A vector of parameters. */
static uint64_t
vector(const struct fal_files *j)
{
	return j->model->params * sizeof(float);
}

static uint32_t
groups_of(const struct fal_rule *rule)
{
	return rule->groups > 0 ? rule->groups : rule->most;
}

/* Models that are stepped by themselves. */
static uint32_t
lines(const struct fal_rule *rule)
{
	return rule->delta ? groups_of(rule) : 0;
}

/* Workers or groups whose rounds are updates by themselves. */
static uint32_t
pushers(const struct fal_rule *rule, const struct fal_traits *is, uint64_t workers)
{
	if (!is->alone || is->delta || rule->quorum > 0)
		return 0;
	return is->groups ? groups_of(rule) : (uint32_t)workers;
}

/* The most that the shards have open at a time.  With shared rounds: a clock's round for
 * each version that is kept.  Else: a round of each worker, or two, and the round that
 * collects them. */
static struct fal_store_most
most(const struct fal_rule *rule, uint64_t workers)
{
	const struct fal_traits is = fal_rule_traits(rule);
	return (struct fal_store_most){
		.versions = is.delay + 1,
		.beyond = is.ahead ? 1 : 0,
		.rounds = is.shared ? is.delay + 1
				    : (uint32_t)workers * (is.overlaps ? 2 : 1) + 1,
		.deltas = is.delta,
		.lines = lines(rule),
		.pushers = pushers(rule, &is, workers),
		.outer = rule->outer > 0
	};
}

/* Bytes of versions as they are sent, of so many bytes each, with those on their way. */
static uint64_t
published(const struct fal_rule *rule, uint64_t bytes, bool mixed)
{
	return ps_encoded_most(rule, mixed) * bytes;
}

/* The bytes that wait on a stream while so many bytes come or go, as measured. */
static uint64_t
stream(uint64_t bytes)
{
	enum { MOST = 2 << 20 };
	return bytes < MOST ? bytes : MOST;
}

/* The parameters of the first `places` of so many. */
static uint64_t
values_of(const struct fal_files *j, uint32_t places, uint32_t all)
{
	uint32_t before[FAL_SHARDS_MAX + 1], blocks = 0;
	struct fal_map map;
	fal_files_map(j, all, &map, before);
	for (uint32_t i = 0; i < before[places]; i++)
		blocks += map.of[i].count;
	const uint64_t values = (uint64_t)blocks * FAL_BLOCK;
	return values < j->model->params ? values : j->model->params;
}

uint64_t
ps_need(const struct ps_need_of *of, uint32_t far)
{
	const struct fal_files *j = of->job;
	const struct fal_job *job = &j->job;
	const uint32_t averages = job->optim.ema > 0;
	const uint32_t all =
		of->shards + far < FAL_SHARDS_MAX ? of->shards + far : FAL_SHARDS_MAX;
	const struct fal_shard_set_conf shard_set = fal_files_rack_conf(j, of->shards);
	struct fal_shard_set_conf part = fal_files_rack_conf(j, 1);
	struct fal_store_most at_most = most(of->rule, of->workers);
	const bool snapshots = (job->state_clocks > 0 || job->state_seconds > 0) &&
			       fal_rule_traits(of->rule).shared;
	/* Two files of the best model may be in memory: one is written, one waits. */
	const uint64_t best = job->state_best == FAL_JOB_BEST_YES ? 2 : 0;
	const uint64_t data = fal_files_data(j);
	/* The memory that is needed here wherever the shards are. */
	const uint64_t own = of->program + data +
			     (data < PS_CACHE_MAX ? data : PS_CACHE_MAX) +
			     (j->init != NULL ? vector(j) : 0);
	const uint64_t kept =
		own + best * fal_safetensors_bound(j->model, 0) +
		(snapshots ? fal_shard_set_image_bytes(&shard_set, &at_most) : 0);
	const uint64_t here = kept + fal_shard_set_bytes(&shard_set, &at_most) +
			      published(of->rule, vector(j), of->mixed);
	if (far == 0)
		return here;
	/* All are made here, and leave: beside each what it is made of, and its image. */
	const uint64_t state = (lines(of->rule) + 1) * fal_optim_slots(&job->optim);
	const uint64_t begin = own + (3 + state + averages) * vector(j);
	part.each.n = values_of(j, of->shards, all);
	at_most.beyond++; /* until all shards have made the next */
	/* The parameters of the others, in one piece and on their way there. */
	uint64_t away = kept + fal_shard_set_bytes(&part, &at_most) +
			published(of->rule, part.each.n * sizeof(float), of->mixed) +
			(2 + 2 * averages) * vector(j) + far * stream(vector(j));
	away = away > begin ? away : begin;
	return away < here ? away : here;
}

uint64_t
ps_need_part(const struct ps_need_part_of *of)
{
	struct fal_store_most at_most = most(of->rule, of->workers);
	at_most.beyond++; /* until all shards have made the next */
	if (at_most.versions + 1 < of->versions)
		at_most.versions = of->versions - 1;
	const uint64_t bytes = of->shard_set->each.n * sizeof(float);
	return of->program + fal_shard_set_bytes(of->shard_set, &at_most) +
	       fal_shard_set_image_bytes(of->shard_set, &at_most) +
	       published(of->rule, bytes, of->mixed) + 2 * stream(bytes); /* in and out */
}
