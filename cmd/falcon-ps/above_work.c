/* What is granted above is brought here as rounds, and what members make of it goes back:
 * claims, sums, evaluations.
 *
 * Callbacks of the agent and of the coordinator only take notes, as neither may be called
 * back; above_work carries them out. */
#include "above_priv.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- notes ------------------------------------------------------------------------- */

void
above_run(void *arg, uint32_t lane, const struct fal_run *run)
{
	struct above *a = arg;
	if (FAL_GROW(a->begun, a->begun_cap, a->beguns + 1) < 0) {
		a->err = FAL_ENOMEM;
		return;
	}
	a->begun[a->beguns++] = (struct above_begun){ .run = *run, .lane = lane };
}

/* The round and task of a lane that has not ended; NULL: it was not brought. */
static struct above_task *
task_of(const struct above *a, uint32_t lane, struct above_round **of)
{
	for (size_t i = 0; i < a->rounds; i++)
		for (uint32_t t = 0; t < a->round[i].count; t++)
			if (a->round[i].task[t].lane == lane &&
			    !a->round[i].task[t].told) {
				*of = &a->round[i];
				return &a->round[i].task[t];
			}
	return NULL;
}

/* All that is claimed for one contribution goes together: so does its round. */
void
above_cancel(void *arg, uint32_t lane)
{
	struct above *a = arg;
	struct above_round *r;
	for (size_t i = 0; i < a->beguns; i++)
		if (a->begun[i].lane == lane) {
			a->begun[i].unwanted = true;
			return;
		}
	if (task_of(a, lane, &r) != NULL)
		r->unwanted = true;
}

uint64_t
above_steps(void *arg)
{
	const struct above *a = arg;
	return a->steps;
}

/* A version goes on to the members at once; one that is older than theirs only if it is
 * to be evaluated. */
void
above_whole(void *arg, uint64_t version, bool keep, const float *params,
	    const int8_t *exps)
{
	struct above *a = arg;
	struct ps_server *s = a->server;
	int err = FAL_OK;
	a->params = params;
	a->exps = exps;
	if (fal_coord_version(s->coord) <= version)
		err = fal_coord_newer(s->coord, ps_now(), version, version);
	if (err == FAL_OK && keep)
		err = fal_coord_eval_of(s->coord, ps_now(), version);
	a->params = NULL;
	a->exps = NULL;
	a->err = a->err < 0 ? a->err : err;
}

static struct above_round *
round_of(const struct above *a, uint64_t round)
{
	for (size_t i = 0; i < a->rounds; i++)
		if (a->round[i].round == round)
			return &a->round[i];
	return NULL;
}

void
above_claimed(void *arg, const struct fal_coord_claimed *is)
{
	struct above *a = ((struct ps_server *)arg)->above;
	const struct above_round *r = round_of(a, is->round);
	a->steps++;
	if (r == NULL || is->task - r->first >= r->count)
		return;
	struct above_task *t = &r->task[is->task - r->first];
	t->made = true;
	t->ran.loss = is->loss;
	t->ran.task_ns = is->task_ns;
	memcpy(t->ran.hash, is->hash, sizeof(t->ran.hash));
}

void
above_given(void *arg, uint64_t round)
{
	struct above *a = ((struct ps_server *)arg)->above;
	struct above_round *r = round_of(a, round);
	if (r != NULL)
		r->given = true;
}

void
above_evaluated(void *arg, const struct fal_coord_evaluated *is)
{
	struct above *a = ((struct ps_server *)arg)->above;
	a->steps++;
	for (size_t i = 0; i < a->beguns; i++) {
		struct above_begun *b = &a->begun[i];
		if (!b->run.eval || b->run.version != is->version ||
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
above_order(struct above *a, struct fal_shard_order *o)
{
	o->params = a->params;
	o->exps = a->exps;
	if (o->kind != FAL_ORDER_END || o->end != FAL_END_GIVE)
		return FAL_OK;
	struct above_round *r = round_of(a, o->round);
	if (r == NULL)
		return FAL_ESTATE;
	if (r->sum == NULL)
		r->sum = fal_sum_new(a->server->opt->job->model->params);
	o->into = r->sum;
	return r->sum != NULL ? FAL_OK : FAL_ENOMEM;
}

/* ---- carrying them out ------------------------------------------------------------- */

static void
drop_round(struct above *a, size_t i)
{
	free(a->round[i].task);
	fal_sum_free(a->round[i].sum);
	memmove(a->round + i, a->round + i + 1, (--a->rounds - i) * sizeof(*a->round));
}

static void
drop_begun(struct above *a, size_t i, size_t n)
{
	memmove(a->begun + i, a->begun + i + n, (a->beguns - i - n) * sizeof(*a->begun));
	a->beguns -= n;
}

static int
finish(struct above *a, uint32_t lane, const struct fal_ran *ran)
{
	return fal_agent_finished(a->agent, uv_hrtime(), lane, ran);
}

static int
cancelled(struct above *a, uint32_t lane)
{
	const struct fal_ran none = { .cancelled = true };
	return finish(a, lane, &none);
}

/* How many, from begun task i on, are one round: those that follow each other in one
 * contribution; else one alone. */
static uint32_t
together(const struct above *a, size_t i)
{
	const struct fal_run *first = &a->begun[i].run;
	uint32_t n = 1;
	for (; first->seq != 0 && i + n < a->beguns; n++) {
		const struct above_begun *b = &a->begun[i + n];
		if (b->unwanted || b->run.eval || b->run.round != first->round ||
		    b->run.seq != first->seq || b->run.task != first->task + n)
			break;
	}
	return n;
}

static int
bring(struct above *a, size_t i)
{
	const struct fal_run is = a->begun[i].run;
	const uint32_t n = together(a, i);
	const struct fal_bring what = {
		.clock = is.clock, .version = is.version, .first = is.task, .count = n
	};
	struct above_round r = {
		.up = is.round, .seq = is.seq, .first = is.task, .count = n
	};
	if (FAL_GROW(a->round, a->round_cap, a->rounds + 1) < 0)
		return FAL_ENOMEM;
	r.task = fal_calloc(n, sizeof(*r.task));
	if (r.task == NULL)
		return FAL_ENOMEM;
	for (uint32_t t = 0; t < n; t++)
		r.task[t].lane = a->begun[i + t].lane;
	drop_begun(a, i, n);
	/* Nothing of it can be made before this returns. */
	int err = fal_coord_bring(a->server->coord, ps_now(), &what, &r.round);
	a->round[a->rounds++] = r;
	return err;
}

/* Begun task i: 1: it went on, so that another one is there; 0: it waits. */
static int
go_on(struct above *a, size_t i)
{
	struct above_begun *b = &a->begun[i];
	const struct fal_ran ran = b->ran;
	const uint32_t lane = b->lane;
	int err = FAL_OK;
	if (b->unwanted || b->done) {
		const bool done = b->done && !b->unwanted;
		drop_begun(a, i, 1);
		err = done ? finish(a, lane, &ran) : cancelled(a, lane);
		return err < 0 ? err : 1;
	}
	if (!b->run.eval) {
		err = bring(a, i);
		return err < 0 ? err : 1;
	}
	if (b->asked)
		return 0;
	b->asked = true;
	err = fal_coord_eval(a->server->coord, ps_now(), b->run.version, b->run.task);
	return err < 0 ? err : 1;
}

/* Nobody above wants round i any more. */
static int
let_go(struct above *a, size_t i)
{
	const struct above_round r = a->round[i];
	int err = FAL_OK;
	a->round[i].task = NULL;
	a->round[i].sum = NULL;
	drop_round(a, i);
	for (uint32_t t = 0; t < r.count && err == FAL_OK; t++)
		if (!r.task[t].told)
			err = cancelled(a, r.task[t].lane);
	if (err == FAL_OK && !r.given)
		err = fal_coord_unwanted(a->server->coord, ps_now(), r.round);
	free(r.task);
	fal_sum_free(r.sum);
	return err;
}

/* Claims of what is claimed for already, as they come. */
static int
report(struct above *a, size_t i, bool *any)
{
	const uint64_t round = a->round[i].round;
	int err = FAL_OK;
	for (uint32_t t = 0; err == FAL_OK; t++) {
		const struct above_round *r = round_of(a, round);
		if (r == NULL || t == r->count)
			break;
		struct above_task *is = &r->task[t];
		if (!is->made || is->told || r->unwanted)
			continue;
		is->told = *any = true;
		const struct fal_ran ran = is->ran;
		err = finish(a, is->lane, &ran);
	}
	return err;
}

/* The sum of round i goes up. */
static int
give(struct above *a, size_t i)
{
	const struct above_round r = a->round[i];
	struct fal_ran ran = r.task[0].ran;
	const uint32_t lane = r.task[0].lane;
	const bool told = r.task[0].told;
	a->round[i].sum = NULL;
	drop_round(a, i);
	if (r.seq != 0)
		return fal_agent_give(a->agent, uv_hrtime(), r.up, r.seq, r.sum, r.count);
	ran.sum = r.sum;
	if (!told)
		return finish(a, lane, &ran);
	fal_sum_free(r.sum);
	return FAL_OK;
}

/* One pass over all that there is; *any: something was done, so another one is due. */
static int
pass(struct above *a, bool *any)
{
	int err = FAL_OK;
	for (size_t i = 0; i < a->beguns && err >= 0;) {
		err = go_on(a, i);
		if (err == 0)
			i++;
		*any |= err > 0;
	}
	err = err > 0 ? FAL_OK : err;
	for (size_t i = 0; i < a->rounds && err == FAL_OK;) {
		const size_t n = a->rounds;
		if (a->round[i].unwanted)
			err = let_go(a, i);
		else if (a->round[i].seq != 0)
			err = report(a, i, any);
		if (a->rounds == n && i < a->rounds && a->round[i].given &&
		    !a->round[i].unwanted && err == FAL_OK)
			err = give(a, i);
		*any |= a->rounds < n;
		i += a->rounds == n;
	}
	return err;
}

int
above_work(struct above *a)
{
	bool any = true;
	int err = a->err;
	while (any && err == FAL_OK) {
		any = false;
		err = pass(a, &any);
		err = err == FAL_OK ? a->err : err;
	}
	return err;
}

void
above_forget(struct above *a)
{
	while (a->rounds > 0)
		drop_round(a, 0);
	free(a->round);
	free(a->begun);
	a->round = NULL;
	a->begun = NULL;
	a->rounds = a->round_cap = a->beguns = a->begun_cap = 0;
}
