/* A version that is whole stays what it is while the next one is made block by block, and
 * what is made of that is what it then has. */
#include "cluster_priv.h"

#include "wire/bfp.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
odd(struct cluster *c, uint32_t shard, const char *what)
{
	if (c->failure != NULL)
		return;
	fprintf(stderr, "sim: shard %u, version %llu: %s\n", shard,
		(unsigned long long)c->made[shard].version, what);
	c->failure = what;
}

/* Is block b the same in both? */
static bool
same_block(const struct fal_shard_part *part, uint32_t b, const float *x, const float *y)
{
	const size_t at = (size_t)b * FAL_BLOCK;
	return memcmp(x + at, y + at, fal_block_len(part->values, b) * sizeof(float)) ==
	       0;
}

/* Are those blocks that were made what the version has? */
static void
compare(struct cluster *c, uint32_t i, const struct fal_shard_part *part)
{
	const struct made *m = &c->made[i];
	for (uint32_t b = 0; b < part->count && m->n > 0; b++)
		if (m->made[b] && !same_block(part, b, m->next, part->params))
			odd(c, i, "a block that was made is another one");
}

/* The newest version of a shard is this one from now on. */
static void
note_version(struct cluster *c, uint32_t i, const struct fal_shard_part *part,
	     uint64_t version)
{
	struct made *m = &c->made[i];
	m->incarnation = c->incarnation;
	m->first = part->first;
	m->count = part->count;
	m->version = version;
	m->n = 0;
	m->params = fal_realloc(m->params, part->values, sizeof(float));
	m->next = fal_realloc(m->next, part->values, sizeof(float));
	m->made = fal_realloc(m->made, part->count, 1);
	assert(m->params != NULL && m->next != NULL && m->made != NULL);
	memcpy(m->params, part->params, part->values * sizeof(float));
	memset(m->made, 0, part->count);
}

/* The version after the newest is made so far: those blocks that are so since the last
 * time are noted, and the others are as they were. */
static void
note_made(struct cluster *c, uint32_t i, const struct fal_shard_part *next,
	  const uint8_t *made)
{
	struct made *m = &c->made[i];
	uint32_t n = 0;
	for (uint32_t b = 0; b < next->count; b++) {
		n += made[b];
		if (m->made[b] && !made[b])
			odd(c, i, "a block that was made is not any more");
	}
	if (n == m->n)
		return;
	compare(c, i, next);
	for (uint32_t b = 0; b < next->count; b++)
		if (made[b] && !m->made[b])
			memcpy(m->next + (size_t)b * FAL_BLOCK,
			       next->params + (size_t)b * FAL_BLOCK,
			       fal_block_len(next->values, b) * sizeof(float));
	memcpy(m->made, made, next->count);
	m->n = n;
	c->seen[SEEN_HALF_MADE] += n < next->count;
}

static void
watch(struct cluster *c, uint32_t i)
{
	struct made *m = &c->made[i];
	const struct fal_shard *shard = fal_shard_set_shard(c->shards.shard_set, i);
	struct fal_shard_part part, next;
	struct fal_shard_making is;
	if (shard == NULL) {
		m->count = m->n = 0;
		return;
	}
	const uint64_t version = fal_shard_version(shard);
	const bool there = fal_shard_set_part(c->shards.shard_set, i, version, &part);
	assert(there);
	const bool same = m->incarnation == c->incarnation && m->first == part.first &&
			  m->count == part.count;
	if (same && m->n > 0 && version == m->version + 1)
		compare(c, i, &part);
	if (!same || version != m->version)
		note_version(c, i, &part, version);
	const bool makes =
		fal_shard_set_making(c->shards.shard_set, i, version + 1, &next, &is);
	if (!makes && m->n > 0)
		odd(c, i, "what was made of the next version is lost");
	if (!makes)
		return;
	note_made(c, i, &next, is.made);
	if (memcmp(m->params, part.params, part.values * sizeof(float)) != 0)
		odd(c, i, "a version has changed while the next one is made");
}

void
made_watch(struct cluster *c)
{
	for (uint32_t i = 0; i < fal_shard_set_count(c->shards.shard_set); i++)
		watch(c, i);
}

bool
made_half(const struct cluster *c)
{
	for (uint32_t i = 0; i < MAX_SHARDS; i++)
		if (c->made[i].n > 0 && c->made[i].n < c->made[i].count)
			return true;
	return false;
}

void
made_order(struct cluster *c, const struct fal_shard_order *o)
{
	if (!made_half(c))
		return;
	c->seen[SEEN_HALF_FENCE] += o->kind == FAL_ORDER_FENCE;
}

void
made_part(struct cluster *c, const struct fal_shard_part *part, uint64_t version)
{
	const struct made *m = &c->made[part->shard];
	c->seen[SEEN_HALF_READ] += m->n > 0 && m->n < m->count && version <= m->version;
}

void
made_end(struct cluster *c)
{
	for (uint32_t i = 0; i < MAX_SHARDS; i++) {
		free(c->made[i].params);
		free(c->made[i].next);
		free(c->made[i].made);
	}
}
