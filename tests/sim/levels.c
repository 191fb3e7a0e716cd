/* Group servers: machines that are coordinators to machines of their own, which is a
 * cluster in the cluster.  What is between both is lib/server's, as in falcon-ps. */
#include "cluster_priv.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* ---- the worker above -------------------------------------------------------------- */

static void
on_run(void *arg, uint32_t lane, const struct fal_task_run *run)
{
	const struct worker *w = arg;
	fal_group_run(w->below->group, lane, run);
}

static void
on_cancel(void *arg, uint32_t lane)
{
	const struct worker *w = arg;
	w->c->root->seen[SEEN_GROUP_UNWANTED]++;
	fal_group_cancel(w->below->group, lane);
}

static uint64_t
on_steps(void *arg)
{
	const struct worker *w = arg;
	return fal_group_steps(w->below->group);
}

static struct fal_group_ends
ends(const struct cluster *c)
{
	return (struct fal_group_ends){
		.agent = c->up->agent, .coord = c->coord, .ns = cluster_ns(c), .s = c->now
	};
}

static void
on_whole(void *arg, const struct fal_whole_version *v)
{
	const struct worker *w = arg;
	const struct fal_group_ends e = ends(w->below);
	fal_group_on_version(w->below->group, &e, v);
}

void
levels_ops(struct fal_agent_conf *conf, struct fal_agent_ops *ops)
{
	conf->outer = true;
	conf->lanes_max = FAL_LANES_MAX;
	ops->begins = NULL;
	ops->run = on_run;
	ops->cancel = on_cancel;
	ops->steps = on_steps;
	ops->whole = on_whole;
}

/* ---- the coordinator below --------------------------------------------------------- */

static void
on_claimed(void *arg, const struct fal_coord_counted_claim *is)
{
	const struct cluster *c = arg;
	fal_group_claimed(c->group, is);
}

static void
on_given(void *arg, uint64_t round)
{
	const struct cluster *c = arg;
	fal_group_given(c->group, round);
}

static void
on_evaluated(void *arg, const struct fal_msg *m)
{
	const struct cluster *c = arg;
	fal_group_evaluated(c->group, m);
}

void
levels_conf(const struct cluster *c, struct fal_coord_upstream *above,
	    struct fal_coord_conf *conf, struct fal_coord_ops *ops)
{
	*above = (struct fal_coord_upstream){ .address = "above",
					      .key = c->key,
					      .key_fingerprint = c->key };
	conf->above = above;
	ops->claimed = on_claimed;
	ops->given = on_given;
	ops->evaluated = on_evaluated;
}

void
levels_begin(struct worker *w)
{
	struct cluster *root = w->c->root, *c = fal_calloc(1, sizeof(*c));
	assert(c != NULL);
	int err = FAL_GROW(root->group_of.v, root->group_of.cap, root->group_of.n + 1);
	assert(err == FAL_OK);
	*c = (struct cluster){ .p = w->m->group,
			       .root = root,
			       .up = w,
			       .now = root->now,
			       .group = fal_group_new(root->p->toy.n) };
	assert(c->group != NULL);
	c->rng = fal_rng_init(root->p->toy.seed, FAL_RNG_TEST,
			      100 + (uint32_t)root->group_of.n);
	cluster_key(root, plan_owner(root->p, w->index), c->key);
	root->group_of.v[root->group_of.n++] = c;
	root->seen[SEEN_GROUP_AGAIN] += plan_process(w->c->p, w->index) != w->index;
	w->below = c;
	cluster_begin(c);
}

/* Is any member at a task? */
static bool
works(const struct cluster *c)
{
	for (uint32_t i = 0; i < c->p->machines; i++)
		for (uint32_t k = 0; k < 8 && c->worker[i].here; k++)
			if (c->worker[i].lane[k].busy)
				return true;
	return false;
}

/* All that is in it is gone: what is on its way, too. */
static void
end(struct cluster *c)
{
	c->gone = true;
	c->up->below = NULL;
	for (uint32_t i = 0; i < c->p->machines; i++) {
		if (c->worker[i].here)
			cluster_kill(&c->worker[i]);
		levels_kill(&c->worker[i]);
	}
}

void
levels_kill(struct worker *w)
{
	if (w->below == NULL)
		return;
	w->c->root->seen[SEEN_GROUP_DIED] += works(w->below);
	end(w->below);
}

/* Its part of the job is over, and so are the sessions of its members. */
static void
part(struct cluster *c, const char *why)
{
	fal_coord_lose_upstream(c->coord, c->now, why);
	for (uint32_t i = 0; i < c->p->machines; i++)
		if (c->worker[i].here)
			cluster_ok(c,
				   fal_coord_session_end(c->coord, c->now, i + 1,
							 "reset"),
				   "gone");
}

void
levels_part(struct worker *w)
{
	if (w->below == NULL)
		return;
	w->c->root->seen[SEEN_GROUP_PARTED] += works(w->below);
	part(w->below, "the coordinator above is gone");
	end(w->below);
}

/* ---- both -------------------------------------------------------------------------- */

bool
levels_stale(const struct cluster *c)
{
	return c->up->session != c->root->incarnation;
}

double
levels_thaw(const struct cluster *c)
{
	const struct machine *m = c->up != NULL ? c->up->m : NULL;
	const bool frozen =
		m != NULL && c->now >= m->stall_at && c->now < m->stall_at + m->stall_s;
	return frozen ? m->stall_at + m->stall_s : c->now;
}

/* What is to be said of members is said.  False: nobody is left, so it is over. */
static bool
tell(struct cluster *c)
{
	struct worker *w = c->up;
	struct fal_buf out = { 0 };
	struct fal_msg m;
	enum fal_group_report word;
	do {
		word = fal_group_report(c->group, c->coord, c->p->min_workers, &m);
		if (word != FAL_GROUP_READY && word != FAL_GROUP_MEMBERS)
			break;
		m.incarnation = w->session;
		c->ready |= word == FAL_GROUP_READY;
		if (word == FAL_GROUP_MEMBERS)
			c->members = m.capacity.members;
		c->root->seen[SEEN_GROUP] += word == FAL_GROUP_READY;
		fal_msg_put(&out, &m);
		worker_send(w, &out, false);
		fal_buf_clear(&out);
	} while (c->root->failure == NULL);
	fal_buf_free(&out);
	struct fal_coord_aggregate are;
	fal_coord_aggregate(c->coord, &are);
	if (word == FAL_GROUP_NOTHING && c->ready && are.workers != c->members)
		c->failure = "a group server does not say who is there";
	return word != FAL_GROUP_NOBODY;
}

void
levels_close(struct worker *w)
{
	struct event reset = { .kind = RESET, .worker = w->index };
	reset.t = fmax(fmax(w->up_ctl, w->up_bulk), w->c->now);
	levels_part(w);
	cluster_kill(w);
	cluster_push(w->c, reset);
}

static int
work(struct cluster *c)
{
	const struct fal_group_ends e = ends(c);
	return fal_group_work(c->group, &e);
}

static void
go_on(struct cluster *c)
{
	struct worker *w = c->up;
	if (!tell(c)) {
		c->root->seen[SEEN_GROUP_EMPTY]++;
		levels_close(w);
		return;
	}
	cluster_ok(c, work(c), "group: work");
	bool more = true;
	while (more && w->under_way < w->m->window) {
		more = fal_agent_send_next(w->agent);
		cluster_ok(c, work(c), "group: more");
	}
	if (fal_agent_has_left(w->agent)) {
		c->root->seen[SEEN_GROUP_LEFT]++;
		levels_close(w);
		return;
	}
	ops_publish(c);
}

void
levels_work(struct cluster *root)
{
	for (size_t i = 0; i < root->group_of.n && root->failure == NULL; i++) {
		struct cluster *c = root->group_of.v[i];
		if (!c->gone && levels_thaw(c) <= c->now)
			go_on(c);
		const struct machine *m = c->up->m;
		root->seen[SEEN_GROUP_CUT] +=
			!c->gone && c->now >= fmin(m->stall_at, m->cut_at) &&
			c->now < fmin(m->stall_at + m->stall_s, m->cut_at + m->cut_s) &&
			works(c);
		root->failure = root->failure != NULL ? root->failure : c->failure;
	}
}

void
levels_time(struct cluster *root, double now)
{
	root->now = now;
	for (size_t i = 0; i < root->group_of.n; i++)
		if (!root->group_of.v[i]->gone)
			root->group_of.v[i]->now = now;
}

double
levels_wake(struct cluster *root, struct cluster **which)
{
	double first = fal_coord_next_deadline(root->coord);
	*which = root;
	for (size_t i = 0; i < root->group_of.n; i++) {
		struct cluster *c = root->group_of.v[i];
		if (c->gone)
			continue;
		double wake = fal_coord_next_deadline(c->coord);
		if (wake < INFINITY)
			wake = fmax(wake, levels_thaw(c));
		if (wake < first) {
			first = wake;
			*which = c;
		}
	}
	return first;
}

void
levels_end(struct cluster *root)
{
	for (size_t i = 0; i < root->group_of.n; i++) {
		struct cluster *c = root->group_of.v[i];
		for (int k = 0; k < SEEN; k++)
			root->seen[k] += c->seen[k];
		fal_group_free(c->group);
		cluster_free(c);
		fal_buf_free(&c->trace);
		free(c);
	}
	free(root->group_of.v);
}

void
levels_finish(struct cluster *root, struct outcome *out)
{
	static const struct fal_coord_result none = { .journal = "" };
	if (root->group_of.n == 0)
		return;
	out->group = fal_calloc(root->group_of.n, sizeof(*out->group));
	assert(out->group != NULL);
	for (size_t i = 0; i < root->group_of.n; i++) {
		struct cluster *c = root->group_of.v[i];
		if (!c->gone && levels_stale(c))
			part(c, "it has not heard of it");
		else if (!c->gone)
			fal_coord_finish(c->coord, c->now, &none, NULL);
	}
	for (; out->groups < root->group_of.n; out->groups++) {
		struct cluster *c = root->group_of.v[out->groups];
		out->group[out->groups] =
			(struct lines){ (char *)c->trace.p, c->trace.n };
		c->trace = (struct fal_buf){ 0 };
	}
}
