/* Error codes and one-line diagnoses.
 *
 * Every fallible function of the library returns 0 or a negative enum fal_err and sets
 * its results only on success.  The library never prints and never exits, with one
 * exception: a lack of memory that no peer can cause (fal_out_of_memory, base/mem.h).
 */
#ifndef FAL_BASE_ERR_H
#define FAL_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fal_err {
	FAL_OK = 0,
	FAL_ENOMEM = -1,     /* out of memory */
	FAL_EINVAL = -2,     /* a value that is not allowed */
	FAL_EFORMAT = -3,    /* bytes that do not follow their format */
	FAL_ETRUNC = -4,     /* input ends too early */
	FAL_ELIMIT = -5,     /* larger than the limit that the receiver chose */
	FAL_EAUTH = -6,      /* does not authenticate */
	FAL_EPERM = -7,      /* the role may not do this */
	FAL_EVERSION = -8,   /* protocol version not supported */
	FAL_ESTATE = -9,     /* right message, wrong moment */
	FAL_EFENCED = -10,   /* contribution was fenced */
	FAL_ENOENT = -11,    /* not found */
	FAL_EIO = -12,       /* the operating system refused; see errno */
	FAL_EEXIST = -13,    /* already exists */
	FAL_ENONFINITE = -14 /* NaN, infinity, or beyond the range of exact sums */
};

/* Returns a short lower-case text for `err`; static, never NULL. */
const char *fal_strerror(int err);

/* A diagnosis for a person: "fashion.job:14: optimizer.lr: 'o.1' is not a number". */
struct fal_diag {
	char text[512];
};

/* Formats into `diag` (may be NULL) and returns `err`, so a failing function can end in
 * `return fal_diag_set(diag, FAL_EINVAL, …)`.  fal_text_plain cleans the text, because
 * the text may quote a peer's bytes. */
int fal_diag_set(struct fal_diag *diag, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The problems of an input.  The first one stands in `diag`, and ends the reading if
 * `more` is NULL; else each further one becomes a line of `more`, and the reading ends
 * after FAL_PROBLEMS_MAX problems. */
enum { FAL_PROBLEMS_MAX = 20 };
struct fal_buf;
struct fal_problems {
	struct fal_diag *diag;
	struct fal_buf *more;
	/* `n`: number of problems.  `err`: 0 without a problem; FAL_EFORMAT if any
	 * problem has that error; else the error of the first problem. */
	int n, err;
};

/* Adds a problem.  Returns 0, or an error to end the reading with. */
int fal_problems_add(struct fal_problems *p, int err, const char *text);

#endif
