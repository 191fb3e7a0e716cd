/* Sessions: what their keys have cost, their table, long answers that are sent as there
 * is room, their messages, and what the coordinator sends. */
#include "server.h"

#include "base/mem.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- accounts: token buckets by key --- */

static void
account_age(struct ps_account *a, double now)
{
	const double s = now - a->at;
	a->comings = fmax(a->comings - s / PS_COMING_S, 0);
	a->again = fmax(a->again - s * PS_AGAIN_S, 0);
	a->at = now;
}

/* How much of it all is used up at `now`. */
static double
account_used(const struct ps_account *v, double now)
{
	struct ps_account a = *v;
	account_age(&a, now);
	return a.comings / PS_COMINGS + a.again / PS_AGAIN_MAX;
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
		if (account_used(&v[i], now) < account_used(least, now))
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
ps_account_has(const struct ps_account *a, double cost)
{
	return a->comings <= PS_COMINGS - cost;
}

bool
ps_account_comes(struct ps_account *a, double cost)
{
	if (!ps_account_has(a, cost))
		return false;
	a->comings += cost;
	return true;
}

void
ps_account_forgive(struct ps_account *a)
{
	a->comings = fmax(a->comings - 1, 0);
}

bool
ps_account_again(struct ps_account *a, size_t n)
{
	if (a->again + (double)n > PS_AGAIN_MAX)
		return false;
	a->again += (double)n;
	return true;
}

/* ---- the table of sessions --- */

static size_t
session_place(const struct ps_sessions *s, uint32_t id)
{
	size_t low = 0, high = s->n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (s->v[mid]->id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct ps_session *
ps_session_find(const struct ps_sessions *s, uint32_t id)
{
	size_t at = session_place(s, id);
	return at < s->n && s->v[at]->id == id ? s->v[at] : NULL;
}

static bool
looks_on(const struct ps_session *session)
{
	return !fal_role_may(fal_chan_role(session->chan), FAL_ROLE_WORK);
}

/* Do two sessions share their key's limits: are they of one key, and, where one key is
 * for all workers, of one source? */
static bool
share_limits(const struct ps_session *a, const struct ps_session *b)
{
	return strcmp(fal_chan_fingerprint(a->chan), fal_chan_fingerprint(b->chan)) ==
		       0 &&
	       (a->server->work_keys != 1 ||
		strcmp(fal_chan_source(a->chan), fal_chan_source(b->chan)) == 0);
}

/* Forgets the session, and frees it. */
static void
remove_session(struct ps_sessions *s, struct ps_session *session)
{
	size_t at = session_place(s, session->id);
	memmove(s->v + at, s->v + at + 1, (--s->n - at) * sizeof(struct ps_session *));
	fal_buf_free(&session->export);
	fal_buf_free(&session->hello);
	ps_reader_end(&session->server->wants, &session->reader);
	free(session);
}

/* ---- what a session asks for and is long: the job's texts, the data chunk by chunk, the
 * history of the trace.  Each is queued as the channel takes it, and waits while much is
 * queued for the session, or for all of its key; data that the session had already wait
 * for its key's account, too --- */

/* Bytes queued. */
static const size_t session_max = (size_t)1 << 20, key_max = (size_t)16 << 20;
static const size_t least = (size_t)256 << 10, most = (size_t)64 << 20;

/* Seconds in which a worker may come, before trainers that have failed end the job. */
static const double trainer_s = 300;

void
ps_count_keys(struct ps_server *s)
{
	size_t n, workers = 0, any = 0;
	const struct fal_key *key = fal_keyring_keys(s->run->keys, &n);
	for (size_t i = 0; i < n; i++) {
		workers += key[i].role == FAL_ROLE_WORK;
		any += key[i].role == FAL_ROLE_ALL;
	}
	s->work_keys = (uint32_t)(workers > 0 ? workers : any);
	if (s->coord != NULL)
		fal_coord_trainer_wait(s->coord, trainer_s, s->work_keys);
}

static struct ps_account *
account_of(struct ps_server *s, const struct fal_chan *c)
{
	const char *source = s->work_keys == 1 ? fal_chan_source(c) : "";
	return ps_account_find(s->accounts, fal_chan_fingerprint(c), source, ps_now());
}

/* Bytes that are queued for it and all others of its key. */
static size_t
queued(const struct ps_session *session)
{
	const struct ps_sessions *all = &session->server->sessions;
	size_t sum = 0;
	for (size_t i = 0; i < all->n; i++)
		if (share_limits(all->v[i], session))
			sum += fal_chan_stat(all->v[i]->chan).held;
	return sum;
}

bool
ps_too_much(const struct ps_session *session)
{
	return fal_chan_stat(session->chan).held >= least && queued(session) > most;
}

/* Whether more may be queued for the session now; if not, it is tried again. */
static bool
has_room(struct ps_server *s, const struct ps_session *session)
{
	if (fal_chan_stat(session->chan).held >= session_max)
		return false;
	if (queued(session) < key_max)
		return true;
	s->crowded = true;
	return false;
}

/* Sends the chunk; false: not yet. */
static bool
send_chunk(struct ps_server *s, struct ps_session *session, const struct ps_ask *a)
{
	const struct fal_files *j = s->job;
	const struct fal_part *part = a->test ? &j->manifest.test : &j->manifest.train;
	const size_t n = fal_chunk_bytes(part, a->chunk);
	if (session->had + n > fal_files_data(j) &&
	    !ps_account_again(account_of(s, session->chan), n))
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

void
ps_more(struct ps_server *s, struct ps_session *session)
{
	if (session->texts_due && has_room(s, session)) {
		session->texts_due = false;
		ps_send_text(session, FAL_TEXT_JOB, &s->job->job_text);
		ps_send_text(session, FAL_TEXT_MODEL, &s->job->model_text);
		ps_send_text(session, FAL_TEXT_MANIFEST, &s->job->manifest_bytes);
	}
	if (session->history_due && has_room(s, session)) {
		session->history_due = false;
		ps_follow(s, session);
	}
	while (session->asks > 0 && has_room(s, session) &&
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

/* ---- what the coordinator wants --- */

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

/* ---- how sessions end, and what they say --- */

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
	if (ps_account_comes(account_of(s, session->chan), cost))
		return false;
	put_off(s, session, "too many sessions of its key came and went");
	return true;
}

/* Is there too little memory for one worker more? */
static bool
is_beyond(struct ps_server *s, struct ps_session *session)
{
	struct fal_diag need, why;
	if (ps_affords(s, NULL, 1, 0, &need) == FAL_OK)
		return false;
	fal_diag_set(&why, 0, "with one worker more the coordinator %s", need.text);
	put_off(s, session, why.text);
	return true;
}

static void
chunk_get(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	const bool test = m->chunk_get.test != 0;
	const struct fal_part *part =
		test ? &s->job->manifest.test : &s->job->manifest.train;
	const char *odd =
		!fal_coord_greeted(s->coord, session->id) ? "CHUNK_GET before HELLO"
		: m->chunk_get.chunk >= part->chunks
			? "asks for a chunk that is not there"
		: session->asks == PS_ASKS_MAX ? "asks for too many chunks at once"
					       : NULL;
	if (odd != NULL) {
		refuse(s, session, odd);
		return;
	}
	session->ask[session->asks++] =
		(struct ps_ask){ .test = test, .chunk = m->chunk_get.chunk };
	ps_more(s, session);
}

static void
work_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m)
{
	struct fal_diag why = { "" };
	struct fal_chan_stat stat = fal_chan_stat(session->chan);
	fal_coord_traffic(s->coord, session->id, stat.tx, stat.rx);
	if (m->type == FAL_MSG_CHUNK_GET) {
		chunk_get(s, session, m);
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
	/* Kinds of senders: the first one that may send a message has it taken. */
	static const struct {
		enum fal_sender from;
		enum fal_role role;
		void (*take)(struct ps_server *s, struct ps_session *session,
			     const struct fal_msg *m);
	} as[] = {
		{ FAL_FROM_SHARD, FAL_ROLE_SHARD, shard_msg },
		{ FAL_FROM_WORKER, FAL_ROLE_WORK, work_msg },
		{ FAL_FROM_OBSERVER, FAL_ROLE_OBSERVE, follow_msg },
		{ FAL_FROM_CONTROLLER, FAL_ROLE_CONTROL, control_msg },
	};
	enum { SHARD, ALL = sizeof(as) / sizeof(as[0]) };
	struct ps_session *session = arg;
	struct ps_server *s = session->server;
	const enum fal_role role = fal_chan_role(c);
	struct fal_msg m;
	struct fal_diag why;
	if (s->broken < 0) /* nobody is there who would listen */
		return;
	if (fal_msg_get(p, n, &m) < 0) {
		refuse(s, session, "a message that cannot be read");
		return;
	}
	const bool pong = m.type == FAL_MSG_PONG;
	size_t i = 0;
	while (i < ALL &&
	       !(fal_msg_may_send(m.type, as[i].from) && fal_role_may(role, as[i].role)))
		i++;
	if (pong && session->member != NULL)
		i = SHARD;
	if (i == SHARD && s->above != NULL && !pong) {
		refuse(s, session, "a group server has no shards of other processes");
	} else if (i != SHARD && s->coord == NULL) {
		too_soon(s, session, &m, p, n);
	} else if (i < ALL) {
		as[i].take(s, session, &m);
	} else {
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
		ps_account_forgive(account_of(s, c));
	remove_session(&s->sessions, session);
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
					   .place = line_of(s->run->keys, c),
					   .rtt = fal_chan_rtt(c) };
	if (s->broken == FAL_OK && s->coord != NULL &&
	    fal_role_may(fal_chan_role(c), FAL_ROLE_WORK))
		fal_coord_open(s->coord, session->id, &who);
}

/* Is there no room for this session?  Then the session is sent away: for later, where
 * room may come without its doing.  Observers leave half of the descriptors to
 * workers. */
static bool
is_full(struct ps_server *s, struct ps_session *session)
{
	size_t alike = 0, lookers_on = 0;
	for (size_t i = 0; i < s->sessions.n; i++) {
		alike += share_limits(s->sessions.v[i], session);
		lookers_on += looks_on(s->sessions.v[i]);
	}
	if (alike > PS_SESSIONS_MAX)
		send_away(s, session, false, "its key has too many sessions");
	else if (s->sessions.n > s->room ||
		 (looks_on(session) && lookers_on > s->room / 2))
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
	struct ps_session *session = fal_xcalloc(1, sizeof(*session));
	struct fal_chan_ops ops = { .arg = session,
				    .on_msg = on_msg,
				    .on_drain = on_drain,
				    .on_close = on_chan_close };
	FAL_XGROW(s->sessions.v, s->sessions.cap, s->sessions.n + 1);
	session->id = ++s->sessions.last_id;
	s->sessions.v[s->sessions.n++] = session;
	session->server = s;
	session->chan = c;
	ps_reader_begin(&session->reader, c);
	fal_chan_adopt(c, &ops);
	fal_chan_compress(c, s->run->compress);
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
