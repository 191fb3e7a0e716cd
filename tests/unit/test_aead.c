/* Suites and libraries: each against the others, and against what others have published.
 */
#include "../measured.h"
#include "base/err.h"
#include "base/parse.h"
#include "base/rng.h"
#include "crypto/aead.h"
#include "crypto/secret.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { CHACHA = FAL_SUITE_CHACHA20_POLY1305, AES = FAL_SUITE_AES256_GCM };

static const uint8_t KEY[] = "a key of thirty-two test bytes..";

/* Of each suite, every library that has it here; ChaCha's first one is the reference. */
static struct {
	uint8_t suite;
	enum fal_library library;
	struct fal_aead *aead;
} all[4];
static size_t n_all;

static int
make_all(void **state)
{
	(void)state;
	for (uint8_t suite = CHACHA; suite <= AES; suite++)
		for (int lib = FAL_LIBRARY_SODIUM; lib <= FAL_LIBRARY_CRYPTO; lib++) {
			struct fal_aead *a;
			if (fal_aead_new(suite, (enum fal_library)lib, &a) < 0)
				continue;
			all[n_all].suite = suite;
			all[n_all].library = (enum fal_library)lib;
			all[n_all++].aead = a;
		}
	print_message("# %zu of 4 are here\n", n_all);
	return n_all > 0 && all[0].aead == NULL ? 0 : -1;
}

static int
free_all(void **state)
{
	(void)state;
	while (n_all > 0)
		fal_aead_free(all[--n_all].aead);
	return 0;
}

/* NIST's test case 14 of GCM, and what Python's cryptography makes. */
static void
known_answers(void **state)
{
	static const uint8_t zeros[FAL_KEY_BYTES];
	static const struct {
		uint8_t suite;
		const uint8_t *key;
		uint64_t number;
		const char *ad, *text;
		size_t n;
		const char *hex;
	} want[] = {
		{ AES, zeros, 0, "", (const char *)zeros, 16,
		  "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919" },
		{ AES, KEY, 0x0102030405060708, "ad", "hello world", 11,
		  "5e7001239869af4e23cc1c4c78c896698a8d2299710e47b8b646a0" },
		{ AES, KEY, UINT64_MAX, "", (const char *)zeros, 32,
		  "cc75e2c73d971733f62956d7ddc7a4a8e57e563e076740d9f0a45bab7cbe70c4"
		  "2068f0f8b8b823bbb1e9516ea7c3ece3" },
		{ CHACHA, KEY, 0x0102030405060708, "ad", "hello world", 11,
		  "03a22563fe60ff6d8aaf9523fde4b597f04c8383b8de87829b2218" },
	};
	(void)state;
	for (size_t i = 0; i < n_all; i++)
		for (size_t k = 0; k < sizeof(want) / sizeof(*want); k++) {
			const struct fal_aead_record r = { want[k].key, want[k].number,
							   want[k].ad,
							   strlen(want[k].ad) };
			uint8_t rec[48];
			char hex[2 * sizeof(rec) + 1];
			if (all[i].suite != want[k].suite)
				continue;
			assert_int_equal(fal_aead_seal(all[i].aead, &r, want[k].text,
						       want[k].n, rec),
					 0);
			fal_hex(rec, want[k].n + FAL_SEAL_TAG, hex);
			assert_string_equal(hex, want[k].hex);
		}
}

struct drawn {
	uint8_t key[FAL_KEY_BYTES], ad[150], *text;
	size_t ad_n, n;
	uint64_t number;
};

static struct drawn
draw(struct fal_rng *rng)
{
	static const uint32_t below[] = { 20, 1100, 70000 };
	struct drawn d = { .n = fal_rng_below(rng, below[fal_rng_below(rng, 3)]),
			   .ad_n = fal_rng_below(rng, sizeof(d.ad)),
			   .number = fal_rng_u64(rng) };
	d.text = malloc(d.n + 1);
	for (size_t i = 0; i < sizeof(d.key); i++)
		d.key[i] = (uint8_t)fal_rng_u32(rng);
	for (size_t i = 0; i < d.ad_n; i++)
		d.ad[i] = (uint8_t)fal_rng_u32(rng);
	for (size_t i = 0; i < d.n; i++)
		d.text[i] = (uint8_t)fal_rng_u32(rng);
	return d;
}

/* What one library seals is what the other one seals, and each opens it; with a bit
 * changed anywhere, neither does. */
static void
libraries_agree(void **state)
{
	const uint64_t seed = (uint64_t)time(NULL);
	struct fal_rng rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	(void)state;
	print_message("# seed %llu\n", (unsigned long long)seed);
	for (int round = 0; round < 100; round++) {
		struct drawn d = draw(&rng);
		const struct fal_aead_record r = { d.key, d.number, d.ad, d.ad_n };
		uint8_t *rec[2] = { malloc(d.n + 16), malloc(d.n + 16) };
		for (size_t i = 0; i < n_all; i++) {
			const bool other = i > 0 && all[i].suite == all[i - 1].suite;
			struct fal_aead *opens = all[other ? i - 1 : i].aead;
			const uint32_t bit =
				fal_rng_below(&rng, (uint32_t)(d.n + 16) * 8);
			/* In place, and not. */
			memcpy(rec[0], d.text, d.n);
			assert_int_equal(fal_aead_seal(all[i].aead, &r,
						       round % 2 ? rec[0] : d.text, d.n,
						       rec[0]),
					 0);
			if (other)
				assert_memory_equal(rec[0], rec[1], d.n + 16);
			memcpy(rec[1], rec[0], d.n + 16);
			rec[1][bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_equal(fal_aead_open(opens, &r, rec[1], d.n + 16,
						       rec[1]),
					 FAL_EAUTH);
			memcpy(rec[1], rec[0], d.n + 16);
			assert_int_equal(fal_aead_open(opens, &r, rec[1], d.n + 16,
						       rec[1]),
					 0);
			assert_memory_equal(rec[1], d.text, d.n);
			memcpy(rec[1], rec[0], d.n + 16);
		}
		free(rec[0]);
		free(rec[1]);
		free(d.text);
	}
}

/* A text in two places is sealed as one in one place, and opened into two. */
static void
texts_in_two_places(void **state)
{
	const uint64_t seed = (uint64_t)time(NULL);
	struct fal_rng rng = fal_rng_init(seed, FAL_RNG_TEST, 1);
	(void)state;
	print_message("# seed %llu\n", (unsigned long long)seed);
	for (int round = 0; round < 100; round++) {
		struct drawn d = draw(&rng);
		const struct fal_aead_record r = { d.key, d.number, d.ad, d.ad_n };
		const size_t head = fal_rng_below(&rng, (uint32_t)d.n + 1);
		const struct fal_aead_text text = { d.text, head, d.text + head,
						    d.n - head };
		const size_t bit = fal_rng_below(&rng, (uint32_t)(d.n + 16) * 8);
		uint8_t *rec = malloc(d.n + 16), *two = malloc(d.n + 16),
			*rest = malloc(d.n + 1);
		for (size_t i = 0; i < n_all; i++) {
			struct fal_aead *a = all[i].aead;
			assert_int_equal(fal_aead_seal(a, &r, d.text, d.n, rec), 0);
			assert_int_equal(fal_aead_seal_text(a, &r, &text, two), 0);
			assert_memory_equal(rec, two, d.n + 16);
			memset(rest, 0x55, d.n + 1);
			assert_int_equal(fal_aead_open_apart(a, &r, two, d.n + 16, head,
							     rest),
					 0);
			assert_memory_equal(two, d.text, head);
			assert_memory_equal(rest, d.text + head, d.n - head);
			assert_int_equal(rest[d.n - head], 0x55); /* and no byte more */
			rec[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_equal(fal_aead_open_apart(a, &r, rec, d.n + 16, head,
							     rest),
					 FAL_EAUTH);
			assert_int_equal(rest[d.n - head], 0x55);
			assert_int_equal(fal_aead_open_apart(a, &r, rec, d.n + 16,
							     d.n + 1, rest),
					 FAL_ETRUNC);
		}
		free(rec);
		free(two);
		free(rest);
		free(d.text);
	}
}

/* Everything of a record counts, and the suite, too. */
static void
nothing_else_opens(void **state)
{
	uint8_t rec[2000 + FAL_SEAL_TAG] = { 0 }, out[2000], other[FAL_KEY_BYTES];
	(void)state;
	for (size_t i = 0; i < n_all; i++) {
		const struct fal_aead_record r = { KEY, 7, "ad", 2 };
		assert_int_equal(fal_aead_seal(all[i].aead, &r, rec, 2000, rec), 0);
		for (unsigned bit = 0; bit < 64; bit++) {
			struct fal_aead_record w = r;
			w.number ^= (uint64_t)1 << bit;
			assert_int_equal(fal_aead_open(all[i].aead, &w, rec, 2016, out),
					 FAL_EAUTH);
		}
		for (size_t k = 0; k < 3; k++) {
			struct fal_aead_record w = r;
			memcpy(other, KEY, sizeof(other));
			other[31] ^= 1;
			w.key = k == 0 ? other : KEY;
			w.ad = k == 1 ? "aD" : "ad";
			w.ad_n = k == 2 ? 1 : 2;
			assert_int_equal(fal_aead_open(all[i].aead, &w, rec, 2016, out),
					 FAL_EAUTH);
		}
		for (size_t n = 0; n < 2016; n += n < 40 ? 1 : 97)
			assert_int_equal(fal_aead_open(all[i].aead, &r, rec, n, out),
					 n < 16 ? FAL_ETRUNC : FAL_EAUTH);
		for (size_t k = 0; k < n_all; k++)
			assert_int_equal(fal_aead_open(all[k].aead, &r, rec, 2016, out),
					 all[k].suite == all[i].suite ? 0 : FAL_EAUTH);
		memset(rec, 0, sizeof(rec));
	}
}

/* How often memory of the heap holds these bytes, which are those of `masked` otherwise.
 */
static unsigned
in_heap(const uint8_t masked[static FAL_KEY_BYTES])
{
	char line[512];
	unsigned found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) != NULL) {
		char *end;
		if (strstr(line, "[heap]") == NULL)
			continue;
		const uint8_t *p = (const uint8_t *)strtoul(line, &end, 16);
		const uint8_t *to = (const uint8_t *)strtoul(end + 1, NULL, 16);
		for (; p + FAL_KEY_BYTES <= to; p++) {
			size_t i = 0;
			while (i < FAL_KEY_BYTES && (p[i] ^ masked[i]) == 0xff)
				i++;
			found += i == FAL_KEY_BYTES;
		}
	}
	fclose(maps);
	return found;
}

/* Of a key nothing stays where no lock is on memory. */
static void
keys_do_not_stay(void **state)
{
	static uint8_t rec[2000 + FAL_SEAL_TAG];
	uint8_t masked[FAL_KEY_BYTES];
	(void)state;
	for (size_t i = 0; i < n_all; i++) {
		uint8_t *key = fal_secret_alloc(FAL_KEY_BYTES);
		const struct fal_aead_record r = { key, i, NULL, 0 };
		fal_random_bytes(key, FAL_KEY_BYTES);
		for (size_t k = 0; k < FAL_KEY_BYTES; k++)
			masked[k] = (uint8_t)~key[k];
		assert_int_equal(fal_aead_seal(all[i].aead, &r, rec, 2000, rec), 0);
		assert_int_equal(in_heap(masked), 0);
		assert_int_equal(fal_aead_open(all[i].aead, &r, rec, 2016, rec), 0);
		assert_int_equal(in_heap(masked), 0);
		assert_int_equal(fal_aead_open(all[i].aead, &r, rec, 2016, rec),
				 FAL_EAUTH);
		assert_int_equal(in_heap(masked), 0);
		/* What looks for it does find one. */
		uint8_t *seen = malloc(FAL_KEY_BYTES);
		memcpy(seen, key, FAL_KEY_BYTES);
		fal_secret_free(key);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
		assert_int_equal(in_heap(masked), 1);
#endif
		fal_secret_wipe(seen, FAL_KEY_BYTES);
		free(seen);
	}
}

/* As if libcrypto could not, though it has the suite. */
int __real_EVP_CipherFinal_ex(void *ctx, unsigned char *out, int *n)
	__attribute__((weak)); /* none without libcrypto */
int __wrap_EVP_CipherFinal_ex(void *ctx, unsigned char *out, int *n);

static bool cannot;

int
__wrap_EVP_CipherFinal_ex(void *ctx, unsigned char *out, int *n)
{
	return cannot ? 0 : __real_EVP_CipherFinal_ex(ctx, out, n);
}

static void
what_is_fastest_is_offered(void **state)
{
	uint8_t suites[FAL_SUITES];
	struct fal_aead *a;
	const bool aes = fal_aead_new(AES, FAL_LIBRARY_CRYPTO, &a) == FAL_OK;
	(void)state;
	if (aes)
		fal_aead_free(a);
	assert_int_equal(fal_suites(suites), 1);
	assert_int_equal(suites[0], CHACHA);
	assert_int_equal(measured(AES), aes);
	assert_int_equal(fal_suites(suites), aes ? 2 : 1);
	assert_int_equal(suites[0], aes ? AES : CHACHA);
	assert_int_equal(suites[aes ? 1 : 0], CHACHA);
	cannot = true; /* what seals nothing is not fast */
	assert_false(measured(AES));
	cannot = false;
	assert_int_equal(fal_suites(suites), 1);
	assert_int_equal(fal_aead_new(CHACHA, FAL_LIBRARY_ANY, &a), 0);
	assert_null(a);
	assert_true(measured(CHACHA));
	assert_int_equal(fal_suites(suites), 1);
	for (unsigned suite = 3; suite <= 256; suite++)
		assert_int_equal(fal_aead_new((uint8_t)suite, FAL_LIBRARY_ANY, &a),
				 FAL_EVERSION);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_answers),
		cmocka_unit_test(libraries_agree),
		cmocka_unit_test(texts_in_two_places),
		cmocka_unit_test(nothing_else_opens),
		cmocka_unit_test(keys_do_not_stay),
		cmocka_unit_test(what_is_fastest_is_offered),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, make_all, free_all);
}
