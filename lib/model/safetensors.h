/* A flat parameter vector as safetensors bytes, and back.  The format: 8 bytes
 * little-endian N, N bytes of JSON, then the tensors' bytes
 * (https://github.com/huggingface/safetensors, "Format").
 */
#ifndef FAL_MODEL_SAFETENSORS_H
#define FAL_MODEL_SAFETENSORS_H

#include "base/buf.h"
#include "base/err.h"
#include "model/model.h"

/* An entry of __metadata__; both UTF-8. */
struct fal_metadata {
	const char *key, *value;
};

/* Appends to `out` the `m->params` floats at `params` as F32 tensors, header and data in
 * the order of the flat vector, the header padded with spaces to 8 bytes, so that equal
 * arguments give equal bytes.  `meta` (`n` entries in the order given) may be NULL with
 * n = 0: then there is no __metadata__.
 * FAL_EINVAL: metadata is not UTF-8 or a key comes twice; FAL_ENOMEM. */
int fal_safetensors_put(const struct fal_model *m, const float *params,
			const struct fal_metadata *meta, size_t n, struct fal_buf *out);

/* Reads the `n` bytes at `bytes` (hostile) into `params` (m->params floats, written only
 * on success).  Demands exactly the tensors of `m`, with their shapes, as F32, covering
 * the data without gap or overlap, in any order.  __metadata__ must be strings and is
 * not used.  `name` stands before the diagnosis; `diag` may be NULL.
 * FAL_ETRUNC, FAL_EFORMAT, FAL_ELIMIT (header above 1 MiB), FAL_ENOMEM. */
int fal_safetensors_get(const struct fal_model *m, const char *name, const void *bytes,
			size_t n, float *params, struct fal_diag *diag);

#endif
