/* Which suite versions are sealed by, for a crew of which some open ChaCha20-Poly1305
 * alone. */
#include "../../cmd/falcon-ps/publish.h"
#include "sec/aead.h"
#include "wire/bfp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { CHACHA = FAL_SUITE_CHACHA20_POLY1305, AES = FAL_SUITE_AES256_GCM };

/* One shard of one block, which has every version. */
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
	static const float params[100];
	static const int8_t exps[1];
	(void)r;
	(void)i;
	(void)version;
	*out = (struct fal_shard_part){
		.count = 1, .values = 100, .params = params, .exps = exps
	};
	return true;
}

/* A reader whose session is by `suite` gets a version; by which suite it comes. */
static uint8_t
gets(struct ps_publisher *p, uint64_t version, uint8_t suite)
{
	const struct ps_params from = { .version = version, .suite = suite };
	const struct fal_shared *s = ps_publish(p, &p->newest, &from, false, 0);
	assert_non_null(s);
	assert_int_equal(fal_shared_version(s), version);
	return fal_shared_suite(s);
}

static void
everybody_can_open_it(void **state)
{
	struct ps_publisher p = { .most = 2 };
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
	struct ps_publisher p = { .most = 2 };
	(void)state;
	for (uint64_t version = 1; version < 4; version++)
		for (int reader = 0; reader < 3; reader++)
			assert_int_equal(gets(&p, version, CHACHA), CHACHA);
	assert_int_equal(p.publications, 3);
	ps_publisher_free(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everybody_can_open_it),
		cmocka_unit_test(by_chacha_alone),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
