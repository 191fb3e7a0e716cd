/* The modes that take a job file.  --eval evaluates a model by the workers' tasks and in
 * their order of adding, so that the result equals the coordinator's to the last bit.
 * --predict classifies samples.  --try computes tasks as a coordinator would grant them:
 * each task twice, in halves, and in evaluation.
 */
#include "work.h"

#include "backend.h"
#include "base/json.h"
#include "base/loss.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/file.h"
#include "cli/progress.h"
#include "job/set.h"
#include "job_runtime.h"
#include "math/net.h"
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
	bool loss_unknown; /* in a task */
	int64_t loss;      /* Σ, as base/loss.h has it */
};

/* Makes the setup.  The set also takes the place of the training data, which are not
 * read. */
static int
eval_load_setup(struct eval *e, const char *file, bool predicts, struct fal_diag *diag)
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
				m.lanes * (predicts ? 2 : 1) +
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

static int
eval_load_params(struct eval *e, const char *path, struct fal_diag *diag)
{
	const struct fal_model *m = e->setup.model;
	struct fal_buf bytes = { 0 };
	int err =
		fal_cli_read(path, m->params * sizeof(float) + HEADER_MAX, &bytes, diag);
	const struct fal_safetensors file = fal_job_tensors(&e->job, path, &bytes);
	e->params = fal_calloc_aligned(m->params, sizeof(float));
	if (err == FAL_OK && e->params == NULL)
		err = diag_nomem(diag);
	if (err == FAL_OK)
		err = fal_safetensors_get(&file, m, e->params, diag);
	fal_buf_free(&bytes);
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
		err = eval_load_setup(e, job, samples != NULL, diag);
	return err < 0 ? err : eval_load_params(e, model, diag);
}

static int
eval_compute(struct eval *e, struct eval_sums *out, struct fal_diag *diag)
{
	const struct fal_setup *s = &e->setup;
	int err = FAL_OK;
	struct fal_progress bar = fal_progress_begin("judging", s->manifest.test.n,
						     (double)uv_hrtime() * 1e-9);
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
		fal_progress_show(&bar, out->total, (double)uv_hrtime() * 1e-9);
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
	fal_json_key(&out, "accuracy");
	fal_json_num(&out, accuracy);
	fal_json_key(&out, "loss");
	fal_json_num(&out, loss);
	fal_json_close(&out, '}');
	fal_put_u8(&out, '\n');
	if (out.err == 0)
		fwrite(out.p, 1, out.n, stdout);
	int code = out.err == 0 ? FAL_EXIT_DONE : FAL_EXIT_NO;
	fal_buf_free(&out);
	return code;
}

/* --- --predict ---------------------------------------------------------------------- */

/* Prints the class of the first largest logit, and its probability by softmax. */
static void
print_prediction(const float *z, uint32_t classes)
{
	uint32_t best = 0;
	double sum = 0;
	for (uint32_t c = 1; c < classes; c++)
		best = z[c] > z[best] ? c : best;
	for (uint32_t c = 0; c < classes; c++)
		sum += exp((double)z[c] - (double)z[best]);
	printf("%" PRIu32 " %.6f\n", best, 1 / sum);
}

static int
eval_predict(struct eval *e, struct fal_diag *diag)
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
		for (uint32_t i = 0; i < p.count; i++)
			print_prediction(z + (size_t)i * m->classes, m->classes);
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
	struct eval e = { .opt = opt };
	struct eval_sums sums = { 0 };
	struct fal_diag diag = { "" };
	int err = eval_load(&e, job, samples, model, &diag);
	/* An error up to here is a fault of the files. */
	int code = err < 0 && err != FAL_ENOMEM ? FAL_EXIT_USAGE : FAL_EXIT_NO;
	if (err == FAL_OK)
		err = samples != NULL ? eval_predict(&e, &diag)
				      : eval_compute(&e, &sums, &diag);
	if (err < 0)
		fal_cli_err(PROG, "%s", diag.text);
	else
		code = fal_cli_finish(PROG, samples != NULL ? FAL_EXIT_DONE
							    : eval_print(&sums, json));
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
	uint64_t ids;
	bool found_faults; /* the trainer fails some check */
};

static int
trial_make_samples(struct trial *t, bool test)
{
	const struct fal_set *set = test ? &t->files.test : &t->files.train;
	const struct fal_manifest *m = &t->setup.manifest;
	if (set->n == 0)
		return FAL_OK;
	int err = fal_samples_new(test ? &m->test : &m->train, &t->samples[test]);
	return err == FAL_OK ? fal_samples_put_set(t->samples[test], set) : err;
}

static int
trial_load(struct trial *t, const struct work_opt *opt, const char *file,
	   struct fal_diag *diag)
{
	struct fal_setup *s = &t->setup;
	struct fal_buf text = { 0 };
	int err = fal_cli_read(file, TEXT_MAX, &text, diag);
	if (err == FAL_OK)
		err = fal_files_load_text(&t->files, file, fal_files_skip_from, &text,
					  diag);
	fal_buf_free(&text);
	if (err == FAL_OK)
		err = fal_files_make_setup(&t->files, s, diag);
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
	t->params = fal_xcalloc_aligned(s->model->params, sizeof(float));
	for (int i = 0; i < VECTORS; i++)
		t->grad[i] = fal_xcalloc_aligned(s->model->values, sizeof(float));
	if (trial_make_samples(t, false) < 0 || trial_make_samples(t, true) < 0)
		return diag_nomem(diag);
	t->index = fal_xcalloc(s->job.task, sizeof(*t->index));
	t->label = fal_xcalloc(s->job.task, sizeof(*t->label));
	trainer_job_make(&t->job, s);
	if (t->files.init != NULL)
		memcpy(t->params, t->files.init, s->model->params * sizeof(float));
	else
		trainer_job_fill_params(s, t->params);
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
	if (done && !eval)
		memcpy(grad, trainer_grads(trainer), s->model->values * sizeof(*grad));
	if (done)
		return true;
	fflush(stdout);
	print_fault(t, "a task of %u sample%s was not computed: see what it said above",
		    count, fal_text_plural(count));
	return false;
}

/* The largest magnitude in a gradient; infinity where a value is not finite. */
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

/* Does a run have room for gradients of up to `most` on these parameters, all of which
 * have the first exponent?  If not, prints a fault. */
static bool
trial_check_room(struct trial *t, float most)
{
	const struct fal_grid grid =
		fal_job_grid(&t->setup.job, t->setup.manifest.train.n);
	const float room =
		fal_bfp_most(FAL_EXP_FIRST, fal_bfp_room(fal_grid_tasks(&grid, 0)));
	struct fal_diag what;
	if (most < room)
		return true;
	fal_explain_large_gradient(most, room, &what);
	print_fault(t, "a %s", what.text);
	return false;
}

/* Returns |a·g1 + b·g2 + c·g3| / |g3|, for the first, second and third gradient. */
static double
relative_length(const struct trial *t, double a, double b, double c)
{
	double off = 0, all = 0;
	for (uint64_t i = 0; i < t->setup.model->values; i++) {
		const double whole = (double)t->grad[2][i];
		const double d =
			a * (double)t->grad[0][i] + b * (double)t->grad[1][i] + c * whole;
		off += d * d;
		all += whole * whole;
	}
	return all > 0 ? sqrt(off / all) : off > 0 ? INFINITY : 0;
}

/* Computes a few tasks, each twice.  False: no more can be tried. */
static bool
try_twice(struct trial *t, double *ms)
{
	const size_t bytes = t->setup.model->values * sizeof(float);
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
	return finite;
}

/* Compares the gradients of two half tasks, the first of `half` of `count` samples, with
 * the whole task's: are gradients sums?  A trainer that adds in another order is off by
 * little: by less than a trainer that leaves out a sample, unless that sample is one of
 * many and the trainer computes with 16 bits.  If the trainer draws values from the seed,
 * each half has other values than the whole.  The gradients then differ by as much as the
 * gradient of the whole task with another seed differs, but no gradient is longer. False:
 * no more can be tried.
 */
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
			"it: statistics of a batch do so; else samples are left out or "
			"weighted",
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

/* Prints the part of a task's time that does not depend on the task's size. */
static void
print_cost(const struct fal_job *job, uint32_t count, double ms, uint32_t half,
	   double half_ms)
{
	static const double much = 1.0 / 3;
	const double each = (ms - half_ms) / (count - half);
	const double fixed = fmin(1, fmax(0, (ms - each * count) / ms));
	printf("ok a task of %u sample%s takes %.3g ms, of %u %.3g ms: %.0f %% of it "
	       "%s\n",
	       count, fal_text_plural(count), ms, half, half_ms, 100 * fixed,
	       fixed > 0.5 ? "do not depend on its size: larger ones (batch.task) "
			     "would cost little more"
			   : "do not depend on its size");
	const double small = fixed * ms / (fixed * ms + each * job->tail_task);
	if (job->tail > 0 && small > much)
		printf("ok a task of the clock's tail, of %u sample%s: %.0f %% do not "
		       "depend "
		       "on its size: a larger batch.tail-task, or batch.tail = 0, would "
		       "cost less\n",
		       job->tail_task, fal_text_plural(job->tail_task), 100 * small);
}

static bool
try_halves(struct trial *t, double ms)
{
	const uint32_t count = fal_setup_places(&t->setup, 0, 0).count, half = count / 2;
	struct trainer_result a, b;
	if (half == 0)
		return true;
	if (!trial_compute(t, 0, half, false, t->grad[0], &a) ||
	    !trial_compute(t, half, count - half, true, t->grad[1], &b) ||
	    !trial_compute(t, 0, count, false, t->grad[2], &b))
		return false;
	if (t->setup.job.buffers != NULL)
		printf("ok two half tasks are not compared with the whole: statistics of "
		       "a batch (model.buffers) make them differ\n");
	else if (!try_sum(t, half, count))
		return false;
	/* The time of the second run, as for the whole task. */
	if (!trial_compute(t, 0, half, false, t->grad[0], &a))
		return false;
	print_cost(&t->setup.job, count, ms, half, (double)a.ns * 1e-6);
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
}

int
try_run(const struct work_opt *opt, const char *file, const char *command)
{
	const struct trainer_conf conf = { .command = command, .worker = "try" };
	struct fal_diag diag = { "" };
	struct trial t = { 0 };
	char params[32];
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
		const char *about = t.pool->hello.about;
		const struct fal_model *m = t.setup.model;
		printf("ok hello %s%s%u tensor%s, %s parameter%s\n", about,
		       *about != '\0' ? ", " : "", m->tensors,
		       fal_text_plural(m->tensors), fal_text_thousands(m->values, params),
		       fal_text_plural(m->values));
		trainer_set_job(t.pool->trainer[0], &t.job);
		if (try_twice(&t, &ms) && try_halves(&t, ms))
			try_eval(&t);
	}
	trial_unload(&t);
	return fal_cli_finish(PROG, t.found_faults ? FAL_EXIT_NO : FAL_EXIT_DONE);
}
