/* The promises of each scheme about its rounds and versions, judged from the trace.
 *
 * Owns the rules that a trace shows: the version that a round may run on, the owner of a
 * round, the rounds of an update, the staleness that is allowed.  The rules are those of
 * falcon-trace(5), section AUDIT.
 */
#include "trace/audit_priv.h"

#include "base/mem.h"
#include "base/text.h"

#include <math.h>

/* Adds a finding about round r, or, with NULL, about the version that the text names. */
#define finding(f, r, ...) fal_finding(f, r, 0, 0, __VA_ARGS__)

/* The tolerance of a weight, which the trace has with at most 17 digits. */
#define WEIGHT_TOLERANCE 1e-6

/* dynsgd by version: the rounds of a slot have the ranks 1, 2, … */
static void
rules_judge_rank(struct fal_rules *s, const struct fal_trace_round *r,
		 struct fal_findings *f)
{
	const bool has = r->slot != FAL_TRACE_ABSENT;
	size_t kept = 0, at = SIZE_MAX;
	if (has && r->slot > s->newest_slot)
		s->newest_slot = r->slot;
	if (!has || r->slot + s->rule.slack + 1 < s->newest_slot) {
		finding(f, r, has ? "slot %ju is too old" : "no slot", r->slot);
		return;
	}
	/* Forgets slots that are too old for any worker to contribute to.  Some of their
	 * workers may have left. */
	for (size_t i = 0; i < s->slots; i++) {
		if (s->slot[i].slot + s->rule.slack + 1 < s->newest_slot)
			continue;
		at = s->slot[i].slot == r->slot ? kept : at;
		s->slot[kept++] = s->slot[i];
	}
	s->slots = kept;
	if (at == SIZE_MAX) {
		at = s->slots++;
		FAL_XGROW(s->slot, s->cap, s->slots);
		s->slot[at] = (struct fal_slot){ .slot = r->slot };
	}
	uint64_t *rank = &s->slot[at].rank;
	if (r->stale.rank != *rank + 1)
		finding(f, r, "rank is %ju, but %ju came before in slot %ju",
			r->stale.rank, *rank, r->slot);
	if (r->stale.rank > *rank)
		*rank = r->stale.rank;
}

void
fal_rules_judge_round(struct fal_rules *s, const struct fal_trace_round *r,
		      struct fal_findings *f)
{
	/* The round's owner or group, and the kind of its contributions. */
	if ((r->owner != 0) != s->traits.own)
		finding(f, r, r->owner != 0 ? "worker %u owns it" : "no owner", r->owner);
	if ((r->group != 0) != s->traits.groups)
		finding(f, r, r->group != 0 ? "a group owns it" : "no group");
	if (r->local > s->rule.rounds || (r->local == 0) != (s->rule.rounds == 0))
		finding(f, r, "local is %ju, but at most %u round%s pushed", r->local,
			s->rule.rounds, s->rule.rounds == 1 ? " is" : "s are");
	if (r->delta != s->traits.delta)
		finding(f, r, "kind is %s", r->delta ? "delta" : "grad");
	if (r->steps > 0 && r->steps != s->rule.steps)
		finding(f, r, "steps is %ju, not %u", r->steps, s->rule.steps);
	if (r->moved && !s->traits.moves)
		finding(f, r, "tasks were moved, but the scheme moves none");
	if (s->traits.shared && r->end == FAL_END_DROPPED)
		fal_finding(f, r, r->first, r->tasks, "dropped");
	if (r->end != FAL_END_APPLIED)
		return;
	/* The version that the round must have run on, if rounds are shared. */
	const uint32_t delay = s->traits.delay;
	const uint64_t version =
		s->base_version + (s->applied > delay ? s->applied - delay : 0);
	if (s->traits.shared && r->version != version)
		finding(f, r, "version is %ju, not %ju", r->version, version);
	if (s->traits.bounded && r->stale.clocks > s->rule.slack)
		finding(f, r, "it is %ju clock%s before the slowest, but the slack is %u",
			r->stale.clocks, fal_text_plural(r->stale.clocks), s->rule.slack);
	if (!s->traits.shared && !r->has_stale)
		finding(f, r, "nothing says how stale it is");
	if (s->rule.threshold > 0 && r->stale.updates >= s->rule.threshold)
		finding(f, r, "stale by %ju update%s, but the threshold is %u",
			r->stale.updates, fal_text_plural(r->stale.updates),
			s->rule.threshold);
	/* The weight of a change of parameters. */
	double want = r->weight;
	if (!r->delta)
		want = 1;
	else if (s->traits.ranked)
		want = r->stale.rank > 0 ? 1 / (double)r->stale.rank : r->weight;
	else if (s->rule.lambda > 0)
		want = s->rule.lambda;
	else if (r->among > 0) /* the default: one of so many workers */
		want = 1 / (double)r->among;
	else if (s->rule.by_updates)
		want = 1 / ((double)r->stale.updates + 1);
	else if (s->wants_divisors)
		finding(f, r, "nothing says how many workers share its weight");
	if (!(r->weight > 0 && r->weight <= 1))
		finding(f, r, "weight is %g", r->weight);
	else if (fabs(r->weight - want) > WEIGHT_TOLERANCE)
		finding(f, r, "weight is %g, not %g", r->weight, want);
	s->applied++;
	if (s->traits.ranked)
		rules_judge_rank(s, r, f);
}

/* Judges the divisor of a round's gradients, which have so many samples. */
static void
rules_judge_divisor(const struct fal_rules *s, const struct fal_trace_round *r,
		    double divisor, double want, uint64_t samples, struct fal_findings *f)
{
	if (divisor > 0 && fabs(divisor - want) > WEIGHT_TOLERANCE * want)
		finding(f, r, "divisor is %g, not %g", divisor, want);
	if (!(divisor > 0) && s->wants_divisors && samples > 0)
		finding(f, r, "nothing says the divisor of its gradients");
}

/* ---- updates -------------------------------------------------------------------------
 */

/* Returns the push of the group in this update, and adds it if it is new. */
static struct fal_pushed *
rules_push_of(struct fal_rules *s, uint64_t group)
{
	for (size_t i = 0; i < s->pushes; i++)
		if (s->push[i].group == group)
			return &s->push[i];
	FAL_XGROW(s->push, s->push_cap, s->pushes + 1);
	s->push[s->pushes] = (struct fal_pushed){ .group = group };
	return &s->push[s->pushes++];
}

void
fal_rules_begin_update(struct fal_rules *s, const struct fal_ev_update *line)
{
	s->pushes = 0;
	for (size_t i = 0; i < line->pushes.n; i++) {
		const double *row = line->pushes.v + 2 * i;
		rules_push_of(s, (uint64_t)row[0])->weight += row[1];
	}
}

void
fal_rules_judge_update_round(struct fal_rules *s, const struct fal_rules_update *u,
			     struct fal_findings *f)
{
	const struct fal_trace_round *r = &u->last;
	const bool has_branch = s->rule.rounds > 0;
	const uint64_t before = u->version > 0 ? u->version - 1 : 0;
	if (!s->traits.collects && u->line->rounds.n > 1)
		finding(f, r, "version %ju is made of %zu rounds", u->version,
			u->line->rounds.n);
	if (s->traits.fresh && r->version != before)
		finding(f, r, "it ran on version %ju, but was applied to %ju", r->version,
			before);
	if (s->rule.batch > 0 && u->tasks >= s->rule.batch)
		finding(f, r, "version %ju had %ju tasks before it, but a batch is %u",
			u->version, u->tasks, s->rule.batch);
	if (has_branch) { /* the rounds of a group since it took over a version */
		if (r->group != u->group || r->version != u->base_version)
			finding(f, r,
				"it is of group %ju, version %ju, but version %ju began "
				"with group %ju, version %ju",
				r->group, r->version, u->version, u->group,
				u->base_version);
		if (r->local != u->local)
			finding(f, r, "local is %ju, but it is number %ju of version %ju",
				r->local, u->local, u->version);
		if (s->rule.quorum > 0)
			rules_judge_divisor(s, r, r->divisor, (double)r->samples,
					    r->samples, f);
		else if (!(u->line->weight > 0 && u->line->weight <= 1))
			finding(f, r, "the weight of version %ju is %g", u->version,
				u->line->weight);
	}
	if (u->line->groups > 0) {
		struct fal_pushed *push = rules_push_of(s, r->group);
		push->samples += r->samples;
		push->rounds++;
	}
	if (!r->has_stale || r->version > before)
		return;
	/* Other groups make versions until the branch is pushed. */
	const uint64_t stale = before - r->version;
	if (has_branch && r->local < s->rule.rounds ? r->stale.updates > stale
						    : r->stale.updates != stale)
		finding(f, r, "stale by %ju update%s, not %ju", r->stale.updates,
			fal_text_plural(r->stale.updates), stale);
}

/* Judges the pushes of a quorum, each of which counts by its samples, and the outer step.
 */
static void
rules_judge_pushes(const struct fal_rules *s, const struct fal_rules_update *u,
		   struct fal_findings *f)
{
	const uint64_t groups = u->line->groups;
	const uint64_t least = s->rule.quorum < groups ? s->rule.quorum : groups;
	double samples = 0;
	if ((groups > 0) != (s->rule.quorum > 0)) {
		finding(f, NULL,
			s->rule.quorum > 0
				? "version %ju: the number of groups is missing"
				: "version %ju: a quorum, but the scheme has none",
			u->version);
		return;
	}
	if (s->rule.quorum == 0)
		return;
	if (s->pushes < least || s->pushes > groups)
		finding(f, NULL,
			"version %ju: %zu of %ju groups have pushed, but the quorum "
			"is %u",
			u->version, s->pushes, groups, s->rule.quorum);
	for (size_t i = 0; i < s->pushes; i++)
		samples += (double)s->push[i].samples;
	for (size_t i = 0; i < s->pushes; i++) {
		const struct fal_pushed *p = &s->push[i];
		const double want = samples > 0 ? (double)p->samples / samples : 0;
		if (s->rule.delta && fabs(p->weight - want) > WEIGHT_TOLERANCE)
			finding(f, NULL,
				"version %ju: group %ju counts by %g, but has %g of "
				"its samples",
				u->version, p->group, p->weight, want);
		else if (!s->rule.delta && p->rounds > 1)
			finding(f, NULL, "version %ju: group %ju has pushed %ju times",
				u->version, p->group, p->rounds);
	}
	if (!s->rule.delta || s->pushes == 0)
		return;
	/* The outer step and its momentum, which is smaller if only some groups push. */
	const struct fal_reals row = u->line->outer;
	const double outer = row.n > 0 ? row.v[0] : 0,
		     momentum = row.n > 1 ? row.v[1] : 0;
	const double times = (double)groups / (double)s->pushes;
	const double want = fmax(1 - (1 - s->rule.momentum) * times, 0);
	if (fabs(outer - s->rule.outer_rate) > WEIGHT_TOLERANCE)
		finding(f, NULL, "version %ju: its outer rate is %g, not %g", u->version,
			outer, s->rule.outer_rate);
	if (fabs(momentum - want) > WEIGHT_TOLERANCE)
		finding(f, NULL, "version %ju: its outer momentum is %g, not %g",
			u->version, momentum, want);
}

void
fal_rules_end_update(const struct fal_rules *s, const struct fal_rules_update *u,
		     struct fal_findings *f)
{
	rules_judge_pushes(s, u, f);
	if (u->last.tasks == 0)
		return;
	/* The divisor of the gradients. */
	const struct fal_trace_round *r = &u->last;
	const uint64_t samples = u->samples;
	const bool has_branch = s->rule.rounds > 0;
	/* If all tasks of the update were skipped, there are no gradients to divide. */
	const double want = s->traits.counted || samples == 0
				    ? (double)samples
				    : (double)samples / u->share;
	if ((has_branch || s->traits.delta) && u->line->divisor > 0)
		finding(f, r, "version %ju has a divisor, but no gradients", u->version);
	else if (has_branch && s->rule.quorum > 0)
		return;      /* each round is divided by its own samples */
	else if (has_branch) /* by the workers' share of the clock */
		rules_judge_divisor(s, r, r->divisor,
				    u->line->weight * (double)u->clock_samples,
				    r->samples, f);
	else if (!s->traits.delta)
		rules_judge_divisor(s, r, u->line->divisor, want, samples, f);
}
