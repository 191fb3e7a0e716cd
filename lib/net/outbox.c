/* Batches, and how quickly they are taken. */
#include "net/outbox.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define RATE_BATCH ((size_t)32 << 10)  /* of batches that are at least as large */
#define RATE_BYTES ((uint64_t)1 << 20) /* a rate is taken after so many bytes, */
#define RATE_NS 20000000u              /* or so much time */

struct fal_outbox {
	struct fal_piece piece[FAL_OUTBOX_PIECES];
	unsigned n;
	size_t bytes, own, taken;
	uint64_t begun;
	uint64_t tx;
	uint64_t rate_bytes, rate_ns; /* of the running measurement */
	double rate;
};

struct fal_outbox *
fal_outbox_new(void)
{
	return fal_calloc(1, sizeof(struct fal_outbox));
}

void
fal_outbox_drop(struct fal_outbox *b)
{
	for (unsigned i = 0; i < b->n; i++)
		fal_piece_free(&b->piece[i]);
	b->n = 0;
	b->bytes = b->own = b->taken = 0;
}

void
fal_outbox_free(struct fal_outbox *b)
{
	if (b == NULL)
		return;
	fal_outbox_drop(b);
	free(b);
}

int
fal_outbox_fill(struct fal_outbox *b, struct fal_writer *w, size_t limit, double rate)
{
	while (b->n < FAL_OUTBOX_PIECES && b->bytes < limit) {
		struct fal_piece *piece = &b->piece[b->n];
		const int got = fal_writer_next(w, rate, piece);
		if (got <= 0)
			return got;
		b->n++;
		b->bytes += piece->n;
		b->own += piece->node != NULL ? piece->n : 0;
	}
	return FAL_OK;
}

size_t
fal_outbox_bytes(const struct fal_outbox *b)
{
	return b->bytes;
}

size_t
fal_outbox_own(const struct fal_outbox *b)
{
	return b->own;
}

unsigned
fal_outbox_bufs(const struct fal_outbox *b, uv_buf_t out[FAL_OUTBOX_PIECES])
{
	size_t skip = b->taken;
	unsigned n = 0;
	for (unsigned i = 0; i < b->n; i++) {
		const struct fal_piece *piece = &b->piece[i];
		if (skip >= piece->n) {
			skip -= piece->n;
			continue;
		}
		/* libuv's buffers are not const, even to be written from. */
		out[n].base = (char *)(uintptr_t)piece->p + skip;
		out[n++].len = piece->n - skip;
		skip = 0;
	}
	return n;
}

void
fal_outbox_copy(const struct fal_outbox *b, char *out)
{
	for (unsigned i = 0; i < b->n; out += b->piece[i++].n)
		memcpy(out, b->piece[i].p, b->piece[i].n);
}

void
fal_outbox_offered(struct fal_outbox *b)
{
	b->begun = uv_hrtime();
}

/* From when it was offered to now is what the link needed. */
static void
measure(struct fal_outbox *b, size_t bytes)
{
	/* A small one tells of wake-ups, not of the link. */
	if (bytes < RATE_BATCH)
		return;
	b->rate_bytes += bytes;
	b->rate_ns += uv_hrtime() - b->begun;
	if (b->rate_bytes < RATE_BYTES && b->rate_ns < RATE_NS)
		return;
	const double rate = (double)b->rate_bytes / ((double)(b->rate_ns + 1) * 1e-9);
	b->rate = b->rate > 0 ? 0.75 * b->rate + 0.25 * rate : rate;
	b->rate_bytes = b->rate_ns = 0;
}

void
fal_outbox_taken(struct fal_outbox *b)
{
	const size_t bytes = b->bytes;
	fal_outbox_drop(b);
	b->tx += bytes;
	measure(b, bytes);
}

void
fal_outbox_took(struct fal_outbox *b, size_t n)
{
	b->taken += n;
	if (b->taken == b->bytes)
		fal_outbox_taken(b);
}

uint64_t
fal_outbox_tx(const struct fal_outbox *b)
{
	return b->tx;
}

double
fal_outbox_rate(const struct fal_outbox *b)
{
	return b->rate;
}

size_t
fal_outbox_limit(const struct fal_outbox *b)
{
	const double n = b->rate * FAL_OUTBOX_S;
	if (b->rate <= 0 || n >= (double)FAL_OUTBOX_MAX)
		return FAL_OUTBOX_MAX;
	return n < (double)FAL_OUTBOX_SMALL ? FAL_OUTBOX_SMALL : (size_t)n;
}
