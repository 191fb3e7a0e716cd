/* A coordinator and its shards in one process, for tests that drive them by messages. */
#ifndef TESTS_RACKED_H
#define TESTS_RACKED_H

#include "base/parse.h"
#include "server/coord.h"
#include "server/shard_set.h"
#include "trace/chain.h"
#include "wire/bfp.h"

#include <string.h>

struct racked {
	size_t params;
	struct fal_shard_set *shard_set;
	struct fal_coord *coord;
};

/* For fal_coord_ops, if nobody reads parameters. */
static inline void
racked_no_model(void *arg, uint32_t peer, const struct fal_coord_publication *m)
{
	(void)arg;
	(void)peer;
	(void)m;
}

/* Makes a coordinator's shards, conf->shards of them, that begin with `init`, for
 * gradients of `bits` bits (0: all). FAL_ENOMEM. */
static inline int
racked_shards(const struct fal_coord_conf *conf, unsigned bits, const float *init,
	      struct racked *out)
{
	struct fal_shard_set_conf shard_set = {
		.tickets = conf->tickets,
		.shards = conf->shards,
		.map = conf->map,
		.here = FAL_SHARDS_MAX,
		.each = { .n = conf->params,
			  .tasks = fal_grid_tasks(&conf->grid, 0),
			  .bits = bits,
			  .optim = conf->optim,
			  .checksums = conf->audit_sums },
	};
	shard_set.tickets.epoch = 1;
	out->params = conf->params;
	out->coord = NULL;
	out->shard_set = fal_shard_set_new(&shard_set, init);
	return out->shard_set != NULL ? FAL_OK : FAL_ENOMEM;
}

/* The work of a shard, as far as it is known without a clock. */
static inline void
racked_served(void *shard_set, uint32_t shard, struct fal_coord_shard_stats *out)
{
	uint32_t first;
	fal_shard_set_range(shard_set, shard, &first, &out->blocks);
}

/* Makes their coordinator, which reaches them by ops->shards if that is set.  FAL_ENOMEM.
 */
static inline int
racked_coord(struct fal_coord_conf conf, struct fal_coord_ops ops, double now,
	     struct racked *out)
{
	conf.tickets.epoch = 1;
	if (ops.shards.arg == NULL)
		ops.shards =
			(struct fal_coord_shards){ out->shard_set, fal_shard_set_order,
						   fal_shard_set_push_msg,
						   racked_served };
	conf.shards = fal_shard_set_count(out->shard_set);
	return fal_coord_new(&conf, &ops, now, &out->coord);
}

/* Makes both. */
static inline int
racked_new(struct fal_coord_conf conf, struct fal_coord_ops ops, const float *init,
	   double now, struct racked *out)
{
	int err = racked_shards(&conf, 0, init, out);
	return err < 0 ? err : racked_coord(conf, ops, now, out);
}

static inline void
racked_free(struct racked *r)
{
	fal_coord_free(r->coord);
	fal_shard_set_free(r->shard_set);
	*r = (struct racked){ 0 };
}

/* The parameters of the newest version, borrowed until the next call. */
static inline const float *
racked_params(const struct racked *r)
{
	return fal_shard_set_params(r->shard_set, fal_coord_status(r->coord).version);
}

/* Ends a job as falcon-ps does. */
static inline void
racked_finish(const struct racked *r, double now, const char *why)
{
	uint8_t is[FAL_HASH_BYTES] = { 0 };
	char hash[2 * FAL_HASH_BYTES + 1];
	const float *params = racked_params(r);
	if (params != NULL)
		fal_leaf_model(params, r->params, is);
	fal_hex(is, sizeof(is), hash);
	const struct fal_coord_result result = { .sha256 = "00",
						 .hash = hash,
						 .journal = "" };
	fal_coord_finish(r->coord, now, &result, why);
}

/* Returns the exponents of a version, one for each block of the model; false: the version
 * is gone. */
static inline bool
racked_exps(const struct racked *r, uint64_t version, int8_t *out)
{
	uint32_t order[FAL_SHARDS_MAX];
	const uint32_t n = fal_shard_set_list(r->shard_set, order);
	for (uint32_t i = 0; i < n; i++) {
		struct fal_shard_part part;
		if (!fal_shard_set_part(r->shard_set, order[i], version, &part))
			return false;
		memcpy(out + part.first, part.exps, part.count);
	}
	return true;
}

/* The last ticket of each session. */
struct racked_tickets {
	struct {
		uint32_t peer;
		struct fal_msg_ticket is;
	} v[256];
	uint32_t n;
};

static inline void
racked_note(struct racked_tickets *t, uint32_t peer, const struct fal_msg *m)
{
	const uint32_t at = t->n++ % 256;
	t->v[at].peer = peer;
	t->v[at].is = m->ticket;
}

/* The ticket of the session's contribution; false: there is none. */
static inline bool
racked_ticket(const struct racked_tickets *t, uint32_t peer, uint64_t round, uint32_t seq,
	      struct fal_msg_ticket *out)
{
	for (uint32_t i = 0; i < t->n && i < 256; i++)
		if (t->v[i].peer == peer && t->v[i].is.round == round &&
		    t->v[i].is.seq == seq) {
			*out = t->v[i].is;
			return true;
		}
	return false;
}

#endif
