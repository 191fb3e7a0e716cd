/* Both readers of the handshake.  The input is a difference: it is XORed onto a true
 * message (and appended beyond it), so that much of the code behind the first check is
 * reached, and the verdict is known: only the true message may be accepted. */
#include "base/err.h"
#include "sec/noise.h"

#include <stdlib.h>
#include <string.h>

#define PAYLOAD "payload"
#define TRUE_N (sizeof(PAYLOAD) + FAL_NOISE_OVERHEAD)
#define MSG_MAX 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct fal_noise *
begin(enum fal_noise_side side)
{
	static const uint8_t secret[FAL_KEY_BYTES] = { 1 }, psk[FAL_KEY_BYTES] = { 2 };
	static const uint8_t e[2][FAL_KEY_BYTES] = { { 3 }, { 4 } };
	uint8_t public[FAL_KEY_BYTES];
	fal_noise_public(secret, public);
	const struct fal_noise_opt opt = {
		.side = side,
		.psk = psk,
		.static_key = side == FAL_NOISE_INITIATOR ? public : secret,
		.ephemeral = e[side],
	};
	struct fal_noise *ns;
	if (fal_noise_new(&opt, &ns) < 0)
		abort();
	return ns;
}

/* Reads the true message with the difference applied; true when the verdict is right. */
static bool
verdict(struct fal_noise *ns, const uint8_t *truth, const uint8_t *diff, size_t n)
{
	uint8_t msg[MSG_MAX] = { 0 }, payload[MSG_MAX];
	memcpy(msg, truth, TRUE_N);
	for (size_t i = 0; i < n; i++)
		msg[i] ^= diff[i];
	const size_t msg_n = n > TRUE_N ? n : TRUE_N;
	const bool same = msg_n == TRUE_N && memcmp(msg, truth, TRUE_N) == 0;
	int err = fal_noise_read(ns, msg, msg_n, payload);
	if (err == FAL_OK && memcmp(payload, PAYLOAD, sizeof(PAYLOAD)) != 0)
		return false;
	return err == (same ? FAL_OK : FAL_EAUTH);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const uint8_t zero[1];
	uint8_t one[TRUE_N], two[TRUE_N], raw[MSG_MAX];
	if (n > MSG_MAX)
		return -1;
	struct fal_noise *init = begin(FAL_NOISE_INITIATOR);
	struct fal_noise *resp = begin(FAL_NOISE_RESPONDER);
	struct fal_noise *victim = begin(FAL_NOISE_RESPONDER);
	struct fal_noise *strict = begin(FAL_NOISE_RESPONDER);
	if (fal_noise_write(init, PAYLOAD, sizeof(PAYLOAD), one) < 0 ||
	    !verdict(resp, one, zero, 0) || !verdict(victim, one, data, n) ||
	    fal_noise_write(resp, PAYLOAD, sizeof(PAYLOAD), two) < 0 ||
	    !verdict(init, two, data, n))
		abort();
	/* The bytes as they are, whatever their length. */
	if (fal_noise_read(strict, data, n, raw) == FAL_OK &&
	    (n != TRUE_N || memcmp(data, one, TRUE_N) != 0))
		abort();
	fal_noise_free(init);
	fal_noise_free(resp);
	fal_noise_free(victim);
	fal_noise_free(strict);
	return 0;
}
