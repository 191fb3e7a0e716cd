/* Streams to shards. */
#include "links.h"

#include "base/mem.h"
#include "sec/secret.h"
#include "session_priv.h"
#include "shard/map.h"

#include <stdlib.h>
#include <string.h>

struct link {
	struct session *s;
	struct fal_addr addr;
	struct fal_client_key *key; /* in locked memory */
	uint32_t first, count;      /* shards, from 1 */
	struct fal_chan *chan;      /* NULL: not yet, or gone */
	bool open, dialled;
};

/* Have its shards blocks, or may they, as no map is known yet? */
static bool
is_needed(const struct link *l)
{
	const struct fal_map *map =
		l->s->agent != NULL ? fal_agent_map(l->s->agent) : NULL;
	uint32_t i = l->first - 1;
	if (map == NULL)
		return true;
	while (i < l->first - 1 + l->count && map->of[i].count == 0)
		i++;
	return i < l->first - 1 + l->count;
}

static void
free_link(struct link *l)
{
	fal_secret_free(l->key);
	free(l);
}

/* Where it is, and the key to it. */
static int
fill(struct link *l, const struct fal_msg *m)
{
	const struct fal_addr *to = session_at(l->s);
	struct fal_addr at;
	int err = fal_addr_parse(m->map.address, &at, NULL);
	if (err == FAL_OK && at.kind == FAL_ADDR_EXEC)
		err = FAL_EFORMAT; /* no command of the coordinator's is run */
	/* Where the coordinator is reached by a command, so is what listens there. */
	if (err == FAL_OK && to->kind == FAL_ADDR_EXEC && at.kind == FAL_ADDR_TCP)
		fal_addr_through(to, &at, &l->addr);
	else
		l->addr = at;
	l->key = fal_secret_alloc(sizeof(*l->key));
	if (err < 0 || l->key == NULL)
		return err < 0 ? err : FAL_ENOMEM;
	*l->key = (struct fal_client_key){ .role = FAL_ROLE_WORK };
	memcpy(l->key->name, m->map.name, sizeof(l->key->name));
	memcpy(l->key->psk, m->map.psk, sizeof(l->key->psk));
	memcpy(l->key->server, m->map.public, sizeof(l->key->server));
	l->first = m->map.first;
	l->count = m->map.count;
	return FAL_OK;
}

/* It is known no more. */
static void
drop(struct links *all, size_t at)
{
	struct link *l = all->v[at];
	if (l->chan != NULL)
		fal_chan_kill(l->chan);
	free_link(l);
	memmove(all->v + at, all->v + at + 1, (--all->n - at) * sizeof(struct link *));
}

int
links_add(struct session *s, const struct fal_msg *m)
{
	struct links *all = &s->links;
	const uint32_t over = m->map.first - 1 < FAL_SHARDS_MAX
				      ? FAL_SHARDS_MAX - (m->map.first - 1)
				      : 0;
	if (!fal_name_valid(m->map.name) || m->map.count < 1 || m->map.count > over)
		return FAL_EFORMAT;
	for (size_t i = all->n; i > 0; i--) {
		const struct link *l = all->v[i - 1];
		if (l->first < m->map.first + m->map.count &&
		    m->map.first < l->first + l->count)
			drop(all, i - 1);
	}
	if (all->n == FAL_SHARDS_MAX)
		return FAL_ELIMIT;
	struct link *l = fal_calloc(1, sizeof(*l));
	if (l == NULL || FAL_GROW(all->v, all->cap, all->n + 1) < 0) {
		free(l);
		return FAL_ENOMEM;
	}
	l->s = s;
	all->v[all->n++] = l;
	return fill(l, m);
}

/* ---- the streams ------------------------------------------------------------------- */

static void
on_open(void *arg, struct fal_chan *c)
{
	struct link *l = arg;
	struct session *s = l->s;
	struct fal_msg m = { .type = FAL_MSG_ATTACH, .incarnation = s->incarnation };
	struct fal_buf out = { 0 };
	l->open = true;
	fal_chan_compress(c, s->opt->compress);
	int err = fal_msg_put(&out, &m);
	if (err == FAL_OK)
		err = fal_chan_send(c, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
	if (err < 0)
		session_trouble(s, err);
	else
		session_attached(s);
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	const struct link *l = arg;
	session_on_shard(l->s, c, p, n);
}

static uint8_t *
on_place(void *arg, const struct fal_publication *pub, uint32_t index, size_t n,
	 size_t *head)
{
	const struct link *l = arg;
	return session_on_place(l->s, pub, index, n, head);
}

static void
on_placed(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	const struct link *l = arg;
	session_on_placed(l->s, c, p, n);
}

static void
on_room(void *arg, struct fal_chan *c)
{
	const struct link *l = arg;
	session_on_room(l->s, c);
}

static void
on_drain(void *arg, struct fal_chan *c)
{
	const struct link *l = arg;
	session_on_drain(l->s, c);
}

static int dial(struct link *l);

/* All streams of a session end together. */
static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct link *l = arg;
	(void)reason;
	const bool again = session_goes_far(l->s, c, l->open);
	l->chan = NULL;
	l->open = false;
	if (!again)
		session_adrift(l->s);
	else if ((err = dial(l)) < 0)
		session_trouble(l->s, err);
}

static int
dial(struct link *l)
{
	const struct fal_chan_ops ops = { .arg = l,
					  .on_open = on_open,
					  .on_msg = on_msg,
					  .on_place = on_place,
					  .on_placed = on_placed,
					  .on_room = on_room,
					  .on_drain = on_drain,
					  .on_close = on_close };
	l->dialled = true;
	return session_dial(l->s, &l->addr, l->key, &ops, &l->chan);
}

int
links_dial(struct session *s)
{
	int err = FAL_OK;
	for (size_t i = 0; i < s->links.n && err == FAL_OK; i++)
		if (!s->links.v[i]->dialled)
			err = dial(s->links.v[i]);
	return err;
}

void
links_moved(struct session *s)
{
	for (size_t i = s->links.n; i > 0; i--) {
		const struct link *l = s->links.v[i - 1];
		if (l->dialled && l->chan == NULL && !is_needed(l))
			drop(&s->links, i - 1);
	}
}

bool
links_adrift(const struct session *s)
{
	size_t i = 0;
	while (i < s->links.n &&
	       (!s->links.v[i]->dialled || s->links.v[i]->chan != NULL ||
		!is_needed(s->links.v[i])))
		i++;
	return i < s->links.n;
}

bool
links_open(const struct session *s)
{
	size_t i = 0;
	while (i < s->links.n && s->links.v[i]->open)
		i++;
	return i == s->links.n;
}

bool
links_room(const struct session *s)
{
	size_t i = 0;
	while (i < s->links.n && (!is_needed(s->links.v[i]) ||
				  (s->links.v[i]->open && /* ATTACH goes first */
				   fal_chan_room(s->links.v[i]->chan))))
		i++;
	return i == s->links.n;
}

bool
links_sent(const struct session *s)
{
	size_t i = 0;
	while (i < s->links.n && (s->links.v[i]->chan == NULL ||
				  fal_chan_stat(s->links.v[i]->chan).held == 0))
		i++;
	return i == s->links.n;
}

bool
links_gone(const struct session *s)
{
	size_t i = 0;
	while (i < s->links.n && s->links.v[i]->chan == NULL)
		i++;
	return i == s->links.n;
}

int
links_push(struct session *s, uint32_t shard, const struct fal_buf *msg)
{
	for (size_t i = 0; i < s->links.n; i++) {
		const struct link *l = s->links.v[i];
		if (shard < l->first || shard - l->first >= l->count)
			continue;
		int err = l->chan != NULL ? fal_chan_send(l->chan, msg, FAL_SEND_BULK)
					  : FAL_OK;
		return err < 0 && err != FAL_ESTATE ? err : 1; /* closing: all was said */
	}
	return 0;
}

void
links_close(struct session *s)
{
	for (size_t i = 0; i < s->links.n; i++) {
		struct link *l = s->links.v[i];
		if (l->chan != NULL && l->open) {
			fal_chan_close(l->chan);
		} else if (l->chan != NULL) {
			fal_chan_kill(l->chan);
			l->chan = NULL;
		}
	}
}

void
links_kill(struct session *s)
{
	for (size_t i = 0; i < s->links.n; i++) {
		if (s->links.v[i]->chan != NULL)
			fal_chan_kill(s->links.v[i]->chan);
		free_link(s->links.v[i]);
	}
	free(s->links.v);
	s->links = (struct links){ 0 };
}
