/* One channel in one loop. */
#include "net/client.h"

#include "cli/cli.h"
#include "net/conn.h"
#include "net/retry.h"

#include <assert.h>
#include <signal.h>

#define FIRST_NS UINT64_C(10000000000) /* for reaching the coordinator at all */

struct fal_client {
	const struct fal_addr *addr;
	const struct fal_client_key *key;
	const struct fal_client_ops *ops;
	struct fal_diag *diag;
	char at[FAL_ADDR_MAX + 16]; /* the address as text */
	uv_loop_t loop;
	uv_signal_t sigint;
	uv_timer_t silence, retry;
	struct fal_retry again;
	struct fal_chan *chan; /* NULL: closed */
	bool opened, over;
	int code;
};

uv_loop_t *
fal_client_loop(struct fal_client *c)
{
	return &c->loop;
}

bool
fal_client_is_over(const struct fal_client *c)
{
	return c->over;
}

void
fal_client_end(struct fal_client *c, int code)
{
	if (c->over)
		return;
	c->over = true;
	c->code = code;
	if (c->chan != NULL)
		fal_chan_kill(c->chan);
	uv_close((uv_handle_t *)&c->sigint, NULL);
	uv_close((uv_handle_t *)&c->silence, NULL);
	uv_close((uv_handle_t *)&c->retry, NULL);
	if (c->ops->on_end != NULL)
		c->ops->on_end(c->ops->arg);
}

/* Ends the session for an error of our own. */
static void
fail(struct fal_client *c, int err)
{
	fal_diag_set(c->diag, err, "%s: %s", c->at, fal_strerror(err));
	fal_client_end(c, fal_cli_exit(err));
}

static void
on_sigint(uv_signal_t *h, int signum)
{
	struct fal_client *c = h->data;
	(void)signum;
	fal_client_end(c, c->ops->on_interrupt(c->ops->arg));
}

static void
on_silence(uv_timer_t *h)
{
	struct fal_client *c = h->data;
	fal_diag_set(c->diag, FAL_EIO, "%s: no answer within %g s", c->at,
		     FAL_CHAN_DEADLINE_MS / 1e3);
	fal_client_end(c, FAL_EXIT_TEMPFAIL);
}

/* ---- asking -------------------------------------------------------------------- */

void
fal_client_send(struct fal_client *c, const struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	int err = fal_msg_put(&out, m);
	if (err == FAL_OK)
		err = fal_chan_send(c->chan, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
	if (err < 0)
		fail(c, err);
}

void
fal_client_await(struct fal_client *c)
{
	if (!c->over)
		uv_timer_start(&c->silence, on_silence, FAL_CHAN_DEADLINE_MS, 0);
}

/* ---- the channel --------------------------------------------------------------- */

static void
on_open(void *arg, struct fal_chan *chan)
{
	struct fal_client *c = arg;
	(void)chan;
	c->opened = true;
	c->ops->on_open(c->ops->arg, c);
}

/* What follows from a message: FAL_CLIENT_ON, or an exit code. */
static int
answer(struct fal_client *c, const struct fal_msg *m)
{
	if (m->type == FAL_MSG_REFUSE) {
		fal_diag_set(c->diag, FAL_EPERM, "%s: %s", c->at, m->refuse.why);
		return FAL_EXIT_NOPERM;
	}
	if (m->type == FAL_MSG_LATER) {
		fal_diag_set(c->diag, FAL_ESTATE, "%s: later: %s", c->at, m->later.why);
		return FAL_EXIT_TEMPFAIL;
	}
	int code = c->ops->on_msg(c->ops->arg, c, m);
	if (code != FAL_CLIENT_ALIEN)
		return code;
	fal_diag_set(c->diag, FAL_ESTATE, "%s: a message that is not for us: %s", c->at,
		     fal_msg_name(m->type));
	return FAL_EXIT_NO;
}

static void
on_msg(void *arg, struct fal_chan *chan, const uint8_t *p, size_t n)
{
	struct fal_client *c = arg;
	struct fal_msg m;
	int err = fal_msg_get(p, n, &m);
	if (err < 0) {
		fal_diag_set(c->diag, err, "%s: a message: %s%s", c->at,
			     fal_strerror(err), fal_chan_skew(chan));
		fal_client_end(c, FAL_EXIT_NO);
		return;
	}
	uv_timer_stop(&c->silence);
	int code = answer(c, &m);
	if (code != FAL_CLIENT_ON)
		fal_client_end(c, code);
}

static int dial(struct fal_client *c);

static void
on_retry(uv_timer_t *h)
{
	struct fal_client *c = h->data;
	int err = dial(c);
	if (err < 0)
		fail(c, err);
}

/* The exit code for an end that we did not choose. */
static int
code_of(const struct fal_client *c, int err)
{
	if (err == FAL_EAUTH || err == FAL_EPERM)
		return FAL_EXIT_NOPERM;
	const bool never = err == FAL_EIO || err == FAL_ETRUNC || err == FAL_ENOENT;
	return never && !c->opened ? FAL_EXIT_TEMPFAIL : FAL_EXIT_NO;
}

static void
on_close(void *arg, struct fal_chan *chan, int err, const char *reason)
{
	struct fal_client *c = arg;
	int code = code_of(c, err);
	(void)chan;
	c->chan = NULL;
	/* One that was just started does not listen yet. */
	if (code == FAL_EXIT_TEMPFAIL && err != FAL_ENOENT &&
	    fal_retry_verdict(&c->again, err, uv_hrtime()) < 0) {
		uv_timer_start(&c->retry, on_retry,
			       fal_retry_pause_ms(&c->again, uv_hrtime()), 0);
		return;
	}
	if (err == 0 && !fal_role_may(c->key->role, c->ops->role)) {
		fal_diag_set(c->diag, FAL_EPERM, "%s: the key's role is %s: %s is needed",
			     c->at, fal_role_name(c->key->role),
			     fal_role_name(c->ops->role));
		code = FAL_EXIT_NOPERM;
	} else if (err == 0 && c->ops->on_over != NULL) {
		code = c->ops->on_over(c->ops->arg);
	} else {
		fal_diag_set(c->diag, err, "%s", reason); /* begins with the address */
	}
	fal_client_end(c, code);
}

static int
dial(struct fal_client *c)
{
	const struct fal_chan_ops ops = {
		.arg = c, .on_open = on_open, .on_msg = on_msg, .on_close = on_close
	};
	return fal_dial(&c->loop, c->addr, c->key, &(struct fal_chan_opt){ 0 }, &ops,
			&c->chan);
}

/* Sets up what the session needs, and dials. */
static int
begin(struct fal_client *c)
{
	c->sigint.data = c->silence.data = c->retry.data = c;
	uv_timer_init(&c->loop, &c->silence); /* cannot fail */
	uv_timer_init(&c->loop, &c->retry);
	int err = uv_signal_init(&c->loop, &c->sigint);
	assert(err == 0 && "a loop has its pipe for signals");
	if (c->ops->on_interrupt != NULL &&
	    uv_signal_start(&c->sigint, on_sigint, SIGINT) < 0)
		return FAL_EIO;
	c->again = (struct fal_retry){ .lost = uv_hrtime(), .give_up = FIRST_NS };
	return dial(c);
}

int
fal_client_run(const struct fal_addr *addr, const struct fal_client_key *key,
	       const struct fal_client_ops *ops, struct fal_diag *diag)
{
	struct fal_client c = { .addr = addr, .key = key, .ops = ops, .diag = diag };
	diag->text[0] = '\0';
	fal_addr_format(addr, c.at);
	signal(SIGPIPE, SIG_IGN); /* libuv writes without MSG_NOSIGNAL */
	int err = uv_loop_init(&c.loop);
	if (err < 0) {
		fal_diag_set(diag, FAL_EIO, "%s", uv_strerror(err));
		return FAL_EXIT_NO;
	}
	err = begin(&c);
	if (err < 0)
		fail(&c, err);
	uv_run(&c.loop, UV_RUN_DEFAULT);
	err = uv_loop_close(&c.loop);
	assert(err == 0 && "every handle is closed");
	return c.code;
}
