/* Which tasks of a job have ended: those of every clock, of every part of its data.
 *
 * Clocks are handed out in order, in each part by itself, so what has ended is kept as
 * runs along each part.  Private to lib/trace.
 */
#ifndef FAL_TRACE_COVER_H
#define FAL_TRACE_COVER_H

#include "base/spans.h"
#include "trace/clocks.h"

struct fal_cover {
	const struct fal_trace_job *job; /* borrowed */
	struct fal_spans *part;          /* job->parts of them */
};

/* 0, FAL_ENOMEM, or FAL_ELIMIT: more tasks than can be counted.  `job` is borrowed until
 * fal_cover_free. */
int fal_cover_init(struct fal_cover *c, const struct fal_trace_job *job);
/* The job has more clocks by now.  0, FAL_ELIMIT. */
int fal_cover_grown(const struct fal_cover *c);
void fal_cover_free(struct fal_cover *c);

/* The tasks first … first+count-1 of `clock`, which it has, have ended.  Returns 0; 1 if
 * some had ended before, *twice being the first of them; FAL_ELIMIT or FAL_ENOMEM. */
int fal_cover_add(struct fal_cover *c, uint64_t clock, uint64_t first, uint64_t count,
		  uint64_t *twice);

/* The first clock that has a task that has not ended, and the first such task; false:
 * there is none. */
bool fal_cover_gap(const struct fal_cover *c, uint64_t *clock, uint64_t *task);

#endif
