/* --emulate SPEC: the time that a task takes on another machine, and its begin.
 *
 * Times in, times out, but for the record.  lanes.c sleeps and crashes; lib/net/slow.h
 * makes records late.  All calls are for the loop's thread.
 *
 * The speed is a step function of the time since the first task began, whatever the
 * tasks; patterns of work go by clocks of it, counted here in samples of training.  So
 * the same seed gives the same slowness under every scheme.
 */
#ifndef FAL_EMUL_EMUL_H
#define FAL_EMUL_EMUL_H

#include "base/err.h"
#include "net/link.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- patterns of slowness: pure functions of time, of the work that was done, and of a
 * seed.  falcon-emulate(5) defines them; their P-numbers are the benchmark's. ---- */

/* The numbers are part of falcon-emulate(5), as random numbers are keyed by them. */
enum fal_pattern_kind {
	/* Patterns of the machine: one factor for ever. */
	FAL_PATTERN_PERSISTENT,
	FAL_PATTERN_LEVEL,
	FAL_PATTERN_CLASSES,
	FAL_PATTERN_GRADED,
	/* Patterns of the work that was done, in clocks of it. */
	FAL_PATTERN_JITTER,
	FAL_PATTERN_SLEEP,
	FAL_PATTERN_RANDOM_CLOCK,
	FAL_PATTERN_RANDOM_SLEEP,
	FAL_PATTERN_GAUSS_SLEEP,
	FAL_PATTERN_POWER_LAW,
	FAL_PATTERN_SHIFTED_EXP,
	/* Patterns of time. */
	FAL_PATTERN_SLOW_WORKER,
	FAL_PATTERN_DISRUPTED,
	FAL_PATTERN_STALL,
	FAL_PATTERN_DRIFT,
	FAL_PATTERN_NETWORK,
	FAL_PATTERNS
};

enum { FAL_PATTERN_ARGS = 3 };

struct fal_pattern {
	bool on;
	double arg[FAL_PATTERN_ARGS]; /* as falcon-emulate(5) lists them */
};

/* The machine that is slow. */
struct fal_machine {
	uint64_t seed;
	uint32_t index, count; /* worker=I/M; count 0: not told */
	uint64_t t0_ns;        /* what a clock takes nominally, > 0 */
};

/* A piece of a step function of time. */
struct fal_speed {
	double speed;
	uint64_t until; /* ns; UINT64_MAX: for ever */
};

/* The pace of a clock of work. */
struct fal_clock_pace {
	double slow;       /* it takes so many times as long, > 0 */
	uint64_t pause_ns; /* before it, nothing is done */
};

/* The numbers of event `n` of a stream (a pattern's, by its kind, or one of the two
 * beyond them), each above 0 and below 1. */
void fal_emul_draw(const struct fal_machine *m, unsigned stream, uint64_t n,
		   double out[static 4]);

/* Reads NAME[:ARG...]; changes `text`.  FAL_EINVAL with `diag`. */
int fal_pattern_parse(char *text, enum fal_pattern_kind *kind, struct fal_pattern *out,
		      struct fal_diag *diag);

const char *fal_pattern_name(enum fal_pattern_kind kind);
bool fal_pattern_is_clocked(enum fal_pattern_kind kind);

/* Do these arguments say something only about worker I of M? */
bool fal_pattern_needs_worker(enum fal_pattern_kind kind, const struct fal_pattern *p);

/* The part of `m`'s speed that a pattern of the machine leaves it; 1 for other kinds. */
double fal_pattern_share(enum fal_pattern_kind kind, const struct fal_pattern *p,
			 const struct fal_machine *m);

/* Clock `n`, from 0, of a pattern of work; { 1, 0 } for other kinds. */
struct fal_clock_pace fal_pattern_pace(enum fal_pattern_kind kind,
				       const struct fal_pattern *p,
				       const struct fal_machine *m, uint64_t n);

/* The speed at `t` ns, and until when it surely stays; 1 for ever for other kinds. */
struct fal_speed fal_pattern_at(enum fal_pattern_kind kind, const struct fal_pattern *p,
				const struct fal_machine *m, uint64_t t);

/* The delay in ns that the network pattern adds at `t`. */
uint64_t fal_pattern_delay(const struct fal_pattern *p, const struct fal_machine *m,
			   uint64_t t);

/* ---- recorded speeds: lines "SECONDS SPEED", read, looked up and written ---- */

/* Zero: none. */
struct fal_speeds {
	struct fal_speeds_line {
		uint64_t t; /* ns, increasing, the first 0 */
		double speed;
	} *v;
	size_t n, cap;
	uint64_t loop; /* it begins again every so many ns; 0: the last speed stays */
};

/* Reads a file into `out`, which is zero; free with fal_speeds_free.  A `diag` names
 * file, line and value.  FAL_EFORMAT, FAL_EINVAL, those of fal_cli_read. */
int fal_speeds_read(const char *path, struct fal_speeds *out, struct fal_diag *diag);
void fal_speeds_free(struct fal_speeds *s);

/* The speed at `t` ns; `s` has lines. */
struct fal_speed fal_speeds_at(const struct fal_speeds *s, uint64_t t);

/* Writes one line of a file of speeds. */
void fal_speeds_write(FILE *f, uint64_t t, double speed);

/* ---- the machine ---- */

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

/* ---- SPEC, which falcon-emulate(5) defines ---- */

/* Facts of the worker that SPEC need not say. */
struct fal_spec_host {
	const char *name; /* of this worker, to be found in a file; borrowed */
	uint32_t cores;
};

/* Reads KEY=VALUE[,KEY=VALUE...] or @FILE[,KEY=VALUE...], and the file of trace=; makes
 * that of record=.  Free with fal_spec_free.  FAL_EFORMAT, FAL_EINVAL, those
 * of fal_cli_read, FAL_EIO, each with `diag`. */
int fal_spec_read(const char *spec, const struct fal_spec_host *host,
		  struct fal_emul **out, struct fal_diag *diag);

/* FAL_EIO where not all that was recorded got to its file; `e` is freed in any case, and
 * may be NULL. */
int fal_spec_free(struct fal_emul *e);

#endif
