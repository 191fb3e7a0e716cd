/* Reads a trace from a file or a live job. */
#include "stat.h"

#include "cli/cli.h"
#include "cli/file.h"
#include "crypto/secret.h"
#include "net/client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int
stat_source_find(const char *name, const char *key, struct stat_source *out)
{
	struct fal_diag diag;
	*out = (struct stat_source){ .name = name, .key = key };
	if (strcmp(name, "-") == 0 || access(name, F_OK) == 0) {
		out->name = out->path = fal_cli_trace_path(name);
		out->folder = strcmp(out->path, name) != 0 ? name : NULL;
		return FAL_EXIT_DONE;
	}
	const int no_file = errno;
	out->live = fal_addr_parse(name, &out->addr, &diag) == 0;
	if (out->live)
		return FAL_EXIT_DONE;
	if (strchr(name, ':') != NULL)
		fal_cli_err(PROG, "%s", diag.text);
	else if (strchr(name, '/') != NULL)
		fal_cli_err(PROG, "%s: %s", name, strerror(no_file));
	else
		fal_cli_err(PROG, "%s: %s; %s", name, strerror(no_file), diag.text);
	return FAL_EXIT_USAGE;
}

struct feed {
	const struct stat_source *s;
	struct fal_trace_reader *r;
	bool follows; /* until the job is over */
	struct fal_trace_ending ending;
	int (*on_line)(void *arg, struct fal_trace_line *l);
	void *arg;
	int code; /* of a file's last chunk */
};

/* Prints why a trace cannot be read; returns the exit code. */
static int
source_fail(const struct stat_source *s, int err, const struct fal_diag *diag)
{
	fal_cli_err(PROG, "%s:%s", fal_cli_file_name(s->name), diag->text);
	return (int)fal_cli_exit_code(err);
}

/* Feeds a chunk; returns -1 if reading goes on, else an exit code. */
static int
source_feed(struct feed *f, const void *p, size_t n)
{
	struct fal_diag diag;
	int err = fal_trace_feed(f->r, p, n, &diag);
	if (err < 0)
		return source_fail(f->s, err, &diag);
	if (f->follows && (fflush(stdout) != 0 || ferror(stdout)))
		return fal_cli_finish(PROG, errno == EPIPE ? FAL_EXIT_DONE : FAL_EXIT_NO);
	return f->ending.over ? FAL_EXIT_DONE : -1;
}

static int
on_file_chunk(void *arg, const void *p, size_t n)
{
	struct feed *f = arg;
	f->code = source_feed(f, p, n);
	return f->code < 0 ? FAL_OK : FAL_ESTATE; /* ends the feeding */
}

/* ---- a live job ---- */

/* Sets the deadline of the next message.  A follower has no deadline, as a clock may take
 * long. */
static void
source_await(const struct feed *f, struct fal_client *c)
{
	if (!f->follows)
		fal_client_expect_answer(c);
}

static void
on_source_open(void *arg, struct fal_client *c)
{
	const struct feed *f = arg;
	struct fal_msg m = { .type = FAL_MSG_FOLLOW, .follow.live = f->follows };
	fal_client_send(c, &m);
	source_await(f, c);
}

static int
on_source_msg(void *arg, struct fal_client *c, const struct fal_msg *m)
{
	struct feed *f = arg;
	if (m->type == FAL_MSG_TRACE_END) {
		if (f->follows && !f->ending.stopped)
			fal_cli_err(PROG, "%s: %s", f->s->name, fal_trace_early_end);
		fal_client_abort(c, FAL_EXIT_DONE);
		return FAL_OK;
	}
	if (m->type != FAL_MSG_TRACE)
		return FAL_EFORMAT;
	source_await(f, c);
	const int code = source_feed(f, m->trace.lines.p, m->trace.lines.n);
	if (code >= 0)
		fal_client_abort(c, code);
	return FAL_OK;
}

/* ---- both ---- */

static int
on_feed_line(void *arg, struct fal_trace_line *l)
{
	struct feed *f = arg;
	if (f->follows)
		fal_trace_ending_note(&f->ending, l);
	return f->on_line(f->arg, l);
}

int
stat_source_read(const struct stat_source *s, enum stat_reading how,
		 int (*on_line)(void *arg, struct fal_trace_line *l), void *arg)
{
	struct fal_diag diag;
	struct feed f = { .s = s,
			  .follows = how == STAT_READ_ON && s->live,
			  .on_line = on_line,
			  .arg = arg,
			  .code = -1 };
	f.r = fal_trace_reader_new(on_feed_line, &f);
	if (how == STAT_READ_CUT)
		fal_trace_reader_deliver_cut(f.r);
	int code;
	if (s->live) {
		/* Asks the coordinator for the trace by FOLLOW (falcon-protocol(7)) and
		 * feeds it; a follower goes on until the job is over or SIGINT comes.
		 * The coordinator checks the key's role. */
		struct fal_client_key *key;
		code = fal_client_key_load(PROG, s->key, FAL_ROLE_NONE, &key);
		if (code == FAL_EXIT_DONE) {
			struct fal_client_conf conf = { .prog = PROG,
							.addr = &s->addr,
							.addrs = 1,
							.key = key,
							.role = FAL_ROLE_OBSERVE,
							.arg = &f,
							.on_open = on_source_open,
							.on_msg = on_source_msg,
							.catches_sigint = f.follows };
			code = fal_client_run(&conf);
			fal_secret_free(key);
		}
	} else {
		const struct fal_cli_pass first = { fal_trace_find_restarts, f.r };
		const struct fal_cli_pass then = { on_file_chunk, &f };
		const int err = fal_cli_feed_twice(s->name, first, then, &diag);
		code = f.code;
		if (err < 0 && code < 0) {
			fal_cli_err(PROG, "%s",
				    err == FAL_ENOMEM ? fal_strerror(err) : diag.text);
			code = err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE;
		}
	}
	if (code <= FAL_EXIT_DONE && !f.follows) {
		int err = fal_trace_end(f.r, &diag);
		code = err < 0 ? source_fail(s, err, &diag) : FAL_EXIT_DONE;
	}
	fal_trace_reader_free(f.r);
	return code;
}

static int
on_followed_line(void *arg, struct fal_trace_line *l)
{
	(void)arg;
	fwrite(l->text, 1, l->n, stdout);
	putchar('\n');
	return FAL_OK;
}

int
stat_source_follow(const struct stat_source *s)
{
	const int code = stat_source_read(s, STAT_READ_ON, on_followed_line, NULL);
	return ferror(stdout) ? code : fal_cli_finish(PROG, code); /* or it was printed */
}
