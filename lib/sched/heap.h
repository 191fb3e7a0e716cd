/* An indexed binary min-heap of small integers with double keys. */
#ifndef FAL_SCHED_HEAP_H
#define FAL_SCHED_HEAP_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fal_heap_item {
	double key;
	uint32_t id;
};

/* {0} is empty and valid. */
struct fal_heap {
	struct fal_heap_item *item; /* in heap order */
	uint32_t *pos;              /* by id: the index in `item`, or UINT32_MAX */
	uint32_t n;
	size_t ids; /* number of ids that the arrays have room for */
};

void fal_heap_free(struct fal_heap *h);

/* Removes all items; keeps the memory. */
void fal_heap_clear(struct fal_heap *h);

/* Makes room for ids below `ids`; call this before other calls with such ids. */
void fal_heap_reserve(struct fal_heap *h, size_t ids);

/* Inserts `id`, or moves it to its new key.  O(log n). */
void fal_heap_set(struct fal_heap *h, uint32_t id, double key);
/* Removes `id`, if present. */
void fal_heap_remove(struct fal_heap *h, uint32_t id);

static inline bool
fal_heap_has(const struct fal_heap *h, uint32_t id)
{
	return id < h->ids && h->pos[id] != UINT32_MAX;
}

/* The id with the smallest key, or UINT32_MAX when empty.  Of equal keys, the smallest
 * id. */
static inline uint32_t
fal_heap_top(const struct fal_heap *h)
{
	return h->n > 0 ? h->item[0].id : UINT32_MAX;
}

/* The smallest key, or infinity when empty. */
static inline double
fal_heap_min_key(const struct fal_heap *h)
{
	return h->n > 0 ? h->item[0].key : INFINITY;
}

/* The second smallest key, or infinity.  O(1). */
double fal_heap_second(const struct fal_heap *h);

#endif
