/* falcon-proj: a trace in; a report of the stragglers, a prediction, a policy or a
 * picture out. */
#include "cli/file.h"
#include "proj.h"
#include "sched/sched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What the lines of a trace go to. */
struct input {
	const struct proj_opt *o;
	struct proj_job job;
	struct fal_fit *fit;
	struct fal_trace_reader *reader;
	struct fal_diag diag; /* of the reader */
	double next;          /* second at which --follow says something again */
	char *last;           /* policy that was printed */
	int code;             /* of a part that failed; -1 */
};

/* Writes what is in `out`, and empties it. */
static int
flush(struct fal_buf *out, int code)
{
	if (out->err < 0) {
		fal_cli_err(PROG, "%s", fal_strerror(out->err));
		code = FAL_EXIT_NO;
	} else if (out->n > 0) {
		fwrite(out->p, 1, out->n, stdout);
		code = fal_cli_finish(PROG, code);
	}
	fal_buf_free(out);
	return code;
}

/* Says what is asked for, from the lines so far. */
static int
answer(struct input *in)
{
	struct fal_buf out = { 0 };
	int code;
	if (in->o->policy)
		code = proj_policy(in->o, &in->job, &in->last, &out);
	else
		code = proj_what_if(in->o, &in->job, &out);
	return flush(&out, code);
}

/* A window of a live stream is over.  What is too little is waited for. */
static int
say_window(struct input *in)
{
	struct fal_diag diag;
	int err = fal_fit_end(in->fit, &in->job.cost, &in->job.run, &diag);
	if (err == FAL_ETRUNC)
		return FAL_OK;
	if (err == FAL_OK) {
		int code = answer(in);
		fal_cost_free(&in->job.cost);
		in->code = code > FAL_EXIT_DONE ? code : -1;
	}
	return in->code >= 0 ? FAL_EIO : err;
}

static int
on_line(void *arg, struct fal_trace_line *l)
{
	struct input *in = arg;
	int err = fal_fit_line(in->fit, l);
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
	int err = fal_cli_feed(name, feed, in, &diag);
	if (err < 0 && in->code >= 0)
		return in->code;
	if (err < 0 && in->diag.text[0] == '\0') {
		fal_cli_err(PROG, "%s",
			    diag.text[0] != '\0' ? diag.text : fal_strerror(err));
		return fal_cli_exit_file(err);
	}
	if (err == FAL_OK)
		err = fal_trace_end(in->reader, &in->diag);
	if (err < 0)
		fal_cli_err(PROG, "%s:%s%s", name, in->diag.text,
			    err == FAL_ETRUNC ? "; the rest counts" : "");
	return err < 0 && err != FAL_ETRUNC ? (int)fal_cli_exit(err) : FAL_EXIT_DONE;
}

static int
run(struct input *in)
{
	struct fal_diag diag;
	int code = read_trace(in);
	if (code != FAL_EXIT_DONE || in->o->follow)
		return code;
	int err = fal_fit_end(in->fit, &in->job.cost, &in->job.run, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s: %s", in->job.name, diag.text);
		return (int)fal_cli_exit(err);
	}
	code = answer(in);
	fal_cost_free(&in->job.cost);
	return code;
}

/* Numbers within their bounds, options that go together.  -1, or an exit code. */
static int
check(const struct proj_opt *o)
{
	const struct {
		const char *name;
		uint64_t value, most;
	} number[] = { { "lanes", o->lanes, FAL_LANES_MAX },
		       { "task", o->task, UINT32_MAX },
		       { "batch", o->batch, UINT32_MAX },
		       { "workers", o->workers, 1000000 },
		       { "window", o->window, 1000000 } };
	for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++)
		if (number[i].value > number[i].most) {
			fal_cli_err(PROG, "--%s: more than %llu", number[i].name,
				    (unsigned long long)number[i].most);
			return FAL_EXIT_USAGE;
		}
	if (o->min_gain < 0 || o->min_gain > 100) {
		fal_cli_err(PROG, "--min-gain: '%g' is not from 0 to 100", o->min_gain);
		return FAL_EXIT_USAGE;
	}
	return -1;
}

static int
work(const struct proj_opt *o, const char *name)
{
	struct input in = { .o = o, .job.name = name, .code = -1 };
	int code = FAL_EXIT_NO;
	in.fit = fal_fit_new();
	in.reader = fal_trace_reader_new(on_line, &in);
	if (in.fit == NULL || in.reader == NULL)
		fal_cli_err(PROG, "%s", fal_strerror(FAL_ENOMEM));
	else
		code = run(&in);
	fal_trace_reader_free(in.reader);
	fal_fit_free(in.fit);
	free(in.last);
	return code;
}

int
main(int argc, char **argv)
{
	struct proj_opt o = { .min_gain = 5, .window = 10, .seed = 1 };
	const struct fal_opt opts[] = {
		{ "what-if", 'w', FAL_OPT_TEXT, &o.what_if,
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
		{ "workers", 0, FAL_OPT_U64, &o.workers,
		  "predict N workers drawn from those of the trace", "N" },
		{ "seed", 0, FAL_OPT_U64, &o.seed, "of what is drawn", "N" },
		{ "strict", 0, FAL_OPT_FLAG, &o.strict,
		  "exit 1 if the backtest is off by more than 10 %", NULL },
		{ "policy", 'p', FAL_OPT_FLAG, &o.policy,
		  "print the policy that would be faster, for falcon-sync", NULL },
		{ "min-gain", 0, FAL_OPT_NUMBER, &o.min_gain,
		  "no policy that saves less than this (5)", "PERCENT" },
		{ "allow-model", 0, FAL_OPT_FLAG, &o.allow_model,
		  "policies that alter the model, too", NULL },
		{ "follow", 'f', FAL_OPT_FLAG, &o.follow, "go on as the trace grows",
		  NULL },
		{ "window", 0, FAL_OPT_U64, &o.window, "seconds between answers (10)",
		  "SECONDS" },
		{ "json", 'j', FAL_OPT_FLAG, &o.json, "print JSON", NULL },
	};
	struct fal_cli cli = {
		.prog = PROG,
		.args = "[TRACE]",
		.opts = opts,
		.n_opts = sizeof(opts) / sizeof(opts[0]),
		.max_args = 1,
	};
	int code = fal_cli_parse(&cli, argc, argv);
	if (code < 0)
		code = check(&o);
	if (code < 0)
		code = work(&o, cli.n_args > 0 ? cli.arg[0] : "-");
	fal_cli_free(&cli);
	return code;
}
