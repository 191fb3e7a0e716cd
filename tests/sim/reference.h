/* The model that a job must have: its trace, replayed by one plain loop.
 *
 * What the trace decides, it decides here, too: which rounds there were, on which
 * versions, in which order they were applied, with which weights, divisors and rates;
 * that these are right is the audit's.  What it leads to is computed by plain.h. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "base/err.h"
#include "toy.h"
#include "trace/reader.h"

/* Reads the whole trace but for what a restart took back.  As fal_trace_feed. */
int reference_read(struct fal_trace_reader *r, const char *trace, size_t length,
		   struct fal_diag *diag);

/* `params`, n floats, become those of the newest version of the trace (length bytes).
 * 1; 0: the trace does not say enough to know, and `diag` what of; or negative, and
 * `diag` what is wrong with it. */
int reference_replay(const struct toy *t, const char *trace, size_t length, float *params,
		     struct fal_diag *diag);

#endif
