/* BLAKE2b (RFC 7693) of several messages at a time, one in each lane of a vector.
 * Messages of one length take the same steps; each digest equals libsodium's. */
#include "crypto/hash.h"

#include "base/vector.h"

#include <endian.h>
#include <string.h>

enum { LANES = 8, WORDS = 16, BYTES = WORDS * 8, ROUNDS = 12 };
enum { FEW = 2 }; /* up to so many messages are hashed faster one by one */

static const uint64_t iv[8] = { 0x6a09e667f3bcc908, 0xbb67ae8584caa73b,
				0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
				0x510e527fade682d1, 0x9b05688c2b3e6c1f,
				0x1f83d9abfb41bd6b, 0x5be0cd19137e2179 };

static const uint8_t sigma[10][WORDS] = {
	{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	{ 14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3 },
	{ 11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4 },
	{ 7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8 },
	{ 9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13 },
	{ 2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9 },
	{ 12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11 },
	{ 13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10 },
	{ 6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5 },
	{ 10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0 }
};

/* A word of the state of each message. */
typedef uint64_t word[LANES];

struct wide {
	word h[8];
	uint64_t count; /* bytes of each so far */
};

static inline __attribute__((always_inline)) uint64_t
rotated(uint64_t v, unsigned by)
{
	return v >> by | v << (64 - by);
}

/* The RFC's G. */
static inline __attribute__((always_inline)) void
mix(word a, word b, word c, word d, const word x, const word y)
{
	for (unsigned l = 0; l < LANES; l++) {
		uint64_t p = a[l], q = b[l], r = c[l], s = d[l];
		p += q + x[l];
		s = rotated(s ^ p, 32);
		r += s;
		q = rotated(q ^ r, 24);
		p += q + y[l];
		s = rotated(s ^ p, 16);
		r += s;
		q = rotated(q ^ r, 63);
		a[l] = p;
		b[l] = q;
		c[l] = r;
		d[l] = s;
	}
}

/* The RFC's F, on a block of each message. */
FAL_VECTOR static void
compress(struct wide *w, const word m[static WORDS], uint64_t last)
{
	word v[WORDS];
	for (unsigned l = 0; l < LANES; l++)
		for (unsigned i = 0; i < 8; i++) {
			v[i][l] = w->h[i][l];
			v[i + 8][l] = iv[i];
		}
	for (unsigned l = 0; l < LANES; l++) {
		v[12][l] ^= w->count;
		v[14][l] ^= last;
	}
	for (unsigned r = 0; r < ROUNDS; r++) {
		const uint8_t *s = sigma[r % 10];
		mix(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
		mix(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
		mix(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
		mix(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
		mix(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
		mix(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
		mix(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
		mix(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
	}
	for (unsigned i = 0; i < 8; i++)
		for (unsigned l = 0; l < LANES; l++)
			w->h[i][l] ^= v[i][l] ^ v[i + 8][l];
}

/* Sets one lane to the words of `n` bytes; the rest of the block is 0. */
static void
put_lane(word m[static WORDS], unsigned lane, const uint8_t *p, size_t n)
{
	uint8_t block[BYTES] = { 0 };
	uint64_t le;
	if (n < BYTES && n > 0) /* with n = 0, p may be NULL */
		p = memcpy(block, p, n);
	for (unsigned i = 0; i < WORDS; i++) {
		memcpy(&le, (n > 0 ? p : block) + 8 * i, sizeof(le));
		m[i][lane] = le64toh(le);
	}
}

static void
wide_begin(struct wide *w, const char *label)
{
	uint8_t param[64] = { FAL_HASH_BYTES, 0, 1, 1 };
	uint64_t le;
	memcpy(param + 48, label, strnlen(label, FAL_MAC_LABEL));
	w->count = 0;
	for (unsigned i = 0; i < 8; i++) {
		memcpy(&le, param + 8 * i, sizeof(le));
		for (unsigned l = 0; l < LANES; l++)
			w->h[i][l] = iv[i] ^ le64toh(le);
	}
}

/* Hashes the messages at p[0 … LANES - 1]. */
static void
wide_update(struct wide *w, const uint8_t *const p[static LANES], size_t bytes)
{
	word m[WORDS];
	do {
		const size_t left = bytes - w->count, n = left < BYTES ? left : BYTES;
		for (unsigned l = 0; l < LANES; l++)
			put_lane(m, l, p[l] + w->count, n);
		w->count += n;
		compress(w, m, w->count == bytes ? UINT64_MAX : 0);
	} while (w->count < bytes);
}

/* Hashes n messages, at most LANES. */
static void
hash_lanes(const char *label, const uint8_t *p, size_t bytes, size_t n, uint8_t *out)
{
	const uint8_t *at[LANES];
	struct wide w;
	/* Unused lanes repeat the first message. */
	for (size_t l = 0; l < LANES; l++)
		at[l] = p + (l < n ? l : 0) * bytes;
	wide_begin(&w, label);
	wide_update(&w, at, bytes);
	for (size_t l = 0; l < n; l++)
		for (unsigned i = 0; i < FAL_HASH_BYTES / 8; i++) {
			const uint64_t le = htole64(w.h[i][l]);
			memcpy(out + l * FAL_HASH_BYTES + 8 * i, &le, sizeof(le));
		}
}

void
fal_hash_many(const char *label, const void *messages, size_t bytes, size_t n,
	      uint8_t *out)
{
	const uint8_t *p = messages;
	while (n > 0) {
		const size_t now = n <= FEW ? 1 : n < LANES ? n : LANES;
		if (now == 1) {
			struct fal_hash_state s;
			fal_hash_label(&s, label);
			fal_hash_update(&s, p, bytes);
			fal_hash_final(&s, out);
		} else {
			hash_lanes(label, p, bytes, now, out);
		}
		p += now * bytes;
		out += now * FAL_HASH_BYTES;
		n -= now;
	}
}
