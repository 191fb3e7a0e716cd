/* What processes of shards say, and the images that they send. */
#include "fleet_priv.h"

#include "base/mem.h"
#include "wire/bfp.h"

/* ---- images ------------------------------------------------------------------------ */

/* An image is whole. */
static int
on_whole(struct ps_server *s, struct ps_member *m)
{
	struct ps_coming *c = &m->coming;
	int err = FAL_OK;
	c->any = false;
	uint32_t first, blocks;
	fal_rack_range(s->rack, m->first + c->of.shard, &first, &blocks);
	if (c->of.what == FAL_FETCH_PIECE)
		err = fleet_piece(s, &c->of, &c->image);
	else if (c->of.what == FAL_FETCH_MARKED)
		ps_keep_image(s, m->first + c->of.shard, &c->image);
	else if (c->of.first == first && c->of.count == blocks)
		err = fal_rack_fill(s->rack, m->first + c->of.shard, &c->image);
	fal_image_free(&c->image);
	return err;
}

static int
on_image(struct ps_server *s, struct ps_member *m, const struct fal_msg *msg)
{
	struct ps_coming *c = &m->coming;
	const bool piece = msg->image.what == FAL_FETCH_PIECE;
	/* What was asked for before a move may be of other blocks than its shard has. */
	const uint32_t blocks =
		piece ? msg->image.blocks : fal_blocks(s->opt->job->model->params);
	if (c->any || (piece ? !fleet_owns(s, m, msg) : msg->image.shard >= m->count) ||
	    msg->image.shard >= FAL_SHARDS_MAX || msg->image.what < FAL_FETCH_MARKED ||
	    msg->image.what > FAL_FETCH_PIECE)
		return FAL_EFORMAT;
	const uint64_t most = fal_post_image_most(blocks, FAL_SLACK_MAX);
	*c = (struct ps_coming){ .of = { (enum fal_fetch)msg->image.what,
					 msg->image.shard, msg->image.epoch,
					 msg->image.first, msg->image.blocks } };
	int err = fal_post_image_get(msg, most, &c->image);
	c->any = err == FAL_OK;
	return err == FAL_OK && c->image.arrays == 0 ? on_whole(s, m) : err;
}

static int
on_bytes(struct ps_server *s, struct ps_member *m, const struct fal_msg *msg)
{
	struct ps_coming *c = &m->coming;
	if (!c->any || msg->bytes.shard != c->of.shard)
		return FAL_EFORMAT;
	int got = fal_post_bytes_get(&msg->bytes.bytes, &c->image, &c->at);
	return got == 1 ? on_whole(s, m) : got;
}

const float *
ps_fleet_params(struct ps_server *s, uint64_t version, bool *coming)
{
	struct fal_msg m = { .type = FAL_MSG_FETCH,
			     .fetch = { .what = FAL_FETCH_PARAMS, .version = version } };
	const float *params = fal_rack_params(s->rack, version);
	*coming = false;
	if (params != NULL || s->fleet.members == 0)
		return params;
	*coming = true;
	if (fal_rack_gathers(s->rack)) /* this one, or another one first */
		return NULL;
	*coming = fal_rack_gather(s->rack, version);
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
	struct ps_heard h = { .shard = m->first + msg->say.shard };
	fal_rack_range(s->rack, h.shard, &first, &blocks);
	err = fal_post_add(&m->post, &whole,
			   fal_post_say_most(blocks, fal_files_tasks(s->opt->job)));
	if (err <= 0)
		return err;
	err = fal_post_say_get(&whole, first, blocks, m->odd, &h.say);
	if (err == FAL_OK && FAL_GROW(f->heard, f->heard_cap, f->heards + 1) < 0) {
		fal_post_say_free(&h.say);
		err = FAL_ENOMEM;
	}
	if (err < 0)
		return err;
	if (h.say.kind == FAL_SAY_MIGRATED && h.say.err < 0)
		fleet_refused(s, m, h.say.odd);
	f->heard[f->heards++] = h;
	ps_fail(s, fal_coord_heard(s->coord, ps_now()), "scheduler");
	return FAL_OK;
}

static int
on_placed(struct ps_server *s, struct ps_member *m)
{
	if (m->count == 0 || m->placed)
		return FAL_ESTATE;
	m->placed = true;
	if (m->late) { /* it hears from here on */
		s->fleet.members++;
		fleet_seat_all(s, m);
		return FAL_OK;
	}
	if (--s->fleet.unplaced > 0)
		return FAL_OK;
	int err = ps_begin(s);
	if (err < 0)
		ps_abandon(s, err);
	return FAL_OK;
}

static int
member_msg(struct ps_server *s, struct ps_member *m, const struct fal_msg *msg)
{
	switch (msg->type) {
	case FAL_MSG_PLACED:
		return on_placed(s, m);
	case FAL_MSG_ADMITTED:
		fleet_admitted(s, m, msg);
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
		return on_bytes(s, m, msg);
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
	if (m->incarnation != s->opt->incarnation)
		return fal_diag_set(why, FAL_ESTATE, "%s of incarnation %u",
				    fal_msg_name(m->type), m->incarnation);
	fleet_heard(is, m);
	int err = member_msg(s, is, m);
	return err < 0 ? fal_diag_set(why, err, "%s: %s", fal_msg_name(m->type),
				      fal_strerror(err))
		       : FAL_OK;
}
