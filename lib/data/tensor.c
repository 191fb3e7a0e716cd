/* A tensor of a safetensors file: 8 bytes little-endian N, N bytes of JSON, then the
 * tensors' bytes (https://github.com/huggingface/safetensors, "Format").  The others of
 * the file are not looked at. */
#include "data/source.h"

#include "base/buf.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

enum { HEADER_MAX = 1 << 20 };

static int
bad(const struct source *s, const char *tensor, const char *what)
{
	return fal_diag_set(s->diag, FAL_EFORMAT, "%s: tensor '%s': %s", s->path,
			    FAL_QUOTE(tensor), what);
}

static int
get_shape(const struct source *s, const char *name, const json_t *shape,
	  struct fal_array *a)
{
	const size_t n = json_array_size(shape);
	if (!json_is_array(shape) || n < 1 || n > FAL_ARRAY_DIMS)
		return bad(s, name, "has not 1 to 4 dimensions");
	a->ndim = (unsigned)n;
	for (size_t i = 0; i < n; i++) {
		const json_t *d = json_array_get(shape, i);
		const json_int_t v = json_is_integer(d) ? json_integer_value(d) : 0;
		if (v < 1 || v > INT32_MAX)
			return bad(s, name, "has a dimension that is not 1 to 2^31 - 1");
		a->dim[i] = (uint32_t)v;
	}
	return FAL_OK;
}

/* Type, shape and place of the tensor. */
static int
describe(const struct source *s, const struct fal_array_opts *opts, const json_t *o,
	 struct fal_array *a, uint64_t *begin)
{
	const char *name = opts->tensor;
	const char *type = json_string_value(json_object_get(o, "dtype"));
	const json_t *at = json_object_get(o, "data_offsets");
	const json_t *from = json_array_get(at, 0), *to = json_array_get(at, 1);
	if (!json_is_object(o))
		return fal_diag_set(s->diag, FAL_EINVAL, "%s: there is no tensor '%s'",
				    s->path, FAL_QUOTE(name));
	if (type == NULL || !fal_dtype_of_name(type, &a->dtype))
		return fal_diag_set(s->diag, FAL_EFORMAT,
				    "%s: tensor '%s': type '%s' is not one of U8 I8 U16 "
				    "I16 U32 I32 I64 F32 F64",
				    s->path, FAL_QUOTE(name),
				    FAL_QUOTE(type != NULL ? type : ""));
	int err = get_shape(s, name, json_object_get(o, "shape"), a);
	if (err == FAL_OK)
		err = source_shape(s, opts, a);
	if (err < 0)
		return err;
	if (json_array_size(at) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
	    json_integer_value(from) < 0 ||
	    json_integer_value(to) < json_integer_value(from) ||
	    (uint64_t)(json_integer_value(to) - json_integer_value(from)) !=
		    (uint64_t)a->dim[0] * a->row_bytes)
		return bad(s, name, "its data_offsets are not those of its shape");
	*begin = (uint64_t)json_integer_value(from);
	return FAL_OK;
}

static int
read_header(struct source *s, const struct fal_array_opts *opts, struct fal_array *a,
	    uint64_t *begin)
{
	uint8_t len[8];
	json_error_t why;
	int err = source_exact(s, len, sizeof(len));
	if (err < 0)
		return err;
	struct fal_rd r = fal_rd_init(len, sizeof(len));
	const uint64_t n = fal_get_u64(&r);
	if (n > HEADER_MAX)
		return fal_diag_set(s->diag, FAL_ELIMIT,
				    "%s: a header of %" PRIu64
				    " bytes is too long: not a safetensors file?",
				    s->path, n);
	char *text = fal_calloc(n, 1);
	if (text == NULL)
		return fal_diag_set(s->diag, FAL_ENOMEM, "%s: out of memory", s->path);
	json_t *o = NULL;
	err = source_exact(s, (uint8_t *)text, n);
	if (err == FAL_OK) {
		o = fal_json_load(text, n, JSON_REJECT_DUPLICATES, &why);
		if (json_is_object(o))
			err = describe(s, opts, json_object_get(o, opts->tensor), a,
				       begin);
		else if (o == NULL && why.text[0] == '\0')
			err = fal_diag_set(s->diag, FAL_ENOMEM, "%s: out of memory",
					   s->path);
		else
			err = fal_diag_set(s->diag, FAL_EFORMAT,
					   "%s: its header is not a JSON object",
					   s->path);
	}
	json_decref(o);
	free(text);
	return err;
}

int
fal_tensor_read(const char *path, const struct fal_array_opts *opts,
		struct fal_array *out, struct fal_diag *diag)
{
	struct source s;
	struct fal_array a = { 0 };
	uint64_t begin = 0, left = 0;
	int err = source_open(&s, path, diag);
	if (err < 0)
		return err;
	err = read_header(&s, opts, &a, &begin);
	if (err == FAL_OK)
		err = source_exact(&s, NULL, begin);
	if (err == FAL_OK)
		err = source_rows(&s, opts, &a, &left);
	if (err == FAL_OK)
		err = source_exact(&s, NULL, left);
	source_close(&s);
	if (err < 0) {
		fal_array_free(&a);
		return err;
	}
	*out = a;
	return FAL_OK;
}
