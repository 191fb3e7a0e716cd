/* safetensors: jansson reads the header, memcpy copies the data. */
#include "model/safetensors_priv.h"

#include "base/json.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX ((size_t)1 << 20) /* 10,000 tensors need about that */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(float) == 4,
	       "the data is copied as little-endian binary32");

static int
put_metadata(const struct fal_metadata *meta, size_t n, struct fal_buf *out)
{
	fal_json_key(out, "__metadata__");
	fal_json_open(out, '{');
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < i; k++)
			if (strcmp(meta[k].key, meta[i].key) == 0)
				return FAL_EINVAL;
		if (!fal_text_is_utf8(meta[i].key) || !fal_text_is_utf8(meta[i].value))
			return FAL_EINVAL;
		fal_json_member_str(out, meta[i].key, meta[i].value);
	}
	fal_json_close(out, '}');
	return FAL_OK;
}

/* `begin` floats of others lie before it. */
static void
put_tensor(const struct fal_tensor *t, uint64_t begin, struct fal_buf *out)
{
	fal_json_key(out, t->name);
	fal_json_open(out, '{');
	fal_json_member_str(out, "dtype", "F32");
	fal_json_key(out, "shape");
	fal_json_open(out, '[');
	for (uint32_t i = 0; i < t->dims; i++)
		fal_json_u64(out, t->dim[i]);
	fal_json_close(out, ']');
	fal_json_key(out, "data_offsets");
	fal_json_open(out, '[');
	fal_json_u64(out, begin * 4);
	fal_json_u64(out, (begin + t->count) * 4);
	fal_json_close(out, ']');
	fal_json_close(out, '}');
}

/* Not by jansson, which without memory for all of a text makes one with holes. */
static int
put_header(const struct fal_model *m, const struct fal_metadata *meta, size_t n,
	   struct fal_buf *out)
{
	int err = FAL_OK;
	fal_json_open(out, '{');
	if (n > 0)
		err = put_metadata(meta, n, out);
	uint64_t begin = 0;
	for (uint32_t i = 0; i < m->tensors; begin += m->tensor[i++].count)
		put_tensor(&m->tensor[i], begin, out);
	fal_json_close(out, '}');
	return err < 0 ? err : out->err;
}

int
fal_safetensors_head(const struct fal_model *m, const struct fal_metadata *meta, size_t n,
		     struct fal_buf *out)
{
	struct fal_buf text = { 0 };
	int err = put_header(m, meta, n, &text);
	if (err == FAL_OK) {
		fal_put_u64(out, (text.n + 7) & ~(size_t)7);
		fal_put_bytes(out, text.p, text.n);
		fal_put_bytes(out, "       ", -text.n & 7);
		err = out->err;
	}
	fal_buf_free(&text);
	return err;
}

int
fal_safetensors_put(const struct fal_model *m, const float *params,
		    const struct fal_metadata *meta, size_t n, struct fal_buf *out)
{
	int err = fal_safetensors_head(m, meta, n, out);
	for (uint32_t i = 0; i < m->tensors && err == FAL_OK; i++) {
		fal_put_bytes(out, params + m->tensor[i].offset,
			      m->tensor[i].count * sizeof(*params));
		err = out->err;
	}
	return err;
}

uint64_t
fal_safetensors_bound(const struct fal_model *m, size_t meta)
{
	/* A byte of a name takes at most six, a number at most twenty. */
	enum { AROUND = 64, NUMBER = 21 };
	uint64_t bytes = 8 + meta + 2 * AROUND + m->values * sizeof(float);
	for (uint32_t i = 0; i < m->tensors; i++)
		bytes += AROUND + 6 * strlen(m->tensor[i].name) +
			 (uint64_t)NUMBER * (m->tensor[i].dims + 2);
	return bytes;
}

int
fal_safetensors_header(const struct fal_model *m, struct fal_buf *out)
{
	struct fal_buf text = { 0 };
	int err = put_header(m, NULL, 0, &text);
	if (err == FAL_OK)
		fal_put_bytes(out, text.p, text.n);
	fal_buf_free(&text);
	return err < 0 ? err : out->err;
}

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

int
st_read_offsets(const struct reader *r, const char *name, const json_t *o, uint64_t at[2])
{
	if (!json_is_object(o) || json_object_size(o) != 3)
		return FAIL(r, "tensor '%s' is malformed", FAL_QUOTE(name));
	const json_t *offsets = json_object_get(o, "data_offsets");
	for (size_t i = 0; i < 2; i++) {
		const json_t *v = json_array_get(offsets, i);
		json_int_t x = json_is_integer(v) ? json_integer_value(v) : -1;
		if (x < 0 || (uint64_t)x > r->bytes || json_array_size(offsets) != 2)
			return FAIL(r, "tensor '%s' has bad data_offsets",
				    FAL_QUOTE(name));
		at[i] = (uint64_t)x;
	}
	return FAL_OK;
}

/* What is said of a tensor but its shape. */
static int
read_place(const struct reader *r, const char *name, const json_t *o, struct place *p)
{
	const char *dtype = json_string_value(json_object_get(o, "dtype"));
	p->is = dtype != NULL ? st_float_named(dtype) : NULL;
	return st_read_offsets(r, name, o, p->at);
}

static int
check_bytes(const struct reader *r, const struct fal_tensor *t, const struct place *p)
{
	if (p->at[1] < p->at[0] || p->at[1] - p->at[0] != t->count * p->is->bytes)
		return FAIL(r, "tensor '%s' has not the bytes of its shape",
			    FAL_QUOTE(t->name));
	return FAL_OK;
}

/* It has another shape than the model: both are said. */
static int
refuse_shape(const struct reader *r, const struct fal_tensor *t, const json_t *shape)
{
	char want[FAL_MODEL_MAX_DIMS * 11 + 3] = "[";
	char *have = json_dumps(shape, JSON_COMPACT | JSON_ENCODE_ANY);
	size_t n = 1;
	for (uint32_t i = 0; i < t->dims; i++)
		n += (size_t)snprintf(want + n, sizeof(want) - n, "%s%u",
				      i > 0 ? "," : "", t->dim[i]);
	snprintf(want + n, sizeof(want) - n, "]");
	int err = FAIL(r, "tensor '%s' has the shape %s, but the model wants %s",
		       FAL_QUOTE(t->name), have != NULL ? FAL_QUOTE(have) : "?", want);
	free(have);
	return err;
}

static int
read_tensor(const struct reader *r, const struct fal_tensor *t, const json_t *o,
	    struct place *p)
{
	if (o == NULL)
		return FAIL(r, "has no tensor '%s', which the model has",
			    FAL_QUOTE(t->name));
	int err = read_place(r, t->name, o, p);
	if (err != 0)
		return err;
	const char *dtype = json_string_value(json_object_get(o, "dtype"));
	if (p->is == NULL)
		return FAIL(r, "tensor '%s' is %s, but F32, F16 or BF16 is wanted",
			    FAL_QUOTE(t->name), dtype != NULL ? FAL_QUOTE(dtype) : "?");
	const json_t *shape = json_object_get(o, "shape");
	return shape_is(shape, t) ? check_bytes(r, t, p) : refuse_shape(r, t, shape);
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

int
st_by_begin(const void *a, const void *b)
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
	for (uint32_t k = 0; k < n; k++)
		memcpy(sorted[k], r->at[k].at, sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), st_by_begin);
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

static bool
has_tensor(const struct fal_model *m, const char *name)
{
	for (uint32_t i = 0; i < m->tensors; i++)
		if (strcmp(m->tensor[i].name, name) == 0)
			return true;
	return false;
}

/* All tensors of the model are there, and others. */
static int
refuse_more(const struct reader *r, const struct fal_model *m, json_t *o)
{
	const char *name = "";
	for (void *i = json_object_iter(o); i != NULL; i = json_object_iter_next(o, i)) {
		name = json_object_iter_key(i);
		if (strcmp(name, "__metadata__") != 0 && !has_tensor(m, name))
			break;
	}
	return FAIL(r, "tensor '%s' is none of the model's", FAL_QUOTE(name));
}

static int
read_header(const struct reader *r, const struct fal_model *m, json_t *o)
{
	json_t *meta = json_object_get(o, "__metadata__");
	int err;
	if (meta != NULL && (err = read_metadata(r, meta)) != 0)
		return err;
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		if ((err = read_tensor(r, t, json_object_get(o, t->name), &r->at[i])) !=
		    0)
			return err;
	}
	if (json_object_size(o) - (meta != NULL) != m->tensors)
		return refuse_more(r, m, o);
	return check_cover(r, m->tensors);
}

int
st_read_json(const struct reader *r, const char *text, size_t n, json_t **out)
{
	json_error_t why;
	if (n == 0 || text[0] != '{')
		return FAIL(r, "header does not begin with '%c'", '{');
	*out = fal_json_load(text, n, JSON_REJECT_DUPLICATES, &why);
	if (*out == NULL && why.text[0] == '\0')
		return FAL_ENOMEM;
	return *out != NULL ? FAL_OK
			    : FAIL(r, "header: %s", fal_text_unless_key(why.text));
}

/* Parses the header, then copies the data. */
static int
read_all(struct reader *r, const struct fal_model *m, const char *text, size_t n,
	 float *params)
{
	json_t *o;
	int err = st_read_json(r, text, n, &o);
	if (err != 0)
		return err;
	err = read_header(r, m, o);
	json_decref(o);
	for (uint32_t i = 0; err == 0 && i < m->tensors; i++)
		r->at[i].is->read(params + m->tensor[i].offset, r->data + r->at[i].at[0],
				  m->tensor[i].count);
	return err;
}

int
st_find_header(struct reader *r, const void *bytes, size_t n, const char **text,
	       size_t *len)
{
	struct fal_rd in = fal_rd_init(bytes, n);
	uint64_t header = fal_get_u64(&in);
	if (in.err == 0 && header > HEADER_MAX)
		return fal_diag_set(r->diag, FAL_ELIMIT,
				    "%s: header of %llu bytes is too long", r->name,
				    (unsigned long long)header);
	*text = (const char *)fal_get_bytes(&in, (size_t)header);
	if (in.err != 0)
		return fal_diag_set(r->diag, FAL_ETRUNC, "%s: ends within the header",
				    r->name);
	*len = (size_t)header;
	r->data = in.p;
	r->bytes = in.n;
	return FAL_OK;
}

int
fal_safetensors_get(const struct fal_model *m, const char *name, const void *bytes,
		    size_t n, float *params, struct fal_diag *diag)
{
	struct reader r = { .name = name, .diag = diag };
	const char *text;
	size_t len;
	int err = st_find_header(&r, bytes, n, &text, &len);
	if (err != 0)
		return err;
	r.at = fal_calloc(m->tensors, sizeof(*r.at));
	if (r.at == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "%s: out of memory", name);
	err = read_all(&r, m, text, len, params);
	free(r.at);
	return err;
}

/* ---- names and shapes ---------------------------------------------------------- */

static bool
good_name(const char *name)
{
	size_t n = strlen(name);
	for (const char *c = name; *c != '\0'; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return false;
	return n > 0 && n <= FAL_MODEL_MAX_NAME;
}

static int
read_shape(const struct reader *r, const json_t *shape, struct fal_tensor *t)
{
	const size_t dims = json_array_size(shape);
	if (!json_is_array(shape) || dims > FAL_MODEL_MAX_DIMS)
		return FAIL(r, "tensor '%s' has not a shape of up to %d dimensions",
			    FAL_QUOTE(t->name), FAL_MODEL_MAX_DIMS);
	t->count = 1;
	for (; t->dims < dims; t->dims++) {
		const json_t *d = json_array_get(shape, t->dims);
		const json_int_t v = json_is_integer(d) ? json_integer_value(d) : 0;
		if (v < 1)
			return FAIL(r,
				    "tensor '%s' has a dimension that is not 1 or more",
				    FAL_QUOTE(t->name));
		/* Both factors are at most 2^31: no overflow. */
		if ((uint64_t)v > FAL_MODEL_MAX_FLOATS ||
		    (t->count *= (uint64_t)v) > FAL_MODEL_MAX_FLOATS)
			return fal_diag_set(r->diag, FAL_ELIMIT,
					    "%s: tensor '%s' has more than 2^31 values",
					    r->name, FAL_QUOTE(t->name));
		t->dim[t->dims] = (uint32_t)v;
	}
	return FAL_OK;
}

/* A tensor with its place among the data. */
static int
describe(const struct reader *r, const char *name, const json_t *o, struct fal_tensor *t)
{
	struct place p;
	if (!good_name(name))
		return FAIL(r, "'%s' is no name of a tensor", FAL_QUOTE(name));
	t->name = fal_strdup(name);
	if (t->name == NULL)
		return FAL_ENOMEM;
	int err = read_place(r, name, o, &p);
	if (err == 0 && (p.is == NULL || p.is->bytes != sizeof(float)))
		err = FAIL(r, "tensor '%s' is not F32", FAL_QUOTE(name));
	if (err == 0)
		err = read_shape(r, json_object_get(o, "shape"), t);
	if (err == 0)
		err = check_bytes(r, t, &p);
	t->offset = t->at = err == 0 ? p.at[0] / 4 : 0;
	return err == 0 && p.at[0] % 4 != 0
		       ? FAIL(r, "tensor '%s' has bad data_offsets", FAL_QUOTE(name))
		       : err;
}

static int
by_offset(const void *a, const void *b)
{
	const struct fal_tensor *x = a, *y = b;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

/* All tensors, in the order of the data, which they cover. */
static int
describe_all(const struct reader *r, json_t *o, struct fal_model *m)
{
	json_t *meta = json_object_get(o, "__metadata__");
	const size_t n = json_object_size(o) - (meta != NULL);
	int err = meta != NULL ? read_metadata(r, meta) : FAL_OK;
	if (err == 0 && n == 0)
		err = FAIL(r, "has no '%s'", "tensors");
	if (err == 0 && n > FAL_MODEL_MAX_TENSORS)
		err = fal_diag_set(r->diag, FAL_ELIMIT, "%s: more than %d tensors",
				   r->name, FAL_MODEL_MAX_TENSORS);
	if (err == 0 && (m->tensor = fal_calloc(n, sizeof(*m->tensor))) == NULL)
		err = FAL_ENOMEM;
	for (void *i = json_object_iter(o); err == 0 && i != NULL;
	     i = json_object_iter_next(o, i))
		if (json_object_iter_value(i) != meta)
			err = describe(r, json_object_iter_key(i),
				       json_object_iter_value(i),
				       &m->tensor[m->tensors++]);
	if (err != 0)
		return err;
	qsort(m->tensor, m->tensors, sizeof(*m->tensor), by_offset);
	for (uint32_t i = 0; i < m->tensors; m->params += m->tensor[i++].count)
		if (m->tensor[i].offset != m->params)
			return FAIL(r,
				    "tensors overlap or leave a gap at byte %llu of the "
				    "data",
				    (unsigned long long)m->params * 4);
	m->values = m->params;
	if (m->params > FAL_MODEL_MAX_FLOATS)
		return fal_diag_set(r->diag, FAL_ELIMIT, "%s: more than 2^31 values",
				    r->name);
	return FAL_OK;
}

static int
model_of(const struct reader *r, const char *text, size_t n, struct fal_model **out)
{
	json_t *o;
	int err = st_read_json(r, text, n, &o);
	if (err != 0)
		return err;
	struct fal_model *m = fal_calloc(1, sizeof(*m));
	err = m != NULL ? describe_all(r, o, m) : FAL_ENOMEM;
	json_decref(o);
	if (err == 0) {
		*out = m;
		return FAL_OK;
	}
	fal_model_free(m);
	return err == FAL_ENOMEM
		       ? fal_diag_set(r->diag, err, "%s: out of memory", r->name)
		       : err;
}

int
fal_safetensors_names(const char *name, const char *text, size_t n,
		      struct fal_model **out, struct fal_diag *diag)
{
	const struct reader r = { .name = name,
				  .diag = diag,
				  .bytes = FAL_MODEL_MAX_FLOATS * 4 };
	return model_of(&r, text, n, out);
}

int
fal_safetensors_model(const char *name, const void *bytes, size_t n,
		      struct fal_model **out, size_t *data, struct fal_diag *diag)
{
	struct reader r = { .name = name, .diag = diag };
	struct fal_model *m;
	const char *text;
	size_t len;
	int err = st_find_header(&r, bytes, n, &text, &len);
	if (err == 0)
		err = model_of(&r, text, len, &m);
	if (err == 0 && m->params * 4 != r.bytes) {
		err = FAIL(&r, "tensors overlap or leave a gap at byte %llu of the data",
			   (unsigned long long)m->params * 4);
		fal_model_free(m);
	}
	if (err == 0) {
		*out = m;
		*data = n - (size_t)r.bytes;
	}
	return err;
}
