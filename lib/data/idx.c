/* IDX files through zlib, which reads plain files as they are. */
#include "data/idx.h"

#include "base/mem.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { IDX_U8 = 0x08, IDX_DIM_MAX = 1u << 31, READ_STEP = 1 << 20 };

/* The file being read, and where its faults go. */
struct source {
	gzFile f;
	const char *path;
	struct fal_diag *diag;
};

/* What zlib or the system says of a read that failed. */
static int
read_error(const struct source *s)
{
	int z;
	const char *why = gzerror(s->f, &z);
	if (z == Z_ERRNO)
		return fal_diag_set(s->diag, FAL_EIO, "%s: %s", s->path, strerror(errno));
	if (z == Z_BUF_ERROR)
		return fal_diag_set(s->diag, FAL_ETRUNC,
				    "%s: compressed data is truncated", s->path);
	return fal_diag_set(s->diag, z == Z_MEM_ERROR ? FAL_ENOMEM : FAL_EFORMAT,
			    "%s: %s", s->path, why);
}

/* Exactly n bytes into `p`. */
static int
read_exact(const struct source *s, uint8_t *p, size_t n)
{
	while (n > 0) {
		int got = gzread(s->f, p, n < READ_STEP ? (unsigned)n : READ_STEP);
		if (got < 0)
			return read_error(s);
		if (got == 0)
			return fal_diag_set(s->diag, FAL_ETRUNC, "%s: file is truncated",
					    s->path);
		p += got;
		n -= (size_t)got;
	}
	return FAL_OK;
}

/* The rest of the file, of which n bytes are expected, is read and dropped. */
static int
read_rest(const struct source *s, uint64_t n)
{
	uint8_t scrap[16384];
	for (;;) {
		int got = gzread(s->f, scrap, sizeof(scrap));
		if (got < 0)
			return read_error(s);
		if (got == 0)
			break;
		if ((uint64_t)got > n)
			return fal_diag_set(s->diag, FAL_EFORMAT,
					    "%s: trailing bytes after the array",
					    s->path);
		n -= (uint64_t)got;
	}
	if (n > 0)
		return fal_diag_set(s->diag, FAL_ETRUNC, "%s: file is truncated",
				    s->path);
	/* A gzip stream cut at the end of its data shows only here. */
	int z;
	gzerror(s->f, &z);
	return z == Z_OK || z == Z_STREAM_END ? FAL_OK : read_error(s);
}

/* Magic and dimensions; on success `idx` is set but for rows and data. */
static int
read_header(const struct source *s, struct fal_idx *idx)
{
	uint8_t magic[4], d[4];
	int err = read_exact(s, magic, sizeof(magic));
	if (err < 0)
		return err;
	if (magic[0] != 0 || magic[1] != 0)
		return fal_diag_set(s->diag, FAL_EFORMAT, "%s: not an IDX file", s->path);
	if (magic[2] != IDX_U8)
		return fal_diag_set(s->diag, FAL_EFORMAT,
				    "%s: IDX type 0x%02x is not supported, only 0x08 "
				    "(unsigned byte)",
				    s->path, magic[2]);
	if (magic[3] < 1 || magic[3] > FAL_IDX_DIMS)
		return fal_diag_set(s->diag, FAL_EFORMAT,
				    "%s: %u dimensions, not 1 to %d", s->path, magic[3],
				    FAL_IDX_DIMS);
	idx->ndim = magic[3];
	idx->row_bytes = 1;
	for (unsigned i = 0; i < FAL_IDX_DIMS; i++) {
		idx->dim[i] = 1;
		if (i >= idx->ndim)
			continue;
		if ((err = read_exact(s, d, sizeof(d))) < 0)
			return err;
		idx->dim[i] = (uint32_t)d[0] << 24 | (uint32_t)d[1] << 16 |
			      (uint32_t)d[2] << 8 | d[3];
		if (idx->dim[i] == 0 || idx->dim[i] > IDX_DIM_MAX)
			return fal_diag_set(s->diag, FAL_EFORMAT,
					    "%s: dimension %u is %u, not 1 to 2^31",
					    s->path, i, idx->dim[i]);
		if (i > 0 && __builtin_mul_overflow(idx->row_bytes, (size_t)idx->dim[i],
						    &idx->row_bytes))
			return fal_diag_set(s->diag, FAL_ELIMIT, "%s: too large",
					    s->path);
	}
	return FAL_OK;
}

/* The rows of an array whose header has been read. */
static int
read_rows(const struct source *s, const struct fal_idx_opts *opts, struct fal_idx *idx)
{
	size_t all, keep;
	idx->rows = opts->max_rows != 0 ? opts->max_rows : idx->dim[0];
	if (idx->rows > idx->dim[0])
		return fal_diag_set(s->diag, FAL_EINVAL, "%s: has %u rows, not %u",
				    s->path, idx->dim[0], idx->rows);
	if (__builtin_mul_overflow((size_t)idx->dim[0], idx->row_bytes, &all))
		return fal_diag_set(s->diag, FAL_ELIMIT, "%s: too large", s->path);
	keep = idx->rows * idx->row_bytes;
	if (opts->max_bytes != 0 && keep > opts->max_bytes)
		return fal_diag_set(s->diag, FAL_ELIMIT,
				    "%s: %zu bytes are above the limit of %llu", s->path,
				    keep, (unsigned long long)opts->max_bytes);
	idx->data = fal_calloc(keep, 1);
	if (idx->data == NULL)
		return fal_diag_set(s->diag, FAL_ENOMEM, "%s: out of memory", s->path);
	int err = read_exact(s, idx->data, keep);
	return err < 0 ? err : read_rest(s, all - keep);
}

int
fal_idx_read(const char *path, const struct fal_idx_opts *opts, struct fal_idx *out,
	     struct fal_diag *diag)
{
	struct source s = { .path = path, .diag = diag };
	struct fal_idx idx = { 0 };
	errno = 0;
	s.f = gzopen(path, "rbe");
	if (s.f == NULL)
		return fal_diag_set(diag, errno == ENOENT ? FAL_ENOENT : FAL_EIO,
				    "%s: %s", path,
				    strerror(errno != 0 ? errno : ENOMEM));
	gzbuffer(s.f, 1 << 17);
	int err = read_header(&s, &idx);
	if (err == FAL_OK)
		err = read_rows(&s, opts, &idx);
	gzclose_r(s.f);
	if (err < 0) {
		fal_idx_free(&idx);
		return err;
	}
	*out = idx;
	return FAL_OK;
}

void
fal_idx_free(struct fal_idx *idx)
{
	free(idx->data);
	*idx = (struct fal_idx){ 0 };
}
