/* Files, plain or gzipped.  Not by zlib's gzread, which drops what follows the last
 * member. */
#include "job/source.h"

#include "base/buf.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/text.h"
#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_STEP = 1 << 20, IN_BYTES = 1 << 17, GZIP_0 = 0x1f, GZIP_1 = 0x8b };

static const uint32_t dim_max = UINT32_C(1) << 31;

const char source_stdin[] = "standard input";

int
source_fail(const struct source *s, int err, const char *fmt, ...)
{
	char text[400];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return fal_diag_set(s->diag, err, "%s: %s", s->path, text);
}

int
source_nomem(const struct source *s)
{
	return source_fail(s, FAL_ENOMEM, "out of memory");
}

/* Reads on until the memory is full or the file ends; what was there is used. */
static int
fill(struct source *s)
{
	s->z.next_in = s->in;
	while (s->z.avail_in < IN_BYTES && !s->at_end) {
		const ssize_t got = FAL_TRY(READ, -1,
					    read(s->fd, s->in + s->z.avail_in,
						 IN_BYTES - s->z.avail_in));
		if (got < 0 && errno != EINTR)
			return source_fail(s, FAL_EIO, "%s", strerror(errno));
		s->at_end = got == 0;
		s->z.avail_in += got > 0 ? (unsigned)got : 0;
		s->read += got > 0 ? (uint64_t)got : 0;
	}
	return FAL_OK;
}

static int
start(struct source *s)
{
	s->in = fal_xcalloc(IN_BYTES, 1);
	int err = fill(s);
	if (err < 0 || s->z.avail_in < 2 || s->in[0] != GZIP_0 || s->in[1] != GZIP_1)
		return err;
	s->zipped = s->inside = true;
	return inflateInit2(&s->z, MAX_WBITS + 16) == Z_OK ? FAL_OK : source_nomem(s);
}

/* Passes what pads the members: 1 if another one follows, 0 at the end of the file. */
static int
next_member(struct source *s)
{
	do {
		int err = s->z.avail_in == 0 ? fill(s) : FAL_OK;
		if (err < 0 || s->z.avail_in == 0)
			return err;
		s->z.avail_in--;
	} while (*s->z.next_in++ == 0);
	s->z.next_in--;
	s->z.avail_in++;
	s->member = s->read - s->z.avail_in;
	s->inside = true;
	inflateReset(&s->z);
	return 1;
}

static int
refuse_zipped(const struct source *s, int z)
{
	const bool is_member = s->z.total_in > (z == Z_BUF_ERROR ? 1 : 2);
	if (z == Z_MEM_ERROR)
		return source_nomem(s);
	if (!is_member)
		return source_fail(s, FAL_EFORMAT,
				   "byte %ju: neither a gzip member nor zero padding",
				   s->member);
	if (z == Z_BUF_ERROR)
		return source_fail(s, FAL_ETRUNC, "compressed data is truncated");
	return source_fail(s, FAL_EFORMAT, "%s",
			   s->z.msg != NULL ? s->z.msg : "compressed data is damaged");
}

/* As source_some, of the members one after the other. */
static int
read_members(struct source *s, uint8_t *p, unsigned n)
{
	s->z.next_out = p;
	s->z.avail_out = n;
	while (s->z.avail_out == n) {
		int err = s->inside ? 1 : next_member(s);
		if (err > 0 && s->z.avail_in == 0)
			err = fill(s);
		if (err < 0 || !s->inside)
			return err;
		const int z = inflate(&s->z, Z_NO_FLUSH);
		if (z != Z_OK && z != Z_STREAM_END)
			return refuse_zipped(s, z);
		s->inside = z == Z_OK;
	}
	return (int)(n - s->z.avail_out);
}

static int
read_content(struct source *s, uint8_t *p, unsigned n)
{
	if (s->zipped)
		return read_members(s, p, n);
	int err = s->z.avail_in == 0 ? fill(s) : FAL_OK;
	if (err < 0)
		return err;
	const unsigned some = n < s->z.avail_in ? n : s->z.avail_in;
	memcpy(p, s->z.next_in, some);
	s->z.next_in += some;
	s->z.avail_in -= some;
	return (int)some;
}

int
source_open(struct source *s, const char *path, struct fal_diag *diag)
{
	*s = (struct source){ .path = path, .diag = diag };
	/* /dev/stdin cannot be opened if it is a socket. */
	s->fd = path == source_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
				     : open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0)
		return fal_diag_set(diag, errno == ENOENT ? FAL_ENOENT : FAL_EIO,
				    "%s: %s", path, strerror(errno));
	int err = start(s);
	while (err >= 0 && s->head_n < sizeof(s->head)) {
		const unsigned room = (unsigned)sizeof(s->head) - s->head_n;
		err = read_content(s, s->head + s->head_n, room);
		s->head_n += err > 0 ? (unsigned)err : 0;
		if (err == 0)
			break;
	}
	if (err >= 0)
		s->kind = fal_filetype_of(s->head, s->head_n);
	if (s->kind != NULL && s->kind->is == FAL_FILETYPE_PACKED)
		err = FAL_EFORMAT;
	return err < 0 ? source_close(s, err) : FAL_OK;
}

int
source_close(struct source *s, int err)
{
	inflateEnd(&s->z);
	free(s->in);
	close(s->fd);
	if (err == FAL_OK || err == FAL_ENOMEM || err == FAL_EIO || s->kind == NULL ||
	    s->kind->is == s->own)
		return err;
	return fal_diag_set(s->diag, err, "%s: %s %s", s->path,
			    s->zipped ? "holds what is" : "is", s->kind->name);
}

int
source_some(struct source *s, uint8_t *p, unsigned n)
{
	if (s->head_at == s->head_n)
		return read_content(s, p, n);
	const unsigned left = s->head_n - s->head_at, some = n < left ? n : left;
	memcpy(p, s->head + s->head_at, some);
	s->head_at += some;
	return (int)some;
}

int
source_exact(struct source *s, uint8_t *p, uint64_t n)
{
	uint8_t scrap[16384];
	const unsigned most = p != NULL ? READ_STEP : sizeof(scrap);
	while (n > 0) {
		const int got = source_some(s, p != NULL ? p : scrap,
					    n < most ? (unsigned)n : most);
		if (got < 0 && got != FAL_ETRUNC)
			return got;
		if (got <= 0)
			return source_fail(s, FAL_ETRUNC, "file is truncated");
		p = p != NULL ? p + got : NULL;
		n -= (uint64_t)got;
	}
	return FAL_OK;
}

/* Derives rows, row_values and row_bytes from type and dimensions, which are judged. */
static int
source_shape(const struct source *s, struct fal_array *a)
{
	a->row_values = 1;
	for (unsigned i = 0; i < FAL_ARRAY_DIMS; i++) {
		if (i >= a->ndim)
			a->dim[i] = 1;
		if (a->dim[i] == 0 || a->dim[i] > dim_max)
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
	a->rows = s->opts->max_rows != 0 ? s->opts->max_rows : a->dim[0];
	if (a->rows > a->dim[0])
		return source_fail(s, FAL_EINVAL, "has %u row%s, not %u", a->dim[0],
				   fal_text_s(a->dim[0]), a->rows);
	return FAL_OK;
}

/* Value `at` of the array, at `p` and no number in single precision, as it is there. */
static int
refuse_value(const struct source *s, const struct fal_array *a, size_t at,
	     const uint8_t *p)
{
	char text[32] = "nan";
	double is = (double)fal_dtype_float(a->dtype, p);
	if (a->dtype == FAL_F64)
		memcpy(&is, p, sizeof(is));
	if (!isnan(is))
		snprintf(text, sizeof(text), "%.15g", is);
	return source_fail(s, FAL_ENONFINITE,
			   "value %zu of row %zu is %s, not finite in single precision",
			   at % a->row_values, at / a->row_values, text);
}

/* F64 becomes F32, in its place; what is not finite then is refused. */
static int
make_floats(const struct source *s, struct fal_array *a)
{
	const size_t size = fal_dtype_size(a->dtype);
	float *to = (float *)(void *)a->data;
	for (size_t i = 0; i < a->rows * a->row_values; i++) {
		const uint8_t *p = a->data + i * size;
		const float v = fal_dtype_float(a->dtype, p);
		if (!isfinite(v))
			return refuse_value(s, a, i, p);
		to[i] = v;
	}
	a->dtype = FAL_F32;
	a->row_bytes = a->row_values * sizeof(float);
	return FAL_OK;
}

/* The rows that are kept. */
static int
read_rows(struct source *s, struct fal_array *a)
{
	const uint64_t most = s->opts->max_bytes;
	const size_t keep = a->rows * a->row_bytes;
	if (most != 0 && keep > most)
		return source_fail(s, FAL_ELIMIT, "%zu bytes are above the limit of %ju",
				   keep, most);
	a->data = fal_calloc(keep, 1);
	if (a->data == NULL)
		return source_nomem(s);
	s->behind += (uint64_t)(a->dim[0] - a->rows) * a->row_bytes;
	int err = source_exact(s, NULL, s->before);
	if (err == FAL_OK)
		err = source_exact(s, a->data, keep);
	return err < 0 || fal_dtype_is_whole(a->dtype) ? err : make_floats(s, a);
}

/* ---- headers of IDX and of safetensors ------------------------------------------- */

enum { IDX_U8 = 0x08 };

static int
source_idx(struct source *s, struct fal_array *a)
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
		return source_fail(s, FAL_EFORMAT,
				   "tensor '%s': type '%s' is not one of U8 I8 U16 I16 "
				   "U32 I32 I64 F32 F64",
				   FAL_QUOTE(name), FAL_QUOTE(t.dtype));
	if (t.dims < 1 || t.dims > FAL_ARRAY_DIMS)
		return source_fail(s, FAL_EFORMAT,
				   "tensor '%s' has not 1 to 4 dimensions",
				   FAL_QUOTE(name));
	a->ndim = t.dims;
	memcpy(a->dim, t.dim, t.dims * sizeof(*a->dim));
	s->before = t.at[0];
	s->behind = t.all - t.at[1];
	err = source_shape(s, a);
	if (err == FAL_OK && t.at[1] - t.at[0] != (uint64_t)a->dim[0] * a->row_bytes)
		err = source_fail(s, FAL_EFORMAT,
				  "tensor '%s' has not the bytes of its shape",
				  FAL_QUOTE(name));
	return err;
}

static int
source_tensor(struct source *s, struct fal_array *a)
{
	uint8_t len[8];
	int err = source_exact(s, len, sizeof(len));
	if (err < 0)
		return err;
	struct fal_rd r = fal_rd_init(len, sizeof(len));
	const uint64_t n = fal_get_u64(&r);
	if (n > FAL_SAFETENSORS_HEADER)
		return source_fail(
			s, FAL_ELIMIT,
			"a header of %ju bytes is too long: not a safetensors file?", n);
	char *text = fal_xcalloc(n, 1);
	err = source_exact(s, (uint8_t *)text, n);
	if (err == FAL_OK)
		err = describe(s, text, n, a);
	free(text);
	return err;
}

/* ---- an array -------------------------------------------------------------------- */

static int
read_header(struct source *s, struct fal_array *a)
{
	const uint8_t first = s->head_n > 0 ? s->head[0] : 0;
	if (s->own == FAL_FILETYPE_NONE && first != 0 && first != 0x93)
		return source_fail(s, FAL_EFORMAT, "not an IDX file, nor a .npy one");
	if (s->own == FAL_FILETYPE_NONE)
		s->own = first != 0 ? FAL_FILETYPE_NPY : FAL_FILETYPE_IDX;
	return s->own == FAL_FILETYPE_IDX   ? source_idx(s, a)
	       : s->own == FAL_FILETYPE_NPY ? source_npy(s, a)
					    : source_tensor(s, a);
}

int
fal_array_read(enum fal_filetype_is kind, const char *path,
	       const struct fal_array_opts *opts, struct fal_array *out,
	       struct fal_diag *diag)
{
	struct source s;
	struct fal_array a = { 0 };
	uint8_t more;
	int err = source_open(&s, path, diag);
	if (err < 0)
		return err;
	s.own = kind;
	s.opts = opts;
	err = read_header(&s, &a);
	if (err == FAL_OK)
		err = source_shape(&s, &a);
	if (err == FAL_OK)
		err = read_rows(&s, &a);
	if (err == FAL_OK)
		err = source_exact(&s, NULL, s.behind);
	if (err == FAL_OK && (err = source_some(&s, &more, 1)) > 0)
		err = fal_diag_set(diag, FAL_EFORMAT, "%s: trailing bytes after the data",
				   path);
	err = source_close(&s, err);
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
