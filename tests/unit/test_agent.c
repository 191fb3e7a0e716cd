/* The worker's state machine, driven by hand: its messages, tasks and cancellations, and
 * their order. */
#include "../agent_memory.h"
#include "../drawn.h"
#include "../naive_bfp.h"
#include "agent_play.h"
#include "base/branch.h"
#include "wire/block_map.h"
#include "wire/shard_wait.h"

#include <stdlib.h>
#include <string.h>

enum { N = FAL_BLOCK + 5, BLOCKS = 2, MOST = 4096 };

/* The calls of the agent. */
struct sent {
	struct fal_buf bytes;
	struct fal_msg m;
	bool bulk;
};
static struct sent sent[MOST];
static uint32_t sents, seen; /* `seen`: looked at by next() */

/* Contributions, and a stand-in for the coordinator that closes them. */
static struct desk {
	uint64_t round;
	uint32_t seq, claims, answered, won;
	bool closed, sealed, over;
} desk[MOST];
static uint32_t desks;

static uint64_t now;  /* ns */
static uint32_t room; /* bulk messages that the channel takes */

static struct desk *
desk_of(uint64_t round, uint32_t seq)
{
	uint32_t i = 0;
	while (i < desks && (desk[i].round != round || desk[i].seq != seq))
		i++;
	if (i == desks)
		desk[desks++] = (struct desk){ .round = round, .seq = seq };
	return &desk[i];
}

/* Notes the worker's messages about contributions. */
static void
note(const struct fal_msg *m)
{
	struct desk *d;
	if (m->type == FAL_MSG_CLAIM && m->claim.seq > 0 &&
	    m->claim.seq < FAL_PRECLAIMED) {
		d = desk_of(m->claim.round, m->claim.seq);
		check(d->closed, 0, "a claim into what is closed");
		d->claims++;
		d->closed = m->claim.last != 0;
	} else if (m->type == FAL_MSG_SEAL) {
		d = desk_of(m->seal.round, m->seal.seq);
		check(d->closed, 0, "closed before");
		d->closed = d->sealed = true;
	}
}

static void
on_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	(void)arg;
	assert_true(sents < MOST);
	struct sent *s = &sent[sents++];
	fal_put_bytes(&s->bytes, msg->p, msg->n);
	check(fal_msg_get(s->bytes.p, s->bytes.n, &s->m), 0, "parse what was sent");
	check(s->m.incarnation, 6, "incarnation");
	s->bulk = bulk;
	note(&s->m);
	if (s->m.type == FAL_MSG_SEAL) { /* `desk` has it */
		fal_buf_free(&s->bytes);
		sents--;
	}
}

static void
pump(void)
{
	while (room > 0 && fal_agent_send_next(agent))
		room--;
}

/* The last request for memory, and the answer. */
static struct fal_agent_limits asked;
static bool may_grow;

static bool
on_grow(void *arg, const struct fal_agent_limits *to)
{
	(void)arg;
	asked = *to;
	return may_grow;
}

static int
begin_as(struct fal_agent_conf conf)
{
	struct fal_agent_ops ops = { .send = on_send,
				     .run = on_run,
				     .cancel = on_cancel,
				     .steps = on_steps,
				     .grow = on_grow };
	conf.n = conf.n != 0 ? conf.n : N;
	conf.lanes_max = conf.lanes_max != 0 ? conf.lanes_max : LANES;
	conf.incarnation = 6;
	if (conf.most.versions == 0)
		conf.most.versions = conf.sums != 0 ? 2 : 0;
	memset(busy, 0, sizeof(busy));
	memset(cancelled, 0, sizeof(cancelled));
	sents = seen = desks = 0;
	now = 1000;
	room = UINT32_MAX;
	agent = fal_agent_new(&conf, &ops);
	return agent != NULL ? 0 : -1;
}

static int
begin(void **state)
{
	(void)state;
	return begin_as((struct fal_agent_conf){ 0 });
}

/* A group server's agent: others make the sums. */
static int
begin_outer(void **state)
{
	(void)state;
	return begin_as((struct fal_agent_conf){ .outer = true });
}

/* A channel that takes nothing at first, then one block at a time. */
static int
begin_slow(void **state)
{
	(void)state;
	int err = begin_as((struct fal_agent_conf){ .push_blocks = 1 });
	room = 0;
	return err;
}

/* The same, with sums for one contribution and one task. */
static int
begin_few(void **state)
{
	(void)state;
	int err = begin_as((struct fal_agent_conf){ .sums = 3 });
	room = 0;
	return err;
}

static int
end(void **state)
{
	(void)state;
	fal_agent_free(agent);
	for (uint32_t i = 0; i < MOST; i++)
		fal_buf_free(&sent[i].bytes);
	return 0;
}

/* Returns the next sent message, which must be a `type`. */
static const struct fal_msg *
next(uint16_t type)
{
	if (seen == sents)
		fail_msg("no %s was sent", fal_msg_name(type));
	if (sent[seen].m.type != type)
		fail_msg("sent: got %s, want %s", fal_msg_name(sent[seen].m.type),
			 fal_msg_name(type));
	return &sent[seen++].m;
}

static void
nothing_sent(void)
{
	if (seen < sents)
		fail_msg("%s was sent", fal_msg_name(sent[seen].m.type));
}

/* Sends a ticket for each closed contribution whose claims are answered, unless nothing
 * of it counts. */
static void
settle(void)
{
	for (uint32_t i = 0; i < desks; i++) {
		struct desk *d = &desk[i];
		struct fal_msg m = { .type = d->won > 0 ? FAL_MSG_TICKET
							: FAL_MSG_FENCE };
		if (!d->closed || d->over || d->answered < d->claims)
			continue;
		if (m.type == FAL_MSG_FENCE)
			m.fence = (__typeof__(m.fence)){ d->round, d->seq };
		else
			m.ticket = (struct fal_msg_ticket){ .round = d->round,
							    .worker = 3,
							    .seq = d->seq,
							    .tasks = d->won,
							    .kind = FAL_KIND_GRAD };
		d->over = true;
		check(fal_agent_msg(agent, now, &m), 0, fal_msg_name(m.type));
	}
}

static int
tell(const struct fal_msg *m)
{
	int err = fal_agent_msg(agent, now, m);
	if (m->type == FAL_MSG_FENCE)
		desk_of(m->fence.round, m->fence.seq)->over = true;
	if (m->type == FAL_MSG_VERDICT) {
		struct desk *d = desk_of(m->verdict.round, m->verdict.seq);
		d->answered++;
		d->won += m->verdict.won;
	}
	settle();
	pump();
	return err;
}

/* A PUBLISHED for the VERSION of this number in the session. */
static void
published_for(uint32_t order, uint64_t v, uint32_t shard, uint32_t first, uint32_t blocks)
{
	struct fal_msg m = { .type = FAL_MSG_PUBLISHED };
	m.published.version = v;
	m.published.order = order;
	m.published.shard = shard;
	m.published.first = first;
	m.published.blocks = blocks;
	check(tell(&m), 0, "PUBLISHED");
}

/* A PUBLISHED for an announced version. */
static void
published(uint64_t v, uint32_t shard, uint32_t first, uint32_t blocks)
{
	published_for(1, v, shard, first, blocks);
}

/* Sends the map of this epoch: two shards, the first with `first` blocks. */
static void
map(uint32_t epoch, uint32_t shard, uint32_t blocks, uint32_t other)
{
	struct fal_msg m = { .type = FAL_MSG_BLOCKS, .blocks.epoch = epoch };
	struct fal_buf of = { 0 };
	struct fal_map is = { .shards = shard > other ? shard : other };
	is.of[shard - 1] = (struct fal_extent){ 0, blocks };
	is.of[other - 1] = (struct fal_extent){ blocks, BLOCKS - blocks };
	fal_map_put(&of, &is);
	m.blocks.of = (struct fal_tail){ of.p, of.n };
	check(tell(&m), 0, "BLOCKS");
	m.blocks.of.n -= 4;
	check(tell(&m), FAL_EFORMAT, "half a shard");
	m.blocks.of.n -= 4;
	check(tell(&m), blocks == BLOCKS ? 0 : FAL_EFORMAT, "a block is nobody's");
	fal_buf_free(&of);
}

static void
announce(uint64_t v, uint64_t oldest, bool keep)
{
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	m.version.version = v;
	m.version.oldest = oldest;
	m.version.keep = keep;
	check(tell(&m), 0, "VERSION");
	published(v, 1, 0, BLOCKS);
}

/* The first value of a version is its number. */
static void
model(uint64_t v)
{
	static float params[N];
	int8_t exps[BLOCKS] = { FAL_EXP_FIRST, FAL_EXP_FIRST };
	struct fal_msg m;
	struct fal_buf out = { 0 };
	params[0] = (float)v;
	const struct fal_model_part part = { v, 0, BLOCKS, params, N, exps };
	put_model_msg(&out, 6, &part);
	check(fal_msg_get(out.p, out.n, &m), 0, "get");
	check(tell(&m), 0, "MODEL");
	fal_buf_free(&out);
}

/* Sends a version; no older one is needed. */
static void
version(uint64_t v, bool keep)
{
	announce(v, v, keep);
	model(v);
}

/* Round r on version v has the tasks of clock 100 + r. */
static int
grant_on(uint64_t r, uint64_t v, uint32_t first, uint32_t count,
	 struct fal_contrib_id fills)
{
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	m.grant.round = r;
	m.grant.clock = 100 + r;
	m.grant.version = m.grant.exponents = v;
	m.grant.kind = FAL_KIND_GRAD;
	m.grant.first = first;
	m.grant.count = count;
	m.grant.fills_worker = fills.worker;
	m.grant.fills_seq = fills.seq;
	return tell(&m);
}

static int
grant(uint64_t round, uint32_t first, uint32_t count, struct fal_contrib_id fills)
{
	return grant_on(round, round, first, count, fills);
}

static const struct fal_contrib_id none = { 0, 0 };

static void
verdict(uint64_t round, uint32_t task, uint32_t seq, bool won)
{
	struct fal_msg m = { .type = FAL_MSG_VERDICT };
	m.verdict.round = round;
	m.verdict.task = task;
	m.verdict.seq = seq;
	m.verdict.won = won;
	check(tell(&m), 0, "VERDICT");
}

static void
revoke_of(uint64_t round, uint32_t first, uint32_t count, bool check_kind)
{
	struct fal_msg m = { .type = FAL_MSG_REVOKE };
	m.revoke.round = round;
	m.revoke.first = first;
	m.revoke.count = count;
	m.revoke.check = check_kind;
	check(tell(&m), 0, "REVOKE");
}

static void
revoke(uint64_t round, uint32_t first, uint32_t count)
{
	revoke_of(round, first, count, false);
}

static void
revoke_checks(uint64_t round, uint32_t first, uint32_t count)
{
	revoke_of(round, first, count, true);
}

static void
set_lanes(uint32_t lanes)
{
	struct fal_msg m = { .type = FAL_MSG_LANES };
	m.lanes.lanes = lanes;
	check(tell(&m), 0, "LANES");
}

/* The gradient of task t is t + 1 times the quantum everywhere. */
static void
finish(uint32_t lane)
{
	static float grad[N];
	struct fal_task_result ran = { .cancelled = cancelled[lane],
				       .loss = 5,
				       .samples = 2,
				       .right = 1,
				       .task_ns = 77,
				       .hash[FAL_TASK_HASH - 1] =
					       (uint8_t)run[lane].task };
	check(busy[lane], 1, "the lane that ends is busy");
	float quantum = 0x1p-23f * 0x1p-12f;
	for (size_t i = 0; i < N && !run[lane].eval; i++)
		grad[i] = quantum * (float)(run[lane].task + 1);
	struct fal_sum *sum = run[lane].sum;
	if (!run[lane].eval && sum == NULL && !cancelled[lane])
		ran.sum = sum = fal_sum_new(N);
	if (sum != NULL)
		check(fal_sum_quantise(sum, grad, run[lane].exps, run[lane].room, NULL),
		      0, "quantise");
	busy[lane] = false;
	check(fal_agent_finished(agent, now, lane, &ran), 0, "finished");
	settle();
	pump();
}

static void
leave(const char *why)
{
	fal_agent_leave(agent, now, why);
	settle();
	pump();
}

/* Expects the PUSH of a contribution in which every value is `value`. */
static void
expect_push(uint32_t seq, uint32_t tasks, int64_t value)
{
	check(sent[seen].bulk, 1, "bulk");
	const struct fal_msg *m = next(FAL_MSG_PUSH);
	struct fal_rd r = fal_rd_init(m->push.records.p, m->push.records.n);
	struct fal_bfp_rec rec;
	check(m->push.ticket.seq, seq, "seq");
	check(m->push.ticket.tasks, tasks, "tasks");
	check(m->push.ticket.kind, FAL_KIND_GRAD, "kind");
	for (uint32_t b = 0; b < BLOCKS; b++) {
		check(fal_bfp_parse(&r, N, &rec), 0, "record");
		check(rec.block, b, "block");
		for (uint32_t i = 0; i < rec.len; i++)
			check(record_value(&rec, i), value, "value");
	}
	check((int64_t)r.n, 0, "bytes behind the records");
}

static void
expect_claim(uint32_t task, uint32_t seq)
{
	check(sent[seen].bulk, 0, "bulk");
	const struct fal_msg *m = next(FAL_MSG_CLAIM);
	check(m->claim.task, task, "claimed task");
	check(m->claim.seq, seq, "claimed for");
	check(m->claim.nonfinite, 0, "non-finite");
	check(m->claim.hash[FAL_TASK_HASH - 1], (int64_t)task % 256, "hash");
}

static void
claim_before_add(void **state)
{
	(void)state;
	check(grant(0, 0, 2, none), 0, "GRANT");
	check(busy[0], 0, "runs without the version");
	version(0, false);
	check(busy[0] && busy[1], 1, "two lanes run");
	check((int64_t)run[0].params[0], 0, "on which parameters");
	finish(0);
	check(sent[seen].m.claim.loss, 5, "loss");
	check((int64_t)sent[seen].m.claim.task_ns, 77, "task_ns");
	expect_claim(0, 1);
	verdict(0, 0, 1, true);
	nothing_sent(); /* a lane runs */
	finish(1);
	expect_claim(1, 1);
	nothing_sent(); /* a verdict is missing */
	verdict(0, 1, 1, true);
	expect_push(1, 2, 1 + 2);
	nothing_sent();
	verdict(0, 1, 1, true); /* again: the claim is gone */
	nothing_sent();
}

static int
begin_ahead(void **state)
{
	(void)state;
	return begin_as((struct fal_agent_conf){ .ahead = 1 });
}

/* Each lane has a task before any lane has a second one; a lane that is not in use any
 * more gets none. */
static void
tasks_ahead(void **state)
{
	(void)state;
	version(0, false);
	check(grant(0, 0, 4, none), 0, "GRANT");
	check(busy[0] && busy[1] && busy[2] && busy[3], 1, "all run");
	check(busy[4] || busy[5], 0, "a task that nobody granted");
	check(run[0].task == 0 && run[2].task == 2 && run[3].task == 3, 1, "in order");
	set_lanes(1);
	check(grant(0, 4, 4, none), 0, "GRANT");
	finish(0);
	check(busy[0] && run[0].task == 4, 1, "the slot's next task");
	finish(1);
	finish(2);
	check(busy[1] || busy[2] || busy[4] || busy[5], 0, "lanes of no use");
	finish(3);
	check(busy[3] && run[3].task == 5, 1, "the other slot's next task");
	revoke(0, 5, 1);
	check(cancelled[3] && !cancelled[0], 1, "REVOKE");
	finish(3);
	check(busy[3] && run[3].task == 6, 1, "after a task that moved");
}

static void
a_lost_verdict_drops(void **state)
{
	(void)state;
	version(0, false);
	grant(0, 0, 3, none);
	for (uint32_t lane = 0; lane < 3; lane++) {
		finish(lane);
		expect_claim(lane, 1);
	}
	verdict(0, 0, 1, false);
	verdict(0, 2, 1, true);
	nothing_sent();
	verdict(0, 1, 1, false);
	expect_push(1, 1, 3);
	/* Nothing won, so nothing is pushed. */
	grant(0, 3, 1, none);
	finish(0);
	expect_claim(3, 2);
	verdict(0, 3, 2, false);
	nothing_sent();
}

/* Tasks of kind check run on their version and are answered, and join no contribution. */
static void
checks_are_answered(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	version(4, false);
	m.grant.round = 4;
	m.grant.version = m.grant.exponents = 4;
	m.grant.clock = 104;
	m.grant.first = 6;
	m.grant.count = 3;
	m.grant.kind = FAL_KIND_CHECK;
	check(tell(&m), 0, "GRANT");
	for (uint32_t lane = 0; lane < 2; lane++) {
		check((int64_t)run[lane].clock, 104, "clock");
		finish(lane);
		const struct fal_msg *c = next(FAL_MSG_CHECKED);
		check((int64_t)c->checked.round, 4, "round");
		check(c->checked.task, 6 + lane, "task");
		check(c->checked.nonfinite, 0, "nonfinite");
	}
	revoke_checks(4, 6, 3);
	check(cancelled[2], 1, "the third is not wanted any more");
	finish(2);
	nothing_sent();
	/* The same task may be granted as a gradient, too. */
	check(grant(4, 6, 1, none), 0, "GRANT");
	finish(0);
	expect_claim(6, 1);
	verdict(4, 6, 1, true);
	expect_push(1, 1, 7);
}

/* A witness of a task may get the same task as a gradient, in either order, and each is
 * revoked alone. */
static void
checks_are_tasks_of_their_own(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	version(0, false);
	set_lanes(1);
	m.grant.first = 4;
	m.grant.count = 2;
	m.grant.kind = FAL_KIND_CHECK;
	check(tell(&m), 0, "GRANT");
	check(grant(0, 4, 2, none), 0, "GRANT");
	revoke_checks(0, 5, 1);
	finish(0);
	check(next(FAL_MSG_CHECKED)->checked.task, 4, "witnessed");
	for (uint32_t t = 4; t < 6; t++) {
		check(run[0].task, t, "for good");
		if (t == 5) {
			check(tell(&m), 0, "GRANT of kind check");
			revoke(0, 4, 1);
			check(cancelled[0], 0, "another task is revoked");
		}
		finish(0);
		expect_claim(t, 1);
		verdict(0, t, 1, true);
	}
	expect_push(1, 2, 5 + 6);
	for (uint32_t t = 4; t < 6; t++) {
		check(run[0].task, t, "witnessed once more");
		finish(0);
		check(next(FAL_MSG_CHECKED)->checked.task, t, "witnessed once more");
	}
	nothing_sent();
}

static void
pushes_only_when_idle(void **state)
{
	(void)state;
	version(0, false);
	set_lanes(1);
	grant(0, 0, 3, none);
	check(grant(0, 0, 3, none), 0, "a GRANT of what it holds");
	check(busy[1], 0, "a second lane");
	for (uint32_t t = 0; t < 3; t++) {
		check(run[0].task, t, "task on the lane");
		finish(0);
		expect_claim(t, 1);
		verdict(0, t, 1, true);
		if (t < 2)
			nothing_sent();
	}
	expect_push(1, 3, 1 + 2 + 3);
}

static void
revoke_and_cancel(void **state)
{
	(void)state;
	version(0, false);
	set_lanes(1);
	grant(0, 4, 3, none);
	revoke(1, 4, 3); /* another round */
	check(cancelled[0], 0, "cancelled");
	revoke(0, 4, 2);
	check(cancelled[0], 1, "the running task is cancelled");
	finish(0);
	nothing_sent();
	check(run[0].task, 6, "what was not revoked");
	finish(0);
	expect_claim(6, 1);
	verdict(0, 6, 1, true);
	expect_push(1, 1, 7);
	/* A revoked task may be granted again. */
	grant(0, 4, 1, none);
	check(busy[0], 1, "runs");
	revoke(0, 4, 1);
	nothing_sent();
	finish(0);
}

static void
fence_drops_a_contribution(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	version(0, false);
	grant(0, 0, 2, none);
	finish(0);
	expect_claim(0, 1);
	verdict(0, 0, 1, true);
	m.fence.seq = 1;
	check(tell(&m), 0, "FENCE");
	finish(1);
	expect_claim(1, 2);
	verdict(0, 1, 2, true);
	expect_push(2, 1, 2);
	nothing_sent();
	check(tell(&m), 0, "FENCE of what is gone");
}

static void
fills_are_contributions_of_their_own(void **state)
{
	(void)state;
	version(0, false);
	grant(0, 0, 1, none);
	grant(0, 1, 1, (struct fal_contrib_id){ 9, 4 });
	finish(1);
	check(sent[seen].m.claim.fills_worker, 9, "fills worker");
	check(sent[seen].m.claim.fills_seq, 4, "fills seq");
	expect_claim(1, 1);
	finish(0);
	check(sent[seen].m.claim.fills_worker, 0, "fills worker");
	expect_claim(0, 2);
	verdict(0, 1, 1, true);
	expect_push(1, 1, 2);
	verdict(0, 0, 2, true);
	expect_push(2, 1, 1);
}

/* With a limit of three halves of sums, a second contribution begins when the first one
 * has left. */
static void
a_fill_waits_for_a_sum(void **state)
{
	(void)state;
	version(0, false);
	grant(0, 0, 2, none);
	check(busy[0] + busy[1], 1, "lanes at work beside a contribution");
	finish(0);
	expect_claim(0, 1);
	check(busy[0] + busy[1], 0, "lanes at work while a result waits");
	verdict(0, 0, 1, true);
	check(busy[0] + busy[1], 1, "lanes at work");
	finish(0);
	expect_claim(1, 1);
	verdict(0, 1, 1, true);
	grant(0, 5, 2, (struct fal_contrib_id){ 9, 4 });
	check(busy[0] + busy[1], 0, "lanes at a fill while the push is not away");
	nothing_sent();
	check((int64_t)agent_memory_halves(agent) <= 4, 1, "halves");
	room = UINT32_MAX;
	pump();
	expect_push(1, 2, 3);
	check(busy[0] + busy[1], 1, "lanes at the fill");
	finish(0);
	expect_claim(5, 2);
	verdict(0, 5, 2, true);
	finish(0);
	expect_claim(6, 2);
	verdict(0, 6, 2, true);
	expect_push(2, 2, 13);
	check((int64_t)agent_memory_halves(agent) <= 4, 1, "halves");
}

/* Sends one block of a version: `n` values. */
static void
model_block(uint64_t v, uint32_t block, const float *values, size_t n, const int8_t *exps)
{
	const struct fal_model_part part = { v, block, 1, values, n, exps };
	struct fal_buf out = { 0 };
	struct fal_msg m;
	put_model_msg(&out, 6, &part);
	check(fal_msg_get(out.p, out.n, &m), 0, "get");
	check(tell(&m), 0, "MODEL");
	fal_buf_free(&out);
}

/* Sends all of version 0. */
static void
whole_version(size_t n, const float *values, const int8_t *exps)
{
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	check(tell(&m), 0, "VERSION");
	published(0, 1, 0, fal_blocks(n));
	for (uint32_t b = 0; b < fal_blocks(n); b++)
		model_block(0, b, values, fal_block_len(n, b), exps);
}

/* All small results of a clock of the shipped jobs may wait for their verdicts: a link
 * with latency costs a clock one round trip, not one for every few tasks. */
static void
small_results_wait(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(drawn_seed(45), 7, 0);
	const size_t n = 30000 + fal_rng_below(&r, 32000);
	const uint32_t tasks = 20 + fal_rng_below(&r, 13);
	const struct fal_rule rule = { .scheme = FAL_EPSP };
	const struct fal_agent_limits most = fal_agent_limits(&rule, false);
	struct fal_agent_conf conf = {
		.n = n, .lanes_max = 1, .tasks = tasks, .most = most
	};
	float *values = calloc(n, sizeof(*values));
	const int8_t exps[16] = { 0 };
	conf.sums = fal_agent_sums(&conf, &most);
	assert_non_null(values);
	check(begin_as(conf), 0, "begin");
	whole_version(n, values, exps);
	grant(0, 0, tasks, none);
	for (uint32_t task = 0; task < tasks; task++) {
		const struct fal_task_result ran = { .samples = 2,
						     .right = 1,
						     .task_ns = 77 };
		check(busy[0], 1, "the lane has the next task");
		busy[0] = false;
		check(fal_sum_quantise(run[0].sum, values, exps, run[0].room, NULL), 0,
		      "quantise");
		check(fal_agent_finished(agent, now, 0, &ran), 0, "finished");
		check(next(FAL_MSG_CLAIM)->claim.task, task, "task");
	}
	free(values);
}

/* A lane goes on beside one result without a verdict, however large results are, as
 * verdicts take as long as the link: within the sums that the worker has announced. */
static void
a_large_result_waits(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(drawn_seed(38), 7, 0);
	const uint32_t blocks = 514 + fal_rng_below(&r, 20); /* small results may wait */
	const uint32_t tasks = 3 + fal_rng_below(&r, 5);
	const size_t n = (size_t)blocks * FAL_BLOCK - fal_rng_below(&r, FAL_BLOCK);
	const struct fal_rule rule = { .scheme = FAL_EPSP };
	const struct fal_agent_limits most = fal_agent_limits(&rule, false);
	struct fal_agent_conf conf = {
		.n = n, .lanes_max = 1, .tasks = tasks, .most = most
	};
	float *values = calloc(n, sizeof(*values));
	int8_t exps[534] = { 0 };
	conf.sums = fal_agent_sums(&conf, &most);
	assert_non_null(values);
	for (size_t i = 0; i < n; i++)
		values[i] = (float)fal_rng_below(&r, 1000) / 1000;
	check(begin_as(conf), 0, "begin");
	whole_version(n, values, exps);
	grant(0, 0, tasks, none);
	for (uint32_t task = 0; task < tasks; task++) {
		const struct fal_task_result ran = { .samples = 2,
						     .right = 1,
						     .task_ns = 77 };
		check(busy[0], 1, "the lane has the next task");
		busy[0] = false;
		for (uint32_t b = 0; b < blocks; b++)
			check(fal_sum_quantise_block(run[0].sum, b,
						     values + (size_t)b * FAL_BLOCK, 0,
						     run[0].room),
			      0, "quantise");
		check(fal_agent_finished(agent, now, 0, &ran), 0, "finished");
		check(next(FAL_MSG_CLAIM)->claim.task, task, "task");
		if (task == 0)
			continue;
		check(busy[0], 0, "lanes at work beside two results");
		verdict(0, task - 1, 1, true);
		check((int64_t)agent_memory_halves(agent) <= (int64_t)conf.sums + 1, 1,
		      "halves and versions");
	}
	verdict(0, tasks - 1, 1, false);
	free(values);
}

/* A task that may begin beside another contribution only if it is alone in its own stays
 * alone, whatever task follows. */
static void
alone_where_sums_are_few(void **state)
{
	(void)state;
	version(0, false);
	grant(0, 0, 1, none);
	finish(0);
	expect_claim(0, 1);
	verdict(0, 0, 1, true);
	grant(0, 5, 1, none);
	check(busy[0] + busy[1], 1, "lanes beside a push");
	grant(0, 6, 1, none);
	finish(0);
	check(sent[seen].m.claim.last, 1, "it is the last");
	expect_claim(5, 2);
	room = UINT32_MAX;
	verdict(0, 5, 2, true);
	expect_push(1, 1, 1);
	expect_push(2, 1, 6);
	finish(0);
	expect_claim(6, 3);
	verdict(0, 6, 3, true);
	expect_push(3, 1, 7);
	check((int64_t)agent_memory_halves(agent) <= 4, 1, "halves");
}

/* Tasks of three versions are granted to a worker with room for two. */
static void
more_versions_are_asked_for(void **state)
{
	(void)state;
	memset(&asked, 0, sizeof(asked));
	may_grow = true;
	for (uint64_t v = 0; v < 3; v++) {
		announce(v, 0, false);
		model(v);
	}
	check(asked.versions, 3, "versions that were asked for");
	check(asked.delay, 1, "and the delay that makes them");
	check(fal_agent_has_version(agent, 2), 1, "it is here");
	memset(&asked, 0, sizeof(asked));
	announce(3, 2, false);
	model(3);
	check(fal_agent_has_version(agent, 3), 1, "it is here");
	check(asked.versions, 0, "versions that were asked for");
}

static void
more_versions_are_denied(void **state)
{
	(void)state;
	memset(&asked, 0, sizeof(asked));
	may_grow = false;
	for (uint64_t v = 0; v < 2; v++) {
		announce(v, 0, false);
		model(v);
	}
	check(asked.versions, 0, "versions that were asked for");
	announce(2, 0, false);
	model(2);
	check(asked.versions, 3, "versions that were asked for");
	check(fal_agent_has_version(agent, 2), 0, "it is here");
	check(fal_agent_has_version(agent, 1), 1, "that before it is here");
	memset(&asked, 0, sizeof(asked));
	announce(3, 0, false);
	model(3);
	check(asked.versions, 0, "versions that were asked for, once more");
}

/* If a lane stands still because a result waits for its verdict, the worker asks for more
 * sums; and for local steps when their GRANT comes. */
static void
more_of_other_rules_is_asked_for(void **state)
{
	(void)state;
	memset(&asked, 0, sizeof(asked));
	may_grow = false;
	version(0, false);
	grant(0, 0, 3, none);
	check(asked.moves, 0, "more sums were asked for");
	finish(0);
	expect_claim(0, 1);
	check(asked.moves, 1, "more sums were asked for");
	asked.moves = false;
	verdict(0, 0, 1, true);
	finish(0);
	expect_claim(1, 1);
	check(asked.moves, 0, "they were asked for once more");
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	m.grant.round = m.grant.clock = 1;
	m.grant.kind = FAL_KIND_DELTA;
	m.grant.count = m.grant.of = 1;
	m.grant.steps = 1;
	check(tell(&m), 0, "GRANT");
	check(asked.delta, 1, "local steps were asked for");
	check(busy[0] + busy[1] + busy[2], 0, "lanes at local steps");
}

/* Two rounds at once, each on its version, in either order. */
static void
rounds_on_their_versions(void **state)
{
	(void)state;
	grant_on(8, 1, 0, 1, none);
	grant_on(7, 0, 3, 2, none);
	announce(0, 0, false);
	announce(1, 0, false);
	model(0);
	check(busy[0] && busy[1], 1, "round 7 runs");
	check(busy[2], 0, "round 8 runs without its version");
	model(1);
	check(busy[2], 1, "round 8 runs");
	check((int64_t)run[0].round, 7, "round");
	check((int64_t)run[0].clock, 107, "clock");
	check(run[0].task, 3, "task");
	check((int64_t)run[0].params[0], 0, "version of round 7");
	check((int64_t)run[2].round, 8, "round");
	check((int64_t)run[2].params[0], 1, "version of round 8");
	/* An older round goes before queued tasks. */
	grant_on(9, 1, 5, 1, none);
	grant_on(7, 0, 9, 1, none);
	finish(2);
	check((int64_t)next(FAL_MSG_CLAIM)->claim.round, 8, "claimed round");
	check((int64_t)run[2].round, 7, "the oldest round first");
	check(run[2].task, 9, "task");
	verdict(7, 0, 1, true); /* of another round */
	nothing_sent();
	verdict(8, 0, 1, true);
	check((int64_t)sent[seen].m.push.ticket.round, 8, "pushed while 7 is under way");
	expect_push(1, 1, 1);
	finish(0);
	check((int64_t)run[0].round, 9, "then round 9");
	finish(0);
	finish(1);
	finish(2);
	expect_claim(3, 2);
	expect_claim(5, 3);
	expect_claim(4, 2);
	expect_claim(9, 2);
	verdict(7, 3, 2, true);
	verdict(7, 9, 2, true);
	verdict(9, 5, 3, false);
	nothing_sent(); /* nothing of round 9 was won */
	verdict(7, 4, 2, true);
	check((int64_t)sent[seen].m.push.ticket.round, 7, "pushed round");
	expect_push(2, 3, 4 + 5 + 10);
	nothing_sent();
}

/* Versions below the oldest are dropped, except those that a queued task needs. */
static void
oldest_version(void **state)
{
	(void)state;
	set_lanes(1);
	version(0, false);
	announce(1, 0, false);
	model(1);
	grant_on(1, 1, 0, 1, none);
	grant_on(2, 0, 1, 1, none);
	version(2, false);
	version(3, false);
	check(cancelled[0], 0, "a newer version cancels");
	finish(0);
	check((int64_t)run[0].params[0], 0, "the version that was named");
	version(4, false);
	grant_on(3, 0, 2, 1, none); /* too late: version 0 is gone */
	grant_on(4, 4, 3, 1, none);
	finish(0);
	check((int64_t)run[0].round, 4, "what can run");
	check((int64_t)run[0].params[0], 4, "on the newest");
	finish(0);
	check(busy[0], 0, "a task without its version runs");
	expect_claim(0, 1);
	expect_claim(1, 2);
	expect_claim(3, 3);
	revoke(3, 2, 1);
	/* The worker does not wait for a version that was skipped for a newer one. */
	announce(5, 4, false);
	version(6, false);
	now += 10;
	struct fal_msg m = { .type = FAL_MSG_ACCOUNT };
	check(tell(&m), 0, "ACCOUNT");
	check((int64_t)next(FAL_MSG_WORKED)->worked.pull, 0, "pulls");
}

/* Versions of another branch than the oldest are dropped, whatever their numbers; coming
 * ones are not skipped for a newer version of another branch. */
static void
versions_of_lines(void **state)
{
	(void)state;
	const uint64_t a = fal_branch_version(2, 7), b = fal_branch_version(1, 9);
	set_lanes(1);
	version(3, false);
	version(a, false);
	grant_on(1, 3, 0, 1, none); /* too late: only versions of branch 2 are needed */
	check(busy[0], 0, "a task without its version runs");
	revoke(1, 0, 1);
	grant_on(2, a, 1, 1, none);
	check((int64_t)run[0].round, 2, "on the line");
	announce(b, b, false); /* to a branch of lower numbers */
	announce(4, b, true);  /* to be evaluated */
	model(b);
	model(4);
	grant_on(3, b, 2, 1, none);
	finish(0);
	check((int64_t)run[0].round, 3, "on the other line");
	/* Back to the model, whose version 4 is dropped; a version that a task needs
	 * still comes. */
	announce(b + 1, b + 1, false);
	announce(b + 2, b + 1, false);
	grant_on(4, b + 1, 3, 1, none);
	announce(4, 4, false);
	model(b + 1);
	model(4);
	grant_on(5, 4, 4, 1, none);
	finish(0);
	check((int64_t)run[0].round, 4, "the task that names the line");
	finish(0);
	check((int64_t)run[0].round, 5, "on the model again");
	check((int64_t)run[0].params[0], 4, "on version 4");
	finish(0);
	for (uint32_t task = 1; task < 5; task++)
		expect_claim(task, task);
	now += 10;
	struct fal_msg m = { .type = FAL_MSG_ACCOUNT };
	check(tell(&m), 0, "ACCOUNT");
	check((int64_t)next(FAL_MSG_WORKED)->worked.pull, 0, "pulls");
}

/* A PUSH has the exponents of the version on which its round computes. */
static void
exponents_of_the_round(void **state)
{
	(void)state;
	static float params[N];
	struct fal_buf out = { 0 };
	struct fal_msg m;
	const int8_t exps[BLOCKS] = { 3, -4 };
	version(0, false);
	grant_on(5, 0, 0, 1, none);
	announce(1, 1, false);
	const struct fal_model_part part = { 1, 0, BLOCKS, params, N, exps };
	put_model_msg(&out, 6, &part);
	check(fal_msg_get(out.p, out.n, &m), 0, "get");
	check(tell(&m), 0, "MODEL");
	grant_on(6, 1, 0, 1, none);
	finish(0);
	finish(1);
	next(FAL_MSG_CLAIM);
	next(FAL_MSG_CLAIM);
	verdict(6, 0, 2, true);
	verdict(5, 0, 1, true);
	for (uint32_t k = 0; k < 2; k++) {
		const struct fal_msg *p = next(FAL_MSG_PUSH);
		struct fal_rd r = fal_rd_init(p->push.records.p, p->push.records.n);
		struct fal_bfp_rec rec;
		for (uint32_t b = 0; b < BLOCKS; b++) {
			check(fal_bfp_parse(&r, N, &rec), 0, "record");
			check(rec.exponent, k == 0 ? exps[b] : FAL_EXP_FIRST, "exponent");
		}
	}
	fal_buf_free(&out);
}

/* A late task computes on one version with the exponents of the version before, and joins
 * a contribution with an early task, once both versions are here. */
static void
late_tasks(void **state)
{
	(void)state;
	static float params[N];
	const int8_t exps[BLOCKS] = { 3, -4 };
	struct fal_buf out = { 0 };
	struct fal_msg late = { .type = FAL_MSG_GRANT }, m;
	version(0, false);
	grant_on(5, 0, 0, 1, none);
	late.grant.round = 5;
	late.grant.version = 1;
	late.grant.kind = FAL_KIND_GRAD;
	late.grant.first = late.grant.count = 1;
	check(tell(&late), 0, "GRANT");
	check(busy[1], 0, "runs without its version");
	announce(1, 0, false);
	const struct fal_model_part part = { 1, 0, BLOCKS, params, N, exps };
	put_model_msg(&out, 6, &part);
	check(fal_msg_get(out.p, out.n, &m), 0, "get");
	check(tell(&m), 0, "MODEL");
	check(busy[1], 1, "runs");
	check((int64_t)run[1].version, 1, "version");
	check((int64_t)run[1].exponents, 0, "the version of its exponents");
	check(run[1].exps[0], FAL_EXP_FIRST, "exponent");
	finish(0);
	finish(1);
	next(FAL_MSG_CLAIM);
	check((int64_t)next(FAL_MSG_CLAIM)->claim.version, 1, "version of the claim");
	verdict(5, 0, 1, true);
	verdict(5, 1, 1, true);
	const struct fal_msg *p = next(FAL_MSG_PUSH);
	check(p->push.ticket.tasks, 2, "tasks");
	fal_buf_free(&out);
}

static void
revoke_and_fence_by_round(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	version(0, false);
	grant_on(1, 0, 0, 1, none);
	grant_on(2, 0, 0, 2, none);
	revoke(2, 0, 1);
	check(cancelled[0], 0, "task 0 of round 1");
	check(cancelled[1], 1, "task 0 of round 2");
	check(cancelled[2], 0, "task 1 of round 2");
	finish(1);
	finish(0);
	finish(2);
	expect_claim(0, 1);
	expect_claim(1, 2);
	m.fence.round = 1;
	m.fence.seq = 2;
	check(tell(&m), 0, "FENCE of another round's");
	verdict(2, 1, 2, true);
	expect_push(2, 1, 2);
	m.fence.seq = 1;
	check(tell(&m), 0, "FENCE");
	verdict(1, 0, 1, true);
	nothing_sent();
}

static void
drained(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_DRAIN };
	strcpy(m.drain.why, "maintenance");
	version(0, false);
	grant(0, 0, 1, none);
	finish(0);
	expect_claim(0, 1);
	check(tell(&m), 0, "DRAIN");
	check(fal_agent_has_left(agent), 0, "left");
	verdict(0, 0, 1, true);
	expect_push(1, 1, 1);
	assert_string_equal(next(FAL_MSG_LEAVE)->leave.why, "maintenance");
	check(fal_agent_has_left(agent), 1, "left");
}

static void
leave_in_order(void **state)
{
	(void)state;
	version(0, false);
	grant(0, 0, 4, none);
	finish(0);
	expect_claim(0, 1);
	leave("SIGTERM");
	check(cancelled[1] && cancelled[2], 1, "what runs is cancelled");
	nothing_sent(); /* a verdict is missing */
	check(fal_agent_has_left(agent), 0, "left");
	grant(0, 8, 1, none);
	verdict(0, 0, 1, true);
	expect_push(1, 1, 1);
	check(sent[seen].bulk, 1, "LEAVE goes behind the PUSH");
	assert_string_equal(next(FAL_MSG_LEAVE)->leave.why, "SIGTERM");
	check(fal_agent_has_left(agent), 1, "left");
	leave("again");
	for (uint32_t lane = 0; lane < LANES; lane++)
		if (busy[lane])
			finish(lane);
	nothing_sent();
}

/* Expects one block of a contribution, which leaves as the channel takes it. */
static void
expect_block(uint64_t round, uint32_t seq, uint32_t block, int64_t value)
{
	struct fal_bfp_rec rec;
	check((int64_t)sent[seen].m.push.ticket.round, (int64_t)round, "round");
	check(sent[seen].bulk, 1, "bulk");
	const struct fal_msg *m = next(FAL_MSG_PUSH);
	struct fal_rd r = fal_rd_init(m->push.records.p, m->push.records.n);
	check(m->push.ticket.seq, seq, "seq");
	check(fal_bfp_parse(&r, N, &rec), 0, "record");
	check(rec.block, block, "block");
	for (uint32_t i = 0; i < rec.len; i++)
		check(record_value(&rec, i), value, "value");
	check((int64_t)r.n, 0, "bytes behind the record");
}

static void
make_room(uint32_t messages)
{
	room = messages;
	pump();
}

/* Claims and wins a task of a round of its own. */
static void
contribute(uint64_t round, uint32_t task, uint32_t seq)
{
	grant_on(round, 0, task, 1, none);
	finish(0);
	expect_claim(task, seq);
	verdict(round, task, seq, true);
}

/* Contributions leave one behind the other, unchanged, while lanes go on. */
static void
pushes_as_there_is_room(void **state)
{
	(void)state;
	version(0, false);
	contribute(1, 4, 1);
	contribute(2, 7, 2);
	nothing_sent();
	now += 10;
	fal_agent_flushed(agent, now); /* not a later one */
	now += 10;
	make_room(1);
	expect_block(1, 1, 0, 5);
	nothing_sent();
	contribute(3, 9, 3);
	make_room(2);
	expect_block(1, 1, 1, 5);
	expect_block(2, 2, 0, 8);
	version(1, false);
	make_room(9);
	expect_block(2, 2, 1, 8);
	expect_block(3, 3, 0, 10);
	expect_block(3, 3, 1, 10);
	nothing_sent();
	fal_agent_flushed(agent, now);
	now += 1000;
	struct fal_msg m = { .type = FAL_MSG_ACCOUNT };
	check(tell(&m), 0, "ACCOUNT");
	check((int64_t)next(FAL_MSG_WORKED)->worked.push, 20, "push");
}

/* The rest of a fenced push is not sent; later pushes are, from their first block. */
static void
fence_in_the_middle_of_a_push(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	version(0, false);
	contribute(1, 4, 1);
	contribute(2, 7, 2);
	contribute(3, 9, 3);
	make_room(1);
	expect_block(1, 1, 0, 5);
	m.fence.round = 2;
	m.fence.seq = 2;
	check(tell(&m), 0, "FENCE of what waits");
	m.fence.round = 1;
	m.fence.seq = 1;
	check(tell(&m), 0, "FENCE of what is on its way");
	check(tell(&m), 0, "FENCE again");
	make_room(9);
	expect_block(3, 3, 0, 10);
	expect_block(3, 3, 1, 10);
	nothing_sent();
}

static void
leave_waits_for_pushes(void **state)
{
	(void)state;
	version(0, false);
	contribute(1, 4, 1);
	make_room(1);
	expect_block(1, 1, 0, 5);
	leave("SIGTERM");
	check(fal_agent_has_left(agent), 0, "left");
	make_room(1);
	expect_block(1, 1, 1, 5);
	check(fal_agent_has_left(agent), 0, "left");
	nothing_sent();
	make_room(9);
	assert_string_equal(next(FAL_MSG_LEAVE)->leave.why, "SIGTERM");
	check(fal_agent_has_left(agent), 1, "left");
	check(room, 8, "room that is left");
	nothing_sent();
}

static void
leave_when_idle(void **state)
{
	(void)state;
	leave("drained");
	assert_string_equal(next(FAL_MSG_LEAVE)->leave.why, "drained");
	nothing_sent();
}

/* One block of a version, of two. */
static void
half(uint64_t v, uint32_t block)
{
	static float params[N];
	const int8_t exps[1] = { FAL_EXP_FIRST };
	model_block(v, block, params, N - block * FAL_BLOCK, exps);
}

static void
worked_adds_up(void **state)
{
	(void)state;
	version(0, false);
	now += 100; /* waits for its first task, from 1000 on: that does not count */
	grant(0, 0, 1, none);
	now += 1000; /* computes */
	finish(0);
	now += 20; /* waits for the verdict */
	verdict(0, 0, next(FAL_MSG_CLAIM)->claim.seq, true);
	expect_push(1, 1, 1);
	now += 300; /* pushes */
	fal_agent_flushed(agent, now);
	now += 4; /* waits */
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	m.version.version = 1;
	check(tell(&m), 0, "VERSION");
	now += 7000; /* waits: the version lacks others' contributions */
	published(1, 1, 0, BLOCKS);
	now += 50000; /* pulls */
	half(1, 1);
	now += 600; /* waits: the shard made the other blocks first */
	fal_agent_add_lateness(agent, 9);
	half(1, 0);
	nothing_sent();
	m = (struct fal_msg){ .type = FAL_MSG_ACCOUNT };
	m.account.mark = 33;
	check(tell(&m), 0, "ACCOUNT");
	const struct fal_msg *w = next(FAL_MSG_WORKED);
	check((int64_t)w->worked.mark, 33, "mark");
	check((int64_t)w->worked.compute, 1000, "compute");
	check((int64_t)w->worked.push, 300, "push");
	check((int64_t)w->worked.push_all, 300, "push_all");
	check((int64_t)w->worked.pull, 50000, "pull");
	check((int64_t)w->worked.pull_all, 50000, "pull_all");
	check((int64_t)w->worked.wait, 20 + 4 + 7000 + 600, "wait");
	check((int64_t)w->worked.late, 9, "late");
	check((int64_t)(w->worked.compute + w->worked.push + w->worked.pull +
			w->worked.wait),
	      (int64_t)(now - 1100), "all of it");
	fal_agent_add_lateness(agent, 3);
	fal_agent_add_lateness(agent, -8); /* the reported lateness is made up for, too */
	check(tell(&m), 0, "ACCOUNT");
	w = next(FAL_MSG_WORKED);
	check((int64_t)(w->worked.compute + w->worked.push + w->worked.pull +
			w->worked.wait + w->worked.late),
	      0, "the next one begins at zero");
	fal_agent_add_lateness(agent, 7);
	check(tell(&m), 0, "ACCOUNT");
	check((int64_t)next(FAL_MSG_WORKED)->worked.late, 2, "in all, what was lost");
}

/* The rows of the next WORKED. */
static void
waits(struct fal_shard_wait w[static 4])
{
	const struct fal_msg m = { .type = FAL_MSG_ACCOUNT };
	memset(w, 0, 4 * sizeof(*w));
	check(tell(&m), 0, "ACCOUNT");
	const struct fal_msg *is = next(FAL_MSG_WORKED);
	check(fal_shard_wait_get(&is->worked.waits, 4, UINT64_MAX, w), 0, "rows");
}

/* The worker waits for the last shard from the time when the first one has begun, and
 * only while it has nothing else to do. */
static void
shards_that_are_waited_for(void **state)
{
	(void)state;
	struct fal_shard_wait w[4];
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	map(0, 2, 1, 4);
	published_for(1, 1, 2, 0, 1);
	published_for(1, 1, 4, 1, 1);
	m.version.version = 1;
	check(tell(&m), 0, "VERSION");
	half(1, 0);
	half(1, 1);
	waits(w);
	check(w[0].parts + w[2].parts, 0, "of shards without blocks");
	check(w[1].parts, 1, "parts of shard 2");
	check(w[3].parts, 1, "parts of shard 4");
	/* Waiting before the first task counts for no shard. */
	grant_on(0, 1, 0, 1, none);
	finish(0);
	next(FAL_MSG_CLAIM);
	m.version.version = 2;
	check(tell(&m), 0, "VERSION");
	now += 10000; /* no shard has begun */
	published_for(2, 2, 2, 0, 1);
	now += 400; /* both are unfinished */
	half(2, 0);
	now += 3000; /* one is unfinished */
	grant_on(1, 1, 0, 1, none);
	now += 70000; /* computes */
	finish(0);
	next(FAL_MSG_CLAIM);
	now += 500;
	published_for(2, 2, 4, 1, 1);
	now += 30;
	half(2, 1);
	now += 90000; /* all is here */
	waits(w);
	check((int64_t)w[1].took, 400, "until shard 2 was through");
	check((int64_t)w[1].waited, 200, "waits for shard 2");
	check((int64_t)w[3].took, 400 + 3000 + 70000 + 500 + 30, "shard 4 was through");
	check((int64_t)w[3].waited, 200 + 3000 + 500 + 30, "waits for shard 4");
	waits(w);
	check((int64_t)(w[1].took + w[3].waited) + w[3].parts, 0, "the next is anew");
}

static void
evaluation(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_EVAL };
	m.eval.version = 0;
	m.eval.count = 2;
	check(tell(&m), 0, "EVAL");
	check(busy[0], 0, "runs without the version");
	version(0, true);
	check(busy[0] && run[0].eval && run[0].sum == NULL, 1, "evaluates");
	set_lanes(1);
	finish(1);
	const struct fal_msg *e = next(FAL_MSG_EVALUATED);
	check((int64_t)e->evaluated.version, 0, "version");
	check(e->evaluated.samples, 2, "samples");
	check(e->evaluated.right, 1, "right");
	version(1, false);
	check(cancelled[0], 0, "evaluation outlives a new version");
	check(tell(&m), 0, "EVAL"); /* of the kept version, again */
	grant(1, 0, 1, none);
	finish(0);
	next(FAL_MSG_EVALUATED);
	check(run[0].eval, 0, "training goes first");
	finish(0);
	expect_claim(0, 1);
	check(run[0].eval, 1, "then evaluation");
	check((int64_t)run[0].params[0], 0, "on the kept version");
	m.eval.version = 3; /* never sent: tasks queued for the old version are dropped */
	check(tell(&m), 0, "EVAL");
	finish(0);
	next(FAL_MSG_EVALUATED);
	check(busy[0], 0, "runs");
}

/* A closed contribution stays closed, though another task of the round comes. */
static void
evaluation_before_a_push(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_EVAL };
	version(0, true);
	set_lanes(1);
	grant(0, 0, 1, none);
	m.eval.count = 1;
	check(tell(&m), 0, "EVAL");
	finish(0);
	expect_claim(0, 1);
	check(run[0].eval, 1, "evaluates");
	check(desk_of(0, 1)->closed, 1, "closed");
	grant(0, 1, 1, none);
	verdict(0, 0, 1, true);
	expect_push(1, 1, 1);
	finish(0);
	next(FAL_MSG_EVALUATED);
	finish(0);
	expect_claim(1, 2);
	verdict(0, 1, 2, true);
	expect_push(2, 1, 2);
}

static void
nonfinite(void **state)
{
	(void)state;
	struct fal_task_result ran = { .nonfinite = true, .task_ns = 1 };
	version(0, false);
	grant(0, 0, 2, none);
	busy[0] = false;
	check(fal_agent_finished(agent, now, 0, &ran), 0, "finished");
	const struct fal_msg *m = next(FAL_MSG_CLAIM);
	check(m->claim.nonfinite, 1, "non-finite");
	check(m->claim.seq, 0, "seq");
	finish(1);
	expect_claim(1, 1);
	verdict(0, 1, 1, true);
	expect_push(1, 1, 2);
}

static void
malformed_models(void **state)
{
	(void)state;
	static uint8_t data[BLOCKS + N * sizeof(float) + 1];
	static const struct {
		uint32_t first, blocks;
		int8_t exp;
		size_t n;
		int want;
	} cases[] = {
		{ 0, 0, 0, 0, FAL_EFORMAT },
		{ 0, 3, 0, 3 + N * 4, FAL_EFORMAT },
		{ 2, 1, 0, 1, FAL_EFORMAT },
		{ UINT32_MAX, 2, 0, 2, FAL_EFORMAT },
		{ 0, UINT32_MAX, 0, 0, FAL_EFORMAT },
		{ 0, 2, 0, 2 + N * 4 - 1, FAL_EFORMAT },
		{ 0, 2, 0, 2 + N * 4 + 1, FAL_EFORMAT },
		{ 0, 1, FAL_EXP_MAX + 1, 1 + FAL_BLOCK * 4, FAL_EFORMAT },
		{ 0, 1, FAL_EXP_MIN - 1, 1 + FAL_BLOCK * 4, FAL_EFORMAT },
		{ 1, 1, FAL_EXP_MAX, 1 + 5 * 4, FAL_OK },
		{ 1, 1, FAL_EXP_MAX + 1, 1 + 5 * 4, FAL_EFORMAT },
		{ 1, 1, 0, 1 + 5 * 4, FAL_OK }, /* again */
	};
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	check(tell(&m), 0, "VERSION");
	published(0, 1, 0, BLOCKS);
	m.type = FAL_MSG_MODEL;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(&m.model, 0, sizeof(m.model));
		m.model.first = cases[i].first;
		m.model.blocks = cases[i].blocks;
		data[0] = (uint8_t)cases[i].exp;
		m.model.data = (struct fal_tail){ data, cases[i].n };
		int got = tell(&m);
		if (got != cases[i].want)
			fail_msg("MODEL %zu: got %d, want %d", i, got, cases[i].want);
	}
	m.model.version = 4;
	check(tell(&m), 0, "MODEL of a version that is not coming");
}

/* Sends one block of a version, as its shard does; its first value is the version's
 * number. */
static void
part(uint64_t v, uint32_t block)
{
	static float params[N];
	const int8_t exp = FAL_EXP_FIRST;
	struct fal_msg m;
	struct fal_buf out = { 0 };
	params[0] = (float)v;
	const struct fal_model_part of = { v,   block, 1, params, fal_block_len(N, block),
					   &exp };
	put_model_msg(&out, 6, &of);
	check(fal_msg_get(out.p, out.n, &m), 0, "get");
	check(tell(&m), 0, "MODEL");
	fal_buf_free(&out);
}

/* The place for the values of a block of version v; NULL: none. */
static float *
place_for(uint64_t v, uint32_t block)
{
	const struct fal_agent_part at = { v, block, 1 };
	const size_t bytes = fal_block_len(N, block) * sizeof(float);
	size_t head = 0;
	float *to =
		(float *)fal_agent_place(agent, &at, FAL_MODEL_HEAD + 1 + bytes, &head);
	check((int64_t)head, to != NULL ? FAL_MODEL_HEAD + 1 : 0, "bytes before them");
	return to;
}

/* Sends the block's message, whose values are at their place already, except `more`
 * bytes. */
static int
placed(uint64_t v, uint32_t block, size_t more)
{
	static const uint8_t data[1 + 4 * N] = { (uint8_t)FAL_EXP_FIRST };
	struct fal_msg m = { .type = FAL_MSG_MODEL };
	m.model.version = v;
	m.model.first = block;
	m.model.blocks = 1;
	m.model.data = (struct fal_tail){ data, 1 + more };
	m.model.placed = true;
	return tell(&m);
}

/* Values may be put at their place before they are authenticated: a missing block of a
 * version that has begun to come has a place, and its content counts when its message has
 * come. */
static void
values_are_placed(void **state)
{
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	const struct fal_agent_part odd[] = {
		{ 0, 1, 0 }, { 0, 1, 2 }, { 0, 2, 1 }, { 0, UINT32_MAX, 2 }, { 0, 0, 2 }
	};
	const size_t last = fal_block_len(N, 1) * sizeof(float);
	size_t head;
	float *to;
	(void)state;
	check(tell(&m), 0, "VERSION");
	published(0, 1, 0, BLOCKS);
	assert_null(place_for(0, 0)); /* there is no memory yet */
	part(0, 0);
	assert_null(place_for(0, 0)); /* it is here */
	assert_null(place_for(1, 1)); /* no such version comes */
	check(placed(0, 1, 0), FAL_EFORMAT, "nobody was given the place");
	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
		for (uint32_t k = 0; k < 3; k++)
			assert_null(fal_agent_place(agent, &odd[i],
						    FAL_MODEL_HEAD + k + last, &head));
	const struct fal_agent_part at = { 0, 1, 1 };
	for (size_t n = FAL_MODEL_HEAD; n < FAL_MODEL_HEAD + last + 9; n++)
		check(fal_agent_place(agent, &at, n, &head) != NULL,
		      n == FAL_MODEL_HEAD + 1 + last, "of so many bytes");
	/* The next message must be the one for the place, or the place is void. */
	assert_non_null(place_for(0, 1));
	check(placed(0, 0, 0), FAL_EFORMAT, "for another block");
	check(placed(0, 1, 0), FAL_EFORMAT, "it was over");
	assert_non_null(place_for(0, 1));
	check(placed(1, 1, 0), FAL_EFORMAT, "for another version");
	assert_non_null(place_for(0, 1));
	check(placed(0, 1, last), FAL_EFORMAT, "values besides");
	assert_non_null(place_for(0, 1));
	assert_null(place_for(0, 0));
	check(placed(0, 1, 0), FAL_EFORMAT, "none for the last one");
	/* Unauthenticated values at a place do not count. */
	to = place_for(0, 1);
	assert_non_null(to);
	to[0] = 666;
	grant(0, 0, 1, none);
	check(busy[0], 0, "runs on what was not authenticated");
	to = place_for(0, 1);
	assert_non_null(to);
	for (uint32_t i = 0; i < fal_block_len(N, 1); i++)
		to[i] = 7 + (float)i;
	check(placed(0, 1, 0), 0, "MODEL");
	check(busy[0], 1, "runs");
	for (uint32_t i = 0; i < fal_block_len(N, 1); i++)
		if (run[0].params[FAL_BLOCK + i] != 7 + (float)i)
			fail_msg("value %u is not what was placed", i);
	check(run[0].exps[1], FAL_EXP_FIRST, "exponent");
	assert_null(place_for(0, 1)); /* a lane reads it */
}

/* A shard that gave its blocks away is awaited until those are here that it had when the
 * version was announced. */
static void
blocks_of_a_map_of_before(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	map(0, 1, 1, 2);
	check(tell(&m), 0, "VERSION");
	map(1, 1, BLOCKS, 2);
	for (uint32_t shard = 1; shard <= 2; shard++)
		check(fal_agent_awaits_shard(agent, shard), 1, "nothing is here");
	published(0, 1, 0, 1);
	part(0, 0);
	check(fal_agent_awaits_shard(agent, 1), 0, "its block is here");
	check(fal_agent_awaits_shard(agent, 2), 1, "its block is not");
	check(tell(&m), 0, "VERSION, by the map that holds");
	check(fal_agent_awaits_shard(agent, 1), 1, "it has both now");
	check(fal_agent_awaits_shard(agent, 2), 0, "it has none");
	part(0, 1);
	check(fal_agent_awaits_shard(agent, 1), 0, "all is here");
}

/* A version is here when all shards' parts are, in any order of coordinator and shards;
 * blocks stay when a part is published again. */
static void
parts_of_a_version(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	map(0, 1, 1, 2);
	published_for(1, 0, 2, 1, 1); /* before VERSION */
	part(0, 1);
	check(tell(&m), 0, "VERSION");
	grant(0, 0, 1, none);
	check(busy[0], 0, "runs on half a version");
	published(0, 1, 0, 1);
	published(0, 2, 1, 1);
	part(0, 1);
	check(busy[0], 0, "runs on half a version");
	part(0, 0);
	check(busy[0], 1, "runs");
	published(0, 1, 0, 1); /* is here */
	part(0, 0);
	finish(0);
	expect_claim(0, 1);
	check((int64_t)sent[seen - 1].m.claim.version, 0, "version");
	check(sent[seen - 1].m.claim.last, 1, "last");
	verdict(0, 0, 1, true);
	/* Each shard gets its own blocks. */
	expect_block(0, 1, 0, 1);
	expect_block(0, 1, 1, 1);
	nothing_sent();
	/* The worker does not wait for versions that are too old. */
	version(4, false);
	published(3, 1, 0, 1);
	now += 10;
	m = (struct fal_msg){ .type = FAL_MSG_ACCOUNT };
	check(tell(&m), 0, "ACCOUNT");
	check((int64_t)next(FAL_MSG_WORKED)->worked.pull, 0, "pulls");
	map(1, 1, BLOCKS, 2); /* one shard has all blocks now */
	grant_on(4, 4, 0, 1, none);
	finish(0);
	expect_claim(0, 2);
	verdict(4, 0, 2, true);
	expect_push(2, 1, 1);
}

/* A shard may publish a version before its VERSION: a version of another branch waits for
 * that, and its blocks stay. */
static void
published_before_version(void **state)
{
	(void)state;
	const uint64_t line = fal_branch_version(3, 0);
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	version(4, false); /* the first one */
	published_for(2, line, 1, 0, BLOCKS);
	published_for(3, 4, 1, 0, BLOCKS); /* again, after the branch */
	model(line);
	check(fal_agent_has_version(agent, line), 1, "the line");
	m.version.version = m.version.oldest = line;
	check(tell(&m), 0, "VERSION");
	check(fal_agent_has_version(agent, line), 1, "the line");
	check(fal_agent_has_version(agent, 4), 1, "what will be told again");
	m.version.version = m.version.oldest = 4;
	check(tell(&m), 0, "VERSION");
	check(fal_agent_has_version(agent, line), 0, "the line, which is over");
	grant_on(0, 4, 0, 1, none);
	check(busy[0], 1, "runs");
	/* The worker does not wait for a version that was announced and dropped. */
	published_for(2, line, 1, 0, BLOCKS);
	now += 10;
	m = (struct fal_msg){ .type = FAL_MSG_ACCOUNT };
	check(tell(&m), 0, "ACCOUNT");
	check((int64_t)next(FAL_MSG_WORKED)->worked.pull_all, 0, "pulls");
}

static void
ranges_that_are_none(void **state)
{
	(void)state;
	static const uint32_t odd[][3] = { { 1, 0, 0 },          { 1, BLOCKS, 1 },
					   { 1, 1, BLOCKS },     { 1, UINT32_MAX, 2 },
					   { 1, 1, UINT32_MAX }, { 0, 0, BLOCKS } };
	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		struct fal_msg m = { .type = FAL_MSG_PUBLISHED };
		m.published.shard = odd[i][0];
		m.published.first = odd[i][1];
		m.published.blocks = odd[i][2];
		check(tell(&m), FAL_EFORMAT, "PUBLISHED");
	}
}

/* Grants preclaimed tasks of round 0, of a contribution of `of` tasks. */
static int
granted(uint32_t first, uint32_t count, uint32_t of, uint32_t seq)
{
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	m.grant.kind = FAL_KIND_GRAD;
	m.grant.first = first;
	m.grant.count = count;
	m.grant.of = of;
	m.grant.seq = seq;
	return tell(&m);
}

static int
ticket(uint32_t seq, uint32_t tasks)
{
	struct fal_msg m = { .type = FAL_MSG_TICKET };
	m.ticket = (struct fal_msg_ticket){
		.worker = 3, .seq = seq, .tasks = tasks, .kind = FAL_KIND_GRAD
	};
	return tell(&m);
}

/* The same, with their ticket. */
static int
preclaimed(uint32_t first, uint32_t count, uint32_t seq)
{
	int err = granted(first, count, count, seq);
	return err < 0 ? err : ticket(seq, count);
}

/* Results of preclaimed tasks are added at once, and pushed after the last one. */
static void
claimed_ahead(void **state)
{
	(void)state;
	const uint32_t one = FAL_PRECLAIMED | 1, two = FAL_PRECLAIMED | 2;
	version(0, false);
	check(preclaimed(0, 2, one), 0, "GRANT");
	check(preclaimed(2, 2, two), 0, "GRANT");
	check(preclaimed(4, 1, two), FAL_ESTATE, "the same name");
	check(preclaimed(4, 1, 1), FAL_EFORMAT, "a name that is the worker's to give");
	finish(2); /* task 2 */
	expect_claim(2, two);
	check(sent[seen - 1].m.claim.last, 0, "last");
	finish(2); /* task 3 */
	expect_claim(3, two);
	expect_push(two, 2, 3 + 4);
	finish(0);
	expect_claim(0, one);
	nothing_sent();
	finish(1);
	expect_claim(1, one);
	expect_push(one, 2, 1 + 2);
	nothing_sent();
	/* Two grants, and a ticket for both. */
	const uint32_t both = FAL_PRECLAIMED | 4;
	check(granted(0, 1, 3, both), 0, "GRANT");
	finish(0);
	expect_claim(0, both);
	nothing_sent();
	check(granted(5, 2, 3, both), 0, "GRANT");
	check(granted(8, 1, 3, both), FAL_ESTATE, "more than it has");
	check(ticket(both, 3), 0, "TICKET");
	finish(0);
	expect_claim(5, both);
	nothing_sent();
	finish(1);
	expect_claim(6, both);
	expect_push(both, 3, 1 + 6 + 7);
	/* A REVOKE of a task of one grant cancels those of the other grant, too. */
	check(granted(0, 1, 2, FAL_PRECLAIMED | 5), 0, "GRANT");
	check(granted(5, 1, 2, FAL_PRECLAIMED | 5), 0, "GRANT");
	revoke(0, 5, 1);
	check(cancelled[0], 1, "the other one's task");
	finish(0);
	nothing_sent();
	/* A leaving worker pushes complete contributions. */
	check(preclaimed(0, 2, FAL_PRECLAIMED | 3), 0, "GRANT");
	finish(0);
	expect_claim(0, FAL_PRECLAIMED | 3);
	leave("done");
	finish(1);
	next(FAL_MSG_LEAVE);
}

/* Tasks with sums by others form one contribution, later ones another after its close; a
 * task whose claim lost is in neither. */
static void
others_make_the_sums(void **state)
{
	(void)state;
	version(0, false);
	grant(0, 0, 2, none);
	grant(0, 5, 1, none);
	finish(2);
	expect_claim(5, 1);
	verdict(0, 5, 1, true);
	finish(0);
	expect_claim(0, 1);
	verdict(0, 0, 1, false);
	nothing_sent();
	finish(1);
	expect_claim(1, 1);
	verdict(0, 1, 1, true);
	expect_push(1, 2, 6 + 2);
	grant(0, 3, 1, none);
	grant(0, 7, 1, none);
	revoke(0, 7, 1);
	grant(0, 8, 1, none);
	finish(0);
	finish(1);
	finish(2);
	expect_claim(3, 2);
	expect_claim(8, 2);
	verdict(0, 8, 2, true);
	nothing_sent();
	verdict(0, 3, 2, true);
	expect_push(2, 2, 4 + 9);
	nothing_sent();
	/* Only one sum, to add to, and the version stay in memory. */
	check((int64_t)agent_memory_halves(agent) <= 2 + 1, 1, "halves");
	for (uint32_t seq = 3; seq < 9; seq++) {
		grant(0, 3, 2, none);
		for (uint32_t k = 0; k < 2; k++)
			finish(k);
		for (uint32_t k = 0; k < 2; k++) {
			expect_claim(3 + k, seq);
			verdict(0, 3 + k, seq, seq % 3 > 0);
		}
		if (seq % 3 > 0)
			expect_push(seq, 2, 4 + 5);
		check((int64_t)agent_memory_halves(agent) <= 2 + 1, 1, "halves");
	}
}

/* A preclaimed contribution that is fenced, or loses a task, is not pushed. */
static void
claimed_ahead_in_vain(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	version(0, false);
	for (uint32_t i = 1; i < 4; i++) {
		m.fence.seq = FAL_PRECLAIMED | i;
		check(preclaimed(0, 4, m.fence.seq), 0, "GRANT");
		check(preclaimed(3, 1, FAL_PRECLAIMED | 9), FAL_ESTATE, "held already");
		finish(1);
		expect_claim(1, m.fence.seq);
		if (i == 1)
			check(tell(&m), 0, "FENCE");
		else
			revoke(0, i == 2 ? 3 : 1, 1);
		for (uint32_t k = 0; k < LANES; k++)
			if (busy[k]) {
				check(cancelled[k], 1, "cancelled");
				finish(k);
			}
		nothing_sent();
	}
}

/* A contribution is closed once, though the tasks that would have followed are gone. */
static void
closed_by_a_seal(void **state)
{
	(void)state;
	version(0, false);
	set_lanes(1);
	grant(0, 0, 2, none);
	finish(0);
	expect_claim(0, 1);
	check(desk_of(0, 1)->closed, 0, "closed");
	verdict(0, 0, 1, true);
	nothing_sent();
	revoke(0, 1, 1);
	check(desk_of(0, 1)->sealed, 1, "sealed");
	expect_push(1, 1, 1);
	finish(0);
	grant(0, 2, 1, none);
	finish(0);
	expect_claim(2, 2);
	check(desk_of(0, 2)->sealed, 0, "sealed");
	verdict(0, 2, 2, true);
	expect_push(2, 1, 3);
}

/* A ticket for an open contribution, or for another number of tasks, is refused. */
static void
tickets_that_do_not_fit(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_TICKET };
	version(0, false);
	m.ticket.seq = 1;
	m.ticket.tasks = 1;
	check(tell(&m), 0, "of nothing that it knows");
	grant(0, 0, 4, none);
	finish(0);
	expect_claim(0, 1);
	verdict(0, 0, 1, true);
	check(tell(&m), FAL_ESTATE, "of what is open");
	for (uint32_t lane = 0; lane < LANES; lane++)
		finish(lane);
	m.ticket.tasks = 2;
	for (uint32_t task = 1; task < 4; task++)
		next(FAL_MSG_CLAIM);
	check(tell(&m), FAL_ESTATE, "of another number of tasks");
	nothing_sent();
}

static void
nonsense_is_refused(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_LANES };
	check(tell(&m), FAL_EINVAL, "no lanes");
	m.lanes.lanes = LANES + 1;
	check(tell(&m), FAL_EINVAL, "too many lanes");
	m = (struct fal_msg){ .type = FAL_MSG_CLAIM };
	check(tell(&m), FAL_ESTATE, "a worker's message");
	check(grant(0, 0, UINT32_MAX, none), FAL_ELIMIT, "all tasks there are");
	/* Each of so many tasks is looked at once: otherwise the test would take hours.
	 */
	check(grant(0, 0, 1 << 18, none), 0, "a quarter of what there may be");
	check(grant(0, 9, 1 << 18, none), 0, "nearly the same");
	check(grant(0, 0, 1 << 18, none), 0, "the same again");
	revoke(0, 0, UINT32_MAX);
	m = (struct fal_msg){ .type = FAL_MSG_GRANT };
	m.grant.count = 1;
	check(tell(&m), FAL_EFORMAT, "no such kind");
	m = (struct fal_msg){ .type = FAL_MSG_EVAL };
	m.eval.count = UINT32_MAX;
	check(tell(&m), FAL_ELIMIT, "all test tasks there are");
	m = (struct fal_msg){ .type = FAL_MSG_PING };
	m.ping.stamp = 123456789;
	check(tell(&m), 0, "PING");
	const struct fal_msg *pong = next(FAL_MSG_PONG);
	check((int64_t)pong->pong.stamp, 123456789, "stamp");
	check((int64_t)pong->pong.steps, 77, "steps");
	nothing_sent();
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
#define SLOW(f) cmocka_unit_test_setup_teardown(f, begin_slow, end)
#define OUTER(f) cmocka_unit_test_setup_teardown(f, begin_outer, end)
#define FEW(f) cmocka_unit_test_setup_teardown(f, begin_few, end)
#define AHEAD(f) cmocka_unit_test_setup_teardown(f, begin_ahead, end)
	const struct CMUnitTest tests[] = {
		AHEAD(tasks_ahead),
		TEST(claim_before_add),
		TEST(a_lost_verdict_drops),
		TEST(checks_are_answered),
		TEST(checks_are_tasks_of_their_own),
		TEST(pushes_only_when_idle),
		TEST(revoke_and_cancel),
		TEST(fence_drops_a_contribution),
		TEST(fills_are_contributions_of_their_own),
		FEW(a_fill_waits_for_a_sum),
		cmocka_unit_test_teardown(a_large_result_waits, end),
		cmocka_unit_test_teardown(small_results_wait, end),
		FEW(alone_where_sums_are_few),
		FEW(more_versions_are_asked_for),
		FEW(more_versions_are_denied),
		FEW(more_of_other_rules_is_asked_for),
		TEST(rounds_on_their_versions),
		TEST(oldest_version),
		TEST(versions_of_lines),
		TEST(exponents_of_the_round),
		TEST(late_tasks),
		TEST(revoke_and_fence_by_round),
		TEST(drained),
		TEST(leave_in_order),
		TEST(leave_when_idle),
		SLOW(pushes_as_there_is_room),
		SLOW(fence_in_the_middle_of_a_push),
		SLOW(leave_waits_for_pushes),
		TEST(worked_adds_up),
		TEST(shards_that_are_waited_for),
		TEST(evaluation),
		TEST(evaluation_before_a_push),
		TEST(nonfinite),
		TEST(malformed_models),
		TEST(values_are_placed),
		TEST(parts_of_a_version),
		TEST(blocks_of_a_map_of_before),
		TEST(published_before_version),
		TEST(claimed_ahead),
		TEST(claimed_ahead_in_vain),
		OUTER(others_make_the_sums),
		TEST(ranges_that_are_none),
		TEST(closed_by_a_seal),
		TEST(tickets_that_do_not_fit),
		TEST(nonsense_is_refused),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
