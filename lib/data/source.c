/* Files, plain or gzipped.  Not by zlib's gzread, which drops what follows the last
 * member. */
#include "data/source.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_STEP = 1 << 20, IN_BYTES = 1 << 17, GZIP_0 = 0x1f, GZIP_1 = 0x8b };

static const uint32_t dim_max = UINT32_C(1) << 31;

const char source_stdin[] = "standard input";

int
source_nomem(const struct source *s)
{
	return fal_diag_set(s->diag, FAL_ENOMEM, "%s: out of memory", s->path);
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
			return fal_diag_set(s->diag, FAL_EIO, "%s: %s", s->path,
					    strerror(errno));
		s->at_end = got == 0;
		s->z.avail_in += got > 0 ? (unsigned)got : 0;
		s->read += got > 0 ? (uint64_t)got : 0;
	}
	return FAL_OK;
}

static int
start(struct source *s)
{
	s->in = fal_calloc(IN_BYTES, 1);
	if (s->in == NULL)
		return source_nomem(s);
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
		return fal_diag_set(s->diag, FAL_EFORMAT,
				    "%s: byte %llu: neither a gzip member nor zero "
				    "padding",
				    s->path, (unsigned long long)s->member);
	if (z == Z_BUF_ERROR)
		return fal_diag_set(s->diag, FAL_ETRUNC,
				    "%s: compressed data is truncated", s->path);
	return fal_diag_set(s->diag, FAL_EFORMAT, "%s: %s", s->path,
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
			return fal_diag_set(s->diag, FAL_ETRUNC, "%s: file is truncated",
					    s->path);
		p = p != NULL ? p + got : NULL;
		n -= (uint64_t)got;
	}
	return FAL_OK;
}

int
source_shape(const struct source *s, struct fal_array *a)
{
	a->row_values = 1;
	for (unsigned i = 0; i < FAL_ARRAY_DIMS; i++) {
		if (i >= a->ndim)
			a->dim[i] = 1;
		if (a->dim[i] == 0 || a->dim[i] > dim_max)
			return fal_diag_set(s->diag, FAL_EFORMAT,
					    "%s: dimension %u is %u, not 1 to 2^31",
					    s->path, i, a->dim[i]);
		if (i > 0 && __builtin_mul_overflow(a->row_values, (size_t)a->dim[i],
						    &a->row_values))
			return fal_diag_set(s->diag, FAL_ELIMIT, "%s: too large",
					    s->path);
	}
	size_t all;
	if (__builtin_mul_overflow(a->row_values, fal_dtype_size(a->dtype),
				   &a->row_bytes) ||
	    __builtin_mul_overflow(a->row_bytes, (size_t)a->dim[0], &all))
		return fal_diag_set(s->diag, FAL_ELIMIT, "%s: too large", s->path);
	a->rows = s->opts->max_rows != 0 ? s->opts->max_rows : a->dim[0];
	if (a->rows > a->dim[0])
		return fal_diag_set(s->diag, FAL_EINVAL, "%s: has %u row%s, not %u",
				    s->path, a->dim[0], fal_text_s(a->dim[0]), a->rows);
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
	return fal_diag_set(s->diag, FAL_ENONFINITE,
			    "%s: value %zu of row %zu is %s, not finite in single "
			    "precision",
			    s->path, at % a->row_values, at / a->row_values, text);
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
		return fal_diag_set(s->diag, FAL_ELIMIT,
				    "%s: %zu bytes are above the limit of %llu", s->path,
				    keep, (unsigned long long)most);
	a->data = fal_calloc(keep, 1);
	if (a->data == NULL)
		return source_nomem(s);
	s->behind += (uint64_t)(a->dim[0] - a->rows) * a->row_bytes;
	int err = source_exact(s, NULL, s->before);
	if (err == FAL_OK)
		err = source_exact(s, a->data, keep);
	return err < 0 || fal_dtype_is_whole(a->dtype) ? err : make_floats(s, a);
}

static int
read_header(struct source *s, struct fal_array *a)
{
	const uint8_t first = s->head_n > 0 ? s->head[0] : 0;
	if (s->own == FAL_FILETYPE_NONE && first != 0 && first != 0x93)
		return fal_diag_set(s->diag, FAL_EFORMAT,
				    "%s: not an IDX file, nor a .npy one", s->path);
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
