/* What went on side by side. */
#include "trace/overlap.h"

#include <math.h>
#include <stdbool.h>

struct span {
	uint64_t from, to; /* µs */
};

/* For how long both were going on. */
static uint64_t
both(struct span a, struct span b)
{
	const uint64_t from = a.from > b.from ? a.from : b.from;
	const uint64_t to = a.to < b.to ? a.to : b.to;
	return to > from ? to - from : 0;
}

enum { PULL, COMPUTE, PUSH, SPANS };

/* Those of a `clock` line; false: it has none, or they are wrong. */
static bool
spans(struct fal_trace_line *l, struct span s[static SPANS])
{
	const struct fal_numbers rows = l->is.clock.spans;
	if (rows.v == NULL)
		return false;
	if (rows.n != SPANS)
		fal_trace_fail(l, FAL_EFORMAT, "spans: not %d", SPANS);
	for (size_t i = 0; i < SPANS && l->err == 0; i++) {
		s[i] = (struct span){ rows.v[2 * i], rows.v[2 * i + 1] };
		if (s[i].to < s[i].from)
			fal_trace_fail(l, FAL_EINVAL, "spans: one ends before it begins");
	}
	if (l->err == 0 && isnan(l->is.clock.waited))
		fal_trace_fail(l, FAL_EFORMAT, "waited: missing");
	return l->err == 0;
}

/* It is known of the version whether it was ahead. */
static void
count(struct fal_overlap *o, uint64_t version, bool ahead)
{
	const uint64_t at = version % FAL_OVERLAP_LAST;
	o->versions += !o->of[at].known;
	o->ahead += ahead && !o->of[at].ahead;
	o->of[at].known = true;
	o->of[at].ahead |= ahead;
}

/* What is known of the clock, of which lines come in any order. */
static struct fal_overlap_ran *
ran_in(struct fal_overlap *o, uint64_t clock)
{
	struct fal_overlap_ran *ran = &o->ran[clock % FAL_OVERLAP_LAST];
	if (ran->clock != clock + 1)
		*ran = (struct fal_overlap_ran){ .clock = clock + 1, .from = UINT64_MAX };
	return ran;
}

/* Did the first who was sent what the clock's round ran on have some of it too soon? */
static void
judge(struct fal_overlap *o, const struct fal_overlap_ran *ran)
{
	const uint64_t of = ran->version % FAL_OVERLAP_LAST;
	if (ran->version > 0 && ran->from < UINT64_MAX &&
	    o->of[of].version == ran->version && o->of[of].came > 0)
		count(o, ran->version, ran->from < o->of[of].came);
}

int
fal_overlap_clock(struct fal_overlap *o, struct fal_trace_line *l)
{
	struct span s[SPANS];
	if (!spans(l, s))
		return l->err;
	const double waited = round(1e6 * l->is.clock.waited);
	/* While it waits for what comes it does not compute. */
	const uint64_t beside = both(s[PULL], s[COMPUTE]);
	o->pull += s[PULL].to - s[PULL].from;
	o->push += s[PUSH].to - s[PUSH].from;
	o->pulled += waited < (double)beside ? beside - (uint64_t)waited : 0;
	o->pushed += both(s[PUSH], s[COMPUTE]);
	if (l->is.clock.round == FAL_TRACE_ABSENT) {
		struct fal_overlap_ran *ran = ran_in(o, l->is.clock.clock);
		ran->from = s[PULL].from < ran->from ? s[PULL].from : ran->from;
		judge(o, ran);
	}
	return l->err;
}

void
fal_overlap_ledger(struct fal_overlap *o, const struct fal_ev_ledger *e)
{
	struct fal_overlap_ran *ran = ran_in(o, e->clock);
	o->came = fmax(o->came, e->came);
	ran->version = e->version;
	judge(o, ran);
}

void
fal_overlap_update(struct fal_overlap *o, const struct fal_ev_update *e)
{
	const uint64_t at = e->version % FAL_OVERLAP_LAST;
	o->of[at].version = e->version;
	o->of[at].came = (uint64_t)round(1e6 * o->came);
	o->of[at].known = o->of[at].ahead = false;
	if (!isnan(e->made))
		count(o, e->version, e->made < o->came);
	o->came = 0;
}
