/* A coordinator among strangers: any messages from any sessions in any order, with time
 * passing and connections lost.  It must never fail on its own account, and every line
 * of its trace must be JSON.
 *
 * An honest worker is there under a key of its own, from the start or when the input is
 * over.  It is never refused; what it does ends the job in bounded time, whatever the
 * others have left undone; and the parameters are finite.  All others have one key, or
 * two: one key can never end the job, while two that contradict nobody else may.
 *
 * In some worlds the model is in up to four shards, of which some have no block, whose
 * words come late, and who move.  They may say what is not so.  Those without a block
 * cost nobody anything by that; others may cost the job, but never the coordinator.
 *
 * The input is a program of steps: a byte that says what happens and to which session,
 * then what it needs.  Most messages are built from few bytes with values near those
 * that count, so that claims and pushes are often good ones. */
#include "../racked.h"
#include "../standin.h"
#include "base/branch.h"
#include "base/err.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "honest.h"
#include "shards.h"
#include "wire/bfp.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum {
	PARAMS = FAL_BLOCK + 3,
	PEERS = 4,
	SAMPLES = 13,
	BATCH = 8,
	TASK = 2,
	SEQS = 4,
	WANTS = 64,
	TASKS = BATCH / TASK,
	ROUNDS = 8
};

struct world {
	struct racked job;
	struct fal_coord *coord;
	struct shards shards;
	uint32_t epoch; /* of the map that holds */
	bool over;      /* what a shard made up has ended the job */
	double now;
	bool closed[PEERS];
	bool left[PEERS]; /* what was decided before may still be told to it */
	uint64_t first[PEERS], next[PEERS]; /* versions that it was sent */
	uint64_t evaluated; /* the version that is, or was last, under evaluation */
	/* Session i is number i + 1.  What an honest worker remembers: tickets, what
	 * tasks are to fill, and of the rounds that were granted last what they are like.
	 */
	uint64_t newest;
	struct round {
		uint64_t round, version;
		uint8_t kind;
		uint8_t held[PEERS]; /* bits of the tasks that the session has */
	} round[ROUNDS];
	struct racked_tickets tickets;
	uint32_t wins;     /* verdicts */
	uint32_t next_seq; /* of whoever is honest, above those of the others */
	bool sums;
	struct fal_contrib_id fills[TASKS];
	struct {
		uint64_t round;
		uint32_t task;
	} check[PEERS]; /* what the session was last asked to check */
	bool two_keys;
	struct honest honest;
	/* Versions that it was told of and the shards have not made yet. */
	struct fal_coord_publication want[WANTS];
	uint32_t wants;
};

/* Says where it is not so: the compiler leaves no frame of it. */
#define must(fact) must_at(fact, __LINE__)
static void
must_at(bool fact, int line)
{
	if (fact)
		return;
	fprintf(stderr, "fuzz_coord.c:%d: it is not so\n", line);
	abort();
}

/* The session has these tasks, or has them no more. */
static void
hold(struct world *w, uint32_t peer, uint64_t round, uint32_t first, uint32_t count,
     bool has)
{
	struct round *r = &w->round[round % ROUNDS];
	must(first + count <= TASKS && count > 0);
	uint32_t bits = ((1u << count) - 1) << first;
	if (r->round == round)
		r->held[peer] =
			(uint8_t)(has ? r->held[peer] | bits : r->held[peer] & ~bits);
}

static void
on_grant(struct world *w, uint32_t peer, const struct fal_msg *m)
{
	uint64_t round = m->grant.round;
	struct round *r = &w->round[round % ROUNDS];
	must(w->left[peer] ||
	     (m->grant.version >= w->first[peer] && m->grant.version < w->next[peer]));
	if (r->round != round)
		*r = (struct round){ .round = round };
	r->version = m->grant.version;
	r->kind = m->grant.kind;
	w->newest = round > w->newest ? round : w->newest;
	hold(w, peer, round, m->grant.first, m->grant.count, true);
}

static void
on_send(void *arg, uint32_t session, const struct fal_buf *msg)
{
	struct world *w = arg;
	struct fal_msg m;
	uint32_t peer = session - 1;
	must(peer <= PEERS && fal_msg_get(msg->p, msg->n, &m) == FAL_OK);
	must(fal_msg_may_send(m.type, FAL_FROM_COORDINATOR));
	if (peer == PEERS) {
		honest_post(w->honest.in, &w->honest.n_in, msg);
		return;
	}
	if (m.type == FAL_MSG_GRANT && m.grant.kind == FAL_KIND_CHECK) {
		w->check[peer].round = m.grant.round;
		w->check[peer].task = m.grant.first;
		return; /* to be answered, or not */
	}
	if (m.type == FAL_MSG_GRANT)
		on_grant(w, peer, &m);
	if (m.type == FAL_MSG_REVOKE && !m.revoke.check)
		hold(w, peer, m.revoke.round, m.revoke.first, m.revoke.count, false);
	for (uint32_t i = 0; m.type == FAL_MSG_GRANT && i < m.grant.count; i++) {
		must(m.grant.first + i < TASKS);
		w->fills[m.grant.first + i] =
			(struct fal_contrib_id){ m.grant.fills_worker,
						 m.grant.fills_seq };
	}
	if (m.type == FAL_MSG_TICKET)
		racked_note(&w->tickets, peer, &m);
	if (m.type != FAL_MSG_VERDICT || m.verdict.won == 0)
		return;
	w->wins++;
}

/* What is wanted, and there, is sent; versions up to `over` that are not there any more
 * nobody wants. */
static void
publish_wanted(struct world *w, uint64_t over)
{
	int8_t exps[FAL_BLOCK];
	uint32_t kept = 0;
	for (uint32_t i = 0; i < w->wants; i++) {
		const struct fal_coord_publication m = w->want[i];
		if (racked_exps(&w->job, m.version, exps))
			honest_model(&w->honest, &m,
				     fal_shard_set_params(w->job.shard_set, m.version),
				     exps);
		else if (m.version > over)
			w->want[kept++] = m;
	}
	w->wants = kept;
}

static void
on_model(void *arg, uint32_t session, const struct fal_coord_publication *m)
{
	struct world *w = arg;
	uint32_t peer = session - 1;
	must(peer <= PEERS && (m->keep || m->oldest <= m->version));
	if (peer == PEERS) {
		must(w->wants < WANTS);
		w->want[w->wants++] = *m;
		publish_wanted(w, 0);
		return;
	}
	/* An older one may come after it: again, or to be evaluated. */
	const uint64_t was = w->next[peer];
	const bool moved = was > 0 && fal_branch_of(was - 1) != fal_branch_of(m->version);
	if (was == 0)
		w->first[peer] = m->version;
	if (moved || m->version >= was)
		w->next[peer] = m->version + 1;
	w->evaluated = m->keep ? m->version : w->evaluated;
}

static void
on_close(void *arg, uint32_t session, const char *why)
{
	struct world *w = arg;
	must(why[0] != '\0');
	must(session <= PEERS || w->shards.lied); /* an honest worker is sent away */
	if (session <= PEERS)
		w->closed[session - 1] = true;
	else
		w->over = true;
}

static void
on_moved(void *arg, const struct fal_map *map, int err)
{
	struct world *w = arg;
	if (err < 0)
		return;
	w->epoch = map->epoch;
	w->shards.busy = fal_map_busy(map);
}

static void
on_trace(void *arg, const char *line, size_t n)
{
	(void)arg;
	json_error_t why;
	json_t *j = fal_json_load(line, n, 0, &why);
	must(j != NULL && memchr(line, '\n', n) == NULL);
	json_decref(j);
}

static void
begin(struct world *w, uint8_t variant, uint8_t rule, uint8_t place)
{
	static const float init[PARAMS];
	static const char *const rules[] = { "bsp",      "epsp",      "epsp:2",
					     "asp",      "ssp:1",     "ssp:0",
					     "flexrr:1", "syncopt:1", "consgd:1",
					     "dynsgd:1", "wbsp",      "groups:2" };
	struct fal_coord_ops ops = { .arg = w,
				     .send = on_send,
				     .model = on_model,
				     .close = on_close,
				     .trace = on_trace,
				     .moved = on_moved,
				     .shards = { &w->shards, shards_order, shards_push,
						 shards_served } };
	struct fal_policy policy = { .no_clones = false };
	struct fal_diag diag;
	must(fal_rule_parse(rules[rule % (sizeof(rules) / sizeof(rules[0]))],
			    &policy.rule, &diag) == FAL_OK);
	struct fal_coord_conf conf = { .name = "fuzz",
				       .hash = "00",
				       .policy = &policy,
				       .policy_by = "job",
				       .grid = { .samples = SAMPLES,
						 .batch = BATCH,
						 .task = TASK,
						 .epochs = 3,
						 .parts = 1 + (variant & 1) },
				       .test_samples = variant & 2 ? 5 : 0,
				       .eval_every = 2,
				       .params = PARAMS,
				       .audit_sums = (variant & 4) != 0,
				       .numerics = variant & 8 ? FAL_NUMERICS_FAST
							       : FAL_NUMERICS_PORTABLE,
				       .preclaims = (variant & 64) != 0,
				       .min_workers = 1 + (variant >> 4) % 2 };
	const struct fal_map map = shards_map(place, 1);
	conf.schedule.lr = 0.1;
	conf.shards = map.shards;
	conf.map = &map;
	conf.optim.clip = place & 128 ? 1 : 0;
	w->epoch = map.epoch;
	w->shards.busy = fal_map_busy(&map);
	w->sums = conf.audit_sums;
	w->two_keys = (variant & 32) != 0;
	w->next_seq = SEQS;
	must(racked_shards(&conf, 0, init, &w->job) == FAL_OK);
	w->shards.shard_set = w->job.shard_set;
	must(racked_coord(conf, ops, 0, &w->job) == FAL_OK);
	w->coord = w->job.coord;
	w->honest.coord = w->coord;
	w->honest.session = PEERS + 1;
	w->honest.test = conf.test_samples;
	w->honest.task = TASK;
}

/* ---- the honest worker ------------------------------------------------------------ */

static void
join_honest(struct world *w)
{
	const struct fal_agent_conf conf = {
		.n = PARAMS,
		.lanes_max = 1,
		.map_epoch = w->epoch,
		.tasks = TASKS,
		.grid = { .samples = SAMPLES, .batch = BATCH, .task = TASK },
		.optim = { 0 }
	};
	w->honest.now = w->now;
	honest_join(&w->honest, "h", &conf);
}

/* Time has passed: it answers, and a task is over.  True: something happened. */
static bool
work_honest(struct world *w)
{
	struct honest *h = &w->honest;
	h->now = w->now;
	h->doubted = w->shards.lied;
	if (h->agent == NULL || w->over)
		return false;
	publish_wanted(w, fal_coord_status(w->coord).version);
	bool any = honest_turn(h);
	any |= honest_heard(h);
	if (!any && h->busy) {
		must(honest_work(h) == FAL_OK);
		any = true;
		honest_turn(h);
		honest_heard(h);
	}
	return any;
}

/* What the coordinator makes of an event.  It fails by what a shard made up alone: the
 * job is over then. */
static void
heed(struct world *w, int err)
{
	must(err == FAL_OK || (w->shards.lied && err != FAL_ENOMEM));
	w->over |= err < 0;
}

/* The others do nothing more.  Each may still hold up a clock, for as long as the
 * longest wait that the coordinator has seen makes it patient. */
static void
drive_honest(struct world *w)
{
	const double task_s = 1e-3, bound = w->now + 1000 * (1 + w->now);
	for (uint32_t i = 0; i < 200000; i++) {
		struct fal_coord_status s = fal_coord_status(w->coord);
		if (s.done || s.failed || w->over)
			return;
		if (w->shards.lied && i == 2000)
			return;
		must(w->now < bound || w->shards.lied);
		if (work_honest(w)) {
			w->now += task_s;
		} else {
			double wake = fal_coord_next_deadline(w->coord);
			must(wake < INFINITY || w->shards.lied);
			if (isinf(wake))
				return;
			w->now = fmax(w->now, wake);
		}
		if (fal_coord_next_deadline(w->coord) <= w->now)
			heed(w, fal_coord_tick(w->coord, w->now));
	}
	must(false); /* the job stands still */
}

/* The block's values are all 2^(22 + above), and need that. */
static void
fill(struct fal_sum *sum, uint32_t b, int above, int needed)
{
	static int64_t v[FAL_BLOCK];
	for (uint32_t i = 0; i < FAL_BLOCK; i++)
		v[i] = INT64_C(1) << (22 + above);
	must(fal_sum_store(sum, b, v, (uint64_t)v[0], (int8_t)needed) == FAL_OK);
}

static int
within(int e)
{
	return e < FAL_EXP_MIN ? FAL_EXP_MIN : e > FAL_EXP_MAX ? FAL_EXP_MAX : e;
}

/* The records of both blocks, or of one: zeros, or, if not NONE, so far above or below
 * what the exponents of the round's version have room for. */
enum { NONE = -128, LEAST = -22, MOST = 36 };

static void
put_records(const struct world *w, uint64_t round, uint8_t how, int above,
	    struct fal_buf *out)
{
	struct fal_sum *sum = fal_sum_new(PARAMS);
	const struct round *of = &w->round[round % ROUNDS];
	const bool delta = of->kind == FAL_KIND_DELTA;
	int8_t exps[FAL_BLOCK];
	if (!racked_exps(&w->job, of->version, exps))
		racked_exps(&w->job, fal_coord_status(w->coord).version, exps);
	must(sum != NULL);
	for (uint32_t b = 0; b < 2; b++) {
		const int needed = within(exps[b] + (above == NONE ? 0 : above));
		int e = exps[b];
		if (delta) /* has exponents of its own */
			e = above == NONE ? FAL_EXP_MIN : needed;
		if (above != NONE)
			fill(sum, b, delta ? 0 : above, needed);
		if ((how >> b & 1) == 0)
			must(fal_sum_pack(sum, b, (int8_t)within(e + (how >> 4 & 1)),
					  out) == FAL_OK);
	}
	if (how & 8)
		fal_put_u8(out, how);
	fal_sum_free(sum);
}

static uint64_t
seldom_absurd(struct fal_rd *r, uint64_t usual)
{
	uint8_t how = fal_get_u8(r);
	if (how < 0xe0)
		return usual + how % 8;
	return how & 1 ? fal_get_u64(r) : UINT64_MAX >> (how & 63);
}

static void
open_session(struct world *w, uint32_t peer)
{
	const bool second = w->two_keys && peer % 2 == 1;
	const char *key = second ? "b" : "a";
	const struct fal_coord_session who = { key, key, 1 + second, 0 };
	fal_coord_session_open(w->coord, peer + 1, &who);
}

static void
deliver(struct world *w, uint32_t peer, const struct fal_msg *m)
{
	struct fal_diag diag = { "" };
	if (w->closed[peer])
		return;
	w->left[peer] |= m->type == FAL_MSG_LEAVE;
	int err = fal_coord_msg(w->coord, w->now, peer + 1, m, &diag);
	must(err != FAL_ENOMEM);
	if (err == FAL_OK)
		return;
	must(diag.text[0] != '\0' || err == FAL_ETRUNC || w->shards.lied);
	w->over |= diag.text[0] == '\0' && w->shards.lied;
	w->left[peer] = true;
	heed(w, fal_coord_session_end(w->coord, w->now, peer + 1, diag.text));
	w->closed[peer] = true;
}

static void
build(struct world *w, uint32_t peer, struct fal_rd *r, struct fal_msg *m,
      struct fal_buf *records)
{
	/* One of those that may be open. */
	uint64_t round = w->newest - fal_get_u8(r) % 4 % (w->newest + 1);
	uint32_t seq;
	uint8_t how, above, odd;
	static const uint16_t types[] = {
		FAL_MSG_HELLO,     FAL_MSG_READY, FAL_MSG_CLAIM, FAL_MSG_CLAIM,
		FAL_MSG_CLAIM,     FAL_MSG_PUSH,  FAL_MSG_PUSH,  FAL_MSG_WORKED,
		FAL_MSG_EVALUATED, FAL_MSG_LEAVE, FAL_MSG_PONG,  FAL_MSG_CHECKED,
		FAL_MSG_SEAL
	};
	m->type = types[fal_get_u8(r) % (sizeof(types) / sizeof(types[0]))];
	switch (m->type) {
	case FAL_MSG_HELLO:
		m->hello.schema = fal_msg_schema();
		memcpy(m->hello.name, fal_get_u8(r) > 0xe0 ? "w\xff\"" : "w2a", 4);
		m->hello.instance[0] = fal_get_u8(r) & 1;
		m->hello.lanes_min = (uint32_t)seldom_absurd(r, 1) % 5;
		m->hello.lanes_max = (uint32_t)seldom_absurd(r, 1);
		m->hello.cores = (uint32_t)seldom_absurd(r, 1);
		break;
	case FAL_MSG_READY:
		m->ready.task_ns = seldom_absurd(r, 1000000);
		m->ready.fingerprint[0] = fal_get_u8(r) > 0xe0;
		break;
	case FAL_MSG_CLAIM:
		m->claim.round = round;
		m->claim.task = (uint32_t)seldom_absurd(r, 0);
		m->claim.seq = (uint32_t)seldom_absurd(r, 1) % SEQS;
		if (fal_get_u8(r) & 1) {
			m->claim.fills_worker = w->fills[m->claim.task % TASKS].worker;
			m->claim.fills_seq = w->fills[m->claim.task % TASKS].seq;
		}
		m->claim.task_ns = seldom_absurd(r, 1000000);
		m->claim.loss = (int64_t)seldom_absurd(r, 0);
		m->claim.nonfinite = fal_get_u8(r) > 0xd0;
		m->claim.last = fal_get_u8(r) > 0x40;
		m->claim.version = w->round[round % ROUNDS].version;
		break;
	case FAL_MSG_SEAL:
		m->seal.round = round;
		m->seal.seq = (uint32_t)seldom_absurd(r, 1) % SEQS;
		break;
	case FAL_MSG_PUSH:
		seq = (uint32_t)seldom_absurd(r, 1) % SEQS;
		racked_ticket(&w->tickets, peer, round, seq, &m->push.ticket);
		odd = fal_get_u8(r);
		if (odd > 0xf0)
			m->push.ticket.tasks = (uint32_t)seldom_absurd(r, 1);
		else if (odd > 0xc0) /* before it is here */
			m->push.ticket = (struct fal_msg_ticket){ .round = round,
								  .seq = seq,
								  .tasks = 1 };
		m->push.epoch = w->epoch;
		how = fal_get_u8(r) & fal_get_u8(r);
		above = fal_get_u8(r);
		put_records(w, round, how,
			    above == 0 ? NONE : above % (MOST - LEAST + 1) + LEAST,
			    records);
		m->push.records = (struct fal_tail){ records->p, records->n };
		break;
	case FAL_MSG_WORKED:
		m->worked.mark = round;
		m->worked.compute = seldom_absurd(r, 1000);
		m->worked.wait = seldom_absurd(r, 1000);
		break;
	case FAL_MSG_EVALUATED:
		m->evaluated.version = w->evaluated;
		m->evaluated.task = fal_get_u8(r) % 4;
		m->evaluated.samples = m->evaluated.task == 2 ? 1 : 2;
		m->evaluated.right = fal_get_u8(r) % 4;
		m->evaluated.loss = (int64_t)seldom_absurd(r, 0);
		m->evaluated.task_ns = seldom_absurd(r, 0);
		break;
	case FAL_MSG_LEAVE:
		memcpy(m->leave.why, "so", 3);
		m->leave.cause = seldom_absurd(r, 0) != 0;
		break;
	case FAL_MSG_PONG:
		m->pong.stamp = seldom_absurd(r, 0);
		break;
	case FAL_MSG_CHECKED:
		m->checked.round = w->check[peer].round;
		m->checked.task = w->check[peer].task;
		m->checked.nonfinite = fal_get_u8(r) > 0xf0;
		break;
	}
}

/* Claims each task that it has of the round by a contribution of its own, and pushes what
 * it won. */
static void
do_round(struct world *w, uint32_t peer, uint64_t round)
{
	const struct round *of = &w->round[round % ROUNDS];
	for (uint32_t t = 0; t < TASKS && of->round == round; t++) {
		if ((of->held[peer] >> t & 1) == 0)
			continue;
		hold(w, peer, round, t, 1, false);
		const struct standin_task task = { round, of->version, t, w->fills[t],
						   of->kind };
		struct fal_buf records = { 0 };
		struct fal_msg_ticket ticket = { 0 };
		uint32_t before = w->wins, seq = w->next_seq++;
		struct fal_msg m = standin_claim(&task, seq, true);
		m.claim.task_ns = 0;
		deliver(w, peer, &m);
		if (w->wins == before)
			continue;
		racked_ticket(&w->tickets, peer, round, seq, &ticket);
		put_records(w, round, w->sums ? 4 : 0, NONE, &records);
		m = standin_push(&ticket, &records);
		m.push.epoch = w->epoch;
		deliver(w, peer, &m);
		fal_buf_free(&records);
	}
}

/* An honest worker does all that is left to be done. */
static void
do_all(struct world *w, uint32_t peer, uint8_t evals)
{
	uint64_t newest = w->newest, from = newest > 3 ? newest - 3 : 0;
	for (uint64_t round = from; round <= newest; round++)
		do_round(w, peer, round);
	for (uint32_t t = 0; t < 3; t++) {
		struct fal_msg m = standin_evaluated(w->evaluated, t, t == 2 ? 1 : 2);
		if ((evals >> t & 1) == 0)
			continue;
		m.evaluated.right = m.evaluated.samples;
		m.evaluated.task_ns = 0;
		deliver(w, peer, &m);
	}
}

/* What happens among the shards. */
static void
step_shards(struct world *w, uint8_t what, struct fal_rd *r)
{
	struct shards *s = &w->shards;
	struct fal_diag diag = { "" };
	const uint32_t shard = what & 3;
	switch (what >> 2 & 7) {
	case 0:
		s->late |= (uint64_t)1 << shard;
		break;
	case 1:
		s->late &= ~((uint64_t)1 << shard);
		heed(w, shards_catch_up(s, w->coord, w->now));
		break;
	case 2: {
		const struct fal_map to =
			shards_map(fal_get_u8(r), fal_shard_set_count(s->shard_set));
		const int err = fal_coord_move_blocks(w->coord, w->now, &to, "m", &diag);
		heed(w, err == FAL_ESTATE && diag.text[0] != '\0' ? FAL_OK : err);
		break;
	}
	case 3:
		heed(w, fal_coord_abort_move(w->coord, w->now));
		break;
	case 4: /* one that the coordinator does not know yet */
		heed(w, shards_lie(s, FAL_SHARDS_MAX - 4 + shard, r, w->coord, w->now));
		break;
	default:
		heed(w, shards_lie(s, shard, r, w->coord, w->now));
	}
}

static void
step(struct world *w, struct fal_rd *r, bool shards)
{
	uint8_t what = fal_get_u8(r);
	uint32_t peer = what & 3;
	struct fal_msg m = { 0 };
	struct fal_buf records = { 0 };
	if (shards && what & 128) {
		step_shards(w, what, r);
		return;
	}
	switch (what >> 2 & 7) {
	case 0: /* whatever the bytes say */
		if (fal_msg_get(r->p, r->n < 64 ? r->n : 64, &m) == FAL_OK)
			deliver(w, peer, &m);
		fal_get_bytes(r, r->n < 64 ? r->n : 64);
		break;
	case 1:
		w->left[peer] = true;
		heed(w, fal_coord_session_end(w->coord, w->now, peer + 1, "gone"));
		w->closed[peer] = true;
		break;
	case 2:
		w->now = fmax(w->now,
			      fmin(fal_coord_next_deadline(w->coord), w->now + 10));
		/* What a tick gets to know may make others late, of whom nothing is known
		 * by themselves: each once. */
		for (uint32_t i = 0; i <= PEERS; i++)
			if (i == 0 ||
			    (fal_coord_next_deadline(w->coord) <= w->now && !w->over))
				heed(w, fal_coord_tick(w->coord, w->now));
		must(fal_coord_next_deadline(w->coord) > w->now || w->over);
		work_honest(w);
		break;
	case 3:
		w->now += ldexp(fal_get_u8(r), -10);
		work_honest(w);
		break;
	case 4:
		do_all(w, peer, fal_get_u8(r));
		break;
	default:
		build(w, peer, r, &m, &records);
		deliver(w, peer, &m);
		fal_buf_free(&records);
	}
}

/* What must hold, whatever was said. */
static void
judge(struct world *w, bool from_start)
{
	w->shards.late = 0;
	if (!w->over)
		heed(w, shards_catch_up(&w->shards, w->coord, w->now));
	struct fal_coord_status s = fal_coord_status(w->coord);
	if (!from_start && !s.failed && !s.done && !w->over)
		join_honest(w);
	drive_honest(w);
	s = fal_coord_status(w->coord);
	if (w->shards.lied)
		return;
	must(!s.failed || w->two_keys || !from_start);
	const float *params = racked_params(&w->job);
	for (size_t i = 0; i < PARAMS; i++)
		must(isfinite(params[i]));
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_rd r = fal_rd_init(p, n);
	struct world w = { 0 };
	const struct fal_msg ready = { .type = FAL_MSG_READY };
	uint8_t variant = fal_get_u8(&r);
	const uint8_t rule = fal_get_u8(&r);
	const bool shards = (variant & 128) != 0;
	begin(&w, variant, rule, shards ? fal_get_u8(&r) : 0);
	for (uint32_t peer = 0; peer < PEERS; peer++)
		open_session(&w, peer);
	for (uint32_t peer = 0; peer < 2; peer++) {
		struct fal_msg hello = standin_hello("w", (uint8_t)peer);
		hello.hello.lanes_max = hello.hello.cores = 2;
		deliver(&w, peer, &hello);
		deliver(&w, peer, &ready);
	}
	if (variant & 64)
		join_honest(&w);
	while (r.n > 0 && r.err == 0 && !w.over)
		step(&w, &r, shards);
	judge(&w, (variant & 64) != 0);
	racked_finish(&w.job, w.now, NULL);
	honest_free(&w.honest);
	racked_free(&w.job);
	fal_shard_result_free(&w.shards.waits);
	return 0;
}
