/* Blocks, accumulators, and who brought what. */
#include "store/store.h"

#include "base/err.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* One contribution as this shard sees it. */
struct entry {
	struct fal_cid id;
	uint32_t tasks; /* 0: only fenced so far */
	bool fenced;
	uint32_t have;      /* bits set in `seen` and `inherited` */
	uint8_t *seen;      /* by block, bits: came with this contribution */
	uint8_t *inherited; /* by block, bits: came with what it fills; NULL: nothing */
};

struct fal_store {
	struct fal_store_conf conf;
	uint32_t blocks;
	uint64_t version;
	float *params, *state, *mean; /* mean: one block, scratch */
	int8_t *exps;
	struct fal_sum *sum;
	uint32_t tasks;    /* K of the open clock */
	uint32_t *counted; /* by block: tasks counted */
	uint32_t left;     /* blocks that have not counted K yet */
	uint64_t sent;
	struct entry *entry;
	uint32_t entries;
	size_t entry_cap;
	uint32_t *index; /* open addressing over entries; FAL_NONE: empty */
	size_t index_cap;
};

static size_t
state_len(const struct fal_store_conf *conf)
{
	return conf->n * fal_optim_slots(&conf->optim);
}

size_t
fal_store_bytes(const struct fal_store_conf *conf)
{
	/* Parameters, optimiser state, and sums of 4 to 12 bytes a value. */
	return (conf->n + state_len(conf)) * sizeof(float) + conf->n * 12;
}

struct fal_store *
fal_store_new(const struct fal_store_conf *conf, const float *init)
{
	struct fal_store *s = fal_calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->conf = *conf;
	s->blocks = fal_blocks(conf->n);
	s->params = fal_calloc_aligned(conf->n, sizeof(float));
	s->state = fal_calloc_aligned(state_len(conf), sizeof(float));
	s->mean = fal_calloc_aligned(FAL_BLOCK, sizeof(float));
	s->exps = fal_calloc(s->blocks, 1);
	s->counted = fal_calloc(s->blocks, sizeof(*s->counted));
	s->sum = fal_sum_new(conf->n);
	if (s->params == NULL || s->state == NULL || s->mean == NULL || s->exps == NULL ||
	    s->counted == NULL || s->sum == NULL) {
		fal_store_free(s);
		return NULL;
	}
	memcpy(s->params, init, conf->n * sizeof(float));
	memset(s->exps, FAL_EXP_FIRST, s->blocks);
	return s;
}

static void
forget_entries(struct fal_store *s)
{
	for (uint32_t i = 0; i < s->entries; i++) {
		free(s->entry[i].seen);
		free(s->entry[i].inherited);
	}
	s->entries = 0;
	for (size_t i = 0; i < s->index_cap; i++)
		s->index[i] = FAL_NONE;
}

void
fal_store_free(struct fal_store *s)
{
	if (s == NULL)
		return;
	forget_entries(s);
	free(s->params);
	free(s->state);
	free(s->mean);
	free(s->exps);
	free(s->counted);
	fal_sum_free(s->sum);
	free(s->entry);
	free(s->index);
	free(s);
}

size_t
fal_store_len(const struct fal_store *s)
{
	return s->conf.n;
}

uint64_t
fal_store_version(const struct fal_store *s)
{
	return s->version;
}

const float *
fal_store_params(const struct fal_store *s)
{
	return s->params;
}

const int8_t *
fal_store_exps(const struct fal_store *s)
{
	return s->exps;
}

void
fal_store_open(struct fal_store *s, uint32_t tasks)
{
	assert(tasks > 0);
	fal_sum_clear(s->sum);
	memset(s->counted, 0, s->blocks * sizeof(*s->counted));
	s->tasks = tasks;
	s->left = s->blocks;
	s->sent = 0;
	forget_entries(s);
}

/* The place of `id` in the index: its entry, or the empty place where it belongs. */
static size_t
probe(const struct fal_store *s, struct fal_cid id)
{
	uint64_t h = ((uint64_t)id.worker << 32 | id.seq) * 0x9E3779B97F4A7C15u;
	size_t at = (size_t)(h >> 32) & (s->index_cap - 1);
	while (s->index[at] != FAL_NONE && !fal_cid_eq(s->entry[s->index[at]].id, id))
		at = (at + 1) & (s->index_cap - 1);
	return at;
}

static struct entry *
find(const struct fal_store *s, struct fal_cid id)
{
	if (s->index_cap == 0)
		return NULL;
	size_t at = probe(s, id);
	return s->index[at] != FAL_NONE ? &s->entry[s->index[at]] : NULL;
}

static int
grow_index(struct fal_store *s)
{
	size_t cap = s->index_cap > 0 ? s->index_cap * 2 : 64;
	uint32_t *index = fal_realloc(s->index, cap, sizeof(*index));
	if (index == NULL)
		return FAL_ENOMEM;
	s->index = index;
	s->index_cap = cap;
	for (size_t i = 0; i < cap; i++)
		index[i] = FAL_NONE;
	for (uint32_t i = 0; i < s->entries; i++)
		index[probe(s, s->entry[i].id)] = i;
	return FAL_OK;
}

static bool
bit(const uint8_t *bits, uint32_t i)
{
	return bits != NULL && (bits[i / 8] >> (i % 8) & 1) != 0;
}

/* Everything that `from` and what it fills have brought, as a bitmap of their own. */
static int
inherit(const struct fal_store *s, struct entry *e, const struct entry *from)
{
	e->inherited = fal_calloc((s->blocks + 7) / 8, 1);
	if (e->inherited == NULL)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < (s->blocks + 7) / 8; i++)
		e->inherited[i] = from->seen[i] |
				  (from->inherited != NULL ? from->inherited[i] : 0);
	e->have = from->have;
	return FAL_OK;
}

/* The entry of `id`, made if it is new. */
static int
enter(struct fal_store *s, struct fal_cid id, struct fal_cid fills, struct entry **out)
{
	*out = find(s, id);
	if (*out != NULL)
		return FAL_OK;
	if (((size_t)s->entries + 1) * 2 > s->index_cap && grow_index(s) < 0)
		return FAL_ENOMEM;
	if (FAL_GROW(s->entry, s->entry_cap, (size_t)s->entries + 1) < 0)
		return FAL_ENOMEM;
	struct entry e = { .id = id, .seen = fal_calloc((s->blocks + 7) / 8, 1) };
	if (e.seen == NULL)
		return FAL_ENOMEM;
	if (fills.worker != 0) {
		const struct entry *from = find(s, fills);
		int err =
			from != NULL && from->fenced ? inherit(s, &e, from) : FAL_ESTATE;
		if (err < 0) {
			free(e.seen);
			return err;
		}
	}
	size_t at = probe(s, id);
	s->entry[s->entries] = e;
	s->index[at] = s->entries;
	*out = &s->entry[s->entries++];
	return FAL_OK;
}

int
fal_store_add(struct fal_store *s, struct fal_cid id, struct fal_cid fills,
	      uint32_t tasks, const struct fal_bfp_rec *rec)
{
	struct entry *e;
	uint32_t b = rec->block;
	if (tasks == 0 || b >= s->blocks || rec->exponent != s->exps[b])
		return FAL_EINVAL;
	int err = enter(s, id, fills, &e);
	if (err < 0)
		return err;
	if (e->fenced)
		return FAL_EFENCED;
	if (bit(e->seen, b))
		return FAL_EEXIST;
	if ((e->tasks != 0 && e->tasks != tasks) || s->counted[b] > s->tasks ||
	    (!bit(e->inherited, b) && tasks > s->tasks - s->counted[b]))
		return FAL_EINVAL;
	e->tasks = tasks;
	if (bit(e->inherited, b)) {
		e->seen[b / 8] |= (uint8_t)(1 << b % 8);
		return 0;
	}
	err = fal_sum_add_rec(s->sum, rec);
	if (err < 0)
		return err;
	e->seen[b / 8] |= (uint8_t)(1 << b % 8);
	e->have++;
	if (rec->has_checksum)
		s->sent += rec->checksum;
	s->counted[b] += tasks;
	if (s->counted[b] == s->tasks)
		s->left--;
	return 1;
}

int
fal_store_fence(struct fal_store *s, struct fal_cid id, struct fal_cid fills)
{
	struct entry *e;
	int err = enter(s, id, fills, &e);
	if (err == FAL_OK)
		e->fenced = true;
	return err;
}

bool
fal_store_whole(const struct fal_store *s, struct fal_cid id)
{
	const struct entry *e = find(s, id);
	return e != NULL && e->have == s->blocks;
}

bool
fal_store_complete(const struct fal_store *s)
{
	return s->tasks > 0 && s->left == 0;
}

void
fal_store_update(struct fal_store *s, float lr, double samples)
{
	uint32_t slots = fal_optim_slots(&s->conf.optim);
	assert(fal_store_complete(s));
	for (uint32_t b = 0; b < s->blocks; b++) {
		size_t first = (size_t)b * FAL_BLOCK;
		fal_sum_mean(s->sum, b, s->exps[b], samples, s->mean);
		/* State is kept block by block: slot k of a block follows slot k-1. */
		fal_optim_apply(&s->conf.optim, lr, s->params + first,
				s->state + first * slots, s->mean,
				fal_block_len(s->conf.n, b));
		s->exps[b] = fal_exp_next(s->exps[b], fal_sum_needed(s->sum, b));
	}
	s->version++;
	s->tasks = 0;
}

uint64_t
fal_store_sent(const struct fal_store *s)
{
	return s->sent;
}

uint64_t
fal_store_added(const struct fal_store *s)
{
	uint64_t sum = 0;
	for (uint32_t b = 0; b < s->blocks; b++)
		sum += fal_sum_checksum(s->sum, b, s->conf.checksum_seed);
	return sum;
}
