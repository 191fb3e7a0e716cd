/* A policy: the rule of a job and what is laid down for single workers.  What
 * falcon-sync changes, what falcon-proj proposes; as JSON it is falcon-policy(5).
 */
#ifndef FAL_SCHED_POLICY_H
#define FAL_SCHED_POLICY_H

#include "sched/rule.h"

#include <stddef.h>

enum { FAL_SITE = 64 }; /* bytes of a site's name, with the NUL */

/* Workers are meant by their names; all live sessions of a name. */
struct fal_policy_worker {
	char *name;
	uint32_t lanes_min, lanes_max; /* bounds; 0: the worker's own */
	double share;                  /* weight of its first share; < 0: as projected */
	bool excluded;                 /* gets no tasks */
	bool admitted;       /* in a patch: is excluded no longer, where it was before */
	char site[FAL_SITE]; /* where it stands; "": nowhere in particular */
};

/* {0} with a rule is valid.  Owned by whoever holds it: fal_policy_free. */
struct fal_policy {
	struct fal_rule rule;
	bool no_clones;
	struct fal_policy_worker *worker; /* sorted by name */
	size_t workers, worker_cap;
};

void fal_policy_free(struct fal_policy *p); /* `p` is {0} again */
struct fal_policy fal_policy_copy(const struct fal_policy *p);
/* The entry of this name, or NULL. */
const struct fal_policy_worker *fal_policy_find(const struct fal_policy *p,
						const char *name);
/* The entry of this name, made if there is none; good until the next call that changes
 * the policy. */
struct fal_policy_worker *fal_policy_entry(struct fal_policy *p, const char *name);
/* Takes out the entries that lay nothing down. */
void fal_policy_tidy(struct fal_policy *p);

#endif
