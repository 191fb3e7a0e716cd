/* Encoding versions. */
#include "publish.h"

#include "base/err.h"
#include "base/mem.h"
#include "wire/bfp.h"
#include "wire/msg.h"

#include <stdlib.h>

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

/* The messages of one shard's blocks. */
static int
encode_part(const struct ps_publisher *p, const struct ps_params *from,
	    const struct fal_shard_part *part, struct fal_shared *s)
{
	struct fal_buf msg = { 0 };
	int err = FAL_OK;
	for (uint32_t b = 0; b < part->count && err == FAL_OK; b += FAL_MODEL_BLOCKS) {
		const uint32_t left = part->count - b;
		const struct fal_model_part of = {
			.version = from->version,
			.first = part->first + b,
			.blocks = left < FAL_MODEL_BLOCKS ? left : FAL_MODEL_BLOCKS,
			.params = part->params + (size_t)b * FAL_BLOCK,
			.values = part->values - (size_t)b * FAL_BLOCK,
			.exps = part->exps + b
		};
		fal_buf_clear(&msg);
		err = fal_msg_put_model(&msg, p->incarnation, &of);
		if (err == FAL_OK)
			err = fal_shared_add(s, msg.p, msg.n);
	}
	fal_buf_free(&msg);
	return err;
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
		err = encode_part(p, from, &part, s);
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
}

void
ps_publisher_free(struct ps_publisher *p)
{
	ps_publisher_forget(p);
	fal_shared_pool_free(p->pool);
}
