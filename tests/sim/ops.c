/* The coordinator's ops: what it and its shards say, and what is to be seen of that. */
#include "../model_msg.h"
#include "base/branch.h"
#include "cluster_priv.h"
#include "flips.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void
to_worker(struct cluster *c, uint32_t peer, const struct fal_buf *msg, bool bulk)
{
	struct worker *w = &c->worker[peer - 1];
	if (w->dead)
		return;
	struct event e = { .kind = TO_WORKER,
			   .worker = peer - 1,
			   .session = c->incarnation,
			   .msg = cluster_copy(msg) };
	e.t = cluster_arrival(c, w->m, msg->n, bulk ? &w->down_bulk : &w->down_ctl,
			      bulk ? w->down_ctl : 0);
	cluster_push(c, e);
}

/* What the coordinator says is worth remembering. */
static void
note_said(struct cluster *c, uint32_t peer, const struct fal_buf *msg)
{
	struct fal_msg m;
	int err = fal_msg_get(msg->p, msg->n, &m);
	assert(err == FAL_OK);
	c->seen[SEEN_TWO_RUNS] +=
		m.type == FAL_MSG_GRANT && m.grant.seq != 0 && m.grant.of > m.grant.count;
	if (m.type == FAL_MSG_GRANT && m.grant.kind == FAL_KIND_CHECK)
		flips_asked(c, peer, &m);
	c->seen[SEEN_EARLY_FILL] +=
		m.type == FAL_MSG_GRANT && m.grant.fills_worker != 0 && early_any(c);
	if (m.type != FAL_MSG_FENCE)
		return;
	err = FAL_GROW(c->fences.v, c->fences.cap, c->fences.n + 1);
	assert(err == FAL_OK);
	c->fences.v[c->fences.n++] = (struct fenced){ m.fence.round, peer, m.fence.seq };
	c->seen[SEEN_EARLY_FENCE] += early_any(c);
	c->seen[m.fence.seq >= FAL_PRECLAIMED ? SEEN_PRECLAIMED_FENCE : SEEN_FENCE]++;
}

static int
shards_order(void *arg, const struct fal_shard_order *o, struct fal_shard_result *r)
{
	struct cluster *c = arg;
	size_t kept = 0;
	struct fal_shard_order own = *o;
	intime_order(c, o);
	made_order(c, o);
	if (o->kind == FAL_ORDER_MIGRATE_BEGIN &&
	    early_any(c)) /* it leaves by the map it began by */
		ops_publish(c);
	assert(c->p->apart || o->kind != FAL_ORDER_COMMIT || !early_any(c));
	for (size_t i = 0; i < c->fences.n; i++)
		if (o->kind != FAL_ORDER_END || c->fences.v[i].round != o->round)
			c->fences.v[kept++] = c->fences.v[i];
	c->fences.n = kept;
	int err = c->group != NULL ? fal_group_order(c->group, &own) : FAL_OK;
	if (err == FAL_OK && c->p->apart)
		return fleet_order(c, o);
	return err == FAL_OK ? fal_shard_set_order(c->shards.shard_set, &own, r) : err;
}

static int
shards_push(void *arg, uint32_t session, const struct fal_msg *m,
	    struct fal_shard_result *r, struct fal_diag *diag)
{
	struct cluster *c = arg;
	const size_t before = r->n;
	const int err = fal_shard_set_push_msg(c->shards.shard_set, session, m, r, diag);
	for (size_t i = before; i < r->n; i++)
		intime_say(c, &r->v[i]);
	return err;
}

static void
shards_served(void *arg, uint32_t shard, struct fal_coord_shard_stats *out)
{
	const struct cluster *c = arg;
	/* One that is elsewhere may not have heard yet of what holds. */
	if (c->p->apart)
		out->blocks = c->map.of[shard].count;
	else
		racked_served(c->shards.shard_set, shard, out);
}

/* Is the contribution among these? */
static bool
is_among(const struct fenced *v, size_t n, uint32_t peer, const struct fal_msg_ticket *t)
{
	while (n > 0 && (v[n - 1].peer != peer || v[n - 1].round != t->round ||
			 v[n - 1].seq != t->seq))
		n--;
	return n > 0;
}

void
ops_heard(struct cluster *c, uint32_t peer, const struct fal_msg *m)
{
	const bool ahead = m->type == FAL_MSG_CLAIM && m->claim.seq >= FAL_PRECLAIMED;
	c->seen[SEEN_PRECLAIMED] += ahead;
	c->seen[SEEN_FIRM] +=
		ahead &&
		fal_rule_traits(&fal_coord_policy_in_force(c->coord)->rule).moves;
	if (m->type != FAL_MSG_PUSH)
		return;
	c->seen[SEEN_LATE_PUSH] +=
		is_among(c->fences.v, c->fences.n, peer, &m->push.ticket);
}

static void
coord_send(void *arg, uint32_t peer, const struct fal_buf *msg)
{
	note_said(arg, peer, msg);
	to_worker(arg, peer, msg, false);
}

/* When n bytes have left by the line of shard i, which takes one after the other. */
static double
by_line(struct cluster *c, uint32_t i, size_t n)
{
	const struct plan *p = c->p;
	struct link *l = &c->link[i];
	const bool slow = i == p->slow && p->slower > 0 && c->now >= p->slow_at;
	l->free_at = fmax(l->free_at, c->now) +
		     (double)n * p->line[i] * (slow ? p->slower : 1);
	return l->free_at;
}

/* A message of shard i, in order behind its others: before or after what the coordinator
 * says. */
static void
from_shard(struct cluster *c, uint32_t i, const struct wanted *to,
	   const struct fal_buf *msg)
{
	struct worker *w = &c->worker[to->peer - 1];
	struct event e = { .kind = TO_WORKER,
			   .worker = to->peer - 1,
			   .session = c->incarnation,
			   .lane = i,
			   .seq = to->order };
	struct machine link = *w->m;
	if (w->dead)
		return;
	link.latency = c->p->way[w->index][i];
	e.msg = cluster_copy(msg);
	e.t = cluster_arrival(c, &link, msg->n, &w->model[i], 0);
	if (c->p->line[i] > 0)
		e.t = w->model[i] = fmax(e.t, by_line(c, i, msg->n) + link.latency);
	cluster_push(c, e);
}

/* As a shard sends it: what the coordinator says is before it where both are here. */
static void
leave(struct cluster *c, uint32_t shard, const struct wanted *to,
      const struct fal_buf *msg, bool bulk)
{
	if (c->p->apart)
		from_shard(c, shard, to, msg);
	else
		to_worker(c, to->peer, msg, bulk);
}

void
ops_published(struct cluster *c, const struct fal_shard_part *part,
	      const struct wanted *to)
{
	struct fal_msg m = { .type = FAL_MSG_PUBLISHED };
	struct fal_buf out = { 0 };
	made_part(c, part, to->version);
	m.published.version = to->version;
	m.published.order = to->order;
	m.published.shard = part->shard + 1;
	m.published.first = part->first;
	m.published.blocks = part->count;
	m.published.publication = ++c->publication;
	fal_msg_put(&out, &m);
	leave(c, part->shard, to, &out, false);
	fal_buf_free(&out);
}

void
ops_model(struct cluster *c, const struct fal_shard_part *part, const struct wanted *to,
	  uint32_t b, uint32_t blocks)
{
	const size_t from = (size_t)b * FAL_BLOCK;
	const struct fal_model_part of = {
		to->version,         part->first + b,     blocks,
		part->params + from, part->values - from, part->exps + b
	};
	struct fal_buf out = { 0 };
	put_model_msg(&out, 0, &of);
	leave(c, part->shard, to, &out, true);
	fal_buf_free(&out);
}

void
ops_refused(struct cluster *c, uint32_t worker, const char *why)
{
	fprintf(stderr, "sim: a shard refuses w%u: %s\n", worker, why);
	c->failure = "a shard refuses an honest worker";
}

static void
note_told(struct cluster *c, struct worker *w, const struct fal_coord_publication *model)
{
	int err = FAL_GROW(w->told.v, w->told.cap, w->told.n + 1);
	assert(err == FAL_OK && model->order == w->told.n + 1);
	w->told.v[w->told.n++] = (struct told){ model->version, fal_blocks(c->p->toy.n) };
}

/* Is it left out of the worker's queue, or forgotten by it, when that is told of another
 * one? */
static bool
is_over(const struct fal_coord_publication *told, uint64_t version)
{
	bool named = version >= told->from;
	for (uint32_t i = 0; i < told->names && !named; i++)
		named = told->named[i] == version;
	return !named || version < told->oldest;
}

/* Nobody is told once more of what it has, or is to get, but to keep that.  Who was on a
 * line may have none of these, until it is told of one not only to keep that. */
static void
note_has(struct cluster *c, struct worker *w, const struct fal_coord_publication *told)
{
	size_t n = 0;
	int err = FAL_GROW(w->has.v, w->has.cap, w->has.n + 1);
	assert(err == FAL_OK);
	if (told->order == 1 || fal_branch_of(told->version) != 0)
		w->has.n = 0;
	if (told->order == 1)
		w->lined = false;
	for (size_t i = 0; i < w->has.n; i++) {
		if (w->has.v[i] == told->version && !told->keep && !w->lined &&
		    c->failure == NULL)
			c->failure = "a worker is told once more of what it has";
		if (!is_over(told, w->has.v[i]))
			w->has.v[n++] = w->has.v[i];
	}
	if (!told->keep || fal_branch_of(told->version) != 0)
		w->lined = fal_branch_of(told->version) != 0;
	if (told->version >= told->oldest) /* else it is to evaluate, and no more */
		w->has.v[n++] = told->version;
	w->has.n = n;
}

static void
coord_model(void *arg, uint32_t peer, const struct fal_coord_publication *model)
{
	struct cluster *c = arg;
	const struct wanted w = { peer, model->order, model->version };
	struct worker *to = &c->worker[peer - 1];
	note_has(c, to, model);
	if (c->p->apart) {
		note_told(c, to, model);
		fleet_want(c, &w);
		return;
	}
	int err = FAL_GROW(c->waits.v, c->waits.cap, c->waits.n + 1);
	assert(err == FAL_OK);
	c->waits.v[c->waits.n++] = w;
}

/* Have shards newer ones, and forgotten this one?  Then nobody gets it any more. */
static bool
is_gone(const struct cluster *c, uint64_t version)
{
	bool newer = fal_branch_of(version) == 0 &&
		     fal_shard_set_params(c->shards.shard_set, version) == NULL;
	for (uint32_t i = 0; i < fal_shard_set_count(c->shards.shard_set); i++) {
		const struct fal_shard *s = fal_shard_set_shard(c->shards.shard_set, i);
		newer &= s == NULL || fal_shard_version(s) > version;
	}
	return newer;
}

void
ops_publish(struct cluster *c)
{
	struct fal_shard_part part;
	size_t kept = 0;
	for (size_t k = 0; k < c->waits.n; k++) {
		const struct wanted w = c->waits.v[k];
		if (is_gone(c, w.version)) {
			early_drop(c, &w);
			continue;
		}
		if (fal_shard_set_params(c->shards.shard_set, w.version) == NULL) {
			for (uint32_t i = 0; i < fal_shard_set_count(c->shards.shard_set);
			     i++)
				early_some(c, i, &w);
			c->waits.v[kept++] = w;
			continue;
		}
		for (uint32_t i = 0; i < fal_shard_set_count(c->shards.shard_set); i++) {
			const bool is = fal_shard_set_part(c->shards.shard_set, i,
							   w.version, &part);
			assert(is || part.count == 0);
			if (is)
				early_rest(c, &part, &w);
		}
	}
	c->waits.n = kept;
}

/* Does nobody of its key do wrong? */
static bool
is_honest(const struct plan *p, uint32_t machine)
{
	bool honest = !plan_flips(p, machine);
	for (uint32_t i = 0; i < p->machines; i++)
		if (plan_owner(p, i) == plan_owner(p, machine))
			honest = honest && !machine_lies(&p->machine[i]) &&
				 !p->machine[i].flaky;
	return honest;
}

static void
coord_close(void *arg, uint32_t peer, const char *why)
{
	struct cluster *c = arg;
	struct worker *w = &c->worker[peer - 1];
	const bool honest = is_honest(c->p, w->index);
	if (honest && !w->dead && c->failure == NULL) {
		fprintf(stderr, "sim: w%u is evicted: %s\n", w->index, why);
		c->failure = "an honest worker is evicted";
	}
	c->root->refused += machine_lies(w->m);
	w->over = true;
	cluster_kill(w);
}

static void
coord_trace(void *arg, const char *line, size_t n)
{
	struct cluster *c = arg;
	if (!c->goes_on) {
		fal_put_bytes(&c->trace, line, n);
		fal_put_u8(&c->trace, '\n');
		c->lines++;
	}
	c->goes_on = false;
}

void
ops_begin(struct cluster *c, const struct disk_found *from,
	  const struct fal_coord_trace *before)
{
	/* That of the job, which is to be compared. */
	static const char hash[] = "0000000000000000000000000000000000000000000000000000"
				   "000000000000";
	const struct plan *p = c->p;
	struct fal_policy policy = { 0 };
	struct fal_coord_upstream above;
	struct fal_coord_ops ops = { .arg = c,
				     .shards = { c, shards_order, shards_push,
						 shards_served },
				     .send = coord_send,
				     .model = coord_model,
				     .close = coord_close,
				     .unlike = flips_unlike,
				     .trace = coord_trace,
				     .journal = restart_journal,
				     .marked = restart_marked,
				     .moved = moves_moved };
	struct fal_coord_conf conf = { .name = "sim",
				       .hash = p->levels ? hash : "00",
				       .policy = &policy,
				       .policy_by = "job",
				       .seed = p->toy.seed,
				       .entropy = p->entropy,
				       .grid = plan_grid(p),
				       .test_samples = p->test_samples,
				       .eval_every = p->eval_every,
				       .params = p->toy.n,
				       .optim = p->toy.optim,
				       .shards = p->shards,
				       .psld = p->psld,
				       .audit_sums = p->audit_sums,
				       .hashes = p->hashes,
				       .task_hashes = true,
				       .verify = p->verify,
				       .skips = p->toy.odd > 0,
				       .lanes_start = p->lanes_start,
				       .preclaims = p->preclaims,
				       .min_workers = p->min_workers };
	cluster_ok(c, fal_rule_parse(p->scheme, &policy.rule, NULL), "scheme");
	conf.schedule.lr = (double)p->toy.lr;
	conf.tickets.incarnation = c->incarnation;
	if (!from->there && from->changes > 0) {
		conf.policy = &from->change[from->changes - 1].policy;
		conf.policy_by = from->change[from->changes - 1].by;
	} else if (from->there) {
		conf.policy = &from->is.policy;
		conf.policy_by = from->is.past.by;
		conf.past = &from->is.past;
		conf.before = *before;
		/* Where links say nothing else they may be cut otherwise. */
		conf.shards = p->apart ? p->shards : 1 + fal_rng_below(&c->fate, 4);
	}
	if (c->group != NULL)
		levels_conf(c, &above, &conf, &ops);
	float *init = fal_calloc_aligned(p->toy.n, sizeof(*init));
	assert(init != NULL);
	toy_init(&p->toy, init);
	int err = racked_shards(&conf, p->toy.bits, init, &c->shards);
	assert(err == FAL_OK);
	free(init);
	if (from->there)
		cluster_ok(c, disk_load(from, c->shards.shard_set),
			   "shards become what a snapshot says");
	c->goes_on = from->there;
	fal_map_even(&c->map, fal_blocks(p->toy.n),
		     fal_shard_set_count(c->shards.shard_set));
	conf.map = &c->map;
	err = racked_coord(conf, ops, c->now, &c->shards);
	assert(err == FAL_OK);
	c->coord = c->shards.coord;
	/* Workers of many keys: what falcon-ps says then. */
	fal_coord_set_trainer_wait(c->coord, 300, 2);
}
