/* The line reader of traces and its typed getters. */
#include "trace/reader.h"

#include "base/filetype.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/text.h"
#include "wire/zip.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* That a zstd frame begins with, and no line: '('. */
#define ZSTD_FIRST 0x28

/* The longest time that is believed, in seconds: 30 years. */
#define SECONDS_MAX 1e9

struct fal_trace_reader {
	int (*on_line)(void *arg, struct fal_trace_line *l);
	int (*on_cut)(void *arg, struct fal_trace_line *l); /* or NULL */
	void *arg;
	bool begun;                   /* there was a byte */
	struct fal_unzip *unzip;      /* NULL: plain */
	struct fal_buf part;          /* the line so far */
	uint64_t number;              /* lines completed */
	uint64_t counted;             /* the same, and for a gap what it stands for */
	struct fal_trace_cuts *found; /* this is a finder */
	const struct fal_trace_cuts *cuts;
	double t;      /* of the last one */
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
	/* Does it begin with the name of a field, and not with a word? */
	const bool is_of_field = what[strcspn(what, ": ")] == ':';
	return fal_diag_set(&l->diag, err, "%llu: %.40s%s%s",
			    (unsigned long long)l->number, l->ev,
			    l->ev[0] == '\0' ? ""
			    : is_of_field    ? "."
					     : ": ",
			    what);
}

const json_t *
fal_trace_at(const json_t *o, enum fal_field key)
{
	return json_object_get(o, fal_field_name(key));
}

/* The field, which is of this kind, or NULL with the error set. */
static const json_t *
field(struct fal_trace_line *l, const json_t *o, enum fal_field key,
      enum fal_field_kind kind)
{
	assert(fal_field_kind(key) == kind);
	if (l->err != 0)
		return NULL;
	const json_t *v = fal_trace_at(o, key);
	if (v == NULL)
		fal_trace_fail(l, FAL_EFORMAT, "%s: missing", fal_field_name(key));
	return v;
}

static uint64_t
number(struct fal_trace_line *l, const json_t *v, enum fal_field key, uint64_t max)
{
	if (v == NULL || l->err != 0)
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 0) {
		fal_trace_fail(l, FAL_EFORMAT, "%s: not a whole number",
			       fal_field_name(key));
		return 0;
	}
	uint64_t n = (uint64_t)json_integer_value(v);
	if (n > max) {
		fal_trace_fail(l, FAL_ELIMIT, "%s: %llu is above %llu",
			       fal_field_name(key), (unsigned long long)n,
			       (unsigned long long)max);
		return 0;
	}
	return n;
}

uint64_t
fal_trace_get_u64(struct fal_trace_line *l, const json_t *o, enum fal_field key,
		  uint64_t max)
{
	return number(l, field(l, o, key, FAL_FIELD_WHOLE), key, max);
}

double
fal_trace_get_f64(struct fal_trace_line *l, const json_t *o, enum fal_field key)
{
	const json_t *v = field(l, o, key, fal_field_kind(key));
	assert(fal_field_kind(key) == FAL_FIELD_REAL ||
	       fal_field_kind(key) == FAL_FIELD_SECONDS);
	if (v == NULL)
		return 0;
	if (!json_is_number(v))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not a number", fal_field_name(key));
	return json_number_value(v);
}

uint64_t
fal_trace_get_count(struct fal_trace_line *l)
{
	return fal_trace_has(l->o, FAL_F_COUNT)
		       ? fal_trace_get_u64(l, l->o, FAL_F_COUNT, FAL_TRACE_NUM_MAX)
		       : 1;
}

double
fal_trace_get_loss(struct fal_trace_line *l)
{
	return json_is_null(fal_trace_at(l->o, FAL_F_LOSS))
		       ? (double)NAN
		       : fal_trace_get_f64(l, l->o, FAL_F_LOSS);
}

double
fal_trace_get_seconds(struct fal_trace_line *l, const json_t *o, enum fal_field key)
{
	double v = fal_trace_get_f64(l, o, key);
	if (l->err == 0 && !(v >= 0 && v <= SECONDS_MAX))
		fal_trace_fail(l, FAL_EINVAL, "%s: %g seconds", fal_field_name(key), v);
	return l->err == 0 ? v : 0;
}

const char *
fal_trace_get_str(struct fal_trace_line *l, const json_t *o, enum fal_field key)
{
	const json_t *v = field(l, o, key, FAL_FIELD_TEXT);
	if (v != NULL && !json_is_string(v))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not a string", fal_field_name(key));
	return l->err == 0 ? json_string_value(v) : "";
}

const char *
fal_trace_get_hex(struct fal_trace_line *l, const json_t *o, enum fal_field key,
		  size_t digits)
{
	const char *s = fal_trace_get_str(l, o, key);
	if (l->err == 0 &&
	    (strlen(s) != digits || strspn(s, "0123456789abcdef") != digits))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not %zu hexadecimal digits",
			       fal_field_name(key), digits);
	return l->err == 0 ? s : "";
}

static int
put_text(const char *p, size_t n, void *out)
{
	fal_put_bytes(out, p, n);
	return ((struct fal_buf *)out)->err;
}

void
fal_trace_get_json(struct fal_trace_line *l, const json_t *o, enum fal_field key,
		   struct fal_buf *out)
{
	const json_t *v = field(l, o, key, FAL_FIELD_OBJECT);
	if (v != NULL &&
	    json_dump_callback(v, put_text, out, JSON_ENCODE_ANY | JSON_COMPACT) < 0)
		fal_trace_fail(l, FAL_ENOMEM, "%s: %s", fal_field_name(key),
			       fal_strerror(FAL_ENOMEM));
}

bool
fal_trace_has(const json_t *o, enum fal_field key)
{
	return fal_trace_at(o, key) != NULL;
}

bool
fal_trace_get_flag(struct fal_trace_line *l, const json_t *o, enum fal_field key)
{
	const json_t *v = fal_trace_at(o, key);
	assert(fal_field_kind(key) == FAL_FIELD_FLAG);
	if (v != NULL && !json_is_boolean(v))
		fal_trace_fail(l, FAL_EFORMAT, "%s: neither true nor false",
			       fal_field_name(key));
	return l->err == 0 && json_is_true(v);
}

/* The array, or NULL with the error set. */
static const json_t *
array(struct fal_trace_line *l, const json_t *o, enum fal_field key,
      enum fal_field_kind kind)
{
	const json_t *v = field(l, o, key, kind);
	if (v != NULL && !json_is_array(v))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not an array", fal_field_name(key));
	return l->err == 0 ? v : NULL;
}

size_t
fal_trace_get_len(struct fal_trace_line *l, const json_t *o, enum fal_field key)
{
	return json_array_size(array(l, o, key, FAL_FIELD_LIST));
}

static void
tuple(struct fal_trace_line *l, const json_t *v, enum fal_field key, size_t width,
      uint64_t *row)
{
	if (l->err == 0 && (!json_is_array(v) || json_array_size(v) != width))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not %zu numbers", fal_field_name(key),
			       width);
	for (size_t i = 0; i < width; i++)
		row[i] = number(l, json_array_get(v, i), key, FAL_TRACE_NUM_MAX);
}

void
fal_trace_get_row(struct fal_trace_line *l, const json_t *o, enum fal_field key, size_t i,
		  size_t width, uint64_t *row)
{
	tuple(l, json_array_get(array(l, o, key, FAL_FIELD_LIST), i), key, width, row);
}

void
fal_trace_get_tuple(struct fal_trace_line *l, const json_t *o, enum fal_field key,
		    size_t width, uint64_t *row)
{
	tuple(l, array(l, o, key, FAL_FIELD_TUPLE), key, width, row);
}

int
fal_trace_get_verified(struct fal_trace_line *l, uint64_t v[static 3])
{
	v[0] = v[1] = v[2] = 0;
	if (fal_trace_has(l->o, FAL_F_VERIFIED))
		fal_trace_get_tuple(l, l->o, FAL_F_VERIFIED, 3, v);
	if (l->err == 0 && (v[1] > v[0] || v[2] > v[0] - v[1]))
		fal_trace_fail(l, FAL_EFORMAT, "verified: more answers than questions");
	return l->err;
}

struct fal_trace_reader *
fal_trace_reader_new(int (*on_line)(void *arg, struct fal_trace_line *l), void *arg)
{
	struct fal_trace_reader *r = fal_calloc(1, sizeof(*r));
	if (r == NULL)
		return NULL;
	r->on_line = on_line;
	r->arg = arg;
	return r;
}

struct fal_trace_reader *
fal_trace_finder_new(struct fal_trace_cuts *out)
{
	struct fal_trace_reader *r = fal_trace_reader_new(NULL, NULL);
	if (r != NULL)
		r->found = out;
	return r;
}

void
fal_trace_reader_cut(struct fal_trace_reader *r, const struct fal_trace_cuts *c)
{
	r->cuts = c;
}

void
fal_trace_reader_on_cut(struct fal_trace_reader *r,
			int (*on_cut)(void *arg, struct fal_trace_line *l))
{
	r->on_cut = on_cut;
}

const char fal_trace_early_end[] = "the trace ends before the job: it may go on";

bool
fal_trace_is_last(const struct fal_trace_line *l)
{
	return strcmp(l->ev, "done") == 0 || strcmp(l->ev, "failed") == 0;
}

void
fal_trace_ending_note(struct fal_trace_ending *e, struct fal_trace_line *l)
{
	e->over |= fal_trace_is_last(l);
	if (strcmp(l->ev, "hold") == 0)
		e->stopped =
			strcmp(fal_trace_get_str(l, l->o, FAL_F_WHY), "stopped") == 0;
	else if (strcmp(l->ev, "restart") == 0)
		e->stopped = false;
}

void
fal_trace_cuts_free(struct fal_trace_cuts *c)
{
	free(c->v);
	*c = (struct fal_trace_cuts){ 0 };
}

void
fal_trace_reader_free(struct fal_trace_reader *r)
{
	if (r == NULL)
		return;
	fal_unzip_free(r->unzip);
	fal_buf_free(&r->part);
	free(r);
}

static void
judge_job(struct fal_trace_reader *r, struct fal_trace_line *l, const char *ev)
{
	const bool is_job = strcmp(ev, "job") == 0;
	const char *hash = json_string_value(fal_trace_at(l->o, FAL_F_HASH));
	const json_int_t n = json_integer_value(fal_trace_at(l->o, FAL_F_INCARNATION));
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
			       (long long)n);
}

/* The first line is job, or tells that it is missing; no other is job, and time goes on.
 */
static void
judge_order(struct fal_trace_reader *r, struct fal_trace_line *l)
{
	const char *ev = fal_trace_get_str(l, l->o, FAL_F_EV);
	if (l->err == 0)
		judge_job(r, l, ev);
	l->ev = ev;
	if (l->t < r->t)
		fal_trace_fail(l, FAL_EINVAL, "t: %.15g is before %.15g of line %llu",
			       l->t, r->t, (unsigned long long)r->number);
	r->t = l->t;
}

/* A number of the line, or 0. */
static uint64_t
whole(const json_t *o, enum fal_field key)
{
	const json_int_t n = json_integer_value(fal_trace_at(o, key));
	return n > 0 ? (uint64_t)n : 0;
}

/* Looks for what fal_trace_finder_new is for. */
static void
find(struct fal_trace_reader *r, struct fal_trace_line *l)
{
	const char *text = (const char *)r->part.p;
	const bool is = memmem(text, r->part.n, "\"restart\"", 9) != NULL;
	json_error_t why = { .text = "none" };
	json_t *o = is ? fal_json_load(text, r->part.n, 0, &why) : NULL;
	const char *ev = json_string_value(fal_trace_at(o, FAL_F_EV));
	if (o == NULL && why.text[0] == '\0')
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	if (ev != NULL && strcmp(ev, "restart") == 0) {
		if (FAL_GROW(r->found->v, r->found->cap, r->found->n + 1) < 0)
			fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		else
			r->found->v[r->found->n++] =
				(struct fal_trace_cut){ l->number,
							whole(o, FAL_F_LINES) };
	}
	json_decref(o);
}

/* Did the job go on from before this line? */
static bool
is_cut(const struct fal_trace_reader *r, const struct fal_trace_line *l)
{
	for (size_t i = 0; r->cuts != NULL && i < r->cuts->n; i++)
		if (l->number < r->cuts->v[i].at && r->counted >= r->cuts->v[i].lines)
			return true;
	return false;
}

/* A restart takes back nothing that was delivered. */
static void
judge_restart(const struct fal_trace_reader *r, struct fal_trace_line *l)
{
	const uint64_t lines = fal_trace_get_u64(l, l->o, FAL_F_LINES, FAL_TRACE_NUM_MAX);
	for (size_t i = 0; r->cuts != NULL && i < r->cuts->n; i++)
		if (r->cuts->v[i].at == l->number)
			return;
	if (l->err == 0 && lines < r->counted)
		fal_trace_fail(l, FAL_EINVAL,
			       "the job goes on from line %llu, and what follows it was "
			       "read already: give the file itself",
			       (unsigned long long)lines);
}

/* Parses the collected line and delivers it; fills *l with the outcome. */
static void
deliver(struct fal_trace_reader *r, struct fal_trace_line *l)
{
	if (r->found != NULL) {
		find(r, l);
		return;
	}
	json_error_t why;
	json_t *o = fal_json_load((const char *)r->part.p, r->part.n,
				  JSON_REJECT_DUPLICATES, &why);
	if (o == NULL) {
		const int err = why.text[0] == '\0' ? FAL_ENOMEM : FAL_EFORMAT;
		fal_trace_fail(l, err, "column %d: %s", why.column,
			       fal_text_unless_key(why.text));
		return;
	}
	if (!json_is_object(o))
		fal_trace_fail(l, FAL_EFORMAT, "not a JSON object");
	l->o = o;
	l->text = (const char *)r->part.p;
	l->n = r->part.n;
	l->t = fal_trace_get_seconds(l, o, FAL_F_T);
	judge_order(r, l);
	if (strcmp(l->ev, "restart") == 0)
		judge_restart(r, l);
	int (*const take)(void *arg, struct fal_trace_line *line) =
		is_cut(r, l) ? r->on_cut : r->on_line;
	if (l->err == 0 && take != NULL) {
		int err = take(r->arg, l);
		if (err < 0)
			fal_trace_fail(l, err, "%s", fal_strerror(err));
	}
	r->counted += strcmp(l->ev, "gap") == 0 ? whole(l->o, FAL_F_LINES) : 1;
	json_decref(o);
}

static int
stop(struct fal_trace_reader *r, const struct fal_trace_line *l, struct fal_diag *diag)
{
	r->err = l->err;
	r->diag = l->diag;
	return fal_diag_set(diag, r->err, "%s", r->diag.text);
}

static struct fal_trace_line
next_line(const struct fal_trace_reader *r)
{
	return (struct fal_trace_line){ .number = r->number + 1, .ev = "" };
}

static int
feed_plain(struct fal_trace_reader *r, const void *p, size_t n, struct fal_diag *diag)
{
	const uint8_t *at = p;
	while (n > 0) {
		const uint8_t *nl = memchr(at, '\n', n);
		size_t k = nl != NULL ? (size_t)(nl - at) : n;
		struct fal_trace_line l = next_line(r);
		if (k > FAL_TRACE_LINE_MAX - r->part.n)
			fal_trace_fail(&l, FAL_ELIMIT, "longer than %zu bytes",
				       FAL_TRACE_LINE_MAX);
		else
			fal_put_bytes(&r->part, at, k);
		if (r->part.err != 0)
			fal_trace_fail(&l, r->part.err, "%s", fal_strerror(r->part.err));
		if (nl != NULL && l.err == 0) {
			r->part.n -= r->part.n > 0 && r->part.p[r->part.n - 1] == '\r';
			deliver(r, &l);
			fal_buf_clear(&r->part);
			r->number++;
			k++;
		}
		if (l.err != 0)
			return stop(r, &l, diag);
		at += k;
		n -= k;
	}
	return 0;
}

static int
feed_frames(struct fal_trace_reader *r, const void *p, size_t n, struct fal_diag *diag)
{
	struct fal_rd in = fal_rd_init(p, n);
	const uint8_t *piece;
	int err;
	do {
		err = fal_unzip_next(r->unzip, &in, &piece, &n);
		if (err < 0) {
			struct fal_trace_line l = next_line(r);
			fal_trace_fail(&l, err, "zstd: byte %llu: %s",
				       (unsigned long long)fal_unzip_frame(r->unzip),
				       err == FAL_EFORMAT  ? "not a frame, or damaged"
				       : err == FAL_ELIMIT ? "a window above 128 MiB"
							   : fal_strerror(err));
			return stop(r, &l, diag);
		}
		err = feed_plain(r, piece, n, diag);
	} while (err == 0 && n > 0);
	return err;
}

int
fal_trace_feed(struct fal_trace_reader *r, const void *p, size_t n, struct fal_diag *diag)
{
	if (r->err != 0)
		return fal_diag_set(diag, r->err, "%s", r->diag.text);
	if (n > 0 && !r->begun) {
		const bool zstd = *(const uint8_t *)p == ZSTD_FIRST;
		const struct fal_filetype *kind = zstd ? NULL : fal_filetype_of(p, n);
		const size_t bom = fal_text_bom(p, n);
		struct fal_trace_line l = next_line(r);
		r->begun = true;
		if (kind != NULL)
			fal_trace_fail(&l, FAL_EFORMAT, "the file is %s", kind->name);
		else if (zstd && (r->unzip = fal_unzip_new()) == NULL)
			fal_trace_fail(&l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		if (l.err < 0)
			return stop(r, &l, diag);
		p = (const uint8_t *)p + bom;
		n -= bom;
	}
	return (r->unzip != NULL ? feed_frames : feed_plain)(r, p, n, diag);
}

int
fal_trace_find(void *finder, const void *p, size_t n)
{
	int err = fal_trace_feed(finder, p, n, NULL);
	return err == FAL_ENOMEM ? err : FAL_OK;
}

int
fal_trace_end(struct fal_trace_reader *r, struct fal_diag *diag)
{
	if (r->err != 0)
		return fal_diag_set(diag, r->err, "%s", r->diag.text);
	struct fal_trace_line l = next_line(r);
	const int err = r->number > 0 ? FAL_ETRUNC : FAL_EFORMAT;
	if (r->part.n > 0)
		fal_trace_fail(&l, err, "ends in the middle of the line");
	else if (r->unzip != NULL && fal_unzip_end(r->unzip) < 0)
		fal_trace_fail(&l, err, "ends in the middle of a zstd frame");
	return l.err < 0 ? stop(r, &l, diag) : 0;
}
