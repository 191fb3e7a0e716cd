/* The links between the coordinator and shards that are elsewhere, and the ways of pushes
 * to them, which are others. */
#include "cluster_priv.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double
later(struct cluster *c, double latency, double *last)
{
	const double t = c->now + latency * (0.5 + (double)fal_rng_unit(&c->far));
	*last = fmax(t, *last);
	return *last;
}

/* ---- a link ------------------------------------------------------------------------ */

static void
free_packet(struct packet *p)
{
	free(p->map);
	fal_image_free(&p->piece.image);
	fal_shard_report_free(&p->say);
}

/* The packet that is number `seq` of its way leaves, unless the link is down: then it
 * does when it comes back. */
static void
transmit(struct cluster *c, uint32_t i, enum kind kind, uint64_t seq)
{
	struct link *l = &c->link[i];
	const bool to = kind == AT_SHARD;
	struct event e = { .kind = kind,
			   .lane = i,
			   .run = l->epoch,
			   .seq = seq,
			   .ack = to ? l->from.got : l->to.got };
	if (l->down)
		return;
	e.t = later(c, c->p->place[i].latency, to ? &l->to.last : &l->from.last);
	cluster_push(c, e);
}

static void
enqueue(struct cluster *c, uint32_t i, enum kind kind, const struct packet *p)
{
	struct link *l = &c->link[i];
	struct way *w = kind == AT_SHARD ? &l->to : &l->from;
	int err = FAL_GROW(w->packets.v, w->packets.cap, w->packets.n + 1);
	assert(err == FAL_OK);
	w->packets.v[w->packets.n++] = *p;
	transmit(c, i, kind, w->acked + w->packets.n - 1);
}

/* The other end has the packets before number `ack`. */
static void
acknowledge(struct way *w, uint64_t ack)
{
	const size_t n = ack > w->acked ? (size_t)(ack - w->acked) : 0;
	for (size_t i = 0; i < n; i++)
		free_packet(&w->packets.v[i]);
	if (n > 0)
		memmove(w->packets.v, w->packets.v + n,
			(w->packets.n -= n) * sizeof(*w->packets.v));
	w->acked += n;
}

/* The packet of an event that has arrived, once; NULL: it was lost, or came before. */
static struct packet *
receive(struct cluster *c, const struct event *e)
{
	struct link *l = &c->link[e->lane];
	struct way *w = e->kind == AT_SHARD ? &l->to : &l->from;
	if (e->run != l->epoch)
		return NULL;
	acknowledge(e->kind == AT_SHARD ? &l->from : &l->to, e->ack);
	c->seen[SEEN_TWICE] += e->seq < w->got;
	if (e->seq < w->got)
		return NULL;
	assert(e->seq == w->got);
	w->got++;
	return &w->packets.v[e->seq - w->acked];
}

static void
lose(struct cluster *c, uint32_t i)
{
	struct link *l = &c->link[i];
	const struct place *p = &c->p->place[i];
	struct event e = { .kind = LINK_BACK, .lane = i, .t = c->now + p->lost_s };
	c->seen[SEEN_LINK_LOST] += l->to.acked + l->to.packets.n > l->to.got;
	l->down = true;
	l->epoch++;
	e.run = l->epoch;
	cluster_push(c, e);
}

/* The shard is no more, with all that was on its way to it and from it; the others do not
 * know, and go on until the coordinator does. */
static void
die(struct cluster *c, uint32_t i)
{
	struct link *l = &c->link[i];
	bool pushes = false;
	if (l->gone)
		return;
	for (size_t k = 0; k < c->n; k++)
		pushes |= c->heap[k].kind == PUSHED && c->heap[k].lane != i;
	c->seen[SEEN_SHARD_DIED] += pushes;
	l->down = l->gone = true;
	l->epoch++;
	cluster_push(c, (struct event){ .kind = RESTART,
					.lane = i,
					.session = c->incarnation + 1,
					.t = c->now + c->p->place[i].known_s });
}

/* Each end sends again what it does not know to have arrived. */
static void
come_back(struct cluster *c, uint32_t i)
{
	struct link *l = &c->link[i];
	l->down = false;
	for (size_t k = 0; k < l->to.packets.n; k++)
		transmit(c, i, AT_SHARD, l->to.acked + k);
	for (size_t k = 0; k < l->from.packets.n; k++)
		transmit(c, i, AT_COORD, l->from.acked + k);
}

/* ---- at the shard ------------------------------------------------------------------ */

static void *
copy_of(const void *p, size_t n, size_t size)
{
	void *to = p != NULL ? fal_calloc(n, size) : NULL;
	assert(p == NULL || to != NULL);
	if (p != NULL && n > 0)
		memcpy(to, p, n * size);
	return to;
}

/* Notes what comes of a push or an order. */
static void
note_say(struct cluster *c, uint32_t i, const struct fal_shard_report *s)
{
	if (s->kind != FAL_REPORT_STEPPED)
		return;
	c->link[i].version = s->version;
	c->seen[SEEN_APART] += fleet_apart(c);
}

/* What it has to say leaves, with its arrays. */
static void
speak(struct cluster *c, uint32_t i, struct fal_shard_result *r)
{
	for (size_t k = 0; k < r->n; k++) {
		const struct packet p = { .say = r->v[k] };
		note_say(c, i, &p.say);
		intime_say(c, &p.say);
		enqueue(c, i, AT_COORD, &p);
	}
	free(r->v);
	*r = (struct fal_shard_result){ 0 };
}

/* What is asked for and there leaves. */
static void
publish(struct cluster *c, uint32_t i)
{
	struct link *l = &c->link[i];
	struct fal_shard_part part;
	size_t kept = 0;
	for (size_t k = 0; k < l->waits.n; k++) {
		const struct wanted w = l->waits.v[k];
		if (fal_shard_set_part(c->shards.shard_set, i, w.version, &part))
			early_rest(c, &part, &w);
		else
			l->waits.v[kept++] = w;
	}
	l->waits.n = kept;
	for (size_t k = 0; k < l->waits.n; k++)
		early_some(c, i, &l->waits.v[k]);
}

/* Notes what the order meets. */
static void
note_order(struct cluster *c, uint32_t i, const struct fal_shard_order *o)
{
	struct link *l = &c->link[i];
	if (o->kind == FAL_ORDER_OPEN)
		l->opened = o->round + 1;
	if (o->kind == FAL_ORDER_MIGRATE_BEGIN) {
		if (o->map->epoch <= l->told && c->failure == NULL)
			c->failure = "a move has the epoch of one that never was";
		l->told = o->map->epoch;
	}
	for (size_t k = 0; k < c->ordered.n && o->kind == FAL_ORDER_FENCE; k++)
		if (c->ordered.v[k].round == o->round &&
		    fal_contrib_id_equal(c->ordered.v[k].id, o->id))
			c->ordered.v[k].shards |= 1u << i;
}

static void
give_to(struct cluster *c, uint32_t i, uint32_t to, struct fal_shard_result *r)
{
	struct fal_shard_set_piece piece = { 0 };
	int got;
	while ((got = fal_shard_set_piece(c->shards.shard_set, i, to, c->p->piece,
					  &piece)) > 0) {
		struct packet p = { .to = to, .piece = piece };
		const struct fal_image_head *is = &piece.image.is;
		p.piece.image = (struct fal_image){ 0 };
		if (to == i) {
			cluster_ok(c,
				   fal_shard_set_graft(c->shards.shard_set, i, &piece, r),
				   "its own piece");
		} else {
			cluster_ok(c, fal_image_copy(&p.piece.image, &piece.image),
				   "a copy");
			c->seen[SEEN_PLACED_LINES] += is->lines > 0;
			c->seen[SEEN_PLACED_SLOTS] += is->slots > 0;
			c->seen[SEEN_PLACED_HELD] += is->holds;
			c->seen[SEEN_PLACED_OLDS] += is->olds > 0;
			enqueue(c, i, AT_COORD, &p);
		}
		fal_image_free(&piece.image);
	}
	cluster_ok(c, got, "a piece");
}

/* What others will have leaves for them; what it keeps, it has. */
static void
give(struct cluster *c, uint32_t i, const struct fal_map *map, struct fal_shard_result *r)
{
	for (uint32_t to = 0; to < map->shards; to++)
		give_to(c, i, to, r);
}

/* It has what it will have, and that alone. */
static void
taken(struct cluster *c, uint32_t i)
{
	struct link *l = &c->link[i];
	const struct fal_shard *shard = fal_shard_set_shard(c->shards.shard_set, i);
	l->waits.n = 0;
	l->map = c->placed;
	if (shard != NULL)
		l->version = fal_shard_version(shard);
}

/* It cannot have what it should by the map, and says so. */
static bool
refuses(struct cluster *c, uint32_t i, const struct fal_map *map)
{
	const struct packet p = { .say = { .kind = FAL_REPORT_MIGRATED,
					   .shard = i,
					   .version = map->epoch,
					   .err = FAL_ELIMIT } };
	const uint64_t seed = c->p->toy.seed + 64 * map->epoch + i;
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 26);
	if ((double)fal_rng_unit(&r) >= c->p->refuses)
		return false;
	c->seen[SEEN_PLACED_REFUSED]++;
	enqueue(c, i, AT_COORD, &p);
	return true;
}

/* It has heard an order. */
static void
obey(struct cluster *c, uint32_t i, const struct fal_shard_order *o,
     struct fal_shard_result *r)
{
	note_order(c, i, o);
	if (o->kind == FAL_ORDER_MIGRATE_BEGIN && refuses(c, i, o->map))
		return;
	cluster_ok(c, fal_shard_set_order_one(c->shards.shard_set, i, o, r), "an order");
	if (o->kind == FAL_ORDER_MIGRATE_BEGIN)
		give(c, i, o->map, r);
	if (o->kind == FAL_ORDER_COMMIT)
		taken(c, i);
}

static void
at_shard(struct cluster *c, const struct event *e)
{
	const struct packet *p = receive(c, e);
	struct link *l = &c->link[e->lane];
	struct fal_shard_result r = { 0 };
	if (p == NULL)
		return;
	if (p->wanted.version != 0 || p->wanted.peer != 0) {
		int err = FAL_GROW(l->waits.v, l->waits.cap, l->waits.n + 1);
		assert(err == FAL_OK);
		l->waits.v[l->waits.n] = p->wanted;
		l->waits.n += fal_shard_set_shard(c->shards.shard_set, e->lane) != NULL;
	} else if (p->piece.count > 0) {
		cluster_ok(c,
			   fal_shard_set_graft(c->shards.shard_set, e->lane, &p->piece,
					       &r),
			   "a piece");
	} else {
		obey(c, e->lane, &p->order, &r);
	}
	speak(c, e->lane, &r);
	publish(c, e->lane);
}

/* A push that is refused ends the worker's session, when the coordinator hears of it. */
static void
pushed(struct cluster *c, const struct event *e)
{
	static const char why[] = "a shard refuses its push";
	const struct fal_ticket *t = &e->push->ticket;
	struct fal_diag diag = { "" };
	struct fal_shard_result r = { 0 };
	struct fal_msg m;
	int err = fal_msg_get(e->push->msg.p, e->push->msg.n, &m);
	assert(err == FAL_OK);
	c->seen[SEEN_EARLY_PUSH] += t->round >= c->link[e->lane].opened;
	for (size_t k = 0; k < c->ordered.n; k++) {
		const struct ordered *o = &c->ordered.v[k];
		const bool has = (o->shards >> e->lane & 1) != 0;
		if (o->round == t->round && fal_contrib_id_equal(o->id, t->id))
			c->seen[has ? SEEN_LATE_PUSH : SEEN_FENCE_AFTER_PUSH]++;
	}
	const uint64_t version = c->link[e->lane].version;
	const struct fal_map *now = &c->map;
	const struct fal_extent *has = &now->of[e->lane];
	if (t->epoch == now->epoch)
		intime_push(c, e->worker, &m, has->first, has->count);
	c->seen[SEEN_PLACED_LATE] += t->epoch < now->epoch;
	err = fal_shard_set_push_one(c->shards.shard_set, e->lane, t, &m.push.records, &r,
				     &diag);
	const bool said = r.n > 0;
	speak(c, e->lane, &r);
	intime_pushed(c);
	c->seen[SEEN_PLACED_EARLY] += t->epoch > 1 && t->epoch > c->link[e->lane].map;
	if (said && t->epoch < c->link[e->lane].map && c->failure == NULL)
		c->failure = "what was pushed by a map of before counts";
	c->seen[SEEN_MADE_AHEAD] += c->link[e->lane].version > version;
	publish(c, e->lane);
	if (err == FAL_OK)
		return;
	const struct packet p = { .say = { .kind = FAL_REPORT_REFUSED,
					   .shard = e->lane,
					   .id = t->id,
					   .odd = why,
					   .err = err } };
	if (c->worker[e->worker].m->lie == HONEST && c->failure == NULL)
		ops_refused(c, e->worker, diag.text);
	enqueue(c, e->lane, AT_COORD, &p);
}

void
fleet_unpush(struct event *e)
{
	if (e->push == NULL || --e->push->refs > 0)
		return;
	fal_buf_free(&e->push->msg);
	free(e->push);
}

/* What is fenced stays as it is. */
static void
hold_to_fences(struct cluster *c, const struct fal_shard_report *say)
{
	if (say->kind == FAL_REPORT_FENCED) {
		int err = FAL_GROW(c->shut.v, c->shut.cap, c->shut.n + 1);
		assert(err == FAL_OK);
		c->shut.v[c->shut.n++] = (struct shut){ say->round, say->id, say->shard };
		c->seen[SEEN_FENCED]++;
	}
	if (say->kind != FAL_REPORT_ARRIVED || say->blocks == 0 || c->failure != NULL)
		return;
	for (size_t i = 0; i < c->shut.n; i++) {
		const struct shut *s = &c->shut.v[i];
		if (s->round == say->round && s->shard == say->shard &&
		    fal_contrib_id_equal(s->id, say->id))
			c->failure = "what came of a fenced contribution counts";
	}
}

static void
at_coord(struct cluster *c, const struct event *e)
{
	struct packet *p = receive(c, e);
	if (p == NULL)
		return;
	if (p->piece.count > 0) { /* to be passed on */
		enqueue(c, p->to, AT_SHARD, p);
		*p = (struct packet){ .map = NULL };
		return;
	}
	hold_to_fences(c, &p->say);
	cluster_ok(c,
		   fal_coord_take_result(c->coord, c->now,
					 &(struct fal_shard_result){ &p->say, 1, 1 }),
		   "heard");
}

/* ---- what the rest of the cluster calls -------------------------------------------- */

bool
fleet_apart(const struct cluster *c)
{
	for (uint32_t i = 1; i < c->p->most; i++)
		if (c->link[i].version != c->link[0].version)
			return true;
	return false;
}

bool
fleet_stalls(struct cluster *c, struct event *e)
{
	if (e->kind != AT_SHARD && e->kind != PUSHED)
		return false;
	const struct place *p = &c->p->place[e->lane];
	if (c->now < p->stall_at || c->now >= p->stall_at + p->stall_s)
		return false;
	e->t = p->stall_at + p->stall_s;
	c->seen[SEEN_STALL]++;
	cluster_push(c, *e);
	return true;
}

void
fleet_handle(struct cluster *c, struct event *e)
{
	struct link *l = &c->link[e->lane];
	switch (e->kind) {
	case AT_SHARD:
		at_shard(c, e);
		break;
	case AT_COORD:
		at_coord(c, e);
		break;
	case PUSHED:
		if (!l->gone)
			pushed(c, e);
		break;
	case SHARD_DIES:
		die(c, e->lane);
		break;
	case LINK_LOST:
		if (!l->gone)
			lose(c, e->lane);
		break;
	default: /* LINK_BACK */
		if (e->run == l->epoch)
			come_back(c, e->lane);
	}
}

/* Has a shard gone on from the version, and no worker that is here kept it? */
static bool
overwritten(const struct cluster *c, uint64_t version)
{
	bool any = false;
	for (uint32_t i = 0; i < c->p->most; i++)
		any |= c->link[i].version > version;
	for (uint32_t i = 0; i < c->p->machines; i++)
		any &= !c->worker[i].here || c->worker[i].oldest > version;
	return any;
}

int
fleet_order(void *arg, const struct fal_shard_order *o)
{
	struct cluster *c = arg;
	size_t kept = 0;
	for (size_t i = 0; i < c->ordered.n; i++)
		if (o->kind != FAL_ORDER_END || c->ordered.v[i].round != o->round)
			c->ordered.v[kept++] = c->ordered.v[i];
	c->ordered.n = kept;
	if (o->kind == FAL_ORDER_OPEN)
		c->reads[o->round % 64] = o->facts.version;
	c->seen[SEEN_AHEAD] += o->kind == FAL_ORDER_END && o->ahead;
	if (o->kind == FAL_ORDER_FENCE) {
		c->seen[SEEN_OVERWRITTEN] += overwritten(c, c->reads[o->round % 64]);
		int err = FAL_GROW(c->ordered.v, c->ordered.cap, c->ordered.n + 1);
		assert(err == FAL_OK);
		c->ordered.v[c->ordered.n++] = (struct ordered){ o->round, o->id, 0 };
	}
	for (uint32_t i = 0; i < c->p->most; i++) {
		struct packet p = { .order = *o };
		p.map = copy_of(o->map, 1, sizeof(*o->map));
		p.order.map = p.map;
		enqueue(c, i, AT_SHARD, &p);
	}
	return FAL_OK;
}

void
fleet_push(struct cluster *c, uint32_t from, uint32_t shard, const struct fal_buf *msg)
{
	struct pushed *push = fal_calloc(1, sizeof(*push));
	struct fal_diag diag;
	struct fal_msg m;
	int err = fal_msg_get(msg->p, msg->n, &m);
	assert(push != NULL && err == FAL_OK);
	cluster_ok(c,
		   fal_shard_set_ticket(c->shards.shard_set, from + 1, &m, &push->ticket,
					&diag),
		   "a push without a ticket");
	push->refs = 1;
	push->msg = cluster_copy(msg);
	struct event e = { .kind = PUSHED,
			   .worker = from,
			   .session = c->incarnation,
			   .lane = shard,
			   .push = push };
	e.t = later(c, c->p->way[from][shard], &c->worker[from].way[shard]);
	cluster_push(c, e);
}

void
fleet_want(struct cluster *c, const struct wanted *w)
{
	const struct packet p = { .wanted = *w };
	for (uint32_t i = 0; i < c->p->most; i++)
		enqueue(c, i, AT_SHARD, &p);
}

void
fleet_begin(struct cluster *c)
{
	c->far = fal_rng_init(c->p->toy.seed, FAL_RNG_TEST, 7);
	for (uint32_t i = 0; i < c->p->most; i++) {
		const struct place *p = &c->p->place[i];
		if (p->lost_at < INFINITY)
			cluster_push(c, (struct event){ .kind = LINK_LOST,
							.lane = i,
							.t = p->lost_at });
		if (p->dies_at < INFINITY)
			cluster_push(c, (struct event){ .kind = SHARD_DIES,
							.lane = i,
							.t = p->dies_at });
	}
}

static bool
moves_blocks(const struct fal_shard_order *o)
{
	return o->kind == FAL_ORDER_MIGRATE_BEGIN || o->kind == FAL_ORDER_COMMIT ||
	       o->kind == FAL_ORDER_ABORT;
}

void
fleet_take(struct cluster *c)
{
	struct fal_shard_result unheard = { 0 };
	for (uint32_t i = 0; i < c->p->most; i++) {
		struct way *w = &c->link[i].to;
		for (size_t k = (size_t)(w->got - w->acked); k < w->packets.n; k++)
			if (moves_blocks(&w->packets.v[k].order))
				cluster_ok(c,
					   fal_shard_set_order_one(c->shards.shard_set, i,
								   &w->packets.v[k].order,
								   &unheard),
					   "an order");
	}
	fal_shard_result_free(&unheard);
}

static void
free_way(struct way *w)
{
	acknowledge(w, w->acked + w->packets.n);
	free(w->packets.v);
}

void
fleet_restart(struct cluster *c)
{
	c->ordered.n = 0;
	for (uint32_t i = 0; i < MAX_SHARDS; i++) {
		struct link *l = &c->link[i];
		free_way(&l->to);
		free_way(&l->from);
		free(l->waits.v);
		*l = (struct link){ .epoch = l->epoch + 1 };
	}
}

void
fleet_end(struct cluster *c)
{
	for (uint32_t i = 0; i < MAX_SHARDS; i++) {
		free_way(&c->link[i].to);
		free_way(&c->link[i].from);
		free(c->link[i].waits.v);
	}
	free(c->ordered.v);
}
