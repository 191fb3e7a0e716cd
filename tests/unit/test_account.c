/* What the sessions of a key may cost, and when a worker tries again. */
#include "../../cmd/falcon-ps/account.c" /* the program's own, not of the library */
#include "../../cmd/falcon-work/retry.c"
#include "cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct ps_account v[PS_ACCOUNTS];

static unsigned
comes(const char *key, double now, unsigned n)
{
	unsigned in = 0;
	while (n-- > 0)
		in += ps_account_comes(ps_account_find(v, key, "", now));
	return in;
}

static void
comings(void **state)
{
	(void)state;
	memset(v, 0, sizeof(v));
	assert_int_equal(comes("a", 5, 1000), PS_COMINGS);
	assert_int_equal(comes("b", 5, 10), 10);
	assert_int_equal(comes("a", 5 + 3 * PS_COMING_S, 1000), 3);
	/* Who worked and stayed is not counted. */
	ps_account_forgive(ps_account_find(v, "a", "", 5 + 3 * PS_COMING_S));
	assert_int_equal(comes("a", 5 + 3 * PS_COMING_S, 1000), 1);
	/* A source is told apart where it is given. */
	assert_true(ps_account_comes(ps_account_find(v, "a", "10.0.0.1", 40)));
	/* A day of it. */
	unsigned in = 0;
	for (double t = 100; t < 100 + 86400; t += 0.5)
		in += comes("c", t, 4);
	assert_in_range(in, 8640, 8640 + PS_COMINGS);
}

static void
data_again(void **state)
{
	uint64_t n = 0;
	(void)state;
	memset(v, 0, sizeof(v));
	for (double t = 0; t < 100; t += 0.01)
		if (ps_account_again(ps_account_find(v, "a", "", t), 1 << 20))
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
		in += comes(key, 1, PS_COMINGS);
	}
	assert_int_equal(in, PS_ACCOUNTS * PS_COMINGS);
}

/* Pauses of one who is in for `stays` ns each time: the last of n. */
static uint64_t
pause_of(uint64_t stays, unsigned n)
{
	struct retry r = { .began = 1, .give_up = UINT64_MAX };
	uint64_t now = 1, ms = 0;
	while (n-- > 0) {
		retry_reached(&r, now);
		now += stays;
		assert_int_equal(retry_verdict(&r, FAL_OK, now), -1);
		assert_true(retry_is_first(&r));
		ms = retry_pause_ms(&r);
		now += ms * 1000000;
	}
	return ms;
}

static void
pauses(void **state)
{
	(void)state;
	assert_in_range(pause_of(1, 20), PAUSE_MAX_MS / 2, PAUSE_MAX_MS);
	assert_in_range(pause_of(UINT64_C(60000000000), 20), PAUSE_MS / 2, PAUSE_MS);
	/* Who was sent away for later keeps trying, and says so once. */
	struct retry r = { .began = 1, .give_up = UINT64_C(3600000000000) };
	for (uint64_t s = 1; s < 3600; s += 30) {
		retry_later(&r);
		assert_int_equal(retry_verdict(&r, FAL_OK, s * 1000000000), -1);
		assert_int_equal(retry_is_first(&r), s == 1);
		retry_pause_ms(&r);
	}
	assert_int_equal(retry_verdict(&r, FAL_OK, UINT64_C(3602000000000)),
			 FAL_EXIT_TEMPFAIL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comings),
		cmocka_unit_test(data_again),
		cmocka_unit_test(crowds),
		cmocka_unit_test(pauses),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
