/* What a shard carries out in its order: ends of rounds, and what they are made into. */
#include "shard/shard_priv.h"

#include "base/line.h"
#include "base/mem.h"
#include "trace/chain.h"

#include <stdlib.h>
#include <string.h>

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
		fal_store_has_line(s->store, fal_line_of(o->version)));
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
						  .divisor = o->divisor };
	struct fal_unstepped unstepped = { 0 };
	int rank = FAL_OK;
	if (o->end == FAL_END_LINE && s->conf.optim.clip > 0)
		fal_store_clip(s->store, o->squares);
	switch (o->end) {
	case FAL_END_MERGE:
		rank = fal_store_merge(s->store, o->round);
		break;
	case FAL_END_ADD:
		rank = fal_store_add_delta(s->store, o->round, o->weight, &unstepped);
		break;
	case FAL_END_LINE:
		unstepped = fal_store_line_step(s->store, o->round, &step);
		break;
	case FAL_END_REVISE:
		rank = fal_store_revise(s->store, o->round, o->slot, &unstepped);
		if (rank >= 0)
			fal_store_forget_slots(s->store, o->below);
		break;
	case FAL_END_GIVE:
		rank = o->into != NULL ? fal_store_give(s->store, o->round, o->into)
				       : FAL_EINVAL;
		break;
	case FAL_END_DROP:
		break;
	}
	if (rank == FAL_ELIMIT)
		ended->odd = "gradients are beyond the range of sums";
	else if (rank < 0)
		return rank;
	ended->rank = rank > 0 ? (uint32_t)rank : 0;
	say_unstepped(ended, &unstepped);
	return FAL_OK;
}

static int
end_round(struct fal_shard *s, struct shard_round *open, const struct fal_shard_order *o)
{
	struct fal_shard_say ended = { .kind = FAL_SAY_ENDED, .round = o->round };
	if (!can_end(s, open, o))
		return FAL_ESTATE;
	int err = s->conf.checksums ? shard_brought(s, o->round, &ended) : FAL_OK;
	if (s->conf.checksums)
		ended.added = fal_store_added(s->store, o->round);
	if (err == FAL_OK)
		err = collect(s, o, &ended);
	fal_store_drop(s->store, o->round); /* unless it is gone already */
	memmove(open, open + 1, (size_t)(s->open + --s->opens - open) * sizeof(*open));
	if (err == FAL_OK)
		err = shard_say(s, &ended);
	if (err < 0)
		free(ended.brought);
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
static int
hash(struct fal_shard *s, struct fal_shard_say *stepped)
{
	stepped->leaves = fal_calloc(s->conf.count, FAL_HASH_BYTES);
	stepped->exps = fal_calloc(s->conf.count, sizeof(*stepped->exps));
	if (stepped->leaves == NULL || stepped->exps == NULL)
		return FAL_ENOMEM;
	memcpy(stepped->exps, fal_store_exps(s->store), s->conf.count);
	stepped->first = s->conf.first;
	stepped->blocks = s->conf.count;
	struct hashing of = { s->store, stepped->leaves };
	fal_parallel_each(s->conf.parallel,
			  (s->conf.count + FAL_LEAVES_TOGETHER - 1) / FAL_LEAVES_TOGETHER,
			  hash_some, &of);
	return FAL_OK;
}

static int
keep(struct fal_shard *s, uint32_t versions)
{
	if (versions == 0)
		return FAL_EINVAL;
	return fal_store_keep(s->store,
			      versions < FAL_KEPT_MAX ? versions : FAL_KEPT_MAX);
}

static int
line(struct fal_shard *s, uint64_t version)
{
	const uint32_t is = fal_line_of(version);
	return is == 0 || is > FAL_IMAGE_OTHERS ? FAL_EINVAL
						: fal_store_line(s->store, version);
}

static int
step(struct fal_shard *s, const struct fal_shard_order *o)
{
	struct fal_shard_say stepped = { .kind = FAL_SAY_STEPPED };
	int err = o->weight > 0 ? fal_store_outer(s->store, o->weight, o->momentum)
				: FAL_OK;
	if (err == FAL_OK)
		err = keep(s, o->versions);
	if (err < 0)
		return err;
	if (s->conf.optim.clip > 0 && fal_store_has_gradients(s->store))
		fal_store_clip(s->store, o->squares);
	const struct fal_unstepped unstepped =
		fal_store_step(s->store, o->lr, o->divisor);
	say_unstepped(&stepped, &unstepped);
	stepped.version = fal_store_version(s->store);
	if (o->mark)
		shard_mark(s, o->below);
	err = o->hash ? hash(s, &stepped) : FAL_OK;
	if (err == FAL_OK)
		err = shard_say(s, &stepped);
	if (err < 0) {
		free(stepped.leaves);
		free(stepped.exps);
	}
	return err;
}

/* What it is clipped by. */
static int
squares(struct fal_shard *s, const struct fal_shard_order *o)
{
	struct fal_shard_say are = { .kind = FAL_SAY_SQUARES,
				     .version = o->version,
				     .first = s->conf.first,
				     .blocks = s->conf.count };
	are.squares = fal_calloc(s->conf.count, sizeof(*are.squares));
	if (are.squares == NULL)
		return FAL_ENOMEM;
	fal_store_squares(s->store, o->kind == FAL_ORDER_END ? o->round : UINT64_MAX,
			  o->divisor, are.squares);
	int err = shard_say(s, &are);
	if (err < 0)
		free(are.squares);
	return err;
}

/* What waits first is the end of a round, and behind it the step of that alone: blocks
 * that have all of it are stepped meanwhile. */
static int
step_early(struct fal_shard *s, const struct shard_round *open)
{
	const struct fal_shard_order *end = &s->wait[0].order, *step = end;
	if (s->waits > 1)
		step = &s->wait[1].order;
	if (s->conf.at_once != NULL && *s->conf.at_once)
		return FAL_OK;
	if (open->late || end->kind != FAL_ORDER_END || end->end != FAL_END_MERGE ||
	    step->kind != FAL_ORDER_STEP || step->ahead || step->clipped ||
	    step->weight > 0)
		return FAL_OK;
	const struct fal_store_make how = { .round = open->round,
					    .lr = step->lr,
					    .divisor = step->divisor };
	(void)fal_store_make(s->store, &how);
	return FAL_OK;
}

/* Its turn has come. */
static int
carry_out(struct fal_shard *s, const struct fal_shard_order *o)
{
	struct shard_round *open = shard_find(s, o->round);
	int err = FAL_OK;
	switch (o->kind) {
	case FAL_ORDER_END:
		err = open != NULL ? end_round(s, open, o) : FAL_OK;
		break;
	case FAL_ORDER_LINE:
		err = line(s, o->version);
		break;
	case FAL_ORDER_COLLECT:
		if (!fal_store_has_line(s->store, o->line))
			return FAL_ESTATE;
		return fal_store_push(s->store, o->line, o->weight);
	case FAL_ORDER_STEP:
		err = step(s, o);
		break;
	case FAL_ORDER_KEEP:
		return keep(s, o->versions);
	case FAL_ORDER_HOLD:
		return shard_hold(s, o->version);
	case FAL_ORDER_MARK:
		shard_mark(s, o->below);
		return FAL_OK;
	default: /* FORGET */
		fal_store_forget_slots(s->store, UINT64_MAX);
		fal_store_forget_lines(s->store);
		return FAL_OK;
	}
	return err < 0 ? err : shard_open_late(s); /* a version may have been made */
}

int
shard_go_on(struct fal_shard *s)
{
	int err = FAL_OK;
	while (s->waits > 0 && err == FAL_OK) {
		struct waiting *first = &s->wait[0];
		const struct fal_shard_order o = first->order;
		const struct shard_round *open = o.ahead ? shard_find(s, o.round) : NULL;
		if (open != NULL && !fal_store_complete(s->store, o.round))
			return step_early(s, open);
		if (o.clipped && first->asked)
			return FAL_OK;
		first->asked = o.clipped;
		if (o.clipped)
			return squares(s, &o);
		memmove(first, first + 1, --s->waits * sizeof(*first));
		err = carry_out(s, &o);
	}
	return err;
}

int
shard_wait_for(struct fal_shard *s, struct shard_round *open,
	       const struct fal_shard_order *o)
{
	if (FAL_GROW(s->wait, s->wait_cap, s->waits + 1) < 0)
		return FAL_ENOMEM;
	if (open != NULL && o->kind == FAL_ORDER_END)
		open->ahead = o->ahead;
	s->wait[s->waits++] = (struct waiting){ .order = *o };
	return shard_go_on(s);
}

int
shard_scale(struct fal_shard *s, const struct fal_shard_order *o)
{
	if (s->waits == 0 || !s->wait[0].asked)
		return FAL_OK; /* nobody has asked */
	s->wait[0].order.squares = o->squares;
	s->wait[0].order.clipped = false;
	return shard_go_on(s);
}
