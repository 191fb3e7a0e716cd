/* Which tensors of a job are not stepped by their gradients. */
#include "job/job.h"

#include "base/mem.h"
#include "base/text.h"
#include "job/ini.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A key whose patterns, apart by blanks, name such tensors. */
struct patterns {
	const char *key, *text; /* NULL: none */
	enum fal_range_rule rule;
	bool lax; /* not each of them has to name one, for some name what is left out */
};

/* The next pattern of a copy of the text; `*rest` is as of strtok_r. */
static char *
next_pattern(char *copy, char **rest)
{
	return strtok_r(copy, " \t", rest);
}

/* Whether any of the patterns names it. */
static bool
names(const char *patterns, const char *name)
{
	char copy[FAL_INI_LINE + 1], *rest = NULL;
	snprintf(copy, sizeof(copy), "%s", patterns != NULL ? patterns : "");
	for (char *p = next_pattern(copy, &rest); p != NULL;
	     p = next_pattern(NULL, &rest))
		if (fnmatch(p, name, 0) == 0)
			return true;
	return false;
}

bool
fal_job_buffers(const void *job, const char *name)
{
	return names(((const struct fal_job *)job)->buffers, name);
}

struct fal_safetensors
fal_job_tensors(const struct fal_job *job, const char *name, const struct fal_buf *bytes)
{
	return (struct fal_safetensors){ name, bytes->p, bytes->n, fal_job_buffers, job };
}

const char *
fal_job_server_only(const struct fal_job *job)
{
	if (job->buffers != NULL)
		return "model.buffers";
	if (job->push_bits != 0)
		return "push.bits";
	return job->nonfinite == FAL_JOB_NONFINITE_SKIP ? "job.nonfinite = skip" : NULL;
}

static int
useless(const struct patterns *k, const char *pattern, struct fal_diag *diag)
{
	return fal_diag_set(diag, FAL_EINVAL, "model.%s: '%s' names no tensor", k->key,
			    FAL_QUOTE(pattern));
}

/* Marks what the key names by 1 + rule. */
static int
mark(const struct fal_model *m, const struct patterns *k, uint8_t *marks,
     struct fal_diag *diag)
{
	char copy[FAL_INI_LINE + 1], *rest = NULL;
	uint32_t all = 0;
	if (k->text == NULL)
		return FAL_OK;
	snprintf(copy, sizeof(copy), "%s", k->text);
	for (char *p = next_pattern(copy, &rest); p != NULL;
	     p = next_pattern(NULL, &rest)) {
		uint32_t n = 0;
		for (uint32_t i = 0; i < m->tensors; i++)
			if (fnmatch(p, m->tensor[i].name, 0) == 0) {
				marks[i] = (uint8_t)(1 + k->rule);
				n++;
			}
		if (n == 0 && !k->lax)
			return useless(k, p, diag);
		all += n;
	}
	return all > 0 ? FAL_OK : useless(k, k->text, diag);
}

/* Ranges of marked tensors, neighbours of one rule in one; how many elements. */
static uint64_t
gather(const struct fal_model *m, const uint8_t *marks, struct fal_optim *o,
       struct fal_range *range)
{
	uint64_t all = 0;
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		if (marks[i] == 0)
			continue;
		const struct fal_range is = { t->offset, t->count,
					      (enum fal_range_rule)(marks[i] - 1) };
		struct fal_range *last = o->ranges > 0 ? &range[o->ranges - 1] : NULL;
		if (last != NULL && last->rule == is.rule &&
		    last->first + last->count == is.first)
			last->count += is.count;
		else
			range[o->ranges++] = is;
		all += t->count;
	}
	return all;
}

int
fal_job_ranges(struct fal_job *job, const struct fal_model *m, struct fal_diag *diag)
{
	/* What is frozen is so, though it be a buffer. */
	const struct patterns keys[] = {
		{ "buffers", job->buffers, FAL_RANGE_EMA, true },
		{ "freeze", job->freeze, FAL_RANGE_FROZEN, false },
	};
	uint32_t frozen = 0;
	for (uint32_t i = 0; i < m->tensors; i++)
		frozen += m->tensor[i].frozen;
	if (job->freeze == NULL && job->buffers == NULL && frozen == 0)
		return FAL_OK;
	uint8_t *marks = fal_calloc(m->tensors, 1);
	struct fal_range *range = fal_calloc(m->tensors, sizeof(*range));
	int err = marks != NULL && range != NULL
			  ? FAL_OK
			  : fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]) && err == FAL_OK; k++)
		err = mark(m, &keys[k], marks, diag);
	for (uint32_t i = 0; i < m->tensors && err == FAL_OK; i++)
		if (m->tensor[i].frozen)
			marks[i] = 1 + FAL_RANGE_FROZEN;
	if (err == FAL_OK && gather(m, marks, &job->optim, range) == m->values)
		err = fal_diag_set(diag, FAL_EINVAL,
				   "model.%s: '%s' leaves nothing to train",
				   job->freeze != NULL    ? "freeze"
				   : job->buffers != NULL ? "buffers"
							  : "init",
				   FAL_QUOTE(job->freeze != NULL    ? job->freeze
					     : job->buffers != NULL ? job->buffers
								    : job->init));
	free(marks);
	if (err < 0) {
		job->optim.ranges = 0;
		free(range);
		return err;
	}
	job->ranges = range;
	job->optim.range = range;
	return FAL_OK;
}
