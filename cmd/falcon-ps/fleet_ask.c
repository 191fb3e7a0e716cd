/* Whether processes of shards live: each is asked, and whoever leaves that unanswered for
 * longer than it may is lost.
 *
 * A process whose stream is open and which does nothing would hold the clock until the
 * stream's own signs of life end it.  What it may take follows from what it took before,
 * as other deadlines do (design.md, D7): the median and six spreads, a second at least,
 * and ten times that. */
#include "fleet_priv.h"

#include "base/least.h"

enum { EVERY_MS = 1000 };

#define FLOOR_S 1.0
#define TIMES 10 /* as who is asked has in all */

static double
deadline(struct ps_asked *a)
{
	double most = 0;
	if (a->took.n > 0) {
		fal_recent_judge(&a->took);
		most = fal_max(a->took.most, 4 * a->took.mid);
	}
	return TIMES * fal_max(most, FLOOR_S);
}

static void
ask(struct ps_server *s, struct ps_member *m, double now)
{
	struct fal_msg msg = { .type = FAL_MSG_PING, .ping.stamp = ++m->asked.stamp };
	m->asked.at = now;
	m->asked.is = true;
	fleet_say(s, m, &msg, FAL_SEND_CONTROL);
}

/* Is something still to be sent to `m`, before a question is?  Till it has taken more of
 * that it owes as much as an answer. */
static bool
takes(struct ps_member *m, double now)
{
	struct ps_asked *a = &m->asked;
	const struct fal_chan_stat is = fal_chan_stat(m->session->chan);
	const uint64_t taken = is.tx - (is.held - is.queued);
	if (is.held > 0 && (a->at <= 0 || taken != a->taken))
		a->at = now;
	a->taken = taken;
	return is.held > 0;
}

/* Nothing is heard of `m`; true: it was lost, and is gone. */
static bool
judge(struct ps_member *m, double now)
{
	struct fal_diag why;
	const double most = deadline(&m->asked);
	if (now - m->asked.at <= most)
		return false;
	fal_diag_set(&why, FAL_EIO, "it does not answer for %.0f s", now - m->asked.at);
	ps_lose(m->session, why.text);
	return true;
}

static void
on_ask(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	struct ps_fleet *f = &s->fleet;
	const double now = ps_now(), since = now - f->asked;
	/* Who was stopped itself has not heard what was said meanwhile. */
	const bool late = since > 3 * EVERY_MS / 1e3;
	f->asked = now;
	for (size_t i = 0; i < f->n && !s->stopping && !s->saved; i++) {
		struct ps_member *m = f->v[i];
		if (!fleet_works(m))
			continue;
		const bool waits = takes(m, now);
		if (m->asked.at > 0 && late)
			m->asked.at = now;
		else if (m->asked.at > 0 && judge(m, now))
			return;
		else if (!waits && !m->asked.is)
			ask(s, m, now);
	}
}

void
fleet_heard(struct ps_member *m, const struct fal_msg *msg)
{
	struct ps_asked *a = &m->asked;
	if (msg->type == FAL_MSG_PONG && msg->pong.stamp == a->stamp && a->is)
		fal_recent_add(&a->took, ps_now() - a->at);
	a->at = 0;
	a->is = false;
}

void
fleet_ask_init(struct ps_server *s)
{
	struct ps_fleet *f = &s->fleet;
	uv_timer_init(s->loop, &f->ask);
	f->ask.data = s;
	f->asked = ps_now();
	uv_timer_start(&f->ask, on_ask, EVERY_MS, EVERY_MS);
	uv_unref((uv_handle_t *)&f->ask);
}
