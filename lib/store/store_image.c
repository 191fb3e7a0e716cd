/* A store as an image, and back. */
#include "store/store_priv.h"

#include "base/err.h"
#include "base/line.h"

#include <assert.h>
#include <stdio.h>

/* The versions before the newest, the newest of them first. */
static int
add_olds(const struct fal_store *s, struct fal_image *m)
{
	int err = FAL_OK;
	for (uint32_t i = 1; i <= s->olds && err == FAL_OK; i++) {
		const struct old *o = &s->old[s->olds - i];
		char name[FAL_IMAGE_NAME];
		snprintf(name, sizeof(name), "params.%u", i);
		err = fal_image_add(m, name, true, o->params, s->conf.n * sizeof(float));
		snprintf(name, sizeof(name), "exponents.%u", i);
		if (err == FAL_OK)
			err = fal_image_add(m, name, false, o->exps, s->blocks);
	}
	return err;
}

int
fal_store_image(struct fal_store *s, struct fal_image *m)
{
	const size_t values = s->conf.n * sizeof(float);
	const uint32_t slots = fal_optim_slots(&s->conf.optim);
	m->is = (struct fal_image_head){ .version = s->version,
					 .steps = s->steps,
					 .showns = s->showns,
					 .olds = s->olds };
	int err = fal_image_add(m, "params", true, s->params, values);
	if (err == FAL_OK)
		err = fal_image_add(m, "exponents", false, s->exps, s->blocks);
	if (err == FAL_OK && slots > 0)
		err = fal_image_add(m, "optimizer", true, s->state, values * slots);
	if (err == FAL_OK && s->average != NULL)
		err = fal_image_add(m, "average", true, s->average, values);
	if (err == FAL_OK)
		err = fal_image_add(m, "shown", false, s->shown,
				    (size_t)s->blocks * SHOWN_UPDATES *
					    sizeof(*s->shown));
	return err == FAL_OK ? add_olds(s, m) : err;
}

int
fal_store_become(struct fal_store *s, const struct fal_image_head *is)
{
	assert(s->version == 0 && s->open.n == 0);
	if (is->olds > is->version || is->olds == UINT32_MAX ||
	    fal_line_of(is->version) != 0)
		return FAL_EINVAL;
	int err = fal_store_keep(s, is->olds + 1);
	if (err < 0)
		return err;
	s->version = is->version;
	s->steps = is->steps;
	s->showns = is->showns;
	s->olds = is->olds;
	for (uint32_t i = 0; i < s->olds; i++)
		s->old[i].version = s->version - s->olds + i;
	return FAL_OK;
}

void
fal_store_became(struct fal_store *s)
{
	for (uint32_t b = 0; b < s->blocks; b++)
		s->reach[b] = store_reach(s, s->params, s->state, b);
}
