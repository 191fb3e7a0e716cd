/* What liars say, and what comes of it. */
#ifndef LIES_H
#define LIES_H

#include "cluster.h"

/* What a liar makes of a message, in `out`; false: it is sent as it is.  `lied`: whether
 * this one has lied in words. */
bool lie_of(const struct plan *p, enum lie lie, bool *lied, const struct fal_buf *msg,
	    struct fal_buf *out);

/* Whether anybody lies in words, and not in pushes. */
bool plan_lies_in_words(const struct plan *p);
/* Tells the toy who lies about exponents. */
void plan_tell_lies(struct plan *p);

/* Lies that count, by the trace (n bytes). */
struct lies_found {
	bool skipped; /* a task that has a gradient was skipped */
	bool made_up; /* there is one of a task that has none */
	bool raised;  /* a block may have needed what it did not, or be zero */
};
struct lies_found lies_find(const struct plan *p, const char *trace, size_t n);

/* Did a liar end the job by what it says of its own gradients, as falcon-security(7) has
 * it: nobody of another key worked then, as all were suspects, or not back yet? */
bool lies_end(const struct plan *p, const char *trace, size_t n);

#endif
