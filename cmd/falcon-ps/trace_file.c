/* Writes the trace to files, and copes with files that refuse lines.
 *
 * A full disk has no room for the gap line either.  So the last lines on the disk are cut
 * off again, and become the first lines of the gap; the gap line takes their room.  Until
 * there is room, the gap line is written again for each further missing line. */
#include "trace_file.h"

#include "base/fault.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/file.h"
#include "trace/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	RECENT_ROUNDS = 100,
	GAP_ROOM = 512,       /* bytes that a gap line may need */
	FLUSH_BYTES = 1 << 20 /* so many bytes are written at once */
};

/* Appends bytes of our own lines; a lack of memory ends the program. */
static void
trace_put(struct fal_buf *out, const void *p, size_t n)
{
	fal_put_bytes(out, p, n);
	if (out->err < 0)
		fal_out_of_memory();
}

/* ---- a file --- */

/* Opens or creates the file, and cuts it off after `size` bytes of whole lines. */
static int
trace_sink_open(struct ps_trace_sink *t, const char *path, uint64_t size,
		struct fal_diag *diag)
{
	struct stat st;
	*t = (struct ps_trace_sink){ .path = path, .size = size };
	const int how = O_WRONLY | O_CREAT | O_CLOEXEC | (size == 0 ? O_TRUNC : 0);
	t->fd = open(path, how, 0666);
	if (t->fd < 0 ||
	    (size > 0 && FAL_TRY(WRITE, -1, ftruncate(t->fd, (off_t)size)) < 0))
		return fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
	t->is_regular = fstat(t->fd, &st) == 0 && S_ISREG(st.st_mode);
	return FAL_OK;
}

/* Writes n bytes after the whole lines.  Returns the number of bytes written; if that is
 * less, errno says why. */
static size_t
trace_sink_write(const struct ps_trace_sink *t, const uint8_t *p, size_t n)
{
	size_t done = 0;
	while (done < n) {
		const ssize_t k =
			t->is_regular
				? FAL_TRY(WRITE, -1,
					  pwrite(t->fd, p + done, n - done,
						 (off_t)(t->size + done)))
				: FAL_TRY(WRITE, -1, write(t->fd, p + done, n - done));
		if (k <= 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break;
		done += (size_t)k;
	}
	return done;
}

/* Notes that n bytes of whole lines were written, and keeps the last of these lines,
 * which may be cut off again. */
static void
trace_sink_note_written(struct ps_trace_sink *t, const uint8_t *p, size_t n)
{
	/* The job line is never cut off: no trace can be read without it. */
	size_t first = 0;
	if (t->size == 0)
		first = (size_t)((uint8_t *)memchr(p, '\n', n) + 1 - p);
	t->size += n;
	trace_put(&t->tail, p + first, n - first);
	size_t at = t->tail.n > GAP_ROOM ? t->tail.n - GAP_ROOM : 0;
	while (at > 0 && t->tail.p[at - 1] != '\n')
		at--;
	if (at > 0)
		memmove(t->tail.p, t->tail.p + at, t->tail.n - at);
	t->tail.n -= at;
}

/* Adds n bytes of lines to the gap. */
static void
trace_gap_add(struct ps_trace_gap *g, const uint8_t *bytes, size_t n)
{
	const char *last = NULL, *p = (const char *)bytes, *end = p + n;
	if (g->lines == 0)
		fal_hash_init(&g->hash);
	fal_hash_update(&g->hash, bytes, n);
	g->bytes += n;
	for (; p < end; p++) {
		last = p;
		p = memchr(p, '\n', (size_t)(end - p));
		g->lines++;
	}
	/* Lines are our own: {"t":SECONDS,…,"h":"LINK"}.  No NUL ends them. */
	if (last != NULL) {
		char first[48];
		snprintf(first, sizeof(first), "%.*s", (int)(end - last), last);
		sscanf(first, "{\"t\":%31[0-9.]", g->t);
		fal_chain_link(last, (size_t)(end - last), g->link);
	}
}

/* Appends the gap line so far. */
static void
trace_gap_put(const struct ps_trace_gap *g, struct fal_buf *out)
{
	struct fal_hash_state hash = g->hash;
	uint8_t digest[FAL_HASH_BYTES];
	char hex[2 * FAL_HASH_BYTES + 1];
	fal_hash_final(&hash, digest);
	fal_hex(digest, sizeof(digest), hex);
	fal_trace_put(out, strtod(g->t, NULL), FAL_EV_GAP,
		      &(struct fal_ev_gap){ g->lines, g->bytes, hex, g->link });
	trace_put(out, "\n", 1);
}

/* Writes the lines that wait, and logs that a gap begins or ends. */
static void
trace_sink_flush(struct ps_trace_sink *t)
{
	struct fal_buf all = { 0 };
	const bool had_gap = t->gap.lines > 0;
	if (t->fd < 0 || t->out.n == 0)
		return;
	if (had_gap) {
		trace_gap_put(&t->gap, &all);
		trace_put(&all, t->out.p, t->out.n);
	}
	const struct fal_buf *what = had_gap ? &all : &t->out;
	const size_t done = trace_sink_write(t, what->p, what->n);
	if (done == what->n) {
		trace_sink_note_written(t, what->p, what->n);
		if (had_gap)
			fal_cli_err(PROG, "%s: is written again: %llu line%s %s missing",
				    t->path, (unsigned long long)t->gap.lines,
				    fal_text_plural(t->gap.lines),
				    t->gap.lines == 1 ? "is" : "are");
		t->gap = (struct ps_trace_gap){ 0 };
	} else if (!t->is_regular) { /* a pipe without reader, or a full device */
		fal_cli_err(PROG, "%s: %s: no more is written to it", t->path,
			    strerror(errno));
		close(t->fd);
		t->fd = -1;
	} else {
		/* The file took only `done` bytes: adds the rest to the gap, and writes
		 * the gap line. */
		struct fal_buf line = { 0 };
		size_t lines = 0;
		if (!had_gap) {
			fal_cli_err(PROG,
				    "%s: %s: lines are missing from here on; the job "
				    "goes on",
				    t->path, strerror(errno));
			const uint8_t *nl = memrchr(t->out.p, '\n', done);
			lines = nl != NULL ? (size_t)(nl + 1 - t->out.p) : 0;
			if (lines > 0)
				trace_sink_note_written(t, t->out.p, lines);
			t->size -= t->tail.n;
			trace_gap_add(&t->gap, t->tail.p, t->tail.n);
			fal_buf_clear(&t->tail);
		}
		trace_gap_add(&t->gap, t->out.p + lines, t->out.n - lines);
		trace_gap_put(&t->gap, &line);
		/* Cuts off the part of a line that was written; if that fails, the next
		 * lines try again. */
		bool cut = FAL_TRY(WRITE, -1, ftruncate(t->fd, (off_t)t->size)) == 0;
		if (cut && trace_sink_write(t, line.p, line.n) < line.n)
			cut = FAL_TRY(WRITE, -1, ftruncate(t->fd, (off_t)t->size)) == 0;
		(void)cut;
		fal_buf_free(&line);
	}
	fal_buf_free(&all);
	fal_buf_clear(&t->out);
}

/* ---- the files, and the lines in memory --- */

int
ps_trace_file_create(struct ps_trace_file *f, const char *path, struct fal_diag *diag)
{
	int err = trace_sink_open(&f->sink[f->sinks], path, 0, diag);
	f->sinks += err == FAL_OK;
	return err;
}

int
ps_trace_file_append(struct ps_trace_file *f, const char *path, struct ps_old_trace *was,
		     struct fal_diag *diag)
{
	int err = trace_sink_open(&f->sink[f->sinks], path, was->bytes, diag);
	f->sinks += err == FAL_OK;
	f->lines = was->lines;
	f->chain = was->chain;
	f->has_job_line = true;
	f->evals = was->evals;
	was->evals = (struct fal_buf){ 0 };
	return err;
}

int
ps_trace_file_copy(struct ps_trace_file *f, const char *from, const char *path,
		   struct fal_diag *diag)
{
	struct fal_buf all = { 0 };
	int err = fal_cli_read(from, SIZE_MAX, &all, diag);
	if (err == FAL_OK)
		err = ps_trace_file_create(f, path, diag);
	if (err == FAL_OK) {
		struct ps_trace_sink *t = &f->sink[f->sinks - 1];
		t->out = all;
		trace_sink_flush(t);
		all = t->out;
		t->out = (struct fal_buf){ 0 };
	}
	fal_buf_free(&all);
	return err;
}

/* Lines are our own: {"t":SECONDS,"ev":"NAME",… */
static struct ps_trace_line
trace_line_parse(char *text, size_t n)
{
	const char *ev = memmem(text, n, "\"ev\":\"", 6);
	return (struct ps_trace_line){ text, n, ev != NULL ? ev + 6 : "" };
}

static bool
trace_line_is(const struct ps_trace_line *l, const char *ev)
{
	const size_t n = strlen(ev);
	return strncmp(l->ev, ev, n) == 0 && l->ev[n] == '"';
}

/* Drops the kept line of this event about the line's worker. */
static void
trace_file_drop_kept(struct ps_trace_file *f, const struct ps_trace_line *l,
		     const char *ev)
{
	/* "worker":"NAME","id":N, */
	const char *from = memmem(l->text, l->n, "\"worker\":", 9), *to = NULL;
	if (from != NULL)
		to = memmem(from, (size_t)(l->text + l->n - from), "\"id\":", 5);
	if (to != NULL)
		to = memchr(to, ',', (size_t)(l->text + l->n - to));
	if (to == NULL)
		return;
	char *what = fal_xprintf("\"ev\":\"%s\",%.*s", ev, (int)(to + 1 - from), from);
	uint8_t *at =
		f->kept.n > 0 ? memmem(f->kept.p, f->kept.n, what, strlen(what)) : NULL;
	free(what);
	if (at == NULL)
		return;
	uint8_t *end = f->kept.p + f->kept.n;
	uint8_t *before = memrchr(f->kept.p, '\n', (size_t)(at - f->kept.p));
	uint8_t *line = before != NULL ? before + 1 : f->kept.p;
	uint8_t *next = (uint8_t *)memchr(at, '\n', (size_t)(end - at)) + 1;
	memmove(line, next, (size_t)(end - next));
	f->kept.n -= (size_t)(next - line);
}

/* Takes the oldest line out of the queue.  Keeps the line if observers need it, however
 * old it is. */
static void
trace_file_retire_line(struct ps_trace_file *f)
{
	static const char *const kept[] = { "job",    "join",    "leave",   "policy",
					    "hold",   "eval",    "done",    "failed",
					    "refuse", "suspect", "restart", "place",
					    "group",  "trainer" };
	struct ps_trace_line *l = &f->recent[f->head++];
	f->n--;
	if (trace_line_is(l, "back") || trace_line_is(l, "leave"))
		trace_file_drop_kept(f, l, "suspect");
	if (trace_line_is(l, "group") || trace_line_is(l, "leave"))
		trace_file_drop_kept(f, l, "group");
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (trace_line_is(l, kept[i]))
			trace_put(&f->kept, l->text, l->n);
	f->rounds -= trace_line_is(l, "ledger");
	free(l->text);
}

const struct ps_trace_line *
ps_trace_file_add(struct ps_trace_file *f, const char *line, size_t n)
{
	struct fal_buf b = { 0 };
	if (f->head > f->n) {
		memmove(f->recent, f->recent + f->head, f->n * sizeof(*f->recent));
		f->head = 0;
	}
	FAL_XGROW(f->recent, f->cap, f->head + f->n + 1);
	/* The files have the job line of a job that resumes: only observers get this
	 * one. */
	const bool is_in_files = f->has_job_line && f->n == 0 && f->kept.n == 0;
	struct fal_chain first = { "" };
	fal_chain_put(is_in_files ? &first : &f->chain, line, n, &b);
	if (b.err < 0)
		fal_out_of_memory();
	const size_t at = f->head + f->n++;
	f->recent[at] = trace_line_parse((char *)b.p, b.n);
	if (is_in_files) {
		/* The evaluations of earlier starts come after the job line. */
		const char *p = (const char *)f->evals.p, *end = p + f->evals.n;
		while (p < end) {
			const char *nl = memchr(p, '\n', (size_t)(end - p));
			const size_t len = (size_t)(nl + 1 - p);
			char *copy = fal_xcalloc(len, 1);
			memcpy(copy, p, len);
			FAL_XGROW(f->recent, f->cap, f->head + f->n + 1);
			f->recent[f->head + f->n++] = trace_line_parse(copy, len);
			p += len;
		}
		fal_buf_free(&f->evals);
	}
	struct ps_trace_line *l = &f->recent[at];
	f->lines += !is_in_files;
	for (int i = 0; i < f->sinks && !is_in_files; i++) {
		struct ps_trace_sink *t = &f->sink[i];
		if (t->fd >= 0)
			trace_put(&t->out, l->text, l->n);
		if (t->out.n >= FLUSH_BYTES)
			trace_sink_flush(t);
	}
	/* A trace cannot be read without its first line. */
	if (f->lines == 1 || trace_line_is(l, "done") || trace_line_is(l, "failed"))
		ps_trace_file_flush(f);
	f->rounds += trace_line_is(l, "ledger");
	while (f->rounds > RECENT_ROUNDS)
		trace_file_retire_line(f);
	return l;
}

void
ps_trace_file_history(const struct ps_trace_file *f, struct fal_buf *out)
{
	fal_put_bytes(out, f->kept.p, f->kept.n);
	for (size_t i = 0; i < f->n; i++)
		fal_put_bytes(out, f->recent[f->head + i].text, f->recent[f->head + i].n);
}

void
ps_trace_file_flush(struct ps_trace_file *f)
{
	for (int i = 0; i < f->sinks; i++)
		trace_sink_flush(&f->sink[i]);
}

void
ps_trace_file_sync(struct ps_trace_file *f)
{
	ps_trace_file_flush(f);
	for (int i = 0; i < f->sinks; i++) {
		const struct ps_trace_sink *t = &f->sink[i];
		/* A pipe has nothing to sync. */
		if (t->is_regular && t->fd >= 0 && FAL_TRY(FSYNC, -1, fsync(t->fd)) < 0)
			fal_cli_err(PROG, "%s: %s: may not outlive a loss of power",
				    t->path, strerror(errno));
	}
}

void
ps_trace_file_close(struct ps_trace_file *f)
{
	ps_trace_file_flush(f);
	for (int i = 0; i < f->sinks; i++) {
		if (f->sink[i].fd >= 0)
			close(f->sink[i].fd);
		fal_buf_free(&f->sink[i].out);
		fal_buf_free(&f->sink[i].tail);
	}
	while (f->n > 0)
		free(f->recent[f->head + --f->n].text);
	free(f->recent);
	fal_buf_free(&f->kept);
	fal_buf_free(&f->evals);
	*f = (struct ps_trace_file){ 0 };
}
