/* What a session asks for and is long: the job's texts, the data chunk by chunk, the
 * history of the trace.  It is queued as the channel takes it, and waits while much is
 * queued for the session, or for all of its key; data that the session had already wait
 * for its key's account, too. */
#include "cli/cli.h"
#include "server.h"

#include <string.h>

/* Bytes queued. */
static const size_t session_max = (size_t)1 << 20, key_max = (size_t)16 << 20;
static const size_t least = (size_t)256 << 10, most = (size_t)64 << 20;

/* Seconds in which a worker may come, before trainers that have failed end the job. */
static const double trainer_s = 300;

void
ps_count_keys(struct ps_server *s)
{
	size_t n, workers = 0, any = 0;
	const struct fal_key *key = fal_keyring_keys(*s->opt->keys, &n);
	for (size_t i = 0; i < n; i++) {
		workers += key[i].role == FAL_ROLE_WORK;
		any += key[i].role == FAL_ROLE_ALL;
	}
	s->work_keys = (uint32_t)(workers > 0 ? workers : any);
	if (s->coord != NULL)
		fal_coord_trainer_wait(s->coord, trainer_s, s->work_keys);
	for (size_t i = 0; i < s->sessions.n; i++)
		if (ps_session_crowd(&s->sessions, s->sessions.v[i], s->work_keys == 1) <
		    0)
			fal_chan_close(s->sessions.v[i]->chan);
}

struct ps_account *
ps_account_of(struct ps_server *s, const struct fal_chan *c)
{
	const char *source = s->work_keys == 1 ? fal_chan_source(c) : "";
	return ps_account_find(s->accounts, fal_chan_fingerprint(c), source, ps_now());
}

/* Bytes that are queued for it and all others of its key. */
static size_t
queued(const struct ps_session *session)
{
	size_t sum = fal_chan_stat(session->chan).held;
	if (session->crowd == NULL)
		return sum;
	sum = 0;
	for (const struct ps_session *m = session->crowd->first; m != NULL; m = m->mate)
		sum += fal_chan_stat(m->chan).held;
	return sum;
}

bool
ps_too_much(const struct ps_session *session)
{
	return fal_chan_stat(session->chan).held >= least && queued(session) > most;
}

bool
ps_has_room(struct ps_server *s, const struct ps_session *session)
{
	if (fal_chan_stat(session->chan).held >= session_max)
		return false;
	if (queued(session) < key_max)
		return true;
	s->crowded = true;
	return false;
}

/* ---- data --- */

/* Sends the chunk; false: not yet. */
static bool
send_chunk(struct ps_server *s, struct ps_session *session, const struct ps_ask *a)
{
	const struct fal_files *j = s->opt->job;
	const struct fal_part *part = a->test ? &j->manifest.test : &j->manifest.train;
	const size_t n = fal_chunk_bytes(part, a->chunk);
	if (session->had + n > fal_files_data(j) &&
	    !ps_account_again(ps_account_of(s, session->chan), n))
		return false;
	session->had += n;
	const struct fal_buf *packed;
	int err = ps_cache_get(&s->cache, part, a->test ? &j->test : &j->train, a->test,
			       a->chunk, &packed);
	struct fal_rd r = { 0 };
	if (err == FAL_OK)
		r = fal_rd_init(packed->p, packed->n);
	while (err == FAL_OK && r.n > 0) {
		const size_t bytes = fal_get_u32(&r);
		struct fal_buf msg = { .n = bytes };
		msg.p = (uint8_t *)(uintptr_t)fal_get_bytes(&r, bytes); /* only read */
		err = fal_chan_send(session->chan, &msg, FAL_SEND_ZIPPED);
	}
	if (err < 0)
		fal_chan_close(session->chan);
	return true;
}

const char *
ps_chunk_get(struct ps_server *s, struct ps_session *session, const struct fal_msg *get)
{
	const struct fal_files *j = s->opt->job;
	const bool test = get->chunk_get.test != 0;
	const struct fal_part *part = test ? &j->manifest.test : &j->manifest.train;
	if (!fal_coord_greeted(s->coord, session->id))
		return "CHUNK_GET before HELLO";
	if (get->chunk_get.chunk >= part->chunks)
		return "asks for a chunk that is not there";
	if (session->asks == PS_ASKS_MAX)
		return "asks for too many chunks at once";
	session->ask[session->asks++] =
		(struct ps_ask){ .test = test, .chunk = get->chunk_get.chunk };
	ps_more(s, session);
	return NULL;
}

/* ---- texts --- */

void
ps_send_text(struct ps_session *session, enum fal_text which, const struct fal_buf *text)
{
	struct fal_msg m = { .type = FAL_MSG_TEXT };
	for (size_t at = 0; at < text->n; at += PS_PIECE) {
		size_t n = text->n - at < PS_PIECE ? text->n - at : PS_PIECE;
		m.text.which = (uint8_t)which;
		m.text.offset = (uint32_t)at;
		m.text.bytes = (struct fal_tail){ text->p + at, n };
		ps_say(session->chan, &m, FAL_SEND_PACKED);
	}
}

/* ---- all of it --- */

void
ps_more(struct ps_server *s, struct ps_session *session)
{
	if (session->texts_due && ps_has_room(s, session)) {
		session->texts_due = false;
		ps_send_text(session, FAL_TEXT_JOB, &s->opt->job->job_text);
		ps_send_text(session, FAL_TEXT_MODEL, &s->opt->job->model_text);
		ps_send_text(session, FAL_TEXT_MANIFEST, &s->opt->job->manifest_bytes);
	}
	if (session->history_due && ps_has_room(s, session)) {
		session->history_due = false;
		ps_follow(s, session);
	}
	while (session->asks > 0 && ps_has_room(s, session) &&
	       send_chunk(s, session, &session->ask[0]))
		memmove(session->ask, session->ask + 1,
			--session->asks * sizeof(session->ask[0]));
}

void
ps_more_all(struct ps_server *s)
{
	s->crowded = false;
	for (size_t i = 0; i < s->sessions.n; i++)
		ps_more(s, s->sessions.v[i]);
}
