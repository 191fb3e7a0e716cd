/* Whether a round that is complete is believed: what somebody says to have needed may
 * want a witness, and what others refute is made once more. */
#include "coord/priv.h"

#include "base/mem.h"
#include "sched/traits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int
coord_again(struct fal_coord *c, struct fal_gather *g, struct fal_cid of,
	    const struct fal_again *why)
{
	g->again = *why;
	g->again.suspect = coord_known(c, why->by.worker)->key;
	const struct fal_shard_order o = { .kind = FAL_ORDER_AGAIN,
					   .round = g->round,
					   .turn = coord_turn(g),
					   .id = of };
	return coord_order(c, &o);
}

int
coord_taken(struct fal_coord *c, double now, const struct fal_gather *g,
	    const struct fal_round_info *r, const uint32_t *brought)
{
	const struct fal_again a = g->again;
	const uint64_t id[] = { a.by.worker, a.by.seq };
	fal_trace_put(&c->line, fal_coord_seconds(c, now), FAL_EV_AGAIN,
		      &(struct fal_ev_again){
			      r->round, r->clock, g->taken_blocks, { id, 2 }, a.why });
	coord_trace(c);
	const uint64_t round = g->round;
	int err = fal_sched_again(c->sched, now, round, a.suspect, brought);
	if (err == FAL_OK && a.charge != NULL)
		err = fal_sched_charge(c->sched, now, a.by.worker, a.charge);
	return err;
}

bool
coord_same_bits(const struct fal_coord *c, uint32_t worker, uint32_t other)
{
	return memcmp(coord_known(c, worker)->fingerprint,
		      coord_known(c, other)->fingerprint, FAL_FINGERPRINT) == 0;
}

/* ---- witnesses ------------------------------------------------------------------- */

static struct fal_doubted *
doubted(const struct fal_coord *c, uint64_t round, struct fal_cid id)
{
	for (size_t i = 0; i < c->doubts; i++)
		if (c->doubt[i].round == round && fal_cid_eq(c->doubt[i].is.id, id))
			return &c->doubt[i];
	return NULL;
}

static void
forget(struct fal_coord *c, struct fal_doubted *d)
{
	free(d->seen);
	free(d->counts);
	*d = c->doubt[--c->doubts];
}

void
coord_judge_forget(struct fal_coord *c, uint64_t round)
{
	for (size_t i = 0; i < c->doubts;)
		if (c->doubt[i].round == round)
			forget(c, &c->doubt[i]);
		else
			i++;
	coord_redo_forget(c, round);
}

void
coord_judge_free(struct fal_coord *c)
{
	while (c->doubts > 0)
		forget(c, &c->doubt[0]);
	free(c->doubt);
	free(c->on);
}

/* `counts`: by block what it counts as, where it is bounded; or NULL. */
static void
trace_check(struct fal_coord *c, double now, const struct fal_doubted *d,
	    const char *verdict, const char *why, const int8_t *counts)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	const uint64_t id[] = { d->is.id.worker, d->is.id.seq };
	const bool has = d->is.exponent != FAL_EXP_NONE;
	double *bound = fal_calloc(3 * (size_t)blocks, sizeof(*bound));
	size_t n = 0;
	if (bound == NULL) {
		c->line.err = FAL_ENOMEM;
		return;
	}
	for (uint32_t from = 0, to; counts != NULL && from < blocks; from = to) {
		for (to = from + 1; to < blocks && counts[to] == counts[from];)
			to++;
		if (counts[from] == FAL_EXP_NONE)
			continue;
		bound[3 * n] = from;
		bound[3 * n + 1] = to - from;
		bound[3 * n++ + 2] = counts[from];
	}
	fal_trace_put(&c->line, fal_coord_seconds(c, now), FAL_EV_CHECK,
		      &(struct fal_ev_check){ .round = d->round,
					      .c = { id, 2 },
					      .block = d->is.block,
					      .needed = d->is.needed,
					      .shown = d->is.shown,
					      .exponent =
						      has ? d->is.exponent : (double)NAN,
					      .by = d->by,
					      .bound = { bound, n },
					      .verdict = verdict,
					      .why = why });
	free(bound);
	coord_trace(c);
}

/* The shards are told what to make of it, and judge anew; `seen` may be NULL. */
static int
tell(struct fal_coord *c, struct fal_doubted *d, enum fal_order_kind kind,
     const int8_t *seen, uint32_t key)
{
	struct fal_gather *g = coord_gather(c, d->round);
	if (g == NULL)
		return FAL_OK;
	d->heard = 0;
	d->told = coord_turn(g);
	const struct fal_shard_order o = { .kind = kind,
					   .round = d->round,
					   .turn = d->told,
					   .id = d->is.id,
					   .seen = seen,
					   .key = key };
	return coord_order(c, &o);
}

/* Doubt `d` is over: it is believed. */
static int
believe(struct fal_coord *c, double now, struct fal_doubted *d, const char *why)
{
	trace_check(c, now, d, "believed", why, NULL);
	int err = tell(c, d, FAL_ORDER_WITNESS, NULL, 0);
	forget(c, d);
	return err;
}

/* It counts as little more than what others have shown; that is told the trace, and the
 * doubt is over, when all shards have said how much. */
static int
bound(struct fal_coord *c, struct fal_doubted *d, const char *why)
{
	d->bounded = why;
	d->counts = fal_calloc(fal_blocks(c->conf.params), 1);
	if (d->counts == NULL)
		return FAL_ENOMEM;
	return tell(c, d, FAL_ORDER_BOUND, d->seen, 0);
}

int
coord_bounded(struct fal_coord *c, double now, uint32_t shard,
	      const struct fal_shard_say *say)
{
	struct fal_doubted *d = doubted(c, say->round, say->id);
	if (d == NULL || d->counts == NULL || d->told != say->turn)
		return FAL_OK;
	memcpy(d->counts + say->first, say->counts, say->blocks);
	if (say->bounded > 0 && (!d->ok || say->block < d->is.block)) {
		d->is = *say;
		d->ok = true;
	}
	if (!coord_all_say(c, &d->heard, shard))
		return FAL_OK;
	if (d->ok)
		trace_check(c, now, d, "bounded", d->bounded, d->counts);
	else
		trace_check(c, now, d, "believed", "others have shown it since", NULL);
	forget(c, d);
	return FAL_OK;
}

/* Nobody can say whether it is so.  Where the model must not depend on who computes what
 * it is believed. */
static int
unsure(struct fal_coord *c, double now, struct fal_doubted *d, const char *why)
{
	d->ok = false;
	if (!fal_rule_traits(&fal_sched_policy(c->sched)->rule).law)
		return bound(c, d, why);
	return believe(c, now, d, why);
}

bool
coord_granted_else(const struct fal_coord *c, const struct fal_round_info *r,
		   uint32_t worker, uint32_t task, uint64_t version)
{
	bool other = !r->mixed && version != r->version;
	for (size_t i = 0; i < c->ons && r->mixed; i++) {
		const struct fal_granted_on *o = &c->on[i];
		if (o->round != r->round || o->worker != worker ||
		    task - o->first >= o->count)
			continue;
		if (o->version == version)
			return false;
		other = true;
	}
	return other;
}

/* The version that the contribution was computed on; false: its tasks were on several. */
static bool
computed_on(const struct fal_round_info *r, struct fal_cid id, uint64_t *version)
{
	const uint32_t ci = fal_ledger_find(r->ledger, id);
	uint32_t at = ci != FAL_NONE ? r->ledger->contrib[ci].head : FAL_NONE;
	*version = UINT64_MAX;
	for (; at != FAL_NONE; at = r->ledger->claim[at].next) {
		const uint64_t on = r->ledger->claim[at].version;
		if (*version != UINT64_MAX && on != *version)
			return false;
		*version = on;
	}
	return *version != UINT64_MAX;
}

/* Asks a worker of another key, which is not `but`.  0: nobody is there. */
static int
ask(struct fal_coord *c, double now, struct fal_doubted *d, uint32_t but)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	struct fal_check_of of = { .id = d->is.id, .key = d->is.key, .but = but };
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, d->round, &r) ||
	    !computed_on(&r, d->is.id, &of.version))
		return 0;
	int asked = fal_sched_check(c->sched, now, d->round, &of);
	if (asked != 1)
		return asked;
	if (d->seen == NULL)
		d->seen = fal_calloc(blocks, 1);
	if (d->seen == NULL)
		return FAL_ENOMEM;
	memset(d->seen, FAL_EXP_NONE, blocks);
	return 1;
}

int
coord_doubt(struct fal_coord *c, const struct fal_shard_say *is)
{
	const struct fal_gather *g = coord_gather(c, is->round);
	struct fal_doubted *d = doubted(c, is->round, is->id);
	if (g == NULL || g->turn != is->turn)
		return FAL_OK;
	if (d == NULL) {
		if (FAL_GROW(c->doubt, c->doubt_cap, c->doubts + 1) < 0)
			return FAL_ENOMEM;
		d = &c->doubt[c->doubts++];
		*d = (struct fal_doubted){ .round = is->round, .is = *is };
	}
	d->turn = is->turn;
	return FAL_OK;
}

/* Is the doubt of this turn, and nobody asked about it yet? */
static struct fal_doubted *
unasked(const struct fal_coord *c, uint64_t round, uint32_t turn)
{
	for (size_t i = 0; i < c->doubts; i++) {
		struct fal_doubted *d = &c->doubt[i];
		if (d->round == round && d->turn == turn && d->seen == NULL &&
		    d->counts == NULL)
			return d;
	}
	return NULL;
}

/* A change of weights that is larger than any other key's has nobody to bear it out, as
 * nobody else has taken its steps. */
static int
too_large(struct fal_coord *c, double now, struct fal_doubted *d)
{
	int err = coord_others(c, d->is.key)
			  ? bound(c, d, "nobody else has taken these steps")
			  : believe(c, now, d, "nobody of another key is here");
	return err < 0 ? err : 1;
}

/* 1: the round waits for a witness, or for what the shards then judge: whatever is made
 * of one doubt may end another. */
static int
doubts(struct fal_coord *c, double now, const struct fal_gather *g,
       const struct fal_round_info *r)
{
	struct fal_doubted *d;
	while ((d = unasked(c, g->round, g->turn)) != NULL) {
		if (r->delta)
			return too_large(c, now, d);
		const int asked = ask(c, now, d, 0);
		if (asked < 0)
			return asked;
		if (asked == 0) {
			int err = unsure(c, now, d, "nobody could be asked");
			return err < 0 ? err : 1;
		}
	}
	for (size_t i = 0; i < c->doubts; i++)
		if (c->doubt[i].round == g->round && c->doubt[i].turn == g->turn)
			return 1;
	return 0;
}

/* Another key found that the tasks needed less, or that one of them has no finite result:
 * that may be its own fault, and costs nobody anything but the work. */
static int
refuted(struct fal_coord *c, double now, const struct fal_doubted *of)
{
	static const char less[] = "it said to need what it did not";
	const struct fal_doubted d = *of;
	const char *charge_why = d.odd ? NULL : less;
	const struct fal_again why = { .by = d.is.id,
				       .why = "refuted",
				       .charge = charge_why };
	struct fal_gather *g = coord_gather(c, d.round);
	struct fal_round_info r;
	trace_check(c, now, &d, "refuted", NULL, NULL);
	coord_judge_forget(c, d.round);
	if (g == NULL || !fal_sched_round(c->sched, d.round, &r))
		return FAL_OK;
	if (r.owner == 0)
		return coord_again(c, g, d.is.id, &why);
	coord_turn(g); /* nothing that is on its way counts any more */
	if (d.odd)
		c->key[d.is.key - 1].odd = r.clock + 1;
	int err = fal_sched_abandon(c->sched, now, d.round,
				    d.odd ? "not finite elsewhere" : less);
	if (err == FAL_OK && charge_why != NULL)
		err = fal_sched_charge(c->sched, now, d.is.id.worker, charge_why);
	return err;
}

/* Did another find the same clock's round of that key not finite before?  There may be
 * nobody else to have it, whichever of the two errs. */
static bool
odd_again(const struct fal_coord *c, const struct fal_doubted *d)
{
	struct fal_round_info r;
	return d->odd && fal_sched_round(c->sched, d->round, &r) && r.owner != 0 &&
	       c->key[d->is.key - 1].odd == r.clock + 1;
}

/* All is answered, and it is less than was said.  Where a third key is here, it has the
 * last word. */
static int
contradicted(struct fal_coord *c, double now, struct fal_doubted *d)
{
	int asked = 0;
	if (d->odd && !coord_same_bits(c, d->is.id.worker, d->by))
		return unsure(c, now, d, "not finite there");
	if (!coord_same_bits(c, d->is.id.worker, d->by)) {
		d->ok = false;
		return bound(c, d, "it rounds differently");
	}
	const bool alone = d->first == 0;
	if (alone) {
		d->first = d->by;
		asked = ask(c, now, d, coord_known(c, d->by)->key);
	}
	/* Which of two keys is right nobody knows; neither costs the other its work. */
	if (asked == 0 && alone && d->odd) {
		d->ok = false;
		return bound(c, d, "not finite there");
	}
	if (asked == 0 && odd_again(c, d))
		return unsure(c, now, d, "not finite there, again");
	return asked == 0 ? refuted(c, now, d) : asked < 0 ? asked : FAL_OK;
}

/* As much as is known bears out what was said. */
static int
witnessed(struct fal_coord *c, double now, struct fal_doubted *d)
{
	const struct fal_doubted was = *d;
	trace_check(c, now, d, "witnessed", NULL, NULL);
	forget(c, d);
	int err = fal_sched_unasked(c->sched, was.round, was.is.id, FAL_NONE);
	if (err == FAL_OK && was.first != 0)
		err = fal_sched_charge(c->sched, now, was.first,
				       "it was a false witness");
	return err;
}

int
coord_heard(struct fal_coord *c, double now, uint32_t shard,
	    const struct fal_shard_say *say)
{
	struct fal_doubted *d = doubted(c, say->round, say->id);
	if (d == NULL || d->told != say->turn) /* more was said since */
		return FAL_OK;
	d->ok = say->ok && (d->heard == 0 || d->ok);
	if (!coord_all_say(c, &d->heard, shard))
		return FAL_OK;
	if (d->ok)
		return witnessed(c, now, d);
	/* Its word stands, though it may be gone by now. */
	return d->all ? contradicted(c, now, d) : FAL_OK;
}

int
coord_checked(struct fal_coord *c, double now, const struct fal_peer *p,
	      const struct fal_msg *m, struct fal_diag *diag)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	const size_t n = m->checked.needed.n, first = m->checked.first;
	if (first > blocks || n > blocks - first || n == 0)
		return fal_diag_set(diag, FAL_EINVAL, "what %zu blocks from %zu needed",
				    n, first);
	const bool whole = first + n == blocks;
	int err = whole ? coord_verify_checked(c, now, p, m) : FAL_OK;
	if (err < 0)
		return err;
	struct fal_cid of;
	int left = fal_sched_checked(c->sched, p->worker, m->checked.round,
				     m->checked.task, whole, &of);
	struct fal_doubted *d = left > 0 ? doubted(c, m->checked.round, of) : NULL;
	if (d == NULL)
		return FAL_OK;
	const int8_t *needed = (const int8_t *)m->checked.needed.p;
	for (size_t b = 0; b < n; b++)
		if (needed[b] > d->seen[first + b])
			d->seen[first + b] = needed[b];
	d->odd |= m->checked.nonfinite != 0;
	d->by = p->worker;
	d->all = left == 2;
	return tell(c, d, FAL_ORDER_WITNESS, d->seen, p->key);
}

int
coord_unheard(struct fal_coord *c, double now, const struct fal_act *a)
{
	struct fal_doubted *d = doubted(c, a->round, a->cid);
	if (d == NULL)
		return FAL_OK;
	int asked = ask(c, now, d, d->first != 0 ? coord_known(c, d->first)->key : 0);
	if (asked != 0)
		return asked < 0 ? asked : FAL_OK;
	if (d->first != 0)
		return refuted(c, now, d);
	return unsure(c, now, d,
		      a->count > 0 ? "no answer in time" : "nobody could be asked");
}

int
coord_judge_again(struct fal_coord *c, double now, struct fal_gather *g)
{
	return coord_gathered(c, g) ? coord_judge(c, now, g) : FAL_OK;
}

/* A worker's own steps follow each other: is one before it still waited for? */
static bool
is_behind(const struct fal_coord *c, const struct fal_round_info *r)
{
	struct fal_round_info is;
	for (size_t i = 0; i < c->gathers && c->gather[i].round < r->round; i++)
		if (r->delta && fal_sched_round(c->sched, c->gather[i].round, &is) &&
		    is.delta && is.owner == r->owner)
			return true;
	return false;
}

int
coord_judge_behind(struct fal_coord *c, double now)
{
	struct fal_round_info is;
	int err = FAL_OK;
	for (size_t i = 0; i < c->gathers && err == FAL_OK; i++)
		if (fal_sched_round(c->sched, c->gather[i].round, &is) && is.delta)
			err = coord_judge_again(c, now, &c->gather[i]);
	return err;
}

int
coord_judge(struct fal_coord *c, double now, struct fal_gather *g)
{
	struct fal_round_info r;
	if (c->why != NULL || !fal_sched_round(c->sched, g->round, &r))
		return FAL_OK;
	if (g->beyond > 0)
		return coord_beyond(c, now, &r, g);
	int waits = doubts(c, now, g, &r);
	if (waits != 0)
		return waits < 0 ? waits : FAL_OK;
	/* An order that is on its way ends it. */
	if (r.armed || is_behind(c, &r))
		return FAL_OK;
	int err = coord_mended(c, now, &r);
	return err < 0 ? err : fal_sched_complete(c->sched, now, r.round);
}

int
coord_made(struct fal_coord *c, double now, const struct fal_round_info *r)
{
	int err = coord_mended(c, now, r);
	/* Not all had said yet what they made of it, and now all have. */
	for (size_t i = 0; i < c->doubts && err == FAL_OK;)
		if (c->doubt[i].round == r->round && c->doubt[i].by != 0)
			err = witnessed(c, now, &c->doubt[i]);
		else
			i++;
	coord_judge_forget(c, r->round);
	coord_gather_end(c, r->round);
	return err < 0 ? err : fal_sched_made(c->sched, now, r->round);
}
