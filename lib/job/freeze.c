/* Which tensors a job leaves as they are. */
#include "job/job.h"

#include "base/mem.h"
#include "base/text.h"
#include "job/ini.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first tensor from `i` on that the pattern names, or the number of tensors. */
static uint32_t
next_named(const struct fal_model *m, const char *pattern, uint32_t i)
{
	while (i < m->tensors && fnmatch(pattern, m->tensor[i].name, 0) != 0)
		i++;
	return i;
}

/* Marks what the patterns, apart by blanks, name. */
static int
mark(const struct fal_model *m, const char *patterns, uint8_t *frozen,
     struct fal_diag *diag)
{
	char copy[FAL_INI_LINE + 1], *rest = NULL;
	snprintf(copy, sizeof(copy), "%s", patterns);
	for (char *p = strtok_r(copy, " \t", &rest); p != NULL;
	     p = strtok_r(NULL, " \t", &rest)) {
		uint32_t i = next_named(m, p, 0);
		if (i == m->tensors)
			return fal_diag_set(diag, FAL_EINVAL,
					    "model.freeze: '%s' names no tensor",
					    FAL_QUOTE(p));
		for (; i < m->tensors; i = next_named(m, p, i + 1))
			frozen[i] = 1;
	}
	return FAL_OK;
}

int
fal_job_freeze(struct fal_job *job, const struct fal_model *m, struct fal_diag *diag)
{
	if (job->freeze == NULL)
		return FAL_OK;
	uint8_t *frozen = fal_calloc(m->tensors, 1);
	struct fal_range *range = fal_calloc(m->tensors, sizeof(*range));
	uint32_t n = 0;
	uint64_t all = 0;
	int err = frozen != NULL && range != NULL
			  ? mark(m, job->freeze, frozen, diag)
			  : fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < m->tensors && err == FAL_OK; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		if (!frozen[i])
			continue;
		if (n > 0 && range[n - 1].first + range[n - 1].count == t->offset)
			range[n - 1].count += t->count;
		else
			range[n++] = (struct fal_range){ t->offset, t->count };
		all += t->count;
	}
	if (err == FAL_OK && all == m->params)
		err = fal_diag_set(diag, FAL_EINVAL,
				   "model.freeze: '%s' leaves nothing to train",
				   FAL_QUOTE(job->freeze));
	free(frozen);
	if (err < 0) {
		free(range);
		return err;
	}
	job->frozen = range;
	job->optim.frozen = range;
	job->optim.frozens = n;
	return FAL_OK;
}
