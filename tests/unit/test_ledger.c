/* The ledger: who wins a task, what a fence gives back, what the trace says of it. */
#include "base/err.h"
#include "sched/ledger.h"
#include "trace/writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { FIRST = 7, TASKS = 8 };

static struct fal_ledger ledger;

static const struct fal_grid grid = { .samples = 1 << 20, .batch = 1 << 20, .task = 8 };

static const struct fal_contrib_id none = { 0, 0 };

static int
begin(void **state)
{
	(void)state;
	fal_ledger_open(&ledger, &grid, 0, FIRST, TASKS);
	return 0;
}

static int
end(void **state)
{
	(void)state;
	fal_ledger_free(&ledger);
	return 0;
}

/* Tasks are counted from the round's first one here. */
static int
claim(struct fal_contrib_id id, struct fal_contrib_id fills, uint32_t task)
{
	uint32_t ci;
	return fal_ledger_claim(&ledger, id, fills, FIRST + task, (int64_t)task + 1, &ci);
}

static void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld", what, (long long)got,
			 (long long)want);
}

static uint32_t
index_of(struct fal_contrib_id id)
{
	uint32_t ci = fal_ledger_find(&ledger, id);
	if (ci == FAL_NONE)
		fail_msg("contribution %u.%u is unknown", id.worker, id.seq);
	return ci;
}

static void
first_claim_wins(void **state)
{
	(void)state;
	struct fal_contrib_id a = { 1, 1 }, b = { 2, 1 };
	check(claim(a, none, 3), 1, "the first");
	check(claim(b, none, 3), 0, "another's");
	check(claim(a, none, 3), 0, "its own again");
	check(ledger.claimed, 1, "claimed");
	check(fal_ledger_newest(&ledger, 2), FAL_NONE, "a claim that lost opens nothing");
	check(claim(b, none, 4), 1, "another task");
	check(claim(a, none, 0), 1, "a second of the same");
	check(ledger.contrib[index_of(a)].tasks, 2, "tasks of 1.1");
	check(fal_ledger_loss(&ledger), 4 + 5 + 1, "loss");
}

/* What is skipped counts, in no contribution, and nobody can claim it any more. */
static void
skipped_is_nobodys(void **state)
{
	(void)state;
	struct fal_contrib_id a = { 1, 1 }, b = { 2, 1 };
	fal_ledger_skip(&ledger, FIRST + 3);
	check(claim(a, none, 3), 0, "a claim of it");
	check(ledger.contribs, 0, "contributions");
	check(claim(a, none, 4), 1, "another task");
	check(ledger.claimed, 2, "claimed");
	check(ledger.skipped, 1, "skipped");
	/* Where somebody had claimed it, and was fenced, its loss goes. */
	fal_ledger_fence(&ledger, index_of(a));
	fal_ledger_skip(&ledger, FIRST + 4);
	check(claim(b, a, 4), 0, "a claim that fills");
	check(ledger.claimed, 2, "claimed after the fence");
	check(fal_ledger_loss(&ledger), 0, "loss");
}

static void
refusals(void **state)
{
	(void)state;
	struct fal_contrib_id a = { 1, 1 };
	check(claim(a, none, TASKS), FAL_EINVAL, "task out of range");
	check(claim(a, none, UINT32_MAX), FAL_EINVAL, "the task before the first");
	check(claim(a, none, UINT32_MAX - FIRST), FAL_EINVAL, "the largest task");
	check(claim(a, none, 0u - FIRST), FAL_EINVAL, "task 0");
	check(claim((struct fal_contrib_id){ 0, 1 }, none, 0), FAL_EINVAL, "worker 0");
	check(claim((struct fal_contrib_id){ 1, 0 }, none, 0), FAL_EINVAL, "seq 0");
	check(claim(a, (struct fal_contrib_id){ 9, 9 }, 0), 0, "fills what is not there");
	check(ledger.contribs, 0, "contributions after refusals");
	check(claim(a, none, 0), 1, "a good one");
	check(claim(a, (struct fal_contrib_id){ 9, 9 }, 1), FAL_ESTATE,
	      "changes its fills");
	check(fal_ledger_seal(&ledger, index_of(a)), 0, "is closed");
	check(claim(a, none, 2), FAL_ESTATE, "after it was closed");
	check(fal_ledger_seal(&ledger, index_of(a)), FAL_ESTATE, "is closed again");
	ledger.contrib[index_of(a)].blocks += 1;
	ledger.contrib[index_of(a)].state = FAL_CONTRIB_DONE;
	check(claim(a, none, 2), FAL_ESTATE, "after the last push");
	check(claim((struct fal_contrib_id){ 1, 2 }, none, 2), 1,
	      "its next contribution");
}

/* A worker has one contribution open for each thing that it fills, and whichever wins
 * first is opened first. */
static void
contributions_open_in_any_order(void **state)
{
	(void)state;
	struct fal_contrib_id first = { 1, 1 }, second = { 1, 2 }, other = { 2, 1 };
	check(claim(other, none, 0), 1, "task 0");
	check(claim(first, none, 0), 0, "1.1 loses");
	check(claim(second, none, 1), 1, "1.2 wins");
	check(claim(first, none, 2), 1, "then 1.1 wins");
	check(ledger.contrib[index_of(first)].tasks, 1, "tasks of 1.1");
	check(ledger.contrib[index_of(second)].tasks, 1, "tasks of 1.2");
}

static void
fence_gives_back(void **state)
{
	(void)state;
	struct fal_contrib_id a = { 1, 1 }, b = { 2, 1 };
	claim(a, none, 1);
	claim(a, none, 2);
	claim(b, none, 3);
	fal_ledger_fence(&ledger, index_of(a));
	check(ledger.claimed, 1, "claimed after the fence");
	check(fal_ledger_task(&ledger, FIRST + 1)->contrib, FAL_NONE, "holder of task 1");
	check(fal_ledger_task(&ledger, FIRST + 1)->fills, index_of(a),
	      "what task 1 fills");
	check(fal_ledger_task(&ledger, FIRST + 3)->fills, FAL_NONE, "what task 3 fills");
	check(claim(a, none, 4), 0, "a claim into a fenced contribution");
	check(claim(b, none, 1), 0, "a claim that does not say what it fills");
	check(claim((struct fal_contrib_id){ 2, 2 }, a, 4), 0, "fills what it need not");
	check(claim((struct fal_contrib_id){ 2, 2 }, a, 1), 1, "fills");
	check(claim((struct fal_contrib_id){ 3, 1 }, a, 2), 1, "another fills the rest");
	check(ledger.claimed, 3, "claimed at the end");
}

static void
fills_chain(void **state)
{
	(void)state;
	struct fal_contrib_id a = { 1, 1 }, b = { 2, 1 }, c = { 3, 1 };
	claim(a, none, 5);
	claim(a, none, 6);
	fal_ledger_fence(&ledger, index_of(a));
	check(claim(b, a, 5), 1, "fills the first");
	fal_ledger_fence(&ledger, index_of(b));
	check(claim(c, a, 5), 0, "task 5 must now fill the second");
	check(claim(c, b, 5), 1, "fills the second");
	check(claim((struct fal_contrib_id){ 3, 2 }, b, 6), 0,
	      "task 6 was not the second's");
	check(claim((struct fal_contrib_id){ 3, 2 }, a, 6), 1, "task 6 fills the first");
	check(ledger.contrib[index_of(c)].fills, index_of(b), "what 3.1 fills");
	check(ledger.contrib[index_of(b)].fills, index_of(a), "what 2.1 fills");
	check(ledger.claimed, 2, "claimed");
}

static void
open_forgets(void **state)
{
	claim((struct fal_contrib_id){ 1, 1 }, none, 0);
	fal_ledger_log(&ledger, FAL_ENTRY_GRANT, 1, 0, 0);
	assert_int_equal(begin(state), 0);
	check(ledger.claimed, 0, "claimed");
	check(ledger.contribs, 0, "contributions");
	check((int64_t)ledger.log[FAL_ENTRY_GRANT].n, 0, "grants");
	check(fal_ledger_loss(&ledger), 0, "loss");
	check(claim((struct fal_contrib_id){ 1, 2 }, none, 0), 1, "the task again");
}

/* Every worker's contributions are found, however many workers there are, whose ids are
 * alike; and the newest of each. */
static void
many_contributors(void **state)
{
	(void)state;
	enum { MANY = 3000, STEP = 1 << 20 };
	fal_ledger_open(&ledger, &grid, 0, FIRST, MANY);
	for (uint32_t i = 0; i < MANY; i++) {
		struct fal_contrib_id id = { 1 + i % 1000 * STEP, 1 + i / 1000 };
		check(fal_ledger_newest(&ledger, id.worker) == FAL_NONE, i < 1000,
		      "a worker that has none yet");
		check(claim(id, none, i), 1, "claim");
		check(fal_ledger_newest(&ledger, id.worker), i, "the newest");
	}
	for (uint32_t i = 0; i < MANY; i++) {
		struct fal_contrib_id id = { 1 + i % 1000 * STEP, 1 + i / 1000 };
		check(fal_ledger_find(&ledger, id), i, "find");
	}
	check(fal_ledger_find(&ledger, (struct fal_contrib_id){ 1, 4 }), FAL_NONE,
	      "no such seq");
	check(fal_ledger_newest(&ledger, 2), FAL_NONE, "no such worker");
	check(ledger.contributors, 1000, "contributors");
	fal_ledger_open(&ledger, &grid, 0, FIRST, TASKS);
	check(fal_ledger_newest(&ledger, 1), FAL_NONE, "forgotten by the next round");
}

/* A worker that lies about its loss spoils a figure, nothing else. */
static void
absurd_losses(void **state)
{
	(void)state;
	struct fal_contrib_id a = { 1, 1 };
	uint32_t ci;
	for (uint32_t t = FIRST; t < FIRST + 3; t++)
		check(fal_ledger_claim(&ledger, a, none, t, INT64_MAX, &ci), 1, "claim");
	check(fal_ledger_loss(&ledger), INT64_MAX - 2, "sum modulo 2^64");
}

/* What a line of the trace says of it, from its grants on. */
static void
json_is(const char *want)
{
	const struct fal_line_ledger line = { .hashed = true };
	struct fal_buf out = { 0 };
	fal_line_ledger(&out, 0, &line, &ledger, &(struct fal_ev_ledger){ .since = 0 });
	assert_true(out.n > 0);
	out.p[out.n - 1] = '\0'; /* in place of the brace that ends it */
	assert_int_equal(out.err, 0);
	assert_string_equal(strstr((const char *)out.p, "\"grant\""), want);
	fal_buf_free(&out);
}

#define ZEROS "000000000000000000000000000000"

static void
json_ranges(void **state)
{
	(void)state;
	static const uint32_t grants[] = { 7, 8, 9, 12, 13 }, moves[] = { 13, 12, 11, 8 };
	json_is("\"grant\":[],\"move\":[],\"clone\":[],\"regrant\":[],\"lost\":[],"
		"\"contrib\":[]");
	for (size_t i = 0; i < 5; i++)
		fal_ledger_log(&ledger, FAL_ENTRY_GRANT, 1, 0, grants[i]);
	fal_ledger_log(&ledger, FAL_ENTRY_GRANT, 2, 0, 14); /* touches, another worker */
	for (size_t i = 0; i < 4; i++)
		fal_ledger_log(&ledger, FAL_ENTRY_MOVE, 1, 2, moves[i]);
	fal_ledger_log(&ledger, FAL_ENTRY_MOVE, 1, 3, 7);
	fal_ledger_log(&ledger, FAL_ENTRY_LOST, 2, 0, 10);
	struct fal_contrib_id a = { 1, 1 }, b = { 2, 5 };
	claim(a, none, 4);
	claim(a, none, 0);
	claim(a, none, 3);
	ledger.contrib[index_of(a)].blocks += 2;
	fal_ledger_claimed(&ledger, FIRST)->hash[0] = 0xab;
	fal_ledger_fence(&ledger, index_of(a));
	assert_null(fal_ledger_claimed(&ledger, FIRST + 3));
	claim(b, a, 3);
	fal_ledger_claimed(&ledger, FIRST + 3)->hash[FAL_CLAIM_HASH - 1] = 1;
	ledger.contrib[index_of(b)].blocks += 9;
	json_is("\"grant\":[[1,7,3],[1,12,2],[2,14,1]],\"move\":[[1,2,11,3],[1,2,8,1],"
		"[1,3,7,1]],\"clone\":[],\"regrant\":[],\"lost\":[[2,10,1]],"
		"\"contrib\":[{\"c\":[1,1],\"tasks\":[[7,1],[10,2]],"
		"\"hashes\":[\"ab" ZEROS "\",\"00" ZEROS "\",\"00" ZEROS
		"\"],\"blocks\":2,"
		"\"fenced\":true},"
		"{\"c\":[2,5],\"tasks\":[[10,1]],\"hashes\":[\"" ZEROS
		"01\"],\"blocks\":9,\"fills\":[1,1]}]");
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(first_claim_wins),  TEST(refusals),
		TEST(fence_gives_back),  TEST(contributions_open_in_any_order),
		TEST(fills_chain),       TEST(open_forgets),
		TEST(absurd_losses),     TEST(json_ranges),
		TEST(many_contributors), TEST(skipped_is_nobodys),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
