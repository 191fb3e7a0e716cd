/* Recorded speeds: lines "SECONDS SPEED", read, looked up and written. */
#ifndef FAL_EMUL_SPEEDS_H
#define FAL_EMUL_SPEEDS_H

#include "base/err.h"
#include "emul/pattern.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Zero: none. */
struct fal_speeds {
	struct fal_speeds_line {
		uint64_t t; /* ns, increasing, the first 0 */
		double speed;
	} *v;
	size_t n, cap;
	uint64_t loop; /* it begins again every so many ns; 0: the last speed stays */
};

/* Reads a file into `out`, which is zero; free with fal_speeds_free.  A `diag` names
 * file, line and value.  FAL_EFORMAT, FAL_EINVAL, FAL_ENOMEM, those of fal_cli_read. */
int fal_speeds_read(const char *path, struct fal_speeds *out, struct fal_diag *diag);
void fal_speeds_free(struct fal_speeds *s);

/* The speed at `t` ns; `s` has lines. */
struct fal_speed fal_speeds_at(const struct fal_speeds *s, uint64_t t);

/* One line of such a file. */
void fal_speeds_write(FILE *f, uint64_t t, double speed);

#endif
