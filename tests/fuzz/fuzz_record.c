/* A stranger's bytes: as a client's and a server's handshake, as heads of records, as an
 * address, and as records whose seals are right but whose inside may be anything. */
#include "net/addr.h"
#include "net/handshake.h"
#include "net/reader.h"
#include "net/writer.h"
#include "sec/noise.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* The public half of 32 bytes 6. */
#define OWN "9bLW5g+Ud+MQwpgtqqbJE2wQihd3xZR+RI+jfWgXRVc="
#define KEYRING                                                   \
	"c self AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n"   \
	"lab work AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\n" \
	"own work public:" OWN "\n"

static void
must(bool fact)
{
	if (!fact)
		abort();
}

/* What a client says that has the key `name`, of 32 bytes `byte`, and may say anything
 * with it: the bytes stand behind a right frame, under a right MAC. */
static void friend(const struct fal_keyring *kr, const char *name, int byte,
		   const uint8_t *p, size_t n)
{
	uint8_t raw[FAL_KEY_BYTES], key[FAL_MAC_KEY], mac[FAL_HANDSHAKE_MAC];
	struct fal_client_key mine = { 0 };
	struct fal_buf said = { 0 }, out = { 0 };
	struct fal_session s = { 0 };
	struct fal_greeting g;
	struct fal_diag d;
	if (n > FAL_HANDSHAKE_MAX - 14 - sizeof(mac))
		return;
	fal_put_bytes(&said, "FALC", 4);
	fal_put_u16(&said, n != 0 && p[0] == 255 ? 4 : FAL_PROTO_MAJOR);
	fal_put_u16(&said, 0);
	fal_put_u16(&said, (uint16_t)(4 + n + sizeof(mac)));
	fal_put_u8(&said, 3);
	fal_put_bytes(&said, name, 3);
	fal_put_bytes(&said, p, n);
	memset(raw, byte, sizeof(raw));
	memcpy(mine.server, fal_keyring_public(kr), FAL_KEY_BYTES);
	memcpy(mine.psk, raw, FAL_KEY_BYTES);
	if (name[0] == 'o')
		must(fal_client_key_static(&mine, raw) == 0);
	memcpy(key, mine.server, FAL_KEY_BYTES);
	memcpy(key + FAL_KEY_BYTES, mine.psk, FAL_KEY_BYTES);
	fal_mac("falcon hello", key, said.p, said.n, mac);
	fal_put_bytes(&said, mac, sizeof(mac));
	int err = fal_handshake_check(kr, 0, said.p, said.n, &g, NULL);
	must(err == FAL_OK || err == FAL_EFORMAT); /* no build can be read */
	if (err == FAL_OK)
		err = fal_handshake_answer(kr, &g, &s, &out, &d);
	must(err < 0); /* message 1 is sealed */
	must((out.n != 0) == (err == FAL_EVERSION));
	fal_buf_free(&said);
	fal_buf_free(&out);
}

static void
handshakes(const uint8_t *p, size_t n)
{
	static struct fal_keyring *kr;
	static const uint8_t secret[FAL_KEY_BYTES] = { 6 };
	struct fal_client_key key[2] = { { .name = "lab", .psk = { 1 } },
					 { .name = "own" } };
	struct fal_handshake *h;
	struct fal_session s = { 0 };
	struct fal_greeting g;
	if (kr == NULL)
		must(fal_keyring_parse(KEYRING, strlen(KEYRING), "k", &kr, NULL) == 0);
	must(fal_handshake_check(kr, 0, p, n, &g, NULL) < 0);
	friend(kr, "lab", 2, p, n);
	friend(kr, "own", 6, p, n);
	for (int i = 0; i < 2; i++) {
		struct fal_buf out = { 0 };
		key[i].server[0] = 9;
		if (i == 1)
			must(fal_client_key_static(&key[i], secret) == 0);
		must(fal_handshake_begin(&key[i], &out, &h) == 0);
		must(out.n <= FAL_HANDSHAKE_MAX);
		must(fal_handshake_finish(h, p, n, &s, NULL) < 0);
		fal_handshake_free(h);
		fal_buf_free(&out);
	}
}

static void
address(const uint8_t *p, size_t n)
{
	struct fal_addr a, b;
	char text[FAL_ADDR_MAX + 16], in[2048] = "";
	memcpy(in, p, n < sizeof(in) ? n : sizeof(in) - 1);
	if (fal_addr_parse(in, &a, NULL) < 0)
		return;
	fal_addr_format(&a, text);
	must(fal_addr_parse(text, &b, NULL) == 0);
	must(a.kind == b.kind && a.port == b.port && strcmp(a.what, b.what) == 0);
}

/* A record with this inside, sealed as it should be: flags by the first byte. */
static void
sealed(const uint8_t *p, size_t n)
{
	static const uint8_t key[FAL_KEY_BYTES] = { 5 };
	struct fal_seal tx, rx;
	const uint8_t *msg;
	size_t used, msg_n;
	if (n == 0 || n > FAL_RECORD_MAX)
		return;
	struct fal_reader *r = fal_reader_new();
	uint8_t *rec = malloc(FAL_RECORD_HEAD + n + FAL_SEAL_TAG);
	must(r != NULL && rec != NULL);
	must(fal_seal_init(&tx, FAL_SUITE_CHACHA20_POLY1305, key) == 0);
	must(fal_seal_init(&rx, FAL_SUITE_CHACHA20_POLY1305, key) == 0);
	fal_reader_key(r, &rx);
	memcpy(rec + FAL_RECORD_HEAD, p + 1, n - 1);
	const uint8_t flags = p[0] & FAL_RECORD_ZSTD;
	must(fal_record_seal(&tx, flags, rec, n - 1) == 0);
	const int got = fal_reader_next(r, rec, FAL_RECORD_HEAD + n - 1 + FAL_SEAL_TAG,
					&used, &msg, &msg_n);
	must(got == 1 || flags != 0);
	must(got < 0 || msg_n <= FAL_RECORD_MAX);
	must(flags != 0 || (msg_n == n - 1 && memcmp(msg, p + 1, n - 1) == 0));
	fal_seal_wipe(&tx);
	fal_reader_free(r);
	free(rec);
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_record rec;
	if (fal_record_peek(p, n, &rec) == 0)
		must(rec.head + rec.body <= n && rec.body >= FAL_SEAL_TAG &&
		     rec.body <= FAL_RECORD_MAX + FAL_SEAL_TAG);
	handshakes(p, n);
	address(p, n);
	sealed(p, n);
	return 0;
}
