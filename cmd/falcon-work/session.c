/* The session: one connection after another, and what lives longer than they do.
 *
 * A connection that is lost takes the agent with it, once no lane works for it any more;
 * lanes, data and net stay as long as the job's texts are the same.
 */
#include "session.h"

#include "base/mem.h"
#include "cli/notify.h"
#include "kit.h"
#include "net/dial.h"
#include "peer/agent.h"
#include "retry.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	LEAVE_MS = 10000,    /* for leaving the coordinator */
	COMPRESS_EVERY = 100 /* versions between measurements */
};

#define LATE_EVERY_NS UINT64_C(10000000000) /* of emulated tasks, with -v */

struct session {
	const struct work_opt *opt;
	uv_loop_t loop;
	uv_timer_t timer; /* retry, deadline of WELCOME or of leaving, or the end */
	uv_signal_t on_term, on_int;
	char addr[FAL_ADDR_MAX + 16];

	/* of the connection */
	struct fal_chan *chan;
	struct fal_agent *agent;
	struct texts coming;
	uint32_t incarnation, map_epoch;
	uint64_t clock;
	bool open, welcome, ready, admitted;
	int trouble; /* of something in a callback of the agent */

	struct kit kit;
	struct retry retry;
	bool leaving, ending, over;
	int code;
	uint64_t due_ns, late_ns; /* of all emulated tasks */
	uint64_t said_ns;         /* due_ns when that was last said */
};

static void dial(struct session *s);
static void lose(struct session *s);

/* --- ends ------------------------------------------------------------------------- */

/* What waits for the end of the connection and of the lanes' tasks. */
static void
on_over(uv_timer_t *t)
{
	struct session *s = t->data;
	s->over = true;
	uv_close((uv_handle_t *)&s->timer, NULL);
	uv_close((uv_handle_t *)&s->on_term, NULL);
	uv_close((uv_handle_t *)&s->on_int, NULL);
	kit_stop(&s->kit);
}

static void
on_retry(uv_timer_t *t)
{
	dial(t->data);
}

/* The connection is gone; once lanes and pool are through with what
 * they do for it, the agent goes. */
static void
settle(struct session *s)
{
	if (s->over || s->chan != NULL || !kit_idle(&s->kit))
		return;
	fal_agent_free(s->agent);
	s->agent = NULL;
	if (s->ending)
		uv_timer_start(&s->timer, on_over, 0, 0);
	else
		uv_timer_start(&s->timer, on_retry, retry_pause_ms(&s->retry), 0);
}

static void
lose(struct session *s)
{
	s->chan = NULL;
	s->open = s->welcome = s->ready = s->admitted = false;
	kit_halt(&s->kit);
	settle(s);
}

/* Ends the session at once, for the reason given. */
static void __attribute__((format(printf, 3, 4)))
fail(struct session *s, int code, const char *fmt, ...)
{
	struct fal_diag text;
	va_list ap;
	if (s->ending)
		return;
	va_start(ap, fmt);
	vsnprintf(text.text, sizeof(text.text), fmt, ap);
	va_end(ap);
	fal_cli_err(PROG, "%s", text.text);
	s->code = code;
	s->ending = true;
	if (s->chan != NULL)
		fal_chan_kill(s->chan);
	lose(s);
}

/* Ends the session when what was sent has left. */
static void
end(struct session *s, int code)
{
	if (s->ending)
		return;
	s->code = code;
	s->ending = true;
	if (s->open) {
		fal_chan_close(s->chan);
	} else {
		if (s->chan != NULL)
			fal_chan_kill(s->chan);
		lose(s);
	}
}

/* After each call of the agent, which returned `err`. */
static void
after(struct session *s, int err)
{
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
		end(s, FAL_EXIT_NO);
	} else if (err < 0 || trouble < 0) {
		fail(s, FAL_EXIT_NO, "%s: %s", s->addr,
		     fal_strerror(err < 0 ? err : trouble));
	} else if (s->leaving && fal_agent_left(s->agent)) {
		end(s, FAL_EXIT_DONE);
	}
}

/* --- sending ---------------------------------------------------------------------- */

static void
agent_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct session *s = arg;
	if (s->chan == NULL)
		return;
	int err = fal_chan_send(s->chan, msg, bulk ? FAL_SEND_BULK : FAL_SEND_CONTROL);
	if (err < 0 && err != FAL_ESTATE) /* closing: all was said */
		s->trouble = err;
}

static void
send_msg(struct session *s, struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	m->incarnation = s->incarnation;
	int err = fal_msg_put(&out, m);
	if (err == FAL_OK)
		agent_send(s, &out, false);
	fal_buf_free(&out);
	if (err < 0)
		s->trouble = err;
}

static void
send_ready(struct session *s)
{
	const struct emulate *e = s->opt->emulate;
	struct fal_msg m = { .type = FAL_MSG_READY };
	memcpy(m.ready.fingerprint, s->kit.probe.fingerprint, FAL_FINGERPRINT);
	m.ready.task_ns = e != NULL ? emulate_probe_ns(e, s->kit.setup.job.task)
				    : s->kit.probe.task_ns;
	s->ready = true;
	send_msg(s, &m);
	fal_cli_notify("READY=1\nSTATUS=working");
	if (s->opt->verbose)
		fal_cli_err(PROG, "%s: joined job %s; a task takes %.3f ms", s->addr,
			    s->kit.setup.job.name, (double)m.ready.task_ns * 1e-6);
}

/* --- the job ---------------------------------------------------------------------- */

static void
agent_run(void *arg, uint32_t lane, const struct fal_run *run)
{
	struct session *s = arg;
	int err = kit_run(&s->kit, lane, run);
	if (err < 0)
		s->trouble = err;
}

static void
agent_cancel(void *arg, uint32_t lane)
{
	struct session *s = arg;
	kit_cancel(&s->kit, lane);
}

/* By how much emulation falls behind. */
static void
say_late(struct session *s)
{
	s->said_ns = s->due_ns;
	fal_cli_err(PROG, "emulate: %.1f %% late",
		    100 * (double)s->late_ns / (double)s->due_ns);
}

static void
on_lane_end(void *arg, uint32_t lane, const struct lane_end *e)
{
	struct session *s = arg;
	kit_ended(&s->kit, lane);
	if (e->err < 0)
		fail(s, FAL_EXIT_NO, "a task: %s", fal_strerror(e->err));
	if (s->chan == NULL) {
		settle(s);
		return;
	}
	if (e->emulated) {
		s->due_ns += e->due_ns;
		s->late_ns += e->late_ns;
		fal_agent_late(s->agent, e->late_ns);
		if (s->opt->verbose && s->due_ns - s->said_ns > LATE_EVERY_NS)
			say_late(s);
	}
	after(s, fal_agent_finished(s->agent, uv_hrtime(), lane, &e->ran));
}

static void
get_chunk(void *arg, bool test, uint32_t chunk)
{
	struct session *s = arg;
	struct fal_msg m = { .type = FAL_MSG_CHUNK_GET };
	m.chunk_get.test = test;
	m.chunk_get.chunk = chunk;
	send_msg(s, &m);
}

static void
on_chunk(void *arg)
{
	struct session *s = arg;
	kit_resume(&s->kit);
	if (!s->ready && !s->ending && kit_ready(&s->kit))
		send_ready(s);
}

/* The probe, or a local copy of the data, has come to its end. */
static void
on_prepared(void *arg)
{
	struct session *s = arg;
	const struct kit *k = &s->kit;
	if (!k->probe.running && k->probe.err < 0)
		fail(s, FAL_EXIT_NO, "probing: %s", fal_strerror(k->probe.err));
	else if (!k->fill.running && k->fill.err < 0)
		fail(s, FAL_EXIT_USAGE, "%s", k->fill.diag.text);
	if (s->chan == NULL)
		settle(s);
	else if (s->agent != NULL)
		on_chunk(s);
}

/* A kit for the texts that have come; false: the session has ended. */
static bool
renew_kit(struct session *s)
{
	const struct kit_conf conf = { .loop = &s->loop,
				       .opt = s->opt,
				       .arg = s,
				       .on_end = on_lane_end,
				       .get = get_chunk,
				       .on_chunk = on_chunk,
				       .on_prepared = on_prepared };
	struct fal_diag diag;
	kit_forget(&s->kit);
	if (kit_make(&s->kit, &conf, &s->coming, &diag) == FAL_OK)
		return true;
	fail(s, FAL_EXIT_NO, "%s", diag.text);
	return false;
}

/* The texts are whole: an agent, and the first data. */
static void
begin_job(struct session *s)
{
	const struct fal_agent_ops ops = { s, agent_send, agent_run, agent_cancel };
	const bool same = s->kit.made && texts_equal(&s->kit.texts, &s->coming);
	if (!same && !renew_kit(s))
		return;
	const struct fal_job *job = &s->kit.setup.job;
	const struct fal_agent_conf conf = { .n = s->kit.setup.model->params,
					     .lanes_max = s->opt->lanes_max,
					     .incarnation = s->incarnation,
					     .map_epoch = s->map_epoch,
					     .optim = job->optim,
					     .checksums =
						     job->audit == FAL_JOB_AUDIT_SUMS,
					     .checksum_seed = job->seed };
	s->agent = fal_agent_new(&conf, &ops);
	int err = s->agent == NULL ? FAL_ENOMEM : kit_fetch(&s->kit, s->clock);
	if (err < 0)
		fail(s, FAL_EXIT_NO, "%s", fal_strerror(err));
	else
		on_chunk(s);
}

/* --- messages --------------------------------------------------------------------- */

static int
on_welcome(struct session *s, const struct fal_msg *m)
{
	if (s->welcome)
		return FAL_ESTATE;
	s->welcome = true;
	uv_timer_stop(&s->timer);
	retry_reached(&s->retry);
	s->incarnation = m->incarnation;
	s->clock = m->welcome.clock;
	s->map_epoch = m->welcome.epoch;
	return texts_begin(&s->coming, m);
}

static int
on_text(struct session *s, const struct fal_msg *m)
{
	if (!s->welcome || s->agent != NULL)
		return FAL_ESTATE;
	int all = texts_add(&s->coming, m);
	if (all > 0)
		begin_job(s);
	return all < 0 ? all : FAL_OK;
}

/* A version comes as shared records: the channel must know their key first. */
static int
on_version(struct session *s, const struct fal_msg *m)
{
	const uint32_t blocks = fal_blocks(s->kit.setup.model->params);
	struct fal_publication pub = {
		.id = m->version.publication,
		.count = (blocks + FAL_MODEL_BLOCKS - 1) / FAL_MODEL_BLOCKS,
		.key = m->version.key,
		.ad_n = FAL_MODEL_AD,
	};
	fal_msg_model_ad(s->kit.job_hash, s->incarnation, m->version.version, pub.ad);
	if (s->opt->compress == FAL_COMPRESS_AUTO &&
	    m->version.version % COMPRESS_EVERY == 0)
		fal_chan_compress(s->chan, FAL_COMPRESS_AUTO);
	return fal_chan_expect_shared(s->chan, &pub);
}

static void
on_done(struct session *s, const struct fal_msg *m)
{
	fal_cli_err(PROG, "done: %s", m->done.why);
	end(s, FAL_EXIT_DONE);
}

/* Before WELCOME it is the key that is not permitted, between READY and the first word of
 * the scheduler this machine's numerics. */
static void
on_refuse(struct session *s, const struct fal_msg *m)
{
	const bool judged = !s->welcome || (s->ready && !s->admitted);
	fal_cli_err(PROG, "%s: refused: %s", s->addr, m->refuse.why);
	end(s, judged ? FAL_EXIT_NOPERM : FAL_EXIT_NO);
}

static void
on_late(uv_timer_t *t)
{
	struct session *s = t->data;
	fail(s, FAL_EXIT_NO, "%s: does not answer", s->addr);
}

/* The agent is about to leave: with its last claims answered, and in time. */
static void
begin_leaving(struct session *s)
{
	s->leaving = true;
	fal_cli_notify("STOPPING=1");
	uv_timer_start(&s->timer, on_late, LEAVE_MS, 0);
}

/* What the agent is to hear. */
static int
on_agent_msg(struct session *s, const struct fal_msg *m)
{
	if (!s->ready)
		return FAL_ESTATE;
	int err = m->type == FAL_MSG_VERSION ? on_version(s, m) : FAL_OK;
	s->admitted = true;
	if (m->type == FAL_MSG_DRAIN && !s->leaving) {
		fal_cli_err(PROG, "drained: %s", m->drain.why);
		begin_leaving(s);
	}
	if (err == FAL_OK)
		after(s, fal_agent_msg(s->agent, uv_hrtime(), m));
	return err;
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct session *s = arg;
	struct fal_msg m;
	(void)c;
	int err = fal_msg_get(p, n, &m);
	if (err < 0 || !fal_msg_may_send(m.type, FAL_FROM_COORDINATOR)) {
		fail(s, FAL_EXIT_NO, "%s: a message that cannot be read", s->addr);
		return;
	}
	if (m.type == FAL_MSG_WELCOME)
		err = on_welcome(s, &m);
	else if (m.type == FAL_MSG_TEXT)
		err = on_text(s, &m);
	else if (m.type == FAL_MSG_CHUNK)
		err = s->agent != NULL ? kit_chunk(&s->kit, &m) : FAL_ESTATE;
	else if (m.type == FAL_MSG_DONE)
		on_done(s, &m);
	else if (m.type == FAL_MSG_REFUSE)
		on_refuse(s, &m);
	else
		err = on_agent_msg(s, &m);
	if (err < 0)
		fail(s, FAL_EXIT_NO, "%s: %s: %s", s->addr, fal_msg_name(m.type),
		     fal_strerror(err));
}

static void
on_drain(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	(void)c;
	if (s->agent != NULL)
		fal_agent_flushed(s->agent, uv_hrtime());
}

/* --- the connection --------------------------------------------------------------- */

/* The connection has ended, as of on_close (fal_chan_ops). */
static void
part(struct session *s, int err, const char *reason)
{
	s->chan = NULL;
	if (s->ending) {
		/* A coordinator that has said the last word need not wait for ours. */
		if (err < 0 && s->leaving)
			fal_cli_err(PROG, "%s", reason);
		lose(s);
		return;
	}
	const int code =
		s->leaving ? FAL_EXIT_NO : retry_verdict(&s->retry, err, uv_hrtime());
	if (code >= 0) {
		fail(s, code, "%s", reason);
		return;
	}
	if (s->opt->verbose || retry_is_first(&s->retry))
		fal_cli_err(PROG, "%s; trying again", reason);
	if (s->ready)
		fal_cli_notify("STATUS=reconnecting");
	lose(s);
}

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	(void)c;
	part(arg, err, reason);
}

/* WELCOME did not come: what carries the stream may have swallowed HELLO. */
static void
on_silent(uv_timer_t *t)
{
	struct session *s = t->data;
	struct fal_diag why;
	if (s->chan == NULL)
		return;
	fal_chan_kill(s->chan);
	fal_diag_set(&why, FAL_EIO, "%s: no answer within %g s", s->addr,
		     FAL_CHAN_DEADLINE_MS / 1e3);
	part(s, FAL_EIO, why.text);
}

static void
on_open(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	const struct work_opt *opt = s->opt;
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	s->open = true;
	fal_chan_compress(c, opt->compress);
	m.hello.major = FAL_PROTO_MAJOR;
	m.hello.minor = FAL_PROTO_MINOR;
	snprintf(m.hello.name, sizeof(m.hello.name), "%s", opt->name);
	snprintf(m.hello.version, sizeof(m.hello.version), "%s", FAL_VERSION);
	m.hello.lanes_min = opt->lanes_min;
	m.hello.lanes_max = opt->lanes_max;
	m.hello.cores = opt->cores;
	s->incarnation = 0; /* not known before WELCOME */
	send_msg(s, &m);
	uv_timer_start(&s->timer, on_silent, FAL_CHAN_DEADLINE_MS, 0);
}

static void
dial(struct session *s)
{
	const struct fal_chan_ops ops = { s, on_open, on_msg, on_drain, on_close };
	const struct fal_chan_opt opt = { .link = emulate_link(s->opt->emulate) };
	int err = fal_dial(&s->loop, &s->opt->addr, s->opt->key, &opt, &ops, &s->chan);
	if (err < 0)
		fail(s, err == FAL_EINVAL ? FAL_EXIT_USAGE : FAL_EXIT_NO, "%s: %s",
		     s->addr, fal_strerror(err));
}

/* --- signals, beginning and end --------------------------------------------------- */

static void
on_signal(uv_signal_t *h, int sig)
{
	struct session *s = h->data;
	if (s->leaving)
		_exit(FAL_EXIT_NO);
	if (s->chan == NULL || !s->ready) {
		s->leaving = true;
		fal_cli_notify("STOPPING=1");
		end(s, FAL_EXIT_DONE);
		return;
	}
	begin_leaving(s);
	after(s, fal_agent_leave(s->agent, uv_hrtime(),
				 sig == SIGINT ? "SIGINT" : "SIGTERM"));
}

static int
start(struct session *s)
{
	if (uv_loop_init(&s->loop) < 0)
		return FAL_EIO;
	uv_timer_init(&s->loop, &s->timer);
	uv_signal_init(&s->loop, &s->on_term);
	uv_signal_init(&s->loop, &s->on_int);
	s->timer.data = s->on_term.data = s->on_int.data = s;
	uv_signal_start(&s->on_term, on_signal, SIGTERM);
	uv_signal_start(&s->on_int, on_signal, SIGINT);
	return FAL_OK;
}

int
session_run(const struct work_opt *opt)
{
	struct session *s = fal_calloc(1, sizeof(*s));
	if (s == NULL || start(s) < 0) {
		fal_cli_err(PROG, "%s", fal_strerror(FAL_ENOMEM));
		free(s);
		return FAL_EXIT_NO;
	}
	s->opt = opt;
	s->retry.began = uv_hrtime();
	fal_addr_format(&opt->addr, s->addr);
	dial(s);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	uv_loop_close(&s->loop);
	if (s->due_ns > 0)
		say_late(s);
	const int code = s->code;
	kit_forget(&s->kit);
	texts_free(&s->coming);
	free(s);
	return code;
}
