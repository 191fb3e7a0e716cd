/* The connection of a group server to its coordinator.  To the coordinator the group is
 * one worker, as fast as all members of the group together.
 *
 * The incarnation ends with the connection.  Members come back to the next incarnation,
 * in which nothing is left of tasks that no coordinator waits for any more. */
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

struct ps_upstream {
	struct ps_server *server;
	struct ps_run *run;
	uv_timer_t timer; /* to dial, or the deadline of WELCOME */
	struct fal_chan *chan;
	struct fal_agent *agent; /* NULL: the job's texts are not here yet */
	uint32_t incarnation, epoch;
	struct fal_texts texts; /* of the coordinator's job, as they come */
	enum upstream_state {
		UPSTREAM_CONNECTING,
		UPSTREAM_WELCOME,
		UPSTREAM_READY, /* READY was sent, with the numerics `announced` */
		UPSTREAM_ENDED, /* s->end.upstream says how */
		UPSTREAM_CLOSED
	} state;
	uint8_t announced[FAL_FINGERPRINT];
	bool is_working;         /* ps_upstream_work is under way */
	struct fal_diag later;   /* why the coordinator sent LATER; "": it did not */
	int err;                 /* of a callback of the agent */
	struct fal_group *group; /* translates between the two levels */
};

static void upstream_dial(struct ps_upstream *u);

/* Records for loop.c how the connection ends. */
static void
upstream_set_end(struct ps_upstream *u, enum ps_upstream_end end)
{
	u->state = UPSTREAM_ENDED;
	u->server->end.upstream = end;
}

/* Logs why the server ends, and records that with this exit code. */
static void __attribute__((format(printf, 3, 4)))
upstream_end(struct ps_upstream *u, int code, const char *fmt, ...)
{
	struct ps_end *e = &u->server->end;
	va_list ap;
	if (u->state >= UPSTREAM_ENDED)
		return;
	va_start(ap, fmt);
	vsnprintf(e->upstream_why.text, sizeof(e->upstream_why.text), fmt, ap);
	va_end(ap);
	fal_cli_err(PROG, "%s", e->upstream_why.text);
	e->upstream_code = code;
	upstream_set_end(u, PS_UPSTREAM_ENDED);
}

void
ps_upstream_close(struct ps_upstream *u)
{
	if (u->state == UPSTREAM_CLOSED)
		return;
	u->state = UPSTREAM_CLOSED;
	if (u->chan != NULL)
		fal_chan_close(u->chan);
	ps_close_handle(&u->timer);
}

void
ps_upstream_kill(struct ps_upstream *u)
{
	if (u->chan != NULL)
		fal_chan_kill(u->chan);
	u->chan = NULL;
}

void
ps_upstream_free(struct ps_upstream *u)
{
	if (u == NULL)
		return;
	fal_group_free(u->group);
	fal_agent_free(u->agent);
	fal_texts_free(&u->texts);
	free(u);
}

/* ---- sending --- */

static void
upstream_send_bytes(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct ps_upstream *u = arg;
	if (u->chan == NULL)
		return;
	int err = fal_chan_send(u->chan, msg, bulk ? FAL_SEND_BULK : FAL_SEND_CONTROL);
	if (err < 0 && err != FAL_ESTATE)
		u->err = err;
}

static void
upstream_send(struct ps_upstream *u, struct fal_msg *m)
{
	m->incarnation = u->incarnation;
	int err = u->chan != NULL ? ps_send_msg(u->chan, m, FAL_SEND_CONTROL) : FAL_OK;
	if (err < 0 && err != FAL_ESTATE)
		u->err = err;
}

/* Tells the coordinator what changed with the group's members.  Once the members'
 * numerics differed, they count as different for good: after an incarnation members come
 * back one by one, so the first members back would seem to agree. */
static void
upstream_follow_members(struct ps_upstream *u)
{
	struct fal_msg m;
	enum fal_group_report word;
	struct fal_coord_aggregate are;
	uint8_t several[FAL_FINGERPRINT];
	fal_coord_mixed_fingerprint(several);
	fal_coord_aggregate(u->server->coord, &are);
	if (u->run->members_differ)
		memcpy(are.fingerprint, several, FAL_FINGERPRINT);
	while (u->chan != NULL &&
	       (word = fal_group_report(u->group, u->server->coord,
					(uint32_t)u->run->opt.min_workers, &m)) !=
		       FAL_GROUP_NOTHING) {
		if (word == FAL_GROUP_NOBODY) {
			fal_chan_fail(u->chan, FAL_EIO, "nobody is here any more");
			return;
		}
		if (word == FAL_GROUP_READY) {
			memcpy(m.ready.fingerprint, are.fingerprint, FAL_FINGERPRINT);
			memcpy(u->announced, are.fingerprint, FAL_FINGERPRINT);
		}
		upstream_send(u, &m);
		if (word != FAL_GROUP_READY)
			continue;
		u->state = UPSTREAM_READY;
		fal_cli_err(PROG, "%s: joined as one worker: %u member%s, %u lane%s",
			    u->run->opt.upstream, are.workers,
			    fal_text_plural(are.workers), are.lanes,
			    fal_text_plural(are.lanes));
	}
	if (u->chan == NULL || u->state != UPSTREAM_READY || are.workers == 0 ||
	    memcmp(are.fingerprint, u->announced, FAL_FINGERPRINT) == 0)
		return;
	/* The announced numerics no longer hold: to the coordinator this group is another
	 * worker now. */
	u->run->members_differ = memcmp(are.fingerprint, several, FAL_FINGERPRINT) == 0;
	fal_chan_fail(u->chan, FAL_EIO, "its members %s",
		      u->run->members_differ ? "do not all compute the same bits"
					     : "compute other bits now");
}

static struct fal_group_ends
upstream_ends(const struct ps_upstream *u)
{
	return (struct fal_group_ends){ .agent = u->agent,
					.coord = u->server->coord,
					.ns = uv_hrtime(),
					.s = ps_now() };
}

static int
upstream_exchange(struct ps_upstream *u)
{
	const struct fal_group_ends e = upstream_ends(u);
	return u->err < 0 ? u->err : fal_group_work(u->group, &e);
}

void
ps_upstream_work(struct ps_upstream *u)
{
	if (u->state >= UPSTREAM_ENDED || u->is_working)
		return;
	u->is_working = true;
	if (u->agent != NULL && u->chan != NULL)
		upstream_follow_members(u);
	int err = u->agent != NULL ? upstream_exchange(u) : FAL_OK;
	while (err == FAL_OK && u->agent != NULL && u->chan != NULL &&
	       fal_chan_has_room(u->chan) && fal_agent_send_next(u->agent))
		err = upstream_exchange(u);
	u->is_working = false;
	if (err < 0) {
		upstream_end(u, FAL_EXIT_NO, "%s: %s", u->run->opt.upstream,
			     fal_strerror(err));
	} else if (u->agent != NULL && fal_agent_has_left(u->agent)) {
		fal_cli_err(PROG, "%s: drained: leaving", u->run->opt.upstream);
		upstream_set_end(u, PS_UPSTREAM_LEFT);
	}
}

/* ---- callbacks of the agent and of the group's own coordinator --- */

static void
upstream_on_run(void *arg, uint32_t lane, const struct fal_task_run *run)
{
	struct ps_upstream *u = arg;
	fal_group_run(u->group, lane, run);
}

static void
upstream_on_cancel(void *arg, uint32_t lane)
{
	struct ps_upstream *u = arg;
	fal_group_cancel(u->group, lane);
}

static uint64_t
upstream_on_steps(void *arg)
{
	const struct ps_upstream *u = arg;
	return fal_group_steps(u->group);
}

static void
upstream_on_whole(void *arg, const struct fal_whole_version *v)
{
	struct ps_upstream *u = arg;
	const struct fal_group_ends e = upstream_ends(u);
	fal_group_on_version(u->group, &e, v);
}

void
ps_upstream_on_claimed(void *arg, const struct fal_coord_counted_claim *is)
{
	struct ps_server *s = arg;
	fal_group_claimed(s->upstream->group, is);
}

void
ps_upstream_on_given(void *arg, uint64_t round)
{
	struct ps_server *s = arg;
	fal_group_given(s->upstream->group, round);
}

void
ps_upstream_on_evaluated(void *arg, const struct fal_msg *m)
{
	struct ps_server *s = arg;
	fal_group_evaluated(s->upstream->group, m);
}

int
ps_upstream_fill_order(struct ps_upstream *u, struct fal_shard_order *o)
{
	return fal_group_order(u->group, o);
}

/* ---- messages of the coordinator --- */

static int
upstream_on_welcome(struct ps_upstream *u, const struct fal_msg *m)
{
	if (u->state != UPSTREAM_CONNECTING)
		return FAL_ESTATE;
	u->state = UPSTREAM_WELCOME;
	uv_timer_stop(&u->timer);
	if (fal_retry_reached(&u->run->retry, uv_hrtime()))
		fal_cli_err(PROG, "%s: connected again", u->run->opt.upstream);
	u->incarnation = m->incarnation;
	u->epoch = m->welcome.epoch;
	return fal_texts_begin(&u->texts, m);
}

/* Makes the agent: the coordinator's job is the job of the files here. */
static void
upstream_begin_job(struct ps_upstream *u)
{
	const struct fal_files *j = u->server->job;
	const struct fal_agent_ops ops = { .arg = u,
					   .send = upstream_send_bytes,
					   .run = upstream_on_run,
					   .cancel = upstream_on_cancel,
					   .steps = upstream_on_steps,
					   .whole = upstream_on_whole };
	const struct fal_agent_conf conf = { .n = j->model->params,
					     .lanes_max = FAL_LANES_MAX,
					     .incarnation = u->incarnation,
					     .map_epoch = u->epoch,
					     .tasks = fal_files_clock_tasks(j),
					     .push_bits = j->job.push_bits,
					     .seed = j->job.seed,
					     .optim = j->job.optim,
					     .outer = true };
	u->agent = fal_agent_new(&conf, &ops);
}

static int
upstream_on_text(struct ps_upstream *u, const struct fal_msg *m)
{
	const struct fal_files *j = u->server->job;
	const struct {
		const char *name;
		const struct fal_buf *is;
	} own[FAL_TEXTS] = { [FAL_TEXT_JOB] = { "job", &j->job_text },
			     [FAL_TEXT_MODEL] = { "model", &j->model_text },
			     [FAL_TEXT_MANIFEST] = { "data", &j->manifest_bytes } };
	int all = u->state == UPSTREAM_WELCOME && u->agent == NULL
			  ? fal_texts_add(&u->texts, m)
			  : FAL_ESTATE;
	for (unsigned i = 0; all > 0 && i < FAL_TEXTS; i++) {
		const struct fal_buf *is = &u->texts.text[i];
		if (is->n == own[i].is->n && memcmp(is->p, own[i].is->p, is->n) == 0)
			continue;
		upstream_end(u, FAL_EXIT_USAGE,
			     "%s: its %s is another one than that of %s",
			     u->run->opt.upstream, own[i].name, u->run->path);
		return FAL_OK;
	}
	if (all > 0) {
		fal_texts_free(&u->texts);
		upstream_begin_job(u);
	}
	return all < 0 ? all : FAL_OK;
}

static int
upstream_on_agent_msg(struct ps_upstream *u, const struct fal_msg *m)
{
	if (u->agent == NULL)
		return FAL_ESTATE;
	if (m->type == FAL_MSG_GRANT && m->grant.kind == FAL_KIND_DELTA) {
		upstream_end(u, FAL_EXIT_NO,
			     "%s: its policy has local steps by now, which no "
			     "group server makes",
			     u->run->opt.upstream);
		return FAL_OK;
	}
	if (m->type == FAL_MSG_PUBLISHED) {
		struct fal_publication pub = {
			.id = m->published.publication,
			.count = fal_msg_models(m->published.blocks),
			.key = m->published.key,
			.ad_n = FAL_MODEL_AD,
		};
		fal_msg_model_ad(u->server->job->hash, u->incarnation,
				 m->published.version, pub.ad);
		int err = fal_chan_expect_publication(u->chan, &pub);
		if (err < 0)
			return err;
	}
	return fal_agent_msg(u->agent, uv_hrtime(), m);
}

static void
upstream_on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct ps_upstream *u = arg;
	struct fal_msg m;
	int err = fal_msg_get(p, n, &m);
	if (u->state >= UPSTREAM_ENDED)
		return;
	if (err < 0 || !fal_msg_may_send(m.type, FAL_FROM_COORDINATOR)) {
		err = FAL_OK; /* handled */
		upstream_end(u, FAL_EXIT_NO, "%s: a message that cannot be read%s",
			     u->run->opt.upstream, fal_chan_skew(c));
	} else if (m.type == FAL_MSG_WELCOME)
		err = upstream_on_welcome(u, &m);
	else if (m.type == FAL_MSG_TEXT)
		err = upstream_on_text(u, &m);
	else if (m.type == FAL_MSG_MAP)
		upstream_end(
			u, FAL_EXIT_NO,
			"%s: its shards are in several processes, which no group server "
			"can push to",
			u->run->opt.upstream);
	else if (m.type == FAL_MSG_DONE)
		upstream_end(u, FAL_EXIT_DONE, "done: %s", m.done.why);
	else if (m.type == FAL_MSG_REFUSE)
		upstream_end(u,
			     m.refuse.key != 0 || u->state == UPSTREAM_CONNECTING
				     ? FAL_EXIT_NOPERM
				     : FAL_EXIT_NO,
			     "%s: refused: %s", u->run->opt.upstream, m.refuse.why);
	else if (m.type == FAL_MSG_LATER)
		fal_diag_set(&u->later, 0, "%s: %s", u->run->opt.upstream, m.later.why);
	else
		err = upstream_on_agent_msg(u, &m);
	if (err < 0)
		upstream_end(u, FAL_EXIT_NO, "%s: %s: %s%s", u->run->opt.upstream,
			     fal_msg_name(m.type), fal_strerror(err), fal_chan_skew(c));
	u->server->events.after_event(u->server);
}

static void
upstream_on_room(void *arg, struct fal_chan *c)
{
	struct ps_upstream *u = arg;
	(void)c;
	u->server->events.after_event(u->server);
}

static void
upstream_on_drain(void *arg, struct fal_chan *c)
{
	struct ps_upstream *u = arg;
	(void)c;
	if (u->agent != NULL)
		fal_agent_flushed(u->agent, uv_hrtime());
}

/* ---- the connection --- */

static void
upstream_on_dial(uv_timer_t *t)
{
	struct ps_upstream *u = t->data;
	upstream_dial(u);
	u->server->events.after_event(u->server);
}

static void
upstream_on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct ps_upstream *u = arg;
	(void)c;
	u->chan = NULL;
	if (u->state >= UPSTREAM_ENDED)
		return;
	const int code =
		fal_retry_report(&u->run->retry, PROG, err, reason, &u->later, false);
	if (code >= 0)
		upstream_end(u, code, "%s", reason);
	else if (u->state == UPSTREAM_READY)
		upstream_set_end(u, PS_UPSTREAM_LOST);
	if (u->state >= UPSTREAM_ENDED) {
		u->server->events.after_event(u->server);
		return;
	}
	/* Members have got nothing of this connection: another one follows. */
	u->state = UPSTREAM_CONNECTING;
	fal_agent_free(u->agent);
	u->agent = NULL;
	uv_timer_start(&u->timer, upstream_on_dial,
		       fal_retry_pause_ms(&u->run->retry, uv_hrtime()), 0);
}

static void
upstream_on_silent(uv_timer_t *t)
{
	struct ps_upstream *u = t->data;
	if (u->chan != NULL)
		fal_chan_fail(u->chan, FAL_EIO, "no answer within %g s",
			      FAL_CHAN_DEADLINE_MS / 1e3);
}

static void
upstream_on_open(void *arg, struct fal_chan *c)
{
	struct ps_upstream *u = arg;
	struct fal_coord_aggregate are;
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	fal_chan_compress(c, u->server->run->compress);
	fal_coord_aggregate(u->server->coord, &are);
	m.hello.schema = fal_msg_schema();
	snprintf(m.hello.name, sizeof(m.hello.name), "%s", u->run->key->name);
	snprintf(m.hello.version, sizeof(m.hello.version), "%s", fal_build());
	m.hello.lanes_min = m.hello.lanes_max = m.hello.cores =
		are.lanes > 0 ? are.lanes : 1;
	memcpy(m.hello.instance, u->run->instance, sizeof(u->run->instance));
	m.hello.group = 1;
	u->incarnation = 0; /* not known before WELCOME */
	upstream_send(u, &m);
	uv_timer_start(&u->timer, upstream_on_silent, FAL_CHAN_DEADLINE_MS, 0);
}

static void
upstream_dial(struct ps_upstream *u)
{
	const struct fal_chan_ops ops = { .arg = u,
					  .on_open = upstream_on_open,
					  .on_msg = upstream_on_msg,
					  .on_room = upstream_on_room,
					  .on_drain = upstream_on_drain,
					  .on_close = upstream_on_close };
	const struct fal_chan_opt opt = { 0 };
	int err = fal_dial(u->server->loop, &u->run->coordinator, u->run->key, &opt, &ops,
			   &u->chan);
	if (err < 0)
		upstream_end(u, err == FAL_EINVAL ? FAL_EXIT_USAGE : FAL_EXIT_NO,
			     "%s: %s", u->run->opt.upstream, fal_strerror(err));
}

struct ps_upstream *
ps_upstream_new(struct ps_server *s)
{
	struct ps_upstream *u = fal_xcalloc(1, sizeof(*u));
	u->group = fal_group_new(s->job->model->params);
	u->server = s;
	u->run = s->run;
	uv_timer_init(s->loop, &u->timer);
	u->timer.data = u;
	const bool again = s->run->state.incarnation > 1;
	if (!again)
		u->run->retry.lost = uv_hrtime();
	uv_timer_start(&u->timer, upstream_on_dial,
		       again ? fal_retry_pause_ms(&u->run->retry, uv_hrtime()) : 0, 0);
	return u;
}
