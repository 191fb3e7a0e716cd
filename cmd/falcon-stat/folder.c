/* What lies beside a trace. */
#include "folder.h"

#include "base/fault.h"
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
#include "trace/leaf.h"
#include "wire/bfp.h"

#include <inttypes.h>
#include <jansson.h>
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
	char *path = NULL;
	if (FAL_TRY(MALLOC, -1, asprintf(&path, "%s/%s", f->dir, name)) < 0)
		path = NULL;
	int err = path != NULL ? fal_cli_read(path, most, out, &diag) : FAL_ENOMEM;
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
	same_number(f, "job: epochs", t->job.epochs, job->epochs);
	same_number(f, "job: batch", t->job.batch, job->batch);
	same_number(f, "job: task", t->job.task, job->task);
	same_number(f, "job: audit = sums", t->job.sums,
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
	const struct fal_safetensors file = { "model.safetensors", bytes->p, bytes->n,
					      NULL, NULL };
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
	char hex[2 * FAL_HASH_BYTES + 1];
	struct fal_diag diag = { "" };
	int err = hash_of(f, bytes, &m, hash, &diag);
	if (err == FAL_ENOMEM) {
		no_memory(f);
	} else if (err < 0) {
		fal_cli_err(PROG, "%s/%s", f->dir, diag.text);
		f->code = FAL_EXIT_USAGE;
	} else {
		fal_hex(hash, sizeof(hash), hex);
		same(f, "model.safetensors: hash", f->told->model_hash, hex);
		same_number(f, "job: hashes", f->told->job.hashes,
			    f->job.hashes > 0 ? f->job.hashes
					      : fal_leaf_every(m->params));
	}
	fal_model_free(m);
}

static void
check_model(struct folder *f)
{
	struct fal_buf bytes = { 0 };
	uint8_t digest[FAL_HASH_BYTES];
	char hex[2 * FAL_HASH_BYTES + 1];
	if (!read_file(f, "model.safetensors", SIZE_MAX / 2, true, &bytes))
		return;
	fal_sha256(bytes.p, bytes.n, digest);
	fal_hex(digest, sizeof(digest), hex);
	same(f, "model.safetensors: SHA-256", f->told->sha256, hex);
	/* Of another file it is known that it is not the one. */
	if (f->job.name != NULL && strcmp(f->told->sha256, hex) == 0)
		check_hash(f, &bytes);
	fal_buf_free(&bytes);
}

static void
check_result(struct folder *f)
{
	struct fal_buf text = { 0 };
	const char *sha256, *hash, *chain;
	if (!read_file(f, "result.json", TEXT_MAX, true, &text))
		return;
	json_error_t why;
	json_t *o = fal_json_load(text.p, text.n, 0, &why);
	const int err = fal_json_unpack(o, NULL, 0, "{s:s, s:s, s:s}", "sha256", &sha256,
					"hash", &hash, "chain", &chain);
	if (err == FAL_OK) {
		same(f, "result.json: sha256", f->told->sha256, sha256);
		same(f, "result.json: hash", f->told->model_hash, hash);
		same(f, "result.json: chain", f->told->link, chain);
	} else if (err == FAL_ENOMEM || (o == NULL && why.text[0] == '\0')) {
		no_memory(f);
	} else if (o == NULL) {
		fal_cli_err(PROG, "%s/result.json: %s", f->dir, why.text);
		f->code = FAL_EXIT_USAGE;
	} else {
		fal_audit_found(f->audit, "result.json: is none");
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
	if (f.told->sha256[0] != '\0' && f.code == FAL_EXIT_DONE)
		check_model(&f);
	if (f.told->sha256[0] != '\0' && f.code == FAL_EXIT_DONE)
		check_result(&f);
	if (f.told->hash[0] != '\0' && f.code == FAL_EXIT_DONE)
		check_journal(&f, policies);
	fal_job_free(&f.job);
	return f.code;
}
