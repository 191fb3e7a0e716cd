/* A run computed anew, in part: what its clocks must have made, held against what they
 * have made (falcon-stat(1), --recompute). */
#ifndef FALCON_STAT_RECOMPUTE_H
#define FALCON_STAT_RECOMPUTE_H

#include "source.h"

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

struct stat_recompute {
	double part;           /* of the clocks, above 0, at most 1 */
	const char *directory; /* where the names in the job begin; NULL: where the
				* run's folder lies */
	const char *from;      /* the weights that it began with; NULL: its own */
	uint64_t program;      /* bytes of it, fal_need_program */
	uint64_t max_memory;   /* 0: any */
	struct rlimit data; /* what held before --max-memory did: its need is counted */
};

/* What is not what job and data make. */
struct stat_wrong {
	uint64_t clock;
	uint32_t id, seq; /* of a contribution; 0: nobody can say which */
	char worker[256], key[256], fingerprint[80];
	char what[200];
};

enum { STAT_WRONGS = 64 };

struct stat_recomputed {
	uint64_t clocks, of, reach; /* computed; of the run; that could have been drawn */
	uint32_t kept;              /* versions that were begun with, or could be */
	bool differs;               /* a clock does, the first of them among these: */
	uint64_t from, to;
	struct stat_wrong wrong[STAT_WRONGS];
	size_t wrongs;    /* all of them; the first so many are there */
	char cannot[320]; /* why nothing can be judged; "": it can */
};

/* The trace has passed the audit.  Returns an exit code: FAL_EXIT_DONE, with *out, or
 * why it cannot be done, after one line on stderr. */
int stat_recompute(const struct stat_source *src, const struct stat_recompute *how,
		   struct stat_recomputed *out);

/* The exit code for it. */
int stat_recomputed_code(const struct stat_recomputed *r);

#endif
