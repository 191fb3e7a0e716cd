/* Looking through group servers: see look.h. */
#include "look.h"

#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PIECES = 4, /* on their way at once: so a push waits for no more of them */
	DUE_MAX = 1 << 16,
	LOOKS_MAX = 16, /* through a group server at once */
	PATIENCE_S = 4, /* for a piece: less than that of who asks */
	LEVEL_S = 1,    /* and more for each level between, which is first to say so */
	HISTORY_S = 60  /* for all of it */
};

static const uint64_t history_max = (uint64_t)64 << 20;
static const size_t behind_max = (size_t)8 << 20; /* bytes that a live look may be */

/* ---- who looks ----------------------------------------------------------------------
 */

static void
drop(struct ps_looks *l, size_t i)
{
	fal_buf_free(&l->v[i].own);
	memmove(l->v + i, l->v + i + 1, (--l->n - i) * sizeof(*l->v));
}

/* A piece of the trace goes on. */
static void
deliver(struct ps_server *s, const struct ps_look *l, const struct fal_tail *bytes)
{
	struct ps_session *to = ps_session_find(&s->sessions, l->observer);
	struct fal_msg m = { .type = FAL_MSG_TRACE, .trace.lines = *bytes };
	struct fal_buf out = { 0 };
	if (l->observer == 0) {
		m = (struct fal_msg){ .type = FAL_MSG_LOOKED,
				      .looked = { .look = l->up, .bytes = *bytes } };
		above_say(s->above, &m);
		return;
	}
	if (to != NULL && (fal_msg_put(&out, &m) < 0 ||
			   fal_chan_send(to->chan, &out, FAL_SEND_PACKED) < 0))
		fal_chan_close(to->chan);
	fal_buf_free(&out);
}

/* Look i is over: in order, with status 0; or `why` not. */
static void
end(struct ps_server *s, size_t i, int status, const char *why)
{
	const struct ps_look *l = &s->looks.v[i];
	struct ps_session *to = ps_session_find(&s->sessions, l->observer);
	struct fal_diag text = { "" };
	struct fal_msg m = { .type = FAL_MSG_TRACE_END };
	struct fal_buf out = { 0 };
	if (status != FAL_EXIT_DONE && l->name[0] != '\0')
		fal_diag_set(&text, 0, "group %s: %.180s", l->name, why);
	else if (status != FAL_EXIT_DONE)
		fal_diag_set(&text, 0, "%.180s", why);
	const struct fal_tail said = { (const uint8_t *)text.text, strlen(text.text) };
	if (l->observer == 0) {
		m = (struct fal_msg){ .type = FAL_MSG_LOOKED,
				      .looked = { .look = l->up,
						  .over = 1,
						  .status = (uint8_t)status,
						  .bytes = said } };
		above_say(s->above, &m);
	} else if (to != NULL) {
		if (status != FAL_EXIT_DONE)
			m = (struct fal_msg){ .type = FAL_MSG_REPLY,
					      .reply = { .status = (uint8_t)status,
							 .bytes = said } };
		if (fal_msg_put(&out, &m) == FAL_OK)
			fal_chan_send(to->chan, &out, FAL_SEND_BULK);
		fal_chan_close(to->chan);
	}
	fal_buf_free(&out);
	drop(&s->looks, i);
}

/* ---- the group server below ---------------------------------------------------------
 */

static void
say_below(struct ps_server *s, struct ps_session *to, struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	m->incarnation = s->wants.publisher.incarnation;
	if (fal_msg_put(&out, m) == FAL_OK)
		fal_chan_send(to->chan, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
}

/* So many pieces more may come; 0: none is wanted any more. */
static void
ask(struct ps_server *s, struct ps_look *l, uint32_t pieces)
{
	struct ps_session *to = ps_session_find(&s->sessions, l->below);
	struct fal_msg m = { .type = FAL_MSG_LOOK_ON,
			     .look_on = { .look = l->id, .pieces = pieces } };
	if (to == NULL)
		return;
	l->at = l->due == 0 ? ps_now() : l->at;
	l->due += pieces;
	to->pieces += pieces;
	say_below(s, to, &m);
}

/* Look i ends, and the group server is told. */
static void
give_up(struct ps_server *s, size_t i, int status, const char *why)
{
	if (s->looks.v[i].id != 0)
		ask(s, &s->looks.v[i], 0);
	end(s, i, status, why);
}

/* As there is room to the observer, so more may come. */
static void
top_up(struct ps_server *s, struct ps_look *l)
{
	const struct ps_session *to = ps_session_find(&s->sessions, l->observer);
	if (l->id != 0 && to != NULL && l->due <= PIECES / 2 && ps_has_room(s, to))
		ask(s, l, PIECES - l->due);
}

/* The group server of this name that is here; or NULL, with why not and a status. */
static struct ps_session *
group_of(struct ps_server *s, const char *name, int *status, const char **why)
{
	const char *instead;
	size_t n = 0;
	struct ps_session *is = NULL;
	for (size_t i = 0; i < s->sessions.n && is == NULL; i++)
		if (strcmp(s->sessions.v[i]->worker, name) == 0)
			is = s->sessions.v[i];
	for (size_t i = 0; i < s->looks.n && is != NULL; i++)
		n += s->looks.v[i].below == is->id;
	*status = FAL_EXIT_TEMPFAIL;
	if (is == NULL && ps_knows(s, name, &instead)) {
		*why = "it is not here now";
	} else if (is == NULL) {
		*status = FAL_EXIT_USAGE;
		*why = "nobody of this name is here, or may come";
	} else if (is->group == PS_NO_GROUP) {
		*status = FAL_EXIT_USAGE;
		*why = "it is a worker, and no group server";
	} else if (is->group == PS_DARK) {
		*status = FAL_EXIT_NO;
		*why = "its build is one that cannot be looked through";
	} else if (n >= LOOKS_MAX) {
		*why = "too many look through it just now";
	} else {
		return is;
	}
	return NULL;
}

/* The first name of the path, and what is behind it.  False: it is no path. */
static bool
split(struct fal_tail *path, char name[static FAL_MSG_NAME], unsigned *names)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t first = path->n, len = 0;
	*names = 1;
	for (size_t i = 0; i < path->n; i++) {
		const bool cut = path->p[i] == '/';
		if (cut ? len == 0 : strchr(letters, path->p[i]) == NULL)
			return false;
		first = cut && i < first ? i : first;
		*names += cut;
		len = cut ? 0 : len + 1;
		if (len >= FAL_MSG_NAME || path->p[i] == '\0')
			return false;
	}
	if (len == 0 || path->n > FAL_LOOK_PATH || *names > FAL_LOOK_DEEP)
		return false;
	memcpy(name, path->p, first);
	name[first] = '\0';
	const size_t skip = first < path->n ? first + 1 : first;
	*path = (struct fal_tail){ path->p + skip, path->n - skip };
	return true;
}

/* `l` goes to the group that its path begins with.  FAL_ENOMEM. */
static int
begin(struct ps_server *s, struct ps_look l, struct fal_tail path, uint32_t pieces)
{
	const char *why = "this is no name of a group, or of one below it";
	int status = FAL_EXIT_USAGE;
	unsigned names;
	if (FAL_GROW(s->looks.v, s->looks.cap, s->looks.n + 1) < 0)
		return FAL_ENOMEM;
	struct ps_session *to =
		split(&path, l.name, &names) ? group_of(s, l.name, &status, &why) : NULL;
	l.began = l.at = ps_now();
	s->looks.v[s->looks.n++] = l;
	if (to == NULL) {
		end(s, s->looks.n - 1, status, why);
		return FAL_OK;
	}
	struct ps_look *is = &s->looks.v[s->looks.n - 1];
	is->id = ++s->looks.last;
	is->below = to->id;
	is->due = pieces;
	is->patience = PATIENCE_S + (names - 1) * LEVEL_S;
	to->pieces += pieces + 1; /* and its end */
	say_below(s, to,
		  &(struct fal_msg){ .type = FAL_MSG_LOOK_AT,
				     .look_at = { .look = is->id,
						  .live = l.live,
						  .pieces = pieces,
						  .path = path } });
	return FAL_OK;
}

const char *
ps_look(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	const struct ps_look l = { .observer = session->id, .live = m->look.live != 0 };
	session->looks_live = l.live;
	return begin(s, l, m->look.path, PIECES) < 0 ? "out of memory" : NULL;
}

/* What the group server says of why not. */
static void
end_by(struct ps_server *s, size_t i, const struct fal_msg *m)
{
	static const int known[] = { FAL_EXIT_NO, FAL_EXIT_USAGE, FAL_EXIT_TEMPFAIL };
	char raw[FAL_MSG_WHY], why[FAL_MSG_WHY];
	const size_t n =
		m->looked.bytes.n < sizeof(raw) ? m->looked.bytes.n : sizeof(raw) - 1;
	int status = FAL_EXIT_NO;
	memcpy(raw, m->looked.bytes.p, n);
	raw[n] = '\0';
	for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
		status = m->looked.status == known[k] ? known[k] : status;
	end(s, i, status, fal_text_plain(why, sizeof(why), raw));
}

const char *
ps_looked(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	static const char more[] = "sends more of its trace than was asked for";
	const struct fal_tail *bytes = &m->looked.bytes;
	const bool over = m->looked.over == 1;
	size_t i = 0;
	if (m->looked.over > 1 || (m->looked.status != 0 && !over))
		return "a LOOKED that goes on and does not";
	if (session->pieces == 0)
		return more;
	session->pieces--;
	while (i < s->looks.n &&
	       (s->looks.v[i].below != session->id || s->looks.v[i].id != m->looked.look))
		i++;
	if (i == s->looks.n) /* nobody looks any more */
		return NULL;
	struct ps_look *l = &s->looks.v[i];
	if (!over && l->due == 0)
		return more;
	l->due -= !over;
	l->any = true;
	l->at = ps_now();
	l->bytes += bytes->n;
	if (over) /* what is due does not come */
		session->pieces -= l->due;
	if (m->looked.status != 0) {
		end_by(s, i, m);
		return NULL;
	}
	if (!l->live && l->bytes > history_max) {
		give_up(s, i, FAL_EXIT_NO, "its trace is longer than can be");
		return NULL;
	}
	if (bytes->n > 0)
		deliver(s, l, bytes);
	if (over)
		end(s, i, FAL_EXIT_DONE, "");
	else
		top_up(s, l);
	return NULL;
}

/* ---- the coordinator above ----------------------------------------------------------
 */

/* As much of the trace here as may go up. */
static void
send_own(struct ps_server *s, size_t i)
{
	struct ps_look *l = &s->looks.v[i];
	while (l->due > 0 && l->sent < l->own.n) {
		const size_t left = l->own.n - l->sent;
		const struct fal_tail piece = { l->own.p + l->sent,
						left < PS_PIECE ? left : PS_PIECE };
		l->due--;
		l->sent += piece.n;
		deliver(s, l, &piece);
	}
	if (l->sent < l->own.n)
		return;
	fal_buf_clear(&l->own);
	l->sent = 0;
	if (!l->live)
		end(s, i, FAL_EXIT_DONE, "");
}

static int
on_look_at(struct ps_server *s, const struct fal_msg *m)
{
	struct ps_look l = { .up = m->look_at.look, .live = m->look_at.live != 0 };
	size_t n = 0;
	for (size_t i = 0; i < s->looks.n; i++) {
		const struct ps_look *is = &s->looks.v[i];
		if (is->observer == 0 && is->up == l.up)
			return FAL_ESTATE;
		n += is->observer == 0;
	}
	const uint32_t pieces = m->look_at.pieces < DUE_MAX ? m->look_at.pieces : DUE_MAX;
	if (n < LOOKS_MAX && m->look_at.path.n > 0)
		return begin(s, l, m->look_at.path, pieces);
	if (FAL_GROW(s->looks.v, s->looks.cap, s->looks.n + 1) < 0)
		return FAL_ENOMEM;
	l.due = pieces;
	if (n < LOOKS_MAX)
		ps_history(s, &l.own);
	const bool whole = l.own.err == FAL_OK;
	s->looks.v[s->looks.n++] = l;
	if (n >= LOOKS_MAX || !whole)
		end(s, s->looks.n - 1, FAL_EXIT_TEMPFAIL,
		    whole ? "too many look just now" : "out of memory");
	else
		send_own(s, s->looks.n - 1);
	return FAL_OK;
}

int
ps_look_asked(struct ps_server *s, const struct fal_msg *m)
{
	if (m->type == FAL_MSG_LOOK_AT)
		return on_look_at(s, m);
	size_t i = 0;
	while (i < s->looks.n &&
	       (s->looks.v[i].observer != 0 || s->looks.v[i].up != m->look_on.look))
		i++;
	if (i == s->looks.n) /* it has just ended */
		return FAL_OK;
	struct ps_look *l = &s->looks.v[i];
	const uint32_t most = DUE_MAX - l->due;
	const uint32_t more = m->look_on.pieces < most ? m->look_on.pieces : most;
	if (l->id != 0)
		ask(s, l, more);
	if (m->look_on.pieces == 0)
		drop(&s->looks, i);
	else if (l->id == 0) {
		l->due += more;
		send_own(s, i);
	}
	return FAL_OK;
}

/* ---- events -------------------------------------------------------------------------
 */

void
ps_look_more(struct ps_server *s, const struct ps_session *session)
{
	for (size_t i = 0; i < s->looks.n; i++)
		if (s->looks.v[i].observer == session->id)
			top_up(s, &s->looks.v[i]);
}

void
ps_look_gone(struct ps_server *s, const struct ps_session *session)
{
	for (size_t i = s->looks.n; i-- > 0;) {
		struct ps_look *l = &s->looks.v[i];
		if (l->observer == session->id) {
			ask(s, l, 0);
			drop(&s->looks, i);
		} else if (l->id != 0 && l->below == session->id) {
			end(s, i, FAL_EXIT_TEMPFAIL, "it is gone");
		}
	}
}

void
ps_look_line(struct ps_server *s, const char *line, size_t n)
{
	for (size_t i = s->looks.n; i-- > 0;) {
		struct ps_look *l = &s->looks.v[i];
		if (l->id != 0 || !l->live)
			continue;
		fal_put_bytes(&l->own, line, n);
		if (l->own.err < 0 || l->own.n - l->sent > behind_max)
			end(s, i, FAL_EXIT_NO, "lines come faster than they are taken");
	}
}

void
ps_look_tick(struct ps_server *s)
{
	const double now = ps_now();
	for (size_t i = s->looks.n; i-- > 0;) {
		const struct ps_look *l = &s->looks.v[i];
		struct fal_diag why;
		if (l->id == 0) {
			send_own(s, i);
			continue;
		}
		fal_diag_set(&why, 0, "it does not answer within %g s", l->patience);
		if (l->due > 0 && !(l->live && l->any) && now - l->at > l->patience)
			give_up(s, i, FAL_EXIT_TEMPFAIL, why.text);
		else if (!l->live && now - l->began > HISTORY_S)
			give_up(s, i, FAL_EXIT_TEMPFAIL,
				"its trace has not come within a minute");
	}
}

void
ps_looks_free(struct ps_looks *l)
{
	while (l->n > 0)
		drop(l, l->n - 1);
	free(l->v);
	*l = (struct ps_looks){ 0 };
}
