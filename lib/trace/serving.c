/* The `shard` lines. */
#include "trace/serving.h"

#include <math.h>

int
fal_trace_shard_read(struct fal_trace_line *l, const struct fal_trace_job *job,
		     struct fal_trace_shard *out)
{
	struct fal_trace_shard is = { .took = (double)NAN };
	is.shard =
		(uint32_t)fal_trace_get_u64(l, l->o, FAL_F_SHARD, FAL_TRACE_SHARDS_MAX);
	if (l->err == 0 && is.shard-- == 0)
		return fal_trace_fail(l, FAL_EINVAL, "shard: 0");
	is.clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, job->clocks - 1);
	is.version = fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
	if (fal_trace_has(l->o, FAL_F_BY_NAME))
		is.name = fal_trace_get_str(l, l->o, FAL_F_BY_NAME);
	if (fal_trace_has(l->o, FAL_F_ADDRESS))
		is.address = fal_trace_get_str(l, l->o, FAL_F_ADDRESS);
	is.blocks = fal_trace_get_u64(l, l->o, FAL_F_BLOCKS, job->blocks);
	is.rx = fal_trace_get_u64(l, l->o, FAL_F_RX, FAL_TRACE_NUM_MAX);
	is.tx = fal_trace_get_u64(l, l->o, FAL_F_TX, FAL_TRACE_NUM_MAX);
	is.service = fal_trace_get_seconds(l, l->o, FAL_F_SERVICE);
	is.queue = fal_trace_get_seconds(l, l->o, FAL_F_QUEUE);
	if (fal_trace_has(l->o, FAL_F_TOOK))
		is.took = fal_trace_get_seconds(l, l->o, FAL_F_TOOK);
	is.blame = fal_trace_get_seconds(l, l->o, FAL_F_BLAME);
	if (l->err == 0)
		*out = is;
	return l->err;
}

/* How many blocks the map gives it. */
static uint64_t
placed(const struct fal_trace_place *p, uint32_t shard)
{
	uint64_t n = 0;
	for (uint32_t b = 0; b < p->blocks; b++)
		n += p->shard[b] == shard;
	return n;
}

/* Its place in its set, and that of the set. */
static void
judge_order(const struct fal_serving *s, const struct fal_trace_line *l,
	    const struct fal_trace_shard *is, struct fal_findings *f)
{
	const bool first = s->next == 0;
	if (is->shard != s->next)
		fal_finding_line(f, l, "shard: it is of %u, but %u is next",
				 is->shard + 1, s->next + 1);
	else if (first ? is->clock < s->over : is->clock + 1 != s->over)
		fal_finding_line(f, l, "shard: clock %llu behind that of clock %llu",
				 (unsigned long long)is->clock,
				 (unsigned long long)s->over - 1);
}

int
fal_serving_line(struct fal_serving *s, struct fal_trace_line *l,
		 const struct fal_trace_job *job, const struct fal_trace_place *place,
		 uint64_t version, struct fal_findings *f)
{
	struct fal_trace_shard is;
	if (fal_trace_shard_read(l, job, &is) < 0)
		return l->err;
	judge_order(s, l, &is, f);
	if (is.version > version)
		fal_finding_line(f, l, "shard: version is %llu, but %llu is the newest",
				 (unsigned long long)is.version,
				 (unsigned long long)version);
	if (place->map > 0 && is.blocks != placed(place, is.shard))
		fal_finding_line(f, l, "shard: blocks is %llu, but it has %llu",
				 (unsigned long long)is.blocks,
				 (unsigned long long)placed(place, is.shard));
	if (is.blame > l->t || is.took > l->t)
		fal_finding_line(f, l, "shard: workers waited longer than the job runs");
	s->over = is.clock + 1;
	s->blocks = s->next == 0 ? is.blocks : s->blocks + is.blocks;
	const bool last =
		place->map > 0 ? is.shard + 1 >= place->shards : s->blocks >= job->blocks;
	s->next = last ? 0 : is.shard + 1;
	if (last && s->blocks != job->blocks)
		fal_finding_line(f, l, "shard: all of them have %llu blocks, not %llu",
				 (unsigned long long)s->blocks,
				 (unsigned long long)job->blocks);
	return 0;
}
