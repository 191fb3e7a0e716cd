/* A version that is made while the round that it is made of is not complete: each block
 * as soon as it has all its tasks.  Whatever is not so by then is left to the step, which
 * makes of all of them what it would have made of them at once.
 *
 * Till then the version before is had whole, as a fill may need it, and without memory of
 * its own: what a block had is where its sum was, which nobody needs any more. */
#include "store/store_priv.h"

#include "base/mem.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct making *
store_making_new(const struct fal_store_conf *conf)
{
	const uint32_t blocks = fal_blocks(conf->n);
	struct making *m = fal_calloc(1, sizeof(*m));
	if (m == NULL)
		return NULL;
	m->made = fal_calloc(blocks, 1);
	m->due = fal_calloc(blocks, sizeof(*m->due));
	m->exps = fal_calloc(blocks, 1);
	/* Touched where it is needed alone: falcon-ps counts it (most.h, `beyond`). */
	m->params = fal_alloc_pages(conf->n, sizeof(float));
	if (conf->checksums)
		m->checksums = fal_calloc(blocks, sizeof(*m->checksums));
	if (m->made != NULL && m->due != NULL && m->exps != NULL && m->params != NULL &&
	    (!conf->checksums || m->checksums != NULL))
		return m;
	store_making_free(m);
	return NULL;
}

void
store_making_free(struct making *m)
{
	if (m == NULL)
		return;
	free(m->made);
	free(m->due);
	free(m->exps);
	free(m->params);
	free(m->checksums);
	free(m);
}

/* ---- the next version -------------------------------------------------------------- */

/* Some blocks that may be made. */
struct some {
	const struct fal_store *s;
	const struct round *r;
	struct store_step step;
	atomic_uint made, beyond, refused;
};

static struct some
some_of(const struct fal_store *s, const struct round *r)
{
	const struct fal_store_make *how = &s->making->how;
	struct some of = { .s = s,
			   .r = r,
			   .step = store_next_step(s, r->sum, r->exps, how->lr,
						   how->divisor) };
	of.step.keeps = s->making->sum;
	return of;
}

static void
make_due(void *of, uint32_t i, uint32_t thread)
{
	(void)thread;
	struct some *some = of;
	const struct fal_store *s = some->s;
	const struct round *r = some->r;
	struct making *m = s->making;
	const uint32_t b = m->due[i];
	if (m->made[b])
		return;
	if (m->checksums != NULL)
		m->checksums[b] = round_checksum(s, r, b);
	const enum stepped is = store_step_one(s, &some->step, 1, b);
	some->beyond += is == BEYOND;
	some->refused += is == REFUSED;
	m->made[b] = 1;
	some->made++;
}

/* What may be made is. */
static void
make_dues(struct fal_store *s, const struct round *r)
{
	struct making *m = s->making;
	struct some of = some_of(s, r);
	fal_parallel_each(s->conf.parallel, m->dues, make_due, &of);
	m->n += of.made;
	m->beyond += of.beyond;
	m->refused += of.refused;
	m->dues = 0;
}

/* Is the step of nothing but gradients that no other block has a say in? */
static bool
is_plain(const struct fal_store *s, const struct fal_store_make *how)
{
	return s->sum == NULL && !s->moved && s->conf.optim.clip <= 0 &&
	       s->average == NULL && how->divisor > 0 && isfinite(how->lr);
}

int
fal_store_make(struct fal_store *s, const struct fal_store_make *how)
{
	const struct round *r = round_find(s, how->round);
	struct making *m = s->making;
	if (m->on || r == NULL || r->is.kind != FAL_KIND_GRAD || !is_plain(s, how))
		return 0;
	memcpy(m->exps, s->exps, s->blocks);
	memset(m->made, 0, s->blocks);
	m->on = true;
	m->whole = false;
	m->how = *how;
	m->sum = r->sum;
	m->n = m->beyond = m->refused = m->dues = 0;
	for (uint32_t b = 0; b < s->blocks; b++)
		if (r->counted[b] == r->is.tasks)
			store_make_next(s, r, b);
	make_dues(s, r);
	return 1;
}

void
store_make_next(struct fal_store *s, const struct round *r, uint32_t b)
{
	struct making *m = s->making;
	if (m->on && r->is.round == m->how.round && m->dues < s->blocks)
		m->due[m->dues++] = b;
}

void
fal_store_make_more(struct fal_store *s)
{
	struct making *m = s->making;
	const struct round *r = m->on && m->dues > 0 ? round_find(s, m->how.round) : NULL;
	if (r != NULL)
		make_dues(s, r);
}

bool
store_is_made(const struct fal_store *s, const struct round *r, uint32_t b)
{
	const struct making *m = s->making;
	return m->on && r->is.round == m->how.round && m->made[b];
}

uint64_t
store_made_checksum(const struct fal_store *s, uint32_t b)
{
	return s->making->checksums[b];
}

const uint8_t *
fal_store_made(const struct fal_store *s, uint32_t *n)
{
	if (n != NULL)
		*n = s->making->n;
	return s->making->on ? s->making->made : NULL;
}

/* ---- the version before ------------------------------------------------------------ */

const float *
store_newest_block(const struct fal_store *s, uint32_t b)
{
	const struct making *m = s->making;
	return m->on && m->made[b] ? fal_sum_memory(m->sum, b)
				   : s->params + (size_t)b * FAL_BLOCK;
}

const float *
store_newest(const struct fal_store *s)
{
	struct making *m = s->making;
	if (!m->on)
		return s->params;
	if (!m->whole)
		store_copy(s, m->params, NULL);
	m->whole = true;
	return m->params;
}

const int8_t *
store_newest_exps(const struct fal_store *s)
{
	return s->making->on ? s->making->exps : s->exps;
}
