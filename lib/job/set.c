/* Types of values, and pairs of arrays as data sets. */
#include "job/set.h"

#include "base/mem.h"
#include "base/text.h"
#include "job/source.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- types of values, by one table ---- */

static const struct {
	char name[5], npy[4];
	uint8_t size;
} types[FAL_F64 + 1] = {
	[FAL_U8] = { "U8", "|u1", 1 },   [FAL_I8] = { "I8", "|i1", 1 },
	[FAL_U16] = { "U16", "<u2", 2 }, [FAL_I16] = { "I16", "<i2", 2 },
	[FAL_U32] = { "U32", "<u4", 4 }, [FAL_I32] = { "I32", "<i4", 4 },
	[FAL_I64] = { "I64", "<i8", 8 }, [FAL_F32] = { "F32", "<f4", 4 },
	[FAL_F64] = { "F64", "<f8", 8 },
};

_Static_assert((int)FAL_ABSENT + 1 == (int)FAL_F64, "ABSENT is given up for F64's place");

const char *
fal_dtype_name(enum fal_dtype t)
{
	return t == FAL_ABSENT ? "none" : types[t].name;
}

size_t
fal_dtype_size(enum fal_dtype t)
{
	return types[t].size;
}

bool
fal_dtype_of(const char *name, bool npy, enum fal_dtype *out)
{
	unsigned i = 0;
	while (i <= FAL_F64 && (types[i].size == 0 ||
				strcmp(npy ? types[i].npy : types[i].name, name) != 0))
		i++;
	if (i <= FAL_F64)
		*out = (enum fal_dtype)i;
	return i <= FAL_F64;
}

#define LOAD(type, p)                         \
	({                                    \
		type v_;                      \
		memcpy(&v_, (p), sizeof(v_)); \
		v_;                           \
	})

int64_t
fal_dtype_whole(enum fal_dtype t, const uint8_t *p)
{
	switch (t) {
	case FAL_U8:
		return *p;
	case FAL_I8:
		return LOAD(int8_t, p);
	case FAL_U16:
		return LOAD(uint16_t, p);
	case FAL_I16:
		return LOAD(int16_t, p);
	case FAL_U32:
		return LOAD(uint32_t, p);
	case FAL_I32:
		return LOAD(int32_t, p);
	default:
		assert(t == FAL_I64);
		return LOAD(int64_t, p);
	}
}

float
fal_dtype_float(enum fal_dtype t, const uint8_t *p)
{
	if (t == FAL_F32)
		return LOAD(float, p);
	if (t == FAL_F64)
		return (float)LOAD(double, p);
	return (float)fal_dtype_whole(t, p);
}

/* ---- sets ---- */

/* An array, and how a diagnosis calls it. */
struct side {
	struct fal_array a;
	const char *name;
};

/* Are there as many ones as rows, and else zeros? */
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

/* Do the two arrays make one set? */
static int
check_pair(const struct side *img, const struct side *lab, bool targets,
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
	if (!targets && !fal_dtype_is_whole(lab->a.dtype))
		return fal_diag_set(diag, FAL_EFORMAT,
				    "%s: labels are whole numbers, not %s; or is "
				    "data.target = value meant?",
				    lab->name, fal_dtype_name(lab->a.dtype));
	if (img->a.dim[0] != lab->a.dim[0])
		return fal_diag_set(diag, FAL_EFORMAT,
				    "%s: %u label%s for the %u sample%s of %s", lab->name,
				    lab->a.dim[0], fal_text_s(lab->a.dim[0]),
				    img->a.dim[0], fal_text_s(img->a.dim[0]), img->name);
	if (img->a.row_bytes > FAL_SAMPLE_MAX)
		return fal_diag_set(diag, FAL_ELIMIT,
				    "%s: a sample of %zu bytes is above the limit of %d",
				    img->name, img->a.row_bytes, FAL_SAMPLE_MAX);
	return FAL_OK;
}

/* The number of classes: as asked, or as found. */
static int
make_classes(const struct side *lab, uint32_t asked, struct fal_set *out,
	     struct fal_diag *diag)
{
	const size_t size = fal_dtype_size(lab->a.dtype);
	uint32_t limit = asked != 0 ? asked : FAL_CLASSES_MAX, found = 0;
	for (uint32_t i = 0; i < lab->a.rows; i++) {
		const int64_t v = fal_dtype_whole(lab->a.dtype, lab->a.data + i * size);
		if (v < 0 || v >= limit)
			return fal_diag_set(
				diag, FAL_EFORMAT,
				v < 0 ? "%s: label %jd of sample %u is below 0"
				      : "%s: label %jd of sample %u is not below %u",
				lab->name, v, i, limit);
		if (v >= found)
			found = (uint32_t)v + 1;
		out->labels[i] = (uint32_t)v;
	}
	out->classes = asked != 0 ? asked : found;
	return FAL_OK;
}

/* The set of two arrays; the samples are taken. */
static int
make_set(struct side *img, const struct side *lab, const struct fal_set_opts *opts,
	 struct fal_set *out, struct fal_diag *diag)
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
	if (opts->targets) {
		const size_t size = fal_dtype_size(lab->a.dtype);
		for (uint32_t i = 0; i < lab->a.rows; i++) {
			const float v =
				fal_dtype_float(lab->a.dtype, lab->a.data + i * size);
			memcpy(&set.labels[i], &v, sizeof(v));
		}
		set.targets = true;
		set.classes = 1;
	} else if ((err = make_classes(lab, opts->classes, &set, diag)) < 0) {
		fal_set_free(&set);
		return err;
	}
	for (unsigned i = 0; i < 3; i++) {
		/* The last dimensions of the file, with ones in front. */
		unsigned skip = FAL_ARRAY_DIMS - img->a.ndim;
		set.shape[i] = i < skip ? 1 : img->a.dim[i - skip + 1];
	}
	set.pixels = img->a.data;
	img->a.data = NULL;
	*out = set;
	return FAL_OK;
}

/* What two arrays are read from. */
struct pair {
	enum fal_filetype_is kind;
	const char *samples, *labels; /* files */
	const char *x, *y;            /* tensors in them */
	const char *x_name, *y_name;  /* in a diagnosis */
};

static int
load_pair(const struct pair *p, const struct fal_set_opts *opts, struct fal_set *out,
	  struct fal_diag *diag)
{
	const struct fal_array_opts x = { opts->max_samples, opts->max_bytes, p->x };
	const struct fal_array_opts y = { opts->max_samples, opts->max_bytes, p->y };
	struct side img = { .name = p->x_name }, lab = { .name = p->y_name };
	if (opts->classes > FAL_CLASSES_MAX)
		return fal_diag_set(diag, FAL_EINVAL, "%s: %u classes are more than %u",
				    p->labels, opts->classes, FAL_CLASSES_MAX);
	int err = fal_array_read(p->kind, p->labels, &y, &lab.a, diag);
	if (err == FAL_OK)
		err = fal_array_read(p->kind, p->samples, &x, &img.a, diag);
	if (err == FAL_OK)
		err = make_set(&img, &lab, opts, out, diag);
	fal_array_free(&img.a);
	fal_array_free(&lab.a);
	return err;
}

int
fal_set_load_arrays(enum fal_filetype_is kind, const char *samples, const char *labels,
		    const struct fal_set_opts *opts, struct fal_set *out,
		    struct fal_diag *diag)
{
	const struct pair p = { kind, samples, labels, NULL, NULL, samples, labels };
	return load_pair(&p, opts, out, diag);
}

int
fal_set_load_unlabelled(const char *file, struct fal_set *out, struct fal_diag *diag)
{
	const struct fal_array_opts all = { 0 };
	const struct fal_set_opts one = { .classes = 1 };
	const char *name = strcmp(file, "-") == 0 ? source_stdin : file;
	struct side img = { .name = name }, lab = { .name = name };
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
		      ? make_set(&img, &lab, &one, out, diag)
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
	const struct pair p = {
		FAL_FILETYPE_SAFETENSORS, file, file, samples, labels, x.text, y.text
	};
	return load_pair(&p, opts, out, diag);
}

int
fal_set_none(uint32_t n, struct fal_set *out)
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
