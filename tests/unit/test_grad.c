/* falcon-gradient(7): lines out, lines in, and seeds. */
#include "base/err.h"
#include "run/trainer_line.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int
get(const char *line, struct fal_grad_message *w)
{
	struct fal_diag diag = { "" };
	int err = fal_grad_parse(line, strlen(line), w, &diag);
	if (err < 0 && diag.text[0] == '\0')
		fail_msg("%s: refused without a word", line);
	return err;
}

static void
says(struct fal_buf *b, const char *want)
{
	fal_put_u8(b, '\0');
	assert_int_equal(b->err, 0);
	assert_string_equal((const char *)b->p, want);
	fal_buf_free(b);
}

static void
puts_lines(void **state)
{
	static const uint32_t index[] = { 7, 0, 4294967295 };
	struct fal_buf b = { 0 };
	(void)state;
	fal_grad_put_hello(&b, "a\"b", 1);
	says(&b, "{\"op\":\"hello\",\"protocol\":1,\"worker\":\"a\\\"b\",\"lane\":1}\n");
	const struct fal_grad_task t = { .id = 9,
					 .clock = 3,
					 .version = 2,
					 .edition = 6,
					 .seed = 0xabc,
					 .task = 1,
					 .params = 4224,
					 .grads = 128,
					 .count = 3,
					 .index = index };
	fal_grad_put_task(&b, &t);
	says(&b, "{\"op\":\"task\",\"id\":9,\"kind\":\"train\",\"clock\":3,\"task\":1,"
		 "\"version\":2,\"edition\":6,\"params\":4224,"
		 "\"grads\":128,"
		 "\"seed\":\"0000000000000abc\","
		 "\"count\":3,\"indices\":[7,0,4294967295]}\n");
	fal_grad_put_cancel(&b, 9);
	says(&b, "{\"op\":\"cancel\",\"id\":9}\n");
	fal_grad_put_params(&b, 2);
	says(&b, "{\"op\":\"params\",\"version\":2}\n");
	const char *buffer[] = { "m", "v" };
	const struct fal_grad_job j = { .name = "n",
					.seed = 1,
					.task = 8,
					.batch = 64,
					.train = 100,
					.test = 10,
					.buffer = buffer,
					.buffers = 2,
					.metrics = { 2, { "a", "b" } },
					.params = { 200, 128 },
					.grads = { 200, 128 } };
	fal_grad_put_job(&b, &j);
	says(&b,
	     "{\"op\":\"job\",\"name\":\"n\",\"seed\":\"0000000000000001\",\"task\":8,"
	     "\"batch\":64,\"train\":100,\"test\":10,\"buffers\":[\"m\",\"v\"],"
	     "\"metrics\":[\"a\",\"b\"],\"decay\":"
	     "false,"
	     "\"params\":{\"bytes\":200,\"data\":128},"
	     "\"grads\":{\"bytes\":200,\"data\":128}}\n");
}

static void
reads_words(void **state)
{
	struct fal_grad_message w;
	(void)state;
	assert_int_equal(get("{\"op\":\"hello\",\"protocol\":1}", &w), 0);
	assert_int_equal(w.op, FAL_GRAD_HELLO);
	assert_false(w.hello.samples || w.hello.pipes || w.hello.impure);
	assert_int_equal(get("{\"op\":\"hello\",\"protocol\":1,"
			     "\"samples\":true,\"pure\":false,\"new\":{\"a\":[1]},"
			     "\"about\":\"a\\u001b[2Jb\"}",
			     &w),
			 0);
	assert_true(w.hello.samples && w.hello.impure);
	const struct fal_grad_hello was = w.hello;
	assert_int_equal(was.train + was.test + was.data[0], 0);
	assert_int_equal(get("{\"op\":\"hello\",\"protocol\":1,"
			     "\"samples\":true,\"train\":60000,\"test\":2147483648,"
			     "\"data\":\"00112233445566778899aabbccddeeff"
			     "000000000000000000000000000000a9\"}",
			     &w),
			 0);
	assert_int_equal(w.hello.train, 60000);
	assert_int_equal(w.hello.test, UINT32_C(1) << 31);
	assert_int_equal(w.hello.data[1], 0x11);
	assert_int_equal(w.hello.data[31], 0xa9);
	assert_false(fal_grad_hello_equal(&was, &w.hello));
	struct fal_grad_hello less = w.hello;
	less.about[0] = 'x';
	assert_true(fal_grad_hello_equal(&less, &w.hello));
	less.data[31] ^= 1;
	assert_false(fal_grad_hello_equal(&less, &w.hello));
	less = w.hello;
	less.impure = true;
	assert_false(fal_grad_hello_equal(&less, &w.hello));
	w.hello = was;
	assert_null(strchr(w.hello.about, '\033'));
	assert_int_equal(get(" {\"id\":7,\"op\":\"done\",\"loss\":-1.5,\"right\":2} ",
			     &w),
			 0);
	assert_true(w.op == FAL_GRAD_DONE && w.id == 7 && w.right == 2);
	assert_true(w.loss == -1.5);
	assert_int_equal(get("{\"op\":\"done\",\"id\":7,\"loss\":null}", &w), 0);
	assert_true(isnan(w.loss) && w.n_metrics == 0 && isnan(w.metrics.sum[0]));
	assert_int_equal(get("{\"op\":\"done\",\"id\":7,\"metrics\":[3,-1.5,null,2e30,"
			     "\"4\",1e30,0,[]]}",
			     &w),
			 0);
	assert_int_equal(w.n_metrics, 8);
	assert_true(w.metrics.sum[0] == 3 && w.metrics.sum[1] == -1.5);
	assert_true(w.metrics.sum[5] == 1e30 && w.metrics.sum[6] == 0);
	assert_true(isnan(w.metrics.sum[2]) && isnan(w.metrics.sum[3]) &&
		    isnan(w.metrics.sum[4]) && isnan(w.metrics.sum[7]));
	assert_int_equal(get("{\"op\":\"fail\",\"id\":7,\"why\":\"x\"}", &w), 0);
	assert_string_equal(w.why, "x");
	assert_int_equal(get("{\"op\":\"refuse\",\"why\":\"y\"}", &w), 0);
	assert_true(w.op == FAL_GRAD_REFUSE);
	assert_string_equal(w.why, "y");
	assert_int_equal(get("{\"op\":\"cancelled\",\"id\":7}", &w), 0);
	assert_int_equal(w.op, FAL_GRAD_CANCELLED);
}

static void
refuses_words(void **state)
{
	static const struct {
		int err;
		const char *line;
	} bad[] = {
		{ FAL_EFORMAT, "" },
		{ FAL_EFORMAT, "epoch 1: loss 2.3" },
		{ FAL_EFORMAT, "[]" },
		{ FAL_EFORMAT, "{}" },
		{ FAL_EFORMAT, "{\"op\":1}" },
		{ FAL_EFORMAT, "{\"op\":\"task\",\"id\":1}" },
		{ FAL_EFORMAT, "{\"op\":\"done\",\"id\":1,\"id\":2}" },
		{ FAL_EFORMAT, "{\"op\":\"done\"}" },
		{ FAL_EFORMAT, "{\"op\":\"done\",\"id\":-1}" },
		{ FAL_EFORMAT, "{\"op\":\"done\",\"id\":1.5}" },
		{ FAL_EFORMAT, "{\"op\":\"done\",\"id\":1,\"loss\":NaN}" },
		{ FAL_EFORMAT, "{\"op\":\"done\",\"id\":1,\"loss\":\"1\"}" },
		{ FAL_ELIMIT, "{\"op\":\"done\",\"id\":1,\"right\":4294967296}" },
		{ FAL_EFORMAT, "{\"op\":\"done\",\"id\":1,\"metrics\":1}" },
		{ FAL_EFORMAT, "{\"op\":\"done\",\"id\":1,\"metrics\":{}}" },
		{ FAL_EFORMAT,
		  "{\"op\":\"done\",\"id\":1,\"metrics\":[1,2,3,4,5,6,7,8,9]}" },
		{ FAL_EFORMAT, "{\"op\":\"done\",\"id\":1,\"metrics\":[1e999]}" },
		{ FAL_EFORMAT, "{\"op\":\"done\",\"id\":1}{\"op\":\"done\",\"id\":1}" },
		{ FAL_EVERSION, "{\"op\":\"hello\"}" },
		{ FAL_EVERSION, "{\"op\":\"hello\",\"protocol\":2}" },
		{ FAL_EVERSION, "{\"op\":\"hello\",\"protocol\":1,\"train\":0}" },
		{ FAL_EVERSION, "{\"op\":\"hello\",\"protocol\":1,\"test\":-5}" },
		{ FAL_EVERSION,
		  "{\"op\":\"hello\",\"protocol\":1,\"train\":2147483649}" },
		{ FAL_EVERSION, "{\"op\":\"hello\",\"protocol\":1,\"data\":7}" },
		{ FAL_EVERSION, "{\"op\":\"hello\",\"protocol\":1,\"data\":\"ab\"}" },
		{ FAL_EVERSION,
		  "{\"op\":\"hello\",\"protocol\":1,\"data\":\"ABABABABABABABABAB"
		  "ABABABABABABABABABABABABABABABABABABABABABABAB\"}" },
		{ FAL_EVERSION, "{\"op\":\"hello\",\"protocol\":1,\"samples\":1}" },
	};
	static const char *const nul[] = {
		"{\"op\":\"fail\",\"id\":1,\"why\":\"a\\u0000b\"}",
		"{\"op\":\"hello\",\"protocol\":1,\"about\":\"\\u0000\"}",
		"{\"op\":\"done\",\"id\":1,\"\\u0000\":1}",
	};
	struct fal_grad_message w;
	(void)state;
	for (size_t i = 0; i < sizeof(nul) / sizeof(nul[0]); i++) {
		struct fal_diag diag;
		assert_int_equal(fal_grad_parse(nul[i], strlen(nul[i]), &w, &diag),
				 FAL_EFORMAT);
		assert_string_equal(diag.text, "a NUL (\\u0000) in a string");
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (get(bad[i].line, &w) != bad[i].err)
			fail_msg("%s: not refused as %d", bad[i].line, bad[i].err);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(puts_lines),
		cmocka_unit_test(reads_words),
		cmocka_unit_test(refuses_words),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
