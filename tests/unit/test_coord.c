/* The coordinator among workers that break the protocol: the coordinator refuses these
 * workers, and its trace stays true about the work that was counted. */
#include "test_coord.h"
#include "base/loss.h"
#include "wire/bfp.h"
#include "wire/shard_wait.h"

#include <math.h>
#include <stdlib.h>

enum { N = FAL_BLOCK + 5, TEST_SAMPLES = 3, TASK = 2, TASKS = 4, ROUNDS = 16 };

static uint32_t verdicts;
static struct racked_tickets tickets;
static uint64_t in_round; /* of claims and pushes */
static uint32_t epochs = 1;
static double guess;                 /* mean loss of guessing; 0: no loss is too large */
static double loss_of[SESSIONS + 1]; /* of a task, by session */
/* Messages to workers, by session: */
static struct {
	uint64_t version[ROUNDS];       /* by round: to compute on */
	uint32_t granted[ROUNDS];       /* tasks */
	uint64_t mark[ROUNDS];          /* of ACCOUNTs */
	uint64_t newest, oldest, first; /* versions */
	uint32_t marks, models;
	uint32_t seq[ROUNDS]; /* by round: contribution of tasks granted as claimed */
	uint16_t last;        /* type of message */
} sent[SESSIONS + 1];
static uint32_t given[ROUNDS][TASKS]; /* the first session that was granted the task */

static void
on_send(void *arg, uint32_t peer, const struct fal_buf *msg)
{
	struct fal_msg m;
	(void)arg;
	check(fal_msg_get(msg->p, msg->n, &m), 0, "parse what was sent");
	verdicts += m.type == FAL_MSG_VERDICT && m.verdict.won;
	sent[peer].last = m.type;
	if (m.type == FAL_MSG_TICKET)
		racked_note(&tickets, peer, &m);
	if (m.type == FAL_MSG_GRANT) {
		sent[peer].version[m.grant.round] = m.grant.version;
		sent[peer].seq[m.grant.round] = m.grant.seq;
		sent[peer].granted[m.grant.round] += m.grant.count;
		for (uint32_t i = 0; i < m.grant.count; i++)
			if (given[m.grant.round][m.grant.first + i] == 0)
				given[m.grant.round][m.grant.first + i] = peer;
		/* The worker has the version that the grant names. */
		assert_true(m.grant.version < sent[peer].first + sent[peer].models &&
			    m.grant.version >= sent[peer].first);
	}
	if (m.type == FAL_MSG_ACCOUNT)
		sent[peer].mark[sent[peer].marks++] = m.account.mark;
	/* The trace has the end before a worker hears of the end. */
	if (m.type == FAL_MSG_DONE)
		assert_non_null(memmem(trace.p, trace.n, "\"ev\":\"done\"", 11));
}

static void
on_model(void *arg, uint32_t peer, const struct fal_coord_publication *m)
{
	(void)arg;
	if (sent[peer].models++ == 0)
		sent[peer].first = m->version;
	else
		check((int64_t)m->version, (int64_t)sent[peer].newest + 1, "version");
	sent[peer].newest = m->version;
	sent[peer].oldest = m->oldest;
}

static void
on_close(void *arg, uint32_t peer, const char *why)
{
	(void)arg;
	(void)peer;
	(void)why;
}

static struct fal_metric_names metric_names;
static double hole;             /* in the metrics of a task */
static struct fal_metrics sums; /* of an epoch */
static bool preclaims;
static uint32_t shards = 1; /* of the job; with several, each push has one block */

/* Clocks of four tasks of two samples, then, perhaps, an evaluation; two workers. */
static int
begin_rule(struct fal_rule rule, uint32_t clocks, uint32_t test_samples)
{
	static const float init[N];
	struct fal_policy policy = { .rule = rule };
	struct fal_coord_ops ops = {
		.send = on_send, .model = on_model, .close = on_close, .trace = on_trace
	};
	struct fal_coord_conf conf = { .name = "test",
				       .hash = "00",
				       .policy = &policy,
				       .policy_by = "job",
				       .grid = { .samples = 8 * clocks / epochs,
						 .batch = 8,
						 .task = TASK,
						 .epochs = epochs },
				       .test_samples = test_samples,
				       .params = N,
				       .shards = shards,
				       .guess = guess,
				       .metrics = metric_names,
				       .preclaims = preclaims,
				       .min_workers = 2 };
	conf.schedule.lr = 0.1;
	verdicts = 0;
	tickets.n = 0;
	in_round = 0;
	memset(sent, 0, sizeof(sent));
	memset(given, 0, sizeof(given));
	fal_buf_clear(&trace);
	if (racked_new(conf, ops, init, 0, &job) < 0)
		return -1;
	coord = job.coord;
	join(1);
	join(2);
	return 0;
}

static int
begin_job(uint32_t slack, uint32_t clocks, uint32_t test_samples)
{
	const struct fal_rule epsp = { .scheme = FAL_EPSP, .slack = slack };
	return begin_rule(epsp, clocks, test_samples);
}

/* Workers have local steps. */
static int
begin_local(void **state)
{
	struct fal_rule rule;
	(void)state;
	check(fal_rule_parse("dynsgd:1", &rule, NULL), 0, "rule");
	return begin_rule(rule, 9, 0);
}

static int
begin(void **state)
{
	(void)state;
	return begin_job(0, 1, TEST_SAMPLES);
}

static void
claim(uint32_t peer, uint32_t task, uint32_t seq, struct fal_contrib_id fills)
{
	const struct standin_task t = { in_round, sent[peer].version[in_round], task,
					fills, FAL_KIND_GRAD };
	struct fal_msg m = standin_claim(&t, seq, false);
	const double metric[] = { task, task / 3.0 + hole };
	uint32_t before = verdicts;
	m.claim.metrics = (struct fal_tail){ (const uint8_t *)metric,
					     metric_names.n * sizeof(*metric) };
	m.claim.loss = (int64_t)ldexp(loss_of[peer], FAL_LOSS_BITS);
	check(tell(peer, &m), 0, "CLAIM");
	check(verdicts - before, 1, "claims won");
}

/* The value in each place of the records of `push`, and the exponent that they state. */
static struct {
	int64_t value;
	int8_t needed;
} lie = { 0, FAL_EXP_NONE };

static void
set_lie(struct fal_sum *sum)
{
	int64_t v[FAL_BLOCK];
	for (uint32_t i = 0; i < FAL_BLOCK; i++)
		v[i] = lie.value;
	for (uint32_t b = 0; b < fal_blocks(N); b++)
		check(fal_sum_store(sum, b, v, (uint64_t)llabs(lie.value), lie.needed), 0,
		      "store");
}

static uint32_t map = 1; /* of blocks: the epoch of the map in a PUSH */

/* The ticket of a closed contribution with so many won tasks; if there is none, or one
 * for fewer tasks, a ticket that the worker has made up. */
static void
ticket(uint32_t peer, uint32_t seq, uint32_t tasks, struct fal_msg_ticket *out)
{
	const struct fal_msg m = standin_seal(in_round, seq);
	if (!racked_ticket(&tickets, peer, in_round, seq, out))
		check(tell(peer, &m), 0, "SEAL");
	if (racked_ticket(&tickets, peer, in_round, seq, out))
		out->tasks = tasks;
	else
		*out = (struct fal_msg_ticket){ .round = in_round,
						.worker = peer,
						.seq = seq,
						.tasks = tasks,
						.kind = FAL_KIND_GRAD,
						.mac = { 1 } };
}

/* Records of the blocks 0 … blocks-1 of a gradient of zeros, or of a lie, then `junk`
 * bytes. */
static int
push(uint32_t peer, uint32_t seq, uint32_t tasks, uint32_t blocks, uint32_t junk)
{
	struct fal_msg_ticket is;
	int8_t exps[FAL_BLOCK];
	struct fal_sum *sum = fal_sum_new(N);
	struct fal_buf records = { 0 };
	assert_non_null(sum);
	set_lie(sum);
	memset(exps, FAL_EXP_FIRST, sizeof(exps));
	racked_exps(&job, sent[peer].version[in_round], exps);
	ticket(peer, seq, tasks, &is);
	int err = 0;
	for (uint32_t b = 0; b < blocks && err == 0; b++) {
		check(fal_sum_pack(sum, b, exps[b], &records), 0, "pack");
		if (shards == 1 && b + 1 < blocks)
			continue;
		for (uint32_t i = 0; i < junk; i++)
			fal_put_u8(&records, 0xff);
		struct fal_msg m = standin_push(&is, &records);
		m.push.epoch = map;
		err = tell(peer, &m);
		fal_buf_clear(&records);
	}
	fal_sum_free(sum);
	fal_buf_free(&records);
	return err;
}

static int
evaluated(uint32_t peer, uint32_t task, uint32_t right, uint32_t samples, int64_t loss)
{
	struct fal_msg m = standin_evaluated(1, task, samples);
	m.evaluated.right = right;
	m.evaluated.loss = loss;
	return tell(peer, &m);
}

static const struct fal_contrib_id none = { 0, 0 };

static void
train(void)
{
	for (uint32_t w = 1; w <= 2; w++) {
		claim(w, 2 * w - 2, 1, none);
		claim(w, 2 * w - 1, 1, none);
		check(push(w, 1, 2, 2, 0), 0, "PUSH");
	}
	check((int64_t)fal_coord_status(coord).clock, 1, "clocks completed");
}

/* The block before the rubbish is counted, so that the filling worker brings the other
 * block only. */
static void
half_a_push(void **state)
{
	(void)state;
	claim(1, 0, 1, none);
	check(push(1, 1, 1, 1, 3), FAL_ETRUNC, "PUSH with rubbish behind a block");
	check(fal_coord_session_end(coord, 0.5, 1, diag.text), 0, "gone");
	claim(2, 0, 1, (struct fal_contrib_id){ 1, 1 });
	for (uint32_t t = 1; t < 4; t++)
		claim(2, t, 2, none);
	check(push(2, 1, 1, 2, 0), 0, "PUSH that fills");
	check((int64_t)fal_coord_status(coord).clock, 0, "clocks before the last PUSH");
	check(push(2, 2, 3, 2, 0), 0, "PUSH");
	check((int64_t)fal_coord_status(coord).clock, 1, "clocks completed");
	check(evaluated(2, 0, 1, 2, 0), 0, "EVALUATED");
	check(evaluated(2, 1, 1, 1, 0), 0, "EVALUATED");
	check(fal_coord_status(coord).done, 1, "done");
	racked_finish(&job, 0.5, NULL);
	audited();
}

/* The blocks of a worker that is gone complete the clock all the same. */
static void
rubbish_behind_the_last_block(void **state)
{
	(void)state;
	claim(2, 2, 1, none);
	claim(2, 3, 1, none);
	check(push(2, 1, 2, 2, 0), 0, "PUSH");
	claim(1, 0, 1, none);
	claim(1, 1, 1, none);
	check(push(1, 1, 2, 2, 3), FAL_ETRUNC, "PUSH with rubbish behind all blocks");
	check((int64_t)fal_coord_status(coord).clock, 1, "clocks completed");
	check(fal_coord_session_end(coord, 0.5, 1, diag.text), 0, "gone");
	check(evaluated(2, 1, 1, 1, 0), 0, "EVALUATED");
	check(evaluated(2, 0, 1, 2, 0), 0, "EVALUATED");
	check(fal_coord_status(coord).done, 1, "done");
	racked_finish(&job, 0.5, NULL);
	audited();
}

/* All tasks of the round were granted as claimed, and are pushed before they are
 * reported. */
static void
train_ahead(uint64_t round)
{
	in_round = round;
	for (uint32_t w = 1; w <= 2; w++)
		check(push(w, sent[w].seq[round], 2, 2, 0), 0, "PUSH");
	/* The version is made by now. */
	check((int64_t)fal_coord_status(coord).version, (int64_t)round, "published");
	for (uint32_t task = 0; task < TASKS; task++) {
		const uint32_t w = given[round][task];
		const struct standin_task t = { round, sent[w].version[round], task, none,
						FAL_KIND_GRAD };
		struct fal_msg m = standin_claim(&t, sent[w].seq[round], false);
		m.claim.loss = (int64_t)ldexp((double)task, FAL_LOSS_BITS);
		check((int64_t)sent[w].newest, (int64_t)round, "told before reports");
		check(tell(w, &m), 0, "CLAIM");
	}
	check((int64_t)fal_coord_status(coord).version, (int64_t)round + 1, "published");
	assert_true(fal_coord_status(coord).figures.loss == 6.0 / (TASKS * TASK));
}

/* All workers hear of the next version when its tasks are reported, and a worker that
 * joins meanwhile hears of the version that the others compute on. */
static void
stepped_ahead_of_reports(void **state)
{
	const struct fal_rule bsp = { .scheme = FAL_BSP };
	preclaims = true;
	check(begin_rule(bsp, 3, 0), 0, "begin");
	preclaims = false;
	for (uint64_t round = 0; round < 3; round++) {
		if (round == 2) {
			join(3);
			check((int64_t)sent[3].newest, 2, "told to who comes");
		}
		train_ahead(round);
	}
	racked_finish(&job, 0.5, NULL);
	audited();
	end(state);
}

/* A job whose result cannot be kept has failed, and all workers hear so. */
static void
failed_is_not_done(void **state)
{
	(void)state;
	train();
	racked_finish(&job, 0.5, "the disk is full");
	fal_put_u8(&trace, 0);
	assert_non_null(strstr((char *)trace.p, "\"ev\":\"failed\""));
	assert_null(strstr((char *)trace.p, "\"ev\":\"done\""));
}

/* The caller that ends the job may have read the time before its report on strangers. */
static void
lines_in_order(void **state)
{
	(void)state;
	train();
	fal_coord_trace_refusals(coord, 0.75, "stranger", "no such key", 3);
	racked_finish(&job, 0.5, NULL);
	audited();
}

static void
pushes_that_do_not_fit(void **state)
{
	(void)state;
	claim(1, 0, 1, none);
	claim(1, 1, 1, none);
	check(push(1, 1, 3, 2, 0), FAL_EAUTH, "more tasks than were claimed");
	map = 2;
	check(push(1, 1, 2, 2, 0), FAL_EAUTH, "another map");
	map = 1;
	check(push(1, 2, 2, 2, 0), FAL_EAUTH, "an unknown contribution");
	check(push(2, 1, 2, 2, 0), FAL_EAUTH, "another's contribution");
	check(push(1, 1, 2, 0, 0), 0, "nothing");
	check(push(1, 1, 2, 1, 0), 0, "block 0");
	check(push(1, 1, 2, 1, 0), FAL_EEXIST, "block 0 again");
}

/* Counts that do not fit the test task would falsify the accuracy. */
static void
evaluations_that_do_not_fit(void **state)
{
	(void)state;
	train();
	check(evaluated(1, 0, 3, 2, 0), FAL_EINVAL, "more right than there are");
	check(evaluated(1, 0, 0, 0, 0), FAL_EINVAL, "no samples");
	check(evaluated(1, 1, 1, 2, 0), FAL_EINVAL, "more than the last task has");
	check(evaluated(1, 2, 0, 0, 0), FAL_EINVAL, "no such task");
	check(evaluated(1, UINT32_MAX, 0, 0, 0), FAL_EINVAL, "the largest task");
	const int64_t most = 2 * (int64_t)FAL_LOSS_MAX << FAL_LOSS_BITS;
	check(evaluated(1, 0, 2, 2, INT64_MAX), FAL_EINVAL, "an absurd loss");
	check(evaluated(1, 0, 2, 2, most + 1), FAL_EINVAL, "a loss above the largest");
	check(evaluated(1, 0, 2, 2, -most - 1), FAL_EINVAL, "a loss below the least");
	check(evaluated(1, 0, 2, 2, INT64_MIN), FAL_EINVAL, "an absurd one below 0");
	check(evaluated(1, 1, 1, 1, 0), FAL_ESTATE, "what another one was given");
	check(evaluated(1, 0, 2, 2, most), 0, "the largest loss");
	check(evaluated(1, 0, 2, 2, most), 0, "the same again");
	check(evaluated(2, 1, 1, 1, 0), 0, "the last");
	check(fal_coord_status(coord).done, 0, "done before a second key's word");
	/* Each worker repeats the other's tasks, with the same results. */
	check(evaluated(1, 1, 1, 1, 0), 0, "the second word");
	check(evaluated(2, 0, 2, 2, most), 0, "the second word");
	struct fal_coord_status s = fal_coord_status(coord);
	check(s.done, 1, "done");
	if (s.figures.accuracy != 1.0)
		fail_msg("accuracy: got %g, want 1", s.figures.accuracy);
	/* A loss at its bound is not known. */
	assert_true(isnan(s.figures.accuracy_loss));
}

static void
order_of_a_session(void **state)
{
	(void)state;
	struct fal_msg hello = { .type = FAL_MSG_HELLO }, m = { .type = FAL_MSG_READY };
	check(tell(1, &m), FAL_ESTATE, "a second READY");
	check(tell(9, &m), FAL_ESTATE, "READY before HELLO");
	check(tell(1, &hello), FAL_ESTATE, "a second HELLO");
	check(tell(3, &hello), FAL_ESTATE, "HELLO of nobody");
	open_as(3, 3);
	check(tell(3, &hello), FAL_EVERSION, "protocol 0");
	hello.hello.schema = fal_msg_schema();
	check(tell(3, &hello), FAL_EINVAL, "no lanes, no name");
	hello.hello.lanes_min = hello.hello.cores = 1;
	hello.hello.lanes_max = UINT32_MAX;
	strcpy(hello.hello.name, "w3");
	check(tell(3, &hello), FAL_EINVAL, "all lanes there are");
	hello.hello.lanes_max = 1;
	check(tell(3, &hello), 0, "HELLO");
	m.type = FAL_MSG_PONG;
	check(tell(3, &m), FAL_ESTATE, "PONG before READY");
	m.type = FAL_MSG_GRANT;
	check(tell(1, &m), FAL_ESTATE, "a coordinator's message");
	m.type = FAL_MSG_PONG;
	m.incarnation = 1;
	check(tell(1, &m), FAL_ESTATE, "another incarnation");
	m.incarnation = 0;
	m.pong.stamp = UINT64_MAX;
	check(tell(1, &m), 0, "PONG from the future");
	m = (struct fal_msg){ .type = FAL_MSG_LEAVE, .leave.why = "it cannot work" };
	check(tell(3, &m), 0, "LEAVE before READY");
	m.type = FAL_MSG_READY;
	check(tell(3, &m), 0, "READY behind LEAVE, which is too late");
	check(fal_coord_session_end(coord, 0.5, 77, "unknown"), 0,
	      "an unknown peer is gone");
	check(fal_coord_status(coord).workers, 2, "workers");
}

/* A probe has all three figures or none, or the trace could not be read. */
static void
odd_probes(void **state)
{
	(void)state;
	static const struct {
		uint64_t task_ns;
		uint32_t large;
		uint64_t large_ns;
	} odd[] = { { 0, 9, 9 }, { 9, 9, 0 }, { 9, 0, 9 }, { 9, TASK, 9 } };
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	struct fal_coord_task_sizes sizes;
	open_as(3, 3);
	m.hello.schema = fal_msg_schema();
	strcpy(m.hello.name, "w3");
	m.hello.lanes_min = m.hello.lanes_max = m.hello.cores = 1;
	check(tell(3, &m), 0, "HELLO");
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		m = (struct fal_msg){ .type = FAL_MSG_READY };
		m.ready.task_ns = odd[i].task_ns;
		m.ready.large = odd[i].large;
		m.ready.large_ns = odd[i].large_ns;
		check(tell(3, &m), FAL_EINVAL, "an odd probe");
	}
	fal_coord_task_sizes(coord, &sizes);
	check(sizes.workers, 0, "workers with probes");
	m.ready.task_ns = 1000;
	m.ready.large = 4 * TASK;
	m.ready.large_ns = 2500;
	check(tell(3, &m), 0, "a probe");
	fal_coord_task_sizes(coord, &sizes);
	check(sizes.workers, 1, "workers with probes");
	check(llround(1000 * sizes.whole), 0, "4 tasks on a lane: whole");
	check(llround(1000 * sizes.small), 375, "4 tasks on a lane: small");
}

/* A text with a meaning for terminals or shells is no name. */
static void
names_that_are_none(void **state)
{
	(void)state;
	static const char *const bad[] = { "",
					   "\xc2\x9b[2J",
					   ("\xe2\x80\xae"
					    "gpj"),
					   "../../x",
					   "a b",
					   "a/b",
					   "\xff",
					   "a\"b" };
	open_as(3, 3);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fal_msg m = { .type = FAL_MSG_HELLO };
		m.hello.schema = fal_msg_schema();
		m.hello.lanes_min = m.hello.lanes_max = m.hello.cores = 1;
		snprintf(m.hello.name, sizeof(m.hello.name), "%s", bad[i]);
		check(tell(3, &m), FAL_EINVAL, bad[i]);
	}
	check(hello(3, "w.3_-Z", 3), 0, "HELLO");
}

static bool
traced(const char *what)
{
	fal_put_u8(&trace, '\0');
	trace.n--;
	return strstr((const char *)trace.p, what) != NULL;
}

/* A process that comes back gets its name again, and its older session ends; another
 * process of the same name, of any key, gets a suffix. */
static void
names_belong_to_processes(void **state)
{
	(void)state;
	struct fal_msg ready = { .type = FAL_MSG_READY };
	char longest[FAL_MSG_NAME];
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	open_as(3, 1);
	check(hello(3, "w1", 33), 0, "HELLO");
	check(tell(3, &ready), 0, "READY of another process");
	assert_true(traced("\"worker\":\"w1.2\",\"id\":3,\"key\":\"k1\""));
	open_as(4, 4);
	check(hello(4, "w1", 33), 0, "HELLO");
	check(tell(4, &ready), 0, "READY of the same number under another key");
	assert_true(traced("\"worker\":\"w1.3\",\"id\":4,\"key\":\"k4\""));
	check(fal_coord_status(coord).workers, 4, "workers");
	open_as(5, 1);
	check(hello(5, "w1", 33), 0, "HELLO");
	check(fal_coord_status(coord).workers, 3, "workers when one comes back");
	assert_true(traced("\"worker\":\"w1.2\",\"id\":3,\"reason\":\"its process has"));
	check(tell(5, &ready), 0, "READY of who came back");
	assert_true(traced("\"worker\":\"w1.2\",\"id\":5"));
	for (uint32_t peer = 6; peer < 8; peer++) {
		open_as(peer, 1);
		check(hello(peer, longest, (uint8_t)peer), 0, "HELLO");
		check(tell(peer, &ready), 0, "READY with a long name");
	}
	assert_true(traced("x.2\",\"id\":7"));
}

/* The HELLO of a dead link may arrive behind the HELLO of the next link; the living
 * session is then taken for the older one.  So the older session is told to come back,
 * and gets its name again. */
static void
sessions_of_a_process_that_cross(void **state)
{
	(void)state;
	static const bool ready_first[] = { false, true };
	const struct fal_msg ready = { .type = FAL_MSG_READY };
	for (uint32_t i = 0; i < 2; i++) {
		const uint32_t dead = 3 * i + 3, alive = dead + 1, again = dead + 2;
		const uint8_t process = (uint8_t)(40 + i);
		char name[16];
		snprintf(name, sizeof(name), "p%u", i);
		open_as(alive, 3);
		check(hello(alive, name, process), 0, "HELLO on the second link");
		if (ready_first[i])
			check(tell(alive, &ready), 0, "READY");
		open_as(dead, 3);
		check(hello(dead, name, process), 0, "HELLO of the first one, late");
		check(sent[alive].last, FAL_MSG_LATER, "what the living one is told");
		check(sent[dead].last, FAL_MSG_WELCOME, "what the dead one is told");
		open_as(again, 3);
		check(hello(again, name, process), 0, "HELLO, once more");
		check(sent[dead].last, FAL_MSG_LATER, "what nobody hears");
		check(tell(again, &ready), 0, "READY");
		check(fal_coord_status(coord).workers, 3 + i, "workers");
	}
	assert_true(traced("\"worker\":\"p0\""));
	assert_true(traced("\"worker\":\"p1\",\"id\":5"));
}

static void
after_leaving(void **state)
{
	(void)state;
	static const uint16_t late[] = { FAL_MSG_LEAVE, FAL_MSG_PONG,   FAL_MSG_CLAIM,
					 FAL_MSG_PUSH,  FAL_MSG_WORKED, FAL_MSG_READY };
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	check(tell(1, &m), 0, "LEAVE");
	check(fal_coord_status(coord).workers, 1, "workers");
	for (size_t i = 0; i < sizeof(late) / sizeof(late[0]); i++) {
		m = (struct fal_msg){ .type = late[i] };
		check(tell(1, &m), 0, fal_msg_name(late[i]));
	}
	check(fal_coord_session_end(coord, 0.5, 1, "closed"), 0, "gone");
	check(fal_coord_status(coord).workers, 1, "workers at the end");
	check(verdicts, 0, "claims won");
	/* The other worker gets its tasks. */
	for (uint32_t t = 0; t < 4; t++)
		claim(2, t, 1, none);
	check(push(2, 1, 4, 2, 0), 0, "PUSH");
	check((int64_t)fal_coord_status(coord).clock, 1, "clocks completed");
}

/* --- rounds ---------------------------------------------------------------------------
 */

/* Both workers do their tasks of the round; contributions are numbered by round. */
static void
train_round(uint64_t round)
{
	uint32_t seq = (uint32_t)round + 1;
	in_round = round;
	for (uint32_t w = 1; w <= 2; w++) {
		uint32_t tasks = 0;
		for (uint32_t t = 0; t < TASKS; t++)
			if (given[round][t] == w) {
				claim(w, t, seq, none);
				tasks++;
			}
		if (tasks > 0)
			check(push(w, seq, tasks, 2, 0), 0, "PUSH");
	}
}

static void
stands(uint64_t clock, uint64_t version)
{
	struct fal_coord_status s = fal_coord_status(coord);
	check((int64_t)s.clock, (int64_t)clock, "clocks that are over");
	check((int64_t)s.version, (int64_t)version, "version");
}

/* With slack 1 two rounds are open, each on the version of its number, and updates are
 * made in the order of clocks. */
static void
rounds_on_two_versions(void **state)
{
	(void)state;
	check(begin_job(1, 4, 0), 0, "begin");
	for (uint32_t w = 1; w <= 2; w++) {
		check(sent[w].granted[0], 2, "tasks of round 0");
		check(sent[w].granted[1], 2, "tasks of round 1");
		check(sent[w].granted[2], 0, "tasks of round 2");
	}
	train_round(0);
	stands(1, 1);
	check((int64_t)sent[1].version[1], 0, "what round 1 is computed on");
	check((int64_t)sent[1].version[2], 1, "what round 2 is computed on");
	check(sent[1].granted[2] + sent[2].granted[2], 4, "tasks of round 2");
	train_round(2);
	stands(1, 1);
	check(sent[1].granted[3], 0, "tasks of round 3 while round 1 is open");
	train_round(1);
	stands(3, 3);
	check((int64_t)sent[1].version[3], 2, "what round 3 is computed on");
	train_round(3);
	stands(4, 4);
	check(fal_coord_status(coord).done, 1, "done");
	racked_finish(&job, 0.5, NULL);
	audited();
}

/* Any push with a ticket of a round that is over is accepted: nobody knows its
 * contributions any more. */
static void
pushes_after_the_round(void **state)
{
	(void)state;
	check(begin_job(0, 3, 0), 0, "begin");
	train_round(0);
	stands(1, 1);
	check(push(1, 1, 2, 2, 0), 0, "the same push again");
	check(push(1, 1, 2, 2, 3), 0, "with rubbish");
	check(push(2, 7, 9, 1, 0), FAL_EAUTH, "of what was never claimed");
	in_round = 9;
	check(push(2, 1, 1, 1, 0), FAL_EAUTH, "for a round that is none");
	stands(1, 1);
	train_round(1);
	train_round(2);
	stands(3, 3);
	racked_finish(&job, 0.5, NULL);
	audited();
}

static void
worked(uint32_t peer, uint64_t mark, uint64_t compute)
{
	struct fal_msg m = { .type = FAL_MSG_WORKED };
	m.worked.mark = mark;
	m.worked.compute = compute;
	check(tell(peer, &m), 0, "WORKED");
}

/* Waits for shards count if they are no longer than the time without computing, and name
 * existing shards in order; else none of them counts. */
static void
rows_of_worked_are_judged(void **state)
{
	(void)state;
	static const struct {
		uint32_t shard[2];
		uint64_t waited[2];
		size_t cut; /* bytes that are missing */
		int err;
	} cases[] = {
		{ { 1, 0 }, { 500, 0 }, 0, FAL_OK },
		{ { 1, 0 }, { 601, 0 }, 0, FAL_ELIMIT },
		{ { 1, 1 }, { 1, 1 }, 0, FAL_EFORMAT },
		{ { 2, 0 }, { 1, 0 }, 0, FAL_EFORMAT },
		{ { UINT32_MAX, 0 }, { 1, 0 }, 0, FAL_EFORMAT },
		{ { 1, 0 }, { 1, 0 }, 3, FAL_EFORMAT },
	};
	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		struct fal_msg m = { .type = FAL_MSG_WORKED };
		struct fal_buf rows = { 0 };
		check(begin_job(0, 9, 0), 0, "begin");
		train_round(0);
		m.worked.push = 100;
		m.worked.pull = 200;
		m.worked.wait = 300;
		for (size_t i = 0; i < 2 && cases[k].shard[i] > 0; i++) {
			const struct fal_shard_wait w = { 1, 1, cases[k].waited[i] };
			fal_shard_wait_put(&rows, cases[k].shard[i] - 1, &w);
		}
		m.worked.waits = (struct fal_tail){ rows.p, rows.n - cases[k].cut };
		check(tell(1, &m), cases[k].err, "WORKED");
		fal_buf_free(&rows);
		racked_free(&job);
	}
}

/* A worker that reports a wait of years lies: the trace is true all the same, and the
 * audit charges nobody. */
static void
nobody_waits_longer_than_the_job_runs(void **state)
{
	struct fal_msg m = { .type = FAL_MSG_WORKED };
	const struct fal_shard_wait w = { 1, FAL_MSG_NS_MAX, FAL_MSG_NS_MAX / 2 };
	struct fal_buf rows = { 0 };
	(void)state;
	shards = 2;
	check(begin_job(0, 1, 0), 0, "begin");
	train_round(0);
	m.worked.wait = FAL_MSG_NS_MAX;
	for (uint32_t i = 0; i < 2; i++)
		fal_shard_wait_put(&rows, i, &w);
	m.worked.waits = (struct fal_tail){ rows.p, rows.n };
	check(tell(1, &m), 0, "WORKED");
	fal_buf_free(&rows);
	shards = 1;
	racked_finish(&job, 0.5, NULL);
	check(lines("\"ev\":\"shard\""), 2, "lines of shards");
	check(lines("\"took\":0.500000,\"blame\":0.500000"), 2, "as long as the job");
	audited();
}

/* Counts the worker's `clock` lines of this clock with this time. */
static uint32_t
clock_lines(uint32_t clock, uint32_t id, const char *compute)
{
	char want[2][64];
	uint32_t n = 0;
	snprintf(want[0], sizeof(want[0]), "\"clock\":%u,\"worker\":\"w%u\",", clock, id);
	snprintf(want[1], sizeof(want[1]), "\"compute\":%s,", compute);
	fal_put_u8(&trace, '\0');
	trace.n--;
	for (const char *l = (const char *)trace.p; *l != '\0'; l = strchr(l, '\n') + 1) {
		size_t len = (size_t)(strchr(l, '\n') - l);
		char line[1024];
		snprintf(line, sizeof(line), "%.*s", (int)len, l);
		n += strstr(line, "\"ev\":\"clock\"") != NULL &&
		     strstr(line, want[0]) != NULL && strstr(line, want[1]) != NULL;
	}
	return n;
}

/* Each ACCOUNT becomes one line: with the worker's answer to this ACCOUNT, or without
 * figures, if the worker skipped the ACCOUNT. */
static void
answers_belong_to_their_accounts(void **state)
{
	(void)state;
	check(begin_job(0, 9, 0), 0, "begin");
	for (uint64_t i = 0; i < 3; i++) {
		train_round(i);
		check(sent[1].marks, (int64_t)i + 1, "ACCOUNTs");
		check((int64_t)sent[1].mark[i], (int64_t)i, "mark");
	}
	worked(1, 7, 10000000); /* an answer to nothing */
	check(clock_lines(0, 1, "0.010000"), 0, "lines of an unknown mark");
	worked(1, 1, 20000000); /* the worker skipped the first */
	check(clock_lines(0, 1, "0.000000"), 1, "lines of clock 0, empty");
	check(clock_lines(1, 1, "0.020000"), 1, "lines of clock 1");
	worked(1, 1, 30000000); /* the same again */
	worked(1, 0, 40000000); /* the skipped one */
	check(clock_lines(0, 1, "0.040000"), 0, "lines of what was skipped");
	check(clock_lines(1, 1, "0.030000"), 0, "lines of an answer again");
	check(clock_lines(2, 1, "0.000000"), 0, "lines of clock 2 before its answer");
	worked(1, 2, 50000000);
	check(clock_lines(2, 1, "0.050000"), 1, "lines of clock 2");
	/* A worker that never answers gets its lines when too many are pending, or at the
	 * end. */
	check(clock_lines(0, 2, "0.000000"), 0, "lines of the silent one");
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	check(tell(2, &m), 0, "LEAVE");
	for (uint32_t i = 0; i < 3; i++)
		check(clock_lines(i, 2, "0.000000"), 1, "lines of who left");
}

/* A worker so far away that its lines cannot wait for its answers has the answers in
 * later lines. */
static void
answers_from_far(void **state)
{
	(void)state;
	check(begin_job(0, 12, 0), 0, "begin");
	for (uint64_t i = 0; i < 9; i++) {
		train_round(i);
		if (i >= 6)
			worked(1, i - 6, (i + 1) * 10000000);
	}
	check(clock_lines(0, 1, "0.000000"), 1, "lines of clock 0, which did not wait");
	check(clock_lines(3, 1, "0.070000"), 1, "lines with the answer of clock 0");
	check(clock_lines(4, 1, "0.080000"), 1, "lines with the answer of clock 1");
	check(clock_lines(5, 1, "0.090000"), 1, "lines with the answer of clock 2");
	worked(1, 1, 10000000); /* again */
	check(clock_lines(6, 1, "0.010000"), 0, "lines with an answer again");
}

/* A worker that joins while others compute on older versions is sent these, oldest first.
 */
static void
newcomers_get_older_versions(void **state)
{
	(void)state;
	check(begin_job(2, 9, 0), 0, "begin");
	for (uint64_t i = 0; i < 4; i++)
		train_round(i);
	stands(4, 4);
	check((int64_t)sent[1].version[4], 2, "what round 4 is computed on");
	join(3);
	check((int64_t)sent[3].first, 2, "first version that it is sent");
	check(sent[3].models, 3, "versions that it is sent");
	check((int64_t)sent[3].newest, 4, "the newest");
	check((int64_t)sent[3].oldest, 2, "the oldest that it needs");
	/* So the worker does all of round 4 when the others are gone. */
	check(fal_coord_session_end(coord, 0.5, 1, "gone"), 0, "gone");
	check(fal_coord_session_end(coord, 0.5, 2, "gone"), 0, "gone");
	check(sent[3].granted[4], 4, "tasks of round 4");
	check((int64_t)sent[3].version[4], 2, "what it computes round 4 on");
	in_round = 4;
	for (uint32_t t = 0; t < 4; t++)
		claim(3, t, 1, none);
	check(push(3, 1, 4, 2, 0), 0, "PUSH");
	stands(5, 5);
	check((int64_t)sent[3].newest, 5, "the newest");
	check((int64_t)sent[3].oldest, 3, "the oldest that it needs");
}

static void
has_params(float want)
{
	const float *params = racked_params(&job);
	for (size_t i = 0; i < N; i++)
		if (params[i] != want) /* NaN, too */
			fail_msg("parameter %zu: got %g, want %g", i, (double)params[i],
				 (double)want);
}

/* Lies under one key among honest keys: the liar alone is refused, and the model is as
 * without the lie. */
static void
lies(void **state)
{
	(void)state;
	static const struct {
		int64_t value;
		int8_t needed;
		uint32_t tasks;
	} known[] = {
		{ INT64_C(1) << 61, 100, 1 },
		{ INT64_C(1) << 61, 100, 2 },
		{ 0, 100, 1 },
		{ 0, 100, 2 },
		{ (INT64_C(1) << 62) - 1, 100, 2 },
		{ (INT64_C(1) << 62) - 1, 20, 2 },
		{ INT64_C(1) << 58, 20, 2 },
		{ 0, 20, 1 },
		{ 12345, FAL_EXP_NONE, 1 },
		{ 12345, FAL_EXP_NONE, 2 },
		{ 12345, -40, 2 },
	};
	for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
		const uint32_t n = known[k].tasks;
		check(begin_job(0, 2, 0), 0, "begin");
		for (uint32_t t = 0; t < n; t++)
			claim(1, t, 1, none);
		lie.value = known[k].value;
		lie.needed = known[k].needed;
		if (push(1, 1, n, 2, 0) >= 0)
			fail_msg("lie %zu is believed", k);
		check(fal_coord_session_end(coord, 0.5, 1, diag.text), 0, "gone");
		/* Every value 2^-10: on version 0, 2^(23 + 12 - 10) quanta a task. */
		lie.value = 1 << 25;
		lie.needed = -10;
		for (uint32_t t = 0; t < n; t++)
			claim(2, t, 1, (struct fal_contrib_id){ 1, 1 });
		lie.value *= n;
		check(push(2, 1, n, 2, 0), 0, "the honest one's");
		for (uint32_t t = n; t < 4; t++)
			claim(2, t, 2, none);
		lie.value = (1 << 25) * (4 - n);
		check(push(2, 2, 4 - n, 2, 0), 0, "the rest");
		stands(1, 1);
		check(fal_coord_status(coord).workers, 1, "workers");
		has_params(-0.1f * 4 * 0x1p-10f / 8);
		lie.value = 0;
		lie.needed = FAL_EXP_NONE;
		end(NULL);
	}
	check(begin_job(0, 1, 0), 0, "begin");
}

static void
diverges(uint32_t peer)
{
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	m.leave.cause = 1;
	check(tell(peer, &m), 0, "LEAVE");
}

/* One worker whose weights are not finite may be broken; with a second one, the job has
 * diverged, and ends instead of waiting for others. */
static void
divergence_ends_the_job(void **state)
{
	(void)state;
	join(3);
	diverges(1);
	check(fal_coord_status(coord).failed, 0, "failed after one");
	join(4);
	diverges(4);
	check(fal_coord_status(coord).failed, 1, "failed after another one");
	assert_non_null(strstr(fal_coord_status(coord).why, "not finite"));
}

/* A worker without local steps cannot report their divergence. */
static void
divergence_without_local_steps(void **state)
{
	(void)state;
	diverges(1);
	diverges(2);
	check(fal_coord_status(coord).failed, 0, "failed");
}

static void
divergence_of_the_last_worker(void **state)
{
	(void)state;
	check(fal_coord_session_end(coord, 0.5, 2, "gone"), 0, "gone");
	diverges(1);
	check(fal_coord_status(coord).failed, 1, "failed");
}

/* Two clocks of one epoch; the workers have these losses, first and then. */
static struct fal_coord_status
learn_from(const double first[2], const double then[2])
{
	guess = 1;
	check(begin_job(0, 2, 0), 0, "begin");
	loss_of[1] = TASK * first[0];
	loss_of[2] = TASK * first[1];
	train_round(0);
	loss_of[1] = TASK * then[0];
	loss_of[2] = TASK * then[1];
	train_round(1);
	const struct fal_coord_status s = fal_coord_status(coord);
	racked_free(&job);
	guess = loss_of[1] = loss_of[2] = 0;
	return s;
}

/* The same, of equal losses first. */
static struct fal_coord_status
learn(double first, double then_1, double then_2)
{
	return learn_from((double[]){ first, first }, (double[]){ then_1, then_2 });
}

/* The epoch is far above guessing if the workers of most keys report so. */
static void
test_diverged(void **state)
{
	(void)state;
	assert_false(learn(1, 2, 2).failed);
	assert_false(learn(0.1, 1, 1).failed);  /* no more than guessing */
	assert_false(learn(50, 60, 60).failed); /* the loss at the start */
	const struct fal_coord_status s = learn(1, 10, 10);
	assert_true(s.failed);
	assert_non_null(strstr(s.why, "diverged"));
	/* One key lies. */
	assert_false(learn(1, 90, 1).failed);
	assert_false(learn(1, 1, 90).failed);
	/* An unknown loss does not count if the key has others, */
	assert_false(learn(1, FAL_LOSS_MAX, FAL_LOSS_MAX).failed);
	/* or where none was at first. */
	assert_false(learn(FAL_LOSS_MAX, FAL_LOSS_MAX, FAL_LOSS_MAX).failed);
	/* A lie at the beginning, to cover a later divergence. */
	assert_true(learn_from((double[]){ 90, 1 }, (double[]){ 10, 20 }).failed);
	assert_true(learn_from((double[]){ 1, 65536 }, (double[]){ 10, 20 }).failed);
	coord = NULL;
}

/* An update with a task whose loss is not known has no loss, nor has its epoch. */
static void
test_loss_unknown(void **state)
{
	(void)state;
	epochs = 4;
	check(begin_job(0, 4, 0), 0, "begin");
	loss_of[1] = TASK;
	loss_of[2] = -1.0 * TASK * FAL_LOSS_MAX;
	train_round(0);
	assert_true(isnan(fal_coord_status(coord).figures.loss));
	assert_true(isnan(fal_coord_status(coord).figures.epoch_loss));
	loss_of[2] = -TASK;
	train_round(1);
	loss_of[1] = loss_of[2] = 0;
	epochs = 1;
	assert_true(fal_coord_status(coord).figures.loss == 0);
	assert_true(fal_coord_status(coord).figures.epoch_loss == 0);
	assert_true(isnan(fal_coord_epoch_loss(coord, 1, &sums)));
	assert_true(fal_coord_epoch_loss(coord, 2, &sums) == 0);
}

static void
refuses_metrics(const double *metric, size_t bytes, const char *why)
{
	const struct standin_task t = { 0, 0, 0, none, FAL_KIND_GRAD };
	struct fal_msg m = standin_claim(&t, 1, false);
	m.claim.metrics = (struct fal_tail){ (const uint8_t *)metric, bytes };
	check(tell(1, &m), FAL_EINVAL, why);
}

/* Metrics are added in the order of tasks; one that is not known makes the sum unknown.
 * Another number of metrics, and numbers beyond the bound, are refused. */
static void
test_metrics(void **state)
{
	const double bad[] = { 1, (double)INFINITY, -2e30, 1 };
	(void)state;
	metric_names = (struct fal_metric_names){ 2, { "a", "b" } };
	epochs = 2;
	check(begin_job(0, 4, 0), 0, "begin");
	refuses_metrics(NULL, 0, "none");
	refuses_metrics(bad, 8, "too few");
	refuses_metrics(bad, 15, "half a number");
	refuses_metrics(bad, 24, "too many");
	refuses_metrics(bad, 16, "infinite");
	refuses_metrics(bad + 2, 16, "too large");
	train_round(0);
	hole = (double)NAN;
	train_round(1);
	hole = 0;
	const struct fal_metrics clock = fal_coord_status(coord).figures.metrics.clock;
	assert_true(clock.samples == 4 * TASK && clock.sum[0] == 0 + 1 + 2 + 3);
	assert_true(isnan(clock.sum[1]));
	fal_coord_epoch_loss(coord, 1, &sums);
	assert_true(sums.samples == 8 * TASK && sums.sum[0] == 12 && isnan(sums.sum[1]));
	train_round(2);
	train_round(3);
	fal_coord_epoch_loss(coord, 2, &sums);
	const double thirds = 1 / 3.0 + 2 / 3.0 + 3 / 3.0;
	assert_true(sums.sum[1] == 2 * thirds);
	fal_put_u8(&trace, '\0');
	assert_non_null(strstr((char *)trace.p, "\"metrics\":[{\"name\":\"a\",\"sum\":6},"
						"{\"name\":\"b\",\"sum\":null}]"));
	assert_non_null(strstr((char *)trace.p, "{\"name\":\"b\",\"sum\":2}"));
	trace.n--;
	metric_names.n = 0;
	epochs = 1;
}

/* No loss of an epoch is known, but a loss was known before: the losses are too large. */
static void
test_diverged_beyond(void **state)
{
	(void)state;
	guess = 1;
	epochs = 4;
	check(begin_job(0, 4, 0), 0, "begin");
	loss_of[1] = loss_of[2] = TASK;
	train_round(0);
	check(fal_coord_status(coord).failed, 0, "failed");
	loss_of[1] = loss_of[2] = TASK * FAL_LOSS_MAX;
	train_round(1);
	guess = loss_of[1] = loss_of[2] = 0;
	epochs = 1;
	check(fal_coord_status(coord).failed, 1, "failed");
}

/* An epoch is judged by its own tasks, though tasks of the next epoch are done before. */
static void
test_diverged_under_slack(void **state)
{
	(void)state;
	guess = 1;
	epochs = 4;
	check(begin_job(1, 4, 0), 0, "begin");
	loss_of[1] = loss_of[2] = TASK;
	train_round(0);
	loss_of[1] = loss_of[2] = 0;
	train_round(2);
	loss_of[1] = loss_of[2] = 5 * TASK;
	train_round(1);
	const struct fal_coord_status s = fal_coord_status(coord);
	assert_true(fal_coord_epoch_loss(coord, 1, &sums) == 1);
	assert_true(fal_coord_epoch_loss(coord, 2, &sums) == 5);
	assert_true(isnan(fal_coord_epoch_loss(coord, 0, &sums)));
	assert_true(isnan(fal_coord_epoch_loss(coord, 3, &sums)));
	guess = loss_of[1] = loss_of[2] = 0;
	epochs = 1;
	check((int64_t)s.figures.epoch, 2, "epochs");
	assert_true(s.figures.epoch_loss == 5);
	assert_true(s.failed);
	assert_non_null(strstr(s.why, "diverged"));
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
#define LOCAL_TEST(f) cmocka_unit_test_setup_teardown(f, begin_local, end)
#define ROUND_TEST(f) cmocka_unit_test_teardown(f, end)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_diverged, end),
		ROUND_TEST(stepped_ahead_of_reports),
		ROUND_TEST(test_loss_unknown),
		ROUND_TEST(test_metrics),
		ROUND_TEST(test_diverged_beyond),
		ROUND_TEST(test_diverged_under_slack),
		TEST(half_a_push),
		TEST(rubbish_behind_the_last_block),
		TEST(failed_is_not_done),
		TEST(lines_in_order),
		LOCAL_TEST(divergence_ends_the_job),
		LOCAL_TEST(divergence_of_the_last_worker),
		TEST(divergence_without_local_steps),
		TEST(pushes_that_do_not_fit),
		TEST(evaluations_that_do_not_fit),
		TEST(order_of_a_session),
		TEST(names_that_are_none),
		TEST(names_belong_to_processes),
		TEST(sessions_of_a_process_that_cross),
		TEST(odd_probes),
		TEST(after_leaving),
		ROUND_TEST(rounds_on_two_versions),
		ROUND_TEST(pushes_after_the_round),
		ROUND_TEST(answers_belong_to_their_accounts),
		ROUND_TEST(answers_from_far),
		ROUND_TEST(rows_of_worked_are_judged),
		ROUND_TEST(nobody_waits_longer_than_the_job_runs),
		ROUND_TEST(newcomers_get_older_versions),
		ROUND_TEST(lies),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
