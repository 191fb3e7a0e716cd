/* The indexed heap against an array that is searched from one end to the other. */
#include "base/err.h"
#include "base/rng.h"
#include "sched/heap.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { IDS = 97 };

struct naive {
	bool has[IDS];
	double key[IDS];
};

static uint32_t
naive_top(const struct naive *n)
{
	uint32_t best = UINT32_MAX;
	for (uint32_t i = 0; i < IDS; i++)
		if (n->has[i] && (best == UINT32_MAX || n->key[i] < n->key[best]))
			best = i;
	return best;
}

static double
naive_second(const struct naive *n)
{
	double least = INFINITY;
	for (uint32_t i = 0; i < IDS; i++)
		if (n->has[i] && i != naive_top(n))
			least = fmin(least, n->key[i]);
	return least;
}

static void
same(uint32_t got, uint32_t want, const char *what, uint32_t step)
{
	if (got != want)
		fail_msg("%s in step %u: got %u, want %u", what, step, got, want);
}

static void
random_operations(void **state)
{
	(void)state;
	struct fal_heap h = { 0 };
	struct naive n = { 0 };
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 0);
	uint32_t count = 0, room = 0;
	for (uint32_t step = 0; step < 50000; step++) {
		uint32_t id = fal_rng_below(&r, IDS);
		if (id >= room) { /* grows while it is in use */
			room = id + 1;
			fal_heap_reserve(&h, room);
		}
		bool in = fal_rng_below(&r, 5) < 3;
		count += (uint32_t)in - (uint32_t)n.has[id];
		n.has[id] = in;
		/* Few keys, so that many are equal: the smaller id comes first then. */
		n.key[id] = fal_rng_below(&r, 40);
		if (in)
			fal_heap_set(&h, id, n.key[id]);
		else
			fal_heap_remove(&h, id);
		same(fal_heap_has(&h, id), in, "has", step);
		same(fal_heap_top(&h), naive_top(&n), "top", step);
		if (count > 0 && fal_heap_second(&h) != naive_second(&n))
			fail_msg("second in step %u: got %g, want %g", step,
				 fal_heap_second(&h), naive_second(&n));
		same(h.n, count, "size", step);
	}
	fal_heap_free(&h);
}

static void
empties_in_order(void **state)
{
	(void)state;
	struct fal_heap h = { 0 };
	struct fal_rng r = fal_rng_init(2, FAL_RNG_TEST, 0);
	fal_heap_reserve(&h, IDS);
	for (uint32_t i = 0; i < IDS; i++)
		fal_heap_set(&h, i, (double)fal_rng_unit(&r));
	double before = -1;
	for (uint32_t i = 0; i < IDS; i++) {
		uint32_t top = fal_heap_top(&h);
		double key = fal_heap_min_key(&h);
		if (key < before)
			fail_msg("key %g after %g", key, before);
		before = key;
		fal_heap_remove(&h, top);
	}
	same(fal_heap_top(&h), UINT32_MAX, "top when empty", 0);
	fal_heap_free(&h);
}

static void
empty_heap(void **state)
{
	(void)state;
	struct fal_heap h = { 0 };
	same(fal_heap_top(&h), UINT32_MAX, "top", 0);
	assert_false(fal_heap_has(&h, 3));
	fal_heap_remove(&h, 3); /* beyond its room, too */
	fal_heap_free(&h);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_operations),
		cmocka_unit_test(empties_in_order),
		cmocka_unit_test(empty_heap),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
