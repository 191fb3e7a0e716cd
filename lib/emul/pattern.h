/* Patterns of slowness as pure functions: of time, of the work that was done, and of a
 * seed.  falcon-emulate(5) defines them; their P-numbers are the benchmark's.
 */
#ifndef FAL_EMUL_PATTERN_H
#define FAL_EMUL_PATTERN_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* The numbers are part of falcon-emulate(5), as random numbers are keyed by them. */
enum fal_pattern_kind {
	/* Of the machine: one factor for ever. */
	FAL_PATTERN_PERSISTENT,
	FAL_PATTERN_LEVEL,
	FAL_PATTERN_CLASSES,
	FAL_PATTERN_GRADED,
	/* Of the work that was done, in clocks of it. */
	FAL_PATTERN_JITTER,
	FAL_PATTERN_SLEEP,
	FAL_PATTERN_RANDOM_CLOCK,
	FAL_PATTERN_RANDOM_SLEEP,
	FAL_PATTERN_GAUSS_SLEEP,
	FAL_PATTERN_POWER_LAW,
	FAL_PATTERN_SHIFTED_EXP,
	/* Of time. */
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

/* Whose slowness it is. */
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

/* What a clock of work is like. */
struct fal_clock_pace {
	double slow;       /* it takes so many times as long, > 0 */
	uint64_t pause_ns; /* before it, nothing is done */
};

/* Reads NAME[:ARG...]; changes `text`.  FAL_EINVAL with `diag`. */
int fal_pattern_parse(char *text, enum fal_pattern_kind *kind, struct fal_pattern *out,
		      struct fal_diag *diag);

const char *fal_pattern_name(enum fal_pattern_kind kind);
bool fal_pattern_is_clocked(enum fal_pattern_kind kind);

/* Whether these arguments say something only about worker I of M. */
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

#endif
