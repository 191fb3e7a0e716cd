/* Which thread computes a task: the lane's, or, of quick ones, the loop's. */
#include "../../cmd/falcon-work/lane.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quick_ones_are_here),
		cmocka_unit_test(who_waits_has_its_thread),
		cmocka_unit_test(lanes_share_the_loop),
		cmocka_unit_test(one_write_for_both),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
