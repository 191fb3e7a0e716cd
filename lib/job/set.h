/* A data set in memory: n samples of values of one type, each with a label: a class, or a
 * value to be predicted.
 *
 * The coordinator, or a worker with a local copy, loads a set from files; chunk.h cuts
 * sets into chunks, order.h orders the samples of an epoch.
 */
#ifndef FAL_JOB_SET_H
#define FAL_JOB_SET_H

#include "base/err.h"
#include "base/filetype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- types of values ---- */

/* A manifest has the same numbers (falcon-data(7)). */
enum fal_dtype {
	FAL_U8 = 0,
	FAL_I8,
	FAL_U16,
	FAL_I16,
	FAL_U32,
	FAL_I32,
	FAL_I64,
	FAL_F32,
	FAL_ABSENT, /* samples without bytes: trainers have them, by index */
	FAL_DTYPES,
	FAL_F64 = FAL_DTYPES /* only in files: memory has F32 */
};

/* Returns the type's name in safetensors ("F32"); static. */
const char *fal_dtype_name(enum fal_dtype t);

/* Returns the bytes of a value. */
size_t fal_dtype_size(enum fal_dtype t);

/* Finds the type with a name ("F32") or, with `npy`, with a descriptor of .npy files
 * ("<f4"); false: no such type. */
bool fal_dtype_of(const char *name, bool npy, enum fal_dtype *out);

/* Does the type hold whole numbers? */
static inline bool
fal_dtype_is_integer(enum fal_dtype t)
{
	return t < FAL_F32;
}

/* Returns the value at `p` (little-endian, unaligned) of a type of whole numbers. */
int64_t fal_dtype_integer(enum fal_dtype t, const uint8_t *p);
/* Returns the value at `p` of any type except ABSENT, rounded to float. */
float fal_dtype_float(enum fal_dtype t, const uint8_t *p);

/* ---- an array from a file: IDX (the format of MNIST), .npy (NumPy), or a tensor of a
 * safetensors file; plain or gzipped, recognised by the content ---- */

enum { FAL_ARRAY_DIMS = 4 };

/* Row-major. */
struct fal_array {
	enum fal_dtype dtype;         /* neither ABSENT nor F64 */
	unsigned ndim;                /* 1 … FAL_ARRAY_DIMS */
	uint32_t dim[FAL_ARRAY_DIMS]; /* of the file, each 1 … 2^31; 1 from ndim on */
	uint32_t rows;                /* rows kept: the first of dim[0] */
	size_t row_values;            /* dim[1] · dim[2] · dim[3] */
	size_t row_bytes;
	uint8_t *data; /* rows · row_bytes; floats are finite */
};

/* The part of a file to keep.  {0}: everything, without a limit. */
struct fal_array_opts {
	uint32_t max_rows;  /* number of first rows to keep; 0: all */
	uint64_t max_bytes; /* most bytes to keep; 0: no limit */
	const char *tensor; /* name of the tensor in a safetensors file; borrowed */
};

/* Reads a file of the kind NPY, IDX or SAFETENSORS; with NONE the first byte decides
 * between NPY and IDX.  `diag` (may be NULL) names the file and the fault.  IDX files
 * have unsigned bytes; .npy files have version 1 to 3, little-endian values, C order; F64
 * is rounded to F32.  The function reads and checks the whole file, including the rows
 * after the kept rows, but not the values of other tensors.
 *
 * FAL_ENOENT or FAL_EIO (the file cannot be read), FAL_EFORMAT (not the format, another
 * type or order, a dimension of 0, trailing bytes or damaged compressed bytes),
 * FAL_EVERSION (of .npy), FAL_ETRUNC, FAL_ELIMIT (above max_bytes), FAL_EINVAL (fewer
 * rows than max_rows, no such tensor), FAL_ENONFINITE, FAL_ENOMEM.  A gzip file has
 * members and zero bytes between and after the members, nothing else. */
int fal_array_read(enum fal_filetype_kind kind, const char *path,
		   const struct fal_array_opts *opts, struct fal_array *out,
		   struct fal_diag *diag);

void fal_array_free(struct fal_array *a); /* `a` is {0} again */

/* ---- sets ---- */

enum {
	/* Bytes of a sample: a byte less than a chunk, which holds the label as well. */
	FAL_SAMPLE_MAX = (1 << 20) - 1,
	FAL_CLASSES_BYTE = 256 /* most classes whose labels take one byte in a chunk */
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
	uint32_t sample_bytes; /* of a sample's values, 1 … FAL_SAMPLE_MAX; ABSENT: 0 */
	uint8_t *pixels;       /* n × shape; ABSENT: NULL, as labels is */
	uint32_t *labels;      /* n, each < classes, or finite */
};

/* The names of a table's value columns, in order, and the file with these names.  {0}: no
 * names yet. */
struct fal_columns {
	char **name;
	size_t n;
	char *file;
};

void fal_columns_free(struct fal_columns *c); /* `c` is {0} again */

/* Options of loading.  {0}: all samples, classes by the largest label. */
struct fal_set_opts {
	uint32_t max_samples; /* number of first samples to use; 0: all */
	uint32_t classes;     /* labels must be below; 0: classes = largest label + 1 */
	uint64_t max_bytes;   /* most bytes of samples; 0: no limit */
	bool targets;         /* npy, tensors and tables: labels are values */
	/* Tables: if `columns` is {0}, the file's names are stored there; else a file
	 * with as many columns but other names is refused.  A caller that knows the
	 * model's shape checks the number of columns.  NULL: any names. */
	struct fal_columns *columns;
};

/* Loads the IDX or .npy file `samples` (n × up to three dimensions) with the file
 * `labels` (n, or n × 1) of the same `kind`; labels are whole numbers, targets have any
 * type.  These and all files below may be gzipped.  `diag` (may be NULL) names the file
 * at fault, the line if the file has lines, and the value.  Free with fal_set_free.
 * Errors of fal_array_read; FAL_EFORMAT (dimensions or counts that do not fit, a label ≥
 * classes), FAL_ELIMIT (a sample above FAL_SAMPLE_MAX), FAL_EINVAL (options outside their
 * range). */
int fal_set_load_arrays(enum fal_filetype_kind kind, const char *samples,
			const char *labels, const struct fal_set_opts *opts,
			struct fal_set *out, struct fal_diag *diag);

/* Loads samples from an IDX or .npy file ("-": standard input), with labels of 0. */
int fal_set_load_unlabelled(const char *file, struct fal_set *out, struct fal_diag *diag);

/* As fal_set_load_arrays, from two tensors of a safetensors file. */
int fal_set_load_tensors(const char *file, const char *samples, const char *labels,
			 const struct fal_set_opts *opts, struct fal_set *out,
			 struct fal_diag *diag);

/* A table with a header, of RFC 4180, with fields separated by `comma`.  The column
 * `label` is the class or the target; all other columns, in order, are the values, F32.
 * Each field is a number; no field is empty. */
struct fal_csv {
	const char *file, *label;
	char comma;
};

/* Loads the table; errors as fal_set_load_arrays. */
int fal_set_load_csv(const struct fal_csv *t, const struct fal_set_opts *opts,
		     struct fal_set *out, struct fal_diag *diag);

/* Reads only the header's names into `out`, which is {0} before. */
int fal_csv_columns(const struct fal_csv *t, struct fal_columns *out,
		    struct fal_diag *diag);

/* Loads the bytes of a file as windows: sample i has the bytes i·window … i·window +
 * window, one more than the stride, so that each byte has its successor in the sample.
 * 256 classes, all labels 0.  Bytes that do not fill a window are ignored. */
int fal_set_load_text(const char *file, uint32_t window, const struct fal_set_opts *opts,
		      struct fal_set *out, struct fal_diag *diag);

/* CIFAR's binary version: records of labels and 3 × 32 × 32 bytes. */
enum fal_cifar { FAL_CIFAR10, FAL_CIFAR100_FINE, FAL_CIFAR100_COARSE };
/* Loads such a file; errors as fal_set_load_arrays. */
int fal_set_load_cifar(const char *file, enum fal_cifar kind,
		       const struct fal_set_opts *opts, struct fal_set *out,
		       struct fal_diag *diag);

/* Makes a set of n samples of type ABSENT, which only trainers have.  FAL_EINVAL: n is 0
 * or too large. */
int fal_set_make_absent(uint32_t n, struct fal_set *out);

/* Moves the samples of `from`, which becomes {0}, to the end of `set`.  FAL_EINVAL
 * (another type or shape), FAL_ELIMIT (too many), FAL_ENOMEM. */
int fal_set_append(struct fal_set *set, struct fal_set *from);

void fal_set_free(struct fal_set *set); /* `set` is {0} again */

/* ---- the data that a job names, from its files ---- */

struct fal_job;

/* The set to load and its job, all borrowed. */
struct fal_load {
	const struct fal_job *job;
	const char *job_file; /* paths are relative to its folder */
	const char *dir;      /* not NULL: the files lie here, under their last names */
	bool test;            /* load the test set; the job has one */
	uint32_t classes;     /* as in fal_set_opts */
};

/* Loads the set from the job's files, in order.  All tables must have the columns of the
 * training set's first file, by name and order; a test set reads that file's header, or
 * without that file takes the columns of its own first file.  Errors of the functions
 * above; `diag` names file, line and value. */
int fal_load_set(const struct fal_load *l, struct fal_set *out, struct fal_diag *diag);

/* Loads both sets; without a test set test->n becomes 0.  Both get the larger number of
 * classes.  Errors of fal_load_set. */
int fal_load_sets(const struct fal_load *l, struct fal_set *train, struct fal_set *test,
		  struct fal_diag *diag);

#endif
