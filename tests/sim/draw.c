/* What a cluster is like. */
#include "draw.h"

#include "base/mem.h"
#include "base/rng.h"
#include "lies.h"
#include "sched/policy.h"
#include "server/group.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double
between(struct fal_rng *r, double low, double high)
{
	return low + (high - low) * (double)fal_rng_unit(r);
}

static bool
chance(struct fal_rng *r, double p)
{
	return (double)fal_rng_unit(r) < p;
}

/* A machine without faults. */
static struct machine
draw_machine(struct fal_rng *r, double task_s)
{
	static const double slow[] = { 1, 1, 1, 2, 4, 8 };
	struct machine m = { .task_s = task_s * slow[fal_rng_below(r, 6)],
			     .jitter = between(r, 0, 0.3),
			     .fixed = between(r, 0, 0.6),
			     .lanes_min = 1,
			     .lanes_max = 1 + fal_rng_below(r, 4),
			     .cores = 1 + fal_rng_below(r, 4),
			     .latency = between(r, 1e-5, task_s),
			     .per_byte = chance(r, 0.3) ? task_s * 1e-5 : 1e-9,
			     .window = 1 + fal_rng_below(r, 4),
			     .push_blocks = fal_rng_below(r, 4),
			     .crash_at = INFINITY,
			     .leave_at = INFINITY,
			     .stall_at = INFINITY,
			     .hang_at = INFINITY,
			     .cut_at = INFINITY };
	return m;
}

/* Something bad, some time in the job's expected length. */
static void
strike(struct fal_rng *r, struct machine *m, double length)
{
	double at = m->join_at + between(r, 0, length);
	switch (fal_rng_below(r, 5)) {
	case 0:
		m->crash_at = at;
		break;
	case 1:
		m->crash_at = at;
		m->silent = true;
		break;
	case 2:
		m->leave_at = at;
		break;
	case 3:
		m->stall_at = at;
		m->stall_s = between(r, 0, 2);
		break;
	default:
		m->cut_at = at;
		m->cut_s = between(r, 0, 2);
		break;
	}
}

/* It hangs, from the start or later. */
static void
hang(struct fal_rng *r, struct machine *m, double length)
{
	m->hang = (enum hang)(1 + fal_rng_below(r, HANG_DRAWN - 1));
	m->hang_at = chance(r, 0.3) ? 0 : between(r, 0, length);
}

static const char *
draw_scheme(struct fal_rng *r)
{
	static const char *const covered[] = { "bsp",    "epsp",   "epsp",
					       "epsp:1", "epsp:2", "epsp:5" };
	static const char *const others[] = { "asp",
					      "ssp:0",
					      "ssp:1",
					      "ssp:3",
					      "flexrr:0",
					      "flexrr:1",
					      "flexrr:2,steal=half",
					      "syncopt:0",
					      "syncopt:1",
					      "syncopt",
					      "consgd:3",
					      "consgd:0,steps=2",
					      "dynsgd:3",
					      "dynsgd:1,staleness=updates",
					      "wbsp",
					      "wbsp,overlap=no,cap=2",
					      "wbsp,publish=slowest,steps=2",
					      "groups:2",
					      "groups:4",
					      "groups:progressive,window=3",
					      "groups:2,mode=delta",
					      ("groups:progressive,window=3,"
					       "mode=delta,rounds=3") };
	if (chance(r, 0.6))
		return covered[fal_rng_below(r, sizeof(covered) / sizeof(covered[0]))];
	return others[fal_rng_below(r, sizeof(others) / sizeof(others[0]))];
}

/* Groups of which a quorum makes a version, by a stream of their own. */
static void
draw_groups(struct plan *p, const struct focus *only)
{
	static const char *const quorums[] = {
		"groups:2,quorum=2",
		"groups:3,quorum=2,grace=0.01",
		"groups:4,quorum=1,grace=0.1",
		"groups:4,quorum=3,grace=1",
		"groups:progressive,window=3,quorum=2",
		"groups:2,mode=delta,quorum=2,momentum=0",
		"groups:3,mode=delta,quorum=2",
		("groups:4,mode=delta,rounds=3,quorum=2,grace=0.02,"
		 "outer=0.5,momentum=0.95"),
		"groups:progressive,window=3,mode=delta,rounds=2,quorum=1,grace=0.2"
	};
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 29), *r = &own;
	const bool groups = strncmp(p->scheme, "groups", strlen("groups")) == 0;
	if (only->scheme == NULL && !only->exact && groups && chance(r, 0.6))
		p->scheme = quorums[fal_rng_below(r, sizeof(quorums) / sizeof(*quorums))];
}

/* Schemes that came later, by a stream of their own. */
static void
draw_later(struct plan *p, const struct focus *only)
{
	static const char *const later[] = { "bsp,shares=speed", "rennala",
					     "rennala:1",        "rennala:5",
					     "ringmaster",       "ringmaster:1",
					     "ringmaster:3" };
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 56), *r = &own;
	if (only->scheme == NULL && !only->exact && chance(r, 0.1))
		p->scheme = later[fal_rng_below(r, sizeof(later) / sizeof(*later))];
}

/* Half of a slack of one are fractions, by a stream of their own. */
static void
draw_fractions(struct plan *p, const struct focus *only)
{
	static const char *const some[] = { "epsp:1/4", "epsp:1/2", "epsp:7/8",
					    "epsp:1/16" };
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 57), *r = &own;
	const char *is = some[fal_rng_below(r, sizeof(some) / sizeof(*some))];
	if (only->scheme == NULL && strcmp(p->scheme, "epsp:1") == 0 && chance(r, 0.5))
		p->scheme = is;
	for (uint32_t i = 0; i < p->orders; i++) {
		const char **scheme = &p->order[i].scheme;
		if (*scheme != NULL && strcmp(*scheme, "epsp:1") == 0 && chance(r, 0.5))
			*scheme = is;
	}
}

/* What a controller asks for on the way; the times are set by scale_orders. */
static void
draw_orders(struct fal_rng *r, struct plan *p)
{
	bool neutral = chance(r, 0.5);
	p->orders = chance(r, 0.25) ? 1 + fal_rng_below(r, MAX_ORDERS) : 0;
	for (uint32_t i = 0; i < p->orders; i++) {
		struct order *o = &p->order[i];
		o->at = between(r, 0, 1);
		o->pause_s = between(r, 0, 1);
		if (chance(r, 0.3))
			continue;
		o->scheme = neutral ? (chance(r, 0.5) ? "bsp" : "epsp") : draw_scheme(r);
	}
}

static void
scale_orders(struct plan *p, double length)
{
	for (uint32_t i = 0; i < p->orders; i++) {
		p->order[i].at *= length;
		p->order[i].pause_s *= length / 2;
	}
}

/* All but the last one hang, and nothing else happens. */
static void
hang_all(struct fal_rng *r, struct plan *p, double task_s, double length)
{
	p->hung = true;
	p->orders = 0;
	for (uint32_t i = 0; i < p->machines; i++) {
		struct machine *m = &p->machine[i];
		double join_at = m->join_at;
		*m = draw_machine(r, task_s);
		m->join_at = join_at;
		if (i + 1 < p->machines)
			hang(r, m, length);
		else if (chance(r, 0.3))
			m->join_at = between(r, 0, length);
	}
}

/* Processes that lost their session open another one, before or after the coordinator
 * knows. */
static void
open_again(struct fal_rng *r, struct plan *p)
{
	const uint32_t n = p->machines;
	for (uint32_t i = 0; i < n; i++) {
		const struct machine *was = &p->machine[i];
		if (was->crash_at == INFINITY || was->flaky || was->lie != HONEST ||
		    chance(r, 0.5))
			continue;
		struct machine *m = &p->machine[p->machines++];
		*m = *was;
		m->again = i + 1;
		m->join_at = was->crash_at + between(r, 0, 2);
		m->crash_at = m->leave_at = m->stall_at = m->cut_at = INFINITY;
		m->hang_at = INFINITY;
		m->hang = HANG_NOT;
		m->silent = false;
	}
}

static enum lie
draw_lie(struct fal_rng *r)
{
	return (enum lie)(1 + fal_rng_below(r, LIES - 1));
}

/* The first one lies. */
static void
become_liar(struct fal_rng *r, struct plan *p, double task_s)
{
	struct machine *m = &p->machine[0];
	m->lie = draw_lie(r);
	if (m->lie >= LIE_PUSHES)
		m->join_at += 4 * task_s; /* who is alone is believed */
	if (m->lie == LIE_BOAST && p->test_samples == 0)
		p->test_samples = 1 + fal_rng_below(r, 40);
}

/* Rates as people give them, and others; by a stream of their own. */
static void
draw_optim(struct toy *t)
{
	struct fal_rng own = fal_rng_init(t->seed, FAL_RNG_TEST, 4), *r = &own;
	struct fal_optim *o = &t->optim;
	o->momentum = chance(r, 0.5) ? 0.9f : fal_rng_unit(r);
	o->beta1 = chance(r, 0.5) ? 0.9 : (double)fal_rng_unit(r);
	o->beta2 = chance(r, 0.5) ? 0.999 : (double)fal_rng_unit(r);
	/* Adam's steps have a bound only where beta1² <= beta2. */
	o->beta2 = fmax(o->beta2, o->beta1 * o->beta1);
	o->eps = chance(r, 0.5) ? 1e-8f : (float)pow(10, between(r, -20, 0));
	o->weight_decay = chance(r, 0.5) ? 0 : 0.1f * fal_rng_unit(r);
	o->decoupled = o->kind == FAL_ADAMW || chance(r, 0.5);
	t->lr = chance(r, 0.5) ? 0.01f : (float)pow(10, between(r, -5, -1));
	o->clip = chance(r, 0.3) ? pow(10, between(r, -2, 3)) : 0;
	struct fal_rng one = fal_rng_init(t->seed, FAL_RNG_TEST, 41);
	o->one_momentum = chance(&one, 0.25);
	if (!chance(r, 0.3))
		return;
	enum { MOST = 4 };
	t->range = fal_calloc(MOST, sizeof(*t->range));
	assert(t->range != NULL);
	uint64_t at = 0;
	o->buffer_momentum = chance(r, 0.5) ? 0.1 : (double)fal_rng_unit(r);
	struct fal_rng scales = fal_rng_init(t->seed, FAL_RNG_TEST, 43);
	for (uint32_t i = 0; i < MOST; i++) {
		at += fal_rng_below(r, 1 + (uint32_t)t->n);
		if (at >= t->n)
			break;
		const uint64_t count = 1 + fal_rng_below(r, (uint32_t)(t->n - at));
		const enum fal_range_rule rule =
			chance(r, 0.5) ? FAL_RANGE_EMA : FAL_RANGE_FROZEN;
		struct fal_range *to = &t->range[o->ranges++];
		*to = (struct fal_range){ .first = at, .count = count, .rule = rule };
		if (chance(&scales, 0.4)) {
			to->rule = FAL_RANGE_SCALED;
			to->lr_scale = chance(&scales, 0.2) ? 0 : fal_rng_unit(&scales);
			to->decay_scale = chance(&scales, 0.5) ? 0 : 1;
		}
		at += count + fal_rng_below(r, 2);
	}
	o->range = t->range;
}

/* Who lies may do so in some blocks alone, which is nothing to the others. */
static void
draw_lies(struct plan *p)
{
	struct fal_rng r = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 28);
	if (chance(&r, 0.5))
		p->toy.lies_of = 2 + fal_rng_below(&r, 3);
}

/* Most versions leave while they are made. */
static void
draw_blocks(struct plan *p)
{
	struct fal_rng r = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 38);
	if (chance(&r, 0.75))
		p->blocks = 1 + fal_rng_below(&r, FAL_MODEL_BLOCKS);
	const uint32_t dies = chance(&r, 0.2) ? 1 + fal_rng_below(&r, 6) : 0;
	if (!p->calm && !p->hung)
		p->dies = dies;
}

/* Another process has the liar's key, and lies, too. */
static void
share_key(struct fal_rng *r, struct plan *p)
{
	const uint32_t at = p->machines - 1; /* the last one stays what it is */
	p->machine[p->machines++] = p->machine[at];
	struct machine *m = &p->machine[at];
	*m = p->machine[0];
	m->key = 1;
	m->lie = draw_lie(r);
	m->join_at *= 1 + (double)fal_rng_unit(r);
}

/* One of those that hang works on, but answers no check. */
static void
fall_mute(struct fal_rng *r, struct plan *p)
{
	struct machine *m = &p->machine[fal_rng_below(r, p->machines - 1)];
	m->hang = HANG_MUTE;
	m->hang_at = 0;
}

/* Shards elsewhere, by a stream of their own. */
static void
draw_places(struct plan *p, double task_s, double length)
{
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 6), *r = &own;
	p->apart = chance(r, 0.8);
	const double far = chance(r, 0.2) && !p->hung ? 10 : 1;
	const bool dies = !p->hung && chance(r, 0.02) && p->apart && p->shards > 1;
	for (uint32_t i = 0; i < p->shards; i++) {
		struct place *s = &p->place[i];
		*s = (struct place){ .latency = between(r, 1e-5, far * task_s),
				     .stall_at = INFINITY,
				     .lost_at = INFINITY,
				     .dies_at = INFINITY };
		for (uint32_t w = 0; w < MAX_WORKERS; w++)
			p->way[w][i] = between(r, 1e-5, far * task_s);
		if (chance(r, 0.2) && !p->hung) {
			s->stall_at = between(r, 0, length);
			s->stall_s = between(r, 0, 1);
		}
		if (chance(r, 0.25) && !p->hung) {
			s->lost_at = between(r, 0, length);
			s->lost_s = between(r, 0, 1);
		}
		if (dies && i == 0) {
			s->dies_at = between(r, 0, length);
			s->known_s = 1;
		}
	}
}

/* Does that hold under any rule of the plan? */
static bool
any_rule(const struct plan *p, bool (*is)(const struct fal_rule *rule))
{
	struct fal_rule rule;
	fal_rule_parse(p->scheme, &rule, NULL);
	bool any = is(&rule);
	for (uint32_t i = 0; i < p->orders; i++) {
		if (p->order[i].scheme == NULL)
			continue;
		fal_rule_parse(p->order[i].scheme, &rule, NULL);
		any = any || is(&rule);
	}
	return any;
}

/* Steps that are made elsewhere need each of their gradients. */
static bool
has_local(const struct plan *p)
{
	return any_rule(p, fal_rule_has_local_steps);
}

static bool
is_refused(const struct fal_rule *rule)
{
	return !fal_group_is_allowed(rule);
}

/* Some tasks have no finite gradient, and are skipped; by a stream of their own. */
static void
draw_odd(struct plan *p)
{
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 8), *r = &own;
	if (chance(r, 0.25) && !has_local(p))
		p->toy.odd = 1 + fal_rng_below(r, 1 + fal_rng_below(r, 40));
}

/* Sums that some workers have few of, by a stream of their own. */
static void
draw_sums(struct plan *p)
{
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 24), *r = &own;
	for (uint32_t i = 0; i < p->machines && !has_local(p); i++)
		if (chance(r, 0.4) && p->machine[i].lie == HONEST) {
			p->machine[i].sums = 3 + fal_rng_below(r, 5);
			p->machine[i].versions = 1 + fal_rng_below(r, 4);
		}
}

/* Gradients of fewer bits, by a stream of their own. */
static void
draw_bits(struct toy *t)
{
	struct fal_rng own = fal_rng_init(t->seed, FAL_RNG_TEST, 16), *r = &own;
	if (chance(r, 0.3))
		t->bits = 8 + fal_rng_below(r, FAL_BFP_P - 8);
}

/* Tasks that another key runs, too, by a stream of their own. */
static void
draw_verify(struct plan *p)
{
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 12), *r = &own;
	static const double parts[] = { 0, 0, 0.01, 0.3, 1 };
	p->verify = parts[fal_rng_below(r, 5)];
}

/* Marks, and deaths of the coordinator, by a stream of their own. */
static void
draw_restarts(struct plan *p, const struct focus *only, double task_s, double length)
{
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 10), *r = &own;
	const uint32_t clocks = toy_clocks(&p->toy);
	if (!chance(r, 0.3) && !only->restarts)
		return;
	uint64_t at = 0;
	for (uint32_t i = 0; i < MAX_MARKS && at < clocks; i++) {
		/* At once only by who has the shards at hand. */
		const bool now = chance(r, 0.3) && !p->apart;
		const double takes = chance(r, 0.5) ? 0 : between(r, 0, 4 * task_s);
		p->mark[p->marks++] = (struct mark){ at, now, takes };
		at += fal_rng_below(r, 2 + clocks / 3);
	}
	const uint32_t one = fal_rng_below(r, clocks), other = fal_rng_below(r, clocks);
	at = one > other ? one : other;
	for (uint32_t i = 0; i < 3 && at < clocks; i++) {
		p->restart[p->restarts++] =
			(struct restart){ at, between(r, 0, length / clocks) };
		at += fal_rng_below(r, 2 * clocks);
	}
	p->back = between(r, 0, chance(r, 0.2) ? 2 : 10 * task_s);
}

/* Blocks move in pieces, by a stream of their own. */
static void
draw_pieces(struct plan *p)
{
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 26), *r = &own;
	p->piece = 1 + fal_rng_below(r, 4);
	p->refuses = chance(r, 0.2) ? 0.2 : 0;
}

/* Who has which block goes by what workers waited for, by a stream of its own. */
static void
draw_psld(struct plan *p)
{
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 22), *r = &own;
	p->psld = p->most > 1 && chance(r, 0.4);
}

/* Blocks that move, and who may have some later, by a stream of their own. */
static void
draw_moves(struct plan *p, const struct focus *only, double task_s, double length)
{
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 18), *r = &own;
	const uint32_t clocks = toy_clocks(&p->toy);
	if (!chance(r, 0.3) && !only->moves)
		return;
	p->most += fal_rng_below(r, MAX_SHARDS - p->most + 1);
	for (uint32_t i = p->shards; i < p->most; i++) {
		struct place *s = &p->place[i];
		*s = (struct place){ .latency = between(r, 1e-5, task_s),
				     .stall_at = INFINITY,
				     .lost_at = INFINITY,
				     .dies_at = INFINITY };
		for (uint32_t w = 0; w < MAX_WORKERS; w++)
			p->way[w][i] = between(r, 1e-5, task_s);
		if (chance(r, 0.2)) {
			s->lost_at = between(r, 0, length);
			s->lost_s = between(r, 0, 1);
		}
		if (chance(r, 0.2)) {
			s->dies_at = between(r, 0, length);
			s->known_s = between(r, 0, 1);
		}
	}
	uint64_t at = 0;
	for (uint32_t i = 0; i < MAX_MOVES && at < clocks; i++) {
		p->move[p->moves++] = (struct move){ at, between(r, 0, length / clocks),
						     fal_rng_u64(r) };
		at += fal_rng_below(r, 1 + clocks / 2);
	}
	if (p->restarts == 0 && p->back == 0)
		p->back = between(r, 0, 10 * task_s);
}

static bool
anybody_lies(const struct plan *p)
{
	for (uint32_t i = 0; i < p->machines; i++)
		if (p->machine[i].lie != HONEST)
			return true;
	return false;
}

/* Machines that get bits wrong: some number of tasks in a hundred, or each. */
static void
draw_flippers(struct fal_rng *r, struct plan *p)
{
	static const double parts[] = { 0.01, 0.1, 0.5, 1 };
	const uint32_t last = p->machines - 1; /* it stays right */
	const uint32_t one = plan_process(p, fal_rng_below(r, last));
	const uint32_t other = plan_process(p, fal_rng_below(r, last));
	p->toy.flips[one] = parts[fal_rng_below(r, 4)];
	if (chance(r, 0.2) && one % 2 != other % 2)
		p->toy.flips[other] = parts[fal_rng_below(r, 4)];
}

/* Several machines have a key, or all of them. */
static void
share_keys(struct fal_rng *r, struct plan *p)
{
	const uint32_t last = p->machines - 1;
	const bool all = chance(r, 0.2);
	for (uint32_t i = 0; i < last; i++) {
		struct machine *m = &p->machine[i];
		if (all)
			m->key = p->machines;
		else if (m->again > 0)
			m->key = p->machine[m->again - 1].key;
		else if (i > 0 && chance(r, 0.4))
			m->key = 1 + plan_owner(p, fal_rng_below(r, i));
	}
}

static void
draw_prints(struct fal_rng *r, struct plan *p)
{
	for (uint32_t i = 0; i < p->machines; i++)
		if (p->machine[i].again > 0)
			p->machine[i].print = p->machine[p->machine[i].again - 1].print;
		else
			p->machine[i].print =
				chance(r, 0.2) ? IMPURE : fal_rng_below(r, 2);
}

/* All are there from the beginning, to the end. */
static void
calm_down(struct plan *p)
{
	p->calm = true;
	p->orders = p->restarts = 0;
	p->toy.odd = 0;
	p->min_workers = p->machines;
	for (uint32_t i = 0; i < p->machines; i++) {
		struct machine *m = &p->machine[i];
		m->join_at = 0;
		m->crash_at = m->leave_at = m->stall_at = m->cut_at = INFINITY;
		m->silent = m->flaky = false;
		m->again = 0;
	}
	p->moves = 0;
	for (uint32_t i = 0; i < p->most; i++)
		p->place[i].stall_at = p->place[i].lost_at = p->place[i].dies_at =
			INFINITY;
}

/* One of several shards dies, once or again, by a stream of its own. */
static void
draw_deaths(struct plan *p, double task_s, double length)
{
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 14), *r = &own;
	if (!p->apart || p->shards < 2 || !chance(r, p->marks > 0 ? 0.6 : 0.05))
		return;
	for (uint32_t n = 1 + fal_rng_below(r, 2); n > 0; n--) {
		struct place *s = &p->place[fal_rng_below(r, p->shards)];
		s->dies_at = between(r, 0, length);
		s->known_s = between(r, 0, chance(r, 0.5) ? 1 : 4 * task_s);
	}
	if (p->restarts == 0)
		p->back = between(r, 0, chance(r, 0.2) ? 2 : 10 * task_s);
}

/* One death after the other, a snapshot of each clock, and changes of policy on the way:
 * of all that is on disk something is needed. */
static void
draw_troubles(struct fal_rng *r, struct plan *p, double task_s, double length)
{
	static const char *const scheme[] = { "bsp", "epsp", "epsp:1" };
	uint64_t at = 1 + fal_rng_below(r, 3);
	p->marks = p->restarts = 0;
	p->marks_all = true;
	p->keep = 2 + fal_rng_below(r, 3);
	p->toy.epochs = 3;
	p->mark[0].takes = chance(r, 0.7) ? 0 : between(r, 0, task_s);
	for (; p->restarts < MAX_RESTARTS; at += 1 + fal_rng_below(r, 2))
		p->restart[p->restarts++] =
			(struct restart){ at, between(r, 0, length / 8) };
	p->back = between(r, 0, 10 * task_s);
	if (p->orders > 0)
		return;
	for (p->orders = 0; p->orders < MAX_ORDERS; p->orders++)
		p->order[p->orders] =
			(struct order){ .at = between(r, 0, length),
					.scheme = scheme[fal_rng_below(r, 3)] };
}

/* Snapshots that are kept, and disks that fail, by a stream of their own. */
static void
draw_disk(struct plan *p, double task_s, double length)
{
	struct fal_rule rule;
	const bool shared = fal_rule_parse(p->scheme, &rule, NULL) == FAL_OK &&
			    fal_rule_traits(&rule).shared;
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 19), *r = &own;
	p->keep = 1 + fal_rng_below(r, 4);
	p->disk_fails = chance(r, 0.6);
	if (p->disk_fails && shared && !p->hung && !p->calm && chance(r, 0.2))
		draw_troubles(r, p, task_s, length);
}

/* Bits that are wrong, keys that are shared, and numerics that differ; by a stream of
 * their own. */
static void
draw_flips(struct plan *p, const struct focus *only)
{
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 13), *r = &own;
	const bool any = chance(r, 0.4) || only->flips;
	if (!any || p->machines < 2 || p->hung || anybody_lies(p))
		return;
	if (chance(r, 0.6) || only->flips)
		p->verify = 1;
	p->entropy = p->toy.seed;
	if (chance(r, 0.4))
		calm_down(p);
	if (chance(r, 0.8) || only->flips) {
		draw_flippers(r, p);
		/* Of few bits there is often none that nothing else tells of. */
		p->toy.bits = 0;
	}
	if (chance(r, 0.3) && !p->machine[0].flaky && p->toy.odd == 0)
		share_keys(r, p);
	if (chance(r, 0.3))
		draw_prints(r, p);
}

/* ---- group servers ----------------------------------------------------------------- */

static bool
may_be_group(const struct plan *p, uint32_t i)
{
	const struct machine *m = &p->machine[i];
	const uint32_t process = plan_process(p, i);
	const bool fresh = m->again == 0 || p->machine[process].group != NULL;
	return fresh && m->lie == HONEST && !m->flaky && m->hang == HANG_NOT &&
	       p->toy.flips[process] == 0;
}

/* Who is in a group, of which the last one lives as long as it, and what may be otherwise
 * than above.  `span`: what a task takes, and the job. */
static struct plan *
draw_members(struct fal_rng *r, const struct plan *p, const struct machine *m,
	     const double span[static 2])
{
	struct plan *g = fal_calloc(1, sizeof(*g));
	assert(g != NULL);
	*g = (struct plan){ .toy = p->toy,
			    .levels = true,
			    .calm = p->calm,
			    .scheme = chance(r, 0.5) ? "bsp" : "epsp",
			    .audit_sums = p->audit_sums,
			    .hashes = p->hashes,
			    .verify = p->verify,
			    .preclaims = chance(r, 0.7),
			    .begins = p->begins,
			    .shards = 1 + fal_rng_below(r, 3),
			    .test_samples = p->test_samples,
			    .eval_every = p->eval_every,
			    .parts = p->parts,
			    .min_workers = 1,
			    .probes = p->probes,
			    .keep = 1,
			    .entropy = p->entropy,
			    .machines = 1 + fal_rng_below(r, 4) };
	g->most = g->shards;
	memset(g->toy.flips, 0, sizeof(g->toy.flips));
	for (uint32_t i = 0; i < g->machines; i++) {
		struct machine *one = &g->machine[i];
		const bool last = i + 1 == g->machines;
		*one = draw_machine(r, span[0]);
		one->join_at = m->join_at;
		if (!p->calm && chance(r, 0.3))
			one->join_at += between(r, 0, span[1] / 2);
		one->print = m->print;
		if (!last && !p->calm && chance(r, 0.5))
			strike(r, one, span[1]);
	}
	return g;
}

static void
make_group(struct fal_rng *r, const struct plan *p, struct machine *m,
	   const double span[static 2])
{
	m->lanes_min = m->lanes_max = m->cores = 1;
	m->sums = m->versions = 0;
	m->group = draw_members(r, p, m, span);
}

/* A plan that draw_members has made, and may be changed. */
static struct plan *
drawn(const struct plan *group)
{
	return (struct plan *)(uintptr_t)group;
}

/* Members hang, but for those who live as long as their group. */
static void
hang_members(struct fal_rng *r, const struct plan *p, double length)
{
	for (uint32_t i = 0; i < p->machines; i++) {
		const struct plan *g = p->machine[i].group;
		if (g == NULL)
			continue;
		struct plan *own = drawn(g);
		for (uint32_t k = 0; k + 1 < own->machines; k++)
			if (chance(r, 0.2))
				hang(r, &own->machine[k], length);
	}
}

/* When it is ready at the latest. */
static double
there_at(const struct machine *m)
{
	/* On its link, and more: it greets, and is told of the job. */
	enum { TIMES = 20 };
	return m->join_at + TIMES * m->latency;
}

/* Whoever lives to the end does so as a group server, too: no member leaves it alone
 * before its last one is there. */
static void
keep_company(const struct machine *m)
{
	if (m->group == NULL)
		return;
	struct plan *own = drawn(m->group);
	const struct machine *last = &own->machine[own->machines - 1];
	for (struct machine *one = own->machine; one < last; one++) {
		one->crash_at = fmax(one->crash_at, there_at(last));
		one->leave_at = fmax(one->leave_at, there_at(last));
	}
}

/* Does its process open another session? */
static bool
comes_back(const struct plan *p, uint32_t machine)
{
	bool back = p->machine[machine].again > 0;
	for (uint32_t i = 0; i < p->machines; i++)
		back = back || p->machine[i].again == machine + 1;
	return back;
}

/* A member of it lies, where it is a group server, beside one that lives as long as it
 * does; not of their numerics, which those above would have to agree on.  `lives`: it is
 * to live to the end, so that one does nothing that it would be charged with.  `any`: one
 * beside it lies, whom a second one could bear out. */
static void
lie_in(struct fal_rng *r, const struct machine *of, const struct focus *only,
       double task_s, bool lives, bool any)
{
	struct plan *own = drawn(of->group);
	for (uint32_t i = 0; own != NULL && i < own->machines; i++) {
		struct machine *m = &own->machine[i];
		const struct machine *last = &own->machine[own->machines - 1];
		enum lie lie = only->mute                           ? LIE_MUTE
			       : chance(r, only->liars ? 0.2 : 0.7) ? HONEST
			       : chance(r, 0.2)                     ? LIE_MUTE
								    : draw_lie(r);
		any = any || machine_lies(m);
		if (m == last || any || m->hang != HANG_NOT || lie == HONEST ||
		    lie == LIE_PRINT)
			continue;
		any = true;
		m->lie = lives ? LIE_LARGE : lie;
		m->join_at = fmax(m->join_at, last->join_at + 4 * task_s);
	}
}

/* … where nobody above does. */
static void
lie_below(struct fal_rng *r, const struct plan *p, const struct focus *only,
	  double task_s)
{
	for (uint32_t i = 0; i < p->machines; i++)
		if (!comes_back(p, i)) /* a charged key stays outside */
			lie_in(r, &p->machine[i], only, task_s, i + 1 == p->machines,
			       false);
}

/* Some machines are group servers, by a stream of their own. */
static void
draw_levels(struct plan *p, const struct focus *only, double task_s, double length)
{
	struct fal_rng own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 31), *r = &own;
	const double span[] = { task_s, length };
	const bool any = chance(r, 0.15) || only->groups;
	if (!any || p->hung || any_rule(p, is_refused))
		return;
	const uint32_t one = fal_rng_below(r, p->machines);
	for (uint32_t i = 0; i < p->machines; i++) {
		const bool is = p->machine[i].again > 0 || i == one || chance(r, 0.4);
		if (is && may_be_group(p, i))
			make_group(r, p, &p->machine[i], span);
		if (p->machine[i].group != NULL)
			p->levels = true;
	}
	keep_company(&p->machine[p->machines - 1]);
	if (p->levels) /* no group server pushes to shards elsewhere */
		p->apart = p->psld = false;
	own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 34);
	if (!p->calm)
		hang_members(r, p, length);
	own = fal_rng_init(p->toy.seed, FAL_RNG_TEST, 36);
	if (!p->calm && !anybody_lies(p) && (chance(r, 0.3) || only->mute || only->liars))
		lie_below(r, p, only, task_s);
}

void
draw_free(struct plan *p)
{
	for (uint32_t i = 0; i < p->machines; i++)
		free(drawn(p->machine[i].group));
	free(p->toy.range);
}

/* Are clocks of one task, so that most of a version is made while that is at work? */
static bool
is_one(const struct toy *t)
{
	struct fal_rng r = fal_rng_init(t->seed, FAL_RNG_TEST, 48);
	return chance(&r, 0.12);
}

/* Small tasks at the end of each clock. */
static void
draw_tail(struct toy *t)
{
	struct fal_rng r = fal_rng_init(t->seed, FAL_RNG_TEST, 49);
	if (t->task == 1 || chance(&r, 0.5))
		return;
	t->tail = chance(&r, 0.2) ? 1 : between(&r, 0.1, 0.7);
	t->tail_task = 1 + fal_rng_below(&r, t->task - 1);
}

struct plan
draw_plan(struct fal_rng *r, uint64_t seed, const struct focus *only)
{
	struct plan p = { .toy = { .seed = seed }, .keep = 1 };
	p.toy.n = (size_t)1 + fal_rng_below(r, 9 * FAL_BLOCK);
	p.toy.task = 1 + fal_rng_below(r, 4);
	/* Mostly no multiple of the task, or even less than one. */
	p.toy.batch = 1 + fal_rng_below(r, 24 * p.toy.task);
	const bool one = is_one(&p.toy);
	p.toy.task = one ? p.toy.batch : p.toy.task;
	draw_tail(&p.toy);
	p.toy.samples = p.toy.batch + fal_rng_below(r, 4 * p.toy.batch);
	p.toy.epochs = 1 + fal_rng_below(r, 2);
	p.toy.optim.kind = (enum fal_optim_kind)fal_rng_below(r, FAL_OPTIMS);
	draw_optim(&p.toy);
	draw_bits(&p.toy);
	p.scheme = only->scheme != NULL ? only->scheme : draw_scheme(r);
	draw_groups(&p, only);
	draw_later(&p, only);
	draw_orders(r, &p);
	p.audit_sums = chance(r, 0.2);
	draw_verify(&p);
	p.shards = 1 + (uint32_t)(seed / 5 % 4);
	p.hashes = 1 + (uint32_t)(seed / 7 % 3);
	p.test_samples = chance(r, 0.5) ? 1 + fal_rng_below(r, 40) : 0;
	p.eval_every = fal_rng_below(r, 4);
	p.probes = seed % 4 != 0;
	p.preclaims = one || seed % 3 != 0;
	p.begins = seed % 7 > 1;
	p.parts = chance(r, 0.2) ? 1 + fal_rng_below(r, 4) : 1;
	double task_s = pow(10, between(r, -3.5, -1));
	double length =
		toy_clocks(&p.toy) * task_s * (p.toy.batch / p.toy.task + 1) * 0.7;
	scale_orders(&p, length);
	p.machines = 1 + fal_rng_below(r, 7);
	bool equal = chance(r, 0.15) || only->equal;
	if (equal) { /* a lane at anything else makes its worker unequal */
		p.test_samples = 0;
		p.verify = 0;
	}
	for (uint32_t i = 0; i < p.machines; i++) {
		struct machine *m = &p.machine[i];
		*m = equal && i > 0 ? p.machine[0] : draw_machine(r, task_s);
		m->join_at = !equal && chance(r, 0.3) ? between(r, 0, length) : 0;
		if (equal) {
			m->jitter = 0;
			m->latency = 1e-6;
			m->per_byte = 0;
			m->cores = m->lanes_max;
		} else if (chance(r, 0.5)) {
			strike(r, m, length);
		}
	}
	if (!equal && chance(r, 0.15))
		p.machine[0].flaky = true;
	else if (!equal && (chance(r, 0.15) || (only->liars && !only->groups)))
		become_liar(r, &p, task_s);
	if (!equal)
		open_again(r, &p);
	p.min_workers = equal ? p.machines : 1;
	/* One machine lives to the end, so that there can be progress. */
	if (!equal)
		p.machine[p.machines++] = draw_machine(r, task_s);
	if (!equal && chance(r, 0.25))
		hang_all(r, &p, task_s, length);
	if (p.hung && p.machines > 1 && chance(r, 0.3))
		fall_mute(r, &p);
	if (p.machine[0].lie != HONEST && chance(r, 0.3))
		share_key(r, &p);
	if (!equal && !only->near)
		draw_places(&p, task_s, length);
	if (!equal)
		draw_odd(&p);
	if (!equal && !p.hung)
		draw_restarts(&p, only, task_s, length);
	p.most = p.shards;
	draw_pieces(&p);
	if (!equal && !p.hung && !only->exact)
		draw_deaths(&p, task_s, length);
	if (!equal && !p.hung && !only->exact)
		draw_moves(&p, only, task_s, length);
	if (!equal && !p.hung && !only->exact)
		draw_psld(&p);
	if (!equal && !only->exact)
		draw_flips(&p, only);
	if (!equal && !only->exact)
		draw_disk(&p, task_s, length);
	if (!equal && !only->exact)
		draw_sums(&p);
	if (!equal && !only->exact && !only->flat)
		draw_levels(&p, only, task_s, length);
	if (!only->exact && !only->flat)
		draw_lies(&p);
	if (!equal && !only->exact && !only->flat)
		draw_blocks(&p);
	if (!only->exact)
		draw_fractions(&p, only);
	plan_tell_lies(&p);
	return p;
}
