/* Contributions that were not believed. */
#include "trace/doubts.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Most that wait for the ends of their rounds. */
enum { WAITING_MAX = 1 << 16 };

/* Exponents as falcon-protocol(7) has them: what may be needed, that nothing was shown,
 * how far a value may be above the exponent of its block, and what chance may do. */
enum { EXP_MAX = 100, EXP_NONE = -128, HEADROOM = 32, RISE = 2 };

void
fal_doubts_free(struct fal_doubts *d)
{
	free(d->v);
	*d = (struct fal_doubts){ 0 };
}

/* Reads `c` and the round; who it is of must have joined. */
static int
read_one(struct fal_trace_line *l, const struct fal_people *p, struct fal_findings *f,
	 struct fal_tainted *out)
{
	uint64_t c[2] = { 0, 0 };
	out->round = fal_trace_get_u64(l, l->o, FAL_F_ROUND, FAL_TRACE_NUM_MAX);
	fal_trace_get_tuple(l, l->o, FAL_F_C, 2, c);
	if (l->err == 0 && (c[0] > UINT32_MAX || c[1] > UINT32_MAX))
		return fal_trace_fail(l, FAL_ELIMIT, "c: not a contribution");
	if (l->err != 0)
		return l->err;
	out->id = (uint32_t)c[0];
	out->seq = (uint32_t)c[1];
	if (fal_ids_get(&p->ids, out->id) == NULL)
		fal_finding_line(f, l, "%s: worker %u never joined", l->ev, out->id);
	return 0;
}

static int
keep(struct fal_doubts *d, struct fal_trace_line *l, const struct fal_tainted *t,
     struct fal_findings *f)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].round == t->round && d->v[i].id == t->id &&
		    d->v[i].seq == t->seq) {
			d->v[i].again |= t->again;
			d->v[i].refuted |= t->refuted;
			if (d->v[i].checked && t->checked)
				fal_finding_line(f, l,
						 "contribution %u.%u was judged before",
						 t->id, t->seq);
			d->v[i].checked |= t->checked;
			return 0;
		}
	if (d->n == WAITING_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "more than %d wait for their rounds",
				      WAITING_MAX);
	if (FAL_GROW(d->v, d->cap, d->n + 1) < 0)
		return FAL_ENOMEM;
	d->v[d->n++] = *t;
	return 0;
}

/* An exponent of 2, which may be negative. */
static int
exp_of(struct fal_trace_line *l, const json_t *v, enum fal_field key)
{
	const json_int_t is = json_integer_value(v);
	if (!json_is_integer(v) || is < EXP_NONE || is > EXP_MAX)
		fal_trace_fail(l, FAL_EFORMAT, "%s: no exponent", fal_field_name(key));
	return l->err == 0 ? (int)is : 0;
}

static int
read_exp(struct fal_trace_line *l, enum fal_field key)
{
	return exp_of(l, fal_trace_at(l->o, key), key);
}

/* Only what is above what was shown is doubted, and no honest task needs more than its
 * block has room for. */
static void
judge_needed(struct fal_trace_line *l, const struct fal_tainted *t,
	     struct fal_findings *f)
{
	const int needed = read_exp(l, FAL_F_NEEDED), shown = read_exp(l, FAL_F_SHOWN);
	if (l->err == 0 && needed <= shown + RISE)
		fal_finding_line(f, l,
				 "contribution %u.%u needed 2^%d where 2^%d was shown: "
				 "nothing to doubt",
				 t->id, t->seq, needed, shown);
	if (!fal_trace_has(l->o, FAL_F_EXPONENT))
		return;
	const int exponent = read_exp(l, FAL_F_EXPONENT);
	if (l->err == 0 && needed > exponent + HEADROOM)
		fal_finding_line(f, l,
				 "contribution %u.%u needed 2^%d, but has room for 2^%d",
				 t->id, t->seq, needed, exponent + HEADROOM);
}

/* A witness is of another key. */
static void
judge_witness(const struct fal_trace_line *l, const struct fal_people *p, uint32_t by,
	      const struct fal_tainted *t, const char *verdict, struct fal_findings *f)
{
	const char *who = by == 0 ? "nobody" : by == t->id ? "itself" : NULL;
	const size_t key = fal_people_key(p, by);
	if (who == NULL && key != 0 && key == fal_people_key(p, t->id))
		who = "its own key";
	if (who != NULL)
		fal_finding_line(f, l, "check: %s by %s", verdict, who);
}

/* What the blocks count as: runs of them, in their order, from the first that was
 * doubted, which counts as what chance may make of what was shown. */
static void
judge_bound(struct fal_trace_line *l, const struct fal_doubts_env *env,
	    const struct fal_tainted *t, struct fal_findings *f)
{
	const json_t *all = fal_trace_at(l->o, FAL_F_BOUND), *row;
	const uint64_t block = fal_trace_get_u64(l, l->o, FAL_F_BLOCK, FAL_TRACE_NUM_MAX);
	const int shown = read_exp(l, FAL_F_SHOWN);
	const int first =
		exp_of(l, json_array_get(json_array_get(all, 0), 2), FAL_F_BOUND);
	uint64_t at = 0;
	size_t i;
	bool ok = true;
	json_array_foreach(all, i, row)
	{
		const json_int_t from = json_integer_value(json_array_get(row, 0));
		const json_int_t n = json_integer_value(json_array_get(row, 1));
		exp_of(l, json_array_get(row, 2), FAL_F_BOUND);
		if (l->err != 0)
			return;
		ok = ok && from >= 0 && n > 0 && (uint64_t)from >= at &&
		     (i > 0 || (uint64_t)from == block) && (uint64_t)from < env->blocks &&
		     (uint64_t)n <= env->blocks - (uint64_t)from;
		at = ok ? (uint64_t)from + (uint64_t)n : at;
	}
	if (l->err == 0 && !ok)
		fal_finding_line(f, l, "bound: no blocks in their order");
	if (l->err == 0 && first != shown + RISE)
		fal_finding_line(f, l,
				 "contribution %u.%u counts as 2^%d where 2^%d was shown",
				 t->id, t->seq, first, shown);
	/* Else the model would depend on who computes what. */
	if (env->lawful && !fal_trace_has(l->o, FAL_F_BY))
		fal_finding_line(f, l,
				 "contribution %u.%u was bounded, and nobody was asked",
				 t->id, t->seq);
}

int
fal_doubts_check(struct fal_doubts *d, struct fal_trace_line *l,
		 const struct fal_doubts_env *env, struct fal_findings *f)
{
	static const char *const names[FAL_VERDICTS] = { "witnessed", "believed",
							 "bounded", "refuted" };
	struct fal_people *people = env->people;
	struct fal_tainted t = { .checked = true };
	const char *verdict = fal_trace_get_str(l, l->o, FAL_F_VERDICT);
	uint64_t by = 0;
	size_t v = 0;
	if (fal_trace_has(l->o, FAL_F_BY))
		by = fal_trace_get_u64(l, l->o, FAL_F_BY, UINT32_MAX);
	if (read_one(l, people, f, &t) < 0)
		return l->err;
	judge_needed(l, &t, f);
	while (v < FAL_VERDICTS && strcmp(verdict, names[v]) != 0)
		v++;
	if (v == FAL_VERDICTS)
		return fal_trace_fail(l, FAL_EFORMAT, "verdict: not one");
	if (by != 0 && fal_ids_get(&people->ids, (uint32_t)by) == NULL)
		fal_finding_line(f, l, "check: worker %llu never joined",
				 (unsigned long long)by);
	if (v == FAL_WITNESSED || v == FAL_REFUTED || (v == FAL_BOUNDED && by != 0))
		judge_witness(l, people, (uint32_t)by, &t, verdict, f);
	if (v == FAL_BOUNDED)
		judge_bound(l, env, &t, f);
	d->verdicts[v]++;
	t.refuted = v == FAL_REFUTED;
	return l->err != 0 ? l->err : keep(d, l, &t, f);
}

int
fal_doubts_again(struct fal_doubts *d, struct fal_trace_line *l,
		 const struct fal_people *people, struct fal_findings *f)
{
	struct fal_tainted t = { .again = true };
	if (read_one(l, people, f, &t) < 0)
		return l->err;
	return keep(d, l, &t, f);
}

/* Is the contribution there, and fenced? */
static bool
is_fenced(const struct fal_trace_line *l, const struct fal_tainted *t)
{
	const json_t *all = fal_trace_at(l->o, FAL_F_CONTRIB), *o;
	size_t i;
	json_array_foreach(all, i, o)
	{
		const json_t *c = fal_trace_at(o, FAL_F_C);
		if (json_integer_value(json_array_get(c, 0)) == (json_int_t)t->id &&
		    json_integer_value(json_array_get(c, 1)) == (json_int_t)t->seq)
			return json_is_true(fal_trace_at(o, FAL_F_FENCED));
	}
	return false;
}

void
fal_doubts_forget(struct fal_doubts *d)
{
	d->n = 0;
}

void
fal_doubts_round(struct fal_doubts *d, struct fal_trace_line *l,
		 const struct fal_trace_round *r, struct fal_findings *f)
{
	size_t kept = 0;
	for (size_t i = 0; i < d->n; i++) {
		const struct fal_tainted *t = &d->v[i];
		if (t->round != r->round) {
			d->v[kept++] = *t;
			continue;
		}
		if (r->end != FAL_TRACE_APPLIED || (!t->refuted && !t->again))
			continue;
		if (!t->again)
			fal_finding(f, r, 0, 0,
				    "contribution %u.%u was refuted, but not done again",
				    t->id, t->seq);
		else if (!is_fenced(l, t))
			fal_finding(f, r, 0, 0,
				    "contribution %u.%u was to be done again, but was "
				    "not fenced",
				    t->id, t->seq);
	}
	d->n = kept;
}
