/* The worker's sums and snapshots, and how many of them there may be.
 *
 * Sums are counted in halves: a sum that was only ever quantised takes one half, a sum
 * that has grown takes two (fal_sum_new).  A contribution of several tasks may grow, so
 * two halves are charged for it from its first task on; one half is charged for a
 * contribution of a single task.  A task begins only if its sum, and the contribution
 * that it begins, are within the limit, and one half is left for later tasks of the begun
 * contributions.  So each begun contribution can end, and then waiting tasks can begin.
 */
#include "worker/agent_priv.h"

#include "base/mem.h"
#include "sched/policy.h"

#include <assert.h>
#include <stdlib.h>

/* ---- limits ------------------------------------------------------------------------ */

struct fal_agent_limits
fal_agent_limits(const struct fal_rule *rule, bool evaluates)
{
	const struct fal_traits traits = fal_rule_traits(rule);
	/* The version that tasks compute on, which the next one replaces; the versions
	 * of a slack; the coming version, if each worker has rounds of its own; a version
	 * under evaluation. */
	return (struct fal_agent_limits){
		.versions = 1 + (traits.shared ? traits.delay : 1) + evaluates,
		.delay = traits.delay,
		.own = !traits.shared,
		.moves = traits.moves,
		.delta = traits.delta
	};
}

size_t
fal_agent_sums(const struct fal_agent_conf *conf, const struct fal_agent_limits *most)
{
	const size_t lanes = conf->lanes_max * (1 + conf->ahead), tasks = conf->tasks,
		     few = lanes / 2 + 1;
	const size_t small = 2 * CLAIM_BYTES / fal_sum_bytes(conf->n);
	if (tasks <= 1)
		return 1 + most->delay + most->own;
	/* One task for each lane.  If tasks move, results of some lanes wait for their
	 * verdicts; if not, claims wait for nobody (design.md, D25). */
	const size_t waiting = most->moves ? (small > few ? small : few) : 0;
	/* Each open round has a contribution of at least two tasks.  If tasks move, a
	 * round has one sum, beside the sum where two results meet; with a delay, a
	 * result of the last open round may wait for either sum.  If the worker has
	 * rounds of its own, one more sum is on its way. */
	const size_t shared =
		most->moves ? 2 + most->delay - (most->delay > 0) : 2 * (1 + most->delay);
	const size_t contributions = most->own ? 2 * (2 + most->delay) : shared;
	return (lanes + waiting < tasks ? lanes + waiting : tasks) + contributions;
}

uint64_t
fal_agent_bytes(const struct fal_agent_conf *conf, const struct fal_agent_limits *most)
{
	const uint64_t vector = conf->n * sizeof(float);
	/* Local steps: own weights, the weights before, two changes, optimiser state. */
	const uint64_t local = most->delta ? 4 + fal_optim_slots(&conf->optim) : 0;
	const uint64_t half = fal_sum_bytes(conf->n) / 2;
	return (most->versions + local) * vector + fal_agent_sums(conf, most) * half;
}

bool
memory_grow(struct fal_agent *a, const struct fal_agent_limits *to)
{
	if (a->ops.grow != NULL && !a->ops.grow(a->ops.arg, to))
		return false;
	const size_t sums = fal_agent_sums(&a->conf, to);
	a->conf.most = *to;
	if (a->conf.sums != 0 && a->conf.sums < sums)
		a->conf.sums = sums;
	return true;
}

/* Returns the number of versions above the limit, if there were `more` versions.  Each
 * such version takes the place of a half. */
static size_t
excess_versions(const struct fal_agent *a, uint32_t more)
{
	const uint32_t limit = a->conf.most.versions;
	const uint32_t n = a->memory.snapshots + more - (a->local.weights != NULL);
	return limit == 0 || a->conf.most.delta || n <= limit ? 0 : n - limit;
}

/* ---- sums -------------------------------------------------------------------------- */

static size_t
sum_halves(const struct fal_sum *s)
{
	return s == NULL ? 0 : fal_sum_grown(s) ? 2 : 1;
}

/* Takes a sum from the pool that has grown, or has not; NULL: there is none. */
static struct fal_sum *
take_pooled(struct fal_agent *a, bool grown)
{
	for (size_t i = 0; i < a->memory.pool.n; i++) {
		struct fal_sum *sum = a->memory.pool.v[i];
		if (fal_sum_grown(sum) != grown)
			continue;
		a->memory.pool.v[i] = a->memory.pool.v[--a->memory.pool.n];
		return sum;
	}
	return NULL;
}

static void
free_sum(struct fal_agent *a, struct fal_sum *sum)
{
	a->memory.halves -= sum_halves(sum);
	fal_sum_free(sum);
}

/* Frees unused sums until `room` halves of the limit are free. */
static void
shrink_pool(struct fal_agent *a, size_t room)
{
	const size_t most = a->conf.sums != 0 ? a->conf.sums - room : SIZE_MAX;
	while (a->memory.halves > most && a->memory.pool.n > 0) {
		struct fal_sum *sum = take_pooled(a, false);
		free_sum(a, sum != NULL ? sum : take_pooled(a, true));
	}
}

struct fal_sum *
memory_take_sum(struct fal_agent *a)
{
	struct fal_sum *sum = take_pooled(a, false);
	if (sum != NULL)
		return sum;
	shrink_pool(a, excess_versions(a, 0) + 1);
	sum = fal_check_alloc(fal_sum_new(a->conf.n));
	a->memory.halves++;
	return sum;
}

struct fal_sum *
memory_take_grown_sum(struct fal_agent *a)
{
	return take_pooled(a, true);
}

void
memory_return_sum(struct fal_agent *a, struct fal_sum *sum)
{
	if (sum == NULL)
		return;
	/* A group server's agent needs a sum only to add the group's sums. */
	if (a->conf.outer && (a->memory.pool.n > 0 || !fal_sum_grown(sum))) {
		free_sum(a, sum);
		return;
	}
	FAL_XGROW(a->memory.pool.v, a->memory.pool.cap, a->memory.pool.n + 1);
	fal_sum_clear(sum);
	a->memory.pool.v[a->memory.pool.n++] = sum;
}

int
memory_add_sum(struct fal_agent *a, struct fal_sum *to, struct fal_sum *sum)
{
	const bool grown = fal_sum_grown(to);
	if (!grown)
		shrink_pool(a, excess_versions(a, 0) + 1);
	int err = fal_sum_add(to, sum);
	a->memory.halves += !grown && fal_sum_grown(to);
	memory_return_sum(a, sum);
	return err;
}

/* ---- tasks that may begin ---------------------------------------------------------- */

/* Returns true if both tasks go into the same contribution. */
static bool
is_same_contribution(const struct task *one, const struct task *other)
{
	return !one->is_alone && !other->is_alone && one->kind != FAL_KIND_CHECK &&
	       other->kind != FAL_KIND_CHECK && one->round == other->round &&
	       one->seq == other->seq && one->exponents == other->exponents &&
	       fal_contrib_id_equal(one->fills, other->fills);
}

/* Returns true if the task's contribution exists and has a task already. */
static bool
has_contribution(const struct fal_agent *a, const struct task *task)
{
	for (size_t i = 0; i < a->contributions.n; i++) {
		const struct contribution *c = &a->contributions.v[i];
		if (c->exp_base == NULL || c->round != task->round)
			continue;
		if (task->seq != 0
			    ? c->seq == task->seq
			    : !c->is_closed && c->exp_base->version == task->exponents &&
				      fal_contrib_id_equal(c->fills, task->fills))
			return true;
	}
	return false;
}

/* Returns true if one of the first `lanes` lanes runs a task of the same contribution. */
static bool
lanes_share_contribution(const struct fal_agent *a, const struct task *task,
			 uint32_t lanes)
{
	for (uint32_t i = 0; i < lanes; i++)
		if (a->lane[i].state == LANE_TRAINS &&
		    is_same_contribution(&a->lane[i].task, task))
			return true;
	return false;
}

/* The halves charged at present: for each lane its sum, and the two halves of the
 * contribution that its task begins. */
static size_t
halves_in_use(const struct fal_agent *a)
{
	size_t n = 0;
	for (size_t i = 0; i < a->claims.n; i++)
		n += a->claims.v[i].sum != NULL;
	for (uint32_t i = 0; i < a->slots; i++) {
		const struct lane *l = &a->lane[i];
		const bool begins = l->state == LANE_TRAINS &&
				    l->task.kind == FAL_KIND_GRAD && !l->task.is_alone &&
				    !has_contribution(a, &l->task) &&
				    !lanes_share_contribution(a, &l->task, i);
		n += (size_t)(l->sum != NULL) + (begins ? 2 : 0);
	}
	for (size_t i = 0; i < a->contributions.n; i++) {
		const struct contribution *c = &a->contributions.v[i];
		n += c->is_alone ? sum_halves(c->sum) : c->exp_base != NULL ? 2 : 0;
	}
	for (size_t i = 0; i < a->pushes.n; i++)
		n += sum_halves(a->pushes.v[i].sum);
	for (size_t i = 0; i < a->local.rounds.n; i++)
		n += a->local.rounds.v[i].sum != NULL ? 2 : 0;
	return n;
}

bool
memory_allows_version(struct fal_agent *a)
{
	enum { LEAST = 3 }; /* halves that suffice: a contribution and a task */
	struct fal_agent_limits to = a->conf.most;
	const size_t more = excess_versions(a, 1);
	if (more == 0 || a->memory.spare != NULL)
		return true;
	if (a->conf.sums >= more + LEAST && halves_in_use(a) + more < a->conf.sums) {
		shrink_pool(a, more);
		return true;
	}
	to.delay += to.own ? 0 : (uint32_t)more;
	to.versions += (uint32_t)more;
	a->memory.versions_denied = a->memory.versions_denied || !memory_grow(a, &to);
	return !a->memory.versions_denied;
}

bool
memory_allows_task(const struct fal_agent *a, const struct task *task, bool *alone)
{
	*alone = false;
	if (a->conf.sums == 0 || task->kind == FAL_KIND_DELTA)
		return true;
	const size_t limit = a->conf.sums - excess_versions(a, 0),
		     used = halves_in_use(a);
	if (used == 0)
		return true;
	if (used >= limit)
		return false;
	if (used + 3 <= limit || task->kind == FAL_KIND_CHECK ||
	    has_contribution(a, task) || lanes_share_contribution(a, task, a->slots))
		return true;
	if (used + 2 > limit)
		return false;
	for (size_t i = 0; i < a->queue.n; i++)
		if (&a->queue.v[i] != task && is_same_contribution(&a->queue.v[i], task))
			return false; /* another queued task belongs to the same
					 contribution */
	*alone = true;
	return true;
}

/* ---- snapshots --------------------------------------------------------------------- */

void
snapshot_free(struct snapshot *s)
{
	if (s == NULL)
		return;
	free(s->params);
	free(s->exps);
	free(s->received);
	free(s);
}

void
snapshot_unref(struct fal_agent *a, struct snapshot *s)
{
	assert(s == NULL || s->refs > 0);
	if (s == NULL || --s->refs > 0)
		return;
	if (s->params != NULL && excess_versions(a, 0) > 0) {
		a->memory.snapshots--;
	} else if (s->params != NULL) {
		struct snapshot *old = a->memory.spare;
		a->memory.spare = s;
		s = old;
		a->memory.snapshots -= s != NULL;
	}
	snapshot_free(s);
}

struct snapshot *
snapshot_new(struct fal_agent *a)
{
	struct snapshot *s = a->memory.spare;
	if (s == NULL) {
		s = fal_xcalloc(1, sizeof(*s));
		s->params = fal_xcalloc_aligned(a->conf.n, sizeof(float));
		s->exps = fal_xcalloc(a->blocks, 1);
		s->received = fal_xcalloc(a->blocks, 1);
		a->memory.snapshots++;
	}
	a->memory.spare = NULL;
	s->refs = 1;
	s->blocks_left = 0;
	s->announcement = s->map_epoch = 0;
	s->for_eval = false;
	return s;
}
