/* Which thread computes a task: the lane's, or, of quick ones, the loop's; and what a
 * lane waits for and tells while it is at a task. */
#include "../../cmd/falcon-work/lanes.h"

#include "../drawn.h"

#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

enum { SAMPLES = 4 };

static _Atomic uint64_t clock_ns; /* time passes while something is computed */
static _Thread_local sem_t *asks; /* whom the next look at the clock wakes; or NULL */
uint64_t __wrap_uv_hrtime(void);

uint64_t
__wrap_uv_hrtime(void)
{
	const uint64_t now = ++clock_ns;
	if (asks != NULL)
		sem_post(asks);
	asks = NULL;
	return now;
}

struct fake {
	struct backend backend;
	uint64_t ns; /* that a task takes */
	pthread_t by;
	struct lanes *lanes;
	unsigned ended;
	uv_async_t message;
	uv_idle_t flush;
	unsigned at_flush; /* ended by then */
};

static int
compute(struct backend *m, uint32_t lane, const struct fal_lane_task *job,
	struct fal_task_result *ran)
{
	struct fake *f = (struct fake *)m;
	(void)lane;
	clock_ns += f->ns;
	f->by = pthread_self();
	ran->samples = job->count;
	return FAL_OK;
}

static void
on_end(void *arg, uint32_t lane, const struct lane_result *end)
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
	const struct fal_lane_task job = { .count = count };
	const unsigned before = f->ended;
	f->ns = ns;
	lane_start(f->lanes, 0, &job, !later);
	if (later)
		lane_release(f->lanes, 0);
	assert_int_equal(f->ended, before); /* nobody is called back from within */
	assert_false(lanes_are_idle(f->lanes));
	while (f->ended == before)
		uv_run(loop, UV_RUN_ONCE);
	assert_true(lanes_are_idle(f->lanes));
	return pthread_equal(f->by, pthread_self()) != 0;
}

static void
run_all(bool quick, uint32_t lanes, bool (*const check)(struct fake *, uv_loop_t *))
{
	static const struct backend_ops ops = { .run = compute };
	struct fake f = { .backend = { &ops, .only_computes = quick } };
	struct lanes_conf conf = {
		.backend = &f.backend, .lanes = lanes, .arg = &f, .on_end = on_end
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
	const struct fal_lane_task job = { .count = SAMPLES };
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

/* --- while it is at work ------------------------------------------------------------ */

enum { MOST = 6, COMPUTED = 1000, AGES = 1000000000 };

/* A task that needs so many blocks, step by step. */
struct worker {
	struct fake fake;
	struct fal_rng rng;
	uint32_t needs, need[MOST];
	uint64_t ns;
	sem_t waits;
	_Atomic uint32_t came;
	bool cancelled; /* what its end is to be */
	/* Of the one that runs. */
	_Atomic bool waiting, here; /* by the loop's thread */
	pthread_t loop;
};

/* The lane's thread: no word to cmocka from here. */
static int
work_waiting(struct backend *m, uint32_t lane, const struct fal_lane_task *job,
	     struct fal_task_result *ran)
{
	struct worker *w = (struct worker *)m;
	(void)lane;
	w->here = pthread_equal(pthread_self(), w->loop) != 0;
	w->waiting = job->wait != NULL;
	ran->samples = job->count;
	clock_ns += w->ns;
	for (uint32_t i = 0; i < w->needs && w->waiting; i++) {
		asks = &w->waits;
		const bool here =
			job->wait->need(job->wait->arg, (uint64_t)w->need[i] * FAL_BLOCK);
		asks = NULL;
		assert(!here || w->came >= w->need[i]);
		assert(here || w->cancelled);
		ran->cancelled = !here;
		if (!here)
			return FAL_OK;
	}
	return FAL_OK;
}

static void
on_waiting_end(void *arg, uint32_t lane, const struct lane_result *end)
{
	struct worker *w = arg;
	assert_int_equal(lane, 0);
	assert_int_equal(end->err, FAL_OK);
	assert_int_equal(end->ran.cancelled, w->cancelled);
	if (!w->cancelled &&
	    (end->ran.task_ns < w->ns || end->ran.task_ns > w->ns + COMPUTED))
		fail_msg("it took %llu ns, not %llu",
			 (unsigned long long)end->ran.task_ns, (unsigned long long)w->ns);
	w->fake.ended++;
}

static void
draw_needs(struct worker *w)
{
	uint32_t at = 0;
	w->needs = 1 + fal_rng_below(&w->rng, MOST);
	for (uint32_t i = 0; i < w->needs; i++)
		w->need[i] = at += fal_rng_below(&w->rng, 3) + (i == 0);
	w->cancelled = false;
}

static void
comes(struct worker *w, uint32_t blocks)
{
	w->came = blocks;
	lane_add_blocks(w->fake.lanes, 0, blocks);
}

/* What it needs comes when it waits for it, after ages, at times in vain; or it is
 * cancelled at this one. */
static void
feed(struct worker *w, uint32_t came, uint32_t cancel)
{
	for (uint32_t i = 0; i < w->needs; i++) {
		if (came >= w->need[i])
			continue;
		sem_wait(&w->waits);
		clock_ns += AGES;
		if (i == cancel) {
			w->cancelled = true;
			lane_cancel(w->fake.lanes, 0);
			return;
		}
		while (came < w->need[i])
			comes(w, came += 1 + fal_rng_below(&w->rng, 3));
	}
}

static void
run_worker(struct worker *w, uv_loop_t *loop, const struct fal_lane_task *job,
	   uint32_t cancel)
{
	const unsigned ended = w->fake.ended;
	w->came = job->run.coming ? job->run.came : UINT32_MAX;
	w->here = false;
	lane_start(w->fake.lanes, 0, job, true);
	if (!w->here)
		feed(w, w->came, cancel);
	while (w->fake.ended == ended)
		uv_run(loop, UV_RUN_ONCE);
	assert_true(lanes_are_idle(w->fake.lanes));
}

/* A plain one that takes so long; whether it is the loop's. */
static bool
plain_here(struct worker *w, uv_loop_t *loop, uint64_t ns)
{
	const struct fal_lane_task job = { .count = SAMPLES };
	w->needs = 0;
	w->cancelled = false;
	w->ns = ns;
	run_worker(w, loop, &job, UINT32_MAX);
	assert_false(w->waiting);
	return w->here;
}

static void
one_that_comes(struct worker *w, uv_loop_t *loop, bool cancelled)
{
	struct fal_lane_task job = { .count = SAMPLES, .run.coming = true };
	draw_needs(w);
	job.run.came = fal_rng_below(&w->rng, 2 * MOST);
	uint32_t cancel = UINT32_MAX;
	for (uint32_t i = w->needs; i-- > 0 && cancelled;)
		if (w->need[i] > job.run.came &&
		    (cancel == UINT32_MAX || one_in(&w->rng, 2)))
			cancel = i;
	/* One wait may bring what the later ones want. */
	run_worker(w, loop, &job, cancel);
	assert_true(w->waiting);
	assert_false(w->here);
}

static void
cancel_nothing(struct backend *m, uint32_t lane, uint64_t id)
{
	(void)m;
	(void)lane;
	(void)id;
}

static void
with_worker(void (*run)(struct worker *, uv_loop_t *))
{
	static const struct backend_ops ops = { .run = work_waiting,
						.cancel = cancel_nothing };
	struct worker w = { .fake.backend = { &ops, .only_computes = true },
			    .loop = pthread_self() };
	struct lanes_conf conf = { .backend = &w.fake.backend,
				   .lanes = 1,
				   .arg = &w,
				   .on_end = on_waiting_end };
	uv_loop_t loop;
	w.rng = fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	sem_init(&w.waits, 0, 0);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(lanes_new(&loop, &conf, &w.fake.lanes), FAL_OK);
	run(&w, &loop);
	lanes_free(w.fake.lanes);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	sem_destroy(&w.waits);
}

/* A task whose version still comes waits for it, in its lane, and that takes no time of
 * its own; the next one's thread goes by what the last took. */
static void
waits_and_tells(struct worker *w, uv_loop_t *loop)
{
	for (int i = 0; i < 100; i++) {
		w->ns = 1 + fal_rng_below(&w->rng, COMPUTED);
		one_that_comes(w, loop, one_in(&w->rng, 4));
		if (!w->cancelled)
			assert_true(plain_here(w, loop, COMPUTED));
		else
			(void)plain_here(w, loop, COMPUTED);
		if (one_in(&w->rng, 4))
			assert_true(plain_here(w, loop, AGES));
		else
			continue;
		/* Nor does one that did not come to its end tell how long others take. */
		w->ns = 1;
		one_that_comes(w, loop, true);
		if (w->cancelled)
			assert_false(plain_here(w, loop, COMPUTED));
	}
}

static void
coming_ones_wait(void **state)
{
	(void)state;
	with_worker(waits_and_tells);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quick_ones_are_here),
		cmocka_unit_test(who_waits_has_its_thread),
		cmocka_unit_test(lanes_share_the_loop),
		cmocka_unit_test(one_write_for_both),
		cmocka_unit_test(coming_ones_wait),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
