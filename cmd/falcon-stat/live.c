/* The live source: a session that asks for the trace. */
#include "live.h"

#include "cli/cli.h"
#include "net/client.h"
#include "net/options.h"
#include "sec/secret.h"
#include "stat.h"

/* The next message is due.  One who follows waits as long as a clock takes. */
static void
await(const struct stat_live *live, struct fal_client *c)
{
	if (!live->follow)
		fal_client_await(c);
}

static void
on_open(void *arg, struct fal_client *c)
{
	const struct stat_live *live = arg;
	struct fal_msg m = { .type = FAL_MSG_FOLLOW, .follow.live = live->follow };
	fal_client_send(c, &m);
	await(live, c);
}

static int
on_msg(void *arg, struct fal_client *c, const struct fal_msg *m)
{
	const struct stat_live *live = arg;
	switch (m->type) {
	case FAL_MSG_TRACE:
		await(live, c);
		return live->on_bytes(live->arg, m->trace.lines.p, m->trace.lines.n);
	case FAL_MSG_TRACE_END:
		if (live->follow)
			live->on_end(live->arg);
		return FAL_EXIT_DONE;
	default:
		return FAL_CLIENT_ALIEN;
	}
}

static int
on_interrupt(void *arg)
{
	(void)arg;
	return FAL_EXIT_DONE;
}

int
stat_live(const struct stat_live *live)
{
	const struct fal_client_ops ops = { .arg = (void *)live,
					    .role = FAL_ROLE_OBSERVE,
					    .on_open = on_open,
					    .on_msg = on_msg,
					    .on_interrupt =
						    live->follow ? on_interrupt : NULL };
	struct fal_client_key *key;
	struct fal_diag diag;
	fal_cli_hide_memory();
	/* Whether its role will do is for the coordinator to say. */
	int err = fal_client_key_load(live->key, FAL_ROLE_NONE, &key, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s", diag.text);
		return fal_cli_exit_file(err);
	}
	int code = fal_client_run(live->addr, key, &ops, &diag);
	if (diag.text[0] != '\0')
		fal_cli_err(PROG, "%s", diag.text);
	fal_secret_free(key);
	return code;
}
