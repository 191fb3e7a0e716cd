/* Whose sessions they are, and what workers are called. */
#include "coord/priv.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* The number of the key; 0: no memory. */
static uint32_t
number_of(struct fal_coord *c, const struct fal_coord_who *who)
{
	for (uint32_t i = 0; i < c->keys; i++) {
		struct fal_known_key *k = &c->key[i];
		if (strcmp(k->name, who->key) == 0 ||
		    strcmp(k->fingerprint, who->fingerprint) == 0) {
			k->place = who->place;
			return i + 1;
		}
	}
	if (FAL_GROW(c->key, c->key_cap, (size_t)c->keys + 1) < 0)
		return 0;
	struct fal_known_key *k = &c->key[c->keys];
	*k = (struct fal_known_key){ .place = who->place };
	snprintf(k->name, sizeof(k->name), "%s", who->key);
	snprintf(k->fingerprint, sizeof(k->fingerprint), "%s", who->fingerprint);
	return ++c->keys;
}

/* A key that was charged so often has no session while another key is here. */
enum { TWICE = 2 };

int
fal_coord_open(struct fal_coord *c, uint32_t peer, const struct fal_coord_who *who)
{
	coord_enter(c);
	uint32_t key = number_of(c, who);
	if (key == 0 || FAL_GROW(c->peer, c->peer_cap, (size_t)c->peers + 1) < 0)
		return FAL_ENOMEM;
	struct fal_peer *p = &c->peer[coord_place(c, peer)];
	memmove(p + 1, p, (size_t)(c->peer + c->peers++ - p) * sizeof(*p));
	*p = (struct fal_peer){
		.id = peer, .key = key, .rtt = who->rtt, .kept = UINT64_MAX
	};
	return FAL_OK;
}

void
coord_charge_key(struct fal_coord *c, const struct fal_peer *p)
{
	c->key[p->key - 1].charges++;
}

const struct fal_known_worker *
coord_known(const struct fal_coord *c, uint32_t worker)
{
	return &c->known[worker - 1];
}

bool
coord_is_banned(const struct fal_coord *c, const struct fal_peer *p)
{
	if (c->key[p->key - 1].charges < TWICE)
		return false;
	for (uint32_t i = 0; i < c->peers; i++)
		if (c->peer[i].ready && c->peer[i].key != p->key)
			return true;
	return false;
}

/* A ready session of the key, that of `worker` first; NULL: there is none. */
static const struct fal_peer *
session_of_key(const struct fal_coord *c, uint32_t key, uint32_t worker)
{
	const struct fal_peer *any = NULL;
	for (uint32_t i = 0; i < c->peers; i++) {
		const struct fal_peer *p = &c->peer[i];
		if (!p->ready || p->key != key)
			continue;
		if (p->worker == worker)
			return p;
		any = p;
	}
	return any;
}

int
coord_charged(struct fal_coord *c, double now, uint32_t worker, const char *why)
{
	const struct fal_known_worker *w = coord_known(c, worker);
	const uint32_t key = w->key;
	const struct fal_peer *p;
	int err = FAL_OK;
	/* Nothing more follows for a key that has no session any more. */
	if (c->key[key - 1].charges >= TWICE && session_of_key(c, key, worker) == NULL)
		return FAL_OK;
	c->key[key - 1].charges++;
	fal_trace_put(&c->line, fal_coord_seconds(c, now), FAL_EV_CHARGE,
		      &(struct fal_ev_charge){ w->name, worker, why });
	coord_trace(c);
	while (err == FAL_OK && (p = session_of_key(c, key, worker)) != NULL &&
	       coord_is_banned(c, p))
		err = coord_refuse(c, now, p->id, why);
	return err;
}

static bool
is_here(const struct fal_peer *p)
{
	return p->greeted && !p->left;
}

bool
fal_coord_greeted(const struct fal_coord *c, uint32_t peer)
{
	coord_enter(c);
	const struct fal_peer *p = coord_find(c, peer);
	return p != NULL && is_here(p);
}

/* The older session of the same process, or NULL. */
static struct fal_peer *
older_of(const struct fal_coord *c, const struct fal_peer *p)
{
	for (uint32_t i = 0; i < c->peers; i++) {
		struct fal_peer *o = &c->peer[i];
		if (o != p && is_here(o) && o->key == p->key &&
		    memcmp(o->instance, p->instance, FAL_INSTANCE) == 0)
			return o;
	}
	return NULL;
}

static bool
is_taken(const struct fal_coord *c, const struct fal_peer *by, const char *name)
{
	for (uint32_t i = 0; i < c->peers; i++)
		if (&c->peer[i] != by && is_here(&c->peer[i]) &&
		    strcmp(c->peer[i].name, name) == 0)
			return true;
	return false;
}

/* `name`, or, where that is another one's, name.2, name.3 … */
static void
call(const struct fal_coord *c, struct fal_peer *p, const char *name)
{
	snprintf(p->name, sizeof(p->name), "%s", name);
	for (uint32_t i = 2; is_taken(c, p, p->name); i++) {
		char suffix[12];
		int n = snprintf(suffix, sizeof(suffix), ".%u", i);
		snprintf(p->name, sizeof(p->name), "%.*s%s", FAL_NAME_MAX - n, name,
			 suffix);
	}
}

int
coord_name(struct fal_coord *c, double now, uint32_t peer, const char *name,
	   const uint8_t instance[static FAL_INSTANCE])
{
	static const char why[] = "its process has opened another session";
	struct fal_peer *p = coord_find(c, peer);
	memcpy(p->instance, instance, FAL_INSTANCE);
	struct fal_peer *older = older_of(c, p);
	if (older == NULL) {
		call(c, p, name);
		return FAL_OK;
	}
	snprintf(p->name, sizeof(p->name), "%s", older->name);
	/* What came last need not have been said last: if this one is the dead one, the
	 * other comes back. */
	return coord_later(c, now, older->id, why);
}
