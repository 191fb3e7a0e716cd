/* A trace is replayed. */
#include "reference.h"

#include "../told.h"
#include "base/mem.h"
#include "base/parse.h"
#include "plain.h"
#include "sched/policy.h"
#include "trace/chain.h"
#include "trace/reader.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VEC(type)              \
	struct {               \
		type *v;       \
		size_t n, cap; \
	}

/* A round, and the version that it is in. */
struct applied {
	uint64_t round, version;
};

/* Of a worker with local steps: its weights, and what its last two rounds changed. */
struct own {
	uint64_t id;
	bool lost; /* a round of it was abandoned: how far it went is not known */
	struct plain is;
	float *by[2]; /* the newest first */
	uint64_t round[2];
	bool there[2];
	VEC(struct applied) applied; /* its rounds */
};

/* Of a group: its line. */
struct line {
	uint64_t group;
	struct plain is;
	float *taken;
};

/* DynSGD: the mean of the changes of a slot; or the momentum of a worker or a group. */
struct slot {
	uint64_t slot;
	float *mean;
};

/* Which line a round stepped, or which worker or group has brought its gradients. */
struct stepped {
	uint64_t round, group;
};

/* Tasks of a clock that are over. */
struct over {
	uint64_t clock, tasks;
};

/* Which machine a worker is. */
struct person {
	uint64_t id;
	uint32_t machine;
};

#define ADD(vec, ...)                                                  \
	do {                                                           \
		int grown = FAL_GROW((vec).v, (vec).cap, (vec).n + 1); \
		assert(grown == 0);                                    \
		(vec).v[(vec).n++] = __VA_ARGS__;                      \
	} while (0)

struct reference {
	const struct toy *t;
	uint32_t blocks;
	VEC(struct plain) versions; /* all; the last one is the newest */
	struct plain_sum sum;       /* gradients for the next one */
	bool graded, moved;
	VEC(struct person) people;
	float *delta; /* changes of weights for the next one */
	VEC(struct own) owns;
	VEC(struct line) lines;
	VEC(struct slot) slots;
	float *velocity; /* of outer steps; NULL: there was none */
	VEC(struct stepped) stepped;
	VEC(struct over) overs;
	char scheme[128];
	bool alone;          /* each round of gradients is an update by itself */
	bool several;        /* shards, at last, so that what came is no first part of the
				blocks */
	const char *unknown; /* what the trace does not say */
	struct plain_sum one; /* scratch */
	float *grad, *change;
};

/* The head of a ledger line. */
struct head {
	uint64_t round, clock, first, tasks, version, owner, group, local, steps, since;
	bool delta, late; /* late: tasks from `first_late` on ran on the next version */
	uint64_t first_late;
	const char *base;
	double weight, divisor, lr;
	uint64_t rank, slot;
};

static float *
floats(size_t n)
{
	float *p = calloc(n, sizeof(*p));
	assert(p != NULL);
	return p;
}

static uint64_t
get(struct fal_trace_line *l, const json_t *o, const char *key)
{
	return told_has(o, key) ? told_u64(l, o, key) : 0;
}

static double
get_real(struct fal_trace_line *l, const char *key)
{
	return told_f64(l, l->o, key);
}

static const struct plain *
version(struct reference *r, struct fal_trace_line *l, uint64_t v)
{
	if (v < r->versions.n)
		return &r->versions.v[v];
	fal_trace_fail(l, FAL_EINVAL, "no version %llu", (unsigned long long)v);
	return &r->versions.v[0];
}

/* ---- gradients ------------------------------------------------------------------- */

/* A task's gradient on `on`, as the machine gets it, for blocks from … to-1; `lie`: of a
 * contribution that lies. */
struct part {
	const struct plain *on, *by; /* by: it has the exponents */
	uint64_t task;
	uint32_t machine; /* NOBODY: none that gets anything wrong */
	uint32_t from, to;
	enum toy_lie lie;
	unsigned bits;
};

enum { NOBODY = UINT32_MAX };

static uint32_t
machine_of(const struct reference *r, uint64_t worker)
{
	for (size_t i = 0; i < r->people.n; i++)
		if (r->people.v[i].id == worker)
			return r->people.v[i].machine;
	return NOBODY;
}

static bool
gets_wrong(const struct reference *r, const struct head *h, uint32_t machine,
	   uint64_t task, struct toy_flip *out)
{
	return machine != NOBODY &&
	       toy_flips(r->t, machine, h->clock, (uint32_t)task, out);
}

/* Does whoever lies do so in this block? */
static bool
lies_in(const struct reference *r, uint32_t block)
{
	return r->t->lies_of == 0 || block % r->t->lies_of == 0;
}

static void
add_part(struct reference *r, struct plain_sum *sum, const struct head *h,
	 const struct part *p)
{
	struct toy_flip flip;
	if (p->from >= p->to)
		return;
	toy_grad(r->t, p->on->w, h->clock, (uint32_t)p->task, r->grad);
	plain_dither(r->grad, r->t->n, p->by->e, p->bits, r->t->seed, h->clock,
		     (uint32_t)p->task);
	for (uint32_t b = p->from; b < p->to; b++) {
		const bool lies = p->lie != TOY_HONEST && lies_in(r, b);
		if (!lies || p->lie == TOY_NEEDED)
			plain_sum_add(sum, r->grad, p->by->e, b, b + 1);
		if (lies)
			plain_sum_need(sum, b, toy_need(r->t, p->by->e[b]));
	}
	if (gets_wrong(r, h, p->machine, p->task, &flip) &&
	    flip.at / PLAIN_BLOCK >= p->from && flip.at / PLAIN_BLOCK < p->to)
		plain_sum_flip(sum, r->grad, p->by->e, &flip);
}

/* The same of all blocks. */
static void
add_task(struct reference *r, struct plain_sum *sum, const struct plain *on,
	 const struct head *h, uint64_t task, uint32_t machine, unsigned bits)
{
	const bool late = h->late && task >= h->first_late;
	const struct part p = { late ? on + 1 : on, on,         task, machine, 0,
				r->blocks,          TOY_HONEST, bits };
	add_part(r, sum, h, &p);
}

/* The version on which the worker computed the task: as it was granted last. */
static uint64_t
granted_on(struct reference *r, struct fal_trace_line *l, const struct head *h,
	   uint64_t worker, uint64_t task)
{
	const size_t n = told_has(l->o, "on") ? told_len(l, l->o, "on") : 0;
	uint64_t row[4], on = h->version;
	bool named = false;
	for (size_t i = 0; i < n && l->err == 0; i++) {
		told_row(l, l->o, "on", i, 4, row);
		if (row[0] != worker || task < row[1] || task - row[1] >= row[2])
			continue;
		if (named && on != row[3])
			r->unknown = "a task was granted to a worker on two versions";
		on = row[3];
		named = true;
	}
	return on;
}

static bool
holds(struct fal_trace_line *l, const json_t *contrib, uint64_t task)
{
	const size_t n = told_len(l, contrib, "tasks");
	for (size_t i = 0; i < n && l->err == 0; i++) {
		uint64_t row[2];
		told_row(l, contrib, "tasks", i, 2, row);
		if (task >= row[0] && task - row[0] < row[1])
			return true;
	}
	return false;
}

/* Tasks that a contribution has claimed. */
static uint64_t
tasks_of(struct fal_trace_line *l, const json_t *contrib)
{
	const size_t n = told_len(l, contrib, "tasks");
	uint64_t all = 0;
	for (size_t i = 0; i < n && l->err == 0; i++) {
		uint64_t row[2];
		told_row(l, contrib, "tasks", i, 2, row);
		all += row[1];
	}
	return all;
}

/* How the contribution lies: one task that does is refused. */
static enum toy_lie
lie_of_contrib(const struct reference *r, struct fal_trace_line *l, const json_t *contrib,
	       uint64_t worker)
{
	const uint32_t machine = machine_of(r, worker);
	const enum toy_lie lie = machine != NOBODY ? r->t->lies[machine] : TOY_HONEST;
	return lie == TOY_GROUP || (lie != TOY_HONEST && tasks_of(l, contrib) > 1)
		       ? lie
		       : TOY_HONEST;
}

/* A task of a round on several versions, or of contributions with values that are wrong,
 * or that lie: one that was fenced has brought its first blocks, what fills it those
 * after them. */
static void
add_apart(struct reference *r, struct fal_trace_line *l, struct plain_sum *sum,
	  const struct plain *on, const struct head *h, uint64_t task)
{
	const size_t n = told_len(l, l->o, "contrib");
	const bool mixed = told_has(l->o, "on");
	uint64_t at = 0;
	for (size_t i = 0; i < n && l->err == 0; i++) {
		const json_t *c = json_array_get(json_object_get(l->o, "contrib"), i);
		uint64_t id[2];
		if (!holds(l, c, task))
			continue;
		told_tuple(l, c, "c", 2, id);
		const uint64_t blocks = told_u64(l, c, "blocks");
		const struct plain *by =
			mixed ? version(r, l, granted_on(r, l, h, id[0], task)) : on;
		const struct part p = { h->late && task >= h->first_late ? by + 1 : by,
					by,
					task,
					machine_of(r, id[0]),
					(uint32_t)at,
					(uint32_t)(at + blocks),
					lie_of_contrib(r, l, c, id[0]),
					r->t->bits };
		add_part(r, sum, h, &p);
		at += blocks;
	}
	if (l->err == 0 && at != r->blocks)
		fal_trace_fail(l, FAL_EINVAL, "task %llu: %llu blocks were added",
			       (unsigned long long)task, (unsigned long long)at);
}

/* Does the trace say that the task was skipped? */
static bool
is_skipped(struct fal_trace_line *l, uint64_t task)
{
	const size_t n = told_has(l->o, "skipped") ? told_len(l, l->o, "skipped") : 0;
	uint64_t row[2];
	for (size_t i = 0; i < n && l->err == 0; i++) {
		told_row(l, l->o, "skipped", i, 2, row);
		if (task >= row[0] && task - row[0] < row[1])
			return true;
	}
	return false;
}

/* Is the task to be left out?  It is exactly where it has no gradient. */
static bool
leave_out(struct reference *r, struct fal_trace_line *l, const struct head *h,
	  uint64_t task)
{
	const bool skipped = is_skipped(l, task);
	if (skipped != toy_odd(r->t, h->clock, (uint32_t)task))
		fal_trace_fail(l, FAL_EINVAL, "task %llu is%s skipped",
			       (unsigned long long)task, skipped ? "" : " not");
	return skipped;
}

/* Is something wrong in a contribution that counts, or does it lie?  It is not known
 * where that is, if it was fenced in part, by several shards. */
static bool
is_wrong(struct reference *r, struct fal_trace_line *l, const struct head *h)
{
	const size_t n = told_len(l, l->o, "contrib");
	struct toy_flip flip;
	bool any = false;
	for (size_t i = 0; i < n && l->err == 0; i++) {
		const json_t *c = json_array_get(json_object_get(l->o, "contrib"), i);
		const uint64_t blocks = told_u64(l, c, "blocks");
		uint64_t id[2];
		bool here = false;
		told_tuple(l, c, "c", 2, id);
		const enum toy_lie lie = lie_of_contrib(r, l, c, id[0]);
		here = lie != TOY_HONEST && blocks > 0;
		if (here && lie == TOY_GROUP)
			r->unknown = "what a member of a group has lied about is";
		for (uint64_t k = h->first; k < h->first + h->tasks && blocks > 0; k++)
			here |= gets_wrong(r, h, machine_of(r, id[0]), k, &flip) &&
				holds(l, c, k);
		if (here && blocks < r->blocks)
			r->unknown = "what of a contribution that is wrong came is";
		any |= here;
	}
	return any;
}

/* Does a contribution of another version, or what it fills, bring a part of the blocks,
 * of which nobody says which? */
static bool
is_mixed_in_part(const struct reference *r, struct fal_trace_line *l)
{
	const size_t n = told_len(l, l->o, "contrib");
	if (!told_has(l->o, "on"))
		return false;
	for (size_t i = 0; i < n && l->err == 0; i++) {
		const json_t *c = json_array_get(json_object_get(l->o, "contrib"), i);
		const uint64_t blocks = told_u64(l, c, "blocks");
		uint64_t id[2];
		told_tuple(l, c, "c", 2, id);
		if (blocks > 0 && blocks < r->blocks && r->several)
			return true;
	}
	return false;
}

/* All tasks of a round that was computed on `on`, or on several versions. */
static void
add_round(struct reference *r, struct fal_trace_line *l, struct plain_sum *sum,
	  const struct plain *on, const struct head *h)
{
	const bool wrong = is_wrong(r, l, h), apart = wrong || told_has(l->o, "on");
	if (is_mixed_in_part(r, l))
		r->unknown = "which blocks have come of what is of another version";
	for (uint64_t i = 0; i < h->tasks && l->err == 0; i++)
		if (leave_out(r, l, h, h->first + i))
			continue;
		else if (apart)
			add_apart(r, l, sum, on, h, h->first + i);
		else
			add_task(r, sum, on, h, h->first + i, NOBODY, r->t->bits);
}

static void
take_grad(struct reference *r, struct fal_trace_line *l, const struct head *h)
{
	add_round(r, l, &r->sum, version(r, l, h->version), h);
	ADD(r->stepped, (struct stepped){ h->round, h->owner > 0 ? h->owner : h->group });
	r->graded = true;
}

/* ---- lines ----------------------------------------------------------------------- */

static struct line *
line_of(struct reference *r, uint64_t group)
{
	for (size_t i = 0; i < r->lines.n; i++)
		if (r->lines.v[i].group == group)
			return &r->lines.v[i];
	struct line line = { .group = group,
			     .is = plain_new(r->t->n, NULL),
			     .taken = floats(r->t->n) };
	memcpy(line.is.e, r->versions.v[r->versions.n - 1].e, r->blocks * sizeof(int));
	ADD(r->lines, line);
	return &r->lines.v[r->lines.n - 1];
}

static void
take_line(struct reference *r, struct fal_trace_line *l, const struct head *h)
{
	struct line *line = line_of(r, h->group);
	const struct plain *from = version(r, l, h->version);
	ADD(r->stepped, (struct stepped){ h->round, h->group });
	if (h->local == 1) {
		memcpy(line->is.w, from->w, r->t->n * sizeof(float));
		memcpy(line->taken, from->w, r->t->n * sizeof(float));
	}
	plain_sum_clear(&r->one);
	add_round(r, l, &r->one, &line->is, h);
	plain_step(&line->is, &r->t->optim, &r->one,
		   &(struct plain_by){ (float)h->lr, h->divisor, 1, 1, r->t->bits });
}

/* ---- local steps ----------------------------------------------------------------- */

static struct own *
own_of(struct reference *r, uint64_t id)
{
	for (size_t i = 0; i < r->owns.n; i++)
		if (r->owns.v[i].id == id)
			return &r->owns.v[i];
	ADD(r->owns, (struct own){ .id = id,
				   .is = plain_new(r->t->n, NULL),
				   .by = { floats(r->t->n), floats(r->t->n) } });
	return &r->owns.v[r->owns.n - 1];
}

static void
begin_steps(struct reference *r, struct fal_trace_line *l, const struct head *h,
	    struct own *own)
{
	const struct plain *from = version(r, l, h->version);
	uint64_t since = 0;
	for (size_t i = 0; i < own->applied.n; i++)
		if (own->applied.v[i].version <= h->version)
			since = own->applied.v[i].round;
	if (strcmp(h->base, "rebase") == 0 && h->since != since)
		fal_trace_fail(l, FAL_EINVAL, "since is %llu, not %llu",
			       (unsigned long long)h->since, (unsigned long long)since);
	if (strcmp(h->base, "local") == 0)
		return;
	memcpy(own->is.w, from->w, r->t->n * sizeof(float));
	memcpy(own->is.e, from->e, r->blocks * sizeof(int));
	for (int k = 1; k >= 0 && strcmp(h->base, "rebase") == 0; k--)
		for (size_t i = 0; i < r->t->n; i++)
			if (own->there[k] && own->round[k] > h->since)
				own->is.w[i] = own->is.w[i] + own->by[k][i];
}

/* The first task, of the round's, that has a sample in piece p or behind it, wholly. */
static uint64_t
piece_at(const struct reference *r, const struct head *h, uint64_t p)
{
	uint64_t all = 0, sum = 0, i = 0;
	for (uint64_t k = 0; k < h->tasks; k++)
		all += toy_task_samples(r->t, h->clock, (uint32_t)(h->first + k));
	for (; i < h->tasks; i++) {
		sum += toy_task_samples(r->t, h->clock, (uint32_t)(h->first + i));
		if (sum > p * all / h->steps)
			break;
	}
	return i;
}

/* What the round changes, in r->change. */
static void
take_steps(struct reference *r, struct fal_trace_line *l, const struct head *h)
{
	struct own *own = own_of(r, h->owner);
	const size_t n = r->t->n;
	if (own->lost)
		r->unknown = "a worker went on after a round of it was abandoned";
	begin_steps(r, l, h, own);
	memcpy(r->change, own->is.w, n * sizeof(float));
	for (uint64_t p = 0; p < h->steps; p++) {
		const uint64_t from = piece_at(r, h, p), to = piece_at(r, h, p + 1);
		uint64_t samples = 0;
		plain_sum_clear(&r->one);
		for (uint64_t i = h->first + from; i < h->first + to; i++) {
			/* Its own sums are not pushed: all their bits. */
			add_task(r, &r->one, &own->is, h, i, machine_of(r, h->owner), 0);
			samples += toy_task_samples(r->t, h->clock, (uint32_t)i);
		}
		if (from < to)
			plain_step(&own->is, &r->t->optim, &r->one,
				   &(struct plain_by){ (float)h->lr, (double)samples, 1,
						       1, 0 });
	}
	float *by = own->by[1];
	for (size_t i = 0; i < n; i++)
		by[i] = own->is.w[i] - r->change[i];
	own->by[1] = own->by[0];
	own->round[1] = own->round[0];
	own->there[1] = own->there[0];
	own->by[0] = by;
	own->round[0] = h->round;
	own->there[0] = true;
	ADD(own->applied, (struct applied){ h->round, r->versions.n });
	memcpy(r->change, by, n * sizeof(float));
	plain_travel(r->change, n);
}

static void
begin_delta(struct reference *r)
{
	if (!r->moved)
		memset(r->delta, 0, r->t->n * sizeof(float));
	r->moved = true;
}

/* The slot, which is made if it is new. */
static struct slot *
slot_of(struct reference *r, uint64_t slot)
{
	size_t at = 0;
	while (at < r->slots.n && r->slots.v[at].slot != slot)
		at++;
	if (at == r->slots.n)
		ADD(r->slots, (struct slot){ slot, floats(r->t->n) });
	return &r->slots.v[at];
}

/* Rank d of a slot: it becomes their mean. */
static void
revise(struct reference *r, const struct head *h)
{
	float *mean = slot_of(r, h->slot)->mean;
	if (h->rank == 1)
		memset(mean, 0, r->t->n * sizeof(float));
	for (size_t i = 0; i < r->t->n; i++) {
		const float by = (r->change[i] - mean[i]) / (float)h->rank;
		mean[i] = mean[i] + by;
		r->delta[i] = r->delta[i] + by;
	}
}

static float
largest(const float *v, size_t from, size_t to)
{
	float most = 0;
	for (size_t i = from; i < to; i++)
		most = fabsf(v[i]) > most ? fabsf(v[i]) : most;
	return most;
}

/* Is the block's change more than four times the largest weight of its shard, or 1?  A
 * liar's is. */
static bool
is_left_out(struct reference *r, uint32_t machine, uint32_t block)
{
	const struct plain *is = &r->versions.v[r->versions.n - 1];
	const size_t n = r->t->n, from = (size_t)block * PLAIN_BLOCK;
	const size_t to = from + PLAIN_BLOCK < n ? from + PLAIN_BLOCK : n;
	const float by = largest(r->change, from, to) / 4;
	if (machine != NOBODY && r->t->lies[machine] == TOY_NEEDED && lies_in(r, block))
		return true;
	if (by <= 1 || by <= largest(is->w, from, to))
		return false;
	if (r->several && by <= largest(is->w, 0, n))
		r->unknown = "which weights are of the same shard";
	return by > largest(is->w, 0, n);
}

/* Blocks that change by too much are left out. */
static void
leave_blocks_out(struct reference *r, struct fal_trace_line *l, const struct head *h)
{
	const uint32_t machine = machine_of(r, h->owner);
	uint64_t left_out = 0;
	for (uint32_t b = 0; b < r->blocks; b++) {
		if (!is_left_out(r, machine, b))
			continue;
		left_out++;
		for (size_t i = (size_t)b * PLAIN_BLOCK;
		     i < r->t->n && i / PLAIN_BLOCK == b; i++)
			r->change[i] = 0;
	}
	if (r->unknown == NULL && left_out != get(l, l->o, "unstepped"))
		fal_trace_fail(l, FAL_EINVAL, "%llu blocks were to be left out",
			       (unsigned long long)left_out);
}

static void
take_delta(struct reference *r, struct fal_trace_line *l, const struct head *h)
{
	take_steps(r, l, h);
	leave_blocks_out(r, l, h);
	begin_delta(r);
	if (h->rank > 0)
		revise(r, h);
	for (size_t i = 0; i < r->t->n && h->rank == 0; i++) {
		const float by = (float)h->weight * r->change[i];
		r->delta[i] = r->delta[i] + by;
	}
}

/* ---- lines of the trace ------------------------------------------------------------ */

static struct head
read_head(struct fal_trace_line *l)
{
	const json_t *o = l->o, *stale = json_object_get(o, "stale");
	struct head h = { .round = get(l, o, "round"),
			  .clock = get(l, o, "clock"),
			  .first = get(l, o, "first"),
			  .tasks = get(l, o, "tasks"),
			  .version = get(l, o, "version"),
			  .owner = get(l, o, "owner"),
			  .group = get(l, o, "group"),
			  .local = get(l, o, "local"),
			  .since = get(l, o, "since"),
			  .late = told_has(o, "late"),
			  .first_late = get(l, o, "late"),
			  .slot = get(l, o, "slot"),
			  .rank = get(l, stale, "rank"),
			  .base = "",
			  .delta = strcmp(told_str(l, o, "kind"), "delta") == 0 };
	if (h.delta) {
		h.steps = told_u64(l, o, "steps");
		h.base = told_str(l, o, "base");
		h.weight = get_real(l, "weight");
	}
	if (h.delta || h.local > 0)
		h.lr = get_real(l, "lr");
	if (h.local > 0)
		h.divisor = get_real(l, "divisor");
	return h;
}

static void
apply(struct reference *r, struct fal_trace_line *l)
{
	struct head h = read_head(l);
	if (l->err != 0)
		return;
	if (h.delta)
		take_delta(r, l, &h);
	else if (h.local > 0)
		take_line(r, l, &h);
	else
		take_grad(r, l, &h);
}

static struct over *
over_of(struct reference *r, uint64_t clock)
{
	for (size_t i = r->overs.n; i-- > 0;)
		if (r->overs.v[i].clock == clock)
			return &r->overs.v[i];
	ADD(r->overs, (struct over){ clock, 0 });
	return &r->overs.v[r->overs.n - 1];
}

static void
take_ledger(struct reference *r, struct fal_trace_line *l)
{
	const bool applied = strcmp(told_str(l, l->o, "end"), "applied") == 0;
	if (strcmp(told_str(l, l->o, "end"), "abandoned") != 0)
		over_of(r, get(l, l->o, "clock"))->tasks += get(l, l->o, "tasks");
	if (applied)
		apply(r, l);
	else if (strcmp(told_str(l, l->o, "kind"), "delta") == 0)
		own_of(r, get(l, l->o, "owner"))->lost = true;
}

/* weight · what the line has changed. */
static void
collect(struct reference *r, uint64_t group, float weight)
{
	const struct line *line = line_of(r, group);
	begin_delta(r);
	for (size_t i = 0; i < r->t->n; i++) {
		const float by = line->is.w[i] - line->taken[i];
		const float part = weight * by;
		r->delta[i] = r->delta[i] + part;
	}
}

/* Several lines, and an outer step by what they come to. */
static void
take_pushes(struct reference *r, struct fal_trace_line *l)
{
	const json_t *all = json_object_get(l->o, "pushes"), *row;
	const json_t *outer = json_object_get(l->o, "outer");
	const float lr = (float)json_number_value(json_array_get(outer, 0));
	const float m = (float)json_number_value(json_array_get(outer, 1));
	size_t k;
	json_array_foreach(all, k, row)
		collect(r, (uint64_t)json_integer_value(json_array_get(row, 0)),
			(float)json_number_value(json_array_get(row, 1)));
	if (r->velocity == NULL)
		r->velocity = floats(r->t->n);
	for (size_t i = 0; i < r->t->n; i++) {
		const float was = m * r->velocity[i];
		r->velocity[i] = was + r->delta[i];
		const float ahead = m * r->velocity[i];
		const float sum = r->delta[i] + ahead;
		r->delta[i] = lr * sum;
	}
}

/* The group whose line an update is made of, or whose push it is, or the worker. */
static uint64_t
pushed(struct reference *r, struct fal_trace_line *l)
{
	const json_t *first = json_array_get(json_object_get(l->o, "rounds"), 0);
	for (size_t i = r->stepped.n; i-- > 0;)
		if (r->stepped.v[i].round == (uint64_t)json_integer_value(first))
			return r->stepped.v[i].group;
	fal_trace_fail(l, FAL_EINVAL, "no line of that round");
	return 0;
}

/* Steps by the gradients: all of a clock, or a push by itself, whose worker or group may
 * have a momentum of its own. */
static void
step_grads(struct reference *r, struct fal_trace_line *l, struct plain *next)
{
	const struct fal_optim *o = &r->t->optim;
	const uint64_t clock = get(l, l->o, "clock"), samples = get(l, l->o, "samples");
	const double in = (double)over_of(r, clock)->tasks / toy_clock_tasks(r->t, clock);
	struct plain_by by = { (float)get_real(l, "lr"), (double)samples,
			       (double)samples / get_real(l, "divisor"), 1, r->t->bits };
	float *of_all = next->m;
	if (r->alone && by.share != 1)
		by.in = in;
	if (r->alone && !o->one_momentum &&
	    (o->kind == FAL_MOMENTUM || o->kind == FAL_NESTEROV)) {
		if (r->slots.n == 0)
			memset(of_all, 0, r->t->n * sizeof(float));
		next->m = slot_of(r, pushed(r, l))->mean;
	}
	plain_step(next, o, &r->sum, &by);
	next->m = of_all;
}

/* The version has the hash that the shards have found, however they were cut. */
static void
judge_hash(const struct reference *r, struct fal_trace_line *l)
{
	const size_t at = r->versions.n - 1;
	uint8_t hash[FAL_HASH_BYTES];
	char hex[2 * FAL_HASH_BYTES + 1];
	if (r->unknown != NULL || !told_has(l->o, "hash"))
		return;
	fal_leaf_model(r->versions.v[at].w, r->t->n, hash);
	fal_hex(hash, sizeof(hash), hex);
	if (strcmp(told_str(l, l->o, "hash"), hex) != 0)
		fal_trace_fail(l, FAL_EINVAL, "version %zu has another hash", at);
}

static void
take_update(struct reference *r, struct fal_trace_line *l)
{
	const size_t n = r->t->n;
	struct plain next = plain_new(n, NULL);
	plain_copy(&next, &r->versions.v[r->versions.n - 1]);
	/* Gradients of toys never are: test_store and test_coord_liars have such. */
	if (told_has(l->o, "unstepped"))
		fal_trace_fail(l, FAL_EINVAL, "no gradient is beyond the numbers");
	/* Without a divisor all was skipped. */
	if (r->graded && told_has(l->o, "divisor"))
		step_grads(r, l, &next);
	if (told_has(l->o, "weight"))
		collect(r, pushed(r, l), (float)get_real(l, "weight"));
	if (told_has(l->o, "pushes"))
		take_pushes(r, l);
	for (size_t i = 0; i < n && r->moved; i++)
		next.w[i] = next.w[i] + r->delta[i];
	plain_sum_clear(&r->sum);
	r->graded = r->moved = false;
	ADD(r->versions, next);
	judge_hash(r, l);
}

static void
forget_lines(struct reference *r)
{
	for (; r->lines.n > 0; r->lines.n--) {
		plain_free(&r->lines.v[r->lines.n - 1].is);
		free(r->lines.v[r->lines.n - 1].taken);
	}
	for (; r->slots.n > 0; r->slots.n--)
		free(r->slots.v[r->slots.n - 1].mean);
	free(r->velocity);
	r->velocity = NULL;
}

static void
take_policy(struct reference *r, struct fal_trace_line *l)
{
	const char *scheme = told_str(l, l->o, "scheme");
	struct fal_rule rule = { 0 };
	if (strcmp(scheme, r->scheme) != 0)
		forget_lines(r);
	if (fal_rule_parse(scheme, &rule, NULL) < 0)
		fal_trace_fail(l, FAL_EINVAL, "no scheme");
	r->alone = fal_rule_traits(&rule).alone && rule.quorum == 0;
	snprintf(r->scheme, sizeof(r->scheme), "%s", scheme);
}

/* Machine number n calls itself wn. */
static void
take_join(struct reference *r, struct fal_trace_line *l)
{
	const char *name = told_str(l, l->o, "worker");
	const struct person p = { get(l, l->o, "id"), (uint32_t)atoi(name + 1) };
	ADD(r->people, p);
}

static int
take(void *arg, struct fal_trace_line *l)
{
	struct reference *r = arg;
	if (strcmp(l->ev, "job") == 0)
		r->several = get(l, l->o, "shards") > 1;
	else if (strcmp(l->ev, "place") == 0)
		r->several |= told_len(l, l->o, "runs") > 1;
	else if (strcmp(l->ev, "ledger") == 0)
		take_ledger(r, l);
	else if (strcmp(l->ev, "update") == 0)
		take_update(r, l);
	else if (strcmp(l->ev, "policy") == 0)
		take_policy(r, l);
	else if (strcmp(l->ev, "join") == 0)
		take_join(r, l);
	return l->err;
}

static void
finish(struct reference *r)
{
	forget_lines(r);
	for (size_t i = 0; i < r->versions.n; i++)
		plain_free(&r->versions.v[i]);
	for (size_t i = 0; i < r->owns.n; i++) {
		plain_free(&r->owns.v[i].is);
		free(r->owns.v[i].by[0]);
		free(r->owns.v[i].by[1]);
		free(r->owns.v[i].applied.v);
	}
	plain_sum_free(&r->sum);
	plain_sum_free(&r->one);
	free(r->versions.v);
	free(r->owns.v);
	free(r->lines.v);
	free(r->slots.v);
	free(r->stepped.v);
	free(r->overs.v);
	free(r->people.v);
	free(r->delta);
	free(r->grad);
	free(r->change);
}

int
reference_read(struct fal_trace_reader *r, const char *trace, size_t length,
	       struct fal_diag *diag)
{
	int err = fal_trace_find_restarts(r, trace, length);
	if (err == 0)
		err = fal_trace_feed(r, trace, length, diag);
	if (err == 0)
		err = fal_trace_end(r, diag);
	return err;
}

int
reference_replay(const struct toy *t, const char *trace, size_t length, float *params,
		 struct fal_diag *diag)
{
	struct reference r = { .t = t,
			       .blocks =
				       (uint32_t)((t->n + PLAIN_BLOCK - 1) / PLAIN_BLOCK),
			       .sum = plain_sum_new(t->n),
			       .one = plain_sum_new(t->n),
			       .delta = floats(t->n),
			       .grad = floats(t->n),
			       .change = floats(t->n) };
	struct fal_trace_reader *reader = fal_trace_reader_new(take, &r);
	assert(reader != NULL);
	toy_init(t, params);
	ADD(r.versions, plain_new(t->n, params));
	int err = reference_read(reader, trace, length, diag);
	if (err == 0 && r.unknown != NULL)
		fal_diag_set(diag, FAL_EINVAL, "%s", r.unknown);
	memcpy(params, r.versions.v[r.versions.n - 1].w, t->n * sizeof(float));
	const bool known = r.unknown == NULL;
	fal_trace_reader_free(reader);
	finish(&r);
	return err < 0 ? err : known;
}
