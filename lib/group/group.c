/* What is granted above is brought here as rounds, and what members make of it goes back:
 * claims, sums, evaluations.
 *
 * Callbacks of the agent and of the coordinator only take notes, as neither may be called
 * back; fal_group_work carries them out. */
#include "group/group.h"

#include "base/line.h"
#include "base/mem.h"
#include "sched/traits.h"

#include <stdlib.h>
#include <string.h>

/* Tasks that are one round here. */
struct brought {
	uint64_t round; /* here; */
	uint64_t up;    /* and above, */
	uint32_t seq;   /* where they are claimed for this contribution; 0: not yet */
	uint32_t first, count;
	struct task {
		uint32_t lane; /* of the agent */
		bool made;     /* a member's claim won, */
		bool told;     /* and the agent knows; */
		bool lost;     /* … then its maker was, and nobody else had a result */
		struct fal_ran ran;
	} *task;
	struct fal_sum *sum; /* NULL: it is not made yet */
	bool given;          /* it is */
	bool unwanted;
};

/* A task that the agent has begun, and that is not brought yet; a test task stays here
 * until it is evaluated. */
struct begun {
	struct fal_run run;
	uint32_t lane;
	bool asked, done, unwanted;
	struct fal_ran ran; /* of a test task that is done */
};

/* A version, as the level above counts them and as this one does: the same, until there
 * are some of lines (base/line.h), which is nothing to members. */
struct name {
	uint64_t up, down;
};

struct fal_group {
	size_t params;
	bool ready;              /* READY was said: it may grant */
	uint32_t members, lanes; /* that were told of last */
	int err;                 /* of something in a callback */
	uint64_t steps;          /* results of members, so far */
	struct brought *round;
	size_t rounds, round_cap;
	struct begun *begun;
	size_t beguns, begun_cap;
	struct name *name; /* of versions that the agent has */
	size_t names, name_cap;
	uint64_t last; /* the highest one here */
	bool renames;  /* there were lines */
	/* The version that is being told of here; NULL: none is. */
	const struct fal_whole *telling;
};

struct fal_group *
fal_group_new(size_t params)
{
	struct fal_group *g = fal_calloc(1, sizeof(*g));
	if (g != NULL)
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
	if (FAL_GROW(g->begun, g->begun_cap, g->beguns + 1) < 0) {
		g->err = FAL_ENOMEM;
		return;
	}
	g->begun[g->beguns++] = (struct begun){ .run = *run, .lane = lane };
}

/* The round and task of a lane that has not ended; NULL: it was not brought. */
static struct task *
task_of(const struct fal_group *g, uint32_t lane, struct brought **of)
{
	for (size_t i = 0; i < g->rounds; i++)
		for (uint32_t t = 0; t < g->round[i].count; t++)
			if (g->round[i].task[t].lane == lane &&
			    !g->round[i].task[t].told) {
				*of = &g->round[i];
				return &g->round[i].task[t];
			}
	return NULL;
}

/* All that is claimed for one contribution goes together: so does its round. */
void
fal_group_cancel(struct fal_group *g, uint32_t lane)
{
	struct brought *r;
	for (size_t i = 0; i < g->beguns; i++)
		if (g->begun[i].lane == lane) {
			g->begun[i].unwanted = true;
			return;
		}
	if (task_of(g, lane, &r) != NULL)
		r->unwanted = true;
}

void
fal_group_unwanted(struct fal_group *g, uint64_t round, uint32_t seq)
{
	for (size_t i = 0; i < g->rounds; i++)
		g->round[i].unwanted |= g->round[i].up == round && g->round[i].seq == seq;
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

static const struct name *
add_name(struct fal_group *g, uint64_t up)
{
	if (FAL_GROW(g->name, g->name_cap, g->names + 1) < 0)
		return NULL;
	g->renames |= fal_line_of(up) != 0;
	const struct name is = { .up = up, .down = g->renames ? g->last + 1 : up };
	g->last = is.down > g->last ? is.down : g->last;
	g->name[g->names] = is;
	return &g->name[g->names++];
}

void
fal_group_whole(struct fal_group *g, const struct fal_group_ends *e,
		const struct fal_whole *v)
{
	int err = FAL_OK;
	forget_names(g, e->agent);
	const struct name *is = name_of(g, v->version);
	if (is == NULL && (is = add_name(g, v->version)) == NULL) {
		g->err = FAL_ENOMEM;
		return;
	}
	uint64_t oldest = is->down;
	for (size_t i = 0; i < g->names; i++)
		oldest = g->name[i].down < oldest ? g->name[i].down : oldest;
	g->telling = v;
	err = fal_coord_newer(e->coord, e->s, is->down, oldest);
	if (err == FAL_OK && v->keep)
		err = fal_coord_eval_of(e->coord, e->s, is->down);
	g->telling = NULL;
	g->err = g->err < 0 ? g->err : err;
}

static struct brought *
round_of(const struct fal_group *g, uint64_t round)
{
	for (size_t i = 0; i < g->rounds; i++)
		if (g->round[i].round == round)
			return &g->round[i];
	return NULL;
}

void
fal_group_claimed(struct fal_group *g, const struct fal_coord_claimed *is)
{
	const struct brought *r = round_of(g, is->round);
	g->steps++;
	if (r == NULL || is->task - r->first >= r->count)
		return;
	struct task *t = &r->task[is->task - r->first];
	t->lost |= t->told && is->nonfinite && !t->ran.nonfinite;
	t->made = true;
	t->ran = (struct fal_ran){ .nonfinite = is->nonfinite,
				   .loss = is->loss,
				   .task_ns = is->task_ns };
	if (!is->nonfinite)
		memcpy(t->ran.hash, is->hash, sizeof(t->ran.hash));
}

void
fal_group_given(struct fal_group *g, uint64_t round)
{
	struct brought *r = round_of(g, round);
	if (r != NULL)
		r->given = true;
}

void
fal_group_evaluated(struct fal_group *g, const struct fal_coord_evaluated *is)
{
	g->steps++;
	for (size_t i = 0; i < g->beguns; i++) {
		struct begun *b = &g->begun[i];
		const struct name *of = name_of(g, b->run.version);
		if (!b->run.eval || of == NULL || of->down != is->version ||
		    b->run.task != is->task)
			continue;
		b->done = true;
		b->ran = (struct fal_ran){ .loss = is->loss,
					   .right = is->right,
					   .samples = is->samples,
					   .task_ns = is->task_ns };
	}
}

int
fal_group_order(struct fal_group *g, struct fal_shard_order *o)
{
	if (g->telling != NULL) {
		o->params = g->telling->params;
		o->exps = g->telling->exps;
	}
	if (o->kind != FAL_ORDER_END || o->end != FAL_END_GIVE)
		return FAL_OK;
	struct brought *r = round_of(g, o->round);
	if (r == NULL)
		return FAL_ESTATE;
	if (r->sum == NULL)
		r->sum = fal_sum_new(g->params);
	o->into = r->sum;
	return r->sum != NULL ? FAL_OK : FAL_ENOMEM;
}

/* ---- carrying them out ------------------------------------------------------------- */

static void
drop_round(struct fal_group *g, size_t i)
{
	free(g->round[i].task);
	fal_sum_free(g->round[i].sum);
	memmove(g->round + i, g->round + i + 1, (--g->rounds - i) * sizeof(*g->round));
}

static void
drop_begun(struct fal_group *g, size_t i, size_t n)
{
	memmove(g->begun + i, g->begun + i + n, (g->beguns - i - n) * sizeof(*g->begun));
	g->beguns -= n;
}

static int
finish(const struct fal_group_ends *e, uint32_t lane, const struct fal_ran *ran)
{
	return fal_agent_finished(e->agent, e->ns, lane, ran);
}

static int
cancelled(const struct fal_group_ends *e, uint32_t lane)
{
	const struct fal_ran none = { .cancelled = true };
	return finish(e, lane, &none);
}

/* How many, from begun task i on, are one round: those that follow each other in one
 * contribution; else one alone. */
static uint32_t
together(const struct fal_group *g, size_t i)
{
	const struct fal_run *first = &g->begun[i].run;
	uint32_t n = 1;
	for (; first->seq != 0 && i + n < g->beguns; n++) {
		const struct begun *b = &g->begun[i + n];
		if (b->unwanted || b->run.eval || b->run.round != first->round ||
		    b->run.seq != first->seq || b->run.task != first->task + n)
			break;
	}
	return n;
}

static int
bring(struct fal_group *g, const struct fal_group_ends *e, size_t i)
{
	const struct fal_run is = g->begun[i].run;
	const uint32_t n = together(g, i);
	const struct name *on = name_of(g, is.version);
	if (on == NULL)
		return FAL_EINVAL;
	const struct fal_bring what = {
		.clock = is.clock, .version = on->down, .first = is.task, .count = n
	};
	struct brought r = {
		.up = is.round, .seq = is.seq, .first = is.task, .count = n
	};
	if (FAL_GROW(g->round, g->round_cap, g->rounds + 1) < 0)
		return FAL_ENOMEM;
	r.task = fal_calloc(n, sizeof(*r.task));
	if (r.task == NULL)
		return FAL_ENOMEM;
	for (uint32_t t = 0; t < n; t++)
		r.task[t].lane = g->begun[i + t].lane;
	drop_begun(g, i, n);
	/* Nothing of it can be made before this returns. */
	int err = fal_coord_bring(e->coord, e->s, &what, &r.round);
	g->round[g->rounds++] = r;
	return err;
}

/* Begun task i: 1: it went on, so that another one is there; 0: it waits. */
static int
go_on(struct fal_group *g, const struct fal_group_ends *e, size_t i)
{
	struct begun *b = &g->begun[i];
	const struct fal_ran ran = b->ran;
	const uint32_t lane = b->lane;
	int err = FAL_OK;
	if (b->unwanted || b->done) {
		const bool done = b->done && !b->unwanted;
		drop_begun(g, i, 1);
		err = done ? finish(e, lane, &ran) : cancelled(e, lane);
		return err < 0 ? err : 1;
	}
	if (!b->run.eval) {
		err = bring(g, e, i);
		return err < 0 ? err : 1;
	}
	if (b->asked)
		return 0;
	b->asked = true;
	const struct name *of = name_of(g, b->run.version);
	err = of != NULL ? fal_coord_eval(e->coord, e->s, of->down, b->run.task)
			 : FAL_EINVAL;
	return err < 0 ? err : 1;
}

/* Nobody above wants round i any more. */
static int
let_go(struct fal_group *g, const struct fal_group_ends *e, size_t i)
{
	const struct brought r = g->round[i];
	int err = FAL_OK;
	g->round[i].task = NULL;
	g->round[i].sum = NULL;
	drop_round(g, i);
	for (uint32_t t = 0; t < r.count && err == FAL_OK; t++)
		if (!r.task[t].told)
			err = cancelled(e, r.task[t].lane);
	if (err == FAL_OK && !r.given)
		err = fal_coord_unwanted(e->coord, e->s, r.round);
	free(r.task);
	fal_sum_free(r.sum);
	return err;
}

/* Claims of what is claimed for already, as they come. */
static int
report(struct fal_group *g, const struct fal_group_ends *e, size_t i, bool *any)
{
	const uint64_t round = g->round[i].round;
	int err = FAL_OK;
	for (uint32_t t = 0; err == FAL_OK; t++) {
		const struct brought *r = round_of(g, round);
		if (r == NULL || t == r->count)
			break;
		struct task *is = &r->task[t];
		if (!is->made || is->told || r->unwanted)
			continue;
		is->told = *any = true;
		const struct fal_ran ran = is->ran;
		err = finish(e, is->lane, &ran);
	}
	return err;
}

/* The sum of round i goes up, if all tasks of its contribution are in it and told of:
 * else nothing comes of that, which the level above has to hear. */
static int
give(struct fal_group *g, const struct fal_group_ends *e, size_t i)
{
	const struct brought r = g->round[i];
	struct task *lost = NULL;
	bool all = true;
	int err = FAL_OK;
	g->round[i].sum = NULL;
	g->round[i].task = NULL;
	drop_round(g, i);
	for (struct task *t = r.task; t < r.task + r.count; t++) {
		/* Who had made it may have pushed it, and gone without a word of it. */
		if (!t->made)
			t->ran = (struct fal_ran){ .nonfinite = true };
		all &= !t->ran.nonfinite;
		lost = t->lost ? t : lost;
	}
	if (r.seq == 0) {
		r.task->ran.sum = r.sum;
		err = finish(e, r.task->lane, &r.task->ran);
	} else if (all) {
		err = fal_agent_give(e->agent, e->ns, r.up, r.seq, r.sum, r.count);
	} else {
		fal_sum_free(r.sum);
		for (struct task *t = r.task; t < r.task + r.count && err == FAL_OK; t++)
			if (!t->told)
				err = finish(e, t->lane, &t->ran);
		if (err == FAL_OK && lost != NULL)
			err = fal_agent_lost(e->agent, e->ns, r.up, r.seq,
					     r.first + (uint32_t)(lost - r.task));
	}
	free(r.task);
	return err;
}

/* One pass over all that there is; *any: something was done, so another one is due. */
static int
pass(struct fal_group *g, const struct fal_group_ends *e, bool *any)
{
	int err = FAL_OK;
	for (size_t i = 0; i < g->beguns && err >= 0;) {
		err = go_on(g, e, i);
		if (err == 0)
			i++;
		*any |= err > 0;
	}
	err = err > 0 ? FAL_OK : err;
	for (size_t i = 0; i < g->rounds && err == FAL_OK;) {
		const size_t n = g->rounds;
		if (g->round[i].unwanted)
			err = let_go(g, e, i);
		else if (g->round[i].seq != 0)
			err = report(g, e, i, any);
		if (g->rounds == n && i < g->rounds && g->round[i].given &&
		    !g->round[i].unwanted && err == FAL_OK)
			err = give(g, e, i);
		*any |= g->rounds < n;
		i += g->rounds == n;
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
	while (g->rounds > 0)
		drop_round(g, 0);
	free(g->round);
	free(g->begun);
	free(g->name);
	free(g);
}
