/* A tensor of a safetensors file, whose header is read as that of a model is. */
#include "data/source.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "model/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Type, shape and place of the tensor. */
static int
describe(struct source *s, const char *text, size_t n, struct fal_array *a)
{
	const char *name = s->opts->tensor;
	struct fal_safetensor t;
	int err = fal_safetensors_find(s->path, text, n, name, &t, s->diag);
	if (err < 0)
		return err;
	if (!fal_dtype_of(t.dtype, false, &a->dtype))
		return fal_diag_set(s->diag, FAL_EFORMAT,
				    "%s: tensor '%s': type '%s' is not one of U8 I8 U16 "
				    "I16 U32 I32 I64 F32 F64",
				    s->path, FAL_QUOTE(name), FAL_QUOTE(t.dtype));
	if (t.dims < 1 || t.dims > FAL_ARRAY_DIMS)
		return fal_diag_set(s->diag, FAL_EFORMAT,
				    "%s: tensor '%s' has not 1 to 4 dimensions", s->path,
				    FAL_QUOTE(name));
	a->ndim = t.dims;
	memcpy(a->dim, t.dim, t.dims * sizeof(*a->dim));
	s->before = t.at[0];
	s->behind = t.all - t.at[1];
	err = source_shape(s, a);
	if (err == FAL_OK && t.at[1] - t.at[0] != (uint64_t)a->dim[0] * a->row_bytes)
		err = fal_diag_set(s->diag, FAL_EFORMAT,
				   "%s: tensor '%s' has not the bytes of its shape",
				   s->path, FAL_QUOTE(name));
	return err;
}

int
source_tensor(struct source *s, struct fal_array *a)
{
	uint8_t len[8];
	int err = source_exact(s, len, sizeof(len));
	if (err < 0)
		return err;
	struct fal_rd r = fal_rd_init(len, sizeof(len));
	const uint64_t n = fal_get_u64(&r);
	if (n > FAL_SAFETENSORS_HEADER)
		return fal_diag_set(s->diag, FAL_ELIMIT,
				    "%s: a header of %" PRIu64
				    " bytes is too long: not a safetensors file?",
				    s->path, n);
	char *text = fal_calloc(n, 1);
	if (text == NULL)
		return source_nomem(s);
	err = source_exact(s, (uint8_t *)text, n);
	if (err == FAL_OK)
		err = describe(s, text, n, a);
	free(text);
	return err;
}
