/* The live source: one channel in one loop. */
#include "live.h"

#include "cli/cli.h"
#include "net/dial.h"
#include "net/options.h"
#include "sec/secret.h"
#include "stat.h"
#include "wire/msg.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
	FIRST_MS = 10000, /* for reaching the coordinator at all */
	RETRY_MIN_MS = 100,
	RETRY_MAX_MS = 1000
};

struct session {
	const struct stat_live *live;
	const struct fal_client_key *key;
	char at[FAL_ADDR_MAX + 16]; /* the address as text */
	uv_loop_t loop;
	uv_signal_t sigint;
	uv_timer_t silence, retry;
	uint64_t began, pause; /* ms: first attempt; until the next one */
	struct fal_chan *c;    /* NULL: closed */
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
	uv_close((uv_handle_t *)&s->retry, NULL);
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

static int dial(struct session *s);

static void
on_retry(uv_timer_t *h)
{
	struct session *s = h->data;
	int err = dial(s);
	if (err == FAL_OK)
		return;
	fal_cli_err(PROG, "%s: %s", s->at, fal_strerror(err));
	end(s, (int)fal_cli_exit(err));
}

/* Whether there will be one more attempt: a coordinator that was just started does not
 * listen yet. */
static bool
try_again(struct session *s)
{
	if (uv_now(&s->loop) - s->began + s->pause > FIRST_MS)
		return false;
	uv_timer_start(&s->retry, on_retry, s->pause, 0);
	s->pause = s->pause * 2 < RETRY_MAX_MS ? s->pause * 2 : RETRY_MAX_MS;
	return true;
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
	const int code = code_of(s, err);
	if (code == FAL_EXIT_TEMPFAIL && try_again(s))
		return;
	fal_cli_err(PROG, "%s", reason); /* which begins with the address */
	end(s, code);
}

/* Dials and asks; 0, or an error. */
static int
dial(struct session *s)
{
	const struct fal_chan_ops ops = { s, on_open, on_msg, NULL, on_close };
	const struct fal_msg ask = { .type = FAL_MSG_FOLLOW,
				     .follow.live = s->live->follow };
	struct fal_buf msg = { 0 };
	int err = fal_dial(&s->loop, s->live->addr, s->key, &(struct fal_chan_opt){ 0 },
			   &ops, &s->c);
	if (err == 0)
		err = fal_msg_put(&msg, &ask);
	if (err == 0)
		err = fal_chan_send(s->c, &msg, FAL_SEND_CONTROL);
	fal_buf_free(&msg);
	return err;
}

/* Sets up what the session needs, and dials. */
static int
begin(struct session *s)
{
	s->sigint.data = s->silence.data = s->retry.data = s;
	uv_timer_init(&s->loop, &s->silence); /* cannot fail */
	uv_timer_init(&s->loop, &s->retry);
	int err = uv_signal_init(&s->loop, &s->sigint) < 0 ? FAL_EIO : FAL_OK;
	assert(err == 0 && "a loop has its pipe for signals");
	if (s->live->follow && uv_signal_start(&s->sigint, on_sigint, SIGINT) < 0)
		return FAL_EIO;
	s->began = uv_now(&s->loop);
	s->pause = RETRY_MIN_MS;
	return dial(s);
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

int
stat_live(const struct stat_live *live)
{
	struct fal_client_key *key;
	struct fal_diag diag;
	fal_cli_hide_memory();
	int err = fal_client_key_load(live->key, FAL_ROLE_NONE, &key, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s", diag.text);
		return fal_cli_exit_file(err);
	}
	int code = run(live, key);
	fal_secret_free(key);
	return code;
}
