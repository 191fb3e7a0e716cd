/* The words of falcon-sync set, one a line: what was taken is a policy that a coordinator
 * can read. */
#include "../../cmd/falcon-sync/sync.h"

#include "job/policy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	json_t *policy = json_object();
	char *text = malloc(n + 1), *rest = text, *word;
	struct fal_diag diag = { "" };
	int err = FAL_OK;
	if (policy == NULL || text == NULL)
		abort();
	memcpy(text, p, n);
	text[n] = '\0';
	while (err == FAL_OK && (word = strsep(&rest, "\n")) != NULL)
		err = sync_set_word(policy, word, &diag);
	assert(err == FAL_OK || err == FAL_EINVAL);
	assert((err < 0) == (diag.text[0] != '\0'));
	char *json = json_dumps(policy, JSON_COMPACT);
	assert(json != NULL);
	if (err == FAL_OK) {
		const struct fal_policy none = { 0 };
		struct fal_policy got;
		struct fal_policy_text in = { "fuzz", 1, json, strlen(json) };
		err = fal_policy_json_get(&in, &none, &got, &diag);
		assert(err == FAL_OK || err == FAL_EINVAL);
		if (err == FAL_OK)
			fal_policy_free(&got);
	}
	free(json);
	free(text);
	json_decref(policy);
	return 0;
}
