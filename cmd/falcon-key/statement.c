/* The statement of a run, from the files of its folder. */
#include "statement.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "cli/file.h"
#include "sec/hash.h"
#include "trace/chain.h"
#include "trace/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Any line, also one that does not count: the chain goes through all. */
static int
take_link(void *arg, struct fal_trace_line *l)
{
	struct run *r = arg;
	const bool holds = fal_chain_take(&r->chain, l->text, l->n);
	r->lines++;
	if (holds || l->event == FAL_EV_GAP) /* its link is that of a line not here */
		return FAL_OK;
	return fal_trace_fail(l, FAL_EFORMAT, "it does not chain the line before");
}

static int
take_line(void *arg, struct fal_trace_line *l)
{
	struct run *r = arg;
	int err = take_link(r, l);
	if (err < 0)
		return err;
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
	fal_trace_reader_on_cut(r->reader, take_link);
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

int
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
