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
	struct fal_client client;
	struct fal_agent *agent; /* NULL: the job's texts are not here yet */
	enum upstream_state {
		UPSTREAM_CONNECTING,
		UPSTREAM_READY, /* READY was sent, with the numerics `announced` */
		UPSTREAM_ENDED  /* s->end.upstream says how */
	} state;
	uint8_t announced[FAL_FINGERPRINT];
	bool is_working;         /* ps_upstream_work is under way */
	struct fal_group *group; /* translates between the two levels */
};

/* Records for loop.c how the connection ends. */
static void
upstream_set_end(struct ps_upstream *u, enum ps_upstream_end end)
{
	u->state = UPSTREAM_ENDED;
	u->server->end.upstream = end;
}

void
ps_upstream_close(struct ps_upstream *u)
{
	u->state = UPSTREAM_ENDED;
	fal_client_end(&u->client, FAL_EXIT_DONE);
}

void
ps_upstream_kill(struct ps_upstream *u)
{
	fal_client_abort(&u->client, FAL_EXIT_DONE);
}

void
ps_upstream_free(struct ps_upstream *u)
{
	if (u == NULL)
		return;
	fal_group_free(u->group);
	fal_agent_free(u->agent);
	free(u);
}

/* ---- sending --- */

static void
upstream_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct ps_upstream *u = arg;
	fal_client_send_bytes(&u->client, msg, bulk ? FAL_SEND_BULK : FAL_SEND_CONTROL);
}

/* Tells the coordinator about changes of the group's members.  Numerics that once
 * differed count as different for good: in the next incarnation members come back one by
 * one, so the first members would seem to agree. */
static void
upstream_follow_members(struct ps_upstream *u)
{
	struct fal_msg m;
	enum fal_group_report report;
	struct fal_coord_aggregate are;
	uint8_t several[FAL_FINGERPRINT];
	fal_coord_mixed_fingerprint(several);
	fal_coord_aggregate(u->server->coord, &are);
	if (u->run->members_differ)
		memcpy(are.fingerprint, several, FAL_FINGERPRINT);
	while (u->client.chan != NULL &&
	       (report = fal_group_report(u->group, u->server->coord,
					  (uint32_t)u->run->opt.min_workers, &m)) !=
		       FAL_GROUP_NOTHING) {
		if (report == FAL_GROUP_NOBODY) {
			fal_chan_fail(u->client.chan, FAL_EIO, "no member is left");
			return;
		}
		if (report == FAL_GROUP_READY) {
			memcpy(m.ready.fingerprint, are.fingerprint, FAL_FINGERPRINT);
			memcpy(u->announced, are.fingerprint, FAL_FINGERPRINT);
		}
		fal_client_send(&u->client, &m);
		if (report != FAL_GROUP_READY)
			continue;
		u->state = UPSTREAM_READY;
		fal_cli_err(PROG, "%s: joined as one worker: %u member%s, %u lane%s",
			    u->client.at, are.workers, fal_text_plural(are.workers),
			    are.lanes, fal_text_plural(are.lanes));
	}
	if (u->client.chan == NULL || u->state != UPSTREAM_READY || are.workers == 0 ||
	    memcmp(are.fingerprint, u->announced, FAL_FINGERPRINT) == 0)
		return;
	/* The announced numerics no longer hold: to the coordinator this group is another
	 * worker now. */
	u->run->members_differ = memcmp(are.fingerprint, several, FAL_FINGERPRINT) == 0;
	fal_chan_fail(u->client.chan, FAL_EIO, "its members %s",
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
	return fal_group_work(u->group, &e);
}

void
ps_upstream_work(struct ps_upstream *u)
{
	if (u->state == UPSTREAM_ENDED || u->is_working || fal_client_is_over(&u->client))
		return;
	u->is_working = true;
	if (u->agent != NULL && u->client.chan != NULL)
		upstream_follow_members(u);
	int err = u->agent != NULL ? upstream_exchange(u) : FAL_OK;
	while (err == FAL_OK && u->agent != NULL && u->client.chan != NULL &&
	       fal_chan_has_room(u->client.chan) && fal_agent_send_next(u->agent))
		err = upstream_exchange(u);
	u->is_working = false;
	if (err < 0) {
		fal_client_fail(&u->client, FAL_EXIT_NO, "%s: %s", u->client.at,
				fal_strerror(err));
	} else if (u->agent != NULL && fal_agent_has_left(u->agent)) {
		fal_cli_err(PROG, "%s: drained: leaving", u->client.at);
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

/* The texts of the coordinator's job are complete: if they are the texts here, makes the
 * agent. */
static int
upstream_on_job(void *arg, struct fal_client *c)
{
	struct ps_upstream *u = arg;
	const struct fal_files *j = u->server->job;
	const struct {
		const char *name;
		const struct fal_buf *is;
	} own[FAL_TEXTS] = { [FAL_TEXT_JOB] = { "job", &j->job_text },
			     [FAL_TEXT_MODEL] = { "model", &j->model_text },
			     [FAL_TEXT_MANIFEST] = { "data", &j->manifest_bytes } };
	for (unsigned i = 0; i < FAL_TEXTS; i++) {
		const struct fal_buf *is = &c->texts.text[i];
		if (is->n == own[i].is->n && memcmp(is->p, own[i].is->p, is->n) == 0)
			continue;
		fal_client_fail(c, FAL_EXIT_USAGE, "%s: its %s differs from that of %s",
				c->at, own[i].name, u->run->path);
		return FAL_OK;
	}
	const struct fal_agent_ops ops = { .arg = u,
					   .send = upstream_send,
					   .run = upstream_on_run,
					   .cancel = upstream_on_cancel,
					   .steps = upstream_on_steps,
					   .whole = upstream_on_whole };
	const struct fal_agent_conf conf = { .n = j->model->params,
					     .lanes_max = FAL_LANES_MAX,
					     .incarnation = u->client.incarnation,
					     .map_epoch = u->client.epoch,
					     .tasks = fal_files_clock_tasks(j),
					     .push_bits = j->job.push_bits,
					     .seed = j->job.seed,
					     .metrics = j->job.metrics.n,
					     .optim = j->job.optim,
					     .outer = true };
	u->agent = fal_agent_new(&conf, &ops);
	u->server->events.after_event(u->server);
	return FAL_OK;
}

static int
upstream_on_msg(void *arg, struct fal_client *c, const struct fal_msg *m)
{
	struct ps_upstream *u = arg;
	int err = FAL_OK;
	if (u->state == UPSTREAM_ENDED)
		return FAL_OK;
	if (m->type == FAL_MSG_MAP) {
		fal_client_fail(c, FAL_EXIT_NO,
				"%s: its shards are in several processes, which no group "
				"server can push to",
				c->at);
	} else if (u->agent == NULL) {
		err = FAL_ESTATE;
	} else if (m->type == FAL_MSG_GRANT && m->grant.kind == FAL_KIND_DELTA) {
		fal_client_fail(c, FAL_EXIT_NO,
				"%s: its policy has local steps by now, which no "
				"group server makes",
				c->at);
	} else {
		if (m->type == FAL_MSG_PUBLISHED)
			err = fal_client_expect_parts(c, u->server->job->hash, m);
		if (err == FAL_OK)
			err = fal_agent_msg(u->agent, uv_hrtime(), m);
	}
	if (err == FAL_OK)
		u->server->events.after_event(u->server);
	return err;
}

static void
upstream_on_room(void *arg)
{
	struct ps_upstream *u = arg;
	u->server->events.after_event(u->server);
}

static void
upstream_on_drain(void *arg)
{
	struct ps_upstream *u = arg;
	if (u->agent != NULL)
		fal_agent_flushed(u->agent, uv_hrtime());
}

/* ---- the connection --- */

static void
upstream_on_close(void *arg, struct fal_client *c, int code)
{
	struct ps_upstream *u = arg;
	struct ps_end *e = &u->server->end;
	if (u->state == UPSTREAM_ENDED)
		return;
	if (code >= 0) {
		e->upstream_code = code;
		e->upstream_why = c->why;
		upstream_set_end(u, PS_UPSTREAM_ENDED);
	} else if (u->state == UPSTREAM_READY) {
		upstream_set_end(u, PS_UPSTREAM_LOST);
	} else { /* members have got nothing of this connection: another one follows */
		fal_agent_free(u->agent);
		u->agent = NULL;
		fal_client_retry(c, false);
		return;
	}
	u->server->events.after_event(u->server);
}

static void
upstream_on_open(void *arg, struct fal_client *c)
{
	const struct ps_upstream *u = arg;
	struct fal_coord_aggregate are;
	struct fal_msg m = { .hello.group = 1 };
	fal_chan_compress(c->chan, u->run->compress);
	fal_coord_aggregate(u->server->coord, &are);
	m.hello.lanes_min = m.hello.lanes_max = m.hello.cores =
		are.lanes > 0 ? are.lanes : 1;
	fal_client_hello(c, &m, u->run->key->name, u->run->instance);
}

struct ps_upstream *
ps_upstream_new(struct ps_server *s)
{
	struct ps_upstream *u = fal_xcalloc(1, sizeof(*u));
	const struct fal_client_conf conf = { .prog = PROG,
					      .loop = s->loop,
					      .addr = &s->run->coordinator,
					      .addrs = 1,
					      .key = s->run->key,
					      .retry = &s->run->retry,
					      .arg = u,
					      .on_open = upstream_on_open,
					      .on_msg = upstream_on_msg,
					      .on_job = upstream_on_job,
					      .on_room = upstream_on_room,
					      .on_drain = upstream_on_drain,
					      .on_close = upstream_on_close };
	u->group = fal_group_new(s->job->model->params);
	u->server = s;
	u->run = s->run;
	const bool again = s->run->state.incarnation > 1;
	if (!again)
		u->run->retry.lost = uv_hrtime();
	fal_client_init(&u->client, &conf);
	fal_client_retry(&u->client, !again);
	return u;
}
