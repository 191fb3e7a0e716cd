/* Counts of refused handshakes. */
#include "net/refusals.h"

#include "crypto/hash.h"

#include <stdio.h>
#include <string.h>

void
fal_refusals_add(struct fal_refusals *r, const char *source, const char *why)
{
	uint8_t digest[FAL_HASH_BYTES];
	uint64_t id;
	unsigned i = 0;
	fal_hash(source, strlen(source), digest);
	memcpy(&id, digest, sizeof(id));
	while (i < r->sources && r->source[i] != id)
		i++;
	if (i == r->sources && i < FAL_REFUSALS_SOURCES)
		r->source[r->sources++] = id;
	r->n++;
	snprintf(r->last_source, sizeof(r->last_source), "%s", source);
	snprintf(r->last_why, sizeof(r->last_why), "%s", why);
}

bool
fal_refusals_due(struct fal_refusals *r, double now, bool over, struct fal_diag *line)
{
	const double passed = now - r->logged_at;
	uint64_t polls;
	if (r->n == 0 || (!fal_ratelimit(&r->limit, now, &polls) && !over))
		return false;
	if (r->n == 1)
		fal_diag_set(line, 0, "refused a handshake from %s: %s", r->last_source,
			     r->last_why);
	else
		fal_diag_set(line, 0,
			     "refused %llu handshakes from %u source%s in the last %.0f "
			     "s (last: %s: %s)",
			     (unsigned long long)r->n, r->sources,
			     r->sources == 1                      ? ""
			     : r->sources == FAL_REFUSALS_SOURCES ? "s or more"
								  : "s",
			     passed, r->last_source, r->last_why);
	r->logged_at = now;
	r->n = 0;
	r->sources = 0;
	return true;
}
