/* MISSED: what a reader did not find on the shelf is wanted once, whichever shards have
 * its blocks by now, and nothing for any other word. */
#include "../../cmd/falcon-ps/wants.h"
#include "../drawn.h"
#include "base/err.h"
#include "base/rng.h"
#include "wire/bfp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { BLOCKS = 24, NOTED = 40, INCARNATION = 7 };

/* So many shards of even parts, of which those from `first` on are here. */
static struct fal_rack *
rack_of(uint32_t shards, uint32_t first)
{
	const struct fal_rack_conf conf = { .shards = shards,
					    .first = first,
					    .here = shards - first,
					    .each = { .n = (size_t)BLOCKS * FAL_BLOCK,
						      .tasks = 1 } };
	struct fal_rack *r = fal_rack_new(&conf, NULL);
	assert_non_null(r);
	return r;
}

/* How many shards that are here have some of the blocks. */
static size_t
overlap(const struct fal_rack *r, const struct ps_told *is)
{
	size_t n = 0;
	for (uint32_t i = 0; i < fal_rack_shards(r); i++) {
		uint32_t first, blocks;
		bool any = false;
		fal_rack_range(r, i, &first, &blocks);
		for (uint32_t b = is->first; b < is->first + is->blocks; b++)
			any |= b >= first && b < first + blocks;
		n += any && fal_rack_at(r, i) != NULL;
	}
	return n;
}

static struct fal_msg
missed(const struct ps_told *is)
{
	return (struct fal_msg){ .type = FAL_MSG_MISSED,
				 .incarnation = INCARNATION,
				 .missed = { .version = is->version,
					     .order = 3,
					     .first = is->first,
					     .blocks = is->blocks } };
}

static void
wanted_once(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(31), FAL_RNG_TEST, 0);
	(void)state;
	for (int round = 0; round < 40; round++) {
		const uint32_t shards = 1 + fal_rng_below(&rng, 6);
		struct fal_rack *rack = rack_of(shards, fal_rng_below(&rng, shards));
		struct ps_wants w = { .publisher = { .rack = rack,
						     .incarnation = INCARNATION } };
		struct ps_reader reader = { 0 };
		struct ps_told noted[NOTED];
		bool said[NOTED] = { false };
		reader.told = calloc(PS_TOLD, sizeof(*reader.told));
		reader.tolds = PS_TOLD;
		assert_non_null(reader.told);
		for (uint32_t i = 0; i < NOTED; i++) {
			struct ps_told *is = &noted[i];
			is->version = i;
			is->first = i % 4 * (BLOCKS / 4);
			is->blocks = 1 + fal_rng_below(&rng, BLOCKS - is->first);
			is->keep = fal_rng_below(&rng, 2) == 0;
			is->shelf = true;
			reader.told[fal_rng_below(&rng, 20) + 20 * i] = *is;
		}
		for (int turn = 0; turn < 100; turn++) {
			const uint32_t at = fal_rng_below(&rng, NOTED);
			const struct ps_told *is = &noted[at];
			struct fal_msg m = missed(is);
			const size_t was = w.n;
			const size_t more = said[at] ? 0 : overlap(rack, is);
			const bool other = fal_rng_below(&rng, 4) == 0;
			if (other) /* it was never there */
				m.missed.version += 1000;
			assert_int_equal(ps_wants_missed(&w, 9, &reader, &m), FAL_OK);
			assert_int_equal(w.n, was + (other ? 0 : more));
			for (size_t i = was; i < w.n; i++) {
				assert_int_equal(w.v[i].peer, 9);
				assert_true(w.v[i].missed);
				assert_int_equal(w.v[i].model.version, is->version);
				assert_int_equal(w.v[i].model.order, 3);
				assert_int_equal(w.v[i].model.keep, is->keep);
				assert_non_null(fal_rack_at(rack, w.v[i].shard));
			}
			said[at] |= !other;
		}
		ps_reader_free(&reader);
		ps_wants_free(&w);
		fal_rack_free(rack);
	}
}

/* Of another start of the coordinator, or from who never read there. */
static void
other_words(void **state)
{
	const struct ps_told is = { .version = 1, .blocks = 2 };
	struct ps_wants w = { .publisher = { .rack = rack_of(2, 0),
					     .incarnation = INCARNATION } };
	struct ps_reader reader = { 0 };
	struct fal_msg m = missed(&is);
	(void)state;
	assert_int_equal(ps_wants_missed(&w, 1, &reader, &m), FAL_OK);
	assert_int_equal(w.n, 0);
	m.incarnation++;
	assert_int_equal(ps_wants_missed(&w, 1, &reader, &m), FAL_ESTATE);
	fal_rack_free((struct fal_rack *)(uintptr_t)w.publisher.rack);
	ps_wants_free(&w);
}

/* Places go round; what is being made keeps its own. */
static void
places_of_what_is_made(void **state)
{
	struct ps_making making[] = {
		{ .version = 5 }, { .version = 6 }, { .version = 5 }, { .version = 7 }
	};
	struct ps_publisher p = { .making = making };
	(void)state;
	for (p.making_n = 0; p.making_n <= 4; p.making_n++)
		for (uint64_t version = 5; version < 10; version++)
			assert_int_equal(ps_publisher_places(&p, version),
					 version <= 7 || p.making_n < 4);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wanted_once),
		cmocka_unit_test(other_words),
		cmocka_unit_test(places_of_what_is_made),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
