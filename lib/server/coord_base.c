/* The base of the coordinator: look-ups in its tables, trace lines, messages to sessions,
 * commands to shards.  All other files of the coordinator call down to this one. */
#include "server/coord_priv.h"

#include "base/mem.h"
#include "base/sorted.h"
#include "base/text.h"

#include <math.h>

/* ---- look-ups --------------------------------------------------------------------- */

uint32_t
coord_peer_index(const struct fal_coord *c, uint32_t id)
{
	return (uint32_t)fal_sorted_place(c->sessions.peer, c->sessions.peers,
					  sizeof(*c->sessions.peer), id);
}

struct coord_peer *
coord_find_peer(const struct fal_coord *c, uint32_t id)
{
	const uint32_t i = coord_peer_index(c, id);
	struct coord_peer *p = c->sessions.peer + i;
	return i < c->sessions.peers && p->id == id ? p : NULL;
}

struct coord_peer *
coord_peer_of_worker(const struct fal_coord *c, uint32_t worker)
{
	return worker > 0 && worker <= c->sessions.workers
		       ? coord_find_peer(c, coord_worker(c, worker)->session)
		       : NULL;
}

bool
coord_is_installed(const struct fal_coord *c, uint64_t version)
{
	const struct coord_external *e = &c->external;
	size_t i = 0;
	while (i < e->n_installed && e->installed[i] != version)
		i++;
	return i < e->n_installed;
}

struct fal_bound_lanes
coord_probed_lanes(const struct fal_coord *c, const struct coord_peer *p)
{
	const struct fal_grid *g = &c->conf.grid;
	const double task_s = (double)p->probe.task_ns * 1e-9;
	const double fixed = fal_bound_fixed(g->task, task_s, p->probe.large,
					     (double)p->probe.large_ns * 1e-9);
	/* The probe tried as many samples as a task may have; a clock may have fewer. */
	const double part =
		fal_bound_task_size(fixed, (double)fal_grid_full_samples(g) / g->task);
	return (struct fal_bound_lanes){
		.task_s = task_s * part,
		.lanes = p->lanes_max < p->cores ? p->lanes_max : p->cores,
		.fixed = fixed / part,
	};
}

/* ---- the trace -------------------------------------------------------------------- */

double
fal_coord_trace_time(struct fal_coord *c, double now)
{
	coord_enter(c);
	c->newest_line_s = fmax(c->newest_line_s, now - c->start);
	return c->newest_line_s;
}

void
coord_write_line(struct fal_coord *c)
{
	if (c->trace_line.err != 0)
		return;
	COORD_CALL(c, trace, (const char *)c->trace_line.p, c->trace_line.n);
}

void
coord_trace_event(struct fal_coord *c, double now, enum fal_event ev, const void *event)
{
	fal_trace_put(&c->trace_line, fal_coord_trace_time(c, now), ev, event);
	coord_write_line(c);
}

uint32_t
coord_list_metrics(const struct fal_coord *c, const struct fal_metrics *m,
		   struct fal_ev_metric out[static FAL_METRICS_MAX])
{
	const struct fal_metric_names *names = &c->conf.metrics;
	for (uint32_t i = 0; i < names->n; i++)
		out[i] = (struct fal_ev_metric){ names->v[i], m->sum[i] };
	return names->n;
}

int
coord_read_metrics(const struct fal_coord *c, const struct fal_tail *from, double samples,
		   struct fal_metrics *out, struct fal_diag *diag)
{
	const uint32_t n = c->conf.metrics.n;
	if (from->n != n * sizeof(*out->sum))
		return fal_diag_set(diag, FAL_EINVAL,
				    "%zu bytes of metrics, but the job has %u metric%s",
				    from->n, n, fal_text_plural(n));
	*out = fal_metrics_of(samples, from->p, from->n);
	for (uint32_t i = 0; i < n; i++)
		if (fabs(out->sum[i]) > FAL_METRIC_MOST)
			return fal_diag_set(diag, FAL_EINVAL, "a metric of %g",
					    out->sum[i]);
	return FAL_OK;
}

/* ---- messages and commands -------------------------------------------------------- */

void
coord_send(struct fal_coord *c, uint32_t peer, struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	if (peer == 0)
		return;
	m->incarnation = c->conf.tickets.incarnation;
	fal_msg_put(&out, m);
	COORD_CALL(c, send, peer, &out);
	fal_buf_free(&out);
}

void
coord_send_ping(struct fal_coord *c, double now, uint32_t peer)
{
	struct fal_msg m = { .type = FAL_MSG_PING };
	m.ping.stamp = (uint64_t)((now - c->start) * 1e9);
	coord_send(c, peer, &m);
}

void
coord_record_error(struct fal_coord *c, int err)
{
	c->err = c->err == 0 && err < 0 ? err : c->err;
}

void
coord_command_shards(struct fal_coord *c, const struct fal_shard_order *o)
{
	if (c->err < 0)
		return;
	coord_begin_callback(c);
	const int err = c->ops.shards.order(c->ops.shards.arg, o, &c->result);
	coord_end_callback(c);
	coord_record_error(c, err);
}

uint32_t
coord_versions_to_retain(const struct fal_coord *c, uint64_t version)
{
	const struct coord_versions *v = &c->versions;
	const uint64_t read =
		version - fal_sched_oldest_read_version(c->sched, version) + 1;
	uint64_t n = version - v->published;
	if (c->conf.shards > 1 && n < read)
		n = read;
	return n > v->retained ? (uint32_t)n : v->retained;
}

_Static_assert(FAL_KEPT_MAX >= FAL_SLACK_MAX + 8, "shards keep what any slack needs");

void
coord_retain_versions(struct fal_coord *c, uint32_t versions)
{
	struct coord_versions *v = &c->versions;
	struct fal_shard_order o = { .kind = FAL_ORDER_RETAIN };
	v->retained = versions;
	o.versions = coord_versions_to_retain(c, v->newest);
	if (v->newest - v->oldest + 1 > versions)
		v->oldest = v->newest + 1 - versions;
	coord_command_shards(c, &o);
}

bool
coord_changes_rule(const struct fal_coord *c, const struct fal_policy *p)
{
	return !fal_rule_equal(&fal_sched_policy(c->sched)->rule, &p->rule);
}

void
coord_hold_rounds(struct fal_coord *c, double now)
{
	const struct coord_policy_control *k = &c->control;
	fal_sched_hold(c->sched, now,
		       k->is_paused || k->stop != STOP_NONE ||
			       (k->has_pending && coord_changes_rule(c, &k->pending)) ||
			       c->placement.move.state != MOVE_NONE);
}
