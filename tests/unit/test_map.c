/* Block maps: evenly, drained, entered; as bytes. */
#include "../drawn.h"
#include "base/err.h"
#include "base/rng.h"
#include "wire/block_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct fal_rng rng;

static uint32_t
some(uint32_t least, uint32_t most)
{
	return least + fal_rng_below(&rng, most - least + 1);
}

/* A random map of that many blocks, after some moves. */
static struct fal_map
draw(uint32_t *blocks)
{
	struct fal_map map;
	const uint32_t shards = some(1, FAL_SHARDS_MAX);
	*blocks = some(shards, 4 * FAL_SHARDS_MAX);
	fal_map_even(&map, *blocks, shards);
	for (uint32_t n = some(0, 9); n > 0; n--) {
		if (some(0, 1) == 0)
			(void)fal_map_drain(&map, UINT64_C(1) << some(0, shards - 1));
		else if (map.of[n].count == 0)
			(void)fal_map_split_largest(&map, n);
	}
	return map;
}

static void
is_a_map(const struct fal_map *map, uint32_t blocks)
{
	uint32_t order[FAL_SHARDS_MAX], sum = 0;
	assert_true(fal_map_covers(map, blocks));
	assert_false(fal_map_covers(map, blocks + 1));
	const uint32_t n = fal_map_list(map, order);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(map->of[order[i]].first, sum);
		sum += map->of[order[i]].count;
	}
	assert_int_equal(sum, blocks);
	assert_int_equal(__builtin_popcountll(fal_map_busy(map)), n);
}

static void
moves(void **state)
{
	(void)state;
	for (int run = 0; run < 2000; run++) {
		uint32_t blocks;
		struct fal_map map = draw(&blocks);
		is_a_map(&map, blocks);
		const struct fal_map was = map;
		const uint64_t busy = fal_map_busy(&was),
			       leave = fal_rng_u64(&rng) | fal_rng_u64(&rng);
		const int err = fal_map_drain(&map, leave);
		assert_int_equal(err, (busy & ~leave) != 0 ? FAL_OK : FAL_ENOENT);
		assert_int_equal(map.epoch, was.epoch + (err == FAL_OK));
		is_a_map(&map, blocks);
		if (err < 0)
			continue;
		assert_int_equal(fal_map_busy(&map), busy & ~leave);
		/* A shard that stays keeps all its blocks. */
		for (uint32_t i = 0; i < was.shards; i++) {
			const struct fal_extent *a = &was.of[i], *b = &map.of[i];
			if ((leave >> i & 1) == 0 && a->count > 0)
				assert_true(b->first <= a->first &&
					    b->first + b->count >= a->first + a->count);
		}
	}
}

static void
entering(void **state)
{
	(void)state;
	for (int run = 0; run < 2000; run++) {
		uint32_t blocks, most = 0, one = some(0, FAL_SHARDS_MAX - 1);
		struct fal_map map = draw(&blocks);
		const struct fal_map was = map;
		if (map.of[one].count > 0)
			continue;
		for (uint32_t i = 0; i < was.shards; i++)
			most = was.of[i].count > most ? was.of[i].count : most;
		const int err = fal_map_split_largest(&map, one);
		assert_int_equal(err, most > 1 ? FAL_OK : FAL_ENOENT);
		is_a_map(&map, blocks);
		if (err < 0)
			continue;
		assert_int_equal(map.of[one].count, most / 2);
		assert_int_equal(map.epoch, was.epoch + 1);
		/* When the shard that entered leaves, the map is as before. */
		if (map.of[one].first > 0) {
			assert_int_equal(fal_map_drain(&map, UINT64_C(1) << one), FAL_OK);
			is_a_map(&map, blocks);
		}
	}
}

static void
as_bytes(void **state)
{
	(void)state;
	for (int run = 0; run < 500; run++) {
		uint32_t blocks;
		const struct fal_map map = draw(&blocks);
		struct fal_buf out = { 0 };
		struct fal_map got;
		fal_map_put(&out, &map);
		struct fal_tail tail = { out.p, out.n };
		assert_int_equal(fal_map_get(&tail, map.epoch, blocks, &got), FAL_OK);
		assert_memory_equal(&got, &map, sizeof(map));
		assert_int_equal(fal_map_get(&tail, 1, blocks + 1, &got), FAL_EFORMAT);
		out.p[fal_rng_below(&rng, (uint32_t)out.n)] ^= 0x80; /* some block */
		const int err = fal_map_get(&tail, map.epoch, blocks, &got);
		assert_true(err == FAL_EFORMAT || fal_map_covers(&got, blocks));
		tail.n -= 3;
		assert_int_equal(fal_map_get(&tail, 1, blocks, &got), FAL_EFORMAT);
		fal_buf_free(&out);
	}
}

int
main(void)
{
	rng = fal_rng_init(drawn_seed(1), FAL_RNG_TEST, 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moves),
		cmocka_unit_test(entering),
		cmocka_unit_test(as_bytes),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
