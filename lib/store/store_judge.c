/* What a complete round may be made into: whether its sums lead out of the numbers, and
 * whether somebody says to have needed, or changes weights by, what nobody else has
 * shown. */
#include "store/store_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* More than this above what another key showed is doubted. */
enum { RISE = 2 };

static bool
bit(const uint8_t *bits, uint32_t i)
{
	return bits != NULL && (bits[i / 8] >> (i % 8) & 1) != 0;
}

/* ---- beyond the numbers ---------------------------------------------------------- */

/* Is the block's mean too large?  Mostly its bound proves that it is not. */
static bool
is_beyond(const struct fal_store *s, const struct round *r, uint32_t b, double divisor)
{
	float mean[FAL_BLOCK];
	const double bound = (double)fal_sum_bound(r->sum, b);
	const int most = fal_optim_most(&s->conf.optim);
	if (ldexp(bound, r->exps[b] - FAL_BFP_P + 1) < ldexp(divisor, most))
		return false;
	fal_sum_mean(r->sum, b, r->exps[b], divisor, mean);
	return fal_max_abs(mean, fal_block_len(s->conf.n, b)) >= ldexpf(1, most);
}

uint32_t
fal_store_beyond(struct fal_store *s, uint64_t round, double divisor, uint8_t *blocks,
		 struct fal_cid *by, int8_t *most)
{
	const struct round *r = round_find(s, round);
	uint32_t n = 0;
	*most = FAL_EXP_NONE;
	memset(blocks, 0, s->blocks);
	for (uint32_t b = 0; b < s->blocks; b++) {
		if (store_is_made(s, r, b) || !is_beyond(s, r, b, divisor))
			continue;
		blocks[b] = 1;
		n++;
		for (uint32_t i = 0; i < r->entries; i++)
			if (r->entry[i].largest[b] > *most) {
				*most = r->entry[i].largest[b];
				*by = r->entry[i].id;
			}
	}
	return n;
}

uint32_t
fal_store_brought(const struct fal_store *s, uint64_t round, struct fal_cid id,
		  uint8_t *blocks)
{
	const struct round *r = round_find(s, round);
	const struct entry *e = r != NULL ? round_entry(r, id) : NULL;
	uint32_t n = 0;
	for (uint32_t b = 0; b < s->blocks; b++) {
		const bool is = e != NULL && bit(e->seen, b) && !bit(e->inherited, b);
		n += is;
		if (blocks != NULL)
			blocks[b] = is;
	}
	return n;
}

/* The entry has never brought the block. */
static void
forget_block(struct entry *e, uint32_t b)
{
	const uint8_t mask = (uint8_t)~(1 << b % 8);
	e->have -= bit(e->seen, b) || bit(e->inherited, b);
	e->seen[b / 8] &= mask;
	if (e->inherited != NULL)
		e->inherited[b / 8] &= mask;
	e->needed[b] = e->largest[b] = FAL_EXP_NONE;
	if (e->sums != NULL)
		e->sums[b] = 0;
}

uint32_t
fal_store_take_back(struct fal_store *s, uint64_t round, const uint8_t *blocks)
{
	struct round *r = round_find(s, round);
	uint32_t n = 0;
	for (uint32_t b = 0; r != NULL && b < s->blocks; b++) {
		if (!blocks[b] || store_is_made(s, r, b))
			continue;
		n++;
		fal_sum_clear_block(r->sum, b);
		r->left += r->counted[b] == r->is.tasks;
		r->counted[b] = r->skipped;
		r->left -= r->counted[b] == r->is.tasks; /* all of them, by now */
		for (uint32_t i = 0; i < r->entries; i++)
			forget_block(&r->entry[i], b);
	}
	return n;
}

/* ---- what was needed ------------------------------------------------------------- */

/* What of a contribution is held against what others have shown, by block: of gradients
 * what it says it needed, of changes of weights how large they are. */
static int8_t *
said(const struct round *r, const struct entry *e)
{
	return r->is.kind == FAL_KIND_DELTA ? e->largest : e->needed;
}

/* One more that was shown. */
static void
show(struct shown *s, uint32_t key, int8_t needed)
{
	if (needed == FAL_EXP_NONE)
		return;
	if (key == s->key[0]) {
		s->most[0] = needed > s->most[0] ? needed : s->most[0];
	} else if (needed > s->most[0]) {
		s->key[1] = s->key[0];
		s->most[1] = s->most[0];
		s->key[0] = key;
		s->most[0] = needed;
	} else if (key == s->key[1] || needed > s->most[1]) {
		s->key[1] = key;
		s->most[1] = needed > s->most[1] ? needed : s->most[1];
	}
}

/* What the round shows of block b. */
static struct shown
shown_in(const struct round *r, uint32_t b)
{
	struct shown all = { .most = { FAL_EXP_NONE, FAL_EXP_NONE } };
	for (uint32_t i = 0; i < r->entries; i++) {
		const struct entry *e = &r->entry[i];
		const int8_t shows = said(r, e)[b];
		show(&all, e->key, shows);
		if (e->witness != 0)
			show(&all, e->witness, shows);
	}
	return all;
}

static struct shown *
shown_at(const struct fal_store *s, uint32_t b, uint64_t update)
{
	return &s->shown[(size_t)b * SHOWN_UPDATES + update % SHOWN_UPDATES];
}

/* Has nobody but one key shown anything of the block in the last updates? */
static bool
is_of_one(const struct fal_store *s, uint32_t b)
{
	uint32_t key = 0;
	for (uint64_t i = 0; i < SHOWN_UPDATES; i++) {
		const struct shown *is = shown_at(s, b, i);
		if (is->key[1] != 0 || (key != 0 && is->key[0] != 0 && is->key[0] != key))
			return false;
		key = is->key[0] != 0 ? is->key[0] : key;
	}
	return true;
}

/* Who changes weights faster than others come does not make them forgotten. */
void
store_remember(struct fal_store *s, const struct round *r)
{
	for (uint32_t b = 0; b < s->blocks; b++) {
		struct shown *to = shown_at(s, b, s->showns);
		const struct shown was = *to;
		*to = shown_in(r, b);
		if (r->is.kind == FAL_KIND_DELTA && s->showns >= SHOWN_UPDATES &&
		    is_of_one(s, b)) {
			show(to, was.key[0], was.most[0]);
			show(to, was.key[1], was.most[1]);
		}
	}
	s->showns++;
}

/* A block may change much where another hardly does, whoever computes it: how much
 * weights change anywhere is what counts. */
static void
show_whole(struct fal_store *s)
{
	struct shown all = s->judged[0];
	double most = 1;
	for (uint32_t b = 0; b < s->blocks; b++) {
		show(&all, s->judged[b].key[0], s->judged[b].most[0]);
		show(&all, s->judged[b].key[1], s->judged[b].most[1]);
		most = fmax(most, s->reach[b].params);
	}
	for (uint32_t b = 0; b < s->blocks; b++)
		s->judged[b] = all;
	s->scale = (int8_t)fmin(ilogb(most), FAL_EXP_MAX);
}

/* What the round and the last updates show of block b. */
static struct shown
shown_by_all(const struct fal_store *s, const struct round *r, uint32_t b)
{
	const uint64_t n = s->showns < SHOWN_UPDATES ? s->showns : SHOWN_UPDATES;
	struct shown all = shown_in(r, b);
	for (uint64_t i = 0; i < n; i++) {
		const struct shown *was = shown_at(s, b, i);
		show(&all, was->key[0], was->most[0]);
		show(&all, was->key[1], was->most[1]);
	}
	return all;
}

/* The same of each block, in s->judged. */
static void
show_all(struct fal_store *s, const struct round *r)
{
	for (uint32_t b = 0; b < s->blocks; b++)
		s->judged[b] = shown_by_all(s, r, b);
	if (r->is.kind == FAL_KIND_DELTA)
		show_whole(s);
}

/* The doubt of a block. */
static struct fal_store_doubt
doubt_of(const struct round *r, const struct entry *e, uint32_t b, int shown)
{
	const bool own = r->is.mixed || r->is.kind == FAL_KIND_DELTA;
	return (struct fal_store_doubt){
		e->id,         e->key,        b,
		said(r, e)[b], (int8_t)shown, own ? FAL_EXP_NONE : r->exps[b]
	};
}

/* What of `all` another key than the contribution's has shown; with none, what the
 * version has, or the largest weight, and no less than 1. */
static int
shown_to(const struct fal_store *s, const struct shown *all, const struct round *r,
	 const struct entry *e, uint32_t b)
{
	const int8_t most = all->most[all->key[0] == e->key];
	if (most != FAL_EXP_NONE)
		return most;
	return r->is.kind == FAL_KIND_DELTA ? s->scale : r->exps[b];
}

/* Is it never doubted, or not any more? */
static bool
is_trusted(const struct round *r, const struct entry *e)
{
	return (e->tasks < 2 && r->is.kind == FAL_KIND_GRAD) || e->believed;
}

bool
store_is_good(const struct fal_store *s, const struct round *r, uint32_t b,
	      double divisor)
{
	const struct shown all = shown_by_all(s, r, b);
	if (is_beyond(s, r, b, divisor))
		return false;
	for (uint32_t i = 0; i < r->entries; i++) {
		const struct entry *e = &r->entry[i];
		if (!is_trusted(r, e) &&
		    said(r, e)[b] > shown_to(s, &all, r, e, b) + RISE)
			return false;
	}
	return true;
}

bool
fal_store_doubt(struct fal_store *s, uint64_t round, uint32_t *at,
		struct fal_store_doubt *out)
{
	const struct round *r = round_find(s, round);
	if (r == NULL)
		return false;
	if (*at == 0)
		show_all(s, r);
	for (; *at < r->entries; ++*at) {
		const struct entry *e = &r->entry[*at];
		if (is_trusted(r, e))
			continue;
		for (uint32_t b = 0; b < s->blocks; b++) {
			const int shown = shown_to(s, &s->judged[b], r, e, b);
			if (said(r, e)[b] <= shown + RISE)
				continue;
			++*at;
			*out = doubt_of(r, e, b, shown);
			return true;
		}
	}
	return false;
}

bool
fal_store_witness(struct fal_store *s, uint64_t round, struct fal_cid id,
		  const int8_t *seen, uint32_t by)
{
	const struct round *r = round_find(s, round);
	struct entry *e = r != NULL ? round_entry(r, id) : NULL;
	if (e == NULL)
		return true;
	show_all(s, r);
	for (uint32_t b = 0; b < s->blocks && seen != NULL; b++)
		if (e->needed[b] > seen[b] &&
		    e->needed[b] > shown_to(s, &s->judged[b], r, e, b) + RISE)
			return false;
	e->witness = by;
	return e->believed = true;
}

/* The most that a contribution of the round needed for the block. */
static int8_t
most_needed(const struct round *r, uint32_t b)
{
	int8_t most = FAL_EXP_NONE;
	for (uint32_t i = 0; i < r->entries; i++)
		most = r->entry[i].needed[b] > most ? r->entry[i].needed[b] : most;
	return most;
}

/* Nothing of the block changes any weight. */
static void
leave_out(const struct round *r, uint32_t b)
{
	fal_sum_clear_block(r->sum, b);
	for (uint32_t i = 0; i < r->entries; i++)
		if (r->entry[i].sums != NULL)
			r->entry[i].sums[b] = 0;
}

uint32_t
fal_store_bound(struct fal_store *s, uint64_t round, struct fal_cid id,
		const int8_t *seen, int8_t *counts, struct fal_store_doubt *out)
{
	const struct round *r = round_find(s, round);
	struct entry *e = r != NULL ? round_entry(r, id) : NULL;
	uint32_t n = 0;
	memset(counts, FAL_EXP_NONE, s->blocks);
	if (e == NULL)
		return 0;
	show_all(s, r);
	for (uint32_t b = 0; b < s->blocks; b++) {
		int shown = shown_to(s, &s->judged[b], r, e, b);
		shown = seen != NULL && seen[b] > shown ? seen[b] : shown;
		if (said(r, e)[b] <= shown + RISE)
			continue;
		if (n++ == 0)
			*out = doubt_of(r, e, b, shown);
		said(r, e)[b] = counts[b] = (int8_t)(shown + RISE);
		if (r->is.kind == FAL_KIND_DELTA)
			leave_out(r, b);
		else
			fal_sum_set_needed(r->sum, b, most_needed(r, b));
	}
	e->believed = true;
	return n;
}
