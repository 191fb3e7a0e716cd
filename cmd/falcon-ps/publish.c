/* Encoding versions. */
#include "publish.h"

#include "base/err.h"
#include "wire/bfp.h"
#include "wire/msg.h"

static void
forget(struct ps_version *v)
{
	fal_shared_drop(v->plain);
	fal_shared_drop(v->packed);
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
encode(struct ps_publisher *p, const struct ps_params *from, bool packed)
{
	uint8_t ad[FAL_MODEL_AD];
	struct fal_shard_part part;
	struct fal_shared *s = NULL;
	uint32_t count = 0;
	if (p->pool == NULL && (p->pool = fal_shared_pool_new()) == NULL)
		return NULL;
	for (uint32_t i = 0; i < fal_rack_shards(from->rack); i++) {
		if (!fal_rack_part(from->rack, i, from->version, &part))
			return NULL;
		count += (part.count + FAL_MODEL_BLOCKS - 1) / FAL_MODEL_BLOCKS;
	}
	fal_msg_model_ad(p->job_hash, p->incarnation, from->version, ad);
	struct fal_shared_opt opt = { .pool = p->pool,
				      .publication = ++p->publications,
				      .count = count,
				      .ad = ad,
				      .ad_n = sizeof(ad),
				      .version = from->version,
				      .zstd = packed,
				      .lasting = from->keep };
	int err = fal_shared_new(&opt, &s);
	for (uint32_t i = 0; i < fal_rack_shards(from->rack) && err == FAL_OK; i++) {
		fal_rack_part(from->rack, i, from->version, &part);
		err = encode_part(p, from, &part, s);
	}
	if (err < 0) {
		fal_shared_drop(s);
		return NULL;
	}
	return s;
}

struct fal_shared *
ps_publish(struct ps_publisher *p, struct ps_version *v, const struct ps_params *from,
	   bool packed, uint64_t above)
{
	if (v->there && v->version != from->version)
		forget(v);
	v->there = true;
	v->version = from->version;
	struct fal_shared **s = packed ? &v->packed : &v->plain;
	if (*s != NULL && fal_shared_publication(*s) <= above) {
		fal_shared_drop(*s);
		*s = NULL;
	}
	if (*s == NULL)
		*s = encode(p, from, packed);
	return *s;
}

void
ps_publisher_free(struct ps_publisher *p)
{
	forget(&p->newest);
	forget(&p->kept);
	forget(&p->older);
	fal_shared_pool_free(p->pool);
}
