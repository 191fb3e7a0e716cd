/* What is said: messages in and out, between the coordinator, the agent and the kit. */
#include "base/text.h"
#include "cli/notify.h"
#include "exec.h"
#include "session_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COMPRESS_EVERY 100 /* versions between measurements */

#define LATE_EVERY_NS UINT64_C(10000000000) /* of emulated tasks, with -v */

/* --- sending ---------------------------------------------------------------------- */

static void
agent_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct session *s = arg;
	if (s->chan == NULL)
		return;
	int err = fal_chan_send(s->chan, msg, bulk ? FAL_SEND_BULK : FAL_SEND_CONTROL);
	if (err < 0 && err != FAL_ESTATE) /* closing: all was said */
		session_trouble(s, err);
}

/* To the shard that has its blocks. */
static void
agent_push(void *arg, uint32_t shard, const struct fal_buf *msg)
{
	struct session *s = arg;
	int err = links_push(s, shard, msg);
	if (err == 0)
		agent_send(s, msg, true);
	else if (err < 0)
		session_trouble(s, err);
}

/* With no other process there is nobody else to push to. */
static bool
agent_early(void *arg)
{
	const struct session *s = arg;
	return s->links.n == 0;
}

/* What is done beside computing wants a core of its own: one is there where the
 * coordinator is elsewhere, or, if no more is to be done than to copy, where others leave
 * one. */
static bool
has_room(struct session *s)
{
	return !fal_chan_is_local(s->chan) ||
	       (fal_chan_is_unsealed(s->chan) &&
		spare_core(&s->spare, uv_hrtime(), fal_agent_lanes(s->agent)));
}

static bool
agent_begins(void *arg)
{
	struct session *s = arg;
	return kit_begins(&s->kit) && has_room(s);
}

static void
agent_came(void *arg, uint32_t lane, uint32_t blocks)
{
	struct session *s = arg;
	kit_came(&s->kit, lane, blocks);
}

void
session_send(struct session *s, struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	m->incarnation = s->incarnation;
	int err = fal_msg_put(&out, m);
	if (err == FAL_OK)
		agent_send(s, &out, false);
	fal_buf_free(&out);
	if (err < 0)
		session_trouble(s, err);
}

/* Which tensors are not stepped, for a line. */
static void
put_frozen(const struct fal_model *m, char out[static 256])
{
	uint32_t more = 0;
	size_t n = 0;
	out[0] = '\0';
	for (uint32_t i = 0; i < m->tensors; i++)
		if (m->tensor[i].frozen && n + strlen(m->tensor[i].name) < 200)
			n += (size_t)snprintf(out + n, 256 - n, "%s %s",
					      n == 0 ? "; not stepped:" : ",",
					      m->tensor[i].name);
		else
			more += m->tensor[i].frozen;
	if (more > 0)
		snprintf(out + n, 256 - n, " and %u more", more);
}

static void
send_ready(struct session *s)
{
	const struct fal_emul *e = s->opt->emulate;
	struct fal_msg m = { .type = FAL_MSG_READY };
	memcpy(m.ready.fingerprint, s->kit.probe.found.fingerprint, FAL_FINGERPRINT);
	memcpy(m.ready.kernels, s->kit.probe.found.kernels, sizeof(m.ready.kernels));
	memcpy(m.ready.data, s->kit.probe.found.data, FAL_DATA_HASH);
	m.ready.task_ns = s->kit.probe.found.task_ns;
	m.ready.large = s->kit.probe.found.large;
	m.ready.large_ns = s->kit.probe.found.large_ns;
	if (e != NULL) {
		m.ready.task_ns = fal_emul_probe_ns(e, s->kit.setup.job.task);
		m.ready.large_ns = fal_emul_probe_ns(e, m.ready.large);
	}
	s->ready = true;
	session_send(s, &m);
	fal_cli_notify("READY=1\nSTATUS=working");
	char not_stepped[256];
	put_frozen(s->kit.setup.model, not_stepped);
	if (s->opt->verbose)
		fal_cli_err(PROG, "%s: joined job %s by %s%s; a task takes %.3f ms%s",
			    s->addr, s->kit.setup.job.name,
			    fal_suite_name(fal_chan_suite(s->chan)),
			    fal_chan_is_unsealed(s->chan) ? ", unsealed on this machine"
							  : "",
			    (double)m.ready.task_ns * 1e-6, not_stepped);
}

/* --- the job ---------------------------------------------------------------------- */

static void
agent_run(void *arg, uint32_t lane, const struct fal_run *run)
{
	struct session *s = arg;
	int err = kit_run(&s->kit, lane, run);
	if (err < 0)
		session_trouble(s, err);
}

static void
agent_cancel(void *arg, uint32_t lane)
{
	struct session *s = arg;
	kit_cancel(&s->kit, lane);
}

static uint64_t
agent_steps(void *arg)
{
	const struct session *s = arg;
	return kit_steps(&s->kit);
}

/* The job has come to need more.  Without sums for what waits it is slower, and goes on.
 */
static bool
agent_grow(void *arg, const struct fal_agent_most *to)
{
	struct session *s = arg;
	const struct fal_agent_most *was = &s->kit.most;
	struct fal_diag why;
	if (kit_grow(&s->kit, s->opt, to, s->links.n, &why) == FAL_OK)
		return true;
	if (to->versions != was->versions || to->delta != was->delta)
		s->denied = why;
	return false;
}

void
session_say_overlap(struct session *s)
{
	const struct fal_agent_overlap *o = &s->overlap;
	fal_cli_err(PROG,
		    "overlap: %" PRIu64 " of %" PRIu64
		    " tasks began before all of their version was here",
		    o->begun, o->tasks);
}

void
session_say_late(struct session *s)
{
	s->said_ns = s->due_ns;
	fal_cli_err(PROG, "emulate: %.1f %% late",
		    100 * (double)s->late_ns / (double)s->due_ns);
}

/* Its trainer can do nothing for the job: the coordinator is told why. */
static void
resign(struct session *s, const char *why)
{
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	m.leave.cause = FAL_LEAVE_TRAINER;
	fal_text_plain(m.leave.why, sizeof(m.leave.why), why);
	if (s->welcome && !s->ending)
		session_send(s, &m);
	session_end(s, FAL_EXIT_NO);
}

/* No more can be computed on the lane. */
static void
fail(struct session *s, const char *what, uint32_t lane, int err)
{
	struct fal_diag why;
	if (err != FAL_EPERM) {
		session_fail(s, FAL_EXIT_NO, "%s: %s", what, fal_strerror(err));
		return;
	}
	trainer_trouble(s->opt->exec->trainer[lane], &why); /* it was said */
	resign(s, why.text);
}

static void
on_lane_end(void *arg, uint32_t lane, const struct lane_end *e)
{
	struct session *s = arg;
	kit_ended(&s->kit, lane);
	if (e->err < 0)
		fail(s, "a task", lane, e->err);
	if (e->err == FAL_OK && e->ran.room > 0 && !s->kit.large_said) {
		struct fal_diag what;
		s->kit.large_said = true;
		fal_run_say_large(e->ran.most, e->ran.room, &what);
		fal_cli_err(PROG, "%s: a %s", s->kit.setup.job.name, what.text);
	}
	if (s->chan == NULL) {
		session_settle(s);
		return;
	}
	if (e->emulated) {
		s->due_ns += e->due_ns;
		s->late_ns += e->late_ns;
		fal_agent_late(s->agent, e->late_ns);
		if (s->opt->verbose && s->due_ns - s->said_ns > LATE_EVERY_NS)
			session_say_late(s);
	}
	session_after(s, fal_agent_finished(s->agent, uv_hrtime(), lane, &e->ran));
}

static void
get_chunk(void *arg, bool test, uint32_t chunk)
{
	struct session *s = arg;
	struct fal_msg m = { .type = FAL_MSG_CHUNK_GET };
	m.chunk_get.test = test;
	m.chunk_get.chunk = chunk;
	session_send(s, &m);
}

static void
on_chunk(void *arg)
{
	struct session *s = arg;
	kit_resume(&s->kit);
	if (!s->ready && !s->ending && kit_ready(&s->kit) && links_open(s))
		send_ready(s);
}

void
session_attached(struct session *s)
{
	if (s->agent == NULL)
		return;
	on_chunk(s);
	if (s->ready && !s->ending)
		session_after(s, FAL_OK); /* what waits for that stream goes out */
}

/* The probe, or a local copy of the data, has come to its end. */
static void
on_prepared(void *arg)
{
	struct session *s = arg;
	const struct kit *k = &s->kit;
	if (!k->probe.running && k->probe.err < 0)
		fail(s, "probing", k->probe.found.lane, k->probe.err);
	else if (!k->fill.running && k->fill.err < 0)
		session_fail(s, FAL_EXIT_USAGE, "%s", k->fill.diag.text);
	if (s->chan == NULL)
		session_settle(s);
	else if (s->agent != NULL)
		on_chunk(s);
}

/* A kit for the texts that have come; false: the session has ended. */
static bool
renew_kit(struct session *s)
{
	const struct kit_conf conf = { .loop = &s->loop,
				       .opt = s->opt,
				       .streams = s->links.n,
				       .arg = s,
				       .on_end = on_lane_end,
				       .get = get_chunk,
				       .on_chunk = on_chunk,
				       .on_prepared = on_prepared };
	struct fal_diag diag;
	kit_forget(&s->kit);
	if (kit_make(&s->kit, &conf, &s->coming, &diag) == FAL_OK)
		return true;
	session_fail(s, FAL_EXIT_NO, "%s", diag.text);
	return false;
}

/* The texts are whole: an agent, and the first data. */
static void
begin_job(struct session *s)
{
	const struct fal_agent_ops ops = { .arg = s,
					   .send = agent_send,
					   .run = agent_run,
					   .cancel = agent_cancel,
					   .steps = agent_steps,
					   .push = agent_push,
					   .early = agent_early,
					   .begins = agent_begins,
					   .came = agent_came,
					   .grow = agent_grow };
	const bool same = s->kit.made && fal_texts_equal(&s->kit.texts, &s->coming);
	if (!same && !renew_kit(s))
		return;
	struct fal_agent_conf conf = kit_agent_conf(&s->kit, s->opt);
	conf.serial = (uint64_t)++s->agents << 40;
	conf.incarnation = s->incarnation;
	conf.map_epoch = s->map_epoch;
	s->agent = fal_agent_new(&conf, &ops);
	int err = kit_fetch(&s->kit, s->clock);
	if (err == FAL_OK)
		err = links_dial(s);
	if (err < 0)
		session_fail(s, FAL_EXIT_NO, "%s", fal_strerror(err));
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
	if (fal_retry_reached(&s->retry, uv_hrtime()))
		fal_cli_err(PROG, "%s: connected again", s->addr);
	s->incarnation = m->incarnation;
	s->clock = m->welcome.clock;
	s->map_epoch = m->welcome.epoch;
	return fal_texts_begin(&s->coming, m);
}

static int
on_text(struct session *s, const struct fal_msg *m)
{
	if (!s->welcome || s->agent != NULL)
		return FAL_ESTATE;
	int all = fal_texts_add(&s->coming, m);
	if (all > 0)
		begin_job(s);
	return all < 0 ? all : FAL_OK;
}

/* A shard's part of a version comes as shared records: the channel must know their key
 * first. */
static int
on_published(struct session *s, struct fal_chan *c, const struct fal_msg *m)
{
	struct fal_publication pub = {
		.id = m->published.publication,
		.count = fal_msg_models(m->published.blocks),
		.key = m->published.key,
		.ad_n = FAL_MODEL_AD,
		.version = m->published.version,
		.first = m->published.first,
		.blocks = m->published.blocks,
	};
	fal_msg_model_ad(s->kit.job_hash, s->incarnation, m->published.version, pub.ad);
	return fal_chan_expect_shared(c, &pub);
}

uint8_t *
session_on_place(void *arg, const struct fal_publication *pub, uint32_t index, size_t n,
		 size_t *head)
{
	const struct session *s = arg;
	const struct fal_agent_part part = {
		.version = pub->version,
		.first = pub->first + index * FAL_MODEL_BLOCKS,
		.blocks = fal_msg_model_blocks(pub->blocks, index),
	};
	if (s->ending || s->agent == NULL)
		return NULL;
	return fal_agent_place(s->agent, &part, n, head);
}

/* Before WELCOME it is the key that is not permitted, later it may be so no more; between
 * READY and the first word of the scheduler it is this machine's numerics. */
static void
on_refuse(struct session *s, const struct fal_msg *m)
{
	const bool judged =
		m->refuse.key != 0 || !s->welcome || (s->ready && !s->admitted);
	fal_cli_err(PROG, "%s: refused: %s", s->addr, m->refuse.why);
	session_end(s, judged ? FAL_EXIT_NOPERM : FAL_EXIT_NO);
}

/* What the agent is to hear. */
static int
on_agent_msg(struct session *s, struct fal_chan *c, const struct fal_msg *m)
{
	if (!s->ready)
		return FAL_ESTATE;
	if (m->type == FAL_MSG_VERSION && s->opt->compress == FAL_COMPRESS_AUTO &&
	    m->version.version % COMPRESS_EVERY == 0)
		fal_chan_compress(s->chan, FAL_COMPRESS_AUTO);
	int err = m->type == FAL_MSG_PUBLISHED ? on_published(s, c, m) : FAL_OK;
	s->admitted = true;
	if (m->type == FAL_MSG_DRAIN && (!s->leaving || s->renews)) {
		s->renews = false;
		fal_cli_err(PROG, "drained: %s", m->drain.why);
		session_leave(s);
	}
	if (err == FAL_OK)
		err = fal_agent_msg(s->agent, uv_hrtime(), m);
	else
		return err;
	if (err == FAL_OK && m->type == FAL_MSG_BLOCKS) {
		links_moved(s);
		if (links_adrift(s)) /* it has ended before it got any */
			session_adrift(s);
	}
	session_after(s, err);
	return FAL_OK;
}

/* Where a process of shards is: one that comes later is dialled at once. */
static int
on_map(struct session *s, const struct fal_msg *m)
{
	int err = s->welcome ? links_add(s, m) : FAL_ESTATE;
	if (err < 0 || s->agent == NULL)
		return err;
	(void)kit_grow(&s->kit, s->opt, &s->kit.most, s->links.n, &s->denied);
	return links_dial(s);
}

void
session_on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct session *s = arg;
	struct fal_msg m;
	int err = fal_msg_get(p, n, &m);
	if (err < 0 || !fal_msg_may_send(m.type, FAL_FROM_COORDINATOR)) {
		session_fail(s, FAL_EXIT_NO, "%s: a message that cannot be read%s",
			     s->addr, fal_chan_skew(c));
		return;
	}
	if (m.type == FAL_MSG_WELCOME)
		err = on_welcome(s, &m);
	else if (m.type == FAL_MSG_TEXT)
		err = on_text(s, &m);
	else if (m.type == FAL_MSG_MAP)
		err = on_map(s, &m);
	else if (m.type == FAL_MSG_CHUNK)
		err = s->agent != NULL ? kit_chunk(&s->kit, &m) : FAL_ESTATE;
	else if (m.type == FAL_MSG_DONE) {
		fal_cli_err(PROG, "done: %s", m.done.why);
		session_end(s, FAL_EXIT_DONE);
	} else if (m.type == FAL_MSG_LATER) { /* it stops, and may come back */
		if (!s->welcome)
			fal_retry_later(&s->retry);
		fal_diag_set(&s->later, 0, "%s: %s", s->addr, m.later.why);
	} else if (m.type == FAL_MSG_REFUSE)
		on_refuse(s, &m);
	else
		err = on_agent_msg(s, c, &m);
	if (err < 0)
		session_fail(s, FAL_EXIT_NO, "%s: %s: %s%s", s->addr,
			     fal_msg_name(m.type), fal_strerror(err), fal_chan_skew(c));
}

void
session_on_placed(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct session *s = arg;
	struct fal_msg m;
	int err = fal_msg_get(p, n, &m);
	if (s->ending)
		return;
	if (err == FAL_OK && m.type == FAL_MSG_MODEL) {
		m.model.placed = true;
		err = on_agent_msg(s, c, &m);
	} else {
		err = FAL_EFORMAT;
	}
	if (err < 0)
		session_fail(s, FAL_EXIT_NO, "%s: a part of a version: %s%s", s->addr,
			     fal_strerror(err), fal_chan_skew(c));
}

void
session_on_shard(struct session *s, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct fal_msg m;
	int err = fal_msg_get(p, n, &m);
	if (s->ending)
		return;
	if (err == FAL_OK && m.type == FAL_MSG_REFUSE)
		session_fail(s, FAL_EXIT_NO, "%s: a shard: refused: %s", s->addr,
			     m.refuse.why);
	else if (err == FAL_OK &&
		 (m.type == FAL_MSG_PUBLISHED || m.type == FAL_MSG_MODEL))
		err = on_agent_msg(s, c, &m);
	else
		err = FAL_EFORMAT;
	if (err < 0)
		session_fail(s, FAL_EXIT_NO, "%s: a shard: %s: %s", s->addr,
			     fal_msg_name(m.type), fal_strerror(err));
}

void
session_push(struct session *s)
{
	while (s->trouble == FAL_OK && fal_chan_room(s->chan) && links_room(s) &&
	       fal_agent_more(s->agent))
		s->pushed++;
}

void
session_on_room(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	(void)c;
	if (!s->ending)
		session_after(s, FAL_OK);
}

void
session_on_drain(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	(void)c;
	if (s->agent != NULL && links_sent(s) &&
	    (s->links.n == 0 || fal_chan_stat(s->chan).held == 0))
		fal_agent_flushed(s->agent, uv_hrtime());
}
