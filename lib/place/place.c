/* The rules. */
#include "place/place.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MXNET_BOUND = 1000000, MXNET_PRIME = 9973 }; /* floats; of its hash */
enum { BYTEPS_PART = 4096000 / 4 };                 /* floats */

const char *
fal_place_name(enum fal_place_rule rule)
{
	static const char *const name[FAL_PLACE_RULES] = { "blocks", "mxnet", "byteps",
							   "tensorflow" };
	return name[rule];
}

bool
fal_place_find(const char *name, enum fal_place_rule *out)
{
	for (int i = 0; i < FAL_PLACE_RULES; i++)
		if (strcmp(name, fal_place_name((enum fal_place_rule)i)) == 0) {
			*out = (enum fal_place_rule)i;
			return true;
		}
	return false;
}

bool
fal_place_by_tensor(enum fal_place_rule rule)
{
	return rule != FAL_PLACE_BLOCKS;
}

/* Runs come in the order of the flat vector: of each block what the largest so far has.
 */
struct laying {
	const struct fal_place_model *m;
	uint32_t *map;
	uint64_t block, most; /* the last that a run was in */
};

static void
lay(struct laying *l, uint64_t from, uint64_t count, uint32_t shard)
{
	const uint64_t size = l->m->block, end = from + count;
	for (uint64_t b = from / size; count > 0 && b * size < end; b++) {
		const uint64_t first = b * size > from ? b * size : from;
		const uint64_t last = (b + 1) * size < end ? (b + 1) * size : end;
		if (b != l->block)
			l->most = 0;
		l->block = b;
		if (last - first <= l->most)
			continue;
		l->most = last - first;
		l->map[b] = shard;
	}
}

static uint64_t
djb2(uint64_t key)
{
	char digits[24];
	uint64_t hash = 5381;
	snprintf(digits, sizeof(digits), "%" PRIu64, key);
	for (const char *c = digits; *c != '\0'; c++)
		hash = hash * 33 + (unsigned char)*c;
	return hash;
}

static void
mxnet(struct laying *l, uint32_t t, uint32_t shards)
{
	const struct fal_place_tensor *x = &l->m->tensor[t];
	const double each = (double)x->count / shards;
	if (x->count < MXNET_BOUND) {
		lay(l, x->at, x->count, (uint32_t)((uint64_t)t * MXNET_PRIME % shards));
		return;
	}
	for (uint32_t i = 0; i < shards; i++) {
		const uint64_t from = (uint64_t)round(each * i);
		lay(l, x->at + from, (uint64_t)round(each * (i + 1)) - from, i);
	}
}

static void
byteps(struct laying *l, uint32_t t, uint32_t shards)
{
	const struct fal_place_tensor *x = &l->m->tensor[t];
	uint64_t key = (uint64_t)t << 16;
	for (uint64_t from = 0; from < x->count; from += BYTEPS_PART, key++) {
		const uint64_t left = x->count - from;
		lay(l, x->at + from, left < BYTEPS_PART ? left : BYTEPS_PART,
		    (uint32_t)(djb2(key) % shards));
	}
}

void
fal_place(enum fal_place_rule rule, const struct fal_place_model *m, uint32_t shards,
	  uint32_t *map)
{
	struct laying l = { .m = m, .map = map, .block = UINT64_MAX };
	for (uint32_t i = 0; i < shards; i++)
		for (uint32_t b = fal_place_first(m->blocks, shards, i);
		     b < fal_place_first(m->blocks, shards, i + 1); b++)
			map[b] = i; /* also what no tensor is in */
	for (uint32_t t = 0; fal_place_by_tensor(rule) && t < m->tensors; t++)
		if (rule == FAL_PLACE_MXNET)
			mxnet(&l, t, shards);
		else if (rule == FAL_PLACE_BYTEPS)
			byteps(&l, t, shards);
		else
			lay(&l, m->tensor[t].at, m->tensor[t].count, t % shards);
}

void
fal_place_ranges(uint32_t *map, uint32_t blocks, uint32_t shards)
{
	uint32_t count[64] = { 0 };
	for (uint32_t b = 0; b < blocks; b++)
		count[map[b]]++;
	for (uint32_t i = 0, b = 0; i < shards; i++)
		for (uint32_t n = 0; n < count[i]; n++)
			map[b++] = i;
}

uint32_t
fal_place_dense(uint32_t *map, uint32_t blocks)
{
	uint32_t n = 0;
	for (uint32_t b = 0, was = 0; b < blocks; b++) {
		const bool same = b > 0 && map[b] == was;
		was = map[b];
		n += !same;
		map[b] = n - 1;
	}
	return n;
}
