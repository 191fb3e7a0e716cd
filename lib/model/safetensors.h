/* A flat parameter vector as safetensors bytes, and back.  The format: 8 bytes
 * little-endian N, N bytes of JSON, then the tensors' bytes
 * (https://github.com/huggingface/safetensors, "Format").
 */
#ifndef FAL_MODEL_SAFETENSORS_H
#define FAL_MODEL_SAFETENSORS_H

#include "base/buf.h"
#include "base/err.h"
#include "model/model.h"

/* The longest header, in bytes: 10,000 tensors need about that. */
#define FAL_SAFETENSORS_HEADER (UINT64_C(1) << 20)

/* An entry of __metadata__; both UTF-8. */
struct fal_metadata {
	const char *key, *value;
};

/* Appends to `out` the tensors of the `m->params` floats at `params` as F32, header and
 * data in the order of the flat vector, without gaps, the header padded with spaces to 8
 * bytes, so that equal arguments give equal bytes.  `meta` (`n` entries in the order
 * given) may be NULL with n = 0: then __metadata__ has
 * only what is frozen. FAL_EINVAL: metadata is
 * not UTF-8 or a key comes twice; FAL_ENOMEM. */
int fal_safetensors_put(const struct fal_model *m, const float *params,
			const struct fal_metadata *meta, size_t n, struct fal_buf *out);

/* What of that stands before the tensors, which follow as they lie in memory, in the
 * order of the model's: for whoever writes them from where they are. */
int fal_safetensors_head(const struct fal_model *m, const struct fal_metadata *meta,
			 size_t n, struct fal_buf *out);

/* The most bytes that fal_safetensors_put makes of the model and `meta` bytes of JSON. */
uint64_t fal_safetensors_bound(const struct fal_model *m, size_t meta);

/* Appends the header alone: JSON with name, F32, shape and place of each tensor, in the
 * order of the flat vector; __metadata__ has "frozen" for the names of those that are.
 * FAL_ENOMEM. */
int fal_safetensors_header(const struct fal_model *m, struct fal_buf *out);

/* Reads the `n` bytes (hostile) of what fal_safetensors_header writes, or of any header
 * whose tensors are F32, not empty, and cover their data without gap or overlap: a model
 * without layers, whose flat vector is in the order of the data.  `name` and `diag` as of
 * fal_model_parse, which calls it.  FAL_EFORMAT, FAL_ELIMIT (a FAL_MODEL_MAX),
 * FAL_ENOMEM. */
int fal_safetensors_names(const char *name, const char *text, size_t n,
			  struct fal_model **out, struct fal_diag *diag);
/* A whole file in memory (hostile), borrowed. */
struct fal_safetensors {
	const char *name; /* stands before a diagnosis */
	const void *bytes;
	size_t n;
	/* Passes over the tensors of integers or truth values whose names it takes, as
	 * the counters of a trainer's library are; NULL: none. */
	bool (*left)(const void *arg, const char *tensor);
	const void *arg;
};

/* The same as fal_safetensors_names of a whole file.  FAL_ETRUNC, too. */
int fal_safetensors_model(const struct fal_safetensors *f, struct fal_model **out,
			  struct fal_diag *diag);

/* What a header says of one of its tensors. */
struct fal_safetensor {
	char dtype[16];
	uint32_t dims, dim[FAL_MODEL_MAX_DIMS]; /* UINT32_MAX: too large */
	uint64_t at[2]; /* where its bytes begin and end among those of all tensors */
	uint64_t all;   /* bytes of all tensors: nothing follows them */
};

/* Finds a tensor in the `n` bytes of a header (hostile), whose tensors are of any types
 * and cover their data without gap or overlap.  FAL_EINVAL (none has that name),
 * FAL_EFORMAT, FAL_ENOMEM. */
int fal_safetensors_find(const char *name, const char *text, size_t n, const char *tensor,
			 struct fal_safetensor *out, struct fal_diag *diag);

/* Reads the file into `params` (m->params floats, written only on success).  Demands
 * exactly the tensors of `m`, with their shapes, as F32, F16 or BF16, covering the data
 * without gap or overlap, in any order; a diagnosis names the tensor, what it is and what
 * is wanted.  __metadata__ must be strings and is not used.  `diag` may be NULL.
 * FAL_ETRUNC, FAL_EFORMAT, FAL_ELIMIT (header above FAL_SAFETENSORS_HEADER),
 * FAL_ENOMEM. */
int fal_safetensors_get(const struct fal_safetensors *f, const struct fal_model *m,
			float *params, struct fal_diag *diag);

#endif
