/* bench_seal: records of 64 KiB and of 64 bytes, sealed and opened on one core by each
 * suite and library, as a ratio to the reference, libsodium's ChaCha20-Poly1305; and that
 * in GB/s and µs.  What is not here has no figure. */
#include "base/err.h"
#include "crypto/aead.h"

#include "bench.h"

#include <err.h>
#include <stdlib.h>

enum { ROUNDS = 9, LARGE = 65536, SMALL = 64 };

static uint8_t record[LARGE + FAL_SEAL_TAG];

/* The least time of a record: sealed, and opened again. */
static double
took(struct fal_aead *a, size_t n)
{
	static const uint8_t key[FAL_KEY_BYTES] = "of a bench";
	static uint64_t number;
	const int times = n == LARGE ? 64 : 4096;
	double least = 1e9;
	for (int round = 0; round < ROUNDS; round++) {
		const double from = now();
		for (int i = 0; i < times; i++) {
			const struct fal_aead_record r = { key, number++, key, 8 };
			if (fal_aead_seal(a, &r, record, n, record) < 0 ||
			    fal_aead_open(a, &r, record, n + FAL_SEAL_TAG, record) < 0)
				errx(1, "a record does not open");
		}
		const double s = (now() - from) / times;
		least = s < least ? s : least;
	}
	return least;
}

static void
measure(const char *name, uint8_t suite, enum fal_library library)
{
	struct fal_aead *a;
	if (fal_aead_new(suite, library, &a) < 0)
		return;
	/* In turns. */
	const double reference = took(NULL, LARGE), large = took(a, LARGE);
	const double short_one = took(NULL, SMALL), small = took(a, SMALL);
	figure(reference / large, "x", "seal.%s.64KiB", name);
	figure(short_one / small, "x", "seal.%s.64B", name);
	figure(2 * LARGE / large * 1e-9, "GB/s", "seal.%s.rate", name);
	figure(small * 1e6, "us", "seal.%s.each", name);
	fal_aead_free(a);
}

int
main(void)
{
	measure("chacha-sodium", FAL_SUITE_CHACHA20_POLY1305, FAL_LIBRARY_SODIUM);
	measure("chacha-crypto", FAL_SUITE_CHACHA20_POLY1305, FAL_LIBRARY_CRYPTO);
	measure("aes-sodium", FAL_SUITE_AES256_GCM, FAL_LIBRARY_SODIUM);
	measure("aes-crypto", FAL_SUITE_AES256_GCM, FAL_LIBRARY_CRYPTO);
	return 0;
}
