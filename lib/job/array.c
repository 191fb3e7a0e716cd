/* Reads arrays from files: IDX, .npy, or a tensor of a safetensors file. */
#include "job/set.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "job/source.h"
#include "model/safetensors.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t DIM_MAX = UINT32_C(1) << 31;

/* ---- types of values ---- */

static const struct {
	char name[5], npy[4];
	uint8_t size;
} types[FAL_F64 + 1] = {
	[FAL_U8] = { "U8", "|u1", 1 },   [FAL_I8] = { "I8", "|i1", 1 },
	[FAL_U16] = { "U16", "<u2", 2 }, [FAL_I16] = { "I16", "<i2", 2 },
	[FAL_U32] = { "U32", "<u4", 4 }, [FAL_I32] = { "I32", "<i4", 4 },
	[FAL_I64] = { "I64", "<i8", 8 }, [FAL_F32] = { "F32", "<f4", 4 },
	[FAL_F64] = { "F64", "<f8", 8 },
};

_Static_assert((int)FAL_ABSENT + 1 == (int)FAL_F64, "F64 has the place of ABSENT + 1");

const char *
fal_dtype_name(enum fal_dtype t)
{
	return t == FAL_ABSENT ? "none" : types[t].name;
}

size_t
fal_dtype_size(enum fal_dtype t)
{
	return types[t].size;
}

bool
fal_dtype_of(const char *name, bool npy, enum fal_dtype *out)
{
	unsigned i = 0;
	while (i <= FAL_F64 && (types[i].size == 0 ||
				strcmp(npy ? types[i].npy : types[i].name, name) != 0))
		i++;
	if (i <= FAL_F64)
		*out = (enum fal_dtype)i;
	return i <= FAL_F64;
}

#define LOAD(type, p)                         \
	({                                    \
		type v_;                      \
		memcpy(&v_, (p), sizeof(v_)); \
		v_;                           \
	})

int64_t
fal_dtype_integer(enum fal_dtype t, const uint8_t *p)
{
	switch (t) {
	case FAL_U8:
		return *p;
	case FAL_I8:
		return LOAD(int8_t, p);
	case FAL_U16:
		return LOAD(uint16_t, p);
	case FAL_I16:
		return LOAD(int16_t, p);
	case FAL_U32:
		return LOAD(uint32_t, p);
	case FAL_I32:
		return LOAD(int32_t, p);
	default:
		assert(t == FAL_I64);
		return LOAD(int64_t, p);
	}
}

float
fal_dtype_float(enum fal_dtype t, const uint8_t *p)
{
	if (t == FAL_F32)
		return LOAD(float, p);
	if (t == FAL_F64)
		return (float)LOAD(double, p);
	return (float)fal_dtype_integer(t, p);
}

/* ---- headers of .npy files: magic, version, length of the header, a Python dictionary
 * of three keys (numpy.lib.format, "Format Version 1.0" to "3.0") ---- */

enum { NPY_HEADER_MAX = 1 << 14, DESCR_MAX = 16 };

/* The header of a .npy file during parsing. */
struct npy_header {
	const struct source *s;
	const char *p; /* the rest of the header; ends with NUL */
	bool has_descr, has_order, has_shape;
};

static int
npy_fail(const struct npy_header *c, const char *what)
{
	return source_fail(c->s, FAL_EFORMAT, "header: %s at '%s'", what,
			   FAL_QUOTE(c->p));
}

static void
skip_blanks(struct npy_header *c)
{
	c->p += strspn(c->p, " \t\n");
}

/* Skips `text` if the rest begins with `text`; false: the rest begins otherwise. */
static bool
accept_text(struct npy_header *c, const char *text)
{
	skip_blanks(c);
	const size_t n = strlen(text);
	if (strncmp(c->p, text, n) != 0)
		return false;
	c->p += n;
	return true;
}

/* Parses a string in quotes of either kind, without escapes. */
static int
parse_npy_string(struct npy_header *c, char out[static DESCR_MAX])
{
	skip_blanks(c);
	const char quote = *c->p;
	const char *end = quote == '\'' || quote == '"' ? strchr(c->p + 1, quote) : NULL;
	if (end == NULL || end - c->p > DESCR_MAX)
		return npy_fail(c, "not a short string");
	const size_t n = (size_t)(end - c->p) - 1;
	memcpy(out, c->p + 1, n);
	out[n] = '\0';
	c->p = end + 1;
	return FAL_OK;
}

static int
parse_npy_shape(struct npy_header *c, struct fal_array *a)
{
	c->has_shape = true;
	if (!accept_text(c, "("))
		return npy_fail(c, "not a shape");
	while (!accept_text(c, ")")) {
		if (a->ndim == FAL_ARRAY_DIMS)
			return source_fail(c->s, FAL_EFORMAT, "more than %d dimensions",
					   FAL_ARRAY_DIMS);
		skip_blanks(c);
		uint64_t v = 0;
		const char *p = c->p;
		for (; *p >= '0' && *p <= '9'; p++)
			v = v > UINT32_MAX ? v : v * 10 + (uint64_t)(*p - '0');
		if (p == c->p)
			return npy_fail(c, "not a dimension");
		c->p = p;
		/* set_array_sizes refuses numbers as large as UINT32_MAX. */
		a->dim[a->ndim++] = v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
		if (!accept_text(c, ",") && *c->p != ')')
			return npy_fail(c, "not a shape");
	}
	if (a->ndim == 0)
		return source_fail(c->s, FAL_EFORMAT, "a single value, not an array");
	return FAL_OK;
}

static int
parse_npy_entry(struct npy_header *c, struct fal_array *a)
{
	char key[DESCR_MAX];
	int err = parse_npy_string(c, key);
	if (err < 0)
		return err;
	if (!accept_text(c, ":"))
		return npy_fail(c, "no ':' behind a key");
	if (strcmp(key, "descr") == 0 && !c->has_descr) {
		char descr[DESCR_MAX];
		c->has_descr = true;
		skip_blanks(c);
		if (*c->p == '[')
			return source_fail(c->s, FAL_EFORMAT,
					   "an array of structures, not of numbers");
		err = parse_npy_string(c, descr);
		if (err == FAL_OK && descr[0] == '>')
			return source_fail(
				c->s, FAL_EFORMAT,
				"type '%s' is big-endian: save it with .astype('<%s')",
				descr, descr + 1);
		if (err == FAL_OK && !fal_dtype_of(descr, true, &a->dtype))
			return source_fail(c->s, FAL_EFORMAT,
					   "type '%s' is not one of |u1 |i1 <u2 <i2 <u4 "
					   "<i4 <i8 <f4 <f8",
					   FAL_QUOTE(descr));
		return err;
	}
	if (strcmp(key, "shape") == 0 && !c->has_shape)
		return parse_npy_shape(c, a);
	if (strcmp(key, "fortran_order") != 0 || c->has_order)
		return source_fail(c->s, FAL_EFORMAT,
				   "header: unknown or second key '%s'", FAL_QUOTE(key));
	c->has_order = true;
	if (accept_text(c, "False"))
		return FAL_OK;
	if (!accept_text(c, "True"))
		return npy_fail(c, "not True or False");
	return source_fail(c->s, FAL_EFORMAT,
			   "Fortran order: save it with numpy.ascontiguousarray");
}

static int
read_npy_header(struct source *s, struct fal_array *a)
{
	static const uint8_t magic[] = { 0x93, 'N', 'U', 'M', 'P', 'Y' };
	uint8_t head[8], len[4] = { 0 };
	char text[NPY_HEADER_MAX + 1];
	int err = source_exact(s, head, sizeof(head));
	if (err < 0)
		return err;
	if (memcmp(head, magic, sizeof(magic)) != 0)
		return source_fail(s, FAL_EFORMAT, "not a .npy file");
	if (head[6] < 1 || head[6] > 3 || head[7] != 0)
		return source_fail(s, FAL_EVERSION,
				   "version %u.%u of .npy, not 1.0 to 3.0", head[6],
				   head[7]);
	if ((err = source_exact(s, len, head[6] == 1 ? 2 : 4)) < 0)
		return err;
	struct fal_rd r = fal_rd_init(len, sizeof(len));
	const uint32_t n = fal_get_u32(&r);
	if (n > NPY_HEADER_MAX)
		return source_fail(s, FAL_ELIMIT, "a header of %u bytes is too long", n);
	if ((err = source_exact(s, (uint8_t *)text, n)) < 0)
		return err;
	text[n] = '\0';
	if (strlen(text) != n)
		return source_fail(s, FAL_EFORMAT, "a NUL in the header");
	struct npy_header c = { .s = s, .p = text };
	if (!accept_text(&c, "{"))
		return npy_fail(&c, "not a dictionary");
	while (err == FAL_OK && !accept_text(&c, "}")) {
		err = parse_npy_entry(&c, a);
		if (err == FAL_OK && !accept_text(&c, ",") && *c.p != '}')
			err = npy_fail(&c, "no ',' behind a value");
	}
	skip_blanks(&c);
	if (err == FAL_OK && *c.p != '\0')
		err = npy_fail(&c, "more than a dictionary");
	if (err == FAL_OK && !(c.has_descr && c.has_order && c.has_shape))
		err = source_fail(s, FAL_EFORMAT, "header without %s",
				  !c.has_descr   ? "descr"
				  : !c.has_order ? "fortran_order"
						 : "shape");
	return err;
}

/* ---- headers of IDX and safetensors files ---- */

enum { IDX_U8 = 0x08 };

static int
read_idx_header(struct source *s, struct fal_array *a)
{
	uint8_t magic[4], d[4];
	int err = source_exact(s, magic, sizeof(magic));
	if (err < 0)
		return err;
	if (magic[0] != 0 || magic[1] != 0)
		return source_fail(s, FAL_EFORMAT, "not an IDX file");
	if (magic[2] != IDX_U8)
		return source_fail(
			s, FAL_EFORMAT,
			"IDX type 0x%02x is not supported, only 0x08 (unsigned byte)",
			magic[2]);
	if (magic[3] < 1 || magic[3] > FAL_ARRAY_DIMS)
		return source_fail(s, FAL_EFORMAT, "%u dimensions, not 1 to %d", magic[3],
				   FAL_ARRAY_DIMS);
	a->dtype = FAL_U8;
	a->ndim = magic[3];
	for (unsigned i = 0; i < a->ndim; i++) {
		if ((err = source_exact(s, d, sizeof(d))) < 0)
			return err;
		a->dim[i] = (uint32_t)d[0] << 24 | (uint32_t)d[1] << 16 |
			    (uint32_t)d[2] << 8 | d[3];
	}
	return FAL_OK;
}

/* An array that is read. */
struct array_reader {
	struct source s;
	const struct fal_array_opts *opts;
	/* A tensor's own bytes, and the data before and after the tensor. */
	uint64_t tensor_bytes, skip_before, skip_after;
};

/* Finds the tensor in the safetensors header: type, shape and place. */
static int
read_tensor_header(struct array_reader *r, struct fal_array *a)
{
	uint8_t len[8];
	int err = source_exact(&r->s, len, sizeof(len));
	if (err < 0)
		return err;
	struct fal_rd rd = fal_rd_init(len, sizeof(len));
	const uint64_t n = fal_get_u64(&rd);
	if (n > FAL_SAFETENSORS_HEADER)
		return source_fail(
			&r->s, FAL_ELIMIT,
			"a header of %ju bytes is too long: not a safetensors file?", n);
	char *text = fal_xcalloc(n, 1);
	const char *name = r->opts->tensor;
	struct fal_safetensor t = { .dims = 0 };
	err = source_exact(&r->s, (uint8_t *)text, n);
	if (err == FAL_OK)
		err = fal_safetensors_find(r->s.path, text, n, name, &t, r->s.diag);
	if (err == FAL_OK && !fal_dtype_of(t.dtype, false, &a->dtype))
		err = source_fail(&r->s, FAL_EFORMAT,
				  "tensor '%s': type '%s' is not one of U8 I8 U16 I16 "
				  "U32 I32 I64 F32 F64",
				  FAL_QUOTE(name), FAL_QUOTE(t.dtype));
	if (err == FAL_OK && (t.dims < 1 || t.dims > FAL_ARRAY_DIMS))
		err = source_fail(&r->s, FAL_EFORMAT,
				  "tensor '%s' has not 1 to 4 dimensions",
				  FAL_QUOTE(name));
	if (err == FAL_OK) {
		a->ndim = t.dims;
		memcpy(a->dim, t.dim, t.dims * sizeof(*a->dim));
		r->tensor_bytes = t.end - t.begin;
		r->skip_before = t.begin;
		r->skip_after = t.data_bytes - t.end;
	}
	free(text);
	return err;
}

/* ---- arrays ---- */

/* Checks the dimensions and derives rows, row_values and row_bytes. */
static int
set_array_sizes(const struct array_reader *r, struct fal_array *a)
{
	const struct source *s = &r->s;
	a->row_values = 1;
	for (unsigned i = 0; i < FAL_ARRAY_DIMS; i++) {
		if (i >= a->ndim)
			a->dim[i] = 1;
		if (a->dim[i] == 0 || a->dim[i] > DIM_MAX)
			return source_fail(s, FAL_EFORMAT,
					   "dimension %u is %u, not 1 to 2^31", i,
					   a->dim[i]);
		if (i > 0 && __builtin_mul_overflow(a->row_values, (size_t)a->dim[i],
						    &a->row_values))
			return source_fail(s, FAL_ELIMIT, "too large");
	}
	size_t all;
	if (__builtin_mul_overflow(a->row_values, fal_dtype_size(a->dtype),
				   &a->row_bytes) ||
	    __builtin_mul_overflow(a->row_bytes, (size_t)a->dim[0], &all))
		return source_fail(s, FAL_ELIMIT, "too large");
	a->rows = r->opts->max_rows != 0 ? r->opts->max_rows : a->dim[0];
	if (a->rows > a->dim[0])
		return source_fail(s, FAL_EINVAL, "has %u row%s, not %u", a->dim[0],
				   fal_text_plural(a->dim[0]), a->rows);
	if (s->own == FAL_FILETYPE_SAFETENSORS &&
	    r->tensor_bytes != (uint64_t)a->dim[0] * a->row_bytes)
		return source_fail(s, FAL_EFORMAT,
				   "tensor '%s' has not the bytes of its shape",
				   FAL_QUOTE(r->opts->tensor));
	return FAL_OK;
}

/* Reads the rows to keep.  Floating-point values must be finite; F64 becomes F32, in
 * place. */
static int
read_array_rows(struct array_reader *r, struct fal_array *a)
{
	const uint64_t max = r->opts->max_bytes;
	const size_t keep = a->rows * a->row_bytes;
	if (max != 0 && keep > max)
		return source_fail(&r->s, FAL_ELIMIT,
				   "%zu bytes are above the limit of %ju", keep, max);
	a->data = fal_calloc(keep, 1);
	if (a->data == NULL)
		return source_nomem(&r->s);
	r->skip_after += (uint64_t)(a->dim[0] - a->rows) * a->row_bytes;
	int err = source_exact(&r->s, NULL, r->skip_before);
	if (err == FAL_OK)
		err = source_exact(&r->s, a->data, keep);
	if (err < 0 || fal_dtype_is_integer(a->dtype))
		return err;
	const size_t size = fal_dtype_size(a->dtype);
	float *to = (float *)(void *)a->data;
	for (size_t i = 0; i < a->rows * a->row_values; i++) {
		const uint8_t *p = a->data + i * size;
		const float v = fal_dtype_float(a->dtype, p);
		if (!isfinite(v)) {
			char text[32] = "nan";
			double value = (double)v;
			if (a->dtype == FAL_F64)
				memcpy(&value, p, sizeof(value));
			if (!isnan(value))
				snprintf(text, sizeof(text), "%.15g", value);
			return source_fail(&r->s, FAL_ENONFINITE,
					   "value %zu of row %zu is %s, not finite in "
					   "single precision",
					   i % a->row_values, i / a->row_values, text);
		}
		to[i] = v;
	}
	a->dtype = FAL_F32;
	a->row_bytes = a->row_values * sizeof(float);
	return FAL_OK;
}

int
fal_array_read(enum fal_filetype_kind kind, const char *path,
	       const struct fal_array_opts *opts, struct fal_array *out,
	       struct fal_diag *diag)
{
	struct array_reader r = { .opts = opts };
	struct fal_array a = { 0 };
	uint8_t more;
	int err = source_open(&r.s, path, diag);
	if (err < 0)
		return err;
	/* Without a kind, the first byte tells IDX from .npy. */
	const uint8_t first = r.s.head_n > 0 ? r.s.head[0] : 0;
	r.s.own = kind;
	if (kind == FAL_FILETYPE_NONE && first != 0 && first != 0x93)
		err = source_fail(&r.s, FAL_EFORMAT, "not an IDX file, nor a .npy one");
	else if (kind == FAL_FILETYPE_NONE)
		r.s.own = first != 0 ? FAL_FILETYPE_NPY : FAL_FILETYPE_IDX;
	if (err == FAL_OK)
		err = r.s.own == FAL_FILETYPE_IDX   ? read_idx_header(&r.s, &a)
		      : r.s.own == FAL_FILETYPE_NPY ? read_npy_header(&r.s, &a)
						    : read_tensor_header(&r, &a);
	if (err == FAL_OK)
		err = set_array_sizes(&r, &a);
	if (err == FAL_OK)
		err = read_array_rows(&r, &a);
	if (err == FAL_OK)
		err = source_exact(&r.s, NULL, r.skip_after);
	if (err == FAL_OK && (err = source_some(&r.s, &more, 1)) > 0)
		err = fal_diag_set(diag, FAL_EFORMAT, "%s: trailing bytes after the data",
				   path);
	err = source_close(&r.s, err);
	if (err < 0)
		fal_array_free(&a);
	else
		*out = a;
	return err;
}

void
fal_array_free(struct fal_array *a)
{
	free(a->data);
	*a = (struct fal_array){ 0 };
}
