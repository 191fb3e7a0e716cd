/* Reads a trace (falcon-trace(5)), plain or compressed by zstd(1): bytes in, one parsed
 * line at a time out.
 *
 * Pure: no descriptors.  Lines are bounded, so is memory, whatever a frame claims; what
 * is wrong is said with the number of the line.  That the first line is job, or a gap
 * that has it, and no other one, and that t never decreases is judged here; what lines
 * mean is not.
 */
#ifndef FAL_TRACE_READER_H
#define FAL_TRACE_READER_H

#include "base/buf.h"
#include "base/err.h"
#include "trace/fields.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest line that is read, in bytes without its newline. */
#define FAL_TRACE_LINE_MAX ((size_t)16 << 20)
/* The largest whole number of a trace, 2^53: any JSON reader holds it exactly. */
#define FAL_TRACE_NUM_MAX ((uint64_t)1 << 53)

/* One line.  Its getters carry a sticky error, like struct fal_rd: a chain of gets is
 * written without tests between and judged once by `err`. */
struct fal_trace_line {
	uint64_t number;  /* of the line, from 1 */
	double t;         /* seconds since the job began */
	const char *ev;   /* the event; borrowed from `o` */
	const json_t *o;  /* the whole line, borrowed; gone when on_line returns */
	const char *text; /* its bytes, without newline; as long */
	size_t n;
	int err;              /* 0, or that of the first get that failed */
	struct fal_diag diag; /* what failed: "12: ledger.clock: missing" */
};

/* Getters of the field `key` of the object `o`: l->o or an object inside it; the field
 * must be of the getter's kind.  One that is missing or of the wrong type is FAL_EFORMAT,
 * a number above `max` FAL_ELIMIT; then, and after any earlier error, they return 0, ""
 * or false. */
uint64_t fal_trace_get_u64(struct fal_trace_line *l, const json_t *o, enum fal_field key,
			   uint64_t max);
double fal_trace_get_f64(struct fal_trace_line *l, const json_t *o, enum fal_field key);
/* What the line counts, 1 where it does not say. */
uint64_t fal_trace_get_count(struct fal_trace_line *l);
/* The line's loss; NAN: null in the trace, as it is not known. */
double fal_trace_get_loss(struct fal_trace_line *l);
/* A time that has passed: from 0 to 30 years, else FAL_EINVAL. */
double fal_trace_get_seconds(struct fal_trace_line *l, const json_t *o,
			     enum fal_field key);
/* Borrowed from `o`. */
const char *fal_trace_get_str(struct fal_trace_line *l, const json_t *o,
			      enum fal_field key);
/* Appends the JSON of the field, on one line. */
void fal_trace_get_json(struct fal_trace_line *l, const json_t *o, enum fal_field key,
			struct fal_buf *out);
/* The field as it is, borrowed, or NULL. */
const json_t *fal_trace_at(const json_t *o, enum fal_field key);
bool fal_trace_has(const json_t *o, enum fal_field key);
/* A missing field is false. */
bool fal_trace_get_flag(struct fal_trace_line *l, const json_t *o, enum fal_field key);
/* The string `key`, exactly so many lower-case hexadecimal digits; "" on error. */
const char *fal_trace_get_hex(struct fal_trace_line *l, const json_t *o,
			      enum fal_field key, size_t digits);
/* The elements of the array `key`; 0 on error. */
size_t fal_trace_get_len(struct fal_trace_line *l, const json_t *o, enum fal_field key);
/* Row i of the array of arrays `key`: exactly `width` numbers up to FAL_TRACE_NUM_MAX
 * into `row`, all 0 on error. */
void fal_trace_get_row(struct fal_trace_line *l, const json_t *o, enum fal_field key,
		       size_t i, size_t width, uint64_t *row);
/* The array `key` itself as one such row. */
void fal_trace_get_tuple(struct fal_trace_line *l, const json_t *o, enum fal_field key,
			 size_t width, uint64_t *row);
/* Of a ledger line: claims that another key was to compute once more, that came out the
 * same there, and that did not; 0 without the member.  0, FAL_EFORMAT. */
int fal_trace_get_verified(struct fal_trace_line *l, uint64_t v[static 3]);

/* Records "LINE: EV: what" as the line's error, if it has none yet; returns l->err.  What
 * begins with a field and a colon makes that "LINE: EV.FIELD: what". */
int fal_trace_fail(struct fal_trace_line *l, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Is it a job's last line? */
bool fal_trace_is_last(const struct fal_trace_line *l);

/* How a trace has ended so far, for who follows it: {0}, then line by line. */
struct fal_trace_ending {
	bool over;    /* by the job's last line */
	bool stopped; /* by a stop that was asked for */
};
void fal_trace_ending_note(struct fal_trace_ending *e, struct fal_trace_line *l);
/* What is to be said where nothing more comes of it. */
extern const char fal_trace_early_end[];

struct fal_trace_reader;

/* Lines that do not count: the job went on, in a line `restart`, from before them.  {0}
 * is empty and valid. */
struct fal_trace_cuts {
	struct fal_trace_cut {
		uint64_t at;    /* number of the line `restart` */
		uint64_t lines; /* that count of those before it; a gap is as many as it
				 * stands for */
	} *v;
	size_t n, cap;
};
void fal_trace_cuts_free(struct fal_trace_cuts *c);

/* A reader that only finds these, and judges nothing: to be fed the whole trace before
 * another one reads it.  NULL: out of memory. */
struct fal_trace_reader *fal_trace_finder_new(struct fal_trace_cuts *out);
/* fal_trace_feed for it; what is wrong is left to whoever reads.  `finder` is a struct
 * fal_trace_reader.  0 or FAL_ENOMEM. */
int fal_trace_find(void *finder, const void *p, size_t n);
/* The lines that these cut are not delivered; borrowed, and may still be empty.  Any
 * other line `restart` that cuts some off is FAL_EINVAL: it is too late to take them
 * back. */
void fal_trace_reader_cut(struct fal_trace_reader *r, const struct fal_trace_cuts *c);
/* They are delivered to on_cut, for what holds of any line; with the reader's own arg. */
void fal_trace_reader_on_cut(struct fal_trace_reader *r,
			     int (*on_cut)(void *arg, struct fal_trace_line *l));

/* A reader that calls on_line(arg, line) for each line, the job line first, if there was
 * room for it; a negative return of it ends the reading.  NULL: out of memory. */
struct fal_trace_reader *
fal_trace_reader_new(int (*on_line)(void *arg, struct fal_trace_line *l), void *arg);
void fal_trace_reader_free(struct fal_trace_reader *r);

/* Feeds n bytes; lines are delivered inside the call.  A trace that begins with a zstd
 * frame is one or more of them, to its end.  Errors: FAL_EFORMAT (no JSON object, no t or
 * ev, no zstd frame where one must be), FAL_EINVAL (the first line is not job, another
 * one is, or t decreases), FAL_ELIMIT (line too long, a frame's window too large: zip.h),
 * FAL_ENOMEM, or what on_line returned; after an error every further call returns it
 * again. */
int fal_trace_feed(struct fal_trace_reader *r, const void *p, size_t n,
		   struct fal_diag *diag);

/* The bytes have ended; FAL_ETRUNC if in the middle of a line or a frame: the lines
 * before were delivered; FAL_EFORMAT if there was none before. */
int fal_trace_end(struct fal_trace_reader *r, struct fal_diag *diag);

#endif
