/* Block maps. */

#include "wire/block_map.h"
#include "base/err.h"

void
fal_map_even(struct fal_map *m, uint32_t blocks, uint32_t shards)
{
	*m = (struct fal_map){ .epoch = 1, .shards = shards };
	for (uint32_t i = 0; i < shards; i++) {
		const uint32_t first = fal_map_first(blocks, shards, i);
		m->of[i] =
			(struct fal_extent){ first, fal_map_first(blocks, shards, i + 1) -
							    first };
	}
}

uint64_t
fal_map_busy(const struct fal_map *m)
{
	uint64_t busy = 0;
	for (uint32_t i = 0; i < m->shards; i++)
		busy |= (uint64_t)(m->of[i].count > 0) << i;
	return busy;
}

uint32_t
fal_map_list(const struct fal_map *m, uint32_t out[static FAL_SHARDS_MAX])
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < m->shards; i++) {
		uint32_t at = n;
		if (m->of[i].count == 0)
			continue;
		for (; at > 0 && m->of[out[at - 1]].first > m->of[i].first; at--)
			out[at] = out[at - 1];
		out[at] = i;
		n++;
	}
	return n;
}

bool
fal_map_covers(const struct fal_map *m, uint32_t blocks)
{
	uint32_t order[FAL_SHARDS_MAX], next = 0;
	if (m->shards > FAL_SHARDS_MAX)
		return false;
	const uint32_t n = fal_map_list(m, order);
	for (uint32_t i = 0; i < n; i++) {
		const struct fal_extent *e = &m->of[order[i]];
		if (e->first != next || e->count > blocks - next)
			return false;
		next += e->count;
	}
	return next == blocks;
}

void
fal_map_put(struct fal_buf *out, const struct fal_map *m)
{
	for (uint32_t i = 0; i < m->shards; i++) {
		fal_put_u32(out, m->of[i].first);
		fal_put_u32(out, m->of[i].count);
	}
}

int
fal_map_get(const struct fal_tail *of, uint32_t epoch, uint32_t blocks,
	    struct fal_map *out)
{
	struct fal_rd r = fal_rd_init(of->p, of->n);
	*out = (struct fal_map){ .epoch = epoch, .shards = (uint32_t)(of->n / 8) };
	if (of->n / 8 > FAL_SHARDS_MAX || of->n % 8 != 0)
		return FAL_EFORMAT;
	for (uint32_t i = 0; i < out->shards; i++) {
		out->of[i].first = fal_get_u32(&r);
		out->of[i].count = fal_get_u32(&r);
	}
	return fal_map_covers(out, blocks) ? FAL_OK : FAL_EFORMAT;
}

int
fal_map_drain(struct fal_map *m, uint64_t leave)
{
	uint32_t order[FAL_SHARDS_MAX];
	const uint32_t n = fal_map_list(m, order);
	struct fal_extent *last = NULL; /* last shard so far that stays */
	uint32_t freed = 0;             /* blocks behind `last` */
	if ((fal_map_busy(m) & ~leave) == 0)
		return FAL_ENOENT;
	for (uint32_t i = 0; i < n; i++) {
		struct fal_extent *e = &m->of[order[i]];
		if ((leave >> order[i] & 1) != 0) {
			freed += e->count;
			*e = (struct fal_extent){ 0, 0 };
			continue;
		}
		const uint32_t before = last != NULL ? freed / 2 : 0;
		if (last != NULL)
			last->count += before;
		e->first -= freed - before;
		e->count += freed - before;
		freed = 0;
		last = e;
	}
	last->count += freed;
	m->epoch++;
	return FAL_OK;
}

int
fal_map_split_largest(struct fal_map *m, uint32_t shard)
{
	struct fal_extent *most = &m->of[0];
	for (uint32_t i = 1; i < m->shards; i++)
		most = m->of[i].count > most->count ? &m->of[i] : most;
	if (shard >= FAL_SHARDS_MAX || most->count < 2)
		return FAL_ENOENT;
	const uint32_t gets = most->count / 2;
	most->count -= gets;
	m->of[shard] = (struct fal_extent){ most->first + most->count, gets };
	m->shards = shard >= m->shards ? shard + 1 : m->shards;
	m->epoch++;
	return FAL_OK;
}
