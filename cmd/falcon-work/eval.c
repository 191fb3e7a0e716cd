/* Judging a model, in the tasks and the order of adding that workers judge it in: the
 * result is the coordinator's to the last bit.
 */
#include "eval.h"

#include "base/json.h"
#include "base/loss.h"
#include "base/mem.h"
#include "cli/file.h"
#include "cli/progress.h"
#include "data/set.h"
#include "maker.h"
#include "model/safetensors.h"
#include "need.h"
#include "nn/net.h"
#include "run/setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <uv.h>

enum { TEXT_MAX = 1 << 20, HEADER_MAX = 2 << 20 }; /* bytes */

struct eval {
	const struct work_opt *opt;
	struct fal_buf job_text, model_text;
	struct fal_job job;
	struct fal_set set;
	struct fal_setup setup;
	struct fal_samples *samples;
	struct maker *maker;
	float *params;
};

struct judged {
	uint64_t right, total;
	bool unknown; /* the loss of a task */
	int64_t loss; /* Σ, as base/loss.h has it */
};

static int
nomem(struct fal_diag *diag)
{
	return fal_diag_set(diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
}

static int
load_job(struct eval *e, const char *file, struct fal_diag *diag)
{
	int err = fal_cli_read(file, TEXT_MAX, &e->job_text, diag);
	if (err == FAL_OK)
		err = fal_job_parse(file, (char *)e->job_text.p, e->job_text.n, &e->job,
				    diag);
	if (err == FAL_OK && e->job.model == NULL)
		err = fal_diag_set(diag, FAL_EINVAL, "%s: the job has no model.file",
				   file);
	return err;
}

/* The set and its copy by chunks; a file's bytes and the parameters that are in it; a
 * desk, and, to predict, another one. */
static int
afford(struct eval *e, bool predicts, struct fal_diag *diag)
{
	const struct maker_need is = e->maker->ops->need(e->maker, 0);
	const struct need need = { e->opt->program + is.kernels +
					   fal_setup_bytes(&e->setup) +
					   is.lanes * (predicts ? 2 : 1) +
					   2 * e->setup.model->params * sizeof(float) +
					   HEADER_MAX,
				   is.space };
	return need_judge(e->opt, e->job.name, "needs", need, 0, diag);
}

static int
load_set(struct eval *e, const char *file, struct fal_diag *diag)
{
	const struct fal_load files = { .job = &e->job, .job_file = file, .test = true };
	if (!fal_job_has_test(&e->job))
		return fal_diag_set(diag, FAL_EINVAL, "%s: the job has no test set",
				    file);
	return fal_load_set(&files, &e->set, diag);
}

/* The set stands for the training data, too: they are not read. */
static int
load_setup(struct eval *e, const char *file, bool predicts, struct fal_diag *diag)
{
	char *path = fal_job_path(file, e->job.model);
	int err = path == NULL ? nomem(diag)
			       : fal_cli_read(path, TEXT_MAX, &e->model_text, diag);
	const struct fal_setup_text job = { file, e->job_text.p, e->job_text.n };
	const struct fal_setup_text model = { path, e->model_text.p, e->model_text.n };
	if (err == FAL_OK && fal_manifest_build(&e->set, &e->set, &e->setup.manifest) < 0)
		err = nomem(diag);
	if (err == FAL_OK)
		err = fal_setup_make(&e->setup, &job, &model, diag);
	if (err == FAL_OK)
		err = maker_net_new(&e->setup, 1, &e->maker, diag);
	if (err == FAL_OK)
		err = afford(e, predicts, diag);
	if (err == FAL_OK && e->maker->ops->start(e->maker) < 0)
		err = nomem(diag);
	if (err == FAL_OK && (fal_samples_new(&e->setup.manifest.test, &e->samples) < 0 ||
			      fal_samples_put_set(e->samples, &e->set) < 0))
		err = nomem(diag);
	free(path);
	return err;
}

static int
load_params(struct eval *e, const char *path, struct fal_diag *diag)
{
	const struct fal_model *m = e->setup.model;
	struct fal_buf bytes = { 0 };
	int err =
		fal_cli_read(path, m->params * sizeof(float) + HEADER_MAX, &bytes, diag);
	const struct fal_safetensors file = fal_job_tensors(&e->job, path, &bytes);
	e->params = fal_calloc_aligned(m->params, sizeof(float));
	if (err == FAL_OK && e->params == NULL)
		err = nomem(diag);
	if (err == FAL_OK)
		err = fal_safetensors_get(&file, m, e->params, diag);
	fal_buf_free(&bytes);
	return err;
}

/* The samples are of a file without labels, or, NULL, the job's test set. */
static int
load(struct eval *e, const char *job, const char *samples, const char *model,
     struct fal_diag *diag)
{
	int err = load_job(e, job, diag);
	if (err == FAL_OK)
		err = samples != NULL ? fal_set_load_unlabelled(samples, &e->set, diag)
				      : load_set(e, job, diag);
	if (err == FAL_OK)
		err = load_setup(e, job, samples != NULL, diag);
	return err < 0 ? err : load_params(e, model, diag);
}

static int
judge(struct eval *e, struct judged *out, struct fal_diag *diag)
{
	const struct fal_setup *s = &e->setup;
	int err = FAL_OK;
	struct fal_progress bar = fal_progress_begin("judging", s->manifest.test.n,
						     (double)uv_hrtime() * 1e-9);
	for (uint32_t task = 0; err == FAL_OK; task++) {
		const struct fal_places p = fal_setup_test_places(s, task);
		const struct fal_run_job job = {
			.run = { .eval = true, .params = e->params },
			.batch = { e->samples, &s->test_order, &s->norm },
			.first = p.first,
			.count = p.count,
		};
		struct fal_ran ran = { 0 };
		if (p.count == 0)
			break;
		err = e->maker->ops->run(e->maker, 0, &job, &ran);
		out->right += ran.right;
		out->total += ran.samples;
		out->loss += ran.loss;
		out->unknown |= !fal_loss_known(ran.loss, ran.samples);
		fal_progress_show(&bar, out->total, (double)uv_hrtime() * 1e-9);
	}
	fal_progress_end();
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : FAL_OK;
}

static int
print(const struct judged *j, bool json)
{
	const double accuracy = (double)j->right / (double)j->total;
	const double loss =
		j->unknown ? (double)NAN : fal_loss_is(j->loss) / (double)j->total;
	if (!json) {
		printf("%" PRIu64 " %" PRIu64 " %.6f ", j->right, j->total, accuracy);
		printf(j->unknown ? "-\n" : "%.6f\n", loss);
		return fal_cli_finish(PROG, FAL_EXIT_DONE);
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
	return fal_cli_finish(PROG, code);
}

static void
unload(struct eval *e)
{
	free(e->params);
	if (e->samples != NULL)
		fal_samples_free(e->samples);
	if (e->maker != NULL)
		e->maker->ops->free(e->maker);
	fal_setup_free(&e->setup);
	fal_set_free(&e->set);
	fal_job_free(&e->job);
	fal_buf_free(&e->job_text);
	fal_buf_free(&e->model_text);
}

/* --- --predict ---------------------------------------------------------------------- */

/* The class of the first largest logit, and its probability by softmax. */
static void
print_best(const float *z, uint32_t classes)
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
predict(struct eval *e, struct fal_diag *diag)
{
	const struct fal_setup *s = &e->setup;
	const struct fal_model *m = s->model;
	const struct fal_batch batch = { e->samples, &s->test_order, &s->norm };
	struct fal_net *net = NULL;
	struct fal_arena *arena = NULL;
	float *x = fal_calloc_aligned((size_t)s->job.task * m->inputs, sizeof(*x));
	uint32_t *label = fal_calloc(s->job.task, sizeof(*label));
	int err = x != NULL && label != NULL ? fal_net_new(m, s->job.task, &net)
					     : FAL_ENOMEM;
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
			print_best(z + (size_t)i * m->classes, m->classes);
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
	struct judged j = { 0 };
	struct fal_diag diag = { "" };
	int err = load(&e, job, samples, model, &diag);
	/* What went wrong so far is wrong with the files. */
	int code = err < 0 && err != FAL_ENOMEM ? FAL_EXIT_USAGE : FAL_EXIT_NO;
	if (err == FAL_OK)
		err = samples != NULL ? predict(&e, &diag) : judge(&e, &j, &diag);
	if (err < 0)
		fal_cli_err(PROG, "%s", diag.text);
	else
		code = samples != NULL ? fal_cli_finish(PROG, FAL_EXIT_DONE)
				       : print(&j, json);
	unload(&e);
	return code;
}
