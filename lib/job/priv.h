/* Inside lib/job, of the job file; see job.h.
 *
 *	job.c    the table of keys, and what each takes by itself
 *	rules.c  what one value demands of others, and what none was given for
 *
 * A key is named by the member of struct fal_job that it sets. */
#ifndef FAL_JOB_PRIV_H
#define FAL_JOB_PRIV_H

#include "job/job.h"

#include <stddef.h>

#define JOB_AT(field) offsetof(struct fal_job, field)

/* A text that is read. */
struct job_read {
	const char *name;
	const struct fal_job_set *set;
	struct fal_job *job;
	unsigned *line;         /* by key: where it stands; 0 for nowhere */
	uint32_t mean_n, std_n; /* entries of the lists */
	struct fal_diag *diag;
};

/* Has the text the key that sets the field at this offset? */
bool job_has(const struct job_read *p, size_t at);
/* A diagnosis about it: "NAME:LINE: section.key: what", or
 * "--set: section.key: what".  Returns `err`. */
int job_refuse(const struct job_read *p, size_t at, int err, const char *what);

/* Whether all that the text says goes together. */
int job_judge(const struct job_read *p);
/* Values of the keys that it does not have, where 0 is not it. */
void job_fill(const struct job_read *p);

#endif
