/* What lies beside a trace. */
#include "folder.h"

#include "base/json_load.h"
#include "base/mem.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "job/job.h"
#include "journal.h"
#include "model/safetensors.h"
#include "sec/hash.h"
#include "stat.h"
#include "trace/chain.h"
#include "wire/bfp.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TEXT_MAX = 1 << 20 };     /* bytes of a job or result */
enum { JOURNAL_MAX = 64 << 20 }; /* and of a journal */

struct folder {
	const char *dir;
	struct fal_audit *audit;
	const struct fal_audit_told *told;
	struct fal_job job; /* all 0: there is none that can be read */
	/* Of the model's file, and of its version; "": there is none. */
	char sha256[65], hash[65];
	int code; /* FAL_EXIT_DONE, or why it cannot be judged; has been said then */
};

bool
stat_is_folder(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* DIR/name into `out`; false: it is not there, which is found if it must be, or cannot be
 * read. */
static bool
read_file(struct folder *f, const char *name, size_t most, bool must, struct fal_buf *out)
{
	struct fal_diag diag = { "" };
	char *path = fal_xprintf("%s/%s", f->dir, name);
	int err = fal_cli_read(path, most, out, &diag);
	free(path);
	if (err == FAL_ENOENT && !must) {
		return false;
	} else if (err == FAL_ENOENT) {
		fal_audit_found(f->audit, "%s: is not there", name);
	} else if (err < 0) {
		fal_cli_err(PROG, "%s",
			    err == FAL_ENOMEM ? fal_strerror(err) : diag.text);
		f->code = err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE;
	}
	return err == FAL_OK;
}

static void
no_memory(struct folder *f)
{
	fal_cli_err(PROG, "%s", fal_strerror(FAL_ENOMEM));
	f->code = FAL_EXIT_NO;
}

static void
same(struct folder *f, const char *what, const char *told, const char *is)
{
	if (strcmp(told, is) != 0)
		fal_audit_found(f->audit, "%s is %.64s, but the trace says %.64s", what,
				is, told);
}

static void
same_number(struct folder *f, const char *what, uint64_t told, uint64_t is)
{
	if (told != is)
		fal_audit_found(f->audit,
				"%s is %" PRIu64 ", but the trace says %" PRIu64, what,
				is, told);
}

/* What the job line repeats of it. */
static void
judge_job(struct folder *f, const struct fal_job *job)
{
	const struct fal_audit_told *t = f->told;
	char seed[24];
	snprintf(seed, sizeof(seed), "%" PRIu64, job->seed);
	same(f, "job: name", t->name, job->name);
	same(f, "job: seed", t->seed, seed);
	same(f, "job: from-sha256", t->from,
	     job->from_sha256 != NULL ? job->from_sha256 : "");
	same(f, "job: optimizer", t->optimizer, fal_optim_name(job->optim.kind));
	same_number(f, "job: epochs", t->job->epochs, job->epochs);
	same_number(f, "job: batch", t->job->batch, job->batch);
	same_number(f, "job: task", t->job->task, job->task);
	same_number(f, "job: audit = sums", t->job->sums,
		    job->audit == FAL_JOB_AUDIT_SUMS);
}

static void
check_job(struct folder *f)
{
	struct fal_buf text = { 0 };
	uint8_t digest[FAL_HASH_BYTES];
	char hex[2 * FAL_HASH_BYTES + 1];
	if (!read_file(f, "job", TEXT_MAX, true, &text))
		return;
	fal_hash(text.p, text.n, digest);
	fal_hex(digest, sizeof(digest), hex);
	same(f, "job: hash", f->told->hash, hex);
	int err = fal_job_parse("job", (const char *)text.p, text.n, &f->job, NULL);
	if (err == FAL_OK)
		judge_job(f, &f->job);
	else if (err == FAL_ENOMEM)
		no_memory(f);
	else
		fal_audit_found(f->audit, "job: is none");
	fal_buf_free(&text);
}

/* The hash of the version that the file is. */
static int
hash_of(const struct folder *f, const struct fal_buf *bytes, struct fal_model **m,
	uint8_t out[static FAL_HASH_BYTES], struct fal_diag *diag)
{
	const struct fal_safetensors file =
		fal_job_tensors(&f->job, "model.safetensors", bytes);
	int err = fal_safetensors_model(&file, m, diag);
	if (err == FAL_OK && f->job.block == FAL_JOB_BLOCK_TENSOR)
		err = fal_model_align(*m, FAL_BLOCK);
	if (err < 0)
		return err;
	float *params = fal_calloc_aligned((*m)->params, sizeof(*params));
	if (params == NULL)
		return FAL_ENOMEM;
	err = fal_safetensors_get(&file, *m, params, diag);
	if (err == FAL_OK)
		fal_leaf_model(params, (*m)->params, out);
	free(params);
	return err;
}

static void
check_hash(struct folder *f, const struct fal_buf *bytes)
{
	struct fal_model *m = NULL;
	uint8_t hash[FAL_HASH_BYTES];
	struct fal_diag diag = { "" };
	int err = hash_of(f, bytes, &m, hash, &diag);
	if (err == FAL_ENOMEM) {
		no_memory(f);
	} else if (err < 0) {
		fal_cli_err(PROG, "%s/%s", f->dir, diag.text);
		f->code = FAL_EXIT_USAGE;
	} else {
		fal_hex(hash, sizeof(hash), f->hash);
		if (f->told->failed[0] == '\0')
			same(f, "model.safetensors: hash", f->told->model_hash, f->hash);
		same_number(f, "job: hashes", f->told->job->hashes,
			    f->job.hashes > 0 ? f->job.hashes
					      : fal_leaf_every(m->params));
	}
	fal_model_free(m);
}

/* SHA-256 of DIR/name, in hex; false: it is not there. */
static bool
sum_file(struct folder *f, const char *name, bool must, char hex[static 65],
	 struct fal_buf *bytes)
{
	uint8_t digest[FAL_HASH_BYTES];
	if (!read_file(f, name, SIZE_MAX / 2, must, bytes))
		return false;
	fal_sha256(bytes->p, bytes->n, digest);
	fal_hex(digest, sizeof(digest), hex);
	return true;
}

/* Of a job that failed the trace does not say which model it left, if any. */
static void
check_model(struct folder *f)
{
	struct fal_buf bytes = { 0 };
	const char *told = f->told->sha256;
	if (!sum_file(f, "model.safetensors", told[0] != '\0', f->sha256, &bytes))
		return;
	if (told[0] != '\0')
		same(f, "model.safetensors: SHA-256", told, f->sha256);
	/* Of another file it is known that it is not the one. */
	if (f->job.name != NULL && (told[0] == '\0' || strcmp(told, f->sha256) == 0))
		check_hash(f, &bytes);
	fal_buf_free(&bytes);
}

/* A member that a result has, or must not have: a text, or, where that is NULL, a number,
 * NAN for null. */
struct member {
	bool there;
	const char *key, *text;
	double is, within;
};

/* Of a path only the last part counts: the folder may have been moved since. */
static bool
is_member(const struct member *m, const json_t *v)
{
	const char *text = json_string_value(v);
	const char *slash = text != NULL ? strrchr(text, '/') : NULL;
	if (m->text != NULL)
		return text != NULL &&
		       (strcmp(text, m->text) == 0 ||
			(slash != NULL && strcmp(slash + 1, m->text) == 0));
	return isnan(m->is) ? json_is_null(v)
			    : json_is_number(v) &&
				      fabs(json_number_value(v) - m->is) <= m->within;
}

/* The best model is one that was evaluated, and was as good then. */
static void
judge_best(struct folder *f, double clock, double accuracy)
{
	const struct fal_evals *e = f->told->evals;
	size_t i = 0;
	while (i < e->lines && (e->all[i].accuracy != accuracy ||
				(e->plain && (double)e->all[i].version != clock)))
		i++;
	if (i == e->lines)
		fal_audit_found(f->audit,
				"result.json: best_accuracy is of no evaluation");
}

/* What the result's count should be.  Of a job that went on from a snapshot the trace has
 * rounds that were done twice, and counts otherwise: any number will do. */
static double
counted(const struct fal_audit_told *t, const json_t *o, const char *key, uint64_t sum)
{
	return t->resumed ? json_number_value(json_object_get(o, key)) : (double)sum;
}

/* The result `o` has what the trace and the files beside it say, and nothing else. */
static void
judge_result(struct folder *f, const json_t *o)
{
	const struct fal_audit_told *t = f->told;
	const bool failed = t->failed[0] != '\0', judged = t->evals->lines > 0;
	char average_sum[65] = "", best_sum[65] = "";
	struct fal_buf bytes = { 0 };
	const bool average =
		!failed && f->job.optim.ema > 0 &&
		sum_file(f, "average.safetensors", true, average_sum, &bytes);
	fal_buf_free(&bytes);
	const bool best = f->job.state_best == FAL_JOB_BEST_YES &&
			  sum_file(f, "best.safetensors", false, best_sum, &bytes);
	fal_buf_free(&bytes);
	const double best_is = json_number_value(json_object_get(o, "best_accuracy"));
	const double best_clock = json_number_value(json_object_get(o, "best_clock"));
	const double clock = json_number_value(json_object_get(o, "clock"));
	const struct member must[] = {
		{ true, "name", t->name, 0, 0 },
		{ failed, "failed", t->failed, 0, 0 },
		{ failed, "clock", NULL, clock, 0 },
		{ true, "model", "model.safetensors", 0, 0 },
		{ true, "sha256", failed ? f->sha256 : t->sha256, 0, 0 },
		{ true, "hash", failed ? f->hash : t->model_hash, 0, 0 },
		{ true, "clocks", NULL, (double)t->job->clocks, 0 },
		{ average, "average", "average.safetensors", 0, 0 },
		{ average, "average_sha256", average_sum, 0, 0 },
		{ best, "best", "best.safetensors", 0, 0 },
		{ best, "best_sha256", best_sum, 0, 0 },
		{ best, "best_clock", NULL, best_clock, 0 },
		{ best, "best_accuracy", NULL, best_is, 0 },
		{ judged, "accuracy", NULL, t->evals->accuracy, 0 },
		{ judged, "test_loss", NULL, t->evals->loss, 0 },
		{ true, "loss", NULL, t->loss, 0 },
		{ true, "seconds", NULL, t->trained, 0.000502 }, /* it has 3 decimals */
		{ true, "moved", NULL, counted(t, o, "moved", t->sums->moved), 0 },
		{ true, "cloned", NULL, counted(t, o, "cloned", t->sums->cloned), 0 },
		{ true, "filled", NULL, counted(t, o, "filled", t->sums->filled), 0 },
		{ true, "lost", NULL, counted(t, o, "lost", t->sums->dropped), 0 },
		{ true, "skipped", NULL, counted(t, o, "skipped", t->sums->skipped), 0 },
		{ true, "chain", t->link, 0, 0 },
	};
	size_t known = 0;
	for (size_t i = 0; i < sizeof(must) / sizeof(must[0]); i++) {
		const struct member *m = &must[i];
		const json_t *v = json_object_get(o, m->key);
		char number[32];
		snprintf(number, sizeof(number), "%.15g", m->is);
		known += v != NULL;
		if (!m->there && v != NULL)
			fal_audit_found(f->audit, "result.json: the run has no %s",
					m->key);
		else if (m->there && !is_member(m, v))
			fal_audit_found(
				f->audit,
				"result.json: %s is not %.64s, as the trace and the "
				"files say",
				m->key, m->text != NULL ? m->text : number);
	}
	if (known != json_object_size(o))
		fal_audit_found(f->audit, "result.json: it has what no result has");
	if (best)
		judge_best(f, best_clock, best_is);
}

static void
check_result(struct folder *f)
{
	struct fal_buf text = { 0 };
	json_error_t why;
	if (!read_file(f, "result.json", TEXT_MAX, f->told->sha256[0] != '\0', &text))
		return;
	json_t *o = fal_json_load(text.p, text.n, 0, &why);
	if (o == NULL && why.text[0] == '\0') {
		no_memory(f);
	} else if (o == NULL) {
		fal_cli_err(PROG, "%s/result.json: %s", f->dir, why.text);
		f->code = FAL_EXIT_USAGE;
	} else if (!json_is_object(o)) {
		fal_audit_found(f->audit, "result.json: is none");
	} else {
		judge_result(f, o);
	}
	json_decref(o);
	fal_buf_free(&text);
}

static void
check_journal(struct folder *f, const struct stat_policies *policies)
{
	struct fal_buf text = { 0 };
	const char *end = f->told->sha256[0] != '\0' ? f->told->journal : NULL;
	const bool must = f->told->journal[0] != '\0' || policies->n > 1 ||
			  (policies->n > 0 && strcmp(policies->v[0].by, "job") != 0);
	const bool is = read_file(f, "policy.jsonl", JOURNAL_MAX, must, &text);
	if (is && stat_journal_audit(policies, &text, end, f->audit) == FAL_ENOMEM)
		no_memory(f);
	fal_buf_free(&text);
}

int
stat_folder_audit(const char *dir, const struct stat_policies *policies,
		  struct fal_audit *a)
{
	struct folder f = {
		.dir = dir, .audit = a, .told = fal_audit_told(a), .code = FAL_EXIT_DONE
	};
	if (f.told->hash[0] != '\0')
		check_job(&f);
	/* Of a job that was not done there may be nothing. */
	const bool over = f.told->sha256[0] != '\0' || f.told->failed[0] != '\0';
	if (over && f.code == FAL_EXIT_DONE)
		check_model(&f);
	if (over && f.code == FAL_EXIT_DONE)
		check_result(&f);
	if (f.told->hash[0] != '\0' && f.code == FAL_EXIT_DONE)
		check_journal(&f, policies);
	fal_job_free(&f.job);
	return f.code;
}
