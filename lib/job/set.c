/* Makes data sets of pairs of arrays; appends and frees sets. */
#include "job/set.h"

#include "base/mem.h"
#include "base/text.h"
#include "job/source.h"

#include <stdlib.h>
#include <string.h>

/* An array, and its name in a diagnosis. */
struct named_array {
	struct fal_array a;
	const char *name;
};

/* Is each value 0 or 1, with as many ones as rows? */
static bool
looks_one_hot(const struct fal_array *a)
{
	const size_t size = fal_dtype_size(a->dtype);
	size_t ones = 0;
	for (size_t i = 0; i < a->rows * a->row_values; i++) {
		const float v = fal_dtype_float(a->dtype, a->data + i * size);
		if (v != 0 && v != 1)
			return false;
		ones += v == 1;
	}
	return ones == a->rows;
}

/* Checks that the two arrays make a set. */
static int
check_pair(const struct named_array *img, const struct named_array *lab, bool targets,
	   struct fal_diag *diag)
{
	if (img->a.ndim < 2)
		return fal_diag_set(diag, FAL_EFORMAT,
				    "%s: one dimension only: labels, not samples?",
				    img->name);
	if (lab->a.row_values != 1)
		return fal_diag_set(diag, FAL_EFORMAT,
				    looks_one_hot(&lab->a)
					    ? "%s: one-hot labels: save the numbers of "
					      "the classes, argmax(axis=1)"
					    : "%s: %u dimensions: samples, not labels?",
				    lab->name, lab->a.ndim);
	if (!targets && !fal_dtype_is_integer(lab->a.dtype))
		return fal_diag_set(diag, FAL_EFORMAT,
				    "%s: labels are whole numbers, not %s; or is "
				    "data.target = value meant?",
				    lab->name, fal_dtype_name(lab->a.dtype));
	if (img->a.dim[0] != lab->a.dim[0])
		return fal_diag_set(diag, FAL_EFORMAT,
				    "%s: %u label%s for the %u sample%s of %s", lab->name,
				    lab->a.dim[0], fal_text_plural(lab->a.dim[0]),
				    img->a.dim[0], fal_text_plural(img->a.dim[0]),
				    img->name);
	if (img->a.row_bytes > FAL_SAMPLE_MAX)
		return fal_diag_set(diag, FAL_ELIMIT,
				    "%s: a sample of %zu bytes is above the limit of %d",
				    img->name, img->a.row_bytes, FAL_SAMPLE_MAX);
	return FAL_OK;
}

/* Makes the set of two arrays and takes the samples' memory. */
static int
make_pair_set(struct named_array *img, const struct named_array *lab,
	      const struct fal_set_opts *opts, struct fal_set *out, struct fal_diag *diag)
{
	struct fal_set set = {
		.dtype = img->a.dtype,
		.n = img->a.rows,
		.values = (uint32_t)img->a.row_values,
		.sample_bytes = (uint32_t)img->a.row_bytes,
	};
	int err = check_pair(img, lab, opts->targets, diag);
	if (err < 0)
		return err;
	set.labels = fal_calloc(set.n, sizeof(*set.labels));
	if (set.labels == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "%s: out of memory", lab->name);
	const size_t size = fal_dtype_size(lab->a.dtype);
	if (opts->targets) {
		for (uint32_t i = 0; i < lab->a.rows; i++) {
			const float v =
				fal_dtype_float(lab->a.dtype, lab->a.data + i * size);
			memcpy(&set.labels[i], &v, sizeof(v));
		}
		set.targets = true;
		set.classes = 1;
	} else {
		/* The number of classes is the given one, or the largest label + 1. */
		const uint32_t limit =
			opts->classes != 0 ? opts->classes : FAL_CLASSES_MAX;
		for (uint32_t i = 0; i < lab->a.rows; i++) {
			const int64_t v =
				fal_dtype_integer(lab->a.dtype, lab->a.data + i * size);
			if (v < 0 || v >= limit) {
				fal_set_free(&set);
				return fal_diag_set(
					diag, FAL_EFORMAT,
					v < 0 ? "%s: label %jd of sample %u is below 0"
					      : "%s: label %jd of sample %u is not below "
						"%u",
					lab->name, v, i, limit);
			}
			if (v >= set.classes)
				set.classes = (uint32_t)v + 1;
			set.labels[i] = (uint32_t)v;
		}
		set.classes = opts->classes != 0 ? opts->classes : set.classes;
	}
	for (unsigned i = 0; i < 3; i++) {
		/* The last dimensions of the file, preceded by ones. */
		unsigned ones = FAL_ARRAY_DIMS - img->a.ndim;
		set.shape[i] = i < ones ? 1 : img->a.dim[i - ones + 1];
	}
	set.pixels = img->a.data;
	img->a.data = NULL;
	*out = set;
	return FAL_OK;
}

/* The places of the two arrays of a set. */
struct array_pair {
	enum fal_filetype_kind kind;
	const char *samples, *labels; /* files */
	const char *x, *y;            /* tensors in the files; NULL: whole files */
	const char *x_name, *y_name;  /* in a diagnosis */
};

static int
load_pair(const struct array_pair *p, const struct fal_set_opts *opts,
	  struct fal_set *out, struct fal_diag *diag)
{
	const struct fal_array_opts x = { opts->max_samples, opts->max_bytes, p->x };
	const struct fal_array_opts y = { opts->max_samples, opts->max_bytes, p->y };
	struct named_array img = { .name = p->x_name }, lab = { .name = p->y_name };
	if (opts->classes > FAL_CLASSES_MAX)
		return fal_diag_set(diag, FAL_EINVAL, "%s: %u classes are more than %u",
				    p->labels, opts->classes, FAL_CLASSES_MAX);
	int err = fal_array_read(p->kind, p->labels, &y, &lab.a, diag);
	if (err == FAL_OK)
		err = fal_array_read(p->kind, p->samples, &x, &img.a, diag);
	if (err == FAL_OK)
		err = make_pair_set(&img, &lab, opts, out, diag);
	fal_array_free(&img.a);
	fal_array_free(&lab.a);
	return err;
}

int
fal_set_load_arrays(enum fal_filetype_kind kind, const char *samples, const char *labels,
		    const struct fal_set_opts *opts, struct fal_set *out,
		    struct fal_diag *diag)
{
	const struct array_pair p = {
		kind, samples, labels, NULL, NULL, samples, labels
	};
	return load_pair(&p, opts, out, diag);
}

int
fal_set_load_unlabelled(const char *file, struct fal_set *out, struct fal_diag *diag)
{
	const struct fal_array_opts all = { 0 };
	const struct fal_set_opts one = { .classes = 1 };
	const char *name = strcmp(file, "-") == 0 ? source_stdin : file;
	struct named_array img = { .name = name }, lab = { .name = name };
	int err = fal_array_read(FAL_FILETYPE_NONE, name, &all, &img.a, diag);
	if (err < 0)
		return err;
	lab.a = (struct fal_array){ .dtype = FAL_U8,
				    .ndim = 1,
				    .dim = { img.a.rows, 1, 1, 1 },
				    .rows = img.a.rows,
				    .row_values = 1,
				    .row_bytes = 1,
				    .data = fal_calloc(img.a.rows, 1) };
	err = lab.a.data != NULL
		      ? make_pair_set(&img, &lab, &one, out, diag)
		      : fal_diag_set(diag, FAL_ENOMEM, "%s: out of memory", name);
	fal_array_free(&img.a);
	fal_array_free(&lab.a);
	return err;
}

int
fal_set_load_tensors(const char *file, const char *samples, const char *labels,
		     const struct fal_set_opts *opts, struct fal_set *out,
		     struct fal_diag *diag)
{
	struct fal_diag x, y;
	fal_diag_set(&x, 0, "%s: tensor '%s'", file, FAL_QUOTE(samples));
	fal_diag_set(&y, 0, "%s: tensor '%s'", file, FAL_QUOTE(labels));
	const struct array_pair p = {
		FAL_FILETYPE_SAFETENSORS, file, file, samples, labels, x.text, y.text
	};
	return load_pair(&p, opts, out, diag);
}

int
fal_set_make_absent(uint32_t n, struct fal_set *out)
{
	if (n == 0 || n > FAL_SAMPLES_MAX)
		return FAL_EINVAL;
	*out = (struct fal_set){ .dtype = FAL_ABSENT,
				 .n = n,
				 .shape = { 1, 1, 1 },
				 .classes = 1,
				 .values = 1 };
	return FAL_OK;
}

int
fal_set_append(struct fal_set *set, struct fal_set *from)
{
	if (set->dtype != from->dtype || set->targets != from->targets ||
	    memcmp(set->shape, from->shape, sizeof(set->shape)) != 0)
		return FAL_EINVAL;
	if ((uint64_t)set->n + from->n > FAL_SAMPLES_MAX)
		return FAL_ELIMIT;
	const uint32_t n = set->n + from->n;
	uint8_t *p = fal_realloc(set->pixels, n, set->sample_bytes);
	if (p == NULL)
		return FAL_ENOMEM;
	set->pixels = p;
	uint32_t *labels = fal_realloc(set->labels, n, sizeof(*labels));
	if (labels == NULL)
		return FAL_ENOMEM;
	set->labels = labels;
	memcpy(set->pixels + (size_t)set->n * set->sample_bytes, from->pixels,
	       (size_t)from->n * set->sample_bytes);
	memcpy(set->labels + set->n, from->labels, from->n * sizeof(*labels));
	set->n = n;
	if (from->classes > set->classes)
		set->classes = from->classes;
	fal_set_free(from);
	return FAL_OK;
}

void
fal_set_free(struct fal_set *set)
{
	free(set->pixels);
	free(set->labels);
	*set = (struct fal_set){ 0 };
}
