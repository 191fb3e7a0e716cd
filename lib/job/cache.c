/* Keeps chunks in a directory. */
#include "job/chunk.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/parse.h"
#include "cli/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* Writes DIR/ab/cd/NAME, with the hash ab cd …; NAME is the hash if `name` is NULL. */
static int
cache_path(char out[static PATH_BYTES], const char *dir, const uint8_t *hash,
	   const char *name)
{
	char hex[2 * FAL_HASH_BYTES + 1];
	fal_hex(hash, FAL_HASH_BYTES, hex);
	int n = snprintf(out, PATH_BYTES, "%s/%.2s/%.2s/%s", dir, hex, hex + 2,
			 name != NULL ? name : hex);
	if (n < 0 || n >= PATH_BYTES) {
		errno = ENAMETOOLONG;
		return FAL_EIO;
	}
	return FAL_OK;
}

/* Appends the whole file, up to a byte above the limit. */
static int
read_chunk_file(int fd, struct fal_buf *out)
{
	size_t start = out->n;
	for (;;) {
		size_t left = FAL_CHUNK_BYTES + 1 - (out->n - start);
		size_t step = left < 65536 ? left : 65536;
		uint8_t *p = step != 0 ? fal_buf_room(out, step) : NULL;
		if (p == NULL)
			return out->err;
		ssize_t got = FAL_TRY(READ, -1, read(fd, p, step));
		out->n -= got < 0 ? step : step - (size_t)got;
		if (got < 0 && errno != EINTR)
			return FAL_EIO;
		if (got == 0)
			return FAL_OK;
	}
}

char *
fal_cache_directory(const char *option)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	if (option != NULL && strcmp(option, "none") == 0)
		return NULL;
	if (option != NULL)
		return fal_xstrdup(option);
	if (cache != NULL && *cache == '/') /* the standard ignores relative ones */
		return fal_xprintf("%s/falcon", cache);
	return home != NULL && *home != '\0' ? fal_xprintf("%s/.cache/falcon", home)
					     : NULL;
}

int
fal_cache_get(const char *dir, const uint8_t hash[static FAL_HASH_BYTES],
	      struct fal_buf *out)
{
	char path[PATH_BYTES];
	uint8_t found[FAL_HASH_BYTES];
	int err = cache_path(path, dir, hash, NULL);
	if (err < 0)
		return err;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT ? FAL_ENOENT : FAL_EIO;
	size_t start = out->n;
	err = read_chunk_file(fd, out);
	close(fd);
	if (err == FAL_OK) {
		fal_hash(out->p + start, out->n - start, found);
		if (memcmp(found, hash, sizeof(found)) != 0) {
			unlink(path);
			err = FAL_ENOENT;
		}
	}
	if (err < 0)
		out->n = start;
	return err;
}

int
fal_cache_put(const char *dir, const uint8_t hash[static FAL_HASH_BYTES],
	      const uint8_t *p, size_t n)
{
	char path[PATH_BYTES], temp[PATH_BYTES];
	if (n > FAL_CHUNK_BYTES)
		return FAL_ELIMIT;
	int err = cache_path(path, dir, hash, NULL);
	if (err == FAL_OK)
		err = cache_path(temp, dir, hash, ".new-XXXXXX");
	/* Makes all directories before the last slash. */
	for (char *at = temp + 1; err == FAL_OK && (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		err = mkdir(temp, 0777) == 0 || errno == EEXIST ? FAL_OK : FAL_EIO;
		*at = '/';
	}
	if (err < 0)
		return err;
	int fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0)
		return FAL_EIO;
	err = fal_cli_write_all(fd, p, n) < 0 ? FAL_EIO : FAL_OK;
	if (close(fd) < 0 && err == FAL_OK)
		err = FAL_EIO;
	if (err == FAL_OK && FAL_TRY(RENAME, -1, rename(temp, path)) < 0)
		err = FAL_EIO;
	if (err < 0) {
		int why = errno;
		unlink(temp);
		errno = why;
	}
	return err;
}
