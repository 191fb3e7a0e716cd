/* Headers, parameters and samples for trainers. */
#include "exec_job.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "base/text.h"
#include "model/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* How samples lie in memory: first what is I64, so that both are aligned. */
struct layout {
	bool text, whole, targets; /* x and y are windows; x is I64; y is F32 */
	uint32_t y_each, x_each;
	uint64_t y, x;       /* bytes of a full task */
	uint64_t y_at, x_at; /* where they begin */
};

static struct layout
layout_of(const struct fal_setup *s)
{
	const struct fal_part *part = &s->manifest.train;
	struct layout l = { .text = s->job.format == FAL_JOB_FORMAT_TEXT };
	l.whole = l.text || (fal_dtype_is_whole(part->dtype) && part->dtype != FAL_U8);
	l.y_each = l.text ? s->job.window : 1;
	l.x_each = l.text ? s->job.window : part->values;
	l.targets = part->targets;
	l.y = (l.targets ? 4 : 8) * (uint64_t)s->job.task * l.y_each;
	l.x = (l.whole ? 8 : 4) * (uint64_t)s->job.task * l.x_each;
	l.y_at = l.targets ? l.x : 0;
	l.x_at = l.targets ? 0 : l.y;
	return l;
}

/* The two tensors of samples; a vector has no more dimensions than that. */
static int
samples_header(const struct fal_setup *s, struct fal_buf *out)
{
	const struct fal_part *part = &s->manifest.train;
	const struct layout l = layout_of(s);
	fal_put_fmt(out, "{\"y\":{\"dtype\":\"%s\",\"shape\":[%u",
		    l.targets ? "F32" : "I64", s->job.task);
	if (l.text)
		fal_put_fmt(out, ",%u", l.y_each);
	fal_put_fmt(out,
		    "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]},"
		    "\"x\":{\"dtype\":\"%s\",\"shape\":[%u,",
		    l.y_at, l.y_at + l.y, l.whole ? "I64" : "F32", s->job.task);
	if (part->shape[0] == 1 && part->shape[1] == 1)
		fal_put_fmt(out, "%u", l.x_each);
	else
		fal_put_fmt(out, "%u,%u,%u", part->shape[0], part->shape[1],
			    part->shape[2]);
	fal_put_fmt(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}}", l.x_at,
		    l.x_at + l.x);
	return out->err;
}

/* The names of tensors that are running statistics, though they be frozen. */
static int
find_buffers(struct trainer_job *j, const struct fal_setup *s)
{
	j->buffer = fal_calloc(s->model->tensors, sizeof(*j->buffer));
	if (j->buffer == NULL)
		return FAL_ENOMEM;
	j->job.buffer = j->buffer;
	for (uint32_t i = 0; i < s->model->tensors; i++) {
		const char *name = s->model->tensor[i].name;
		if (fal_job_buffers(&s->job, name))
			j->buffer[j->job.buffers++] = name;
	}
	return FAL_OK;
}

/* What the job's keys freeze is marked in the model, too. */
static void
mark_frozen(const struct fal_setup *s)
{
	const struct fal_optim *o = &s->job.optim;
	for (uint32_t i = 0; i < s->model->tensors; i++)
		for (uint32_t k = 0; k < o->ranges; k++)
			s->model->tensor[i].frozen |=
				o->range[k].rule == FAL_RANGE_FROZEN &&
				s->model->tensor[i].offset - o->range[k].first <
					o->range[k].count;
}

int
exec_job_make(struct trainer_job *j, const struct fal_setup *s)
{
	*j = (struct trainer_job){ 0 };
	j->job = (struct fal_grad_job){ .name = s->job.name,
					.decay = s->job.optim.weight_decay > 0,
					.seed = s->job.seed,
					.task = s->job.task,
					.batch = s->job.batch,
					.train = s->manifest.train.n,
					.test = s->manifest.test.n };
	j->model = s->model;
	j->params_bytes = s->model->values * sizeof(float);
	const struct layout l = layout_of(s);
	j->samples_bytes = l.y + l.x;
	int err = find_buffers(j, s);
	mark_frozen(s);
	if (err == FAL_OK)
		err = fal_safetensors_header(s->model, &j->params);
	return err < 0 ? err : samples_header(s, &j->samples);
}

void
exec_job_free(struct trainer_job *j)
{
	fal_buf_free(&j->params);
	fal_buf_free(&j->samples);
	free(j->buffer);
}

static int
samples_differ(uint32_t its, uint32_t n, const char *kind, struct fal_diag *diag)
{
	return fal_diag_set(diag, FAL_EINVAL,
			    "the trainer has %u %s sample%s, the job %u", its, kind,
			    fal_text_s(its), n);
}

int
exec_job_agrees(const struct fal_setup *s, const struct fal_grad_hello *h,
		struct fal_diag *diag)
{
	static const uint8_t none[FAL_GRAD_DATA];
	const uint32_t train = s->manifest.train.n, test = s->manifest.test.n;
	const char *want = s->job.data_hash;
	char hex[2 * FAL_GRAD_DATA + 1];
	if (h->samples && s->job.format == FAL_JOB_FORMAT_INDEX)
		return fal_diag_set(diag, FAL_EINVAL,
				    "the trainer asks for samples, but data.format = "
				    "index has none");
	if (h->train != 0 && h->train != train)
		return samples_differ(h->train, train, "training", diag);
	if (h->test != 0 && test != 0 && h->test != test)
		return samples_differ(h->test, test, "test", diag);
	if (want == NULL || h->samples)
		return FAL_OK;
	if (memcmp(h->data, none, sizeof(none)) == 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "the trainer says no hash of its data, the job "
				    "asks for %s",
				    want);
	fal_hex(h->data, FAL_GRAD_DATA, hex);
	if (strcmp(hex, want) != 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "the trainer has the data %s, the job's are %s", hex,
				    want);
	return FAL_OK;
}

void
exec_job_params(const struct fal_setup *s, float *params)
{
	struct fal_rng r = fal_rng_init(s->job.seed, FAL_RNG_TEST, 1);
	if (s->model->layers > 0)
		fal_model_init(s->model, s->job.seed, params);
	for (uint32_t i = 0; s->model->layers == 0 && i < s->model->tensors; i++) {
		const struct fal_tensor *t = &s->model->tensor[i];
		for (uint64_t k = 0; k < t->count; k++)
			params[t->offset + k] = (fal_rng_unit(&r) - 0.5f) / 8;
	}
}

/* Windows, and beside each byte the next one. */
static int
fill_text(const struct exec_samples *s, uint32_t window, int64_t *y, int64_t *x)
{
	const struct fal_batch *b = &s->job->batch;
	for (uint32_t i = 0; i < s->job->count; i++) {
		const uint32_t id = fal_order_at(b->order, s->job->first + i);
		uint32_t none;
		const uint8_t *row = fal_samples_row(b->samples, id, &none);
		if (row == NULL)
			return FAL_ENOENT;
		for (uint32_t k = 0; k < window; k++) {
			*x++ = row[k];
			*y++ = row[k + 1];
		}
	}
	return FAL_OK;
}

int
exec_job_fill(void *arg, void *data)
{
	const struct exec_samples *s = arg;
	const struct layout l = layout_of(s->setup);
	const struct fal_run_job *j = s->job;
	void *x = (uint8_t *)data + l.x_at, *at = (uint8_t *)data + l.y_at;
	int64_t *y = at;
	if (l.text)
		return fill_text(s, l.y_each, y, x);
	int err = l.whole ? fal_batch_whole(&j->batch, j->first, j->count, x, s->label)
			  : fal_batch_fill(&j->batch, j->first, j->count, x, s->label);
	if (l.targets && err == FAL_OK)
		memcpy(at, s->label, j->count * sizeof(float));
	for (uint32_t i = 0; i < j->count && err == FAL_OK && !l.targets; i++)
		y[i] = s->label[i];
	return err;
}

void
exec_job_made_up(const struct fal_setup *s, void *data)
{
	const struct layout l = layout_of(s);
	const uint32_t task = s->job.task;
	struct fal_rng r = fal_rng_init(s->job.seed, FAL_RNG_TEST, 0);
	void *x_at = (uint8_t *)data + l.x_at, *y_at = (uint8_t *)data + l.y_at;
	int64_t *y = y_at, *whole = x_at;
	float *x = x_at, *target = y_at;
	for (uint64_t i = 0; i < (uint64_t)task * l.x_each; i++)
		if (l.text) /* of letters that every text has */
			whole[i] = 'a' + (int64_t)fal_rng_below(&r, 26);
		else if (l.whole)
			whole[i] = fal_rng_below(&r, 2);
		else
			x[i] = fal_rng_unit(&r);
	for (uint64_t i = 0; i < task && l.targets; i++)
		target[i] = fal_rng_unit(&r);
	for (uint64_t i = 0; i < (uint64_t)task * l.y_each && !l.targets; i++)
		y[i] = l.text ? 'a' + (int64_t)fal_rng_below(&r, 26)
			      : (int64_t)fal_rng_below(&r, s->manifest.train.classes);
}
