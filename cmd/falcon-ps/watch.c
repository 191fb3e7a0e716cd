/* Those who look on: followers of the trace, and the log of who was refused and of what
 * the sizes cost. */
#include "server.h"

#include "base/text.h"
#include "cli/cli.h"
#include "trace/writer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
	const struct ps_line *l = ps_record_add(s->opt->record, line, n);
	for (size_t i = 0; i < s->sessions.n; i++) {
		if (!s->sessions.v[i]->follows)
			continue;
		if (ps_too_much(s->sessions.v[i]))
			fal_chan_close(s->sessions.v[i]->chan);
		else
			send_lines(s->sessions.v[i], (uint8_t *)l->text, l->n);
	}
}

static void
tell_offender(struct ps_server *s, struct ps_offender *o, bool over)
{
	const double now = ps_now();
	if (o->n == 0 || (o->told != 0 && now - o->told < FAL_REFUSALS_S && !over))
		return;
	if (o->n == 1)
		fal_cli_err(PROG, "%s: refused: %s", o->key, o->why);
	else
		fal_cli_err(PROG, "%s: refused %llu times, the last time: %s", o->key,
			    (unsigned long long)o->n, o->why);
	if (s->coord != NULL && !s->saved) /* else the trace is over */
		fal_coord_refused(s->coord, now, o->key, o->why, o->n);
	o->n = 0;
	o->told = now;
}

/* The place of this key, or of that which was told of longest ago. */
static struct ps_offender *
find_offender(struct ps_server *s, const char *key)
{
	struct ps_offender *oldest = s->offender;
	for (struct ps_offender *o = oldest; o < s->offender + PS_OFFENDERS; o++) {
		if (strcmp(o->key, key) == 0)
			return o;
		if (o->told < oldest->told)
			oldest = o;
	}
	tell_offender(s, oldest, true);
	*oldest = (struct ps_offender){ 0 };
	snprintf(oldest->key, sizeof(oldest->key), "%s", key);
	return oldest;
}

void
ps_log_refused(struct ps_server *s, const char *key, const char *why)
{
	struct ps_offender *o = find_offender(s, key);
	snprintf(o->why, sizeof(o->why), "%s", why);
	o->n++;
	tell_offender(s, o, false);
}

void
ps_log_stranger(struct ps_server *s, const char *source, const char *why)
{
	fal_refusals_add(&s->strangers, source, why);
	ps_tell_refusals(s, false);
}

void
ps_tell_refusals(struct ps_server *s, bool over)
{
	struct fal_diag line;
	if (fal_refusals_due(&s->strangers, ps_now(), over, &line))
		fal_cli_err(PROG, "%s", line.text);
	for (size_t i = 0; i < PS_OFFENDERS; i++)
		tell_offender(s, &s->offender[i], over);
}

void
ps_tell_sizes(struct ps_server *s, uint32_t workers)
{
	const uint32_t tasks = fal_files_tasks(s->opt->job);
	const uint32_t task = fal_files_full(s->opt->job);
	struct fal_coord_sizes sizes;
	char small[64] = "";
	if (workers == 0 || workers < 2 * s->sized ||
	    fal_coord_sizes(s->coord, &sizes) < 0 || sizes.lanes == 0)
		return;
	s->sized = workers;
	if (!isnan(sizes.small))
		snprintf(small, sizeof(small), ", %.1f %% as they are small",
			 100 * sizes.small);
	fal_cli_err(
		PROG,
		"%s: %u lane%s of %u worker%s, %u task%s of %u sample%s a clock: %.1f "
		"%% is lost as tasks are whole%s",
		s->opt->job->job.name, sizes.lanes, fal_text_s(sizes.lanes),
		sizes.workers, fal_text_s(sizes.workers), tasks, fal_text_s(tasks), task,
		fal_text_s(task), 100 * sizes.whole, small);
}

void
ps_history(struct ps_server *s, struct fal_buf *history)
{
	struct fal_buf out = { 0 };
	ps_record_history(s->opt->record, history);
	/* What time it is: where nothing moves, lines do not tell. */
	fal_trace_put(&out, fal_coord_seconds(s->coord, ps_now()), FAL_EV_NOW,
		      &(struct fal_ev_now){ s->opt->record->chain.link });
	fal_put_bytes(history, out.p, out.n);
	fal_put_u8(history, '\n');
	fal_buf_free(&out);
}

void
ps_follow(struct ps_server *s, struct ps_session *session)
{
	struct fal_buf history = { 0 };
	ps_history(s, &history);
	send_lines(session, history.p, history.n);
	session->follows = true;
	if (!session->live || s->saved)
		ps_bid_farewell(session);
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
