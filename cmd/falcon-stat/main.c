/* falcon-stat: prints the table of a job, the job's history, the audit of its ledger, or
 * its trace line by line. */
#include "stat.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "cli/need.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Prints why a trace cannot be judged; returns the exit code. */
static int
print_bad_trace(const struct stat_source *src, int err, const struct fal_diag *diag)
{
	fal_cli_err(PROG, "%s: %s", fal_cli_file_name(src->name), diag->text);
	return (int)fal_cli_exit_code(err);
}

struct options {
	bool audit, partial, history, json, follow, watch, metrics;
	const char *key, *part;
	struct stat_recompute recompute;
};

struct auditing {
	struct fal_audit *audit;
	bool has_folder; /* collects the policies, to compare them with the journal */
	struct stat_policies policies;
};

static int
audit_line(void *arg, struct fal_trace_line *l)
{
	struct auditing *in = arg;
	int err = fal_audit_line(in->audit, l);
	return err == FAL_OK && in->has_folder && !l->cut
		       ? stat_policies_line(&in->policies, l)
		       : err;
}

static int
run_audit(const struct stat_source *src, const struct options *o)
{
	struct fal_audit *a = fal_audit_new();
	struct fal_audit_verdict v;
	struct fal_diag diag;
	struct fal_buf out = { 0 };
	fal_audit_demand(a, FAL_AUDIT_CHAIN | FAL_AUDIT_CLOCKS | FAL_AUDIT_PARTS |
				    (o->partial ? 0 : FAL_AUDIT_END));
	struct auditing in = { .audit = a, .has_folder = src->folder != NULL };
	int code = stat_source_read(src, STAT_READ_CUT, audit_line, &in);
	if (code == FAL_EXIT_DONE && src->folder != NULL)
		code = stat_folder_audit(src->folder, &in.policies, a);
	if (code != FAL_EXIT_DONE)
		goto free_a;
	int err = fal_audit_end(a, &v, &diag);
	if (err < 0) {
		code = print_bad_trace(src, err, &diag);
		goto free_a;
	}
	struct stat_recomputed r;
	const bool anew = o->part != NULL && v.ok;
	if (anew && (code = stat_recompute(src, &o->recompute, &r)) != FAL_EXIT_DONE)
		goto free_a;
	(o->json ? stat_audit_json : stat_audit)(&out, &v, anew ? &r : NULL);
	code = v.ok ? FAL_EXIT_DONE : FAL_EXIT_NO;
	code = fal_cli_output(PROG, &out, o->json,
			      anew ? stat_recomputed_code(&r) : code);
free_a:
	stat_policies_free(&in.policies);
	fal_audit_free(a);
	return code;
}

/* Sums the trace up and prints the summary by `print`. */
static int
run_summary(const struct stat_source *src, bool json,
	    void (*print)(struct fal_buf *out, const struct fal_summary *s))
{
	struct fal_summary s = { 0 };
	struct fal_diag diag;
	struct fal_buf out = { 0 };
	int code = stat_source_read(src, STAT_READ, fal_summary_line, &s);
	if (code != FAL_EXIT_DONE)
		goto free_s;
	int err = fal_summary_end(&s, &diag);
	if (err < 0) {
		code = print_bad_trace(src, err, &diag);
		goto free_s;
	}
	print(&out, &s);
	code = fal_cli_output(PROG, &out, json, FAL_EXIT_DONE);
free_s:
	fal_summary_free(&s);
	return code;
}

/* Parses a share such as "1%". */
static bool
parse_percent(const char *text, double *out)
{
	char number[32];
	const size_t n = strlen(text);
	if (n < 2 || n > sizeof(number) || text[n - 1] != '%')
		return false;
	memcpy(number, text, n - 1);
	number[n - 1] = '\0';
	if (fal_parse_double(number, 0, 100, out) < 0)
		return false;
	*out /= 100;
	return *out > 0;
}

static int
run_stat(const struct stat_source *src, const struct options *o)
{
	const bool files = o->recompute.directory != NULL || o->recompute.from != NULL;
	const char *name = src->name, *wrong = NULL;
	if (o->audit + o->history + o->follow + o->watch + o->metrics > 1 ||
	    (o->json && (o->follow || o->watch || o->metrics)))
		wrong = "one of --audit, --history, --follow, --watch, --openmetrics; "
			"--json with the first two or alone";
	else if (o->partial && !o->audit)
		wrong = "--partial is for --audit";
	else if ((o->part != NULL || files) &&
		 (o->part == NULL || !o->audit || src->folder == NULL))
		wrong = "--recompute, and with it --directory and --from, are for "
			"--audit of a run's folder";
	if (wrong != NULL)
		return fal_cli_usage(PROG, "%s", wrong);
	if (o->audit && src->live)
		return fal_cli_usage(PROG, "%s: --audit needs the whole trace, a file",
				     name);
	if (o->follow && !src->live)
		return fal_cli_usage(PROG, "%s: --follow needs an address", name);
	if (o->follow)
		return stat_source_follow(src);
	if (o->watch)
		return stat_watch(src);
	if (o->metrics)
		return run_summary(src, true, stat_openmetrics);
	if (o->audit)
		return run_audit(src, o);
	if (o->history)
		return run_summary(src, o->json,
				   o->json ? stat_history_json : stat_history);
	return run_summary(src, o->json, o->json ? stat_table_json : stat_table);
}

/* OpenBLAS, which only --recompute uses, starts a thread for each further core at load
 * time.  Each thread asks for 128 MiB until the system grants them, and the end of the
 * program waits for the threads.  So with --recompute or --max-memory the program starts
 * itself again without these threads, before reading anything. */
static void
restart_without_threads(char **argv)
{
	static const char threads[] = "OPENBLAS_NUM_THREADS";
	const char *value = getenv(threads);
	char self[PATH_MAX];
	const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0 || (value != NULL && strcmp(value, "1") == 0) ||
	    setenv(threads, "1", 1) != 0)
		return;
	self[n] = '\0';
	(void)execv(self, argv);
}

int
main(int argc, char **argv)
{
	struct options o = { 0 };
	uint64_t max_memory = 0;
	const struct fal_opt opts[] = {
		{ "audit", 'a', FAL_OPT_FLAG, &o.audit,
		  "prove from the ledger that every task was added exactly once", NULL },
		{ "directory", 'C', FAL_OPT_TEXT, &o.recompute.directory,
		  "for --recompute: where names in the job begin (default: FOLDER/..)",
		  "DIR" },
		{ "follow", 'f', FAL_OPT_FLAG, &o.follow,
		  "print the trace of a running job as it comes", NULL },
		{ "from", 0, FAL_OPT_TEXT, &o.recompute.from,
		  "the weights that the job began with, for --recompute", "FILE" },
		{ "history", 0, FAL_OPT_FLAG, &o.history, "a line for each epoch", NULL },
		{ "json", 'j', FAL_OPT_FLAG, &o.json, "print JSON", NULL },
		{ "max-memory", 0, FAL_OPT_SIZE, &max_memory, "no more memory than this",
		  "SIZE" },
		{ "openmetrics", 0, FAL_OPT_FLAG, &o.metrics,
		  "print metrics for Prometheus", NULL },
		{ "partial", 0, FAL_OPT_FLAG, &o.partial,
		  "audit a trace that has no end, as far as it goes", NULL },
		{ "recompute", 0, FAL_OPT_TEXT, &o.part,
		  "compute so much of the run anew, and compare", "PERCENT%" },
		{ "watch", 0, FAL_OPT_FLAG, &o.watch,
		  "show a live screen, until q is pressed", NULL },
		{ "key", 'k', FAL_OPT_TEXT, &o.key,
		  "key file, for an address (default: ~/.config/falcon/key, "
		  "/etc/falcon/key)",
		  "FILE" },
	};
	struct fal_cli cli = {
		.prog = PROG,
		.args = "ADDR|TRACE|FOLDER",
		.opts = opts,
		.n_opts = sizeof(opts) / sizeof(opts[0]),
		.min_args = 1,
		.max_args = 1,
	};
	struct stat_source src;
	const uint64_t program = fal_memory_prepare();
	int code = fal_cli_parse(&cli, argc, argv);
	if (code < 0 && (max_memory > 0 || o.part != NULL))
		restart_without_threads(argv);
	getrlimit(RLIMIT_DATA, &o.recompute.data);
	o.recompute.program = program;
	if (code < 0)
		code = fal_memory_apply_limit(&cli, program, max_memory,
					      access(cli.arg[0], F_OK) < 0);
	if (code < 0 && o.part != NULL && !parse_percent(o.part, &o.recompute.part)) {
		fal_cli_err(PROG, "--recompute: '%s' is not a part like 1%%", o.part);
		code = FAL_EXIT_USAGE;
	}
	if (code < 0) {
		o.recompute.max_memory = max_memory;
		code = stat_source_find(cli.arg[0], o.key, &src);
		if (code == FAL_EXIT_DONE)
			code = run_stat(&src, &o);
		free(src.path);
	}
	fal_cli_free(&cli);
	return code;
}
