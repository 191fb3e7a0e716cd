/* Keeping the trace. */
#include "record.h"

#include "base/mem.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { RECENT_ROUNDS = 100 };

int
ps_record_file(struct ps_record *r, const char *path, struct fal_diag *diag)
{
	int i = r->file[0].f == NULL ? 0 : 1;
	r->file[i].f = fopen(path, "we");
	r->file[i].path = path;
	if (r->file[i].f == NULL)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", path, strerror(errno));
	return FAL_OK;
}

static bool
is_event(const struct ps_line *l, const char *ev)
{
	/* Lines are our own: {"t":SECONDS,"ev":"NAME",… */
	const char *at = memmem(l->text, l->n, "\"ev\":\"", 6);
	size_t n = strlen(ev);
	return at != NULL && strncmp(at + 6, ev, n) == 0 && at[6 + n] == '"';
}

static bool
is_lasting(const struct ps_line *l)
{
	static const char *const names[] = { "job",  "join", "leave",  "policy", "hold",
					     "eval", "done", "failed", "refuse" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is_event(l, names[i]))
			return true;
	return false;
}

/* Forgets the oldest line, or keeps it for good. */
static void
retire(struct ps_record *r)
{
	struct ps_line *l = &r->recent[r->head++];
	r->n--;
	if (is_lasting(l))
		fal_put_bytes(&r->kept, l->text, l->n);
	r->rounds -= is_event(l, "ledger");
	free(l->text);
}

int
ps_record_add(struct ps_record *r, const char *line, size_t n)
{
	if (r->head > r->n) {
		memmove(r->recent, r->recent + r->head, r->n * sizeof(*r->recent));
		r->head = 0;
	}
	if (FAL_GROW(r->recent, r->cap, r->head + r->n + 1) < 0)
		return FAL_ENOMEM;
	struct ps_line *l = &r->recent[r->head + r->n];
	l->text = fal_calloc(n + 2, 1);
	if (l->text == NULL)
		return FAL_ENOMEM;
	memcpy(l->text, line, n);
	l->text[n] = '\n';
	l->n = n + 1;
	r->n++;
	for (int i = 0; i < RECORD_FILES; i++)
		if (r->file[i].f != NULL)
			fwrite(l->text, 1, l->n, r->file[i].f);
	r->rounds += is_event(l, "ledger");
	while (r->rounds > RECENT_ROUNDS)
		retire(r);
	return r->kept.err;
}

void
ps_record_history(const struct ps_record *r, struct fal_buf *out)
{
	fal_put_bytes(out, r->kept.p, r->kept.n);
	for (size_t i = 0; i < r->n; i++)
		fal_put_bytes(out, r->recent[r->head + i].text, r->recent[r->head + i].n);
}

int
ps_record_flush(struct ps_record *r, struct fal_diag *diag)
{
	for (int i = 0; i < RECORD_FILES; i++)
		if (r->file[i].f != NULL &&
		    (fflush(r->file[i].f) != 0 || ferror(r->file[i].f)))
			return fal_diag_set(diag, FAL_EIO, "%s: %s", r->file[i].path,
					    strerror(errno));
	return FAL_OK;
}

int
ps_record_close(struct ps_record *r, struct fal_diag *diag)
{
	int err = ps_record_flush(r, diag);
	for (int i = 0; i < RECORD_FILES; i++)
		if (r->file[i].f != NULL)
			fclose(r->file[i].f);
	while (r->n > 0)
		free(r->recent[r->head + --r->n].text);
	free(r->recent);
	fal_buf_free(&r->kept);
	*r = (struct ps_record){ 0 };
	return err;
}
