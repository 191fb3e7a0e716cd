/* Command lines. */
#include "cli/cli.h"

#include "base/build.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/progress.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <poll.h>
#include <popt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { OPT_HELP = 1, OPT_VERSION, OPT_FIRST }; /* values for popt */

struct fal_cli_state {
	poptContext popt;
	struct poptOption *table;
	bool *given;   /* by option */
	size_t *cap;   /* by option, of its list */
	char **values; /* allocated by popt */
	size_t n_values, cap_values;
	char *forms; /* for --help: "[OPTION...] ARGS", each form of ARGS on a line */
};

__attribute__((format(printf, 2, 0))) static void
print_error(const char *prog, const char *fmt, va_list ap)
{
	static atomic_uint dropped; /* lines */
	char text[1024];
	struct pollfd err = { .fd = STDERR_FILENO, .events = POLLOUT };
	/* The reader of stderr, a pager or a log, may be stuck: then one line waits for a
	 * second, or until a signal, and further lines are dropped without waiting. */
	if (poll(&err, 1, dropped > 0 ? 0 : 1000) <= 0) {
		dropped++;
		return;
	}
	const unsigned lost = atomic_exchange(&dropped, 0);
	vsnprintf(text, sizeof(text), fmt, ap);
	fal_text_plain(text, sizeof(text), text);
	fal_text_hide_keys(text); /* a key may be given in place of a name */
	struct fal_buf line = { 0 }, folded = { 0 };
	if (lost > 0)
		fal_put_fmt(&line, "%s: %u line%s dropped, as nobody read stderr\n", prog,
			    lost, lost == 1 ? " was" : "s were");
	fal_put_fmt(&line, "%s: %s\n", prog, text);
	fal_text_wrap((const char *)line.p, line.n, fal_cli_width(stderr), &folded);
	fal_progress_wipe();
	/* A single call, so that lines of several processes are not mixed. */
	if (folded.err == 0)
		fwrite(folded.p, 1, folded.n, stderr);
	else
		fprintf(stderr, "%s: %s\n", prog, text);
	fal_buf_free(&line);
	fal_buf_free(&folded);
}

void
fal_cli_err(const char *prog, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	print_error(prog, fmt, ap);
	va_end(ap);
}

int
fal_cli_usage(const char *prog, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	print_error(prog, fmt, ap);
	va_end(ap);
	return FAL_EXIT_USAGE;
}

void
fal_cli_print(const struct fal_buf *text)
{
	struct fal_buf folded = { 0 };
	fal_text_wrap((const char *)text->p, text->n, fal_cli_width(stdout), &folded);
	const struct fal_buf *out = folded.err == 0 ? &folded : text;
	fwrite(out->p, 1, out->n, stdout);
	fal_buf_free(&folded);
}

static struct poptOption
popt_option(const struct fal_opt *o, int val)
{
	return (struct poptOption){
		.longName = o->name,
		.shortName = o->letter,
		.argInfo = o->kind == FAL_OPT_FLAG ? POPT_ARG_NONE : POPT_ARG_STRING,
		.val = val,
		.descrip = o->help,
		.argDescrip = o->value,
	};
}

/* Builds popt's table and context. */
static void
make_context(struct fal_cli *cli, int argc, char **argv)
{
	static const struct fal_opt common[] = {
		{ "help", '?', FAL_OPT_FLAG, NULL, "Show this help and exit", NULL },
		{ "version", 'V', FAL_OPT_FLAG, NULL, "Show the version and exit", NULL },
	};
	struct fal_cli_state *s = cli->state = fal_xcalloc(1, sizeof(*s));
	s->table =
		fal_xcalloc(cli->n_opts + 3, sizeof(*s->table)); /* the last is the end */
	s->given = fal_xcalloc(cli->n_opts, sizeof(*s->given));
	s->cap = fal_xcalloc(cli->n_opts, sizeof(*s->cap));
	struct fal_buf forms = { 0 };
	for (const char *p = cli->args, *bar; p != NULL;
	     p = bar != NULL ? bar + 3 : NULL) {
		bar = strstr(p, " | ");
		if (p != cli->args)
			fal_put_fmt(&forms, "\n  or:  %s ", cli->prog);
		fal_put_fmt(&forms, "[OPTION...] %.*s",
			    bar != NULL ? (int)(bar - p) : (int)strlen(p), p);
	}
	fal_put_u8(&forms, '\0');
	if (forms.err < 0)
		fal_out_of_memory();
	s->forms = (char *)forms.p;
	size_t n = 0;
	for (; n < cli->n_opts; n++)
		s->table[n] = popt_option(&cli->opts[n], OPT_FIRST + (int)n);
	s->table[n] = popt_option(&common[0], OPT_HELP);
	s->table[n + 1] = popt_option(&common[1], OPT_VERSION);
	s->popt = poptGetContext(cli->prog, argc, (const char **)argv, s->table, 0);
	if (s->popt == NULL)
		fal_out_of_memory();
	poptSetOtherOptionHelp(s->popt, s->forms);
}

/* Takes an option that popt has found; -1 or an exit code. */
static int
take_option(struct fal_cli *cli, size_t i)
{
	struct fal_cli_state *s = cli->state;
	const struct fal_opt *o = &cli->opts[i];
	char *value = NULL;
	if (o->kind != FAL_OPT_FLAG) {
		value = poptGetOptArg(s->popt);
		if (value == NULL)
			fal_out_of_memory();
		FAL_XGROW(s->values, s->cap_values, s->n_values + 1);
		s->values[s->n_values++] = value;
	}
	if (s->given[i] && o->kind != FAL_OPT_LIST)
		return fal_cli_usage(cli->prog, "--%s: given twice", o->name);
	s->given[i] = true;
	int err = FAL_OK;
	struct fal_opt_list *list = o->to;
	assert(o->kind <= FAL_OPT_LIST);
	switch (o->kind) {
	case FAL_OPT_FLAG:
		*(bool *)o->to = true;
		break;
	case FAL_OPT_TEXT:
		*(const char **)o->to = value;
		break;
	case FAL_OPT_U64:
		err = fal_parse_u64(value, 0, UINT64_MAX, o->to);
		break;
	case FAL_OPT_SIZE:
		err = fal_parse_size(value, o->to);
		break;
	case FAL_OPT_NUMBER:
		err = fal_parse_double(value, -DBL_MAX, DBL_MAX, o->to);
		break;
	case FAL_OPT_LIST:
		FAL_XGROW(list->v, s->cap[i], list->n + 1);
		list->v[list->n++] = value;
		break;
	}
	if (err == FAL_ELIMIT)
		fal_cli_err(cli->prog, "--%s: '%s' is out of range", o->name, value);
	else if (err < 0)
		fal_cli_err(cli->prog, "--%s: '%s' is not a %s", o->name, value,
			    o->kind == FAL_OPT_SIZE ? "size" : "number");
	return err == 0 ? -1 : fal_cli_exit_code(err);
}

/* Refuses an option.  The message gives popt's reason and suggests the option that the
 * user may have meant. */
static int
refuse_option(const struct fal_cli *cli, int reason)
{
	const char *bad = poptBadOption(cli->state->popt, POPT_BADOPTION_NOALIAS);
	char word[40];
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(bad, "="), bad);
	struct fal_similar is = { .word = word + strspn(word, "-") };
	for (size_t i = 0; reason == POPT_ERROR_BADOPT && i < cli->n_opts; i++)
		fal_similar_try(&is, cli->opts[i].name);
	return fal_cli_usage(cli->prog, "%s: %s%s%s%s", bad, poptStrerror(reason),
			     is.best != NULL ? "; did you mean --" : "",
			     is.best != NULL ? is.best : "", is.best != NULL ? "?" : "");
}

int
fal_cli_parse(struct fal_cli *cli, int argc, char **argv)
{
	/* Opens closed standard descriptors, so that no file of ours gets their numbers;
	 * but in the wrong direction, so that their use fails as before. */
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null",
				    fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
	signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error: EFBIG */
	cli->arg = NULL;
	cli->n_args = 0;
	make_context(cli, argc, argv);
	poptContext popt = cli->state->popt;
	for (int val; (val = poptGetNextOpt(popt)) != -1;) {
		if (val == OPT_HELP) {
			poptPrintHelp(popt, stdout, 0);
			return fal_cli_finish(cli->prog, FAL_EXIT_DONE);
		}
		if (val == OPT_VERSION) {
			printf("%s %s", cli->prog, fal_build());
			if (cli->schema != 0)
				printf(" (schema %016" PRIx64 ")", cli->schema);
			putchar('\n');
			return fal_cli_finish(cli->prog, FAL_EXIT_DONE);
		}
		if (val < 0)
			return refuse_option(cli, val);
		int code = take_option(cli, (size_t)(val - OPT_FIRST));
		if (code >= 0)
			return code;
	}
	cli->arg = poptGetArgs(popt);
	while (cli->arg != NULL && cli->arg[cli->n_args] != NULL)
		cli->n_args++;
	if (cli->n_args > cli->max_args)
		return fal_cli_usage(cli->prog, "%s: one operand too many (see --help)",
				     cli->arg[cli->max_args]);
	if (cli->n_args < cli->min_args)
		return fal_cli_usage(cli->prog, "usage: %s [OPTION...] %s", cli->prog,
				     cli->args);
	/* Raises the limit of descriptors to the number that our loops need, as far as
	 * the hard limit allows.  With fewer, libuv would end the program. */
	const unsigned least =
		cli->descriptors > 0 ? cli->descriptors : FAL_CLI_DESCRIPTORS;
	struct rlimit most;
	if (getrlimit(RLIMIT_NOFILE, &most) < 0 || most.rlim_cur >= least)
		return -1;
	most.rlim_cur = least;
	if (most.rlim_max >= most.rlim_cur && setrlimit(RLIMIT_NOFILE, &most) == 0)
		return -1;
	fal_cli_err(cli->prog, "%ju descriptors are too few: it takes %u (ulimit -n)",
		    (uintmax_t)most.rlim_max, least);
	return FAL_EXIT_NO;
}

static size_t
option_index(const struct fal_cli *cli, const char *name)
{
	size_t i = 0;
	while (i < cli->n_opts && strcmp(cli->opts[i].name, name) != 0)
		i++;
	assert(i < cli->n_opts);
	return i;
}

bool
fal_cli_is_given(const struct fal_cli *cli, const char *name)
{
	return cli->state->given[option_index(cli, name)];
}

int
fal_cli_range(const struct fal_cli *cli, const char *name, uint64_t min, uint64_t max)
{
	const size_t i = option_index(cli, name);
	const uint64_t value = *(const uint64_t *)cli->opts[i].to;
	if (!cli->state->given[i] || (value >= min && value <= max))
		return -1;
	return fal_cli_usage(cli->prog, "--%s: '%" PRIu64 "' is out of range", name,
			     value);
}

void
fal_cli_free(struct fal_cli *cli)
{
	struct fal_cli_state *s = cli->state;
	if (s == NULL)
		return;
	for (size_t i = 0; i < cli->n_opts; i++) {
		if (cli->opts[i].kind != FAL_OPT_LIST)
			continue;
		struct fal_opt_list *list = cli->opts[i].to;
		free(list->v);
		*list = (struct fal_opt_list){ 0 };
	}
	for (size_t i = 0; i < s->n_values; i++)
		free(s->values[i]);
	free(s->values);
	poptFreeContext(s->popt);
	free(s->table);
	free(s->given);
	free(s->cap);
	free(s->forms);
	free(s);
	cli->state = NULL;
	cli->arg = NULL;
	cli->n_args = 0;
}

int
fal_cli_exit_code(int err)
{
	switch (err) {
	case FAL_OK:
		return FAL_EXIT_DONE;
	case FAL_EINVAL:
	case FAL_EFORMAT:
	case FAL_ETRUNC:
	case FAL_ELIMIT:
		return FAL_EXIT_USAGE;
	case FAL_ESTATE:
		return FAL_EXIT_TEMPFAIL;
	case FAL_EAUTH:
	case FAL_EPERM:
		return FAL_EXIT_NOPERM;
	default:
		return FAL_EXIT_NO;
	}
}

int
fal_cli_file_exit_code(int err)
{
	return err == FAL_ENOENT || err == FAL_EIO ? FAL_EXIT_USAGE
						   : fal_cli_exit_code(err);
}

void
fal_cli_hide_memory(void)
{
	/* Neither call can fail: both give up rights of the process. */
	(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int
fal_cli_finish(const char *prog, int code)
{
	if (FAL_TRY(WRITE, EOF, fflush(stdout)) == 0 && !ferror(stdout))
		return code;
	if (errno == EPIPE) /* the reader, such as head, has read enough */
		return code;
	fal_cli_err(prog, "standard output: %m");
	return FAL_EXIT_NO;
}

int
fal_cli_output(const char *prog, struct fal_buf *out, bool as_is, int code)
{
	if (out->err < 0) {
		fal_cli_err(prog, "%s", fal_strerror(out->err));
		code = FAL_EXIT_NO;
	} else if (out->n > 0) {
		if (as_is)
			fwrite(out->p, 1, out->n, stdout);
		else
			fal_cli_print(out);
		code = fal_cli_finish(prog, code);
	}
	fal_buf_free(out);
	return code;
}
