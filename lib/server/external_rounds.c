/* Work and versions of another coordinator (design.md, D50). */
#include "server/coord_priv.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

int
fal_coord_add_external_round(struct fal_coord *c, double now,
			     const struct fal_external_task *b, uint64_t *round)
{
	coord_enter(c);
	if (!coord_is_installed(c, b->version) || !coord_is_installed(c, b->exponents))
		return FAL_EINVAL;
	*round = fal_sched_open_external(c->sched, now, b);
	return coord_advance(c, now);
}

int
fal_coord_cancel_external_round(struct fal_coord *c, double now, uint64_t round)
{
	coord_enter(c);
	fal_sched_cancel_external(c->sched, now, round);
	return coord_advance(c, now);
}

int
fal_coord_install_version(struct fal_coord *c, double now, uint64_t version,
			  uint64_t oldest)
{
	coord_enter(c);
	struct coord_external *e = &c->external;
	struct coord_versions *v = &c->versions;
	if (coord_is_installed(c, version))
		return FAL_OK;
	if (oldest > version || (e->has_version && version < v->newest))
		return FAL_EINVAL;
	/* The shards retain this version, and drop versions older than `oldest`. */
	size_t drop = e->n_installed == FAL_KEPT_MAX;
	while (drop < e->n_installed && e->installed[drop] < oldest)
		drop++;
	FAL_XGROW(e->installed, e->installed_cap, e->n_installed + 1);
	e->n_installed -= drop;
	memmove(e->installed, e->installed + drop,
		e->n_installed * sizeof(*e->installed));
	e->installed[e->n_installed++] = version;
	e->has_version = true;
	v->newest = v->published = version;
	v->oldest = e->installed[0];
	v->retained = (uint32_t)e->n_installed;
	coord_command_shards(c, &(struct fal_shard_order){ .kind = FAL_ORDER_INSTALL,
							   .version = version,
							   .versions = v->retained });
	coord_trace_event(c, now, FAL_EV_VERSION, &(struct fal_ev_version){ version });
	fal_sched_set_version(c->sched, now, version);
	return coord_advance(c, now);
}

int
fal_coord_evaluate_external(struct fal_coord *c, double now, uint64_t version)
{
	const uint32_t full = c->conf.grid.task;
	coord_enter(c);
	if (!coord_is_installed(c, version))
		return FAL_EINVAL;
	c->evaluation.pin.is_under_way = true;
	coord_pin_version(c, version, version);
	fal_sched_prepare_evals(c->sched, now, (c->conf.test_samples + full - 1) / full);
	return coord_advance(c, now);
}

int
fal_coord_evaluate_task(struct fal_coord *c, double now, uint64_t version, uint32_t task)
{
	coord_enter(c);
	if (!c->evaluation.pin.is_under_way || version != c->evaluation.pin.version)
		return FAL_EINVAL;
	int err = fal_sched_start_eval_task(c->sched, now, task);
	return err < 0 ? err : coord_advance(c, now);
}

void
fal_coord_lose_upstream(struct fal_coord *c, double now, const char *why)
{
	coord_enter(c);
	coord_trace_event(c, now, FAL_EV_FAILED,
			  &(struct fal_ev_failed){ .version = c->versions.published,
						   .reason = why });
	/* No `leave` line may follow the end of the trace. */
	struct coord_peer *p = NULL;
	while ((p = coord_next_peer(c, p, PEER_GREETED)) != NULL)
		p->state = PEER_LEFT;
}

void
fal_coord_mixed_fingerprint(uint8_t out[static FAL_FINGERPRINT])
{
	/* Nondeterministic: the bits of a task depend on which member computes it. */
	memcpy(out, "\0\0\0\0\0\0\0\0several", FAL_FINGERPRINT);
}

void
fal_coord_aggregate(const struct fal_coord *c, struct fal_coord_aggregate *out)
{
	/* tasks per second, of all members up to the first one without a probe */
	double rate = 0;
	bool is_known = true;
	const struct coord_peer *p = NULL;
	coord_enter(c);
	*out = (struct fal_coord_aggregate){ 0 };
	while ((p = coord_next_peer(c, p, PEER_READY)) != NULL) {
		const struct fal_bound_lanes speed = coord_probed_lanes(c, p);
		out->workers++;
		out->lanes += speed.lanes;
		is_known &= speed.task_s > 0;
		rate += is_known ? speed.lanes / speed.task_s : 0;
		if (out->workers == 1)
			memcpy(out->fingerprint, p->fingerprint, FAL_FINGERPRINT);
		else if (memcmp(out->fingerprint, p->fingerprint, FAL_FINGERPRINT) != 0)
			fal_coord_mixed_fingerprint(out->fingerprint);
	}
	if (is_known && rate > 0)
		out->task_ns = (uint64_t)fmax(round(out->lanes / rate * 1e9), 1);
	out->lanes = out->lanes < FAL_LANES_MAX ? out->lanes : FAL_LANES_MAX;
}
