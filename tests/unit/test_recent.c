/* The last measurements, against sorting them. */
#include "base/rng.h"
#include "sched/window_stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t seed;

static void
same(double got, double want, const char *what, uint32_t n)
{
	if (!(got == want))
		fail_msg("seed %u: %s of %u: got %.17g, want %.17g", (unsigned)seed, what,
			 n, got, want);
}

static int
by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double
naive_median(const double *of, uint32_t n)
{
	double v[FAL_WINDOW];
	for (uint32_t i = 0; i < n; i++)
		v[i] = of[i];
	qsort(v, n, sizeof(*v), by_size);
	return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* all: everything that was ever added. */
static void
check(struct fal_window *r, const double *all, uint32_t n)
{
	double off[FAL_WINDOW], mid;
	const uint32_t k = n < FAL_WINDOW ? n : FAL_WINDOW;
	mid = naive_median(all + n - k, k);
	for (uint32_t i = 0; i < k; i++)
		off[i] = fabs(all[n - k + i] - mid);
	fal_window_judge(r);
	same(r->median, mid, "mid", n);
	same(r->limit, mid + 6 * fmax(naive_median(off, k), 0.05 * mid), "most", n);
	for (uint32_t i = 0; i < k; i++)
		same(fal_window_ago(r, i), all[n - 1 - i], "ago", n);
}

/* Some of few values, so that many are equal; some that rise or fall. */
static void
draws(void **state)
{
	enum { SEEDS = 400, LENGTH = 60 };
	(void)state;
	for (seed = 0; seed < SEEDS; seed++) {
		struct fal_rng rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
		const uint32_t kind = fal_rng_below(&rng, 4);
		struct fal_window r = { 0 };
		double all[LENGTH];
		for (uint32_t n = 0; n < LENGTH; n++) {
			double x = (double)fal_rng_unit(&rng);
			if (kind == 0)
				x = fal_rng_below(&rng, 4);
			else if (kind == 1)
				x += n;
			else if (kind == 2)
				x -= n;
			all[n] = x;
			fal_window_add(&r, x);
			check(&r, all, n + 1);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(draws) };
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
