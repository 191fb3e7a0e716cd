/* falcon-stat: one table of a job, its history, or the audit of its ledger. */
#include "base/err.h"
#include "cli/cli.h"
#include "stat.h"
#include "trace/reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PROG "falcon-stat"

/* Feeds the file, or stdin for "-", to on_line.  Returns an exit code. */
static int
read_trace(const char *path, int (*on_line)(void *arg, struct fal_trace_line *l),
	   void *arg)
{
	struct fal_diag diag;
	bool is_stdin = strcmp(path, "-") == 0;
	FILE *f = is_stdin ? stdin : fopen(path, "rb");
	if (f == NULL) {
		fal_cli_err(PROG, "%s: %s", path, strerror(errno));
		return FAL_EXIT_USAGE;
	}
	int code = FAL_EXIT_NO, err = 0;
	struct fal_trace_reader *r = fal_trace_reader_new(on_line, arg);
	if (r == NULL) {
		fal_cli_err(PROG, "%s", fal_strerror(FAL_ENOMEM));
		goto close_f;
	}
	static char chunk[1 << 16];
	size_t n;
	while (err == 0 && (n = fread(chunk, 1, sizeof(chunk), f)) > 0)
		err = fal_trace_feed(r, chunk, n, &diag);
	if (err == 0 && ferror(f)) {
		fal_cli_err(PROG, "%s: %s", path, strerror(errno));
		code = FAL_EXIT_USAGE;
		goto free_r;
	}
	if (err == 0)
		err = fal_trace_end(r, &diag);
	if (err < 0)
		fal_cli_err(PROG, "%s:%s", path, diag.text);
	code = err < 0 ? (int)fal_cli_exit(err) : FAL_EXIT_DONE;
free_r:
	fal_trace_reader_free(r);
close_f:
	if (!is_stdin)
		fclose(f);
	return code;
}

/* Writes what was printed, and returns `code` unless that fails. */
static int
finish(struct fal_buf *out, int code)
{
	if (out->err < 0) {
		fal_cli_err(PROG, "%s", fal_strerror(out->err));
		code = FAL_EXIT_NO;
	} else {
		fwrite(out->p, 1, out->n, stdout);
		code = fal_cli_finish(PROG, code);
	}
	fal_buf_free(out);
	return code;
}

static int
run_audit(const char *path, bool json)
{
	struct fal_audit *a = fal_audit_new();
	if (a == NULL) {
		fal_cli_err(PROG, "%s", fal_strerror(FAL_ENOMEM));
		return FAL_EXIT_NO;
	}
	struct fal_audit_verdict v;
	struct fal_diag diag;
	struct fal_buf out = { 0 };
	int code = read_trace(path, fal_audit_line, a);
	if (code != FAL_EXIT_DONE)
		goto free_a;
	int err = fal_audit_end(a, &v, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s:%s", path, diag.text);
		code = (int)fal_cli_exit(err);
		goto free_a;
	}
	(json ? stat_audit_json : stat_audit)(&out, &v);
	code = finish(&out, v.ok ? FAL_EXIT_DONE : FAL_EXIT_NO);
free_a:
	fal_audit_free(a);
	return code;
}

/* Sums the trace up and prints it by `print`. */
static int
run_summary(const char *path,
	    void (*print)(struct fal_buf *out, const struct fal_summary *s))
{
	struct fal_summary s = { 0 };
	struct fal_diag diag;
	struct fal_buf out = { 0 };
	int code = read_trace(path, fal_summary_line, &s);
	if (code != FAL_EXIT_DONE)
		goto free_s;
	int err = fal_summary_end(&s, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s:%s", path, diag.text);
		code = (int)fal_cli_exit(err);
		goto free_s;
	}
	print(&out, &s);
	code = finish(&out, FAL_EXIT_DONE);
free_s:
	fal_summary_free(&s);
	return code;
}

int
main(int argc, char **argv)
{
	bool audit = false, history = false, json = false;
	const struct fal_opt opts[] = {
		{ "audit", 'a', FAL_OPT_FLAG, &audit,
		  "prove from the ledger that every task was added exactly once", NULL },
		{ "history", 0, FAL_OPT_FLAG, &history, "a line for each epoch", NULL },
		{ "json", 'j', FAL_OPT_FLAG, &json, "print JSON", NULL },
	};
	struct fal_cli cli = {
		.prog = PROG,
		.args = "TRACE",
		.opts = opts,
		.n_opts = sizeof(opts) / sizeof(opts[0]),
		.min_args = 1,
		.max_args = 1,
	};
	int code = fal_cli_parse(&cli, argc, argv);
	if (code >= 0)
		goto free_cli;
	if (audit && history) {
		fal_cli_err(PROG, "--audit and --history: one of them");
		code = FAL_EXIT_USAGE;
	} else if (audit) {
		code = run_audit(cli.arg[0], json);
	} else if (history) {
		code = run_summary(cli.arg[0], json ? stat_history_json : stat_history);
	} else {
		code = run_summary(cli.arg[0], json ? stat_table_json : stat_table);
	}
free_cli:
	fal_cli_free(&cli);
	return code;
}
