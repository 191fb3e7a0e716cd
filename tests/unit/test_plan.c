/* What falcon-stat --recompute draws (falcon-stat(1), Computing anew; design.md D34):
 * drawn courses, in which each clock may or may not be computed, against what is asked of
 * a draw. SEED: other ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../cmd/falcon-stat/recompute_priv.h"
#include "../drawn.h"
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 3000, CLOCKS = 40, PRINT = 2 };

static struct fal_rng rng;

static int
begin(void **state)
{
	(void)state;
	rng = fal_rng_init(drawn_seed(1), FAL_RNG_TEST, 0);
	return 0;
}

/* A run of `n` clocks, of which snapshots are kept; most clocks can be computed. */
struct run {
	struct recompute r;
	struct stat_recomputed out;
	struct course_clock clock[CLOCKS];
	struct course_mark mark[CLOCKS];
	bool may[CLOCKS]; /* by what the man page says */
};

static void
draw_clocks(struct run *w, size_t n)
{
	static const enum course_status why[] = { COURSE_UNKNOWN, COURSE_UNLAWFUL,
						  COURSE_MIXED };
	const uint32_t odd = 2 + fal_rng_below(&rng, 20), bare = fal_rng_below(&rng, 4);
	for (size_t i = 0; i < n; i++) {
		struct course_clock *c = &w->clock[i];
		*c = (struct course_clock){ .scheme = "ssp",
					    .version = i + 1,
					    .fingerprint = PRINT,
					    .has_hash = bare == 0 ||
							!one_in(&rng, bare + 1) };
		w->may[i] = !one_in(&rng, odd);
		if (w->may[i])
			continue;
		switch (fal_rng_below(&rng, 3)) {
		case 0:
			c->why = why[fal_rng_below(&rng, 3)];
			break;
		case 1:
			c->fingerprint = one_in(&rng, 2) ? 0 : PRINT + 1;
			break;
		default:
			c->version = 0; /* none follows it */
			if (i + 1 < n)
				w->may[i + 1] = false;
		}
	}
	/* What follows a clock that made no version follows none. */
	for (size_t i = 1; i < n; i++)
		w->may[i] = w->may[i] && w->clock[i - 1].version == i;
}

static struct run *
draw_run(void)
{
	struct run *w = calloc(1, sizeof(*w));
	assert_non_null(w);
	struct recompute *r = &w->r;
	const size_t n = 1 + fal_rng_below(&rng, CLOCKS);
	r->out = &w->out;
	r->fingerprint = PRINT;
	r->rng = fal_rng_init(fal_rng_u64(&rng), FAL_RNG_TEST, 1);
	r->course = (struct course){ .clock = w->clock, .clocks = n, .mark = w->mark };
	draw_clocks(w, n);
	/* As plan_list_snapshots leaves them: by clock, none of clock 0. */
	r->anchor = calloc(CLOCKS + 2, sizeof(*r->anchor));
	r->anchor_cap = CLOCKS + 2;
	assert_non_null(r->anchor);
	for (size_t i = 1; i <= n; i++)
		if (one_in(&rng, 6)) {
			struct anchor *p = &r->anchor[r->anchors];
			*p = (struct anchor){ .clock = i, .is_snapshot = true };
			p->found.is.image.version = w->clock[i - 1].version;
			w->mark[r->anchors++].is_met = true;
		}
	return w;
}

static void
drop(struct run *w)
{
	for (size_t i = 0; i < w->r.anchors; i++)
		fal_snap_manifest_free(&w->r.anchor[i].found.is);
	free(w->r.anchor);
	free(w);
}

/* Half of them are done: the model is kept, of their last version. */
static void
end(struct run *w)
{
	struct course *c = &w->r.course;
	if (one_in(&rng, 2) && c->clock[c->clocks - 1].version > 0) {
		c->version = c->clock[c->clocks - 1].version;
		snprintf(c->sha256, sizeof(c->sha256), "it has one");
	}
	plan_add_ends(&w->r);
}

static void
snapshots_of_another_trace_are_found(void **state)
{
	(void)state;
	for (int s = 0; s < SEEDS; s++) {
		struct run *w = draw_run();
		struct recompute *r = &w->r;
		bool good[CLOCKS + 1] = { false };
		unsigned bad = 0;
		size_t kept = 0;
		for (size_t i = 0; i < r->anchors; i++) {
			struct anchor *p = &r->anchor[i];
			const uint32_t how = fal_rng_below(&rng, 5);
			if (how == 0)
				p->found.is.image.version++;
			if (how == 1)
				w->mark[i].is_met = false;
			if (how == 2 && i + 1 == r->anchors)
				p->clock = r->course.clocks + 1;
			good[i] = how > 2 || (how == 2 && i + 1 < r->anchors);
			bad += !good[i];
		}
		struct anchor was[CLOCKS + 2];
		const size_t n = r->anchors;
		memcpy(was, r->anchor, n * sizeof(*was));
		plan_drop_foreign(r);
		assert_int_equal(w->out.mismatches, bad);
		for (size_t i = 0; i < n; i++)
			if (good[i])
				assert_int_equal(r->anchor[kept++].clock, was[i].clock);
		assert_int_equal(r->anchors, kept);
		drop(w);
	}
}

/* Version 0, each snapshot, the model: by clock, each once. */
static void
what_is_kept_is_in_order(void **state)
{
	(void)state;
	for (int s = 0; s < SEEDS; s++) {
		struct run *w = draw_run();
		struct recompute *r = &w->r;
		const size_t snapshots = r->anchors;
		const uint64_t last = snapshots > 0 ? r->anchor[snapshots - 1].clock : 0;
		size_t are = 0;
		end(w);
		const bool model = r->course.sha256[0] != '\0' && last < r->course.clocks;
		assert_int_equal(r->anchor[0].clock, 0);
		assert_false(r->anchor[0].is_snapshot || r->anchor[0].is_model);
		for (size_t i = 0; i < r->anchors; i++) {
			are += r->anchor[i].is_snapshot;
			assert_true(i == 0 ||
				    r->anchor[i].clock > r->anchor[i - 1].clock);
			assert_int_equal(r->anchor[i].is_model,
					 model && i + 1 == r->anchors);
		}
		assert_int_equal(are, snapshots);
		assert_int_equal(r->anchors, 1 + snapshots + model);
		drop(w);
	}
}

/* The version after `clocks` has a hash, or is kept. */
static bool
comparable(const struct recompute *r, uint64_t clocks)
{
	if (r->course.clock[clocks - 1].has_hash)
		return true;
	for (size_t i = 0; i < r->anchors; i++)
		if (r->anchor[i].clock == clocks)
			return true;
	return false;
}

/* Clocks that can be computed from this point, to a version that can be compared, before
 * the next one. */
static uint64_t
reach(const struct run *w, const struct anchor *p)
{
	const struct recompute *r = &w->r;
	uint64_t most = r->course.clocks, got = 0;
	for (size_t i = 0; i < r->anchors; i++)
		if (r->anchor[i].clock > p->clock && r->anchor[i].clock < most)
			most = r->anchor[i].clock;
	for (uint64_t c = p->clock; c < most && w->may[c]; c++)
		if (comparable(r, c + 1))
			got = c + 1 - p->clock;
	return p->is_model ? 0 : got;
}

static void
check_draw(struct run *w, uint64_t n)
{
	struct recompute *r = &w->r;
	uint64_t total, all = 0, wanted = 0, drawn = 0;
	for (size_t i = 0; i < r->anchors; i++)
		all += reach(w, &r->anchor[i]);
	plan_draw(r, n, &total);
	for (size_t i = 0; i < r->anchors; i++) {
		const struct anchor *p = &r->anchor[i];
		if (!p->is_drawn)
			continue;
		assert_true(p->reach > 0 && p->reach <= reach(w, p));
		assert_true(comparable(r, p->clock + p->reach));
		for (uint64_t c = p->clock; c < p->clock + p->reach; c++)
			assert_true(r->course.clock[c].is_wanted && w->may[c]);
		drawn += p->reach;
	}
	for (size_t i = 0; i < r->course.clocks; i++)
		wanted += r->course.clock[i].is_wanted;
	assert_int_equal(drawn, total);
	assert_int_equal(wanted, total);
	/* So much, at least; or all that there is. */
	assert_true(total >= n || total == all);
}

static void
so_much_is_drawn_as_is_asked_for(void **state)
{
	(void)state;
	unsigned none = 0, some = 0, more = 0;
	for (int s = 0; s < SEEDS; s++) {
		struct run *w = draw_run();
		struct recompute *r = &w->r;
		uint64_t all = 0, kept = 0;
		end(w);
		for (size_t i = 0; i < r->anchors; i++) {
			const uint64_t own = reach(w, &r->anchor[i]);
			all += own;
			kept += own > 0;
		}
		const uint64_t n = 1 + fal_rng_below(&rng, (uint32_t)r->course.clocks);
		const int err = plan_measure(r, n);
		assert_int_equal(err, all > 0 ? FAL_OK : FAL_ESTATE);
		assert_int_equal(w->out.cannot[0] == '\0', all > 0);
		assert_int_equal(w->out.kept, kept);
		/* A draw of n clocks need not reach farther than these. */
		assert_true(w->out.reach <= all);
		assert_true(w->out.reach >= (n < all ? n : all));
		none += all == 0;
		some += all > 0;
		more += all > n && kept > 1;
		if (err == FAL_OK)
			check_draw(w, n);
		drop(w);
	}
	assert_true(none > 0 && some > SEEDS / 2 && more > SEEDS / 10);
}

/* Each clock that can be judged can be drawn; the more of them a point has, the likelier
 * it is. */
static void
what_can_be_judged_can_be_drawn(void **state)
{
	(void)state;
	enum { DRAWS = 4000 };
	unsigned drawn[2] = { 0 };
	for (int s = 0; s < DRAWS; s++) {
		struct run *w = calloc(1, sizeof(*w));
		struct anchor p[2] = {
			{ .clock = 0, .reach = 30 },
			{ .clock = 30, .is_snapshot = true, .reach = 10 }
		};
		struct recompute *r = &w->r;
		uint64_t total;
		assert_non_null(w);
		for (size_t i = 0; i < CLOCKS; i++)
			w->clock[i] = (struct course_clock){ .version = i + 1,
							     .fingerprint = PRINT,
							     .has_hash = true };
		*r = (struct recompute){ .out = &w->out,
					 .fingerprint = PRINT,
					 .anchor = p,
					 .anchors = 2,
					 .rng = fal_rng_init(fal_rng_u64(&rng),
							     FAL_RNG_TEST, 2) };
		r->course = (struct course){ .clock = w->clock, .clocks = CLOCKS };
		plan_draw(r, 1, &total);
		assert_int_equal(total, 1);
		assert_int_equal(p[0].is_drawn + p[1].is_drawn, 1);
		drawn[p[1].is_drawn]++;
		free(w);
	}
	/* 3 in 4, within six deviations of that many draws. */
	if (drawn[0] < DRAWS * 3 / 4 - 165 || drawn[0] > DRAWS * 3 / 4 + 165)
		fail_msg("%u of %d, not 3 in 4", drawn[0], DRAWS);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(snapshots_of_another_trace_are_found),
		cmocka_unit_test(what_is_kept_is_in_order),
		cmocka_unit_test(so_much_is_drawn_as_is_asked_for),
		cmocka_unit_test(what_can_be_judged_can_be_drawn),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, begin, NULL);
}
