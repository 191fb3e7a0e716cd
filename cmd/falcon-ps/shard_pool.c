/* The pool of shards: the processes that have joined with shards, the blocks of each
 * process, and the messages to and from the processes (falcon-protocol(7), SHARDS).
 *
 * Blocks that move (design.md, D38, D39) travel by way of this process, which has one
 * stream to each other process; this process's own shards give and get blocks, too. */
#include "base/mem.h"
#include "base/minmax.h"
#include "base/parse.h"
#include "base/text.h"
#include "crypto/secret.h"
#include "server.h"
#include "wire/bfp.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	GRACE_MS = 5000, /* for processes to come back after a restart */
	PING_MS = 1000   /* between pings */
};

/* A process. */
struct ps_member {
	struct ps_session *session; /* NULL: this process */
	bool is_standby;
	uint32_t max_shards; /* number that the process offers */
	char address[FAL_MSG_WHY];
	uint8_t public[FAL_KEY_BYTES];
	uint32_t first, count;       /* its shards; 0: it has no numbers yet */
	bool is_placed;              /* has received the blocks of these shards */
	bool joined_late;            /* during the job: so began without blocks */
	bool has_no_share;           /* there is no block for the process */
	bool is_full;                /* cannot have more blocks */
	bool is_drained;             /* has to give up all blocks */
	struct image_queue outgoing; /* images to it */
	struct image_intake intake;  /* an image from it */
	struct ps_shard_stats stats; /* as it reports them */
	struct ps_ping_state {
		double owed_since; /* since when an answer, or room, is due; 0: neither */
		bool is_pending;   /* the answer to this: */
		uint64_t stamp;
		uint64_t sent_bytes; /* bytes of all messages that it has taken */
		struct fal_window round_trips;
	} ping;
	struct fal_shard_codec report_codec; /* a REPORT that is on its way */
};

/* ---- sending --- */

/* Does the process have its part of the model?  Then it gets orders. */
static bool
member_works(const struct ps_member *m)
{
	return m->count > 0 && m->is_placed;
}

/* Sends a message.  If the process does not keep up, or is gone, closes its session. */
static void
pool_send(struct ps_server *s, struct ps_member *m, struct fal_msg *msg)
{
	msg->incarnation = s->run->state.incarnation;
	ps_send_or_close(m->session->chan, msg, FAL_SEND_CONTROL);
}

/* Sends a message to every process that hears orders. */
static void
pool_send_all(struct ps_server *s, struct fal_msg *msg)
{
	for (size_t i = 0; i < s->pool.n; i++)
		if (member_works(s->pool.v[i]))
			pool_send(s, s->pool.v[i], msg);
}

/* Returns the process that has the shard; NULL: no process has it. */
static struct ps_member *
pool_find_member(const struct ps_server *s, uint32_t shard)
{
	if (shard < s->pool.own->count)
		return s->pool.own;
	for (size_t i = 0; i < s->pool.n; i++)
		if (shard - s->pool.v[i]->first < s->pool.v[i]->count)
			return s->pool.v[i];
	return NULL;
}

void
ps_pool_flush(struct ps_server *s)
{
	for (size_t i = 0; i < s->pool.n; i++)
		if (member_works(s->pool.v[i]))
			fal_chan_write_now(s->pool.v[i]->session->chan);
}

/* "shard 3" or "shards 3 to 5". */
static const char *
member_shards_text(const struct ps_member *m, char out[static 40])
{
	if (m->count == 1)
		snprintf(out, 40, "shard %u", m->first + 1);
	else
		snprintf(out, 40, "shards %u to %u", m->first + 1, m->first + m->count);
	return out;
}

/* The process's shards, as bits. */
static uint64_t
member_shards(const struct ps_member *m)
{
	return m->count == 0 ? 0 : (UINT64_MAX >> (64 - m->count)) << m->first;
}

/* Has the process a block? */
static bool
member_has_blocks(const struct ps_server *s, const struct ps_member *m)
{
	return (fal_map_busy(&s->pool.map) & member_shards(m)) != 0;
}

/* ---- admission: a process knows a worker before the worker dials it --- */

/* The key of a worker to the process. */
static uint8_t *
worker_key(const struct ps_session *session, const struct ps_member *m)
{
	return session->admission.keys + (size_t)m->first * FAL_KEY_BYTES;
}

/* The process in ps_admission.pending: the bit of its first shard. */
static uint64_t
member_bit(const struct ps_member *m)
{
	return UINT64_C(1) << m->first;
}

/* Tells a worker the address of a process, which knows the worker. */
static void
pool_send_map(struct ps_server *s, struct ps_session *session, const struct ps_member *is)
{
	struct fal_msg m = { .type = FAL_MSG_MAP,
			     .incarnation = s->run->state.incarnation,
			     .map = { .first = is->first + 1, .count = is->count } };
	memcpy(m.map.address, is->address, sizeof(m.map.address));
	memcpy(m.map.public, is->public, sizeof(m.map.public));
	memcpy(m.map.psk, worker_key(session, is), sizeof(m.map.psk));
	snprintf(m.map.name, sizeof(m.map.name), "session%u", session->id);
	ps_send_or_close(session->chan, &m, FAL_SEND_CONTROL);
	fal_secret_wipe(&m, sizeof(m));
}

/* Sends the texts to a worker that all processes know. */
static void
pool_end_admission(struct ps_session *session)
{
	if (!session->admission.is_open || session->admission.pending != 0)
		return;
	fal_secret_free(session->admission.keys);
	session->admission.keys = NULL;
	if (session->admission.has_map)
		return;
	session->admission.has_map = session->texts_due = true;
	ps_send_pending(session);
}

/* Draws the key between a worker and a process, and tells the process. */
static void
pool_send_admit(struct ps_server *s, struct ps_session *session, struct ps_member *is)
{
	struct fal_msg m = { .type = FAL_MSG_ADMIT, .admit.session = session->id };
	if (session->admission.keys == NULL)
		session->admission.keys =
			fal_secret_alloc((size_t)FAL_SHARDS_MAX * FAL_KEY_BYTES);
	fal_random_bytes(worker_key(session, is), FAL_KEY_BYTES);
	session->admission.pending |= member_bit(is);
	memcpy(m.admit.psk, worker_key(session, is), sizeof(m.admit.psk));
	pool_send(s, is, &m);
	fal_secret_wipe(&m, sizeof(m));
}

void
ps_pool_admit_worker(struct ps_server *s, struct ps_session *session)
{
	const struct ps_shard_pool *p = &s->pool;
	session->admission.is_open = true;
	for (size_t i = 0; i < p->n; i++)
		if (member_works(p->v[i]))
			pool_send_admit(s, session, p->v[i]);
	pool_end_admission(session);
}

/* Do the process and all workers know each other? */
static bool
member_knows_all_workers(const struct ps_server *s, const struct ps_member *m)
{
	size_t i = 0;
	while (i < s->sessions.n &&
	       (s->sessions.v[i]->admission.pending & member_bit(m)) == 0)
		i++;
	return i == s->sessions.n;
}

/* ---- pings ---
 *
 * This process sends pings to each process.  A process that does not answer a ping within
 * its deadline is lost.
 *
 * Without pings, a process that hangs with an open stream would hold up the clock until
 * the stream's keepalive ends the stream.  The deadline follows from the process's
 * earlier answers, as other deadlines do (design.md, D7): ten times the largest of median
 * plus six spreads, four medians, and one second. */

#define MIN_ANSWER_S 1.0
#define DEADLINE_SLACK 10

static void
pool_on_ping(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	struct ps_shard_pool *p = &s->pool;
	const double now = ps_now();
	/* No timer tick for three seconds: this process was suspended, and heard nothing.
	 */
	const bool was_suspended = now - p->pinged_at > 3 * PING_MS / 1e3;
	p->pinged_at = now;
	for (size_t i = 0; i < p->n && !s->end.is_stopping && !s->end.is_saved; i++) {
		struct ps_member *m = p->v[i];
		struct ps_ping_state *a = &m->ping;
		if (!member_works(m))
			continue;
		/* A ping queues behind waiting bytes.  So the deadline counts for a
		 * process that takes none of these bytes, too. */
		const struct fal_chan_stat is = fal_chan_stat(m->session->chan);
		const uint64_t taken = is.tx - (is.held - is.queued);
		if (is.held > 0 && (a->owed_since <= 0 || taken != a->sent_bytes))
			a->owed_since = now;
		a->sent_bytes = taken;
		if (a->owed_since > 0 && was_suspended)
			a->owed_since = now;
		double most = MIN_ANSWER_S;
		if (a->owed_since > 0 && a->round_trips.n > 0) {
			struct fal_window *w = &a->round_trips;
			fal_window_judge(w);
			most = fal_max(most, fal_max(w->limit, 4 * w->median));
		}
		if (a->owed_since > 0 && now - a->owed_since > DEADLINE_SLACK * most) {
			fal_chan_fail(m->session->chan, FAL_EIO,
				      "it does not answer for %.0f s",
				      now - a->owed_since);
			continue;
		}
		if (is.held > 0 || a->is_pending)
			continue;
		struct fal_msg ping = { .type = FAL_MSG_PING, .ping.stamp = ++a->stamp };
		a->owed_since = now;
		a->is_pending = true;
		pool_send(s, m, &ping);
	}
}

/* ---- pieces --- */

/* A callback of fal_shard_set_each_piece: queues a piece for the process that has shard
 * `to`, and takes its image; does nothing if the process is gone. */
static int
pool_queue_piece(void *server, uint32_t to, struct fal_shard_set_piece *piece)
{
	struct ps_member *m = pool_find_member(server, to);
	if (m == NULL)
		return FAL_OK;
	image_queue_add_piece(&m->outgoing, to, piece);
	ps_pool_send_images(m->session);
	return FAL_OK;
}

/* Does the piece that the message begins lie within a shard of the process? */
static bool
member_owns_piece(const struct ps_server *s, const struct ps_member *m,
		  const struct fal_msg *msg)
{
	const uint32_t first = msg->image.first, count = msg->image.blocks;
	for (uint32_t i = m->first; i < m->first + m->count; i++) {
		const struct fal_extent *e = &s->pool.map.of[i];
		if (count > 0 && count <= e->count && first >= e->first &&
		    first - e->first <= e->count - count)
			return true;
	}
	return false;
}

/* Tells the coordinator the result of a process's message, unless the job is over. */
static void
pool_report(struct ps_server *s, const struct fal_shard_result *r)
{
	if (s->coord != NULL && !s->end.is_saved && s->end.broken == FAL_OK)
		ps_fail(s, fal_coord_take_result(s->coord, ps_now(), r), "scheduler");
}

/* ---- ps_pool_ops --- */

static int
pool_order(void *arg, const struct fal_shard_order *o, struct fal_shard_result *r)
{
	struct ps_server *s = arg;
	struct ps_shard_pool *p = &s->pool;
	struct fal_buf msg = { 0 };
	int err = fal_shard_codec_order(s->run->state.incarnation, o, &msg);
	for (size_t i = 0; i < p->n; i++) {
		struct fal_chan *chan = p->v[i]->session->chan;
		if (member_works(p->v[i]) &&
		    (err < 0 || fal_chan_send(chan, &msg, FAL_SEND_CONTROL) < 0))
			fal_chan_close(chan);
	}
	fal_buf_free(&msg);
	if (o->kind == FAL_ORDER_STEP) /* sent before our own shards step */
		ps_pool_flush(s);
	if (o->kind != FAL_ORDER_OPEN) /* the order may drop a wanted version */
		ps_publish_versions(s);
	struct fal_shard_order own = *o;
	const uint64_t began = uv_hrtime();
	err = s->upstream != NULL ? ps_upstream_fill_order(s->upstream, &own) : FAL_OK;
	if (err == FAL_OK)
		err = fal_shard_set_order(s->shard_set, &own, r);
	if (err == FAL_OK && o->kind == FAL_ORDER_MIGRATE_BEGIN) {
		p->next_map = *o->map;
		err = fal_shard_set_each_piece(s->shard_set, pool_queue_piece, s);
	}
	if (err == FAL_OK && o->kind == FAL_ORDER_COMMIT)
		ps_broadcast_reset(&s->broadcast);
	for (size_t i = 0; i < p->n && err == FAL_OK && o->kind == FAL_ORDER_ABORT; i++)
		err = image_queue_abort(&p->v[i]->outgoing);
	s->broadcast.stats.service += uv_hrtime() - began;
	return err;
}

static int
pool_push(void *arg, uint32_t session, const struct fal_msg *m,
	  struct fal_shard_result *r, struct fal_diag *diag)
{
	struct ps_server *s = arg;
	const uint64_t began = uv_hrtime();
	ps_shard_stats_add_push(&s->broadcast.stats, s->shard_set, &m->push.records);
	int err = fal_shard_set_push_msg(s->shard_set, session, m, r, diag);
	s->broadcast.stats.service += uv_hrtime() - began;
	return err;
}

static void
pool_stats(void *arg, uint32_t shard, struct fal_coord_shard_stats *out)
{
	const struct ps_server *s = arg;
	const struct ps_member *m = pool_find_member(s, shard);
	const struct ps_shard_stats *by = &s->broadcast.stats;
	uint32_t first;
	fal_shard_set_range(s->shard_set, shard, &first, &out->blocks);
	if (m != NULL && m->session != NULL) {
		out->name = fal_chan_name(m->session->chan);
		out->address = m->address;
		by = &m->stats;
	}
	out->rx = by->rx[shard];
	out->tx = by->tx[shard];
	out->service = (double)by->service * 1e-9;
	out->queue = (double)by->queue * 1e-9;
}

const struct fal_coord_shards ps_pool_ops = { NULL, pool_order, pool_push, pool_stats };

void
ps_pool_publish(struct ps_server *s, uint32_t peer,
		const struct fal_coord_publication *model)
{
	struct fal_buf named = { 0 };
	struct fal_msg m = { .type = FAL_MSG_PUBLISH,
			     .publish = { .session = peer,
					  .order = model->order,
					  .version = model->version,
					  .newest = model->newest,
					  .oldest = model->oldest,
					  .from = model->from,
					  .keep = model->keep } };
	if (s->pool.n == 0)
		return;
	for (uint32_t i = 0; i < model->names; i++)
		fal_put_u64(&named, model->named[i]);
	if (named.err < 0)
		fal_out_of_memory();
	m.publish.named = (struct fal_tail){ named.p, named.n };
	pool_send_all(s, &m);
	fal_buf_free(&named);
}

/* ---- placement --- */

uint32_t
ps_pool_count_missing(const struct ps_server *s)
{
	const struct ps_shard_pool *p = &s->pool;
	return !p->has_map && p->n < p->wanted ? p->wanted - (uint32_t)p->n : 0;
}

void
ps_pool_send_images(struct ps_session *session)
{
	struct ps_member *m = session->member;
	if (m != NULL)
		image_queue_send(&m->outgoing, session->server->run->state.incarnation,
				 session->chan, NULL, NULL);
}

/* Sends PLACE and the texts; images follow as there is room. */
static void
pool_send_place(struct ps_server *s, struct ps_member *m)
{
	const struct fal_files *j = s->job;
	struct fal_msg msg = { .type = FAL_MSG_PLACE,
			       .place = { .epoch = s->pool.map.epoch,
					  .first = m->first,
					  .count = m->count,
					  .tasks = fal_files_clock_tasks(j),
					  .job_n = (uint32_t)j->job_text.n,
					  .model_n = (uint32_t)j->model_text.n } };
	struct fal_buf cut = { 0 };
	struct fal_map map = s->pool.map;
	/* Shards above the map have no block yet. */
	if (map.shards < m->first + m->count)
		map.shards = m->first + m->count;
	msg.place.of = map.shards;
	fal_map_put(&cut, &map);
	if (cut.err < 0)
		fal_out_of_memory();
	msg.place.map = (struct fal_tail){ cut.p, cut.n };
	memcpy(msg.place.key, s->tickets.key, sizeof(msg.place.key));
	pool_send(s, m, &msg);
	fal_secret_wipe(&msg, sizeof(msg));
	fal_buf_free(&cut);
	ps_send_text(m->session, FAL_TEXT_JOB, &j->job_text);
	ps_send_text(m->session, FAL_TEXT_MODEL, &j->model_text);
	ps_pool_send_images(m->session);
}

/* Makes all shards, with the parameters of the job's begin or of its snapshot.  The job's
 * rule places the blocks on `places`; a place without blocks is no shard.  `before` gets
 * the number of shards before each place. */
static int
pool_create_shards(struct ps_server *s, uint32_t places,
		   uint32_t before[FAL_SHARDS_MAX + 1])
{
	const struct fal_files *j = s->job;
	struct fal_map *map = &s->pool.map;
	struct fal_shard_set_conf shard_set = fal_files_shard_set_conf(j, places);
	fal_files_make_map(j, places, map, before);
	map->epoch = s->tickets.epoch;
	shard_set.map = map;
	shard_set.tickets = s->tickets;
	shard_set.each.parallel = fal_threads_parallel(s->run->threads);
	shard_set.each.at_once = &s->workers_are_local;
	s->shard_set = fal_files_new_shard_set(j, &shard_set);
	fal_secret_wipe(&shard_set.tickets, sizeof(shard_set.tickets));
	if (s->shard_set == NULL)
		return fal_diag_set(s->diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	return s->resumed == NULL ? FAL_OK
				  : fal_snapshot_load(s->run->snapshots, s->resumed,
						      s->shard_set, s->diag);
}

uint32_t
ps_pool_count_unplaced(const struct ps_server *s)
{
	uint32_t n = 0;
	for (size_t i = 0; i < s->pool.n; i++) {
		const struct ps_member *m = s->pool.v[i];
		n += m->count > 0 && !m->is_placed && !m->joined_late;
	}
	return n;
}

int
ps_pool_place(struct ps_server *s)
{
	struct ps_shard_pool *p = &s->pool;
	uint32_t before[FAL_SHARDS_MAX + 1];
	/* First the processes that came to take part; then as many standby processes as
	 * are missing. */
	struct ps_member *part[FAL_SHARDS_MAX];
	uint32_t parts = 0, at = (uint32_t)s->run->opt.shards, places = at;
	for (int standby = 0; standby < 2; standby++)
		for (size_t i = 0; i < p->n && places < FAL_SHARDS_MAX; i++)
			if (p->v[i]->is_standby == standby &&
			    (!standby || parts < p->wanted)) {
				part[parts++] = p->v[i];
				places += p->v[i]->max_shards;
			}
	places = places < FAL_SHARDS_MAX ? places : FAL_SHARDS_MAX;
	p->rule_shards = places;
	p->has_map = true;
	uv_timer_stop(&p->grace);
	s->tickets =
		(struct fal_ticket_scope){ .epoch = 1,
					   .incarnation = s->run->state.incarnation };
	fal_random_bytes(s->tickets.key, sizeof(s->tickets.key));
	int err = pool_create_shards(s, places, before);
	if (err < 0)
		return err;
	p->own->count = before[at];
	for (uint32_t i = 0; i < parts; i++) {
		struct ps_member *m = part[i];
		const uint32_t first = before[at], left = places - at;
		char own[40];
		at += m->max_shards < left ? m->max_shards : left;
		/* the job's placement gives the process no block */
		m->has_no_share = before[at] == first;
		if (m->has_no_share)
			continue;
		m->first = first;
		m->count = before[at] - first;
		ps_log(s->run, "%s of %u: %s", member_shards_text(m, own),
		       fal_shard_set_count(s->shard_set), m->address);
		pool_send_place(s, m);
		for (uint32_t k = first; k < before[at]; k++) {
			struct fal_shard_set_piece piece;
			if (fal_shard_set_give(s->shard_set, k, &piece) < 0 ||
			    pool_queue_piece(s, k, &piece) < 0)
				return fal_diag_set(s->diag, FAL_ENOMEM, "%s",
						    fal_strerror(FAL_ENOMEM));
		}
	}
	return FAL_OK;
}

static void
pool_on_grace(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	s->pool.wanted = (uint32_t)s->run->opt.min_shards;
	if (!s->end.is_stopping && !s->pool.has_map && ps_pool_count_missing(s) == 0)
		s->end.err = ps_pool_place(s);
	s->events.after_event(s);
}

void
ps_pool_init(struct ps_server *s)
{
	struct ps_shard_pool *p = &s->pool;
	const struct ps_run *r = s->run;
	const uint32_t least = (uint32_t)r->opt.min_shards,
		       had = r->opt.upstream != NULL ? 0 : r->lost_processes;
	p->own = fal_xcalloc(1, sizeof(*p->own));
	uv_timer_init(s->loop, &p->grace);
	p->grace.data = s;
	uv_timer_init(s->loop, &p->ping_timer);
	p->ping_timer.data = s;
	p->pinged_at = ps_now();
	uv_timer_start(&p->ping_timer, pool_on_ping, PING_MS, PING_MS);
	uv_unref((uv_handle_t *)&p->ping_timer);
	p->wanted = least > had ? least : had;
	if (p->wanted > 0)
		ps_log(s->run, "waits for %u process%s of shards%s", p->wanted,
		       p->wanted > 1 ? "es" : "",
		       had > least ? ", as before, for a while" : "");
	if (had > least)
		uv_timer_start(&p->grace, pool_on_grace, GRACE_MS, 0);
}

void
ps_pool_close(struct ps_server *s)
{
	ps_close_handle(&s->pool.grace);
	ps_close_handle(&s->pool.ping_timer);
}

/* ---- moves --- */

/* Starts a move.  FAL_ELIMIT: there is no memory for it; FAL_ESTATE: the job is over, or
 * another move is under way.  Other errors end the job. */
static int
pool_start_move(struct ps_server *s, const struct fal_map *to, const char *by,
		struct fal_diag *why)
{
	const struct fal_policy *policy = fal_coord_policy_in_force(s->coord);
	const struct fal_map *now = &s->pool.map;
	struct fal_shard_set_conf part = fal_files_shard_set_conf(s->job, 1);
	struct fal_diag need;
	size_t blocks = 0;
	/* During the move our own shards have their old and their new blocks. */
	for (uint32_t i = 0; i < s->pool.own->count; i++)
		if (to->of[i].first != now->of[i].first ||
		    to->of[i].count != now->of[i].count)
			blocks += to->of[i].count;
	if (blocks * FAL_BLOCK < part.each.n)
		part.each.n = blocks * FAL_BLOCK;
	const struct ps_shard_memory_inputs of = { .shard_set = &part,
						   .rule = &policy->rule };
	const uint64_t more = blocks > 0 ? ps_estimate_shard_memory(&of) : 0;
	if (ps_check_memory(s, NULL, 0, more, &need) < 0)
		return fal_diag_set(why, FAL_ELIMIT,
				    "with the blocks that move here this process %s",
				    need.text);
	int err = fal_coord_move_blocks(s->coord, ps_now(), to, by, why);
	if (err < 0 && err != FAL_ESTATE)
		ps_fail(s, err, "a move");
	return err;
}

void
ps_pool_abort_move(struct ps_server *s)
{
	if (s->coord != NULL && s->end.broken == FAL_OK && !s->end.is_saved)
		ps_fail(s, fal_coord_abort_move(s->coord, ps_now()), "scheduler");
}

bool
ps_pool_describe_move(const struct ps_server *s, struct fal_diag *to)
{
	const struct fal_map *map = &s->pool.map, *next = &s->pool.next_map;
	size_t n = 0;
	to->text[0] = '\0';
	for (uint32_t i = 0; i < next->shards; i++) {
		const struct ps_member *m = pool_find_member(s, i);
		const struct fal_extent *a = &map->of[i], *b = &next->of[i];
		/* The shard gets no new block. */
		if (b->count == 0 ||
		    (b->first >= a->first && b->first + b->count <= a->first + a->count))
			continue;
		const int more =
			snprintf(to->text + n, sizeof(to->text) - n, "%sshard %u at %s",
				 n > 0 ? ", " : "", i + 1,
				 m != NULL && m->session != NULL ? m->address
								 : "this process");
		n += more > 0 && n + (size_t)more < sizeof(to->text) ? (size_t)more : 0;
	}
	return n > 0;
}

void
ps_pool_on_moved(void *arg, const struct fal_map *map, int err)
{
	struct ps_server *s = arg;
	uint32_t order[FAL_SHARDS_MAX];
	char text[FAL_SHARDS_MAX * 32] = "";
	size_t n = 0;
	s->pool.next_map = (struct fal_map){ 0 };
	if (err < 0)
		return;
	s->pool.map = *map;
	const uint32_t shards = fal_map_list(map, order);
	for (uint32_t i = 0; i < shards && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%sshard %u has %u",
				      i > 0 ? ", " : "", order[i] + 1,
				      map->of[order[i]].count);
	ps_log(s->run, "blocks have moved: %s", text);
}

/* ---- processes that join a running job --- */

/* A process joins a running job: gives it shards without blocks, with consecutive numbers
 * that no other process has. */
static void
pool_assign_empty_shards(struct ps_server *s, struct ps_member *m)
{
	const uint64_t row = UINT64_MAX >> (64 - m->max_shards);
	uint64_t taken = member_shards(s->pool.own) | fal_map_busy(&s->pool.map);
	uint32_t first = 0;
	for (size_t i = 0; i < s->pool.n; i++)
		taken |= member_shards(s->pool.v[i]);
	while (first + m->max_shards <= FAL_SHARDS_MAX && (taken & row << first) != 0)
		first++;
	if (first + m->max_shards > FAL_SHARDS_MAX) {
		m->is_standby = true;
		ps_log(s->run, "%s: no number is left for its shards", m->address);
		return;
	}
	m->first = first;
	m->count = m->max_shards;
	m->joined_late = true;
	pool_send_place(s, m);
}

/* ---- drains --- */

static uint64_t
pool_draining_shards(const struct ps_server *s)
{
	uint64_t bits = s->pool.own->is_drained ? member_shards(s->pool.own) : 0;
	for (size_t i = 0; i < s->pool.n; i++)
		bits |= s->pool.v[i]->is_drained ? member_shards(s->pool.v[i]) : 0;
	return bits;
}

/* Ends the drain, and answers the session that requested it.  `why` NULL: the drained
 * processes leave; else the drain failed for this reason, and no process leaves. */
static void
pool_end_drain(struct ps_server *s, const char *why)
{
	struct ps_pool_drain_state *d = &s->pool.drain;
	struct ps_session *session = ps_find_session(&s->sessions, d->requester);
	struct fal_msg msg = { .type = FAL_MSG_DONE };
	snprintf(msg.done.why, sizeof(msg.done.why),
		 "drained by '%s': others have its blocks", d->by);
	for (size_t i = 0; i < s->pool.n; i++) {
		struct ps_member *m = s->pool.v[i];
		char own[40];
		m->is_drained &= why == NULL;
		if (!m->is_drained)
			continue;
		ps_log(s->run, "%s at %s: drained by '%s'",
		       m->count > 0 ? member_shards_text(m, own) : "no shard", m->address,
		       d->by);
		pool_send(s, m, &msg);
		fal_chan_close(m->session->chan);
	}
	s->pool.own->is_drained &= why == NULL;
	d->is_active = d->was_refused = false;
	d->requester = 0;
	if (why != NULL)
		ps_log(s->run, "nothing is drained: %s", why);
	if (session != NULL)
		ps_reply_result(session, why, "");
}

int
ps_pool_drain(struct ps_server *s, const struct ps_session *session, const char *which,
	      struct fal_diag *why)
{
	struct ps_pool_drain_state *d = &s->pool.drain;
	struct ps_member *m = NULL;
	const bool is_number = strncmp(which, "shard:", 6) == 0;
	uint64_t number;
	if (is_number && fal_parse_u64(which + 6, 1, FAL_SHARDS_MAX, &number) == FAL_OK)
		m = pool_find_member(s, (uint32_t)number - 1);
	for (size_t i = 0; i < s->pool.n && m == NULL && !is_number; i++)
		if (strcmp(s->pool.v[i]->address, which) == 0)
			m = s->pool.v[i];
	if (d->is_active)
		return fal_diag_set(why, FAL_ESTATE, "another shard is being drained");
	if (m == NULL)
		return fal_diag_set(why, FAL_ENOENT, "'%s' is no shard of this job",
				    FAL_QUOTE(which));
	const uint64_t bits = member_shards(m), busy = fal_map_busy(&s->pool.map);
	if ((busy & bits) != 0 && (busy & ~(bits | pool_draining_shards(s))) == 0)
		return fal_diag_set(why, FAL_ESTATE, "no other process has blocks");
	m->is_drained = true;
	d->is_active = true;
	d->requester = session->id;
	snprintf(d->by, sizeof(d->by), "%s", fal_chan_name(session->chan));
	return FAL_OK;
}

void
ps_pool_cancel_drain(struct ps_server *s)
{
	if (s->pool.drain.is_active)
		pool_end_drain(s, "the job is over");
}

/* ---- placement = psld --- */

static bool
uses_psld(const struct ps_server *s)
{
	return s->job->job.placement == FAL_JOB_PLACEMENT_PSLD;
}

static void
pool_balance(struct ps_server *s)
{
	struct ps_shard_pool *p = &s->pool;
	struct fal_map map;
	struct fal_diag why;
	uint64_t may = member_shards(p->own) & ~pool_draining_shards(s);
	for (size_t i = 0; i < p->n; i++) {
		const struct ps_member *m = p->v[i];
		if (m->is_placed && !m->is_drained &&
		    (member_has_blocks(s, m) || member_knows_all_workers(s, m)))
			may |= member_shards(m);
	}
	const char *by = fal_coord_balance(s->coord, may, &map);
	if (by == NULL)
		return;
	/* Does the map give more blocks to a process that has refused some? */
	bool overfills = false;
	for (uint32_t i = 0; i < map.shards; i++) {
		const struct ps_member *m = pool_find_member(s, i);
		overfills |=
			m != NULL && m->is_full && map.of[i].count > p->map.of[i].count;
	}
	int err = overfills ? fal_diag_set(
				      &why, FAL_ELIMIT,
				      "a process that should get more has refused blocks")
			    : pool_start_move(s, &map, by, &why);
	if (err == FAL_ELIMIT && !p->memory_was_logged) {
		p->memory_was_logged = true;
		ps_log(s->run, "blocks stay where they are: %s", why.text);
	}
}

/* ---- the next move --- */

void
ps_pool_plan_moves(struct ps_server *s)
{
	struct ps_shard_pool *p = &s->pool;
	if (ps_pool_count_unplaced(s) > 0 || s->end.broken < 0 || s->end.is_leaving)
		return;
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i]->count == 0 && (!p->v[i]->is_standby || uses_psld(s)))
			pool_assign_empty_shards(s, p->v[i]);
	if (fal_coord_pending_map(s->coord) != NULL)
		return;
	if (p->drain.is_active) {
		struct fal_map map = p->map;
		const uint64_t drained = pool_draining_shards(s);
		struct fal_diag why;
		if ((fal_map_busy(&map) & drained) == 0)
			pool_end_drain(s, NULL);
		else if (p->drain.was_refused)
			pool_end_drain(
				s, "a process that should get more has refused blocks");
		else if (fal_map_drain(&map, drained) < 0)
			pool_end_drain(s, "no other process has blocks");
		else if (pool_start_move(s, &map, p->drain.by, &why) < 0)
			pool_end_drain(s, why.text);
	}
	for (size_t i = 0; i < p->n && fal_coord_pending_map(s->coord) == NULL; i++) {
		struct ps_member *m = p->v[i];
		if (!m->joined_late || !m->is_placed || m->is_standby ||
		    m->has_no_share || m->is_full || m->is_drained ||
		    member_has_blocks(s, m) || !member_knows_all_workers(s, m))
			continue;
		/* Each shard of the process gets half of the blocks of the shard that has
		 * most. */
		struct fal_map map = p->map;
		struct fal_diag why;
		uint32_t got = 0;
		while (got < m->count &&
		       fal_map_split_largest(&map, m->first + got) == FAL_OK)
			got++;
		int err = got > 0 ? pool_start_move(s, &map,
						    fal_chan_name(m->session->chan), &why)
				  : fal_diag_set(&why, FAL_ENOENT,
						 "no shard has a block to spare");
		/* FAL_OK: the move is under way; FAL_ESTATE: the job is over. */
		if (err == FAL_OK || err == FAL_ESTATE)
			continue;
		m->has_no_share = true;
		ps_log(s->run, "%s gets no block: %s", m->address, why.text);
	}
	if (uses_psld(s) && fal_coord_pending_map(s->coord) == NULL)
		pool_balance(s);
}

/* ---- images --- */

/* Takes the image that is complete, if `got` is 1; else returns `got`.  A piece goes to a
 * shard of this process, or on to another process.  FAL_EFORMAT, FAL_ENOMEM. */
static int
pool_take_image(struct ps_server *s, struct ps_member *m, int got)
{
	struct image_intake *c = &m->intake;
	const uint32_t shard = m->first + c->of.shard; /* unless it is a piece */
	struct fal_shard_set_piece piece = { c->of.epoch, c->of.first, c->of.count,
					     c->image };
	struct fal_shard_result r = { 0 };
	int err = FAL_OK;
	uint32_t first, blocks;
	if (got != 1)
		return got;
	fal_shard_set_range(s->shard_set, shard, &first, &blocks);
	if (c->of.what == FAL_FETCH_PIECE && c->of.shard >= s->pool.own->count) {
		err = pool_queue_piece(s, c->of.shard, &piece);
		c->image = piece.image;
	} else if (c->of.what == FAL_FETCH_PIECE) {
		err = fal_shard_set_graft(s->shard_set, c->of.shard, &piece, &r);
		pool_report(s, &r);
		fal_shard_result_free(&r);
	} else if (c->of.what == FAL_FETCH_MARKED) {
		s->events.on_image(s, shard, &c->image);
	} else if (c->of.first == first && c->of.count == blocks) {
		err = fal_shard_set_gather_part(s->shard_set, shard, &c->image);
	}
	fal_image_free(&c->image);
	return err;
}

static int
pool_on_image(struct ps_server *s, struct ps_member *m, const struct fal_msg *msg)
{
	const bool piece = msg->image.what == FAL_FETCH_PIECE;
	/* An image that was requested before a move may have the shard's old blocks. */
	const uint32_t blocks =
		piece ? msg->image.blocks : fal_blocks(s->job->model->params);
	if (m->intake.is_active || msg->image.shard >= FAL_SHARDS_MAX ||
	    (piece ? !member_owns_piece(s, m, msg) : msg->image.shard >= m->count) ||
	    msg->image.what < FAL_FETCH_MARKED || msg->image.what > FAL_FETCH_PIECE)
		return FAL_EFORMAT;
	return pool_take_image(s, m, image_intake_begin(&m->intake, msg, blocks));
}

const float *
ps_pool_get_params(struct ps_server *s, uint64_t version, bool *coming)
{
	struct fal_msg m = { .type = FAL_MSG_FETCH,
			     .fetch = { .what = FAL_FETCH_PARAMS, .version = version } };
	const float *params = fal_shard_set_params(s->shard_set, version);
	*coming = false;
	if (params != NULL || s->pool.n == 0)
		return params;
	*coming = true;
	if (fal_shard_set_is_gathering(s->shard_set)) /* this version, or another one */
		return NULL;
	*coming = fal_shard_set_gather(s->shard_set, version);
	if (*coming)
		pool_send_all(s, &m);
	return NULL;
}

void
ps_pool_fetch_marked(struct ps_server *s, uint64_t version)
{
	struct fal_msg m = { .type = FAL_MSG_FETCH,
			     .fetch = { .what = FAL_FETCH_MARKED, .version = version } };
	pool_send_all(s, &m);
}

/* ---- messages of processes --- */

static int
pool_on_report(struct ps_server *s, struct ps_member *m, const struct fal_msg *msg)
{
	struct fal_msg whole = *msg;
	struct fal_shard_report report;
	char text[FAL_MSG_WHY];
	uint32_t first, blocks;
	if (msg->report.shard - m->first >= m->count || s->coord == NULL)
		return FAL_ESTATE;
	fal_shard_set_range(s->shard_set, msg->report.shard, &first, &blocks);
	int err = fal_shard_codec_add(
		&m->report_codec, &whole,
		fal_shard_codec_report_most(blocks, fal_files_clock_tasks(s->job)));
	if (err == 1)
		err = fal_shard_codec_report_get(&whole, first, blocks, text, &report);
	if (err < 0 || whole.report.more != 0)
		return err;
	/* The process refuses the blocks that the next map gives it. */
	if (report.kind == FAL_REPORT_MIGRATED && report.err < 0) {
		const uint64_t drained = pool_draining_shards(s);
		char own[40];
		ps_log(s->run, "%s at %s refuses a move: %s", member_shards_text(m, own),
		       m->address, report.odd != NULL ? report.odd : "unknown");
		m->is_full = true;
		s->pool.drain.was_refused |=
			drained != 0 && (fal_map_busy(&s->pool.next_map) & drained) == 0;
	}
	pool_report(s, &(struct fal_shard_result){ &report, 1, 1 });
	fal_shard_report_free(&report);
	return FAL_OK;
}

static int
pool_on_join(struct ps_server *s, struct ps_session *session, const struct fal_msg *m,
	     struct fal_diag *why)
{
	struct ps_shard_pool *p = &s->pool;
	struct fal_addr at;
	if (session->member != NULL)
		return fal_diag_set(why, FAL_ESTATE, "a second JOIN");
	const int err = fal_msg_judge_schema(m->join.schema, why);
	if (err < 0)
		return err;
	if (m->join.shards < 1 || m->join.shards > FAL_SHARDS_MAX ||
	    m->join.address[0] == '\0')
		return fal_diag_set(why, FAL_EINVAL, "a JOIN of %u shards at '%s'",
				    m->join.shards, m->join.address);
	/* An address that no worker can dial would end every worker's session. */
	if (fal_addr_parse(m->join.address, &at, NULL) < 0 || at.kind == FAL_ADDR_EXEC)
		return fal_diag_set(why, FAL_EINVAL,
				    "a JOIN at '%s', which is no address",
				    m->join.address);
	struct ps_member *is = fal_xcalloc(1, sizeof(*is));
	FAL_XGROW(p->v, p->cap, p->n + 1);
	is->session = session;
	is->is_standby = m->join.standby != 0;
	is->max_shards = m->join.shards;
	/* Workers dial a process that listens on all addresses at the address from which
	 * the process's connection comes. */
	const char *source = fal_chan_source(session->chan),
		   *port = strrchr(m->join.address, ':');
	if (fal_addr_is_any(m->join.address) && strcmp(source, "unix") != 0)
		snprintf(is->address, sizeof(is->address),
			 strchr(source, ':') != NULL ? "[%s]%s" : "%s%s", source, port);
	else
		snprintf(is->address, sizeof(is->address), "%s", m->join.address);
	memcpy(is->public, m->join.public, sizeof(is->public));
	session->member = p->v[p->n++] = is;
	session->is_client = true;
	ps_log(s->run, "'%s' joins with %u shard%s at %s%s", fal_chan_name(session->chan),
	       is->max_shards, fal_text_plural(is->max_shards), is->address,
	       is->is_standby ? ", on standby"
	       : p->has_map   ? ", and has its part from the next boundary on"
			      : "");
	if (!p->has_map && ps_pool_count_missing(s) == 0)
		s->end.err = ps_pool_place(s);
	return FAL_OK;
}

static int
pool_on_member_msg(struct ps_server *s, struct ps_member *m, const struct fal_msg *msg)
{
	struct ps_session *session;
	switch (msg->type) {
	case FAL_MSG_PLACED:
		if (m->count == 0 || m->is_placed)
			return FAL_ESTATE;
		m->is_placed = true;
		for (size_t i = 0; i < s->sessions.n && m->joined_late; i++)
			if (s->sessions.v[i]->admission.is_open)
				pool_send_admit(s, s->sessions.v[i], m);
		return FAL_OK;
	case FAL_MSG_ADMITTED:
		session = ps_find_session(&s->sessions, msg->admitted.session);
		if (session != NULL &&
		    (session->admission.pending & member_bit(m)) != 0) {
			pool_send_map(s, session, m);
			session->admission.pending &= ~member_bit(m);
			pool_end_admission(session);
		}
		return FAL_OK;
	case FAL_MSG_REPORT:
		return pool_on_report(s, m, msg);
	case FAL_MSG_SERVED:
		return ps_shard_stats_get(&m->stats, m->first, m->count, msg);
	case FAL_MSG_IMAGE:
		return pool_on_image(s, m, msg);
	case FAL_MSG_PONG:
		return FAL_OK;
	default: /* BYTES */
		return pool_take_image(s, m, image_intake_add(&m->intake, msg));
	}
}

int
ps_pool_handle_msg(struct ps_server *s, struct ps_session *session,
		   const struct fal_msg *m, struct fal_diag *why)
{
	struct ps_member *is = session->member;
	if (m->type == FAL_MSG_JOIN)
		return pool_on_join(s, session, m, why);
	if (is == NULL || (m->type != FAL_MSG_PLACED && !is->is_placed))
		return fal_diag_set(why, FAL_ESTATE, "%s before %s",
				    fal_msg_name(m->type),
				    is == NULL ? "JOIN" : "PLACED");
	if (m->incarnation != s->run->state.incarnation)
		return fal_diag_set(why, FAL_ESTATE, "%s of incarnation %u",
				    fal_msg_name(m->type), m->incarnation);
	/* Any message shows that the process lives. */
	if (m->type == FAL_MSG_PONG && m->pong.stamp == is->ping.stamp &&
	    is->ping.is_pending)
		fal_window_add(&is->ping.round_trips, ps_now() - is->ping.owed_since);
	is->ping.owed_since = 0;
	is->ping.is_pending = false;
	int err = pool_on_member_msg(s, is, m);
	return err < 0 ? fal_diag_set(why, err, "%s: %s", fal_msg_name(m->type),
				      fal_strerror(err))
		       : FAL_OK;
}

/* ---- sessions that are gone --- */

/* The account of the restarts that processes of the key have caused. */
static struct ps_account *
restart_account(const struct ps_session *session)
{
	return ps_account_find(session->server->run->restart_accounts,
			       fal_chan_fingerprint(session->chan), "", ps_now());
}

bool
ps_pool_exceeds_restarts(const struct ps_session *session)
{
	return !ps_account_affords(restart_account(session), PS_RESTART_COST);
}

static void
member_free(struct ps_member *m)
{
	image_queue_free(&m->outgoing);
	fal_shard_codec_free(&m->report_codec);
	fal_image_free(&m->intake.image);
	free(m);
}

void
ps_pool_remove_session(struct ps_session *session, const char *why)
{
	struct ps_server *s = session->server;
	struct ps_shard_pool *p = &s->pool;
	struct ps_member *m = session->member;
	if (session->admission.is_open) {
		struct fal_msg msg = { .type = FAL_MSG_DISMISS,
				       .dismiss.session = session->id };
		pool_send_all(s, &msg);
	}
	fal_secret_free(session->admission.keys);
	session->admission.keys = NULL;
	if (m == NULL)
		return;
	session->member = NULL;
	const bool had = member_has_blocks(s, m);
	uint32_t busy = 0;
	for (size_t i = 0; i < p->n; i++)
		busy += member_has_blocks(s, p->v[i]);
	for (size_t i = 0; i < s->sessions.n && m->count > 0; i++) {
		s->sessions.v[i]->admission.pending &= ~member_bit(m);
		pool_end_admission(s->sessions.v[i]);
	}
	size_t at = 0;
	while (at < p->n && p->v[at] != m)
		at++;
	assert(at < p->n);
	memmove(p->v + at, p->v + at + 1, (--p->n - at) * sizeof(struct ps_member *));
	if (had && !s->end.is_saved && !s->end.is_stopping) {
		char own[40];
		ps_log(s->run, "%s at %s: lost: %s", member_shards_text(m, own),
		       m->address, why);
		(void)ps_account_charge(restart_account(session), PS_RESTART_COST);
		s->end.lost_processes = busy;
	} else {
		/* A move that gives blocks to the process cannot end. */
		const struct fal_map *next =
			s->coord != NULL ? fal_coord_pending_map(s->coord) : NULL;
		if (next != NULL && (fal_map_busy(next) & member_shards(m)) != 0)
			ps_pool_abort_move(s);
	}
	member_free(m);
}

void
ps_pool_free(struct ps_shard_pool *p)
{
	for (size_t i = 0; i < p->n; i++)
		member_free(p->v[i]);
	free(p->v);
	free(p->own);
}

void
ps_pool_end(struct ps_server *s, enum fal_msg_type type, const char *why)
{
	struct fal_msg m = { .type = (uint16_t)type };
	fal_text_plain(m.done.why, sizeof(m.done.why), why);
	for (size_t i = 0; i < s->pool.n; i++) {
		pool_send(s, s->pool.v[i], &m);
		fal_chan_close(s->pool.v[i]->session->chan);
	}
}
