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
	forget_all(v->plain);
	forget_all(v->packed);
	*v = (struct ps_version){ 0 };
}

/* The next messages of one shard's blocks, no more than `most`. */
static int
encode_part(const struct ps_publisher *p, uint64_t version,
	    const struct fal_shard_part *part, struct fal_shared *s, uint32_t most)
{
	struct fal_buf head = { 0 };
	struct fal_tail values;
	int err = FAL_OK;
	for (; most > 0 && !fal_shared_whole(s) && err == FAL_OK; most--) {
		const uint32_t made = fal_shared_made(s), b = made * FAL_MODEL_BLOCKS;
		const struct fal_model_part of = {
			.version = version,
			.first = part->first + b,
			.blocks = fal_msg_model_blocks(part->count, made),
			.params = part->params + (size_t)b * FAL_BLOCK,
			.values = part->values - (size_t)b * FAL_BLOCK,
			.exps = part->exps + b
		};
		fal_buf_clear(&head);
		err = fal_msg_put_model_head(&head, p->incarnation, &of, &values);
		const struct fal_aead_text text = { head.p, head.n, values.p, values.n };
		if (err == FAL_OK) /* values go through memory once */
			err = fal_shared_add_text(s, &text);
	}
	fal_buf_free(&head);
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
	return encode_part(p, m->version, &part, m->shared, PIECE);
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
encode(struct ps_publisher *p, const struct ps_params *from, uint8_t suite, bool packed)
{
	uint8_t ad[FAL_MODEL_AD];
	struct fal_shard_part part;
	struct fal_shared *s = NULL;
	if (p->pool == NULL && (p->pool = fal_shared_pool_new()) == NULL)
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
				      .zstd = packed,
				      .lasting = from->keep };
	int err = fal_shared_new(&opt, &s);
	if (err == FAL_OK)
		err = !packed && opt.count > 2 * PIECE
			      ? begin(p, from, s)
			      : encode_part(p, from->version, &part, s, UINT32_MAX);
	if (err < 0) {
		fal_shared_drop(s);
		return NULL;
	}
	return s;
}

static uint32_t
encodings(const struct ps_version *v)
{
	return (uint32_t)(v->plain != NULL) + (uint32_t)(v->packed != NULL);
}

/* Makes room for one encoding more of `v`, if others can go. */
static void
make_room(struct ps_publisher *p, const struct ps_version *v)
{
	struct ps_version *const others[] = { &p->kept, &p->older, &p->newest };
	uint32_t n = encodings(&p->newest) + encodings(&p->kept) + encodings(&p->older);
	for (int i = 0; i < 3 && n >= p->most; i++) {
		if (others[i] == v)
			continue;
		n -= encodings(others[i]);
		forget(others[i]);
	}
}

struct fal_shared *
ps_publish(struct ps_publisher *p, struct ps_version *v, const struct ps_params *from,
	   bool packed, uint64_t above)
{
	const uint8_t every = FAL_SUITE_CHACHA20_POLY1305;
	if (v->there && v->version != from->version) {
		p->odd = v->odd;
		forget(v);
	}
	v->there = true;
	v->odd |= from->suite == every;
	v->version = from->version;
	struct fal_shared ***all = packed ? &v->packed : &v->plain;
	if (*all == NULL)
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
		*s = encode(p, from, v->odd || p->odd ? every : from->suite, packed);
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
ps_publisher_free(struct ps_publisher *p)
{
	give_up(p);
	free(p->making);
	ps_publisher_forget(p);
	fal_shared_pool_free(p->pool);
}
