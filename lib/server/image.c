/* Images: lists of arrays. */
#include "server/image.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "wire/bfp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
fal_image_add(struct fal_image *m, const char *name, bool floats, void *p, size_t bytes)
{
	FAL_XGROW(m->array, m->cap, (size_t)m->arrays + 1);
	struct fal_image_array *a = &m->array[m->arrays++];
	*a = (struct fal_image_array){ .floats = floats, .p = p, .bytes = bytes };
	snprintf(a->name, sizeof(a->name), "%s", name);
}

/* Memory for a copy of the array: that of one of this name in `spare`, or new. */
static void *
room_for(const struct fal_image_array *a, struct fal_image *spare)
{
	for (uint32_t i = 0; i < spare->arrays; i++) {
		struct fal_image_array *s = &spare->array[i];
		void *p = s->p;
		if (p == NULL || s->bytes != a->bytes || strcmp(s->name, a->name) != 0)
			continue;
		s->p = NULL;
		return p;
	}
	/* Not zeroed first: it may be large. */
	return FAL_TRY(MALLOC, NULL, malloc(a->bytes > 0 ? a->bytes : 1));
}

int
fal_image_copy(struct fal_image *m, const struct fal_image *from)
{
	struct fal_image copy = { .is = from->is, .owned = true };
	int err = FAL_OK;
	for (uint32_t i = 0; i < from->arrays; i++) {
		const struct fal_image_array *a = &from->array[i];
		void *p = room_for(a, m);
		if (p == NULL) {
			err = FAL_ENOMEM;
			break;
		}
		memcpy(p, a->p, a->bytes);
		fal_image_add(&copy, a->name, a->floats, p, a->bytes);
	}
	fal_image_free(m);
	if (err < 0)
		fal_image_free(&copy);
	*m = copy;
	return err;
}

bool
fal_image_is_same(const struct fal_image_head *a, const struct fal_image_head *b)
{
	return a->version == b->version && a->steps == b->steps && a->olds == b->olds &&
	       a->lines == b->lines && a->slots == b->slots && a->holds == b->holds &&
	       a->held == b->held;
}

/* Where the blocks `of` begin in array `a` of the blocks `run`, and their bytes. */
static size_t
part_of(const struct fal_image_array *a, const struct fal_image_run *run,
	const struct fal_image_run *of, size_t *bytes)
{
	const uint32_t skipped = of->first - run->first;
	const size_t per = a->bytes / (a->floats ? run->values : run->count);
	*bytes = (a->floats ? of->values : of->count) * per;
	return (a->floats ? (size_t)skipped * FAL_BLOCK : skipped) * per;
}

void
fal_image_cut(const struct fal_image *from, const struct fal_image_run *run,
	      const struct fal_image_run *of, struct fal_image *out)
{
	*out = (struct fal_image){ .is = from->is };
	for (uint32_t i = 0; i < from->arrays; i++) {
		const struct fal_image_array *a = &from->array[i];
		size_t bytes;
		const size_t at = part_of(a, run, of, &bytes);
		fal_image_add(out, a->name, a->floats, (char *)a->p + at, bytes);
	}
}

int
fal_image_graft(struct fal_image *to, const struct fal_image_run *run,
		const struct fal_image *part, const struct fal_image_run *of)
{
	bool fits = to->arrays == part->arrays && fal_image_is_same(&to->is, &part->is);
	for (uint32_t i = 0; i < to->arrays && fits; i++) {
		const struct fal_image_array *a = &to->array[i], *b = &part->array[i];
		size_t bytes;
		const size_t at = part_of(a, run, of, &bytes);
		fits = strcmp(a->name, b->name) == 0 && a->floats == b->floats &&
		       bytes == b->bytes;
		if (fits)
			memcpy((char *)a->p + at, b->p, bytes);
	}
	return fits ? FAL_OK : FAL_EFORMAT;
}

static bool
is_held(const struct fal_image_array *a)
{
	return strncmp(a->name, "held.", 5) == 0;
}

bool
fal_image_hold(struct fal_image *m, uint64_t version)
{
	if (m->is.holds && m->is.held == version)
		return true;
	m->is.holds = true;
	m->is.held = version;
	/* What was held before stands last. */
	while (m->arrays > 0 && is_held(&m->array[m->arrays - 1])) {
		m->arrays--;
		if (m->owned)
			free(m->array[m->arrays].p);
	}
	return fal_image_keeps(&m->is) && version <= m->is.version;
}

void
fal_image_free(struct fal_image *m)
{
	for (uint32_t i = 0; m->owned && i < m->arrays; i++)
		free(m->array[i].p);
	free(m->array);
	*m = (struct fal_image){ 0 };
}
