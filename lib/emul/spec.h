/* Reading of --emulate SPEC, which falcon-emulate(5) defines. */
#ifndef FAL_EMUL_SPEC_H
#define FAL_EMUL_SPEC_H

#include "emul/emul.h"

/* What SPEC need not say. */
struct fal_spec_host {
	const char *name; /* of this worker, to be found in a file; borrowed */
	uint32_t cores;
};

/* Reads KEY=VALUE[,KEY=VALUE...] or @FILE[,KEY=VALUE...], and the file of trace=; makes
 * that of record=.  Free with fal_spec_free.  FAL_EFORMAT, FAL_EINVAL, FAL_ENOMEM, those
 * of fal_cli_read, FAL_EIO, each with `diag`. */
int fal_spec_read(const char *spec, const struct fal_spec_host *host,
		  struct fal_emul **out, struct fal_diag *diag);

/* FAL_EIO where not all that was recorded got to its file; `e` is freed in any case, and
 * may be NULL. */
int fal_spec_free(struct fal_emul *e);

#endif
