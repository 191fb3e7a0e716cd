/* The data that a job names, from its files. */
#ifndef FAL_DATA_LOAD_H
#define FAL_DATA_LOAD_H

#include "data/set.h"
#include "job/job.h"

#include <stdbool.h>

/* Which set of which job, all borrowed. */
struct fal_load {
	const struct fal_job *job;
	const char *job_file; /* names begin at its folder */
	const char *dir;      /* or, not NULL: the last parts of the names are here */
	bool test;            /* the test set, which the job has */
	uint32_t classes;     /* as of fal_set_opts */
};

/* Loads it, of several files one after the other.  Errors are those of set.h, of which
 * `diag` says file, line and value.  The columns of tables are those of the training
 * set's first file, by name and order, of which a test set reads the first line; without
 * that file, those of its own first one. */
int fal_load_set(const struct fal_load *l, struct fal_set *out, struct fal_diag *diag);

/* Both sets, or, without a test set, test->n = 0; with `classes` = 0 they get one count
 * of classes, the larger one. */
int fal_load_sets(const struct fal_load *l, struct fal_set *train, struct fal_set *test,
		  struct fal_diag *diag);

#endif
