/* A version that is made while the round that it is made of is not complete: each block
 * as soon as it has all its tasks.  Whatever is not so by then is left to the step, which
 * makes of all of them what it would have made of them at once. */
#include "store/store_priv.h"

#include "base/err.h"

#include <stdatomic.h>
#include <string.h>

/* Some blocks that may be made. */
struct making {
	const struct fal_store *s;
	const struct round *r;
	struct store_step step;
	atomic_uint refused;
};

static struct making
making_of(const struct fal_store *s, const struct round *r)
{
	const struct fal_store_make *how = &s->making;
	return (struct making){ .s = s,
				.r = r,
				.step = store_next_step(s, r->sum, r->exps, how->lr,
							how->divisor) };
}

static void
make_one(void *of, uint32_t b, uint32_t thread)
{
	(void)thread;
	struct making *m = of;
	const struct fal_store *s = m->s;
	if (m->r->counted[b] != m->r->is.tasks || s->made[b] ||
	    !store_is_good(s, m->r, b, s->making.samples))
		return;
	m->refused += !store_step_one(s, &m->step, 1, b);
	s->made[b] = 1;
}

/* Is the step of nothing but gradients that no other block has a say in? */
static bool
is_plain(const struct fal_store *s, const struct fal_store_make *how)
{
	return s->sum == NULL && !s->moved && s->conf.optim.clip <= 0 &&
	       s->average == NULL && how->samples > 0 && how->divisor > 0;
}

int
fal_store_make(struct fal_store *s, const struct fal_store_make *how)
{
	const struct round *r = round_find(s, how->round);
	if (s->makes || how->versions < 2 || r == NULL || r->is.kind != FAL_KIND_GRAD ||
	    !is_plain(s, how))
		return 0;
	int err = fal_store_keep(s, how->versions);
	if (err < 0)
		return err;
	store_put_by(s, s->version, s->params, s->exps);
	memset(s->made, 0, s->blocks);
	s->makes = true;
	s->making = *how;
	struct making of = making_of(s, r);
	fal_parallel_each(s->conf.parallel, s->blocks, make_one, &of);
	s->refused = of.refused;
	return 1;
}

void
store_make_block(struct fal_store *s, const struct round *r, uint32_t b)
{
	if (!s->makes || r->is.round != s->making.round)
		return;
	struct making of = making_of(s, r);
	make_one(&of, b, 0);
	s->refused += of.refused;
}

bool
store_is_made(const struct fal_store *s, const struct round *r, uint32_t b)
{
	return s->makes && r->is.round == s->making.round && s->made[b];
}

const uint8_t *
fal_store_made(const struct fal_store *s)
{
	return s->makes ? s->made : NULL;
}
