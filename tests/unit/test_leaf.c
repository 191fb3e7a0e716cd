/* Hashes of versions: known answers, by Python's hashlib, and equal hashes whatever the
 * shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/parse.h"
#include "base/rng.h"
#include "trace/chain.h"
#include "wire/bfp.h"

#include <stdlib.h>
#include <string.h>

static float *
some_params(size_t n)
{
	float *p = malloc(n * sizeof(*p));
	assert_non_null(p);
	for (size_t i = 0; i < n; i++)
		p[i] = (float)(i % 1009) * 0.25F - (float)(i % 7);
	return p;
}

static void
is_hex(const uint8_t *hash, const char *want)
{
	char hex[2 * FAL_HASH_BYTES + 1];
	fal_hex(hash, FAL_HASH_BYTES, hex);
	assert_string_equal(hex, want);
}

/* The last leaf, and the hash of the version. */
static void
known(void **state)
{
	static const struct {
		size_t n;
		const char *last, *root;
	} cases[] = {
		{ 1, "b13a9da39141b79bab046319d355efa98a3bfde17018ce877700fcb1611d5492",
		  "ed6dd6fac36145ad7004efca10d73ce6235451286e357d1f965692a178a80855" },
		{ 4096,
		  "c0b5072ca9df5246e4ae494e948d544a4c03a025f8655a9a0738751ec33a2c81",
		  "d7ee823c0d6da8ecc3ecf530150c82f279af6bc31d6cd04832ef9e14d336d922" },
		{ 4097,
		  "07e7351f6d1391e089d057019b8e7fc0180ada8d64e3cab659ba8b3aed35845f",
		  "ec499e1e01c0291216f261486a2efdf29b237237fc20b1578530465095b200e3" },
		{ 86021,
		  "8f0c4e5d2f7468052cda60c5eeb1e93c846c95ca97c4c18b3daead560a188eb6",
		  "2125030a8be12151554be25f7f2ef29c29ecf8494280698072995a8b9e31136f" },
	};
	(void)state;
	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		const size_t n = cases[k].n;
		const uint32_t blocks = fal_blocks(n);
		float *p = some_params(n);
		uint8_t *leaves = malloc((size_t)blocks * FAL_HASH_BYTES);
		uint8_t root[FAL_HASH_BYTES];
		assert_non_null(leaves);
		fal_leaf_hashes(p, n, leaves);
		is_hex(leaves + (size_t)(blocks - 1) * FAL_HASH_BYTES, cases[k].last);
		fal_leaf_root(leaves, blocks, root);
		is_hex(root, cases[k].root);
		memset(root, 0, sizeof(root));
		fal_leaf_model(p, n, root);
		is_hex(root, cases[k].root);
		free(leaves);
		free(p);
	}
}

/* Shards of any sizes make the same leaves; one changed bit makes another hash. */
static void
cut(void **state)
{
	const uint64_t seed = 20261122;
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
	(void)state;
	print_message("# seed %llu\n", (unsigned long long)seed);
	for (int round = 0; round < 50; round++) {
		const size_t n = 1 + fal_rng_below(&r, 20 * FAL_BLOCK);
		const uint32_t blocks = fal_blocks(n);
		uint8_t leaves[20 * FAL_HASH_BYTES], root[FAL_HASH_BYTES];
		uint8_t want[FAL_HASH_BYTES];
		float *p = some_params(n);
		fal_leaf_model(p, n, want);
		for (uint32_t from = 0, to; from < blocks; from = to) {
			to = from + 1 + fal_rng_below(&r, blocks - from);
			const size_t first = (size_t)from * FAL_BLOCK;
			const size_t end = to < blocks ? (size_t)to * FAL_BLOCK : n;
			fal_leaf_hashes(p + first, end - first,
					leaves + (size_t)from * FAL_HASH_BYTES);
		}
		fal_leaf_root(leaves, blocks, root);
		assert_memory_equal(root, want, sizeof(root));
		const uint32_t at = fal_rng_below(&r, (uint32_t)(n * sizeof(*p)));
		((uint8_t *)p)[at] ^= (uint8_t)(1U << fal_rng_below(&r, 8));
		fal_leaf_model(p, n, root);
		assert_memory_not_equal(root, want, sizeof(root));
		free(p);
	}
}

/* The bytes hashed in each clock are bounded, however large the model is. */
static void
every(void **state)
{
	(void)state;
	for (size_t n = 1; n < (size_t)1 << 31; n = n * 3 + 1)
		assert_true(n / fal_leaf_interval(n) <= (size_t)1 << 20);
	assert_int_equal(fal_leaf_interval(1), 16);
	assert_int_equal(fal_leaf_interval(1 << 20), 16);
	assert_int_equal(fal_leaf_interval((16 << 20) + 1), 17);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known),
		cmocka_unit_test(cut),
		cmocka_unit_test(every),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
