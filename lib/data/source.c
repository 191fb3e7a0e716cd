/* Files through zlib, which reads plain ones as they are. */
#include "data/source.h"

#include "base/mem.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_STEP = 1 << 20 };

static const uint32_t dim_max = UINT32_C(1) << 31;

const char source_stdin[] = "standard input";

/* By a descriptor that is closed with it; /dev/stdin cannot be opened if it is a socket.
 */
static gzFile
open_stdin(void)
{
	const int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
	const gzFile f = fd >= 0 ? gzdopen(fd, "rb") : NULL;
	if (fd >= 0 && f == NULL)
		close(fd);
	return f;
}

int
source_open(struct source *s, const char *path, struct fal_diag *diag)
{
	*s = (struct source){ .path = path, .diag = diag };
	errno = 0;
	s->f = path == source_stdin ? open_stdin() : gzopen(path, "rbe");
	if (s->f == NULL)
		return fal_diag_set(diag, errno == ENOENT ? FAL_ENOENT : FAL_EIO,
				    "%s: %s", path,
				    strerror(errno != 0 ? errno : ENOMEM));
	gzbuffer(s->f, 1 << 17);
	return FAL_OK;
}

void
source_close(struct source *s)
{
	gzclose_r(s->f);
}

/* Does a gzip stream end before it is over?  It shows when its last bytes are read, and
 * from zlib 1.3.2 on only then. */
static void
see_cut(struct source *s)
{
	int z;
	gzerror(s->f, &z);
	s->cut |= z == Z_BUF_ERROR;
}

/* What zlib or the system says of a read that failed. */
static int
read_error(const struct source *s)
{
	int z;
	const char *why = gzerror(s->f, &z);
	if (z == Z_ERRNO)
		return fal_diag_set(s->diag, FAL_EIO, "%s: %s", s->path, strerror(errno));
	return fal_diag_set(s->diag, z == Z_MEM_ERROR ? FAL_ENOMEM : FAL_EFORMAT,
			    "%s: %s", s->path, why);
}

int
source_some(struct source *s, uint8_t *p, unsigned n)
{
	const int got = gzread(s->f, p, n);
	see_cut(s);
	if (got == 0 && s->cut)
		return fal_diag_set(s->diag, FAL_ETRUNC,
				    "%s: compressed data is truncated", s->path);
	return got >= 0 ? got : read_error(s);
}

int
source_peek(struct source *s)
{
	const int c = gzgetc(s->f);
	see_cut(s);
	return c < 0 ? c : gzungetc(c, s->f);
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

/* The rest of the file, of which n bytes are expected, is read and dropped. */
static int
drop_rest(struct source *s, uint64_t n)
{
	uint8_t scrap[16384];
	int got;
	while ((got = source_some(s, scrap, sizeof(scrap))) > 0) {
		if ((uint64_t)got > n)
			return fal_diag_set(s->diag, FAL_EFORMAT,
					    "%s: trailing bytes after the array",
					    s->path);
		n -= (uint64_t)got;
	}
	if (got == 0 && n > 0)
		return fal_diag_set(s->diag, FAL_ETRUNC, "%s: file is truncated",
				    s->path);
	return got;
}

int
source_shape(const struct source *s, const struct fal_array_opts *opts,
	     struct fal_array *a)
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
	a->rows = opts->max_rows != 0 ? opts->max_rows : a->dim[0];
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

int
source_rows(struct source *s, const struct fal_array_opts *opts, struct fal_array *a,
	    uint64_t *left)
{
	const size_t keep = a->rows * a->row_bytes;
	*left = (uint64_t)(a->dim[0] - a->rows) * a->row_bytes;
	if (opts->max_bytes != 0 && keep > opts->max_bytes)
		return fal_diag_set(s->diag, FAL_ELIMIT,
				    "%s: %zu bytes are above the limit of %llu", s->path,
				    keep, (unsigned long long)opts->max_bytes);
	a->data = fal_calloc(keep, 1);
	if (a->data == NULL)
		return fal_diag_set(s->diag, FAL_ENOMEM, "%s: out of memory", s->path);
	int err = source_exact(s, a->data, keep);
	return err < 0 || fal_dtype_is_whole(a->dtype) ? err : make_floats(s, a);
}

int
source_array(const char *path, const struct fal_array_opts *opts,
	     int (*header)(struct source *s, struct fal_array *a), struct fal_array *out,
	     struct fal_diag *diag)
{
	struct source s;
	struct fal_array a = { 0 };
	uint64_t left = 0;
	int err = source_open(&s, path, diag);
	if (err < 0)
		return err;
	err = header(&s, &a);
	if (err == FAL_OK)
		err = source_shape(&s, opts, &a);
	if (err == FAL_OK)
		err = source_rows(&s, opts, &a, &left);
	if (err == FAL_OK)
		err = drop_rest(&s, left);
	source_close(&s);
	if (err < 0) {
		fal_array_free(&a);
		return err;
	}
	*out = a;
	return FAL_OK;
}

void
fal_array_free(struct fal_array *a)
{
	free(a->data);
	*a = (struct fal_array){ 0 };
}
