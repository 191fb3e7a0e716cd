/* Signatures: makes the statement of a run from the files of its folder; pair, sign,
 * verify.
 */
#include "key.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "crypto/hash.h"
#include "crypto/sign.h"
#include "trace/chain.h"
#include "trace/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the statement of a run: one line of JSON about the files of its folder ---- */

#define HEX (2 * FAL_HASH_BYTES + 1)

/* The files that the statement has digests of. */
enum file { MODEL, AVERAGE, BEST, JOB, RESULT, TRACE, JOURNAL, FILES };
static const char *const names[FILES] = { "model.safetensors", "average.safetensors",
					  "best.safetensors",  "job",
					  "result.json",       "trace.jsonl",
					  "policy.jsonl" };

struct run {
	const char *dir;
	struct fal_diag *diag;
	char sha256[FILES][HEX]; /* "": an optional file does not exist */
	char name[256], job[HEX], net[HEX], data[HEX], program[64];
	char model[HEX]; /* SHA-256 by the done line; "": the job is not done */
	uint64_t lines;  /* of the trace */
	struct fal_chain chain;
	/* While a file is read: */
	struct fal_sha256_state sum;
	struct fal_trace_reader *reader; /* NULL: the file is no trace */
	struct fal_buf *text;            /* NULL: only its digest is wanted */
};

static int
run_fail(const struct run *r, enum file f, const char *what)
{
	return fal_diag_set(r->diag, FAL_EFORMAT, "%s/%s: %s", r->dir, names[f], what);
}

/* --- files --- */

static int
on_run_chunk(void *arg, const void *p, size_t n)
{
	struct run *r = arg;
	int err = FAL_OK;
	fal_sha256_update(&r->sum, p, n);
	if (r->text != NULL) {
		fal_put_bytes(r->text, p, n);
		err = r->text->err;
	}
	if (err == FAL_OK && r->reader != NULL)
		err = fal_trace_feed(r->reader, p, n, r->diag);
	return err;
}

/* Reads and digests the file `f`; reads a trace twice. */
static int
run_read_file(struct run *r, enum file f)
{
	uint8_t digest[FAL_HASH_BYTES];
	char *path = fal_xprintf("%s/%s", r->dir, names[f]);
	fal_sha256_init(&r->sum);
	int err = r->reader != NULL ? fal_cli_feed(path, fal_trace_find_restarts,
						   r->reader, r->diag)
				    : FAL_OK;
	if (err == FAL_OK)
		err = fal_cli_feed(path, on_run_chunk, r, r->diag);
	fal_sha256_final(&r->sum, digest);
	if (err == FAL_OK)
		fal_hex(digest, sizeof(digest), r->sha256[f]);
	free(path);
	return err;
}

/* --- the trace --- */

/* Copies a text into an array; the trace's writer never writes longer ones.  NULL: "". */
#define SET_TEXT(to, text) snprintf((to), sizeof(to), "%s", (text) != NULL ? (text) : "")

static int
on_run_line(void *arg, struct fal_trace_line *l)
{
	struct run *r = arg;
	const bool holds = fal_chain_take(&r->chain, l->text, l->n);
	r->lines++;
	if (!holds && l->event != FAL_EV_GAP) /* a gap has the link of a missing line */
		return fal_trace_fail(l, FAL_EFORMAT,
				      "it does not chain the line before");
	if (l->cut) /* counts for the chain only */
		return FAL_OK;
	const struct fal_ev_job *j = &l->is.job;
	if (l->event == FAL_EV_JOB) {
		SET_TEXT(r->name, j->name);
		SET_TEXT(r->job, j->hash);
		SET_TEXT(r->program, j->version);
		SET_TEXT(r->net, j->model);
		SET_TEXT(r->data, j->data);
	} else if (l->event == FAL_EV_RESTART) { /* the job may have more epochs */
		SET_TEXT(r->job, l->is.restart.hash);
		r->model[0] = '\0';
	} else if (l->event == FAL_EV_DONE) {
		SET_TEXT(r->model, l->is.done.sha256);
	}
	return FAL_OK;
}

/* Reads the files.  Errors with a diagnosis: FAL_EIO, FAL_ENOENT, FAL_EPERM; FAL_ESTATE:
 * the job is not done; FAL_EFORMAT: trace, job and model do not belong together, or the
 * trace does not chain.  FAL_ENOMEM comes without a diagnosis: the caller gives it. */
static int
run_read(struct run *r)
{
	struct fal_buf text = { 0 };
	uint8_t digest[FAL_HASH_BYTES];
	char hex[HEX];
	r->reader = fal_trace_reader_new(on_run_line, r);
	fal_trace_reader_deliver_cut(r->reader);
	int err = run_read_file(r, TRACE);
	if (err == FAL_OK)
		err = fal_trace_end(r->reader, r->diag);
	fal_trace_reader_free(r->reader);
	r->reader = NULL;
	if (err == FAL_OK && r->model[0] == '\0')
		err = fal_diag_set(r->diag, FAL_ESTATE, "%s: the job is not done",
				   r->dir);
	if (err == FAL_OK)
		err = run_read_file(r, MODEL);
	if (err == FAL_OK && strcmp(r->sha256[MODEL], r->model) != 0)
		err = run_fail(r, MODEL, "is not the one of the trace");
	r->text = &text;
	if (err == FAL_OK)
		err = run_read_file(r, JOB);
	r->text = NULL;
	fal_hash(text.p, text.n, digest);
	fal_hex(digest, sizeof(digest), hex);
	if (err == FAL_OK && strcmp(hex, r->job) != 0)
		err = run_fail(r, JOB, "is not the one of the trace");
	fal_buf_free(&text);
	for (enum file f = RESULT; f <= JOURNAL && err == FAL_OK; f += JOURNAL - RESULT)
		err = run_read_file(r, f);
	for (enum file f = AVERAGE; f <= BEST && err == FAL_OK; f++) {
		err = run_read_file(r, f);
		if (err == FAL_ENOENT)
			err = FAL_OK;
	}
	return err;
}

/* ---- commands ---- */

static int
statement_print(const struct fal_buf *b)
{
	return fal_cli_write_all(STDOUT_FILENO, b->p, b->n) < 0
		       ? file_fail("standard output", FAL_EIO)
		       : FAL_EXIT_DONE;
}

/* falcon-key pair FILE */
int
cmd_pair(const struct options *o, const char *const *arg, size_t n)
{
	const char *path = arg[0];
	char text[FAL_PEM_PUBLIC + 1];
	uint8_t public[FAL_KEY_BYTES];
	struct {
		uint8_t key[FAL_KEY_BYTES];
		char text[FAL_PEM_SECRET + 1];
	} *s = fal_secret_alloc(sizeof(*s));
	(void)o, (void)n;
	char *beside = fal_xprintf("%s.pub", path);
	fal_sign_keypair(s->key, public);
	fal_sign_secret_text(s->key, s->text);
	fal_sign_public_text(public, text);
	const char *at = path;
	int err = file_create(path, s->text, 0600);
	if (err == FAL_OK && (err = file_create(beside, text, 0644)) < 0) {
		at = beside;
		unlink(path);
	}
	const int status = err == FAL_EEXIST
				   ? fail(FAL_EXIT_USAGE, "%s: already exists", at)
			   : err < 0 ? file_fail(at, err)
				     : FAL_EXIT_DONE;
	fal_secret_free(s);
	free(beside);
	return status;
}

/* Reads the state folder `dir` of a done job and appends its statement.  The same folder
 * makes the same bytes.  Returns an exit code, FAL_EXIT_TEMPFAIL if the job is not done.
 */
static int
statement_of_run(const char *dir, struct fal_buf *out)
{
	struct fal_diag diag = { "" };
	struct run r = { .dir = dir, .diag = &diag };
	int err = run_read(&r);
	if (err == FAL_OK) {
		fal_json_open(out, '{');
		fal_json_member_str(out, "name", r.name);
		fal_json_member_str(out, "job", r.job);
		fal_json_member_str(out, "model", r.net);
		fal_json_member_str(out, "data", r.data);
		fal_json_member_str(out, "version", r.program);
		fal_json_member_u64(out, "lines", r.lines);
		fal_json_member_str(out, "chain", r.chain.link);
		fal_json_key(out, "sha256");
		fal_json_open(out, '{');
		for (int f = 0; f < FILES; f++)
			if (r.sha256[f][0] != '\0')
				fal_json_member_str(out, names[f], r.sha256[f]);
		fal_json_close(out, '}');
		fal_json_close(out, '}');
		err = out->err;
	}
	if (err == FAL_ENOMEM)
		fal_diag_set(&diag, err, "out of memory");
	return err < 0 ? fail(err == FAL_ESTATE ? FAL_EXIT_TEMPFAIL : FAL_EXIT_NO, "%s",
			      diag.text)
		       : FAL_EXIT_DONE;
}

/* falcon-key sign --key FILE RUN */
int
cmd_sign(const struct options *o, const char *const *arg, size_t n)
{
	struct fal_buf statement = { 0 };
	struct text text;
	(void)n;
	if (o->key == NULL)
		return fail(FAL_EXIT_USAGE, "sign: --key FILE is missing");
	int status = file_read(o->key, &text);
	if (status != FAL_EXIT_DONE)
		return status;
	uint8_t *key = fal_secret_alloc(FAL_KEY_BYTES);
	if (fal_sign_secret_parse(text.p, text.n, key) < 0)
		status =
			fail(FAL_EXIT_USAGE, "%s: not a secret key to sign with", o->key);
	fal_secret_free(text.p);
	if (status == FAL_EXIT_DONE)
		status = statement_of_run(arg[0], &statement);
	if (status == FAL_EXIT_DONE) {
		fal_sign_line(key, &statement);
		status = statement_print(&statement);
	}
	fal_secret_free(key);
	fal_buf_free(&statement);
	return status;
}

/* falcon-key verify --key FILE STATEMENT [RUN] */
int
cmd_verify(const struct options *o, const char *const *arg, size_t n)
{
	struct fal_buf statement = { 0 };
	uint8_t public[FAL_KEY_BYTES];
	struct text text;
	if (o->key == NULL)
		return fail(FAL_EXIT_USAGE, "verify: --key FILE is missing");
	int status = file_read(o->key, &text);
	if (status != FAL_EXIT_DONE)
		return status;
	int err = fal_sign_public_parse(text.p, text.n, public);
	fal_secret_free(text.p);
	if (err < 0)
		return fail(FAL_EXIT_USAGE, "%s: not a public key to verify with",
			    o->key);
	status = file_read(arg[0], &text);
	if (status != FAL_EXIT_DONE)
		return status;
	size_t signed_n;
	err = fal_sign_check(public, text.p, text.n, &signed_n);
	if (err == FAL_OK)
		fal_put_bytes(&statement, text.p, signed_n);
	fal_secret_free(text.p);
	if (err == FAL_EFORMAT)
		return fail(FAL_EXIT_NO, "%s: is not a signed statement", arg[0]);
	if (err == FAL_EAUTH)
		return fail(FAL_EXIT_NO, "%s: is not the content that this key signed",
			    arg[0]);
	if (statement.err < 0)
		status = file_fail(arg[0], statement.err);
	if (status == FAL_EXIT_DONE && n > 1) {
		struct fal_buf now = { 0 };
		status = statement_of_run(arg[1], &now);
		if (status == FAL_EXIT_DONE &&
		    (now.n != statement.n || memcmp(now.p, statement.p, now.n) != 0))
			status = fail(FAL_EXIT_NO, "%s: is not the statement of %s",
				      arg[0], arg[1]);
		fal_buf_free(&now);
	}
	if (status == FAL_EXIT_DONE) {
		fal_put_u8(&statement, '\n');
		status = statement.err < 0 ? file_fail(arg[0], statement.err)
					   : statement_print(&statement);
	}
	fal_buf_free(&statement);
	return status;
}
