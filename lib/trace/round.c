/* The head of a ledger line. */
#include "trace/round.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* The string `key` as its place in `names`; the first if it is not there. */
static int
get_word(struct fal_trace_line *l, enum fal_field key, const char *const *names, int n)
{
	if (!fal_trace_has(l->o, key))
		return 0;
	const char *v = fal_trace_get_str(l, l->o, key);
	for (int i = 0; l->err == 0 && i < n; i++)
		if (strcmp(v, names[i]) == 0)
			return i;
	fal_trace_fail(l, FAL_EFORMAT, "%s: '%s'", fal_field_name(key), FAL_QUOTE(v));
	return 0;
}

/* The whole number `key`, if it is there; `*has` says whether. */
static uint64_t
get_if(struct fal_trace_line *l, const json_t *o, enum fal_field key, uint64_t max,
       bool *has)
{
	*has = fal_trace_has(o, key);
	return *has ? fal_trace_get_u64(l, o, key, max) : 0;
}

static void
read_stale(struct fal_trace_line *l, struct fal_trace_round *r)
{
	const json_t *o = fal_trace_at(l->o, FAL_F_STALE);
	bool has_rank;
	r->has_stale = o != NULL;
	if (o == NULL)
		return;
	if (!json_is_object(o)) {
		fal_trace_fail(l, FAL_EFORMAT, "stale: not an object");
		return;
	}
	r->clocks = fal_trace_get_u64(l, o, FAL_F_CLOCKS, FAL_TRACE_NUM_MAX);
	r->updates = fal_trace_get_u64(l, o, FAL_F_UPDATES, FAL_TRACE_NUM_MAX);
	r->rank = get_if(l, o, FAL_F_RANK, FAL_TRACE_NUM_MAX, &has_rank);
	if (l->err == 0 && has_rank && r->rank == 0)
		fal_trace_fail(l, FAL_EFORMAT, "stale.rank: 0");
}

int
fal_trace_round_read(struct fal_trace_line *l, struct fal_trace_round *out)
{
	static const char *const ends[] = { "applied", "dropped", "abandoned", "given" };
	static const char *const kinds[] = { "grad", "delta" };
	struct fal_trace_round r = {
		.clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX),
		.tasks = fal_trace_get_u64(l, l->o, FAL_F_TASKS, FAL_TRACE_NUM_MAX),
		.samples = fal_trace_get_u64(l, l->o, FAL_F_SAMPLES, FAL_TRACE_NUM_MAX),
		.version = fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX),
		.blocks = fal_trace_get_u64(l, l->o, FAL_F_BLOCKS, FAL_TRACE_NUM_MAX),
		.end = (enum fal_trace_end)get_word(l, FAL_F_END, ends, 4),
		.delta = get_word(l, FAL_F_KIND, kinds, 2) == 1,
		.weight = 1,
	};
	bool has;
	r.round = get_if(l, l->o, FAL_F_ROUND, FAL_TRACE_NUM_MAX, &has);
	if (!has)
		r.round = r.clock;
	r.first = get_if(l, l->o, FAL_F_FIRST, FAL_TRACE_NUM_MAX, &has);
	r.owner = (uint32_t)get_if(l, l->o, FAL_F_OWNER, UINT32_MAX, &r.has_owner);
	r.group = get_if(l, l->o, FAL_F_GROUP, UINT32_MAX, &r.has_group);
	r.local = get_if(l, l->o, FAL_F_LOCAL, FAL_TRACE_NUM_MAX, &has);
	r.slot = get_if(l, l->o, FAL_F_SLOT, FAL_TRACE_NUM_MAX, &r.has_slot);
	r.among = get_if(l, l->o, FAL_F_AMONG, UINT32_MAX, &has);
	r.steps = get_if(l, l->o, FAL_F_STEPS, UINT32_MAX, &has);
	if (fal_trace_has(l->o, FAL_F_DIVISOR))
		r.divisor = fal_trace_get_f64(l, l->o, FAL_F_DIVISOR);
	if (fal_trace_has(l->o, FAL_F_WEIGHT))
		r.weight = fal_trace_get_f64(l, l->o, FAL_F_WEIGHT);
	r.moved = fal_trace_get_len(l, l->o, FAL_F_MOVE) > 0;
	read_stale(l, &r);
	if (l->err == 0)
		*out = r;
	return l->err;
}

bool
fal_trace_round_whole(const struct fal_trace_round *r)
{
	return r->end == FAL_TRACE_APPLIED || r->end == FAL_TRACE_GIVEN;
}

/* The samples of the ranges of rows [.., first, count] of the array `key` of `o`. */
static uint64_t
samples_of(struct fal_trace_line *l, const struct fal_trace_job *job, uint64_t clock,
	   const json_t *o, enum fal_field key, size_t width)
{
	uint64_t sum = 0, v[3];
	size_t n = fal_trace_get_len(l, o, key);
	for (size_t i = 0; i < n && l->err == 0; i++) {
		fal_trace_get_row(l, o, key, i, width, v);
		sum += fal_trace_range_samples(job, clock, v[width - 2], v[width - 1]);
	}
	return sum;
}

uint64_t
fal_trace_round_twice(struct fal_trace_line *l, const struct fal_trace_job *job,
		      const struct fal_trace_round *r)
{
	uint64_t sum = samples_of(l, job, r->clock, l->o, FAL_F_LOST_LIST, 3);
	size_t n = fal_trace_get_len(l, l->o, FAL_F_CONTRIB);
	for (size_t i = 0; i < n && l->err == 0; i++) {
		const json_t *c = json_array_get(fal_trace_at(l->o, FAL_F_CONTRIB), i);
		if (fal_trace_has(c, FAL_F_FILLS) || r->end == FAL_TRACE_ABANDONED)
			sum += samples_of(l, job, r->clock, c, FAL_F_TASK_LIST, 2);
	}
	return sum;
}

uint64_t
fal_trace_round_counted(struct fal_trace_line *l, const struct fal_trace_job *job,
			const struct fal_trace_round *r, uint64_t *skipped)
{
	const uint64_t all = fal_trace_range_samples(job, r->clock, r->first, r->tasks);
	uint64_t v[2], samples;
	*skipped = 0;
	if (!fal_trace_has(l->o, FAL_F_SKIPPED))
		return all;
	samples = samples_of(l, job, r->clock, l->o, FAL_F_SKIPPED, 2);
	const size_t n = fal_trace_get_len(l, l->o, FAL_F_SKIPPED);
	for (size_t i = 0; i < n && l->err == 0; i++) {
		fal_trace_get_row(l, l->o, FAL_F_SKIPPED, i, 2, v);
		*skipped += v[1];
	}
	return all > samples ? all - samples : 0;
}

const char *
fal_trace_round_name(const struct fal_trace_round *r,
		     char out[static FAL_TRACE_ROUND_NAME])
{
	if (r->round == r->clock && !r->has_owner && !r->has_group)
		snprintf(out, FAL_TRACE_ROUND_NAME, "clock %llu",
			 (unsigned long long)r->clock);
	else
		snprintf(out, FAL_TRACE_ROUND_NAME, "round %llu of clock %llu",
			 (unsigned long long)r->round, (unsigned long long)r->clock);
	return out;
}
