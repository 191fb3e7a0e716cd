/* The modes that take a job file.  --eval evaluates a model by the workers' tasks and in
 * their order of adding, so that the result equals the coordinator's to the last bit.
 * --predict classifies samples.  --try computes tasks as a coordinator would grant them:
 * each task twice, in halves, and in evaluation.  --bench computes tasks on all lanes for
 * some seconds.
 */
#include "work.h"

#include "backend.h"
#include "base/json.h"
#include "base/loss.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/file.h"
#include "cli/progress.h"
#include "job/set.h"
#include "job_runtime.h"
#include "math/net.h"
#include "math/scalar.h"
#include "model/safetensors.h"
#include "run/job_files.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { TEXT_MAX = 1 << 20, HEADER_MAX = 2 << 20 }; /* bytes */

static int
diag_nomem(struct fal_diag *diag)
{
	return fal_diag_set(diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
}

/* --- --eval ------------------------------------------------------------------------- */

struct eval {
	const struct work_opt *opt;
	bool predicts; /* each sample by itself */
	struct fal_buf job_text, model_text;
	struct fal_job job;
	struct fal_set set;
	struct fal_setup setup;
	struct fal_samples *samples;
	struct backend *backend;
	float *params;
};

struct eval_sums {
	uint64_t right, total;
	bool loss_unknown;       /* in a task */
	int64_t loss;            /* Σ, as base/loss.h has it */
	uint64_t (*of_class)[2]; /* right and total, of each label; NULL: not counted */
	uint32_t classes;
};

/* Makes the setup.  The set also takes the place of the training data, which are not
 * read. */
static int
eval_load_setup(struct eval *e, const char *file, struct fal_diag *diag)
{
	char *path = fal_job_path(file, e->job.model);
	int err = fal_cli_read(path, TEXT_MAX, &e->model_text, diag);
	const struct fal_setup_text job = { file, e->job_text.p, e->job_text.n };
	const struct fal_setup_text model = { path, e->model_text.p, e->model_text.n };
	if (err == FAL_OK && fal_manifest_build(&e->set, &e->set, &e->setup.manifest) < 0)
		err = diag_nomem(diag);
	if (err == FAL_OK)
		err = fal_setup_init(&e->setup, &job, &model, diag);
	if (err == FAL_OK)
		err = backend_native_new(&e->setup, 1, &e->backend, diag);
	if (err == FAL_OK) {
		const struct backend_memory m = e->backend->ops->memory(e->backend, 0);
		/* The set and its copy by chunks; a file's bytes and the parameters in
		 * it; a task runner, and, to predict, another net's memory. */
		const struct memory_need need = {
			e->opt->program_bytes + m.kernels + fal_setup_bytes(&e->setup) +
				m.lanes * (e->predicts ? 2 : 1) +
				2 * e->setup.model->params * sizeof(float) + HEADER_MAX,
			m.address_space
		};
		err = memory_need_check(e->opt, e->job.name, "needs", need, 0, diag);
	}
	if (err == FAL_OK && e->backend->ops->start(e->backend) < 0)
		err = diag_nomem(diag);
	if (err == FAL_OK && (fal_samples_new(&e->setup.manifest.test, &e->samples) < 0 ||
			      fal_samples_put_set(e->samples, &e->set) < 0))
		err = diag_nomem(diag);
	free(path);
	return err;
}

/* Loads the job, the samples (a file without labels, or, NULL, the job's test set) and
 * the model. */
static int
eval_load(struct eval *e, const char *job, const char *samples, const char *model,
	  struct fal_diag *diag)
{
	const struct fal_load files = { .job = &e->job, .job_file = job, .test = true };
	int err = fal_cli_read(job, TEXT_MAX, &e->job_text, diag);
	if (err == FAL_OK)
		err = fal_job_parse(job, (char *)e->job_text.p, e->job_text.n, &e->job,
				    diag);
	if (err == FAL_OK && e->job.model == NULL)
		err = fal_diag_set(diag, FAL_EINVAL, "%s: the job has no model.file",
				   job);
	if (err == FAL_OK && samples != NULL)
		err = fal_set_load_unlabelled(samples, &e->set, diag);
	else if (err == FAL_OK && !fal_job_has_test(&e->job))
		err = fal_diag_set(diag, FAL_EINVAL, "%s: the job has no test set", job);
	else if (err == FAL_OK)
		err = fal_load_set(&files, &e->set, diag);
	if (err == FAL_OK)
		err = eval_load_setup(e, job, diag);
	if (err < 0)
		return err;
	const struct fal_model *m = e->setup.model;
	struct fal_buf bytes = { 0 };
	err = fal_cli_read(model, m->params * sizeof(float) + HEADER_MAX, &bytes, diag);
	const struct fal_safetensors file = fal_job_tensors(&e->job, model, &bytes);
	e->params = fal_calloc_aligned(m->params, sizeof(float));
	if (err == FAL_OK && e->params == NULL)
		err = diag_nomem(diag);
	if (err == FAL_OK)
		err = fal_safetensors_get(&file, m, e->params, diag);
	fal_buf_free(&bytes);
	return err;
}

static int
eval_compute(struct eval *e, struct eval_sums *out, struct fal_diag *diag)
{
	const struct fal_setup *s = &e->setup;
	int err = FAL_OK;
	struct fal_progress bar =
		fal_progress_begin("judging", s->manifest.test.n, uv_hrtime());
	for (uint32_t task = 0; err == FAL_OK; task++) {
		const struct fal_places p = fal_setup_test_places(s, task);
		const struct fal_lane_task job = {
			.run = { .eval = true, .params = e->params },
			.batch = { e->samples, &s->test_order, &s->norm },
			.first = p.first,
			.count = p.count,
		};
		struct fal_task_result ran = { 0 };
		if (p.count == 0)
			break;
		err = e->backend->ops->run(e->backend, 0, &job, &ran);
		out->right += ran.right;
		out->total += ran.samples;
		out->loss += ran.loss;
		out->loss_unknown |= !fal_loss_is_known(ran.loss, ran.samples);
		fal_progress_show(&bar, out->total, uv_hrtime());
	}
	fal_progress_wipe();
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : FAL_OK;
}

/* Prints the result; returns an exit code. */
static int
eval_print(const struct eval_sums *j, bool json)
{
	const double accuracy = (double)j->right / (double)j->total;
	const double loss = j->loss_unknown ? (double)NAN
					    : fal_loss_decode(j->loss) / (double)j->total;
	if (!json) {
		printf("%" PRIu64 " %" PRIu64 " %.6f ", j->right, j->total, accuracy);
		printf(j->loss_unknown ? "-\n" : "%.6f\n", loss);
		return FAL_EXIT_DONE;
	}
	struct fal_buf out = { 0 };
	fal_json_open(&out, '{');
	fal_json_member_u64(&out, "right", j->right);
	fal_json_member_u64(&out, "total", j->total);
	fal_json_member_num(&out, "accuracy", accuracy);
	fal_json_member_num(&out, "test_loss", loss);
	fal_json_member_open(&out, "classes", '[');
	for (uint32_t c = 0; c < j->classes; c++) {
		fal_json_open(&out, '{');
		fal_json_member_u64(&out, "right", j->of_class[c][0]);
		fal_json_member_u64(&out, "total", j->of_class[c][1]);
		fal_json_close(&out, '}');
	}
	fal_json_close(&out, ']');
	fal_json_close(&out, '}');
	fal_put_u8(&out, '\n');
	if (out.err == 0)
		fwrite(out.p, 1, out.n, stdout);
	int code = out.err == 0 ? FAL_EXIT_DONE : FAL_EXIT_NO;
	fal_buf_free(&out);
	return code;
}

/* --- --predict ---------------------------------------------------------------------- */

/* Predicts each sample; prints the predictions or, with `out`, counts them by label. */
static int
eval_predict(struct eval *e, struct eval_sums *out, struct fal_diag *diag)
{
	const struct fal_setup *s = &e->setup;
	const struct fal_model *m = s->model;
	const struct fal_batch batch = { e->samples, &s->test_order, &s->norm };
	struct fal_net *net = NULL;
	struct fal_arena *arena = NULL;
	int err = fal_net_check_cpu(diag);
	if (err < 0)
		return err;
	float *x = fal_calloc_aligned((size_t)s->job.task * m->inputs, sizeof(*x));
	uint32_t *label = fal_xcalloc(s->job.task, sizeof(*label));
	err = x != NULL ? fal_net_new(m, s->job.task, &net) : FAL_ENOMEM;
	if (err == FAL_OK)
		err = fal_arena_new(net, &arena);
	for (uint32_t task = 0; err == FAL_OK; task++) {
		const struct fal_places p = fal_setup_test_places(s, task);
		const struct fal_task t = { x, label, p.count };
		if (p.count == 0)
			break;
		err = fal_batch_fill(&batch, p.first, p.count, x, label);
		if (err < 0)
			break;
		const float *z = fal_net_forward(net, arena, e->params, &t);
		for (uint32_t i = 0; i < p.count; i++, z += m->classes) {
			/* The first largest logit. */
			uint32_t best = 0;
			for (uint32_t c = 1; c < m->classes; c++)
				best = z[c] > z[best] ? c : best;
			if (out == NULL) { /* the probability by softmax */
				double sum = 0;
				for (uint32_t c = 0; c < m->classes; c++)
					sum += (double)fal_exp(z[c] - z[best]);
				printf("%" PRIu32 " %.6f\n", best, 1 / sum);
				continue;
			}
			out->of_class[label[i]][0] += best == label[i];
			out->of_class[label[i]][1]++;
		}
	}
	fal_arena_free(arena);
	fal_net_free(net);
	free(label);
	free(x);
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : FAL_OK;
}

int
eval_run(const struct work_opt *opt, const char *job, const char *model,
	 const char *samples, bool json)
{
	struct eval e = { .opt = opt, .predicts = samples != NULL || json };
	struct eval_sums sums = { 0 };
	struct fal_diag diag = { "" };
	int err = eval_load(&e, job, samples, model, &diag);
	/* An error up to here is a fault of the files. */
	int code = err < 0 && err != FAL_ENOMEM ? FAL_EXIT_USAGE : FAL_EXIT_NO;
	if (err == FAL_OK)
		err = samples != NULL ? eval_predict(&e, NULL, &diag)
				      : eval_compute(&e, &sums, &diag);
	if (err == FAL_OK && samples == NULL && json) {
		sums.classes = e.setup.model->classes;
		sums.of_class = fal_xcalloc(sums.classes, sizeof(*sums.of_class));
		err = eval_predict(&e, &sums, &diag);
	}
	if (err < 0)
		fal_cli_err(PROG, "%s", diag.text);
	else
		code = fal_cli_finish(PROG, samples != NULL ? FAL_EXIT_DONE
							    : eval_print(&sums, json));
	free(sums.of_class);
	free(e.params);
	fal_samples_free(e.samples);
	if (e.backend != NULL)
		e.backend->ops->free(e.backend);
	fal_setup_free(&e.setup);
	fal_set_free(&e.set);
	fal_job_free(&e.job);
	fal_buf_free(&e.job_text);
	fal_buf_free(&e.model_text);
	return code;
}

/* --- --try -------------------------------------------------------------------------- */

enum { TASKS = 3, VECTORS = 3 };

struct trial {
	struct fal_files files;
	struct fal_setup setup;
	struct fal_samples *samples[2];
	struct fal_epoch *epoch;
	struct trainer_pool *pool;
	struct trainer_job job;
	float *params, *grad[VECTORS];
	uint32_t *index, *label;
	bool *has_gradient; /* by tensor: a value other than 0 was seen */
	uint64_t ids;
	bool found_faults; /* the trainer fails some check */
};

static int
make_set_samples(const struct fal_set *set, const struct fal_part *part,
		 struct fal_samples **out)
{
	if (set->n == 0)
		return FAL_OK;
	int err = fal_samples_new(part, out);
	return err == FAL_OK ? fal_samples_put_set(*out, set) : err;
}

/* Reads the job file and its files, and makes the setup. */
static int
load_job_files(const char *file, struct fal_files *files, struct fal_setup *s,
	       struct fal_diag *diag)
{
	struct fal_buf text = { 0 };
	int err = fal_cli_read(file, TEXT_MAX, &text, diag);
	if (err == FAL_OK)
		err = fal_files_load_text(files, file, fal_files_skip_from, &text, diag);
	fal_buf_free(&text);
	return err < 0 ? err : fal_files_make_setup(files, s, diag);
}

/* Returns the job's first parameters. */
static float *
make_first_params(const struct fal_files *files, const struct fal_setup *s)
{
	float *params = fal_xcalloc_aligned(s->model->params, sizeof(float));
	if (files->init != NULL)
		memcpy(params, files->init, s->model->params * sizeof(float));
	else
		trainer_job_fill_params(s, params);
	return params;
}

static int
trial_load(struct trial *t, const struct work_opt *opt, const char *file,
	   struct fal_diag *diag)
{
	struct fal_setup *s = &t->setup;
	int err = load_job_files(file, &t->files, s, diag);
	if (err < 0)
		return err;
	/* The data are there twice: as read, and as samples.  Parameters of the job's
	 * file and of the trainer; gradients. */
	const struct memory_need need = {
		.bytes = opt->program_bytes + 2 * fal_setup_bytes(s) +
			 (2 + VECTORS + 2) * s->model->params * sizeof(float)
	};
	err = memory_need_check(opt, s->job.name, "needs", need, 0, diag);
	if (err < 0)
		return err;
	t->epoch = fal_setup_epoch(s, 0);
	t->params = make_first_params(&t->files, s);
	for (int i = 0; i < VECTORS; i++)
		t->grad[i] = fal_xcalloc_aligned(s->model->values, sizeof(float));
	if (make_set_samples(&t->files.train, &s->manifest.train, &t->samples[0]) < 0 ||
	    make_set_samples(&t->files.test, &s->manifest.test, &t->samples[1]) < 0)
		return diag_nomem(diag);
	t->index = fal_xcalloc(s->job.task, sizeof(*t->index));
	t->label = fal_xcalloc(s->job.task, sizeof(*t->label));
	t->has_gradient = fal_xcalloc(s->model->tensors, sizeof(*t->has_gradient));
	trainer_job_make(&t->job, s);
	return FAL_OK;
}

static void
trial_unload(struct trial *t)
{
	trainer_pool_close(t->pool);
	trainer_job_free(&t->job);
	fal_epoch_release(t->epoch);
	fal_samples_free(t->samples[0]);
	fal_samples_free(t->samples[1]);
	fal_setup_free(&t->setup);
	fal_files_free(&t->files);
	for (int i = 0; i < VECTORS; i++)
		free(t->grad[i]);
	free(t->params);
	free(t->index);
	free(t->label);
	free(t->has_gradient);
}

/* Prints a fault of the trainer. */
static void __attribute__((format(printf, 2, 3)))
print_fault(struct trial *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs("no: ", stdout);
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
	t->found_faults = true;
}

/* Makes the trainer compute a task on the samples at `count` places from `first` on: a
 * gradient (NULL: evaluation).  `redraw`: with another seed than the task's.  False,
 * after a message: the task was not computed. */
static bool
trial_compute(struct trial *t, uint32_t first, uint32_t count, bool redraw, float *grad,
	      struct trainer_result *result)
{
	const struct fal_setup *s = &t->setup;
	const bool eval = grad == NULL;
	const struct fal_order *order = eval ? &s->test_order : &t->epoch->order;
	struct trainer *trainer = t->pool->trainer[0];
	const struct fal_lane_task job = { .batch = { t->samples[eval], order, &s->norm },
					   .first = first,
					   .count = count };
	const struct trainer_task task = {
		.line = { .id = ++t->ids,
			  .seed = fal_rng_task(s->job.seed, 0, first / s->job.task) ^
				  redraw,
			  .task = first / s->job.task,
			  .count = count,
			  .index = t->index,
			  .eval = eval },
		.params = t->params,
		.serial = 1,
	};
	bool done = false;
	for (uint32_t i = 0; i < count; i++)
		t->index[i] = fal_order_at(order, first + i);
	if (trainer_prepare(trainer, t->ids) != 0) {
		void *samples = trainer_samples(trainer);
		if (samples == NULL ||
		    trainer_job_fill_samples(s, &job, t->label, samples) == FAL_OK) {
			trainer_compute(trainer, &task, result);
			done = result->end == TRAINER_DONE;
		}
	}
	if (done && !eval) {
		memcpy(grad, trainer_hold_grads(trainer, 0),
		       s->model->values * sizeof(*grad));
		trainer_release_grads(trainer);
	}
	if (done)
		return true;
	fflush(stdout);
	print_fault(t, "a task of %u sample%s was not computed: see what it said above",
		    count, fal_text_plural(count));
	return false;
}

/* Returns the largest magnitude in a gradient; infinity if a value is not finite. */
static float
trial_largest(const struct trial *t, const float *v)
{
	const uint64_t n = t->setup.model->values;
	float most = 0;
	for (uint64_t i = 0; i < n; i += FAL_BLOCK) {
		const uint64_t left = n - i;
		const uint32_t k = left < FAL_BLOCK ? (uint32_t)left : FAL_BLOCK;
		most = fmaxf(most, fal_max_abs(v + i, k));
	}
	return most;
}

/* Returns true if a run has room for gradients of up to `most` on these parameters,
 * which all have the first exponent.  Else prints a fault. */
static bool
trial_check_room(struct trial *t, float most)
{
	const struct fal_grid grid =
		fal_job_grid(&t->setup.job, t->setup.manifest.train.n);
	const float room =
		fal_bfp_most(FAL_EXP_FIRST, fal_bfp_room(fal_grid_tasks_max(&grid)));
	struct fal_diag what;
	if (most < room)
		return true;
	fal_explain_large_gradient(most, room, &what);
	print_fault(t, "a %s", what.text);
	return false;
}

/* Returns |a·g1 + b·g2 + c·g3| / |g3|, for the first, second and third gradient without
 * running statistics. */
static double
relative_length(const struct trial *t, double a, double b, double c)
{
	const struct fal_model *m = t->setup.model;
	double off = 0, all = 0;
	for (uint64_t i = 0, k = 0, end; k < m->tensors; k++) {
		end = i + m->tensor[k].count;
		if (fal_job_is_buffer(&t->setup.job, m->tensor[k].name))
			i = end;
		for (; i < end; i++) {
			const double whole = (double)t->grad[2][i];
			const double d = a * (double)t->grad[0][i] +
					 b * (double)t->grad[1][i] + c * whole;
			off += d * d;
			all += whole * whole;
		}
	}
	return all > 0 ? sqrt(off / all) : off > 0 ? INFINITY : 0;
}

/* Computes a few tasks, each twice.  False: no more can be tried. */
static bool
try_twice(struct trial *t, double *ms)
{
	const struct fal_model *m = t->setup.model;
	const size_t bytes = m->values * sizeof(float);
	uint32_t n = 0;
	bool same = true, null = false;
	float most = 0;
	*ms = INFINITY;
	for (; n < TASKS; n++) {
		const struct fal_places p = fal_setup_places(&t->setup, 0, n);
		struct trainer_result result[2];
		if (p.count == 0)
			break;
		for (int i = 0; i < 2; i++)
			if (!trial_compute(t, p.first, p.count, false, t->grad[i],
					   &result[i]))
				return false;
		same = same && memcmp(t->grad[0], t->grad[1], bytes) == 0;
		most = fmaxf(most, trial_largest(t, t->grad[0]));
		for (uint64_t i = 0, k = 0, end; k < m->tensors; k++)
			for (end = i + m->tensor[k].count; i < end; i++)
				t->has_gradient[k] |= t->grad[0][i] != 0;
		null = null || isnan(result[0].loss);
		*ms = fmin(*ms, (double)result[1].ns * 1e-6);
	}
	if (!same && !t->pool->hello.impure)
		print_fault(t,
			    "the same task gives other bits the second time: take all "
			    "randomness from the task's seed, carry nothing from task to "
			    "task, and ask the library for deterministic kernels");
	const bool finite = isfinite(most), fits = !finite || trial_check_room(t, most);
	if (!finite)
		print_fault(t, "gradients are not finite on the job's first parameters");
	if ((same || t->pool->hello.impure) && finite && fits)
		printf("ok %u tasks, each twice: %s; %.3g ms a task; finite\n", n,
		       same ? "same bits" : "other bits, as it says itself", *ms);
	if (null)
		puts("ok its loss is null: not finite, or not known");
	if (!finite)
		return false;
	/* Prints the names of tensors that are to be trained and had no gradient. */
	enum { NAMES = 4 };
	uint32_t without = 0;
	for (uint32_t k = 0; k < m->tensors; k++)
		if (!t->has_gradient[k] && !m->tensor[k].frozen && without++ < NAMES)
			printf("%s%s", without == 1 ? "ok no gradient for " : ", ",
			       m->tensor[k].name);
	if (without > NAMES)
		printf(" and %u more", without - NAMES);
	if (without > 0)
		puts(": freeze tensors that the net does not use (model.freeze)");
	return true;
}

/* Checks that gradients are sums: compares the gradients of two half tasks, the first
 * of `half` of `count` samples, with the gradient of the whole task.  A trainer that
 * adds in another order makes a small difference.  A trainer that leaves out a sample
 * makes a larger one, unless the sample is one of many and the trainer computes with
 * 16 bits.  If the trainer draws values from the seed, the halves have other values
 * than the whole, so the gradients differ as much as with another seed, but no
 * gradient is longer.  False: no more can be tried. */
static bool
try_sum(struct trial *t, uint32_t half, uint32_t count)
{
	static const char whole[] = "the sum of two half tasks is the whole task";
	const double most = 1e-3, most_of_16_bits = 2e-2, part = (double)half / count;
	const double sum = relative_length(t, 1, 1, -1);
	const bool mean = relative_length(t, 1, 1, 0) > sqrt(2);
	const double off = mean ? relative_length(t, part, 1 - part, -1) : sum;
	double drawn = 0;
	if (off >= most) {
		struct trainer_result result;
		if (!trial_compute(t, 0, count, true, t->grad[0], &result))
			return false;
		drawn = relative_length(t, 1, 0, -1);
	}
	if (off >= most_of_16_bits && off > 3 * drawn)
		print_fault(
			t,
			"the sum of two half tasks is not the whole task, off by %.2g of "
			"it: statistics of a batch (model.buffers) do so; else samples "
			"are "
			"left out or weighted",
			sum);
	else if (mean)
		print_fault(t, "the gradient is a MEAN over the task's samples: it is to "
			       "be their SUM; with PyTorch: reduction=\"sum\"");
	else if (off < most)
		printf("ok %s (to %.0e): a SUM, not a mean\n", whole, fmax(sum, 1e-9));
	else if (off <= 3 * drawn)
		printf("ok %s, but for what is drawn from the seed (%.2g; with another "
		       "one %.2g): a SUM, not a mean\n",
		       whole, off, drawn);
	else
		printf("ok %s (to %.0e, as with bfloat16; with float32 a sample may be "
		       "left out): a SUM, not a mean\n",
		       whole, off);
	return true;
}

/* Computes halves of a task: for the check of sums, and to print the part of a task's
 * time that does not depend on the task's size.  The statistics of a batch make halves
 * differ from their task: there the two halves are of the same samples.  False: no more
 * can be tried. */
static bool
try_halves(struct trial *t, double ms)
{
	static const double much = 1.0 / 3; /* of the time of a small task */
	const struct fal_job *job = &t->setup.job;
	const bool repeats = job->buffers != NULL;
	uint32_t count = fal_setup_places(&t->setup, 0, 0).count, half = count / 2;
	struct trainer_result a, b;
	if (half == 0)
		return true;
	count = repeats ? 2 * half : count;
	for (uint32_t i = 0; i < half && repeats; i++)
		t->epoch->order.id[half + i] = t->epoch->order.id[i];
	if (!trial_compute(t, 0, half, false, t->grad[0], &a) ||
	    !trial_compute(t, half, count - half, true, t->grad[1], &b) ||
	    !trial_compute(t, 0, count, false, t->grad[2], &b))
		return false;
	if (!try_sum(t, half, count))
		return false;
	/* The time of the second run, as for the whole task. */
	if (!trial_compute(t, 0, half, false, t->grad[0], &a))
		return false;
	const double half_ms = (double)a.ns * 1e-6;
	const double each = fmax(0, (ms - half_ms) / (count - half));
	const double fixed = fmax(0, (ms - each * count) / ms);
	printf("ok a task of %u sample%s takes %.3g ms, of %u %.3g ms: %.0f %% of the "
	       "time %s\n",
	       count, fal_text_plural(count), ms, half, half_ms, 100 * fixed,
	       fixed > 0.5 ? "does not depend on its size: larger ones (batch.task) "
			     "would cost little more"
			   : "does not depend on its size");
	const double small = fixed * ms / (fixed * ms + each * job->tail_task);
	if (job->tail > 0 && small > much)
		printf("ok a task of the clock's tail, of %u sample%s: %.0f %% of the "
		       "time does not depend on its size: a larger batch.tail-task, or "
		       "batch.tail = 0, would cost less\n",
		       job->tail_task, fal_text_plural(job->tail_task), 100 * small);
	if (repeats && job->task < FAL_JOB_STATISTICS && job->task < job->batch)
		printf("ok the statistics of batch norm are those of %u sample%s "
		       "(batch.task): %d or more are usual\n",
		       job->task, fal_text_plural(job->task), FAL_JOB_STATISTICS);
	return true;
}

/* Computes the first and the last sample of both sets, for a trainer with data of its
 * own, which may have fewer. */
static bool
try_ends(struct trial *t)
{
	const uint32_t train = t->setup.manifest.train.n, test = t->setup.manifest.test.n;
	struct trainer_result r;
	if (t->pool->hello.samples)
		return true;
	t->epoch->order.id[0] = train - 1;
	if (train > 1)
		t->epoch->order.id[1] = 0;
	if (!trial_compute(t, 0, train > 1 && t->setup.job.task > 1 ? 2 : 1, false,
			   t->grad[0], &r)) {
		print_fault(t, "these were samples 0 and %u of the training set",
			    train - 1);
		return false;
	}
	if (test > 0 && !trial_compute(t, test - 1, 1, false, NULL, &r)) {
		print_fault(t, "this was sample %u of the test set", test - 1);
		return false;
	}
	printf("ok first and last sample of the training set: 0 and %u", train - 1);
	printf(test > 0 ? "; last of the test set: %u\n" : "\n", test - 1);
	return true;
}

static void
try_eval(struct trial *t)
{
	const uint32_t count = fal_setup_test_places(&t->setup, 0).count;
	struct trainer_result r;
	if (!fal_job_has_test(&t->setup.job) ||
	    !trial_compute(t, 0, count, false, NULL, &r))
		return;
	if (r.right > count)
		print_fault(t, "judging: %u of %u right, loss %g", r.right, count,
			    r.loss);
	else if (isnan(r.loss)) /* null in JSON, which has no infinite numbers */
		printf("ok judging: %u of %u right, loss not known\n", r.right, count);
	else
		printf("ok judging: %u of %u right, loss %.4g a sample\n", r.right, count,
		       r.loss / count);
	const struct fal_metric_names *names = &t->setup.job.metrics;
	struct fal_buf text = { 0 };
	r.metrics.samples = count;
	for (uint32_t i = 0; i < names->n; i++) {
		fal_put_fmt(&text, "ok metric of the test set: %s ", names->v[i]);
		fal_metric_put_text(&text, &r.metrics, i);
		fal_put_u8(&text, '\n');
	}
	fwrite(text.p, 1, text.n, stdout);
	fal_buf_free(&text);
}

int
try_run(const struct work_opt *opt, const char *file, const char *command)
{
	static const uint8_t none[FAL_GRAD_DATA];
	const struct trainer_conf conf = { .command = command, .worker = "try" };
	struct fal_diag diag = { "" };
	struct trial t = { 0 };
	char params[32], hex[2 * FAL_GRAD_DATA + 1];
	double ms;
	int err = trial_load(&t, opt, file, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s", diag.text);
		trial_unload(&t);
		return err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE;
	}
	if (trainer_pool_open(&conf, 1, &t.pool, &diag) < 0) {
		print_fault(&t, "no hello: %s", diag.text);
	} else if (trainer_job_check_data(&t.setup, &t.pool->hello, &diag) < 0) {
		print_fault(&t, "%s", diag.text);
	} else {
		const struct fal_grad_hello *h = &t.pool->hello;
		const struct fal_model *m = t.setup.model;
		printf("ok hello %s%s%u tensor%s, %s parameter%s\n", h->about,
		       h->about[0] != '\0' ? ", " : "", m->tensors,
		       fal_text_plural(m->tensors), fal_text_thousands(m->values, params),
		       fal_text_plural(m->values));
		if (!h->samples && memcmp(h->data, none, sizeof(none)) == 0) {
			puts("ok the trainer gives no hash of its data, so a worker with "
			     "other data is not refused (in Python, give dataset=)");
		} else if (!h->samples) {
			fal_hex(h->data, FAL_GRAD_DATA, hex);
			printf("ok data %s: a worker with others is refused\n", hex);
		}
		trainer_set_job(t.pool->trainer[0], &t.job);
		if (try_twice(&t, &ms) && try_halves(&t, ms) && try_ends(&t))
			try_eval(&t);
	}
	trial_unload(&t);
	return fal_cli_finish(PROG, t.found_faults ? FAL_EXIT_NO : FAL_EXIT_DONE);
}

/* --- --bench ------------------------------------------------------------------------ */

enum { BENCH_SECONDS = 5 };

struct bench {
	struct fal_files files;
	struct fal_setup setup;
	struct fal_samples *samples;
	struct fal_epoch *epoch;
	struct trainer_pool *pool;
	struct backend *backend;
	float *params;
	int8_t *exps;
	uint32_t tasks; /* of a clock */
	uint64_t until; /* uv_hrtime */
};

/* A slot's thread, and its counts. */
struct bench_lane {
	struct bench *bench;
	uv_thread_t thread;
	struct fal_sum *sum;
	uint32_t number;
	int err;
	uint64_t samples, tasks;
};

static void
bench_lane_run(void *arg)
{
	struct bench_lane *l = arg;
	struct bench *b = l->bench;
	const struct fal_setup *s = &b->setup;
	for (uint32_t task = l->number; l->err == FAL_OK && uv_hrtime() < b->until;
	     task++) {
		const struct fal_places p = fal_setup_places(s, 0, task % b->tasks);
		const struct fal_lane_task job = {
			.id = l->number + 1,
			.run = { .task = task % b->tasks,
				 .serial = 1,
				 .params = b->params,
				 .exps = b->exps,
				 .sum = l->sum,
				 .room = fal_bfp_room(b->tasks),
				 .bits = s->job.push_bits,
				 .seed = fal_rng_task(s->job.seed, 0, task % b->tasks) },
			.batch = { b->samples, &b->epoch->order, &s->norm },
			.first = p.first,
			.count = p.count,
		};
		struct fal_task_result ran = { 0 };
		fal_sum_clear(l->sum);
		l->err = b->backend->ops->run(b->backend, l->number, &job, &ran);
		l->samples += p.count;
		l->tasks++;
	}
}

static int
bench_load(struct bench *b, const struct work_opt *opt, const char *file,
	   const char *command, struct fal_diag *diag)
{
	struct fal_setup *s = &b->setup;
	const struct trainer_conf conf = { .command = command, .worker = "bench" };
	int err = load_job_files(file, &b->files, s, diag);
	if (err == FAL_OK && command != NULL)
		err = trainer_pool_open(&conf, opt->lanes_max, &b->pool, diag);
	if (err == FAL_OK)
		err = command != NULL
			      ? backend_exec_new(s, b->pool, &b->backend, diag)
			      : backend_native_new(s, opt->lanes_max, &b->backend, diag);
	if (err < 0)
		return err;
	const struct backend_memory m = b->backend->ops->memory(b->backend, 0);
	const struct memory_need need = {
		opt->program_bytes + m.kernels + m.lanes + 2 * fal_setup_bytes(s) +
			(2 + opt->lanes_max * (1 + b->backend->ahead)) *
				s->model->params * sizeof(float),
		m.address_space
	};
	err = memory_need_check(opt, s->job.name, "needs", need, 0, diag);
	if (err < 0)
		return err;
	const struct fal_grid grid = fal_job_grid(&s->job, s->manifest.train.n);
	b->tasks = fal_grid_tasks(&grid, 0);
	b->epoch = fal_setup_epoch(s, 0);
	b->params = make_first_params(&b->files, s);
	b->exps = fal_xcalloc(fal_blocks(s->model->params), 1);
	memset(b->exps, FAL_EXP_FIRST, fal_blocks(s->model->params));
	if (b->backend->needs_samples)
		err = make_set_samples(&b->files.train, &s->manifest.train, &b->samples);
	if (err == FAL_OK)
		err = b->backend->ops->start(b->backend);
	return err < 0 ? diag_nomem(diag) : FAL_OK;
}

/* Runs tasks in all slots of the lanes for BENCH_SECONDS, and prints the speed. */
static int
bench_measure(struct bench *b, uint32_t lanes, struct fal_diag *diag)
{
	const uint32_t slots = lanes * (1 + b->backend->ahead);
	struct bench_lane *lane = fal_xcalloc(slots, sizeof(*lane));
	struct backend_profile profile = { 0 };
	uint64_t samples = 0, tasks = 0;
	uint32_t threads = 0;
	int err = b->backend->ops->probe(b->backend, &profile);
	const uint64_t begin = uv_hrtime();
	b->until = begin + BENCH_SECONDS * UINT64_C(1000000000);
	for (; threads < slots && err == FAL_OK; threads += err == FAL_OK) {
		struct bench_lane *l = &lane[threads];
		*l = (struct bench_lane){ .bench = b, .number = threads };
		l->sum = fal_sum_new(b->setup.model->params);
		if (l->sum == NULL)
			err = FAL_ENOMEM;
		else if (uv_thread_create(&l->thread, bench_lane_run, l) != 0)
			err = FAL_EIO;
	}
	for (uint32_t i = 0; i < threads; i++) {
		uv_thread_join(&lane[i].thread);
		err = err < 0 ? err : lane[i].err;
		samples += lane[i].samples;
		tasks += lane[i].tasks;
	}
	const double s = (double)(uv_hrtime() - begin) * 1e-9;
	for (uint32_t i = 0; i < slots; i++)
		fal_sum_free(lane[i].sum);
	free(lane);
	if (err < 0)
		return fal_diag_set(diag, err, "%s",
				    err == FAL_EPERM ? "the trainer was given up"
						     : fal_strerror(err));
	printf("%.0f samples/s: %u lane%s, %.3g ms a task of %u sample%s; %s\n",
	       (double)samples / s, lanes, fal_text_plural(lanes),
	       s * 1e3 * lanes / (double)tasks, b->setup.job.task,
	       fal_text_plural(b->setup.job.task), profile.kernels);
	return FAL_OK;
}

int
bench_run(const struct work_opt *opt, const char *file, const char *command)
{
	struct fal_diag diag = { "" };
	struct bench b = { 0 };
	int code = FAL_EXIT_DONE;
	int err = bench_load(&b, opt, file, command, &diag);
	if (err < 0)
		code = err == FAL_ENOMEM || err == FAL_EPERM ? FAL_EXIT_NO
							     : FAL_EXIT_USAGE;
	else if (bench_measure(&b, opt->lanes_max, &diag) < 0)
		code = FAL_EXIT_NO;
	if (code != FAL_EXIT_DONE)
		fal_cli_err(PROG, "%s", diag.text);
	if (b.backend != NULL)
		b.backend->ops->free(b.backend);
	trainer_pool_close(b.pool);
	fal_epoch_release(b.epoch);
	fal_samples_free(b.samples);
	fal_setup_free(&b.setup);
	fal_files_free(&b.files);
	free(b.params);
	free(b.exps);
	return fal_cli_finish(PROG, code);
}
