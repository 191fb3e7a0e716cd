/* The threads that compute, and the tasks that the loop's thread computes itself. */
#include "lanes.h"

#include "base/mem.h"
#include "cli/cores.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* Handing a task to another thread and back takes tens of microseconds.  The loop's
 * thread computes a task itself if the tasks of all lanes together keep the loop busy for
 * less than QUICK_NS. */
#define QUICK_NS 200000u

enum { KILLED = 137 }; /* the exit status that a shell reports for signal 9 */

enum lane_state {
	LANE_IDLE,
	LANE_HELD, /* the task waits for its samples */
	LANE_RUNNING,
	LANE_OVER /* the result is not reported yet */
};

struct lane {
	struct lanes *lanes;
	uint32_t number;
	pthread_t thread;
	pthread_cond_t wake;
	/* Only the loop's thread uses the following members. */
	bool is_busy;
	uint64_t steps; /* steps of ended emulated tasks */
	struct fal_emul_previous previous;
	struct fal_emul_task task; /* with emulation */
	/* The computing time and the samples of the lane's last task; 0: not known.  The
	 * computing thread sets both members; other threads read them while no thread
	 * computes. */
	uint64_t took_ns;
	uint32_t took_count;
	/* The mutex protects the following members.  While the state is LANE_RUNNING,
	 * `job`, `begun_ns` and `virtual_ns` are only read. */
	enum lane_state state;
	bool is_cancelled, quits;
	struct fal_net_wait wait;
	uint32_t arrived;   /* blocks of the task's version */
	uint32_t awaited;   /* blocks that the task waits for; 0: it does not wait */
	uint64_t waited_ns; /* time that the task has waited for blocks */
	struct fal_lane_task job;
	uint64_t begun_ns, virtual_ns, regained_ns;
	/* how the last task ended; the next emulated task begins from there */
	struct fal_emul_previous ended;
	struct lane_result result;
};

struct lanes {
	struct lanes_conf conf;
	pthread_mutex_t mutex;
	/* A thread whose task is over wakes the loop through this eventfd.  With a
	 * uv_async_t the loop would spin until the waking thread runs again, which takes
	 * long if both use the same core. */
	int wake_fd;
	uv_poll_t poll;
	/* `check` reports the tasks that the loop's thread computed.  The report comes
	 * after the return to the caller that started the tasks, and before this turn's
	 * messages are written, as the report adds messages. */
	uv_check_t check;
	uv_idle_t idle;
	uv_timer_t crash, freeze; /* faults of --emulate */
	bool faults_started;
	unsigned handles; /* open handles */
	uint32_t threads; /* started threads */
	uint64_t ids;     /* tasks so far */
	struct lane lane[];
};

/* Computes the lane's task, and ends it; an emulated task ends at its virtual end.  The
 * mutex is held, but not while computing. */
static void
lane_compute(struct lane *l)
{
	struct lane_result r = { .ran.cancelled = l->is_cancelled };
	if (!l->is_cancelled) {
		pthread_mutex_unlock(&l->lanes->mutex);
		const uint64_t from = uv_hrtime();
		struct backend *b = l->lanes->conf.backend;
		r.err = b->ops->run(b, l->number, &l->job, &r.ran);
		/* The time of an unfinished task predicts no other task's time. */
		l->took_ns = l->job.run.eval || r.ran.cancelled
				     ? 0
				     : uv_hrtime() - from - l->waited_ns;
		l->took_count = l->job.count;
		pthread_mutex_lock(&l->lanes->mutex);
	}
	uint64_t now = uv_hrtime();
	const uint64_t due = l->begun_ns + l->virtual_ns;
	const struct timespec t = { (time_t)(due / 1000000000),
				    (long)(due % 1000000000) };
	l->ended = (struct fal_emul_previous){ .in_time = now < due, .end = due };
	if (l->virtual_ns > 0) {
		while (!l->is_cancelled && uv_hrtime() < due)
			pthread_cond_timedwait(&l->wake, &l->lanes->mutex, &t);
		now = uv_hrtime();
	}
	r.ran.cancelled |= l->is_cancelled;
	if (r.ran.task_ns == 0 || l->virtual_ns > 0)
		r.ran.task_ns = now - l->begun_ns - l->waited_ns;
	r.ran.waited_ns = l->waited_ns;
	r.virtual_ns = l->is_cancelled ? 0 : l->virtual_ns;
	l->ended.late = now > due ? now - due : 0;
	r.late_ns = (int64_t)(l->ended.late - l->regained_ns);
	l->result = r;
	l->state = LANE_OVER;
}

static void
wake_loop(const struct lanes *all)
{
	const uint64_t one = 1;
	(void)!write(all->wake_fd, &one, sizeof(one));
}

/* Waits, in the lane's thread, for the blocks that the lane's task needs next.  The wait
 * does not count as the task's time. */
static bool
on_blocks_needed(void *arg, uint64_t floats)
{
	struct lane *l = arg;
	const uint32_t blocks = fal_blocks(floats);
	pthread_mutex_lock(&l->lanes->mutex);
	const uint64_t from = l->arrived < blocks ? uv_hrtime() : 0;
	l->awaited = blocks;
	while (l->arrived < blocks && !l->is_cancelled)
		pthread_cond_wait(&l->wake, &l->lanes->mutex);
	l->awaited = 0;
	if (from != 0)
		l->waited_ns += uv_hrtime() - from;
	const bool arrived = l->arrived >= blocks;
	pthread_mutex_unlock(&l->lanes->mutex);
	return arrived;
}

static void *
lane_thread(void *arg)
{
	struct lane *l = arg;
	/* An emulated task ends on time, not up to 50 µs later. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	pthread_mutex_lock(&l->lanes->mutex);
	while (!l->quits) {
		if (l->state == LANE_RUNNING) {
			lane_compute(l);
			/* The loop, once awake, must not wait for the mutex. */
			pthread_mutex_unlock(&l->lanes->mutex);
			wake_loop(l->lanes);
			pthread_mutex_lock(&l->lanes->mutex);
		} else {
			pthread_cond_wait(&l->wake, &l->lanes->mutex);
		}
	}
	pthread_mutex_unlock(&l->lanes->mutex);
	return NULL;
}

/* The virtual progress of an emulated task, `ns` after it began. */
static uint64_t
emulated_steps(const struct lane *l, uint64_t ns)
{
	enum { STEPS = 64 }; /* steps of a task */
	const double part = l->virtual_ns > 0 ? (double)ns / (double)l->virtual_ns : 0;
	return (uint64_t)(STEPS * (part < 1 ? part : 1));
}

/* Reports ended tasks.  If the callback starts a lane's next task, that task begins in
 * virtual time where the previous task ended. */
static void
lanes_report(struct lanes *all)
{
	for (uint32_t i = 0; i < all->conf.lanes; i++) {
		struct lane *l = &all->lane[i];
		pthread_mutex_lock(&all->mutex);
		const bool is_over = l->state == LANE_OVER;
		const struct lane_result r = l->result;
		if (is_over)
			l->state = LANE_IDLE;
		l->previous = l->ended;
		l->previous.next = is_over && !r.ran.cancelled;
		pthread_mutex_unlock(&all->mutex);
		if (!is_over)
			continue;
		l->is_busy = false;
		if (l->begun_ns != 0)
			l->steps += emulated_steps(l, r.ran.task_ns);
		if (all->conf.emulate != NULL && l->begun_ns != 0)
			fal_emul_end(all->conf.emulate, &l->task,
				     l->begun_ns + r.ran.task_ns);
		all->conf.on_end(all->conf.arg, i, &r);
	}
	for (uint32_t i = 0; i < all->conf.lanes; i++)
		all->lane[i].previous.next = false;
}

static void
on_wake_fd(uv_poll_t *h, int status, int events)
{
	struct lanes *all = h->data;
	uint64_t times;
	(void)status;
	(void)events;
	(void)!read(all->wake_fd, &times, sizeof(times));
	lanes_report(all);
}

static void
lanes_on_check(uv_check_t *h)
{
	struct lanes *all = h->data;
	uv_check_stop(&all->check);
	uv_idle_stop(&all->idle);
	lanes_report(all);
}

static void
lanes_on_idle(uv_idle_t *h)
{
	struct lanes *all = h->data;
	lanes_on_check(&all->check);
}

/* ---- faults of --emulate --- */

static void
on_crash(uv_timer_t *t)
{
	(void)t;
	_exit(KILLED);
}

/* Stops the loop as SIGSTOP would.  Meanwhile the emulated speed is 0, so the lanes'
 * tasks stand still. */
static void
on_freeze(uv_timer_t *t)
{
	const struct lanes *all = t->data;
	const struct fal_emul *e = all->conf.emulate;
	const uint64_t end = e->origin + e->freeze_ns + e->freeze_for_ns;
	const struct timespec at = { (time_t)(end / 1000000000),
				     (long)(end % 1000000000) };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

/* Starts a timer that ends `at` ns after the first task began, unless that time is
 * past. */
static void
start_fault(const struct lanes *all, uv_timer_t *timer, uint64_t at, uv_timer_cb cb)
{
	const uint64_t due = all->conf.emulate->origin + at, now = uv_hrtime();
	if (at != 0 && due >= now)
		uv_timer_start(timer, cb, (due - now) / 1000000, 0);
}

/* ---- beginning and end --- */

int
lanes_new(uv_loop_t *loop, const struct lanes_conf *conf, struct lanes **out)
{
	struct lanes *all =
		fal_xcalloc(1, sizeof(*all) + conf->lanes * sizeof(struct lane));
	all->conf = *conf;
	all->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (all->wake_fd < 0 || uv_poll_init(loop, &all->poll, all->wake_fd) < 0) {
		if (all->wake_fd >= 0)
			close(all->wake_fd);
		free(all);
		return FAL_EIO;
	}
	uv_poll_start(&all->poll, UV_READABLE, on_wake_fd);
	uv_check_init(loop, &all->check);
	uv_idle_init(loop, &all->idle);
	uv_timer_init(loop, &all->crash);
	uv_timer_init(loop, &all->freeze);
	all->poll.data = all->check.data = all->idle.data = all;
	all->crash.data = all->freeze.data = all;
	all->handles = 5;
	pthread_mutex_init(&all->mutex, NULL);
	for (; all->threads < conf->lanes; all->threads++) {
		struct lane *l = &all->lane[all->threads];
		pthread_condattr_t monotonic;
		l->lanes = all;
		l->number = all->threads;
		l->wait = (struct fal_net_wait){ l, on_blocks_needed };
		pthread_condattr_init(&monotonic);
		pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
		pthread_cond_init(&l->wake, &monotonic);
		pthread_condattr_destroy(&monotonic);
		if (pthread_create(&l->thread, NULL, lane_thread, l) != 0) {
			pthread_cond_destroy(&l->wake);
			lanes_free(all);
			return FAL_ENOMEM; /* no memory for a stack */
		}
	}
	*out = all;
	return FAL_OK;
}

static void
lanes_on_closed(uv_handle_t *h)
{
	struct lanes *all = h->data;
	if (--all->handles > 0)
		return;
	close(all->wake_fd);
	free(all);
}

void
lanes_free(struct lanes *all)
{
	if (all == NULL)
		return;
	for (uint32_t i = 0; i < all->threads; i++) {
		struct lane *l = &all->lane[i];
		assert(!l->is_busy);
		pthread_mutex_lock(&all->mutex);
		l->quits = true;
		pthread_cond_signal(&l->wake);
		pthread_mutex_unlock(&all->mutex);
		pthread_join(l->thread, NULL);
		pthread_cond_destroy(&l->wake);
	}
	pthread_mutex_destroy(&all->mutex);
	uv_close((uv_handle_t *)&all->poll, lanes_on_closed);
	uv_close((uv_handle_t *)&all->check, lanes_on_closed);
	uv_close((uv_handle_t *)&all->idle, lanes_on_closed);
	uv_close((uv_handle_t *)&all->crash, lanes_on_closed);
	uv_close((uv_handle_t *)&all->freeze, lanes_on_closed);
}

void
lane_start(struct lanes *all, uint32_t lane, const struct fal_lane_task *job,
	   bool has_samples)
{
	struct lane *l = &all->lane[lane];
	assert(!l->is_busy);
	pthread_mutex_lock(&all->mutex);
	l->is_busy = true;
	l->is_cancelled = false;
	l->begun_ns = l->waited_ns = 0;
	l->arrived = job->run.coming ? job->run.came : UINT32_MAX;
	l->job = *job;
	l->job.id = ++all->ids;
	l->job.hashed = all->conf.hashes_tasks;
	l->job.flip = all->conf.emulate != NULL && !job->run.eval &&
		      fal_emul_flips(all->conf.emulate, job->run.clock, job->run.task);
	l->state = LANE_HELD;
	pthread_mutex_unlock(&all->mutex);
	if (has_samples)
		lane_release(all, lane);
}

void
lane_release(struct lanes *all, uint32_t lane)
{
	struct lane *l = &all->lane[lane];
	struct fal_emul *e = all->conf.emulate;
	uint32_t active = 1;
	pthread_mutex_lock(&all->mutex);
	assert(l->state == LANE_HELD);
	const uint64_t now = uv_hrtime();
	for (uint32_t i = 0; i < all->conf.lanes; i++)
		active += all->lane[i].state == LANE_RUNNING;
	l->virtual_ns = 0;
	l->begun_ns = now;
	if (e != NULL) {
		const struct fal_emul_job job = { l->job.count, active, l->job.run.eval };
		l->begun_ns =
			fal_emul_task_begin_time(&l->previous, now, &l->regained_ns);
		l->task = fal_emul_begin(e, &job, l->begun_ns);
		l->virtual_ns = l->task.end - l->begun_ns;
		if (!all->faults_started) {
			uv_update_time(all->crash.loop);
			start_fault(all, &all->crash, e->crash_ns, on_crash);
			start_fault(all, &all->freeze, e->freeze_ns, on_freeze);
		}
		all->faults_started = true;
	}
	/* The loop's thread computes the task if the lane's last task was quick. */
	const bool wake = !all->conf.backend->only_computes || e != NULL ||
			  l->job.run.eval || l->job.run.coming || l->took_ns == 0 ||
			  l->took_ns >= QUICK_NS / all->conf.lanes ||
			  l->job.count > l->took_count;
	if (wake) {
		l->state = LANE_RUNNING;
		l->job.wait = l->job.run.coming ? &l->wait : NULL;
	} else {
		lane_compute(l);
		/* on_end follows from the loop */
		uv_check_start(&all->check, lanes_on_check);
		uv_idle_start(&all->idle, lanes_on_idle);
	}
	pthread_mutex_unlock(&all->mutex);
	/* Under the mutex the lane would wake up only to wait for the mutex. */
	if (wake)
		pthread_cond_signal(&l->wake);
}

void
lane_add_blocks(struct lanes *all, uint32_t lane, uint32_t blocks)
{
	struct lane *l = &all->lane[lane];
	pthread_mutex_lock(&all->mutex);
	l->arrived = blocks;
	const bool wake = l->awaited > 0 && blocks >= l->awaited;
	pthread_mutex_unlock(&all->mutex);
	if (wake)
		pthread_cond_signal(&l->wake);
}

void
lane_cancel(struct lanes *all, uint32_t lane)
{
	struct lane *l = &all->lane[lane];
	pthread_mutex_lock(&all->mutex);
	l->is_cancelled = true;
	struct backend *b = all->conf.backend;
	if (l->state == LANE_RUNNING && b->ops->cancel != NULL)
		b->ops->cancel(b, lane, l->job.id);
	if (l->state == LANE_HELD) {
		l->result = (struct lane_result){ .ran.cancelled = true };
		l->state = LANE_OVER;
		wake_loop(all);
	}
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&all->mutex);
}

const struct fal_lane_task *
lane_held_task(struct lanes *all, uint32_t lane)
{
	pthread_mutex_lock(&all->mutex);
	const bool is_held = all->lane[lane].state == LANE_HELD;
	pthread_mutex_unlock(&all->mutex);
	return is_held ? &all->lane[lane].job : NULL;
}

uint64_t
lanes_progress(const struct lanes *all)
{
	uint64_t n = 0;
	if (all->conf.emulate == NULL)
		return all->conf.backend->ops->progress(all->conf.backend);
	for (uint32_t i = 0; i < all->conf.lanes; i++) {
		const struct lane *l = &all->lane[i];
		n += l->steps;
		if (l->is_busy && l->begun_ns != 0)
			n += emulated_steps(l, uv_hrtime() - l->begun_ns);
	}
	return n;
}

bool
lanes_are_idle(const struct lanes *all)
{
	for (uint32_t i = 0; i < all->conf.lanes; i++)
		if (all->lane[i].is_busy)
			return false;
	return true;
}

/* ---- cores --- */

#define SPARE_EVERY_NS UINT64_C(500000000)

/* Shares of a core.  A worker alone on two cores leaves 0.43 and more, two workers leave
 * 0.25 and less; the thresholds lie between.  A smaller share suffices to keep the answer
 * true than to make it true. */
static const double spare_to_begin = 0.35, spare_to_stay = 0.28;

bool
spare_core_exists(struct spare_core *s, uint64_t now, uint32_t lanes)
{
	const uint64_t since = now - s->at;
	if (s->at > 0 && since < SPARE_EVERY_NS)
		return s->exists;
	const uint64_t idle = fal_cli_idle_ns(""), own = fal_cli_cpu_ns();
	const double left = (double)(idle - s->idle) + (double)(own - s->own);
	const double enough = lanes + (s->exists ? spare_to_stay : spare_to_begin);
	const bool is_known = s->at > 0 && idle > 0 && idle >= s->idle && own >= s->own;
	s->exists = is_known && left >= enough * (double)since;
	s->at = now;
	s->idle = idle;
	s->own = own;
	return s->exists;
}
