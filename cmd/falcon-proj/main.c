/* falcon-proj: a trace in; a report of the stragglers, a prediction, a policy or a
 * picture out. */
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

enum mode { REPORT, WHAT_IF, POLICY, BANDS, CURVES };

/* What the lines of a trace go to, by mode. */
struct input {
	const struct proj_opt *o;
	enum mode mode;
	struct proj_job job;
	struct fal_fit *fit;
	struct fal_report report;
	struct fal_gantt band;
	struct fal_curve *curve;
	struct fal_trace_reader *reader;
	struct fal_diag diag; /* of the reader */
	double next;          /* second at which --follow says something again */
	bool said;            /* something was */
	bool waits;           /* for more lines, if these are too few */
	struct proj_proposal last;
	int code; /* of a part that failed; -1 */
};

static enum mode
mode_of(const struct proj_opt *o, size_t traces)
{
	if (o->policy)
		return POLICY;
	if (o->what_if != NULL || proj_changes(o) || o->strict)
		return WHAT_IF;
	if (o->plot == NULL && !o->tsv)
		return REPORT;
	return traces > 1 ? CURVES : BANDS;
}

/* Writes what is in `out`, and empties it. */
static int
flush(const struct input *in, struct fal_buf *out, int code)
{
	if (out->err < 0) {
		fal_cli_err(PROG, "%s", fal_strerror(out->err));
		code = FAL_EXIT_NO;
	} else if (out->n > 0) {
		if (in->o->json || in->mode == POLICY)
			fwrite(out->p, 1, out->n, stdout);
		else
			fal_cli_print(out);
		code = fal_cli_finish(PROG, code);
	}
	fal_buf_free(out);
	return code;
}

/* The exit code for what a part made of the lines so far, having said what is wrong; -1:
 * they are too few. */
static int
judge(const struct input *in, int err, const struct fal_diag *diag)
{
	if (err == FAL_ETRUNC && in->waits)
		return -1;
	if (err < 0)
		return say(fal_cli_exit(err), "%s: %s", fal_cli_file(in->job.name),
			   diag->text);
	return FAL_EXIT_DONE;
}

/* Draws these numbers, or prints them for --tsv; frees them. */
static int
show_numbers(const struct input *in, const char *kind, struct fal_buf *numbers)
{
	struct fal_diag diag;
	if (in->o->tsv)
		return flush(in, numbers, FAL_EXIT_DONE);
	int err = plot_draw(in->o->plot, kind, numbers, &diag);
	fal_buf_free(numbers);
	if (err < 0)
		return say(fal_cli_exit(err), "%s", diag.text);
	return FAL_EXIT_DONE;
}

/* A terminal shows the newest window, a pipe all of them. */
static void
wipe(const struct input *in)
{
	if (in->o->follow && in->mode != POLICY && !in->o->json && isatty(STDOUT_FILENO))
		fputs("\033[H\033[2J", stdout);
}

/* Says what is asked for, from the lines so far; -1: they are too few. */
static int
answer(struct input *in)
{
	struct fal_buf out = { 0 };
	struct fal_diag diag;
	int code;
	if (in->mode == BANDS) {
		code = judge(in, fal_gantt_end(&in->band, &diag), &diag);
		if (code != FAL_EXIT_DONE)
			return code;
		plot_put_bands(&out, &in->band);
		return show_numbers(in, "bands", &out);
	}
	if (in->mode == REPORT) {
		code = judge(in, fal_report_end(&in->report, &diag), &diag);
		if (code != FAL_EXIT_DONE)
			return code;
		(in->o->json ? report_json : report_text)(&out, &in->report);
		wipe(in);
		return flush(in, &out, code);
	}
	code = judge(in, fal_fit_end(in->fit, &in->job.cost, &in->job.run, &diag), &diag);
	if (code != FAL_EXIT_DONE)
		return code;
	if (in->mode == POLICY)
		code = proj_policy(in->o, &in->job, &in->last, &out);
	else
		code = proj_what_if(in->o, &in->job, &out);
	fal_cost_free(&in->job.cost);
	wipe(in);
	return flush(in, &out, code);
}

/* A window of a live stream is over. */
static int
say_window(struct input *in)
{
	in->waits = true;
	int code = answer(in);
	if (code < 0)
		return FAL_OK;
	in->said = true;
	if (in->mode == REPORT)
		fal_report_window(&in->report);
	in->code = code > FAL_EXIT_DONE ? code : -1;
	return in->code >= 0 ? FAL_EIO : FAL_OK;
}

static int
take(struct input *in, struct fal_trace_line *l)
{
	switch (in->mode) {
	case REPORT:
		return fal_report_line(&in->report, l);
	case BANDS:
		return fal_gantt_line(&in->band, l);
	case CURVES:
		return fal_curve_line(in->curve, l);
	default:
		return fal_fit_line(in->fit, l);
	}
}

static int
on_line(void *arg, struct fal_trace_line *l)
{
	struct input *in = arg;
	/* What was proposed may be again, under another policy. */
	if (strcmp(l->ev, "policy") == 0)
		in->last.told = false;
	int err = strcmp(l->ev, "gap") != 0
			  ? take(in, l)
			  : fal_trace_fail(l, FAL_EINVAL,
					   "lines are missing here: nothing can be told");
	if (err < 0 || !in->o->follow || l->t < in->next)
		return err;
	bool first = in->next <= 0;
	in->next = l->t + (double)in->o->window;
	return first ? FAL_OK : say_window(in);
}

static int
feed(void *arg, const void *p, size_t n)
{
	struct input *in = arg;
	return fal_trace_feed(in->reader, p, n, &in->diag);
}

/* Reads the trace.  What is cut in mid-line is enough as far as it goes. */
static int
read_trace(struct input *in)
{
	struct fal_diag diag = { 0 };
	const char *name = in->job.name;
	in->diag.text[0] = '\0';
	in->reader = fal_trace_reader_new(on_line, in);
	const struct fal_cli_pass first = { fal_trace_find, in->reader };
	const struct fal_cli_pass then = { feed, in };
	int err = fal_cli_feed_twice(name, first, then, &diag);
	if (err == FAL_OK)
		err = fal_trace_end(in->reader, &in->diag);
	fal_trace_reader_free(in->reader);
	if (err < 0 && in->code >= 0)
		return in->code;
	if (err < 0 && in->diag.text[0] == '\0')
		return say(fal_cli_exit_file(err), "%s",
			   diag.text[0] != '\0' ? diag.text : fal_strerror(err));
	if (err < 0)
		return say(err != FAL_ETRUNC ? (int)fal_cli_exit(err) : FAL_EXIT_DONE,
			   "%s:%s%s", fal_cli_file(name), in->diag.text,
			   err == FAL_ETRUNC ? "; the rest counts" : "");
	return FAL_EXIT_DONE;
}

/* The part of a path after its last slash. */
static const char *
base(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* A curve for each trace. */
static int
draw_curves(struct input *in, const char *const *name, size_t n)
{
	struct plot_curve *all = fal_xcalloc(n, sizeof(*all));
	int code = FAL_EXIT_DONE;
	bool any_loss = false;
	for (size_t i = 0; i < n && code == FAL_EXIT_DONE; i++) {
		in->job.name = name[i];
		in->curve = fal_xcalloc(1, sizeof(*in->curve));
		all[i] = (struct plot_curve){ base(name[i]), in->curve };
		code = read_trace(in);
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
		code = show_numbers(in, "curves", &numbers);
	}
	for (size_t i = 0; i < n; i++)
		free((void *)(uintptr_t)all[i].curve);
	free(all);
	return code;
}

static int
work(const struct proj_opt *o, const char *const *name, size_t n)
{
	struct input in = {
		.o = o, .mode = mode_of(o, n), .job.name = name[0], .code = -1
	};
	int code;
	in.fit = fal_fit_new();
	if (in.mode == CURVES) {
		code = draw_curves(&in, name, n);
	} else {
		code = read_trace(&in);
		/* The last window of a stream has its answer, too, if it says enough. */
		in.waits = in.said;
		if (code == FAL_EXIT_DONE && !(in.said && in.mode == POLICY))
			code = answer(&in);
		code = code < 0 ? FAL_EXIT_DONE : code;
	}
	fal_fit_free(in.fit);
	fal_report_free(&in.report);
	fal_gantt_free(&in.band);
	free(in.last.text);
	return code;
}

/* Numbers within their bounds, options that go together.  -1, or an exit code. */
static int
check(const struct fal_cli *cli, const struct proj_opt *o)
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
		return say(FAL_EXIT_USAGE, "--plot: %s", diag.text);
	if (o->policy + (o->plot != NULL) + o->tsv + o->json > 1 ||
	    (o->follow && (o->plot != NULL || o->tsv)) ||
	    (n > 1 && mode_of(o, n) != CURVES) || (o->policy && proj_changes(o)))
		return say(FAL_EXIT_USAGE,
			   "one of --policy, --plot, --tsv, --json; --plot and --tsv "
			   "without --follow; --policy on the machines as they are; "
			   "several traces only for --plot or --tsv alone");
	if (o->min_gain < 0 || o->min_gain > 100)
		return say(FAL_EXIT_USAGE, "--min-gain: '%g' is not from 0 to 100",
			   o->min_gain);
	/* Options that would do nothing. */
	const struct {
		const char *name;
		bool works;
		const char *with;
	} option[] = { { "min-gain", o->policy, "policy" },
		       { "allow-model", o->policy, "policy" },
		       { "window", o->follow, "follow" },
		       { "seed", o->workers != NULL, "workers" } };
	for (size_t i = 0; i < sizeof(option) / sizeof(option[0]); i++)
		if (!option[i].works && fal_cli_given(cli, option[i].name))
			return say(FAL_EXIT_USAGE, "--%s: only with --%s", option[i].name,
				   option[i].with);
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
		{ "seed", 0, FAL_OPT_U64, &o.seed, "of what is drawn", "N" },
		{ "strict", 0, FAL_OPT_FLAG, &o.strict,
		  "exit 1 if the backtest is off by more than 10 %", NULL },
		{ "policy", 'p', FAL_OPT_FLAG, &o.policy,
		  "print the policy that would be faster, for falcon-sync", NULL },
		{ "min-gain", 0, FAL_OPT_NUMBER, &o.min_gain,
		  "no policy that saves less than this (5)", "PERCENT" },
		{ "allow-model", 0, FAL_OPT_FLAG, &o.allow_model,
		  "with --policy: say what other models would save", NULL },
		{ "plot", 0, FAL_OPT_TEXT, &o.plot, "draw a picture, .svg or .png",
		  "FILE" },
		{ "tsv", 0, FAL_OPT_FLAG, &o.tsv, "print the numbers of that picture",
		  NULL },
		{ "follow", 'f', FAL_OPT_FLAG, &o.follow, "go on as the trace grows",
		  NULL },
		{ "window", 0, FAL_OPT_U64, &o.window, "seconds between answers (10)",
		  "SECONDS" },
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
	const uint64_t program = fal_need_program();
	int code = fal_cli_parse(&cli, argc, argv);
	if (code < 0)
		code = fal_need_hold(&cli, program, max_memory, false);
	if (code < 0)
		code = check(&cli, &o);
	const char *const in = "-";
	if (code < 0)
		code = cli.n_args > 0 ? work(&o, cli.arg, cli.n_args) : work(&o, &in, 1);
	fal_cli_free(&cli);
	return code;
}
