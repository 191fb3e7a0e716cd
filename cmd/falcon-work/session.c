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

/* The stream to shards of another process (falcon-protocol(7), SHARDS), which lives and
 * dies with the session. */
struct shard_link {
	struct session *session;
	struct fal_addr addr;
	struct fal_client_key *key; /* in locked memory */
	uint32_t first, count;      /* shards, from 1 */
	struct fal_chan *chan;      /* NULL: not dialled yet, or closed */
	bool is_open, was_dialled;
};

/* How far the connection has come. */
enum phase {
	CLOSED,
	OPEN,     /* HELLO was sent */
	WELCOMED, /* WELCOME has come */
	READY,    /* READY was sent */
	ADMITTED  /* the scheduler has sent a message */
};

struct session {
	const struct work_opt *opt;
	uv_loop_t loop;
	uv_timer_t timer;       /* retry, deadline of WELCOME or of leaving, or the end */
	uv_timer_t error_timer; /* handles `deferred_err` */
	uv_timer_t roam_timer;  /* checks whether this machine has moved */
	uv_signal_t on_term, on_int;
	size_t addr_index; /* in opt->addr: the coordinator's, or the next to try */
	char addr[FAL_ADDR_MAX + 16]; /* text of that address */
	/* A local door led to no coordinator.  All streams then go to ports, until a port
	 * is reached. */
	bool avoids_doors;
	uint8_t instance[FAL_INSTANCE]; /* identifies this process */
	struct {                    /* the last check whether this machine has moved */
		unsigned n;         /* checks so far */
		uint64_t addresses; /* hash of this machine's addresses */
		int64_t slept_s;    /* seconds that this machine has slept */
	} roam;

	/* the connection */
	enum phase phase;
	struct fal_chan *chan;
	struct shard_link **link; /* in the order of their shards */
	size_t links, links_cap;
	struct fal_agent *agent;
	struct fal_texts texts; /* received so far */
	uint32_t incarnation, map_epoch;
	uint32_t agents; /* so far */
	uint64_t clock;
	uint64_t pushed;  /* messages sent since the last deadline */
	int deferred_err; /* an error in a callback of the agent */

	struct job_runtime runtime;
	struct spare_core spare;
	struct fal_retry retry;
	struct fal_diag later_reason;  /* the coordinator's reason in LATER; "": none */
	struct fal_diag memory_denied; /* the need beyond --max-memory; "": none */
	bool is_leaving, is_ending, is_over;
	bool renews; /* leaves for a new session at once */
	int exit_code;
	struct { /* sums over emulated tasks */
		uint64_t virtual_ns;
		int64_t late_ns;    /* lanes.h */
		uint64_t logged_ns; /* virtual_ns when late_ns was last logged */
	} emulated;
	struct fal_agent_overlap overlap; /* sum over former agents */
};

static void session_dial(struct session *s);
static int shard_links_dial(struct session *s);
static void session_after_agent(struct session *s, int err);

/* The coordinator's address; s->addr is its text. */
static const struct fal_addr *
session_addr(const struct session *s)
{
	return &s->opt->addr[s->addr_index];
}

/* --- streams to shards ------------------------------------------------------------- */

/* Have the link's shards blocks?  Without a block map they may have. */
static bool
link_is_needed(const struct shard_link *l)
{
	const struct fal_agent *agent = l->session->agent;
	const struct fal_map *map = agent != NULL ? fal_agent_map(agent) : NULL;
	uint32_t i = l->first - 1;
	if (map == NULL)
		return true;
	while (i < l->first - 1 + l->count && map->of[i].count == 0)
		i++;
	return i < l->first - 1 + l->count;
}

/* Sets the link's address and its key. */
static int
link_set_target(struct shard_link *l, const struct fal_msg *m)
{
	const struct fal_addr *to = session_addr(l->session);
	struct fal_addr at;
	int err = fal_addr_parse(m->map.address, &at, NULL);
	if (err == FAL_OK && at.kind == FAL_ADDR_EXEC)
		err = FAL_EFORMAT; /* the coordinator cannot have a command run */
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

static void
link_remove(struct session *s, size_t at)
{
	struct shard_link *l = s->link[at];
	if (l->chan != NULL)
		fal_chan_kill(l->chan);
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
	return link_set_target(l, m);
}

/* After a new block map: removes the links whose stream has ended and whose shards have
 * no blocks. */
static void
links_remove_unneeded(struct session *s)
{
	for (size_t i = s->links; i > 0; i--) {
		const struct shard_link *l = s->link[i - 1];
		if (l->was_dialled && l->chan == NULL && !link_is_needed(l))
			link_remove(s, i - 1);
	}
}

enum link_fact {
	LINK_IS_OPEN,
	LINK_IS_CLOSED,
	LINK_IS_DRAINED, /* the socket has all sent bytes */
	LINK_HAS_ROOM,   /* takes bulk, or is not needed; ATTACH is sent first */
	LINK_IS_USABLE   /* false: the stream has ended, though its shards have blocks */
};

static bool
link_is(const struct shard_link *l, enum link_fact fact)
{
	switch (fact) {
	case LINK_IS_OPEN:
		return l->is_open;
	case LINK_IS_CLOSED:
		return l->chan == NULL;
	case LINK_IS_DRAINED:
		return l->chan == NULL || fal_chan_stat(l->chan).held == 0;
	case LINK_HAS_ROOM:
		return !link_is_needed(l) || (l->is_open && fal_chan_has_room(l->chan));
	case LINK_IS_USABLE:
		return !l->was_dialled || l->chan != NULL || !link_is_needed(l);
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
	for (size_t i = 0; i < s->links; i++) {
		struct shard_link *l = s->link[i];
		if (l->chan != NULL && l->is_open) {
			fal_chan_close(l->chan);
		} else if (l->chan != NULL) {
			fal_chan_kill(l->chan);
			l->chan = NULL;
		}
	}
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
on_deferred_error(uv_timer_t *t)
{
	struct session *s = t->data;
	if (s->chan != NULL && s->deferred_err < 0)
		session_after_agent(s, FAL_OK);
	s->deferred_err = FAL_OK;
}

/* Ends the session by an error in a callback, once the callback has returned. */
static void
session_defer_error(struct session *s, int err)
{
	s->deferred_err = err;
	uv_timer_start(&s->error_timer, on_deferred_error, 0, 0);
}

static void
session_send_on(struct session *s, struct fal_chan *c, const struct fal_buf *msg,
		enum fal_send how)
{
	int err = c != NULL ? fal_chan_send(c, msg, how) : FAL_OK;
	if (err < 0 && err != FAL_ESTATE) /* FAL_ESTATE: the channel is closing */
		session_defer_error(s, err);
}

static void
on_agent_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct session *s = arg;
	session_send_on(s, s->chan, msg, bulk ? FAL_SEND_BULK : FAL_SEND_CONTROL);
}

static void
on_agent_push(void *arg, uint32_t shard, const struct fal_buf *msg)
{
	struct session *s = arg;
	size_t i = 0;
	while (i < s->links && shard - s->link[i]->first >= s->link[i]->count)
		i++;
	session_send_on(s, i < s->links ? s->link[i]->chan : s->chan, msg, FAL_SEND_BULK);
}

/* Sends `m` as control; an error is deferred. */
static void
session_send(struct session *s, struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	m->incarnation = s->incarnation;
	fal_msg_put(&out, m);
	session_send_on(s, s->chan, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
}

/* Makes the agent push as much as the channels have room for. */
static void
session_push(struct session *s)
{
	while (s->deferred_err == FAL_OK && fal_chan_has_room(s->chan) &&
	       links_all(s, LINK_HAS_ROOM) && fal_agent_send_next(s->agent))
		s->pushed++;
}

/* --- ends ------------------------------------------------------------------------- */

/* Closes the loop's handles: connection and tasks have ended. */
static void
on_session_over(uv_timer_t *t)
{
	struct session *s = t->data;
	s->is_over = true;
	uv_close((uv_handle_t *)&s->timer, NULL);
	uv_close((uv_handle_t *)&s->error_timer, NULL);
	uv_close((uv_handle_t *)&s->roam_timer, NULL);
	uv_close((uv_handle_t *)&s->on_term, NULL);
	uv_close((uv_handle_t *)&s->on_int, NULL);
	runtime_stop(&s->runtime);
}

static void
session_on_retry(uv_timer_t *t)
{
	struct session *s = t->data;
	s->addr_index = (s->addr_index + 1) % s->opt->addrs;
	session_dial(s);
}

/* Continues the end of a session whose connection is gone: once lanes and pool have ended
 * their work, frees the agent, and schedules the next attempt or the worker's end. */
static void
session_settle(struct session *s)
{
	if (s->is_over || s->chan != NULL || !links_all(s, LINK_IS_CLOSED) ||
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
	if (s->is_ending)
		uv_timer_start(&s->timer, on_session_over, 0, 0);
	else
		uv_timer_start(&s->timer, session_on_retry,
			       s->renews ? 0 : fal_retry_pause_ms(&s->retry, uv_hrtime()),
			       0);
}

/* The connection is gone: cancels all work for it. */
static void
session_disconnected(struct session *s)
{
	s->chan = NULL;
	uv_timer_stop(&s->timer);
	s->phase = CLOSED;
	if (!s->is_ending && !s->renews)
		links_kill(s);
	runtime_cancel(&s->runtime, s->is_ending);
	session_settle(s);
}

/* Ends the session with this exit code once all bytes sent have left. */
static void
session_end(struct session *s, int code)
{
	if (s->is_ending)
		return;
	s->exit_code = code;
	s->is_ending = true;
	links_close(s);
	if (s->phase >= OPEN) {
		fal_chan_close(s->chan);
	} else {
		if (s->chan != NULL)
			fal_chan_kill(s->chan);
		session_disconnected(s);
	}
}

/* Ends the session at once, with this exit code and the reason on stderr; before READY
 * also sends the reason to the coordinator. */
static void __attribute__((format(printf, 3, 4)))
session_fail(struct session *s, int code, const char *fmt, ...)
{
	struct fal_diag text;
	va_list ap;
	if (s->is_ending)
		return;
	va_start(ap, fmt);
	vsnprintf(text.text, sizeof(text.text), fmt, ap);
	va_end(ap);
	fal_cli_err(PROG, "%s", text.text);
	if (s->chan != NULL && s->phase == WELCOMED) {
		struct fal_msg m = { .type = FAL_MSG_LEAVE };
		snprintf(m.leave.why, sizeof(m.leave.why), "it cannot work: %.200s",
			 text.text);
		session_send(s, &m);
		session_end(s, code);
		return;
	}
	s->exit_code = code;
	s->is_ending = true;
	if (s->chan != NULL)
		fal_chan_kill(s->chan);
	links_kill(s);
	session_disconnected(s);
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
	if (s->chan != NULL && !s->is_ending)
		fal_chan_fail(s->chan, FAL_EIO, "does not answer");
}

/* Makes the agent leave, and sets a deadline.  The agent first waits for the answers to
 * its claims. */
static void
session_leave(struct session *s, const char *why)
{
	s->is_leaving = true;
	s->pushed = 0;
	if (!s->renews)
		fal_cli_notify("STOPPING=1");
	uv_timer_start(&s->timer, on_leave_deadline, LEAVE_MS, 0);
	if (why != NULL)
		fal_agent_leave(s->agent, uv_hrtime(), why);
}

/* Follows each call of the agent, which returned `err`: pushes, and ends the session by
 * an error or when the agent has left. */
static void
session_after_agent(struct session *s, int err)
{
	const char *denied = s->memory_denied.text;
	if (err == FAL_OK && denied[0] != '\0' && !s->is_leaving && !s->is_ending) {
		fal_cli_err(PROG, "%s: leaving", denied);
		session_leave(s, "the job came to need more memory than it has");
	}
	if (err == FAL_OK)
		session_push(s);
	const int deferred = s->deferred_err;
	s->deferred_err = FAL_OK;
	if (deferred == FAL_ELIMIT && !s->is_ending && !s->is_leaving) {
		fal_cli_err(PROG, "%s: too slow for what is to be sent; reconnecting",
			    s->addr);
		fal_chan_kill(s->chan);
		session_disconnected(s);
	} else if (err == FAL_ENONFINITE) { /* the agent has sent LEAVE with the reason */
		fal_cli_err(PROG,
			    "%s: its local steps led to weights that are not finite",
			    s->addr);
		session_end(s, FAL_EXIT_NO);
	} else if (err < 0 || deferred < 0) {
		session_fail(s, FAL_EXIT_NO, "%s: %s", s->addr,
			     fal_strerror(err < 0 ? err : deferred));
	} else if (s->renews && fal_agent_has_left(s->agent)) {
		links_close(s);
		fal_chan_close(s->chan);
	} else if (s->is_leaving && fal_agent_has_left(s->agent)) {
		session_end(s, denied[0] != '\0' ? FAL_EXIT_NO : FAL_EXIT_DONE);
	}
}

/* Tasks begin early only with a spare core for the work beside computing.  There is such
 * a core if the coordinator is on another machine; or, if the work is only copying, if
 * other programs leave a core idle. */
static bool
on_agent_begins(void *arg)
{
	struct session *s = arg;
	if (!runtime_can_start_early(&s->runtime))
		return false;
	return !fal_chan_is_local(s->chan) ||
	       (fal_chan_is_unsealed(s->chan) &&
		spare_core_exists(&s->spare, uv_hrtime(), fal_agent_lanes(s->agent)));
}

static void
on_agent_came(void *arg, uint32_t lane, uint32_t blocks)
{
	struct session *s = arg;
	lane_add_blocks(s->runtime.lanes, lane, blocks);
}

/* Lists the frozen tensors for a log line. */
static void
list_frozen_tensors(const struct fal_model *m, char out[static 256])
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
	session_send(s, &m);
	fal_cli_notify("READY=1\nSTATUS=working");
	char frozen[256];
	list_frozen_tensors(s->runtime.setup.model, frozen);
	if (s->opt->verbose)
		fal_cli_err(PROG, "%s: joined job %s by %s%s; a task takes %.3f ms%s",
			    s->addr, s->runtime.setup.job.name,
			    fal_suite_name(fal_chan_suite(s->chan)),
			    fal_chan_is_unsealed(s->chan) ? ", unsealed on this machine"
							  : "",
			    (double)m.ready.task_ns * 1e-6, frozen);
}

/* --- the job ---------------------------------------------------------------------- */

static void
on_agent_run(void *arg, uint32_t lane, const struct fal_task_run *run)
{
	struct session *s = arg;
	int err = runtime_start_task(&s->runtime, lane, run);
	if (err < 0)
		session_defer_error(s, err);
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

/* The agent needs more memory.  Without more sums the agent works on, but slower; without
 * more versions or local steps the worker has to leave. */
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

/* The lane can compute no more, since `what` failed.  If a trainer was given up, the log
 * has the reason, and the coordinator gets the reason. */
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
	if (s->phase >= WELCOMED && !s->is_ending)
		session_send(s, &m);
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
	if (s->chan == NULL) {
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
	session_send(s, &m);
}

static void
session_on_chunk(void *arg)
{
	struct session *s = arg;
	runtime_release_tasks(&s->runtime);
	if (s->phase < READY && !s->is_ending && runtime_is_ready(&s->runtime) &&
	    links_all(s, LINK_IS_OPEN))
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
	if (s->chan == NULL)
		session_settle(s);
	else if (s->agent != NULL)
		session_on_chunk(s);
}

/* The job's texts are complete: makes the runtime and an agent, and fetches data. */
static void
session_begin_job(struct session *s)
{
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
	if (!k->is_made || !fal_texts_equal(&k->texts, &s->texts)) {
		struct fal_diag diag;
		runtime_free(k);
		if (runtime_make(k, &with, &s->texts, &diag) < 0) {
			session_fail(s, FAL_EXIT_NO, "%s", diag.text);
			return;
		}
	}
	struct fal_agent_conf conf = runtime_agent_conf(k);
	conf.serial = (uint64_t)++s->agents << 40;
	conf.incarnation = s->incarnation;
	conf.map_epoch = s->map_epoch;
	s->agent = fal_agent_new(&conf, &ops);
	runtime_fetch(k, s->clock);
	int err = shard_links_dial(s);
	if (err < 0)
		session_fail(s, FAL_EXIT_NO, "%s", fal_strerror(err));
	else
		session_on_chunk(s);
}

/* --- messages
 * --------------------------------------------------------------------- */

static void
on_stream_lost_deadline(uv_timer_t *t)
{
	struct session *s = t->data;
	if (s->chan != NULL && !links_all(s, LINK_IS_USABLE)) /* no shard took over the
							       * blocks */
		fal_chan_fail(s->chan, FAL_EIO, "the stream to a shard has ended");
}

/* The stream to a shard has ended.  This ends the session, unless the coordinator first
 * gives the shard's blocks away or ends the job. */
static void
session_stream_lost(struct session *s)
{
	if (s->chan == NULL)
		session_settle(s);
	else if (!s->is_leaving && !s->is_ending)
		uv_timer_start(&s->timer, on_stream_lost_deadline, STREAM_LOST_MS, 0);
}

static int
session_on_welcome(struct session *s, const struct fal_msg *m)
{
	if (s->phase >= WELCOMED)
		return FAL_ESTATE;
	s->phase = WELCOMED;
	uv_timer_stop(&s->timer);
	if (fal_retry_reached(&s->retry, uv_hrtime()))
		fal_cli_err(PROG, "%s: connected again", s->addr);
	s->incarnation = m->incarnation;
	s->clock = m->welcome.clock;
	s->map_epoch = m->welcome.epoch;
	return fal_texts_begin(&s->texts, m);
}

static int
session_on_text(struct session *s, const struct fal_msg *m)
{
	if (s->phase < WELCOMED || s->agent != NULL)
		return FAL_ESTATE;
	int complete = fal_texts_add(&s->texts, m);
	if (complete > 0)
		session_begin_job(s);
	return complete < 0 ? complete : FAL_OK;
}

/* A shard's part of a version comes as shared records: the channel must know
 * their key first. */
static int
session_on_published(struct session *s, struct fal_chan *c, const struct fal_msg *m)
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
	fal_msg_model_ad(s->runtime.job_hash, s->incarnation, m->published.version,
			 pub.ad);
	return fal_chan_expect_publication(c, &pub);
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
	if (s->is_ending || s->agent == NULL)
		return NULL;
	return fal_agent_place(s->agent, &part, n, head);
}

/* The exit code is NOPERM if the key is not permitted (before WELCOME), or is no longer
 * permitted, or if the scheduler refuses this machine's numerics (between READY and the
 * scheduler's first message). */
static void
session_on_refuse(struct session *s, const struct fal_msg *m)
{
	const bool is_denied =
		m->refuse.key != 0 || s->phase < WELCOMED || s->phase == READY;
	fal_cli_err(PROG, "%s: refused: %s", s->addr, m->refuse.why);
	session_end(s, is_denied ? FAL_EXIT_NOPERM : FAL_EXIT_NO);
}

/* Passes a message to the agent. */
static int
session_on_agent_msg(struct session *s, struct fal_chan *c, const struct fal_msg *m)
{
	if (s->phase < READY)
		return FAL_ESTATE;
	if (m->type == FAL_MSG_VERSION && s->opt->compress == FAL_COMPRESS_AUTO &&
	    m->version.version % COMPRESS_EVERY == 0)
		fal_chan_compress(s->chan, FAL_COMPRESS_AUTO);
	int err = m->type == FAL_MSG_PUBLISHED ? session_on_published(s, c, m) : FAL_OK;
	s->phase = ADMITTED;
	if (m->type == FAL_MSG_DRAIN && (!s->is_leaving || s->renews)) {
		s->renews = false;
		fal_cli_err(PROG, "drained: %s", m->drain.why);
		session_leave(s, NULL); /* the agent leaves by the message */
	}
	if (err < 0)
		return err;
	err = fal_agent_msg(s->agent, uv_hrtime(), m);
	if (err == FAL_OK && m->type == FAL_MSG_BLOCKS) {
		links_remove_unneeded(s);
		if (!links_all(s, LINK_IS_USABLE)) /* the stream ended before its shards
						    got blocks */
			session_stream_lost(s);
	}
	session_after_agent(s, err);
	return FAL_OK;
}

/* Takes the address of a process of shards; a late process is dialled at once. */
static int
session_on_map(struct session *s, const struct fal_msg *m)
{
	int err = s->phase >= WELCOMED ? links_add(s, m) : FAL_ESTATE;
	if (err < 0 || s->agent == NULL)
		return err;
	(void)runtime_grow(&s->runtime, &s->runtime.maximum, s->links, &s->memory_denied);
	return shard_links_dial(s);
}

static void
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
		err = session_on_welcome(s, &m);
	else if (m.type == FAL_MSG_TEXT)
		err = session_on_text(s, &m);
	else if (m.type == FAL_MSG_MAP)
		err = session_on_map(s, &m);
	else if (m.type == FAL_MSG_CHUNK)
		err = s->agent != NULL ? runtime_add_chunk(&s->runtime, &m) : FAL_ESTATE;
	else if (m.type == FAL_MSG_DONE) {
		fal_cli_err(PROG, "done: %s", m.done.why);
		session_end(s, FAL_EXIT_DONE);
	} else if (m.type ==
		   FAL_MSG_LATER) { /* the coordinator stops, and may come back */
		if (s->phase < WELCOMED)
			fal_retry_note_later(&s->retry);
		fal_diag_set(&s->later_reason, 0, "%s: %s", s->addr, m.later.why);
	} else if (m.type == FAL_MSG_REFUSE)
		session_on_refuse(s, &m);
	else
		err = session_on_agent_msg(s, c, &m);
	if (err < 0)
		session_fail(s, FAL_EXIT_NO, "%s: %s: %s%s", s->addr,
			     fal_msg_name(m.type), fal_strerror(err), fal_chan_skew(c));
}

static void
session_on_placed(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct session *s = arg;
	struct fal_msg m;
	int err = fal_msg_get(p, n, &m);
	if (s->is_ending)
		return;
	if (err == FAL_OK && m.type == FAL_MSG_MODEL) {
		m.model.placed = true;
		err = session_on_agent_msg(s, c, &m);
	} else {
		err = FAL_EFORMAT;
	}
	if (err < 0)
		session_fail(s, FAL_EXIT_NO, "%s: a part of a version: %s%s", s->addr,
			     fal_strerror(err), fal_chan_skew(c));
}

/* Takes a message of a shard. */
static void
session_on_shard(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct session *s = arg;
	struct fal_msg m;
	int err = fal_msg_get(p, n, &m);
	if (s->is_ending)
		return;
	if (err == FAL_OK && m.type == FAL_MSG_REFUSE)
		session_fail(s, FAL_EXIT_NO, "%s: a shard: refused: %s", s->addr,
			     m.refuse.why);
	else if (err == FAL_OK &&
		 (m.type == FAL_MSG_PUBLISHED || m.type == FAL_MSG_MODEL))
		err = session_on_agent_msg(s, c, &m);
	else
		err = FAL_EFORMAT;
	if (err < 0)
		session_fail(s, FAL_EXIT_NO, "%s: a shard: %s: %s", s->addr,
			     fal_msg_name(m.type), fal_strerror(err));
}

static void
session_on_room(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	(void)c;
	if (!s->is_ending)
		session_after_agent(s, FAL_OK);
}

static void
session_on_drain(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	(void)c;
	if (s->agent != NULL && links_all(s, LINK_IS_DRAINED) &&
	    (s->links == 0 || fal_chan_stat(s->chan).held == 0))
		fal_agent_flushed(s->agent, uv_hrtime());
}

/* --- the connection
 * --------------------------------------------------------------- */

/* Dials the coordinator or a shard, by the local door beside the port if there is a door.
 * Returns as fal_dial. */
static int
session_dial_stream(struct session *s, const struct fal_addr *at,
		    const struct fal_client_key *key, const struct fal_chan_ops *ops,
		    struct fal_chan **out)
{
	const struct fal_chan_opt opt = { .link = fal_emul_link(s->opt->emulate),
					  .unseals = true };
	int err = FAL_ENOENT;
	if (!s->avoids_doors && opt.link == NULL)
		err = fal_dial_door(&s->loop, at, key, &opt, ops, out);
	return err == FAL_ENOENT ? fal_dial(&s->loop, at, key, &opt, ops, out) : err;
}

/* Did the stream end at a local door without a handshake?  Such an end proves nothing, so
 * from now on the session dials the port. */
static bool
session_was_misled(struct session *s, const struct fal_chan *c, bool opened)
{
	const bool misled = fal_chan_is_by_door(c) && !opened && !s->is_ending;
	s->avoids_doors = s->avoids_doors || misled;
	return misled;
}

static struct shard_link *
link_by_channel(const struct session *s, const struct fal_chan *c)
{
	size_t i = 0;
	while (s->link[i]->chan != c)
		i++;
	return s->link[i];
}

static void
on_link_open(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	struct fal_msg m = { .type = FAL_MSG_ATTACH, .incarnation = s->incarnation };
	struct fal_buf out = { 0 };
	link_by_channel(s, c)->is_open = true;
	fal_chan_compress(c, s->opt->compress);
	fal_msg_put(&out, &m);
	int err = fal_chan_send(c, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
	if (err < 0) {
		session_defer_error(s, err);
	} else if (s->agent != NULL) {
		session_on_chunk(s);
		if (s->phase >= READY && !s->is_ending)
			session_after_agent(
				s, FAL_OK); /* sends the pushes that awaited the stream */
	}
}

static int link_dial(struct session *s, struct shard_link *l);

static void
on_link_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct session *s = arg;
	struct shard_link *l = link_by_channel(s, c);
	(void)reason;
	const bool again = session_was_misled(s, c, l->is_open);
	l->chan = NULL;
	l->is_open = false;
	if (!again)
		session_stream_lost(s);
	else if ((err = link_dial(s, l)) < 0)
		session_defer_error(s, err);
}

static int
link_dial(struct session *s, struct shard_link *l)
{
	const struct fal_chan_ops ops = { .arg = s,
					  .on_open = on_link_open,
					  .on_msg = session_on_shard,
					  .on_place = session_on_place,
					  .on_placed = session_on_placed,
					  .on_room = session_on_room,
					  .on_drain = session_on_drain,
					  .on_close = on_link_close };
	l->was_dialled = true;
	return session_dial_stream(s, &l->addr, l->key, &ops, &l->chan);
}

/* Dials the links that were not dialled yet. */
static int
shard_links_dial(struct session *s)
{
	int err = FAL_OK;
	for (size_t i = 0; i < s->links && err == FAL_OK; i++)
		if (!s->link[i]->was_dialled)
			err = link_dial(s, s->link[i]);
	return err;
}

static void
session_on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct session *s = arg;
	const bool misled = session_was_misled(s, c, s->phase >= OPEN);
	s->chan = NULL;
	if (misled) {
		session_dial(s);
		return;
	}
	if (s->is_ending) {
		/* A coordinator that has sent its last message need not wait for our last
		 * message. */
		if (err < 0 && s->is_leaving)
			fal_cli_err(PROG, "%s", reason);
		session_disconnected(s);
		return;
	}
	s->is_leaving = s->is_leaving && !s->renews;
	s->renews = s->renews && err == FAL_OK;
	if (s->renews) {
		session_disconnected(s);
		return;
	}
	const int code = s->is_leaving
				 ? FAL_EXIT_NO
				 : fal_retry_report(&s->retry, PROG, err, reason,
						    &s->later_reason, s->opt->verbose);
	if (code >= 0) {
		session_fail(s, code, "%s", reason);
		return;
	}
	if (s->phase >= READY)
		fal_cli_notify("STATUS=reconnecting");
	session_disconnected(s);
}

/* WELCOME did not come: a relay of the stream may have lost HELLO. */
static void
on_answer_deadline(uv_timer_t *t)
{
	struct session *s = t->data;
	if (s->chan != NULL)
		fal_chan_fail(s->chan, FAL_EIO, "no answer in time");
}

/* Gives the coordinator `ms` ms to answer, but no more time than the search for the
 * coordinator has left. */
static void
session_await_answer(struct session *s, uint64_t ms)
{
	ms = fal_retry_limit_ms(&s->retry, uv_hrtime(), ms);
	uv_timer_start(&s->timer, on_answer_deadline, ms, 0);
}

static void
session_on_open(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	const struct work_opt *opt = s->opt;
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	s->phase = OPEN;
	if (!fal_chan_is_by_door(c))
		s->avoids_doors = false; /* the next session tries the door again */
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
	session_await_answer(s, FAL_CHAN_DEADLINE_MS);
}

static void
session_dial(struct session *s)
{
	const struct fal_chan_ops ops = { .arg = s,
					  .on_open = session_on_open,
					  .on_msg = session_on_msg,
					  .on_place = session_on_place,
					  .on_placed = session_on_placed,
					  .on_room = session_on_room,
					  .on_drain = session_on_drain,
					  .on_close = session_on_close };
	fal_addr_format(session_addr(s), s->addr);
	s->renews = false;
	int err = session_dial_stream(s, session_addr(s), s->opt->key, &ops, &s->chan);
	if (err < 0)
		session_fail(s, err == FAL_EINVAL ? FAL_EXIT_USAGE : FAL_EXIT_NO,
			     "%s: %s", s->addr, fal_strerror(err));
	else
		session_await_answer(s,
				     2 * FAL_CHAN_DEADLINE_MS); /* after the channel's */
}

/* Hashes the networks that this machine is in. */
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

/* Has this machine moved to another network, or slept?  A connection from an address that
 * is gone is dead, although no event reports its end.  A coordinator's address that was
 * out of reach may be in reach now. */
static void
on_roam_check(uv_timer_t *t)
{
	struct session *s = t->data;
	const uint64_t addresses = hash_addresses();
	struct timespec boot = { 0 }, awake = { 0 };
	(void)clock_gettime(CLOCK_BOOTTIME, &boot); /* Linux has both */
	(void)clock_gettime(CLOCK_MONOTONIC, &awake);
	const int64_t slept_s = boot.tv_sec - awake.tv_sec;
	const bool slept = s->roam.n > 0 && slept_s - s->roam.slept_s > SLEEP_S;
	const bool moved = s->roam.n > 0 && (slept || addresses != s->roam.addresses);
	const bool dials = s->chan != NULL && s->phase < OPEN;
	s->roam.addresses = addresses;
	s->roam.slept_s = slept_s;
	if (s->roam.n++ == 1 && dials && fal_retry_is_first(&s->retry))
		fal_cli_err(PROG, "%s: does not answer yet", s->addr);
	if (s->is_ending || s->is_leaving)
		return;
	if (moved)
		fal_retry_reset_pause(&s->retry);
	if (moved && s->chan == NULL && uv_is_active((uv_handle_t *)&s->timer))
		uv_timer_start(&s->timer, session_on_retry, 0, 0);
	/* This renews sessions that began together at different times. */
	if (s->phase >= READY &&
	    uv_hrtime() - s->retry.came >
		    RENEW_NS - s->instance[0] * UINT64_C(2000000000)) {
		s->renews = true;
		session_leave(s, "a new session");
		session_after_agent(s, FAL_OK);
		return;
	}
	if (s->chan != NULL &&
	    (slept || (moved && dials) || fal_chan_is_stranded(s->chan)))
		fal_chan_fail(s->chan, FAL_EIO, "this machine %s",
			      slept ? "slept" : "has another address now");
}

/* --- signals, beginning and end --------------------------------------------------- */

static void
session_on_signal(uv_signal_t *h, int sig)
{
	struct session *s = h->data;
	if (s->is_leaving && !s->renews)
		_exit(FAL_EXIT_NO);
	const bool left = s->chan != NULL && s->renews && fal_agent_has_left(s->agent);
	s->renews = false;
	if (left || s->chan == NULL || s->phase < READY) {
		s->is_leaving = true;
		fal_cli_notify("STOPPING=1");
		session_end(s, FAL_EXIT_DONE);
		return;
	}
	session_leave(s, sig == SIGINT ? "SIGINT" : "SIGTERM");
	session_after_agent(s, FAL_OK);
}

int
session_run(const struct work_opt *opt)
{
	struct session *s = fal_xcalloc(1, sizeof(*s));
	const int bad = uv_loop_init(&s->loop);
	if (bad < 0) {
		fal_cli_err(PROG, "%s", uv_strerror(bad));
		free(s);
		return FAL_EXIT_NO;
	}
	uv_timer_init(&s->loop, &s->timer);
	uv_timer_init(&s->loop, &s->error_timer);
	uv_timer_init(&s->loop, &s->roam_timer);
	uv_signal_init(&s->loop, &s->on_term);
	uv_signal_init(&s->loop, &s->on_int);
	s->timer.data = s->error_timer.data = s->roam_timer.data = s;
	s->on_term.data = s->on_int.data = s;
	uv_timer_start(&s->roam_timer, on_roam_check, 0, ROAM_CHECK_MS);
	uv_signal_start(&s->on_term, session_on_signal, SIGTERM);
	uv_signal_start(&s->on_int, session_on_signal, SIGINT);
	s->opt = opt;
	s->retry.lost = uv_hrtime();
	s->retry.give_up = opt->give_up * 1000000000;
	fal_random_bytes(s->instance, sizeof(s->instance));
	session_dial(s);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	uv_loop_close(&s->loop);
	if (s->emulated.virtual_ns > 0)
		session_log_lateness(s);
	if (opt->verbose && s->overlap.tasks > 0)
		fal_cli_err(PROG,
			    "overlap: %" PRIu64 " of %" PRIu64
			    " tasks began before all of their version was here",
			    s->overlap.begun, s->overlap.tasks);
	const int code = s->exit_code;
	runtime_free(&s->runtime);
	fal_texts_free(&s->texts);
	free(s->link);
	free(s);
	return code;
}
