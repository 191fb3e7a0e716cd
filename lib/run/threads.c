/* Threads that share work: each thread takes the next free part. */
#include "run/threads.h"

#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

/* Work comes in bursts: a waiting thread yields its core for AWAKE_NS before the thread
 * sleeps, as a wake-up takes half of AWAKE_NS. */
#define AWAKE_NS 100000

struct helper {
	struct fal_threads *threads;
	pthread_t thread;
	uint32_t number; /* from 1 */
};

struct fal_threads {
	struct fal_parallel parallel;
	pthread_mutex_t mutex;
	pthread_cond_t begun, over;
	uint64_t worth; /* least work in ns that wakes helpers */
	int core;       /* the caller's core, which helpers avoid; -1: none yet */
	cpu_set_t allowed, assigned; /* cores for helpers; the same without `core` */
	bool is_ending;
	atomic_bool is_open; /* the work may have free parts */
	atomic_uint busy;    /* helpers that do parts */
	/* The work; constant while is_open or busy > 0. */
	fal_part_fn *part;
	void *of;
	uint32_t parts;
	atomic_uint next;
	struct helper helper[];
};

static int64_t
now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Yields until work is open or, for the caller, until no helper is busy; for AWAKE_NS at
 * most. */
static void
yield_awhile(const struct fal_threads *t, bool is_helper)
{
	const int64_t until = now_ns() + AWAKE_NS;
	while ((is_helper ? !t->is_open : t->busy > 0) && now_ns() < until)
		sched_yield();
}

static void
take_parts(struct fal_threads *t, uint32_t thread)
{
	uint32_t i;
	while ((i = atomic_fetch_add(&t->next, 1)) < t->parts)
		t->part(t->of, i, thread);
}

static void *
helper_main(void *arg)
{
	const struct helper *h = arg;
	struct fal_threads *t = h->threads;
	pthread_mutex_lock(&t->mutex);
	while (!t->is_ending) {
		if (!t->is_open) {
			pthread_cond_wait(&t->begun, &t->mutex);
			continue;
		}
		t->busy++;
		pthread_mutex_unlock(&t->mutex);
		take_parts(t, h->number);
		pthread_mutex_lock(&t->mutex);
		t->is_open = false;
		if (--t->busy == 0)
			pthread_cond_signal(&t->over);
		pthread_mutex_unlock(&t->mutex);
		yield_awhile(t, true);
		pthread_mutex_lock(&t->mutex);
	}
	pthread_mutex_unlock(&t->mutex);
	return NULL;
}

/* Bars helpers from the caller's core.  With few and busy cores Linux does not look for
 * an idle core: a woken helper would wait behind the caller, and the caller would do all
 * parts.  If the user has set another affinity meanwhile, the rest of that affinity
 * stays. */
static void
avoid_caller_core(struct fal_threads *t)
{
	const int core = sched_getcpu();
	cpu_set_t now;
	if (core < 0 || core == t->core || core >= CPU_SETSIZE ||
	    pthread_getaffinity_np(t->helper[0].thread, sizeof(now), &now) != 0)
		return;
	if (!CPU_EQUAL(&now, &t->assigned)) /* assigned is empty at first */
		t->allowed = now;
	t->core = core;
	t->assigned = t->allowed;
	CPU_CLR((size_t)core, &t->assigned);
	if (CPU_COUNT(&t->assigned) == 0)
		t->assigned = now;
	for (uint32_t i = 1; i < t->parallel.threads; i++)
		pthread_setaffinity_np(t->helper[i - 1].thread, sizeof(t->assigned),
				       &t->assigned);
}

/* Does all parts: struct fal_parallel's function. */
static void
do_parts(void *arg, uint32_t parts, fal_part_fn *part, void *of)
{
	struct fal_threads *t = arg;
	const int64_t began = now_ns();
	uint64_t left = 0;
	uint32_t done = 0;
	/* Does parts alone until their time shows that the rest is worth the helpers'
	 * wake-up.  The caller ends short work before a helper has woken up, and a helper
	 * would interrupt the work on its core. */
	while (done < parts && left < t->worth) {
		part(of, done++, 0);
		left = (uint64_t)(now_ns() - began) / done * (parts - done);
	}
	if (done == parts)
		return;
	avoid_caller_core(t);
	pthread_mutex_lock(&t->mutex);
	assert(!t->is_open && t->busy == 0);
	t->part = part;
	t->of = of;
	t->parts = parts;
	t->next = done;
	t->is_open = true;
	for (uint32_t i = 1; i < t->parallel.threads && i < parts - done; i++)
		pthread_cond_signal(&t->begun); /* no helper without a part */
	pthread_mutex_unlock(&t->mutex);
	take_parts(t, 0);
	yield_awhile(t, false);
	pthread_mutex_lock(&t->mutex);
	t->is_open = false;
	while (t->busy > 0)
		pthread_cond_wait(&t->over, &t->mutex);
	pthread_mutex_unlock(&t->mutex);
}

struct fal_threads *
fal_threads_new(uint32_t threads, uint64_t worth_ns)
{
	struct fal_threads *t =
		fal_xcalloc(1, sizeof(*t) + threads * sizeof(struct helper));
	sigset_t all, was;
	pthread_mutex_init(&t->mutex, NULL);
	pthread_cond_init(&t->begun, NULL);
	pthread_cond_init(&t->over, NULL);
	t->parallel = (struct fal_parallel){ 1, do_parts, t };
	t->worth = worth_ns;
	t->core = -1;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	for (uint32_t i = 1; i < threads; i++) {
		struct helper *h = &t->helper[i - 1];
		*h = (struct helper){ .threads = t, .number = i };
		if (pthread_create(&h->thread, NULL, helper_main, h) != 0)
			break;
		t->parallel.threads++;
	}
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return t;
}

void
fal_threads_free(struct fal_threads *t)
{
	if (t == NULL)
		return;
	pthread_mutex_lock(&t->mutex);
	t->is_ending = true;
	pthread_cond_broadcast(&t->begun);
	pthread_mutex_unlock(&t->mutex);
	for (uint32_t i = 1; i < t->parallel.threads; i++)
		pthread_join(t->helper[i - 1].thread, NULL);
	pthread_cond_destroy(&t->begun);
	pthread_cond_destroy(&t->over);
	pthread_mutex_destroy(&t->mutex);
	free(t);
}

uint64_t
fal_threads_bytes(uint32_t threads)
{
	enum { EACH = 384 << 10 }; /* measured */
	return (uint64_t)(threads - 1) * EACH;
}

const struct fal_parallel *
fal_threads_parallel(const struct fal_threads *t)
{
	return t != NULL ? &t->parallel : NULL;
}
