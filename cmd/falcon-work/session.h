/* The worker's life with its coordinator: connecting, hearing what the job is, working,
 * reconnecting, leaving.
 */
#ifndef WORK_SESSION_H
#define WORK_SESSION_H

#include "work.h"

/* Works until the job is done, a signal ends it, or nothing can be done; says so on
 * stderr.  Returns an exit code. */
int session_run(const struct work_opt *opt);

#endif
