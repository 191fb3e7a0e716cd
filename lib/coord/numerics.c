/* Which fingerprint counts: alone, with numerics = require.  It is that of most keys; of
 * those that have as many, one that is not an impure worker's, and that of the key which
 * stands first in the keyring. */
#include "coord/priv.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Who is behind a fingerprint. */
struct side {
	uint32_t keys, place, sessions;
	bool pure;
};

bool
coord_is_pure(const uint8_t fingerprint[static FAL_FINGERPRINT])
{
	static const uint8_t impure[8]; /* READY, falcon-protocol(7) */
	return memcmp(fingerprint, impure, sizeof(impure)) != 0;
}

static bool
same(const struct fal_peer *a, const struct fal_peer *b)
{
	return memcmp(a->fingerprint, b->fingerprint, FAL_FINGERPRINT) == 0;
}

/* `seen` has a place for each key, all false before and after. */
static struct side
side_of(const struct fal_coord *c, const struct fal_peer *p, bool *seen)
{
	struct side is = { 0, UINT32_MAX, 0, coord_is_pure(p->fingerprint) };
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *o = &c->peer[i];
		if (!o->ready || !same(p, o))
			continue;
		const uint32_t place = c->key[o->key - 1].place;
		is.sessions++;
		is.keys += !seen[o->key - 1];
		is.place = place < is.place ? place : is.place;
		seen[o->key - 1] = true;
	}
	memset(seen, 0, c->keys * sizeof(*seen));
	return is;
}

static bool
outweighs(struct side a, struct side b)
{
	if (a.keys != b.keys)
		return a.keys > b.keys;
	if (a.pure != b.pure)
		return a.pure;
	if (a.place != b.place)
		return a.place < b.place;
	return a.sessions > b.sessions;
}

/* One whose fingerprint counts; of equals, the earliest.  NULL: nobody is there. */
static int
leader(const struct fal_coord *c, const struct fal_peer **out)
{
	const bool strict = c->conf.numerics == FAL_NUMERICS_REQUIRE;
	bool *seen = fal_calloc(c->keys + 1, sizeof(*seen));
	struct side best = { 0 };
	*out = NULL;
	if (seen == NULL)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *p = &c->peer[i];
		if (!p->ready || (*out != NULL && same(*out, p)) ||
		    (*out != NULL && !strict && !coord_is_pure(p->fingerprint)))
			continue;
		const struct side is = side_of(c, p, seen);
		if (*out == NULL || outweighs(is, best)) {
			*out = p;
			best = is;
		}
	}
	free(seen);
	return FAL_OK;
}

bool
coord_numerics_counts(const struct fal_coord *c, const struct fal_peer *p)
{
	const struct fal_peer *first;
	if (c->conf.numerics != FAL_NUMERICS_REQUIRE || leader(c, &first) < 0)
		return true;
	return first == NULL || same(first, p);
}

int
coord_numerics(struct fal_coord *c, double now)
{
	const bool strict = c->conf.numerics == FAL_NUMERICS_REQUIRE;
	const struct fal_peer *first;
	int err = leader(c, &first);
	for (uint32_t i = 0; i < c->peers && err == FAL_OK; i++) {
		struct fal_peer *p = &c->peer[i];
		const bool was = p->odd;
		if (!p->ready || (!strict && !coord_is_pure(p->fingerprint)))
			continue;
		p->odd = !same(first, p);
		if (p->odd && !was && c->ops.odd != NULL) {
			const char *const name[] = { p->name, first->name },
					  *const kernels[] = { p->kernels,
							       first->kernels };
			coord_call(c);
			c->ops.odd(c->ops.arg, name, kernels);
			coord_called(c);
		}
		if (strict)
			fal_sched_stand_by(c->sched, now, p->worker, p->odd);
	}
	return err;
}
