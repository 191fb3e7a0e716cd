/* Which suite versions are sealed by, for a crew of which some open ChaCha20-Poly1305
 * alone. */
#include "../../cmd/falcon-ps/publish.h"
#include "base/err.h"
#include "sec/aead.h"
#include "wire/bfp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { CHACHA = FAL_SUITE_CHACHA20_POLY1305, AES = FAL_SUITE_AES256_GCM };

enum { MOST = 100 };

/* One shard of so many blocks, which has every version below that. */
static uint32_t blocks = 1;
static uint64_t versions = UINT64_MAX;
uint32_t __wrap_fal_rack_shards(const struct fal_rack *r);
bool __wrap_fal_rack_part(const struct fal_rack *r, uint32_t i, uint64_t version,
			  struct fal_shard_part *out);

uint32_t
__wrap_fal_rack_shards(const struct fal_rack *r)
{
	(void)r;
	return 1;
}

bool
__wrap_fal_rack_part(const struct fal_rack *r, uint32_t i, uint64_t version,
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

/* A reader whose session is by `suite` gets a version; by which suite it comes. */
static uint8_t
gets(struct ps_publisher *p, uint64_t version, uint8_t suite)
{
	const struct ps_params from = { .version = version, .suite = suite };
	const struct fal_shared *s = ps_publish(p, &p->newest, &from, 0);
	assert_non_null(s);
	assert_int_equal(fal_shared_version(s), version);
	return fal_shared_suite(s);
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
	const struct ps_params from = { .version = 1, .suite = CHACHA };
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	uint32_t made = 0;
	int left;
	(void)state;
	blocks = MOST;
	struct fal_shared *s = ps_publish(&p, &p.newest, &from, 0);
	assert_non_null(s);
	assert_int_equal(fal_shared_made(s), 0);
	while ((left = ps_publish_more(&p)) > 0) {
		assert_int_equal(left, 1);
		assert_true(fal_shared_made(s) > made);
		assert_false(fal_shared_whole(s));
		assert_ptr_equal(ps_publish(&p, &p.newest, &from, 0), s);
		made = fal_shared_made(s);
	}
	assert_int_equal(left, 0);
	assert_true(made > 0);
	assert_true(fal_shared_whole(s));
	/* Values that are there, exponents, and what each record adds. */
	assert_true(fal_shared_bytes(s) > (MOST * FAL_BLOCK - 1) * sizeof(float) + MOST);
	assert_int_equal(p.publications, 1);
	/* Compressed ones are whole at once: whether that pays is known of whole ones. */
	const struct ps_params packed = { .version = 1,
					  .suite = CHACHA,
					  .as = PS_PACKED };
	s = ps_publish(&p, &p.newest, &packed, 0);
	assert_non_null(s);
	assert_true(fal_shared_whole(s));
	blocks = 1;
	ps_publisher_free(&p);
}

/* What cannot be made whole says so to whoever sends it. */
static void
broken_ones_are_told(void **state)
{
	const struct ps_params from = { .version = 1, .suite = CHACHA };
	struct ps_publisher p = { .rule.scheme = FAL_BSP };
	(void)state;
	blocks = MOST;
	struct fal_shared *s = ps_publish(&p, &p.newest, &from, 0);
	assert_non_null(s);
	assert_int_equal(ps_publish_more(&p), 1);
	assert_false(fal_shared_broken(s));
	versions = 0;
	assert_int_equal(ps_publish_more(&p), FAL_ENOMEM);
	assert_true(fal_shared_broken(s));
	assert_int_equal(ps_publish_more(&p), 0);
	versions = UINT64_MAX;
	blocks = 1;
	ps_publisher_free(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everybody_can_open_it),
		cmocka_unit_test(by_chacha_alone),
		cmocka_unit_test(long_ones_are_begun),
		cmocka_unit_test(broken_ones_are_told),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
