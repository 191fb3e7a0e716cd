/* The live source: one channel in one loop. */
#include "live.h"

#include "cli/cli.h"
#include "cli/file.h"
#include "net/dial.h"
#include "sec/secret.h"
#include "stat.h"
#include "wire/msg.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define KEY_FILE_MAX 4096 /* bytes */

struct session {
	const struct stat_live *live;
	const struct fal_client_key *key;
	char at[FAL_ADDR_MAX + 16]; /* the address as text */
	uv_loop_t loop;
	uv_signal_t sigint;
	uv_timer_t silence;
	struct fal_chan *c; /* NULL: closed */
	bool opened, over;
	int code;
};

/* The session is over; the loop ends when all is closed. */
static void
end(struct session *s, int code)
{
	if (s->over)
		return;
	s->over = true;
	s->code = code;
	if (s->c != NULL)
		fal_chan_kill(s->c);
	uv_close((uv_handle_t *)&s->sigint, NULL);
	uv_close((uv_handle_t *)&s->silence, NULL);
}

static void
on_sigint(uv_signal_t *h, int signum)
{
	(void)signum;
	end(h->data, FAL_EXIT_DONE);
}

static void
on_silence(uv_timer_t *h)
{
	struct session *s = h->data;
	fal_cli_err(PROG, "%s: no answer within %g s", s->at, FAL_CHAN_DEADLINE_MS / 1e3);
	end(s, FAL_EXIT_TEMPFAIL);
}

/* The next message is due.  One who follows waits as long as a clock takes. */
static void
await(struct session *s)
{
	if (!s->live->follow)
		uv_timer_start(&s->silence, on_silence, FAL_CHAN_DEADLINE_MS, 0);
}

static void
on_open(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	(void)c;
	s->opened = true;
	await(s);
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct session *s = arg;
	struct fal_msg m;
	int code;
	(void)c;
	int err = fal_msg_get(p, n, &m);
	if (err < 0) {
		fal_cli_err(PROG, "%s: a message: %s", s->at, fal_strerror(err));
		end(s, FAL_EXIT_NO);
		return;
	}
	await(s);
	switch (m.type) {
	case FAL_MSG_TRACE:
		code = s->live->on_bytes(s->live->arg, m.trace.lines.p, m.trace.lines.n);
		if (code >= 0)
			end(s, code);
		break;
	case FAL_MSG_TRACE_END:
	case FAL_MSG_DONE:
		end(s, FAL_EXIT_DONE);
		break;
	case FAL_MSG_REFUSE:
		fal_cli_err(PROG, "%s: %s", s->at, m.refuse.why);
		end(s, FAL_EXIT_NOPERM);
		break;
	default:
		fal_cli_err(PROG, "%s: a message that is not for us: %s", s->at,
			    fal_msg_name(m.type));
		end(s, FAL_EXIT_NO);
	}
}

/* The exit code for an end that we did not choose. */
static int
code_of(const struct session *s, int err)
{
	if (err == FAL_EAUTH || err == FAL_EPERM)
		return FAL_EXIT_NOPERM;
	const bool never = err == FAL_EIO || err == FAL_ETRUNC;
	return never && !s->opened ? FAL_EXIT_TEMPFAIL : FAL_EXIT_NO;
}

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct session *s = arg;
	(void)c;
	s->c = NULL;
	/* A coordinator closes the channel of one who may not ask. */
	if (err == 0 && !fal_role_may(s->key->role, FAL_ROLE_OBSERVE)) {
		fal_cli_err(PROG, "%s: the key's role is %s: observe is needed", s->at,
			    fal_role_name(s->key->role));
		end(s, FAL_EXIT_NOPERM);
		return;
	}
	fal_cli_err(PROG, "%s", reason); /* which begins with the address */
	end(s, code_of(s, err));
}

/* Dials and asks; 0, or an error. */
static int
begin(struct session *s)
{
	const struct fal_chan_ops ops = { s, on_open, on_msg, NULL, on_close };
	const struct fal_msg ask = { .type = FAL_MSG_FOLLOW,
				     .follow.live = s->live->follow };
	struct fal_buf msg = { 0 };
	s->sigint.data = s->silence.data = s;
	uv_timer_init(&s->loop, &s->silence); /* cannot fail */
	int err = uv_signal_init(&s->loop, &s->sigint) < 0 ? FAL_EIO : FAL_OK;
	assert(err == 0 && "a loop has its pipe for signals");
	if (s->live->follow && uv_signal_start(&s->sigint, on_sigint, SIGINT) < 0)
		return FAL_EIO;
	err = fal_dial(&s->loop, s->live->addr, s->key, &(struct fal_chan_opt){ 0 }, &ops,
		       &s->c);
	if (err == 0)
		err = fal_msg_put(&msg, &ask);
	if (err == 0)
		err = fal_chan_send(s->c, &msg, FAL_SEND_CONTROL);
	fal_buf_free(&msg);
	return err;
}

static int
run(const struct stat_live *live, const struct fal_client_key *key)
{
	struct session s = { .live = live, .key = key };
	fal_addr_format(live->addr, s.at);
	signal(SIGPIPE, SIG_IGN); /* libuv writes without MSG_NOSIGNAL */
	int err = uv_loop_init(&s.loop);
	if (err < 0) {
		fal_cli_err(PROG, "%s", uv_strerror(err));
		return FAL_EXIT_NO;
	}
	err = begin(&s);
	if (err < 0) {
		fal_cli_err(PROG, "%s: %s", s.at, fal_strerror(err));
		end(&s, (int)fal_cli_exit(err));
	}
	uv_run(&s.loop, UV_RUN_DEFAULT);
	err = uv_loop_close(&s.loop);
	assert(err == 0 && "every handle is closed");
	return s.code;
}

/* Reads the key file; an exit code. */
static int
load_key(const char *option, struct fal_client_key **key)
{
	struct fal_diag diag;
	size_t n;
	int err, code = FAL_EXIT_NO;
	char *path = fal_cli_key(option);
	if (path == NULL) {
		fal_cli_err(PROG, "no key: %s (see --key)", strerror(errno));
		return FAL_EXIT_USAGE;
	}
	char *text = fal_secret_alloc(KEY_FILE_MAX);
	if (text == NULL) {
		fal_cli_err(PROG, "%s", fal_strerror(FAL_ENOMEM));
		goto free_path;
	}
	err = fal_cli_read_into(path, text, KEY_FILE_MAX, &n, &diag);
	if (err == 0)
		err = fal_client_key_parse(text, n, path, key, &diag);
	if (err < 0)
		fal_cli_err(PROG, "%s", diag.text);
	/* A file that is not there is a bad argument, one that is locked away is not. */
	code = err == FAL_ENOENT || err == FAL_EIO ? FAL_EXIT_USAGE
						   : (int)fal_cli_exit(err);
	fal_secret_free(text);
free_path:
	free(path);
	return code;
}

int
stat_live(const struct stat_live *live)
{
	struct fal_client_key *key;
	int code = load_key(live->key, &key);
	if (code != FAL_EXIT_DONE)
		return code;
	code = run(live, key);
	fal_secret_free(key);
	return code;
}
