/* A shard that runs out of memory in its seventh round: linked into a test build of
 * falcon-ps with -Wl,--wrap=fal_store_merge.  The job must fail with its sixth version.
 */
#include "base/err.h"
#include "server/store.h"

int __real_fal_store_merge(struct fal_store *s, uint64_t round);
int __wrap_fal_store_merge(struct fal_store *s, uint64_t round);

int
__wrap_fal_store_merge(struct fal_store *s, uint64_t round)
{
	static int calls;
	return ++calls == 7 ? FAL_ENOMEM : __real_fal_store_merge(s, round);
}
