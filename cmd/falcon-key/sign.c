/* Signatures: the statement of a run, from the files of its folder; pair, sign, verify.
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

/* ---- what is said of a run: one line of JSON about the files of its folder ---- */

#define HEX (2 * FAL_HASH_BYTES + 1)

/* Files whose digests are in it. */
enum file { MODEL, AVERAGE, BEST, JOB, RESULT, TRACE, JOURNAL, FILES };
static const char *const names[FILES] = { "model.safetensors", "average.safetensors",
					  "best.safetensors",  "job",
					  "result.json",       "trace.jsonl",
					  "policy.jsonl" };

struct run {
	const char *dir;
	struct fal_diag *diag;
	char sha256[FILES][HEX]; /* "": it is not there, and need not be */
	char name[256], job[HEX], net[HEX], data[HEX], program[64];
	char model[HEX]; /* its SHA-256, by the last line; "": the job is not done */
	uint64_t lines;  /* of the trace */
	struct fal_chain chain; /* of these */
	/* while a file is read */
	struct fal_sha256_state sum;
	struct fal_trace_reader *reader;
	struct fal_buf *text; /* NULL: not wanted */
};

static int
odd(const struct run *r, enum file f, const char *what)
{
	return fal_diag_set(r->diag, FAL_EFORMAT, "%s/%s: %s", r->dir, names[f], what);
}

/* --- files --- */

static int
take_bytes(void *arg, const void *p, size_t n)
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

/* Digests the file `f`; a trace is read twice. */
static int
read_file(struct run *r, enum file f)
{
	uint8_t digest[FAL_HASH_BYTES];
	char *path = fal_xprintf("%s/%s", r->dir, names[f]);
	fal_sha256_init(&r->sum);
	int err = r->reader != NULL
			  ? fal_cli_feed(path, fal_trace_find, r->reader, r->diag)
			  : FAL_OK;
	if (err == FAL_OK)
		err = fal_cli_feed(path, take_bytes, r, r->diag);
	fal_sha256_final(&r->sum, digest);
	if (err == FAL_OK)
		fal_hex(digest, sizeof(digest), r->sha256[f]);
	free(path);
	return err;
}

/* --- the trace --- */

/* A copy of what fits; no more is ever written there.  NULL: "". */
static void
keep(char *out, size_t cap, const char *s)
{
	snprintf(out, cap, "%s", s != NULL ? s : "");
}

static int
take_line(void *arg, struct fal_trace_line *l)
{
	struct run *r = arg;
	const bool holds = fal_chain_take(&r->chain, l->text, l->n);
	r->lines++;
	if (!holds && l->event != FAL_EV_GAP) /* its link is that of a line not here */
		return fal_trace_fail(l, FAL_EFORMAT,
				      "it does not chain the line before");
	if (l->cut) /* the chain goes through all lines */
		return FAL_OK;
	const struct fal_ev_job *j = &l->is.job;
	if (l->event == FAL_EV_JOB) {
		keep(r->name, sizeof(r->name), j->name);
		keep(r->job, sizeof(r->job), j->hash);
		keep(r->program, sizeof(r->program), j->version);
		keep(r->net, sizeof(r->net), j->model);
		keep(r->data, sizeof(r->data), j->data);
	} else if (l->event == FAL_EV_RESTART) { /* with more epochs perhaps */
		keep(r->job, sizeof(r->job), l->is.restart.hash);
		r->model[0] = '\0';
	} else if (l->event == FAL_EV_DONE) {
		keep(r->model, sizeof(r->model), l->is.done.sha256);
	}
	return FAL_OK;
}

static int
read_trace(struct run *r)
{
	r->reader = fal_trace_reader_new(take_line, r);
	fal_trace_reader_tell_cut(r->reader);
	int err = read_file(r, TRACE);
	if (err == FAL_OK)
		err = fal_trace_end(r->reader, r->diag);
	fal_trace_reader_free(r->reader);
	r->reader = NULL;
	if (err == FAL_OK && r->model[0] == '\0')
		err = fal_diag_set(r->diag, FAL_ESTATE, "%s: the job is not done",
				   r->dir);
	return err;
}

/* --- the others --- */

/* The job's text, which the trace has the hash of. */
static int
read_job(struct run *r)
{
	struct fal_buf text = { 0 };
	uint8_t digest[FAL_HASH_BYTES];
	char hex[HEX];
	r->text = &text;
	int err = read_file(r, JOB);
	r->text = NULL;
	fal_hash(text.p, text.n, digest);
	fal_hex(digest, sizeof(digest), hex);
	if (err == FAL_OK && strcmp(hex, r->job) != 0)
		err = odd(r, JOB, "is not the one of the trace");
	fal_buf_free(&text);
	return err;
}

static int
read_run(struct run *r)
{
	int err = read_trace(r);
	if (err == FAL_OK)
		err = read_file(r, MODEL);
	if (err == FAL_OK && strcmp(r->sha256[MODEL], r->model) != 0)
		err = odd(r, MODEL, "is not the one of the trace");
	if (err == FAL_OK)
		err = read_job(r);
	for (enum file f = RESULT; f <= JOURNAL && err == FAL_OK; f += JOURNAL - RESULT)
		err = read_file(r, f);
	for (enum file f = AVERAGE; f <= BEST && err == FAL_OK; f++) {
		err = read_file(r, f);
		if (err == FAL_ENOENT)
			err = FAL_OK;
	}
	return err;
}

/* Reads the state folder `dir` of a job that is done and appends its statement.  The same
 * folder makes the same bytes.  Errors with a diagnosis: FAL_EIO, FAL_ENOENT, FAL_EPERM,
 * FAL_ENOMEM; FAL_ESTATE where the job is not done; FAL_EFORMAT where trace, job and
 * model do not belong together, or the trace does not chain. */
static int
statement_make(const char *dir, struct fal_buf *out, struct fal_diag *diag)
{
	struct run r = { .dir = dir, .diag = diag };
	int err = read_run(&r);
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
		fal_diag_set(diag, err, "out of memory");
	return err;
}

/* ---- commands ---- */

static int
to_stdout(const struct fal_buf *b)
{
	return fal_cli_put(STDOUT_FILENO, b->p, b->n) < 0
		       ? fail("standard output", FAL_EIO)
		       : FAL_EXIT_DONE;
}

static int
missing(const char *command)
{
	return say(FAL_EXIT_USAGE, "%s: --key FILE is missing", command);
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
				   ? say(FAL_EXIT_USAGE, "%s: already exists", at)
			   : err < 0 ? fail(at, err)
				     : FAL_EXIT_DONE;
	fal_secret_free(s);
	free(beside);
	return status;
}

static int
make(const char *dir, struct fal_buf *out)
{
	struct fal_diag diag = { "" };
	const int err = statement_make(dir, out, &diag);
	return err < 0 ? say(err == FAL_ESTATE ? FAL_EXIT_TEMPFAIL : FAL_EXIT_NO, "%s",
			     diag.text)
		       : FAL_EXIT_DONE;
}

/* falcon-key sign --key FILE RUN */
int
cmd_sign(const struct options *o, const char *const *arg, size_t n)
{
	struct fal_buf said = { 0 };
	struct text text;
	(void)n;
	if (o->key == NULL)
		return missing("sign");
	int status = read_keys(o->key, &text);
	if (status != FAL_EXIT_DONE)
		return status;
	uint8_t *key = fal_secret_alloc(FAL_KEY_BYTES);
	if (fal_sign_secret_parse(text.p, text.n, key) < 0)
		status = say(FAL_EXIT_USAGE, "%s: not a secret key to sign with", o->key);
	fal_secret_free(text.p);
	if (status == FAL_EXIT_DONE)
		status = make(arg[0], &said);
	if (status == FAL_EXIT_DONE) {
		fal_sign_line(key, &said);
		status = to_stdout(&said);
	}
	fal_secret_free(key);
	fal_buf_free(&said);
	return status;
}

/* Reads the signed statement `path`; `said` gets its line. */
static int
read_statement(const char *path, const uint8_t public[static FAL_KEY_BYTES],
	       struct fal_buf *said)
{
	struct text text;
	size_t n;
	int err = file_read(path, &text);
	if (err < 0)
		return fail(path, err);
	err = fal_sign_check(public, text.p, text.n, &n);
	if (err == FAL_OK)
		fal_put_bytes(said, text.p, n);
	fal_secret_free(text.p);
	if (err == FAL_EFORMAT)
		return say(FAL_EXIT_NO, "%s: is not a signed statement", path);
	if (err == FAL_EAUTH)
		return say(FAL_EXIT_NO, "%s: is not what was signed by this key", path);
	return said->err < 0 ? fail(path, said->err) : FAL_EXIT_DONE;
}

/* Does the statement say of the run what is to be said? */
static int
compare(const char *path, const struct fal_buf *said, const char *dir)
{
	struct fal_buf now = { 0 };
	int status = make(dir, &now);
	if (status == FAL_EXIT_DONE &&
	    (now.n != said->n || memcmp(now.p, said->p, now.n) != 0))
		status = say(FAL_EXIT_NO, "%s: is not about what is in %s", path, dir);
	fal_buf_free(&now);
	return status;
}

/* falcon-key verify --key FILE STATEMENT [RUN] */
int
cmd_verify(const struct options *o, const char *const *arg, size_t n)
{
	struct fal_buf said = { 0 };
	uint8_t public[FAL_KEY_BYTES];
	struct text text;
	if (o->key == NULL)
		return missing("verify");
	int status, err = file_read(o->key, &text);
	if (err < 0)
		return fail(o->key, err);
	err = fal_sign_public_parse(text.p, text.n, public);
	fal_secret_free(text.p);
	if (err < 0)
		return say(FAL_EXIT_USAGE, "%s: not a public key to verify with", o->key);
	status = read_statement(arg[0], public, &said);
	if (status == FAL_EXIT_DONE && n > 1)
		status = compare(arg[0], &said, arg[1]);
	if (status == FAL_EXIT_DONE) {
		fal_put_u8(&said, '\n');
		status = said.err < 0 ? fail(arg[0], said.err) : to_stdout(&said);
	}
	fal_buf_free(&said);
	return status;
}
