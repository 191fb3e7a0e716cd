/* Keeping the trace. */
#include "record.h"

#include "base/mem.h"
#include "cli/file.h"

#include <stdlib.h>
#include <string.h>

enum { RECENT_ROUNDS = 100 };

int
ps_record_file(struct ps_record *r, const char *path, struct fal_diag *diag)
{
	int err = ps_tape_open(&r->file[r->files], path, 0, diag);
	r->files += err == FAL_OK;
	return err;
}

int
ps_record_append(struct ps_record *r, const char *path, const struct ps_trace *was,
		 struct fal_diag *diag)
{
	int err = ps_tape_open(&r->file[r->files], path, was->bytes, diag);
	r->files += err == FAL_OK;
	r->lines = was->lines;
	r->chain = was->chain;
	r->goes_on = true;
	fal_put_bytes(&r->evals, was->evals.p, was->evals.n);
	return err == FAL_OK ? r->evals.err : err;
}

int
ps_record_copy(struct ps_record *r, const char *from, const char *path,
	       struct fal_diag *diag)
{
	struct fal_buf all = { 0 };
	int err = fal_cli_read(from, SIZE_MAX, &all, diag);
	if (err == FAL_OK)
		err = ps_record_file(r, path, diag);
	if (err == FAL_OK && all.n > 0)
		ps_tape_add(&r->file[r->files - 1], (const char *)all.p, all.n);
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

/* What a line of this event says of who this one is about is so no longer. */
static void
forget(struct ps_record *r, const struct ps_line *l, const char *ev)
{
	struct fal_buf what = { 0 };
	/* "worker":"NAME","id":N, */
	const char *from = memmem(l->text, l->n, "\"worker\":", 9), *to = NULL;
	if (from != NULL)
		to = memmem(from, (size_t)(l->text + l->n - from), "\"id\":", 5);
	if (to != NULL)
		to = memchr(to, ',', (size_t)(l->text + l->n - to));
	if (to == NULL)
		return;
	fal_put_fmt(&what, "\"ev\":\"%s\",", ev);
	fal_put_bytes(&what, from, (size_t)(to + 1 - from));
	uint8_t *at = what.err == 0 && r->kept.n > 0
			      ? memmem(r->kept.p, r->kept.n, what.p, what.n)
			      : NULL;
	fal_buf_free(&what);
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
		fal_put_bytes(&r->kept, l->text, l->n);
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
		char *copy = fal_calloc(n, 1);
		if (copy == NULL || FAL_GROW(r->recent, r->cap, r->head + r->n + 1) < 0) {
			free(copy);
			break; /* it is for those who look on alone */
		}
		memcpy(copy, p, n);
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
	if (FAL_GROW(r->recent, r->cap, r->head + r->n + 1) < 0)
		return NULL;
	/* The first line of a job that goes on stands in the files already: it is for
	 * those who look on. */
	const bool there = r->goes_on && r->n == 0 && r->kept.n == 0;
	struct fal_chain first = { "" };
	fal_chain_put(there ? &first : &r->chain, line, n, &b);
	if (b.err < 0) {
		fal_buf_free(&b);
		return NULL;
	}
	const size_t at = r->head + r->n++;
	r->recent[at] = line_of((char *)b.p, b.n);
	if (there)
		recall(r);
	struct ps_line *l = &r->recent[at];
	r->lines += !there;
	for (int i = 0; i < r->files && !there; i++)
		ps_tape_add(&r->file[i], l->text, l->n);
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
	for (int i = 0; i < r->files; i++)
		ps_tape_sync(&r->file[i]);
}

bool
ps_record_said(struct ps_record *r, struct fal_diag *out)
{
	for (int i = 0; i < r->files; i++) {
		if (ps_tape_said(&r->file[i], out))
			return true;
	}
	return false;
}

void
ps_record_close(struct ps_record *r)
{
	for (int i = 0; i < r->files; i++)
		ps_tape_close(&r->file[i]);
	while (r->n > 0)
		free(r->recent[r->head + --r->n].text);
	free(r->recent);
	fal_buf_free(&r->kept);
	fal_buf_free(&r->evals);
	*r = (struct ps_record){ 0 };
}
