/* Contributions that were not believed. */
#include "trace/doubts.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Most that wait for the ends of their rounds. */
enum { WAITING_MAX = 1 << 16 };

void
fal_doubts_free(struct fal_doubts *d)
{
	free(d->v);
	*d = (struct fal_doubts){ 0 };
}

/* Reads `c` and the round; who it is of must have joined. */
static int
read_one(struct fal_trace_line *l, const struct fal_ids *ids, struct fal_findings *f,
	 struct fal_tainted *out)
{
	uint64_t c[2] = { 0, 0 };
	out->round = fal_trace_get_u64(l, l->o, "round", FAL_TRACE_NUM_MAX);
	fal_trace_get_tuple(l, l->o, "c", 2, c);
	if (l->err == 0 && (c[0] > UINT32_MAX || c[1] > UINT32_MAX))
		return fal_trace_fail(l, FAL_ELIMIT, "c: not a contribution");
	if (l->err != 0)
		return l->err;
	out->id = (uint32_t)c[0];
	out->seq = (uint32_t)c[1];
	if (fal_ids_get(ids, out->id) == NULL)
		fal_finding(f, NULL, 0, 0, "line %llu: %s: worker %u never joined",
			    (unsigned long long)l->number, l->ev, out->id);
	return 0;
}

static int
keep(struct fal_doubts *d, struct fal_trace_line *l, const struct fal_tainted *t)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].round == t->round && d->v[i].id == t->id &&
		    d->v[i].seq == t->seq) {
			d->v[i].again |= t->again;
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

int
fal_doubts_check(struct fal_doubts *d, struct fal_trace_line *l,
		 const struct fal_ids *ids, struct fal_findings *f)
{
	static const char *const names[FAL_VERDICTS] = { "witnessed", "believed",
							 "refuted" };
	struct fal_tainted t = { .again = false };
	const char *verdict = fal_trace_get_str(l, l->o, "verdict");
	uint64_t by = 0;
	size_t v = 0;
	if (json_object_get(l->o, "by") != NULL)
		by = fal_trace_get_u64(l, l->o, "by", UINT32_MAX);
	if (read_one(l, ids, f, &t) < 0)
		return l->err;
	while (v < FAL_VERDICTS && strcmp(verdict, names[v]) != 0)
		v++;
	if (v == FAL_VERDICTS)
		return fal_trace_fail(l, FAL_EFORMAT, "verdict: not one");
	if (by != 0 && fal_ids_get(ids, (uint32_t)by) == NULL)
		fal_finding(f, NULL, 0, 0, "line %llu: check: worker %llu never joined",
			    (unsigned long long)l->number, (unsigned long long)by);
	if (v != FAL_BELIEVED && (by == 0 || by == t.id))
		fal_finding(f, NULL, 0, 0, "line %llu: check: %s by %s",
			    (unsigned long long)l->number, verdict,
			    by == 0 ? "nobody" : "itself");
	d->verdicts[v]++;
	return v == FAL_REFUTED ? keep(d, l, &t) : 0;
}

int
fal_doubts_again(struct fal_doubts *d, struct fal_trace_line *l,
		 const struct fal_ids *ids, struct fal_findings *f)
{
	struct fal_tainted t = { .again = true };
	if (read_one(l, ids, f, &t) < 0)
		return l->err;
	return keep(d, l, &t);
}

/* Is the contribution there, and fenced? */
static bool
is_fenced(const struct fal_trace_line *l, const struct fal_tainted *t)
{
	const json_t *all = json_object_get(l->o, "contrib"), *o;
	size_t i;
	json_array_foreach(all, i, o)
	{
		const json_t *c = json_object_get(o, "c");
		if (json_integer_value(json_array_get(c, 0)) == (json_int_t)t->id &&
		    json_integer_value(json_array_get(c, 1)) == (json_int_t)t->seq)
			return json_is_true(json_object_get(o, "fenced"));
	}
	return false;
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
		if (r->end != FAL_TRACE_APPLIED)
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
