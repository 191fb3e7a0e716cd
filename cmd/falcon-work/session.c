/* The session: one connection after another, and what lives longer than they do.
 *
 * A connection that is lost takes the agent with it, once no lane works for it any more;
 * lanes, data and net stay as long as the job's texts are the same.
 */
#include "session.h"

#include "base/mem.h"
#include "cli/notify.h"
#include "feed.h"
#include "lane.h"
#include "net/dial.h"
#include "peer/agent.h"
#include "probe.h"
#include "setup.h"
#include "texts.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	FIRST_MS = 10000,     /* for reaching the coordinator at all */
	LEAVE_MS = 10000,     /* for leaving it */
	RETRY_MS = 200,       /* the first pause; then twice as long each */
	RETRY_MAX_MS = 30000, /* the longest */
	RETRY_FIRST_MAX_MS = 1000,
	AUTH_TRIES = 3,      /* a coordinator that dies looks like a wrong key */
	COMPRESS_EVERY = 100 /* versions between measurements */
};

struct session {
	const struct work_opt *opt;
	uv_loop_t loop;
	uv_timer_t timer; /* retry, deadline of leaving, or the end */
	uv_signal_t on_term, on_int;
	char addr[FAL_ADDR_MAX + 16];

	/* of the connection */
	struct fal_chan *chan;
	struct fal_agent *agent;
	struct texts coming;
	uint32_t incarnation;
	uint64_t clock;
	bool open, welcome, ready, admitted;
	int trouble; /* of something in a callback of the agent */

	/* of the job */
	bool made, waiting; /* waiting: for the probe of the job before */
	struct texts texts;
	uint8_t job_hash[FAL_HASH_BYTES];
	struct setup setup;
	struct feed *feed;
	struct lanes *lanes;
	struct epoch **epoch; /* by lane: the order its task uses, or NULL */
	struct probe probe;

	bool reached;              /* a coordinator, ever */
	unsigned tries, unwelcome; /* since it was reached; refused keys among them */
	uint64_t began;
	bool leaving, ending, over;
	int code;
	uint64_t due_ns, late_ns; /* of all emulated tasks */
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
	lanes_free(s->lanes);
	feed_free(s->feed);
	s->lanes = NULL;
	s->feed = NULL;
}

static void
on_retry(uv_timer_t *t)
{
	dial(t->data);
}

/* How long to wait before the next attempt: doubling, with jitter. */
static uint64_t
pause_ms(struct session *s)
{
	const uint64_t most = s->reached ? RETRY_MAX_MS : RETRY_FIRST_MAX_MS;
	uint64_t ms = (uint64_t)RETRY_MS << (s->tries < 16 ? s->tries : 16);
	uint8_t jitter;
	s->tries++;
	fal_random_bytes(&jitter, sizeof(jitter));
	if (ms > most)
		ms = most;
	return ms / 2 + ms / 2 * jitter / UINT8_MAX;
}

/* The connection is gone; once the lanes have noticed, the agent goes. */
static void
settle(struct session *s)
{
	if (s->over || s->chan != NULL || (s->lanes != NULL && !lanes_idle(s->lanes)))
		return;
	fal_agent_free(s->agent);
	s->agent = NULL;
	if (s->ending)
		uv_timer_start(&s->timer, on_over, 0, 0);
	else
		uv_timer_start(&s->timer, on_retry, pause_ms(s), 0);
}

static void
lose(struct session *s)
{
	s->chan = NULL;
	s->open = s->welcome = s->ready = s->admitted = s->waiting = false;
	if (s->feed != NULL)
		feed_stop(s->feed);
	for (uint32_t i = 0; s->lanes != NULL && i < s->opt->lanes_max; i++)
		lane_cancel(s->lanes, i);
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
	if (trouble == FAL_ELIMIT && !s->ending) {
		fal_cli_err(PROG, "%s: too slow for what is to be sent; reconnecting",
			    s->addr);
		fal_chan_kill(s->chan);
		lose(s);
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
	const struct emulate *e = &s->opt->emulate;
	struct fal_msg m = { .type = FAL_MSG_READY };
	memcpy(m.ready.fingerprint, s->probe.fingerprint, FAL_FINGERPRINT);
	m.ready.task_ns = e->rate > 0 ? emulate_ns(e, s->setup.job.task, 1, false)
				      : s->probe.task_ns;
	s->ready = true;
	send_msg(s, &m);
	fal_cli_notify("READY=1\nSTATUS=working");
	if (s->opt->verbose)
		fal_cli_err(PROG, "%s: joined job %s; a task takes %.3f ms", s->addr,
			    s->setup.job.name, (double)m.ready.task_ns * 1e-6);
}

/* --- lanes ------------------------------------------------------------------------ */

static void
agent_run(void *arg, uint32_t lane, const struct fal_run *run)
{
	struct session *s = arg;
	const struct places p = run->eval
					? setup_test_places(&s->setup, run->task)
					: setup_places(&s->setup, run->clock, run->task);
	struct desk_job job = { .run = *run, .first = p.first, .count = p.count };
	if (p.count == 0) {
		s->trouble = FAL_EFORMAT;
		return;
	}
	job.batch.samples = feed_samples(s->feed, run->eval);
	job.batch.norm = &s->setup.norm;
	job.batch.order = &s->setup.test_order;
	if (!run->eval) {
		s->epoch[lane] = setup_epoch(&s->setup, p.epoch);
		if (s->epoch[lane] == NULL) {
			s->trouble = FAL_ENOMEM;
			return;
		}
		job.batch.order = &s->epoch[lane]->order;
	}
	const bool here = feed_has(s->feed, run->eval, job.batch.order, p.first, p.count);
	lane_start(s->lanes, lane, &job, here);
	if (!here)
		feed_hurry(s->feed, run->eval, job.batch.order, p.first, p.count);
}

static void
agent_cancel(void *arg, uint32_t lane)
{
	struct session *s = arg;
	lane_cancel(s->lanes, lane);
}

static void
on_lane_end(void *arg, uint32_t lane, const struct lane_end *e)
{
	struct session *s = arg;
	epoch_drop(s->epoch[lane]);
	s->epoch[lane] = NULL;
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
	}
	after(s, fal_agent_finished(s->agent, uv_hrtime(), lane, &e->ran));
}

/* --- the job ---------------------------------------------------------------------- */

static void
feed_get(void *arg, bool test, uint32_t chunk)
{
	struct session *s = arg;
	struct fal_msg m = { .type = FAL_MSG_CHUNK_GET };
	m.chunk_get.test = test;
	m.chunk_get.chunk = chunk;
	send_msg(s, &m);
}

static void begin_job(struct session *s);

static void
on_chunk(void *arg)
{
	struct session *s = arg;
	for (uint32_t i = 0; i < s->opt->lanes_max; i++) {
		const struct desk_job *j = lane_waits(s->lanes, i);
		if (j != NULL &&
		    feed_has(s->feed, j->run.eval, j->batch.order, j->first, j->count))
			lane_begin(s->lanes, i);
	}
	if (!s->ready && s->probe.done && feed_first(s->feed))
		send_ready(s);
}

static void
on_probed(void *arg)
{
	struct session *s = arg;
	if (s->ending)
		return;
	if (s->waiting)
		begin_job(s);
	else if (s->probe.err < 0)
		fail(s, FAL_EXIT_NO, "probing: %s", fal_strerror(s->probe.err));
	else if (s->agent != NULL)
		on_chunk(s);
}

static void
forget_job(struct session *s)
{
	lanes_free(s->lanes);
	feed_free(s->feed);
	free(s->epoch);
	setup_free(&s->setup);
	texts_free(&s->texts);
	s->lanes = NULL;
	s->feed = NULL;
	s->epoch = NULL;
	s->made = false;
	s->probe.done = false;
}

/* Whether the job is within --max-memory. */
static bool
affordable(struct session *s)
{
	const uint64_t need = setup_bytes(&s->setup, s->opt->lanes_max);
	const uint64_t most = s->opt->max_memory;
	if (s->opt->verbose)
		fal_cli_err(PROG, "job %s needs %" PRIu64 " MiB", s->setup.job.name,
			    (need >> 20) + 1);
	if (most == 0 || need <= most)
		return true;
	fail(s, FAL_EXIT_NO,
	     "job %s needs %" PRIu64 " bytes, --max-memory allows %" PRIu64,
	     s->setup.job.name, need, most);
	return false;
}

/* Lanes and data for s->setup. */
static int
equip(struct session *s)
{
	const struct work_opt *opt = s->opt;
	const struct lanes_conf conf = { .net = s->setup.net,
					 .lanes = opt->lanes_max,
					 .emulate = opt->emulate,
					 .arg = s,
					 .on_end = on_lane_end };
	const struct feed_ops ops = { s, feed_get, on_chunk };
	s->epoch = fal_calloc(opt->lanes_max, sizeof(struct epoch *));
	int err = s->epoch == NULL ? FAL_ENOMEM : FAL_OK;
	if (err == FAL_OK)
		err = feed_new(&s->loop, &s->setup.manifest, opt->cache, &ops, &s->feed);
	if (err == FAL_OK)
		err = lanes_new(&s->loop, &conf, &s->lanes);
	if (err == FAL_OK)
		err = probe_start(&s->probe, &s->loop, s->setup.net, s->setup.job.seed,
				  on_probed, s);
	return err;
}

/* From the texts in s->texts to all that computes; false: the session has ended. */
static bool
make_job(struct session *s)
{
	const struct fal_buf *t = s->texts.text;
	const struct setup_text job = { "job", t[FAL_TEXT_JOB].p, t[FAL_TEXT_JOB].n };
	const struct setup_text model = { "model", t[FAL_TEXT_MODEL].p,
					  t[FAL_TEXT_MODEL].n };
	struct fal_diag diag;
	int err = fal_manifest_parse(t[FAL_TEXT_MANIFEST].p, t[FAL_TEXT_MANIFEST].n,
				     &s->setup.manifest);
	if (err < 0)
		fal_diag_set(&diag, err, "manifest: %s", fal_strerror(err));
	else
		err = setup_make(&s->setup, &job, &model, &diag);
	if (err < 0) {
		fail(s, FAL_EXIT_NO, "%s: %s", s->addr, diag.text);
		return false;
	}
	s->made = true;
	fal_hash(job.p, job.n, s->job_hash);
	if (!affordable(s))
		return false;
	err = equip(s);
	if (err < 0) {
		fail(s, FAL_EXIT_NO, "%s", fal_strerror(err));
		return false;
	}
	if (s->opt->data != NULL &&
	    feed_fill(s->feed, s->opt->data, &s->setup.job, &diag) < 0) {
		fail(s, FAL_EXIT_USAGE, "%s", diag.text);
		return false;
	}
	return true;
}

/* The texts are whole: an agent, and the first data. */
static void
begin_job(struct session *s)
{
	const struct fal_agent_ops ops = { s, agent_send, agent_run, agent_cancel };
	s->waiting = false;
	if (!s->made || !texts_equal(&s->texts, &s->coming)) {
		s->waiting = s->probe.running;
		if (s->waiting)
			return;
		forget_job(s);
		s->texts = s->coming;
		s->coming = (struct texts){ 0 };
		if (!make_job(s))
			return;
	}
	const struct fal_job *job = &s->setup.job;
	const struct fal_agent_conf conf = { .n = s->setup.model->params,
					     .lanes_max = s->opt->lanes_max,
					     .incarnation = s->incarnation,
					     .checksums =
						     job->audit == FAL_JOB_AUDIT_SUMS,
					     .checksum_seed = job->seed };
	const struct places p = setup_places(&s->setup, s->clock, 0);
	struct epoch *e = setup_epoch(&s->setup, p.epoch);
	s->agent = fal_agent_new(&conf, &ops);
	if (e == NULL || s->agent == NULL ||
	    feed_start(s->feed, &e->order, p.first, job->task) < 0)
		fail(s, FAL_EXIT_NO, "%s", fal_strerror(FAL_ENOMEM));
	else
		on_chunk(s);
	epoch_drop(e);
}

/* --- messages --------------------------------------------------------------------- */

static int
on_welcome(struct session *s, const struct fal_msg *m)
{
	if (s->welcome)
		return FAL_ESTATE;
	s->welcome = s->reached = true;
	s->tries = s->unwelcome = 0;
	s->incarnation = m->incarnation;
	s->clock = m->welcome.clock;
	return texts_begin(&s->coming, m);
}

static int
on_text(struct session *s, const struct fal_msg *m)
{
	if (!s->welcome || s->agent != NULL || s->waiting)
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
	const uint32_t blocks = fal_blocks(s->setup.model->params);
	struct fal_publication pub = {
		.id = m->version.publication,
		.count = (blocks + FAL_MODEL_BLOCKS - 1) / FAL_MODEL_BLOCKS,
		.key = m->version.key,
		.ad_n = FAL_MODEL_AD,
	};
	fal_msg_model_ad(s->job_hash, s->incarnation, m->version.version, pub.ad);
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

/* What the agent is to hear. */
static int
on_agent_msg(struct session *s, const struct fal_msg *m)
{
	if (!s->ready)
		return FAL_ESTATE;
	int err = m->type == FAL_MSG_VERSION ? on_version(s, m) : FAL_OK;
	s->admitted = true;
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
		err = s->agent != NULL ? feed_chunk(s->feed, &m) : FAL_ESTATE;
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
}

/* The exit code for a connection that ended so, or -1 to try again. */
static int
verdict(struct session *s, int err)
{
	if (err == FAL_EAUTH && ++s->unwelcome >= (s->reached ? AUTH_TRIES : 1))
		return FAL_EXIT_NOPERM;
	if (err == FAL_EVERSION || s->leaving)
		return FAL_EXIT_NO;
	if (!s->reached && uv_hrtime() - s->began > FIRST_MS * UINT64_C(1000000))
		return FAL_EXIT_TEMPFAIL;
	return -1;
}

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct session *s = arg;
	(void)c;
	s->chan = NULL;
	if (s->ending) {
		if (err < 0)
			fal_cli_err(PROG, "%s", reason);
		lose(s);
		return;
	}
	const int code = verdict(s, err);
	if (code >= 0) {
		fail(s, code, "%s", reason);
		return;
	}
	if (s->opt->verbose || (s->reached && s->tries == 0))
		fal_cli_err(PROG, "%s; trying again", reason);
	if (s->ready)
		fal_cli_notify("STATUS=reconnecting");
	lose(s);
}

static void
dial(struct session *s)
{
	const struct fal_chan_ops ops = { s, on_open, on_msg, on_drain, on_close };
	const struct fal_chan_opt defaults = { 0 };
	int err =
		fal_dial(&s->loop, &s->opt->addr, s->opt->key, &defaults, &ops, &s->chan);
	if (err < 0)
		fail(s, err == FAL_EINVAL ? FAL_EXIT_USAGE : FAL_EXIT_NO, "%s: %s",
		     s->addr, fal_strerror(err));
}

/* --- signals, beginning and end --------------------------------------------------- */

static void
on_late(uv_timer_t *t)
{
	struct session *s = t->data;
	fail(s, FAL_EXIT_NO, "%s: does not answer", s->addr);
}

static void
on_signal(uv_signal_t *h, int sig)
{
	struct session *s = h->data;
	if (s->leaving)
		_exit(FAL_EXIT_NO);
	s->leaving = true;
	fal_cli_notify("STOPPING=1");
	if (s->chan == NULL || !s->ready) {
		end(s, FAL_EXIT_DONE);
		return;
	}
	uv_timer_start(&s->timer, on_late, LEAVE_MS, 0);
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
	s->began = uv_hrtime();
	fal_addr_format(&opt->addr, s->addr);
	dial(s);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	uv_loop_close(&s->loop);
	if (s->due_ns > 0)
		fal_cli_err(PROG, "emulate: %.1f %% late",
			    100 * (double)s->late_ns / (double)s->due_ns);
	const int code = s->code;
	forget_job(s);
	texts_free(&s->coming);
	free(s);
	return code;
}
