/* Work and versions of another coordinator's (design.md, D50). */
#include "server/coord_priv.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

void
coord_let_go(struct fal_coord *c, double now)
{
	uint64_t round;
	while (fal_sched_brought(c->sched, &round))
		fal_sched_unwanted(c->sched, now, round);
	coord_run_actions(c, now);
}

bool
coord_is_installed(const struct fal_coord *c, uint64_t version)
{
	size_t at = 0;
	while (at < c->external.n_installed && c->external.installed[at] != version)
		at++;
	return at < c->external.n_installed;
}

int
fal_coord_bring(struct fal_coord *c, double now, const struct fal_bring *b,
		uint64_t *round)
{
	coord_enter(c);
	if (!coord_is_installed(c, b->version) || !coord_is_installed(c, b->exponents))
		return FAL_EINVAL;
	*round = fal_sched_bring(c->sched, now, b);
	return coord_advance(c, now);
}

int
fal_coord_unwanted(struct fal_coord *c, double now, uint64_t round)
{
	coord_enter(c);
	fal_sched_unwanted(c->sched, now, round);
	return coord_advance(c, now);
}

/* The shards keep the version, and no older ones than `oldest`. */
static void
install_version(struct fal_coord *c, uint64_t version, uint64_t oldest)
{
	size_t gone = c->external.n_installed == FAL_KEPT_MAX;
	while (gone < c->external.n_installed && c->external.installed[gone] < oldest)
		gone++;
	FAL_XGROW(c->external.installed, c->external.installed_cap,
		  c->external.n_installed + 1);
	memmove(c->external.installed, c->external.installed + gone,
		(c->external.n_installed -= gone) * sizeof(*c->external.installed));
	c->external.installed[c->external.n_installed++] = version;
	c->versions.oldest = c->external.installed[0];
	c->versions.retained = (uint32_t)c->external.n_installed;
	const struct fal_shard_order o = { .kind = FAL_ORDER_PUT,
					   .version = version,
					   .versions = c->versions.retained };
	coord_command_shards(c, &o);
}

int
fal_coord_newer(struct fal_coord *c, double now, uint64_t version, uint64_t oldest)
{
	coord_enter(c);
	if (coord_is_installed(c, version))
		return FAL_OK;
	if (oldest > version || (c->external.has_version && version < c->versions.newest))
		return FAL_EINVAL;
	install_version(c, version, oldest);
	c->external.has_version = true;
	c->versions.newest = c->versions.published = version;
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_VERSION,
			  &(struct fal_ev_version){ version });
	fal_sched_newer(c->sched, now, version);
	return coord_advance(c, now);
}

int
fal_coord_eval_of(struct fal_coord *c, double now, uint64_t version)
{
	const uint32_t full = c->conf.grid.task;
	coord_enter(c);
	if (!coord_is_installed(c, version))
		return FAL_EINVAL;
	c->evaluation.is_under_way = true;
	coord_pin_version(c, version, version);
	fal_sched_evals(c->sched, now, (c->conf.test_samples + full - 1) / full);
	return coord_advance(c, now);
}

int
fal_coord_eval(struct fal_coord *c, double now, uint64_t version, uint32_t task)
{
	coord_enter(c);
	if (!c->evaluation.is_under_way || version != c->evaluation.pinned_version)
		return FAL_EINVAL;
	int err = fal_sched_eval_one(c->sched, now, task);
	return err < 0 ? err : coord_advance(c, now);
}

void
coord_report_claim(struct fal_coord *c, const struct fal_coord_claimed *is)
{
	c->ops.claimed(coord_begin_callback(c), is);
	coord_end_callback(c);
}

void
fal_coord_parted(struct fal_coord *c, double now, const char *why)
{
	coord_enter(c);
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_FAILED,
			  &(struct fal_ev_failed){ .version = c->versions.published,
						   .reason = why });
	/* Nobody's leave comes behind the end. */
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		struct coord_peer *p = &c->sessions.peer[i];
		p->left = p->left || p->greeted;
		p->ready = false;
	}
}

void
fal_coord_several(uint8_t out[static FAL_FINGERPRINT])
{
	/* Impure: which bits a task has is whose it happens to be. */
	memcpy(out, "\0\0\0\0\0\0\0\0several", FAL_FINGERPRINT);
}

void
fal_coord_together(const struct fal_coord *c, struct fal_coord_together *out)
{
	double rate = 0;
	bool known = true;
	coord_enter(c);
	*out = (struct fal_coord_together){ 0 };
	for (uint32_t i = 0; i < c->sessions.peers; i++) {
		const struct coord_peer *p = &c->sessions.peer[i];
		if (!p->ready || !coord_has_leading_numerics(c, p))
			continue;
		const struct fal_bound_lanes is = coord_probed_lanes(c, p);
		out->workers++;
		out->lanes += is.lanes;
		known &= is.task_s > 0;
		rate += known ? is.lanes / is.task_s : 0;
		if (out->workers == 1)
			memcpy(out->fingerprint, p->fingerprint, FAL_FINGERPRINT);
		else if (memcmp(out->fingerprint, p->fingerprint, FAL_FINGERPRINT) != 0)
			fal_coord_several(out->fingerprint);
	}
	if (known && rate > 0)
		out->task_ns = (uint64_t)fmax(round(out->lanes / rate * 1e9), 1);
	out->lanes = out->lanes < FAL_LANES_MAX ? out->lanes : FAL_LANES_MAX;
}
