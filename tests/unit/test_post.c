/* Orders, says and images as messages: each is read back as it was written, in any number
 * of pieces, and nothing else is accepted. */
#include "../drawn.h"
#include "base/err.h"
#include "base/mem.h"
#include "crypto/hash.h"
#include "server/shard_codec.h"
#include "server/shard_set.h"
#include "wire/bfp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { BLOCKS_MAX = 150000, ROUNDS = 400 };

static struct fal_rng rng;
static struct fal_shard_codec post;
static struct fal_msg whole;
static struct fal_buf last; /* the message that `whole` borrows from */
static int done;

static int
on_piece(void *arg, const struct fal_buf *msg)
{
	const size_t *most = arg;
	assert_true(msg->n <= FAL_MSG_MAX);
	fal_buf_clear(&last);
	fal_put_bytes(&last, msg->p, msg->n);
	assert_int_equal(fal_msg_get(last.p, last.n, &whole), FAL_OK);
	assert_int_equal(done, 0);
	done = fal_shard_codec_add(&post, &whole, *most);
	return done < 0 ? done : FAL_OK;
}

static uint64_t
any(void)
{
	return (uint64_t)fal_rng_u32(&rng) << 32 | fal_rng_u32(&rng);
}

static uint32_t
some(uint32_t most)
{
	return fal_rng_u32(&rng) % (most + 1);
}

static void *
bytes(size_t n)
{
	uint8_t *p = fal_calloc(n + 1, 1);
	assert_non_null(p);
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)fal_rng_u32(&rng);
	return p;
}

static void
orders_come_back(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		const uint32_t blocks = 1 + some(i % 40 == 0 ? BLOCKS_MAX : 40);
		const struct fal_shard_order o = {
			.kind = (enum fal_order_kind)some(FAL_ORDER_SCALE),
			.round = any(),
			.version = any(),
			.facts = { any(), fal_rng_u32(&rng), (enum fal_kind)(1 + some(1)),
				   some(1) != 0 },
			.id = { fal_rng_u32(&rng), fal_rng_u32(&rng) },
			.fills = { fal_rng_u32(&rng), fal_rng_u32(&rng) },
			.end = (enum fal_end)some(FAL_END_DROP),
			.weight = (double)any(),
			.divisor = (double)any(),
			.squares = (double)any(),
			.momentum = (double)any(),
			.part = { (double)any(), (double)any() },
			.clipped = some(1) != 0,
			.ahead = some(1) != 0,
			.lr = fal_rng_unit(&rng),
			.slot = any(),
			.below = any(),
			.branch = fal_rng_u32(&rng),
			.versions = fal_rng_u32(&rng),
			.mark = some(1) != 0,
			.hash = some(1) != 0
		};
		struct fal_shard_order got;
		struct fal_map map;
		fal_buf_clear(&last);
		assert_int_equal(fal_shard_codec_order(7, &o, &last), FAL_OK);
		assert_int_equal(fal_msg_get(last.p, last.n, &whole), FAL_OK);
		assert_int_equal(fal_shard_codec_order_get(&whole, blocks, &map, &got),
				 FAL_OK);
		assert_int_equal(got.kind, o.kind);
		assert_true(got.round == o.round && got.version == o.version);
		assert_int_equal(got.end, o.end);
		assert_true(got.facts.version == o.facts.version &&
			    got.facts.tasks == o.facts.tasks &&
			    got.facts.kind == o.facts.kind &&
			    got.facts.mixed == o.facts.mixed);
		assert_true(fal_contrib_id_equal(got.id, o.id) &&
			    fal_contrib_id_equal(got.fills, o.fills));
		assert_memory_equal(&got.weight, &o.weight, sizeof(o.weight));
		assert_memory_equal(&got.divisor, &o.divisor, sizeof(o.divisor));
		assert_memory_equal(&got.squares, &o.squares, sizeof(o.squares));
		assert_memory_equal(&got.momentum, &o.momentum, sizeof(o.momentum));
		assert_memory_equal(&got.part, &o.part, sizeof(o.part));
		assert_memory_equal(&got.lr, &o.lr, sizeof(o.lr));
		assert_true(got.clipped == o.clipped && got.ahead == o.ahead &&
			    got.mark == o.mark && got.hash == o.hash);
		assert_true(got.slot == o.slot && got.below == o.below &&
			    got.branch == o.branch && got.versions == o.versions);
	}
}

static void
reports_come_back(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		const uint32_t blocks = 1 + some(i % 40 == 0 ? 20000 : 40);
		const uint32_t first = some(1000);
		size_t most = SIZE_MAX / 4;
		char odd[FAL_MSG_WHY];
		struct fal_shard_report s = {
			.kind = (enum fal_report_kind)some(FAL_REPORT_STEPPED),
			.shard = fal_rng_u32(&rng),
			.round = any(),
			.version = any(),
			.id = { fal_rng_u32(&rng), fal_rng_u32(&rng) },
			.blocks = blocks,
			.beyond = some(blocks),
			.first = first,
			.most = (int8_t)fal_rng_u32(&rng),
			.whole = some(1) != 0,
			.rank = fal_rng_u32(&rng),
			.added = any(),
			.err = -(int)some(14)
		};
		const bool hashed = s.kind == FAL_REPORT_STEPPED && some(1) != 0;
		if (hashed)
			s.leaves = bytes((size_t)blocks * FAL_HASH_BYTES);
		if (hashed)
			s.exps = bytes(blocks);
		if (s.kind == FAL_REPORT_SQUARES)
			s.squares = bytes(blocks * sizeof(double));
		if (s.kind == FAL_REPORT_ENDED) {
			s.broughts = some(i % 40 == 0 ? 9000 : 5);
			s.brought = bytes(s.broughts * sizeof(*s.brought));
		}
		if (s.kind == FAL_REPORT_REFUSED || some(4) == 0)
			s.odd = "what is wrong";
		struct fal_shard_report got;
		done = 0;
		assert_int_equal(fal_shard_codec_report(7, &s, on_piece, &most), FAL_OK);
		assert_int_equal(done, 1);
		assert_int_equal(fal_shard_codec_report_get(&whole, first, blocks, odd,
							    &got),
				 FAL_OK);
		assert_int_equal(got.kind, s.kind);
		assert_int_equal(got.shard, s.shard);
		assert_true(got.round == s.round && got.version == s.version &&
			    fal_contrib_id_equal(got.id, s.id));
		assert_true(got.blocks == s.blocks && got.beyond == s.beyond &&
			    got.first == s.first);
		assert_true(got.most == s.most && got.whole == s.whole);
		assert_true(got.rank == s.rank && got.added == s.added &&
			    got.err == s.err);
		assert_int_equal(got.broughts, s.broughts);
		for (uint32_t k = 0; k < s.broughts; k++)
			assert_true(fal_contrib_id_equal(got.brought[k].id,
							 s.brought[k].id) &&
				    got.brought[k].blocks == s.brought[k].blocks &&
				    got.brought[k].sum == s.brought[k].sum);
		if (s.leaves != NULL)
			assert_memory_equal(got.leaves, s.leaves,
					    (size_t)blocks * FAL_HASH_BYTES);
		if (s.exps != NULL)
			assert_memory_equal(got.exps, s.exps, blocks);
		if (s.squares != NULL)
			assert_memory_equal(got.squares, s.squares,
					    blocks * sizeof(double));
		assert_int_equal(got.odd != NULL, s.odd != NULL);
		if (s.odd != NULL)
			assert_string_equal(got.odd, s.odd);
		fal_shard_report_free(&got);

		/* Reports of other blocks, cut short, or with a byte more, are refused.
		 */
		if (s.leaves != NULL || s.squares != NULL)
			assert_int_equal(fal_shard_codec_report_get(&whole, first + 1,
								    blocks, odd, &got),
					 FAL_EFORMAT);
		if (whole.report.rest.n > 0) {
			whole.report.rest.n--;
			assert_int_equal(fal_shard_codec_report_get(&whole, first, blocks,
								    odd, &got),
					 FAL_EFORMAT);
			whole.report.rest.n++;
		}
		fal_shard_report_free(&s);
	}
}

static void
pieces_have_a_limit(void **state)
{
	(void)state;
	struct fal_shard_report s = { .kind = FAL_REPORT_SQUARES,
				      .blocks = BLOCKS_MAX,
				      .squares = bytes(BLOCKS_MAX * sizeof(double)) };
	size_t most = FAL_MSG_MAX;
	done = 0;
	assert_int_equal(fal_shard_codec_report(7, &s, on_piece, &most), FAL_ELIMIT);
	fal_shard_codec_free(&post);
	/* An endless series of empty pieces is refused. */
	struct fal_msg m = { .type = FAL_MSG_REPORT, .report = { .more = 1 } };
	assert_int_equal(fal_shard_codec_add(&post, &m, most), FAL_EFORMAT);
	fal_shard_report_free(&s);
}

/* A peer's count without memory for it ends this peer's session only. */
static void
more_than_there_is_room_for(void **state)
{
	(void)state;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	enum { BROUGHTS = 1 << 20 }; /* of 20 bytes each */
	struct fal_shard_report got;
	char odd[FAL_MSG_WHY];
	struct rlimit was, none;
	struct fal_msg m = { .type = FAL_MSG_REPORT,
			     .report = { .kind = FAL_REPORT_ENDED,
					 .broughts = BROUGHTS } };
	uint8_t *rest = fal_xcalloc(BROUGHTS, 20);
	m.report.rest = (struct fal_tail){ rest, (size_t)BROUGHTS * 20 };
	getrlimit(RLIMIT_AS, &was);
	none = was;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
	const int err = fal_shard_codec_report_get(&m, 0, 1, odd, &got);
	setrlimit(RLIMIT_AS, &was);
	assert_int_equal(err, FAL_ENOMEM);
	free(rest);
#endif
}

/* A shard that moves to another process as an image, in BYTES, is the same there. */
static void
images_come_back(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 20; i++) {
		const size_t n = 1 + some(9 * FAL_BLOCK);
		struct fal_shard_set_conf conf = {
			.shards = 1 + some(4),
			.each = { .n = n,
				  .tasks = 4,
				  .optim = { .kind = FAL_SGD, .momentum = 0.5f } },
		};
		float *init = fal_calloc(n, sizeof(*init));
		assert_non_null(init);
		for (size_t k = 0; k < n; k++)
			init[k] = fal_rng_unit(&rng);
		struct fal_shard_set *from = fal_shard_set_new(&conf, init);
		assert_non_null(from);
		const uint32_t shards = fal_shard_set_count(from),
			       which = some(shards - 1);
		conf.first = which;
		conf.here = 1;
		struct fal_map map, none = { .shards = shards };
		fal_map_even(&map, fal_blocks(n), shards);
		conf.map = &none;
		struct fal_shard_set *to = fal_shard_set_new(&conf, NULL);
		assert_non_null(to);
		struct fal_shard_set_piece piece;
		struct fal_image got;
		struct fal_shard_codec_at at = { 0 }, back = { 0 };
		struct fal_buf out = { 0 };
		struct fal_msg m;
		assert_int_equal(fal_shard_set_give(from, which, &piece), FAL_OK);
		assert_int_equal(piece.first, map.of[which].first);
		assert_int_equal(piece.count, map.of[which].count);
		assert_int_equal(fal_shard_codec_image(7,
						       &(struct fal_shard_codec_of){
							       .what = FAL_FETCH_PIECE },
						       &piece.image, &out),
				 0);
		assert_int_equal(fal_msg_get(out.p, out.n, &m), FAL_OK);
		assert_int_equal(fal_shard_codec_image_get(&m, 16, &got), FAL_ELIMIT);
		assert_int_equal(fal_shard_codec_image_get(&m, SIZE_MAX / 4, &got),
				 FAL_OK);
		int end = 0;
		fal_buf_clear(&out);
		while (fal_shard_codec_bytes(7, 0, &piece.image, &at, &out)) {
			assert_int_equal(end, 0);
			assert_int_equal(fal_msg_get(out.p, out.n, &m), FAL_OK);
			end = fal_shard_codec_bytes_get(&m.bytes.bytes, &got, &back);
			assert_true(end >= 0);
			fal_buf_clear(&out);
		}
		assert_int_equal(end, 1);
		assert_int_equal(fal_shard_codec_bytes_get(&(struct fal_tail){ out.p, 1 },
							   &got, &back),
				 FAL_EFORMAT);
		const struct fal_shard_order begin = { .kind = FAL_ORDER_MIGRATE_BEGIN,
						       .map = &map },
					     commit = { .kind = FAL_ORDER_COMMIT };
		const struct fal_shard_set_piece came = { map.epoch, piece.first,
							  piece.count, got };
		struct fal_shard_result r = { 0 };
		struct fal_shard_set_piece lie =
			came; /* more than the image has values of */
		lie.image.is.slots = FAL_IMAGE_OTHERS;
		assert_int_equal(fal_shard_set_order(to, &begin, &r), FAL_OK);
		assert_int_equal(fal_shard_set_graft(to, which, &lie, &r), FAL_EFORMAT);
		assert_int_equal(r.n, 0);
		assert_int_equal(fal_shard_set_graft(to, which, &came, &r), FAL_OK);
		assert_int_equal(r.n, 1);
		assert_int_equal(r.v->kind, FAL_REPORT_MIGRATED);
		assert_int_equal(r.v->shard, which);
		assert_int_equal(fal_shard_set_order(to, &commit, NULL), FAL_OK);
		fal_shard_result_free(&r);
		struct fal_shard_part part;
		assert_false(fal_shard_set_part(from, which, 0, &part));
		assert_true(fal_shard_set_part(to, which, 0, &part));
		assert_memory_equal(part.params, init + (size_t)part.first * FAL_BLOCK,
				    part.values * sizeof(float));
		fal_image_free(&piece.image);
		fal_image_free(&got);
		fal_buf_free(&out);
		fal_shard_set_free(from);
		fal_shard_set_free(to);
		free(init);
	}
}

/* A shard is restored with the numbers of the other shards, and a piece with other
 * numbers is refused. */
static void
pieces_have_the_numbers_of_all(void **state)
{
	(void)state;
	struct fal_shard_set_conf conf = { .shards = 2,
					   .each = { .n = 2 * FAL_BLOCK, .tasks = 4 } };
	const struct fal_map swapped = { .epoch = 1,
					 .shards = 2,
					 .of = { { 1, 1 }, { 0, 1 } } };
	const struct fal_shard_order begin = { .kind = FAL_ORDER_MIGRATE_BEGIN,
					       .map = &swapped };
	struct fal_shard_set *all = fal_shard_set_new(&conf, NULL);
	conf.here = 1;
	struct fal_shard_set *first = fal_shard_set_new(&conf, NULL);
	assert_non_null(all);
	assert_non_null(first);
	struct fal_shard_result r = { 0 };
	assert_int_equal(fal_shard_set_order(all, &begin, &r), FAL_OK);
	assert_int_equal(r.n, 2); /* both have their pieces */
	fal_shard_result_free(&r);
	assert_int_equal(fal_shard_set_order(first, &begin, &r), FAL_OK);
	struct fal_shard_set_piece piece = { 0 };
	assert_int_equal(fal_shard_set_piece(all, 1, 0, 2, &piece), 1);
	struct fal_shard_set_piece lie = piece;
	lie.image.is.steps++;
	assert_int_equal(fal_shard_set_graft(first, 0, &lie, &r), FAL_EFORMAT);
	assert_int_equal(r.n, 0);
	assert_int_equal(fal_shard_set_graft(first, 0, &piece, &r), FAL_OK);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.v->kind, FAL_REPORT_MIGRATED);
	fal_shard_result_free(&r);
	fal_image_free(&piece.image);
	fal_shard_set_free(all);
	fal_shard_set_free(first);
}

/* Wrong fields within their type are refused. */
static void
lies_are_refused(void **state)
{
	(void)state;
	const struct fal_shard_order scale = { .kind = FAL_ORDER_SCALE, .squares = 1 };
	struct fal_msg order = { .type = FAL_MSG_ORDER };
	struct fal_msg image = { .type = FAL_MSG_IMAGE };
	const struct fal_shard_set_conf conf = { .shards = 1,
						 .each = { .n = 5, .tasks = 4 } };
	struct fal_shard_order o;
	struct fal_image got;
	struct fal_map map;
	order.order.facts.kind = FAL_KIND_CHECK;
	assert_int_equal(fal_shard_codec_order_get(&order, 1, &map, &o), FAL_OK);
	order.order.facts.kind++;
	assert_int_equal(fal_shard_codec_order_get(&order, 1, &map, &o), FAL_EFORMAT);
	/* A huge number of versions, and no array of them. */
	image.image.version = UINT32_MAX;
	image.image.olds = UINT32_MAX - 1;
	assert_int_equal(fal_shard_codec_image_get(&image, 16, &got), FAL_EFORMAT);
	/* The answer to no request. */
	struct fal_shard_set *r = fal_shard_set_new(&conf, NULL);
	assert_non_null(r);
	assert_int_equal(fal_shard_set_order(r, &scale, NULL), FAL_OK);
	fal_shard_set_free(r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(orders_come_back),
		cmocka_unit_test(reports_come_back),
		cmocka_unit_test(pieces_have_a_limit),
		cmocka_unit_test(more_than_there_is_room_for),
		cmocka_unit_test(images_come_back),
		cmocka_unit_test(pieces_have_the_numbers_of_all),
		cmocka_unit_test(lies_are_refused),
	};
	rng = fal_rng_init(drawn_seed(1), FAL_RNG_TEST, 0);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fal_shard_codec_free(&post);
	fal_buf_free(&last);
	return failed;
}
