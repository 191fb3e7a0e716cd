/* One channel in one loop. */
#include "link.h"

#include "cli/cli.h"
#include "net/dial.h"
#include "net/options.h"
#include "sec/secret.h"
#include "sync.h"

#include <assert.h>
#include <signal.h>

enum {
	FIRST_MS = 10000, /* for reaching the coordinator at all */
	RETRY_MIN_MS = 100,
	RETRY_MAX_MS = 1000
};

struct sync_link {
	const struct sync_link_conf *conf;
	const struct sync_link_ops *ops;
	const struct fal_client_key *key;
	char at[FAL_ADDR_MAX + 16]; /* the address as text */
	uv_loop_t loop;
	uv_signal_t sigint;
	uv_timer_t silence, retry;
	uint64_t began, pause; /* ms: first attempt; until the next one */
	struct fal_chan *chan; /* NULL: closed */
	bool opened, over;
	int code;
};

uv_loop_t *
sync_link_loop(struct sync_link *l)
{
	return &l->loop;
}

bool
sync_link_over(const struct sync_link *l)
{
	return l->over;
}

void
sync_link_end(struct sync_link *l, int code)
{
	if (l->over)
		return;
	l->over = true;
	l->code = code;
	if (l->chan != NULL)
		fal_chan_kill(l->chan);
	uv_close((uv_handle_t *)&l->sigint, NULL);
	uv_close((uv_handle_t *)&l->silence, NULL);
	uv_close((uv_handle_t *)&l->retry, NULL);
	if (l->ops->on_end != NULL)
		l->ops->on_end(l->ops->arg);
}

/* Ends the link for an error of our own. */
static void
fail(struct sync_link *l, int err)
{
	fal_cli_err(PROG, "%s: %s", l->at, fal_strerror(err));
	sync_link_end(l, fal_cli_exit(err));
}

static void
on_sigint(uv_signal_t *h, int signum)
{
	struct sync_link *l = h->data;
	(void)signum;
	sync_link_end(l, l->ops->on_over(l->ops->arg));
}

static void
on_silence(uv_timer_t *h)
{
	struct sync_link *l = h->data;
	fal_cli_err(PROG, "%s: no answer within %g s", l->at, FAL_CHAN_DEADLINE_MS / 1e3);
	sync_link_end(l, FAL_EXIT_TEMPFAIL);
}

/* ---- asking -------------------------------------------------------------------- */

static void
ask(struct sync_link *l, const struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	int err = fal_msg_put(&out, m);
	if (err == FAL_OK)
		err = fal_chan_send(l->chan, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
	if (err < 0)
		fail(l, err);
}

void
sync_link_ask(struct sync_link *l, enum fal_verb verb, const void *args, size_t n)
{
	const struct fal_msg m = { .type = FAL_MSG_CONTROL,
				   .control = { .verb = (uint8_t)verb,
						.args = { args, n } } };
	ask(l, &m);
	if (!l->over && verb != FAL_VERB_APPLY)
		uv_timer_start(&l->silence, on_silence, FAL_CHAN_DEADLINE_MS, 0);
}

void
sync_link_follow(struct sync_link *l)
{
	ask(l, &(struct fal_msg){ .type = FAL_MSG_FOLLOW, .follow.live = 1 });
}

/* ---- the channel --------------------------------------------------------------- */

static void
on_open(void *arg, struct fal_chan *c)
{
	struct sync_link *l = arg;
	(void)c;
	l->opened = true;
	l->ops->on_open(l->ops->arg, l);
}

/* A message's answer; -1 to go on, else an exit code. */
static int
answer(struct sync_link *l, const struct fal_msg *m)
{
	switch (m->type) {
	case FAL_MSG_REPLY:
		uv_timer_stop(&l->silence);
		if (m->reply.more)
			uv_timer_start(&l->silence, on_silence, FAL_CHAN_DEADLINE_MS, 0);
		return l->ops->on_msg(l->ops->arg, l, m);
	case FAL_MSG_TRACE:
		return l->ops->on_msg(l->ops->arg, l, m);
	case FAL_MSG_TRACE_END:
		return FAL_EXIT_DONE;
	case FAL_MSG_REFUSE:
		fal_cli_err(PROG, "%s: %s", l->at, m->refuse.why);
		return FAL_EXIT_NOPERM;
	default:
		fal_cli_err(PROG, "%s: a message that is not for us: %s", l->at,
			    fal_msg_name(m->type));
		return FAL_EXIT_NO;
	}
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct sync_link *l = arg;
	struct fal_msg m;
	(void)c;
	int err = fal_msg_get(p, n, &m);
	if (err < 0) {
		fal_cli_err(PROG, "%s: a message: %s", l->at, fal_strerror(err));
		sync_link_end(l, FAL_EXIT_NO);
		return;
	}
	int code = answer(l, &m);
	if (code >= 0)
		sync_link_end(l, code);
}

static int dial(struct sync_link *l);

static void
on_retry(uv_timer_t *h)
{
	struct sync_link *l = h->data;
	int err = dial(l);
	if (err < 0)
		fail(l, err);
}

/* Whether there will be one more attempt: a coordinator that was just started does not
 * listen yet. */
static bool
try_again(struct sync_link *l)
{
	if (uv_now(&l->loop) - l->began + l->pause > FIRST_MS)
		return false;
	uv_timer_start(&l->retry, on_retry, l->pause, 0);
	l->pause = l->pause * 2 < RETRY_MAX_MS ? l->pause * 2 : RETRY_MAX_MS;
	return true;
}

/* The exit code for an end that we did not choose. */
static int
code_of(const struct sync_link *l, int err)
{
	if (err == FAL_EAUTH || err == FAL_EPERM)
		return FAL_EXIT_NOPERM;
	const bool never = err == FAL_EIO || err == FAL_ETRUNC;
	return never && !l->opened ? FAL_EXIT_TEMPFAIL : FAL_EXIT_NO;
}

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct sync_link *l = arg;
	(void)c;
	l->chan = NULL;
	if (err == 0 && l->opened && l->ops->on_over != NULL) {
		sync_link_end(l, l->ops->on_over(l->ops->arg));
		return;
	}
	const int code = code_of(l, err);
	if (code == FAL_EXIT_TEMPFAIL && try_again(l))
		return;
	fal_cli_err(PROG, "%s", reason); /* which begins with the address */
	sync_link_end(l, code);
}

static int
dial(struct sync_link *l)
{
	const struct fal_chan_ops ops = { l, on_open, on_msg, NULL, on_close };
	return fal_dial(&l->loop, l->conf->addr, l->key, &(struct fal_chan_opt){ 0 },
			&ops, &l->chan);
}

/* Sets up what the link needs, and dials. */
static int
begin(struct sync_link *l)
{
	l->sigint.data = l->silence.data = l->retry.data = l;
	uv_timer_init(&l->loop, &l->silence); /* cannot fail */
	uv_timer_init(&l->loop, &l->retry);
	int err = uv_signal_init(&l->loop, &l->sigint);
	assert(err == 0 && "a loop has its pipe for signals");
	if (l->ops->on_over != NULL && uv_signal_start(&l->sigint, on_sigint, SIGINT) < 0)
		return FAL_EIO;
	l->began = uv_now(&l->loop);
	l->pause = RETRY_MIN_MS;
	return dial(l);
}

int
sync_link_run(const struct sync_link_conf *conf, const struct sync_link_ops *ops)
{
	struct fal_client_key *key;
	struct fal_diag diag;
	fal_cli_hide_memory();
	int err = fal_client_key_load(conf->key, ops->role, &key, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s", diag.text);
		return fal_cli_exit_file(err);
	}
	struct sync_link l = { .conf = conf, .ops = ops, .key = key };
	fal_addr_format(conf->addr, l.at);
	signal(SIGPIPE, SIG_IGN); /* libuv writes without MSG_NOSIGNAL */
	err = uv_loop_init(&l.loop);
	if (err < 0) {
		fal_cli_err(PROG, "%s", uv_strerror(err));
		l.code = FAL_EXIT_NO;
		goto free_key;
	}
	err = begin(&l);
	if (err < 0)
		fail(&l, err);
	uv_run(&l.loop, UV_RUN_DEFAULT);
	err = uv_loop_close(&l.loop);
	assert(err == 0 && "every handle is closed");
free_key:
	fal_secret_free(key);
	return l.code;
}
