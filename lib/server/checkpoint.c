/* The state that outlives a coordinator, and how a restarted coordinator goes on from
 * that state. */
#include "server/coord_priv.h"

#include "base/mem.h"
#include "base/parse.h"

#include <stdlib.h>
#include <string.h>

/* A copy of n elements, which may be 0. */
static void *
copy_of(const void *from, uint32_t n, size_t size)
{
	void *to = fal_xcalloc(n, size);
	return n > 0 ? memcpy(to, from, n * size) : to;
}

void
fal_coord_past_copy(const struct fal_coord_past *from, struct fal_coord_past *out)
{
	*out = *from;
	out->policy = NULL;
	out->key = copy_of(from->key, from->keys, sizeof(*out->key));
	out->worker = copy_of(from->worker, from->here, sizeof(*out->worker));
	out->speed = copy_of(from->speed, from->speeds, sizeof(*out->speed));
	out->key_cap = from->keys;
	out->worker_cap = from->here;
	out->speed_cap = from->speeds;
}

void
fal_coord_past_free(struct fal_coord_past *p)
{
	free(p->key);
	free(p->worker);
	free(p->speed);
	*p = (struct fal_coord_past){ 0 };
}

/* ---- marking ----------------------------------------------------------------------- */

/* Shards keep one image: of two that are under way the first would be lost. */
static bool
is_marking(const struct fal_coord *c)
{
	for (uint32_t i = 0; i < c->newses; i++)
		if (c->news[i].marked)
			return true;
	return c->marking;
}

bool
coord_markable(const struct fal_coord *c)
{
	struct fal_sched_from at;
	return !is_marking(c) && !c->move.begun &&
	       fal_sched_at(c->sched, c->version, fal_sched_over(c->sched), &at);
}

void
fal_coord_mark(struct fal_coord *c)
{
	coord_enter(c);
	/* A mark that is on its way serves this request, too: two would take twice the
	 * memory. */
	c->mark |= !is_marking(c);
}

struct fal_history
coord_speed_of(struct fal_coord *c, const struct fal_peer *p)
{
	struct fal_history was = { 0 };
	for (uint32_t i = 0; i < c->speeds && was.lanes == 0; i++)
		if (c->speed[i].key == p->key && strcmp(c->speed[i].name, p->name) == 0) {
			was = c->speed[i].is;
			c->speed[i] = c->speed[--c->speeds];
		}
	return was;
}

static void
remember_people(const struct fal_coord *c, struct fal_coord_past *p)
{
	FAL_XGROW(p->key, p->key_cap, (size_t)c->keys);
	FAL_XGROW(p->worker, p->worker_cap, (size_t)c->peers);
	FAL_XGROW(p->speed, p->speed_cap, (size_t)c->peers + c->speeds);
	p->workers = c->workers;
	p->keys = c->keys;
	for (uint32_t i = 0; i < c->keys; i++)
		p->key[i] = c->key[i].is;
	p->here = p->speeds = 0;
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *of = &c->peer[i];
		if (!of->ready || of->left)
			continue;
		struct fal_past_worker *w = &p->worker[p->here++];
		memcpy(w->name, of->name, sizeof(w->name));
		w->id = of->worker;
		struct fal_past_speed *to = &p->speed[p->speeds];
		if (fal_sched_history(c->sched, of->worker,
				      &to->is)) { /* if it was measured */
			memcpy(to->name, of->name, sizeof(to->name));
			to->key = of->key;
			p->speeds++;
		}
	}
	if (c->speeds > 0)
		memcpy(p->speed + p->speeds, c->speed, c->speeds * sizeof(*c->speed));
	p->speeds += c->speeds;
}

void
coord_remember(struct fal_coord *c, uint64_t version, uint64_t over)
{
	struct fal_coord_past *p = &c->past;
	const struct fal_coord_status *s = &c->status;
	struct fal_sched_from at;
	/* A newer one may be held by now, to be evaluated: that is no part of this one.
	 */
	c->marking = (c->kept_clock == 0 || c->kept_version <= version) &&
		     fal_sched_at(c->sched, version, over, &at);
	if (!c->marking) { /* the next one, then */
		c->mark = true;
		return;
	}
	coord_data_remember(c, p->data);
	p->version = version;
	p->clock = over;
	/* As it was then: others may have been ordered since. */
	p->oldest = version + 1 > c->keeps ? version + 1 - c->keeps : 0;
	p->oldest = p->oldest < at.first ? at.first : p->oldest;
	p->first = at.first;
	p->round = at.round;
	memcpy(p->by, c->control.holds_by, sizeof(p->by));
	p->agains = c->control.agains;
	p->evaluating = c->evaluating;
	p->judged = c->judged;
	p->kept_version = c->kept_version;
	p->kept_clock = c->kept_clock;
	p->next_eval = c->next_eval;
	p->accuracy = s->accuracy;
	p->accuracy_loss = s->accuracy_loss;
	p->judged_clock = s->judged;
	p->epoch = s->epoch;
	p->loss = s->loss;
	p->epoch_loss = s->epoch_loss;
	p->start_loss = c->health.start;
	p->sum_loss = coord_health_under_way(c).loss;
	p->samples = coord_health_under_way(c).samples;
	p->epoch_skipped = coord_health_under_way(c).skipped;
}

void
coord_marked(struct fal_coord *c, double now)
{
	if (!c->marking)
		return;
	struct fal_coord_past *p = &c->past;
	const struct fal_coord_status *s = &c->status;
	c->marking = false;
	p->t = fal_coord_seconds(c, now);
	/* The count covers the rounds that the trace has by now, which are all of the
	 * version's. */
	p->tasks = s->tasks;
	p->policy = fal_coord_policy_now(c);
	/* As the trace has them up to here: some may have come or gone since the order.
	 */
	remember_people(c, p);
	if (c->ops.marked == NULL)
		return;
	c->ops.marked(coord_call(c), p);
	coord_called(c);
}

int
fal_coord_mark_now(struct fal_coord *c, double now)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_MARK,
					   .version = c->version,
					   .below = c->oldest };
	coord_enter(c);
	/* The shards have made it, it is told, and nothing is on its way to the next. */
	if (c->newses > 0 || c->mergeds > 0 || c->published != c->version ||
	    c->why != NULL || !coord_markable(c))
		return c->err;
	coord_remember(c, c->version, fal_sched_over(c->sched));
	if (c->marking)
		coord_order(c, &o);
	if (c->err == 0)
		coord_marked(c, now);
	return c->err;
}

/* ---- going on ---------------------------------------------------------------------- */

static void
meet_again(struct fal_coord *c, const struct fal_coord_past *p)
{
	FAL_XGROW(c->key, c->key_cap, (size_t)p->keys);
	FAL_XGROW(c->known, c->known_cap, (size_t)p->workers);
	FAL_XGROW(c->speed, c->speed_cap, (size_t)p->speeds);
	if (p->speeds > 0)
		memcpy(c->speed, p->speed, p->speeds * sizeof(*c->speed));
	c->speeds = p->speeds;
	for (; c->keys < p->keys; c->keys++)
		c->key[c->keys] = (struct fal_known_key){ .is = p->key[c->keys] };
	/* Nobody has anything to say to those who were here: their numbers are over. */
	for (uint32_t i = 0; i < p->workers; i++)
		c->known[i] = (struct fal_known_worker){ 0 };
	c->workers = p->workers;
}

/* The job may have more epochs than it had: its end is no evaluation any more, but that
 * of an epoch. */
static uint64_t
next_eval(const struct fal_coord *c, const struct fal_coord_past *p)
{
	const uint64_t every = c->conf.eval_every;
	uint64_t next = p->next_eval;
	if (every == 0)
		return c->clocks;
	if (p->judged && next <= p->kept_clock)
		next = p->kept_clock / every * every + every;
	return next < c->clocks ? next : c->clocks;
}

int
coord_become(struct fal_coord *c, const struct fal_coord_past *p)
{
	struct fal_coord_status *s = &c->status;
	c->version = c->published = p->version;
	c->oldest = p->oldest;
	c->stepped = p->clock;
	c->judged = p->judged;
	c->kept_version = p->kept_version;
	c->kept_clock = p->kept_clock;
	c->next_eval = next_eval(c, p);
	s->accuracy = p->accuracy;
	s->accuracy_loss = p->accuracy_loss;
	s->judged = p->judged_clock;
	s->epoch = p->epoch;
	s->loss = p->loss;
	s->epoch_loss = p->epoch_loss;
	coord_health_become(c, p->start_loss);
	s->tasks = p->tasks;
	if (p->data[0] != '\0' && fal_unhex(p->data, FAL_DATA_HASH, c->conf.data) < 0)
		return FAL_EFORMAT;
	meet_again(c, p);
	if (p->samples > 0)
		coord_health_count(c, p->clock - 1, p->sum_loss, p->samples);
	coord_health_skip(c, p->clock - 1, p->epoch_skipped);
	/* An evaluation that was under way is counted again from its start. */
	c->evaluating = p->evaluating;
	if (p->evaluating)
		coord_eval_begin(c, c->start);
	return FAL_OK;
}

void
coord_trace_restart(struct fal_coord *c, const struct fal_coord_past *past)
{
	const struct fal_coord_trace *was = &c->conf.before;
	const bool other = was->accepted != NULL && was->accepted[0] != '\0';
	const struct fal_ev_restart line = {
		.incarnation = c->conf.tickets.incarnation,
		.hash = c->conf.hash,
		.model = c->conf.model_hash,
		.data = c->conf.data_hash,
		.from = c->conf.from,
		.accepted = other ? was->accepted : NULL,
		.epochs = c->conf.grid.epochs,
		.clock = fal_sched_over(c->sched),
		.version = c->version,
		.until = was->until,
		.lines = was->lines,
		.torn = was->torn,
	};
	coord_put(c, was->t, FAL_EV_RESTART, &line);
	for (uint32_t i = 0; past != NULL && i < past->here; i++) {
		const struct fal_past_worker *w = &past->worker[i];
		coord_put(c, was->t, FAL_EV_LEAVE,
			  &(struct fal_ev_leave){
				  .worker = w->name,
				  .id = w->id,
				  .reason = "the coordinator was restarted" });
	}
}
