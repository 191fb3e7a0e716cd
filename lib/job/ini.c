/* Parses INI text strictly, line by line. */
#include "job/ini.h"

#include "base/filetype.h"

#include <ini.h>
#include <string.h>

struct ini_reader {
	const char *name;
	const char *p, *end; /* the unread text */
	unsigned line;       /* inih's current line, from 1 */
	fal_ini_fn *on_entry;
	void *user;
	struct fal_diag *diag;
	int err; /* the first error, which ends the reading */
};

static int
refuse_line(struct ini_reader *r, const char *what)
{
	return fal_diag_set(r->diag, FAL_EFORMAT, "%s:%u: %s", r->name, r->line, what);
}

/* Checks a "[section]" line without its line end and passes the section on. */
static int
parse_section_line(struct ini_reader *r, char *line)
{
	char *close = strchr(line, ']');
	if (close == NULL)
		return refuse_line(r, "a section without ']'");
	const char *rest = close + 1 + strspn(close + 1, " \t");
	if (*rest != '\0' && *rest != ';')
		return refuse_line(r, "text behind a section");
	*close = '\0';
	int err = r->on_entry(r->user, line + 1, NULL, NULL, r->line);
	*close = ']';
	return err;
}

/* Serves inih as fgets: returns the next line without leading blanks, which inih would
 * take for the continuation of a value. */
static char *
next_ini_line(char *str, int num, void *stream)
{
	struct ini_reader *r = stream;
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
		r->err = refuse_line(r, "a line too long");
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		if (fal_ini_is_control(p[i])) {
			r->err = refuse_line(r, "a control character");
			return NULL;
		}
	memcpy(str, p, n);
	str[n] = '\0';
	if (str[0] == '[' && (r->err = parse_section_line(r, str)) < 0)
		return NULL;
	str[n] = '\n';
	str[n + 1] = '\0';
	return str;
}

/* Serves inih as handler; nonzero is success. */
static int
on_ini_entry(void *user, const char *sect, const char *key, const char *value)
{
	struct ini_reader *r = user;
	if (r->err < 0)
		return 0;
	r->err = r->on_entry(r->user, sect, key, value, r->line);
	return r->err == 0;
}

int
fal_ini_read(const char *name, const char *text, size_t n, fal_ini_fn *on_entry,
	     void *user, struct fal_diag *diag)
{
	struct ini_reader r = { .name = name,
				.p = text,
				.end = text + n,
				.on_entry = on_entry,
				.user = user,
				.diag = diag };
	if (fal_filetype_refuse(name, text, n, FAL_FILETYPE_NONE, diag) < 0)
		return FAL_EFORMAT;
	/* inih continues after a bad line and returns the number of the first bad line.
	 */
	int bad = ini_parse_stream(next_ini_line, &r, on_ini_entry, &r);
	if (bad > 0 && (r.err == 0 || (unsigned)bad < r.line)) {
		r.line = (unsigned)bad;
		return refuse_line(&r, "not a section, 'key = value' or comment");
	}
	return r.err;
}

/* The lines of an entry and of its section's header; 0: none. */
struct entry_place {
	const struct fal_ini_entry *e;
	unsigned header, line;
};

static int
find_entry(void *user, const char *sect, const char *key, const char *value,
	   unsigned line)
{
	(void)value;
	struct entry_place *at = user;
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
	struct entry_place at = { .e = e };
	int err = fal_ini_read(name, text, n, find_entry, &at, diag);
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
