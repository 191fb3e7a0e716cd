/* Racks that become what the images of another one say, cut otherwise perhaps. */
#ifndef TESTS_TAKING_H
#define TESTS_TAKING_H

#include "base/err.h"
#include "server/image.h"

#include <assert.h>
#include <string.h>

/* Images, whose arrays are taken one after the other, shard by shard. */
struct taking {
	const struct fal_image *image;
	uint32_t shards, array, shard;
	size_t at; /* bytes of that */
	uint32_t asked;
};

/* For fal_shard_set_restore: arg is a struct taking. */
static inline int
taking_fill(void *arg, const struct fal_image_array *a)
{
	struct taking *t = arg;
	char *to = a->p;
	size_t left = a->bytes;
	t->asked++;
	while (left > 0) {
		assert(t->array < t->image[0].arrays);
		const struct fal_image_array *from = &t->image[t->shard].array[t->array];
		const size_t some =
			from->bytes - t->at < left ? from->bytes - t->at : left;
		assert(strcmp(from->name, a->name) == 0 && from->floats == a->floats);
		memcpy(to, (const char *)from->p + t->at, some);
		to += some;
		left -= some;
		t->at += some;
		if (t->at < from->bytes)
			continue;
		t->at = 0;
		t->shard = (t->shard + 1) % t->shards;
		t->array += t->shard == 0;
	}
	return FAL_OK;
}

#endif
