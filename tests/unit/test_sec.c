/* Sealed records and digests. */
#include "base/err.h"
#include "base/parse.h"
#include "base/rng.h"
#include "crypto/seal.h"
#include "crypto/secret.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "../drawn.h"
#include "../held.h"

#define TEXT_N 11
#define RECORD_N (TEXT_N + FAL_SEAL_TAG)

static const uint8_t KEY[] = "a key of thirty-two test bytes..";
static const char TEXT[] = "hello world";

/* Of the tests to come. */
static uint8_t suite = FAL_SUITE_CHACHA20_POLY1305;

static struct fal_seal
seal(void)
{
	struct fal_seal s;
	assert_int_equal(fal_seal_init(&s, suite, KEY), FAL_OK);
	return s;
}

static void
put(struct fal_seal *s, const char *ad, uint8_t rec[static RECORD_N])
{
	memcpy(rec, TEXT, TEXT_N);
	assert_int_equal(fal_seal_seal(s, ad, strlen(ad), rec, TEXT_N), FAL_OK);
}

/* Opens a copy, so that the record can be tried again. */
static int
try_open(struct fal_seal *s, const char *ad, const uint8_t *rec, size_t n)
{
	uint8_t copy[RECORD_N + 1];
	memcpy(copy, rec, n);
	int err = fal_seal_open(s, ad, strlen(ad), copy, n);
	if (err == FAL_OK)
		assert_memory_equal(copy, TEXT, TEXT_N);
	return err;
}

static void
records_in_order(void **state)
{
	(void)state;
	struct fal_seal tx = seal(), rx = seal();
	uint8_t rec[3][RECORD_N];
	for (int i = 0; i < 3; i++)
		put(&tx, "ad", rec[i]);
	assert_memory_not_equal(rec[0], rec[1], RECORD_N);
	assert_int_equal(try_open(&rx, "ad", rec[1], RECORD_N), FAL_EAUTH); /* lost one */
	assert_int_equal(try_open(&rx, "ad", rec[0], RECORD_N), FAL_OK);
	assert_int_equal(try_open(&rx, "ad", rec[0], RECORD_N), FAL_EAUTH); /* replay */
	assert_int_equal(try_open(&rx, "ad", rec[2], RECORD_N), FAL_EAUTH); /* reorder */
	assert_int_equal(try_open(&rx, "ad", rec[1], RECORD_N), FAL_OK);
	assert_int_equal(rx.next, 2);
	fal_seal_wipe(&tx);
	fal_seal_wipe(&rx);
	fal_seal_wipe(&rx); /* twice is harmless */
}

static void
tampered_record(void **state)
{
	(void)state;
	struct fal_seal tx = seal(), rx = seal();
	uint8_t rec[RECORD_N + 1] = { 0 };
	put(&tx, "ad", rec);
	unsigned refused = 0;
	for (unsigned bit = 0; bit < 8 * RECORD_N; bit++) {
		rec[bit / 8] ^= (uint8_t)(1u << bit % 8);
		refused += try_open(&rx, "ad", rec, RECORD_N) == FAL_EAUTH;
		rec[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(refused, 8 * RECORD_N);
	assert_int_equal(try_open(&rx, "aD", rec, RECORD_N), FAL_EAUTH);
	assert_int_equal(try_open(&rx, "", rec, RECORD_N), FAL_EAUTH);
	assert_int_equal(try_open(&rx, "ad", rec, RECORD_N + 1), FAL_EAUTH);
	for (size_t n = 0; n < RECORD_N; n++)
		assert_int_equal(try_open(&rx, "ad", rec, n),
				 n < FAL_SEAL_TAG ? FAL_ETRUNC : FAL_EAUTH);
	assert_int_equal(try_open(&rx, "ad", rec, RECORD_N), FAL_OK);
	fal_seal_wipe(&tx);
	fal_seal_wipe(&rx);
}

static void
empty_record(void **state)
{
	(void)state;
	struct fal_seal tx = seal(), rx = seal();
	uint8_t rec[FAL_SEAL_TAG];
	assert_int_equal(fal_seal_seal(&tx, NULL, 0, rec, 0), FAL_OK);
	assert_int_equal(fal_seal_open(&rx, NULL, 0, rec, sizeof(rec)), FAL_OK);
	fal_seal_wipe(&tx);
	fal_seal_wipe(&rx);
}

/* What another program made of KEY with the records 65535, 65536 and 131072: the first is
 * the last one of the first key. */
static void
keys_are_renewed(void **state)
{
	static const struct {
		uint64_t number;
		const char *hex[2]; /* by suite */
	} want[] = {
		{ 65535,
		  { "c1edb85c49609f9d94ca185c95b2560b8caa3e37625e5e370bb3ad",
		    "7ead8a7b99565f06f4400fa29f4c0d7f69954bf39362b513ead13a" } },
		{ 65536,
		  { "1d67fd388910827408dbb1dd61789cfc207ea4f35eb2c19cc7df70",
		    "876acd2d269f234f7254f85c074a832b4133f0a5931ba84e71243d" } },
		{ 131072,
		  { "487a76865e70ce14d3ac258a1153e530f599074bb40dba48f6d9b8",
		    "c4d3c8fb6601c20f32ba167c0806f3e397ad424fde4e04c383dc1e" } },
	};
	struct fal_seal tx = seal(), rx = seal();
	uint8_t rec[RECORD_N];
	char hex[2 * RECORD_N + 1];
	size_t at = 0;
	(void)state;
	for (uint64_t i = 0; at < sizeof(want) / sizeof(want[0]); i++) {
		put(&tx, "ad", rec);
		fal_hex(rec, sizeof(rec), hex);
		if (i == want[at].number)
			assert_string_equal(hex, want[at++].hex[suite - 1]);
		assert_int_equal(try_open(&rx, "ad", rec, RECORD_N), FAL_OK);
	}
	assert_memory_not_equal(tx.key, KEY, FAL_KEY_BYTES);
	assert_memory_equal(tx.key, rx.key, FAL_KEY_BYTES);
	/* What does not open renews nothing. */
	rx.next = tx.next = 3 * FAL_SEAL_REKEY - 1;
	put(&tx, "ad", rec);
	assert_int_equal(try_open(&rx, "da", rec, RECORD_N), FAL_EAUTH);
	assert_int_equal(try_open(&rx, "ad", rec, RECORD_N), FAL_OK);
	assert_memory_equal(tx.key, rx.key, FAL_KEY_BYTES);
	fal_seal_wipe(&tx);
	fal_seal_wipe(&rx);
}

static void
counter_never_wraps(void **state)
{
	(void)state;
	struct fal_seal tx = seal(), rx = seal();
	uint8_t rec[RECORD_N];
	tx.next = rx.next = UINT64_MAX - 1;
	put(&tx, "", rec);
	assert_int_equal(try_open(&rx, "", rec, RECORD_N), FAL_OK);
	memcpy(rec, TEXT, TEXT_N);
	for (int i = 0; i < 2; i++) { /* and stays so */
		assert_int_equal(fal_seal_seal(&tx, NULL, 0, rec, TEXT_N), FAL_ELIMIT);
		assert_memory_equal(rec, TEXT, TEXT_N);
		assert_int_equal(try_open(&rx, "", rec, RECORD_N), FAL_ELIMIT);
	}
	fal_seal_wipe(&tx);
	fal_seal_wipe(&rx);
}

static bool
has_aes(void)
{
	struct fal_aead *a;
	if (fal_aead_new(FAL_SUITE_AES256_GCM, FAL_LIBRARY_ANY, &a) < 0)
		return false;
	fal_aead_free(a);
	return true;
}

static void
unknown_suites(void **state)
{
	(void)state;
	unsigned refused = 0;
	for (unsigned i = 0; i < 256; i++) {
		struct fal_seal s;
		int err = fal_seal_init(&s, (uint8_t)i, KEY);
		refused += err == FAL_EVERSION;
		if (err == FAL_OK)
			fal_seal_wipe(&s);
	}
	assert_int_equal(refused, has_aes() ? 254 : 255);
}

/* Seals of as many peers as a coordinator may have: more than the system has mappings
 * for, if each key took some of its own. */
static void
seals_of_many_sessions(void **state)
{
	enum { MANY = 20000 };
	static struct fal_seal s[MANY];
	uint8_t key[FAL_KEY_BYTES];
	(void)state;
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < MANY; i++) {
			memcpy(key, KEY, sizeof(key));
			memcpy(key, &i, sizeof(i));
			assert_int_equal(fal_seal_init(&s[i], suite, key), FAL_OK);
		}
		for (uint32_t i = 0; i < MANY; i++) {
			memcpy(key, &i, sizeof(i));
			assert_memory_equal(s[i].key, key, sizeof(key));
			fal_seal_wipe(&s[i]);
		}
	}
}

static void
shared_seal(const uint8_t *key, uint64_t number, const char *ad, uint8_t *out)
{
	const struct fal_aead_record r = { key, number, ad, strlen(ad) };
	assert_int_equal(fal_aead_seal(NULL, &r, TEXT, TEXT_N, out), FAL_OK);
}

static int
shared_open(const uint8_t *key, uint64_t number, const char *ad, const uint8_t *in,
	    size_t n, uint8_t *out)
{
	const struct fal_aead_record r = { key, number, ad, strlen(ad) };
	return fal_aead_open(NULL, &r, in, n, out);
}

static void
shared_records(void **state)
{
	(void)state;
	uint8_t rec[RECORD_N], out[RECORD_N], key[FAL_KEY_BYTES];
	fal_random_bytes(key, sizeof(key));
	shared_seal(key, 7, "ad", rec);
	assert_int_equal(shared_open(key, 7, "ad", rec, RECORD_N, out), FAL_OK);
	assert_memory_equal(out, TEXT, TEXT_N);
	assert_int_equal(shared_open(key, 8, "ad", rec, RECORD_N, out), FAL_EAUTH);
	/* Every byte of the index is in the nonce. */
	unsigned refused = 0;
	for (unsigned bit = 0; bit < 64; bit++)
		refused += shared_open(key, 7 ^ (uint64_t)1 << bit, "ad", rec, RECORD_N,
				       out) == FAL_EAUTH;
	assert_int_equal(refused, 64);
	assert_int_equal(shared_open(key, 7, "Ad", rec, RECORD_N, out), FAL_EAUTH);
	assert_int_equal(shared_open(KEY, 7, "ad", rec, RECORD_N, out), FAL_EAUTH);
	assert_int_equal(shared_open(key, 7, "ad", rec, 15, out), FAL_ETRUNC);
	/* In place. */
	assert_int_equal(shared_open(key, 7, "ad", rec, RECORD_N, rec), FAL_OK);
	assert_memory_equal(rec, TEXT, TEXT_N);
}

/* More keys than a page holds, freed in another order than taken, in drawn order. */
static void
keys_of_a_page_are_apart(void **state)
{
	enum { TURNS = 3000, HELD = 300 };
	uint8_t *held[HELD] = { NULL }, is[FAL_KEY_BYTES];
	struct fal_rng r = fal_rng_init(drawn_seed(1), FAL_RNG_TEST, 0);
	(void)state;
	for (unsigned i = 0; i < TURNS; i++) {
		const uint64_t at = fal_rng_below(&r, HELD);
		if (held[at] != NULL) {
			uint8_t *old = held[at];
			memset(is, (int)(at % 251 + 1), sizeof(is));
			assert_memory_equal(old, is, sizeof(is));
			fal_secret_key_free(old);
			memset(is, 0, sizeof(is)); /* behind the next one's address */
			assert_memory_equal(old + 8, is + 8, sizeof(is) - 8);
		}
		held[at] = fal_secret_key();
		memset(held[at], (int)(at % 251 + 1), FAL_KEY_BYTES);
	}
	for (unsigned i = 0; i < HELD; i++)
		fal_secret_key_free(held[i]);
	fal_secret_key_free(NULL);
}

static void
assert_digest(const uint8_t got[static FAL_HASH_BYTES], const char *want)
{
	char hex[2 * FAL_HASH_BYTES + 1];
	fal_hex(got, FAL_HASH_BYTES, hex);
	assert_string_equal(hex, want);
}

/* Expected values: b2sum -l 256 and sha256sum of coreutils. */
static void
digests(void **state)
{
	(void)state;
	static const char b2_abc[] =
		"bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319";
	static const char sha_abc[] =
		"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
	uint8_t out[FAL_HASH_BYTES];
	fal_hash("abc", 3, out);
	assert_digest(out, b2_abc);
	fal_hash(NULL, 0, out);
	assert_digest(out,
		      "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
	fal_sha256("abc", 3, out);
	assert_digest(out, sha_abc);

	struct fal_hash_state b2;
	fal_hash_init(&b2);
	for (int i = 0; i < 3; i++)
		fal_hash_update(&b2, &"abc"[i], 1);
	fal_hash_final(&b2, out);
	assert_digest(out, b2_abc);
}

/* Several at a time are what they are one by one, however many and however long. */
static void
digests_at_a_time(void **state)
{
	enum { MOST = 40, LONGEST = 1000 };
	static uint8_t text[MOST * LONGEST], out[(MOST + 1) * FAL_HASH_BYTES];
	const uint64_t seed = 20261122;
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
	(void)state;
	print_message("# seed %llu\n", (unsigned long long)seed);
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)fal_rng_below(&r, 256);
	for (int round = 0; round < 400; round++) {
		const size_t n = fal_rng_below(&r, MOST + 1);
		/* Whole blocks of 128 bytes, or not. */
		const uint32_t unit = fal_rng_below(&r, 2) == 0 ? 128 : 1;
		const size_t bytes = unit * fal_rng_below(&r, LONGEST / unit + 1);
		memset(out, 0xa5, sizeof(out));
		fal_hash_many("a label", text, bytes, n, out);
		for (size_t i = 0; i < n; i++) {
			struct fal_hash_state s;
			uint8_t want[FAL_HASH_BYTES];
			fal_hash_label(&s, "a label");
			fal_hash_update(&s, text + i * bytes, bytes);
			fal_hash_final(&s, want);
			assert_memory_equal(out + i * FAL_HASH_BYTES, want, sizeof(want));
		}
		assert_int_equal(out[n * FAL_HASH_BYTES], 0xa5);
	}
}

/* The rest by the other suite, where there is one. */
static int
with_aes(void **state)
{
	(void)state;
	suite = has_aes() ? FAL_SUITE_AES256_GCM : suite;
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_in_order),
		cmocka_unit_test(tampered_record),
		cmocka_unit_test(empty_record),
		cmocka_unit_test(keys_are_renewed),
		cmocka_unit_test(counter_never_wraps),
		cmocka_unit_test(unknown_suites),
		cmocka_unit_test(seals_of_many_sessions),
		cmocka_unit_test(shared_records),
		cmocka_unit_test(digests),
		cmocka_unit_test(digests_at_a_time),
		cmocka_unit_test(keys_of_a_page_are_apart),
		cmocka_unit_test_setup(records_in_order, with_aes),
		cmocka_unit_test_setup(tampered_record, with_aes),
		cmocka_unit_test_setup(empty_record, with_aes),
		cmocka_unit_test_setup(keys_are_renewed, with_aes),
		cmocka_unit_test_setup(counter_never_wraps, with_aes),
	};
	if (held_in_vain())
		return 0;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
