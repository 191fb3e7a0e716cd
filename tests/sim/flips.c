/* Machines that get bits wrong, and what is told of it where two keys run a task. */
#include "flips.h"
#include "../told.h"

#include "reference.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool
plan_flips(const struct plan *p, uint32_t machine)
{
	for (uint32_t i = 0; i < p->machines; i++)
		if (plan_owner(p, i) == plan_owner(p, machine) &&
		    p->toy.flips[plan_process(p, i)] > 0)
			return true;
	return false;
}

static bool
is_in(const struct asked *v, size_t n, const struct asked *what)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].machine == what->machine && v[i].clock == what->clock &&
		    v[i].task == what->task)
			return true;
	return false;
}

bool
flips_strike(struct worker *w, const struct fal_task_run *run)
{
	const uint32_t machine = plan_process(w->c->p, w->index);
	int64_t v[FAL_BLOCK], most = 0;
	struct toy_flip flip;
	if (!toy_flips(&w->c->p->toy, machine, run->clock, run->task, &flip))
		return false;
	const uint32_t b = (uint32_t)(flip.at / FAL_BLOCK);
	const uint32_t len = fal_block_len(w->c->p->toy.n, b);
	fal_sum_load(run->sum, b, v);
	for (uint32_t i = 0; i < len; i++)
		most = llabs(v[i]) > most ? llabs(v[i]) : most;
	int64_t *is = &v[flip.at % FAL_BLOCK];
	*is = toy_flipped(*is, flip.bit, most);
	int err = fal_sum_store(run->sum, b, v, fal_sum_bound(run->sum, b),
				fal_sum_needed(run->sum, b));
	assert(err == FAL_OK);
	w->c->flips++;
	return true;
}

/* ---- while it happens -------------------------------------------------------------- */

void
flips_asked(struct cluster *c, uint32_t peer, const struct fal_msg *grant)
{
	for (uint32_t i = 0; i < grant->grant.count; i++) {
		int err = FAL_GROW(c->asks.v, c->asks.cap, c->asks.n + 1);
		assert(err == FAL_OK);
		c->asks.v[c->asks.n++] =
			(struct asked){ plan_process(c->p, peer - 1), grant->grant.clock,
					grant->grant.first + i };
	}
}

bool
flips_is_asked(const struct worker *w, const struct fal_task_run *run)
{
	const struct cluster *c = w->c;
	const struct asked is = { plan_process(c->p, w->index), run->clock, run->task };
	return is_in(c->asks.v, c->asks.n, &is) ||
	       (c->up != NULL && flips_is_asked(c->up, run));
}

/* Machine number n calls itself wn. */
static uint32_t
machine_of(const char *name)
{
	return (uint32_t)atoi(name + 1);
}

static bool
gets_wrong(const struct plan *p, uint32_t machine, uint64_t clock, uint32_t task)
{
	struct toy_flip flip;
	return p->machine[machine].flaky || machine_lies(&p->machine[machine]) ||
	       toy_flips(&p->toy, machine, clock, task, &flip);
}

/* May what the two say be compared? */
static bool
comparable(const struct plan *p, uint32_t a, uint32_t b)
{
	return plan_owner(p, a) != plan_owner(p, b) &&
	       p->machine[a].print == p->machine[b].print &&
	       p->machine[a].print != IMPURE;
}

void
flips_unlike(void *arg, const struct fal_coord_mismatch *is)
{
	struct cluster *c = arg;
	const uint32_t one = machine_of(is->name[0]), two = machine_of(is->name[1]);
	if (c->failure == NULL && !comparable(c->p, one, two))
		c->failure = "results that cannot be compared";
	if (c->failure == NULL && !gets_wrong(c->p, one, is->clock, is->task) &&
	    !gets_wrong(c->p, two, is->clock, is->task))
		c->failure = "results are unlike, and both are right";
}

/* ---- what the trace says ----------------------------------------------------------- */

struct judge {
	const struct plan *p;
	struct outcome *o;
	uint64_t *unlike;           /* rounds of unlike results that were told, */
	size_t unlikes, unlike_cap; /* … so many, in this incarnation */
	struct person {
		uint64_t id;
		uint32_t machine;
	} person[2 * MAX_WORKERS * (MAX_RESTARTS + 1)];
	uint32_t persons;
};

static uint32_t
person(const struct judge *j, uint64_t id)
{
	uint32_t i = j->persons;
	while (i-- > 0 && j->person[i].id != id)
		;
	assert(i < j->persons);
	return j->person[i].machine;
}

static bool
in(struct fal_trace_line *l, const json_t *o, const char *key, uint64_t task)
{
	const size_t n = told_has(o, key) ? told_len(l, o, key) : 0;
	uint64_t row[2];
	for (size_t i = 0; i < n && l->err == 0; i++) {
		told_row(l, o, key, i, 2, row);
		if (task >= row[0] && task - row[0] < row[1])
			return true;
	}
	return false;
}

/* Wrong tasks that are in the model. */
static void
take_contribs(struct judge *j, struct fal_trace_line *l)
{
	const json_t *all = json_object_get(l->o, "contrib"), *c;
	const uint64_t clock = told_u64(l, l->o, "clock");
	const uint64_t first = told_u64(l, l->o, "first");
	const uint64_t tasks = told_u64(l, l->o, "tasks");
	struct toy_flip flip;
	size_t i;
	json_array_foreach(all, i, c)
	{
		uint64_t id[2];
		told_tuple(l, c, "c", 2, id);
		const bool counts = told_u64(l, c, "blocks") > 0;
		if (l->err != 0)
			return;
		if (!counts)
			continue;
		const uint32_t machine = person(j, id[0]);
		for (uint64_t k = first; k < first + tasks && l->err == 0; k++) {
			if (!toy_flips(&j->p->toy, machine, clock, (uint32_t)k, &flip) ||
			    !in(l, c, "tasks", k))
				continue;
			j->o->escaped++;
			j->o->seen[SEEN_ESCAPED]++;
		}
	}
}

/* Unlike results of a round that were told.  Those of a round that the job ends without
 * are told alone. */
static uint64_t
unlike_of(const struct judge *j, uint64_t round)
{
	uint64_t n = 0;
	for (size_t i = 0; i < j->unlikes; i++)
		n += j->unlike[i] == round;
	return n;
}

static int
take(void *arg, struct fal_trace_line *l)
{
	struct judge *j = arg;
	const uint64_t id = told_has(l->o, "id") ? told_u64(l, l->o, "id") : 0;
	if (strcmp(l->ev, "join") == 0) {
		assert(j->persons < sizeof(j->person) / sizeof(j->person[0]));
		j->person[j->persons++] =
			(struct person){ id, machine_of(told_str(l, l->o, "worker")) };
	} else if (strcmp(l->ev, "charge") == 0) {
		const uint32_t machine = person(j, id);
		if (!j->p->machine[machine].flaky &&
		    !machine_lies(&j->p->machine[machine]))
			fal_trace_fail(l, FAL_EINVAL, "w%u is honest", machine);
	} else if (strcmp(l->ev, "restart") == 0) {
		j->unlikes = 0;
	} else if (strcmp(l->ev, "verify") == 0) {
		int err = FAL_GROW(j->unlike, j->unlike_cap, j->unlikes + 1);
		assert(err == FAL_OK);
		j->unlike[j->unlikes++] = told_u64(l, l->o, "round");
	} else if (strcmp(l->ev, "ledger") == 0) {
		uint64_t verified[3] = { 0 };
		if (told_has(l->o, "verified"))
			told_tuple(l, l->o, "verified", 3, verified);
		if (l->err == 0 &&
		    unlike_of(j, told_u64(l, l->o, "round")) != verified[2])
			fal_trace_fail(l, FAL_EINVAL,
				       "unlike results: another number than was told");
		if (strcmp(told_str(l, l->o, "end"), "applied") == 0)
			take_contribs(j, l);
	}
	return l->err;
}

const char *
flips_judge(const struct plan *p, struct outcome *o, struct fal_diag *diag)
{
	struct judge j = { .p = p, .o = o };
	struct fal_trace_reader *r = fal_trace_reader_new(take, &j);
	assert(r != NULL);
	int err = reference_read(r, o->trace, o->trace_n, diag);
	fal_trace_reader_free(r);
	free(j.unlike);
	return err < 0 ? "a flip:" : NULL;
}
