/* INI text as lines, strictly. */
#include "job/ini.h"

#include "base/filetype.h"

#include <ini.h>
#include <string.h>

struct reader {
	const char *name;
	const char *p, *end; /* what is still to be read */
	unsigned line;       /* the line that inih holds, from 1 */
	fal_ini_fn *on_entry;
	void *user;
	struct fal_diag *diag;
	int err; /* the first error; reading stops there */
};

static int
refuse(struct reader *r, const char *what)
{
	return fal_diag_set(r->diag, FAL_EFORMAT, "%s:%u: %s", r->name, r->line, what);
}

/* Checks and announces a "[section]" line, without its line end. */
static int
section(struct reader *r, char *line)
{
	char *close = strchr(line, ']');
	if (close == NULL)
		return refuse(r, "a section without ']'");
	const char *rest = close + 1 + strspn(close + 1, " \t");
	if (*rest != '\0' && *rest != ';')
		return refuse(r, "text behind a section");
	*close = '\0';
	int err = r->on_entry(r->user, line + 1, NULL, NULL, r->line);
	*close = ']';
	return err;
}

/* inih's fgets: the next line, without the blanks before it, which to inih would mean
 * that the value of the line above goes on. */
static char *
next_line(char *str, int num, void *stream)
{
	struct reader *r = stream;
	if (r->err < 0 || r->p == r->end)
		return NULL;
	r->line++;
	const char *eol = memchr(r->p, '\n', (size_t)(r->end - r->p));
	const char *p = r->p, *end = eol != NULL ? eol : r->end;
	r->p = eol != NULL ? eol + 1 : r->end;

	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	if (p < end && end[-1] == '\r')
		end--;
	size_t n = (size_t)(end - p);
	if (n > FAL_INI_LINE || n + 2 > (size_t)num) {
		r->err = refuse(r, "a line too long");
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		if (fal_ini_is_control(p[i])) {
			r->err = refuse(r, "a control character");
			return NULL;
		}
	memcpy(str, p, n);
	str[n] = '\0';
	if (str[0] == '[' && (r->err = section(r, str)) < 0)
		return NULL;
	str[n] = '\n';
	str[n + 1] = '\0';
	return str;
}

/* inih's handler; nonzero is success. */
static int
handle(void *user, const char *sect, const char *key, const char *value)
{
	struct reader *r = user;
	if (r->err < 0)
		return 0;
	r->err = r->on_entry(r->user, sect, key, value, r->line);
	return r->err == 0;
}

int
fal_ini_read(const char *name, const char *text, size_t n, fal_ini_fn *on_entry,
	     void *user, struct fal_diag *diag)
{
	struct reader r = { .name = name,
			    .p = text,
			    .end = text + n,
			    .on_entry = on_entry,
			    .user = user,
			    .diag = diag };
	if (fal_filetype_refuse(name, text, n, FAL_FILETYPE_NONE, diag) < 0)
		return FAL_EFORMAT;
	/* inih goes on behind a bad line and returns the number of the first. */
	int bad = ini_parse_stream(next_line, &r, handle, &r);
	if (bad > 0 && (r.err == 0 || (unsigned)bad < r.line)) {
		r.line = (unsigned)bad;
		return refuse(&r, "not a section, 'key = value' or comment");
	}
	return r.err;
}

/* Where an entry stands: line numbers, 0 for nowhere. */
struct place {
	const struct fal_ini_entry *e;
	unsigned header, line;
};

static int
find(void *user, const char *sect, const char *key, const char *value, unsigned line)
{
	(void)value;
	struct place *at = user;
	if (strcmp(sect, at->e->section) != 0)
		return FAL_OK;
	if (key == NULL && at->header == 0)
		at->header = line;
	if (key != NULL && strcmp(key, at->e->key) == 0 && at->line == 0)
		at->line = line;
	return FAL_OK;
}

int
fal_ini_set(const char *name, const char *text, size_t n, const struct fal_ini_entry *e,
	    struct fal_buf *out, struct fal_diag *diag)
{
	struct place at = { .e = e };
	int err = fal_ini_read(name, text, n, find, &at, diag);
	if (err < 0)
		return err;

	const char *p = text, *end = text + n;
	for (unsigned line = 1; p < end; line++) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));
		const char *next = eol != NULL ? eol + 1 : end;
		if (line != at.line)
			fal_put_bytes(out, p, (size_t)(next - p));
		if (eol == NULL && line != at.line)
			fal_put_u8(out, '\n');
		if (line == at.line || (at.line == 0 && line == at.header))
			fal_put_fmt(out, "%s = %s\n", e->key, e->value);
		p = next;
	}
	if (at.line == 0 && at.header == 0)
		fal_put_fmt(out, "[%s]\n%s = %s\n", e->section, e->key, e->value);
	if (out->err < 0)
		return fal_diag_set(diag, out->err, "%s: %s", name,
				    fal_strerror(out->err));
	return FAL_OK;
}
