/* The shards of one process: orders, pushes, moves, and whole versions of the model. */
#include "server/shard_set.h"

#include "base/mem.h"
#include "base/text.h"
#include "crypto/secret.h"
#include "server/store.h"
#include "wire/bfp.h"

#include <stdlib.h>
#include <string.h>

struct fal_shard_set {
	struct fal_shard_conf each;
	struct fal_ticket_scope tickets;
	uint32_t first, here; /* the numbers of local shards */
	uint32_t n;
	struct place {
		struct holding {
			struct fal_image_run run; /* of blocks */
			struct fal_shard *shard;  /* NULL: remote, or no shard */
		} now, next;                      /* next: after the move */
		/* next_map.epoch is 0: there is no move */
		struct fal_map map, next_map;
		/* The image of the next shard, which pieces fill in; by block, whether
		 * the block is filled. */
		struct fal_image live;
		uint8_t *is_filled;
		uint32_t blocks_left;
		bool is_gathered; /* the shard's part is in `params` */
	} at[FAL_SHARDS_MAX];
	/* The model at gather_version, gathered from several shards. */
	float *params, *average;
	bool gathers;
	uint64_t gather_version;
};

/* The number of shards of the job. */
static uint32_t
job_shards(const struct fal_shard_set_conf *conf)
{
	const uint32_t blocks = fal_blocks(conf->each.n);
	return conf->shards < 1 ? 1 : conf->shards < blocks ? conf->shards : blocks;
}

static struct fal_image_run
block_run(const struct fal_shard_set *r, uint32_t first, uint32_t count)
{
	const size_t from = (size_t)first * FAL_BLOCK, most = (size_t)count * FAL_BLOCK,
		     left = r->each.n - from;
	return (struct fal_image_run){ first, count, left < most ? left : most };
}

static bool
is_local(const struct fal_shard_set *r, uint32_t i)
{
	return i - r->first < r->here;
}

/* Makes shard `i` of a run of blocks, with its part of `init`.  Returns false when out of
 * memory. */
static bool
create_shard(const struct fal_shard_set *r, uint32_t i, struct holding *h,
	     const float *init)
{
	struct fal_shard_conf one = r->each;
	one.number = i;
	one.tickets = r->tickets;
	one.first = h->run.first;
	one.count = h->run.count;
	h->shard =
		fal_shard_new(&one, init != NULL ? init + (size_t)h->run.first * FAL_BLOCK
						 : NULL);
	fal_secret_wipe(&one.tickets, sizeof(one.tickets));
	return h->shard != NULL;
}

/* Makes room to gather the parts of several shards.  Returns false when out of memory. */
static bool
alloc_gather(struct fal_shard_set *r)
{
	if (r->params == NULL)
		r->params = fal_calloc_aligned(r->each.n, sizeof(*r->params));
	if (r->each.optim.ema > 0 && r->average == NULL)
		r->average = fal_calloc_aligned(r->each.n, sizeof(*r->average));
	return r->params != NULL && (r->each.optim.ema <= 0 || r->average != NULL);
}

struct fal_shard_set *
fal_shard_set_new(const struct fal_shard_set_conf *conf, const float *init)
{
	struct fal_shard_set *r = fal_xcalloc(1, sizeof(*r));
	struct fal_map map;
	if (conf->map != NULL)
		map = *conf->map;
	else
		fal_map_even(&map, fal_blocks(conf->each.n), job_shards(conf));
	r->each = conf->each;
	r->tickets = conf->tickets;
	r->n = map.shards;
	r->first = conf->here > 0 ? conf->first : 0;
	r->here = conf->here > 0 ? conf->here : r->n;
	bool room = r->n == 1 || r->here < r->n || alloc_gather(r);
	for (uint32_t i = 0; room && i < r->n; i++) {
		struct place *p = &r->at[i];
		p->now.run = block_run(r, map.of[i].first, map.of[i].count);
		p->map = map;
		p->map.epoch = r->tickets.epoch;
		if (is_local(r, i) && p->now.run.count > 0)
			room = create_shard(r, i, &p->now, init);
	}
	if (room)
		return r;
	fal_shard_set_free(r);
	return NULL;
}

static void
end_move(struct place *p)
{
	fal_shard_free(p->next.shard);
	fal_image_free(&p->live);
	free(p->is_filled);
	p->is_filled = NULL;
	p->next = (struct holding){ 0 };
	p->next_map.epoch = 0;
	p->blocks_left = 0;
}

void
fal_shard_set_free(struct fal_shard_set *r)
{
	if (r == NULL)
		return;
	for (uint32_t i = 0; i < r->n; i++) {
		end_move(&r->at[i]);
		fal_shard_free(r->at[i].now.shard);
	}
	fal_secret_wipe(&r->tickets, sizeof(r->tickets));
	free(r->params);
	free(r->average);
	free(r);
}

uint32_t
fal_shard_set_count(const struct fal_shard_set *r)
{
	return r->n;
}

struct fal_shard *
fal_shard_set_shard(const struct fal_shard_set *r, uint32_t i)
{
	return r->at[i].now.shard;
}

int
fal_shard_set_give(struct fal_shard_set *r, uint32_t i, struct fal_shard_set_piece *out)
{
	struct place *p = &r->at[i];
	const struct fal_shard_order mark = { .kind = FAL_ORDER_SNAPSHOT };
	struct fal_shard *shard = p->now.shard;
	*out = (struct fal_shard_set_piece){ .epoch = p->map.epoch,
					     .first = p->now.run.first,
					     .count = p->now.run.count };
	int err = fal_shard_order(shard, &mark, NULL);
	if (err == FAL_OK &&
	    !fal_shard_take_marked(shard, fal_shard_version(shard), &out->image))
		err = FAL_ENOMEM;
	if (err < 0)
		return err;
	fal_shard_free(shard);
	p->now.shard = NULL;
	if (is_local(r, i)) /* shards that a move makes later are given away, too */
		r->here = i - r->first;
	return FAL_OK;
}

/* ---- moves ------------------------------------------------------------------------- */

/* Returns true if shard `i` has the same blocks in both maps of `p`. */
static bool
keeps_blocks(const struct place *p, uint32_t i)
{
	const struct fal_extent *a = &p->map.of[i], *b = &p->next_map.of[i];
	return a->first == b->first && a->count == b->count;
}

/* Reports that shard `i` has all blocks of its next map. */
static void
report_migrated(const struct fal_shard_set *r, uint32_t i, struct fal_shard_result *out)
{
	const struct fal_shard_report migrated = { .kind = FAL_REPORT_MIGRATED,
						   .shard = i,
						   .version = r->at[i].next_map.epoch };
	fal_shard_result_add(out, &migrated);
}

static int
begin_move(struct fal_shard_set *r, uint32_t i, const struct fal_map *map,
	   struct fal_shard_result *out)
{
	struct place *p = &r->at[i];
	end_move(p);
	r->n = map->shards > r->n ? map->shards : r->n;
	p->next_map = *map;
	p->next.run = block_run(r, map->of[i].first, map->of[i].count);
	if (!is_local(r, i))
		return FAL_OK;
	if (keeps_blocks(p, i) || p->next.run.count == 0) {
		report_migrated(r, i, out);
		return FAL_OK;
	}
	p->blocks_left = p->next.run.count;
	p->is_filled = fal_xcalloc(p->blocks_left, 1);
	return create_shard(r, i, &p->next, NULL) ? FAL_OK : FAL_ENOMEM;
}

static void
commit_move(struct fal_shard_set *r, uint32_t i)
{
	struct place *p = &r->at[i];
	if (p->next_map.epoch == 0)
		return;
	if (!keeps_blocks(p, i)) {
		struct fal_shard *old = p->now.shard;
		p->now = p->next;
		/* end_move frees the old shard, whose blocks all have another copy now */
		p->next.shard = old;
	}
	p->map = p->next_map;
	end_move(p);
	r->gathers = false;
}

int
fal_shard_set_piece(const struct fal_shard_set *r, uint32_t from, uint32_t to,
		    uint32_t most, struct fal_shard_set_piece *out)
{
	const struct place *p = &r->at[from];
	const struct fal_extent *b = &p->next_map.of[to];
	const struct fal_image_run *a = &p->now.run;
	const uint32_t a_end = a->first + a->count, b_end = b->first + b->count;
	uint32_t first = a->first > b->first ? a->first : b->first,
		 end = a_end < b_end ? a_end : b_end;
	first = first > out->first + out->count ? first : out->first + out->count;
	end = end < first + most ? end : first + most;
	struct fal_image live = { 0 };
	if (p->now.shard == NULL || p->next_map.epoch == 0 || keeps_blocks(p, to) ||
	    first >= end)
		return 0;
	const struct fal_image_run of = block_run(r, first, end - first);
	int err = fal_shard_image(p->now.shard, &live);
	if (err == FAL_OK)
		fal_image_cut(&live, a, &of, &out->image);
	fal_image_free(&live);
	out->epoch = p->next_map.epoch;
	out->first = first;
	out->count = end - first;
	return err < 0 ? err : 1;
}

/* Can the piece be a part of the next shard?  In a move all shards have the same numbers
 * in their images.  If there is no local shard to compare with, the piece must have the
 * values of all versions, branches and slots that its numbers claim.  So the memory of
 * the next shard is in proportion to the piece. */
static bool
is_credible(const struct fal_shard_set *r, const struct fal_shard_set_piece *piece,
	    size_t values)
{
	const struct fal_image *of = &piece->image;
	const struct fal_image_head *is = &of->is;
	const uint64_t state = fal_optim_slots(&r->each.optim);
	const uint64_t named = 1 + state + is->olds + is->slots + (2 + state) * is->lines;
	uint64_t there = 0;
	for (uint32_t i = 0; i < r->n; i++) {
		struct fal_image here = { 0 };
		if (r->at[i].now.shard == NULL || r->at[i].next_map.epoch != piece->epoch)
			continue;
		const bool same = fal_shard_image(r->at[i].now.shard, &here) == FAL_OK &&
				  fal_image_head_equal(&here.is, is);
		fal_image_free(&here);
		return same;
	}
	for (uint32_t i = 0; i < of->arrays; i++)
		if (of->array[i].floats)
			there += of->array[i].bytes / (values * sizeof(float));
	return there >= named;
}

int
fal_shard_set_graft(struct fal_shard_set *r, uint32_t to,
		    const struct fal_shard_set_piece *piece, struct fal_shard_result *out)
{
	struct place *p = &r->at[to];
	struct holding *h = &p->next;
	if (piece->epoch != p->next_map.epoch || keeps_blocks(p, to) || h->shard == NULL)
		return FAL_OK;
	const uint32_t at = piece->first - h->run.first;
	if (piece->count == 0 || piece->first < h->run.first ||
	    piece->count > h->run.count || at > h->run.count - piece->count)
		return FAL_EFORMAT;
	if (p->blocks_left == 0)
		return FAL_OK;
	const struct fal_image_run of = block_run(r, piece->first, piece->count);
	int err = FAL_OK;
	if (p->live.arrays == 0)
		err = is_credible(r, piece, of.values)
			      ? fal_shard_restore_begin(h->shard, &piece->image.is,
							&p->live)
			      : FAL_EFORMAT;
	if (err == FAL_OK)
		err = fal_image_graft(&p->live, &h->run, &piece->image, &of);
	if (err < 0)
		return err;
	for (uint32_t b = at; b < at + piece->count; b++) {
		p->blocks_left -= p->is_filled[b] == 0;
		p->is_filled[b] = 1;
	}
	if (p->blocks_left > 0)
		return FAL_OK;
	fal_shard_restore_end(h->shard);
	fal_image_free(&p->live);
	report_migrated(r, to, out);
	return FAL_OK;
}

/* Hands the pieces of local shards for remote shards to `each`, at most `most` blocks in
 * a piece; with `each` NULL, adds the pieces for local shards to these shards. */
static int
each_piece(struct fal_shard_set *r, uint32_t most,
	   int (*each)(void *arg, uint32_t to, struct fal_shard_set_piece *piece),
	   void *arg, struct fal_shard_result *out)
{
	int err = FAL_OK;
	for (uint32_t i = 0; i < r->here * r->n && err >= 0; i++) {
		const uint32_t from = r->first + i / r->n, to = i % r->n;
		struct fal_shard_set_piece piece = { 0 };
		if (is_local(r, to) != (each == NULL))
			continue;
		while (err >= 0 &&
		       (err = fal_shard_set_piece(r, from, to, most, &piece)) > 0) {
			err = each != NULL ? each(arg, to, &piece)
					   : fal_shard_set_graft(r, to, &piece, out);
			fal_image_free(&piece.image);
		}
	}
	return err < 0 ? err : FAL_OK;
}

int
fal_shard_set_each_piece(struct fal_shard_set *r,
			 int (*each)(void *arg, uint32_t to,
				     struct fal_shard_set_piece *piece),
			 void *arg)
{
	/* A process forwards or grafts a piece while the next piece arrives, and has
	 * memory for only a few. */
	return each_piece(r, 64, each, arg, NULL);
}

/* ---- orders and pushes ------------------------------------------------------------- */

int
fal_shard_set_order_one(struct fal_shard_set *r, uint32_t i,
			const struct fal_shard_order *o, struct fal_shard_result *out)
{
	struct fal_shard *shard = r->at[i].now.shard;
	switch (o->kind) {
	case FAL_ORDER_MIGRATE_BEGIN:
		return begin_move(r, i, o->map, out);
	case FAL_ORDER_COMMIT:
		commit_move(r, i);
		return FAL_OK;
	case FAL_ORDER_ABORT:
		end_move(&r->at[i]);
		return FAL_OK;
	default:
		return shard != NULL ? fal_shard_order(shard, o, out) : FAL_OK;
	}
}

int
fal_shard_set_order(void *shard_set, const struct fal_shard_order *o,
		    struct fal_shard_result *out)
{
	struct fal_shard_set *r = shard_set;
	int err = FAL_OK;
	for (uint32_t i = 0; i < r->n && err == FAL_OK; i++) /* a move may add shards */
		err = fal_shard_set_order_one(r, i, o, out);
	if (err < 0 || o->kind != FAL_ORDER_MIGRATE_BEGIN)
		return err;
	return each_piece(r, fal_blocks(r->each.n), NULL, NULL, out);
}

int
fal_shard_set_push_one(struct fal_shard_set *r, uint32_t i, const struct fal_ticket *t,
		       const struct fal_tail *records, struct fal_shard_result *out,
		       struct fal_diag *diag)
{
	const struct place *p = &r->at[i];
	const bool next =
		t->epoch != 0 && t->epoch == p->next_map.epoch && !keeps_blocks(p, i);
	struct fal_shard *shard = next ? p->next.shard : p->now.shard;
	if (t->epoch != 0 && t->epoch < p->map.epoch)
		return FAL_OK;
	if (t->epoch > p->map.epoch &&
	    (t->epoch != p->next_map.epoch || p->blocks_left > 0))
		return fal_diag_set(diag, FAL_ESTATE, "wrong map: epoch %u", t->epoch);
	return shard != NULL ? fal_shard_push(shard, t, records, out, diag) : FAL_OK;
}

int
fal_shard_set_push(void *shard_set, const struct fal_ticket *t,
		   const struct fal_tail *records, struct fal_shard_result *out,
		   struct fal_diag *diag)
{
	struct fal_shard_set *r = shard_set;
	int err = FAL_OK;
	for (uint32_t i = 0; i < r->n; i++) {
		if (!is_local(r, i))
			continue;
		int got = fal_shard_set_push_one(r, i, t, records, out,
						 err < 0 ? NULL : diag);
		err = err == FAL_OK ? got : err;
	}
	return err;
}

int
fal_shard_set_ticket(const struct fal_shard_set *r, uint32_t session,
		     const struct fal_msg *m, struct fal_ticket *out,
		     struct fal_diag *diag)
{
	struct fal_ticket_scope in = r->tickets;
	in.epoch = m->push.epoch;
	const bool good = fal_ticket_get(&in, session, &m->push.ticket, out);
	fal_secret_wipe(&in, sizeof(in));
	out->epoch = m->push.epoch;
	if (!good || out->epoch == 0)
		return fal_diag_set(diag, FAL_EAUTH, "pushes %u task%s without a ticket",
				    m->push.ticket.tasks,
				    fal_text_plural(m->push.ticket.tasks));
	return FAL_OK;
}

int
fal_shard_set_push_msg(void *shard_set, uint32_t session, const struct fal_msg *m,
		       struct fal_shard_result *out, struct fal_diag *diag)
{
	struct fal_ticket t;
	int err = fal_shard_set_ticket(shard_set, session, m, &t, diag);
	return err < 0 ? err
		       : fal_shard_set_push(shard_set, &t, &m->push.records, out, diag);
}

/* ---- versions --------------------------------------------------------------------- */

void
fal_shard_set_range(const struct fal_shard_set *r, uint32_t i, uint32_t *first,
		    uint32_t *blocks)
{
	*first = r->at[i].now.run.first;
	*blocks = r->at[i].now.run.count;
}

uint32_t
fal_shard_set_list(const struct fal_shard_set *r, uint32_t out[static FAL_SHARDS_MAX])
{
	struct fal_map map = { .shards = r->n };
	for (uint32_t i = 0; i < r->n; i++)
		map.of[i] = (struct fal_extent){ r->at[i].now.run.first,
						 r->at[i].now.run.count };
	return fal_map_list(&map, out);
}

static struct fal_shard_part
part_of_shard(const struct fal_shard_set *r, uint32_t i)
{
	const struct fal_image_run *run = &r->at[i].now.run;
	return (struct fal_shard_part){
		i, run->first, run->count, run->values, NULL, NULL
	};
}

bool
fal_shard_set_part(const struct fal_shard_set *r, uint32_t i, uint64_t version,
		   struct fal_shard_part *out)
{
	*out = part_of_shard(r, i);
	return r->at[i].now.shard != NULL &&
	       fal_shard_find_version(r->at[i].now.shard, version, &out->params,
				      &out->exps);
}

bool
fal_shard_set_making(const struct fal_shard_set *r, uint32_t i, uint64_t version,
		     struct fal_shard_part *out, struct fal_shard_making *is)
{
	const struct fal_shard *shard = r->at[i].now.shard;
	if (shard == NULL || !fal_shard_making(shard, is) || is->version != version)
		return false;
	*out = part_of_shard(r, i);
	out->params = is->params;
	out->exps = is->exps;
	return true;
}

/* Returns true if another process has the shard. */
static bool
is_remote(const struct place *p)
{
	return p->now.shard == NULL && p->now.run.count > 0;
}

/* Finds the shard that has all blocks; NULL if there is none, or if it is remote. */
static const struct place *
sole_shard(const struct fal_shard_set *r)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (r->at[i].now.run.values == r->each.n)
			return r->at[i].now.shard != NULL ? &r->at[i] : NULL;
	return NULL;
}

bool
fal_shard_set_gather(struct fal_shard_set *r, uint64_t version)
{
	struct fal_shard_part part;
	r->gathers = false;
	if (!alloc_gather(r))
		return false;
	for (uint32_t i = 0; i < r->n; i++) {
		struct place *p = &r->at[i];
		p->is_gathered = !is_remote(p);
		if (p->now.shard == NULL)
			continue;
		if (!fal_shard_set_part(r, i, version, &part))
			return false;
		memcpy(r->params + (size_t)part.first * FAL_BLOCK, part.params,
		       part.values * sizeof(*r->params));
	}
	r->gathers = true;
	r->gather_version = version;
	return true;
}

int
fal_shard_set_gather_part(struct fal_shard_set *r, uint32_t i,
			  const struct fal_image *has)
{
	struct place *p = &r->at[i];
	const size_t from = (size_t)p->now.run.first * FAL_BLOCK,
		     bytes = p->now.run.values * sizeof(float);
	const bool averages = r->average != NULL;
	if (!r->gathers || has->is.version != r->gather_version)
		return FAL_OK; /* the part belongs to an earlier gathering */
	if (!is_remote(p) || has->arrays != 1u + averages ||
	    has->array[0].bytes != bytes || (averages && has->array[1].bytes != bytes))
		return FAL_EFORMAT;
	memcpy(r->params + from, has->array[0].p, bytes);
	if (averages)
		memcpy(r->average + from, has->array[1].p, bytes);
	p->is_gathered = true;
	return FAL_OK;
}

static bool
has_gathered_all(const struct fal_shard_set *r)
{
	uint32_t i = 0;
	while (i < r->n && r->at[i].is_gathered)
		i++;
	return i == r->n;
}

bool
fal_shard_set_is_gathering(const struct fal_shard_set *r)
{
	return r->gathers && !has_gathered_all(r);
}

bool
fal_shard_set_has_gathered(const struct fal_shard_set *r, uint64_t version)
{
	return r->gathers && r->gather_version == version && has_gathered_all(r);
}

const float *
fal_shard_set_params(struct fal_shard_set *r, uint64_t version)
{
	const struct place *one = sole_shard(r);
	const float *params;
	const int8_t *exps;
	if (one != NULL)
		return fal_shard_find_version(one->now.shard, version, &params, &exps)
			       ? params
			       : NULL;
	for (uint32_t i = 0; i < r->n; i++)
		if (is_remote(&r->at[i]))
			return fal_shard_set_has_gathered(r, version) ? r->params : NULL;
	return fal_shard_set_gather(r, version) ? r->params : NULL;
}

const float *
fal_shard_set_average(struct fal_shard_set *r)
{
	const struct place *one = sole_shard(r);
	if (one != NULL)
		return fal_shard_average(one->now.shard);
	for (uint32_t i = 0; i < r->n; i++) {
		const struct holding *h = &r->at[i].now;
		if (h->shard == NULL) /* fal_shard_set_gather_part has filled it in */
			continue;
		const float *of = fal_shard_average(h->shard);
		if (of == NULL)
			return of;
		memcpy(r->average + (size_t)h->run.first * FAL_BLOCK, of,
		       h->run.values * sizeof(*r->average));
	}
	return r->average;
}

bool
fal_shard_set_take_marked(struct fal_shard_set *r, uint64_t version,
			  struct fal_image *out)
{
	uint32_t n = 0;
	while (n < r->n && (r->at[n].now.shard == NULL ||
			    fal_shard_take_marked(r->at[n].now.shard, version, &out[n])))
		n++;
	if (n == r->n)
		return true;
	while (n > 0)
		fal_image_free(&out[--n]);
	return false;
}

void
fal_shard_set_recycle_image(struct fal_shard_set *r, uint32_t i, struct fal_image *image)
{
	if (r->at[i].now.shard != NULL)
		fal_shard_recycle_image(r->at[i].now.shard, image);
}

int
fal_shard_set_restore(struct fal_shard_set *r, const struct fal_image_head *is,
		      int (*fill)(void *arg, const struct fal_image_array *a), void *arg)
{
	struct fal_image live[FAL_SHARDS_MAX] = { 0 };
	uint32_t order[FAL_SHARDS_MAX];
	const uint32_t n = fal_shard_set_list(r, order);
	int err = FAL_OK;
	for (uint32_t i = 0; i < n && err == FAL_OK; i++)
		err = fal_shard_restore_begin(r->at[order[i]].now.shard, is, &live[i]);
	for (uint32_t k = 0; err == FAL_OK && k < live[0].arrays; k++)
		for (uint32_t i = 0; i < n && err == FAL_OK; i++)
			err = fill(arg, &live[i].array[k]);
	for (uint32_t i = 0; i < n && err == FAL_OK; i++)
		fal_shard_restore_end(r->at[order[i]].now.shard);
	for (uint32_t i = 0; i < n; i++)
		fal_image_free(&live[i]);
	return err;
}

static struct fal_store_conf
store_conf(const struct fal_shard_set_conf *conf)
{
	return (struct fal_store_conf){ .n = conf->each.n,
					.optim = conf->each.optim,
					.checksums = conf->each.checksums };
}

uint64_t
fal_shard_set_bytes(const struct fal_shard_set_conf *conf,
		    const struct fal_store_limits *most)
{
	const struct fal_store_conf store = store_conf(conf);
	const uint64_t vector = conf->each.n * sizeof(float);
	struct fal_store_limits own = *most;
	uint64_t held = vector;
	/* With several shards, each keeps one more version until all shards have made the
	 * next one (design.md, D28); and there is a gathered model. */
	if (job_shards(conf) > 1) {
		own.beyond++;
		held += (conf->each.optim.ema > 0 ? 2 : 1) * vector;
	}
	return fal_store_bytes(&store, &own) + held;
}

uint64_t
fal_shard_set_image_bytes(const struct fal_shard_set_conf *conf,
			  const struct fal_store_limits *most)
{
	const struct fal_store_conf store = store_conf(conf);
	return fal_store_image_bytes(&store, most) + conf->each.n * sizeof(float);
}
