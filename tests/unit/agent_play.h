/* Drives an agent by hand: its lanes, and which of them are at work, on what. */
#ifndef FAL_TESTS_AGENT_PLAY_H
#define FAL_TESTS_AGENT_PLAY_H

#include "../model_msg.h"
#include "base/err.h"
#include "worker/agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { LANES = 3, SLOTS = 2 * LANES };

static struct fal_agent *agent;
static struct fal_task_run run[SLOTS];
static bool busy[SLOTS], cancelled[SLOTS];

static void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld", what, (long long)got,
			 (long long)want);
}

static void
on_run(void *arg, uint32_t lane, const struct fal_task_run *r)
{
	(void)arg;
	if (lane >= SLOTS || busy[lane])
		fail_msg("lane %u cannot run anything", lane);
	busy[lane] = true;
	cancelled[lane] = false;
	run[lane] = *r;
}

static void
on_cancel(void *arg, uint32_t lane)
{
	(void)arg;
	check(busy[lane], 1, "a busy lane is cancelled");
	check(cancelled[lane], 0, "cancelled already");
	cancelled[lane] = true;
}

static uint64_t
on_steps(void *arg)
{
	(void)arg;
	return 77;
}

#endif
