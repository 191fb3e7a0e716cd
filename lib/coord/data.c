/* Whose data count, where trainers have data of their own, by index, and say a hash of
 * them: the job's; or else the hash that most keys have said, and of two that as many
 * have said, that of the key which stands first in the keyring.
 *
 * What a key has said is remembered when its sessions are over.  So one that was here
 * first, alone, keeps nobody away for good.  But a key whose word counted when a version
 * was made takes nothing back, and a job that goes on from a snapshot has the data that
 * counted then.
 */
#include "coord/priv.h"

#include "base/parse.h"

#include <stdio.h>
#include <string.h>

static const uint8_t none[FAL_DATA_HASH];

static bool
same(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, FAL_DATA_HASH) == 0;
}

/* Who is behind a hash. */
struct behind {
	uint32_t keys, place;
};

static struct behind
behind(const struct fal_coord *c, const uint8_t *data)
{
	struct behind b = { 0, UINT32_MAX };
	for (uint32_t i = 0; i < c->keys; i++) {
		const struct fal_known_key *k = &c->key[i];
		if (!same(k->data, data))
			continue;
		b.keys++;
		b.place = k->place < b.place ? k->place : b.place;
	}
	return b;
}

static bool
outweighs(struct behind a, struct behind b)
{
	return a.keys != b.keys ? a.keys > b.keys : a.place < b.place;
}

/* The hash that counts; `none`: nobody has said one.  Keys are few. */
static const uint8_t *
leader(const struct fal_coord *c, struct behind *out)
{
	const uint8_t *best = none;
	*out = (struct behind){ 0, UINT32_MAX };
	if (!same(c->conf.data, none)) {
		out->keys = UINT32_MAX;
		return c->conf.data;
	}
	for (uint32_t i = 0; i < c->keys; i++) {
		const uint8_t *data = c->key[i].data;
		if (same(data, none) || same(data, best))
			continue;
		const struct behind b = behind(c, data);
		if (!outweighs(b, *out))
			continue;
		best = data;
		*out = b;
	}
	return best;
}

/* A ready session that has said other data than `data`: of this key, or of any (0). */
static const struct fal_peer *
other(const struct fal_coord *c, const uint8_t *data, uint32_t key)
{
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *p = &c->peer[i];
		if (p->ready && (key == 0 || p->key == key) && !same(p->data, none) &&
		    !same(p->data, data))
			return p;
	}
	return NULL;
}

/* 1, or an error. */
static int
turn_away(struct fal_coord *c, double now, uint32_t peer, const uint8_t *data,
	  const uint8_t *best, bool later)
{
	char a[2 * FAL_DATA_HASH + 1], b[2 * FAL_DATA_HASH + 1], why[FAL_MSG_WHY];
	fal_hex(data, FAL_DATA_HASH, a);
	fal_hex(best, FAL_DATA_HASH, b);
	snprintf(why, sizeof(why), "its trainer has the data %s, %s %s", a,
		 same(best, c->conf.data) ? "the job's are" : "that of others has", b);
	int err = (later ? coord_later : coord_refuse)(c, now, peer, why);
	return err < 0 ? err : 1;
}

int
coord_data(struct fal_coord *c, double now, struct fal_peer *p,
	   const uint8_t data[static FAL_DATA_HASH])
{
	struct fal_known_key *key = &c->key[p->key - 1];
	struct behind best, mine;
	memcpy(p->data, data, FAL_DATA_HASH);
	if (same(data, none))
		return FAL_OK;
	if (other(c, data, p->key) == NULL && (c->version == 0 || same(key->data, none)))
		memcpy(key->data, data, FAL_DATA_HASH);
	const uint8_t *leading = leader(c, &best);
	if (same(data, leading))
		return FAL_OK;
	mine = behind(c, data);
	return turn_away(c, now, p->id, data, leading, mine.keys == best.keys);
}

void
coord_data_remember(const struct fal_coord *c, char out[static 2 * FAL_DATA_HASH + 1])
{
	struct behind best;
	const uint8_t *data = leader(c, &best);
	out[0] = '\0';
	if (!same(data, none))
		fal_hex(data, FAL_DATA_HASH, out);
}

int
coord_data_others(struct fal_coord *c, double now)
{
	struct behind best;
	uint8_t leading[FAL_DATA_HASH];
	const struct fal_peer *p;
	int err = FAL_OK;
	memcpy(leading, leader(c, &best), FAL_DATA_HASH);
	while (err >= 0 && !same(leading, none) && (p = other(c, leading, 0)) != NULL) {
		uint8_t data[FAL_DATA_HASH];
		memcpy(data, p->data, FAL_DATA_HASH);
		err = turn_away(c, now, p->id, data, leading, false);
	}
	return err < 0 ? err : FAL_OK;
}
