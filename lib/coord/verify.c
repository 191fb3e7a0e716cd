/* Tasks that another key runs, too: job.verify, and every clone.
 *
 * When a claim has come that may win, the coordinator draws, from what nobody else knows,
 * whether a worker of another key that computes the same bits is to run the task once
 * more; until it has said what came out the round is not over.  Two words that differ are
 * decided by a third key: whoever is alone with his word is charged, and has no session
 * any more while another key is here; what he brought is made again.  Where nobody is
 * there to decide, both are named, and that is all.
 *
 * Who does not answer is waited for as any witness is; then one more is asked.
 *
 * What is fenced stays to be verified while blocks of it count, beside what fills it: a
 * task may have two words that count, each for some blocks. */
#include "coord/priv.h"

#include "base/mem.h"

#include <string.h>

enum { ASKS = 2 }; /* workers, at most, for each word */

static const char charge_why[] = "its task came out otherwise on two others' machines";

uint32_t
coord_numerics_of(const struct fal_coord *c, const uint8_t fp[static FAL_FINGERPRINT])
{
	uint32_t i = 0;
	while (i < c->workers &&
	       memcmp(c->known[i].fingerprint, fp, FAL_FINGERPRINT) != 0)
		i++;
	return coord_is_pure(fp) ? i + 1 : 0;
}

static uint32_t
numerics_of(const struct fal_coord *c, uint32_t worker)
{
	return coord_numerics_of(c, coord_known(c, worker)->fingerprint);
}

static uint32_t
key_of(const struct fal_coord *c, uint32_t worker)
{
	return coord_known(c, worker)->key;
}

bool
coord_verify_draw(struct fal_coord *c, const struct fal_peer *p, uint64_t round)
{
	struct fal_round_info r;
	if (c->conf.verify <= 0 || !coord_is_pure(p->fingerprint) ||
	    !fal_sched_round(c->sched, round, &r) || r.delta)
		return false;
	return (double)fal_rng_unit(&c->rng) < c->conf.verify;
}

/* ---- what is being verified ------------------------------------------------------ */

static struct fal_verify *
find(const struct fal_coord *c, uint64_t round, uint32_t task, struct fal_cid id)
{
	for (size_t i = 0; i < c->verifies; i++)
		if (c->verify[i].round == round && c->verify[i].task == task &&
		    fal_cid_eq(c->verify[i].id, id))
			return &c->verify[i];
	return NULL;
}

/* Does its claim count, and not one that came when it was fenced? */
static bool
is_last(const struct fal_coord *c, const struct fal_verify *v)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, v->round, &r))
		return false;
	const uint32_t ci = fal_ledger_task(r.ledger, v->task)->contrib;
	return ci != FAL_NONE && fal_cid_eq(r.ledger->contrib[ci].id, v->id);
}

/* Is nothing of the contribution in any sum, nor will be? */
static bool
is_out(const struct fal_round_info *r, struct fal_cid id)
{
	const uint32_t ci = fal_ledger_find(r->ledger, id);
	return ci == FAL_NONE ||
	       (r->ledger->contrib[ci].blocks == 0 && r->ledger->contrib[ci].everywhere);
}

/* It is over.  The round may be, too, now. */
static int
drop(struct fal_coord *c, double now, struct fal_verify *v, bool confirmed)
{
	const struct fal_verify was = *v;
	confirmed &= is_last(c, v);
	*v = c->verify[--c->verifies];
	int err = fal_sched_unasked(c->sched, was.round, was.id, was.task);
	if (err == FAL_OK && was.held)
		err = fal_sched_sure(c->sched, now, was.round,
				     confirmed ? was.task : FAL_NONE);
	struct fal_gather *g = coord_gather(c, was.round);
	return err == FAL_OK && g != NULL ? coord_judge_again(c, now, g) : err;
}

/* No more words will come; `wrong`: the place of the one that two others contradict, or
 * `words`. */
static void
tell(struct fal_coord *c, double now, const struct fal_verify *v, uint32_t wrong)
{
	static const char *const verdicts[] = { "refuted", "false witness", "undecided" };
	const uint32_t first = key_of(c, v->word[0].worker) - 1;
	uint64_t left_out = 0;
	/* Of two keys that differ this may be said of each task. */
	if (wrong == 2 && v->words == 2 &&
	    !fal_seldom(&c->key[first].undecided, now, &left_out))
		return;
	struct fal_line_verify line = { .round = v->round,
					.clock = v->clock,
					.task = v->task,
					.id = v->id,
					.words = v->words,
					.wrong = wrong,
					.count = 1 + left_out,
					.verdict = verdicts[wrong < 2 ? wrong : 2] };
	struct fal_coord_unlike unlike = {
		.clock = v->clock,
		.task = v->task,
		.names = v->words,
		.wrong = wrong,
		.left_out = left_out,
	};
	for (uint32_t i = 0; i < v->words; i++) {
		const struct fal_known_worker *w = coord_known(c, v->word[i].worker);
		unlike.name[i] = w->name;
		unlike.key[i] = c->key[w->key - 1].name;
		line.word[i].who = (struct fal_line_who){ w->name, v->word[i].worker };
		line.word[i].hash = v->word[i].hash;
	}
	fal_line_verify(&c->line, fal_coord_seconds(c, now), &line);
	coord_trace(c);
	if (c->ops.unlike == NULL)
		return;
	coord_call(c);
	c->ops.unlike(c->ops.arg, &unlike);
	coord_called(c);
}

/* Nobody can decide. */
static int
give_up(struct fal_coord *c, double now, struct fal_verify *v)
{
	if (v->words > 1)
		tell(c, now, v, v->words > 2 ? v->words : 2);
	return drop(c, now, v, false);
}

/* One more key is to say what comes out. */
static int
ask(struct fal_coord *c, double now, struct fal_verify *v)
{
	struct fal_check_of of = { .id = v->id,
				   .key = key_of(c, v->word[0].worker),
				   .version = v->version,
				   .is_one = true,
				   .one = v->task,
				   .numerics = numerics_of(c, v->word[0].worker) };
	if (v->words > 1)
		of.but = key_of(c, v->word[1].worker);
	const int asked =
		v->asked++ < ASKS ? fal_sched_check(c->sched, now, v->round, &of) : 0;
	return asked == 0 ? give_up(c, now, v) : asked < 0 ? asked : FAL_OK;
}

/* ---- words ----------------------------------------------------------------------- */

static bool
same(const struct fal_verify *v, uint32_t a, uint32_t b)
{
	return memcmp(v->word[a].hash, v->word[b].hash, FAL_TASK_HASH) == 0;
}

/* Whose session it was, and all others of his key, are over. */
static int
charge(struct fal_coord *c, double now, uint32_t worker)
{
	c->key[key_of(c, worker) - 1].charges++; /* it needs no second time */
	return fal_sched_charge(c->sched, now, worker, charge_why);
}

/* Two say that it is not what the contribution has. */
static int
refuted(struct fal_coord *c, double now, struct fal_verify *v)
{
	const uint32_t worker = v->word[0].worker;
	const uint64_t round = v->round;
	struct fal_gather *g = coord_gather(c, round);
	struct fal_round_info r;
	int err = FAL_OK;
	tell(c, now, v, 0);
	if (g == NULL || !fal_sched_round(c->sched, round, &r)) {
		err = drop(c, now, v, false);
	} else if (r.owner != 0) {
		v->wrong = true;
		coord_turn(g); /* nothing that is on its way counts any more */
		err = fal_sched_abandon(c->sched, now, round, charge_why);
	} else {
		v->wrong = true;
		err = coord_judge_again(c, now, g);
	}
	return err < 0 ? err : charge(c, now, worker);
}

static int
judge(struct fal_coord *c, double now, struct fal_verify *v)
{
	if (v->words == 2 && same(v, 0, 1))
		return drop(c, now, v, true);
	if (v->words == 2) {
		v->asked = 0;
		return ask(c, now, v);
	}
	if (same(v, 1, 2))
		return refuted(c, now, v);
	if (!same(v, 0, 2))
		return give_up(c, now, v);
	const uint32_t liar = v->word[1].worker;
	tell(c, now, v, 1);
	int err = drop(c, now, v, true);
	return err < 0 ? err : charge(c, now, liar);
}

static int
hear(struct fal_coord *c, double now, struct fal_verify *v, uint32_t worker,
     const uint8_t hash[static FAL_TASK_HASH])
{
	v->word[v->words].worker = worker;
	memcpy(v->word[v->words++].hash, hash, FAL_TASK_HASH);
	return judge(c, now, v);
}

/* The worker's claim counts, and its word is the first. */
static struct fal_verify *
begin(struct fal_coord *c, const struct fal_round_info *r, struct fal_cid id,
      uint32_t task)
{
	const struct fal_claim *is = fal_ledger_claimed(r->ledger, task);
	if (FAL_GROW(c->verify, c->verify_cap, c->verifies + 1) < 0)
		return NULL;
	struct fal_verify *v = &c->verify[c->verifies++];
	*v = (struct fal_verify){ .round = r->round,
				  .clock = r->clock,
				  .task = task,
				  .id = id,
				  .version = is->version,
				  .words = 1 };
	v->word[0].worker = id.worker;
	memcpy(v->word[0].hash, is->hash, FAL_TASK_HASH);
	return v;
}

int
coord_verify(struct fal_coord *c, double now, uint64_t round, uint32_t task)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, round, &r) ||
	    fal_ledger_claimed(r.ledger, task) == NULL)
		return fal_sched_sure(c->sched, now, round, FAL_NONE);
	const uint32_t ci = fal_ledger_task(r.ledger, task)->contrib;
	struct fal_verify *v = begin(c, &r, r.ledger->contrib[ci].id, task);
	if (v == NULL)
		return FAL_ENOMEM;
	v->held = true;
	return ask(c, now, v);
}

int
coord_verify_clone(struct fal_coord *c, double now, const struct fal_peer *p,
		   const struct fal_msg *m)
{
	const uint64_t round = m->claim.round;
	const uint32_t task = m->claim.task;
	struct fal_round_info r;
	if (c->conf.verify <= 0 || !coord_is_pure(p->fingerprint) ||
	    !fal_sched_round(c->sched, round, &r) || r.delta ||
	    !fal_ledger_has(r.ledger, task) || fal_ledger_claimed(r.ledger, task) == NULL)
		return FAL_OK;
	const struct fal_ltask *t = fal_ledger_task(r.ledger, task);
	const struct fal_cid id = r.ledger->contrib[t->contrib].id;
	if (t->due || find(c, round, task, id) != NULL ||
	    numerics_of(c, id.worker) != numerics_of(c, p->worker) ||
	    key_of(c, id.worker) == p->key ||
	    fal_ledger_claimed(r.ledger, task)->version != m->claim.version)
		return FAL_OK;
	struct fal_verify *v = begin(c, &r, id, task);
	if (v == NULL)
		return FAL_ENOMEM;
	v->held = fal_sched_unsure(c->sched, round);
	return hear(c, now, v, p->worker, m->claim.hash);
}

int
coord_verify_checked(struct fal_coord *c, double now, const struct fal_peer *p,
		     const struct fal_msg *m)
{
	const uint64_t round = m->checked.round;
	const uint32_t task = m->checked.task;
	struct fal_cid of;
	int err = FAL_OK;
	/* It may have been asked for what was fenced, and for what fills that. */
	while (err == FAL_OK &&
	       fal_sched_checked_one(c->sched, p->worker, round, task, &of)) {
		struct fal_verify *v = find(c, round, task, of);
		if (v != NULL)
			err = hear(c, now, v, p->worker, m->checked.hash);
	}
	return err;
}

int
coord_verify_unheard(struct fal_coord *c, double now, const struct fal_act *a)
{
	struct fal_verify *v = find(c, a->round, a->first, a->cid);
	return v != NULL && !v->wrong ? ask(c, now, v) : FAL_OK;
}

/* ---- rounds ---------------------------------------------------------------------- */

struct fal_verify *
coord_verify_wrong(const struct fal_coord *c, uint64_t round)
{
	for (size_t i = 0; i < c->verifies; i++)
		if (c->verify[i].round == round && c->verify[i].wrong)
			return &c->verify[i];
	return NULL;
}

bool
coord_verify_waits(const struct fal_coord *c, uint64_t round)
{
	for (size_t i = 0; i < c->verifies; i++)
		if (c->verify[i].round == round && c->verify[i].held)
			return true;
	return false;
}

int
coord_verify_gone(struct fal_coord *c, double now, struct fal_verify *v)
{
	return drop(c, now, v, false);
}

/* Do two others contradict the worker on a task of the round?  Then it is named, and
 * nobody has to decide on the others. */
static bool
is_refuted(const struct fal_coord *c, uint64_t round, uint32_t worker)
{
	for (size_t i = 0; i < c->verifies; i++)
		if (c->verify[i].round == round && c->verify[i].wrong &&
		    c->verify[i].id.worker == worker)
			return true;
	return false;
}

/* The round is over, or, with `r`, what contribution `by` has brought was taken back: is
 * this over with it? */
static bool
is_over(const struct fal_verify *v, uint64_t round, const struct fal_round_info *r,
	struct fal_cid by)
{
	return v->round == round &&
	       (r == NULL || fal_cid_eq(v->id, by) || is_out(r, v->id));
}

/* Of all that is over: whose words differ, before any of it is forgotten. */
static void
tell_differing(struct fal_coord *c, double now, uint64_t round,
	       const struct fal_round_info *r, struct fal_cid by)
{
	for (size_t i = 0; i < c->verifies; i++) {
		const struct fal_verify *v = &c->verify[i];
		if (is_over(v, round, r, by) && v->words > 1 &&
		    !is_refuted(c, round, v->id.worker))
			tell(c, now, v, v->words);
	}
}

int
coord_verify_taken(struct fal_coord *c, double now, uint64_t round, struct fal_cid by)
{
	struct fal_round_info r;
	int err = FAL_OK;
	if (!fal_sched_round(c->sched, round, &r))
		return FAL_OK;
	tell_differing(c, now, round, &r, by);
	for (size_t i = 0; i < c->verifies && err == FAL_OK;) {
		struct fal_verify *v = &c->verify[i];
		if (!fal_sched_round(c->sched, round, &r) || !is_over(v, round, &r, by)) {
			i++;
			continue;
		}
		err = drop(c, now, v, false);
		i = 0; /* what followed may have moved them */
	}
	return err;
}

int
coord_verify_over(struct fal_coord *c, double now, uint64_t round)
{
	const struct fal_cid all = { 0, 0 };
	int err = FAL_OK;
	tell_differing(c, now, round, NULL, all);
	for (size_t i = 0; i < c->verifies && err == FAL_OK;) {
		struct fal_verify *v = &c->verify[i];
		if (!is_over(v, round, NULL, all)) {
			i++;
			continue;
		}
		const bool held = v->held;
		*v = c->verify[--c->verifies];
		if (held)
			err = fal_sched_sure(c->sched, now, round, FAL_NONE);
	}
	return err;
}
