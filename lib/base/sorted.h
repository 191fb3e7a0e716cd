/* Arrays of structs that begin with an id and stand in its order. */
#ifndef FAL_BASE_SORTED_H
#define FAL_BASE_SORTED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Where the element with `id`, a uint32_t, is among the n elements of `size` bytes at
 * `v`, or belongs: the first place whose id is not below it. */
static inline size_t
fal_sorted_place(const void *v, size_t n, size_t size, uint32_t id)
{
	size_t low = 0, high = n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		uint32_t at;
		memcpy(&at, (const char *)v + mid * size, sizeof(at));
		if (at < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The same, of ids that are uint64_t. */
static inline size_t
fal_sorted_place64(const void *v, size_t n, size_t size, uint64_t id)
{
	size_t low = 0, high = n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		uint64_t at;
		memcpy(&at, (const char *)v + mid * size, sizeof(at));
		if (at < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

#endif
