/* Which shard has which blocks. */
#include "agent/priv.h"

#include "base/mem.h"

#include <string.h>

int
agent_route_to(struct fal_agent *a, uint32_t first, uint32_t blocks, uint32_t shard)
{
	const struct range is = { first, blocks, shard };
	const uint32_t end = first + blocks;
	size_t at = 0, kept = 0;
	for (size_t i = 0; i < a->route.n; i++) {
		const struct range *r = &a->route.v[i];
		if (memcmp(r, &is, sizeof(is)) == 0)
			return FAL_OK;
	}
	/* Whatever said to have some of them has none any more. */
	for (size_t i = 0; i < a->route.n; i++) {
		const struct range r = a->route.v[i];
		if (r.first < end && first < r.first + r.blocks)
			continue;
		at += r.first < first;
		a->route.v[kept++] = r;
	}
	a->route.n = kept;
	if (FAL_GROW(a->route.v, a->route.cap, kept + 1) < 0)
		return FAL_ENOMEM;
	memmove(a->route.v + at + 1, a->route.v + at, (kept - at) * sizeof(is));
	a->route.v[at] = is;
	a->route.n++;
	return FAL_OK;
}

uint32_t
agent_route_end(const struct fal_agent *a, uint32_t block)
{
	for (size_t i = 0; i < a->route.n; i++) {
		const struct range *r = &a->route.v[i];
		if (block < r->first)
			return r->first;
		if (block - r->first < r->blocks)
			return r->first + r->blocks;
	}
	return a->blocks;
}

uint32_t
agent_route(const struct fal_agent *a, uint32_t block)
{
	for (size_t i = 0; i < a->route.n; i++) {
		const struct range *r = &a->route.v[i];
		if (block >= r->first && block - r->first < r->blocks)
			return r->shard;
	}
	return 0;
}
