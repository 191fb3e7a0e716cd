/* What a process of shards is given, and what it makes of it. */
#include "base/mem.h"
#include "join.h"
#include "need.h"
#include "run/files.h"
#include "run/setup.h"
#include "sec/secret.h"
#include "wire/bfp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	TEXT_MAX = 1 << 20, /* bytes of a job's or a model's text */
	YET = 1 << 20,      /* of code and streams, until there are shards: measured */
};

void
place_forget(struct ps_join *j)
{
	guest_forget(j);
	ps_wants_forget(&j->wants);
	fal_rack_free(j->rack);
	j->rack = NULL;
	fal_model_free(j->model);
	j->model = NULL;
	fal_job_free(&j->job);
	fal_buf_free(&j->cut);
	for (int i = 0; i < 2; i++)
		fal_buf_free(&j->text[i]);
	fal_image_free(&j->coming);
	image_queue_clear(&j->images);
	fal_secret_wipe(&j->tickets, sizeof(j->tickets));
	j->of = j->became = j->versions = 0;
	j->need = 0;
	j->map = j->to = (struct fal_map){ 0 };
	j->comes = false;
}

static int
on_place(struct ps_join *j, const struct fal_msg *m)
{
	if (j->of > 0 || m->place.of > FAL_SHARDS_MAX || m->place.count < 1 ||
	    m->place.first >= m->place.of ||
	    m->place.count > m->place.of - m->place.first)
		return FAL_ESTATE;
	if (m->place.job_n < 1 || m->place.job_n > TEXT_MAX || m->place.model_n < 1 ||
	    m->place.model_n > TEXT_MAX)
		return FAL_ELIMIT;
	j->incarnation = m->incarnation;
	j->of = m->place.of;
	j->first = m->place.first;
	j->count = m->place.count;
	j->tasks = m->place.tasks;
	j->size[0] = m->place.job_n;
	j->size[1] = m->place.model_n;
	j->tickets = (struct fal_ticket_in){ .epoch = m->place.epoch,
					     .incarnation = m->incarnation };
	memcpy(j->tickets.key, m->place.key, sizeof(j->tickets.key));
	if (m->place.map.n > FAL_SHARDS_MAX * sizeof(struct fal_extent))
		return FAL_ELIMIT;
	fal_buf_clear(&j->cut);
	fal_put_bytes(&j->cut, m->place.map.p, m->place.map.n);
	return j->cut.err;
}

/* Values that its shards have by a map. */
static size_t
values_of(const struct ps_join *j, const struct fal_map *map)
{
	size_t n = 0;
	for (uint32_t i = j->first; i < j->first + j->count; i++)
		n += (size_t)map->of[i].count * FAL_BLOCK;
	return n < j->model->params ? n : j->model->params;
}

/* What so many values need is said, if it is more than it was, and must be allowed; else
 * FAL_ELIMIT, with `why`. */
static int
afford(struct ps_join *j, size_t n, struct fal_diag *why)
{
	struct fal_rack_conf part = {
		.shards = 1, .each = fal_files_shard_conf(&j->job, j->model, j->tasks)
	};
	part.each.n = n;
	if (j->program == 0)
		j->program = fal_need_begun(
			YET + fal_threads_bytes((uint32_t)j->run->opt.threads));
	const struct ps_need_part_of of = { .program = j->program,
					    .rack = &part,
					    .rule = &j->job.rule,
					    .versions = j->versions,
					    .mixed = ps_has_port(&j->run->listen) };
	const uint64_t need = ps_need_part(&of);
	const bool more = need > j->need;
	j->need = need;
	if (n > 0 && more)
		fal_cli_err(PROG, "%s: shards %u to %u of %u need %" PRIu64 " MiB",
			    j->job.name, j->first + 1, j->first + j->count, j->of,
			    fal_need_mib(need));
	int err = fal_need_allowed(need, 0, j->run->opt.max_memory, why);
	if (err < 0)
		fal_cli_err(PROG, "%s", why->text);
	return err;
}

/* Its shards are what they should be: with a job under way, nothing yet. */
static void
has_all(struct ps_join *j)
{
	struct fal_msg placed = { .type = FAL_MSG_PLACED,
				  .placed.epoch = j->tickets.epoch };
	const bool any = values_of(j, &j->map) > 0;
	j->became = j->count;
	join_say(j, &placed);
	fal_cli_err(PROG, "%s: %s: %s shards %u to %u of %u%s", j->run->opt.join,
		    j->job.name, any ? "has" : "is", j->first + 1, j->first + j->count,
		    j->of, any ? "" : ", without blocks yet");
}

/* Job and model are here. */
static int
make(struct ps_join *j)
{
	const struct fal_setup_text job = { "job", j->text[0].p, j->text[0].n },
				    model = { "model", j->text[1].p, j->text[1].n };
	struct fal_diag diag = { "" };
	int err = fal_setup_parse(&job, &model, &j->job, &j->model, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s",
			    diag.text[0] != '\0' ? diag.text : fal_strerror(err));
		return err;
	}
	const struct fal_tail cut = { j->cut.p, j->cut.n };
	struct fal_map map;
	err = fal_map_get(&cut, j->tickets.epoch, fal_blocks(j->model->params), &map);
	if (err < 0 || map.shards != j->of)
		return FAL_EFORMAT;
	/* All of its shards have blocks, or none, so far. */
	uint32_t with = 0;
	for (uint32_t i = j->first; i < j->first + j->count; i++)
		with += map.of[i].count > 0;
	if (with != 0 && with != j->count)
		return FAL_EFORMAT;
	/* The blocks come as in a move, from a map by which no shard has any. */
	const struct fal_map none = { .epoch = map.epoch, .shards = map.shards };
	const struct fal_shard_order begin = { .kind = FAL_ORDER_MIGRATE_BEGIN,
					       .map = &map };
	struct fal_rack_conf conf = { .map = with > 0 ? &none : &map,
				      .first = j->first,
				      .here = j->count,
				      .tickets = j->tickets,
				      .each = fal_files_shard_conf(&j->job, j->model,
								   j->tasks) };
	conf.each.parallel = fal_threads_parallel(j->run->threads);
	conf.each.at_once = &j->near;
	j->near = true;
	j->map = map;
	err = afford(j, values_of(j, &map), &diag);
	if (err < 0)
		return err;
	j->rack = fal_rack_new(&conf, NULL);
	if (j->rack == NULL)
		return FAL_ENOMEM;
	j->wants.publisher.rack = j->rack;
	j->wants.publisher.parallel = conf.each.parallel;
	j->wants.publisher.placed = j->job.placement == FAL_JOB_PLACEMENT_PSLD;
	j->wants.publisher.incarnation = j->incarnation;
	j->wants.publisher.rule = j->job.rule;
	j->wants.publisher.mixed = ps_has_port(&j->run->listen);
	fal_hash(j->text[0].p, j->text[0].n, j->wants.publisher.job_hash);
	if (with > 0)
		return fal_rack_order(j->rack, &begin);
	has_all(j);
	return FAL_OK;
}

static int
on_text(struct ps_join *j, const struct fal_msg *m)
{
	if (m->text.which > 1 || j->rack != NULL)
		return FAL_ESTATE;
	struct fal_buf *b = &j->text[m->text.which];
	if (m->text.offset != b->n || m->text.bytes.n > j->size[m->text.which] - b->n)
		return FAL_ESTATE;
	fal_put_bytes(b, m->text.bytes.p, m->text.bytes.n);
	if (b->err < 0)
		return b->err;
	return j->text[0].n == j->size[0] && j->text[1].n == j->size[1] ? make(j)
									: FAL_OK;
}

/* Counts the shards that have all of their blocks; with the last one the process is
 * placed. */
static int
become(struct ps_join *j)
{
	const struct fal_shard_order commit = { .kind = FAL_ORDER_COMMIT };
	struct fal_shard_say say;
	uint32_t shard;
	while (fal_rack_next(j->rack, &shard, &say))
		j->became++;
	if (j->became < j->count)
		return FAL_OK;
	int err = fal_rack_order(j->rack, &commit);
	if (err == FAL_OK)
		has_all(j);
	return err;
}

/* A part of what a shard will be comes. */
static int
on_image(struct ps_join *j, const struct fal_msg *m)
{
	if (j->rack == NULL || j->comes || m->image.what != FAL_FETCH_PIECE ||
	    m->image.blocks < 1 || m->image.blocks > fal_blocks(j->model->params) ||
	    m->image.shard - j->first >= j->count || m->image.arrays.n == 0)
		return FAL_ESTATE;
	j->at = (struct fal_post_at){ 0 };
	j->of_coming =
		(struct fal_post_of){ FAL_FETCH_PIECE, m->image.shard, m->image.epoch,
				      m->image.first, m->image.blocks };
	int err =
		fal_post_image_get(m, fal_post_image_most(m->image.blocks, FAL_SLACK_MAX),
				   &j->coming);
	j->comes = err == FAL_OK;
	return err;
}

/* All of it is here. */
static int
graft(struct ps_join *j)
{
	const struct fal_post_of *of = &j->of_coming;
	const struct fal_rack_piece piece = { of->epoch, of->first, of->count,
					      j->coming };
	int err = fal_rack_graft(j->rack, of->shard, &piece);
	j->comes = false;
	fal_image_free(&j->coming);
	if (err < 0)
		return err;
	return j->became < j->count ? become(j) : place_speak(j);
}

static int
on_bytes(struct ps_join *j, const struct fal_msg *m)
{
	if (!j->comes)
		return FAL_ESTATE;
	int got = fal_post_bytes_get(&m->bytes.bytes, &j->coming, &j->at);
	return got == 1 ? graft(j) : got;
}

/* ---- at work ----------------------------------------------------------------------- */

/* Before what is said of a new version: what was done so far. */
static int
say_served(struct ps_join *j)
{
	struct fal_msg m;
	struct fal_buf rows = { 0 };
	int err = ps_served_put(&j->wants.served, j->first, j->count, &m, &rows);
	if (err == FAL_OK)
		join_say(j, &m);
	fal_buf_free(&rows);
	return err;
}

int
place_speak(struct ps_join *j)
{
	struct fal_shard_say say;
	uint32_t shard;
	int err = FAL_OK;
	while (err == FAL_OK && fal_rack_next(j->rack, &shard, &say)) {
		if (say.kind == FAL_SAY_STEPPED)
			err = say_served(j);
		if (err == FAL_OK)
			err = fal_post_say(j->incarnation, shard - j->first, &say,
					   join_piece, j);
	}
	return err == FAL_OK ? ps_wants_leave(&j->wants, guest_reader, j) : err;
}

/* Queues a piece for a shard elsewhere, by way of the coordinator; takes its image. */
static int
give_piece(void *join, uint32_t to, struct fal_rack_piece *piece)
{
	struct ps_join *j = join;
	const struct queued_image p = { .of = { FAL_FETCH_PIECE, to, piece->epoch,
						piece->first, piece->count },
					.image = piece->image };
	piece->image = (struct fal_image){ 0 };
	return image_queue_add(&j->images, &p);
}

/* It will have others, beside which those that it has stay for a while.  1: so it was
 * told; 0: it cannot, and has said so. */
static int
on_map(struct ps_join *j, const struct fal_map *map)
{
	struct fal_diag why;
	size_t n = values_of(j, &j->map);
	for (uint32_t i = j->first; i < j->first + j->count; i++)
		if (map->of[i].first != j->map.of[i].first ||
		    map->of[i].count != j->map.of[i].count)
			n += (size_t)map->of[i].count * FAL_BLOCK;
	const bool more = n > values_of(j, &j->map);
	int err = more ? afford(j, n, &why) : FAL_OK;
	if (err < 0) { /* the move never was */
		const struct fal_shard_say say = { .kind = FAL_SAY_MIGRATED,
						   .version = map->epoch,
						   .err = err,
						   .odd = why.text };
		return fal_post_say(j->incarnation, 0, &say, join_piece, j);
	}
	j->to = *map;
	return 1;
}

/* The shards were told so: what follows. */
static int
after_order(struct ps_join *j, const struct fal_shard_order *o)
{
	if (o->kind == FAL_ORDER_MIGRATE_BEGIN) {
		int err = fal_rack_pieces(j->rack, give_piece, j);
		place_more(j);
		return err;
	}
	if (o->kind == FAL_ORDER_COMMIT && j->to.shards > 0) {
		const bool other = values_of(j, &j->to) != values_of(j, &j->map);
		j->map = j->to;
		ps_wants_moved(&j->wants);
		if (other)
			fal_cli_err(PROG, "%s: %s: has %zu of %u blocks from here on",
				    j->run->opt.join, j->job.name,
				    (values_of(j, &j->map) + FAL_BLOCK - 1) / FAL_BLOCK,
				    fal_blocks(j->model->params));
	}
	if (o->kind == FAL_ORDER_COMMIT || o->kind == FAL_ORDER_ABORT)
		j->to = (struct fal_map){ 0 };
	return o->kind == FAL_ORDER_ABORT ? image_queue_abort(&j->images) : FAL_OK;
}

/* Another rule, or a coordinator that means ill, has more versions kept. */
static int
keeps(struct ps_join *j, const struct fal_shard_order *o)
{
	const uint32_t most = o->versions < FAL_KEPT_MAX ? o->versions : FAL_KEPT_MAX;
	if (most <= j->versions)
		return FAL_OK;
	struct fal_diag why;
	j->versions = most;
	return afford(j, values_of(j, &j->map), &why);
}

static int
on_order(struct ps_join *j, const struct fal_msg *m)
{
	const uint32_t blocks = fal_blocks(j->model->params);
	struct fal_shard_order o;
	struct fal_map map;
	const uint64_t began = uv_hrtime();
	int err = fal_post_order_get(m, blocks, &map, &o);
	if (err == FAL_OK && o.kind == FAL_ORDER_MIGRATE_BEGIN) {
		err = on_map(j, o.map);
		if (err <= 0)
			return err;
		err = FAL_OK;
	}
	if (err == FAL_OK)
		err = keeps(j, &o);
	if (err == FAL_OK)
		err = fal_rack_order(j->rack, &o);
	if (err == FAL_OK)
		err = after_order(j, &o);
	if (err == FAL_OK)
		err = place_speak(j);
	j->wants.served.service += uv_hrtime() - began;
	return err;
}

static int
on_publish(struct ps_join *j, const struct fal_msg *m)
{
	const uint32_t names = (uint32_t)(m->publish.named.n / 8);
	struct fal_rd r = fal_rd_init(m->publish.named.p, m->publish.named.n);
	struct ps_guest *g = guest_find(j, m->publish.session);
	uint64_t *named = fal_calloc((size_t)names + 1, sizeof(*named));
	if (named == NULL)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < names; i++)
		named[i] = fal_get_u64(&r);
	const struct fal_coord_model model = { .version = m->publish.version,
					       .newest = m->publish.newest,
					       .order = m->publish.order,
					       .oldest = m->publish.oldest,
					       .keep = m->publish.keep != 0,
					       .from = m->publish.from,
					       .named = named,
					       .names = names };
	int err = fal_rd_end(&r);
	if (err == FAL_OK && g != NULL)
		err = ps_wants_add(&j->wants, g->id, &g->reader, &model);
	free(named);
	return err == FAL_OK ? ps_wants_leave(&j->wants, guest_reader, j) : err;
}

/* The parameters that a shard has of a version, and the average; nothing, if it has it
 * no more. */
static int
params_of(struct ps_join *j, uint32_t shard, uint64_t version, struct fal_image *out)
{
	struct fal_shard_part part;
	struct fal_image live = { .is.version = version };
	if (!fal_rack_part(j->rack, shard, version, &part))
		return FAL_OK;
	const float *average = fal_shard_average(fal_rack_at(j->rack, shard));
	const size_t bytes = part.values * sizeof(float);
	int err = fal_image_add(&live, "params", true, (void *)(uintptr_t)part.params,
				bytes);
	if (err == FAL_OK && average != NULL)
		err = fal_image_add(&live, "average", true, (void *)(uintptr_t)average,
				    bytes);
	if (err == FAL_OK)
		err = fal_image_copy(out, &live);
	fal_image_free(&live);
	return err;
}

static int
on_fetch(struct ps_join *j, const struct fal_msg *m)
{
	for (uint32_t i = 0; i < j->count; i++) {
		struct fal_shard *shard = fal_rack_at(j->rack, j->first + i);
		struct queued_image p = { .of = { .what = (enum fal_fetch)m->fetch.what,
						  .shard = i },
					  .image.is.version = m->fetch.version };
		if (shard == NULL) /* it has no block */
			continue;
		fal_rack_range(j->rack, j->first + i, &p.of.first, &p.of.count);
		if (p.of.what == FAL_FETCH_PARAMS &&
		    params_of(j, j->first + i, m->fetch.version, &p.image) < 0)
			return FAL_ENOMEM;
		if (p.of.what == FAL_FETCH_MARKED)
			(void)fal_shard_marked(shard, m->fetch.version, &p.image);
		if (image_queue_add(&j->images, &p) < 0)
			return FAL_ENOMEM;
	}
	place_more(j);
	return FAL_OK;
}

/* The memory of a mark is for the next one. */
static void
on_left(void *arg, struct queued_image *p)
{
	const struct ps_join *j = arg;
	if (p->of.what != FAL_FETCH_MARKED || p->image.arrays == 0)
		return;
	struct fal_shard *shard = fal_rack_at(j->rack, j->first + p->of.shard);
	if (shard != NULL)
		fal_shard_spare(shard, &p->image);
}

void
place_more(struct ps_join *j)
{
	image_queue_send(&j->images, j->incarnation, j->chan, on_left, j);
}

int
place_msg(struct ps_join *j, const struct fal_msg *m)
{
	const bool placed = j->rack != NULL && j->became == j->count;
	if (m->type == FAL_MSG_PLACE)
		return on_place(j, m);
	if (j->of == 0)
		return FAL_ESTATE;
	struct fal_msg pong = { .type = FAL_MSG_PONG, .pong.stamp = m->ping.stamp };
	switch (m->type) {
	case FAL_MSG_PING:
		join_say(j, &pong);
		return FAL_OK;
	case FAL_MSG_TEXT:
		return on_text(j, m);
	case FAL_MSG_IMAGE:
		return on_image(j, m);
	case FAL_MSG_BYTES:
		return on_bytes(j, m);
	case FAL_MSG_ORDER:
		return placed ? on_order(j, m) : FAL_ESTATE;
	case FAL_MSG_ADMIT:
		return placed ? guest_admit(j, m) : FAL_ESTATE;
	case FAL_MSG_DISMISS:
		return guest_dismiss(j, m->dismiss.session);
	case FAL_MSG_PUBLISH:
		return placed ? on_publish(j, m) : FAL_ESTATE;
	case FAL_MSG_FETCH:
		return placed ? on_fetch(j, m) : FAL_ESTATE;
	default:
		return FAL_EFORMAT;
	}
}
