/* Which shard has which blocks. */
#include "agent/priv.h"

int
agent_on_blocks(struct fal_agent *a, const struct fal_msg *m)
{
	struct fal_map map;
	const bool other = m->blocks.epoch != a->conf.map_epoch;
	int err = fal_map_get(&m->blocks.of, m->blocks.epoch, a->blocks, &map);
	if (err < 0 || map.epoch < a->conf.map_epoch)
		return FAL_EFORMAT;
	a->map = map;
	a->conf.map_epoch = map.epoch;
	/* No round is open from one map to the next. */
	return other ? agent_push_over(a) : FAL_OK;
}

const struct fal_map *
fal_agent_map(const struct fal_agent *a)
{
	return a->map.shards > 0 ? &a->map : NULL;
}

uint32_t
agent_route(const struct fal_agent *a, uint32_t block)
{
	for (uint32_t i = 0; i < a->map.shards; i++)
		if (block - a->map.of[i].first < a->map.of[i].count)
			return i + 1;
	return 0;
}
