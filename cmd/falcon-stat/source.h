/* Where a trace comes from: a file, stdin, or the coordinator of a running job. */
#ifndef FALCON_STAT_SOURCE_H
#define FALCON_STAT_SOURCE_H

#include "net/addr.h"
#include "trace/reader.h"

#include <stdbool.h>

struct stat_source {
	const char *name;   /* as it was given; borrowed */
	const char *key;    /* -k, or NULL; borrowed */
	bool live;          /* else a file */
	const char *folder; /* that it lies in, if that was given; or NULL */
	char *path;         /* of the trace then: `name` is it */
	struct fal_addr addr;
};

/* Tells what `name` is: "-" and what exists is a file, all else must be an address.
 * Returns an exit code, after one line on stderr if it is not FAL_EXIT_DONE. */
int stat_source_find(const char *name, const char *key, struct stat_source *out);

/* A folder stands for the trace.jsonl in it. */
void stat_source_enter(struct stat_source *s);
void stat_source_free(struct stat_source *s);

/* Feeds the trace to on_line, of a live job what there is now; with `cut`, also lines
 * that the job has gone on from before.  Returns as above. */
int stat_source_read(const struct stat_source *s, bool cut,
		     int (*on_line)(void *arg, struct fal_trace_line *l), void *arg);

/* Prints the lines of a live job as they come, until it is over or SIGINT comes.
 * Returns as above. */
int stat_source_follow(const struct stat_source *s);

#endif
