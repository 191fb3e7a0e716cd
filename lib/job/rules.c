/* What one value of a job file demands of others, and what follows where none is given.
 */
#include "job/priv.h"

#include "wire/bfp.h"

#include <string.h>

/* Which formats have a key, and of these those that can do without it. */
enum {
	IDX = 1 << FAL_JOB_FORMAT_IDX,
	NPY = 1 << FAL_JOB_FORMAT_NPY,
	TENSORS = 1 << FAL_JOB_FORMAT_SAFETENSORS,
	TABLE = 1 << FAL_JOB_FORMAT_CSV | 1 << FAL_JOB_FORMAT_TSV,
	TEXTS = 1 << FAL_JOB_FORMAT_TEXT,
	CIFAR100 = 1 << FAL_JOB_FORMAT_CIFAR100,
	CIFAR = 1 << FAL_JOB_FORMAT_CIFAR10 | CIFAR100,
	FILES = NPY | TENSORS | TABLE | TEXTS | CIFAR
};

/* What data.format demands of the keys that name files and what is in them. */
static int
check_files(const struct job_read *p)
{
	const struct fal_job *job = p->job;
	const unsigned format = 1u << job->format;
	const bool test = job->eval != FAL_JOB_EVAL_NEVER || fal_job_has_test(job) ||
			  job->test_labels != NULL;
	const struct {
		size_t at;
		unsigned of, without;
		bool test;
	} rules[] = {
		{ JOB_AT(train_images), IDX, 0, false },
		{ JOB_AT(train), FILES, 0, false },
		{ JOB_AT(train_labels), IDX | NPY, 0, false },
		{ JOB_AT(test_images), IDX, 0, true },
		{ JOB_AT(test), FILES, 0, true },
		{ JOB_AT(test_labels), IDX | NPY, 0, true },
		{ JOB_AT(features), TENSORS, 0, false },
		{ JOB_AT(label), TENSORS | TABLE | CIFAR100, CIFAR100, false },
		{ JOB_AT(target), NPY | TENSORS | TABLE, NPY | TENSORS | TABLE, false },
		{ JOB_AT(window), TEXTS, 0, false },
		{ JOB_AT(train_hash), IDX | FILES, IDX | FILES, false },
		{ JOB_AT(test_hash), IDX | FILES, IDX | FILES, true },
	};
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		const size_t at = rules[i].at;
		const bool needed = (rules[i].of & ~rules[i].without & format) != 0 &&
				    (test || !rules[i].test);
		if (job_has(p, at) && (rules[i].of & format) == 0)
			return job_refuse(p, at, FAL_EINVAL,
					  "is not for this data.format");
		if (needed && !job_has(p, at))
			return job_refuse(
				p, at, rules[i].test ? FAL_EINVAL : FAL_EFORMAT,
				rules[i].test ? "missing (job.eval = never needs none)"
					      : "missing");
	}
	return FAL_OK;
}

/* What only the server can do is not for schemes whose steps are made elsewhere. */
static int
check_local(const struct job_read *p)
{
	const char *key = fal_job_server_only(p->job);
	struct fal_diag d;
	if (key == NULL || !fal_rule_local(&p->job->rule))
		return FAL_OK;
	fal_diag_set(&d, 0, "takes steps outside the server, which %s is not for", key);
	return job_refuse(p, JOB_AT(rule), FAL_EINVAL, d.text);
}

/* One value, and what it demands of others. */
struct rule {
	bool wrong;
	size_t at;
	const char *what;
};

/* The first that is broken. */
static int
hold(const struct job_read *p, const struct rule *rules, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (rules[i].wrong)
			return job_refuse(p, rules[i].at, FAL_EINVAL, rules[i].what);
	return FAL_OK;
}

/* Between model and data. */
static int
check_data(const struct job_read *p)
{
	const struct fal_job *job = p->job;
	const char *fine = job->label;
	const bool by_index = job->format == FAL_JOB_FORMAT_INDEX;
	const bool test = job->eval != FAL_JOB_EVAL_NEVER;
	const bool values = job->target == FAL_JOB_TARGET_VALUE;
	const bool shared = job->partition == FAL_JOB_PARTITION_SHARED;
	const bool shuffles = job_has(p, JOB_AT(shuffle));
	const struct rule rules[] = {
		{ job->model == NULL && job->init == NULL, JOB_AT(model),
		  "missing, and so is model.init" },
		{ job->init_sha256 != NULL && job->init == NULL, JOB_AT(init_sha256),
		  "does nothing without model.init" },
		{ job->model_sha256 != NULL && job->model == NULL, JOB_AT(model_sha256),
		  "does nothing without model.file" },
		{ !test && job->state_best == FAL_JOB_BEST_YES, JOB_AT(state_best),
		  "does nothing for job.eval = never" },
		{ by_index && job->samples == 0, JOB_AT(samples),
		  "missing (data.format = index needs it)" },
		{ by_index && test && job->test_samples == 0, JOB_AT(test_samples),
		  "missing (job.eval = never needs none)" },
		{ fine != NULL && job->format == FAL_JOB_FORMAT_CIFAR100 &&
			  strcmp(fine, "fine") != 0 && strcmp(fine, "coarse") != 0,
		  JOB_AT(label), "is not fine or coarse" },
		{ (by_index || job->format == FAL_JOB_FORMAT_TEXT) &&
			  (p->mean_n > 0 || p->std_n > 0),
		  p->mean_n > 0 ? JOB_AT(mean) : JOB_AT(std),
		  "does nothing for this data.format" },
		{ (by_index || job->format == FAL_JOB_FORMAT_TEXT) &&
			  job->partition == FAL_JOB_PARTITION_LABEL_SKEW,
		  JOB_AT(partition), "'label-skew' needs labels" },
		{ values && job->model != NULL, JOB_AT(target),
		  "'value' is only for a job without model.file: its layers classify" },
		{ values && job->partition == FAL_JOB_PARTITION_LABEL_SKEW,
		  JOB_AT(partition), "'label-skew' needs labels that are classes" },
		{ job->buffers != NULL && job->model != NULL, JOB_AT(buffers),
		  "are only for a job without model.file" },
		{ job->buffers == NULL && job_has(p, JOB_AT(optim.buffer_momentum)),
		  JOB_AT(optim.buffer_momentum), "does nothing without model.buffers" },
		{ p->mean_n != 0 && p->std_n != 0 && p->mean_n != p->std_n, JOB_AT(std),
		  "lists other channels than data.mean" },
		{ shared && job->parts != 0, JOB_AT(parts),
		  "does nothing for data.partition = shared" },
		{ !shared && job->parts == 0, JOB_AT(parts),
		  "missing (data.partition = shared needs none)" },
		{ !shared && shuffles, JOB_AT(shuffle),
		  "is only for data.partition = shared" },
	};
	return hold(p, rules, sizeof(rules) / sizeof(rules[0]));
}

/* Of a step: its batch, the optimiser, its rate. */
static int
check_steps(const struct job_read *p)
{
	const struct fal_job *job = p->job;
	const enum fal_optim_kind kind = job->optim.kind;
	const bool moves = kind == FAL_MOMENTUM || kind == FAL_NESTEROV;
	const bool adam = kind == FAL_ADAMW;
	const bool steps = job->schedule.kind == FAL_STEP;
	const bool cosine = job->schedule.kind == FAL_COSINE;
	const struct rule rules[] = {
		{ job->task > job->batch, JOB_AT(task), "is more than batch.size" },
		{ moves && job->optim.momentum <= 0, JOB_AT(optim.momentum),
		  "must be above 0 for this optimizer.kind" },
		{ !moves && job->optim.momentum > 0, JOB_AT(optim.momentum),
		  "does nothing for this optimizer.kind" },
		{ !adam && job_has(p, JOB_AT(optim.beta1)), JOB_AT(optim.beta1),
		  "is only for optimizer.kind = adamw" },
		{ !adam && job_has(p, JOB_AT(optim.beta2)), JOB_AT(optim.beta2),
		  "is only for optimizer.kind = adamw" },
		{ !adam && kind != FAL_ADAGRAD && job_has(p, JOB_AT(optim.eps)),
		  JOB_AT(optim.eps), "is only for optimizer.kind = adagrad or adamw" },
		{ job->optim.weight_decay <= 0 && job_has(p, JOB_AT(decay)),
		  JOB_AT(decay), "does nothing without optimizer.weight-decay" },
		{ adam && job_has(p, JOB_AT(decay)) &&
			  job->decay == FAL_JOB_DECAY_COUPLED,
		  JOB_AT(decay), "'coupled' is not for optimizer.kind = adamw" },
		{ job->verify <= 0 && job->verify_stop == FAL_JOB_VERIFY_STOP_YES,
		  JOB_AT(verify_stop), "does nothing without job.verify" },
		{ steps && job->schedule.every == 0, JOB_AT(schedule.every),
		  "must be above 0 for schedule.kind = step" },
		{ !steps && job->schedule.every != 0, JOB_AT(schedule.every),
		  "is only for schedule.kind = step" },
		{ steps && job->schedule.gamma >= 1, JOB_AT(schedule.gamma),
		  "must be below 1 for schedule.kind = step" },
		{ !steps && job->schedule.gamma < 1, JOB_AT(schedule.gamma),
		  "is only for schedule.kind = step" },
		{ !cosine && job->schedule.min_lr > 0, JOB_AT(schedule.min_lr),
		  "is only for schedule.kind = cosine" },
		{ job->schedule.min_lr > job->schedule.lr, JOB_AT(schedule.min_lr),
		  "is more than optimizer.lr" },
	};
	return hold(p, rules, sizeof(rules) / sizeof(rules[0]));
}

int
job_judge(const struct job_read *p)
{
	int err = check_files(p);
	err = err == FAL_OK ? check_data(p) : err;
	err = err == FAL_OK ? check_steps(p) : err;
	return err == FAL_OK ? check_local(p) : err;
}

void
job_fill(const struct job_read *p)
{
	struct fal_job *job = p->job;
	job->channels = p->mean_n > p->std_n ? p->mean_n : p->std_n;
	if (job->channels == 0)
		job->channels = 1;
	if (!job_has(p, JOB_AT(state_seconds)) && !job_has(p, JOB_AT(state_clocks)))
		job->state_seconds = 60;
	if (job->state_keep == 0)
		job->state_keep = 2;
	for (uint32_t i = p->std_n; i < FAL_JOB_CHANNELS; i++)
		job->std[i] = 1;
	if (job->partition == FAL_JOB_PARTITION_SHARED)
		job->parts = 1;
	if (job->push_bits == FAL_BFP_P)
		job->push_bits = 0;
	struct fal_optim *o = &job->optim;
	if (o->kind == FAL_ADAMW && !job_has(p, JOB_AT(optim.beta1)))
		o->beta1 = 0.9;
	if (o->kind == FAL_ADAMW && !job_has(p, JOB_AT(optim.beta2)))
		o->beta2 = 0.999;
	if (job->buffers != NULL && !job_has(p, JOB_AT(optim.buffer_momentum)))
		o->buffer_momentum = 0.1;
	if (!job_has(p, JOB_AT(optim.eps)))
		o->eps = o->kind == FAL_ADAMW ? 1e-8f : 1e-10f;
	o->decoupled = o->kind == FAL_ADAMW || job->decay == FAL_JOB_DECAY_DECOUPLED;
	if (job->task == 0) {
		job->task = job->batch / 64 > 8 ? job->batch / 64 : 8;
		if (job->task > job->batch)
			job->task = job->batch;
	}
}
