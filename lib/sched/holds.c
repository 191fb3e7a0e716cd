/* Who was ever given what. */
#include "sched/holds.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void
fal_holds_open(struct fal_holds *h, uint32_t n)
{
	FAL_XGROW(h->newest, h->newest_cap, n);
	if (n > 0)
		memset(h->newest, 0, n * sizeof(*h->newest));
	h->n = 0;
}

void
fal_holds_free(struct fal_holds *h)
{
	free(h->newest);
	free(h->v);
}

bool
fal_holds_has(const struct fal_holds *h, uint32_t thing, uint32_t worker)
{
	uint32_t at = h->newest[thing];
	while (at != 0 && h->v[at - 1].worker != worker)
		at = h->v[at - 1].older;
	return at != 0;
}

void
fal_holds_give(struct fal_holds *h, uint32_t thing, uint32_t worker)
{
	if (fal_holds_has(h, thing, worker))
		return;
	FAL_XGROW(h->v, h->cap, (size_t)h->n + 1);
	h->v[h->n] = (struct fal_hold){ .worker = worker, .older = h->newest[thing] };
	h->newest[thing] = ++h->n;
}
