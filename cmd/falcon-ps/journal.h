/* The policy journal: policy.jsonl of the state folder, falcon-policy(5).  A line for
 * each change, on disk before the change holds. */
#ifndef FALCON_PS_JOURNAL_H
#define FALCON_PS_JOURNAL_H

#include "base/err.h"
#include "run/journal.h"

#include <stdint.h>

struct ps_journal {
	int fd;                 /* -1: closed */
	char *path;             /* owned */
	struct fal_chain chain; /* of its lines */
	uint64_t torn;          /* bytes that ps_journal_open cut off */
};

/* Opens `path` (taken; NULL: out of memory), made if it is not there, and hands each line
 * to on_line, borrowed for the call, with j->chain as it was before it; a negative return
 * of it ends the reading.  A last line without its newline, or that cannot be read, was
 * torn by a crash before its change was acknowledged: it is
 * cut off.  FAL_EFORMAT or FAL_EINVAL: any other line that is no line of a journal, or a
 * whole one that has something else for its newline, which `diag` names; FAL_EIO,
 * FAL_ENOMEM.  Close in each case. */
int ps_journal_open(struct ps_journal *j, char *path,
		    int (*on_line)(void *arg, const struct fal_journal_line *l),
		    void *arg, struct fal_diag *diag);

/* Appends a line, with the time of day, and syncs it.  What could not be written wholly
 * is cut off again.  FAL_EIO (errno is set), FAL_ENOMEM. */
int ps_journal_add(struct ps_journal *j, const struct fal_journal_line *l);

void ps_journal_close(struct ps_journal *j);

#endif
