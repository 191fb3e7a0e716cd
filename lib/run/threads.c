/* Threads that share work: each takes the next part that nobody has taken. */
#include "run/threads.h"

#include "base/mem.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

/* Work comes in bursts: who waits sleeps only after so much time, as waking up takes half
 * of it, and gives way to whoever has something to do. */
#define AWAKE_NS 100000

struct helper {
	struct fal_threads *all;
	pthread_t thread;
	uint32_t number; /* from 1 */
};

struct fal_threads {
	struct fal_parallel parallel;
	pthread_mutex_t mutex;
	pthread_cond_t begun, over;
	uint64_t worth;         /* ns of work that they are woken for */
	int core;               /* the caller's, which helpers keep off; -1: none yet */
	cpu_set_t cores, given; /* that helpers may be on; without that one */
	bool end;
	atomic_bool open;   /* there may be parts that nobody has taken */
	atomic_uint inside; /* helpers that do parts */
	/* What is done; as it is while it is open, or somebody is inside. */
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

static bool
has_begun(const struct fal_threads *t)
{
	return t->open;
}

static bool
is_over(const struct fal_threads *t)
{
	return t->inside == 0;
}

static void
stay_awake(const struct fal_threads *t, bool (*for_what)(const struct fal_threads *t))
{
	const int64_t until = now_ns() + AWAKE_NS;
	while (!for_what(t) && now_ns() < until)
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
	struct fal_threads *t = h->all;
	pthread_mutex_lock(&t->mutex);
	while (!t->end) {
		if (!t->open) {
			pthread_cond_wait(&t->begun, &t->mutex);
			continue;
		}
		t->inside++;
		pthread_mutex_unlock(&t->mutex);
		take_parts(t, h->number);
		pthread_mutex_lock(&t->mutex);
		t->open = false;
		if (--t->inside == 0)
			pthread_cond_signal(&t->over);
		pthread_mutex_unlock(&t->mutex);
		stay_awake(t, has_begun);
		pthread_mutex_lock(&t->mutex);
	}
	pthread_mutex_unlock(&t->mutex);
	return NULL;
}

/* Where cores are few and busy, Linux does not look for an idle one: whoever is woken up
 * waits behind the caller, who does all.  Not so if it may not be there.  Where helpers
 * may be otherwise is not ours to say: it stays as somebody has set it meanwhile. */
static void
keep_off(struct fal_threads *t)
{
	const int core = sched_getcpu();
	cpu_set_t is;
	if (core < 0 || core == t->core || core >= CPU_SETSIZE ||
	    pthread_getaffinity_np(t->helper[0].thread, sizeof(is), &is) != 0)
		return;
	if (!CPU_EQUAL(&is, &t->given)) /* it was nothing at first */
		t->cores = is;
	t->core = core;
	t->given = t->cores;
	CPU_CLR((size_t)core, &t->given);
	if (CPU_COUNT(&t->given) == 0)
		t->given = is;
	for (uint32_t i = 1; i < t->parallel.threads; i++)
		pthread_setaffinity_np(t->helper[i - 1].thread, sizeof(t->given),
				       &t->given);
}

/* What is short the caller does alone, sooner than a helper would have woken up, who
 * would come between what is at work on its core: parts of it, till the rest is judged by
 * those to be worth that.  How many. */
static uint32_t
begin_alone(const struct fal_threads *t, uint32_t parts, fal_part_fn *part, void *of)
{
	const int64_t began = now_ns();
	uint64_t left = 0;
	uint32_t done = 0;
	while (done < parts && left < t->worth) {
		part(of, done++, 0);
		left = (uint64_t)(now_ns() - began) / done * (parts - done);
	}
	return done;
}

static void
each(void *arg, uint32_t parts, fal_part_fn *part, void *of)
{
	struct fal_threads *t = arg;
	const uint32_t done = begin_alone(t, parts, part, of);
	if (done == parts)
		return;
	keep_off(t);
	pthread_mutex_lock(&t->mutex);
	t->part = part;
	t->of = of;
	t->parts = parts;
	t->next = done;
	t->open = true;
	for (uint32_t i = 1; i < t->parallel.threads && i < parts - done; i++)
		pthread_cond_signal(&t->begun); /* nobody for whom there is no part */
	pthread_mutex_unlock(&t->mutex);
	take_parts(t, 0);
	stay_awake(t, is_over);
	pthread_mutex_lock(&t->mutex);
	t->open = false;
	while (t->inside > 0)
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
	t->parallel = (struct fal_parallel){ 1, each, t };
	t->worth = worth_ns;
	t->core = -1;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	for (uint32_t i = 1; i < threads; i++) {
		struct helper *h = &t->helper[i - 1];
		*h = (struct helper){ .all = t, .number = i };
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
	t->end = true;
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
	enum { EACH = 384 << 10 }; /* as it was measured */
	return (uint64_t)(threads - 1) * EACH;
}

const struct fal_parallel *
fal_threads_parallel(const struct fal_threads *t)
{
	return t != NULL ? &t->parallel : NULL;
}
