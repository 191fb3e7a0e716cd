/* Loads the sets of a job from the files that the job names. */
#include "job/set.h"

#include "base/mem.h"
#include "base/text.h"
#include "job/job.h"

#include <stdlib.h>
#include <string.h>

/* A file's name in a list with commas. */
struct file_name {
	const char *p;
	size_t n;
};

/* Finds the first name of `list`, or with `is_single` the whole list, without blanks at
 * both ends.  Returns the rest of the list, or NULL. */
static const char *
first_name(const char *list, bool is_single, struct file_name *out)
{
	const size_t n = is_single ? strlen(list) : strcspn(list, ",");
	*out = (struct file_name){ list, n };
	while (out->n > 0 && strchr(" \t", *out->p) != NULL) {
		out->p++;
		out->n--;
	}
	while (out->n > 0 && strchr(" \t", out->p[out->n - 1]) != NULL)
		out->n--;
	return list[n] == ',' ? list + n + 1 : NULL;
}

/* Returns the path of the file; the caller frees the path. */
static char *
data_path(const struct fal_load *l, struct file_name name)
{
	char *copy = fal_xprintf("%.*s", (int)name.n, name.p);
	const char *slash = strrchr(copy, '/');
	const char *last = slash != NULL ? slash + 1 : copy;
	char *path = l->dir == NULL ? fal_job_path(l->job_file, copy)
				    : fal_xprintf("%s/%s", l->dir, last);
	free(copy);
	return path;
}

static struct fal_csv
job_table(const struct fal_job *job, const char *file)
{
	return (struct fal_csv){ file, job->label,
				 job->format == FAL_JOB_FORMAT_CSV ? ',' : '\t' };
}

/* Loads one file of samples; for IDX and npy, also its file of labels. */
static int
load_data_file(const struct fal_job *job, const char *samples, const char *labels,
	       const struct fal_set_opts *opts, struct fal_set *out,
	       struct fal_diag *diag)
{
	const bool coarse = job->label != NULL && strcmp(job->label, "coarse") == 0;
	const struct fal_csv table = job_table(job, samples);
	switch (job->format) {
	case FAL_JOB_FORMAT_IDX:
	case FAL_JOB_FORMAT_NPY:
		return fal_set_load_arrays(job->format == FAL_JOB_FORMAT_IDX
						   ? FAL_FILETYPE_IDX
						   : FAL_FILETYPE_NPY,
					   samples, labels, opts, out, diag);
	case FAL_JOB_FORMAT_SAFETENSORS:
		return fal_set_load_tensors(samples, job->features, job->label, opts, out,
					    diag);
	case FAL_JOB_FORMAT_CSV:
	case FAL_JOB_FORMAT_TSV:
		return fal_set_load_csv(&table, opts, out, diag);
	case FAL_JOB_FORMAT_TEXT:
		return fal_set_load_text(samples, job->window, opts, out, diag);
	case FAL_JOB_FORMAT_CIFAR10:
	case FAL_JOB_FORMAT_CIFAR100:
		return fal_set_load_cifar(samples,
					  job->format == FAL_JOB_FORMAT_CIFAR10
						  ? FAL_CIFAR10
					  : coarse ? FAL_CIFAR100_COARSE
						   : FAL_CIFAR100_FINE,
					  opts, out, diag);
	default:
		return fal_diag_set(diag, FAL_EINVAL, "data.format has no files");
	}
}

/* Loads the files of one set; `max` is the number of samples to use, 0: all. */
static int
load_set_files(const struct fal_load *l, const char *samples, const char *labels,
	       uint32_t max, struct fal_columns *columns, struct fal_set *set,
	       struct fal_diag *diag)
{
	const bool is_single =
		l->job->format == FAL_JOB_FORMAT_IDX || strchr(samples, ',') == NULL;
	const struct fal_set_opts opts = { .max_samples = is_single ? max : 0,
					   .classes = l->classes,
					   .targets =
						   l->job->target == FAL_JOB_TARGET_VALUE,
					   .columns = columns };
	int err = FAL_OK;
	while (err == FAL_OK && samples != NULL &&
	       (is_single || max == 0 || set->n < max)) {
		struct file_name a, b = { "", 0 };
		samples = first_name(samples, is_single, &a);
		if (labels != NULL)
			labels = first_name(labels, is_single, &b);
		char *path = data_path(l, a), *labels_path = data_path(l, b);
		struct fal_set more = { 0 };
		err = load_data_file(l->job, path, labels_path, &opts, &more, diag);
		if (err == FAL_OK && set->n > 0) {
			err = fal_set_append(set, &more);
			if (err < 0)
				fal_diag_set(diag, err,
					     err == FAL_EINVAL
						     ? "%s: samples of another type or "
						       "shape than in "
						       "the file before it"
						     : "%s: together with those before "
						       "it: too large",
					     path);
			fal_set_free(&more);
		} else if (err == FAL_OK)
			*set = more;
		free(path);
		free(labels_path);
		if (err == FAL_OK && l->job->train_labels != NULL &&
		    (samples == NULL) != (labels == NULL))
			err = fal_diag_set(diag, FAL_EINVAL,
					   "as many files of samples as of labels are "
					   "needed, with commas between");
	}
	if (err == FAL_OK && set->n < max)
		err = fal_diag_set(diag, FAL_EINVAL, "the files have %u sample%s, not %u",
				   set->n, fal_text_plural(set->n), max);
	if (err == FAL_OK && max > 0)
		set->n = max;
	return err;
}

static int
load_one_set(const struct fal_load *l, struct fal_columns *columns, struct fal_set *out,
	     struct fal_diag *diag)
{
	const struct fal_job *job = l->job;
	const uint32_t max = l->test ? job->test_samples : job->samples;
	const char *images = l->test ? job->test_images : job->train_images;
	const char *files = l->test ? job->test : job->train;
	const char *labels = l->test ? job->test_labels : job->train_labels;
	struct fal_set set = { 0 };
	int err;
	if (job->format == FAL_JOB_FORMAT_INDEX)
		err = fal_set_make_absent(max, &set);
	else
		err = load_set_files(l, images != NULL ? images : files, labels, max,
				     columns, &set, diag);
	if (err < 0) {
		fal_set_free(&set);
		return err;
	}
	*out = set;
	return FAL_OK;
}

int
fal_load_set(const struct fal_load *l, struct fal_set *out, struct fal_diag *diag)
{
	struct fal_columns columns = { 0 };
	int err = FAL_OK;
	/* A test set is loaded alone: its columns are those of the training set's first
	 * file.  Without that file the columns stay empty. */
	if (l->test && (l->job->format == FAL_JOB_FORMAT_CSV ||
			l->job->format == FAL_JOB_FORMAT_TSV)) {
		struct file_name name;
		first_name(l->job->train, false, &name);
		char *path = data_path(l, name);
		const struct fal_csv table = job_table(l->job, path);
		err = fal_csv_columns(&table, &columns, diag);
		free(path);
		if (err == FAL_ENOENT)
			err = FAL_OK;
	}
	if (err == FAL_OK)
		err = load_one_set(l, &columns, out, diag);
	fal_columns_free(&columns);
	return err;
}

int
fal_load_sets(const struct fal_load *l, struct fal_set *train, struct fal_set *test,
	      struct fal_diag *diag)
{
	struct fal_load part = *l;
	struct fal_set sets[2] = { { 0 }, { 0 } };
	struct fal_columns columns = { 0 };
	int err = FAL_OK;
	for (unsigned i = 0; i < 2 && err == FAL_OK; i++) {
		part.test = i == 1;
		if (i == 0 || fal_job_has_test(l->job))
			err = load_one_set(&part, &columns, &sets[i], diag);
	}
	fal_columns_free(&columns);
	if (err < 0) {
		fal_set_free(&sets[0]);
		return err;
	}
	if (sets[1].classes > sets[0].classes)
		sets[0].classes = sets[1].classes;
	sets[1].classes = sets[0].classes;
	*train = sets[0];
	*test = sets[1];
	return FAL_OK;
}
