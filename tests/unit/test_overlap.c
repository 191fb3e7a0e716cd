/* What went on side by side, of drawn lines.  SEED: other ones. */
#include "../drawn.h"
#include "base/buf.h"
#include "base/err.h"
#include "trace/overlap.h"
#include "whole.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { LINES = 200, MOST = 1000 };

static int
take(void *arg, struct fal_trace_line *l)
{
	struct fal_overlap *o = arg;
	if (l->event == FAL_EV_CLOCK)
		return fal_overlap_clock(o, l);
	if (l->event == FAL_EV_LEDGER)
		fal_overlap_ledger(o, &l->is.ledger);
	else if (l->event == FAL_EV_UPDATE)
		fal_overlap_update(o, &l->is.update);
	return FAL_OK;
}

/* Reads the line; `b` is empty afterwards. */
static int
read_line(struct fal_overlap *o, struct fal_buf *b)
{
	static const char job[] = "{\"t\":0,\"ev\":\"job\"}\n";
	struct fal_trace_reader *r = fal_trace_reader_new(take, o);
	assert_non_null(r);
	fal_put_fmt(b, "}\n");
	assert_int_equal(whole_feed(r, job, strlen(job), NULL), FAL_OK);
	const int err = whole_feed(r, b->p, b->n, NULL);
	fal_trace_reader_free(r);
	fal_buf_clear(b);
	return err;
}

/* The microseconds in which both were going on, one by one. */
static uint64_t
both(const uint64_t a[static 2], const uint64_t b[static 2])
{
	uint64_t n = 0;
	for (uint64_t t = 0; t < MOST; t++)
		n += t >= a[0] && t < a[1] && t >= b[0] && t < b[1];
	return n;
}

static void
spans_are_added_up(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	struct fal_overlap o = { 0 }, want = { 0 };
	struct fal_buf b = { 0 };
	(void)state;
	for (int i = 0; i < LINES; i++) {
		uint64_t s[3][2];
		for (int k = 0; k < 3; k++) {
			s[k][0] = fal_rng_below(&r, MOST);
			s[k][1] = s[k][0] + fal_rng_below(&r, (uint32_t)(MOST - s[k][0]));
		}
		fal_put_fmt(&b, "{\"t\":1,\"ev\":\"clock\"");
		const uint64_t waited = fal_rng_below(&r, MOST);
		if (fal_rng_below(&r, 4) > 0) {
			fal_put_fmt(
				&b, ",\"spans\":[[%llu,%llu],[%llu,%llu],[%llu,%llu]]",
				(unsigned long long)s[0][0], (unsigned long long)s[0][1],
				(unsigned long long)s[1][0], (unsigned long long)s[1][1],
				(unsigned long long)s[2][0], (unsigned long long)s[2][1]);
			want.pull += s[0][1] - s[0][0];
			want.push += s[2][1] - s[2][0];
			fal_put_fmt(&b, ",\"waited\":%.6f", (double)waited * 1e-6);
			want.pulled +=
				both(s[0], s[1]) > waited ? both(s[0], s[1]) - waited : 0;
			want.pushed += both(s[2], s[1]);
		}
		assert_int_equal(read_line(&o, &b), FAL_OK);
	}
	assert_int_equal(o.pull, want.pull);
	assert_int_equal(o.push, want.push);
	assert_int_equal(o.pulled, want.pulled);
	assert_int_equal(o.pushed, want.pushed);
	fal_buf_free(&b);
}

/* Of the rounds since the update before. */
static void
versions_ahead(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	struct fal_overlap o = { 0 };
	uint64_t ahead = 0, versions = 0;
	struct fal_buf b = { 0 };
	(void)state;
	for (int i = 0; i < LINES; i++) {
		const uint32_t rounds = fal_rng_below(&r, 3),
			       made = 1 + fal_rng_below(&r, MOST);
		const bool several = fal_rng_below(&r, 2) == 0;
		uint32_t last = 0;
		for (uint32_t k = 0; k < rounds; k++) {
			const uint32_t came = 1 + fal_rng_below(&r, MOST);
			fal_put_fmt(&b, "{\"t\":1,\"ev\":\"ledger\",\"came\":%u", came);
			last = came > last ? came : last;
			assert_int_equal(read_line(&o, &b), FAL_OK);
		}
		fal_put_fmt(&b, "{\"t\":1,\"ev\":\"update\",\"version\":%d", i + 1);
		if (several)
			fal_put_fmt(&b, ",\"made\":%u", made);
		versions += several;
		ahead += several && made < last;
		assert_int_equal(read_line(&o, &b), FAL_OK);
	}
	assert_int_equal(o.versions, versions);
	assert_int_equal(o.ahead, ahead);
	fal_buf_free(&b);
}

static void
put_pull(struct fal_buf *b, uint64_t clock, uint64_t from)
{
	fal_put_fmt(b,
		    "{\"t\":1,\"ev\":\"clock\",\"clock\":%llu,\"waited\":0,"
		    "\"spans\":[[%llu,9000],[0,0],[0,0]]",
		    (unsigned long long)clock, (unsigned long long)from);
}

/* Of one shard, as workers tell it, before or after the round is over: whether the first
 * of them was sent some of the version before all of it had come. */
static void
versions_that_came_ahead(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	struct fal_overlap o = { 0 };
	struct fal_buf b = { 0 };
	uint64_t ahead = 0, versions = 0, came = 0; /* of the version of this clock */
	(void)state;
	for (uint64_t clock = 0; clock < LINES; clock++) {
		const uint32_t workers = fal_rng_below(&r, 3);
		const uint32_t sooner = fal_rng_below(&r, workers + 1);
		uint64_t first = 2 * MOST;
		for (uint32_t i = 0; i <= workers; i++) {
			const uint64_t from = fal_rng_below(&r, MOST);
			if (i == sooner) {
				fal_put_fmt(&b,
					    "{\"t\":1,\"ev\":\"ledger\",\"clock\":%llu,"
					    "\"version\":%llu,\"came\":%.6f",
					    (unsigned long long)clock,
					    (unsigned long long)clock,
					    (double)(clock + 1) * 5e-6);
				assert_int_equal(read_line(&o, &b), FAL_OK);
			}
			if (i == workers)
				break;
			first = from < first ? from : first;
			put_pull(&b, clock, from);
			assert_int_equal(read_line(&o, &b), FAL_OK);
		}
		versions += clock > 0 && workers > 0;
		ahead += clock > 0 && workers > 0 && first < came;
		came = 5 * (clock + 1);
		fal_put_fmt(&b, "{\"t\":1,\"ev\":\"update\",\"version\":%llu",
			    (unsigned long long)clock + 1);
		assert_int_equal(read_line(&o, &b), FAL_OK);
	}
	assert_int_equal(o.versions, versions);
	assert_int_equal(o.ahead, ahead);
	assert_true(ahead > 0 && ahead < versions);
	fal_buf_free(&b);
}

static void
nonsense_is_refused(void **state)
{
	static const struct {
		const char *spans;
		int err;
	} all[] = {
		{ "[[1,2],[3,4],[6,5]]", FAL_EINVAL },
		{ "[[1,2],[3,4]]", FAL_EFORMAT },
		{ "[[1,2],[3],[5,6]]", FAL_EFORMAT },
		{ "[]", FAL_EFORMAT },
		{ "7", FAL_EFORMAT },
	};
	struct fal_overlap o = { 0 };
	struct fal_buf b = { 0 };
	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		fal_put_fmt(&b, "{\"t\":1,\"ev\":\"clock\",\"waited\":0,\"spans\":%s",
			    all[i].spans);
		assert_int_equal(read_line(&o, &b), all[i].err);
	}
	assert_int_equal(o.pull + o.push, 0);
	fal_buf_free(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(spans_are_added_up),
					    cmocka_unit_test(versions_ahead),
					    cmocka_unit_test(versions_that_came_ahead),
					    cmocka_unit_test(nonsense_is_refused) };
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
