/* Dispatch: channels become sessions, and each message goes to the file that handles it,
 * if the session's role may send it. */
#include "server.h"

#include "base/mem.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- workers' messages --- */

/* Charges the key's account.  If the account is used up, ends the session with LATER,
 * and returns true. */
static bool
end_if_too_costly(struct ps_session *session, double cost)
{
	if (ps_account_charge(ps_session_account(session), cost))
		return false;
	ps_end_session(session, PS_END_LATER,
		       "too many sessions of its key came and went");
	return true;
}

static void
on_chunk_get(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	const bool is_test = m->chunk_get.test != 0;
	const struct fal_part *part =
		is_test ? &s->job->manifest.test : &s->job->manifest.train;
	const char *why = !fal_coord_session_is_present(s->coord, session->id)
				  ? "CHUNK_GET before HELLO"
			  : m->chunk_get.chunk >= part->chunks
				  ? "asks for a chunk that is not there"
			  : session->n_requests == PS_REQUESTS_MAX
				  ? "asks for too many chunks at once"
				  : NULL;
	if (why != NULL) {
		ps_end_session(session, PS_END_REFUSED, why);
		return;
	}
	session->request[session->n_requests++] =
		(struct ps_chunk_request){ is_test, m->chunk_get.chunk };
	ps_send_pending(session);
}

static void
on_worker_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	struct fal_diag why = { "" }, need;
	struct fal_chan_stat stat = fal_chan_stat(session->chan);
	fal_coord_set_traffic(s->coord, session->id, stat.tx, stat.rx);
	if (m->type == FAL_MSG_CHUNK_GET) {
		on_chunk_get(s, session, m);
		return;
	}
	if (m->type == FAL_MSG_HELLO && end_if_too_costly(session, 1))
		return;
	if (m->type == FAL_MSG_HELLO && ps_check_memory(s, NULL, 1, 0, &need) < 0) {
		fal_diag_set(&why, 0, "with one worker more the coordinator %s",
			     need.text);
		ps_end_session(session, PS_END_LATER, why.text);
		return;
	}
	/* Each CAPACITY is a line of the trace. */
	if (m->type == FAL_MSG_CAPACITY && end_if_too_costly(session, PS_OBSERVER_COST))
		return;
	if (m->type == FAL_MSG_HELLO && m->hello.group != 0 && s->upstream != NULL) {
		ps_end_session(session, PS_END_REFUSED,
			       "this is a group server itself: groups have one level");
		return;
	}
	if ((m->type == FAL_MSG_CLAIM && m->claim.nonfinite == 0) ||
	    m->type == FAL_MSG_PUSH || m->type == FAL_MSG_EVALUATED)
		ps_status_note_work(s, session);
	int err = fal_coord_msg(s->coord, ps_now(), session->id, m, &why);
	if (err == FAL_ENOMEM)
		ps_fail(s, err, "scheduler");
	else if (err < 0)
		ps_end_session(session, PS_END_REFUSED,
			       why.text[0] != '\0' ? why.text : fal_strerror(err));
	if (err == FAL_OK && m->type == FAL_MSG_HELLO) {
		if (m->hello.group == 0)
			s->workers_are_local &= fal_chan_is_local(session->chan);
		ps_pool_admit_worker(s, session);
	}
	ps_send_pending(session);
	s->events.after_event(s);
}

/* ---- messages of other roles --- */

/* The history of the trace is long: an observer gets the history only once. */
static void
on_observer_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	(void)s;
	if (session->follow.was_requested) {
		ps_end_session(session, PS_END_REFUSED, "a second FOLLOW");
		return;
	}
	if (end_if_too_costly(session, PS_OBSERVER_COST))
		return;
	session->is_client = true;
	session->follow = (struct ps_follow){ .was_requested = true,
					      .history_due = true,
					      .is_live = m->follow.live != 0 };
	ps_send_pending(session);
}

static void
on_controller_msg(struct ps_server *s, struct ps_session *session,
		  const struct fal_msg *m)
{
	session->is_client = true;
	ps_controllers_handle_msg(s, session, m);
	s->events.after_event(s);
}

static void
on_shard_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	struct fal_diag why = { "" };
	if (m->type == FAL_MSG_JOIN && ps_pool_exceeds_restarts(session))
		ps_end_session(session, PS_END_LATER,
			       "the job began again too often as its shards were lost");
	else if (ps_pool_handle_msg(s, session, m, &why) < 0)
		ps_end_session(session, PS_END_REFUSED, why.text);
	s->events.after_event(s);
}

/* ---- HELLOs that come before the coordinator is there --- */

/* Seconds that a HELLO is held while the job waits for shards: three quarters of the
 * deadline.  Then the worker gets LATER, as a worker without an answer would soon take
 * the coordinator for dead. */
#define HELD_S (0.75e-3 * FAL_CHAN_DEADLINE_MS)

static const char no_shards[] = "the job waits for its shards";

void
ps_expire_held_hellos(struct ps_server *s)
{
	for (size_t i = 0; i < s->sessions.n && s->coord == NULL; i++) {
		struct ps_session *session = s->sessions.v[i];
		if (session->held_hello.n == 0 || ps_now() - session->held_since < HELD_S)
			continue;
		fal_buf_free(&session->held_hello);
		ps_end_session(session, PS_END_LATER, no_shards);
	}
}

/* ---- channels --- */

static void
dispatch_on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	/* The handlers by kind of sender: the first kind that may send a message handles
	 * the message. */
	static const struct {
		enum fal_sender from;
		enum fal_role role;
		void (*handle)(struct ps_server *s, struct ps_session *session,
			       const struct fal_msg *m);
	} kinds[] = {
		{ FAL_FROM_SHARD, FAL_ROLE_SHARD, on_shard_msg },
		{ FAL_FROM_WORKER, FAL_ROLE_WORK, on_worker_msg },
		{ FAL_FROM_OBSERVER, FAL_ROLE_OBSERVE, on_observer_msg },
		{ FAL_FROM_CONTROLLER, FAL_ROLE_CONTROL, on_controller_msg },
	};
	enum { SHARD, KINDS = sizeof(kinds) / sizeof(kinds[0]) };
	struct ps_session *session = arg;
	struct ps_server *s = session->server;
	const enum fal_role role = fal_chan_role(c);
	struct fal_msg m;
	struct fal_diag why;
	if (s->end.broken < 0) /* the coordinator has failed */
		return;
	if (fal_msg_get(p, n, &m) < 0) {
		ps_end_session(session, PS_END_REFUSED, "a message that cannot be read");
		return;
	}
	const bool is_pong = m.type == FAL_MSG_PONG;
	size_t i = 0;
	while (i < KINDS && !(fal_msg_may_send(m.type, kinds[i].from) &&
			      fal_role_permits(role, kinds[i].role)))
		i++;
	if (is_pong && session->member != NULL)
		i = SHARD;
	if (i == SHARD && s->upstream != NULL && !is_pong) {
		ps_end_session(session, PS_END_REFUSED,
			       "a group server has no shards of other processes");
	} else if (i != SHARD && s->coord == NULL &&
		   (m.type != FAL_MSG_HELLO || session->held_hello.n > 0)) {
		ps_end_session(session, PS_END_LATER, no_shards);
	} else if (i != SHARD && s->coord == NULL) {
		/* Holds the HELLO until all shards are there. */
		session->held_since = ps_now();
		fal_put_bytes(&session->held_hello, p, n);
		if (session->held_hello.err < 0)
			ps_end_session(session, PS_END_LATER, "out of memory");
	} else if (i < KINDS) {
		kinds[i].handle(s, session, &m);
	} else {
		fal_diag_set(&why, 0, "a key of role %s may not send %s",
			     fal_role_name(role), fal_msg_name(m.type));
		ps_end_session(session, PS_END_REFUSED, why.text);
	}
}

static void
dispatch_on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct ps_session *session = arg;
	struct ps_server *s = session->server;
	(void)c;
	(void)err;
	ps_broadcast_note_drained(&s->broadcast, &session->reader);
	ps_log_session_ends(s);
	ps_tell_session_gone(session, reason);
	ps_controllers_remove_session(s, session);
	ps_pool_remove_session(session, reason);
	if (session->has_worked && ps_now() - session->ready_at >= PS_ARRIVAL_S)
		ps_account_refund(ps_session_account(session));
	ps_remove_session(session);
	if (s->sessions.has_waiting)
		ps_send_all_pending(s);
	s->events.after_event(s);
}

static void
dispatch_on_drain(void *arg, struct fal_chan *c)
{
	struct ps_session *session = arg;
	struct ps_server *s = session->server;
	(void)c;
	ps_broadcast_note_drained(&s->broadcast, &session->reader);
	if (!s->end.is_stopping && !s->end.is_saved && s->coord != NULL)
		ps_publish_versions(s);
	ps_send_pending(session);
	ps_controllers_send_export(session);
	ps_pool_send_images(session);
	if (s->sessions.has_waiting)
		ps_send_all_pending(s);
}

/* Tells the coordinator the key of a worker's session, and the key's line in the
 * keyring. */
static void
introduce_session(const struct ps_session *session)
{
	struct ps_server *s = session->server;
	const struct fal_chan *c = session->chan;
	struct fal_coord_session worker = {
		.key = fal_chan_name(c),
		.fingerprint = fal_chan_fingerprint(c),
		.place = FAL_KEYRING_LINES, /* if the keyring was replaced just now */
		.rtt = fal_chan_rtt(c)
	};
	if (s->end.broken < 0 || s->coord == NULL ||
	    !fal_role_permits(fal_chan_role(c), FAL_ROLE_WORK))
		return;
	size_t n;
	const struct fal_key *key = fal_keyring_keys(s->run->keys, &n);
	char fingerprint[FAL_KEY_FINGERPRINT + 1];
	for (size_t i = 0; i < n; i++) {
		if (strcmp(key[i].name, worker.key) != 0)
			continue;
		fal_key_print_fingerprint(&key[i], fingerprint);
		if (strcmp(fingerprint, worker.fingerprint) == 0)
			worker.place = key[i].line;
	}
	fal_coord_session_open(s->coord, session->id, &worker);
}

void
ps_on_accept(void *arg, struct fal_chan *c, const char *name, enum fal_role role)
{
	struct ps_server *s = arg;
	(void)name;
	(void)role;
	struct ps_session *session = fal_xcalloc(1, sizeof(*session));
	struct fal_chan_ops ops = { .arg = session,
				    .on_msg = dispatch_on_msg,
				    .on_drain = dispatch_on_drain,
				    .on_close = dispatch_on_close };
	FAL_XGROW(s->sessions.v, s->sessions.cap, s->sessions.n + 1);
	session->id = ++s->sessions.last_id;
	s->sessions.v[s->sessions.n++] = session;
	session->server = s;
	session->chan = c;
	ps_reader_attach(&session->reader, c);
	fal_chan_set_ops(c, &ops);
	fal_chan_compress(c, s->run->compress);
	if (!ps_end_if_full(session))
		introduce_session(session);
}

void
ps_on_key_removed(void *arg, struct fal_chan *c, const char *why)
{
	struct ps_server *s = arg;
	for (size_t i = 0; i < s->sessions.n; i++)
		if (s->sessions.v[i]->chan == c)
			ps_end_session(s->sessions.v[i], PS_END_KEY, why);
	s->events.after_event(s);
}

void
ps_introduce_sessions(struct ps_server *s)
{
	for (size_t i = 0; i < s->sessions.n; i++)
		introduce_session(s->sessions.v[i]);
	for (size_t i = 0; i < s->sessions.n && !s->end.is_stopping; i++) {
		struct ps_session *session = s->sessions.v[i];
		struct fal_buf hello = session->held_hello;
		session->held_hello = (struct fal_buf){ 0 };
		if (hello.n > 0)
			dispatch_on_msg(session, session->chan, hello.p, hello.n);
		fal_buf_free(&hello);
	}
}
