/* falcon-ps: coordinator and first shard of a job.  Options are read here, check.c judges
 * what they and the files say, start.c begins, or goes on. */
#include "run.h"

#include "cli/cores.h"
#include "sec/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* Threads: as many as are of use to most, and may be. */
enum { THREADS = 8, THREADS_MAX = 1024 };
/* What waking one up must be worth, in ns: it comes after some 50 µs. */
#define WORTH_NS 100000
/* Descriptors: with an average, a --trace and one address it takes 30 for one worker, as
 * was measured.  What more it takes is judged when all else is open (serve.c). */
enum { DESCRIPTORS = 32 };

/* What goes with --upstream, and what does not.  Negative, or an exit code. */
static int
check_upstream(const struct ps_options *o)
{
	const char *odd = NULL;
	if (o->upstream == NULL && o->join == NULL && o->key != NULL)
		fal_cli_err(PROG, "--key: only with --join or --upstream");
	else if (o->upstream == NULL && o->scheme != NULL)
		fal_cli_err(PROG, "--scheme: only with --upstream");
	else if (o->upstream == NULL)
		return -1;
	else if (o->join != NULL)
		odd = "--join";
	else if (o->min_shards > 0)
		odd = "--min-shards";
	else if (o->from != NULL)
		odd = "--from";
	else if (o->restart)
		odd = "--restart";
	else if (o->key == NULL)
		fal_cli_err(PROG, "--upstream: needs a --key");
	else
		return -1;
	if (odd != NULL)
		fal_cli_err(PROG, "--upstream: not with %s", odd);
	return FAL_EXIT_USAGE;
}

/* Can anything be written there?  A standard descriptor that was closed is held, but not
 * for that (fal_cli_parse). */
static bool
takes_text(int fd)
{
	const int flags = fcntl(fd, F_GETFL);
	if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY)
		errno = EBADF;
	return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

/* Options of a coordinator with --join.  Negative, or an exit code. */
static int
check_join(const struct ps_options *o)
{
	const char *odd = o->check             ? "--check"
			  : o->keyring != NULL ? "--keyring"
			  : o->state != NULL   ? "--state"
			  : o->trace != NULL   ? "--trace"
			  : o->from != NULL    ? "--from"
			  : o->restart         ? "--restart"
			  : o->set.n > 0       ? "--set"
			  : o->accept.n > 0    ? "--accept-change"
			  : o->min_workers > 1 ? "--min-workers"
			  : o->min_shards > 0  ? "--min-shards"
			  : o->exit_when_done  ? "--exit-when-done"
			  : o->json            ? "--json"
					       : NULL;
	if (o->join == NULL || odd == NULL)
		return -1;
	fal_cli_err(PROG, "--join: not with %s", odd);
	return FAL_EXIT_USAGE;
}

/* Numbers that are out of range, and options that do not go together.  Negative, or an
 * exit code. */
static int
check_together(const struct fal_cli *cli, const struct ps_options *o, uint64_t ready_fd)
{
	static const struct {
		const char *name;
		uint64_t least, most;
	} range[] = {
		{ "min-workers", 1, 1000000 },   { "min-shards", 0, FAL_SHARDS_MAX },
		{ "max-memory", 1, UINT64_MAX }, { "rate-limit", 1, UINT64_C(1) << 40 },
		{ "threads", 1, THREADS_MAX },   { "ready-fd", 0, 1023 }
	};
	for (size_t i = 0; i < o->accept.n; i++)
		if (strcmp(o->accept.v[i], "data") != 0 &&
		    strcmp(o->accept.v[i], "net") != 0 &&
		    strcmp(o->accept.v[i], "init") != 0) {
			fal_cli_err(PROG,
				    "--accept-change: '%s' is not data, net or init",
				    o->accept.v[i]);
			return FAL_EXIT_USAGE;
		}
	const bool job = cli->n_args > 0;
	for (size_t i = 0; i < sizeof(range) / sizeof(range[0]); i++) {
		int code =
			fal_cli_range(cli, range[i].name, range[i].least, range[i].most);
		if (code >= 0)
			return code;
	}
	/* Before anything is opened that might get its number. */
	if (ready_fd <= 1023 && !takes_text((int)ready_fd))
		fal_cli_err(PROG, "--ready-fd: '%" PRIu64 "': %s", ready_fd,
			    strerror(errno));
	else if (job && o->join != NULL)
		fal_cli_err(PROG, "--join: takes no JOB");
	else if (!job && o->upstream != NULL && o->join == NULL)
		fal_cli_err(PROG, "--upstream: needs the JOB of the coordinator there");
	else if (!job && o->join == NULL)
		fal_cli_err(PROG, "usage: " PROG " [OPTION...] JOB");
	else if (o->join == NULL && o->standby)
		fal_cli_err(PROG, "--standby: only with --join");
	else if (o->upstream != NULL || o->join == NULL)
		return check_upstream(o);
	else
		return check_join(o);
	return FAL_EXIT_USAGE;
}

/* Judges, and does, what was asked for.  An exit code. */
static int
run(struct ps_run *r, const char *path)
{
	const bool joins = r->opt.join != NULL;
	if (r->opt.keyring == NULL)
		r->opt.keyring = "/etc/falcon/keyring";
	const unsigned cores = r->opt.threads == 0 ? fal_cli_cores() : 0;
	if (cores > 0)
		r->opt.threads = cores < THREADS ? cores : THREADS;
	r->program += fal_threads_bytes((uint32_t)r->opt.threads);
	int code = joins ? ps_check_join(r) : ps_check(r, path);
	if (code != FAL_EXIT_DONE)
		return code;
	if (r->opt.check && !joins)
		return FAL_EXIT_DONE;
	fal_suites_measure(uv_hrtime);
	if (fal_threads_new((uint32_t)r->opt.threads, WORTH_NS, &r->threads) < 0)
		return ps_run_say(&(struct fal_diag){ "" }, FAL_ENOMEM);
	code = joins ? ps_run_join(r) : ps_run_start(r);
	fal_threads_free(r->threads);
	return code;
}

int
main(int argc, char **argv)
{
	struct ps_run r = { .model.fd = -1,
			    .average.fd = -1,
			    .result.fd = -1,
			    .opt = { .compress = "auto", .min_workers = 1, .shards = 1 },
			    .program = fal_need_program() };
	struct ps_options *o = &r.opt;
	uint64_t ready_fd = UINT64_MAX;
	const struct fal_opt opts[] = {
		{ "listen", 'l', FAL_OPT_TEXT, &o->listen, "where to listen",
		  "ADDR,..." },
		{ "keyring", 'K', FAL_OPT_TEXT, &o->keyring, "keys of the clients",
		  "FILE" },
		{ "state", 's', FAL_OPT_TEXT, &o->state,
		  "folder of the job's state (NAME.state)", "DIR" },
		{ "restart", 0, FAL_OPT_FLAG, &o->restart,
		  "begin a job that was not done at its first clock", NULL },
		{ "accept-change", 0, FAL_OPT_LIST, &o->accept,
		  "go on though these files are others: data, net, init", "KIND" },
		{ "trace", 't', FAL_OPT_TEXT, &o->trace, "write the trace here, too",
		  "FILE" },
		{ "from", 0, FAL_OPT_TEXT, &o->from, "begin with these weights", "FILE" },
		{ "set", 0, FAL_OPT_LIST, &o->set, "change a key of the job",
		  "SECTION.KEY=VALUE" },
		{ "min-workers", 'w', FAL_OPT_U64, &o->min_workers,
		  "the first clock waits for so many", "N" },
		{ "shards", 0, FAL_OPT_U64, &o->shards,
		  "parts that the parameters are kept in", "N" },
		{ "min-shards", 0, FAL_OPT_U64, &o->min_shards,
		  "wait until so many processes have joined with shards", "N" },
		{ "join", 0, FAL_OPT_TEXT, &o->join,
		  "be shards of the job of this coordinator", "ADDR" },
		{ "upstream", 0, FAL_OPT_TEXT, &o->upstream,
		  "be one worker, with all of its own, of this coordinator's job",
		  "ADDR" },
		{ "scheme", 0, FAL_OPT_TEXT, &o->scheme,
		  "with --upstream: bsp or epsp, by which its workers share", "NAME" },
		{ "key", 'k', FAL_OPT_TEXT, &o->key, "with --join or --upstream: the key",
		  "FILE" },
		{ "standby", 0, FAL_OPT_FLAG, &o->standby,
		  "with --join: only where shards are missing", NULL },
		{ "rate-limit", 0, FAL_OPT_SIZE, &o->rate_limit,
		  "send no more bytes a second", "SIZE" },
		{ "compress", 0, FAL_OPT_TEXT, &o->compress,
		  "zstd: auto, always or never", "MODE" },
		{ "threads", 0, FAL_OPT_U64, &o->threads,
		  "that steps, seals and compresses (one a core, at most 8)", "N" },
		{ "seal-all", 0, FAL_OPT_FLAG, &o->seal_all,
		  "seal records of workers on this machine, too", NULL },
		{ "max-memory", 0, FAL_OPT_SIZE, &o->max_memory,
		  "refuse a job that needs more", "SIZE" },
		{ "ready-fd", 0, FAL_OPT_U64, &ready_fd,
		  "write the bound addresses to this descriptor", "N" },
		{ "exit-when-done", 'x', FAL_OPT_FLAG, &o->exit_when_done,
		  "exit when the job is done", NULL },
		{ "check", 0, FAL_OPT_FLAG, &o->check, "judge the files and exit", NULL },
		{ "json", 'j', FAL_OPT_FLAG, &o->json, "print the result as JSON", NULL },
	};
	struct fal_cli cli = { .prog = PROG,
			       .args = "JOB | --join ADDR | --upstream ADDR JOB",
			       .opts = opts,
			       .n_opts = sizeof(opts) / sizeof(opts[0]),
			       .min_args = 0,
			       .max_args = 1,
			       .descriptors = DESCRIPTORS,
			       .schema = fal_msg_schema() };
	int code = fal_cli_parse(&cli, argc, argv);
	if (code < 0)
		code = check_together(&cli, o, ready_fd);
	if (code >= 0)
		goto free_cli;
	o->ready_fd = ready_fd == UINT64_MAX ? 0 : ready_fd + 1;
	code = fal_cli_finish(PROG, run(&r, cli.n_args > 0 ? cli.arg[0] : NULL));
	fal_files_free(&r.job);
	fal_keyring_free(r.keys);
	fal_secret_free(r.key);
free_cli:
	fal_cli_free(&cli);
	return code;
}
