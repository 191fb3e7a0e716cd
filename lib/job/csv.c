/* Tables with a header: RFC 4180, with a comma or a tab, and lines that end in LF or
 * CRLF.  One pass, one field at a time. */
#include "job/set.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "job/source.h"

#include <float.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FIELD_MAX = 1024,                             /* bytes of a field */
	COLUMNS_MAX = FAL_SAMPLE_MAX / sizeof(float), /* without the label's */
	NAMES_MAX = 1 << 22,                          /* bytes of all names */
	BUFFER = 1 << 16
};

enum end { FIELD_END, RECORD_END }; /* what is behind a field */

struct reader {
	struct source s;
	char comma;
	uint8_t buf[BUFFER];
	int n, at;
	int next;       /* byte to be read, -1 at the end */
	unsigned line;  /* it is in */
	unsigned began; /* the line in which the field began */
	char field[FIELD_MAX + 1];
	size_t len;

	char **name; /* of columns, without that of the label */
	size_t columns, name_cap, name_bytes;
	struct fal_columns *as; /* names that they are to have; NULL: any */
	size_t label; /* the place of the label's column among all; SIZE_MAX: not seen */
	const char *label_name;

	float *value;
	uint32_t *class; /* or bits of targets */
	size_t values, value_cap, class_cap;
	uint32_t rows, classes;
};

/* A diagnosis about the field that was read last. */
#define FAIL(r, ...) fail(r, FAL_EFORMAT, (r)->began, __VA_ARGS__)

static int __attribute__((format(printf, 4, 5)))
fail(const struct reader *r, int err, unsigned line, const char *fmt, ...)
{
	char text[400];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return fal_diag_set(r->s.diag, err, "%s:%u: %s", r->s.path, line, text);
}

/* The next byte goes to r->next. */
static int
step(struct reader *r)
{
	if (r->next == '\n')
		r->line++;
	if (r->at == r->n) {
		r->n = source_some(&r->s, r->buf, BUFFER);
		r->at = 0;
		if (r->n < 0)
			return r->n;
	}
	r->next = r->n == 0 ? -1 : r->buf[r->at++];
	return FAL_OK;
}

static int
keep(struct reader *r)
{
	if (r->next == '\0')
		return FAIL(r, "a NUL byte");
	if (r->len == FIELD_MAX)
		return FAIL(r, "a field of more than %d bytes", FIELD_MAX);
	r->field[r->len++] = (char)r->next;
	return step(r);
}

/* Behind the opening quote, to behind the closing one. */
static int
read_quoted(struct reader *r)
{
	int err = step(r);
	while (err == FAL_OK) {
		if (r->next < 0)
			return FAIL(r, "a quote that is not closed");
		if (r->next == '"') {
			err = step(r);
			if (err < 0 || r->next != '"')
				break; /* two are one */
		}
		err = keep(r);
	}
	return err;
}

/* One field, and what is behind it. */
static int
read_field(struct reader *r, enum end *end)
{
	int err = FAL_OK;
	r->len = 0;
	r->began = r->line;
	if (r->next == '"')
		err = read_quoted(r);
	else
		while (err == FAL_OK && r->next != r->comma && r->next >= 0 &&
		       r->next != '\n' && r->next != '\r')
			err = r->next == '"' ? FAIL(r, "a quote within a field")
					     : keep(r);
	r->field[r->len] = '\0';
	if (err == FAL_OK && r->next == '\r') {
		err = step(r);
		if (err == FAL_OK && r->next != '\n' && r->next >= 0)
			err = FAIL(r, "a CR that ends no line");
	}
	if (err < 0)
		return err;
	*end = r->next == r->comma ? FIELD_END : RECORD_END;
	if (*end == FIELD_END || r->next == '\n')
		return step(r);
	return r->next < 0
		       ? FAL_OK
		       : FAIL(r, "'%s' with more behind its quote", FAL_QUOTE(r->field));
}

/* --- the header --------------------------------------------------------------------- */

static int
add_name(struct reader *r, size_t column)
{
	if (r->len == 0)
		return FAIL(r, "column %zu has no name", column + 1);
	if (strcmp(r->field, r->label_name) == 0) {
		if (r->label != SIZE_MAX)
			return FAIL(r, "two columns are called '%s'",
				    FAL_QUOTE(r->field));
		r->label = column;
		return FAL_OK;
	}
	r->name_bytes += r->len + sizeof(char *);
	if (r->columns == COLUMNS_MAX || r->name_bytes > NAMES_MAX)
		return fail(r, FAL_ELIMIT, r->began, "too many columns");
	FAL_XGROW(r->name, r->name_cap, r->columns + 1);
	r->name[r->columns++] = fal_xstrdup(r->field);
	return FAL_OK;
}

/* Values go by their place: the same names in another order are other data. */
static int
judge_names(const struct reader *r)
{
	for (size_t i = 0; i < r->columns && r->columns == r->as->n; i++)
		if (strcmp(r->name[i], r->as->name[i]) != 0)
			return fail(r, FAL_EFORMAT, 1,
				    "column %zu is '%s', not '%s' as in %s",
				    i + (i >= r->label) + 1, FAL_QUOTE(r->name[i]),
				    FAL_QUOTE(r->as->name[i]), r->as->file);
	return FAL_OK;
}

static int
read_header(struct reader *r)
{
	static const int bom[] = { 0xef, 0xbb, 0xbf };
	enum end end = FIELD_END;
	int err = step(r);
	if (err == FAL_OK && r->next < 0)
		return FAIL(r, "no header: the file is empty");
	for (unsigned i = 0; i < 3 && err == FAL_OK && r->next == bom[i]; i++)
		err = step(r);
	for (size_t column = 0; err == FAL_OK && end == FIELD_END; column++) {
		err = read_field(r, &end);
		if (err == FAL_OK)
			err = add_name(r, column);
	}
	if (err == FAL_OK && r->label == SIZE_MAX)
		err = fail(r, FAL_EINVAL, 1, "no column is called '%s' (data.label)",
			   FAL_QUOTE(r->label_name));
	if (err == FAL_OK && r->columns == 0)
		err = fail(r, FAL_EFORMAT, 1, "no column but the label's");
	if (err == FAL_OK && r->as != NULL && r->as->n > 0)
		err = judge_names(r);
	if (err < 0 || r->as == NULL || r->as->n > 0)
		return err;
	/* Other files are to have the same columns. */
	r->as->name = fal_xcalloc(r->columns, sizeof(*r->as->name));
	r->as->file = fal_xstrdup(r->s.path);
	for (size_t i = 0; i < r->columns; i++)
		r->as->name[r->as->n++] = fal_xstrdup(r->name[i]);
	return FAL_OK;
}

/* Adds to the diagnosis of a header what the first line looks like: numbers, or columns
 * that something else separates, of which it has more. */
static int
explain_header(const struct reader *r, int err)
{
	char most = r->comma, other[] = ": columns look separated by ' '";
	unsigned count[256] = { 0 }, numbers = 0, n = 0;
	for (; n < r->s.head_n && r->s.head[n] != '\n'; n++) {
		count[r->s.head[n]]++;
		numbers += strchr("0123456789+-.eE,;\t|\" \r", r->s.head[n]) != NULL;
	}
	for (const char *p = ";\t|,"; *p != '\0'; p++)
		if (count[(uint8_t)*p] > count[(uint8_t)most])
			most = *p;
	if (err == FAL_OK || err == FAL_ENOMEM || r->s.diag == NULL)
		return err;
	other[sizeof(other) - 3] = most;
	return fal_diag_set(r->s.diag, err, "%s%s", r->s.diag->text,
			    most == r->comma
				    ? (n > 0 && numbers == n
					       ? ": the first line has numbers, no names"
					       : "")
			    : most == '\t' ? ": columns look separated by tabs"
					   : other);
}

/* --- records ------------------------------------------------------------------------ */

static int
number(const struct reader *r, const char *name, float *out)
{
	double v;
	int err = fal_parse_double(r->field, -FLT_MAX, FLT_MAX, &v);
	if (err < 0)
		return FAIL(r, "column '%s': '%s' is not a %snumber", FAL_QUOTE(name),
			    FAL_QUOTE(r->field),
			    err == FAL_ELIMIT ? "single-precision " : "");
	*out = (float)v;
	return FAL_OK;
}

/* The label: a class below `limit`, or the bits of a target. */
static int
add_label(struct reader *r, bool target, uint32_t limit)
{
	uint64_t class;
	float v;
	int err = target ? number(r, r->label_name, &v)
			 : fal_parse_u64(r->field, 0, limit - 1, &class);
	if (err < 0 && !target)
		return FAIL(
			r,
			"column '%s': '%s' is not a class, a whole number from 0 to %u",
			FAL_QUOTE(r->label_name), FAL_QUOTE(r->field), limit - 1);
	if (err < 0)
		return err;
	if (FAL_GROW(r->class, r->class_cap, (size_t)r->rows + 1) < 0)
		return fail(r, FAL_ENOMEM, r->began, "out of memory");
	if (target)
		memcpy(&r->class[r->rows], &v, sizeof(v));
	else
		r->class[r->rows] = (uint32_t)class;
	if (target || class >= r->classes)
		r->classes = target ? 1 : (uint32_t)class + 1;
	return FAL_OK;
}

static int
add_value(struct reader *r, size_t column, uint64_t max_bytes)
{
	float v;
	int err = number(r, r->name[column], &v);
	if (err < 0)
		return err;
	if (max_bytes != 0 && (r->values + 1) * sizeof(float) > max_bytes)
		return fail(r, FAL_ELIMIT, r->began, "above the limit of %ju bytes",
			    max_bytes);
	if (FAL_GROW(r->value, r->value_cap, r->values + 1) < 0)
		return fail(r, FAL_ENOMEM, r->began, "out of memory");
	r->value[r->values++] = v;
	return FAL_OK;
}

static int
read_record(struct reader *r, const struct fal_set_opts *opts)
{
	const uint32_t limit = opts->classes != 0 ? opts->classes : FAL_CLASSES_MAX;
	const size_t all = r->columns + 1;
	const unsigned line = r->line;
	enum end end = FIELD_END;
	for (size_t i = 0; i < all; i++) {
		const size_t column = i - (i > r->label);
		if (end == RECORD_END)
			return fail(r, FAL_EFORMAT, line,
				    "%zu field%s, but the header has %zu", i,
				    fal_text_s(i), all);
		int err = read_field(r, &end);
		if (err < 0)
			return err;
		if (r->len == 0 && end == RECORD_END && i == 0)
			return FAIL(r, "an empty line");
		if (r->len == 0)
			return FAIL(r, "column '%s': is empty",
				    FAL_QUOTE(i == r->label ? r->label_name
							    : r->name[column]));
		err = i != r->label ? add_value(r, column, opts->max_bytes)
				    : add_label(r, opts->targets, limit);
		if (err < 0)
			return err;
	}
	if (end == FIELD_END)
		return fail(r, FAL_EFORMAT, line,
			    "more fields than the %zu of the header", all);
	r->rows++;
	return FAL_OK;
}

static int
read_records(struct reader *r, const struct fal_set_opts *opts)
{
	int err = FAL_OK;
	/* Records that are not wanted are judged, too. */
	while (err == FAL_OK && r->next >= 0) {
		const size_t values = r->values;
		const uint32_t rows = r->rows, classes = r->classes;
		if (rows == FAL_SAMPLES_MAX)
			return fail(r, FAL_ELIMIT, r->line, "too many records");
		err = read_record(r, opts);
		if (opts->max_samples != 0 && rows == opts->max_samples) {
			r->values = values;
			r->rows = rows;
			r->classes = classes;
		}
	}
	if (err == FAL_OK && r->rows == 0)
		err = fail(r, FAL_EFORMAT, r->line, "no record behind the header");
	if (err == FAL_OK && opts->max_samples > r->rows)
		err = fal_diag_set(r->s.diag, FAL_EINVAL, "%s: has %u row%s, not %u",
				   r->s.path, r->rows, fal_text_s(r->rows),
				   opts->max_samples);
	return err;
}

/* Reads the header, and, where `opts` is not NULL, the records. */
static int
read_csv(const struct fal_csv *t, const struct fal_set_opts *opts, struct fal_columns *as,
	 struct fal_set *out, struct fal_diag *diag)
{
	struct reader *r = fal_xcalloc(1, sizeof(*r));
	r->comma = t->comma;
	r->line = r->began = 1;
	r->label = SIZE_MAX;
	r->label_name = t->label;
	r->as = as;
	int err = source_open(&r->s, t->file, diag);
	if (err == FAL_OK) {
		err = explain_header(r, read_header(r));
		if (err == FAL_OK && opts != NULL)
			err = read_records(r, opts);
		err = source_close(&r->s, err);
	}
	if (err == FAL_OK && opts != NULL)
		*out = (struct fal_set){
			.dtype = FAL_F32,
			.n = r->rows,
			.shape = { 1, 1, (uint32_t)r->columns },
			.targets = opts->targets,
			.classes = opts->classes != 0 && !opts->targets ? opts->classes
									: r->classes,
			.values = (uint32_t)r->columns,
			.sample_bytes = (uint32_t)(r->columns * sizeof(float)),
			.pixels = (uint8_t *)r->value,
			.labels = r->class,
		};
	else {
		free(r->value);
		free(r->class);
	}
	for (size_t i = 0; i < r->columns; i++)
		free(r->name[i]);
	free(r->name);
	free(r);
	return err;
}

int
fal_set_load_csv(const struct fal_csv *t, const struct fal_set_opts *opts,
		 struct fal_set *out, struct fal_diag *diag)
{
	return read_csv(t, opts, opts->columns, out, diag);
}

int
fal_csv_columns(const struct fal_csv *t, struct fal_columns *out, struct fal_diag *diag)
{
	return read_csv(t, NULL, out, NULL, diag);
}

void
fal_columns_free(struct fal_columns *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->name[i]);
	free(c->name);
	free(c->file);
	*c = (struct fal_columns){ 0 };
}
