/* Versions of a quorum. */
#include "trace/pushes.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define TOLERANCE 1e-6 /* numbers are written with at most 17 digits */

void
fal_pushes_free(struct fal_pushes *p)
{
	free(p->v);
	*p = (struct fal_pushes){ 0 };
}

static struct fal_pushed *
pushed(struct fal_pushes *p, uint64_t group)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].group == group)
			return &p->v[i];
	if (FAL_GROW(p->v, p->cap, p->n + 1) < 0)
		return NULL;
	p->v[p->n] = (struct fal_pushed){ .group = group };
	return &p->v[p->n++];
}

static double
number(struct fal_trace_line *l, const json_t *row, size_t i, const char *key)
{
	const json_t *v = json_array_get(row, i);
	if (!json_is_number(v) && l->err == 0)
		fal_trace_fail(l, FAL_EFORMAT, "%s: not a list of numbers", key);
	return json_number_value(v);
}

int
fal_pushes_read(struct fal_pushes *p, struct fal_trace_line *l)
{
	const json_t *all = fal_trace_at(l->o, FAL_F_PUSHES), *row;
	const json_t *outer = fal_trace_at(l->o, FAL_F_OUTER);
	size_t i;
	p->n = 0;
	p->outer = p->momentum = 0;
	p->groups = fal_trace_has(l->o, FAL_F_GROUPS)
			    ? fal_trace_get_u64(l, l->o, FAL_F_GROUPS, UINT32_MAX)
			    : 0;
	if (outer != NULL) {
		p->outer = number(l, outer, 0, "outer");
		p->momentum = number(l, outer, 1, "outer");
	}
	json_array_foreach(all, i, row)
	{
		const double group = number(l, row, 0, "pushes");
		struct fal_pushed *is = pushed(p, (uint64_t)group);
		if (is == NULL)
			return FAL_ENOMEM;
		is->weight += number(l, row, 1, "pushes");
	}
	return l->err;
}

int
fal_pushes_round(struct fal_pushes *p, const struct fal_trace_round *r)
{
	struct fal_pushed *is = p->groups > 0 ? pushed(p, r->group) : NULL;
	if (is == NULL)
		return p->groups > 0 ? FAL_ENOMEM : FAL_OK;
	is->samples += r->samples;
	is->rounds++;
	return FAL_OK;
}

/* What the group's line counts by. */
static void
judge_weight(const struct fal_pushed *is, double samples, uint64_t version,
	     struct fal_findings *f)
{
	const double want = samples > 0 ? (double)is->samples / samples : 0;
	if (fabs(is->weight - want) > TOLERANCE)
		fal_finding(f, NULL, 0, 0,
			    "version %llu: group %llu counts by %g, but has %g of its "
			    "samples",
			    (unsigned long long)version, (unsigned long long)is->group,
			    is->weight, want);
}

/* The outer step, and its momentum: less, where only some push at a time. */
static void
judge_outer(const struct fal_pushes *p, const struct fal_rule *rule, uint64_t version,
	    struct fal_findings *f)
{
	const double spans = (double)p->groups / (double)p->n;
	const double want = fmax(1 - (1 - rule->momentum) * spans, 0);
	if (fabs(p->outer - rule->outer) > TOLERANCE)
		fal_finding(f, NULL, 0, 0, "version %llu: its outer rate is %g, not %g",
			    (unsigned long long)version, p->outer, rule->outer);
	if (fabs(p->momentum - want) > TOLERANCE)
		fal_finding(f, NULL, 0, 0,
			    "version %llu: its outer momentum is %g, not %g",
			    (unsigned long long)version, p->momentum, want);
}

void
fal_pushes_judge(const struct fal_pushes *p, const struct fal_rule *rule,
		 uint64_t version, struct fal_findings *f)
{
	const uint64_t least = rule->quorum < p->groups ? rule->quorum : p->groups;
	double samples = 0;
	if ((p->groups > 0) != (rule->quorum > 0)) {
		fal_finding(
			f, NULL, 0, 0,
			rule->quorum > 0
				? "version %llu: nothing says how many groups there are"
				: "version %llu: a quorum, which the scheme has not",
			(unsigned long long)version);
		return;
	}
	if (rule->quorum == 0)
		return;
	if (p->n < least || p->n > p->groups)
		fal_finding(
			f, NULL, 0, 0,
			"version %llu: %zu of %llu groups have pushed, but the quorum "
			"is %u",
			(unsigned long long)version, p->n, (unsigned long long)p->groups,
			rule->quorum);
	for (size_t i = 0; i < p->n; i++)
		samples += (double)p->v[i].samples;
	for (size_t i = 0; i < p->n; i++) {
		if (rule->delta)
			judge_weight(&p->v[i], samples, version, f);
		else if (p->v[i].rounds > 1)
			fal_finding(f, NULL, 0, 0,
				    "version %llu: group %llu has pushed %llu times",
				    (unsigned long long)version,
				    (unsigned long long)p->v[i].group,
				    (unsigned long long)p->v[i].rounds);
	}
	if (rule->delta && p->n > 0)
		judge_outer(p, rule, version, f);
}
