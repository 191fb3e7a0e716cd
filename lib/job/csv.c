/* Loads tables with a header: RFC 4180, with a comma or a tab, and lines that end in LF
 * or CRLF.  One pass, one field at a time. */
#include "job/set.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "job/source.h"

#include <assert.h>
#include <float.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FIELD_MAX = 1024,                             /* bytes of a field */
	COLUMNS_MAX = FAL_SAMPLE_MAX / sizeof(float), /* without the label */
	NAMES_MAX = 1 << 22,                          /* bytes of all names */
	BUFFER = 1 << 16
};

enum field_end { FIELD_END, RECORD_END };

struct csv_reader {
	struct source s;
	char comma;
	uint8_t buf[BUFFER];
	int n, at;
	int next;            /* the next byte; -1: end of file */
	unsigned line;       /* of the next byte */
	unsigned field_line; /* in which the field begins */
	char field[FIELD_MAX + 1];
	size_t len;

	char **name; /* of the columns without the label's */
	size_t columns, name_cap, name_bytes;
	struct fal_columns *expected; /* required names; NULL: any names */
	size_t label; /* index of the label's column; SIZE_MAX: not seen yet */
	const char *label_name;

	float *value;
	uint32_t *class; /* or the bits of targets */
	size_t values, value_cap, class_cap;
	uint32_t rows, classes;
};

/* A diagnosis about a line. */
#define csv_fail(r, err, line, fmt, ...)                                     \
	fal_diag_set((r)->s.diag, (err), "%s:%u: " fmt, (r)->s.path, (line), \
		     ##__VA_ARGS__)
/* A diagnosis about the last field. */
#define FAIL(r, ...) csv_fail(r, FAL_EFORMAT, (r)->field_line, __VA_ARGS__)

/* Reads the next byte into r->next. */
static int
next_byte(struct csv_reader *r)
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

/* Appends r->next to the field. */
static int
append_byte(struct csv_reader *r)
{
	if (r->next == '\0')
		return FAIL(r, "a NUL byte");
	if (r->len == FIELD_MAX)
		return FAIL(r, "a field of more than %d bytes", FIELD_MAX);
	r->field[r->len++] = (char)r->next;
	return next_byte(r);
}

/* Reads one field and its end. */
static int
read_field(struct csv_reader *r, enum field_end *end)
{
	int err = FAL_OK;
	r->len = 0;
	r->field_line = r->line;
	if (r->next == '"') { /* up to the closing quote */
		err = next_byte(r);
		while (err == FAL_OK) {
			if (r->next < 0)
				return FAIL(r, "a quote that is not closed");
			if (r->next == '"') {
				err = next_byte(r);
				if (err < 0 || r->next != '"')
					break; /* two quotes stand for one */
			}
			err = append_byte(r);
		}
	} else {
		while (err == FAL_OK && r->next != r->comma && r->next >= 0 &&
		       r->next != '\n' && r->next != '\r')
			err = r->next == '"' ? FAIL(r, "a quote within a field")
					     : append_byte(r);
	}
	r->field[r->len] = '\0';
	if (err == FAL_OK && r->next == '\r') {
		err = next_byte(r);
		if (err == FAL_OK && r->next != '\n' && r->next >= 0)
			err = FAIL(r, "a CR that ends no line");
	}
	if (err < 0)
		return err;
	*end = r->next == r->comma ? FIELD_END : RECORD_END;
	if (*end == FIELD_END || r->next == '\n')
		return next_byte(r);
	return r->next < 0 ? FAL_OK
			   : FAIL(r, "'%s' has text after its closing quote",
				  FAL_QUOTE(r->field));
}

/* --- the header --------------------------------------------------------------------- */

static int
read_csv_header(struct csv_reader *r)
{
	static const int bom[] = { 0xef, 0xbb, 0xbf };
	enum field_end end = FIELD_END;
	int err = next_byte(r);
	if (err == FAL_OK && r->next < 0)
		return FAIL(r, "no header: the file is empty");
	for (unsigned i = 0; i < 3 && err == FAL_OK && r->next == bom[i]; i++)
		err = next_byte(r);
	for (size_t column = 0; err == FAL_OK && end == FIELD_END; column++) {
		if ((err = read_field(r, &end)) < 0)
			return err;
		if (r->len == 0)
			return FAIL(r, "column %zu has no name", column + 1);
		if (strcmp(r->field, r->label_name) == 0) {
			if (r->label != SIZE_MAX)
				return FAIL(r, "two columns are called '%s'",
					    FAL_QUOTE(r->field));
			r->label = column;
			continue;
		}
		r->name_bytes += r->len + sizeof(char *);
		if (r->columns == COLUMNS_MAX || r->name_bytes > NAMES_MAX)
			return csv_fail(r, FAL_ELIMIT, r->field_line, "too many columns");
		FAL_XGROW(r->name, r->name_cap, r->columns + 1);
		r->name[r->columns++] = fal_xstrdup(r->field);
	}
	if (err == FAL_OK && r->label == SIZE_MAX)
		err = csv_fail(r, FAL_EINVAL, 1, "no column is called '%s' (data.label)",
			       FAL_QUOTE(r->label_name));
	if (err == FAL_OK && r->columns == 0)
		err = csv_fail(r, FAL_EFORMAT, 1, "no column but the label's");
	struct fal_columns *e = r->expected;
	if (err < 0 || e == NULL)
		return err;
	/* The order of the names matters, as values go by column. */
	for (size_t i = 0; i < r->columns && r->columns == e->n; i++)
		if (strcmp(r->name[i], e->name[i]) != 0)
			return csv_fail(r, FAL_EFORMAT, 1,
					"column %zu is '%s', not '%s' as in %s",
					i + (i >= r->label) + 1, FAL_QUOTE(r->name[i]),
					FAL_QUOTE(e->name[i]), e->file);
	if (e->n > 0)
		return FAL_OK;
	/* Later files must have the same columns. */
	e->name = fal_xcalloc(r->columns, sizeof(*e->name));
	e->file = fal_xstrdup(r->s.path);
	for (size_t i = 0; i < r->columns; i++)
		e->name[e->n++] = fal_xstrdup(r->name[i]);
	return FAL_OK;
}

/* Adds a guess to the diagnosis of a header: the first line has numbers, or more of
 * another separator. */
static int
explain_header(const struct csv_reader *r, int err)
{
	char separator = r->comma, other[] = ": columns look separated by ' '";
	unsigned count[256] = { 0 }, numbers = 0, n = 0;
	for (; n < r->s.head_n && r->s.head[n] != '\n'; n++) {
		count[r->s.head[n]]++;
		numbers += strchr("0123456789+-.eE,;\t|\" \r", r->s.head[n]) != NULL;
	}
	for (const char *p = ";\t|,"; *p != '\0'; p++)
		if (count[(uint8_t)*p] > count[(uint8_t)separator])
			separator = *p;
	if (err == FAL_OK || err == FAL_ENOMEM || r->s.diag == NULL)
		return err;
	other[sizeof(other) - 3] = separator;
	return fal_diag_set(r->s.diag, err, "%s%s", r->s.diag->text,
			    separator == r->comma
				    ? (n > 0 && numbers == n
					       ? ": the first line has numbers, no names"
					       : "")
			    : separator == '\t' ? ": columns look separated by tabs"
						: other);
}

/* --- records ------------------------------------------------------------------------ */

static int
parse_field(const struct csv_reader *r, const char *name, float *out)
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

/* Appends the field as a label: a class below `limit`, or the bits of a target. */
static int
add_label(struct csv_reader *r, bool target, uint32_t limit)
{
	uint64_t class;
	float v;
	int err = target ? parse_field(r, r->label_name, &v)
			 : fal_parse_u64(r->field, 0, limit - 1, &class);
	if (err < 0 && !target)
		return FAIL(
			r,
			"column '%s': '%s' is not a class, a whole number from 0 to %u",
			FAL_QUOTE(r->label_name), FAL_QUOTE(r->field), limit - 1);
	if (err < 0)
		return err;
	if (FAL_GROW(r->class, r->class_cap, (size_t)r->rows + 1) < 0)
		return csv_fail(r, FAL_ENOMEM, r->field_line, "out of memory");
	if (target)
		memcpy(&r->class[r->rows], &v, sizeof(v));
	else
		r->class[r->rows] = (uint32_t)class;
	if (target || class >= r->classes)
		r->classes = target ? 1 : (uint32_t)class + 1;
	return FAL_OK;
}

static int
read_csv_record(struct csv_reader *r, const struct fal_set_opts *opts)
{
	const uint32_t limit = opts->classes != 0 ? opts->classes : FAL_CLASSES_MAX;
	const size_t all = r->columns + 1;
	const unsigned line = r->line;
	enum field_end end = FIELD_END;
	for (size_t i = 0; i < all; i++) {
		const size_t column = i - (i > r->label);
		if (end == RECORD_END)
			return csv_fail(r, FAL_EFORMAT, line,
					"%zu field%s, but the header has %zu", i,
					fal_text_plural(i), all);
		int err = read_field(r, &end);
		if (err < 0)
			return err;
		if (r->len == 0 && end == RECORD_END && i == 0)
			return FAIL(r, "an empty line");
		if (r->len == 0)
			return FAIL(r, "column '%s': is empty",
				    FAL_QUOTE(i == r->label ? r->label_name
							    : r->name[column]));
		if (i == r->label) {
			err = add_label(r, opts->targets, limit);
			if (err < 0)
				return err;
			continue;
		}
		float v;
		err = parse_field(r, r->name[column], &v);
		if (err < 0)
			return err;
		if (opts->max_bytes != 0 &&
		    (r->values + 1) * sizeof(float) > opts->max_bytes)
			return csv_fail(r, FAL_ELIMIT, r->field_line,
					"above the limit of %ju bytes", opts->max_bytes);
		if (FAL_GROW(r->value, r->value_cap, r->values + 1) < 0)
			return csv_fail(r, FAL_ENOMEM, r->field_line, "out of memory");
		r->value[r->values++] = v;
	}
	if (end == FIELD_END)
		return csv_fail(r, FAL_EFORMAT, line,
				"more fields than the %zu of the header", all);
	r->rows++;
	return FAL_OK;
}

static int
read_records(struct csv_reader *r, const struct fal_set_opts *opts)
{
	int err = FAL_OK;
	/* Records after max_samples are checked as well. */
	while (err == FAL_OK && r->next >= 0) {
		const size_t values = r->values;
		const uint32_t rows = r->rows, classes = r->classes;
		if (rows == FAL_SAMPLES_MAX)
			return csv_fail(r, FAL_ELIMIT, r->line, "too many records");
		err = read_csv_record(r, opts);
		if (opts->max_samples != 0 && rows == opts->max_samples) {
			r->values = values;
			r->rows = rows;
			r->classes = classes;
		}
	}
	assert(err < 0 || r->values == r->rows * r->columns);
	if (err == FAL_OK && r->rows == 0)
		err = csv_fail(r, FAL_EFORMAT, r->line, "no record after the header");
	if (err == FAL_OK && opts->max_samples > r->rows)
		err = fal_diag_set(r->s.diag, FAL_EINVAL, "%s: has %u row%s, not %u",
				   r->s.path, r->rows, fal_text_plural(r->rows),
				   opts->max_samples);
	return err;
}

/* Reads the header and, unless `opts` is NULL, the records. */
static int
read_csv(const struct fal_csv *t, const struct fal_set_opts *opts,
	 struct fal_columns *expected, struct fal_set *out, struct fal_diag *diag)
{
	struct csv_reader *r = fal_xcalloc(1, sizeof(*r));
	r->comma = t->comma;
	r->line = r->field_line = 1;
	r->label = SIZE_MAX;
	r->label_name = t->label;
	r->expected = expected;
	int err = source_open(&r->s, t->file, diag);
	if (err == FAL_OK) {
		err = explain_header(r, read_csv_header(r));
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
