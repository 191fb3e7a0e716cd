/* The session: one connection after another, what is said on them between the
 * coordinator, the shards of other processes, the agent and the kit, and what lives
 * longer than they do.
 *
 * A connection that is lost takes the agent with it, once no lane works for it any more;
 * lanes, data and net stay as long as the job's texts are the same.
 */
#include "session.h"

#include "backend_exec.h"
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

#define LEAVE_MS 10000                         /* for leaving the coordinator */
#define ADRIFT_MS 3000                         /* for it to say why a shard has ended */
#define RENEW_NS (3600 * UINT64_C(1000000000)) /* of a session, by another handshake */
#define SLEEP_S 10   /* of the machine: no connection is taken to outlive it */
#define LOOK_MS 2000 /* between looks whether this machine was carried elsewhere */

#define COMPRESS_EVERY 100                  /* versions between measurements */
#define LATE_EVERY_NS UINT64_C(10000000000) /* of emulated tasks, with -v */

/* The stream to shards of another process (falcon-protocol(7), SHARDS), which lives and
 * dies with the session. */
struct link {
	struct session *s;
	struct fal_addr addr;
	struct fal_client_key *key; /* in locked memory */
	uint32_t first, count;      /* shards, from 1 */
	struct fal_chan *chan;      /* NULL: not yet, or gone */
	bool open, dialled;
};

struct session {
	const struct work_opt *opt;
	uv_loop_t loop;
	uv_timer_t timer; /* retry, deadline of WELCOME or of leaving, or the end */
	uv_timer_t soon;  /* `trouble` is looked at */
	uv_timer_t look;  /* whether this machine was carried elsewhere */
	uv_signal_t on_term, on_int;
	size_t at; /* of opt->addr, where the coordinator is, or is looked for: */
	char addr[FAL_ADDR_MAX + 16];
	bool far; /* a door led nowhere: all go to the ports, until one is reached */
	uint8_t instance[FAL_INSTANCE]; /* of this process */
	unsigned looks;                 /* so far */
	uint64_t addresses;             /* of this machine, as they were looked at last */
	int64_t slept;                  /* the seconds that it slept so far */

	/* of the connection */
	struct fal_chan *chan;
	struct link **link; /* in the order of their shards */
	size_t links, links_cap;
	struct fal_agent *agent;
	struct fal_texts coming;
	uint32_t incarnation, map_epoch;
	uint32_t agents; /* so far */
	uint64_t clock;
	bool open, welcome, ready, admitted;
	uint64_t
		pushed; /* messages that the channel had room for, since somebody asked */
	int trouble;    /* of something in a callback of the agent */

	struct kit kit;
	struct spare spare;
	struct fal_retry retry;
	struct fal_diag later;  /* why the coordinator goes, as it said; "": it did not */
	struct fal_diag denied; /* the memory that it came to need; "": none */
	bool leaving, ending, over;
	bool renews; /* it leaves, to come back by another session at once */
	int code;
	uint64_t due_ns;                  /* of all emulated tasks */
	int64_t late_ns;                  /* of all emulated tasks, lanes.h */
	uint64_t said_ns;                 /* due_ns when that was last said */
	struct fal_agent_overlap overlap; /* of the agents that are gone */
};

static void dial(struct session *s);
static int links_dial(struct session *s);
static void session_after(struct session *s, int err);

/* The address where the coordinator is, or is looked for; s->addr is its text. */
static const struct fal_addr *
session_at(const struct session *s)
{
	return &s->opt->addr[s->at];
}

/* --- streams to shards ------------------------------------------------------------- */

/* Have its shards blocks, or may they, as no map is known yet? */
static bool
is_needed(const struct link *l)
{
	const struct fal_map *map =
		l->s->agent != NULL ? fal_agent_map(l->s->agent) : NULL;
	uint32_t i = l->first - 1;
	if (map == NULL)
		return true;
	while (i < l->first - 1 + l->count && map->of[i].count == 0)
		i++;
	return i < l->first - 1 + l->count;
}

/* Fills in the link's address, and the key to it. */
static int
link_fill(struct link *l, const struct fal_msg *m)
{
	const struct fal_addr *to = session_at(l->s);
	struct fal_addr at;
	int err = fal_addr_parse(m->map.address, &at, NULL);
	if (err == FAL_OK && at.kind == FAL_ADDR_EXEC)
		err = FAL_EFORMAT; /* no command of the coordinator's is run */
	/* A command that reaches the coordinator also reaches the listeners beside it. */
	if (err == FAL_OK && to->kind == FAL_ADDR_EXEC && at.kind == FAL_ADDR_TCP)
		fal_addr_through(to, &at, &l->addr);
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

/* Forgets the link. */
static void
link_drop(struct session *s, size_t at)
{
	struct link *l = s->link[at];
	if (l->chan != NULL)
		fal_chan_kill(l->chan);
	fal_secret_free(l->key);
	free(l);
	memmove(s->link + at, s->link + at + 1,
		(--s->links - at) * sizeof(struct link *));
}

/* A MAP: in place of whoever had the same shards.  FAL_EFORMAT, FAL_ELIMIT. */
static int
links_add(struct session *s, const struct fal_msg *m)
{
	const uint32_t before = m->map.first - 1;
	if (!fal_name_valid(m->map.name) || m->map.count < 1 ||
	    before >= FAL_SHARDS_MAX || m->map.count > FAL_SHARDS_MAX - before)
		return FAL_EFORMAT;
	for (size_t i = s->links; i > 0; i--) {
		const struct link *l = s->link[i - 1];
		if (l->first < m->map.first + m->map.count &&
		    m->map.first < l->first + l->count)
			link_drop(s, i - 1);
	}
	if (s->links == FAL_SHARDS_MAX)
		return FAL_ELIMIT;
	struct link *l = fal_xcalloc(1, sizeof(*l));
	FAL_XGROW(s->link, s->links_cap, s->links + 1);
	l->s = s;
	s->link[s->links++] = l;
	return link_fill(l, m);
}

/* The blocks have moved: a stream that has ended and is not needed any more is forgotten.
 */
static void
links_moved(struct session *s)
{
	for (size_t i = s->links; i > 0; i--) {
		const struct link *l = s->link[i - 1];
		if (l->dialled && l->chan == NULL && !is_needed(l))
			link_drop(s, i - 1);
	}
}

static bool
links_all(const struct session *s, bool (*is)(const struct link *l))
{
	for (size_t i = 0; i < s->links; i++)
		if (!is(s->link[i]))
			return false;
	return true;
}

static bool
is_open(const struct link *l)
{
	return l->open;
}

static bool
is_gone(const struct link *l)
{
	return l->chan == NULL;
}

/* Is all that was sent on its way? */
static bool
is_drained(const struct link *l)
{
	return l->chan == NULL || fal_chan_stat(l->chan).held == 0;
}

/* Has a stream that is needed room for bulk?  ATTACH goes first. */
static bool
has_room(const struct link *l)
{
	return !is_needed(l) || (l->open && fal_chan_room(l->chan));
}

/* False: the stream has ended, though its shards have blocks. */
static bool
is_well(const struct link *l)
{
	return !l->dialled || l->chan != NULL || !is_needed(l);
}

/* Ends the streams when what was sent has left. */
static void
links_close(struct session *s)
{
	for (size_t i = 0; i < s->links; i++) {
		struct link *l = s->link[i];
		if (l->chan != NULL && l->open) {
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
		link_drop(s, s->links - 1);
}

/* --- sending ---------------------------------------------------------------------- */

static void
on_soon(uv_timer_t *t)
{
	struct session *s = t->data;
	if (s->chan != NULL && s->trouble < 0)
		session_after(s, FAL_OK);
	s->trouble = FAL_OK;
}

/* Something went wrong in a callback, which goes on: the session ends when it has
 * returned. */
static void
session_trouble(struct session *s, int err)
{
	s->trouble = err;
	uv_timer_start(&s->soon, on_soon, 0, 0);
}

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
	size_t i = 0;
	while (i < s->links && shard - s->link[i]->first >= s->link[i]->count)
		i++;
	if (i == s->links) {
		agent_send(s, msg, true);
	} else if (s->link[i]->chan != NULL) {
		int err = fal_chan_send(s->link[i]->chan, msg, FAL_SEND_BULK);
		if (err < 0 && err != FAL_ESTATE)
			session_trouble(s, err);
	}
}

/* Sends `m` as control; what goes wrong is s->trouble. */
static void
session_send(struct session *s, struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	m->incarnation = s->incarnation;
	fal_msg_put(&out, m);
	agent_send(s, &out, false);
	fal_buf_free(&out);
}

/* Sends what the agent has to push, as far as there is room. */
static void
session_push(struct session *s)
{
	while (s->trouble == FAL_OK && fal_chan_room(s->chan) && links_all(s, has_room) &&
	       fal_agent_more(s->agent))
		s->pushed++;
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

/* Settles a session whose connection is gone: once lanes and pool are through with their
 * work for it, the agent goes, and the next attempt or the end is due. */
static void
session_settle(struct session *s)
{
	if (s->over || s->chan != NULL || !links_all(s, is_gone) || !kit_idle(&s->kit))
		return;
	links_kill(s);
	if (s->agent != NULL) {
		const struct fal_agent_overlap o = fal_agent_overlap(s->agent);
		s->overlap.tasks += o.tasks;
		s->overlap.begun += o.begun;
		fal_agent_free(s->agent);
		s->agent = NULL;
	}
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

/* Ends the session with this exit code when what was sent has left. */
static void
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

/* Ends the session at once, with this exit code and the reason on stderr; before READY
 * the coordinator is told of it, too. */
static void __attribute__((format(printf, 3, 4)))
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

/* The agent is about to leave: with its last claims answered, and in time. */
static void
session_leave(struct session *s)
{
	s->leaving = true;
	s->pushed = 0;
	if (!s->renews)
		fal_cli_notify("STOPPING=1");
	uv_timer_start(&s->timer, on_late, LEAVE_MS, 0);
}

/* After each call of the agent, which returned `err`. */
static void
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

/* The work beside computing wants a core of its own.  There is one where the coordinator
 * is elsewhere, or, if that work is no more than copying, where other programs leave one.
 */
static bool
agent_begins(void *arg)
{
	struct session *s = arg;
	if (!kit_begins(&s->kit))
		return false;
	return !fal_chan_is_local(s->chan) ||
	       (fal_chan_is_unsealed(s->chan) &&
		spare_core(&s->spare, uv_hrtime(), fal_agent_lanes(s->agent)));
}

static void
agent_came(void *arg, uint32_t lane, uint32_t blocks)
{
	struct session *s = arg;
	lane_came(s->kit.lanes, lane, blocks);
}

/* Lists the tensors that are not stepped, for a line. */
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
	memcpy(m.ready.fingerprint, s->kit.probed.fingerprint, FAL_FINGERPRINT);
	memcpy(m.ready.kernels, s->kit.probed.kernels, sizeof(m.ready.kernels));
	memcpy(m.ready.data, s->kit.probed.data, FAL_DATA_HASH);
	m.ready.task_ns = s->kit.probed.task_ns;
	m.ready.large = s->kit.probed.large;
	m.ready.large_ns = s->kit.probed.large_ns;
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
	lane_cancel(s->kit.lanes, lane);
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
	if (kit_grow(&s->kit, to, s->links, &why) == FAL_OK)
		return true;
	if (to->versions != was->versions || to->delta != was->delta)
		s->denied = why;
	return false;
}

/* Says by how much emulation falls behind. */
static void
session_say_late(struct session *s)
{
	s->said_ns = s->due_ns;
	fal_cli_err(PROG, "emulate: %.1f %% late",
		    100 * (double)s->late_ns / (double)s->due_ns);
}

/* No more can be computed on the lane: a trainer that was given up has said so, and the
 * coordinator is told why. */
static void
fail(struct session *s, const char *what, uint32_t lane, int err)
{
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	struct fal_diag why;
	if (err != FAL_EPERM) {
		session_fail(s, FAL_EXIT_NO, "%s: %s", what, fal_strerror(err));
		return;
	}
	trainer_trouble(s->opt->exec->trainer[lane], &why);
	m.leave.cause = FAL_LEAVE_TRAINER;
	fal_text_plain(m.leave.why, sizeof(m.leave.why), why.text);
	if (s->welcome && !s->ending)
		session_send(s, &m);
	session_end(s, FAL_EXIT_NO);
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
	if (!s->ready && !s->ending && kit_ready(&s->kit) && links_all(s, is_open))
		send_ready(s);
}

/* The probe, or a local copy of the data, has come to its end. */
static void
on_prepared(void *arg)
{
	struct session *s = arg;
	const struct kit *k = &s->kit;
	if (!k->probe.running && k->probe.err < 0)
		fail(s, "probing", k->probed.lane, k->probe.err);
	else if (!k->fill.running && k->fill.err < 0)
		session_fail(s, FAL_EXIT_USAGE, "%s", k->fill.diag.text);
	if (s->chan == NULL)
		session_settle(s);
	else if (s->agent != NULL)
		on_chunk(s);
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
					   .begins = agent_begins,
					   .came = agent_came,
					   .grow = agent_grow };
	const struct kit_conf with = { .loop = &s->loop,
				       .opt = s->opt,
				       .streams = s->links,
				       .arg = s,
				       .on_end = on_lane_end,
				       .get = get_chunk,
				       .on_chunk = on_chunk,
				       .on_prepared = on_prepared };
	if (!s->kit.made || !fal_texts_equal(&s->kit.texts, &s->coming)) {
		struct fal_diag diag;
		kit_forget(&s->kit);
		if (kit_make(&s->kit, &with, &s->coming, &diag) < 0) {
			session_fail(s, FAL_EXIT_NO, "%s", diag.text);
			return;
		}
	}
	struct fal_agent_conf conf = kit_agent_conf(&s->kit);
	conf.serial = (uint64_t)++s->agents << 40;
	conf.incarnation = s->incarnation;
	conf.map_epoch = s->map_epoch;
	s->agent = fal_agent_new(&conf, &ops);
	kit_fetch(&s->kit, s->clock);
	int err = links_dial(s);
	if (err < 0)
		session_fail(s, FAL_EXIT_NO, "%s", fal_strerror(err));
	else
		on_chunk(s);
}

/* --- messages --------------------------------------------------------------------- */

static void
on_adrift(uv_timer_t *t)
{
	struct session *s = t->data;
	if (s->chan != NULL &&
	    !links_all(s, is_well)) /* else others have its blocks by now */
		fal_chan_fail(s->chan, FAL_EIO, "the stream to a shard has ended");
}

/* The stream to a shard has ended, so the session does; the coordinator has the first
 * word. */
static void
session_adrift(struct session *s)
{
	if (s->chan == NULL)
		session_settle(s);
	else if (!s->leaving && !s->ending)
		uv_timer_start(&s->timer, on_adrift, ADRIFT_MS, 0);
}

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

/* Hands the agent its messages. */
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
	if (err < 0)
		return err;
	err = fal_agent_msg(s->agent, uv_hrtime(), m);
	if (err == FAL_OK && m->type == FAL_MSG_BLOCKS) {
		links_moved(s);
		if (!links_all(s, is_well)) /* it has ended before it got any */
			session_adrift(s);
	}
	session_after(s, err);
	return FAL_OK;
}

/* Takes the address of a process of shards; a later process is dialled at once. */
static int
on_map(struct session *s, const struct fal_msg *m)
{
	int err = s->welcome ? links_add(s, m) : FAL_ESTATE;
	if (err < 0 || s->agent == NULL)
		return err;
	(void)kit_grow(&s->kit, &s->kit.most, s->links, &s->denied);
	return links_dial(s);
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

static void
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

/* As session_on_msg, on the stream to a shard. */
static void
session_on_shard(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct session *s = arg;
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

static void
session_on_room(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	(void)c;
	if (!s->ending)
		session_after(s, FAL_OK);
}

static void
session_on_drain(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	(void)c;
	if (s->agent != NULL && links_all(s, is_drained) &&
	    (s->links == 0 || fal_chan_stat(s->chan).held == 0))
		fal_agent_flushed(s->agent, uv_hrtime());
}

/* --- the connection --------------------------------------------------------------- */

/* Dials the coordinator or a shard: by the door beside the port where there is one.  As
 * fal_dial. */
static int
session_dial(struct session *s, const struct fal_addr *at,
	     const struct fal_client_key *key, const struct fal_chan_ops *ops,
	     struct fal_chan **out)
{
	const struct fal_chan_opt opt = { .link = fal_emul_link(s->opt->emulate),
					  .unseals = true };
	int err = FAL_ENOENT;
	if (!s->far && opt.link == NULL)
		err = fal_dial_near(&s->loop, at, key, &opt, ops, out);
	return err == FAL_ENOENT ? fal_dial(&s->loop, at, key, &opt, ops, out) : err;
}

/* Did it end at such a door, of which nothing is to be believed?  Then the port is to be
 * dialled: so it will be now. */
static bool
session_goes_far(struct session *s, const struct fal_chan *c, bool opened)
{
	const bool misled = fal_chan_is_near(c) && !opened && !s->ending;
	s->far = s->far || misled;
	return misled;
}

static struct link *
link_of(const struct session *s, const struct fal_chan *c)
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
	link_of(s, c)->open = true;
	fal_chan_compress(c, s->opt->compress);
	fal_msg_put(&out, &m);
	int err = fal_chan_send(c, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
	if (err < 0) {
		session_trouble(s, err);
	} else if (s->agent != NULL) {
		on_chunk(s);
		if (s->ready && !s->ending)
			session_after(s,
				      FAL_OK); /* what waits for that stream goes out */
	}
}

static int link_dial(struct session *s, struct link *l);

/* All streams of a session end together. */
static void
on_link_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct session *s = arg;
	struct link *l = link_of(s, c);
	(void)reason;
	const bool again = session_goes_far(s, c, l->open);
	l->chan = NULL;
	l->open = false;
	if (!again)
		session_adrift(s);
	else if ((err = link_dial(s, l)) < 0)
		session_trouble(s, err);
}

static int
link_dial(struct session *s, struct link *l)
{
	const struct fal_chan_ops ops = { .arg = s,
					  .on_open = on_link_open,
					  .on_msg = session_on_shard,
					  .on_place = session_on_place,
					  .on_placed = session_on_placed,
					  .on_room = session_on_room,
					  .on_drain = session_on_drain,
					  .on_close = on_link_close };
	l->dialled = true;
	return session_dial(s, &l->addr, l->key, &ops, &l->chan);
}

/* Dials those that were not dialled yet. */
static int
links_dial(struct session *s)
{
	int err = FAL_OK;
	for (size_t i = 0; i < s->links && err == FAL_OK; i++)
		if (!s->link[i]->dialled)
			err = link_dial(s, s->link[i]);
	return err;
}

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
	uv_timer_init(&s->loop, &s->soon);
	uv_timer_init(&s->loop, &s->look);
	uv_signal_init(&s->loop, &s->on_term);
	uv_signal_init(&s->loop, &s->on_int);
	s->timer.data = s->soon.data = s->look.data = s->on_term.data = s->on_int.data =
		s;
	uv_timer_start(&s->look, on_look, 0, LOOK_MS);
	uv_signal_start(&s->on_term, on_signal, SIGTERM);
	uv_signal_start(&s->on_int, on_signal, SIGINT);
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
		fal_cli_err(PROG,
			    "overlap: %" PRIu64 " of %" PRIu64
			    " tasks began before all of their version was here",
			    s->overlap.begun, s->overlap.tasks);
	const int code = s->code;
	kit_forget(&s->kit);
	fal_texts_free(&s->coming);
	free(s->link);
	free(s);
	return code;
}
