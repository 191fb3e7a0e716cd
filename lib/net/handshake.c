/* Preambles, verdicts and the two Noise messages. */
#include "net/handshake.h"

#include "net/record.h"
#include "sec/noise.h"

#include <assert.h>
#include <string.h>

#define MAGIC "FALC"
#define MAGIC_N 4
#define VERSION_N 8                /* magic, major, minor */
#define PREAMBLE_N (VERSION_N + 2) /* suite, length of the name */
#define ANSWER_N (VERSION_N + 1)   /* verdict */

enum { VERDICT_OK = 0, VERDICT_VERSION = 1, VERDICT_SUITE = 2 };

_Static_assert(PREAMBLE_N + FAL_NAME_MAX + FAL_NOISE_OVERHEAD <= FAL_HANDSHAKE_MAX,
	       "the longest client fits");

struct fal_handshake {
	struct fal_noise *noise;
	char name[FAL_NAME_MAX + 1];
	char fingerprint[FAL_KEY_FINGERPRINT + 1];
};

static void
put_version(struct fal_buf *b)
{
	fal_put_bytes(b, MAGIC, MAGIC_N);
	fal_put_u16(b, FAL_NET_MAJOR);
	fal_put_u16(b, FAL_NET_MINOR);
}

/* Reads magic and version.  FAL_EFORMAT for a wrong byte even when others miss. */
static int
get_version(struct fal_rd *r, uint16_t *major, uint16_t *minor)
{
	if (memcmp(r->p, MAGIC, r->n < MAGIC_N ? r->n : MAGIC_N) != 0)
		return FAL_EFORMAT;
	(void)fal_get_bytes(r, MAGIC_N);
	*major = fal_get_u16(r);
	*minor = fal_get_u16(r);
	return r->err;
}

int
fal_handshake_begin(const struct fal_client_key *key, struct fal_buf *out,
		    struct fal_handshake **h)
{
	struct fal_handshake *hs = fal_secret_alloc(sizeof(*hs));
	if (hs == NULL)
		return FAL_ENOMEM;
	const size_t from = out->n, name_n = strlen(key->name);
	put_version(out);
	fal_put_u8(out, FAL_SUITE_CHACHA20_POLY1305);
	fal_put_u8(out, (uint8_t)name_n);
	fal_put_bytes(out, key->name, name_n);
	const size_t preamble_n = out->n - from;
	uint8_t *msg = fal_buf_room(out, FAL_NOISE_OVERHEAD);
	int err = FAL_ENOMEM;
	if (msg == NULL)
		goto free_hs;
	const struct fal_noise_opt opt = {
		.side = FAL_NOISE_INITIATOR,
		.prologue = out->p + from,
		.prologue_n = preamble_n,
		.psk = key->psk,
		.static_key = key->server,
	};
	err = fal_noise_new(&opt, &hs->noise);
	if (err < 0)
		goto free_hs;
	err = fal_noise_write(hs->noise, NULL, 0, msg);
	if (err < 0)
		goto free_noise;
	memcpy(hs->name, key->name, sizeof(hs->name));
	fal_key_fingerprint(key->psk, hs->fingerprint);
	*h = hs;
	return FAL_OK;
free_noise:
	fal_noise_free(hs->noise);
free_hs:
	fal_secret_free(hs);
	return err;
}

void
fal_handshake_free(struct fal_handshake *h)
{
	if (h == NULL)
		return;
	fal_noise_free(h->noise);
	fal_secret_free(h);
}

int
fal_handshake_finish(struct fal_handshake *h, const uint8_t *p, size_t n,
		     struct fal_session *s, struct fal_diag *diag)
{
	struct fal_rd r = fal_rd_init(p, n);
	uint16_t major, minor;
	int err = get_version(&r, &major, &minor);
	if (err == FAL_EFORMAT)
		return fal_diag_set(diag, err, "it does not speak Falcon's protocol");
	const uint8_t verdict = fal_get_u8(&r);
	if (r.err < 0)
		return FAL_ETRUNC;
	if (verdict == VERDICT_VERSION)
		return fal_diag_set(diag, FAL_EVERSION,
				    "it speaks protocol %u.%u, we speak %u.%u", major,
				    minor, FAL_NET_MAJOR, FAL_NET_MINOR);
	if (verdict == VERDICT_SUITE)
		return fal_diag_set(diag, FAL_EVERSION,
				    "it does not speak cipher suite %u",
				    FAL_SUITE_CHACHA20_POLY1305);
	if (verdict != VERDICT_OK || major != FAL_NET_MAJOR)
		return fal_diag_set(diag, FAL_EFORMAT, "its answer makes no sense to us");
	const uint8_t *msg = fal_get_bytes(&r, FAL_NOISE_OVERHEAD);
	if (msg == NULL)
		return FAL_ETRUNC;
	err = fal_noise_read(h->noise, msg, FAL_NOISE_OVERHEAD, NULL);
	if (err < 0)
		return fal_diag_set(diag, FAL_EAUTH, "%s", "it does not authenticate");
	struct fal_session new = { .used = n - r.n };
	uint8_t hash[FAL_NOISE_HASH];
	err = fal_noise_split(h->noise, FAL_SUITE_CHACHA20_POLY1305, &new.tx, &new.rx,
			      hash);
	if (err < 0)
		return fal_diag_set(diag, err, "%s", fal_strerror(err));
	memcpy(new.name, h->name, sizeof(new.name));
	memcpy(new.fingerprint, h->fingerprint, sizeof(new.fingerprint));
	*s = new;
	return FAL_OK;
}

/* Reads message 1 with each of the two keys; the first real one that fits goes to
 * `noise` and `which`. */
static int
try_keys(const struct fal_keyring *kr, const struct fal_key *const keys[static 2],
	 struct fal_noise_opt *opt, const uint8_t *msg, struct fal_noise **noise,
	 const struct fal_key **which)
{
	*noise = NULL;
	opt->static_key = fal_keyring_secret(kr);
	for (int i = 0; i < 2; i++) {
		struct fal_noise *ns;
		opt->psk = keys[i]->psk;
		int err = fal_noise_new(opt, &ns);
		if (err < 0) {
			fal_noise_free(*noise);
			return err;
		}
		err = fal_noise_read(ns, msg, FAL_NOISE_OVERHEAD, NULL);
		if (err == FAL_OK && keys[i]->line != 0 && *noise == NULL) {
			*noise = ns;
			*which = keys[i];
		} else {
			fal_noise_free(ns);
		}
	}
	return *noise != NULL ? FAL_OK : FAL_EAUTH;
}

/* Message 2, and the keys of the session. */
static int
accept_client(struct fal_noise *ns, struct fal_session *s, struct fal_buf *out)
{
	uint8_t hash[FAL_NOISE_HASH];
	put_version(out);
	fal_put_u8(out, VERDICT_OK);
	uint8_t *msg = fal_buf_room(out, FAL_NOISE_OVERHEAD);
	if (msg == NULL)
		return FAL_ENOMEM;
	int err = fal_noise_write(ns, NULL, 0, msg);
	if (err < 0)
		return err;
	return fal_noise_split(ns, FAL_SUITE_CHACHA20_POLY1305, &s->tx, &s->rx, hash);
}

static int
refuse(struct fal_buf *out, uint8_t verdict)
{
	put_version(out);
	fal_put_u8(out, verdict);
	return out->err < 0 ? out->err : FAL_EVERSION;
}

bool
fal_handshake_whole(const uint8_t *p, size_t n)
{
	return n >= PREAMBLE_N &&
	       n >= (size_t)PREAMBLE_N + p[PREAMBLE_N - 1] + FAL_NOISE_OVERHEAD;
}

int
fal_handshake_answer(const struct fal_keyring *kr, int64_t now, const uint8_t *p,
		     size_t n, struct fal_session *s, struct fal_buf *out,
		     struct fal_diag *diag)
{
	struct fal_rd r = fal_rd_init(p, n);
	uint16_t major, minor;
	int err = get_version(&r, &major, &minor);
	if (err == FAL_EFORMAT)
		return fal_diag_set(diag, err, "not Falcon's protocol");
	if (err < 0)
		return err;
	if (major != FAL_NET_MAJOR)
		return fal_diag_set(diag, refuse(out, VERDICT_VERSION),
				    "it speaks protocol %u.%u, we speak %u.%u", major,
				    minor, FAL_NET_MAJOR, FAL_NET_MINOR);
	const uint8_t suite = fal_get_u8(&r);
	const size_t name_n = fal_get_u8(&r);
	if (r.err == 0 && suite != FAL_SUITE_CHACHA20_POLY1305)
		return fal_diag_set(diag, refuse(out, VERDICT_SUITE),
				    "cipher suite %u is not spoken here", suite);
	if (name_n > FAL_NAME_MAX)
		return fal_diag_set(diag, FAL_EFORMAT, "its key's name is too long");
	const uint8_t *name = fal_get_bytes(&r, name_n);
	const uint8_t *msg = fal_get_bytes(&r, FAL_NOISE_OVERHEAD);
	if (r.err < 0)
		return r.err;

	struct fal_session new = { .used = n - r.n };
	memcpy(new.name, name, name_n);
	if (!fal_name_valid(new.name) || strlen(new.name) != name_n)
		return fal_diag_set(diag, FAL_EFORMAT, "its key's name is not a name");
	const struct fal_key *keys[2], *key;
	const int found = fal_keyring_find(kr, new.name, now, keys);
	struct fal_noise_opt opt = {
		.side = FAL_NOISE_RESPONDER,
		.prologue = p,
		.prologue_n = PREAMBLE_N + name_n,
	};
	struct fal_noise *ns;
	err = try_keys(kr, keys, &opt, msg, &ns, &key);
	if (err == FAL_EAUTH)
		return fal_diag_set(diag, err, "key '%s' %s", new.name,
				    found == FAL_ENOENT  ? "is not in the keyring"
				    : found == FAL_EPERM ? "has expired"
							 : "does not authenticate");
	if (err == FAL_OK) {
		err = accept_client(ns, &new, out);
		fal_noise_free(ns);
	}
	if (err < 0)
		return fal_diag_set(diag, err, "%s", fal_strerror(err));
	new.role = key->role;
	fal_key_fingerprint(key->psk, new.fingerprint);
	*s = new;
	return FAL_OK;
}
