/* Whole files. */
#include "cli/file.h"

#include "base/fault.h"
#include "base/filetype.h"
#include "base/mem.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *
fal_cli_file_name(const char *path)
{
	return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Sets a diagnosis of `path` by errno, which stays. */
static int
diag_errno(struct fal_diag *diag, const char *path)
{
	int e = errno;
	fal_diag_set(diag, 0, "%s: %s", path, strerror(e));
	errno = e;
	if (e == ENOMEM)
		return FAL_ENOMEM;
	if (e == EACCES || e == EPERM)
		return FAL_EPERM;
	return e == ENOENT ? FAL_ENOENT : FAL_EIO;
}

int
fal_cli_feed(const char *path, int (*feed)(void *arg, const void *p, size_t n), void *arg,
	     struct fal_diag *diag)
{
	enum { CHUNK = 1 << 16 };
	const bool in = strcmp(path, "-") == 0;
	const char *name = fal_cli_file_name(path);
	const int fd = in ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return diag_errno(diag, name);
	uint8_t chunk[CHUNK];
	int err = FAL_OK;
	for (ssize_t n = 1; n != 0 && err == FAL_OK;) {
		n = FAL_TRY(READ, -1, read(fd, chunk, CHUNK));
		if (n > 0)
			err = feed(arg, chunk, (size_t)n);
		else if (n < 0 && errno != EINTR)
			err = diag_errno(diag, name);
	}
	if (!in)
		close(fd);
	return err;
}

/* The state of fal_cli_read. */
struct reading {
	struct fal_buf got;
	size_t limit;
	const char *name;
	struct fal_diag *diag;
};

static int
on_read(void *arg, const void *p, size_t n)
{
	struct reading *r = arg;
	fal_put_bytes(&r->got, p, n);
	if (r->got.err < 0) {
		errno = ENOMEM;
		return diag_errno(r->diag, r->name);
	}
	if (r->got.n > r->limit)
		return fal_diag_set(r->diag, FAL_ELIMIT, "%s: more than %zu bytes",
				    r->name, r->limit);
	return FAL_OK;
}

int
fal_cli_read(const char *path, size_t limit, struct fal_buf *out, struct fal_diag *diag)
{
	const char *name = fal_cli_file_name(path);
	struct reading r = { .limit = limit, .name = name, .diag = diag };
	int err = fal_cli_feed(path, on_read, &r, diag);
	if (err == 0 && fal_text_has_key(r.got.p, r.got.n))
		err = fal_diag_set(diag, FAL_EFORMAT,
				   "%s: holds keys, which are not to be read here", name);
	if (err == 0)
		err = fal_filetype_refuse(name, r.got.p, r.got.n,
					  FAL_FILETYPE_SAFETENSORS, diag);
	if (err == 0) {
		const size_t bom = fal_text_bom(r.got.p, r.got.n);
		fal_put_bytes(out, r.got.p + bom, r.got.n - bom);
		err = out->err;
	}
	fal_buf_free(&r.got);
	return err;
}

int
fal_cli_feed_twice(const char *path, struct fal_cli_pass first, struct fal_cli_pass then,
		   struct fal_diag *diag)
{
	struct stat st;
	int err = FAL_OK;
	if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode))
		err = fal_cli_feed(path, first.feed, first.arg, diag);
	return err == FAL_OK ? fal_cli_feed(path, then.feed, then.arg, diag) : err;
}

int
fal_cli_read_into(const char *path, void *to, size_t cap, size_t *n,
		  struct fal_diag *diag)
{
	const bool in = strcmp(path, "-") == 0;
	const char *name = fal_cli_file_name(path);
	const int fd = in ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return diag_errno(diag, name);

	char *p = to, more; /* one more byte: the file is too long */
	size_t got = 0;
	ssize_t k = 1;
	int err = FAL_OK;
	while (err == FAL_OK && k != 0 && got <= cap) {
		k = FAL_TRY(READ, -1,
			    read(fd, got < cap ? p + got : &more,
				 got < cap ? cap - got : 1));
		if (k < 0 && errno != EINTR) {
			err = diag_errno(diag, name);
			break;
		}
		got += k > 0 ? (size_t)k : 0;
	}
	if (err == 0 && got > cap)
		err = fal_diag_set(diag, FAL_ELIMIT, "%s: more than %zu bytes", name,
				   cap);
	/* Refuses a secret that others can read, by the rules of ssh(1) for keys. */
	if (err == 0 && fal_text_has_key(p, got)) {
		struct stat st;
		if (fstat(fd, &st) < 0)
			err = diag_errno(diag, name);
		else if (S_ISREG(st.st_mode) &&
			 (st.st_mode &
			  (S_IRWXO | (st.st_uid == geteuid() ? S_IRWXG : 0))) != 0)
			err = fal_diag_set(
				diag, FAL_EPERM,
				"%s: others can read this secret: chmod go= '%s'", name,
				name);
	}
	if (!in)
		close(fd);
	if (err == 0)
		*n = got;
	return err;
}

int
fal_cli_write_all(int fd, const void *p, size_t n)
{
	const uint8_t *at = p;
	while (n > 0) {
		ssize_t k = FAL_TRY(WRITE, -1, write(fd, at, n));
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -1;
		at += k;
		n -= (size_t)k;
	}
	return 0;
}

static int
open_folder_of(const char *path)
{
	char *folder = fal_strdup(path);
	if (folder == NULL)
		return -1;
	char *slash = strrchr(folder, '/');
	if (slash != NULL)
		slash[slash == folder ? 1 : 0] = '\0';
	const int fd =
		open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(folder);
	return fd;
}

/* The properties of a replaced file. */
struct kept {
	mode_t mode;
	const struct stat *owner; /* NULL: us */
};

/* Writes a file beside `path`, and renames it.  The new file has the properties `kept`;
 * with NULL, this mode within the umask; 0: for us alone.  A failed sync of the folder is
 * an error, unless the file has another owner. */
static int
replace_file(const char *path, const void *p, size_t n, mode_t mode,
	     const struct kept *kept, struct fal_diag *diag)
{
	const struct stat *owner = kept != NULL ? kept->owner : NULL;
	/* Opened before the rename, after which only the sync of the folder may fail.  A
	 * lack of memory is an error, as callers have other files to take back. */
	const int folder = open_folder_of(path);
	if (folder < 0 && owner == NULL)
		return diag_errno(diag, path);
	char *temp;
	if (FAL_TRY(MALLOC, -1, asprintf(&temp, "%s.XXXXXX", path)) < 0)
		temp = NULL;
	int err = FAL_OK;
	/* mkostemp(3) gives only 0600, and a program with threads cannot read the umask
	 * safely: a file with `mode` within the umask, or within the folder's default
	 * list, is created anew under the random name. */
	int fd = temp != NULL ? mkostemp(temp, O_CLOEXEC) : -1;
	if (fd >= 0 && kept == NULL && mode != 0) {
		close(fd);
		fd = unlink(temp) < 0
			     ? -1
			     : open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	}
	if (fd < 0) {
		err = diag_errno(diag, path);
		goto free_temp;
	}
	if ((owner != NULL && fchown(fd, owner->st_uid, owner->st_gid) < 0) ||
	    (kept != NULL && fchmod(fd, kept->mode) < 0) ||
	    fal_cli_write_all(fd, p, n) < 0 || FAL_TRY(FSYNC, -1, fsync(fd)) < 0 ||
	    FAL_TRY(RENAME, -1, rename(temp, path)) < 0) {
		err = diag_errno(diag, path);
		unlink(temp);
	} else if ((folder < 0 || FAL_TRY(FSYNC, -1, fsync(folder)) < 0) &&
		   owner == NULL) {
		err = diag_errno(diag, path);
	}
	close(fd);
free_temp:
	if (folder >= 0)
		close(folder);
	free(temp);
	return err;
}

/* Replaces the existing file `old`, or a link's target; a file that is not regular
 * stays. */
static int
replace_existing(const char *path, const struct stat *old, const void *p, size_t n,
		 mode_t mode, const struct stat *owner, struct fal_diag *diag)
{
	if (!S_ISREG(old->st_mode)) {
		errno = EINVAL;
		return fal_diag_set(diag, FAL_EIO, "%s: is not a regular file", path);
	}
	char *real = FAL_TRY(MALLOC, NULL, realpath(path, NULL));
	if (real == NULL)
		return diag_errno(diag, path);
	const struct kept kept = { mode & old->st_mode, owner };
	const int err = replace_file(real, p, n, mode, &kept, diag);
	free(real);
	return err;
}

int
fal_cli_write(const char *path, const void *p, size_t n, mode_t mode,
	      struct fal_diag *diag)
{
	struct stat old;
	if (strcmp(path, "-") == 0)
		return fal_cli_write_all(STDOUT_FILENO, p, n) < 0
			       ? diag_errno(diag, "standard output")
			       : 0;
	return stat(path, &old) < 0
		       ? replace_file(path, p, n, mode, NULL, diag)
		       : replace_existing(path, &old, p, n, mode, NULL, diag);
}

int
fal_cli_rewrite(const char *path, const void *p, size_t n, struct fal_diag *diag)
{
	struct stat old;
	if (stat(path, &old) < 0)
		return diag_errno(diag, path);
	return replace_existing(path, &old, p, n, 0777, &old, diag);
}

/* The path folder + rest if such a file exists, else NULL. */
static char *
existing_path(const char *folder, const char *rest)
{
	char *path = fal_xprintf("%s%s", folder, rest);
	if (access(path, F_OK) == 0)
		return path;
	free(path);
	return NULL;
}

char *
fal_cli_trace_path(const char *name)
{
	struct stat st;
	const bool is_folder = stat(name, &st) == 0 && S_ISDIR(st.st_mode);
	return is_folder ? fal_xprintf("%s/trace.jsonl", name) : fal_xstrdup(name);
}

char *
fal_cli_key_path(const char *option)
{
	const char *given = option != NULL ? option : getenv("FALCON_KEY");
	if (given != NULL && *given != '\0')
		return fal_xstrdup(given);

	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char *path = NULL;
	if (config != NULL && *config == '/') /* the standard ignores relative paths */
		path = existing_path(config, "/falcon/key");
	else if (home != NULL && *home != '\0')
		path = existing_path(home, "/.config/falcon/key");
	return path != NULL ? path : existing_path("", "/etc/falcon/key");
}
