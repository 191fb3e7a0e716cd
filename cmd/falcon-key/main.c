/* falcon-key: manages keys, and signs runs. */
#include "key.h"

#include "cli/cli.h"
#include "cli/need.h"

#include <string.h>

/* The options that a command accepts. */
enum {
	KEYRING = 1,
	ROLE = 2,
	NAME = 4,
	EXPIRES = 8,
	KEY = 16,
	SHARED = 32,
	COORDINATOR = 64
};

static const struct command {
	const char *name, *takes;
	size_t min, max;
	unsigned options;
	int (*run)(const struct options *o, const char *const *arg, size_t n);
} commands[] = {
	{ "init", "one DIR", 1, 1, SHARED, cmd_init },
	{ "add", "a NAME and perhaps a PUBLIC key", 1, 2,
	  KEYRING | ROLE | EXPIRES | SHARED, cmd_add },
	{ "new", "no operand", 0, 0,
	  KEYRING | ROLE | NAME | EXPIRES | SHARED | COORDINATOR, cmd_new },
	{ "public", "one FILE", 1, 1, 0, cmd_public },
	{ "revoke", "a NAME and perhaps a FINGERPRINT", 1, 2, KEYRING, cmd_revoke },
	{ "show", "one FILE", 1, 1, 0, cmd_show },
	{ "pair", "one FILE", 1, 1, 0, cmd_pair },
	{ "sign", "one RUN", 1, 1, KEY, cmd_sign },
	{ "verify", "a STATEMENT and perhaps a RUN", 1, 2, KEY, cmd_verify },
};

static int
run_command(const struct fal_cli *cli, const struct options *o)
{
	const struct command *c = commands, *end = c + sizeof(commands) / sizeof(*c);
	const size_t n = cli->n_args - 1;
	const unsigned given =
		(o->keyring != NULL ? KEYRING : 0) | (o->role != NULL ? ROLE : 0) |
		(o->name != NULL ? NAME : 0) | (o->expires != NULL ? EXPIRES : 0) |
		(o->key != NULL ? KEY : 0) | (o->shared ? SHARED : 0) |
		(o->coordinator != NULL ? COORDINATOR : 0);
	while (c < end && strcmp(cli->arg[0], c->name) != 0)
		c++;
	if (c == end)
		return fail(FAL_EXIT_USAGE,
			    "%s: not init, add, new, public, revoke, show, pair, sign or "
			    "verify",
			    cli->arg[0]);
	if ((given & ~c->options) != 0)
		return fail(FAL_EXIT_USAGE, "%s: does not take one of these options",
			    c->name);
	if (n < c->min || n > c->max)
		return fail(FAL_EXIT_USAGE, "%s: takes %s", c->name, c->takes);
	return c->run(o, cli->arg + 1, n);
}

int
main(int argc, char **argv)
{
	struct options o = { 0 };
	uint64_t max_memory = 0;
	const struct fal_opt opts[] = {
		{ "keyring", 'K', FAL_OPT_TEXT, &o.keyring,
		  "add, new, revoke: the keyring that is changed", "FILE" },
		{ "role", 'r', FAL_OPT_TEXT, &o.role,
		  "add, new: observe, work, shard, control or all (default: work)",
		  "ROLE" },
		{ "name", 'n', FAL_OPT_TEXT, &o.name,
		  "new: the key's name (default: ROLE-FINGERPRINT)", "NAME" },
		{ "expires", 'e', FAL_OPT_TEXT, &o.expires,
		  "add, new: the last day of the key, or its end, UTC", "YYYY-MM-DD" },
		{ "max-memory", 0, FAL_OPT_SIZE, &max_memory, "no more memory than this",
		  "SIZE" },
		{ "shared", 0, FAL_OPT_FLAG, &o.shared,
		  "init, add, new: symmetric keys, which the keyring has, too", NULL },
		{ "coordinator", 'c', FAL_OPT_TEXT, &o.coordinator,
		  "new: the coordinator's public key; no keyring is changed", "KEY" },
		{ "key", 'k', FAL_OPT_TEXT, &o.key,
		  "sign: the secret key; verify: the public one", "FILE" },
	};
	struct fal_cli cli = {
		.prog = PROG,
		.args = "init DIR | add -K FILE NAME [PUBLIC] | new -K FILE | new -c KEY "
			"| public FILE | revoke -K FILE NAME | show FILE | pair FILE | "
			"sign -k FILE RUN | verify -k FILE STATEMENT [RUN]",
		.opts = opts,
		.n_opts = sizeof(opts) / sizeof(opts[0]),
		.min_args = 1,
		.max_args = 3,
	};
	fal_cli_hide_memory();
	const uint64_t program = fal_memory_prepare();
	int status = fal_cli_parse(&cli, argc, argv);
	if (status < 0)
		status = fal_memory_apply_limit(&cli, program, max_memory, false);
	if (status < 0)
		status = run_command(&cli, &o);
	fal_cli_free(&cli);
	return status;
}
