/* A shard that does not add one block record: linked into a test build of falcon-ps with
 * -Wl,--wrap=fal_sum_add_rec.  audit = sums must notice. */
#include "wire/bfp.h"

int __real_fal_sum_add_rec(struct fal_sum *dst, const struct fal_bfp_rec *rec);
int __wrap_fal_sum_add_rec(struct fal_sum *dst, const struct fal_bfp_rec *rec);

int
__wrap_fal_sum_add_rec(struct fal_sum *dst, const struct fal_bfp_rec *rec)
{
	static int calls;
	return ++calls == 20 ? 0 : __real_fal_sum_add_rec(dst, rec);
}
