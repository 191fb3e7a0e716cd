/* Arrays of structs that begin with an id, sorted by id; and arrays of pointers to
 * structs with an id, sorted by that id. */
#ifndef FAL_BASE_SORTED_H
#define FAL_BASE_SORTED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The index of the first of the n elements at `v` whose id is not below `id`; n: there is
 * none.  An element has `size` bytes, and its id is an integer of `id_bytes` bytes at
 * `offset`.  A size of 0: `v` has pointers to elements. */
static inline size_t
fal_sorted_place_of(const void *v, size_t n, size_t size, size_t offset, size_t id_bytes,
		    uint64_t id)
{
	const size_t step = size > 0 ? size : sizeof(void *);
	size_t low = 0, high = n;
	while (low < high) {
		const size_t mid = low + (high - low) / 2;
		const char *element = (const char *)v + mid * step;
		uint64_t at = 0;
		if (size == 0)
			memcpy(&element, element, step);
		memcpy(&at, element + offset, id_bytes);
		if (at < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* For ids of uint32_t, and of uint64_t. */
static inline size_t
fal_sorted_place(const void *v, size_t n, size_t size, uint32_t id)
{
	return fal_sorted_place_of(v, n, size, 0, sizeof(uint32_t), id);
}

static inline size_t
fal_sorted_place64(const void *v, size_t n, size_t size, uint64_t id)
{
	return fal_sorted_place_of(v, n, size, 0, sizeof(uint64_t), id);
}

#endif
