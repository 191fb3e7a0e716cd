/* A set of integers as sorted intervals, for numbers that come almost in order. */
#ifndef FAL_BASE_INTERVALS_H
#define FAL_BASE_INTERVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most intervals of a set: 64 MiB. */
#define FAL_INTERVALS_MAX ((size_t)1 << 22)

/* {0} is empty and valid. */
struct fal_intervals {
	struct fal_interval {
		uint64_t begin, end; /* end not included */
	} *v;
	size_t n, cap;
};

/* Adds begin … end-1.  Returns 0; 1: the set had some of these numbers, and *twice is the
 * first of them; FAL_ELIMIT or FAL_ENOMEM. */
int fal_intervals_add(struct fal_intervals *s, uint64_t begin, uint64_t end,
		      uint64_t *twice);
bool fal_intervals_has(const struct fal_intervals *s, uint64_t number);
/* The smallest number that is not in the set. */
uint64_t fal_intervals_first_gap(const struct fal_intervals *s);
void fal_intervals_free(struct fal_intervals *s);

#endif
