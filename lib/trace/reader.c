/* Reads the lines of traces by the table of schema.h; derives facts of single lines. */
#include "trace/reader.h"

#include "base/err.h"
#include "base/filetype.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/sorted.h"
#include "base/text.h"
#include "sched/bound.h"
#include "wire/zip.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first byte of a zstd frame, '('; no line begins with this byte. */
#define ZSTD_FIRST 0x28

struct fal_trace_reader {
	int (*on_line)(void *arg, struct fal_trace_line *l);
	void *arg;
	bool delivers_cut;
	bool begun;              /* a byte has come */
	struct fal_unzip *unzip; /* NULL: plain */
	struct fal_buf part;     /* the line so far */
	uint64_t number;         /* lines completed */
	uint64_t counted;        /* lines, with those that gap lines stand for */
	bool finds_restarts;     /* the first pass, which fills: */
	struct restart {
		uint64_t number; /* of the line */
		uint64_t lines;  /* of those before it, the first so many count */
	} *restart;
	size_t restarts, restart_cap;
	double t;      /* of the last line */
	char hash[65]; /* of the job */
	int err;
	struct fal_diag diag; /* of err */
};

int
fal_trace_fail(struct fal_trace_line *l, int err, const char *fmt, ...)
{
	if (l->err != 0)
		return l->err;
	char what[400];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	l->err = err;
	/* The text begins with the name of a field, not with a word. */
	const bool is_of_field = what[strcspn(what, ": ")] == ':';
	return fal_diag_set(&l->diag, err, "%ju: %.40s%s%s", l->number, l->ev,
			    l->ev[0] == '\0' ? ""
			    : is_of_field    ? "."
					     : ": ",
			    what);
}

/* ---- members ---------------------------------------------------------------------- */

/* Memory of a line. */
struct fal_trace_block {
	struct fal_trace_block *next;
	_Alignas(max_align_t) uint8_t p[];
};

static void *
line_alloc(struct fal_trace_line *l, size_t n, size_t size)
{
	struct fal_trace_block *b = fal_calloc(1, sizeof(*b) + n * size);
	if (b == NULL) {
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		return NULL;
	}
	b->next = l->blocks;
	l->blocks = b;
	return b->p;
}

static void
line_clear(struct fal_trace_line *l)
{
	for (struct fal_trace_block *b = l->blocks, *next; b != NULL; b = next) {
		next = b->next;
		free(b);
	}
	l->blocks = NULL;
	json_decref((json_t *)(uintptr_t)l->o);
	l->o = NULL;
}

static uint64_t
read_whole(struct fal_trace_line *l, const json_t *v, const char *name, uint64_t max)
{
	const json_int_t n = json_integer_value(v);
	if (!json_is_integer(v) || n < 0)
		fal_trace_fail(l, FAL_EFORMAT, "%s: not a whole number", name);
	else if ((uint64_t)n > max)
		fal_trace_fail(l, FAL_ELIMIT, "%s: %ju is above %ju", name, (uint64_t)n,
			       max);
	return l->err == 0 ? (uint64_t)n : 0;
}

static double
read_real(struct fal_trace_line *l, const json_t *v, const char *name)
{
	if (!json_is_number(v))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not a number", name);
	return json_number_value(v);
}

static double
read_seconds(struct fal_trace_line *l, const json_t *v, const char *name)
{
	const double s = read_real(l, v, name);
	if (l->err == 0 && !(s >= 0 && s <= FAL_TRACE_SECONDS_MAX))
		fal_trace_fail(l, FAL_EINVAL, "%s: %g seconds", name, s);
	return l->err == 0 ? s : 0;
}

static const char *
read_text(struct fal_trace_line *l, const json_t *v, const char *name)
{
	if (!json_is_string(v))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not a string", name);
	return l->err == 0 ? json_string_value(v) : "";
}

static const char *
read_hex(struct fal_trace_line *l, const json_t *v, const char *name, uint64_t digits)
{
	const char *s = read_text(l, v, name);
	if (l->err == 0 &&
	    (strlen(s) != digits || strspn(s, "0123456789abcdef") != digits))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not %ju hexadecimal digits", name,
			       digits);
	return l->err == 0 ? s : "";
}

/* Returns the place of the string among the member's words. */
static uint32_t
read_word(struct fal_trace_line *l, const json_t *v, const struct fal_member *m)
{
	const char *s = read_text(l, v, m->name), *at = m->words;
	const size_t n = strlen(s);
	for (uint32_t i = 0; l->err == 0 && *at != '\0'; i++) {
		const size_t k = strcspn(at, " ");
		if (k == n && memcmp(at, s, n) == 0)
			return i;
		at += k + (at[k] == ' ');
	}
	fal_trace_fail(l, FAL_EFORMAT, "%s: '%s'", m->name, FAL_QUOTE(s));
	return 0;
}

/* Returns the length of an array; n > 0: the array must have n elements. */
static size_t
read_length(struct fal_trace_line *l, const json_t *v, const char *name, uint64_t n)
{
	if (n > 0 && (!json_is_array(v) || json_array_size(v) != n))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not %ju numbers", name, n);
	else if (!json_is_array(v))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not an array", name);
	return l->err == 0 ? json_array_size(v) : 0;
}

/* Reads rows of whole numbers up to `max`; max 0: rows of any numbers. */
static struct fal_trace_list
line_read_rows(struct fal_trace_line *l, const json_t *v, const struct fal_member *m,
	       uint64_t max)
{
	const size_t n = read_length(l, v, m->name, 0);
	const size_t width = m->arg > 0 ? (size_t)m->arg : 1;
	union {
		uint64_t whole;
		double real;
	} *p = line_alloc(l, n * width, sizeof(*p));
	for (size_t i = 0; i < n && l->err == 0; i++) {
		const json_t *row = json_array_get(v, i), *is = row;
		if (m->arg > 0)
			read_length(l, row, m->name, m->arg);
		for (size_t k = 0; k < width && l->err == 0; k++) {
			if (m->arg > 0)
				is = json_array_get(row, k);
			if (max > 0)
				p[width * i + k].whole = read_whole(l, is, m->name, max);
			else
				p[width * i + k].real = read_real(l, is, m->name);
		}
	}
	return (struct fal_trace_list){ p, l->err == 0 ? n : 0 };
}

static struct fal_json_text
read_json(struct fal_trace_line *l, const json_t *v)
{
	const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT;
	const size_t n = json_dumpb(v, NULL, 0, flags);
	char *p = line_alloc(l, n + 1, 1);
	if (p != NULL)
		json_dumpb(v, p, n, flags);
	return (struct fal_json_text){ p, n };
}

static void line_read_record(struct fal_trace_line *l, const json_t *o,
			     const struct fal_schema *r, void *out);

/* Reads an array of records, or of hexadecimal strings, as one array of C. */
static struct fal_trace_list
read_list(struct fal_trace_line *l, const json_t *v, const struct fal_member *m)
{
	const size_t n = read_length(l, v, m->name, 0);
	const size_t size = m->kind == FAL_M_LIST ? m->of()->size : sizeof(char *);
	uint8_t *p = line_alloc(l, n, size);
	for (size_t i = 0; i < n && l->err == 0; i++) {
		const json_t *element = json_array_get(v, i);
		if (m->kind == FAL_M_LIST)
			line_read_record(l, element, m->of(), p + i * size);
		else
			((const char **)(void *)p)[i] =
				read_hex(l, element, m->name, m->arg);
	}
	return (struct fal_trace_list){ p, l->err == 0 ? n : 0 };
}

static const void *
read_object(struct fal_trace_line *l, const json_t *v, const struct fal_member *m)
{
	const struct fal_schema *r = m->of();
	void *p = line_alloc(l, 1, r->size);
	if (!json_is_object(v))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not an object", m->name);
	else if (p != NULL)
		line_read_record(l, v, r, p);
	return p;
}

/* Reads the value of a member into its place of the struct; v NULL: it is absent. */
static void
read_member(struct fal_trace_line *l, const json_t *v, const struct fal_member *m,
	    void *at)
{
	struct fal_trace_list list = { 0 };
	if (v == NULL) {
		if (m->when == FAL_MUST)
			fal_trace_fail(l, FAL_EFORMAT, "%s: missing", m->name);
		else if (m->when == FAL_OPT && m->kind == FAL_M_WHOLE)
			*(uint64_t *)at = FAL_TRACE_ABSENT;
		else if (m->when == FAL_OPT)
			*(double *)at = (double)NAN;
		return;
	}
	switch (m->kind) {
	case FAL_M_WHOLE:
		*(uint64_t *)at = read_whole(l, v, m->name, m->arg);
		break;
	case FAL_M_ID:
		*(uint32_t *)at = (uint32_t)read_whole(l, v, m->name, UINT32_MAX);
		break;
	case FAL_M_REAL:
		*(double *)at = read_real(l, v, m->name);
		break;
	case FAL_M_LOSS:
		*(double *)at = json_is_null(v) ? (double)NAN : read_real(l, v, m->name);
		break;
	case FAL_M_SECONDS:
		*(double *)at = read_seconds(l, v, m->name);
		break;
	case FAL_M_FLAG:
		if (!json_is_boolean(v))
			fal_trace_fail(l, FAL_EFORMAT, "%s: neither true nor false",
				       m->name);
		*(bool *)at = json_is_true(v);
		break;
	case FAL_M_TEXT:
		*(const char **)at = read_text(l, v, m->name);
		break;
	case FAL_M_WORD:
		*(uint32_t *)at = read_word(l, v, m);
		break;
	case FAL_M_HEX:
		*(const char **)at = read_hex(l, v, m->name, m->arg);
		break;
	case FAL_M_WORD64:
		*(struct fal_hex64 *)at =
			(struct fal_hex64){ true, strtoull(read_hex(l, v, m->name, 16),
							   NULL, 16) };
		break;
	case FAL_M_TUPLE:
		read_length(l, v, m->name, m->arg);
		list = line_read_rows(l, v, &(struct fal_member){ .name = m->name },
				      UINT32_MAX);
		break;
	case FAL_M_ROWS:
		list = line_read_rows(l, v, m, FAL_TRACE_NUM_MAX);
		break;
	case FAL_M_REALS:
		list = line_read_rows(l, v, m, 0);
		break;
	case FAL_M_HEXES:
	case FAL_M_LIST:
		list = read_list(l, v, m);
		break;
	case FAL_M_OBJECT:
		list.v = read_object(l, v, m);
		memcpy(at, &list.v, sizeof(list.v));
		return;
	case FAL_M_JSON:
		*(struct fal_json_text *)at = read_json(l, v);
		break;
	}
	/* Pointers of all types have the same representation. */
	if (m->kind >= FAL_M_TUPLE && m->kind <= FAL_M_LIST)
		memcpy(at, &list, sizeof(list));
}

static void
line_read_record(struct fal_trace_line *l, const json_t *o, const struct fal_schema *r,
		 void *out)
{
	for (size_t i = 0; i < r->members && l->err == 0; i++)
		read_member(l, json_object_get(o, r->member[i].name), &r->member[i],
			    (uint8_t *)out + r->member[i].at);
}

/* ---- lines ------------------------------------------------------------------------ */

struct fal_trace_line *
fal_trace_line_keep(struct fal_trace_line *l)
{
	struct fal_trace_line *copy = fal_xcalloc(1, sizeof(*copy));
	*copy = *l;
	copy->text = NULL;
	copy->n = 0;
	l->o = NULL;
	l->blocks = NULL;
	return copy;
}

void
fal_trace_line_free(struct fal_trace_line *l)
{
	if (l == NULL)
		return;
	line_clear(l);
	free(l);
}

struct fal_trace_reader *
fal_trace_reader_new(int (*on_line)(void *arg, struct fal_trace_line *l), void *arg)
{
	struct fal_trace_reader *r = fal_xcalloc(1, sizeof(*r));
	r->on_line = on_line;
	r->arg = arg;
	return r;
}

void
fal_trace_reader_deliver_cut(struct fal_trace_reader *r)
{
	r->delivers_cut = true;
}

const char fal_trace_early_end[] = "the trace ends before the job: it may go on";

bool
fal_trace_is_last(const struct fal_trace_line *l)
{
	return l->event == FAL_EV_DONE || l->event == FAL_EV_FAILED;
}

void
fal_trace_ending_note(struct fal_trace_ending *e, const struct fal_trace_line *l)
{
	e->over |= fal_trace_is_last(l);
	if (l->event == FAL_EV_HOLD)
		e->stopped = strcmp(l->is.hold.why, "stopped") == 0;
	else if (l->event == FAL_EV_RESTART)
		e->stopped = false;
}

void
fal_trace_reader_free(struct fal_trace_reader *r)
{
	if (r == NULL)
		return;
	fal_unzip_free(r->unzip);
	fal_buf_free(&r->part);
	free(r->restart);
	free(r);
}

/* The first line must be job, or a gap in place of the job line.  No other line may be
 * job, and t must not decrease.  Reads hash and incarnation without the schema, so that
 * the message names them even if the second job line is incomplete. */
static void
reader_check_order(struct fal_trace_reader *r, struct fal_trace_line *l)
{
	const char *ev = read_text(l, json_object_get(l->o, "ev"), "ev");
	const char *hash = json_string_value(json_object_get(l->o, "hash"));
	const bool is_job = strcmp(ev, "job") == 0;
	if (hash == NULL)
		hash = "";
	if (l->number == 1 && is_job)
		snprintf(r->hash, sizeof(r->hash), "%s", hash);
	else if (l->number == 1 && strcmp(ev, "gap") != 0)
		fal_trace_fail(l, FAL_EINVAL, "the first line is not job");
	else if (is_job)
		fal_trace_fail(l, FAL_EINVAL,
			       "a second job line: the trace of %s (incarnation %lld) "
			       "begins here",
			       strncmp(hash, r->hash, sizeof(r->hash) - 1) == 0
				       ? "the same job"
				       : "another job",
			       (long long)json_integer_value(
				       json_object_get(l->o, "incarnation")));
	l->ev = ev;
	if (l->t < r->t)
		fal_trace_fail(l, FAL_EINVAL, "t: %.15g is before %.15g of line %ju",
			       l->t, r->t, r->number);
	r->t = l->t;
}

/* Notes the line if it is a restart.  Only lines with this word are parsed. */
static void
reader_note_restart(struct fal_trace_reader *r, struct fal_trace_line *l)
{
	const char *text = (const char *)r->part.p;
	if (memmem(text, r->part.n, "\"restart\"", 9) == NULL)
		return;
	json_error_t why;
	json_t *o = fal_json_load(text, r->part.n, 0, &why);
	const char *ev = json_string_value(json_object_get(o, "ev"));
	if (o == NULL && why.text[0] == '\0')
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	if (ev != NULL && strcmp(ev, "restart") == 0) {
		const json_int_t n = json_integer_value(json_object_get(o, "lines"));
		FAL_XGROW(r->restart, r->restart_cap, r->restarts + 1);
		r->restart[r->restarts++] =
			(struct restart){ l->number, n > 0 ? (uint64_t)n : 0 };
	}
	json_decref(o);
}

/* Parses the collected line and delivers it; the outcome is l->err. */
static void
reader_deliver(struct fal_trace_reader *r, struct fal_trace_line *l)
{
	const char *text = (const char *)r->part.p;
	json_error_t why;
	json_t *o = fal_json_load(text, r->part.n, JSON_REJECT_DUPLICATES, &why);
	if (o == NULL) {
		const int err = why.text[0] == '\0' ? FAL_ENOMEM : FAL_EFORMAT;
		fal_trace_fail(l, err, "column %d: %s", why.column,
			       fal_text_unless_key(why.text));
		return;
	}
	if (!json_is_object(o))
		fal_trace_fail(l, FAL_EFORMAT, "not a JSON object");
	l->o = o;
	l->text = text;
	l->n = r->part.n;
	const json_t *t = json_object_get(o, "t");
	if (t == NULL)
		fal_trace_fail(l, FAL_EFORMAT, "t: missing");
	l->t = read_seconds(l, t, "t");
	reader_check_order(r, l);
	l->event = fal_event_find(l->ev);
	if (l->event != FAL_EV_OTHER && l->err == 0) {
		const struct fal_schema *s = fal_event_schema(l->event);
		line_read_record(l, o, s, &l->is);
		for (size_t i = 0; i < s->members && l->err == 0; i++) {
			const void *at = (uint8_t *)&l->is + s->member[i].at;
			if (strcmp(s->member[i].name, "worker") == 0)
				l->worker = *(const char *const *)at;
			else if (strcmp(s->member[i].name, "id") == 0)
				l->id = *(const uint32_t *)at;
		}
	}
	bool noted = l->event != FAL_EV_RESTART;
	for (size_t i = 0; i < r->restarts; i++) {
		const struct restart *is = &r->restart[i];
		l->cut |= l->number < is->number && r->counted >= is->lines;
		noted |= l->number == is->number;
	}
	/* A restart must not take back delivered lines. */
	if (!noted && l->err == 0 && l->is.restart.lines < r->counted)
		fal_trace_fail(l, FAL_EINVAL,
			       "the job goes on from line %ju, but later lines were read "
			       "already: give the file itself",
			       l->is.restart.lines);
	r->counted += l->event == FAL_EV_GAP ? l->is.gap.lines : 1;
	if (l->err == 0 && (!l->cut || r->delivers_cut)) {
		int err = r->on_line(r->arg, l);
		if (err < 0)
			fal_trace_fail(l, err, "%s", fal_strerror(err));
	}
	line_clear(l);
}

static int
reader_stop(struct fal_trace_reader *r, const struct fal_trace_line *l,
	    struct fal_diag *diag)
{
	r->err = l->err;
	r->diag = l->diag;
	return fal_diag_set(diag, r->err, "%s", r->diag.text);
}

static struct fal_trace_line
reader_next_line(const struct fal_trace_reader *r)
{
	return (struct fal_trace_line){ .number = r->number + 1, .ev = "" };
}

static int
reader_feed_plain(struct fal_trace_reader *r, const void *p, size_t n,
		  struct fal_diag *diag)
{
	const uint8_t *at = p;
	while (n > 0) {
		const uint8_t *nl = memchr(at, '\n', n);
		size_t k = nl != NULL ? (size_t)(nl - at) : n;
		struct fal_trace_line l = reader_next_line(r);
		if (k > FAL_TRACE_LINE_MAX - r->part.n)
			fal_trace_fail(&l, FAL_ELIMIT, "longer than %zu bytes",
				       FAL_TRACE_LINE_MAX);
		else
			fal_put_bytes(&r->part, at, k);
		if (r->part.err != 0)
			fal_trace_fail(&l, r->part.err, "%s", fal_strerror(r->part.err));
		if (nl != NULL && l.err == 0) {
			r->part.n -= r->part.n > 0 && r->part.p[r->part.n - 1] == '\r';
			(r->finds_restarts ? reader_note_restart : reader_deliver)(r, &l);
			fal_buf_clear(&r->part);
			r->number++;
			k++;
		}
		if (l.err != 0)
			return reader_stop(r, &l, diag);
		at += k;
		n -= k;
	}
	return 0;
}

static int
reader_feed_frames(struct fal_trace_reader *r, const void *p, size_t n,
		   struct fal_diag *diag)
{
	struct fal_rd in = fal_rd_init(p, n);
	const uint8_t *piece;
	int err;
	do {
		err = fal_unzip_next(r->unzip, &in, &piece, &n);
		if (err < 0) {
			struct fal_trace_line l = reader_next_line(r);
			fal_trace_fail(&l, err, "zstd: byte %ju: %s",
				       fal_unzip_frame(r->unzip),
				       err == FAL_EFORMAT  ? "not a frame, or damaged"
				       : err == FAL_ELIMIT ? "a window above 128 MiB"
							   : fal_strerror(err));
			return reader_stop(r, &l, diag);
		}
		err = reader_feed_plain(r, piece, n, diag);
	} while (err == 0 && n > 0);
	return err;
}

static int
reader_feed(struct fal_trace_reader *r, const void *p, size_t n, struct fal_diag *diag)
{
	if (r->err != 0)
		return fal_diag_set(diag, r->err, "%s", r->diag.text);
	if (n > 0 && !r->begun) {
		const bool zstd = *(const uint8_t *)p == ZSTD_FIRST;
		const struct fal_filetype *kind = zstd ? NULL : fal_filetype_of(p, n);
		const size_t bom = fal_text_bom(p, n);
		struct fal_trace_line l = reader_next_line(r);
		r->begun = true;
		if (kind != NULL)
			fal_trace_fail(&l, FAL_EFORMAT, "the file is %s", kind->name);
		else if (zstd)
			r->unzip = fal_unzip_new();
		if (l.err < 0)
			return reader_stop(r, &l, diag);
		p = (const uint8_t *)p + bom;
		n -= bom;
	}
	return (r->unzip != NULL ? reader_feed_frames : reader_feed_plain)(r, p, n, diag);
}

int
fal_trace_find_restarts(void *reader, const void *p, size_t n)
{
	struct fal_trace_reader *r = reader;
	r->finds_restarts = true;
	return reader_feed(r, p, n, NULL) == FAL_ENOMEM ? FAL_ENOMEM : FAL_OK;
}

/* Ends the first pass: the trace begins again. */
static void
reader_end_first_pass(struct fal_trace_reader *r)
{
	if (!r->finds_restarts)
		return;
	fal_unzip_free(r->unzip);
	fal_buf_free(&r->part);
	*r = (struct fal_trace_reader){
		.on_line = r->on_line,
		.delivers_cut = r->delivers_cut,
		.arg = r->arg,
		.restart = r->restart,
		.restarts = r->restarts,
		.restart_cap = r->restart_cap,
	};
}

int
fal_trace_feed(struct fal_trace_reader *r, const void *p, size_t n, struct fal_diag *diag)
{
	reader_end_first_pass(r);
	return reader_feed(r, p, n, diag);
}

int
fal_trace_end(struct fal_trace_reader *r, struct fal_diag *diag)
{
	reader_end_first_pass(r);
	if (r->err != 0)
		return fal_diag_set(diag, r->err, "%s", r->diag.text);
	struct fal_trace_line l = reader_next_line(r);
	const int err = r->number > 0 ? FAL_ETRUNC : FAL_EFORMAT;
	if (r->part.n > 0)
		fal_trace_fail(&l, err, "ends in the middle of the line");
	else if (r->unzip != NULL && fal_unzip_end(r->unzip) < 0)
		fal_trace_fail(&l, err, "ends in the middle of a zstd frame");
	return l.err < 0 ? reader_stop(r, &l, diag) : 0;
}

int
fal_trace_check_max(struct fal_trace_line *l, const char *name, uint64_t n, uint64_t max)
{
	if (n > max)
		fal_trace_fail(l, FAL_ELIMIT, "%s: %ju is above %ju", name, n, max);
	return l->err;
}

void
fal_trace_read_metrics(struct fal_trace_line *l, const struct fal_ev_metric *v, size_t n,
		       double samples, struct fal_metric_names *names,
		       struct fal_metrics *out)
{
	*out = (struct fal_metrics){ .samples = samples };
	for (size_t i = 0; i < n && l->err == 0; i++) {
		const bool is_new = fal_metric_find(names, v[i].name) == names->n;
		const char *fault = is_new ? fal_metric_add_name(names, v[i].name) : NULL;
		if (fault != NULL)
			fal_trace_fail(l, FAL_EINVAL, "metrics: '%s' %s",
				       FAL_QUOTE(v[i].name), fault);
		else
			out->sum[fal_metric_find(names, v[i].name)] = v[i].sum;
	}
}

/* ---- job --------------------------------------------------------------------------- */

int
fal_trace_job_read(struct fal_trace_line *l, struct fal_trace_job *out)
{
	const struct fal_ev_job *e = &l->is.job;
	const bool tail = e->tail > 0;
	const struct fal_trace_job j = {
		.grid = { .samples = (uint32_t)e->samples,
			  .batch = (uint32_t)e->batch,
			  .task = (uint32_t)e->task,
			  .epochs = (uint32_t)e->epochs,
			  .parts = e->parts > 0 ? (uint32_t)e->parts : 1,
			  .tail_task = (uint32_t)(tail ? e->tail_task : e->task),
			  .tail = tail ? e->tail : 0 },
		.blocks = e->blocks,
		.clocks_per_epoch = e->clocks_per_epoch,
		.clocks = e->clocks,
		.sums = e->audit == FAL_AUDIT_SUMS,
		.skips = e->nonfinite > 0,
		.hashes = e->hashes,
		.test = e->test,
		.shards = e->shards,
		.params = e->params,
	};
	if (e->epochs == 0 || e->batch == 0 || e->task == 0 || e->samples == 0 ||
	    j.blocks == 0 || j.shards == 0)
		return fal_trace_fail(
			l, FAL_EINVAL,
			"epochs, batch, task, samples, blocks, shards: one of them is 0");
	if (tail && (e->tail > 1 || e->tail_task == 0 || e->tail_task > e->task))
		return fal_trace_fail(
			l, FAL_EINVAL,
			"tail, tail_task: 0, or more than the batch or the task");
	if (fal_grid_tasks_max(&j.grid) > FAL_TRACE_TASKS_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "batch: more than %ju tasks",
				      FAL_TRACE_TASKS_MAX);
	const uint64_t per_epoch = fal_grid_epoch_clocks(&j.grid);
	if (j.clocks_per_epoch != per_epoch)
		return fal_trace_fail(
			l, FAL_EINVAL,
			"clocks_per_epoch: %ju, but samples / batch make %ju",
			j.clocks_per_epoch, per_epoch);
	if (j.clocks % per_epoch != 0 || j.clocks / per_epoch != e->epochs)
		return fal_trace_fail(l, FAL_EINVAL,
				      "clocks: %ju, but it is not epochs × %ju", j.clocks,
				      per_epoch);
	*out = j;
	return 0;
}

int
fal_trace_job_restart(struct fal_trace_line *l, struct fal_trace_job *job)
{
	const uint64_t epochs = l->is.restart.epochs;
	if (l->err == 0 && epochs < job->grid.epochs)
		fal_trace_fail(l, FAL_EINVAL, "epochs: %ju, but there were %u", epochs,
			       job->grid.epochs);
	if (l->err == 0 && epochs > FAL_TRACE_NUM_MAX / job->clocks_per_epoch)
		fal_trace_fail(l, FAL_ELIMIT, "epochs: too many");
	if (l->err != 0)
		return l->err;
	job->grid.epochs = (uint32_t)epochs;
	job->clocks = epochs * job->clocks_per_epoch;
	return 0;
}

uint64_t
fal_trace_range_samples(const struct fal_trace_job *job, uint64_t c, uint64_t first,
			uint64_t count)
{
	const uint32_t tasks = fal_grid_tasks(&job->grid, c);
	if (first >= tasks)
		return 0;
	const uint64_t n = count < tasks - first ? count : tasks - first;
	return fal_grid_range_samples(&job->grid, c, (uint32_t)first, (uint32_t)n);
}

int
fal_trace_scheme_read(struct fal_trace_line *l, const char *text, struct fal_rule *out)
{
	struct fal_diag why;
	struct fal_rule r;
	int err = fal_rule_parse(text, &r, &why);
	if (err < 0)
		return fal_trace_fail(l, err, "scheme: %s", why.text);
	*out = r;
	return 0;
}

/* ---- join, clock ------------------------------------------------------------------- */

double
fal_trace_join_fixed(const struct fal_ev_join *j, const struct fal_trace_job *job)
{
	const double task = job->grid.task, full = fal_grid_full_samples(&job->grid);
	if (!(j->task_s > 0) || j->large == 0 || isnan(j->large_s))
		return (double)NAN;
	const double fixed =
		fal_bound_fixed(task, j->task_s, (double)j->large, j->large_s);
	return fixed / fal_bound_task_size(fixed, full / task);
}

double
fal_trace_full_tasks(const struct fal_trace_job *job, double fixed,
		     const struct fal_trace_pace *p)
{
	const double tasks = (double)p->tasks, full = fal_grid_full_samples(&job->grid);
	return p->tasks > 0
		       ? tasks * fal_bound_task_size(fixed, p->samples / (tasks * full))
		       : 0;
}

/* Returns whether so many tasks can have these samples. */
static bool
tasks_can_have(const struct fal_trace_job *job, uint64_t tasks, uint64_t samples)
{
	return samples >= tasks && samples <= tasks * fal_grid_full_samples(&job->grid);
}

int
fal_trace_clock_paces(struct fal_trace_line *l, const struct fal_trace_job *job,
		      struct fal_trace_paces *out)
{
	const struct fal_ev_clock *c = &l->is.clock;
	const struct fal_trace_pace all = { c->done + c->lost, (double)c->samples,
					    c->task_s };
	uint64_t tasks = 0, samples = 0;
	double sum = 0;
	if (!tasks_can_have(job, all.tasks, c->samples))
		fal_trace_fail(l, FAL_EINVAL, "samples: %ju of %ju tasks", c->samples,
			       all.tasks);
	*out = (struct fal_trace_paces){ .all = all, .pace = { all }, .paces = 1 };
	if (l->err != 0 || c->paces.n == 0)
		return l->err;
	if (c->paces.n < 2 || c->paces.n > FAL_WORK_PACES)
		return fal_trace_fail(l, FAL_ELIMIT, "paces: not from 2 to %d",
				      FAL_WORK_PACES);
	out->paces = c->paces.n;
	for (size_t i = 0; i < out->paces; i++) {
		const uint64_t *row = c->paces.v + 3 * i;
		if (row[0] == 0)
			return fal_trace_fail(l, FAL_EINVAL, "paces: a pace of no task");
		if (row[0] > all.tasks || !tasks_can_have(job, row[0], row[2]))
			return fal_trace_fail(l, FAL_EINVAL,
					      "paces: %ju samples of %ju tasks", row[2],
					      row[0]);
		out->pace[i] = (struct fal_trace_pace){ row[0], (double)row[2],
							1e-6 * (double)row[1] };
		tasks += row[0];
		samples += row[2];
		sum += (double)row[0] * out->pace[i].task_s;
	}
	if (tasks != all.tasks)
		fal_trace_fail(l, FAL_EINVAL, "paces: %ju tasks in all, not %ju", tasks,
			       all.tasks);
	if (samples != c->samples)
		fal_trace_fail(l, FAL_EINVAL, "paces: %ju samples in all, not %ju",
			       samples, c->samples);
	/* The line rounds each number to a microsecond. */
	const double mean = sum / (double)all.tasks;
	if (fabs(mean - all.task_s) > 2e-6 + 1e-5 * mean)
		fal_trace_fail(l, FAL_EINVAL, "paces: their mean is %.6f, task_s %.6f",
			       mean, all.task_s);
	return l->err;
}

double
fal_trace_clock_latency(const struct fal_ev_clock *c, bool moves)
{
	return fmin(c->wait, (moves ? 2 : 1) * c->rtt);
}

/* ---- ledger ------------------------------------------------------------------------ */

struct fal_trace_round
fal_trace_round_of(const struct fal_ev_ledger *e)
{
	struct fal_trace_round r = {
		.round = e->round,
		.clock = e->clock,
		.first = e->first,
		.tasks = e->tasks,
		.samples = e->samples,
		.version = e->version,
		.late = e->late,
		.blocks = e->blocks,
		.end = (enum fal_trace_end)e->end,
		.delta = e->kind == FAL_TRACE_DELTA,
		.has_stale = e->stale != NULL,
		.moved = e->move.n > 0,
		.owner = (uint32_t)e->owner,
		.group = e->group,
		.local = e->local,
		.weight = isnan(e->weight) ? 1 : e->weight,
		.among = e->among,
		.steps = e->steps,
		.divisor = e->divisor,
		.slot = e->slot,
	};
	if (e->stale != NULL)
		r.stale = *e->stale;
	return r;
}

bool
fal_trace_round_is_complete(const struct fal_trace_round *r)
{
	return r->end == FAL_END_APPLIED || r->end == FAL_END_FORWARDED;
}

int
fal_trace_check_verified(struct fal_trace_line *l)
{
	const uint64_t *v = l->is.ledger.verified.v;
	if (v != NULL && v[1] + v[2] > v[0])
		fal_trace_fail(l, FAL_EFORMAT, "verified: more answers than questions");
	return l->err;
}

uint64_t
fal_trace_rows_tasks(struct fal_numbers rows, size_t width)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < rows.n; i++)
		sum += rows.v[width * (i + 1) - 1];
	return sum;
}

uint64_t
fal_trace_rows_samples(const struct fal_trace_job *job, uint64_t clock,
		       struct fal_numbers rows, size_t width)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < rows.n; i++) {
		const uint64_t *end = rows.v + width * (i + 1);
		sum += fal_trace_range_samples(job, clock, end[-2], end[-1]);
	}
	return sum;
}

uint64_t
fal_trace_round_duplicates(const struct fal_ev_ledger *e, const struct fal_trace_job *job)
{
	uint64_t sum = fal_trace_rows_samples(job, e->clock, e->lost, 3);
	for (size_t i = 0; i < e->contrib.n; i++) {
		const struct fal_ev_contrib *c = &e->contrib.v[i];
		if (c->fills.n > 0 || e->end == FAL_END_ABANDONED)
			sum += fal_trace_rows_samples(job, e->clock, c->tasks, 2);
	}
	return sum;
}

uint64_t
fal_trace_round_samples(const struct fal_trace_round *r, struct fal_numbers skipped,
			const struct fal_trace_job *job)
{
	const uint64_t all = fal_trace_range_samples(job, r->clock, r->first, r->tasks);
	const uint64_t skipped_samples =
		fal_trace_rows_samples(job, r->clock, skipped, 2);
	return all > skipped_samples ? all - skipped_samples : 0;
}

const char *
fal_trace_round_name(const struct fal_trace_round *r,
		     char out[static FAL_TRACE_ROUND_NAME])
{
	if (r->round == r->clock && r->owner == 0 && r->group == 0)
		snprintf(out, FAL_TRACE_ROUND_NAME, "clock %ju", r->clock);
	else
		snprintf(out, FAL_TRACE_ROUND_NAME, "round %ju of clock %ju", r->round,
			 r->clock);
	return out;
}

/* ---- place, shard ------------------------------------------------------------------ */

void
fal_trace_place_free(struct fal_trace_place *p)
{
	free(p->shard);
	*p = (struct fal_trace_place){ 0 };
}

int
fal_trace_place_read(struct fal_trace_line *l, const struct fal_trace_job *job,
		     struct fal_trace_place *p)
{
	const struct fal_ev_place *e = &l->is.place;
	struct fal_trace_place map = {
		.map = e->map,
		.shards = (uint32_t)e->shards,
		.places = (uint32_t)(e->places > 0 ? e->places : e->shards),
		.blocks = (uint32_t)job->blocks,
	};
	if (job->blocks > FAL_TRACE_PLACED_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "more than %ju blocks",
				      FAL_TRACE_PLACED_MAX);
	if (e->rule[0] == '\0' || strlen(e->rule) >= sizeof(map.rule))
		return fal_trace_fail(l, FAL_EFORMAT, "rule: empty or too long");
	snprintf(map.rule, sizeof(map.rule), "%s", e->rule);
	map.shard = fal_xcalloc(map.blocks, sizeof(*map.shard));
	/* Runs [shard, first, count], which must have each block once, in order. */
	uint64_t next = 0;
	for (size_t i = 0; i < e->runs.n && l->err == 0; i++) {
		const uint64_t *row = e->runs.v + 3 * i;
		if (row[0] == 0 || row[0] > map.shards)
			fal_trace_fail(l, FAL_EINVAL, "runs: there is no shard %ju",
				       row[0]);
		else if (row[1] != next || row[2] == 0 || row[2] > map.blocks - next)
			fal_trace_fail(l, FAL_EINVAL,
				       "runs: not each block once, in order");
		for (; l->err == 0 && next < row[1] + row[2]; next++)
			map.shard[next] = (uint32_t)row[0] - 1;
	}
	if (next != map.blocks)
		fal_trace_fail(l, FAL_EINVAL, "runs: not each block once, in order");
	if (l->err < 0) {
		fal_trace_place_free(&map);
		return l->err;
	}
	fal_trace_place_free(p);
	*p = map;
	return FAL_OK;
}

int
fal_trace_shard_check(struct fal_trace_line *l, const struct fal_trace_job *job)
{
	const struct fal_ev_shard *e = &l->is.shard;
	if (e->shard == 0)
		return fal_trace_fail(l, FAL_EINVAL, "shard: 0");
	fal_trace_check_max(l, "clock", e->clock, job->clocks - 1);
	return fal_trace_check_max(l, "blocks", e->blocks, job->blocks);
}

/* ---- staleness --------------------------------------------------------------------- */

static void
stale_count(struct fal_stale *s, enum fal_stale_kind kind, uint64_t value,
	    uint64_t samples)
{
	s->samples[kind][value < FAL_STALE_MAX ? value : FAL_STALE_MAX] += samples;
}

void
fal_stale_add(struct fal_stale *s, const struct fal_trace_round *r, uint64_t version)
{
	const uint64_t since = r->version + 1;
	stale_count(s, FAL_STALE_CLOCKS, r->stale.clocks, r->samples);
	stale_count(s, FAL_STALE_UPDATES, version > since ? version - since : 0,
		    r->samples);
	if (r->stale.rank > 0)
		stale_count(s, FAL_STALE_RANK, r->stale.rank, r->samples);
}

const char *
fal_stale_name(enum fal_stale_kind kind)
{
	static const char *const names[] = { "clocks", "updates", "rank" };
	return names[kind];
}

/* ---- workers ----------------------------------------------------------------------- */

size_t *
fal_ids_get(const struct fal_ids *ids, uint64_t id)
{
	const uint32_t key = id <= UINT32_MAX ? (uint32_t)id : UINT32_MAX;
	const size_t at = fal_sorted_place(ids->v, ids->n, sizeof(*ids->v), key);
	return at < ids->n && ids->v[at].id == id ? &ids->v[at].value : NULL;
}

void
fal_ids_put(struct fal_ids *ids, uint32_t id, size_t value)
{
	const size_t at = fal_sorted_place(ids->v, ids->n, sizeof(*ids->v), id);
	assert(at == ids->n || ids->v[at].id != id);
	FAL_XGROW(ids->v, ids->cap, ids->n + 1);
	memmove(&ids->v[at + 1], &ids->v[at], (ids->n - at) * sizeof(*ids->v));
	ids->v[at] = (struct fal_id){ .id = id, .value = value };
	ids->n++;
}

bool
fal_names_get(json_t *const *names, const char *name, size_t *out)
{
	const json_t *v = json_object_get(*names, name);
	*out = (size_t)json_integer_value(v);
	return v != NULL;
}

void
fal_names_put(json_t **names, const char *name, size_t value)
{
	if (*names == NULL)
		*names = json_object();
	if (json_object_set_new(*names, name, json_integer((json_int_t)value)) < 0)
		fal_out_of_memory();
}

void
fal_ids_free(struct fal_ids *ids)
{
	free(ids->v);
	*ids = (struct fal_ids){ 0 };
}
