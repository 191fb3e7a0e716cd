/* The connection to the coordinator above: that of one worker, which is as fast as all
 * members together.
 *
 * When it ends, so does this incarnation: members come back to the next one, in which
 * nothing is left of what nobody waits for any more. */
#include "worker/agent.h"

#include "base/build.h"
#include "base/mem.h"
#include "base/text.h"
#include "crypto/secret.h"
#include "net/conn.h"
#include "run/job_files.h"
#include "server.h"
#include "server/group.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct above {
	struct ps_server *server;
	struct ps_run *run;
	uv_timer_t timer; /* to dial, or the deadline of WELCOME */
	struct fal_chan *chan;
	struct fal_agent *agent; /* NULL: the job's texts are not here yet */
	uint32_t incarnation, epoch;
	struct fal_texts texts; /* of the job above, as they come */
	bool welcome, closing, working;
	bool ready; /* READY was said, with these numerics */
	uint8_t said[FAL_FINGERPRINT];
	struct fal_diag later;   /* why it has no time for us now; "": it has not said */
	struct fal_diag why;     /* that it has ended */
	int err;                 /* of something in a callback of the agent */
	struct fal_group *group; /* what is between it and what is here */
};

static void dial(struct above *a);

/* The server ends with this exit code; `why` was not said yet. */
static void
end(struct above *a, int code, const char *fmt, ...)
{
	va_list ap;
	if (a->closing)
		return;
	va_start(ap, fmt);
	vsnprintf(a->why.text, sizeof(a->why.text), fmt, ap);
	va_end(ap);
	fal_cli_err(PROG, "%s", a->why.text);
	ps_above_end(a->server, code, a->why.text);
}

void
above_close(struct above *a)
{
	if (a->closing)
		return;
	a->closing = true;
	if (a->chan != NULL)
		fal_chan_close(a->chan);
	ps_close(&a->timer);
}

void
above_kill(struct above *a)
{
	if (a->chan != NULL)
		fal_chan_kill(a->chan);
	a->chan = NULL;
}

void
above_free(struct above *a)
{
	if (a == NULL)
		return;
	fal_group_free(a->group);
	fal_agent_free(a->agent);
	fal_texts_free(&a->texts);
	free(a);
}

/* ---- sending ----------------------------------------------------------------------- */

static void
send_bytes(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct above *a = arg;
	if (a->chan == NULL)
		return;
	int err = fal_chan_send(a->chan, msg, bulk ? FAL_SEND_BULK : FAL_SEND_CONTROL);
	if (err < 0 && err != FAL_ESTATE)
		a->err = err;
}

static void
send_msg(struct above *a, struct fal_msg *m)
{
	m->incarnation = a->incarnation;
	int err = a->chan != NULL ? ps_chan_send(a->chan, m, FAL_SEND_CONTROL) : FAL_OK;
	if (err < 0 && err != FAL_ESTATE)
		a->err = err;
}

/* Members came or went; once their numerics were several, that stays: whoever looks can
 * tell, and members come back one by one. */
static void
follow_members(struct above *a)
{
	struct fal_msg m;
	enum fal_group_word word;
	struct fal_coord_together are;
	uint8_t several[FAL_FINGERPRINT];
	fal_coord_several(several);
	fal_coord_together(a->server->coord, &are);
	if (a->run->several)
		memcpy(are.fingerprint, several, FAL_FINGERPRINT);
	while (a->chan != NULL &&
	       (word = fal_group_word(a->group, a->server->coord,
				      (uint32_t)a->run->opt.min_workers, &m)) !=
		       FAL_GROUP_NOTHING) {
		if (word == FAL_GROUP_NOBODY) {
			fal_chan_fail(a->chan, FAL_EIO, "nobody is here any more");
			return;
		}
		if (word == FAL_GROUP_READY) {
			memcpy(m.ready.fingerprint, are.fingerprint, FAL_FINGERPRINT);
			memcpy(a->said, are.fingerprint, FAL_FINGERPRINT);
		}
		send_msg(a, &m);
		if (word != FAL_GROUP_READY)
			continue;
		a->ready = true;
		fal_cli_err(PROG, "%s: joined as one worker: %u member%s, %u lane%s",
			    a->run->opt.upstream, are.workers, fal_text_s(are.workers),
			    are.lanes, fal_text_s(are.lanes));
	}
	if (a->chan == NULL || !a->ready || are.workers == 0 ||
	    memcmp(are.fingerprint, a->said, FAL_FINGERPRINT) == 0)
		return;
	/* The announced numerics hold no longer: to the coordinator above, this is
	 * another worker. */
	a->run->several = memcmp(are.fingerprint, several, FAL_FINGERPRINT) == 0;
	fal_chan_fail(a->chan, FAL_EIO, "its members %s",
		      a->run->several ? "do not all compute the same bits"
				      : "compute other bits now");
}

static struct fal_group_ends
ends(const struct above *a)
{
	return (struct fal_group_ends){ .agent = a->agent,
					.coord = a->server->coord,
					.ns = uv_hrtime(),
					.s = ps_now() };
}

static int
work(struct above *a)
{
	const struct fal_group_ends e = ends(a);
	return a->err < 0 ? a->err : fal_group_work(a->group, &e);
}

void
above_event(struct above *a)
{
	if (a->closing || a->working)
		return;
	a->working = true;
	if (a->agent != NULL && a->chan != NULL)
		follow_members(a);
	int err = a->agent != NULL && !a->closing ? work(a) : FAL_OK;
	while (err == FAL_OK && a->agent != NULL && a->chan != NULL &&
	       fal_chan_room(a->chan) && fal_agent_more(a->agent))
		err = work(a);
	a->working = false;
	if (err < 0) {
		end(a, FAL_EXIT_NO, "%s: %s", a->run->opt.upstream, fal_strerror(err));
	} else if (a->agent != NULL && !a->closing && fal_agent_left(a->agent)) {
		fal_cli_err(PROG, "%s: drained: leaving", a->run->opt.upstream);
		ps_above_left(a->server);
	}
}

/* ---- of the agent and of the coordinator ------------------------------------------- */

static void
on_run(void *arg, uint32_t lane, const struct fal_run *run)
{
	struct above *a = arg;
	fal_group_run(a->group, lane, run);
}

static void
on_cancel(void *arg, uint32_t lane)
{
	struct above *a = arg;
	fal_group_cancel(a->group, lane);
}

static uint64_t
on_steps(void *arg)
{
	const struct above *a = arg;
	return fal_group_steps(a->group);
}

static void
on_whole(void *arg, const struct fal_whole *v)
{
	struct above *a = arg;
	const struct fal_group_ends e = ends(a);
	fal_group_whole(a->group, &e, v);
}

void
above_claimed(void *arg, const struct fal_coord_claimed *is)
{
	struct ps_server *s = arg;
	fal_group_claimed(s->above->group, is);
}

void
above_given(void *arg, uint64_t round)
{
	struct ps_server *s = arg;
	fal_group_given(s->above->group, round);
}

void
above_evaluated(void *arg, const struct fal_msg *m)
{
	struct ps_server *s = arg;
	fal_group_evaluated(s->above->group, m);
}

int
above_order(struct above *a, struct fal_shard_order *o)
{
	return fal_group_order(a->group, o);
}

/* ---- what is said ------------------------------------------------------------------ */

static int
on_welcome(struct above *a, const struct fal_msg *m)
{
	if (a->welcome)
		return FAL_ESTATE;
	a->welcome = true;
	uv_timer_stop(&a->timer);
	if (fal_retry_reached(&a->run->retry, uv_hrtime()))
		fal_cli_err(PROG, "%s: connected again", a->run->opt.upstream);
	a->incarnation = m->incarnation;
	a->epoch = m->welcome.epoch;
	return fal_texts_begin(&a->texts, m);
}

/* The texts are those of the files here: the job is the same. */
static void
begin_job(struct above *a)
{
	const struct fal_files *j = a->server->job;
	const struct fal_agent_ops ops = { .arg = a,
					   .send = send_bytes,
					   .run = on_run,
					   .cancel = on_cancel,
					   .steps = on_steps,
					   .whole = on_whole };
	const struct fal_agent_conf conf = { .n = j->model->params,
					     .lanes_max = FAL_LANES_MAX,
					     .incarnation = a->incarnation,
					     .map_epoch = a->epoch,
					     .tasks = fal_files_tasks(j),
					     .push_bits = j->job.push_bits,
					     .seed = j->job.seed,
					     .optim = j->job.optim,
					     .outer = true };
	a->agent = fal_agent_new(&conf, &ops);
}

static int
on_text(struct above *a, const struct fal_msg *m)
{
	const struct fal_files *j = a->server->job;
	const struct {
		const char *name;
		const struct fal_buf *is;
	} own[FAL_TEXTS] = { [FAL_TEXT_JOB] = { "job", &j->job_text },
			     [FAL_TEXT_MODEL] = { "model", &j->model_text },
			     [FAL_TEXT_MANIFEST] = { "data", &j->manifest_bytes } };
	int all =
		a->welcome && a->agent == NULL ? fal_texts_add(&a->texts, m) : FAL_ESTATE;
	for (unsigned i = 0; all > 0 && i < FAL_TEXTS; i++) {
		const struct fal_buf *is = &a->texts.text[i];
		if (is->n == own[i].is->n && memcmp(is->p, own[i].is->p, is->n) == 0)
			continue;
		end(a, FAL_EXIT_USAGE, "%s: its %s is another one than that of %s",
		    a->run->opt.upstream, own[i].name, a->run->path);
		return FAL_OK;
	}
	if (all > 0) {
		fal_texts_free(&a->texts);
		begin_job(a);
	}
	return all < 0 ? all : FAL_OK;
}

static int
on_agent_msg(struct above *a, const struct fal_msg *m)
{
	if (a->agent == NULL)
		return FAL_ESTATE;
	if (m->type == FAL_MSG_GRANT && m->grant.kind == FAL_KIND_DELTA) {
		end(a, FAL_EXIT_NO,
		    "%s: its policy has local steps by now, which no "
		    "group server makes",
		    a->run->opt.upstream);
		return FAL_OK;
	}
	if (m->type == FAL_MSG_PUBLISHED) {
		struct fal_publication pub = {
			.id = m->published.publication,
			.count = fal_msg_models(m->published.blocks),
			.key = m->published.key,
			.ad_n = FAL_MODEL_AD,
		};
		fal_msg_model_ad(a->server->job->hash, a->incarnation,
				 m->published.version, pub.ad);
		int err = fal_chan_expect_shared(a->chan, &pub);
		if (err < 0)
			return err;
	}
	return fal_agent_msg(a->agent, uv_hrtime(), m);
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct above *a = arg;
	struct fal_msg m;
	int err = fal_msg_get(p, n, &m);
	if (a->closing)
		return;
	if (err < 0 || !fal_msg_may_send(m.type, FAL_FROM_COORDINATOR)) {
		end(a, FAL_EXIT_NO, "%s: a message that cannot be read%s",
		    a->run->opt.upstream, fal_chan_skew(c));
		return;
	}
	if (m.type == FAL_MSG_WELCOME)
		err = on_welcome(a, &m);
	else if (m.type == FAL_MSG_TEXT)
		err = on_text(a, &m);
	else if (m.type == FAL_MSG_MAP)
		end(a, FAL_EXIT_NO,
		    "%s: its shards are in several processes, which no group server "
		    "can push to",
		    a->run->opt.upstream);
	else if (m.type == FAL_MSG_DONE)
		end(a, FAL_EXIT_DONE, "done: %s", m.done.why);
	else if (m.type == FAL_MSG_REFUSE)
		end(a, m.refuse.key != 0 || !a->welcome ? FAL_EXIT_NOPERM : FAL_EXIT_NO,
		    "%s: refused: %s", a->run->opt.upstream, m.refuse.why);
	else if (m.type == FAL_MSG_LATER)
		fal_diag_set(&a->later, 0, "%s: %s", a->run->opt.upstream, m.later.why);
	else
		err = on_agent_msg(a, &m);
	if (err < 0)
		end(a, FAL_EXIT_NO, "%s: %s: %s%s", a->run->opt.upstream,
		    fal_msg_name(m.type), fal_strerror(err), fal_chan_skew(c));
	else
		ps_after_event(a->server);
}

static void
on_room(void *arg, struct fal_chan *c)
{
	(void)c;
	ps_after_event(((struct above *)arg)->server);
}

static void
on_drain(void *arg, struct fal_chan *c)
{
	struct above *a = arg;
	(void)c;
	if (a->agent != NULL)
		fal_agent_flushed(a->agent, uv_hrtime());
}

/* ---- the connection ---------------------------------------------------------------- */

static void
on_dial(uv_timer_t *t)
{
	dial(t->data);
}

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct above *a = arg;
	(void)c;
	a->chan = NULL;
	if (a->closing)
		return;
	const int code =
		fal_retry_after(&a->run->retry, PROG, err, reason, &a->later, false);
	if (code >= 0) {
		end(a, code, "%s", reason);
		return;
	}
	if (a->ready) {
		ps_above_lost(a->server);
		return;
	}
	/* Nobody has anything of it. */
	a->welcome = false;
	fal_agent_free(a->agent);
	a->agent = NULL;
	uv_timer_start(&a->timer, on_dial,
		       fal_retry_pause_ms(&a->run->retry, uv_hrtime()), 0);
}

static void
on_silent(uv_timer_t *t)
{
	struct above *a = t->data;
	if (a->chan != NULL)
		fal_chan_fail(a->chan, FAL_EIO, "no answer within %g s",
			      FAL_CHAN_DEADLINE_MS / 1e3);
}

static void
on_open(void *arg, struct fal_chan *c)
{
	struct above *a = arg;
	struct fal_coord_together are;
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	fal_chan_compress(c, a->server->run->compress);
	fal_coord_together(a->server->coord, &are);
	m.hello.schema = fal_msg_schema();
	snprintf(m.hello.name, sizeof(m.hello.name), "%s", a->run->key->name);
	snprintf(m.hello.version, sizeof(m.hello.version), "%s", fal_build());
	m.hello.lanes_min = m.hello.lanes_max = m.hello.cores =
		are.lanes > 0 ? are.lanes : 1;
	memcpy(m.hello.instance, a->run->instance, sizeof(a->run->instance));
	m.hello.group = 1;
	a->incarnation = 0; /* not known before WELCOME */
	send_msg(a, &m);
	uv_timer_start(&a->timer, on_silent, FAL_CHAN_DEADLINE_MS, 0);
}

static void
dial(struct above *a)
{
	const struct fal_chan_ops ops = { .arg = a,
					  .on_open = on_open,
					  .on_msg = on_msg,
					  .on_room = on_room,
					  .on_drain = on_drain,
					  .on_close = on_close };
	const struct fal_chan_opt opt = { 0 };
	int err = fal_dial(a->server->loop, &a->run->coordinator, a->run->key, &opt, &ops,
			   &a->chan);
	if (err < 0)
		end(a, err == FAL_EINVAL ? FAL_EXIT_USAGE : FAL_EXIT_NO, "%s: %s",
		    a->run->opt.upstream, fal_strerror(err));
}

struct above *
above_new(struct ps_server *s)
{
	struct above *a = fal_xcalloc(1, sizeof(*a));
	a->group = fal_group_new(s->job->model->params);
	a->server = s;
	a->run = s->run;
	uv_timer_init(s->loop, &a->timer);
	a->timer.data = a;
	const bool again = s->run->state.incarnation > 1;
	if (!again)
		a->run->retry.lost = uv_hrtime();
	uv_timer_start(&a->timer, on_dial,
		       again ? fal_retry_pause_ms(&a->run->retry, uv_hrtime()) : 0, 0);
	return a;
}
