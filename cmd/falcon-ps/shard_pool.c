/* Shards of other processes, as the coordinator's process knows them: who has joined,
 * which blocks are whose, and the streams to them (falcon-protocol(7), SHARDS).
 *
 * Blocks that move (design.md, D38, D39) travel by way of the coordinator: each process
 * has one stream, and the coordinator's own shards are among those that give and get. */
#include "base/mem.h"
#include "base/minmax.h"
#include "base/parse.h"
#include "base/text.h"
#include "crypto/secret.h"
#include "server.h"
#include "wire/bfp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	GRACE_MS = 5000, /* for those to come back who had blocks, or others */
	EVERY_MS = 1000  /* between questions whether processes live */
};

/* ---- sending ----------------------------------------------------------------------- */

/* The process has its part, and hears orders. */
static bool
fleet_works(const struct ps_member *m)
{
	return m->count > 0 && m->placed;
}

/* A process that does not keep up, or is gone, is closed. */
static void
fleet_say(struct ps_server *s, struct ps_member *m, struct fal_msg *msg)
{
	msg->incarnation = s->run->state.incarnation;
	ps_say(m->session->chan, msg, FAL_SEND_CONTROL);
}

/* Sends the message to every process that works. */
static void
fleet_say_all(struct ps_server *s, struct fal_msg *msg)
{
	for (size_t i = 0; i < s->fleet.n; i++)
		if (fleet_works(s->fleet.v[i]))
			fleet_say(s, s->fleet.v[i], msg);
}

/* The process that has the shard; NULL: the shard is this process's, or nobody's. */
static struct ps_member *
fleet_of(const struct ps_server *s, uint32_t shard)
{
	for (size_t i = 0; i < s->fleet.n; i++)
		if (shard - s->fleet.v[i]->first < s->fleet.v[i]->count)
			return s->fleet.v[i];
	return NULL;
}

void
ps_fleet_offer(struct ps_server *s)
{
	for (size_t i = 0; i < s->fleet.n; i++)
		if (fleet_works(s->fleet.v[i]))
			fal_chan_offer(s->fleet.v[i]->session->chan);
}

/* "shard 3" or "shards 3 to 5". */
static const char *
fleet_which(const struct ps_member *m, char out[static 40])
{
	if (m->count == 1)
		snprintf(out, 40, "shard %u", m->first + 1);
	else
		snprintf(out, 40, "shards %u to %u", m->first + 1, m->first + m->count);
	return out;
}

/* The process's shards, as bits. */
static uint64_t
fleet_bits(const struct ps_member *m)
{
	return m->count == 0 ? 0 : (UINT64_MAX >> (64 - m->count)) << m->first;
}

static uint64_t
own_bits(const struct ps_server *s)
{
	return s->fleet.own == 0 ? 0 : UINT64_MAX >> (64 - s->fleet.own);
}

/* The process has a block. */
static bool
fleet_has(const struct ps_server *s, const struct ps_member *m)
{
	return (fal_map_busy(&s->fleet.map) & fleet_bits(m)) != 0;
}

/* ---- workers' seats: a process knows a worker before the worker dials it ---------- */

/* The worker's key to the process. */
static uint8_t *
seat(const struct ps_session *session, const struct ps_member *m)
{
	return session->seats + (size_t)m->first * FAL_KEY_BYTES;
}

/* The process in ps_session.unseated. */
static uint64_t
bit(const struct ps_member *m)
{
	return UINT64_C(1) << m->first;
}

/* The process knows the worker: the worker learns where it is. */
static void
tell_map(struct ps_server *s, struct ps_session *session, const struct ps_member *is)
{
	struct fal_msg m = { .type = FAL_MSG_MAP,
			     .incarnation = s->run->state.incarnation,
			     .map = { .first = is->first + 1, .count = is->count } };
	memcpy(m.map.address, is->address, sizeof(m.map.address));
	memcpy(m.map.public, is->public, sizeof(m.map.public));
	memcpy(m.map.psk, seat(session, is), sizeof(m.map.psk));
	snprintf(m.map.name, sizeof(m.map.name), "session%u", session->id);
	ps_say(session->chan, &m, FAL_SEND_CONTROL);
	fal_secret_wipe(&m, sizeof(m));
}

/* A worker that all processes know gets the texts. */
static void
end_seating(struct ps_server *s, struct ps_session *session)
{
	if (!session->seated || session->unseated != 0)
		return;
	fal_secret_free(session->seats);
	session->seats = NULL;
	if (session->mapped)
		return;
	session->mapped = session->texts_due = true;
	ps_more(s, session);
}

/* Draws the key between worker and process, and tells the process. */
static void
seat_at(struct ps_server *s, struct ps_session *session, struct ps_member *is)
{
	struct fal_msg m = { .type = FAL_MSG_ADMIT, .admit.session = session->id };
	if (session->seats == NULL)
		session->seats = fal_secret_alloc((size_t)FAL_SHARDS_MAX * FAL_KEY_BYTES);
	fal_random_bytes(seat(session, is), FAL_KEY_BYTES);
	session->unseated |= bit(is);
	memcpy(m.admit.psk, seat(session, is), sizeof(m.admit.psk));
	fleet_say(s, is, &m);
	fal_secret_wipe(&m, sizeof(m));
}

void
ps_fleet_admit(struct ps_server *s, struct ps_session *session)
{
	const struct ps_fleet *f = &s->fleet;
	session->seated = true;
	for (size_t i = 0; i < f->n; i++)
		if (fleet_works(f->v[i]))
			seat_at(s, session, f->v[i]);
	end_seating(s, session);
}

/* Every worker that is here knows the process, which knows them all. */
static bool
fleet_seated_all(const struct ps_server *s, const struct ps_member *m)
{
	size_t i = 0;
	while (i < s->sessions.n && (s->sessions.v[i]->unseated & bit(m)) == 0)
		i++;
	return i == s->sessions.n;
}

/* ---- whether processes live ------------------------------------------------------- *
 *
 * Each is asked, and whoever leaves that unanswered for longer than it may is lost.
 *
 * A process whose stream is open and which does nothing would hold the clock until the
 * stream's own signs of life end it.  The process's deadline follows from the times that
 * it took before, as other deadlines do (design.md, D7): the median and six spreads, a
 * second at least, and ten times that. */

#define FLOOR_S 1.0
#define TIMES 10 /* the slack of a deadline */

static double
deadline(struct ps_asked *a)
{
	double most = 0;
	if (a->took.n > 0) {
		fal_window_judge(&a->took);
		most = fal_max(a->took.most, 4 * a->took.mid);
	}
	return TIMES * fal_max(most, FLOOR_S);
}

static void
on_ask(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	struct ps_fleet *f = &s->fleet;
	const double now = ps_now();
	/* No timer tick for three seconds: this process was suspended, and heard nothing.
	 */
	const bool late = now - f->asked > 3 * EVERY_MS / 1e3;
	f->asked = now;
	for (size_t i = 0; i < f->n && !s->stopping && !s->saved; i++) {
		struct ps_member *m = f->v[i];
		struct ps_asked *a = &m->asked;
		if (!fleet_works(m))
			continue;
		/* Bytes that are still to be sent come before a question: a process that
		 * takes none of them owes as much as an answer. */
		const struct fal_chan_stat is = fal_chan_stat(m->session->chan);
		const uint64_t taken = is.tx - (is.held - is.queued);
		if (is.held > 0 && (a->at <= 0 || taken != a->taken))
			a->at = now;
		a->taken = taken;
		if (a->at > 0 && late)
			a->at = now;
		if (a->at > 0 && now - a->at > deadline(a)) {
			struct fal_diag why;
			fal_diag_set(&why, FAL_EIO, "it does not answer for %.0f s",
				     now - a->at);
			ps_lose(m->session, why.text); /* `m` is gone */
			return;
		}
		if (is.held > 0 || a->is)
			continue;
		struct fal_msg ping = { .type = FAL_MSG_PING, .ping.stamp = ++a->stamp };
		a->at = now;
		a->is = true;
		fleet_say(s, m, &ping);
	}
}

/* ---- pieces ------------------------------------------------------------------------ */

/* Queues the piece for the process that has shard `to`, and takes its image; where that
 * process is gone, does nothing.  `server` is a struct ps_server. */
static int
fleet_give_piece(void *server, uint32_t to, struct fal_shard_set_piece *piece)
{
	struct ps_member *m = fleet_of(server, to);
	if (m == NULL)
		return FAL_OK;
	image_queue_add_piece(&m->images, to, piece);
	ps_fleet_more(m->session);
	return FAL_OK;
}

/* The piece that the message begins lies within a shard of the process. */
static bool
fleet_owns(const struct ps_server *s, const struct ps_member *m,
	   const struct fal_msg *msg)
{
	const uint32_t first = msg->image.first, count = msg->image.blocks;
	for (uint32_t i = m->first; i < m->first + m->count; i++) {
		const struct fal_extent *e = &s->fleet.map.of[i];
		if (count > 0 && count <= e->count && first >= e->first &&
		    first - e->first <= e->count - count)
			return true;
	}
	return false;
}

/* A piece has come: for a shard that is here, or on to another process.  FAL_EFORMAT,
 * FAL_ENOMEM. */
static int
fleet_piece(struct ps_server *s, struct image_intake *in)
{
	struct fal_shard_set_piece piece = { in->of.epoch, in->of.first, in->of.count,
					     in->image };
	if (in->of.shard >= s->fleet.own) {
		int err = fleet_give_piece(s, in->of.shard, &piece);
		in->image = piece.image;
		return err;
	}
	int err = fal_shard_set_graft(s->shard_set, in->of.shard, &piece);
	if (err == FAL_OK && s->coord != NULL && !s->saved && s->broken == FAL_OK)
		ps_fail(s, fal_coord_heard(s->coord, ps_now()), "scheduler");
	return err;
}

/* ---- of fal_coord_shards ----------------------------------------------------------- */

static int
order(void *arg, const struct fal_shard_order *o)
{
	struct ps_server *s = arg;
	struct ps_fleet *f = &s->fleet;
	struct fal_buf msg = { 0 };
	int err = fal_shard_codec_order(s->run->state.incarnation, o, &msg);
	for (size_t i = 0; i < f->n; i++) {
		struct fal_chan *chan = f->v[i]->session->chan;
		if (fleet_works(f->v[i]) &&
		    (err < 0 || fal_chan_send(chan, &msg, FAL_SEND_CONTROL) < 0))
			fal_chan_close(chan);
	}
	fal_buf_free(&msg);
	if (o->kind == FAL_ORDER_STEP) /* the order leaves before our own shards step */
		ps_fleet_offer(s);
	if (o->kind != FAL_ORDER_OPEN) /* the order may drop a version that is wanted */
		ps_publish_wanted(s);
	struct fal_shard_order own = *o;
	const uint64_t began = uv_hrtime();
	err = s->above != NULL ? above_order(s->above, &own) : FAL_OK;
	if (err == FAL_OK)
		err = fal_shard_set_order(s->shard_set, &own);
	if (err == FAL_OK && o->kind == FAL_ORDER_MIGRATE_BEGIN) {
		f->to = *o->map;
		err = fal_shard_set_pieces(s->shard_set, fleet_give_piece, s);
	}
	if (err == FAL_OK && o->kind == FAL_ORDER_COMMIT)
		ps_wants_moved(&s->wants);
	for (size_t i = 0; i < f->n && err == FAL_OK && o->kind == FAL_ORDER_ABORT; i++)
		err = image_queue_abort(&f->v[i]->images);
	s->wants.served.service += uv_hrtime() - began;
	return err;
}

static int
push(void *arg, uint32_t session, const struct fal_msg *m, struct fal_diag *diag)
{
	struct ps_server *s = arg;
	const uint64_t began = uv_hrtime();
	ps_served_push(&s->wants.served, s->shard_set, &m->push.records);
	int err = fal_shard_set_msg(s->shard_set, session, m, diag);
	s->wants.served.service += uv_hrtime() - began;
	return err;
}

static bool
next(void *arg, uint32_t *shard, struct fal_shard_say *out)
{
	struct ps_server *s = arg;
	struct ps_fleet *f = &s->fleet;
	if (fal_shard_set_next(s->shard_set, shard, out))
		return true;
	if (!f->unheard) {
		fal_shard_say_free(&f->said);
		return false;
	}
	f->unheard = false;
	*shard = f->said_by;
	*out = f->said;
	return true;
}

static void
served_by(void *arg, uint32_t shard, struct fal_coord_served *out)
{
	const struct ps_server *s = arg;
	const struct ps_member *m = fleet_of(s, shard);
	const struct ps_served *by = &s->wants.served;
	uint32_t first;
	fal_shard_set_range(s->shard_set, shard, &first, &out->blocks);
	if (m != NULL) {
		out->name = fal_chan_name(m->session->chan);
		out->address = m->address;
		by = &m->served;
	}
	out->rx = by->rx[shard];
	out->tx = by->tx[shard];
	out->service = (double)by->service * 1e-9;
	out->queue = (double)by->queue * 1e-9;
}

const struct fal_coord_shards ps_fleet_ops = { NULL, order, push, next, served_by };

void
ps_fleet_publish(struct ps_server *s, uint32_t peer, const struct fal_coord_model *model)
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
	if (s->fleet.n == 0)
		return;
	for (uint32_t i = 0; i < model->names; i++)
		fal_put_u64(&named, model->named[i]);
	if (named.err < 0)
		fal_out_of_memory();
	m.publish.named = (struct fal_tail){ named.p, named.n };
	fleet_say_all(s, &m);
	fal_buf_free(&named);
}

/* ---- placing ----------------------------------------------------------------------- */

uint32_t
ps_fleet_waits(const struct ps_server *s)
{
	const struct ps_fleet *f = &s->fleet;
	return !f->cut && f->n < f->wanted ? f->wanted - (uint32_t)f->n : 0;
}

void
ps_fleet_more(struct ps_session *session)
{
	struct ps_member *m = session->member;
	if (m != NULL)
		image_queue_send(&m->images, session->server->run->state.incarnation,
				 session->chan, NULL, NULL);
}

/* Sends PLACE and the texts; images go when there is room. */
static void
fleet_tell_place(struct ps_server *s, struct ps_member *m)
{
	const struct fal_files *j = s->job;
	struct fal_msg msg = { .type = FAL_MSG_PLACE,
			       .place = { .epoch = s->fleet.map.epoch,
					  .first = m->first,
					  .count = m->count,
					  .tasks = fal_files_tasks(j),
					  .job_n = (uint32_t)j->job_text.n,
					  .model_n = (uint32_t)j->model_text.n } };
	struct fal_buf cut = { 0 };
	struct fal_map map = s->fleet.map;
	/* Numbers above the map have no block yet. */
	if (map.shards < m->first + m->count)
		map.shards = m->first + m->count;
	msg.place.of = map.shards;
	fal_map_put(&cut, &map);
	if (cut.err < 0)
		fal_out_of_memory();
	msg.place.map = (struct fal_tail){ cut.p, cut.n };
	memcpy(msg.place.key, s->tickets.key, sizeof(msg.place.key));
	fleet_say(s, m, &msg);
	fal_secret_wipe(&msg, sizeof(msg));
	fal_buf_free(&cut);
	ps_send_text(m->session, FAL_TEXT_JOB, &j->job_text);
	ps_send_text(m->session, FAL_TEXT_MODEL, &j->model_text);
	ps_fleet_more(m->session);
}

/* Gives a process its shards. */
static int
give(struct ps_server *s, struct ps_member *m, uint32_t first, uint32_t count)
{
	m->first = first;
	m->count = count;
	char own[40];
	fal_cli_err(PROG, "%s: %s of %u: %s", s->job->job.name, fleet_which(m, own),
		    fal_shard_set_shards(s->shard_set), m->address);
	fleet_tell_place(s, m);
	for (uint32_t i = first; i < first + count; i++) {
		struct fal_shard_set_piece piece;
		if (fal_shard_set_give(s->shard_set, i, &piece) < 0 ||
		    fleet_give_piece(s, i, &piece) < 0)
			return FAL_ENOMEM;
	}
	return FAL_OK;
}

/* The shard_set of all shards, as the job begins, or goes on: its rule places the blocks
 * on so many, and whoever is given none is no shard of it.  `before` gets how many shards
 * there are of those before each. */
static int
make_rack(struct ps_server *s, uint32_t places, uint32_t before[FAL_SHARDS_MAX + 1])
{
	const struct fal_files *j = s->job;
	struct fal_map *map = &s->fleet.map;
	struct fal_shard_set_conf shard_set = fal_files_rack_conf(j, places);
	fal_files_map(j, places, map, before);
	map->epoch = s->tickets.epoch;
	shard_set.map = map;
	shard_set.tickets = s->tickets;
	shard_set.each.parallel = fal_threads_parallel(s->run->threads);
	shard_set.each.at_once = &s->near;
	s->shard_set = fal_files_rack(j, &shard_set);
	fal_secret_wipe(&shard_set.tickets, sizeof(shard_set.tickets));
	if (s->shard_set == NULL)
		return fal_diag_set(s->diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	return s->found == NULL ? FAL_OK
				: fal_snapshot_load(s->run->snapshots, s->found,
						    s->shard_set, s->diag);
}

uint32_t
ps_fleet_unplaced(const struct ps_server *s)
{
	uint32_t n = 0;
	for (size_t i = 0; i < s->fleet.n; i++) {
		const struct ps_member *m = s->fleet.v[i];
		n += m->count > 0 && !m->placed && !m->late;
	}
	return n;
}

int
ps_fleet_place(struct ps_server *s)
{
	struct ps_fleet *f = &s->fleet;
	uint32_t before[FAL_SHARDS_MAX + 1];
	/* Processes that came to take part; then, of those on standby, as many as are
	 * missing. */
	struct ps_member *part[FAL_SHARDS_MAX];
	uint32_t parts = 0, at = (uint32_t)s->run->opt.shards, places = at;
	for (int standby = 0; standby < 2; standby++)
		for (size_t i = 0; i < f->n && places < FAL_SHARDS_MAX; i++)
			if (f->v[i]->standby == standby &&
			    (!standby || parts < f->wanted)) {
				part[parts++] = f->v[i];
				places += f->v[i]->shards;
			}
	places = places < FAL_SHARDS_MAX ? places : FAL_SHARDS_MAX;
	f->places = places;
	f->cut = true;
	uv_timer_stop(&f->grace);
	s->tickets = (struct fal_ticket_in){ .epoch = 1,
					     .incarnation = s->run->state.incarnation };
	fal_random_bytes(s->tickets.key, sizeof(s->tickets.key));
	int err = make_rack(s, places, before);
	if (err < 0)
		return err;
	f->own = before[at];
	for (uint32_t i = 0; i < parts; i++) {
		struct ps_member *m = part[i];
		const uint32_t left = places - at;
		const uint32_t end = at + (m->shards < left ? m->shards : left);
		m->idle = before[end] == before[at]; /* so the rule has it */
		if (!m->idle && give(s, m, before[at], before[end] - before[at]) < 0)
			return fal_diag_set(s->diag, FAL_ENOMEM, "%s",
					    fal_strerror(FAL_ENOMEM));
		at = end;
	}
	return ps_fleet_unplaced(s) > 0 ? FAL_OK : ps_begin(s);
}

/* Enough processes are here, or the wait for them is over. */
static void
place_now(struct ps_server *s)
{
	int err = ps_fleet_place(s);
	if (err < 0)
		ps_abandon(s, err);
}

static void
on_grace(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	s->fleet.wanted = (uint32_t)s->run->opt.min_shards;
	if (!s->stopping && !s->fleet.cut && ps_fleet_waits(s) == 0)
		place_now(s);
}

void
ps_fleet_init(struct ps_server *s)
{
	struct ps_fleet *f = &s->fleet;
	const struct ps_run *r = s->run;
	const uint32_t least = (uint32_t)r->opt.min_shards,
		       had = r->opt.upstream != NULL ? 0 : r->had;
	uv_timer_init(s->loop, &f->grace);
	f->grace.data = s;
	uv_timer_init(s->loop, &f->ask);
	f->ask.data = s;
	f->asked = ps_now();
	uv_timer_start(&f->ask, on_ask, EVERY_MS, EVERY_MS);
	uv_unref((uv_handle_t *)&f->ask);
	f->wanted = least > had ? least : had;
	if (f->wanted > 0)
		fal_cli_err(PROG, "%s: waits for %u process%s of shards%s",
			    s->job->job.name, f->wanted, f->wanted > 1 ? "es" : "",
			    had > least ? ", as before, for a while" : "");
	if (had > least)
		uv_timer_start(&f->grace, on_grace, GRACE_MS, 0);
}

void
ps_fleet_close(struct ps_server *s)
{
	ps_close(&s->fleet.grace);
	ps_close(&s->fleet.ask);
}

/* ---- a move ------------------------------------------------------------------------ */

/* Asks for the move.  FAL_ELIMIT: there is no memory for it; FAL_ESTATE: the job is over,
 * or another move is under way.  Other errors end the job. */
static int
move_to(struct ps_server *s, const struct fal_map *to, const char *by,
	struct fal_diag *why)
{
	const struct fal_policy *policy = fal_coord_policy_now(s->coord);
	const struct fal_map *now = &s->fleet.map;
	struct fal_shard_set_conf part = fal_files_rack_conf(s->job, 1);
	struct fal_diag need;
	size_t blocks = 0;
	/* Our own shards have both their blocks and their next ones for a while. */
	for (uint32_t i = 0; i < s->fleet.own; i++)
		if (to->of[i].first != now->of[i].first ||
		    to->of[i].count != now->of[i].count)
			blocks += to->of[i].count;
	if (blocks * FAL_BLOCK < part.each.n)
		part.each.n = blocks * FAL_BLOCK;
	const struct ps_need_part_of of = { .shard_set = &part, .rule = &policy->rule };
	const uint64_t more = blocks > 0 ? ps_need_part(&of) : 0;
	if (ps_affords(s, NULL, 0, more, &need) < 0)
		return fal_diag_set(why, FAL_ELIMIT, "with what moves here %s",
				    need.text);
	int err = fal_coord_move(s->coord, ps_now(), to, by, why);
	if (err < 0 && err != FAL_ESTATE)
		ps_fail(s, err, "a move");
	return err;
}

void
ps_fleet_move_abort(struct ps_server *s)
{
	if (s->coord != NULL && s->broken == FAL_OK && !s->saved)
		ps_fail(s, fal_coord_move_abort(s->coord, ps_now()), "scheduler");
}

bool
ps_fleet_moving(const struct ps_server *s, struct fal_diag *to)
{
	const struct fal_map *map = &s->fleet.map, *next = &s->fleet.to;
	size_t n = 0;
	to->text[0] = '\0';
	for (uint32_t i = 0; i < next->shards; i++) {
		const struct ps_member *m = fleet_of(s, i);
		const struct fal_extent *a = &map->of[i], *b = &next->of[i];
		/* The shard gets no block that it has not. */
		if (b->count == 0 ||
		    (b->first >= a->first && b->first + b->count <= a->first + a->count))
			continue;
		const int more = snprintf(to->text + n, sizeof(to->text) - n,
					  "%sshard %u at %s", n > 0 ? ", " : "", i + 1,
					  m != NULL ? m->address : "this one");
		n += more > 0 && n + (size_t)more < sizeof(to->text) ? (size_t)more : 0;
	}
	return n > 0;
}

void
ps_fleet_moved(void *arg, const struct fal_map *map, int err)
{
	struct ps_server *s = arg;
	uint32_t order[FAL_SHARDS_MAX];
	char text[FAL_SHARDS_MAX * 32] = "";
	size_t n = 0;
	s->fleet.to = (struct fal_map){ 0 };
	if (err < 0)
		return;
	s->fleet.map = *map;
	const uint32_t shards = fal_map_in_order(map, order);
	for (uint32_t i = 0; i < shards && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%sshard %u has %u",
				      i > 0 ? ", " : "", order[i] + 1,
				      map->of[order[i]].count);
	fal_cli_err(PROG, "%s: blocks have moved: %s", s->job->job.name, text);
}

/* ---- who joins --------------------------------------------------------------------- */

/* Tells a process that joins a running job of the job: shards without blocks, by numbers
 * in a row that nobody has. */
static void
call_in(struct ps_server *s, struct ps_member *m)
{
	const uint64_t row = UINT64_MAX >> (64 - m->shards);
	uint64_t taken = own_bits(s) | fal_map_busy(&s->fleet.map);
	uint32_t first = 0;
	for (size_t i = 0; i < s->fleet.n; i++)
		taken |= fleet_bits(s->fleet.v[i]);
	while (first + m->shards <= FAL_SHARDS_MAX && (taken & row << first) != 0)
		first++;
	if (first + m->shards > FAL_SHARDS_MAX) {
		m->standby = true;
		fal_cli_err(PROG, "%s: %s: no number is left for its shards",
			    s->job->job.name, m->address);
		return;
	}
	m->first = first;
	m->count = m->shards;
	m->late = true;
	fleet_tell_place(s, m);
}

/* Each shard of the process gets half of the blocks of the shard that has most. */
static void
enter(struct ps_server *s, struct ps_member *m)
{
	struct fal_map map = s->fleet.map;
	struct fal_diag why;
	uint32_t got = 0;
	while (got < m->count && fal_map_enter(&map, m->first + got) == FAL_OK)
		got++;
	int err = got > 0 ? move_to(s, &map, fal_chan_name(m->session->chan), &why)
			  : fal_diag_set(&why, FAL_ENOENT, "nobody has a block to spare");
	if (err == FAL_OK || err == FAL_ESTATE) /* under way; or the job is over */
		return;
	m->idle = true;
	fal_cli_err(PROG, "%s: %s gets no block: %s", s->job->job.name, m->address,
		    why.text);
}

/* ---- who is drained ---------------------------------------------------------------- */

static uint64_t
leaving(const struct ps_server *s)
{
	uint64_t bits = s->fleet.drain.own ? own_bits(s) : 0;
	for (size_t i = 0; i < s->fleet.n; i++)
		bits |= s->fleet.v[i]->drained ? fleet_bits(s->fleet.v[i]) : 0;
	return bits;
}

/* Ends the drain: the drained processes may go (`why` NULL), or nothing is drained.  The
 * session that asked learns which. */
static void
end_drain(struct ps_server *s, const char *why)
{
	struct ps_drain *d = &s->fleet.drain;
	struct ps_session *session = ps_session_find(&s->sessions, d->asks);
	struct fal_msg msg = { .type = FAL_MSG_DONE };
	snprintf(msg.done.why, sizeof(msg.done.why),
		 "drained by '%s': others have its blocks", d->by);
	for (size_t i = 0; i < s->fleet.n; i++) {
		struct ps_member *m = s->fleet.v[i];
		char own[40];
		m->drained &= why == NULL;
		if (!m->drained)
			continue;
		fal_cli_err(PROG, "%s: %s at %s: drained by '%s'", s->job->job.name,
			    m->count > 0 ? fleet_which(m, own) : "no shard", m->address,
			    d->by);
		fleet_say(s, m, &msg);
		fal_chan_close(m->session->chan);
	}
	d->own &= why == NULL;
	d->any = d->refused = false;
	d->asks = 0;
	if (why != NULL)
		fal_cli_err(PROG, "%s: nothing is drained: %s", s->job->job.name, why);
	if (session != NULL)
		ps_control_answer(session, why, "");
}

static void
drain(struct ps_server *s)
{
	struct fal_map map = s->fleet.map;
	const uint64_t bits = leaving(s);
	struct fal_diag why;
	if ((fal_map_busy(&map) & bits) == 0)
		end_drain(s, NULL);
	else if (s->fleet.drain.refused)
		end_drain(s, "a shard that should have more cannot");
	else if (fal_map_drain(&map, bits) < 0)
		end_drain(s, "nobody else has blocks");
	else if (move_to(s, &map, s->fleet.drain.by, &why) < 0)
		end_drain(s, why.text);
}

/* The process cannot have what it should by the next map. */
static void
fleet_refused(struct ps_server *s, struct ps_member *m, const char *why)
{
	char own[40];
	fal_cli_err(PROG, "%s: %s at %s refuses a move: %s", s->job->job.name,
		    fleet_which(m, own), m->address, why != NULL ? why : "unknown");
	m->full = true;
	if (leaving(s) != 0 && (fal_map_busy(&s->fleet.to) & leaving(s)) == 0)
		s->fleet.drain.refused = true;
}

/* Finds the process by `which`: *m, or NULL for this process. */
static int
find(const struct ps_server *s, const char *which, struct ps_member **m,
     struct fal_diag *why)
{
	uint64_t number = 0;
	*m = NULL;
	if (strncmp(which, "shard:", 6) == 0) {
		if (fal_parse_u64(which + 6, 1, FAL_SHARDS_MAX, &number) < 0)
			return fal_diag_set(why, FAL_ENOENT, "'%s' is no shard",
					    FAL_QUOTE(which));
		*m = fleet_of(s, (uint32_t)number - 1);
		if (*m != NULL || number <= s->fleet.own)
			return FAL_OK;
	}
	for (size_t i = 0; i < s->fleet.n && number == 0; i++)
		if (strcmp(s->fleet.v[i]->address, which) == 0) {
			*m = s->fleet.v[i];
			return FAL_OK;
		}
	return fal_diag_set(why, FAL_ENOENT, "'%s' is no shard of this job",
			    FAL_QUOTE(which));
}

int
ps_fleet_drain(struct ps_server *s, const struct ps_session *session, const char *which,
	       struct fal_diag *why)
{
	struct ps_drain *d = &s->fleet.drain;
	struct ps_member *m;
	if (d->any)
		return fal_diag_set(why, FAL_ESTATE, "another shard is being drained");
	int err = find(s, which, &m, why);
	if (err < 0)
		return err;
	const uint64_t bits = m != NULL ? fleet_bits(m) : own_bits(s),
		       busy = fal_map_busy(&s->fleet.map);
	if ((busy & bits) != 0 && (busy & ~(bits | leaving(s))) == 0)
		return fal_diag_set(why, FAL_ESTATE, "nobody else has blocks");
	if (m != NULL)
		m->drained = true;
	else
		d->own = true;
	d->any = true;
	d->asks = session->id;
	snprintf(d->by, sizeof(d->by), "%s", fal_chan_name(session->chan));
	return FAL_OK;
}

void
ps_fleet_drain_over(struct ps_server *s)
{
	if (s->fleet.drain.any)
		end_drain(s, "the job is over");
}

/* ---- placement = psld -------------------------------------------------------------- */

static bool
balances(const struct ps_server *s)
{
	return s->job->job.placement == FAL_JOB_PLACEMENT_PSLD;
}

/* The map gives blocks to a process that has refused more. */
static bool
overfills(const struct ps_server *s, const struct fal_map *map)
{
	for (uint32_t i = 0; i < map->shards; i++) {
		const struct ps_member *m = fleet_of(s, i);
		if (m != NULL && m->full && map->of[i].count > s->fleet.map.of[i].count)
			return true;
	}
	return false;
}

static void
balance(struct ps_server *s)
{
	struct ps_fleet *f = &s->fleet;
	struct fal_map map;
	struct fal_diag why;
	uint64_t may = own_bits(s) & ~leaving(s);
	for (size_t i = 0; i < f->n; i++) {
		const struct ps_member *m = f->v[i];
		if (m->placed && !m->drained &&
		    (fleet_has(s, m) || fleet_seated_all(s, m)))
			may |= fleet_bits(m);
	}
	const char *by = fal_coord_balance(s->coord, may, &map);
	if (by == NULL)
		return;
	int err = overfills(s, &map)
			  ? fal_diag_set(&why, FAL_ELIMIT, "who should have more cannot")
			  : move_to(s, &map, by, &why);
	if (err == FAL_ELIMIT && !f->tight) {
		f->tight = true;
		fal_cli_err(PROG, "%s: blocks stay where they are: %s", s->job->job.name,
			    why.text);
	}
}

/* ---- after an event ---------------------------------------------------------------- */

void
ps_fleet_moves(struct ps_server *s)
{
	struct ps_fleet *f = &s->fleet;
	if (ps_fleet_unplaced(s) > 0 || s->broken < 0 || s->leaving)
		return;
	for (size_t i = 0; i < f->n; i++)
		if (f->v[i]->count == 0 && (!f->v[i]->standby || balances(s)))
			call_in(s, f->v[i]);
	if (fal_coord_next_map(s->coord) != NULL)
		return;
	if (f->drain.any)
		drain(s);
	for (size_t i = 0; i < f->n && fal_coord_next_map(s->coord) == NULL; i++) {
		struct ps_member *m = f->v[i];
		if (m->late && m->placed && !m->standby && !m->idle && !m->full &&
		    !m->drained && !fleet_has(s, m) && fleet_seated_all(s, m))
			enter(s, m);
	}
	if (balances(s) && fal_coord_next_map(s->coord) == NULL)
		balance(s);
}

/* ---- images ------------------------------------------------------------------------ */

/* Takes the image that has come, if `got` is 1; else returns `got`. */
static int
on_whole(struct ps_server *s, struct ps_member *m, int got)
{
	struct image_intake *c = &m->coming;
	int err = FAL_OK;
	uint32_t first, blocks;
	if (got != 1)
		return got;
	fal_shard_set_range(s->shard_set, m->first + c->of.shard, &first, &blocks);
	if (c->of.what == FAL_FETCH_PIECE)
		err = fleet_piece(s, c);
	else if (c->of.what == FAL_FETCH_MARKED)
		ps_keep_image(s, m->first + c->of.shard, &c->image);
	else if (c->of.first == first && c->of.count == blocks)
		err = fal_shard_set_fill(s->shard_set, m->first + c->of.shard, &c->image);
	fal_image_free(&c->image);
	return err;
}

static int
on_image(struct ps_server *s, struct ps_member *m, const struct fal_msg *msg)
{
	const bool piece = msg->image.what == FAL_FETCH_PIECE;
	/* An image that was asked for before a move may be of the blocks that the shard
	 * had then. */
	const uint32_t blocks =
		piece ? msg->image.blocks : fal_blocks(s->job->model->params);
	if (m->coming.any || msg->image.shard >= FAL_SHARDS_MAX ||
	    (piece ? !fleet_owns(s, m, msg) : msg->image.shard >= m->count) ||
	    msg->image.what < FAL_FETCH_MARKED || msg->image.what > FAL_FETCH_PIECE)
		return FAL_EFORMAT;
	return on_whole(s, m, image_intake_begin(&m->coming, msg, blocks));
}

const float *
ps_fleet_params(struct ps_server *s, uint64_t version, bool *coming)
{
	struct fal_msg m = { .type = FAL_MSG_FETCH,
			     .fetch = { .what = FAL_FETCH_PARAMS, .version = version } };
	const float *params = fal_shard_set_params(s->shard_set, version);
	*coming = false;
	if (params != NULL || s->fleet.n == 0)
		return params;
	*coming = true;
	if (fal_shard_set_gathers(s->shard_set)) /* this one, or another one first */
		return NULL;
	*coming = fal_shard_set_gather(s->shard_set, version);
	if (*coming)
		fleet_say_all(s, &m);
	return NULL;
}

void
ps_fleet_fetch_marked(struct ps_server *s, uint64_t version)
{
	struct fal_msg m = { .type = FAL_MSG_FETCH,
			     .fetch = { .what = FAL_FETCH_MARKED, .version = version } };
	fleet_say_all(s, &m);
}

/* ---- what they say ----------------------------------------------------------------- */

static int
on_say(struct ps_server *s, struct ps_member *m, const struct fal_msg *msg)
{
	struct ps_fleet *f = &s->fleet;
	struct fal_msg whole = *msg;
	uint32_t first, blocks;
	int err = msg->say.shard < m->count && s->coord != NULL ? FAL_OK : FAL_ESTATE;
	if (err < 0 || s->saved || s->broken < 0) /* nobody listens any more */
		return err;
	const uint32_t shard = m->first + msg->say.shard;
	fal_shard_set_range(s->shard_set, shard, &first, &blocks);
	err = fal_shard_codec_add(&m->post, &whole,
				  fal_shard_codec_say_most(blocks,
							   fal_files_tasks(s->job)));
	if (err <= 0)
		return err;
	fal_shard_say_free(&f->said);
	err = fal_shard_codec_say_get(&whole, first, blocks, m->odd, &f->said);
	if (err < 0)
		return err;
	if (f->said.kind == FAL_SAY_MIGRATED && f->said.err < 0)
		fleet_refused(s, m, f->said.odd);
	f->said_by = shard;
	f->unheard = true;
	ps_fail(s, fal_coord_heard(s->coord, ps_now()), "scheduler");
	return FAL_OK;
}

static int
on_placed(struct ps_server *s, struct ps_member *m)
{
	if (m->count == 0 || m->placed)
		return FAL_ESTATE;
	m->placed = true;
	for (size_t i = 0; i < s->sessions.n && m->late; i++)
		if (s->sessions.v[i]->seated)
			seat_at(s, s->sessions.v[i], m);
	if (m->late || ps_fleet_unplaced(s) > 0)
		return FAL_OK;
	int err = ps_begin(s);
	if (err < 0)
		ps_abandon(s, err);
	return FAL_OK;
}

static int
fleet_join(struct ps_server *s, struct ps_session *session, const struct fal_msg *m,
	   struct fal_diag *why)
{
	struct ps_fleet *f = &s->fleet;
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
	/* An address that no worker can dial would end every session. */
	if (fal_addr_parse(m->join.address, &at, NULL) < 0 || at.kind == FAL_ADDR_EXEC)
		return fal_diag_set(why, FAL_EINVAL,
				    "a JOIN at '%s', which is no address",
				    m->join.address);
	struct ps_member *is = fal_xcalloc(1, sizeof(*is));
	FAL_XGROW(f->v, f->cap, f->n + 1);
	is->session = session;
	is->standby = m->join.standby != 0;
	is->shards = m->join.shards;
	/* A process that listens everywhere is found where its connection comes from. */
	const char *source = fal_chan_source(session->chan),
		   *port = strrchr(m->join.address, ':');
	if (fal_addr_is_any(m->join.address) && strcmp(source, "unix") != 0)
		snprintf(is->address, sizeof(is->address),
			 strchr(source, ':') != NULL ? "[%s]%s" : "%s%s", source, port);
	else
		snprintf(is->address, sizeof(is->address), "%s", m->join.address);
	memcpy(is->public, m->join.public, sizeof(is->public));
	session->member = f->v[f->n++] = is;
	session->asks_only = true;
	fal_cli_err(PROG, "%s: '%s' joins with %u shard%s at %s%s", s->job->job.name,
		    fal_chan_name(session->chan), is->shards, fal_text_s(is->shards),
		    is->address,
		    is->standby ? ", on standby"
		    : f->cut    ? ", and has its part from the next boundary on"
				: "");
	if (!f->cut && ps_fleet_waits(s) == 0)
		place_now(s);
	return FAL_OK;
}

static int
member_msg(struct ps_server *s, struct ps_member *m, const struct fal_msg *msg)
{
	struct ps_session *session;
	switch (msg->type) {
	case FAL_MSG_PLACED:
		return on_placed(s, m);
	case FAL_MSG_ADMITTED:
		session = ps_session_find(&s->sessions, msg->admitted.session);
		if (session != NULL && (session->unseated & bit(m)) != 0) {
			tell_map(s, session, m);
			session->unseated &= ~bit(m);
			end_seating(s, session);
		}
		return FAL_OK;
	case FAL_MSG_SAY:
		return on_say(s, m, msg);
	case FAL_MSG_SERVED:
		return ps_served_get(&m->served, m->first, m->count, msg);
	case FAL_MSG_IMAGE:
		return on_image(s, m, msg);
	case FAL_MSG_PONG:
		return FAL_OK;
	default: /* BYTES */
		return on_whole(s, m, image_intake_add(&m->coming, msg));
	}
}

int
ps_fleet_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m,
	     struct fal_diag *why)
{
	struct ps_member *is = session->member;
	if (m->type == FAL_MSG_JOIN)
		return fleet_join(s, session, m, why);
	if (is == NULL || (m->type != FAL_MSG_PLACED && !is->placed))
		return fal_diag_set(why, FAL_ESTATE, "%s before %s",
				    fal_msg_name(m->type),
				    is == NULL ? "JOIN" : "PLACED");
	if (m->incarnation != s->run->state.incarnation)
		return fal_diag_set(why, FAL_ESTATE, "%s of incarnation %u",
				    fal_msg_name(m->type), m->incarnation);
	/* The process lives: whatever it owed is paid. */
	if (m->type == FAL_MSG_PONG && m->pong.stamp == is->asked.stamp && is->asked.is)
		fal_window_add(&is->asked.took, ps_now() - is->asked.at);
	is->asked.at = 0;
	is->asked.is = false;
	int err = member_msg(s, is, m);
	return err < 0 ? fal_diag_set(why, err, "%s: %s", fal_msg_name(m->type),
				      fal_strerror(err))
		       : FAL_OK;
}

/* ---- who comes and goes ------------------------------------------------------------ */

/* The account of incarnations that processes of the key have ended. */
static struct ps_account *
ends_of(const struct ps_server *s, const struct ps_session *session)
{
	return ps_account_find(s->run->ends, fal_chan_fingerprint(session->chan), "",
			       ps_now());
}

bool
ps_fleet_spent(const struct ps_server *s, const struct ps_session *session)
{
	return !ps_account_has(ends_of(s, session), PS_END);
}

static void
free_member(struct ps_member *m)
{
	image_queue_free(&m->images);
	fal_shard_codec_free(&m->post);
	fal_image_free(&m->coming.image);
	free(m);
}

void
ps_fleet_gone(struct ps_server *s, struct ps_session *session, const char *why)
{
	struct ps_fleet *f = &s->fleet;
	struct ps_member *m = session->member;
	if (session->seated) {
		struct fal_msg msg = { .type = FAL_MSG_DISMISS,
				       .dismiss.session = session->id };
		fleet_say_all(s, &msg);
	}
	fal_secret_free(session->seats);
	session->seats = NULL;
	if (m == NULL)
		return;
	session->member = NULL;
	const bool had = fleet_has(s, m);
	uint32_t busy = 0;
	for (size_t i = 0; i < f->n; i++)
		busy += fleet_has(s, f->v[i]);
	for (size_t i = 0; i < s->sessions.n && m->count > 0; i++) {
		s->sessions.v[i]->unseated &= ~bit(m);
		end_seating(s, s->sessions.v[i]);
	}
	size_t at = 0;
	while (f->v[at] != m)
		at++;
	memmove(f->v + at, f->v + at + 1, (--f->n - at) * sizeof(struct ps_member *));
	if (had && !s->saved && !s->stopping) {
		char own[40];
		fal_cli_err(PROG, "%s: %s at %s: lost: %s", s->job->job.name,
			    fleet_which(m, own), m->address, why);
		(void)ps_account_comes(ends_of(s, session), PS_END);
		ps_again(s, busy);
	} else {
		/* A move that gives the process blocks never was. */
		const struct fal_map *next =
			s->coord != NULL ? fal_coord_next_map(s->coord) : NULL;
		if (next != NULL && (fal_map_busy(next) & fleet_bits(m)) != 0)
			ps_fleet_move_abort(s);
	}
	free_member(m);
}

void
ps_fleet_free(struct ps_fleet *f)
{
	for (size_t i = 0; i < f->n; i++)
		free_member(f->v[i]);
	free(f->v);
	fal_shard_say_free(&f->said);
}

void
ps_fleet_end(struct ps_server *s, enum fal_msg_type type, const char *why)
{
	struct fal_msg m = { .type = (uint16_t)type };
	fal_text_plain(m.done.why, sizeof(m.done.why), why);
	for (size_t i = 0; i < s->fleet.n; i++) {
		fleet_say(s, s->fleet.v[i], &m);
		fal_chan_close(s->fleet.v[i]->session->chan);
	}
}
