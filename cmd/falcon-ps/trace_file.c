/* Writing, and not being able to.
 *
 * A full disk does not take the gap line either: the last lines that it took are cut off
 * again, and become the first of the gap.  In their room the gap line is written, anew
 * with each line that is missing, until there is room again. */
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
	TAPE_TAIL = 512,    /* bytes that a gap line has room in */
	TAPE_MUCH = 1 << 20 /* bytes that are not kept waiting */
};

/* Appends as fal_put_bytes does: lines are our own, and a lack of memory ends the
 * program. */
static void
put_all(struct fal_buf *out, const void *p, size_t n)
{
	fal_put_bytes(out, p, n);
	if (out->err < 0)
		fal_out_of_memory();
}

/* ---- a file ------------------------------------------------------------------------ */

/* Makes `path`, borrowed until ps_record_close, and cuts it off after `size` bytes, which
 * are whole lines. */
static int
ps_tape_open(struct ps_tape *t, const char *path, uint64_t size, struct fal_diag *diag)
{
	struct stat st;
	*t = (struct ps_tape){ .path = path, .size = size };
	const int how = O_WRONLY | O_CREAT | O_CLOEXEC | (size == 0 ? O_TRUNC : 0);
	t->fd = open(path, how, 0666);
	if (t->fd < 0 ||
	    (size > 0 && FAL_TRY(WRITE, -1, ftruncate(t->fd, (off_t)size)) < 0))
		return fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
	t->seeks = fstat(t->fd, &st) == 0 && S_ISREG(st.st_mode);
	return FAL_OK;
}

/* Writes behind the whole lines; returns the bytes that were taken.  Not all: errno says
 * why. */
static size_t
put(const struct ps_tape *t, const uint8_t *p, size_t n)
{
	size_t done = 0;
	while (done < n) {
		const ssize_t k =
			t->seeks ? FAL_TRY(WRITE, -1,
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

/* n bytes were written, whole lines: their end is what can be taken back. */
static void
remember(struct ps_tape *t, const uint8_t *p, size_t n)
{
	/* The job line stays: without that line nothing can be read. */
	size_t first = 0;
	if (t->size == 0)
		first = (size_t)((uint8_t *)memchr(p, '\n', n) + 1 - p);
	t->size += n;
	put_all(&t->tail, p + first, n - first);
	size_t at = t->tail.n > TAPE_TAIL ? t->tail.n - TAPE_TAIL : 0;
	while (at > 0 && t->tail.p[at - 1] != '\n')
		at--;
	if (at > 0)
		memmove(t->tail.p, t->tail.p + at, t->tail.n - at);
	t->tail.n -= at;
}

/* Counts n bytes of lines as missing. */
static void
miss(struct ps_gap *g, const uint8_t *bytes, size_t n)
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
	/* Lines are our own: {"t":SECONDS,…,"h":"LINK"}.  Behind them there need be no
	 * NUL. */
	if (last != NULL) {
		char first[48];
		snprintf(first, sizeof(first), "%.*s", (int)(end - last), last);
		sscanf(first, "{\"t\":%31[0-9.]", g->t);
		fal_chain_link(last, (size_t)(end - last), g->link);
	}
}

/* The gap line so far, in place of what `out` has. */
static void
put_gap(const struct ps_gap *g, struct fal_buf *out)
{
	struct fal_hash_state hash = g->hash;
	uint8_t digest[FAL_HASH_BYTES];
	char hex[2 * FAL_HASH_BYTES + 1];
	fal_hash_final(&hash, digest);
	fal_hex(digest, sizeof(digest), hex);
	fal_trace_put(out, strtod(g->t, NULL), FAL_EV_GAP,
		      &(struct fal_ev_gap){ g->lines, g->bytes, hex, g->link });
	put_all(out, "\n", 1);
}

/* The file took `done` bytes: the rest becomes a part of the gap, and the gap line says
 * so. */
static void
fall_back(struct ps_tape *t, size_t done)
{
	struct fal_buf line = { 0 };
	size_t lines = 0;
	if (t->gap.lines == 0) {
		const uint8_t *nl = memrchr(t->out.p, '\n', done);
		lines = nl != NULL ? (size_t)(nl + 1 - t->out.p) : 0;
		if (lines > 0)
			remember(t, t->out.p, lines);
		t->size -= t->tail.n;
		miss(&t->gap, t->tail.p, t->tail.n);
		fal_buf_clear(&t->tail);
	}
	miss(&t->gap, t->out.p + lines, t->out.n - lines);
	put_gap(&t->gap, &line);
	/* Cuts off the rest of a line that could not be written; where that fails, the
	 * next lines try again. */
	bool cut = FAL_TRY(WRITE, -1, ftruncate(t->fd, (off_t)t->size)) == 0;
	if (cut && put(t, line.p, line.n) < line.n)
		cut = FAL_TRY(WRITE, -1, ftruncate(t->fd, (off_t)t->size)) == 0;
	(void)cut;
	fal_buf_free(&line);
}

/* Writes what there is, and says on stderr that a gap begins or is over. */
static void
ps_tape_flush(struct ps_tape *t)
{
	struct fal_buf all = { 0 };
	const bool was = t->gap.lines > 0;
	if (t->fd < 0 || t->out.n == 0)
		return;
	if (was) {
		put_gap(&t->gap, &all);
		put_all(&all, t->out.p, t->out.n);
	}
	const struct fal_buf *what = was ? &all : &t->out;
	const size_t done = put(t, what->p, what->n);
	if (done == what->n) {
		remember(t, what->p, what->n);
		if (was)
			fal_cli_err(PROG, "%s: is written again: %llu line%s %s missing",
				    t->path, (unsigned long long)t->gap.lines,
				    fal_text_s(t->gap.lines),
				    t->gap.lines == 1 ? "is" : "are");
		t->gap = (struct ps_gap){ 0 };
	} else if (!t->seeks) { /* a pipe that is gone, or a full device */
		fal_cli_err(PROG, "%s: %s: no more is written to it", t->path,
			    strerror(errno));
		close(t->fd);
		t->fd = -1;
	} else {
		if (!was)
			fal_cli_err(PROG,
				    "%s: %s: lines are missing from here on; the job "
				    "goes on",
				    t->path, strerror(errno));
		fall_back(t, done);
	}
	fal_buf_free(&all);
	fal_buf_clear(&t->out);
}

/* ---- the files, and what is in memory ---------------------------------------------- */

int
ps_record_file(struct ps_record *r, const char *path, struct fal_diag *diag)
{
	int err = ps_tape_open(&r->file[r->files], path, 0, diag);
	r->files += err == FAL_OK;
	return err;
}

int
ps_record_append(struct ps_record *r, const char *path, struct ps_trace *was,
		 struct fal_diag *diag)
{
	int err = ps_tape_open(&r->file[r->files], path, was->bytes, diag);
	r->files += err == FAL_OK;
	r->lines = was->lines;
	r->chain = was->chain;
	r->goes_on = true;
	r->evals = was->evals;
	was->evals = (struct fal_buf){ 0 };
	return err;
}

int
ps_record_copy(struct ps_record *r, const char *from, const char *path,
	       struct fal_diag *diag)
{
	struct fal_buf all = { 0 };
	int err = fal_cli_read(from, SIZE_MAX, &all, diag);
	if (err == FAL_OK)
		err = ps_record_file(r, path, diag);
	if (err == FAL_OK) {
		struct ps_tape *t = &r->file[r->files - 1];
		t->out = all;
		ps_tape_flush(t);
		all = t->out;
		t->out = (struct fal_buf){ 0 };
	}
	fal_buf_free(&all);
	return err;
}

/* Lines are our own: {"t":SECONDS,"ev":"NAME",… */
static struct ps_line
line_of(char *text, size_t n)
{
	const char *ev = memmem(text, n, "\"ev\":\"", 6);
	return (struct ps_line){ text, n, ev != NULL ? ev + 6 : "" };
}

static bool
is_event(const struct ps_line *l, const char *ev)
{
	const size_t n = strlen(ev);
	return strncmp(l->ev, ev, n) == 0 && l->ev[n] == '"';
}

static bool
is_lasting(const struct ps_line *l)
{
	static const char *const names[] = { "job",    "join",    "leave",   "policy",
					     "hold",   "eval",    "done",    "failed",
					     "refuse", "suspect", "restart", "place",
					     "group",  "trainer" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is_event(l, names[i]))
			return true;
	return false;
}

/* Drops the kept line of this event about the line's worker. */
static void
forget(struct ps_record *r, const struct ps_line *l, const char *ev)
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
		r->kept.n > 0 ? memmem(r->kept.p, r->kept.n, what, strlen(what)) : NULL;
	free(what);
	if (at == NULL)
		return;
	uint8_t *end = r->kept.p + r->kept.n;
	uint8_t *before = memrchr(r->kept.p, '\n', (size_t)(at - r->kept.p));
	uint8_t *line = before != NULL ? before + 1 : r->kept.p;
	uint8_t *next = (uint8_t *)memchr(at, '\n', (size_t)(end - at)) + 1;
	memmove(line, next, (size_t)(end - next));
	r->kept.n -= (size_t)(next - line);
}

/* Forgets the oldest line, or keeps it for good. */
static void
retire(struct ps_record *r)
{
	struct ps_line *l = &r->recent[r->head++];
	r->n--;
	if (is_event(l, "back") || is_event(l, "leave"))
		forget(r, l, "suspect");
	if (is_event(l, "group") || is_event(l, "leave"))
		forget(r, l, "group");
	if (is_lasting(l))
		put_all(&r->kept, l->text, l->n);
	r->rounds -= is_event(l, "ledger");
	free(l->text);
}

/* Puts what is there already behind the job line, where a follower gets it. */
static void
recall(struct ps_record *r)
{
	const char *p = (const char *)r->evals.p, *end = p + r->evals.n;
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		const size_t n = (size_t)(nl + 1 - p);
		char *copy = fal_xcalloc(n, 1);
		memcpy(copy, p, n);
		FAL_XGROW(r->recent, r->cap, r->head + r->n + 1);
		r->recent[r->head + r->n++] = line_of(copy, n);
		p += n;
	}
	fal_buf_free(&r->evals);
}

const struct ps_line *
ps_record_add(struct ps_record *r, const char *line, size_t n)
{
	struct fal_buf b = { 0 };
	if (r->head > r->n) {
		memmove(r->recent, r->recent + r->head, r->n * sizeof(*r->recent));
		r->head = 0;
	}
	FAL_XGROW(r->recent, r->cap, r->head + r->n + 1);
	/* The first line of a job that goes on stands in the files already: it is for
	 * those who look on. */
	const bool there = r->goes_on && r->n == 0 && r->kept.n == 0;
	struct fal_chain first = { "" };
	fal_chain_put(there ? &first : &r->chain, line, n, &b);
	if (b.err < 0)
		fal_out_of_memory();
	const size_t at = r->head + r->n++;
	r->recent[at] = line_of((char *)b.p, b.n);
	if (there)
		recall(r);
	struct ps_line *l = &r->recent[at];
	r->lines += !there;
	for (int i = 0; i < r->files && !there; i++) {
		struct ps_tape *t = &r->file[i];
		if (t->fd >= 0)
			put_all(&t->out, l->text, l->n);
		if (t->out.n >= TAPE_MUCH)
			ps_tape_flush(t);
	}
	/* Without the first line nothing of it can be read. */
	if (r->lines == 1 || is_event(l, "done") || is_event(l, "failed"))
		ps_record_flush(r);
	r->rounds += is_event(l, "ledger");
	while (r->rounds > RECENT_ROUNDS)
		retire(r);
	return l;
}

void
ps_record_history(const struct ps_record *r, struct fal_buf *out)
{
	fal_put_bytes(out, r->kept.p, r->kept.n);
	for (size_t i = 0; i < r->n; i++)
		fal_put_bytes(out, r->recent[r->head + i].text, r->recent[r->head + i].n);
}

void
ps_record_flush(struct ps_record *r)
{
	for (int i = 0; i < r->files; i++)
		ps_tape_flush(&r->file[i]);
}

void
ps_record_sync(struct ps_record *r)
{
	ps_record_flush(r);
	for (int i = 0; i < r->files; i++) {
		const struct ps_tape *t = &r->file[i];
		/* A pipe has nothing to sync. */
		if (t->seeks && t->fd >= 0 && FAL_TRY(FSYNC, -1, fsync(t->fd)) < 0)
			fal_cli_err(PROG, "%s: %s: may not outlive a loss of power",
				    t->path, strerror(errno));
	}
}

void
ps_record_close(struct ps_record *r)
{
	ps_record_flush(r);
	for (int i = 0; i < r->files; i++) {
		if (r->file[i].fd >= 0)
			close(r->file[i].fd);
		fal_buf_free(&r->file[i].out);
		fal_buf_free(&r->file[i].tail);
	}
	while (r->n > 0)
		free(r->recent[r->head + --r->n].text);
	free(r->recent);
	fal_buf_free(&r->kept);
	fal_buf_free(&r->evals);
	*r = (struct ps_record){ 0 };
}
