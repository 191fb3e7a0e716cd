/* Sessions: whose they are and what workers are called, what workers say, whose numerics
 * and whose data count, and trainers that fail. */
#include "server/coord_priv.h"

#include "base/loss.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys and names -------------------------------------------------------------- */

/* The number of the key. */
static uint32_t
key_number(struct fal_coord *c, const struct fal_coord_who *who)
{
	for (uint32_t i = 0; i < c->sessions.keys; i++) {
		struct coord_known_key *k = &c->sessions.key[i];
		if (strcmp(k->record.name, who->key) == 0 ||
		    strcmp(k->record.fingerprint, who->fingerprint) == 0) {
			k->place = who->place;
			return i + 1;
		}
	}
	FAL_XGROW(c->sessions.key, c->sessions.key_cap, (size_t)c->sessions.keys + 1);
	struct coord_known_key *k = &c->sessions.key[c->sessions.keys];
	*k = (struct coord_known_key){ .place = who->place };
	snprintf(k->record.name, sizeof(k->record.name), "%s", who->key);
	snprintf(k->record.fingerprint, sizeof(k->record.fingerprint), "%s",
		 who->fingerprint);
	return ++c->sessions.keys;
}

/* A key that was charged so often has no session while another key is here. */
enum { CHARGES_MAX = 2 };

void
fal_coord_open(struct fal_coord *c, uint32_t peer, const struct fal_coord_who *who)
{
	coord_enter(c);
	FAL_XGROW(c->sessions.peer, c->sessions.peer_cap, (size_t)c->sessions.peers + 1);
	struct coord_peer *p = &c->sessions.peer[coord_peer_index(c, peer)];
	memmove(p + 1, p,
		(size_t)(c->sessions.peer + c->sessions.peers++ - p) * sizeof(*p));
	*p = (struct coord_peer){ .id = peer,
				  .key = key_number(c, who),
				  .rtt = who->rtt,
				  .announced.pinned_version = UINT64_MAX };
}

void
coord_charge_key(struct fal_coord *c, const struct coord_peer *p)
{
	c->sessions.key[p->key - 1].record.charges++;
}

const struct coord_known_worker *
coord_worker_of(const struct fal_coord *c, uint32_t worker)
{
	return &c->sessions.worker[worker - 1];
}

static bool
is_banned(const struct fal_coord *c, const struct coord_peer *p)
{
	if (c->sessions.key[p->key - 1].record.charges < CHARGES_MAX)
		return false;
	for (uint32_t i = 0; i < c->sessions.peers; i++)
		if (c->sessions.peer[i].ready && c->sessions.peer[i].key != p->key)
			return true;
	return false;
}

/* A ready session of the key, that of `worker` first; NULL: there is none. */
static const struct coord_peer *
session_of_key(const struct fal_coord *c, uint32_t key, uint32_t worker)
{
	const struct coord_peer *any = NULL;
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		const struct coord_peer *p = &c->sessions.peer[i];
		if (!p->ready || p->key != key)
			continue;
		if (p->worker == worker)
			return p;
		any = p;
	}
	return any;
}

void
coord_charge_worker(struct fal_coord *c, double now, uint32_t worker, const char *why)
{
	const struct coord_known_worker *w = coord_worker_of(c, worker);
	const uint32_t key = w->key;
	const struct coord_peer *p;
	/* Nothing more follows for a key that has no session any more. */
	if (c->sessions.key[key - 1].record.charges >= CHARGES_MAX &&
	    session_of_key(c, key, worker) == NULL)
		return;
	c->sessions.key[key - 1].record.charges++;
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_CHARGE,
			  &(struct fal_ev_charge){ w->name, worker, why });
	while ((p = session_of_key(c, key, worker)) != NULL && is_banned(c, p))
		coord_refuse(c, now, p->id, why);
}

bool
coord_is_present(const struct coord_peer *p)
{
	return p->greeted && !p->left;
}

bool
fal_coord_greeted(const struct fal_coord *c, uint32_t peer)
{
	coord_enter(c);
	const struct coord_peer *p = coord_find_peer(c, peer);
	return p != NULL && coord_is_present(p);
}

static bool
is_name_taken(const struct fal_coord *c, const struct coord_peer *by, const char *name)
{
	for (uint32_t i = 0; i < c->sessions.peers; i++)
		if (&c->sessions.peer[i] != by &&
		    coord_is_present(&c->sessions.peer[i]) &&
		    strcmp(c->sessions.peer[i].name, name) == 0)
			return true;
	return false;
}

/* `name`, or, where that is another one's, name.2, name.3 … */
static void
choose_name(const struct fal_coord *c, struct coord_peer *p, const char *name)
{
	snprintf(p->name, sizeof(p->name), "%s", name);
	for (uint32_t i = 2; is_name_taken(c, p, p->name); i++) {
		char suffix[12];
		int n = snprintf(suffix, sizeof(suffix), ".%u", i);
		snprintf(p->name, sizeof(p->name), "%.*s%s", FAL_NAME_MAX - n, name,
			 suffix);
	}
}

static void
name_session(struct fal_coord *c, double now, uint32_t peer, const char *name,
	     const uint8_t instance[static FAL_INSTANCE])
{
	static const char why[] = "its process has opened another session";
	struct coord_peer *p = coord_find_peer(c, peer);
	memcpy(p->instance, instance, FAL_INSTANCE);
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		const struct coord_peer *older = &c->sessions.peer[i];
		if (older == p || !coord_is_present(older) || older->key != p->key ||
		    memcmp(older->instance, p->instance, FAL_INSTANCE) != 0)
			continue;
		snprintf(p->name, sizeof(p->name), "%s", older->name);
		/* The HELLO that came last need not have been said last: if this session
		 * is the dead one, the other session comes back. */
		coord_later(c, now, older->id, why);
		return;
	}
	choose_name(c, p, name);
}

/* ---- numerics -------------------------------------------------------------------- */

/* The fingerprint that counts: alone, with numerics = require.  Most keys have this
 * fingerprint.  Of fingerprints that as many keys have, one that is not an
 * nondeterministic worker's counts, and then that of the key which stands first in the
 * keyring. */

/* Keys and sessions behind a fingerprint, or a hash of data. */
struct support {
	uint32_t keys, place, sessions;
	bool deterministic;
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

/* `seen` has a place for each key, all false before and after. */
static struct support
numerics_support(const struct fal_coord *c, const struct coord_peer *p, bool *seen)
{
	struct support is = { 0, UINT32_MAX, 0, coord_is_deterministic(p->fingerprint) };
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		const struct coord_peer *o = &c->sessions.peer[i];
		if (!o->ready || !same_numerics(p, o))
			continue;
		const uint32_t place = c->sessions.key[o->key - 1].place;
		is.sessions++;
		is.keys += !seen[o->key - 1];
		is.place = place < is.place ? place : is.place;
		seen[o->key - 1] = true;
	}
	memset(seen, 0, c->sessions.keys * sizeof(*seen));
	return is;
}

static bool
support_outweighs(struct support a, struct support b)
{
	if (a.keys != b.keys)
		return a.keys > b.keys;
	if (a.deterministic != b.deterministic)
		return a.deterministic;
	if (a.place != b.place)
		return a.place < b.place;
	return a.sessions > b.sessions;
}

/* A worker whose fingerprint counts; of equals, the earliest.  NULL: none is there. */
static const struct coord_peer *
numerics_leader(const struct fal_coord *c)
{
	const bool strict = c->conf.numerics == FAL_NUMERICS_REQUIRE;
	bool *seen = fal_xcalloc(c->sessions.keys, sizeof(*seen));
	const struct coord_peer *first = NULL;
	struct support best = { 0 };
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		const struct coord_peer *p = &c->sessions.peer[i];
		if (!p->ready || (first != NULL && same_numerics(first, p)) ||
		    (first != NULL && !strict && !coord_is_deterministic(p->fingerprint)))
			continue;
		const struct support is = numerics_support(c, p, seen);
		if (first == NULL || support_outweighs(is, best)) {
			first = p;
			best = is;
		}
	}
	free(seen);
	return first;
}

bool
coord_has_leading_numerics(const struct fal_coord *c, const struct coord_peer *p)
{
	if (c->conf.numerics != FAL_NUMERICS_REQUIRE)
		return true;
	const struct coord_peer *first = numerics_leader(c);
	return first == NULL || same_numerics(first, p);
}

static void
update_numerics(struct fal_coord *c, double now)
{
	const bool strict = c->conf.numerics == FAL_NUMERICS_REQUIRE;
	const struct coord_peer *first = numerics_leader(c);
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		struct coord_peer *p = &c->sessions.peer[i];
		const bool was = p->has_other_numerics;
		if (!p->ready || (!strict && !coord_is_deterministic(p->fingerprint)))
			continue;
		p->has_other_numerics = !same_numerics(first, p);
		if (p->has_other_numerics && !was && c->ops.odd != NULL) {
			const char *const name[] = { p->name, first->name },
					  *const kernels[] = { p->kernels,
							       first->kernels };
			c->ops.odd(coord_begin_callback(c), name, kernels);
			coord_end_callback(c);
		}
		if (strict)
			fal_sched_stand_by(c->sched, now, p->worker,
					   p->has_other_numerics);
	}
}

/* ---- data of trainers ------------------------------------------------------------ */

/* The data that count, where trainers have data of their own, by index, and say a hash of
 * these data: the job's hash; or else the hash that most keys have said, and of two that
 * as many have said, that of the key which stands first in the keyring.
 *
 * The coordinator remembers the hash that a key has said when the key's sessions are
 * over.  So a key that was here first, alone, keeps nobody away for good.  But a key
 * whose word counted when a version was made takes nothing back, and a job that goes on
 * from a snapshot has the data that counted then. */

static const uint8_t no_data[FAL_DATA_HASH];

static bool
same_data(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, FAL_DATA_HASH) == 0;
}

static struct support
data_support(const struct fal_coord *c, const uint8_t *data)
{
	struct support b = { .place = UINT32_MAX };
	for (uint32_t i = 0; i < c->sessions.keys; i++) {
		const struct coord_known_key *k = &c->sessions.key[i];
		if (!same_data(k->data, data))
			continue;
		b.keys++;
		b.place = k->place < b.place ? k->place : b.place;
	}
	return b;
}

/* The hash that counts; `no_data`: nobody has said one.  Keys are few. */
static const uint8_t *
data_leader(const struct fal_coord *c, struct support *out)
{
	const uint8_t *best = no_data;
	*out = (struct support){ .place = UINT32_MAX };
	if (!same_data(c->conf.data, no_data)) {
		out->keys = UINT32_MAX;
		return c->conf.data;
	}
	for (uint32_t i = 0; i < c->sessions.keys; i++) {
		const uint8_t *data = c->sessions.key[i].data;
		if (same_data(data, no_data) || same_data(data, best))
			continue;
		const struct support b = data_support(c, data);
		if (!support_outweighs(b, *out))
			continue;
		best = data;
		*out = b;
	}
	return best;
}

/* A ready session that has said other data than `data`: of this key, or of any (0). */
static const struct coord_peer *
session_with_other_data(const struct fal_coord *c, const uint8_t *data, uint32_t key)
{
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		const struct coord_peer *p = &c->sessions.peer[i];
		if (p->ready && (key == 0 || p->key == key) &&
		    !same_data(p->data, no_data) && !same_data(p->data, data))
			return p;
	}
	return NULL;
}

static void
refuse_data(struct fal_coord *c, double now, uint32_t peer, const uint8_t *data,
	    const uint8_t *best, bool later)
{
	char a[2 * FAL_DATA_HASH + 1], b[2 * FAL_DATA_HASH + 1], why[FAL_MSG_WHY];
	fal_hex(data, FAL_DATA_HASH, a);
	fal_hex(best, FAL_DATA_HASH, b);
	snprintf(why, sizeof(why), "its trainer has the data %s, %s %s", a,
		 same_data(best, c->conf.data) ? "the job's are" : "that of others has",
		 b);
	(later ? coord_later : coord_refuse)(c, now, peer, why);
}

/* The session says what data it has of its own, in READY.  False: it was sent away. */
static bool
accept_data(struct fal_coord *c, double now, struct coord_peer *p,
	    const uint8_t data[static FAL_DATA_HASH])
{
	struct coord_known_key *key = &c->sessions.key[p->key - 1];
	struct support best, mine;
	memcpy(p->data, data, FAL_DATA_HASH);
	if (same_data(data, no_data))
		return true;
	if (session_with_other_data(c, data, p->key) == NULL &&
	    (c->versions.newest == 0 || same_data(key->data, no_data)))
		memcpy(key->data, data, FAL_DATA_HASH);
	const uint8_t *leading = data_leader(c, &best);
	if (same_data(data, leading))
		return true;
	mine = data_support(c, data);
	refuse_data(c, now, p->id, data, leading, mine.keys == best.keys);
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

/* Sends away whoever is ready and has said other data than those that count. */
static void
refuse_other_data(struct fal_coord *c, double now)
{
	struct support best;
	uint8_t leading[FAL_DATA_HASH];
	const struct coord_peer *p;
	memcpy(leading, data_leader(c, &best), FAL_DATA_HASH);
	while (!same_data(leading, no_data) &&
	       (p = session_with_other_data(c, leading, 0)) != NULL) {
		uint8_t data[FAL_DATA_HASH];
		memcpy(data, p->data, FAL_DATA_HASH);
		refuse_data(c, now, p->id, data, leading, false);
	}
}

/* ---- local steps that lead out of the numbers ------------------------------------- */

static void
record_divergence(struct fal_coord *c, const struct coord_peer *p, const char *why)
{
	enum { SOON = 100 }; /* clocks */
	const uint64_t clock = fal_sched_over(c->sched);
	struct fal_worker_info is;
	bool others = false; /* is anybody of another key able to work? */
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		const struct coord_peer *o = &c->sessions.peer[i];
		others |= o->ready && o->key != p->key &&
			  fal_sched_info(c->sched, o->worker, &is) && is.able;
	}
	const bool soon = c->sessions.diverged.key != 0 &&
			  clock - c->sessions.diverged.clock <= SOON;
	const bool alone = c->sessions.n_ready == (p->ready ? 1 : 0);
	if (alone || (soon && (c->sessions.diverged.key != p->key || !others)))
		c->failure = why;
	c->sessions.diverged.key = p->key;
	c->sessions.diverged.clock = clock;
}

/* ---- trainers that fail ----------------------------------------------------------- */

static void
record_trainer_failure(struct fal_coord *c, double now, const struct coord_peer *p,
		       const char *why)
{
	struct coord_known_key *key = &c->sessions.key[p->key - 1];
	key->failed = true;
	c->sessions.trainer.failed_at = now;
	snprintf(c->sessions.trainer.why, sizeof(c->sessions.trainer.why),
		 "trainer of %s failed: %s", p->name, why);
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_TRAINER,
			  &(struct fal_ev_trainer){ key->record.name,
						    c->sessions.trainer.why });
}

const char *
fal_coord_trainer(const struct fal_coord *c)
{
	coord_enter(c);
	return c->sessions.trainer.why;
}

double
coord_trainer_deadline(const struct fal_coord *c)
{
	uint32_t failed = 0;
	if (c->sessions.trainer.why[0] == '\0' || c->is_finished || c->failure != NULL)
		return INFINITY;
	for (uint32_t i = 0; i < c->sessions.peers; i++)
		if (c->sessions.peer[i].greeted && !c->sessions.peer[i].left)
			return INFINITY;
	for (uint32_t i = 0; i < c->sessions.keys; i++)
		failed += c->sessions.key[i].failed;
	return c->sessions.trainer.failed_at +
	       (failed >= c->sessions.trainer.keys ? 0 : c->sessions.trainer.wait_s);
}

/* ---- messages -------------------------------------------------------------------- */

/* Clocks between measurements of a worker's round trip. */
enum { PING_EVERY = 16 };

void
coord_send_end(struct fal_coord *c, uint32_t peer)
{
	struct fal_msg m = { .type = c->failure != NULL ? FAL_MSG_REFUSE : FAL_MSG_DONE };
	const char *text = c->failure != NULL ? c->failure : "the job is done";
	snprintf(m.done.why, sizeof(m.done.why), "%s", text);
	coord_send(c, peer, &m);
}

static int
unwelcome(struct fal_diag *diag)
{
	return fal_diag_set(diag, FAL_EPERM,
			    "its key was charged twice for what it sent");
}

static int
on_hello(struct fal_coord *c, double now, uint32_t peer, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	struct coord_peer *p = coord_find_peer(c, peer);
	if (p == NULL || p->greeted)
		return fal_diag_set(diag, FAL_ESTATE, "a second HELLO");
	int err = fal_msg_judge_schema(m->hello.schema, diag);
	if (err < 0)
		return err;
	if (m->hello.lanes_min < 1 || m->hello.lanes_max < m->hello.lanes_min ||
	    m->hello.lanes_max > FAL_LANES_MAX || m->hello.cores < 1)
		return fal_diag_set(diag, FAL_EINVAL, "a HELLO with %u:%u lanes",
				    m->hello.lanes_min, m->hello.lanes_max);
	if (is_banned(c, p))
		return unwelcome(diag);
	if (!fal_name_valid(m->hello.name))
		return fal_diag_set(diag, FAL_EINVAL,
				    "a HELLO with a name that is not 1 to 63 of "
				    "A-Z a-z 0-9 . _ -");
	struct fal_msg w = { .type = FAL_MSG_WELCOME };
	w.welcome.clock = fal_sched_front(c->sched);
	w.welcome.job_n = c->conf.text_n[FAL_TEXT_JOB];
	w.welcome.model_n = c->conf.text_n[FAL_TEXT_MODEL];
	w.welcome.manifest_n = c->conf.text_n[FAL_TEXT_MANIFEST];
	w.welcome.epoch = c->conf.tickets.epoch;
	coord_send(c, peer, &w);
	if (c->is_finished || c->failure != NULL) {
		coord_send_end(c, peer);
		return FAL_OK;
	}
	p->greeted = true;
	p->is_group_server = m->hello.group != 0;
	p->lines.greeted_at = fal_coord_seconds(c, now);
	p->lanes_min = m->hello.lanes_min;
	p->lanes_max = m->hello.lanes_max;
	p->cores = m->hello.cores;
	memcpy(p->build, m->hello.version, sizeof(p->build));
	name_session(c, now, peer, m->hello.name, m->hello.instance);
	return FAL_OK;
}

static void
trace_join(struct fal_coord *c, double now, struct coord_peer *p)
{
	const struct coord_known_key *k = &c->sessions.key[p->key - 1];
	const uint64_t lanes[] = { p->lanes_min, p->lanes_max };
	char hex[2 * FAL_FINGERPRINT + 1];
	const struct fal_ev_join line = {
		.worker = p->name,
		.id = p->worker,
		.key = k->record.name,
		.key_fingerprint = k->record.fingerprint,
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
	p->lines.joined_at = fal_coord_seconds(c, now);
	coord_trace_event(c, p->lines.joined_at, FAL_EV_JOIN, &line);
}

static void
report_departure(struct fal_coord *c, const struct coord_peer *p, const char *why)
{
	if (c->ops.went == NULL)
		return;
	c->ops.went(coord_begin_callback(c), p->id, p->name, why);
	coord_end_callback(c);
}

static int
on_ready(struct fal_coord *c, double now, struct coord_peer *p, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	if (p->ready)
		return fal_diag_set(diag, FAL_ESTATE, "a second READY");
	if (is_banned(c, p)) /* since HELLO */
		return unwelcome(diag);
	const bool tried = m->ready.large > 0 || m->ready.large_ns > 0;
	if (tried && (m->ready.task_ns == 0 || m->ready.large_ns == 0 ||
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
	FAL_XGROW(c->sessions.worker, c->sessions.worker_cap,
		  (size_t)c->sessions.workers + 1);
	struct coord_known_worker *known = &c->sessions.worker[c->sessions.workers];
	*known = (struct coord_known_worker){ .key = p->key, .session = p->id };
	memcpy(known->fingerprint, p->fingerprint, FAL_FINGERPRINT);
	memcpy(known->name, p->name, sizeof(known->name));
	p->worker = ++c->sessions.workers;
	p->ready = true;
	c->sessions.n_ready++;
	trace_join(c, now, p);
	if (c->ops.came != NULL) {
		c->ops.came(coord_begin_callback(c), p->id, p->name,
			    c->sessions.key[p->key - 1].record.name);
		coord_end_callback(c);
	}
	const struct fal_bound_lanes probe = coord_probed_lanes(c, p);
	struct fal_join j = { .id = p->worker,
			      .name = p->name,
			      .key = p->key,
			      .numerics = coord_numerics_number(c, p->fingerprint),
			      .lanes_min = p->lanes_min,
			      .lanes_max = p->lanes_max,
			      .cores = p->cores,
			      .task_s = probe.task_s,
			      .fixed = probe.fixed,
			      .rtt = p->rtt,
			      .was = coord_former_speed(c, p),
			      .group = p->is_group_server,
			      /* until it is seen whose fingerprint counts */
			      .stands_by = c->conf.numerics == FAL_NUMERICS_REQUIRE };
	coord_send_block_map(c, p->id);
	coord_record_error(c, fal_sched_join(c->sched, now, &j));
	coord_send_ping(c, now, p->id);
	update_numerics(c, now);
	refuse_other_data(c, now);
	if (c->sessions.n_ready >= c->conf.min_workers)
		c->has_begun = true;
	return FAL_OK;
}

/* Workers of the group server have come or gone. */
static int
on_capacity(struct fal_coord *c, double now, struct coord_peer *p,
	    const struct fal_msg *m, struct fal_diag *diag)
{
	if (m->capacity.lanes < 1 || m->capacity.lanes > FAL_LANES_MAX ||
	    m->capacity.members < 1)
		return fal_diag_set(diag, FAL_EINVAL, "a CAPACITY of %u lanes of %u",
				    m->capacity.lanes, m->capacity.members);
	p->lanes_min = p->lanes_max = p->cores = m->capacity.lanes;
	p->probe.task_ns =
		m->capacity.task_ns > 0 ? m->capacity.task_ns : p->probe.task_ns;
	p->probe.large = 0;
	p->probe.large_ns = 0;
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_GROUP,
			  &(struct fal_ev_group){ p->name, p->worker, m->capacity.members,
						  m->capacity.lanes });
	return fal_sched_capacity(c->sched, now, p->worker, m->capacity.lanes,
				  (double)m->capacity.task_ns * 1e-9);
}

/* The worker has closed a contribution: it gets the ticket, or, where nothing of it
 * counts any more, learns so. */
static int
seal(struct fal_coord *c, const struct coord_peer *p, uint64_t round, uint32_t seq,
     struct fal_diag *diag)
{
	const struct fal_cid id = { p->worker, seq };
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	struct fal_ticket t;
	int sealed = fal_sched_seal(c->sched, round, id);
	if (sealed < 0)
		return fal_diag_set(diag, sealed,
				    "closes contribution %u of round %" PRIu64 " twice",
				    seq, round);
	m.fence.round = round;
	m.fence.seq = seq;
	if (sealed == 1 && coord_make_ticket(c, round, id, &t)) {
		m.type = FAL_MSG_TICKET;
		fal_ticket_put(&c->conf.tickets, p->id, &t, &m.ticket);
	}
	coord_send(c, p->id, &m);
	return FAL_OK;
}

/* Was the worker granted the task, if it was, on other versions than it says? */
static bool
is_other_version(const struct fal_coord *c, const struct fal_round_info *r,
		 const struct fal_claim_in *in)
{
	const uint64_t on = in->task < r->late ? r->version : r->after;
	bool other = !r->mixed && in->version != on;
	for (size_t i = 0; i < c->rounds.n_granted && r->mixed; i++) {
		const struct fal_granted_on *o = &c->rounds.granted[i];
		if (o->round != r->round || o->worker != in->worker ||
		    in->task - o->first >= o->count)
			continue;
		if (o->version == in->version)
			return false;
		other = true;
	}
	return other;
}

static int
on_claim(struct fal_coord *c, double now, struct coord_peer *p, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	struct fal_claim_in in = { .worker = p->worker,
				   .round = m->claim.round,
				   .task = m->claim.task,
				   .seq = m->claim.seq,
				   .fills = { m->claim.fills_worker, m->claim.fills_seq },
				   .task_s = (double)m->claim.task_ns * 1e-9,
				   .loss = m->claim.loss,
				   .version = m->claim.version,
				   .nonfinite = m->claim.nonfinite != 0 };
	if (c->conf.task_hashes)
		memcpy(in.hash, m->claim.hash, sizeof(in.hash));
	if (!fal_loss_fits(in.loss, c->conf.grid.task))
		return fal_diag_set(diag, FAL_EINVAL, "claims a loss of %.6g",
				    fal_loss_is(in.loss));
	struct fal_round_info r;
	if (fal_sched_round(c->sched, in.round, &r) && is_other_version(c, &r, &in))
		return fal_diag_set(diag, FAL_EINVAL,
				    "computes round %" PRIu64 " on version %" PRIu64,
				    in.round, m->claim.version);
	in.verify = !in.nonfinite && coord_verify_is_drawn(c, p, in.round);
	int won = fal_sched_claim(c->sched, now, &in);
	if (won < 0)
		return fal_diag_set(diag, won, "claims task %u of round %" PRIu64 ": %s",
				    in.task, in.round, fal_strerror(won));
	const bool counts = won == 1 && !in.nonfinite;
	for (uint32_t i = 0;
	     counts && c->sessions.trainer.why[0] != '\0' && i < c->sessions.keys; i++)
		c->sessions.key[i].failed = false;
	if (counts)
		c->sessions.trainer.why[0] = '\0';
	if (counts && !c->is_external && fal_sched_round(c->sched, in.round, &r))
		coord_health_add_claim(c, r.clock, p->key, in.loss,
				       fal_grid_range_samples(&c->conf.grid, r.clock,
							      in.task, 1));
	if (counts && c->is_external) /* whoever has brought the task hears of it */
		coord_report_claim(c, &(struct fal_coord_claimed){
					      .round = in.round,
					      .task_ns = m->claim.task_ns,
					      .task = in.task,
					      .loss = in.loss,
					      .hash = m->claim.hash });
	/* The worker waits for no verdict on a task that was claimed ahead. */
	const bool waits = !in.nonfinite && in.seq < FAL_PRECLAIMED;
	struct fal_msg v = { .type = FAL_MSG_VERDICT };
	v.verdict.round = in.round;
	v.verdict.task = in.task;
	v.verdict.seq = in.seq;
	v.verdict.won = won == 1;
	/* Before what follows from it: a fence must find its verdicts given. */
	if (waits)
		coord_send(c, p->id, &v);
	int err =
		waits && m->claim.last != 0 ? seal(c, p, in.round, in.seq, diag) : FAL_OK;
	uint64_t clock = fal_sched_over(c->sched);
	if (err == FAL_OK && clock >= p->ping_clock) {
		/* Often while the round trip is not known well, then now and again. */
		p->ping_clock = clock + (clock < PING_EVERY ? 1 : PING_EVERY);
		coord_send_ping(c, now, p->id);
	}
	return err;
}

/* A push is the shards' business; what becomes of it they say. */
static int
on_push(struct fal_coord *c, double now, struct coord_peer *p, const struct fal_msg *m,
	struct fal_diag *diag)
{
	coord_begin_callback(c);
	int err = c->ops.shards.push(c->ops.shards.arg, p->id, m, diag);
	coord_end_callback(c);
	if (err == FAL_ELIMIT || err == FAL_EINVAL)
		coord_charge_key(c, p);
	if (err < 0)
		(void)coord_advance(c, now);
	return err;
}

/* The part that counts of the time that the worker says to have spent.  No worker spends
 * more time than the worker is here, but for a clock that runs faster and a word that
 * came late; the audit holds the trace to twice that limit (falcon-trace(5)).  A worker's
 * first line tells also of the time before the worker joined. */
static double
credible_part(struct coord_peer *p, double now, const struct fal_msg *m)
{
	const double here =
		now - (p->lines.has_first ? p->lines.joined_at : p->lines.greeted_at);
	const double most = here + 0.5 + here / 200 - p->lines.reported_s;
	const double says = ((double)m->worked.compute + (double)m->worked.push +
			     (double)m->worked.pull + (double)m->worked.wait) *
			    1e-9;
	const double counts = fmin(says, fmax(most, 0));
	p->lines.reported_s += p->lines.has_first ? counts : 0;
	p->lines.has_first = true;
	return says > 0 ? counts / says : 1;
}

/* Seconds, of which a part counts. */
static double
credible_seconds(uint64_t ns, double part)
{
	return (double)(part < 1 ? (uint64_t)((double)ns * part) : ns) * 1e-9;
}

/* Writes the oldest `clock` line that the peer owes. */
static void
write_clock_line(struct fal_coord *c, double now, struct coord_peer *p,
		 const struct fal_msg *m)
{
	const struct coord_clock_line *o = &p->lines.pending[0];
	const double at = fal_coord_seconds(c, now), part = credible_part(p, at, m);
	struct fal_ev_clock line = { .clock = o->clock,
				     .round = o->own ? o->round : FAL_TRACE_ABSENT,
				     .worker = p->name,
				     .id = p->worker,
				     .lanes = o->info.lanes,
				     .compute = credible_seconds(m->worked.compute, part),
				     .push = credible_seconds(m->worked.push, part),
				     .pull = credible_seconds(m->worked.pull, part),
				     .wait = credible_seconds(m->worked.wait, part),
				     .push_all = credible_seconds(m->worked.push_all, 1),
				     .pull_all = credible_seconds(m->worked.pull_all, 1),
				     .late = credible_seconds(m->worked.late, 1),
				     .rtt = o->info.rtt,
				     .tx = o->tx - p->lines.tx,
				     .rx = o->rx - p->lines.rx };
	fal_line_clock(&c->trace_line, at, &o->work, &line);
	coord_write_line(c);
	p->lines.tx = o->tx;
	p->lines.rx = o->rx;
	memmove(p->lines.pending, p->lines.pending + 1,
		sizeof(*p->lines.pending) * --p->lines.n_pending);
}

/* Writes the `clock` lines that the peer owes, up to that of the ACCOUNT `m` answers. */
static int
on_worked(struct fal_coord *c, double now, struct coord_peer *p, const struct fal_msg *m,
	  struct fal_diag *diag)
{
	const struct fal_msg none = { .type = FAL_MSG_WORKED };
	uint32_t at = 0;
	while (at < p->lines.n_pending && p->lines.pending[at].round != m->worked.mark)
		at++;
	if (at == p->lines.n_pending &&
	    (at == 0 || m->worked.mark < p->lines.next_round ||
	     m->worked.mark > p->lines.pending[0].round))
		return FAL_OK;
	/* The answer comes from far, and its line could not wait: the answer goes into
	 * the next line. */
	at = at < p->lines.n_pending ? at : 0;
	p->lines.next_round = m->worked.mark + 1;
	int err = coord_take_waits(c, p->worker, m);
	if (err < 0)
		return fal_diag_set(diag, err, "WORKED: %s", fal_strerror(err));
	for (; at > 0; at--)
		write_clock_line(c, now, p, &none);
	write_clock_line(c, now, p, m);
	return FAL_OK;
}

void
coord_write_clock_lines(struct fal_coord *c, double now, struct coord_peer *p,
			uint32_t left)
{
	const struct fal_msg none = { .type = FAL_MSG_WORKED };
	while (p->lines.n_pending > left)
		write_clock_line(c, now, p, &none);
}

/* A worker hands back what it has. */
static void
end_worker(struct fal_coord *c, double now, struct coord_peer *p, const char *why)
{
	if (!p->ready)
		return;
	char plain[FAL_MSG_WHY];
	why = fal_text_plain(plain, sizeof(plain), why);
	p->ready = false;
	p->left = true;
	c->sessions.n_ready--;
	coord_write_clock_lines(c, now, p, 0);
	const bool momentum = c->sessions.worker[p->worker - 1].momentum;
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_LEAVE,
			  &(struct fal_ev_leave){ p->name, p->worker, why,
						  !p->leaves_in_order, momentum });
	if (momentum) {
		FAL_XGROW(c->sessions.leaver, c->sessions.leaver_cap,
			  (size_t)c->sessions.leavers + 1);
		c->sessions.leaver[c->sessions.leavers++] = p->worker;
	}
	report_departure(c, p, why);
	fal_sched_leave(c->sched, now, p->worker);
	update_numerics(c, now);
}

static int
on_leave(struct fal_coord *c, double now, struct coord_peer *p, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	char why[FAL_MSG_WHY];
	fal_text_plain(why, sizeof(why), m->leave.why);
	if (m->leave.cause > FAL_LEAVE_TRAINER)
		return fal_diag_set(diag, FAL_EINVAL, "LEAVE for cause %u",
				    m->leave.cause);
	if (m->leave.cause == FAL_LEAVE_NONFINITE && fal_sched_steps(c->sched, p->worker))
		record_divergence(c, p, "local steps led to weights that are not finite");
	if (m->leave.cause == FAL_LEAVE_TRAINER)
		record_trainer_failure(c, now, p, why);
	p->leaves_in_order = m->leave.cause == FAL_LEAVE_ASKED;
	if (p->ready) {
		end_worker(c, now, p, why);
		return FAL_OK;
	}
	p->left = true;
	report_departure(c, p, why);
	return FAL_OK;
}

int
fal_coord_msg(struct fal_coord *c, double now, uint32_t peer, const struct fal_msg *m,
	      struct fal_diag *diag)
{
	coord_enter(c);
	if (m->incarnation != c->conf.tickets.incarnation && m->type != FAL_MSG_HELLO)
		return fal_diag_set(diag, FAL_ESTATE, "a message of incarnation %u",
				    m->incarnation);
	if (m->type == FAL_MSG_HELLO)
		return on_hello(c, now, peer, m, diag);
	struct coord_peer *p = coord_find_peer(c, peer);
	if (p != NULL && p->left)
		return FAL_OK;
	bool greeted = p != NULL && p->greeted;
	bool early = m->type == FAL_MSG_READY || m->type == FAL_MSG_LEAVE;
	if (!greeted || (!p->ready && !early))
		return fal_diag_set(diag, FAL_ESTATE, "%s before %s",
				    fal_msg_name(m->type), greeted ? "READY" : "HELLO");
	if (p->worker != 0)
		fal_sched_heard(c->sched, now, p->worker);
	int err = FAL_OK;
	switch (m->type) {
	case FAL_MSG_READY:
		err = on_ready(c, now, p, m, diag);
		break;
	case FAL_MSG_CLAIM:
		err = on_claim(c, now, p, m, diag);
		break;
	case FAL_MSG_PUSH:
		err = on_push(c, now, p, m, diag);
		break;
	case FAL_MSG_SEAL:
		err = seal(c, p, m->seal.round, m->seal.seq, diag);
		break;
	case FAL_MSG_WORKED:
		err = on_worked(c, now, p, m, diag);
		break;
	case FAL_MSG_EVALUATED:
		err = coord_take_evaluated(c, now, p, m, diag);
		break;
	case FAL_MSG_CHECKED:
		coord_verify_compare(c, now, p, m);
		break;
	case FAL_MSG_LEAVE:
		err = on_leave(c, now, p, m, diag);
		break;
	case FAL_MSG_PONG:
		fal_sched_pong(c->sched, now, p->worker,
			       fmax(now - c->start - (double)m->pong.stamp * 1e-9, 0),
			       m->pong.steps);
		break;
	case FAL_MSG_CAPACITY:
		err = on_capacity(c, now, p, m, diag);
		break;
	default:
		return fal_diag_set(diag, FAL_ESTATE, "%s is not for a worker to send",
				    fal_msg_name(m->type));
	}
	return err < 0 ? err : coord_advance(c, now);
}

int
fal_coord_gone(struct fal_coord *c, double now, uint32_t peer, const char *why)
{
	coord_enter(c);
	struct coord_peer *p = coord_find_peer(c, peer);
	if (p == NULL)
		return c->err;
	/* The session kept the job from its end until now: the worker may be back. */
	if (p->greeted)
		c->sessions.trainer.failed_at = now;
	const bool was_ready = p->ready;
	end_worker(c, now, p, why);
	if (p->worker != 0)
		c->sessions.worker[p->worker - 1].session = 0;
	memmove(p, p + 1,
		(size_t)(c->sessions.peer + --c->sessions.peers - p) * sizeof(*p));
	return was_ready ? coord_advance(c, now) : c->err;
}

void
fal_coord_refused(struct fal_coord *c, double now, const char *key, const char *why,
		  uint64_t count)
{
	coord_enter(c);
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_REFUSE,
			  &(struct fal_ev_refuse){ key, why, count });
}

void
fal_coord_traffic(struct fal_coord *c, uint32_t peer, uint64_t rx, uint64_t tx)
{
	coord_enter(c);
	struct coord_peer *p = coord_find_peer(c, peer);
	if (p != NULL) {
		p->rx = rx;
		p->tx = tx;
	}
}
