/* Threads that compute; what is quickly done is done where it came. */
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

/* Two threads take tens of microseconds to hand a task over and back.  A task that takes
 * less than so many ns of the loop, of all lanes together, has none of that. */
#define QUICK_NS 200000u

enum { KILLED = 137 }; /* as a shell sees one that was killed by signal 9 */

enum state { IDLE, HELD, GIVEN, OVER };

struct lane {
	struct lanes *all;
	uint32_t number;
	pthread_t thread;
	pthread_cond_t wake;
	/* The loop's alone. */
	bool busy;
	uint64_t steps; /* of emulated tasks that are over */
	struct fal_emulated before;
	struct fal_emul_task task; /* with emulation */
	/* The computing time and the samples of the lane's last task; 0: not known.  The
	 * computing thread sets both; they are read while no thread computes. */
	uint64_t took_ns;
	uint32_t took_count;
	/* Under the mutex; while GIVEN, `job`, `begun` and `due_ns` are only read. */
	enum state state;
	bool cancelled, quit;
	struct fal_net_wait wait;
	uint32_t came;   /* of what is coming, blocks that are here */
	uint32_t needs;  /* of those, how many it waits for; 0: it does not */
	uint64_t waited; /* ns that the task has, for its parameters */
	struct fal_run_job job;
	uint64_t begun, due_ns, regained;
	struct fal_emulated over; /* the task that is over, for the next one */
	struct lane_end end;
};

struct lanes {
	struct lanes_conf conf;
	pthread_mutex_t mutex;
	/* A thread whose task is over tells the loop through this eventfd.  A uv_async_t
	 * has the loop spin for as long as the thread that woke the loop does not run
	 * again, as on the loop's own core. */
	int told;
	uv_poll_t poll;
	/* The first of these two reports tasks that were computed here: after the return
	 * to the caller that started them, and before this turn's messages are written,
	 * to which the report adds. */
	uv_check_t check;
	uv_idle_t idle;
	uv_timer_t crash, freeze; /* faults of --emulate */
	bool faults;              /* these are under way */
	unsigned handles;         /* that are open */
	uint32_t started;         /* threads */
	uint64_t ids;             /* of tasks, so far */
	struct lane lane[];
};

/* Sleeps until uv_hrtime() is `until`, or the task is cancelled. */
static void
sleep_until(struct lane *l, uint64_t until)
{
	const struct timespec t = { (time_t)(until / 1000000000),
				    (long)(until % 1000000000) };
	while (!l->cancelled && uv_hrtime() < until)
		pthread_cond_timedwait(&l->wake, &l->all->mutex, &t);
}

/* The task has come to this; the mutex is held. */
static void
end_as(struct lane *l, struct lane_end end)
{
	uint64_t now = uv_hrtime(), due = l->begun + l->due_ns;
	l->over = (struct fal_emulated){ .in_time = now < due, .end = due };
	if (l->due_ns > 0) {
		sleep_until(l, due);
		now = uv_hrtime();
	}
	end.ran.cancelled |= l->cancelled;
	if (end.ran.task_ns == 0 || l->due_ns > 0)
		end.ran.task_ns = now - l->begun - l->waited;
	end.ran.waited_ns = l->waited;
	end.emulated = l->due_ns > 0 && !l->cancelled;
	end.due_ns = l->due_ns;
	l->over.late = now > due ? now - due : 0;
	end.late_ns = (int64_t)(l->over.late - l->regained);
	l->end = end;
	l->state = OVER;
}

/* The task that was given; the mutex is held, but not while computing. */
static void
work(struct lane *l)
{
	struct lane_end end = { .ran.cancelled = l->cancelled };
	if (!l->cancelled) {
		pthread_mutex_unlock(&l->all->mutex);
		const uint64_t from = uv_hrtime();
		struct maker *m = l->all->conf.maker;
		end.err = m->ops->run(m, l->number, &l->job, &end.ran);
		/* A task that was not done to its end tells nothing of others. */
		l->took_ns = l->job.run.eval || end.ran.cancelled
				     ? 0
				     : uv_hrtime() - from - l->waited;
		l->took_count = l->job.count;
		pthread_mutex_lock(&l->all->mutex);
	}
	end_as(l, end);
}

static void
tell(const struct lanes *all)
{
	const uint64_t one = 1;
	(void)!write(all->told, &one, sizeof(one));
}

/* The lane's thread waits for what its task needs next: that is no part of what the task
 * takes. */
static bool
on_need(void *arg, uint64_t floats)
{
	struct lane *l = arg;
	const uint32_t blocks = fal_blocks(floats);
	pthread_mutex_lock(&l->all->mutex);
	const uint64_t from = l->came < blocks ? uv_hrtime() : 0;
	l->needs = blocks;
	while (l->came < blocks && !l->cancelled)
		pthread_cond_wait(&l->wake, &l->all->mutex);
	l->needs = 0;
	if (from != 0)
		l->waited += uv_hrtime() - from;
	const bool here = l->came >= blocks;
	pthread_mutex_unlock(&l->all->mutex);
	return here;
}

static void *
lane_main(void *arg)
{
	struct lane *l = arg;
	/* An emulated task ends on time, not up to 50 µs later. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	pthread_mutex_lock(&l->all->mutex);
	while (!l->quit) {
		if (l->state == GIVEN) {
			work(l);
			/* Whom this wakes is not to wait for the mutex. */
			pthread_mutex_unlock(&l->all->mutex);
			tell(l->all);
			pthread_mutex_lock(&l->all->mutex);
		} else {
			pthread_cond_wait(&l->wake, &l->all->mutex);
		}
	}
	pthread_mutex_unlock(&l->all->mutex);
	return NULL;
}

/* How far an emulated task is, `ns` after it began. */
static uint64_t
emulated_steps(const struct lane *l, uint64_t ns)
{
	enum { STEPS = 64 }; /* of a task */
	const double part = l->due_ns > 0 ? (double)ns / (double)l->due_ns : 0;
	return (uint64_t)(STEPS * (part < 1 ? part : 1));
}

/* Reports the tasks that are over.  A lane whose next task is started meanwhile goes on
 * where the one before ended. */
static void
report(struct lanes *all)
{
	for (uint32_t i = 0; i < all->conf.lanes; i++) {
		struct lane *l = &all->lane[i];
		pthread_mutex_lock(&all->mutex);
		const bool over = l->state == OVER;
		const struct lane_end end = l->end;
		if (over)
			l->state = IDLE;
		l->before = l->over;
		l->before.next = over && !end.ran.cancelled;
		pthread_mutex_unlock(&all->mutex);
		if (!over)
			continue;
		l->busy = false;
		if (l->begun != 0)
			l->steps += emulated_steps(l, end.ran.task_ns);
		if (all->conf.emulate != NULL && l->begun != 0)
			fal_emul_end(all->conf.emulate, &l->task,
				     l->begun + end.ran.task_ns);
		all->conf.on_end(all->conf.arg, i, &end);
	}
	for (uint32_t i = 0; i < all->conf.lanes; i++)
		all->lane[i].before.next = false;
}

static void
on_told(uv_poll_t *h, int status, int events)
{
	struct lanes *all = h->data;
	uint64_t times;
	(void)status;
	(void)events;
	(void)!read(all->told, &times, sizeof(times));
	report(all);
}

static void
on_check(uv_check_t *h)
{
	struct lanes *all = h->data;
	uv_check_stop(&all->check);
	uv_idle_stop(&all->idle);
	report(all);
}

static void
on_idle(uv_idle_t *h)
{
	struct lanes *all = h->data;
	on_check(&all->check);
}

/* ---- faults of --emulate --- */

static void
on_crash(uv_timer_t *t)
{
	(void)t;
	_exit(KILLED);
}

/* As under SIGSTOP: the loop does nothing.  The tasks of the lanes stand still in their
 * speed. */
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

/* Starts a timer for `at` ns from the first task, unless that is over. */
static void
start_fault(const struct lanes *all, uv_timer_t *timer, uint64_t at, uv_timer_cb cb)
{
	const uint64_t due = all->conf.emulate->origin + at, now = uv_hrtime();
	if (at != 0 && due >= now)
		uv_timer_start(timer, cb, (due - now) / 1000000, 0);
}

/* The first task has begun. */
static void
start_faults(struct lanes *all)
{
	if (all->faults)
		return;
	all->faults = true;
	uv_update_time(all->crash.loop);
	start_fault(all, &all->crash, all->conf.emulate->crash_ns, on_crash);
	start_fault(all, &all->freeze, all->conf.emulate->freeze_ns, on_freeze);
}

/* ---- beginning and end --- */

static int
start_thread(struct lanes *all, uint32_t number)
{
	struct lane *l = &all->lane[number];
	pthread_condattr_t monotonic;
	l->all = all;
	l->number = number;
	l->wait = (struct fal_net_wait){ l, on_need };
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&l->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (pthread_create(&l->thread, NULL, lane_main, l) == 0)
		return FAL_OK;
	pthread_cond_destroy(&l->wake);
	return FAL_ENOMEM; /* of a stack */
}

int
lanes_new(uv_loop_t *loop, const struct lanes_conf *conf, struct lanes **out)
{
	struct lanes *all =
		fal_xcalloc(1, sizeof(*all) + conf->lanes * sizeof(struct lane));
	all->conf = *conf;
	all->told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (all->told < 0 || uv_poll_init(loop, &all->poll, all->told) < 0) {
		if (all->told >= 0)
			close(all->told);
		free(all);
		return FAL_EIO;
	}
	uv_poll_start(&all->poll, UV_READABLE, on_told);
	uv_check_init(loop, &all->check);
	uv_idle_init(loop, &all->idle);
	uv_timer_init(loop, &all->crash);
	uv_timer_init(loop, &all->freeze);
	all->poll.data = all->check.data = all->idle.data = all;
	all->crash.data = all->freeze.data = all;
	all->handles = 5;
	pthread_mutex_init(&all->mutex, NULL);
	int err = FAL_OK;
	for (; all->started < conf->lanes && err == FAL_OK; all->started += err == FAL_OK)
		err = start_thread(all, all->started);
	if (err < 0) {
		lanes_free(all);
		return err;
	}
	*out = all;
	return FAL_OK;
}

static void
on_closed(uv_handle_t *h)
{
	struct lanes *all = h->data;
	if (--all->handles > 0)
		return;
	close(all->told);
	free(all);
}

void
lanes_free(struct lanes *all)
{
	if (all == NULL)
		return;
	for (uint32_t i = 0; i < all->started; i++) {
		struct lane *l = &all->lane[i];
		assert(!l->busy);
		pthread_mutex_lock(&all->mutex);
		l->quit = true;
		pthread_cond_signal(&l->wake);
		pthread_mutex_unlock(&all->mutex);
		pthread_join(l->thread, NULL);
		pthread_cond_destroy(&l->wake);
	}
	pthread_mutex_destroy(&all->mutex);
	uv_close((uv_handle_t *)&all->poll, on_closed);
	uv_close((uv_handle_t *)&all->check, on_closed);
	uv_close((uv_handle_t *)&all->idle, on_closed);
	uv_close((uv_handle_t *)&all->crash, on_closed);
	uv_close((uv_handle_t *)&all->freeze, on_closed);
}

/* Is the task to be computed here, as it is like the last one, which was quick? */
static bool
is_quick(const struct lanes *all, const struct lane *l)
{
	return all->conf.maker->quick && all->conf.emulate == NULL && !l->job.run.eval &&
	       !l->job.run.coming && l->took_ns > 0 &&
	       l->took_ns < QUICK_NS / all->conf.lanes && l->job.count <= l->took_count;
}

/* The mutex is held.  True: the lane is to be woken when it is not any more, or it wakes
 * up only to wait for that.  False: that is not needed. */
static bool
begin(struct lanes *all, struct lane *l)
{
	const uint64_t now = uv_hrtime();
	struct fal_emul *e = all->conf.emulate;
	uint32_t active = 1;
	for (uint32_t i = 0; i < all->conf.lanes; i++)
		active += all->lane[i].state == GIVEN;
	l->due_ns = 0;
	l->begun = now;
	if (e != NULL) {
		const struct fal_emul_job job = { l->job.count, active, l->job.run.eval };
		l->begun = fal_emul_start(&l->before, now, &l->regained);
		l->task = fal_emul_begin(e, &job, l->begun);
		l->due_ns = l->task.end - l->begun;
		start_faults(all);
	}
	if (!is_quick(all, l)) {
		l->state = GIVEN;
		l->job.wait = l->job.run.coming ? &l->wait : NULL;
		return true;
	}
	work(l);
	uv_check_start(&all->check, on_check); /* nobody is called back from here */
	uv_idle_start(&all->idle, on_idle);
	return false;
}

void
lane_start(struct lanes *all, uint32_t lane, const struct fal_run_job *job, bool here)
{
	struct lane *l = &all->lane[lane];
	assert(!l->busy);
	pthread_mutex_lock(&all->mutex);
	l->busy = true;
	l->cancelled = false;
	l->begun = l->waited = 0;
	l->came = job->run.coming ? job->run.came : UINT32_MAX;
	l->job = *job;
	l->job.id = ++all->ids;
	l->job.hashed = all->conf.hashed;
	l->job.flip = all->conf.emulate != NULL && !job->run.eval &&
		      fal_emul_flips(all->conf.emulate, job->run.clock, job->run.task);
	l->state = HELD;
	const bool wake = here && begin(all, l);
	pthread_mutex_unlock(&all->mutex);
	if (wake)
		pthread_cond_signal(&l->wake);
}

void
lane_begin(struct lanes *all, uint32_t lane)
{
	pthread_mutex_lock(&all->mutex);
	const bool wake = begin(all, &all->lane[lane]);
	pthread_mutex_unlock(&all->mutex);
	if (wake)
		pthread_cond_signal(&all->lane[lane].wake);
}

void
lane_came(struct lanes *all, uint32_t lane, uint32_t blocks)
{
	struct lane *l = &all->lane[lane];
	pthread_mutex_lock(&all->mutex);
	l->came = blocks;
	const bool wake = l->needs > 0 && blocks >= l->needs;
	pthread_mutex_unlock(&all->mutex);
	if (wake)
		pthread_cond_signal(&l->wake);
}

void
lane_cancel(struct lanes *all, uint32_t lane)
{
	struct lane *l = &all->lane[lane];
	pthread_mutex_lock(&all->mutex);
	l->cancelled = true;
	struct maker *m = all->conf.maker;
	if (l->state == GIVEN && m->ops->cancel != NULL)
		m->ops->cancel(m, lane, l->job.id);
	if (l->state == HELD) {
		l->end = (struct lane_end){ .ran.cancelled = true };
		l->state = OVER;
		tell(all);
	}
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&all->mutex);
}

const struct fal_run_job *
lane_waits(struct lanes *all, uint32_t lane)
{
	pthread_mutex_lock(&all->mutex);
	const bool held = all->lane[lane].state == HELD;
	pthread_mutex_unlock(&all->mutex);
	return held ? &all->lane[lane].job : NULL;
}

uint64_t
lanes_steps(const struct lanes *all)
{
	uint64_t n = 0;
	if (all->conf.emulate == NULL)
		return all->conf.maker->ops->steps(all->conf.maker);
	for (uint32_t i = 0; i < all->conf.lanes; i++) {
		const struct lane *l = &all->lane[i];
		if (l->busy && l->begun != 0)
			n += l->steps + emulated_steps(l, uv_hrtime() - l->begun);
		else
			n += l->steps;
	}
	return n;
}

bool
lanes_idle(const struct lanes *all)
{
	for (uint32_t i = 0; i < all->conf.lanes; i++)
		if (all->lane[i].busy)
			return false;
	return true;
}

/* ---- cores --- */

#define SPARE_EVERY_NS UINT64_C(500000000)

/* Shares of a core, between the rest that one worker on two cores leaves, 0.43 and more,
 * and the rest that two workers leave, 0.25 and less.  The work there stays with a
 * smaller share than it needs to begin. */
static const double to_begin = 0.35, to_stay = 0.28;

bool
spare_core(struct spare *s, uint64_t now, uint32_t lanes)
{
	const uint64_t since = now - s->at;
	if (s->at > 0 && since < SPARE_EVERY_NS)
		return s->core;
	const uint64_t idle = fal_cli_idle_ns(""), own = fal_cli_own_ns();
	const double left = (double)(idle - s->idle) + (double)(own - s->own);
	const double enough = lanes + (s->core ? to_stay : to_begin);
	const bool told = s->at > 0 && idle > 0 && idle >= s->idle && own >= s->own;
	s->core = told && left >= enough * (double)since;
	s->at = now;
	s->idle = idle;
	s->own = own;
	return s->core;
}
