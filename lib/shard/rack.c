/* The shards of one process. */
#include "shard/rack.h"

#include "base/mem.h"
#include "base/text.h"
#include "sec/secret.h"
#include "store/store.h"
#include "wire/bfp.h"

#include <stdlib.h>
#include <string.h>

struct fal_rack {
	struct fal_shard_conf each;
	struct fal_ticket_in tickets;
	struct place {
		uint32_t first, count; /* blocks */
		size_t values;
		struct fal_shard *shard; /* NULL: elsewhere, and */
		bool brought;            /* what it has of `gathered` is in `all` */
	} * at;
	uint32_t n;
	/* Of several: all parameters, their average, scratch. */
	float *all, *average;
	bool gathers; /* `all` is of this version, once all was brought */
	uint64_t gathered;
	uint32_t asked; /* who is asked next whether it has anything to say */
};

/* How many there will be. */
static uint32_t
shards_of(const struct fal_rack_conf *conf)
{
	const uint32_t blocks = fal_blocks(conf->each.n);
	return conf->shards < 1 ? 1 : conf->shards < blocks ? conf->shards : blocks;
}

/* The range of a shard. */
static void
cut(const struct fal_rack *r, const struct fal_extent *e, struct place *p)
{
	p->first = e->first;
	p->count = e->count;
	const size_t left = r->each.n - (size_t)p->first * FAL_BLOCK,
		     most = (size_t)p->count * FAL_BLOCK;
	p->values = left < most ? left : most;
}

/* Shard `i` begins with its part of `init`; false: out of memory. */
static bool
open_shard(struct fal_rack *r, uint32_t i, const float *init)
{
	struct place *p = &r->at[i];
	struct fal_shard_conf one = r->each;
	float *zeros =
		init == NULL ? fal_calloc_aligned(p->values, sizeof(*zeros)) : NULL;
	one.tickets = r->tickets;
	one.first = p->first;
	one.count = p->count;
	if (init != NULL || zeros != NULL)
		p->shard = fal_shard_new(&one, zeros != NULL ? zeros
							     : init + (size_t)p->first *
									       FAL_BLOCK);
	fal_secret_wipe(&one.tickets, sizeof(one.tickets));
	free(zeros);
	return p->shard != NULL;
}

struct fal_rack *
fal_rack_new(const struct fal_rack_conf *conf, const float *init)
{
	struct fal_rack *r = fal_calloc(1, sizeof(*r));
	struct fal_map map;
	if (r == NULL)
		return NULL;
	if (conf->map != NULL)
		map = *conf->map;
	else
		fal_map_even(&map, fal_blocks(conf->each.n), shards_of(conf));
	r->each = conf->each;
	r->tickets = conf->tickets;
	r->n = map.shards;
	r->at = fal_calloc(r->n, sizeof(*r->at));
	const uint32_t here = conf->here > 0 ? conf->here : r->n;
	const bool all = r->n > 1 && here == r->n;
	if (all)
		r->all = fal_calloc_aligned(conf->each.n, sizeof(*r->all));
	if (all && conf->each.optim.ema > 0)
		r->average = fal_calloc_aligned(conf->each.n, sizeof(*r->average));
	bool room = r->at != NULL && (!all || r->all != NULL) &&
		    (!all || conf->each.optim.ema <= 0 || r->average != NULL);
	for (uint32_t i = 0; room && i < r->n; i++) {
		cut(r, &map.of[i], &r->at[i]);
		if (i >= conf->first && i - conf->first < here)
			room = open_shard(r, i, init);
	}
	if (room)
		return r;
	fal_rack_free(r);
	return NULL;
}

void
fal_rack_free(struct fal_rack *r)
{
	if (r == NULL)
		return;
	for (uint32_t i = 0; r->at != NULL && i < r->n; i++)
		fal_shard_free(r->at[i].shard);
	fal_secret_wipe(&r->tickets, sizeof(r->tickets));
	free(r->at);
	free(r->all);
	free(r->average);
	free(r);
}

uint32_t
fal_rack_shards(const struct fal_rack *r)
{
	return r->n;
}

struct fal_shard *
fal_rack_at(const struct fal_rack *r, uint32_t i)
{
	return r->at[i].shard;
}

int
fal_rack_give(struct fal_rack *r, uint32_t i, struct fal_image *out)
{
	struct place *p = &r->at[i];
	const struct fal_shard_order mark = { .kind = FAL_ORDER_MARK };
	int err = fal_shard_order(p->shard, &mark);
	if (err == FAL_OK &&
	    !fal_shard_marked(p->shard, fal_shard_version(p->shard), out))
		err = FAL_ENOMEM;
	if (err < 0)
		return err;
	fal_shard_free(p->shard);
	p->shard = NULL;
	return FAL_OK;
}

int
fal_rack_take(struct fal_rack *r, uint32_t i, const struct fal_image *image)
{
	struct fal_shard *shard = r->at[i].shard;
	struct fal_image live = { 0 };
	int err = fal_shard_become(shard, &image->is, &live);
	if (err == FAL_OK && live.arrays != image->arrays)
		err = FAL_EFORMAT;
	for (uint32_t k = 0; err == FAL_OK && k < live.arrays; k++) {
		const struct fal_image_array *to = &live.array[k],
					     *from = &image->array[k];
		if (to->bytes != from->bytes || strcmp(to->name, from->name) != 0)
			err = FAL_EFORMAT;
		else
			memcpy(to->p, from->p, to->bytes);
	}
	if (err == FAL_OK)
		fal_shard_became(shard);
	fal_image_free(&live);
	return err;
}

int
fal_rack_order(void *rack, const struct fal_shard_order *o)
{
	const struct fal_rack *r = rack;
	int err = FAL_OK;
	for (uint32_t i = 0; i < r->n && err == FAL_OK; i++)
		if (r->at[i].shard != NULL)
			err = fal_shard_order(r->at[i].shard, o);
	return err;
}

int
fal_rack_push(void *rack, const struct fal_ticket *t, const struct fal_tail *records,
	      struct fal_diag *diag)
{
	const struct fal_rack *r = rack;
	int err = FAL_OK;
	for (uint32_t i = 0; i < r->n && err != FAL_ENOMEM; i++) {
		if (r->at[i].shard == NULL)
			continue;
		int got =
			fal_shard_push(r->at[i].shard, t, records, err < 0 ? NULL : diag);
		err = err == FAL_OK || got == FAL_ENOMEM ? got : err;
	}
	return err;
}

int
fal_rack_ticket(const struct fal_rack *r, uint32_t session, const struct fal_msg *m,
		struct fal_ticket *out, struct fal_diag *diag)
{
	if (m->push.epoch != r->tickets.epoch)
		return fal_diag_set(diag, FAL_ESTATE, "wrong map: epoch %u",
				    m->push.epoch);
	if (!fal_ticket_get(&r->tickets, session, &m->push.ticket, out))
		return fal_diag_set(diag, FAL_EAUTH, "pushes %u task%s without a ticket",
				    m->push.ticket.tasks,
				    fal_text_s(m->push.ticket.tasks));
	return FAL_OK;
}

int
fal_rack_msg(void *rack, uint32_t session, const struct fal_msg *m, struct fal_diag *diag)
{
	struct fal_ticket t;
	int err = fal_rack_ticket(rack, session, m, &t, diag);
	return err < 0 ? err : fal_rack_push(rack, &t, &m->push.records, diag);
}

bool
fal_rack_next(void *rack, uint32_t *shard, struct fal_shard_say *out)
{
	struct fal_rack *r = rack;
	/* What is made of one's words may be orders for all: those before it, too. */
	for (uint32_t i = 0; i < r->n; i++, r->asked = (r->asked + 1) % r->n)
		if (r->at[r->asked].shard != NULL &&
		    fal_shard_next(r->at[r->asked].shard, out)) {
			*shard = r->asked;
			return true;
		}
	return false;
}

void
fal_rack_range(const struct fal_rack *r, uint32_t i, uint32_t *first, uint32_t *blocks)
{
	*first = r->at[i].first;
	*blocks = r->at[i].count;
}

bool
fal_rack_part(const struct fal_rack *r, uint32_t i, uint64_t version,
	      struct fal_shard_part *out)
{
	const struct place *p = &r->at[i];
	*out = (struct fal_shard_part){
		.shard = i, .first = p->first, .count = p->count, .values = p->values
	};
	return p->shard != NULL &&
	       fal_shard_at(p->shard, version, &out->params, &out->exps);
}

/* Is one of them elsewhere? */
static bool
is_apart(const struct fal_rack *r)
{
	uint32_t i = 0;
	while (i < r->n && r->at[i].shard != NULL)
		i++;
	return i < r->n;
}

bool
fal_rack_gather(struct fal_rack *r, uint64_t version)
{
	struct fal_shard_part part;
	r->gathers = false;
	for (uint32_t i = 0; i < r->n; i++) {
		struct place *p = &r->at[i];
		p->brought = p->shard != NULL;
		if (p->shard == NULL)
			continue;
		if (!fal_rack_part(r, i, version, &part))
			return false;
		memcpy(r->all + (size_t)part.first * FAL_BLOCK, part.params,
		       part.values * sizeof(*r->all));
	}
	r->gathers = true;
	r->gathered = version;
	return true;
}

int
fal_rack_fill(struct fal_rack *r, uint32_t i, const struct fal_image *has)
{
	struct place *p = &r->at[i];
	const size_t from = (size_t)p->first * FAL_BLOCK,
		     bytes = p->values * sizeof(float);
	const bool averages = r->average != NULL;
	if (!r->gathers || has->is.version != r->gathered)
		return FAL_OK; /* it is wanted no more */
	if (p->shard != NULL || has->arrays != 1u + averages ||
	    has->array[0].bytes != bytes || (averages && has->array[1].bytes != bytes))
		return FAL_EFORMAT;
	memcpy(r->all + from, has->array[0].p, bytes);
	if (averages)
		memcpy(r->average + from, has->array[1].p, bytes);
	p->brought = true;
	return FAL_OK;
}

static bool
all_brought(const struct fal_rack *r)
{
	uint32_t i = 0;
	while (i < r->n && r->at[i].brought)
		i++;
	return i == r->n;
}

bool
fal_rack_gathers(const struct fal_rack *r)
{
	return r->gathers && !all_brought(r);
}

bool
fal_rack_gathered(const struct fal_rack *r, uint64_t version)
{
	return r->gathers && r->gathered == version && all_brought(r);
}

const float *
fal_rack_params(struct fal_rack *r, uint64_t version)
{
	struct fal_shard_part part;
	if (r->n == 1)
		return fal_rack_part(r, 0, version, &part) ? part.params : NULL;
	if (is_apart(r))
		return fal_rack_gathered(r, version) ? r->all : NULL;
	return fal_rack_gather(r, version) ? r->all : NULL;
}

const float *
fal_rack_average(struct fal_rack *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		const struct place *p = &r->at[i];
		if (p->shard == NULL) /* it was brought */
			continue;
		const float *of = fal_shard_average(p->shard);
		if (of == NULL || r->n == 1)
			return of;
		memcpy(r->average + (size_t)p->first * FAL_BLOCK, of,
		       p->values * sizeof(*r->average));
	}
	return r->average;
}

bool
fal_rack_marked(struct fal_rack *r, uint64_t version, struct fal_image *out)
{
	uint32_t n = 0;
	while (n < r->n && (r->at[n].shard == NULL ||
			    fal_shard_marked(r->at[n].shard, version, &out[n])))
		n++;
	if (n == r->n)
		return true;
	while (n > 0)
		fal_image_free(&out[--n]);
	return false;
}

void
fal_rack_spare(struct fal_rack *r, struct fal_image *image)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (r->at[i].shard != NULL)
			fal_shard_spare(r->at[i].shard, &image[i]);
}

int
fal_rack_become(struct fal_rack *r, const struct fal_image_head *is,
		int (*fill)(void *arg, const struct fal_image_array *a), void *arg)
{
	struct fal_image *live = fal_calloc(r->n, sizeof(*live));
	int err = live != NULL ? FAL_OK : FAL_ENOMEM;
	for (uint32_t i = 0; i < r->n && err == FAL_OK; i++)
		err = fal_shard_become(r->at[i].shard, is, &live[i]);
	for (uint32_t k = 0; err == FAL_OK && k < live[0].arrays; k++)
		for (uint32_t i = 0; i < r->n && err == FAL_OK; i++)
			err = fill(arg, &live[i].array[k]);
	for (uint32_t i = 0; i < r->n && err == FAL_OK; i++)
		fal_shard_became(r->at[i].shard);
	for (uint32_t i = 0; live != NULL && i < r->n; i++)
		fal_image_free(&live[i]);
	free(live);
	return err;
}

static struct fal_store_conf
store_of(const struct fal_rack_conf *conf)
{
	return (struct fal_store_conf){ .n = conf->each.n,
					.optim = conf->each.optim,
					.checksums = conf->each.checksums };
}

uint64_t
fal_rack_bytes(const struct fal_rack_conf *conf, const struct fal_store_most *most)
{
	const struct fal_store_conf store = store_of(conf);
	const uint64_t vector = conf->each.n * sizeof(float);
	struct fal_store_most own = *most;
	uint64_t held = vector;
	/* Of several: one version more, until all have made the next (design.md, D28),
	 * and all of them in one piece. */
	if (shards_of(conf) > 1) {
		own.versions++;
		held += (conf->each.optim.ema > 0 ? 2 : 1) * vector;
	}
	return fal_store_bytes(&store, &own) + held;
}

uint64_t
fal_rack_image_bytes(const struct fal_rack_conf *conf, const struct fal_store_most *most)
{
	const struct fal_store_conf store = store_of(conf);
	return fal_store_image_bytes(&store, most) + conf->each.n * sizeof(float);
}

uint64_t
fal_rack_state_bytes(const struct fal_rack_conf *conf, uint32_t lines)
{
	const struct fal_store_conf store = store_of(conf);
	return fal_store_state_bytes(&store, lines);
}
