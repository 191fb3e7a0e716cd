/* Both readers of the handshake, in both patterns.  The input is a difference: it is
 * XORed onto a true message (and appended beyond it), so that much of the code behind the
 * first check is reached, and the verdict is known: only the true message may be
 * accepted. */
#include "base/err.h"
#include "crypto/noise.h"

#include <stdlib.h>
#include <string.h>

#define PAYLOAD "payload"
#define TRUE_MAX (sizeof(PAYLOAD) + FAL_NOISE_OVERHEAD + FAL_NOISE_STATIC)
#define MSG_MAX 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct fal_noise *
begin(enum fal_noise_pattern pattern, enum fal_noise_side side)
{
	static const uint8_t secret[FAL_KEY_BYTES] = { 1 }, psk[FAL_KEY_BYTES] = { 2 };
	static const uint8_t e[2][FAL_KEY_BYTES] = { { 3 }, { 4 } };
	static const uint8_t client[FAL_KEY_BYTES] = { 5 };
	uint8_t public[FAL_KEY_BYTES], client_public[FAL_KEY_BYTES];
	fal_noise_derive_public(secret, public);
	fal_noise_derive_public(client, client_public);
	const bool initiator = side == FAL_NOISE_INITIATOR;
	const struct fal_noise_opt opt = {
		.side = side,
		.pattern = pattern,
		.psk = psk,
		.static_key = initiator ? public : secret,
		.client_key = pattern == FAL_NOISE_NKPSK0 ? NULL
			      : initiator                 ? client
							  : client_public,
		.ephemeral = e[side],
	};
	struct fal_noise *ns;
	ns = fal_noise_new(&opt);
	return ns;
}

/* Reads the true message with the difference applied; true when the verdict is right. */
static bool
verdict(struct fal_noise *ns, const uint8_t *truth, size_t true_n, const uint8_t *diff,
	size_t n)
{
	uint8_t msg[MSG_MAX] = { 0 }, payload[MSG_MAX];
	memcpy(msg, truth, true_n);
	for (size_t i = 0; i < n; i++)
		msg[i] ^= diff[i];
	const size_t msg_n = n > true_n ? n : true_n;
	const bool same = msg_n == true_n && memcmp(msg, truth, true_n) == 0;
	int err = fal_noise_read(ns, msg, msg_n, payload);
	if (err == FAL_OK && memcmp(payload, PAYLOAD, sizeof(PAYLOAD)) != 0)
		return false;
	return err == (same ? FAL_OK : FAL_EAUTH);
}

static void
try(enum fal_noise_pattern pattern, const uint8_t *data, size_t n)
{
	static const uint8_t zero[1];
	const size_t n1 = sizeof(PAYLOAD) + fal_noise_overhead(pattern, 1);
	const size_t n2 = sizeof(PAYLOAD) + fal_noise_overhead(pattern, 2);
	uint8_t one[TRUE_MAX], two[TRUE_MAX], raw[MSG_MAX];
	struct fal_noise *init = begin(pattern, FAL_NOISE_INITIATOR);
	struct fal_noise *resp = begin(pattern, FAL_NOISE_RESPONDER);
	struct fal_noise *victim = begin(pattern, FAL_NOISE_RESPONDER);
	struct fal_noise *strict = begin(pattern, FAL_NOISE_RESPONDER);
	if (fal_noise_write(init, PAYLOAD, sizeof(PAYLOAD), one) < 0 ||
	    !verdict(resp, one, n1, zero, 0) || !verdict(victim, one, n1, data, n) ||
	    fal_noise_write(resp, PAYLOAD, sizeof(PAYLOAD), two) < 0 ||
	    !verdict(init, two, n2, data, n))
		abort();
	/* The bytes as they are, whatever their length. */
	if (fal_noise_read(strict, data, n, raw) == FAL_OK &&
	    (n != n1 || memcmp(data, one, n1) != 0))
		abort();
	fal_noise_free(init);
	fal_noise_free(resp);
	fal_noise_free(victim);
	fal_noise_free(strict);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n > MSG_MAX)
		return -1;
	try(FAL_NOISE_NKPSK0, data, n);
	try(FAL_NOISE_IK, data, n);
	return 0;
}
