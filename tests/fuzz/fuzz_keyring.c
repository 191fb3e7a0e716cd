/* Both readers of key files.  What they accept is written out again and must read back
 * the same; what they refuse has a one-line diagnosis. */
#include "base/buf.h"
#include "crypto/keyring.h"
#include "crypto/noise.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
check(bool fact)
{
	if (!fact)
		abort();
}

static void
check_diag(int err, const struct fal_diag *diag)
{
	check((err == FAL_OK) == (diag->text[0] == '\0'));
	check(strchr(diag->text, '\n') == NULL);
}

static void
put_key(struct fal_buf *b, const char *name, const char *role, const char *kind,
	const uint8_t *key)
{
	char text[FAL_KEY_TEXT + 1];
	fal_key_encode(key, text);
	fal_put_fmt(b, "%s %s %s%s", name, role, kind, text);
}

static void
keyring(const char *text, size_t n)
{
	struct fal_keyring *kr = NULL, *back = NULL;
	struct fal_diag diag = { "" };
	int err = fal_keyring_parse(text, n, "f", &kr, &diag);
	check_diag(err, &diag);
	if (err < 0)
		return;
	size_t keys_n, back_n;
	const struct fal_key *keys = fal_keyring_keys(kr, &keys_n);
	struct fal_buf b = { 0 };
	put_key(&b, fal_keyring_own_name(kr), "self", "", fal_keyring_secret(kr));
	for (size_t i = 0; i < keys_n; i++) {
		fal_put_fmt(&b, "\n");
		const bool is_static = keys[i].public != NULL;
		put_key(&b, keys[i].name, fal_role_name(keys[i].role),
			is_static ? FAL_KEY_PUBLIC : "",
			is_static ? keys[i].public : keys[i].psk);
	}
	check(fal_keyring_parse((const char *)b.p, b.n, "f", &back, NULL) == FAL_OK);
	const struct fal_key *again = fal_keyring_keys(back, &back_n);
	check(back_n == keys_n);
	for (size_t i = 0; i < keys_n; i++) {
		const struct fal_key *found[2];
		check(strcmp(keys[i].name, again[i].name) == 0 &&
		      keys[i].role == again[i].role &&
		      (keys[i].public == NULL) == (again[i].public == NULL) &&
		      memcmp(keys[i].psk, again[i].psk, FAL_KEY_BYTES) == 0);
		check(fal_keyring_find(kr, keys[i].name, -1, found) == FAL_OK);
		check(found[0] == &keys[i] || found[1] == &keys[i]);
	}
	fal_buf_free(&b);
	fal_keyring_free(back);
	fal_keyring_free(kr);
}

static void
client(const char *text, size_t n)
{
	struct fal_client_key *key = NULL, *back = NULL;
	struct fal_diag diag = { "" };
	int err = fal_client_key_parse(text, n, "f", &key, &diag);
	check_diag(err, &diag);
	if (err < 0)
		return;
	struct fal_buf b = { 0 };
	char server[FAL_KEY_TEXT + 1];
	fal_key_encode(key->server, server);
	put_key(&b, key->name, fal_role_name(key->role),
		key->is_static ? FAL_KEY_SECRET : "",
		key->is_static ? key->secret : key->psk);
	fal_put_fmt(&b, " %s\n", server);
	check(fal_client_key_parse((const char *)b.p, b.n, "f", &back, NULL) == FAL_OK);
	check(strcmp(key->name, back->name) == 0 && key->role == back->role &&
	      key->is_static == back->is_static &&
	      memcmp(key->psk, back->psk, FAL_KEY_BYTES) == 0 &&
	      memcmp(key->server, back->server, FAL_KEY_BYTES) == 0);
	fal_buf_free(&b);
	fal_secret_free(back);
	fal_secret_free(key);
}

/* Random bytes hold no base64 of 32 bytes, so besides the text as it is, one is read in
 * which every '@' has become a key. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const uint8_t key[FAL_KEY_BYTES] = "not a secret";
	char text[FAL_KEY_TEXT + 1];
	struct fal_buf b = { 0 };
	keyring((const char *)data, n);
	client((const char *)data, n);
	fal_key_encode(key, text);
	for (size_t i = 0; i < n; i++)
		if (data[i] == '@')
			fal_put_bytes(&b, text, FAL_KEY_TEXT);
		else
			fal_put_u8(&b, data[i]);
	keyring((const char *)b.p, b.n);
	client((const char *)b.p, b.n);
	fal_buf_free(&b);
	return 0;
}
