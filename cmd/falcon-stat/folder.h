/* A run's folder: what its trace says, held against the job, the result, the model and
 * the journal of policies that lie beside it.  falcon-trace(5), section AUDIT. */
#ifndef FALCON_STAT_FOLDER_H
#define FALCON_STAT_FOLDER_H

#include "trace/audit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool stat_is_folder(const char *path);

/* Policies, in the order of a trace or of a journal; {0}: none. */
struct stat_policies {
	struct stat_policy {
		uint64_t clock; /* from which it holds */
		/* who made it; all of it, as falcon-policy(5) writes it */
		char *by, *text;
	} *v;
	size_t n, cap;
	bool resumed; /* since the last one */
};

void stat_policies_free(struct stat_policies *s);

/* Takes a line of a trace.  What was resumed says again what held by then, which is left
 * out.  l->err. */
int stat_policies_line(struct stat_policies *s, struct fal_trace_line *l);

/* Adds to the findings of an audit that has taken all lines of DIR/trace.jsonl, which has
 * these policies.  Returns an exit code, after one line on stderr if it is not
 * FAL_EXIT_DONE: a file that is there cannot be read. */
int stat_folder_audit(const char *dir, const struct stat_policies *policies,
		      struct fal_audit *a);

#endif
