/* A stranger's policies, one after the other.  What is accepted is written and read again
 * as itself. */
#include "job/policy.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fal_policy_text in = { "fuzz", 1, (const char *)data, size };
	struct fal_policy p = { 0 }, next;
	struct fal_diag diag;
	while (fal_policy_json_get(&in, &p, &next, &diag) == FAL_OK) {
		fal_policy_free(&p);
		p = next;
	}
	const struct fal_policy none = { 0 };
	struct fal_policy_change *c;
	struct fal_buf out = { 0 };
	fal_policy_json_put(&p, &out);
	in = (struct fal_policy_text){ "fuzz", 1, (const char *)out.p, out.n };
	int err = fal_policy_json_get(&in, &none, &next, &diag);
	assert(err == FAL_OK);
	const size_t n = fal_policy_changes(&p, &next, &c);
	assert(n == 0);
	free(c);
	fal_policy_free(&p);
	fal_policy_free(&next);
	fal_buf_free(&out);
	return 0;
}
