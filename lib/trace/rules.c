/* The schemes' promises. */
#include "trace/rules.h"

#include "base/mem.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How far a weight may be off: it is written with at most 17 digits. */
#define WEIGHT_TOLERANCE 1e-6

void
fal_rules_begin(struct fal_rules *s, const struct fal_rule *rule, uint64_t newest)
{
	s->rule = *rule;
	s->is = fal_rule_traits(rule);
	s->base = newest;
	s->applied = 0;
	s->slots = 0;
	s->newest = 0;
}

void
fal_rules_free(struct fal_rules *s)
{
	free(s->slot);
	*s = (struct fal_rules){ 0 };
}

uint64_t
fal_rules_version(const struct fal_rules *s)
{
	const uint32_t delay = s->is.delay;
	return s->base + (s->applied > delay ? s->applied - delay : 0);
}

/* Whose it is, and what it sums up. */
static void
judge_kind(const struct fal_rules *s, const struct fal_trace_round *r,
	   struct fal_findings *f)
{
	if (r->has_owner != s->is.own)
		fal_finding(f, r, 0, 0, r->has_owner ? "worker %u owns it" : "no owner",
			    r->owner);
	if (r->has_group != s->is.groups)
		fal_finding(f, r, 0, 0, r->has_group ? "it is of a group" : "no group");
	if (r->local > s->rule.rounds || (r->local == 0) != (s->rule.rounds == 0))
		fal_finding(f, r, 0, 0, "local is %llu, but at most %u round%s pushed",
			    (unsigned long long)r->local, s->rule.rounds,
			    s->rule.rounds == 1 ? " is" : "s are");
	if (r->delta != s->is.delta)
		fal_finding(f, r, 0, 0, "kind is %s", r->delta ? "delta" : "grad");
	if (r->steps > 0 && r->steps != s->rule.steps)
		fal_finding(f, r, 0, 0, "steps is %llu, not %u",
			    (unsigned long long)r->steps, s->rule.steps);
	if (r->moved && !s->is.moves)
		fal_finding(f, r, 0, 0, "tasks were moved, which the scheme does not");
	if (s->is.shared && r->end == FAL_TRACE_DROPPED)
		fal_finding(f, r, r->first, r->tasks, "dropped");
}

/* The factor that a change of weights counts by. */
static void
judge_weight(const struct fal_rules *s, const struct fal_trace_round *r,
	     struct fal_findings *f)
{
	double want = r->weight;
	if (!r->delta)
		want = 1;
	else if (s->rule.lambda > 0)
		want = s->rule.lambda;
	else if (r->among > 0) /* the default: that of one of them */
		want = 1 / (double)r->among;
	else if (s->rule.by_updates)
		want = 1 / ((double)r->updates + 1);
	else if (s->all_said && !s->is.ranked)
		fal_finding(f, r, 0, 0,
			    "nothing says of how many workers its weight is a share");
	if (!(r->weight > 0 && r->weight <= 1))
		fal_finding(f, r, 0, 0, "weight is %g", r->weight);
	else if (fabs(r->weight - want) > WEIGHT_TOLERANCE)
		fal_finding(f, r, 0, 0, "weight is %g, not %g", r->weight, want);
}

/* The open slot of the round, or NULL: no memory.  Slots so old that nobody can bring
 * anything for them any more are forgotten: workers may have left. */
static struct fal_slot *
slot_of(struct fal_rules *s, uint64_t slot)
{
	size_t kept = 0, at = SIZE_MAX;
	for (size_t i = 0; i < s->slots; i++) {
		if (s->slot[i].slot + s->rule.slack + 1 < s->newest)
			continue;
		if (s->slot[i].slot == slot)
			at = kept;
		s->slot[kept++] = s->slot[i];
	}
	s->slots = kept;
	if (at != SIZE_MAX)
		return &s->slot[at];
	if (FAL_GROW(s->slot, s->cap, s->slots + 1) < 0)
		return NULL;
	s->slot[s->slots] = (struct fal_slot){ .slot = slot };
	return &s->slot[s->slots++];
}

/* dynsgd by version: the rounds of a slot arrive as 1, 2, … */
static int
judge_rank(struct fal_rules *s, const struct fal_trace_round *r, struct fal_findings *f)
{
	if (r->slot > s->newest)
		s->newest = r->slot;
	if (!r->has_slot || r->slot + s->rule.slack + 1 < s->newest) {
		fal_finding(f, r, 0, 0, r->has_slot ? "slot %llu is too old" : "no slot",
			    (unsigned long long)r->slot);
		return 0;
	}
	struct fal_slot *at = slot_of(s, r->slot);
	if (at == NULL)
		return FAL_ENOMEM;
	if (r->rank != at->rank + 1)
		fal_finding(f, r, 0, 0, "rank is %llu, but %llu came before in slot %llu",
			    (unsigned long long)r->rank, (unsigned long long)at->rank,
			    (unsigned long long)r->slot);
	else if (fabs(r->weight - 1 / (double)r->rank) > WEIGHT_TOLERANCE)
		fal_finding(f, r, 0, 0, "weight is %g, not %g", r->weight,
			    1 / (double)r->rank);
	if (r->rank > at->rank)
		at->rank = r->rank;
	return 0;
}

int
fal_rules_round(struct fal_rules *s, const struct fal_trace_round *r, uint64_t newest,
		struct fal_findings *f)
{
	judge_kind(s, r, f);
	if (r->version > newest)
		fal_finding(f, r, 0, 0, "version is %llu, but the newest is %llu",
			    (unsigned long long)r->version, (unsigned long long)newest);
	if (r->end != FAL_TRACE_APPLIED)
		return 0;
	if (s->is.shared && r->version != fal_rules_version(s))
		fal_finding(f, r, 0, 0, "version is %llu, not %llu",
			    (unsigned long long)r->version,
			    (unsigned long long)fal_rules_version(s));
	if (s->is.bounded && r->clocks > s->rule.slack)
		fal_finding(f, r, 0, 0,
			    "it is %llu clock%s before the slowest, but the slack is %u",
			    (unsigned long long)r->clocks, fal_text_s(r->clocks),
			    s->rule.slack);
	if (!s->is.shared && !r->has_stale)
		fal_finding(f, r, 0, 0, "nothing says how stale it is");
	judge_weight(s, r, f);
	s->applied++;
	return s->is.ranked ? judge_rank(s, r, f) : 0;
}

bool
fal_rules_by_group(const struct fal_rules *s)
{
	return s->rule.rounds > 0;
}

/* The samples that gradients are divided by: of so many that count. */
static void
judge_divisor(const struct fal_rules *s, const struct fal_trace_round *r, double is,
	      double want, uint64_t samples, struct fal_findings *f)
{
	if (is > 0 && fabs(is - want) > WEIGHT_TOLERANCE * want)
		fal_finding(f, r, 0, 0, "divisor is %g, not %g", is, want);
	if (!(is > 0) && s->all_said && samples > 0)
		fal_finding(f, r, 0, 0, "nothing says what its gradients are divided by");
}

/* groups, mode=delta: what a line has done since it took over a version. */
static void
judge_line(const struct fal_rules *s, const struct fal_trace_round *r,
	   const struct fal_rules_update *u, struct fal_findings *f)
{
	if (r->group != u->group || r->version != u->model)
		fal_finding(f, r, 0, 0,
			    "it is of group %llu, version %llu, but version %llu began "
			    "with group %llu, version %llu",
			    (unsigned long long)r->group, (unsigned long long)r->version,
			    (unsigned long long)u->version, (unsigned long long)u->group,
			    (unsigned long long)u->model);
	if (r->local != u->local)
		fal_finding(f, r, 0, 0,
			    "local is %llu, but it is number %llu of version %llu",
			    (unsigned long long)r->local, (unsigned long long)u->local,
			    (unsigned long long)u->version);
	if (s->rule.quorum > 0)
		judge_divisor(s, r, r->divisor, (double)r->samples, r->samples, f);
	else if (!(u->weight > 0 && u->weight <= 1))
		fal_finding(f, r, 0, 0, "the weight of version %llu is %g",
			    (unsigned long long)u->version, u->weight);
}

void
fal_rules_divisor(const struct fal_rules *s, const struct fal_trace_round *r,
		  const struct fal_rules_update *u, uint64_t samples,
		  struct fal_findings *f)
{
	const bool line = fal_rules_by_group(s);
	/* Where all is skipped nothing is divided. */
	const double want =
		(double)(s->is.counted || samples == 0 ? samples : u->clock_samples);
	if ((line || s->is.delta) && u->divisor > 0)
		fal_finding(f, r, 0, 0, "version %llu has a divisor, but no gradients",
			    (unsigned long long)u->version);
	else if (line && s->rule.quorum > 0)
		return; /* each round by its own samples */
	else if (line)  /* the same part of the workers */
		judge_divisor(s, r, r->divisor, u->weight * (double)u->clock_samples,
			      r->samples, f);
	else if (!s->is.delta)
		judge_divisor(s, r, u->divisor, want, samples, f);
}

void
fal_rules_update(const struct fal_rules *s, const struct fal_trace_round *r,
		 const struct fal_rules_update *u, struct fal_findings *f)
{
	const bool line = fal_rules_by_group(s);
	const uint64_t was = u->version > 0 ? u->version - 1 : 0;
	if (!s->is.collects && u->rounds > 1)
		fal_finding(f, r, 0, 0, "version %llu is made of %zu rounds",
			    (unsigned long long)u->version, u->rounds);
	if (s->is.fresh && r->version != was)
		fal_finding(f, r, 0, 0, "it ran on version %llu, but was applied to %llu",
			    (unsigned long long)r->version, (unsigned long long)was);
	if (line)
		judge_line(s, r, u, f);
	if (!r->has_stale || r->version > was)
		return;
	/* While a line is not pushed yet, others make versions. */
	const uint64_t stale = was - r->version;
	if (line && r->local < s->rule.rounds ? r->updates > stale : r->updates != stale)
		fal_finding(f, r, 0, 0, "stale by %llu update%s, not %llu",
			    (unsigned long long)r->updates, fal_text_s(r->updates),
			    (unsigned long long)stale);
}
