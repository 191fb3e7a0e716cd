/* The state that outlives a coordinator, and how a restarted coordinator continues from
 * that state. */
#include "server/coord_priv.h"

#include "base/mem.h"
#include "base/parse.h"

#include <stdlib.h>
#include <string.h>

/* Returns a copy of n elements; n may be 0. */
static void *
copy_array(const void *from, uint32_t n, size_t size)
{
	void *to = fal_xcalloc(n, size);
	return n > 0 ? memcpy(to, from, n * size) : to;
}

void
fal_coord_checkpoint_copy(const struct fal_coord_checkpoint *from,
			  struct fal_coord_checkpoint *out)
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
fal_coord_checkpoint_free(struct fal_coord_checkpoint *p)
{
	free(p->key);
	free(p->worker);
	free(p->speed);
	*p = (struct fal_coord_checkpoint){ 0 };
}

/* ---- snapshots --------------------------------------------------------------------- */

/* Returns true if a snapshot was ordered and its state is not complete.  A second
 * snapshot has to wait, because shards keep a single image. */
static bool
snapshot_is_under_way(const struct fal_coord *c)
{
	for (uint32_t i = 0; i < c->rounds.n_pending; i++)
		if (c->rounds.pending[i].has_snapshot)
			return true;
	return c->snapshot.is_being_made;
}

bool
coord_can_snapshot(const struct fal_coord *c)
{
	struct fal_sched_from sched;
	return !snapshot_is_under_way(c) && c->placement.move.state != MOVE_RUNNING &&
	       fal_sched_resume_point(c->sched, c->versions.newest,
				      fal_sched_first_open_clock(c->sched), &sched);
}

void
fal_coord_request_snapshot(struct fal_coord *c)
{
	coord_enter(c);
	/* A snapshot that is under way serves this request, too: two snapshots would take
	 * twice the memory. */
	c->snapshot.is_wanted |= !snapshot_is_under_way(c);
}

/* Copies the keys, the workers that are here, and the speeds of workers. */
static void
copy_members(const struct fal_coord *c, struct fal_coord_checkpoint *p)
{
	const struct coord_sessions *s = &c->sessions;
	FAL_XGROW(p->key, p->key_cap, (size_t)s->keys);
	FAL_XGROW(p->worker, p->worker_cap, (size_t)s->peers);
	FAL_XGROW(p->speed, p->speed_cap, (size_t)s->peers + s->n_former_speeds);
	p->workers = s->workers;
	p->keys = s->keys;
	for (uint32_t i = 0; i < s->keys; i++)
		p->key[i] = s->key[i].record;
	p->here = p->speeds = 0;
	const struct coord_peer *peer = NULL;
	while ((peer = coord_next_peer(c, peer, PEER_READY)) != NULL) {
		struct fal_checkpoint_worker *w = &p->worker[p->here++];
		memcpy(w->name, peer->name, sizeof(w->name));
		w->id = peer->worker;
		struct fal_checkpoint_speed *to = &p->speed[p->speeds];
		if (!fal_sched_history(c->sched, peer->worker, &to->is))
			continue; /* the worker was not measured */
		memcpy(to->name, peer->name, sizeof(to->name));
		to->key = peer->key;
		p->speeds++;
	}
	if (s->n_former_speeds > 0)
		memcpy(p->speed + p->speeds, s->former_speed,
		       s->n_former_speeds * sizeof(*s->former_speed));
	p->speeds += s->n_former_speeds;
}

void
coord_snapshot_begin(struct fal_coord *c, uint64_t version, uint64_t clocks_over)
{
	struct fal_coord_checkpoint *p = &c->snapshot.state;
	const struct coord_evaluation *e = &c->evaluation;
	const struct coord_health_epoch epoch = coord_health_current_epoch(c);
	const uint32_t retained = c->versions.retained;
	struct fal_sched_from sched;
	/* A newer version may be pinned by now, for an evaluation.  That evaluation is no
	 * part of the state of this version. */
	c->snapshot.is_being_made =
		(e->pin.clocks == 0 || e->pin.version <= version) &&
		fal_sched_resume_point(c->sched, version, clocks_over, &sched);
	if (!c->snapshot.is_being_made) { /* the snapshot is then of the next version */
		c->snapshot.is_wanted = true;
		return;
	}
	coord_leading_data_hex(c, p->data);
	p->version = version;
	p->clock = clocks_over;
	/* Newer versions may have been ordered since the snapshot's order, so this is
	 * the oldest version at the time of the order. */
	p->oldest = version + 1 > retained ? version + 1 - retained : 0;
	p->oldest = p->oldest < sched.first ? sched.first : p->oldest;
	p->first = sched.first;
	p->round = sched.round;
	memcpy(p->by, c->control.set_by, sizeof(p->by));
	p->agains = c->control.n_scheduled;
	p->pin = e->pin;
	p->figures = c->figures;
	p->start_loss = c->health.start;
	p->figures.metrics.begun = epoch.metrics;
	p->sum_loss = epoch.loss;
	p->samples = epoch.samples;
	p->epoch_skipped = epoch.skipped;
}

void
coord_snapshot_end(struct fal_coord *c, double now)
{
	struct fal_coord_checkpoint *p = &c->snapshot.state;
	if (!c->snapshot.is_being_made)
		return;
	c->snapshot.is_being_made = false;
	p->t = fal_coord_trace_time(c, now);
	/* The counts cover the rounds that the trace has by now, which are all rounds of
	 * the version. */
	p->figures.tasks = c->figures.tasks;
	p->policy = fal_sched_policy(c->sched);
	/* The members at this point of the trace: some may have come or gone since the
	 * order. */
	copy_members(c, p);
	COORD_CALL(c, marked, p);
}

int
fal_coord_snapshot_now(struct fal_coord *c, double now)
{
	const struct coord_versions *v = &c->versions;
	const struct fal_shard_order o = { .kind = FAL_ORDER_SNAPSHOT,
					   .version = v->newest,
					   .below = v->oldest };
	coord_enter(c);
	/* The shards have made the newest version, the trace has its line, and no round
	 * is collected for the next one. */
	if (c->rounds.n_pending > 0 || c->rounds.n_collected > 0 ||
	    v->published != v->newest || c->failure != NULL || !coord_can_snapshot(c))
		return c->err;
	coord_snapshot_begin(c, v->newest, fal_sched_first_open_clock(c->sched));
	if (c->snapshot.is_being_made)
		coord_command_shards(c, &o);
	if (c->err == 0)
		coord_snapshot_end(c, now);
	return c->err;
}

/* ---- restart ----------------------------------------------------------------------- */

int
coord_restore(struct fal_coord *c, const struct fal_coord_checkpoint *p)
{
	struct coord_sessions *s = &c->sessions;
	const uint64_t every = c->conf.eval_every;
	uint64_t next = p->pin.next_clock; /* of the next evaluation */
	/* If the job has more epochs than before the restart, its former end is an
	 * ordinary end of an epoch, and has no evaluation of its own. */
	if (every > 0 && p->pin.is_evaluated && next <= p->pin.clocks)
		next = p->pin.clocks / every * every + every;
	c->versions.newest = c->versions.published = p->version;
	c->versions.oldest = p->oldest;
	c->versions.published_clocks = p->clock;
	c->evaluation.pin = p->pin;
	c->evaluation.pin.next_clock = every > 0 && next < c->clocks ? next : c->clocks;
	c->placement.lines.first_clock = p->clock;
	c->placement.lines.clocks_over = p->clock;
	c->placement.balance.clocks_over = p->clock;
	c->figures = p->figures;
	coord_health_restore(c, p->start_loss);
	if (p->data[0] != '\0' && fal_unhex(p->data, FAL_DATA_HASH, c->conf.data) < 0)
		return FAL_EFORMAT;
	FAL_XGROW(s->key, s->key_cap, (size_t)p->keys);
	FAL_XGROW(s->worker, s->worker_cap, (size_t)p->workers);
	FAL_XGROW(s->former_speed, s->former_speed_cap, (size_t)p->speeds);
	if (p->speeds > 0)
		memcpy(s->former_speed, p->speed, p->speeds * sizeof(*s->former_speed));
	s->n_former_speeds = p->speeds;
	for (; s->keys < p->keys; s->keys++)
		s->key[s->keys] = (struct coord_known_key){ .record = p->key[s->keys] };
	/* Workers from before the restart never come back under their old numbers. */
	for (; s->workers < p->workers; s->workers++)
		s->worker[s->workers] = (struct coord_known_worker){ 0 };
	if (p->samples > 0)
		coord_health_add_loss(c, p->clock - 1, p->sum_loss, p->samples,
				      &p->figures.metrics.begun);
	coord_health_add_skipped(c, p->clock - 1, p->epoch_skipped);
	/* An evaluation that was under way starts again. */
	if (p->pin.is_under_way)
		coord_start_evaluation(c, c->start);
	return FAL_OK;
}

void
coord_trace_restart(struct fal_coord *c, const struct fal_coord_checkpoint *past)
{
	const struct fal_coord_trace *before = &c->conf.before;
	const bool has_accepted = before->accepted != NULL && before->accepted[0] != '\0';
	const struct fal_ev_restart line = {
		.incarnation = c->conf.tickets.incarnation,
		.hash = c->conf.hash,
		.model = c->conf.model_hash,
		.data = c->conf.data_hash,
		.from = c->conf.from,
		.accepted = has_accepted ? before->accepted : NULL,
		.epochs = c->conf.grid.epochs,
		.clock = fal_sched_first_open_clock(c->sched),
		.version = c->versions.newest,
		.until = before->until,
		.lines = before->lines,
		.torn = before->torn,
	};
	/* Both kinds of lines have the time of the last line before the restart. */
	coord_trace_event(c, c->start, FAL_EV_RESTART, &line);
	for (uint32_t i = 0; past != NULL && i < past->here; i++)
		coord_trace_event(c, c->start, FAL_EV_LEAVE,
				  &(struct fal_ev_leave){
					  .worker = past->worker[i].name,
					  .id = past->worker[i].id,
					  .reason = "the coordinator was restarted" });
}
