/* The state folder. */
#include "state.h"

#include "base/mem.h"
#include "base/parse.h"
#include "cli/file.h"
#include "sec/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 20 };

char *
ps_state_path(const struct ps_state *s, const char *name)
{
	char *path = NULL;
	return asprintf(&path, "%s/%s", s->dir, name) < 0 ? NULL : path;
}

static int
lock_dir(struct ps_state *s, struct fal_diag *diag)
{
	char *path = ps_state_path(s, "lock");
	if (path == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int err = FAL_OK;
	if (s->lock < 0)
		err = fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
	else if (flock(s->lock, LOCK_EX | LOCK_NB) < 0)
		err = fal_diag_set(diag, FAL_EEXIST, "%s: another falcon-ps serves it",
				   s->dir);
	free(path);
	return err;
}

/* Reads DIR/name if it is there. */
static int
read_if(const struct ps_state *s, const char *name, struct fal_buf *out, bool *there,
	struct fal_diag *diag)
{
	char *path = ps_state_path(s, name);
	if (path == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	int err = fal_cli_read(path, TEXT_MAX, out, diag);
	*there = err == FAL_OK;
	free(path);
	return err == FAL_ENOENT ? FAL_OK : err;
}

static int
other_job(const struct ps_state *s, const struct fal_buf *old, const struct fal_buf *text,
	  struct fal_diag *diag)
{
	uint8_t hash[FAL_HASH_BYTES];
	char was[2 * FAL_HASH_BYTES + 1], is[2 * FAL_HASH_BYTES + 1];
	fal_hash(old->p, old->n, hash);
	fal_hex(hash, sizeof(hash), was);
	fal_hash(text->p, text->n, hash);
	fal_hex(hash, sizeof(hash), is);
	return fal_diag_set(diag, FAL_EEXIST,
			    "%s: holds the state of another job: %s, not %s", s->dir, was,
			    is);
}

static int
check_job(struct ps_state *s, const struct fal_buf *text, struct fal_diag *diag)
{
	struct fal_buf old = { 0 };
	bool there;
	int err = read_if(s, "job", &old, &there, diag);
	if (err == FAL_OK && there &&
	    (old.n != text->n || memcmp(old.p, text->p, old.n) != 0))
		err = other_job(s, &old, text, diag);
	if (err == FAL_OK && !there) {
		char *path = ps_state_path(s, "job");
		err = path == NULL ? FAL_ENOMEM
				   : fal_cli_write(path, text->p, text->n, 0644, diag);
		free(path);
	}
	fal_buf_free(&old);
	return err;
}

/* Whether a model was trained here: the trace tells of an update. */
static int
find_update(struct ps_state *s, struct fal_diag *diag)
{
	static const char what[] = "\"ev\":\"update\"";
	char *path = ps_state_path(s, "trace.jsonl"), *line = NULL;
	size_t cap = 0;
	FILE *f = path != NULL ? fopen(path, "re") : NULL;
	int err = path == NULL ? FAL_ENOMEM : FAL_OK;
	if (f == NULL && path != NULL && errno != ENOENT)
		err = fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
	while (f != NULL && !s->begun && getline(&line, &cap, f) >= 0)
		s->begun = strstr(line, what) != NULL;
	if (f != NULL)
		fclose(f);
	free(line);
	free(path);
	return err;
}

int
ps_state_count(struct ps_state *s, struct fal_diag *diag)
{
	struct fal_buf text = { 0 };
	uint64_t was = 0;
	bool there;
	char *path = ps_state_path(s, "incarnation");
	int err = path != NULL ? read_if(s, "incarnation", &text, &there, diag)
			       : FAL_ENOMEM;
	if (err == FAL_OK && there) {
		if (text.n > 0)
			text.p[text.n - 1] = '\0'; /* its newline */
		if (text.n == 0 ||
		    fal_parse_u64((const char *)text.p, 0, UINT32_MAX - 1, &was) < 0)
			err = fal_diag_set(diag, FAL_EFORMAT, "%s: is not a number",
					   path);
	}
	s->incarnation = (uint32_t)was + (there || s->begun);
	fal_buf_clear(&text);
	fal_put_fmt(&text, "%u\n", s->incarnation);
	if (err == FAL_OK)
		err = text.err < 0 ? text.err
				   : fal_cli_write(path, text.p, text.n, 0644, diag);
	fal_buf_free(&text);
	free(path);
	return err;
}

/* Our own lines: {"t":SECONDS,"ev":"NAME",… */
static void
take_line(struct ps_trace *t, const char *line, size_t n)
{
	static const char gap[] = "\"ev\":\"gap\"", update[] = "\"ev\":\"update\"";
	const char *at;
	unsigned long long lines = 1, clock;
	sscanf(line, "{\"t\":%lf", &t->t);
	if (strstr(line, gap) != NULL && (at = strstr(line, "\"lines\":")) != NULL)
		sscanf(at, "\"lines\":%llu", &lines);
	if (strstr(line, update) != NULL && (at = strstr(line, "\"clock\":")) != NULL &&
	    sscanf(at, "\"clock\":%llu", &clock) == 1)
		t->clocks = clock + 1;
	t->lines += lines;
	t->bytes += n;
	fal_chain_link(line, n, t->chain.link);
}

int
ps_state_trace(const struct ps_state *s, struct ps_trace *out, struct ps_trace_at *at,
	       struct fal_diag *diag)
{
	char *path = ps_state_path(s, "trace.jsonl"), *line = NULL;
	size_t cap = 0;
	ssize_t n;
	*out = (struct ps_trace){ 0 };
	FILE *f = path != NULL ? fopen(path, "re") : NULL;
	int err = path == NULL ? FAL_ENOMEM : FAL_OK;
	if (f == NULL && path != NULL && errno != ENOENT)
		err = fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
	while (f != NULL && (n = getline(&line, &cap, f)) >= 0)
		if (line[n - 1] == '\n') {
			take_line(out, line, (size_t)n);
			if (out->lines == at->lines)
				at->chain = out->chain;
		} else {
			out->torn = (uint64_t)n;
		}
	if (f != NULL)
		fclose(f);
	free(line);
	free(path);
	return err;
}

int
ps_state_keep_trace(const struct ps_state *s, struct fal_diag *diag)
{
	char name[32];
	if (!s->begun)
		return FAL_OK;
	unsigned i = 1;
	do /* the lock is ours: nobody else takes the name */
		snprintf(name, sizeof(name), "trace.%u.jsonl", i);
	while (faccessat(s->folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
	       i++ < 1000000);
	if (renameat(s->folder, "trace.jsonl", s->folder, name) < 0)
		return fal_diag_set(diag, FAL_EIO, "%s/%s: %s", s->dir, name,
				    strerror(errno));
	return FAL_OK;
}

int
ps_state_reserve(const struct ps_state *s, const char *name, uint64_t bytes,
		 struct ps_place *p, struct fal_diag *diag)
{
	*p = (struct ps_place){ .fd = -1, .path = ps_state_path(s, name) };
	if (p->path == NULL || asprintf(&p->temp, "%s.new", p->path) < 0) {
		p->temp = NULL;
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	}
	p->fd = open(p->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (p->fd < 0)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", p->temp, strerror(errno));
	int err = posix_fallocate(p->fd, 0, (off_t)bytes);
	if (err == 0)
		return FAL_OK;
	return fal_diag_set(diag, FAL_EIO, "%s: no room for its %llu bytes: %s", p->path,
			    (unsigned long long)bytes, strerror(err));
}

int
ps_state_put(const struct ps_state *s, struct ps_place *p, const void *bytes, size_t n,
	     struct fal_diag *diag)
{
	const char *at = bytes;
	size_t left = n;
	while (left > 0) {
		const ssize_t k = pwrite(p->fd, at, left, (off_t)(n - left));
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			goto fail;
		at += k;
		left -= (size_t)k;
	}
	if (ftruncate(p->fd, (off_t)n) < 0 || fchmod(p->fd, 0644) < 0 ||
	    fsync(p->fd) < 0 || rename(p->temp, p->path) < 0 || fsync(s->folder) < 0)
		goto fail;
	close(p->fd);
	p->fd = -1;
	return FAL_OK;
fail:
	return fal_diag_set(diag, FAL_EIO, "%s: %s", p->path, strerror(errno));
}

void
ps_place_drop(struct ps_place *p)
{
	if (p->fd >= 0) {
		close(p->fd);
		unlink(p->temp);
	}
	free(p->path);
	free(p->temp);
	*p = (struct ps_place){ .fd = -1 };
}

int
ps_state_open(struct ps_state *s, const char *dir, const struct fal_buf *job_text,
	      struct fal_diag *diag)
{
	*s = (struct ps_state){ .lock = -1, .folder = -1, .dir = fal_strdup(dir) };
	if (s->dir == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", dir, strerror(errno));
	int err = lock_dir(s, diag);
	if (err < 0)
		return err;
	s->folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->folder < 0)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", dir, strerror(errno));
	err = check_job(s, job_text, diag);
	if (err == FAL_OK)
		err = find_update(s, diag);
	return err == FAL_OK ? read_if(s, "result.json", &s->result, &s->done, diag)
			     : err;
}

void
ps_state_close(struct ps_state *s)
{
	if (s->lock >= 0)
		close(s->lock);
	if (s->folder >= 0)
		close(s->folder);
	fal_buf_free(&s->result);
	free(s->dir);
}
