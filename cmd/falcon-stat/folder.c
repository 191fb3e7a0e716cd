/* What lies beside a trace. */
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
#include <sys/stat.h>

enum { TEXT_MAX = 1 << 20 };     /* bytes of a job or result */
enum { JOURNAL_MAX = 64 << 20 }; /* and of a journal */

struct folder {
	const char *dir;
	struct fal_audit *audit;
	const struct fal_audit_facts *told;
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

/* A file cannot be judged, which is said. */
static void __attribute__((format(printf, 3, 4)))
give_up(struct folder *f, int err, const char *fmt, ...)
{
	char what[600];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	fal_cli_err(PROG, "%s", err == FAL_ENOMEM ? fal_strerror(err) : what);
	f->code = err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE;
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
	if (err == FAL_ENOENT && must)
		fal_audit_add_finding(f->audit, "%s: is not there", name);
	else if (err < 0 && err != FAL_ENOENT)
		give_up(f, err, "%s", diag.text);
	return err == FAL_OK;
}

static void
same(struct folder *f, const char *what, const char *told, const char *is)
{
	if (strcmp(told, is) != 0)
		fal_audit_add_finding(f->audit, "%s is %.64s, but the trace says %.64s",
				      what, is, told);
}

static void
same_number(struct folder *f, const char *what, uint64_t told, uint64_t is)
{
	if (told != is)
		fal_audit_add_finding(f->audit, "%s is %ju, but the trace says %ju", what,
				      is, told);
}

/* What the job line repeats of it. */
static void
judge_job(struct folder *f, const struct fal_job *job)
{
	const struct fal_audit_facts *t = f->told;
	char seed[24];
	snprintf(seed, sizeof(seed), "%ju", job->seed);
	same(f, "job: name", t->name, job->name);
	same(f, "job: seed", t->seed, seed);
	same(f, "job: from-sha256", t->from,
	     job->from_sha256 != NULL ? job->from_sha256 : "");
	same(f, "job: optimizer", t->optimizer, fal_optim_name(job->optim.kind));
	same_number(f, "job: epochs", t->job->grid.epochs, job->epochs);
	same_number(f, "job: batch", t->job->grid.batch, job->batch);
	same_number(f, "job: task", t->job->grid.task, job->task);
	same_number(f, "job: tail_task", t->job->grid.tail_task, job->tail_task);
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
		give_up(f, err, "job");
	else
		fal_audit_add_finding(f->audit, "job: is none");
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
	if (err < 0) {
		give_up(f, err, "%s/%s", f->dir, diag.text);
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
		fal_audit_add_finding(f->audit,
				      "result.json: best_accuracy is of no evaluation");
}

/* What the result's count should be.  Of a job that went on from a snapshot the trace has
 * rounds that were done twice, and counts otherwise: any number will do. */
static double
counted(const struct fal_audit_facts *t, const json_t *o, const char *key, uint64_t sum)
{
	return t->resumed ? json_number_value(json_object_get(o, key)) : (double)sum;
}

/* The result `o` has what the trace and the files beside it say, and nothing else. */
static void
judge_result(struct folder *f, const json_t *o)
{
	const struct fal_audit_facts *t = f->told;
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
			fal_audit_add_finding(f->audit, "result.json: the run has no %s",
					      m->key);
		else if (m->there && !is_member(m, v))
			fal_audit_add_finding(
				f->audit,
				"result.json: %s is not %.64s, as the trace and "
				"the files say",
				m->key, m->text != NULL ? m->text : number);
	}
	if (known != json_object_size(o))
		fal_audit_add_finding(f->audit, "result.json: it has what no result has");
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
	if (o == NULL) {
		give_up(f, why.text[0] == '\0' ? FAL_ENOMEM : FAL_EFORMAT,
			"%s/result.json: %s", f->dir, why.text);
	} else if (!json_is_object(o)) {
		fal_audit_add_finding(f->audit, "result.json: is none");
	} else {
		judge_result(f, o);
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
add_policy(struct stat_policies *s, uint64_t clock, const char *by,
	   const struct fal_policy *policy)
{
	struct fal_buf whole = { 0 };
	fal_policy_json_put(policy, &whole);
	fal_put_u8(&whole, '\0');
	if (whole.err < 0)
		fal_out_of_memory();
	FAL_XGROW(s->v, s->cap, s->n + 1);
	s->v[s->n++] = (struct stat_policy){ clock, fal_xstrdup(by), (char *)whole.p };
}

static bool
same_policy(const struct stat_policy *a, const struct stat_policy *b)
{
	return strcmp(a->by, b->by) == 0 && strcmp(a->text, b->text) == 0;
}

int
stat_policies_line(struct stat_policies *s, struct fal_trace_line *l)
{
	const struct fal_ev_policy *e = &l->is.policy;
	const struct fal_policy none = { 0 };
	struct fal_policy policy;
	struct fal_buf scheme = { 0 };
	s->resumed = s->resumed || l->event == FAL_EV_RESTART;
	if (l->event != FAL_EV_POLICY)
		return FAL_OK;
	struct fal_policy_text in = { "policy", 1, e->policy.p, e->policy.n };
	if (e->policy.p == NULL) { /* nothing is known but the scheme */
		fal_json_open(&scheme, '{');
		fal_json_member_str(&scheme, "scheme", e->scheme);
		fal_json_close(&scheme, '}');
		in.p = (const char *)scheme.p;
		in.n = scheme.n;
	}
	int err = scheme.err < 0 ? scheme.err
				 : fal_policy_json_get(&in, &none, &policy, NULL);
	fal_buf_free(&scheme);
	if (err < 0)
		return fal_trace_fail(l, err, "%s",
				      err == FAL_ENOMEM ? fal_strerror(err) : "is none");
	add_policy(s, e->clock, e->by, &policy);
	fal_policy_free(&policy);
	if (s->resumed && s->n > 1 && same_policy(&s->v[s->n - 2], &s->v[s->n - 1])) {
		s->n--;
		free(s->v[s->n].by);
		free(s->v[s->n].text);
	}
	s->resumed = false;
	return FAL_OK;
}

static int
on_line(void *arg, const struct fal_journal_line *l)
{
	add_policy(arg, l->clock, l->by, l->policy);
	return FAL_OK;
}

/* The trace begins with the job's policy or, if the job was begun again, with the last
 * policy that the job found in the journal.  Policies before that one belong to the runs
 * before. */
static void
compare_policies(const struct stat_policies *trace, const struct stat_policies *journal,
		 bool done, struct fal_audit *a)
{
	const struct stat_policy *first = &trace->v[0];
	const bool fresh = trace->n == 0 || strcmp(first->by, "job") == 0;
	const size_t changes = trace->n > 0 ? trace->n - 1 : 0;
	size_t from = 0;
	if (!fresh) {
		/* The last one by which all that follows is what the trace has. */
		from = journal->n > changes ? journal->n - changes : 0;
		while (!done && from > 1 && !same_policy(&journal->v[from - 1], first))
			from--;
		if (from == 0 || !same_policy(&journal->v[from - 1], first)) {
			fal_audit_add_finding(
				a,
				"policy.jsonl: has not the policy that the trace "
				"begins with, and then %zu change%s",
				changes, fal_text_s(changes));
			return;
		}
	}
	for (size_t i = 0; i < changes; i++) {
		const struct stat_policy *is = &trace->v[i + 1];
		if (from + i < journal->n && journal->v[from + i].clock == is->clock &&
		    same_policy(&journal->v[from + i], is))
			continue;
		fal_audit_add_finding(
			a,
			"policy.jsonl: line %zu is not the trace's change by "
			"'%.64s' from clock %ju on",
			from + i + 1, is->by, is->clock);
		return;
	}
	if (done && journal->n > from + changes)
		fal_audit_add_finding(
			a, "policy.jsonl: line %zu is a change that the trace has not",
			from + changes + 1);
}

/* The journal may be missing if the trace knows of no change.  A trace with the end of
 * its job gives the last link of the journal, and the link stands for facts that the
 * trace does not repeat, as the time of a change.  Without the end of the job, the
 * journal may know of changes that the trace did not come to. */
static void
check_journal(struct folder *f, const struct stat_policies *policies)
{
	struct fal_buf text = { 0 };
	struct stat_policies journal = { 0 };
	struct fal_chain chain = { 0 };
	struct fal_journal_reading r = { .name = "policy.jsonl",
					 .on_line = on_line,
					 .arg = &journal,
					 .chain = &chain };
	const char *end = f->told->journal;
	const bool done = f->told->sha256[0] != '\0';
	const bool must = end[0] != '\0' || policies->n > 1 ||
			  (policies->n > 0 && strcmp(policies->v[0].by, "job") != 0);
	const bool is = read_file(f, "policy.jsonl", JOURNAL_MAX, must, &text);
	/* All whole lines; a last one without its newline is none, as falcon-policy(5)
	 * says. */
	const int err = is ? fal_journal_read(&r, &text, NULL) : FAL_ENOENT;
	if (err == FAL_OK) {
		compare_policies(policies, &journal, done, f->audit);
		if (done && strcmp(chain.link, end) != 0)
			fal_audit_add_finding(
				f->audit,
				"policy.jsonl: its last link is %s, but the "
				"trace says %.64s",
				chain.link[0] != '\0' ? chain.link : "none",
				end[0] != '\0' ? end : "none");
	} else if (err == FAL_ENOMEM) {
		give_up(f, err, "policy.jsonl");
	} else if (is && r.unchained) {
		fal_audit_add_finding(
			f->audit,
			"policy.jsonl: line %u does not chain the line before, "
			"or was changed",
			r.line);
	} else if (is) {
		fal_audit_add_finding(f->audit, "policy.jsonl: line %u is none", r.line);
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
		.dir = dir, .audit = a, .told = fal_audit_facts(a), .code = FAL_EXIT_DONE
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
