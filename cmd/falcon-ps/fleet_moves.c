/* Blocks that move between processes of shards while the job runs (design.md, D38, D39).
 *
 * Pieces travel by way of the coordinator: each process has one stream, and its own
 * shards are among those that give and get. */
#include "fleet_priv.h"

#include "base/parse.h"
#include "base/text.h"
#include "cli/cli.h"
#include "wire/bfp.h"

#include <stdio.h>
#include <string.h>

uint64_t
fleet_bits(const struct ps_member *m)
{
	return m->count == 0 ? 0 : (UINT64_MAX >> (64 - m->count)) << m->first;
}

static uint64_t
own_bits(const struct ps_server *s)
{
	return s->fleet.own == 0 ? 0 : UINT64_MAX >> (64 - s->fleet.own);
}

bool
fleet_has(const struct ps_server *s, const struct ps_member *m)
{
	return (fal_map_busy(&s->fleet.map) & fleet_bits(m)) != 0;
}

/* ---- pieces ------------------------------------------------------------------------ */

int
fleet_give_piece(void *arg, uint32_t to, struct fal_rack_piece *piece)
{
	struct ps_server *s = arg;
	struct ps_member *m = fleet_of(s, to);
	const struct queued_image p = { .of = { FAL_FETCH_PIECE, to, piece->epoch,
						piece->first, piece->count },
					.image = piece->image };
	if (m == NULL)
		return FAL_OK;
	piece->image = (struct fal_image){ 0 };
	int err = image_queue_add(&m->images, &p);
	ps_fleet_more(m->session);
	return err;
}

int
fleet_move_order(struct ps_server *s, const struct fal_shard_order *o)
{
	if (o->kind == FAL_ORDER_MIGRATE_BEGIN) {
		s->fleet.to = *o->map;
		return fal_rack_pieces(s->rack, fleet_give_piece, s);
	}
	if (o->kind == FAL_ORDER_COMMIT)
		ps_wants_moved(&s->wants);
	for (size_t i = 0; i < s->fleet.n && o->kind == FAL_ORDER_ABORT; i++)
		if (image_queue_abort(&s->fleet.v[i]->images) < 0)
			return FAL_ENOMEM;
	return FAL_OK;
}

bool
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

int
fleet_piece(struct ps_server *s, const struct fal_post_of *of, struct fal_image *image)
{
	struct fal_rack_piece piece = { of->epoch, of->first, of->count, *image };
	if (of->shard >= s->fleet.own) {
		*image = (struct fal_image){ 0 };
		int left = fleet_give_piece(s, of->shard, &piece);
		fal_image_free(&piece.image);
		return left;
	}
	int err = fal_rack_graft(s->rack, of->shard, &piece);
	if (err == FAL_OK && s->coord != NULL && !s->saved && s->broken == FAL_OK)
		ps_fail(s, fal_coord_heard(s->coord, ps_now()), "scheduler");
	return err;
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
	struct fal_rack_conf part = fal_files_rack_conf(s->opt->job, 1);
	struct fal_diag need;
	size_t blocks = 0;
	/* What shards of this process will be is there beside what they are. */
	for (uint32_t i = 0; i < s->fleet.own; i++)
		if (to->of[i].first != now->of[i].first ||
		    to->of[i].count != now->of[i].count)
			blocks += to->of[i].count;
	if (blocks * FAL_BLOCK < part.each.n)
		part.each.n = blocks * FAL_BLOCK;
	const struct ps_need_part_of of = { .rack = &part, .rule = &policy->rule };
	const uint64_t more = blocks > 0 ? ps_need_part(&of) : 0;
	if (ps_affords(s, &policy->rule, fal_coord_status(s->coord).workers, more,
		       &need) < 0)
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

/* "shard 1 has 12, shard 3 has 12" of its blocks. */
static void
say_map(const struct ps_server *s)
{
	const struct fal_map *m = &s->fleet.map;
	uint32_t order[FAL_SHARDS_MAX];
	const uint32_t n = fal_map_in_order(m, order);
	struct fal_buf text = { 0 };
	for (uint32_t i = 0; i < n; i++)
		fal_put_fmt(&text, "%sshard %u has %u", i > 0 ? ", " : "", order[i] + 1,
			    m->of[order[i]].count);
	fal_put_u8(&text, '\0');
	if (text.err == FAL_OK)
		fal_cli_err(PROG, "%s: blocks have moved: %s", s->opt->job->job.name,
			    (const char *)text.p);
	fal_buf_free(&text);
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
		/* None, or those that it has already. */
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
	s->fleet.to = (struct fal_map){ 0 };
	if (err < 0)
		return;
	s->fleet.map = *map;
	fal_progress_end(&s->progress);
	say_map(s);
}

/* ---- who joins --------------------------------------------------------------------- */

/* So many numbers in a row that nobody has; FAL_SHARDS_MAX: there are none. */
static uint32_t
free_numbers(const struct ps_server *s, uint32_t count)
{
	uint64_t taken = own_bits(s) | fal_map_busy(&s->fleet.map);
	for (size_t i = 0; i < s->fleet.n; i++)
		taken |= fleet_bits(s->fleet.v[i]);
	const uint64_t row = UINT64_MAX >> (64 - count);
	for (uint32_t first = 0; first + count <= FAL_SHARDS_MAX; first++)
		if ((taken & row << first) == 0)
			return first;
	return FAL_SHARDS_MAX;
}

/* It is told of the job, without a block. */
static void
call_in(struct ps_server *s, struct ps_member *m)
{
	const uint32_t first = free_numbers(s, m->shards);
	if (first == FAL_SHARDS_MAX) {
		m->standby = true;
		fal_progress_end(&s->progress);
		fal_cli_err(PROG, "%s: %s: no number is left for its shards",
			    s->opt->job->job.name, m->address);
		return;
	}
	m->first = first;
	m->count = m->shards;
	m->late = true;
	fleet_tell_place(s, m);
}

/* Each shard of it gets half of what that with the most has. */
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
	fal_progress_end(&s->progress);
	fal_cli_err(PROG, "%s: %s gets no block: %s", s->opt->job->job.name, m->address,
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

/* Whoever waits for it learns that it is done, or why it is not. */
static void
answer(struct ps_server *s, const char *why)
{
	struct ps_drain *d = &s->fleet.drain;
	struct ps_session *session = ps_session_find(&s->sessions, d->asks);
	d->any = d->refused = false;
	d->asks = 0;
	if (why != NULL) {
		fal_progress_end(&s->progress);
		fal_cli_err(PROG, "%s: nothing is drained: %s", s->opt->job->job.name,
			    why);
	}
	if (session != NULL)
		ps_control_drained(session, why);
}

static void
give_up(struct ps_server *s, const char *why)
{
	s->fleet.drain.own = false;
	for (size_t i = 0; i < s->fleet.n; i++)
		s->fleet.v[i]->drained = false;
	answer(s, why);
}

/* What was drained is: its processes may go. */
static void
dismiss(struct ps_server *s)
{
	struct fal_msg msg = { .type = FAL_MSG_DONE };
	snprintf(msg.done.why, sizeof(msg.done.why),
		 "drained by '%s': others have its blocks", s->fleet.drain.by);
	for (size_t i = 0; i < s->fleet.n; i++) {
		struct ps_member *m = s->fleet.v[i];
		char own[40];
		if (!m->drained)
			continue;
		fal_progress_end(&s->progress);
		fal_cli_err(PROG, "%s: %s at %s: drained by '%s'", s->opt->job->job.name,
			    m->count > 0 ? fleet_which(m, own) : "no shard", m->address,
			    s->fleet.drain.by);
		fleet_say(s, m, &msg, FAL_SEND_CONTROL);
		fal_chan_close(m->session->chan);
	}
	answer(s, NULL);
}

static void
drain(struct ps_server *s)
{
	struct fal_map map = s->fleet.map;
	const uint64_t bits = leaving(s);
	struct fal_diag why;
	if ((fal_map_busy(&map) & bits) == 0) {
		dismiss(s);
		return;
	}
	if (s->fleet.drain.refused) {
		give_up(s, "a shard that should have more cannot");
		return;
	}
	if (fal_map_drain(&map, bits) < 0) {
		give_up(s, "nobody else has blocks");
		return;
	}
	if (move_to(s, &map, s->fleet.drain.by, &why) < 0)
		give_up(s, why.text);
}

void
fleet_refused(struct ps_server *s, struct ps_member *m, const char *why)
{
	char own[40];
	fal_progress_end(&s->progress);
	fal_cli_err(PROG, "%s: %s at %s refuses a move: %s", s->opt->job->job.name,
		    fleet_which(m, own), m->address, why != NULL ? why : "unknown");
	m->full = true;
	if (leaving(s) != 0 && (fal_map_busy(&s->fleet.to) & leaving(s)) == 0)
		s->fleet.drain.refused = true;
}

/* The process that is meant: `*m`, or NULL, and it is this one. */
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
		give_up(s, "the job is over");
}

void
ps_fleet_drain_gone(struct ps_server *s, const struct ps_session *session)
{
	if (s->fleet.drain.asks == session->id)
		s->fleet.drain.asks = 0;
}

/* ---- by what workers waited for --------------------------------------------------- */

static bool
balances(const struct ps_server *s)
{
	return s->opt->job->job.placement == FAL_JOB_PLACEMENT_PSLD;
}

/* May it have blocks that it has not? */
static bool
is_ready(const struct ps_server *s, const struct ps_member *m)
{
	return m->placed && !m->drained && (fleet_has(s, m) || fleet_seated_all(s, m));
}

/* Would a process that has said that it cannot have more blocks get some? */
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
	for (size_t i = 0; i < f->n; i++)
		may |= is_ready(s, f->v[i]) ? fleet_bits(f->v[i]) : 0;
	const char *by = fal_coord_balance(s->coord, may, &map);
	if (by == NULL)
		return;
	int err = overfills(s, &map)
			  ? fal_diag_set(&why, FAL_ELIMIT, "who should have more cannot")
			  : move_to(s, &map, by, &why);
	if (err == FAL_ELIMIT && !f->tight) {
		f->tight = true;
		fal_progress_end(&s->progress);
		fal_cli_err(PROG, "%s: blocks stay where they are: %s",
			    s->opt->job->job.name, why.text);
	}
}

/* ---- after an event ---------------------------------------------------------------- */

void
ps_fleet_moves(struct ps_server *s)
{
	struct ps_fleet *f = &s->fleet;
	if (f->unplaced > 0 || s->broken < 0 || s->leaving)
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
