/* Those who are served: their sessions, what they say and what the coordinator sends
 * them. */
#include "server.h"

#include "base/line.h"
#include "base/mem.h"
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

/* A shard's publication of the version for a session, or NULL: out of memory. */
static struct fal_shared *
publication(struct ps_server *s, const struct ps_session *session,
	    const struct fal_coord_model *m, uint32_t shard)
{
	struct ps_version *slot = &s->publisher.older;
	if (m->version >= m->newest)
		slot = &s->publisher.newest;
	else if (m->keep)
		slot = &s->publisher.kept;
	s->publisher.most = ps_published_most(&s->control.last.rule);
	const struct ps_params from = { .version = m->version,
					.shard = shard,
					.keep = m->keep };
	return ps_publish(&s->publisher, slot, &from, fal_chan_compressing(session->chan),
			  session->publication);
}

/* Will the worker, told of this version, not compute on that one any more?  One that it
 * is to keep for evaluation ends with the next such. */
static bool
is_old(const void *arg, const struct fal_shared *s)
{
	const struct fal_coord_model *told = arg;
	const uint64_t version = fal_shared_version(s);
	/* Of another line, or from before. */
	const bool older = fal_line_of(version) != fal_line_of(told->version) ||
			   version < told->version;
	bool named = version >= told->from;
	if (fal_shared_lasting(s) && !told->keep)
		return false;
	for (uint32_t i = 0; i < told->names && !named; i++)
		named = told->named[i] == version;
	return (older && told->oldest == told->version) || !named;
}

/* A shard's part of it: PUBLISHED, then MODEL.  Or why the session must end; where there
 * is nothing to publish, the job has failed, and that is not the session's fault. */
static int
send_part(struct ps_server *s, struct ps_session *session,
	  const struct fal_coord_model *model, uint32_t shard)
{
	struct fal_shared *shared = publication(s, session, model, shard);
	struct fal_msg m = { .type = FAL_MSG_PUBLISHED,
			     .incarnation = s->publisher.incarnation };
	struct fal_buf out = { 0 };
	if (shared == NULL) {
		ps_fail(s, FAL_ENOMEM, "publishing");
		return FAL_OK;
	}
	session->publication = fal_shared_publication(shared);
	m.published.version = model->version;
	m.published.order = model->order;
	m.published.shard = shard + 1;
	fal_rack_range(s->rack, shard, &m.published.first, &m.published.blocks);
	m.published.publication = session->publication;
	memcpy(m.published.key, fal_shared_key(shared), sizeof(m.published.key));
	int err = fal_msg_put(&out, &m);
	if (err == FAL_OK)
		err = fal_chan_send(session->chan, &out, FAL_SEND_CONTROL);
	if (err == FAL_OK)
		err = fal_chan_send_shared(session->chan, shared);
	fal_buf_free(&out);
	return err;
}

/* What is wanted, and there, leaves; versions up to `over` that are not there any more
 * nobody wants. */
static void
publish_wanted(struct ps_server *s, uint64_t over)
{
	struct fal_shard_part part;
	size_t kept = 0;
	for (size_t i = 0; i < s->wants; i++) {
		const struct ps_want w = s->want[i];
		struct ps_session *session = ps_session_find(&s->sessions, w.peer);
		const bool there =
			fal_rack_part(s->rack, w.shard, w.model.version, &part);
		if (session == NULL || (!there && w.model.version <= over))
			continue;
		if (!there)
			s->want[kept++] = w;
		else if (send_part(s, session, &w.model, w.shard) < 0)
			fal_chan_close(session->chan);
	}
	s->wants = kept;
}

void
ps_send_model(void *arg, uint32_t peer, const struct fal_coord_model *model)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_session_find(&s->sessions, peer);
	if (session == NULL)
		return;
	/* Whoever has fallen behind skips to the version it needs. */
	fal_chan_skip_shared(session->chan, is_old, model);
	const struct ps_want w = { peer, 0, *model };
	for (uint32_t i = 0; i < fal_rack_shards(s->rack); i++) {
		if (FAL_GROW(s->want, s->want_cap, s->wants + 1) < 0) {
			ps_fail(s, FAL_ENOMEM, "publishing");
			return;
		}
		s->want[s->wants] = w;
		s->want[s->wants].model.named = NULL;
		s->want[s->wants++].shard = i;
	}
	publish_wanted(s, 0);
}

void
ps_publish_wanted(struct ps_server *s)
{
	if (s->wants > 0)
		publish_wanted(s, fal_coord_status(s->coord).version);
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
			     .incarnation = s->publisher.incarnation };
	struct fal_buf out = { 0 };
	fal_text_plain(m.done.why, sizeof(m.done.why), why);
	if (fal_msg_put(&out, &m) < 0)
		return;
	for (size_t i = 0; i < s->sessions.n; i++) {
		const struct ps_session *of = s->sessions.v[i];
		if (!of->asks_only &&
		    fal_role_may(fal_chan_role(of->chan), FAL_ROLE_WORK))
			fal_chan_send(of->chan, &out, FAL_SEND_CONTROL);
	}
	fal_buf_free(&out);
}

/* --- sessions --- */

/* The coordinator learns of it, unless it has stopped in the midst of something. */
static void
gone(struct ps_server *s, const struct ps_session *session, const char *why)
{
	if (s->broken == FAL_OK)
		ps_fail(s, fal_coord_gone(s->coord, ps_now(), session->id, why),
			"scheduler");
}

/* Ends a session for cause; `key`: that its key is not good any more. */
static void
send_away(struct ps_server *s, struct ps_session *session, bool key, const char *why)
{
	struct fal_msg m = { .type = FAL_MSG_REFUSE, .refuse.key = key };
	struct fal_buf out = { 0 };
	struct fal_diag text;
	fal_diag_set(&text, 0, "%.250s", why);
	memcpy(m.refuse.why, text.text, sizeof(m.refuse.why) - 1);
	if (fal_msg_put(&out, &m) == FAL_OK)
		fal_chan_send(session->chan, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
	ps_log_refused(s, fal_chan_name(session->chan), why);
	gone(s, session, why);
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
			     .incarnation = s->publisher.incarnation };
	struct fal_buf out = { 0 };
	snprintf(m.later.why, sizeof(m.later.why), "%s", why);
	if (fal_msg_put(&out, &m) == FAL_OK)
		fal_chan_send(session->chan, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
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
	if ((m->type == FAL_MSG_CLAIM && m->claim.nonfinite == 0) ||
	    m->type == FAL_MSG_PUSH || m->type == FAL_MSG_EVALUATED)
		ps_moved(s, session);
	int err = fal_coord_msg(s->coord, ps_now(), session->id, m, &why);
	if (err == FAL_ENOMEM)
		ps_fail(s, err, "scheduler");
	else if (err < 0)
		refuse(s, session, why.text[0] != '\0' ? why.text : fal_strerror(err));
	else if (m->type == FAL_MSG_HELLO)
		session->texts_due = true;
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
	session->asks_only = session->followed = session->history_due = true;
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
	if (fal_msg_may_send(m.type, FAL_FROM_WORKER) &&
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
	tell_refused(s, session);
	gone(s, session, reason);
	ps_control_gone(s, session);
	if (session->brought && ps_now() - session->came >= PS_COMING_S)
		ps_account_forgive(ps_account_of(s, c));
	ps_session_remove(&s->sessions, session);
	if (s->crowded)
		ps_more_all(s);
	ps_after_event(s);
}

static void
on_drain(void *arg, struct fal_chan *c)
{
	struct ps_session *session = arg;
	(void)c;
	ps_more(session->server, session);
	ps_control_more(arg);
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
					   .place = line_of(*s->opt->keys, c) };
	if (s->broken == FAL_OK && fal_role_may(fal_chan_role(c), FAL_ROLE_WORK))
		ps_fail(s, fal_coord_open(s->coord, session->id, &who), "sessions");
}

/* Why there is no room for this session, or NULL.  Those who look on leave half of the
 * descriptors to workers. */
static const char *
no_room(struct ps_server *s, struct ps_session *session)
{
	const bool works = fal_role_may(fal_chan_role(session->chan), FAL_ROLE_WORK);
	if (ps_session_crowd(&s->sessions, session, s->one_key) < 0)
		return "out of memory";
	if (session->crowd->n > PS_SESSIONS_MAX)
		return "its key has too many sessions";
	if (s->sessions.n > s->room || (!works && s->sessions.lookers_on > s->room / 2))
		return "no descriptor is left for one more session";
	return NULL;
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
	fal_chan_adopt(c, &ops);
	fal_chan_compress(c, s->opt->compress);
	const char *full = no_room(s, session);
	if (full != NULL)
		send_away(s, session, false, full);
	else
		introduce(s, session);
}
