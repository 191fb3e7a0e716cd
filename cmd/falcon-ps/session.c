/* The table of sessions. */
#include "session.h"

#include "base/mem.h"

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

void
ps_session_remove(struct ps_sessions *s, struct ps_session *session)
{
	size_t at = place(s, session->id);
	memmove(s->v + at, s->v + at + 1, (--s->n - at) * sizeof(struct ps_session *));
	fal_buf_free(&session->export);
	free(session);
}
