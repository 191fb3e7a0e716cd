/* --emulate SPEC: how long a task takes on another machine, and when.
 *
 * Times in, times out, but for the record: who sleeps is lane.c, who crashes fault.c,
 * whose records are late lib/net/slow.h.  What SPEC may say is in spec.h, what the
 * patterns are in pattern.h. All of it is for the loop's thread.
 *
 * The speed is a step function of the time since the first task began, whatever the
 * tasks; patterns of work go by clocks of it, counted here in samples of training.  So
 * the same seed gives the same slowness under every scheme.
 */
#ifndef FAL_EMUL_EMUL_H
#define FAL_EMUL_EMUL_H

#include "base/err.h"
#include "emul/pattern.h"
#include "emul/speeds.h"
#include "net/link.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct fal_emul {
	double rate;    /* samples a second that a nominal core trains, > 0 */
	double speed;   /* of a core, as a fraction of the nominal one */
	uint32_t cores; /* lanes beyond them slow each other down */
	struct fal_machine machine;
	uint64_t clock; /* samples of one; 0: not known yet */
	struct fal_pattern pattern[FAL_PATTERNS];
	struct fal_speeds trace; /* speeds to replay; empty: none */
	FILE *record;            /* where speeds are written; NULL: nowhere */
	uint64_t latency_ns;     /* of the link, each way */
	double bandwidth;        /* bytes a second, each way; 0: unlimited */
	double flip; /* the part of its tasks that come out with one bit wrong */
	/* Faults, in ns from the first task; 0: none. */
	uint64_t crash_ns, freeze_ns, freeze_for_ns;
	struct fal_link link; /* for emulate_link */

	/* private */
	uint64_t origin; /* uv_hrtime() of the first task; 0: none yet */
	uint64_t done;   /* samples of training that were begun */
	struct {
		uint64_t at; /* until here it is written */
		double speed, pace;
	} written;
};

/* A task to be begun. */
struct fal_emul_job {
	uint32_t samples;
	uint32_t active; /* lanes that are busy, its own included */
	bool eval;       /* takes a third, and is not counted */
};

/* One that was begun; times are uv_hrtime()'s. */
struct fal_emul_task {
	uint64_t begin, end;
	uint64_t first;   /* samples that were begun before it */
	uint32_t samples; /* 0: an evaluation, all in the clock of `first` */
	double work_ns;   /* of the whole task, at speed 1 */
};

/* The job is known: its B samples a clock are shared by M workers where SPEC names no
 * clock=; without M the nominal clock is 0.1 s.  Later calls change nothing. */
void fal_emul_bind(struct fal_emul *e, uint32_t batch);

/* Begins a task at `now`, the first one at the origin of all times.  It ends when the
 * speed, summed over time, has done its work; after a day at the latest. */
struct fal_emul_task fal_emul_begin(struct fal_emul *e, const struct fal_emul_job *job,
				    uint64_t now);

/* Task `t` is over at `end`; tasks come in the order in which they end.  One that was
 * cancelled counts as the samples that it got through, unless another was begun since.
 * What it met is recorded, with record=. */
void fal_emul_end(struct fal_emul *e, const struct fal_emul_task *t, uint64_t end);

/* The speed at `t` ns from the origin, but for patterns of work. */
struct fal_speed fal_emul_speed(const struct fal_emul *e, uint64_t t);

/* Clock `n`, from 0, of all patterns of work. */
struct fal_clock_pace fal_emul_pace(const struct fal_emul *e, uint64_t n);

/* Does task `task` of `clock` come out with one bit wrong?  The same each time. */
bool fal_emul_flips(const struct fal_emul *e, uint64_t clock, uint32_t task);

/* Nanoseconds of a task of training at the machine's own speed, as a probe sees it. */
uint64_t fal_emul_probe_ns(const struct fal_emul *e, uint32_t samples);

/* The link as lib/net wants it, valid as long as `e`; NULL: not slow.  `e` may be NULL.
 */
const struct fal_link *fal_emul_link(struct fal_emul *e);

/* What a lane knows of the task it did before. */
struct fal_emulated {
	bool next;     /* the coming task follows in the same turn */
	bool in_time;  /* its real work was done before its virtual end */
	uint64_t end;  /* its virtual end, ns */
	uint64_t late; /* by which it was over after that, ns */
};

/* When a task begins that was handed out at `now`: where the one before ended, if it
 * follows at once and was in time, so that late wake-ups do not add up; else now.  Then
 * `*regained` is the lateness that is no more, as the coming task begins so much earlier;
 * else 0. */
uint64_t fal_emul_start(const struct fal_emulated *before, uint64_t now,
			uint64_t *regained);

#endif
