/* The data, chunk by chunk, to whoever has said HELLO: one chunk after the other, as the
 * channel takes them, so that a session holds no more than one and what was queued. */
#include "server.h"

#include <string.h>

static const size_t queue_max = (size_t)1 << 20; /* bytes; then chunks wait */

static int
get_chunk(const struct ps_job *j, const struct ps_ask *a, struct fal_buf *chunk)
{
	return fal_chunk_get(a->test ? &j->manifest.test : &j->manifest.train,
			     a->test ? &j->test : &j->train, a->chunk, chunk);
}

static void
send_chunk(struct ps_server *s, struct ps_session *session, const struct ps_ask *a)
{
	struct fal_buf chunk = { 0 }, out = { 0 };
	struct fal_msg m = { .type = FAL_MSG_CHUNK };
	int err = get_chunk(s->opt->job, a, &chunk);
	m.chunk.test = a->test;
	m.chunk.chunk = a->chunk;
	m.chunk.total = (uint32_t)chunk.n;
	for (size_t at = 0; err == FAL_OK && at < chunk.n; at += PS_PIECE) {
		size_t n = chunk.n - at < PS_PIECE ? chunk.n - at : PS_PIECE;
		m.chunk.offset = (uint32_t)at;
		m.chunk.bytes = (struct fal_tail){ chunk.p + at, n };
		fal_buf_clear(&out);
		err = fal_msg_put(&out, &m);
		if (err == FAL_OK)
			err = fal_chan_send(session->chan, &out, FAL_SEND_PACKED);
	}
	if (err < 0)
		fal_chan_close(session->chan);
	fal_buf_free(&chunk);
	fal_buf_free(&out);
}

void
ps_chunks_more(struct ps_server *s, struct ps_session *session)
{
	while (session->asks > 0 && fal_chan_stat(session->chan).queued < queue_max) {
		const struct ps_ask a = session->ask[0];
		memmove(session->ask, session->ask + 1,
			--session->asks * sizeof(session->ask[0]));
		send_chunk(s, session, &a);
	}
}

const char *
ps_chunk_get(struct ps_server *s, struct ps_session *session, const struct fal_msg *get)
{
	const struct ps_job *j = s->opt->job;
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
	ps_chunks_more(s, session);
	return NULL;
}

bool
ps_one_key(const struct fal_keyring *keyring)
{
	size_t n, workers = 0, any = 0;
	const struct fal_key *key = fal_keyring_keys(keyring, &n);
	for (size_t i = 0; i < n; i++) {
		workers += key[i].role == FAL_ROLE_WORK;
		any += key[i].role == FAL_ROLE_ALL;
	}
	return workers == 1 || (workers == 0 && any == 1);
}
