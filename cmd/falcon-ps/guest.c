/* Workers at a process of shards: each opens its session with the key that the
 * coordinator gave to both. */
#include "join.h"

#include "base/mem.h"
#include "sec/secret.h"
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 32 + FAL_KEY_TEXT }; /* bytes of a line of the keyring, at most */

static size_t
place(const struct ps_join *j, uint32_t id)
{
	size_t at = 0;
	while (at < j->guests && j->guest[at]->id < id)
		at++;
	return at;
}

struct ps_guest *
guest_find(const struct ps_join *j, uint32_t id)
{
	const size_t at = place(j, id);
	return at < j->guests && j->guest[at]->id == id ? j->guest[at] : NULL;
}

struct ps_reader *
guest_reader(void *arg, uint32_t id)
{
	struct ps_guest *g = guest_find(arg, id);
	return g != NULL ? &g->reader : NULL;
}

int
guest_keys(struct ps_join *j)
{
	const size_t most = (j->guests + 1) * LINE;
	char *text = fal_secret_alloc(most);
	char *key = fal_secret_alloc(FAL_KEY_TEXT + 1);
	struct fal_keyring *fresh = NULL;
	int err = text != NULL && key != NULL ? FAL_OK : FAL_ENOMEM;
	size_t n = 0;
	if (err == FAL_OK) {
		fal_key_encode(j->secret, key);
		n = (size_t)snprintf(text, most, "shard self %s\n", key);
	}
	for (size_t i = 0; i < j->guests && err == FAL_OK; i++) {
		fal_key_encode(j->guest[i]->psk, key);
		n += (size_t)snprintf(text + n, most - n, "session%u work %s\n",
				      j->guest[i]->id, key);
	}
	if (err == FAL_OK)
		err = fal_keyring_parse(text, n, "sessions", &fresh, NULL);
	fal_secret_free(text);
	fal_secret_free(key);
	if (err < 0)
		return err;
	if (j->listen != NULL)
		fal_listen_keyring(j->listen, fresh);
	fal_keyring_free(j->keys);
	j->keys = fresh;
	return FAL_OK;
}

static void
free_guest(struct ps_guest *g)
{
	if (g->reader.chan != NULL)
		fal_chan_kill(g->reader.chan);
	ps_reader_free(&g->reader);
	fal_secret_free(g->psk);
	free(g);
}

int
guest_admit(struct ps_join *j, const struct fal_msg *m)
{
	const size_t at = place(j, m->admit.session);
	struct ps_guest *g = fal_calloc(1, sizeof(*g));
	if (guest_find(j, m->admit.session) != NULL) {
		free(g);
		return FAL_ESTATE;
	}
	if (g == NULL || (g->psk = fal_secret_alloc(FAL_KEY_BYTES)) == NULL ||
	    FAL_GROW(j->guest, j->guest_cap, j->guests + 1) < 0) {
		if (g != NULL)
			free_guest(g);
		return FAL_ENOMEM;
	}
	g->join = j;
	g->id = m->admit.session;
	memcpy(g->psk, m->admit.psk, FAL_KEY_BYTES);
	memmove(j->guest + at + 1, j->guest + at,
		(j->guests++ - at) * sizeof(struct ps_guest *));
	j->guest[at] = g;
	int err = guest_keys(j);
	struct fal_msg known = { .type = FAL_MSG_ADMITTED, .admitted.session = g->id };
	if (err == FAL_OK)
		join_say(j, &known);
	return err;
}

int
guest_dismiss(struct ps_join *j, uint32_t id)
{
	const size_t at = place(j, id);
	if (guest_find(j, id) == NULL)
		return FAL_OK;
	free_guest(j->guest[at]);
	memmove(j->guest + at, j->guest + at + 1,
		(--j->guests - at) * sizeof(struct ps_guest *));
	return guest_keys(j);
}

void
guest_part(struct ps_join *j)
{
	for (size_t i = 0; i < j->guests; i++)
		if (j->guest[i]->reader.chan != NULL)
			fal_chan_close(j->guest[i]->reader.chan);
}

bool
guest_parted(const struct ps_join *j)
{
	size_t i = 0;
	while (i < j->guests && j->guest[i]->reader.chan == NULL)
		i++;
	return i == j->guests;
}

void
guest_forget(struct ps_join *j)
{
	while (j->guests > 0)
		free_guest(j->guest[--j->guests]);
	(void)guest_keys(j); /* else the old ones open nothing that is here */
}

/* Ends a session that did what it may not. */
static void
refuse(struct ps_guest *g, const char *why)
{
	struct fal_msg m = { .type = FAL_MSG_REFUSE };
	snprintf(m.refuse.why, sizeof(m.refuse.why), "%s", why);
	(void)ps_chan_send(g->reader.chan, &m, FAL_SEND_CONTROL);
	fal_cli_err(PROG, "%s: refused: %s", fal_chan_name(g->reader.chan), why);
	fal_chan_close(g->reader.chan);
}

/* What is refused of a push the coordinator hears, and charges its key. */
static int
refused(struct ps_join *j, const struct fal_ticket *t, int err, const char *why)
{
	const struct fal_shard_say say = { .kind = FAL_SAY_REFUSED,
					   .round = t->round,
					   .id = t->id,
					   .err = err,
					   .odd = why };
	return fal_post_say(j->incarnation, 0, &say, join_piece, j);
}

static int
on_push(struct ps_guest *g, const struct fal_msg *m, struct fal_diag *why)
{
	struct ps_join *j = g->join;
	struct fal_ticket t;
	int err = fal_rack_ticket(j->rack, g->id, m, &t, why);
	if (err < 0)
		return err;
	const uint64_t began = uv_hrtime();
	ps_served_push(&j->wants.served, j->rack, &m->push.records);
	err = fal_rack_push(j->rack, &t, &m->push.records, why);
	if (err < 0 && err != FAL_ENOMEM && refused(j, &t, err, why->text) == FAL_OK)
		err = FAL_OK;
	int said = place_speak(j);
	j->wants.served.service += uv_hrtime() - began;
	if (err == FAL_ENOMEM || said < 0)
		join_end(j, FAL_EXIT_NO, fal_strerror(err < 0 ? err : said));
	return FAL_OK;
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct ps_guest *g = arg;
	struct ps_join *j = g->join;
	struct fal_diag why = { "" };
	struct fal_msg m;
	(void)c;
	int err = fal_msg_get(p, n, &m);
	if (err < 0 || j->rack == NULL || m.incarnation != j->incarnation) {
		refuse(g, "a message that cannot be read");
	} else if (m.type == FAL_MSG_ATTACH) {
		j->near &= fal_chan_is_local(g->reader.chan);
		g->attached = true;
		if (place_speak(j) < 0)
			join_end(j, FAL_EXIT_NO, fal_strerror(FAL_ENOMEM));
	} else if (m.type != FAL_MSG_PUSH || !g->attached) {
		refuse(g, "a shard takes PUSH behind ATTACH alone");
	} else if (on_push(g, &m, &why) < 0) {
		refuse(g, why.text);
	}
}

static void
on_drain(void *arg, struct fal_chan *c)
{
	struct ps_guest *g = arg;
	(void)c;
	ps_wants_taken(&g->join->wants, &g->reader);
	if (place_speak(g->join) < 0)
		join_end(g->join, FAL_EXIT_NO, fal_strerror(FAL_ENOMEM));
}

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct ps_guest *g = arg;
	(void)c;
	(void)err;
	(void)reason;
	ps_wants_taken(&g->join->wants, &g->reader);
	g->reader.chan = NULL;
	join_parted(g->join);
}

void
guest_accept(void *arg, struct fal_chan *c, const char *name, enum fal_role role)
{
	struct ps_join *j = arg;
	unsigned id = 0;
	struct ps_guest *g =
		sscanf(name, "session%u", &id) == 1 ? guest_find(j, id) : NULL;
	const struct fal_chan_ops ops = {
		.arg = g, .on_msg = on_msg, .on_drain = on_drain, .on_close = on_close
	};
	(void)role;
	if (g == NULL || g->reader.chan != NULL || j->parting) { /* it has one */
		fal_chan_kill(c);
		return;
	}
	g->attached = false;
	ps_reader_free(&g->reader);
	g->reader.chan = c;
	fal_chan_adopt(c, &ops);
	fal_chan_compress(c, j->run->compress);
}
