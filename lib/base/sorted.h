/* Arrays of structs that begin with an id, sorted by id. */
#ifndef FAL_BASE_SORTED_H
#define FAL_BASE_SORTED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The index of the first of the n elements at `v` whose id is not below `id`; n: there is
 * none.  An element has `size` bytes and begins with its id, an integer of `id_bytes`
 * bytes. */
static inline size_t
fal_sorted_place_of(const void *v, size_t n, size_t size, size_t id_bytes, uint64_t id)
{
	size_t low = 0, high = n;
	while (low < high) {
		const size_t mid = low + (high - low) / 2;
		uint64_t at = 0;
		memcpy(&at, (const char *)v + mid * size, id_bytes);
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
	return fal_sorted_place_of(v, n, size, sizeof(uint32_t), id);
}

static inline size_t
fal_sorted_place64(const void *v, size_t n, size_t size, uint64_t id)
{
	return fal_sorted_place_of(v, n, size, sizeof(uint64_t), id);
}

#endif
