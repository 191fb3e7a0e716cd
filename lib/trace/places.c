/* Where the blocks are. */
#include "trace/places.h"

#include "base/mem.h"
#include "place/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	const size_t n = fal_trace_get_len(l, l->o, FAL_F_RUNS);
	uint64_t next = 0;
	for (size_t i = 0; i < n && l->err == 0; i++) {
		uint64_t row[3];
		fal_trace_get_row(l, l->o, FAL_F_RUNS, i, 3, row);
		if (l->err != 0)
			return l->err;
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
	if (l->err == 0 && next != p->blocks)
		fal_trace_fail(l, FAL_EINVAL, "runs: not each block once, in order");
	return l->err;
}

int
fal_trace_place_read(struct fal_trace_line *l, const struct fal_trace_job *job,
		     struct fal_trace_place *p)
{
	struct fal_trace_place is = { .blocks = (uint32_t)job->blocks };
	const char *rule = fal_trace_get_str(l, l->o, FAL_F_RULE);
	is.map = fal_trace_get_u64(l, l->o, FAL_F_MAP, FAL_TRACE_NUM_MAX);
	is.shards =
		(uint32_t)fal_trace_get_u64(l, l->o, FAL_F_SHARDS, FAL_TRACE_SHARDS_MAX);
	is.places = is.shards;
	if (fal_trace_has(l->o, FAL_F_PLACES))
		is.places = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_PLACES,
							FAL_TRACE_SHARDS_MAX);
	if (l->err != 0)
		return l->err;
	if (job->blocks > FAL_TRACE_PLACED_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "more than %llu blocks",
				      (unsigned long long)FAL_TRACE_PLACED_MAX);
	if (strlen(rule) == 0 || strlen(rule) >= sizeof(is.rule))
		return fal_trace_fail(l, FAL_EFORMAT, "rule: not the name of one");
	snprintf(is.rule, sizeof(is.rule), "%s", rule);
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

/* Is it as even as it says? */
static void
judge_even(const struct fal_trace_place *p, struct fal_trace_line *l,
	   struct fal_findings *f)
{
	uint32_t b = 0, shard = 0;
	for (uint32_t i = 0; i < p->places; i++) {
		const uint32_t first = b,
			       end = fal_place_first(p->blocks, p->places, i + 1);
		for (; b < end; b++) {
			if (p->shard[b] == shard)
				continue;
			fal_finding_line(f, l,
					 "place: block %u is on shard %u; by the rule "
					 "blocks it is on %u",
					 b, p->shard[b] + 1, shard + 1);
			return;
		}
		shard += b > first;
	}
}

int
fal_places_line(struct fal_trace_place *p, struct fal_trace_line *l,
		const struct fal_trace_job *job, struct fal_findings *f)
{
	const uint64_t next = p->map + 1;
	bool moved;
	if (fal_trace_place_read(l, job, p) < 0)
		return l->err;
	/* Moves that never were have numbers, too. */
	moved = strcmp(p->rule, FAL_TRACE_MOVED) == 0;
	if (p->map != next && (!moved || p->map < next))
		fal_finding_line(f, l, "place: map %llu, not %llu",
				 (unsigned long long)p->map, (unsigned long long)next);
	if (strcmp(p->rule, FAL_TRACE_BLOCKS) == 0)
		judge_even(p, l, f);
	else if (!moved && strcmp(p->rule, FAL_TRACE_FILE) != 0)
		fal_finding_line(f, l, "place: no rule is called %s", p->rule);
	return 0;
}
