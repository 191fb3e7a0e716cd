/* Sessions: their keys; their workers' names, numerics, data and reports; trainers that
 * fail. */
#include "server/coord_priv.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys and names -------------------------------------------------------------- */

/* A key with so many charges may have no session while another key has a worker. */
enum { CHARGES_MAX = 2 };

void
fal_coord_session_open(struct fal_coord *c, uint32_t peer,
		       const struct fal_coord_session *who)
{
	struct coord_sessions *s = &c->sessions;
	uint32_t i = 0;
	coord_enter(c);
	while (i < s->keys && strcmp(s->key[i].record.name, who->key) != 0 &&
	       strcmp(s->key[i].record.fingerprint, who->fingerprint) != 0)
		i++;
	if (i == s->keys) {
		FAL_XGROW(s->key, s->key_cap, (size_t)s->keys + 1);
		struct coord_known_key *k = &s->key[s->keys++];
		*k = (struct coord_known_key){ 0 };
		snprintf(k->record.name, sizeof(k->record.name), "%s", who->key);
		snprintf(k->record.fingerprint, sizeof(k->record.fingerprint), "%s",
			 who->fingerprint);
	}
	s->key[i].place = who->place;
	FAL_XGROW(s->peer, s->peer_cap, (size_t)s->peers + 1);
	struct coord_peer *p = &s->peer[coord_peer_index(c, peer)];
	memmove(p + 1, p, (size_t)(s->peer + s->peers++ - p) * sizeof(*p));
	*p = (struct coord_peer){ .id = peer,
				  .key = i + 1,
				  .rtt = who->rtt,
				  .announced.pinned_version = UINT64_MAX };
}

static bool
is_banned(const struct fal_coord *c, uint32_t key)
{
	const struct coord_peer *p = coord_next_peer(c, NULL, PEER_READY);
	while (p != NULL && p->key == key)
		p = coord_next_peer(c, p, PEER_READY);
	return p != NULL && coord_key(c, key)->record.charges >= CHARGES_MAX;
}

static int
check_not_banned(const struct fal_coord *c, const struct coord_peer *p,
		 struct fal_diag *diag)
{
	return is_banned(c, p->key)
		       ? fal_diag_set(diag, FAL_EPERM,
				      "its key was charged twice for what it sent")
		       : FAL_OK;
}

/* Returns a ready session of the key, preferably the session of `worker`; NULL: the
 * key has no ready session. */
static const struct coord_peer *
find_session_of_key(const struct fal_coord *c, uint32_t key, uint32_t worker)
{
	const struct coord_peer *p = NULL, *found = NULL;
	while ((p = coord_next_peer(c, p, PEER_READY)) != NULL)
		if (p->key == key && (found == NULL || found->worker != worker))
			found = p;
	return found;
}

void
coord_charge_worker(struct fal_coord *c, double now, uint32_t worker, const char *why)
{
	const struct coord_known_worker *w = coord_worker(c, worker);
	uint32_t *charges = &coord_key(c, w->key)->record.charges;
	const struct coord_peer *p = find_session_of_key(c, w->key, worker);
	if (*charges >= CHARGES_MAX && p == NULL)
		return;
	++*charges;
	coord_trace_event(c, now, FAL_EV_CHARGE,
			  &(struct fal_ev_charge){ w->name, worker, why });
	for (; p != NULL && is_banned(c, w->key);
	     p = find_session_of_key(c, w->key, worker))
		coord_end_session(c, now, p->id, FAL_MSG_REFUSE, why);
}

bool
fal_coord_session_is_present(const struct fal_coord *c, uint32_t peer)
{
	coord_enter(c);
	const struct coord_peer *p = coord_find_peer(c, peer);
	return p != NULL && (p->state == PEER_GREETED || p->state == PEER_READY);
}

static bool
is_name_taken(const struct fal_coord *c, const struct coord_peer *by)
{
	const struct coord_peer *p = NULL;
	while ((p = coord_next_peer(c, p, PEER_GREETED)) != NULL)
		if (p != by && strcmp(p->name, by->name) == 0)
			return true;
	return false;
}

/* Names the session.  An older session of the same process gives its name to this
 * session, and ends.  Else the name is `name`; or, if another session has that name,
 * name.2, name.3 … */
static void
name_session(struct fal_coord *c, double now, struct coord_peer *p, const char *name)
{
	const struct coord_peer *older = NULL;
	while ((older = coord_next_peer(c, older, PEER_GREETED)) != NULL) {
		if (older == p || older->key != p->key ||
		    memcmp(older->instance, p->instance, FAL_INSTANCE) != 0)
			continue;
		snprintf(p->name, sizeof(p->name), "%s", older->name);
		/* The HELLO that arrives last may have been sent first.  If this session
		 * is the dead one, the process connects once more. */
		coord_end_session(c, now, older->id, FAL_MSG_LATER,
				  "its process has opened another session");
		return;
	}
	snprintf(p->name, sizeof(p->name), "%s", name);
	for (uint32_t i = 2; is_name_taken(c, p); i++) {
		char suffix[12];
		int n = snprintf(suffix, sizeof(suffix), ".%u", i);
		snprintf(p->name, sizeof(p->name), "%.*s%s", FAL_NAME_MAX - n, name,
			 suffix);
	}
}

/* ---- numerics -------------------------------------------------------------------- */

/* The leading fingerprint is the fingerprint of most keys.  Between fingerprints with
 * equally many keys, a deterministic one leads; then the fingerprint of the key that
 * comes first in the keyring. */

/* How many keys and sessions have a fingerprint, or a hash of data. */
struct support {
	uint32_t keys, place, sessions;
	bool is_deterministic;
};

bool
coord_is_deterministic(const uint8_t fingerprint[static FAL_FINGERPRINT])
{
	static const uint8_t nondeterministic[8]; /* READY, falcon-protocol(7) */
	return memcmp(fingerprint, nondeterministic, sizeof(nondeterministic)) != 0;
}

static bool
same_numerics(const struct coord_peer *a, const struct coord_peer *b)
{
	return memcmp(a->fingerprint, b->fingerprint, FAL_FINGERPRINT) == 0;
}

/* The support of the numerics of `p`.  `seen` has an element for each key, all false
 * before and after the call. */
static struct support
numerics_support(const struct fal_coord *c, const struct coord_peer *p, bool *seen)
{
	struct support s = { 0, UINT32_MAX, 0, coord_is_deterministic(p->fingerprint) };
	const struct coord_peer *o = NULL;
	while ((o = coord_next_peer(c, o, PEER_READY)) != NULL) {
		if (!same_numerics(p, o))
			continue;
		const uint32_t place = coord_key(c, o->key)->place;
		s.sessions++;
		s.keys += !seen[o->key - 1];
		s.place = place < s.place ? place : s.place;
		seen[o->key - 1] = true;
	}
	memset(seen, 0, c->sessions.keys * sizeof(*seen));
	return s;
}

static bool
support_outweighs(struct support a, struct support b)
{
	if (a.keys != b.keys)
		return a.keys > b.keys;
	if (a.is_deterministic != b.is_deterministic)
		return a.is_deterministic;
	if (a.place != b.place)
		return a.place < b.place;
	return a.sessions > b.sessions;
}

/* The set of ready workers has changed: notes which workers' numerics differ from the
 * leading ones. */
static void
update_numerics(struct fal_coord *c)
{
	bool *seen = fal_xcalloc(c->sessions.keys, sizeof(*seen));
	struct coord_peer *p = NULL;
	/* The earliest worker with the leading fingerprint; NULL: no worker is ready. */
	const struct coord_peer *leader = NULL;
	struct support best = { 0 };
	while ((p = coord_next_peer(c, p, PEER_READY)) != NULL) {
		if (leader != NULL &&
		    (same_numerics(leader, p) || !coord_is_deterministic(p->fingerprint)))
			continue;
		const struct support s = numerics_support(c, p, seen);
		if (leader == NULL || support_outweighs(s, best)) {
			leader = p;
			best = s;
		}
	}
	free(seen);
	while ((p = coord_next_peer(c, p, PEER_READY)) != NULL) {
		const bool differed = p->has_other_numerics;
		if (!coord_is_deterministic(p->fingerprint))
			continue;
		p->has_other_numerics = !same_numerics(leader, p);
		if (p->has_other_numerics && !differed && c->ops.odd != NULL) {
			const char *const name[] = { p->name, leader->name },
					  *const kernels[] = { p->kernels,
							       leader->kernels };
			COORD_CALL(c, odd, name, kernels);
		}
	}
}

/* Returns a number for the scheduler.  Workers with the same number compute the same
 * bits; 0: no other worker computes the same bits. */
static uint32_t
numerics_number(const struct fal_coord *c, const uint8_t fp[static FAL_FINGERPRINT])
{
	uint32_t i = 0;
	while (i < c->sessions.workers &&
	       memcmp(c->sessions.worker[i].fingerprint, fp, FAL_FINGERPRINT) != 0)
		i++;
	return coord_is_deterministic(fp) ? i + 1 : 0;
}

/* ---- data of trainers ------------------------------------------------------------ */

/* Trainers may have data of their own, which they read by index; they send a hash of
 * these data.  One hash leads: the hash in the job; or, if there is none, the hash that
 * most keys have sent.  Between hashes that equally many keys have sent, the hash of the
 * key that comes first in the keyring leads.
 *
 * The coordinator remembers the hash of a key after the key's sessions are over.  So a
 * key that was here first, and alone, cannot keep other keys away for good.  But updates
 * that were made while another hash led are not taken back, and a job that continues from
 * a snapshot has the hash that led at the snapshot. */

static const uint8_t no_data[FAL_DATA_HASH];

static bool
same_data(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, FAL_DATA_HASH) == 0;
}

static struct support
data_support(const struct fal_coord *c, const uint8_t *data)
{
	struct support s = { .place = UINT32_MAX };
	for (uint32_t i = 0; i < c->sessions.keys; i++) {
		const struct coord_known_key *k = &c->sessions.key[i];
		if (!same_data(k->data, data))
			continue;
		s.keys++;
		s.place = k->place < s.place ? k->place : s.place;
	}
	return s;
}

/* The leading hash, and its support; `no_data`: no key has sent a hash.  Keys are few, so
 * a comparison of all pairs is cheap. */
static const uint8_t *
data_leader(const struct fal_coord *c, struct support *out)
{
	const uint8_t *leader = no_data;
	*out = (struct support){ .place = UINT32_MAX };
	if (!same_data(c->conf.data, no_data)) {
		out->keys = UINT32_MAX;
		return c->conf.data;
	}
	for (uint32_t i = 0; i < c->sessions.keys; i++) {
		const uint8_t *data = c->sessions.key[i].data;
		const struct support s = data_support(c, data);
		if (!same_data(data, no_data) && support_outweighs(s, *out)) {
			leader = data;
			*out = s;
		}
	}
	return leader;
}

/* A ready session with other data than `data`: of this key, or (0) of any key. */
static const struct coord_peer *
find_other_data(const struct fal_coord *c, const uint8_t *data, uint32_t key)
{
	const struct coord_peer *p = NULL;
	while ((p = coord_next_peer(c, p, PEER_READY)) != NULL)
		if ((key == 0 || p->key == key) && !same_data(p->data, no_data) &&
		    !same_data(p->data, data))
			break;
	return p;
}

/* Ends the session, because the data of its trainer are not the leading data. */
static void
refuse_data(struct fal_coord *c, double now, const struct coord_peer *p,
	    const uint8_t *leader, enum fal_msg_type last)
{
	char a[2 * FAL_DATA_HASH + 1], b[2 * FAL_DATA_HASH + 1], why[FAL_MSG_WHY];
	fal_hex(p->data, FAL_DATA_HASH, a);
	fal_hex(leader, FAL_DATA_HASH, b);
	snprintf(why, sizeof(why), "its trainer has the data %s, %s %s", a,
		 same_data(leader, c->conf.data) ? "the job's are" : "that of others has",
		 b);
	coord_end_session(c, now, p->id, last, why);
}

/* Takes the hash of the trainer's own data, in READY.  False: other data lead, and the
 * session is over. */
static bool
accept_data(struct fal_coord *c, double now, struct coord_peer *p,
	    const uint8_t data[static FAL_DATA_HASH])
{
	struct coord_known_key *key = coord_key(c, p->key);
	struct support best;
	memcpy(p->data, data, FAL_DATA_HASH);
	if (same_data(data, no_data))
		return true;
	if (find_other_data(c, data, p->key) == NULL &&
	    (c->versions.newest == 0 || same_data(key->data, no_data)))
		memcpy(key->data, data, FAL_DATA_HASH);
	const uint8_t *leader = data_leader(c, &best);
	if (same_data(data, leader))
		return true;
	refuse_data(c, now, p, leader,
		    data_support(c, data).keys == best.keys ? FAL_MSG_LATER
							    : FAL_MSG_REFUSE);
	return false;
}

void
coord_leading_data_hex(const struct fal_coord *c, char out[static 2 * FAL_DATA_HASH + 1])
{
	struct support best;
	const uint8_t *data = data_leader(c, &best);
	out[0] = '\0';
	if (!same_data(data, no_data))
		fal_hex(data, FAL_DATA_HASH, out);
}

/* ---- trainers that fail ----------------------------------------------------------- */

void
fal_coord_set_trainer_wait(struct fal_coord *c, double seconds, uint32_t keys)
{
	coord_enter(c);
	c->sessions.trainer.keys = keys;
	c->sessions.trainer.wait_s = seconds;
}

const char *
fal_coord_trainer_failure(const struct fal_coord *c)
{
	coord_enter(c);
	return c->sessions.trainer.why;
}

double
coord_trainer_deadline(const struct fal_coord *c)
{
	const struct coord_sessions *s = &c->sessions;
	uint32_t failed = 0;
	if (s->trainer.why[0] == '\0' || c->is_finished || c->failure != NULL ||
	    coord_next_peer(c, NULL, PEER_GREETED) != NULL)
		return INFINITY;
	for (uint32_t i = 0; i < s->keys; i++)
		failed += s->key[i].failed;
	return s->trainer.failed_at + (failed >= s->trainer.keys ? 0 : s->trainer.wait_s);
}

/* ---- `clock` lines ---------------------------------------------------------------- */

/* Returns the credible part of the time that the worker reports, 0 to 1.  A worker
 * cannot spend more time than has passed since the worker joined.  The limit is
 * somewhat higher, because the worker's clock may run faster and reports may come
 * late; the audit allows twice as much (falcon-trace(5)).  The first line of a worker
 * also covers the time before the worker joined. */
static double
credible_part(struct coord_peer *p, double now, const struct fal_msg *m)
{
	const double here =
		now - (p->lines.has_first ? p->lines.joined_at : p->lines.greeted_at);
	const double limit = here + 0.5 + here / 200 - p->lines.reported_s;
	const double reported = ((double)m->worked.compute + (double)m->worked.push +
				 (double)m->worked.pull + (double)m->worked.wait) *
				1e-9;
	const double counts = fmin(reported, fmax(limit, 0));
	p->lines.reported_s += p->lines.has_first ? counts : 0;
	p->lines.has_first = true;
	return reported > 0 ? counts / reported : 1;
}

/* The credible part of the time, in seconds. */
static double
credible_seconds(uint64_t ns, double part)
{
	return (double)(part < 1 ? (uint64_t)((double)ns * part) : ns) * 1e-9;
}

/* Writes the oldest pending `clock` line, with the worker's WORKED. */
static void
write_clock_line(struct fal_coord *c, double now, struct coord_peer *p,
		 const struct fal_msg *m)
{
	const struct coord_clock_line *pending = &p->lines.pending[0];
	const double t = fal_coord_trace_time(c, now), part = credible_part(p, t, m);
	struct fal_ev_clock line = { .clock = pending->clock,
				     .round = pending->own ? pending->round
							   : FAL_TRACE_ABSENT,
				     .worker = p->name,
				     .id = p->worker,
				     .lanes = pending->info.lanes,
				     .compute = credible_seconds(m->worked.compute, part),
				     .push = credible_seconds(m->worked.push, part),
				     .pull = credible_seconds(m->worked.pull, part),
				     .wait = credible_seconds(m->worked.wait, part),
				     .push_all = credible_seconds(m->worked.push_all, 1),
				     .pull_all = credible_seconds(m->worked.pull_all, 1),
				     .late = credible_seconds(m->worked.late, 1),
				     .rtt = pending->info.rtt,
				     .tx = pending->tx - p->lines.tx,
				     .rx = pending->rx - p->lines.rx };
	fal_line_clock(&c->trace_line, t, &pending->work, &line);
	coord_write_line(c);
	p->lines.tx = pending->tx;
	p->lines.rx = pending->rx;
	memmove(p->lines.pending, p->lines.pending + 1,
		sizeof(*p->lines.pending) * --p->lines.n_pending);
}

void
coord_write_clock_lines(struct fal_coord *c, double now, struct coord_peer *p,
			uint32_t left)
{
	const struct fal_msg none = { .type = FAL_MSG_WORKED };
	while (p->lines.n_pending > left)
		write_clock_line(c, now, p, &none);
}

/* Writes the pending `clock` lines up to the line that the message answers. */
int
coord_on_worked(struct fal_coord *c, double now, struct coord_peer *p,
		const struct fal_msg *m, struct fal_diag *diag)
{
	const uint32_t n = p->lines.n_pending;
	const uint64_t mark = m->worked.mark;
	uint32_t i = 0;
	while (i < n && p->lines.pending[i].round != mark)
		i++;
	if (i == n &&
	    (i == 0 || mark < p->lines.next_round || mark > p->lines.pending[0].round))
		return FAL_OK;
	/* If the answer comes so late that its line was written before, the answer goes
	 * into the oldest pending line. */
	i = i < n ? i : 0;
	p->lines.next_round = mark + 1;
	int err = coord_take_waits(c, p->worker, m);
	if (err < 0)
		return fal_diag_set(diag, err, "WORKED: %s", fal_strerror(err));
	coord_write_clock_lines(c, now, p, n - i);
	write_clock_line(c, now, p, m);
	return FAL_OK;
}

/* ---- a session's beginning and end ------------------------------------------------ */

void
coord_send_end(struct fal_coord *c, uint32_t peer)
{
	struct fal_msg m = { .type = c->failure != NULL ? FAL_MSG_REFUSE : FAL_MSG_DONE };
	const char *text = c->failure != NULL ? c->failure : "the job is done";
	snprintf(m.done.why, sizeof(m.done.why), "%s", text);
	coord_send(c, peer, &m);
}

int
coord_on_hello(struct fal_coord *c, double now, struct coord_peer *p,
	       const struct fal_msg *m, struct fal_diag *diag)
{
	if (p == NULL || p->state != PEER_OPENED)
		return fal_diag_set(diag, FAL_ESTATE, "a second HELLO");
	int err = fal_msg_judge_schema(m->hello.schema, diag);
	if (err < 0)
		return err;
	if (m->hello.lanes_min < 1 || m->hello.lanes_max < m->hello.lanes_min ||
	    m->hello.lanes_max > FAL_LANES_MAX || m->hello.cores < 1)
		return fal_diag_set(diag, FAL_EINVAL, "a HELLO with %u:%u lanes",
				    m->hello.lanes_min, m->hello.lanes_max);
	err = check_not_banned(c, p, diag);
	if (err < 0)
		return err;
	if (!fal_name_valid(m->hello.name))
		return fal_diag_set(diag, FAL_EINVAL,
				    "a HELLO with a name that is not 1 to 63 of "
				    "A-Z a-z 0-9 . _ -");
	struct fal_msg w = { .type = FAL_MSG_WELCOME };
	w.welcome.clock = fal_sched_next_clock(c->sched);
	w.welcome.job_n = c->conf.text_n[FAL_TEXT_JOB];
	w.welcome.model_n = c->conf.text_n[FAL_TEXT_MODEL];
	w.welcome.manifest_n = c->conf.text_n[FAL_TEXT_MANIFEST];
	w.welcome.epoch = c->conf.tickets.epoch;
	coord_send(c, p->id, &w);
	if (c->is_finished || c->failure != NULL) {
		coord_send_end(c, p->id);
		return FAL_OK;
	}
	p->state = PEER_GREETED;
	p->is_group_server = m->hello.group != 0;
	p->lines.greeted_at = fal_coord_trace_time(c, now);
	p->lanes_min = m->hello.lanes_min;
	p->lanes_max = m->hello.lanes_max;
	p->cores = m->hello.cores;
	memcpy(p->build, m->hello.version, sizeof(p->build));
	memcpy(p->instance, m->hello.instance, FAL_INSTANCE);
	name_session(c, now, p, m->hello.name);
	return FAL_OK;
}

static void
trace_join(struct fal_coord *c, double now, const struct coord_peer *p)
{
	const struct fal_checkpoint_key *k = &coord_key(c, p->key)->record;
	const uint64_t lanes[] = { p->lanes_min, p->lanes_max };
	char hex[2 * FAL_FINGERPRINT + 1];
	const struct fal_ev_join line = {
		.worker = p->name,
		.id = p->worker,
		.key = k->name,
		.key_fingerprint = k->fingerprint,
		.lanes = { lanes, 2 },
		.cores = p->cores,
		.fingerprint = hex,
		.version = p->build[0] != '\0' ? p->build : NULL,
		.kernels = p->kernels[0] != '\0' ? p->kernels : NULL,
		.task_s = (double)p->probe.task_ns * 1e-9,
		.large = p->probe.large,
		.large_s = p->probe.large > 0 ? (double)p->probe.large_ns * 1e-9
					      : (double)NAN,
	};
	fal_hex(p->fingerprint, FAL_FINGERPRINT, hex);
	coord_trace_event(c, now, FAL_EV_JOIN, &line);
}

/* Takes the speed that a worker of this name and key had before a restart.  The speed is
 * then forgotten: the next worker of the same name and key is another worker. */
static struct fal_history
take_former_speed(struct fal_coord *c, const struct coord_peer *p)
{
	struct coord_sessions *s = &c->sessions;
	struct fal_history speed = { 0 };
	for (uint32_t i = 0; i < s->n_former_speeds && speed.lanes == 0; i++)
		if (s->former_speed[i].key == p->key &&
		    strcmp(s->former_speed[i].name, p->name) == 0) {
			speed = s->former_speed[i].is;
			s->former_speed[i] = s->former_speed[--s->n_former_speeds];
		}
	return speed;
}

int
coord_on_ready(struct fal_coord *c, double now, struct coord_peer *p,
	       const struct fal_msg *m, struct fal_diag *diag)
{
	struct coord_sessions *s = &c->sessions;
	if (p->state == PEER_READY)
		return fal_diag_set(diag, FAL_ESTATE, "a second READY");
	int err = check_not_banned(c, p, diag); /* since HELLO */
	if (err < 0)
		return err;
	const bool has_large = m->ready.large > 0 || m->ready.large_ns > 0;
	if (has_large && (m->ready.task_ns == 0 || m->ready.large_ns == 0 ||
			  m->ready.large <= c->conf.grid.task))
		return fal_diag_set(diag, FAL_EINVAL,
				    "probes %u samples in %" PRIu64 " ns", m->ready.large,
				    m->ready.large_ns);
	if (!accept_data(c, now, p, m->ready.data))
		return FAL_OK;
	memcpy(p->fingerprint, m->ready.fingerprint, FAL_FINGERPRINT);
	memcpy(p->kernels, m->ready.kernels, sizeof(p->kernels));
	p->probe.task_ns = m->ready.task_ns;
	p->probe.large = m->ready.large;
	p->probe.large_ns = m->ready.large_ns;
	FAL_XGROW(s->worker, s->worker_cap, (size_t)s->workers + 1);
	struct coord_known_worker *w = &s->worker[s->workers];
	*w = (struct coord_known_worker){ .key = p->key, .session = p->id };
	memcpy(w->fingerprint, p->fingerprint, FAL_FINGERPRINT);
	memcpy(w->name, p->name, sizeof(w->name));
	p->worker = ++s->workers;
	p->state = PEER_READY;
	p->lines.joined_at = fal_coord_trace_time(c, now);
	s->n_ready++;
	trace_join(c, now, p);
	COORD_CALL(c, came, p->id, p->name, coord_key(c, p->key)->record.name);
	const struct fal_bound_lanes probe = coord_probed_lanes(c, p);
	struct fal_join j = { .id = p->worker,
			      .name = p->name,
			      .key = p->key,
			      .numerics = numerics_number(c, p->fingerprint),
			      .lanes_min = p->lanes_min,
			      .lanes_max = p->lanes_max,
			      .cores = p->cores,
			      .task_s = probe.task_s,
			      .fixed = probe.fixed,
			      .rtt = p->rtt,
			      .history = take_former_speed(c, p),
			      .group = p->is_group_server };
	coord_send_block_map(c, p->id);
	coord_record_error(c, fal_sched_join(c->sched, now, &j));
	coord_send_ping(c, now, p->id);
	update_numerics(c);
	/* Ends ready sessions with other data than the leading data. */
	uint8_t leader[FAL_DATA_HASH];
	struct support best;
	const struct coord_peer *other;
	memcpy(leader, data_leader(c, &best), FAL_DATA_HASH);
	while (!same_data(leader, no_data) &&
	       (other = find_other_data(c, leader, 0)) != NULL)
		refuse_data(c, now, other, leader, FAL_MSG_REFUSE);
	c->has_begun |= s->n_ready >= c->conf.min_workers;
	return FAL_OK;
}

/* Workers of the group server have come or gone. */
int
coord_on_capacity(struct fal_coord *c, double now, struct coord_peer *p,
		  const struct fal_msg *m, struct fal_diag *diag)
{
	if (!p->is_group_server || m->capacity.lanes < 1 ||
	    m->capacity.lanes > FAL_LANES_MAX || m->capacity.members < 1)
		return fal_diag_set(diag, FAL_EINVAL, "a CAPACITY of %u lanes of %u",
				    m->capacity.lanes, m->capacity.members);
	p->lanes_min = p->lanes_max = p->cores = m->capacity.lanes;
	p->probe.task_ns =
		m->capacity.task_ns > 0 ? m->capacity.task_ns : p->probe.task_ns;
	p->probe.large = 0;
	p->probe.large_ns = 0;
	coord_trace_event(c, now, FAL_EV_GROUP,
			  &(struct fal_ev_group){ p->name, p->worker, m->capacity.members,
						  m->capacity.lanes });
	return fal_sched_set_lanes(c->sched, now, p->worker, m->capacity.lanes,
				   (double)m->capacity.task_ns * 1e-9);
}

/* Removes a ready worker; the scheduler takes back the worker's tasks. */
static void
remove_worker(struct fal_coord *c, double now, struct coord_peer *p, const char *why)
{
	struct coord_sessions *s = &c->sessions;
	if (p->state != PEER_READY)
		return;
	char plain[FAL_MSG_WHY];
	why = fal_text_plain(plain, sizeof(plain), why);
	p->state = PEER_LEFT;
	s->n_ready--;
	coord_write_clock_lines(c, now, p, 0);
	const bool momentum = coord_worker(c, p->worker)->momentum;
	coord_trace_event(c, now, FAL_EV_LEAVE,
			  &(struct fal_ev_leave){ p->name, p->worker, why,
						  !p->leaves_in_order, momentum });
	if (momentum) {
		FAL_XGROW(s->leaver, s->leaver_cap, (size_t)s->leavers + 1);
		s->leaver[s->leavers++] = p->worker;
	}
	COORD_CALL(c, went, p->id, p->name, why);
	fal_sched_leave(c->sched, now, p->worker);
	update_numerics(c);
}

int
coord_on_leave(struct fal_coord *c, double now, struct coord_peer *p,
	       const struct fal_msg *m, struct fal_diag *diag)
{
	enum { SOON = 100 }; /* clocks */
	struct coord_sessions *s = &c->sessions;
	char why[FAL_MSG_WHY];
	fal_text_plain(why, sizeof(why), m->leave.why);
	if (m->leave.cause > FAL_LEAVE_TRAINER)
		return fal_diag_set(diag, FAL_EINVAL, "LEAVE for cause %u",
				    m->leave.cause);
	/* If the worker's local steps have diverged, the job ends, unless a worker of
	 * another key may do better. */
	if (m->leave.cause == FAL_LEAVE_NONFINITE &&
	    fal_sched_has_local_round(c->sched, p->worker)) {
		const uint64_t clock = fal_sched_first_open_clock(c->sched);
		struct fal_worker_info info;
		bool has_others = false; /* an able worker of another key is here */
		const struct coord_peer *o = NULL;
		while ((o = coord_next_peer(c, o, PEER_READY)) != NULL)
			has_others |= o->key != p->key &&
				      fal_sched_info(c->sched, o->worker, &info) &&
				      info.able;
		const bool soon =
			s->diverged.key != 0 && clock - s->diverged.clock <= SOON;
		const bool alone = s->n_ready == (p->state == PEER_READY ? 1 : 0);
		if (alone || (soon && (s->diverged.key != p->key || !has_others)))
			c->failure = "local steps led to weights that are not finite";
		s->diverged.key = p->key;
		s->diverged.clock = clock;
	}
	if (m->leave.cause == FAL_LEAVE_TRAINER) {
		struct coord_known_key *key = coord_key(c, p->key);
		char *text = s->trainer.why;
		key->failed = true;
		s->trainer.failed_at = now;
		snprintf(text, sizeof(s->trainer.why), "trainer of %s failed: %s",
			 p->name, why);
		coord_trace_event(c, now, FAL_EV_TRAINER,
				  &(struct fal_ev_trainer){ key->record.name, text });
	}
	p->leaves_in_order = m->leave.cause == FAL_LEAVE_ASKED;
	if (p->state == PEER_READY)
		remove_worker(c, now, p, why);
	else
		COORD_CALL(c, went, p->id, p->name, why);
	p->state = PEER_LEFT;
	return FAL_OK;
}

void
coord_remove_peer(struct fal_coord *c, double now, struct coord_peer *p, const char *why)
{
	struct coord_sessions *s = &c->sessions;
	/* Until now the session kept failed trainers from ending the job.  The worker may
	 * come back, so the wait begins again. */
	if (p->state != PEER_OPENED)
		s->trainer.failed_at = now;
	s->has_ended |= p->state == PEER_READY;
	remove_worker(c, now, p, why);
	if (p->worker != 0)
		coord_worker(c, p->worker)->session = 0;
	memmove(p, p + 1, (size_t)(s->peer + --s->peers - p) * sizeof(*p));
}

void
coord_end_session(struct fal_coord *c, double now, uint32_t peer, enum fal_msg_type last,
		  const char *why)
{
	struct fal_msg m = { .type = (uint16_t)last };
	struct coord_peer *p = coord_find_peer(c, peer);
	if (p == NULL)
		return;
	snprintf(m.refuse.why, sizeof(m.refuse.why), "%s", why);
	p->leaves_in_order = true;
	coord_send(c, peer, &m);
	coord_remove_peer(c, now, p, why);
	COORD_CALL(c, close, peer, why);
}

void
fal_coord_trace_refusals(struct fal_coord *c, double now, const char *key,
			 const char *why, uint64_t count)
{
	coord_enter(c);
	coord_trace_event(c, now, FAL_EV_REFUSE,
			  &(struct fal_ev_refuse){ key, why, count });
}

void
fal_coord_set_traffic(struct fal_coord *c, uint32_t peer, uint64_t rx, uint64_t tx)
{
	coord_enter(c);
	struct coord_peer *p = coord_find_peer(c, peer);
	if (p != NULL) {
		p->rx = rx;
		p->tx = tx;
	}
}
