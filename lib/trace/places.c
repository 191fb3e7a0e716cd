/* Where the blocks are. */
#include "trace/places.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
fal_trace_place_free(struct fal_trace_place *p)
{
	free(p->shard);
	free(p->tensor);
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

/* [first float, count]: in order, and within the blocks. */
static int
read_tensors(struct fal_trace_line *l, struct fal_trace_place *p)
{
	uint64_t next = 0, floats = FAL_TRACE_BLOCK * (uint64_t)p->blocks;
	for (uint32_t i = 0; i < p->tensors && l->err == 0; i++) {
		uint64_t row[2];
		fal_trace_get_row(l, l->o, FAL_F_TENSORS, i, 2, row);
		if (l->err == 0 &&
		    (row[0] < next || row[0] > floats || row[1] > floats - row[0]))
			fal_trace_fail(l, FAL_EINVAL,
				       "tensors: number %u is not behind the one before, "
				       "or beyond the blocks",
				       i);
		p->tensor[i] = (struct fal_place_tensor){ row[0], row[1] };
		next = row[0] + row[1];
	}
	return l->err;
}

int
fal_trace_place_read(struct fal_trace_line *l, const struct fal_trace_job *job,
		     struct fal_trace_place *p)
{
	struct fal_trace_place is = { .blocks = (uint32_t)job->blocks };
	const char *rule = fal_trace_get_str(l, l->o, FAL_F_RULE);
	const size_t tensors = fal_trace_get_len(l, l->o, FAL_F_TENSORS);
	is.map = fal_trace_get_u64(l, l->o, FAL_F_MAP, FAL_TRACE_NUM_MAX);
	is.shards =
		(uint32_t)fal_trace_get_u64(l, l->o, FAL_F_SHARDS, FAL_TRACE_SHARDS_MAX);
	is.places = is.shards;
	if (fal_trace_has(l->o, FAL_F_PLACES))
		is.places = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_PLACES,
							FAL_TRACE_SHARDS_MAX);
	if (l->err != 0)
		return l->err;
	if (job->blocks > FAL_TRACE_PLACED_MAX || tensors > FAL_TRACE_TENSORS_MAX)
		return fal_trace_fail(l, FAL_ELIMIT,
				      "more than %llu blocks or %llu tensors",
				      (unsigned long long)FAL_TRACE_PLACED_MAX,
				      (unsigned long long)FAL_TRACE_TENSORS_MAX);
	if (strlen(rule) == 0 || strlen(rule) >= sizeof(is.rule))
		return fal_trace_fail(l, FAL_EFORMAT, "rule: not the name of one");
	snprintf(is.rule, sizeof(is.rule), "%s", rule);
	is.tensors = (uint32_t)tensors;
	is.shard = fal_calloc(is.blocks, sizeof(*is.shard));
	is.tensor = fal_calloc(is.tensors, sizeof(*is.tensor));
	int err = is.shard != NULL && is.tensor != NULL
			  ? FAL_OK
			  : fal_trace_fail(l, FAL_ENOMEM, "out of memory");
	if (err == FAL_OK)
		err = read_runs(l, &is);
	if (err == FAL_OK)
		err = read_tensors(l, &is);
	if (err < 0) {
		fal_trace_place_free(&is);
		return err;
	}
	fal_trace_place_free(p);
	*p = is;
	return FAL_OK;
}

/* It is the next one while the job runs, made by no static rule. */
static bool
is_moved(const struct fal_trace_place *p)
{
	return strcmp(p->rule, FAL_TRACE_MOVED) == 0;
}

/* Is it what its rule makes?  0 or FAL_ENOMEM. */
static int
judge_rule(const struct fal_trace_place *p, struct fal_trace_line *l,
	   struct fal_findings *f)
{
	const struct fal_place_model m = {
		.blocks = p->blocks,
		.block = FAL_TRACE_BLOCK,
		.tensor = p->tensor,
		.tensors = p->tensors,
	};
	enum fal_place_rule rule;
	uint32_t b = 0;
	if (is_moved(p))
		return 0;
	if (!fal_place_find(p->rule, &rule)) {
		fal_finding_line(f, l, "place: no rule is called %s", p->rule);
		return 0;
	}
	uint32_t *want = fal_calloc(p->blocks, sizeof(*want));
	if (want == NULL)
		return FAL_ENOMEM;
	if (p->places == 0) {
		free(want);
		return fal_trace_fail(l, FAL_EINVAL, "places: 0");
	}
	fal_place(rule, &m, p->places, want);
	fal_place_ranges(want, p->blocks, p->places);
	fal_place_dense(want, p->blocks);
	while (b < p->blocks && want[b] == p->shard[b])
		b++;
	if (b < p->blocks)
		fal_finding_line(
			f, l,
			"place: block %u is on shard %u; by the rule %s it is on %u", b,
			p->shard[b] + 1, p->rule, want[b] + 1);
	free(want);
	return 0;
}

int
fal_places_line(struct fal_trace_place *p, struct fal_trace_line *l,
		const struct fal_trace_job *job, struct fal_findings *f)
{
	const uint64_t next = p->map + 1;
	if (fal_trace_place_read(l, job, p) < 0)
		return l->err;
	/* Moves that never were have numbers, too. */
	if (p->map != next && (!is_moved(p) || p->map < next))
		fal_finding_line(f, l, "place: map %llu, not %llu",
				 (unsigned long long)p->map, (unsigned long long)next);
	return judge_rule(p, l, f);
}
