/* Hostile model files: layers and tensors that were read hold together, and what is sent
 * of them is read as the same tensors again. */
#include "base/mem.h"
#include "model/safetensors.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { SMALL = 1 << 12 }; /* values of a model that is computed with */

static void
check_layers(const struct fal_model *m)
{
	for (uint32_t i = 0; i < m->layers; i++) {
		const struct fal_layer *l = &m->layer[i];
		const struct fal_shape *in = i > 0 ? &m->layer[i - 1].out : &m->input;
		assert(fal_shape_floats(l->in) == fal_shape_floats(*in));
		assert(fal_shape_floats(l->out) > 0);
		assert(fal_shape_floats(l->out) <= FAL_MODEL_MAX_FLOATS);
		if (l->kind == FAL_LAYER_CONV || l->kind == FAL_LAYER_DENSE)
			assert(l->weight < m->tensors && l->bias < m->tensors);
	}
	assert(m->layers == 0 || (m->classes >= 2 && m->inputs >= 1));
}

/* One behind the other, each from a multiple of `block`. */
static void
check_tensors(const struct fal_model *m, uint64_t block)
{
	uint64_t end = 0, values = 0;
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		uint64_t count = 1;
		for (uint32_t k = 0; k < t->dims; k++)
			count *= t->dim[k];
		assert(count > 0 && count == t->count && t->packed_offset == values);
		assert(t->offset >= end && t->offset % block == 0);
		end = t->offset + count;
		values += count;
	}
	assert(end <= m->params && m->params <= FAL_MODEL_MAX_FLOATS);
	assert(values == m->values);
}

static void
compute(struct fal_model *m)
{
	float params[SMALL], values[SMALL], again[SMALL];
	fal_model_init(m, 1, params);
	for (uint64_t i = 0; i < m->params; i++)
		assert(isfinite(params[i]));
	fal_model_pack(m, params, values);
	fal_model_unpack(m, values, 0, m->params, again);
	assert(memcmp(params, again, m->params * sizeof(float)) == 0);
}

static void
sent(const struct fal_model *m)
{
	struct fal_model *again;
	struct fal_buf text = { 0 };
	struct fal_diag diag;
	assert(fal_safetensors_header(m, &text) == 0);
	assert(fal_model_parse("sent", (char *)text.p, text.n, &again, &diag) == 0);
	assert(again->tensors == m->tensors && again->values == m->values);
	for (uint32_t i = 0; i < m->tensors; i++)
		assert(strcmp(again->tensor[i].name, m->tensor[i].name) == 0);
	fal_model_free(again);
	fal_buf_free(&text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_model *m;
	struct fal_diag diag = { "" };
	if (fal_model_parse("fuzz", (const char *)p, n, &m, &diag) < 0) {
		assert(diag.text[0] != '\0' && strchr(diag.text, '\n') == NULL);
		return 0;
	}
	check_layers(m);
	check_tensors(m, 1);
	sent(m);
	if (m->layers > 0 && m->params <= SMALL)
		compute(m);
	if (fal_model_align(m, 64) == 0)
		check_tensors(m, 64);
	fal_model_free(m);
	return 0;
}
