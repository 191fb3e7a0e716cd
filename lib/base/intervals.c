/* Sorted intervals of numbers; intervals that touch are merged. */
#include "base/intervals.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/sorted.h"

#include <stdlib.h>
#include <string.h>

/* The index of the first interval that does not end before `at`. */
static size_t
interval_index(const struct fal_intervals *s, uint64_t at)
{
	return s->n == 0 ? 0 : fal_sorted_place64(&s->v->end, s->n, sizeof(*s->v), at);
}

int
fal_intervals_add(struct fal_intervals *s, uint64_t begin, uint64_t end, uint64_t *twice)
{
	size_t at = interval_index(s, begin), last = at;
	int overlap = 0;
	if (begin >= end)
		return 0;
	if (at == s->n || s->v[at].begin > end) { /* touches no interval */
		if (s->n == FAL_INTERVALS_MAX)
			return FAL_ELIMIT;
		if (FAL_GROW(s->v, s->cap, s->n + 1) < 0)
			return FAL_ENOMEM;
		memmove(&s->v[at + 1], &s->v[at], (s->n - at) * sizeof(*s->v));
		s->v[at] = (struct fal_interval){ begin, end };
		s->n++;
		return 0;
	}
	/* The intervals at … last-1 touch the new one, and are merged with it. */
	for (; last < s->n && s->v[last].begin <= end; last++) {
		const struct fal_interval *v = &s->v[last];
		if (overlap == 0 && v->begin < end && v->end > begin) {
			overlap = 1;
			*twice = v->begin > begin ? v->begin : begin;
		}
	}
	if (s->v[at].begin > begin)
		s->v[at].begin = begin;
	s->v[at].end = s->v[last - 1].end > end ? s->v[last - 1].end : end;
	memmove(&s->v[at + 1], &s->v[last], (s->n - last) * sizeof(*s->v));
	s->n -= last - at - 1;
	return overlap;
}

bool
fal_intervals_has(const struct fal_intervals *s, uint64_t number)
{
	const size_t at = interval_index(s, number + 1);
	return at < s->n && s->v[at].begin <= number;
}

uint64_t
fal_intervals_first_gap(const struct fal_intervals *s)
{
	return s->n > 0 && s->v[0].begin == 0 ? s->v[0].end : 0;
}

void
fal_intervals_free(struct fal_intervals *s)
{
	free(s->v);
	*s = (struct fal_intervals){ 0 };
}
