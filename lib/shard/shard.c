/* A shard: orders and pushes in, what becomes of them out. */
#include "shard/shard_priv.h"

#include "base/mem.h"
#include "base/sorted.h"
#include "sec/secret.h"

#include <stdlib.h>
#include <string.h>

struct fal_shard *
fal_shard_new(const struct fal_shard_conf *conf, const float *init)
{
	const size_t from = (size_t)conf->first * FAL_BLOCK;
	const size_t most = (size_t)conf->count * FAL_BLOCK;
	struct fal_shard *s = fal_calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	const struct fal_store_conf store = { .n = conf->n - from < most ? conf->n - from
									 : most,
					      .first = conf->first,
					      .tasks = conf->tasks,
					      .bits = conf->bits,
					      .optim = conf->optim,
					      .checksums = conf->checksums,
					      .parallel = conf->parallel };
	s->conf = *conf;
	s->store = fal_store_new(&store, init);
	s->held_params = fal_alloc_pages(store.n, sizeof(float));
	s->held_exps = fal_calloc(conf->count, 1);
	if (s->store != NULL && s->held_params != NULL && s->held_exps != NULL)
		return s;
	fal_shard_free(s);
	return NULL;
}

/* What the word holds is not needed any more. */
static void
drop(struct fal_shard_say *say)
{
	free(say->brought);
	free(say->exps);
	free(say->squares);
	free(say->leaves);
	say->brought = NULL;
	say->exps = NULL;
	say->squares = NULL;
	say->leaves = NULL;
}

void
fal_shard_free(struct fal_shard *s)
{
	if (s == NULL)
		return;
	for (size_t i = 0; i < s->says; i++)
		drop(&s->say[i]);
	free(s->say);
	free(s->open);
	free(s->early);
	free(s->wait);
	free(s->held_params);
	free(s->held_exps);
	fal_image_free(&s->marked);
	fal_store_free(s->store);
	fal_secret_wipe(&s->conf.tickets, sizeof(s->conf.tickets));
	free(s);
}

/* Where the round is, or belongs. */
static size_t
place(const struct fal_shard *s, uint64_t round)
{
	return fal_sorted_place64(s->open, s->opens, sizeof(*s->open), round);
}

struct shard_round *
shard_find(const struct fal_shard *s, uint64_t round)
{
	const size_t at = place(s, round);
	return at < s->opens && s->open[at].round == round ? &s->open[at] : NULL;
}

int
shard_say(struct fal_shard *s, const struct fal_shard_say *what)
{
	if (FAL_GROW(s->say, s->say_cap, s->says + 1) < 0)
		return FAL_ENOMEM;
	s->say[s->says++] = *what;
	return FAL_OK;
}

bool
fal_shard_next(struct fal_shard *s, struct fal_shard_say *out)
{
	if (s->next > 0)
		drop(&s->say[s->next - 1]);
	if (s->next == s->says) {
		s->next = s->says = 0;
		return false;
	}
	*out = s->say[s->next++];
	return true;
}

/* ---- a round that is complete ------------------------------------------------------ */

/* Says that the round is complete, if it is, or carries out its end. */
static int
complete(struct fal_shard *s, const struct shard_round *o)
{
	const struct fal_shard_say done = { .kind = FAL_SAY_COMPLETE, .round = o->round };
	if (!fal_store_complete(s->store, o->round))
		return FAL_OK;
	return o->ahead ? shard_go_on(s) : shard_say(s, &done);
}

int
shard_brought(struct fal_shard *s, uint64_t round, struct fal_shard_say *out)
{
	const uint32_t n = fal_store_contribs(s->store, round, NULL);
	struct fal_cid *ids = fal_calloc(n, sizeof(*ids));
	out->brought = fal_calloc(n, sizeof(*out->brought));
	if (ids == NULL || out->brought == NULL) {
		free(ids);
		return FAL_ENOMEM;
	}
	out->broughts = fal_store_contribs(s->store, round, ids);
	for (uint32_t i = 0; i < n; i++) {
		struct fal_brought *b = &out->brought[i];
		b->id = ids[i];
		b->blocks = fal_store_brought(s->store, round, ids[i]);
		if (s->conf.checksums)
			b->sum = fal_store_checksum(s->store, round, ids[i]);
	}
	free(ids);
	return FAL_OK;
}

/* ---- orders ------------------------------------------------------------------------ */

/* What was fenced before the round was open. */
static int
fence_early(struct fal_shard *s, uint64_t round)
{
	size_t kept = 0;
	int err = FAL_OK;
	for (size_t i = 0; i < s->earlies; i++) {
		const struct early e = s->early[i];
		if (e.round != round)
			s->early[kept++] = e;
		else if (err == FAL_OK)
			err = fal_store_fence(s->store, round, e.id, e.fills);
	}
	s->earlies = kept;
	return err;
}

static int
open_round(struct fal_shard *s, uint64_t round, const struct fal_facts *is)
{
	const struct fal_store_round r = { .round = round,
					   .tasks = is->tasks,
					   .kind = is->kind,
					   .version = is->version,
					   .mixed = is->mixed,
					   .seed = fal_ticket_seed(&s->conf.tickets,
								   round) };
	int err = fal_store_open(s->store, &r);
	return err == FAL_OK && s->earlies > 0 ? fence_early(s, round) : err;
}

/* Is its version, if it needs one, still to be made? */
static bool
is_late(const struct fal_shard *s, const struct fal_facts *is)
{
	return is->kind == FAL_KIND_GRAD &&
	       !fal_store_at(s->store, is->version, NULL, NULL);
}

/* By an order, or by the first ticket that comes before it. */
static int
enter(struct fal_shard *s, uint64_t round, const struct fal_facts *is)
{
	const size_t at = place(s, round);
	const bool late = is_late(s, is);
	if (is->tasks == 0)
		return FAL_EINVAL;
	if (FAL_GROW(s->open, s->open_cap, s->opens + 1) < 0)
		return FAL_ENOMEM;
	int err = late ? FAL_OK : open_round(s, round, is);
	if (err < 0)
		return err;
	memmove(s->open + at + 1, s->open + at, (s->opens++ - at) * sizeof(*s->open));
	s->open[at] = (struct shard_round){ .round = round, .late = late, .is = *is };
	return FAL_OK;
}

static int
on_open(struct fal_shard *s, const struct fal_shard_order *o)
{
	s->next_round = o->round + 1;
	return shard_find(s, o->round) != NULL ? FAL_OK : enter(s, o->round, &o->facts);
}

int
shard_open_late(struct fal_shard *s)
{
	int err = FAL_OK;
	for (size_t i = 0; i < s->opens && err == FAL_OK; i++) {
		struct shard_round *o = &s->open[i];
		if (!o->late || is_late(s, &o->is))
			continue;
		const struct fal_cid none = { 0, 0 };
		o->late = false;
		err = open_round(s, o->round, &o->is);
		if (err < 0 || o->skipped == 0)
			continue;
		err = fal_store_skip(s->store, o->round, o->skipped, none);
		err = err == FAL_OK ? complete(s, o) : err;
	}
	return err;
}

static int
keep_fence(struct fal_shard *s, const struct fal_shard_order *o)
{
	if (FAL_GROW(s->early, s->early_cap, s->earlies + 1) < 0)
		return FAL_ENOMEM;
	s->early[s->earlies++] = (struct early){ o->round, o->id, o->fills };
	return FAL_OK;
}

static int
fence(struct fal_shard *s, const struct shard_round *open,
      const struct fal_shard_order *o)
{
	const struct fal_shard_say fenced = { .kind = FAL_SAY_FENCED,
					      .round = o->round,
					      .id = o->id };
	int err = FAL_OK;
	if (open != NULL && !open->late)
		err = fal_store_fence(s->store, o->round, o->id, o->fills);
	else if (open == NULL && o->round >= s->next_round && s->earlies == s->conf.tasks)
		err = FAL_ELIMIT;
	else if (open != NULL || o->round >= s->next_round)
		err = keep_fence(s, o);
	return err < 0 ? err : shard_say(s, &fenced);
}

static int
skip(struct fal_shard *s, struct shard_round *open, const struct fal_shard_order *o)
{
	const bool was = fal_store_complete(s->store, o->round);
	const uint32_t tasks = o->facts.tasks;
	if (open->late && tasks > open->is.tasks - open->skipped)
		return FAL_EINVAL;
	if (open->late) {
		open->skipped += tasks;
		return FAL_OK;
	}
	int err = fal_store_skip(s->store, o->round, tasks, o->fills);
	return err < 0 || was ? err : complete(s, open);
}

/* What was made elsewhere. */
static int
put(struct fal_shard *s, const struct fal_shard_order *o)
{
	const float *params = o->params + (size_t)s->conf.first * FAL_BLOCK;
	const int8_t *exps = o->exps + s->conf.first;
	if (o->versions == 0)
		return FAL_EINVAL;
	if (fal_store_made(s->store, NULL) != NULL)
		return FAL_ESTATE; /* it makes versions itself */
	int err = fal_store_keep(s->store,
				 o->versions < FAL_KEPT_MAX ? o->versions : FAL_KEPT_MAX);
	if (err == FAL_OK)
		err = fal_store_put(s->store, o->version, params, exps);
	return err < 0 ? err : shard_open_late(s);
}

int
fal_shard_order(struct fal_shard *s, const struct fal_shard_order *o)
{
	struct shard_round *open = shard_find(s, o->round);
	switch (o->kind) {
	case FAL_ORDER_OPEN:
		return on_open(s, o);
	case FAL_ORDER_FENCE:
		return fence(s, open, o);
	case FAL_ORDER_SKIP:
		return open != NULL ? skip(s, open, o) : FAL_OK;
	case FAL_ORDER_SCALE:
		return shard_scale(s, o);
	case FAL_ORDER_PUT:
		return o->params != NULL ? put(s, o) : FAL_EINVAL;
	default:
		return shard_wait_for(s, open, o);
	}
}

/* ---- pushes ------------------------------------------------------------------------ */

/* The round of a ticket is open, or too early: whoever has computed on a version got it
 * from here. */
static int
open_early(struct fal_shard *s, const struct fal_ticket *t, struct fal_diag *diag)
{
	const struct shard_round *open = shard_find(s, t->round);
	if (open != NULL ? open->late : is_late(s, &t->facts))
		return fal_diag_set(diag, FAL_ESTATE,
				    "pushes what nobody can have computed yet");
	return open != NULL ? FAL_OK : enter(s, t->round, &t->facts);
}

/* Adds the record of a block that is here; 1: it was not there yet, and nobody fills what
 * it belongs to. */
static int
add_one(struct fal_shard *s, const struct fal_store_from *from,
	const struct fal_bfp_rec *rec, struct fal_diag *diag)
{
	int err = fal_store_add(s->store, from, rec);
	if (err == FAL_EFENCED)
		return 0;
	return err < 0 ? fal_diag_set(diag, err, "block %u: %s", rec->block,
				      fal_strerror(err))
		       : err;
}

/* Adds the records, each whatever the others are, and counts those that were not there
 * yet; why the first of them is no good.  *any: some were of blocks that are here. */
static int
add(struct fal_shard *s, const struct fal_store_from *from, struct fal_rd r,
    struct fal_shard_say *arrived, bool *any, struct fal_diag *diag)
{
	int err = FAL_OK;
	while (r.n > 0) {
		struct fal_bfp_rec rec;
		struct fal_diag *why = err == FAL_OK ? diag : NULL;
		int got = fal_bfp_parse(&r, s->conf.n, &rec);
		if (got < 0) {
			fal_diag_set(why, got, "a malformed block: %s",
				     fal_strerror(got));
			return err < 0 ? err : got;
		}
		if (rec.block - s->conf.first >= s->conf.count)
			continue;
		*any = true;
		got = add_one(s, from, &rec, why);
		if (got == FAL_ENOMEM)
			return got;
		arrived->blocks += got == 1;
		err = err == FAL_OK && got < 0 ? got : err;
	}
	return err;
}

int
fal_shard_push(struct fal_shard *s, const struct fal_ticket *t,
	       const struct fal_tail *records, struct fal_diag *diag)
{
	struct fal_shard_say arrived = { .kind = FAL_SAY_ARRIVED,
					 .round = t->round,
					 .id = t->id };
	const struct fal_store_from from = {
		.round = t->round, .id = t->id, .fills = t->fills, .tasks = t->tasks
	};
	if (shard_find(s, t->round) == NULL && t->round < s->next_round)
		return FAL_OK; /* too late to matter */
	int err = open_early(s, t, diag);
	if (err < 0)
		return err;
	const bool was = fal_store_complete(s->store, t->round);
	const bool whole = fal_store_whole(s->store, t->round, t->id);
	bool any = false;
	err = add(s, &from, fal_rd_init(records->p, records->n), &arrived, &any, diag);
	fal_store_make_more(s->store);
	if (!any)
		return err;
	/* What came beside a bad record is counted: the ledger must say so. */
	arrived.whole = !whole && fal_store_whole(s->store, t->round, t->id);
	int said = shard_say(s, &arrived);
	if (said == FAL_OK && !was)
		said = complete(s, shard_find(s, t->round));
	return err < 0 ? err : said;
}

uint64_t
fal_shard_version(const struct fal_shard *s)
{
	return fal_store_version(s->store);
}

bool
fal_shard_at(const struct fal_shard *s, uint64_t version, const float **params,
	     const int8_t **exps)
{
	if (fal_store_at(s->store, version, params, exps))
		return true;
	if (!s->holds || version != s->held)
		return false;
	*params = s->held_params;
	*exps = s->held_exps;
	return true;
}

bool
fal_shard_making(const struct fal_shard *s, struct fal_shard_making *out)
{
	uint32_t n;
	const uint8_t *made = fal_store_made(s->store, &n);
	if (made == NULL)
		return false;
	*out = (struct fal_shard_making){ .version = fal_store_version(s->store) + 1,
					  .params = fal_store_params(s->store),
					  .exps = fal_store_exps(s->store),
					  .made = made,
					  .n = n };
	return true;
}

const float *
fal_shard_average(const struct fal_shard *s)
{
	return fal_store_average(s->store);
}
