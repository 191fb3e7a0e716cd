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

enum { TEXT_MAX = 1 << 20 }; /* bytes of a job's or a model's text */

void
place_forget(struct join *j)
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
	fal_post_free(&j->post);
	ps_parcels_clear(&j->parcels);
	fal_secret_wipe(&j->tickets, sizeof(j->tickets));
	j->of = j->became = 0;
	j->comes = false;
}

static int
on_place(struct join *j, const struct fal_msg *m)
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

/* What the part needs is said, and must be allowed. */
static int
afford(const struct join *j, const struct fal_rack_conf *conf)
{
	size_t n = 0;
	for (uint32_t i = j->first; i < j->first + j->count; i++)
		n += (size_t)conf->map->of[i].count * FAL_BLOCK;
	struct fal_rack_conf part = { .shards = 1, .each = conf->each };
	struct fal_diag why;
	part.each.n = n < conf->each.n ? n : conf->each.n;
	const uint64_t need = ps_need_part(j->run->program, &part, &j->job.rule);
	fal_cli_err(PROG, "%s: shards %u to %u of %u need %" PRIu64 " MiB", j->job.name,
		    j->first + 1, j->first + j->count, j->of, fal_need_mib(need));
	int err = fal_need_allowed(need, j->run->opt.max_memory, &why);
	if (err < 0)
		fal_cli_err(PROG, "%s", why.text);
	return err;
}

/* Job and model are here. */
static int
make(struct join *j)
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
	for (uint32_t i = 0; i < map.shards; i++)
		if (map.of[i].count == 0)
			return FAL_EFORMAT;
	const struct fal_rack_conf conf = {
		.map = &map,
		.first = j->first,
		.here = j->count,
		.tickets = j->tickets,
		.each = fal_files_shard_conf(&j->job, j->model, j->tasks)
	};
	err = afford(j, &conf);
	if (err < 0)
		return err;
	j->rack = fal_rack_new(&conf, NULL);
	if (j->rack == NULL)
		return FAL_ENOMEM;
	j->wants.publisher.rack = j->rack;
	j->wants.publisher.incarnation = j->incarnation;
	j->wants.publisher.most = ps_published_most(&j->job.rule);
	fal_hash(j->text[0].p, j->text[0].n, j->wants.publisher.job_hash);
	return FAL_OK;
}

static int
on_text(struct join *j, const struct fal_msg *m)
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

/* What the next shard is to be is whole. */
static int
become(struct join *j)
{
	struct fal_msg placed = { .type = FAL_MSG_PLACED,
				  .placed.epoch = j->tickets.epoch };
	int err = fal_rack_take(j->rack, j->first + j->became, &j->coming);
	j->comes = false;
	fal_image_free(&j->coming);
	if (err == FAL_OK && ++j->became == j->count) {
		join_say(j, &placed);
		fal_cli_err(PROG, "%s: %s: has shards %u to %u of %u", j->run->opt.join,
			    j->job.name, j->first + 1, j->first + j->count, j->of);
	}
	return err;
}

static int
on_image(struct join *j, const struct fal_msg *m)
{
	if (j->rack == NULL || j->comes || m->image.shard != j->became ||
	    j->became == j->count || m->image.arrays.n == 0)
		return FAL_ESTATE;
	j->at = (struct fal_post_at){ 0 };
	uint32_t first, blocks;
	fal_rack_range(j->rack, j->first + j->became, &first, &blocks);
	int err = fal_post_image_get(m, fal_post_image_most(blocks, FAL_SLACK_MAX),
				     &j->coming);
	j->comes = err == FAL_OK;
	return err;
}

static int
on_bytes(struct join *j, const struct fal_msg *m)
{
	if (!j->comes)
		return FAL_ESTATE;
	int got = fal_post_bytes_get(&m->bytes.bytes, &j->coming, &j->at);
	return got == 1 ? become(j) : got;
}

/* ---- at work ----------------------------------------------------------------------- */

/* Before what is said of a new version: what was done so far. */
static int
say_served(struct join *j)
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
place_speak(struct join *j)
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

static int
on_order(struct join *j, const struct fal_msg *m)
{
	const uint32_t blocks = fal_blocks(j->model->params);
	struct fal_msg whole = *m;
	struct fal_shard_order o;
	struct fal_map map;
	const uint64_t began = uv_hrtime();
	int err = fal_post_add(&j->post, &whole, blocks);
	if (err <= 0)
		return err;
	err = fal_post_order_get(&whole, blocks, &map, &o);
	if (err == FAL_OK)
		err = fal_rack_order(j->rack, &o);
	if (err == FAL_OK)
		err = place_speak(j);
	j->wants.served.service += uv_hrtime() - began;
	return err;
}

static int
on_publish(struct join *j, const struct fal_msg *m)
{
	const uint32_t names = (uint32_t)(m->publish.named.n / 8);
	struct fal_rd r = fal_rd_init(m->publish.named.p, m->publish.named.n);
	const struct guest *g = guest_find(j, m->publish.session);
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
params_of(struct join *j, uint32_t shard, uint64_t version, struct fal_image *out)
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
on_fetch(struct join *j, const struct fal_msg *m)
{
	for (uint32_t i = 0; i < j->count; i++) {
		struct ps_parcel p = { .what = (enum fal_fetch)m->fetch.what,
				       .shard = i,
				       .image.is.version = m->fetch.version };
		if (p.what == FAL_FETCH_PARAMS &&
		    params_of(j, j->first + i, m->fetch.version, &p.image) < 0)
			return FAL_ENOMEM;
		struct fal_shard *shard = fal_rack_at(j->rack, j->first + i);
		if (p.what == FAL_FETCH_MARKED && shard != NULL)
			(void)fal_shard_marked(shard, m->fetch.version, &p.image);
		if (ps_parcels_add(&j->parcels, &p) < 0)
			return FAL_ENOMEM;
	}
	place_more(j);
	return FAL_OK;
}

/* The memory of a mark is for the next one. */
static void
on_left(void *arg, struct ps_parcel *p)
{
	const struct join *j = arg;
	struct fal_shard *shard = fal_rack_at(j->rack, j->first + p->shard);
	if (p->what == FAL_FETCH_MARKED && p->image.arrays > 0 && shard != NULL)
		fal_shard_spare(shard, &p->image);
}

void
place_more(struct join *j)
{
	ps_parcels_leave(&j->parcels, j->incarnation, j->chan, on_left, j);
}

int
place_msg(struct join *j, const struct fal_msg *m)
{
	const bool placed = j->rack != NULL && j->became == j->count;
	if (m->type == FAL_MSG_PLACE)
		return on_place(j, m);
	if (j->of == 0)
		return FAL_ESTATE;
	switch (m->type) {
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
