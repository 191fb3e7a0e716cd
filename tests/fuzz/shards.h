/* What shards say to a coordinator beside what is true: the words of a real shard_set,
 * some of which are late, and words that a process of shards could make up, within their
 * type (server/shard_codec.h).  For the driver that includes it alone. */
#ifndef SHARDS_H
#define SHARDS_H

#include "base/buf.h"
#include "server/coord.h"
#include "server/shard_set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS_SEEN = 16, SHARDS_BLOCKS = 4 };

struct shards {
	struct fal_shard_set *shard_set;
	uint64_t busy; /* as bits: those that have blocks, by the map that holds */
	uint64_t late; /* as bits: what they have to say waits: */
	struct fal_shard_result waits;
	/* What the last orders and words were about: answers are made of it. */
	struct shards_about {
		uint64_t round, version;
		struct fal_contrib_id id;
	} seen[SHARDS_SEEN];
	uint32_t seens;
	/* The arrays of what is made up. */
	int8_t exps[SHARDS_BLOCKS];
	double squares[SHARDS_BLOCKS];
	uint8_t leaves[SHARDS_BLOCKS * FAL_HASH_BYTES];
	struct fal_contribution_blocks brought;
	/* Something was made up by whom the coordinator waits for. */
	bool lied;
};

static void
shards_saw(struct shards *s, struct shards_about about)
{
	s->seen[s->seens++ % SHARDS_SEEN] = about;
}

/* What is said at once goes to `r`, the rest waits. */
static void
shards_say(struct shards *s, struct fal_shard_result *said, struct fal_shard_result *r)
{
	for (size_t i = 0; i < said->n; i++) {
		const struct fal_shard_report *is = &said->v[i];
		const bool late = (s->late >> is->shard & 1) != 0;
		if (!late)
			shards_saw(s, (struct shards_about){ is->round, is->version,
							     is->id });
		fal_shard_result_add(late ? &s->waits : r, is);
	}
	free(said->v); /* their arrays are taken */
	*said = (struct fal_shard_result){ 0 };
}

/* Of fal_coord_shards. */
static int
shards_order(void *arg, const struct fal_shard_order *o, struct fal_shard_result *r)
{
	struct shards *s = arg;
	const uint64_t version =
		o->kind == FAL_ORDER_MIGRATE_BEGIN ? o->map->epoch : o->version;
	shards_saw(s, (struct shards_about){ o->round, version, o->id });
	struct fal_shard_result said = { 0 };
	const int err = fal_shard_set_order(s->shard_set, o, &said);
	shards_say(s, &said, r);
	return err;
}

static int
shards_push(void *arg, uint32_t session, const struct fal_msg *m,
	    struct fal_shard_result *r, struct fal_diag *diag)
{
	struct shards *s = arg;
	struct fal_shard_result said = { 0 };
	const int err = fal_shard_set_push_msg(s->shard_set, session, m, &said, diag);
	shards_say(s, &said, r);
	return err;
}

/* The coordinator hears what waits and is late no more. */
static int
shards_catch_up(struct shards *s, struct fal_coord *c, double now)
{
	struct fal_shard_result all = s->waits, r = { 0 };
	s->waits = (struct fal_shard_result){ 0 };
	shards_say(s, &all, &r);
	const int err = fal_coord_take_result(c, now, &r);
	fal_shard_result_free(&r);
	return err;
}

static void
shards_served(void *arg, uint32_t shard, struct fal_coord_shard_stats *out)
{
	const struct shards *s = arg;
	uint32_t first;
	fal_shard_set_range(s->shard_set, shard, &first, &out->blocks);
}

/* Up to four, the two blocks of the model among them as the byte says. */
static struct fal_map
shards_map(uint8_t how, uint32_t least)
{
	struct fal_map m = { .epoch = 1, .shards = 1 + how % 4 };
	m.shards = m.shards < least ? least : m.shards;
	const uint32_t a = (how >> 2 & 3) % m.shards, b = (how >> 4 & 3) % m.shards;
	m.of[b] = (struct fal_extent){ 1, 1 };
	m.of[a] = (struct fal_extent){ 0, a == b ? 2 : 1 };
	return m;
}

/* Whom and what the word is about: something of late, or near it. */
static void
shards_about(const struct shards *s, struct fal_rd *r, struct fal_shard_report *out)
{
	const uint8_t how = fal_get_u8(r);
	const struct shards_about *a =
		&s->seen[(s->seens - 1 - how % SHARDS_SEEN) % SHARDS_SEEN];
	out->round = a->round;
	out->version = a->version;
	out->id = a->id;
	if (how & 16)
		out->round += (uint64_t)fal_get_u8(r) % 4 - 1;
	if (how & 32)
		out->version += (uint64_t)fal_get_u8(r) % 4 - 1;
	if (how & 128) {
		out->id.worker = fal_get_u8(r);
		out->id.seq = fal_get_u8(r);
	}
	/* Numbers that are nobody's are small, or as large as they can be. */
	if (out->id.worker > 0xf0)
		out->id.worker = UINT32_MAX - out->id.worker % 4;
}

/* Its arrays, all of its blocks, and what else its kind has. */
static void
shards_fill(struct shards *s, struct fal_rd *r, uint32_t blocks,
	    struct fal_shard_report *out)
{
	const uint8_t how = fal_get_u8(r), value = fal_get_u8(r);
	const bool leaves = out->kind == FAL_REPORT_STEPPED && (how & 4) != 0;
	out->whole = how & 1;
	if (how & 8 || out->kind == FAL_REPORT_REFUSED)
		out->odd = "made up";
	out->beyond = how & 16 ? value % (blocks + 1) : 0;
	out->most = (int8_t)value;
	out->rank = how & 32 ? value : 0;
	out->added = value;
	out->err = how & 64 ? -(value % 17) : 0;
	if (how & 128) {
		s->brought = (struct fal_contribution_blocks){ out->id, value, value };
		out->brought = &s->brought;
		out->broughts = 1;
	}
	memset(s->exps, value, sizeof(s->exps));
	memset(s->leaves, value, sizeof(s->leaves));
	for (uint32_t i = 0; i < SHARDS_BLOCKS; i++)
		s->squares[i] = how & 32 ? (double)value : (double)NAN;
	out->exps = leaves ? s->exps : NULL;
	out->leaves = leaves ? s->leaves : NULL;
	out->squares = out->kind == FAL_REPORT_SQUARES ? s->squares : NULL;
	if (out->exps == NULL && out->squares == NULL)
		out->blocks = how & 32 ? value % (blocks + 1) : blocks;
}

/* The coordinator hears a word that the shard makes up. */
static int
shards_lie(struct shards *s, uint32_t shard, struct fal_rd *r, struct fal_coord *c,
	   double now)
{
	struct fal_shard_report say = { .kind = fal_get_u8(r) %
						(FAL_REPORT_MIGRATED + 1) };
	uint32_t first = 0, blocks = 0;
	if (shard < fal_shard_set_count(s->shard_set))
		fal_shard_set_range(s->shard_set, shard, &first, &blocks);
	shards_about(s, r, &say);
	say.first = first;
	say.blocks = blocks;
	shards_fill(s, r, blocks, &say);
	say.shard = shard;
	/* A push that was refused is anybody's word; of moves it stands for itself. */
	if (say.kind == FAL_REPORT_REFUSED ||
	    ((s->busy >> shard & 1) != 0 && say.kind != FAL_REPORT_MIGRATED))
		s->lied = true;
	return fal_coord_take_result(c, now, &(struct fal_shard_result){ &say, 1, 1 });
}

#endif
