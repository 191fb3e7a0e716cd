/* The last move of blocks. */
#include "trace/moves.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void
fal_trace_moves_free(struct fal_trace_moves *m)
{
	fal_trace_place_free(&m->is);
	*m = (struct fal_trace_moves){ 0 };
}

/* From `was` to where the blocks are. */
static void
compare(struct fal_trace_moves *m, const struct fal_trace_place *was)
{
	m->blocks = 0;
	memset(m->more, 0, sizeof(m->more));
	for (uint32_t b = 0; b < m->is.blocks && b < was->blocks; b++) {
		m->blocks += m->is.shard[b] != was->shard[b];
		m->more[m->is.shard[b]]++;
		m->more[was->shard[b]]--;
	}
}

int
fal_trace_moves_line(struct fal_trace_moves *m, struct fal_trace_line *l,
		     const struct fal_trace_job *job)
{
	struct fal_trace_place was = m->is;
	if (job->blocks > FAL_TRACE_PLACED_MAX)
		return 0;
	m->is = (struct fal_trace_place){ 0 };
	if (fal_trace_place_read(l, job, &m->is) < 0) {
		fal_trace_place_free(&was);
		return l->err;
	}
	if (strcmp(m->is.rule, FAL_TRACE_MOVED) == 0) {
		const bool who = fal_trace_has(l->o, FAL_F_BY_NAME),
			   took = fal_trace_has(l->o, FAL_F_TOOK);
		m->moves++;
		snprintf(m->by, sizeof(m->by), "%s",
			 who ? fal_trace_get_str(l, l->o, FAL_F_BY_NAME) : "");
		m->t = l->t;
		m->took = took ? fal_trace_get_seconds(l, l->o, FAL_F_TOOK) : (double)NAN;
		compare(m, &was);
	} else { /* an incarnation begins */
		m->moves = 0;
	}
	fal_trace_place_free(&was);
	return l->err;
}
