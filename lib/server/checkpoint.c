/* The state that outlives a coordinator, and how a restarted coordinator goes on from
 * that state. */
#include "server/coord_priv.h"

#include "base/mem.h"
#include "base/parse.h"

#include <stdlib.h>
#include <string.h>

/* A copy of n elements, which may be 0. */
static void *
copy_array(const void *from, uint32_t n, size_t size)
{
	void *to = fal_xcalloc(n, size);
	return n > 0 ? memcpy(to, from, n * size) : to;
}

void
fal_coord_past_copy(const struct fal_coord_past *from, struct fal_coord_past *out)
{
	*out = *from;
	out->policy = NULL;
	out->key = copy_array(from->key, from->keys, sizeof(*out->key));
	out->worker = copy_array(from->worker, from->here, sizeof(*out->worker));
	out->speed = copy_array(from->speed, from->speeds, sizeof(*out->speed));
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
	for (uint32_t i = 0; i < c->rounds.n_pending; i++)
		if (c->rounds.pending[i].marked)
			return true;
	return c->snapshot.is_being_made;
}

bool
coord_can_snapshot(const struct fal_coord *c)
{
	struct fal_sched_from at;
	return !is_marking(c) && !c->placement.move.begun &&
	       fal_sched_at(c->sched, c->versions.newest, fal_sched_over(c->sched), &at);
}

void
fal_coord_mark(struct fal_coord *c)
{
	coord_enter(c);
	/* A mark that is on its way serves this request, too: two would take twice the
	 * memory. */
	c->snapshot.is_wanted |= !is_marking(c);
}

struct fal_history
coord_former_speed(struct fal_coord *c, const struct coord_peer *p)
{
	struct fal_history was = { 0 };
	for (uint32_t i = 0; i < c->sessions.n_former_speeds && was.lanes == 0; i++)
		if (c->sessions.former_speed[i].key == p->key &&
		    strcmp(c->sessions.former_speed[i].name, p->name) == 0) {
			was = c->sessions.former_speed[i].is;
			c->sessions.former_speed[i] =
				c->sessions.former_speed[--c->sessions.n_former_speeds];
		}
	return was;
}

static void
snapshot_members(const struct fal_coord *c, struct fal_coord_past *p)
{
	FAL_XGROW(p->key, p->key_cap, (size_t)c->sessions.keys);
	FAL_XGROW(p->worker, p->worker_cap, (size_t)c->sessions.peers);
	FAL_XGROW(p->speed, p->speed_cap,
		  (size_t)c->sessions.peers + c->sessions.n_former_speeds);
	p->workers = c->sessions.workers;
	p->keys = c->sessions.keys;
	for (uint32_t i = 0; i < c->sessions.keys; i++)
		p->key[i] = c->sessions.key[i].record;
	p->here = p->speeds = 0;
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		const struct coord_peer *of = &c->sessions.peer[i];
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
	if (c->sessions.n_former_speeds > 0)
		memcpy(p->speed + p->speeds, c->sessions.former_speed,
		       c->sessions.n_former_speeds * sizeof(*c->sessions.former_speed));
	p->speeds += c->sessions.n_former_speeds;
}

void
coord_snapshot_begin(struct fal_coord *c, uint64_t version, uint64_t over)
{
	struct fal_coord_past *p = &c->snapshot.state;
	const struct fal_coord_status *s = &c->status;
	struct fal_sched_from at;
	/* A newer one may be held by now, to be evaluated: that is no part of this one.
	 */
	c->snapshot.is_being_made = (c->evaluation.pinned_clocks == 0 ||
				     c->evaluation.pinned_version <= version) &&
				    fal_sched_at(c->sched, version, over, &at);
	if (!c->snapshot.is_being_made) { /* the next one, then */
		c->snapshot.is_wanted = true;
		return;
	}
	coord_leading_data_hex(c, p->data);
	p->version = version;
	p->clock = over;
	/* As it was then: others may have been ordered since. */
	p->oldest = version + 1 > c->versions.retained
			    ? version + 1 - c->versions.retained
			    : 0;
	p->oldest = p->oldest < at.first ? at.first : p->oldest;
	p->first = at.first;
	p->round = at.round;
	memcpy(p->by, c->control.set_by, sizeof(p->by));
	p->agains = c->control.n_scheduled;
	p->evaluating = c->evaluation.is_under_way;
	p->judged = c->evaluation.pinned_is_evaluated;
	p->kept_version = c->evaluation.pinned_version;
	p->kept_clock = c->evaluation.pinned_clocks;
	p->next_eval = c->evaluation.next_clock;
	p->accuracy = s->accuracy;
	p->accuracy_loss = s->accuracy_loss;
	p->judged_clock = s->judged;
	p->epoch = s->epoch;
	p->loss = s->loss;
	p->epoch_loss = s->epoch_loss;
	p->start_loss = c->health.start;
	p->sum_loss = coord_health_current_epoch(c).loss;
	p->samples = coord_health_current_epoch(c).samples;
	p->epoch_skipped = coord_health_current_epoch(c).skipped;
}

void
coord_snapshot_end(struct fal_coord *c, double now)
{
	if (!c->snapshot.is_being_made)
		return;
	struct fal_coord_past *p = &c->snapshot.state;
	const struct fal_coord_status *s = &c->status;
	c->snapshot.is_being_made = false;
	p->t = fal_coord_seconds(c, now);
	/* The count covers the rounds that the trace has by now, which are all of the
	 * version's. */
	p->tasks = s->tasks;
	p->policy = fal_coord_policy_now(c);
	/* As the trace has them up to here: some may have come or gone since the order.
	 */
	snapshot_members(c, p);
	if (c->ops.marked == NULL)
		return;
	c->ops.marked(coord_begin_callback(c), p);
	coord_end_callback(c);
}

int
fal_coord_mark_now(struct fal_coord *c, double now)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_MARK,
					   .version = c->versions.newest,
					   .below = c->versions.oldest };
	coord_enter(c);
	/* The shards have made it, it is told, and nothing is on its way to the next. */
	if (c->rounds.n_pending > 0 || c->rounds.n_collected > 0 ||
	    c->versions.published != c->versions.newest || c->failure != NULL ||
	    !coord_can_snapshot(c))
		return c->err;
	coord_snapshot_begin(c, c->versions.newest, fal_sched_over(c->sched));
	if (c->snapshot.is_being_made)
		coord_command_shards(c, &o);
	if (c->err == 0)
		coord_snapshot_end(c, now);
	return c->err;
}

/* ---- going on ---------------------------------------------------------------------- */

static void
restore_members(struct fal_coord *c, const struct fal_coord_past *p)
{
	FAL_XGROW(c->sessions.key, c->sessions.key_cap, (size_t)p->keys);
	FAL_XGROW(c->sessions.worker, c->sessions.worker_cap, (size_t)p->workers);
	FAL_XGROW(c->sessions.former_speed, c->sessions.former_speed_cap,
		  (size_t)p->speeds);
	if (p->speeds > 0)
		memcpy(c->sessions.former_speed, p->speed,
		       p->speeds * sizeof(*c->sessions.former_speed));
	c->sessions.n_former_speeds = p->speeds;
	for (; c->sessions.keys < p->keys; c->sessions.keys++)
		c->sessions.key[c->sessions.keys] =
			(struct coord_known_key){ .record = p->key[c->sessions.keys] };
	/* Nobody has anything to say to those who were here: their numbers are over. */
	for (uint32_t i = 0; i < p->workers; i++)
		c->sessions.worker[i] = (struct coord_known_worker){ 0 };
	c->sessions.workers = p->workers;
}

/* The job may have more epochs than it had: its end is no evaluation any more, but that
 * of an epoch. */
static uint64_t
next_evaluation(const struct fal_coord *c, const struct fal_coord_past *p)
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
coord_restore(struct fal_coord *c, const struct fal_coord_past *p)
{
	struct fal_coord_status *s = &c->status;
	c->versions.newest = c->versions.published = p->version;
	c->versions.oldest = p->oldest;
	c->versions.published_clocks = p->clock;
	c->evaluation.pinned_is_evaluated = p->judged;
	c->evaluation.pinned_version = p->kept_version;
	c->evaluation.pinned_clocks = p->kept_clock;
	c->evaluation.next_clock = next_evaluation(c, p);
	s->accuracy = p->accuracy;
	s->accuracy_loss = p->accuracy_loss;
	s->judged = p->judged_clock;
	s->epoch = p->epoch;
	s->loss = p->loss;
	s->epoch_loss = p->epoch_loss;
	coord_health_restore(c, p->start_loss);
	s->tasks = p->tasks;
	if (p->data[0] != '\0' && fal_unhex(p->data, FAL_DATA_HASH, c->conf.data) < 0)
		return FAL_EFORMAT;
	restore_members(c, p);
	if (p->samples > 0)
		coord_health_add_loss(c, p->clock - 1, p->sum_loss, p->samples);
	coord_health_add_skipped(c, p->clock - 1, p->epoch_skipped);
	/* An evaluation that was under way is counted again from its start. */
	c->evaluation.is_under_way = p->evaluating;
	if (p->evaluating)
		coord_start_evaluation(c, c->start);
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
		.version = c->versions.newest,
		.until = was->until,
		.lines = was->lines,
		.torn = was->torn,
	};
	coord_trace_event(c, was->t, FAL_EV_RESTART, &line);
	for (uint32_t i = 0; past != NULL && i < past->here; i++) {
		const struct fal_past_worker *w = &past->worker[i];
		coord_trace_event(c, was->t, FAL_EV_LEAVE,
				  &(struct fal_ev_leave){
					  .worker = w->name,
					  .id = w->id,
					  .reason = "the coordinator was restarted" });
	}
}
