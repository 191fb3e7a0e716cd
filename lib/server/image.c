/* Images: lists of named arrays. */
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

int
fal_image_copy(struct fal_image *m, const struct fal_image *from)
{
	struct fal_image copy = { .is = from->is, .owned = true };
	int err = FAL_OK;
	for (uint32_t i = 0; i < from->arrays; i++) {
		const struct fal_image_array *a = &from->array[i];
		void *p = NULL;
		/* The copy uses the memory of the same array in `m`; or new memory, which
		 * is not zeroed, because the array may be large. */
		for (uint32_t k = 0; k < m->arrays && p == NULL; k++) {
			struct fal_image_array *own = &m->array[k];
			if (own->bytes == a->bytes && strcmp(own->name, a->name) == 0) {
				p = own->p;
				own->p = NULL;
			}
		}
		if (p == NULL)
			p = FAL_TRY(MALLOC, NULL, malloc(a->bytes > 0 ? a->bytes : 1));
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
fal_image_head_equal(const struct fal_image_head *a, const struct fal_image_head *b)
{
	return a->version == b->version && a->steps == b->steps && a->olds == b->olds &&
	       a->lines == b->lines && a->slots == b->slots && a->holds == b->holds &&
	       a->held == b->held;
}

/* Array `a` has the blocks `run`.  Returns the offset of the blocks `of` in `a`, and sets
 * *bytes to their bytes. */
static size_t
image_offset(const struct fal_image_array *a, const struct fal_image_run *run,
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
		const size_t at = image_offset(a, run, of, &bytes);
		fal_image_add(out, a->name, a->floats, (char *)a->p + at, bytes);
	}
}

int
fal_image_graft(struct fal_image *to, const struct fal_image_run *run,
		const struct fal_image *part, const struct fal_image_run *of)
{
	bool fits =
		to->arrays == part->arrays && fal_image_head_equal(&to->is, &part->is);
	for (uint32_t i = 0; i < to->arrays && fits; i++) {
		const struct fal_image_array *a = &to->array[i], *b = &part->array[i];
		size_t bytes;
		const size_t at = image_offset(a, run, of, &bytes);
		fits = strcmp(a->name, b->name) == 0 && a->floats == b->floats &&
		       bytes == b->bytes;
		if (fits)
			memcpy((char *)a->p + at, b->p, bytes);
	}
	return fits ? FAL_OK : FAL_EFORMAT;
}

bool
fal_image_hold(struct fal_image *m, uint64_t version)
{
	if (m->is.holds && m->is.held == version)
		return true;
	m->is.holds = true;
	m->is.held = version;
	/* The arrays of the version that was pinned before come last. */
	while (m->arrays > 0 && strncmp(m->array[m->arrays - 1].name, "held.", 5) == 0) {
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
