/* The model as a value: memory, layout of the flat vector, first parameters. */
#include "model/model.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void
fal_model_free(struct fal_model *m)
{
	if (m == NULL)
		return;
	for (uint32_t i = 0; i < m->tensors; i++)
		free(m->tensor[i].name);
	free(m->layer);
	free(m->tensor);
	free(m);
}

int
fal_model_align(struct fal_model *m, uint32_t block)
{
	uint64_t end = 0;
	for (uint32_t i = 0; i < m->tensors; i++)
		end = (end + block - 1) / block * block + m->tensor[i].count;
	if (end > FAL_MODEL_MAX_FLOATS)
		return FAL_ELIMIT;
	m->params = end;
	end = 0;
	for (uint32_t i = 0; i < m->tensors; i++) {
		m->tensor[i].offset = (end + block - 1) / block * block;
		end = m->tensor[i].offset + m->tensor[i].count;
	}
	return FAL_OK;
}

void
fal_model_pack(const struct fal_model *m, const float *params, float *values)
{
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		memcpy(values + t->packed_offset, params + t->offset,
		       t->count * sizeof(*values));
	}
}

/* Returns the first tensor that ends after this element of the flat vector. */
static uint32_t
find_tensor(const struct fal_model *m, uint64_t element)
{
	uint32_t low = 0, high = m->tensors;
	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;
		const struct fal_tensor *t = &m->tensor[mid];
		if (t->offset + t->count <= element)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void
fal_model_unpack(const struct fal_model *m, const float *values, uint64_t first,
		 uint64_t n, float *params)
{
	const uint64_t end = first + n;
	for (uint32_t i = find_tensor(m, first); first < end; i++) {
		const struct fal_tensor *t = i < m->tensors ? &m->tensor[i] : NULL;
		const uint64_t gap = t != NULL && t->offset < end ? t->offset : end;
		for (; first < gap; first++)
			*params++ = 0;
		if (t == NULL || first == end)
			break;
		const uint64_t to =
			t->offset + t->count < end ? t->offset + t->count : end;
		memcpy(params, values + t->packed_offset + (first - t->offset),
		       (to - first) * sizeof(*params));
		params += to - first;
		first = to;
	}
}

const float *
fal_model_packed_place(const struct fal_model *m, const float *values, uint64_t first,
		       uint64_t n)
{
	const uint32_t start = find_tensor(m, first);
	uint64_t to = first;
	for (uint32_t i = start; to < first + n; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		if (i == m->tensors || t->offset > to)
			return NULL;
		to = t->offset + t->count;
	}
	const struct fal_tensor *t = &m->tensor[start];
	return values + t->packed_offset + (first - t->offset);
}

void
fal_model_init(const struct fal_model *m, uint64_t seed, float *params)
{
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		float *w = params + t->offset;
		if (t->init == FAL_INIT_ZERO) {
			memset(w, 0, t->count * sizeof(*w));
			continue;
		}
		uint64_t fan = t->fan_in;
		if (t->init == FAL_INIT_GLOROT)
			fan += t->fan_out;
		float b = sqrtf(6.0f / (float)fan);
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_INIT, i);
		for (uint64_t j = 0; j < t->count; j++)
			w[j] = fal_rng_unit(&r) * (b + b) - b;
	}
}
