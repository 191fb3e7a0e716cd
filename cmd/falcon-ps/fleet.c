/* Orders to processes of shards, placing blocks on them, and who comes and goes. */
#include "fleet_priv.h"

#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "sec/secret.h"
#include "wire/bfp.h"

#include <stdlib.h>
#include <string.h>

enum { GRACE_MS = 5000 }; /* for those to come back who had blocks, or others */

/* ---- sending ----------------------------------------------------------------------- */

void
fleet_say(struct ps_server *s, struct ps_member *m, struct fal_msg *msg,
	  enum fal_send how)
{
	msg->incarnation = s->opt->incarnation;
	if (ps_chan_send(m->session->chan, msg, how) <
	    0) /* it does not keep up, or is gone */
		fal_chan_close(m->session->chan);
}

void
fleet_say_all(struct ps_server *s, struct fal_msg *msg)
{
	for (size_t i = 0; i < s->fleet.n; i++)
		if (fleet_works(s->fleet.v[i]))
			fleet_say(s, s->fleet.v[i], msg, FAL_SEND_CONTROL);
}

struct ps_member *
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

/* ---- of fal_coord_shards ----------------------------------------------------------- */

static int
order(void *arg, const struct fal_shard_order *o)
{
	struct ps_server *s = arg;
	struct fal_buf msg = { 0 };
	int err = fal_post_order(s->opt->incarnation, o, &msg);
	for (size_t i = 0; i < s->fleet.n; i++) {
		struct fal_chan *chan = s->fleet.v[i]->session->chan;
		if (fleet_works(s->fleet.v[i]) &&
		    (err < 0 || fal_chan_send(chan, &msg, FAL_SEND_CONTROL) < 0))
			fal_chan_close(chan);
	}
	fal_buf_free(&msg);
	if (o->kind == FAL_ORDER_STEP) /* our own shards' step comes behind it */
		ps_fleet_offer(s);
	if (o->kind != FAL_ORDER_OPEN) /* others may drop what is wanted */
		ps_publish_wanted(s);
	struct fal_shard_order own = *o;
	const uint64_t began = uv_hrtime();
	err = s->above != NULL ? above_order(s->above, &own) : FAL_OK;
	if (err == FAL_OK)
		err = fal_rack_order(s->rack, &own);
	if (err == FAL_OK)
		err = fleet_move_order(s, o);
	s->wants.served.service += uv_hrtime() - began;
	return err;
}

static int
push(void *arg, uint32_t session, const struct fal_msg *m, struct fal_diag *diag)
{
	struct ps_server *s = arg;
	const uint64_t began = uv_hrtime();
	ps_served_push(&s->wants.served, s->rack, &m->push.records);
	int err = fal_rack_msg(s->rack, session, m, diag);
	s->wants.served.service += uv_hrtime() - began;
	return err;
}

static bool
next(void *arg, uint32_t *shard, struct fal_shard_say *out)
{
	struct ps_server *s = arg;
	struct ps_fleet *f = &s->fleet;
	if (fal_rack_next(s->rack, shard, out))
		return true;
	fal_post_say_free(&f->said);
	if (f->next == f->heards) {
		f->next = f->heards = 0;
		return false;
	}
	const struct ps_heard *h = &f->heard[f->next++];
	*shard = h->shard;
	*out = f->said = h->say;
	return true;
}

static void
served_by(void *arg, uint32_t shard, struct fal_coord_served *out)
{
	const struct ps_server *s = arg;
	const struct ps_member *m = fleet_of(s, shard);
	const struct ps_served *by = &s->wants.served;
	uint32_t first;
	fal_rack_range(s->rack, shard, &first, &out->blocks);
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
	if (s->fleet.members == 0)
		return;
	for (uint32_t i = 0; i < model->names; i++)
		fal_put_u64(&named, model->named[i]);
	m.publish.named = (struct fal_tail){ named.p, named.n };
	if (named.err < 0)
		ps_fail(s, named.err, "publishing");
	else
		fleet_say_all(s, &m);
	fal_buf_free(&named);
}

/* ---- placing ----------------------------------------------------------------------- */

/* Processes that may have blocks: those that came for that, and as many of those on
 * standby as are wanted beside them. */
static uint32_t
ready(const struct ps_fleet *f, bool standby)
{
	uint32_t n = 0;
	for (size_t i = 0; i < f->n; i++)
		n += f->v[i]->standby == standby;
	return n;
}

uint32_t
ps_fleet_waits(const struct ps_server *s)
{
	const struct ps_fleet *f = &s->fleet;
	const uint32_t here = ready(f, false) + ready(f, true);
	return !f->cut && here < f->wanted ? f->wanted - here : 0;
}

void
ps_fleet_more(struct ps_session *session)
{
	struct ps_member *m = session->member;
	if (m != NULL)
		image_queue_send(&m->images, session->server->opt->incarnation,
				 session->chan, NULL, NULL);
}

/* Its images go when there is room. */
void
fleet_tell_place(struct ps_server *s, struct ps_member *m)
{
	const struct fal_files *j = s->opt->job;
	struct fal_msg msg = { .type = FAL_MSG_PLACE,
			       .place = { .epoch = s->fleet.map.epoch,
					  .first = m->first,
					  .count = m->count,
					  .tasks = fal_files_tasks(j),
					  .job_n = (uint32_t)j->job_text.n,
					  .model_n = (uint32_t)j->model_text.n } };
	struct fal_buf cut = { 0 };
	struct fal_map map = s->fleet.map;
	/* Numbers behind its own, and its own, may have no block, or none yet. */
	if (map.shards < m->first + m->count)
		map.shards = m->first + m->count;
	msg.place.of = map.shards;
	fal_map_put(&cut, &map);
	if (cut.err < 0) { /* it could not know its blocks */
		fal_chan_close(m->session->chan);
		fal_buf_free(&cut);
		return;
	}
	msg.place.map = (struct fal_tail){ cut.p, cut.n };
	memcpy(msg.place.key, s->tickets.key, sizeof(msg.place.key));
	fleet_say(s, m, &msg, FAL_SEND_CONTROL);
	fal_secret_wipe(&msg, sizeof(msg));
	fal_buf_free(&cut);
	ps_send_text(m->session, FAL_TEXT_JOB, &j->job_text);
	ps_send_text(m->session, FAL_TEXT_MODEL, &j->model_text);
	ps_fleet_more(m->session);
}

const char *
fleet_which(const struct ps_member *m, char out[static 40])
{
	if (m->count == 1)
		snprintf(out, 40, "shard %u", m->first + 1);
	else
		snprintf(out, 40, "shards %u to %u", m->first + 1, m->first + m->count);
	return out;
}

/* Gives a process its shards. */
static int
give(struct ps_server *s, struct ps_member *m, uint32_t first, uint32_t count)
{
	m->first = first;
	m->count = count;
	s->fleet.members++;
	s->fleet.unplaced++;
	char own[40];
	fal_cli_err(PROG, "%s: %s of %u: %s", s->opt->job->job.name, fleet_which(m, own),
		    fal_rack_shards(s->rack), m->address);
	fleet_tell_place(s, m);
	for (uint32_t i = first; i < first + count; i++) {
		struct fal_rack_piece piece;
		if (fal_rack_give(s->rack, i, &piece) < 0 ||
		    fleet_give_piece(s, i, &piece) < 0)
			return FAL_ENOMEM;
	}
	return FAL_OK;
}

/* Who takes part: those who came for that; then, of standby, as many as are missing. */
static bool
takes_part(const struct ps_fleet *f, size_t i, bool standby)
{
	if (f->v[i]->standby != standby)
		return false;
	const uint32_t have = ready(f, false);
	uint32_t before = 0;
	for (size_t k = 0; k < i && standby; k++)
		before += f->v[k]->standby;
	return !standby || have + before < f->wanted;
}

/* The rack of all shards, as the job begins, or goes on: its rule places the blocks on so
 * many, and whoever is given none is no shard of it.  `before` gets how many shards
 * there are of those before each. */
static int
make_rack(struct ps_server *s, uint32_t places, uint32_t before[FAL_SHARDS_MAX + 1])
{
	const struct fal_files *j = s->opt->job;
	struct fal_map *map = &s->fleet.map;
	struct fal_rack_conf rack = fal_files_rack_conf(j, places);
	fal_files_map(j, places, map, before);
	map->epoch = s->tickets.epoch;
	rack.map = map;
	rack.tickets = s->tickets;
	rack.each.parallel = s->opt->parallel;
	rack.each.at_once = &s->near;
	s->rack = fal_files_rack(j, &rack);
	fal_secret_wipe(&rack.tickets, sizeof(rack.tickets));
	if (s->rack == NULL)
		return fal_diag_set(s->diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	return s->opt->found == NULL ? FAL_OK
				     : fal_snapshot_load(s->opt->snapshots.folder,
							 s->opt->found, s->rack, s->diag);
}

int
ps_fleet_place(struct ps_server *s)
{
	struct ps_fleet *f = &s->fleet;
	uint32_t before[FAL_SHARDS_MAX + 1];
	uint32_t places = s->opt->shards;
	for (size_t i = 0; i < f->n; i++)
		if (takes_part(f, i, false) || takes_part(f, i, true))
			places += f->v[i]->shards;
	places = places < FAL_SHARDS_MAX ? places : FAL_SHARDS_MAX;
	f->places = places;
	f->cut = true;
	uv_timer_stop(&f->grace);
	s->tickets =
		(struct fal_ticket_in){ .epoch = 1, .incarnation = s->opt->incarnation };
	fal_random_bytes(s->tickets.key, sizeof(s->tickets.key));
	int err = make_rack(s, places, before);
	if (err < 0)
		return err;
	uint32_t at = s->opt->shards;
	f->own = before[at];
	for (int standby = 0; standby < 2; standby++)
		for (size_t i = 0; i < f->n && at < places; i++) {
			struct ps_member *m = f->v[i];
			const uint32_t left = places - at;
			if (!takes_part(f, i, standby != 0))
				continue;
			const uint32_t end = at + (m->shards < left ? m->shards : left);
			m->idle = before[end] == before[at]; /* so the rule has it */
			if (!m->idle &&
			    give(s, m, before[at], before[end] - before[at]) < 0)
				return fal_diag_set(s->diag, FAL_ENOMEM, "%s",
						    fal_strerror(FAL_ENOMEM));
			at = end;
		}
	return f->unplaced > 0 ? FAL_OK : ps_begin(s);
}

/* Enough are here, or were waited for. */
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
	s->fleet.wanted = s->opt->min_shards;
	if (!s->stopping && !s->fleet.cut && ps_fleet_waits(s) == 0)
		place_now(s);
}

void
ps_fleet_init(struct ps_server *s)
{
	struct ps_fleet *f = &s->fleet;
	const uint32_t least = s->opt->min_shards, had = s->opt->had;
	uv_timer_init(s->loop, &f->grace);
	f->grace.data = s;
	fleet_ask_init(s);
	f->wanted = least > had ? least : had;
	if (f->wanted > 0)
		fal_cli_err(PROG, "%s: waits for %u process%s of shards%s",
			    s->opt->job->job.name, f->wanted, f->wanted > 1 ? "es" : "",
			    had > least ? ", as before, for a while" : "");
	if (had > least)
		uv_timer_start(&f->grace, on_grace, GRACE_MS, 0);
}

void
ps_fleet_close(struct ps_server *s)
{
	if (uv_is_closing((uv_handle_t *)&s->fleet.grace))
		return;
	uv_close((uv_handle_t *)&s->fleet.grace, NULL);
	uv_close((uv_handle_t *)&s->fleet.ask, NULL);
}

/* Where workers find it: what listens everywhere, where it comes from. */
static void
find_host(char out[static FAL_MSG_WHY], const char *says, const char *source)
{
	const char *port = strrchr(says, ':');
	if (fal_addr_is_any(says) && strcmp(source, "unix") != 0)
		snprintf(out, FAL_MSG_WHY,
			 strchr(source, ':') != NULL ? "[%s]%s" : "%s%s", source, port);
	else
		snprintf(out, FAL_MSG_WHY, "%s", says);
}

/* ---- who comes and goes ------------------------------------------------------------ */

int
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
	/* One that no worker can dial would end every session. */
	if (fal_addr_parse(m->join.address, &at, NULL) < 0 || at.kind == FAL_ADDR_EXEC)
		return fal_diag_set(why, FAL_EINVAL,
				    "a JOIN at '%s', which is no address",
				    m->join.address);
	struct ps_member *is = fal_calloc(1, sizeof(*is));
	if (is == NULL || FAL_GROW(f->v, f->cap, f->n + 1) < 0) {
		free(is);
		return fal_diag_set(why, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	}
	is->session = session;
	is->standby = m->join.standby != 0;
	is->shards = m->join.shards;
	find_host(is->address, m->join.address, fal_chan_source(session->chan));
	memcpy(is->public, m->join.public, sizeof(is->public));
	session->member = f->v[f->n++] = is;
	session->asks_only = true;
	fal_progress_end(&s->progress);
	fal_cli_err(PROG, "%s: '%s' joins with %u shard%s at %s%s", s->opt->job->job.name,
		    fal_chan_name(session->chan), is->shards, fal_text_s(is->shards),
		    is->address,
		    is->standby ? ", on standby"
		    : f->cut    ? ", and has its part from the next boundary on"
				: "");
	if (!f->cut && ps_fleet_waits(s) == 0)
		place_now(s);
	return FAL_OK;
}

static struct ps_account *
ends_of(const struct ps_server *s, const struct ps_session *session)
{
	return ps_account_find(s->opt->ends, fal_chan_fingerprint(session->chan), "",
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
	fal_post_free(&m->post);
	fal_image_free(&m->coming.image);
	free(m);
}

/* Does the move that is under way, or the next one, give it blocks? */
static bool
is_to_get(const struct ps_server *s, const struct ps_member *m)
{
	const struct fal_map *next =
		s->coord != NULL ? fal_coord_next_map(s->coord) : NULL;
	return next != NULL && (fal_map_busy(next) & fleet_bits(m)) != 0;
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
	fleet_unseat(s, m);
	size_t at = 0;
	while (f->v[at] != m)
		at++;
	memmove(f->v + at, f->v + at + 1, (--f->n - at) * sizeof(struct ps_member *));
	f->members -= m->count > 0 && (m->placed || !m->late);
	if (had && !s->saved && !s->stopping) {
		fal_progress_end(&s->progress);
		char own[40];
		fal_cli_err(PROG, "%s: %s at %s: lost: %s", s->opt->job->job.name,
			    fleet_which(m, own), m->address, why);
		(void)ps_account_comes(ends_of(s, session), PS_END);
		f->members = busy;
		ps_again(s);
	} else if (is_to_get(s, m)) {
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
	fal_post_say_free(&f->said);
	for (size_t i = f->next; i < f->heards; i++)
		fal_post_say_free(&f->heard[i].say);
	free(f->heard);
	*f = (struct ps_fleet){ 0 };
}

void
ps_fleet_end(struct ps_server *s, enum fal_msg_type type, const char *why)
{
	struct fal_msg m = { .type = (uint16_t)type };
	fal_text_plain(m.done.why, sizeof(m.done.why), why);
	for (size_t i = 0; i < s->fleet.n; i++) {
		fleet_say(s, s->fleet.v[i], &m, FAL_SEND_CONTROL);
		fal_chan_close(s->fleet.v[i]->session->chan);
	}
}
