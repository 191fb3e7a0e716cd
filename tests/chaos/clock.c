/* LD_PRELOAD: a process whose clocks leap when the harness says so.
 *
 * CHAOS_CLOCK names a file of int64_t: nanoseconds by which the clock of the day and the
 * monotonic one are off from now on, and, if there is a third, for which the machine
 * slept.  What sleeps until a moment of the monotonic clock is told the kernel's moment.
 * The process forgets a file that is not there. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

enum { WALL, MONOTONIC, SLEPT, CLOCKS };

static const volatile int64_t still[CLOCKS];
static const volatile int64_t *leap = still;

__attribute__((constructor)) static void
look(void)
{
	const char *path = getenv("CHAOS_CLOCK");
	const int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p = fd >= 0 ? mmap(NULL, sizeof(still), PROT_READ, MAP_SHARED, fd, 0)
			  : MAP_FAILED;
	if (p != MAP_FAILED)
		leap = p;
	if (fd >= 0)
		close(fd);
}

static struct timespec
off(const struct timespec *t, int64_t by)
{
	const int64_t s = INT64_C(1000000000);
	int64_t ns = t->tv_nsec + by % s;
	const int64_t carry = ns < 0 ? -1 : ns / s;
	return (struct timespec){ t->tv_sec + by / s + carry, ns - carry * s };
}

/* The next definition of a function, into a pointer of its type. */
#define NEXT(name, f) (*(void **)&(f) = dlsym(RTLD_NEXT, name))

SHOWN int
clock_gettime(clockid_t id, struct timespec *out)
{
	static int (*next)(clockid_t, struct timespec *);
	if (next == NULL)
		NEXT("clock_gettime", next);
	const int got = next(id, out);
	if (got == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		*out = off(out, leap[WALL]);
	if (got == 0 && (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE))
		*out = off(out, leap[MONOTONIC]);
	if (got == 0 && id == CLOCK_BOOTTIME)
		*out = off(out, leap[MONOTONIC] + leap[SLEPT]);
	return got;
}

SHOWN time_t
time(time_t *out)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	if (out != NULL)
		*out = t.tv_sec;
	return t.tv_sec;
}

SHOWN int
clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left)
{
	static int (*next)(clockid_t, int, const struct timespec *, struct timespec *);
	if (next == NULL)
		NEXT("clock_nanosleep", next);
	const bool moment = id == CLOCK_MONOTONIC && (flags & TIMER_ABSTIME) != 0;
	const struct timespec at = moment ? off(t, -leap[MONOTONIC]) : *t;
	return next(id, flags, &at, left);
}

/* All of Falcon's go by the monotonic clock. */
SHOWN int
pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
		       const struct timespec *t)
{
	static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
	if (next == NULL)
		NEXT("pthread_cond_timedwait", next);
	const struct timespec at = off(t, -leap[MONOTONIC]);
	return next(cond, mutex, &at);
}
