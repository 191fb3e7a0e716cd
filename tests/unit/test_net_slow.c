/* Channels over a slow line: what comes is the same, in the same order, but later. */
#include "base/rng.h"
#include "net/link.h"
#include "test_net.h"

#include <signal.h>

#define MS UINT64_C(1000000)

static uint64_t
constant(void *arg, uint64_t now)
{
	(void)now;
	return *(const uint64_t *)arg;
}

/* Each is a millisecond less than the one before, down to nothing. */
static uint64_t
falling(void *arg, uint64_t now)
{
	uint64_t *ns = arg;
	(void)now;
	if (*ns > 0)
		*ns -= MS;
	return *ns;
}

/* Client 0 over `link`, and its first message. */
static void
meet_over(struct world *w, const struct fal_link *link)
{
	begin(w, (struct fal_listen_opt){ 0 });
	const struct fal_addr at = addr("%s", fal_listen_addr_text(w->l));
	dial_as(w, 0, &at, client_key("lab", 2, 1),
		(struct fal_chan_opt){ .link = link });
	SEND(&w->client[0], 'h');
	UNTIL(w, w->server[0].msgs == 1);
}

static void
no_sooner(const char *what, uint64_t begun, uint64_t ns)
{
	const uint64_t took = uv_hrtime() - begun;
	if (took < ns)
		fail_msg("%s: after %g ms, not %g", what, (double)took * 1e-6,
			 (double)ns * 1e-6);
}

static void
delays_both_ways(void **state)
{
	uint64_t delay = 30 * MS;
	const struct fal_link link = { 0, constant, &delay, NULL };
	struct world w;
	(void)state;
	uint64_t begun = uv_hrtime();
	meet_over(&w, &link);
	no_sooner("three messages of a handshake", begun, 90 * MS);
	struct end *c = &w.client[0], *s = &w.server[0];
	const double rtt = fal_chan_rtt(s->c);
	if (rtt < 0.06 || rtt > 6)
		fail_msg("a handshake's round trip of %g s, not 0.06", rtt);
	begun = uv_hrtime();
	SEND(c, 'a');
	UNTIL(&w, s->msgs == 2);
	no_sooner("up", begun, 30 * MS);
	begun = uv_hrtime();
	SEND(s, 'b');
	UNTIL(&w, c->msgs == 1);
	no_sooner("down", begun, 30 * MS);
	end(&w);
}

static void
keeps_the_order(void **state)
{
	uint64_t delay = 100 * MS;
	const struct fal_link link = { 0, falling, &delay, NULL };
	struct world w;
	(void)state;
	meet_over(&w, &link);
	struct end *c = &w.client[0], *s = &w.server[0];
	for (unsigned i = 0; i < 26; i++) {
		SEND(c, (char)('a' + i));
		SEND(s, (char)('A' + i));
		/* A batch of its own. */
		uv_run(&w.loop, UV_RUN_NOWAIT);
		uv_run(&w.loop, UV_RUN_NOWAIT);
	}
	UNTIL(&w, s->msgs == 27 && c->msgs == 26);
	assert_string_equal(s->log, "habcdefghijklmnopqrstuvwxyz");
	assert_string_equal(c->log, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
	end(&w);
}

static void
has_a_bandwidth(void **state)
{
	uint64_t delay = 0;
	const struct fal_link link = { 10e6, constant, &delay, NULL };
	struct world w;
	(void)state;
	meet_over(&w, &link);
	struct end *c = &w.client[0], *s = &w.server[0];
	uint64_t begun = uv_hrtime();
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(send_bytes(c, 'u', 60000, FAL_SEND_BULK), 0);
	UNTIL(&w, s->msgs == 51);
	no_sooner("3 MB up", begun, 300 * MS);
	begun = uv_hrtime();
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(send_bytes(s, 'd', 60000, FAL_SEND_BULK), 0);
	UNTIL(&w, c->msgs == 50);
	no_sooner("3 MB down", begun, 300 * MS);
	assert_int_equal(c->bytes, 3000000);
	end(&w);
}

/* And client 1. */
static void
meet_two(struct world *w, const struct fal_link *link)
{
	meet_over(w, link);
	const struct fal_addr at = addr("%s", fal_listen_addr_text(w->l));
	dial_as(w, 1, &at, client_key("lab", 2, 1),
		(struct fal_chan_opt){ .link = link });
	SEND(&w->client[1], 'h');
	UNTIL(w, w->server[1].msgs == 1);
}

/* Two that share one: together they are as fast as it is. */
static void
shares_a_line(void **state)
{
	uint64_t busy = 0;
	const struct fal_link link = { .bandwidth = 10e6, .shared = &busy };
	struct world w;
	(void)state;
	meet_two(&w, &link);
	const uint64_t begun = uv_hrtime();
	for (unsigned i = 0; i < 25; i++)
		for (int k = 0; k < 2; k++)
			assert_int_equal(send_bytes(&w.client[k], 'u', 60000,
						    FAL_SEND_BULK),
					 0);
	UNTIL(&w, w.server[0].msgs == 26 && w.server[1].msgs == 26);
	no_sooner("1.5 MB by each", begun, 300 * MS);
	end(&w);
}

/* And none of them has all of it: what both are sent at once comes to both at the end,
 * but for a piece of either. */
static void
takes_turns(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 3; seed++) {
		struct fal_rng rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
		const uint32_t n = 20000 + fal_rng_below(&rng, 40001);
		const double rate = 4e5 + fal_rng_below(&rng, 1000000);
		uint64_t busy = 0;
		const struct fal_link link = { .bandwidth = rate, .shared = &busy };
		struct world w;
		char what[64];
		meet_two(&w, &link);
		const uint64_t begun = uv_hrtime();
		for (int k = 0; k < 2; k++)
			assert_int_equal(send_bytes(&w.client[k], 'u', n, FAL_SEND_BULK),
					 0);
		UNTIL(&w, w.server[0].msgs == 2 || w.server[1].msgs == 2);
		snprintf(what, sizeof(what), "seed %d: the first of two of %u bytes",
			 (int)seed, n);
		no_sooner(what, begun, (uint64_t)((2 * n - 10000) / rate * 1e9));
		end(&w);
	}
}

/* What is offered is before all that others are sent later, on a line that is shared,
 * too: a word, and another one while the line has the first. */
static void
offers_in_order(void **state)
{
	uint64_t busy = 0;
	const struct fal_link link = { .bandwidth = 1e6, .shared = &busy };
	struct world w;
	(void)state;
	meet_two(&w, &link);
	for (int k = 0; k < 2; k++) {
		SEND(&w.client[0], 'w');
		fal_chan_write_now(w.client[0].c);
	}
	assert_int_equal(send_bytes(&w.client[1], 'b', 60000, FAL_SEND_BULK), 0);
	UNTIL(&w, w.server[1].msgs == 2);
	assert_int_equal(w.server[0].msgs, 3);
	end(&w);
}

static void
lets_control_pass(void **state)
{
	uint64_t delay = 5 * MS;
	const struct fal_link link = { 20e6, constant, &delay, NULL };
	const unsigned bulk = 150; /* 9 MB */
	struct world w;
	(void)state;
	meet_over(&w, &link);
	struct end *c = &w.client[0], *s = &w.server[0];
	for (unsigned i = 0; i < bulk; i++)
		assert_int_equal(send_bytes(c, 'b', 60000, FAL_SEND_BULK), 0);
	UNTIL(&w, s->msgs > 20);
	SEND(c, 'c');
	UNTIL(&w, s->msgs == bulk + 2);
	const char *at = memchr(s->log, 'c', s->msgs);
	assert_non_null(at);
	if (at - s->log > bulk / 2)
		fail_msg("control came as number %td of %u", at - s->log, s->msgs);
	UNTIL(&w, c->drained >= 1);
	end(&w);
}

/* More than the line holds at a time, either way. */
static void
carries_much(void **state)
{
	uint64_t delay = 20 * MS;
	const struct fal_link link = { 0, constant, &delay, NULL };
	const unsigned bulk = 600; /* 36 MB */
	struct world w;
	(void)state;
	meet_over(&w, &link);
	struct end *c = &w.client[0], *s = &w.server[0];
	for (unsigned i = 0; i < bulk; i++) {
		assert_int_equal(send_bytes(c, 'u', 60000, FAL_SEND_BULK), 0);
		assert_int_equal(send_bytes(s, 'd', 60000, FAL_SEND_BULK), 0);
	}
	UNTIL(&w, s->msgs == bulk + 1 && c->msgs == bulk);
	assert_int_equal(c->bytes, bulk * 60000u);
	end(&w);
}

static void
last_words_arrive(void **state)
{
	uint64_t delay = 50 * MS;
	const struct fal_link link = { 1e6, constant, &delay, NULL };
	struct world w;
	(void)state;
	for (int client = 0; client < 2; client++) {
		meet_over(&w, &link);
		struct end *from = client ? &w.client[0] : &w.server[0];
		struct end *to = client ? &w.server[0] : &w.client[0];
		const unsigned had = to->msgs;
		for (unsigned i = 0; i < 20; i++)
			SEND(from, 'w');
		fal_chan_close(from->c);
		UNTIL(&w, from->closed == 1 && to->closed == 1);
		assert_int_equal(to->msgs, had + 20);
		assert_non_null(strstr(to->reason, "closed by the peer"));
		assert_int_equal(from->err, 0);
		assert_int_equal(to->err, 0);
		end(&w);
	}
}

static void
may_be_killed(void **state)
{
	uint64_t delay = 50 * MS;
	const struct fal_link link = { 0, constant, &delay, NULL };
	struct world w;
	(void)state;
	meet_over(&w, &link);
	struct end *c = &w.client[0], *s = &w.server[0];
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(send_bytes(c, 'b', 60000, FAL_SEND_BULK), 0);
		assert_int_equal(send_bytes(s, 'b', 60000, FAL_SEND_BULK), 0);
	}
	uv_run(&w.loop, UV_RUN_NOWAIT);
	uv_run(&w.loop, UV_RUN_NOWAIT);
	/* On a busy machine the delay may be over already. */
	const unsigned before = (unsigned)c->msgs;
	fal_chan_kill(c->c);
	c->c = NULL;
	UNTIL(&w, s->closed == 1);
	assert_int_equal(c->closed, 0);
	assert_int_equal(c->msgs, before);
	end(&w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(delays_both_ways),  cmocka_unit_test(keeps_the_order),
		cmocka_unit_test(has_a_bandwidth),   cmocka_unit_test(offers_in_order),
		cmocka_unit_test(lets_control_pass), cmocka_unit_test(carries_much),
		cmocka_unit_test(last_words_arrive), cmocka_unit_test(may_be_killed),
		cmocka_unit_test(shares_a_line),     cmocka_unit_test(takes_turns),
	};
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
