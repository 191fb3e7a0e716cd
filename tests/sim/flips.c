/* Machines that get bits wrong, and what must come of it where two keys run a task. */
#include "flips.h"

#include "reference.h"
#include "sched/traits.h"

#include <assert.h>
#include <stdio.h>
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

/* Where the question is how soon it is found: is it one of its own? */
static bool
did(struct cluster *c, const struct asked *what)
{
	if (is_in(c->asks.v, c->asks.n, what))
		return false;
	int err = FAL_GROW(c->did.v, c->did.cap, c->did.n + 1);
	assert(err == FAL_OK);
	c->did.v[c->did.n++] = *what;
	return true;
}

bool
flips_strike(struct worker *w, const struct fal_run *run)
{
	const uint32_t machine = plan_process(w->c->p, w->index);
	const struct asked what = { machine, run->clock, run->task };
	int64_t v[FAL_BLOCK], most = 0;
	struct toy_flip flip;
	if (w->c->p->enough > 0 && machine == 0 && !did(w->c, &what))
		return false;
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
flips_is_asked(const struct worker *w, const struct fal_run *run)
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

static bool
is_here(const struct cluster *c, const struct worker *w)
{
	const bool left = w->leaving || (w->m->lie == LIE_LEAVE && w->lied);
	return w->ready && !w->over && !left && w->session == c->incarnation;
}

/* Whoever has the machine's key must have no session any more, if another key is here. */
static void
must_go(struct cluster *c, uint32_t machine)
{
	const uint32_t owner = plan_owner(c->p, machine);
	for (uint32_t i = 0; i < c->p->machines; i++)
		if (is_here(c, &c->worker[i]) && plan_owner(c->p, i) != owner)
			c->must_go = owner + 1;
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
flips_unlike(void *arg, const struct fal_coord_unlike *is)
{
	struct cluster *c = arg;
	uint32_t machine[3] = { 0 }, wrong = 0;
	const char *why = NULL;
	for (uint32_t i = 0; i < is->names; i++) {
		machine[i] = machine_of(is->name[i]);
		wrong += gets_wrong(c->p, machine[i], is->clock, is->task);
		for (uint32_t k = 0; k < i; k++)
			if (!comparable(c->p, machine[i], machine[k]))
				why = "words that cannot be compared";
	}
	const bool decided = is->wrong < is->names;
	const struct asked second = { machine[1], is->clock, is->task };
	c->seen[decided ? SEEN_DECIDED : SEEN_UNDECIDED]++;
	c->seen[SEEN_TWO_KEYS] += is->names == 2;
	c->seen[SEEN_CLONE_UNLIKE] += !is_in(c->asks.v, c->asks.n, &second);
	if (wrong == 0)
		why = "words differ, and all are right";
	else if (decided && !gets_wrong(c->p, machine[is->wrong], is->clock, is->task))
		why = "who is right is said to be wrong";
	else if (!decided && is->names == 3 && wrong == 1)
		why = "a third key does not decide";
	if (c->failure == NULL)
		c->failure = why;
	if (decided)
		must_go(c, machine[is->wrong]);
	for (uint32_t i = 0; i < c->did.n && decided && c->found == 0; i++)
		if (c->did.v[i].clock == is->clock && c->did.v[i].task == is->task)
			c->found = i + 1;
}

void
flips_followed(struct cluster *c)
{
	for (uint32_t i = 0; i < c->p->machines && c->must_go > 0; i++)
		if (is_here(c, &c->worker[i]) && plan_owner(c->p, i) == c->must_go - 1 &&
		    c->failure == NULL)
			c->failure = "who is wrong stays";
	c->must_go = 0;
}

/* ---- what the trace says ----------------------------------------------------------- */

struct judge {
	const struct plan *p;
	struct outcome *o;
	VEC(struct named) named; /* tasks of which words differed */
	struct person {
		uint64_t id;
		uint32_t machine;
	} person[2 * MAX_WORKERS * (MAX_RESTARTS + 1)];
	uint32_t persons;
	uint32_t late; /* machines that were suspected */
	/* Owners of words that one other key contradicted: that is said ever more seldom.
	 */
	uint32_t undecided;
};

/* What two keys said different things of; `split`: so did the third, as two of them got
 * it wrong, each in its own way. */
struct named {
	uint64_t round, task;
	bool split;
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

/* Keys of honest machines that compute the same bits as this one, `but` for these. */
static uint32_t
alike(const struct plan *p, uint32_t machine, uint32_t but)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < p->machines; i++) {
		bool first = (but >> plan_process(p, i) & 1) == 0 &&
			     plan_owner(p, i) != plan_owner(p, machine) &&
			     p->machine[i].print == p->machine[machine].print &&
			     p->machine[i].print != IMPURE && !plan_flips(p, i);
		for (uint32_t k = 0; k < i; k++)
			first = first && plan_owner(p, k) != plan_owner(p, i);
		n += first;
	}
	return n;
}

static const struct named *
was_named(const struct judge *j, uint64_t round, uint64_t task)
{
	for (size_t i = 0; i < j->named.n; i++)
		if (j->named.v[i].round == round && j->named.v[i].task == task)
			return &j->named.v[i];
	return NULL;
}

static bool
in(struct fal_trace_line *l, const json_t *o, enum fal_field key, uint64_t task)
{
	const size_t n = fal_trace_has(o, key) ? fal_trace_get_len(l, o, key) : 0;
	uint64_t row[2];
	for (size_t i = 0; i < n && l->err == 0; i++) {
		fal_trace_get_row(l, o, key, i, 2, row);
		if (task >= row[0] && task - row[0] < row[1])
			return true;
	}
	return false;
}

/* Must whoever gets something wrong be found, if others of its numerics are at work?
 * Where rounds are each worker's own they have other versions. */
static bool
is_sure(const struct judge *j)
{
	struct fal_rule rule;
	fal_rule_parse(j->p->scheme, &rule, NULL);
	return j->p->calm && j->p->verify >= 1 && fal_rule_traits(&rule).shared;
}

/* The machine got the task wrong, and it counts, or, `part`, some blocks do. */
static void
escaped(struct judge *j, struct fal_trace_line *l, uint32_t machine, uint64_t task,
	bool part)
{
	const uint64_t round = fal_trace_get_u64(l, l->o, FAL_F_ROUND, FAL_TRACE_NUM_MAX);
	const uint32_t others = alike(j->p, machine, 0);
	const uint32_t sure = is_sure(j) ? alike(j->p, machine, j->late) : 0;
	j->o->escaped++;
	j->o->seen[SEEN_ESCAPED]++;
	for (uint32_t i = 0; i < j->p->machines && others == 0; i++)
		if (plan_owner(j->p, i) != plan_owner(j->p, machine)) {
			j->o->seen[SEEN_OTHER_PRINT]++;
			break;
		}
	if (!part && in(l, l->o, FAL_F_VERIFIED, task))
		fal_trace_fail(l, FAL_EINVAL, "w%u got task %llu wrong: verified",
			       machine, (unsigned long long)task);
	const struct named *named = was_named(j, round, task);
	if (sure >= 2 && (named == NULL || !named->split))
		fal_trace_fail(l, FAL_EINVAL, "w%u got task %llu wrong: it counts",
			       machine, (unsigned long long)task);
	const bool said = (j->undecided >> plan_owner(j->p, machine) & 1) != 0;
	if (sure == 1 && named == NULL && !said)
		fal_trace_fail(l, FAL_EINVAL, "w%u got task %llu wrong: nobody says so",
			       machine, (unsigned long long)task);
}

static void
take_ledger(struct judge *j, struct fal_trace_line *l)
{
	const json_t *all = fal_trace_at(l->o, FAL_F_CONTRIB), *c;
	const uint64_t clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
	const uint64_t first = fal_trace_get_u64(l, l->o, FAL_F_FIRST, FAL_TRACE_NUM_MAX);
	const uint64_t tasks = fal_trace_get_u64(l, l->o, FAL_F_TASKS, FAL_TRACE_NUM_MAX);
	struct toy_flip flip;
	size_t i;
	if (strcmp(fal_trace_get_str(l, l->o, FAL_F_END), "applied") != 0)
		return;
	json_array_foreach(all, i, c)
	{
		uint64_t id[2];
		fal_trace_get_tuple(l, c, FAL_F_C, 2, id);
		const bool counts =
			fal_trace_get_u64(l, c, FAL_F_BLOCKS, FAL_TRACE_NUM_MAX) > 0;
		if (l->err != 0)
			return;
		if (!counts)
			continue;
		const uint32_t machine = person(j, id[0]);
		for (uint64_t k = first; k < first + tasks && l->err == 0; k++)
			if (toy_flips(&j->p->toy, machine, clock, (uint32_t)k, &flip) &&
			    in(l, c, FAL_F_TASK_LIST, k))
				escaped(j, l, machine, k, fal_trace_has(c, FAL_F_FENCED));
	}
}

static void
take_verify(struct judge *j, struct fal_trace_line *l)
{
	const json_t *words = fal_trace_at(l->o, FAL_F_WORDS), *word;
	const uint64_t clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
	struct named is = {
		.round = fal_trace_get_u64(l, l->o, FAL_F_ROUND, FAL_TRACE_NUM_MAX),
		.task = fal_trace_get_u64(l, l->o, FAL_F_TASK, FAL_TRACE_NUM_MAX),
	};
	const char *verdict = fal_trace_get_str(l, l->o, FAL_F_VERDICT);
	uint32_t wrong = 0;
	size_t i;
	json_array_foreach(words, i, word)
	{
		const char *name = fal_trace_get_str(l, word, FAL_F_WORKER);
		wrong += gets_wrong(j->p, machine_of(name), clock, (uint32_t)is.task);
	}
	if (strcmp(verdict, "undecided") == 0 && json_array_size(words) == 2)
		j->undecided |= 1U
				<< plan_owner(j->p, machine_of(fal_trace_get_str(
							    l, json_array_get(words, 0),
							    FAL_F_WORKER)));
	is.split = strcmp(verdict, "undecided") == 0 && wrong > 1;
	int err = FAL_GROW(j->named.v, j->named.cap, j->named.n + 1);
	assert(err == FAL_OK);
	j->named.v[j->named.n++] = is;
}

static int
take(void *arg, struct fal_trace_line *l)
{
	struct judge *j = arg;
	const uint64_t id = fal_trace_has(l->o, FAL_F_ID)
				    ? fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX)
				    : 0;
	if (strcmp(l->ev, "join") == 0) {
		assert(j->persons < sizeof(j->person) / sizeof(j->person[0]));
		j->person[j->persons++] = (struct person){
			id, machine_of(fal_trace_get_str(l, l->o, FAL_F_WORKER))
		};
	} else if (strcmp(l->ev, "suspect") == 0) {
		j->late |= 1u << person(j, id);
	} else if (strcmp(l->ev, "charge") == 0) {
		const uint32_t machine = person(j, id);
		if (!plan_flips(j->p, machine) && !j->p->machine[machine].flaky &&
		    !machine_lies(&j->p->machine[machine]))
			fal_trace_fail(l, FAL_EINVAL, "w%u is honest", machine);
	} else if (strcmp(l->ev, "verify") == 0) {
		take_verify(j, l);
	} else if (strcmp(l->ev, "ledger") == 0) {
		take_ledger(j, l);
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
	free(j.named.v);
	return err < 0 ? "a flip:" : NULL;
}
