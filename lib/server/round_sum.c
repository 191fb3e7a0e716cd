/* Open rounds: the sum of each round, and which contribution brought which block. */
#include "server/store_priv.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/sorted.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The index in s->open of the round of this number, or the index at which to insert
 * it. */
static size_t
round_index(const struct fal_store *s, uint64_t number)
{
	size_t low = 0, high = s->open.n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (s->open.v[mid]->conf.round < number)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct round *
round_find(const struct fal_store *s, uint64_t number)
{
	size_t at = round_index(s, number);
	bool found = at < s->open.n && s->open.v[at]->conf.round == number;
	return found ? s->open.v[at] : NULL;
}

/* ---- contributions ------------------------------------------------------------- */

/* The index of the share of `id`, or the index at which to insert it. */
static size_t
share_index(const struct round *r, struct fal_contrib_id id)
{
	uint64_t key;
	_Static_assert(sizeof(key) == sizeof(id), "an id is a number");
	memcpy(&key, &id, sizeof(key));
	return fal_sorted_place64(r->share, r->shares, sizeof(*r->share), key);
}

static struct share *
share_find(const struct round *r, struct fal_contrib_id id)
{
	const size_t at = share_index(r, id);
	const bool found = at < r->shares && fal_contrib_id_equal(r->share[at].id, id);
	return found ? &r->share[at] : NULL;
}

static bool
has_bit(const uint8_t *bits, uint32_t i)
{
	return bits != NULL && (bits[i / 8] >> (i % 8) & 1) != 0;
}

/* Finds or adds the share of `id`.  FAL_ESTATE: the contribution `fills` is not fenced.
 */
static int
share_find_or_add(const struct fal_store *s, struct round *r, struct fal_contrib_id id,
		  struct fal_contrib_id fills, struct share **out)
{
	const uint32_t bytes = (s->blocks + 7) / 8;
	*out = share_find(r, id);
	if (*out != NULL)
		return FAL_OK;
	struct share *from = fills.worker != 0 ? share_find(r, fills) : NULL;
	if (fills.worker != 0 && (from == NULL || !from->is_fenced))
		return FAL_ESTATE;
	struct share e = { .id = id, .received = fal_xcalloc(bytes, 1) };
	if (s->conf.checksums)
		e.checksums = fal_xcalloc(s->blocks, sizeof(*e.checksums));
	if (from != NULL) {
		e.inherited = fal_xcalloc(bytes, 1);
		for (uint32_t i = 0; i < bytes; i++)
			e.inherited[i] =
				from->received[i] |
				(from->inherited != NULL ? from->inherited[i] : 0);
		e.n_counted = from->n_counted;
	}
	const size_t at = share_index(r, id);
	FAL_XGROW(r->share, r->share_cap, (size_t)r->shares + 1);
	*out = &r->share[at];
	memmove(*out + 1, *out, (r->shares++ - at) * sizeof(**out));
	**out = e;
	return FAL_OK;
}

/* ---- records ------------------------------------------------------------------- */

uint64_t
round_checksum(const struct fal_store *s, const struct round *r, uint32_t b)
{
	return fal_sum_checksum(r->sum, b, s->conf.first + b, r->conf.seed);
}

/* Updates the shares' checksums of a block after the record `rec` of share `e` was added:
 * `exponent_before` is the exponent of the block before the addition.  If the addition
 * has rounded a value (`is_rounded`), checksums are not linear. */
static void
update_checksums(const struct fal_store *s, struct round *r, struct share *e,
		 const struct fal_bfp_rec *rec, int exponent_before, bool is_rounded)
{
	const uint32_t b = rec->block;
	/* The checksum of values that are shifted by k bits is shifted by k bits, modulo
	 * 2^64. */
	const int k = exponent_before - r->exps[b], up = rec->exponent - r->exps[b];
	uint64_t others = 0;
	for (uint32_t i = 0; i < r->shares; i++) {
		uint64_t *sum = &r->share[i].checksums[b];
		if (k > 0)
			*sum = k < 64 ? *sum << k : 0;
		others += *sum;
	}
	if (is_rounded)
		e->checksums[b] = round_checksum(s, r, b) - others;
	else
		e->checksums[b] = up < 64 ? fal_bfp_rec_checksum(rec, s->conf.first + b,
								 r->conf.seed)
						    << (up > 0 ? up : 0)
					  : 0;
}

static void
count_tasks(struct round *r, uint32_t b, uint32_t tasks)
{
	assert(tasks <= r->conf.tasks - r->tasks_counted[b]); /* design.md, I2 */
	r->tasks_counted[b] += tasks;
	if (r->tasks_counted[b] == r->conf.tasks)
		r->blocks_left--;
}

/* The exponent of the record's largest value, roughly. */
static int8_t
record_exponent(const struct fal_bfp_rec *rec)
{
	const uint64_t bound = fal_bfp_rec_bound(rec);
	if (bound == 0)
		return FAL_EXP_NONE;
	const int e = 64 - __builtin_clzll(bound) + rec->exponent - FAL_BFP_P;
	return (int8_t)(e < INT8_MAX ? e : INT8_MAX);
}

/* Checks that honest tasks can have made the record. */
static int
check_record(const struct fal_store *s, const struct round *r,
	     const struct fal_bfp_rec *rec, uint32_t tasks)
{
	if (r->conf.kind == FAL_KIND_DELTA)
		return fal_bfp_rec_check_delta(rec);
	const struct exp_range *had = &s->exp_range[rec->block];
	if (r->conf.mixed ? rec->exponent < had->min || rec->exponent > had->max
			  : rec->exponent != r->exps[rec->block])
		return FAL_EINVAL;
	return fal_bfp_rec_check(rec, tasks, fal_bfp_room(s->conf.tasks));
}

void
round_queue_early(struct fal_store *s, const struct round *r, uint32_t b)
{
	struct early_step *m = s->early;
	assert(r->tasks_counted[b] == r->conf.tasks);
	if (m->is_active && r->conf.round == m->how.round && m->n_ready < s->blocks)
		m->ready[m->n_ready++] = b;
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
	struct share *e = share_find(r, from->id);
	if (e != NULL && e->is_fenced)
		return FAL_EFENCED;
	const uint32_t b = rec->block -= s->conf.first;
	if (tasks == 0 || tasks > r->conf.tasks || b >= s->blocks)
		return FAL_EINVAL;
	int err = check_record(s, r, rec, tasks);
	if (err == FAL_OK)
		err = share_find_or_add(s, r, from->id, from->fills, &e);
	if (err < 0)
		return err;
	if (has_bit(e->received, b))
		return FAL_EEXIST;
	const bool inherited = has_bit(e->inherited, b);
	if ((e->tasks != 0 && e->tasks != tasks) ||
	    (!inherited && tasks > r->conf.tasks - r->tasks_counted[b]))
		return FAL_EINVAL;
	if (!inherited) {
		const int exponent_before = r->exps[b];
		const int got =
			r->conf.kind == FAL_KIND_GRAD && !r->conf.mixed
				? fal_sum_add_rec(r->sum, rec)
				: fal_sum_add_rec_aligned(r->sum, &r->exps[b], rec);
		if (got < 0)
			return got;
		if (s->conf.checksums)
			update_checksums(s, r, e, rec, exponent_before, got > 0);
		count_tasks(r, b, tasks);
	}
	e->tasks = tasks;
	e->received[b / 8] |= (uint8_t)(1 << b % 8);
	if (inherited)
		return 0;
	e->n_counted++;
	assert(e->n_counted <= s->blocks);
	store_largest(&r->largest,
		      &(struct fal_largest){ from->id, record_exponent(rec) });
	if (r->tasks_counted[b] == r->conf.tasks)
		round_queue_early(s, r, b);
	return 1;
}

int
fal_store_fence(struct fal_store *s, uint64_t round, struct fal_contrib_id id,
		struct fal_contrib_id fills)
{
	struct round *r = round_find(s, round);
	struct share *e;
	int err = r != NULL ? share_find_or_add(s, r, id, fills, &e) : FAL_ESTATE;
	if (err == FAL_OK)
		e->is_fenced = true;
	return err;
}

/* True unless there is a share that has brought the block. */
static bool
lacks_block(const struct share *e, uint32_t b)
{
	return e == NULL || (!has_bit(e->received, b) && !has_bit(e->inherited, b));
}

int
fal_store_skip(struct fal_store *s, uint64_t round, uint32_t tasks,
	       struct fal_contrib_id fills)
{
	struct round *r = round_find(s, round);
	const struct share *e = r != NULL ? share_find(r, fills) : NULL;
	if (r == NULL || tasks == 0 || tasks > r->conf.tasks - r->tasks_skipped)
		return FAL_EINVAL;
	for (uint32_t b = 0; b < s->blocks; b++)
		if (lacks_block(e, b) && tasks > r->conf.tasks - r->tasks_counted[b])
			return FAL_EINVAL;
	r->tasks_skipped += tasks;
	for (uint32_t b = 0; b < s->blocks; b++)
		if (lacks_block(e, b))
			count_tasks(r, b, tasks);
	return FAL_OK;
}

bool
fal_store_is_whole(const struct fal_store *s, uint64_t round, struct fal_contrib_id id)
{
	const struct round *r = round_find(s, round);
	const struct share *e = r != NULL ? share_find(r, id) : NULL;
	return e != NULL && e->n_counted == s->blocks;
}

bool
fal_store_is_complete(const struct fal_store *s, uint64_t round)
{
	const struct round *r = round_find(s, round);
	return r != NULL && r->blocks_left == 0;
}

struct fal_contribution_blocks *
fal_store_list_contributions(const struct fal_store *s, uint64_t round, uint32_t *n)
{
	const struct round *r = round_find(s, round);
	*n = r != NULL ? r->shares : 0;
	struct fal_contribution_blocks *all = fal_xcalloc(*n, sizeof(*all));
	for (uint32_t i = 0; i < *n; i++) {
		const struct share *e = &r->share[i];
		all[i].id = e->id;
		for (uint32_t b = 0; b < s->blocks; b++) {
			all[i].blocks +=
				has_bit(e->received, b) && !has_bit(e->inherited, b);
			all[i].sum += e->checksums != NULL ? e->checksums[b] : 0;
		}
	}
	return all;
}

uint64_t
fal_store_checksum(const struct fal_store *s, uint64_t round)
{
	const struct round *r = round_find(s, round);
	const struct early_step *m = s->early;
	uint64_t sum = 0;
	for (uint32_t b = 0; r != NULL && b < s->blocks; b++)
		sum += m->is_active && m->how.round == round && m->is_stepped[b]
			       ? m->checksums[b]
			       : round_checksum(s, r, b);
	return sum;
}

/* ---- rounds ---------------------------------------------------------------------- */

void
store_recycle_sum(struct fal_store *s, struct fal_sum *sum)
{
	FAL_XGROW(s->free_sums.v, s->free_sums.cap, s->free_sums.n + 1);
	s->free_sums.v[s->free_sums.n++] = sum;
}

void
store_add_round(struct fal_store *s, const struct fal_store_round *conf,
		const int8_t *exps)
{
	const size_t at = round_index(s, conf->round);
	struct round *r;
	assert(conf->tasks > 0 && round_find(s, conf->round) == NULL);
	if (s->free_rounds.n > 0) {
		r = s->free_rounds.v[--s->free_rounds.n];
	} else {
		r = fal_xcalloc(1, sizeof(*r));
		r->exps = fal_xcalloc(s->blocks, sizeof(*r->exps));
		r->tasks_counted = fal_xcalloc(s->blocks, sizeof(*r->tasks_counted));
	}
	r->conf = *conf;
	if (s->free_sums.n > 0)
		fal_sum_clear(r->sum = s->free_sums.v[--s->free_sums.n]);
	else
		r->sum = fal_check_alloc(fal_sum_new(s->conf.n));
	r->blocks_left = s->blocks;
	r->tasks_skipped = 0;
	r->largest = (struct fal_largest){ .exponent = FAL_EXP_NONE };
	memset(r->tasks_counted, 0, s->blocks * sizeof(*r->tasks_counted));
	if (conf->kind == FAL_KIND_GRAD)
		memcpy(r->exps, exps, s->blocks);
	else
		memset(r->exps, 0, s->blocks);
	FAL_XGROW(s->open.v, s->open.cap, s->open.n + 1);
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
	const size_t at = round_index(s, round);
	memmove(s->open.v + at, s->open.v + at + 1,
		(--s->open.n - at) * sizeof(struct round *));
	if (r->sum != NULL)
		store_recycle_sum(s, r->sum);
	r->sum = NULL;
	for (uint32_t i = 0; i < r->shares; i++) {
		free(r->share[i].received);
		free(r->share[i].inherited);
		free(r->share[i].checksums);
	}
	r->shares = 0;
	FAL_XGROW(s->free_rounds.v, s->free_rounds.cap, s->free_rounds.n + 1);
	s->free_rounds.v[s->free_rounds.n++] = r;
}

void
store_free_rounds(struct fal_store *s)
{
	while (s->open.n > 0)
		fal_store_drop(s, s->open.v[0]->conf.round);
	for (size_t i = 0; i < s->free_rounds.n; i++) {
		struct round *r = s->free_rounds.v[i];
		free(r->exps);
		free(r->tasks_counted);
		free(r->share);
		free(r);
	}
	for (size_t i = 0; i < s->free_sums.n; i++)
		fal_sum_free(s->free_sums.v[i]);
	free(s->open.v);
	free(s->free_rounds.v);
	free(s->free_sums.v);
}

struct round *
round_find_complete(const struct fal_store *s, uint64_t number, enum fal_kind kind)
{
	struct round *r = round_find(s, number);
	assert(r != NULL && r->blocks_left == 0 && r->conf.kind == kind);
	return r;
}

int
fal_store_forward(struct fal_store *s, uint64_t round, struct fal_sum *into)
{
	const struct round *r = round_find_complete(s, round, FAL_KIND_GRAD);
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
