/* falcon-proj: reads a trace; prints a report of the stragglers, a prediction or a
 * policy, or draws a picture. */
#include "base/mem.h"
#include "cli/file.h"
#include "cli/need.h"
#include "plot.h"
#include "proj.h"
#include "sched/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum mode { REPORT, WHAT_IF, POLICY, GANTT, CURVES };

/* The state of reading a trace, by mode. */
struct input {
	const struct proj_opt *o;
	enum mode mode;
	struct proj_job job;
	struct fal_fit *fit;
	struct fal_report report;
	struct fal_gantt gantt;
	struct fal_curve *curve;
	struct fal_trace_reader *reader;
	struct fal_diag diag; /* of the reader */
	double next;          /* second of the trace at which --follow answers again */
	bool has_answered;    /* at least once */
	bool waits;           /* too few lines for an answer are not an error */
	struct proj_proposal last;
	int code; /* of an answer that failed; -1 */
};

static enum mode
options_mode(const struct proj_opt *o)
{
	if (o->policy)
		return POLICY;
	if (o->what_if != NULL || proj_changes(o) || o->strict)
		return WHAT_IF;
	if (o->plot == NULL && !o->tsv)
		return REPORT;
	return o->gantt ? GANTT : CURVES;
}

/* Writes `out` to stdout, and empties it; returns `code` or, if writing fails, another
 * exit code. */
static int
write_answer(const struct input *in, struct fal_buf *out, int code)
{
	return fal_cli_output(PROG, out, in->o->json || in->mode == POLICY, code);
}

/* Returns the exit code for an error of an answer, after one line on stderr; -1: there
 * are too few lines, and more may come. */
static int
check_answer(const struct input *in, int err, const struct fal_diag *diag)
{
	if (err == FAL_ETRUNC && in->waits)
		return -1;
	if (err < 0)
		return fail(fal_cli_exit_code(err), "%s: %s",
			    fal_cli_file_name(in->job.name), diag->text);
	return FAL_EXIT_DONE;
}

/* Draws these numbers, or prints them for --tsv; frees them. */
static int
draw_numbers(const struct input *in, const char *kind, struct fal_buf *numbers)
{
	struct fal_diag diag;
	if (in->o->tsv)
		return write_answer(in, numbers, FAL_EXIT_DONE);
	int err = plot_draw(in->o->plot, kind, numbers, &diag);
	fal_buf_free(numbers);
	if (err < 0)
		return fail(fal_cli_exit_code(err), "%s", diag.text);
	return FAL_EXIT_DONE;
}

/* Prints or draws the answer from the lines so far.  Returns an exit code, or -1: there
 * are too few lines. */
static int
proj_answer(struct input *in)
{
	/* A terminal shows the newest window, a pipe all windows. */
	const bool clears = in->o->follow && in->mode != POLICY && !in->o->json &&
			    isatty(STDOUT_FILENO);
	struct fal_buf out = { 0 };
	struct fal_diag diag;
	int code;
	if (in->mode == GANTT) {
		code = check_answer(in, fal_gantt_end(&in->gantt, &diag), &diag);
		if (code != FAL_EXIT_DONE)
			return code;
		plot_put_bands(&out, &in->gantt);
		return draw_numbers(in, "bands", &out);
	}
	if (in->mode == REPORT) {
		code = check_answer(in, fal_report_end(&in->report, &diag), &diag);
		if (code != FAL_EXIT_DONE)
			return code;
		(in->o->json ? report_json : report_text)(&out, &in->report);
	} else {
		code = check_answer(in,
				    fal_fit_end(in->fit, &in->job.cost, &in->job.run,
						&diag),
				    &diag);
		if (code != FAL_EXIT_DONE)
			return code;
		if (in->mode == POLICY)
			code = proj_policy(in->o, &in->job, &in->last, &out);
		else
			code = proj_what_if(in->o, &in->job, &out);
		fal_cost_free(&in->job.cost);
	}
	if (clears)
		fputs("\033[H\033[2J", stdout);
	return write_answer(in, &out, code);
}

static int
on_proj_line(void *arg, struct fal_trace_line *l)
{
	struct input *in = arg;
	/* Under another policy the same proposal may be printed again. */
	if (l->event == FAL_EV_POLICY)
		in->last.printed = false;
	int err = l->event == FAL_EV_GAP
			  ? fal_trace_fail(
				    l, FAL_EINVAL,
				    "lines are missing here: nothing can be computed")
		  : in->mode == REPORT ? fal_report_line(&in->report, l)
		  : in->mode == GANTT  ? fal_gantt_line(&in->gantt, l)
		  : in->mode == CURVES ? fal_curve_line(in->curve, l)
				       : fal_fit_line(in->fit, l);
	if (err < 0 || !in->o->follow || l->t < in->next)
		return err;
	const bool is_first = in->next <= 0;
	in->next = l->t + (double)in->o->window;
	if (is_first)
		return FAL_OK;
	/* A window of a live stream has ended. */
	in->waits = true;
	const int code = proj_answer(in);
	if (code < 0)
		return FAL_OK;
	in->has_answered = true;
	if (in->mode == REPORT)
		fal_report_window(&in->report);
	in->code = code > FAL_EXIT_DONE ? code : -1;
	return in->code >= 0 ? FAL_EIO : FAL_OK;
}

static int
on_proj_chunk(void *arg, const void *p, size_t n)
{
	struct input *in = arg;
	return fal_trace_feed(in->reader, p, n, &in->diag);
}

/* Reads the trace; if the trace ends in mid-line, all lines before count.  Returns an
 * exit code. */
static int
proj_read_trace(struct input *in)
{
	struct fal_diag diag = { 0 };
	const char *name = in->job.name;
	in->diag.text[0] = '\0';
	in->reader = fal_trace_reader_new(on_proj_line, in);
	const struct fal_cli_pass first = { fal_trace_find_restarts, in->reader };
	const struct fal_cli_pass then = { on_proj_chunk, in };
	char *file = fal_cli_trace_path(name);
	int err = fal_cli_feed_twice(file, first, then, &diag);
	free(file);
	if (err == FAL_OK)
		err = fal_trace_end(in->reader, &in->diag);
	fal_trace_reader_free(in->reader);
	if (err < 0 && in->code >= 0)
		return in->code;
	if (err < 0 && in->diag.text[0] == '\0')
		return fail(fal_cli_file_exit_code(err), "%s",
			    diag.text[0] != '\0' ? diag.text : fal_strerror(err));
	if (err < 0)
		return fail(err != FAL_ETRUNC ? (int)fal_cli_exit_code(err)
					      : FAL_EXIT_DONE,
			    "%s:%s%s", fal_cli_file_name(name), in->diag.text,
			    err == FAL_ETRUNC ? "; the rest counts" : "");
	return FAL_EXIT_DONE;
}

/* The name of a run in a legend: the last part of its path, without trace.jsonl.  Free
 * with free(). */
static char *
run_name(const char *path)
{
	const char *end = strstr(path, "/trace.jsonl");
	size_t n = end != NULL ? (size_t)(end - path) : strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	size_t from = n;
	while (from > 0 && path[from - 1] != '/')
		from--;
	return fal_xprintf("%.*s", (int)(n - from), path + from);
}

/* Draws the curves of each trace. */
static int
draw_curves(struct input *in, const char *const *name, size_t n)
{
	struct plot_curve *all = fal_xcalloc(n, sizeof(*all));
	int code = FAL_EXIT_DONE;
	bool any_loss = false;
	for (size_t i = 0; i < n && code == FAL_EXIT_DONE; i++) {
		in->job.name = name[i];
		in->curve = fal_xcalloc(1, sizeof(*in->curve));
		all[i] = (struct plot_curve){ run_name(name[i]), in->curve };
		code = proj_read_trace(in);
		if (code == FAL_EXIT_DONE &&
		    in->curve->loss.n + in->curve->accuracy.n == 0) {
			fal_cli_err(PROG, "%s: neither loss nor accuracy", name[i]);
			code = FAL_EXIT_USAGE;
		}
		any_loss = any_loss || (code == FAL_EXIT_DONE && in->curve->loss.n > 0);
	}
	if (code == FAL_EXIT_DONE && !any_loss) {
		fal_cli_err(PROG, "no update has a loss");
		code = FAL_EXIT_USAGE;
	} else if (code == FAL_EXIT_DONE) {
		struct fal_buf numbers = { 0 };
		plot_put_curves(&numbers, all, n);
		code = draw_numbers(in, "curves", &numbers);
	}
	for (size_t i = 0; i < n; i++) {
		free(all[i].name);
		free((void *)(uintptr_t)all[i].curve);
	}
	free(all);
	return code;
}

static int
run_proj(const struct proj_opt *o, const char *const *name, size_t n)
{
	struct input in = {
		.o = o, .mode = options_mode(o), .job.name = name[0], .code = -1
	};
	int code;
	in.fit = fal_fit_new();
	if (in.mode == CURVES) {
		code = draw_curves(&in, name, n);
	} else {
		code = proj_read_trace(&in);
		/* The last window of a stream has an answer, too, if it has enough lines.
		 */
		in.waits = in.has_answered;
		if (code == FAL_EXIT_DONE && !(in.has_answered && in.mode == POLICY))
			code = proj_answer(&in);
		code = code < 0 ? FAL_EXIT_DONE : code;
	}
	fal_fit_free(in.fit);
	fal_report_free(&in.report);
	fal_gantt_free(&in.gantt);
	free(in.last.text);
	return code;
}

/* Checks the numbers of options, and which options go together.  Returns -1, or an exit
 * code. */
static int
proj_check_options(const struct fal_cli *cli, const struct proj_opt *o)
{
	static const struct {
		const char *name;
		uint64_t most;
	} number[] = { { "lanes", FAL_LANES_MAX },
		       { "task", UINT32_MAX },
		       { "batch", UINT32_MAX },
		       { "window", 1000000 } };
	const size_t n = cli->n_args;
	int code = -1;
	for (size_t i = 0; i < sizeof(number) / sizeof(number[0]) && code < 0; i++)
		code = fal_cli_range(cli, number[i].name, 1, number[i].most);
	if (code >= 0)
		return code;
	struct fal_diag diag;
	if (o->plot != NULL && plot_check_format(o->plot, &diag) < 0)
		return fail(FAL_EXIT_USAGE, "--plot: %s", diag.text);
	if (o->policy + (o->plot != NULL) + o->tsv + o->json > 1 ||
	    (o->follow && (o->plot != NULL || o->tsv)) ||
	    (n > 1 && options_mode(o) != CURVES) || (o->policy && proj_changes(o)))
		return fail(FAL_EXIT_USAGE,
			    "one of --policy, --plot, --tsv, --json; --plot and --tsv "
			    "without --follow; --policy on the machines as they are; "
			    "several traces only for --plot or --tsv alone");
	if (o->min_gain < 0 || o->min_gain > 100)
		return fail(FAL_EXIT_USAGE, "--min-gain: '%g' is not from 0 to 100",
			    o->min_gain);
	/* Options that would have no effect are errors. */
	const struct {
		const char *name;
		bool works;
		const char *with;
	} option[] = { { "min-gain", o->policy, "policy" },
		       { "allow-model", o->policy, "policy" },
		       { "window", o->follow, "follow" },
		       { "gantt", options_mode(o) == GANTT, "plot or --tsv" },
		       { "seed", o->workers != NULL, "workers" } };
	for (size_t i = 0; i < sizeof(option) / sizeof(option[0]); i++)
		if (!option[i].works && fal_cli_is_given(cli, option[i].name))
			return fail(FAL_EXIT_USAGE, "--%s: only with --%s",
				    option[i].name, option[i].with);
	return -1;
}

int
main(int argc, char **argv)
{
	struct proj_opt o = { .min_gain = 5, .window = 10, .seed = 1 };
	uint64_t max_memory = 0;
	const struct fal_opt opts[] = {
		{ "what-if", 0, FAL_OPT_TEXT, &o.what_if,
		  "predict these schemes, or \"all\"", "RULE[;RULE...]" },
		{ "without", 0, FAL_OPT_LIST, &o.without, "predict without this worker",
		  "NAME" },
		{ "with", 0, FAL_OPT_LIST, &o.with, "predict with one worker more",
		  "SPEC" },
		{ "lanes", 0, FAL_OPT_U64, &o.lanes,
		  "predict with so many lanes a worker", "N" },
		{ "task", 0, FAL_OPT_U64, &o.task, "predict with tasks of N samples",
		  "N" },
		{ "batch", 0, FAL_OPT_U64, &o.batch, "predict with N samples a clock",
		  "N" },
		{ "workers", 0, FAL_OPT_TEXT, &o.workers,
		  "predict workers drawn from those of the trace", "N|SPEC" },
		{ "seed", 0, FAL_OPT_U64, &o.seed,
		  "seed of the drawn workers (default: 1)", "N" },
		{ "strict", 0, FAL_OPT_FLAG, &o.strict,
		  "exit 1 if the backtest is off by more than 10 %", NULL },
		{ "gantt", 0, FAL_OPT_FLAG, &o.gantt,
		  "with --plot or --tsv: where the workers' time went", NULL },
		{ "policy", 'p', FAL_OPT_FLAG, &o.policy,
		  "print the policy that would be faster, for falcon-sync", NULL },
		{ "min-gain", 0, FAL_OPT_NUMBER, &o.min_gain,
		  "no policy that saves less than this (default: 5)", "PERCENT" },
		{ "allow-model", 0, FAL_OPT_FLAG, &o.allow_model,
		  "with --policy: say what other models would save", NULL },
		{ "plot", 0, FAL_OPT_TEXT, &o.plot,
		  "draw loss and accuracy, or the answer, as .svg or .png", "FILE" },
		{ "tsv", 0, FAL_OPT_FLAG, &o.tsv, "print the numbers of that picture",
		  NULL },
		{ "follow", 'f', FAL_OPT_FLAG, &o.follow, "go on as the trace grows",
		  NULL },
		{ "window", 0, FAL_OPT_U64, &o.window,
		  "seconds between answers (default: 10)", "SECONDS" },
		{ "max-memory", 0, FAL_OPT_SIZE, &max_memory, "no more memory than this",
		  "SIZE" },
		{ "json", 'j', FAL_OPT_FLAG, &o.json, "print JSON", NULL },
	};
	struct fal_cli cli = {
		.prog = PROG,
		.args = "[TRACE...]",
		.opts = opts,
		.n_opts = sizeof(opts) / sizeof(opts[0]),
		.max_args = 16,
	};
	const uint64_t program = fal_memory_prepare();
	int code = fal_cli_parse(&cli, argc, argv);
	if (code < 0)
		code = fal_memory_apply_limit(&cli, program, max_memory, false);
	if (code < 0)
		code = proj_check_options(&cli, &o);
	const char *const in = "-";
	if (code < 0)
		code = cli.n_args > 0 ? run_proj(&o, cli.arg, cli.n_args)
				      : run_proj(&o, &in, 1);
	fal_cli_free(&cli);
	return code;
}
