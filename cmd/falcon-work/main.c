/* falcon-work: a worker. */
#include "backend.h"
#include "base/parse.h"
#include "cli/cores.h"
#include "cli/need.h"
#include "emul/emul.h"
#include "job/chunk.h"
#include "net/client.h"
#include "sched/sched.h"
#include "work.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum {
	SILENT_STARTS_MAX = 8, /* starts of a trainer in a row, without a hello */
	/* Pauses after a job, before the next one is looked for. */
	STAY_SECONDS = 5,
	STAY_SECONDS_MAX = 60
};

/* Options as given; NULL: not given. */
struct args {
	const char *key, *lanes, *cache, *emulate, *compress, *eval, *exec, *predict;
	bool json, try, bench;
};

static int
value_error(const char *option, const char *value, const char *want)
{
	return fal_cli_usage(PROG, "--%s: '%s' is not %s", option, value, want);
}

/* Ends the process on a signal that comes before there is a task to hand back; trainers
 * end with their parent. */
static void
on_early_signal(int signal)
{
	(void)signal;
	_exit(FAL_EXIT_DONE);
}

/* Starts trainers for --exec; 0 or an exit code. */
static int
open_trainers(const struct args *t, struct work_opt *opt)
{
	const struct trainer_conf conf = { .command = t->exec,
					   .worker = opt->name,
					   .key = t->key,
					   .max_silent_starts = SILENT_STARTS_MAX };
	struct fal_diag diag;
	if (t->exec == NULL)
		return FAL_EXIT_DONE;
	if (trainer_pool_open(&conf, opt->lanes_max, &opt->trainers, &diag) < 0) {
		fal_cli_err(PROG, "--exec: %s", diag.text);
		return FAL_EXIT_NO;
	}
	const struct fal_grad_hello *hello = &opt->trainers->hello;
	if (opt->verbose && hello->about[0] != '\0')
		fal_cli_err(PROG, "trainer: %s", hello->about);
	if (opt->data_dir == NULL || hello->samples)
		return FAL_EXIT_DONE;
	return fal_cli_usage(PROG, "--data: the trainer has data of its own");
}

/* Sets the lanes; 0 or an exit code. */
static int
set_lanes(const struct args *t, struct work_opt *opt)
{
	opt->cores = fal_cli_cores();
	opt->lanes_min = 1;
	opt->lanes_max = opt->cores < FAL_LANES_MAX ? opt->cores : FAL_LANES_MAX;
	if (t->exec != NULL) /* a trainer has threads of its own */
		opt->lanes_max = 1;
	if (t->lanes != NULL && fal_parse_range(t->lanes, 1, FAL_LANES_MAX,
						&opt->lanes_min, &opt->lanes_max) < 0)
		return value_error("lanes", t->lanes, "MIN:MAX, or a number");
	return FAL_EXIT_DONE;
}

/* Works until the coordinator's job is done; with opt->stays, also for the
 * coordinator's later jobs.  A coordinator that stays may offer the finished job
 * again, so pauses double. */
static int
run_jobs(const struct work_opt *opt)
{
	bool job_is_done = false;
	for (unsigned pause = STAY_SECONDS;; sleep(pause)) {
		const uint64_t begin = uv_hrtime();
		const int code = session_run(opt, &job_is_done);
		if (!opt->stays || !job_is_done)
			return code;
		signal(SIGTERM, on_early_signal);
		signal(SIGINT, on_early_signal);
		pause = uv_hrtime() - begin > pause * UINT64_C(1000000000) ? STAY_SECONDS
			: 2 * pause < STAY_SECONDS_MAX                     ? 2 * pause
						       : STAY_SECONDS_MAX;
	}
}

static int
run_worker(const struct args *t, const char *addr, struct work_opt *opt)
{
	struct fal_client_key *key = NULL;
	struct fal_diag diag;
	int code = set_lanes(t, opt);
	if (code == FAL_EXIT_DONE &&
	    fal_addrs_parse(addr, opt->addr, FAL_ADDRS_MAX, &opt->addrs, &diag) < 0)
		code = fal_cli_usage(PROG, "%s", diag.text);
	if (code == FAL_EXIT_DONE && opt->name != NULL && !fal_name_valid(opt->name))
		code = value_error("name", opt->name, "1 to 63 of A-Z a-z 0-9 . _ -");
	if (code == FAL_EXIT_DONE && t->compress != NULL &&
	    fal_compress_parse(t->compress, &opt->compress) < 0)
		code = value_error("compress", t->compress, "auto, always or never");
	if (code == FAL_EXIT_DONE)
		code = fal_client_key_load(PROG, t->key, FAL_ROLE_WORK, &key);
	if (code == FAL_EXIT_DONE && opt->name == NULL)
		opt->name = key->name;
	if (code == FAL_EXIT_DONE && t->emulate != NULL) { /* the worker has its name */
		const struct fal_spec_host host = { opt->name, opt->lanes_max };
		if (fal_spec_read(t->emulate, &host, &opt->emulate, &diag) < 0)
			code = fal_cli_usage(PROG, "--emulate: %s", diag.text);
		else
			opt->cores = opt->emulate->cores;
	}
	if (code != FAL_EXIT_DONE) {
		fal_spec_free(opt->emulate);
		fal_secret_free(key);
		return code;
	}
	opt->key = key;
	char *cache = fal_cache_directory(t->cache);
	opt->cache_dir = cache;
	fal_suites_measure(uv_hrtime);
	opt->program_bytes = fal_memory_now(7 << 19); /* code, streams: measured */
	signal(SIGTERM, on_early_signal);
	signal(SIGINT, on_early_signal);
	code = open_trainers(t, opt);
	if (code == FAL_EXIT_DONE)
		code = run_jobs(opt);
	/* Trainers get time to end, and no signal cuts this time short. */
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	trainer_pool_close(opt->trainers);
	free(cache);
	if (fal_spec_free(opt->emulate) < 0) {
		fal_cli_err(PROG, "--emulate: the record could not be written");
		code = code == FAL_EXIT_DONE ? FAL_EXIT_NO : code;
	}
	fal_secret_free(key);
	return code;
}

int
main(int argc, char **argv)
{
	struct args t = { 0 };
	struct work_opt opt = { .compress = FAL_COMPRESS_AUTO,
				.lanes_max = 1,
				.give_up = 24 * 3600,
				.program_bytes = fal_memory_prepare() };
	const struct fal_opt opts[] = {
		{ "key", 'k', FAL_OPT_TEXT, &t.key,
		  "client key (default: ~/.config/falcon/key, /etc/falcon/key)", "FILE" },
		{ "lanes", 0, FAL_OPT_TEXT, &t.lanes,
		  "how many tasks may run at a time (default: 1 to the cores)",
		  "MIN:MAX" },
		{ "name", 'n', FAL_OPT_TEXT, &opt.name,
		  "this worker's name (default: the key's)", "NAME" },
		{ "cache", 0, FAL_OPT_TEXT, &t.cache,
		  "keeps data between runs; none: nowhere (default: ~/.cache/falcon)",
		  "DIR" },
		{ "data", 0, FAL_OPT_TEXT, &opt.data_dir,
		  "a local copy of the data files", "DIR" },
		{ "emulate", 0, FAL_OPT_TEXT, &t.emulate,
		  "take the time of another machine; see falcon-emulate(5)", "SPEC" },
		{ "compress", 0, FAL_OPT_TEXT, &t.compress,
		  "compress gradients: auto, always, never (default: auto)", "WHEN" },
		{ "max-memory", 0, FAL_OPT_SIZE, &opt.max_memory,
		  "refuse a job that needs more", "SIZE" },
		{ "give-up", 0, FAL_OPT_U64, &opt.give_up,
		  "how long to look for a coordinator that was lost; 0: for ever "
		  "(default: 86400)",
		  "SECONDS" },
		{ "stay", 0, FAL_OPT_FLAG, &opt.stays,
		  "when a job is done, wait for the next one", NULL },
		{ "exec", 0, FAL_OPT_TEXT, &t.exec,
		  "let this program compute the gradients; see falcon-gradient(7)",
		  "COMMAND" },
		{ "try", 0, FAL_OPT_FLAG, &t.try,
		  "with --exec: try COMMAND on tasks of JOB and exit", NULL },
		{ "bench", 0, FAL_OPT_FLAG, &t.bench,
		  "measure the samples/s of this machine on JOB in 5 s and exit", NULL },
		{ "eval", 0, FAL_OPT_TEXT, &t.eval,
		  "judge this model on the test set of JOB and exit", "MODEL" },
		{ "predict", 0, FAL_OPT_TEXT, &t.predict,
		  "print this model's answers for SAMPLES and exit", "MODEL" },
		{ "json", 'j', FAL_OPT_FLAG, &t.json, "with --eval: print JSON", NULL },
		{ "verbose", 'v', FAL_OPT_FLAG, &opt.verbose, "say more", NULL },
	};
	struct fal_cli cli = {
		.prog = PROG,
		.args = "ADDR[,ADDR...] | --eval MODEL JOB | --exec COMMAND --try JOB | "
			"--predict MODEL JOB SAMPLES",
		.opts = opts,
		.n_opts = sizeof(opts) / sizeof(opts[0]),
		.min_args = 1,
		.max_args = 2,
	};
	signal(SIGPIPE, SIG_IGN); /* for pipes to trainers, too */
	int code = fal_cli_parse(&cli, argc, argv);
	if (code < 0)
		code = fal_cli_range(&cli, "max-memory", 1, UINT64_MAX);
	if (code < 0)
		code = fal_cli_range(&cli, "give-up", 0, UINT32_MAX);
	if (code >= 0)
		;
	else if ((t.eval != NULL) + (t.predict != NULL) + t.try + t.bench > 1)
		code = fal_cli_usage(
			PROG, "--bench, --eval, --predict and --try: only one of them");
	else if (t.eval == NULL && t.json)
		code = fal_cli_usage(PROG, "--json: only with --eval");
	else if (t.try && t.exec == NULL)
		code = fal_cli_usage(PROG, "--try: only with --exec");
	else if (t.predict == NULL && cli.n_args == 2)
		code = fal_cli_usage(PROG, "%s: one operand too many (see --help)",
				     cli.arg[1]);
	else if (t.predict != NULL && cli.n_args == 1)
		code = fal_cli_usage(PROG, "--predict: SAMPLES are missing (see --help)");
	else if (t.bench)
		code = (code = set_lanes(&t, &opt)) != FAL_EXIT_DONE
			       ? code
			       : bench_run(&opt, cli.arg[0], t.exec);
	else if (t.try)
		code = try_run(&opt, cli.arg[0], t.exec);
	else if (t.eval != NULL || t.predict != NULL)
		code = eval_run(&opt, cli.arg[0], t.eval != NULL ? t.eval : t.predict,
				t.predict != NULL ? cli.arg[1] : NULL, t.json);
	else
		code = run_worker(&t, cli.arg[0], &opt);
	fal_cli_free(&cli);
	return code;
}
