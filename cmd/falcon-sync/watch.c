/* watch: prints the policy and hold lines of the trace as they come. */
#include "base/mem.h"
#include "cli/cli.h"
#include "sync.h"
#include "trace/reader.h"

#include <errno.h>
#include <string.h>

struct watch {
	struct fal_trace_reader *reader;
	struct fal_trace_ending ending;
	int failed; /* an errno of the output; 0: none */
};

static int
on_watch_line(void *arg, struct fal_trace_line *line)
{
	struct watch *w = arg;
	fal_trace_ending_note(&w->ending, line);
	if (line->event != FAL_EV_POLICY && line->event != FAL_EV_HOLD)
		return FAL_OK;
	if (printf("%.*s\n", (int)line->n, line->text) < 0 && w->failed == 0)
		w->failed = errno;
	return FAL_OK;
}

static void
on_watch_open(void *arg, struct fal_client *client)
{
	(void)arg;
	fal_client_send(client,
			&(struct fal_msg){ .type = FAL_MSG_FOLLOW, .follow.live = 1 });
}

static int
on_watch_msg(void *arg, struct fal_client *client, const struct fal_msg *m)
{
	struct watch *w = arg;
	struct fal_diag diag;
	if (m->type == FAL_MSG_TRACE_END) {
		if (!w->ending.stopped)
			fal_cli_err(PROG, "%s", fal_trace_early_end);
		return sync_end(client, FAL_EXIT_DONE);
	}
	if (m->type != FAL_MSG_TRACE)
		return FAL_EFORMAT;
	int err = fal_trace_feed(w->reader, m->trace.lines.p, m->trace.lines.n, &diag);
	if (err < 0)
		return sync_end(client,
				fail(fal_cli_exit_code(err), "trace:%s", diag.text));
	if (w->failed != 0 &&
	    w->failed != EPIPE) /* EPIPE: the output's reader has ended */
		return sync_end(client, fail(FAL_EXIT_NO, "standard output: %s",
					     strerror(w->failed)));
	return w->failed != 0 || w->ending.over ? sync_end(client, FAL_EXIT_DONE)
						: FAL_OK;
}

int
sync_watch(const struct sync_conf *conf)
{
	struct watch w = { 0 };
	struct fal_client_conf client = { .arg = &w,
					  .role = FAL_ROLE_OBSERVE,
					  .on_open = on_watch_open,
					  .on_msg = on_watch_msg,
					  .catches_sigint = true };
	w.reader = fal_trace_reader_new(on_watch_line, &w);
	setvbuf(stdout, NULL, _IOLBF, 0);
	int code = sync_run(conf, &client);
	if (!ferror(stdout)) /* the failure was printed */
		code = fal_cli_finish(PROG, code);
	fal_trace_reader_free(w.reader);
	return code;
}
