/* Places and their generations. */
#include "net/shelf.h"

#include "base/err.h"
#include "base/mem.h"
#include "net/area.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* In the head of the area: whom a place is given to.  It changes before the first byte of
 * the next one is written. */
struct head {
	_Atomic uint64_t generation[FAL_SHELF_SLOTS];
};

_Static_assert(sizeof(struct head) <= FAL_AREA_HEAD, "there is room");

struct fal_shelf {
	struct fal_area area;
	size_t each, stride;
	uint64_t taken, used; /* places, ever */
	struct {
		bool there;
		uint64_t version, generation, used;
	} slot[FAL_SHELF_SLOTS];
};

struct fal_shelf_view {
	struct fal_area area;
	size_t each, stride;
};

static size_t
stride(size_t bytes)
{
	const size_t page = FAL_AREA_HEAD;
	return bytes > SIZE_MAX / 2 / FAL_SHELF_SLOTS ? SIZE_MAX / FAL_SHELF_SLOTS
						      : (bytes + page - 1) / page * page;
}

int
fal_shelf_new(size_t bytes, struct fal_shelf **out)
{
	struct fal_shelf *s = fal_calloc(1, sizeof(*s));
	if (s == NULL)
		return FAL_ENOMEM;
	s->each = bytes;
	s->stride = stride(bytes);
	int err = fal_area_make(s->stride * FAL_SHELF_SLOTS, true, &s->area);
	if (err < 0) {
		free(s);
		return err;
	}
	*out = s;
	return FAL_OK;
}

void
fal_shelf_free(struct fal_shelf *s)
{
	if (s == NULL)
		return;
	fal_area_free(&s->area);
	free(s);
}

int
fal_shelf_fd(const struct fal_shelf *s)
{
	return s->area.fd;
}

size_t
fal_shelf_bytes(const struct fal_shelf *s)
{
	return s->each;
}

/* The place becomes another one's: who copies from it meanwhile will see that. */
static void
renew(struct fal_shelf *s, uint32_t slot)
{
	struct head *head = (struct head *)s->area.p;
	s->slot[slot].generation = ++s->taken;
	atomic_store_explicit(&head->generation[slot], s->taken, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

bool
fal_shelf_has(const struct fal_shelf *s, uint32_t slot, uint64_t version)
{
	return s->slot[slot].there && s->slot[slot].version == version;
}

uint32_t
fal_shelf_take(struct fal_shelf *s, uint64_t version)
{
	uint32_t at = 0;
	for (uint32_t i = 0; i < FAL_SHELF_SLOTS; i++) {
		if (fal_shelf_has(s, i, version)) {
			s->slot[i].used = ++s->used;
			return i;
		}
		if (s->slot[i].used < s->slot[at].used)
			at = i;
	}
	renew(s, at);
	s->slot[at].there = true;
	s->slot[at].version = version;
	s->slot[at].used = ++s->used;
	return at;
}

int
fal_shelf_put(struct fal_shelf *s, uint32_t slot, size_t at, const void *p, size_t n,
	      struct fal_where *out)
{
	if (at > s->each || n > s->each - at)
		return FAL_ELIMIT;
	if (n > 0)
		memcpy(s->area.p + FAL_AREA_HEAD + slot * s->stride + at, p, n);
	*out = (struct fal_where){ .at = at,
				   .generation = s->slot[slot].generation,
				   .n = (uint32_t)n,
				   .slot = slot };
	return FAL_OK;
}

int
fal_shelf_see(int fd, size_t bytes, struct fal_shelf_view **out)
{
	struct fal_shelf_view *v = fal_calloc(1, sizeof(*v));
	if (v == NULL)
		return FAL_ENOMEM;
	v->each = bytes;
	v->stride = stride(bytes);
	int err = fal_area_map(fd, v->stride * FAL_SHELF_SLOTS, true, &v->area);
	if (err < 0) {
		free(v);
		return err;
	}
	*out = v;
	return FAL_OK;
}

void
fal_shelf_view_free(struct fal_shelf_view *v)
{
	if (v == NULL)
		return;
	fal_area_free(&v->area);
	free(v);
}

int
fal_shelf_read(const struct fal_shelf_view *v, const struct fal_where *w, void *to)
{
	const struct head *head = (const struct head *)v->area.p;
	if (w->slot >= FAL_SHELF_SLOTS || w->at > v->each || w->n > v->each - w->at)
		return FAL_EFORMAT;
	if (w->n > 0)
		memcpy(to, v->area.p + FAL_AREA_HEAD + w->slot * v->stride + w->at, w->n);
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&head->generation[w->slot], memory_order_relaxed) ==
	       w->generation;
}
