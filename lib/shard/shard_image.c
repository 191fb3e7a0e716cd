/* The version that a shard holds; its image, and back. */
#include "shard/shard_priv.h"

#include <string.h>

int
shard_hold(struct fal_shard *s, uint64_t version)
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
	err = fal_image_add(live, "held.params", true, s->held_params,
			    fal_store_len(s->store) * sizeof(float));
	return err < 0 ? err
		       : fal_image_add(live, "held.exponents", false, s->held_exps,
				       s->conf.count);
}

int
fal_shard_image(struct fal_shard *s, struct fal_image *live)
{
	return image_from(s, 0, live);
}

void
shard_mark(struct fal_shard *s, uint64_t from)
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
		(void)shard_hold(s, s->held); /* it is one of those */
}
