/* A client's keys, retries, texts and connections. */
#include "net/client.h"

#include "base/build.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "crypto/secret.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
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
fal_client_key_load(const char *prog, const char *option, enum fal_role needed,
		    struct fal_client_key **out)
{
	struct fal_client_key *key = NULL;
	struct fal_diag diag;
	char *text, *path = fal_cli_key_path(option);
	size_t n;
	fal_cli_hide_memory();
	int err = path != NULL ? client_read_secret(path, &text, &n, &diag)
			       : fal_diag_set(&diag, FAL_ENOENT,
					      "no key: give --key FILE, or make keys by "
					      "falcon-key init");
	if (err == FAL_OK) {
		err = fal_client_key_parse(text, n, path, &key, &diag);
		fal_secret_free(text);
	}
	if (err == FAL_OK && needed != FAL_ROLE_NONE &&
	    !fal_role_permits(key->role, needed)) {
		err = fal_diag_set(&diag, FAL_EPERM, "%s: a key of role %s may not %s",
				   path, fal_role_name(key->role), fal_role_name(needed));
		fal_secret_free(key);
	}
	if (err < 0)
		fal_cli_err(prog, "%s", diag.text);
	else
		*out = key;
	free(path);
	return err < 0 ? fal_cli_file_exit_code(err) : FAL_EXIT_DONE;
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
	/* after refusals and nothing else for longer than this, the verdict is
	 * FAL_EXIT_NOPERM */
	REFUSED_MS = 3000,
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

/* ---- the job's texts, in pieces ---------------------------------------------- */

int
fal_texts_begin(struct fal_texts *t, const uint32_t size[static FAL_TEXTS])
{
	static const uint32_t max[FAL_TEXTS] = {
		[FAL_TEXT_JOB] = FAL_TEXT_JOB_MAX,
		[FAL_TEXT_MODEL] = FAL_TEXT_MODEL_MAX,
		[FAL_TEXT_MANIFEST] = FAL_TEXT_MANIFEST_MAX,
	};
	for (unsigned i = 0; i < FAL_TEXTS; i++) {
		if (size[i] == 0 && i != FAL_TEXT_MANIFEST)
			return FAL_EFORMAT;
		if (size[i] > max[i])
			return FAL_ELIMIT;
	}
	for (unsigned i = 0; i < FAL_TEXTS; i++) {
		fal_buf_clear(&t->text[i]);
		t->size[i] = size[i];
	}
	return FAL_OK;
}

int
fal_texts_add(struct fal_texts *t, const struct fal_msg *m)
{
	if (m->text.which >= FAL_TEXTS)
		return FAL_ESTATE;
	struct fal_buf *b = &t->text[m->text.which];
	if (m->text.bytes.n == 0 || m->text.offset != b->n ||
	    m->text.bytes.n > t->size[m->text.which] - b->n)
		return FAL_ESTATE;
	fal_put_bytes(b, m->text.bytes.p, m->text.bytes.n);
	if (b->err < 0)
		return b->err;
	for (unsigned i = 0; i < FAL_TEXTS; i++)
		if (t->text[i].n < t->size[i])
			return 0;
	return 1;
}

bool
fal_texts_equal(const struct fal_texts *a, const struct fal_texts *b)
{
	for (unsigned i = 0; i < FAL_TEXTS; i++)
		if (a->text[i].n != b->text[i].n ||
		    memcmp(a->text[i].p, b->text[i].p, a->text[i].n) != 0)
			return false;
	return true;
}

void
fal_texts_free(struct fal_texts *t)
{
	for (unsigned i = 0; i < FAL_TEXTS; i++)
		fal_buf_free(&t->text[i]);
	*t = (struct fal_texts){ 0 };
}

/* ---- the client: its end ----------------------------------------------------------- */

#define TOOL_NS UINT64_C(10000000000) /* for a tool to reach the coordinator */

/* Sets the reason of the end, and logs the reason. */
static void __attribute__((format(printf, 2, 3)))
client_log_end(struct fal_client *c, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(c->why.text, sizeof(c->why.text), fmt, ap);
	va_end(ap);
	if (c->conf.prog != NULL)
		fal_cli_err(c->conf.prog, "%s", c->why.text);
}

/* The connection has ended, or none was possible: tells the owner. */
static void
client_closed(struct fal_client *c, int code)
{
	c->chan = NULL;
	c->is_open = c->is_ending = c->is_welcomed = c->is_waiting = false;
	c->code = code;
	c->is_over = code >= 0;
	c->addr_index = (c->addr_index + 1) % c->conf.addrs;
	fal_texts_free(&c->texts);
	if (c->conf.retry != NULL)
		uv_timer_stop(&c->timer);
	if (c->conf.retry != NULL && c->is_over)
		uv_close((uv_handle_t *)&c->timer, NULL);
	if (c->conf.is_tool && code == FAL_CLIENT_RETRY)
		fal_client_retry(c, false);
	else if (c->conf.on_close != NULL)
		c->conf.on_close(c->conf.arg, c, code);
}

static void
client_on_end_timer(uv_timer_t *t)
{
	struct fal_client *c = t->data;
	client_closed(c, c->code);
}

/* Begins the end.  Returns whether there is a channel to end. */
static bool
client_begin_end(struct fal_client *c, int code)
{
	if (fal_client_is_over(c))
		return c->chan != NULL;
	c->code = code;
	c->is_ending = true;
	if (c->chan == NULL) /* the owner is called back from the loop */
		uv_timer_start(&c->timer, client_on_end_timer, 0, 0);
	return c->chan != NULL;
}

void
fal_client_abort(struct fal_client *c, int code)
{
	if (client_begin_end(c, code))
		fal_chan_fail(c->chan, FAL_OK, "ended");
}

void
fal_client_end(struct fal_client *c, int code)
{
	if (!c->is_open)
		fal_client_abort(c, code);
	else if (client_begin_end(c, code))
		fal_chan_close(c->chan);
}

void
fal_client_fail(struct fal_client *c, int code, const char *fmt, ...)
{
	struct fal_diag text;
	va_list ap;
	if (fal_client_is_over(c))
		return;
	va_start(ap, fmt);
	vsnprintf(text.text, sizeof(text.text), fmt, ap);
	va_end(ap);
	client_log_end(c, "%s", text.text);
	fal_client_abort(c, code);
}

/* ---- sending, and waiting ---------------------------------------------------------- */

void
fal_client_send_bytes(struct fal_client *c, const struct fal_buf *msg, enum fal_send how)
{
	const int err = c->chan != NULL ? fal_chan_send(c->chan, msg, how) : FAL_OK;
	if (err < 0 && err != FAL_ESTATE) /* FAL_ESTATE: the channel is closing */
		fal_chan_fail(c->chan, FAL_EIO, "%s",
			      err == FAL_ELIMIT ? "it takes messages too slowly"
						: fal_strerror(err));
}

void
fal_client_send(struct fal_client *c, struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	m->incarnation = c->incarnation;
	fal_msg_put(&out, m);
	fal_client_send_bytes(c, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
}

/* No answer came: a relay has lost a message, or the coordinator hangs. */
static void
client_on_silence(uv_timer_t *t)
{
	struct fal_client *c = t->data;
	if (c->conf.is_tool && c->is_open)
		fal_client_fail(c, FAL_EXIT_TEMPFAIL, "%s: no answer in time", c->at);
	else if (c->chan != NULL)
		fal_chan_fail(c->chan, FAL_EIO, "no answer in time");
}

static void
client_await(struct fal_client *c, uint64_t ms)
{
	if (!c->is_ending && c->conf.retry != NULL)
		uv_timer_start(&c->timer, client_on_silence,
			       fal_retry_limit_ms(c->conf.retry, uv_hrtime(), ms), 0);
}

void
fal_client_expect_answer(struct fal_client *c)
{
	client_await(c, FAL_CHAN_DEADLINE_MS);
}

void
fal_client_hello(struct fal_client *c, struct fal_msg *m, const char *name,
		 const uint8_t instance[static FAL_INSTANCE])
{
	m->type = FAL_MSG_HELLO;
	m->hello.schema = fal_msg_schema();
	snprintf(m->hello.name, sizeof(m->hello.name), "%s", name);
	snprintf(m->hello.version, sizeof(m->hello.version), "%s", fal_build());
	memcpy(m->hello.instance, instance, FAL_INSTANCE);
	fal_client_send(c, m);
	fal_client_expect_answer(c);
}

int
fal_client_expect_parts(struct fal_client *c,
			const uint8_t job_hash[static FAL_HASH_BYTES],
			const struct fal_msg *published)
{
	struct fal_publication pub = {
		.id = published->published.publication,
		.count = fal_msg_models(published->published.blocks),
		.key = published->published.key,
		.ad_n = FAL_MODEL_AD,
		.version = published->published.version,
		.first = published->published.first,
		.blocks = published->published.blocks,
	};
	fal_msg_model_ad(job_hash, c->incarnation, pub.version, pub.ad);
	return fal_chan_expect_publication(c->chan, &pub);
}

bool
fal_client_reached(struct fal_client *c)
{
	const bool again = fal_retry_reached(c->conf.retry, uv_hrtime());
	c->is_welcomed = true;
	c->is_candidate = false;
	if (again)
		fal_cli_err(c->conf.prog, "%s: connected again", c->at);
	return again;
}

/* ---- messages ---------------------------------------------------------------------- */

/* Handles a message, or passes the message on. */
static void
client_take_message(struct fal_client *c, const struct fal_msg *m)
{
	const bool has_job = c->conf.on_job != NULL;
	int err = FAL_OK;
	if (c->conf.retry != NULL)
		uv_timer_stop(&c->timer);
	if (m->type == FAL_MSG_REFUSE) {
		const bool is_denied = m->refuse.key != 0 || c->is_candidate;
		client_log_end(c, "%s: refused: %s", c->at, m->refuse.why);
		fal_client_end(c, is_denied ? FAL_EXIT_NOPERM : FAL_EXIT_NO);
	} else if (m->type == FAL_MSG_LATER && c->conf.is_tool) {
		client_log_end(c, "%s: later: %s", c->at, m->later.why);
		fal_client_end(c, FAL_EXIT_TEMPFAIL);
	} else if (m->type == FAL_MSG_LATER) {
		fal_diag_set(&c->later, 0, "%s: %s", c->at, m->later.why);
	} else if (m->type == FAL_MSG_DONE && has_job) {
		client_log_end(c, "done: %s", m->done.why);
		c->job_is_done = true;
		fal_client_end(c, FAL_EXIT_DONE);
	} else if (m->type == FAL_MSG_WELCOME && has_job && c->is_welcomed) {
		err = FAL_ESTATE;
	} else if (m->type == FAL_MSG_WELCOME && has_job) {
		const uint32_t size[FAL_TEXTS] = {
			[FAL_TEXT_JOB] = m->welcome.job_n,
			[FAL_TEXT_MODEL] = m->welcome.model_n,
			[FAL_TEXT_MANIFEST] = m->welcome.manifest_n,
		};
		(void)fal_client_reached(c);
		c->incarnation = m->incarnation;
		c->epoch = m->welcome.epoch;
		c->clock = m->welcome.clock;
		err = m->welcome.manifest_n > 0 ? fal_texts_begin(&c->texts, size)
						: FAL_EFORMAT;
	} else if (m->type == FAL_MSG_TEXT && has_job) {
		err = fal_texts_add(&c->texts, m);
		if (err > 0) {
			err = c->conf.on_job(c->conf.arg, c);
			fal_texts_free(&c->texts);
		}
	} else {
		err = c->conf.on_msg(c->conf.arg, c, m);
	}
	if (err < 0)
		fal_client_fail(c, FAL_EXIT_NO, "%s: %s: %s%s", c->at,
				fal_msg_name(m->type), fal_strerror(err),
				fal_chan_skew(c->chan));
}

static void
client_parse_message(struct fal_client *c, const uint8_t *p, size_t n, bool placed)
{
	struct fal_msg m;
	const int err = fal_msg_get(p, n, &m);
	if (c->is_ending)
		return;
	if (err < 0 || (placed && m.type != FAL_MSG_MODEL)) {
		fal_client_fail(c, FAL_EXIT_NO, "%s: a message that cannot be read%s",
				c->at, fal_chan_skew(c->chan));
		return;
	}
	if (placed)
		m.model.placed = true;
	client_take_message(c, &m);
}

/* ---- the channel ------------------------------------------------------------------- */

static void
client_on_open(void *arg, struct fal_chan *chan)
{
	struct fal_client *c = arg;
	if (c->is_ending)
		return;
	c->is_open = true;
	if (!fal_chan_is_by_door(chan))
		c->avoids_doors = false; /* the next connection tries the door again */
	if (c->conf.is_tool) /* it stays a candidate: every REFUSE denies the key */
		(void)fal_retry_reached(c->conf.retry, uv_hrtime());
	c->conf.on_open(c->conf.arg, c);
}

static void
client_on_msg(void *arg, struct fal_chan *chan, const uint8_t *p, size_t n)
{
	(void)chan;
	client_parse_message(arg, p, n, false);
}

static uint8_t *
client_on_place(void *arg, const struct fal_publication *pub, uint32_t index, size_t n,
		size_t *head)
{
	const struct fal_client *c = arg;
	return c->is_ending ? NULL : c->conf.on_place(c->conf.arg, pub, index, n, head);
}

static void
client_on_placed(void *arg, struct fal_chan *chan, const uint8_t *p, size_t n)
{
	(void)chan;
	client_parse_message(arg, p, n, true);
}

static void
client_on_room(void *arg, struct fal_chan *chan)
{
	const struct fal_client *c = arg;
	(void)chan;
	if (!c->is_ending)
		c->conf.on_room(c->conf.arg);
}

static void
client_on_drain(void *arg, struct fal_chan *chan)
{
	const struct fal_client *c = arg;
	(void)chan;
	c->conf.on_drain(c->conf.arg);
}

/* Judges the end of a tool's connection.  Returns FAL_CLIENT_RETRY; or logs a line and
 * returns an exit code. */
static int
client_judge_tool(struct fal_client *c, int err, const char *reason)
{
	const bool failed = err == FAL_EIO || err == FAL_ETRUNC || err == FAL_ENOENT;
	const int code = err == FAL_EAUTH || err == FAL_EPERM ? FAL_EXIT_NOPERM
			 : failed && !c->is_open              ? FAL_EXIT_TEMPFAIL
							      : FAL_EXIT_NO;
	/* A coordinator that was just started may not listen yet. */
	if (code == FAL_EXIT_TEMPFAIL && err != FAL_ENOENT &&
	    fal_retry_verdict(c->conf.retry, err, uv_hrtime()) < 0) {
		if (fal_retry_is_first(c->conf.retry))
			fal_cli_err(c->conf.prog, "%s; trying again", reason);
		return FAL_CLIENT_RETRY;
	}
	if (err == 0 && !fal_role_permits(c->conf.key->role, c->conf.role)) {
		client_log_end(c, "%s: the key's role is %s: %s is needed", c->at,
			       fal_role_name(c->conf.key->role),
			       fal_role_name(c->conf.role));
		return FAL_EXIT_NOPERM;
	}
	if (err == 0 && c->conf.on_over != NULL)
		return c->conf.on_over(c->conf.arg);
	client_log_end(c, "%s", reason); /* begins with the address */
	return code;
}

static void
client_on_close(void *arg, struct fal_chan *chan, int err, const char *reason)
{
	struct fal_client *c = arg;
	struct fal_retry *r = c->conf.retry;
	int code = FAL_CLIENT_RETRY;
	c->chan = NULL;
	if (c->is_ending) {
		code = c->code;
		/* A coordinator that has sent its last message need not wait for our
		 * last message. */
		if (err < 0 && c->is_leaving)
			fal_cli_err(c->conf.prog, "%s", reason);
	} else if (fal_chan_is_by_door(chan) && !c->is_open) {
		/* The end at a door proves nothing. */
		c->avoids_doors = true;
		if (fal_client_dial(c) == FAL_OK)
			return;
	} else if (c->conf.is_tool) {
		code = client_judge_tool(c, err, reason);
	} else if (r != NULL && c->is_leaving) {
		code = FAL_EXIT_NO;
		client_log_end(c, "%s", reason);
	} else if (r != NULL) {
		const char *why = c->later.text[0] != '\0' ? c->later.text : reason;
		if (why != reason)
			fal_retry_note_later(r);
		code = fal_retry_verdict(r, err, uv_hrtime());
		if (code >= 0)
			client_log_end(c, "%s", reason);
		else if (c->conf.verbose || fal_retry_is_first(r))
			fal_cli_err(c->conf.prog, "%s; trying again", why);
	}
	client_closed(c, code);
}

/* ---- dialling ---------------------------------------------------------------------- */

void
fal_client_init(struct fal_client *c, const struct fal_client_conf *conf)
{
	*c = (struct fal_client){ .conf = *conf };
	c->timer.data = c;
	if (conf->retry != NULL)
		uv_timer_init(conf->loop, &c->timer);
}

int
fal_client_dial(struct fal_client *c)
{
	const struct fal_client_conf *f = &c->conf;
	const struct fal_addr *to = &f->addr[c->addr_index];
	const struct fal_chan_ops ops = {
		.arg = c,
		.on_open = client_on_open,
		.on_msg = client_on_msg,
		.on_place = f->on_place != NULL ? client_on_place : NULL,
		.on_placed = client_on_placed,
		.on_room = f->on_room != NULL ? client_on_room : NULL,
		.on_drain = f->on_drain != NULL ? client_on_drain : NULL,
		.on_close = client_on_close,
	};
	int err = FAL_ENOENT;
	fal_addr_format(to, c->at);
	c->is_waiting = false;
	c->is_candidate = true;
	c->incarnation = 0; /* not known before WELCOME */
	c->later.text[0] = '\0';
	if (f->tries_doors && !c->avoids_doors && f->chan.link == NULL)
		err = fal_dial_door(f->loop, to, f->key, &f->chan, &ops, &c->chan);
	if (err == FAL_ENOENT)
		err = fal_dial(f->loop, to, f->key, &f->chan, &ops, &c->chan);
	if (err == FAL_OK)
		client_await(c, 2 * FAL_CHAN_DEADLINE_MS); /* after the channel's */
	return err;
}

static void
client_on_dial_timer(uv_timer_t *t)
{
	struct fal_client *c = t->data;
	const int err = fal_client_dial(c);
	if (err == FAL_OK)
		return;
	client_log_end(c, "%s: %s", c->at, fal_strerror(err));
	client_closed(c, err == FAL_EINVAL ? FAL_EXIT_USAGE : FAL_EXIT_NO);
}

void
fal_client_retry(struct fal_client *c, bool at_once)
{
	if (c->is_ending || c->is_over)
		return;
	c->is_waiting = true;
	uv_timer_start(&c->timer, client_on_dial_timer,
		       at_once ? 0 : fal_retry_pause_ms(c->conf.retry, uv_hrtime()), 0);
}

/* ---- a tool's client, in a loop of its own ----------------------------------------- */

static void
client_on_sigint(uv_signal_t *h, int signum)
{
	struct fal_client *c = h->data;
	(void)signum;
	fal_client_abort(c, c->conf.on_over != NULL ? c->conf.on_over(c->conf.arg)
						    : FAL_EXIT_DONE);
}

int
fal_client_run(const struct fal_client_conf *conf)
{
	struct fal_client_conf own = *conf;
	struct fal_retry retry = { .lost = uv_hrtime(), .give_up = TOOL_NS };
	struct fal_client c;
	uv_loop_t loop;
	uv_signal_t sigint = { .data = &c };
	signal(SIGPIPE, SIG_IGN); /* libuv writes without MSG_NOSIGNAL */
	int err = uv_loop_init(&loop);
	if (err == 0 && (err = uv_signal_init(&loop, &sigint)) == 0 &&
	    conf->catches_sigint)
		err = uv_signal_start(&sigint, client_on_sigint, SIGINT);
	if (err < 0) {
		fal_cli_err(conf->prog, "%s", uv_strerror(err));
		return FAL_EXIT_NO;
	}
	uv_unref((uv_handle_t *)&sigint);
	own.loop = &loop;
	own.retry = &retry;
	own.is_tool = true;
	fal_client_init(&c, &own);
	fal_client_retry(&c, true);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&sigint, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	err = uv_loop_close(&loop);
	assert(err == 0 && "every handle is closed");
	return c.code;
}
