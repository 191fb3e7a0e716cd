/* Policies: a rule and a sorted list of workers. */
#include "sched/policy.h"

#include "base/err.h"
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

int
fal_policy_copy(const struct fal_policy *p, struct fal_policy *out)
{
	struct fal_policy copy = { .rule = p->rule, .no_clones = p->no_clones };
	copy.worker = fal_calloc(p->workers, sizeof(*copy.worker));
	if (copy.worker == NULL)
		return FAL_ENOMEM;
	for (size_t i = 0; i < p->workers; i++) {
		struct fal_policy_worker *w = &copy.worker[copy.workers++];
		*w = p->worker[i];
		w->name = fal_strdup(p->worker[i].name);
		if (w->name == NULL) {
			fal_policy_free(&copy);
			return FAL_ENOMEM;
		}
	}
	*out = copy;
	return FAL_OK;
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

int
fal_policy_entry(struct fal_policy *p, const char *name, struct fal_policy_worker **out)
{
	size_t at = place(p, name);
	if (fal_policy_find(p, name) == NULL) {
		char *copy = fal_strdup(name);
		struct fal_policy_worker *v =
			fal_realloc(p->worker, p->workers + 1, sizeof(*v));
		if (v != NULL)
			p->worker = v;
		if (v == NULL || copy == NULL) {
			free(copy);
			return FAL_ENOMEM;
		}
		memmove(v + at + 1, v + at, (p->workers++ - at) * sizeof(*v));
		v[at] = (struct fal_policy_worker){ .name = copy, .share = -1 };
	}
	*out = &p->worker[at];
	return FAL_OK;
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
