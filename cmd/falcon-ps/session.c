/* The table of sessions. */
#include "server.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t
place(const struct ps_sessions *s, uint32_t id)
{
	size_t low = 0, high = s->n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (s->v[mid]->id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct ps_session *
ps_session_find(const struct ps_sessions *s, uint32_t id)
{
	size_t at = place(s, id);
	return at < s->n && s->v[at]->id == id ? s->v[at] : NULL;
}

struct ps_session *
ps_session_add(struct ps_sessions *s)
{
	struct ps_session *session = fal_calloc(1, sizeof(*session));
	if (session == NULL || FAL_GROW(s->v, s->cap, s->n + 1) < 0) {
		free(session);
		return NULL;
	}
	session->id = ++s->last_id;
	s->v[s->n++] = session;
	return session;
}

static bool
looks_on(const struct ps_session *session)
{
	return !fal_role_may(fal_chan_role(session->chan), FAL_ROLE_WORK);
}

/* It is of no crowd any more; one of nobody is forgotten. */
static void
leave(struct ps_sessions *s, struct ps_session *session)
{
	struct ps_crowd *c = session->crowd, **at = &s->crowds;
	struct ps_session **m;
	if (c == NULL)
		return;
	for (m = &c->first; *m != session; m = &(*m)->mate)
		;
	*m = session->mate;
	session->crowd = NULL;
	s->lookers_on -= looks_on(session);
	if (--c->n > 0)
		return;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	free(c);
}

int
ps_session_crowd(struct ps_sessions *s, struct ps_session *session, bool by_source)
{
	const char *key = fal_chan_fingerprint(session->chan);
	const char *source = by_source ? fal_chan_source(session->chan) : "";
	leave(s, session);
	struct ps_crowd *c = s->crowds;
	while (c != NULL && (strcmp(c->key, key) != 0 || strcmp(c->source, source) != 0))
		c = c->next;
	if (c == NULL) {
		c = fal_calloc(1, sizeof(*c));
		if (c == NULL)
			return FAL_ENOMEM;
		snprintf(c->key, sizeof(c->key), "%s", key);
		snprintf(c->source, sizeof(c->source), "%s", source);
		c->next = s->crowds;
		s->crowds = c;
	}
	session->crowd = c;
	session->mate = c->first;
	c->first = session;
	c->n++;
	s->lookers_on += looks_on(session);
	return FAL_OK;
}

void
ps_session_remove(struct ps_sessions *s, struct ps_session *session)
{
	leave(s, session);
	size_t at = place(s, session->id);
	memmove(s->v + at, s->v + at + 1, (--s->n - at) * sizeof(struct ps_session *));
	fal_buf_free(&session->export);
	fal_buf_free(&session->hello);
	ps_reader_end(&session->server->wants, &session->reader);
	free(session);
}
