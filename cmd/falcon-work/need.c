/* What a job needs of memory, said and judged. */
#include "need.h"

#include "base/text.h"

#include <inttypes.h>

int
need_judge(const struct work_opt *opt, const char *job, const char *needs,
	   const struct fal_need *need, uint64_t said, struct fal_diag *diag)
{
	const uint64_t sum = fal_need_sum(need);
	struct fal_buf parts = { 0 };
	if (opt->verbose) {
		fal_put_fmt(&parts, ": ");
		fal_need_put(need, &parts);
	}
	fal_put_u8(&parts, '\0');
	if (parts.err == FAL_OK && fal_need_mib(sum) > fal_need_mib(said))
		fal_cli_err(PROG, "job %s %s %" PRIu64 " MiB%s", job, needs,
			    fal_need_mib(sum), (const char *)parts.p);
	fal_buf_free(&parts);
	struct fal_diag why;
	const int err = fal_need_allowed(sum, need->reserved, opt->max_memory, &why);
	if (err == FAL_OK)
		return FAL_OK;
	return fal_diag_set(diag, FAL_ENOMEM, "job %s with %u lane%s %s%s", job,
			    opt->lanes_max, fal_text_s(opt->lanes_max), why.text,
			    err == FAL_ENOMEM && need->reserved > 0
				    ? "; OpenBLAS needs 128 MiB of it a lane"
				    : "");
}
