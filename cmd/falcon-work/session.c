/* The session: connections to the coordinator, one after another; the messages between
 * coordinator, shards of other processes, agent and job runtime; and the state that
 * outlives a connection.
 *
 * A lost connection also ends the agent, once no lane works for the agent any more.
 * Lanes, data and net stay as long as the job's texts are the same.
 */
#include "backend.h"
#include "base/build.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/notify.h"
#include "crypto/secret.h"
#include "job_runtime.h"
#include "net/client.h"
#include "net/conn.h"
#include "wire/block_map.h"
#include "worker/agent.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEAVE_MS 10000      /* time for the coordinator to answer our leaving */
#define STREAM_LOST_MS 3000 /* time for the coordinator to say why a shard ended */
#define RENEW_NS \
	(3600 * UINT64_C(1000000000)) /* a session's life until a new handshake */
#define SLEEP_S 10         /* no connection outlives such a sleep of the machine */
#define ROAM_CHECK_MS 2000 /* between checks whether this machine has moved */

#define COMPRESS_EVERY 100 /* versions between measurements */
#define LATE_EVERY_NS \
	UINT64_C(10000000000) /* between lines about emulated tasks, with -v */
#define PROGRESS_S 10         /* between lines about progress, with -v */

/* The stream to shards of another process (falcon-protocol(7), SHARDS), which lives and
 * dies with the session. */
struct shard_link {
	struct fal_client client;
	struct session *session;
	struct fal_addr addr;
	struct fal_client_key *key; /* in locked memory */
	uint32_t first, count;      /* shards, from 1 */
	bool was_dialled;
};

/* The state of the connection. */
enum phase {
	CONNECTING,
	READY,   /* READY was sent */
	ADMITTED /* the scheduler has sent a message */
};

struct session {
	const struct work_opt *opt;
	uv_loop_t loop;
	uv_timer_t timer;      /* deadline of leaving or of a lost shard, or the end */
	uv_timer_t roam_timer; /* checks whether this machine has moved */
	uv_signal_t on_term, on_int;
	uint8_t instance[FAL_INSTANCE]; /* identifies this process */
	struct {                    /* the last check whether this machine has moved */
		unsigned n;         /* checks so far */
		uint64_t addresses; /* hash of this machine's addresses */
		int64_t slept_s;    /* seconds that this machine has slept */
	} roam;

	/* the connection */
	struct fal_client client;
	enum phase phase;
	struct shard_link **link; /* in the order of their shards */
	size_t links, links_cap;
	struct fal_agent *agent;
	uint32_t agents; /* so far */
	uint64_t pushed; /* messages sent since the last deadline */

	struct job_runtime runtime;
	struct spare_core spare;
	struct fal_retry retry;
	struct fal_diag memory_denied; /* the need beyond --max-memory; "": none */
	bool is_over;
	bool renews; /* leaves for a new session at once; else client.is_leaving */
	struct {     /* sums over emulated tasks */
		uint64_t virtual_ns;
		int64_t late_ns;    /* lanes.h */
		uint64_t logged_ns; /* virtual_ns when late_ns was last logged */
	} emulated;
	struct fal_agent_overlap overlap; /* sum over former agents */
	struct {
		uint64_t tasks;     /* begun since … */
		uint64_t logged_ns; /* … the last line, by uv_hrtime; 0: none */
	} progress;
};

static int shard_links_dial(struct session *s);
static void session_after_agent(struct session *s, int err);

/* --- streams to shards ------------------------------------------------------------- */

/* Returns true if the link's shards have blocks, or have yet to send some of a version
 * that was announced before they gave these blocks away, or if there is no block map yet.
 */
static bool
link_is_needed(const struct shard_link *l)
{
	const struct fal_agent *agent = l->session->agent;
	const struct fal_map *map = agent != NULL ? fal_agent_map(agent) : NULL;
	uint32_t i = l->first - 1;
	if (map == NULL)
		return true;
	while (i < l->first - 1 + l->count && map->of[i].count == 0 &&
	       !fal_agent_awaits_shard(agent, i + 1))
		i++;
	return i < l->first - 1 + l->count;
}

static void
link_remove(struct session *s, size_t at)
{
	struct shard_link *l = s->link[at];
	if (l->client.chan != NULL)
		fal_chan_kill(l->client.chan);
	fal_secret_free(l->key);
	free(l);
	memmove(s->link + at, s->link + at + 1,
		(--s->links - at) * sizeof(struct shard_link *));
}

/* Adds the shards of a MAP, in place of the former links to them.  FAL_EFORMAT,
 * FAL_ELIMIT. */
static int
links_add(struct session *s, const struct fal_msg *m)
{
	const uint32_t before = m->map.first - 1;
	if (!fal_name_valid(m->map.name) || m->map.count < 1 ||
	    before >= FAL_SHARDS_MAX || m->map.count > FAL_SHARDS_MAX - before)
		return FAL_EFORMAT;
	for (size_t i = s->links; i > 0; i--) {
		const struct shard_link *l = s->link[i - 1];
		if (l->first < m->map.first + m->map.count &&
		    m->map.first < l->first + l->count)
			link_remove(s, i - 1);
	}
	if (s->links == FAL_SHARDS_MAX)
		return FAL_ELIMIT;
	struct shard_link *l = fal_xcalloc(1, sizeof(*l));
	FAL_XGROW(s->link, s->links_cap, s->links + 1);
	l->session = s;
	s->link[s->links++] = l;
	/* The link's address and its key: */
	const struct fal_addr *to = &s->client.conf.addr[s->client.addr_index];
	struct fal_addr at;
	int err = fal_addr_parse(m->map.address, &at, NULL);
	if (err == FAL_OK && at.kind == FAL_ADDR_EXEC)
		err = FAL_EFORMAT; /* a coordinator may run no command here */
	/* A command that reaches the coordinator also reaches the listeners in the
	 * coordinator's network. */
	if (err == FAL_OK && to->kind == FAL_ADDR_EXEC && at.kind == FAL_ADDR_TCP)
		fal_addr_via_command(to, &at, &l->addr);
	else
		l->addr = at;
	l->key = fal_secret_alloc(sizeof(*l->key));
	if (err < 0)
		return err;
	*l->key = (struct fal_client_key){ .role = FAL_ROLE_WORK };
	memcpy(l->key->name, m->map.name, sizeof(l->key->name));
	memcpy(l->key->psk, m->map.psk, sizeof(l->key->psk));
	memcpy(l->key->server, m->map.public, sizeof(l->key->server));
	l->first = m->map.first;
	l->count = m->map.count;
	return FAL_OK;
}

enum link_fact {
	LINK_IS_OPEN,
	LINK_IS_CLOSED,
	LINK_IS_DRAINED, /* the socket has all sent bytes */
	/* the link is open, so ATTACH was sent, and has room for bulk; or the link is
	 * not needed */
	LINK_HAS_ROOM,
	LINK_IS_USABLE /* false: the stream has ended, though its shards have blocks */
};

static bool
link_is(const struct shard_link *l, enum link_fact fact)
{
	const struct fal_client *c = &l->client;
	switch (fact) {
	case LINK_IS_OPEN:
		return c->is_open;
	case LINK_IS_CLOSED:
		return c->chan == NULL;
	case LINK_IS_DRAINED:
		return c->chan == NULL || fal_chan_stat(c->chan).held == 0;
	case LINK_HAS_ROOM:
		return !link_is_needed(l) || (c->is_open && fal_chan_has_room(c->chan));
	case LINK_IS_USABLE:
		return !l->was_dialled || c->chan != NULL || !link_is_needed(l);
	}
	return false;
}

static bool
links_all(const struct session *s, enum link_fact fact)
{
	for (size_t i = 0; i < s->links; i++)
		if (!link_is(s->link[i], fact))
			return false;
	return true;
}

/* Ends the streams once all bytes sent have left. */
static void
links_close(struct session *s)
{
	for (size_t i = 0; i < s->links; i++)
		if (s->link[i]->client.chan != NULL)
			fal_client_end(&s->link[i]->client, FAL_EXIT_DONE);
}

/* Ends the streams at once. */
static void
links_kill(struct session *s)
{
	while (s->links > 0)
		link_remove(s, s->links - 1);
}

/* --- sending ---------------------------------------------------------------------- */

static void
on_agent_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct session *s = arg;
	fal_client_send_bytes(&s->client, msg, bulk ? FAL_SEND_BULK : FAL_SEND_CONTROL);
}

static void
on_agent_push(void *arg, uint32_t shard, const struct fal_buf *msg)
{
	struct session *s = arg;
	size_t i = 0;
	while (i < s->links && shard - s->link[i]->first >= s->link[i]->count)
		i++;
	fal_client_send_bytes(i < s->links ? &s->link[i]->client : &s->client, msg,
			      FAL_SEND_BULK);
}

/* --- ends ------------------------------------------------------------------------- */

/* Closes the loop's handles: connection and tasks have ended. */
static void
on_session_over(uv_timer_t *t)
{
	struct session *s = t->data;
	s->is_over = true;
	uv_close((uv_handle_t *)&s->timer, NULL);
	uv_close((uv_handle_t *)&s->roam_timer, NULL);
	uv_close((uv_handle_t *)&s->on_term, NULL);
	uv_close((uv_handle_t *)&s->on_int, NULL);
	runtime_stop(&s->runtime);
}

/* Continues the end of a session whose connection is gone: once lanes and pool have ended
 * their work, frees the agent, and schedules the next attempt or the worker's end. */
static void
session_settle(struct session *s)
{
	if (s->is_over || s->client.chan != NULL || !links_all(s, LINK_IS_CLOSED) ||
	    !runtime_is_idle(&s->runtime))
		return;
	links_kill(s);
	if (s->agent != NULL) {
		const struct fal_agent_overlap o = fal_agent_overlap(s->agent);
		s->overlap.tasks += o.tasks;
		s->overlap.begun += o.begun;
		fal_agent_free(s->agent);
		s->agent = NULL;
	}
	if (s->client.is_over)
		uv_timer_start(&s->timer, on_session_over, 0, 0);
	else
		fal_client_retry(&s->client, s->renews);
	s->renews = false;
}

/* Called when the connection is gone: cancels all work for the coordinator. */
static void
session_on_close(void *arg, struct fal_client *c, int code)
{
	struct session *s = arg;
	const bool is_over = code >= 0;
	(void)c;
	uv_timer_stop(&s->timer);
	if (!is_over && !s->renews && s->phase >= READY)
		fal_cli_notify("STATUS=reconnecting");
	s->phase = CONNECTING;
	if (is_over || s->renews)
		links_close(s);
	else
		links_kill(s);
	runtime_cancel(&s->runtime, is_over);
	session_settle(s);
}

/* Ends the session with this exit code once all bytes sent have left. */
static void
session_end(struct session *s, int code)
{
	links_close(s);
	fal_client_end(&s->client, code);
}

/* Ends the session at once, with this exit code and the reason on stderr; before READY
 * also sends the reason to the coordinator. */
static void __attribute__((format(printf, 3, 4)))
session_fail(struct session *s, int code, const char *fmt, ...)
{
	struct fal_diag text;
	va_list ap;
	if (fal_client_is_over(&s->client))
		return;
	va_start(ap, fmt);
	vsnprintf(text.text, sizeof(text.text), fmt, ap);
	va_end(ap);
	if (s->client.is_welcomed && s->phase < READY) {
		struct fal_msg m = { .type = FAL_MSG_LEAVE };
		snprintf(m.leave.why, sizeof(m.leave.why), "it cannot work: %.200s",
			 text.text);
		fal_client_send(&s->client, &m);
		fal_cli_err(PROG, "%s", text.text);
		session_end(s, code);
	} else {
		fal_client_fail(&s->client, code, "%s", text.text);
	}
}

static void
on_leave_deadline(uv_timer_t *t)
{
	struct session *s = t->data;
	if (s->pushed != 0) { /* the coordinator still takes the pushes before LEAVE */
		s->pushed = 0;
		uv_timer_start(&s->timer, on_leave_deadline, LEAVE_MS, 0);
		return;
	}
	if (s->client.chan != NULL && !fal_client_is_over(&s->client))
		fal_chan_fail(s->client.chan, FAL_EIO, "does not answer");
}

/* Returns true if the session is leaving or has ended. */
static bool
session_is_leaving(const struct session *s)
{
	return s->client.is_leaving || s->renews || fal_client_is_over(&s->client);
}

/* Makes the agent leave, and sets a deadline.  The agent first waits for the answers to
 * its claims. */
static void
session_leave(struct session *s, const char *why)
{
	s->client.is_leaving = !s->renews;
	s->pushed = 0;
	if (!s->renews)
		fal_cli_notify("STOPPING=1");
	uv_timer_start(&s->timer, on_leave_deadline, LEAVE_MS, 0);
	if (why != NULL)
		fal_agent_leave(s->agent, uv_hrtime(), why);
}

/* Called after each call of the agent, whose result is `err`: sends pushes, and ends the
 * session after an error or when the agent has left. */
static void
session_after_agent(struct session *s, int err)
{
	const char *denied = s->memory_denied.text;
	if (err == FAL_OK && denied[0] != '\0' && !session_is_leaving(s)) {
		fal_cli_err(PROG, "%s: leaving", denied);
		session_leave(s, "the job came to need more memory than it has");
	}
	/* The agent pushes as much as the channels have room for. */
	while (err == FAL_OK && !fal_client_is_over(&s->client) &&
	       fal_chan_has_room(s->client.chan) && links_all(s, LINK_HAS_ROOM) &&
	       fal_agent_send_next(s->agent))
		s->pushed++;
	if (err == FAL_ENONFINITE) { /* the agent has sent LEAVE with the reason */
		fal_cli_err(PROG,
			    "%s: its local steps led to weights that are not finite",
			    s->client.at);
		session_end(s, FAL_EXIT_NO);
	} else if (err < 0) {
		session_fail(s, FAL_EXIT_NO, "%s: %s", s->client.at, fal_strerror(err));
	} else if (s->renews && fal_agent_has_left(s->agent)) {
		session_end(s, FAL_CLIENT_RETRY);
	} else if (s->client.is_leaving && fal_agent_has_left(s->agent)) {
		session_end(s, denied[0] != '\0' ? FAL_EXIT_NO : FAL_EXIT_DONE);
	}
}

/* Tasks begin early only with a spare core for the work beside computing.  A core counts
 * as spare in two cases: the coordinator is on another machine; or the connection to it
 * is local and unsealed, so that the work is only copying, and spare_core_exists() finds
 * enough idle time. */
static bool
on_agent_begins(void *arg)
{
	struct session *s = arg;
	if (!runtime_can_start_early(&s->runtime))
		return false;
	return !fal_chan_is_local(s->client.chan) ||
	       (fal_chan_is_unsealed(s->client.chan) &&
		spare_core_exists(&s->spare, uv_hrtime(), fal_agent_lanes(s->agent)));
}

static void
on_agent_came(void *arg, uint32_t lane, uint32_t blocks)
{
	struct session *s = arg;
	lane_add_blocks(s->runtime.lanes, lane, blocks);
}

static void
send_ready(struct session *s)
{
	const struct fal_emul *e = s->opt->emulate;
	const struct backend_profile *p = &s->runtime.profile;
	struct fal_msg m = { .type = FAL_MSG_READY };
	memcpy(m.ready.fingerprint, p->fingerprint, FAL_FINGERPRINT);
	memcpy(m.ready.kernels, p->kernels, sizeof(m.ready.kernels));
	memcpy(m.ready.data, p->data_hash, FAL_DATA_HASH);
	m.ready.task_ns = p->task_ns;
	m.ready.large = p->large_batch;
	m.ready.large_ns = p->large_ns;
	if (e != NULL) {
		m.ready.task_ns = fal_emul_probe_ns(e, s->runtime.setup.job.task);
		m.ready.large_ns = fal_emul_probe_ns(e, m.ready.large);
	}
	s->phase = READY;
	/* the coordinator may refuse the worker's numerics */
	s->client.is_candidate = true;
	fal_client_send(&s->client, &m);
	fal_cli_notify("READY=1\nSTATUS=working");
	if (!s->opt->verbose)
		return;
	const struct fal_model *model = s->runtime.setup.model;
	char frozen[256] = ""; /* tensors */
	uint32_t more = 0;
	size_t n = 0;
	for (uint32_t i = 0; i < model->tensors; i++)
		if (model->tensor[i].frozen && n + strlen(model->tensor[i].name) < 200)
			n += (size_t)snprintf(frozen + n, sizeof(frozen) - n, "%s %s",
					      n == 0 ? "; not stepped:" : ",",
					      model->tensor[i].name);
		else
			more += model->tensor[i].frozen;
	if (more > 0)
		snprintf(frozen + n, sizeof(frozen) - n, " and %u more", more);
	fal_cli_err(PROG, "%s: joined job %s by %s%s; a task takes %.3f ms%s",
		    s->client.at, s->runtime.setup.job.name,
		    fal_suite_name(fal_chan_suite(s->client.chan)),
		    fal_chan_is_unsealed(s->client.chan) ? ", unsealed on this machine"
							 : "",
		    (double)m.ready.task_ns * 1e-6, frozen);
}

/* --- the job ---------------------------------------------------------------------- */

/* Called when a task of this clock begins: from time to time logs the progress of the
 * job. */
static void
session_log_progress(struct session *s, uint64_t clock)
{
	const struct fal_setup *of = &s->runtime.setup;
	const struct fal_grid grid = fal_job_grid(&of->job, of->manifest.train.n);
	const uint64_t each = fal_grid_epoch_clocks(&grid);
	const double seconds = 1e-9 * (double)(uv_hrtime() - s->progress.logged_ns);
	s->progress.tasks++;
	if (seconds < PROGRESS_S)
		return;
	if (s->progress.logged_ns > 0)
		fal_cli_err(PROG,
			    "%s: epoch %ju of %u, clock %ju of %ju: %.1f tasks a second",
			    of->job.name, clock / each + 1, grid.epochs, clock + 1,
			    fal_grid_clocks(&grid), (double)s->progress.tasks / seconds);
	s->progress.tasks = 0;
	s->progress.logged_ns = uv_hrtime();
}

static void
on_agent_run(void *arg, uint32_t lane, const struct fal_task_run *run)
{
	struct session *s = arg;
	if (s->opt->verbose && !run->eval)
		session_log_progress(s, run->clock);
	int err = runtime_start_task(&s->runtime, lane, run);
	if (err < 0)
		session_fail(s, FAL_EXIT_NO, "%s: %s", s->client.at, fal_strerror(err));
}

static void
on_agent_cancel(void *arg, uint32_t lane)
{
	struct session *s = arg;
	lane_cancel(s->runtime.lanes, lane);
}

static uint64_t
on_agent_steps(void *arg)
{
	const struct session *s = arg;
	return runtime_progress(&s->runtime);
}

/* Called when the agent needs more memory.  Without more sums the agent works on, but
 * slower; without more versions or local steps the worker has to leave. */
static bool
on_agent_grow(void *arg, const struct fal_agent_limits *to)
{
	struct session *s = arg;
	const struct fal_agent_limits *was = &s->runtime.maximum;
	struct fal_diag why;
	if (runtime_grow(&s->runtime, to, s->links, &why) == FAL_OK)
		return true;
	if (to->versions != was->versions || to->delta != was->delta)
		s->memory_denied = why;
	return false;
}

static void
session_log_lateness(struct session *s)
{
	s->emulated.logged_ns = s->emulated.virtual_ns;
	fal_cli_err(PROG, "emulate: %.1f %% late",
		    100 * (double)s->emulated.late_ns / (double)s->emulated.virtual_ns);
}

/* Called when a lane can compute no further task, because `what` failed.  If a trainer
 * was given up, the log has the reason, and the coordinator gets the reason. */
static void
session_lane_failed(struct session *s, const char *what, uint32_t lane, int err)
{
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	struct fal_diag why;
	if (err != FAL_EPERM) {
		session_fail(s, FAL_EXIT_NO, "%s: %s", what, fal_strerror(err));
		return;
	}
	trainer_last_error(s->opt->trainers->trainer[lane % s->opt->lanes_max], &why);
	m.leave.cause = FAL_LEAVE_TRAINER;
	fal_text_plain(m.leave.why, sizeof(m.leave.why), why.text);
	if (s->client.is_welcomed)
		fal_client_send(&s->client, &m);
	session_end(s, FAL_EXIT_NO);
}

static void
on_task_end(void *arg, uint32_t lane, const struct lane_result *e)
{
	struct session *s = arg;
	struct job_runtime *k = &s->runtime;
	runtime_task_ended(k, lane);
	if (e->err < 0)
		session_lane_failed(s, "a task", lane, e->err);
	if (e->err == FAL_OK && e->ran.room > 0 && !k->logged_large) {
		struct fal_diag what;
		k->logged_large = true;
		fal_explain_large_gradient(e->ran.most, e->ran.room, &what);
		fal_cli_err(PROG, "%s: a %s", k->setup.job.name, what.text);
	}
	if (s->client.chan == NULL) {
		session_settle(s);
		return;
	}
	if (e->virtual_ns > 0) {
		s->emulated.virtual_ns += e->virtual_ns;
		s->emulated.late_ns += e->late_ns;
		fal_agent_add_lateness(s->agent, e->late_ns);
		if (s->opt->verbose &&
		    s->emulated.virtual_ns - s->emulated.logged_ns > LATE_EVERY_NS)
			session_log_lateness(s);
	}
	session_after_agent(s, fal_agent_finished(s->agent, uv_hrtime(), lane, &e->ran));
}

static void
request_chunk(void *arg, bool test, uint32_t chunk)
{
	struct session *s = arg;
	struct fal_msg m = { .type = FAL_MSG_CHUNK_GET };
	m.chunk_get.test = test;
	m.chunk_get.chunk = chunk;
	fal_client_send(&s->client, &m);
}

/* Called when something that tasks wait for has come: data, the probe's end, a stream.
 * Releases tasks and, once nothing is missing for the first one, sends READY. */
static void
session_on_chunk(void *arg)
{
	struct session *s = arg;
	runtime_release_tasks(&s->runtime);
	if (s->phase < READY && !fal_client_is_over(&s->client) &&
	    runtime_is_ready(&s->runtime) && links_all(s, LINK_IS_OPEN))
		send_ready(s);
}

/* The probe or the loading of a local copy has ended. */
static void
on_prepared(void *arg)
{
	struct session *s = arg;
	const struct job_runtime *k = &s->runtime;
	if (!k->probe.is_running && k->probe.err < 0)
		session_lane_failed(s, "probing", k->profile.lane, k->probe.err);
	else if (!k->load.is_running && k->load.err < 0)
		session_fail(s, FAL_EXIT_USAGE, "%s", k->load.diag.text);
	if (s->client.chan == NULL)
		session_settle(s);
	else if (s->agent != NULL)
		session_on_chunk(s);
}

/* The job's texts are complete: makes the runtime and an agent, and fetches data. */
static int
session_on_job(void *arg, struct fal_client *c)
{
	struct session *s = arg;
	const struct fal_agent_ops ops = { .arg = s,
					   .send = on_agent_send,
					   .run = on_agent_run,
					   .cancel = on_agent_cancel,
					   .steps = on_agent_steps,
					   .push = on_agent_push,
					   .begins = on_agent_begins,
					   .came = on_agent_came,
					   .grow = on_agent_grow };
	const struct runtime_conf with = { .loop = &s->loop,
					   .opt = s->opt,
					   .streams = s->links,
					   .arg = s,
					   .on_task_end = on_task_end,
					   .request_chunk = request_chunk,
					   .on_chunk = session_on_chunk,
					   .on_prepared = on_prepared };
	struct job_runtime *k = &s->runtime;
	if (!k->is_made || !fal_texts_equal(&k->texts, &c->texts)) {
		struct fal_diag diag;
		runtime_free(k);
		if (runtime_make(k, &with, &c->texts, &diag) < 0) {
			session_fail(s, FAL_EXIT_NO, "%s", diag.text);
			return FAL_OK;
		}
	}
	struct fal_agent_conf conf = runtime_agent_conf(k);
	conf.serial = (uint64_t)++s->agents << 40;
	conf.incarnation = c->incarnation;
	conf.map_epoch = c->epoch;
	s->agent = fal_agent_new(&conf, &ops);
	runtime_fetch(k, c->clock);
	int err = shard_links_dial(s);
	if (err == FAL_OK)
		session_on_chunk(s);
	return err;
}

/* --- messages --- */

static void
on_stream_lost_deadline(uv_timer_t *t)
{
	struct session *s = t->data;
	if (s->client.chan != NULL &&
	    !links_all(s, LINK_IS_USABLE)) /* no shard took over the blocks */
		fal_chan_fail(s->client.chan, FAL_EIO, "the stream to a shard has ended");
}

/* The stream to a shard has ended.  This ends the session, unless the coordinator first
 * gives the shard's blocks away, or ends the job; blocks that the shard was still to send
 * come in the next session. */
static void
session_stream_lost(struct session *s)
{
	if (s->client.chan == NULL)
		session_settle(s);
	else if (!session_is_leaving(s))
		uv_timer_start(&s->timer, on_stream_lost_deadline, STREAM_LOST_MS, 0);
}

static uint8_t *
session_on_place(void *arg, const struct fal_publication *pub, uint32_t index, size_t n,
		 size_t *head)
{
	const struct session *s = arg;
	const struct fal_agent_part part = {
		.version = pub->version,
		.first = pub->first + index * FAL_MODEL_BLOCKS,
		.blocks = fal_msg_model_blocks(pub->blocks, index),
	};
	if (s->agent == NULL)
		return NULL;
	return fal_agent_place(s->agent, &part, n, head);
}

/* Passes a message to the agent. */
static int
session_on_agent_msg(struct session *s, struct fal_client *c, const struct fal_msg *m)
{
	if (s->phase < READY)
		return FAL_ESTATE;
	if (m->type == FAL_MSG_VERSION && s->opt->compress == FAL_COMPRESS_AUTO &&
	    m->version.version % COMPRESS_EVERY == 0)
		fal_chan_compress(s->client.chan, FAL_COMPRESS_AUTO);
	int err = m->type == FAL_MSG_PUBLISHED
			  ? fal_client_expect_parts(c, s->runtime.job_hash, m)
			  : FAL_OK;
	s->phase = ADMITTED;
	s->client.is_candidate = false;
	if (m->type == FAL_MSG_DRAIN && !s->client.is_leaving) {
		s->renews = false;
		fal_cli_err(PROG, "drained: %s", m->drain.why);
		session_leave(s, NULL); /* the agent leaves by the message */
	}
	if (err < 0)
		return err;
	err = fal_agent_msg(s->agent, uv_hrtime(), m);
	if (err == FAL_OK && m->type == FAL_MSG_BLOCKS) {
		/* Removes the links whose stream has ended and whose shards have no
		 * blocks in the new map. */
		for (size_t i = s->links; i > 0; i--) {
			const struct shard_link *l = s->link[i - 1];
			if (l->was_dialled && l->client.chan == NULL &&
			    !link_is_needed(l))
				link_remove(s, i - 1);
		}
		if (!links_all(s, LINK_IS_USABLE)) /* the stream ended before its shards
						    got blocks */
			session_stream_lost(s);
	}
	session_after_agent(s, err);
	return FAL_OK;
}

static int
session_on_msg(void *arg, struct fal_client *c, const struct fal_msg *m)
{
	struct session *s = arg;
	if (m->type == FAL_MSG_MAP) {
		int err = s->client.is_welcomed ? links_add(s, m) : FAL_ESTATE;
		if (err < 0 || s->agent == NULL)
			return err;
		/* The process of these shards came late. */
		(void)runtime_grow(&s->runtime, &s->runtime.maximum, s->links,
				   &s->memory_denied);
		return shard_links_dial(s);
	}
	if (m->type == FAL_MSG_CHUNK)
		return s->agent != NULL ? runtime_add_chunk(&s->runtime, m) : FAL_ESTATE;
	return session_on_agent_msg(s, c, m);
}

/* Takes a message of a shard. */
static int
on_link_msg(void *arg, struct fal_client *c, const struct fal_msg *m)
{
	struct session *s = arg;
	if (fal_client_is_over(&s->client))
		return FAL_OK;
	return m->type == FAL_MSG_PUBLISHED || m->type == FAL_MSG_MODEL
		       ? session_on_agent_msg(s, c, m)
		       : FAL_EFORMAT;
}

static void
session_on_room(void *arg)
{
	struct session *s = arg;
	if (s->agent != NULL && s->client.chan != NULL && !fal_client_is_over(&s->client))
		session_after_agent(s, FAL_OK);
}

static void
session_on_drain(void *arg)
{
	struct session *s = arg;
	if (s->agent != NULL && links_all(s, LINK_IS_DRAINED) &&
	    (s->links == 0 || fal_chan_stat(s->client.chan).held == 0))
		fal_agent_flushed(s->agent, uv_hrtime());
}

/* --- the connection --- */

static void
session_on_open(void *arg, struct fal_client *c)
{
	const struct session *s = arg;
	const struct work_opt *opt = s->opt;
	struct fal_msg m = { .hello = { .lanes_min = opt->lanes_min,
					.lanes_max = opt->lanes_max,
					.cores = opt->cores } };
	fal_chan_compress(c->chan, opt->compress);
	fal_client_hello(c, &m, opt->name, s->instance);
}

/* The configuration of the coordinator's client, and the common part of the links'. */
static struct fal_client_conf
session_client_conf(struct session *s)
{
	return (struct fal_client_conf){ .prog = PROG,
					 .loop = &s->loop,
					 .addr = s->opt->addr,
					 .addrs = s->opt->addrs,
					 .key = s->opt->key,
					 .retry = &s->retry,
					 .chan = { .link = fal_emul_link(s->opt->emulate),
						   .unseals = true },
					 .tries_doors = true,
					 .verbose = s->opt->verbose,
					 .arg = s,
					 .on_open = session_on_open,
					 .on_msg = session_on_msg,
					 .on_job = session_on_job,
					 .on_place = session_on_place,
					 .on_room = session_on_room,
					 .on_drain = session_on_drain,
					 .on_close = session_on_close };
}

static void
on_link_open(void *arg, struct fal_client *c)
{
	struct session *s = arg;
	struct fal_msg m = { .type = FAL_MSG_ATTACH };
	fal_chan_compress(c->chan, s->opt->compress);
	c->incarnation = s->client.incarnation;
	fal_client_send(c, &m);
	if (s->agent == NULL)
		return;
	session_on_chunk(s);
	if (s->phase >= READY)
		session_on_room(s); /* sends the pushes that awaited the stream */
}

static void
on_link_close(void *arg, struct fal_client *c, int code)
{
	struct session *s = arg;
	if (code > FAL_EXIT_DONE)
		session_fail(s, FAL_EXIT_NO, "a shard: %s", c->why.text);
	session_stream_lost(s);
}

/* Dials the links that were not dialled yet. */
static int
shard_links_dial(struct session *s)
{
	int err = FAL_OK;
	for (size_t i = 0; i < s->links && err == FAL_OK; i++) {
		struct shard_link *l = s->link[i];
		if (l->was_dialled)
			continue;
		struct fal_client_conf conf = session_client_conf(s);
		conf.prog = NULL;
		conf.addr = &l->addr;
		conf.addrs = 1;
		conf.key = l->key;
		conf.retry = NULL;
		conf.on_open = on_link_open;
		conf.on_msg = on_link_msg;
		conf.on_job = NULL;
		conf.on_close = on_link_close;
		fal_client_init(&l->client, &conf);
		l->was_dialled = true;
		err = fal_client_dial(&l->client);
	}
	return err;
}

/* Checks whether this machine has moved to another network, or slept.  A connection
 * from an address that is gone is dead, although no event reports its end.  A
 * coordinator's address that was out of reach may be in reach now. */
static void
on_roam_check(uv_timer_t *t)
{
	struct session *s = t->data;
	/* A hash of the networks that this machine is in. */
	uv_interface_address_t *all;
	uint64_t addresses = 1;
	int n;
	if (uv_interface_addresses(&all, &n) == 0) {
		for (int i = 0; i < n; i++) {
			uint64_t net[2]; /* all of IPv4, and the prefix of IPv6 */
			memcpy(net, &all[i].address, sizeof(net));
			addresses =
				(addresses ^ net[0] ^ net[1] << 1) * 0x9e3779b97f4a7c15;
		}
		uv_free_interface_addresses(all, n);
	}
	struct timespec boot = { 0 }, awake = { 0 };
	(void)clock_gettime(CLOCK_BOOTTIME, &boot); /* Linux has both */
	(void)clock_gettime(CLOCK_MONOTONIC, &awake);
	const int64_t slept_s = boot.tv_sec - awake.tv_sec;
	const bool slept = s->roam.n > 0 && slept_s - s->roam.slept_s > SLEEP_S;
	const bool moved = s->roam.n > 0 && (slept || addresses != s->roam.addresses);
	const bool dials = s->client.chan != NULL && !s->client.is_open;
	s->roam.addresses = addresses;
	s->roam.slept_s = slept_s;
	if (s->roam.n++ == 1 && dials && fal_retry_is_first(&s->retry))
		fal_cli_err(PROG, "%s: does not answer yet", s->client.at);
	if (session_is_leaving(s))
		return;
	if (moved)
		fal_retry_reset_pause(&s->retry);
	if (moved && s->client.is_waiting)
		fal_client_retry(&s->client, true);
	/* Sessions that began together are renewed at different times. */
	if (s->phase >= READY &&
	    uv_hrtime() - s->retry.came >
		    RENEW_NS - s->instance[0] * UINT64_C(2000000000)) {
		s->renews = true;
		session_leave(s, "a new session");
		session_after_agent(s, FAL_OK);
		return;
	}
	if (s->client.chan != NULL &&
	    (slept || (moved && dials) || fal_chan_is_stranded(s->client.chan)))
		fal_chan_fail(s->client.chan, FAL_EIO, "this machine %s",
			      slept ? "slept" : "has another address now");
}

/* --- signals, beginning and end --------------------------------------------------- */

static void
session_on_signal(uv_signal_t *h, int sig)
{
	struct session *s = h->data;
	if (s->client.is_leaving)
		_exit(FAL_EXIT_NO);
	const bool left =
		s->client.chan != NULL && s->renews && fal_agent_has_left(s->agent);
	s->renews = false;
	if (left || s->client.chan == NULL || s->phase < READY) {
		s->client.is_leaving = true;
		fal_cli_notify("STOPPING=1");
		session_end(s, FAL_EXIT_DONE);
		return;
	}
	session_leave(s, sig == SIGINT ? "SIGINT" : "SIGTERM");
	session_after_agent(s, FAL_OK);
}

int
session_run(const struct work_opt *opt, bool *job_is_done)
{
	struct session *s = fal_xcalloc(1, sizeof(*s));
	const int bad = uv_loop_init(&s->loop);
	if (bad < 0) {
		fal_cli_err(PROG, "%s", uv_strerror(bad));
		free(s);
		return FAL_EXIT_NO;
	}
	uv_timer_init(&s->loop, &s->timer);
	uv_timer_init(&s->loop, &s->roam_timer);
	uv_signal_init(&s->loop, &s->on_term);
	uv_signal_init(&s->loop, &s->on_int);
	s->timer.data = s->roam_timer.data = s;
	s->on_term.data = s->on_int.data = s;
	uv_timer_start(&s->roam_timer, on_roam_check, 0, ROAM_CHECK_MS);
	uv_signal_start(&s->on_term, session_on_signal, SIGTERM);
	uv_signal_start(&s->on_int, session_on_signal, SIGINT);
	s->opt = opt;
	s->retry.lost = uv_hrtime();
	s->retry.give_up = opt->give_up * 1000000000;
	fal_random_bytes(s->instance, sizeof(s->instance));
	const struct fal_client_conf conf = session_client_conf(s);
	fal_client_init(&s->client, &conf);
	fal_client_retry(&s->client, true);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	uv_loop_close(&s->loop);
	if (s->emulated.virtual_ns > 0)
		session_log_lateness(s);
	if (opt->verbose && s->overlap.tasks > 0)
		fal_cli_err(PROG,
			    "overlap: %" PRIu64 " of %" PRIu64
			    " tasks began before all of their version was here",
			    s->overlap.begun, s->overlap.tasks);
	const int code = s->client.code;
	*job_is_done = s->client.job_is_done;
	runtime_free(&s->runtime);
	free(s->link);
	free(s);
	return code;
}
