/* What an honest worker has pushed in time counts: nobody throws away a block of a
 * contribution that nobody has called off.  All would be well without that, for whatever
 * is lost is done again: but twice. */
#include "cluster_priv.h"

#include "wire/bfp.h"

#include <assert.h>
#include <stdio.h>

/* The coordinator has called off the contribution, or with {0, 0} all that the round has:
 * it is over, or what was brought to it is thrown away. */
static void
call_off(struct cluster *c, uint64_t round, struct fal_contrib_id id)
{
	int err = FAL_GROW(c->called_off.v, c->called_off.cap, c->called_off.n + 1);
	assert(err == FAL_OK);
	c->called_off.v[c->called_off.n++] = (struct called_off){ round, id };
}

void
intime_order(struct cluster *c, const struct fal_shard_order *o)
{
	static const struct fal_contrib_id all = { 0, 0 };
	if (o->kind == FAL_ORDER_FENCE)
		call_off(c, o->round, o->id);
	/* What was ordered ahead waits for all that is owed. */
	else if (o->kind == FAL_ORDER_END && !o->ahead)
		call_off(c, o->round, all);
}

static bool
is_called_off(const struct cluster *c, uint64_t round, struct fal_contrib_id id)
{
	for (size_t i = c->called_off.n; i-- > 0;) {
		const struct called_off *o = &c->called_off.v[i];
		if (o->round == round &&
		    (o->id.worker == 0 || fal_contrib_id_equal(o->id, id)))
			return true;
	}
	return false;
}

void
intime_push(struct cluster *c, uint32_t worker, const struct fal_msg *m, uint32_t first,
	    uint32_t blocks)
{
	const struct fal_msg_ticket *t = &m->push.ticket;
	const struct fal_contrib_id id = { t->worker, t->seq };
	struct fal_rd r = fal_rd_init(m->push.records.p, m->push.records.n);
	struct fal_bfp_rec rec;
	c->pushing = (struct pushing){ .round = t->round, .id = id };
	/* Of what fills another one each shard drops what it has. */
	if (machine_lies(c->worker[worker].m) || t->fills_worker != 0 ||
	    is_called_off(c, t->round, id))
		return;
	while (r.n > 0 && fal_bfp_parse(&r, c->p->toy.n, &rec) == FAL_OK)
		c->pushing.blocks += rec.block - first < blocks;
}

void
intime_say(struct cluster *c, const struct fal_shard_report *s)
{
	struct pushing *p = &c->pushing;
	if (s->kind == FAL_REPORT_ARRIVED && s->round == p->round &&
	    fal_contrib_id_equal(s->id, p->id))
		p->counted += s->blocks;
}

void
intime_pushed(struct cluster *c)
{
	const struct pushing *p = &c->pushing;
	if (p->counted < p->blocks && c->failure == NULL) {
		fprintf(stderr,
			"sim: of %u blocks that worker %u has pushed in time to round "
			"%llu %u count\n",
			p->blocks, p->id.worker, (unsigned long long)p->round,
			p->counted);
		c->failure = "what was pushed in time is thrown away";
	}
	c->seen[SEEN_IN_TIME] += p->blocks > 0;
	c->pushing = (struct pushing){ .round = 0 };
}
