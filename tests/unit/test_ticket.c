/* Tickets: a shard believes exactly the coordinator's statement about this contribution,
 * to this session, in this incarnation. */
#include "test_coord.h"
#include "wire/bfp.h"

enum { N = FAL_BLOCK + 5, TASK = 2, TASKS = 4, ROUNDS = 8 };

static struct racked_tickets tickets;
static uint32_t fences[SESSIONS + 1], closes;
static bool evicted[SESSIONS + 1];
static uint64_t version[ROUNDS]; /* by round: the version that it computes on; */
static uint32_t
	holder[ROUNDS]; /* the last worker with a grant of it, and one task of that */
static uint32_t held[ROUNDS];

static void
on_send(void *arg, uint32_t peer, const struct fal_buf *msg)
{
	struct fal_msg m;
	(void)arg;
	check(fal_msg_get(msg->p, msg->n, &m), 0, "parse what was sent");
	if (m.type == FAL_MSG_TICKET)
		racked_note(&tickets, peer, &m);
	if (m.type == FAL_MSG_GRANT) {
		version[m.grant.round] = m.grant.version;
		holder[m.grant.round] = peer;
		held[m.grant.round] = m.grant.first;
	}
	fences[peer] += m.type == FAL_MSG_FENCE;
}

static void
on_close(void *arg, uint32_t peer, const char *why)
{
	(void)arg;
	(void)why;
	closes++;
	evicted[peer] = true;
}

/* Begins clocks of four tasks under this rule for `workers` workers, in incarnation 3. */
static int
begin_rule(const char *rule, uint32_t workers, uint32_t n)
{
	static const float init[N];
	struct fal_policy policy = { .no_clones = true };
	struct fal_coord_ops ops = { .send = on_send,
				     .model = racked_no_model,
				     .close = on_close,
				     .trace = on_trace };
	struct fal_coord_conf conf = {
		.name = "test",
		.hash = "00",
		.policy = &policy,
		.policy_by = "job",
		.grid = { .samples = TASKS * TASK * n,
			  .batch = TASKS * TASK,
			  .task = TASK,
			  .epochs = 1 },
		.params = N,
		.min_workers = workers,
		.tickets.incarnation = 3,
	};
	check(fal_rule_parse(rule, &policy.rule, &diag), 0, rule);
	conf.schedule.lr = 0.1;
	for (size_t i = 0; i < sizeof(conf.tickets.key); i++)
		conf.tickets.key[i] = (uint8_t)i;
	tickets.n = closes = 0;
	memset(fences, 0, sizeof(fences));
	memset(evicted, 0, sizeof(evicted));
	fal_buf_clear(&trace);
	if (racked_new(conf, ops, init, 0, &job) < 0)
		return -1;
	coord = job.coord;
	incarnation = 3;
	for (uint32_t i = 1; i <= workers; i++)
		join(i);
	return 0;
}

static int
begin(void **state)
{
	(void)state;
	return begin_rule("epsp", 2, 3);
}

static int
begin_local(void **state)
{
	(void)state;
	return begin_rule("wbsp,overlap=yes", 1, 3);
}

static int
begin_one(void **state)
{
	(void)state;
	return begin_rule("epsp", 2, 1);
}

/* In this incarnation. */
static int
tell_in(uint32_t peer, struct fal_msg m)
{
	m.incarnation = 3;
	return tell(peer, &m);
}

static int
claim_for(uint32_t peer, uint64_t round, uint32_t task, uint32_t seq, bool last,
	  struct fal_contrib_id fills)
{
	const struct standin_task t = { round, version[round], task, fills,
					FAL_KIND_GRAD };
	return tell_in(peer, standin_claim(&t, seq, last));
}

static int
claim(uint32_t peer, uint64_t round, uint32_t task, uint32_t seq, bool last)
{
	return claim_for(peer, round, task, seq, last, (struct fal_contrib_id){ 0, 0 });
}

/* The last claim of a contribution: task 0 of round 0, to fill the first of worker 1. */
static int
fill(uint32_t peer, uint32_t seq)
{
	return claim_for(peer, 0, 0, seq, true, (struct fal_contrib_id){ 1, 1 });
}

static int
seal(uint32_t peer, uint64_t round, uint32_t seq)
{
	return tell_in(peer, standin_seal(round, seq));
}

static struct fal_msg_ticket
ticket(uint32_t peer, uint64_t round, uint32_t seq)
{
	struct fal_msg_ticket t;
	check(racked_ticket(&tickets, peer, round, seq, &t), 1, "a ticket");
	return t;
}

/* Zeros, under the ticket. */
static int
push(uint32_t peer, const struct fal_msg_ticket *t)
{
	const uint8_t kind = t->kind;
	int8_t exps[2];
	struct fal_buf records = { 0 };
	memset(exps, FAL_EXP_FIRST, sizeof(exps));
	racked_exps(&job, t->version, exps); /* other rounds do not matter */
	check(standin_zeros(N, kind, exps, &records), 0, "pack");
	int err = tell_in(peer, standin_push(t, &records));
	fal_buf_free(&records);
	return err;
}

static uint64_t
clocks(void)
{
	return fal_coord_status(coord).clock;
}

/* A known answer, by Python: hashlib.blake2b(struct.pack("<11IQQBB", 1, 3, 1, 7, 9, 4, 2,
 * 64, 512, 5, 6, 11, 12, 1, 0), digest_size=32, key=bytes(range(64)), person=b"falcon
 * ticket") */
static void
known_mac(void **state)
{
	static const uint8_t want[FAL_MAC] = { 0x5b, 0xc6, 0x3a, 0x1e, 0x43, 0x23, 0x5b,
					       0x0d, 0xa0, 0x7f, 0xb9, 0x6c, 0x7d, 0x25,
					       0x01, 0xec, 0x03, 0x1a, 0x06, 0x2f, 0x1e,
					       0xb5, 0xf2, 0xa1, 0xb1, 0x21, 0xcf, 0x22,
					       0x5d, 0x8f, 0x8e, 0xd0 };
	struct fal_ticket_scope in = { .incarnation = 3, .epoch = 1 };
	const struct fal_ticket t = {
		.round = 11,
		.id = { 7, 9 },
		.fills = { 5, 6 },
		.tasks = 4,
		.facts = { .version = 12, .tasks = 64, .kind = FAL_KIND_GRAD }
	};
	struct fal_msg_ticket m;
	struct fal_ticket back;
	(void)state;
	for (size_t i = 0; i < sizeof(in.key); i++)
		in.key[i] = (uint8_t)i;
	fal_ticket_put(&in, 1, &t, &m);
	assert_memory_equal(m.mac, want, sizeof(want));
	assert_true(fal_ticket_get(&in, 1, &m, &back));
	assert_memory_equal(&back.id, &t.id, sizeof(t.id));
	check((int64_t)back.facts.version, 12, "version");
	check(back.facts.tasks, 64, "tasks of the round");
	assert_false(fal_ticket_get(&in, 2, &m, &back));
	in.incarnation = 4;
	assert_false(fal_ticket_get(&in, 1, &m, &back));
	in.incarnation = 3;
	in.epoch = 2;
	assert_false(fal_ticket_get(&in, 1, &m, &back));
	in.epoch = 1;
	in.key[63] ^= 1;
	assert_false(fal_ticket_get(&in, 1, &m, &back));
}

/* The last claim's ticket comes with its verdict, and the sum counts once. */
static void
the_last_claim_closes(void **state)
{
	(void)state;
	check(claim(1, 0, 0, 1, false), 0, "CLAIM");
	check(tickets.n, 0, "tickets");
	check(claim(1, 0, 1, 1, true), 0, "CLAIM, the last");
	check(tickets.n, 1, "tickets");
	const struct fal_msg_ticket one = ticket(1, 0, 1);
	check(one.tasks, 2, "tasks");
	check(one.of, TASKS, "tasks of the round");
	check((int64_t)one.version, 0, "version");
	check(one.kind, FAL_KIND_GRAD, "kind");
	check(push(1, &one), 0, "PUSH");
	check(claim(2, 0, 2, 1, false), 0, "CLAIM");
	check(claim(2, 0, 3, 1, true), 0, "CLAIM, the last");
	const struct fal_msg_ticket two = ticket(2, 0, 1);
	check(push(2, &two), 0, "PUSH");
	check((int64_t)clocks(), 1, "clocks");
	check(push(1, &one), 0, "a PUSH of the round that is over");
}

/* Each changed bit of a ticket's fields, and of its MAC, is noticed. */
static void
a_changed_field(void **state)
{
	(void)state;
	check(claim(1, 0, 0, 1, true), 0, "CLAIM");
	const struct fal_msg_ticket is = ticket(1, 0, 1);
#define CHANGED(field)                                                     \
	for (unsigned bit = 0; bit < 8 * sizeof(is.field); bit++) {        \
		struct fal_msg_ticket t = is;                              \
		((uint8_t *)&t.field)[bit / 8] ^= (uint8_t)(1 << bit % 8); \
		check(push(1, &t), FAL_EAUTH, #field);                     \
	}
	CHANGED(round)
	CHANGED(worker)
	CHANGED(seq)
	CHANGED(tasks)
	CHANGED(fills_worker)
	CHANGED(fills_seq)
	CHANGED(version)
	CHANGED(of)
	CHANGED(kind)
	CHANGED(mixed)
	CHANGED(mac)
	check(push(1, &is), 0, "the ticket as it is");
}

/* Tickets of another session, another incarnation or another round are refused. */
static void
from_elsewhere(void **state)
{
	struct fal_ticket_scope in = { .incarnation = 2, .epoch = 1 };
	struct fal_ticket t;
	struct fal_msg_ticket old;
	(void)state;
	for (size_t i = 0; i < sizeof(in.key); i++)
		in.key[i] = (uint8_t)i;
	check(claim(1, 0, 0, 1, true), 0, "CLAIM");
	check(claim(2, 0, 2, 1, true), 0, "CLAIM");
	const struct fal_msg_ticket one = ticket(1, 0, 1);
	check(push(2, &one), FAL_EAUTH, "another session's");
	fal_ticket_get(&in, 1, &one, &t);
	fal_ticket_put(&in, 1, &t, &old);
	check(push(1, &old), FAL_EAUTH, "another incarnation's");
	in.incarnation = 3;
	fal_ticket_put(&in, 1, &t, &old);
	assert_memory_equal(&old, &one, sizeof(old));
	check(push(1, &one), 0, "PUSH");
	/* A ticket does not cover the next round. */
	check(claim(1, 0, 1, 2, true), 0, "CLAIM");
	struct fal_msg_ticket rest = ticket(1, 0, 2);
	check(push(1, &rest), 0, "PUSH");
	rest = ticket(2, 0, 1);
	check(push(2, &rest), 0, "PUSH");
	check(claim(2, 0, 3, 2, true), 0, "CLAIM");
	rest = ticket(2, 0, 2);
	check(push(2, &rest), 0, "PUSH");
	check((int64_t)clocks(), 1, "clocks");
	check(claim(holder[1], 1, held[1], 3, true), 0, "CLAIM");
	struct fal_msg_ticket moved = one;
	moved.round = 1;
	check(push(holder[1], &moved), FAL_EAUTH, "a ticket of the round before");
	moved.seq = 3;
	check(push(holder[1], &moved), FAL_EAUTH, "a ticket of another contribution");
}

static void
closed_once(void **state)
{
	(void)state;
	check(claim(1, 0, 0, 1, false), 0, "CLAIM");
	check(seal(1, 0, 1), 0, "SEAL");
	check(tickets.n, 1, "tickets");
	check(seal(1, 0, 1), FAL_ESTATE, "a second SEAL");
	check(claim(1, 0, 1, 1, false), FAL_ESTATE, "a CLAIM into what is closed");
	check(tickets.n, 1, "tickets");
	/* Tasks that never won, and rounds that are over, do not count. */
	const uint32_t before = fences[2];
	check(seal(2, 0, 9), 0, "SEAL of nothing");
	check(seal(2, 77, 1), 0, "SEAL of no round");
	check(fences[2] - before, 2, "FENCEs");
}

/* A dead worker's ticket is void; its contribution is filled. */
static void
fenced_before_it_is_closed(void **state)
{
	(void)state;
	check(claim(1, 0, 0, 1, false), 0, "CLAIM");
	check(fal_coord_session_end(coord, now, 1, "reset"), 0, "gone");
	check(seal(1, 0, 1), FAL_ESTATE, "SEAL of who is gone");
	check(fill(2, 1), 0, "CLAIM");
	const struct fal_msg_ticket t = ticket(2, 0, 1);
	check(t.fills_worker, 1, "fills worker");
	check(t.fills_seq, 1, "fills seq");
}

/* A push without a ticket costs its session, and harms no other worker: another worker
 * does its tasks, and both keys stay valid, so the worker may come back. */
static void
without_a_ticket(void **state)
{
	struct fal_msg_ticket none = { .worker = 1,
				       .seq = 1,
				       .tasks = 2,
				       .of = TASKS,
				       .kind = FAL_KIND_GRAD,
				       .mac = { 1 } };
	(void)state;
	check(claim(2, 0, 2, 1, true), 0, "CLAIM");
	struct fal_msg_ticket t = ticket(2, 0, 1);
	check(push(2, &t), 0, "PUSH");
	for (int twice = 0; twice < 2; twice++) {
		const uint32_t peer = twice == 0 ? 1 : 3;
		if (twice == 0)
			check(claim(1, 0, 0, 1, false), 0, "CLAIM");
		check(push(peer, &none), FAL_EAUTH, "a PUSH without a ticket");
		check(fal_coord_session_end(coord, now, peer, diag.text), 0, "gone");
		check(join_as(3 + (uint32_t)twice, 1), 0, "HELLO of the key again");
	}
	check(evicted[2], 0, "the other one is sent away");
	check(closes, 0, "sessions closed");
	check((int64_t)clocks(), 0, "clocks");
	check(fal_coord_session_end(coord, now, 4, "reset"), 0, "gone");
	check(claim(2, 0, 3, 2, true), 0, "CLAIM");
	t = ticket(2, 0, 2);
	check(push(2, &t), 0, "PUSH");
	check(claim(2, 0, 1, 3, true), 0, "CLAIM");
	t = ticket(2, 0, 3);
	check(push(2, &t), 0, "PUSH");
	check(fill(2, 4), 0, "CLAIM that fills");
	t = ticket(2, 0, 4);
	check(push(2, &t), 0, "PUSH that fills");
	check((int64_t)clocks(), 1, "clocks");
	racked_finish(&job, now, NULL);
	audited();
}

/* A worker's local rounds follow each other: a change of weights that has come waits for
 * the worker's round before it. */
static void
local_steps_follow_each_other(void **state)
{
	struct fal_msg_ticket of[2];
	(void)state;
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < TASKS; i++) {
			const struct standin_task task = { .round = round,
							   .version = version[round],
							   .task = i,
							   .kind = FAL_KIND_DELTA };
			const bool last = i + 1 == TASKS;
			check(tell_in(1, standin_claim(&task, round + 1, last)), 0,
			      "CLAIM");
		}
		of[round] = ticket(1, round, round + 1);
		check(of[round].kind, FAL_KIND_DELTA, "kind");
	}
	check(push(1, &of[1]), 0, "PUSH of the second round");
	check(lines("\"ev\":\"update\""), 0, "updates without the first");
	check(push(1, &of[0]), 0, "PUSH of the first round");
	check(lines("\"ev\":\"update\""), 2, "updates");
}

/* A round computes on the version of its GRANT. */
static void
on_another_version(void **state)
{
	(void)state;
	version[0] = 5;
	check(claim(1, 0, 0, 1, true), FAL_EINVAL, "CLAIM on another version");
	version[0] = 0;
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_mac),
		TEST(the_last_claim_closes),
		TEST(a_changed_field),
		TEST(from_elsewhere),
		TEST(closed_once),
		TEST(fenced_before_it_is_closed),
		cmocka_unit_test_setup_teardown(without_a_ticket, begin_one, end),
		cmocka_unit_test_setup_teardown(local_steps_follow_each_other,
						begin_local, end),
		TEST(on_another_version),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
