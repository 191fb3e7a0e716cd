/* Reading, appending and syncing the policy journal. */
#include "journal.h"

#include "base/fault.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/file.h"
#include "job/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { JOURNAL_MAX = 64 << 20 }; /* bytes */

struct reading {
	const char *path;
	unsigned line;
	struct fal_chain *chain;
	int (*on_line)(void *arg, const struct ps_journal_line *l);
	void *arg;
	struct fal_diag *diag;
};

static int
read_line(const struct reading *r, const char *p, size_t n)
{
	const struct fal_policy none = { 0 };
	struct fal_policy policy;
	json_int_t clock, version, seconds;
	const char *by;
	json_t *v;
	json_error_t at;
	const char *link;
	json_t *o = json_loadb(p, n, JSON_REJECT_DUPLICATES, &at);
	if (o == NULL ||
	    json_unpack_ex(o, &at, JSON_STRICT, "{s:I, s:I, s:s, s:I, s:o, s:s}", "clock",
			   &clock, "version", &version, "by", &by, "time", &seconds,
			   "policy", &v, "h", &link) < 0) {
		json_decref(o);
		if (at.text[0] == '\0')
			return fal_diag_set(r->diag, FAL_ENOMEM, "out of memory");
		return fal_diag_set(r->diag, FAL_EFORMAT, "%s:%u: %s", r->path, r->line,
				    fal_text_unless_key(at.text));
	}
	char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
	int err = FAL_ENOMEM;
	if (text == NULL)
		goto drop_o;
	struct fal_policy_text in = { r->path, r->line, text, strlen(text) };
	err = fal_policy_json_get(&in, &none, &policy, r->diag);
	if (err < 0)
		goto free_text;
	struct ps_journal_line l = { (uint64_t)clock, (uint64_t)version, by, &policy };
	err = clock >= 0 && version >= 0
		      ? r->on_line(r->arg, &l)
		      : fal_diag_set(r->diag, FAL_EINVAL, "%s:%u: a number below 0",
				     r->path, r->line);
	fal_policy_free(&policy);
free_text:
	free(text);
drop_o:
	json_decref(o);
	return err;
}

static int
refuse(const struct reading *r)
{
	return fal_diag_set(r->diag, FAL_EINVAL,
			    "%s:%u: it does not chain the line before, or was changed",
			    r->path, r->line);
}

/* Reads the whole lines; `*whole` is how many bytes they are. */
static int
read_lines(struct reading *r, const struct fal_buf *text, size_t *whole)
{
	const char *p = (const char *)text->p, *end = p + text->n, *nl;
	int err = FAL_OK;
	*whole = 0;
	while (err == FAL_OK && p < end &&
	       (nl = memchr(p, '\n', (size_t)(end - p))) != NULL) {
		r->line++;
		err = read_line(r, p, (size_t)(nl - p));
		if (err == FAL_OK && !fal_chain_take(r->chain, p, (size_t)(nl - p)))
			err = refuse(r);
		*whole += (size_t)(nl + 1 - p);
		p = nl + 1;
	}
	/* Tearing leaves a part of a line, never more than all of it. */
	struct fal_chain chain = *r->chain;
	r->line++;
	if (err == FAL_OK && p + 1 < end &&
	    fal_chain_take(&chain, p, (size_t)(end - p) - 1))
		err = refuse(r);
	return err;
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
		int (*on_line)(void *arg, const struct ps_journal_line *l), void *arg,
		struct fal_diag *diag)
{
	struct fal_buf text = { 0 };
	size_t whole;
	*j = (struct ps_journal){ .fd = -1, .path = path };
	if (path == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	j->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (j->fd < 0 || sync_folder(path) < 0)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
	int err = fal_cli_read(path, JOURNAL_MAX, &text, diag);
	struct reading r = { path, 0, &j->chain, on_line, arg, diag };
	if (err == FAL_OK)
		err = read_lines(&r, &text, &whole);
	if (err == FAL_OK && whole < text.n &&
	    FAL_TRY(WRITE, -1, ftruncate(j->fd, (off_t)whole)) < 0)
		err = fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
	if (err == FAL_OK)
		j->torn = text.n - whole;
	fal_buf_free(&text);
	return err;
}

int
ps_journal_add(struct ps_journal *j, const struct ps_journal_line *l)
{
	struct fal_buf line = { 0 }, b = { 0 };
	struct fal_chain chain = j->chain;
	off_t end = lseek(j->fd, 0, SEEK_END);
	fal_json_open(&line, '{');
	fal_json_member_u64(&line, "clock", l->clock);
	fal_json_member_u64(&line, "version", l->version);
	fal_json_member_str(&line, "by", l->by);
	fal_json_key(&line, "time");
	fal_json_i64(&line, (int64_t)time(NULL));
	fal_json_key(&line, "policy");
	fal_policy_json_put(l->policy, &line);
	fal_json_close(&line, '}');
	int err = line.err;
	if (err == FAL_OK)
		fal_chain_put(&chain, (char *)line.p, line.n, &b);
	fal_buf_free(&line);
	if (err == FAL_OK)
		err = b.err;
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
