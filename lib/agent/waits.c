/* What the worker waits for of each shard: from when the first one has begun with a
 * version, those that have not come to its end.  What is before that is nobody's. */
#include "agent/priv.h"

static uint64_t
bit_of(uint32_t shard)
{
	return (uint64_t)1 << (shard - 1);
}

void
agent_part_begins(struct fal_agent *a, struct snapshot *s, uint32_t shard, uint32_t first,
		  uint32_t blocks)
{
	uint32_t lack = blocks;
	if (shard > FAL_SHARDS_MAX || s->left == 0)
		return;
	for (uint32_t b = first; b < first + blocks && s->seen != NULL; b++)
		lack -= s->seen[b];
	if (s->began == 0) {
		s->began = a->since;
		s->owing = s->shards = fal_map_busy(&a->map);
	}
	s->head[shard - 1] = first;
	s->opened |= bit_of(shard);
	if (s->seen != NULL && s->seen[first])
		agent_part_begun(s, first, 1);
	s->lack[shard - 1] += lack;
	if (lack > 0)
		s->owing |= bit_of(shard);
}

bool
agent_part_begun(struct snapshot *s, uint32_t first, uint32_t blocks)
{
	const uint64_t was = s->begun;
	for (uint64_t left = s->opened; left != 0; left &= left - 1) {
		const uint32_t i = (uint32_t)__builtin_ctzll(left);
		if (s->head[i] - first < blocks)
			s->begun |= bit_of(i + 1);
	}
	s->opened &= ~s->begun;
	return s->begun != was;
}

/* All of it is here. */
static void
part_ends(struct fal_agent *a, struct snapshot *s, uint32_t shard)
{
	struct fal_waited *w = &a->waited[shard - 1];
	s->owing &= ~bit_of(shard);
	w->parts++;
	w->took += a->since - s->began;
}

void
agent_part_comes(struct fal_agent *a, struct snapshot *s, uint32_t block, uint32_t blocks)
{
	const uint32_t shard = agent_route(a, block);
	if (shard > 0 && shard <= FAL_SHARDS_MAX && s->lack[shard - 1] > 0) {
		uint32_t *lack = &s->lack[shard - 1];
		*lack -= blocks < *lack ? blocks : *lack;
		if (*lack == 0)
			part_ends(a, s, shard);
	}
	/* What was published twice. */
	for (uint32_t i = 1; i <= FAL_SHARDS_MAX && s->left == 0 && s->owing != 0; i++)
		if ((s->owing & bit_of(i)) != 0)
			part_ends(a, s, i);
}

void
agent_wait_for(struct fal_agent *a, uint64_t ns)
{
	uint64_t owing = 0;
	uint32_t n = 0;
	for (size_t i = 0; i < a->versions.n; i++)
		owing |= a->versions.v[i]->left > 0 ? a->versions.v[i]->owing : 0;
	for (uint64_t left = owing; left != 0; left &= left - 1)
		n++;
	for (uint32_t i = 1; i <= FAL_SHARDS_MAX && owing != 0; i++)
		if ((owing & bit_of(i)) != 0)
			a->waited[i - 1].waited += ns / n;
}

int
agent_put_waits(struct fal_agent *a, struct fal_buf *out)
{
	for (uint32_t i = 0; i < FAL_SHARDS_MAX; i++) {
		fal_waited_put(out, i, &a->waited[i]);
		a->waited[i] = (struct fal_waited){ 0 };
	}
	return out->err;
}
