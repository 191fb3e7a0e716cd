/* --emulate SPEC: computes when a task would begin and end on another machine.
 *
 * The functions take and return times; only the record is written to a file.  The
 * callers in falcon-work sleep and crash; lib/net/link_emul.h delays records.  Only the
 * loop's thread calls these functions.
 *
 * The speed is a step function of the time since the first task began and does not
 * depend on the tasks.  Patterns of work depend on clocks of work, which this module
 * counts in training samples.  So the same seed gives the same slowness under every
 * scheme.
 */
#ifndef FAL_EMUL_EMUL_H
#define FAL_EMUL_EMUL_H

#include "base/err.h"
#include "net/link.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- patterns of slowness: pure functions of time, of the work done so far, and of a
 * seed.  falcon-emulate(5) defines them; the benchmark uses their P-numbers. ---- */

/* The numbers are part of falcon-emulate(5), as random numbers are keyed by them. */
enum fal_pattern_kind {
	/* Patterns of the machine: one constant factor. */
	FAL_PATTERN_PERSISTENT,
	FAL_PATTERN_LEVEL,
	FAL_PATTERN_CLASSES,
	FAL_PATTERN_GRADED,
	/* Patterns of the work done so far, in clocks. */
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

/* The emulated machine. */
struct fal_machine {
	uint64_t seed;
	uint32_t index, count; /* worker=I/M; count 0: SPEC names no worker */
	uint64_t t0_ns;        /* nominal duration of a clock, > 0 */
};

/* A step of a step function of time. */
struct fal_speed {
	double speed;
	uint64_t until; /* ns; UINT64_MAX: no end */
};

/* The pace of a clock of work. */
struct fal_clock_pace {
	double slow;       /* factor on the duration of the clock, > 0 */
	uint64_t pause_ns; /* idle time before the clock */
};

/* Draws the four random numbers of event `n` of `stream`, each above 0 and below 1.  The
 * stream is the kind of a pattern, FAL_PATTERNS (crashes) or FAL_PATTERNS + 1 (flips). */
void fal_emul_draw(const struct fal_machine *m, unsigned stream, uint64_t n,
		   double out[static 4]);

/* Parses NAME[:ARG...] and changes `text` meanwhile.  FAL_EINVAL with `diag`. */
int fal_pattern_parse(char *text, enum fal_pattern_kind *kind, struct fal_pattern *out,
		      struct fal_diag *diag);

/* Returns the pattern's name in falcon-emulate(5). */
const char *fal_pattern_name(enum fal_pattern_kind kind);

/* Is the pattern one of the work done so far? */
bool fal_pattern_is_clocked(enum fal_pattern_kind kind);

/* Does the pattern with these arguments need worker=I/M? */
bool fal_pattern_needs_worker(enum fal_pattern_kind kind, const struct fal_pattern *p);

/* Returns the factor that a pattern of the machine puts on the speed of `m`; 1 for other
 * kinds. */
double fal_pattern_share(enum fal_pattern_kind kind, const struct fal_pattern *p,
			 const struct fal_machine *m);

/* ---- recorded speeds: lines "SECONDS SPEED" ---- */

/* {0}: no line. */
struct fal_speeds {
	struct fal_speeds_line {
		uint64_t t; /* ns, increasing, the first 0; first member: base/sorted.h */
		double speed;
	} *v;
	size_t n, cap;
	uint64_t loop; /* period in ns; 0: the last speed stays */
};

/* Reads a file into `out`; free `out` with fal_speeds_free.  `diag` names file, line and
 * value.  FAL_EFORMAT, FAL_EINVAL, errors of fal_cli_read. */
int fal_speeds_read(const char *path, struct fal_speeds *out, struct fal_diag *diag);
void fal_speeds_free(struct fal_speeds *s);

/* Returns the speed at `t` ns; `s` has at least one line. */
struct fal_speed fal_speeds_at(const struct fal_speeds *s, uint64_t t);

/* ---- the machine ---- */

struct fal_emul {
	double rate;    /* training samples a second of a nominal core, > 0 */
	double speed;   /* of each core, as a fraction of the nominal core */
	uint32_t cores; /* more busy lanes than cores slow each other down */
	struct fal_machine machine;
	uint64_t clock; /* samples of a clock; 0: not known yet */
	struct fal_pattern pattern[FAL_PATTERNS];
	struct fal_speeds trace; /* speeds to replay; empty: none */
	FILE *record;            /* file for the speeds met; NULL: none */
	uint64_t latency_ns;     /* of the link, each way */
	double bandwidth;        /* bytes a second, each way; 0: unlimited */
	double flip;             /* fraction of tasks with one wrong bit */
	/* Faults, in ns from the first task; 0: none. */
	uint64_t crash_ns, freeze_ns, freeze_for_ns;
	struct fal_link link; /* returned by fal_emul_link */

	/* private */
	uint64_t origin; /* uv_hrtime() of the first task; 0: no task yet */
	uint64_t done;   /* training samples begun so far */
	struct {
		uint64_t at; /* end of the time written to `record` */
		double speed, pace;
	} written;
};

/* A task to be begun. */
struct fal_emul_job {
	uint32_t samples;
	uint32_t active; /* busy lanes, the task's own included */
	bool eval;       /* an evaluation takes a third of the time and is not counted */
};

/* A task that has begun; times are uv_hrtime()'s. */
struct fal_emul_task {
	uint64_t begin, end;
	uint64_t first;   /* samples begun before the task */
	uint32_t samples; /* 0: an evaluation, all in the clock of `first` */
	double work_ns;   /* of the whole task, at speed 1 */
};

/* Sets the nominal clock once the job's `batch` samples a clock are known: the workers
 * share the batch unless SPEC has clock=; without worker=I/M a nominal clock takes 0.1 s.
 * Later calls change nothing. */
void fal_emul_set_batch(struct fal_emul *e, uint32_t batch);

/* Begins a task at `now`; the first task sets the origin of all times.  The task ends
 * when the integral of the speed equals its work, after a day at the latest. */
struct fal_emul_task fal_emul_begin(struct fal_emul *e, const struct fal_emul_job *job,
				    uint64_t now);

/* Ends task `t` at `end`, in the order in which tasks end, and with record= writes the
 * speeds that the task met.  A cancelled task counts as the samples that it finished,
 * unless another task has begun since. */
void fal_emul_end(struct fal_emul *e, const struct fal_emul_task *t, uint64_t end);

/* Returns the speed at `t` ns from the origin, without patterns of work. */
struct fal_speed fal_emul_speed(const struct fal_emul *e, uint64_t t);

/* Returns the pace of clock `n`, from 0, under all patterns of work. */
struct fal_clock_pace fal_emul_pace(const struct fal_emul *e, uint64_t n);

/* Does task `task` of `clock` give one wrong bit?  Equal arguments give equal answers. */
bool fal_emul_flips(const struct fal_emul *e, uint64_t clock, uint32_t task);

/* Returns the nanoseconds of a training task at the machine's own speed, as a probe
 * measures them. */
uint64_t fal_emul_probe_ns(const struct fal_emul *e, uint32_t samples);

/* Returns the link for lib/net, valid as long as `e`; NULL: the link is not slowed down.
 * `e` may be NULL. */
const struct fal_link *fal_emul_link(struct fal_emul *e);

/* The previous task of a lane. */
struct fal_emul_previous {
	bool next;     /* the next task follows in the same turn */
	bool in_time;  /* the real work was done before the virtual end */
	uint64_t end;  /* the virtual end, ns */
	uint64_t late; /* ns from the virtual end to the real end */
};

/* Returns the begin of a task that was handed out at `now`: the virtual end of the
 * previous task if that task was in time and the new task follows at once, so that late
 * wake-ups do not add up; else `now`.  In the first case `*regained` is the previous
 * task's lateness, which the earlier begin makes up for; else 0. */
uint64_t fal_emul_task_begin_time(const struct fal_emul_previous *before, uint64_t now,
				  uint64_t *regained);

/* ---- SPEC, which falcon-emulate(5) defines ---- */

/* Defaults for a SPEC, from the worker. */
struct fal_spec_host {
	const char *name; /* the worker's name in a file of machines; borrowed */
	uint32_t cores;
};

/* Parses KEY=VALUE[,KEY=VALUE...] or @FILE[,KEY=VALUE...], reads the file of trace= and
 * creates the file of record=.  Free with fal_spec_free.  FAL_EFORMAT, FAL_EINVAL,
 * FAL_EIO, errors of fal_cli_read, each with `diag`. */
int fal_spec_read(const char *spec, const struct fal_spec_host *host,
		  struct fal_emul **out, struct fal_diag *diag);

/* Closes the files and frees `e`, which may be NULL, in any case.  FAL_EIO: the record is
 * incomplete. */
int fal_spec_free(struct fal_emul *e);

#endif
