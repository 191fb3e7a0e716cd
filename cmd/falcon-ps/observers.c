/* Observers: followers of the trace. */
#include "server.h"

#include "base/mem.h"
#include "trace/writer.h"

static void
send_lines(struct ps_session *session, const uint8_t *p, size_t n)
{
	struct fal_msg m = { .type = FAL_MSG_TRACE };
	while (n > 0) {
		size_t piece = n < PS_PIECE ? n : PS_PIECE;
		m.trace.lines = (struct fal_tail){ p, piece };
		ps_say(session->chan, &m, FAL_SEND_PACKED);
		p += piece;
		n -= piece;
	}
}

void
ps_trace(void *arg, const char *line, size_t n)
{
	struct ps_server *s = arg;
	const struct ps_line *l = ps_record_add(&s->run->record, line, n);
	for (size_t i = 0; i < s->sessions.n; i++) {
		if (!s->sessions.v[i]->follows)
			continue;
		if (ps_too_much(s->sessions.v[i]))
			fal_chan_close(s->sessions.v[i]->chan);
		else
			send_lines(s->sessions.v[i], (uint8_t *)l->text, l->n);
	}
}

void
ps_follow(struct ps_server *s, struct ps_session *session)
{
	struct ps_record *r = &s->run->record;
	struct fal_buf history = { 0 }, now = { 0 };
	ps_record_history(r, &history);
	/* The present time: without events the lines do not tell it. */
	fal_trace_put(&now, fal_coord_seconds(s->coord, ps_now()), FAL_EV_NOW,
		      &(struct fal_ev_now){ r->chain.link });
	fal_put_bytes(&history, now.p, now.n);
	fal_put_u8(&history, '\n');
	/* Sending copies the history. */
	session->follows = history.err == FAL_OK && fal_memory_left(2 * history.n);
	if (session->follows)
		send_lines(session, history.p, history.n);
	if (!session->live || s->saved || !session->follows)
		ps_bid_farewell(session);
	fal_buf_free(&now);
	fal_buf_free(&history);
}

void
ps_bid_farewell(struct ps_session *session)
{
	const struct fal_msg m = { .type = FAL_MSG_TRACE_END };
	if (session->follows)
		ps_say(session->chan, &m, FAL_SEND_BULK);
	session->follows = false;
	fal_chan_close(session->chan);
}
