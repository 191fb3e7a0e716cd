/* Converts a flat parameter vector to safetensors bytes and back.  The format: 8 bytes
 * little-endian N, N bytes of JSON, then the tensors' bytes
 * (https://github.com/huggingface/safetensors, "Format").
 */
#ifndef FAL_MODEL_SAFETENSORS_H
#define FAL_MODEL_SAFETENSORS_H

#include "base/buf.h"
#include "base/err.h"
#include "model/model.h"

/* The longest header in bytes, about that of 10,000 tensors. */
#define FAL_SAFETENSORS_HEADER (UINT64_C(1) << 20)

/* An entry of __metadata__; both UTF-8. */
struct fal_metadata {
	const char *key, *value;
};

/* Appends the tensors of the `m->params` floats at `params` as F32: header and data in
 * the order of the flat vector, without gaps, the header padded with spaces to 8 bytes.
 * Equal arguments give equal bytes.  `meta` has `n` entries in the order to be written;
 * with `meta` NULL and n = 0, __metadata__ names the frozen tensors instead.  FAL_EINVAL
 * (metadata is not UTF-8, or a key comes twice), FAL_ENOMEM. */
int fal_safetensors_put(const struct fal_model *m, const float *params,
			const struct fal_metadata *meta, size_t n, struct fal_buf *out);

/* Appends only the part before the tensors' bytes, for a caller that writes the tensors
 * from their place in memory, in the model's order. */
int fal_safetensors_head(const struct fal_model *m, const struct fal_metadata *meta,
			 size_t n, struct fal_buf *out);

/* Returns the most bytes that fal_safetensors_put writes for the model and `meta` bytes
 * of JSON. */
uint64_t fal_safetensors_bound(const struct fal_model *m, size_t meta);

/* Appends the JSON header alone: name, F32, shape and place of each tensor, in the order
 * of the flat vector; __metadata__ has "frozen" for each frozen tensor.  FAL_ENOMEM. */
int fal_safetensors_header(const struct fal_model *m, struct fal_buf *out);

/* Parses a header of `n` bytes (hostile), as from fal_safetensors_header, into a model
 * without layers, whose flat vector has the order of the data.  The tensors must be F32,
 * not empty, and cover the data without gap or overlap.  `name` and `diag` are those of
 * fal_model_parse.  FAL_EFORMAT, FAL_ELIMIT (above a FAL_MODEL_MAX), FAL_ENOMEM. */
int fal_safetensors_parse_header(const char *name, const char *text, size_t n,
				 struct fal_model **out, struct fal_diag *diag);
/* A whole file in memory (hostile), borrowed. */
struct fal_safetensors {
	const char *name; /* stands first in a diagnosis */
	const void *bytes;
	size_t n;
	/* Is this tensor of integers or truth values to be ignored, as the counters of a
	 * trainer's library are?  NULL: none is. */
	bool (*is_ignored)(const void *arg, const char *tensor);
	const void *arg;
};

/* As fal_safetensors_parse_header, from a whole file.  Also FAL_ETRUNC. */
int fal_safetensors_model(const struct fal_safetensors *f, struct fal_model **out,
			  struct fal_diag *diag);

/* The entry of a tensor in a header. */
struct fal_safetensor {
	char dtype[16];
	uint32_t dims, dim[FAL_MODEL_MAX_DIMS]; /* UINT32_MAX: too large */
	uint64_t begin, end;                    /* of the tensor's bytes in the data */
	uint64_t data_bytes;                    /* of all tensors: the rest of the file */
};

/* Finds a tensor in a header of `n` bytes (hostile), whose tensors have any types and
 * cover the data without gap or overlap.  FAL_EINVAL (no such tensor), FAL_EFORMAT,
 * FAL_ENOMEM. */
int fal_safetensors_find(const char *name, const char *text, size_t n, const char *tensor,
			 struct fal_safetensor *out, struct fal_diag *diag);

/* Reads the file into `params` (m->params floats, written only on success).  The file
 * must have exactly the tensors of `m`, in any order, with their shapes, as F32, F16 or
 * BF16, which cover the data without gap or overlap.  A diagnosis names the tensor, its
 * state and the demand.  __metadata__ must be strings and is not used.  `diag` may be
 * NULL. FAL_ETRUNC, FAL_EFORMAT, FAL_ELIMIT (header above FAL_SAFETENSORS_HEADER),
 * FAL_ENOMEM. */
int fal_safetensors_get(const struct fal_safetensors *f, const struct fal_model *m,
			float *params, struct fal_diag *diag);

#endif
