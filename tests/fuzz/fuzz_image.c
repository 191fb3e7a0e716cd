/* A snapshot's numbers and bytes, of which the hash was right, whatever they are: new
 * shards become them, and step from there, or refuse.  The input: how, the numbers, then
 * the bytes of all arrays, over and over. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/shard_set.h"
#include "wire/bfp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { N = FAL_BLOCK + 5 };

struct bytes {
	const uint8_t *p;
	size_t n, at;
};

static int
fill(void *arg, const struct fal_image_array *a)
{
	struct bytes *b = arg;
	uint8_t *to = a->p;
	for (size_t i = 0; i < a->bytes; i++)
		to[i] = b->n > 0 ? b->p[b->at++ % b->n] : 0;
	return FAL_OK;
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static float init[N];
	struct fal_rd r = fal_rd_init(p, n);
	const uint8_t how = fal_get_u8(&r);
	const struct fal_shard_set_conf conf = {
		.shards = 1 + (how & 1),
		.each = { .n = N,
			  .tasks = 4,
			  .optim = { .kind = how / 16 % FAL_OPTIMS,
				     .momentum = 0.5f,
				     .beta1 = 0.9,
				     .beta2 = 0.99,
				     .eps = 1e-8f } },
	};
	struct fal_image_head is = { .version = fal_get_u64(&r),
				     .steps = fal_get_u64(&r),
				     .olds = fal_get_u8(&r) % 8,
				     .holds = how & 8,
				     .held = fal_get_u64(&r) };
	if (r.err < 0)
		return -1;
	struct bytes b = { r.p, r.n, 0 };
	struct fal_shard_set *shard_set = fal_shard_set_new(&conf, init);
	assert(shard_set != NULL);
	const int err = fal_shard_set_restore(shard_set, &is, fill, &b);
	assert(err == FAL_OK || err == FAL_EINVAL);
	if (err == FAL_OK) {
		assert(fal_shard_set_params(shard_set, is.version) != NULL);
		const struct fal_shard_order step = { .kind = FAL_ORDER_STEP,
						      .lr = 0.1f,
						      .versions = 2 };
		struct fal_shard_result result = { 0 };
		const int went = fal_shard_set_order(shard_set, &step, &result);
		assert(went == FAL_OK || went == FAL_ELIMIT);
		fal_shard_result_free(&result);
	}
	fal_shard_set_free(shard_set);
	return 0;
}
