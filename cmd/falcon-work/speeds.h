/* Recorded speeds: lines "SECONDS SPEED", read, looked up and written. */
#ifndef WORK_SPEEDS_H
#define WORK_SPEEDS_H

#include "base/err.h"
#include "pattern.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Zero: none. */
struct speeds {
	struct speeds_line {
		uint64_t t; /* ns, increasing, the first 0 */
		double speed;
	} * v;
	size_t n, cap;
	uint64_t loop; /* it begins again every so many ns; 0: the last speed stays */
};

/* Reads a file into `out`, which is zero; free with speeds_free.  A `diag` names file,
 * line and value.  FAL_EFORMAT, FAL_EINVAL, FAL_ENOMEM, those of fal_cli_read. */
int speeds_read(const char *path, struct speeds *out, struct fal_diag *diag);
void speeds_free(struct speeds *s);

/* The speed at `t` ns; `s` has lines. */
struct step speeds_at(const struct speeds *s, uint64_t t);

/* One line of such a file. */
void speeds_write(FILE *f, uint64_t t, double speed);

#endif
