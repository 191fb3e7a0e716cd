/* falcon-sync: shows and changes the policy of a running job, and sends the other
 * requests of a controller. */
#include "base/text.h"
#include "cli/cli.h"
#include "cli/need.h"
#include "net/addr.h"
#include "sync.h"

#include <string.h>

enum verb {
	SHOW,
	SET,
	APPLY,
	WATCH,
	DRAIN,
	PAUSE,
	RESUME,
	EXPORT,
	CHECKPOINT,
	STOP,
	VERBS
};

static const struct {
	const char *name, *operands;
	size_t min, max; /* operands */
} verbs[VERBS] = {
	[SHOW] = { "show", "", 0, 0 },
	[SET] = { "set", " KEY=VALUE...", 1, SIZE_MAX },
	[APPLY] = { "apply", " FILE|-", 1, 1 },
	[WATCH] = { "watch", "", 0, 0 },
	[DRAIN] = { "drain", " NAME|SHARD", 1, 1 },
	[PAUSE] = { "pause", "", 0, 0 },
	[RESUME] = { "resume", "", 0, 0 },
	[EXPORT] = { "export", " FILE|-", 1, 1 },
	[CHECKPOINT] = { "checkpoint", "", 0, 0 },
	[STOP] = { "stop", "", 0, 0 },
};

enum {
	PIPE_DWELL = 10, /* clocks before `apply -` changes a key again: a program may
			    change its mind at once */
	TIMEOUT = 60     /* seconds that a checkpoint may take */
};

#define NO_DWELL UINT64_MAX /* --min-dwell is not given */

struct options {
	const char *key;
	uint64_t max_memory;
	struct sync_change change;
	uint64_t timeout; /* 0: not given */
};

static int
verb_run(enum verb v, const struct sync_conf *conf, struct options *o,
	 const char *const *arg, size_t n)
{
	struct sync_change *c = &o->change;
	const bool pipe = v == APPLY && strcmp(arg[0], "-") == 0;
	c->allow_model |= !pipe; /* a person changes the model on purpose */
	if (c->min_dwell == NO_DWELL)
		c->min_dwell = pipe ? PIPE_DWELL : 0;
	switch (v) {
	case SHOW:
		return sync_order(conf, FAL_VERB_SHOW, c->json, 0);
	case SET:
		return sync_set(conf, c, arg, n);
	case APPLY:
		return pipe ? sync_apply_stdin(conf, c) : sync_apply(conf, c, arg[0]);
	case WATCH:
		return sync_watch(conf);
	case DRAIN:
		return sync_drain(conf, arg[0]);
	case PAUSE:
		return sync_order(conf, FAL_VERB_PAUSE, false, 0);
	case RESUME:
		return sync_order(conf, FAL_VERB_RESUME, false, 0);
	case EXPORT:
		return sync_export(conf, arg[0]);
	case CHECKPOINT:
		return sync_order(conf, FAL_VERB_CHECKPOINT, false,
				  o->timeout > 0 ? o->timeout : TIMEOUT);
	default:
		return sync_order(conf, FAL_VERB_STOP, false, 0);
	}
}

/* Checks the command line, then runs the verb. */
static int
run_sync(const struct fal_cli *cli, struct options *o)
{
	struct fal_addr addr;
	struct fal_diag diag;
	const size_t n = cli->n_args - 2;
	const char *name = cli->arg[1];
	enum verb v = 0;
	while (v < VERBS && strcmp(verbs[v].name, name) != 0)
		v++;
	if (v == VERBS)
		return fail(FAL_EXIT_USAGE,
			    "'%s' is not show, set, apply, watch, drain, pause, resume, "
			    "export, checkpoint or stop",
			    FAL_QUOTE(name));
	if (n < verbs[v].min || n > verbs[v].max)
		return fail(FAL_EXIT_USAGE, "usage: %s ADDR %s%s", PROG, name,
			    verbs[v].operands);
	const struct sync_change *c = &o->change;
	const bool changes = v == SET || v == APPLY;
	const char *wrong = NULL;
	if (c->dry_run && !changes)
		wrong = "--dry-run: only with set and apply";
	else if (c->min_dwell != NO_DWELL && !changes)
		wrong = "--min-dwell: only with set and apply";
	else if (c->allow_model && v != APPLY)
		wrong = "--allow-model: only with apply";
	else if (c->json && !changes && v != SHOW)
		wrong = "--json: only with show, set and apply";
	else if (o->timeout > 0 && v != CHECKPOINT)
		wrong = "--timeout: only with checkpoint";
	if (wrong != NULL)
		return fail(FAL_EXIT_USAGE, "%s", wrong);
	int code = fal_cli_range(cli, "min-dwell", 0, UINT32_MAX);
	if (code < 0)
		code = fal_cli_range(cli, "timeout", 1, UINT32_MAX);
	if (code >= 0)
		return code;
	if (fal_addr_parse(cli->arg[0], &addr, &diag) < 0)
		return fail(FAL_EXIT_USAGE, "%s", diag.text);
	const struct sync_conf conf = { .addr = &addr, .key = o->key };
	return verb_run(v, &conf, o, cli->arg + 2, n);
}

int
main(int argc, char **argv)
{
	struct options o = { .change.min_dwell = NO_DWELL };
	const struct fal_opt opts[] = {
		{ "allow-model", 0, FAL_OPT_FLAG, &o.change.allow_model,
		  "with apply -: also changes that may alter the model", NULL },
		{ "dry-run", 0, FAL_OPT_FLAG, &o.change.dry_run,
		  "change nothing, print what would change", NULL },
		{ "json", 'j', FAL_OPT_FLAG, &o.change.json, "print JSON", NULL },
		{ "key", 'k', FAL_OPT_TEXT, &o.key,
		  "key file (default: ~/.config/falcon/key, /etc/falcon/key)", "FILE" },
		{ "max-memory", 0, FAL_OPT_SIZE, &o.max_memory,
		  "no more memory than this", "SIZE" },
		{ "min-dwell", 0, FAL_OPT_U64, &o.change.min_dwell,
		  "refuse a key that was changed less than so many clocks ago",
		  "CLOCKS" },
		{ "timeout", 0, FAL_OPT_U64, &o.timeout,
		  "wait so long for a checkpoint (default: 60)", "SECONDS" },
	};
	struct fal_cli cli = {
		.prog = PROG,
		.args = "ADDR show|set KEY=VALUE...|apply FILE|watch|drain "
			"NAME|SHARD|pause|resume|export FILE|checkpoint|stop",
		.opts = opts,
		.n_opts = sizeof(opts) / sizeof(opts[0]),
		.min_args = 2,
		.max_args = SIZE_MAX,
	};
	const uint64_t program = fal_memory_prepare();
	int code = fal_cli_parse(&cli, argc, argv);
	if (code < 0)
		code = fal_memory_apply_limit(&cli, program, o.max_memory, true);
	if (code < 0)
		code = run_sync(&cli, &o);
	fal_cli_free(&cli);
	return code;
}
