/* The state folder: one job's, locked while it is served.
 *
 *	lock               held by the falcon-ps that serves the job
 *	job                the effective job text: another job's state is refused
 *	trace.jsonl        the trace (falcon-trace(5))
 *	model.safetensors  the final model
 *	result.json        what falcon-ps --json printed; there: the job is done
 */
#ifndef FALCON_PS_STATE_H
#define FALCON_PS_STATE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

struct ps_state {
	char *dir;
	int lock;
	bool done; /* result.json is there: `result` holds it */
	struct fal_buf result;
};

/* Makes and locks the folder `dir` for the job of this text.  FAL_EEXIST (served by
 * another, or another job's), FAL_EIO, FAL_EPERM, FAL_ENOMEM; `diag` says which. */
int ps_state_open(struct ps_state *s, const char *dir, const struct fal_buf *job_text,
		  struct fal_diag *diag);
void ps_state_close(struct ps_state *s);

/* DIR/name; free with free(). */
char *ps_state_path(const struct ps_state *s, const char *name);

#endif
