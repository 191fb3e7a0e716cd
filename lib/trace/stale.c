/* Histograms of staleness. */
#include "trace/stale.h"

static void
count(struct fal_stale *s, enum fal_stale_kind kind, uint64_t value, uint64_t samples)
{
	s->samples[kind][value < FAL_STALE_MAX ? value : FAL_STALE_MAX] += samples;
}

void
fal_stale_add(struct fal_stale *s, const struct fal_trace_round *r, uint64_t version)
{
	uint64_t since = r->version + 1;
	count(s, FAL_STALE_CLOCKS, r->clocks, r->samples);
	count(s, FAL_STALE_UPDATES, version > since ? version - since : 0, r->samples);
	if (r->rank > 0)
		count(s, FAL_STALE_RANK, r->rank, r->samples);
}

const char *
fal_stale_name(enum fal_stale_kind kind)
{
	static const char *const names[] = { "clocks", "updates", "rank" };
	return names[kind];
}
