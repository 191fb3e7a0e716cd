/* What falcon-stat --recompute takes from a trace (falcon-stat(1), Computing anew): which
 * clocks can be computed anew, on what, by whose numerics; drawn traces.
 * SEED: other ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../cmd/falcon-stat/recompute_priv.h"
#include "../drawn.h"
#include "base/err.h"
#include "whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 500, CLOCKS = 12, WORKERS = 4, LINE = 64 };

static struct fal_rng rng;

static int
begin(void **state)
{
	(void)state;
	rng = fal_rng_init(drawn_seed(1), FAL_RNG_TEST, 0);
	return 0;
}

/* A run, and what of each clock is so by what its lines say. */
struct run {
	struct fal_buf text;
	const char *scheme;
	bool lawful;
	unsigned print[WORKERS]; /* of worker i + 1 */
	struct told {
		enum course_status why;
		bool over, hashed;
		uint64_t on;
		unsigned maker; /* the first contributor's numerics */
		size_t lines;   /* ledger lines that are no abandoned round's */
	} told[CLOCKS];
};

static void
put_ledger(struct run *w, uint64_t clock, const char *end, const unsigned *by, size_t n)
{
	struct fal_buf *b = &w->text;
	fal_put_fmt(b,
		    "{\"t\":1,\"ev\":\"ledger\",\"clock\":%llu,\"version\":%llu,"
		    "\"tasks\":2,\"samples\":16,\"blocks\":1,\"grant\":[],"
		    "\"move\":[],\"clone\":[],\"regrant\":[],\"lost\":[],%s\"contrib\":[",
		    (unsigned long long)clock, (unsigned long long)w->told[clock].on,
		    end);
	for (size_t i = 0; i < n; i++)
		fal_put_fmt(b, "%s{\"c\":[%u,%llu],\"tasks\":[[%zu,1]],\"blocks\":1}",
			    i > 0 ? "," : "", by[i] + 1, (unsigned long long)clock, i);
	fal_put_fmt(b, "]}\n");
}

static void
put_clock(struct run *w, uint64_t clock)
{
	struct told *t = &w->told[clock];
	struct fal_buf *b = &w->text;
	const unsigned by[2] = { fal_rng_below(&rng, WORKERS),
				 fal_rng_below(&rng, WORKERS) };
	const bool mixed = w->print[by[0]] != w->print[by[1]];
	t->over = !one_in(&rng, 8);
	t->hashed = one_in(&rng, 2);
	t->on = clock > 0 ? clock - fal_rng_below(&rng, 2) : 0;
	if (one_in(&rng, 4)) /* who left did not make the clock */
		put_ledger(w, clock, "\"end\":\"abandoned\",", by, 1);
	if (!t->over)
		return;
	put_ledger(w, clock, "", by, 2);
	fal_put_fmt(b,
		    "{\"t\":1,\"ev\":\"update\",\"version\":%llu,\"clock\":%llu,"
		    "\"samples\":16,\"loss\":0.5,\"lr\":0.%llu,\"epoch\":1",
		    (unsigned long long)(clock + 1), (unsigned long long)clock,
		    (unsigned long long)(clock + 1));
	if (t->hashed)
		fal_put_fmt(b, ",\"hash\":\"%064llx\"", (unsigned long long)clock + 7);
	fal_put_fmt(b, "}\n");
	t->maker = w->print[by[0]];
	t->lines = 1;
	t->why = !w->lawful ? COURSE_UNLAWFUL : mixed ? COURSE_MIXED : COURSE_COMPUTABLE;
}

static void
draw_run(struct run *w)
{
	static const char *const schemes[] = { "epsp", "bsp", "ssp:2", "asp" };
	const uint32_t prints = 1 + fal_rng_below(&rng, 2);
	const uint32_t which = fal_rng_below(&rng, 4);
	*w = (struct run){ .scheme = schemes[which], .lawful = which < 2 };
	fal_put_fmt(&w->text,
		    "{\"t\":0,\"ev\":\"job\",\"name\":\"j\",\"hash\":\"ab\",\"epochs\":1,"
		    "\"batch\":16,\"task\":8,\"samples\":%d,\"blocks\":1,"
		    "\"clocks_per_epoch\":%d,\"clocks\":%d,\"scheme\":\"%s\","
		    "\"audit\":\"claims\"}\n",
		    16 * CLOCKS, CLOCKS, CLOCKS, w->scheme);
	for (unsigned i = 0; i < WORKERS; i++) {
		w->print[i] = 1 + (i > 0 ? fal_rng_below(&rng, prints) : 0);
		fal_put_fmt(&w->text,
			    "{\"t\":0.5,\"ev\":\"join\",\"worker\":\"w%u\",\"id\":%u,"
			    "\"key\":\"k%u\",\"fingerprint\":\"print%u\"}\n",
			    i, i + 1, i, w->print[i]);
	}
	for (uint64_t i = 0; i < CLOCKS; i++) {
		w->told[i].why = COURSE_UNKNOWN;
		put_clock(w, i);
	}
}

static void
read_run(struct course *c, const struct run *w)
{
	struct fal_diag why = { "" };
	struct fal_trace_reader *r = fal_trace_reader_new(course_line, c);
	assert_non_null(r);
	c->counted = 0;
	int err = whole_feed(r, w->text.p, w->text.n, &why);
	if (err == FAL_OK)
		err = fal_trace_end(r, &why);
	if (err < 0)
		fail_msg("%s", why.text);
	fal_trace_reader_free(r);
}

static void
check_clock(const struct course *c, const struct run *w, uint64_t clock)
{
	const struct course_clock *at = &c->clock[clock];
	const struct told *t = &w->told[clock];
	char print[LINE];
	uint8_t hash[FAL_HASH_BYTES] = { 0 };
	if (at->why != t->why)
		fail_msg("clock %llu of %s: %d, not %d", (unsigned long long)clock,
			 w->scheme, at->why, t->why);
	assert_int_equal(at->version, t->over ? clock + 1 : 0);
	if (!t->over)
		return;
	assert_int_equal(at->base, t->on);
	assert_int_equal(at->total, CLOCKS);
	assert_int_equal(at->has_hash, t->hashed);
	hash[FAL_HASH_BYTES - 1] = (uint8_t)(clock + 7);
	if (t->hashed)
		assert_memory_equal(at->hash, hash, sizeof(hash));
	snprintf(print, sizeof(print), "print%u", t->maker);
	assert_true(at->fingerprint > 0 && at->fingerprint <= c->fingerprints);
	assert_string_equal(c->fingerprint[at->fingerprint - 1], print);
}

static void
each_clock_is_what_its_lines_say(void **state)
{
	(void)state;
	unsigned why[COURSE_MIXED + 1] = { 0 };
	for (int s = 0; s < SEEDS; s++) {
		struct run w;
		struct course c = { 0 };
		uint64_t late = 0;
		draw_run(&w);
		read_run(&c, &w);
		for (uint64_t i = 0; i < c.clocks; i++) {
			const struct told *t = &w.told[i];
			check_clock(&c, &w, i);
			why[t->why]++;
			if (t->why == COURSE_COMPUTABLE && i + 1 - t->on > late)
				late = i + 1 - t->on;
		}
		for (uint64_t i = c.clocks; i < CLOCKS; i++)
			assert_int_equal(w.told[i].why, COURSE_UNKNOWN);
		assert_int_equal(c.delay, late);
		course_free(&c);
		fal_buf_free(&w.text);
	}
	for (size_t i = 0; i <= COURSE_MIXED; i++)
		assert_true(why[i] > 0);
}

/* The lines that are compared are of the clocks that are wanted, and of no round that
 * nobody ended. */
static void
lines_that_are_wanted_are_kept(void **state)
{
	(void)state;
	for (int s = 0; s < SEEDS; s++) {
		struct run w;
		struct course c = { 0 };
		draw_run(&w);
		read_run(&c, &w);
		for (size_t i = 0; i < c.clocks; i++)
			c.clock[i].is_wanted = one_in(&rng, 2);
		c.second_pass = true;
		read_run(&c, &w);
		for (uint64_t i = 0; i < c.clocks; i++) {
			const struct course_clock *at = &c.clock[i];
			assert_int_equal(at->lines, at->is_wanted ? w.told[i].lines : 0);
			assert_int_equal(at->why, w.told[i].why);
			if (at->lines > 0)
				assert_int_equal(at->line[0]->is.ledger.clock, i);
		}
		course_free(&c);
		fal_buf_free(&w.text);
	}
}

/* A snapshot is of this trace where the trace had its link after so many lines. */
static void
a_snapshot_is_of_the_trace_that_has_its_link(void **state)
{
	(void)state;
	static const char text[] =
		"{\"t\":0,\"ev\":\"job\",\"name\":\"j\",\"epochs\":1,\"batch\":16,"
		"\"task\":8,\"samples\":16,\"blocks\":1,\"clocks_per_epoch\":1,"
		"\"clocks\":1,\"scheme\":\"epsp\",\"audit\":\"claims\"}\n"
		"{\"t\":1,\"ev\":\"snapshot\",\"h\":\"aa\"}\n"
		"{\"t\":1,\"ev\":\"gap\",\"lines\":5,\"h\":\"bb\"}\n"
		"{\"t\":1,\"ev\":\"snapshot\",\"h\":\"cc\"}\n";
	struct course_mark mark[] = { { 2, "aa", false }, { 2, "bb", false },
				      { 7, "bb", false }, { 8, "cc", false },
				      { 4, "cc", false }, { 3, "aa", false } };
	const bool met[] = { true, false, true, true, false, false };
	struct run w = { 0 };
	struct course c = { .mark = mark, .marks = sizeof(mark) / sizeof(mark[0]) };
	fal_put_bytes(&w.text, text, sizeof(text) - 1);
	read_run(&c, &w);
	for (size_t i = 0; i < sizeof(met) / sizeof(met[0]); i++)
		assert_int_equal(mark[i].is_met, met[i]);
	course_free(&c);
	fal_buf_free(&w.text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_clock_is_what_its_lines_say),
		cmocka_unit_test(lines_that_are_wanted_are_kept),
		cmocka_unit_test(a_snapshot_is_of_the_trace_that_has_its_link),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, begin, NULL);
}
