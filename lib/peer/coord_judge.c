/* Whether a round that is complete is believed: what somebody says to have needed may
 * want a witness, and sums that lead out of the numbers are made once more. */
#include "peer/coord_priv.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static struct fal_peer *
peer_of(const struct fal_coord *c, uint32_t worker)
{
	for (uint32_t i = 0; i < c->peers; i++)
		if (c->peer[i].worker == worker && c->peer[i].ready)
			return &c->peer[i];
	return NULL;
}

/* What the blocks hold is thrown away, and the round's tasks run again for them. */
static int
again(struct fal_coord *c, double now, uint64_t round, const uint8_t *blocks,
      const struct fal_line_again *line)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, round, &r))
		return FAL_OK;
	uint32_t *brought = fal_calloc(r.ledger->contribs, sizeof(*brought));
	if (brought == NULL)
		return FAL_ENOMEM;
	fal_store_take_back(c->store, round, blocks);
	for (uint32_t i = 0; i < r.ledger->contribs; i++)
		brought[i] =
			fal_store_brought(c->store, round, r.ledger->contrib[i].id, NULL);
	fal_line_again(&c->line, fal_coord_seconds(c, now), &r, line);
	coord_trace(c);
	const uint32_t key = coord_known(c, line->id.worker)->key;
	int err = fal_sched_again(c->sched, now, round, key, brought);
	free(brought);
	return err;
}

/* ---- beyond the numbers ---------------------------------------------------------- */

static struct fal_redo *
redo_of(const struct fal_coord *c, uint64_t round)
{
	for (size_t i = 0; i < c->redos; i++)
		if (c->redo[i].round == round)
			return &c->redo[i];
	return NULL;
}

/* The round of one worker, and whoever helped it: `by` may be ill, or the job. */
static int
own_beyond(struct fal_coord *c, double now, const struct fal_round_info *r,
	   struct fal_cid by)
{
	static const char why[] = "its gradients led out of the numbers";
	const struct fal_peer *p = peer_of(c, by.worker);
	if (p != NULL)
		coord_diverged(c, p, "gradients led out of the numbers");
	if (c->why != NULL)
		return FAL_OK;
	int err = fal_sched_abandon(c->sched, now, r->round, why);
	return err < 0 ? err : fal_sched_charge(c->sched, now, by.worker, why);
}

/* `n` of its blocks lead out of the numbers, most of all by contribution `by`. */
static int
beyond(struct fal_coord *c, double now, const struct fal_round_info *r,
       const uint8_t *blocks, uint32_t n, struct fal_cid by)
{
	const struct fal_line_again line = { .id = by,
					     .blocks = n,
					     .why = "beyond the numbers" };
	if (r->owner != 0)
		return own_beyond(c, now, r, by);
	if (redo_of(c, r->round) != NULL) {
		c->why = "gradients led out of the numbers on two runs";
		return FAL_OK;
	}
	if (FAL_GROW(c->redo, c->redo_cap, c->redos + 1) < 0)
		return FAL_ENOMEM;
	c->redo[c->redos++] = (struct fal_redo){ r->round, by.worker };
	return again(c, now, r->round, blocks, &line);
}

/* Do they compute the same bits? */
static bool
same_bits(const struct fal_coord *c, uint32_t worker, uint32_t other)
{
	return memcmp(coord_known(c, worker)->fingerprint,
		      coord_known(c, other)->fingerprint, FAL_FINGERPRINT) == 0;
}

/* What led out of the numbers does not any more. */
static int
mended(struct fal_coord *c, double now, const struct fal_round_info *r)
{
	struct fal_redo *of = redo_of(c, r->round);
	if (of == NULL)
		return FAL_OK;
	const uint32_t worker = of->worker;
	*of = c->redo[--c->redos];
	for (uint32_t i = 0; i < r->ledger->contribs; i++)
		if (!same_bits(c, r->ledger->contrib[i].id.worker, worker))
			return FAL_OK;
	return fal_sched_charge(c->sched, now, worker, "values that others did not find");
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
	struct fal_redo *of = redo_of(c, round);
	if (of != NULL)
		*of = c->redo[--c->redos];
}

void
coord_judge_free(struct fal_coord *c)
{
	while (c->doubts > 0)
		forget(c, &c->doubt[0]);
	free(c->doubt);
	free(c->redo);
	free(c->on);
}

/* `counts`: by block what it counts as, where it is bounded; or NULL. */
static void
trace_check(struct fal_coord *c, double now, const struct fal_doubted *d,
	    const char *verdict, const char *why, const int8_t *counts)
{
	const struct fal_line_check line = { .round = d->round,
					     .id = d->is.id,
					     .block = d->is.block,
					     .needed = d->is.needed,
					     .shown = d->is.shown,
					     .exponent = d->is.exponent,
					     .by = d->by,
					     .counts = counts,
					     .blocks = fal_blocks(c->conf.params),
					     .verdict = verdict,
					     .why = why };
	fal_line_check(&c->line, fal_coord_seconds(c, now), &line);
	coord_trace(c);
}

static void
believe(struct fal_coord *c, double now, const struct fal_doubted *d, const char *why)
{
	fal_store_witness(c->store, d->round, d->is.id, NULL, 0);
	trace_check(c, now, d, "believed", why, NULL);
}

/* It counts as little more than what others have shown. */
static int
bound(struct fal_coord *c, double now, const struct fal_doubted *d, const char *why)
{
	struct fal_doubted is = *d;
	int8_t *counts = fal_calloc(fal_blocks(c->conf.params), 1);
	if (counts == NULL)
		return FAL_ENOMEM;
	if (fal_store_bound(c->store, d->round, d->is.id, d->seen, counts, &is.is) > 0)
		trace_check(c, now, &is, "bounded", why, counts);
	else
		trace_check(c, now, d, "believed", "others have shown it since", NULL);
	free(counts);
	return FAL_OK;
}

/* Nobody can say whether it is so.  Where the model must not depend on who computes what
 * it is believed. */
static int
unsure(struct fal_coord *c, double now, const struct fal_doubted *d, const char *why)
{
	if (!fal_rule_lawful(&fal_sched_policy(c->sched)->rule))
		return bound(c, now, d, why);
	believe(c, now, d, why);
	return FAL_OK;
}

/* The version that the contribution was computed on; false: its tasks were granted on
 * several. */
static bool
computed_on(const struct fal_coord *c, const struct fal_round_info *r, struct fal_cid id,
	    uint64_t *version)
{
	const uint32_t ci = fal_ledger_find(r->ledger, id);
	uint32_t at = ci != FAL_NONE ? r->ledger->contrib[ci].head : FAL_NONE;
	*version = UINT64_MAX;
	for (; at != FAL_NONE; at = r->ledger->claim[at].next) {
		const uint32_t task = r->ledger->claim[at].task;
		uint64_t on = r->version;
		for (size_t i = 0; i < c->ons; i++) {
			const struct fal_granted_on *o = &c->on[i];
			if (o->round == r->round && o->worker == id.worker &&
			    task - o->first < o->count)
				on = o->version;
		}
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
	struct fal_check_of of = { d->is.id, d->is.key, but, 0 };
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, d->round, &r) ||
	    !computed_on(c, &r, d->is.id, &of.version))
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

/* A contribution that is doubted for the first time.  1: a witness is asked. */
static int
doubt(struct fal_coord *c, double now, uint64_t round, const struct fal_store_doubt *is)
{
	struct fal_doubted d = { .round = round, .is = *is };
	if (FAL_GROW(c->doubt, c->doubt_cap, c->doubts + 1) < 0)
		return FAL_ENOMEM;
	int asked = ask(c, now, &d, 0);
	if (asked == 1)
		c->doubt[c->doubts++] = d;
	return asked != 0 ? asked : unsure(c, now, &d, "nobody could be asked");
}

/* 1: the round waits for a witness. */
static int
doubts(struct fal_coord *c, double now, const struct fal_round_info *r)
{
	struct fal_store_doubt is;
	uint32_t at = 0;
	int waits = 0;
	while (fal_store_doubt(c->store, r->round, &at, &is)) {
		int asked = doubted(c, r->round, is.id) != NULL
				    ? 1
				    : doubt(c, now, r->round, &is);
		if (asked < 0)
			return asked;
		waits |= asked;
	}
	return waits;
}

/* Another key found that the tasks needed less. */
static int
refuted(struct fal_coord *c, double now, const struct fal_doubted *of)
{
	static const char why[] = "it said to need what it did not";
	const struct fal_doubted d = *of;
	uint8_t *blocks = fal_calloc(fal_blocks(c->conf.params), 1);
	if (blocks == NULL)
		return FAL_ENOMEM;
	const struct fal_line_again line = {
		.id = d.is.id,
		.blocks = fal_store_brought(c->store, d.round, d.is.id, blocks),
		.why = "refuted"
	};
	struct fal_round_info r;
	trace_check(c, now, &d, "refuted", NULL, NULL);
	coord_judge_forget(c, d.round);
	int err = fal_sched_round(c->sched, d.round, &r) && r.owner != 0
			  ? fal_sched_abandon(c->sched, now, d.round, why)
			  : again(c, now, d.round, blocks, &line);
	free(blocks);
	return err < 0 ? err : fal_sched_charge(c->sched, now, d.is.id.worker, why);
}

/* All is answered, and it is less than was said.  Where a third key is here, it has the
 * last word. */
static int
contradicted(struct fal_coord *c, double now, struct fal_doubted *d,
	     const struct fal_peer *by)
{
	const uint64_t round = d->round;
	int asked = 0;
	if (d->odd || !same_bits(c, d->is.id.worker, by->worker)) {
		int err = d->odd ? unsure(c, now, d, "not finite there")
				 : bound(c, now, d, "it rounds differently");
		forget(c, d);
		return err < 0 ? err : coord_complete(c, now, round);
	}
	if (d->first == 0) {
		d->first = by->worker;
		asked = ask(c, now, d, by->key);
	}
	return asked == 0 ? refuted(c, now, d) : asked < 0 ? asked : FAL_OK;
}

/* As much as is known bears out what was said. */
static int
witnessed(struct fal_coord *c, double now, struct fal_doubted *d)
{
	const struct fal_doubted was = *d;
	trace_check(c, now, d, "witnessed", NULL, NULL);
	forget(c, d);
	int err = fal_sched_unasked(c->sched, was.round, was.is.id);
	if (err == FAL_OK && was.first != 0)
		err = fal_sched_charge(c->sched, now, was.first,
				       "it was a false witness");
	return err < 0 ? err : coord_complete(c, now, was.round);
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
	struct fal_cid of;
	int left = fal_sched_checked(c->sched, p->worker, m->checked.round,
				     m->checked.task, first + n == blocks, &of);
	struct fal_doubted *d = left > 0 ? doubted(c, m->checked.round, of) : NULL;
	if (d == NULL)
		return FAL_OK;
	const int8_t *needed = (const int8_t *)m->checked.needed.p;
	for (size_t b = 0; b < n; b++)
		if (needed[b] > d->seen[first + b])
			d->seen[first + b] = needed[b];
	d->odd |= m->checked.nonfinite != 0;
	d->by = p->worker;
	if (fal_store_witness(c->store, d->round, of, d->seen, p->key))
		return witnessed(c, now, d);
	return left == 2 ? contradicted(c, now, d, p) : FAL_OK;
}

int
coord_unheard(struct fal_coord *c, double now, const struct fal_act *a)
{
	struct fal_doubted *d = doubted(c, a->round, a->cid);
	if (d == NULL)
		return FAL_OK;
	const struct fal_peer *first = peer_of(c, d->first);
	int asked = ask(c, now, d, first != NULL ? first->key : 0);
	if (asked != 0)
		return asked < 0 ? asked : FAL_OK;
	if (d->first != 0)
		return refuted(c, now, d);
	int err = unsure(c, now, d,
			 a->count > 0 ? "no answer in time" : "nobody could be asked");
	forget(c, d);
	return err < 0 ? err : coord_complete(c, now, a->round);
}

int
coord_complete(struct fal_coord *c, double now, uint64_t round)
{
	struct fal_round_info r;
	if (c->why != NULL || !fal_store_complete(c->store, round) ||
	    !fal_sched_round(c->sched, round, &r))
		return FAL_OK;
	if (r.delta) /* records are bounded by what they hold */
		return fal_sched_complete(c->sched, now, round);
	uint8_t *blocks = fal_calloc(fal_blocks(c->conf.params), 1);
	struct fal_cid by = { 0, 0 };
	if (blocks == NULL)
		return FAL_ENOMEM;
	const double samples =
		fal_grid_range_samples(&c->conf.grid, r.clock, r.first, r.tasks);
	const uint32_t n = fal_store_beyond(c->store, round, samples, blocks, &by);
	int err = n > 0 ? beyond(c, now, &r, blocks, n, by) : FAL_OK;
	free(blocks);
	if (n > 0 || err < 0)
		return err;
	int waits = doubts(c, now, &r);
	if (waits != 0)
		return waits < 0 ? waits : FAL_OK;
	err = mended(c, now, &r);
	return err < 0 ? err : fal_sched_complete(c->sched, now, round);
}
