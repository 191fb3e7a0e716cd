/* Tasks that are granted above become rounds and evaluations of the coordinator below,
 * and their results go back: a claim with its sum, or what an evaluation came to.
 *
 * Callbacks of the agent and of the coordinator only take notes, as neither may be called
 * back; fal_group_work carries them out. */
#include "server/group.h"

#include "base/branch.h"
#include "base/mem.h"
#include "sched/policy.h"

#include <stdlib.h>
#include <string.h>

/* A task that a lane of the agent has, until it is finished there. */
struct task {
	struct fal_run run;
	uint32_t lane;
	bool asked;     /* the coordinator has it: */
	uint64_t round; /* … as this round, if it is no test task */
	bool claimed;   /* a member's claim won there */
	bool done;      /* the round's sum was given, or the test task is evaluated */
	bool unwanted;
	struct fal_ran ran;
};

/* A version, as the level above counts them and as this one does.  Here each has a higher
 * number than those that came before, and none is of a line (base/branch.h), which is
 * nothing to members. */
struct name {
	uint64_t up, down;
};

struct fal_group {
	size_t params;
	bool ready;              /* READY was said: it may grant */
	uint32_t members, lanes; /* that were told of last */
	int err;                 /* of something in a callback */
	uint64_t steps;          /* results of members, so far */
	struct task *task;
	size_t tasks, task_cap;
	struct name *name; /* of versions that the agent has */
	size_t names, name_cap;
	uint64_t next; /* above all numbers that versions have here */
	/* The version that is being told of here; NULL: none is. */
	const struct fal_whole *telling;
};

struct fal_group *
fal_group_new(size_t params)
{
	struct fal_group *g = fal_xcalloc(1, sizeof(*g));
	g->params = params;
	return g;
}

bool
fal_group_may(const struct fal_rule *rule)
{
	return !fal_rule_traits(rule).delta;
}

/* ---- who is here ------------------------------------------------------------------- */

enum fal_group_word
fal_group_word(struct fal_group *g, const struct fal_coord *below, uint32_t least,
	       struct fal_msg *m)
{
	struct fal_coord_together are;
	fal_coord_together(below, &are);
	if (g->ready && are.workers == 0)
		return FAL_GROUP_NOBODY;
	if (!g->ready && are.workers > 0 && are.workers >= least) {
		*m = (struct fal_msg){ .type = FAL_MSG_READY,
				       .ready.task_ns = are.task_ns,
				       .ready.kernels = "a group" };
		memcpy(m->ready.fingerprint, are.fingerprint, FAL_FINGERPRINT);
		g->ready = true;
		return FAL_GROUP_READY;
	}
	if (!g->ready || (are.workers == g->members && are.lanes == g->lanes))
		return FAL_GROUP_NOTHING;
	*m = (struct fal_msg){ .type = FAL_MSG_CAPACITY,
			       .capacity = { .members = are.workers,
					     .lanes = are.lanes,
					     .task_ns = are.task_ns } };
	g->members = are.workers;
	g->lanes = are.lanes;
	return FAL_GROUP_MEMBERS;
}

/* ---- notes ------------------------------------------------------------------------- */

void
fal_group_run(struct fal_group *g, uint32_t lane, const struct fal_run *run)
{
	FAL_XGROW(g->task, g->task_cap, g->tasks + 1);
	g->task[g->tasks++] = (struct task){ .run = *run, .lane = lane };
}

void
fal_group_cancel(struct fal_group *g, uint32_t lane)
{
	for (size_t i = 0; i < g->tasks; i++)
		g->task[i].unwanted |= g->task[i].lane == lane;
}

uint64_t
fal_group_steps(const struct fal_group *g)
{
	return g->steps;
}

static const struct name *
name_of(const struct fal_group *g, uint64_t up)
{
	for (size_t i = 0; i < g->names; i++)
		if (g->name[i].up == up)
			return &g->name[i];
	return NULL;
}

/* What the agent has forgotten nobody will ask for. */
static void
forget_names(struct fal_group *g, const struct fal_agent *a)
{
	size_t kept = 0;
	for (size_t i = 0; i < g->names; i++)
		if (fal_agent_has(a, g->name[i].up))
			g->name[kept++] = g->name[i];
	g->names = kept;
}

/* Names a version.  It keeps its number if that is above all numbers given so far. */
static const struct name *
add_name(struct fal_group *g, uint64_t up)
{
	FAL_XGROW(g->name, g->name_cap, g->names + 1);
	const bool keeps = up >= g->next && fal_branch_of(up) == 0;
	const struct name is = { .up = up, .down = keeps ? up : g->next };
	g->next = is.down + 1;
	g->name[g->names] = is;
	return &g->name[g->names++];
}

void
fal_group_whole(struct fal_group *g, const struct fal_group_ends *e,
		const struct fal_whole *v)
{
	forget_names(g, e->agent);
	const struct name *is = name_of(g, v->version);
	if (is == NULL)
		is = add_name(g, v->version);
	uint64_t oldest = is->down;
	for (size_t i = 0; i < g->names; i++)
		oldest = g->name[i].down < oldest ? g->name[i].down : oldest;
	g->telling = v;
	int err = fal_coord_newer(e->coord, e->s, is->down, oldest);
	if (err == FAL_OK && v->keep)
		err = fal_coord_eval_of(e->coord, e->s, is->down);
	g->telling = NULL;
	g->err = g->err < 0 ? g->err : err;
}

static struct task *
task_of(const struct fal_group *g, uint64_t round)
{
	for (size_t i = 0; i < g->tasks; i++)
		if (g->task[i].asked && !g->task[i].run.eval && g->task[i].round == round)
			return &g->task[i];
	return NULL;
}

void
fal_group_claimed(struct fal_group *g, const struct fal_coord_claimed *is)
{
	struct task *t = task_of(g, is->round);
	g->steps++;
	if (t == NULL)
		return;
	t->claimed = true;
	t->ran = (struct fal_ran){ .nonfinite = is->nonfinite,
				   .loss = is->loss,
				   .task_ns = is->task_ns };
	if (!is->nonfinite)
		memcpy(t->ran.hash, is->hash, sizeof(t->ran.hash));
}

void
fal_group_given(struct fal_group *g, uint64_t round)
{
	struct task *t = task_of(g, round);
	if (t != NULL)
		t->done = true;
}

void
fal_group_evaluated(struct fal_group *g, const struct fal_msg *m)
{
	g->steps++;
	for (size_t i = 0; i < g->tasks; i++) {
		struct task *t = &g->task[i];
		const struct name *of = name_of(g, t->run.version);
		if (!t->run.eval || of == NULL || of->down != m->evaluated.version ||
		    t->run.task != m->evaluated.task)
			continue;
		t->done = true;
		t->ran = (struct fal_ran){ .loss = m->evaluated.loss,
					   .right = m->evaluated.right,
					   .samples = m->evaluated.samples,
					   .task_ns = m->evaluated.task_ns };
	}
}

int
fal_group_order(struct fal_group *g, struct fal_shard_order *o)
{
	if (o->kind == FAL_ORDER_PUT) {
		o->params = g->telling->params;
		o->exps = g->telling->exps;
	}
	if (o->kind != FAL_ORDER_END || o->end != FAL_END_GIVE)
		return FAL_OK;
	struct task *t = task_of(g, o->round);
	if (t == NULL)
		return FAL_ESTATE;
	if (t->ran.sum == NULL)
		t->ran.sum = fal_sum_new(g->params);
	o->into = t->ran.sum;
	return t->ran.sum != NULL ? FAL_OK : FAL_ENOMEM;
}

/* ---- carrying them out ------------------------------------------------------------- */

/* Task i goes to the coordinator, where nothing of it can be made before this returns. */
static int
ask(struct fal_group *g, const struct fal_group_ends *e, size_t i)
{
	const struct fal_run is = g->task[i].run;
	const struct name *on = name_of(g, is.version);
	const struct name *by = is.eval ? on : name_of(g, is.exponents);
	g->task[i].asked = true;
	if (on == NULL || by == NULL)
		return FAL_EINVAL;
	if (is.eval)
		return fal_coord_eval(e->coord, e->s, on->down, is.task);
	const struct fal_bring what = { .clock = is.clock,
					.version = on->down,
					.exponents = by->down,
					.task = is.task };
	uint64_t round = 0;
	int err = fal_coord_bring(e->coord, e->s, &what, &round);
	g->task[i].round = round;
	return err;
}

/* The agent hears of a task that is done, or that nobody wants any more. */
static int
settle(const struct fal_group_ends *e, struct task *t)
{
	const struct fal_ran none = { .cancelled = true };
	if (!t->unwanted)
		return fal_agent_finished(e->agent, e->ns, t->lane, &t->ran);
	fal_sum_free(t->ran.sum);
	int err = fal_agent_finished(e->agent, e->ns, t->lane, &none);
	if (err == FAL_OK && t->asked && !t->run.eval && !t->done)
		err = fal_coord_unwanted(e->coord, e->s, t->round);
	return err;
}

/* Passes once over all tasks; *any: something was done, so another pass is due. */
static int
pass(struct fal_group *g, const struct fal_group_ends *e, bool *any)
{
	int err = FAL_OK;
	for (size_t i = 0; i < g->tasks && err == FAL_OK;) {
		struct task t = g->task[i];
		/* A member has pushed the sum and left without its claim: the task is
		 * run once more, as long as its version is kept. */
		const bool silent = t.done && !t.run.eval && !t.claimed && !t.unwanted;
		t.ran.nonfinite |= silent;
		if (silent && name_of(g, t.run.version) != NULL &&
		    name_of(g, t.run.exponents) != NULL) {
			fal_sum_free(t.ran.sum);
			t = g->task[i] = (struct task){ .run = t.run, .lane = t.lane };
		}
		*any |= t.done || t.unwanted || !t.asked;
		if (t.done || t.unwanted) {
			memmove(g->task + i, g->task + i + 1,
				(--g->tasks - i) * sizeof(t));
			err = settle(e, &t);
		} else if (!t.asked) {
			err = ask(g, e, i++);
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
		err = pass(g, e, &any);
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
