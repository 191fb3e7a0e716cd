/* The state folder. */
#include "state_dir.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/parse.h"
#include "cli/file.h"
#include "crypto/hash.h"
#include "run/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 20, JOURNAL_MAX = 64 << 20 }; /* bytes */

/* Returns FAL_EIO, with a diagnosis of errno for the path. */
static int
fail_errno(const char *path, struct fal_diag *diag)
{
	return fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
}

char *
ps_state_path(const struct ps_state *s, const char *name)
{
	return fal_xprintf("%s/%s", s->dir, name);
}

/* Reads DIR/name, if it exists. */
static int
state_read_file(const struct ps_state *s, const char *name, struct fal_buf *out,
		bool *there, struct fal_diag *diag)
{
	char *path = ps_state_path(s, name);
	int err = fal_cli_read(path, TEXT_MAX, out, diag);
	*there = err == FAL_OK;
	free(path);
	if (err != FAL_ENOENT)
		return err;
	diag->text[0] = '\0';
	return FAL_OK;
}

/* Returns the number of epochs that are done, of the job's earlier `had` epochs. */
static uint64_t
count_epochs_done(const struct ps_state *s, const struct fal_files *job, uint64_t had)
{
	const struct fal_grid grid = fal_job_grid(&job->job, job->train.n);
	uint64_t *clock = NULL, done = 0;
	size_t n = 0;
	if (fal_snapshot_list(s->folder, &clock, &n, NULL) == FAL_OK && n > 0)
		done = clock[0] / fal_grid_epoch_clocks(&grid);
	free(clock);
	return s->is_done ? had : done;
}

/* The comparison of a job with the job of the state folder. */
struct job_comparison {
	struct ps_state *s;
	const struct fal_files *job;
	const struct fal_opt_list *accept;
	bool begins_anew; /* at its first clock, if the job is not done */
	struct fal_diag *diag;
};

bool
ps_accepts_kind(const struct fal_opt_list *accept, const char *kind)
{
	for (size_t i = 0; i < accept->n; i++)
		if (strcmp(accept->v[i], kind) == 0)
			return true;
	return false;
}

/* A key has another value than in the state folder: may the job go on?  A callback of
 * fal_job_diff. */
static int
compare_key(void *arg, const char *key, const char *was, const char *is)
{
	struct job_comparison *c = arg;
	const char *dir = c->s->dir, *file,
		   *kind = fal_files_hash_kind(c->job, key, &file);
	const uint32_t epochs = c->job->job.epochs;
	uint64_t had;
	if (fal_files_is_path(key) &&
	    (key[0] == 'm' || c->job->manifest.train.chunks > 0))
		return FAL_OK; /* the file's hash is compared instead */
	c->s->text_differs = true;
	if (strcmp(key, "job.epochs") == 0 && was != NULL &&
	    fal_parse_u64(was, 1, UINT32_MAX, &had) == FAL_OK) {
		c->s->epochs_before = (uint32_t)had;
		if (had < epochs)
			return FAL_OK;
		return fal_diag_set(c->diag, FAL_EINVAL,
				    "%s: job.epochs is %u, but the job there has %s, of "
				    "which %" PRIu64 " are done",
				    dir, epochs, was,
				    count_epochs_done(c->s, c->job, had));
	}
	if (was == NULL && (strcmp(key, "model.file-sha256") == 0 ||
			    strcmp(key, "data.train-hash") == 0))
		return fal_diag_set(c->diag, FAL_EINVAL,
				    "%s: holds the state of an earlier Falcon, which "
				    "kept no hash of net and data",
				    dir);
	was = was != NULL ? was : "none";
	is = is != NULL ? is : "none";
	if (kind == NULL)
		return fal_diag_set(
			c->diag, FAL_EINVAL,
			"%s: holds the state of another job: %s is %s, not %s", dir, key,
			was, is);
	if ((c->begins_anew && (!c->s->is_done || c->s->epochs_before > 0)) ||
	    ps_accepts_kind(c->accept, kind))
		return FAL_OK;
	struct fal_snapshot_found found;
	struct fal_diag why;
	int err = fal_snapshot_find(c->s->folder, c->job, &found, &why);
	fal_snap_manifest_free(&found.is);
	if (err == FAL_ESTATE)
		return fal_diag_set(c->diag, FAL_EINVAL,
				    "%s: differs from the file that %s began with: %s",
				    file, dir, why.text);
	return fal_diag_set(c->diag, FAL_EINVAL,
			    "%s: %s is %s, but %s was begun with %s: --accept-change %s "
			    "goes on with it",
			    file, key, is, dir, was, kind);
}

static int
state_write_text(const struct ps_state *s, const struct fal_buf *text,
		 struct fal_diag *diag)
{
	char *path = ps_state_path(s, "job");
	int err = fal_cli_write(path, text->p, text->n, 0666, diag);
	free(path);
	return err;
}

int
ps_state_write_job(struct ps_state *s, const struct fal_files *job, struct fal_diag *diag)
{
	/* An unchanged job is not written again, so a full disk does not stop the job. */
	if (!s->text_differs)
		return FAL_OK;
	/* The result is removed before the text is written: so no result is ever
	 * beside a text of another job. */
	if (s->is_done && (unlinkat(s->folder, "result.json", 0) < 0 ||
			   FAL_TRY(FSYNC, -1, fsync(s->folder)) < 0))
		return fal_diag_set(diag, FAL_EIO, "%s/result.json: %s", s->dir,
				    strerror(errno));
	const int err = state_write_text(s, &job->job_text, diag);
	s->text_differs = err < 0;
	return err;
}

/* Checks that the job is the folder's, or may go on in its place. */
static int
state_check_job(struct ps_state *s, struct fal_files *job,
		const struct fal_opt_list *accept, bool begins_anew,
		struct fal_diag *diag)
{
	struct fal_buf old = { 0 };
	bool there;
	struct job_comparison c = { s, job, accept, begins_anew, diag };
	int err = state_read_file(s, "job", &old, &there, diag);
	if (err == FAL_OK && !there)
		err = state_write_text(s, &job->job_text, diag);
	if (err < 0 || !there)
		return err;
	err = fal_job_diff(&old, &job->job_text, compare_key, &c);
	if (err < 0 && diag->text[0] == '\0')
		fal_diag_set(diag, err, "%s/job: is not the text of a job", s->dir);
	if (err >= 0 && !s->text_differs) {
		const struct fal_buf own = job->job_text;
		job->job_text = old;
		old = own;
		err = fal_files_hash(job);
	}
	fal_buf_free(&old);
	return err < 0 ? err : FAL_OK;
}

/* A reader of the trace's lines; without a trace there are none. */
struct trace_lines {
	char *path, *line; /* with its newline if it has one */
	size_t cap, n;     /* n: bytes of the line */
	FILE *f;
	int err; /* FAL_EIO, with a diagnosis */
};

static struct trace_lines
trace_lines_open(const struct ps_state *s, struct fal_diag *diag)
{
	struct trace_lines t = { .path = ps_state_path(s, "trace.jsonl") };
	t.f = fopen(t.path, "re");
	if (t.f == NULL && errno != ENOENT)
		t.err = fail_errno(t.path, diag);
	return t;
}

/* Reads the next line; false: the end, or an error. */
static bool
trace_lines_next(struct trace_lines *t, struct fal_diag *diag)
{
	if (t->f == NULL)
		return false;
	const ssize_t n = FAL_TRY(READ, -1, getline(&t->line, &t->cap, t->f));
	if (n < 0 && !feof(t->f))
		t->err = fail_errno(t->path, diag);
	t->n = n > 0 ? (size_t)n : 0;
	return n > 0;
}

static int
trace_lines_close(struct trace_lines *t)
{
	if (t->f != NULL)
		fclose(t->f);
	free(t->line);
	free(t->path);
	return t->err;
}

int
ps_state_count_start(struct ps_state *s, struct fal_diag *diag)
{
	struct fal_buf text = { 0 };
	uint64_t was = 0;
	bool there = false;
	char *path = ps_state_path(s, "incarnation"), *number;
	int err = state_read_file(s, "incarnation", &text, &there, diag);
	if (err == FAL_OK && there) {
		if (text.n > 0)
			text.p[text.n - 1] = '\0'; /* its newline */
		if (text.n == 0 ||
		    fal_parse_u64((const char *)text.p, 0, UINT32_MAX - 1, &was) < 0)
			err = fal_diag_set(diag, FAL_EFORMAT,
					   "%s: is not a number: how many lines "
					   "\"restart\" trace.jsonl has",
					   path);
	}
	s->incarnation = (uint32_t)was + (there || s->has_trained);
	number = fal_xprintf("%u\n", s->incarnation);
	if (err == FAL_OK)
		err = fal_cli_write(path, number, strlen(number), 0666, diag);
	fal_buf_free(&text);
	free(number);
	free(path);
	return err;
}

/* Finds the number after "KEY": in a line that this program wrote. */
static bool
find_number(const char *line, const char *key, unsigned long long *out)
{
	const char *at = strstr(line, key);
	return at != NULL && sscanf(at + strlen(key), "%llu", out) == 1;
}

/* Drops the evaluations that stand after the first `lines` lines. */
static void
old_trace_drop_evals(struct ps_old_trace *t, uint64_t lines)
{
	while (t->n_evals > 0 && t->eval[t->n_evals - 1].line > lines)
		t->n_evals--;
	t->evals.n = t->n_evals > 0 ? t->eval[t->n_evals - 1].end : 0;
}

int
ps_state_read_trace(const struct ps_state *s, struct ps_old_trace *t,
		    struct ps_trace_position *at, struct fal_diag *diag)
{
	struct trace_lines l = trace_lines_open(s, diag);
	double first = -1; /* seconds at which the first worker joined */
	*t = (struct ps_old_trace){ 0 };
	while (trace_lines_next(&l, diag)) {
		struct fal_chain chain = t->chain;
		unsigned long long lines = 1;
		/* Lines that the snapshot does not know may be torn. */
		const bool is_known = t->lines < at->lines,
			   is_whole = t->torn == 0 && l.line[l.n - 1] == '\n',
			   is_linked =
				   is_whole && fal_chain_take(&chain, l.line, l.n - 1),
			   is_gap = is_whole &&
				    strstr(l.line, "\"ev\":\"gap\"") != NULL &&
				    chain.link[0] != '\0' &&
				    find_number(l.line, "\"lines\":", &lines);
		if (!is_whole || (!is_linked && !is_gap && !is_known)) {
			t->torn += l.n;
			continue;
		}
		if (!is_linked && !is_gap && t->changed == 0)
			t->changed = t->lines + 1;
		/* Lines are our own: {"t":SECONDS,"ev":"NAME",… */
		unsigned long long v;
		sscanf(l.line, "{\"t\":%lf", &t->t);
		t->has_job_line |= strstr(l.line, "\"ev\":\"job\"") != NULL;
		if (strstr(l.line, "\"ev\":\"update\"") != NULL) {
			if (find_number(l.line, "\"clock\":", &v))
				t->clocks = v + 1;
		} else if (strstr(l.line, "\"ev\":\"eval\"") != NULL) {
			fal_put_bytes(&t->evals, l.line, l.n);
			FAL_XGROW(t->eval, t->cap, t->n_evals + 1);
			t->eval[t->n_evals++] =
				(struct ps_eval_line){ t->lines + 1, t->evals.n };
		} else if (strstr(l.line, "\"ev\":\"restart\"") != NULL) {
			if (find_number(l.line, "\"lines\":", &v))
				old_trace_drop_evals(t, v);
		}
		t->bytes += l.n;
		if (first < 0 && strstr(l.line, "\"ev\":\"join\"") != NULL)
			first = t->t;
		t->chain = chain;
		t->lines += lines;
		if (t->lines == at->lines)
			at->chain = chain;
	}
	/* The lines of a changed trace may be unreadable: its evaluations do not count.
	 */
	old_trace_drop_evals(t, t->changed == 0 ? at->lines : 0);
	t->worked = first >= 0 ? t->t - first : 0;
	const int err = trace_lines_close(&l);
	return err == FAL_OK && t->evals.err < 0
		       ? fal_diag_set(diag, FAL_ENOMEM, "%s/trace.jsonl: out of memory",
				      s->dir)
		       : err;
}

void
ps_old_trace_free(struct ps_old_trace *t)
{
	fal_buf_free(&t->evals);
	free(t->eval);
	*t = (struct ps_old_trace){ 0 };
}

int
ps_state_rename_trace(const struct ps_state *s, struct fal_diag *diag)
{
	char name[32];
	unsigned i = 1;
	if (!s->has_trained)
		return FAL_OK;
	do /* the lock is ours: no other process takes the name */
		snprintf(name, sizeof(name), "trace.%u.jsonl", i);
	while (faccessat(s->folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
	       i++ < 1000000);
	if (FAL_TRY(RENAME, -1, renameat(s->folder, "trace.jsonl", s->folder, name)) <
		    0 &&
	    errno != ENOENT)
		return fal_diag_set(diag, FAL_EIO, "%s/%s: %s", s->dir, name,
				    strerror(errno));
	return FAL_OK;
}

int
ps_result_file_reserve(const struct ps_state *s, const char *name, uint64_t bytes,
		       struct ps_result_file *p, struct fal_diag *diag)
{
	*p = (struct ps_result_file){ .fd = -1, .path = ps_state_path(s, name) };
	p->temp = fal_xprintf("%s.new", p->path);
	struct stat old;
	const bool there = stat(p->path, &old) == 0;
	if (there && !S_ISREG(old.st_mode))
		return fal_diag_set(diag, FAL_EEXIST, "%s: is not a file", p->path);
	/* A file that a crash left may have another mode. */
	if (unlink(p->temp) == 0 || errno == ENOENT)
		p->fd = open(p->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (p->fd < 0 || (there && fchmod(p->fd, old.st_mode & 0666) < 0))
		return fail_errno(p->temp, diag);
	int err = FAL_TRY(WRITE, ENOSPC, posix_fallocate(p->fd, 0, (off_t)bytes));
	if (err == 0)
		return FAL_OK;
	return fal_diag_set(diag, FAL_EIO, "%s: no room for its %llu bytes: %s", p->path,
			    (unsigned long long)bytes, strerror(err));
}

int
ps_result_file_write(struct ps_result_file *p, const void *bytes, size_t n,
		     struct fal_diag *diag)
{
	const char *at = bytes;
	/* The folder was removed while the job ran: makes it and the file again. */
	if (p->written == 0 && access(p->temp, F_OK) < 0) {
		char *slash = strrchr(p->path, '/');
		*slash = '\0';
		if (mkdir(p->path, 0777) == 0) /* else open fails, and sets errno */
			fal_cli_err(PROG,
				    "%s: was removed while the job ran; the result is "
				    "put there",
				    p->path);
		*slash = '/';
		close(p->fd);
		p->fd = open(p->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (p->fd < 0)
			return fail_errno(p->path, diag);
	}
	while (n > 0) {
		const ssize_t k =
			FAL_TRY(WRITE, -1, pwrite(p->fd, at, n, (off_t)p->written));
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return fail_errno(p->path, diag);
		at += k;
		n -= (size_t)k;
		p->written += (uint64_t)k;
	}
	return FAL_OK;
}

int
ps_result_file_commit(const struct ps_state *s, struct ps_result_file *p,
		      struct fal_diag *diag)
{
	if (FAL_TRY(WRITE, -1, ftruncate(p->fd, (off_t)p->written)) < 0 ||
	    FAL_TRY(FSYNC, -1, fsync(p->fd)) < 0 ||
	    FAL_TRY(RENAME, -1, rename(p->temp, p->path)) < 0 ||
	    FAL_TRY(FSYNC, -1, fsync(s->folder)) < 0)
		return fail_errno(p->path, diag);
	close(p->fd);
	p->fd = -1;
	return FAL_OK;
}

void
ps_result_file_drop(struct ps_result_file *p)
{
	if (p->fd >= 0) {
		close(p->fd);
		unlink(p->temp);
	}
	free(p->path);
	free(p->temp);
	*p = (struct ps_result_file){ .fd = -1 };
}

int
ps_state_open(struct ps_state *s, const char *dir, struct fal_files *job,
	      const struct fal_opt_list *accept, bool begins_anew, struct fal_diag *diag)
{
	static const char failed[] = ",\"failed\":"; /* our own line */
	*s = (struct ps_state){ .lock = -1, .folder = -1, .dir = fal_xstrdup(dir) };
	if (mkdir(dir, 0777) < 0 && errno != EEXIST)
		return fail_errno(dir, diag);
	char *lock = ps_state_path(s, "lock");
	s->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->lock < 0)
		fail_errno(lock, diag);
	free(lock);
	if (s->lock < 0)
		return FAL_EIO;
	if (flock(s->lock, LOCK_EX | LOCK_NB) < 0)
		return fal_diag_set(diag, FAL_EEXIST, "%s: another falcon-ps serves it",
				    dir);
	s->folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->folder < 0)
		return fail_errno(dir, diag);
	int err = state_read_file(s, "result.json", &s->result, &s->is_done, diag);
	if (err == FAL_OK)
		err = state_check_job(s, job, accept, begins_anew, diag);
	if (err < 0)
		return err;
	s->has_failed = s->is_done && memmem(s->result.p, s->result.n, failed,
					     sizeof(failed) - 1) != NULL;
	/* A model was trained here if the trace has an update, or is no trace at all. */
	struct trace_lines l = trace_lines_open(s, diag);
	while (!s->has_trained && trace_lines_next(&l, diag))
		s->has_trained = l.line[0] != '{' ||
				 strstr(l.line, "\"ev\":\"update\"") != NULL ||
				 strstr(l.line, "\"ev\":\"version\"") != NULL;
	return trace_lines_close(&l);
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

/* ---- the policy journal --- */

int
ps_journal_open(struct ps_journal *j, char *path,
		int (*on_line)(void *arg, const struct fal_journal_line *l), void *arg,
		struct fal_diag *diag)
{
	struct fal_buf text = { 0 };
	*j = (struct ps_journal){ .fd = -1, .path = path };
	j->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (j->fd < 0)
		return fail_errno(path, diag);
	/* The file's name has to outlive a loss of power, too. */
	char *copy = fal_xstrdup(path);
	const int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int err = FAL_OK;
	if (folder < 0 || FAL_TRY(FSYNC, -1, fsync(folder)) < 0)
		err = fail_errno(path, diag);
	if (folder >= 0)
		close(folder);
	free(copy);
	if (err == FAL_OK)
		err = fal_cli_read(path, JOURNAL_MAX, &text, diag);
	struct fal_journal_reading r = {
		.name = path, .on_line = on_line, .arg = arg, .chain = &j->chain
	};
	if (err == FAL_OK)
		err = fal_journal_read(&r, &text, diag);
	/* A crash may leave other bytes in place of the last line. */
	if (err == FAL_EFORMAT && text.n > r.whole &&
	    memchr(text.p + r.whole, '\n', text.n - r.whole) == text.p + text.n - 1)
		err = FAL_OK;
	/* A torn line is a part of a line, never a whole one with another newline. */
	const size_t left = text.n - r.whole;
	struct fal_chain chain = j->chain;
	r.line++;
	if (err == FAL_OK && left > 1 &&
	    fal_chain_take(&chain, (const char *)text.p + r.whole, left - 1))
		err = fal_journal_refuse(&r, diag);
	if (err == FAL_OK && left > 0 &&
	    FAL_TRY(WRITE, -1, ftruncate(j->fd, (off_t)r.whole)) < 0)
		err = fail_errno(path, diag);
	if (err == FAL_OK)
		j->torn = left;
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
