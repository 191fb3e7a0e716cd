/* The coordinator among workers that break the protocol: it refuses them, and what it has
 * counted of theirs stays true in its trace. */
#include "base/err.h"
#include "peer/coord.h"
#include "store/store.h"
#include "trace/audit.h"
#include "trace/reader.h"
#include "wire/bfp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N = FAL_BLOCK + 5, TEST_SAMPLES = 3, TASK = 2 };

static struct fal_coord *coord;
static struct fal_buf trace;
static struct fal_diag diag;
static uint32_t verdicts;

static void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld (%s)", what, (long long)got,
			 (long long)want, diag.text);
}

static void
on_send(void *arg, uint32_t peer, const struct fal_buf *msg)
{
	struct fal_msg m;
	(void)arg;
	(void)peer;
	check(fal_msg_get(msg->p, msg->n, &m), 0, "parse what was sent");
	verdicts += m.type == FAL_MSG_VERDICT && m.verdict.won;
}

static void
on_model(void *arg, uint32_t peer, bool eval, bool keep)
{
	(void)arg;
	(void)peer;
	(void)eval;
	(void)keep;
}

static void
on_close(void *arg, uint32_t peer, const char *why)
{
	(void)arg;
	(void)peer;
	(void)why;
}

static void
on_trace(void *arg, const char *line, size_t n)
{
	(void)arg;
	fal_put_bytes(&trace, line, n);
	fal_put_u8(&trace, '\n');
}

static int
tell(uint32_t peer, const struct fal_msg *m)
{
	diag.text[0] = '\0';
	return fal_coord_msg(coord, 0.5, peer, m, &diag);
}

static void
join(uint32_t peer)
{
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	m.hello.major = FAL_PROTO_MAJOR;
	snprintf(m.hello.name, sizeof(m.hello.name), "w%u", peer);
	m.hello.lanes_min = m.hello.lanes_max = m.hello.cores = 1;
	check(tell(peer, &m), 0, "HELLO");
	m = (struct fal_msg){ .type = FAL_MSG_READY };
	check(tell(peer, &m), 0, "READY");
}

/* One clock of four tasks of two samples, then an evaluation; two workers. */
static int
begin(void **state)
{
	(void)state;
	static const float init[N];
	struct fal_coord_ops ops = { NULL, on_send, on_model, on_close, on_trace };
	struct fal_coord_conf conf = { .name = "test",
				       .hash = "00",
				       .scheme = "epsp",
				       .samples = 8,
				       .test_samples = TEST_SAMPLES,
				       .batch = 8,
				       .task = TASK,
				       .epochs = 1,
				       .params = N,
				       .min_workers = 2 };
	conf.schedule.lr = 0.1;
	verdicts = 0;
	fal_buf_clear(&trace);
	if (fal_coord_new(&conf, &ops, init, 0, &coord) < 0)
		return -1;
	join(1);
	join(2);
	return 0;
}

static int
end(void **state)
{
	(void)state;
	fal_coord_free(coord);
	fal_buf_free(&trace);
	return 0;
}

static void
claim(uint32_t peer, uint32_t task, uint32_t seq, struct fal_cid fills)
{
	struct fal_msg m = { .type = FAL_MSG_CLAIM };
	uint32_t before = verdicts;
	m.claim.task = task;
	m.claim.seq = seq;
	m.claim.fills_worker = fills.worker;
	m.claim.fills_seq = fills.seq;
	m.claim.task_ns = 1000000;
	check(tell(peer, &m), 0, "CLAIM");
	check(verdicts - before, 1, "claims won");
}

/* Records of the blocks 0 … blocks-1 of a gradient of zeros, then `junk` bytes. */
static int
push(uint32_t peer, uint32_t seq, uint32_t tasks, uint32_t blocks, uint32_t junk)
{
	struct fal_msg m = { .type = FAL_MSG_PUSH };
	struct fal_sum *sum = fal_sum_new(N);
	struct fal_buf records = { 0 };
	assert_non_null(sum);
	for (uint32_t b = 0; b < blocks; b++)
		check(fal_sum_pack(sum, b, FAL_EXP_FIRST, NULL, &records), 0, "pack");
	for (uint32_t i = 0; i < junk; i++)
		fal_put_u8(&records, 0xff);
	m.push.seq = seq;
	m.push.tasks = tasks;
	m.push.kind = FAL_KIND_GRAD;
	m.push.epoch = 1;
	m.push.records = (struct fal_tail){ records.p, records.n };
	int err = tell(peer, &m);
	fal_sum_free(sum);
	fal_buf_free(&records);
	return err;
}

static int
evaluated(uint32_t peer, uint32_t task, uint32_t right, uint32_t samples, int64_t loss)
{
	struct fal_msg m = { .type = FAL_MSG_EVALUATED };
	m.evaluated.version = 1;
	m.evaluated.task = task;
	m.evaluated.right = right;
	m.evaluated.samples = samples;
	m.evaluated.loss = loss;
	m.evaluated.task_ns = 1000;
	return tell(peer, &m);
}

static void
audit(void)
{
	struct fal_audit_verdict v = { .ok = false };
	struct fal_audit *a = fal_audit_new();
	struct fal_trace_reader *r = fal_trace_reader_new(fal_audit_line, a);
	check(fal_trace_feed(r, (const char *)trace.p, trace.n, &diag), 0, "feed");
	check(fal_trace_end(r, &diag), 0, "trace");
	check(fal_audit_end(a, &v, &diag), 0, "audit");
	if (!v.ok)
		fail_msg("the audit fails: %s", v.text[0]);
	fal_trace_reader_free(r);
	fal_audit_free(a);
}

static const struct fal_cid none = { 0, 0 };

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

/* The block before the rubbish is counted, so whoever fills brings the other one only. */
static void
half_a_push(void **state)
{
	(void)state;
	claim(1, 0, 1, none);
	check(push(1, 1, 1, 1, 3), FAL_ETRUNC, "PUSH with rubbish behind a block");
	check(fal_coord_gone(coord, 0.5, 1, diag.text), 0, "gone");
	claim(2, 0, 1, (struct fal_cid){ 1, 1 });
	for (uint32_t t = 1; t < 4; t++)
		claim(2, t, 2, none);
	check(push(2, 1, 1, 2, 0), 0, "PUSH that fills");
	check((int64_t)fal_coord_status(coord).clock, 0, "clocks before the last PUSH");
	check(push(2, 2, 3, 2, 0), 0, "PUSH");
	check((int64_t)fal_coord_status(coord).clock, 1, "clocks completed");
	check(evaluated(2, 0, 1, 2, 0), 0, "EVALUATED");
	check(evaluated(2, 1, 1, 1, 0), 0, "EVALUATED");
	check(fal_coord_status(coord).done, 1, "done");
	fal_coord_finish(coord, 0.5, "00", NULL);
	audit();
}

/* Its blocks complete the clock all the same: nothing waits for a worker that is gone. */
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
	check(fal_coord_gone(coord, 0.5, 1, diag.text), 0, "gone");
	check(evaluated(2, 0, 1, 2, 0), 0, "EVALUATED");
	check(evaluated(2, 1, 1, 1, 0), 0, "EVALUATED");
	check(fal_coord_status(coord).done, 1, "done");
	fal_coord_finish(coord, 0.5, "00", NULL);
	audit();
}

/* A job whose result cannot be kept has failed, and says so to all. */
static void
failed_is_not_done(void **state)
{
	(void)state;
	train();
	fal_coord_finish(coord, 0.5, "00", "the disk is full");
	fal_put_u8(&trace, 0);
	assert_non_null(strstr((char *)trace.p, "\"ev\":\"failed\""));
	assert_null(strstr((char *)trace.p, "\"ev\":\"done\""));
}

static void
pushes_that_do_not_fit(void **state)
{
	(void)state;
	claim(1, 0, 1, none);
	claim(1, 1, 1, none);
	check(push(1, 1, 3, 2, 0), FAL_ESTATE, "more tasks than were claimed");
	check(push(1, 2, 2, 2, 0), FAL_ESTATE, "an unknown contribution");
	check(push(2, 1, 2, 2, 0), FAL_ESTATE, "another's contribution");
	check(push(1, 1, 2, 0, 0), 0, "nothing");
	check(push(1, 1, 2, 1, 0), 0, "block 0");
	check(push(1, 1, 2, 1, 0), FAL_EEXIST, "block 0 again");
}

/* Counts that are not those of the test task would make the accuracy anything. */
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
	/* A loss may be anything; it is only shown. */
	check(evaluated(1, 0, 2, 2, INT64_MAX), 0, "an absurd loss");
	check(evaluated(1, 0, 2, 2, INT64_MAX), 0, "the same again");
	check(evaluated(1, 1, 1, 1, INT64_MAX), 0, "the last");
	struct fal_coord_status s = fal_coord_status(coord);
	check(s.done, 1, "done");
	if (s.accuracy != 1.0)
		fail_msg("accuracy: got %g, want 1", s.accuracy);
}

static void
order_of_a_session(void **state)
{
	(void)state;
	struct fal_msg hello = { .type = FAL_MSG_HELLO }, m = { .type = FAL_MSG_READY };
	check(tell(1, &m), FAL_ESTATE, "a second READY");
	check(tell(9, &m), FAL_ESTATE, "READY before HELLO");
	check(tell(1, &hello), FAL_ESTATE, "a second HELLO");
	check(tell(3, &hello), FAL_EVERSION, "protocol 0");
	hello.hello.major = FAL_PROTO_MAJOR;
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
	check(fal_coord_gone(coord, 0.5, 77, "unknown"), 0, "an unknown peer is gone");
	check(fal_coord_status(coord).workers, 2, "workers");
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
	check(fal_coord_gone(coord, 0.5, 1, "closed"), 0, "gone");
	check(fal_coord_status(coord).workers, 1, "workers at the end");
	check(verdicts, 0, "claims won");
	/* What it held is the other's. */
	for (uint32_t t = 0; t < 4; t++)
		claim(2, t, 1, none);
	check(push(2, 1, 4, 2, 0), 0, "PUSH");
	check((int64_t)fal_coord_status(coord).clock, 1, "clocks completed");
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(half_a_push),
		TEST(rubbish_behind_the_last_block),
		TEST(failed_is_not_done),
		TEST(pushes_that_do_not_fit),
		TEST(evaluations_that_do_not_fit),
		TEST(order_of_a_session),
		TEST(after_leaving),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
