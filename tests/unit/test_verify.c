/* The coordinator that has claims computed once more by another key: what is asked, told
 * and counted, of who is honest, lies, denies, hangs, or is alone. */
#include "base/rng.h"
#include "test_coord.h"
#include "wire/bfp.h"

#include <math.h>
#include <stdlib.h>

enum { N = 5, CLOCKS = 20, TASKS = 6, TASK = 2 };

static uint32_t seq;
static struct fal_rng rng;
static struct session {
	struct standin is;
	bool here, closed;
	/* Of its tasks: so many of a thousand come out wrong; all checks do; none are
	 * answered; all are not finite. */
	uint32_t wrong;
	bool lies, mute, denies;
} session[SESSIONS + 1];
static struct racked_tickets tickets;
static uint32_t told;     /* unlike results, */
static uint32_t named[2]; /* … and whose the last were, by the numbers in their names */

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
on_unlike(void *arg, const struct fal_coord_mismatch *u)
{
	(void)arg;
	told++;
	for (int i = 0; i < 2; i++)
		named[i] = (uint32_t)atoi(u->name[i] + 1);
}

static void
begin_job(const char *scheme, double verify, bool stops, uint64_t seed)
{
	const struct fal_coord_ops ops = { .send = on_send,
					   .model = racked_no_model,
					   .close = on_close,
					   .unlike = on_unlike };
	struct fal_coord_conf conf = { .grid = { .samples = CLOCKS * TASKS * TASK,
						 .batch = TASKS * TASK,
						 .task = TASK,
						 .epochs = 1 },
				       .params = N,
				       .entropy = seed,
				       .task_hashes = true,
				       .verify = verify,
				       .verify_stop = stops,
				       .min_workers = 1 };
	conf.schedule.lr = 0.1;
	tickets.n = 0;
	begin_scheme(scheme, conf, ops);
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
	told = 0;
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
	const struct session *s = &session[peer];
	struct fal_msg m = standin_checked(t);
	m.checked.nonfinite = s->denies;
	if (!s->denies)
		hash_of(t, s->lies ? peer : 0, m.checked.hash);
	check(tell(peer, &m), 0, "CHECKED");
}

/* The exponent of a version, as whoever has pulled it keeps it.  False: it is not there
 * yet. */
static bool
version_exps(uint64_t version, int8_t exps[static 1])
{
	static int8_t kept[8 * CLOCKS];
	static bool there[8 * CLOCKS];
	assert_true(version < 8 * CLOCKS);
	if (version == 0 && fal_coord_status(coord).version == 0)
		memset(there, 0, sizeof(there)); /* another job */
	for (uint64_t v = 0; v <= fal_coord_status(coord).version; v++)
		there[v] |= !there[v] && racked_exps(&job, v, &kept[v]);
	exps[0] = kept[version];
	return there[version];
}

static void
compute(uint32_t peer, const struct standin_task *t)
{
	struct session *s = &session[peer];
	const bool wrong = fal_rng_below(&rng, 1000) < s->wrong;
	struct fal_msg_ticket is;
	struct fal_buf records = { 0 };
	int8_t exps[1] = { 0 };
	struct fal_msg m = standin_claim(t, ++seq, true);
	hash_of(t, wrong ? peer : 0, m.claim.hash);
	check(tell(peer, &m), 0, "CLAIM");
	if (!racked_ticket(&tickets, peer, t->round, m.claim.seq, &is))
		return;
	if (is.kind == FAL_KIND_GRAD)
		assert_true(version_exps(t->version, exps));
	check(standin_zeros(N, is.kind, exps, &records), 0, "zeros");
	m = standin_push(&is, &records);
	check(tell(peer, &m), 0, "PUSH");
	fal_buf_free(&records);
}

/* Runs the next of what the session holds, checks first. */
static bool
work(uint32_t peer)
{
	struct session *s = &session[peer];
	int8_t exps[1];
	for (uint32_t i = 0; i < 2 * s->is.helds && s->here && !s->closed; i++) {
		const uint32_t at = i % s->is.helds;
		const bool is = s->is.held[at].kind == FAL_KIND_CHECK;
		if (is != (i < s->is.helds) || (is && s->mute) ||
		    !version_exps(s->is.held[at].version, exps))
			continue;
		const struct standin_task t = standin_take(&s->is, at);
		if (is)
			answer(peer, &t);
		else
			compute(peer, &t);
		return true;
	}
	return false;
}

static void
finish(void)
{
	for (uint32_t i = 0; i < 100000 && !fal_coord_status(coord).done &&
			     !fal_coord_status(coord).failed;
	     i++) {
		bool any = false;
		now += 1e-3;
		for (uint32_t p = 1; p <= SESSIONS; p++)
			any |= work(p);
		if (any)
			continue;
		now = fmax(now, fal_coord_next_deadline(coord));
		check(fal_coord_tick(coord, now), 0, "tick");
	}
	if (!fal_coord_status(coord).done && !fal_coord_status(coord).failed) {
		printf("%s", (const char *)trace.p);
		fail_msg("the job takes for ever");
	}
	racked_finish(&job, now, NULL);
	audited();
}

/* Claims that were asked about, and came out equal, or unlike: what the trace counts. */
static void
count_verified(uint32_t sum[static 3])
{
	static const char key[] = "\"verified\":[";
	unsigned v[3];
	memset(sum, 0, 3 * sizeof(*sum));
	fal_put_u8(&trace, 0);
	trace.n--;
	for (const char *at = (const char *)trace.p; (at = strstr(at, key)) != NULL;) {
		at += strlen(key);
		check(sscanf(at, "%u,%u,%u]", &v[0], &v[1], &v[2]), 3, "counts");
		for (int i = 0; i < 3; i++)
			sum[i] += v[i];
	}
}

/* Nobody is charged, or gone, whatever was told. */
static void
nothing_followed(void)
{
	check(lines("\"ev\":\"charge\""), 0, "charged");
	for (uint32_t p = 1; p <= 3; p++)
		check(session[p].closed, 0, "gone");
}

static void
honest_ones_agree(void **state)
{
	(void)state;
	static const char *const schemes[] = { "bsp", "epsp",  "epsp:2",
					       "asp", "ssp:1", "flexrr:1" };
	for (size_t k = 0; k < sizeof(schemes) / sizeof(schemes[0]); k++) {
		uint32_t n[3];
		begin(NULL);
		begin_job(schemes[k], 1, false, k);
		for (uint32_t p = 1; p <= 3; p++)
			come(p);
		finish();
		count_verified(n);
		printf("# %s: %u asked, %u equal\n", schemes[k], n[0], n[1]);
		check(told + n[2], 0, schemes[k]);
		check(n[0] >= CLOCKS * TASKS, 1, "all are asked about");
		check(k >= 3 || n[1] > n[0] / 3, 1, "many are answered");
		nothing_followed();
		end(NULL);
	}
	begin_job("bsp", 0, false, 1);
}

/* Alone, of other numerics, impure, or of the same key: nobody to compare with. */
static void
nobody_to_ask(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < 4; k++) {
		uint32_t n[3];
		begin(NULL);
		begin_job("bsp", 1, false, k);
		fingerprint[2] = k == 1 ? 2 : k == 2 ? 0 : 1;
		fingerprint[1] = k == 2 ? 0 : 1;
		session[1].wrong = 1000;
		come(1);
		session[2].here = k > 0;
		if (k > 0)
			check(join_as(2, k == 3 ? 1 : 2), 0, "HELLO");
		finish();
		count_verified(n);
		check(told, 0, "unlike");
		check(n[0], k == 2 ? 0 : CLOCKS * TASKS, "asked");
		check(n[1] + n[2], 0, "answered");
		end(NULL);
	}
	begin_job("bsp", 0, false, 1);
}

/* Each answered check of a wrong claim tells, among three keys as among two; and so does
 * a check that is wrong, or not finite. */
static void
unlike_results_are_told(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < 8; k++) {
		const uint32_t keys = 2 + k % 2;
		uint32_t n[3];
		begin(NULL);
		begin_job(k < 4 ? "epsp" : "bsp", 1, false, k);
		session[1].wrong = k % 4 < 2 ? 300 : 0;
		session[1].lies = k % 4 == 2;
		session[1].denies = k % 4 == 3;
		for (uint32_t p = 1; p <= keys; p++)
			come(p);
		finish();
		count_verified(n);
		check(told > 0, 1, "told");
		check(n[2], told, "counted");
		check(lines("\"ev\":\"verify\""), told, "in the trace");
		check(named[0] != named[1] && (named[0] == 1 || named[1] == 1), 1,
		      "who is named");
		check(named[k % 4 < 2 ? 0 : 1], 1, "the claim's, and the check's");
		nothing_followed();
		end(NULL);
	}
	begin_job("bsp", 0, false, 1);
}

/* Whoever does not answer holds nothing up, and is no suspect. */
static void
a_check_without_an_answer_ends(void **state)
{
	(void)state;
	uint32_t n[3];
	begin_job("epsp", 1, false, 1);
	session[2].mute = true;
	come(1);
	come(2);
	finish();
	count_verified(n);
	check(n[0] > n[1] && n[1] > 0, 1, "some unanswered");
	check(n[2] + told, 0, "unlike");
	check(lines("\"ev\":\"suspect\""), 0, "suspected");
	nothing_followed();
}

static void
unlike_results_end_the_job(void **state)
{
	(void)state;
	for (int stops = 0; stops < 2; stops++) {
		begin(NULL);
		begin_job("bsp", 1, stops, 1);
		session[1].wrong = 100;
		come(1);
		come(2);
		finish();
		check(fal_coord_status(coord).failed, stops, "failed");
		check(lines("verify.stop"), stops, "why");
		end(NULL);
	}
	begin_job("bsp", 0, false, 1);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(honest_ones_agree),          TEST(nobody_to_ask),
		TEST(unlike_results_are_told),    TEST(a_check_without_an_answer_ends),
		TEST(unlike_results_end_the_job),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
