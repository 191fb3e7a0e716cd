/* Which thread computes a task: the lane's, or, of quick ones, the loop's, or none, where
 * the maker has somebody else do it. */
#include "../../cmd/falcon-work/lane.h"

#include "base/rng.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

enum { SAMPLES = 4 };

static uint64_t clock_ns; /* time passes while something is computed */
uint64_t __wrap_uv_hrtime(void);

uint64_t
__wrap_uv_hrtime(void)
{
	return ++clock_ns;
}

struct fake {
	struct maker maker;
	uint64_t ns;           /* that a task takes */
	unsigned asked, begun; /* by maker_ready, compute */
	pthread_t by;
	struct lanes *lanes;
	unsigned ended;
	uv_async_t message;
	uv_idle_t flush;
	unsigned at_flush; /* ended by then */
	/* Of what is sent. */
	struct fal_rng rng;
	bool at_work;
	unsigned sent, listened, again;
	uint64_t cancelled; /* id */
	const struct fal_run_job *job;
};

/* In the loop's thread, once before each task. */
static void
ready(struct maker *m, uint32_t lane)
{
	struct fake *f = (struct fake *)m;
	assert_int_equal(lane, 0);
	assert_int_equal(f->asked++, f->begun);
}

static int
compute(struct maker *m, uint32_t lane, const struct fal_run_job *job,
	struct fal_ran *ran)
{
	struct fake *f = (struct fake *)m;
	(void)lane;
	assert_int_equal(f->asked, ++f->begun);
	clock_ns += f->ns;
	f->by = pthread_self();
	ran->samples = job->count;
	return FAL_OK;
}

static void
on_end(void *arg, uint32_t lane, const struct lane_end *end)
{
	struct fake *f = arg;
	assert_int_equal(lane, 0);
	assert_int_equal(end->err, FAL_OK);
	assert_int_equal(end->ran.cancelled, false);
	assert_true(end->ran.task_ns >= f->ns);
	f->ended++;
}

/* Runs a task, which takes so long, to its end; whether the loop's thread computed it. */
static bool
computed_here(struct fake *f, uv_loop_t *loop, uint64_t ns, uint32_t count, bool later)
{
	const struct fal_run_job job = { .count = count };
	const unsigned before = f->ended;
	f->ns = ns;
	lane_start(f->lanes, 0, &job, !later);
	if (later)
		lane_begin(f->lanes, 0);
	assert_int_equal(f->ended, before); /* nobody is called back from within */
	assert_false(lanes_idle(f->lanes));
	while (f->ended == before)
		uv_run(loop, UV_RUN_ONCE);
	assert_true(lanes_idle(f->lanes));
	return pthread_equal(f->by, pthread_self()) != 0;
}

static void
run_all(bool quick, uint32_t lanes, bool (*const check)(struct fake *, uv_loop_t *))
{
	static const struct maker_ops ops = { .ready = ready, .run = compute };
	struct fake f = { .maker = { &ops, .quick = quick } };
	struct lanes_conf conf = {
		.maker = &f.maker, .lanes = lanes, .arg = &f, .on_end = on_end
	};
	uv_loop_t loop;
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(lanes_new(&loop, &conf, &f.lanes), FAL_OK);
	assert_true(check(&f, &loop));
	lanes_free(f.lanes);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* The first one's time is not known; then each is as the one before was. */
static bool
by_the_last(struct fake *f, uv_loop_t *loop)
{
	assert_false(computed_here(f, loop, 1000, SAMPLES, false));
	assert_true(computed_here(f, loop, 1000, SAMPLES, false));
	assert_true(computed_here(f, loop, 1000, SAMPLES, true));
	assert_true(computed_here(f, loop, 1000, SAMPLES - 1, false));
	/* More samples may take longer. */
	assert_false(computed_here(f, loop, 1000, SAMPLES, false));
	assert_true(computed_here(f, loop, 900000, SAMPLES, false));
	assert_false(computed_here(f, loop, 900000, SAMPLES, false));
	assert_false(computed_here(f, loop, 1000, SAMPLES, false));
	assert_true(computed_here(f, loop, 1000, SAMPLES, false));
	return true;
}

static void
quick_ones_are_here(void **state)
{
	(void)state;
	run_all(true, 1, by_the_last);
}

static bool
never_here(struct fake *f, uv_loop_t *loop)
{
	for (int i = 0; i < 3; i++)
		assert_false(computed_here(f, loop, 1000, SAMPLES, false));
	return true;
}

static void
on_flush(uv_idle_t *h)
{
	struct fake *f = h->data;
	f->at_flush = f->ended;
	uv_close((uv_handle_t *)h, NULL);
}

/* Something is to be sent, at the end of the turn, and a task comes. */
static void
on_message(uv_async_t *h)
{
	const struct fal_run_job job = { .count = SAMPLES };
	struct fake *f = h->data;
	uv_idle_start(&f->flush, on_flush);
	lane_start(f->lanes, 0, &job, true);
	uv_close((uv_handle_t *)h, NULL);
}

/* What follows from a task leaves with what its message has brought. */
static bool
before_the_flush(struct fake *f, uv_loop_t *loop)
{
	assert_false(computed_here(f, loop, 1000, SAMPLES, false));
	f->at_flush = 0;
	f->message.data = f->flush.data = f;
	uv_idle_init(loop, &f->flush);
	uv_async_init(loop, &f->message, on_message);
	uv_async_send(&f->message);
	while (f->at_flush == 0)
		uv_run(loop, UV_RUN_ONCE);
	assert_int_equal(f->at_flush, 2);
	return true;
}

static void
one_write_for_both(void **state)
{
	(void)state;
	run_all(true, 1, before_the_flush);
}

/* Of a maker that waits for others, the loop would wait with it. */
static void
who_waits_has_its_thread(void **state)
{
	(void)state;
	run_all(false, 1, never_here);
}

/* Four lanes of the loop's thread would take four times as long. */
static bool
a_quarter(struct fake *f, uv_loop_t *loop)
{
	assert_false(computed_here(f, loop, 60000, SAMPLES, false));
	assert_false(computed_here(f, loop, 40000, SAMPLES, false));
	assert_true(computed_here(f, loop, 40000, SAMPLES, false));
	return true;
}

static void
lanes_share_the_loop(void **state)
{
	(void)state;
	run_all(true, 4, a_quarter);
}

/* --- what is sent ------------------------------------------------------------------- */

static bool
send_it(struct maker *m, uint32_t lane, const struct fal_run_job *job)
{
	struct fake *f = (struct fake *)m;
	assert_int_equal(lane, 0);
	assert_int_equal(f->asked, f->begun + 1);
	f->job = job;
	f->at_work = fal_rng_below(&f->rng, 4) != 0;
	f->begun += f->at_work;
	f->sent += f->at_work;
	return f->at_work;
}

/* It may have been said of another one. */
static void
listen_to(struct maker *m)
{
	struct fake *f = (struct fake *)m;
	uint64_t times;
	assert_int_equal(read(m->ear, &times, sizeof(times)), sizeof(times));
	f->at_work = fal_rng_below(&f->rng, 3) == 0;
	f->listened++;
}

static void
say_so(const struct fake *f)
{
	const uint64_t one = 1;
	assert_int_equal(write(f->maker.ear, &one, sizeof(one)), sizeof(one));
}

static enum maker_over
over(struct maker *m, uint32_t lane, struct fal_ran *ran, int *err)
{
	struct fake *f = (struct fake *)m;
	(void)lane;
	if (f->at_work) {
		say_so(f);
		return MAKER_AT_WORK;
	}
	if (fal_rng_below(&f->rng, 4) == 0) {
		f->asked++; /* compute says that it was, for each */
		f->again++;
		return MAKER_AGAIN;
	}
	clock_ns += f->ns;
	*err = FAL_OK;
	ran->samples = f->job->count;
	ran->cancelled = f->cancelled == f->job->id;
	return MAKER_OVER;
}

static void
cancel(struct maker *m, uint32_t lane, uint64_t id)
{
	struct fake *f = (struct fake *)m;
	(void)lane;
	f->cancelled = id;
	say_so(f);
}

static void
on_any_end(void *arg, uint32_t lane, const struct lane_end *end)
{
	struct fake *f = arg;
	assert_int_equal(lane, 0);
	assert_int_equal(end->err, FAL_OK);
	assert_int_equal(end->ran.cancelled, f->cancelled == f->job->id);
	assert_true(end->ran.cancelled ||
		    (end->ran.samples == SAMPLES && end->ran.task_ns >= f->ns));
	f->ended++;
}

/* One task: whoever does it, it ends once; nobody listens while nothing is sent. */
static void
sent_or_not(struct fake *f, uv_loop_t *loop)
{
	const struct fal_run_job job = { .count = SAMPLES };
	const unsigned ended = f->ended;
	f->ns = fal_rng_below(&f->rng, 1000);
	lane_start(f->lanes, 0, &job, true);
	say_so(f);
	if (fal_rng_below(&f->rng, 4) == 0)
		lane_cancel(f->lanes, 0);
	while (f->ended == ended)
		uv_run(loop, UV_RUN_ONCE);
	assert_true(lanes_idle(f->lanes));
	f->begun = f->asked;
	say_so(f);
	const unsigned listened = f->listened;
	uv_run(loop, UV_RUN_NOWAIT);
	assert_int_equal(f->listened, listened);
	listen_to(&f->maker);
}

static void
others_do_it(void **state)
{
	static const struct maker_ops ops = { .ready = ready,
					      .run = compute,
					      .send = send_it,
					      .listen = listen_to,
					      .over = over,
					      .cancel = cancel };
	struct fake f = { .maker = { &ops, .ear = eventfd(0, EFD_NONBLOCK) } };
	struct lanes_conf conf = {
		.maker = &f.maker, .lanes = 1, .arg = &f, .on_end = on_any_end
	};
	const uint64_t seed = (uint64_t)getpid();
	uv_loop_t loop;
	(void)state;
	print_message("# seed %llu\n", (unsigned long long)seed);
	f.rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(lanes_new(&loop, &conf, &f.lanes), FAL_OK);
	for (int i = 0; i < 400; i++)
		sent_or_not(&f, &loop);
	assert_true(f.sent > 200 && f.sent < 400 && f.again > 20);
	lanes_free(f.lanes);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	close(f.maker.ear);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quick_ones_are_here),
		cmocka_unit_test(who_waits_has_its_thread),
		cmocka_unit_test(lanes_share_the_loop),
		cmocka_unit_test(one_write_for_both),
		cmocka_unit_test(others_do_it),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
