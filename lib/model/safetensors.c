/* safetensors: jansson reads the header, memcpy copies the data. */
#include "model/safetensors.h"

#include "base/json.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The value of a frozen tensor's name in __metadata__. */
static const char frozen[] = "frozen";

/* Writes the header without jansson, which on a lack of memory makes a text with holes.
 */
static int
put_tensor_header(const struct fal_model *m, const struct fal_metadata *meta, size_t n,
		  struct fal_buf *out)
{
	uint32_t frozens = 0;
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < i; k++)
			if (strcmp(meta[k].key, meta[i].key) == 0)
				return FAL_EINVAL;
		if (!fal_text_is_utf8(meta[i].key) || !fal_text_is_utf8(meta[i].value))
			return FAL_EINVAL;
	}
	for (uint32_t i = 0; i < m->tensors && meta == NULL; i++)
		frozens += m->tensor[i].frozen;
	fal_json_open(out, '{');
	if (n + frozens > 0) {
		fal_json_member_open(out, "__metadata__", '{');
		for (size_t i = 0; i < n; i++)
			fal_json_member_str(out, meta[i].key, meta[i].value);
		for (uint32_t i = 0; i < m->tensors && frozens > 0; i++)
			if (m->tensor[i].frozen)
				fal_json_member_str(out, m->tensor[i].name, frozen);
		fal_json_close(out, '}');
	}
	uint64_t begin = 0;
	for (uint32_t i = 0; i < m->tensors; begin += m->tensor[i++].count) {
		const struct fal_tensor *t = &m->tensor[i];
		fal_json_member_open(out, t->name, '{');
		fal_json_member_str(out, "dtype", "F32");
		fal_json_member_open(out, "shape", '[');
		for (uint32_t k = 0; k < t->dims; k++)
			fal_json_u64(out, t->dim[k]);
		fal_json_close(out, ']');
		fal_json_member_open(out, "data_offsets", '[');
		fal_json_u64(out, begin * 4);
		fal_json_u64(out, (begin + t->count) * 4);
		fal_json_close(out, ']');
		fal_json_close(out, '}');
	}
	fal_json_close(out, '}');
	return out->err;
}

int
fal_safetensors_head(const struct fal_model *m, const struct fal_metadata *meta, size_t n,
		     struct fal_buf *out)
{
	struct fal_buf text = { 0 };
	int err = put_tensor_header(m, meta, n, &text);
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
	/* JSON writes a byte of a name as six bytes at most, a number as twenty. */
	enum { AROUND = 64, NUMBER = 21 };
	uint64_t bytes = 8 + meta + 2 * AROUND + m->values * sizeof(float);
	for (uint32_t i = 0; i < m->tensors; i++)
		bytes += 2 * (AROUND + 6 * strlen(m->tensor[i].name)) +
			 (uint64_t)NUMBER * (m->tensor[i].dims + 2);
	return bytes;
}

int
fal_safetensors_header(const struct fal_model *m, struct fal_buf *out)
{
	return put_tensor_header(m, NULL, 0, out);
}

/* ---- reading ------------------------------------------------------------------- */

/* A tensor's entry in the header; the strings belong to the JSON. */
struct entry {
	uint64_t begin, end; /* of the tensor's bytes in the data */
	const char *name, *dtype;
	const json_t *shape;
	uint32_t dims; /* of the shape; dim has the first FAL_MODEL_MAX_DIMS */
	uint32_t dim[FAL_MODEL_MAX_DIMS];
};

struct st_reader {
	const struct fal_safetensors *file;
	struct fal_diag *diag;
	const uint8_t *data; /* NULL: only the header is known */
	uint64_t bytes;      /* of the data; without `data` an upper bound */
	json_t *o;           /* the header */
	struct entry *entry; /* in the order of the data */
	uint32_t entries;
	uint64_t end; /* of the last entry's data */
};

#define FAIL(r, fmt, ...) \
	fal_diag_set((r)->diag, FAL_EFORMAT, "%s: " fmt, (r)->file->name, __VA_ARGS__)

/* Returns element i of an array if it is an integer from 0 on, else -1. */
static int64_t
array_integer(const json_t *array, size_t i)
{
	const json_t *v = json_array_get(array, i);
	return json_is_integer(v) && json_integer_value(v) >= 0 ? json_integer_value(v)
								: -1;
}

/* Parses a tensor's entry; dimensions above 2^32 - 1 become 2^32 - 1. */
static int
parse_entry(const struct st_reader *r, const char *name, const json_t *o, struct entry *p)
{
	const json_t *offsets = json_object_get(o, "data_offsets");
	*p = (struct entry){ .name = name,
			     .dtype = json_string_value(json_object_get(o, "dtype")),
			     .shape = json_object_get(o, "shape") };
	p->dims = (uint32_t)json_array_size(p->shape);
	if (json_object_size(o) != 3 || p->dtype == NULL || !json_is_array(p->shape))
		return FAIL(r, "tensor '%s' is malformed", FAL_QUOTE(name));
	for (uint32_t i = 0; i < p->dims; i++) {
		const int64_t v = array_integer(p->shape, i);
		if (v < 0)
			return FAIL(r, "tensor '%s' has a dimension that is not a number",
				    FAL_QUOTE(name));
		if (i < FAL_MODEL_MAX_DIMS)
			p->dim[i] = v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
	}
	const int64_t begin = array_integer(offsets, 0), end = array_integer(offsets, 1);
	if (begin < 0 || (uint64_t)begin > r->bytes || end < 0 ||
	    (uint64_t)end > r->bytes || json_array_size(offsets) != 2)
		return FAIL(r, "tensor '%s' has bad data_offsets", FAL_QUOTE(name));
	p->begin = (uint64_t)begin;
	p->end = (uint64_t)end;
	return FAL_OK;
}

/* Orders entries by begin; an empty tensor comes first. */
static int
by_begin(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
				    : (x->end > y->end) - (x->end < y->end);
}

static void
end_reading(struct st_reader *r)
{
	free(r->entry);
	json_decref(r->o);
}

/* Parses the header of n bytes: parses, sorts and checks all entries, then drops the
 * ignored tensors.  The caller calls end_reading() in any case. */
static int
parse_header(struct st_reader *r, const char *text, size_t n)
{
	json_error_t why;
	if (n == 0 || text[0] != '{')
		return FAIL(r, "header does not begin with '%c'", '{');
	r->o = fal_json_load(text, n, JSON_REJECT_DUPLICATES, &why);
	if (r->o == NULL && why.text[0] == '\0')
		return fal_diag_set(r->diag, FAL_ENOMEM, "%s: out of memory",
				    r->file->name);
	if (r->o == NULL)
		return FAIL(r, "header: %s", fal_text_unless_key(why.text));
	json_t *meta = json_object_get(r->o, "__metadata__");
	int err = FAL_OK;
	if (meta != NULL && !json_is_object(meta))
		err = FAIL(r, "'%s' is not an object", "__metadata__");
	for (void *i = json_object_iter(meta); err == 0 && i != NULL;
	     i = json_object_iter_next(meta, i))
		if (!json_is_string(json_object_iter_value(i)))
			err = FAIL(r, "metadata '%s' is not a string",
				   FAL_QUOTE(json_object_iter_key(i)));
	r->entry = fal_xcalloc(json_object_size(r->o) + 1, sizeof(*r->entry));
	for (void *i = json_object_iter(r->o); err == 0 && i != NULL;
	     i = json_object_iter_next(r->o, i))
		if (json_object_iter_value(i) != meta)
			err = parse_entry(r, json_object_iter_key(i),
					  json_object_iter_value(i),
					  &r->entry[r->entries++]);
	if (err != 0)
		return err;
	/* The tensors must cover the data once, without gap. */
	qsort(r->entry, r->entries, sizeof(*r->entry), by_begin);
	uint32_t covered = 0, kept = 0; /* entries */
	while (covered < r->entries && r->entry[covered].begin == r->end &&
	       r->entry[covered].end >= r->end)
		r->end = r->entry[covered++].end;
	if (covered < r->entries)
		return FAIL(r, "tensors overlap or leave a gap at byte %ju of the data",
			    r->end);
	if (r->data != NULL && r->end != r->bytes)
		return FAIL(r, "%s", "trailing bytes after the data");
	for (uint32_t i = 0; i < r->entries; i++) {
		const struct entry *p = &r->entry[i];
		const bool is_of_floats = p->dtype[0] != 'I' && p->dtype[0] != 'U' &&
					  strcmp(p->dtype, "BOOL") != 0;
		if (is_of_floats || r->file->is_ignored == NULL ||
		    !r->file->is_ignored(r->file->arg, p->name))
			r->entry[kept++] = *p;
	}
	r->entries = kept;
	return FAL_OK;
}

/* As parse_header, for a whole file. */
static int
parse_file(struct st_reader *r)
{
	struct fal_rd in = fal_rd_init(r->file->bytes, r->file->n);
	const uint64_t len = fal_get_u64(&in);
	if (in.err == 0 && len > FAL_SAFETENSORS_HEADER)
		return fal_diag_set(r->diag, FAL_ELIMIT,
				    "%s: header of %ju bytes is too long", r->file->name,
				    len);
	const char *text = (const char *)fal_get_bytes(&in, (size_t)len);
	if (in.err != 0)
		return fal_diag_set(r->diag, FAL_ETRUNC, "%s: ends within the header",
				    r->file->name);
	r->data = in.p;
	r->bytes = in.n;
	return parse_header(r, text, (size_t)len);
}

/* ---- values -------------------------------------------------------------------- */

static void
read_f32(float *to, const uint8_t *from, size_t n)
{
	memcpy(to, from, n * sizeof(*to));
}

static uint16_t
get_u16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

/* A BF16 is the upper half of a float. */
static void
read_bf16(float *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const uint32_t bits = (uint32_t)get_u16(from + 2 * i) << 16;
		memcpy(&to[i], &bits, sizeof(bits));
	}
}

/* IEEE 754 binary16: a sign, 5 bits of exponent, 10 of fraction. */
static void
read_f16(float *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const uint16_t h = get_u16(from + 2 * i);
		const int exponent = h >> 10 & 31, fraction = h & 1023;
		const float size =
			exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
			: exponent == 0 ? ldexpf((float)fraction, -24)
					: ldexpf((float)(fraction + 1024), exponent - 25);
		to[i] = h >> 15 != 0 ? -size : size;
	}
}

/* The types of floats, and their conversions to float. */
static const struct {
	const char *name;
	unsigned bytes; /* of a value */
	void (*read)(float *to, const uint8_t *from, size_t n);
} float_types[] = { { "F32", 4, read_f32 },
		    { "F16", 2, read_f16 },
		    { "BF16", 2, read_bf16 } };
enum { FLOAT_TYPES = sizeof(float_types) / sizeof(float_types[0]) };

static int
check_tensor_bytes(const struct st_reader *r, const struct fal_tensor *t,
		   const struct entry *p, uint64_t value_bytes)
{
	if (p->end - p->begin != t->count * value_bytes)
		return FAIL(r, "tensor '%s' has more or fewer bytes than its shape",
			    FAL_QUOTE(t->name));
	return FAL_OK;
}

/* Checks the file's tensor against the model's tensor, and copies the values to `to`
 * unless `to` is NULL. */
static int
read_tensor(const struct st_reader *r, const struct fal_tensor *t, float *to)
{
	const json_t *o = json_object_get(r->o, t->name);
	struct entry p;
	if (o == NULL)
		return FAIL(r, "has no tensor '%s', which the model has",
			    FAL_QUOTE(t->name));
	int err = parse_entry(r, t->name, o, &p);
	if (err != 0)
		return err;
	size_t type = 0;
	while (type < FLOAT_TYPES && strcmp(p.dtype, float_types[type].name) != 0)
		type++;
	if (type == FLOAT_TYPES)
		return FAIL(r, "tensor '%s' is %s, but F32, F16 or BF16 is wanted",
			    FAL_QUOTE(t->name), FAL_QUOTE(p.dtype));
	if (p.dims != t->dims || memcmp(p.dim, t->dim, p.dims * sizeof(*p.dim)) != 0) {
		char want[FAL_MODEL_MAX_DIMS * 11 + 3] = "[";
		char *have = json_dumps(p.shape, JSON_COMPACT | JSON_ENCODE_ANY);
		size_t n = 1;
		for (uint32_t i = 0; i < t->dims; i++)
			n += (size_t)snprintf(want + n, sizeof(want) - n, "%s%u",
					      i > 0 ? "," : "", t->dim[i]);
		snprintf(want + n, sizeof(want) - n, "]");
		err = FAIL(r, "tensor '%s' has the shape %s, but the model wants %s",
			   FAL_QUOTE(t->name), have != NULL ? FAL_QUOTE(have) : "?",
			   want);
		free(have);
		return err;
	}
	err = check_tensor_bytes(r, t, &p, float_types[type].bytes);
	if (err == 0 && to != NULL)
		float_types[type].read(to, r->data + p.begin, t->count);
	return err;
}

int
fal_safetensors_get(const struct fal_safetensors *f, const struct fal_model *m,
		    float *params, struct fal_diag *diag)
{
	struct st_reader r = { .file = f, .diag = diag };
	int err = parse_file(&r);
	for (uint32_t i = 0; err == 0 && i < m->tensors; i++)
		err = read_tensor(&r, &m->tensor[i], NULL);
	for (uint32_t i = 0; err == 0 && i < r.entries && r.entries != m->tensors; i++) {
		uint32_t k = 0;
		while (k < m->tensors && strcmp(m->tensor[k].name, r.entry[i].name) != 0)
			k++;
		if (k == m->tensors)
			err = FAIL(&r, "tensor '%s' is none of the model's",
				   FAL_QUOTE(r.entry[i].name));
	}
	for (uint32_t i = 0; err == 0 && i < m->tensors; i++)
		err = read_tensor(&r, &m->tensor[i], params + m->tensor[i].offset);
	end_reading(&r);
	return err;
}

/* ---- names and shapes ---------------------------------------------------------- */

/* Makes the model's tensor of an entry. */
static int
make_tensor(const struct st_reader *r, const struct entry *p, struct fal_tensor *t)
{
	const size_t length = strlen(p->name);
	bool is_name = length > 0 && length <= FAL_MODEL_MAX_NAME;
	for (const char *c = p->name; *c != '\0'; c++)
		is_name = is_name && (unsigned char)*c >= ' ' && *c != 0x7f;
	if (!is_name)
		return FAIL(r, "'%s' is not a name for a tensor", FAL_QUOTE(p->name));
	if (strcmp(p->dtype, "F32") != 0)
		return FAIL(r, "tensor '%s' is not F32", FAL_QUOTE(p->name));
	if (p->dims > FAL_MODEL_MAX_DIMS)
		return FAIL(r, "tensor '%s' has more than %d dimensions",
			    FAL_QUOTE(p->name), FAL_MODEL_MAX_DIMS);
	t->count = 1;
	for (; t->dims < p->dims; t->dims++) {
		const uint32_t d = t->dim[t->dims] = p->dim[t->dims];
		if (d == 0)
			return FAIL(r, "tensor '%s' is empty", FAL_QUOTE(p->name));
		/* No overflow: d is below 2^32, and t->count before the product is at
		 * most 2^31. */
		if ((t->count *= d) > FAL_MODEL_MAX_FLOATS)
			return fal_diag_set(r->diag, FAL_ELIMIT,
					    "%s: tensor '%s' has more than 2^31 values",
					    r->file->name, FAL_QUOTE(p->name));
	}
	const json_t *note =
		json_object_get(json_object_get(r->o, "__metadata__"), p->name);
	t->frozen = note != NULL && strcmp(json_string_value(note), frozen) == 0;
	t->name = fal_xstrdup(p->name);
	return check_tensor_bytes(r, t, p, sizeof(float));
}

/* Makes the model from the entries, in the order of the data, unless `err` is an error,
 * and ends the reading. */
static int
make_model(struct st_reader *r, int err, struct fal_model **out)
{
	struct fal_model *m = fal_xcalloc(1, sizeof(*m));
	if (err == 0 && r->entries == 0)
		err = FAIL(r, "has no '%s'", "tensors");
	else if (err == 0 && r->entries > FAL_MODEL_MAX_TENSORS)
		err = fal_diag_set(r->diag, FAL_ELIMIT, "%s: more than %d tensors",
				   r->file->name, FAL_MODEL_MAX_TENSORS);
	if (err == 0)
		m->tensor = fal_xcalloc(r->entries, sizeof(*m->tensor));
	while (err == 0 && m->tensors < r->entries) {
		struct fal_tensor *t = &m->tensor[m->tensors];
		err = make_tensor(r, &r->entry[m->tensors++], t);
		t->offset = t->packed_offset = m->params;
		m->params += t->count;
	}
	m->values = m->params;
	if (err == 0 && m->params > FAL_MODEL_MAX_FLOATS)
		err = fal_diag_set(r->diag, FAL_ELIMIT, "%s: more than 2^31 values",
				   r->file->name);
	end_reading(r);
	if (err == 0)
		*out = m;
	else
		fal_model_free(m);
	return err;
}

int
fal_safetensors_parse_header(const char *name, const char *text, size_t n,
			     struct fal_model **out, struct fal_diag *diag)
{
	struct st_reader r = { .file = &(struct fal_safetensors){ .name = name },
			       .diag = diag,
			       .bytes = FAL_MODEL_MAX_FLOATS * sizeof(float) };
	return make_model(&r, parse_header(&r, text, n), out);
}

int
fal_safetensors_model(const struct fal_safetensors *f, struct fal_model **out,
		      struct fal_diag *diag)
{
	struct st_reader r = { .file = f, .diag = diag };
	return make_model(&r, parse_file(&r), out);
}

int
fal_safetensors_find(const char *name, const char *text, size_t n, const char *tensor,
		     struct fal_safetensor *out, struct fal_diag *diag)
{
	struct st_reader r = { .file = &(struct fal_safetensors){ .name = name },
			       .diag = diag,
			       .bytes = INT64_MAX };
	int err = parse_header(&r, text, n);
	uint32_t i = 0;
	while (err == 0 && i < r.entries && strcmp(r.entry[i].name, tensor) != 0)
		i++;
	if (err == 0 && i == r.entries)
		err = fal_diag_set(diag, FAL_EINVAL, "%s: there is no tensor '%s'", name,
				   FAL_QUOTE(tensor));
	if (err == 0) {
		const struct entry *p = &r.entry[i];
		*out = (struct fal_safetensor){ .dims = p->dims,
						.begin = p->begin,
						.end = p->end,
						.data_bytes = r.end };
		snprintf(out->dtype, sizeof(out->dtype), "%s", p->dtype);
		memcpy(out->dim, p->dim, sizeof(out->dim));
	}
	end_reading(&r);
	return err;
}
