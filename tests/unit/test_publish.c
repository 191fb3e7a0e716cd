/* Which suite versions are sealed by, for a crew of which some open ChaCha20-Poly1305
 * alone; and what of them leaves when. */
#include "../../cmd/falcon-ps/broadcast.h"
#include "../drawn.h"
#include "base/err.h"
#include "base/rng.h"
#include "crypto/aead.h"
#include "wire/bfp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { CHACHA = FAL_SUITE_CHACHA20_POLY1305, AES = FAL_SUITE_AES256_GCM };

enum { MOST = 100 };

/* One shard of so many blocks, which has every version below that, and makes that one. */
static uint32_t blocks = 1;
static uint64_t versions = UINT64_MAX;
static uint8_t made[MOST];
uint32_t __wrap_fal_shard_set_count(const struct fal_shard_set *r);
bool __wrap_fal_shard_set_part(const struct fal_shard_set *r, uint32_t i,
			       uint64_t version, struct fal_shard_part *out);
bool __wrap_fal_shard_set_making(const struct fal_shard_set *r, uint32_t i,
				 uint64_t version, struct fal_shard_part *out,
				 struct fal_shard_making *is);

uint32_t
__wrap_fal_shard_set_count(const struct fal_shard_set *r)
{
	(void)r;
	return 1;
}

bool
__wrap_fal_shard_set_part(const struct fal_shard_set *r, uint32_t i, uint64_t version,
			  struct fal_shard_part *out)
{
	static const float params[MOST * FAL_BLOCK];
	static const int8_t exps[MOST];
	(void)r;
	(void)i;
	*out = (struct fal_shard_part){ .count = blocks,
					.values = (size_t)blocks * FAL_BLOCK - 1,
					.params = params,
					.exps = exps };
	return version < versions;
}

bool
__wrap_fal_shard_set_making(const struct fal_shard_set *r, uint32_t i, uint64_t version,
			    struct fal_shard_part *out, struct fal_shard_making *is)
{
	(void)__wrap_fal_shard_set_part(r, i, version, out);
	*is = (struct fal_shard_making){ .version = version, .made = made };
	for (uint32_t b = 0; b < blocks; b++)
		is->n += made[b];
	return version == versions;
}

/* A reader whose session is by `suite` gets a version; by which suite it comes. */
static uint8_t
gets(struct ps_publisher *p, uint64_t version, uint8_t suite)
{
	const struct ps_publish_opt from = { .version = version,
					     .suite = suite,
					     .is_newest = true };
	const struct fal_shared *s = ps_publish(p, &from);
	assert_non_null(s);
	assert_int_equal(s->version, version);
	return s->suite;
}

static void
everybody_can_open_it(void **state)
{
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	struct fal_aead *a;
	(void)state;
	if (fal_aead_new(AES, FAL_LIBRARY_ANY, &a) < 0)
		skip();
	fal_aead_free(a);
	/* All have it: sealed once. */
	assert_int_equal(gets(&p, 1, AES), AES);
	assert_int_equal(gets(&p, 1, AES), AES);
	assert_int_equal(p.publications, 1);
	/* One comes that has not: once more, for him and those after him, ... */
	assert_int_equal(gets(&p, 2, AES), AES);
	assert_int_equal(gets(&p, 2, CHACHA), CHACHA);
	assert_int_equal(gets(&p, 2, AES), CHACHA);
	assert_int_equal(p.publications, 3);
	/* ... and while he is there versions begin so, whoever comes first. */
	for (uint64_t version = 3; version < 6; version++) {
		assert_int_equal(gets(&p, version, AES), CHACHA);
		assert_int_equal(gets(&p, version, CHACHA), CHACHA);
		assert_int_equal(p.publications, version + 1);
	}
	/* He has gone: one version later it is as before. */
	assert_int_equal(gets(&p, 6, AES), CHACHA);
	assert_int_equal(gets(&p, 7, AES), AES);
	assert_int_equal(gets(&p, 7, AES), AES);
	assert_int_equal(p.publications, 8);
	ps_publisher_free(&p);
}

/* Where nobody has it, ever. */
static void
by_chacha_alone(void **state)
{
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	(void)state;
	for (uint64_t version = 1; version < 4; version++)
		for (int reader = 0; reader < 3; reader++)
			assert_int_equal(gets(&p, version, CHACHA), CHACHA);
	assert_int_equal(p.publications, 3);
	ps_publisher_free(&p);
}

/* A long one is made in pieces, all of it; in between it can be had by others. */
static void
long_ones_are_begun(void **state)
{
	const struct ps_publish_opt from = { .version = 1,
					     .suite = CHACHA,
					     .is_newest = true };
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	uint32_t so_far = 0;
	int left;
	(void)state;
	blocks = MOST;
	struct fal_shared *s = ps_publish(&p, &from);
	assert_non_null(s);
	assert_int_equal(s->made, 0);
	while ((left = ps_publish_continue(&p)) > 0) {
		assert_int_equal(left, 1);
		assert_true(s->made > so_far);
		assert_ptr_equal(ps_publish(&p, &from), s);
		so_far = s->made;
	}
	assert_int_equal(left, 0);
	assert_true(so_far > 0);
	assert_true(fal_shared_is_complete(s));
	/* Values that are there, exponents, and what each record adds. */
	assert_true(s->bytes > (MOST * FAL_BLOCK - 1) * sizeof(float) + MOST);
	assert_int_equal(p.publications, 1);
	blocks = 1;
	ps_publisher_free(&p);
}

/* What was forgotten meanwhile says so to whoever sends it. */
static void
broken_ones_are_told(void **state)
{
	const struct ps_publish_opt from = { .version = 1,
					     .suite = CHACHA,
					     .is_newest = true };
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	(void)state;
	blocks = MOST;
	struct fal_shared *s = ps_publish(&p, &from);
	assert_non_null(s);
	assert_int_equal(ps_publish_continue(&p), 1);
	assert_false(s->broken);
	fal_shared_ref(s);
	versions = 0;
	assert_int_equal(ps_publish_continue(&p), 0);
	assert_true(s->broken);
	assert_int_equal(p.encoders_n, 0);
	fal_shared_drop(s);
	versions = UINT64_MAX;
	blocks = 1;
	ps_publisher_free(&p);
}

/* A shard has other blocks before all of its part was made: no coordinator that means
 * well orders that. */
static void
moved_ones_are_broken(void **state)
{
	const struct ps_publish_opt from = { .version = 1,
					     .suite = CHACHA,
					     .is_newest = true };
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	(void)state;
	blocks = 61;
	versions = 1;
	memset(made, 1, sizeof(made));
	struct fal_shared *s = ps_publish(&p, &from);
	assert_non_null(s);
	assert_int_equal(ps_publish_continue(&p), 1);
	fal_shared_ref(s);
	ps_publisher_reset(&p);
	blocks = MOST;
	versions = UINT64_MAX;
	assert_true(s->broken);
	assert_int_equal(ps_publish_continue(&p), 0);
	assert_ptr_not_equal(ps_publish(&p, &from), s);
	while (ps_publish_continue(&p) > 0)
		;
	fal_shared_drop(s);
	blocks = 1;
	ps_publisher_free(&p);
}

/* An unsealed version is one publication more, and changes no suite of sealed ones. */
static void
unsealed_ones_are_apart(void **state)
{
	struct ps_publish_opt from = {
		.version = 1, .suite = CHACHA, .is_newest = true, .encoding = PS_UNSEALED
	};
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	(void)state;
	const struct fal_shared *s = ps_publish(&p, &from);
	assert_non_null(s);
	assert_true(s->unsealed);
	from.suite = AES;
	assert_ptr_equal(ps_publish(&p, &from), s);
	assert_int_equal(p.publications, 1);
	from.encoding = PS_PLAIN;
	from.suite = CHACHA;
	assert_false(ps_publish(&p, &from)->unsealed);
	assert_int_equal(p.publications, 2);
	from.encoding = PS_UNSEALED;
	assert_ptr_equal(ps_publish(&p, &from), s);
	ps_publisher_free(&p);
}

/* Makes all that can be, as links take it; the numbers of the messages go behind those in
 * `order`. */
static void
make_more(struct ps_publisher *p, struct fal_shared *s, uint32_t *order, uint32_t *n)
{
	size_t bytes;
	while (ps_publish_continue(p) > 0 || *n < s->made)
		for (; *n < s->made; ++*n) {
			const uint8_t *wire = fal_shared_record(s, *n, &bytes);
			order[*n] = (uint32_t)(wire[16] | wire[17] << 8);
			fal_shared_lend(s, *n);
			fal_shared_return(s, *n);
		}
}

/* What is made of a version that is not whole leaves, each message once, no message
 * before its blocks are made, and the first one after all of them; then the first layers
 * come first. */
static void
made_ones_leave_early(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(87), FAL_RNG_TEST, 0);
	struct ps_publish_opt from = { .version = 1, .suite = CHACHA, .is_newest = true };
	uint32_t early_ones = 0;
	(void)state;
	for (int round = 0; round < 40; round++) {
		struct ps_publisher p = { .rule.scheme = FAL_BSP };
		struct fal_shared *s = NULL;
		uint32_t order[MOST], n = 0, left;
		bool out[MOST] = { false };
		blocks = 61 + fal_rng_below(&rng, MOST - 60);
		versions = 1;
		memset(made, 0, sizeof(made));
		from.is_unfinished = true;
		for (left = blocks; left > 0;) {
			/* Mostly the last ones first, as gradients come. */
			uint32_t b = fal_rng_below(&rng, 4) == 0
					     ? fal_rng_below(&rng, blocks)
					     : left - 1;
			while (made[b])
				b = (b + 1) % blocks;
			made[b] = 1;
			left--;
			if (s == NULL && ps_publisher_can_begin_early(&p, 0, 1)) {
				s = ps_publish(&p, &from);
				assert_non_null(s);
			}
			if (s == NULL)
				continue;
			const uint32_t was = n;
			make_more(&p, s, order, &n);
			for (uint32_t i = was; i < n; i++)
				for (uint32_t k = order[i] * FAL_MODEL_BLOCKS;
				     k < blocks && k < (order[i] + 1) * FAL_MODEL_BLOCKS;
				     k++)
					assert_true(made[k]);
			early_ones += n - was;
		}
		for (uint32_t i = 0; i < n; i++)
			assert_true(order[i] > 0);
		const uint32_t before = n;
		versions = 2; /* it is made */
		from.is_unfinished = false;
		if (s == NULL)
			s = ps_publish(&p, &from);
		make_more(&p, s, order, &n);
		assert_true(fal_shared_is_complete(s));
		assert_int_equal(order[before], 0);
		for (uint32_t i = before + 1; i < n; i++)
			assert_true(order[i] > order[i - 1]);
		for (uint32_t i = 0; i < n; i++) {
			assert_false(out[order[i]]);
			out[order[i]] = true;
		}
		assert_int_equal(n, fal_msg_models(blocks));
		ps_publisher_free(&p);
	}
	assert_true(early_ones > 200);
	versions = UINT64_MAX;
	blocks = 1;
}

/* More than a piece or two is not made before links take it: what comes then is for the
 * first layers. */
static void
no_more_than_links_take(void **state)
{
	struct ps_publish_opt from = { .version = 1, .suite = CHACHA, .is_newest = true };
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	(void)state;
	blocks = MOST;
	versions = 1;
	memset(made, 1, sizeof(made));
	assert_true(ps_publisher_can_begin_early(&p, 0, 1));
	from.is_unfinished = true;
	struct fal_shared *s = ps_publish(&p, &from);
	while (ps_publish_continue(&p) > 0)
		;
	assert_int_equal(s->made, 20);
	fal_shared_lend(s, 9);
	while (ps_publish_continue(&p) > 0)
		;
	assert_int_equal(s->made, 30);
	fal_shared_return(s, 9);
	versions = UINT64_MAX;
	while (ps_publish_continue(&p) > 0)
		;
	assert_true(fal_shared_is_complete(s));
	blocks = 1;
	ps_publisher_free(&p);
}

/* Who joins while a version is made wants that and the one before: each is made once,
 * however many come, and the one that was is of no use when the next one is whole. */
static void
who_joins_costs_nothing(void **state)
{
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	struct ps_publish_opt was = { .version = 1, .suite = CHACHA, .is_newest = true };
	struct ps_publish_opt next = {
		.version = 2, .suite = CHACHA, .is_newest = true, .is_unfinished = true
	};
	(void)state;
	blocks = MOST;
	versions = UINT64_MAX;
	assert_non_null(ps_publish(&p, &was));
	while (ps_publish_continue(&p) > 0)
		;
	versions = 2;
	memset(made, 1, sizeof(made));
	struct fal_shared *s = fal_shared_ref(ps_publish(&p, &next));
	assert_false(p.newest.exists); /* most have it */
	for (int i = 0; i < 8; i++) {
		assert_non_null(ps_publish(&p, &was));
		assert_ptr_equal(ps_publish(&p, &next), s);
		while (ps_publish_continue(&p) > 0)
			;
	}
	assert_int_equal(p.publications, 3);
	assert_int_equal(p.encoders_n, 1);
	versions = 3;
	while (ps_publish_continue(&p) > 0)
		;
	assert_true(fal_shared_is_complete(s));
	assert_int_equal(p.newest.version, 2);
	assert_false(p.next.exists);
	next.is_unfinished = false;
	assert_ptr_equal(ps_publish(&p, &next), s);
	/* The one before goes beside it. */
	was.is_newest = true;
	assert_non_null(ps_publish(&p, &was));
	assert_ptr_equal(ps_publish(&p, &next), s);
	while (ps_publish_continue(&p) > 0)
		;
	fal_shared_drop(s);
	versions = UINT64_MAX;
	blocks = 1;
	ps_publisher_free(&p);
}

/* Nobody looks through all messages again before there can be a piece more. */
static void
looks_are_few(void **state)
{
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	(void)state;
	blocks = MOST;
	versions = 1;
	memset(made, 0, sizeof(made));
	memset(made + 1, 1, 2 * 10);
	assert_false(ps_publisher_can_begin_early(&p, 0, 1));
	const uint32_t due = p.recheck[0].blocks;
	assert_true(due > 20);
	memset(made + 1, 1, due - 1);
	assert_false(ps_publisher_can_begin_early(&p, 0, 1));
	assert_int_equal(p.recheck[0].blocks, due); /* nobody has */
	memset(made + 1, 1, due + 2);
	assert_true(ps_publisher_can_begin_early(&p, 0, 1));
	versions = UINT64_MAX;
	blocks = 1;
}

/* Short ones, and those of blocks that are placed by who waits, leave as a whole. */
static void
others_leave_whole(void **state)
{
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	(void)state;
	versions = 1;
	memset(made, 1, sizeof(made));
	blocks = 60;
	assert_false(ps_publisher_can_begin_early(&p, 0, 1));
	blocks = MOST;
	assert_true(ps_publisher_can_begin_early(&p, 0, 1));
	memset(made, 0, MOST - 26);
	p.recheck[0].blocks = 0;
	assert_false(ps_publisher_can_begin_early(&p, 0, 1)); /* no piece of it */
	p.recheck[0].blocks = 0;
	memset(made, 1, sizeof(made));
	p.sends_whole = true;
	assert_false(ps_publisher_can_begin_early(&p, 0, 1));
	versions = UINT64_MAX;
	blocks = 1;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everybody_can_open_it),
		cmocka_unit_test(by_chacha_alone),
		cmocka_unit_test(long_ones_are_begun),
		cmocka_unit_test(broken_ones_are_told),
		cmocka_unit_test(moved_ones_are_broken),
		cmocka_unit_test(unsealed_ones_are_apart),
		cmocka_unit_test(made_ones_leave_early),
		cmocka_unit_test(no_more_than_links_take),
		cmocka_unit_test(who_joins_costs_nothing),
		cmocka_unit_test(looks_are_few),
		cmocka_unit_test(others_leave_whole),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
