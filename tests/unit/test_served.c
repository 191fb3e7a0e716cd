/* The report of a process of shards about their work: written and read. */
#include "../../cmd/falcon-ps/broadcast.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MOST (UINT64_C(1) << 53)

enum { FIRST = 3, COUNT = 2 };

/* The report of the first of two shards about these bytes in and out. */
static void
said(uint64_t rx, uint64_t tx, struct fal_buf *rows, struct fal_msg *m)
{
	struct ps_shard_stats s = { .service = 5, .queue = 7 };
	s.rx[FIRST] = rx;
	s.tx[FIRST] = tx;
	s.rx[FIRST + 1] = 11;
	ps_shard_stats_put(&s, FIRST, COUNT, m, rows);
}

/* However long the process runs, its report is accepted. */
static void
there_and_back(void **state)
{
	static const uint64_t bytes[] = { 0, 1, MOST - 1, MOST, MOST + 1, UINT64_MAX };
	(void)state;
	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		const uint64_t want = bytes[i] < MOST ? bytes[i] : MOST;
		struct ps_shard_stats is = { 0 };
		struct fal_buf rows = { 0 };
		struct fal_msg m;
		said(bytes[i], bytes[5 - i], &rows, &m);
		assert_int_equal(ps_shard_stats_get(&is, FIRST, COUNT, &m), 0);
		assert_true(is.rx[FIRST] == want);
		assert_true(is.tx[FIRST] == (bytes[5 - i] < MOST ? bytes[5 - i] : MOST));
		assert_int_equal(is.rx[FIRST + 1], 11);
		assert_int_equal(is.service, 5);
		assert_int_equal(is.queue, 7);
		fal_buf_free(&rows);
	}
}

/* A report with more than a trace may have, or of more or fewer shards, is refused as a
 * whole. */
static void
lies(void **state)
{
	struct fal_msg m;
	(void)state;
	for (size_t at = 0; at < 4; at++) {
		struct ps_shard_stats is = { .service = 1 };
		struct fal_buf rows = { 0 };
		for (size_t i = 0; i < 4; i++)
			fal_put_u64(&rows, i == at ? MOST + 1 : MOST);
		m = (struct fal_msg){ .type = FAL_MSG_SERVED };
		m.served.bytes = (struct fal_tail){ rows.p, rows.n };
		assert_int_equal(ps_shard_stats_get(&is, FIRST, COUNT, &m), FAL_EFORMAT);
		assert_int_equal(is.service, 1);
		fal_buf_free(&rows);
	}
	for (uint32_t count = 0; count < 5; count++) {
		struct ps_shard_stats is = { 0 };
		struct fal_buf rows = { 0 };
		said(1, 2, &rows, &m);
		const int err = ps_shard_stats_get(&is, FIRST, count, &m);
		assert_true(count == COUNT ? err == 0 : err < 0);
		fal_buf_free(&rows);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_and_back),
		cmocka_unit_test(lies),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
