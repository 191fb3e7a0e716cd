/* Encoding versions. */
#include "publish.h"

#include "base/err.h"
#include "base/mem.h"
#include "wire/bfp.h"
#include "wire/msg.h"

#include <stdlib.h>
#include <string.h>

/* Messages that are made at a time while others are on their way: half a mebibyte. */
#define PIECE 10
/* Bytes of a version below which sharing memory gains nothing. */
#define SHELF_MIN ((size_t)64 << 10)

static void
forget_all(struct fal_shared **of)
{
	for (uint32_t i = 0; of != NULL && i < FAL_SHARDS_MAX; i++)
		fal_shared_drop(of[i]);
	free(of);
}

static void
forget(struct ps_version *v)
{
	for (int i = 0; i < PS_ENCODINGS; i++)
		forget_all(v->as[i]);
	*v = (struct ps_version){ 0 };
}

/* Where a block's values lie in a version. */
static size_t
at_of(uint32_t block)
{
	return (size_t)block * FAL_BLOCK * sizeof(float);
}

/* Message `at` of one shard's blocks: its head is made, its values stay where they are.
 */
static int
message(const struct ps_publisher *p, uint64_t version, const struct fal_shard_part *part,
	uint32_t at, struct fal_buf *head, struct fal_shared_text *out)
{
	const uint32_t b = at * FAL_MODEL_BLOCKS;
	const struct fal_model_part of = { .version = version,
					   .first = part->first + b,
					   .blocks =
						   fal_msg_model_blocks(part->count, at),
					   .params = part->params + (size_t)b * FAL_BLOCK,
					   .values = part->values - (size_t)b * FAL_BLOCK,
					   .exps = part->exps + b };
	struct fal_tail values;
	int err = fal_msg_put_model_head(head, p->incarnation, &of, &values);
	out->msg = (struct fal_aead_text){ head->p, head->n, values.p, values.n };
	out->at = at_of(of.first);
	return err;
}

/* The next messages of one shard's blocks: a piece. */
static int
encode_piece(const struct ps_publisher *p, uint64_t version,
	     const struct fal_shard_part *part, struct fal_shared *s)
{
	struct fal_buf head[PIECE] = { 0 };
	struct fal_shared_text text[PIECE];
	const uint32_t made = fal_shared_made(s), left = fal_shared_count(s) - made;
	const uint32_t n = left < PIECE ? left : PIECE;
	int err = FAL_OK;
	for (uint32_t i = 0; i < n && err == FAL_OK; i++)
		err = message(p, version, part, made + i, &head[i], &text[i]);
	if (err == FAL_OK)
		err = fal_shared_add_texts(s, text, n);
	for (uint32_t i = 0; i < n; i++)
		fal_buf_free(&head[i]);
	return err;
}

/* All that are left. */
static int
encode_rest(const struct ps_publisher *p, uint64_t version,
	    const struct fal_shard_part *part, struct fal_shared *s)
{
	int err = FAL_OK;
	while (err == FAL_OK && !fal_shared_whole(s))
		err = encode_piece(p, version, part, s);
	return err;
}

/* The publication is begun, and held until it is whole. */
static int
begin(struct ps_publisher *p, const struct ps_params *from, struct fal_shared *s)
{
	if (FAL_GROW(p->making, p->making_cap, p->making_n + 1) < 0)
		return FAL_ENOMEM;
	p->making[p->making_n++] =
		(struct ps_making){ fal_shared_ref(s), from->version, from->shard };
	return FAL_OK;
}

/* A piece of it. */
static int
go_on(const struct ps_publisher *p, const struct ps_making *m)
{
	struct fal_shard_part part;
	if (!fal_rack_part(p->rack, m->shard, m->version, &part))
		return FAL_ESTATE;
	return encode_piece(p, m->version, &part, m->shared);
}

/* None of them will be whole. */
static void
give_up(struct ps_publisher *p)
{
	for (size_t i = 0; i < p->making_n; i++) {
		fal_shared_break(p->making[i].shared);
		fal_shared_drop(p->making[i].shared);
	}
	p->making_n = 0;
}

int
ps_publish_more(struct ps_publisher *p)
{
	size_t left = 0;
	for (size_t i = 0; i < p->making_n; i++) {
		const struct ps_making m = p->making[i];
		if (go_on(p, &m) < 0) {
			memmove(p->making + left, p->making + i,
				(p->making_n - i) * sizeof(m));
			p->making_n -= i - left;
			give_up(p);
			return FAL_ENOMEM;
		}
		if (fal_shared_whole(m.shared))
			fal_shared_drop(m.shared);
		else
			p->making[left++] = m;
	}
	p->making_n = left;
	return (int)left;
}

static struct fal_shared *
encode(struct ps_publisher *p, const struct ps_params *from, uint8_t suite)
{
	uint8_t ad[FAL_MODEL_AD];
	struct fal_shard_part part;
	struct fal_shared *s = NULL;
	if (p->pool == NULL && (p->pool = fal_shared_pool_new(p->parallel)) == NULL)
		return NULL;
	if (!fal_rack_part(p->rack, from->shard, from->version, &part))
		return NULL;
	fal_msg_model_ad(p->job_hash, p->incarnation, from->version, ad);
	struct fal_shared_opt opt = { .pool = p->pool,
				      .publication = ++p->publications,
				      .count = fal_msg_models(part.count),
				      .ad = ad,
				      .ad_n = sizeof(ad),
				      .version = from->version,
				      .parts = fal_rack_shards(p->rack),
				      .suite = suite,
				      .zstd = from->as == PS_PACKED,
				      .lasting = from->keep,
				      .shelf = from->as == PS_SHELF ? p->shelf : NULL };
	int err = fal_shared_new(&opt, &s);
	if (err == FAL_OK)
		err = !opt.zstd && opt.count > 2 * PIECE
			      ? begin(p, from, s)
			      : encode_rest(p, from->version, &part, s);
	if (err < 0) {
		fal_shared_drop(s);
		return NULL;
	}
	return s;
}

/* Those that take memory: a shelf's is its own. */
static uint32_t
encodings(const struct ps_version *v)
{
	return (uint32_t)(v->as[PS_PLAIN] != NULL) + (uint32_t)(v->as[PS_PACKED] != NULL);
}

/* Makes room for one encoding more of `v`, if others can go. */
static void
make_room(struct ps_publisher *p, const struct ps_version *v)
{
	struct ps_version *const others[] = { &p->kept, &p->older, &p->newest };
	const uint32_t most = ps_sealed_most(&p->rule, p->shelf != NULL, p->mixed);
	uint32_t n = encodings(&p->newest) + encodings(&p->kept) + encodings(&p->older);
	for (int i = 0; i < 3 && n >= most; i++) {
		if (others[i] == v)
			continue;
		n -= encodings(others[i]);
		forget(others[i]);
	}
}

struct fal_shared *
ps_publish(struct ps_publisher *p, struct ps_version *v, const struct ps_params *from,
	   uint64_t above)
{
	const uint8_t every = FAL_SUITE_CHACHA20_POLY1305;
	if (v->there && v->version != from->version) {
		p->odd = v->odd;
		forget(v);
	}
	v->there = true;
	v->odd |= from->suite == every;
	v->version = from->version;
	struct fal_shared ***all = &v->as[from->as];
	if (*all == NULL && from->as != PS_SHELF)
		make_room(p, v);
	if (*all == NULL)
		*all = fal_calloc(FAL_SHARDS_MAX, sizeof(**all));
	if (*all == NULL)
		return NULL;
	struct fal_shared **s = &(*all)[from->shard];
	const bool opens =
		*s == NULL || from->suite != every || fal_shared_suite(*s) == every;
	if (*s != NULL && (fal_shared_publication(*s) <= above || !opens)) {
		fal_shared_drop(*s);
		*s = NULL;
	}
	if (*s == NULL)
		*s = encode(p, from, v->odd || p->odd ? every : from->suite);
	return *s;
}

void
ps_publisher_forget(struct ps_publisher *p)
{
	forget(&p->newest);
	forget(&p->kept);
	forget(&p->older);
	if (p->pool != NULL)
		fal_shared_pool_trim(p->pool);
}

void
ps_publisher_rule(struct ps_publisher *p, const struct fal_rule *rule)
{
	p->shelves = fal_rule_traits(rule).shared;
	p->rule = *rule;
}

uint32_t
ps_sealed_most(const struct fal_rule *rule, bool shelf, bool mixed)
{
	const struct fal_traits is = fal_rule_traits(rule);
	const uint32_t all = 2 + (is.shared ? is.delay : 1);
	if (!shelf || mixed)
		return all;
	return all > FAL_SHELF_SLOTS ? all - FAL_SHELF_SLOTS : 1;
}

/* Bytes of a version of all shards; 0: none of them is here. */
static size_t
version_bytes(const struct ps_publisher *p)
{
	uint32_t first, count, blocks = 0;
	bool any = false;
	for (uint32_t i = 0; i < fal_rack_shards(p->rack); i++) {
		fal_rack_range(p->rack, i, &first, &count);
		blocks += count;
		any |= fal_rack_at(p->rack, i) != NULL;
	}
	return any ? at_of(blocks) : 0;
}

bool
ps_shelves(const struct fal_rule *rule, size_t bytes)
{
	return bytes >= SHELF_MIN && fal_rule_traits(rule).shared;
}

bool
ps_publisher_places(const struct ps_publisher *p, uint64_t version)
{
	uint64_t made[FAL_SHELF_SLOTS];
	uint32_t n = 0;
	for (size_t i = 0; i < p->making_n; i++) {
		const uint64_t is = p->making[i].version;
		bool known = is == version;
		for (uint32_t k = 0; k < n && !known; k++)
			known = made[k] == is;
		if (!known && n + 1 == FAL_SHELF_SLOTS)
			return false;
		if (!known)
			made[n++] = is;
	}
	return true;
}

int
ps_publisher_lend(struct ps_publisher *p, struct fal_chan *chan)
{
	if (!p->shelves || version_bytes(p) < SHELF_MIN || !fal_chan_may_share(chan))
		return FAL_OK;
	if (p->shelf == NULL && fal_shelf_new(version_bytes(p), &p->shelf) < 0)
		return FAL_OK; /* it is only a quicker way */
	return fal_chan_lend(chan, p->shelf);
}

void
ps_publisher_end(struct ps_publisher *p)
{
	give_up(p);
	ps_publisher_forget(p);
	fal_shelf_free(p->shelf);
	p->shelf = NULL;
}

void
ps_publisher_free(struct ps_publisher *p)
{
	ps_publisher_end(p);
	free(p->making);
	fal_shared_pool_free(p->pool);
}
