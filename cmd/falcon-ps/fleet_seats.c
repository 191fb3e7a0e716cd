/* Workers, of whom each process of shards is to know before they come. */
#include "fleet_priv.h"

#include "base/text.h"
#include "sec/secret.h"

#include <stdio.h>
#include <string.h>

static uint8_t *
seat(const struct ps_session *session, const struct ps_member *m)
{
	return session->seats + (size_t)m->first * FAL_KEY_BYTES;
}

static uint64_t
bit(const struct ps_member *m)
{
	return UINT64_C(1) << m->first;
}

static void
tell_one(struct ps_server *s, struct ps_session *session, const struct ps_member *is)
{
	struct fal_msg m = { .type = FAL_MSG_MAP,
			     .incarnation = s->opt->incarnation,
			     .map = { .first = is->first + 1, .count = is->count } };
	memcpy(m.map.address, is->address, sizeof(m.map.address));
	memcpy(m.map.public, is->public, sizeof(m.map.public));
	memcpy(m.map.psk, seat(session, is), sizeof(m.map.psk));
	snprintf(m.map.name, sizeof(m.map.name), "session%u", session->id);
	if (ps_chan_send(session->chan, &m, FAL_SEND_CONTROL) < 0)
		fal_chan_close(session->chan);
	fal_secret_wipe(&m, sizeof(m));
}

/* All processes know the worker: now it learns where they are, before the texts; of those
 * that join later, as soon as they do. */
static void
tell_map(struct ps_server *s, struct ps_session *session)
{
	for (size_t i = 0; i < s->fleet.n && session->seats != NULL; i++)
		if (s->fleet.v[i]->count > 0 &&
		    (session->seating & bit(s->fleet.v[i])) != 0)
			tell_one(s, session, s->fleet.v[i]);
	fal_secret_free(session->seats);
	session->seats = NULL;
	session->seating = 0;
	if (session->mapped)
		return;
	session->mapped = session->texts_due = true;
	ps_more(s, session);
}

/* The process is to know the worker. */
static void
seat_at(struct ps_server *s, struct ps_session *session, struct ps_member *is)
{
	struct fal_msg m = { .type = FAL_MSG_ADMIT, .admit.session = session->id };
	if (session->seats == NULL)
		session->seats = fal_secret_alloc((size_t)FAL_SHARDS_MAX * FAL_KEY_BYTES);
	if (session->seats == NULL) {
		ps_fail(s, FAL_ENOMEM, "sessions");
		return;
	}
	fal_random_bytes(seat(session, is), FAL_KEY_BYTES);
	session->unseated |= bit(is);
	session->seating |= bit(is);
	memcpy(m.admit.psk, seat(session, is), sizeof(m.admit.psk));
	fleet_say(s, is, &m, FAL_SEND_CONTROL);
	fal_secret_wipe(&m, sizeof(m));
}

void
ps_fleet_admit(struct ps_server *s, struct ps_session *session)
{
	const struct ps_fleet *f = &s->fleet;
	session->seated = true;
	for (size_t i = 0; i < f->n; i++)
		if (fleet_works(f->v[i]))
			seat_at(s, session, f->v[i]);
	if (session->unseated == 0)
		tell_map(s, session);
}

void
fleet_seat_all(struct ps_server *s, const struct ps_member *m)
{
	for (size_t i = 0; i < s->sessions.n; i++)
		if (s->sessions.v[i]->seated)
			seat_at(s, s->sessions.v[i], m->session->member);
}

bool
fleet_seated_all(const struct ps_server *s, const struct ps_member *m)
{
	size_t i = 0;
	while (i < s->sessions.n && (s->sessions.v[i]->unseated & bit(m)) == 0)
		i++;
	return i == s->sessions.n;
}

static void
seated(struct ps_server *s, struct ps_session *session, const struct ps_member *by)
{
	const bool last = session->unseated == bit(by);
	session->unseated &= ~bit(by);
	if (last)
		tell_map(s, session);
}

void
fleet_unseat(struct ps_server *s, const struct ps_member *m)
{
	for (size_t i = 0; i < s->sessions.n && m->count > 0; i++) {
		s->sessions.v[i]->seating &= ~bit(m);
		seated(s, s->sessions.v[i], m);
	}
}

void
fleet_admitted(struct ps_server *s, const struct ps_member *by, const struct fal_msg *m)
{
	struct ps_session *session = ps_session_find(&s->sessions, m->admitted.session);
	if (session != NULL)
		seated(s, session, by);
}
