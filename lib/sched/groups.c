/* groups: groups of workers, each synchronous, update one model asynchronously (Basu,
 * Saxena, Panja, Verma, HiPC 2018; schemes.md, groups).  The round of a group is its
 * workers' part of a clock.  The mean gradient of a group of |g| workers has weight
 * |g|/M, where M is the number of all workers.  A single group is bsp; a group for each
 * worker is asp.
 *
 * mode=delta: each round of a group steps a model of its own, the branch.  After `rounds`
 * rounds the group pushes the branch: the change since the branch last copied the newest
 * version has weight |g|/M, and the branch then copies the next version.  A group that
 * loses all members pushes its branch at once; all groups push their branches when no
 * round is open any more.
 *
 * With a quorum a group that has pushed waits for the next version.  The version is made
 * when all groups have pushed; or when `quorum` groups have pushed and `grace` seconds
 * have passed.  Later pushes join the next version.  The sum of gradients is divided by
 * the number of samples that came.  The change of a branch has a weight in proportion to
 * its samples, and each step of a branch is divided by the samples of its round.  The sum
 * of all changes becomes an outer step, with less momentum if fewer groups have pushed.
 *
 * Groups are formed by site first, as far as the number of groups allows; and then by
 * speed: the sorted speeds are cut where neighbours differ most, so slow workers are
 * together.  groups:G keeps G groups.  groups:progressive begins with one group.  Every
 * `window` updates the scheme adds a group if workers idle, and removes a group if
 * gradients are stale or the training loss is far above its best value.
 */
#include "base/branch.h"
#include "base/mem.h"
#include "sched/scheme.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double too_idle = 0.15;    /* the part of the workers' time that is idle */
static const double loss_guard = 0.025; /* part of the best loss's magnitude */
/* speeds that differ by this factor are two speeds */
static const double distinct = 1.1;

/* The state of the scheme: the number of groups, and measurements that control it. */
struct groups {
	uint32_t n;    /* number of groups wanted */
	uint64_t at;   /* version of the next decision */
	bool is_stale; /* workers came or went since the last decision */
	double since;  /* time of the last decision; 0: none */
	double idle_s; /* Σ seconds of workers without work since then */
	/* The rounds since then: their number, and Σ of their staleness in updates.  The
	 * rounds of known loss among them: their number, their samples, the mean training
	 * loss weighted by samples, and Σ of squared differences from the mean. */
	double rounds, stale, known, samples, loss, squares;
	bool has_best;
	double best, best_variance; /* the least mean loss, and its variance */
	double publish_at; /* quorum: deadline of the next version; INFINITY: no quorum */
};

/* The state of a group. */
struct group {
	uint64_t taken;    /* the version that its branch has copied */
	uint32_t unpushed; /* rounds on its branch since then */
	uint64_t newest;   /* the newest clock of these rounds */
	double weight;     /* |g|/M at the first round on its branch */
	uint32_t among;    /* M at that time */
	bool has_pushed;   /* quorum: has pushed, and waits for the next version */
	uint64_t samples;  /* the group's samples that the next version contains */
	double least_rate; /* scratch of places_diversity */
	const char *site;  /* scratch of places_diversity */
};

/* A worker and its place in the new groups. */
struct place {
	uint32_t slot;
	const char *site; /* borrowed */
	double rate;
	struct fal_team *team; /* its new group */
};

static int
compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	const int sites = strcmp(x->site, y->site);
	if (sites != 0)
		return sites;
	if (x->rate != y->rate)
		return x->rate < y->rate ? -1 : 1;
	return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* The index before which to cut next: at a border between sites; else at the widest gap
 * between the speeds of neighbours; or, if speeds are alike, in the middle of the largest
 * group.  0: there is nothing to cut. */
static uint32_t
places_next_cut(const struct place *p, const bool *cut, uint32_t n)
{
	uint32_t best = 0, longest = 1, from = 0;
	double gap = distinct;
	for (uint32_t i = 1; i < n; i++)
		if (!cut[i] && strcmp(p[i].site, p[i - 1].site) != 0)
			return i;
	for (uint32_t i = 1; i < n; i++) {
		if (!cut[i] && p[i].rate > gap * p[i - 1].rate) {
			gap = p[i].rate / p[i - 1].rate;
			best = i;
		}
	}
	for (uint32_t i = 1; i <= n && gap <= distinct; i++) {
		if (i < n && !cut[i])
			continue;
		if (i - from > longest) {
			longest = i - from;
			best = from + longest / 2;
		}
		from = i;
	}
	return best;
}

/* The diversity of groups: the largest ratio of speeds in a group, and the number of
 * sites in groups, not counting the first site of each group. */
struct diversity {
	double spread;
	uint32_t sites;
};

/* The worker's new group (`is_new`), or its present group. */
static struct group *
place_group(const struct fal_sched *s, const struct place *p, bool is_new)
{
	return (is_new ? p->team : s->worker[p->slot].team)->state;
}

/* The diversity of the new groups (`is_new`), or of the present groups. */
static struct diversity
places_diversity(const struct fal_sched *s, const struct place *p, uint32_t n,
		 bool is_new)
{
	struct diversity d = { .spread = 1 };
	for (uint32_t i = 0; i < s->teams; i++) {
		struct group *g = s->team[i]->state;
		g->least_rate = INFINITY;
		g->site = NULL;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct group *g = place_group(s, &p[i], is_new);
		g->least_rate = fmin(g->least_rate, p[i].rate);
		d.sites += g->site != NULL && strcmp(g->site, p[i].site) != 0;
		g->site = p[i].site; /* places are in the order of sites */
	}
	for (uint32_t i = 0; i < n; i++)
		d.spread = fmax(d.spread,
				p[i].rate / place_group(s, &p[i], is_new)->least_rate);
	return d;
}

/* Puts the workers into new groups by their sites and speeds, unless the present groups
 * are about as good.  A change has a cost: a worker that changes its group waits for a
 * round. */
static void
groups_form(struct fal_sched *s)
{
	const struct groups *state = s->scheme_state;
	struct place *p = fal_xcalloc((size_t)s->workers + 1, sizeof(*p));
	bool *cut = fal_xcalloc((size_t)s->workers + 1, sizeof(*cut));
	const uint32_t wanted = state->n < s->active ? state->n : s->active;
	uint32_t n = 0, at = 0;
	/* The active workers, sorted by site and speed, each with its new group. */
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (fal_worker_active(w))
			p[n++] = (struct place){ i, w->site,
						 fal_worker_rate(s, w, w->lanes), NULL };
	}
	if (n > 0)
		qsort(p, n, sizeof(*p), compare_places);
	for (uint32_t k = 1; k < state->n; k++)
		cut[places_next_cut(p, cut, n)] = true;
	for (uint32_t i = 0; i < n; i++) {
		at += i > 0 && cut[i];
		p[i].team = at < s->teams ? s->team[at] : fal_team_new(s, at, at + 1);
	}
	const struct diversity present = places_diversity(s, p, n, false);
	const struct diversity proposed = places_diversity(s, p, n, true);
	const bool is_good = present.sites <= proposed.sites &&
			     present.spread <= distinct * proposed.spread;
	if (n > 0 && (fal_teams_count_active(s) != wanted || !is_good)) {
		for (uint32_t i = 0; i < s->teams; i++)
			fal_team_update(s, s->team[i], 0, s->team[i]->clock);
		for (uint32_t i = 0; i < n; i++) {
			struct fal_team *t = p[i].team;
			s->worker[p[i].slot].team = t;
			fal_team_update(s, t, t->members + 1, t->clock);
		}
	}
	free(p);
	free(cut);
}

/* Is the loss further above its best value than the choice of batches explains: by two
 * standard errors of the difference of both means? */
static bool
loss_has_grown(struct groups *state)
{
	if (state->samples <= 0)
		return false;
	const double variance = state->squares / state->samples / state->known;
	if (!state->has_best || state->loss < state->best) {
		state->has_best = true;
		state->best = state->loss;
		state->best_variance = variance;
	}
	return state->loss > state->best + loss_guard * fabs(state->best) +
				     2 * sqrt(variance + state->best_variance);
}

/* Decides on the number of groups every `window` updates: one more, one less, or the
 * same.  A fixed number of groups is checked after each update. */
static void
groups_control(struct fal_sched *s, double now)
{
	struct groups *state = s->scheme_state;
	const struct fal_rule *rule = &s->policy.rule;
	if (s->version < state->at)
		return;
	double wall_s = (now - state->since) * s->active;
	double idle = wall_s > 0 ? state->idle_s / wall_s : 0;
	const bool has_grown = loss_has_grown(state), is_first = state->since <= 0;
	if (rule->groups > 0)
		state->n = rule->groups;
	else if ((state->stale > rule->max_groups * state->rounds || has_grown) &&
		 state->n > 1)
		state->n--;
	else if (idle > too_idle && !has_grown && !is_first &&
		 state->n < rule->max_groups && state->n < s->active)
		state->n++;
	state->at = s->version + rule->window; /* window 0: at each update */
	state->is_stale = false;
	state->since = now;
	state->idle_s = 0;
	state->rounds = state->stale = 0;
	state->known = state->samples = state->loss = state->squares = 0;
	groups_form(s);
}

/* A worker came or went, or has another site.  Groups are formed anew at the next update;
 * with mode=delta a branch is then pushed after its present round. */
static void
groups_teams_changed(struct fal_sched *s, double now)
{
	struct groups *state = s->scheme_state;
	(void)now;
	state->at = s->version;
	state->is_stale = true;
}

/* Adds the round to the measurements. */
static void
groups_watch(struct fal_sched *s, const struct fal_round *r, uint32_t samples)
{
	struct groups *state = s->scheme_state;
	const double loss = (double)fal_ledger_loss(&r->ledger) / samples;
	const double off = loss - state->loss;
	state->rounds++;
	state->stale += (double)r->info.stale_updates;
	if (!fal_ledger_loss_known(&r->ledger))
		return;
	state->known++;
	state->samples += samples;
	state->loss += samples / state->samples * off;
	state->squares += samples * off * (loss - state->loss);
}

static void
groups_start(struct fal_sched *s)
{
	struct groups *state = s->scheme_state;
	state->n = 1;
	state->at = s->version;
	state->publish_at = INFINITY;
}

static void
groups_idle_ended(struct fal_sched *s, double idle_s)
{
	struct groups *state = s->scheme_state;
	state->idle_s += idle_s;
}

/* Collects the change of the branch for the next version. */
static void
branch_collect(struct fal_sched *s, struct fal_team *t, double weight, uint32_t among)
{
	struct group *g = t->state;
	const struct fal_act act = {
		.kind = FAL_ACT_PUSH, .weight = weight, .among = among, .branch = t->id
	};
	s->pending.rounds -= g->unpushed;
	if (s->pending.rounds == 0)
		fal_pending_clear(s);
	g->unpushed = 0;
	fal_act_emit(s, act);
}

static void
groups_step(struct fal_sched *s, struct fal_act act)
{
	act.kind = FAL_ACT_STEP;
	act.own = true;
	act.version = ++s->version;
	fal_act_emit(s, act);
}

/* Makes a version of the change of the branch. */
static void
branch_push(struct fal_sched *s, struct fal_team *t)
{
	struct group *g = t->state;
	const struct fal_act act = { .clock = g->newest };
	branch_collect(s, t, g->weight, g->among);
	groups_step(s, act);
}

/* ---- quorum ---------------------------------------------------------------------- */

/* The pushes for the next version. */
struct pushes {
	uint32_t came, missing; /* groups */
	uint64_t samples, newest;
};

/* Is the next version due?  Sets the deadline of the version when the quorum has
 * pushed. */
static bool
quorum_is_due(struct fal_sched *s, const struct pushes *p, double now)
{
	struct groups *state = s->scheme_state;
	const struct fal_rule *rule = &s->policy.rule;
	if (p->came == 0 || (p->came < rule->quorum && p->missing > 0))
		state->publish_at = INFINITY;
	else if (isinf(state->publish_at))
		state->publish_at = now + rule->grace;
	return p->came > 0 && (p->missing == 0 || state->publish_at <= now);
}

static void
quorum_publish(struct fal_sched *s, const struct pushes *p)
{
	struct groups *state = s->scheme_state;
	const struct fal_rule *rule = &s->policy.rule;
	struct fal_act act = { .clock = p->newest, .among = p->came + p->missing };
	for (uint32_t i = 0; i < s->teams; i++) {
		struct fal_team *t = s->team[i];
		struct group *g = t->state;
		const double part = (double)g->samples / (double)p->samples;
		if (!g->has_pushed)
			continue;
		if (rule->delta)
			branch_collect(s, t, part, 0);
		g->has_pushed = false;
		g->samples = 0;
	}
	if (rule->delta) {
		act.weight = rule->outer_rate;
		/* If only some groups push at a time, their updates reach the other
		 * groups late, and late updates act like momentum.  So the momentum is
		 * lowered, until both effects together last as many pushes as the
		 * momentum alone does when all groups push. */
		const double spans = (double)(p->came + p->missing) / p->came;
		act.momentum = fmax(1 - (1 - rule->momentum) * spans, 0);
	} else {
		act.divisor = s->pending.step_samples;
		act.clock_part = 1;
		fal_pending_clear(s);
	}
	state->publish_at = INFINITY;
	fal_teams_wake(s);
	groups_step(s, act);
}

static double
groups_next_flush(const struct fal_sched *s)
{
	const struct groups *state = s->scheme_state;
	return state->publish_at;
}

static bool
groups_may_begin(const struct fal_sched *s, const struct fal_team *t)
{
	const struct group *g = t->state;
	(void)s;
	return !g->has_pushed;
}

/* ---- rounds ---------------------------------------------------------------------- */

static void
groups_flush(struct fal_sched *s, double now)
{
	const struct fal_rule *rule = &s->policy.rule;
	if (rule->quorum == 0 && !rule->delta) {
		if (s->rounds == 0)
			fal_pending_order_step(s, s->pending.step_samples);
		return;
	}
	for (uint32_t i = 0; i < s->teams; i++) {
		struct fal_team *t = s->team[i];
		struct group *g = t->state;
		/* A group without members pushes its rest; when no round is open, all
		 * groups do. */
		if (g->unpushed == 0 || t->open > 0 || (t->members > 0 && s->rounds > 0))
			continue;
		if (rule->quorum > 0)
			g->has_pushed = true;
		else
			branch_push(s, t);
	}
	if (rule->quorum == 0)
		return;
	struct pushes p = { 0 };
	for (uint32_t i = 0; i < s->teams; i++) {
		const struct group *g = s->team[i]->state;
		p.came += g->has_pushed;
		p.missing += !g->has_pushed && s->team[i]->members > 0;
		p.samples += g->has_pushed ? g->samples : 0;
		if (g->has_pushed && g->newest > p.newest)
			p.newest = g->newest;
	}
	if (s->rounds == 0) /* no other group will push */
		p.missing = 0;
	if (!quorum_is_due(s, &p, now))
		return;
	quorum_publish(s, &p);
	groups_control(s, now);
}

/* A branch without unpushed rounds copies the newest version. */
static void
groups_before_round(struct fal_sched *s, struct fal_team *t)
{
	struct group *g = t->state;
	/* All rounds of a branch between two pushes have one weight.  Their gradients are
	 * divided by this weight. */
	if (s->policy.rule.delta && g->unpushed > 0)
		return;
	g->among = s->active;
	g->weight = (double)t->members / s->active;
	if (!s->policy.rule.delta)
		return;
	t->branch_version = fal_branch_version(t->id, ++s->branch_versions);
	g->taken = s->version;
	struct fal_act act = { .kind = FAL_ACT_BRANCH, .version = t->branch_version };
	fal_act_emit(s, act);
}

static void
groups_begin_round(struct fal_sched *s, struct fal_team *t, struct fal_round *r)
{
	const struct group *g = t->state;
	if (!s->policy.rule.delta)
		return;
	r->info.version = t->branch_version;
	r->info.taken = g->taken;
	r->info.local = g->unpushed + 1;
}

/* A round on a branch is over: its gradients step the branch. */
static void
branch_step(struct fal_sched *s, struct fal_round *r, struct fal_act *end)
{
	struct fal_team *t = r->team;
	struct group *g = t->state;
	r->info.stale_updates = s->version - r->info.taken;
	t->branch_version = fal_branch_version(t->id, ++s->branch_versions);
	g->newest =
		g->unpushed == 0 || r->info.clock > g->newest ? r->info.clock : g->newest;
	g->unpushed++;
	end->fate = FAL_FATE_BRANCH;
	end->version = t->branch_version;
	if (s->policy.rule.quorum > 0) {
		end->divisor = fal_round_samples(s, r);
		return;
	}
	/* A whole round has |g|/M of a clock; a smaller round at the end of a clock has
	 * less weight. */
	end->divisor = g->weight * fal_grid_samples(&s->grid, r->info.clock);
	end->among = g->among;
}

static void
groups_round_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct groups *state = s->scheme_state;
	const struct fal_rule *rule = &s->policy.rule;
	struct fal_team *t = r->team;
	struct group *g = t->state;
	uint32_t samples = fal_round_counted_samples(s, r);
	/* The weight is |g|/M, if a whole number of tasks makes up this part. */
	double weight = (double)fal_round_samples(s, r) /
			fal_grid_samples(&s->grid, r->info.clock);
	struct fal_act end = { .fate = FAL_FATE_MERGE,
			       .weight = rule->delta ? g->weight : weight };
	uint64_t slowest = fal_slowest_clock(s, NULL);
	fal_round_set_staleness(s, r, t->clock > slowest ? t->clock - slowest : 0);
	if (rule->delta)
		branch_step(s, r, &end);
	if (samples > 0)
		groups_watch(s, r, samples);
	fal_round_end(s, r, end, now);
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		if (!w->has_left && w->team == t)
			fal_worker_account(s, w, r);
	}
	double divisor = fal_round_divisor(s, r);
	g->samples += rule->quorum > 0 ? samples : 0;
	if (rule->delta && g->unpushed < rule->rounds && !state->is_stale)
		return;
	if (rule->quorum > 0) {
		g->has_pushed = true;
		g->newest = rule->delta ? g->newest : r->info.clock;
		return;
	}
	if (rule->delta)
		branch_push(s, t);
	else
		fal_pending_order_step(s, divisor);
	groups_control(s, now);
}

const struct fal_scheme fal_scheme_groups = {
	.state_bytes = sizeof(struct groups),
	.team_state_bytes = sizeof(struct group),
	.start = groups_start,
	.before_round = groups_before_round,
	.begin_round = groups_begin_round,
	.may_begin = groups_may_begin,
	.round_complete = groups_round_complete,
	.flush = groups_flush,
	.next_flush = groups_next_flush,
	.idle_ended = groups_idle_ended,
	.teams_changed = groups_teams_changed,
};
