/* Compares a trace with the files beside it. */
#include "stat.h"

#include "base/json.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "crypto/hash.h"
#include "job/job.h"
#include "job/policy.h"
#include "model/safetensors.h"
#include "run/snapshot.h"
#include "trace/chain.h"
#include "wire/bfp.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	TEXT_MAX = 1 << 20,    /* bytes of a job or result */
	JOURNAL_MAX = 64 << 20 /* bytes of a journal */
};

struct folder {
	const char *dir;
	struct fal_audit *audit;
	const struct fal_audit_facts *facts;
	struct fal_job job; /* all 0: there is no readable job */
	/* The SHA-256 of the model's file and the hash of its version; "": no file. */
	char sha256[65], hash[65];
	int code; /* FAL_EXIT_DONE; else a file cannot be judged, as printed */
};

/* Adds a finding about the folder. */
#define finding(f, ...) fal_audit_add_finding((f)->audit, __VA_ARGS__)

/* Prints that a file cannot be judged, and sets the exit code. */
static void __attribute__((format(printf, 3, 4)))
folder_fail(struct folder *f, int err, const char *fmt, ...)
{
	char what[600];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	fal_cli_err(PROG, "%s", err == FAL_ENOMEM ? fal_strerror(err) : what);
	f->code = err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE;
}

/* Reads DIR/name into `out`.  False: the file cannot be read or does not exist; if the
 * file must exist, its absence is a finding. */
static bool
folder_read(struct folder *f, const char *name, size_t most, bool must,
	    struct fal_buf *out)
{
	struct fal_diag diag = { "" };
	char *path = fal_xprintf("%s/%s", f->dir, name);
	int err = fal_cli_read(path, most, out, &diag);
	free(path);
	if (err == FAL_ENOENT && must)
		finding(f, "%s: is missing", name);
	else if (err < 0 && err != FAL_ENOENT)
		folder_fail(f, err, "%s", diag.text);
	return err == FAL_OK;
}

/* Adds a finding unless a file's text equals the trace's. */
static void
expect_text(struct folder *f, const char *what, const char *told, const char *found)
{
	if (strcmp(told, found) != 0)
		finding(f, "%s is %.64s, but the trace says %.64s", what, found, told);
}

static void
expect_number(struct folder *f, const char *what, uint64_t told, uint64_t found)
{
	if (told != found)
		finding(f, "%s is %ju, but the trace says %ju", what, found, told);
}

static void
folder_check_job(struct folder *f)
{
	struct fal_buf text = { 0 };
	uint8_t digest[FAL_HASH_BYTES];
	char hex[2 * FAL_HASH_BYTES + 1], seed[24];
	const struct fal_audit_facts *t = f->facts;
	const struct fal_job *job = &f->job;
	if (!folder_read(f, "job", TEXT_MAX, true, &text))
		return;
	fal_hash(text.p, text.n, digest);
	fal_hex(digest, sizeof(digest), hex);
	expect_text(f, "job: hash", f->facts->hash, hex);
	int err = fal_job_parse("job", (const char *)text.p, text.n, &f->job, NULL);
	fal_buf_free(&text);
	if (err == FAL_ENOMEM)
		folder_fail(f, err, "job");
	else if (err < 0)
		finding(f, "job: is not a job");
	if (err < 0)
		return;
	/* The job line has a copy of these values. */
	snprintf(seed, sizeof(seed), "%ju", job->seed);
	expect_text(f, "job: name", t->name, job->name);
	expect_text(f, "job: seed", t->seed, seed);
	expect_text(f, "job: from-sha256", t->from,
		    job->from_sha256 != NULL ? job->from_sha256 : "");
	expect_text(f, "job: optimizer", t->optimizer, fal_optim_name(job->optim.kind));
	expect_number(f, "job: epochs", t->job->grid.epochs, job->epochs);
	expect_number(f, "job: batch", t->job->grid.batch, job->batch);
	expect_number(f, "job: task", t->job->grid.task, job->task);
	expect_number(f, "job: tail_task", t->job->grid.tail_task, job->tail_task);
	expect_number(f, "job: audit = sums", t->job->sums,
		      job->audit == FAL_JOB_AUDIT_SUMS);
}

/* Reads DIR/name and computes its SHA-256, in hex; false as folder_read. */
static bool
folder_read_sum(struct folder *f, const char *name, bool must, char hex[static 65],
		struct fal_buf *bytes)
{
	uint8_t digest[FAL_HASH_BYTES];
	if (!folder_read(f, name, SIZE_MAX / 2, must, bytes))
		return false;
	fal_sha256(bytes->p, bytes->n, digest);
	fal_hex(digest, sizeof(digest), hex);
	return true;
}

/* The trace of a failed job does not say which model the job left, if any. */
static void
folder_check_model(struct folder *f)
{
	struct fal_buf bytes = { 0 };
	const char *told = f->facts->sha256;
	if (!folder_read_sum(f, "model.safetensors", told[0] != '\0', f->sha256, &bytes))
		return;
	if (told[0] != '\0')
		expect_text(f, "model.safetensors: SHA-256", told, f->sha256);
	/* A file with another SHA-256 is a finding already. */
	if (f->job.name == NULL || (told[0] != '\0' && strcmp(told, f->sha256) != 0))
		goto free_bytes;
	struct fal_model *m = NULL;
	float *params = NULL;
	uint8_t hash[FAL_HASH_BYTES];
	struct fal_diag diag = { "" };
	const struct fal_safetensors file =
		fal_job_tensors(&f->job, "model.safetensors", &bytes);
	int err = fal_safetensors_model(&file, &m, &diag);
	if (err == FAL_OK && f->job.block == FAL_JOB_BLOCK_TENSOR)
		err = fal_model_align(m, FAL_BLOCK);
	if (err == FAL_OK) {
		params = fal_calloc_aligned(m->params, sizeof(*params));
		err = params != NULL ? fal_safetensors_get(&file, m, params, &diag)
				     : FAL_ENOMEM;
	}
	if (err < 0) {
		folder_fail(f, err, "%s/%s", f->dir, diag.text);
	} else {
		fal_leaf_model(params, m->params, hash);
		fal_hex(hash, sizeof(hash), f->hash);
		if (f->facts->failed[0] == '\0')
			expect_text(f, "model.safetensors: hash", f->facts->model_hash,
				    f->hash);
		expect_number(f, "job: hashes", f->facts->job->hashes,
			      f->job.hashes > 0 ? f->job.hashes
						: fal_leaf_interval(m->params));
	}
	free(params);
	fal_model_free(m);
free_bytes:
	fal_buf_free(&bytes);
}

/* A member that a result must have, or must not have.  The value is `text`, or, if `text`
 * is NULL, a number; NAN stands for null. */
struct result_member {
	bool is_present;
	const char *key, *text;
	double number, tolerance;
};

/* Returns whether `v` is the member's value.  Only the last part of a path counts, as the
 * user may have moved the folder. */
static bool
member_matches(const struct result_member *m, const json_t *v)
{
	const char *text = json_string_value(v);
	const char *slash = text != NULL ? strrchr(text, '/') : NULL;
	if (m->text != NULL)
		return text != NULL &&
		       (strcmp(text, m->text) == 0 ||
			(slash != NULL && strcmp(slash + 1, m->text) == 0));
	return isnan(m->number)
		       ? json_is_null(v)
		       : json_is_number(v) &&
				 fabs(json_number_value(v) - m->number) <= m->tolerance;
}

/* The best model must have an evaluation with this accuracy. */
static void
folder_judge_best(struct folder *f, double clock, double accuracy)
{
	const struct fal_evals *e = f->facts->evals;
	size_t i = 0;
	while (i < e->lines && (e->all[i].accuracy != accuracy ||
				(e->plain && (double)e->all[i].version != clock)))
		i++;
	if (i == e->lines)
		finding(f, "result.json: best_accuracy is of no evaluation");
}

/* Returns the value that a count of the result should have.  If the job went on from a
 * snapshot, the trace has repeated rounds and so other counts: any number is then right.
 */
static double
expected_count(const struct fal_audit_facts *t, const json_t *o, const char *key,
	       uint64_t sum)
{
	return t->resumed ? json_number_value(json_object_get(o, key)) : (double)sum;
}

/* The result `o` must agree with the trace and the files, and have no further member. */
static void
folder_judge_result(struct folder *f, const json_t *o)
{
	const struct fal_audit_facts *t = f->facts;
	const bool failed = t->failed[0] != '\0', judged = t->evals->lines > 0;
	char average_sum[65] = "", best_sum[65] = "";
	struct fal_buf bytes = { 0 };
	const bool average =
		!failed && f->job.optim.ema > 0 &&
		folder_read_sum(f, "average.safetensors", true, average_sum, &bytes);
	fal_buf_free(&bytes);
	const bool best = f->job.state_best == FAL_JOB_BEST_YES &&
			  folder_read_sum(f, "best.safetensors", false, best_sum, &bytes);
	fal_buf_free(&bytes);
	const double best_accuracy =
		json_number_value(json_object_get(o, "best_accuracy"));
	const double best_clock = json_number_value(json_object_get(o, "best_clock"));
	const double clock = json_number_value(json_object_get(o, "clock"));
	const struct result_member must[] = {
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
		{ best, "best_accuracy", NULL, best_accuracy, 0 },
		{ judged, "accuracy", NULL, t->evals->accuracy, 0 },
		{ judged, "test_loss", NULL, t->evals->loss, 0 },
		{ true, "training_loss", NULL, t->loss, 0 },
		{ true, "seconds", NULL, t->trained, 0.000502 }, /* the result has 3
								  * decimals */
		{ true, "moved", NULL, expected_count(t, o, "moved", t->sums->moved), 0 },
		{ true, "cloned", NULL, expected_count(t, o, "cloned", t->sums->cloned),
		  0 },
		{ true, "filled", NULL, expected_count(t, o, "filled", t->sums->filled),
		  0 },
		{ true, "lost", NULL, expected_count(t, o, "lost", t->sums->dropped), 0 },
		{ true, "skipped", NULL,
		  expected_count(t, o, "skipped", t->sums->skipped), 0 },
		{ true, "chain", t->link, 0, 0 },
	};
	struct fal_buf metrics = { 0 };
	json_error_t why;
	size_t known = 0;
	for (size_t i = 0; i < sizeof(must) / sizeof(must[0]); i++) {
		const struct result_member *m = &must[i];
		const json_t *v = json_object_get(o, m->key);
		char number[32];
		snprintf(number, sizeof(number), "%.15g", m->number);
		known += v != NULL;
		if (!m->is_present && v != NULL)
			finding(f, "result.json: the run has no %s", m->key);
		else if (m->is_present && !member_matches(m, v))
			finding(f,
				"result.json: %s is not %.64s, as the trace and "
				"the files say",
				m->key, m->text != NULL ? m->text : number);
	}
	/* The job's file has the names, and their order. */
	fal_json_open(&metrics, '{');
	fal_metrics_put_json(&metrics, &f->job.metrics, &t->metrics,
			     judged ? &t->evals->metrics : NULL);
	fal_json_close(&metrics, '}');
	json_t *want = fal_json_load(metrics.p, metrics.n, 0, &why);
	json_t *is = json_object_get(o, "metrics");
	if (is != NULL ? !json_equal(is, json_object_get(want, "metrics"))
		       : json_object_size(want) > 0)
		finding(f, "result.json: metrics are not what the trace says");
	known += is != NULL;
	json_decref(want);
	fal_buf_free(&metrics);
	if (known != json_object_size(o))
		finding(f, "result.json: has a member that no result has");
	if (best)
		folder_judge_best(f, best_clock, best_accuracy);
}

static void
folder_check_result(struct folder *f)
{
	struct fal_buf text = { 0 };
	json_error_t why;
	if (!folder_read(f, "result.json", TEXT_MAX, f->facts->sha256[0] != '\0', &text))
		return;
	json_t *o = fal_json_load(text.p, text.n, 0, &why);
	if (o == NULL) {
		folder_fail(f, why.text[0] == '\0' ? FAL_ENOMEM : FAL_EFORMAT,
			    "%s/result.json: %s", f->dir, why.text);
	} else if (!json_is_object(o)) {
		finding(f, "result.json: is not a JSON object");
	} else {
		folder_judge_result(f, o);
	}
	json_decref(o);
	fal_buf_free(&text);
}

/* ---- the journal of policies ---- */

void
stat_policies_free(struct stat_policies *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].by);
		free(s->v[i].text);
	}
	free(s->v);
	*s = (struct stat_policies){ 0 };
}

static void
policies_add(struct stat_policies *s, uint64_t clock, const char *by,
	     const struct fal_policy *policy)
{
	struct fal_buf text = { 0 };
	fal_policy_json_put(policy, &text);
	fal_put_u8(&text, '\0');
	if (text.err < 0)
		fal_out_of_memory();
	FAL_XGROW(s->v, s->cap, s->n + 1);
	s->v[s->n++] = (struct stat_policy){ clock, fal_xstrdup(by), (char *)text.p };
}

static bool
policies_are_equal(const struct stat_policy *a, const struct stat_policy *b)
{
	return strcmp(a->by, b->by) == 0 && strcmp(a->text, b->text) == 0;
}

int
stat_policies_line(struct stat_policies *s, struct fal_trace_line *l)
{
	const struct fal_ev_policy *e = &l->is.policy;
	const struct fal_policy none = { 0 };
	struct fal_policy policy = { 0 };
	s->resumed = s->resumed || l->event == FAL_EV_RESTART;
	if (l->event != FAL_EV_POLICY)
		return FAL_OK;
	struct fal_policy_text in = { "policy", 1, e->policy.p, e->policy.n };
	/* A line may have only the scheme. */
	int err = e->policy.p != NULL ? fal_policy_json_get(&in, &none, &policy, NULL)
				      : fal_rule_parse(e->scheme, &policy.rule, NULL);
	if (err < 0)
		return fal_trace_fail(l, err, "%s",
				      err == FAL_ENOMEM ? fal_strerror(err)
							: "is not a policy");
	policies_add(s, e->clock, e->by, &policy);
	fal_policy_free(&policy);
	if (s->resumed && s->n > 1 &&
	    policies_are_equal(&s->v[s->n - 2], &s->v[s->n - 1])) {
		s->n--;
		free(s->v[s->n].by);
		free(s->v[s->n].text);
	}
	s->resumed = false;
	return FAL_OK;
}

static int
on_journal_line(void *arg, const struct fal_journal_line *l)
{
	policies_add(arg, l->clock, l->by, l->policy);
	return FAL_OK;
}

/* The trace begins with the job's policy or, if the job was started again, with the last
 * policy that the job found in the journal.  Policies before that one belong to earlier
 * runs. */
static void
folder_compare_policies(const struct stat_policies *trace,
			const struct stat_policies *journal, bool done,
			struct fal_audit *a)
{
	const struct stat_policy *first = &trace->v[0];
	const bool is_first_run = trace->n == 0 || strcmp(first->by, "job") == 0;
	const size_t changes = trace->n > 0 ? trace->n - 1 : 0;
	size_t from = 0;
	if (!is_first_run) {
		/* Finds the last policy of the journal behind which there are enough
		 * lines for the trace's changes. */
		from = journal->n > changes ? journal->n - changes : 0;
		while (!done && from > 1 &&
		       !policies_are_equal(&journal->v[from - 1], first))
			from--;
		if (from == 0 || !policies_are_equal(&journal->v[from - 1], first)) {
			fal_audit_add_finding(
				a,
				"policy.jsonl: lacks the policy that the trace begins "
				"with, followed by %zu change%s",
				changes, fal_text_plural(changes));
			return;
		}
	}
	for (size_t i = 0; i < changes; i++) {
		const struct stat_policy *change = &trace->v[i + 1];
		if (from + i < journal->n &&
		    journal->v[from + i].clock == change->clock &&
		    policies_are_equal(&journal->v[from + i], change))
			continue;
		fal_audit_add_finding(
			a,
			"policy.jsonl: line %zu is not the trace's change by "
			"'%.64s' from clock %ju on",
			from + i + 1, change->by, change->clock);
		return;
	}
	if (done && journal->n > from + changes)
		fal_audit_add_finding(
			a, "policy.jsonl: line %zu is a change that is not in the trace",
			from + changes + 1);
}

/* The journal may be missing if the trace has no change of policy.  A trace with the end
 * of its job has the last link of the journal.  The link stands for facts that the trace
 * does not repeat, such as the time of a change.  Without the end of the job, the journal
 * may have later changes than the trace. */
static void
folder_check_journal(struct folder *f, const struct stat_policies *policies)
{
	struct fal_buf text = { 0 };
	struct stat_policies journal = { 0 };
	struct fal_chain chain = { 0 };
	struct fal_journal_reading r = { .name = "policy.jsonl",
					 .on_line = on_journal_line,
					 .arg = &journal,
					 .chain = &chain };
	const char *end = f->facts->journal;
	const bool done = f->facts->sha256[0] != '\0';
	const bool must = end[0] != '\0' || policies->n > 1 ||
			  (policies->n > 0 && strcmp(policies->v[0].by, "job") != 0);
	const bool has_file = folder_read(f, "policy.jsonl", JOURNAL_MAX, must, &text);
	/* Reads whole lines; a last line without newline does not count
	 * (falcon-policy(5)). */
	const int err = has_file ? fal_journal_read(&r, &text, NULL) : FAL_ENOENT;
	if (err == FAL_OK) {
		folder_compare_policies(policies, &journal, done, f->audit);
		if (done && strcmp(chain.link, end) != 0)
			finding(f,
				"policy.jsonl: its last link is %s, but the "
				"trace says %.64s",
				chain.link[0] != '\0' ? chain.link : "none",
				end[0] != '\0' ? end : "none");
	} else if (err == FAL_ENOMEM) {
		folder_fail(f, err, "policy.jsonl");
	} else if (has_file && r.unchained) {
		finding(f,
			"policy.jsonl: line %u does not chain the line before, "
			"or was changed",
			r.line);
	} else if (has_file) {
		finding(f, "policy.jsonl: line %u is not a line of a journal", r.line);
	}
	stat_policies_free(&journal);
	fal_buf_free(&text);
}

/* ---- all of them ---- */

int
stat_folder_audit(const char *dir, const struct stat_policies *policies,
		  struct fal_audit *a)
{
	struct folder f = {
		.dir = dir, .audit = a, .facts = fal_audit_facts(a), .code = FAL_EXIT_DONE
	};
	if (f.facts->hash[0] != '\0')
		folder_check_job(&f);
	/* A job that has not ended may have left no files. */
	const bool over = f.facts->sha256[0] != '\0' || f.facts->failed[0] != '\0';
	if (over && f.code == FAL_EXIT_DONE)
		folder_check_model(&f);
	if (over && f.code == FAL_EXIT_DONE)
		folder_check_result(&f);
	if (f.facts->hash[0] != '\0' && f.code == FAL_EXIT_DONE)
		folder_check_journal(&f, policies);
	fal_job_free(&f.job);
	return f.code;
}
