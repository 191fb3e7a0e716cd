/* Reads and creates key files. */
#include "key.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int
file_read(const char *path, struct text *out)
{
	struct fal_diag diag;
	out->p = fal_secret_alloc(FAL_KEYRING_MAX);
	const int err = fal_cli_read_into(path, out->p, FAL_KEYRING_MAX, &out->n, &diag);
	if (err == FAL_OK)
		return FAL_EXIT_DONE;
	fal_secret_free(out->p);
	return fail(err == FAL_ELIMIT  ? FAL_EXIT_USAGE
		    : err == FAL_EPERM ? FAL_EXIT_NOPERM
				       : FAL_EXIT_NO,
		    "%s", diag.text);
}

/* Writes and syncs n bytes to `fd`; closes `fd` in any case. */
static int
file_write(int fd, const char *p, size_t n)
{
	const bool good =
		fal_cli_write_all(fd, p, n) == 0 && FAL_TRY(FSYNC, -1, fsync(fd)) == 0;
	const int saved = errno;
	const bool closed = close(fd) == 0;
	if (good)
		return closed ? FAL_OK : FAL_EIO;
	errno = saved;
	return FAL_EIO;
}

int
dir_create(const char *dir, const char *const *name, const char *const *text, size_t n)
{
	struct stat st;
	if (lstat(dir, &st) == 0)
		return FAL_EEXIST;
	size_t base = strlen(dir);
	while (base > 1 && dir[base - 1] == '/')
		base--;
	char *temp = fal_xprintf("%.*s.XXXXXX", (int)base, dir);
	int err = FAL_EIO, saved, dirfd;
	size_t made = 0;
	if (mkdtemp(temp) == NULL)
		goto free_temp;
	dirfd = open(temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		goto remove_dir;
	for (; made < n; made++) {
		int fd = openat(dirfd, name[made],
				O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0)
			goto remove_files;
		if (file_write(fd, text[made], strlen(text[made])) < 0) {
			made++;
			goto remove_files;
		}
	}
	/* rename(2) fails if `dir` was created in the meantime and is not empty. */
	if (FAL_TRY(FSYNC, -1, fsync(dirfd)) == 0 &&
	    FAL_TRY(RENAME, -1, rename(temp, dir)) == 0) {
		close(dirfd);
		err = FAL_OK;
		goto free_temp;
	}
remove_files:
	saved = errno;
	while (made > 0)
		unlinkat(dirfd, name[--made], 0);
	close(dirfd);
	errno = saved;
remove_dir:
	saved = errno;
	rmdir(temp);
	errno = saved;
free_temp:
	free(temp);
	return err;
}

int
file_create(const char *path, const char *text, mode_t mode)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (fd < 0)
		return errno == EEXIST ? FAL_EEXIST : FAL_EIO;
	const int err = file_write(fd, text, strlen(text));
	if (err < 0) {
		const int saved = errno;
		unlink(path);
		errno = saved;
	}
	return err;
}

int
file_lock(const char *path)
{
	/* Locks the directory, as a change replaces the file itself. */
	char *copy = fal_xstrdup(path);
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(copy);
	if (fd < 0)
		return FAL_EIO;
	if (flock(fd, LOCK_EX) == 0)
		return fd;
	const int saved = errno;
	close(fd);
	errno = saved;
	return FAL_EIO;
}

int
file_fail(const char *object, int err)
{
	return fail(FAL_EXIT_NO, "%s: %s", object,
		    err == FAL_EIO ? strerror(errno) : fal_strerror(err));
}
