/* Parses INI text strictly, line by line. */
#include "job/ini.h"

#include "base/filetype.h"

#include <string.h>

struct ini_reader {
	const char *name;
	unsigned line;                  /* the current line, from 1 */
	char section[FAL_INI_LINE + 1]; /* of the last header; "": none yet */
	bool is_lost; /* the last header is faulty: entries are skipped */
	fal_ini_fn *on_entry;
	void *user;
	struct fal_problems *problems;
};

static int
refuse_line(struct ini_reader *r, const char *what)
{
	struct fal_diag d;
	fal_diag_set(&d, 0, "%s:%u: %s", r->name, r->line, what);
	return fal_problems_add(r->problems, FAL_EFORMAT, d.text);
}

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Is there nothing in `s` but blanks and a comment?  `s` is a line, or the text after a
 * header or after a quoted value. */
static bool
is_line_end(const char *s)
{
	s += strspn(s, " \t");
	return *s == '\0' || *s == '#' || *s == ';';
}

size_t
fal_ini_value_length(const char *s)
{
	size_t n = 0;
	while (s[n] != '\0' &&
	       ((s[n] != '#' && s[n] != ';') || (n > 0 && !is_blank(s[n - 1]))))
		n++;
	return n;
}

/* Cuts off the blanks at the end of the n bytes. */
static void
cut_blanks(char *s, size_t n)
{
	while (n > 0 && is_blank(s[n - 1]))
		n--;
	s[n] = '\0';
}

/* Parses a line of n bytes without its end. */
static int
parse_line(struct ini_reader *r, const char *p, size_t n)
{
	char line[FAL_INI_LINE + 1];
	while (n > 0 && is_blank(*p)) {
		p++;
		n--;
	}
	if (n > 0 && p[n - 1] == '\r')
		n--;
	if (n > FAL_INI_LINE)
		return refuse_line(r, "a line too long");
	for (size_t i = 0; i < n; i++)
		if (fal_ini_is_control(p[i]))
			return refuse_line(r, "a control character");
	memcpy(line, p, n);
	line[n] = '\0';
	if (is_line_end(line))
		return FAL_OK;
	if (*line == '[') {
		char *close = strchr(line, ']');
		r->is_lost = close == NULL || !is_line_end(close + 1);
		if (r->is_lost)
			return refuse_line(r, close == NULL ? "a section without ']'"
							    : "text behind a section");
		*close = '\0';
		strcpy(r->section, line + 1);
		return r->on_entry(r->user, r->section, NULL, NULL, r->line);
	}
	char *value = strchr(line, '=');
	if (value == NULL || value == line)
		return refuse_line(r, "not a section, 'key = value' or comment");
	cut_blanks(line, (size_t)(value - line));
	value++;
	value += strspn(value, " \t");
	char *close = *value == '"' ? strchr(value + 1, '"') : NULL;
	if (*value == '"' && (close == NULL || !is_line_end(close + 1)))
		return refuse_line(r, close == NULL ? "a value without its second '\"'"
						    : "text behind a value in '\"'");
	if (close != NULL)
		*close = '\0';
	else
		cut_blanks(value, fal_ini_value_length(value));
	/* The entry must fit a line that is written anew. */
	if (strlen(line) + strlen(" = ") + strlen(value) + (close != NULL) > FAL_INI_LINE)
		return refuse_line(r, "a line too long");
	return r->is_lost ? FAL_OK
			  : r->on_entry(r->user, r->section, line,
					value + (close != NULL), r->line);
}

int
fal_ini_read(const char *name, const char *text, size_t n, fal_ini_fn *on_entry,
	     void *user, struct fal_problems *problems)
{
	struct ini_reader r = {
		.name = name, .on_entry = on_entry, .user = user, .problems = problems
	};
	struct fal_diag why;
	int err = fal_filetype_refuse(name, text, n, FAL_FILETYPE_NONE, &why);
	if (err < 0) {
		fal_problems_add(problems, err, why.text);
		return err;
	}
	for (const char *p = text, *end = text + n; p < end && err == FAL_OK;) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));
		r.line++;
		err = parse_line(&r, p, (size_t)((eol != NULL ? eol : end) - p));
		p = eol != NULL ? eol + 1 : end;
	}
	return err;
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
	struct fal_problems first = { .diag = diag };
	int err = fal_ini_read(name, text, n, find_entry, &at, &first);
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
