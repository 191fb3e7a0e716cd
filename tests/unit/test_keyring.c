/* Key files: what is read, what is refused, and that no diagnosis shows a key. */
#include "crypto/keyring.h"
#include "crypto/noise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Keys of 32 equal bytes: 0, 1, 2, 3, 4. */
#define K0 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
#define K1 "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
#define K2 "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="
#define K3 "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM="
#define K4 "BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ="
#define SELF "coordinator self " K1 "\n"

#define DAY ((int64_t)24 * 3600)

static struct fal_keyring *
parse(const char *text)
{
	struct fal_keyring *kr = NULL;
	struct fal_diag diag = { "" };
	int err = fal_keyring_parse(text, strlen(text), "k", &kr, &diag);
	if (err != FAL_OK)
		print_message("# %s\n", diag.text);
	assert_int_equal(err, FAL_OK);
	return kr;
}

static void
reads_a_keyring(void **state)
{
	(void)state;
	struct fal_keyring *kr = parse("# the lab's\n"
				       "\n"
				       "  coordinator\tself " K1 "\n"
				       "lab3 work " K2 "  2030-01-31 \n"
				       "\t# a comment\n"
				       "admin control " K3 "\n"
				       "lab3 observe " K4); /* no newline at the end */
	uint8_t want[FAL_KEY_BYTES];
	memset(want, 1, sizeof(want));
	assert_memory_equal(fal_keyring_secret(kr), want, sizeof(want));
	assert_string_equal(fal_keyring_own_name(kr), "coordinator");
	size_t n;
	const struct fal_key *key = fal_keyring_keys(kr, &n);
	static const struct {
		const char *name;
		enum fal_role role;
		unsigned line;
		int64_t expires;
		int byte;
	} keys[] = {
		{ "admin", FAL_ROLE_CONTROL, 6, INT64_MAX, 3 },
		{ "lab3", FAL_ROLE_WORK, 4, 1896134400, 2 }, /* date -ud 2030-02-01 +%s */
		{ "lab3", FAL_ROLE_OBSERVE, 7, INT64_MAX, 4 },
	};
	assert_int_equal(n, 3);
	for (size_t i = 0; i < n; i++) {
		assert_string_equal(key[i].name, keys[i].name);
		assert_int_equal(key[i].role, keys[i].role);
		assert_int_equal(key[i].line, keys[i].line);
		assert_int_equal(key[i].expires, keys[i].expires);
		memset(want, keys[i].byte, sizeof(want));
		assert_memory_equal(key[i].psk, want, sizeof(want));
	}
	fal_keyring_free(kr);
	fal_keyring_free(NULL);
}

/* A client's static key: its public half in the keyring, its secret one with the client,
 * and the same in common, without a word. */
static void
reads_static_keys(void **state)
{
	uint8_t secret[FAL_KEY_BYTES], public[FAL_KEY_BYTES], server[FAL_KEY_BYTES];
	char text[512], a[FAL_KEY_TEXT + 1], b[FAL_KEY_TEXT + 1],
		print[2][FAL_KEY_FINGERPRINT + 1];
	struct fal_client_key *client;
	size_t n;
	(void)state;
	memset(secret, 1, sizeof(secret));
	fal_noise_derive_public(secret, server);
	memset(secret, 2, sizeof(secret));
	fal_noise_derive_public(secret, public);
	fal_key_encode(public, a);
	fal_key_encode(server, b);
	snprintf(text, sizeof(text), "vm work public:%s 2030-01-31\n" SELF "vm work %s\n",
		 a, K2);
	struct fal_keyring *kr = parse(text);
	const struct fal_key *key = fal_keyring_keys(kr, &n);
	assert_int_equal(n, 2);
	assert_memory_equal(key[0].public, public, FAL_KEY_BYTES);
	assert_null(key[1].public);
	snprintf(text, sizeof(text), "vm work secret:%s %s\n", K2, b);
	assert_int_equal(fal_client_key_parse(text, strlen(text), "f", &client, NULL), 0);
	assert_true(client->is_static);
	assert_memory_equal(client->secret, secret, FAL_KEY_BYTES);
	assert_memory_equal(client->public, public, FAL_KEY_BYTES);
	assert_memory_equal(client->psk, key[0].psk, FAL_KEY_BYTES);
	assert_memory_not_equal(client->psk, secret, FAL_KEY_BYTES);
	fal_key_print_fingerprint(&key[0], print[0]);
	fal_client_key_print_fingerprint(client, print[1]);
	assert_string_equal(print[0], print[1]);
	fal_key_print_fingerprint(&key[1], print[0]);
	/* hashlib.blake2b(b"\2" * 32, digest_size=32, person=b"falcon shared") */
	assert_string_equal(print[0], "e6c59b20b4bd8eb323b355144d80c4c5");
	fal_secret_free(client);
	fal_keyring_free(kr);
}

static void
finds_in_constant_shape(void **state)
{
	(void)state;
	struct fal_keyring *kr = parse(SELF "a work " K2 "\n"
					    "b work " K3 " 2030-01-31\n"
					    "b work " K4 "\n"
					    "c work " K2 " 1970-01-01\n");
	const int64_t last = 1896134400 - 1;
	static const struct {
		const char *name;
		int64_t now;
		int err;
		int byte[2]; /* 0: the stand-in */
	} cases[] = {
		{ "a", 0, FAL_OK, { 2, 0 } },
		{ "b", last, FAL_OK, { 3, 4 } },
		{ "b", last + 1, FAL_OK, { 4, 0 } },
		{ "c", DAY - 1, FAL_OK, { 2, 0 } },
		{ "c", DAY, FAL_EPERM, { 0, 0 } },
		{ "d", 0, FAL_ENOENT, { 0, 0 } },
		{ "", 0, FAL_ENOENT, { 0, 0 } },
		{ "coordinator", 0, FAL_ENOENT, { 0, 0 } },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct fal_key *key[2] = { NULL, NULL };
		int err = fal_keyring_find(kr, cases[i].name, cases[i].now, key);
		assert_int_equal(err, cases[i].err);
		for (int j = 0; j < 2; j++) {
			uint8_t want[FAL_KEY_BYTES];
			memset(want, cases[i].byte[j], sizeof(want));
			assert_non_null(key[j]);
			if (cases[i].byte[j] != 0) {
				assert_memory_equal(key[j]->psk, want, sizeof(want));
				assert_int_equal(key[j]->role, FAL_ROLE_WORK);
			} else {
				assert_memory_not_equal(key[j]->psk, want, sizeof(want));
				assert_int_equal(key[j]->role, FAL_ROLE_NONE);
			}
		}
	}
	fal_keyring_free(kr);
}

/* Two loads have two stand-ins: nobody can learn one. */
static void
stand_in_is_random(void **state)
{
	(void)state;
	struct fal_keyring *a = parse(SELF), *b = parse(SELF);
	const struct fal_key *ka[2], *kb[2];
	fal_keyring_find(a, "x", 0, ka);
	fal_keyring_find(b, "x", 0, kb);
	assert_memory_not_equal(ka[0]->psk, kb[0]->psk, FAL_KEY_BYTES);
	fal_keyring_free(a);
	fal_keyring_free(b);
}

/* As an editor elsewhere leaves them: a byte order mark, lines that end in CRLF. */
static void
marks_and_returns(void **state)
{
	(void)state;
	static const char client[] = "\xef\xbb\xbf# mine\r\n\r\na work " K2 " " K3 "\r\n";
	struct fal_keyring *kr = parse("\xef\xbb\xbf" SELF "\r\n# all\r\na work " K2
				       " 2030-01-01\r\nb work " K3 "\r");
	struct fal_client_key *key;
	size_t n;
	assert_string_equal(fal_keyring_keys(kr, &n)[1].name, "b");
	assert_int_equal(n, 2);
	assert_int_equal(fal_keyring_keys(kr, &n)[1].line, 5);
	fal_keyring_free(kr);
	assert_int_equal(fal_client_key_parse(client, strlen(client), "c", &key, NULL),
			 0);
	assert_string_equal(key->name, "a");
	fal_secret_free(key);
}

static void
refused_keyrings(void **state)
{
	(void)state;
	static const struct {
		const char *text, *diag;
	} bad[] = {
		{ "", "k: no key of the coordinator itself (role self)" },
		{ "a work " K2 "\n", "k: no key of the coordinator itself (role self)" },
		{ SELF SELF, "k:2: a second key of the coordinator itself" },
		{ "c self " K1 " 2030-01-01", "k:1: the coordinator's own key does not "
					      "expire" },
		/* Points of small order. */
		{ SELF "a work public:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n",
		  "k:2: key of zero bytes, which anybody has" },
		{ "a work public:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n" SELF,
		  "k:1: a public key that is none, of small order" },
		/* What is a client's alone. */
		{ SELF "a work secret:" K2 "\n",
		  "k:2: a client's key: this is no keyring" },
		{ "a work " K2 " " K1 "\n", "k:1: a client's key: this is no keyring" },
		{ SELF "a work public:\n", "k:2: key is not base64 of 32 bytes" },
		{ "c self public:" K1 "\n", "k:1: key is not base64 of 32 bytes" },
		{ SELF "a\n", "k:2: fewer fields than name, role and key" },
		{ SELF "a work\n", "k:2: fewer fields than name, role and key" },
		{ SELF "\na wrok " K2,
		  "k:3: role is not observe, work, shard, control or "
		  "all 'wrok'" },
		{ SELF "a none " K2, "k:2: role is not observe, work, shard, control or "
				     "all 'none'" },
		{ SELF "a Work " K2, "k:2: role is not observe, work, shard, control or "
				     "all" },
		{ SELF "a/b work " K2, "k:2: name is not 1 to 63 of A-Z a-z 0-9 . _ -" },
		{ SELF "a work " K2 " 2030-02-30",
		  "k:2: expiry is not a date YYYY-MM-DD or a time YYYY-MM-DDThh:mm:ssZ "
		  "'2030-02-30'" },
		{ SELF "a work " K2 " soon",
		  "k:2: expiry is not a date YYYY-MM-DD or a time YYYY-MM-DDThh:mm:ssZ" },
		{ SELF "a work " K2 " 2030-01-01 x", "k:2: more than four fields" },
		{ SELF "a work " K2 "\r\r\n", "k:2: key is not base64 of 32 bytes" },
		{ "\xff\xfe" SELF, "k: is UTF-16 text: save it as UTF-8" },
		{ SELF "a work Ag==", "k:2: key is not base64 of 32 bytes" },
		{ SELF "a work " K0, "k:2: key of zero bytes, which anybody has" },
		{ "c self " K0, "k:1: key of zero bytes, which anybody has" },
		{ SELF "a work " K2 "\na work " K3 "\nb work " K3 "\na all " K4,
		  "k:5: a third key for one name 'a'" },
	};
	unsigned refused = 0;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fal_keyring *kr = NULL;
		struct fal_diag diag = { "" };
		refused += fal_keyring_parse(bad[i].text, strlen(bad[i].text), "k", &kr,
					     &diag) == FAL_EFORMAT;
		assert_null(kr);
		assert_string_equal(diag.text, bad[i].diag);
	}
	assert_int_equal(refused, sizeof(bad) / sizeof(bad[0]));
}

static void
limits(void **state)
{
	(void)state;
	struct fal_keyring *kr;
	struct fal_diag diag;
	static char big[FAL_KEYRING_MAX + 1];
	memset(big, '\n', sizeof(big));
	memcpy(big, SELF, strlen(SELF));
	assert_int_equal(fal_keyring_parse(big, sizeof(big), "k", &kr, &diag),
			 FAL_ELIMIT);
	assert_string_equal(diag.text, "k: larger than 4194304 bytes");
	const size_t most = strlen(SELF) + FAL_KEYRING_LINES - 1;
	assert_int_equal(fal_keyring_parse(big, most + 1, "k", &kr, &diag), FAL_ELIMIT);
	assert_string_equal(diag.text, "k: more than 10000 lines");
	assert_int_equal(fal_keyring_parse(big, most, "k", &kr, &diag), FAL_OK);
	fal_keyring_free(kr);
	memset(big + strlen(SELF), '#', sizeof(big) - strlen(SELF));
	assert_int_equal(fal_keyring_parse(big, FAL_KEYRING_MAX, "k", &kr, &diag),
			 FAL_OK);
	fal_keyring_free(kr);
}

static void
names_and_dates(void **state)
{
	(void)state;
	char name[FAL_NAME_MAX + 2];
	memset(name, 'a', sizeof(name));
	name[FAL_NAME_MAX + 1] = '\0';
	assert_false(fal_name_valid(name));
	name[FAL_NAME_MAX] = '\0';
	assert_true(fal_name_valid(name));
	assert_false(fal_name_valid(""));
	unsigned valid = 0;
	for (int c = 1; c < 256; c++)
		valid += fal_name_valid((char[]){ (char)c, '\0' });
	assert_int_equal(valid, 26 + 26 + 10 + 3);

	static const struct {
		const char *text;
		int64_t end; /* date -ud TEXT +%s, of a date plus a day; 0: refused */
	} dates[] = {
		{ "1970-01-01", 86400 },
		{ "2024-02-29", 1709251200 },
		{ "9999-12-31", 253402300800 },
		{ "1970-01-01T00:00:01Z", 1 },
		{ "2024-02-29T23:59:59Z", 1709251199 },
		{ "2024-02-29T24:00:00Z", 0 },
		{ "2024-02-29T23:60:00Z", 0 },
		{ "2024-12-31T23:59:60Z", 0 },
		{ "2024-02-30T00:00:00Z", 0 },
		{ "2024-02-29T23:59:59", 0 },
		{ "2024-02-29T23:59:59z", 0 },
		{ "2024-02-29 23:59:59Z", 0 },
		{ "2024-02-29T23:59:59ZZ", 0 },
		{ "2024-02-29T", 0 },
		{ "2023-02-29", 0 },
		{ "2023-13-01", 0 },
		{ "2023-00-10", 0 },
		{ "2023-01-00", 0 },
		{ "2023-04-31", 0 },
		{ "1969-12-31", 0 },
		{ "0000-01-01", 0 },
		{ "2023-1-01", 0 },
		{ "2023-01-011", 0 },
		{ "2023-01-01 ", 0 },
		{ " 2023-01-01", 0 },
		{ "2023/01/01", 0 },
		{ "", 0 },
		{ "2023-01-", 0 },
		{ "20230101", 0 },
	};
	for (size_t i = 0; i < sizeof(dates) / sizeof(dates[0]); i++) {
		int64_t end = 0;
		int err = fal_expiry_parse(dates[i].text, &end);
		assert_int_equal(err, dates[i].end != 0 ? FAL_OK : FAL_EFORMAT);
		assert_int_equal(end, dates[i].end);
	}
}

/* One base64 text a key: every other text of any character in any place is another key
 * or none. */
static void
base64_is_strict(void **state)
{
	(void)state;
	uint8_t key[FAL_KEY_BYTES], back[FAL_KEY_BYTES];
	char text[FAL_KEY_TEXT + 1], again[FAL_KEY_TEXT + 1];
	fal_random_bytes(key, sizeof(key));
	fal_key_encode(key, text);
	assert_int_equal(strlen(text), FAL_KEY_TEXT);
	assert_int_equal(fal_key_decode(text, FAL_KEY_TEXT, back), FAL_OK);
	assert_memory_equal(back, key, sizeof(key));
	unsigned accepted = 0;
	for (int at = 0; at < FAL_KEY_TEXT; at++)
		for (int c = 0; c < 256; c++) {
			char bad[FAL_KEY_TEXT];
			memcpy(bad, text, FAL_KEY_TEXT);
			bad[at] = (char)c;
			if (fal_key_decode(bad, FAL_KEY_TEXT, back) < 0)
				continue;
			accepted++;
			fal_key_encode(back, again);
			assert_memory_equal(again, bad, FAL_KEY_TEXT);
		}
	/* 42 full characters, one of 4 bits (16 with zero spare bits), one '='. */
	assert_int_equal(accepted, 42 * 64 + 16 + 1);
	for (size_t n = 0; n < FAL_KEY_TEXT; n++)
		assert_int_equal(fal_key_decode(text, n, back), FAL_EFORMAT);
	assert_int_equal(fal_key_decode(text, FAL_KEY_TEXT + 1, back), FAL_EFORMAT);
}

static void
roles(void **state)
{
	(void)state;
	/* Rows: what the key is; columns: what is needed. */
	static const char *const may[] = {
		[FAL_ROLE_NONE] = "-----",    [FAL_ROLE_OBSERVE] = "o----",
		[FAL_ROLE_WORK] = "-w---",    [FAL_ROLE_SHARD] = "--s--",
		[FAL_ROLE_CONTROL] = "o--c-", [FAL_ROLE_ALL] = "owsca",
	};
	for (unsigned r = FAL_ROLE_NONE; r <= FAL_ROLE_ALL; r++) {
		for (unsigned need = FAL_ROLE_OBSERVE; need <= FAL_ROLE_ALL; need++)
			assert_int_equal(fal_role_permits((enum fal_role)r,
							  (enum fal_role)need),
					 may[r][need - 1] != '-');
		enum fal_role back = FAL_ROLE_NONE;
		int err = fal_role_parse(fal_role_name((enum fal_role)r), &back);
		assert_int_equal(err, r == FAL_ROLE_NONE ? FAL_EFORMAT : FAL_OK);
		assert_int_equal(back, r);
	}
}

static void
client_keys(void **state)
{
	(void)state;
	struct fal_client_key *key = NULL;
	struct fal_diag diag = { "" };
	static const char good[] = "# of lab 3\n\nlab3 work " K2 " " K3 "\n# end\n";
	assert_int_equal(fal_client_key_parse(good, strlen(good), "c", &key, &diag), 0);
	uint8_t want[FAL_KEY_BYTES];
	assert_string_equal(key->name, "lab3");
	assert_int_equal(key->role, FAL_ROLE_WORK);
	memset(want, 2, sizeof(want));
	assert_memory_equal(key->psk, want, sizeof(want));
	memset(want, 3, sizeof(want));
	assert_memory_equal(key->server, want, sizeof(want));
	fal_secret_free(key);

	static const struct {
		const char *text, *diag;
	} bad[] = {
		{ "", "c: no key in it" },
		{ "# only\n", "c: no key in it" },
		{ "lab3 work " K2, "c:1: not name, role, key and coordinator's public "
				   "key" },
		{ SELF "lab3 work " K2 "\n", "c:1: a keyring: this is no client's key" },
		{ "lab3 work public:" K2, "c:1: a keyring: this is no client's key" },
		{ "lab3 self " K2 " " K3,
		  "c:1: role is not observe, work, shard, control or all 'self'" },
		{ "la,b3 work " K2 " " K3, "c:1: name is not 1 to 63 of A-Z a-z 0-9 . _ "
					   "-" },
		{ "lab3 work A" K2 " " K3, "c:1: key is not base64 of 32 bytes" },
		{ "lab3 work " K2 " A" K3,
		  "c:1: coordinator's key is not base64 of 32 bytes" },
		{ "lab3 work " K2 " " K3 " x", "c:1: more than four fields" },
		{ "lab3 work " K2 " " K3 "\nx", "c:2: more than one key" },
	};
	unsigned refused = 0;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		key = NULL;
		refused += fal_client_key_parse(bad[i].text, strlen(bad[i].text), "c",
						&key, &diag) == FAL_EFORMAT;
		assert_null(key);
		assert_string_equal(diag.text, bad[i].diag);
	}
	assert_int_equal(refused, sizeof(bad) / sizeof(bad[0]));
}

/* Whether `diag` shows five characters in a row of `key`. */
static bool
shows(const char *diag, const char *key)
{
	for (size_t i = 0; i + 5 <= FAL_KEY_TEXT; i++) {
		char piece[6] = { 0 };
		memcpy(piece, key + i, 5);
		if (strstr(diag, piece) != NULL)
			return true;
	}
	return false;
}

/* Every character of a keyring and of a client's key in turn replaced by each of a few
 * that cut or break a line: whatever is said of it, no piece of a key is in it. */
static void
no_key_in_a_diagnosis(void **state)
{
	(void)state;
	uint8_t raw[3][FAL_KEY_BYTES];
	char k[3][FAL_KEY_TEXT + 1], text[2][512];
	for (unsigned i = 0; i < 3; i++) {
		memset(raw[i], (int)i, sizeof(raw[i]));
		fal_hash(raw[i], sizeof(raw[i]), raw[i]); /* fixed, without pattern */
		fal_key_encode(raw[i], k[i]);
	}
	snprintf(text[0], sizeof(text[0]), "c self %s\na work %s 2030-01-01\nb all %s\n",
		 k[0], k[1], k[2]);
	snprintf(text[1], sizeof(text[1]), "a work %s %s\n", k[0], k[1]);
	unsigned refused = 0, accepted = 0;
	for (int t = 0; t < 2; t++)
		for (size_t at = 0; text[t][at] != '\0'; at++)
			for (const char *c = " \n#!\xff/A"; *c != '\0'; c++) {
				char bad[512];
				struct fal_diag diag = { "" };
				struct fal_keyring *kr = NULL;
				struct fal_client_key *key = NULL;
				strcpy(bad, text[t]);
				bad[at] = *c;
				int err = t == 0 ? fal_keyring_parse(bad, strlen(bad),
								     "f", &kr, &diag)
						 : fal_client_key_parse(bad, strlen(bad),
									"f", &key, &diag);
				refused += err < 0;
				accepted += err == FAL_OK;
				for (int i = 0; i < 3; i++)
					assert_false(shows(diag.text, k[i]));
				assert_true((err == FAL_OK) == (diag.text[0] == '\0'));
				fal_keyring_free(kr);
				fal_secret_free(key);
			}
	/* Still key files: another character within a key, name or date, a line less. */
	assert_int_equal(refused, 1394);
	assert_int_equal(accepted, 447);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_a_keyring),
		cmocka_unit_test(reads_static_keys),
		cmocka_unit_test(finds_in_constant_shape),
		cmocka_unit_test(stand_in_is_random),
		cmocka_unit_test(marks_and_returns),
		cmocka_unit_test(refused_keyrings),
		cmocka_unit_test(limits),
		cmocka_unit_test(names_and_dates),
		cmocka_unit_test(base64_is_strict),
		cmocka_unit_test(roles),
		cmocka_unit_test(client_keys),
		cmocka_unit_test(no_key_in_a_diagnosis),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
