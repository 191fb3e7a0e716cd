/* Policies: a rule and a sorted list of workers. */
#include "sched/policy.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void
fal_policy_free(struct fal_policy *p)
{
	for (size_t i = 0; i < p->workers; i++)
		free(p->worker[i].name);
	free(p->worker);
	*p = (struct fal_policy){ 0 };
}

struct fal_policy
fal_policy_copy(const struct fal_policy *p)
{
	struct fal_policy copy = *p;
	copy.worker_cap = p->workers;
	copy.worker = fal_xcalloc(p->workers, sizeof(*copy.worker));
	for (size_t i = 0; i < p->workers; i++) {
		copy.worker[i] = p->worker[i];
		copy.worker[i].name = fal_xstrdup(p->worker[i].name);
	}
	return copy;
}

/* Where the entry of this name is, or belongs. */
static size_t
place(const struct fal_policy *p, const char *name)
{
	size_t low = 0, high = p->workers;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (strcmp(p->worker[mid].name, name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const struct fal_policy_worker *
fal_policy_find(const struct fal_policy *p, const char *name)
{
	size_t at = place(p, name);
	bool there = at < p->workers && strcmp(p->worker[at].name, name) == 0;
	return there ? &p->worker[at] : NULL;
}

struct fal_policy_worker *
fal_policy_entry(struct fal_policy *p, const char *name)
{
	const size_t at = place(p, name);
	if (fal_policy_find(p, name) == NULL) {
		FAL_XGROW(p->worker, p->worker_cap, p->workers + 1);
		memmove(p->worker + at + 1, p->worker + at,
			(p->workers++ - at) * sizeof(*p->worker));
		p->worker[at] = (struct fal_policy_worker){ .name = fal_xstrdup(name),
							    .share = -1 };
	}
	return &p->worker[at];
}

void
fal_policy_tidy(struct fal_policy *p)
{
	size_t kept = 0;
	for (size_t i = 0; i < p->workers; i++) {
		struct fal_policy_worker *w = &p->worker[i];
		if (w->lanes_max == 0 && w->share < 0 && !w->excluded &&
		    w->site[0] == '\0')
			free(w->name);
		else
			p->worker[kept++] = *w;
	}
	p->workers = kept;
}
