/* Hostile safetensors files: a model that was read covers its data, and what is sent of
 * it is read as the same model again. */
#include "base/mem.h"
#include "model/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_model *m, *again;
	struct fal_buf text = { 0 };
	struct fal_diag diag;
	const struct fal_safetensors file = { "fuzz", p, n, NULL, NULL };
	if (fal_safetensors_model(&file, &m, &diag) < 0) {
		/* The input may be a header alone. */
		if (fal_safetensors_parse_header("fuzz", (const char *)p, n, &m, &diag) ==
		    0)
			fal_model_free(m);
		return 0;
	}
	const size_t data = n - m->params * sizeof(float);
	assert(m->params > 0 && data < n);
	float *params = fal_calloc(m->params, sizeof(float));
	assert(params != NULL);
	assert(fal_safetensors_get(&file, m, params, &diag) == 0);
	assert(memcmp(params, p + data, m->params * sizeof(float)) == 0);
	assert(fal_safetensors_header(m, &text) == 0);
	assert(fal_model_parse("sent", (char *)text.p, text.n, &again, &diag) == 0);
	assert(again->params == m->params && again->tensors == m->tensors);
	for (uint32_t i = 0; i < m->tensors; i++)
		assert(strcmp(again->tensor[i].name, m->tensor[i].name) == 0 &&
		       again->tensor[i].offset == m->tensor[i].offset);
	fal_buf_free(&text);
	free(params);
	fal_model_free(again);
	fal_model_free(m);
	return 0;
}
