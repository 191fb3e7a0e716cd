/* What a task makes goes out while it makes the rest.  Drawn, against a few numbers that
 * say what may go, and in which order. */
#include "test_overlap.h"

enum { TASKS = 10 };

/* One of a task, and how far it is. */
struct task {
	bool granted, ticketed, ended, finite, dead;
	bool streamed; /* something goes out while it is made: the last block first */
	uint32_t lane; /* while it runs */
	uint32_t made; /* by the task, from this block on */
	uint32_t may;  /* go out, from this block on, or all; blocks: nothing */
	uint32_t sent;
};
static struct task task[TASKS];
static bool wide; /* values of many bits, so that not all blocks fit into a message */
static bool leaving, left;
static uint32_t blocks_sent, messages, streamed_blocks;
static float grad[LANES][N];
static struct fal_loan loan[LANES];

static int64_t
sum_of(uint32_t t, uint32_t b, uint32_t i)
{
	const int64_t v = 1 + (int64_t)t * 100 + b;
	return wide && i % 3 == 0 ? v << 14 : v;
}

/* The lane writes its sum: what it is to be, or something else. */
static void
write_sum(uint32_t lane, uint32_t first, uint32_t end, bool as_it_is)
{
	const float quantum = 0x1p-23f * 0x1p-12f;
	const bool lends = run[lane].task % 2 == 0;
	for (uint32_t b = first; b < end; b++) {
		float *g = grad[lane] + (size_t)b * FAL_BLOCK;
		for (uint32_t i = 0; i < fal_block_len(n, b); i++)
			g[i] = quantum *
			       (float)(as_it_is ? sum_of(run[lane].task, b, i) : 7);
		if (lends)
			check(fal_sum_borrow_block(run[lane].sum, b, g, FAL_EXP_FIRST,
						   run[lane].room, &loan[lane]),
			      0, "borrow");
		else
			check(fal_sum_quantise_block(run[lane].sum, b, g, FAL_EXP_FIRST,
						     run[lane].room),
			      0, "quantise");
	}
}

static void
task_begins(uint32_t lane)
{
	struct task *t = &task[run[lane].task];
	check(run[lane].streams, may_stream, "streams");
	t->lane = lane;
	if (loan[lane].sum != NULL)
		fal_sum_own(loan[lane].sum);
	write_sum(lane, 0, blocks, false);
}

static bool
is_running(uint32_t t)
{
	return task[t].granted && !task[t].ended && task[t].lane < LANES;
}

/* The next record of a contribution, which is the one that it is to be. */
static void
expect_record(uint32_t which, const struct fal_bfp_rec *rec)
{
	static int64_t v[FAL_BLOCK];
	struct task *t = &task[which];
	const uint32_t b = t->streamed ? blocks - 1 - t->sent : t->sent;
	check(rec->block, b, "block");
	if (t->may > (t->streamed ? b : 0))
		fail_msg("block %u goes out, but only from %u on it may", b, t->may);
	fal_bfp_rec_load(rec, v);
	for (uint32_t i = 0; i < rec->len; i++)
		check(v[i], sum_of(which, b, i), "value");
	t->sent++;
	blocks_sent++;
	streamed_blocks += t->streamed && !t->ended;
}

static void
push_heard(const struct fal_msg *m, uint32_t shard)
{
	const uint32_t t = m->push.ticket.seq - FAL_PRECLAIMED - 1;
	struct fal_rd r = fal_rd_init(m->push.records.p, m->push.records.n);
	struct fal_bfp_rec rec;
	uint32_t records = 0;
	assert_true(t < TASKS && task[t].granted);
	check(left, 0, "after LEAVE");
	check(task[t].ticketed, 1, "with a ticket");
	check(task[t].dead, 0, "of what is not wanted");
	check(m->push.epoch, map.epoch, "epoch");
	check(m->push.ticket.key, t + 40, "the ticket's own number");
	for (; r.n > 0; records++) {
		check(fal_bfp_parse(&r, n, &rec), 0, "record");
		check(shard_of(rec.block), shard, "shard");
		expect_record(t, &rec);
	}
	assert_true(records > 0 && (push_blocks == 0 || records <= push_blocks));
	messages++;
}

static void
stream_heard(const struct fal_msg *m, uint32_t shard)
{
	if (m->type == FAL_MSG_PUSH) {
		push_heard(m, shard);
	} else if (m->type == FAL_MSG_LEAVE) {
		left = true;
	} else if (m->type == FAL_MSG_CLAIM) {
		const struct task *t = &task[m->claim.task];
		check(t->dead, 0, "a claim of what is not wanted");
		check(m->claim.seq,
		      m->claim.nonfinite != 0 ? 0 : FAL_PRECLAIMED + 1 + m->claim.task,
		      "claimed for");
	} else {
		fail_msg("%s was sent", fal_msg_name(m->type));
	}
}

static void
pump(uint32_t room)
{
	int got = 1;
	for (; room > 0 && got > 0; room--)
		got = fal_agent_more(agent);
	check(got >= 0, 1, "more");
	if (one_in(&rng, 4))
		fal_agent_flushed(agent, ++now);
}

/* From now on all of it may go. */
static void
open_up(struct task *t)
{
	if (t->ticketed && t->ended && t->finite && !t->dead)
		t->may = 0;
}

static void
ticket(uint32_t t)
{
	struct fal_msg m = { .type = FAL_MSG_TICKET };
	m.ticket = (struct fal_msg_ticket){ .worker = 3,
					    .seq = FAL_PRECLAIMED + 1 + t,
					    .tasks = 1,
					    .kind = FAL_KIND_GRAD,
					    .key = t + 40 };
	task[t].ticketed = true;
	open_up(&task[t]);
	tell(&m);
}

static void
fence(uint32_t t)
{
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	m.fence.seq = FAL_PRECLAIMED + 1 + t;
	task[t].dead = true;
	tell(&m);
}

/* The task has made more, or all. */
static void
makes(uint32_t t)
{
	struct task *k = &task[t];
	if (k->made < 2)
		return;
	const uint32_t before = k->made, lane = k->lane;
	k->made = 1 + fal_rng_below(&rng, k->made - 1);
	write_sum(lane, k->made, before, !k->dead);
	if (!run[lane].streams)
		return;
	if (k->ticketed && !k->dead) {
		k->streamed = true;
		k->may = k->made;
	}
	check(fal_agent_made(agent, now, lane, k->made), 0, "made");
}

static void
ends(uint32_t t, bool finite)
{
	struct task *k = &task[t];
	const uint32_t lane = k->lane;
	if (finite || k->dead)
		write_sum(lane, 0, k->dead ? blocks : k->made, !k->dead);
	check(cancelled[lane], k->dead, "cancelled");
	k->ended = true;
	k->finite = finite && !k->dead;
	k->lane = LANES;
	if (!finite)
		k->may = blocks;
	open_up(k);
	finished(lane, !finite && !k->dead);
}

/* All that is on its way was of rounds that are over; what is being made begins anew. */
static void
move(void)
{
	for (uint32_t t = 0; t < TASKS; t++) {
		struct task *k = &task[t];
		if (k->granted && k->ended && k->ticketed && k->sent < blocks)
			k->dead = true;
		if (k->granted && !k->ended) {
			k->sent = 0;
			k->streamed = false;
			k->may = blocks;
		}
	}
	draw_map(map.epoch + 1);
}

static void
leave(void)
{
	leaving = true;
	for (uint32_t t = 0; t < TASKS; t++)
		task[t].dead |= task[t].granted && !task[t].ended;
	check(fal_agent_leave(agent, now, "done"), 0, "leave");
}

/* Something happens to a task. */
static void
happens(uint32_t t)
{
	struct task *k = &task[t];
	if (!k->granted) {
		if (leaving)
			return;
		*k = (struct task){
			.granted = true, .lane = LANES, .made = blocks, .may = blocks
		};
		grant(0, t, 1, FAL_PRECLAIMED + 1 + t);
		return;
	}
	const uint32_t what = fal_rng_below(&rng, 40);
	if (what < 12 && !k->ticketed && (!k->dead || one_in(&rng, 2)))
		ticket(t);
	else if (what < 30 && is_running(t))
		makes(t);
	else if (what < 36 && is_running(t))
		ends(t, !one_in(&rng, 5));
	else if (what == 36)
		fence(t);
	else if (what == 37 && !k->ended) {
		k->dead = true;
		revoke(0, t);
	}
}

/* Something of what is needed for any task to end. */
static void
step_on(uint32_t t)
{
	if (task[t].granted && !task[t].ticketed && !task[t].dead)
		ticket(t);
	if (is_running(t))
		ends(t, true);
	else if (task[t].granted && task[t].ended && !task[t].finite && !task[t].dead)
		fence(t);
	pump(UINT32_MAX);
}

/* Whatever goes on comes to its end, and each block of what is wanted has gone once. */
static void
all_ends(void)
{
	bool dead = false;
	pump(UINT32_MAX); /* LEAVE does not wait for who computes */
	uint32_t owed = 0;
	for (uint32_t t = 0; t < TASKS; t++)
		owed += task[t].granted && task[t].ended && task[t].finite &&
			!task[t].ticketed && !task[t].dead;
	if (leaving && owed == 0)
		check(left, 1, "left, though lanes are at work");
	for (uint32_t i = 0; i < TASKS * TASKS; i++)
		step_on(i % TASKS);
	for (uint32_t t = 0; t < TASKS; t++) {
		const struct task *k = &task[t];
		dead |= k->dead || (k->granted && !k->finite);
		if (k->granted && !k->dead)
			check(k->ended, 1, "ended");
		if (k->granted && !k->dead && k->finite)
			check(k->sent, blocks, "blocks of a contribution");
	}
	check(left, leaving, "left");
	const struct fal_agent_overlap o = fal_agent_overlap(agent);
	assert_true(o.blocks >= blocks_sent && o.early <= o.blocks);
	if (!dead && map.epoch == 1)
		check((int64_t)o.blocks, blocks_sent, "blocks in all");
}

static void
goes_out_while_it_is_made(void **state)
{
	uint32_t all = 0, many = 0, rounds = 200;
	(void)state;
	for (uint32_t round = 0; round < rounds; round++) {
		const size_t most = one_in(&rng, 2) ? 3 + fal_rng_below(&rng, 5) : 0;
		sums = most;
		begin(1);
		sums = 0;
		memset(task, 0, sizeof(task));
		for (uint32_t t = 0; t < TASKS; t++)
			task[t].lane = LANES;
		wide = one_in(&rng, 2);
		leaving = left = false;
		blocks_sent = messages = streamed_blocks = 0;
		heard = stream_heard;
		begun = task_begins;
		may_stream = !one_in(&rng, 6);
		whole_version(0);
		const uint32_t calm = 1 + fal_rng_below(&rng, 100);
		for (uint32_t step = 20 + fal_rng_below(&rng, 200); step > 0; step--) {
			happens(fal_rng_below(&rng, TASKS));
			if (most > 0 && fal_agent_holds(agent) > most + 1)
				fail_msg("%zu halves of %zu, and a version",
					 fal_agent_holds(agent), most);
			if (one_in(&rng, 2))
				pump(fal_rng_below(&rng, 4));
			if (step % calm == 0 && one_in(&rng, 3))
				move();
			else if (step < 40 && !leaving && one_in(&rng, 40))
				leave();
		}
		all_ends();
		all += streamed_blocks;
		many += messages;
		if (!may_stream)
			check(streamed_blocks, 0, "streamed");
		fal_agent_free(agent);
		memset(loan, 0, sizeof(loan));
	}
	if (all < rounds || many < rounds)
		fail_msg("%u blocks of %u messages were early", all, many);
}

/* Time is spent pushing while there is something to push. */
static void
what_is_not_made_is_not_pushed(void **state)
{
	uint64_t dt[3];
	(void)state;
	for (int i = 0; i < 3; i++)
		dt[i] = 1 + fal_rng_below(&rng, 1000);
	begin(3);
	begun = task_begins;
	whole_version(0);
	task[0] = (struct task){ .lane = LANES, .made = blocks, .may = blocks };
	wide = leaving = left = false;
	account();
	happens(0);
	ticket(0);
	heard = stream_heard;
	makes(0);
	now += dt[0];
	while (fal_agent_more(agent) > 0)
		;
	fal_agent_flushed(agent, now);
	now += dt[1]; /* it makes the rest */
	account();
	check((int64_t)worked.worked.push_all, 0, "pushes what is being made");
	check((int64_t)worked.worked.compute, (int64_t)(dt[0] + dt[1]), "computes");
	heard = stream_heard;
	ends(0, true);
	while (fal_agent_more(agent) > 0)
		;
	check(task[0].sent, blocks, "sent");
	now += dt[2];
	fal_agent_flushed(agent, now);
	now += dt[1];
	account();
	check((int64_t)worked.worked.push, (int64_t)dt[2], "pushes");
	check((int64_t)worked.worked.push_all, (int64_t)dt[2], "pushes");
	check((int64_t)worked.worked.wait, (int64_t)dt[1], "waits");
	fal_agent_free(agent);
	memset(loan, 0, sizeof(loan));
}

/* What is of several tasks, or not claimed yet, or no gradient, waits for its end. */
static void
what_does_not_stream(void **state)
{
	(void)state;
	begin(1);
	whole_version(0);
	grant(0, 0, 2, FAL_PRECLAIMED + 1); /* one contribution of two */
	check(run[0].streams + run[1].streams, 0, "of two");
	grant(0, 2, 1, 0);
	check(busy[2], 1, "runs");
	check(run[2].streams, 0, "not claimed");
	finished(2, true);
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	m.grant.kind = FAL_KIND_CHECK;
	m.grant.first = 3;
	m.grant.count = 1;
	tell(&m);
	check(busy[2], 1, "runs");
	check(run[2].streams, 0, "a check");
	finished(2, true);
	grant(0, 4, 1, FAL_PRECLAIMED + 2);
	check(run[2].streams, 1, "claimed, alone");
	finished(2, true);
	may_stream = false;
	grant(0, 5, 1, FAL_PRECLAIMED + 3);
	check(run[2].streams, 0, "where it may not");
	for (uint32_t i = 0; i < LANES; i++)
		finished(i, true);
	fal_agent_free(agent);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(goes_out_while_it_is_made),
		cmocka_unit_test(what_is_not_made_is_not_pushed),
		cmocka_unit_test(what_does_not_stream),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, draw, NULL);
}
