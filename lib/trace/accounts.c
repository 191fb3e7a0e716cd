/* The two accounts of a worker's work. */
#include "trace/accounts.h"

#include "base/mem.h"

#include <stdlib.h>

enum figure { SHARE, DONE, IN, OUT, CLONED, LOST };
enum { ALL = (1 << FAL_FIGURES) - 1 };

static const enum fal_field names[FAL_FIGURES] = {
	FAL_F_SHARE, FAL_F_DONE, FAL_F_IN, FAL_F_OUT, FAL_F_CLONED, FAL_F_LOST
};

void
fal_accounts_free(struct fal_accounts *a)
{
	for (size_t i = 0; i < a->n; i++)
		fal_spans_free(&a->v[i].seqs);
	free(a->v);
	*a = (struct fal_accounts){ 0 };
}

/* The account of this worker; NULL: nobody of this id joined, or no memory, which is then
 * l->err. */
static struct fal_account *
account(struct fal_accounts *a, struct fal_trace_line *l, const struct fal_people *p,
	uint64_t id)
{
	const size_t *at = id <= UINT32_MAX ? fal_ids_get(&p->ids, (uint32_t)id) : NULL;
	if (l->err != 0 || at == NULL)
		return NULL;
	if (FAL_GROW(a->v, a->cap, *at + 1) < 0) {
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		return NULL;
	}
	while (a->n <= *at)
		a->v[a->n++] = (struct fal_account){ 0 };
	return &a->v[*at];
}

/* A ledger line while it is read. */
struct reading {
	struct fal_accounts *a;
	struct fal_trace_line *l;
	const struct fal_accounts_env *env;
	struct fal_findings *f;
};

/* The worker did so many tasks of the round, or may have: it need not tell of them.  It
 * must have been here when they could be granted. */
static void
count(struct reading *r, uint64_t id, enum figure what, uint64_t tasks, bool maybe)
{
	const struct fal_trace_round *round = r->env->round;
	struct fal_account *v = account(r->a, r->l, r->env->people, id);
	if (v == NULL)
		return;
	maybe = maybe || round->end == FAL_TRACE_ABANDONED;
	(maybe ? v->maybe : v->sure)[what] += tasks;
	const struct fal_person *is = &r->env->people->worker[v - r->a->v];
	if (!is->here && is->newest + r->env->early < round->version)
		fal_finding(r->f, round, 0, 0,
			    "worker %llu left when version %llu was the newest",
			    (unsigned long long)id, (unsigned long long)is->newest);
}

/* Rows [id, first, count] of the array. */
static void
count_rows(struct reading *r, enum fal_field key, enum figure what)
{
	uint64_t v[3];
	const size_t n = fal_trace_get_len(r->l, r->l->o, key);
	for (size_t i = 0; i < n && r->l->err == 0; i++) {
		fal_trace_get_row(r->l, r->l->o, key, i, 3, v);
		count(r, v[0], what, v[2], false);
	}
}

static void
count_moves(struct reading *r)
{
	uint64_t v[4];
	const size_t n = fal_trace_get_len(r->l, r->l->o, FAL_F_MOVE);
	for (size_t i = 0; i < n && r->l->err == 0; i++) {
		fal_trace_get_row(r->l, r->l->o, FAL_F_MOVE, i, 4, v);
		count(r, v[0], OUT, v[3], false);
		count(r, v[1], IN, v[3], false);
	}
}

/* Contribution i: its number is its worker's, and is used once. */
static void
count_contrib(struct reading *r, size_t i)
{
	const json_t *o = json_array_get(fal_trace_at(r->l->o, FAL_F_CONTRIB), i);
	uint64_t c[2], v[2], tasks = 0, twice;
	fal_trace_get_tuple(r->l, o, FAL_F_C, 2, c);
	const size_t n = fal_trace_get_len(r->l, o, FAL_F_TASK_LIST);
	for (size_t k = 0; k < n && r->l->err == 0; k++) {
		fal_trace_get_row(r->l, o, FAL_F_TASK_LIST, k, 2, v);
		tasks += v[1];
	}
	/* What was claimed as it was granted need not have been run, where it is not
	 * needed. */
	count(r, c[0], DONE, tasks,
	      r->env->round->end == FAL_TRACE_DROPPED ||
		      fal_trace_get_flag(r->l, o, FAL_F_FENCED));
	struct fal_account *is = account(r->a, r->l, r->env->people, c[0]);
	const int was = is != NULL ? fal_spans_add(&is->seqs, c[1], c[1] + 1, &twice) : 0;
	if (was == 1)
		fal_finding(r->f, r->env->round, 0, 0,
			    "contribution %llu.%llu was one of an earlier line",
			    (unsigned long long)c[0], (unsigned long long)c[1]);
	else if (was < 0)
		fal_trace_fail(r->l, was, "%s", fal_strerror(was));
}

int
fal_accounts_ledger(struct fal_accounts *a, struct fal_trace_line *l,
		    const struct fal_accounts_env *env, struct fal_findings *f)
{
	struct reading r = { a, l, env, f };
	a->ran_on = env->round->version;
	count_rows(&r, FAL_F_GRANT, SHARE);
	count_moves(&r);
	count_rows(&r, FAL_F_CLONE, CLONED);
	count_rows(&r, FAL_F_LOST_LIST, LOST);
	const size_t n = fal_trace_get_len(l, l->o, FAL_F_CONTRIB);
	for (size_t i = 0; i < n && l->err == 0; i++)
		count_contrib(&r, i);
	return l->err;
}

/* It has a line for each clock since its first one. */
static void
judge_next(struct fal_accounts *a, struct fal_account *v, const struct fal_trace_line *l,
	   uint64_t id, uint64_t clock, struct fal_findings *f)
{
	if (!a->gappy && v->due != 0 && clock != v->due)
		fal_finding_line(
			f, l,
			"clock: worker %llu tells of clock %llu, but clock %llu is next",
			(unsigned long long)id, (unsigned long long)clock,
			(unsigned long long)v->due);
	v->due = clock + 1;
}

int
fal_accounts_clock(struct fal_accounts *a, struct fal_trace_line *l,
		   const struct fal_people *p, struct fal_findings *f)
{
	static const enum fal_field parts[] = { FAL_F_COMPUTE, FAL_F_PUSH, FAL_F_PULL,
						FAL_F_WAIT };
	const uint64_t id = fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	const uint64_t clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
	struct fal_account *v = account(a, l, p, id);
	const struct fal_person *is = v != NULL ? &p->worker[v - a->v] : NULL;
	if (l->err == 0 && (is == NULL || !is->here))
		fal_finding_line(f, l, "clock: worker %llu is not here",
				 (unsigned long long)id);
	if (v == NULL)
		return l->err;
	for (size_t i = 0; i < FAL_FIGURES; i++)
		v->told[i] += fal_trace_get_u64(l, l->o, names[i], UINT32_MAX);
	/* Its first line tells also of what was before it joined. */
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && v->begun; i++)
		v->spent += fal_trace_get_seconds(l, l->o, parts[i]);
	v->begun = true;
	const double here = l->t - is->joined;
	/* It measures by a clock of its own. */
	if (l->err == 0 && v->spent > here + 1 + here / 100)
		fal_finding_line(
			f, l, "clock: worker %llu was here for %.3f s, but spent %.3f s",
			(unsigned long long)id, here, v->spent);
	if (l->err == 0 && !fal_trace_has(l->o, FAL_F_ROUND))
		judge_next(a, v, l, id, clock, f);
	return l->err;
}

/* The figures that must all have been told when the job is done.  Where a step is ordered
 * before its round is complete, claims may come behind it; and an account, behind which
 * another scheme leaves nothing to be told. */
static unsigned
due(const struct fal_accounts *a)
{
	if (a->loose)
		return 0;
	if (a->ahead && a->gappy)
		return 1U << SHARE;
	return a->ahead ? ALL & ~(1U << DONE) : ALL;
}

/* Whether it has told of all of these figures that had ended, and of no more than there
 * was, if `most`. */
static void
judge_sums(const struct fal_account *v, const struct fal_trace_line *l, uint32_t id,
	   unsigned least, bool most, struct fal_findings *f)
{
	for (size_t i = 0; i < FAL_FIGURES; i++) {
		const uint64_t all = v->sure[i] + v->maybe[i];
		const bool must = (least >> i & 1) != 0;
		if ((!must || v->told[i] >= v->sure[i]) && (!most || v->told[i] <= all))
			continue;
		fal_finding_line(f, l,
				 "%s: worker %u: %s is %llu in its clock lines, %llu in "
				 "the ledger",
				 l->ev, id, fal_field_name(names[i]),
				 (unsigned long long)v->told[i],
				 (unsigned long long)(v->told[i] < all ? v->sure[i]
								       : all));
	}
}

int
fal_accounts_leave(struct fal_accounts *a, struct fal_trace_line *l,
		   const struct fal_people *p, struct fal_findings *f)
{
	const uint64_t id = fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	const struct fal_account *v = account(a, l, p, id);
	if (v != NULL)
		judge_sums(v, l, (uint32_t)id, a->ahead ? due(a) & 1U << SHARE : due(a),
			   false, f);
	return l->err;
}

int
fal_accounts_done(struct fal_accounts *a, struct fal_trace_line *l,
		  const struct fal_people *p, uint64_t clocks, struct fal_findings *f)
{
	for (size_t i = 0; i < p->ids.n && l->err == 0; i++) {
		const uint32_t id = p->ids.v[i].id;
		const struct fal_person *is = &p->worker[p->ids.v[i].value];
		const struct fal_account *v = account(a, l, p, id);
		if (v == NULL)
			break;
		judge_sums(v, l, id, is->here ? due(a) : 0, !a->lost, f);
		/* All are asked for their last line when the last round is complete: then
		 * its version was told of.  Who came behind that may have come too late.
		 */
		const bool late = v->due == 0 && is->oldest >= a->ran_on;
		if (is->here && !a->gappy && v->due != clocks && !late)
			fal_finding_line(f, l,
					 "done: worker %u has no line of clock %llu", id,
					 (unsigned long long)(v->due > 0 ? v->due
									 : clocks - 1));
	}
	return l->err;
}
