/* A shard: orders and pushes in, what becomes of them out. */
#include "server/shard.h"

#include "base/branch.h"
#include "base/mem.h"
#include "base/sorted.h"
#include "crypto/secret.h"
#include "server/store.h"
#include "trace/chain.h"

#include <stdlib.h>
#include <string.h>

struct shard_round {
	uint64_t round; /* first: they stand in its order */
	bool late;      /* the store does not know the round: its version is to be made */
	bool ahead;     /* the round's end is ordered */
	uint32_t skipped; /* tasks, while it is late */
	struct fal_facts is;
};

struct fal_shard {
	struct fal_shard_conf conf;
	struct fal_store *store;
	struct shard_round *open; /* by round */
	size_t opens, open_cap;
	uint64_t next_round; /* no order has opened this one, nor any behind it */
	/* Fences of rounds that are not open yet. */
	struct early {
		uint64_t round;
		struct fal_cid id, fills;
	} *early;
	size_t earlies, early_cap;
	/* Orders that the shard carries out in sequence: the first one waits for its
	 * round, or for the squares of other shards, the others for the first one. */
	struct waiting {
		struct fal_shard_order order;
		bool asked; /* SQUARES was said */
	} *wait;
	size_t waits, wait_cap;
	bool holds;
	uint64_t held; /* version */
	float *held_params;
	int8_t *held_exps;
	struct fal_image marked; /* or nothing, or memory for one: */
	bool there;              /* it is one */

	struct fal_shard_say *say;
	size_t says, next, say_cap;
};

struct fal_shard *
fal_shard_new(const struct fal_shard_conf *conf, const float *init)
{
	const size_t from = (size_t)conf->first * FAL_BLOCK;
	const size_t most = (size_t)conf->count * FAL_BLOCK;
	struct fal_shard *s = fal_xcalloc(1, sizeof(*s));
	const struct fal_store_conf store = { .n = conf->n - from < most ? conf->n - from
									 : most,
					      .first = conf->first,
					      .tasks = conf->tasks,
					      .bits = conf->bits,
					      .optim = conf->optim,
					      .checksums = conf->checksums,
					      .parallel = conf->parallel };
	s->conf = *conf;
	s->store = fal_store_new(&store, init);
	s->held_params = fal_alloc_pages(store.n, sizeof(float));
	s->held_exps = fal_xcalloc(conf->count, 1);
	if (s->store != NULL && s->held_params != NULL)
		return s;
	fal_shard_free(s);
	return NULL;
}

void
fal_shard_say_free(struct fal_shard_say *say)
{
	free(say->brought);
	free(say->exps);
	free(say->squares);
	free(say->leaves);
	*say = (struct fal_shard_say){ 0 };
}

void
fal_shard_free(struct fal_shard *s)
{
	if (s == NULL)
		return;
	for (size_t i = 0; i < s->says; i++)
		fal_shard_say_free(&s->say[i]);
	free(s->say);
	free(s->open);
	free(s->early);
	free(s->wait);
	free(s->held_params);
	free(s->held_exps);
	fal_image_free(&s->marked);
	fal_store_free(s->store);
	fal_secret_wipe(&s->conf.tickets, sizeof(s->conf.tickets));
	free(s);
}

/* Where the round is, or belongs. */
static size_t
place(const struct fal_shard *s, uint64_t round)
{
	return fal_sorted_place64(s->open, s->opens, sizeof(*s->open), round);
}

/* An open round, or NULL. */
static struct shard_round *
find(const struct fal_shard *s, uint64_t round)
{
	const size_t at = place(s, round);
	return at < s->opens && s->open[at].round == round ? &s->open[at] : NULL;
}

static void
say(struct fal_shard *s, const struct fal_shard_say *what)
{
	FAL_XGROW(s->say, s->say_cap, s->says + 1);
	s->say[s->says++] = *what;
}

bool
fal_shard_next(struct fal_shard *s, struct fal_shard_say *out)
{
	if (s->next > 0)
		fal_shard_say_free(&s->say[s->next - 1]);
	if (s->next == s->says) {
		s->next = s->says = 0;
		return false;
	}
	*out = s->say[s->next++];
	return true;
}

/* ---- the version that is held; images --------------------------------------------- */

/* The version is held; FAL_ESTATE: it is not kept. */
static int
hold(struct fal_shard *s, uint64_t version)
{
	const float *params;
	const int8_t *exps;
	if (!fal_store_at(s->store, version, &params, &exps))
		return FAL_ESTATE;
	s->holds = true;
	s->held = version;
	memcpy(s->held_params, params, fal_store_len(s->store) * sizeof(float));
	memcpy(s->held_exps, exps, s->conf.count);
	return FAL_OK;
}

/* As it is, but for the versions below `from`. */
static int
image_from(struct fal_shard *s, uint64_t from, struct fal_image *live)
{
	int err = fal_store_image(s->store, from, live);
	live->is.holds = s->holds;
	live->is.held = s->held;
	if (err < 0 || !s->holds || fal_image_keeps(&live->is))
		return err;
	fal_image_add(live, "held.params", true, s->held_params,
		      fal_store_len(s->store) * sizeof(float));
	fal_image_add(live, "held.exponents", false, s->held_exps, s->conf.count);
	return FAL_OK;
}

int
fal_shard_image(struct fal_shard *s, struct fal_image *live)
{
	return image_from(s, 0, live);
}

/* An image is made of the newest version, and of those before it from `from` on; without
 * memory there is none, and the job goes on. */
static void
mark(struct fal_shard *s, uint64_t from)
{
	struct fal_image live = { 0 };
	s->there = image_from(s, from, &live) == FAL_OK &&
		   fal_image_copy(&s->marked, &live) == FAL_OK;
	fal_image_free(&live);
}

bool
fal_shard_marked(struct fal_shard *s, uint64_t version, struct fal_image *out)
{
	if (!s->there || s->marked.is.version != version)
		return false;
	*out = s->marked;
	s->marked = (struct fal_image){ 0 };
	s->there = false;
	return true;
}

void
fal_shard_spare(struct fal_shard *s, struct fal_image *image)
{
	if (s->there || s->marked.arrays > 0)
		fal_image_free(image);
	else
		s->marked = *image;
	*image = (struct fal_image){ 0 };
}

int
fal_shard_become(struct fal_shard *s, const struct fal_image_head *is,
		 struct fal_image *live)
{
	if (is->holds && is->held > is->version)
		return FAL_EINVAL;
	int err = fal_store_become(s->store, is);
	s->holds = is->holds;
	s->held = is->held;
	return err < 0 ? err : fal_shard_image(s, live);
}

void
fal_shard_became(struct fal_shard *s)
{
	fal_store_became(s->store);
	if (s->holds && s->held >= fal_store_oldest(s->store))
		(void)hold(s, s->held); /* the held version is kept */
}

/* ---- rounds ------------------------------------------------------------------------ */

/* Carries out what waits, as far as that goes. */
static int go_on(struct fal_shard *s);

/* Says that the round is complete, if it is, or carries out its end. */
static int
complete(struct fal_shard *s, const struct shard_round *o)
{
	const struct fal_shard_say done = { .kind = FAL_SAY_COMPLETE, .round = o->round };
	if (!fal_store_complete(s->store, o->round))
		return FAL_OK;
	if (o->ahead)
		return go_on(s);
	say(s, &done);
	return FAL_OK;
}

/* What was fenced before the round was open. */
static int
fence_early(struct fal_shard *s, uint64_t round)
{
	size_t kept = 0;
	int err = FAL_OK;
	for (size_t i = 0; i < s->earlies; i++) {
		const struct early e = s->early[i];
		if (e.round != round)
			s->early[kept++] = e;
		else if (err == FAL_OK)
			err = fal_store_fence(s->store, round, e.id, e.fills);
	}
	s->earlies = kept;
	return err;
}

static int
open_round(struct fal_shard *s, uint64_t round, const struct fal_facts *is)
{
	const struct fal_store_round r = { .round = round,
					   .tasks = is->tasks,
					   .kind = is->kind,
					   .version = is->version,
					   .mixed = is->mixed,
					   .seed = fal_ticket_seed(&s->conf.tickets,
								   round) };
	fal_store_open(s->store, &r);
	return fence_early(s, round);
}

/* Is its version, if it needs one, still to be made? */
static bool
is_late(const struct fal_shard *s, const struct fal_facts *is)
{
	return is->kind == FAL_KIND_GRAD &&
	       !fal_store_at(s->store, is->version, NULL, NULL);
}

/* By an order, or by the first ticket that comes before it. */
static int
enter(struct fal_shard *s, uint64_t round, const struct fal_facts *is)
{
	const size_t at = place(s, round);
	const bool late = is_late(s, is);
	if (is->tasks == 0)
		return FAL_EINVAL;
	FAL_XGROW(s->open, s->open_cap, s->opens + 1);
	int err = late ? FAL_OK : open_round(s, round, is);
	if (err < 0)
		return err;
	memmove(s->open + at + 1, s->open + at, (s->opens++ - at) * sizeof(*s->open));
	s->open[at] = (struct shard_round){ .round = round, .late = late, .is = *is };
	return FAL_OK;
}

/* A version was made: rounds on it open. */
static int
open_late(struct fal_shard *s)
{
	int err = FAL_OK;
	for (size_t i = 0; i < s->opens && err == FAL_OK; i++) {
		struct shard_round *o = &s->open[i];
		if (!o->late || is_late(s, &o->is))
			continue;
		const struct fal_cid none = { 0, 0 };
		o->late = false;
		err = open_round(s, o->round, &o->is);
		if (err < 0 || o->skipped == 0)
			continue;
		err = fal_store_skip(s->store, o->round, o->skipped, none);
		err = err == FAL_OK ? complete(s, o) : err;
	}
	return err;
}

static int
fence(struct fal_shard *s, const struct shard_round *open,
      const struct fal_shard_order *o)
{
	const struct fal_shard_say fenced = { .kind = FAL_SAY_FENCED,
					      .round = o->round,
					      .id = o->id };
	int err = FAL_OK;
	if (open != NULL && !open->late)
		err = fal_store_fence(s->store, o->round, o->id, o->fills);
	else if (open == NULL && o->round >= s->next_round && s->earlies == s->conf.tasks)
		err = FAL_ELIMIT;
	else if (open != NULL || o->round >= s->next_round) {
		FAL_XGROW(s->early, s->early_cap, s->earlies + 1);
		s->early[s->earlies++] = (struct early){ o->round, o->id, o->fills };
	}
	if (err == FAL_OK)
		say(s, &fenced);
	return err;
}

static int
skip(struct fal_shard *s, struct shard_round *open, const struct fal_shard_order *o)
{
	const bool was = fal_store_complete(s->store, o->round);
	const uint32_t tasks = o->facts.tasks;
	if (open->late && tasks > open->is.tasks - open->skipped)
		return FAL_EINVAL;
	if (open->late) {
		open->skipped += tasks;
		return FAL_OK;
	}
	int err = fal_store_skip(s->store, o->round, tasks, o->fills);
	return err < 0 || was ? err : complete(s, open);
}

static int
keep(struct fal_shard *s, uint32_t versions)
{
	if (versions == 0)
		return FAL_EINVAL;
	fal_store_keep(s->store, versions < FAL_KEPT_MAX ? versions : FAL_KEPT_MAX);
	return FAL_OK;
}

/* What was made elsewhere. */
static int
put(struct fal_shard *s, const struct fal_shard_order *o)
{
	const float *params = o->params + (size_t)s->conf.first * FAL_BLOCK;
	const int8_t *exps = o->exps + s->conf.first;
	if (fal_store_made(s->store, NULL) != NULL)
		return FAL_ESTATE; /* it makes versions itself */
	int err = keep(s, o->versions);
	if (err == FAL_OK)
		err = fal_store_put(s->store, o->version, params, exps);
	return err < 0 ? err : open_late(s);
}

/* ---- what is carried out in its order ---------------------------------------------- */

/* Gradients were within the numbers, and yet a step leads out of them. */
static const char not_finite[] = "a step would make parameters that are not finite";

/* Is it complete, and of what such an end is made of? */
static bool
can_end(const struct fal_shard *s, const struct shard_round *open,
	const struct fal_shard_order *o)
{
	const bool grads = o->end == FAL_END_MERGE || o->end == FAL_END_LINE ||
			   o->end == FAL_END_GIVE;
	if (o->end == FAL_END_DROP)
		return true;
	return fal_store_complete(s->store, o->round) &&
	       open->is.kind == (grads ? FAL_KIND_GRAD : FAL_KIND_DELTA) &&
	       (o->end != FAL_END_LINE ||
		fal_store_has_line(s->store, fal_branch_of(o->version)));
}

static void
say_unstepped(struct fal_shard_say *say, const struct fal_unstepped *is)
{
	say->beyond = is->beyond;
	if (is->beyond > 0) {
		say->id = is->by.id;
		say->most = is->by.exponent;
	}
	if (is->refused > 0)
		say->odd = not_finite;
}

static int
collect(struct fal_shard *s, const struct fal_shard_order *o, struct fal_shard_say *ended)
{
	const struct fal_store_line_step step = { .version = o->version,
						  .lr = o->lr,
						  .divisor = o->divisor,
						  .squares = o->squares };
	struct fal_unstepped unstepped = { 0 };
	int err = FAL_OK;
	switch (o->end) {
	case FAL_END_MERGE:
		err = fal_store_merge(s->store, o->round);
		break;
	case FAL_END_ADD:
		fal_store_add_delta(s->store, o->round, o->weight, &unstepped);
		break;
	case FAL_END_LINE:
		unstepped = fal_store_line_step(s->store, o->round, &step);
		break;
	case FAL_END_REVISE:
		ended->rank = fal_store_revise(s->store, o->round, o->slot, &unstepped);
		fal_store_forget_slots(s->store, o->below);
		break;
	case FAL_END_GIVE:
		err = o->into != NULL ? fal_store_give(s->store, o->round, o->into)
				      : FAL_EINVAL;
		break;
	case FAL_END_DROP:
		break;
	}
	if (err == FAL_ELIMIT)
		ended->odd = "gradients are beyond the range of sums";
	else if (err < 0)
		return err;
	say_unstepped(ended, &unstepped);
	return FAL_OK;
}

static int
end_round(struct fal_shard *s, struct shard_round *open, const struct fal_shard_order *o)
{
	struct fal_shard_say ended = { .kind = FAL_SAY_ENDED, .round = o->round };
	if (!can_end(s, open, o))
		return FAL_ESTATE;
	if (s->conf.checksums) {
		ended.brought = fal_store_brought(s->store, o->round, &ended.broughts);
		ended.added = fal_store_added(s->store, o->round);
	}
	int err = collect(s, o, &ended);
	fal_store_drop(s->store, o->round); /* unless it is gone already */
	memmove(open, open + 1, (size_t)(s->open + --s->opens - open) * sizeof(*open));
	if (err == FAL_OK)
		say(s, &ended);
	else
		fal_shard_say_free(&ended);
	return err;
}

struct hashing {
	const struct fal_store *of;
	uint8_t *leaves;
};

/* The leaves of some blocks. */
static void
hash_some(void *of, uint32_t part, uint32_t thread)
{
	(void)thread;
	const struct hashing *h = of;
	const size_t from = (size_t)part * FAL_LEAVES_TOGETHER * FAL_BLOCK;
	const size_t left = fal_store_len(h->of) - from;
	const size_t n = left < FAL_LEAVES_TOGETHER * FAL_BLOCK
				 ? left
				 : FAL_LEAVES_TOGETHER * FAL_BLOCK;
	fal_leaves(fal_store_params(h->of) + from, n,
		   h->leaves + (size_t)part * FAL_LEAVES_TOGETHER * FAL_HASH_BYTES);
}

/* The version that was just made, as its leaves and exponents. */
static void
hash(const struct fal_shard *s, struct fal_shard_say *stepped)
{
	stepped->leaves = fal_xcalloc(s->conf.count, FAL_HASH_BYTES);
	stepped->exps = fal_xcalloc(s->conf.count, sizeof(*stepped->exps));
	memcpy(stepped->exps, fal_store_exps(s->store), s->conf.count);
	stepped->first = s->conf.first;
	stepped->blocks = s->conf.count;
	struct hashing of = { s->store, stepped->leaves };
	fal_parallel_each(s->conf.parallel,
			  (s->conf.count + FAL_LEAVES_TOGETHER - 1) / FAL_LEAVES_TOGETHER,
			  hash_some, &of);
}

static int
step(struct fal_shard *s, const struct fal_shard_order *o)
{
	struct fal_shard_say stepped = { .kind = FAL_SAY_STEPPED };
	if (o->weight > 0)
		fal_store_outer(s->store, o->weight, o->momentum);
	int err = keep(s, o->versions);
	if (err < 0)
		return err;
	const struct fal_unstepped unstepped =
		fal_store_step(s->store,
			       &(struct fal_store_update){ .lr = o->lr,
							   .divisor = o->divisor,
							   .squares = o->squares,
							   .pusher = o->slot,
							   .part = o->part });
	say_unstepped(&stepped, &unstepped);
	stepped.version = fal_store_version(s->store);
	if (o->mark)
		mark(s, o->below);
	if (o->hash)
		hash(s, &stepped);
	say(s, &stepped);
	return FAL_OK;
}

/* Says the squares by which the order is clipped. */
static void
say_squares(struct fal_shard *s, const struct fal_shard_order *o)
{
	struct fal_shard_say are = { .kind = FAL_SAY_SQUARES,
				     .version = o->version,
				     .first = s->conf.first,
				     .blocks = s->conf.count };
	are.squares = fal_xcalloc(s->conf.count, sizeof(*are.squares));
	fal_store_squares(s->store, o->kind == FAL_ORDER_END ? o->round : UINT64_MAX,
			  o->divisor, are.squares);
	say(s, &are);
}

/* Steps early the blocks that have all of a round, where the end of that round waits
 * first, and behind it the step of that round alone. */
static void
step_early(struct fal_shard *s, const struct shard_round *open)
{
	const struct fal_shard_order *end = &s->wait[0].order, *step = end;
	if (s->waits > 1)
		step = &s->wait[1].order;
	if ((s->conf.at_once != NULL && *s->conf.at_once) || open->late ||
	    end->kind != FAL_ORDER_END || end->end != FAL_END_MERGE ||
	    step->kind != FAL_ORDER_STEP || step->ahead || step->clipped ||
	    step->weight > 0 || step->part.share > 0)
		return;
	const struct fal_store_make how = { .round = open->round,
					    .lr = step->lr,
					    .divisor = step->divisor };
	(void)fal_store_make(s->store, &how);
}

/* Carries out the order whose turn has come. */
static int
carry_out(struct fal_shard *s, const struct fal_shard_order *o)
{
	struct shard_round *open = find(s, o->round);
	const uint32_t line = fal_branch_of(o->version);
	int err = FAL_OK;
	switch (o->kind) {
	case FAL_ORDER_END:
		err = open != NULL ? end_round(s, open, o) : FAL_OK;
		break;
	case FAL_ORDER_LINE:
		if (line == 0 || line > FAL_IMAGE_OTHERS)
			return FAL_EINVAL;
		fal_store_line(s->store, o->version);
		break;
	case FAL_ORDER_COLLECT:
		if (!fal_store_has_line(s->store, o->line))
			return FAL_ESTATE;
		fal_store_push(s->store, o->line, o->weight);
		return FAL_OK;
	case FAL_ORDER_STEP:
		err = step(s, o);
		break;
	case FAL_ORDER_KEEP:
		return keep(s, o->versions);
	case FAL_ORDER_HOLD:
		return hold(s, o->version);
	case FAL_ORDER_MARK:
		mark(s, o->below);
		return FAL_OK;
	default: /* FORGET */
		if (o->slot != 0) {
			fal_store_forget_slot(s->store, o->slot);
			return FAL_OK;
		}
		fal_store_forget_slots(s->store, UINT64_MAX);
		fal_store_forget_lines(s->store);
		return FAL_OK;
	}
	return err < 0 ? err : open_late(s); /* a version may have been made */
}

static int
go_on(struct fal_shard *s)
{
	int err = FAL_OK;
	while (s->waits > 0 && err == FAL_OK) {
		struct waiting *first = &s->wait[0];
		const struct fal_shard_order o = first->order;
		const struct shard_round *open = o.ahead ? find(s, o.round) : NULL;
		if (open != NULL && !fal_store_complete(s->store, o.round)) {
			step_early(s, open);
			return FAL_OK;
		}
		if (o.clipped) {
			if (!first->asked)
				say_squares(s, &o);
			first->asked = true;
			return FAL_OK;
		}
		memmove(first, first + 1, --s->waits * sizeof(*first));
		err = carry_out(s, &o);
	}
	return err;
}

/* ---- orders ------------------------------------------------------------------------ */

int
fal_shard_order(struct fal_shard *s, const struct fal_shard_order *o)
{
	struct shard_round *open = find(s, o->round);
	switch (o->kind) {
	case FAL_ORDER_OPEN:
		s->next_round = o->round + 1;
		return open != NULL ? FAL_OK : enter(s, o->round, &o->facts);
	case FAL_ORDER_FENCE:
		return fence(s, open, o);
	case FAL_ORDER_SKIP:
		return open != NULL ? skip(s, open, o) : FAL_OK;
	case FAL_ORDER_SCALE: /* the first that waits is clipped by that */
		if (s->waits == 0 || !s->wait[0].asked)
			return FAL_OK; /* nobody has asked */
		s->wait[0].order.squares = o->squares;
		s->wait[0].order.clipped = false;
		return go_on(s);
	case FAL_ORDER_PUT:
		return o->params != NULL ? put(s, o) : FAL_EINVAL;
	default:
		FAL_XGROW(s->wait, s->wait_cap, s->waits + 1);
		if (open != NULL && o->kind == FAL_ORDER_END)
			open->ahead = o->ahead;
		s->wait[s->waits++] = (struct waiting){ .order = *o };
		return go_on(s);
	}
}

/* ---- pushes ------------------------------------------------------------------------ */

/* The round of a ticket is open, or too early: whoever has computed on a version got it
 * from here. */
static int
open_early(struct fal_shard *s, const struct fal_ticket *t, struct fal_diag *diag)
{
	const struct shard_round *open = find(s, t->round);
	if (open != NULL ? open->late : is_late(s, &t->facts))
		return fal_diag_set(diag, FAL_ESTATE,
				    "pushes what nobody can have computed yet");
	return open != NULL ? FAL_OK : enter(s, t->round, &t->facts);
}

/* Adds the records, each whatever the others are, and counts those that were not there
 * yet; why the first of them is no good.  *any: some were of blocks that are here. */
static int
add(struct fal_shard *s, const struct fal_store_from *from, struct fal_rd r,
    struct fal_shard_say *arrived, bool *any, struct fal_diag *diag)
{
	int err = FAL_OK;
	while (r.n > 0) {
		struct fal_bfp_rec rec;
		struct fal_diag *why = err == FAL_OK ? diag : NULL;
		int got = fal_bfp_parse(&r, s->conf.n, &rec);
		if (got < 0) {
			fal_diag_set(why, got, "a malformed block: %s",
				     fal_strerror(got));
			return err < 0 ? err : got;
		}
		if (rec.block - s->conf.first >= s->conf.count)
			continue;
		*any = true;
		got = fal_store_add(s->store, from, &rec);
		arrived->blocks += got == 1;
		if (got >= 0 ||
		    got == FAL_EFENCED) /* nobody has heard of the fence yet */
			continue;
		fal_diag_set(why, got, "block %u: %s", rec.block, fal_strerror(got));
		err = err == FAL_OK ? got : err;
	}
	return err;
}

int
fal_shard_push(struct fal_shard *s, const struct fal_ticket *t,
	       const struct fal_tail *records, struct fal_diag *diag)
{
	struct fal_shard_say arrived = { .kind = FAL_SAY_ARRIVED,
					 .round = t->round,
					 .id = t->id };
	const struct fal_store_from from = {
		.round = t->round, .id = t->id, .fills = t->fills, .tasks = t->tasks
	};
	if (find(s, t->round) == NULL && t->round < s->next_round)
		return FAL_OK; /* too late to matter */
	int err = open_early(s, t, diag);
	if (err < 0)
		return err;
	const bool was = fal_store_complete(s->store, t->round);
	const bool whole = fal_store_whole(s->store, t->round, t->id);
	bool any = false;
	err = add(s, &from, fal_rd_init(records->p, records->n), &arrived, &any, diag);
	fal_store_make_more(s->store);
	if (!any)
		return err;
	/* What came beside a bad record is counted: the ledger must say so. */
	arrived.whole = !whole && fal_store_whole(s->store, t->round, t->id);
	say(s, &arrived);
	const int next = was ? FAL_OK : complete(s, find(s, t->round));
	return err < 0 ? err : next;
}

uint64_t
fal_shard_version(const struct fal_shard *s)
{
	return fal_store_version(s->store);
}

bool
fal_shard_at(const struct fal_shard *s, uint64_t version, const float **params,
	     const int8_t **exps)
{
	if (fal_store_at(s->store, version, params, exps))
		return true;
	if (!s->holds || version != s->held)
		return false;
	*params = s->held_params;
	*exps = s->held_exps;
	return true;
}

bool
fal_shard_making(const struct fal_shard *s, struct fal_shard_making *out)
{
	uint32_t n;
	const uint8_t *made = fal_store_made(s->store, &n);
	if (made == NULL)
		return false;
	*out = (struct fal_shard_making){ .version = fal_store_version(s->store) + 1,
					  .params = fal_store_params(s->store),
					  .exps = fal_store_exps(s->store),
					  .made = made,
					  .n = n };
	return true;
}

const float *
fal_shard_average(const struct fal_shard *s)
{
	return fal_store_average(s->store);
}
