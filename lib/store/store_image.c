/* A store as an image, and back. */
#include "store/store_priv.h"

#include "base/err.h"
#include "base/line.h"

#include <assert.h>
#include <stdio.h>

/* Of the versions before the newest, from `from` on, those that follow each other up to
 * it. */
static uint32_t
olds_of(const struct fal_store *s, uint64_t from)
{
	uint32_t n = 0;
	while (n < s->olds && s->version - n > from &&
	       s->old[s->olds - 1 - n].version + n + 1 == s->version)
		n++;
	return n;
}

/* The newest of them first. */
static int
add_olds(const struct fal_store *s, struct fal_image *m)
{
	int err = FAL_OK;
	for (uint32_t i = 1; i <= m->is.olds && err == FAL_OK; i++) {
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

/* Their numbers, as an array; `p` is one of a line or a slot. */
static int
add_numbers(const struct fal_store *s, struct fal_image *m, const char *name,
	    struct store_numbers *p, struct store_numbers is)
{
	for (uint32_t b = 0; b < s->blocks; b++)
		p[b] = is;
	return fal_image_add(m, name, false, p, (size_t)s->blocks * sizeof(*p));
}

static int
add_line(const struct fal_store *s, struct fal_image *m, uint32_t i)
{
	const struct line *l = &s->lines.v[i];
	const size_t values = s->conf.n * sizeof(float);
	const uint32_t slots = fal_optim_slots(&s->conf.optim);
	char name[FAL_IMAGE_NAME];
	snprintf(name, sizeof(name), "line.%u", i);
	int err = add_numbers(s, m, name, l->is,
			      (struct store_numbers){ l->version, l->steps });
	snprintf(name, sizeof(name), "line.%u.params", i);
	if (err == FAL_OK)
		err = fal_image_add(m, name, true, l->params, values);
	snprintf(name, sizeof(name), "line.%u.taken", i);
	if (err == FAL_OK)
		err = fal_image_add(m, name, true, l->taken, values);
	snprintf(name, sizeof(name), "line.%u.exponents", i);
	if (err == FAL_OK)
		err = fal_image_add(m, name, false, l->exps, s->blocks);
	snprintf(name, sizeof(name), "line.%u.optimizer", i);
	if (err == FAL_OK && slots > 0)
		err = fal_image_add(m, name, true, l->state, values * slots);
	return err;
}

static int
add_slot(const struct fal_store *s, struct fal_image *m, uint32_t i)
{
	const struct slot *u = &s->slots.v[i];
	char name[FAL_IMAGE_NAME];
	snprintf(name, sizeof(name), "slot.%u", i);
	int err = add_numbers(s, m, name, u->is,
			      (struct store_numbers){ u->slot, u->came });
	snprintf(name, sizeof(name), "slot.%u.mean", i);
	return err < 0 ? err
		       : fal_image_add(m, name, true, u->mean, s->conf.n * sizeof(float));
}

/* The models that are stepped by themselves, and what slots have contributed. */
static int
add_others(const struct fal_store *s, struct fal_image *m)
{
	int err = FAL_OK;
	for (uint32_t i = 0; i < s->lines.n && err == FAL_OK; i++)
		err = add_line(s, m, i);
	for (uint32_t i = 0; i < s->slots.n && err == FAL_OK; i++)
		err = add_slot(s, m, i);
	return err;
}

int
fal_store_image(struct fal_store *s, uint64_t from, struct fal_image *m)
{
	const size_t values = s->conf.n * sizeof(float);
	const uint32_t slots = fal_optim_slots(&s->conf.optim);
	if (s->making->on)
		return FAL_ESTATE;
	m->is = (struct fal_image_head){ .version = s->version,
					 .steps = s->steps,
					 .olds = olds_of(s, from),
					 .lines = (uint32_t)s->lines.n,
					 .slots = (uint32_t)s->slots.n };
	int err = fal_image_add(m, "params", true, s->params, values);
	if (err == FAL_OK)
		err = fal_image_add(m, "exponents", false, s->exps, s->blocks);
	if (err == FAL_OK)
		err = fal_image_add(m, "ranges", false, s->range,
				    s->blocks * sizeof(*s->range));
	if (err == FAL_OK && slots > 0)
		err = fal_image_add(m, "optimizer", true, s->state, values * slots);
	if (err == FAL_OK && s->average != NULL)
		err = fal_image_add(m, "average", true, s->average, values);
	if (err == FAL_OK)
		err = add_olds(s, m);
	return err == FAL_OK ? add_others(s, m) : err;
}

/* So many lines and slots, whose numbers come with their arrays. */
static int
make_others(struct fal_store *s, const struct fal_image_head *is)
{
	if (is->lines > FAL_IMAGE_OTHERS || is->slots > FAL_IMAGE_OTHERS)
		return FAL_EINVAL;
	for (uint32_t i = 0; i < is->lines; i++)
		if (store_add_line(s, 0) == NULL)
			return FAL_ENOMEM;
	for (uint32_t i = 0; i < is->slots; i++)
		if (store_slot(s, i) == NULL)
			return FAL_ENOMEM;
	return FAL_OK;
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
	s->olds = is->olds;
	for (uint32_t i = 0; i < s->olds; i++)
		s->old[i].version = s->version - s->olds + i;
	return make_others(s, is);
}

void
fal_store_became(struct fal_store *s)
{
	for (uint32_t b = 0; b < s->blocks; b++)
		s->reach[b] = store_reach(s, s->params, s->state, b);
	for (size_t i = 0; i < s->lines.n; i++) {
		struct line *l = &s->lines.v[i];
		l->version = l->is[0].number;
		l->steps = l->is[0].count;
		for (uint32_t b = 0; b < s->blocks; b++)
			l->reach[b] = store_reach(s, l->params, l->state, b);
	}
	for (size_t i = 0; i < s->slots.n; i++) {
		s->slots.v[i].slot = s->slots.v[i].is[0].number;
		s->slots.v[i].came = (uint32_t)s->slots.v[i].is[0].count;
	}
}
