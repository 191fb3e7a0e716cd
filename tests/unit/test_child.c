/* A trainer's side of falcon-work, by its header alone: the trainer is this process,
 * which a shell's two cats bring what is said, and take what is answered, byte by byte.
 */
#include "../../cmd/falcon-work/child.h"

#include "base/rng.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEPTH = 6, FLOATS = 16 };

static struct fal_rng rng;
static char dir[] = "/tmp/test_child.XXXXXX", command[200], in[64], out[64];
static FILE *said;  /* to the trainer */
static FILE *words; /* from it */
static struct child *child;
static float params[FLOATS];
static struct child_job job;
static uint64_t ids;

/* ---- the trainer ------------------------------------------------------------------ */

/* The next line to the trainer has this text. */
static void
hear(const char *text)
{
	char line[4096];
	if (fgets(line, sizeof(line), said) == NULL)
		fail_msg("no line, but \"%s\" was to come", text);
	if (strstr(line, text) == NULL)
		fail_msg("%s is without %s", line, text);
}

/* In pieces, wherever they end. */
static void
tell(const char *text, size_t n)
{
	for (size_t some; n > 0; text += some, n -= some) {
		some = 1 + fal_rng_below(&rng, n < 40 ? (uint32_t)n : 40);
		assert_int_equal(fwrite(text, 1, some, words), some);
		assert_int_equal(fflush(words), 0);
	}
}

__attribute__((format(printf, 1, 2))) static void
say(const char *fmt, ...)
{
	char text[400];
	va_list ap;
	va_start(ap, fmt);
	const int n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	tell(text, (size_t)n);
}

/* A start of it, with its hello; `told`: and its job. */
static void
arrive(bool told)
{
	said = fopen(in, "r");
	words = fopen(out, "w");
	assert_true(said != NULL && words != NULL);
	hear("\"op\":\"hello\"");
	say("{\"op\":\"hello\",\"protocol\":1,\"depth\":%d}\n", DEPTH);
	if (told)
		hear("\"op\":\"job\"");
}

/* It says no more, and is gone. */
static void
depart(void)
{
	char rest[4096];
	fclose(words);
	while (fgets(rest, sizeof(rest), said) != NULL)
		;
	fclose(said);
}

/* ---- lanes ------------------------------------------------------------------------- */

struct lane {
	pthread_t thread;
	uint32_t slot;
	uint64_t id;
	struct child_made made;
};

static void *
run(void *arg)
{
	struct lane *l = arg;
	static const uint32_t index[] = { 7 };
	const struct child_task task = {
		.line = { .id = l->id, .slot = l->slot, .count = 1, .index = index },
		.params = params,
		.serial = 1,
		.start = child_start(child, l->slot, l->id),
	};
	if (task.start == 0)
		l->made.end = CHILD_CANCELLED;
	else
		child_do(child, &task, &l->made);
	return NULL;
}

/* A task in this slot, of which the trainer has heard. */
static void
give(struct lane *l, uint32_t slot)
{
	char text[64];
	*l = (struct lane){ .slot = slot, .id = ++ids };
	assert_int_equal(pthread_create(&l->thread, NULL, run, l), 0);
	snprintf(text, sizeof(text), "\"op\":\"task\",\"id\":%u,", (unsigned)l->id);
	hear(text);
}

static void
ends(struct lane *l, enum child_end want)
{
	pthread_join(l->thread, NULL);
	if (l->made.end != want)
		fail_msg("task %u: ends as %d, not %d", (unsigned)l->id, l->made.end,
			 want);
	if (want == CHILD_MADE)
		assert_true(l->made.loss == (double)l->id / 2 &&
			    l->made.right == l->id % 2);
}

static void
done(const struct lane *l)
{
	say("{\"op\":\"done\",\"id\":%u,\"loss\":%g,\"right\":%u}\n", (unsigned)l->id,
	    (double)l->id / 2, (unsigned)l->id % 2);
}

/* All is well. */
static void
one_task(void)
{
	struct lane l;
	give(&l, fal_rng_below(&rng, DEPTH));
	done(&l);
	ends(&l, CHILD_MADE);
}

/* ---- tests ------------------------------------------------------------------------- */

static int
begin(void **state)
{
	const struct child_conf conf = {
		.command = command, .worker = "w", .lanes = 1, .mute = 3
	};
	struct fal_grad_hello hello;
	struct fal_diag diag;
	(void)state;
	assert_int_equal(child_new(&conf, &child), 0);
	arrive(false);
	assert_int_equal(child_greet(child, &hello, &diag), 0);
	assert_int_equal(hello.depth, DEPTH);
	child_begin(child, &job);
	hear("\"op\":\"job\"");
	return 0;
}

static int
end(void **state)
{
	(void)state;
	child_quit(child);
	depart();
	child_free(child);
	return 0;
}

/* Answers come in any order, in pieces or many at a time. */
static void
any_order(void **state)
{
	(void)state;
	for (int round = 0; round < 30; round++) {
		struct lane l[DEPTH];
		uint32_t order[DEPTH];
		const uint32_t n = 1 + fal_rng_below(&rng, DEPTH);
		for (uint32_t i = 0; i < n; i++) {
			const uint32_t k = fal_rng_below(&rng, i + 1);
			give(&l[i], i);
			order[i] = order[k];
			order[k] = i;
		}
		for (uint32_t i = 0; i < n; i++)
			done(&l[order[i]]);
		for (uint32_t i = 0; i < n; i++)
			ends(&l[i], CHILD_MADE);
	}
}

/* Whatever is wrong costs what it had, and nothing of it is there after the next start,
 * which does well. */
static void
wrong_words(void **state)
{
	static char longest[FAL_GRAD_LINE_MAX + 70000];
	(void)state;
	memset(longest, 'x', sizeof(longest));
	for (int way = 0; way < 9; way++) {
		struct lane a, b;
		one_task();
		give(&a, 0);
		give(&b, 1);
		switch (way) {
		case 0: /* ends in the middle of a line */
			say("{\"op\":\"done\",\"id\":%u", (unsigned)a.id);
			break;
		case 1:
			fwrite(longest, 1, sizeof(longest), words);
			break;
		case 2:
			say("epoch 1: loss 2.3\n");
			break;
		case 3:
			say("{\"op\":\"done\",\"id\":%u,\"loss\":1}\n",
			    (unsigned)b.id + 1);
			break;
		case 4: /* of the task before */
			say("{\"op\":\"done\",\"id\":%u,\"loss\":1}\n",
			    (unsigned)a.id - 1);
			break;
		case 5:
			say("{\"op\":\"cancelled\",\"id\":%u}\n", (unsigned)a.id);
			break;
		case 6:
			say("{\"op\":\"hello\",\"protocol\":1,\"depth\":%d}\n", DEPTH);
			break;
		case 7:
			say("\n");
			break;
		case 8: /* NUL, and what is no text */
			tell("{\"op\":\"done\0\xff\"}\n", 16);
			break;
		}
		depart();
		ends(&a, CHILD_LOST);
		ends(&b, CHILD_LOST);
		arrive(true);
		one_task();
	}
}

/* An answer that comes after its cancel is as good as one that says so, and the slot is
 * free again. */
static void
late_answers(void **state)
{
	static const char *const words_of[] = { "done", "cancelled", "fail" };
	(void)state;
	for (int round = 0; round < 12; round++) {
		struct lane a, b;
		give(&a, 0);
		give(&b, 1);
		child_cancel(child, 0, a.id);
		hear("\"op\":\"cancel\"");
		if (round % 2)
			done(&b);
		say("{\"op\":\"%s\",\"id\":%u}\n", words_of[round % 3], (unsigned)a.id);
		if (!(round % 2))
			done(&b);
		ends(&a, CHILD_CANCELLED);
		ends(&b, CHILD_MADE);
		give(&a, 0);
		child_cancel(child, 0, a.id - 1); /* of a task that is over */
		done(&a);
		ends(&a, CHILD_MADE);
	}
}

static void
failures(void **state)
{
	struct lane l;
	(void)state;
	give(&l, 3);
	say("{\"op\":\"fail\",\"id\":%u,\"why\":\"by intention\"}\n", (unsigned)l.id);
	ends(&l, CHILD_FAILED);
	one_task();
}

/* Whoever quits waits for nobody. */
static void
quits(void **state)
{
	struct lane l;
	(void)state;
	give(&l, 0);
	child_quit(child);
	ends(&l, CHILD_CANCELLED);
}

/* Without a hello it is given up in the end, and who waits is told. */
static void
gives_up(void **state)
{
	struct lane l;
	(void)state;
	give(&l, 0);
	depart();
	for (int i = 0; i < 3; i++) {
		said = fopen(in, "r");
		words = fopen(out, "w");
		hear("\"op\":\"hello\"");
		say("%s", i == 1 ? "{\"op\":\"hel" : "");
		depart();
		if (i == 0)
			ends(&l, CHILD_LOST);
	}
	l.id++;
	l.slot = 0;
	assert_int_equal(child_start(child, 0, l.id), 0);
	assert_true(child_failed(child));
	said = fopen("/dev/null", "r");
	words = fopen("/dev/null", "w");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(any_order, begin, end),
		cmocka_unit_test_setup_teardown(wrong_words, begin, end),
		cmocka_unit_test_setup_teardown(late_answers, begin, end),
		cmocka_unit_test_setup_teardown(failures, begin, end),
		cmocka_unit_test_setup_teardown(quits, begin, end),
		cmocka_unit_test_setup_teardown(gives_up, begin, end),
	};
	const char *given = getenv("CHILD_SEED");
	const unsigned long long pid = (unsigned long long)getpid();
	const uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : pid;
	printf("# CHILD_SEED=%llu\n", (unsigned long long)seed);
	rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	signal(SIGPIPE, SIG_IGN);
	alarm(300);
	if (mkdtemp(dir) == NULL)
		return 1;
	snprintf(in, sizeof(in), "%s/in", dir);
	snprintf(out, sizeof(out), "%s/out", dir);
	if (mkfifo(in, 0600) < 0 || mkfifo(out, 0600) < 0)
		return 1;
	snprintf(command, sizeof(command), "exec 9<&0; cat <&9 >%s & exec cat %s", in,
		 out);
	fal_put_fmt(&job.params,
		    "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d],"
		    "\"data_offsets\":[0,%d]}}",
		    FLOATS, FLOATS * 4);
	job.params_bytes = sizeof(params);
	struct fal_model *model;
	if (fal_model_parse("w", (const char *)job.params.p, job.params.n, &model, NULL) <
	    0)
		return 1;
	job.model = model;
	job.job = (struct fal_grad_job){ .name = "n", .task = 1, .batch = 1, .train = 1 };
	cmocka_set_message_output(CM_OUTPUT_TAP);
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(in);
	unlink(out);
	rmdir(dir);
	fal_buf_free(&job.params);
	fal_model_free(model);
	return failed;
}
