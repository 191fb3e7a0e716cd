/* Workers, of whom each process of shards is to know before they come. */
#include "fleet_priv.h"

#include "base/text.h"
#include "sec/secret.h"

#include <stdio.h>
#include <string.h>

static uint8_t *
seat(const struct ps_session *session, uint32_t i)
{
	return session->seats + (size_t)i * FAL_KEY_BYTES;
}

/* A process that has blocks, as a bit. */
static uint64_t
bit(const struct ps_member *m)
{
	return m->count > 0 ? UINT64_C(1) << m->first : 0;
}

/* All processes know the worker: now it learns where they are, before the texts. */
static void
tell_map(struct ps_server *s, struct ps_session *session)
{
	uint32_t at = 0;
	for (size_t i = 0; i < s->fleet.n && session->seats != NULL; i++) {
		const struct ps_member *is = s->fleet.v[i];
		struct fal_msg m = { .type = FAL_MSG_MAP,
				     .incarnation = s->opt->incarnation,
				     .map = { .epoch = s->tickets.epoch,
					      .first = is->first + 1,
					      .count = is->count } };
		struct fal_buf out = { 0 };
		if (is->count == 0)
			continue;
		memcpy(m.map.address, is->address, sizeof(m.map.address));
		memcpy(m.map.public, is->public, sizeof(m.map.public));
		memcpy(m.map.psk, seat(session, at++), sizeof(m.map.psk));
		snprintf(m.map.name, sizeof(m.map.name), "session%u", session->id);
		if (fal_msg_put(&out, &m) < 0 ||
		    fal_chan_send(session->chan, &out, FAL_SEND_CONTROL) < 0)
			fal_chan_close(session->chan);
		fal_secret_wipe(&m, sizeof(m));
		fal_secret_wipe(out.p, out.n);
		fal_buf_free(&out);
	}
	fal_secret_free(session->seats);
	session->seats = NULL;
	session->texts_due = true;
	ps_more(s, session);
}

void
ps_fleet_admit(struct ps_server *s, struct ps_session *session)
{
	const struct ps_fleet *f = &s->fleet;
	uint32_t at = 0;
	if (f->members > 0) {
		session->seats = fal_secret_alloc((size_t)f->members * FAL_KEY_BYTES);
		if (session->seats == NULL) {
			ps_fail(s, FAL_ENOMEM, "sessions");
			return;
		}
		fal_random_bytes(session->seats, (size_t)f->members * FAL_KEY_BYTES);
	}
	session->seated = f->members > 0;
	for (size_t i = 0; i < f->n && f->members > 0; i++) {
		struct fal_msg m = { .type = FAL_MSG_ADMIT,
				     .admit.session = session->id };
		if (f->v[i]->count == 0)
			continue;
		session->unseated |= bit(f->v[i]);
		memcpy(m.admit.psk, seat(session, at++), sizeof(m.admit.psk));
		fleet_say(s, f->v[i], &m, FAL_SEND_CONTROL);
		fal_secret_wipe(&m, sizeof(m));
	}
	if (f->members == 0)
		tell_map(s, session);
}

void
fleet_admitted(struct ps_server *s, const struct ps_member *by, const struct fal_msg *m)
{
	struct ps_session *session = ps_session_find(&s->sessions, m->admitted.session);
	if (session == NULL || session->unseated == 0)
		return;
	session->unseated &= ~bit(by);
	if (session->unseated == 0)
		tell_map(s, session);
}
