/* Names of files into sets. */
#include "job/set.h"

#include "base/mem.h"
#include "base/text.h"
#include "job/job.h"

#include <stdlib.h>
#include <string.h>

/* A name among others, with commas between. */
struct name {
	const char *p;
	size_t n;
};

/* The name that begins at `list`; where the next one begins, or NULL. */
static const char *
first_of(const char *list, bool one, struct name *out)
{
	const size_t n = one ? strlen(list) : strcspn(list, ",");
	*out = (struct name){ list, n };
	while (out->n > 0 && strchr(" \t", *out->p) != NULL) {
		out->p++;
		out->n--;
	}
	while (out->n > 0 && strchr(" \t", out->p[out->n - 1]) != NULL)
		out->n--;
	return list[n] == ',' ? list + n + 1 : NULL;
}

/* Returns the path of the file; the caller frees it. */
static char *
path_of(const struct fal_load *l, struct name name)
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
table_of(const struct fal_job *job, const char *file)
{
	return (struct fal_csv){ file, job->label,
				 job->format == FAL_JOB_FORMAT_CSV ? ',' : '\t' };
}

/* One file, or one and that of its labels. */
static int
load_file(const struct fal_job *job, const char *samples, const char *labels,
	  const struct fal_set_opts *opts, struct fal_set *out, struct fal_diag *diag)
{
	const bool coarse = job->label != NULL && strcmp(job->label, "coarse") == 0;
	const struct fal_csv table = table_of(job, samples);
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

static int
load_next(const struct fal_load *l, struct name samples, struct name labels,
	  const struct fal_set_opts *opts, struct fal_set *out, struct fal_diag *diag)
{
	struct fal_set more = { 0 };
	char *a = path_of(l, samples), *b = path_of(l, labels);
	int err = load_file(l->job, a, b, opts, &more, diag);
	if (err == FAL_OK && out->n > 0) {
		err = fal_set_append(out, &more);
		if (err < 0)
			fal_diag_set(
				diag, err,
				err == FAL_EINVAL
					? "%s: samples of another type or shape than in "
					  "the file before it"
					: "%s: together with those before it: too large",
				a);
		fal_set_free(&more);
	} else if (err == FAL_OK)
		*out = more;
	free(a);
	free(b);
	return err;
}

static int
load_files(const struct fal_load *l, const char *samples, const char *labels,
	   uint32_t most, struct fal_columns *columns, struct fal_set *set,
	   struct fal_diag *diag)
{
	const bool one =
		l->job->format == FAL_JOB_FORMAT_IDX || strchr(samples, ',') == NULL;
	const struct fal_set_opts opts = { .max_samples = one ? most : 0,
					   .classes = l->classes,
					   .targets =
						   l->job->target == FAL_JOB_TARGET_VALUE,
					   .columns = columns };
	int err = FAL_OK;
	while (err == FAL_OK && samples != NULL && (one || most == 0 || set->n < most)) {
		struct name a, b = { "", 0 };
		samples = first_of(samples, one, &a);
		if (labels != NULL)
			labels = first_of(labels, one, &b);
		err = load_next(l, a, b, &opts, set, diag);
		if (err == FAL_OK && l->job->train_labels != NULL &&
		    (samples == NULL) != (labels == NULL))
			err = fal_diag_set(diag, FAL_EINVAL,
					   "as many files of samples as of labels are "
					   "needed, with commas between");
	}
	if (err == FAL_OK && set->n < most)
		err = fal_diag_set(diag, FAL_EINVAL, "the files have %u sample%s, not %u",
				   set->n, fal_text_s(set->n), most);
	if (err == FAL_OK && most > 0)
		set->n = most;
	return err;
}

/* A test set that is loaded alone has the columns of the training set, too, whose first
 * file may be elsewhere: then its own first file says what they are. */
static int
find_columns(const struct fal_load *l, struct fal_columns *out, struct fal_diag *diag)
{
	struct name name;
	if (!l->test || (l->job->format != FAL_JOB_FORMAT_CSV &&
			 l->job->format != FAL_JOB_FORMAT_TSV))
		return FAL_OK;
	first_of(l->job->train, false, &name);
	char *path = path_of(l, name);
	const struct fal_csv table = table_of(l->job, path);
	int err = fal_csv_columns(&table, out, diag);
	free(path);
	/* Who has no training set has no names to hold others against. */
	return err == FAL_ENOENT ? FAL_OK : err;
}

static int
load_set(const struct fal_load *l, struct fal_columns *columns, struct fal_set *out,
	 struct fal_diag *diag)
{
	const struct fal_job *job = l->job;
	const uint32_t most = l->test ? job->test_samples : job->samples;
	const char *images = l->test ? job->test_images : job->train_images;
	const char *files = l->test ? job->test : job->train;
	const char *labels = l->test ? job->test_labels : job->train_labels;
	struct fal_set set = { 0 };
	int err;
	if (job->format == FAL_JOB_FORMAT_INDEX)
		err = fal_set_none(most, &set);
	else
		err = load_files(l, images != NULL ? images : files, labels, most,
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
	int err = find_columns(l, &columns, diag);
	if (err == FAL_OK)
		err = load_set(l, &columns, out, diag);
	fal_columns_free(&columns);
	return err;
}

int
fal_load_sets(const struct fal_load *l, struct fal_set *train, struct fal_set *test,
	      struct fal_diag *diag)
{
	struct fal_load one = *l;
	struct fal_set sets[2] = { { 0 }, { 0 } };
	struct fal_columns columns = { 0 };
	int err = FAL_OK;
	for (unsigned i = 0; i < 2 && err == FAL_OK; i++) {
		one.test = i == 1;
		if (i == 0 || fal_job_has_test(l->job))
			err = load_set(&one, &columns, &sets[i], diag);
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
