/* A trainer's side of falcon-work, by its header alone.  This process plays the trainer:
 * two cats of a shell bring it what falcon-work says, and take its answers, byte by byte.
 */
#include "../../cmd/falcon-work/trainer.h"

#include "../drawn.h"

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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { FLOATS = 16 };

static struct fal_rng rng;
static char dir[] = "/tmp/test_trainer.XXXXXX", command[300], in[64], out[64], pid[64];
static FILE *said;  /* to the trainer */
static FILE *words; /* from it */
static struct trainer *trainer;
static struct trainer_job job;
static uint64_t ids;
static bool here, told; /* the trainer has said hello; it has heard of its job */

/* ---- the trainer ------------------------------------------------------------------ */

static char line[4096]; /* the last one to the trainer */

/* The next line to the trainer has this text. */
static void
hear(const char *text)
{
	if (fgets(line, sizeof(line), said) == NULL)
		fail_msg("no line, but \"%s\" was to come", text);
	if (strstr(line, text) == NULL)
		fail_msg("%s is without %s", line, text);
}

/* Writes in pieces of drawn lengths. */
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

/* The process has started: says hello. */
static void
arrive(void)
{
	said = fopen(in, "r");
	words = fopen(out, "w");
	assert_true(said != NULL && words != NULL);
	hear("\"op\":\"hello\"");
	say("{\"op\":\"hello\",\"protocol\":1}\n");
	here = true;
	told = false;
}

/* Reads lines until the process and its cats are gone. */
static void
hear_all(void)
{
	while (fgets(line, sizeof(line), said) != NULL)
		;
	fclose(said);
	here = false;
}

/* The trainer closes its standard output, and is gone. */
static void
depart(void)
{
	fclose(words);
	hear_all();
}

/* The process's id; 0: not written yet. */
static pid_t
process(void)
{
	FILE *f = fopen(pid, "r");
	int of = 0;
	if (f == NULL || fscanf(f, "%d", &of) != 1)
		of = 0;
	if (f != NULL)
		fclose(f);
	return of;
}

/* The memory of the parameters, 3, or of the gradients, 4, which the process inherits. */
static int
memory_at(int number, int flags)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", process(), number);
	const int fd = open(path, flags);
	assert_true(fd >= 0);
	return fd;
}

static int
memory(void)
{
	return memory_at(3, O_RDONLY);
}

/* ---- its lane ---------------------------------------------------------------------- */

struct lane {
	struct trainer_task task;
	pthread_t thread;
	unsigned area;
	uint64_t id, serial;
	float params[FLOATS]; /* of this serial */
	off_t at;             /* where these are to be found */
	atomic_bool over;
	struct trainer_result made;
};

static void *
run(void *arg)
{
	struct lane *l = arg;
	static const uint32_t index[] = { 7 };
	l->task = (struct trainer_task){
		.area = l->area,
		.line = { .id = l->id, .count = 1, .index = index },
		.params = l->params,
		.serial = l->serial,
	};
	l->made.end = TRAINER_CANCELLED;
	if (trainer_prepare(trainer, l->id) != 0)
		trainer_compute(trainer, &l->task, &l->made);
	l->over = true;
	return NULL;
}

/* Where the line says that this member's data begin. */
static off_t
begins(const char *member)
{
	const char *at = strstr(line, member);
	assert_non_null(at);
	const off_t where = atol(at + strlen(member));
	assert_true(where > 0 && where % 64 == 0);
	return where;
}

static void
begin_on(struct lane *l, uint64_t serial)
{
	l->serial = serial;
	l->id = ++ids;
	l->over = false;
	for (int i = 0; i < FLOATS; i++)
		l->params[i] = (float)(serial * FLOATS) + (float)i;
	assert_int_equal(pthread_create(&l->thread, NULL, run, l), 0);
}

/* The trainer hears of the task; one that is gone is started for it. */
static void
hear_task(struct lane *l)
{
	char text[64];
	if (!here)
		arrive();
	if (!told)
		hear("\"op\":\"job\"");
	told = true;
	snprintf(text, sizeof(text), "\"op\":\"task\",\"id\":%u,", (unsigned)l->id);
	hear(text);
	l->at = begins("\"params\":");
}

/* A task on these parameters. */
static void
give_on(struct lane *l, uint64_t serial)
{
	begin_on(l, serial);
	hear_task(l);
}

static void
give(struct lane *l)
{
	give_on(l, 1);
}

static void
ends(struct lane *l, enum trainer_end want)
{
	pthread_join(l->thread, NULL);
	if (l->made.end != want)
		fail_msg("task %u: ends as %d, not %d", (unsigned)l->id, l->made.end,
			 want);
	if (want == TRAINER_DONE)
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
	struct lane l = { 0 };
	give(&l);
	done(&l);
	ends(&l, TRAINER_DONE);
}

/* ---- tests ------------------------------------------------------------------------- */

static int
begin(void **state)
{
	const struct trainer_conf conf = { .command = command,
					   .worker = "w",
					   .max_silent_starts = 3 };
	struct fal_grad_hello hello;
	struct fal_diag diag;
	(void)state;
	assert_int_equal(trainer_new(&conf, &trainer), 0);
	arrive();
	assert_int_equal(trainer_wait_hello(trainer, &hello, &diag), 0);
	trainer_set_job(trainer, &job);
	return 0;
}

static int
end(void **state)
{
	(void)state;
	trainer_quit(trainer);
	trainer_close_input(trainer);
	depart();
	trainer_free(trainer);
	return 0;
}

/* Answers come in pieces. */
static void
many_tasks(void **state)
{
	(void)state;
	for (int round = 0; round < 60; round++)
		one_task();
}

/* A wrong word costs the current task alone: nothing of it is left after the next start,
 * which does well. */
static void
wrong_words(void **state)
{
	static char longest[FAL_GRAD_LINE_MAX + 70000];
	(void)state;
	memset(longest, 'x', sizeof(longest));
	for (int way = 0; way < 9; way++) {
		struct lane a = { 0 };
		one_task();
		give(&a);
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
			    (unsigned)a.id + 1);
			break;
		case 4: /* of the task before */
			say("{\"op\":\"done\",\"id\":%u,\"loss\":1}\n",
			    (unsigned)a.id - 1);
			break;
		case 5:
			say("{\"op\":\"cancelled\",\"id\":%u}\n", (unsigned)a.id);
			break;
		case 6:
			say("{\"op\":\"hello\",\"protocol\":1}\n");
			break;
		case 7:
			say("\n");
			break;
		case 8: /* NUL, and what is no text */
			tell("{\"op\":\"done\0\xff\"}\n", 16);
			break;
		}
		depart();
		ends(&a, TRAINER_LOST);
		one_task();
	}
}

/* An answer that comes after its cancel is as good as one that says so. */
static void
late_answers(void **state)
{
	static const char *const words_of[] = { "done", "cancelled", "fail" };
	(void)state;
	for (int round = 0; round < 12; round++) {
		struct lane a = { 0 };
		give(&a);
		trainer_cancel(trainer, 0, a.id);
		hear("\"op\":\"cancel\"");
		say("{\"op\":\"%s\",\"id\":%u}\n", words_of[round % 3], (unsigned)a.id);
		ends(&a, TRAINER_CANCELLED);
		give(&a);
		trainer_cancel(trainer, 0, a.id - 1); /* of a task that is over */
		done(&a);
		ends(&a, TRAINER_DONE);
	}
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

/* Parameters stay as they are while a task is unanswered, though it is not wanted any
 * more, and are its own, whichever the last one had. */
static void
parameters(void **state)
{
	uint64_t serial = 1;
	(void)state;
	one_task(); /* it has memory once it knows its job */
	const int fd = memory();
	for (int turn = 0; turn < 100; turn++) {
		const bool cancels = fal_rng_below(&rng, 4) == 0;
		struct lane l = { 0 };
		serial += fal_rng_below(&rng, 3) == 0;
		give_on(&l, serial - fal_rng_below(&rng, serial > 1 ? 2 : 1));
		untouched(&l, fd);
		if (cancels) {
			trainer_cancel(trainer, 0, l.id);
			hear("\"op\":\"cancel\"");
			untouched(&l, fd);
		}
		done(&l);
		ends(&l, cancels ? TRAINER_CANCELLED : TRAINER_DONE);
	}
	close(fd);
}

/* Writes the gradient of this task: its id everywhere. */
static void
write_gradient(const struct lane *l, int fd)
{
	float grad[FLOATS];
	for (int i = 0; i < FLOATS; i++)
		grad[i] = (float)l->id;
	assert_int_equal(pwrite(fd, grad, sizeof(grad), begins("\"grads\":")),
			 sizeof(grad));
}

static void *
restart(void *arg)
{
	atomic_bool *restarted = arg;
	trainer_restart(trainer, "test");
	*restarted = true;
	return NULL;
}

/* A gradient that is held stays, while a task with the other area is computed, and while
 * the process is ended. */
static void
held_gradients(void **state)
{
	(void)state;
	one_task();
	const int fd = memory_at(4, O_RDWR);
	for (unsigned turn = 0; turn < 20; turn++) {
		struct lane one = { .area = turn % 2 }, other = { .area = 1 - turn % 2 };
		give(&one);
		write_gradient(&one, fd);
		done(&one);
		ends(&one, TRAINER_DONE);
		const float *grad = trainer_hold_grads(trainer, one.area);
		give(&other);
		write_gradient(&other, fd);
		done(&other);
		ends(&other, TRAINER_DONE);
		pthread_t thread;
		atomic_bool restarted = false;
		if (turn == 19) {
			pthread_create(&thread, NULL, restart, &restarted);
			hear_all(); /* the process is killed */
		}
		assert_false(restarted);
		for (int i = 0; i < FLOATS; i++)
			assert_true(grad[i] == (float)one.id);
		trainer_release_grads(trainer);
		if (turn == 19)
			pthread_join(thread, NULL);
	}
	fclose(words);
	close(fd);
	one_task();
}

/* A trainer that is silent after a cancel is ended, and has other memory when it starts
 * again. */
static void
silent(void **state)
{
	struct lane l = { 0 };
	struct stat was, is;
	(void)state;
	one_task();
	const int fd = memory();
	give(&l);
	trainer_cancel(trainer, 0, l.id);
	hear("\"op\":\"cancel\"");
	untouched(&l, fd);
	hear_all();
	ends(&l, TRAINER_CANCELLED);
	fclose(words);
	one_task();
	const int other = memory();
	assert_int_equal(fstat(fd, &was) | fstat(other, &is), 0);
	assert_int_not_equal(was.st_ino, is.st_ino);
	close(fd);
	close(other);
}

/* A trainer that ended between tasks is started for the next one, which is not lost. */
static void
ends_meanwhile(void **state)
{
	(void)state;
	for (int round = 0; round < 3; round++) {
		struct lane l = { 0 };
		one_task();
		const pid_t was = process();
		siginfo_t end;
		fclose(words);
		assert_int_equal(waitid(P_PID, (id_t)was, &end, WEXITED | WNOWAIT), 0);
		begin_on(&l, 1);
		hear_all();
		hear_task(&l);
		assert_int_not_equal(process(), was);
		done(&l);
		ends(&l, TRAINER_DONE);
	}
}

static void
failures(void **state)
{
	struct lane l = { 0 };
	(void)state;
	give(&l);
	say("{\"op\":\"fail\",\"id\":%u,\"why\":\"by intention\"}\n", (unsigned)l.id);
	ends(&l, TRAINER_FAILED);
	one_task();
}

/* trainer_quit waits for no answer. */
static void
quits(void **state)
{
	struct lane l = { 0 };
	(void)state;
	give(&l);
	trainer_quit(trainer);
	ends(&l, TRAINER_CANCELLED);
}

static uint64_t
now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The trainer ends during a task.  Milliseconds until it has another one. */
static uint64_t
comes_back(struct lane *l)
{
	const uint64_t gone = now_ms();
	depart();
	ends(l, TRAINER_LOST);
	give(l);
	return now_ms() - gone;
}

/* A trainer that ends again and again without a task done starts after pauses that grow;
 * one task done makes them short. */
static void
backs_off(void **state)
{
	enum { ENDS = 6 };
	uint64_t least = 100;
	struct lane l = { 0 };
	(void)state;
	one_task();
	give(&l);
	for (int i = 0; i < ENDS; i++, least *= 2) {
		const uint64_t took = comes_back(&l);
		if (took < least)
			fail_msg("end %d: back in %u ms", i, (unsigned)took);
	}
	done(&l);
	ends(&l, TRAINER_DONE);
	give(&l);
	if (comes_back(&l) >= least / 2)
		fail_msg("back no sooner, though it has done a task");
	done(&l);
	ends(&l, TRAINER_DONE);
}

/* A trainer that never says hello is given up, and the waiting lane is told. */
static void
gives_up(void **state)
{
	struct lane l = { 0 };
	(void)state;
	give(&l);
	depart();
	ends(&l, TRAINER_LOST);
	l.id++;
	assert_int_equal(pthread_create(&l.thread, NULL, run, &l), 0);
	for (int i = 0; i < 3; i++) {
		said = fopen(in, "r");
		words = fopen(out, "w");
		hear("\"op\":\"hello\"");
		say("%s", i == 1 ? "{\"op\":\"hel" : "");
		depart();
	}
	ends(&l, TRAINER_CANCELLED);
	assert_int_equal(trainer_prepare(trainer, l.id + 1), 0);
	assert_true(trainer_is_given_up(trainer));
	said = fopen("/dev/null", "r");
	words = fopen("/dev/null", "w");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(many_tasks, begin, end),
		cmocka_unit_test_setup_teardown(wrong_words, begin, end),
		cmocka_unit_test_setup_teardown(late_answers, begin, end),
		cmocka_unit_test_setup_teardown(parameters, begin, end),
		cmocka_unit_test_setup_teardown(held_gradients, begin, end),
		cmocka_unit_test_setup_teardown(silent, begin, end),
		cmocka_unit_test_setup_teardown(ends_meanwhile, begin, end),
		cmocka_unit_test_setup_teardown(failures, begin, end),
		cmocka_unit_test_setup_teardown(quits, begin, end),
		cmocka_unit_test_setup_teardown(backs_off, begin, end),
		cmocka_unit_test_setup_teardown(gives_up, begin, end),
	};
	rng = fal_rng_init(drawn_seed((uint64_t)getpid()), FAL_RNG_TEST, 0);
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
