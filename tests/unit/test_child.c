/* A trainer's side of falcon-work, by its header alone: the trainer is this process,
 * which a shell's two cats bring what is said, and take what is answered, byte by byte.
 */
#include "../../cmd/falcon-work/child.h"

#include "base/rng.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEPTH = 6, FLOATS = 16 };

static struct fal_rng rng;
static char dir[] = "/tmp/test_child.XXXXXX", command[300], in[64], out[64], pid[64];
static FILE *said;  /* to the trainer */
static FILE *words; /* from it */
static struct child *child;
static struct child_job job;
static uint64_t ids;

/* ---- the trainer ------------------------------------------------------------------ */

static char line[4096]; /* that it heard last */

/* The next line to the trainer has this text. */
static void
hear(const char *text)
{
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

/* Whatever it is told, until it is gone. */
static void
hear_all(void)
{
	while (fgets(line, sizeof(line), said) != NULL)
		;
	fclose(said);
}

/* It says no more, and is gone. */
static void
depart(void)
{
	fclose(words);
	hear_all();
}

/* Its memory: of these, which it inherits one after the other. */
enum { PARAMS = 3, GRADS };
static int
memory_of(int number)
{
	FILE *f = fopen(pid, "r");
	char path[64];
	int of = 0;
	assert_true(f != NULL && fscanf(f, "%d", &of) == 1);
	fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", of, number);
	const int fd = open(path, number == PARAMS ? O_RDONLY : O_RDWR);
	assert_true(fd >= 0);
	return fd;
}

static int
memory(void)
{
	return memory_of(PARAMS);
}

/* ---- lanes ------------------------------------------------------------------------- */

struct lane {
	struct child_task task;
	pthread_t thread;
	uint32_t slot;
	unsigned turn;
	uint64_t id, serial;
	const float *kept; /* its gradient, if it is to be kept: `keeps` */
	bool keeps;
	float params[FLOATS]; /* of this serial */
	off_t at, grads;      /* where these and its gradient are to be found */
	atomic_bool over;
	struct child_made made;
};

static int
keep(void *arg, const struct child_made *made, const float *grads)
{
	struct lane *l = arg;
	(void)made;
	l->kept = grads;
	return CHILD_KEEPS;
}

static void *
run(void *arg)
{
	struct lane *l = arg;
	static const uint32_t index[] = { 7 };
	l->task = (struct child_task){
		.line = { .id = l->id, .slot = l->slot, .count = 1, .index = index },
		.params = l->params,
		.serial = l->serial,
		.turn = l->turn,
		.take = l->keeps ? keep : NULL,
		.arg = l,
		.start = child_start(child, l->slot, l->id),
	};
	if (l->task.start == 0)
		l->made.end = CHILD_CANCELLED;
	else
		child_do(child, &l->task, &l->made);
	l->over = true;
	return NULL;
}

/* Where data begin, as the line says it. */
static off_t
begins(const char *member)
{
	const char *at = strstr(line, member);
	assert_non_null(at);
	const off_t where = atol(at + strlen(member));
	assert_true(where > 0 && where % 64 == 0);
	return where;
}

/* A task in this slot, on these parameters, of which the trainer has heard. */
static void
give_on(struct lane *l, uint32_t slot, uint64_t serial)
{
	char text[64];
	l->slot = slot;
	l->serial = serial;
	l->id = ++ids;
	l->over = false;
	l->kept = NULL;
	for (int i = 0; i < FLOATS; i++)
		l->params[i] = (float)(serial * FLOATS) + (float)i;
	assert_int_equal(pthread_create(&l->thread, NULL, run, l), 0);
	snprintf(text, sizeof(text), "\"op\":\"task\",\"id\":%u,", (unsigned)l->id);
	hear(text);
	l->at = begins("\"params\":");
	l->grads = begins("\"grads\":");
}

static void
give(struct lane *l, uint32_t slot)
{
	l->turn = 0;
	l->keeps = false;
	give_on(l, slot, 1);
}

static void
ends(struct lane *l, enum child_end want)
{
	pthread_join(l->thread, NULL);
	/* Behind another one it had not begun. */
	if (want == CHILD_LOST && l->made.end == CHILD_UNSENT)
		return;
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

/* A gradient that a lane keeps stays as it is: the slot's next task has another place, of
 * another turn, and the next start other memory. */
static void
kept(void **state)
{
	(void)state;
	for (int round = 0; round < 6; round++) {
		const uint32_t slot = fal_rng_below(&rng, DEPTH);
		const float mine = (float)round + 1, other = -mine;
		const unsigned turn = fal_rng_below(&rng, CHILD_TURNS);
		const unsigned on = 1 + fal_rng_below(&rng, CHILD_TURNS - 1);
		struct lane first = { .turn = turn, .keeps = true };
		struct lane next = { .turn = (turn + on) % CHILD_TURNS };
		int fd = memory_of(GRADS);
		give_on(&first, slot, 1);
		assert_int_equal(pwrite(fd, &mine, sizeof(mine), first.grads),
				 sizeof(mine));
		done(&first);
		ends(&first, CHILD_MADE);
		give_on(&next, slot, 1);
		assert_int_equal(pwrite(fd, &other, sizeof(other), next.grads),
				 sizeof(other));
		if (round % 2) {
			done(&next);
			ends(&next, CHILD_MADE);
			assert_null(next.made.kept);
		} else {
			depart();
			arrive(true);
			ends(&next, CHILD_LOST);
		}
		close(fd);
		assert_true(first.made.kept != NULL && *first.kept == mine);
		child_drop(first.made.kept);
	}
	one_task();
}

/* The lane waits for its answer, and what its task is computed on is as it was. */
static void
untouched(const struct lane *l, int fd)
{
	float found[FLOATS];
	assert_false(l->over);
	assert_int_equal(pread(fd, found, sizeof(found), l->at), sizeof(found));
	for (int i = 0; i < FLOATS; i++)
		if (found[i] != l->params[i])
			fail_msg("task %u: parameter %d is %g, not %g", (unsigned)l->id,
				 i, (double)found[i], (double)l->params[i]);
}

/* A place stays as it is while a task that names it is unanswered, whatever versions
 * come meanwhile, and though the task is not wanted any more. */
static void
places(void **state)
{
	struct lane l[DEPTH] = { 0 };
	bool given[DEPTH] = { false }, cancelled[DEPTH] = { false };
	uint64_t serial = 1;
	(void)state;
	const int fd = memory();
	for (int turn = 0; turn < 400; turn++) {
		const uint32_t i = fal_rng_below(&rng, DEPTH);
		const bool cancels = fal_rng_below(&rng, 4) == 0;
		serial += fal_rng_below(&rng, 3) == 0;
		if (!given[i]) {
			give_on(&l[i], i,
				serial - fal_rng_below(&rng, serial > 1 ? 2 : 1));
			given[i] = true;
			cancelled[i] = false;
		} else if (cancels && !cancelled[i]) {
			child_cancel(child, i, l[i].id);
			hear("\"op\":\"cancel\"");
			cancelled[i] = true;
		} else {
			done(&l[i]);
			ends(&l[i], cancelled[i] ? CHILD_CANCELLED : CHILD_MADE);
			given[i] = false;
		}
		for (uint32_t k = 0; k < DEPTH; k++)
			if (given[k])
				untouched(&l[k], fd);
	}
	for (uint32_t i = 0; i < DEPTH; i++)
		if (given[i]) {
			done(&l[i]);
			ends(&l[i], cancelled[i] ? CHILD_CANCELLED : CHILD_MADE);
		}
	close(fd);
}

/* Whoever is silent after a cancel is ended, and has other memory when it comes back. */
static void
silent(void **state)
{
	struct lane l;
	struct stat was, is;
	(void)state;
	one_task();
	const int fd = memory();
	give(&l, 0);
	child_cancel(child, 0, l.id);
	hear("\"op\":\"cancel\"");
	untouched(&l, fd);
	hear_all();
	ends(&l, CHILD_CANCELLED);
	fclose(words);
	arrive(true);
	const int other = memory();
	assert_int_equal(fstat(fd, &was) | fstat(other, &is), 0);
	assert_int_not_equal(was.st_ino, is.st_ino);
	one_task();
	close(fd);
	close(other);
}

/* A task is sent in the start that it is for, or not at all. */
static void
sent_in_its_start(void **state)
{
	struct lane l;
	(void)state;
	give(&l, fal_rng_below(&rng, DEPTH));
	done(&l);
	ends(&l, CHILD_MADE);
	depart();
	arrive(true);
	assert_int_not_equal(child_start(child, l.slot, ids + 1), l.task.start);
	assert_int_equal(child_do(child, &l.task, &l.made), 0);
	assert_int_equal(l.made.end, CHILD_UNSENT);
	one_task();
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

static uint64_t
now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Ends, and how long until it is there again. */
static uint64_t
comes_back(void)
{
	const uint64_t gone = now_ms();
	depart();
	arrive(true);
	return now_ms() - gone;
}

/* Who ends again and again, and has done nothing, starts after pauses that grow; a task
 * that is done makes that good. */
static void
backs_off(void **state)
{
	enum { ENDS = 6 };
	uint64_t least = 100;
	(void)state;
	one_task();
	for (int i = 0; i < ENDS; i++, least *= 2) {
		const uint64_t took = comes_back();
		if (took < least)
			fail_msg("end %d: back in %u ms", i, (unsigned)took);
	}
	one_task();
	if (comes_back() >= least / 2)
		fail_msg("back no sooner, though it has done a task");
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
		cmocka_unit_test_setup_teardown(kept, begin, end),
		cmocka_unit_test_setup_teardown(places, begin, end),
		cmocka_unit_test_setup_teardown(silent, begin, end),
		cmocka_unit_test_setup_teardown(sent_in_its_start, begin, end),
		cmocka_unit_test_setup_teardown(failures, begin, end),
		cmocka_unit_test_setup_teardown(quits, begin, end),
		cmocka_unit_test_setup_teardown(backs_off, begin, end),
		cmocka_unit_test_setup_teardown(gives_up, begin, end),
	};
	const char *given = getenv("CHILD_SEED");
	const uint64_t seed =
		given != NULL ? strtoull(given, NULL, 10) : (unsigned)getpid();
	printf("# CHILD_SEED=%llu\n", (unsigned long long)seed);
	rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	signal(SIGPIPE, SIG_IGN);
	alarm(300);
	if (mkdtemp(dir) == NULL)
		return 1;
	snprintf(in, sizeof(in), "%s/in", dir);
	snprintf(out, sizeof(out), "%s/out", dir);
	snprintf(pid, sizeof(pid), "%s/pid", dir);
	if (mkfifo(in, 0600) < 0 || mkfifo(out, 0600) < 0)
		return 1;
	snprintf(command, sizeof(command),
		 "echo $$ >%s; exec 9<&0; cat <&9 >%s & exec cat %s", pid, in, out);
	fal_put_fmt(&job.params,
		    "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d],"
		    "\"data_offsets\":[0,%d]}}",
		    FLOATS, FLOATS * 4);
	job.params_bytes = FLOATS * sizeof(float);
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
	unlink(pid);
	rmdir(dir);
	fal_buf_free(&job.params);
	fal_model_free(model);
	return failed;
}
