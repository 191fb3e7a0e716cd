/* Arrays of structs that begin with an id and stand in its order. */
#ifndef FAL_BASE_SORTED_H
#define FAL_BASE_SORTED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns the place of the element with `id`, an integer of `id_bytes` bytes, among the n
 * elements of `size` bytes at `v`, or the place where it belongs: the first one whose id
 * is not below `id`. */
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

/* Ids that are uint32_t, and uint64_t. */
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
