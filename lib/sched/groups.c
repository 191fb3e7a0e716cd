/* groups: groups of workers, each synchronous, that update one model asynchronously
 * (Basu, Saxena, Panja, Verma, HiPC 2018; schemes.md, groups).  A group's round is its
 * workers' part of a clock; its mean gradient counts |g|/M.  One group is bsp, one for
 * each worker is asp.
 *
 * mode=delta: a group steps a model of its own, its line, in each round; after `rounds`
 * of them it is pushed: the change since the line last took over the newest version
 * counts |g|/M, and the line takes over the next one.  A group with no members left, and
 * every group when nothing is open any more, pushes what it has.
 *
 * With a quorum a group that has pushed waits for the next version, which is made when
 * all have, or so many have and `grace` seconds passed: whoever comes later is in the
 * next one.  Gradients are over the samples that came; a line's change counts by its
 * samples, its steps are over those of their rounds, and what all of them change by
 * becomes an outer step, with less momentum the fewer groups are in it.
 *
 * Groups are formed by site, as far as there are so many groups, and then by speed, slow
 * workers together: the sorted speeds are cut where they differ most.  groups:G keeps G
 * of them.  groups:progressive begins with one; every `window` updates it makes one more
 * while workers idle, and one less when gradients are stale or the training loss is not
 * near its best any more.
 */
#include "base/branch.h"
#include "base/mem.h"
#include "sched/scheme.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double too_idle = 0.15;    /* share of the workers' time */
static const double loss_guard = 0.025; /* part of the best loss, whatever its sign */
static const double distinct = 1.1;     /* speeds that differ so much are two */

/* What its controller watches. */
struct groups {
	uint32_t n;   /* groups wanted */
	uint64_t at;  /* version of the next decision */
	bool anew;    /* workers came or went since the last one */
	double since; /* when the last one was; 0: there was none */
	double idle;  /* Σ seconds without work since then */
	/* Of the rounds since then: how many, Σ staleness in updates; of those whose
	 * losses are known how many, their samples, mean training loss, by samples, and
	 * Σ of the squares of what is off it; */
	double rounds, stale, told, samples, loss, off;
	bool watched;            /* there was such a mean */
	double best, best_noise; /* the least such mean, and its standard error */
	double until; /* a quorum: the next version is made then; INFINITY: it is
			 not there yet */
};

/* A group. */
struct group {
	uint64_t taken;    /* version that its line took over */
	uint32_t unpushed; /* rounds on its line since then */
	uint64_t newest;   /* the newest clock of these */
	double weight;     /* its part of the workers when its line's first round began */
	uint32_t among;    /* and how many these were */
	bool pushed;       /* for a quorum: it waits for the next version, which has */
	uint64_t samples;  /* so many of it */
	double least;      /* scratch of `unlike`, */
	const char *site;  /* … too */
};

struct place {
	uint32_t slot;
	const char *site; /* borrowed */
	double rate;
	struct fal_team *team; /* that the worker is to have */
};

static int
by_site_and_rate(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	const int sites = strcmp(x->site, y->site);
	if (sites != 0)
		return sites;
	if (x->rate != y->rate)
		return x->rate < y->rate ? -1 : 1;
	return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* The place before which to cut next: where another site begins; else the widest gap
 * between neighbours of one group; or, when speeds are alike, the middle of the largest
 * group.  0: nothing to cut. */
static uint32_t
next_cut(const struct place *p, const bool *cut, uint32_t n)
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

/* Team number `i`, made if need be. */
static struct fal_team *
team(struct fal_sched *s, uint32_t i)
{
	return i < s->teams ? s->team[i] : fal_team_new(s, i, i + 1);
}

/* The active workers by site and speed, each with the group that it is to have; returns
 * how many. */
static uint32_t
arrange(struct fal_sched *s, struct place *p, bool *cut)
{
	struct groups *is = s->own;
	uint32_t n = 0, at = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (fal_worker_active(w))
			p[n++] = (struct place){ i, w->site, fal_worker_rate(s, w, w->lanes),
						 NULL };
	}
	if (n > 0)
		qsort(p, n, sizeof(*p), by_site_and_rate);
	for (uint32_t k = 1; k < is->n; k++)
		cut[next_cut(p, cut, n)] = true;
	for (uint32_t i = 0; i < n; i++) {
		at += i > 0 && cut[i];
		p[i].team = team(s, at);
	}
	return n;
}

/* The group of a place: the one that it has, `as_is`, or is to have. */
static struct group *
group_of(const struct fal_sched *s, const struct place *p, bool as_is)
{
	return (as_is ? s->worker[p->slot].team : p->team)->own;
}

/* How unlike the workers of a group are: how much faster than another one of its group a
 * worker is at most, and how many sites groups have beside their first ones. */
struct unlike {
	double spread;
	uint32_t sites;
};

/* Compares the workers of each group that there is, `as_is`, or that is to be. */
static struct unlike
unlike(const struct fal_sched *s, const struct place *p, uint32_t n, bool as_is)
{
	struct unlike u = { .spread = 1 };
	for (uint32_t i = 0; i < s->teams; i++) {
		struct group *g = s->team[i]->own;
		g->least = INFINITY;
		g->site = NULL;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct group *g = group_of(s, &p[i], as_is);
		g->least = fmin(g->least, p[i].rate);
		u.sites += g->site != NULL && strcmp(g->site, p[i].site) != 0;
		g->site = p[i].site; /* they stand in order */
	}
	for (uint32_t i = 0; i < n; i++)
		u.spread = fmax(u.spread, p[i].rate / group_of(s, &p[i], as_is)->least);
	return u;
}

/* Are the groups that the workers have about as good as those that they are to have? */
static bool
is_as_good(const struct fal_sched *s, const struct place *p, uint32_t n)
{
	const struct unlike has = unlike(s, p, n, true), would = unlike(s, p, n, false);
	return has.sites <= would.sites && has.spread <= distinct * would.spread;
}

/* Puts the workers into the groups that their sites and speeds ask for, unless those that
 * they have are about as good: who changes its group waits for a round. */
static void
regroup(struct fal_sched *s)
{
	struct groups *is = s->own;
	struct place *p = fal_xcalloc((size_t)s->workers + 1, sizeof(*p));
	bool *cut = fal_xcalloc((size_t)s->workers + 1, sizeof(*cut));
	const uint32_t wanted = is->n < s->active ? is->n : s->active;
	const uint32_t n = arrange(s, p, cut);
	if (n > 0 && (fal_teams_count_active(s) != wanted || !is_as_good(s, p, n))) {
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

/* Is the loss more above its best than batches make it by chance?  Of what is between the
 * two means, two standard errors. */
static bool
has_grown(struct groups *is)
{
	if (is->samples <= 0)
		return false;
	const double noise = sqrt(is->off / is->samples / is->told);
	if (!is->watched || is->loss < is->best) {
		is->watched = true;
		is->best = is->loss;
		is->best_noise = noise;
	}
	return is->loss >
	       is->best + loss_guard * fabs(is->best) + 2 * hypot(noise, is->best_noise);
}

/* Every `window` updates: one group more, one less, or as it is.  A fixed number is
 * looked at after each. */
static void
control(struct fal_sched *s, double now)
{
	struct groups *is = s->own;
	const struct fal_rule *rule = &s->policy.rule;
	if (s->version < is->at)
		return;
	double wall = (now - is->since) * s->active;
	double idle = wall > 0 ? is->idle / wall : 0;
	const bool guard = !has_grown(is), first = is->since <= 0;
	if (rule->groups > 0)
		is->n = rule->groups;
	else if ((is->stale > rule->most * is->rounds || !guard) && is->n > 1)
		is->n--;
	else if (idle > too_idle && guard && !first && is->n < rule->most &&
		 is->n < s->active)
		is->n++;
	is->at = s->version + rule->window; /* 0: at each update */
	is->anew = false;
	is->since = now;
	is->idle = 0;
	is->rounds = is->stale = is->told = is->samples = is->loss = is->off = 0;
	regroup(s);
}

/* A worker came or went, or stands elsewhere: groups are formed anew at the next update,
 * which in mode=delta is not put off any longer. */
static void
changed(struct fal_sched *s, double now)
{
	struct groups *is = s->own;
	(void)now;
	is->at = s->version;
	is->anew = true;
}

static void
watch(struct fal_sched *s, const struct fal_round *r, uint32_t samples)
{
	struct groups *is = s->own;
	const double loss = (double)fal_ledger_loss(&r->ledger) / samples;
	const double off = loss - is->loss;
	is->rounds++;
	is->stale += (double)r->stale_updates;
	if (!fal_ledger_loss_known(&r->ledger))
		return;
	is->told++;
	is->samples += samples;
	is->loss += samples / is->samples * off;
	is->off += samples * off * (loss - is->loss);
}

static void
form(struct fal_sched *s)
{
	struct groups *is = s->own;
	is->n = 1;
	is->at = s->version;
	is->until = INFINITY;
}

static void
busy(struct fal_sched *s, double idle)
{
	struct groups *is = s->own;
	is->idle += idle;
}

/* What the line has changed goes into the next version. */
static void
collect(struct fal_sched *s, struct fal_team *t, double weight, uint32_t among)
{
	struct group *g = t->own;
	const struct fal_act act = {
		.kind = FAL_ACT_PUSH, .weight = weight, .among = among, .line = t->id
	};
	s->merged -= g->unpushed;
	if (s->merged == 0)
		fal_pending_clear(s);
	g->unpushed = 0;
	fal_act_emit(s, act);
}

static void
step(struct fal_sched *s, struct fal_act act)
{
	act.kind = FAL_ACT_STEP;
	act.own = true;
	act.version = ++s->version;
	fal_act_emit(s, act);
}

/* What the line has changed becomes a part of the model. */
static void
push(struct fal_sched *s, struct fal_team *t)
{
	struct group *g = t->own;
	const struct fal_act act = { .clock = g->newest };
	collect(s, t, g->weight, g->among);
	step(s, act);
}

/* ---- a quorum -------------------------------------------------------------------- */

/* For the next version. */
struct pushes {
	uint32_t came, missing; /* groups */
	uint64_t samples, newest;
};

static struct pushes
pushes(const struct fal_sched *s)
{
	struct pushes p = { 0 };
	for (uint32_t i = 0; i < s->teams; i++) {
		const struct group *g = s->team[i]->own;
		p.came += g->pushed;
		p.missing += !g->pushed && s->team[i]->members > 0;
		p.samples += g->pushed ? g->samples : 0;
		if (g->pushed && g->newest > p.newest)
			p.newest = g->newest;
	}
	if (s->rounds == 0) /* nobody else will */
		p.missing = 0;
	return p;
}

/* Groups with nobody left, and all of them when no round is open, push what they have. */
static void
push_rest(struct fal_sched *s)
{
	for (uint32_t i = 0; i < s->teams; i++) {
		const struct fal_team *t = s->team[i];
		struct group *g = t->own;
		g->pushed |= g->unpushed > 0 && t->open == 0 &&
			     (t->members == 0 || s->rounds == 0);
	}
}

static bool
is_due(struct fal_sched *s, const struct pushes *p, double now)
{
	struct groups *is = s->own;
	const struct fal_rule *rule = &s->policy.rule;
	if (p->came == 0 || (p->came < rule->quorum && p->missing > 0))
		is->until = INFINITY;
	else if (isinf(is->until))
		is->until = now + rule->grace;
	return p->came > 0 && (p->missing == 0 || is->until <= now);
}

/* Where only some push at a time, their versions are to the others what momentum is: both
 * together are to span as many pushes as it does where all push. */
static double
momentum(const struct fal_rule *rule, const struct pushes *p)
{
	const double spans = (double)(p->came + p->missing) / p->came;
	return fmax(1 - (1 - rule->momentum) * spans, 0);
}

static void
publish(struct fal_sched *s, const struct pushes *p)
{
	struct groups *is = s->own;
	const struct fal_rule *rule = &s->policy.rule;
	struct fal_act act = { .clock = p->newest, .among = p->came + p->missing };
	for (uint32_t i = 0; i < s->teams; i++) {
		struct fal_team *t = s->team[i];
		struct group *g = t->own;
		const double part = (double)g->samples / (double)p->samples;
		if (!g->pushed)
			continue;
		if (rule->delta)
			collect(s, t, part, 0);
		g->pushed = false;
		g->samples = 0;
	}
	if (rule->delta) {
		act.weight = rule->outer;
		act.momentum = momentum(rule, p);
	} else {
		act.divisor = s->merged_of;
		act.in = 1;
		fal_pending_clear(s);
	}
	is->until = INFINITY;
	fal_teams_wake(s);
	step(s, act);
}

static void
publish_if_due(struct fal_sched *s, double now)
{
	push_rest(s);
	const struct pushes p = pushes(s);
	if (!is_due(s, &p, now))
		return;
	publish(s, &p);
	control(s, now);
}

static double
until(const struct fal_sched *s)
{
	const struct groups *is = s->own;
	return is->until;
}

static bool
may_begin(const struct fal_sched *s, const struct fal_team *t)
{
	const struct group *g = t->own;
	(void)s;
	return !g->pushed;
}

/* ---- rounds ---------------------------------------------------------------------- */

static void
flush(struct fal_sched *s, double now)
{
	if (s->policy.rule.quorum > 0) {
		publish_if_due(s, now);
		return;
	}
	if (!s->policy.rule.delta) {
		if (s->rounds == 0)
			fal_pending_apply(s, s->merged_of);
		return;
	}
	for (uint32_t i = 0; i < s->teams; i++) {
		struct fal_team *t = s->team[i];
		const struct group *g = t->own;
		if (g->unpushed == 0 || t->open > 0 || (t->members > 0 && s->rounds > 0))
			continue;
		push(s, t);
	}
}

/* A line that has nothing to push takes over the newest version. */
static void
prepare(struct fal_sched *s, struct fal_team *t)
{
	struct group *g = t->own;
	/* What is on a line has one weight, that by which its gradients were divided. */
	if (s->policy.rule.delta && g->unpushed > 0)
		return;
	g->among = s->active;
	g->weight = (double)t->members / s->active;
	if (!s->policy.rule.delta)
		return;
	t->line = fal_branch_version(t->id, ++s->lines);
	g->taken = s->version;
	struct fal_act act = { .kind = FAL_ACT_LINE, .version = t->line };
	fal_act_emit(s, act);
}

static void
begin(struct fal_sched *s, struct fal_team *t, struct fal_round *r)
{
	struct group *g = t->own;
	if (!s->policy.rule.delta)
		return;
	r->version = t->line;
	r->taken = g->taken;
	r->local = g->unpushed + 1;
}

/* A round on a line is over: its gradients step the line. */
static void
step_line(struct fal_sched *s, struct fal_round *r, struct fal_act *end)
{
	struct fal_team *t = r->team;
	struct group *g = t->own;
	r->stale_updates = s->version - r->taken;
	t->line = fal_branch_version(t->id, ++s->lines);
	g->newest = g->unpushed == 0 || r->clock > g->newest ? r->clock : g->newest;
	g->unpushed++;
	end->fate = FAL_FATE_LINE;
	end->version = t->line;
	if (s->policy.rule.quorum > 0) {
		end->divisor = fal_round_samples(s, r);
		return;
	}
	/* |g|/M of a clock: what is less at its end counts less. */
	end->divisor = g->weight * fal_grid_samples(&s->grid, r->clock);
	end->among = g->among;
}

static void
complete(struct fal_sched *s, struct fal_round *r, double now)
{
	struct groups *is = s->own;
	const struct fal_rule *rule = &s->policy.rule;
	struct fal_team *t = r->team;
	struct group *g = t->own;
	uint32_t samples = fal_round_counted_samples(s, r);
	/* |g|/M, where the clock's tasks can be split so. */
	double weight =
		(double)fal_round_samples(s, r) / fal_grid_samples(&s->grid, r->clock);
	struct fal_act end = { .fate = FAL_FATE_MERGE,
			       .weight = rule->delta ? g->weight : weight };
	uint64_t slowest = fal_slowest_clock(s, NULL);
	fal_round_set_staleness(s, r, t->clock > slowest ? t->clock - slowest : 0);
	if (rule->delta)
		step_line(s, r, &end);
	if (samples > 0)
		watch(s, r, samples);
	fal_round_end(s, r, end, now);
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (!w->gone && w->team == t)
			fal_worker_account(s, w, r);
	}
	double divisor = fal_round_divisor(s, r);
	g->samples += rule->quorum > 0 ? samples : 0;
	if (rule->delta && g->unpushed < rule->rounds && !is->anew)
		return;
	if (rule->quorum > 0) {
		g->pushed = true;
		g->newest = rule->delta ? g->newest : r->clock;
		return;
	}
	if (rule->delta)
		push(s, t);
	else
		fal_pending_apply(s, divisor);
	control(s, now);
}

const struct fal_scheme fal_scheme_groups = { .own = sizeof(struct groups),
					      .team_own = sizeof(struct group),
					      .form = form,
					      .prepare = prepare,
					      .begin = begin,
					      .may_begin = may_begin,
					      .complete = complete,
					      .flush = flush,
					      .until = until,
					      .busy = busy,
					      .changed = changed };
