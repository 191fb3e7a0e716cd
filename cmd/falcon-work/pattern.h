/* Patterns of slowness as pure functions: of time, of the work that was done, and of a
 * seed.  falcon-emulate(5) defines them; their P-numbers are the benchmark's.
 */
#ifndef WORK_PATTERN_H
#define WORK_PATTERN_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* The numbers are part of falcon-emulate(5), as random numbers are keyed by them. */
enum pattern_kind {
	/* Of the machine: one factor for ever. */
	PATTERN_PERSISTENT,
	PATTERN_LEVEL,
	PATTERN_CLASSES,
	PATTERN_GRADED,
	/* Of the work that was done, in clocks of it. */
	PATTERN_JITTER,
	PATTERN_SLEEP,
	PATTERN_RANDOM_CLOCK,
	PATTERN_RANDOM_SLEEP,
	PATTERN_GAUSS_SLEEP,
	PATTERN_POWER_LAW,
	PATTERN_SHIFTED_EXP,
	/* Of time. */
	PATTERN_SLOW_WORKER,
	PATTERN_DISRUPTED,
	PATTERN_STALL,
	PATTERN_DRIFT,
	PATTERN_NETWORK,
	PATTERNS
};

enum { PATTERN_ARGS = 3 };

struct pattern {
	bool on;
	double arg[PATTERN_ARGS]; /* as falcon-emulate(5) lists them */
};

/* Whose slowness it is. */
struct machine {
	uint64_t seed;
	uint32_t index, count; /* worker=I/M; count 0: not told */
	uint64_t t0_ns;        /* what a clock takes nominally, > 0 */
};

/* A piece of a step function of time. */
struct step {
	double speed;
	uint64_t until; /* ns; UINT64_MAX: for ever */
};

/* What a clock of work is like. */
struct pace {
	double slow;       /* it takes so many times as long, > 0 */
	uint64_t pause_ns; /* before it, nothing is done */
};

/* Reads NAME[:ARG...]; changes `text`.  FAL_EINVAL with `diag`. */
int pattern_parse(char *text, enum pattern_kind *kind, struct pattern *out,
		  struct fal_diag *diag);

const char *pattern_name(enum pattern_kind kind);
bool pattern_is_clocked(enum pattern_kind kind);

/* Whether these arguments say something only about worker I of M. */
bool pattern_needs_worker(enum pattern_kind kind, const struct pattern *p);

/* The part of `m`'s speed that a pattern of the machine leaves it; 1 for other kinds. */
double pattern_share(enum pattern_kind kind, const struct pattern *p,
		     const struct machine *m);

/* Clock `n`, from 0, of a pattern of work; { 1, 0 } for other kinds. */
struct pace pattern_pace(enum pattern_kind kind, const struct pattern *p,
			 const struct machine *m, uint64_t n);

/* The speed at `t` ns, and until when it surely stays; 1 for ever for other kinds. */
struct step pattern_at(enum pattern_kind kind, const struct pattern *p,
		       const struct machine *m, uint64_t t);

/* The delay in ns that the network pattern adds at `t`. */
uint64_t pattern_delay(const struct pattern *p, const struct machine *m, uint64_t t);

#endif
