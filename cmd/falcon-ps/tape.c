/* Writing, and not being able to.
 *
 * A full disk does not take the gap line either: the last lines that it took are cut off
 * again, and become the first of the gap.  In their room the gap line is written, anew
 * with each line that is missing, until there is room again. */
#include "tape.h"

#include "base/fault.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/text.h"
#include "trace/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	TAPE_TAIL = 512,    /* bytes that a gap line has room in */
	TAPE_MUCH = 1 << 20 /* bytes that are not kept waiting */
};

int
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

void
ps_tape_add(struct ps_tape *t, const char *line, size_t n)
{
	if (t->fd < 0)
		return;
	fal_put_bytes(&t->out, line, n);
	const bool copied = t->out.err == FAL_OK;
	t->out.err = FAL_OK;
	if (t->out.n >= TAPE_MUCH || !copied)
		ps_tape_flush(t);
	if (copied)
		return;
	/* There was no memory for a copy: from where it is, behind the others. */
	struct fal_buf out = t->out;
	t->out = (struct fal_buf){ .p = (uint8_t *)(uintptr_t)line, .n = n };
	ps_tape_flush(t);
	t->out = out;
	fal_buf_clear(&t->out);
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

/* Where the last lines begin that make up TAPE_TAIL bytes. */
static size_t
tail_of(const struct fal_buf *b)
{
	size_t at = b->n > TAPE_TAIL ? b->n - TAPE_TAIL : 0;
	while (at > 0 && b->p[at - 1] != '\n')
		at--;
	return at;
}

/* n bytes were written, whole lines: their end is what can be taken back. */
static void
remember(struct ps_tape *t, const uint8_t *p, size_t n)
{
	/* But for the job line: without it nothing can be read. */
	size_t first = 0;
	if (t->size == 0)
		first = (size_t)((uint8_t *)memchr(p, '\n', n) + 1 - p);
	t->size += n;
	fal_put_bytes(&t->tail, p + first, n - first);
	if (t->tail.err < 0) /* nothing can be taken back */
		fal_buf_clear(&t->tail);
	if (t->tail.n == 0)
		return;
	const size_t at = tail_of(&t->tail);
	memmove(t->tail.p, t->tail.p + at, t->tail.n - at);
	t->tail.n -= at;
}

/* These n bytes of lines are missing. */
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
	fal_put_u8(out, '\n');
}

/* Of what was to be written `done` bytes were taken; the rest is a part of the gap, and
 * what is there says so. */
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
	/* What remains of a line that could not be written is cut off. */
	if (FAL_TRY(WRITE, -1, ftruncate(t->fd, (off_t)t->size)) == 0 && line.err == 0 &&
	    put(t, line.p, line.n) < line.n &&
	    FAL_TRY(WRITE, -1, ftruncate(t->fd, (off_t)t->size)) < 0)
		line.err = FAL_EIO; /* tried again with the next lines */
	fal_buf_free(&line);
}

/* Where the next thing to be told stands. */
static struct fal_diag *
say(struct ps_tape *t)
{
	size_t i = 0;
	while (i < TAPE_SAID - 1 && t->said[i].text[0] != '\0')
		i++;
	return &t->said[i];
}

bool
ps_tape_said(struct ps_tape *t, struct fal_diag *out)
{
	*out = t->said[0];
	memmove(t->said, t->said + 1, sizeof(t->said) - sizeof(t->said[0]));
	t->said[TAPE_SAID - 1].text[0] = '\0';
	return out->text[0] != '\0';
}

void
ps_tape_flush(struct ps_tape *t)
{
	struct fal_buf all = { 0 };
	const bool was = t->gap.lines > 0;
	if (t->fd < 0 || t->out.n == 0)
		return;
	if (was) {
		put_gap(&t->gap, &all);
		fal_put_bytes(&all, t->out.p, t->out.n);
	}
	const struct fal_buf *what = was ? &all : &t->out;
	errno = ENOMEM;
	const size_t done = what->err == FAL_OK ? put(t, what->p, what->n) : 0;
	if (done == what->n && what->err == FAL_OK) {
		remember(t, what->p, what->n);
		if (was)
			fal_diag_set(say(t), 0,
				     "%s: is written again: %llu line%s %s missing",
				     t->path, (unsigned long long)t->gap.lines,
				     fal_text_s(t->gap.lines),
				     t->gap.lines == 1 ? "is" : "are");
		t->gap = (struct ps_gap){ 0 };
	} else if (!t->seeks) { /* a pipe that is gone, or a full device */
		fal_diag_set(say(t), 0, "%s: %s: no more is written to it", t->path,
			     strerror(errno));
		close(t->fd);
		t->fd = -1;
	} else {
		if (!was)
			fal_diag_set(say(t), 0,
				     "%s: %s: lines are missing from here on; the job "
				     "goes on",
				     t->path, strerror(errno));
		fall_back(t, done);
	}
	fal_buf_free(&all);
	fal_buf_clear(&t->out);
}

void
ps_tape_sync(struct ps_tape *t)
{
	ps_tape_flush(t);
	/* Of a pipe there is nothing to sync. */
	if (t->seeks && t->fd >= 0 && FAL_TRY(FSYNC, -1, fsync(t->fd)) < 0)
		fal_diag_set(say(t), 0, "%s: %s: may not outlive a loss of power",
			     t->path, strerror(errno));
}

void
ps_tape_close(struct ps_tape *t)
{
	ps_tape_flush(t);
	if (t->fd >= 0)
		close(t->fd);
	fal_buf_free(&t->out);
	fal_buf_free(&t->tail);
	t->fd = -1;
}
