/* Reads a trace (falcon-trace(5)), plain or compressed by zstd(1): bytes in, one line at
 * a time out, as the struct that schema.h has for its event.
 *
 * Pure: no descriptors.  Lines are bounded, so is memory, whatever a frame claims; what
 * is wrong is said with the number of the line.  Judged here are the order of lines, and
 * of each line its syntax, which members it has, and their ranges; what lines mean is
 * not.
 */
#ifndef FAL_TRACE_READER_H
#define FAL_TRACE_READER_H

#include "base/buf.h"
#include "base/err.h"
#include "trace/schema.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest line that is read, in bytes without its newline. */
#define FAL_TRACE_LINE_MAX ((size_t)16 << 20)

/* A line.  Its memory is freed when on_line returns. */
struct fal_trace_line {
	uint64_t number; /* of the line, from 1 */
	double t;        /* seconds since the job began */
	const char *ev;  /* the event; as that of the table: */
	enum fal_event event;
	union { /* its members; nothing of FAL_EV_OTHER */
#define FAL_LINE(constant, event) struct fal_ev_##event event;
		FAL_TRACE_EVENTS(FAL_LINE)
#undef FAL_LINE
	} is;
	/* The worker whose line it is; NULL: it names none. */
	const char *worker;
	uint32_t id;
	const json_t *o;  /* the whole line */
	const char *text; /* its bytes, without newline; as long */
	size_t n;
	int err;                        /* 0, or the first that failed */
	struct fal_diag diag;           /* what failed: "12: ledger.clock: missing" */
	struct fal_trace_block *blocks; /* private: memory of `is` */
};

/* Records "LINE: EV: what" as the line's error, if it has none yet; returns l->err.  What
 * begins with a field and a colon makes that "LINE: EV.FIELD: what". */
int fal_trace_fail(struct fal_trace_line *l, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A line by itself, kept: of n bytes that a reader has delivered.  NULL: out of memory.
 */
struct fal_trace_line *fal_trace_line_new(const char *text, size_t n);
void fal_trace_line_free(struct fal_trace_line *l); /* may be NULL */

/* Is it a job's last line? */
bool fal_trace_is_last(const struct fal_trace_line *l);

/* How a trace has ended so far, for who follows it: {0}, then line by line. */
struct fal_trace_ending {
	bool over;    /* by the job's last line */
	bool stopped; /* by a stop that was asked for */
};
void fal_trace_ending_note(struct fal_trace_ending *e, const struct fal_trace_line *l);
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
 * frame is one or more of them, to its end.  Errors: FAL_EFORMAT (no JSON object, a
 * member is missing or of another kind, no zstd frame where one must be), FAL_EINVAL (the
 * first line is not job, another one is, or t decreases), FAL_ELIMIT (line too long, a
 * number too large, a frame's window too large: zip.h), FAL_ENOMEM, or what on_line
 * returned; after an error every further call returns it again. */
int fal_trace_feed(struct fal_trace_reader *r, const void *p, size_t n,
		   struct fal_diag *diag);

/* The bytes have ended; FAL_ETRUNC if in the middle of a line or a frame: the lines
 * before were delivered; FAL_EFORMAT if there was none before. */
int fal_trace_end(struct fal_trace_reader *r, struct fal_diag *diag);

#endif
