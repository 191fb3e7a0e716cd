/* A stranger's job text: parsed, and rewritten by an assignment that is a part of it.
 * What was accepted stays accepted when a value is set to itself. */
#include "job/job.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct fal_job job;
	struct fal_diag diag;
	struct fal_buf out = { 0 };

	if (fal_job_parse("fuzz", text, size, &job, &diag) == 0) {
		char set[128];
		snprintf(set, sizeof(set), "job.seed=%llu", (unsigned long long)job.seed);
		uint64_t seed = job.seed;
		fal_job_free(&job);
		assert(fal_job_override("fuzz", text, size, set, &out, &diag) == 0);
		assert(fal_job_parse("fuzz", (char *)out.p, out.n, &job, &diag) == 0);
		assert(job.seed == seed);
		fal_job_free(&job);
	}
	fal_buf_clear(&out);
	char assignment[64] = "";
	memcpy(assignment, text, size < 63 ? size : 63);
	(void)fal_job_override("fuzz", text, size, assignment, &out, &diag);
	fal_buf_free(&out);
	return 0;
}
