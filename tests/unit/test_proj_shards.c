/* Shards as a trace shows them, and as they are asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../drawn.h"
#include "proj/shards.h"

#include <math.h>

static void
near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-9 * fabs(want)))
		fail_msg("%.17g, not %.17g", got, want);
}

static double
sum(const struct fal_shards *s)
{
	double all = 0;
	for (uint32_t i = 0; i < s->n; i++)
		all += s->speed[i];
	return all;
}

/* Of blocks that took no time, or none that is known, nothing follows: such a shard is as
 * fast as the middle one; and so is one that no line is about. */
static void
unknown_ones_are_the_middle(void **state)
{
	(void)state;
	static struct fal_shard_rows rows;
	struct fal_shards s;
	rows.n = 5;
	const double took[] = { 1, 0, NAN, 4, 2 };
	for (uint32_t i = 0; i < rows.n; i++)
		rows.v[i] = (struct fal_shard_row){ .blocks = 8, .took = took[i] };
	fal_shards_seen(&rows, 6, &s);
	assert_int_equal(s.n, 6);
	near(sum(&s), 6);
	near(s.speed[0], 2 * s.speed[4]);
	near(s.speed[3], s.speed[4] / 2);
	for (uint32_t i = 0; i < 6; i++)
		if (i != 0 && i != 3)
			near(s.speed[i], s.speed[4]);
}

/* Who has no block has shown nothing, whatever it took; and if none has, all are alike.
 */
static void
none_is_known(void **state)
{
	(void)state;
	static struct fal_shard_rows rows;
	struct fal_shards s;
	rows.n = 3;
	for (uint32_t i = 0; i < rows.n; i++)
		rows.v[i] = (struct fal_shard_row){ .took = i };
	fal_shards_seen(&rows, 3, &s);
	for (uint32_t i = 0; i < 3; i++)
		near(s.speed[i], 1);
}

/* Whatever was measured: as fast together as so many, each by its blocks and seconds. */
static void
any_are_what_they_were(void **state)
{
	(void)state;
	static struct fal_shard_rows rows;
	struct fal_shards s;
	struct fal_rng r = fal_rng_init(drawn_seed(1), FAL_RNG_TEST, 0);
	rows.n = 1 + fal_rng_below(&r, FAL_SHARDS_PLAYED);
	for (uint32_t i = 0; i < rows.n; i++)
		rows.v[i] =
			(struct fal_shard_row){ .blocks = 1 + fal_rng_below(&r, 100),
						.took = 1e-6 + (double)fal_rng_unit(&r) };
	fal_shards_seen(&rows, rows.n, &s);
	near(sum(&s), rows.n);
	for (uint32_t i = 1; i < rows.n; i++)
		near(s.speed[i] * rows.v[i].took / (double)rows.v[i].blocks,
		     s.speed[0] * rows.v[0].took / (double)rows.v[0].blocks);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unknown_ones_are_the_middle),
		cmocka_unit_test(none_is_known),
		cmocka_unit_test(any_are_what_they_were),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
