/* Tasks as a coordinator would grant them, each twice, in halves, and judged. */
#include "try.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/file.h"
#include "data/set.h"
#include "exec.h"
#include "exec_job.h"
#include "model/safetensors.h"
#include "need.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 20, HEADER_MAX = 2 << 20, TASKS = 3, VECTORS = 3 };

struct
try {
	struct fal_buf job_text, model_text;
	struct fal_job job;
	struct fal_set set[2]; /* train, test */
	struct fal_setup setup;
	struct fal_samples *samples[2];
	struct fal_epoch *epoch;
	struct exec *exec;
	struct trainer_job told;
	float *params, *grad[VECTORS];
	uint32_t *index, *label;
	uint64_t ids;
	bool redrawn; /* tasks have another seed than they would have */
	bool bad;     /* something is to be changed */
};

static int
nomem(struct fal_diag *diag)
{
	return fal_diag_set(diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
}

/* --- the job ------------------------------------------------------------------------ */

/* The model's text: the model file, or the header of the initial weights. */
static int
load_model(struct try *t, const char *file, struct fal_buf *init, struct fal_diag *diag)
{
	const char *name = t->job.model != NULL ? t->job.model : t->job.init;
	char *path = fal_job_path(file, name);
	struct fal_model *m = NULL;
	int err = path == NULL ? nomem(diag) : FAL_OK;
	if (err == FAL_OK && t->job.model != NULL)
		err = fal_cli_read(path, TEXT_MAX, &t->model_text, diag);
	else if (err == FAL_OK)
		err = fal_cli_read(path,
				   FAL_MODEL_MAX_FLOATS * sizeof(float) + HEADER_MAX,
				   init, diag);
	const struct fal_safetensors weights = fal_job_tensors(&t->job, path, init);
	if (err == FAL_OK && t->job.model == NULL)
		err = fal_safetensors_model(&weights, &m, diag);
	if (err == FAL_OK && m != NULL && fal_safetensors_header(m, &t->model_text) < 0)
		err = nomem(diag);
	fal_model_free(m);
	free(path);
	return err;
}

static int
make_samples(struct try *t, bool test)
{
	const struct fal_manifest *m = &t->setup.manifest;
	if (t->set[test].n == 0)
		return FAL_OK;
	int err = fal_samples_new(test ? &m->test : &m->train, &t->samples[test]);
	return err == FAL_OK ? fal_samples_put_set(t->samples[test], &t->set[test]) : err;
}

/* What it has at its peak.  The data are there as they were read, and as samples. */
static int
judge_need(const struct try *t, const struct work_opt *opt, struct fal_diag *diag)
{
	const struct fal_setup *s = &t->setup;
	const uint64_t vector = s->model->params * sizeof(float);
	/* Parameters of the job's file, and of the trainer; gradients. */
	const struct need need = { .bytes = opt->program + 2 * fal_setup_bytes(s) +
					    (2 + VECTORS + 2) * vector };
	return need_judge(opt, s->job.name, "needs", need, 0, diag);
}

static int
make_setup(struct try *t, const struct work_opt *opt, const char *file,
	   struct fal_diag *diag)
{
	const struct fal_setup_text job = { file, t->job_text.p, t->job_text.n };
	const struct fal_setup_text model = { t->job.model, t->model_text.p,
					      t->model_text.n };
	struct fal_setup *s = &t->setup;
	const struct fal_set *train = &t->set[0], *test = &t->set[1];
	int err = fal_manifest_build(train, test->n > 0 ? test : NULL, &s->manifest);
	if (err == FAL_OK && train->labels != NULL)
		err = fal_manifest_tell_labels(&s->manifest, train);
	if (err < 0)
		return fal_diag_set(diag, err, "%s: training and test data: %s", file,
				    fal_strerror(err));
	err = fal_setup_make(s, &job, &model, diag);
	if (err == FAL_OK)
		err = judge_need(t, opt, diag);
	if (err < 0)
		return err;
	if (make_samples(t, false) < 0 || make_samples(t, true) < 0)
		return nomem(diag);
	t->epoch = fal_setup_epoch(s, 0);
	t->params = fal_calloc_aligned(s->model->params, sizeof(float));
	for (int i = 0; i < VECTORS; i++)
		t->grad[i] = fal_calloc_aligned(s->model->values, sizeof(float));
	t->index = fal_calloc(s->job.task, sizeof(*t->index));
	t->label = fal_calloc(s->job.task, sizeof(*t->label));
	return t->epoch == NULL || t->params == NULL || t->grad[VECTORS - 1] == NULL ||
			       t->grad[0] == NULL || t->grad[1] == NULL ||
			       t->index == NULL || t->label == NULL ||
			       exec_job_make(&t->told, s) < 0
		       ? nomem(diag)
		       : FAL_OK;
}

static int
load(struct try *t, const struct work_opt *opt, const char *file, struct fal_diag *diag)
{
	const struct fal_load files = { .job = &t->job, .job_file = file };
	struct fal_buf init = { 0 };
	int err = fal_cli_read(file, TEXT_MAX, &t->job_text, diag);
	if (err == FAL_OK)
		err = fal_job_parse(file, (char *)t->job_text.p, t->job_text.n, &t->job,
				    diag);
	if (err == FAL_OK)
		err = fal_load_sets(&files, &t->set[0], &t->set[1], diag);
	if (err == FAL_OK)
		err = load_model(t, file, &init, diag);
	if (err == FAL_OK)
		err = make_setup(t, opt, file, diag);
	const struct fal_safetensors weights =
		fal_job_tensors(&t->job, t->job.init, &init);
	if (err == FAL_OK && t->job.model == NULL)
		err = fal_safetensors_get(&weights, t->setup.model, t->params, diag);
	else if (err == FAL_OK)
		exec_job_params(&t->setup, t->params);
	fal_buf_free(&init);
	return err;
}

static void
unload(struct try *t)
{
	exec_close(t->exec);
	exec_job_free(&t->told);
	fal_epoch_drop(t->epoch);
	for (int i = 0; i < 2; i++) {
		if (t->samples[i] != NULL)
			fal_samples_free(t->samples[i]);
		fal_set_free(&t->set[i]);
	}
	fal_setup_free(&t->setup);
	fal_job_free(&t->job);
	fal_buf_free(&t->job_text);
	fal_buf_free(&t->model_text);
	for (int i = 0; i < VECTORS; i++)
		free(t->grad[i]);
	free(t->params);
	free(t->index);
	free(t->label);
}

/* --- tasks -------------------------------------------------------------------------- */

static void __attribute__((format(printf, 2, 3)))
no(struct try *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs("no: ", stdout);
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
	t->bad = true;
}

struct work {
	struct exec_samples samples; /* first: exec_job_fill's */
	float *grad;
};

static int
take(void *arg, const struct trainer_made *made, const float *grads)
{
	const struct work *w = arg;
	(void)made;
	if (grads != NULL)
		memcpy(w->grad, grads, w->samples.setup->model->values * sizeof(*grads));
	return FAL_OK;
}

/* The samples at `count` places from `first`; false: it was not made, which was said. */
static bool
make(struct try *t, uint32_t first, uint32_t count, float *grad,
     struct trainer_made *made)
{
	const struct fal_setup *s = &t->setup;
	const bool eval = grad == NULL;
	const struct fal_order *order = eval ? &s->test_order : &t->epoch->order;
	struct trainer *trainer = t->exec->trainer[0];
	const struct fal_run_job job = { .batch = { t->samples[eval], order, &s->norm },
					 .first = first,
					 .count = count };
	struct work work = { { &job, t->label, s }, grad };
	const struct trainer_task task = {
		.line = { .id = ++t->ids,
			  .seed = fal_rng_task(s->job.seed, 0, first / s->job.task) ^
				  t->redrawn,
			  .task = first / s->job.task,
			  .count = count,
			  .index = t->index,
			  .eval = eval },
		.params = t->params,
		.serial = 1,
		.fill = exec_job_fill,
		.take = take,
		.arg = &work,
	};
	for (uint32_t i = 0; i < count; i++)
		t->index[i] = fal_order_at(order, first + i);
	if (trainer_start(trainer, t->ids) != 0 &&
	    trainer_do(trainer, &task, made) == FAL_OK && made->end == TRAINER_MADE)
		return true;
	fflush(stdout);
	no(t, "a task of %u sample%s was not computed: see what it said above", count,
	   fal_text_s(count));
	return false;
}

/* The largest magnitude in a gradient; infinity where a value is not finite. */
static float
largest(const struct try *t, const float *v)
{
	const uint64_t n = t->setup.model->values;
	float most = 0;
	for (uint64_t i = 0; i < n; i += FAL_BLOCK) {
		const uint64_t left = n - i;
		const float of =
			fal_max_abs(v + i, left < FAL_BLOCK ? (uint32_t)left : FAL_BLOCK);
		most = fmaxf(most, of);
	}
	return most;
}

/* What a run has room for on these parameters, of which no exponent is another's. */
static float
room_for(const struct try *t)
{
	const struct fal_grid grid = fal_job_grid(&t->job, t->setup.manifest.train.n);
	return fal_bfp_most(FAL_EXP_FIRST, fal_bfp_room(fal_grid_tasks(&grid, 0)));
}

/* Whether there is room for gradients of up to `most`. */
static bool
judge_size(struct try *t, float most)
{
	struct fal_diag what;
	if (most < room_for(t))
		return true;
	fal_run_say_large(most, room_for(t), &what);
	no(t, "a %s", what.text);
	return false;
}

/* The same, with another seed. */
static bool
make_redrawn(struct try *t, uint32_t first, uint32_t count, float *grad,
	     struct trainer_made *made)
{
	t->redrawn = true;
	const bool ok = make(t, first, count, grad, made);
	t->redrawn = false;
	return ok;
}

/* How long a times the first gradient, b times the second, c times the third is, all
 * together, by the length of the third. */
static double
length(const struct try *t, double a, double b, double c)
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

/* A few tasks, each twice; false: no more can be tried. */
static bool
try_twice(struct try *t, double *ms)
{
	const size_t bytes = t->setup.model->values * sizeof(float);
	uint32_t n = 0;
	bool same = true, null = false;
	float most = 0;
	*ms = INFINITY;
	for (; n < TASKS; n++) {
		const struct fal_places p = fal_setup_places(&t->setup, 0, n);
		struct trainer_made made[2];
		if (p.count == 0)
			break;
		for (int i = 0; i < 2; i++)
			if (!make(t, p.first, p.count, t->grad[i], &made[i]))
				return false;
		same = same && memcmp(t->grad[0], t->grad[1], bytes) == 0;
		most = fmaxf(most, largest(t, t->grad[0]));
		null = null || isnan(made[0].loss);
		*ms = fmin(*ms, (double)made[1].ns * 1e-6);
	}
	if (!same && !t->exec->hello.impure)
		no(t, "the same task gives other bits the second time: take all "
		      "randomness from the task's seed, carry nothing from task to task, "
		      "and ask the library for deterministic kernels");
	const bool finite = isfinite(most), fits = !finite || judge_size(t, most);
	if (!finite)
		no(t, "gradients are not finite on the job's first parameters");
	if ((same || t->exec->hello.impure) && finite && fits)
		printf("ok %u tasks, each twice: %s; %.3g ms a task; finite\n", n,
		       same ? "same bits" : "other bits, as it says itself", *ms);
	if (null)
		puts("ok its loss is null: not finite, or not known");
	return finite;
}

/* Two halves and a whole, the first `half` of `count`: are the gradients sums?  Whoever
 * adds in another order is off by little, and by less than whoever has one sample less;
 * unless it is one of many, and 16 bits are computed with.  What is drawn from seeds, of
 * which each half has another one, is not the whole's: they differ by as much as the
 * whole with another seed, but neither is longer.  False: no more can be tried. */
static bool
try_sum(struct try *t, uint32_t half, uint32_t count)
{
	static const char whole[] = "the sum of two half tasks is the whole task";
	const double most = 1e-3, most_of_16_bits = 2e-2, part = (double)half / count;
	const double sum = length(t, 1, 1, -1);
	const bool mean = length(t, 1, 1, 0) > sqrt(2);
	const double off = mean ? length(t, part, 1 - part, -1) : sum;
	double drawn = 0;
	if (off >= most) {
		struct trainer_made made;
		if (!make_redrawn(t, 0, count, t->grad[0], &made))
			return false;
		drawn = length(t, 1, 0, -1);
	}
	if (off >= most_of_16_bits && off > 3 * drawn)
		no(t,
		   "the sum of two half tasks is not the whole task, off by %.2g of it: "
		   "statistics of a batch do so; else samples are left out or weighted",
		   sum);
	else if (mean)
		no(t, "the gradient is a MEAN over the task's samples: it is to be their "
		      "SUM; with PyTorch: reduction=\"sum\"");
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

static void
say_cost(uint32_t count, double ms, uint32_t half, double half_ms)
{
	const double each = (ms - half_ms) / (count - half);
	const double fixed = fmin(1, fmax(0, (ms - each * count) / ms));
	printf("ok a task of %u sample%s takes %.3g ms, of %u %.3g ms: %.0f %% of it "
	       "%s\n",
	       count, fal_text_s(count), ms, half, half_ms, 100 * fixed,
	       fixed > 0.5 ? "do not depend on its size: larger ones (batch.task) "
			     "would cost little more"
			   : "do not depend on its size");
}

static bool
try_halves(struct try *t, double ms)
{
	const uint32_t count = fal_setup_places(&t->setup, 0, 0).count, half = count / 2;
	struct trainer_made a, b;
	if (half == 0)
		return true;
	if (!make(t, 0, half, t->grad[0], &a) ||
	    !make_redrawn(t, half, count - half, t->grad[1], &b) ||
	    !make(t, 0, count, t->grad[2], &b))
		return false;
	if (t->job.buffers != NULL)
		printf("ok two half tasks are not compared with the whole: statistics of "
		       "a batch (model.buffers) make them differ\n");
	else if (!try_sum(t, half, count))
		return false;
	/* The second time, as of the whole. */
	if (!make(t, 0, half, t->grad[0], &a))
		return false;
	say_cost(count, ms, half, (double)a.ns * 1e-6);
	return true;
}

static void
try_eval(struct try *t)
{
	const uint32_t count = fal_setup_test_places(&t->setup, 0).count;
	struct trainer_made made;
	if (!fal_job_has_test(&t->job) || !make(t, 0, count, NULL, &made))
		return;
	if (made.right > count)
		no(t, "judging: %u of %u right, loss %g", made.right, count, made.loss);
	else if (isnan(made.loss)) /* as of null; no number in JSON is infinite */
		printf("ok judging: %u of %u right, loss not known\n", made.right, count);
	else
		printf("ok judging: %u of %u right, loss %.4g a sample\n", made.right,
		       count, made.loss / count);
}

int
try_run(const struct work_opt *opt, const char *file, const char *command)
{
	const struct trainer_conf conf = { .command = command, .worker = "try" };
	struct fal_diag diag = { "" };
	struct try t = { 0 };
	char params[32];
	double ms;
	int err = load(&t, opt, file, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s", diag.text);
		unload(&t);
		return err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE;
	}
	if (exec_open(&conf, 1, &t.exec, &diag) < 0) {
		no(&t, "no hello: %s", diag.text);
	} else if (exec_job_agrees(&t.setup, &t.exec->hello, &diag) < 0) {
		no(&t, "%s", diag.text);
	} else {
		const char *about = t.exec->hello.about;
		const struct fal_model *m = t.setup.model;
		printf("ok hello %s%s%u tensor%s, %s parameter%s\n", about,
		       *about != '\0' ? ", " : "", m->tensors, fal_text_s(m->tensors),
		       fal_text_group(m->values, params), fal_text_s(m->values));
		trainer_begin(t.exec->trainer[0], &t.told);
		if (try_twice(&t, &ms) && try_halves(&t, ms))
			try_eval(&t);
	}
	unload(&t);
	return fal_cli_finish(PROG, t.bad ? FAL_EXIT_NO : FAL_EXIT_DONE);
}
