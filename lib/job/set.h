/* A data set in memory: n samples of values of one type, each with a label: a class, or a
 * value to be predicted.
 *
 * The coordinator, or a worker with a local copy, loads a set from files; chunk.h cuts it
 * up, order.h deals it out.
 */
#ifndef FAL_JOB_SET_H
#define FAL_JOB_SET_H

#include "base/err.h"
#include "base/filetype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- types of values ---- */

/* The numbers are those of a manifest (falcon-data(7)). */
enum fal_dtype {
	FAL_U8 = 0,
	FAL_I8,
	FAL_U16,
	FAL_I16,
	FAL_U32,
	FAL_I32,
	FAL_I64,
	FAL_F32,
	FAL_ABSENT, /* samples have no bytes: others have them, by index */
	FAL_DTYPES,
	FAL_F64 = FAL_DTYPES /* in files alone: what is kept of it is F32 */
};

/* The type's name in safetensors ("F32"), which is also ours; static. */
const char *fal_dtype_name(enum fal_dtype t);

/* Bytes of a value. */
size_t fal_dtype_size(enum fal_dtype t);

/* Finds the type of a name ("F32") or, with `npy`, of a descriptor in .npy files ("<f4");
 * false: there is none. */
bool fal_dtype_of(const char *name, bool npy, enum fal_dtype *out);

/* Is it of whole numbers? */
static inline bool
fal_dtype_is_whole(enum fal_dtype t)
{
	return t < FAL_F32;
}

/* The value at `p`, little-endian and not aligned, of a type of whole numbers; and of
 * any but ABSENT, rounded to float. */
int64_t fal_dtype_whole(enum fal_dtype t, const uint8_t *p);
float fal_dtype_float(enum fal_dtype t, const uint8_t *p);

/* ---- an array from a file: IDX, the format of MNIST; .npy, that of NumPy; or a tensor
 * of a safetensors file.  Plain or gzipped, which is told by the content. ---- */

enum { FAL_ARRAY_DIMS = 4 };

/* Row-major. */
struct fal_array {
	enum fal_dtype dtype;         /* neither ABSENT nor F64 */
	unsigned ndim;                /* 1 … FAL_ARRAY_DIMS */
	uint32_t dim[FAL_ARRAY_DIMS]; /* as in the file, each 1 … 2^31; unused ones are 1
				       */
	uint32_t rows;                /* rows kept: the first of dim[0] */
	size_t row_values;            /* dim[1] · dim[2] · dim[3] */
	size_t row_bytes;
	uint8_t *data; /* rows · row_bytes; floats are finite */
};

/* The part of a file to keep.  {0} is everything, without a limit. */
struct fal_array_opts {
	uint32_t max_rows;  /* keep the first so many rows; 0: all */
	uint64_t max_bytes; /* refuse to keep more bytes than this; 0: no limit */
	const char *tensor; /* its name, for safetensors alone; borrowed */
};

/* Reads a file of one kind, NPY, IDX or SAFETENSORS, or, NONE, of the first two as its
 * first byte has it; `diag` (may be NULL) names the file and what is wrong
 * with it.  IDX is of unsigned bytes, .npy of version 1 to 3, little-endian and in C
 * order; F64 is rounded to F32.  The whole file is read and judged, also behind the rows
 * that are kept; of safetensors the values of other tensors are not.
 *
 * FAL_ENOENT or FAL_EIO (cannot be read), FAL_EFORMAT (not the format, another type or
 * order, a dimension of 0, trailing or broken compressed bytes), FAL_EVERSION (of .npy),
 * FAL_ETRUNC, FAL_ELIMIT (above max_bytes), FAL_EINVAL (max_rows is more than the file
 * has; there is no such tensor), FAL_ENONFINITE, FAL_ENOMEM.  A gzip file is
 * members, zero bytes between and behind them, and nothing else. */
int fal_array_read(enum fal_filetype_is kind, const char *path,
		   const struct fal_array_opts *opts, struct fal_array *out,
		   struct fal_diag *diag);

void fal_array_free(struct fal_array *a); /* `a` is {0} again */

/* ---- sets ---- */

enum {
	/* bytes a sample: one less than a chunk, which holds its label too */
	FAL_SAMPLE_MAX = (1 << 20) - 1,
	FAL_CLASSES_BYTE = 256 /* a label of up to so many is a byte in a chunk */
};

#define FAL_SAMPLES_MAX (UINT32_C(1) << 31)
#define FAL_CLASSES_MAX (UINT32_C(1) << 31)

struct fal_set {
	enum fal_dtype dtype;
	uint32_t n;            /* samples, 1 … FAL_SAMPLES_MAX */
	uint32_t shape[3];     /* channels, height, width; absent leading ones are 1 */
	bool targets;          /* labels are values, the bits of float32; 1 class */
	uint32_t classes;      /* 1 … FAL_CLASSES_MAX */
	uint32_t values;       /* shape[0] · shape[1] · shape[2] */
	uint32_t sample_bytes; /* of that many values, 1 … FAL_SAMPLE_MAX; ABSENT: 0 */
	uint8_t *pixels;       /* n × shape; ABSENT: NULL, as the labels */
	uint32_t *labels;      /* n, each < classes, or finite */
};

/* The names of a table's columns of values, in their order, and the file that has them.
 * {0}: none yet. */
struct fal_columns {
	char **name;
	size_t n;
	char *file;
};

void fal_columns_free(struct fal_columns *c); /* `c` is {0} again */

/* How to load.  {0} takes every sample and counts the classes itself. */
struct fal_set_opts {
	uint32_t max_samples; /* use only the first so many; 0: all */
	uint32_t classes;     /* refuse labels from here on; 0: highest label + 1 */
	uint64_t max_bytes;   /* refuse a set of more sample bytes; 0: no limit */
	bool targets;         /* of npy, tensors and tables: labels are values */
	/* Of tables: if these are none, they become the file's; else a file whose columns
	 * have other names is refused.  Other numbers of columns are for who knows the
	 * shape that is wanted.  NULL: any names. */
	struct fal_columns *columns;
};

/* Loads the IDX or .npy file `samples` (n × up to three dimensions) with the file
 * `labels` (n, or n × 1) of the same `kind`; labels are of whole numbers, targets of any
 * type.  Both may be gzipped, as all files below.  `diag` (may be NULL) names the file at
 * fault, and the line, where it has lines, and the value.  Errors: those of
 * fal_array_read; FAL_EFORMAT for dimensions or counts that do not fit, and for a label ≥
 * classes; FAL_ELIMIT for a sample above FAL_SAMPLE_MAX; FAL_EINVAL for options outside
 * their range.  Free with fal_set_free. */
int fal_set_load_arrays(enum fal_filetype_is kind, const char *samples,
			const char *labels, const struct fal_set_opts *opts,
			struct fal_set *out, struct fal_diag *diag);

/* Samples without labels, which are 0, from an IDX file or a .npy one; "-" is stdin. */
int fal_set_load_unlabelled(const char *file, struct fal_set *out, struct fal_diag *diag);

/* The same of two tensors of a safetensors file. */
int fal_set_load_tensors(const char *file, const char *samples, const char *labels,
			 const struct fal_set_opts *opts, struct fal_set *out,
			 struct fal_diag *diag);

/* A table with a header: fields between `comma`, as RFC 4180 has them.  The column
 * `label` is the class, or the target; all others, in their order, are the values, F32.
 * Each field is a number; none is empty. */
struct fal_csv {
	const char *file, *label;
	char comma;
};
int fal_set_load_csv(const struct fal_csv *t, const struct fal_set_opts *opts,
		     struct fal_set *out, struct fal_diag *diag);

/* The names alone, from the first line; the rest is not read.  `out` is {0}. */
int fal_csv_columns(const struct fal_csv *t, struct fal_columns *out,
		    struct fal_diag *diag);

/* The bytes of a file, as windows: sample i is bytes i·window … i·window + window, one
 * more than the stride, so that each byte has the next one beside it.  256 classes, all
 * labels 0.  What does not fill a window is left out. */
int fal_set_load_text(const char *file, uint32_t window, const struct fal_set_opts *opts,
		      struct fal_set *out, struct fal_diag *diag);

/* CIFAR's binary version: records of labels and 3 × 32 × 32 bytes. */
enum fal_cifar { FAL_CIFAR10, FAL_CIFAR100_FINE, FAL_CIFAR100_COARSE };
int fal_set_load_cifar(const char *file, enum fal_cifar kind,
		       const struct fal_set_opts *opts, struct fal_set *out,
		       struct fal_diag *diag);

/* n samples that are not Falcon's: of type ABSENT. */
int fal_set_none(uint32_t n, struct fal_set *out);

/* Appends the samples of `from` (which is {0} then) to `set`.  FAL_EINVAL: they are of
 * another type or shape; FAL_ELIMIT: too many; FAL_ENOMEM. */
int fal_set_append(struct fal_set *set, struct fal_set *from);

void fal_set_free(struct fal_set *set); /* `set` is {0} again */

/* ---- the data that a job names, from its files ---- */

struct fal_job;

/* The set to load and its job, all borrowed. */
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
