/* Crashes and freezes on time. */
#include "fault.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define KILLED 137 /* as a shell sees one that was killed by signal 9 */

struct fault {
	const struct fal_emul *e;
	uv_timer_t crash, freeze;
	unsigned open; /* of the two */
	bool begun;
};

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
	const struct fault *f = t->data;
	const uint64_t end = f->e->origin + f->e->freeze_ns + f->e->freeze_for_ns;
	const struct timespec at = { (time_t)(end / 1000000000),
				     (long)(end % 1000000000) };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

int
fault_new(uv_loop_t *loop, const struct fal_emul *e, struct fault **out)
{
	struct fault *f = fal_calloc(1, sizeof(*f));
	if (f == NULL)
		return FAL_ENOMEM;
	f->e = e;
	uv_timer_init(loop, &f->crash);
	uv_timer_init(loop, &f->freeze);
	f->crash.data = f->freeze.data = f;
	f->open = 2;
	*out = f;
	return FAL_OK;
}

static void
on_closed(uv_handle_t *h)
{
	struct fault *f = h->data;
	if (--f->open == 0)
		free(f);
}

void
fault_free(struct fault *f)
{
	if (f == NULL)
		return;
	uv_close((uv_handle_t *)&f->freeze, on_closed);
	uv_close((uv_handle_t *)&f->crash, on_closed);
}

/* Starts a timer for `at` ns from the origin, unless that is over. */
static void
start(const struct fault *f, uv_timer_t *timer, uint64_t at, uv_timer_cb cb)
{
	const uint64_t due = f->e->origin + at, now = uv_hrtime();
	if (at != 0 && due >= now)
		uv_timer_start(timer, cb, (due - now) / 1000000, 0);
}

void
fault_begin(struct fault *f)
{
	if (f == NULL || f->begun || f->e->origin == 0)
		return;
	f->begun = true;
	uv_update_time(f->crash.loop);
	start(f, &f->crash, f->e->crash_ns, on_crash);
	start(f, &f->freeze, f->e->freeze_ns, on_freeze);
}
