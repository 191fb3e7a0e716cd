/* What a job needs of memory, said and judged. */
#include "need.h"

#include "base/text.h"
#include "cli/need.h"

#include <inttypes.h>

int
need_judge(const struct work_opt *opt, const char *job, const char *needs,
	   struct need need, uint64_t said, struct fal_diag *diag)
{
	if (fal_need_mib(need.bytes) > fal_need_mib(said))
		fal_cli_err(PROG, "job %s %s %" PRIu64 " MiB", job, needs,
			    fal_need_mib(need.bytes));
	struct fal_diag why;
	const int err = fal_need_allowed(need.bytes, need.space, opt->max_memory, &why);
	if (err == FAL_OK)
		return FAL_OK;
	return fal_diag_set(diag, FAL_ENOMEM, "job %s with %u lane%s %s%s", job,
			    opt->lanes_max, fal_text_s(opt->lanes_max), why.text,
			    err == FAL_ENOMEM && need.space > 0
				    ? "; OpenBLAS needs 128 MiB of it a lane"
				    : "");
}
