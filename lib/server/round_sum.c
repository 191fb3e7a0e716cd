/* Open rounds: the sum of each, and which contribution brought which block. */
#include "server/store_priv.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/sorted.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void
forget_entries(struct round *r)
{
	for (uint32_t i = 0; i < r->entries; i++) {
		free(r->entry[i].seen);
		free(r->entry[i].inherited);
		free(r->entry[i].sums);
	}
	r->entries = 0;
}

/* The place in s->open where the round of this number stands, or belongs. */
static size_t
round_place(const struct fal_store *s, uint64_t number)
{
	size_t low = 0, high = s->open.n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (s->open.v[mid]->is.round < number)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct round *
round_find(const struct fal_store *s, uint64_t number)
{
	size_t at = round_place(s, number);
	bool is = at < s->open.n && s->open.v[at]->is.round == number;
	return is ? s->open.v[at] : NULL;
}

/* ---- contributions ------------------------------------------------------------- */

/* The place where the entry of `id` stands, or belongs. */
static size_t
entry_place(const struct round *r, struct fal_cid id)
{
	uint64_t key;
	_Static_assert(sizeof(key) == sizeof(id), "an id is a number");
	memcpy(&key, &id, sizeof(key));
	return fal_sorted_place64(r->entry, r->entries, sizeof(*r->entry), key);
}

static struct entry *
find(const struct round *r, struct fal_cid id)
{
	const size_t at = entry_place(r, id);
	const bool is = at < r->entries && fal_cid_eq(r->entry[at].id, id);
	return is ? &r->entry[at] : NULL;
}

static bool
bit(const uint8_t *bits, uint32_t i)
{
	return bits != NULL && (bits[i / 8] >> (i % 8) & 1) != 0;
}

/* The entry of `id`, made if it is new.  FAL_ESTATE: what it fills is not fenced. */
static int
enter(const struct fal_store *s, struct round *r, struct fal_cid id, struct fal_cid fills,
      struct entry **out)
{
	const uint32_t bytes = (s->blocks + 7) / 8;
	*out = find(r, id);
	if (*out != NULL)
		return FAL_OK;
	struct entry *from = fills.worker != 0 ? find(r, fills) : NULL;
	if (fills.worker != 0 && (from == NULL || !from->fenced))
		return FAL_ESTATE;
	struct entry e = { .id = id, .seen = fal_xcalloc(bytes, 1) };
	if (s->conf.checksums)
		e.sums = fal_xcalloc(s->blocks, sizeof(*e.sums));
	if (from != NULL) { /* all that it and what it fills have brought */
		e.inherited = fal_xcalloc(bytes, 1);
		for (uint32_t i = 0; i < bytes; i++)
			e.inherited[i] =
				from->seen[i] |
				(from->inherited != NULL ? from->inherited[i] : 0);
		e.have = from->have;
	}
	const size_t at = entry_place(r, id);
	FAL_XGROW(r->entry, r->entry_cap, (size_t)r->entries + 1);
	*out = &r->entry[at];
	memmove(*out + 1, *out, (r->entries++ - at) * sizeof(**out));
	**out = e;
	return FAL_OK;
}

/* ---- records ------------------------------------------------------------------- */

uint64_t
round_checksum(const struct fal_store *s, const struct round *r, uint32_t b)
{
	return fal_sum_checksum(r->sum, b, s->conf.first + b, r->is.seed);
}

/* The entries' checksums of block b. */
static uint64_t
checksums(const struct round *r, uint32_t b)
{
	uint64_t all = 0;
	for (uint32_t i = 0; i < r->entries; i++)
		all += r->entry[i].sums[b];
	return all;
}

/* A record's addition to a block, as its checksum. */
struct added {
	uint32_t block;
	uint64_t checksum; /* of its values, in the quantum of `exponent` */
	int exponent, was; /* of the record; of the block before */
	bool rounding;     /* something was rounded: checksums are not linear there */
};

/* Notes it, in the quantum that the block now has. */
static void
note_sum(const struct fal_store *s, struct round *r, struct entry *e,
	 const struct added *by)
{
	const uint32_t b = by->block;
	/* Values shifted by k bits have their checksum shifted, too, modulo 2^64. */
	const int k = by->was - r->exps[b], up = by->exponent - r->exps[b];
	for (uint32_t i = 0; i < r->entries && k > 0; i++)
		r->entry[i].sums[b] = k < 64 ? r->entry[i].sums[b] << k : 0;
	if (by->rounding)
		e->sums[b] = round_checksum(s, r, b) - checksums(r, b);
	else
		e->sums[b] = up < 64 ? by->checksum << (up > 0 ? up : 0) : 0;
}

/* The block has so many tasks more. */
static void
count_tasks(struct round *r, uint32_t b, uint32_t tasks)
{
	r->counted[b] += tasks;
	if (r->counted[b] == r->is.tasks)
		r->left--;
}

static int
count(struct fal_store *s, struct round *r, struct entry *e,
      const struct fal_bfp_rec *rec, uint32_t tasks)
{
	const uint32_t b = rec->block;
	struct added by = { .block = b, .exponent = rec->exponent, .was = r->exps[b] };
	int got = r->is.kind == FAL_KIND_GRAD && !r->is.mixed
			  ? fal_sum_add_rec(r->sum, rec)
			  : fal_sum_add_rec_aligned(r->sum, &r->exps[b], rec);
	if (got < 0)
		return got;
	if (s->conf.checksums) {
		by.checksum = fal_bfp_rec_checksum(rec, s->conf.first + b, r->is.seed);
		by.rounding = got > 0;
		note_sum(s, r, e, &by);
	}
	count_tasks(r, b, tasks);
	return FAL_OK;
}

/* The exponent of the record's largest value, roughly. */
static int8_t
magnitude(const struct fal_bfp_rec *rec)
{
	const uint64_t bound = fal_bfp_rec_bound(rec);
	if (bound == 0)
		return FAL_EXP_NONE;
	const int e = 64 - __builtin_clzll(bound) + rec->exponent - FAL_BFP_P;
	return (int8_t)(e < INT8_MAX ? e : INT8_MAX);
}

/* Can the record be what it says? */
static int
plausible(const struct fal_store *s, const struct round *r, const struct fal_bfp_rec *rec,
	  uint32_t tasks)
{
	if (r->is.kind == FAL_KIND_DELTA)
		return fal_bfp_rec_check_delta(rec);
	const struct range *had = &s->range[rec->block];
	if (r->is.mixed ? rec->exponent < had->least || rec->exponent > had->most
			: rec->exponent != r->exps[rec->block])
		return FAL_EINVAL;
	return fal_bfp_rec_check(rec, tasks, fal_bfp_room(s->conf.tasks));
}

int
fal_store_add(struct fal_store *s, const struct fal_store_from *from,
	      const struct fal_bfp_rec *given)
{
	struct round *r = round_find(s, from->round);
	struct fal_bfp_rec own = *given, *rec = &own;
	const uint32_t tasks = from->tasks;
	if (r == NULL)
		return FAL_ESTATE;
	struct entry *e = find(r, from->id);
	if (e != NULL && e->fenced)
		return FAL_EFENCED;
	const uint32_t b = rec->block -= s->conf.first;
	if (tasks == 0 || tasks > r->is.tasks || b >= s->blocks)
		return FAL_EINVAL;
	int err = plausible(s, r, rec, tasks);
	if (err == FAL_OK)
		err = enter(s, r, from->id, from->fills, &e);
	if (err < 0)
		return err;
	if (bit(e->seen, b))
		return FAL_EEXIST;
	const bool inherited = bit(e->inherited, b);
	if ((e->tasks != 0 && e->tasks != tasks) ||
	    (!inherited && tasks > r->is.tasks - r->counted[b]))
		return FAL_EINVAL;
	err = inherited ? FAL_OK : count(s, r, e, rec, tasks);
	if (err < 0)
		return err;
	e->tasks = tasks;
	e->seen[b / 8] |= (uint8_t)(1 << b % 8);
	e->have += !inherited;
	if (!inherited) {
		const struct fal_largest is = { from->id, magnitude(rec) };
		store_largest(&r->largest, &is);
		if (r->counted[b] == r->is.tasks)
			store_make_next(s, r, b);
	}
	return !inherited;
}

int
fal_store_fence(struct fal_store *s, uint64_t round, struct fal_cid id,
		struct fal_cid fills)
{
	struct round *r = round_find(s, round);
	struct entry *e;
	int err = r != NULL ? enter(s, r, id, fills, &e) : FAL_ESTATE;
	if (err == FAL_OK)
		e->fenced = true;
	return err;
}

/* Has the contribution, if there is one, not brought the block? */
static bool
lacks(const struct entry *e, uint32_t b)
{
	return e == NULL || (!bit(e->seen, b) && !bit(e->inherited, b));
}

int
fal_store_skip(struct fal_store *s, uint64_t round, uint32_t tasks, struct fal_cid fills)
{
	struct round *r = round_find(s, round);
	const struct entry *e = r != NULL ? find(r, fills) : NULL;
	if (r == NULL || tasks == 0 || tasks > r->is.tasks - r->skipped)
		return FAL_EINVAL;
	for (uint32_t b = 0; b < s->blocks; b++)
		if (lacks(e, b) && tasks > r->is.tasks - r->counted[b])
			return FAL_EINVAL;
	r->skipped += tasks;
	for (uint32_t b = 0; b < s->blocks; b++)
		if (lacks(e, b))
			count_tasks(r, b, tasks);
	return FAL_OK;
}

bool
fal_store_whole(const struct fal_store *s, uint64_t round, struct fal_cid id)
{
	const struct round *r = round_find(s, round);
	const struct entry *e = r != NULL ? find(r, id) : NULL;
	return e != NULL && e->have == s->blocks;
}

bool
fal_store_complete(const struct fal_store *s, uint64_t round)
{
	const struct round *r = round_find(s, round);
	return r != NULL && r->left == 0;
}

struct fal_brought *
fal_store_brought(const struct fal_store *s, uint64_t round, uint32_t *n)
{
	const struct round *r = round_find(s, round);
	*n = r != NULL ? r->entries : 0;
	struct fal_brought *all = fal_xcalloc(*n, sizeof(*all));
	for (uint32_t i = 0; i < *n; i++) {
		const struct entry *e = &r->entry[i];
		all[i].id = e->id;
		for (uint32_t b = 0; b < s->blocks; b++) {
			all[i].blocks += bit(e->seen, b) && !bit(e->inherited, b);
			all[i].sum += e->sums != NULL ? e->sums[b] : 0;
		}
	}
	return all;
}

uint64_t
fal_store_added(const struct fal_store *s, uint64_t round)
{
	const struct round *r = round_find(s, round);
	uint64_t sum = 0;
	for (uint32_t b = 0; r != NULL && b < s->blocks; b++)
		sum += store_is_made(s, r, b) ? s->making->checksums[b]
					      : round_checksum(s, r, b);
	return sum;
}

/* ---- rounds ---------------------------------------------------------------------- */

void
store_spare_sum(struct fal_store *s, struct fal_sum *sum)
{
	FAL_XGROW(s->spares.v, s->spares.cap, s->spares.n + 1);
	s->spares.v[s->spares.n++] = sum;
}

void
fal_store_open(struct fal_store *s, const struct fal_store_round *is)
{
	const int8_t *exps;
	const size_t at = round_place(s, is->round);
	struct round *r;
	assert(is->tasks > 0 && round_find(s, is->round) == NULL);
	if (s->closed.n > 0) { /* memory of one that is over */
		r = s->closed.v[--s->closed.n];
	} else {
		r = fal_xcalloc(1, sizeof(*r));
		r->exps = fal_xcalloc(s->blocks, sizeof(*r->exps));
		r->counted = fal_xcalloc(s->blocks, sizeof(*r->counted));
	}
	FAL_XGROW(s->open.v, s->open.cap, s->open.n + 1);
	r->is = *is;
	if (s->spares.n > 0)
		fal_sum_clear(r->sum = s->spares.v[--s->spares.n]);
	else
		r->sum = fal_must(fal_sum_new(s->conf.n));
	r->left = s->blocks;
	r->skipped = 0;
	r->largest = (struct fal_largest){ .exponent = FAL_EXP_NONE };
	memset(r->exps, 0, s->blocks * sizeof(*r->exps));
	memset(r->counted, 0, s->blocks * sizeof(*r->counted));
	if (is->kind == FAL_KIND_GRAD) {
		bool kept = fal_store_at(s, is->version, NULL, &exps);
		assert(kept);
		memcpy(r->exps, exps, s->blocks);
	}
	memmove(s->open.v + at + 1, s->open.v + at,
		(s->open.n++ - at) * sizeof(struct round *));
	s->open.v[at] = r;
}

void
fal_store_drop(struct fal_store *s, uint64_t round)
{
	struct round *r = round_find(s, round);
	if (r == NULL)
		return;
	const size_t at = round_place(s, round);
	memmove(s->open.v + at, s->open.v + at + 1,
		(--s->open.n - at) * sizeof(struct round *));
	if (r->sum != NULL)
		store_spare_sum(s, r->sum);
	r->sum = NULL;
	forget_entries(r);
	FAL_XGROW(s->closed.v, s->closed.cap, s->closed.n + 1);
	s->closed.v[s->closed.n++] = r;
}

void
store_free_rounds(struct fal_store *s)
{
	while (s->open.n > 0)
		fal_store_drop(s, s->open.v[0]->is.round);
	for (size_t i = 0; i < s->closed.n; i++) {
		struct round *r = s->closed.v[i];
		free(r->exps);
		free(r->counted);
		free(r->entry);
		free(r);
	}
	for (size_t i = 0; i < s->spares.n; i++)
		fal_sum_free(s->spares.v[i]);
	free(s->open.v);
	free(s->closed.v);
	free(s->spares.v);
}

struct round *
store_completed(const struct fal_store *s, uint64_t round, enum fal_kind kind)
{
	struct round *r = round_find(s, round);
	assert(r != NULL && r->left == 0 && r->is.kind == kind);
	return r;
}

int
fal_store_give(struct fal_store *s, uint64_t round, struct fal_sum *into)
{
	const struct round *r = store_completed(s, round, FAL_KIND_GRAD);
	int64_t sum[FAL_BLOCK], v[FAL_BLOCK];
	int err = FAL_OK;
	for (uint32_t b = 0; b < s->blocks && err == FAL_OK; b++) {
		const uint32_t as = s->conf.first + b;
		const uint32_t len = fal_block_len(s->conf.n, b);
		const uint64_t bound = fal_sum_bound(r->sum, b) + fal_sum_bound(into, as);
		const int8_t needed = fal_sum_needed(r->sum, b),
			     had = fal_sum_needed(into, as);
		if (bound > (uint64_t)FAL_BFP_LIMIT)
			return FAL_ELIMIT;
		fal_sum_load(r->sum, b, v);
		fal_sum_load(into, as, sum);
		for (uint32_t i = 0; i < len; i++)
			sum[i] += v[i];
		err = fal_sum_store(into, as, sum, bound, needed > had ? needed : had);
	}
	fal_store_drop(s, round);
	return err;
}
