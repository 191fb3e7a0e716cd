/* The session: one connection after another, and what lives longer than they do.  What is
 * said on them is talk.c's.
 *
 * A connection that is lost takes the agent with it, once no lane works for it any more;
 * lanes, data and net stay as long as the job's texts are the same.
 */
#include "session_priv.h"

#include "base/build.h"
#include "base/mem.h"
#include "cli/notify.h"
#include "net/conn.h"
#include "sec/secret.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEAVE_MS 10000                         /* for leaving the coordinator */
#define ADRIFT_MS 3000                         /* for it to say why a shard has ended */
#define RENEW_NS (3600 * UINT64_C(1000000000)) /* of a session, by another handshake */
#define SLEEP_S 10   /* of the machine: no connection is taken to outlive it */
#define LOOK_MS 2000 /* between looks whether this machine was carried elsewhere */

static void dial(struct session *s);

const struct fal_addr *
session_at(const struct session *s)
{
	return &s->opt->addr[s->at];
}

/* --- ends ------------------------------------------------------------------------- */

/* What waits for the end of the connection and of the lanes' tasks. */
static void
on_over(uv_timer_t *t)
{
	struct session *s = t->data;
	s->over = true;
	uv_close((uv_handle_t *)&s->timer, NULL);
	uv_close((uv_handle_t *)&s->soon, NULL);
	uv_close((uv_handle_t *)&s->look, NULL);
	uv_close((uv_handle_t *)&s->on_term, NULL);
	uv_close((uv_handle_t *)&s->on_int, NULL);
	kit_stop(&s->kit);
}

static void
on_retry(uv_timer_t *t)
{
	struct session *s = t->data;
	s->at = (s->at + 1) % s->opt->addrs;
	dial(s);
}

static void
note_overlap(struct session *s)
{
	const struct fal_agent_overlap o = fal_agent_overlap(s->agent);
	s->overlap.tasks += o.tasks;
	s->overlap.begun += o.begun;
}

void
session_settle(struct session *s)
{
	if (s->over || s->chan != NULL || !links_gone(s) || !kit_idle(&s->kit))
		return;
	links_kill(s);
	if (s->agent != NULL)
		note_overlap(s);
	fal_agent_free(s->agent);
	s->agent = NULL;
	if (s->ending)
		uv_timer_start(&s->timer, on_over, 0, 0);
	else
		uv_timer_start(&s->timer, on_retry,
			       s->renews ? 0 : fal_retry_pause_ms(&s->retry, uv_hrtime()),
			       0);
}

static void
lose(struct session *s)
{
	s->chan = NULL;
	uv_timer_stop(&s->timer);
	s->open = s->welcome = s->ready = s->admitted = false;
	if (!s->ending && !s->renews)
		links_kill(s);
	kit_halt(&s->kit, s->ending);
	session_settle(s);
}

void
session_fail(struct session *s, int code, const char *fmt, ...)
{
	struct fal_diag text;
	va_list ap;
	if (s->ending)
		return;
	va_start(ap, fmt);
	vsnprintf(text.text, sizeof(text.text), fmt, ap);
	va_end(ap);
	fal_cli_err(PROG, "%s", text.text);
	if (s->chan != NULL && s->welcome && !s->ready) {
		struct fal_msg m = { .type = FAL_MSG_LEAVE };
		snprintf(m.leave.why, sizeof(m.leave.why), "it cannot work: %.200s",
			 text.text);
		session_send(s, &m);
		session_end(s, code);
		return;
	}
	s->code = code;
	s->ending = true;
	if (s->chan != NULL)
		fal_chan_kill(s->chan);
	links_kill(s);
	lose(s);
}

void
session_end(struct session *s, int code)
{
	if (s->ending)
		return;
	s->code = code;
	s->ending = true;
	links_close(s);
	if (s->open) {
		fal_chan_close(s->chan);
	} else {
		if (s->chan != NULL)
			fal_chan_kill(s->chan);
		lose(s);
	}
}

void
session_after(struct session *s, int err)
{
	if (err == FAL_OK && s->denied.text[0] != '\0' && !s->leaving && !s->ending) {
		fal_cli_err(PROG, "%s: leaving", s->denied.text);
		session_leave(s);
		fal_agent_leave(s->agent, uv_hrtime(),
				"the job came to need more memory than it has");
	}
	if (err == FAL_OK)
		session_push(s);
	const int trouble = s->trouble;
	s->trouble = FAL_OK;
	if (trouble == FAL_ELIMIT && !s->ending && !s->leaving) {
		fal_cli_err(PROG, "%s: too slow for what is to be sent; reconnecting",
			    s->addr);
		fal_chan_kill(s->chan);
		lose(s);
	} else if (err == FAL_ENONFINITE) { /* the coordinator is to hear of it */
		fal_cli_err(PROG,
			    "%s: its local steps led to weights that are not finite",
			    s->addr);
		session_end(s, FAL_EXIT_NO);
	} else if (err < 0 || trouble < 0) {
		session_fail(s, FAL_EXIT_NO, "%s: %s", s->addr,
			     fal_strerror(err < 0 ? err : trouble));
	} else if (s->renews && fal_agent_left(s->agent)) {
		links_close(s);
		fal_chan_close(s->chan);
	} else if (s->leaving && fal_agent_left(s->agent)) {
		session_end(s, s->denied.text[0] != '\0' ? FAL_EXIT_NO : FAL_EXIT_DONE);
	}
}

static void
on_soon(uv_timer_t *t)
{
	struct session *s = t->data;
	if (s->chan != NULL && s->trouble < 0)
		session_after(s, FAL_OK);
	s->trouble = FAL_OK;
}

void
session_trouble(struct session *s, int err)
{
	s->trouble = err;
	uv_timer_start(&s->soon, on_soon, 0, 0);
}

static void
on_late(uv_timer_t *t)
{
	struct session *s = t->data;
	if (s->pushed != 0) { /* it takes what is pushed before LEAVE */
		s->pushed = 0;
		uv_timer_start(&s->timer, on_late, LEAVE_MS, 0);
		return;
	}
	if (s->chan != NULL && !s->ending)
		fal_chan_fail(s->chan, FAL_EIO, "does not answer");
}

void
session_leave(struct session *s)
{
	s->leaving = true;
	s->pushed = 0;
	if (!s->renews)
		fal_cli_notify("STOPPING=1");
	uv_timer_start(&s->timer, on_late, LEAVE_MS, 0);
}

/* --- the connection --------------------------------------------------------------- */

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct session *s = arg;
	const bool far = session_goes_far(s, c, s->open);
	s->chan = NULL;
	if (far) {
		dial(s);
		return;
	}
	if (s->ending) {
		/* A coordinator that has said the last word need not wait for ours. */
		if (err < 0 && s->leaving)
			fal_cli_err(PROG, "%s", reason);
		lose(s);
		return;
	}
	s->leaving = s->leaving && !s->renews;
	s->renews = s->renews && err == FAL_OK;
	if (s->renews) {
		lose(s);
		return;
	}
	const int code = s->leaving ? FAL_EXIT_NO
				    : fal_retry_after(&s->retry, PROG, err, reason,
						      &s->later, s->opt->verbose);
	if (code >= 0) {
		session_fail(s, code, "%s", reason);
		return;
	}
	if (s->ready)
		fal_cli_notify("STATUS=reconnecting");
	lose(s);
}

static void
on_adrift(uv_timer_t *t)
{
	struct session *s = t->data;
	if (s->chan != NULL && links_adrift(s)) /* else others have its blocks by now */
		fal_chan_fail(s->chan, FAL_EIO, "the stream to a shard has ended");
}

void
session_adrift(struct session *s)
{
	if (s->chan == NULL)
		session_settle(s);
	else if (!s->leaving && !s->ending)
		uv_timer_start(&s->timer, on_adrift, ADRIFT_MS, 0);
}

/* WELCOME did not come: what carries the stream may have swallowed HELLO. */
static void
on_silent(uv_timer_t *t)
{
	struct session *s = t->data;
	if (s->chan != NULL)
		fal_chan_fail(s->chan, FAL_EIO, "no answer in time");
}

/* It has so many ms to answer, if it is looked for as long. */
static void
await(struct session *s, uint64_t ms)
{
	ms = fal_retry_left_ms(&s->retry, uv_hrtime(), ms);
	uv_timer_start(&s->timer, on_silent, ms, 0);
}

static void
on_open(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	const struct work_opt *opt = s->opt;
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	s->open = true;
	if (!fal_chan_is_near(c))
		s->far = false; /* the next session has another try */
	fal_chan_compress(c, opt->compress);
	m.hello.schema = fal_msg_schema();
	snprintf(m.hello.name, sizeof(m.hello.name), "%s", opt->name);
	snprintf(m.hello.version, sizeof(m.hello.version), "%s", fal_build());
	m.hello.lanes_min = opt->lanes_min;
	m.hello.lanes_max = opt->lanes_max;
	m.hello.cores = opt->cores;
	memcpy(m.hello.instance, s->instance, sizeof(s->instance));
	s->incarnation = 0; /* not known before WELCOME */
	session_send(s, &m);
	await(s, FAL_CHAN_DEADLINE_MS);
}

int
session_dial(struct session *s, const struct fal_addr *at,
	     const struct fal_client_key *key, const struct fal_chan_ops *ops,
	     struct fal_chan **out)
{
	const struct fal_chan_opt opt = { .link = fal_emul_link(s->opt->emulate),
					  .unseals = true };
	int err = FAL_ENOENT;
	if (session_goes_near(s))
		err = fal_dial_near(&s->loop, at, key, &opt, ops, out);
	return err == FAL_ENOENT ? fal_dial(&s->loop, at, key, &opt, ops, out) : err;
}

bool
session_goes_far(struct session *s, const struct fal_chan *c, bool opened)
{
	const bool misled = fal_chan_is_near(c) && !opened && !s->ending;
	s->far = s->far || misled;
	return misled;
}

static void
dial(struct session *s)
{
	const struct fal_chan_ops ops = { .arg = s,
					  .on_open = on_open,
					  .on_msg = session_on_msg,
					  .on_place = session_on_place,
					  .on_placed = session_on_placed,
					  .on_room = session_on_room,
					  .on_drain = session_on_drain,
					  .on_close = on_close };
	fal_addr_format(session_at(s), s->addr);
	s->renews = false;
	int err = session_dial(s, session_at(s), s->opt->key, &ops, &s->chan);
	if (err < 0)
		session_fail(s, err == FAL_EINVAL ? FAL_EXIT_USAGE : FAL_EXIT_NO,
			     "%s: %s", s->addr, fal_strerror(err));
	else
		await(s, 2 * FAL_CHAN_DEADLINE_MS); /* the channel's comes before */
}

/* Of the networks that this machine is in. */
static uint64_t
hash_addresses(void)
{
	uv_interface_address_t *all;
	uint64_t hash = 1;
	int n;
	if (uv_interface_addresses(&all, &n) < 0)
		return hash;
	for (int i = 0; i < n; i++) {
		uint64_t net[2]; /* all of IPv4, and the prefix of IPv6 */
		memcpy(net, &all[i].address, sizeof(net));
		hash = (hash ^ net[0] ^ net[1] << 1) * 0x9e3779b97f4a7c15;
	}
	uv_free_interface_addresses(all, n);
	return hash;
}

/* Was this machine carried elsewhere?  A connection from an address that is gone is dead,
 * and nobody says so; what could not be reached before may be reached from here. */
static void
on_look(uv_timer_t *t)
{
	struct session *s = t->data;
	const uint64_t addresses = hash_addresses();
	struct timespec boot = { 0 }, awake = { 0 };
	(void)clock_gettime(CLOCK_BOOTTIME, &boot); /* Linux has both */
	(void)clock_gettime(CLOCK_MONOTONIC, &awake);
	const int64_t slept = boot.tv_sec - awake.tv_sec;
	const bool asleep = s->looks > 0 && slept - s->slept > SLEEP_S;
	const bool moved = s->looks > 0 && (asleep || addresses != s->addresses);
	const bool dials = s->chan != NULL && !s->open;
	s->addresses = addresses;
	s->slept = slept;
	if (s->looks++ == 1 && dials && fal_retry_is_first(&s->retry))
		fal_cli_err(PROG, "%s: does not answer yet", s->addr);
	if (s->ending || s->leaving)
		return;
	if (moved)
		fal_retry_anew(&s->retry);
	if (moved && s->chan == NULL && uv_is_active((uv_handle_t *)&s->timer))
		uv_timer_start(&s->timer, on_retry, 0, 0);
	/* Those that began together do not come back together. */
	if (s->ready && uv_hrtime() - s->retry.came >
				RENEW_NS - s->instance[0] * UINT64_C(2000000000)) {
		s->renews = true;
		session_leave(s);
		fal_agent_leave(s->agent, uv_hrtime(), "a new session");
		session_after(s, FAL_OK);
		return;
	}
	if (s->chan != NULL &&
	    (asleep || (moved && dials) || fal_chan_is_stranded(s->chan)))
		fal_chan_fail(s->chan, FAL_EIO, "this machine %s",
			      asleep ? "slept" : "has another address now");
}

/* --- signals, beginning and end --------------------------------------------------- */

static void
on_signal(uv_signal_t *h, int sig)
{
	struct session *s = h->data;
	if (s->leaving && !s->renews)
		_exit(FAL_EXIT_NO);
	const bool left = s->chan != NULL && s->renews && fal_agent_left(s->agent);
	s->renews = false;
	if (left || s->chan == NULL || !s->ready) {
		s->leaving = true;
		fal_cli_notify("STOPPING=1");
		session_end(s, FAL_EXIT_DONE);
		return;
	}
	session_leave(s);
	fal_agent_leave(s->agent, uv_hrtime(), sig == SIGINT ? "SIGINT" : "SIGTERM");
	session_after(s, FAL_OK);
}

/* 0, or what libuv says. */
static int
start(struct session *s)
{
	const int bad = uv_loop_init(&s->loop);
	if (bad < 0)
		return bad;
	uv_timer_init(&s->loop, &s->timer);
	uv_timer_init(&s->loop, &s->soon);
	uv_timer_init(&s->loop, &s->look);
	uv_signal_init(&s->loop, &s->on_term);
	uv_signal_init(&s->loop, &s->on_int);
	s->timer.data = s->soon.data = s->look.data = s->on_term.data = s->on_int.data =
		s;
	uv_timer_start(&s->look, on_look, 0, LOOK_MS);
	uv_signal_start(&s->on_term, on_signal, SIGTERM);
	uv_signal_start(&s->on_int, on_signal, SIGINT);
	return 0;
}

int
session_run(const struct work_opt *opt)
{
	struct session *s = fal_calloc(1, sizeof(*s));
	const int bad = s != NULL ? start(s) : UV_ENOMEM;
	if (bad < 0) {
		fal_cli_err(PROG, "%s", uv_strerror(bad));
		free(s);
		return FAL_EXIT_NO;
	}
	s->opt = opt;
	s->retry.lost = uv_hrtime();
	s->retry.give_up = opt->give_up * 1000000000;
	fal_random_bytes(s->instance, sizeof(s->instance));
	dial(s);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	uv_loop_close(&s->loop);
	if (s->due_ns > 0)
		session_say_late(s);
	if (opt->verbose && s->overlap.tasks > 0)
		session_say_overlap(s);
	const int code = s->code;
	kit_forget(&s->kit);
	fal_texts_free(&s->coming);
	free(s);
	return code;
}
