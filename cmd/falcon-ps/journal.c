/* Reading, appending and syncing the policy journal. */
#include "journal.h"

#include "base/fault.h"
#include "base/mem.h"
#include "cli/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { JOURNAL_MAX = 64 << 20 }; /* bytes */

/* Tearing leaves a part of a line, never more than all of it. */
static int
judge_rest(struct fal_journal_reading *r, const struct fal_buf *text,
	   struct fal_diag *diag)
{
	const char *p = (const char *)text->p + r->whole;
	const size_t left = text->n - r->whole;
	struct fal_chain chain = *r->chain;
	r->line++;
	return left > 1 && fal_chain_take(&chain, p, left - 1)
		       ? fal_journal_refuse(r, diag)
		       : FAL_OK;
}

/* The file's name is to outlive a loss of power, too. */
static int
sync_folder(const char *path)
{
	char *copy = fal_strdup(path);
	int fd = copy != NULL ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
			      : -1;
	int err = fd >= 0 ? FAL_TRY(FSYNC, -1, fsync(fd)) : -1;
	if (fd >= 0)
		close(fd);
	free(copy);
	return err;
}

int
ps_journal_open(struct ps_journal *j, char *path,
		int (*on_line)(void *arg, const struct fal_journal_line *l), void *arg,
		struct fal_diag *diag)
{
	struct fal_buf text = { 0 };
	*j = (struct ps_journal){ .fd = -1, .path = path };
	if (path == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	j->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (j->fd < 0 || sync_folder(path) < 0)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
	int err = fal_cli_read(path, JOURNAL_MAX, &text, diag);
	struct fal_journal_reading r = {
		.name = path, .on_line = on_line, .arg = arg, .chain = &j->chain
	};
	if (err == FAL_OK)
		err = fal_journal_read(&r, &text, diag);
	/* A crash may leave something else in place of the last line. */
	if (err == FAL_EFORMAT &&
	    memchr(text.p + r.whole, '\n', text.n - r.whole) == text.p + text.n - 1)
		err = FAL_OK;
	if (err == FAL_OK)
		err = judge_rest(&r, &text, diag);
	if (err == FAL_OK && r.whole < text.n &&
	    FAL_TRY(WRITE, -1, ftruncate(j->fd, (off_t)r.whole)) < 0)
		err = fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
	if (err == FAL_OK)
		j->torn = text.n - r.whole;
	fal_buf_free(&text);
	return err;
}

int
ps_journal_add(struct ps_journal *j, const struct fal_journal_line *l)
{
	struct fal_buf b = { 0 };
	struct fal_chain chain = j->chain;
	off_t end = lseek(j->fd, 0, SEEK_END);
	fal_journal_put(l, (int64_t)time(NULL), &chain, &b);
	int err = b.err;
	if (err == FAL_OK &&
	    (end < 0 || FAL_TRY(WRITE, -1, write(j->fd, b.p, b.n)) != (ssize_t)b.n ||
	     FAL_TRY(FSYNC, -1, fsync(j->fd)) < 0)) {
		int why = errno;
		if (end >= 0 && FAL_TRY(WRITE, -1, ftruncate(j->fd, end)) < 0)
			why = errno;
		errno = why;
		err = FAL_EIO;
	}
	if (err == FAL_OK)
		j->chain = chain;
	fal_buf_free(&b);
	return err;
}

void
ps_journal_close(struct ps_journal *j)
{
	if (j->fd >= 0)
		close(j->fd);
	free(j->path);
	*j = (struct ps_journal){ .fd = -1 };
}
