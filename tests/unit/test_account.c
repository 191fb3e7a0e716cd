/* What the sessions of a key may cost, and when a worker tries again.
 *
 * Who comes, when, and what he takes is drawn from a seed that is printed; FAL_TEST_SEED
 * gives it again. */
#include "../../cmd/falcon-ps/server.h"
#include "base/rng.h"
#include "cli/cli.h"
#include "net/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct ps_account v[PS_ACCOUNTS];
static struct fal_rng rng;

static unsigned
comes(const char *key, double now, unsigned n)
{
	unsigned in = 0;
	while (n-- > 0)
		in += ps_account_charge(ps_account_find(v, key, "", now), 1);
	return in;
}

static void
comings(void **state)
{
	(void)state;
	memset(v, 0, sizeof(v));
	assert_int_equal(comes("a", 5, 1000), PS_ARRIVALS_MAX);
	assert_int_equal(comes("b", 5, 10), 10);
	assert_int_equal(comes("a", 5 + 3 * PS_ARRIVAL_S, 1000), 3);
	/* Who worked and stayed is not counted. */
	ps_account_refund(ps_account_find(v, "a", "", 5 + 3 * PS_ARRIVAL_S));
	assert_int_equal(comes("a", 5 + 3 * PS_ARRIVAL_S, 1000), 1);
	/* A source is told apart where it is given. */
	assert_true(ps_account_charge(ps_account_find(v, "a", "10.0.0.1", 40), 1));
	/* Whoever looks once a second may do so for ever; ten of them may not. */
	unsigned looks = 0, stares = 0;
	for (unsigned i = 0; i < 86400; i++) {
		looks += ps_account_charge(ps_account_find(v, "l", "", 50 + i),
					   PS_OBSERVER_COST);
		for (int k = 0; k < 10; k++)
			stares += ps_account_charge(ps_account_find(v, "s", "", 50 + i),
						    PS_OBSERVER_COST);
	}
	assert_int_equal(looks, 86400);
	assert_in_range(stares, 86400, 86400 + 10 * PS_ARRIVALS_MAX);
	/* A day of it. */
	unsigned in = 0;
	for (double t = 1e5; t < 1e5 + 86400; t += 0.5)
		in += comes("c", t, 4);
	assert_in_range(in, 8640, 8640 + PS_ARRIVALS_MAX);
}

static void
data_again(void **state)
{
	uint64_t n = 0;
	(void)state;
	memset(v, 0, sizeof(v));
	for (double t = 0; t < 100; t += 0.01)
		if (ps_account_charge_reread(ps_account_find(v, "a", "", t), 1 << 20))
			n += 1 << 20;
	assert_in_range(n, 100 << 20, 102 << 20);
}

/* However many there are, all together have what the table has. */
static void
crowds(void **state)
{
	char key[FAL_KEY_FINGERPRINT + 1];
	unsigned in = 0;
	(void)state;
	memset(v, 0, sizeof(v));
	for (unsigned i = 0; i < 2 * PS_ACCOUNTS; i++) {
		snprintf(key, sizeof(key), "%x", i);
		in += comes(key, 1, PS_ARRIVALS_MAX);
	}
	assert_int_equal(in, PS_ACCOUNTS * PS_ARRIVALS_MAX);
}

enum { CASES = 300, EVENTS = 600, KEYS = 6, CHUNK = PS_REREAD_MAX / 2 };

/* What a key was let have, in order of time. */
struct had {
	double at[EVENTS], much[EVENTS];
	unsigned n;
};

/* In no stretch of time has it more than there is at once and what has grown back. */
static void
bounded(const struct had *h, double at_once, double rate, const char *what)
{
	for (unsigned i = 0; i < h->n; i++) {
		double sum = 0;
		for (unsigned k = i; k < h->n; k++) {
			sum += h->much[k];
			const double s = h->at[k] - h->at[i], most = at_once + s * rate;
			if (sum > most * (1 + 1e-9))
				fail_msg("%s: %g in %g s, at most %g", what, sum, s,
					 most);
		}
	}
}

/* From now and then to all at once. */
static double
draw_gap(double usual)
{
	const double u = (double)fal_rng_unit(&rng);
	return fal_rng_below(&rng, 4) == 0 ? 0 : usual * 2 * u * u;
}

static void
drawn_case(void)
{
	static struct had in[KEYS], bytes[KEYS];
	static const char *const names[KEYS] = { "a", "b", "c", "d", "e", "f" };
	const uint32_t keys = 1 + fal_rng_below(&rng, KEYS);
	const double gap = (double)fal_rng_unit(&rng) * PS_ARRIVAL_S / keys;
	double now = 1e6 * (double)fal_rng_unit(&rng), patient = now, fed = now;
	memset(v, 0, sizeof(v));
	memset(in, 0, sizeof(in));
	memset(bytes, 0, sizeof(bytes));
	for (unsigned i = 0; i < EVENTS; i++) {
		const uint32_t k = fal_rng_below(&rng, keys);
		const size_t n = 1 + fal_rng_below(&rng, CHUNK);
		struct ps_account *a;
		now += draw_gap(gap);
		a = ps_account_find(v, names[k], "", now);
		switch (fal_rng_below(&rng, 8)) {
		case 0: /* one of its sessions has stayed and worked */
			if (in[k].n > 0 && in[k].much[in[k].n - 1] < 1)
				break;
			ps_account_refund(a);
			if (in[k].n > 0)
				in[k].n--;
			break;
		case 1:
		case 2:
		case 3:
			if (ps_account_charge_reread(a, n)) {
				bytes[k].at[bytes[k].n] = now;
				bytes[k].much[bytes[k].n++] = (double)n;
			}
			break;
		default:
			for (uint32_t more = fal_rng_below(&rng, 9); more > 0; more--) {
				const double cost = fal_rng_below(&rng, 4) == 0
							    ? PS_OBSERVER_COST
							    : 1;
				if (!ps_account_charge(a, cost) || in[k].n == EVENTS)
					break;
				in[k].at[in[k].n] = now;
				in[k].much[in[k].n++] = cost;
			}
		}
		/* Who keeps to the rates is never refused, whatever others do. */
		if (now >= patient) {
			a = ps_account_find(v, "patient", "", now);
			assert_true(ps_account_charge(a, 1));
			patient = now + PS_ARRIVAL_S;
		}
		if (now >= fed) {
			a = ps_account_find(v, "patient", "", now);
			assert_true(ps_account_charge_reread(a, n));
			fed = now + (double)n / PS_REREAD_PER_S;
		}
	}
	for (uint32_t k = 0; k < keys; k++) {
		bounded(&in[k], PS_ARRIVALS_MAX, 1. / PS_ARRIVAL_S, "comings");
		bounded(&bytes[k], PS_REREAD_MAX, PS_REREAD_PER_S, "bytes");
	}
}

static void
drawn(void **state)
{
	(void)state;
	for (unsigned i = 0; i < CASES; i++)
		drawn_case();
}

/* Pauses of one who is in for `stays` ns each time: the last of n. */
static uint64_t
pause_of(uint64_t stays, unsigned n)
{
	struct fal_retry r = { .lost = 1, .give_up = UINT64_MAX };
	uint64_t now = 1, ms = 0;
	while (n-- > 0) {
		fal_retry_reached(&r, now);
		now += stays;
		assert_int_equal(fal_retry_verdict(&r, FAL_OK, now), -1);
		assert_true(fal_retry_is_first(&r));
		ms = fal_retry_pause_ms(&r, now);
		now += ms * 1000000;
	}
	return ms;
}

static void
pauses(void **state)
{
	(void)state;
	assert_in_range(pause_of(1, 20), FAL_RETRY_PAUSE_MAX_MS / 2,
			FAL_RETRY_PAUSE_MAX_MS);
	assert_in_range(pause_of(UINT64_C(60000000000), 20), FAL_RETRY_PAUSE_MS / 2,
			FAL_RETRY_PAUSE_MS);
	/* Who was sent away for later keeps trying, and says so once. */
	struct fal_retry r = { .lost = 1, .give_up = UINT64_C(3600000000000) };
	for (uint64_t s = 1; s < 3600; s += 30) {
		fal_retry_note_later(&r);
		assert_int_equal(fal_retry_verdict(&r, FAL_OK, s * 1000000000), -1);
		assert_int_equal(fal_retry_is_first(&r), s == 1);
		fal_retry_pause_ms(&r, s * 1000000000);
	}
	assert_int_equal(fal_retry_verdict(&r, FAL_OK, UINT64_C(3602000000000)),
			 FAL_EXIT_TEMPFAIL);
}

/* It is looked for as long as was said, ± a second, before it was ever reached and after,
 * whatever an attempt takes, if it is cut when it should be; the first reason is told. */
static void
gives_up_in_time(void **state)
{
	const uint64_t s = 1000000000;
	(void)state;
	for (int reached = 0; reached < 2; reached++)
		for (uint64_t give_up = 1; give_up < 3000; give_up = give_up * 3 + 4) {
			const uint64_t most = fal_rng_below(&rng, 20000);
			struct fal_retry r = { .lost = s, .give_up = give_up * s };
			uint64_t now = s, told = 0;
			if (reached)
				fal_retry_reached(&r, now);
			while (fal_retry_verdict(&r, FAL_EIO, now) < 0) {
				told += fal_retry_is_first(&r);
				now += fal_retry_pause_ms(&r, now) * 1000000;
				now += fal_retry_limit_ms(&r, now, most) * 1000000;
			}
			assert_int_equal(told, 1);
			assert_in_range(now - s, give_up * s,
					(give_up + 1) * s + s / 100);
		}
	struct fal_retry r = { .lost = s };
	assert_int_equal(fal_retry_verdict(&r, FAL_EIO, UINT64_MAX), -1);
	assert_int_equal(fal_retry_limit_ms(&r, UINT64_MAX, 7777), 7777);
}

/* A key that was taken once is not refused by who says nothing, as a tunnel does whose
 * other end is not there; but by who answers with another one. */
static void
silences(void **state)
{
	const uint64_t s = 1000000000;
	(void)state;
	for (int reached = 0; reached < 2; reached++)
		for (int proven = 0; proven < 2; proven++) {
			struct fal_retry r = { .lost = 1, .give_up = 60 * s };
			const int err = proven ? FAL_EAUTH : FAL_EPERM;
			const int in_the_end =
				reached && !proven ? FAL_EXIT_TEMPFAIL : FAL_EXIT_NOPERM;
			uint64_t now = s, last;
			int code = -1;
			if (reached)
				fal_retry_reached(&r, now);
			if (reached) { /* by a crash */
				fal_retry_verdict(&r, FAL_EIO, now);
				assert_true(fal_retry_is_first(&r));
				fal_retry_pause_ms(&r, now);
			}
			unsigned said = 0;
			for (last = now; code < 0;
			     now += fal_retry_pause_ms(&r, now) * 1000000) {
				code = fal_retry_verdict(&r, err, last = now);
				said += reached && fal_retry_is_first(&r);
			}
			assert_int_equal(said, reached);
			assert_int_equal(code, in_the_end);
			if (code == FAL_EXIT_TEMPFAIL)
				assert_in_range(last, 61 * s, 91 * s);
			else
				assert_in_range(last, 4 * s, 6 * s);
		}
}

/* Silence is another reason than before, also if there was some before it was reached:
 * that was told of as a refusal. */
static void
silent_twice(void **state)
{
	const uint64_t s = 1000000000;
	struct fal_retry r = { .lost = 1, .give_up = 60 * s };
	(void)state;
	assert_int_equal(fal_retry_verdict(&r, FAL_EPERM, s), -1);
	fal_retry_pause_ms(&r, s);
	fal_retry_note_later(&r);
	assert_int_equal(fal_retry_verdict(&r, FAL_OK, 2 * s), -1);
	fal_retry_pause_ms(&r, 2 * s);
	assert_false(fal_retry_is_first(&r));
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(fal_retry_verdict(&r, FAL_EPERM, (3 + i) * s), -1);
		assert_int_equal(fal_retry_is_first(&r), i == 0);
		fal_retry_pause_ms(&r, (3 + i) * s);
	}
}

int
main(void)
{
	const char *text = getenv("FAL_TEST_SEED");
	const uint64_t seed =
		text != NULL ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comings),      cmocka_unit_test(data_again),
		cmocka_unit_test(crowds),       cmocka_unit_test(drawn),
		cmocka_unit_test(pauses),       cmocka_unit_test(silences),
		cmocka_unit_test(silent_twice), cmocka_unit_test(gives_up_in_time),
	};
	rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	print_message("# seed %llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
