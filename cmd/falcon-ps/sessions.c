/* Sessions: their table, the costs and limits of their keys, the messages that they are
 * sent as they have room, and their end.  dispatch.c takes the messages that come. */
#include "server.h"

#include "base/mem.h"
#include "base/sorted.h"
#include "base/text.h"
#include "trace/writer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- accounts: token buckets by key --- */

static void
account_age(struct ps_account *a, double now)
{
	const double s = now - a->updated_at;
	a->arrivals = fmax(a->arrivals - s / PS_ARRIVAL_S, 0);
	a->reread = fmax(a->reread - s * PS_REREAD_PER_S, 0);
	a->updated_at = now;
}

/* The part of the account that is used up at `now`. */
static double
account_usage(const struct ps_account *v, double now)
{
	struct ps_account a = *v;
	account_age(&a, now);
	return a.arrivals / PS_ARRIVALS_MAX + a.reread / PS_REREAD_MAX;
}

struct ps_account *
ps_account_find(struct ps_account v[static PS_ACCOUNTS], const char *key,
		const char *source, double now)
{
	struct ps_account *a = NULL, *least = v;
	for (int i = 0; i < PS_ACCOUNTS && a == NULL; i++)
		if (strcmp(v[i].key, key) == 0 && strcmp(v[i].source, source) == 0)
			a = &v[i];
	for (int i = 1; i < PS_ACCOUNTS && a == NULL; i++)
		if (account_usage(&v[i], now) < account_usage(least, now))
			least = &v[i];
	if (a == NULL) {
		a = least;
		snprintf(a->key, sizeof(a->key), "%s", key);
		snprintf(a->source, sizeof(a->source), "%s", source);
	}
	account_age(a, now);
	return a;
}

bool
ps_account_affords(const struct ps_account *a, double cost)
{
	return a->arrivals <= PS_ARRIVALS_MAX - cost;
}

bool
ps_account_charge(struct ps_account *a, double cost)
{
	if (!ps_account_affords(a, cost))
		return false;
	a->arrivals += cost;
	return true;
}

void
ps_account_refund(struct ps_account *a)
{
	a->arrivals = fmax(a->arrivals - 1, 0);
}

bool
ps_account_charge_reread(struct ps_account *a, size_t n)
{
	if (a->reread + (double)n > PS_REREAD_MAX)
		return false;
	a->reread += (double)n;
	return true;
}

/* ---- the table of sessions --- */

/* The place of the first session whose id is at least `id`. */
static size_t
sessions_search(const struct ps_sessions *s, uint32_t id)
{
	return fal_sorted_place_of(s->v, s->n, 0, offsetof(struct ps_session, id),
				   sizeof(id), id);
}

struct ps_session *
ps_find_session(const struct ps_sessions *s, uint32_t id)
{
	size_t at = sessions_search(s, id);
	return at < s->n && s->v[at]->id == id ? s->v[at] : NULL;
}

struct ps_account *
ps_session_account(struct ps_session *session)
{
	struct ps_sessions *all = &session->server->sessions;
	const struct fal_chan *c = session->chan;
	const char *source = all->worker_keys == 1 ? fal_chan_source(c) : "";
	return ps_account_find(all->account, fal_chan_fingerprint(c), source, ps_now());
}

/* Do two sessions share limits: do both have the same key, and, if one key is for all
 * workers, the same source? */
static bool
sessions_share_limits(const struct ps_session *a, const struct ps_session *b)
{
	return strcmp(fal_chan_fingerprint(a->chan), fal_chan_fingerprint(b->chan)) ==
		       0 &&
	       (a->server->sessions.worker_keys != 1 ||
		strcmp(fal_chan_source(a->chan), fal_chan_source(b->chan)) == 0);
}

void
ps_remove_session(struct ps_session *session)
{
	struct ps_sessions *s = &session->server->sessions;
	size_t at = sessions_search(s, session->id);
	assert(at < s->n && s->v[at] == session);
	memmove(s->v + at, s->v + at + 1, (--s->n - at) * sizeof(struct ps_session *));
	fal_buf_free(&session->export.file);
	fal_buf_free(&session->held_hello);
	ps_reader_detach(&session->server->broadcast, &session->reader);
	free(session);
}

void
ps_count_worker_keys(struct ps_server *s)
{
	/* Seconds in which a worker may join, before failed trainers end the job. */
	const double trainer_s = 300;
	size_t n, workers = 0, all_roles = 0;
	const struct fal_key *key = fal_keyring_keys(s->run->keys, &n);
	for (size_t i = 0; i < n; i++) {
		workers += key[i].role == FAL_ROLE_WORK;
		all_roles += key[i].role == FAL_ROLE_ALL;
	}
	s->sessions.worker_keys = (uint32_t)(workers > 0 ? workers : all_roles);
	if (s->coord != NULL)
		fal_coord_set_trainer_wait(s->coord, trainer_s, s->sessions.worker_keys);
}

/* ---- long answers: the job's texts, the history of the trace, the data chunk by chunk.
 * An answer is queued piece by piece as the channel takes pieces, and waits while much is
 * queued for the session, or for all sessions of its key. Chunks that are sent a second
 * time also wait for the key's account --- */

/* The bytes queued for a session, and for all sessions of a key, above which answers
 * wait. */
static const size_t session_room = (size_t)1 << 20, key_room = (size_t)16 << 20;
/* A session that holds session_load bytes or more, of a key with more than key_load
 * bytes, is overloaded. */
static const size_t session_load = (size_t)256 << 10, key_load = (size_t)64 << 20;

/* Bytes that are queued for all sessions of its key. */
static size_t
session_key_bytes(const struct ps_session *session)
{
	const struct ps_sessions *all = &session->server->sessions;
	size_t sum = 0;
	for (size_t i = 0; i < all->n; i++)
		if (sessions_share_limits(all->v[i], session))
			sum += fal_chan_stat(all->v[i]->chan).held;
	return sum;
}

/* Are too many bytes queued for this session and for all others of its key? */
static bool
session_is_overloaded(const struct ps_session *session)
{
	return fal_chan_stat(session->chan).held >= session_load &&
	       session_key_bytes(session) > key_load;
}

/* May more be queued for the session now?  If not, ps_send_pending tries again. */
static bool
session_has_room(struct ps_session *session)
{
	if (fal_chan_stat(session->chan).held >= session_room)
		return false;
	if (session_key_bytes(session) < key_room)
		return true;
	session->server->sessions.has_waiting = true;
	return false;
}

/* Sends a chunk.  Returns false if the key's account does not allow that yet. */
static bool
session_send_chunk(struct ps_session *session, const struct ps_chunk_request *a)
{
	struct ps_server *s = session->server;
	const struct fal_files *j = s->job;
	const struct fal_part *part = a->is_test ? &j->manifest.test : &j->manifest.train;
	const size_t n = fal_chunk_bytes(part, a->chunk);
	if (session->chunk_bytes + n > fal_files_data_bytes(j) &&
	    !ps_account_charge_reread(ps_session_account(session), n))
		return false;
	session->chunk_bytes += n;
	const struct fal_buf *packed;
	int err = ps_cache_get(&s->cache, part, a->is_test ? &j->test : &j->train,
			       a->is_test, a->chunk, &packed);
	struct fal_rd r = { 0 };
	if (err == FAL_OK)
		r = fal_rd_init(packed->p, packed->n);
	while (err == FAL_OK && r.n > 0) {
		const size_t bytes = fal_get_u32(&r);
		struct fal_buf msg = { .n = bytes };
		msg.p = (uint8_t *)(uintptr_t)fal_get_bytes(&r, bytes); /* only read */
		err = fal_chan_send(session->chan, &msg, FAL_SEND_PRECOMPRESSED);
	}
	if (err < 0)
		fal_chan_close(session->chan);
	return true;
}

void
ps_send_text(struct ps_session *session, enum fal_text which, const struct fal_buf *text)
{
	struct fal_msg m = { .type = FAL_MSG_TEXT };
	for (size_t at = 0; at < text->n; at += PS_PIECE) {
		size_t n = text->n - at < PS_PIECE ? text->n - at : PS_PIECE;
		m.text.which = (uint8_t)which;
		m.text.offset = (uint32_t)at;
		m.text.bytes = (struct fal_tail){ text->p + at, n };
		ps_send_or_close(session->chan, &m, FAL_SEND_COMPRESSED);
	}
}

static void
session_send_lines(struct ps_session *session, const uint8_t *p, size_t n)
{
	struct fal_msg m = { .type = FAL_MSG_TRACE };
	for (size_t at = 0; at < n; at += PS_PIECE) {
		m.trace.lines = (struct fal_tail){ p + at, n - at < PS_PIECE ? n - at
									     : PS_PIECE };
		ps_send_or_close(session->chan, &m, FAL_SEND_COMPRESSED);
	}
}

void
ps_send_pending(struct ps_session *session)
{
	struct ps_server *s = session->server;
	const struct fal_files *j = s->job;
	if (session->texts_due && session_has_room(session)) {
		session->texts_due = false;
		ps_send_text(session, FAL_TEXT_JOB, &j->job_text);
		ps_send_text(session, FAL_TEXT_MODEL, &j->model_text);
		ps_send_text(session, FAL_TEXT_MANIFEST, &j->manifest_bytes);
	}
	/* An observer gets the lines so far and the present time.  An observer that wants
	 * future lines gets these lines from now on; another observer's session ends. */
	if (session->follow.history_due && session_has_room(session)) {
		const struct ps_trace_file *f = &s->run->trace;
		struct fal_buf history = { 0 }, now = { 0 };
		session->follow.history_due = false;
		ps_trace_file_history(f, &history);
		/* Without events no line tells the present time. */
		fal_trace_put(&now, fal_coord_trace_time(s->coord, ps_now()), FAL_EV_NOW,
			      &(struct fal_ev_now){ f->chain.link });
		fal_put_bytes(&history, now.p, now.n);
		fal_put_u8(&history, '\n');
		/* Sending copies the history. */
		session->follow.is_active =
			history.err == FAL_OK && fal_memory_is_free(2 * history.n);
		if (session->follow.is_active)
			session_send_lines(session, history.p, history.n);
		if (!session->follow.is_live || s->end.is_saved ||
		    !session->follow.is_active)
			ps_finish_session(session);
		fal_buf_free(&now);
		fal_buf_free(&history);
	}
	while (session->n_requests > 0 && session_has_room(session) &&
	       session_send_chunk(session, &session->request[0]))
		memmove(session->request, session->request + 1,
			--session->n_requests * sizeof(session->request[0]));
}

void
ps_send_all_pending(struct ps_server *s)
{
	s->sessions.has_waiting = false;
	for (size_t i = 0; i < s->sessions.n; i++)
		ps_send_pending(s->sessions.v[i]);
}

/* ---- messages to sessions --- */

void
ps_send_to_peer(void *arg, uint32_t peer, const struct fal_buf *msg)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_find_session(&s->sessions, peer);
	if (session != NULL && (session_is_overloaded(session) ||
				fal_chan_send(session->chan, msg, FAL_SEND_CONTROL) < 0))
		fal_chan_close(session->chan); /* it does not keep up */
}

void
ps_publish_versions(struct ps_server *s)
{
	const uint64_t began = uv_hrtime();
	s->broadcast.publisher.rule = s->policy.last.rule;
	ps_fail(s, ps_broadcast_send(&s->broadcast), "publishing");
	s->broadcast.stats.service += uv_hrtime() - began;
}

void
ps_send_to_workers(struct ps_server *s, enum fal_msg_type type, const char *why)
{
	struct fal_msg m = { .type = (uint16_t)type,
			     .incarnation = s->broadcast.publisher.incarnation };
	fal_text_plain(m.done.why, sizeof(m.done.why), why);
	for (size_t i = 0; i < s->sessions.n; i++) {
		const struct ps_session *to = s->sessions.v[i];
		if (!to->is_client &&
		    fal_role_permits(fal_chan_role(to->chan), FAL_ROLE_WORK))
			ps_send_or_close(to->chan, &m, FAL_SEND_CONTROL);
	}
}

void
ps_on_trace_line(void *arg, const char *line, size_t n)
{
	struct ps_server *s = arg;
	const struct ps_trace_line *l = ps_trace_file_add(&s->run->trace, line, n);
	for (size_t i = 0; i < s->sessions.n; i++) {
		struct ps_session *to = s->sessions.v[i];
		if (!to->follow.is_active)
			continue;
		if (session_is_overloaded(to))
			fal_chan_close(to->chan);
		else
			session_send_lines(to, (const uint8_t *)l->text, l->n);
	}
}

void
ps_reply(struct ps_session *session, int status, bool more, const void *p, size_t n)
{
	const struct fal_msg m = {
		.type = FAL_MSG_REPLY,
		.reply = { .status = (uint8_t)status, .more = more, .bytes = { p, n } }
	};
	ps_send_or_close(session->chan, &m, FAL_SEND_COMPRESSED);
}

void
ps_reply_text(struct ps_session *session, int status, const char *text)
{
	ps_reply(session, status, false, text, strlen(text));
}

void
ps_reply_wait(struct ps_session *session, const char *what)
{
	ps_reply(session, FAL_EXIT_DONE, true, what, strlen(what));
}

void
ps_reply_result(struct ps_session *session, const char *why, const char *result)
{
	ps_reply_text(session, why != NULL ? FAL_EXIT_NO : FAL_EXIT_DONE,
		      why != NULL ? why : result);
}

/* ---- log lines about refusals --- */

static void
refused_key_log(struct ps_server *s, struct ps_refused_key *k, bool is_over)
{
	const double now = ps_now();
	uint64_t polls;
	if (k->n == 0 || (!fal_ratelimit(&k->limit, now, &polls) && !is_over))
		return;
	if (k->n == 1)
		fal_cli_err(PROG, "%s: refused: %s", k->name, k->why);
	else
		fal_cli_err(PROG, "%s: refused %llu times, the last time: %s", k->name,
			    (unsigned long long)k->n, k->why);
	if (s->coord != NULL && !s->end.is_saved) /* else the trace is over */
		fal_coord_trace_refusals(s->coord, now, k->name, k->why, k->n);
	k->n = 0;
}

/* Counts a refusal of the key, and logs it on stderr and in the trace when that is due.
 */
static void
log_refusal(struct ps_server *s, const char *key, const char *why)
{
	/* The entry of this key, or else the entry that may be logged first. */
	struct ps_refused_key *k = s->refusals.key, *const end = k + PS_REFUSED_KEYS,
			      *oldest = k;
	for (; k < end && strcmp(k->name, key) != 0; k++)
		if (k->limit.next < oldest->limit.next)
			oldest = k;
	if (k == end) {
		k = oldest;
		refused_key_log(s, k, true);
		*k = (struct ps_refused_key){ 0 };
		snprintf(k->name, sizeof(k->name), "%s", key);
	}
	snprintf(k->why, sizeof(k->why), "%s", why);
	k->n++;
	refused_key_log(s, k, false);
}

void
ps_log_failed_handshake(void *arg, const char *source, const char *why)
{
	struct ps_server *s = arg;
	fal_refusals_add(&s->refusals.handshakes, source, why);
	ps_log_refusals(s, false);
}

void
ps_log_refusals(struct ps_server *s, bool is_over)
{
	struct fal_diag line;
	if (fal_refusals_due(&s->refusals.handshakes, ps_now(), is_over, &line))
		fal_cli_err(PROG, "%s", line.text);
	for (size_t i = 0; i < PS_REFUSED_KEYS; i++)
		refused_key_log(s, &s->refusals.key[i], is_over);
}

/* ---- the end of a session --- */

void
ps_tell_session_gone(struct ps_session *session, const char *why)
{
	struct ps_server *s = session->server;
	/* A coordinator that has failed may have stopped in the midst of a call. */
	if (s->end.broken == FAL_OK && s->coord != NULL)
		ps_fail(s, fal_coord_session_end(s->coord, ps_now(), session->id, why),
			"scheduler");
}

void
ps_end_session(struct ps_session *session, enum ps_end_reason reason, const char *why)
{
	struct ps_server *s = session->server;
	struct fal_diag text;
	struct fal_msg m = { .type = FAL_MSG_REFUSE, .refuse.key = reason == PS_END_KEY };
	fal_diag_set(&text, 0, "%s%s", why,
		     reason == PS_END_REFUSED ? fal_chan_skew(session->chan) : "");
	if (reason == PS_END_LATER) {
		m = (struct fal_msg){ .type = FAL_MSG_LATER,
				      .incarnation = s->broadcast.publisher.incarnation };
		snprintf(m.later.why, sizeof(m.later.why), "%s", why);
	} else {
		snprintf(m.refuse.why, sizeof(m.refuse.why), "%.250s", text.text);
	}
	ps_send_or_close(session->chan, &m, FAL_SEND_CONTROL);
	log_refusal(s, fal_chan_name(session->chan), text.text);
	if (reason != PS_END_LATER)
		ps_tell_session_gone(session, text.text);
	fal_chan_close(session->chan);
}

static bool
session_is_observer(const struct ps_session *session)
{
	return !fal_role_permits(fal_chan_role(session->chan), FAL_ROLE_WORK);
}

bool
ps_end_if_full(struct ps_session *session)
{
	const struct ps_sessions *all = &session->server->sessions;
	size_t alike = 0, observers = 0;
	for (size_t i = 0; i < all->n; i++) {
		alike += sessions_share_limits(all->v[i], session);
		observers += session_is_observer(all->v[i]);
	}
	if (alike > PS_SESSIONS_MAX)
		ps_end_session(session, PS_END_LIMIT, "its key has too many sessions");
	else if (all->n > all->max ||
		 (session_is_observer(session) && observers > all->max / 2))
		ps_end_session(session, PS_END_LATER,
			       "no descriptor is left for one more session");
	else
		return false;
	return true;
}

void
ps_finish_session(struct ps_session *session)
{
	const struct fal_msg m = { .type = FAL_MSG_TRACE_END };
	if (session->follow.is_active)
		ps_send_or_close(session->chan, &m, FAL_SEND_BULK);
	session->follow.is_active = false;
	fal_chan_close(session->chan);
}

void
ps_close_peer(void *arg, uint32_t peer, const char *why)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_find_session(&s->sessions, peer);
	if (session == NULL)
		return;
	snprintf(session->end_reason, sizeof(session->end_reason), "%s", why);
	s->sessions.has_ended = true;
	fal_chan_close(session->chan);
}

void
ps_log_session_ends(struct ps_server *s)
{
	for (size_t i = 0; s->sessions.has_ended && i < s->sessions.n; i++) {
		struct ps_session *session = s->sessions.v[i];
		if (session->end_reason[0] != '\0')
			log_refusal(s, fal_chan_name(session->chan), session->end_reason);
		session->end_reason[0] = '\0';
	}
	s->sessions.has_ended = false;
}
