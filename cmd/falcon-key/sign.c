/* The commands of signatures: pair, sign, verify. */
#include "key.h"

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "sec/sign.h"
#include "statement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
	if (s == NULL)
		fal_out_of_memory();
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
	if (key == NULL)
		fal_out_of_memory();
	if (fal_sign_secret_parse(text.p, text.n, key) < 0)
		status = say(FAL_EXIT_USAGE, "%s: not a secret key to sign with", o->key);
	fal_secret_free(text.p);
	if (status == FAL_EXIT_DONE)
		status = make(arg[0], &said);
	if (status == FAL_EXIT_DONE) {
		const int err = fal_sign_line(key, &said);
		status = err < 0 ? fail(arg[0], err) : to_stdout(&said);
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
