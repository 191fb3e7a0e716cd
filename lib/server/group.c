/* Tasks granted above become rounds and evaluations of the coordinator below.  Their
 * results go to the job above: a claim with its sum, or the result of an evaluation.
 *
 * Callbacks of the agent and of the coordinator only take notes, because neither may be
 * called back; fal_group_work acts on the notes. */
#include "server/group.h"

#include "base/branch.h"
#include "base/mem.h"
#include "sched/policy.h"

#include <stdlib.h>
#include <string.h>

/* A task that a lane of the agent has, until the lane finishes it. */
struct task {
	struct fal_task_run run;
	uint32_t lane;
	bool is_started; /* the coordinator below has the task */
	uint64_t round;  /* the round of the task below, unless the task is a test task */
	bool is_claimed; /* a member's claim has won */
	bool is_done; /* the round's sum was forwarded, or the test task is evaluated */
	bool is_unwanted;
	struct fal_task_result ran;
};

/* The number of a version in the job above and in the group below.  Below, each version
 * has a higher number than all earlier versions.  No number below is that of a branch
 * (base/branch.h), because members know no branches. */
struct version_name {
	uint64_t above, below;
};

struct fal_group {
	size_t params;
	bool is_ready;           /* READY was sent: grants may come */
	uint32_t members, lanes; /* as in the last message sent */
	int err;                 /* an error that occurred in a callback */
	uint64_t steps;          /* results of members, so far */
	struct task *task;
	size_t tasks, task_cap;
	struct version_name *name; /* of versions that the agent has */
	size_t names, name_cap;
	uint64_t next_below; /* higher than all numbers below */
	/* The version that fal_group_on_version announces below; NULL: none. */
	const struct fal_whole_version *announced;
};

struct fal_group *
fal_group_new(size_t params)
{
	struct fal_group *g = fal_xcalloc(1, sizeof(*g));
	g->params = params;
	return g;
}

bool
fal_group_is_allowed(const struct fal_rule *rule)
{
	return !fal_rule_traits(rule).delta;
}

/* ---- members ----------------------------------------------------------------------- */

enum fal_group_report
fal_group_report(struct fal_group *g, const struct fal_coord *below, uint32_t least,
		 struct fal_msg *m)
{
	struct fal_coord_aggregate all;
	fal_coord_aggregate(below, &all);
	if (g->is_ready && all.workers == 0)
		return FAL_GROUP_NOBODY;
	if (!g->is_ready && all.workers > 0 && all.workers >= least) {
		*m = (struct fal_msg){ .type = FAL_MSG_READY,
				       .ready.task_ns = all.task_ns,
				       .ready.kernels = "a group" };
		memcpy(m->ready.fingerprint, all.fingerprint, FAL_FINGERPRINT);
		g->is_ready = true;
		return FAL_GROUP_READY;
	}
	if (!g->is_ready || (all.workers == g->members && all.lanes == g->lanes))
		return FAL_GROUP_NOTHING;
	*m = (struct fal_msg){ .type = FAL_MSG_CAPACITY,
			       .capacity = { .members = all.workers,
					     .lanes = all.lanes,
					     .task_ns = all.task_ns } };
	g->members = all.workers;
	g->lanes = all.lanes;
	return FAL_GROUP_MEMBERS;
}

/* ---- notes ------------------------------------------------------------------------- */

void
fal_group_run(struct fal_group *g, uint32_t lane, const struct fal_task_run *run)
{
	FAL_XGROW(g->task, g->task_cap, g->tasks + 1);
	g->task[g->tasks++] = (struct task){ .run = *run, .lane = lane };
}

void
fal_group_cancel(struct fal_group *g, uint32_t lane)
{
	for (size_t i = 0; i < g->tasks; i++)
		g->task[i].is_unwanted |= g->task[i].lane == lane;
}

uint64_t
fal_group_steps(const struct fal_group *g)
{
	return g->steps;
}

static const struct version_name *
find_version_name(const struct fal_group *g, uint64_t above)
{
	for (size_t i = 0; i < g->names; i++)
		if (g->name[i].above == above)
			return &g->name[i];
	return NULL;
}

void
fal_group_on_version(struct fal_group *g, const struct fal_group_ends *e,
		     const struct fal_whole_version *v)
{
	size_t kept = 0;
	for (size_t i = 0; i < g->names; i++)
		if (fal_agent_has_version(e->agent, g->name[i].above))
			g->name[kept++] = g->name[i];
	g->names = kept;
	const struct version_name *name = find_version_name(g, v->version);
	/* A new version keeps its number in the group below if the number is higher than
	 * all earlier numbers below. */
	const bool keeps = v->version >= g->next_below && fal_branch_of(v->version) == 0;
	const uint64_t below = name != NULL ? name->below
			       : keeps      ? v->version
					    : g->next_below;
	if (name == NULL) {
		FAL_XGROW(g->name, g->name_cap, g->names + 1);
		g->name[g->names++] = (struct version_name){ v->version, below };
		g->next_below = below + 1;
	}
	uint64_t oldest = below;
	for (size_t i = 0; i < g->names; i++)
		oldest = g->name[i].below < oldest ? g->name[i].below : oldest;
	g->announced = v;
	int err = fal_coord_install_version(e->coord, e->s, below, oldest);
	if (err == FAL_OK && v->keep)
		err = fal_coord_evaluate_external(e->coord, e->s, below);
	g->announced = NULL;
	g->err = g->err < 0 ? g->err : err;
}

static struct task *
find_task(const struct fal_group *g, uint64_t round)
{
	for (size_t i = 0; i < g->tasks; i++)
		if (g->task[i].is_started && !g->task[i].run.eval &&
		    g->task[i].round == round)
			return &g->task[i];
	return NULL;
}

void
fal_group_claimed(struct fal_group *g, const struct fal_coord_counted_claim *is)
{
	struct task *t = find_task(g, is->round);
	g->steps++;
	if (t == NULL)
		return;
	t->is_claimed = true;
	t->ran = (struct fal_task_result){ .nonfinite = is->nonfinite,
					   .loss = is->loss,
					   .metrics = fal_metrics_of(0, is->metrics.p,
								     is->metrics.n),
					   .task_ns = is->task_ns };
	if (!is->nonfinite)
		memcpy(t->ran.hash, is->hash, sizeof(t->ran.hash));
}

void
fal_group_given(struct fal_group *g, uint64_t round)
{
	struct task *t = find_task(g, round);
	if (t != NULL)
		t->is_done = true;
}

void
fal_group_evaluated(struct fal_group *g, const struct fal_msg *m)
{
	g->steps++;
	for (size_t i = 0; i < g->tasks; i++) {
		struct task *t = &g->task[i];
		const struct version_name *name = find_version_name(g, t->run.version);
		if (!t->run.eval || name == NULL || name->below != m->evaluated.version ||
		    t->run.task != m->evaluated.task)
			continue;
		t->is_done = true;
		t->ran = (struct fal_task_result){
			.loss = m->evaluated.loss,
			.right = m->evaluated.right,
			.samples = m->evaluated.samples,
			.metrics = fal_metrics_of(0, m->evaluated.metrics.p,
						  m->evaluated.metrics.n),
			.task_ns = m->evaluated.task_ns
		};
	}
}

int
fal_group_order(struct fal_group *g, struct fal_shard_order *o)
{
	if (o->kind == FAL_ORDER_INSTALL) {
		o->params = g->announced->params;
		o->exps = g->announced->exps;
	}
	if (o->kind != FAL_ORDER_END || o->end != FAL_END_FORWARD)
		return FAL_OK;
	struct task *t = find_task(g, o->round);
	if (t == NULL)
		return FAL_ESTATE;
	if (t->ran.sum == NULL)
		t->ran.sum = fal_sum_new(g->params);
	o->into = t->ran.sum;
	return t->ran.sum != NULL ? FAL_OK : FAL_ENOMEM;
}

/* ---- actions ----------------------------------------------------------------------- */

/* Gives task i to the coordinator below, which reports no result before this returns. */
static int
start_task(struct fal_group *g, const struct fal_group_ends *e, size_t i)
{
	const struct fal_task_run run = g->task[i].run;
	const struct version_name *on = find_version_name(g, run.version);
	const struct version_name *by =
		run.eval ? on : find_version_name(g, run.exponents);
	g->task[i].is_started = true;
	if (on == NULL || by == NULL)
		return FAL_EINVAL;
	if (run.eval)
		return fal_coord_evaluate_task(e->coord, e->s, on->below, run.task);
	const struct fal_external_task what = { .clock = run.clock,
						.version = on->below,
						.exponents = by->below,
						.task = run.task };
	uint64_t round = 0;
	int err = fal_coord_add_external_round(e->coord, e->s, &what, &round);
	g->task[i].round = round;
	return err;
}

/* Starts new tasks and finishes done ones, in one pass.  *any: something has changed, so
 * another pass is due. */
static int
process_tasks(struct fal_group *g, const struct fal_group_ends *e, bool *any)
{
	int err = FAL_OK;
	for (size_t i = 0; i < g->tasks && err == FAL_OK;) {
		struct task t = g->task[i];
		/* The member that pushed the sum has left without a claim.  The task runs
		 * once more if its version is still kept; else the task counts as
		 * non-finite. */
		const bool lacks_claim =
			t.is_done && !t.run.eval && !t.is_claimed && !t.is_unwanted;
		t.ran.nonfinite |= lacks_claim;
		if (lacks_claim && find_version_name(g, t.run.version) != NULL &&
		    find_version_name(g, t.run.exponents) != NULL) {
			fal_sum_free(t.ran.sum);
			t = g->task[i] = (struct task){ .run = t.run, .lane = t.lane };
		}
		*any |= t.is_done || t.is_unwanted || !t.is_started;
		if (t.is_done || t.is_unwanted) {
			memmove(g->task + i, g->task + i + 1,
				(--g->tasks - i) * sizeof(t));
			if (t.is_unwanted) {
				fal_sum_free(t.ran.sum);
				t.ran = (struct fal_task_result){ .cancelled = true };
			}
			err = fal_agent_finished(e->agent, e->ns, t.lane, &t.ran);
			if (err == FAL_OK && t.is_unwanted && t.is_started &&
			    !t.run.eval && !t.is_done)
				err = fal_coord_cancel_external_round(e->coord, e->s,
								      t.round);
		} else if (!t.is_started) {
			err = start_task(g, e, i++);
		} else {
			i++;
		}
	}
	return err;
}

int
fal_group_work(struct fal_group *g, const struct fal_group_ends *e)
{
	bool any = true;
	int err = g->err;
	while (any && err == FAL_OK) {
		any = false;
		err = process_tasks(g, e, &any);
		err = err == FAL_OK ? g->err : err;
	}
	return err;
}

void
fal_group_free(struct fal_group *g)
{
	if (g == NULL)
		return;
	for (size_t i = 0; i < g->tasks; i++)
		fal_sum_free(g->task[i].ran.sum);
	free(g->task);
	free(g->name);
	free(g);
}
