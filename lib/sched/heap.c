/* An indexed binary min-heap. */
#include "sched/heap.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

void
fal_heap_free(struct fal_heap *h)
{
	free(h->item);
	free(h->pos);
	*h = (struct fal_heap){ 0 };
}

void
fal_heap_clear(struct fal_heap *h)
{
	while (h->n > 0)
		h->pos[h->item[--h->n].id] = UINT32_MAX;
}

void
fal_heap_reserve(struct fal_heap *h, size_t ids)
{
	size_t items = h->ids, places = h->ids;
	FAL_XGROW(h->item, items, ids);
	FAL_XGROW(h->pos, places, ids);
	for (size_t i = h->ids; i < places; i++)
		h->pos[i] = UINT32_MAX;
	h->ids = places;
}

/* Smaller key first; equal keys by id, so that a run can be repeated exactly. */
static bool
item_is_before(struct fal_heap_item a, struct fal_heap_item b)
{
	return a.key < b.key || (a.key == b.key && a.id < b.id);
}

static void
heap_place(struct fal_heap *h, uint32_t at, struct fal_heap_item item)
{
	h->item[at] = item;
	h->pos[item.id] = at;
}

/* Puts `item` in its place: at `at`, above or below. */
static void
heap_sift(struct fal_heap *h, uint32_t at, struct fal_heap_item item)
{
	while (at > 0 && item_is_before(item, h->item[(at - 1) / 2])) {
		heap_place(h, at, h->item[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	for (;;) {
		uint32_t child = 2 * at + 1;
		if (child >= h->n)
			break;
		/* No branches here: a processor could not predict them. */
		const struct fal_heap_item *c = &h->item[child];
		if (child + 1 < h->n)
			child += (c[1].key < c->key) |
				 ((c[1].key == c->key) & (c[1].id < c->id));
		if (!item_is_before(h->item[child], item))
			break;
		heap_place(h, at, h->item[child]);
		at = child;
	}
	heap_place(h, at, item);
}

void
fal_heap_set(struct fal_heap *h, uint32_t id, double key)
{
	uint32_t at = h->pos[id];
	if (at == UINT32_MAX)
		at = h->n++;
	else if (h->item[at].key == key)
		return;
	heap_sift(h, at, (struct fal_heap_item){ key, id });
}

void
fal_heap_remove(struct fal_heap *h, uint32_t id)
{
	if (!fal_heap_has(h, id))
		return;
	uint32_t at = h->pos[id];
	h->pos[id] = UINT32_MAX;
	struct fal_heap_item last = h->item[--h->n];
	if (last.id != id)
		heap_sift(h, at, last);
}

double
fal_heap_second(const struct fal_heap *h)
{
	double one = h->n > 1 ? h->item[1].key : INFINITY;
	return h->n > 2 ? fmin(one, h->item[2].key) : one;
}
