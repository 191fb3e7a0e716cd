/* Models that are stepped by themselves between their pushes. */
#include "store/store_priv.h"

#include "base/err.h"
#include "base/line.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct line *
line_find(const struct fal_store *s, uint32_t line)
{
	for (size_t i = 0; i < s->lines.n; i++)
		if (fal_line_of(s->lines.v[i].version) == line)
			return &s->lines.v[i];
	return NULL;
}

bool
fal_store_has_line(const struct fal_store *s, uint32_t line)
{
	return line_find(s, line) != NULL;
}

static void
free_line(struct line *l)
{
	free(l->params);
	free(l->taken);
	free(l->state);
	free(l->exps);
	free(l->reach);
	free(l->is);
}

void
fal_store_forget_lines(struct fal_store *s)
{
	for (size_t i = 0; i < s->lines.n; i++)
		free_line(&s->lines.v[i]);
	s->lines.n = 0;
}

struct line *
store_add_line(struct fal_store *s, uint64_t version)
{
	const size_t n = s->conf.n;
	if (FAL_GROW(s->lines.v, s->lines.cap, s->lines.n + 1) < 0)
		return NULL;
	struct line l = { .version = version,
			  .params = fal_calloc_aligned(n, sizeof(float)),
			  .taken = fal_calloc_aligned(n, sizeof(float)),
			  .state = fal_calloc_aligned(n * fal_optim_slots(&s->conf.optim),
						      sizeof(float)),
			  .exps = fal_calloc(s->blocks, 1),
			  .reach = fal_calloc(s->blocks, sizeof(*l.reach)),
			  .is = fal_calloc(s->blocks, sizeof(*l.is)) };
	if (l.params == NULL || l.taken == NULL || l.state == NULL || l.exps == NULL ||
	    l.reach == NULL || l.is == NULL) {
		free_line(&l);
		return NULL;
	}
	memcpy(l.exps, s->exps, s->blocks);
	s->lines.v[s->lines.n] = l;
	return &s->lines.v[s->lines.n++];
}

int
fal_store_line(struct fal_store *s, uint64_t version)
{
	struct line *l = line_find(s, fal_line_of(version));
	if (l == NULL)
		l = store_add_line(s, version);
	if (l == NULL)
		return FAL_ENOMEM;
	l->version = version;
	memcpy(l->params, s->params, s->conf.n * sizeof(float));
	memcpy(l->taken, s->params, s->conf.n * sizeof(float));
	for (uint32_t b = 0; b < s->blocks; b++)
		l->reach[b].params = s->reach[b].params;
	return FAL_OK;
}

struct fal_unstepped
fal_store_line_step(struct fal_store *s, uint64_t round,
		    const struct fal_store_line_step *step)
{
	const struct round *r = store_completed(s, round, FAL_KIND_GRAD);
	struct line *l = line_find(s, fal_line_of(step->version));
	assert(l != NULL);
	const struct store_step by = { .sum = r->sum,
				       .sum_exps = r->exps,
				       .by = fal_optim_step(&s->conf.optim, step->lr,
							    l->steps++),
				       .divisor = step->divisor,
				       .params = l->params,
				       .state = l->state,
				       .exps = l->exps,
				       .reach = l->reach };
	struct fal_unstepped is = store_step(s, &by);
	is.by = r->largest;
	l->version = step->version;
	fal_store_drop(s, round);
	return is;
}

int
fal_store_push(struct fal_store *s, uint32_t line, double weight)
{
	const struct line *l = line_find(s, line);
	assert(l != NULL);
	if (store_begin_delta(s) < 0)
		return FAL_ENOMEM;
	for (size_t i = 0; i < s->conf.n; i++)
		s->delta[i] += (float)weight * (l->params[i] - l->taken[i]);
	return FAL_OK;
}

int
fal_store_outer(struct fal_store *s, double rate, double momentum)
{
	struct slot *v = store_slot(s, 0);
	if (v == NULL || store_begin_delta(s) < 0)
		return FAL_ENOMEM;
	const float m = (float)momentum, lr = (float)rate;
	for (size_t i = 0; i < s->conf.n; i++) {
		v->mean[i] = m * v->mean[i] + s->delta[i];
		s->delta[i] = lr * (s->delta[i] + m * v->mean[i]);
	}
	return FAL_OK;
}
