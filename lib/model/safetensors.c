/* safetensors: jansson for the header, memcpy for the data. */
#include "model/safetensors.h"

#include "base/mem.h"
#include "base/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX ((size_t)1 << 20) /* 1024 layers need about 200 KiB */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(float) == 4,
	       "the data is copied as little-endian binary32");

static json_t *
metadata_json(const struct fal_metadata *meta, size_t n)
{
	json_t *o = json_object();
	for (size_t i = 0; i < n; i++)
		if (json_object_get(o, meta[i].key) != NULL ||
		    json_object_set_new(o, meta[i].key, json_string(meta[i].value)) !=
			    0) {
			json_decref(o);
			return NULL;
		}
	return o;
}

static json_t *
tensor_json(const struct fal_tensor *t)
{
	json_t *shape = json_array();
	for (uint32_t i = 0; i < t->dims; i++)
		if (json_array_append_new(shape, json_integer(t->dim[i])) != 0) {
			json_decref(shape);
			return NULL;
		}
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape,
			 "data_offsets", (json_int_t)(t->offset * 4),
			 (json_int_t)((t->offset + t->count) * 4));
}

/* Returns the header's text, to be freed by free(), or NULL. */
static char *
header_text(const struct fal_model *m, const struct fal_metadata *meta, size_t n)
{
	json_t *o = json_object();
	char *text = NULL;
	if (n > 0 && json_object_set_new(o, "__metadata__", metadata_json(meta, n)) != 0)
		goto free_object;
	for (uint32_t i = 0; i < m->tensors; i++)
		if (json_object_set_new(o, m->tensor[i].name,
					tensor_json(&m->tensor[i])) != 0)
			goto free_object;
	text = json_dumps(o, JSON_COMPACT);
free_object:
	json_decref(o);
	return text;
}

int
fal_safetensors_put(const struct fal_model *m, const float *params,
		    const struct fal_metadata *meta, size_t n, struct fal_buf *out)
{
	char *text = header_text(m, meta, n);
	if (text == NULL)
		return n > 0 ? FAL_EINVAL : FAL_ENOMEM;
	size_t len = strlen(text);
	fal_put_u64(out, (len + 7) & ~(size_t)7);
	fal_put_bytes(out, text, len);
	fal_put_bytes(out, "       ", -len & 7);
	fal_put_bytes(out, params, m->params * sizeof(*params));
	free(text);
	return out->err;
}

/* A file being read. */
struct reader {
	const char *name;
	struct fal_diag *diag;
	const uint8_t *data;
	uint64_t bytes;    /* of data */
	uint64_t (*at)[2]; /* begin and end of each tensor of the model, in its order */
};

#define FAIL(r, fmt, ...) \
	fal_diag_set((r)->diag, FAL_EFORMAT, "%s: " fmt, (r)->name, __VA_ARGS__)

static bool
shape_is(const json_t *shape, const struct fal_tensor *t)
{
	if (!json_is_array(shape) || json_array_size(shape) != t->dims)
		return false;
	for (uint32_t i = 0; i < t->dims; i++) {
		const json_t *d = json_array_get(shape, i);
		if (!json_is_integer(d) || json_integer_value(d) != t->dim[i])
			return false;
	}
	return true;
}

static int
read_tensor(const struct reader *r, const struct fal_tensor *t, const json_t *o,
	    uint64_t at[2])
{
	if (!json_is_object(o) || json_object_size(o) != 3)
		return FAIL(r, "tensor '%s' is missing or malformed", t->name);
	const char *dtype = json_string_value(json_object_get(o, "dtype"));
	if (dtype == NULL || strcmp(dtype, "F32") != 0)
		return FAIL(r, "tensor '%s' is not F32", t->name);
	if (!shape_is(json_object_get(o, "shape"), t))
		return FAIL(r, "tensor '%s' has not the model's shape", t->name);
	const json_t *offsets = json_object_get(o, "data_offsets");
	for (size_t i = 0; i < 2; i++) {
		const json_t *v = json_array_get(offsets, i);
		json_int_t x = json_is_integer(v) ? json_integer_value(v) : -1;
		if (x < 0 || (uint64_t)x > r->bytes || json_array_size(offsets) != 2)
			return FAIL(r, "tensor '%s' has bad data_offsets", t->name);
		at[i] = (uint64_t)x;
	}
	if (at[1] < at[0] || at[1] - at[0] != t->count * 4)
		return FAIL(r, "tensor '%s' has not the bytes of its shape", t->name);
	return FAL_OK;
}

static int
read_metadata(const struct reader *r, json_t *o)
{
	if (!json_is_object(o))
		return FAIL(r, "'%s' is not an object", "__metadata__");
	for (void *i = json_object_iter(o); i != NULL; i = json_object_iter_next(o, i))
		if (!json_is_string(json_object_iter_value(i)))
			return FAIL(r, "metadata '%s' is not a string",
				    FAL_QUOTE(json_object_iter_key(i)));
	return FAL_OK;
}

static int
by_begin(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Demands that the tensors cover the data once, without gap. */
static int
check_cover(const struct reader *r, uint32_t n)
{
	uint64_t(*sorted)[2] = fal_calloc(n, sizeof(*sorted));
	if (sorted == NULL)
		return fal_diag_set(r->diag, FAL_ENOMEM, "%s: out of memory", r->name);
	memcpy(sorted, r->at, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), by_begin);
	uint64_t end = 0;
	uint32_t i = 0;
	while (i < n && sorted[i][0] == end)
		end = sorted[i++][1];
	free(sorted);
	if (i < n || end != r->bytes)
		return FAIL(r, "tensors overlap or leave a gap at byte %llu of the data",
			    (unsigned long long)end);
	return FAL_OK;
}

static int
read_header(const struct reader *r, const struct fal_model *m, const json_t *o)
{
	json_t *meta = json_object_get(o, "__metadata__");
	int err;
	if (meta != NULL && (err = read_metadata(r, meta)) != 0)
		return err;
	if (json_object_size(o) - (meta != NULL) != m->tensors)
		return FAIL(r, "%zu tensors, but the model has %u",
			    json_object_size(o) - (meta != NULL), m->tensors);
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		if ((err = read_tensor(r, t, json_object_get(o, t->name), r->at[i])) != 0)
			return err;
	}
	return check_cover(r, m->tensors);
}

/* Parses the JSON of `n` bytes at `text`, then copies the data. */
static int
read_all(struct reader *r, const struct fal_model *m, const char *text, size_t n,
	 float *params)
{
	json_error_t why;
	if (n == 0 || text[0] != '{')
		return FAIL(r, "header does not begin with '%c'", '{');
	json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (o == NULL)
		return FAIL(r, "header: %s", fal_text_unless_key(why.text));
	int err = read_header(r, m, o);
	json_decref(o);
	for (uint32_t i = 0; err == 0 && i < m->tensors; i++)
		memcpy(params + m->tensor[i].offset, r->data + r->at[i][0],
		       m->tensor[i].count * sizeof(*params));
	return err;
}

int
fal_safetensors_get(const struct fal_model *m, const char *name, const void *bytes,
		    size_t n, float *params, struct fal_diag *diag)
{
	struct fal_rd in = fal_rd_init(bytes, n);
	uint64_t header = fal_get_u64(&in);
	if (in.err == 0 && header > HEADER_MAX)
		return fal_diag_set(diag, FAL_ELIMIT,
				    "%s: header of %llu bytes is too long", name,
				    (unsigned long long)header);
	const char *text = (const char *)fal_get_bytes(&in, (size_t)header);
	if (in.err != 0)
		return fal_diag_set(diag, FAL_ETRUNC, "%s: ends within the header", name);
	struct reader r = { .name = name, .diag = diag, .data = in.p, .bytes = in.n };
	r.at = fal_calloc(m->tensors, sizeof(*r.at));
	if (r.at == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "%s: out of memory", name);
	int err = read_all(&r, m, text, (size_t)header, params);
	free(r.at);
	return err;
}
