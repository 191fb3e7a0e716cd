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
number_of(struct fal_coord *c, const struct fal_coord_who *who)
{
	for (uint32_t i = 0; i < c->keys; i++) {
		struct fal_known_key *k = &c->key[i];
		if (strcmp(k->is.name, who->key) == 0 ||
		    strcmp(k->is.fingerprint, who->fingerprint) == 0) {
			k->place = who->place;
			return i + 1;
		}
	}
	FAL_XGROW(c->key, c->key_cap, (size_t)c->keys + 1);
	struct fal_known_key *k = &c->key[c->keys];
	*k = (struct fal_known_key){ .place = who->place };
	snprintf(k->is.name, sizeof(k->is.name), "%s", who->key);
	snprintf(k->is.fingerprint, sizeof(k->is.fingerprint), "%s", who->fingerprint);
	return ++c->keys;
}

/* A key that was charged so often has no session while another key is here. */
enum { TWICE = 2 };

void
fal_coord_open(struct fal_coord *c, uint32_t peer, const struct fal_coord_who *who)
{
	coord_enter(c);
	FAL_XGROW(c->peer, c->peer_cap, (size_t)c->peers + 1);
	struct fal_peer *p = &c->peer[coord_place(c, peer)];
	memmove(p + 1, p, (size_t)(c->peer + c->peers++ - p) * sizeof(*p));
	*p = (struct fal_peer){
		.id = peer, .key = number_of(c, who), .rtt = who->rtt, .kept = UINT64_MAX
	};
}

void
coord_charge_key(struct fal_coord *c, const struct fal_peer *p)
{
	c->key[p->key - 1].is.charges++;
}

const struct fal_known_worker *
coord_known(const struct fal_coord *c, uint32_t worker)
{
	return &c->known[worker - 1];
}

static bool
is_banned(const struct fal_coord *c, const struct fal_peer *p)
{
	if (c->key[p->key - 1].is.charges < TWICE)
		return false;
	for (uint32_t i = 0; i < c->peers; i++)
		if (c->peer[i].ready && c->peer[i].key != p->key)
			return true;
	return false;
}

/* A ready session of the key, that of `worker` first; NULL: there is none. */
static const struct fal_peer *
session_of_key(const struct fal_coord *c, uint32_t key, uint32_t worker)
{
	const struct fal_peer *any = NULL;
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *p = &c->peer[i];
		if (!p->ready || p->key != key)
			continue;
		if (p->worker == worker)
			return p;
		any = p;
	}
	return any;
}

void
coord_charged(struct fal_coord *c, double now, uint32_t worker, const char *why)
{
	const struct fal_known_worker *w = coord_known(c, worker);
	const uint32_t key = w->key;
	const struct fal_peer *p;
	/* Nothing more follows for a key that has no session any more. */
	if (c->key[key - 1].is.charges >= TWICE && session_of_key(c, key, worker) == NULL)
		return;
	c->key[key - 1].is.charges++;
	coord_put(c, fal_coord_seconds(c, now), FAL_EV_CHARGE,
		  &(struct fal_ev_charge){ w->name, worker, why });
	while ((p = session_of_key(c, key, worker)) != NULL && is_banned(c, p))
		coord_refuse(c, now, p->id, why);
}

bool
coord_is_here(const struct fal_peer *p)
{
	return p->greeted && !p->left;
}

bool
fal_coord_greeted(const struct fal_coord *c, uint32_t peer)
{
	coord_enter(c);
	const struct fal_peer *p = coord_find(c, peer);
	return p != NULL && coord_is_here(p);
}

static bool
is_taken(const struct fal_coord *c, const struct fal_peer *by, const char *name)
{
	for (uint32_t i = 0; i < c->peers; i++)
		if (&c->peer[i] != by && coord_is_here(&c->peer[i]) &&
		    strcmp(c->peer[i].name, name) == 0)
			return true;
	return false;
}

/* `name`, or, where that is another one's, name.2, name.3 … */
static void
call(const struct fal_coord *c, struct fal_peer *p, const char *name)
{
	snprintf(p->name, sizeof(p->name), "%s", name);
	for (uint32_t i = 2; is_taken(c, p, p->name); i++) {
		char suffix[12];
		int n = snprintf(suffix, sizeof(suffix), ".%u", i);
		snprintf(p->name, sizeof(p->name), "%.*s%s", FAL_NAME_MAX - n, name,
			 suffix);
	}
}

static void
coord_name(struct fal_coord *c, double now, uint32_t peer, const char *name,
	   const uint8_t instance[static FAL_INSTANCE])
{
	static const char why[] = "its process has opened another session";
	struct fal_peer *p = coord_find(c, peer);
	memcpy(p->instance, instance, FAL_INSTANCE);
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *older = &c->peer[i];
		if (older == p || !coord_is_here(older) || older->key != p->key ||
		    memcmp(older->instance, p->instance, FAL_INSTANCE) != 0)
			continue;
		snprintf(p->name, sizeof(p->name), "%s", older->name);
		/* The HELLO that came last need not have been said last: if this session
		 * is the dead one, the other session comes back. */
		coord_later(c, now, older->id, why);
		return;
	}
	call(c, p, name);
}

/* ---- numerics -------------------------------------------------------------------- */

/* The fingerprint that counts: alone, with numerics = require.  Most keys have this
 * fingerprint.  Of fingerprints that as many keys have, one that is not an impure
 * worker's counts, and then that of the key which stands first in the keyring. */

/* Keys and sessions behind a fingerprint, or a hash of data. */
struct side {
	uint32_t keys, place, sessions;
	bool pure;
};

bool
coord_is_pure(const uint8_t fingerprint[static FAL_FINGERPRINT])
{
	static const uint8_t impure[8]; /* READY, falcon-protocol(7) */
	return memcmp(fingerprint, impure, sizeof(impure)) != 0;
}

static bool
same_numerics(const struct fal_peer *a, const struct fal_peer *b)
{
	return memcmp(a->fingerprint, b->fingerprint, FAL_FINGERPRINT) == 0;
}

/* `seen` has a place for each key, all false before and after. */
static struct side
side_of(const struct fal_coord *c, const struct fal_peer *p, bool *seen)
{
	struct side is = { 0, UINT32_MAX, 0, coord_is_pure(p->fingerprint) };
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *o = &c->peer[i];
		if (!o->ready || !same_numerics(p, o))
			continue;
		const uint32_t place = c->key[o->key - 1].place;
		is.sessions++;
		is.keys += !seen[o->key - 1];
		is.place = place < is.place ? place : is.place;
		seen[o->key - 1] = true;
	}
	memset(seen, 0, c->keys * sizeof(*seen));
	return is;
}

static bool
side_outweighs(struct side a, struct side b)
{
	if (a.keys != b.keys)
		return a.keys > b.keys;
	if (a.pure != b.pure)
		return a.pure;
	if (a.place != b.place)
		return a.place < b.place;
	return a.sessions > b.sessions;
}

/* A worker whose fingerprint counts; of equals, the earliest.  NULL: none is there. */
static const struct fal_peer *
numerics_leader(const struct fal_coord *c)
{
	const bool strict = c->conf.numerics == FAL_NUMERICS_REQUIRE;
	bool *seen = fal_xcalloc(c->keys, sizeof(*seen));
	const struct fal_peer *first = NULL;
	struct side best = { 0 };
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *p = &c->peer[i];
		if (!p->ready || (first != NULL && same_numerics(first, p)) ||
		    (first != NULL && !strict && !coord_is_pure(p->fingerprint)))
			continue;
		const struct side is = side_of(c, p, seen);
		if (first == NULL || side_outweighs(is, best)) {
			first = p;
			best = is;
		}
	}
	free(seen);
	return first;
}

bool
coord_numerics_counts(const struct fal_coord *c, const struct fal_peer *p)
{
	if (c->conf.numerics != FAL_NUMERICS_REQUIRE)
		return true;
	const struct fal_peer *first = numerics_leader(c);
	return first == NULL || same_numerics(first, p);
}

static void
coord_numerics(struct fal_coord *c, double now)
{
	const bool strict = c->conf.numerics == FAL_NUMERICS_REQUIRE;
	const struct fal_peer *first = numerics_leader(c);
	for (uint32_t i = 0; i < c->peers; i++) {
		struct fal_peer *p = &c->peer[i];
		const bool was = p->odd;
		if (!p->ready || (!strict && !coord_is_pure(p->fingerprint)))
			continue;
		p->odd = !same_numerics(first, p);
		if (p->odd && !was && c->ops.odd != NULL) {
			const char *const name[] = { p->name, first->name },
					  *const kernels[] = { p->kernels,
							       first->kernels };
			c->ops.odd(coord_call(c), name, kernels);
			coord_called(c);
		}
		if (strict)
			fal_sched_stand_by(c->sched, now, p->worker, p->odd);
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

static struct side
behind(const struct fal_coord *c, const uint8_t *data)
{
	struct side b = { .place = UINT32_MAX };
	for (uint32_t i = 0; i < c->keys; i++) {
		const struct fal_known_key *k = &c->key[i];
		if (!same_data(k->data, data))
			continue;
		b.keys++;
		b.place = k->place < b.place ? k->place : b.place;
	}
	return b;
}

/* The hash that counts; `no_data`: nobody has said one.  Keys are few. */
static const uint8_t *
data_leader(const struct fal_coord *c, struct side *out)
{
	const uint8_t *best = no_data;
	*out = (struct side){ .place = UINT32_MAX };
	if (!same_data(c->conf.data, no_data)) {
		out->keys = UINT32_MAX;
		return c->conf.data;
	}
	for (uint32_t i = 0; i < c->keys; i++) {
		const uint8_t *data = c->key[i].data;
		if (same_data(data, no_data) || same_data(data, best))
			continue;
		const struct side b = behind(c, data);
		if (!side_outweighs(b, *out))
			continue;
		best = data;
		*out = b;
	}
	return best;
}

/* A ready session that has said other data than `data`: of this key, or of any (0). */
static const struct fal_peer *
session_with_other_data(const struct fal_coord *c, const uint8_t *data, uint32_t key)
{
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *p = &c->peer[i];
		if (p->ready && (key == 0 || p->key == key) &&
		    !same_data(p->data, no_data) && !same_data(p->data, data))
			return p;
	}
	return NULL;
}

static void
turn_away(struct fal_coord *c, double now, uint32_t peer, const uint8_t *data,
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
coord_data(struct fal_coord *c, double now, struct fal_peer *p,
	   const uint8_t data[static FAL_DATA_HASH])
{
	struct fal_known_key *key = &c->key[p->key - 1];
	struct side best, mine;
	memcpy(p->data, data, FAL_DATA_HASH);
	if (same_data(data, no_data))
		return true;
	if (session_with_other_data(c, data, p->key) == NULL &&
	    (c->version == 0 || same_data(key->data, no_data)))
		memcpy(key->data, data, FAL_DATA_HASH);
	const uint8_t *leading = data_leader(c, &best);
	if (same_data(data, leading))
		return true;
	mine = behind(c, data);
	turn_away(c, now, p->id, data, leading, mine.keys == best.keys);
	return false;
}

void
coord_data_remember(const struct fal_coord *c, char out[static 2 * FAL_DATA_HASH + 1])
{
	struct side best;
	const uint8_t *data = data_leader(c, &best);
	out[0] = '\0';
	if (!same_data(data, no_data))
		fal_hex(data, FAL_DATA_HASH, out);
}

/* Sends away whoever is ready and has said other data than those that count. */
static void
coord_data_others(struct fal_coord *c, double now)
{
	struct side best;
	uint8_t leading[FAL_DATA_HASH];
	const struct fal_peer *p;
	memcpy(leading, data_leader(c, &best), FAL_DATA_HASH);
	while (!same_data(leading, no_data) &&
	       (p = session_with_other_data(c, leading, 0)) != NULL) {
		uint8_t data[FAL_DATA_HASH];
		memcpy(data, p->data, FAL_DATA_HASH);
		turn_away(c, now, p->id, data, leading, false);
	}
}

/* ---- local steps that lead out of the numbers ------------------------------------- */

static void
note_diverged(struct fal_coord *c, const struct fal_peer *p, const char *why)
{
	enum { SOON = 100 }; /* clocks */
	const uint64_t clock = fal_sched_over(c->sched);
	struct fal_worker_info is;
	bool others = false; /* is anybody of another key able to work? */
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *o = &c->peer[i];
		others |= o->ready && o->key != p->key &&
			  fal_sched_info(c->sched, o->worker, &is) && is.able;
	}
	const bool soon = c->diverged.key != 0 && clock - c->diverged.clock <= SOON;
	const bool alone = c->ready == (p->ready ? 1 : 0);
	if (alone || (soon && (c->diverged.key != p->key || !others)))
		c->why = why;
	c->diverged.key = p->key;
	c->diverged.clock = clock;
}

/* ---- trainers that fail ----------------------------------------------------------- */

static void
trainer_failed(struct fal_coord *c, double now, const struct fal_peer *p, const char *why)
{
	struct fal_known_key *key = &c->key[p->key - 1];
	key->failed = true;
	c->trainer.since = now;
	snprintf(c->trainer.why, sizeof(c->trainer.why), "trainer of %s failed: %s",
		 p->name, why);
	coord_put(c, fal_coord_seconds(c, now), FAL_EV_TRAINER,
		  &(struct fal_ev_trainer){ key->is.name, c->trainer.why });
}

const char *
fal_coord_trainer(const struct fal_coord *c)
{
	coord_enter(c);
	return c->trainer.why;
}

double
coord_trainer_until(const struct fal_coord *c)
{
	uint32_t failed = 0;
	if (c->trainer.why[0] == '\0' || c->finished || c->why != NULL)
		return INFINITY;
	for (uint32_t i = 0; i < c->peers; i++)
		if (c->peer[i].greeted && !c->peer[i].left)
			return INFINITY;
	for (uint32_t i = 0; i < c->keys; i++)
		failed += c->key[i].failed;
	return c->trainer.since + (failed >= c->work_keys ? 0 : c->trainer.wait_s);
}

/* ---- messages -------------------------------------------------------------------- */

/* Clocks between measurements of a worker's round trip. */
enum { PING_EVERY = 16 };

void
coord_send_done(struct fal_coord *c, uint32_t peer)
{
	struct fal_msg m = { .type = c->why != NULL ? FAL_MSG_REFUSE : FAL_MSG_DONE };
	const char *text = c->why != NULL ? c->why : "the job is done";
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
	struct fal_peer *p = coord_find(c, peer);
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
	if (c->finished || c->why != NULL) {
		coord_send_done(c, peer);
		return FAL_OK;
	}
	p->greeted = true;
	p->group = m->hello.group != 0;
	p->since = fal_coord_seconds(c, now);
	p->lanes_min = m->hello.lanes_min;
	p->lanes_max = m->hello.lanes_max;
	p->cores = m->hello.cores;
	memcpy(p->build, m->hello.version, sizeof(p->build));
	coord_name(c, now, peer, m->hello.name, m->hello.instance);
	return FAL_OK;
}

static void
trace_join(struct fal_coord *c, double now, struct fal_peer *p)
{
	const struct fal_known_key *k = &c->key[p->key - 1];
	const uint64_t lanes[] = { p->lanes_min, p->lanes_max };
	char hex[2 * FAL_FINGERPRINT + 1];
	const struct fal_ev_join line = {
		.worker = p->name,
		.id = p->worker,
		.key = k->is.name,
		.key_fingerprint = k->is.fingerprint,
		.lanes = { lanes, 2 },
		.cores = p->cores,
		.fingerprint = hex,
		.version = p->build[0] != '\0' ? p->build : NULL,
		.kernels = p->kernels[0] != '\0' ? p->kernels : NULL,
		.task_s = (double)p->task_ns * 1e-9,
		.large = p->large,
		.large_s = p->large > 0 ? (double)p->large_ns * 1e-9 : (double)NAN,
	};
	fal_hex(p->fingerprint, FAL_FINGERPRINT, hex);
	p->joined = fal_coord_seconds(c, now);
	coord_put(c, p->joined, FAL_EV_JOIN, &line);
}

static void
tell_went(struct fal_coord *c, const struct fal_peer *p, const char *why)
{
	if (c->ops.went == NULL)
		return;
	c->ops.went(coord_call(c), p->id, p->name, why);
	coord_called(c);
}

static int
on_ready(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
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
	if (!coord_data(c, now, p, m->ready.data))
		return FAL_OK;
	memcpy(p->fingerprint, m->ready.fingerprint, FAL_FINGERPRINT);
	memcpy(p->kernels, m->ready.kernels, sizeof(p->kernels));
	p->task_ns = m->ready.task_ns;
	p->large = m->ready.large;
	p->large_ns = m->ready.large_ns;
	FAL_XGROW(c->known, c->known_cap, (size_t)c->workers + 1);
	struct fal_known_worker *known = &c->known[c->workers];
	*known = (struct fal_known_worker){ .key = p->key, .session = p->id };
	memcpy(known->fingerprint, p->fingerprint, FAL_FINGERPRINT);
	memcpy(known->name, p->name, sizeof(known->name));
	p->worker = ++c->workers;
	p->ready = true;
	c->ready++;
	trace_join(c, now, p);
	if (c->ops.came != NULL) {
		c->ops.came(coord_call(c), p->id, p->name, c->key[p->key - 1].is.name);
		coord_called(c);
	}
	const struct fal_bound_lanes probe = coord_lanes(c, p);
	struct fal_join j = { .id = p->worker,
			      .name = p->name,
			      .key = p->key,
			      .numerics = coord_numerics_of(c, p->fingerprint),
			      .lanes_min = p->lanes_min,
			      .lanes_max = p->lanes_max,
			      .cores = p->cores,
			      .task_s = probe.task_s,
			      .fixed = probe.fixed,
			      .rtt = p->rtt,
			      .was = coord_speed_of(c, p),
			      .group = p->group,
			      /* until it is seen whose fingerprint counts */
			      .stands_by = c->conf.numerics == FAL_NUMERICS_REQUIRE };
	coord_send_blocks(c, p->id);
	coord_expect(c, fal_sched_join(c->sched, now, &j));
	coord_ping(c, now, p->id);
	coord_numerics(c, now);
	coord_data_others(c, now);
	if (c->ready >= c->conf.min_workers)
		c->began = true;
	return FAL_OK;
}

/* Workers of the group server have come or gone. */
static int
on_capacity(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	    struct fal_diag *diag)
{
	if (m->capacity.lanes < 1 || m->capacity.lanes > FAL_LANES_MAX ||
	    m->capacity.members < 1)
		return fal_diag_set(diag, FAL_EINVAL, "a CAPACITY of %u lanes of %u",
				    m->capacity.lanes, m->capacity.members);
	p->lanes_min = p->lanes_max = p->cores = m->capacity.lanes;
	p->task_ns = m->capacity.task_ns > 0 ? m->capacity.task_ns : p->task_ns;
	p->large = 0;
	p->large_ns = 0;
	coord_put(c, fal_coord_seconds(c, now), FAL_EV_GROUP,
		  &(struct fal_ev_group){ p->name, p->worker, m->capacity.members,
					  m->capacity.lanes });
	return fal_sched_capacity(c->sched, now, p->worker, m->capacity.lanes,
				  (double)m->capacity.task_ns * 1e-9);
}

/* The worker has closed a contribution: it gets the ticket, or, where nothing of it
 * counts any more, learns so. */
static int
seal(struct fal_coord *c, const struct fal_peer *p, uint64_t round, uint32_t seq,
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
	if (sealed == 1 && coord_ticket(c, round, id, &t)) {
		m.type = FAL_MSG_TICKET;
		fal_ticket_put(&c->conf.tickets, p->id, &t, &m.ticket);
	}
	coord_send(c, p->id, &m);
	return FAL_OK;
}

/* Was the worker granted the task, if it was, on other versions than it says? */
static bool
is_granted_else(const struct fal_coord *c, const struct fal_round_info *r,
		const struct fal_claim_in *in)
{
	const uint64_t on = in->task < r->late ? r->version : r->after;
	bool other = !r->mixed && in->version != on;
	for (size_t i = 0; i < c->ons && r->mixed; i++) {
		const struct fal_granted_on *o = &c->on[i];
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
on_claim(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
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
	if (fal_sched_round(c->sched, in.round, &r) && is_granted_else(c, &r, &in))
		return fal_diag_set(diag, FAL_EINVAL,
				    "computes round %" PRIu64 " on version %" PRIu64,
				    in.round, m->claim.version);
	in.verify = !in.nonfinite && coord_verify_draw(c, p, in.round);
	int won = fal_sched_claim(c->sched, now, &in);
	if (won < 0)
		return fal_diag_set(diag, won, "claims task %u of round %" PRIu64 ": %s",
				    in.task, in.round, fal_strerror(won));
	const bool counts = won == 1 && !in.nonfinite;
	for (uint32_t i = 0; counts && c->trainer.why[0] != '\0' && i < c->keys; i++)
		c->key[i].failed = false;
	if (counts)
		c->trainer.why[0] = '\0';
	if (counts && !c->brought && fal_sched_round(c->sched, in.round, &r))
		coord_health_claim(c, r.clock, p->key, in.loss,
				   fal_grid_range_samples(&c->conf.grid, r.clock, in.task,
							  1));
	if (counts && c->brought) /* whoever has brought the task hears of it */
		coord_tell_claimed(c, &(struct fal_coord_claimed){
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
		coord_ping(c, now, p->id);
	}
	return err;
}

/* A push is the shards' business; what becomes of it they say. */
static int
on_push(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	struct fal_diag *diag)
{
	coord_call(c);
	int err = c->ops.shards.push(c->ops.shards.arg, p->id, m, diag);
	coord_called(c);
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
credible(struct fal_peer *p, double now, const struct fal_msg *m)
{
	const double here = now - (p->accounted ? p->joined : p->since);
	const double most = here + 0.5 + here / 200 - p->spent;
	const double says = ((double)m->worked.compute + (double)m->worked.push +
			     (double)m->worked.pull + (double)m->worked.wait) *
			    1e-9;
	const double counts = fmin(says, fmax(most, 0));
	p->spent += p->accounted ? counts : 0;
	p->accounted = true;
	return says > 0 ? counts / says : 1;
}

/* Seconds, of which a part counts. */
static double
part_of(uint64_t ns, double part)
{
	return (double)(part < 1 ? (uint64_t)((double)ns * part) : ns) * 1e-9;
}

/* Writes the oldest `clock` line that the peer owes. */
static void
pay(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m)
{
	const struct fal_owed *o = &p->owed[0];
	const double at = fal_coord_seconds(c, now), part = credible(p, at, m);
	struct fal_ev_clock line = { .clock = o->clock,
				     .round = o->own ? o->round : FAL_TRACE_ABSENT,
				     .worker = p->name,
				     .id = p->worker,
				     .lanes = o->info.lanes,
				     .compute = part_of(m->worked.compute, part),
				     .push = part_of(m->worked.push, part),
				     .pull = part_of(m->worked.pull, part),
				     .wait = part_of(m->worked.wait, part),
				     .push_all = part_of(m->worked.push_all, 1),
				     .pull_all = part_of(m->worked.pull_all, 1),
				     .late = part_of(m->worked.late, 1),
				     .rtt = o->info.rtt,
				     .tx = o->tx - p->told_tx,
				     .rx = o->rx - p->told_rx };
	fal_line_clock(&c->line, at, &o->work, &line);
	coord_trace(c);
	p->told_tx = o->tx;
	p->told_rx = o->rx;
	memmove(p->owed, p->owed + 1, sizeof(*p->owed) * --p->oweds);
}

/* Writes the `clock` lines that the peer owes, up to that of the ACCOUNT `m` answers. */
static int
on_worked(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	  struct fal_diag *diag)
{
	const struct fal_msg none = { .type = FAL_MSG_WORKED };
	uint32_t at = 0;
	while (at < p->oweds && p->owed[at].round != m->worked.mark)
		at++;
	if (at == p->oweds && (at == 0 || m->worked.mark < p->answered ||
			       m->worked.mark > p->owed[0].round))
		return FAL_OK;
	/* The answer comes from far, and its line could not wait: the answer goes into
	 * the next line. */
	at = at < p->oweds ? at : 0;
	p->answered = m->worked.mark + 1;
	int err = coord_waited(c, p->worker, m);
	if (err < 0)
		return fal_diag_set(diag, err, "WORKED: %s", fal_strerror(err));
	for (; at > 0; at--)
		pay(c, now, p, &none);
	pay(c, now, p, m);
	return FAL_OK;
}

void
coord_owed(struct fal_coord *c, double now, struct fal_peer *p, uint32_t left)
{
	const struct fal_msg none = { .type = FAL_MSG_WORKED };
	while (p->oweds > left)
		pay(c, now, p, &none);
}

/* A worker hands back what it has. */
static void
leave(struct fal_coord *c, double now, struct fal_peer *p, const char *why)
{
	if (!p->ready)
		return;
	char plain[FAL_MSG_WHY];
	why = fal_text_plain(plain, sizeof(plain), why);
	p->ready = false;
	p->left = true;
	c->ready--;
	coord_owed(c, now, p, 0);
	const bool momentum = c->known[p->worker - 1].momentum;
	coord_put(c, fal_coord_seconds(c, now), FAL_EV_LEAVE,
		  &(struct fal_ev_leave){ p->name, p->worker, why, !p->parted,
					  momentum });
	if (momentum) {
		FAL_XGROW(c->leaver, c->leaver_cap, (size_t)c->leavers + 1);
		c->leaver[c->leavers++] = p->worker;
	}
	tell_went(c, p, why);
	fal_sched_leave(c->sched, now, p->worker);
	coord_numerics(c, now);
}

static int
on_leave(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	char why[FAL_MSG_WHY];
	fal_text_plain(why, sizeof(why), m->leave.why);
	if (m->leave.cause > FAL_LEAVE_TRAINER)
		return fal_diag_set(diag, FAL_EINVAL, "LEAVE for cause %u",
				    m->leave.cause);
	if (m->leave.cause == FAL_LEAVE_NONFINITE && fal_sched_steps(c->sched, p->worker))
		note_diverged(c, p, "local steps led to weights that are not finite");
	if (m->leave.cause == FAL_LEAVE_TRAINER)
		trainer_failed(c, now, p, why);
	p->parted = m->leave.cause == FAL_LEAVE_ASKED;
	if (p->ready) {
		leave(c, now, p, why);
		return FAL_OK;
	}
	p->left = true;
	tell_went(c, p, why);
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
	struct fal_peer *p = coord_find(c, peer);
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
		err = coord_evaluated(c, now, p, m, diag);
		break;
	case FAL_MSG_CHECKED:
		coord_verify_checked(c, now, p, m);
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
	struct fal_peer *p = coord_find(c, peer);
	if (p == NULL)
		return c->err;
	/* The session kept the job from its end until now: the worker may be back. */
	if (p->greeted)
		c->trainer.since = now;
	const bool was_ready = p->ready;
	leave(c, now, p, why);
	if (p->worker != 0)
		c->known[p->worker - 1].session = 0;
	memmove(p, p + 1, (size_t)(c->peer + --c->peers - p) * sizeof(*p));
	return was_ready ? coord_advance(c, now) : c->err;
}

void
fal_coord_refused(struct fal_coord *c, double now, const char *key, const char *why,
		  uint64_t count)
{
	coord_enter(c);
	coord_put(c, fal_coord_seconds(c, now), FAL_EV_REFUSE,
		  &(struct fal_ev_refuse){ key, why, count });
}

void
fal_coord_traffic(struct fal_coord *c, uint32_t peer, uint64_t rx, uint64_t tx)
{
	coord_enter(c);
	struct fal_peer *p = coord_find(c, peer);
	if (p != NULL) {
		p->rx = rx;
		p->tx = tx;
	}
}
