/* Reads files, plain or gzipped; without zlib's gzread, which drops the bytes after the
 * last gzip member. */
#include "job/source.h"

#include "base/fault.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_STEP = 1 << 20, IN_BYTES = 1 << 17, GZIP_0 = 0x1f, GZIP_1 = 0x8b };

const char source_stdin[] = "standard input";

int
source_nomem(const struct source *s)
{
	return source_fail(s, FAL_ENOMEM, "out of memory");
}

/* Reads until the input buffer is full or the file ends; the buffer's bytes are all used.
 */
static int
fill_input(struct source *s)
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
		s->bytes_read += got > 0 ? (uint64_t)got : 0;
	}
	return FAL_OK;
}

/* Skips the padding after a gzip member: 1 if another member follows, 0 at the end. */
static int
next_gzip_member(struct source *s)
{
	do {
		int err = s->z.avail_in == 0 ? fill_input(s) : FAL_OK;
		if (err < 0 || s->z.avail_in == 0)
			return err;
		s->z.avail_in--;
	} while (*s->z.next_in++ == 0);
	s->z.next_in--;
	s->z.avail_in++;
	s->member_start = s->bytes_read - s->z.avail_in;
	s->in_member = true;
	inflateReset(&s->z);
	return 1;
}

/* Reads from the content of all gzip members, as source_some. */
static int
read_gzip(struct source *s, uint8_t *p, unsigned n)
{
	s->z.next_out = p;
	s->z.avail_out = n;
	while (s->z.avail_out == n) {
		int err = s->in_member ? 1 : next_gzip_member(s);
		if (err > 0 && s->z.avail_in == 0)
			err = fill_input(s);
		if (err < 0 || !s->in_member)
			return err;
		const int z = inflate(&s->z, Z_NO_FLUSH);
		const bool is_member = s->z.total_in > (z == Z_BUF_ERROR ? 1 : 2);
		if (z == Z_MEM_ERROR)
			return source_nomem(s);
		if (z != Z_OK && z != Z_STREAM_END && !is_member)
			return source_fail(
				s, FAL_EFORMAT,
				"byte %ju: neither a gzip member nor zero padding",
				s->member_start);
		if (z == Z_BUF_ERROR)
			return source_fail(s, FAL_ETRUNC, "compressed data is truncated");
		if (z != Z_OK && z != Z_STREAM_END)
			return source_fail(s, FAL_EFORMAT, "%s",
					   s->z.msg != NULL
						   ? s->z.msg
						   : "compressed data is damaged");
		s->in_member = z == Z_OK;
	}
	return (int)(n - s->z.avail_out);
}

static int
read_content(struct source *s, uint8_t *p, unsigned n)
{
	if (s->is_gzip)
		return read_gzip(s, p, n);
	int err = s->z.avail_in == 0 ? fill_input(s) : FAL_OK;
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
	/* A socket as standard input cannot be opened as /dev/stdin. */
	s->fd = path == source_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
				     : open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0)
		return fal_diag_set(diag, errno == ENOENT ? FAL_ENOENT : FAL_EIO,
				    "%s: %s", path, strerror(errno));
	s->in = fal_xcalloc(IN_BYTES, 1);
	int err = fill_input(s);
	if (err == FAL_OK && s->z.avail_in >= 2 && s->in[0] == GZIP_0 &&
	    s->in[1] == GZIP_1) {
		s->is_gzip = s->in_member = true;
		if (inflateInit2(&s->z, MAX_WBITS + 16) != Z_OK)
			err = source_nomem(s);
	}
	while (err >= 0 && s->head_n < sizeof(s->head)) {
		const unsigned room = (unsigned)sizeof(s->head) - s->head_n;
		err = read_content(s, s->head + s->head_n, room);
		s->head_n += err > 0 ? (unsigned)err : 0;
		if (err == 0)
			break;
	}
	if (err >= 0)
		s->kind = fal_filetype_of(s->head, s->head_n);
	if (s->kind != NULL && s->kind->kind == FAL_FILETYPE_PACKED)
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
	    s->kind->kind == s->own)
		return err;
	return fal_diag_set(s->diag, err, "%s: %s %s", s->path,
			    s->is_gzip ? "holds what is" : "is", s->kind->name);
}

int
source_some(struct source *s, uint8_t *p, unsigned n)
{
	if (s->head_used == s->head_n)
		return read_content(s, p, n);
	assert(s->head_used < s->head_n);
	const unsigned left = s->head_n - s->head_used, some = n < left ? n : left;
	memcpy(p, s->head + s->head_used, some);
	s->head_used += some;
	return (int)some;
}

int
source_exact(struct source *s, uint8_t *p, uint64_t n)
{
	uint8_t scrap[16384];
	const unsigned step = p != NULL ? READ_STEP : sizeof(scrap);
	while (n > 0) {
		const int got = source_some(s, p != NULL ? p : scrap,
					    n < step ? (unsigned)n : step);
		if (got < 0 && got != FAL_ETRUNC)
			return got;
		if (got <= 0)
			return source_fail(s, FAL_ETRUNC, "file is truncated");
		p = p != NULL ? p + got : NULL;
		n -= (uint64_t)got;
	}
	return FAL_OK;
}
