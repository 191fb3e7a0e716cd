/* Those who are served: their sessions, what they say and what the coordinator sends
 * them. */
#include "server.h"

#include "base/text.h"

#include <string.h>

/* --- what the coordinator wants --- */

void
ps_send(void *arg, uint32_t peer, const struct fal_buf *msg)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_session_find(&s->sessions, peer);
	if (session != NULL && (ps_too_much(session) ||
				fal_chan_send(session->chan, msg, FAL_SEND_CONTROL) < 0))
		fal_chan_close(session->chan); /* it does not keep up */
}

void
ps_publish_wanted(struct ps_server *s)
{
	const uint64_t began = uv_hrtime();
	s->wants.publisher.rule = s->control.last.rule;
	ps_fail(s, ps_wants_leave(&s->wants), "publishing");
	s->wants.served.service += uv_hrtime() - began;
}

void
ps_send_model(void *arg, uint32_t peer, const struct fal_coord_model *model)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_session_find(&s->sessions, peer);
	if (session == NULL)
		return;
	ps_wants_add(&s->wants, &session->reader, model);
	ps_fleet_publish(s, peer, model);
}

void
ps_close_peer(void *arg, uint32_t peer, const char *why)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_session_find(&s->sessions, peer);
	if (session == NULL)
		return;
	snprintf(session->refused, sizeof(session->refused), "%s", why);
	s->refused = true;
	fal_chan_close(session->chan);
}

/* Says why the coordinator ended it, if it did. */
static void
tell_refused(struct ps_server *s, struct ps_session *session)
{
	if (session->refused[0] != '\0')
		ps_log_refused(s, fal_chan_name(session->chan), session->refused);
	session->refused[0] = '\0';
}

void
ps_tell_refused(struct ps_server *s)
{
	for (size_t i = 0; s->refused && i < s->sessions.n; i++)
		tell_refused(s, s->sessions.v[i]);
	s->refused = false;
}

void
ps_tell_all(struct ps_server *s, enum fal_msg_type type, const char *why)
{
	struct fal_msg m = { .type = (uint16_t)type,
			     .incarnation = s->wants.publisher.incarnation };
	fal_text_plain(m.done.why, sizeof(m.done.why), why);
	for (size_t i = 0; i < s->sessions.n; i++) {
		const struct ps_session *of = s->sessions.v[i];
		if (!of->asks_only &&
		    fal_role_may(fal_chan_role(of->chan), FAL_ROLE_WORK))
			ps_say(of->chan, &m, FAL_SEND_CONTROL);
	}
}

/* --- sessions --- */

/* The coordinator learns of it, unless it has stopped in the midst of something. */
static void
tell_gone(struct ps_server *s, const struct ps_session *session, const char *why)
{
	if (s->broken == FAL_OK && s->coord != NULL)
		ps_fail(s, fal_coord_gone(s->coord, ps_now(), session->id, why),
			"scheduler");
}

/* Ends a session for cause; `key`: that its key is not good any more. */
static void
send_away(struct ps_server *s, struct ps_session *session, bool key, const char *why)
{
	struct fal_msg m = { .type = FAL_MSG_REFUSE, .refuse.key = key };
	struct fal_diag text;
	fal_diag_set(&text, 0, "%.250s", why);
	memcpy(m.refuse.why, text.text, sizeof(m.refuse.why) - 1);
	ps_say(session->chan, &m, FAL_SEND_CONTROL);
	ps_log_refused(s, fal_chan_name(session->chan), why);
	tell_gone(s, session, why);
	fal_chan_close(session->chan);
}

/* Ends a session that did what it may not; that it is of another build may be why. */
static void
refuse(struct ps_server *s, struct ps_session *session, const char *why)
{
	struct fal_diag both;
	fal_diag_set(&both, 0, "%s%s", why, fal_chan_skew(session->chan));
	send_away(s, session, false, both.text);
}

void
ps_unwelcome(void *arg, struct fal_chan *c, const char *why)
{
	struct ps_server *s = arg;
	for (size_t i = 0; i < s->sessions.n; i++)
		if (s->sessions.v[i]->chan == c)
			send_away(s, s->sessions.v[i], true, why);
	ps_after_event(s);
}

/* Whoever is to come back later tries with pauses that grow. */
static void
put_off(struct ps_server *s, struct ps_session *session, const char *why)
{
	struct fal_msg m = { .type = FAL_MSG_LATER,
			     .incarnation = s->wants.publisher.incarnation };
	snprintf(m.later.why, sizeof(m.later.why), "%s", why);
	ps_say(session->chan, &m, FAL_SEND_CONTROL);
	ps_log_refused(s, fal_chan_name(session->chan), why);
	fal_chan_close(session->chan);
}

/* Does the session's first message come too soon after those of many others of its key?
 */
static bool
is_crowd(struct ps_server *s, struct ps_session *session, double cost)
{
	if (ps_account_comes(ps_account_of(s, session->chan), cost))
		return false;
	put_off(s, session, "too many sessions of its key came and went");
	return true;
}

/* Is there too little memory for one worker more? */
static bool
is_beyond(struct ps_server *s, struct ps_session *session)
{
	const struct fal_rule *rule = &fal_coord_policy_now(s->coord)->rule;
	struct fal_diag need, why;
	if (ps_affords(s, rule, fal_coord_status(s->coord).workers + 1, 0, &need) ==
	    FAL_OK)
		return false;
	fal_diag_set(&why, 0, "with one worker more the coordinator %s", need.text);
	put_off(s, session, why.text);
	return true;
}

static void
work_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	struct fal_diag why = { "" };
	struct fal_chan_stat stat = fal_chan_stat(session->chan);
	fal_coord_traffic(s->coord, session->id, stat.tx, stat.rx);
	if (m->type == FAL_MSG_CHUNK_GET) {
		const char *odd = ps_chunk_get(s, session, m);
		if (odd != NULL)
			refuse(s, session, odd);
		return;
	}
	if (m->type == FAL_MSG_HELLO &&
	    (is_crowd(s, session, 1) || is_beyond(s, session)))
		return;
	/* Each one is a line of the trace. */
	if (m->type == FAL_MSG_CAPACITY && is_crowd(s, session, PS_LOOK))
		return;
	if (m->type == FAL_MSG_HELLO && m->hello.group != 0 && s->above != NULL) {
		refuse(s, session,
		       "this is a group server itself: groups have one level");
		return;
	}
	if ((m->type == FAL_MSG_CLAIM && m->claim.nonfinite == 0) ||
	    m->type == FAL_MSG_PUSH || m->type == FAL_MSG_EVALUATED)
		ps_moved(s, session);
	int err = fal_coord_msg(s->coord, ps_now(), session->id, m, &why);
	if (err == FAL_ENOMEM)
		ps_fail(s, err, "scheduler");
	else if (err < 0)
		refuse(s, session, why.text[0] != '\0' ? why.text : fal_strerror(err));
	if (err == FAL_OK && m->type == FAL_MSG_HELLO) {
		if (m->hello.group == 0)
			s->near &= fal_chan_is_local(session->chan);
		ps_fleet_admit(s, session);
	}
	ps_more(s, session);
	ps_after_event(s);
}

/* The history is long: it is to be had once. */
static void
follow_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	if (session->followed) {
		refuse(s, session, "a second FOLLOW");
		return;
	}
	if (is_crowd(s, session, PS_LOOK))
		return;
	session->asks_only = session->followed = true;
	session->history_due = true;
	session->live = m->follow.live != 0;
	ps_more(s, session);
}

static void
control_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	session->asks_only = true;
	ps_control_msg(s, session, m);
	ps_after_event(s);
}

static void
shard_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	struct fal_diag why = { "" };
	if (m->type == FAL_MSG_JOIN && ps_fleet_spent(s, session))
		put_off(s, session,
			"the job began again too often as its shards were lost");
	else if (ps_fleet_msg(s, session, m, &why) < 0)
		refuse(s, session, why.text);
	ps_after_event(s);
}

/* Seconds that a HELLO is kept while shards are waited for, before whoever said it is
 * sent away for later: it takes the coordinator for dead soon after. */
#define HELD_S (0.75e-3 * FAL_CHAN_DEADLINE_MS)

static const char no_shards[] = "the job waits for its shards";

/* Shards are waited for: workers, too, wait for them. */
static void
too_soon(struct ps_server *s, struct ps_session *session, const struct fal_msg *m,
	 const uint8_t *p, size_t n)
{
	if (m->type != FAL_MSG_HELLO || session->hello.n > 0) {
		put_off(s, session, no_shards);
		return;
	}
	session->held = ps_now();
	fal_put_bytes(&session->hello, p, n);
	if (session->hello.err < 0)
		put_off(s, session, "out of memory");
}

void
ps_put_off_held(struct ps_server *s)
{
	for (size_t i = 0; i < s->sessions.n && s->coord == NULL; i++) {
		struct ps_session *session = s->sessions.v[i];
		if (session->hello.n == 0 || ps_now() - session->held < HELD_S)
			continue;
		fal_buf_free(&session->hello);
		put_off(s, session, no_shards);
	}
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct ps_session *session = arg;
	struct ps_server *s = session->server;
	struct fal_msg m;
	if (s->broken < 0) /* nobody is there who would listen */
		return;
	int err = fal_msg_get(p, n, &m);
	if (err < 0) {
		refuse(s, session, "a message that cannot be read");
		return;
	}
	enum fal_role role = fal_chan_role(c);
	const bool shard = session->member != NULL && m.type == FAL_MSG_PONG;
	if (s->above != NULL && fal_msg_may_send(m.type, FAL_FROM_SHARD) &&
	    fal_role_may(role, FAL_ROLE_SHARD) && m.type != FAL_MSG_PONG)
		refuse(s, session, "a group server has no shards of other processes");
	else if (shard || (fal_msg_may_send(m.type, FAL_FROM_SHARD) &&
			   fal_role_may(role, FAL_ROLE_SHARD)))
		shard_msg(s, session, &m);
	else if (s->coord == NULL)
		too_soon(s, session, &m, p, n);
	else if (fal_msg_may_send(m.type, FAL_FROM_WORKER) &&
		 fal_role_may(role, FAL_ROLE_WORK))
		work_msg(s, session, &m);
	else if (fal_msg_may_send(m.type, FAL_FROM_OBSERVER) &&
		 fal_role_may(role, FAL_ROLE_OBSERVE))
		follow_msg(s, session, &m);
	else if (fal_msg_may_send(m.type, FAL_FROM_CONTROLLER) &&
		 fal_role_may(role, FAL_ROLE_CONTROL))
		control_msg(s, session, &m);
	else {
		struct fal_diag why;
		fal_diag_set(&why, 0, "a key of role %s may not send %s",
			     fal_role_name(role), fal_msg_name(m.type));
		refuse(s, session, why.text);
	}
}

static void
on_chan_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct ps_session *session = arg;
	struct ps_server *s = session->server;
	(void)err;
	ps_wants_taken(&s->wants, &session->reader);
	tell_refused(s, session);
	tell_gone(s, session, reason);
	ps_control_gone(s, session);
	ps_fleet_gone(s, session, reason);
	if (session->brought && ps_now() - session->came >= PS_COMING_S)
		ps_account_forgive(ps_account_of(s, c));
	ps_session_remove(&s->sessions, session);
	if (s->crowded)
		ps_more_all(s);
	ps_after_event(s);
}

void
ps_lose(struct ps_session *session, const char *why)
{
	struct fal_chan *c = session->chan;
	on_chan_close(session, c, FAL_EIO, why);
	fal_chan_kill(c);
}

static void
on_drain(void *arg, struct fal_chan *c)
{
	struct ps_session *session = arg;
	(void)c;
	ps_wants_taken(&session->server->wants, &session->reader);
	if (!session->server->stopping && !session->server->saved &&
	    session->server->coord != NULL)
		ps_publish_wanted(session->server);
	ps_more(session->server, session);
	ps_control_more(arg);
	ps_fleet_more(session);
	if (session->server->crowded)
		ps_more_all(session->server);
}

/* The line of the key in the keyring. */
static unsigned
line_of(const struct fal_keyring *keyring, const struct fal_chan *c)
{
	size_t n;
	const struct fal_key *key = fal_keyring_keys(keyring, &n);
	char fingerprint[FAL_KEY_FINGERPRINT + 1];
	for (size_t i = 0; i < n; i++) {
		if (strcmp(key[i].name, fal_chan_name(c)) != 0)
			continue;
		fal_key_print(&key[i], fingerprint);
		if (strcmp(fingerprint, fal_chan_fingerprint(c)) == 0)
			return key[i].line;
	}
	return FAL_KEYRING_LINES; /* replaced just now */
}

/* The coordinator learns whose session it is. */
static void
introduce(struct ps_server *s, const struct ps_session *session)
{
	const struct fal_chan *c = session->chan;
	const struct fal_coord_who who = { .key = fal_chan_name(c),
					   .fingerprint = fal_chan_fingerprint(c),
					   .place = line_of(*s->opt->keys, c),
					   .rtt = fal_chan_rtt(c) };
	if (s->broken == FAL_OK && s->coord != NULL &&
	    fal_role_may(fal_chan_role(c), FAL_ROLE_WORK))
		ps_fail(s, fal_coord_open(s->coord, session->id, &who), "sessions");
}

/* Is there no room for this session?  It is sent away then: for later, where room may
 * come without its doing.  Those who look on leave half of the descriptors to workers. */
static bool
is_full(struct ps_server *s, struct ps_session *session)
{
	const bool works = fal_role_may(fal_chan_role(session->chan), FAL_ROLE_WORK);
	if (ps_session_crowd(&s->sessions, session, s->work_keys == 1) < 0)
		put_off(s, session, "out of memory");
	else if (session->crowd->n > PS_SESSIONS_MAX)
		send_away(s, session, false, "its key has too many sessions");
	else if (s->sessions.n > s->room ||
		 (!works && s->sessions.lookers_on > s->room / 2))
		put_off(s, session, "no descriptor is left for one more session");
	else
		return false;
	return true;
}

void
ps_accept(void *arg, struct fal_chan *c, const char *name, enum fal_role role)
{
	struct ps_server *s = arg;
	(void)name;
	(void)role;
	struct ps_session *session = ps_session_add(&s->sessions);
	if (session == NULL) {
		fal_chan_kill(c);
		return;
	}
	struct fal_chan_ops ops = { .arg = session,
				    .on_msg = on_msg,
				    .on_drain = on_drain,
				    .on_close = on_chan_close };
	session->server = s;
	session->chan = c;
	ps_reader_begin(&session->reader, c);
	fal_chan_adopt(c, &ops);
	fal_chan_compress(c, s->opt->compress);
	if (!is_full(s, session))
		introduce(s, session);
}

void
ps_accept_again(struct ps_server *s)
{
	for (size_t i = 0; i < s->sessions.n; i++)
		introduce(s, s->sessions.v[i]);
	for (size_t i = 0; i < s->sessions.n && !s->stopping; i++) {
		struct ps_session *session = s->sessions.v[i];
		struct fal_buf hello = session->hello;
		session->hello = (struct fal_buf){ 0 };
		if (hello.n > 0)
			on_msg(session, session->chan, hello.p, hello.n);
		fal_buf_free(&hello);
	}
}
