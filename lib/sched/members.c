/* Who is there, and what the policy lays down for each. */
#include "sched/members.h"

#include "base/mem.h"
#include "base/sorted.h"
#include "sched/due.h"
#include "sched/queue.h"
#include "sched/scheme.h"
#include "sched/speed.h"
#include "sched/team.h"
#include "sched/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fal_scheme *const schemes[FAL_SCHEMES] = {
	[FAL_BSP] = &fal_scheme_bsp,       [FAL_ASP] = &fal_scheme_asp,
	[FAL_SSP] = &fal_scheme_ssp,       [FAL_EPSP] = &fal_scheme_epsp,
	[FAL_FLEXRR] = &fal_scheme_flexrr, [FAL_SYNCOPT] = &fal_scheme_syncopt,
	[FAL_CONSGD] = &fal_scheme_consgd, [FAL_DYNSGD] = &fal_scheme_dynsgd,
	[FAL_WBSP] = &fal_scheme_wbsp,     [FAL_GROUPS] = &fal_scheme_groups,
};

/* Slots stand in order of their ids, mostly without gaps. */
struct fal_worker *
fal_find(const struct fal_sched *s, uint32_t id)
{
	size_t at = s->workers > 0 ? id - s->worker[0].id : 0;
	if (at >= s->workers || s->worker[at].id != id)
		at = fal_sorted_place(s->worker, s->workers, sizeof(*s->worker), id);
	if (at == s->workers || s->worker[at].id != id || s->worker[at].gone)
		return NULL;
	return &s->worker[at];
}

bool
fal_sched_staffed(const struct fal_sched *s)
{
	return s->active > 0;
}

void
fal_recount(struct fal_sched *s, struct fal_worker *w, double now)
{
	bool active = fal_worker_active(w);
	uint32_t members = w->team->members - w->counted + active;
	s->active = s->active - w->counted + active;
	w->counted = active;
	fal_team_changed(s, w, members, now);
	fal_refresh(s, w, now);
}

/* Where all are one team, everybody has the versions before a round begins. */
static void
send_ahead(struct fal_sched *s, struct fal_worker *w)
{
	struct fal_act model = { .kind = FAL_ACT_MODEL, .worker = w->id };
	if (!s->is.shared || w->version == s->version)
		return;
	w->version = s->version;
	fal_emit(s, model);
}

/* What the policy lays down for the worker. */
static void
lay_down(struct fal_sched *s, struct fal_worker *w, double now)
{
	const struct fal_policy_worker *p = fal_policy_find(&s->policy, w->name);
	uint32_t least = p != NULL && p->lanes_min > 0 ? p->lanes_min : w->own_min;
	uint32_t most = p != NULL && p->lanes_max > 0 ? p->lanes_max : w->own_max;
	const char *site = p != NULL ? p->site : "";
	bool excluded = p != NULL && p->excluded;
	w->weight = p != NULL ? p->share : -1;
	w->lanes_max = most < w->own_max ? most : w->own_max;
	w->lanes_min = least < w->lanes_max ? least : w->lanes_max;
	uint32_t lanes = w->lanes < w->lanes_min ? w->lanes_min : w->lanes;
	lanes = lanes > w->lanes_max ? w->lanes_max : lanes;
	if (lanes != w->lanes) {
		struct fal_act act = { .kind = FAL_ACT_LANES,
				       .worker = w->id,
				       .count = lanes };
		w->lanes = lanes;
		fal_emit(s, act);
	}
	const bool moved = strcmp(w->site, site) != 0;
	snprintf(w->site, sizeof(w->site), "%s", site);
	if (excluded == w->excluded) {
		if (moved && w->team != NULL && s->scheme->changed != NULL)
			s->scheme->changed(s, now);
		return;
	}
	w->excluded = excluded;
	if (excluded)
		fal_strip(s, w, true, now);
	if (w->team != NULL)
		fal_recount(s, w, now);
}

int
fal_sched_set_policy(struct fal_sched *s, double now, const struct fal_policy *p)
{
	bool other = s->scheme == NULL || !fal_rule_eq(&p->rule, &s->policy.rule);
	if (other && s->scheme != NULL && !fal_sched_quiet(s))
		return FAL_ESTATE;
	const struct fal_policy copy = fal_policy_copy(p);
	fal_policy_free(&s->policy);
	s->policy = copy;
	if (other && s->scheme != NULL)
		fal_teams_end(s);
	s->scheme = schemes[p->rule.scheme];
	s->is = fal_rule_traits(&p->rule);
	s->fixed_shares = false;
	for (size_t i = 0; i < p->workers; i++)
		s->fixed_shares |= p->worker[i].share >= 0;
	if (other)
		fal_teams_form(s);
	for (uint32_t i = 0; i < s->workers && other; i++)
		if (!s->worker[i].gone)
			send_ahead(s, &s->worker[i]);
	for (uint32_t i = 0; i < s->workers; i++)
		if (!s->worker[i].gone)
			lay_down(s, &s->worker[i], now);
	fal_teams_wake(s);
	fal_settle(s, now);
	return FAL_OK;
}

/* The slots of workers that left are free for others. */
static void
drop_gone(struct fal_sched *s, double now)
{
	uint32_t kept = 0;
	for (size_t i = 0; i < FAL_HEAPS_OF_WORKERS; i++)
		fal_heap_clear(&s->of_workers[i]);
	for (uint32_t i = 0; i < s->workers; i++) {
		if (s->worker[i].gone)
			continue;
		if (kept < i)
			s->worker[kept] = s->worker[i];
		for (struct fal_node *n = s->worker[kept].head; n != NULL; n = n->next)
			n->slot = kept;
		kept++;
	}
	s->workers = kept;
	s->gone = 0;
	fal_teams_close_up(s);
	if (s->scheme->renumber != NULL)
		s->scheme->renumber(s);
	for (uint32_t i = 0; i < kept; i++)
		fal_refresh(s, &s->worker[i], now);
}

static void
make_room(struct fal_sched *s, double now)
{
	enum { SPARE = 16 }; /* so many that left may stay */
	if (s->gone > SPARE + s->workers / 2)
		drop_gone(s, now);
	size_t n = (size_t)s->workers + 1;
	FAL_XGROW(s->worker, s->worker_cap, n);
	FAL_XGROW(s->scratch, s->scratch_cap, n);
	for (size_t i = 0; i < FAL_HEAPS_OF_WORKERS; i++)
		fal_heap_reserve(&s->of_workers[i], n);
	if (s->scheme->reserve != NULL)
		s->scheme->reserve(s, n);
}

int
fal_sched_join(struct fal_sched *s, double now, const struct fal_join *j)
{
	if (j->lanes_min < 1 || j->lanes_max < j->lanes_min || j->cores < 1 ||
	    j->lanes_max > FAL_LANES_MAX || j->id <= s->last_id || j->id == FAL_EVALUATED)
		return FAL_EINVAL;
	make_room(s, now);
	uint32_t lanes = s->lanes_start > 0 ? s->lanes_start : j->lanes_max;
	lanes = lanes < j->lanes_min ? j->lanes_min : lanes;
	lanes = lanes > j->lanes_max ? j->lanes_max : lanes;
	struct fal_worker *w = &s->worker[s->workers++];
	*w = (struct fal_worker){
		.id = j->id,
		.key = j->key != 0 ? j->key : FAL_OWN_KEY | j->id,
		.numerics = j->numerics,
		.version = UINT64_MAX,
		.lanes = lanes,
		.own_min = j->lanes_min,
		.own_max = j->lanes_max,
		.cores = j->cores,
		.pace = fal_xcalloc((size_t)j->lanes_max + 1, sizeof(*w->pace)),
		.probe_s = j->task_s,
		.fixed = j->fixed,
		.rtt = j->rtt,
		.pong = j->rtt,
		.stands_by = j->stands_by,
		.group = j->group,
		.empty = now,
		.base = now,
		.heard = now,
		.asked = -1,
		.steps_at = -1,
	};
	snprintf(w->name, sizeof(w->name), "%s", j->name != NULL ? j->name : "");
	w->again = fal_trial_barred(s, w->key, now);
	w->suspected = w->again > now;
	w->suspected_at = w->suspected ? now : 0;
	s->last_id = w->id;
	fal_remember(w, &j->was);
	if (!isnan(w->fixed))
		fal_typical_fixed(s, w->fixed);
	s->unknown++;
	if (j->task_s > 0 && (s->probe_s <= 0 || j->task_s < s->probe_s))
		s->probe_s = j->task_s;
	if (s->typical_known.probe_s <= 0)
		s->typical_known.probe_s = s->probe_s;
	struct fal_act act = { .kind = FAL_ACT_LANES, .worker = w->id, .count = lanes };
	fal_emit(s, act);
	lay_down(s, w, now);
	fal_team_join(s, w);
	send_ahead(s, w);
	fal_recount(s, w, now);
	fal_settle(s, now);
	return FAL_OK;
}

int
fal_sched_capacity(struct fal_sched *s, double now, uint32_t id, uint32_t lanes,
		   double task_s)
{
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return FAL_OK;
	if (lanes < 1 || lanes > FAL_LANES_MAX)
		return FAL_EINVAL;
	/* A lane stays as fast as it is. */
	const uint32_t at = w->pace[w->lanes].nearest;
	const struct fal_history was = { .lanes = lanes,
					 .task_s = at > 0 ? w->pace[at].task_s : 0,
					 .fixed = -1,
					 .eval_s = w->eval_s,
					 .push_s = w->push.s };
	free(w->pace);
	w->pace = fal_xcalloc((size_t)lanes + 1, sizeof(*w->pace));
	w->own_min = w->own_max = w->cores = lanes;
	fal_remember(w, &was);
	if (task_s > 0)
		w->probe_s = task_s;
	lay_down(s, w, now);
	fal_recount(s, w, now);
	fal_settle(s, now);
	return FAL_OK;
}

void
fal_sched_leave(struct fal_sched *s, double now, uint32_t id)
{
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return;
	fal_due_left(s, w, now);
	w->gone = true;
	w->waits = false;
	s->gone++;
	s->unknown -= w->turn[FAL_TURN_TASK].n == 0;
	fal_strip(s, w, false, now);
	fal_recount(s, w, now);
	free(w->pace);
	w->pace = NULL;
	fal_spans_free(&w->seqs);
	fal_settle(s, now);
}

void
fal_sched_stand_by(struct fal_sched *s, double now, uint32_t id, bool stands_by)
{
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL || w->stands_by == stands_by)
		return;
	w->stands_by = stands_by;
	if (stands_by)
		fal_strip(s, w, true, now);
	fal_recount(s, w, now);
	fal_settle(s, now);
}

bool
fal_sched_info(const struct fal_sched *s, uint32_t id, struct fal_worker_info *out)
{
	const struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return false;
	*out = (struct fal_worker_info){
		.id = id,
		.lanes = w->lanes,
		.lanes_min = w->lanes_min,
		.lanes_max = w->lanes_max,
		.task_s = w->recent.n > 0 || w->probe_s > 0 ? fal_task_s(s, w, w->lanes)
							    : 0,
		.finish = w->finish,
		.rtt = w->rtt,
		.suspected = w->suspected,
		.able = fal_worker_able(w),
	};
	return true;
}

bool
fal_sched_history(const struct fal_sched *s, uint32_t id, struct fal_history *out)
{
	const struct fal_worker *w = fal_find(s, id);
	if (w == NULL || w->pace[w->lanes].nearest == 0)
		return false;
	const uint32_t lanes = w->pace[w->lanes].nearest;
	*out = (struct fal_history){ .lanes = lanes,
				     .task_s = w->pace[lanes].task_s,
				     .fixed = isnan(w->fixed) ? -1 : w->fixed,
				     .eval_s = w->eval_s,
				     .push_s = w->push.s };
	return true;
}
