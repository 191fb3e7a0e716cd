/* Local steps of a worker: what it pushes for a delta round is, bit for bit, what a plain
 * loop makes of the same tasks, whatever lanes there are and whatever ends first. */
#include "../naive_bfp.h"
#include "../naive_optim.h"
#include "agent_play.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { N = FAL_BLOCK + 5, BLOCKS = 2, MOST = 64 };

static const struct fal_optim optim = { .kind = FAL_ADAMW,
					.weight_decay = 0.1f,
					.decoupled = true,
					.beta1 = 0.9,
					.beta2 = 0.98,
					.eps = 1e-8f };

static struct fal_rng rng; /* which lane ends next, which verdict comes next */
static uint32_t nonfinite; /* this task is, once; UINT32_MAX: none */

/* Claims without verdict, in no order. */
static struct {
	uint64_t round;
	uint32_t task, seq;
} claim[MOST];
static uint32_t claims;
static uint32_t won_of[MOST]; /* by contribution */
static uint32_t closed;       /* the one whose last claim was made; 0: none */

/* What was pushed since the last look, one contribution. */
static struct {
	bool is;
	uint64_t round;
	uint32_t tasks;
	uint8_t kind;
	int8_t exps[BLOCKS];
	int64_t v[N];
} pushed;
static bool left, left_before_push;

static void
on_push(const struct fal_msg *m)
{
	struct fal_rd r = fal_rd_init(m->push.records.p, m->push.records.n);
	struct fal_bfp_rec rec;
	check(pushed.is, 0, "pushed before");
	pushed.is = true;
	pushed.round = m->push.ticket.round;
	pushed.tasks = m->push.ticket.tasks;
	pushed.kind = m->push.ticket.kind;
	for (uint32_t b = 0; b < BLOCKS; b++) {
		check(fal_bfp_parse(&r, N, &rec), 0, "record");
		check(rec.block, b, "block");
		pushed.exps[b] = rec.exponent;
		for (uint32_t i = 0; i < rec.len; i++)
			pushed.v[b * FAL_BLOCK + i] = record_value(&rec, i);
	}
}

static void
on_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct fal_msg m;
	(void)arg;
	(void)bulk;
	check(fal_msg_get(msg->p, msg->n, &m), 0, "parse what was sent");
	if (m.type == FAL_MSG_CLAIM && m.claim.nonfinite == 0) {
		assert_true(claims < MOST);
		claim[claims].round = m.claim.round;
		claim[claims].task = m.claim.task;
		claim[claims++].seq = m.claim.seq;
		if (m.claim.last != 0)
			closed = m.claim.seq;
	}
	if (m.type == FAL_MSG_PUSH)
		on_push(&m);
	if (m.type == FAL_MSG_LEAVE) {
		left = true;
		left_before_push = !pushed.is;
	}
}

static int
begin(void **state)
{
	(void)state;
	const struct fal_agent_conf conf = {
		.n = N,
		.lanes_max = LANES,
		.optim = optim,
		.grid = { .samples = 1 << 20, .batch = 1 << 20, .task = 1 },
	};
	const struct fal_agent_ops ops = {
		.send = on_send, .run = on_run, .cancel = on_cancel, .steps = on_steps
	};
	memset(busy, 0, sizeof(busy));
	memset(cancelled, 0, sizeof(cancelled));
	memset(&pushed, 0, sizeof(pushed));
	claims = closed = 0;
	memset(won_of, 0, sizeof(won_of));
	left = false;
	nonfinite = UINT32_MAX;
	rng = fal_rng_init(4, FAL_RNG_TEST, 0);
	agent = fal_agent_new(&conf, &ops);
	return agent != NULL ? 0 : -1;
}

static int
end(void **state)
{
	(void)state;
	fal_agent_free(agent);
	return 0;
}

/* ---- the model that is trained ------------------------------------------------- */

static uint32_t
samples(uint32_t task)
{
	return 2 + task % 3;
}

/* The gradient of a task: of half the squared distance to a place of its own. */
static void
gradient(uint32_t task, const float *w, float *g)
{
	struct fal_rng r = fal_rng_init(9, FAL_RNG_TEST, task);
	for (size_t i = 0; i < N; i++)
		g[i] = (float)samples(task) * (w[i] - fal_rng_unit(&r));
}

static void
version_params(uint64_t v, float *params, int8_t *exps)
{
	struct fal_rng r = fal_rng_init(10, FAL_RNG_TEST, (uint32_t)v);
	for (size_t i = 0; i < N; i++)
		params[i] = fal_rng_unit(&r) * 4 - 2;
	for (uint32_t b = 0; b < BLOCKS; b++)
		exps[b] = (int8_t)(b + v) - 9;
}

/* The plain loop: one task after the other. */
static struct {
	float w[N], last[N], change[N], state[2 * N];
	uint64_t steps;
	int8_t exps[BLOCKS];
} plain;

static void
plain_step(uint32_t from, uint32_t to, float lr)
{
	static float g[N], mean[FAL_BLOCK];
	struct fal_sum *one = fal_sum_new(N), *all = fal_sum_new(N);
	double count = 0;
	assert_true(one != NULL && all != NULL);
	for (uint32_t t = from; t < to; t++) {
		gradient(t, plain.w, g);
		check(fal_sum_quantise_naive(one, g, plain.exps, FAL_BFP_ROOM, NULL), 0,
		      "quantise");
		check(fal_sum_add(all, one), 0, "add");
		count += samples(t);
	}
	const struct fal_optim_step by = fal_optim_step(&optim, lr, plain.steps);
	plain.steps += from < to;
	for (uint32_t b = 0; b < BLOCKS && from < to; b++) {
		const size_t first = (size_t)b * FAL_BLOCK;
		fal_sum_mean(all, b, plain.exps[b], count, mean);
		const uint32_t len = fal_block_len(N, b);
		fal_optim_apply_naive(&by, plain.w + first, plain.state + 2 * first, len,
				      mean, len);
		plain.exps[b] = fal_exp_next(plain.exps[b], fal_sum_needed(all, b));
	}
	fal_sum_free(one);
	fal_sum_free(all);
}

static void
plain_round(uint32_t from, uint32_t of, uint32_t steps)
{
	memcpy(plain.last, plain.w, sizeof(plain.w));
	for (uint32_t p = 0; p < steps; p++)
		plain_step(from + p * of / steps, from + (p + 1) * of / steps, 0.05f);
	for (size_t i = 0; i < N; i++)
		plain.change[i] = plain.w[i] - plain.last[i];
}

static void
plain_base(uint64_t version, bool rebase)
{
	version_params(version, plain.w, plain.exps);
	for (size_t i = 0; i < N && rebase; i++)
		plain.w[i] += plain.change[i];
}

/* What was pushed is the plain loop's change. */
static void
same_change(uint64_t round, uint32_t of)
{
	struct fal_sum *want = fal_sum_new(N);
	int8_t exps[BLOCKS];
	assert_non_null(want);
	check(pushed.is, 1, "pushed");
	check((int64_t)pushed.round, (int64_t)round, "round");
	check(pushed.tasks, of, "tasks");
	check(pushed.kind, FAL_KIND_DELTA, "kind");
	for (uint32_t b = 0; b < BLOCKS; b++) {
		float max = 0;
		for (uint32_t i = 0; i < fal_block_len(N, b); i++)
			max = fmaxf(max, fabsf(plain.change[b * FAL_BLOCK + i]));
		exps[b] = -100;
		while (ldexpf(1, exps[b]) < max)
			exps[b]++;
		check(pushed.exps[b], exps[b], "exponent");
	}
	check(fal_sum_quantise_naive(want, plain.change, exps, FAL_BFP_ROOM, NULL), 0,
	      "quantise");
	for (size_t i = 0; i < N; i++)
		if (pushed.v[i] != sum_value(want, i))
			fail_msg("round %u, value %zu: got %lld, want %lld",
				 (unsigned)round, i, (long long)pushed.v[i],
				 (long long)sum_value(want, i));
	pushed.is = false;
	fal_sum_free(want);
}

/* ---- the coordinator's part ---------------------------------------------------- */

/* After each call of the agent: there always is room for what it pushes. */
static int
pumped(int err)
{
	while (err == 0 && fal_agent_send_next(agent))
		;
	return err;
}

static int
tell(const struct fal_msg *m)
{
	return pumped(fal_agent_msg(agent, 1, m));
}

static void
set_lanes(uint32_t lanes)
{
	struct fal_msg m = { .type = FAL_MSG_LANES };
	m.lanes.lanes = lanes;
	check(tell(&m), 0, "LANES");
}

static void
version(uint64_t v)
{
	static float params[N];
	int8_t exps[BLOCKS];
	struct fal_buf out = { 0 };
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	struct fal_msg of = { .type = FAL_MSG_PUBLISHED };
	m.version.version = m.version.oldest = of.published.version = v;
	of.published.shard = 1;
	of.published.blocks = BLOCKS;
	check(tell(&m), 0, "VERSION");
	check(tell(&of), 0, "PUBLISHED");
	version_params(v, params, exps);
	const struct fal_model_part part = { v, 0, BLOCKS, params, N, exps };
	put_model_msg(&out, 0, &part);
	check(fal_msg_get(out.p, out.n, &m), 0, "get");
	check(tell(&m), 0, "MODEL");
	fal_buf_free(&out);
}

/* Of a round of `of` tasks from task 10 on. */
static struct fal_msg
grant(uint64_t round, enum fal_base base, uint64_t v, uint32_t of, uint32_t steps)
{
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	m.grant.round = round;
	m.grant.version = m.grant.exponents = v;
	m.grant.first = m.grant.from = 10;
	m.grant.count = m.grant.of = of;
	m.grant.kind = FAL_KIND_DELTA;
	m.grant.base = (uint8_t)base;
	m.grant.steps = steps;
	m.grant.lr = 0.05f;
	return m;
}

static void
granted(uint64_t round, enum fal_base base, uint64_t v, uint32_t of, uint32_t steps)
{
	const struct fal_msg m = grant(round, base, v, of, steps);
	check(tell(&m), 0, "GRANT");
}

static void
finish(uint32_t lane)
{
	static float g[N];
	struct fal_task_result ran = { .cancelled = cancelled[lane] };
	ran.samples = samples(run[lane].task);
	ran.nonfinite = run[lane].task == nonfinite;
	if (ran.nonfinite)
		nonfinite = UINT32_MAX;
	gradient(run[lane].task, run[lane].params, g);
	check(fal_sum_quantise(run[lane].sum, g, run[lane].exps, FAL_BFP_ROOM, NULL), 0,
	      "quantise");
	busy[lane] = false;
	check(pumped(fal_agent_finished(agent, 1, lane, &ran)), 0, "finished");
}

static int
verdict(uint32_t i)
{
	struct fal_msg m = { .type = FAL_MSG_VERDICT }, t = { .type = FAL_MSG_TICKET };
	const uint64_t round = claim[i].round;
	const uint32_t seq = claim[i].seq;
	m.verdict.round = round;
	m.verdict.task = claim[i].task;
	m.verdict.seq = seq;
	m.verdict.won = 1;
	claim[i] = claim[--claims];
	won_of[seq % MOST]++;
	int err = tell(&m);
	for (uint32_t k = 0; k < claims; k++)
		if (claim[k].seq == seq)
			return err;
	if (err < 0 || closed != seq)
		return err;
	closed = 0;
	t.ticket = (struct fal_msg_ticket){ .round = round,
					    .worker = 1,
					    .seq = seq,
					    .tasks = won_of[seq % MOST],
					    .kind = FAL_KIND_DELTA };
	return tell(&t);
}

/* One thing happens, by chance; false: there is nothing to happen. */
static bool
happen(void)
{
	uint32_t lanes = 0, nth;
	for (uint32_t i = 0; i < LANES; i++)
		lanes += busy[i];
	if (lanes + claims == 0)
		return false;
	nth = fal_rng_below(&rng, lanes + claims);
	if (nth >= lanes) {
		check(verdict(nth - lanes), 0, "VERDICT");
		return true;
	}
	for (uint32_t i = 0; i < LANES; i++)
		if (busy[i] && nth-- == 0) {
			finish(i);
			break;
		}
	return true;
}

static void
all_happens(void)
{
	while (happen())
		continue;
}

/* ---- the tests ----------------------------------------------------------------- */

/* Each with one lane, two and three. */
static void
one_step(void **state)
{
	(void)state;
	memset(&plain, 0, sizeof(plain));
	for (uint32_t lanes = 1; lanes <= LANES; lanes++) {
		set_lanes(lanes);
		granted(lanes, FAL_BASE_VERSION, lanes, 5, 1);
		check(busy[0], 0, "runs without the version");
		version(lanes);
		all_happens();
		plain_base(lanes, false);
		plain_round(10, 5, 1);
		same_change(lanes, 5);
	}
}

static void
many_steps(void **state)
{
	(void)state;
	static const uint32_t of[] = { 7, 8, 3, 1 }, steps[] = { 3, 8, 5, 1024 };
	uint64_t round = 0;
	memset(&plain, 0, sizeof(plain));
	version(0);
	for (uint32_t lanes = 1; lanes <= LANES; lanes++)
		for (uint32_t k = 0; k < 4; k++) {
			set_lanes(lanes);
			granted(++round, FAL_BASE_VERSION, 0, of[k], steps[k]);
			all_happens();
			plain_base(0, false);
			plain_round(10, of[k], steps[k]);
			same_change(round, of[k]);
		}
}

static void
local_and_rebase(void **state)
{
	(void)state;
	memset(&plain, 0, sizeof(plain));
	version(0);
	granted(1, FAL_BASE_VERSION, 0, 4, 2);
	all_happens();
	plain_base(0, false);
	plain_round(10, 4, 2);
	same_change(1, 4);
	granted(2, FAL_BASE_LOCAL, 0, 4, 2);
	all_happens();
	plain_round(10, 4, 2);
	same_change(2, 4);
	/* The version lacks round 2. */
	version(3);
	struct fal_msg m = grant(5, FAL_BASE_REBASE, 3, 4, 1);
	m.grant.since = 1;
	check(tell(&m), 0, "GRANT");
	all_happens();
	plain_base(3, true);
	plain_round(10, 4, 1);
	same_change(5, 4);
	/* The version has all. */
	version(4);
	m = grant(6, FAL_BASE_REBASE, 4, 4, 1);
	m.grant.since = 5;
	check(tell(&m), 0, "GRANT");
	all_happens();
	plain_base(4, false);
	plain_round(10, 4, 1);
	same_change(6, 4);
}

/* Rounds that wait while one is computed; a version that comes meanwhile. */
static void
one_after_the_other(void **state)
{
	(void)state;
	memset(&plain, 0, sizeof(plain));
	version(0);
	granted(1, FAL_BASE_VERSION, 0, 3, 1);
	granted(3, FAL_BASE_VERSION, 1, 3, 3);
	granted(2, FAL_BASE_LOCAL, 0, 3, 1);
	plain_base(0, false);
	version(1);
	for (uint32_t k = 1; k <= 3; k++) {
		while (!pushed.is && happen())
			continue;
		for (uint32_t i = 0; i < LANES && k < 3; i++)
			if (busy[i])
				check((int64_t)run[i].round, k + 1, "round at work");
		if (k == 3)
			plain_base(1, false);
		plain_round(10, 3, k == 3 ? 3 : 1);
		same_change(k, 3);
	}
	check(happen(), 0, "something is left");
}

/* A task that is granted once more, though it was claimed: nothing goes into what is
 * closed. */
static void
granted_again(void **state)
{
	(void)state;
	memset(&plain, 0, sizeof(plain));
	version(0);
	granted(1, FAL_BASE_VERSION, 0, 2, 1);
	finish(0);
	finish(1);
	check(claims, 2, "claims");
	check(closed != 0, 1, "closed");
	granted(1, FAL_BASE_VERSION, 0, 2, 1);
	for (uint32_t i = 0; i < LANES; i++)
		if (busy[i])
			finish(i);
	check(claims, 2, "claims");
	all_happens();
	plain_base(0, false);
	plain_round(10, 2, 1);
	same_change(1, 2);
}

/* Revoked in the middle: nothing comes of it, and the weights are as before. */
static void
revoked(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_REVOKE };
	memset(&plain, 0, sizeof(plain));
	version(0);
	granted(1, FAL_BASE_VERSION, 0, 4, 2);
	all_happens();
	plain_base(0, false);
	plain_round(10, 4, 2);
	same_change(1, 4);
	set_lanes(2);
	granted(2, FAL_BASE_LOCAL, 0, 5, 2);
	finish(0);
	finish(1);
	check(verdict(0), 0, "VERDICT");
	check(verdict(0), 0, "VERDICT");
	/* One step is done; the optimiser will remember it. */
	memcpy(plain.last, plain.w, sizeof(plain.w));
	plain_step(10, 12, 0.05f);
	memcpy(plain.w, plain.last, sizeof(plain.w));
	finish(0);
	const float *on = run[1].params;
	const float was = on[0];
	m.revoke.round = 2;
	m.revoke.first = 14;
	m.revoke.count = 1;
	check(tell(&m), 0, "REVOKE");
	check(cancelled[0] && cancelled[1], 1, "all of it is cancelled");
	check(verdict(0), 0, "VERDICT of what is gone");
	/* A cancelled task still reads what it was given. */
	set_lanes(3);
	granted(3, FAL_BASE_LOCAL, 0, 2, 2);
	finish(2);
	check(verdict(0), 0, "VERDICT");
	if (on[0] != was)
		fail_msg("weights in use: got %g, want %g", (double)on[0], (double)was);
	all_happens();
	plain_round(10, 2, 2);
	same_change(3, 2);
	granted(4, FAL_BASE_VERSION, 0, 2, 1);
	m.revoke.round = 5; /* not known */
	check(tell(&m), 0, "REVOKE");
	all_happens();
	plain_base(0, false);
	plain_round(10, 2, 1);
	same_change(4, 2);
}

static void
fenced(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	version(0);
	granted(1, FAL_BASE_VERSION, 0, 2, 1);
	finish(0);
	m.fence.round = 1;
	m.fence.seq = claim[0].seq;
	check(tell(&m), 0, "FENCE");
	check(cancelled[1], 1, "cancelled");
	all_happens();
	check(pushed.is, 0, "pushed");
}

static void
a_nonfinite_task_joins_again(void **state)
{
	(void)state;
	memset(&plain, 0, sizeof(plain));
	version(0);
	nonfinite = 12;
	granted(1, FAL_BASE_VERSION, 0, 6, 2);
	all_happens();
	check(pushed.is, 0, "pushed without a task");
	struct fal_msg m = grant(1, FAL_BASE_VERSION, 0, 6, 2);
	m.grant.first = 12;
	m.grant.count = 1;
	check(tell(&m), 0, "GRANT again");
	all_happens();
	plain_base(0, false);
	plain_round(10, 6, 2);
	same_change(1, 6);
}

/* Weights that are not finite are no change that could be pushed. */
static void
divergence_is_told(void **state)
{
	(void)state;
	version(0);
	struct fal_msg m = grant(1, FAL_BASE_VERSION, 0, 1, 1);
	m.grant.lr = INFINITY;
	check(tell(&m), 0, "GRANT");
	finish(0);
	check(verdict(0), FAL_ENONFINITE, "VERDICT");
	check(left, 1, "left");
	check(pushed.is, 0, "pushed");
}

/* Who leaves pushes a round of which everything is claimed, and no other. */
static void
leaving(void **state)
{
	(void)state;
	memset(&plain, 0, sizeof(plain));
	version(0);
	granted(1, FAL_BASE_VERSION, 0, 2, 1);
	granted(2, FAL_BASE_LOCAL, 0, 2, 1);
	finish(0);
	finish(1);
	check(claims, 2, "claims");
	fal_agent_leave(agent, 1, "SIGTERM");
	pumped(FAL_OK);
	check(left, 0, "left");
	check(verdict(1), 0, "VERDICT");
	check(verdict(0), 0, "VERDICT");
	plain_base(0, false);
	plain_round(10, 2, 1);
	check(left, 1, "left");
	check(left_before_push, 0, "left before the push");
	same_change(1, 2);
}

static void
leaving_in_the_middle(void **state)
{
	(void)state;
	version(0);
	granted(1, FAL_BASE_VERSION, 0, 2, 2);
	finish(0);
	fal_agent_leave(agent, 1, "SIGTERM");
	pumped(FAL_OK);
	check(left, 0, "left without the verdict");
	check(verdict(0), 0, "VERDICT");
	check(left, 1, "left");
	check(pushed.is, 0, "pushed");
}

static void
refusals(void **state)
{
	(void)state;
	struct fal_msg m = grant(1, FAL_BASE_VERSION, 0, 4, 0);
	check(tell(&m), FAL_EFORMAT, "no steps");
	m = grant(1, FAL_BASE_VERSION, 0, 4, 1025);
	check(tell(&m), FAL_EFORMAT, "too many steps");
	m = grant(1, (enum fal_base)3, 0, 4, 1);
	check(tell(&m), FAL_EFORMAT, "no such base");
	m = grant(1, FAL_BASE_VERSION, 0, 0, 1);
	check(tell(&m), FAL_EFORMAT, "no tasks");
	m = grant(1, FAL_BASE_VERSION, 0, 4, 1);
	m.grant.first = 13;
	m.grant.count = 2;
	check(tell(&m), FAL_EFORMAT, "a task beyond the round");
	m.grant.first = 9;
	check(tell(&m), FAL_EFORMAT, "a task before the round");
	m.grant.first = m.grant.from = UINT32_MAX - 2;
	check(tell(&m), FAL_EFORMAT, "tasks beyond all numbers");
	granted(1, FAL_BASE_VERSION, 0, 4, 1);
	m = grant(1, FAL_BASE_VERSION, 0, 3, 1);
	check(tell(&m), FAL_EFORMAT, "another size");
}

/* The first round is revoked before it began, then the next one, which waits for it. */
static void
revoked_before_it_began(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_REVOKE };
	memset(&plain, 0, sizeof(plain));
	granted(1, FAL_BASE_VERSION, 0, 4, 1);
	granted(2, FAL_BASE_LOCAL, 0, 4, 1);
	m.revoke.round = 1;
	m.revoke.count = UINT32_MAX;
	check(tell(&m), 0, "REVOKE");
	check(busy[0], 0, "runs without weights of its own");
	m.revoke.round = 2;
	check(tell(&m), 0, "REVOKE");
	version(1);
	granted(3, FAL_BASE_VERSION, 1, 4, 1);
	all_happens();
	plain_base(1, false);
	plain_round(10, 4, 1);
	same_change(3, 4);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(one_step),
		TEST(many_steps),
		TEST(local_and_rebase),
		TEST(one_after_the_other),
		TEST(granted_again),
		TEST(revoked),
		TEST(revoked_before_it_began),
		TEST(fenced),
		TEST(a_nonfinite_task_joins_again),
		TEST(divergence_is_told),
		TEST(leaving),
		TEST(leaving_in_the_middle),
		TEST(refusals),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
