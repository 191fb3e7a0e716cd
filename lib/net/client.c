/* A client's keys, retries, and session. */
#include "net/client.h"

#include "cli/cli.h"
#include "cli/file.h"
#include "crypto/secret.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- keys and compression on the command line ------------------------------------ */

/* Reads a file into locked memory, if the system has some; free with fal_secret_free. For
 * a regular file the locked memory is little larger than the file, as the limit may be
 * small. */
static int
client_read_secret(const char *path, char **out, size_t *n, struct fal_diag *diag)
{
	struct stat st;
	const bool sized = stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
			   st.st_size < (off_t)FAL_KEYRING_MAX;
	const size_t most = sized ? (size_t)st.st_size + 4096 : FAL_KEYRING_MAX;
	char *text = fal_secret_alloc(most);
	if (!fal_secret_locked(text, most))
		fal_cli_err(program_invocation_short_name,
			    "keys are not in locked memory, and may be written to swap: "
			    "see ulimit -l");
	int err = fal_cli_read_into(path, text, most, n, diag);
	if (err == FAL_OK)
		*out = text;
	else
		fal_secret_free(text);
	return err;
}

int
fal_client_key_load(const char *option, enum fal_role needed, struct fal_client_key **out,
		    struct fal_diag *diag)
{
	struct fal_client_key *key = NULL;
	char *text, *path = fal_cli_key_path(option);
	size_t n;
	if (path == NULL)
		return fal_diag_set(diag, FAL_ENOENT, "no key: give --key FILE");
	int err = client_read_secret(path, &text, &n, diag);
	if (err == FAL_OK) {
		err = fal_client_key_parse(text, n, path, &key, diag);
		fal_secret_free(text);
	}
	if (err == FAL_OK && needed != FAL_ROLE_NONE &&
	    !fal_role_permits(key->role, needed)) {
		err = fal_diag_set(diag, FAL_EPERM, "%s: a key of role %s may not %s",
				   path, fal_role_name(key->role), fal_role_name(needed));
		fal_secret_free(key);
	}
	if (err == FAL_OK)
		*out = key;
	free(path);
	return err;
}

int
fal_keyring_load(const char *path, struct fal_keyring **out, struct fal_diag *diag)
{
	char *text;
	size_t n;
	int err = client_read_secret(path, &text, &n, diag);
	if (err < 0)
		return err;
	err = fal_keyring_parse(text, n, path, out, diag);
	fal_secret_free(text);
	return err;
}

int
fal_compress_parse(const char *word, enum fal_compress *out)
{
	static const char *const words[] = { [FAL_COMPRESS_NEVER] = "never",
					     [FAL_COMPRESS_ALWAYS] = "always",
					     [FAL_COMPRESS_AUTO] = "auto" };
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(word, words[i]) == 0) {
			*out = (enum fal_compress)i;
			return FAL_OK;
		}
	return FAL_EINVAL;
}

/* ---- retries ------------------------------------------------------------------ */

enum {
	REFUSED_MS = 3000,         /* refusals alone for so long: FAL_EXIT_NOPERM */
	LEAST_MS = 1000,           /* for the last attempt */
	PAUSE_FIRST_MAX_MS = 1000, /* until the first success, and while refused */
};

bool
fal_retry_reached(struct fal_retry *r, uint64_t now)
{
	const bool again = r->was_reached && r->lost != 0;
	r->was_reached = true;
	r->has_paused = false;
	r->lost = 0;
	r->came = now;
	r->refused_since = 0;
	r->was_unanswered = false;
	return again;
}

void
fal_retry_note_later(struct fal_retry *r)
{
	r->has_paused = r->has_paused && r->was_reached;
	r->was_reached = true;
}

bool
fal_retry_is_first(const struct fal_retry *r)
{
	return (r->was_reached || r->refused_since == 0) && !r->has_paused;
}

/* ns until the client gives up. */
static uint64_t
retry_time_left(const struct fal_retry *r, uint64_t now)
{
	const uint64_t gone = r->lost != 0 ? now - r->lost : 0;
	return r->give_up == 0 ? UINT64_MAX : gone < r->give_up ? r->give_up - gone : 0;
}

int
fal_retry_verdict(struct fal_retry *r, int err, uint64_t now)
{
	if (err == FAL_EVERSION)
		return FAL_EXIT_NO;
	const bool refused = err == FAL_EAUTH || (err == FAL_EPERM && !r->was_reached);
	if (refused && r->refused_since != 0)
		return now - r->refused_since > REFUSED_MS * UINT64_C(1000000)
			       ? FAL_EXIT_NOPERM
			       : -1;
	r->refused_since = 0;
	if (refused) {
		r->refused_since = now;
		r->tries = 0;
		r->has_paused = false;
	}
	if (err == FAL_EPERM && r->was_reached && !r->was_unanswered) {
		r->was_unanswered = true; /* another reason than before: news */
		r->has_paused = false;
	}
	if (r->lost == 0) {
		r->lost = now;
		if (now - r->came > r->last_pause)
			r->tries = 0;
	}
	return retry_time_left(r, now) == 0 ? FAL_EXIT_TEMPFAIL : -1;
}

int
fal_retry_report(struct fal_retry *r, const char *prog, int err, const char *why,
		 struct fal_diag *later, bool each)
{
	const char *reason = later->text[0] != '\0' ? later->text : why;
	if (reason != why)
		fal_retry_note_later(r);
	const int code = fal_retry_verdict(r, err, uv_hrtime());
	if (code < 0 && (each || fal_retry_is_first(r)))
		fal_cli_err(prog, "%s; trying again", reason);
	later->text[0] = '\0';
	return code;
}

uint64_t
fal_retry_limit_ms(const struct fal_retry *r, uint64_t now, uint64_t most)
{
	const uint64_t ms = retry_time_left(r, now) / 1000000;
	return ms > most ? most : ms < LEAST_MS ? LEAST_MS : ms;
}

uint64_t
fal_retry_pause_ms(struct fal_retry *r, uint64_t now)
{
	const uint64_t left = retry_time_left(r, now) / 1000000 + 1;
	const bool is_short = !r->was_reached || r->refused_since != 0;
	const uint64_t most = is_short ? PAUSE_FIRST_MAX_MS : FAL_RETRY_PAUSE_MAX_MS;
	uint64_t ms = (uint64_t)FAL_RETRY_PAUSE_MS << (r->tries < 16 ? r->tries : 16);
	uint8_t jitter;
	r->tries++;
	r->has_paused = true;
	fal_random_bytes(&jitter, sizeof(jitter));
	if (ms > most)
		ms = most;
	ms = ms / 2 + ms / 2 * jitter / UINT8_MAX;
	if (ms > left)
		ms = left;
	r->last_pause = ms * 1000000;
	return ms;
}

/* ---- one channel in one loop ------------------------------------------------------- */

#define FIRST_NS UINT64_C(10000000000) /* for reaching the coordinator */

struct fal_client {
	const struct fal_addr *addr;
	const struct fal_client_key *key;
	const struct fal_client_ops *ops;
	struct fal_diag *diag;
	char at[FAL_ADDR_MAX + 16]; /* the address as text */
	uv_loop_t loop;
	uv_signal_t sigint;
	uv_timer_t silence, retry;
	struct fal_retry retries;
	struct fal_chan *chan; /* NULL: closed */
	bool was_opened, is_over;
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
	return c->is_over;
}

void
fal_client_end(struct fal_client *c, int code)
{
	if (c->is_over)
		return;
	c->is_over = true;
	c->code = code;
	if (c->chan != NULL)
		fal_chan_kill(c->chan);
	uv_close((uv_handle_t *)&c->sigint, NULL);
	uv_close((uv_handle_t *)&c->silence, NULL);
	uv_close((uv_handle_t *)&c->retry, NULL);
	if (c->ops->on_end != NULL)
		c->ops->on_end(c->ops->arg);
}

/* Ends the session by an error of our own. */
static void
client_fail(struct fal_client *c, int err)
{
	fal_diag_set(c->diag, err, "%s: %s", c->at, fal_strerror(err));
	fal_client_end(c, fal_cli_exit_code(err));
}

static void
client_on_sigint(uv_signal_t *h, int signum)
{
	struct fal_client *c = h->data;
	(void)signum;
	fal_client_end(c, c->ops->on_interrupt(c->ops->arg));
}

static void
client_on_silence(uv_timer_t *h)
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
	fal_msg_put(&out, m);
	int err = fal_chan_send(c->chan, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
	if (err < 0)
		client_fail(c, err);
}

void
fal_client_expect_answer(struct fal_client *c)
{
	if (!c->is_over)
		uv_timer_start(&c->silence, client_on_silence, FAL_CHAN_DEADLINE_MS, 0);
}

/* ---- the channel --------------------------------------------------------------- */

static void
client_on_open(void *arg, struct fal_chan *chan)
{
	struct fal_client *c = arg;
	(void)chan;
	c->was_opened = true;
	c->ops->on_open(c->ops->arg, c);
}

/* Handles a message: FAL_CLIENT_CONTINUE, or an exit code. */
static int
client_on_message(struct fal_client *c, const struct fal_msg *m)
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
	if (code != FAL_CLIENT_UNEXPECTED)
		return code;
	fal_diag_set(c->diag, FAL_ESTATE, "%s: a message that is not for us: %s", c->at,
		     fal_msg_name(m->type));
	return FAL_EXIT_NO;
}

static void
client_on_bytes(void *arg, struct fal_chan *chan, const uint8_t *p, size_t n)
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
	int code = client_on_message(c, &m);
	if (code != FAL_CLIENT_CONTINUE)
		fal_client_end(c, code);
}

static int client_dial(struct fal_client *c);

static void
client_on_retry(uv_timer_t *h)
{
	struct fal_client *c = h->data;
	int err = client_dial(c);
	if (err < 0)
		client_fail(c, err);
}

static void
client_on_close(void *arg, struct fal_chan *chan, int err, const char *reason)
{
	struct fal_client *c = arg;
	const bool failed = err == FAL_EIO || err == FAL_ETRUNC || err == FAL_ENOENT;
	int code = err == FAL_EAUTH || err == FAL_EPERM ? FAL_EXIT_NOPERM
		   : failed && !c->was_opened           ? FAL_EXIT_TEMPFAIL
							: FAL_EXIT_NO;
	(void)chan;
	c->chan = NULL;
	/* A coordinator that was just started may not listen yet. */
	if (code == FAL_EXIT_TEMPFAIL && err != FAL_ENOENT &&
	    fal_retry_verdict(&c->retries, err, uv_hrtime()) < 0) {
		uv_timer_start(&c->retry, client_on_retry,
			       fal_retry_pause_ms(&c->retries, uv_hrtime()), 0);
		return;
	}
	if (err == 0 && !fal_role_permits(c->key->role, c->ops->role)) {
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
client_dial(struct fal_client *c)
{
	const struct fal_chan_ops ops = { .arg = c,
					  .on_open = client_on_open,
					  .on_msg = client_on_bytes,
					  .on_close = client_on_close };
	return fal_dial(&c->loop, c->addr, c->key, &(struct fal_chan_opt){ 0 }, &ops,
			&c->chan);
}

int
fal_client_run(const struct fal_addr *addr, const struct fal_client_key *key,
	       const struct fal_client_ops *ops, struct fal_diag *diag)
{
	struct fal_client c = { .addr = addr,
				.key = key,
				.ops = ops,
				.diag = diag,
				.retries = { .lost = uv_hrtime(), .give_up = FIRST_NS } };
	diag->text[0] = '\0';
	fal_addr_format(addr, c.at);
	signal(SIGPIPE, SIG_IGN); /* libuv writes without MSG_NOSIGNAL */
	int err = uv_loop_init(&c.loop);
	if (err < 0) {
		fal_diag_set(diag, FAL_EIO, "%s", uv_strerror(err));
		return FAL_EXIT_NO;
	}
	c.sigint.data = c.silence.data = c.retry.data = &c;
	uv_timer_init(&c.loop, &c.silence); /* cannot fail */
	uv_timer_init(&c.loop, &c.retry);
	err = uv_signal_init(&c.loop, &c.sigint);
	assert(err == 0 && "a loop has its pipe for signals");
	if (ops->on_interrupt != NULL)
		err = uv_signal_start(&c.sigint, client_on_sigint, SIGINT);
	err = err < 0 ? FAL_EIO : client_dial(&c);
	if (err < 0)
		client_fail(&c, err);
	uv_run(&c.loop, UV_RUN_DEFAULT);
	err = uv_loop_close(&c.loop);
	assert(err == 0 && "every handle is closed");
	return c.code;
}
