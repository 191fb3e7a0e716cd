/* Places count bytes since the ring began: a message lies where they wrap to, in one
 * piece. */
#include "net/ring.h"

#include "base/err.h"
#include "base/mem.h"
#include "net/area.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LINE 64 /* messages begin at such */

/* In the head of the area: up to where the receiver has taken all. */
struct head {
	_Atomic uint64_t taken;
};

struct fal_ring {
	struct fal_area area;
	uint64_t taken;
};

struct fal_ring_end {
	struct fal_area area;
	uint64_t put;
};

size_t
fal_ring_bytes(size_t version)
{
	const size_t n = version > FAL_RING_LEAST ? version : FAL_RING_LEAST;
	return n < FAL_RING_MOST ? (n + LINE - 1) / LINE * LINE : FAL_RING_MOST;
}

int
fal_ring_new(size_t bytes, struct fal_ring **out)
{
	assert(bytes > 0 && bytes % LINE == 0);
	struct fal_ring *r = fal_calloc(1, sizeof(*r));
	if (r == NULL)
		return FAL_ENOMEM;
	int err = fal_area_make(bytes, false, &r->area);
	if (err < 0) {
		free(r);
		return err;
	}
	*out = r;
	return FAL_OK;
}

void
fal_ring_free(struct fal_ring *r)
{
	if (r == NULL)
		return;
	fal_area_free(&r->area);
	free(r);
}

int
fal_ring_hand(struct fal_ring *r)
{
	const int fd = r->area.fd;
	r->area.fd = -1;
	return fd;
}

int
fal_ring_take(struct fal_ring *r, const struct fal_where *w, void *to)
{
	struct head *head = (struct head *)r->area.p;
	const size_t all = r->area.bytes, at = w->at % all;
	/* What was taken already is far beyond, as these are unsigned. */
	if (w->n > FAL_RECORD_MAX || w->n > all - at || w->at - r->taken > all)
		return FAL_EFORMAT;
	memcpy(to, r->area.p + FAL_AREA_HEAD + at, w->n);
	r->taken = w->at + w->n;
	atomic_store_explicit(&head->taken, r->taken, memory_order_release);
	return FAL_OK;
}

int
fal_ring_join(int fd, size_t bytes, struct fal_ring_end **out)
{
	if (bytes == 0 || bytes % LINE != 0)
		return FAL_EINVAL;
	struct fal_ring_end *e = fal_calloc(1, sizeof(*e));
	if (e == NULL)
		return FAL_ENOMEM;
	int err = fal_area_map(fd, bytes, false, &e->area);
	if (err < 0) {
		free(e);
		return err;
	}
	*out = e;
	return FAL_OK;
}

void
fal_ring_end_free(struct fal_ring_end *e)
{
	if (e == NULL)
		return;
	fal_area_free(&e->area);
	free(e);
}

bool
fal_ring_put(struct fal_ring_end *e, const void *p, size_t n, struct fal_where *out)
{
	struct head *head = (struct head *)e->area.p;
	const size_t all = e->area.bytes;
	const uint64_t taken = atomic_load_explicit(&head->taken, memory_order_acquire);
	uint64_t at = (e->put + LINE - 1) / LINE * LINE;
	if (n > all - at % all)
		at += all - at % all;
	if (n > all || at + n - taken > all)
		return false;
	memcpy(e->area.p + FAL_AREA_HEAD + at % all, p, n);
	e->put = at + n;
	*out = (struct fal_where){ .at = at, .n = (uint32_t)n };
	return true;
}
