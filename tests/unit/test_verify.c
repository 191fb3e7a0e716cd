/* The coordinator that has tasks run by two keys: whose words differ, who decides, what
 * becomes of who hangs, denies, lies or is alone. */
#include "base/rng.h"
#include "test_coord.h"
#include "wire/bfp.h"

#include <math.h>
#include <stdlib.h>

enum { N = 5, CLOCKS = 20, TASKS = 6, TASK = 2 };

static uint32_t seq;
static double step_s; /* what each session's next thing to do takes */
static struct fal_rng rng;
static struct session {
	struct standin is;
	bool here, closed;
	/* Of its tasks: so many of a thousand come out wrong; all checks do; none are
	 * answered; all are not finite. */
	uint32_t wrong;
	bool lies, mute, denies;
	/* All that it holds of a round is one contribution, which is this one by now. */
	bool joins;
	uint32_t open;
	double stands;     /* until then it does nothing at all */
	double wrong_from; /* until then none comes out wrong */
} session[SESSIONS + 1];
static struct racked_tickets tickets;
static uint32_t told[2]; /* words that differ: undecided, decided */
static uint32_t named;   /* who was wrong last, by the number in his name */

static void
on_send(void *arg, uint32_t peer, const struct fal_buf *msg)
{
	struct fal_msg m;
	(void)arg;
	check(fal_msg_get(msg->p, msg->n, &m), 0, "parse what was sent");
	assert_true(standin_told(&session[peer].is, &m));
	if (m.type == FAL_MSG_TICKET)
		racked_note(&tickets, peer, &m);
}

static void
on_close(void *arg, uint32_t peer, const char *why)
{
	(void)arg;
	(void)why;
	session[peer].closed = true;
}

static void
on_unlike(void *arg, const struct fal_coord_unlike *u)
{
	(void)arg;
	told[u->wrong < u->names]++;
	named = u->wrong < u->names ? (uint32_t)atoi(u->name[u->wrong] + 1) : 0;
}

static void
begin_job(const char *scheme, double verify, uint64_t seed)
{
	static const float init[N];
	struct fal_policy policy = { .no_clones = true };
	struct fal_coord_ops ops = { .send = on_send,
				     .model = racked_no_model,
				     .close = on_close,
				     .unlike = on_unlike,
				     .trace = on_trace };
	struct fal_coord_conf conf = { .name = "test",
				       .hash = "00",
				       .policy = &policy,
				       .policy_by = "job",
				       .grid = { .samples = CLOCKS * TASKS * TASK,
						 .batch = TASKS * TASK,
						 .task = TASK,
						 .epochs = 1 },
				       .params = N,
				       .entropy = seed,
				       .task_hashes = true,
				       .verify = verify,
				       .min_workers = 1 };
	conf.schedule.lr = 0.1;
	check(fal_rule_parse(scheme, &policy.rule, &diag), 0, "scheme");
	now = 0.5;
	tickets.n = 0;
	fal_buf_clear(&trace);
	check(racked_new(conf, ops, init, 0, &job), 0, "coordinator");
	coord = job.coord;
}

static void
come(uint32_t peer)
{
	join(peer);
	session[peer].here = true;
}

static int
begin(void **state)
{
	(void)state;
	memset(session, 0, sizeof(session));
	memset(fingerprint, 1, sizeof(fingerprint));
	memset(told, 0, sizeof(told));
	named = 0;
	step_s = 1e-3;
	rng = fal_rng_init(7, FAL_RNG_TEST, 20);
	return 0;
}

/* What comes out, or, wrong, of this one alone. */
static void
hash_of(const struct standin_task *t, uint32_t wrong, uint8_t out[static FAL_TASK_HASH])
{
	memset(out, 0, FAL_TASK_HASH);
	out[0] = 1;
	out[1] = (uint8_t)t->task;
	out[2] = (uint8_t)t->version;
	out[3] = (uint8_t)wrong;
}

static void
answer(uint32_t peer, const struct standin_task *t)
{
	static const int8_t needed[1] = { FAL_EXP_NONE };
	const struct session *s = &session[peer];
	struct fal_msg m = standin_checked(t, needed, 1);
	m.checked.nonfinite = s->denies;
	if (!s->denies)
		hash_of(t, s->lies ? peer : 0, m.checked.hash);
	check(tell(peer, &m), 0, "CHECKED");
}

/* Does it hold another task of the same round, to be computed? */
static bool
has_more(const struct session *s, const struct standin_task *t)
{
	for (uint32_t i = 0; i < s->is.helds; i++)
		if (s->is.held[i].round == t->round &&
		    s->is.held[i].kind != FAL_KIND_CHECK)
			return true;
	return false;
}

static void
compute(uint32_t peer, const struct standin_task *t)
{
	struct session *s = &session[peer];
	const bool last = !s->joins || !has_more(s, t);
	const bool wrong = now >= s->wrong_from && fal_rng_below(&rng, 1000) < s->wrong;
	struct fal_msg_ticket is;
	struct fal_buf records = { 0 };
	int8_t exps[1] = { 0 };
	struct fal_msg m = standin_claim(t, s->open != 0 ? s->open : ++seq, last);
	hash_of(t, wrong ? peer : 0, m.claim.hash);
	check(tell(peer, &m), 0, "CLAIM");
	s->open = last ? 0 : m.claim.seq;
	if (!last || !racked_ticket(&tickets, peer, t->round, m.claim.seq, &is))
		return;
	if (is.kind == FAL_KIND_GRAD)
		assert_true(racked_exps(&job, t->version, exps));
	check(standin_zeros(N, is.kind, exps, &records), 0, "zeros");
	m = standin_push(&is, &records);
	check(tell(peer, &m), 0, "PUSH");
	fal_buf_free(&records);
}

static bool
work(uint32_t peer)
{
	struct session *s = &session[peer];
	if (!s->here || s->closed || now < s->stands)
		return false;
	for (uint32_t i = 0; i < s->is.helds; i++) {
		const bool check_only = s->is.held[i].kind == FAL_KIND_CHECK;
		int8_t exps[1];
		if ((check_only && s->mute) ||
		    !racked_exps(&job, s->is.held[i].version, exps))
			continue;
		const struct standin_task t = standin_take(&s->is, i);
		if (check_only)
			answer(peer, &t);
		else
			compute(peer, &t);
		return true;
	}
	return false;
}

/* When the first that stands still goes on; infinity. */
static double
stands(void)
{
	double t = INFINITY;
	for (uint32_t p = 1; p <= SESSIONS; p++)
		if (session[p].stands > now)
			t = fmin(t, session[p].stands);
	return t;
}

static void
finish(void)
{
	for (uint32_t i = 0; i < 100000 && !fal_coord_status(coord).done; i++) {
		bool any = false;
		now += step_s;
		for (uint32_t p = 1; p <= SESSIONS; p++)
			any |= work(p);
		if (any)
			continue;
		now = fmax(now, fmin(fal_coord_wake(coord), stands()));
		check(fal_coord_tick(coord, now), 0, "tick");
	}
	if (!fal_coord_status(coord).done) {
		printf("%s", (const char *)trace.p);
		fail_msg("the job takes for ever");
	}
	racked_finish(&job, now, NULL);
	audited();
}

static void
honest_ones_agree(void **state)
{
	(void)state;
	static const char *const schemes[] = { "bsp", "epsp",  "epsp:2",
					       "asp", "ssp:1", "flexrr:1" };
	for (size_t k = 0; k < sizeof(schemes) / sizeof(schemes[0]); k++) {
		begin(NULL);
		begin_job(schemes[k], 1, k);
		for (uint32_t p = 1; p <= 3; p++)
			come(p);
		finish();
		check(told[0] + told[1], 0, schemes[k]);
		check(lines("\"ev\":\"charge\""), 0, schemes[k]);
		if (k < 3)
			check(lines("\"verified\":[[0,6]]"), CLOCKS, schemes[k]);
		end(NULL);
	}
	begin_job("bsp", 0, 1);
}

/* Alone, of other numerics, impure, or of the same key: nobody to compare with. */
static void
nobody_to_ask(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < 4; k++) {
		begin(NULL);
		begin_job("bsp", 1, k);
		fingerprint[2] = k == 1 ? 2 : k == 2 ? 0 : 1;
		fingerprint[1] = k == 2 ? 0 : 1;
		session[1].wrong = 1000;
		come(1);
		session[2].here = k > 0;
		if (k > 0)
			check(join_as(2, k == 3 ? 1 : 2), 0, "HELLO");
		finish();
		check(told[0] + told[1], 0, "differ");
		check(lines("\"verified\""), 0, "verified");
		end(NULL);
	}
	begin_job("bsp", 0, 1);
}

/* Who gets one wrong is found at once, whoever of three it is, and gone. */
static void
a_third_key_decides(void **state)
{
	(void)state;
	for (uint32_t liar = 1; liar <= 3; liar++) {
		begin(NULL);
		begin_job("epsp", 1, liar);
		session[liar].wrong = 100;
		for (uint32_t p = 1; p <= 3; p++)
			come(p);
		finish();
		check(told[1] >= 1 && told[0] == 0, 1, "decided");
		check(named, liar, "who is named");
		check(session[liar].closed, 1, "gone");
		for (uint32_t p = 1; p <= 3; p++)
			check(session[p].closed, p == liar, "who is gone");
		check(lines("\"why\":\"refuted\"") >= 1, 1, "done again");
		check(lines("\"ev\":\"charge\""), 1, "told");
		end(NULL);
	}
	begin_job("bsp", 0, 1);
}

/* Of a contribution that is taken back nobody has to decide anything more, and whose it
 * was is named. */
static void
what_is_taken_back_is_decided(void **state)
{
	(void)state;
	static const char *const schemes[] = { "bsp", "epsp", "epsp:2" };
	for (uint32_t k = 0; k < 30; k++) {
		begin(NULL);
		begin_job(schemes[k % 3], 1, k);
		session[1].wrong = 1000;
		session[1].joins = true;
		for (uint32_t p = 1; p <= 3; p++)
			come(p);
		finish();
		check(told[0], 0, schemes[k % 3]);
		check(told[1] >= 1, 1, "decided");
		check(named, 1, "who is named");
		check(lines("\"ev\":\"charge\""), 1, "told");
		end(NULL);
	}
	begin_job("bsp", 0, 1);
}

/* The third key stands still for a while, just when two do not agree: it decides when it
 * goes on. */
static void
a_third_key_is_waited_for(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < 10; k++) {
		begin(NULL);
		begin_job("epsp", 1, k);
		step_s = 0.05;
		session[1].wrong = 300;
		session[1].wrong_from = 2; /* the third is suspected by then */
		session[3].stands = 3;
		for (uint32_t p = 1; p <= 3; p++)
			come(p);
		finish();
		check(told[0], 0, "undecided");
		check(told[1] >= 1, 1, "decided");
		check(named, 1, "who is named");
		end(NULL);
	}
	begin_job("bsp", 0, 1);
}

/* Two keys: both are named, and that is all. */
static void
two_keys_cannot_tell(void **state)
{
	(void)state;
	begin_job("bsp", 1, 1);
	session[1].wrong = 100;
	come(1);
	come(2);
	finish();
	check(told[0] > 0 && told[1] == 0, 1, "undecided");
	check(lines("\"ev\":\"charge\""), 0, "charged");
	check(session[1].closed || session[2].closed, 0, "gone");
}

/* A witness that lies or denies is found by the third; one that hangs holds nothing for
 * long. */
static void
witnesses_err(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < 3; k++) {
		begin(NULL);
		begin_job("bsp", 1, k);
		session[2].lies = k == 0;
		session[2].denies = k == 1;
		session[2].mute = k == 2;
		for (uint32_t p = 1; p <= 3; p++)
			come(p);
		finish();
		check(session[2].closed, k < 2, "the witness is gone");
		check(session[1].closed || session[3].closed, 0, "others are gone");
		check(lines("\"verdict\":\"false witness\"") > 0, k < 2, "found");
		check(lines("\"verdict\":\"refuted\""), 0, "refuted");
		end(NULL);
	}
	begin_job("bsp", 0, 1);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(honest_ones_agree),
		TEST(nobody_to_ask),
		TEST(a_third_key_decides),
		TEST(two_keys_cannot_tell),
		TEST(witnesses_err),
		TEST(what_is_taken_back_is_decided),
		TEST(a_third_key_is_waited_for),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
