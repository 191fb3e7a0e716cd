/* Claims that another key computes once more: job.verify.
 *
 * A claim is drawn, when it has come, from what nobody else knows.  The scheduler asks a
 * worker of another key whose numerics are the same, and the round does not wait.  Unlike
 * results are told to the trace and the log; nothing is made again, and no key is
 * charged: falcon-stat --recompute tells which of the two is wrong. */
#include "coord/priv.h"

#include "base/parse.h"

#include <string.h>

uint32_t
coord_numerics_of(const struct fal_coord *c, const uint8_t fp[static FAL_FINGERPRINT])
{
	uint32_t i = 0;
	while (i < c->workers &&
	       memcmp(c->known[i].fingerprint, fp, FAL_FINGERPRINT) != 0)
		i++;
	return coord_is_pure(fp) ? i + 1 : 0;
}

bool
coord_verify_draw(struct fal_coord *c, const struct fal_peer *p, uint64_t round)
{
	struct fal_round_info r;
	if (c->conf.verify <= 0 || !coord_is_pure(p->fingerprint) ||
	    !fal_sched_round(c->sched, round, &r) || r.delta)
		return false;
	return (double)fal_rng_unit(&c->rng) < c->conf.verify;
}

int
coord_verify_checked(struct fal_coord *c, double now, const struct fal_peer *p,
		     const struct fal_msg *m)
{
	const struct fal_checked_in in = { .worker = p->worker,
					   .task = m->checked.task,
					   .round = m->checked.round,
					   .hash = m->checked.hash };
	struct fal_round_info r;
	struct fal_verify of;
	if (!fal_sched_verified(c->sched, now, &in, &of) ||
	    !fal_sched_round(c->sched, of.round, &r))
		return FAL_OK;
	const struct fal_known_worker *w = coord_known(c, of.id.worker);
	const uint64_t id[] = { of.id.worker, of.id.seq };
	char hex[2][2 * FAL_CLAIM_HASH + 1];
	const struct fal_ev_word word[] = { { w->name, of.id.worker, hex[0] },
					    { p->name, p->worker, hex[1] } };
	fal_hex(of.hash, FAL_CLAIM_HASH, hex[0]);
	fal_hex(m->checked.hash, FAL_CLAIM_HASH, hex[1]);
	const struct fal_coord_unlike unlike = {
		.clock = r.clock,
		.task = of.task,
		.name = { w->name, p->name },
		.key = { c->key[w->key - 1].name, c->key[p->key - 1].name },
	};
	fal_trace_put(&c->line, fal_coord_seconds(c, now), FAL_EV_VERIFY,
		      &(struct fal_ev_verify){
			      of.round, r.clock, of.task, { id, 2 }, { word, 2 } });
	coord_trace(c);
	if (c->conf.verify_stop && c->why == NULL)
		c->why = "two keys have unlike results of a task (verify.stop)";
	if (c->ops.unlike == NULL)
		return FAL_OK;
	coord_call(c);
	c->ops.unlike(c->ops.arg, &unlike);
	coord_called(c);
	return FAL_OK;
}
